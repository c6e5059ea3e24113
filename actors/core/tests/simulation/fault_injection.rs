//! Injects random faults into ARM and the API server.

use model::object::Kind;
use simulator_models::arm::{
    ArmModel, ConcurrentWrite, Fault, FaultAnswer, FaultBody, FaultEffect, FaultTarget, Latency,
    OperationFailure, Settings, UnfinishedWrite, Visibility,
};
use simulator_models::kube::{KubeModel, StreamingLists};

use crate::azure::ArmPort;
use crate::kubernetes::{Effect, IncompleteLists, KubernetesPort};
use crate::random::Random;

/// Returns the settings of ARM for a whole world. They are variants of correct behaviour, not faults.
pub fn arm_settings(random: &mut Random) -> Settings {
    let fixed = |us: u64| Latency::Fixed { us };
    let operation = match random.below(4) {
        0 => None,
        1 => Some(fixed(800_000)),
        _ => Some(Latency::LogNormal { median_us: 3_000_000, p95_us: 15_000_000 }),
    };
    Settings {
        seed: random.next(),
        get_latency: fixed(random.between(5_000, 200_000)),
        put_latency: Latency::LogNormal { median_us: random.between(50_000, 800_000), p95_us: 1_500_000 },
        operation,
        operation_retry_after_s: [None, Some(1), Some(3), Some(10)][random.index(4)],
        visibility: if random.per_mille(500) { Visibility::AtOnce } else { Visibility::AtEnd },
        unfinished_write: if random.per_mille(700) {
            UnfinishedWrite::Reverted
        } else {
            UnfinishedWrite::Kept
        },
        etag_changes_at_end: random.per_mille(800),
        update_status: [200, 201, 202][random.index(3)],
        concurrent_write: match random.below(3) {
            0 => ConcurrentWrite::Refuse,
            1 => ConcurrentWrite::Supersede,
            _ => ConcurrentWrite::Mixed { supersede: 0.5 },
        },
        lock_retry_after_header: random.per_mille(500),
        address_resource_fields: random.per_mille(700),
        log_capacity: 0,
        ..Settings::default()
    }
}

fn answer(status: u16, code: &str, retry_after: Option<u64>) -> FaultAnswer {
    FaultAnswer {
        status,
        code: code.to_owned(),
        message: "a planned fault".to_owned(),
        retry_after: retry_after.map(|seconds| seconds.to_string()),
        body: FaultBody::Standard,
    }
}

fn fault(random: &mut Random) -> Fault {
    let target = match random.below(10) {
        0..5 => FaultTarget::PoolPut,
        5 => FaultTarget::PoolGet,
        6 => FaultTarget::LoadBalancerGet,
        7..9 => FaultTarget::Poll,
        _ => FaultTarget::Any,
    };
    let status = [409, 412, 500, 503, 504, 403, 408][random.index(7)];
    let effect = match random.below(10) {
        0..2 => FaultEffect::LoseAnswer,
        2 => FaultEffect::Refuse,
        3..6 => FaultEffect::Answer(answer(status, "Planned", None)),
        6 => FaultEffect::Answer(answer(
            429,
            "TooManyRequests",
            [None, Some(2), Some(20), Some(60), Some(60)][random.index(5)],
        )),
        7 => FaultEffect::Answer(answer(429, "RetryableErrorDueToAnotherOperation", Some(3))),
        8 => FaultEffect::AnswerAfterApplying(answer([502, 504][random.index(2)], "Planned", None)),
        _ => FaultEffect::FailOperation {
            end: if random.per_mille(500) { OperationFailure::Failed } else { OperationFailure::Canceled },
            code: ["InternalServerError", "RetryableError", "Canceled"][random.index(3)].to_owned(),
            message: "a planned end".to_owned(),
        },
    };
    Fault { target, every: random.between(1, 8), limit: None, load_balancer: None, effect }
}

/// A fault of ARM that lasts for a long time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LongFault {
    /// ARM refuses every write with a retriable error.
    Refusals,
    /// Polls of operations fail, or are not answered.
    FailingPolls,
    /// ARM denies every write.
    Denials,
}

