//! azure-backend-pool-controller: keeps Azure Load Balancer backend pools in sync with the endpoints of a Kubernetes
//! cluster.
//!
//! This crate is the outermost layer: commands, wiring, HTTP listeners. Decisions live in `pool-core`.

mod cli;
mod control_planes;
mod http;
mod service;
mod telemetry;
mod wiring;

pub use cli::{Cli, run};
pub use http::{CONNECTIONS, END_TIMEOUT, openapi_document};
pub use service::SHUTDOWN_TIMEOUT;
