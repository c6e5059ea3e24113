//! Maps each machine's output to its receivers; no other code does (docs/design/model-and-mechanisms.md, A1).
//!
//! Production shells and the simulation call the same function, so both have the same wiring.

mod admin;
mod emitter;
mod facts;
mod messages;
mod operator;
mod xds;

pub use messages::{Address, Delivery, Output};

use std::sync::Arc;

use coordination::{leader, pauses};
use model::arm::ArmCall;
use model::config_map::{ConfigMapRequest, ConfigMapRequester};
use model::ids::{CallId, LbName, NodeName, PoolId, PoolName, ServiceKey, ServiceUid};
use model::lease::{GateTimes, LeaseName, LeaseRequest};
use model::machine::Now;
use model::object::{Kind, ObjectKey, TaintPatch};
use model::operator_request::{Answer, Refusal, RequestId};
use model::sample::GateClass;
use model::view::Snapshot;
use model::xds::name::Name;
use nodes::IgnoredNotice;
use pools::{directory, discovery, queue};
use reporting::events::Event;
use reporting::{events, snapshot};
use sources::watch::WatchRequest;
use sources::{informer, watch};

/// A message to a pool's entry in the registry.
#[derive(Clone, Debug)]
pub enum PoolMessage {
    /// Input of the machine.
    In(queue::In),
    /// Drop the machine; for the registry.
    Forget,
}

/// A message to the port to ARM.
#[derive(Clone, Debug)]
pub enum ArmMessage {
    /// Send this call and answer it.
    Call(ArmCall),
    /// New closing times of the gate policy, by request class (W6).
    Gates {
        /// End of the closed gate of reads.
        reads_until: Option<Now>,
        /// End of the closed gate of writes.
        writes_until: Option<Now>,
    },
}

/// A request to the port to Kubernetes.
#[derive(Clone, Debug)]
pub enum KubernetesCall {
    /// Open this request for the watcher of this kind, and drop the previous request of that kind.
    Open {
        /// Id that the lines of the answer carry.
        call: CallId,
        /// Kind of the objects.
        kind: Kind,
        /// The list or watch to request.
        request: WatchRequest,
        /// Why the previous request was given up, if that is logged.
        given_up: Option<watch::GivenUp>,
    },
    /// Send this request about a Lease: from the Leader about our own, from the writer about the shared one.
    Lease {
        /// Id that the answer carries.
        call: CallId,
        /// The Lease.
        lease: LeaseName,
        /// The request.
        request: LeaseRequest,
    },
    /// Send this request about our ConfigMap.
    ConfigMap {
        /// Machine that receives the answer.
        requester: ConfigMapRequester,
        /// Id that the answer carries.
        call: CallId,
        /// The request.
        request: ConfigMapRequest,
    },
    /// Patch the taints of a node, for the AdminState machine.
    Taint {
        /// Id that the answer carries.
        call: CallId,
        /// The patch.
        patch: TaintPatch,
    },
    /// Count the lock failures that the cloud-controller-manager has reported since a time.
    CountLockFailures {
        /// Id that the answer carries.
        call: CallId,
        /// Start of the period.
        since: Now,
    },
    /// Create an event.
    Post {
        /// Id that the answer carries.
        call: CallId,
        /// The event.
        event: Arc<Event>,
    },
}

