//! The models of ARM and Kubernetes behind real HTTP, scenarios and reports (docs/design/surface.md, Z1, Z2).
//!
//! Owns the fakes' listeners and clocks, a simulated cluster of Services with load balancers, its changes, and the
//! checks of the results. It uses the controller only as a process that reads files and speaks HTTP: it must not depend
//! on the controller's crates, because it would repeat their mistakes.

mod azure;
mod churn;
mod clock;
mod cluster;
pub mod control_plane;
mod convergence;
mod downs;
mod expected_members;
mod fakes;
mod files;
mod holds;
mod http;
mod lanes;
mod live_ccm;
mod notation;
mod outages;
mod owner;
mod pace;
mod play;
mod post_run_checks;
mod process;
mod process_control;
mod random;
mod report;
mod scenario;
mod signals;
pub mod upstream;
mod wire;
mod world;

pub use azure::Azure;
pub use churn::{Change, Churn, Pattern};
pub use clock::Clock;
pub use cluster::Cluster;
pub use convergence::{InSync, PoolName};
pub use expected_members::{ExpectedPool, States, expected_pools, members, pool_name, wrong_pools};
pub use fakes::{Arm, Fakes, Settings};
pub use files::{Files, Options as FileOptions, Reserved, merge_overlay, vnet_id};
pub use live_ccm::LiveCcm;
pub use notation::{duration, fault, latency};
pub use owner::Owner;
pub use pace::TIMES;
pub use play::{Outcome, Play, Progress, Stage};
pub use post_run_checks::{Watcher, log_errors};
pub use process::Process;
pub use random::Random;
pub use report::{Report, RunInfo};
pub use scenario::{Action, CcmMode, Line, NAMED, Scenario, When};
pub use simulator_models as models;
pub use wire::{Exchange, Fate, Journal};
pub use world::{CLUSTER_NAME, Phase, Service, Size, World};
