//! Plays a seed: churn and faults, then calm; and judges whether everything comes to rest as it should.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pool_core::sample::PoolState;
use pool_core::view::Snapshot;

use crate::plant::Plant;
use crate::random::Random;
use crate::story::Size;
use crate::truth::{self, Wanted};
use crate::world::World;

/// Within which time after the last fault everything must be right: the longest back-off is ten minutes, and a
/// failure at its very end costs one more comparison (Q8, W2).
const CALM_WITHIN_US: u64 = 15 * 60 * 1_000_000;
/// How long it must stay right.
const STAYS_RIGHT_US: u64 = 70_000_000;
/// How often it is looked at.
const LOOK_US: u64 = 5_000_000;

/// What a world that was played through can tell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Played {
    /// How many things happened.
    pub happened: u64,
    /// How many PUTs were sent.
    pub puts: u64,
    /// How many reports were told.
    pub reports: u64,
    /// When it had come to rest, in microseconds after the last fault.
    pub rested_us: u64,
}

/// A world that went wrong.
#[derive(Clone, Debug)]
pub struct Failed {
    /// How large its story was.
    pub size: Size,
    /// What was wrong.
    pub why: String,
    /// The last messages.
    pub trace: String,
}

/// How large the story of a seed is.
pub fn size_of(seed: u64) -> Size {
    let mut random = Random::new(seed ^ 0x7369_7a65);
    let crowded = if random.per_mille(100) { 16 } else { 0 };
    Size {
        services: 1 + random.place(9) + crowded,
        nodes: 3 + random.place(6),
        balancers: 1 + random.place(3),
        seconds: 60 + random.below(180),
    }
}

/// Plays a seed.
///
/// # Errors
/// What went wrong.
pub fn play(seed: u64, size: Size, plant: Option<Plant>) -> Result<Played, Failed> {
    let mut world = World::new(seed, size, plant);
    let outcome = catch_unwind(AssertUnwindSafe(|| through(&mut world, size)));
    let why = match outcome {
        Ok(Ok(rested_us)) => {
            let (happened, watchdog) = (world.happened(), &world.watchdog);
            return Ok(Played { happened, puts: watchdog.puts, reports: watchdog.reports, rested_us });
        }
        Ok(Err(why)) => why,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("a machine panics: {}", text.unwrap_or("without words"))
        }
    };
    let why = format!("at {:.6} s: {why}", world.now() as f64 / 1e6);
    Err(Failed { size, why, trace: world.trace() })
}

fn through(world: &mut World, size: Size) -> Result<u64, String> {
    world.begin()?;
    let end = size.seconds * 1_000_000;
    world.run_until(end)?;
    world.calm();
    let mut right_since = None;
    let mut wrong = String::new();
    let mut now = end;
    while now < end + CALM_WITHIN_US {
        now += LOOK_US;
        world.run_until(now)?;
        match rest(world) {
            Err(why) => (right_since, wrong) = (None, why),
            Ok(()) => {
                let since = *right_since.get_or_insert(now);
                if now >= since + STAYS_RIGHT_US {
                    return Ok(since - end);
                }
            }
        }
    }
    Err(format!("not at rest {} s after the last fault: {wrong}", CALM_WITHIN_US / 1_000_000))
}

