//! Due admin parts by pool, and their results (docs/design/nodes.md, N3).
//!
//! If a pool lacks something, its admin part is due at the writer, or has failed and waits for the retry of one of
//! its nodes. An update that is repeated because it failed or did not persist waits longer each time, however many
//! nodes need it (S1: no hot loop). Each pool has a back-off of its own. A withdrawn update counts until the writer
//! reports that nothing of it is left: a write in flight may still carry it out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Out;
use super::pools::{Lacks, urgency};
use mechanisms::work_queue;
use model::draining::AdminDue;
use model::ids::{NodeUid, PoolId};
use model::machine::{Now, earliest};

/// All pools with a due, failed or withdrawn update.
#[derive(Debug, Default)]
pub(super) struct PendingUpdates {
    posts: BTreeMap<PoolId, Post>,
    /// The pools that each node waits for: the inverse of [`PendingUpdate::waiting_nodes`].
    owed: BTreeMap<NodeUid, BTreeSet<PoolId>>,
    /// The pools that each node has begun to wait for since the last [`PendingUpdates::take_added`].
    news: BTreeMap<NodeUid, BTreeSet<PoolId>>,
    /// The back-off of each pool with a request.
    paces: BTreeMap<PoolId, Pace>,
    /// The pools with a request for each node: the inverse of [`PoolBackoff::requested`].
    paced: BTreeMap<NodeUid, BTreeSet<PoolId>>,
    /// The updates that wait only for the back-off of their pool.
    timed: BTreeSet<(Now, PoolId)>,
}

/// The back-off of a pool's last request.
#[derive(Debug, Default)]
struct Pace {
    /// The last request.
    asked: Lacks,
    /// Consecutive failures of the request.
    failures: u32,
    /// Number of times that it was carried out since, perhaps without persisting.
    done: u32,
    /// Earliest time of the same request.
    not_before: Now,
}

/// Number of times that the same update must have been carried out without persisting before it is reported.
const TOLD_AFTER: u32 = 3;

impl Pace {
    /// Whether this, or more, was requested before with a result.
    fn is_repeated_by(&self, lacks: &Lacks) -> bool {
        (self.failures > 0 || self.done > 0) && covers(&self.asked, lacks)
    }

    /// Sets the delay after the same result, for the n-th time in a row (`times`).
    fn slow_down(&mut self, now: Now, times: u32, least: Duration, most: Duration) {
        let pace = work_queue::Params { max_backoff: most, ..work_queue::Params::S4 };
        let wait = pace.backoff(times.saturating_sub(1));
        self.not_before = now.plus(wait.max(least));
    }
}

#[derive(Debug)]
struct Post {
    phase: Phase,
    /// The nodes that are not done before this update has ended.
    concerned: BTreeSet<NodeUid>,
}

#[derive(Debug)]
enum Phase {
    /// Due at the writer, for what the pool lacked then.
    Due(AdminDue, Lacks),
    /// Withdrawn at the writer, as of this generation.
    Withdrawing(u64),
    /// Failed. No node has asked for another try yet.
    Failed(Lacks),
    /// Will be requested again at this time, because it failed or did not persist.
    Paced(Now, Lacks),
}

/// The state of a node's update in a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PostState {
    /// The writer works on it.
    Waiting,
    /// The last try failed, and another one follows.
    Failed,
}

