//! Pools whose members come from an xDS control plane (docs/design/xds.md, X1-X4): received resources, their
//! validation, and the state of each source.

pub mod assignment;
pub mod cache;
pub mod cluster;
pub mod diagnostic;
pub mod dump;
pub mod facts;
mod faults;
pub mod name;
mod resource;
pub mod source;
pub mod stream;

pub use resource::{Invalid, ResourceValue, validate, validate_within};
