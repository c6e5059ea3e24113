//! The duties of the guards, checked by the inputs of a process and its pools. A release by a list does not empty a
//! pool, nor remove most of its members, before lists that started later confirm it (G1-G3). Not too many pools lose
//! most of their members at the same time (G4). A release by the operator is exempt.
//!
//! The breaker is checked by the inputs of pools of every replica, because a successor would apply them. A pool had
//! its required members once they were observed, and the members that it must lose until they were observed to be
//! gone; when a pause ends, it had the members in it. The Informer's facts about each Service decide which losses
//! count (`losses.rs`): too many must not pass, and with few, removals must not be stopped.
//!
//! This watchdog is more lenient than the guards where it has less information: about the other times at which a pool
//! was observed, and about which of several facts arrived together.

#[path = "losses.rs"]
mod losses;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use model::assignment::{Assignment, HeldReason};
use model::ids::{Family, PoolId, ServiceUid};
use model::level::{Level, Provenance, Source};
use model::object::{ExclusionRule, Kind};
use model::services::{Part, ServiceFact};
use model::watch::WatchUpdate;
use pools::directory;
use sources::watch::{self, WatchRequest};

use losses::{Losses, Lost};

/// Time between a doubt and the start of the list that resolves it, in microseconds: 30 s, minus possible clock
/// differences.
const RESOLVED_AFTER_US: u64 = 25_000_000;
/// Time after which the members that an empty pool is given count as its own: 30 s, plus the delay of the guard,
/// which batches changes.
const STANDS_US: u64 = 30_000_000 + 20_000_000;
/// Reference age of a pool's size: five minutes. The guard, which batches changes, may look back by somewhat less or
/// more.
const BACK_US: u64 = 300_000_000;
const BLURRED_US: u64 = 20_000_000;
/// Number of pools above the guard's limit that may have been reported while others that have grown were not.
const CROSSING: usize = 2;

/// Time until a pool is observed again.
const SEEN_AGAIN_US: u64 = 90_000_000;
/// Time after a release by the operator within which pools may receive earlier levels.
const UNDER_WAY_US: u64 = 25_000_000;

/// Inputs of one process.
#[derive(Default)]
pub struct Guards {
    /// Facts of the Informer about each Service that the Directory has not received yet.
    pending_facts: BTreeMap<ServiceUid, Vec<Arc<ServiceFact>>>,
    facts: BTreeMap<ServiceUid, Arc<ServiceFact>>,
    /// Addresses that a list has released, and when.
    doubts: BTreeMap<(ServiceUid, IpAddr), u64>,
    /// Time since which a list shows that a Service requires nothing in a family.
    listed_empty: BTreeMap<(ServiceUid, Family), u64>,
    /// Start of the list in progress of each kind, and of the newest complete one.
    begun: BTreeMap<Kind, u64>,
    listed: BTreeMap<Kind, u64>,
    observed: BTreeMap<PoolId, BTreeSet<IpAddr>>,
    /// Levels that the Directory has assigned to each pool and that the pool has not received, and when.
    assigned: BTreeMap<PoolId, VecDeque<(u64, AssignmentKey)>>,
    pools: BTreeMap<PoolId, PoolInputs>,
    /// Reason why Services have released addresses.
    losses: Losses,
    /// Time at which the operator last released everything.
    released_at: Option<u64>,
}

/// Identity of an assignment: its members, and the revisions of its Services.
type AssignmentKey = (BTreeSet<IpAddr>, BTreeSet<IpAddr>, Vec<(ServiceUid, u64)>);

fn key(assignment: &Assignment) -> AssignmentKey {
    let Level { required, tolerated, .. } = &assignment.level;
    let revisions = assignment.services.iter().map(|(uid, share)| (uid.clone(), share.revision));
    (required.keys().copied().collect(), tolerated.iter().copied().collect(), revisions.collect())
}

/// Inputs of one pool.
struct PoolInputs {
    /// Time since which each Service has been its owner.
    since: BTreeMap<ServiceUid, u64>,
    /// Number of members, from each time on.
    had: Vec<(u64, usize)>,
    /// Required members.
    demand: BTreeSet<IpAddr>,
    /// Members that only host endpoints of the other family, and were never required: they do not count as members
    /// (D4).
    strays: BTreeSet<IpAddr>,
    /// All members that were ever required.
    ever: BTreeSet<IpAddr>,
    /// Time at which each address was last required: until the pool is observed again it may be a member.
    required: BTreeMap<IpAddr, u64>,
    /// Time at which each address was last observed.
    last_observed: BTreeMap<IpAddr, u64>,
    /// Members at first, or at the end of a pause, that were not required.
    found: BTreeSet<IpAddr>,
    /// Number of members that remain.
    size: usize,
    /// Number of members lost for causes that count: certain and possible losses.
    lost: Lost,
    /// True if it is paused.
    paused: bool,
    /// True if its source empties it: that may be configured for data errors, and is not guarded (X3).
    is_given_up: bool,
    /// Time at which the operator last released its held removals.
    released_at: Option<u64>,
}

