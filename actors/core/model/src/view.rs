//! What is shown: plain views that the machines publish and the admin API reads (A2, H3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::arm::AdminState;
use crate::assignment::{Held, PausedBy};
use crate::error::NotManageable;
use crate::guard::GuardMode;
use crate::ids::{AttemptId, Epoch, Family, LbName, NodeName, PoolId, ServiceKey, ServiceUid};
use crate::level::{Level, Provenance, Source};
use crate::machine::Now;
use crate::node::NodeFact;
use crate::object::{Kind, LeftOut};
use crate::policy::{Mode, OperatorPolicy};
use crate::sample::{AttemptEnd, GateClass, PoolState};
use crate::write_record::WriteRecord;
use crate::xds::cache::{Reason, State};
use crate::xds::dump::XdsView;

mod nodes;

pub use nodes::{AdminView, ForeignState, NodePool, NodePoolState, NodeView, admin_state_word};

/// All that is shown, swapped as a whole at most every 250 ms.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was made.
    pub at: Now,
    /// The pools.
    pub pools: BTreeMap<PoolId, Arc<PoolView>>,
    /// The Services that want or have a pool, by name.
    pub services: BTreeMap<ServiceKey, Arc<ServiceView>>,
    /// The lanes, one per load balancer.
    pub lanes: BTreeMap<LbName, Arc<LaneView>>,
    /// The sources of facts.
    pub sources: BTreeMap<Kind, SourceView>,
    /// The load balancers as discovery last saw them.
    pub load_balancers: BTreeMap<LbName, Arc<LbView>>,
    /// Gates and budgets by verb class.
    pub gates: BTreeMap<GateClass, GateView>,
    /// Whether the first complete lists and the first discovery are in.
    pub synced: Synced,
    /// Who leads; `None`: nothing was said of it yet.
    pub leadership: Option<LeadershipView>,
    /// The shared Lease; `None`: nothing was said of it yet, or it is not used.
    pub shared_lease: Option<SharedLeaseView>,
    /// What is known of xDS control planes; `None`: no pool is filled from one.
    pub xds: Option<Arc<XdsView>>,
    /// The listed pools that are not written, and why (D2, X2).
    pub refused: BTreeMap<PoolId, NotManageable>,
    /// The guards; `None`: nothing was said of them yet.
    pub guards: Option<GuardsView>,
    /// The mode and the pauses; `None`: nothing was said of them yet.
    pub policy: Option<PolicyView>,
    /// The nodes that leave service, and those that come back.
    pub nodes: BTreeMap<NodeName, Arc<NodeView>>,
    /// Every node that there is.
    pub known_nodes: BTreeMap<NodeName, Arc<NodeFact>>,
    /// The admin state as a whole; `None`: nothing was said of it yet.
    pub admin_state: Option<Arc<AdminView>>,
}

/// What operators wish, and what of it cannot be read (G6).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyView {
    /// The configured mode.
    pub mode: Mode,
    /// The mode and all pauses; `None`: the pauses have not been read yet.
    pub policy: Option<Arc<OperatorPolicy>>,
    /// Keys of our ConfigMap that look like pauses and cannot be read, and why.
    pub unreadable: Vec<(Arc<str>, &'static str)>,
    /// Whether a term has begun that waits for the pauses to be read.
    pub term_waits: bool,
    /// What the last failed request said, until one succeeds.
    pub last_error: Option<Arc<str>>,
}

/// Who of our replicas leads (W8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeadershipView {
    /// Who this process is.
    pub identity: Arc<str>,
    /// What it is, in one word: `standby`, `settling` (has won,
    /// and waits for the last writes of a predecessor that did not let go), `confirming` (reads most recent data
    /// first), `leader`, `alone` (a dry run), `stopping`.
    pub role: &'static str,
    /// Who holds the Lease, as last seen; `None`: none, or not known.
    pub holder: Option<Arc<str>>,
    /// The present term, or the last one.
    pub epoch: Epoch,
    /// Since when it has the role.
    pub since: Now,
    /// Until when leadership is certain without another renewal; `None` when it does not lead or there is no other
    /// replica.
    pub until: Option<Now>,
    /// What the last failed request said, until one succeeds.
    pub last_error: Option<Arc<str>>,
}

/// What the guards do for all pools together (chapter 5b).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuardsView {
    /// `guards.mode`.
    pub mode: GuardMode,
    /// That removals are stopped, while they are (G4).
    pub stopped: Option<StoppedView>,
    /// Since when a second read of what is in doubt has been under way, while one is (G1).
    pub reading_since: Option<Now>,
}

