//! Tests of several machines, for rules whose violation the simulation would not name. Most connect them by the real
//! `route`.

#[path = "machines/pauses.rs"]
mod pauses;
#[path = "machines/quarantine.rs"]
mod quarantine;
#[path = "machines/sources.rs"]
mod sources;
#[path = "machines/terms.rs"]
mod terms;