impl PoolInputs {
    /// Creates the state of a pool with its first level.
    fn new(
        now: u64,
        paused: bool,
        observed: &BTreeSet<IpAddr>,
        strays: &BTreeSet<IpAddr>,
        demand: &BTreeSet<IpAddr>,
    ) -> PoolInputs {
        PoolInputs {
            since: BTreeMap::new(),
            had: vec![(now, (observed - strays).len())],
            demand: BTreeSet::new(),
            strays: strays.clone(),
            ever: BTreeSet::new(),
            required: BTreeMap::new(),
            last_observed: BTreeMap::new(),
            found: observed - demand,
            size: 0,
            lost: Lost::default(),
            paused,
            is_given_up: false,
            released_at: None,
        }
    }

    /// Returns its smallest size about five minutes ago; if that was zero, the smallest size that was assigned then and
    /// has lasted.
    fn base(&self, now: u64) -> usize {
        let (less, more) = (BACK_US - BLURRED_US, BACK_US + BLURRED_US);
        let from = self.had.iter().rposition(|(at, _)| at + more <= now).unwrap_or(0);
        let then = self.had.iter().skip(from).enumerate().filter(|(n, (at, _))| *n == 0 || at + less <= now);
        let least = then.map(|(_, (_, size))| *size).min().unwrap_or(0);
        if least > 0 {
            return least;
        }
        let ends = self.had.iter().skip(from + 1).map(|(at, _)| *at).chain([now]);
        let runs = self.had.iter().skip(from).zip(ends);
        let stood = runs.filter(|((at, size), end)| *size > 0 && at + STANDS_US <= *end);
        stood.map(|((_, size), _)| *size).min().unwrap_or(0)
    }

    /// Returns how many of these members a level keeps.
    fn left(&self, level: &Level, members: &BTreeSet<IpAddr>) -> usize {
        let is_had = |ip: &&IpAddr| !self.strays.contains(*ip);
        members.iter().filter(is_had).count() - level.surplus(members).filter(is_had).count()
    }

    /// Returns whether it loses most of its members.
    fn is_shrunk(&self, now: u64) -> bool {
        let is_little = 2 * self.size < self.base(now) && self.size < self.lost.surely;
        !self.paused && !self.is_given_up && is_little
    }

    /// Returns whether a breaker that knows more may count it.
    fn may_be_shrunk(&self) -> bool {
        self.demand.len() < self.lost.possibly
    }

    /// Counts the members that its Services have released. A loss is certain while the member is in the pool or was
    /// recently. Members that were found there count as certain until the operator releases anything, unless their
    /// endpoints have left. Returns the current members among them.
    fn count_losses(
        &mut self,
        now: u64,
        losses: &Losses,
        observed: &BTreeSet<IpAddr>,
        is_released: bool,
    ) -> BTreeSet<IpAddr> {
        self.last_observed.retain(|_, at| *at + BACK_US - BLURRED_US > now);
        self.found.retain(|ip| !self.demand.contains(ip) && !self.strays.contains(ip));
        let (mut surely, mut possibly) = losses.of(self.since.keys());
        possibly.extend(&self.found);
        if !is_released && self.released_at.is_none() {
            let is_counted = |ip: &&IpAddr| !losses.is_of_endpoints(self.since.keys(), ip);
            surely.extend(self.found.iter().filter(is_counted));
        }
        let is_had = |ip: &&IpAddr| observed.contains(*ip) || self.last_observed.contains_key(*ip);
        self.lost = Lost {
            surely: surely.difference(&self.demand).filter(is_had).count(),
            possibly: possibly.difference(&self.demand).count(),
        };
        surely
    }

    /// Records an observation: the required and observed members were members, and those that it must lose were so
    /// until now.
    fn observe(&mut self, now: u64, observed: &BTreeSet<IpAddr>) {
        self.last_observed.extend(observed.iter().map(|ip| (*ip, now)));
        let observed = &(observed - &self.strays);
        let (demand, observed_count) = (self.demand.len(), observed.len());
        let last = self.had.last().map_or(demand.min(observed_count), |(_, last)| *last);
        let size = if self.paused {
            observed_count
        } else {
            demand.min(last.max(observed_count)).max(last.min(observed.union(&self.demand).count()))
        };
        if self.had.is_empty() || size != last {
            self.had.push((now, size));
        }
    }

