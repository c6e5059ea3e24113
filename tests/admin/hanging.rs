//! Load balancers for which ARM never answers must not delay the pools of the others (D3).

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};
use simulator::{Fakes, PoolName, Size, World, expected_pools, wrong_pools};
use tokio::time::Instant;

use super::stage::Prepared;
use crate::support::{TEST_TIMEOUT, eventually, limit};

/// One Service on each load balancer.
const SIZE: Size = Size { services: 50, load_balancers: 50, nodes: 6, endpoints: 2, dual_stack: false };

/// Number of load balancers that hang: those that are read first.
const HANGING: usize = 20;

/// Maximum time of the other load balancers: on an idle machine, and while other tests run (a third of a hanging read).
const WITHIN: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(20));

/// Default interval between reads of each load balancer in these tests.
const INTERVAL: Duration = Duration::from_secs(5);

/// Stops answering requests about the first load balancers.
async fn hang(fakes: &Fakes) {
    let fault = |lb| simulator::fault(&format!("any hang every 1 on {lb}")).expect("a fault");
    let faults = hanging().into_iter().map(fault).collect();
    fakes.tune_arm(|arm| arm.faults = faults).await;
}

fn hanging() -> BTreeSet<String> {
    World::new(SIZE, 1).load_balancers().into_iter().take(HANGING).collect()
}

/// Returns the pools of the load balancers that answer.
fn healthy() -> Vec<PoolName> {
    let (world, hanging) = (World::new(SIZE, 1), hanging());
    let pools = (0..SIZE.services).flat_map(|service| world.pools(service).map(|(_, pool)| pool));
    let healthy: Vec<PoolName> = pools.filter(|pool| !hanging.contains(&pool.load_balancer)).collect();
    assert_eq!(healthy.len(), SIZE.services - HANGING);
    healthy
}

/// Removes all members from these pools, like another client.
async fn empty(fakes: &Fakes, pools: &[PoolName]) {
    for PoolName { load_balancer, pool } in pools {
        let status = fakes.foreign_put(load_balancer, pool, Vec::new()).await;
        assert_eq!(status, 200, "{load_balancer}/{pool}");
    }
}

/// Waits until the pools of the answering load balancers have the required members again. Returns the time since
/// `since`.
async fn restored(fakes: &Fakes, since: Instant) -> Duration {
    let wanted = fakes.cluster.ask(|cluster, _| expected_pools(&cluster.model)).await;
    let hanging = hanging();
    eventually("the pools of load balancers that answer are in sync", TEST_TIMEOUT, || async {
        let wanted = wanted.clone();
        let mut wrong = fakes.azure.ask(move |azure, _| wrong_pools(&azure.model, &wanted)).await;
        wrong.retain(|pool| !hanging.contains(&pool.load_balancer));
        if wrong.is_empty() { Ok(since.elapsed()) } else { Err(format!("{} are wrong", wrong.len())) }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_load_balancers_that_hang_at_startup_do_not_delay_others() {
    let prepared = Prepared::sized(SIZE).await;
    empty(&prepared.fakes, &healthy()).await;
    hang(&prepared.fakes).await;
    let start = Instant::now();
    let stage = prepared.start(&json!({ "discovery": { "interval": "60s" } })).await;
    let took = restored(&stage.fakes, start).await;
    assert!(took < limit(WITHIN.0, WITHIN.1), "{took:?}");
    stage.wait_until_ready().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_load_balancers_that_begin_to_hang_do_not_delay_others() {
    let stage = Prepared::sized(SIZE).await.start(&json!({})).await;
    stage.wait_until_ready().await;
    hang(&stage.fakes).await;
    // Before and after they are classified as hanging. No pool is emptied twice, which would be contention (W11).
    let healthy = healthy();
    let (first, second) = healthy.split_at(healthy.len() / 2);
    for (known, pools) in [(false, first), (true, second)] {
        if known {
            let fails = |lb: &&Value| !lb["lastError"].is_null();
            let fail = |status: &Value| {
                status["loadBalancers"].as_array().into_iter().flatten().filter(fails).count() == HANGING
            };
            stage.shown("/api/v1/status", fail).await;
        }
        empty(&stage.fakes, pools).await;
        let took = restored(&stage.fakes, Instant::now()).await;
        // Each load balancer is read every 5 s here, and the pool is written after that.
        let goal = WITHIN.0 + INTERVAL;
        assert!(took < limit(goal, WITHIN.1), "{took:?}, known to hang: {known}");
    }
}