/// Whether everything that a pool lacks was requested.
fn covers(asked: &Lacks, lacks: &Lacks) -> bool {
    lacks.iter().all(|(uid, urgency)| asked.get(uid) == Some(urgency))
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

    /// The pools that nodes have begun to wait for since the last call. Some may be done already.
    pub(super) fn take_news(&mut self) -> BTreeMap<NodeUid, BTreeSet<PoolId>> {
        std::mem::take(&mut self.news)
    }

    /// Whether a node waits for any pool.
    pub(super) fn concern(&self, uid: &NodeUid) -> bool {
        self.owed.contains_key(uid)
    }

    /// The pools that a node waits for.
    pub(super) fn of(&self, uid: &NodeUid) -> impl Iterator<Item = (&PoolId, PostState)> {
        let pools = self.owed.get(uid).into_iter().flatten();
        pools.filter_map(|pool| {
            let state = match self.posts.get(pool)?.phase {
                Phase::Due(..) | Phase::Withdrawing(_) => PostState::Waiting,
                Phase::Failed(_) | Phase::Paced(..) => PostState::Failed,
            };
            Some((pool, state))
        })
    }

    /// Earliest time of a repeated request for a node, among its pools that wait only for their back-off.
    pub(super) fn again_at(&self, uid: &NodeUid) -> Option<Now> {
        let pools = self.owed.get(uid).into_iter().flatten();
        let at = |pool: &PoolId| match self.posts.get(pool)?.phase {
            Phase::Paced(at, _) => Some(at),
            Phase::Due(..) | Phase::Withdrawing(_) | Phase::Failed(_) => None,
        };
        pools.map(at).fold(None, earliest)
    }

    /// Time of the next repeated request.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.timed.first().map(|(at, _)| *at)
    }

    /// Takes the pools whose back-off is over, to evaluate them again.
    pub(super) fn wake(&mut self, now: Now) -> Vec<PoolId> {
        let mut woken = Vec::new();
        while let Some((_, pool)) = self.timed.first().filter(|(at, _)| *at <= now).cloned() {
            self.remove(&pool);
            woken.push(pool);
        }
        woken
    }

    /// Resets the back-off for a node that is done or has a new target.
    pub(super) fn rest(&mut self, uid: &NodeUid) {
        for pool in self.paced.remove(uid).into_iter().flatten() {
            let Some(pace) = self.paces.get_mut(&pool) else { continue };
            pace.asked.remove(uid);
            if pace.asked.is_empty() {
                self.paces.remove(&pool);
            }
        }
    }

    /// Requests what a pool lacks, or withdraws what it does not lack any more. `since` returns the time since which
    /// a node's target is unchanged. Returns the nodes whose update was carried out again and again without
    /// persisting.
    pub(super) fn settle(
        &mut self,
        now: Now,
        pool: PoolId,
        lacks: Lacks,
        generation: u64,
        since: impl Fn(&NodeUid) -> Option<Now>,
        out: &mut Vec<Out>,
    ) -> Vec<NodeUid> {
        let before = self.posts.get(&pool);
        let Some(urgency) = urgency(&lacks) else {
            match before.map(|post| &post.phase) {
                Some(Phase::Due(..)) => {
                    let concerned = self.remove(&pool);
                    self.insert(pool.clone(), Phase::Withdrawing(generation), concerned);
                    out.push(Out::Withdraw(pool, generation));
                }
                Some(Phase::Failed(_) | Phase::Paced(..)) => {
                    self.remove(&pool);
                }
                Some(Phase::Withdrawing(_)) | None => {}
            }
            return Vec::new();
        };
        let is_asked = match before.map(|post| &post.phase) {
            Some(Phase::Due(due, asked)) => due.urgency == urgency && covers(asked, &lacks),
            Some(Phase::Failed(asked) | Phase::Paced(_, asked)) => covers(asked, &lacks),
            Some(Phase::Withdrawing(_)) | None => false,
        };
        if is_asked {
            return Vec::new();
        }
        let pace = self.paces.entry(pool.clone()).or_default();
        let again = pace.is_repeated_by(&lacks);
        if again && now < pace.not_before {
            let (at, undone) = (pace.not_before, pace.failures == 0 && pace.done >= TOLD_AFTER);
            let told = if undone { lacks.keys().cloned().collect() } else { Vec::new() };
            let mut concerned = self.remove(&pool);
            concerned.extend(lacks.keys().cloned());
            self.insert(pool, Phase::Paced(at, lacks), concerned);
            return told;
        }
        if !again {
            let before = std::mem::replace(pace, Pace { asked: lacks.clone(), ..Pace::default() });
            for uid in before.asked.keys().filter(|uid| !lacks.contains_key(*uid)) {
                drop_from(&mut self.paced, uid, &pool);
            }
            for uid in lacks.keys() {
                self.paced.entry(uid.clone()).or_default().insert(pool.clone());
            }
        }
        let urgent = lacks.iter().filter(|(_, of)| **of == urgency).filter_map(|(uid, _)| since(uid));
        let since =
            urgent.min().expect("the set has only nodes for which something is wanted since a moment");
        let due = AdminDue { since, generation, urgency, again };
        // The previous request may be in flight. Its nodes wait for this one, which ends later.
        let mut concerned = self.remove(&pool);
        concerned.extend(lacks.keys().cloned());
        self.insert(pool.clone(), Phase::Due(due, lacks), concerned);
        out.push(Out::Due(pool, due));
        Vec::new()
    }

    /// Applies a write that carried out the set of this generation, or found the pool absent. The same request is
    /// delayed, by up to `most`.
    pub(super) fn ended(&mut self, now: Now, pool: &PoolId, generation: u64, most: Duration) {
        let over = self.posts.get(pool).is_some_and(|post| match &post.phase {
            Phase::Due(due, _) => due.generation <= generation,
            Phase::Withdrawing(_) => false,
            Phase::Failed(_) | Phase::Paced(..) => true,
        });
        if over {
            self.remove(pool);
            if let Some(pace) = self.paces.get_mut(pool) {
                pace.failures = 0;
                pace.done = pace.done.saturating_add(1);
                pace.slow_down(now, pace.done, Duration::ZERO, most);
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
        let Some(Post { phase: Phase::Due(due, lacks), .. }) = self.posts.get(pool) else {
            return Vec::new();
        };
        if due.generation > generation {
            return Vec::new();
        }
        let lacks = lacks.clone();
        let concerned = self.remove(pool);
        let uids = lacks.keys().cloned().collect();
        let pace = self.paces.entry(pool.clone()).or_default();
        pace.failures = pace.failures.saturating_add(1);
        pace.slow_down(now, pace.failures, least, most);
        self.insert(pool.clone(), Phase::Failed(lacks), concerned);
        uids
    }

    /// Applies the writer's answer that nothing withdrawn in this generation is left.
    pub(super) fn withdrawn(&mut self, pool: &PoolId, generation: u64) {
        let over = self.posts.get(pool).is_some_and(|post| match &post.phase {
            Phase::Withdrawing(of) => *of <= generation,
            Phase::Due(..) | Phase::Failed(_) | Phase::Paced(..) => false,
        });
        if over {
            self.remove(pool);
        }
    }

    /// Retries a node. Returns its pools with failed updates, to evaluate them again.
    pub(super) fn retry(&mut self, uid: &NodeUid) -> Vec<PoolId> {
        let pools = self.owed.get(uid).into_iter().flatten();
        let has_failed = |pool: &&PoolId| {
            self.posts.get(*pool).is_some_and(|post| match &post.phase {
                Phase::Failed(_) => true,
                Phase::Due(..) | Phase::Withdrawing(_) | Phase::Paced(..) => false,
            })
        };
        let failed: Vec<PoolId> = pools.filter(has_failed).cloned().collect();
        for pool in &failed {
            self.remove(pool);
        }
        failed
    }

    fn insert(&mut self, pool: PoolId, phase: Phase, concerned: BTreeSet<NodeUid>) {
        for uid in &concerned {
            if self.owed.entry(uid.clone()).or_default().insert(pool.clone()) {
                self.news.entry(uid.clone()).or_default().insert(pool.clone());
            }
        }
        match phase {
            Phase::Paced(at, _) => {
                self.timed.insert((at, pool.clone()));
            }
            Phase::Due(..) | Phase::Withdrawing(_) | Phase::Failed(_) => {}
        }
        self.posts.insert(pool, Post { phase, concerned });
    }

    fn remove(&mut self, pool: &PoolId) -> BTreeSet<NodeUid> {
        let Some(Post { phase, concerned }) = self.posts.remove(pool) else { return BTreeSet::new() };
        match phase {
            Phase::Paced(at, _) => {
                self.timed.remove(&(at, pool.clone()));
            }
            Phase::Due(..) | Phase::Withdrawing(_) | Phase::Failed(_) => {}
        }
        for uid in &concerned {
            drop_from(&mut self.owed, uid, pool);
        }
        concerned
    }

    /// Checks that both sides of the indexes agree, and that each update has a node.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let forward: usize = self.posts.values().map(|post| post.concerned.len()).sum();
        let back: usize = self.owed.values().map(BTreeSet::len).sum();
        rule(forward == back, "a node waits for a pool that does not know of it")?;
        rule(self.posts.values().all(|post| !post.concerned.is_empty()), "a pool is posted for no node")?;
        let forward: usize = self.paces.values().map(|pace| pace.asked.len()).sum();
        let back: usize = self.paced.values().map(BTreeSet::len).sum();
        rule(forward == back, "the index of paces by node is incomplete")?;
        let is_paced = |(at, pool): &(Now, PoolId)| {
            self.posts.get(pool).is_some_and(|post| match post.phase {
                Phase::Paced(until, _) => until == *at,
                Phase::Due(..) | Phase::Withdrawing(_) | Phase::Failed(_) => false,
            })
        };
        rule(self.timed.iter().all(is_paced), "a pool has its turn that waits for none")
    }
}
