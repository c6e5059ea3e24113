//! The published views: plain data that the machines publish and the admin API reads (A2, H3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::arm::AdminState;
use crate::assignment::{Held, PausedBy};
use crate::blocked::{Blocked, BlockedUntil};
use crate::error::NotManageable;
use crate::guard::GuardMode;
use crate::ids::{AttemptId, Epoch, Family, LbName, NodeName, PoolId, ServiceKey, ServiceUid};
use crate::level::{Level, Provenance, Source};
use crate::machine::Now;
use crate::node::NodeFact;
use crate::object::{ExclusionRule, Kind};
use crate::policy::{Mode, OperatorPolicy};
use crate::sample::{AttemptEnd, GateClass, PoolState};
use crate::write_record::WriteRecord;
use crate::xds::cache::{Reason, ResourceState};
use crate::xds::dump::XdsView;

mod nodes;

pub use nodes::{AdminView, ForeignState, NodePool, NodePoolState, NodeView, admin_state_word};

/// All published views, replaced as a whole at most every 250 ms.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// Time of the snapshot.
    pub at: Now,
    /// The pools.
    pub pools: BTreeMap<PoolId, Arc<PoolView>>,
    /// The Services that need or have a pool, by name.
    pub services: BTreeMap<ServiceKey, Arc<ServiceView>>,
    /// The lanes, one per load balancer.
    pub lanes: BTreeMap<LbName, Arc<LaneView>>,
    /// The state of each watch, by kind.
    pub sources: BTreeMap<Kind, SourceView>,
    /// The load balancers as discovery last read them.
    pub load_balancers: BTreeMap<LbName, Arc<LbView>>,
    /// Gates and budgets by request class.
    pub gates: BTreeMap<GateClass, GateView>,
    /// Progress of startup: the first complete lists and the first discovery.
    pub synced: Synced,
    /// The leadership of this process; `None` until it is published.
    pub leadership: Option<LeadershipView>,
    /// The shared Lease; `None` until it is published, and when it is not used.
    pub shared_lease: Option<SharedLeaseView>,
    /// The xDS control planes and sources; `None` when no pool gets its members from one.
    pub xds: Option<Arc<XdsView>>,
    /// The listed pools that are not written, with the reason (D2, X2).
    pub refused: BTreeMap<PoolId, NotManageable>,
    /// The guards; `None` until they are published.
    pub guards: Option<GuardsView>,
    /// The mode and the pauses; `None` until they are published.
    pub policy: Option<PolicyView>,
    /// The nodes that leave service, and those that return to it.
    pub nodes: BTreeMap<NodeName, Arc<NodeView>>,
    /// All nodes of the cluster.
    pub known_nodes: BTreeMap<NodeName, Arc<NodeFact>>,
    /// The admin state as a whole; `None` until it is published.
    pub admin_state: Option<Arc<AdminView>>,
}

/// The policy of the operator, and the parts of it that cannot be read (G6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyView {
    /// The configured mode.
    pub mode: Mode,
    /// The mode and all pauses; `None` until the pauses have been read.
    pub policy: Option<Arc<OperatorPolicy>>,
    /// Keys of our ConfigMap that look like pauses but cannot be read, with the reason.
    pub unreadable: Vec<(Arc<str>, &'static str)>,
    /// True if a term has begun and waits until the pauses have been read.
    pub leader_waits: bool,
    /// Message of the last failed request; cleared by the next success.
    pub last_error: Option<Arc<str>>,
}

/// Leadership among the replicas (W8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeadershipView {
    /// Identity of this process.
    pub identity: Arc<str>,
    /// The role of this process: `standby`, `settling` (it has won, and waits for the last writes of a predecessor
    /// that did not release the Lease), `confirming` (it first reads most recent data), `leader`, `alone` (a dry run)
    /// or `stopping`.
    pub role: &'static str,
    /// The holder of the Lease as last read; `None`: no holder, or not known.
    pub holder: Option<Arc<str>>,
    /// The current term, or the last one.
    pub epoch: Epoch,
    /// Time when the role began.
    pub since: Now,
    /// The moment until which leadership is certain without another renewal. `None` when this process does not lead,
    /// or when there is no other replica.
    pub until: Option<Now>,
    /// Message of the last failed request; cleared by the next success.
    pub last_error: Option<Arc<str>>,
}

