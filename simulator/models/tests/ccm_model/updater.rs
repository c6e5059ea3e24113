//! The updater of local Services with its defects.

use serde_json::json;
use simulator_models::arm::{self, Fault};
use simulator_models::ccm::{CallTarget, Settings, Verb};
use simulator_models::kube::Resource;
use simulator_models::kube::build::{self, Family};

use crate::support::{LEASE, SECOND, World, wall};

/// Returns a world right after a tick, in which `web` is reconciled and the updater has nothing to do.
fn ready(arm: arm::Settings) -> World {
    let mut world = World::with(vec![Settings::default()], arm);
    world.begin();
    world.run_until_idle();
    after_tick(&mut world);
    world
}

fn after_tick(world: &mut World) {
    let tick = world.ccms[0].deadline().expect("a tick");
    world.run(tick - world.now + SECOND);
}

fn arm_calls(world: &World, from: usize) -> Vec<(Verb, String)> {
    world.calls(CallTarget::Arm)[from..].iter().map(|(_, verb, name)| (*verb, name.clone())).collect()
}

#[test]
fn z1_one_slice_compared_with_itself_loses_a_needed_node() {
    let mut world = World::new(Settings::default());
    world.slice("web", 1, &["n1"]);
    world.begin();
    world.slice("web", 0, &["n1", "n2"]);
    world.run_until_idle();
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1", "10.0.0.2"]));
    world.slice("web", 0, &["n2"]);
    world.run(31 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.2"]), "slice 1 still has n1");
}

#[test]
fn z1_new_and_deleted_slices_queue_nothing() {
    let mut world = ready(arm::Settings::default());
    let calls = world.calls(CallTarget::Arm).len();
    world.slice("web", 1, &["n2"]);
    world.run(31 * SECOND);
    let slice = build::endpoint_slice("demo", "web", 0, &[], Family::V4);
    world.delete(Resource::EndpointSlices, slice["metadata"]["name"].as_str().expect("a name"));
    world.run(31 * SECOND);
    assert_eq!(arm_calls(&world, calls), []);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
}

#[test]
fn z1_a_node_gone_before_its_slice_leaves_its_address() {
    let mut world = ready(arm::Settings::default());
    world.delete(Resource::Nodes, "n1");
    world.slice("web", 0, &["n2"]);
    world.run(31 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1", "10.0.0.2"]));
}

#[test]
fn z1_an_unchanged_dual_stack_set_costs_no_write() {
    let mut world = World::new(Settings::default());
    world.node("n1", &["10.0.0.1", "fd00::1"]);
    world.slice("web", 0, &["n1"]);
    world.service("web");
    world.run_until_idle();
    after_tick(&mut world);
    let calls = world.calls(CallTarget::Arm).len();
    world.slice("web", 0, &["n1", "n1"]);
    world.run(31 * SECOND);
    assert_eq!(arm_calls(&world, calls), [(Verb::Get, "demo-web".to_owned())]);
    assert_eq!(world.events("LoadBalancerBackendPoolUpdated").len(), 1);
}

#[test]
fn z1_unchanged_sets_queue_the_same_as_upstream() {
    let mut world = ready(arm::Settings::default());
    let calls = world.calls(CallTarget::Arm).len();
    world.slice("web", 0, &["n1", "n1"]);
    world.run(31 * SECOND);
    assert_eq!(arm_calls(&world, calls), []);
    world.slice("web", 0, &[]);
    world.run(31 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec![]));
}

#[test]
fn z1_a_refused_change_is_dropped_and_never_retried() {
    let mut world = ready(arm::Settings::default());
    world.arm.reconfigure(|settings| {
        let fault = Fault::every_nth_put(1, 409, "AnotherOperationInProgress", None);
        settings.faults = vec![Fault { limit: Some(1), ..fault }];
    });
    world.slice("web", 0, &["n2"]);
    world.run(300 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
    let failed = world.events("LoadBalancerBackendPoolUpdateFailed");
    assert_eq!(failed.len(), 1);
    assert!(failed[0].0.contains("RESPONSE 409: ERROR CODE: AnotherOperationInProgress"), "{failed:?}");
    assert_eq!(world.ccms[0].counters().dropped, 1);
}

#[test]
fn z1_a_missing_pool_is_dropped_silently() {
    let mut world = ready(arm::Settings::default());
    world.arm.remove_pool("lb", "demo-web");
    world.slice("web", 0, &["n2"]);
    world.run(31 * SECOND);
    assert_eq!(world.events("LoadBalancerBackendPoolUpdateFailed"), []);
    assert_eq!(world.events("LoadBalancerBackendPoolUpdated"), []);
}

#[test]
fn z1_a_tick_without_the_lock_keeps_the_queue() {
    let mut world = ready(arm::Settings::default());
    let leases = world.calls(CallTarget::Kubernetes).len();
    world.run(90 * SECOND);
    assert_eq!(world.calls(CallTarget::Kubernetes).len(), leases, "nothing to do, nothing asked");
    let spec = json!({"leaseDurationSeconds": 60, "holderIdentity": "azure-backend-pool-controller",
        "renewTime": wall(world.now)});
    world.set_lease(spec, json!({}));
    world.slice("web", 0, &["n2"]);
    world.run(50 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
    assert_eq!(world.events("LoadBalancerBackendPoolUpdateFailed"), [], "it is not reported");
    world.run(45 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.2"]));
}

#[test]
fn z1_one_hold_writes_the_whole_queue_group_by_group() {
    let operation = Some(arm::Latency::Fixed { us: 4 * SECOND });
    let mut world = ready(arm::Settings { operation, ..arm::Settings::default() });
    for name in ["a", "b", "c"] {
        world.slice(name, 0, &["n1"]);
        world.service(name);
    }
    world.run_until_idle();
    after_tick(&mut world);
    let holds = world.ccms[0].counters().holds;
    let writes = world.lease_writes().len();
    for name in ["a", "b", "c", "web"] {
        world.slice(name, 0, &["n3"]);
    }
    world.run(90 * SECOND);
    assert_eq!(world.ccms[0].counters().holds, holds + 1);
    assert_eq!(world.lease_writes().len(), writes + 2, "taken once, released once");
    for name in ["a", "b", "c", "web"] {
        assert_eq!(world.ips("lb", &format!("demo-{name}")), Some(vec!["10.0.0.3"]), "{name}");
    }
    assert_eq!(world.arm.counters().refused_by_lock, 0);
}

#[test]
fn z1_without_the_updater_only_reconciles_fill_pools() {
    let mut world = World::new(Settings { updater: false, ..Settings::default() });
    world.begin();
    world.run_until_idle();
    world.slice("web", 0, &["n2"]);
    world.run(300 * SECOND);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
    assert!(world.get(LEASE).is_some());
}

#[test]
fn z1_a_crash_empties_queue_and_map() {
    let mut world = ready(arm::Settings::default());
    world.slice("web", 0, &["n2"]);
    world.ccms[0].kill(5 * SECOND);
    world.slice("web", 0, &["n3"]);
    assert!(!world.ccms[0].is_up());
    world.run(10 * SECOND);
    world.run_until_idle();
    // The restarted process reconciles everything from all slices.
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.3"]));
}

#[test]
fn z1_unknown_fields_do_not_survive_its_round_trip() {
    for drops in [true, false] {
        let mut world = ready(arm::Settings::default());
        world.ccms[0].reconfigure(|settings| settings.drops_unknown_fields = drops);
        world.arm.plant_unknown_fields();
        world.slice("web", 0, &["n1", "n2"]);
        world.run(31 * SECOND);
        let pool = world.arm.pool_json("lb", "demo-web").expect("the pool");
        let address = &pool["properties"]["loadBalancerBackendAddresses"][0];
        for level in [&pool, &pool["properties"], address, &address["properties"]] {
            assert_eq!(level["fieldOfTheFuture"].is_null(), drops, "{level}");
        }
    }
}
