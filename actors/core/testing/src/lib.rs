//! Helpers that tests of several crates of the core share.

pub mod facts;
pub mod planted;
pub mod views;