impl LeadershipView {
    /// Returns why nothing is written, if the process does not lead.
    #[must_use]
    pub fn blocked(&self) -> Option<BlockedUntil> {
        let leads = matches!(self.role, "leader" | "alone");
        (!leads).then(|| Blocked::NotLeader.open_ended())
    }
}

/// The guards that apply to all pools together (docs/design/pools.md, G4 and G5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuardsView {
    /// `guards.mode`.
    pub mode: GuardMode,
    /// The stop of all removals, while it lasts (G4).
    pub stopped: Option<StoppedView>,
    /// Start of the second read that resolves doubt, while it runs (G1).
    pub reading_since: Option<Now>,
}

/// The stop of all removals, because too many pools would lose most of their members (G4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoppedView {
    /// Time when removals were stopped.
    pub since: Now,
    /// Number of pools that would lose most of their members.
    pub pools: usize,
    /// Number of all pools.
    pub of: usize,
}

/// The Lease shared with the cloud-controller-manager (W7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedLeaseView {
    /// The state of this process: `free` (no write needs the Lease), `waiting` (another client holds it), `acquiring`,
    /// `held`, `releasing` or `cooldown` (left to others for a while).
    pub state: &'static str,
    /// The holder of the Lease as last read.
    pub holder: Option<Arc<str>>,
    /// The kind of holder.
    pub holder_kind: LeaseHolderKind,
    /// Time since which this process has seen the same holder; renewals do not reset it. `None` when no client holds
    /// the Lease.
    pub held_since: Option<Now>,
    /// Time when the state began.
    pub since: Now,
    /// The latest end of the state, if it is known.
    pub until: Option<Now>,
    /// Time since which a write has waited for the Lease.
    pub wanted_since: Option<Now>,
    /// Message of the last failed request; cleared by the next success.
    pub last_error: Option<Arc<str>>,
}

impl SharedLeaseView {
    /// Returns why a write waits, if it waits for the Lease.
    #[must_use]
    pub fn blocked(&self) -> Option<BlockedUntil> {
        let is_awaited = self.wanted_since.is_some() && self.state != "held";
        let until = self.until.filter(|until| *until != Now::NEVER);
        is_awaited.then_some(BlockedUntil { why: Blocked::SharedLease, until })
    }
}

/// The kind of client that holds the shared Lease.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LeaseHolderKind {
    /// Not known yet.
    Unknown,
    /// No client holds it, or it does not exist.
    None,
    /// This process, or another replica.
    Controller,
    /// An unknown process under our name. It counts as foreign until the Lease has not changed for 60 s (W7).
    SameName,
    /// The cloud-controller-manager.
    CloudControllerManager,
    /// A client whose name is neither ours nor that of the cloud-controller-manager.
    Other,
}

impl LeaseHolderKind {
    /// Every kind of holder.
    pub const ALL: [LeaseHolderKind; 6] = [
        LeaseHolderKind::Unknown,
        LeaseHolderKind::None,
        LeaseHolderKind::Controller,
        LeaseHolderKind::SameName,
        LeaseHolderKind::CloudControllerManager,
        LeaseHolderKind::Other,
    ];

    /// Returns the value in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            LeaseHolderKind::Unknown => "unknown",
            LeaseHolderKind::None => "none",
            LeaseHolderKind::Controller => "controller",
            LeaseHolderKind::SameName => "same_name",
            LeaseHolderKind::CloudControllerManager => "cloud_controller_manager",
            LeaseHolderKind::Other => "other",
        }
    }
}

/// What startup still waits for (D6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Synced {
    /// True when the first complete lists of all three kinds have arrived.
    pub lists: bool,
    /// True when at least one managed load balancer has been read, and each other one has been read, has failed, or
    /// has not answered within 1 s.
    pub discovery: bool,
}

