//! Models of ARM and of the Kubernetes API server, as plain data without IO: requests and the time go in, answers come
//! out (design.md Z1).
//!
//! They own how the real servers behave and misbehave. Sockets and clocks belong to whoever
//! drives them.

pub mod arm;
pub mod kube;
