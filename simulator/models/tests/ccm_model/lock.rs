//! The azureResourceLocker, one sentence of its specification after another.

use proptest::prelude::*;
use serde_json::json;
use simulator_models::ccm::{CallTarget, Settings, Verb};

use crate::support::{SECOND, World, quiet, wall};

const PREVIOUS: &str = "aks-managed-resource-locker-previous-holder";
const OURS: &str = "azure-backend-pool-controller";

#[test]
fn z1_an_absent_lease_is_created_and_then_taken() {
    let mut world = World::new(quiet());
    world.begin();
    world.run(SECOND / 10);
    let about_lease: Vec<_> =
        world.trace.iter().filter(|(_, call, _)| call.path_and_query.contains("leases")).collect();
    let verbs: Vec<(Verb, u16)> = about_lease.iter().map(|(_, call, status)| (call.verb, *status)).collect();
    assert_eq!(verbs[..4], [(Verb::Get, 404), (Verb::Post, 201), (Verb::Get, 200), (Verb::Put, 200)]);
    let created = about_lease[1].1.body.as_ref().expect("a body");
    assert_eq!(created["spec"], json!({"leaseDurationSeconds": 900}));
    assert!(created["metadata"].get("annotations").is_none());
}

#[test]
fn z1_a_free_lease_is_taken_by_version_with_its_own_wall_clock() {
    let mut world = World::new(Settings { skew_us: 7 * 60 * 1_000_000 + 5, ..quiet() });
    world.set_lease(json!({"leaseDurationSeconds": 60, "holderIdentity": ""}), json!({"other": "kept"}));
    let version = world.lease()["metadata"]["resourceVersion"].clone();
    world.begin();
    world.run(2_000);
    let (verb, taken) = world.lease_writes().remove(0);
    assert_eq!((verb, &taken["metadata"]["resourceVersion"]), (Verb::Put, &version));
    // Two requests of 1 ms came before.
    let now = wall(2_000 + 7 * 60 * SECOND + 5);
    assert_eq!(
        taken["spec"],
        json!({"leaseDurationSeconds": 60, "holderIdentity": "cloud-controller-manager",
            "acquireTime": now, "renewTime": now})
    );
    assert_eq!(taken["metadata"]["annotations"], json!({"other": "kept"}));
    assert_eq!(world.lease()["spec"]["renewTime"], json!(now), "the server keeps it verbatim");
}

#[test]
fn z1_an_unexpired_foreign_lease_fails_the_reconcile() {
    let mut world = World::new(quiet());
    let held = json!({"leaseDurationSeconds": 900_000, "holderIdentity": OURS, "renewTime": wall(0)});
    world.set_lease(held.clone(), json!({}));
    world.begin();
    world.run(1_500 * SECOND);
    let words = "Error syncing load balancer: failed to ensure load balancer: EnsureLoadBalancer failed due to fail \
        to lock azure resources: lease has not expired yet, another component such as aks rp may be processing \
        another request, this would be automatically recovered after the lease expires";
    let tries: Vec<u64> = world
        .trace
        .iter()
        .filter(|(_, call, _)| call.path_and_query.ends_with("/aks-managed-resource-locker"))
        .map(|(at, _, _)| at / SECOND)
        .step_by(2)
        .collect();
    assert_eq!(tries, [0, 5, 15, 35, 75, 155, 315, 615, 915, 1_215]);
    assert_eq!(world.events("SyncLoadBalancerFailed"), [(words.to_owned(), 10)], "one event, counted");
    let event = world.kube.list(simulator_models::kube::Resource::Events);
    let event = event.into_iter().find(|event| event["type"] == "Warning").expect("a warning");
    assert_eq!(
        (&event["source"]["component"], &event["metadata"]["namespace"]),
        (&json!("service-controller"), &json!("demo"))
    );
    assert_eq!(world.lease()["spec"], held, "nothing was written");
    assert!(world.calls(CallTarget::Arm).is_empty(), "nothing was asked of ARM");
    assert_eq!(world.ccms[0].counters().lock_failures, 10);
}

#[test]
fn z1_an_unexpired_lease_of_its_own_name_is_taken_again() {
    let mut world = World::new(quiet());
    let spec = json!({"leaseDurationSeconds": 900, "holderIdentity": "Cloud-Controller-Manager",
        "renewTime": wall(0)});
    world.set_lease(spec, json!({}));
    world.begin();
    world.run(3_000);
    assert!(world.ccms[0].holds_lock());
}

