//! Helpers that tests of several crates of the core share.

pub mod planted;
