//! Pools with unread changes: the API server's watch has delivered a change of one of their Services that is not
//! processed yet. The current level of such a pool is already outdated, so the pool is not granted before the change
//! is processed (docs/design/pools.md, Q2).
//!
//! The writer receives each change as it is read, and the end of its processing after all assignments that result
//! from it. A pool waits for an unprocessed change for at most two seconds, so that a Service that changes all the
//! time is still written.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::ids::{PoolId, PoolName};
use model::machine::Now;

use super::Writer;
use super::slot::Slot;

/// Longest wait of a due pool for unprocessed changes.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Suffix of the name of a Service's IPv6 pool (D2).
const IPV6: &str = "-ipv6";

/// Changes that were read and not processed.
#[derive(Debug, Default)]
pub(super) struct UnreadChanges {
    /// Time at which the newest change of each Service was read, by the name of its IPv4 pool.
    newest: BTreeMap<PoolName, Now>,
    /// Time up to which all changes are processed.
    processed_until: Now,
    /// Waiting pools.
    waiting: BTreeSet<PoolId>,
}

impl UnreadChanges {
    /// Returns whether no change is unprocessed and no pool waits.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_empty() && self.waiting.is_empty()
    }

    /// Returns whether this pool has an unprocessed change.
    fn has(&self, pool: &PoolName) -> bool {
        self.newest.contains_key(pool) || ipv4(pool).is_some_and(|pool| self.newest.contains_key(&pool))
    }
}

/// Returns the name of the IPv4 pool of the Service with this IPv6 pool. If that name is also another Service's own
/// pool, it waits for both.
fn ipv4(pool: &PoolName) -> Option<PoolName> {
    pool.folded().strip_suffix(IPV6).map(PoolName::new)
}

impl Writer {
    /// Records that a change of the Service with this IPv4 pool was read.
    pub(super) fn on_unread(&mut self, now: Now, pool: PoolName, read: Now) {
        if read <= self.unread.processed_until {
            return;
        }
        if !self.lanes.is_empty() {
            let of_ipv6 = PoolName::new(format!("{}{IPV6}", pool.as_str()));
            for name in [&pool, &of_ipv6] {
                let lanes = self.lanes.iter().filter(|(_, lane)| lane.has_slot(name));
                let pools: Vec<PoolId> = lanes.map(|(lb, _)| PoolId::new(lb.clone(), name.clone())).collect();
                pools.iter().for_each(|pool| self.wait_for_unread(now, pool));
            }
        }
        self.unread.newest.insert(pool, read);
    }

    /// Records that all changes up to this time are processed and their results are with the pools.
    pub(super) fn on_read_up_to(&mut self, read: Now) {
        self.unread.processed_until = self.unread.processed_until.max(read);
        self.unread.newest.retain(|_, newest| *newest > read);
        let (unread, waiting) = (&self.unread, &self.unread.waiting);
        let ready: Vec<PoolId> = waiting.iter().filter(|pool| !unread.has(&pool.pool)).cloned().collect();
        for pool in ready {
            self.unread.waiting.remove(&pool);
            if let Some(lane) = self.lanes.get_mut(&pool.lb) {
                lane.edit(&pool.pool, Slot::end_unread_wait);
            }
            self.touch(&pool.lb);
        }
    }

    /// Delays a due pool that has unprocessed changes.
    pub(super) fn on_due_unread(&mut self, now: Now, pool: &PoolId) {
        if self.unread.has(&pool.pool) {
            self.wait_for_unread(now, pool);
        }
    }

    fn wait_for_unread(&mut self, now: Now, pool: &PoolId) {
        if let Some(lane) = self.lanes.get_mut(&pool.lb) {
            lane.edit(&pool.pool, |slot| slot.wait_for_unread(now.plus(MAX_WAIT)));
            self.unread.waiting.insert(pool.clone());
        }
        self.touch(&pool.lb);
    }
}
