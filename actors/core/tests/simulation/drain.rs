//! Draining nodes in a world without faults: how soon they are out of traffic, and at what cost. And a world without
//! draining nodes, in which the AdminState machine must cost nothing (N1, N2).

use std::collections::BTreeMap;

use model::ids::{Family, PoolId};
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

/// A cluster at rest.
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

    /// Sets the state of every load balancer to `Failed`; returns how many are in that state after this many
    /// microseconds, and the number of sent PUTs.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn fail_balancers(&mut self, span: u64) -> Result<(usize, u64), String> {
        let Quiet(world) = self;
        let all: Vec<String> = world.arm.load_balancers().map(str::to_owned).collect();
        all.iter().for_each(|lb| world.arm.fail_load_balancer(lb));
        let before = world.watchdog.puts;
        world.run_until(world.now() + span)?;
        let failed = all.iter().filter(|lb| world.arm.has_failed(lb)).count();
        Ok((failed, world.watchdog.puts - before))
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