impl Synced {
    /// Returns true if startup waits for nothing more.
    #[must_use]
    pub fn done(self) -> bool {
        self.lists && self.discovery
    }
}

/// The cache state of a Service's EndpointSlices, by the states of gRFC A88 (X5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceView {
    /// The state.
    pub state: ResourceState,
    /// True if a cached value is in use.
    pub is_cached: bool,
    /// The current error, with its reason.
    pub error: Option<(Reason, Arc<str>)>,
}

/// A pool.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Which pool.
    pub pool: PoolId,
    /// Address family of its members.
    pub family: Family,
    /// The source of its level.
    pub source: Source,
    /// The Services that own the pool.
    pub services: BTreeMap<ServiceUid, ServiceKey>,
    /// Its state.
    pub state: PoolState,
    /// Time when the state began.
    pub since: Now,
    /// The members that the pool must hold and may hold.
    pub level: Level,
    /// How the level's facts arrived.
    pub provenance: Provenance,
    /// The members at the last read; `None`: the pool was never read.
    pub observed: Option<BTreeSet<IpAddr>>,
    /// The observed members whose admin state was `Down`.
    pub observed_down: BTreeSet<IpAddr>,
    /// The admin states of the observed members that were neither `Down` nor `None`.
    pub observed_other: BTreeMap<IpAddr, AdminState>,
    /// Time of the last read.
    pub observed_at: Option<Now>,
    /// Arrival of the oldest waiting change, or the moment since which the pool may be written, whichever is later. A
    /// level whose write failed and is tried again counts since the pool has been out of sync.
    /// `None` also while the pool is paused, because no write is planned then.
    pub waiting_since: Option<Now>,
    /// Time since which the pool has not matched its level, regardless of attempts; `None`: it matches.
    pub out_of_sync: Option<OutOfSync>,
    /// True if Azure reports that its last operation on the pool or its load balancer failed.
    pub provisioning_failed: bool,
    /// Why the queue of the pool does not let it be written yet. What the writer waits for is in
    /// [`Snapshot::blocked`].
    pub blocked: Option<BlockedUntil>,
    /// The retry counts of the waiting changes, by Service.
    pub retries: BTreeMap<ServiceUid, Vec<u32>>,
    /// The running attempt.
    pub attempt: Option<AttemptId>,
    /// The result of the last attempt.
    pub last_end: Option<LastAttempt>,
    /// Message of the last failure.
    pub last_error: Option<Arc<str>>,
    /// The removal that a guard holds back.
    pub held: Option<Held>,
    /// The removal that a guard would hold back if guards were enforced; it is carried out (G5).
    pub would_hold: Option<Held>,
    /// The members that the endpoints require, while a pre-image overrides them; `None` without a pre-image.
    pub overruled: Option<BTreeSet<IpAddr>>,
    /// Every reason for which the pool is not written (D1, G6).
    pub paused: BTreeSet<PausedBy>,
    /// The change that a dry run did not send: added and removed members.
    pub withheld: Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)>,
    /// Number of lost writes of the pool since the process started.
    pub lost_writes: u64,
}

/// The result of the last attempt on a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastAttempt {
    /// How it ended.
    pub end: AttemptEnd,
    /// When it ended.
    pub at: Now,
    /// The changes and their reason; `None`: the attempt was interrupted without an answer.
    pub record: Option<Arc<WriteRecord>>,
}

/// Start of the period in which a pool does not match its level (Q8, E2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfSync {
    /// The start.
    pub since: Now,
    /// True if the period may have begun earlier: a read of the pool, or a new leader, found the mismatch at `since`.
    pub at_least: bool,
}

impl PoolView {
    /// Returns the last observed admin state of a member; `None`: the member or the pool was not observed.
    #[must_use]
    pub fn admin_state(&self, ip: &IpAddr) -> Option<AdminState> {
        self.observed.as_ref().filter(|observed| observed.contains(ip))?;
        if self.observed_down.contains(ip) {
            return Some(AdminState::Down);
        }
        Some(self.observed_other.get(ip).copied().unwrap_or(AdminState::None))
    }