/// Removals are stopped, for too many pools would lose most of their members (G4).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoppedView {
    /// Since when.
    pub since: Now,
    /// How many would.
    pub pools: usize,
    /// How many there are.
    pub of: usize,
}

/// The Lease that is shared with the cloud-controller-manager (W7).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedLeaseView {
    /// What we do, in one word: `free` (nothing wants it), `waiting` (another client holds it), `acquiring`, `held`,
    /// `releasing`, `off` (left to others for a while).
    pub state: &'static str,
    /// Who holds it, as last seen.
    pub holder: Option<Arc<str>>,
    /// Who that is.
    pub whose: Whose,
    /// Since when it has been that holder's, as far as this process has seen; renewals do not count. `None` where no
    /// client holds it.
    pub held_since: Option<Now>,
    /// Since when it is in that state.
    pub since: Now,
    /// When the state ends at the latest, if that is known.
    pub until: Option<Now>,
    /// Since when a write has waited for it.
    pub wanted_since: Option<Now>,
    /// What the last failed request said, until one succeeds.
    pub last_error: Option<Arc<str>>,
}

/// Whose the shared Lease is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Whose {
    /// It is not known yet.
    Unknown,
    /// No client holds it, or it does not exist.
    Nobody,
    /// This process, or another replica.
    Us,
    /// An unknown process in our name: it counts as foreign until it has not changed for 60 s (W7).
    Namesake,
    /// The cloud-controller-manager.
    CloudControllerManager,
    /// A client whose name is neither ours nor that of the cloud-controller-manager.
    Stranger,
}

impl Whose {
    /// Each of them.
    pub const ALL: [Whose; 6] = [
        Whose::Unknown,
        Whose::Nobody,
        Whose::Us,
        Whose::Namesake,
        Whose::CloudControllerManager,
        Whose::Stranger,
    ];

    /// The word for the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Whose::Unknown => "unknown",
            Whose::Nobody => "nobody",
            Whose::Us => "us",
            Whose::Namesake => "namesake",
            Whose::CloudControllerManager => "cloud_controller_manager",
            Whose::Stranger => "stranger",
        }
    }
}

/// What start-up still waits for (D6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Synced {
    /// The first complete lists of all three kinds.
    pub lists: bool,
    /// At least one managed load balancer was read, and each other one was read, has failed, or did not answer within 1
    /// s.
    pub discovery: bool,
}

impl Synced {
    /// Whether nothing is waited for any more.
    #[must_use]
    pub fn done(self) -> bool {
        self.lists && self.discovery
    }
}

/// What is known of a Service's EndpointSlices, by the states of gRFC A88 (X5).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceView {
    /// The state.
    pub state: State,
    /// Whether what was known is in use.
    pub is_cached: bool,
    /// What is wrong, if anything is.
    pub error: Option<(Reason, Arc<str>)>,
}

/// A pool.
#[derive(Clone, Debug)]
pub struct PoolView {
    /// Which pool.
    pub pool: PoolId,
    /// The family of its members.
    pub family: Family,
    /// Where its level comes from.
    pub source: Source,
    /// Whose it is.
    pub services: BTreeMap<ServiceUid, ServiceKey>,
    /// Its state.
    pub state: PoolState,
    /// Since when it is in that state.
    pub since: Now,
    /// What it must and may hold.
    pub level: Level,
    /// How that reached us.
    pub provenance: Provenance,
    /// What it held when last seen; `None`: never seen.
    pub observed: Option<BTreeSet<IpAddr>>,
    /// Those of them that were `Down`.
    pub observed_down: BTreeSet<IpAddr>,
    /// The admin states of those that were neither `Down` nor `None`.
    pub observed_other: BTreeMap<IpAddr, AdminState>,
    /// When it was last seen.
    pub observed_at: Option<Now>,
    /// When its oldest waiting change came, or since when it may be written, whichever is later; `None` too while it is
    /// paused: nothing is to become of it then.
    pub waiting_since: Option<Now>,
    /// Since when it has not matched its level, whatever was tried meanwhile; `None`: it does.
    pub out_of_sync: Option<OutOfSync>,
    /// Whether Azure reports that its last operation on the pool or its load balancer failed.
    pub provisioning_failed: bool,
    /// When it may next take part, if it waits for that.
    pub next_at: Option<Now>,
    /// The retry counts of the changes that wait, by Service.
    pub retries: BTreeMap<ServiceUid, Vec<u32>>,
    /// The attempt under way.
    pub attempt: Option<AttemptId>,
    /// How the last attempt ended.
    pub last_end: Option<LastAttempt>,
    /// What the last failure said.
    pub last_error: Option<Arc<str>>,
    /// A removal that is held back.
    pub held: Option<Held>,
    /// A removal that would be held back if guards were enforced, and goes on (G5).
    pub would_hold: Option<Held>,
    /// What endpoints require, where a pre-image has taken the place of that; `None`: none has.
    pub overruled: Option<BTreeSet<IpAddr>>,
    /// All that keeps it from being written (D1, G6).
    pub paused: BTreeSet<PausedBy>,
    /// What a dry run would have changed: added, removed.
    pub withheld: Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)>,
    /// Writes of it that were lost since the start of the process.
    pub lost_writes: u64,
}

