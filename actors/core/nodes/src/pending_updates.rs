//! Due admin parts by pool, and their results (docs/design/nodes.md, N3).
//!
//! If a pool lacks something, its admin part is due at the writer, or has failed and waits for the retry of one of
//! its nodes. An update that is repeated because it failed or did not persist waits longer each time, however many
//! nodes need it (S1: no hot loop). Each pool has a back-off of its own. A withdrawn update counts until the writer
//! reports that no part of it is left in flight: such a write may still carry it out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Out;
use super::pools::{MissingAdminStates, urgency};
use mechanisms::work_queue;
use model::draining::AdminDue;
use model::ids::{NodeUid, PoolId};
use model::machine::{Now, earliest};

/// All pools with a due, failed or withdrawn update.
#[derive(Debug, Default)]
pub(super) struct PendingUpdates {
    updates: BTreeMap<PoolId, PendingUpdate>,
    /// The pools that each node waits for: the inverse of [`PendingUpdate::waiting_nodes`].
    pools_by_node: BTreeMap<NodeUid, BTreeSet<PoolId>>,
    /// The pools that each node has begun to wait for since the last [`PendingUpdates::take_added`].
    added: BTreeMap<NodeUid, BTreeSet<PoolId>>,
    /// The back-off of each pool with a request.
    backoffs: BTreeMap<PoolId, PoolBackoff>,
    /// The pools with a request for each node: the inverse of [`PoolBackoff::requested`].
    requested_by_node: BTreeMap<NodeUid, BTreeSet<PoolId>>,
    /// Nodes with an update that was carried out, and no result since.
    written: BTreeSet<NodeUid>,
    /// The updates that wait only for the back-off of their pool.
    delayed: BTreeSet<(Now, PoolId)>,
}

/// The back-off of a pool's last request.
#[derive(Debug, Default)]
struct PoolBackoff {
    /// The last request.
    requested: MissingAdminStates,
    /// Consecutive failures of the request.
    failures: u32,
    /// Number of times that it was carried out since, perhaps without persisting.
    done: u32,
    /// Earliest time of the same request.
    not_before: Now,
}

/// Number of times that the same update must have been carried out without persisting before it is reported.
const REPORT_AFTER: u32 = 3;

impl PoolBackoff {
    /// Returns whether everything in `missing` was requested before, with a result.
    fn is_repeated_by(&self, missing: &MissingAdminStates) -> bool {
        (self.failures > 0 || self.done > 0) && covers(&self.requested, missing)
    }

    /// Sets the delay after the same result, for the n-th time in a row (`times`).
    fn slow_down(&mut self, now: Now, times: u32, least: Duration, most: Duration) {
        let backoff = work_queue::Params { max_backoff: most, ..work_queue::Params::S4 };
        let wait = backoff.backoff(times.saturating_sub(1));
        self.not_before = now.plus(wait.max(least));
    }
}

#[derive(Debug)]
struct PendingUpdate {
    phase: UpdatePhase,
    /// The nodes that are not done before this update has ended.
    waiting_nodes: BTreeSet<NodeUid>,
}

#[derive(Debug)]
enum UpdatePhase {
    /// Due at the writer, for the admin states that the pool lacked at that time.
    Due(AdminDue, MissingAdminStates),
    /// Withdrawn at the writer, as of this generation.
    Withdrawing(u64),
    /// Failed. No node has asked for another try yet.
    Failed(MissingAdminStates),
    /// Will be requested again at this time, because it failed or did not persist.
    Paced(Now, MissingAdminStates),
}

/// The state of a node's update in a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum UpdateState {
    /// The writer works on it.
    Waiting,
    /// The last try failed, and another one follows.
    Failed,
}

/// Returns whether everything that a pool lacks was requested.
fn covers(requested: &MissingAdminStates, missing: &MissingAdminStates) -> bool {
    missing.iter().all(|(uid, urgency)| requested.get(uid) == Some(urgency))
}

