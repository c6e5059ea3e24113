//! The tests that run the real binary, as one test program.

mod admin;
mod advisories;
mod cluster;
mod commands;
mod development;
mod faults;
mod proxies;
mod scenarios;
mod signing_in;
mod support;
mod tidy;
mod xds;
