//! Since when pools have been out of sync according to the previous leader (Q8). A pool that is found in sync is
//! dropped; one of a load balancer that was not read yet stays recorded.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::ids::{LbName, PoolId};
use model::lease::OutOfSyncTimes;
use model::machine::Now;
use model::view::{LbView, OutOfSync, PoolView};

/// Time within which a pool must be found out of sync for the previous leader's record to apply. It counts from the
/// answer of the first read of the pool's load balancer that began in the term.
const CARRY_OVER_WINDOW: Duration = Duration::from_secs(60);

/// The record of the previous leader.
#[derive(Debug, Default)]
pub(super) struct PredecessorRecord {
    pools: BTreeMap<PoolId, CarriedTime>,
    /// When the term began.
    began: Now,
    /// Time until which pools may still be found out of sync, for each load balancer that was read in the term.
    until: BTreeMap<LbName, Now>,
}

#[derive(Clone, Copy, Debug)]
struct CarriedTime {
    since: Now,
    /// True if this leader has found the pool out of sync too.
    found: bool,
}

impl PredecessorRecord {
    /// Creates the record when a term begins.
    pub(super) fn new(now: Now, recorded: &OutOfSyncTimes) -> PredecessorRecord {
        let carried =
            |(pool, since): (&PoolId, &Now)| (pool.clone(), CarriedTime { since: *since, found: false });
        PredecessorRecord {
            pools: recorded.iter().map(carried).collect(),
            began: now,
            until: BTreeMap::new(),
        }
    }

    /// Records the first read of a load balancer in the term.
    pub(super) fn on_balancer(&mut self, view: &LbView) {
        let is_of_term = view.read_began.is_some_and(|began| began >= self.began);
        if let Some(read) = view.read_at.filter(|_| is_of_term && !self.pools.is_empty()) {
            self.until.entry(view.lb.clone()).or_insert(read.plus(CARRY_OVER_WINDOW));
        }
    }

    /// Returns whether pools of a load balancer may still be found out of sync.
    fn is_open(&self, now: Now, lb: &LbName) -> bool {
        self.until.get(lb).is_none_or(|until| now <= *until)
    }

    /// Returns the pool's view with the carried time; drops a pool that was read in sync in this term.
    pub(super) fn applied(&mut self, now: Now, view: Arc<PoolView>) -> Arc<PoolView> {
        let is_open = self.is_open(now, &view.pool.lb);
        let Some(carried) = self.pools.get_mut(&view.pool) else { return view };
        match view.out_of_sync {
            Some(out) if carried.found || is_open => {
                carried.found = true;
                let out_of_sync = Some(OutOfSync { since: out.since.min(carried.since), at_least: true });
                Arc::new(PoolView { out_of_sync, ..(*view).clone() })
            }
            // A pool that was observed before the term may have changed since.
            None if is_open && view.observed_at.is_none_or(|at| at < self.began) => {
                carried.found = false;
                view
            }
            Some(_) | None => {
                self.forget(&view.pool);
                view
            }
        }
    }

    /// Returns the pools that this leader may still find out of sync, and since when each has been.
    pub(super) fn unfound(&self, now: Now) -> impl Iterator<Item = (Now, &PoolId)> {
        let open = self.pools.iter().filter(move |(pool, time)| !time.found && self.is_open(now, &pool.lb));
        open.map(|(pool, time)| (time.since, pool))
    }

    /// Drops a pool from the record.
    pub(super) fn forget(&mut self, pool: &PoolId) {
        self.pools.remove(pool);
    }
}
