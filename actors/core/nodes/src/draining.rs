//! Sends the draining set to the writer, and selects the pools that a change affects (docs/design/nodes.md, N2).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{AdminState, Out};
use model::arm::Backend;
use model::draining::Draining;
use model::ids::NodeUid;

impl AdminState {
    /// Sends the set to the writer if it has changed.
    pub(super) fn send_set(&mut self, out: &mut Vec<Out>) {
        if self.records.take_changed() {
            self.nodes.make_stale();
        }
        if !self.nodes.is_stale() {
            return;
        }
        let restores_all = !self.signals_count();
        let (pools, listed) = (&self.pools, &self.params.listed);
        let restores = self.nodes.restores().clone();
        let next = self.nodes.set(pools, listed, &self.records, restores_all, &self.set);
        let Some(next) = next else {
            return self.send_draining_addresses(out);
        };
        self.grown |= next.addresses.keys().any(|backend| !self.set.addresses.contains_key(backend))
            || next.restorable.difference(&self.set.restorable).next().is_some();
        let before = std::mem::replace(&mut self.set, Arc::new(next));
        out.push(Out::Draining(Arc::clone(&self.set)));
        self.send_draining_addresses(out);
        self.mark_affected_pools(&before, &restores);
        self.changed = true;
    }

    /// Marks the pools for which the set requires something else than `before`, and those with a Down in `restores`.
    fn mark_affected_pools(&mut self, before: &Draining, restores: &BTreeMap<Backend, NodeUid>) {
        let is_other = |backend: &&Backend| {
            before.addresses.get(*backend) != self.set.addresses.get(*backend)
                || before.restorable.contains(*backend) != self.set.restorable.contains(*backend)
                || restores.get(*backend) != self.nodes.restores().get(*backend)
        };
        let backends =
            |set: &'_ Draining| set.addresses.keys().chain(&set.restorable).cloned().collect::<Vec<_>>();
        for backend in backends(before).iter().chain(&backends(&self.set)).filter(is_other) {
            self.dirty.extend(self.pools.with_backend(backend).cloned());
        }
        let foreign = before.foreign.symmetric_difference(&self.set.foreign);
        let kept = before.kept.symmetric_difference(&self.set.kept);
        self.dirty.extend(foreign.chain(kept).map(|(pool, _)| pool.clone()));
    }
}
