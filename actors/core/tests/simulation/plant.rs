//! Bugs that are planted into the world, never into the machines: each represents a mistake that a change of a
//! machine, of a shell or of a port could introduce. A simulation that does not find them proves nothing.

#[path = "plant/saboteur.rs"]
mod saboteur;
#[path = "plant/worlds.rs"]
mod worlds;

pub use saboteur::Saboteur;

/// Declares the planted bugs, and the list of all of them.
macro_rules! plants {
    ($($(#[$about:meta])* $plant:ident,)*) => {
        /// A planted bug.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Plant {
            $($(#[$about])* $plant,)*
        }

        impl Plant {
            /// All planted bugs.
            pub const ALL: &[Plant] = &[$(Plant::$plant),*];
        }
    };
}

plants! {
    /// Some outcomes never reach their pool.
    OutcomesLost,
    /// A Service's facts overtake each other on their way to the Directory.
    FactsReordered,
    /// Every PUT carries the first known entity tag.
    StaleEtag,
    /// A PUT carries the newest entity tag instead of that of its own GET.
    EtagRefreshed,
    /// An accepted PUT counts as carried out.
    AcceptedIsWritten,
    /// A lane waits only for polls: reads of its load balancer never end the wait for an operation.
    PollsAlone,
    /// A failed PUT counts as successful, and is not verified.
    LostIsWritten,
    /// Every later list equals the first one.
    StaleLists,
    /// Every later list of EndpointSlices is empty.
    EmptyLists,
    /// Deletions on a watch are lost.
    DeletionsOverheard,
    /// The guard against empty pools and the removal delay are disabled.
    GuardOff,
    /// Rules without an owner are hidden.
    ProofHidden,
    /// Pauses are not passed on.
    PauseIgnored,
    /// Pools do not answer each Take.
    TakesUnanswered,
    /// Permits are not checked when a PUT is sent.
    PermitUnchecked,
    /// Leadership never expires.
    StandingWithoutEnd,
    /// The loss of leadership does not reach the writer and the emitter.
    LossUnheard,
    /// A new leader does not wait for the last writes of one that did not release its Lease.
    SettleZero,
    /// Our Lease counts as released by its holder also if the operator has emptied it.
    EmptiedIsReleased,
    /// A new leader finds no operation on any load balancer.
    LanesSeenAtOnce,
    /// The terms of different leaders are not distinguished.
    EpochNotRaised,
    /// A term is confirmed immediately, without current lists.
    ConfirmedAtOnce,
    /// The shared Lease is released while a PUT is in flight.
    LeaseLetGoEarly,
    /// Another client's hold of the shared Lease counts as expired.
    ForeignHoldExpired,
    /// A conflict on a write of a Lease counts as success.
    ConflictIsSuccess,
    /// A 429 about one load balancer closes the subscription's gate.
    LaneCodeUnread,
    /// A 429 of the subscription counts as one about one load balancer.
    QuotaTakenForLane,
    /// A gate closes both verb classes.
    GateOfBothVerbs,
    /// The budgets are ignored.
    BudgetIgnored,
    /// The cloud configuration's rates are ignored.
    RateLimitIgnored,
    /// Changes are retried without limit.
    RetriesUnlimited,
    /// Failed attempts use no retry budget and are not reported.
    RetriesUncounted,
    /// Pools are not parked.
    ParkingIgnored,
    /// A removal and the outcome of an attempt cross each other.
    RemovalsLate,
    /// The draining set does not reach the writer.
    DrainingUnheard,
    /// Some Downs never become due.
    DownsUnasked,
    /// A Down is not more urgent than a restore.
    DownsRankLast,
    /// Every Down counts as ours.
    AllDownsOurs,
    /// A write of admin states removes a member.
    AdminTakesMembers,
    /// Downs are written without the shared Lease although that is not allowed.
    BypassUnasked,
    /// Our Lease counts as released if the operator has put another holder into it.
    RenamedIsReleased,
    /// Lists are incomplete now and then, and the provenance of facts is lost on the way to the Directory.
    DoubtForgotten,
    /// Lists are incomplete now and then, and a second read counts as done when it is requested.
    SecondReadAtOnce,
    /// Lists are incomplete now and then, and one list may remove a whole pool's members.
    FractionIgnored,
    /// Every later list of EndpointSlices is empty, and pools do not learn that removals are stopped.
    BreakerLeaks,
    /// Every later list of EndpointSlices is empty, and the stop of removals ends after a while.
    BreakerEndsByTime,
    /// The Directory treats endpoints that leave their slices as if the watch had just been re-established.
    EndpointLossesCounted,
    /// The Directory treats nodes that are excluded as if their endpoints had left.
    NodeLossesUncounted,
    /// The policy reaches neither the Directory nor the writer.
    PausesUnheard,
    /// A policy counts as read for a term that has begun after the read.
    PolicyOfAnyTerm,
    /// Recorded pauses are not read.
    PausesUnread,
    /// The operator gets a success although the write of the pause had a conflict.
    PauseNotWritten,
    /// A process whose Leader has found that the storage was restored does not end.
    RollbackIgnored,
    /// A record counts as written although it was never sent.
    RecordUnwritten,
    /// Readers do not see the records.
    RecordsUnread,
    /// Exceptions do not reach the writer.
    ForeignIsOurs,
    /// A recreated node counts as the earlier one of that name.
    UidIgnored,
    /// Every node counts as one without traffic.
    BreakerOfDownsOff,
    /// A patch of a node's taints replaces all of them.
    TaintsReplaced,
    /// A failed query of the metadata service counts as an eviction notice.
    NoticeOfFailedQuery,
    /// A notice counts for the current node of that name.
    CreationIgnored,
    /// A notice from a watch counts, however long ago its eviction was due.
    ExpiredNoticeCounts,
    /// Some draining sets do not reach the writer.
    SetsLost,
    /// Withdrawals do not reach the writer.
    WithdrawLost,
    /// Failures of admin parts are not reported.
    FailureForgotten,
    /// A deleted node counts as one that stays.
    GoneIsRestored,
    /// The switch that disables the admin state is not read.
    OffUnheard,
    /// A source with an error loses its members, with any configuration.
    AmbientDrops,
    /// A source without any known state counts as dropped.
    UnknownIsDropped,
    /// Faults in an assignment are not detected.
    InvalidIsUsed,
    /// Facts about sources reach pools only in part.
    SourceFactsLost,
    /// A draining endpoint counts as serving.
    DrainingServes,
    /// A dropped source counts as one without any known state.
    DroppedIsUnknown,
    /// The dump of resources is empty.
    DumpEmptied,
    /// The dump of a resource stays its first version.
    DumpStale,
    /// Load balancers are read one after another.
    ReadsInSeries,
    /// A watch that is closed empty counts as one without changes, and is only reopened.
    EmptyWatchBelieved,
    /// Endpoints of one address family count for the pools of both.
    FamiliesUnited,
    /// A node that is about to be deleted is excluded, although its pods still serve.
    DoomedExcluded,
    /// An event that the API server has not accepted counts as created.
    PostFailureUnread,
    /// No pool learns that it must be rewritten.
    RewritesLost,
    /// The writer does not learn of read changes before they are applied.
    UnreadUnheard,
    /// New entries name no network although the entries of their pool name subnets.
    SubnetIgnored,
    /// A pool treats changed rules like a fault that no later read corrects.
    MissingRuleReported,
    /// A pool whose provisioning state is `Failed` counts as one that was written successfully.
    FailedIsInSync,
    /// Each view of a pool that is out of sync shows that this has just begun.
    OutOfSyncReset,
    /// Newer facts do not replace older ones that wait.
    FactsPileUp,
    /// A control plane that accepts a connection and stays silent counts as connected.
    SilentIsConnected,
    /// The views of Services do not name the nodes that are excluded.
    ExcludedUnshown,
    /// The views of pools do not name the members that are Down.
    DownsUnshown,
    /// The view of a deleted node keeps the pools that waited.
    GoneKeepsWaiting,
    /// A load balancer that was deleted and created again counts as the same one.
    CreatedAgainUnseen,
}

impl Plant {
    /// Returns whether the bug shows only in a cluster in which nothing else is written for a long time.
    pub fn needs_quiet(self) -> bool {
        matches!(self, Plant::RewritesLost | Plant::FailedIsInSync | Plant::OutOfSyncReset)
    }

    /// Returns the rules, one of which must detect the bug. Without them, a bug of a guard that only shows at the end
    /// of the world would be missed if a broken source recovers in time.
    #[expect(clippy::too_many_lines, reason = "each bug is named once")]
    pub fn found_by(self) -> &'static [&'static str] {
        match self {
            Plant::PollsAlone => &["W2"],
            Plant::DoubtForgotten | Plant::SecondReadAtOnce => &["G2", "G3"],
            Plant::FractionIgnored => &["G3"],
            Plant::BreakerLeaks | Plant::BreakerEndsByTime => &["G4", "G2"],
            Plant::EndpointLossesCounted | Plant::NodeLossesUncounted => &["G4"],
            Plant::PausesUnheard | Plant::PolicyOfAnyTerm => &["G6"],
            Plant::RollbackIgnored => &["W8"],
            Plant::RecordUnwritten | Plant::ForeignIsOurs | Plant::OffUnheard => &["N4"],
            Plant::UidIgnored => &["N1", "N4"],
            Plant::BreakerOfDownsOff => &["N5"],
            Plant::TaintsReplaced
            | Plant::NoticeOfFailedQuery
            | Plant::CreationIgnored
            | Plant::ExpiredNoticeCounts => &["N1"],
            Plant::SubnetIgnored => &["W3"],
            Plant::RewritesLost | Plant::FailedIsInSync | Plant::OutOfSyncReset => &["Q8"],
            Plant::MissingRuleReported => &["Q4"],
            Plant::GoneIsRestored => &["S1", "N2", "N5"],
            Plant::AmbientDrops | Plant::UnknownIsDropped | Plant::DroppedIsUnknown => &["X3"],
            Plant::DumpEmptied | Plant::DumpStale => &["H5"],
            Plant::ReadsInSeries => &["D3"],
            Plant::UnreadUnheard => &["Q2"],
            Plant::InvalidIsUsed => &["X2", "X3"],
            Plant::DrainingServes => &["X2"],
            Plant::PostFailureUnread => &["E1"],
            Plant::FactsPileUp => &["A3"],
            Plant::ExcludedUnshown | Plant::DownsUnshown | Plant::GoneKeepsWaiting => &["H3"],
            Plant::CreatedAgainUnseen => &["W2"],
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
            | Plant::SilentIsConnected
            | Plant::DoomedExcluded => &[],
        }
    }
}
