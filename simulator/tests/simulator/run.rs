//! Whole runs with the simplest possible controller: it writes every pool that is out of sync.

use std::collections::BTreeMap;
use std::time::Duration;

use simulator::models::arm::{self, Latency};
use simulator::{
    Churn, ExpectedPool, Fakes, Outcome, Pattern, Play, Report, RunInfo, Scenario, Settings, Size, Stage,
    World, expected_pools, vnet_id, wrong_pools,
};

const SIZE: Size = Size { services: 10, load_balancers: 2, nodes: 8, endpoints: 3, dual_stack: false };

async fn start() -> (Fakes, World) {
    let arm = arm::Settings { put_latency: Latency::Fixed { us: 0 }, ..arm::Settings::default() };
    let fakes = Fakes::start(Settings { arm, ..Settings::default() }).await.expect("a free port");
    let world = World::new(SIZE, 1);
    world.populate(&fakes, &vnet_id()).await;
    (fakes, world)
}

/// Writes every pool out of sync whenever something has changed in the cluster, without end.
async fn control(fakes: &Fakes) {
    let mut changed = fakes.cluster.revision();
    loop {
        changed.borrow_and_update();
        let wanted: BTreeMap<String, ExpectedPool> =
            fakes.cluster.ask(|cluster, _| expected_pools(&cluster.model)).await;
        let write = move |azure: &mut simulator::Azure, now_us| {
            for wrong in wrong_pools(&azure.model, &wanted) {
                let ips: Vec<String> = wanted[&wrong.pool].required.iter().map(ToString::to_string).collect();
                let members: Vec<(&str, &str)> = ips.iter().map(|ip| (ip.as_str(), ip.as_str())).collect();
                azure.foreign_put(&wrong.load_balancer, &wrong.pool, &members, now_us);
            }
        };
        fakes.azure.ask(write).await;
        changed.changed().await.expect("the owner lives");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z2_a_run_converges_behind_a_controller_and_is_measured() {
    let (fakes, world) = start().await;
    let churn = Churn::new(Pattern::Churn { rate: 500.0, duration_us: 200_000 }, 1);
    let began_us = fakes.clock().now_us();
    let play = Play::new(&fakes, world.clone(), churn).await;
    let mut stages = Vec::new();
    let outcome: Outcome = tokio::select! {
        outcome = play.run(Duration::from_secs(30), |progress| stages.push(progress.stage)) => outcome,
        () = control(&fakes) => unreachable!("it never ends"),
    };
    assert_eq!((stages.first(), stages.last()), (Some(&Stage::Changing), Some(&Stage::Settling)));
    let scenario = Scenario { size: SIZE, ..Scenario::default() };
    let info = RunInfo { scenario: &scenario, speed: 1, seed: 1, began_us, usage: None, manager: None };
    let report = Report::gather(&fakes, &info, &world, outcome).await;
    assert!(report.passed(), "{}", report.text());
    assert_eq!((report.changes, report.pools, report.convergence_seconds.waiting), (100, 10, 0));
    let took = report.first_event_to_converged_seconds.expect("all in sync");
    assert!(took > 0.15 && report.convergence_seconds.count > 10, "{}", report.text());
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z2_a_run_without_a_controller_names_the_pools_out_of_sync() {
    let (fakes, world) = start().await;
    let churn = Churn::new(Pattern::Burst, 1);
    let scenario = Scenario::read("at 1ms apiserver restart\nat 1ms etcd save\nat 2ms etcd restore\n")
        .expect("a scenario");
    let scenario = Scenario { size: SIZE, ..scenario };
    let play = Play::new(&fakes, world.clone(), churn).await.with(&scenario.timetable());
    let outcome = play.run(Duration::from_millis(50), |_| ()).await;
    let info = RunInfo { scenario: &scenario, speed: 1, seed: 1, began_us: 0, usage: None, manager: None };
    let report = Report::gather(&fakes, &info, &world, outcome).await;
    assert!(!report.passed() && !report.converged, "{}", report.text());
    assert_eq!((report.changes, report.wrong_pools), (50, 10));
    assert_eq!(report.unreached, ["apiserver restart"], "there is no watch");
    assert_eq!(report.convergence_seconds.count, 0);
    assert!(report.convergence_seconds.waiting > 10 && !report.wrong_pool_details[0].missing.is_empty());
    assert_eq!(report.first_event_to_converged_seconds, None);
    fakes.stop().await;
}
