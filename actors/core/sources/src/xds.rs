//! The client of xDS control planes, and the assignments that each source gets from it (docs/design/xds.md, X1-X4).

pub mod client;
pub mod sources;
