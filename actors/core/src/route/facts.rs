//! Which deliveries are facts, and the subject of each. On one edge, a newer fact replaces the older one about the
//! same subject, and keeps the parts of it that must not be lost (docs/design/model-and-mechanisms.md, A3).

use super::{ArmMessage, Delivery, FactKey, HostMessage, PoolMessage};
use coordination::leader;
use model::services::ServiceFact;
use pools::{directory, discovery, queue};
use reporting::{events, snapshot};
use sources::informer;

impl Delivery {
    /// Returns the subject, if the delivery is a fact.
    #[must_use]
    pub fn fact(&self) -> Option<FactKey> {
        match self {
            Delivery::Directory(input) => directory_fact(input),
            Delivery::Discovery(input) => match input {
                discovery::In::Service(uid, _) => Some(FactKey::Service(uid.clone())),
                discovery::In::ListsSynced
                | discovery::In::Sent(_)
                | discovery::In::Read { .. }
                | discovery::In::Missing(_)
                | discovery::In::Compare(..)
                | discovery::In::ForeignRelease
                | discovery::In::ReadSoon
                | discovery::In::StartRound => None,
            },
            Delivery::Pool(pool, PoolMessage::In(input)) => match input {
                queue::In::Assigned(_) => Some(FactKey::Assignment(pool.clone())),
                queue::In::Observed(_) => Some(FactKey::Observation(pool.clone())),
                queue::In::Take(_)
                | queue::In::Rewrite
                | queue::In::Attempt(_)
                | queue::In::Pace(_)
                | queue::In::Finished(_, _)
                | queue::In::Verified(_) => None,
            },
            Delivery::Writer(input) => writer_fact(input),
            Delivery::AdminState(input) => admin_fact(input),
            Delivery::Leader(input) => match input {
                leader::In::Gates(_) => Some(FactKey::GateTimes),
                leader::In::OutOfSync(_) => Some(FactKey::OutOfSync),
                leader::In::Start
                | leader::In::Lease(..)
                | leader::In::Opened(_)
                | leader::In::Shutdown
                | leader::In::WriterQuiet { .. } => None,
            },
            Delivery::Events(events::In::Leadership(_)) => Some(FactKey::Leadership),
            Delivery::Events(events::In::OperatorPolicy { .. })
            | Delivery::Informer(informer::In::OperatorPolicy(_)) => Some(FactKey::OperatorPolicy),
            Delivery::Snapshot(input) => snapshot_fact(input),
            Delivery::Arm(ArmMessage::Gates { .. }) => Some(FactKey::Gates),
            Delivery::Host(HostMessage::Publish(_)) => Some(FactKey::Snapshot),
            Delivery::Informer(informer::In::Seen(_, _, seen)) => seen.object().map(FactKey::Object),
            Delivery::Watcher(_, input) => input.object().map(FactKey::Object),
            Delivery::Informer(informer::In::Freshness(..) | informer::In::Reporting(_))
            | Delivery::Pauses(_)
            | Delivery::Pool(_, PoolMessage::Forget)
            | Delivery::Events(events::In::Report(_) | events::In::Ended(_) | events::In::Posted { .. })
            | Delivery::Arm(ArmMessage::Call(_))
            | Delivery::Kubernetes(_)
            | Delivery::XdsSource(_)
            | Delivery::Xds(_)
            | Delivery::Metrics(_)
            | Delivery::Host(
                HostMessage::Answered(..)
                | HostMessage::EventDropped(_)
                | HostMessage::NoticeIgnored(..)
                | HostMessage::Done(_)
                | HostMessage::StorageRollback(_)
                | HostMessage::Quarantined(..),
            ) => None,
        }
    }

    /// Keeps the parts of a replaced fact that must not be lost: an uncertain provenance (G1), the time of its oldest
    /// trigger, the last good state of an object that cannot be decoded, the notice of a deleted Event (N1), and the
    /// later of two reads of a pool.
    pub fn absorb(&mut self, older: &Delivery) {
        if let (
            Delivery::Pool(_, PoolMessage::In(queue::In::Observed(newer))),
            Delivery::Pool(_, PoolMessage::In(queue::In::Observed(older))),
        ) = (&mut *self, older)
            && older.began > newer.began
        {
            *newer = older.clone();
            return;
        }
        match (self, older) {
            (
                Delivery::Directory(directory::In::Service(_, Some(newer))),
                Delivery::Directory(directory::In::Service(_, Some(older))),
            ) => ServiceFact::absorb(newer, older),
            (
                Delivery::Directory(directory::In::Source(_, newer)),
                Delivery::Directory(directory::In::Source(_, older)),
            ) => newer.absorb(older),
            (
                Delivery::Informer(informer::In::Seen(_, read, newer)),
                Delivery::Informer(informer::In::Seen(_, before, older)),
            ) => newer.absorb(*read, (*before, older)),
            (Delivery::Watcher(_, newer), Delivery::Watcher(_, older)) => newer.absorb(older),
            (
                Delivery::AdminState(nodes::In::Preemption(newer)),
                Delivery::AdminState(nodes::In::Preemption(older)),
            ) => newer.absorb_notice(older),
            (
                Delivery::Writer(writer::In::Unread(_, newer)),
                Delivery::Writer(writer::In::Unread(_, older)),
            ) => {
                *newer = (*newer).max(*older);
            }
            (_, _) => {}
        }
    }
}