    /// Returns the time since which a pool that should be written is out of sync. `None`: the pool is in sync,
    /// paused, or in a dry run.
    #[must_use]
    pub fn late_since(&self) -> Option<Now> {
        let is_written = self.state != PoolState::Paused && self.withheld.is_none();
        self.out_of_sync.filter(|_| is_written).map(|out| out.since)
    }

    /// Returns the missing members and the surplus members at the last read; `None`: the pool was never read.
    #[must_use]
    pub fn difference(&self) -> Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)> {
        let seen = self.observed.as_ref()?;
        Some((self.level.missing(seen).copied().collect(), self.level.surplus(seen).copied().collect()))
    }

    /// Returns the members to set `Down` and the members to restore, as the source of the pool asks (X2), at the last
    /// read.
    #[must_use]
    pub fn states(&self) -> (BTreeSet<IpAddr>, BTreeSet<IpAddr>) {
        let states = &self.level.states;
        let stays = |ip: &&IpAddr| {
            self.observed.as_ref().is_some_and(|seen| seen.contains(*ip)) && !self.observed_down.contains(*ip)
        };
        let down = states.down.iter().filter(stays).copied().collect();
        (down, states.lifted.intersection(&self.observed_down).copied().collect())
    }

    /// Returns the missing and the surplus members, if there are any. `None`: the pool is in sync, or was never read.
    #[must_use]
    pub fn deviation(&self) -> Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)> {
        self.difference().filter(|(missing, surplus)| !missing.is_empty() || !surplus.is_empty())
    }

    /// Returns the changes that a write would make: the deviation of a paused or observed pool (G6), else the change
    /// that a dry run withheld (C4). `None`: no changes, or the pool is written, or it was never read.
    #[must_use]
    pub fn would_change(&self) -> Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)> {
        match self.state {
            PoolState::Paused => self.deviation(),
            PoolState::Unknown
            | PoolState::InSync
            | PoolState::Waiting
            | PoolState::Due
            | PoolState::Attempting
            | PoolState::Parked
            | PoolState::Failed
            | PoolState::Quarantined => self.withheld.clone(),
        }
    }
}

/// The changes that writes would make to pools that are only compared (C4, G6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WouldChange {
    /// Number of pools that are compared and not written.
    pub compared: usize,
    /// Number of those pools that were never read.
    pub unseen: usize,
    /// Number of pools that would change.
    pub pools: usize,
    /// Number of members that would be added.
    pub add: usize,
    /// Number of members that would be removed.
    pub remove: usize,
    /// Number of pools with a removal that would be held back.
    pub held_pools: usize,
    /// Number of members that would stay for that reason.
    pub held_members: usize,
}

impl Snapshot {
    /// Returns why a pool that should change is not written now; of several reasons, the first in the order of
    /// [`Blocked`]. `None`: the pool is being written or is next, or there is nothing to write.
    #[must_use]
    pub fn blocked(&self, now: Now, pool: &PoolView) -> Option<BlockedUntil> {
        let of_leadership = self.leadership.as_ref().and_then(LeadershipView::blocked);
        let lane = self.lanes.get(&pool.pool.lb);
        let is_due = match pool.state {
            PoolState::Due => true,
            PoolState::Attempting => {
                lane.is_some_and(|lane| lane.waiting(&pool.pool).is_some() && !lane.is_writing(&pool.pool))
            }
            PoolState::Unknown
            | PoolState::InSync
            | PoolState::Waiting
            | PoolState::Parked
            | PoolState::Paused
            | PoolState::Failed
            | PoolState::Quarantined => false,
        };
        if !is_due {
            let of_queue = pool.blocked?;
            return BlockedUntil::first(of_leadership.into_iter().chain([of_queue]));
        }
        let of_writer = [
            of_leadership,
            lane.and_then(|lane| lane.blocked_for(&pool.pool)),
            self.shared_lease.as_ref().and_then(SharedLeaseView::blocked),
        ];
        let of_gates = self.gates.values().filter_map(|gate| gate.blocked);
        let all = of_writer.into_iter().flatten().chain(of_gates.filter(|gate| gate.applies(now)));
        BlockedUntil::first(all)
    }

