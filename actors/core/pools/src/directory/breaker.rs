//! The removal breaker (G4). It trips when so many pools would lose most of their members at once that the cause must
//! be a fault. That is the case if more than five pools, and more than a fifth of the pools that count, are left with
//! less than half of the members that they had five minutes ago.
//!
//! [`super::losses`] defines which losses count. Members that were lost otherwise are not former members: a pool counts
//! only if it is left with fewer members than it has lost for causes that count.
//!
//! The breaker counts, and decides whether the present levels trip it; `reconcile` holds the removals back. For each
//! assigned pool it keeps how many members the pool is left with, and its *baseline*: how many it had five minutes
//! ago. A required member is part of the baseline once it was observed in the pool. A leaving member stays part of
//! the baseline until a read shows that it is gone, whichever client removed it. A smaller level alone removes no
//! member while nothing is written. Draining members are no longer part of the baseline: otherwise, each replacement
//! of all nodes would look like a loss. A pool that had no members cannot be compared: members that it receives
//! become part of the baseline once they have lasted for a while.
//!
//! The baseline of a paused pool is the number of members in it, also when the pause ends: the operator may have
//! restored members. A pool that is paused alone loses nothing for now and does not count; but pausing a pool that
//! was counted when the breaker tripped does not end the stop.
//!
//! While the breaker is tripped, time changes nothing: each pool is still compared with its baseline before the trip.
//! The stop ends when the operator releases it, when the levels no longer trip it, or when nothing that it counts is
//! left to remove.

mod history;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use history::{History, TallyEntry};
pub(super) use history::{LOOKBACK, PauseScope, PoolSize};
use mechanisms::once_per_term::OncePerTerm;
use mechanisms::published::Published;
use model::ids::PoolId;
use model::machine::Now;

/// Number of pools that may lose most of their members, however few pools there are.
const POOLS_ALLOWED: usize = 5;
/// One pool in this many may lose most of its members.
const SHARE_ALLOWED: usize = 5;

/// The present and former number of members of each assigned pool.
#[derive(Default)]
pub(super) struct RemovalBreaker {
    pools: BTreeMap<PoolId, History>,
    /// When time alone changes the baseline of each pool.
    due: BTreeSet<(Now, PoolId)>,
    /// The pools that are left with less than half of their baseline, including pools that do not count.
    shrunk: BTreeSet<PoolId>,
    tally: BreakerTally,
    /// Since when the breaker is tripped.
    tripped: Option<Now>,
    /// The report of the trip.
    reports: OncePerTerm<()>,
    /// Whether the operator released the stop since the last evaluation.
    released: bool,
    /// The last published state.
    published: Published<bool>,
}

/// Number of pools that count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct BreakerTally {
    all: usize,
    /// Number of pools in `all` that are left with less than half of their baseline.
    shrunk: usize,
    /// Number of pools in `shrunk` that would lose members now.
    losing: usize,
}

impl BreakerTally {
    fn add(&mut self, weight: TallyEntry) {
        self.all += usize::from(weight.counts);
        self.shrunk += usize::from(weight.shrunk);
        self.losing += usize::from(weight.loses);
    }

    fn remove(&mut self, weight: TallyEntry) {
        self.all -= usize::from(weight.counts);
        self.shrunk -= usize::from(weight.shrunk);
        self.losing -= usize::from(weight.loses);
    }

    /// Returns whether too many pools have shrunk, and some of them would lose members now.
    fn is_exceeded(self) -> bool {
        self.shrunk > POOLS_ALLOWED && self.shrunk * SHARE_ALLOWED > self.all && self.losing > 0
    }
}

impl RemovalBreaker {
    /// Updates the members that a pool is to have from now on.
    pub(super) fn record(&mut self, now: Now, id: &PoolId, size: PoolSize) {
        // The elapsed time applies to the state before the change.
        self.advance(now);
        if !self.pools.contains_key(id) {
            let history = History::new(size);
            self.tally.add(history.weight());
            self.pools.insert(id.clone(), history);
        }
        self.update(id, |history| history.update(now, size));
    }

    /// Changes one pool's history and updates all indexes.
    fn update(&mut self, id: &PoolId, change: impl FnOnce(&mut History)) {
        let Some(history) = self.pools.get_mut(id) else {
            return;
        };
        let (before, weighed) = (history.due(id), history.weight());
        change(history);
        history.count(self.tripped.is_some());
        self.tally.remove(weighed);
        self.tally.add(history.weight());
        let after = history.due(id);
        if before != after {
            before.iter().for_each(|age| {
                self.due.remove(age);
            });
            self.due.extend(after);
        }
        if !history.is_shrunk() {
            self.shrunk.remove(id);
        } else if !self.shrunk.contains(id) {
            self.shrunk.insert(id.clone());
        }
    }

