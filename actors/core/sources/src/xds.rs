//! The client of xDS control planes, and what each source makes of what it tells (docs/design/xds.md, X1-X4).

pub mod client;
pub mod sources;
