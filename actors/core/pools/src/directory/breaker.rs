//! Whether so many pools at once would lose most of their members that something else must be wrong (G4): more than five,
//! and more than a fifth of those that count, each left with less than half of what it had five minutes ago.
//!
//! [`super::losses`] says which losses count. A member that was lost otherwise was not had: so a pool counts only if it is
//! left with fewer members than it has lost for causes that count.
//!
//! It counts, and tells whether the present levels trip it; what is held back for it is the turn's business. Of each
//! assigned pool it knows how many members it is left with and how many it had five minutes ago. A pool had what it was
//! asked to have once that was seen in it, and it had what it is to lose until that is seen to be gone, whichever
//! client takes it out: levels that fall while nothing is written take nothing away. What only drains does not count any
//! more, or each change of all nodes would look like a loss. Where a pool had nothing there is nothing to compare with:
//! what it is given is what it had as soon as that has lasted for a while.
//!
//! While operators have paused a pool it had what is in it, and that is what it is compared with when the pause ends: they
//! may have put it back. A pool that is paused by itself loses nothing for the time being and does not count; but pausing
//! a pool that was counted when it tripped does not end the stop.
//!
//! While it is tripped time changes nothing: what a pool is compared with stays what it had before. It ends when the
//! operator releases it, when levels are such that it would not trip any more, or when nothing is left to go of what it
//! counts.

mod history;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub(super) use history::{BACK, Paused, Size};
use history::{History, Weight};
use model::ids::PoolId;
use model::machine::Now;

/// So many pools may lose most of their members, however few there are.
const FEW: usize = 5;
/// One in so many may.
const PART: usize = 5;

/// How many members the assigned pools have and had.
#[derive(Default)]
pub(super) struct Breaker {
    pools: BTreeMap<PoolId, History>,
    /// When time alone moves what each pool is compared with.
    due: BTreeSet<(Now, PoolId)>,
    /// The pools that are to have less than half of what they had, those that do not count included.
    shrunk: BTreeSet<PoolId>,
    tally: Tally,
    /// Since when it is tripped.
    tripped: Option<Now>,
    /// Whether that was told in this term.
    told: bool,
    /// Whether it was reported in this term, and its end was not.
    reported: bool,
    /// Whether the operator has released it since it was last judged.
    released: bool,
    /// What was last said of it.
    said: Option<bool>,
}

/// How many pools count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Tally {
    all: usize,
    /// Those of them that are to have less than half of what they had.
    shrunk: usize,
    /// Those of these that would lose something now.
    losing: usize,
}

impl Tally {
    fn add(&mut self, weight: Weight) {
        self.all += usize::from(weight.counts);
        self.shrunk += usize::from(weight.shrunk);
        self.losing += usize::from(weight.loses);
    }

    fn remove(&mut self, weight: Weight) {
        self.all -= usize::from(weight.counts);
        self.shrunk -= usize::from(weight.shrunk);
        self.losing -= usize::from(weight.loses);
    }

    /// Whether too many have shrunk, and something of that would go now.
    fn is_much(self) -> bool {
        self.shrunk > FEW && self.shrunk * PART > self.all && self.losing > 0
    }
}

impl Breaker {
    /// Takes in what a pool is to have from now on.
    pub(super) fn note(&mut self, now: Now, id: &PoolId, size: Size) {
        // What has stood until now counts before it changes.
        self.advance(now);
        if !self.pools.contains_key(id) {
            let history = History::new(size);
            self.tally.add(history.weight());
            self.pools.insert(id.clone(), history);
        }
        self.update(id, |history| history.note(now, size));
    }

    /// Changes what is known of one pool, and all that is kept besides.
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

    /// Forgets a pool that has no owner, or is not manageable.
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

    /// What five minutes ago was moves on, unless the breaker is tripped.
    fn advance(&mut self, now: Now) {
        while self.tripped.is_none()
            && let Some((_, id)) = self.due.first().filter(|(at, _)| *at <= now).cloned()
        {
            self.update(&id, |history| history.grow_older(now));
        }
    }

