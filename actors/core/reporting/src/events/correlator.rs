//! The volume rules of client-go's recorder, which keep a cluster's events few and true: what is similar is combined,
//! what repeats is one series, and each object has budgets: one for Normal events,
//! and one for Warnings of each reason (E1).
//!
//! What is written to the API server, and when, is the emitter's business.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::events::Severity;
use crate::events::messages;
use crate::events::recent::Recent;
use mechanisms::bucket::Bucket;
use model::machine::Now;
use model::report::{Condition, Subject};

/// How many objects, kinds of event and series are remembered each.
pub(super) const REMEMBERED: usize = 4096;
/// From this many different messages on, events of one object, type and reason are combined: the tenth is the first
/// that is.
const SIMILAR: usize = 10;
/// How long after the last of its kind an event is the first again.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// How many Normal events one object may get at once, and how many Warnings of each reason.
pub(super) const OBJECT_BURST: u32 = 25;
/// How long until an object may get one more Normal event.
pub(super) const OBJECT_REFILL: Duration = Duration::from_secs(300);
/// How long until an object may get one more Warning of the same reason.
pub(super) const WARNING_REFILL: Duration = Duration::from_secs(60);

/// Something to be told about one object, in words.
#[derive(Clone, Debug)]
pub(super) struct News {
    /// About whom.
    pub kin: Kin,
    /// The message.
    pub message: Arc<str>,
}

/// What similar events have in common: everything but the message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Kin {
    /// Whom they are attached to.
    pub subject: Subject,
    /// Their type.
    pub severity: Severity,
    /// Their reason.
    pub reason: &'static str,
    /// The condition that they report; `None`: they report an occurrence.
    pub condition: Option<Condition>,
}

/// What makes two events the same one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub kin: Kin,
    topic: Topic,
}

/// What a series is about.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Topic {
    /// This message.
    Message(Arc<str>),
    /// Whatever is similar.
    Combined,
}

/// One event that may repeat: the Event object that stands for it, and what that is to say.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// The Event object; `None`: there is none, as far as is known.
    pub name: Option<Arc<str>>,
    /// The number by which a new Event object is named.
    pub serial: Option<u64>,
    /// How often it occurred.
    pub count: u64,
    /// How often it had when it was posted last; 0: it never was.
    pub posted: u64,
    /// When it first occurred.
    pub first: Now,
    /// When it last occurred.
    pub last: Now,
    /// The newest message.
    pub message: Arc<str>,
}

impl Series {
    /// It has occurred once more.
    pub fn occurred(&mut self, now: Now, message: Arc<str>) {
        self.count += 1;
        self.last = now;
        self.message = message;
    }
}

/// Events of one kind in the last time.
#[derive(Debug)]
struct Similar {
    /// Their messages by hash, at most one fewer than are combined.
    messages: BTreeSet<u64>,
    last: Now,
}

/// What one budget is for: the Normal events of an object, or its Warnings of one reason.
type Purpose = (Subject, Option<&'static str>);

/// What is remembered of earlier events.
#[derive(Debug)]
pub(super) struct Correlator {
    budgets: Recent<Purpose, Bucket>,
    similar: Recent<Kin, Similar>,
    series: Recent<Key, Series>,
}

impl Correlator {
    /// One that remembers nothing.
    pub fn new() -> Correlator {
        Correlator {
            budgets: Recent::new(REMEMBERED),
            similar: Recent::new(REMEMBERED),
            series: Recent::new(REMEMBERED),
        }
    }

    /// Which series the news belong to, and the message that it has from now on.
    pub fn place(&mut self, now: Now, news: News) -> (Key, Arc<str>) {
        let News { kin, message } = news;
        let similar = self.similar.remove(&kin).filter(|similar| now.since(similar.last) <= SIMILAR_WITHIN);
        let mut similar = similar.unwrap_or_else(|| Similar { messages: BTreeSet::new(), last: now });
        similar.last = now;
        let hash = hash_of(&message);
        let single = similar.messages.contains(&hash) || similar.messages.len() + 1 < SIMILAR;
        if single {
            similar.messages.insert(hash);
        }
        self.similar.insert(kin.clone(), similar);
        if single {
            (Key { kin, topic: Topic::Message(Arc::clone(&message)) }, message)
        } else {
            (Key { kin, topic: Topic::Combined }, messages::combined(&message).into())
        }
    }

    /// Takes a write of an event of this kind out of its budget, if there is one left.
    pub fn may_write(&mut self, now: Now, kin: &Kin) -> bool {
        let (purpose, refill) = match kin.severity {
            Severity::Normal => ((kin.subject.clone(), None), OBJECT_REFILL),
            Severity::Warning => ((kin.subject.clone(), Some(kin.reason)), WARNING_REFILL),
        };
        let budget = self.budgets.remove(&purpose);
        let mut budget = budget.unwrap_or_else(|| Bucket::new(refill, OBJECT_BURST));
        let may = budget.take(now);
        self.budgets.insert(purpose, budget);
        may
    }

    /// Takes out the series, with this occurrence added; a new one when none is remembered.
    pub fn recall(&mut self, now: Now, key: &Key, message: Arc<str>) -> Series {
        match self.series.remove(key) {
            Some(mut series) => {
                series.occurred(now, message);
                series
            }
            None => Series { name: None, serial: None, count: 1, posted: 0, first: now, last: now, message },
        }
    }

    /// Remembers a series that nothing is written of at the moment.
    pub fn remember(&mut self, key: Key, series: Series) {
        self.series.insert(key, series);
    }

    /// How many objects, kinds of event and series are remembered.
    #[cfg(test)]
    pub fn remembered(&self) -> [usize; 3] {
        [self.budgets.len(), self.similar.len(), self.series.len()]
    }

    /// Whether no more is remembered than may be.
    pub fn check(&self) -> Result<(), &'static str> {
        self.budgets.check()?;
        self.similar.check()?;
        self.series.check()
    }
}

fn hash_of(message: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    message.hash(&mut hasher);
    hasher.finish()
}
