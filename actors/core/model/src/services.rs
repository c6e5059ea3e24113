//! The Informer's facts about a Service: the members that its endpoints require in its pools (docs/design/sources.md,
//! D4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

use crate::ids::{Family, NodeName, ServiceKey, ServiceUid};
use crate::level::Provenance;
use crate::machine::Now;
use crate::object::ExclusionRule;
use crate::view::{Candidacy, ResourceView};

/// A Service and the members that its endpoints require.
#[derive(Clone, PartialEq, Debug)]
pub struct ServiceFact {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The UID.
    pub uid: ServiceUid,
    /// Candidacy, with the reason if the Service is not a candidate (D1).
    pub candidacy: Candidacy,
    /// True if the operator has paused the Service (D1).
    pub paused: bool,
    /// True if its pools are on internal load balancers (D3).
    pub internal: bool,
    /// A number that changes with the ports or the ingress. A change triggers discovery (D3).
    pub exposure: u64,
    /// The parts by family; empty unless the Service is a candidate.
    pub parts: Parts,
    /// Number of its EndpointSlices; counted for candidates only.
    pub slices: usize,
    /// Number of endpoints in them; counted for candidates only.
    pub endpoints: usize,
    /// Descriptions of the errors in its data (D6); at most 10.
    pub data_errors: Vec<Arc<str>>,
    /// The cache state of its EndpointSlices, by A88's states (X5); `None` unless the Service is a candidate.
    pub resource: Option<ResourceView>,
    /// A number that rises with every slice event, even one without a change (A3).
    pub revision: u64,
    /// The most doubtful provenance among the changes since the previous fact.
    pub provenance: Provenance,
    /// When the oldest endpoint change since the previous fact was triggered. `None` when no endpoint changed, and
    /// after a first list, which contains old changes.
    pub triggered: Option<Now>,
    /// When the newest change in this fact was read; `None`: no change was read.
    pub read: Option<Now>,
}

impl ServiceFact {
    /// Takes over what must survive of an older fact that was replaced before it was processed: the more doubtful
    /// provenance (G1) and the oldest trigger (A3).
    pub fn absorb(newer: &mut Arc<ServiceFact>, older: &ServiceFact) {
        let triggered = [newer.triggered, older.triggered].into_iter().flatten().min();
        let (provenance, read) = (newer.provenance.max(older.provenance), newer.read.max(older.read));
        if newer.triggered != triggered || newer.provenance != provenance || newer.read != read {
            let joined = Arc::make_mut(newer);
            joined.triggered = triggered;
            joined.provenance = provenance;
            joined.read = read;
        }
    }

    /// Returns true if both facts have the same content, regardless of how and when it arrived.
    #[must_use]
    pub fn same_as(&self, other: &ServiceFact) -> bool {
        self.key == other.key
            && self.uid == other.uid
            && self.candidacy == other.candidacy
            && self.paused == other.paused
            && self.internal == other.internal
            && self.exposure == other.exposure
            && self.parts == other.parts
            && self.slices == other.slices
            && self.endpoints == other.endpoints
            && self.data_errors == other.data_errors
            && self.resource == other.resource
            && self.revision == other.revision
    }
}

/// The part of each family.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts {
    v4: Part,
    v6: Part,
}

impl Parts {
    /// Returns this part for one family, and an empty part for the other.
    #[must_use]
    pub fn of(family: Family, part: Part) -> Parts {
        let mut parts = Parts::default();
        parts[&family] = part;
        parts
    }

    /// Returns both parts, with their families.
    pub fn iter(&self) -> impl Iterator<Item = (Family, &Part)> {
        [(Family::V4, &self.v4), (Family::V6, &self.v6)].into_iter()
    }

    /// Returns both parts, mutable, with their families.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Family, &mut Part)> {
        [(Family::V4, &mut self.v4), (Family::V6, &mut self.v6)].into_iter()
    }
}

impl Index<&Family> for Parts {
    type Output = Part;

    fn index(&self, family: &Family) -> &Part {
        match family {
            Family::V4 => &self.v4,
            Family::V6 => &self.v6,
        }
    }
}

impl IndexMut<&Family> for Parts {
    fn index_mut(&mut self, family: &Family) -> &mut Part {
        match family {
            Family::V4 => &mut self.v4,
            Family::V6 => &mut self.v6,
        }
    }
}

/// The members that the endpoints of one Service require in its pool of one family.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Addresses that must be in the pool: those of nodes with an endpoint that counts, except excluded nodes.
    pub required: BTreeMap<IpAddr, RequiredNode>,
    /// Addresses that may stay: those of nodes with any endpoint, further addresses of required nodes, and last known
    /// ones (D6).
    pub tolerated: BTreeSet<IpAddr>,
    /// The addresses in `tolerated` that may stay only because they are last known (D6): their node is gone or has no
    /// address, or their endpoint has no nodeName.
    pub last_known: BTreeSet<IpAddr>,
    /// The excluded nodes with endpoints of the Service, with their addresses of this family (D4, D5).
    pub excluded: BTreeMap<NodeName, ExcludedNode>,
    /// Number of EndpointSlices that count for this family.
    pub slices: usize,
    /// Number of endpoints in them.
    pub endpoints: usize,
    /// True if the last good slices are no longer used, as `sources.kubernetes.failOnDataErrors` requires. Removals
    /// that follow from it are not doubtful.
    pub is_dropped: bool,
    /// True if the requirement is unusable or unknown (D6). It is unusable if there are endpoints, but none has a
    /// usable address, including last known ones. It is unknown if a node of the endpoints, or a slice that is or may
    /// be the Service's, exists and was never decoded. Then nothing may be removed, and required members are still
    /// added.
    pub unusable: bool,
}

/// A node that is excluded from a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExcludedNode {
    /// Its addresses of the pool's family.
    pub ips: BTreeSet<IpAddr>,
    /// The reason.
    pub why: ExclusionRule,
}

/// The node behind a required address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequiredNode {
    /// Its name.
    pub name: NodeName,
    /// True if the node is Ready.
    pub ready: bool,
}