/// Removes a pool from the index of a node.
fn drop_from(index: &mut BTreeMap<NodeUid, BTreeSet<PoolId>>, uid: &NodeUid, pool: &PoolId) {
    if let Some(pools) = index.get_mut(uid) {
        pools.remove(pool);
        if pools.is_empty() {
            index.remove(uid);
        }
    }
}

impl PendingUpdates {
    /// Drops everything at the start of a term.
    pub(super) fn clear(&mut self) {
        *self = PendingUpdates::default();
    }

    /// Returns the pools that nodes have begun to wait for since the last call. Some may be done already.
    pub(super) fn take_added(&mut self) -> BTreeMap<NodeUid, BTreeSet<PoolId>> {
        std::mem::take(&mut self.added)
    }

    /// Returns whether a node waits for any pool.
    pub(super) fn has_updates_for(&self, uid: &NodeUid) -> bool {
        self.pools_by_node.contains_key(uid)
    }

    /// Returns the pools that a node waits for.
    pub(super) fn of(&self, uid: &NodeUid) -> impl Iterator<Item = (&PoolId, UpdateState)> {
        let pools = self.pools_by_node.get(uid).into_iter().flatten();
        pools.filter_map(|pool| {
            let state = match self.updates.get(pool)?.phase {
                UpdatePhase::Due(..) | UpdatePhase::Withdrawing(_) => UpdateState::Waiting,
                UpdatePhase::Failed(_) | UpdatePhase::Paced(..) => UpdateState::Failed,
            };
            Some((pool, state))
        })
    }

    /// Returns the earliest time of a repeated request for a node, among its pools that wait only for their back-off.
    pub(super) fn retry_at(&self, uid: &NodeUid) -> Option<Now> {
        let pools = self.pools_by_node.get(uid).into_iter().flatten();
        let at = |pool: &PoolId| match self.updates.get(pool)?.phase {
            UpdatePhase::Paced(at, _) => Some(at),
            UpdatePhase::Due(..) | UpdatePhase::Withdrawing(_) | UpdatePhase::Failed(_) => None,
        };
        pools.map(at).fold(None, earliest)
    }

    /// Returns the time of the next repeated request.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// Takes the pools whose back-off is over, to evaluate them again.
    pub(super) fn wake(&mut self, now: Now) -> Vec<PoolId> {
        let mut woken = Vec::new();
        while let Some((_, pool)) = self.delayed.first().filter(|(at, _)| *at <= now).cloned() {
            self.remove(&pool);
            woken.push(pool);
        }
        woken
    }

    /// Takes whether an update for a node was carried out since its last result.
    pub(super) fn take_written(&mut self, uid: &NodeUid) -> bool {
        self.written.remove(uid)
    }

    /// Resets the back-off for a node that is done or has a new target.
    pub(super) fn reset_backoff(&mut self, uid: &NodeUid) {
        for pool in self.requested_by_node.remove(uid).into_iter().flatten() {
            let Some(backoff) = self.backoffs.get_mut(&pool) else { continue };
            backoff.requested.remove(uid);
            if backoff.requested.is_empty() {
                self.backoffs.remove(&pool);
            }
        }
    }

