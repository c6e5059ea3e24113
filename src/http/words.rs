//! The words of the admin API: each closed set is a type, and its schema lists them.
//!
//! Sets that an enum of the core has come from there. The others are written here, and tests compare real answers with
//! them.

use model::node::NodeState as LeavingState;
use model::signals::Signal;
use model::view::{self, NodePoolState};
use model::xds::facts::ResourceKind;
use model::{assignment, blocked, guard, object, policy, sample, write_record};
use serde::{Serialize, Serializer};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::{PartialSchema, ToSchema};

use super::verdict;
use crate::telemetry::Levels;

/// A closed set of words.
pub(super) trait Words {
    /// All of them, in their order.
    fn all() -> Vec<&'static str>;
}

/// Declares sets: what a word of it says, the name of the type, and all words.
macro_rules! words {
    ($($(#[doc = $doc:literal])+ $name:ident: $all:expr;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) struct $name(pub(super) &'static str);

        impl Words for $name {
            fn all() -> Vec<&'static str> {
                $all.to_vec()
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0)
            }
        }

        impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                one_of(&$name::all(), concat!($($doc),+).trim())
            }
        }

        impl ToSchema for $name {}
    )+};
}

/// The schema of a text that is one of these words.
pub(super) fn one_of(words: &[&str], description: &str) -> RefOr<Schema> {
    let description = (!description.is_empty()).then_some(description);
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(words.iter().copied()))
        .description(description)
        .into()
}

words! {
    /// The state of a pool.
    PoolState: sample::PoolState::ALL.map(sample::PoolState::as_str);
    /// Why a pool is not written now, the first that applies.
    BlockedBy: blocked::Blocked::ALL.map(blocked::Blocked::as_str);
    /// Why a removal is held back.
    HeldReason: assignment::HeldReason::ALL.map(assignment::HeldReason::as_str);
    /// What ends that a removal is held back: a time, a second read, or other facts.
    WaitsFor: ["time", "second_read", "facts"];
    /// What the guards do.
    GuardMode: guard::GuardMode::ALL.map(guard::GuardMode::as_str);
    /// How much the controller may do.
    Mode: policy::Mode::ALL.map(policy::Mode::as_str);
    /// What this process is among its replicas.
    Role: ["standby", "settling", "confirming", "leader", "alone", "stopping"];
    /// What this process does with the shared Lease.
    SharedLeaseState: ["free", "waiting", "acquiring", "held", "releasing", "off"];
    /// Whose the shared Lease is.
    Whose: view::Whose::ALL.map(view::Whose::as_str);
    /// What a pause is of.
    PauseScope: ["everything", "pool", "service"];
    /// What keeps a pool or a Service from being written.
    PausedByScope: ["mode", "everything", "pool", "service", "annotation", "no_pin"];
    /// The kind of objects that a source watches; `events` are notices of eviction.
    SourceKind: object::Kind::ALL.map(object::Kind::resource);
    /// The requests to Azure that share a gate and a budget.
    GateClass: sample::GateClass::ALL.map(sample::GateClass::as_str);
    /// An address family.
    Family: ["IPv4", "IPv6"];
    /// How what a pool must hold has reached the controller.
    Provenance: ["watch", "reconnect", "relist", "first_list"];
    /// How an attempt ended.
    Outcome: [
        "written", "unchanged", "withheld", "stale", "retried", "failed", "not_manageable", "not_granted", "interrupted",
    ];
    /// What started an attempt.
    Trigger: write_record::Trigger::ALL.map(write_record::Trigger::as_str);
    /// What there is to know of how members were chosen.
    RemarkReason: [
        "nothing_usable", "priority_used", "failback_waits", "foreign_down", "degraded_used", "weights_ignored",
        "localities_skipped", "alternatives_ignored", "draining_cut",
    ];
    /// The rule by which a node is left out of a pool.
    LeftOutRule: ["excluded_by_label", "not_managed_by_azure", "control_plane", "to_be_deleted", "other_family"];
    /// The admin state of an entry, as Azure spells it.
    EntryState: ["None", "Up", "Down", "Unknown"];
    /// Whether a Service takes part, and if not, why.
    Candidacy: ["candidate", "not_load_balancer", "not_multi_slb", "not_local", "deleting", "not_selected"];
    /// Why a pool of a Service is not written.
    NotManageableReason: [
        "foreign_name", "mixed_families", "no_rule", "foreign_rule", "service_rule", "outbound_rule",
        "inbound_nat_rule", "nic_backed", "sync_automatic", "pool_not_found", "load_balancer_not_found",
    ];
    /// Why a pool of an xDS source is not written.
    ListedNotManageableReason: [
        "service_rule", "outbound_rule", "inbound_nat_rule", "nic_backed", "sync_automatic", "pool_not_found",
        "load_balancer_not_found",
    ];
    /// What the verdict is about, the worst first.
    VerdictReason: verdict::VerdictReason::ALL.map(verdict::VerdictReason::as_str);
    /// How far a node is that leaves service or is restored.
    NodeState: LeavingState::ALL.map(LeavingState::as_str);
    /// The state of a node; `in_service` and `not_followed` are those of nodes on which this process does not work.
    AnyNodeState: [&LeavingState::ALL.map(LeavingState::as_str)[..], &["in_service", "not_followed"]].concat();
    /// Why a node leaves service.
    LeavingReason: Signal::ALL.map(Signal::as_str);
    /// How a node that leaves service is in a pool.
    NodeInPoolState: NodePoolState::ALL.map(NodePoolState::as_str);
    /// How a node is in a pool; `open`: the node is in service, and its entry is not Down.
    AnyNodeInPoolState: [&NodePoolState::ALL.map(NodePoolState::as_str)[..], &["open"]].concat();
    /// The type of a resource of a control plane.
    ResourceType: ResourceKind::ALL.map(ResourceKind::resource_type);
    /// The state of a resource, by gRFC A88.
    ResourceState: model::xds::cache::ResourceState::ALL.map(model::xds::cache::ResourceState::as_str);
    /// The state, with whether the last good version is in use: the label of grpc_xds_client_resources.
    CacheState: model::xds::cache::CacheState::ALL.map(model::xds::cache::CacheState::as_str);
    /// What kind of fault a resource has.
    ResourceReason: ["connectivity", "nack", "deleted", "timer", "reported"];
    /// `unknown`: nothing was ever known, and the pools are left as they are; `usable`: it is in use; `dropped`: what was
    /// in use is given up, and the pools are emptied.
    Assigned: ["unknown", "usable", "dropped"];
    /// Where the value of a setting comes from.
    Origin: ["default", "compatibility", "file", "secret", "environment"];
    /// The severity of an event.
    Severity: ["Normal", "Warning"];
    /// The kind of an object that events are about.
    ObjectKind: ["Service", "Node", "Pod", "Lease"];
    /// Which lines are logged.
    LogLevel: Levels::WORDS;
    /// From when on a pause or its end counts.
    TakesEffect: ["now", "within 15 s, when the leader has read it"];
    /// The type of a problem: it has none but its status.
    ProblemType: ["about:blank"];
    /// An attempt begins.
    AnswerAttempting: ["attempting"];
    /// Load balancers are being read.
    AnswerComparing: ["comparing"];
    /// The gates are open.
    AnswerOpened: ["opened"];
    /// Removals and nodes are released.
    AnswerReleased: ["released"];
    /// The pause is noted.
    AnswerPaused: ["paused"];
    /// The pause has ended.
    AnswerResumed: ["resumed"];
    /// The level is set.
    AnswerSet: ["set"];
}