#[test]
fn z1_a_lease_expires_by_its_own_clock_alone() {
    // Renewed at 0; the deciding read is answered at 2 ms.
    let cases = [
        (json!(60), Some(0), 60_000_000 - 2_000, false),
        (json!(60), Some(0), 60_000_000 - 1_999, true),
        (json!(900), Some(0), 899_000_000, false),
        (json!(900), Some(0), 901_000_000, true),
        (json!(900), None, 0, true),
        (json!(null), Some(0), 0, true),
        (json!(1), Some(0), -3_600_000_000, false),
    ];
    for (duration, renewed, skew_us, expired) in cases {
        let mut world = World::new(Settings { skew_us, ..quiet() });
        let mut spec = json!({"holderIdentity": OURS});
        if !duration.is_null() {
            spec["leaseDurationSeconds"] = duration.clone();
        }
        if let Some(renewed) = renewed {
            spec["renewTime"] = wall(renewed).into();
        }
        world.set_lease(spec, json!({}));
        world.begin();
        world.run(3_000);
        assert_eq!(world.ccms[0].holds_lock(), expired, "{duration} {renewed:?} {skew_us}");
    }
}

#[test]
fn z1_unlock_clears_the_holder_and_sets_the_previous_one() {
    let mut world = World::new(Settings { holder: "somebody-else".to_owned(), ..quiet() });
    world.begin();
    world.run_until_idle();
    let (verb, released) = world.lease_writes().pop().expect("writes");
    assert_eq!((verb, &released["spec"]["holderIdentity"]), (Verb::Put, &json!("")));
    assert_eq!(released["metadata"]["annotations"], json!({PREVIOUS: "cloud-controller-manager"}));
    let lease = world.lease();
    assert_eq!(lease["spec"]["leaseDurationSeconds"], 900);
    assert_eq!(lease["spec"]["renewTime"], lease["spec"]["acquireTime"], "it was never renewed");
}

#[test]
fn z1_the_lock_is_never_renewed_so_a_long_hold_is_lost() {
    let mut world = World::new(Settings { linger_per_mille: 1_000, linger_us: 950 * SECOND, ..quiet() });
    world.begin();
    world.run(940 * SECOND);
    assert!(world.ccms[0].holds_lock(), "it believes so");
    assert_eq!(world.lease_writes().len(), 2, "created, taken, never renewed");
    let theirs = json!({"leaseDurationSeconds": 60, "holderIdentity": OURS, "renewTime": wall(world.now)});
    world.set_lease(theirs.clone(), json!({PREVIOUS: OURS}));
    world.run(20 * SECOND);
    assert!(!world.ccms[0].holds_lock());
    assert_eq!(world.lease()["spec"], theirs);
    assert_eq!(world.ccms[0].counters().reconciled, 1, "a lost lock is no error to it");
}

#[test]
fn z1_an_expired_lease_of_its_own_is_not_released() {
    let linger_us = 901 * SECOND;
    let mut world =
        World::new(Settings { linger_per_mille: 1_000, linger_us, node_sync_us: 2_000 * SECOND, ..quiet() });
    world.begin();
    world.run(910 * SECOND);
    assert_eq!(world.ccms[0].counters().reconciled, 1);
    assert_eq!(world.lease_writes().len(), 2, "created and taken");
    assert_eq!(world.lease()["spec"]["holderIdentity"], "cloud-controller-manager");
}

#[test]
fn z1_a_conflict_while_taking_fails_the_lock() {
    let mut world = World::new(quiet());
    world.set_lease(json!({"leaseDurationSeconds": 900, "holderIdentity": ""}), json!({}));
    world.begin();
    // Between its second read and its write another client writes.
    world.run(1_500);
    world.set_lease(
        json!({"leaseDurationSeconds": 900, "holderIdentity": "", "leaseTransitions": 1}),
        json!({}),
    );
    world.run(2_000);
    assert_eq!(world.ccms[0].counters().lock_failures, 1);
    let failed = world.events("SyncLoadBalancerFailed");
    assert!(failed[0].0.contains("the object has been modified"), "{failed:?}");
}