fn refusal(random: &mut Random) -> Fault {
    let answer = match random.below(4) {
        0..2 => answer(409, "AnotherOperationInProgress", None),
        2 => answer(429, "TooManyRequests", Some(45)),
        _ => answer(429, "RetryableErrorDueToAnotherOperation", Some(3)),
    };
    let (target, effect) = (FaultTarget::PoolPut, FaultEffect::Answer(answer));
    Fault { target, every: 1, limit: None, load_balancer: None, effect }
}

fn denial() -> Fault {
    let effect = FaultEffect::Answer(answer(403, "AuthorizationFailed", None));
    Fault { target: FaultTarget::PoolPut, every: 1, limit: None, load_balancer: None, effect }
}

fn failing_poll(random: &mut Random) -> Fault {
    let status = [200, 404, 408, 409, 412, 500, 503][random.index(7)];
    let effect = match random.below(10) {
        0 => FaultEffect::LoseAnswer,
        1 => FaultEffect::Refuse,
        _ => FaultEffect::Answer(answer(status, "Planned", [None, Some(20)][random.index(2)])),
    };
    Fault { target: FaultTarget::Poll, every: 1, limit: None, load_balancer: None, effect }
}

/// Changes the faults of ARM, for long or not; returns a description.
pub fn change_arm(random: &mut Random, arm: &mut ArmModel, long: Option<LongFault>) -> String {
    let mut faults: Vec<Fault> = (0..random.below(3)).map(|_| fault(random)).collect();
    match long {
        Some(LongFault::Refusals) => faults = vec![refusal(random)],
        Some(LongFault::FailingPolls) => faults = vec![failing_poll(random)],
        Some(LongFault::Denials) => faults = vec![denial()],
        None => {}
    }
    let silent_loss = if random.per_mille(150) { 0.3 } else { 0.0 };
    let words = format!("ARM: silent loss {silent_loss}, {faults:?}");
    arm.reconfigure(|settings| {
        settings.faults = faults;
        settings.silent_loss = silent_loss;
    });
    words
}

/// Time after which a read of a hanging load balancer is answered: longer than any process waits.
const HANGS_US: u64 = 60_000_000;

/// Reads of these load balancers are not answered in time until the next change.
pub fn hang_reads(arm: &mut ArmModel, balancers: impl IntoIterator<Item = String>) {
    let fault = |lb| Fault {
        target: FaultTarget::LoadBalancerGet,
        every: 1,
        limit: None,
        load_balancer: Some(lb),
        effect: FaultEffect::Delay { us: HANGS_US },
    };
    let faults: Vec<Fault> = balancers.into_iter().map(fault).collect();
    arm.reconfigure(|settings| settings.faults.extend(faults));
}

/// Returns the probabilities, in thousandths, that answers arrive twice, and that they are late.
pub fn answers(random: &mut Random) -> (u64, u64) {
    (if random.per_mille(400) { 60 } else { 0 }, if random.per_mille(100) { 20 } else { 0 })
}

/// Ends all faults of ARM.
pub fn clear_arm(arm: &mut ArmModel) {
    arm.reconfigure(|settings| {
        settings.faults.clear();
        settings.silent_loss = 0.0;
    });
}

/// Ends all faults in the ports of a process.
pub fn clear_port(kubernetes: &mut KubernetesPort, azure: &mut ArmPort) {
    (azure.duplicate_per_mille, azure.late_per_mille) = (0, 0);
    kubernetes.posts_fail = 0;
    kubernetes.unreachable_until = 0;
    kubernetes.watches_last_us = None;
    kubernetes.incomplete_lists = None;
    kubernetes.end_stalls();
}

/// Longest time for which lists are incomplete, in microseconds: less than the 30 s after which a second read starts
/// (G2). A source that is broken for longer cannot be distinguished from a correct one.
const MAX_INCOMPLETE_US: u64 = 20_000_000;

/// Shortest and longest time for which lists are incomplete if a second read must return the same.
const LONG_INCOMPLETE_US: (u64, u64) = (100_000_000, 200_000_000);

