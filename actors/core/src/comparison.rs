//! When a service that writes nothing has compared everything once: what an export and a check wait for, and what they
//! still wait for when their time is over (docs/design/surface.md, C4). It owns which pools were compared; how the
//! answer is told to operators is the commands' business.
//!
//! It hears the published snapshots alone. Views of one thing come in one after the other, so everything must have been
//! compared for a second; and members that only may stay must have had `members.removalDelay` to be certain of, which
//! counts for each pool from its own first comparison: a load balancer may be read long after the others.

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

/// For how long everything must have been compared.
const STEADY_FOR: Duration = Duration::from_secs(1);
/// What is added to the removal delay, so that what follows from its end is seen.
const AFTER_DELAY: Duration = Duration::from_secs(2);

/// What the machine is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// For how long members that may have to go are waited for once their pool was compared: `members.removalDelay`, or
    /// nothing where it does not matter what becomes of them.
    pub removal_delay: Duration,
    /// How long everything may take from the start.
    pub within: Duration,
    /// `clusterName`: the pools that are named for it are not compared (D2).
    pub cluster_name: Arc<str>,
    /// The pools that are filled from xDS sources, and from which (X2).
    pub listed: BTreeMap<PoolId, Name>,
}

/// What the machine can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// Begin; time counts from here.
    Start,
    /// What is published now.
    Seen(Arc<Snapshot>),
}

/// What the machine can say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Out {
    /// It is over, once.
    Ended(End),
}

/// How the wait has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Everything was compared.
    Complete,
    /// The time is over, and something was still [missing](Comparison::missing).
    Late,
}

/// Waits until everything was compared once (C4).
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
    /// Not begun.
    Idle,
    Waiting {
        /// Until when.
        until: Now,
        /// Since when everything has been compared.
        steady: Option<Now>,
    },
    Over(End),
}

/// The pools that were compared once, and when they first were, though some of them may have to be compared again: in a
/// busy cluster changes of some pool wait at every moment.
#[derive(Default, Debug)]
pub struct Compared(BTreeMap<PoolId, Now>);

/// What an xDS source asks of its pools.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asks {
    /// That they are left as they are.
    Nothing,
    /// Members, or that there are none.
    Members,
}

/// A source of listed pools (X2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Followed<'a> {
    /// Which.
    pub name: &'a Name,
    /// What is known of it; `None`: nothing was said of it.
    pub fact: Option<&'a SourceFact>,
    /// The pools that are filled from it.
    pub pools: Vec<&'a PoolId>,
}

/// A thing that is waited for. It is shown as a fragment of a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Missing {
    /// The first complete lists of everything.
    Lists,
    /// A complete list of one kind, and what its last request said.
    List(Kind, Option<Arc<str>>),
    /// The first look at the load balancers.
    Discovery,
    /// A look at one load balancer, and what the last one said.
    LoadBalancer(LbName, Option<Arc<str>>),
    /// What is known of an xDS source, and why a control plane does not say (X2).
    Source(Name, Option<Arc<str>>),
    /// A pool that was not compared.
    Pool(PoolId),
    /// Members of a pool may have to go, and it is not certain yet whether.
    Removals(PoolId),
    /// Everything was compared, but only just.
    Steadiness,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Missing::Lists => f.write_str("the first lists of services, endpointslices and nodes are not in"),
            Missing::List(kind, Some(error)) => write!(f, "{}: {error}", kind.resource()),
            Missing::List(kind, None) => write!(f, "the list of {} is not in", kind.resource()),
            Missing::Discovery => f.write_str("no load balancer was read yet"),
            Missing::LoadBalancer(lb, Some(error)) => write!(f, "{lb}: {error}"),
            Missing::LoadBalancer(lb, None) => write!(f, "load balancer {lb} was not read yet"),
            Missing::Source(source, Some(why)) => write!(f, "{source}: {why}"),
            Missing::Source(source, None) => {
                write!(f, "nothing was heard of {source}, neither what it is nor an error")
            }
            Missing::Pool(pool) => write!(f, "{pool} was not compared"),
            Missing::Removals(pool) => write!(f, "members.removalDelay is not over for members of {pool}"),
            Missing::Steadiness => f.write_str("the last comparison was less than a second ago"),
        }
    }
}

