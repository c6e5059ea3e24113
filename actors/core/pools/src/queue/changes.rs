//! The changes that wait in a pool, or are in its attempt: whose they are and what they have spent (Q1, Q5).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::ids::ServiceUid;
use model::machine::Now;

/// Whose change it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Owner {
    /// Of no single Service: found by comparing, or caused by time passing.
    Pool,
    /// Of one Service.
    Service(ServiceUid),
}

/// Changes of one pool. Those of one owner with equal retry counts are one, so that an owner has at most
/// max-retries + 1 of them (Q1).
#[derive(Clone, Default, Debug)]
pub(super) struct Changes {
    /// By owner and retry count: before which moment another try is useless (S0 `nextEligibleAt`).
    by_owner: BTreeMap<Owner, BTreeMap<u32, Option<Now>>>,
    /// When the oldest of them came.
    since: Option<Now>,
}

/// What a failed attempt leaves of its changes (Q6).
#[derive(Debug, Default)]
pub(super) struct Spent {
    /// Those with budget left, one retry further.
    pub requeued: Changes,
    /// The owners of those that have no budget left.
    pub exhausted: BTreeSet<Owner>,
}

impl Changes {
    /// Adds a fresh change.
    pub fn add(&mut self, owner: Owner, now: Now) {
        self.by_owner.entry(owner).or_default().entry(0).or_insert(None);
        self.since = Some(self.since.map_or(now, |since| since.min(now)));
    }

    /// Takes in other changes; each keeps its own count, and the more restrictive moment of two equal ones.
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

    /// Drops the changes of all Services that `relevant` does not name (Q4). Says whether any was dropped.
    pub fn retain(&mut self, relevant: impl Fn(&ServiceUid) -> bool) -> bool {
        let before = self.by_owner.len();
        self.by_owner.retain(|owner, _| match owner {
            Owner::Pool => true,
            Owner::Service(uid) => relevant(uid),
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

    /// Lets each change consume one retry; those that have none left are exhausted (Q6).
    pub fn spend(self, max_retries: u32, eligible_at: Option<Now>) -> Spent {
        let mut spent = Spent::default();
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

    /// Whether none of them has been tried.
    pub fn all_fresh(&self) -> bool {
        self.by_owner.values().all(|counts| counts.keys().all(|count| *count == 0))
    }

    /// Until when all of them wait, because one of them does (Q5).
    pub fn eligible_at(&self) -> Option<Now> {
        self.by_owner.values().flat_map(BTreeMap::values).copied().flatten().max()
    }

    pub fn since(&self) -> Option<Now> {
        self.since
    }

    pub fn owners(&self) -> impl Iterator<Item = &Owner> {
        self.by_owner.keys()
    }

    /// Whether a Service asked for any of them.
    pub fn any_of_a_service(&self) -> bool {
        self.owners().any(|owner| matches!(owner, Owner::Service(_)))
    }

    /// The retry counts of one owner, ascending.
    pub fn counts(&self, owner: &Owner) -> impl Iterator<Item = u32> {
        self.by_owner.get(owner).into_iter().flat_map(|counts| counts.keys().copied())
    }

    /// The highest count of one owner.
    pub fn highest(&self, owner: &Owner) -> Option<u32> {
        self.by_owner.get(owner).and_then(|counts| counts.keys().next_back().copied())
    }

    /// The invariant of Q1: no count beyond the budget.
    pub fn within(&self, max_retries: u32) -> bool {
        self.by_owner
            .values()
            .all(|counts| !counts.is_empty() && counts.keys().all(|count| *count <= max_retries))
            && self.by_owner.is_empty() == self.since.is_none()
    }
}

/// The changes that wait, and the window of the youngest (Q2).
#[derive(Default, Debug)]
pub(super) struct Waiting {
    pub changes: Changes,
    /// `None` also while a change waits that is in no window, because it has been tried.
    window: Option<Window>,
}

#[derive(Clone, Copy, Debug)]
struct Window {
    opened: Now,
    touched: Now,
}

impl Waiting {
    /// Adds a fresh change that came at this moment. It opens the window, or keeps it open; next to a tried change it
    /// needs none.
    pub fn add(&mut self, owner: Owner, at: Now) {
        if self.changes.is_empty() {
            self.window = Some(Window { opened: at, touched: at });
        } else if let Some(window) = &mut self.window {
            window.opened = window.opened.min(at);
            window.touched = window.touched.max(at);
        }
        self.changes.add(owner, at);
    }

    /// Takes back changes of an attempt; they are in no window.
    pub fn put_back(&mut self, changes: Changes) {
        if !changes.is_empty() {
            self.changes.join(changes);
            self.window = None;
        }
    }

    /// Gives all changes away.
    pub fn take(&mut self) -> Changes {
        self.window = None;
        std::mem::take(&mut self.changes)
    }

    /// When the window closes: after a quiet period, at the latest after the longest delay.
    pub fn closes(&self, quiet_period: Duration, max_delay: Duration) -> Now {
        self.window
            .map_or(Now::ZERO, |window| window.touched.plus(quiet_period).min(window.opened.plus(max_delay)))
    }
}
