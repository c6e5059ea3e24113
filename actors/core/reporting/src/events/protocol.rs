//! Inputs and outputs of the event emitter, and the Event object (E1).

use std::sync::Arc;
use std::time::Duration;

use model::ids::{CallId, Epoch};
use model::leadership::Leadership;
use model::machine::Now;
use model::policy::OperatorPolicy;
use model::report::{Ended, Report, Subject};
use model::sample::Metric;

/// Settings of the event emitter, fixed at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// Maximum number of series that wait for a write; more are dropped and counted.
    pub capacity: usize,
    /// Sustained rate, in events per second.
    pub per_second: u32,
    /// Burst after a quiet time.
    pub burst: u32,
}

/// Inputs of the event emitter.
#[derive(Clone, Debug)]
pub enum In {
    /// A report to emit as events.
    Report(Report),
    /// A reported condition no longer holds: its report is not posted again.
    Ended(Ended),
    /// Leadership of this process. A standby emits nothing, because the leader emits it. The initial state is standby.
    Leadership(Leadership),
    /// The operator's policy. While no writes are permitted, Services and Nodes get no Events either, and none is sent
    /// before the policy was received for a term (G6).
    OperatorPolicy {
        /// The newest term that had begun when the policy was read.
        term: Option<Epoch>,
        /// The complete policy.
        policy: Arc<OperatorPolicy>,
    },
    /// A post was answered.
    Posted {
        /// The id of the request.
        call: CallId,
        /// The name of the Event object, or why there is none.
        answer: Result<Arc<str>, PostFailure>,
    },
}

/// Reasons why an event could not be posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PostFailure {
    /// Worth another try: no answer, 429 (with its `Retry-After`), 5xx.
    Transient(Option<Duration>),
    /// The Event object to be changed does not exist any more.
    Gone,
    /// An Event object of this name exists: an earlier try created it.
    Exists(Arc<str>),
    /// Refused permanently: the namespace is gone, forbidden, invalid.
    Final(Arc<str>),
    /// Not posted, because this process only shows what it would do (C4).
    Withheld,
}

/// Outputs of the event emitter.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the kubernetes port: create or change this Event object.
    Post {
        /// The id that the answer carries.
        call: CallId,
        /// The event.
        event: Arc<Event>,
    },
    /// To the Informer, the Directory and the admin state: the term in which their reports become events; `None`:
    /// reports are dropped. Reports that they make after this message arrive in the same term.
    Reporting(Option<Epoch>),
    /// To the log: an event is not posted, or not again.
    Dropped(Dropped),
    /// To the metrics.
    Metric(Metric),
}

/// An event that is not posted, or not again.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dropped {
    /// The object that it is attached to.
    pub subject: Subject,
    /// `Normal` or `Warning`.
    pub severity: Severity,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The newest message.
    pub message: Arc<str>,
    /// Reason why it is not posted.
    pub cause: DropReason,
}

/// Reasons why an event is not posted, or not again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DropReason {
    /// Too many events wait.
    QueueFull,
    /// Its object has used up its budget.
    OverBudget,
    /// No try was accepted by the API server.
    NotAccepted,
    /// Events about its object are not permitted now.
    NotAllowed,
    /// The reported condition no longer holds, or a newer report has replaced this one.
    Outdated,
}

impl DropReason {
    /// Returns the text for the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            DropReason::QueueFull => "too many events wait",
            DropReason::OverBudget => "the object has used up its budget of events",
            DropReason::NotAccepted => "the API server has not accepted it",
            DropReason::NotAllowed => "no events are reported about the object now",
            DropReason::Outdated => "it no longer holds, or a newer report has replaced it",
        }
    }
}

/// The desired Event object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The object to which it is attached.
    pub subject: Subject,
    /// `Normal` or `Warning`.
    pub severity: Severity,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The newest message, at most 1024 bytes.
    pub message: Arc<str>,
    /// Number of occurrences.
    pub count: u64,
    /// Time of the first occurrence.
    pub first: Now,
    /// Time of the last occurrence.
    pub last: Now,
    /// The Event object to write.
    pub object: EventTarget,
    /// True if it occurred since the last post; `false`: this is another try of the same content.
    pub is_new: bool,
}

/// The Event object of an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventTarget {
    /// A new one. Its name contains this unique number; a repeated try has the same number.
    New(u64),
    /// The one with this name: count, time of the last occurrence and message are to be changed.
    Existing(Arc<str>),
}

/// The type of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

impl Severity {
    /// Returns the type as in core/v1 Events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}