    /// Records whether operators pause it. The members at the end of a pause were members.
    fn pauses(&mut self, now: u64, paused: bool, observed: &BTreeSet<IpAddr>, demand: &BTreeSet<IpAddr>) {
        let observed = &(observed - &self.strays);
        if std::mem::replace(&mut self.paused, paused) && !paused {
            self.found.extend(observed - demand);
            if observed.len() > self.base(now) {
                self.had = vec![(now, observed.len())];
            }
        }
    }
}

/// Checks that members in doubt neither empty a pool nor remove most of it (G2, G3). `there` are the observed
/// members, and those that may have been written since.
fn check_doubt(
    assignment: &Assignment,
    (observed, there): (&BTreeSet<IpAddr>, &BTreeSet<IpAddr>),
    doubted: &[&IpAddr],
    goes: usize,
) -> Result<(), String> {
    let Assignment { pool, level, .. } = assignment;
    if !doubted.is_empty() && goes == observed.len() && level.required.is_empty() {
        return Err(format!("G2: {pool} is to be emptied, and {doubted:?} are in doubt"));
    }
    if observed.len() >= 3 && doubted.len() * 2 > there.len() {
        return Err(format!("G3: {pool} is to lose {doubted:?} of {there:?}, and they are in doubt"));
    }
    Ok(())
}

fn asks(part: &Part) -> BTreeSet<IpAddr> {
    part.required.keys().chain(&part.tolerated).copied().collect()
}

/// Returns the addresses of nodes that a Service excludes from a pool because they only host endpoints of the other
/// family.
fn of_other_family(fact: &ServiceFact) -> impl Iterator<Item = IpAddr> {
    let nodes = fact.parts.iter().flat_map(|(_, part)| part.excluded.values());
    nodes.filter(|node| node.why == ExclusionRule::OtherFamily).flat_map(|node| node.ips.iter().copied())
}

fn is_listed(provenance: Provenance) -> bool {
    match provenance {
        Provenance::Watch | Provenance::Reconnect => false,
        Provenance::Relist | Provenance::FirstList => true,
    }
}

impl Guards {
    /// Records an output of a watcher.
    pub fn watched(&mut self, now: u64, output: &watch::Out) {
        match output {
            watch::Out::Open {
                kind,
                request: WatchRequest::StreamingList | WatchRequest::List { page: None },
                ..
            } => {
                self.begun.insert(*kind, now);
            }
            watch::Out::Seen(kind, _, WatchUpdate::ListDone { .. }) => {
                let begun = self.begun.get(kind).copied().unwrap_or(0);
                self.listed.insert(*kind, begun);
            }
            watch::Out::Open { .. }
            | watch::Out::Seen(..)
            | watch::Out::Freshness(..)
            | watch::Out::View(_)
            | watch::Out::Metric(_) => {}
        }
    }

    /// Records a fact of the Informer.
    pub fn record_fact(&mut self, uid: &ServiceUid, fact: &Arc<ServiceFact>) {
        self.pending_facts.entry(uid.clone()).or_default().push(Arc::clone(fact));
    }

    /// Records an input of the Directory.
    pub fn record_input(&mut self, now: u64, input: &directory::In) {
        match input {
            directory::In::Service(uid, Some(fact)) => self.apply_fact(now, uid, fact),
            directory::In::Service(uid, None) => {
                self.facts.remove(uid);
                self.losses.forget(uid);
                self.listed_empty.retain(|(owner, _), _| owner != uid);
                self.doubts.retain(|(owner, _), _| owner != uid);
            }
            directory::In::Lb(observation) => {
                for pool in observation.facts.iter().flat_map(|facts| &facts.pools) {
                    let members = pool.members();
                    if let Some(inputs) = self.pools.get_mut(&pool.id) {
                        inputs.observe(now, &members);
                    }
                    self.observed.insert(pool.id.clone(), members);
                }
            }
            directory::In::Members(pool, members) => {
                if let Some(inputs) = self.pools.get_mut(pool) {
                    inputs.observe(now, &members.members);
                }
                self.observed.insert(pool.clone(), members.members.clone());
            }
            directory::In::ListsSynced
            | directory::In::DiscoverySynced
            | directory::In::Source(..)
            | directory::In::Confirmed(_)
            | directory::In::Retired(_)
            | directory::In::RewriteSkipped(_)
            | directory::In::Reread(_)
            | directory::In::Reporting(_)
            | directory::In::OperatorPolicy { .. }
            | directory::In::DrainingAddresses(_)
            | directory::In::ReadUpTo(_)
            | directory::In::Release(..) => {}
        }
    }

