//! Pools whose members an xDS control plane names (docs/design/xds.md, X1-X4): what it sends, what of that is valid,
//! and what is known of each source.

pub mod assignment;
pub mod cache;
pub mod cluster;
pub mod dump;
pub mod facts;
pub mod name;
pub mod remark;
mod resource;
pub mod source;
pub mod stream;

pub use resource::{Invalid, Value, validate, validate_within};
