//! The tests that run the real binary, as one test program.

mod admin;
mod cluster;
mod commands;
mod scenarios;
mod support;
mod tidy;