#[test]
fn z1_after_another_holder_it_reads_the_load_balancer_again() {
    let reads = |previous: &str| {
        let mut world =
            World::new(Settings { cache_us: 600 * SECOND, resync_us: Some(60 * SECOND), ..quiet() });
        world.begin();
        world.run(62 * SECOND);
        let spec = json!({"leaseDurationSeconds": 900, "holderIdentity": ""});
        world.set_lease(spec, json!({PREVIOUS: previous}));
        let before = world.calls(CallTarget::Arm).len();
        world.run(60 * SECOND);
        (world.calls(CallTarget::Arm).len() - before, world.ccms[0].counters().cache_rebuilds)
    };
    assert_eq!(reads("cloud-controller-manager"), (0, 0));
    assert_eq!(reads(OURS), (1, 1));
}

#[test]
fn z1_no_previous_holder_counts_as_another_one() {
    let rebuilds = |annotations| {
        let mut world = World::new(quiet());
        world.set_lease(json!({"leaseDurationSeconds": 900}), annotations);
        world.begin();
        world.run_until_idle();
        world.ccms[0].counters().cache_rebuilds
    };
    assert_eq!(rebuilds(json!({"a": "b"})), 1);
    assert_eq!(rebuilds(serde_json::Value::Null), 0);
}

#[test]
fn z1_it_ends_with_the_lock_and_takes_it_again_after_a_restart() {
    let mut world = World::new(Settings { crash_per_mille: 1_000, down_us: 20 * SECOND, ..quiet() });
    world.begin();
    world.run(10 * SECOND);
    assert!(!world.ccms[0].is_up());
    assert_eq!(world.lease()["spec"]["holderIdentity"], "cloud-controller-manager", "it was not released");
    let died = world.lease()["spec"]["acquireTime"].clone();
    world.ccms[0].reconfigure(|settings| settings.crash_per_mille = 0);
    world.run(20 * SECOND);
    world.run_until_idle();
    assert_ne!(world.lease()["spec"]["acquireTime"], died);
    assert_eq!(world.lease()["spec"]["holderIdentity"], "");
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
    assert_eq!(world.ccms[0].counters().deaths, 1);
}

#[test]
fn z1_a_lease_that_cannot_be_decoded_fails_the_lock() {
    let mut world = World::new(quiet());
    world.set_lease(json!({"holderIdentity": OURS, "renewTime": "yesterday"}), json!({}));
    world.begin();
    world.run(SECOND);
    assert_eq!(world.ccms[0].counters().lock_failures, 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn z1_two_holders_never_both_hold_while_their_clocks_agree(seed in any::<u64>(), linger in 0..60u64) {
        let settings = |name: &str, seed: u64| Settings {
            seed,
            holder: name.to_owned(),
            resync_us: Some(3 * SECOND),
            retry_us: SECOND / 2,
            max_retry_us: SECOND,
            linger_per_mille: 500,
            linger_us: linger * SECOND / 10,
            ..quiet()
        };
        let both = vec![settings("one", seed), settings("two", seed ^ 1)];
        let mut world = World::with(both, simulator_models::arm::Settings::default());
        world.delay = |number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 47;
        world.check = |world| {
            let holders = world.ccms.iter().filter(|ccm| ccm.holds_lock()).count();
            assert!(holders <= 1, "both hold at {}", world.now);
        };
        world.begin();
        world.run(120 * SECOND);
        for ccm in &world.ccms {
            prop_assert!(ccm.counters().holds > 3, "each gets its turns: {:?}", ccm.counters());
        }
    }
}

#[test]
fn z1_two_holders_hold_when_one_clock_is_ahead_by_the_duration() {
    let slow = Settings { linger_per_mille: 1_000, linger_us: 100 * SECOND, ..quiet() };
    let ahead = Settings { holder: "two".to_owned(), skew_us: 901_000_000, retry_us: 5 * SECOND, ..quiet() };
    let mut world = World::with(vec![slow, ahead], simulator_models::arm::Settings::default());
    world.begin();
    let mut both = false;
    for _ in 0..1_000 {
        world.run(SECOND / 100);
        both |= world.ccms.iter().all(simulator_models::ccm::Ccm::holds_lock);
    }
    assert!(both, "so the property above can fail");
}
