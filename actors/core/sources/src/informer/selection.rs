//! Decides which Services are candidates (D1) and which nodes are excluded (D5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Requirement, Selector};
use model::object::{ExclusionRule, NodeMarks, NodeObject, ServiceObject, ServiceType, TO_BE_DELETED};
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
    /// Returns why a node is excluded from pools, if it is (D5). Control-plane nodes may count like other nodes.
    pub(super) fn excluded(&self, node: &NodeObject) -> Option<ExclusionRule> {
        let NodeMarks { excluded, unmanaged, control_plane } = node.marks;
        if excluded {
            Some(ExclusionRule::ExcludedByLabel)
        } else if unmanaged {
            Some(ExclusionRule::NotManagedByAzure)
        } else if control_plane && !self.control_plane {
            Some(ExclusionRule::ControlPlane)
        } else if node.taints.iter().any(|taint| &*taint.key == TO_BE_DELETED) {
            Some(ExclusionRule::ToBeDeleted)
        } else {
            None
        }
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
