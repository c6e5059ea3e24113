//! Decides when a process that writes nothing has compared every pool once, and what is still missing after the time
//! limit (docs/design/surface.md, C4). An export and a check wait for this. The module owns the list of compared
//! pools; the commands report the result to the operator.
//!
//! Its only input is the published snapshot. Views of one object arrive one after the other, so every pool must have
//! been compared for one second. A member that is only tolerated is certain after `members.removalDelay`, counted
//! from the first comparison of its pool, because a load balancer may be read long after the others.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use model::ids::{LbName, PoolId, PoolName};
use model::machine::{Machine, Now};
use model::object::Kind;
use model::sample::PoolState;
use model::view::{Candidacy, PoolView, ServiceView, Snapshot, SourceView};
use model::xds::cache::Reason;
use model::xds::name::Name;
use model::xds::source::{Assigned, SourceFact};

/// Time for which every pool must have been compared.
const STEADY_FOR: Duration = Duration::from_secs(1);
/// Margin after the removal delay, so that the effects of its end are seen.
const AFTER_DELAY: Duration = Duration::from_secs(2);

/// Parameters of the machine.
#[derive(Clone, Debug)]
pub struct Params {
    /// Time to wait, after the first comparison of a pool, for members that may have to be removed:
    /// `members.removalDelay`, or zero where removals do not matter.
    pub removal_delay: Duration,
    /// Time limit, counted from the start.
    pub within: Duration,
    /// `clusterName`: the pools with the cluster's name are not compared (D2).
    pub cluster_name: Arc<str>,
    /// The listed pools, each with the xDS source that fills it (X2).
    pub listed: BTreeMap<PoolId, Name>,
}

/// Input of the machine.
#[derive(Clone, Debug)]
pub enum In {
    /// Start; time counts from here.
    Start,
    /// The snapshot that was published.
    Snapshot(Arc<Snapshot>),
}

/// Output of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Out {
    /// The wait has ended; sent once.
    Ended(End),
}

/// The end of the wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Every pool was compared.
    Complete,
    /// The time limit has passed, and something is still [missing](Comparison::missing).
    TimedOut,
}

/// Waits until every pool was compared once (C4).
#[derive(Debug)]
pub struct Comparison {
    params: Params,
    cluster_pools: [PoolName; 2],
    phase: Phase,
    compared: Compared,
    snapshot: Arc<Snapshot>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Before the start.
    Idle,
    Waiting {
        /// Time limit.
        until: Now,
        /// Time since which every pool has been compared.
        steady: Option<Now>,
    },
    Over(End),
}

/// The compared pools and the time of their first comparison. A pool stays in the list while it must be compared
/// again: in a busy cluster, some pool always has waiting changes.
#[derive(Default, Debug)]
pub struct Compared(BTreeMap<PoolId, Now>);

/// The demand of an xDS source on its pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SourceDemand {
    /// Nothing: the pools stay unchanged.
    Nothing,
    /// Members, or an empty pool.
    Members,
}

/// A source of listed pools (X2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListedSource<'a> {
    /// Name of the source.
    pub name: &'a Name,
    /// State of the source; `None` until the first report about it.
    pub fact: Option<&'a SourceFact>,
    /// The pools that the source fills.
    pub pools: Vec<&'a PoolId>,
}

/// Something that the wait needs. It is displayed as a fragment of a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The first complete lists of all kinds.
    Lists,
    /// A complete list of one kind, and the error of its last request.
    List(Kind, Option<Arc<str>>),
    /// The first read of the load balancers.
    Discovery,
    /// A read of one load balancer, and the error of the last one.
    LoadBalancer(LbName, Option<Arc<str>>),
    /// The state of an xDS source, and the error of the control plane (X2).
    Source(Name, Option<Arc<str>>),
    /// A comparison of a pool.
    Pool(PoolId),
    /// Certainty whether members of a pool must be removed.
    Removals(PoolId),
    /// One second after the last comparison.
    Steadiness,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Lists => {
                f.write_str("the first lists of services, endpointslices and nodes are not complete")
            }
            Missing::List(kind, Some(error)) => write!(f, "{}: {error}", kind.resource()),
            Missing::List(kind, None) => write!(f, "the list of {} is not complete", kind.resource()),
            Missing::Discovery => f.write_str("no load balancer has been read yet"),
            Missing::LoadBalancer(lb, Some(error)) => write!(f, "{lb}: {error}"),
            Missing::LoadBalancer(lb, None) => write!(f, "load balancer {lb} has not been read yet"),
            Missing::Source(source, Some(reason)) => write!(f, "{source}: {reason}"),
            Missing::Source(source, None) => {
                write!(f, "no response about {source} was received")
            }
            Missing::Pool(pool) => write!(f, "{pool} was not compared"),
            Missing::Removals(pool) => write!(f, "members.removalDelay is not over for members of {pool}"),
            Missing::Steadiness => f.write_str("the last comparison was less than a second ago"),
        }
    }
}

