//! A burst in a world without faults, except that read lines are applied late: every Service changes five times
//! within a second (Q2).

use model::ids::Family;

use crate::cluster::{Pod, Service};
use crate::expected_members;
use crate::replica::Actor;
use crate::story::{Faults, Size};
use crate::world::World;

const SERVICES: usize = 24;
const BALANCERS: usize = 3;
const NODES: usize = 8;
const CHANGES: usize = 5;
/// Time between the changes of a Service.
const APART_US: u64 = 200_000;
/// Start and duration of the stall, in which no read lines are applied.
const STALL_US: (u64, u64) = (300_000, 1_500_000);
/// Time after the burst from which nothing may be written.
const SETTLES_US: u64 = 60_000_000;

/// Result of a burst.
#[derive(Clone, Debug)]
pub struct Burst {
    /// Number of pools.
    pub pools: u64,
    /// Number of sent PUTs.
    pub puts: u64,
    /// A pool that is out of sync in the end.
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

/// Plays a burst. If the intake is late, the Informer applies nothing for most of it.
///
/// # Errors
/// A finding of the watchdog.
pub fn burst(seed: u64, is_late: bool) -> Result<Burst, String> {
    let faults = Faults::default();
    let size = Size { services: 0, nodes: NODES, balancers: BALANCERS, seconds: 0, replicas: 1, faults };
    let mut world = World::new(seed, size, None);
    world.begin_well((0..SERVICES).map(service).collect())?;
    let (from, puts) = (world.now(), world.watchdog.puts);
    for change in 1..=CHANGES {
        for number in 0..SERVICES {
            // Evenly distributed, as in the benchmark.
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
    let wrong =
        expected_members::first_wrong(&expected_members::expected_pools(&world.kube, false), &world.arm);
    Ok(Burst { pools: SERVICES as u64, puts: world.watchdog.puts - puts, wrong })
}