impl Compared {
    /// Notes what is compared in this snapshot. A pool that is not there any more, or was not seen, is forgotten. Before
    /// the first lists are in no moment counts.
    pub fn note(&mut self, now: Now, snapshot: &Snapshot) {
        let is_seen = |id: &PoolId| snapshot.pools.get(id).is_some_and(|pool| pool.observed.is_some());
        self.0.retain(|id, _| snapshot.synced.done() && is_seen(id));
        for (id, _) in snapshot.pools.iter().filter(|(_, pool)| is_compared(pool)) {
            self.0.entry(id.clone()).or_insert(now);
        }
    }

    /// Whether a pool was compared.
    #[must_use]
    pub fn has(&self, pool: &PoolId) -> bool {
        self.0.contains_key(pool)
    }
}

impl Comparison {
    /// One that has not begun.
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

    /// What was seen last.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<Snapshot> {
        &self.snapshot
    }

    /// What was compared.
    #[must_use]
    pub fn compared(&self) -> &Compared {
        &self.compared
    }

    /// The sources of listed pools, by name.
    #[must_use]
    pub fn sources(&self) -> Vec<Followed<'_>> {
        let known = self.snapshot.xds.as_deref().map(|view| &view.sources);
        let mut pools: BTreeMap<&Name, Vec<&PoolId>> = BTreeMap::new();
        for (id, name) in &self.params.listed {
            pools.entry(name).or_default().push(id);
        }
        let fact = |name| known.and_then(|known| known.get(name));
        pools.into_iter().map(|(name, pools)| Followed { name, fact: fact(name), pools }).collect()
    }

    /// The source that a pool is filled from, if it is listed.
    #[must_use]
    pub fn source_of(&self, pool: &PoolId) -> Option<&Name> {
        self.params.listed.get(pool)
    }

    /// Whether each Service's pools were looked at, and each pool was compared once with what it must hold.
    fn has_all(&self) -> bool {
        self.unseen().is_empty()
    }

    /// Whether nothing of what is seen would be said otherwise later: everything was compared, and members that only may
    /// stay have had their delay.
    #[must_use]
    pub fn is_decided(&self, now: Now) -> bool {
        self.has_all() && self.decided_at().is_none_or(|at| at <= now)
    }

    /// What is still waited for; nothing, once it has ended as complete, and never nothing as long as it has not.
    #[must_use]
    pub fn missing(&self) -> Vec<Missing> {
        match self.phase {
            Phase::Over(End::Complete) => return Vec::new(),
            Phase::Idle | Phase::Waiting { .. } | Phase::Over(End::Late) => {}
        }
        let mut missing = self.unseen();
        if missing.is_empty() {
            missing.extend(self.undecided().map(Missing::Removals));
        }
        if missing.is_empty() {
            missing.push(Missing::Steadiness);
        }
        // Why it may be so: what these sources have brought before still counts.
        let failing = sources(&self.snapshot).filter(|source| source.synced);
        let failing = failing.filter_map(|it| Some(Missing::List(it.kind, Some(it.last_error.clone()?))));
        missing.extend(failing);
        missing
    }

    fn unseen(&self) -> Vec<Missing> {
        let mut missing = unread(&self.snapshot);
        missing.extend(self.untold());
        missing.extend(self.uncompared().into_iter().cloned().map(Missing::Pool));
        missing
    }

    /// The sources of which nothing is known yet.
    fn untold(&self) -> impl Iterator<Item = Missing> {
        let servers = self.snapshot.xds.iter().flat_map(|view| &view.dump.servers);
        let mut failures =
            servers.filter(|server| server.is_used).filter_map(|server| server.failure.clone());
        let why = failures.next_back();
        let untold = self.sources().into_iter().filter(|source| asks(source).is_none());
        untold.map(move |source| Missing::Source(source.name.clone(), why.clone()))
    }

    /// The listed pools of which their sources ask something, and that are not refused.
    fn filled(&self) -> impl Iterator<Item = &PoolId> {
        let asking = self.sources().into_iter().filter(|source| asks(source) == Some(Asks::Members));
        asking.flat_map(|source| source.pools).filter(|id| !self.snapshot.refused.contains_key(id))
    }

    /// The pools that are to be compared and were not: those that are there, those that a candidate's rules send to and
    /// that are not refused, and those that are filled from xDS sources. Rules of any other Service may send to pools
    /// that do not exist, and those of the cluster as a whole have no owner (D2).
    fn uncompared(&self) -> BTreeSet<&PoolId> {
        let Snapshot { services, pools, .. } = &*self.snapshot;
        let refused = services.values().flat_map(|service| &service.not_manageable);
        let refused: BTreeSet<&PoolId> = refused.map(|(pool, _)| pool).collect();
        let is_candidate = |service: &&Arc<ServiceView>| service.candidacy == Candidacy::Candidate;
        let wanted = services.values().filter(is_candidate).flat_map(|service| &service.pools);
        let wanted = wanted.filter(|id| !refused.contains(id) && !self.cluster_pools.contains(&id.pool));
        wanted.chain(pools.keys()).chain(self.filled()).filter(|id| !self.compared.has(id)).collect()
    }

    /// Pools with members that only may be there: some of them because they left too short a time ago.
    fn undecided(&self) -> impl Iterator<Item = PoolId> {
        let may_lose = |pool: &&Arc<PoolView>| {
            let mut observed = pool.observed.iter().flatten();
            observed.any(|ip| pool.level.tolerated.contains(ip))
        };
        self.snapshot.pools.values().filter(may_lose).map(|pool| pool.pool.clone())
    }

    /// When the last of them have had their delay; `None`: there are none.
    fn decided_at(&self) -> Option<Now> {
        let delay = self.params.removal_delay.saturating_add(AFTER_DELAY);
        self.undecided().filter_map(|pool| self.compared.0.get(&pool)).map(|since| since.plus(delay)).max()
    }

    fn on_seen(&mut self, now: Now, snapshot: Arc<Snapshot>) {
        self.compared.note(now, &snapshot);
        self.snapshot = snapshot;
        let all = self.has_all();
        match &mut self.phase {
            Phase::Idle | Phase::Over(_) => {}
            Phase::Waiting { steady, .. } => *steady = all.then(|| steady.unwrap_or(now)),
        }
    }

    /// When it is complete, if nothing that is seen until then changes that.
    fn complete_at(&self) -> Option<Now> {
        let Phase::Waiting { steady, .. } = self.phase else { return None };
        let steady = steady?.plus(STEADY_FOR);
        Some(self.decided_at().map_or(steady, |at| at.max(steady)))
    }

    fn advance(&mut self, now: Now, out: &mut Vec<Out>) {
        let Phase::Waiting { until, .. } = self.phase else { return };
        let end = if self.complete_at().is_some_and(|at| at <= now) {
            End::Complete
        } else if until <= now {
            End::Late
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
            In::Seen(snapshot) => self.on_seen(now, snapshot),
        }
        self.advance(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let Phase::Waiting { until, .. } = self.phase else { return None };
        Some(self.complete_at().map_or(until, |at| at.min(until)))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.advance(now, out);
    }
}

