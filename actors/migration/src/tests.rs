//! The tests of this crate, on the test's clock.

mod addresses;
mod apply;
pub(crate) mod cloud;
mod ip_pools;
mod leases;
mod members;
mod outage;
mod plan;
mod properties;
mod stray;
mod survey;
mod targets;
mod world;
