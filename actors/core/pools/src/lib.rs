//! Which pools there are, what each must hold, and when it is due (docs/design/pools.md).

pub mod directory;
pub mod discovery;
pub mod membership;
pub mod queue;
