//! Has no code. Its dependencies have the features that the whole workspace enables, so that `cargo test --package`
//! reuses what `cargo test --workspace` has built.
