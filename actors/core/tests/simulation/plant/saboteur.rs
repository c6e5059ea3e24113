//! Applies planted bugs to deliveries on their way to an edge.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::arm::Provisioning;
use model::assignment::Assignment;
use model::error::NotManageable;
use model::ids::{Epoch, Family, NodeName, NodeUid};
use model::leadership::Leadership;
use model::level::{Provenance, SurplusPolicy};
use model::machine::Now;
use model::node::{NodeFact, NodeState};
use model::object::{AddressType, ExclusionRule, Object, TO_BE_DELETED};
use model::view::{NodePool, NodePoolState};
use model::xds::ResourceValue;
use model::xds::cache::Cached;
use model::xds::dump::XdsView;
use model::xds::facts::{Body, Received, ResourceKey};
use model::xds::source::{Assigned, Note, SourceFact};
use model::xds::stream::StreamEvent;
use pool_core::route::{Delivery, HostMessage, PoolMessage};
use pools::{directory, queue};
use reporting::{events, snapshot};
use sources::xds_source;
use sources::{informer, watch};

use super::Plant;
use crate::cluster::address;
use crate::random::Random;
use crate::served::Health;

/// Applies a planted bug to deliveries on their way to an edge.
pub struct Saboteur {
    plant: Option<Plant>,
    random: Random,
    /// A delivery that waits until another one has overtaken it.
    held: Option<Delivery>,
    /// Number of levels that stopped removals so far.
    stopped: u32,
    /// First UID of each name, and the last reported one.
    uids: BTreeMap<NodeName, NodeUid>,
    nodes: BTreeMap<NodeName, Arc<NodeFact>>,
    /// First dump of each resource.
    dumped: BTreeMap<ResourceKey, Cached<ResourceValue>>,
    /// Pools of each node, as last shown while some of them waited.
    waiting: BTreeMap<NodeName, Vec<NodePool>>,
}

/// Number of levels after which the planted breaker ends.
const STOPPED_FOR: u32 = 60;

impl Saboteur {
    /// Creates one that does nothing without a planted bug.
    pub fn new(plant: Option<Plant>, random: Random) -> Saboteur {
        let (uids, nodes, dumped, waiting) = Default::default();
        Saboteur { plant, random, held: None, stopped: 0, uids, nodes, dumped, waiting }
    }

    /// Returns what remains of a delivery.
    pub fn pass(&mut self, delivery: Delivery) -> Vec<Delivery> {
        match self.plant {
            Some(plant) => self.tamper(plant, delivery),
            None => vec![delivery],
        }
    }

