//! A queue of items that are worked on until they are right, each as often as it must be: controller-runtime's (S4).
//!
//! It owns which item is worked on next, and when one that has failed is tried again. What the work is, how many items
//! are in work at the same time, and the clock are its caller's.

mod limiter;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::work_queue::limiter::Limiter;
use model::machine::Now;
use model::sample::WorkResult;

/// What the limiter of retries goes by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// How long an item waits after its first failure; it doubles with each one.
    pub base: Duration,
    /// The most that an item waits because of its own failures.
    pub max_backoff: Duration,
    /// How many retries there are in each second over time, of all items together; 0: none but the burst.
    pub per_second: u32,
    /// How many there may be at once.
    pub burst: u32,
}

impl Params {
    /// The limiter that controller-runtime gives every controller (S4).
    pub const S4: Params = Params {
        base: Duration::from_millis(5),
        max_backoff: Duration::from_secs(1_000),
        per_second: 10,
        burst: 100,
    };

    /// How long an item waits because of its own failures, after so many in a row before this one.
    pub fn backoff(&self, before: u32) -> Duration {
        let doubled = 1_u32.checked_shl(before).unwrap_or(u32::MAX);
        self.base.saturating_mul(doubled).min(self.max_backoff)
    }
}

/// What is to follow on work that went well.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Done {
    /// Nothing: the item is right.
    #[default]
    Success,
    /// The item is worked on again, as after a failure.
    Requeue,
    /// It is worked on again after this time, which nothing limits; zero: it is right.
    RequeueAfter(Duration),
}

/// That work has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Failed {
    /// What the worker has asked for besides. It is lost: first the work must succeed (S4).
    pub asked: Done,
}

/// How many results of each kind there were.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Results {
    /// Items that were right.
    pub success: u64,
    /// Failures.
    pub error: u64,
    /// Wishes for another turn.
    pub requeue: u64,
    /// Wishes for another turn after some time.
    pub requeue_after: u64,
}

impl Results {
    fn count(&mut self, kind: WorkResult) {
        let counter = match kind {
            WorkResult::Success => &mut self.success,
            WorkResult::Error => &mut self.error,
            WorkResult::Requeue => &mut self.requeue,
            WorkResult::RequeueAfter => &mut self.requeue_after,
        };
        *counter = counter.saturating_add(1);
    }
}

/// Where an item is that is not at rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It stands in the line.
    Ready,
    /// It is worked on.
    Working,
    /// It is worked on, and was added since: it is worked on once more.
    Again,
    /// It was retired while it was worked on: nothing follows on what comes of that.
    Retired,
    /// It was retired while it was worked on, and added since: it is worked on once more, as a new one.
    Revived,
}

impl Phase {
    /// What it becomes when the item is added.
    fn added(self) -> Phase {
        match self {
            Phase::Ready => Phase::Ready,
            Phase::Working | Phase::Again => Phase::Again,
            Phase::Retired | Phase::Revived => Phase::Revived,
        }
    }
}

/// The items that are to be worked on, now or later (S4).
///
/// An item stands in the line once, however often it is added, and is never worked on twice at the same time. One that
/// waits for a moment can be added, worked on and found right meanwhile; it has its turn at that moment all the same.
#[derive(Debug)]
pub struct WorkQueue<Item> {
    phases: BTreeMap<Item, Phase>,
    /// The ready ones, in the order in which they became so.
    line: VecDeque<Item>,
    /// The ones that wait: until when, and by which number among those of the same moment.
    waiting: BTreeMap<Item, (Now, u64)>,
    /// The same, in the order in which they become due.
    due: BTreeMap<(Now, u64), Item>,
    /// The number that was given last.
    last: u64,
    limiter: Limiter<Item>,
    results: Results,
}

impl<Item: Ord + Clone> WorkQueue<Item> {
    /// An empty queue.
    #[must_use]
    pub fn new(params: Params) -> WorkQueue<Item> {
        WorkQueue {
            phases: BTreeMap::new(),
            line: VecDeque::new(),
            waiting: BTreeMap::new(),
            due: BTreeMap::new(),
            last: 0,
            limiter: Limiter::new(params),
            results: Results::default(),
        }
    }

    /// Something is new about the item: it is to be worked on now. Nothing limits this.
    pub fn add(&mut self, now: Now, item: Item) {
        self.tick(now);
        self.line_up(item);
    }

    /// The item is to be worked on after this time, or sooner where it waits for an earlier moment. Nothing limits
    /// this.
    pub fn add_after(&mut self, now: Now, item: Item, wait: Duration) {
        self.tick(now);
        let at = now.plus(wait);
        if at <= now {
            self.line_up(item);
            return;
        }
        if self.waiting.get(&item).is_some_and(|(known, _)| *known <= at) {
            return;
        }
        self.stop_waiting(&item);
        self.last += 1;
        self.due.insert((at, self.last), item.clone());
        self.waiting.insert(item, (at, self.last));
    }

    /// The item is to be worked on when the limiter lets it: it counts this as a failure.
    pub fn add_rate_limited(&mut self, now: Now, item: Item) {
        let wait = self.limiter.count_failure(now, &item);
        self.add_after(now, item, wait);
    }

    /// The limiter forgets the item's failures. Where it waits or is ready, it stays.
    pub fn forget(&mut self, item: &Item) {
        self.limiter.forget(item);
    }

