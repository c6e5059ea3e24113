//! Tests of several machines, connected by the real `route`, for rules whose violation the simulation would not name.

#[path = "machines/neighbours.rs"]
mod neighbours;
#[path = "machines/pauses.rs"]
mod pauses;
#[path = "machines/terms.rs"]
mod terms;
