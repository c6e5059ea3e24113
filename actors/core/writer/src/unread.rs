//! Pools with unread changes: of a Service of theirs something was read from the API server that is not taken in yet. A
//! level that the pool would bring now is superseded already, so it is not granted before that (docs/design/pools.md,
//! Q2).
//!
//! What was read is told here at once, and what was taken in behind all assignments that rest on it. A pool waits for a
//! change that it has not heard of for two seconds at most: a Service that changes all the time is written all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::ids::{PoolId, PoolName};
use model::machine::Now;

use super::Writer;
use super::slot::Slot;

/// How long a pool that is due waits for changes that were read and not taken in.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// What the name of a Service's pool for IPv6 has more than that of its pool for IPv4 (D2).
const IPV6: &str = "-ipv6";

/// The changes that were read and not taken in.
#[derive(Debug, Default)]
pub(super) struct UnreadChanges {
    /// When the newest change of each Service was read, by the name of its pool for IPv4.
    newest: BTreeMap<PoolName, Now>,
    /// Until when all that was read was taken in.
    taken_in: Now,
    /// The pools that wait.
    waiting: BTreeSet<PoolId>,
}

impl UnreadChanges {
    /// Whether there are none, and none is waited for.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_empty() && self.waiting.is_empty()
    }

    /// Whether this pool has any.
    fn has(&self, pool: &PoolName) -> bool {
        self.newest.contains_key(pool) || ipv4(pool).is_some_and(|pool| self.newest.contains_key(&pool))
    }
}

/// The name of the pool for IPv4 of a Service whose pool for IPv6 this is. Where it is another Service's own, that one
/// waits for both.
fn ipv4(pool: &PoolName) -> Option<PoolName> {
    pool.folded().strip_suffix(IPV6).map(PoolName::new)
}

impl Writer {
    /// A change of a Service was read, whose pool for IPv4 has this name.
    pub(super) fn on_unread(&mut self, now: Now, pool: PoolName, read: Now) {
        if read <= self.unread.taken_in {
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

    /// All that was read until this moment was taken in, and pools have been told what follows from it.
    pub(super) fn on_read_up_to(&mut self, read: Now) {
        self.unread.taken_in = self.unread.taken_in.max(read);
        self.unread.newest.retain(|_, newest| *newest > read);
        let (unread, waiting) = (&self.unread, &self.unread.waiting);
        let go_on: Vec<PoolId> = waiting.iter().filter(|pool| !unread.has(&pool.pool)).cloned().collect();
        for pool in go_on {
            self.unread.waiting.remove(&pool);
            if let Some(lane) = self.lanes.get_mut(&pool.lb) {
                lane.edit(&pool.pool, Slot::all_is_read);
            }
            self.touch(&pool.lb);
        }
    }

    /// A pool is due: it waits if it has unread changes.
    pub(super) fn on_due_unread(&mut self, now: Now, pool: &PoolId) {
        if self.unread.has(&pool.pool) {
            self.wait_for_unread(now, pool);
        }
    }

    fn wait_for_unread(&mut self, now: Now, pool: &PoolId) {
        if let Some(lane) = self.lanes.get_mut(&pool.lb) {
            lane.edit(&pool.pool, |slot| slot.wait_for_unread(now.plus(LONGEST_WAIT)));
            self.unread.waiting.insert(pool.clone());
        }
        self.touch(&pool.lb);
    }
}
