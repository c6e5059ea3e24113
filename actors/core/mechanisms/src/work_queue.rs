//! The work queue of controller-runtime: each item is reconciled until it succeeds (S4).
//!
//! The queue owns the order of items and the times of retries. The caller owns the work, its concurrency, and the
//! clock.

mod limiter;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::work_queue::limiter::Limiter;
use model::machine::Now;
use model::sample::WorkResult;

/// Parameters of the retry limiter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Params {
    /// Delay after an item's first failure; it doubles with each further one.
    pub base: Duration,
    /// The longest delay caused by an item's own failures.
    pub max_backoff: Duration,
    /// Retries per second of all items together; 0: only the burst.
    pub per_second: u32,
    /// Retries allowed at once.
    pub burst: u32,
}

impl Params {
    /// The default limiter of controller-runtime (S4).
    pub const S4: Params = Params {
        base: Duration::from_millis(5),
        max_backoff: Duration::from_secs(1_000),
        per_second: 10,
        burst: 100,
    };

    /// Returns the delay caused by an item's own failures, after `before` earlier failures in a row.
    pub fn backoff(&self, before: u32) -> Duration {
        let doubled = 1_u32.checked_shl(before).unwrap_or(u32::MAX);
        self.base.saturating_mul(doubled).min(self.max_backoff)
    }
}

/// What follows after successful work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Done {
    /// Nothing: the item is done.
    #[default]
    Success,
    /// Another run, delayed like a retry.
    Requeue,
    /// Another run after this time, without a limit; zero: the item is done.
    RequeueAfter(Duration),
}

/// Work has failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Failed {
    /// The further run that the worker requested. It is ignored: the work must succeed first (S4).
    pub asked: Done,
}

/// The number of results by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Results {
    /// Items that are done.
    pub success: u64,
    /// Failures.
    pub error: u64,
    /// Requests for another run.
    pub requeue: u64,
    /// Requests for another run after some time.
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

/// State of an item that is queued or being worked on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The item is in the queue.
    Ready,
    /// The item is being worked on.
    Working,
    /// The item is being worked on and was added again since. It is queued again afterwards.
    Again,
    /// The item was retired during the work. The result has no effect.
    Retired,
    /// The item was retired during the work and added again since. It is queued again afterwards, as a new item.
    Revived,
}

impl Phase {
    /// Returns the state after the item is added.
    fn added(self) -> Phase {
        match self {
            Phase::Ready => Phase::Ready,
            Phase::Working | Phase::Again => Phase::Again,
            Phase::Retired | Phase::Revived => Phase::Revived,
        }
    }
}

/// The queue of items (S4).
///
/// An item is in the queue at most once, however often it is added, and is never worked on twice at the same time. An
/// item with a delayed run may be added, worked on and done before that time; the delayed run takes place
/// nevertheless.
#[derive(Debug)]
pub struct WorkQueue<Item> {
    phases: BTreeMap<Item, Phase>,
    /// The ready items in order.
    line: VecDeque<Item>,
    /// The delayed items: due time, and a sequence number for equal times.
    waiting: BTreeMap<Item, (Now, u64)>,
    /// The same items in the order of their due times.
    due: BTreeMap<(Now, u64), Item>,
    /// The last sequence number.
    last: u64,
    limiter: Limiter<Item>,
    results: Results,
}

impl<Item: Ord + Clone> WorkQueue<Item> {
    /// Creates an empty queue.
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

    /// Queues the item now, without a limit.
    pub fn add(&mut self, now: Now, item: Item) {
        self.tick(now);
        self.line_up(item);
    }

    /// Queues the item after `wait`, or earlier if it is already due earlier; without a limit.
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

    /// Queues the item when the limiter allows it, and counts a failure of the item.
    pub fn add_rate_limited(&mut self, now: Now, item: Item) {
        let wait = self.limiter.count_failure(now, &item);
        self.add_after(now, item, wait);
    }

    /// Resets the item's failure count. A queued or delayed item stays.
    pub fn forget(&mut self, item: &Item) {
        self.limiter.forget(item);
    }

    /// Returns the number of failures of the item since its count was reset.
    #[must_use]
    pub fn requeues(&self, item: &Item) -> u32 {
        self.limiter.failures(item)
    }

    /// Returns when a delayed item is due; `None`: it is not delayed.
    #[must_use]
    pub fn due(&self, item: &Item) -> Option<Now> {
        self.waiting.get(item).map(|(at, _)| *at)
    }

    /// Takes the first ready item. It is being worked on until [`WorkQueue::finish`] or [`WorkQueue::done`].
    pub fn take(&mut self, now: Now) -> Option<Item> {
        self.tick(now);
        let item = self.line.pop_front()?;
        self.phases.insert(item.clone(), Phase::Working);
        Some(item)
    }

    /// Ends the work on an item with a result, counts the result, and queues the next run as `reconcileHandler` does
    /// (S4). Returns `None`, without an effect, if the item is not being worked on.
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

    /// Ends the work on an item, whatever its result. The item is ready again if it was added meanwhile. Its failure
    /// count stays.
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

    /// Removes the item for good, with its failure count. The result of work in progress has no effect.
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

    /// Returns true if [`WorkQueue::take`] would return an item now.
    #[must_use]
    pub fn is_ready(&self, now: Now) -> bool {
        let mut due = self.due.range(..=(now, u64::MAX));
        !self.line.is_empty() || due.any(|(_, item)| !self.phases.contains_key(item))
    }

    /// Returns when the next delayed item is due; `None` if no item is delayed. Ready items have no deadline.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    /// Queues the items that have become due. An early or late call is harmless.
    pub fn tick(&mut self, now: Now) {
        while let Some(first) = self.due.first_entry().filter(|first| first.key().0 <= now) {
            let item = first.remove();
            self.waiting.remove(&item);
            self.line_up(item);
        }
        debug_assert_eq!(self.check(), Ok(()));
    }

    /// Returns the number of results by kind.
    #[must_use]
    pub fn results(&self) -> Results {
        self.results
    }

    /// Returns true if no item is ready, being worked on, delayed, or has a failure count.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.phases.is_empty() && self.waiting.is_empty() && self.limiter.is_empty()
    }

    /// Appends the item to the queue; an item that is being worked on follows when the work ends.
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

    /// Checks the invariants of the queue.
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
