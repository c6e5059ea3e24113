//! Several machines together, joined by the real `route`, where the simulation would not say which rule was broken.

#[path = "machines/neighbours.rs"]
mod neighbours;
#[path = "machines/pauses.rs"]
mod pauses;
#[path = "machines/terms.rs"]
mod terms;
