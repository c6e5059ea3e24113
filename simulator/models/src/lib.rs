//! Sans-IO models of ARM and of the Kubernetes API server.

pub mod arm;
pub mod kube;