/// How the last attempt of a pool ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastAttempt {
    /// How.
    pub end: AttemptEnd,
    /// When.
    pub at: Now,
    /// What it changed and why; `None`: it was interrupted without an answer.
    pub record: Option<Arc<WriteRecord>>,
}

/// Since when a pool has not matched its level (Q8, E2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OutOfSync {
    /// The moment.
    pub since: Now,
    /// Whether it may have begun before that: it was found then, by a look at the pool, or by a new leader.
    pub at_least: bool,
}

impl PoolView {
    /// The admin state of a member, as it was last seen; `None`: it was not.
    #[must_use]
    pub fn admin_state(&self, ip: &IpAddr) -> Option<AdminState> {
        self.observed.as_ref().filter(|observed| observed.contains(ip))?;
        if self.observed_down.contains(ip) {
            return Some(AdminState::Down);
        }
        Some(self.observed_other.get(ip).copied().unwrap_or(AdminState::None))
    }

    /// Since when the pool has been out of sync although it is to be written; `None`: it is in sync, paused, or only shown.
    #[must_use]
    pub fn late_since(&self) -> Option<Now> {
        let is_written = self.state != PoolState::Paused && self.withheld.is_none();
        self.out_of_sync.filter(|_| is_written).map(|out| out.since)
    }

    /// The members that it lacks and those that must go, as it was last seen; `None`: it was not.
    #[must_use]
    pub fn difference(&self) -> Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)> {
        let seen = self.observed.as_ref()?;
        Some((self.level.missing(seen).copied().collect(), self.level.surplus(seen).copied().collect()))
    }

    /// The members whose admin state is to be `Down`, and those whose `Down` is to be taken back, by the word of the pool's
    /// source and as it was last seen (X2).
    #[must_use]
    pub fn states(&self) -> (BTreeSet<IpAddr>, BTreeSet<IpAddr>) {
        let states = &self.level.states;
        let stays = |ip: &&IpAddr| {
            self.observed.as_ref().is_some_and(|seen| seen.contains(*ip)) && !self.observed_down.contains(*ip)
        };
        let down = states.down.iter().filter(stays).copied().collect();
        (down, states.lifted.intersection(&self.observed_down).copied().collect())
    }

    /// The members that a pool lacks and those that must go, where there are any; `None`: it is right, or was not seen.
    #[must_use]
    pub fn deviation(&self) -> Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)> {
        self.difference().filter(|(missing, surplus)| !missing.is_empty() || !surplus.is_empty())
    }

    /// What a write would change if it were not only shown: the deviation of a pool that is paused or observed (G6),
    /// else what a dry run has withheld (C4). `None`: nothing, or it is written, or was not seen.
    #[must_use]
    pub fn would_change(&self) -> Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)> {
        match self.state {
            PoolState::Paused => self.deviation(),
            PoolState::Unknown
            | PoolState::Right
            | PoolState::Waiting
            | PoolState::Due
            | PoolState::Attempting
            | PoolState::Parked
            | PoolState::Failed
            | PoolState::Quarantined => self.withheld.clone(),
        }
    }
}

/// What would be written to pools that are only compared (C4, G6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WouldChange {
    /// Pools that are compared and not written.
    pub compared: usize,
    /// Those of them that have not been seen, of which nothing is known.
    pub unseen: usize,
    /// Those that would be changed.
    pub pools: usize,
    /// The members that would be added to them.
    pub add: usize,
    /// The members that would be removed from them.
    pub remove: usize,
    /// Those of which a removal would be held back.
    pub held_pools: usize,
    /// The members that would stay for that.
    pub held_members: usize,
}

impl Snapshot {
    /// The nodes that are left out of a pool, of all of its Services.
    #[must_use]
    pub fn left_out_of(&self, pool: &PoolView) -> BTreeSet<&LeftOutView> {
        let services = pool.services.values().filter_map(|key| self.services.get(key));
        services.flat_map(|service| &service.left_out).filter(|of| of.family == pool.family).collect()
    }

