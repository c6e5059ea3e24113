//! The changes that wait in a pool or are in its attempt: their owners and spent retries (Q1, Q5).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::ids::ServiceUid;
use model::machine::Now;

/// The owner of a change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ChangeOwner {
    /// No single Service: a comparison found the change, or the passing of time caused it.
    Pool,
    /// One Service.
    Service(ServiceUid),
}

/// Changes of one pool. Changes of one owner with equal retry counts are merged, so that an owner has at most
/// max-retries + 1 of them (Q1).
#[derive(Clone, Default, Debug)]
pub(super) struct Changes {
    /// By owner and retry count: the time before which another try is useless (S0 `nextEligibleAt`).
    by_owner: BTreeMap<ChangeOwner, BTreeMap<u32, Option<Now>>>,
    /// When the oldest change arrived.
    since: Option<Now>,
}

/// The changes that a failed attempt leaves (Q6).
#[derive(Debug, Default)]
pub(super) struct FailedChanges {
    /// Changes with budget left, each with one more retry.
    pub requeued: Changes,
    /// Owners of changes without budget left.
    pub exhausted: BTreeSet<ChangeOwner>,
}

impl Changes {
    /// Adds a fresh change.
    pub fn add(&mut self, owner: ChangeOwner, now: Now) {
        self.by_owner.entry(owner).or_default().entry(0).or_insert(None);
        self.since = Some(self.since.map_or(now, |since| since.min(now)));
    }

    /// Merges other changes. Each change keeps its own count; of two changes with equal counts, the later time
    /// applies.
    pub fn join(&mut self, other: Changes) {
        for (owner, counts) in other.by_owner {
            let mine = self.by_owner.entry(owner).or_default();
            for (count, eligible_at) in counts {
                let kept = mine.entry(count).or_insert(None);
                *kept = (*kept).max(eligible_at);
            }
        }
        self.since = [self.since, other.since].into_iter().flatten().min();
    }

    /// Drops the changes of all Services that are not `relevant` (Q4). Returns whether any was dropped.
    pub fn retain(&mut self, relevant: impl Fn(&ServiceUid) -> bool) -> bool {
        let before = self.by_owner.len();
        self.by_owner.retain(|owner, _| match owner {
            ChangeOwner::Pool => true,
            ChangeOwner::Service(uid) => relevant(uid),
        });
        if self.by_owner.is_empty() {
            self.since = None;
        }
        self.by_owner.len() != before
    }

    /// Drops the changes that were tried.
    pub fn drop_tried(&mut self) {
        for counts in self.by_owner.values_mut() {
            counts.retain(|count, _| *count == 0);
        }
        self.by_owner.retain(|_, counts| !counts.is_empty());
        if self.by_owner.is_empty() {
            self.since = None;
        }
    }

    /// Spends one retry of each change; changes without budget left are exhausted (Q6).
    pub fn spend(self, max_retries: u32, eligible_at: Option<Now>) -> FailedChanges {
        let mut spent = FailedChanges::default();
        for (owner, counts) in self.by_owner {
            for count in counts.into_keys() {
                if count >= max_retries {
                    spent.exhausted.insert(owner.clone());
                } else {
                    let requeued = spent.requeued.by_owner.entry(owner.clone()).or_default();
                    requeued.insert(count + 1, eligible_at);
                }
            }
        }
        if !spent.requeued.is_empty() {
            spent.requeued.since = self.since;
        }
        spent
    }

    pub fn is_empty(&self) -> bool {
        self.by_owner.is_empty()
    }

    /// Returns whether no change has been tried.
    pub fn all_fresh(&self) -> bool {
        self.by_owner.values().all(|counts| counts.keys().all(|count| *count == 0))
    }

    /// Returns the latest time for which any of the changes waits. Until then, all of them wait (Q5).
    pub fn eligible_at(&self) -> Option<Now> {
        self.by_owner.values().flat_map(BTreeMap::values).copied().flatten().max()
    }

    pub fn since(&self) -> Option<Now> {
        self.since
    }

    pub fn owners(&self) -> impl Iterator<Item = &ChangeOwner> {
        self.by_owner.keys()
    }

    /// Returns whether a Service caused any of the changes.
    pub fn any_of_a_service(&self) -> bool {
        self.owners().any(|owner| matches!(owner, ChangeOwner::Service(_)))
    }

    /// Returns the retry counts of one owner, ascending.
    pub fn counts(&self, owner: &ChangeOwner) -> impl Iterator<Item = u32> {
        self.by_owner.get(owner).into_iter().flat_map(|counts| counts.keys().copied())
    }

    /// Returns the highest retry count of one owner.
    pub fn highest(&self, owner: &ChangeOwner) -> Option<u32> {
        self.by_owner.get(owner).and_then(|counts| counts.keys().next_back().copied())
    }

    /// Checks the invariant of Q1: no count is beyond the budget.
    pub fn within(&self, max_retries: u32) -> bool {
        self.by_owner
            .values()
            .all(|counts| !counts.is_empty() && counts.keys().all(|count| *count <= max_retries))
            && self.by_owner.is_empty() == self.since.is_none()
    }
}

/// The waiting changes, and the window of the youngest (Q2).
#[derive(Default, Debug)]
pub(super) struct WaitingChanges {
    pub changes: Changes,
    /// `None` also while a tried change waits, because that is in no window.
    window: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    opened: Now,
    touched: Now,
}

impl WaitingChanges {
    /// Adds a fresh change that arrived at this moment. The change opens or extends the window. While a tried change
    /// waits, there is no window.
    pub fn add(&mut self, owner: ChangeOwner, at: Now) {
        if self.changes.is_empty() {
            self.window = Some(Window { opened: at, touched: at });
        } else if let Some(window) = &mut self.window {
            window.opened = window.opened.min(at);
            window.touched = window.touched.max(at);
        }
        self.changes.add(owner, at);
    }

    /// Puts the changes of an attempt back among the waiting ones, without a window.
    pub fn put_back(&mut self, changes: Changes) {
        if !changes.is_empty() {
            self.changes.join(changes);
            self.window = None;
        }
    }

    /// Removes and returns all changes.
    pub fn take(&mut self) -> Changes {
        self.window = None;
        std::mem::take(&mut self.changes)
    }

    /// Returns when the window closes: after the quiet period, at the latest after the longest delay.
    pub fn closes(&self, quiet_period: Duration, max_delay: Duration) -> Now {
        self.window
            .map_or(Now::ZERO, |window| window.touched.plus(quiet_period).min(window.opened.plus(max_delay)))
    }
}
