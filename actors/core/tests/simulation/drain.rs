//! Nodes that leave service in a world in which nothing goes wrong: how soon they are out of traffic, and what that costs;
//! and a world in which none does, where the admin state must cost nothing (N1, N2).

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
/// On how many nodes the pods of a Service are.
const PODS: usize = 4;
const LOOK_US: u64 = 100_000;

/// What came of a change of nodes.
#[derive(Clone, Debug)]
pub struct Came {
    /// How long it took until everything was as it should be, in microseconds.
    pub took: u64,
    /// How many PUTs of each pool changed admin states.
    pub puts: BTreeMap<PoolId, u64>,
}

/// A cluster at rest.
pub struct Quiet(World);

fn service(number: usize, random: &mut Random) -> Service {
    let mut pod = || Pod::on(format!("node-{}", random.place(NODES)), true);
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
    /// One by the seed.
    ///
    /// # Errors
    /// What the watchdog finds.
    pub fn new(seed: u64) -> Result<Quiet, String> {
        Quiet::with(seed, None)
    }

    /// The same, with a planted bug.
    ///
    /// # Errors
    /// The finding of the watchdog.
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

    /// Waits for this long after a change that does not concern the nodes, in microseconds.
    ///
    /// # Errors
    /// The finding of the watchdog.
    pub fn pass(
        &mut self,
        span: u64,
        change: impl FnOnce(&mut World) -> Result<(), String>,
    ) -> Result<(), String> {
        let Quiet(world) = self;
        change(world)?;
        world.run_until(world.now() + span)
    }

    /// The state of every load balancer becomes `Failed`; how many are so after this span in microseconds, and how many PUTs
    /// were sent.
    ///
    /// # Errors
    /// The finding of the watchdog.
    pub fn fail_balancers(&mut self, span: u64) -> Result<(usize, u64), String> {
        let Quiet(world) = self;
        let all: Vec<String> = world.arm.load_balancers().map(str::to_owned).collect();
        all.iter().for_each(|lb| world.arm.fail_load_balancer(lb));
        let before = world.watchdog.puts;
        world.run_until(world.now() + span)?;
        let failed = all.iter().filter(|lb| world.arm.has_failed(lb)).count();
        Ok((failed, world.watchdog.puts - before))
    }

    /// Something happens to nodes; waits until all is at rest again.
    ///
    /// # Errors
    /// What the watchdog finds, or what is still wrong after this time, in microseconds.
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
                Err(why) if world.now() > from + within => return Err(why),
                Ok(()) | Err(_) => {}
            }
        }
        let took = world.now() - from;
        // Nothing more is written for it.
        world.run_until(world.now() + within)?;
        Ok(Came { took, puts: world.watchdog.admin_puts.clone() })
    }

    /// Waits until no node is marked by us any more, and for what follows from that; gives how many PUTs of each pool that
    /// took.
    ///
    /// # Errors
    /// What the watchdog finds, that a node is still marked after this time, or what is not right so much later, both in
    /// microseconds.
    pub fn wait_for_marks(&mut self, within: u64, follows: u64) -> Result<BTreeMap<PoolId, u64>, String> {
        let Quiet(world) = self;
        world.watchdog.admin_puts.clear();
        let until = world.now() + within;
        while let Err(why) = world.watchdog.marks_at_rest() {
            if world.now() > until {
                return Err(why);
            }
            world.run_until(world.now() + LOOK_US)?;
        }
        world.run_until(world.now() + follows)?;
        world.watchdog.downs_at_rest(world.now(), &world.arm)?;
        Ok(world.watchdog.admin_puts.clone())
    }
}

/// Every request to ARM in a stormy world in which no node leaves service, in words.
///
/// # Errors
/// What the watchdog finds.
pub fn calls(seed: u64, size: Size, admin_state_off: bool) -> Result<Vec<String>, String> {
    let faults = Faults { leaving: false, policy: false, planes: false, ..size.faults };
    let mut world = World::new(seed, Size { faults, ..size }, None);
    world.switch(admin_state_off);
    world.calls = Some(Vec::new());
    world.begin()?;
    world.run_until(world.now() + size.seconds * 1_000_000)?;
    Ok(world.calls.unwrap_or_default())
}
