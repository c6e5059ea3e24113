//! The enums of the admin API: each is a type whose schema lists its values.
//!
//! The enums of the core provide their values. Other values are listed here, and tests compare real answers with them.

use model::node::NodeState as DrainState;
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

/// A closed set of values.
pub(super) trait ValueSet {
    /// Returns all values, in their order.
    fn all() -> Vec<&'static str>;
}

/// Declares enums, each with its description, its name and all values.
macro_rules! enums {
    ($($(#[doc = $doc:literal])+ $name:ident: $all:expr;)+) => {$(
        $(#[doc = $doc])+
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) struct $name(pub(super) &'static str);

        impl ValueSet for $name {
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

/// Returns the schema of a text that has one of these values.
pub(super) fn one_of(values: &[&str], description: &str) -> RefOr<Schema> {
    let description = (!description.is_empty()).then_some(description);
    ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(values.iter().copied()))
        .description(description)
        .into()
}

enums! {
    /// The state of a pool.
    PoolState: sample::PoolState::ALL.map(sample::PoolState::as_str);
    /// Why a pool is not written now, the first that applies.
    BlockedBy: blocked::Blocked::ALL.map(blocked::Blocked::as_str);
    /// Why a removal is held back.
    HeldReason: assignment::HeldReason::ALL.map(assignment::HeldReason::as_str);
    /// The condition that ends the hold of a removal: a time, a second read, or other facts.
    WaitsFor: ["time", "second_read", "facts"];
    /// The mode of the guards.
    GuardMode: guard::GuardMode::ALL.map(guard::GuardMode::as_str);
    /// The mode of the controller: which changes it may make.
    Mode: policy::Mode::ALL.map(policy::Mode::as_str);
    /// The role of this process among its replicas.
    Role: ["standby", "settling", "confirming", "leader", "alone", "stopping"];
    /// The state of the shared Lease in this process.
    SharedLeaseState: ["free", "waiting", "acquiring", "held", "releasing", "cooldown"];
    /// The holder of the shared Lease.
    LeaseHolderKind: view::LeaseHolderKind::ALL.map(view::LeaseHolderKind::as_str);
    /// The scope of a pause.
    PauseScope: ["everything", "pool", "service"];
    /// The scope of a pause that keeps a pool or a Service from being written.
    PausedByScope: ["mode", "everything", "pool", "service", "annotation", "not_in_restore"];
    /// The kind of objects that a source watches; `events` are notices of eviction.
    SourceKind: object::Kind::ALL.map(object::Kind::resource);
    /// The requests to Azure that share a gate and a budget.
    GateClass: sample::GateClass::ALL.map(sample::GateClass::as_str);
    /// An address family.
    Family: ["IPv4", "IPv6"];
    /// The way in which the desired members of a pool have reached the controller.
    Provenance: ["watch", "reconnect", "relist", "first_list"];
    /// The outcome of an attempt.
    Outcome: [
        "written", "unchanged", "withheld", "stale", "retried", "failed", "not_manageable", "not_granted", "interrupted",
    ];
    /// The trigger of an attempt.
    Trigger: write_record::Trigger::ALL.map(write_record::Trigger::as_str);
    /// A diagnostic about the choice of members.
    DiagnosticReason: [
        "nothing_usable", "priority_used", "failback_waits", "foreign_down", "degraded_used", "weights_ignored",
        "localities_skipped", "alternatives_ignored", "draining_cut",
    ];
    /// The rule by which a node is excluded from a pool.
    ExclusionRule: ["excluded_by_label", "not_managed_by_azure", "control_plane", "to_be_deleted", "other_family"];
    /// The admin state of an entry, as Azure spells it.
    EntryState: ["None", "Up", "Down", "Unknown"];
    /// Whether a Service is a candidate, and if not, the reason.
    Candidacy: ["candidate", "not_load_balancer", "not_multi_slb", "not_local", "deleting", "not_selected"];
    /// The reason why a pool of a Service is not written.
    NotManageableReason: [
        "foreign_name", "mixed_families", "no_rule", "foreign_rule", "service_rule", "outbound_rule",
        "inbound_nat_rule", "nic_backed", "sync_automatic", "pool_not_found", "load_balancer_not_found",
    ];
    /// The reason why a pool with an xDS source is not written.
    ListedNotManageableReason: [
        "service_rule", "outbound_rule", "inbound_nat_rule", "nic_backed", "sync_automatic", "pool_not_found",
        "load_balancer_not_found",
    ];
    /// The reason of the verdict, the worst first.
    VerdictReason: verdict::VerdictReason::ALL.map(verdict::VerdictReason::as_str);
    /// The state of a node that leaves service or is restored.
    NodeState: DrainState::ALL.map(DrainState::as_str);
    /// The state of a node; nodes that this process does not handle are `in_service` or `not_managed`.
    AnyNodeState: [&DrainState::ALL.map(DrainState::as_str)[..], &["in_service", "not_managed"]].concat();
    /// The reason why a node leaves service.
    DrainReason: Signal::ALL.map(Signal::as_str);
    /// The state of a node that leaves service in a pool.
    NodeInPoolState: NodePoolState::ALL.map(NodePoolState::as_str);
    /// The state of a node in a pool; `in_service`: the node is in service, and its entry is not Down.
    AnyNodeInPoolState: [&NodePoolState::ALL.map(NodePoolState::as_str)[..], &["in_service"]].concat();
    /// The type of a resource of a control plane.
    ResourceType: ResourceKind::ALL.map(ResourceKind::resource_type);
    /// The state of a resource, by gRFC A88.
    ResourceState: model::xds::cache::ResourceState::ALL.map(model::xds::cache::ResourceState::as_str);
    /// The state, with whether the last good version is in use: the label of grpc_xds_client_resources.
    CacheState: model::xds::cache::CacheState::ALL.map(model::xds::cache::CacheState::as_str);
    /// The kind of fault of a resource.
    ResourceReason: ["connectivity", "nack", "deleted", "timer", "reported"];
    /// The assignment of a source: `unknown` (nothing was ever received, and the pools are left as they are), `usable`
    /// (it is in use), `dropped` (the last one is no longer used, and the pools are emptied).
    Assigned: ["unknown", "usable", "dropped"];
    /// The origin of the value of a setting.
    Origin: ["default", "compatibility", "file", "secret", "environment"];
    /// The severity of an event.
    Severity: ["Normal", "Warning"];
    /// The kind of an object that events are about.
    ObjectKind: ["Service", "Node", "Pod", "Lease"];
    /// The minimum level of lines that are logged.
    LogLevel: Levels::NAMES;
    /// The time from which a pause or its end has effect.
    TakesEffect: ["now", "within 15 s, when the leader has read it"];
    /// The type of a problem: always `about:blank`.
    ProblemType: ["about:blank"];
    /// An attempt begins.
    AnswerAttempting: ["attempting"];
    /// Load balancers are being read.
    AnswerComparing: ["comparing"];
    /// The gates are open.
    AnswerOpened: ["opened"];
    /// Removals and nodes are released.
    AnswerReleased: ["released"];
    /// The pause is stored.
    AnswerPaused: ["paused"];
    /// The pause has ended.
    AnswerResumed: ["resumed"];
    /// The level is set.
    AnswerSet: ["set"];
}
