//! Bugs that are planted into the world, never into the machines: each stands for a mistake that a change of a
//! machine, of a shell or of a port could make. A simulation that does not find them proves nothing.

use pool_core::assignment::Assignment;
use pool_core::ids::Family;
use pool_core::machine::Now;
use pool_core::route::{Delivery, PoolMessage};
use pool_core::writer::Standing;
use pool_core::{directory, events, leader, queue, watch, writer};

use crate::cluster::address;
use crate::random::Random;
use crate::story::{Faults, Size};

/// One planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// Some outcomes never reach their pool.
    OutcomesLost,
    /// A Service's facts overtake each other on their way to the Directory.
    FactsReordered,
    /// Every PUT carries the first entity tag that was ever seen.
    StaleEtag,
    /// A PUT carries the newest entity tag instead of that of the GET it was made from.
    EtagRefreshed,
    /// A PUT that was accepted counts as carried out.
    AcceptedIsWritten,
    /// A PUT that failed counts as done, and nobody verifies it.
    LostIsWritten,
    /// Every later list shows what the first one showed.
    StaleLists,
    /// Every later list of EndpointSlices is empty.
    EmptyLists,
    /// Deletions on a watch are not heard.
    DeletionsOverheard,
    /// The guard of emptiness and the removal delay are off.
    GuardOff,
    /// Rules of nobody are not seen.
    ProofHidden,
    /// Pauses are not passed on.
    PauseIgnored,
    /// Pools do not answer each Take.
    TakesUnanswered,
    /// Permits are not looked at when a PUT is sent.
    PermitUnchecked,
    /// Leadership is believed to last for ever.
    StandingWithoutEnd,
    /// The loss of leadership does not reach the writer and the emitter.
    LossUnheard,
    /// A new leader does not wait for the last writes of one that did not let go.
    SettleZero,
    /// Our Lease counts as let go of by its holder also where a person has emptied it.
    EmptiedIsReleased,
    /// A new leader finds every load balancer at rest.
    LanesSeenAtOnce,
    /// The terms of different leaders are not told apart.
    EpochNotRaised,
    /// A term is confirmed at once, without most recent lists.
    ConfirmedAtOnce,
    /// The shared Lease is let go of while a PUT is unanswered.
    LeaseLetGoEarly,
    /// Somebody else's hold of the shared Lease counts as expired.
    ForeignHoldExpired,
    /// A write of a Lease that somebody else forestalled counts as done.
    ConflictIsSuccess,
    /// A 429 that concerns one load balancer closes the subscription.
    LaneCodeUnread,
    /// A 429 of the subscription is taken for one that concerns one load balancer.
    QuotaTakenForLane,
    /// A gate closes both verb classes.
    GateOfBothVerbs,
    /// The budgets are ignored.
    BudgetIgnored,
    /// The cloud configuration's rates are ignored.
    RateLimitIgnored,
    /// Changes are retried without end.
    RetriesUnlimited,
    /// Failed attempts cost nothing and are told to nobody.
    RetriesUncounted,
    /// Pools are not parked.
    ParkingIgnored,
    /// A removal crosses the outcome of an attempt.
    RemovalsLate,
    /// The draining set does not reach the writer.
    DrainingUnheard,
    /// Some Downs never become due.
    DownsUnasked,
    /// A Down is no more urgent than a restore.
    DownsRankLast,
    /// Every Down counts as ours.
    AllDownsOurs,
    /// A write of admin states takes a member out.
    AdminTakesMembers,
    /// Downs go without the shared Lease where nobody has allowed it.
    BypassUnasked,
    /// That a process is to be passive does not reach its Leader.
    PassiveUnheard,
    /// That a process need not be passive any more does not either.
    PassiveForEver,
    /// The notes of other starts are not seen.
    NotesUncounted,
    /// Our Lease counts as let go of where a person has put somebody else's name into it.
    RenamedIsReleased,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 43] = [
        Plant::OutcomesLost,
        Plant::FactsReordered,
        Plant::StaleEtag,
        Plant::EtagRefreshed,
        Plant::AcceptedIsWritten,
        Plant::LostIsWritten,
        Plant::StaleLists,
        Plant::EmptyLists,
        Plant::DeletionsOverheard,
        Plant::GuardOff,
        Plant::ProofHidden,
        Plant::PauseIgnored,
        Plant::TakesUnanswered,
        Plant::PermitUnchecked,
        Plant::StandingWithoutEnd,
        Plant::LossUnheard,
        Plant::SettleZero,
        Plant::EmptiedIsReleased,
        Plant::LanesSeenAtOnce,
        Plant::EpochNotRaised,
        Plant::ConfirmedAtOnce,
        Plant::LeaseLetGoEarly,
        Plant::ForeignHoldExpired,
        Plant::ConflictIsSuccess,
        Plant::LaneCodeUnread,
        Plant::QuotaTakenForLane,
        Plant::GateOfBothVerbs,
        Plant::BudgetIgnored,
        Plant::RateLimitIgnored,
        Plant::RetriesUnlimited,
        Plant::RetriesUncounted,
        Plant::ParkingIgnored,
        Plant::RemovalsLate,
        Plant::DrainingUnheard,
        Plant::DownsUnasked,
        Plant::DownsRankLast,
        Plant::AllDownsOurs,
        Plant::AdminTakesMembers,
        Plant::BypassUnasked,
        Plant::PassiveUnheard,
        Plant::PassiveForEver,
        Plant::NotesUncounted,
        Plant::RenamedIsReleased,
    ];

    /// The sort of world in which the bug shows, where not every sort will do.
    pub fn world(self, size: Size) -> Size {
        let faults = size.faults;
        let calm =
            Faults { kube: false, processes: false, leases: false, edges: false, crashes: false, ..faults };
        match self {
            Plant::PermitUnchecked => {
                let faults = Faults { processes: true, edges: true, arm: false, ..calm };
                Size { replicas: 2 + size.replicas % 2, seconds: 240, faults, ..size }
            }
            Plant::StandingWithoutEnd | Plant::LossUnheard | Plant::EpochNotRaised => {
                let faults = Faults { kube: true, processes: true, leases: true, arm: false, ..faults };
                Size { replicas: 2 + size.replicas % 2, seconds: 240, faults, ..size }
            }
            Plant::ConfirmedAtOnce => {
                let faults = Faults { kube: true, processes: true, arm: false, ..calm };
                Size { replicas: 2 + size.replicas % 2, seconds: 240, faults, ..size }
            }
            Plant::EmptiedIsReleased | Plant::RenamedIsReleased => {
                let faults = Faults { leases: true, processes: true, ..calm };
                Size { replicas: 2 + size.replicas % 2, seconds: 240, faults, ..size }
            }
            Plant::LanesSeenAtOnce => {
                let faults = Faults { processes: true, arm: false, ..calm };
                Size { balancers: 1, replicas: 2 + size.replicas % 2, seconds: 240, faults, ..size }
            }
            Plant::PauseIgnored => Size { seconds: 240, faults: calm, ..size },
            Plant::LaneCodeUnread | Plant::QuotaTakenForLane | Plant::GateOfBothVerbs => {
                Size { balancers: 3, seconds: 240, faults: Faults { arm: true, ..calm }, ..size }
            }
            Plant::RateLimitIgnored => {
                Size { services: 20, balancers: 3, seconds: 240, faults: calm, ..size }
            }
            Plant::BudgetIgnored => {
                let faults = Faults { arm: true, ..calm };
                Size { services: 1 + size.services % 4, seconds: 240, faults, ..size }
            }
            Plant::DrainingUnheard | Plant::AdminTakesMembers | Plant::BypassUnasked => {
                Size { seconds: 240, faults: calm, ..size }
            }
            Plant::DownsUnasked | Plant::DownsRankLast => {
                Size { services: 12, balancers: 1, seconds: 240, faults: calm, ..size }
            }
            Plant::AllDownsOurs => Size { seconds: 240, faults: Faults { meddling: true, ..calm }, ..size },
            Plant::PassiveUnheard | Plant::PassiveForEver | Plant::NotesUncounted => {
                Size { replicas: 1, seconds: 240, faults: Faults { crashes: true, ..calm }, ..size }
            }
            Plant::EtagRefreshed => {
                Size { seconds: 240, faults: Faults { meddling: true, edges: true, ..calm }, ..size }
            }
            Plant::RetriesUnlimited | Plant::ParkingIgnored => {
                Size { seconds: 240, faults: Faults { arm: true, ..calm }, ..size }
            }
            Plant::OutcomesLost
            | Plant::FactsReordered
            | Plant::StaleEtag
            | Plant::AcceptedIsWritten
            | Plant::LostIsWritten
            | Plant::StaleLists
            | Plant::EmptyLists
            | Plant::DeletionsOverheard
            | Plant::GuardOff
            | Plant::ProofHidden
            | Plant::TakesUnanswered
            | Plant::SettleZero
            | Plant::LeaseLetGoEarly
            | Plant::ForeignHoldExpired
            | Plant::ConflictIsSuccess
            | Plant::RetriesUncounted
            | Plant::RemovalsLate => size,
        }
    }
}