impl Compared {
    /// Records the pools that this snapshot compares. Drops a pool that no longer exists or has not been read. Before
    /// the first lists are complete, no comparison counts.
    pub fn record(&mut self, now: Now, snapshot: &Snapshot) {
        let is_seen = |id: &PoolId| snapshot.pools.get(id).is_some_and(|pool| pool.observed.is_some());
        self.0.retain(|id, _| snapshot.synced.done() && is_seen(id));
        for (id, _) in snapshot.pools.iter().filter(|(_, pool)| is_compared(pool)) {
            self.0.entry(id.clone()).or_insert(now);
        }
    }

    /// Returns whether a pool was compared.
    #[must_use]
    pub fn has(&self, pool: &PoolId) -> bool {
        self.0.contains_key(pool)
    }
}

impl Comparison {
    /// Creates a machine that has not started.
    #[must_use]
    pub fn new(params: Params) -> Comparison {
        Comparison {
            cluster_pools: PoolName::of_cluster(&params.cluster_name),
            params,
            phase: Phase::Idle,
            compared: Compared::default(),
            snapshot: Arc::default(),
        }
    }

    /// Returns the last snapshot.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// Returns the pools that were compared.
    #[must_use]
    pub fn compared(&self) -> &Compared {
        &self.compared
    }

    /// Returns the sources of listed pools, by name.
    #[must_use]
    pub fn sources(&self) -> Vec<ListedSource<'_>> {
        let states = self.snapshot.xds.as_deref().map(|view| &view.sources);
        let mut pools: BTreeMap<&Name, Vec<&PoolId>> = BTreeMap::new();
        for (id, name) in &self.params.listed {
            pools.entry(name).or_default().push(id);
        }
        let fact = |name| states.and_then(|states| states.get(name));
        pools.into_iter().map(|(name, pools)| ListedSource { name, fact: fact(name), pools }).collect()
    }

    /// Returns the source that fills a pool, if the pool is listed.
    #[must_use]
    pub fn source_of(&self, pool: &PoolId) -> Option<&Name> {
        self.params.listed.get(pool)
    }

    /// Returns whether each pool was compared once with its level.
    fn has_all(&self) -> bool {
        self.not_compared_or_read().is_empty()
    }

    /// Returns whether the result is final: every pool was compared, and the removal delay of tolerated members has
    /// passed.
    #[must_use]
    pub fn is_decided(&self, now: Now) -> bool {
        self.has_all() && self.decided_at().is_none_or(|at| at <= now)
    }

    /// Returns what is still missing: nothing once the wait has ended as complete, and at least one entry before
    /// that.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        match self.phase {
            Phase::Over(End::Complete) => return Vec::new(),
            Phase::Idle | Phase::Waiting { .. } | Phase::Over(End::TimedOut) => {}
        }
        let mut missing = self.not_compared_or_read();
        if missing.is_empty() {
            missing.extend(self.undecided().map(Missing::Removals));
        }
        if missing.is_empty() {
            missing.push(Missing::Steadiness);
        }
        // A likely cause: earlier data of these sources still counts.
        let failing = sources(&self.snapshot).filter(|source| source.synced);
        let failing = failing.filter_map(|it| Some(Missing::List(it.kind, Some(it.last_error.clone()?))));
        missing.extend(failing);
        missing
    }

    fn not_compared_or_read(&self) -> Vec<Missing> {
        let mut missing = unread(&self.snapshot);
        missing.extend(self.unknown_sources());
        missing.extend(self.uncompared().into_iter().cloned().map(Missing::Pool));
        missing
    }

    /// Returns the sources without a state yet.
    fn unknown_sources(&self) -> impl Iterator<Item = Missing> {
        let servers = self.snapshot.xds.iter().flat_map(|view| &view.dump.servers);
        let mut failures =
            servers.filter(|server| server.is_used).filter_map(|server| server.failure.clone());
        let reason = failures.next_back();
        let unknown = self.sources().into_iter().filter(|source| demand_of(source).is_none());
        unknown.map(move |source| Missing::Source(source.name.clone(), reason.clone()))
    }

    /// Returns the listed pools that are not refused and whose sources require members.
    fn filled(&self) -> impl Iterator<Item = &PoolId> {
        let requiring =
            self.sources().into_iter().filter(|source| demand_of(source) == Some(SourceDemand::Members));
        requiring.flat_map(|source| source.pools).filter(|id| !self.snapshot.refused.contains_key(id))
    }

    /// Returns the pools that must be compared and have not been: existing pools, pools that a candidate's rules use
    /// and that are not refused, and pools that xDS sources fill. Rules of other Services may use pools that do not
    /// exist. The pools with the cluster's name have no owner (D2).
    fn uncompared(&self) -> BTreeSet<&PoolId> {
        let Snapshot { services, pools, .. } = &*self.snapshot;
        let refused = services.values().flat_map(|service| &service.not_manageable);
        let refused: BTreeSet<&PoolId> = refused.map(|(pool, _)| pool).collect();
        let is_candidate = |service: &&Arc<ServiceView>| service.candidacy == Candidacy::Candidate;
        let wanted = services.values().filter(is_candidate).flat_map(|service| &service.pools);
        let wanted = wanted.filter(|id| !refused.contains(id) && !self.cluster_pools.contains(&id.pool));
        wanted.chain(pools.keys()).chain(self.filled()).filter(|id| !self.compared.has(id)).collect()
    }

    /// Returns the pools with tolerated members, some of which may have left only recently.
    fn undecided(&self) -> impl Iterator<Item = PoolId> {
        let may_lose = |pool: &&Arc<PoolView>| {
            let mut observed = pool.observed.iter().flatten();
            observed.any(|ip| pool.level.tolerated.contains(ip))
        };
        self.snapshot.pools.values().filter(may_lose).map(|pool| pool.pool.clone())
    }

    /// Returns the time at which the removal delay of the last of these pools ends; `None` if there are none.
    fn decided_at(&self) -> Option<Now> {
        let delay = self.params.removal_delay.saturating_add(AFTER_DELAY);
        self.undecided().filter_map(|pool| self.compared.0.get(&pool)).map(|since| since.plus(delay)).max()
    }

    fn on_snapshot(&mut self, now: Now, snapshot: Arc<Snapshot>) {
        self.compared.record(now, &snapshot);
        self.snapshot = snapshot;
        let all = self.has_all();
        match &mut self.phase {
            Phase::Idle | Phase::Over(_) => {}
            Phase::Waiting { steady, .. } => *steady = all.then(|| steady.unwrap_or(now)),
        }
    }

    /// Returns the time at which the wait is complete if nothing changes until then.
    fn complete_at(&self) -> Option<Now> {
        let Phase::Waiting { steady, .. } = self.phase else { return None };
        let steady = steady?.plus(STEADY_FOR);
        Some(self.decided_at().map_or(steady, |at| at.max(steady)))
    }

    fn check_end(&mut self, now: Now, out: &mut Vec<Out>) {
        let Phase::Waiting { until, .. } = self.phase else { return };
        let end = if self.complete_at().is_some_and(|at| at <= now) {
            End::Complete
        } else if until <= now {
            End::TimedOut
        } else {
            return;
        };
        self.phase = Phase::Over(end);
        out.push(Out::Ended(end));
    }
}

