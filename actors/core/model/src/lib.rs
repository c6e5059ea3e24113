//! The types that machines exchange: ids, time, facts from Kubernetes, ARM and xDS, levels, and the views that
//! operators see (docs/design/model-and-mechanisms.md). The crate has pure functions over these types, and no machine.

pub mod arm;
pub mod assignment;
pub mod attempt;
mod backend;
pub mod blocked;
pub mod config_map;
pub mod draining;
pub mod error;
mod gate_class;
pub mod guard;
pub mod ids;
pub mod leadership;
pub mod lease;
pub mod level;
pub mod load_balancers;
pub mod machine;
pub mod node;
pub mod object;
pub mod operator_request;
pub mod pins;
pub mod policy;
pub mod proof;
pub mod redact;
pub mod report;
pub mod sample;
pub mod services;
pub mod signals;
pub mod view;
pub mod watch;
pub mod write_record;
pub mod xds;
