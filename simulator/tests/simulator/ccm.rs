//! The cloud-controller-manager's model: next to a service, and by itself with its updater.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use simulator::models::arm::Latency;
use simulator::{
    CcmMode, Churn, Fakes, LiveCcm, Outcome, Pattern, Play, Report, RunInfo, Scenario, Settings, Size,
    States, World, expected_pools, vnet_id, wrong_pools,
};

const SIZE: Size = Size { services: 12, load_balancers: 3, nodes: 12, endpoints: 1, dual_stack: false };

/// Returns a rolling restart of everything within a minute; operations of 5 s.
fn scenario() -> Scenario {
    let mut scenario = Scenario { size: SIZE, ccm_mode: CcmMode::Manager, ..Scenario::default() };
    scenario.pattern = Pattern::Rollout { within_us: 60_000_000, step_us: 10_000_000 };
    scenario.arm.operation = Some(Latency::Fixed { us: 5_000_000 });
    scenario
}

#[test]
fn z1_upstream_alone_writes_pools_in_turn_under_one_lock() {
    let (scenario, world) = (scenario(), World::new(SIZE, 1));
    let report = Report::of_upstream(&scenario, &world, 1);
    assert!(report.converged, "{}", report.text());
    assert_eq!((report.changes, report.convergence_seconds.waiting), (36, 0));
    // A tick is 30 s away, and each write before takes 10 s.
    let median = report.convergence_seconds.p50.expect("changes were measured");
    assert!(median > 15.0, "{}", report.text());
    let ccm = report.ccm.expect("it ran");
    assert!(ccm.dropped == 0 && ccm.writes >= 12, "{ccm:?}");
    assert_eq!((report.lease.duty, report.arm_puts), (0.0, 0), "no other client was there");
    assert!(report.lease.others > 0.2, "{:?}", report.lease);
    let again = Report::of_upstream(&scenario, &world, 1);
    assert_eq!(report.json(), again.json());
    let other = Report::of_upstream(&scenario, &World::new(SIZE, 2), 2);
    assert_ne!(report.json(), other.json());
}

