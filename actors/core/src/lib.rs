//! Connects the machines of azure-backend-pool-controller. Each machine decides without input or output. Shells feed
//! it and carry out its outputs, and [`route::route`] maps each output to its receivers.
//!
//! The machines are in crates of their own, which depend only on `model` and `mechanisms`. Rule ids such as `Q3`
//! refer to the contract (docs/design).

pub mod certificate;
pub mod comparison;
pub mod deployment;
pub mod intake;
pub mod machines;
pub mod outbox;
pub mod route;