    /// How often the limiter was asked about the item since it was last forgotten.
    #[must_use]
    pub fn requeues(&self, item: &Item) -> u32 {
        self.limiter.failures(item)
    }

    /// When an item that waits has its turn; `None`: it does not wait.
    #[must_use]
    pub fn due(&self, item: &Item) -> Option<Now> {
        self.waiting.get(item).map(|(at, _)| *at)
    }

    /// Takes the item that has been ready for longest; it is in work until [`WorkQueue::finish`] or
    /// [`WorkQueue::done`].
    pub fn take(&mut self, now: Now) -> Option<Item> {
        self.tick(now);
        let item = self.line.pop_front()?;
        self.phases.insert(item.clone(), Phase::Working);
        Some(item)
    }

    /// The work on an item has ended with a result: counts it and does what follows, as `reconcileHandler` does (S4).
    /// `None`: there is no work on it, and nothing was done.
    pub fn finish(&mut self, now: Now, item: &Item, result: Result<Done, Failed>) -> Option<WorkResult> {
        self.tick(now);
        let counts = match self.phases.get(item)? {
            Phase::Ready => return None,
            Phase::Working | Phase::Again => true,
            Phase::Retired | Phase::Revived => false,
        };
        let (kind, wait) = match result {
            Err(Failed { asked: _ }) => (WorkResult::Error, Duration::ZERO),
            Ok(Done::RequeueAfter(wait)) if !wait.is_zero() => (WorkResult::RequeueAfter, wait),
            Ok(Done::Requeue) => (WorkResult::Requeue, Duration::ZERO),
            Ok(Done::Success | Done::RequeueAfter(_)) => (WorkResult::Success, Duration::ZERO),
        };
        self.results.count(kind);
        if counts {
            match kind {
                WorkResult::Error | WorkResult::Requeue => self.add_rate_limited(now, item.clone()),
                WorkResult::RequeueAfter => {
                    self.forget(item);
                    self.add_after(now, item.clone(), wait);
                }
                WorkResult::Success => self.forget(item),
            }
        }
        self.done(now, item);
        Some(kind)
    }

    /// The work on an item has ended, whatever came of it: it is ready again if it was added meanwhile. Its failures
    /// stay remembered.
    pub fn done(&mut self, now: Now, item: &Item) {
        self.tick(now);
        match self.phases.get(item) {
            None | Some(Phase::Ready) => {}
            Some(Phase::Working | Phase::Retired) => {
                self.phases.remove(item);
            }
            Some(Phase::Again | Phase::Revived) => {
                self.phases.remove(item);
                self.line_up(item.clone());
            }
        }
    }

    /// The item is gone for good: it is not worked on any more, and nothing is remembered of it. Nothing follows on the
    /// work on it that is not yet finished.
    pub fn retire(&mut self, item: &Item) {
        self.stop_waiting(item);
        self.limiter.forget(item);
        match self.phases.get(item) {
            None => {}
            Some(Phase::Ready) => {
                self.phases.remove(item);
                self.line.retain(|other| other != item);
            }
            Some(Phase::Working | Phase::Again | Phase::Retired | Phase::Revived) => {
                self.phases.insert(item.clone(), Phase::Retired);
            }
        }
    }

    /// Whether [`WorkQueue::take`] would give an item at this moment.
    #[must_use]
    pub fn is_ready(&self, now: Now) -> bool {
        let mut due = self.due.range(..=(now, u64::MAX));
        !self.line.is_empty() || due.any(|(_, item)| !self.phases.contains_key(item))
    }

    /// When the next item that waits becomes due; `None`: none waits. Items that are ready already have no deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// Lets what has become due stand in the line. Calling it early or late is harmless.
    pub fn tick(&mut self, now: Now) {
        while let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) {
            let item = first.remove();
            self.waiting.remove(&item);
            self.line_up(item);
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// How many results of each kind there were.
    #[must_use]
    pub fn results(&self) -> Results {
        self.results
    }

    /// Whether nothing is ready, in work, waiting or remembered.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.phases.is_empty() && self.waiting.is_empty() && self.limiter.is_empty()
    }

    /// Puts the item at the end of the line; one that is in work goes there when that has ended.
    fn line_up(&mut self, item: Item) {
        if let Some(phase) = self.phases.get_mut(&item) {
            *phase = phase.added();
        } else {
            self.line.push_back(item.clone());
            self.phases.insert(item, Phase::Ready);
        }
    }

    fn stop_waiting(&mut self, item: &Item) {
        if let Some(key) = self.waiting.remove(item) {
            self.due.remove(&key);
        }
    }

    /// The invariants of the queue.
    fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let is_ready = |item: &Item| self.phases.get(item) == Some(&Phase::Ready);
        let ready = self.phases.values().filter(|phase| **phase == Phase::Ready).count();
        rule(self.line.iter().all(is_ready), "an item stands in the line that is not ready")?;
        rule(self.line.len() == ready, "an item stands in the line twice, or is ready and not in it")?;
        let is_due = |(item, key): (&Item, &(Now, u64))| self.due.get(key) == Some(item);
        let waiting = self.waiting.len() == self.due.len() && self.waiting.iter().all(is_due);
        rule(waiting, "an item waits and never becomes due")
    }
}
