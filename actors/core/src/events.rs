//! Kubernetes Events: the words for each report, and a bounded queue towards the API server (design.md E1).
//!
//! What is worth an event is decided by whoever reports it; time and name of an event are the port's.

mod bucket;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::events::bucket::Bucket;
use crate::ids::CallId;
use crate::machine::{Machine, Now, earliest};
use crate::report::{Report, Subject};
use crate::sample::Sample;

/// The source component of every event.
pub const COMPONENT: &str = "azure-backend-pool-controller";

/// How many posts may be unanswered at once.
const IN_FLIGHT: usize = 8;
/// The waits before the second, third and fourth try of a post.
const RETRY_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(5), Duration::from_secs(15)];
/// The longest `Retry-After` that is honoured.
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(60);
/// A post that was not answered by then counts as failed without an answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(60);

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
    /// Not posted, because this process only shows what it would do (C4).
    Withheld,
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

/// The queue of events towards the API server (E1).
#[derive(Debug)]
pub struct Emitter {
    params: Params,
    bucket: Bucket,
    /// In the order in which they will be posted.
    waiting: VecDeque<Letter>,
    /// Those that failed, by the moment of their next try.
    delayed: BTreeMap<(Now, u64), Letter>,
    /// What waits or is delayed: an identical event is merged into it.
    known: BTreeSet<Content>,
    /// Posts without an answer, and when they were sent. Calls are numbered in the order of sending.
    in_flight: BTreeMap<CallId, (Now, Letter)>,
    /// The number of the next call, and of the next delay.
    next: u64,
}

/// What makes two events the same one.
type Content = (Subject, &'static str, Arc<str>);

#[derive(Debug)]
struct Letter {
    event: Arc<Event>,
    /// How often it was tried.
    tries: usize,
}

impl Event {
    fn content(&self) -> Content {
        (self.subject.clone(), self.reason, Arc::clone(&self.message))
    }
}

impl Emitter {
    /// An emitter with nothing to tell.
    #[must_use]
    pub fn new(params: Params) -> Emitter {
        Emitter {
            bucket: Bucket::new(params.per_second, params.burst),
            params,
            waiting: VecDeque::new(),
            delayed: BTreeMap::new(),
            known: BTreeSet::new(),
            in_flight: BTreeMap::new(),
            next: 0,
        }
    }

    fn on_report(&mut self, report: Report, out: &mut Vec<Out>) {
        let severity = words::severity(&report.what);
        let reason = words::reason(&report.what);
        let message: Arc<str> = words::message(&report.what).into();
        for subject in report.subjects {
            let event = Event { subject, severity, reason, message: Arc::clone(&message) };
            let content = event.content();
            if self.known.contains(&content) {
                continue;
            }
            if self.known.len() >= self.params.capacity {
                out.push(Out::Sample(Sample::EventDropped));
                continue;
            }
            self.known.insert(content);
            self.waiting.push_back(Letter { event: Arc::new(event), tries: 0 });
        }
    }

    fn on_posted(&mut self, now: Now, call: CallId, failure: Option<PostFailure>, out: &mut Vec<Out>) {
        let Some((_, letter)) = self.in_flight.remove(&call) else {
            out.push(Out::Sample(Sample::UnmatchedAnswer));
            return;
        };
        match failure {
            None => out.push(Out::Sample(Sample::EventPosted)),
            Some(PostFailure::Withheld) => out.push(Out::Sample(Sample::EventWithheld)),
            Some(PostFailure::Final(_)) => out.push(Out::Sample(Sample::EventDropped)),
            Some(PostFailure::Transient(retry_after)) => self.delay(now, letter, retry_after, out),
        }
    }

    /// Keeps a letter for another try, if it has one left and its like does not wait already.
    fn delay(&mut self, now: Now, mut letter: Letter, retry_after: Option<Duration>, out: &mut Vec<Out>) {
        let Some(wait) = RETRY_AFTER.get(letter.tries) else {
            out.push(Out::Sample(Sample::EventDropped));
            return;
        };
        if !self.known.insert(letter.event.content()) {
            return;
        }
        let asked = retry_after.unwrap_or_default().min(LONGEST_RETRY_AFTER);
        letter.tries += 1;
        self.next += 1;
        self.delayed.insert((now.plus(asked.max(*wait)), self.next), letter);
    }

    /// Gives up waiting for answers that are overdue, wakes what was delayed, and posts what may be posted.
    fn pump(&mut self, now: Now, out: &mut Vec<Out>) {
        while let Some(first) = self.in_flight.first_entry().filter(|first| overdue_at(first.get().0) <= now)
        {
            let (_, letter) = first.remove();
            self.delay(now, letter, None, out);
        }
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            self.waiting.push_back(first.remove());
        }
        while self.in_flight.len() < IN_FLIGHT && !self.waiting.is_empty() && self.bucket.take(now) {
            let Some(letter) = self.waiting.pop_front() else {
                break;
            };
            self.known.remove(&letter.event.content());
            self.next += 1;
            let call = CallId(self.next);
            out.push(Out::Post { call, event: Arc::clone(&letter.event) });
            self.in_flight.insert(call, (now, letter));
        }
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }

    /// The invariants of the queue.
    fn check(&self) -> Result<(), &'static str> {
        if self.known.len() != self.waiting.len() + self.delayed.len() {
            return Err("an event waits twice, or is remembered without waiting");
        }
        if self.known.len() > self.params.capacity + IN_FLIGHT {
            return Err("more events wait than may");
        }
        if self.in_flight.len() > IN_FLIGHT {
            return Err("more posts are unanswered than may be");
        }
        Ok(())
    }
}

fn overdue_at(sent: Now) -> Now {
    sent.plus(ANSWER_WITHIN)
}

impl Machine for Emitter {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::Report(report) => self.on_report(report, out),
            In::Posted { call, failure } => self.on_posted(now, call, failure, out),
        }
        self.pump(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let overdue = self.in_flight.values().next().map(|(sent, _)| overdue_at(*sent));
        let delayed = self.delayed.keys().next().map(|(at, _)| *at);
        let may_post = !self.waiting.is_empty() && self.in_flight.len() < IN_FLIGHT;
        let token = if may_post { self.bucket.next_token_at() } else { None };
        earliest(earliest(overdue, delayed), token)
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.pump(now, out);
    }
}