    #[expect(clippy::too_many_lines, reason = "each bug is named once")]
    fn tamper(&mut self, plant: Plant, mut delivery: Delivery) -> Vec<Delivery> {
        tamper_policy(plant, &mut delivery);
        tamper_losses(plant, &mut delivery);
        let lost = match (plant, &mut delivery) {
            (Plant::OutcomesLost, Delivery::Pool(_, PoolMessage::In(queue::In::Finished(..)))) => {
                self.random.per_mille(50)
            }
            (Plant::TakesUnanswered, Delivery::Writer(writer::In::Taken(..))) => self.random.per_mille(50),
            (Plant::PostFailureUnread, Delivery::Events(events::In::Posted { answer, .. })) => {
                if answer.is_err() {
                    *answer = Ok("event-unread".into());
                }
                false
            }
            (plant, delivery) if is_lost(plant, delivery) => true,
            (Plant::SecondReadAtOnce, delivery) => at_once(delivery),
            (
                Plant::DoomedExcluded,
                Delivery::Informer(informer::In::Seen(
                    _,
                    _,
                    model::watch::WatchUpdate::Object(Object::Node(node)),
                )),
            ) => {
                if node.taints.iter().any(|taint| &*taint.key == TO_BE_DELETED) {
                    Arc::make_mut(node).marks.control_plane = true;
                }
                false
            }
            (Plant::FailedIsInSync, Delivery::Pool(_, PoolMessage::In(queue::In::Observed(observation)))) => {
                let facts = Arc::make_mut(&mut observation.facts);
                if facts.provisioning == Provisioning::Failed {
                    facts.provisioning = Provisioning::Succeeded;
                }
                false
            }
            (Plant::OutOfSyncReset, Delivery::Snapshot(snapshot::In::Pool(view))) => {
                let view = Arc::make_mut(view);
                if let (Some(out_of_sync), Some(at)) = (&mut view.out_of_sync, view.observed_at) {
                    out_of_sync.since = at;
                }
                false
            }
            (
                Plant::ExcludedUnshown | Plant::DownsUnshown | Plant::GoneKeepsWaiting,
                Delivery::Snapshot(input),
            ) => {
                self.tamper_views(plant, input);
                false
            }
            (
                Plant::FamiliesUnited,
                Delivery::Informer(informer::In::Seen(
                    _,
                    _,
                    model::watch::WatchUpdate::Object(Object::Slice(slice)),
                )),
            ) => {
                Arc::make_mut(slice).address_type = AddressType::Unset;
                false
            }
            (plant, Delivery::Directory(directory::In::Source(_, fact))) => {
                tamper_source(plant, fact);
                plant == Plant::SourceFactsLost && self.random.per_mille(200)
            }
            (
                Plant::InvalidIsUsed,
                Delivery::XdsSource(xds_source::In::StreamEvent(StreamEvent::Response(_, response, _))),
            ) => {
                response.resources.iter_mut().for_each(repair);
                false
            }
            (
                Plant::DrainingServes,
                Delivery::XdsSource(xds_source::In::StreamEvent(StreamEvent::Response(_, response, _))),
            ) => {
                response.resources.iter_mut().for_each(revive);
                false
            }
            (Plant::DumpEmptied | Plant::DumpStale, Delivery::Snapshot(snapshot::In::Xds(view))) => {
                self.tamper_dump(plant, Arc::make_mut(view));
                false
            }
            (Plant::DoubtForgotten | Plant::BreakerLeaks | Plant::BreakerEndsByTime, delivery) => {
                self.tamper_guards(plant, delivery)
            }
            (
                Plant::DownsUnasked
                | Plant::DownsRankLast
                | Plant::AllDownsOurs
                | Plant::ForeignIsOurs
                | Plant::SetsLost
                | Plant::WithdrawLost,
                Delivery::Writer(input),
            ) => self.tamper_admin(plant, input),
            (_, Delivery::AdminState(input)) => self.tamper_admin_state(plant, input),
            (Plant::PauseIgnored, Delivery::Pool(_, PoolMessage::In(queue::In::Assigned(assignment)))) => {
                *assignment =
                    Arc::new(Assignment { paused: Default::default(), ..Assignment::clone(assignment) });
                false
            }
            (
                Plant::StandingWithoutEnd,
                Delivery::Writer(writer::In::Leadership(Leadership::Leading { until, .. })),
            ) => {
                *until = Now::NEVER;
                false
            }
            (Plant::ConfirmedAtOnce, Delivery::Watcher(kind, watch::In::Confirm { epoch, .. })) => {
                if *kind == model::object::Kind::Nodes {
                    delivery = Delivery::Directory(directory::In::Confirmed(*epoch));
                    false
                } else {
                    true
                }
            }
            (
                Plant::GateOfBothVerbs,
                Delivery::Arm(pool_core::route::ArmMessage::Gates { reads_until, writes_until }),
            ) => {
                let later = (*reads_until).max(*writes_until);
                (*reads_until, *writes_until) = (later, later);
                false
            }
            (
                Plant::RetriesUncounted,
                Delivery::Pool(_, PoolMessage::In(queue::In::Finished(_, outcome))),
            ) => {
                if let model::attempt::Outcome::Retriable { .. } = outcome {
                    *outcome = model::attempt::Outcome::NotGranted;
                }
                false
            }
            (
                Plant::MissingRuleReported,
                Delivery::Pool(_, PoolMessage::In(queue::In::Finished(_, outcome))),
            ) => {
                if let model::attempt::Outcome::NotManageable(reason) = outcome {
                    *reason = NotManageable::OutboundRule;
                }
                false
            }
            (Plant::ParkingIgnored, Delivery::Pool(_, PoolMessage::In(queue::In::Finished(_, outcome)))) => {
                if let model::attempt::Outcome::Retriable { eligible_at, .. } = outcome {
                    *eligible_at = None;
                }
                false
            }
            (Plant::FactsReordered, Delivery::Directory(directory::In::Service(_, Some(_)))) => {
                return self.reorder(delivery);
            }
            (Plant::RemovalsLate, Delivery::Pool(_, PoolMessage::In(queue::In::Assigned(assignment))))
                if assignment.services.is_empty() =>
            {
                self.held = Some(delivery);
                return Vec::new();
            }
            (Plant::RemovalsLate, Delivery::Pool(_, PoolMessage::In(queue::In::Finished(..)))) => {
                let mut all = vec![delivery];
                all.extend(self.held.take());
                return all;
            }
            (_, _) => false,
        };
        if lost { Vec::new() } else { vec![delivery] }
    }

