//! Holds no code. Its dependencies have the features that the whole workspace gives them, so that
//! `cargo test --package` finds what `cargo test --workspace` has built.
