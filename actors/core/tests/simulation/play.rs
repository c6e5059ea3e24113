//! Runs a seed: churn and faults, then a quiet period; and checks that everything becomes and stays in sync.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use model::object::ExclusionRule;
use model::sample::PoolState;
use model::view::Snapshot;

use crate::expected_members::{self, ExpectedPool};
use crate::plant::Plant;
use crate::process::{Process, ProcessState};
use crate::random::Random;
use crate::sources;
use crate::story::{Faults, Size};
use crate::watchdog::downs_of;
use crate::world::World;

/// Time after the last fault within which everything must be in sync: a take-over, the longest back-off of ten
/// minutes (Q8, W2, W11), one read of everything and one attempt, with some margin.
const CALM_TIMEOUT_US: u64 = 15 * 60 * 1_000_000;
/// Additional time in runs with draining nodes: the controller's taint stays for ten minutes (N1), and is then removed.
const UNMARKED_TIMEOUT_US: u64 = 12 * 60 * 1_000_000;
/// Time for which everything must stay in sync.
const STAYS_IN_SYNC_US: u64 = 70_000_000;
/// Interval of the checks.
const LOOK_US: u64 = 5_000_000;

/// Result of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Played {
    /// Number of events in the run.
    pub happened: u64,
    /// Number of sent PUTs.
    pub puts: u64,
    /// Number of reports.
    pub reports: u64,
    /// Number of terms of leadership.
    pub terms: u64,
    /// Number of times operators were informed of a pause.
    pub pauses: u64,
    /// Number of times operators were informed of a release.
    pub releases: u64,
    /// Number of times operators were informed that removals are stopped (G4).
    pub stops: u64,
    /// Results about draining nodes.
    pub nodes: DrainResults,
    /// Time for which the controller, and others, held the shared Lease, in seconds.
    pub held: (u64, u64),
    /// Time from the last fault to quiet, in microseconds.
    pub rested_us: u64,
    /// Last messages.
    pub trace: String,
}

/// Results about draining nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DrainResults {
    /// Number of true eviction notices.
    pub notices: u64,
    /// Numbers of additions and removals of the controller's taint.
    pub marks: (u64, u64),
    /// Number of recorded nodes.
    pub recorded: u64,
    /// Number of entries that were set Down, and restored.
    pub entries: (u64, u64),
    /// Number of times operators were informed of waiting nodes (N5).
    pub waits: u64,
}

impl std::ops::AddAssign for DrainResults {
    fn add_assign(&mut self, more: DrainResults) {
        let sum = |one: (u64, u64), more: (u64, u64)| (one.0 + more.0, one.1 + more.1);
        *self = DrainResults {
            notices: self.notices + more.notices,
            marks: sum(self.marks, more.marks),
            recorded: self.recorded + more.recorded,
            entries: sum(self.entries, more.entries),
            waits: self.waits + more.waits,
        };
    }
}

/// A failed run.
#[derive(Clone, Debug)]
pub struct Failed {
    /// Size of its story.
    pub size: Size,
    /// The failure.
    pub reason: String,
    /// Last messages.
    pub trace: String,
}

impl Failed {
    /// Returns the violated rule, such as `G4`, if one is named: the message starts with the time and the process or
    /// object.
    pub fn rule(&self) -> &str {
        let mut parts = self.reason.split(": ").skip(1);
        let is_place = |part: &str| part.starts_with("not at rest") || part.starts_with("process ");
        parts.find(|part| !is_place(part)).unwrap_or_default()
    }
}

/// Returns the size of the story of a seed.
pub fn size_of(seed: u64) -> Size {
    let mut random = Random::new(seed ^ 0x7369_7a65);
    let crowded = if random.per_mille(100) { 16 } else { 0 };
    Size {
        services: 1 + random.index(9) + crowded,
        nodes: 3 + random.index(6),
        balancers: 1 + random.index(3),
        seconds: 60 + random.below(180),
        replicas: 1 + random.index(3),
        faults: Faults {
            arm: random.per_mille(800),
            kube: random.per_mille(650),
            processes: random.per_mille(700),
            leases: random.per_mille(500),
            edges: random.per_mille(500),
            meddling: random.per_mille(600),
            crashes: random.per_mille(100),
            policy: random.per_mille(300),
            restores: false,
            leaving: random.per_mille(750),
            planes: random.per_mille(340),
            often: None,
        },
    }
}

