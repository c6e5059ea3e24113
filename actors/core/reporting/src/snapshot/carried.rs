//! Since when pools have been out of sync by the word of the previous leader (Q8). A pool that is found in sync forgets it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::ids::PoolId;
use model::lease::OutOfSyncTimes;
use model::machine::Now;
use model::view::{OutOfSync, PoolView};

/// How long into a term a pool must be found out of sync for the word of the previous leader to be about that.
const FOUND_WITHIN: Duration = Duration::from_secs(60);

/// What the previous leader has noted.
#[derive(Debug, Default)]
pub(super) struct Carried {
    pools: BTreeMap<PoolId, Late>,
    /// Until when pools that were not found out of sync yet may be.
    until: Now,
}

#[derive(Clone, Copy, Debug)]
struct Late {
    since: Now,
    /// Whether this leader has found it so, too.
    found: bool,
}

impl Carried {
    /// What was noted when a term begins.
    pub(super) fn new(now: Now, noted: &OutOfSyncTimes) -> Carried {
        let late = |(pool, since): (&PoolId, &Now)| (pool.clone(), Late { since: *since, found: false });
        Carried { pools: noted.iter().map(late).collect(), until: now.plus(FOUND_WITHIN) }
    }

    /// The pool's view with what is carried; a pool in sync forgets it.
    pub(super) fn applied(&mut self, now: Now, view: Arc<PoolView>) -> Arc<PoolView> {
        let Some(late) = self.pools.get_mut(&view.pool) else { return view };
        match view.out_of_sync {
            Some(out) if late.found || now <= self.until => {
                late.found = true;
                let out_of_sync = Some(OutOfSync { since: out.since.min(late.since), at_least: true });
                Arc::new(PoolView { out_of_sync, ..(*view).clone() })
            }
            Some(_) | None => {
                self.forget(&view.pool);
                view
            }
        }
    }

    /// Nothing is carried of this pool any more.
    pub(super) fn forget(&mut self, pool: &PoolId) {
        self.pools.remove(pool);
    }
}
