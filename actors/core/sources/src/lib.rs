//! The sources of the members of each pool: the machines that follow the Kubernetes API server and xDS control planes
//! (docs/design/sources.md, docs/design/xds.md).

pub mod informer;
pub mod resource_cache;
pub mod watch;
pub mod xds;
pub mod xds_source;