/// What a planted bug does to deliveries on their way to an edge.
pub struct Saboteur {
    plant: Option<Plant>,
    random: Random,
    /// A delivery that is held back until another one has overtaken it.
    held: Option<Delivery>,
}

impl Saboteur {
    /// One that does nothing without a plant.
    pub fn new(plant: Option<Plant>, random: Random) -> Saboteur {
        Saboteur { plant, random, held: None }
    }

    /// What becomes of a delivery.
    pub fn pass(&mut self, delivery: Delivery) -> Vec<Delivery> {
        match self.plant {
            Some(plant) => self.spoil(plant, delivery),
            None => vec![delivery],
        }
    }

    fn spoil(&mut self, plant: Plant, mut delivery: Delivery) -> Vec<Delivery> {
        let lost = match (plant, &mut delivery) {
            (Plant::OutcomesLost, Delivery::Pool(_, PoolMessage::In(queue::In::Finished(..)))) => {
                self.random.per_mille(50)
            }
            (Plant::TakesUnanswered, Delivery::Writer(writer::In::Taken(..))) => self.random.per_mille(50),
            (plant, delivery) if is_lost(plant, delivery) => true,
            (Plant::DownsUnasked | Plant::DownsRankLast | Plant::AllDownsOurs, Delivery::Writer(input)) => {
                self.spoil_admin(plant, input)
            }
            (Plant::PauseIgnored, Delivery::Pool(_, PoolMessage::In(queue::In::Assigned(assignment)))) => {
                *assignment =
                    std::sync::Arc::new(Assignment { paused: false, ..Assignment::clone(assignment) });
                false
            }
            (
                Plant::StandingWithoutEnd,
                Delivery::Writer(writer::In::Standing(Standing::Leading { until, .. })),
            ) => {
                *until = Now::NEVER;
                false
            }
            (Plant::ConfirmedAtOnce, Delivery::Watcher(kind, watch::In::Confirm { epoch, .. })) => {
                if *kind == pool_core::object::Kind::Nodes {
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
                if let queue::Outcome::Retriable { .. } = outcome {
                    *outcome = queue::Outcome::NotGranted;
                }
                false
            }
            (Plant::ParkingIgnored, Delivery::Pool(_, PoolMessage::In(queue::In::Finished(_, outcome)))) => {
                if let queue::Outcome::Retriable { eligible_at, .. } = outcome {
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

    /// What a planted bug makes of what a writer is told about admin states; whether that is lost.
    fn spoil_admin(&mut self, plant: Plant, input: &mut writer::In) -> bool {
        if let writer::In::AdminDue(_, due) = input {
            if plant == Plant::DownsRankLast {
                due.urgency = writer::AdminUrgency::Restore;
            }
            return plant == Plant::DownsUnasked && self.random.per_mille(900);
        }
        if let (Plant::AllDownsOurs, writer::In::Draining(draining)) = (plant, input) {
            let families = [Family::V4, Family::V6];
            let all = (0..200).flat_map(|number| families.map(|family| address(number, family)));
            std::sync::Arc::make_mut(draining).restorable.extend(all);
        }
        false
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

/// Whether a planted bug loses every delivery of this sort.
fn is_lost(plant: Plant, delivery: &Delivery) -> bool {
    matches!(
        (plant, delivery),
        (Plant::LostIsWritten, Delivery::Pool(_, PoolMessage::In(queue::In::Verified(_))))
            | (
                Plant::LossUnheard | Plant::StandingWithoutEnd,
                Delivery::Writer(writer::In::Standing(Standing::Standby)),
            )
            | (Plant::LossUnheard, Delivery::Events(events::In::Standing(Standing::Standby)))
            | (Plant::PassiveUnheard, Delivery::Leader(leader::In::Passive(true)))
            | (Plant::PassiveForEver, Delivery::Leader(leader::In::Passive(false)))
            | (Plant::DrainingUnheard, Delivery::Writer(writer::In::Draining(_)))
    )
}
