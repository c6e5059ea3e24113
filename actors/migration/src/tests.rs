//! The tests of this crate, on the test's clock.

mod cloud;
mod members;
mod plan;
mod survey;
mod targets;
