//! What is known of the entries of all pools, and what each pool lacks for a draining set (design.md N2, N4, D3).
//!
//! What a write has carried out counts at once; an observation whose GET began before that write ended is not believed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arm::{AdminState, Backend, PoolFacts};
use crate::discovery::LbObservation;
use crate::ids::{LbName, NodeUid, PoolId, PoolName};
use crate::machine::Now;
use crate::writer::{AdminUrgency, Draining};

/// What a pool lacks: for which nodes, and whether they are to go down or to come back.
pub type Lacks = BTreeMap<NodeUid, AdminUrgency>;

/// The more urgent of what a pool lacks; `None`: it lacks nothing.
#[must_use]
pub fn urgency(lacks: &Lacks) -> Option<AdminUrgency> {
    lacks.values().min().copied()
}

/// The pools of all managed load balancers, as far as they were seen.
#[derive(Debug, Default)]
pub struct Pools {
    pools: BTreeMap<PoolId, Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    /// As it was seen last; `None`: it was not, or it does not exist.
    facts: Option<Arc<PoolFacts>>,
    /// The states that were written since.
    written: BTreeMap<Backend, AdminState>,
    /// When the last write of it ended.
    ended: Now,
}

impl Pool {
    fn states(&self) -> impl Iterator<Item = (Backend, AdminState)> + '_ {
        let entries = self.facts.iter().flat_map(|facts| &facts.entries);
        entries.filter_map(|entry| {
            let backend = entry.backend()?;
            let state = self.written.get(&backend).copied().unwrap_or(entry.admin_state);
            Some((backend, state))
        })
    }

    /// Takes in what was seen by a GET that began at that moment; whether that is news.
    fn see(&mut self, began: Now, facts: Option<&Arc<PoolFacts>>) -> bool {
        if began < self.ended {
            return false;
        }
        let entries = |facts: Option<&Arc<PoolFacts>>| facts.map(|facts| facts.entries.clone());
        let news = !self.written.is_empty() || entries(self.facts.as_ref()) != entries(facts);
        self.facts = facts.cloned();
        self.written.clear();
        news
    }
}

impl Pools {
    /// Takes in an observation; gives the pools about which it says something new.
    pub fn observe(&mut self, seen: &LbObservation) -> BTreeSet<PoolId> {
        let facts = seen.facts.iter().flat_map(|facts| &facts.pools);
        let facts: BTreeMap<&PoolId, &Arc<PoolFacts>> = facts.map(|pool| (&pool.id, pool)).collect();
        let known = self.of(&seen.lb).cloned().collect::<Vec<PoolId>>();
        let gone = known.iter().filter(|id| !facts.contains_key(id)).map(|id| (id, None));
        let seen_now = facts.iter().map(|(id, pool)| (*id, Some(*pool)));
        let mut news = BTreeSet::new();
        for (id, facts) in gone.chain(seen_now) {
            if self.pools.entry(id.clone()).or_default().see(seen.began, facts) {
                news.insert(id.clone());
            }
        }
        self.pools.retain(|id, pool| id.lb != seen.lb || pool.facts.is_some() || seen.began < pool.ended);
        news
    }

    /// A write of this pool has ended, which carried this set out.
    pub fn carried_out(&mut self, now: Now, id: &PoolId, set: &Draining) {
        let pool = self.pools.entry(id.clone()).or_default();
        pool.ended = now;
        let wanted: Vec<(Backend, AdminState)> = pool
            .states()
            .filter_map(|(backend, state)| {
                let wanted = set.wants_of(id, &backend, state)?;
                Some((backend, wanted))
            })
            .collect();
        pool.written.extend(wanted);
    }

    /// A write of this pool has ended, and it is not there.
    pub fn absent(&mut self, now: Now, id: &PoolId) {
        self.pools.insert(id.clone(), Pool { ended: now, ..Pool::default() });
    }

    /// What a pool lacks for this set; `restores` says of which node each Down is that may be taken back.
    #[must_use]
    pub fn lacks(&self, id: &PoolId, set: &Draining, restores: &BTreeMap<Backend, NodeUid>) -> Lacks {
        let mut lacks = Lacks::new();
        if set.addresses.is_empty() && set.restorable.is_empty() {
            return lacks;
        }
        for (backend, state) in self.pools.get(id).into_iter().flat_map(Pool::states) {
            let of = match set.wants_of(id, &backend, state) {
                Some(AdminState::Down) => (set.addresses.get(&backend), AdminUrgency::Down),
                Some(AdminState::None) => (restores.get(&backend), AdminUrgency::Restore),
                Some(AdminState::Up | AdminState::Unknown) | None => continue,
            };
            if let (Some(uid), urgency) = of {
                let known = lacks.entry(uid.clone()).or_insert(urgency);
                *known = (*known).min(urgency);
            }
        }
        lacks
    }

    /// Where one of these backends is Down.
    pub fn downs<'a>(
        &'a self,
        backends: &'a BTreeSet<Backend>,
    ) -> impl Iterator<Item = (&'a PoolId, Backend)> + 'a {
        self.pools.iter().flat_map(move |(id, pool)| {
            let downs = pool.states().filter(|(_, state)| *state == AdminState::Down);
            downs.filter(|(backend, _)| backends.contains(backend)).map(move |(backend, _)| (id, backend))
        })
    }

    /// All that are known.
    pub fn ids(&self) -> impl Iterator<Item = &PoolId> {
        self.pools.keys()
    }

    fn of<'a>(&'a self, lb: &'a LbName) -> impl Iterator<Item = &'a PoolId> {
        let first = PoolId::new(lb.clone(), PoolName::new(""));
        self.pools.range(first..).map(|(id, _)| id).take_while(move |id| id.lb == *lb)
    }
}
