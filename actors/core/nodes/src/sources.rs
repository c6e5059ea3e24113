//! The pools that are filled from xDS sources: the admin states that the sources set, and the addresses whose admin
//! state depends on nodes too (X2, N4).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::{AdminState, Out};
use model::arm::Backend;
use model::ids::{NodeUid, PoolId};
use model::level::{DrainingAddresses, SourceAdminStates};
use model::load_balancers::LbObservation;

impl AdminState {
    /// Applies the admin states that the source of a pool sets.
    pub(super) fn on_source_admin_states(&mut self, pool: PoolId, states: Option<Arc<SourceAdminStates>>) {
        self.pools.set_source_states(&pool, states);
        self.nodes.source_changed(&pool, &self.pools, &mut self.records);
        self.dirty.insert(pool);
        self.changed = true;
    }

    /// Sends the addresses whose admin state depends on nodes to the Directory, if any pool has a source (X2).
    pub(super) fn send_draining_addresses(&mut self, out: &mut Vec<Out>) {
        if self.params.listed.is_empty() {
            return;
        }
        let address = |backend: &Backend| match backend {
            Backend::Address(ip) => Some(*ip),
            Backend::Instance(_) => None,
        };
        let draining_addresses = DrainingAddresses {
            down: self.set.addresses.keys().filter_map(address).collect(),
            restored: self.set.restorable.iter().filter_map(address).collect(),
            outlived: self
                .nodes
                .outlived(&self.params.listed, &self.params.excluded, &self.records)
                .into_iter()
                .filter_map(|(pool, backend)| Some((pool, address(&backend)?)))
                .collect(),
        };
        if draining_addresses != *self.draining_addresses {
            self.draining_addresses = Arc::new(draining_addresses);
            out.push(Out::DrainingAddresses(Arc::clone(&self.draining_addresses)));
        }
    }

    /// Returns the nodes with a Down in a pool whose source may require it. The source is not known, so that the Down
    /// stays, and the nodes wait (X3). No node waits for a Down that is never restored.
    pub(super) fn unknown(&self) -> BTreeSet<NodeUid> {
        let of = |(pool, backend): &(PoolId, Backend)| {
            let backends = BTreeSet::from([backend.clone()]);
            let is_left = self.set.excluded.contains(&pool.pool)
                || self.set.foreign.contains(&(pool.clone(), backend.clone()));
            let is_down = self.pools.downs_in(pool, &backends).next().is_some();
            let waits = !is_left && is_down && !self.pools.knows_source(pool);
            self.nodes.restores().get(backend).filter(|_| waits).cloned()
        };
        self.set.kept.iter().filter_map(of).collect()
    }

    /// Returns our part of a load balancer. For a load balancer that only listed pools name, this is the listed pools
    /// alone.
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
