//! A burst in a world in which nothing goes wrong, but that what is read is taken in late: every Service changes five times
//! within a second (Q2).

use model::ids::Family;

use crate::cluster::{Pod, Service};
use crate::replica::Actor;
use crate::story::{Faults, Size};
use crate::truth;
use crate::world::World;

const SERVICES: usize = 24;
const BALANCERS: usize = 3;
const NODES: usize = 8;
const CHANGES: usize = 5;
/// How far apart the changes of a Service are.
const APART_US: u64 = 200_000;
/// When nothing of what is read is taken in any more, and for how long.
const STALL_US: (u64, u64) = (300_000, 1_500_000);
/// How long after the burst nothing may be written any more.
const SETTLES_US: u64 = 60_000_000;

/// What a burst came to.
#[derive(Clone, Debug)]
pub struct Burst {
    /// How many pools there are.
    pub pools: u64,
    /// How many PUTs were sent.
    pub puts: u64,
    /// A pool that is wrong in the end.
    pub wrong: Option<String>,
}

fn pod(number: usize, change: usize) -> Pod {
    Pod { node: format!("node-{}", (number + change) % NODES), ready: true, terminating: false, only: None }
}

fn service(number: usize) -> Service {
    Service {
        name: format!("svc-{number}"),
        life: 0,
        families: vec![Family::V4],
        local: true,
        paused: false,
        deleting: false,
        returns: false,
        slices: vec![vec![pod(number, 0)]],
        lb: number % BALANCERS,
        second_port: false,
    }
}

/// Plays a burst; where the intake is late, the Informer takes nothing in for the most of it.
///
/// # Errors
/// What the watchdog finds.
pub fn burst(seed: u64, is_late: bool) -> Result<Burst, String> {
    let faults = Faults::default();
    let size = Size { services: 0, nodes: NODES, balancers: BALANCERS, seconds: 0, replicas: 1, faults };
    let mut world = World::new(seed, size, None);
    world.begin_well((0..SERVICES).map(service).collect())?;
    let (from, puts) = (world.now(), world.watchdog.puts);
    for change in 1..=CHANGES {
        for number in 0..SERVICES {
            // Evenly, as in the benchmark.
            let turn = (change - 1) as u64 * APART_US + number as u64 * APART_US / SERVICES as u64;
            world.run_until(from + turn)?;
            if is_late && turn >= STALL_US.0 && world.processes[0].stalled.is_empty() {
                let until = from + STALL_US.0 + STALL_US.1;
                world.processes[0].stalled.insert(Actor::Informer, until);
            }
            world.scale_up(&format!("svc-{number}"), pod(number, change));
        }
    }
    world.run_until(world.now() + SETTLES_US)?;
    let wrong = truth::first_wrong(&truth::wanted_pools(&world.kube, false), &world.arm);
    Ok(Burst { pools: SERVICES as u64, puts: world.watchdog.puts - puts, wrong })
}
