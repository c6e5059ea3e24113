//! A control plane that makes random changes. At each quiet time the pools have the addresses that CSDS shows as
//! accepted (H5, X2, X3).

use std::collections::{BTreeMap, BTreeSet};

use envoy_types::pb::envoy::config::core::v3::address::Address;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::google::protobuf::Any;
use simulator::Random;
use simulator::control_plane::{
    Bad, Code, ControlPlane, Ending, HealthStatus, Kind, Status, cluster, endpoints,
};

use super::dump::Dump;
use super::stage::{
    FAIL_ON_DATA_ERRORS, Plan, TestEnvironment, control_plane, endpoints_at, locality, server,
};
use crate::support::{TEST_TIMEOUT, eventually};

const STEPS: usize = 60;
/// Number of steps between two quiet times.
const QUIET_EVERY: usize = 6;

/// Pools, their sources, and the endpoints of the sources.
const POOLS: [(&str, &str, &str); 6] = [
    ("one", "eds:one", "one"),
    ("two", "eds:two", "two"),
    ("three", "eds:three", "three"),
    ("four", "cluster:four", "four"),
    ("five", "cluster:five", "five"),
    ("five-too", "cluster:five", "five"),
];
/// Endpoints and clusters that are changed.
const ENDPOINTS: [&str; 5] = ["one", "two", "three", "four", "five"];
const CLUSTERS: [&str; 2] = ["four", "five"];
/// Endpoints of a separate pool, whose change shows that all earlier changes were processed.
const TICK: &str = "tick";

/// Returns one to four of twelve addresses.
fn addresses(random: &mut Random) -> Vec<String> {
    let count = 1 + random.below(4);
    let some: BTreeSet<usize> = (0..count).map(|_| random.below(12)).collect();
    some.into_iter().map(|number| format!("10.1.0.{}", number + 1)).collect()
}

