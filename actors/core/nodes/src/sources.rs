//! The pools that are filled from xDS sources: what these say of admin states, and what they are told of nodes (X2, N4).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{AdminState, Out};
use model::arm::Backend;
use model::ids::{NodeUid, PoolId};
use model::level::{DrainingAddresses, SourceAdminStates};
use model::load_balancers::LbObservation;

impl AdminState {
    /// The source of a pool says something else of admin states.
    pub(super) fn on_word(&mut self, pool: PoolId, word: Option<Arc<SourceAdminStates>>) {
        self.pools.say(&pool, word);
        self.nodes.word_changed(&pool, &self.pools, &mut self.records);
        self.dirty.insert(pool);
        self.changed = true;
    }

    /// Tells the Directory of whose addresses no source decides alone, if any pool has a source (X2).
    pub(super) fn tell_leaving(&mut self, out: &mut Vec<Out>) {
        if self.params.listed.is_empty() {
            return;
        }
        let address = |backend: &Backend| match backend {
            Backend::Address(ip) => Some(*ip),
            Backend::Instance(_) => None,
        };
        let leaving = DrainingAddresses {
            down: self.set.addresses.keys().filter_map(address).collect(),
            restored: self.set.restorable.iter().filter_map(address).collect(),
            outlived: self
                .nodes
                .outlived(&self.params.listed, &self.params.excluded, &self.records)
                .into_iter()
                .filter_map(|(pool, backend)| Some((pool, address(&backend)?)))
                .collect(),
        };
        if leaving != *self.leaving {
            self.leaving = Arc::new(leaving);
            out.push(Out::DrainingAddresses(Arc::clone(&self.leaving)));
        }
    }

    /// The nodes of which something is Down in a pool whose source may ask for that: it is not known, so it is not taken
    /// back yet, and they wait (X3). For what is never taken back, nothing waits.
    pub(super) fn unknown(&self) -> BTreeSet<NodeUid> {
        let of = |(pool, backend): &(PoolId, Backend)| {
            let backends = BTreeSet::from([backend.clone()]);
            let is_left = self.set.excluded.contains(&pool.pool)
                || self.set.foreign.contains(&(pool.clone(), backend.clone()));
            let is_down = self.pools.downs_in(pool, &backends).next().is_some();
            let waits = !is_left && is_down && !self.pools.has_word(pool);
            self.nodes.restores().get(backend).filter(|_| waits).cloned()
        };
        self.set.kept.iter().filter_map(of).collect()
    }

    /// What of a load balancer is ours: on one that only listed pools name these alone.
    pub(super) fn ours<'a>(&self, seen: &'a LbObservation) -> Cow<'a, LbObservation> {
        match &seen.facts {
            Some(facts) if self.params.only_listed.contains(&seen.lb) => {
                let facts = facts.only(|id| self.params.listed.contains(id));
                Cow::Owned(LbObservation { facts: Some(Arc::new(facts)), ..seen.clone() })
            }
            Some(_) | None => Cow::Borrowed(seen),
        }
    }
}