/// What a source asks of its pools; where it has an error of its own and nothing was ever known of it, that is nothing (X3).
/// `None`: it is waited for.
fn asks(source: &Followed<'_>) -> Option<Asks> {
    match &source.fact?.assigned {
        Assigned::Unknown(None) => None,
        // A server that is not reached is tried again, and may answer then.
        Assigned::Unknown(Some(fault)) if fault.reason == Reason::Connectivity => None,
        Assigned::Unknown(Some(_)) => Some(Asks::Nothing),
        Assigned::Usable(_) | Assigned::Dropped(_) => Some(Asks::Members),
    }
}

/// The sources that levels rest on.
fn sources(snapshot: &Snapshot) -> impl Iterator<Item = &SourceView> {
    Kind::OF_LEVELS.iter().filter_map(|kind| snapshot.sources.get(kind))
}

/// What of the first lists and of the load balancers is not known. Discovery is done when one load balancer was seen;
/// what another one has is not known then.
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

/// Whether it is known what would become of a pool.
fn is_compared(pool: &PoolView) -> bool {
    match pool.state {
        PoolState::Unknown | PoolState::Due | PoolState::Attempting => false,
        PoolState::Waiting => pool.withheld.is_some() || pool.waiting_since.is_none(),
        PoolState::Right
        | PoolState::Parked
        | PoolState::Paused
        | PoolState::Failed
        | PoolState::Quarantined => pool.observed.is_some(),
    }
}
