//! The tests of this crate, on the test's clock.

mod apply;
mod cloud;
mod ip_pools;
mod leases;
mod members;
mod outage;
mod plan;
mod properties;
mod survey;
mod targets;
mod world;
