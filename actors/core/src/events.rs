//! Kubernetes Events: the words for each report, and a bounded queue towards the API server (design.md E1).

use std::sync::Arc;
use std::time::Duration;

use crate::ids::CallId;
use crate::report::{Report, Subject};
use crate::sample::Sample;

/// The source component of every event.
pub const COMPONENT: &str = "azure-backend-pool-controller";

/// What the event emitter is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// How many events may wait; more are dropped and counted.
    pub capacity: usize,
    /// The rate, in events per second, that is kept over time.
    pub per_second: u32,
    /// How many may be posted at once after a quiet time.
    pub burst: u32,
}

/// What the event emitter can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// Tell people.
    Report(Report),
    /// A post was answered.
    Posted {
        /// The id of the request.
        call: CallId,
        /// Why it failed, if it did.
        failure: Option<PostFailure>,
    },
}

/// Why an event could not be posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PostFailure {
    /// Worth another try: no answer, 429 (with its `Retry-After`), 5xx.
    Transient(Option<Duration>),
    /// Refused for good: the namespace is gone, forbidden, invalid.
    Final(Arc<str>),
}

/// What the event emitter can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the kubernetes port: create this event.
    Post {
        /// The id that the answer carries.
        call: CallId,
        /// The event.
        event: Arc<Event>,
    },
    /// To the metrics.
    Sample(Sample),
}

/// An event to be created; the port adds time and name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Whom it is attached to.
    pub subject: Subject,
    /// `Normal` or `Warning`.
    pub severity: Severity,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The message, at most 1024 bytes.
    pub message: Arc<str>,
}

/// The type of an event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Severity {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}