/// A message to the host.
#[derive(Clone, Debug)]
pub enum HostMessage {
    /// Publish this snapshot.
    Publish(Arc<Snapshot>),
    /// This pool is quarantined, because this invariant does not hold (A4).
    Quarantined(PoolId, &'static str),
    /// An event was not created and will not be retried (E1).
    EventDropped(events::Dropped),
    /// An eviction notice about this node was ignored (N1).
    NoticeIgnored(NodeName, IgnoredNotice),
    /// An answer to an operator request.
    Answered(RequestId, Answer),
    /// Shutdown is complete: the writer has no calls in flight, and both Leases are released or given up.
    Done(leader::ReleasedLeases),
    /// The API server's storage was restored to an older state: the process ends (W8).
    StorageRollback(leader::StorageRollback),
}

/// Subject of a fact. Of two undelivered facts about the same subject on the same edge, the newer replaces the older
/// (A3). Requests and answers have no subject.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FactKey {
    /// What a Service contributes to a level.
    Service(ServiceUid),
    /// A pool's assignment.
    Assignment(PoolId),
    /// The observed state of a pool.
    Observation(PoolId),
    /// The members of a pool after an attempt.
    Members(PoolId),
    /// The admin states that the source of a listed pool asks for.
    SourceAdminStates(PoolId),
    /// The addresses that are draining.
    DrainingAddresses,
    /// A load balancer.
    Lb(LbName),
    /// The state of an xDS source.
    Source(Name),
    /// The due membership of a pool, or its withdrawal.
    MembershipDue(PoolId),
    /// The due admin state of a pool, or its withdrawal.
    AdminDue(PoolId),
    /// A node.
    Node(NodeName),
    /// The leadership state of this process.
    Leadership,
    /// Gate times, to or from the Lease.
    GateTimes,
    /// The pools that are out of sync.
    OutOfSync,
    /// The mode and the pauses, as the operator wants them.
    OperatorPolicy,
    /// Whether the cloud-controller-manager may be waiting for the shared Lease.
    AwaitingIngress,
    /// The closing times of the gates.
    Gates,
    /// A view of a pool.
    PoolView(PoolId),
    /// Why a listed pool is not written.
    RefusedView(PoolId),
    /// A view of a Service.
    ServiceView(ServiceKey),
    /// A view of a lane.
    LaneView(LbName),
    /// A view of a gate.
    GateView(GateClass),
    /// A view of a source.
    SourceView(Kind),
    /// A view of a load balancer.
    LbView(LbName),
    /// The view of leadership.
    LeadershipView,
    /// The view of the mode and the pauses.
    PolicyView,
    /// The view of the shared Lease.
    SharedLeaseView,
    /// The view of the guards.
    GuardsView,
    /// A view of a node.
    NodeView(NodeName),
    /// The view of the AdminState machine.
    AdminView,
    /// The view of xDS control planes.
    XdsView,
    /// An object in the API server.
    Object(ObjectKey),
    /// A change, read but not yet applied, of a pool's Service.
    Unread(PoolName),
    /// The time up to which the read lines are applied.
    ReadUpTo,
    /// The set of draining nodes.
    Draining,
    /// The snapshot.
    Snapshot,
}

/// Passes each delivery that follows from an output to `deliver`, in order.
pub fn route(output: Output, deliver: &mut impl FnMut(Delivery)) {
    match output {
        Output::Watcher(output) => from_watcher(output, deliver),
        Output::Informer(output) => from_informer(output, deliver),
        Output::Discovery(output) => from_discovery(output, deliver),
        Output::Directory(output) => from_directory(output, deliver),
        Output::Pool(output) => from_pool(output, deliver),
        Output::Writer(output) => from_writer(output, deliver),
        Output::AdminState(output) => admin::from_admin_state(output, deliver),
        Output::Leader(output) => from_leader(output, deliver),
        Output::Pauses(output) => from_pauses(output, deliver),
        Output::Operator(request) => deliver(operator::to_machine(request)),
        Output::Events(output) => emitter::from_events(output, deliver),
        Output::XdsSource(output) => xds::from_xds_source(output, deliver),
        Output::Snapshot(snapshot::Out::Publish(snapshot)) => {
            deliver(Delivery::Host(HostMessage::Publish(snapshot)))
        }
        Output::Snapshot(snapshot::Out::OutOfSync(pools)) => {
            deliver(Delivery::Leader(leader::In::OutOfSync(pools)))
        }
    }
}

fn from_watcher(output: watch::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        watch::Out::Open { call, kind, request, given_up } => {
            deliver(Delivery::Kubernetes(KubernetesCall::Open { call, kind, request, given_up }));
        }
        watch::Out::Seen(kind, read, seen) => deliver(match kind {
            Kind::Services | Kind::EndpointSlices | Kind::Nodes => {
                Delivery::Informer(informer::In::Seen(kind, read, seen))
            }
            Kind::Preemptions => Delivery::AdminState(nodes::In::Preemption(seen)),
        }),
        watch::Out::Freshness(kind, freshness) => match kind {
            Kind::Services | Kind::EndpointSlices | Kind::Nodes => {
                deliver(Delivery::Informer(informer::In::Freshness(kind, freshness)));
            }
            // No level depends on Preemptions, so it does not matter whether they are current.
            Kind::Preemptions => {}
        },
        watch::Out::View(view) => deliver(Delivery::Snapshot(snapshot::In::Source(view))),
        watch::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
    }
}

