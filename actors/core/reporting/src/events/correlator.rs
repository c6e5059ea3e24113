//! The volume rules of client-go's recorder: similar events are combined, repeated events form one series, and each
//! object has budgets, one for Normal events and one for Warnings of each reason (E1).
//!
//! The emitter decides what is written to the API server, and when.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use crate::events::Severity;
use crate::events::messages;
use crate::events::recent::LruMap;
use mechanisms::bucket::Bucket;
use model::machine::Now;
use model::report::{Condition, Subject};

/// Maximum number of remembered objects, kinds of events and series, each.
pub(super) const REMEMBERED: usize = 4096;
/// Number of different messages from which on events of one object, type and reason are combined, counted with the
/// combined one.
const SIMILAR: usize = 10;
/// Time after the last event of its kind at which an event counts as the first again.
const SIMILAR_WINDOW: Duration = Duration::from_secs(600);
/// Maximum burst of Normal events of one object, and of its Warnings of each reason.
pub(super) const OBJECT_BURST: u32 = 25;
/// Time until an object may get one more Normal event.
pub(super) const OBJECT_REFILL: Duration = Duration::from_secs(300);
/// Time until an object may get one more Warning of the same reason.
pub(super) const WARNING_REFILL: Duration = Duration::from_secs(60);

/// An event about one object, as text.
#[derive(Clone, Debug)]
pub(super) struct NewEvent {
    /// The kind of event.
    pub class: EventClass,
    pub message: Arc<str>,
}

/// The attributes that similar events share: everything except the message.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct EventClass {
    /// The object to which they are attached.
    pub subject: Subject,
    /// Their type.
    pub severity: Severity,
    /// Their reason.
    pub reason: &'static str,
    /// The reported condition; `None`: they report an occurrence.
    pub condition: Option<Condition>,
}

/// The identity of an event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct SeriesKey {
    pub class: EventClass,
    topic: Topic,
}

/// The topic of a series.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Topic {
    /// One message.
    Message(Arc<str>),
    /// All similar messages.
    Combined,
}

/// One event that may repeat: its Event object and the content of that.
#[derive(Clone, Debug)]
pub(super) struct Series {
    /// Name of the Event object; `None`: none is known.
    pub name: Option<Arc<str>>,
    /// The number in the name of a new Event object.
    pub serial: Option<u64>,
    /// Number of occurrences.
    pub count: u64,
    /// Number of occurrences at the last post; 0: never posted.
    pub posted: u64,
    /// Time of the first occurrence.
    pub first: Now,
    /// Time of the last occurrence.
    pub last: Now,
    /// The newest message.
    pub message: Arc<str>,
}

impl Series {
    /// Counts one more occurrence.
    pub fn occurred(&mut self, now: Now, message: Arc<str>) {
        self.count += 1;
        self.last = now;
        self.message = message;
    }
}

/// Recent events of one kind.
#[derive(Debug)]
struct Similar {
    /// Hashes of their messages, at most one fewer than are combined.
    messages: BTreeSet<u64>,
    last: Now,
}

/// The purpose of a budget: the Normal events of an object, or its Warnings of one reason.
type Purpose = (Subject, Option<&'static str>);

/// The memory of earlier events.
#[derive(Debug)]
pub(super) struct Correlator {
    budgets: LruMap<Purpose, Bucket>,
    similar: LruMap<EventClass, Similar>,
    series: LruMap<SeriesKey, Series>,
}

impl Correlator {
    /// Creates a correlator without memory.
    pub fn new() -> Correlator {
        Correlator {
            budgets: LruMap::new(REMEMBERED),
            similar: LruMap::new(REMEMBERED),
            series: LruMap::new(REMEMBERED),
        }
    }

    /// Returns the series of an event, and the message of the series from now on.
    pub fn series_of(&mut self, now: Now, event: NewEvent) -> (SeriesKey, Arc<str>) {
        let NewEvent { class, message } = event;
        let similar = self.similar.remove(&class).filter(|similar| now.since(similar.last) <= SIMILAR_WINDOW);
        let mut similar = similar.unwrap_or_else(|| Similar { messages: BTreeSet::new(), last: now });
        similar.last = now;
        let hash = hash_of(&message);
        let single = similar.messages.contains(&hash) || similar.messages.len() + 1 < SIMILAR;
        if single {
            similar.messages.insert(hash);
        }
        self.similar.insert(class.clone(), similar);
        if single {
            (SeriesKey { class, topic: Topic::Message(Arc::clone(&message)) }, message)
        } else {
            (SeriesKey { class, topic: Topic::Combined }, messages::combined(&message).into())
        }
    }

    /// Takes a write of such an event out of its budget. Returns whether there was one left.
    pub fn may_write(&mut self, now: Now, class: &EventClass) -> bool {
        let (purpose, refill) = match class.severity {
            Severity::Normal => ((class.subject.clone(), None), OBJECT_REFILL),
            Severity::Warning => ((class.subject.clone(), Some(class.reason)), WARNING_REFILL),
        };
        let budget = self.budgets.remove(&purpose);
        let mut budget = budget.unwrap_or_else(|| Bucket::new(refill, OBJECT_BURST));
        let may = budget.take(now);
        self.budgets.insert(purpose, budget);
        may
    }

    /// Removes and returns the series with this occurrence added; a new one when none is remembered.
    pub fn recall(&mut self, now: Now, key: &SeriesKey, message: Arc<str>) -> Series {
        match self.series.remove(key) {
            Some(mut series) => {
                series.occurred(now, message);
                series
            }
            None => Series { name: None, serial: None, count: 1, posted: 0, first: now, last: now, message },
        }
    }

    /// Remembers a series that waits for no write.
    pub fn remember(&mut self, key: Arc<SeriesKey>, series: Series) {
        self.series.insert(key, series);
    }

    /// Returns the number of remembered objects, kinds of events and series.
    #[cfg(test)]
    pub fn remembered(&self) -> [usize; 3] {
        [self.budgets.len(), self.similar.len(), self.series.len()]
    }

    /// Checks that no more is remembered than permitted.
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
