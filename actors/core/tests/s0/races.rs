//! Assignments that race with an attempt (S0 cases 15-17), and interrupted terms.
//!
//! Upstream serialises the updater with the main reconcile loop by `serviceReconcileLock`: a removal or migration is
//! either before the updater's turn or after it. Here nothing is locked: the assignment that a Service was deleted
//! (case 17) or now uses another load balancer (case 16) reaches the pool at any moment of an attempt. Each of S0's two
//! orders is one of these moments. *Removed first* is every moment up to the outcome, and nothing is requeued or
//! reported. *Requeued first* is the moment after the outcome: Retrying was correctly reported, and the requeued
//! operation is dropped silently. Every interleaving must end like one of the two.

use model::arm::{ArmAnswer, ArmRequest};
use model::ids::{Epoch, PoolId};
use model::leadership::Leadership;
use model::sample::AttemptEnd;
use pool_core::route::{ArmMessage, Delivery, PoolMessage};
use pools::queue;
use simulator_models::arm::{FaultEffect, FaultTarget, Latency, OperationFailure, Settings};

use crate::bench::{Bench, pool, web};
use crate::profile::{Playing, Profile, TICK, both};
use crate::texts::{retrying, updated};

/// A point of an attempt, by the delivery in flight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Moment {
    /// The Take has not reached the pool.
    BeforeTake,
    /// The pool has started the attempt, the writer has not received its level.
    BeforeTaken,
    /// The GET has not been sent.
    BeforeGet,
    /// The GET is in flight.
    DuringGet,
    /// The GET was answered, the PUT has not been sent.
    BeforePut,
    /// The PUT is in flight.
    DuringPut,
    /// The operation runs, and has not been polled.
    BeforePoll,
    /// The operation has been polled.
    DuringPoll,
    /// The writer has the outcome, the pool does not.
    BeforeOutcome,
    /// The outcome was handled: changes are requeued.
    AfterOutcome,
}

const MOMENTS: [Moment; 10] = [
    Moment::BeforeTake,
    Moment::BeforeTaken,
    Moment::BeforeGet,
    Moment::DuringGet,
    Moment::BeforePut,
    Moment::DuringPut,
    Moment::BeforePoll,
    Moment::DuringPoll,
    Moment::BeforeOutcome,
    Moment::AfterOutcome,
];

fn asks(delivery: &Delivery, picks: fn(&ArmRequest) -> bool) -> bool {
    matches!(delivery, Delivery::Arm(ArmMessage::Call(call)) if picks(&call.request))
}

fn answers(delivery: &Delivery, picks: fn(&ArmAnswer) -> bool) -> bool {
    matches!(delivery, Delivery::Writer(writer::In::Answered(_, answer)) if picks(answer))
}

impl Moment {
    /// Returns whether this delivery comes next at this moment.
    fn is_before(self, delivery: &Delivery) -> bool {
        match self {
            Moment::BeforeTake => {
                matches!(delivery, Delivery::Pool(_, PoolMessage::In(queue::In::Take(_))))
            }
            Moment::BeforeTaken => matches!(delivery, Delivery::Writer(writer::In::Taken(..))),
            Moment::BeforeGet => asks(delivery, |request| matches!(request, ArmRequest::GetPool(_))),
            Moment::DuringGet => answers(delivery, |answer| matches!(answer, ArmAnswer::Pool(_))),
            Moment::BeforePut => asks(delivery, |request| matches!(request, ArmRequest::PutPool { .. })),
            Moment::DuringPut => answers(delivery, |answer| matches!(answer, ArmAnswer::Put(_))),
            Moment::BeforePoll => asks(delivery, |request| matches!(request, ArmRequest::Poll(_))),
            Moment::DuringPoll => answers(delivery, |answer| matches!(answer, ArmAnswer::Operation(_))),
            Moment::BeforeOutcome => {
                matches!(delivery, Delivery::Pool(_, PoolMessage::In(queue::In::Finished(..))))
            }
            Moment::AfterOutcome => matches!(delivery, Delivery::Events(_)),
        }
    }

    /// Advances to this moment.
    fn wait(self, bench: &mut Bench) {
        bench.stop_before(|delivery| self.is_before(delivery));
    }

    /// Returns the events of `web` up to this moment.
    fn events(self) -> Vec<String> {
        if self == Moment::AfterOutcome { vec![retrying("web", 1, 3, "Conflict")] } else { Vec::new() }
    }
}

/// Returns a bench in which ARM's writes take two seconds and end in a conflict, so that an attempt has every moment.
fn slow(profile: Profile) -> Bench {
    let operation = Some(Latency::Fixed { us: 2_000_000 });
    let settings = Settings { operation, operation_retry_after_s: Some(1), ..Settings::default() };
    Bench::with(profile, 3, settings)
}

