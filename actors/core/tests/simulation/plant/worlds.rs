//! Kinds of worlds in which planted bugs show: the necessary coincidences happen there often.

use super::Plant;
use crate::story::{Faults, Often, Size};

impl Plant {
    /// Returns a world with incomplete lists and no other faults.
    fn lacking_lists(size: Size, calm: Faults) -> Size {
        let often = Some(Often::LackingLists);
        let faults = Faults { kube: true, arm: false, meddling: false, often, ..calm };
        Size { replicas: 1, nodes: 8, services: 3 + size.services, seconds: 240, faults, ..size }
    }

    /// Returns a large world whose source is broken now and then for longer than a second read takes; in some, terms
    /// change meanwhile, and operators release held removals.
    fn broken_source(self, size: Size, calm: Faults) -> Size {
        let often = Some(Often::BrokenSource);
        let changing = self == Plant::BreakerEndsByTime;
        let faults = Faults { kube: true, arm: false, meddling: false, often, ..calm };
        let faults = Faults { processes: changing, policy: changing, ..faults };
        let replicas = if changing { 2 } else { 1 };
        Size { replicas, nodes: 8, services: 20, seconds: 600, faults, ..size }
    }

    /// Returns a world with many concurrent events and no other faults. Its Services are few enough for the smallest
    /// write budget.
    fn with_mass_events(often: Often, size: Size, calm: Faults) -> Size {
        let faults = Faults { arm: false, meddling: false, leaving: false, often: Some(often), ..calm };
        Size { replicas: 1, nodes: 5, services: 14, seconds: 400, faults, ..size }
    }

    /// Returns a world in which operators pause and resume.
    fn world_of_pauses(self, size: Size, calm: Faults) -> Size {
        let over =
            [(Plant::PausesUnheard, Often::PausedTakeOver), (Plant::PolicyOfAnyTerm, Often::UnheardPause)];
        let often = over.into_iter().find(|(plant, _)| *plant == self).map(|(_, often)| often);
        let processes = often.is_some();
        let leases = self == Plant::PauseNotWritten;
        // A new leader has much to write.
        let (meddling, services) =
            if processes { (true, size.services.max(16)) } else { (calm.meddling, size.services) };
        let faults = Faults { policy: true, processes, leases, meddling, often, ..calm };
        let replicas = if processes || leases { 2 + size.replicas % 2 } else { size.replicas };
        Size { replicas, services, seconds: 240, faults, ..size }
    }

    /// Returns a world in which nodes drain.
    fn leaving_world(self, size: Size, calm: Faults) -> Size {
        let meddling = matches!(self, Plant::AllDownsOurs | Plant::ForeignIsOurs) || calm.meddling;
        let processes = self == Plant::RecordsUnread;
        let arm = self == Plant::FailureForgotten || calm.arm;
        let policy = self == Plant::OffUnheard;
        let faults = Faults { leaving: true, meddling, processes, arm, policy, ..calm };
        let replicas = if processes { 2 } else { size.replicas };
        // There are so many nodes that a storm affects more than may go Down at the same time, even if others are
        // missing.
        let nodes = if self == Plant::BreakerOfDownsOff { 14 } else { size.nodes.max(6) };
        Size { replicas, nodes, seconds: 240, faults, ..size }
    }

