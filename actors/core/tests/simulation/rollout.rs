//! The realistic scenario of the product's goals on simulated time: 200 Services on 10 load balancers are restarted one
//! after the other next to a cloud-controller-manager, with an ARM as slow as Azure's. `simulate --scenario realistic`
//! plays the same scenario in real time with the real binary; here half an hour takes seconds, for several seeds.

use std::collections::BTreeMap;
use std::net::IpAddr;

use model::ids::Family;
use simulator_models::arm::{Latency, Settings, Visibility};

use crate::ccm::{balancer, pool_name};
use crate::cluster::{Pod, Service, address};
use crate::expected_members;
use crate::story::{Faults, Size};
use crate::world::World;

/// Number of Services that are restarted.
const SERVICES: usize = 200;
/// Number of their load balancers.
const BALANCERS: usize = 10;
/// Number of nodes.
const NODES: usize = 100;
/// Time until a Service's new pod is ready, and then until its old one is gone, in microseconds.
const STEP_US: u64 = 10_000_000;
/// Interval of changes of a Service that make the cloud-controller-manager reconcile it, in microseconds.
const CCM_INTERVAL_US: u64 = 30_000_000;
/// Interval of the checks of the pools, in microseconds.
const LOOK_US: u64 = 100_000;
/// Time limit after the last change, in microseconds.
const SETTLES_US: u64 = 600_000_000;
/// Median time that one write occupies a load balancer, in microseconds: its read, its answer, and its operation, as
/// seen by a client that polls when ARM asks it to.
pub const TURN_US: u64 = READ_US + PUT_US + POLL_US;
const READ_US: u64 = 100_000;
const PUT_US: u64 = 200_000;
const POLL_US: u64 = 10_000_000;

/// Result of such a restart.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// Wait for each new member, sorted, in microseconds.
    pub waits: Vec<u64>,
    /// Number of new members that were never added.
    pub missing: usize,
    /// First pool that is out of sync in the end.
    pub wrong: Option<String>,
    /// Time until everything was in sync, in seconds.
    pub watched: u64,
    /// Time of that for which we held the shared Lease, in seconds.
    pub held: u64,
    /// Longest uninterrupted hold, in seconds.
    pub longest: u64,
}

impl std::fmt::Display for Rollout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { held, watched, longest, .. } = self;
        write!(f, "the shared Lease was ours for {held} of {watched} s, for {longest} s at once")
    }
}

/// Returns the wait at this percentile, in seconds.
pub fn percentile(waits: &[u64], percent: usize) -> f64 {
    let last = waits.len().saturating_sub(1);
    waits.get(last * percent / 100).map_or(f64::INFINITY, |us| *us as f64 / 1e6)
}

fn name_of(number: usize) -> String {
    format!("svc-{number}")
}

/// Configures an ARM as slow as Azure's.
fn slow(settings: &mut Settings) {
    settings.get_latency = Latency::LogNormal { median_us: READ_US, p95_us: 150_000 };
    settings.put_latency = Latency::Fixed { us: PUT_US };
    settings.operation = Some(Latency::LogNormal { median_us: 5_000_000, p95_us: 20_000_000 });
    settings.operation_retry_after_s = Some(10);
    settings.visibility = Visibility::AtEnd;
    settings.update_status = 201;
}

fn service(number: usize) -> Service {
    let pod = Pod::on(format!("node-{}", number % NODES), true);
    Service {
        name: name_of(number),
        life: 0,
        families: vec![Family::V4],
        local: true,
        paused: false,
        deleting: false,
        returns: false,
        slices: vec![vec![pod]],
        lb: number % BALANCERS,
        second_port: false,
    }
}

/// Returns the steps of the restart in the order of time: the time, the Service, and which of its three steps.
fn restart_schedule(from: u64, apart_us: u64) -> Vec<(u64, usize, usize)> {
    let steps = |number: usize| (0..3).map(move |step| (number, step));
    let moment = |number: usize, step: usize| from + number as u64 * apart_us + step as u64 * STEP_US;
    let all = (0..SERVICES).flat_map(steps).map(|(number, step)| (moment(number, step), number, step));
    let mut all: Vec<(u64, usize, usize)> = all.collect();
    all.sort_unstable();
    all
}

/// New members that are missing: by Service, since when, and which.
type Waiting = BTreeMap<usize, (u64, IpAddr)>;

/// Removes the members that have arrived; returns their waits.
fn arrived(world: &World, waiting: &mut Waiting) -> Vec<u64> {
    let mut waits = Vec::new();
    waiting.retain(|number, (since, ip)| {
        let service = &world.story.cluster.services[&name_of(*number)];
        let pool = pool_name(&service.key(), Family::V4);
        let there = expected_members::members(&world.arm, &balancer(service.lb), &pool).contains(ip);
        if there {
            waits.push(world.now() - *since);
        }
        !there
    });
    waits
}

/// Restarts everything; a Service starts `apart_us` microseconds after the one before.
///
/// # Errors
/// A finding of the watchdog.
pub fn roll_out(seed: u64, apart_us: u64) -> Result<Rollout, String> {
    let faults = Faults::default();
    let size = Size { services: 0, nodes: NODES, balancers: BALANCERS, seconds: 0, replicas: 1, faults };
    let mut world = World::new(seed, size, None);
    world.begin_well((0..SERVICES).map(service).collect())?;
    world.arm.reconfigure(slow);
    let from = world.now();
    let end = from + SERVICES as u64 * apart_us;
    let mut steps = restart_schedule(from, apart_us).into_iter().peekable();
    let (mut waiting, mut waits) = (Waiting::new(), Vec::new());
    let (mut ccm_at, mut touched) = (from, 0);
    let mut wrong = None;
    while world.now() < end + SETTLES_US {
        let now = world.now();
        if ccm_at <= now {
            world.touch(&name_of(touched % SERVICES), touched)?;
            (ccm_at, touched) = (ccm_at + CCM_INTERVAL_US, touched + 1);
        }
        while let Some((_, number, step)) = steps.next_if(|(at, _, _)| *at <= now) {
            // Half the cluster away, so that no node is in a pool by chance.
            let node = format!("node-{}", (number + NODES / 2) % NODES);
            world.roll(&name_of(number), step, &node)?;
            if step == 0 {
                let moved = world.story.cluster.nodes[&node].address;
                waiting.insert(number, (now, address(moved, Family::V4)));
            }
        }
        world.run_until(now + LOOK_US)?;
        waits.extend(arrived(&world, &mut waiting));
        if steps.peek().is_none() && now.is_multiple_of(10 * LOOK_US) {
            wrong = expected_members::first_wrong(
                &expected_members::expected_pools(&world.kube, false),
                &world.arm,
            );
            if wrong.is_none() {
                break;
            }
        }
    }
    waits.sort_unstable();
    let (tenure, until) = (&world.watchdog.tenure, world.now());
    let longest = tenure.exclusive_periods(from, until).iter().map(|(began, ended)| ended - began).max();
    Ok(Rollout {
        missing: waiting.len(),
        waits,
        wrong,
        watched: (until - from) / 1_000_000,
        held: tenure.held(from, until).0,
        longest: longest.unwrap_or(0).div_ceil(1_000_000),
    })
}