    /// The pools that have been out of sync for longest although they are to be written, and since when; so many at most.
    #[must_use]
    pub fn longest_out_of_sync(&self, most: usize) -> Vec<(Now, &PoolView)> {
        let late = self.pools.values().filter_map(|view| Some((view.late_since()?, view.as_ref())));
        let mut late: Vec<(Now, &PoolView)> = late.collect();
        late.sort_unstable_by(|(one, a), (other, b)| (one, &a.pool).cmp(&(other, &b.pool)));
        late.truncate(most);
        late
    }

    /// The sums over all pools that are only compared: the paused ones, and in a dry run all.
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

/// Why a Service is, or is not, in a pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServiceView {
    /// Namespace and name.
    pub key: ServiceKey,
    /// The UID.
    pub uid: ServiceUid,
    /// Whether it is a candidate, and if not, why (D1).
    pub candidacy: Candidacy,
    /// Whether it carries the annotation that pauses it (D1); other pauses are in [`PolicyView`].
    pub paused: bool,
    /// Its EndpointSlices.
    pub slices: usize,
    /// Its endpoints over all slices.
    pub endpoints: usize,
    /// What is wrong with its data (D6), in words.
    pub data_errors: Vec<Arc<str>>,
    /// What is known of its EndpointSlices, by A88's states (X5); `None` unless it is a candidate.
    pub resource: Option<ResourceView>,
    /// The nodes with endpoints of it that are left out of a pool, in order; [`ServiceView::MOST_LEFT_OUT`] at most.
    pub left_out: Vec<LeftOutView>,
    /// The pools its rules send to.
    pub pools: Vec<PoolId>,
    /// Pools of its that membership is not written of, and why (D2).
    pub not_manageable: Vec<(PoolId, NotManageable)>,
}

impl ServiceView {
    /// How many nodes are shown at most that are left out.
    pub const MOST_LEFT_OUT: usize = 100;
}

/// A node with endpoints of a Service that is left out of a pool of it (D4, D5).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct LeftOutView {
    /// The node.
    pub node: NodeName,
    /// The family of the pool.
    pub family: Family,
    /// Its addresses of that family.
    pub ips: BTreeSet<IpAddr>,
    /// Why.
    pub why: LeftOut,
}

/// Whether a Service is a candidate (D1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Candidacy {
    /// It is.
    Candidate,
    /// Its type is not `LoadBalancer`.
    NotLoadBalancer,
    /// The cloud configuration has no `multipleStandardLoadBalancerConfigurations`: no Service has a pool of its own.
    NotMultiSlb,
    /// Its `externalTrafficPolicy` is not `Local`.
    NotLocal,
    /// It is being deleted.
    Deleting,
    /// `services.selector` or `services.namespaces` leave it out.
    NotSelected,
}

impl Candidacy {
    /// The word for the admin API.
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
    /// The pool that is written, its phase in one word, and since when.
    pub writing: Option<(PoolId, &'static str, Now)>,
    /// Pools that are due, in the order in which they would be granted, each with its class, or `waiting to retry`,
    /// and since when.
    pub waiting: Vec<(PoolId, &'static str, Now)>,
    /// Until when the lane is closed.
    pub closed_until: Option<Now>,
    /// The fault that blocks its membership, in words, while W10's breaker is open.
    pub blocked_by: Option<Arc<str>>,
}

/// A source of facts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceView {
    /// Which kind.
    pub kind: Kind,
    /// What its watcher does, in one word.
    pub phase: &'static str,
    /// Whether a complete list has been taken in.
    pub synced: bool,
    /// How many objects are held.
    pub objects: usize,
    /// When the last line of a watch or list, or the last page of a list, arrived.
    pub heard_at: Option<Now>,
    /// Since when no watch of this kind delivers changes; `None` while one does.
    pub stale_since: Option<Now>,
    /// The last failure.
    pub last_error: Option<Arc<str>>,
}

/// A load balancer as discovery last saw it.
#[derive(Clone, Debug)]
pub struct LbView {
    /// Its name.
    pub lb: LbName,
    /// Whether it exists; `None`: not known yet.
    pub exists: Option<bool>,
    /// When it was last read successfully.
    pub read_at: Option<Now>,
    /// How many pools it has.
    pub pools: usize,
    /// What the last failed read said.
    pub last_error: Option<Arc<str>>,
}

/// A gate and its budget.
#[derive(Clone, PartialEq, Debug)]
pub struct GateView {
    /// Until when it is closed.
    pub closed_until: Option<Now>,
    /// Calls that may be made at once.
    pub tokens: f64,
    /// The most that can be saved up.
    pub capacity: f64,
    /// When enough is saved up for a write of membership, the reserve aside; `None`: it is, or never will be.
    pub short_until: Option<Now>,
}