/// Returns the size of a story whose storage is restored once. It has no pauses, because restored pauses are unknown
/// to the watchdog; and the API server has no other faults meanwhile.
pub fn size_of_restored(seed: u64) -> Size {
    let size = size_of(seed);
    let faults =
        Faults { kube: false, crashes: false, policy: false, restores: true, leaving: false, ..size.faults };
    Size { seconds: size.seconds.max(200), faults, ..size }
}

/// Runs a seed.
///
/// # Errors
/// The failure.
pub fn play(seed: u64, size: Size, plant: Option<Plant>) -> Result<Played, Failed> {
    let mut world = World::new(seed, size, plant);
    let outcome = catch_unwind(AssertUnwindSafe(|| run_world(&mut world, size)));
    let reason = match outcome {
        Ok(Ok(rested_us)) => {
            let (happened, watchdog) = (world.happened(), &world.watchdog);
            let terms = watchdog.tenure.terms;
            let held = watchdog.tenure.held(0, world.now());
            let (puts, reports, stops) = (watchdog.puts, watchdog.reports, watchdog.stops);
            let trace = world.trace();
            let (pauses, releases) = (watchdog.pauses(), watchdog.releases());
            let nodes = watchdog.left();
            return Ok(Played {
                happened,
                puts,
                reports,
                terms,
                pauses,
                releases,
                stops,
                nodes,
                held,
                rested_us,
                trace,
            });
        }
        Ok(Err(reason)) => reason,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("a machine panics: {}", text.unwrap_or("without words"))
        }
    };
    let reason = format!("at {:.6} s: {reason} ({:?})", world.now() as f64 / 1e6, world.settings());
    Err(Failed { size, reason, trace: world.trace() })
}

fn run_world(world: &mut World, size: Size) -> Result<u64, String> {
    world.begin()?;
    world.run_until(world.now() + size.seconds * 1_000_000)?;
    let end = world.end_faults()?;
    let end = world.change_everything(end)?;
    let mut in_sync_since = None;
    let mut wrong = String::new();
    let mut now = world.now().max(end);
    let within = CALM_TIMEOUT_US + if size.faults.leaving { UNMARKED_TIMEOUT_US } else { 0 };
    while now < end + within {
        now += LOOK_US;
        world.run_until(now)?;
        match rest(world) {
            Err(reason) => (in_sync_since, wrong) = (None, reason),
            Ok(()) => {
                let since = *in_sync_since.get_or_insert(now);
                if now >= since + STAYS_IN_SYNC_US {
                    sources::taken_back(world)?;
                    return Ok(since.saturating_sub(end));
                }
            }
        }
    }
    Err(format!("not at rest {} s after the last fault: {wrong}", within / 1_000_000))
}

/// Checks the complete state after the last event.
fn rest(world: &World) -> Result<(), String> {
    if !world.ccm.is_done(&world.story.cluster) {
        return Err(format!("the cloud-controller-manager is at work: {:?}", world.ccm.counters()));
    }
    let mut wanted = expected_members::expected_pools(&world.kube, world.settings().upstream);
    wanted.retain(|pool, _| !world.ccm.foreign.iter().any(|(_, foreign)| foreign == pool));
    wanted.extend(sources::expected_pools(world)?);
    if world.watches_stay_empty() {
        // While no watch delivers anything, the last members of a pool stay (G2).
        wanted
            .values_mut()
            .filter(|wanted| wanted.allowed.is_empty())
            .for_each(|wanted| wanted.unusable = true);
    }
    if let Some(wrong) = expected_members::first_wrong(&wanted, &world.arm) {
        return Err(wrong);
    }
    let leads = |process: &&Process| *process.identity == *world.watchdog.tenure.leader();
    if !world.processes.iter().filter(|process| process.is_there()).any(|process| leads(&process)) {
        return Err("W8: no replica leads".to_owned());
    }
    sources::downs_at_rest(world)?;
    world.watchdog.downs_at_rest(world.now(), &world.arm)?;
    world.watchdog.marks_at_rest()?;
    for (number, process) in world.processes.iter().enumerate().filter(|(_, process)| process.is_there()) {
        at_rest(world, &wanted, number, process)?;
    }
    let (lost, counted) = (world.arm.counters().silently_lost, world.watchdog.lost);
    // With operations, a foreign write between the end of an operation and its poll looks like a lost write.
    if counted > lost && world.arm.settings().operation.is_none() {
        return Err(format!("W2: {counted} writes are counted as lost, and {lost} were"));
    }
    Ok(())
}

