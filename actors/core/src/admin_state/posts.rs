//! What is due in which pool, and what comes of it (design.md N3).
//!
//! A pool that lacks something has its admin part due at the writer, or it has failed and waits for the retry of one of
//! its nodes. What is withdrawn counts until the writer has said that nothing of it is left: a write that is under way
//! may still carry it out.

use std::collections::{BTreeMap, BTreeSet};

use super::Out;
use super::pools::{Lacks, urgency};
use crate::ids::{NodeUid, PoolId};
use crate::machine::Now;
use crate::writer::AdminDue;

/// All pools for which something is due, failed or being withdrawn.
#[derive(Debug, Default)]
pub(super) struct Posts {
    posts: BTreeMap<PoolId, Post>,
    /// The pools that each node waits for: the other side of [`Post::concerned`].
    owed: BTreeMap<NodeUid, BTreeSet<PoolId>>,
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
    /// The writer has failed to mend what the pool lacked.
    Failed(Lacks),
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

impl Posts {
    /// Nothing is due, as far as is known: another term begins.
    pub(super) fn clear(&mut self) {
        *self = Posts::default();
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
                Phase::Failed(_) => PostState::Failed,
            };
            Some((pool, state))
        })
    }

    /// Asks for what a pool lacks, or withdraws what it does not lack any more. `since` says since when that is wanted for
    /// a node.
    pub(super) fn settle(
        &mut self,
        pool: PoolId,
        lacks: Lacks,
        generation: u64,
        since: impl Fn(&NodeUid) -> Option<Now>,
        out: &mut Vec<Out>,
    ) {
        let before = self.posts.get(&pool);
        let Some(urgency) = urgency(&lacks) else {
            match before.map(|post| &post.phase) {
                Some(Phase::Due(..)) => {
                    let concerned = self.remove(&pool);
                    self.insert(pool.clone(), Phase::Withdrawing(generation), concerned);
                    out.push(Out::Withdraw(pool, generation));
                }
                Some(Phase::Failed(_)) => {
                    self.remove(&pool);
                }
                Some(Phase::Withdrawing(_)) | None => {}
            }
            return;
        };
        let is_asked = match before.map(|post| &post.phase) {
            Some(Phase::Due(due, asked)) => due.urgency == urgency && covers(asked, &lacks),
            Some(Phase::Failed(asked)) => covers(asked, &lacks),
            Some(Phase::Withdrawing(_)) | None => false,
        };
        if is_asked {
            return;
        }
        let urgent = lacks.iter().filter(|(_, of)| **of == urgency).filter_map(|(uid, _)| since(uid));
        let since =
            urgent.min().expect("the set has only nodes for which something is wanted since a moment");
        let due = AdminDue { since, generation, urgency };
        // What was asked for before may be under way: its nodes wait for this one, which ends later.
        let mut concerned = self.remove(&pool);
        concerned.extend(lacks.keys().cloned());
        self.insert(pool.clone(), Phase::Due(due, lacks), concerned);
        out.push(Out::Due(pool, due));
    }

    /// A write has carried out the set of this generation, or has found that the pool does not exist.
    pub(super) fn ended(&mut self, pool: &PoolId, generation: u64) {
        let over = self.posts.get(pool).is_some_and(|post| match &post.phase {
            Phase::Due(due, _) => due.generation <= generation,
            Phase::Withdrawing(_) => false,
            Phase::Failed(_) => true,
        });
        if over {
            self.remove(pool);
        }
    }

    /// A write for this generation has failed; gives the nodes for which nothing more is under way in this pool.
    pub(super) fn failed(&mut self, pool: &PoolId, generation: u64) -> Vec<NodeUid> {
        let Some(Post { phase: Phase::Due(due, lacks), .. }) = self.posts.get(pool) else {
            return Vec::new();
        };
        if due.generation > generation {
            return Vec::new();
        }
        let lacks = lacks.clone();
        let concerned = self.remove(pool);
        let uids = lacks.keys().cloned().collect();
        self.insert(pool.clone(), Phase::Failed(lacks), concerned);
        uids
    }

    /// Nothing is left of what was withdrawn in this generation.
    pub(super) fn withdrawn(&mut self, pool: &PoolId, generation: u64) {
        let over = self.posts.get(pool).is_some_and(|post| match &post.phase {
            Phase::Withdrawing(of) => *of <= generation,
            Phase::Due(..) | Phase::Failed(_) => false,
        });
        if over {
            self.remove(pool);
        }
    }

    /// A node is to be tried again; gives its pools that have failed, which are to be judged anew.
    pub(super) fn retry(&mut self, uid: &NodeUid) -> Vec<PoolId> {
        let pools = self.owed.get(uid).into_iter().flatten();
        let has_failed = |pool: &&PoolId| {
            self.posts.get(*pool).is_some_and(|post| match &post.phase {
                Phase::Failed(_) => true,
                Phase::Due(..) | Phase::Withdrawing(_) => false,
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
            self.owed.entry(uid.clone()).or_default().insert(pool.clone());
        }
        self.posts.insert(pool, Post { phase, concerned });
    }

    fn remove(&mut self, pool: &PoolId) -> BTreeSet<NodeUid> {
        let concerned = self.posts.remove(pool).map(|post| post.concerned).unwrap_or_default();
        for uid in &concerned {
            if let Some(pools) = self.owed.get_mut(uid) {
                pools.remove(pool);
                if pools.is_empty() {
                    self.owed.remove(uid);
                }
            }
        }
        concerned
    }

    /// The invariants: both sides of the index agree, and whatever is due or failed concerns a node.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let forward: usize = self.posts.values().map(|post| post.concerned.len()).sum();
        let back: usize = self.owed.values().map(BTreeSet::len).sum();
        rule(forward == back, "a node waits for a pool that does not know of it")?;
        rule(self.posts.values().all(|post| !post.concerned.is_empty()), "a pool is posted for nobody")
    }
}
