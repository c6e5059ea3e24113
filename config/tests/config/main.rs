//! Tests of the crate's API: parsing, refusals and their texts, and the redaction of secrets.

mod cloud;
mod controller;
mod load;
mod pools;
mod robustness;
mod secret;