fn directory_fact(input: &directory::In) -> Option<FactKey> {
    match input {
        directory::In::Service(uid, _) => Some(FactKey::Service(uid.clone())),
        directory::In::Source(name, _) => Some(FactKey::Source(name.clone())),
        directory::In::DrainingAddresses(_) => Some(FactKey::DrainingAddresses),
        directory::In::Lb(observation) => Some(FactKey::Lb(observation.lb.clone())),
        directory::In::Members(pool, _) => Some(FactKey::Members(pool.clone())),
        directory::In::OperatorPolicy { .. } => Some(FactKey::OperatorPolicy),
        directory::In::ReadUpTo(_) => Some(FactKey::ReadUpTo),
        directory::In::ListsSynced
        | directory::In::DiscoverySynced
        | directory::In::Release(..)
        | directory::In::Confirmed(_)
        | directory::In::Retired(_)
        | directory::In::RewriteSkipped(_)
        | directory::In::Reporting(_)
        | directory::In::Reread(_) => None,
    }
}

fn writer_fact(input: &writer::In) -> Option<FactKey> {
    match input {
        writer::In::MembershipDue(pool, _) | writer::In::Withdraw(pool) => {
            Some(FactKey::MembershipDue(pool.clone()))
        }
        writer::In::AdminDue(pool, _) => Some(FactKey::AdminDue(pool.clone())),
        writer::In::Leadership(_) => Some(FactKey::Leadership),
        writer::In::OperatorPolicy { .. } => Some(FactKey::OperatorPolicy),
        writer::In::RecordedGates(_) => Some(FactKey::GateTimes),
        writer::In::AwaitingIngress(_) => Some(FactKey::AwaitingIngress),
        writer::In::Draining(_) => Some(FactKey::Draining),
        writer::In::Unread(pool, _) => Some(FactKey::Unread(pool.clone())),
        writer::In::ReadUpTo(_) => Some(FactKey::ReadUpTo),
        writer::In::Taken(..)
        | writer::In::Attempt(..)
        | writer::In::OpenGates(..)
        | writer::In::PassOn(..)
        | writer::In::Read { .. }
        | writer::In::Answered(..)
        | writer::In::Headroom(..)
        | writer::In::Lease(..)
        | writer::In::LockFailures(..)
        | writer::In::Shutdown => None,
    }
}

fn admin_fact(input: &nodes::In) -> Option<FactKey> {
    match input {
        nodes::In::Node(name, _) => Some(FactKey::Node(name.clone())),
        nodes::In::Lb(observation) => Some(FactKey::Lb(observation.lb.clone())),
        nodes::In::Preemption(seen) => seen.object().map(FactKey::Object),
        nodes::In::SourceAdminStates(pool, _) => Some(FactKey::SourceAdminStates(pool.clone())),
        nodes::In::Leadership(_) => Some(FactKey::Leadership),
        nodes::In::OperatorPolicy { .. } => Some(FactKey::OperatorPolicy),
        // Admin states of a pool are not merged on the edge; the AdminState machine replaces older ones. A result,
        // and a Down that was read before our PUT, must reach the machine (N3, N4).
        nodes::In::AdminStates(..)
        | nodes::In::Confirmed(_)
        | nodes::In::ConfigMap(..)
        | nodes::In::Tainted(..)
        | nodes::In::Release(..)
        | nodes::In::Reporting(_)
        | nodes::In::Opened(_) => None,
    }
}

fn snapshot_fact(input: &snapshot::In) -> Option<FactKey> {
    match input {
        snapshot::In::Pool(view) => Some(FactKey::PoolView(view.pool.clone())),
        snapshot::In::PoolGone(pool) => Some(FactKey::PoolView(pool.clone())),
        snapshot::In::Service(_, key, _) => Some(FactKey::ServiceView(key.clone())),
        snapshot::In::Lane(view) => Some(FactKey::LaneView(view.lb.clone())),
        snapshot::In::Gate(class, _) => Some(FactKey::GateView(*class)),
        snapshot::In::Source(view) => Some(FactKey::SourceView(view.kind)),
        snapshot::In::Lb(view) => Some(FactKey::LbView(view.lb.clone())),
        snapshot::In::Leadership(_) => Some(FactKey::LeadershipView),
        snapshot::In::OperatorPolicy(_) => Some(FactKey::PolicyView),
        snapshot::In::SharedLease(_) => Some(FactKey::SharedLeaseView),
        snapshot::In::Guards(_) => Some(FactKey::GuardsView),
        snapshot::In::Refused(pool, _) => Some(FactKey::RefusedView(pool.clone())),
        snapshot::In::Xds(_) => Some(FactKey::XdsView),
        snapshot::In::Node(name, _) => Some(FactKey::NodeView(name.clone())),
        snapshot::In::Known(name, _) => Some(FactKey::Node(name.clone())),
        snapshot::In::Admin(_) => Some(FactKey::AdminView),
        snapshot::In::ListsSynced | snapshot::In::DiscoverySynced | snapshot::In::OutOfSync(_) => None,
    }
}