/// Checks the state and the counters of a process.
fn at_rest(
    world: &World,
    wanted: &BTreeMap<String, ExpectedPool>,
    number: usize,
    process: &Process,
) -> Result<(), String> {
    if process.life != ProcessState::Runs {
        return Err(format!("process {number} is {:?}", process.life));
    }
    let leads = *process.identity == *world.watchdog.tenure.leader();
    // A standby that has missed that the storage was restored detects it when its own term starts.
    if process.outlives_restore && !leads {
        return Ok(());
    }
    let snapshot = process.snapshot.as_deref().ok_or("no snapshot was published")?;
    sources::shown(world, snapshot).map_err(|reason| format!("process {number}: {reason}"))?;
    shown(world, wanted, snapshot, leads).map_err(|reason| format!("process {number}: {reason}"))?;
    let nodes = world.watchdog.nodes_shown(world.now(), &world.arm, snapshot, leads);
    nodes.map_err(|reason| format!("process {number}: {reason}"))?;
    let has_machine =
        |name: &String| process.replica.pools.keys().any(|id| id.pool.folded() == name.as_str());
    if let Some(name) = wanted.keys().find(|name| !has_machine(name)) {
        return Err(format!("{name} has no machine in process {number}"));
    }
    let machines = process.replica.pools.len();
    if machines > wanted.len() + process.replica.by_take {
        return Err(format!("{machines} pools have machines, {} should", wanted.len()));
    }
    let (gauge, counted) = (world.watchdog.gauge(number), world.watchdog.counted(number));
    if gauge != counted {
        return Err(format!("E2: the gauge of process {number} says {gauge:?}, the pools say {counted:?}"));
    }
    let total: i64 = gauge.values().sum();
    if usize::try_from(total) != Ok(wanted.len()) {
        return Err(format!("E2: {total} pools are counted by process {number}, not {}", wanted.len()));
    }
    Ok(())
}

/// Checks that the snapshot shows the true state.
fn shown(
    world: &World,
    wanted: &BTreeMap<String, ExpectedPool>,
    snapshot: &Snapshot,
    leads: bool,
) -> Result<(), String> {
    let services: BTreeSet<&str> = world.story.cluster.services.keys().map(String::as_str).collect();
    if !snapshot.services.keys().map(|key| &*key.name).eq(services.iter().copied()) {
        return Err(format!("H3: {:?} are shown, there are {services:?}", snapshot.services.keys()));
    }
    let ghost = snapshot.pools.keys().find(|id| !wanted.contains_key(id.pool.folded()));
    if let Some(ghost) = ghost {
        return Err(format!("H3: {ghost} is shown and has no owner"));
    }
    if snapshot.pools.len() != wanted.len() {
        let lacks =
            wanted.keys().find(|name| !snapshot.pools.keys().any(|id| id.pool.folded() == name.as_str()));
        return Err(format!("H3: {lacks:?} is not shown"));
    }
    if let Some(stopped) = snapshot.guards.and_then(|guards| guards.stopped) {
        return Err(format!("G4: {stopped:?}, and all pools are in sync"));
    }
    for (id, view) in &snapshot.pools {
        let members = expected_members::members(&world.arm, id.lb.as_str(), id.pool.as_str());
        // A replica that has led may keep changes that only a leader can carry out.
        if leads && view.state != PoolState::InSync || view.state == PoolState::Attempting {
            return Err(format!("{id} is {:?} since {:?}: {view:?}", view.state, view.since));
        }
        if view.observed.as_ref() != Some(&members) {
            return Err(format!("H3: {id} is shown with {:?} and holds {members:?}", view.observed));
        }
        let down = downs_of(&world.arm.pool_json(id.lb.as_str(), id.pool.as_str()).unwrap_or_default());
        if view.observed_down != down {
            return Err(format!("H3: {id} is shown with {:?} Down, and it is {down:?}", view.observed_down));
        }
        let excluded = snapshot.excluded_nodes_of(view);
        let excluded: BTreeMap<String, ExclusionRule> =
            excluded.into_iter().map(|of| (of.node.as_str().to_owned(), of.why)).collect();
        let expected = wanted.get(id.pool.folded()).map(|wanted| &wanted.excluded);
        if Some(&excluded) != expected {
            return Err(format!("H3: {id} is shown with {excluded:?} excluded, and it is {expected:?}"));
        }
    }
    for (lb, lane) in &snapshot.lanes {
        if lane.writing.is_some() || leads && !lane.waiting.is_empty() {
            return Err(format!("the lane of {lb} is not at rest: {lane:?}"));
        }
    }
    Ok(())
}

