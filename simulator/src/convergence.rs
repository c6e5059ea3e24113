//! The convergence of pools: the time until each pool has the members that its Service requires.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use crate::expected_members::ExpectedPool;

/// A pool by load balancer and name, both in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PoolName {
    /// The load balancer.
    pub load_balancer: String,
    /// The pool.
    pub pool: String,
}

impl PoolName {
    /// Returns the pool of these names (case-insensitive).
    #[must_use]
    pub fn new(load_balancer: &str, pool: &str) -> Self {
        Self { load_balancer: load_balancer.to_lowercase(), pool: pool.to_lowercase() }
    }
}

/// Required members of each pool with the times of their changes, and the times until the pools had them.
#[derive(Clone, Debug, Default)]
pub struct ConvergenceTracker {
    pools: BTreeMap<PoolName, Entry>,
    out_of_sync: usize,
    first_change_us: Option<u64>,
    all_converged_since_us: Option<u64>,
    /// Durations of all completed waits, in microseconds.
    waits: Vec<u64>,
    moves: u64,
    history: Vec<(u64, usize)>,
    emptied: usize,
    /// Time for which members stayed after no Service required them.
    removals_us: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    wanted: ExpectedPool,
    converged: bool,
    /// Time at which the pool last became in sync.
    converged_since_us: u64,
    /// Times of the changes whose new members are not all present yet.
    waiting: Vec<u64>,
    /// True if the pool had no member at the last observation.
    empty: bool,
    /// True if the pool had all required members at the last observation.
    held: bool,
    /// Members at the last observation that are not allowed.
    surplus: BTreeSet<IpAddr>,
    /// Surplus members that were required before, with the time of the change that ended this.
    leaving: BTreeMap<IpAddr, u64>,
}

impl Entry {
    /// Returns whether the pool is in sync: it has all required members, and other members only if they were required
    /// before and `members.removalDelay` has not passed.
    fn is_in_sync(&self, now_us: u64, removal_delay_us: u64) -> bool {
        let may_stay = |ip: &IpAddr| {
            let since = self.leaving.get(ip);
            since.is_some_and(|since| now_us <= since.saturating_add(removal_delay_us))
        };
        self.held && self.surplus.iter().all(may_stay)
    }
}

/// Numbers of pools in sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InSync {
    /// Pools that are in sync.
    pub pools: usize,
    /// Those of them with members that stay for `members.removalDelay`.
    pub with_delayed_removals: usize,
}

/// Maximum number of steps in the history; later ones are dropped.
const MAX_HISTORY: usize = 200_000;

impl ConvergenceTracker {
    /// Changes the requirements of a pool at `changed_us`; `members` are its current members.
    ///
    /// A change waits if it requires a member that the pool does not have.
    pub fn want(
        &mut self,
        pool: PoolName,
        wanted: ExpectedPool,
        members: &BTreeSet<IpAddr>,
        changed_us: u64,
    ) {
        self.first_change_us.get_or_insert(changed_us);
        let out_of_sync = &mut self.out_of_sync;
        let entry = self.pools.entry(pool.clone()).or_insert_with(|| {
            *out_of_sync += 1;
            Entry::default()
        });
        let gained = wanted.required.difference(&entry.wanted.required).any(|ip| !members.contains(ip));
        if gained {
            entry.waiting.push(changed_us);
        }
        let leaving = entry.wanted.allowed.difference(&wanted.allowed).filter(|ip| members.contains(ip));
        entry.leaving.extend(leaving.map(|ip| (*ip, changed_us)));
        entry.wanted = wanted;
        self.observe(&pool, members, changed_us);
    }

    /// Sets the initial members of a pool, without a wait.
    pub fn begin(&mut self, pool: PoolName, wanted: ExpectedPool, members: &BTreeSet<IpAddr>) {
        self.out_of_sync += 1;
        let entry = Entry { wanted, ..Entry::default() };
        if self.pools.insert(pool.clone(), entry).is_some_and(|old| !old.converged) {
            self.out_of_sync -= 1;
        }
        self.observe(&pool, members, 0);
    }

