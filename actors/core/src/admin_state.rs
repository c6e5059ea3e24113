//! The admin state of address entries: nodes that leave service are cut out of traffic, and ours are taken back
//! (design.md chapter 8).
//!
//! What stands where:
//! - `signals`: which taints and messages say that a node leaves (N1);
//! - `admission`: how many Ready nodes may be Down at the same time (N5);
//! - `records`: what is noted of a node before its first Down, as text (N4).

pub mod admission;

pub mod records;
pub mod signals;