fn from_informer(output: informer::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        informer::Out::Service(uid, fact) => {
            deliver(Delivery::Directory(directory::In::Service(uid.clone(), fact.clone())));
            deliver(Delivery::Discovery(discovery::In::Service(uid, fact)));
        }
        informer::Out::Synced => {
            deliver(Delivery::Directory(directory::In::ListsSynced));
            deliver(Delivery::Discovery(discovery::In::ListsSynced));
            deliver(Delivery::Snapshot(snapshot::In::ListsSynced));
        }
        informer::Out::Node(name, fact) => {
            deliver(Delivery::Snapshot(snapshot::In::Known(name.clone(), fact.clone())));
            deliver(Delivery::AdminState(nodes::In::Node(name, fact)));
        }
        informer::Out::Confirmed(epoch) => {
            deliver(Delivery::AdminState(nodes::In::Confirmed(epoch)));
            deliver(Delivery::Directory(directory::In::Confirmed(epoch)));
        }
        informer::Out::Reread(read) => deliver(Delivery::Directory(directory::In::Reread(read))),
        informer::Out::ReadUpTo(read) => deliver(Delivery::Directory(directory::In::ReadUpTo(read))),
        informer::Out::AwaitingIngress(newest) => {
            deliver(Delivery::Writer(writer::In::AwaitingIngress(newest)));
        }
        informer::Out::Cached(kind, count) => deliver(Delivery::Watcher(kind, watch::In::Cached(count))),
        informer::Out::Relist(kind, reason) => deliver(Delivery::Watcher(kind, watch::In::Relist(reason))),
        informer::Out::Report(report) => deliver(Delivery::Events(events::In::Report(report))),
        informer::Out::Ended(ended) => deliver(Delivery::Events(events::In::Ended(ended))),
        informer::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
    }
}

fn from_discovery(output: discovery::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        discovery::Out::Read { call, lb } => deliver(Delivery::Writer(writer::In::Read { call, lb })),
        discovery::Out::Lb(observation) => {
            deliver(Delivery::AdminState(nodes::In::Lb(observation.clone())));
            deliver(Delivery::Directory(directory::In::Lb(observation)));
        }
        discovery::Out::Synced => {
            deliver(Delivery::Directory(directory::In::DiscoverySynced));
            deliver(Delivery::Snapshot(snapshot::In::DiscoverySynced));
        }
        discovery::Out::Answer(id, answer) => deliver(answered(id, answer)),
        discovery::Out::View(view) => deliver(Delivery::Snapshot(snapshot::In::Lb(view))),
        discovery::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
    }
}

fn from_directory(output: directory::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        directory::Out::Assign(assignment) => {
            deliver(to_pool(assignment.pool.clone(), queue::In::Assigned(assignment)));
        }
        directory::Out::Observe(pool, observation) => {
            deliver(to_pool(pool, queue::In::Observed(observation)))
        }
        directory::Out::Opened(epoch) => deliver(Delivery::AdminState(nodes::In::Opened(epoch))),
        directory::Out::Answer(id, answer) => deliver(answered(id, answer)),
        directory::Out::Rewrite(pool) => deliver(to_pool(pool, queue::In::Rewrite)),
        directory::Out::Forget(pool) => deliver(Delivery::Pool(pool, PoolMessage::Forget)),
        directory::Out::Reread(read) => {
            for kind in Kind::OF_LEVELS {
                deliver(Delivery::Watcher(kind, watch::In::Reread(read)));
            }
        }
        directory::Out::ReadUpTo(read) => deliver(Delivery::Writer(writer::In::ReadUpTo(read))),
        directory::Out::SourceAdminStates(pool, states) => {
            deliver(Delivery::AdminState(nodes::In::SourceAdminStates(pool, states)));
        }
        directory::Out::Refused(pool, why) => deliver(Delivery::Snapshot(snapshot::In::Refused(pool, why))),
        directory::Out::Guards(view) => deliver(Delivery::Snapshot(snapshot::In::Guards(view))),
        directory::Out::Report(report) => deliver(Delivery::Events(events::In::Report(report))),
        directory::Out::Ended(ended) => deliver(Delivery::Events(events::In::Ended(ended))),
        directory::Out::Service(uid, key, view) => {
            deliver(Delivery::Snapshot(snapshot::In::Service(uid, key, view)));
        }
        directory::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
    }
}

