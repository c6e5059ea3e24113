//! Owns slim caches of Services, EndpointSlices and Nodes with their indexes, and works out each Service's
//! part of a level (design.md A2, D1, D4-D6). Which pools that part goes to is the Directory's business.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::ids::{Family, NodeName, ServiceKey, ServiceUid};
use crate::level::Provenance;
use crate::machine::Now;
use crate::object::Kind;
use crate::report::Report;
use crate::sample::{RelistReason, Sample};
use crate::view::Candidacy;
use crate::watch::Seen;

/// Which endpoints make their node a required member (D4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Counts {
    /// Those that are not terminating.
    #[default]
    Hosted,
    /// Those that serve.
    Serving,
    /// Those that are ready.
    Ready,
}

/// What the Informer is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `members.add`.
    pub counts: Counts,
    /// `services.namespaces`; empty means all.
    pub namespaces: BTreeSet<Arc<str>>,
    /// `services.selector`.
    pub selector: Selector,
    /// How long the last known address of a node is tolerated when its endpoints lack a usable one (D6: 5 min).
    pub last_known_for: Duration,
}

/// A label selector: all of its requirements must hold; none selects everything.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selector(pub Vec<Requirement>);

/// One requirement of a label selector.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Requirement {
    /// `key in (values)`; also `key=value`.
    In(Arc<str>, BTreeSet<Arc<str>>),
    /// `key notin (values)`; also `key!=value`. An absent key satisfies it.
    NotIn(Arc<str>, BTreeSet<Arc<str>>),
    /// `key`.
    Exists(Arc<str>),
    /// `!key`.
    Absent(Arc<str>),
}

/// What the Informer can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// What a watcher saw.
    Seen(Kind, Seen),
}

/// What the Informer can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the Directory and, as far as candidates go, to Discovery: a Service's part, or that it is gone.
    Service(ServiceUid, Option<Arc<ServiceFact>>),
    /// To the Directory, Discovery and the board: the first complete lists of all three kinds are in.
    Synced,
    /// To the watcher of this kind: what came is refused; list most recent data again.
    Relist(Kind, RelistReason),
    /// To the event emitter.
    Report(Report),
    /// To the metrics.
    Sample(Sample),
}

/// A Service and what its endpoints ask of its pools.
#[derive(Clone, PartialEq, Debug)]
pub struct ServiceFact {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The UID.
    pub uid: ServiceUid,
    /// Whether it is a candidate, and if not, why (D1).
    pub candidacy: Candidacy,
    /// Whether a person paused it (D1).
    pub paused: bool,
    /// A number that changes when ports or ingress change: a reason to discover again (D3).
    pub exposure: u64,
    /// What its endpoints ask, by family; both families are always present.
    pub parts: BTreeMap<Family, Part>,
    /// How many EndpointSlices it has.
    pub slices: usize,
    /// How many endpoints they hold.
    pub endpoints: usize,
    /// What is wrong with its data (D6), in words; at most 10.
    pub data_errors: Vec<Arc<str>>,
    /// Raised by every slice event, even one that changes nothing (A3).
    pub revision: u64,
    /// The most doubtful way in which a part of it reached us since it was last told.
    pub provenance: Provenance,
    /// When the oldest endpoint change behind this fact was triggered; `None` when no endpoint changed.
    pub triggered: Option<Now>,
}

/// What one Service's endpoints ask of its pool of one family.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Part {
    /// Addresses that must be in: of nodes with an endpoint that counts and that are not left out.
    pub required: BTreeMap<IpAddr, RequiredNode>,
    /// Addresses that may stay: of nodes with any endpoint, and last known ones (D6).
    pub tolerated: BTreeSet<IpAddr>,
    /// Whether there are endpoints but none with a usable address, last known ones included (D6).
    pub unusable: bool,
}

/// The node behind a required address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequiredNode {
    /// Its name.
    pub name: NodeName,
    /// Whether it is Ready.
    pub ready: bool,
}