#[test]
fn z1_a_refused_pool_stays_wrong_under_upstream() {
    let mut scenario = scenario();
    scenario.arm.faults = vec![simulator::fault("put 409 every 4").expect("a fault")];
    let report = Report::of_upstream(&scenario, &World::new(SIZE, 1), 1);
    let dropped = report.ccm.expect("it ran").dropped;
    assert!(dropped > 0 && report.wrong_pools > 0, "{}", report.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_manager_next_to_the_service_changes_no_pools() {
    let scenario = Scenario { size: SIZE, ccm_mode: CcmMode::Manager, ..Scenario::default() };
    let settings = Settings { arm: scenario.arm.clone(), ..Settings::default() };
    let fakes = Fakes::start(settings).await.expect("a free port");
    let world = World::new(SIZE, 1);
    world.populate(&fakes, &vnet_id()).await;
    let alone = Scenario { ccm_mode: CcmMode::Off, ..scenario.clone() };
    assert!(LiveCcm::start_for_scenario(&fakes, &world, &alone, 1, 1).await.is_none());
    let live_ccm =
        LiveCcm::start_for_scenario(&fakes, &world, &scenario, 1, 1).await.expect("the scenario has one");
    assert_eq!(live_ccm.sums().0.reconciled, 0, "what comes before the scenario does not count");
    let arm = fakes.azure.ask(|azure, _| azure.model.settings().clone()).await;
    assert_eq!(arm.put_latency, scenario.arm.put_latency, "ARM takes its time again");
    assert!(arm.endpoint.starts_with("http://127.0.0.1:"), "{}", arm.endpoint);
    let wanted: BTreeMap<_, _> = fakes.cluster.ask(|cluster, _| expected_pools(&cluster.model)).await;
    let wrong = fakes.azure.ask(move |azure, _| wrong_pools(&azure.model, &wanted)).await;
    assert_eq!(wrong, []);
    let began_us = fakes.clock().now_us();
    let play = Play::new(&fakes, world.clone(), Churn::new(Pattern::Still, 1)).await;
    let outcome: Outcome = play.run(Duration::from_secs(1), |_| ()).await;
    let manager = Some(live_ccm.sums());
    let info = RunInfo { scenario: &scenario, speed: 1, seed: 1, began_us, usage: None, manager };
    let report = Report::gather(&fakes, &info, &world, outcome).await;
    assert!(report.passed() && report.events.is_empty(), "{}", report.text());
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n1_a_manager_next_to_the_service_taints_stopped_nodes() {
    let fakes = Fakes::start(Settings::default()).await.expect("a free port");
    let world = World::new(SIZE, 1);
    world.populate(&fakes, &vnet_id()).await;
    let scenario = Scenario { size: SIZE, ccm_mode: CcmMode::Manager, ..Scenario::default() };
    let _rival =
        LiveCcm::start_for_scenario(&fakes, &world, &scenario, 1, 50).await.expect("the scenario has one");
    let actions = Scenario::read("at 0s nodes stop 2\n").expect("a scenario").timetable();
    let play = Play::new(&fakes, world.clone(), Churn::new(Pattern::Still, 1)).await.with(&actions);
    let outcome: Outcome = play.run(Duration::ZERO, |_| ()).await;
    assert_eq!(outcome.wrong_pools, [], "what is not Ready stays in its pools");
    let mut moved = fakes.cluster.revision();
    let tainted = async {
        loop {
            moved.borrow_and_update();
            let count = |cluster: &mut simulator::Cluster, _| {
                let nodes = cluster.model.list(simulator::models::kube::Resource::Nodes);
                nodes
                    .filter(|node| node["spec"]["taints"].as_array().is_some_and(|all| all.len() == 2))
                    .count()
            };
            if fakes.cluster.ask(count).await == 2 {
                return;
            }
            moved.changed().await.expect("the owner lives");
        }
    };
    super::soon(tainted).await;
    let states = fakes.cluster.ask(|cluster, _| States::of(&cluster.model)).await;
    let wrong = fakes.azure.ask(move |azure, _| azure.wrong_entries(&states)).await;
    let ips: BTreeSet<String> = wrong.iter().map(|wrong| wrong.ip.to_string()).collect();
    assert_eq!(ips, BTreeSet::from(["10.224.0.4", "10.224.0.5"].map(str::to_owned)), "they are not set Down");
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z2_actions_of_a_scenario_reach_both_models_in_time() {
    let text = "services 4\nload-balancers 1\nnodes 6\npods still\n\
                at 0s etcd save\nat 20ms arm silent-loss 1\nat 30ms nodes delete 2\n\
                at 40ms others take a member of every 2\nat 50ms lists empty\nat 60ms apiserver down\n";
    let scenario = Scenario::read(text).expect("a scenario");
    let fakes = Fakes::start(Settings::default()).await.expect("a free port");
    let world = World::new(scenario.size, 1);
    world.populate(&fakes, &vnet_id()).await;
    let play =
        Play::new(&fakes, world.clone(), Churn::new(scenario.pattern, 1)).await.with(&scenario.timetable());
    let outcome = play.run(Duration::from_millis(1), |_| ()).await;
    assert!(!outcome.wrong_pools.is_empty(), "nothing repairs it");
    let (nodes, down) = fakes
        .cluster
        .ask(|cluster, _| {
            let nodes = cluster.model.list(simulator::models::kube::Resource::Nodes).count();
            (nodes, cluster.model.is_down())
        })
        .await;
    assert_eq!((nodes, down), (4, true));
    let (silent, writes) =
        fakes.azure.ask(|azure, _| (azure.model.settings().silent_loss, azure.lanes.writes().to_vec())).await;
    assert_eq!((writes.len(), writes.iter().all(|write| write.foreign)), (2, true), "{writes:?}");
    assert!((silent - 1.0).abs() < f64::EPSILON);
    fakes.stop().await;
}