    /// Records that the operator has released held removals in these pools, or all of them.
    pub fn released(&mut self, now: u64, pools: &[PoolId], everything: bool) {
        if everything {
            self.released_at = Some(now);
            for inputs in self.pools.values_mut() {
                inputs.had = vec![(now, inputs.demand.len().min(inputs.size))];
            }
            self.losses.release(None);
        }
        for pool in pools {
            if let Some(inputs) = self.pools.get_mut(pool) {
                inputs.released_at = Some(now);
                inputs.since.keys().for_each(|uid| self.losses.release(Some(uid)));
            }
        }
    }

    /// Returns the time at which the operator last released a pool's removals, or everything.
    pub fn released_at(&self, pool: &PoolId) -> Option<u64> {
        self.released_at.max(self.pools.get(pool).and_then(|inputs| inputs.released_at))
    }

    /// Uses the provenance of the Informer's fact, independently of the Directory's input.
    fn apply_fact(&mut self, now: u64, uid: &ServiceUid, fact: &Arc<ServiceFact>) {
        let waiting = self.pending_facts.entry(uid.clone()).or_default();
        let words = |fact: &ServiceFact| {
            let of = |(_, part): (Family, &Part)| (asks(part), part.unusable);
            (fact.revision, fact.slices, fact.parts.iter().map(of).collect::<Vec<_>>())
        };
        let is_it = |other: &Arc<ServiceFact>| words(other) == words(fact);
        let upto = waiting.iter().rposition(is_it).map_or(waiting.len(), |at| at + 1);
        let truth: Vec<Arc<ServiceFact>> = waiting.drain(..upto).collect();
        let listed = truth.iter().any(|fact| is_listed(fact.provenance));
        let before = self.facts.insert(uid.clone(), Arc::clone(fact));
        self.losses.record_fact(uid, &truth, fact);
        for family in [Family::V4, Family::V6] {
            let part = |fact: &Arc<ServiceFact>| fact.parts[&family].clone();
            let vanished = truth.last().is_some_and(|fact| part(fact).slices == 0);
            let (unknown, demand) = (part(fact).unusable, asks(&part(fact)));
            if !demand.is_empty() {
                self.listed_empty.remove(&(uid.clone(), family));
            } else if !unknown && (listed || vanished) {
                self.listed_empty.entry((uid.clone(), family)).or_insert(now);
            }
            for ip in before.iter().flat_map(|before| asks(&part(before))).filter(|ip| !demand.contains(ip)) {
                if unknown {
                    continue;
                } else if listed || vanished {
                    self.doubts.entry((uid.clone(), ip)).or_insert(now);
                } else {
                    self.doubts.remove(&(uid.clone(), ip));
                }
            }
            self.doubts.retain(|(owner, ip), _| owner != uid || !demand.contains(ip));
        }
    }

    /// Returns whether a list shows that a Service requires nothing in this pool, and later lists have confirmed it.
    pub fn is_listed_twice(&self, pool: &PoolId, uid: &ServiceUid) -> bool {
        let family = if pool.pool.folded().ends_with("-ipv6") { Family::V6 } else { Family::V4 };
        self.listed_empty.get(&(uid.clone(), family)).is_some_and(|since| self.is_resolved(*since))
    }

    /// Returns whether lists of all kinds that started late enough are complete.
    fn is_resolved(&self, since: u64) -> bool {
        let oldest = Kind::OF_LEVELS.iter().map(|kind| self.listed.get(kind).copied().unwrap_or(0)).min();
        oldest.is_some_and(|begun| begun >= since + RESOLVED_AFTER_US)
    }

    /// Records that the Directory assigns a level.
    pub fn assigns(&mut self, now: u64, assignment: &Assignment) {
        self.assigned.entry(assignment.pool.clone()).or_default().push_back((now, key(assignment)));
    }

    /// Returns when the Directory assigned the level that a pool receives; now, if it never did.
    fn assigned_at(&mut self, now: u64, assignment: &Assignment) -> u64 {
        let assigned = self.assigned.entry(assignment.pool.clone()).or_default();
        let key = key(assignment);
        let Some(at) = assigned.iter().position(|(_, other)| *other == key) else { return now };
        assigned.drain(..=at).next_back().map_or(now, |(at, _)| at)
    }

