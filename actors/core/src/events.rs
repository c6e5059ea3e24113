//! Kubernetes Events: the words for each report, how many become of many, and a bounded queue towards the API server
//! (design.md E1).
//!
//! What is worth an event is decided by whoever reports it; the port creates and patches Event objects as it is told.

mod correlator;
mod recent;
#[cfg(test)]
mod tests;
mod words;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::bucket::Bucket;
use crate::events::correlator::{Correlator, Key, Kin, News, Series};
use crate::ids::{CallId, Epoch};
use crate::machine::{Machine, Now, earliest};
use crate::report::{Report, Subject};
use crate::sample::Sample;
use crate::wishes::Wishes;
use crate::writer::Standing;

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
    /// Tell people.
    Report(Report),
    /// Whether this process leads: one that does not tells nothing, for the one that does tells it. Until the first
    /// of these it does not.
    Standing(Standing),
    /// What people wish: while nothing may be written, Services and Nodes are told nothing either, and nobody is before
    /// this was heard for a term (G6).
    Wishes {
        /// The newest term that had begun when it was read.
        term: Option<Epoch>,
        /// All of it.
        wishes: Arc<Wishes>,
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
    /// To the metrics.
    Sample(Sample),
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

/// The queue of events towards the API server (E1).
#[derive(Debug)]
pub struct Emitter {
    params: Params,
    bucket: Bucket,
    /// The term in which this process leads; `None`: it does not.
    leads: Option<Epoch>,
    /// The newest term for which people's wishes are known, and whether they let Services and Nodes be told.
    wished: (Option<Epoch>, bool),
    /// The term in which Services and Nodes are told; `None`: they are not.
    term: Option<Epoch>,
    correlator: Correlator,
    /// Every series that is to be written, or is being written.
    open: BTreeMap<Key, Letter>,
    /// Those that wait, in the order in which they will be posted.
    waiting: VecDeque<Key>,
    /// Those that failed, by the moment of their next try.
    delayed: BTreeMap<(Now, u64), Key>,
    /// Posts without an answer, and when they were sent. Calls are numbered in the order of sending.
    in_flight: BTreeMap<CallId, (Now, Key)>,
    /// The number of the next call, delay or Event object.
    next: u64,
}

/// A series that is to be written.
#[derive(Debug)]
struct Letter {
    series: Series,
    stage: Stage,
    /// How often writing it failed.
    tries: usize,
}

#[derive(Clone, Copy, Debug)]
enum Stage {
    /// For its turn, or the time of its next try; it is written as it is then.
    Waiting,
    /// For an answer.
    Sent {
        /// Whether it has occurred again since, and is to be written once more.
        again: bool,
    },
}

impl Emitter {
    /// An emitter of a process that does not lead, with nothing to tell.
    #[must_use]
    pub fn new(params: Params) -> Emitter {
        Emitter {
            bucket: Bucket::per_second(params.per_second, params.burst),
            params,
            leads: None,
            wished: (None, false),
            term: None,
            correlator: Correlator::new(),
            open: BTreeMap::new(),
            waiting: VecDeque::new(),
            delayed: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            next: 0,
        }
    }

    fn on_report(&mut self, now: Now, report: Report, out: &mut Vec<Out>) {
        if self.leads.is_none() {
            return;
        }
        let severity = words::severity(&report.what);
        let reason = words::reason(&report.what);
        let message: Arc<str> = words::told(&report).into();
        for subject in report.subjects {
            if !self.may_tell(&subject) {
                out.push(Out::Sample(Sample::EventDropped));
                continue;
            }
            let kin = Kin { subject, severity, reason };
            self.on_news(now, News { kin, message: Arc::clone(&message) }, out);
        }
    }

    /// An occurrence that costs no write of its own is always added; one that does, only while its object may have more
    /// and there is room. The count rises in any case.
    fn on_news(&mut self, now: Now, news: News, out: &mut Vec<Out>) {
        let (key, message) = self.correlator.place(now, news);
        if let Some(letter) = self.open.get_mut(&key) {
            letter.series.occurred(now, message);
            if let Stage::Sent { again: again @ false } = &mut letter.stage {
                *again = self.correlator.may_write(now, &key.kin.subject);
                if !*again {
                    out.push(Out::Sample(Sample::EventDropped));
                }
            }
            return;
        }
        let series = self.correlator.recall(now, &key, message);
        let room = self.waiting.len() + self.delayed.len() < self.params.capacity;
        if room && self.correlator.may_write(now, &key.kin.subject) {
            self.waiting.push_back(key.clone());
            self.open.insert(key, Letter { series, stage: Stage::Waiting, tries: 0 });
        } else {
            self.correlator.remember(key, series);
            out.push(Out::Sample(Sample::EventDropped));
        }
    }

    /// What waits when a term ends is dropped: what of it lasts is told again in the next one, by whoever leads then. The
    /// end of a term may not be heard of before the next one begins; a renewal changes nothing.
    fn on_standing(&mut self, standing: Standing, out: &mut Vec<Out>) {
        let leads = standing.term();
        if std::mem::replace(&mut self.leads, leads) == leads {
            return;
        }
        for key in self.take_waiting(|_| true) {
            self.close(key);
        }
        self.settle_term(out);
    }

    /// What people wish: Services and Nodes are told as long as something may be written. What waits for them when that
    /// ends is dropped and counted; what of it lasts is told again when it begins.
    fn on_wishes(&mut self, term: Option<Epoch>, wishes: &Wishes, out: &mut Vec<Out>) {
        self.wished = (self.wished.0.max(term), !wishes.only_observes());
        self.settle_term(out);
        if self.term.is_none() {
            for key in self.take_waiting(|subject| !is_controller(subject)) {
                out.push(Out::Sample(Sample::EventDropped));
                self.close(key);
            }
        }
    }

    fn settle_term(&mut self, out: &mut Vec<Out>) {
        let (known, lets) = self.wished;
        let term = self.leads.filter(|_| lets && known >= self.leads);
        if std::mem::replace(&mut self.term, term) != term {
            out.push(Out::Reporting(term));
        }
    }

    /// Whether this one is told anything now.
    fn may_tell(&self, subject: &Subject) -> bool {
        self.term.is_some() || (self.leads.is_some() && is_controller(subject))
    }

    /// Takes out those of these subjects that wait, for their turn or for their next try.
    fn take_waiting(&mut self, of: impl Fn(&Subject) -> bool) -> Vec<Key> {
        let (mut taken, waiting): (Vec<Key>, VecDeque<Key>) = {
            let all = std::mem::take(&mut self.waiting);
            let (taken, left): (VecDeque<Key>, VecDeque<Key>) =
                all.into_iter().partition(|key| of(&key.kin.subject));
            (taken.into(), left)
        };
        self.waiting = waiting;
        taken.extend(self.delayed.extract_if(.., |_, key| of(&key.kin.subject)).map(|(_, key)| key));
        taken
    }

    fn on_posted(
        &mut self,
        now: Now,
        call: CallId,
        answer: Result<Arc<str>, PostFailure>,
        out: &mut Vec<Out>,
    ) {
        let Some((_, key)) = self.in_flight.remove(&call) else {
            out.push(Out::Sample(Sample::UnmatchedAnswer));
            return;
        };
        let Some(letter) = self.open.get_mut(&key) else { return };
        let series = &mut letter.series;
        match answer {
            Ok(name) => {
                series.name = Some(name);
                out.push(Out::Sample(Sample::EventPosted));
                self.written(key);
            }
            Err(PostFailure::Withheld) => {
                out.push(Out::Sample(Sample::EventWithheld));
                self.written(key);
            }
            Err(PostFailure::Final(_)) => {
                out.push(Out::Sample(Sample::EventDropped));
                self.written(key);
            }
            Err(PostFailure::Gone) => {
                (series.name, series.serial) = (None, None);
                self.retry(now, key, Some(Duration::ZERO), out);
            }
            Err(PostFailure::Exists(name)) => {
                series.name = Some(name);
                self.retry(now, key, Some(Duration::ZERO), out);
            }
            Err(PostFailure::Transient(asked)) => {
                let asked = asked.map(|asked| asked.min(LONGEST_RETRY_AFTER));
                self.delay(now, key, asked, out);
            }
        }
    }

    /// What was sent has arrived, or never will; what came after it is sent after it.
    fn written(&mut self, key: Key) {
        let tells = self.may_tell(&key.kin.subject);
        match self.open.get_mut(&key) {
            Some(letter) if tells && matches!(letter.stage, Stage::Sent { again: true }) => {
                (letter.stage, letter.tries) = (Stage::Waiting, 0);
                self.waiting.push_back(key);
            }
            Some(_) => self.close(key),
            None => {}
        }
    }

    /// Keeps a letter for another try after its wait, or after a longer one that the server asks for.
    fn delay(&mut self, now: Now, key: Key, asked: Option<Duration>, out: &mut Vec<Out>) {
        let tries = self.open.get(&key).map_or(0, |letter| letter.tries);
        let wait = RETRY_AFTER.get(tries).map(|wait| asked.unwrap_or_default().max(*wait));
        self.retry(now, key, wait, out);
    }

    /// Keeps a letter for another try after the wait, if it has one left.
    fn retry(&mut self, now: Now, key: Key, wait: Option<Duration>, out: &mut Vec<Out>) {
        if !self.may_tell(&key.kin.subject) {
            self.close(key);
            return;
        }
        let Some(letter) = self.open.get_mut(&key) else { return };
        match wait.filter(|_| letter.tries < RETRY_AFTER.len()) {
            Some(wait) => {
                letter.tries += 1;
                letter.stage = Stage::Waiting;
                self.next += 1;
                self.delayed.insert((now.plus(wait), self.next), key);
            }
            None => {
                out.push(Out::Sample(Sample::EventDropped));
                self.written(key);
            }
        }
    }

    /// Nothing of this series is to be written; it is remembered.
    fn close(&mut self, key: Key) {
        if let Some(letter) = self.open.remove(&key) {
            self.correlator.remember(key, letter.series);
        }
    }

    /// Gives up waiting for answers that are overdue, wakes what was delayed, and posts what may be posted.
    fn pump(&mut self, now: Now, out: &mut Vec<Out>) {
        while let Some(first) = self.in_flight.first_entry().filter(|first| overdue_at(first.get().0) <= now)
        {
            let (_, key) = first.remove();
            self.delay(now, key, None, out);
        }
        while let Some(first) = self.delayed.first_entry().filter(|first| first.key().0 <= now) {
            self.waiting.push_back(first.remove());
        }
        while self.in_flight.len() < IN_FLIGHT && !self.waiting.is_empty() && self.bucket.take(now) {
            let Some(key) = self.waiting.pop_front() else { break };
            self.post(now, key, out);
        }
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }

    fn post(&mut self, now: Now, key: Key, out: &mut Vec<Out>) {
        let Some(letter) = self.open.get_mut(&key) else { return };
        self.next += 1;
        let call = CallId(self.next);
        letter.stage = Stage::Sent { again: false };
        let series = &mut letter.series;
        let place = match &series.name {
            Some(name) => Place::Existing(Arc::clone(name)),
            None => Place::New(*series.serial.get_or_insert(self.next)),
        };
        let Kin { subject, severity, reason } = key.kin.clone();
        let (message, count) = (Arc::clone(&series.message), series.count);
        let (first, last) = (series.first, series.last);
        let is_news = std::mem::replace(&mut series.posted, count) != count;
        let event = Event { subject, severity, reason, message, count, first, last, place, is_news };
        out.push(Out::Post { call, event: Arc::new(event) });
        self.in_flight.insert(call, (now, key));
    }

    /// The invariants of the queue.
    fn check(&self) -> Result<(), &'static str> {
        let waiting = self.waiting.len() + self.delayed.len();
        if self.open.len() != waiting + self.in_flight.len() {
            return Err("a series waits twice, or is open without waiting");
        }
        if waiting > self.params.capacity + IN_FLIGHT {
            return Err("more events wait than may");
        }
        if self.in_flight.len() > IN_FLIGHT {
            return Err("more posts are unanswered than may be");
        }
        let all = self.waiting.iter().chain(self.delayed.values());
        if all.into_iter().any(|key| !self.may_tell(&key.kin.subject)) {
            return Err("somebody is to be told who may be told nothing");
        }
        self.correlator.check()
    }
}

fn is_controller(subject: &Subject) -> bool {
    match subject {
        Subject::Controller => true,
        Subject::Service(_) | Subject::Node { .. } => false,
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
            In::Report(report) => self.on_report(now, report, out),
            In::Standing(standing) => self.on_standing(standing, out),
            In::Wishes { term, wishes } => self.on_wishes(term, &wishes, out),
            In::Posted { call, answer } => self.on_posted(now, call, answer, out),
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
