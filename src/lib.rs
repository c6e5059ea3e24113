//! azure-backend-pool-controller: keeps Azure Load Balancer backend pools in sync with the endpoints of a Kubernetes
//! cluster.
//!
//! This crate is the outermost layer: commands, wiring, HTTP listeners. Decisions live in `pool-core`.

pub mod cli;
pub mod control_planes;
pub mod http;
pub mod service;
pub mod telemetry;
pub mod wiring;