    /// Returns the nodes excluded from a pool, over all of its Services.
    #[must_use]
    pub fn excluded_nodes_of(&self, pool: &PoolView) -> BTreeSet<&ExcludedNodeView> {
        let services = pool.services.values().filter_map(|key| self.services.get(key));
        services.flat_map(|service| &service.excluded).filter(|of| of.family == pool.family).collect()
    }

    /// Returns the pools that should be written and have been out of sync for the longest time, with that time; at
    /// most `most`.
    #[must_use]
    pub fn longest_out_of_sync(&self, most: usize) -> Vec<(Now, &PoolView)> {
        let late = self.pools.values().filter_map(|view| Some((view.late_since()?, view.as_ref())));
        let mut late: Vec<(Now, &PoolView)> = late.collect();
        late.sort_unstable_by(|(one, a), (other, b)| (one, &a.pool).cmp(&(other, &b.pool)));
        late.truncate(most);
        late
    }

    /// Returns the totals over all pools that are only compared: the paused pools, and all pools in a dry run.
    #[must_use]
    pub fn would_change(&self, dry_run: bool) -> WouldChange {
        let mut sum = WouldChange::default();
        for pool in self.pools.values().filter(|pool| dry_run || !pool.paused.is_empty()) {
            sum.compared += 1;
            sum.unseen += usize::from(pool.observed.is_none());
            if let Some((added, removed)) = pool.would_change() {
                sum.pools += 1;
                sum.add += added.len();
                sum.remove += removed.len();
            }
            if let Some(held) = &pool.held {
                sum.held_pools += 1;
                sum.held_members += held.members.len();
            }
        }
        sum
    }
}

/// A Service, and why it is or is not in a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceView {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The UID.
    pub uid: ServiceUid,
    /// Candidacy, with the reason if it is not a candidate (D1).
    pub candidacy: Candidacy,
    /// True if the Service carries the pause annotation (D1); other pauses are in [`PolicyView`].
    pub paused: bool,
    /// Number of its EndpointSlices.
    pub slices: usize,
    /// Number of its endpoints in all slices.
    pub endpoints: usize,
    /// Descriptions of the errors in its data (D6).
    pub data_errors: Vec<Arc<str>>,
    /// The cache state of its EndpointSlices, by A88's states (X5); `None` unless the Service is a candidate.
    pub resource: Option<ResourceView>,
    /// The nodes with endpoints of the Service that are excluded from a pool, in order; at most
    /// [`ServiceView::MAX_EXCLUDED_NODES`].
    pub excluded: Vec<ExcludedNodeView>,
    /// The pools that its load-balancing rules use.
    pub pools: Vec<PoolId>,
    /// Its pools whose membership is not written, with the reason (D2).
    pub not_manageable: Vec<(PoolId, NotManageable)>,
}

impl ServiceView {
    /// The maximum number of excluded nodes in a view.
    pub const MAX_EXCLUDED_NODES: usize = 100;
}

/// A node with endpoints of a Service that is excluded from a pool of that Service (D4, D5).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ExcludedNodeView {
    /// The node.
    pub node: NodeName,
    /// Address family of the pool.
    pub family: Family,
    /// The node's addresses of that family.
    pub ips: BTreeSet<IpAddr>,
    /// The reason.
    pub why: ExclusionRule,
}

/// Candidacy of a Service (D1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Candidacy {
    /// The Service is a candidate.
    Candidate,
    /// Its type is not `LoadBalancer`.
    NotLoadBalancer,
    /// The cloud configuration has no `multipleStandardLoadBalancerConfigurations`, so no Service has a pool of its
    /// own.
    NotMultiSlb,
    /// Its `externalTrafficPolicy` is not `Local`.
    NotLocal,
    /// It is being deleted.
    Deleting,
    /// Excluded by `services.selector` or `services.namespaces`.
    NotSelected,
}

