//! What the event emitter receives and sends, and what an Event object is (E1).

use std::sync::Arc;
use std::time::Duration;

use model::ids::{CallId, Epoch};
use model::leadership::Standing;
use model::machine::Now;
use model::policy::OperatorPolicy;
use model::report::{Ended, Report, Subject};
use model::sample::Metric;

/// What the event emitter is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// How many series may wait to be written; more are dropped and counted.
    pub capacity: usize,
    /// The rate, in events per second, that is kept over time.
    pub per_second: u32,
    /// How many may be posted at once after a quiet time.
    pub burst: u32,
}

/// What the event emitter can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// Tell operators.
    Report(Report),
    /// A condition that was reported holds no longer: its report is not posted again.
    Ended(Ended),
    /// Whether this process leads: one that does not tells nothing, for the one that does tells it. Until the first
    /// of these it does not.
    Standing(Standing),
    /// The policy of the operator: while nothing may be written, Services and Nodes get no Events either, and none is
    /// sent before the policy was received for a term (G6).
    OperatorPolicy {
        /// The newest term that had begun when it was read.
        term: Option<Epoch>,
        /// All of it.
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

/// Why an event could not be posted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PostFailure {
    /// Worth another try: no answer, 429 (with its `Retry-After`), 5xx.
    Transient(Option<Duration>),
    /// The Event object that was to be changed is not there any more.
    Gone,
    /// An Event object of this name exists: an earlier try had created it.
    Exists(Arc<str>),
    /// Refused for good: the namespace is gone, forbidden, invalid.
    Final(Arc<str>),
    /// Not posted, because this process only shows what it would do (C4).
    Withheld,
}

/// What the event emitter can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the kubernetes port: create or change this Event object.
    Post {
        /// The id that the answer carries.
        call: CallId,
        /// The event.
        event: Arc<Event>,
    },
    /// To the Informer, the Directory and the admin state: the term in which what they report is told; `None`: it is
    /// dropped. Whatever they report when they have heard of a term finds the emitter in it.
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
    /// Why it is not posted.
    pub why: DropReason,
}

/// Why an event is not posted, or not again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum DropReason {
    /// Too many events wait.
    QueueFull,
    /// Its object has used up its budget.
    OverBudget,
    /// The API server accepts it in no try.
    NotAccepted,
    /// Nothing may be reported about its object now.
    NotAllowed,
    /// What it reports holds no longer, or a newer report has replaced it.
    Outdated,
}

impl DropReason {
    /// The words for the log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            DropReason::QueueFull => "too many events wait",
            DropReason::OverBudget => "the object has used up its budget of events",
            DropReason::NotAccepted => "the API server has not accepted it",
            DropReason::NotAllowed => "no events are reported about the object now",
            DropReason::Outdated => "it holds no longer, or a newer report has replaced it",
        }
    }
}

/// An Event object as it is to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// Whom it is attached to.
    pub subject: Subject,
    /// `Normal` or `Warning`.
    pub severity: Severity,
    /// The reason, in CamelCase.
    pub reason: &'static str,
    /// The newest message, at most 1024 bytes.
    pub message: Arc<str>,
    /// How often it occurred.
    pub count: u64,
    /// When it first occurred.
    pub first: Now,
    /// When it last occurred.
    pub last: Now,
    /// Which Event object it is.
    pub place: Place,
    /// Whether it has occurred since it was posted last; `false`: this is another try of writing what was posted before.
    pub is_news: bool,
}

/// Which Event object stands for an event.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// One to be created. Its name is made of this number, which is another one for each; a repeated try has the same.
    New(u64),
    /// The one of this name: count, time of the last occurrence and message are to be changed.
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
    /// The word of core/v1 Events.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        }
    }
}