    /// Returns the kind of world in which the bug shows, if not every kind will do.
    #[expect(clippy::too_many_lines, reason = "each bug is named once")]
    pub fn world(self, size: Size) -> Size {
        let (faults, calm) = (size.faults, without_masking_faults(size.faults));
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
                let often = Some(Often::StaleTakeOver);
                let faults = Faults { kube: true, processes: true, arm: false, often, ..calm };
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
            Plant::PausesUnheard | Plant::PausesUnread | Plant::PolicyOfAnyTerm | Plant::PauseNotWritten => {
                self.world_of_pauses(size, calm)
            }
            Plant::RollbackIgnored => {
                let faults = Faults { restores: true, arm: false, meddling: false, ..calm };
                Size { seconds: 240, faults, ..size }
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
            Plant::DownsUnasked | Plant::DownsRankLast => {
                let faults = Faults { leaving: true, ..calm };
                Size { services: 12, balancers: 1, seconds: 240, faults, ..size }
            }
            Plant::DrainingUnheard
            | Plant::AdminTakesMembers
            | Plant::BypassUnasked
            | Plant::AllDownsOurs
            | Plant::RecordUnwritten
            | Plant::RecordsUnread
            | Plant::ForeignIsOurs
            | Plant::UidIgnored
            | Plant::BreakerOfDownsOff
            | Plant::TaintsReplaced
            | Plant::NoticeOfFailedQuery
            | Plant::CreationIgnored
            | Plant::ExpiredNoticeCounts
            | Plant::SetsLost
            | Plant::WithdrawLost
            | Plant::FailureForgotten
            | Plant::GoneIsRestored
            | Plant::DownsUnshown
            | Plant::GoneKeepsWaiting
            | Plant::OffUnheard => self.leaving_world(size, calm),
            Plant::DoubtForgotten | Plant::SecondReadAtOnce | Plant::FractionIgnored => {
                Plant::lacking_lists(size, calm)
            }
            Plant::BreakerLeaks | Plant::BreakerEndsByTime => self.broken_source(size, calm),
            Plant::EndpointLossesCounted => Plant::with_mass_events(Often::EmptiedServices, size, calm),
            Plant::NodeLossesUncounted => Plant::with_mass_events(Often::LabelledNodes, size, calm),
            Plant::AmbientDrops
            | Plant::UnknownIsDropped
            | Plant::InvalidIsUsed
            | Plant::SourceFactsLost
            | Plant::DrainingServes
            | Plant::DroppedIsUnknown
            | Plant::DumpEmptied
            | Plant::DumpStale
            | Plant::SilentIsConnected => {
                let faults = Faults { planes: true, arm: false, ..calm };
                Size { seconds: 240, faults, ..size }
            }
            Plant::EtagRefreshed => {
                Size { seconds: 240, faults: Faults { meddling: true, edges: true, ..calm }, ..size }
            }
            Plant::ReadsInSeries => {
                let faults = Faults { arm: false, leaving: false, often: Some(Often::Hanging), ..calm };
                Size { seconds: 150, faults, ..size }
            }
            Plant::SubnetIgnored => {
                Size { seconds: 240, faults: Faults { meddling: true, arm: false, ..calm }, ..size }
            }
            Plant::MissingRuleReported => {
                let faults = Faults { meddling: true, arm: false, leaving: false, ..calm };
                Size { services: size.services.max(8), seconds: 240, faults, ..size }
            }
            Plant::RetriesUnlimited => Size { seconds: 240, faults: Faults { arm: true, ..calm }, ..size },
            Plant::ParkingIgnored | Plant::RetriesUncounted => {
                let faults = Faults { arm: true, often: Some(Often::Refusals), ..calm };
                Size { seconds: 240, faults, ..size }
            }
            Plant::PollsAlone => {
                let often = Some(Often::FailingPolls);
                let faults = Faults { arm: true, meddling: false, often, ..calm };
                Size { replicas: 1, seconds: 400, faults, ..size }
            }
            Plant::EmptyWatchBelieved => {
                let often = Some(Often::EmptyWatches);
                let faults = Faults { kube: true, arm: false, often, ..calm };
                Size { replicas: 1, faults, ..size }
            }
            Plant::FamiliesUnited | Plant::DoomedExcluded | Plant::ExcludedUnshown => {
                Size { services: size.services.max(8), faults: calm, ..size }
            }
            Plant::PostFailureUnread => {
                let often = Some(Often::LostEvents);
                let faults = Faults { kube: true, arm: true, often, ..calm };
                Size { replicas: 1, seconds: 400, faults, ..size }
            }
            Plant::CreatedAgainUnseen => {
                let often = Some(Often::CreatedAgain);
                let faults = Faults { arm: false, meddling: false, leaving: false, often, ..calm };
                Size { replicas: 1, seconds: 240, faults, ..size }
            }
            Plant::FactsPileUp => Size { faults: Faults { edges: true, ..calm }, ..size },
            Plant::UnreadUnheard => {
                let often = Some(Often::SlowIntake);
                let faults = Faults { arm: false, meddling: false, leaving: false, often, ..calm };
                Size { replicas: 1, services: 3, seconds: 240, faults, ..size }
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
            | Plant::RemovalsLate
            | Plant::RewritesLost
            | Plant::FailedIsInSync
            | Plant::OutOfSyncReset => size,
        }
    }
}

/// Returns the faults without those that hide most bugs.
fn without_masking_faults(faults: Faults) -> Faults {
    let (kube, processes, leases, edges) = (false, false, false, false);
    let planes = false;
    Faults {
        kube,
        processes,
        leases,
        edges,
        planes,
        crashes: false,
        policy: false,
        restores: false,
        ..faults
    }
}