impl Candidacy {
    /// Returns the value in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Candidacy::Candidate => "candidate",
            Candidacy::NotLoadBalancer => "not_load_balancer",
            Candidacy::NotMultiSlb => "not_multi_slb",
            Candidacy::NotLocal => "not_local",
            Candidacy::Deleting => "deleting",
            Candidacy::NotSelected => "not_selected",
        }
    }
}

/// A lane: the serial order of writes on one load balancer.
#[derive(Clone, Debug)]
pub struct LaneView {
    /// The load balancer.
    pub lb: LbName,
    /// The pool being written, the phase of the write, and when the phase began.
    pub writing: Option<(PoolId, &'static str, Now)>,
    /// The due pools: first those that the lane can grant, in its order, then those that wait for a reason of their
    /// own.
    pub waiting: Vec<WaitingView>,
    /// Why the lane is closed.
    pub closed: Option<BlockedUntil>,
    /// Description of the fault that blocks its membership writes, while W10's breaker is open.
    pub fault: Option<Arc<str>>,
}

/// A due pool in its lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitingView {
    /// The pool.
    pub pool: PoolId,
    /// Its class, or `waiting to retry`.
    pub class: &'static str,
    /// Time since which it has waited.
    pub since: Now,
    /// Why it cannot be granted yet, for a reason of its own.
    pub blocked: Option<BlockedUntil>,
}

impl LaneView {
    /// Returns why the lane as a whole grants no membership write now.
    #[must_use]
    pub fn blocked(&self) -> Option<BlockedUntil> {
        let fault = self.fault.as_ref().map(|_| Blocked::Breaker.open_ended());
        BlockedUntil::first(fault.into_iter().chain(self.closed))
    }

    /// Returns the place of a pool among those that wait.
    #[must_use]
    pub fn waiting(&self, pool: &PoolId) -> Option<&WaitingView> {
        self.waiting.iter().find(|waiting| waiting.pool == *pool)
    }

    /// Returns true if this pool is being written.
    #[must_use]
    pub fn is_writing(&self, pool: &PoolId) -> bool {
        self.writing.as_ref().is_some_and(|(one, _, _)| one == pool)
    }

    /// Returns why this pool cannot be granted.
    fn blocked_for(&self, pool: &PoolId) -> Option<BlockedUntil> {
        let busy = (self.writing.is_some() && !self.is_writing(pool)).then(|| Blocked::LaneBusy.open_ended());
        let deferred = self.waiting.iter().rev().take_while(|waiting| waiting.blocked.is_some());
        let own = deferred.filter(|waiting| waiting.pool == *pool).find_map(|waiting| waiting.blocked);
        BlockedUntil::first([self.blocked(), busy, own].into_iter().flatten())
    }
}

/// The watch of one kind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceView {
    /// The kind.
    pub kind: Kind,
    /// Phase of the watcher.
    pub phase: &'static str,
    /// True if a complete list has arrived.
    pub synced: bool,
    /// Number of cached objects.
    pub objects: usize,
    /// Arrival of the last line of a watch or list, or of the last page of a list.
    pub heard_at: Option<Now>,
    /// Time since which no watch of this kind has delivered changes; `None` while one does.
    pub stale_since: Option<Now>,
    /// Message of the last failure.
    pub last_error: Option<Arc<str>>,
}

/// A load balancer as discovery last read it.
#[derive(Clone, Debug)]
pub struct LbView {
    /// Its name.
    pub lb: LbName,
    /// True if it exists; `None`: not known yet.
    pub exists: Option<bool>,
    /// Time of the answer of the last successful read.
    pub read_at: Option<Now>,
    /// Time at which that read began.
    pub read_began: Option<Now>,
    /// Number of its pools.
    pub pools: usize,
    /// Message of the last failed read.
    pub last_error: Option<Arc<str>>,
}

/// A gate and its budget.
#[derive(Clone, PartialEq, Debug)]
pub struct GateView {
    /// Why the class allows no membership write: throttled, or the budget without its reserve is spent.
    pub blocked: Option<BlockedUntil>,
    /// Number of calls that the budget allows now.
    pub tokens: f64,
    /// Capacity of the budget.
    pub capacity: f64,
}