    /// Drops a pool that has no owner or is not manageable.
    pub(super) fn forget(&mut self, id: &PoolId) {
        let Some(history) = self.pools.remove(id) else {
            return;
        };
        if let Some(age) = history.due(id) {
            self.due.remove(&age);
        }
        self.tally.remove(history.weight());
        self.shrunk.remove(id);
    }

    /// Moves the baselines on with time, unless the breaker is tripped.
    fn advance(&mut self, now: Now) {
        while self.tripped.is_none()
            && let Some((_, id)) = self.due.first().filter(|(at, _)| *at <= now).cloned()
        {
            self.update(&id, |history| history.advance(now));
        }
    }

    /// Evaluates the present levels. The stop also ends when nothing that it counts is left to remove, because another
    /// client has removed it. Returns whether anything changed.
    pub(super) fn evaluate(&mut self, now: Now) -> bool {
        self.advance(now);
        let before = self.tripped;
        if before.is_some() && !self.tally.is_exceeded() {
            // After the stop, the baselines include members that were added during the stop. Compared with these, the
            // losses may still be too many.
            self.set_tripped(None);
            self.advance(now);
        }
        let trips = self.tally.is_exceeded();
        self.set_tripped(trips.then(|| before.unwrap_or(now)));
        if !trips {
            self.reports.retain(|()| false);
        }
        std::mem::take(&mut self.released) || before != self.tripped
    }

    /// Sets since when the breaker is tripped; `None`: it is not.
    fn set_tripped(&mut self, since: Option<Now>) {
        if std::mem::replace(&mut self.tripped, since).is_some() != since.is_some() {
            let shrunk: Vec<PoolId> = self.shrunk.iter().cloned().collect();
            shrunk.iter().for_each(|id| self.update(id, |_| ()));
        }
    }

    /// Returns whether the breaker is tripped, if this differs from the last published state.
    pub(super) fn take_change(&mut self) -> Option<bool> {
        self.published.update(self.tripped.is_some())
    }

    /// Returns whether a report of the trip is due.
    pub(super) fn take_due_report(&mut self) -> bool {
        self.tripped.is_some() && self.reports.report(&())
    }

    /// Returns whether a report of the end is due.
    pub(super) fn take_due_end(&mut self) -> bool {
        self.tripped.is_none() && self.reports.end(|()| false).next().is_some()
    }

    /// Makes a lasting trip due for a report again.
    pub(super) fn reset_reports(&mut self) {
        self.reports.clear();
    }

    /// Returns since when the breaker is tripped.
    pub(super) fn tripped(&self) -> Option<Now> {
        self.tripped
    }

    /// Returns how many pools would lose most of their members, and how many count.
    pub(super) fn counted(&self) -> (usize, usize) {
        (self.tally.shrunk, self.tally.all)
    }

    /// Releases the stop on the operator's request: the required members of the pools that lose members become their
    /// baseline. Returns these pools. If the breaker trips again, that is a new stop.
    pub(super) fn release(&mut self, now: Now) -> Vec<PoolId> {
        self.set_tripped(None);
        self.reports.retain(|()| false);
        self.released = true;
        let lose = self.pools.iter().filter(|(_, history)| history.loses()).map(|(id, _)| id.clone());
        let lose: Vec<PoolId> = lose.collect();
        lose.iter().for_each(|id| self.update(id, |history| history.release(now)));
        lose
    }

    /// Releases the removals that one pool's own guards hold back, on the operator's request: the members that remain
    /// become its baseline. While all removals are stopped, it releases nothing. Returns whether it released.
    pub(super) fn release_pool(&mut self, id: &PoolId) -> bool {
        if self.tripped.is_none() {
            self.update(id, History::release_guard);
        }
        self.tripped.is_none()
    }

    /// Checks the invariants: counts match the pools, and each pool's next change is scheduled.
    #[cfg(test)]
    pub(super) fn check(&self) -> bool {
        let shrunk = self.pools.iter().filter(|(_, history)| history.is_shrunk()).map(|(id, _)| id);
        let ages = self.pools.iter().filter_map(|(id, history)| history.due(id));
        let mut tally = BreakerTally::default();
        self.pools.values().for_each(|history| tally.add(history.weight()));
        shrunk.eq(self.shrunk.iter()) && ages.collect::<BTreeSet<_>>() == self.due && tally == self.tally
    }

    /// Returns how many members a pool is left with.
    #[cfg(test)]
    pub(super) fn size(&self, id: &PoolId) -> Option<usize> {
        self.pools.get(id).map(History::left)
    }

    /// Returns the number of known pools.
    #[cfg(test)]
    pub(super) fn pools_known(&self) -> usize {
        self.pools.len()
    }
}
