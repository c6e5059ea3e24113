//! Draining nodes in a world without faults: the time until they get no traffic, and the cost. Also a world without
//! draining nodes, in which the AdminState machine must cost nothing (N1, N2).

use std::collections::BTreeMap;

use model::ids::{Family, PoolId};
use model::view::PoolView;
use simulator_models::arm::Latency;

use crate::cluster::{Pod, Service};
use crate::plant::Plant;
use crate::random::Random;
use crate::story::{Faults, Size};
use crate::world::World;

const SERVICES: usize = 12;
const BALANCERS: usize = 3;
const NODES: usize = 8;
/// Number of nodes with pods of a Service.
const PODS: usize = 4;
const LOOK_US: u64 = 100_000;

/// Result of a change of nodes.
#[derive(Clone, Debug)]
pub struct Came {
    /// Time until everything was in sync, in microseconds.
    pub took: u64,
    /// PUTs of each pool that changed admin states.
    pub puts: BTreeMap<PoolId, u64>,
}

/// A cluster without changes.
pub struct Quiet(World);

fn service(number: usize, random: &mut Random) -> Service {
    let mut pod = || Pod::on(format!("node-{}", random.index(NODES)), true);
    Service {
        name: format!("svc-{number}"),
        life: 0,
        families: vec![if number.is_multiple_of(4) { Family::V6 } else { Family::V4 }],
        local: true,
        paused: false,
        deleting: false,
        returns: false,
        slices: vec![(0..PODS).map(|_| pod()).collect()],
        lb: number % BALANCERS,
        second_port: false,
    }
}

impl Quiet {
    /// Creates a quiet cluster by the seed.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn new(seed: u64) -> Result<Quiet, String> {
        Quiet::with(seed, None)
    }

    /// Creates a quiet cluster with a planted bug.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn with(seed: u64, plant: Option<Plant>) -> Result<Quiet, String> {
        let faults = Faults::default();
        let size = Size { services: 0, nodes: NODES, balancers: BALANCERS, seconds: 0, replicas: 1, faults };
        let mut world = World::new(seed, size, plant);
        let mut random = Random::new(seed);
        world.begin_well((0..SERVICES).map(|number| service(number, &mut random)).collect())?;
        world.arm.reconfigure(|settings| {
            settings.get_latency = Latency::Fixed { us: 20_000 };
            settings.put_latency = Latency::Fixed { us: 200_000 };
        });
        Ok(Quiet(world))
    }

    /// Makes a change that does not concern nodes, and advances by this many microseconds.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn pass(
        &mut self,
        span: u64,
        change: impl FnOnce(&mut World) -> Result<(), String>,
    ) -> Result<(), String> {
        let Quiet(world) = self;
        change(world)?;
        world.run_until(world.now() + span)
    }

    /// Returns the view of each pool, as the leader shows it.
    fn views(&self) -> impl Iterator<Item = &PoolView> {
        let leader = self.0.watchdog.tenure.leader();
        let leads = self.0.processes.iter().filter(move |process| *process.identity == *leader);
        leads
            .filter_map(|process| process.snapshot.as_deref())
            .flat_map(|snapshot| snapshot.pools.values())
            .map(|view| &**view)
    }

    /// Changes nodes, and waits until everything is quiet again.
    ///
    /// # Errors
    /// A finding of the watchdog, or what is still wrong after this time, in microseconds.
    pub fn change(&mut self, within: u64, change: impl FnOnce(&mut World)) -> Result<Came, String> {
        let Quiet(world) = self;
        world.watchdog.admin_puts.clear();
        let from = world.now();
        change(world);
        loop {
            world.run_until(world.now() + LOOK_US)?;
            match world.watchdog.downs_at_rest(world.now(), &world.arm) {
                Ok(()) if !world.watchdog.admin_puts.is_empty() => break,
                Ok(()) if world.now() > from + within => return Err("nothing was written".to_owned()),
                Err(reason) if world.now() > from + within => return Err(reason),
                Ok(()) | Err(_) => {}
            }
        }
        let took = world.now() - from;
        // Nothing more is written for it.
        world.run_until(world.now() + within)?;
        Ok(Came { took, puts: world.watchdog.admin_puts.clone() })
    }

    /// Waits until no node has our taint, and for the effects; returns the PUTs of each pool.
    ///
    /// # Errors
    /// A finding of the watchdog, a node that still has the taint after `within` microseconds, or what is
    /// wrong `follows` microseconds later.
    pub fn wait_for_marks(&mut self, within: u64, follows: u64) -> Result<BTreeMap<PoolId, u64>, String> {
        let Quiet(world) = self;
        world.watchdog.admin_puts.clear();
        let until = world.now() + within;
        while let Err(reason) = world.watchdog.marks_at_rest() {
            if world.now() > until {
                return Err(reason);
            }
            world.run_until(world.now() + LOOK_US)?;
        }
        world.run_until(world.now() + follows)?;
        world.watchdog.downs_at_rest(world.now(), &world.arm)?;
        Ok(world.watchdog.admin_puts.clone())
    }
}

