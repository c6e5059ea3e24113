//! The driver of the xDS client (X2): it reads gRPC's bootstrap, speaks protobuf and gRPC, and shows the client's state
//! by CSDS (H5).
//!
//! It judges nothing. Which stream is opened, what is asked and answered, and what of all that is valid is
//! [`sources::xds::client`]'s; who asks for what, and what becomes of it, is its callers'. It reads no clock for
//! other crates: wall time is handed in.

pub mod bootstrap;
pub mod csds;
pub mod decode;
pub mod driver;
pub mod encode;

pub use bootstrap::{Bootstrap, BootstrapError, Node, Source};
pub use csds::Status;
pub use driver::Driver;
