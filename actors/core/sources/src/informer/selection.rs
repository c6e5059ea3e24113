//! Decides which Services are candidates (D1) and which nodes are left out (D5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Requirement, Selector};
use model::object::{LeftOut, NodeObject, ServiceObject, ServiceType, TO_BE_DELETED};
use model::view::Candidacy;

impl Selector {
    /// Returns true if an object with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<Arc<str>, Arc<str>>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::In(key, values) => labels.get(key).is_some_and(|value| values.contains(value)),
            Requirement::NotIn(key, values) => labels.get(key).is_none_or(|value| !values.contains(value)),
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::Absent(key) => !labels.contains_key(key),
        })
    }
}

/// The configured selection of Services and nodes.
#[derive(Debug)]
pub(super) struct Selection {
    pub(super) multi_slb: bool,
    pub(super) namespaces: BTreeSet<Arc<str>>,
    pub(super) selector: Selector,
    pub(super) control_plane: bool,
}

impl Selection {
    /// Applies the configuration to a node: control-plane nodes may count like other nodes (D5).
    pub(super) fn configured(&self, mut node: Arc<NodeObject>) -> Arc<NodeObject> {
        if self.control_plane && node.left_out == Some(LeftOut::ControlPlane) {
            let is_to_be_deleted = node.taints.iter().any(|taint| &*taint.key == TO_BE_DELETED);
            Arc::make_mut(&mut node).left_out = is_to_be_deleted.then_some(LeftOut::ToBeDeleted);
        }
        node
    }

    /// Returns the candidacy of the Service; if it is not a candidate, the first reason.
    pub(super) fn candidacy(&self, service: &ServiceObject) -> Candidacy {
        let namespace = self.namespaces.is_empty() || self.namespaces.contains(&service.key.namespace);
        match service.service_type {
            ServiceType::Other => Candidacy::NotLoadBalancer,
            ServiceType::LoadBalancer if !self.multi_slb => Candidacy::NotMultiSlb,
            ServiceType::LoadBalancer if service.deleting => Candidacy::Deleting,
            ServiceType::LoadBalancer if !service.local => Candidacy::NotLocal,
            ServiceType::LoadBalancer if namespace && self.selector.matches(&service.labels) => {
                Candidacy::Candidate
            }
            ServiceType::LoadBalancer => Candidacy::NotSelected,
        }
    }
}
