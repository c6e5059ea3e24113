//! Kubernetes Events: the text of each report, the combination of similar events, and a bounded queue towards the API
//! server (docs/design/reporting.md, E1).
//!
//! The machine that reports a fact decides whether it is worth an Event; the port creates and patches Event objects.

mod conditions;
mod correlator;
mod delivery;
mod messages;
mod protocol;
mod recent;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::events::conditions::{EarlyReports, OutstandingReports};
use crate::events::correlator::{Correlator, EventClass, NewEvent, Series, SeriesKey};
use mechanisms::bucket::Bucket;
use model::ids::{CallId, Epoch};
use model::leadership::Leadership;
use model::machine::{Machine, Now, earliest};
use model::policy::OperatorPolicy;
use model::report::{Report, Subject};
use model::sample::Metric;

pub use protocol::{DropReason, Dropped, Event, EventTarget, In, Out, Params, PostFailure, Severity};

/// The source component of every event.
pub const COMPONENT: &str = "azure-backend-pool-controller";

/// Maximum number of unanswered posts.
const IN_FLIGHT: usize = 8;
/// Delays before the second, third and fourth try of a post.
const RETRY_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];
/// The longest `Retry-After` that is honoured.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);
/// Time after which a post without an answer counts as failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Time after its last try at which the report of a lasting condition is posted again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The queue of events towards the API server (E1).
#[derive(Debug)]
pub struct Emitter {
    params: Params,
    bucket: Bucket,
    /// The term in which this process leads; `None`: it does not lead.
    leads: Option<Epoch>,
    /// The newest term for which the policy is known, and whether the policy permits events about Services and Nodes.
    known_policy: (Option<Epoch>, bool),
    /// The term in which Services and Nodes get events; `None`: they get none.
    term: Option<Epoch>,
    correlator: Correlator,
    /// Every series that waits for a write or is being written.
    open: BTreeMap<Arc<SeriesKey>, PendingPost>,
    /// The series that wait, in the order of posting.
    waiting: VecDeque<Arc<SeriesKey>>,
    /// The series that failed, by the time of their next try.
    delayed: BTreeMap<(Now, u64), Arc<SeriesKey>>,
    /// Reports of conditions that could not be posted, by the time of their next try.
    parked: BTreeMap<(Now, u64), Arc<SeriesKey>>,
    /// The newest report of each condition that holds, until the API server has accepted it.
    outstanding: OutstandingReports,
    /// Reports of conditions that arrived before the emitter knew the term.
    early: EarlyReports,
    /// Unanswered posts, with the time at which each was sent. Calls are numbered in that order.
    in_flight: BTreeMap<CallId, (Now, Arc<SeriesKey>)>,
    /// The number of the next call, delay or Event object.
    next: u64,
}

/// A series that waits for a write.
#[derive(Debug)]
struct PendingPost {
    series: Series,
    stage: PostStage,
    /// Number of failed writes.
    tries: usize,
    /// True if the next post was taken out of the budget of its object.
    paid: bool,
}

#[derive(Clone, Copy, Debug)]
enum PostStage {
    /// Waits for its turn, or for the time of its next try. The content at that time is written.
    Waiting,
    /// Waits for an answer.
    Sent {
        /// True if it occurred again since it was sent, so that it is written once more.
        again: bool,
    },
}

impl Emitter {
    /// Creates the emitter of a process that does not lead.
    #[must_use]
    pub fn new(params: Params) -> Emitter {
        Emitter {
            bucket: Bucket::per_second(params.per_second, params.burst),
            params,
            leads: None,
            known_policy: (None, false),
            term: None,
            correlator: Correlator::new(),
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            delayed: BTreeMap::new(),
            parked: BTreeMap::new(),
            outstanding: OutstandingReports::default(),
            early: EarlyReports::default(),
            in_flight: BTreeMap::new(),
            next: 0,
        }
    }

