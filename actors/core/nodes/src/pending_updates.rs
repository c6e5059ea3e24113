//! What is due in which pool, and what comes of it (docs/design/nodes.md, N3).
//!
//! A pool that lacks something has its admin part due at the writer, or it has failed and waits for the retry of one of
//! its nodes. What is asked for again, because it has failed or did not last, waits longer each time, however many nodes
//! ask (S1: no hot loop): the pace of a pool is its own. What is withdrawn counts until the writer has said that nothing
//! of it is left: a write that is under way may still carry it out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::Out;
use super::pools::{Lacks, urgency};
use mechanisms::work_queue;
use model::draining::AdminDue;
use model::ids::{NodeUid, PoolId};
use model::machine::{Now, earliest};

/// All pools for which something is due, failed or being withdrawn.
#[derive(Debug, Default)]
pub(super) struct PendingUpdates {
    posts: BTreeMap<PoolId, Post>,
    /// The pools that each node waits for: the other side of [`Post::concerned`].
    owed: BTreeMap<NodeUid, BTreeSet<PoolId>>,
    /// The pools for which each node has begun to wait since the last [`PendingUpdates::take_news`].
    news: BTreeMap<NodeUid, BTreeSet<PoolId>>,
    /// How pools go on that were asked for something.
    paces: BTreeMap<PoolId, Pace>,
    /// The pools in which something was requested for each node: the inverse of [`Pace::asked`].
    paced: BTreeMap<NodeUid, BTreeSet<PoolId>>,
    /// The posts that wait for their pools' pace alone.
    timed: BTreeSet<(Now, PoolId)>,
}

/// How a pool goes on with what it was asked for last.
#[derive(Debug, Default)]
struct Pace {
    /// What was asked for.
    asked: Lacks,
    /// How often that has failed in a row.
    failures: u32,
    /// How often it was carried out since, and may not have lasted.
    done: u32,
    /// The same is not asked for again before.
    not_before: Now,
}

/// So often the same must have been carried out, and not have lasted, before operators are told.
const TOLD_AFTER: u32 = 3;

impl Pace {
    /// Whether this, or more than this, was asked for before, and something has come of it.
    fn is_repeated_by(&self, lacks: &Lacks) -> bool {
        (self.failures > 0 || self.done > 0) && covers(&self.asked, lacks)
    }

    /// Its result is the same for the n-th time in a row (`times`).
    fn slow_down(&mut self, now: Now, times: u32, least: Duration, most: Duration) {
        let pace = work_queue::Params { max_backoff: most, ..work_queue::Params::S4 };
        let wait = pace.backoff(times.saturating_sub(1));
        self.not_before = now.plus(wait.max(least));
    }
}

#[derive(Debug)]
struct Post {
    phase: Phase,
    /// The nodes that are not done before this has ended.
    concerned: BTreeSet<NodeUid>,
}

#[derive(Debug)]
enum Phase {
    /// The writer was told that this is due, for what the pool lacked then.
    Due(AdminDue, Lacks),
    /// The writer was told that nothing is due any more, as of this generation.
    Withdrawing(u64),
    /// The writer has failed to mend what the pool lacked, and no node has asked for another try yet.
    Failed(Lacks),
    /// It is asked for again at that moment: it has failed before, or did not last.
    Paced(Now, Lacks),
}

/// What a node waits for in a pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum PostState {
    /// The writer's work.
    Waiting,
    /// Another try: the last one has failed.
    Failed,
}

/// Whether all that a pool lacks was asked for.
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
    /// Nothing is due, as far as is known: another term begins.
    pub(super) fn clear(&mut self) {
        *self = PendingUpdates::default();
    }

    /// The pools for which nodes have begun to wait since the last call. Some may be done already.
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

    /// When the first of the pools that a node waits for is asked again, of those that wait for their pace alone.
    pub(super) fn again_at(&self, uid: &NodeUid) -> Option<Now> {
        let pools = self.owed.get(uid).into_iter().flatten();
        let at = |pool: &PoolId| match self.posts.get(pool)?.phase {
            Phase::Paced(at, _) => Some(at),
            Phase::Due(..) | Phase::Withdrawing(_) | Phase::Failed(_) => None,
        };
        pools.map(at).fold(None, earliest)
    }

    /// When the first pool is asked again.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.timed.first().map(|(at, _)| *at)
    }

    /// Gives the pools that may be asked again, which are to be judged again.
    pub(super) fn wake(&mut self, now: Now) -> Vec<PoolId> {
        let mut woken = Vec::new();
        while let Some((_, pool)) = self.timed.first().filter(|(at, _)| *at <= now).cloned() {
            self.remove(&pool);
            woken.push(pool);
        }
        woken
    }

    /// A node is right everywhere, or nothing more is wanted for it: what comes next is new.
    pub(super) fn rest(&mut self, uid: &NodeUid) {
        for pool in self.paced.remove(uid).into_iter().flatten() {
            let Some(pace) = self.paces.get_mut(&pool) else { continue };
            pace.asked.remove(uid);
            if pace.asked.is_empty() {
                self.paces.remove(&pool);
            }
        }
    }

    /// Asks for what a pool lacks, or withdraws what it does not lack any more. `since` says since when that is wanted for
    /// a node. Gives the nodes for which the same was carried out again and again, and does not last.
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
        // What was asked for before may be under way: its nodes wait for this one, which ends later.
        let mut concerned = self.remove(&pool);
        concerned.extend(lacks.keys().cloned());
        self.insert(pool.clone(), Phase::Due(due, lacks), concerned);
        out.push(Out::Due(pool, due));
        Vec::new()
    }

    /// A write has carried out the set of this generation, or has found that the pool does not exist. The same is not
    /// asked for again at once, and not more often than each `most` in the end.
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

    /// A write for this generation has failed; gives the nodes for which nothing more is under way in this pool. Another
    /// try of the same waits for `least` at least, and longer each time, up to `most`.
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

    /// Nothing is left of what was withdrawn in this generation.
    pub(super) fn withdrawn(&mut self, pool: &PoolId, generation: u64) {
        let over = self.posts.get(pool).is_some_and(|post| match &post.phase {
            Phase::Withdrawing(of) => *of <= generation,
            Phase::Due(..) | Phase::Failed(_) | Phase::Paced(..) => false,
        });
        if over {
            self.remove(pool);
        }
    }

    /// A node is to be tried again; gives its pools that have failed, which are to be judged again.
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

    /// The invariants: both sides of the index agree, and whatever is due or failed concerns a node.
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
