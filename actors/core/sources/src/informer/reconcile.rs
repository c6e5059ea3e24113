//! Reconciles one dirty Service: computes its parts and publishes its fact if it has changed (A3).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::part::{self, PartInputs, ServiceParts};
use super::resources::{SliceError, SliceSet};
use super::{Informer, Out, ServiceFact};
use model::ids::{ServiceKey, ServiceUid};
use model::level::Provenance;
use model::machine::Now;
use model::object::ServiceObject;
use model::view::Candidacy;

impl Informer {
    /// Reconciles one Service.
    pub(super) fn reconcile(&mut self, now: Now, key: &ServiceKey, out: &mut Vec<Out>) {
        let Some(entry) = self.cache.entries.get_mut(key) else {
            return;
        };
        entry.drop_orphans(now);
        let service = entry.service.clone().filter(|(_, candidacy)| *candidacy != Candidacy::NotLoadBalancer);
        let mut computed = match &service {
            Some((service, Candidacy::Candidate)) => {
                self.forget_predecessor(key, &service.uid);
                let omitted_slices = self.omitted_slices(key);
                self.update_resource(now, key, &omitted_slices);
                let inputs = PartInputs {
                    nodes: &self.cache.nodes,
                    unread: &self.unread,
                    omitted_slices,
                    slices_lost: self.slices_lost,
                    dropped: self.resources.dropped(key),
                    per_family: self.per_family,
                    used: part::used_families(service),
                    rule: self.counts,
                    now,
                };
                if self.resources.are_withdrawn() {
                    ServiceParts::withdrawn(&inputs)
                } else {
                    part::compute_parts(key, &self.cache.entries[key], &inputs)
                }
            }
            Some((
                _,
                Candidacy::NotLoadBalancer
                | Candidacy::NotMultiSlb
                | Candidacy::NotLocal
                | Candidacy::Deleting
                | Candidacy::NotSelected,
            ))
            | None => {
                self.resources.leave(key);
                ServiceParts::nothing()
            }
        };
        self.cache.reindex(key, std::mem::take(&mut computed.nodes));
        if let Some((service, candidacy)) = service {
            if let Some(entry) = self.cache.entries.get_mut(key) {
                entry.record_data_errors(&computed);
            }
            self.report_data_errors(key, out);
            self.publish(&service, candidacy, computed, out);
        } else {
            self.publish_gone(key, out);
        }
        self.end_data_errors(key, out);
        self.cache.drop_void_entry(key);
    }

    /// Forgets the slices of an earlier Service with the same name: they do not apply to its successor.
    fn forget_predecessor(&mut self, key: &ServiceKey, uid: &ServiceUid) {
        let published = self.cache.entries.get(key).and_then(|entry| entry.published.as_ref());
        if published.is_some_and(|published| published.uid != *uid) {
            self.resources.leave(key);
        }
    }

    /// Updates the resource of a candidate's slices from their current states. Slices in `omitted_slices` do not count
    /// (X5).
    fn update_resource(&mut self, now: Now, key: &ServiceKey, omitted_slices: &BTreeSet<Arc<str>>) {
        let Some(entry) = self.cache.entries.get(key) else { return };
        let unread = || {
            let slice = self.unread.slices_of(key).next()?;
            Some(SliceError { slice: Arc::clone(&slice.name), error: "it cannot be read".into() })
        };
        let slice_error = self.undecodables.first_error(entry).or_else(unread);
        let used = || {
            entry.slices.iter().filter(|(name, _)| !omitted_slices.contains(*name)).map(|(_, slice)| slice)
        };
        let families = used().flat_map(|slice| part::families_of(slice, self.per_family)).copied().collect();
        let (revision, slices) = (entry.revision, used().count());
        let set = (slices > 0).then_some(SliceSet { revision, slices, families });
        self.resources.update(now, key, set, entry.provenance, slice_error);
    }

    /// Returns the slices of a Service whose last good state is no longer used, because the newest state cannot be
    /// decoded and the configuration requires it.
    fn omitted_slices(&self, key: &ServiceKey) -> BTreeSet<Arc<str>> {
        match self.cache.entries.get(key).filter(|_| self.resources.drops()) {
            Some(entry) => self.undecodables.slices_of(entry).collect(),
            None => BTreeSet::new(),
        }
    }

    /// Publishes a Service's fact, unless it equals the last published one.
    fn publish(
        &mut self,
        service: &ServiceObject,
        candidacy: Candidacy,
        computed: ServiceParts,
        out: &mut Vec<Out>,
    ) {
        let Some(entry) = self.cache.entries.get_mut(&service.key) else {
            return;
        };
        let fact = ServiceFact {
            key: service.key.clone(),
            uid: service.uid.clone(),
            candidacy,
            paused: service.paused,
            internal: service.internal,
            exposure: service.exposure,
            parts: computed.parts,
            slices: computed.slices,
            endpoints: computed.endpoints,
            data_errors: computed.errors,
            resource: self.resources.view(&service.key),
            revision: entry.revision,
            provenance: std::mem::take(&mut entry.provenance),
            triggered: entry.triggered.take(),
            read: entry.read.take(),
        };
        if let Some(before) = &entry.published {
            if before.same_as(&fact) {
                return;
            }
            if before.uid != fact.uid {
                out.push(Out::Service(before.uid.clone(), None));
            }
        }
        let fact = Arc::new(fact);
        entry.published = Some(Arc::clone(&fact));
        out.push(Out::Service(fact.uid.clone(), Some(fact)));
    }

    /// Publishes that a Service is gone, if a fact about it was published.
    fn publish_gone(&mut self, key: &ServiceKey, out: &mut Vec<Out>) {
        let Some(entry) = self.cache.entries.get_mut(key) else {
            return;
        };
        entry.data_errors = None;
        entry.provenance = Provenance::Watch;
        entry.triggered = None;
        entry.read = None;
        if let Some(before) = entry.published.take() {
            out.push(Out::Service(before.uid.clone(), None));
        }
    }
}