    /// Records that a pool receives its level.
    ///
    /// # Errors
    ///
    /// Removals that the guards should have held.
    pub fn assigned(&mut self, now: u64, assignment: &Assignment) -> Result<(), String> {
        let Assignment { pool, services, level, paused, .. } = assignment;
        let assigned_at = self.assigned_at(now, assignment);
        if services.is_empty() {
            self.pools.remove(pool);
            return Ok(());
        }
        let observed = self.observed.get(pool).cloned().unwrap_or_default();
        let facts = services.keys().filter_map(|uid| self.facts.get(uid));
        let of_other_family: BTreeSet<IpAddr> =
            facts.clone().flat_map(|fact| of_other_family(fact)).collect();
        let demand: BTreeSet<IpAddr> =
            facts.flat_map(|fact| fact.parts.iter()).flat_map(|(_, part)| asks(part)).collect();
        let is_paused = !paused.is_empty();
        let new = || PoolInputs::new(now, is_paused, &observed, &of_other_family, &demand);
        let inputs = self.pools.entry(pool.clone()).or_insert_with(new);
        inputs.is_given_up = match assignment.source {
            Source::Kubernetes => false,
            Source::Xds { .. } => level.is_empty(),
        };
        inputs.since.retain(|uid, _| services.contains_key(uid));
        for uid in services.keys() {
            inputs.since.entry(uid.clone()).or_insert(now);
        }
        let goes: BTreeSet<IpAddr> = level.surplus(&observed).copied().collect();
        let is_new = |released_at: Option<u64>| {
            released_at.is_some_and(|released_at| now < released_at + UNDER_WAY_US)
        };
        if is_new(self.released_at) || is_new(inputs.released_at) {
            inputs.had.clear();
        }
        inputs.demand = level.required.keys().copied().collect();
        inputs.ever.extend(level.required.keys());
        let is_stray = |ip: &IpAddr| !inputs.ever.contains(ip);
        inputs.strays = of_other_family.into_iter().filter(is_stray).collect();
        inputs.pauses(now, is_paused, &observed, &demand);
        inputs.observe(now, &observed);
        inputs.required.retain(|_, at| *at + SEEN_AGAIN_US > now);
        inputs.required.extend(level.required.keys().map(|ip| (*ip, now)));
        let there: BTreeSet<IpAddr> = observed.iter().chain(inputs.required.keys()).copied().collect();
        // A required member may have been observed since; then a level that keeps the last members keeps others.
        inputs.size = inputs.left(level, &there).max(inputs.left(level, &observed));
        let counted = match assignment.source {
            Source::Kubernetes => {
                inputs.count_losses(now, &self.losses, &observed, self.released_at.is_some())
            }
            Source::Xds { .. } => {
                inputs.lost = Lost { surely: usize::MAX, possibly: usize::MAX };
                goes.clone()
            }
        };
        // A member that replaces another is not a loss.
        let last = inputs.had.last().map_or(0, |(_, last)| *last);
        let loses = !goes.is_disjoint(&counted) && (inputs.size < last || 2 * inputs.size < observed.len());
        let shrinks = loses && inputs.is_shrunk(now);
        let (since, released_at) = (inputs.since.clone(), inputs.released_at);
        if shrinks && !is_new(self.released_at) {
            self.check_shrinking(now)?;
        }
        let is_stopped = assignment.held.as_ref().is_some_and(|held| held.reason == HeldReason::Breaker);
        if is_stopped && !is_new(self.released_at) {
            self.check_stop()?;
        }
        let in_doubt = |ip: &&IpAddr| {
            since.iter().any(|(uid, since)| {
                let doubt = self.doubts.get(&(uid.clone(), **ip)).filter(|doubt| Some(**doubt) > released_at);
                let is_open =
                    |doubt: &u64| doubt > since && *doubt <= assigned_at && !self.is_resolved(*doubt);
                doubt.is_some_and(is_open)
            })
        };
        let doubted: Vec<&IpAddr> = goes.iter().filter(in_doubt).collect();
        check_doubt(assignment, (&observed, &there), &doubted, goes.len())
    }

    /// Checks that removals are stopped only if enough pools have losses that count.
    fn check_stop(&self) -> Result<(), String> {
        let may_be = self.pools.values().filter(|inputs| inputs.may_be_shrunk()).count();
        if may_be + CROSSING <= 5 {
            return Err(format!(
                "G4: removals are stopped, and {may_be} pools may have lost most of their members"
            ));
        }
        Ok(())
    }

    fn check_shrinking(&self, now: u64) -> Result<(), String> {
        let shrunk = self.pools.values().filter(|inputs| inputs.is_shrunk(now)).count();
        if shrunk > 5 + CROSSING && (shrunk - CROSSING) * 5 > self.pools.len() {
            return Err(format!("G4: {shrunk} of {} pools lose most of their members", self.pools.len()));
        }
        Ok(())
    }
}