    /// Judges the present levels. It ends as well when nothing of what it counts is left to go: then another client has
    /// carried it out. Tells whether that has changed anything.
    pub(super) fn judge(&mut self, now: Now) -> bool {
        self.advance(now);
        let before = self.tripped;
        if before.is_some() && !self.tally.is_much() {
            // Compared with what has been added meanwhile it may still be too much.
            self.set_tripped(None);
            self.advance(now);
        }
        let trips = self.tally.is_much();
        self.set_tripped(trips.then(|| before.unwrap_or(now)));
        self.told &= trips;
        std::mem::take(&mut self.released) || before != self.tripped
    }

    /// Sets since when it is tripped; `None`: it is not.
    fn set_tripped(&mut self, since: Option<Now>) {
        if std::mem::replace(&mut self.tripped, since).is_some() != since.is_some() {
            let shrunk: Vec<PoolId> = self.shrunk.iter().cloned().collect();
            shrunk.iter().for_each(|id| self.update(id, |_| ()));
        }
    }

    /// Whether it is tripped, if that was not yet said.
    pub(super) fn take_news(&mut self) -> Option<bool> {
        let tripped = self.tripped.is_some();
        (self.said.replace(tripped) != Some(tripped)).then_some(tripped)
    }

    /// Whether it is to be told that it is tripped.
    pub(super) fn take_untold(&mut self) -> bool {
        let untold = self.tripped.is_some() && !std::mem::replace(&mut self.told, true);
        self.reported |= untold;
        untold
    }

    /// Whether it is to be told that it is tripped no longer.
    pub(super) fn take_ended(&mut self) -> bool {
        self.tripped.is_none() && std::mem::take(&mut self.reported)
    }

    /// It is to be told again while it lasts.
    pub(super) fn forget_told(&mut self) {
        (self.told, self.reported) = (false, false);
    }

    /// Since when it is tripped.
    pub(super) fn tripped(&self) -> Option<Now> {
        self.tripped
    }

    /// How many pools would lose most of their members, and of how many.
    pub(super) fn counted(&self) -> (usize, usize) {
        (self.tally.shrunk, self.tally.all)
    }

    /// The operator releases it: what the pools that lose something are asked to have now is what they had; gives which
    /// these are. Should it trip all the same, that is another time.
    pub(super) fn release(&mut self, now: Now) -> Vec<PoolId> {
        self.set_tripped(None);
        (self.told, self.released) = (false, true);
        let lose = self.pools.iter().filter(|(_, history)| history.loses()).map(|(id, _)| id.clone());
        let lose: Vec<PoolId> = lose.collect();
        lose.iter().for_each(|id| self.update(id, |history| history.release(now)));
        lose
    }

    /// The operator releases what one pool holds back of its own: what it is left with then is what it had. While all
    /// removals are stopped that ends nothing here, and nothing is released.
    pub(super) fn release_pool(&mut self, id: &PoolId) -> bool {
        if self.tripped.is_none() {
            self.update(id, History::let_go);
        }
        self.tripped.is_none()
    }

    /// The invariants: what is counted is what there is, and each change will be looked at again.
    #[cfg(test)]
    pub(super) fn check(&self) -> bool {
        let shrunk = self.pools.iter().filter(|(_, history)| history.is_shrunk()).map(|(id, _)| id);
        let ages = self.pools.iter().filter_map(|(id, history)| history.due(id));
        let mut tally = Tally::default();
        self.pools.values().for_each(|history| tally.add(history.weight()));
        shrunk.eq(self.shrunk.iter()) && ages.collect::<BTreeSet<_>>() == self.due && tally == self.tally
    }

    /// How many members a pool is left with.
    #[cfg(test)]
    pub(super) fn size(&self, id: &PoolId) -> Option<usize> {
        self.pools.get(id).map(History::left)
    }

    /// How many pools it knows.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.pools.len()
    }
}