fn assigned(name: &str, addresses: &[String]) -> Any {
    endpoints_at(name, &addresses.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Returns the same with an additional unusable address, and a second priority that is not needed.
fn in_parts(name: &str, addresses: &[String]) -> Any {
    let healthy = addresses.iter().map(|address| (address.as_str(), HealthStatus::Healthy));
    let first: Vec<(&str, HealthStatus)> = healthy.chain([("10.1.0.50", HealthStatus::Unhealthy)]).collect();
    endpoints(name, [locality(0, &first), locality(1, &[("10.1.0.60", HealthStatus::Healthy)])])
}

/// Returns these addresses in the second priority, behind a first priority without usable endpoints.
fn in_second(name: &str, addresses: &[String]) -> Any {
    let second: Vec<(&str, HealthStatus)> =
        addresses.iter().map(|address| (address.as_str(), HealthStatus::Unknown)).collect();
    endpoints(name, [locality(0, &[("10.1.0.50", HealthStatus::Timeout)]), locality(1, &second)])
}

/// Makes one random change, and returns its description for failures.
async fn step(plane: &ControlPlane, random: &mut Random) -> String {
    let endpoints = ENDPOINTS[random.below(ENDPOINTS.len())];
    let named = CLUSTERS[random.below(CLUSTERS.len())];
    match random.below(20) {
        16 => {
            let some = addresses(random);
            plane.set(Kind::Endpoints, endpoints, in_parts(endpoints, &some)).await;
            format!("{endpoints} = {some:?} in parts")
        }
        17 => {
            let some = addresses(random);
            plane.set(Kind::Endpoints, endpoints, in_second(endpoints, &some)).await;
            format!("{endpoints} = {some:?} in the second priority")
        }
        18 => {
            plane.set(Kind::Endpoints, endpoints, endpoints_at(endpoints, &[])).await;
            format!("{endpoints} = nothing")
        }
        0..=4 => {
            let some = addresses(random);
            plane.set(Kind::Endpoints, endpoints, assigned(endpoints, &some)).await;
            format!("{endpoints} = {some:?}")
        }
        5 => {
            plane.set_bad(Kind::Endpoints, endpoints, Bad::Content).await;
            format!("{endpoints} is bad")
        }
        6 => {
            plane.set_bad(Kind::Clusters, named, Bad::Content).await;
            format!("cluster {named} is bad")
        }
        7 => {
            let code = if random.below(2) == 0 { Code::NotFound } else { Code::PermissionDenied };
            plane.fail(Kind::Endpoints, endpoints, code, "a data error").await;
            format!("{endpoints}: {code:?}")
        }
        8 => {
            plane.fail(Kind::Endpoints, endpoints, Code::Unavailable, "a transient error").await;
            format!("{endpoints}: UNAVAILABLE")
        }
        9 => {
            plane.forget_error(Kind::Endpoints, endpoints).await;
            format!("{endpoints}: no error")
        }
        10 => {
            plane.remove(Kind::Clusters, named).await;
            format!("cluster {named} is removed")
        }
        11 | 12 => {
            plane.set(Kind::Clusters, named, cluster(named, "")).await;
            format!("cluster {named} is set")
        }
        13 => {
            plane.cut(Ending::Cleanly).await;
            "cut".to_owned()
        }
        14 => {
            plane.cut(Ending::Status(Status::unavailable("churn"))).await;
            "cut with a status".to_owned()
        }
        _ => {
            plane.restart().await.expect("the port is still ours");
            "restart".to_owned()
        }
    }
}

/// Returns the addresses of an assignment that a pool must have: the usable ones of the first priority with any.
fn of(assignment: &ClusterLoadAssignment) -> BTreeSet<String> {
    let in_service = |health: i32| {
        [HealthStatus::Unknown, HealthStatus::Healthy].iter().any(|good| health == i32::from(*good))
    };
    let mut used: BTreeMap<u32, BTreeSet<String>> = BTreeMap::new();
    for locality in &assignment.endpoints {
        for endpoint in locality.lb_endpoints.iter().filter(|endpoint| in_service(endpoint.health_status)) {
            let Some(HostIdentifier::Endpoint(host)) = &endpoint.host_identifier else { continue };
            if let Some(Address::SocketAddress(socket)) =
                host.address.as_ref().and_then(|address| address.address.as_ref())
            {
                used.entry(locality.priority).or_default().insert(socket.address.clone());
            }
        }
    }
    used.into_values().next().unwrap_or_default()
}

/// Returns the required members of each pool, from the resources that CSDS shows as accepted. A resource that is no
/// longer cached is omitted.
fn wanted(dump: &Dump) -> BTreeMap<&'static str, BTreeSet<String>> {
    let of_pool = |(pool, _, endpoints): &(&'static str, &str, &str)| {
        (*pool, dump.endpoints(endpoints).as_ref().map(of).unwrap_or_default())
    };
    POOLS.iter().map(of_pool).collect()
}

/// Waits until all responses were processed, and then until the pools match CSDS.
async fn agree(env: &TestEnvironment, plane: &ControlPlane, tick: usize, done: &[String]) {
    let address = format!("10.7.0.{tick}");
    plane.set(Kind::Endpoints, TICK, endpoints_at(TICK, &[&address])).await;
    env.wait_for_members(TICK, &[&address]).await;
    eventually(&format!("the pools match CSDS after {done:#?}"), TEST_TIMEOUT, || differences(env)).await;
    env.flush_writes().await;
    if let Err(differences) = differences(env).await {
        panic!("the pools matched CSDS and no longer do: {differences} after {done:#?}");
    }
}

/// Returns the pools that differ from CSDS. A held pool also has members that are shown as held, because no endpoint is
/// assigned, or too few on a new stream.
async fn differences(env: &TestEnvironment) -> Result<(), String> {
    let mut different = Vec::new();
    for (pool, wanted) in wanted(&env.dump().await) {
        let held = env.wait_for_pool(pool, |_| true).await["held"].take();
        let members = env.members(pool).await;
        let reasons = if wanted.is_empty() { ["empty_confirm", "fraction"] } else { ["fraction"; 2] };
        let is_held = |address: &String| {
            held["members"].as_array().is_some_and(|held| held.iter().any(|member| member == address))
        };
        let is_allowed = held["reason"].as_str().is_some_and(|reason| reasons.contains(&reason))
            && members.is_superset(&wanted)
            && members.difference(&wanted).all(is_held);
        if !(members == wanted || is_allowed) {
            different.push(format!("{pool} has {members:?}, and CSDS shows {wanted:?}"));
        }
    }
    if different.is_empty() { Ok(()) } else { Err(different.join("; ")) }
}

async fn churned(seed: u64, features: &[&str]) {
    let plane = control_plane().await;
    for name in ENDPOINTS.into_iter().chain([TICK]) {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &["10.1.0.1"])).await;
    }
    for name in CLUSTERS {
        plane.set(Kind::Clusters, name, cluster(name, "")).await;
    }
    let mut plan = Plan::new().await.pool(TICK, "eds:tick", &[]).await;
    for (pool, source, _) in POOLS {
        plan = plan.pool(pool, source, &["10.9.0.1"]).await;
    }
    let env = plan.start(&[server(&plane, features)]).await;
    for (pool, ..) in POOLS {
        env.wait_for_members(pool, &["10.1.0.1"]).await;
    }
    let mut random = Random::new(seed);
    let mut done = vec![format!("seed {seed}")];
    for number in 1..=STEPS {
        done.push(step(&plane, &mut random).await);
        if number % QUIET_EVERY == 0 {
            agree(&env, &plane, number, &done).await;
        }
    }
    for name in ENDPOINTS {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &["10.1.0.1", "10.1.0.99"])).await;
    }
    for name in CLUSTERS {
        plane.set(Kind::Clusters, name, cluster(name, "")).await;
    }
    for (pool, ..) in POOLS {
        env.wait_for_members(pool, &["10.1.0.1", "10.1.0.99"]).await;
        env.wait_for_no_error(pool).await;
    }
    agree(&env, &plane, STEPS + 1, &done).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h5_quiet_pools_match_the_accepted_resources_of_csds() {
    churned(88, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h5_pools_match_csds_at_rest_with_fail_on_data_errors() {
    churned(57, &[FAIL_ON_DATA_ERRORS]).await;
}
