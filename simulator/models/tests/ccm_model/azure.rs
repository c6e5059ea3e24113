//! Tries, waits and polls of the cloud-controller-manager's Azure client.

use simulator_models::arm::{self, Fault, FaultEffect, FaultTarget, Latency, OperationFailure};
use simulator_models::ccm::{Settings, Verb};

use crate::support::{SECOND, World, quiet};

/// Returns the times, in seconds since the first, at which PUTs of the pool arrive if each gets this answer; checks
/// that the lock is held throughout.
fn tries(status: u16, retry_after: Option<&str>) -> Vec<u64> {
    let faults = vec![Fault::every_nth_put(1, status, "X", retry_after)];
    let mut world = World::with(vec![quiet()], arm::Settings { faults, ..arm::Settings::default() });
    world.begin();
    while world.ccms[0].counters().failed == 0 {
        world.run(SECOND / 10);
        assert!(world.now < SECOND || world.ccms[0].holds_lock() || world.ccms[0].counters().failed > 0);
    }
    let puts = world.trace.iter().filter(|(_, call, _)| {
        call.verb == Verb::Put && call.path_and_query.contains("/backendAddressPools/demo-web?")
    });
    let moments: Vec<u64> = puts.map(|(at, _, _)| *at).collect();
    moments.iter().map(|at| (at - moments[0]) / SECOND).collect()
}

#[test]
fn z1_server_errors_are_tried_four_times_with_growing_waits() {
    let times = tries(503, None);
    assert_eq!(times.len(), 4, "{times:?}");
    let waits: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    for (wait, (least, most)) in waits.into_iter().zip([(4, 6), (12, 19), (28, 45)]) {
        assert!((least..=most).contains(&wait), "{times:?}");
    }
}

#[test]
fn z1_a_retry_after_of_a_server_error_is_honoured() {
    assert_eq!(tries(503, Some("2")), [0, 2, 4, 6]);
    assert_eq!(tries(500, Some("61")), [0]);
}

#[test]
fn z1_a_429_loses_its_header_and_closes_the_timer_for_others() {
    let plain = tries(429, None);
    assert_eq!(plain.len(), 4, "{plain:?}");
    assert!(plain[1] >= 4, "{plain:?}");
    assert_eq!(tries(429, Some("90")), [0], "three gated tries never reach ARM");
    assert_eq!(tries(429, Some("nonsense")).len(), 4);
}

#[test]
fn z1_conflicts_and_refusals_are_not_tried_again() {
    for status in [400, 403, 409, 412] {
        assert_eq!(tries(status, Some("1")), [0], "{status}");
    }
}

#[test]
fn z1_a_lost_answer_is_tried_again_and_the_write_is_there() {
    let fault = Fault {
        target: FaultTarget::PoolPut,
        every: 1,
        limit: Some(1),
        load_balancer: None,
        effect: FaultEffect::LoseAnswer,
    };
    let mut world =
        World::with(vec![quiet()], arm::Settings { faults: vec![fault], ..arm::Settings::default() });
    world.begin();
    world.run(20 * SECOND);
    assert_eq!(world.ccms[0].counters().reconciled, 1);
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]));
}

#[test]
fn z1_a_failed_operation_fails_the_reconcile() {
    let effect = FaultEffect::FailOperation {
        end: OperationFailure::Failed,
        code: "AnotherOperationInProgress".to_owned(),
        message: "m".to_owned(),
    };
    let fault = Fault { target: FaultTarget::PoolPut, every: 1, limit: Some(1), load_balancer: None, effect };
    let operation = Some(Latency::Fixed { us: 5 * SECOND });
    let arm = arm::Settings { operation, faults: vec![fault], ..arm::Settings::default() };
    let mut world = World::with(vec![quiet()], arm);
    world.begin();
    world.run_until_idle();
    let failed = world.events("SyncLoadBalancerFailed");
    assert!(failed[0].0.contains("RESPONSE 200: ERROR CODE: AnotherOperationInProgress"), "{failed:?}");
    assert_eq!(world.ips("lb", "demo-web"), Some(vec!["10.0.0.1"]), "the retry brought it");
}

#[test]
fn z1_polls_wait_for_retry_after_or_five_seconds() {
    let polls = |retry_after| {
        let operation = Some(Latency::Fixed { us: 24 * SECOND });
        let arm =
            arm::Settings { operation, operation_retry_after_s: retry_after, ..arm::Settings::default() };
        let mut world = World::with(vec![Settings { updater: false, ..Settings::default() }], arm);
        world.begin();
        world.run(40 * SECOND);
        let polls: Vec<u64> = world
            .trace
            .iter()
            .filter(|(_, call, _)| call.path_and_query.contains("/operations/"))
            .map(|(at, _, _)| at / SECOND)
            .collect();
        polls.windows(2).map(|pair| pair[1] - pair[0]).take(2).collect::<Vec<_>>()
    };
    assert_eq!(polls(Some(10)), [10, 10]);
    assert_eq!(polls(None), [5, 5]);
}
