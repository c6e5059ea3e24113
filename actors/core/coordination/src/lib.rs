//! Which replica may write, and what operators have paused (docs/design/coordination.md).

pub mod leader;
pub mod pauses;
