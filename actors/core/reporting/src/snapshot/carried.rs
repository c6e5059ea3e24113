//! Since when pools have been out of sync according to the previous leader (Q8). A pool that is found in sync is
//! dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::ids::PoolId;
use model::lease::OutOfSyncTimes;
use model::machine::Now;
use model::view::{OutOfSync, PoolView};

/// Time within a term in which a pool must be found out of sync for the previous leader's record to apply.
const FOUND_WITHIN: Duration = Duration::from_secs(60);

/// The record of the previous leader.
#[derive(Debug, Default)]
pub(super) struct PredecessorRecord {
    pools: BTreeMap<PoolId, CarriedTime>,
    /// Time until which pools may still be found out of sync.
    until: Now,
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
        PredecessorRecord { pools: recorded.iter().map(carried).collect(), until: now.plus(FOUND_WITHIN) }
    }

    /// Returns the pool's view with the carried time; drops a pool that is in sync.
    pub(super) fn applied(&mut self, now: Now, view: Arc<PoolView>) -> Arc<PoolView> {
        let Some(carried) = self.pools.get_mut(&view.pool) else { return view };
        match view.out_of_sync {
            Some(out) if carried.found || now <= self.until => {
                carried.found = true;
                let out_of_sync = Some(OutOfSync { since: out.since.min(carried.since), at_least: true });
                Arc::new(PoolView { out_of_sync, ..(*view).clone() })
            }
            Some(_) | None => {
                self.forget(&view.pool);
                view
            }
        }
    }

    /// Drops a pool from the record.
    pub(super) fn forget(&mut self, pool: &PoolId) {
        self.pools.remove(pool);
    }
}