impl Machine for Comparison {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::Start => {
                let until = now.plus(self.params.within);
                self.phase = Phase::Waiting { until, steady: None };
            }
            In::Snapshot(snapshot) => self.on_snapshot(now, snapshot),
        }
        self.check_end(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let Phase::Waiting { until, .. } = self.phase else { return None };
        Some(self.complete_at().map_or(until, |at| at.min(until)))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.check_end(now, out);
    }
}

/// Returns what a source requires of its pools. A source that has an error of its own, and that never delivered data,
/// requires nothing (X3). `None` while its answer is pending.
fn demand_of(source: &ListedSource<'_>) -> Option<SourceDemand> {
    match &source.fact?.assigned {
        Assigned::Unknown(None) => None,
        // The client retries an unreachable server, which may answer later.
        Assigned::Unknown(Some(fault)) if fault.reason == Reason::Connectivity => None,
        Assigned::Unknown(Some(_)) => Some(SourceDemand::Nothing),
        Assigned::Usable(_) | Assigned::Dropped(_) => Some(SourceDemand::Members),
    }
}

/// Returns the sources of the kinds that levels depend on.
fn sources(snapshot: &Snapshot) -> impl Iterator<Item = &SourceView> {
    Kind::OF_LEVELS.iter().filter_map(|kind| snapshot.sources.get(kind))
}

/// Returns which first lists and which load balancers are still unread. Discovery is done after the first load
/// balancer was read; others may still be unread.
#[must_use]
pub fn unread(snapshot: &Snapshot) -> Vec<Missing> {
    let Snapshot { synced, load_balancers, .. } = snapshot;
    let mut unread = Vec::new();
    if !synced.lists {
        let open = sources(snapshot).filter(|source| !source.synced);
        unread.extend(open.map(|source| Missing::List(source.kind, source.last_error.clone())));
        if unread.is_empty() {
            unread.push(Missing::Lists);
        }
    }
    let open = load_balancers.values().filter(|lb| lb.last_error.is_some() || lb.exists.is_none());
    let before = unread.len();
    unread.extend(open.map(|lb| Missing::LoadBalancer(lb.lb.clone(), lb.last_error.clone())));
    if unread.len() == before && !synced.discovery {
        unread.push(Missing::Discovery);
    }
    unread
}

/// Returns whether the outcome for a pool is known.
fn is_compared(pool: &PoolView) -> bool {
    match pool.state {
        PoolState::Unknown | PoolState::Due | PoolState::Attempting => false,
        PoolState::Waiting => pool.withheld.is_some() || pool.waiting_since.is_none(),
        PoolState::InSync
        | PoolState::Parked
        | PoolState::Paused
        | PoolState::Failed
        | PoolState::Quarantined => pool.observed.is_some(),
    }
}