fn from_pool(output: queue::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        queue::Out::Due(pool, due) => deliver(Delivery::Writer(writer::In::MembershipDue(pool, due))),
        queue::Out::Withdraw(pool) => deliver(Delivery::Writer(writer::In::Withdraw(pool))),
        queue::Out::Taken(pool, attempt, taken) => {
            deliver(Delivery::Writer(writer::In::Taken(pool, attempt, taken)));
        }
        queue::Out::Answer(id, answer) => deliver(answered(id, answer)),
        queue::Out::Retired(pool) => deliver(Delivery::Directory(directory::In::Retired(pool))),
        queue::Out::RewriteSkipped(pool) => {
            deliver(Delivery::Directory(directory::In::RewriteSkipped(pool)));
        }
        queue::Out::Members(pool, members) => {
            deliver(Delivery::Directory(directory::In::Members(pool, members)));
        }
        queue::Out::Missing(pool) => deliver(Delivery::Discovery(discovery::In::Missing(pool))),
        queue::Out::Report(report) => deliver(Delivery::Events(events::In::Report(report))),
        queue::Out::Ended(ended) => deliver(Delivery::Events(events::In::Ended(ended))),
        queue::Out::View(view) => deliver(Delivery::Snapshot(snapshot::In::Pool(view))),
        queue::Out::Gone(pool) => deliver(Delivery::Snapshot(snapshot::In::PoolGone(pool))),
        queue::Out::Quarantined(pool, broken) => {
            deliver(Delivery::Host(HostMessage::Quarantined(pool, broken)));
        }
        queue::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
    }
}

fn from_writer(output: writer::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        writer::Out::Take(pool, attempt) => deliver(to_pool(pool, queue::In::Take(attempt))),
        writer::Out::Finished(pool, attempt, outcome) => {
            deliver(to_pool(pool, queue::In::Finished(attempt, outcome)));
        }
        writer::Out::Verified(pool, verdict) => deliver(to_pool(pool, queue::In::Verified(verdict))),
        writer::Out::Observed(pool, observation) => deliver(to_pool(pool, queue::In::Observed(observation))),
        writer::Out::AdminStates(pool, states) => {
            deliver(Delivery::AdminState(nodes::In::AdminStates(pool, states)));
        }
        writer::Out::Read { call, began, result, puts } => {
            deliver(Delivery::Discovery(discovery::In::Read { call, began, result, puts }));
        }
        writer::Out::Call(call) => deliver(Delivery::Arm(ArmMessage::Call(call))),
        writer::Out::Gates { reads_until, writes_until } => {
            deliver(Delivery::Arm(ArmMessage::Gates { reads_until, writes_until }));
            deliver(Delivery::Leader(leader::In::Gates(GateTimes { reads_until, writes_until })));
        }
        writer::Out::Lease(call, request) => {
            deliver(Delivery::Kubernetes(KubernetesCall::Lease { call, lease: LeaseName::Shared, request }));
        }
        writer::Out::CountLockFailures { call, since } => {
            deliver(Delivery::Kubernetes(KubernetesCall::CountLockFailures { call, since }));
        }
        writer::Out::Sent(call) => deliver(Delivery::Discovery(discovery::In::Sent(call))),
        writer::Out::ForeignRelease => deliver(Delivery::Discovery(discovery::In::ForeignRelease)),
        writer::Out::Attempt(pool, id) => deliver(to_pool(pool, queue::In::Attempt(id))),
        writer::Out::Answer(id, answer) => deliver(answered(id, answer)),
        writer::Out::Pace(pool, interval) => deliver(to_pool(pool, queue::In::Pace(interval))),
        writer::Out::Report(report) => deliver(Delivery::Events(events::In::Report(report))),
        writer::Out::Ended(ended) => deliver(Delivery::Events(events::In::Ended(ended))),
        writer::Out::SharedLease(view) => deliver(Delivery::Snapshot(snapshot::In::SharedLease(view))),
        writer::Out::Lane(view) => deliver(Delivery::Snapshot(snapshot::In::Lane(view))),
        writer::Out::Gate(class, view) => deliver(Delivery::Snapshot(snapshot::In::Gate(class, view))),
        writer::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
        writer::Out::Quiet { shared_is_free } => {
            deliver(Delivery::Leader(leader::In::WriterQuiet { shared_is_free }));
        }
    }
}

