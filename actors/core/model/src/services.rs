//! What the Informer says of a Service: what its endpoints ask of its pools (docs/design/sources.md, D4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::ids::{Family, NodeName, ServiceKey, ServiceUid};
use crate::level::Provenance;
use crate::machine::Now;
use crate::object::LeftOut;
use crate::view::{Candidacy, ResourceView};

/// A Service and what its endpoints ask of its pools.
#[derive(Clone, PartialEq, Debug)]
pub struct ServiceFact {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The UID.
    pub uid: ServiceUid,
    /// Whether it is a candidate, and if not, why (D1).
    pub candidacy: Candidacy,
    /// Whether the operator paused it (D1).
    pub paused: bool,
    /// Whether its pools are on internal load balancers (D3).
    pub internal: bool,
    /// A number that changes when ports or ingress change: a reason to discover again (D3).
    pub exposure: u64,
    /// What its endpoints ask, by family; both families are always present, and empty unless it is a candidate.
    pub parts: BTreeMap<Family, Part>,
    /// How many EndpointSlices it has; counted for candidates only.
    pub slices: usize,
    /// How many endpoints they hold; counted for candidates only.
    pub endpoints: usize,
    /// What is wrong with its data (D6), in words; at most 10.
    pub data_errors: Vec<Arc<str>>,
    /// What is known of its EndpointSlices, by A88's states (X5); `None` unless it is a candidate.
    pub resource: Option<ResourceView>,
    /// Raised by every slice event, even one that changes nothing (A3).
    pub revision: u64,
    /// The most doubtful way in which a part of it reached us since it was last told.
    pub provenance: Provenance,
    /// When the oldest endpoint change since it was last told was triggered; `None` when no endpoint changed,
    /// and after a first list, which tells of old changes.
    pub triggered: Option<Now>,
    /// When the newest change was read of which this tells; `None`: nothing was read that changed it.
    pub read: Option<Now>,
}

impl ServiceFact {
    /// Takes over what must not be lost of an older fact that a newer one replaces before it was acted on: the
    /// doubt about where it came from (G1) and the moment of its oldest trigger (A3).
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

    /// Whether it says the same, how and when it came apart.
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

/// What one Service's endpoints ask of its pool of one family.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Addresses that must be in: of nodes with an endpoint that counts and that are not left out.
    pub required: BTreeMap<IpAddr, RequiredNode>,
    /// Addresses that may stay: of nodes with any endpoint, further ones of required nodes, and last known ones (D6).
    pub tolerated: BTreeSet<IpAddr>,
    /// Those of `tolerated` that may stay only because they were known last (D6): their node is gone or has no address, or
    /// their endpoint has no nodeName.
    pub last_known: BTreeSet<IpAddr>,
    /// The nodes with endpoints of the Service that are left out, with their addresses of this family (D4, D5).
    pub left_out: BTreeMap<NodeName, LeftOutNode>,
    /// How many EndpointSlices count for this family.
    pub slices: usize,
    /// How many endpoints they hold.
    pub endpoints: usize,
    /// Whether what was known of them is not to be used any more, as `sources.kubernetes.failOnDataErrors` has it. Then
    /// nothing of what it releases is doubted.
    pub is_dropped: bool,
    /// Whether what is asked for cannot be used or is not known (D6): there are endpoints but none with a usable
    /// address, last known ones included; or a slice that is or may be the Service's, or a node of its endpoints,
    /// exists and was never decoded. Then nothing may be removed; what is required is still to be added.
    pub unusable: bool,
}

/// A node that is left out of a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOutNode {
    /// Its addresses of the pool's family.
    pub ips: BTreeSet<IpAddr>,
    /// Why.
    pub why: LeftOut,
}

/// The node behind a required address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequiredNode {
    /// Its name.
    pub name: NodeName,
    /// Whether it is Ready.
    pub ready: bool,
}
