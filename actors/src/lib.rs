//! The generic actix shell that runs every machine, and the ports that the machines drive.
//!
//! The machines decide (crate `pool-core`); the code here only carries out their outputs.

pub mod address_book;
pub mod clock;
mod edges;
pub mod shell;

pub mod azure;
pub mod host;
pub mod kubernetes;
pub mod operator_requests;
pub mod pools;
pub mod recorder;
pub mod xds;
