//! How the machines of azure-backend-pool-controller are connected. Each machine decides without input or output; shells
//! feed it and act on what it says, and [`route::route`] knows who hears what.
//!
//! The machines are in crates of their own, which know only `model` and `mechanisms`. Rule ids such as `Q3` are those
//! of the contract (docs/design).

pub mod certificate;
pub mod comparison;
pub mod deployment;
pub mod intake;
pub mod outbox;
pub mod route;