fn conflicts(bench: &mut Bench, times: u64) {
    let (code, message) = ("Conflict".to_owned(), "It did not work.".to_owned());
    let effect = FaultEffect::FailOperation { end: OperationFailure::Failed, code, message };
    bench.fault_of("lb", FaultTarget::PoolPut, times, effect);
}

/// Runs a case in both profiles and at every moment; the attempt would end in a retriable failure.
fn at_every_moment(case: impl Fn(Bench, Moment)) {
    both(|profile| {
        for moment in MOMENTS {
            let _named = Playing(format!("{moment:?}"));
            let mut bench = slow(profile);
            conflicts(&mut bench, 1_000);
            bench.mark(profile.window());
            bench.want("web", &[2]);
            moment.wait(&mut bench);
            case(bench, moment);
        }
    });
}

/// Checks that there is no second attempt. The PUT of the attempt is sent if its GET was in flight at this moment.
fn no_second_attempt(bench: &Bench, of: &PoolId, moment: Moment) {
    let puts = bench.requests_of(of).iter().filter(|(_, verb, _)| *verb == "PUT").count();
    assert_eq!(puts, usize::from(moment >= Moment::DuringGet), "{:?}", bench.requests_of(of));
}

#[test]
fn s0_case_15_a_service_gone_before_the_requeue_is_dropped() {
    at_every_moment(|mut bench, moment| {
        bench.leave(&web(), "web");
        bench.run(600_000);
        assert_eq!(bench.events(), moment.events());
        assert!(bench.failures().is_empty());
        assert!(!bench.has(&web()), "the pool has retired");
        no_second_attempt(&bench, &web(), moment);
    });
}

/// S0 case 16, and case 15 for a changed load balancer: a migration removes the operation that a failure requeued
/// before it. The Service continues under its new load balancer with a new budget.
#[test]
fn s0_case_15_16_a_migration_drops_the_old_pools_operation() {
    at_every_moment(|mut bench, moment| {
        let moved = pool("lb2", "shop-web");
        bench.move_to(&moved, "web");
        bench.run(600_000);
        assert_eq!(bench.members(&moved), [2]);
        assert!(!bench.has(&web()));
        no_second_attempt(&bench, &web(), moment);
        let served = updated("web", 1, 1, 1).replace("lb/", "lb2/");
        assert_eq!(bench.events(), [moment.events(), vec![served]].concat());
        assert_eq!(bench.failures(), [false]);
    });
}

/// S0 case 17: a Service that is deleted after the requeue has its operation dropped on the next tick; one that is
/// deleted before is not requeued at all. Other Services of the pool are not affected.
#[test]
fn s0_case_17_a_deletion_drops_only_its_own_operation() {
    both(|profile| {
        for moment in MOMENTS {
            let _named = Playing(format!("{moment:?}"));
            let mut bench = slow(profile);
            bench.want("api", &[1]);
            bench.run(100_000);
            bench.forget();
            conflicts(&mut bench, 1);
            bench.want("api", &[2]);
            bench.want("web", &[1, 3]);
            moment.wait(&mut bench);
            // After the attempt has read the pool, its rule is removed: a new entity tag would be a different case.
            if moment < Moment::DuringGet {
                bench.remove_rule(&web(), "api");
            }
            bench.depart(&web(), "api");
            bench.run(10_000);
            bench.remove_rule(&web(), "api");
            bench.run(90_000);
            let events = bench.events();
            let events_of = |service: &str| -> Vec<String> {
                events.iter().filter(|text| text.starts_with(service)).cloned().collect()
            };
            let requeued = moment == Moment::AfterOutcome;
            let of_api = requeued.then(|| retrying("api", 1, 3, "Conflict"));
            assert_eq!(events_of("api"), of_api.into_iter().collect::<Vec<_>>());
            let of_web = [retrying("web", 1, 3, "Conflict"), updated("web", 2, 1, 0)];
            assert_eq!(events_of("web"), of_web);
            assert_eq!(bench.members(&web()), [1, 3]);
            assert!(bench.counts("web").is_empty() && bench.counts("api").is_empty());
            assert_eq!(bench.failures(), [false]);
        }
    });
}

/// A deletion followed by a recreation is a new operation of a Service.
#[test]
fn s0_case_17_an_early_return_has_a_fresh_operation() {
    at_every_moment(|mut bench, moment| {
        bench.leave(&web(), "web");
        bench.run(0);
        bench.want("web", &[3]);
        bench.discover(&web().lb, 0);
        bench.run(2_500);
        bench.end_faults();
        assert_eq!(bench.events(), moment.events());
        bench.run(700_000);
        assert_eq!(bench.members(&web()), [3]);
        // At these moments the default profile has tried the new operation before ARM was healed.
        let was_tried = bench.profile == Profile::Default
            && matches!(moment, Moment::BeforeTake | Moment::BeforeOutcome | Moment::AfterOutcome);
        let tried = was_tried.then(|| retrying("web", 1, 3, "Conflict"));
        assert_eq!(bench.events(), tried.into_iter().chain([updated("web", 1, 1, 1)]).collect::<Vec<_>>());
        assert_eq!(bench.failures(), [false]);
    });
}