/// Time within which the controller finds that the state of a load balancer is `Failed`, in microseconds.
const FOUND_TIMEOUT_US: u64 = 120_000_000;
/// Time before which it does not write the load balancer for that.
const LEFT_ALONE_US: u64 = 590_000_000;
/// Time within which it writes the load balancer: 10 minutes after it has found the state.
const REWRITTEN_TIMEOUT_US: u64 = 720_000_000;

/// Sets the state of every load balancer of a quiet cluster to `Failed`. Its pools must be out of sync since then, and
/// one of them is written again (Q8).
///
/// # Errors
/// What does not hold.
pub fn failed_at_rest(seed: u64, plant: Option<Plant>) -> Result<(), String> {
    let mut quiet = Quiet::with(seed, plant)?;
    let lbs: Vec<String> = quiet.0.arm.load_balancers().map(str::to_owned).collect();
    lbs.iter().for_each(|lb| quiet.0.arm.fail_load_balancer(lb));
    let (failed_at, before) = (quiet.0.now(), quiet.0.watchdog.puts);
    quiet.0.run_until(failed_at + LEFT_ALONE_US)?;
    let clock = &quiet.0.processes[0].clock;
    let times = clock.now(failed_at)..clock.now(failed_at + FOUND_TIMEOUT_US);
    for lb in &lbs {
        let mut pools = quiet.views().filter(|view| view.pool.lb.as_str() == lb).peekable();
        if pools.peek().is_none() {
            return Err(format!("Q8: no pool of {lb} is shown"));
        }
        if let Some(wrong) =
            pools.find(|view| view.out_of_sync.is_none_or(|out| !times.contains(&out.since) || !out.at_least))
        {
            let shown = wrong.out_of_sync;
            return Err(format!(
                "Q8: {} is Failed in {times:?}, and shown out of sync as {shown:?}",
                wrong.pool
            ));
        }
    }
    quiet.0.run_until(failed_at + REWRITTEN_TIMEOUT_US)?;
    if let Some(failed) = lbs.iter().find(|lb| quiet.0.arm.has_failed(lb)) {
        return Err(format!("Q8: {failed} is still Failed"));
    }
    let puts = quiet.0.watchdog.puts - before;
    if puts != lbs.len() as u64 {
        return Err(format!("Q8: {puts} PUTs to {} load balancers", lbs.len()));
    }
    quiet.0.run_until(failed_at + REWRITTEN_TIMEOUT_US + FOUND_TIMEOUT_US)?;
    match quiet.views().find(|view| view.out_of_sync.is_some()) {
        Some(view) => Err(format!("Q8: {} is still out of sync: {:?}", view.pool, view.out_of_sync)),
        None => Ok(()),
    }
}

/// Returns every request to ARM, as text, in a stormy world in which no node drains.
///
/// # Errors
/// A finding of the watchdog.
pub fn calls(seed: u64, size: Size, admin_state_off: bool) -> Result<Vec<String>, String> {
    let faults = Faults { leaving: false, policy: false, planes: false, ..size.faults };
    let mut world = World::new(seed, Size { faults, ..size }, None);
    world.switch(admin_state_off);
    world.calls = Some(Vec::new());
    world.begin()?;
    world.run_until(world.now() + size.seconds * 1_000_000)?;
    Ok(world.calls.unwrap_or_default())
}