/// Finds a smaller story of the same seed that still fails: fewer processes, faults, Services, nodes, load balancers,
/// seconds.
pub fn shrink(failed: Failed, seed: u64) -> Failed {
    let mut smallest = failed;
    for _ in 0..6 {
        let known = smallest.size;
        let Size { services, nodes, seconds, faults, .. } = known;
        let without = |faults: Faults| Size { faults, ..known };
        let tries = [
            Size { replicas: 1, ..known },
            Size { replicas: 2.min(known.replicas), ..known },
            without(Faults { arm: false, ..faults }),
            without(Faults { kube: false, ..faults }),
            without(Faults { processes: false, ..faults }),
            without(Faults { leases: false, ..faults }),
            without(Faults { edges: false, ..faults }),
            without(Faults { meddling: false, ..faults }),
            without(Faults { crashes: false, ..faults }),
            without(Faults { policy: false, ..faults }),
            without(Faults { restores: false, ..faults }),
            without(Faults { leaving: false, ..faults }),
            without(Faults { planes: false, ..faults }),
            without(Faults { often: None, ..faults }),
            Size { seconds: seconds / 2, ..smallest.size },
            Size { services: services.div_ceil(2), ..smallest.size },
            Size { nodes: nodes.div_ceil(2).max(2), ..smallest.size },
            Size { balancers: 1, ..smallest.size },
        ];
        let smaller = tries.into_iter().filter(|size| *size != known && size.seconds > 2);
        let Some(found) = smaller.into_iter().find_map(|size| play(seed, size, None).err()) else { break };
        smallest = found;
    }
    smallest
}

/// Shares of the shared Lease over a period without faults in which every client requested it.
#[derive(Clone, Copy, Debug)]
pub struct LeaseShares {
    /// Length of the period, in seconds.
    pub watched: u64,
    /// Time for which the controller, and others, held it, in seconds.
    pub held: (u64, u64),
    /// Longest uninterrupted time for which the controller blocked other clients, in seconds.
    pub longest: u64,
    /// Largest shortfall, in seconds, of the time that the controller left it to others compared with its previous
    /// hold, if another client was known to have it.
    pub too_soon: u64,
    /// That case: the times of the acquisition, the release and the next acquisition, in seconds.
    pub worst: (u64, u64, u64),
    /// Longest time for which no other client held it, in seconds, including the others' own waits.
    pub without: u64,
    /// Number of sent PUTs.
    pub puts: u64,
}

/// Runs a churning cluster while the cloud-controller-manager reconciles everything continuously.
///
/// # Errors
/// A finding of the watchdog.
pub fn lease_shares(seed: u64) -> Result<LeaseShares, String> {
    let faults = Faults::default();
    let size = Size { services: 12, nodes: 8, balancers: 3, seconds: 600, replicas: 2, faults };
    let mut world = World::new(seed, size, None);
    world.begin()?;
    world.ccm.keep_requesting_lease();
    world.run_until(world.now() + 60_000_000)?;
    let (from, before) = (world.now(), world.watchdog.puts);
    world.run_until(from + size.seconds * 1_000_000)?;
    let tenure = &world.watchdog.tenure;
    let exclusive_periods = tenure.exclusive_periods(from, world.now());
    let other_seen = tenure.first_other(from, world.now()).unwrap_or(u64::MAX);
    let rests = exclusive_periods
        .iter()
        .zip(exclusive_periods.iter().skip(1))
        .filter(|(piece, _)| piece.1 > other_seen);
    let rests = rests.map(|((began, ended), (next, _))| {
        let too_soon = (ended - began).saturating_sub(next - ended);
        (too_soon, (began / 1_000_000, ended / 1_000_000, next / 1_000_000))
    });
    let (too_soon, worst) = rests.max().unwrap_or_default();
    let longest = exclusive_periods.iter().map(|(began, ended)| ended - began).max();
    Ok(LeaseShares {
        watched: size.seconds,
        held: tenure.held(from, world.now()),
        longest: longest.unwrap_or(0).div_ceil(1_000_000),
        too_soon: too_soon.div_ceil(1_000_000),
        worst,
        without: tenure.longest_without_others(from, world.now()),
        puts: world.watchdog.puts - before,
    })
}