    /// Records the members of a pool at `at_us`. An unknown pool is ignored.
    pub fn observe(&mut self, pool: &PoolName, members: &BTreeSet<IpAddr>, at_us: u64) {
        let Some(entry) = self.pools.get_mut(pool) else { return };
        entry.held = entry.wanted.is_held_by(members);
        entry.surplus = members.difference(&entry.wanted.allowed).copied().collect();
        let gone = entry.leaving.extract_if(.., |ip, _| !entry.surplus.contains(ip));
        let gone = gone.filter(|(ip, _)| !members.contains(ip));
        self.removals_us.extend(gone.map(|(_, since)| at_us.saturating_sub(since)));
        if entry.held {
            let waits = entry.waiting.drain(..).map(|since| at_us.saturating_sub(since));
            self.waits.extend(waits);
        }
        let emptied = members.is_empty() && !std::mem::replace(&mut entry.empty, members.is_empty());
        self.emptied += usize::from(emptied && !entry.wanted.required.is_empty());
        let converged = entry.wanted.is_met_by(members);
        let before = std::mem::replace(&mut entry.converged, converged);
        match (before, converged) {
            (false, true) => {
                self.out_of_sync -= 1;
                entry.converged_since_us = at_us;
            }
            (true, false) => self.out_of_sync += 1,
            (true, true) | (false, false) => return,
        }
        self.moves += 1;
        if self.history.len() < MAX_HISTORY {
            self.history.push((at_us, self.out_of_sync));
        }
        self.all_converged_since_us = match self.out_of_sync {
            0 => Some(at_us.max(self.all_converged_since_us.unwrap_or(0))),
            _ => None,
        };
    }

    /// Removes a pool that is no longer required, with its waits.
    pub fn forget(&mut self, pool: &PoolName, at_us: u64) {
        let Some(entry) = self.pools.remove(pool) else { return };
        if entry.converged {
            return;
        }
        self.out_of_sync -= 1;
        self.moves += 1;
        if self.history.len() < MAX_HISTORY {
            self.history.push((at_us, self.out_of_sync));
        }
        if self.out_of_sync == 0 {
            self.all_converged_since_us = Some(at_us);
        }
    }

    /// Returns the required members of a pool; `None` for an unknown one.
    pub(crate) fn required(&self, pool: &PoolName) -> Option<&BTreeSet<IpAddr>> {
        self.pools.get(pool).map(|entry| &entry.wanted.required)
    }

    /// Returns the number of known pools.
    #[must_use]
    pub fn pools(&self) -> usize {
        self.pools.len()
    }

    /// Returns their names.
    pub fn names(&self) -> impl Iterator<Item = &PoolName> {
        self.pools.keys()
    }

    /// Returns the number of pools that are out of sync.
    #[must_use]
    pub fn out_of_sync(&self) -> usize {
        self.out_of_sync
    }

    /// Returns the number of pools in sync now.
    #[must_use]
    pub fn in_sync(&self, now_us: u64, removal_delay_us: u64) -> InSync {
        let in_sync = self.pools.values().filter(|entry| entry.is_in_sync(now_us, removal_delay_us));
        in_sync.fold(InSync::default(), |sum, entry| InSync {
            pools: sum.pools + 1,
            with_delayed_removals: sum.with_delayed_removals + usize::from(!entry.surplus.is_empty()),
        })
    }

    /// Returns a counter that changes when a pool gets in sync or out of sync.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Returns the number of times a pool lost its last member while its Service required some.
    #[must_use]
    pub fn emptied(&self) -> usize {
        self.emptied
    }

    /// Returns the number of pools out of sync from each time on, in microseconds; almost in the order of time.
    #[must_use]
    pub fn history(&self) -> &[(u64, usize)] {
        &self.history
    }

    /// Returns the time since which all pools are in sync, if they are; up to one answer's latency ahead of the clock.
    pub(crate) fn all_converged_since_us(&self) -> Option<u64> {
        self.all_converged_since_us
    }

    /// Returns the microseconds from the first change until all pools were in sync, if they are.
    pub(crate) fn first_change_to_converged_us(&self) -> Option<u64> {
        Some(self.all_converged_since_us?.saturating_sub(self.first_change_us?))
    }

    /// Returns the microseconds from the first change until all pools of each load balancer were in sync; `None` if one
    /// of its pools is not.
    pub(crate) fn first_change_to_converged_by_load_balancer_us(&self) -> BTreeMap<String, Option<u64>> {
        let mut all: BTreeMap<String, Option<u64>> = BTreeMap::new();
        let first = self.first_change_us.unwrap_or(0);
        for (name, entry) in &self.pools {
            let took = entry.converged.then(|| entry.converged_since_us.saturating_sub(first));
            let longest = all.entry(name.load_balancer.clone()).or_insert(Some(0));
            *longest = longest.zip(took).map(|(one, other)| one.max(other));
        }
        all
    }

