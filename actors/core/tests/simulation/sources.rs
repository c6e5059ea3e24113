//! Pools that control planes fill, after the last event: they hold their assigned members, draining members are Down,
//! and each process shows this (X2, N2, H3, H5).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use model::level::Source;
use model::view::{PoolView, Snapshot};
use model::xds::ResourceValue;
use model::xds::assignment::{EndpointHealth, LoadAssignment};
use model::xds::cache::ResourceState;
use model::xds::diagnostic::Diagnostic;
use model::xds::dump::Dump;
use model::xds::facts::{ResourceKey, ResourceKind};
use model::xds::source::Assigned;

use crate::expected_members::{ExpectedPool, members};
use crate::served::{BALANCER, CLUSTER, ExpectedMembers, LISTED, Listed};
use crate::watchdog::downs_of;
use crate::world::World;

/// Time within which a pool is emptied whose source is dropped, in microseconds: some worlds allow few writes.
const EMPTIED_TIMEOUT_US: u64 = 300_000_000;
/// Time for which the error of a source must change nothing, in microseconds.
const UNTOUCHED_FOR_US: u64 = 60_000_000;
/// Interval of the checks, in microseconds.
const LOOK_US: u64 = 5_000_000;

/// Withdraws all resources of the control planes, after everything is in sync. If data errors drop endpoints, every
/// pool that they fill is emptied in spite of all guards; otherwise nothing changes (X3).
///
/// # Errors
///
/// A finding of the watchdog, or a pool that violates this.
pub fn taken_back(world: &mut World) -> Result<(), String> {
    let Some(planes) = &world.planes else { return Ok(()) };
    let drops = planes.features.policy.fail_on_data_errors;
    let of = |world: &World, pool: &'static str| {
        let down = downs_of(&world.arm.pool_json(BALANCER, pool).unwrap_or_default());
        (pool, members(&world.arm, BALANCER, pool), down)
    };
    let all = |world: &World| LISTED.map(|listed| of(world, listed.pool));
    let before = all(world);
    world.take_back()?;
    let until = world.now() + if drops { EMPTIED_TIMEOUT_US } else { UNTOUCHED_FOR_US };
    while world.now() < until {
        world.run_until(world.now() + LOOK_US)?;
        let pools = all(world);
        if drops && pools.iter().all(|(_, members, _)| members.is_empty()) {
            return Ok(());
        }
        if !drops && pools != before {
            return Err(format!("X3: {pools:?} were {before:?} before data errors that end nothing"));
        }
    }
    if drops { Err(format!("X3: {:?}, and their sources are given up", all(world))) } else { Ok(()) }
}

/// Returns the expected members of these pools.
///
/// # Errors
/// A source without resources, or with a fault.
pub fn expected_pools(world: &World) -> Result<BTreeMap<String, ExpectedPool>, String> {
    let wanted = |(listed, expected): (&Listed, ExpectedMembers)| {
        let draining = if world.watchdog.is_off { BTreeSet::new() } else { expected.draining };
        let allowed = expected.serving.union(&draining).copied().collect();
        (
            listed.pool.to_owned(),
            ExpectedPool { required: expected.serving, allowed, ..ExpectedPool::default() },
        )
    };
    Ok(expected_members(world)?.into_iter().map(wanted).collect())
}

fn expected_members(world: &World) -> Result<Vec<(&'static Listed, ExpectedMembers)>, String> {
    let Some(planes) = &world.planes else { return Ok(Vec::new()) };
    let of = |listed: &'static Listed| {
        let expected = planes
            .expected_members(listed)
            .ok_or_else(|| format!("nothing is served of {}", listed.source))?;
        Ok((listed, expected))
    };
    LISTED.iter().map(of).collect()
}

/// Checks that in these pools the draining members are Down, and otherwise only entries that another client has set
/// Down.
///
/// # Errors
/// The first pool that violates this.
pub fn downs_at_rest(world: &World) -> Result<(), String> {
    for (listed, expected) in expected_members(world)? {
        let pool = world.arm.pool_json(BALANCER, listed.pool).unwrap_or_default();
        let down = downs_of(&pool);
        let draining = &members(&world.arm, BALANCER, listed.pool) & &expected.draining;
        if let Some(serves) = draining.difference(&down).next() {
            return Err(format!("N2: {serves} drains in {} and is not Down", listed.pool));
        }
        // If a Down ended while no replica saw the member drain, its owner is unknown.
        let others: Vec<&IpAddr> = down.difference(&expected.draining).collect();
        if !others.is_empty() && !shows_foreign_downs(world, listed, others.len()) {
            return Err(format!("N4: {others:?} are Down in {} and do not drain", listed.pool));
        }
    }
    Ok(())
}

/// Returns whether the leader shows this many Downs of a pool as another client's.
fn shows_foreign_downs(world: &World, listed: &Listed, count: usize) -> bool {
    let leads = |identity: &str| *identity == *world.watchdog.tenure.leader();
    let mut leaders = world.processes.iter().filter(|process| process.is_there() && leads(&process.identity));
    leaders.any(|leader| {
        let snapshot = leader.snapshot.as_deref();
        let pool = snapshot.and_then(|snapshot| shown_pool(snapshot, listed));
        pool.is_some_and(|pool| diagnostics(pool).contains(&Diagnostic::ForeignDown(count)))
    })
}