    /// Requests the admin states that a pool lacks, or withdraws the request if it lacks none any more. `since`
    /// returns the time since which a node's target is unchanged. Returns the nodes whose update was carried out
    /// again and again without persisting.
    pub(super) fn request(
        &mut self,
        now: Now,
        pool: PoolId,
        missing: MissingAdminStates,
        generation: u64,
        since: impl Fn(&NodeUid) -> Option<Now>,
        out: &mut Vec<Out>,
    ) -> Vec<NodeUid> {
        let before = self.updates.get(&pool);
        let Some(urgency) = urgency(&missing) else {
            match before.map(|update| &update.phase) {
                Some(UpdatePhase::Due(..)) => {
                    let waiting_nodes = self.remove(&pool);
                    self.insert(pool.clone(), UpdatePhase::Withdrawing(generation), waiting_nodes);
                    out.push(Out::Due(pool, None));
                }
                Some(UpdatePhase::Failed(_) | UpdatePhase::Paced(..)) => {
                    self.remove(&pool);
                }
                Some(UpdatePhase::Withdrawing(_)) | None => {}
            }
            return Vec::new();
        };
        let is_asked = match before.map(|update| &update.phase) {
            Some(UpdatePhase::Due(due, requested)) => due.urgency == urgency && covers(requested, &missing),
            Some(UpdatePhase::Failed(requested) | UpdatePhase::Paced(_, requested)) => {
                covers(requested, &missing)
            }
            Some(UpdatePhase::Withdrawing(_)) | None => false,
        };
        if is_asked {
            return Vec::new();
        }
        let backoff = self.backoffs.entry(pool.clone()).or_default();
        let again = backoff.is_repeated_by(&missing);
        if again && now < backoff.not_before {
            let (at, unpersisted) =
                (backoff.not_before, backoff.failures == 0 && backoff.done >= REPORT_AFTER);
            let unpersisted_nodes = if unpersisted { missing.keys().cloned().collect() } else { Vec::new() };
            let mut waiting_nodes = self.remove(&pool);
            waiting_nodes.extend(missing.keys().cloned());
            self.insert(pool, UpdatePhase::Paced(at, missing), waiting_nodes);
            return unpersisted_nodes;
        }
        if !again {
            let before = std::mem::replace(
                backoff,
                PoolBackoff { requested: missing.clone(), ..PoolBackoff::default() },
            );
            for uid in before.requested.keys().filter(|uid| !missing.contains_key(*uid)) {
                drop_from(&mut self.requested_by_node, uid, &pool);
            }
            for uid in missing.keys() {
                self.requested_by_node.entry(uid.clone()).or_default().insert(pool.clone());
            }
        }
        let urgent = missing.iter().filter(|(_, of)| **of == urgency).filter_map(|(uid, _)| since(uid));
        let since =
            urgent.min().expect("the set has only nodes for which something is wanted since a moment");
        let due = AdminDue { since, generation, urgency, again };
        // The previous request may be in flight. Its nodes wait for this one, which ends later.
        let mut waiting_nodes = self.remove(&pool);
        waiting_nodes.extend(missing.keys().cloned());
        self.insert(pool.clone(), UpdatePhase::Due(due, missing), waiting_nodes);
        out.push(Out::Due(pool, Some(due)));
        Vec::new()
    }

    /// Applies a write that carried out the set of this generation, or found the pool absent. The same request is
    /// delayed, by up to `most`.
    pub(super) fn ended(&mut self, now: Now, pool: &PoolId, generation: u64, most: Duration) {
        let requested = self.updates.get(pool).and_then(|update| match &update.phase {
            UpdatePhase::Due(due, lacks) => (due.generation <= generation).then_some(lacks),
            UpdatePhase::Withdrawing(_) => None,
            UpdatePhase::Failed(lacks) | UpdatePhase::Paced(_, lacks) => Some(lacks),
        });
        if let Some(lacks) = requested {
            self.written.extend(lacks.keys().cloned());
            self.remove(pool);
            if let Some(backoff) = self.backoffs.get_mut(pool) {
                backoff.failures = 0;
                backoff.done = backoff.done.saturating_add(1);
                backoff.slow_down(now, backoff.done, Duration::ZERO, most);
            }
        }
    }

    /// Applies a failed write for this generation. Returns the nodes without an update in flight in this pool. The
    /// same request is delayed by at least `least`, and longer each time, up to `most`.
    pub(super) fn failed(
        &mut self,
        now: Now,
        pool: &PoolId,
        generation: u64,
        (least, most): (Duration, Duration),
    ) -> Vec<NodeUid> {
        let Some(PendingUpdate { phase: UpdatePhase::Due(due, missing), .. }) = self.updates.get(pool) else {
            return Vec::new();
        };
        if due.generation > generation {
            return Vec::new();
        }
        let missing = missing.clone();
        let waiting_nodes = self.remove(pool);
        let uids = missing.keys().cloned().collect();
        let backoff = self.backoffs.entry(pool.clone()).or_default();
        backoff.failures = backoff.failures.saturating_add(1);
        backoff.slow_down(now, backoff.failures, least, most);
        self.insert(pool.clone(), UpdatePhase::Failed(missing), waiting_nodes);
        uids
    }