/// S0 "Cancellation And Shutdown", and Q6 Interrupted: leadership is lost at any moment of an attempt; nothing is
/// reported, and in the next term the pool is due again, exactly once.
#[test]
fn s0_cancellation_an_ended_term_reports_nothing() {
    at_every_moment(|mut bench, moment| {
        bench.set_standing(Leadership::Standby);
        bench.run(5_000);
        assert_eq!(bench.events(), Vec::<String>::new(), "{moment:?}");
        assert!(bench.failures().is_empty());
        bench.end_faults();
        bench.run(100_000);
        let sent = bench.requests().iter().filter(|(_, verb, _)| *verb == "PUT").count();
        bench.new_term();
        bench.run(200_000);
        assert_eq!(bench.members(&web()), [2]);
        let puts = bench.requests().iter().filter(|(_, verb, _)| *verb == "PUT").count();
        assert_eq!(puts - sent, 1, "{:?}", bench.requests());
        assert_eq!(bench.events(), [updated("web", 1, 1, 1)]);
        assert_eq!(bench.failures(), [false]);
        let ends = bench.view(&web()).last_end.as_ref().map(|last| last.end);
        assert_eq!(ends, Some(AttemptEnd::Written));
    });
}

/// Leadership changes repeatedly; the pool is neither forgotten nor written twice.
#[test]
fn s0_cancellation_several_terms_in_a_row_leave_one_write() {
    at_every_moment(|mut bench, moment| {
        for _ in 0..3 {
            bench.set_standing(Leadership::Standby);
            bench.new_term();
            let term = bench.epoch();
            bench.stop_before(|delivery| {
                matches!(delivery, Delivery::Pool(_, PoolMessage::In(queue::In::Take(id))) if id.epoch == term)
            });
        }
        bench.set_standing(Leadership::Standby);
        bench.end_faults();
        bench.run(100_000);
        assert_eq!(bench.events().iter().filter(|text| text.contains("Failed")).count(), 0, "{moment:?}");
        bench.new_term();
        bench.run(200_000);
        assert_eq!(bench.members(&web()), [2]);
        assert_eq!(bench.events().last(), Some(&updated("web", 1, 1, 1)));
        assert_eq!(bench.failures(), [false]);
        assert_eq!(bench.epoch(), Epoch(5));
    });
}

/// An attempt that waits for one of the client's tries, or for another client's operation, is interrupted like any
/// other; a change that arrives meanwhile does not cause two attempts.
#[test]
fn s0_cancellation_a_term_that_ends_in_a_wait_leaves_one_write() {
    both(|profile| {
        for (seconds, changes) in (1..60).flat_map(|seconds| [(seconds, false), (seconds, true)]) {
            let _named = Playing(format!("after {seconds} s, another change: {changes}"));
            let mut bench = Bench::new(profile);
            bench.fail(FaultTarget::PoolPut, 1_000, 503, "ServerTrouble");
            bench.mark(profile.window());
            bench.want("web", &[2]);
            bench.at(1_000);
            if changes {
                bench.want("web", &[3]);
            }
            bench.at(seconds * 1_000);
            let events = bench.events().len();
            bench.set_standing(Leadership::Standby);
            bench.run(1_000);
            assert!(bench.events().is_empty() && bench.failures().len() == events);
            bench.end_faults();
            let tried = bench.requests().len();
            bench.new_term();
            bench.run(TICK * 3);
            let puts = bench.requests()[tried..].iter().filter(|(_, verb, _)| *verb == "PUT").count();
            assert_eq!(puts, 1, "{:?}", bench.requests());
            assert_eq!(bench.events(), [updated("web", 1, 1, 1)]);
            assert_eq!(bench.members(&web()), if changes { [3] } else { [2] });
        }
    });
}

#[test]
fn s0_cancellation_a_foreign_operation_leaves_one_write() {
    both(|profile| {
        for seconds in 1..40 {
            let _named = Playing(format!("after {seconds} s"));
            let operation = Some(Latency::Fixed { us: 45_000_000 });
            let mut bench = Bench::with(profile, 3, Settings { operation, ..Settings::default() });
            bench.mark(profile.window());
            bench.want("web", &[2]);
            bench.at(-1);
            assert!(bench.foreign_put(&[1, 9]) < 300);
            bench.at(seconds * 1_000);
            bench.set_standing(Leadership::Standby);
            bench.run(1_000);
            bench.new_term();
            bench.run(TICK * 10);
            let puts = bench.requests().iter().filter(|(_, verb, _)| *verb == "PUT").count();
            assert_eq!(puts, 1, "{:?}", bench.requests());
            assert_eq!(bench.members(&web()), [2]);
            assert_eq!(bench.events(), [updated("web", 1, 1, 2)]);
            assert_eq!(bench.failures(), [false]);
        }
    });
}