    /// Changes the inputs of the guards; loses nothing.
    fn tamper_guards(&mut self, plant: Plant, delivery: &mut Delivery) -> bool {
        match (plant, delivery) {
            (Plant::DoubtForgotten, Delivery::Directory(directory::In::Service(_, Some(fact)))) => {
                let forgetful = Arc::make_mut(fact);
                forgetful.provenance = Provenance::Watch;
                forgetful.parts.iter_mut().for_each(|(_, part)| part.slices = part.slices.max(1));
            }
            (
                Plant::BreakerLeaks | Plant::BreakerEndsByTime,
                Delivery::Pool(_, PoolMessage::In(queue::In::Assigned(assignment))),
            ) if assignment.level.keeps == SurplusPolicy::KeepAll => {
                self.stopped += 1;
                if plant == Plant::BreakerLeaks || self.stopped > STOPPED_FOR {
                    let leaking = Arc::make_mut(assignment);
                    (leaking.level.keeps, leaking.held) = (SurplusPolicy::RemoveAll, None);
                }
            }
            (_, _) => {}
        }
        false
    }

    /// Changes the dump of resources.
    fn tamper_dump(&mut self, plant: Plant, view: &mut XdsView) {
        if plant == Plant::DumpEmptied {
            view.dump.resources.clear();
        }
        for resource in &mut view.dump.resources {
            if let Some(cached) = &mut resource.cached {
                *cached = self.dumped.entry(resource.key.clone()).or_insert_with(|| cached.clone()).clone();
            }
        }
    }

    /// Changes the view of a Service, a pool or a node.
    fn tamper_views(&mut self, plant: Plant, input: &mut snapshot::In) {
        match (plant, input) {
            (Plant::ExcludedUnshown, snapshot::In::Service(_, _, Some(view))) => {
                Arc::make_mut(view).excluded.clear();
            }
            (Plant::DownsUnshown, snapshot::In::Pool(view)) => {
                Arc::make_mut(view).observed_down.clear();
            }
            (Plant::GoneKeepsWaiting, snapshot::In::Node(name, Some(view))) => {
                if view.count(NodePoolState::Waiting) > 0 {
                    self.waiting.insert(name.clone(), view.pools.clone());
                } else if view.state == NodeState::Gone
                    && let Some(pools) = self.waiting.get(name)
                {
                    view.pools.clone_from(pools);
                }
            }
            (_, _) => {}
        }
    }

    /// Changes an input of the writer about admin states; returns whether it is lost.
    fn tamper_admin(&mut self, plant: Plant, input: &mut writer::In) -> bool {
        match (plant, input) {
            (Plant::DownsRankLast, writer::In::AdminDue(_, Some(due))) => {
                due.urgency = model::draining::AdminUrgency::Restore;
                false
            }
            (Plant::DownsUnasked, writer::In::AdminDue(_, Some(_))) => self.random.per_mille(900),
            (Plant::AllDownsOurs, writer::In::Draining(draining)) => {
                let families = [Family::V4, Family::V6];
                let all = (0..200).flat_map(|number| families.map(|family| address(number, family).into()));
                Arc::make_mut(draining).restorable.extend(all);
                false
            }
            (Plant::ForeignIsOurs, writer::In::Draining(draining)) => {
                Arc::make_mut(draining).foreign.clear();
                false
            }
            (Plant::SetsLost, writer::In::Draining(_)) => self.random.per_mille(300),
            (Plant::WithdrawLost, writer::In::AdminDue(_, None)) => true,
            (_, _) => false,
        }
    }

    /// Changes an input of the AdminState machine; returns whether it is lost.
    fn tamper_admin_state(&mut self, plant: Plant, input: &mut nodes::In) -> bool {
        match (plant, input) {
            (Plant::UidIgnored, nodes::In::Node(name, Some(fact))) => {
                let uid = self.uids.entry(name.clone()).or_insert_with(|| fact.uid.clone());
                Arc::make_mut(fact).uid = uid.clone();
                false
            }
            (Plant::BreakerOfDownsOff, nodes::In::Node(_, Some(fact))) => {
                Arc::make_mut(fact).excluded = Some(ExclusionRule::ControlPlane);
                false
            }
            (Plant::CreationIgnored, nodes::In::Node(_, Some(fact))) => {
                Arc::make_mut(fact).created = None;
                false
            }
            (Plant::GoneIsRestored, nodes::In::Node(name, fact)) => {
                if let Some(fact) = fact {
                    self.nodes.insert(name.clone(), Arc::clone(fact));
                } else if let Some(known) = self.nodes.get(name) {
                    let stays = NodeFact { taints: Vec::new(), preempt: None, ..NodeFact::clone(known) };
                    *fact = Some(Arc::new(stays));
                }
                false
            }
            (Plant::OffUnheard, nodes::In::OperatorPolicy { policy, .. }) => {
                Arc::make_mut(policy).admin_state_off = false;
                false
            }
            (Plant::FailureForgotten, nodes::In::AdminStates(_, states)) => {
                states.ended.as_ref().is_some_and(|end| end.result.is_err())
            }
            (_, _) => false,
        }
    }