fn shown_pool<'a>(snapshot: &'a Snapshot, listed: &Listed) -> Option<&'a PoolView> {
    let mut pools = snapshot.pools.iter();
    pools.find(|(id, _)| id.pool.as_str() == listed.pool).map(|(_, view)| &**view)
}

fn diagnostics(pool: &PoolView) -> BTreeSet<Diagnostic> {
    match &pool.source {
        Source::Kubernetes => BTreeSet::new(),
        Source::Xds { diagnostics, .. } => diagnostics.clone(),
    }
}

/// Checks that a process shows the true state of these pools, their sources and resources, and that CSDS matches the
/// pools (H5).
///
/// # Errors
/// The difference.
pub fn shown(world: &World, snapshot: &Snapshot) -> Result<(), String> {
    let expected = expected_members(world)?;
    if expected.is_empty() {
        return Ok(());
    }
    let xds = snapshot.xds.as_deref().ok_or("H3: nothing is shown of control planes")?;
    if let Some(wrong) = xds.dump.resources.iter().find(|resource| resource.state != ResourceState::Acked) {
        return Err(format!("H5: {wrong:?}, and nothing is wrong with it"));
    }
    for (listed, _) in expected {
        let mut sources = xds.sources.iter();
        let fact = sources.find(|(name, _)| name.to_string() == listed.source).map(|(_, fact)| fact);
        let fact = fact.ok_or_else(|| format!("H3: {} is not shown", listed.source))?;
        if !matches!(fact.assigned, Assigned::Usable(_))
            || matches!(fact.note, model::xds::source::Note::Errors(_))
        {
            return Err(format!("X3: {} is shown as {fact:?}", listed.source));
        }
        let pool = shown_pool(snapshot, listed).ok_or_else(|| format!("H3: {} is not shown", listed.pool))?;
        if pool.held.is_some() {
            return Err(format!("G1: {} holds {:?}", listed.pool, pool.held));
        }
        holds(world, listed, dumped(&xds.dump, listed)?)?;
    }
    Ok(())
}

/// Returns the assignment of a pool by CSDS.
fn dumped<'a>(dump: &'a Dump, listed: &Listed) -> Result<&'a LoadAssignment, String> {
    let cached = |kind: ResourceKind, name: &str| {
        let is_it = |key: &ResourceKey| key.kind == kind && *key.name == *name;
        let found = dump.resources.iter().find(|resource| is_it(&resource.key));
        let cached = found.and_then(|resource| resource.cached.as_ref()).map(|cached| &cached.value);
        cached.ok_or_else(|| format!("H5: CSDS lacks {name}, which fills {}", listed.pool))
    };
    let endpoints = match listed.endpoints() {
        Some(name) => name,
        None => match cached(ResourceKind::Cluster, CLUSTER)? {
            ResourceValue::Cluster(cluster) => &*cluster.eds_name,
            ResourceValue::Endpoints(_) => return Err(format!("H5: CSDS shows {CLUSTER} as no cluster")),
        },
    };
    match cached(ResourceKind::Endpoints, endpoints)? {
        ResourceValue::Endpoints(assignment) => Ok(assignment),
        ResourceValue::Cluster(_) => Err(format!("H5: CSDS shows {endpoints} as a cluster")),
    }
}

/// Returns whether a pool holds the usable addresses of this assignment, and at most some draining ones that are
/// Down. Computed in the simplest way, like [`ExpectedMembers`] for the served resources.
fn holds(world: &World, listed: &Listed, assignment: &LoadAssignment) -> Result<(), String> {
    let addresses_with = |health: EndpointHealth| -> Vec<BTreeSet<IpAddr>> {
        let of = assignment.priorities.iter().map(|priority| priority.with(listed.family, health).collect());
        of.filter(|addresses: &BTreeSet<IpAddr>| !addresses.is_empty()).collect()
    };
    let usable = addresses_with(EndpointHealth::Healthy)
        .into_iter()
        .chain(addresses_with(EndpointHealth::Degraded))
        .next();
    let usable = usable.unwrap_or_default();
    let draining: BTreeSet<IpAddr> = addresses_with(EndpointHealth::Draining).into_iter().flatten().collect();
    let members = members(&world.arm, BALANCER, listed.pool);
    let down = downs_of(&world.arm.pool_json(BALANCER, listed.pool).unwrap_or_default());
    let may_stay = |ip: &IpAddr| draining.contains(ip) && down.contains(ip);
    let is_in_sync =
        usable.is_subset(&members) && members.iter().all(|ip| usable.contains(ip) || may_stay(ip));
    if is_in_sync {
        Ok(())
    } else {
        Err(format!("H5: {} holds {members:?}, and CSDS shows {assignment:?}", listed.pool))
    }
}
