//! Models of ARM, of the Kubernetes API server, of the cloud-controller-manager and of an xDS control plane, as plain
//! data without IO: inputs and the time go in, answers or requests come out (docs/design/surface.md, Z1).
//!
//! They model the behaviour and the faults of the real servers. Sockets and clocks belong to the code that drives
//! them.

pub mod arm;
pub mod ccm;
pub mod control_plane;
pub mod kube;
