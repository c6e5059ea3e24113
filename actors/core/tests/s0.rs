//! Conformance with S0, the specification of the backend-pool updater: each case of its chapter "Tests", the
//! sentences of "Expected Behavior", and the arithmetic of "Retry Timing", in the default profile and in
//! `compatibility: upstream` (C2).
//!
//! The pools' machines, the writer and the event emitter are connected by the real `route`; ARM is the simulator's
//! model; there is one simulated clock. The tests assert what operators and ARM see: the exact events, the terminal
//! observations, the retry counts, and the requests with their times.
//!
//! Two cases are partly tested elsewhere: the eight cases of `ThrottleError` in the gate's and the arm port's tests,
//! and the config load of case 22 in a test of the `config` crate (Q7).

#[expect(dead_code, reason = "the simulation uses all of it")]
#[path = "simulation/codec.rs"]
mod codec;
#[expect(dead_code, reason = "the simulation uses all of it")]
#[path = "simulation/decode.rs"]
mod decode;
#[path = "s0/endings.rs"]
mod endings;
#[path = "s0/fixture.rs"]
mod fixture;
#[path = "s0/groups.rs"]
mod groups;
#[path = "s0/profile.rs"]
mod profile;
#[path = "s0/races.rs"]
mod races;
#[path = "s0/texts.rs"]
mod texts;
#[path = "s0/throttled.rs"]
mod throttled;
#[path = "s0/timing.rs"]
mod timing;