    fn on_report(&mut self, now: Now, report: Report, out: &mut Vec<Out>) {
        let severity = messages::severity(&report.what);
        let reason = messages::reason(&report.what);
        let condition = report.what.condition();
        let message: Arc<str> = messages::full_message(&report).into();
        for subject in report.subjects {
            let class = EventClass { subject, severity, reason, condition: condition.clone() };
            let event = NewEvent { class, message: Arc::clone(&message) };
            if self.may_report(&event.class.subject) {
                self.add_event(now, event, out);
            } else if event.class.condition.is_some() {
                self.early.keep(event);
            } else if self.leads.is_some() {
                drop_event(&event.class, event.message, DropReason::NotAllowed, out);
            }
        }
    }

    /// Adds an occurrence. One that needs a write of its own is added only if the object's budget and the queue have
    /// room. The count rises in any case. Without room, the report of a condition is posted later.
    fn add_event(&mut self, now: Now, event: NewEvent, out: &mut Vec<Out>) {
        let (key, message) = self.correlator.series_of(now, event);
        let key = Arc::new(key);
        self.outstanding.began(&key);
        if let Some(post) = self.open.get_mut(&key) {
            post.series.occurred(now, Arc::clone(&message));
            if let PostStage::Sent { again: again @ false } = &mut post.stage {
                *again = self.correlator.may_write(now, &key.class);
                if !*again && key.class.condition.is_none() {
                    drop_event(&key.class, message, DropReason::OverBudget, out);
                }
            }
            return;
        }
        let series = self.correlator.recall(now, &key, Arc::clone(&message));
        let room = self.has_room();
        let paid = room && self.correlator.may_write(now, &key.class);
        if !paid && key.class.condition.is_none() {
            let cause = if room { DropReason::OverBudget } else { DropReason::QueueFull };
            drop_event(&key.class, message, cause, out);
            self.correlator.remember(key, series);
            return;
        }
        self.open.insert(Arc::clone(&key), PendingPost { series, stage: PostStage::Waiting, tries: 0, paid });
        if paid {
            self.waiting.push_back(key);
        } else {
            self.park(now, key);
        }
    }

    fn has_room(&self) -> bool {
        self.waiting.len() + self.delayed.len() < self.params.capacity
    }

    /// Drops the waiting series when a term ends: the next leader reports lasting conditions again. The next term may
    /// begin before the end of this one is known; a renewal changes nothing.
    fn on_leadership(&mut self, now: Now, leadership: Leadership, out: &mut Vec<Out>) {
        let leads = leadership.term();
        if std::mem::replace(&mut self.leads, leads) == leads {
            return;
        }
        if leads.is_none() {
            self.early = EarlyReports::default();
        }
        self.drop_waiting(|_| true, out);
        self.update_term(now, out);
    }

    /// Applies the policy: Services and Nodes get events while writes are permitted. When that ends, waiting events are
    /// dropped and counted; lasting conditions are reported again when it begins.
    fn on_policy(&mut self, now: Now, term: Option<Epoch>, policy: &OperatorPolicy, out: &mut Vec<Out>) {
        self.known_policy = (self.known_policy.0.max(term), !policy.only_observes());
        self.update_term(now, out);
        if self.term.is_none() {
            self.drop_waiting(|subject| !is_controller(subject), out);
        }
    }

    fn update_term(&mut self, now: Now, out: &mut Vec<Out>) {
        let (known, permits) = self.known_policy;
        let term = self.leads.filter(|_| permits && known >= self.leads);
        if std::mem::replace(&mut self.term, term) != term {
            out.push(Out::Reporting(term));
        }
        for event in self.early.take(|subject| may_report(self.leads, self.term, subject)) {
            self.add_event(now, event, out);
        }
    }

    /// Returns whether this subject gets events now.
    fn may_report(&self, subject: &Subject) -> bool {
        may_report(self.leads, self.term, subject)
    }