    /// Applies the writer's answer that nothing withdrawn in this generation is left.
    pub(super) fn withdrawn(&mut self, pool: &PoolId, generation: u64) {
        let over = self.updates.get(pool).is_some_and(|update| match &update.phase {
            UpdatePhase::Withdrawing(of) => *of <= generation,
            UpdatePhase::Due(..) | UpdatePhase::Failed(_) | UpdatePhase::Paced(..) => false,
        });
        if over {
            self.remove(pool);
        }
    }

    /// Retries a node. Returns its pools with failed updates, to evaluate them again.
    pub(super) fn retry(&mut self, uid: &NodeUid) -> Vec<PoolId> {
        let pools = self.pools_by_node.get(uid).into_iter().flatten();
        let has_failed = |pool: &&PoolId| {
            self.updates.get(*pool).is_some_and(|update| match &update.phase {
                UpdatePhase::Failed(_) => true,
                UpdatePhase::Due(..) | UpdatePhase::Withdrawing(_) | UpdatePhase::Paced(..) => false,
            })
        };
        let failed: Vec<PoolId> = pools.filter(has_failed).cloned().collect();
        for pool in &failed {
            self.remove(pool);
        }
        failed
    }

    fn insert(&mut self, pool: PoolId, phase: UpdatePhase, waiting_nodes: BTreeSet<NodeUid>) {
        for uid in &waiting_nodes {
            if self.pools_by_node.entry(uid.clone()).or_default().insert(pool.clone()) {
                self.added.entry(uid.clone()).or_default().insert(pool.clone());
            }
        }
        match phase {
            UpdatePhase::Paced(at, _) => {
                self.delayed.insert((at, pool.clone()));
            }
            UpdatePhase::Due(..) | UpdatePhase::Withdrawing(_) | UpdatePhase::Failed(_) => {}
        }
        self.updates.insert(pool, PendingUpdate { phase, waiting_nodes });
    }

    fn remove(&mut self, pool: &PoolId) -> BTreeSet<NodeUid> {
        let Some(PendingUpdate { phase, waiting_nodes }) = self.updates.remove(pool) else {
            return BTreeSet::new();
        };
        match phase {
            UpdatePhase::Paced(at, _) => {
                self.delayed.remove(&(at, pool.clone()));
            }
            UpdatePhase::Due(..) | UpdatePhase::Withdrawing(_) | UpdatePhase::Failed(_) => {}
        }
        for uid in &waiting_nodes {
            drop_from(&mut self.pools_by_node, uid, pool);
        }
        waiting_nodes
    }

    /// Checks that both sides of the indexes agree, and that each update has a node.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let forward: usize = self.updates.values().map(|update| update.waiting_nodes.len()).sum();
        let back: usize = self.pools_by_node.values().map(BTreeSet::len).sum();
        rule(forward == back, "a node waits for a pool that does not know of it")?;
        rule(
            self.updates.values().all(|update| !update.waiting_nodes.is_empty()),
            "a pool is posted for no node",
        )?;
        let forward: usize = self.backoffs.values().map(|backoff| backoff.requested.len()).sum();
        let back: usize = self.requested_by_node.values().map(BTreeSet::len).sum();
        rule(forward == back, "the index of paces by node is incomplete")?;
        let is_paced = |(at, pool): &(Now, PoolId)| {
            self.updates.get(pool).is_some_and(|update| match update.phase {
                UpdatePhase::Paced(until, _) => until == *at,
                UpdatePhase::Due(..) | UpdatePhase::Withdrawing(_) | UpdatePhase::Failed(_) => false,
            })
        };
        rule(self.delayed.iter().all(is_paced), "a pool has its turn that waits for none")
    }
}