    /// Returns the durations of all completed waits, in microseconds, sorted.
    #[must_use]
    pub fn waits_us(&self) -> Vec<u64> {
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        waits
    }

    /// Returns the time from the change that no longer requires a member to its removal, in microseconds, sorted;
    /// without members that are still present.
    pub(crate) fn removals_us(&self) -> Vec<u64> {
        let mut removals = self.removals_us.clone();
        removals.sort_unstable();
        removals
    }

    /// Returns the number of members that are no longer required and still present.
    #[must_use]
    pub fn leaving(&self) -> usize {
        self.pools.values().map(|entry| entry.leaving.len()).sum()
    }

    /// Returns the number of changes that still wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.pools.values().map(|entry| entry.waiting.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(last: &[u8]) -> BTreeSet<IpAddr> {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
    }

    fn wanted(required: &[u8], allowed: &[u8]) -> ExpectedPool {
        ExpectedPool { required: ips(required), allowed: ips(allowed) }
    }

    #[test]
    fn a_change_waits_for_new_members_then_for_removals() {
        let mut convergence = ConvergenceTracker::default();
        let pool = PoolName::new("LB-2", "Shop-Web");
        convergence.begin(pool.clone(), wanted(&[1], &[1]), &ips(&[1]));
        assert_eq!((convergence.pools(), convergence.out_of_sync(), convergence.waiting()), (1, 0, 0));

        convergence.want(pool.clone(), wanted(&[2], &[2]), &ips(&[1]), 1_000);
        assert_eq!(
            (convergence.out_of_sync(), convergence.waiting(), convergence.first_change_to_converged_us()),
            (1, 1, None)
        );
        convergence.observe(&PoolName::new("lb-2", "shop-web"), &ips(&[1, 2]), 4_000);
        assert_eq!((convergence.out_of_sync(), convergence.waits_us()), (1, vec![3_000]));
        convergence.observe(&pool, &ips(&[2]), 9_000);
        assert_eq!((convergence.out_of_sync(), convergence.first_change_to_converged_us()), (0, Some(8_000)));
    }

    #[test]
    fn the_pools_of_each_load_balancer_have_a_time_of_their_own() {
        let mut convergence = ConvergenceTracker::default();
        for (lb, at_us) in [("a", 2_000), ("b", 5_000), ("c", 0)] {
            let pool = PoolName::new(lb, "pool");
            convergence.begin(pool.clone(), wanted(&[1], &[1]), &ips(&[1]));
            convergence.want(pool.clone(), wanted(&[2], &[2]), &ips(&[1]), 1_000);
            if at_us > 0 {
                convergence.observe(&pool, &ips(&[2]), at_us);
            }
        }
        let took: Vec<Option<u64>> =
            convergence.first_change_to_converged_by_load_balancer_us().into_values().collect();
        assert_eq!(took, [Some(1_000), Some(4_000), None]);
    }

    #[test]
    fn the_history_counts_pools_out_of_sync_and_lost_last_members() {
        let mut convergence = ConvergenceTracker::default();
        let pool = PoolName::new("lb", "pool");
        convergence.begin(pool.clone(), wanted(&[1], &[1]), &ips(&[1]));
        convergence.observe(&pool, &ips(&[]), 1_000);
        convergence.observe(&pool, &ips(&[]), 2_000);
        convergence.observe(&pool, &ips(&[1]), 3_000);
        convergence.want(pool.clone(), wanted(&[], &[]), &ips(&[1]), 4_000);
        convergence.observe(&pool, &ips(&[]), 5_000);
        assert_eq!(convergence.emptied(), 1, "the second time nothing was required");
        assert_eq!(convergence.history(), [(0, 0), (1_000, 1), (3_000, 0), (4_000, 1), (5_000, 0)]);
    }

    #[test]
    fn a_pool_is_in_sync_while_removal_delay_keeps_its_old_members() {
        let mut convergence = ConvergenceTracker::default();
        let pool = PoolName::new("lb", "pool");
        let counts = |convergence: &ConvergenceTracker, now_us| {
            let InSync { pools, with_delayed_removals } = convergence.in_sync(now_us, 30_000);
            (pools, with_delayed_removals)
        };
        convergence.begin(pool.clone(), wanted(&[1], &[1]), &ips(&[1]));
        assert_eq!(counts(&convergence, 0), (1, 0));
        convergence.want(pool.clone(), wanted(&[2], &[2]), &ips(&[1]), 1_000);
        assert_eq!(counts(&convergence, 1_000), (0, 0), "a required member is missing");
        convergence.observe(&pool, &ips(&[1, 2]), 2_000);
        assert_eq!(
            (counts(&convergence, 31_000), convergence.out_of_sync(), convergence.leaving()),
            ((1, 1), 1, 1)
        );
        assert_eq!(counts(&convergence, 31_001), (0, 0), "the delay has passed");
        convergence.observe(&pool, &ips(&[2]), 32_000);
        assert_eq!(
            (counts(&convergence, 32_000), convergence.removals_us(), convergence.leaving()),
            ((1, 0), vec![31_000], 0)
        );
        convergence.observe(&pool, &ips(&[2, 9]), 33_000);
        assert_eq!(counts(&convergence, 33_000), (0, 0), "a member that was never required does not stay");
    }

    #[test]
    fn a_member_that_is_required_again_counts_as_kept() {
        let mut convergence = ConvergenceTracker::default();
        let pool = PoolName::new("lb", "pool");
        convergence.begin(pool.clone(), wanted(&[1, 2], &[1, 2]), &ips(&[1, 2]));
        convergence.want(pool.clone(), wanted(&[1], &[1]), &ips(&[1, 2]), 1_000);
        convergence.want(pool.clone(), wanted(&[1, 2], &[1, 2]), &ips(&[1, 2]), 2_000);
        assert_eq!((convergence.removals_us(), convergence.leaving()), (vec![], 0));
        convergence.want(pool.clone(), wanted(&[1], &[1]), &ips(&[1, 2]), 5_000);
        convergence.observe(&pool, &ips(&[1]), 9_000);
        assert_eq!(convergence.removals_us(), [4_000], "from the last change");
    }

    #[test]
    fn a_removed_pool_is_neither_out_of_sync_nor_waiting() {
        let mut convergence = ConvergenceTracker::default();
        let pool = PoolName::new("lb", "pool");
        convergence.begin(pool.clone(), wanted(&[1], &[1]), &ips(&[1]));
        convergence.want(pool.clone(), wanted(&[2], &[2]), &ips(&[1]), 100);
        assert_eq!((convergence.out_of_sync(), convergence.waiting()), (1, 1));
        convergence.forget(&pool, 200);
        assert_eq!((convergence.pools(), convergence.out_of_sync(), convergence.waiting()), (0, 0, 0));
        assert_eq!(convergence.all_converged_since_us(), Some(200));
        convergence.observe(&pool, &ips(&[9]), 300);
        assert_eq!(convergence.out_of_sync(), 0, "the pool is removed");
    }

    #[test]
    fn changes_that_only_remove_members_do_not_wait() {
        let mut convergence = ConvergenceTracker::default();
        let pool = PoolName::new("lb", "pool");
        convergence.begin(pool.clone(), wanted(&[1, 2], &[1, 2]), &ips(&[1, 2]));
        convergence.want(pool, wanted(&[1], &[1]), &ips(&[1, 2]), 500);
        assert_eq!(
            (convergence.out_of_sync(), convergence.waiting(), convergence.waits_us()),
            (1, 0, vec![])
        );
    }

    #[test]
    fn one_write_ends_the_waits_of_several_changes() {
        let mut convergence = ConvergenceTracker::default();
        let pool = PoolName::new("lb", "pool");
        convergence.begin(pool.clone(), wanted(&[1], &[1]), &ips(&[1]));
        convergence.want(pool.clone(), wanted(&[1, 2], &[1, 2]), &ips(&[1]), 100);
        convergence.want(pool.clone(), wanted(&[1, 2, 3], &[1, 2, 3]), &ips(&[1]), 200);
        convergence.observe(&pool, &ips(&[1, 2]), 250);
        assert_eq!(convergence.waiting(), 2, "a write that is already outdated ends no wait");
        convergence.observe(&pool, &ips(&[1, 2, 3]), 300);
        assert_eq!((convergence.waits_us(), convergence.out_of_sync()), (vec![100, 200], 0));
    }
}