    /// Drops the waiting series of these subjects: for their turn, for their next try, or parked. A report of a
    /// condition that is being posted is not posted again either.
    fn drop_waiting(&mut self, of: impl Fn(&Subject) -> bool, out: &mut Vec<Out>) {
        self.outstanding.clear(&of);
        let (mut taken, waiting): (Vec<Arc<SeriesKey>>, VecDeque<Arc<SeriesKey>>) = {
            let all = std::mem::take(&mut self.waiting);
            let (taken, left): (VecDeque<Arc<SeriesKey>>, VecDeque<Arc<SeriesKey>>) =
                all.into_iter().partition(|key| of(&key.class.subject));
            (taken.into(), left)
        };
        self.waiting = waiting;
        taken.extend(self.delayed.extract_if(.., |_, key| of(&key.class.subject)).map(|(_, key)| key));
        taken.extend(self.parked.extract_if(.., |_, key| of(&key.class.subject)).map(|(_, key)| key));
        for key in taken {
            self.drop_open(key, DropReason::NotAllowed, out);
        }
    }

    /// Checks the invariants of the queue.
    fn check(&self) -> Result<(), &'static str> {
        let waiting = self.waiting.len() + self.delayed.len();
        if self.open.len() != waiting + self.parked.len() + self.in_flight.len() {
            return Err("a series waits twice, or is open without waiting");
        }
        if waiting > self.params.capacity + IN_FLIGHT {
            return Err("more events wait than may");
        }
        if self.in_flight.len() > IN_FLIGHT {
            return Err("more posts are unanswered than may be");
        }
        if self.outstanding.keys().any(|key| !self.open.contains_key(key)) {
            return Err("the report of a condition was not accepted, and is not posted again");
        }
        let all = self.waiting.iter().chain(self.delayed.values()).chain(self.parked.values());
        if all.into_iter().any(|key| !self.may_report(&key.class.subject)) {
            return Err("an Event is pending for an object that may get none");
        }
        self.correlator.check()
    }
}

/// Returns the reason and the message of the events for a report.
#[must_use]
pub fn text_of(report: &Report) -> (&'static str, String) {
    (messages::reason(&report.what), messages::full_message(report))
}

fn is_controller(subject: &Subject) -> bool {
    match subject {
        Subject::Controller => true,
        Subject::Service(_) | Subject::Node { .. } => false,
    }
}

/// Returns whether a subject gets events from a process that leads in `leads`, and reports about Services and Nodes
/// in `term`.
fn may_report(leads: Option<Epoch>, term: Option<Epoch>, subject: &Subject) -> bool {
    term.is_some() || (leads.is_some() && is_controller(subject))
}

/// Counts and logs an event that is not posted.
fn drop_event(class: &EventClass, message: Arc<str>, cause: DropReason, out: &mut Vec<Out>) {
    let EventClass { subject, severity, reason, condition: _ } = class.clone();
    out.push(Out::Metric(Metric::EventDropped));
    out.push(Out::Dropped(Dropped { subject, severity, reason, message, cause }));
}

fn overdue_at(sent: Now) -> Now {
    sent.plus(REQUEST_TIMEOUT)
}

impl Machine for Emitter {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::Report(report) => self.on_report(now, report, out),
            In::Ended(ended) => {
                self.outstanding.ended(&ended);
                self.early.ended(&ended);
            }
            In::Leadership(leadership) => self.on_leadership(now, leadership, out),
            In::OperatorPolicy { term, policy } => self.on_policy(now, term, &policy, out),
            In::Posted { call, answer } => self.on_posted(now, call, answer, out),
        }
        self.pump(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let overdue = self.in_flight.values().next().map(|(sent, _)| overdue_at(*sent));
        let delayed = self.delayed.keys().next().map(|(at, _)| *at);
        let parked = self.parked.keys().next().map(|(at, _)| *at);
        let may_post = !self.waiting.is_empty() && self.in_flight.len() < IN_FLIGHT;
        let token = if may_post { self.bucket.next_token_at() } else { None };
        earliest(earliest(overdue, delayed), earliest(parked, token))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.pump(now, out);
    }
}