/// Changes the faults of the API server; returns a description, and whether the controller may be blind for a while.
pub fn change_kube(
    random: &mut Random,
    kube: &mut KubeModel,
    port: &mut KubernetesPort,
    now: u64,
) -> (String, bool, Vec<Effect>) {
    let kind = Kind::ALL[random.index(4)];
    let mut effects = Vec::new();
    let words = match random.below(17) {
        0 => {
            effects = port.break_stream(kube, kind);
            format!("stream of {kind:?} breaks")
        }
        1 => {
            kube.compact();
            effects = port.break_stream(kube, kind);
            format!("compacted, stream of {kind:?} breaks")
        }
        2 => {
            kube.restart();
            "API server restarts".to_owned()
        }
        3 => {
            kube.answer_429(random.between(1, 12), random.between(1, 4));
            effects = port.break_stream(kube, kind);
            format!("API server answers 429, stream of {kind:?} breaks")
        }
        4 => {
            let how = [
                StreamingLists::RefusedAsInvalid,
                StreamingLists::RefusedAsBadRequest,
                StreamingLists::RefusedByErrorEvent,
            ][random.index(3)];
            kube.refuse_streaming_lists(how);
            kube.restart();
            format!("API server restarts and refuses streaming lists: {how:?}")
        }
        5 => {
            kube.lag(random.between(100_000, 10_000_000));
            "watch events are late".to_owned()
        }
        6 => {
            kube.slow(random.between(100_000, 5_000_000));
            "API server is slow".to_owned()
        }
        7 => {
            kube.down(true);
            "API server is down".to_owned()
        }
        8 => {
            port.stall(kind, now + random.between(5_000_000, 90_000_000));
            format!("stream of {kind:?} stalls")
        }
        9 => {
            port.posts_fail = 500;
            "events are refused".to_owned()
        }
        12 => {
            effects = port.cut_watches(kube, 0);
            "watches are closed empty".to_owned()
        }
        13 => {
            let after_us = random.between(5_000_000, 90_000_000);
            effects = port.cut_watches(kube, after_us);
            format!("watches are cut after {after_us} us")
        }
        10..12 => {
            let listed = [0, 0, 500, 900][random.index(4)];
            let until = now + random.between(2_000_000, MAX_INCOMPLETE_US);
            // Other planted bugs need complete lists, unless the world tests lists.
            let listed_per_mille = if port.is_planted() { 1_000 } else { listed };
            let lists = IncompleteLists { kind, until, listed_per_mille };
            return make_lists_incomplete(kube, port, now, lists);
        }
        _ => return ("API server works".to_owned(), false, effects),
    };
    (words, true, effects)
}

/// Makes lists of EndpointSlices incomplete from now on, for so short a time that a second read is complete, or for
/// longer.
pub fn break_lists(
    random: &mut Random,
    kube: &mut KubeModel,
    port: &mut KubernetesPort,
    now: u64,
    for_long: bool,
) -> (String, bool, Vec<Effect>) {
    let lasts = if for_long {
        random.between(LONG_INCOMPLETE_US.0, LONG_INCOMPLETE_US.1)
    } else {
        random.between(2_000_000, MAX_INCOMPLETE_US)
    };
    let listed_per_mille = [0, 300, 500][random.index(3)];
    make_lists_incomplete(
        kube,
        port,
        now,
        IncompleteLists { kind: Kind::EndpointSlices, until: now + lasts, listed_per_mille },
    )
}

fn make_lists_incomplete(
    kube: &mut KubeModel,
    port: &mut KubernetesPort,
    now: u64,
    incomplete_lists: IncompleteLists,
) -> (String, bool, Vec<Effect>) {
    let IncompleteLists { kind, until, listed_per_mille } = incomplete_lists;
    port.incomplete_lists = Some(incomplete_lists);
    kube.compact();
    let effects = port.break_stream(kube, kind);
    let lasts = until - now;
    (format!("lists of {kind:?} have {listed_per_mille} of a thousand objects for {lasts} us"), true, effects)
}

/// Ends all faults of the API server.
pub fn clear_kube(kube: &mut KubeModel) {
    kube.down(false);
    kube.lag(0);
    kube.slow(0);
    kube.answer_429(0, 0);
    kube.refuse_streaming_lists(StreamingLists::Served);
}