    fn reorder(&mut self, delivery: Delivery) -> Vec<Delivery> {
        if self.held.is_none() && self.random.per_mille(300) {
            self.held = Some(delivery);
            return Vec::new();
        }
        let mut all = vec![delivery];
        all.extend(self.held.take());
        all
    }
}

/// Treats a second read as done when it is requested; returns whether a delivery is lost.
fn at_once(delivery: &mut Delivery) -> bool {
    let Delivery::Watcher(kind, watch::In::Reread(read)) = delivery else {
        return false;
    };
    let is_last = *kind == model::object::Kind::Nodes;
    *delivery = Delivery::Directory(directory::In::Reread(*read));
    !is_last
}

/// Changes a fact about a source.
fn tamper_source(plant: Plant, fact: &mut SourceFact) {
    let spoilt = match (plant, &fact.assigned, &fact.note) {
        (Plant::AmbientDrops, Assigned::Usable(_), Note::Errors(faults)) => {
            faults.first().cloned().map(Assigned::Dropped)
        }
        (Plant::UnknownIsDropped, Assigned::Unknown(Some(fault)), _) => {
            Some(Assigned::Dropped(fault.clone()))
        }
        (Plant::DroppedIsUnknown, Assigned::Dropped(fault), _) => {
            Some(Assigned::Unknown(Some(fault.clone())))
        }
        (_, _, _) => None,
    };
    fact.assigned = spoilt.unwrap_or_else(|| fact.assigned.clone());
}

/// Removes the faults of an assignment.
fn repair(resource: &mut Received) {
    let Ok(Body::Endpoints(assignment)) = &mut resource.body else { return };
    let gap = assignment.localities.iter().map(|locality| locality.priority).min().unwrap_or(0);
    for locality in &mut assignment.localities {
        locality.priority -= gap;
        locality.endpoints.iter_mut().for_each(|endpoint| endpoint.weight = None);
    }
}

/// Turns draining endpoints into serving ones.
fn revive(resource: &mut Received) {
    let Ok(Body::Endpoints(assignment)) = &mut resource.body else { return };
    let endpoints = assignment.localities.iter_mut().flat_map(|locality| &mut locality.endpoints);
    endpoints.filter(|endpoint| endpoint.health == Health::Draining.number()).for_each(|endpoint| {
        endpoint.health = Health::Healthy.number();
    });
}

/// Changes the policy.
fn tamper_policy(plant: Plant, delivery: &mut Delivery) {
    match (plant, delivery) {
        (
            Plant::PausesUnheard,
            Delivery::Writer(writer::In::OperatorPolicy { policy, .. })
            | Delivery::Directory(directory::In::OperatorPolicy { policy, .. }),
        ) => *policy = Arc::default(),
        (
            Plant::PolicyOfAnyTerm,
            Delivery::Writer(writer::In::OperatorPolicy { term, .. })
            | Delivery::Directory(directory::In::OperatorPolicy { term, .. })
            | Delivery::Events(events::In::OperatorPolicy { term, .. }),
        ) => *term = Some(Epoch(u64::MAX)),
        (_, _) => {}
    }
}

/// Changes why Services released addresses.
fn tamper_losses(plant: Plant, delivery: &mut Delivery) {
    let Delivery::Directory(directory::In::Service(_, Some(fact))) = delivery else { return };
    if plant == Plant::EndpointLossesCounted {
        let fact = Arc::make_mut(fact);
        fact.provenance = fact.provenance.max(Provenance::Reconnect);
    }
    if plant == Plant::NodeLossesUncounted {
        for (_, part) in Arc::make_mut(fact).parts.iter_mut() {
            part.excluded.retain(|_, node| !node.why.is_everywhere());
            part.last_known.clear();
        }
    }
}

/// Returns whether a planted bug loses every delivery of this kind.
fn is_lost(plant: Plant, delivery: &Delivery) -> bool {
    matches!(
        (plant, delivery),
        (Plant::LostIsWritten, Delivery::Pool(_, PoolMessage::In(queue::In::Verified(_))))
            | (
                Plant::LossUnheard | Plant::StandingWithoutEnd,
                Delivery::Writer(writer::In::Leadership(Leadership::Standby)),
            )
            | (Plant::LossUnheard, Delivery::Events(events::In::Leadership(Leadership::Standby)))
            | (Plant::DrainingUnheard, Delivery::Writer(writer::In::Draining(_)))
            | (Plant::RewritesLost, Delivery::Pool(_, PoolMessage::In(queue::In::Rewrite)))
            | (Plant::UnreadUnheard, Delivery::Writer(writer::In::Unread(..)))
            | (Plant::RollbackIgnored, Delivery::Host(HostMessage::StorageRollback(_)))
    )
}
