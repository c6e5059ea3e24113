//! Pools whose members an xDS control plane names (X1-X4): what it sends, what of that is valid, and what follows.
//!
//! It owns the judgement of resources and the protocol's states. Streams, protobuf, files and the clock are a
//! driver's; which pool asks for which resource is configured.

pub mod assignment;
pub mod client;
pub mod cluster;
pub mod facts;
pub mod membership;
mod resource;
pub mod sources;

pub use resource::{Invalid, Value, validate, validate_within};
