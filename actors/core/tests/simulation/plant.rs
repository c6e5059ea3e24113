//! Bugs that are planted into the world, never into the machines: each stands for a mistake that a change of a
//! machine, of a shell or of a port could make. A simulation that does not find them proves nothing.

#[path = "plant/saboteur.rs"]
mod saboteur;
#[path = "plant/worlds.rs"]
mod worlds;

pub use saboteur::Saboteur;

/// One planted bug.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
    /// A lane waits only for polls: reads of its load balancer never show that no operation runs.
    PollsAlone,
    /// A PUT that failed counts as done, and is not verified.
    LostIsWritten,
    /// Every later list shows what the first one showed.
    StaleLists,
    /// Every later list of EndpointSlices is empty.
    EmptyLists,
    /// Deletions on a watch are not heard.
    DeletionsOverheard,
    /// The guard of emptiness and the removal delay are off.
    GuardOff,
    /// Rules without an owner are not seen.
    ProofHidden,
    /// Pauses are not passed on.
    PauseIgnored,
    /// Pools do not answer each Take.
    TakesUnanswered,
    /// Permits are not looked at when a PUT is sent.
    PermitUnchecked,
    /// Leadership is believed to last forever.
    StandingWithoutEnd,
    /// The loss of leadership does not reach the writer and the emitter.
    LossUnheard,
    /// A new leader does not wait for the last writes of one that did not let go.
    SettleZero,
    /// Our Lease counts as released by its holder also where the operator has emptied it.
    EmptiedIsReleased,
    /// A new leader finds every load balancer at rest.
    LanesSeenAtOnce,
    /// The terms of different leaders are not told apart.
    EpochNotRaised,
    /// A term is confirmed at once, without most recent lists.
    ConfirmedAtOnce,
    /// The shared Lease is released while a PUT is unanswered.
    LeaseLetGoEarly,
    /// Another client's hold of the shared Lease counts as expired.
    ForeignHoldExpired,
    /// A write of a Lease that another client forestalled counts as done.
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
    /// Failed attempts cost nothing and are not reported.
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
    /// Downs go without the shared Lease where it is not allowed.
    BypassUnasked,
    /// Our Lease counts as released where the operator has put another client's name into it.
    RenamedIsReleased,
    /// Lists lack objects now and then, and how facts came is forgotten on their way to the Directory.
    DoubtForgotten,
    /// Lists lack objects now and then, and a second read counts as made when it is asked for.
    SecondReadAtOnce,
    /// Lists lack objects now and then, and the whole of a pool may go with one.
    FractionIgnored,
    /// Every later list of EndpointSlices is empty, and pools do not hear that removals are stopped.
    BreakerLeaks,
    /// Every later list of EndpointSlices is empty, and pools hear for a while only that removals are stopped.
    BreakerEndsByTime,
    /// That endpoints leave their slices looks to the Directory as if the watch had just been re-established.
    EndpointLossesCounted,
    /// That nodes are left out looks to the Directory as if their endpoints had left.
    NodeLossesUncounted,
    /// What operators wish reaches neither the Directory nor the writer.
    PausesUnheard,
    /// What operators wish counts as read for a term that has begun since.
    PolicyOfAnyTerm,
    /// Pauses that are noted are not seen.
    PausesUnread,
    /// The operator is told of a pause whose write was forestalled.
    PauseNotWritten,
    /// A process whose Leader has found that the storage was set back does not end.
    SetBackIgnored,
    /// A record counts as written that was never sent.
    RecordUnwritten,
    /// Records are not seen by who reads them.
    RecordsUnread,
    /// The exceptions do not reach the writer.
    ForeignIsOurs,
    /// A node that is created again is taken for the one that had its name before.
    UidIgnored,
    /// Every node counts as one that serves no traffic.
    BreakerOfDownsOff,
    /// A patch of a node's taints replaces them all.
    TaintsReplaced,
    /// A failed query of the metadata service counts as a notice.
    NoticeOfFailedQuery,
    /// A notice counts for the node that has the name now.
    CreationIgnored,
    /// A notice that comes by watch counts, however long ago its eviction was due.
    ExpiredNoticeCounts,
    /// Some draining sets do not reach the writer.
    SetsLost,
    /// What is withdrawn does not reach the writer.
    WithdrawLost,
    /// Failures of admin parts are not told.
    FailureForgotten,
    /// A node that is gone counts as one that stays.
    GoneIsRestored,
    /// That the admin state is switched off is not heard.
    OffUnheard,
    /// What something is wrong with takes its members out, whatever was configured.
    AmbientDrops,
    /// A source of which nothing was ever known counts as one that is given up.
    UnknownIsDropped,
    /// What is wrong in an assignment is not seen.
    InvalidIsUsed,
    /// What sources say reaches pools only in part.
    SourceFactsLost,
    /// What drains counts as something that serves.
    DrainingServes,
    /// A source that is given up counts as one of which nothing was ever known.
    DroppedIsUnknown,
    /// Nothing is shown of resources.
    DumpEmptied,
    /// What is shown of a resource is the first that ever was.
    DumpStale,
    /// Load balancers are read one after another.
    ReadsInSeries,
    /// A watch that is closed empty counts as one without changes, and is only opened again.
    EmptyWatchBelieved,
    /// Endpoints of one address family count for the pools of both.
    FamiliesUnited,
    /// A node that is about to be deleted is left out, though its pods still serve.
    DoomedLeftOut,
    /// An event that the API server has not accepted counts as posted.
    PostFailureUnread,
    /// No pool hears that it is to be written once more. It shows where nothing else is written for long, and so in a
    /// cluster at rest alone.
    RewritesLost,
    /// That changes were read does not reach the writer before they are taken in.
    UnreadUnheard,
    /// New entries name no network where the entries of their pool name subnets.
    SubnetIgnored,
    /// That the rules of a pool have changed looks to it like a fault that no later read takes back.
    MissingRuleReported,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 83] = [
        Plant::OutcomesLost,
        Plant::FactsReordered,
        Plant::StaleEtag,
        Plant::EtagRefreshed,
        Plant::AcceptedIsWritten,
        Plant::PollsAlone,
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
        Plant::RenamedIsReleased,
        Plant::DoubtForgotten,
        Plant::SecondReadAtOnce,
        Plant::FractionIgnored,
        Plant::BreakerLeaks,
        Plant::BreakerEndsByTime,
        Plant::EndpointLossesCounted,
        Plant::NodeLossesUncounted,
        Plant::PausesUnheard,
        Plant::PolicyOfAnyTerm,
        Plant::PausesUnread,
        Plant::PauseNotWritten,
        Plant::SetBackIgnored,
        Plant::RecordUnwritten,
        Plant::RecordsUnread,
        Plant::ForeignIsOurs,
        Plant::UidIgnored,
        Plant::BreakerOfDownsOff,
        Plant::TaintsReplaced,
        Plant::NoticeOfFailedQuery,
        Plant::CreationIgnored,
        Plant::ExpiredNoticeCounts,
        Plant::SetsLost,
        Plant::WithdrawLost,
        Plant::FailureForgotten,
        Plant::GoneIsRestored,
        Plant::OffUnheard,
        Plant::AmbientDrops,
        Plant::UnknownIsDropped,
        Plant::InvalidIsUsed,
        Plant::SourceFactsLost,
        Plant::DrainingServes,
        Plant::DroppedIsUnknown,
        Plant::DumpEmptied,
        Plant::DumpStale,
        Plant::ReadsInSeries,
        Plant::EmptyWatchBelieved,
        Plant::FamiliesUnited,
        Plant::DoomedLeftOut,
        Plant::PostFailureUnread,
        Plant::UnreadUnheard,
        Plant::SubnetIgnored,
        Plant::MissingRuleReported,
    ];

    /// The rules by one of which it must be found, where it is a bug of those rules: a bug of a guard that only shows when
    /// all has come to rest would go unseen where a broken source mends in time.
    #[expect(clippy::too_many_lines, reason = "each bug is named once")]
    pub fn found_by(self) -> &'static [&'static str] {
        match self {
            Plant::PollsAlone => &["W2"],
            Plant::DoubtForgotten | Plant::SecondReadAtOnce => &["G2", "G3"],
            Plant::FractionIgnored => &["G3"],
            Plant::BreakerLeaks | Plant::BreakerEndsByTime => &["G4", "G2"],
            Plant::EndpointLossesCounted | Plant::NodeLossesUncounted => &["G4"],
            Plant::PausesUnheard | Plant::PolicyOfAnyTerm => &["G6"],
            Plant::SetBackIgnored => &["W8"],
            Plant::RecordUnwritten | Plant::ForeignIsOurs | Plant::OffUnheard => &["N4"],
            Plant::UidIgnored => &["N1", "N4"],
            Plant::BreakerOfDownsOff => &["N5"],
            Plant::TaintsReplaced
            | Plant::NoticeOfFailedQuery
            | Plant::CreationIgnored
            | Plant::ExpiredNoticeCounts => &["N1"],
            Plant::SubnetIgnored => &["W3"],
            Plant::MissingRuleReported => &["Q4"],
            Plant::GoneIsRestored => &["S1", "N2", "N5"],
            Plant::AmbientDrops | Plant::UnknownIsDropped | Plant::DroppedIsUnknown => &["X3"],
            Plant::DumpEmptied | Plant::DumpStale => &["H5"],
            Plant::ReadsInSeries => &["D3"],
            Plant::UnreadUnheard => &["Q2"],
            Plant::InvalidIsUsed => &["X2", "X3"],
            Plant::DrainingServes => &["X2"],
            Plant::PostFailureUnread => &["E1"],
            Plant::OutcomesLost
            | Plant::FactsReordered
            | Plant::StaleEtag
            | Plant::EtagRefreshed
            | Plant::AcceptedIsWritten
            | Plant::LostIsWritten
            | Plant::StaleLists
            | Plant::EmptyLists
            | Plant::DeletionsOverheard
            | Plant::GuardOff
            | Plant::ProofHidden
            | Plant::PauseIgnored
            | Plant::TakesUnanswered
            | Plant::PermitUnchecked
            | Plant::StandingWithoutEnd
            | Plant::LossUnheard
            | Plant::SettleZero
            | Plant::EmptiedIsReleased
            | Plant::LanesSeenAtOnce
            | Plant::EpochNotRaised
            | Plant::ConfirmedAtOnce
            | Plant::LeaseLetGoEarly
            | Plant::ForeignHoldExpired
            | Plant::ConflictIsSuccess
            | Plant::LaneCodeUnread
            | Plant::QuotaTakenForLane
            | Plant::GateOfBothVerbs
            | Plant::BudgetIgnored
            | Plant::RateLimitIgnored
            | Plant::RetriesUnlimited
            | Plant::RetriesUncounted
            | Plant::ParkingIgnored
            | Plant::RemovalsLate
            | Plant::DrainingUnheard
            | Plant::DownsUnasked
            | Plant::DownsRankLast
            | Plant::AllDownsOurs
            | Plant::AdminTakesMembers
            | Plant::BypassUnasked
            | Plant::RenamedIsReleased
            | Plant::PausesUnread
            | Plant::PauseNotWritten
            | Plant::RecordsUnread
            | Plant::SetsLost
            | Plant::WithdrawLost
            | Plant::FailureForgotten
            | Plant::SourceFactsLost
            | Plant::EmptyWatchBelieved
            | Plant::FamiliesUnited
            | Plant::DoomedLeftOut
            | Plant::RewritesLost => &[],
        }
    }
}
