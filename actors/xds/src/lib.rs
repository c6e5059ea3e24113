//! The driver of the xDS client (X2): it reads gRPC's bootstrap, speaks protobuf and gRPC, and serves the client's
//! state by CSDS (H5).
//!
//! It makes no decisions. `sources::xds::client` decides which streams to open, what to request and answer, and which
//! responses are valid. Its callers decide which resources to watch and how to use them, and provide the wall time.

mod bootstrap;
mod csds;
mod decode;
mod driver;
mod encode;

pub use bootstrap::{Bootstrap, Node, Source};
pub use csds::{Status, serve as serve_csds};
pub use driver::Driver;