fn from_leader(output: leader::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        leader::Out::Lease(call, request) => {
            deliver(Delivery::Kubernetes(KubernetesCall::Lease { call, lease: LeaseName::Own, request }));
        }
        leader::Out::Confirm { epoch, needs_new_list } => {
            for kind in Kind::OF_LEVELS {
                deliver(Delivery::Watcher(kind, watch::In::Confirm { epoch, needs_new_list }));
            }
            deliver(Delivery::Pauses(pauses::In::Confirm(epoch)));
        }
        leader::Out::Leadership(leadership) => {
            deliver(Delivery::Writer(writer::In::Leadership(leadership)));
            deliver(Delivery::AdminState(nodes::In::Leadership(leadership)));
            deliver(Delivery::Events(events::In::Leadership(leadership)));
        }
        leader::Out::RecordedGates(gates) => deliver(Delivery::Writer(writer::In::RecordedGates(gates))),
        leader::Out::OutOfSync(pools) => deliver(Delivery::Snapshot(snapshot::In::OutOfSync(pools))),
        leader::Out::StartRound => deliver(Delivery::Discovery(discovery::In::StartRound)),
        leader::Out::View(view) => deliver(Delivery::Snapshot(snapshot::In::Leadership(view))),
        leader::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
        leader::Out::Done(free) => deliver(Delivery::Host(HostMessage::Done(free))),
        leader::Out::StorageRollback(rollback) => {
            deliver(Delivery::Host(HostMessage::StorageRollback(rollback)))
        }
    }
}

fn from_pauses(output: pauses::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        pauses::Out::ConfigMap(call, request) => {
            let requester = ConfigMapRequester::Pauses;
            deliver(Delivery::Kubernetes(KubernetesCall::ConfigMap { requester, call, request }));
        }
        pauses::Out::OperatorPolicy { term, policy } => {
            // The writer receives the policy first.
            deliver(Delivery::Writer(writer::In::OperatorPolicy { term, policy: Arc::clone(&policy) }));
            deliver(Delivery::AdminState(nodes::In::OperatorPolicy { term, policy: Arc::clone(&policy) }));
            deliver(Delivery::Events(events::In::OperatorPolicy { term, policy: Arc::clone(&policy) }));
            deliver(Delivery::Informer(informer::In::OperatorPolicy(Arc::clone(&policy))));
            deliver(Delivery::Directory(directory::In::OperatorPolicy { term, policy }));
        }
        // On the writer's edge, the answer follows the policy: the operator receives it once nothing more starts in a
        // paused pool.
        pauses::Out::Answer(id, answer) => deliver(Delivery::Writer(writer::In::PassOn(id, answer))),
        pauses::Out::View(view) => deliver(Delivery::Snapshot(snapshot::In::OperatorPolicy(view))),
        pauses::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
    }
}

fn answered(id: RequestId, answer: Answer) -> Delivery {
    Delivery::Host(HostMessage::Answered(id, answer))
}

/// Returns the reply to a message for a pool that does not exist, if the message does not start the pool. The
/// operator gets an answer; the other messages are dropped.
#[must_use]
pub fn reply_for_missing_pool(input: &queue::In) -> Option<Delivery> {
    match input {
        queue::In::Attempt(id) => Some(answered(*id, Answer::Refused(Refusal::Unknown))),
        queue::In::Assigned(_)
        | queue::In::Rewrite
        | queue::In::Observed(_)
        | queue::In::Take(_)
        | queue::In::Pace(_)
        | queue::In::Finished(..)
        | queue::In::Verified(_) => None,
    }
}

fn to_pool(pool: PoolId, input: queue::In) -> Delivery {
    Delivery::Pool(pool, PoolMessage::In(input))
}