/// Whether everything is as it should be when nothing happens any more.
fn rest(world: &World) -> Result<(), String> {
    if !world.ccm.is_done(&world.story.cluster) {
        return Err("the cloud-controller-manager is at work".to_owned());
    }
    let mut wanted = truth::wanted_pools(&world.kube);
    wanted.retain(|pool, _| !world.ccm.outbound.iter().any(|(_, outbound)| outbound == pool));
    if let Some(wrong) = truth::first_wrong(&wanted, &world.arm) {
        return Err(wrong);
    }
    for process in &world.processes {
        let snapshot = process.snapshot.as_deref().ok_or("nothing was published")?;
        shown(world, &wanted, snapshot)?;
        let has_machine =
            |name: &String| process.replica.pools.keys().any(|id| id.pool.folded() == name.as_str());
        if let Some(name) = wanted.keys().find(|name| !has_machine(name)) {
            return Err(format!("{name} has no machine"));
        }
        let machines = process.replica.pools.len();
        if machines > wanted.len() + process.replica.by_take {
            return Err(format!("{machines} pools have machines, {} should", wanted.len()));
        }
    }
    let (lost, counted) = (world.arm.counters().silently_lost, world.watchdog.lost);
    // Where operations run on, a foreign write between an operation's end and the poll that tells of it looks the
    // same as a lost one.
    if counted > lost && world.arm.settings().operation.is_none() {
        return Err(format!("W2: {counted} writes are counted as lost, and {lost} were"));
    }
    let counted = world.watchdog.counted();
    let gauge: Vec<(PoolState, i64)> = world
        .watchdog
        .gauge
        .iter()
        .filter(|(_, pools)| **pools != 0)
        .map(|(state, pools)| (*state, *pools))
        .collect();
    if !gauge.iter().copied().eq(counted.iter().map(|(state, pools)| (*state, *pools))) {
        return Err(format!("E2: the gauge says {gauge:?}, the pools say {counted:?}"));
    }
    let total: i64 = gauge.iter().map(|(_, pools)| pools).sum();
    if usize::try_from(total) != Ok(wanted.len()) {
        return Err(format!("E2: {total} pools are counted, not {}", wanted.len()));
    }
    Ok(())
}

/// Whether the snapshot shows what is.
fn shown(world: &World, wanted: &BTreeMap<String, Wanted>, snapshot: &Snapshot) -> Result<(), String> {
    let services: BTreeSet<&str> = world.story.cluster.services.keys().map(String::as_str).collect();
    if !snapshot.services.keys().map(|key| &*key.name).eq(services.iter().copied()) {
        return Err(format!("H3: {:?} are shown, there are {services:?}", snapshot.services.keys()));
    }
    let ghost = snapshot.pools.keys().find(|id| !wanted.contains_key(id.pool.folded()));
    if let Some(ghost) = ghost {
        return Err(format!("H3: {ghost} is shown and is nobody's"));
    }
    if snapshot.pools.len() != wanted.len() {
        return Err(format!("H3: {} pools are shown, not {}", snapshot.pools.len(), wanted.len()));
    }
    for (id, view) in &snapshot.pools {
        let members = truth::members(&world.arm, id.lb.as_str(), id.pool.as_str());
        if view.state != PoolState::Right {
            return Err(format!("{id} is {:?} since {:?}: {view:?}", view.state, view.since));
        }
        if view.observed.as_ref() != Some(&members) {
            return Err(format!("H3: {id} is shown with {:?} and holds {members:?}", view.observed));
        }
    }
    for (lb, lane) in &snapshot.lanes {
        if lane.writing.is_some() || !lane.waiting.is_empty() {
            return Err(format!("the lane of {lb} is not at rest: {lane:?}"));
        }
    }
    Ok(())
}

/// Finds a smaller story of the same seed that fails too: fewer Services, nodes, load balancers, seconds.
pub fn shrink(failed: Failed, seed: u64) -> Failed {
    let mut smallest = failed;
    for _ in 0..6 {
        let Size { services, nodes, balancers, seconds } = smallest.size;
        let tries = [
            Size { seconds: seconds / 2, ..smallest.size },
            Size { services: services.div_ceil(2), ..smallest.size },
            Size { nodes: nodes.div_ceil(2).max(2), ..smallest.size },
            Size { balancers: 1, ..smallest.size },
        ];
        let known = Size { services, nodes, balancers, seconds };
        let smaller = tries.into_iter().filter(|size| *size != known && size.seconds > 2);
        let Some(found) = smaller.into_iter().find_map(|size| play(seed, size, None).err()) else { break };
        smallest = found;
    }
    smallest
}
