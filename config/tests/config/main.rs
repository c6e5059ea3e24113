//! The crate's promises, seen from outside: what is read, what is refused and with which words, and what is never
//! shown.

mod cloud;
mod controller;
mod load;
mod pools;
mod robustness;
mod secret;
