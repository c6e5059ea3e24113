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

use crate::fixture::{Fixture, pool, web};
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
    fn wait(self, fixture: &mut Fixture) {
        fixture.stop_before(|delivery| self.is_before(delivery));
    }

    /// Returns the events of `web` up to this moment.
    fn events(self) -> Vec<String> {
        if self == Moment::AfterOutcome { vec![retrying("web", 1, 3, "Conflict")] } else { Vec::new() }
    }
}

/// Returns a fixture in which ARM's writes take two seconds and end in a conflict, so that an attempt has every moment.
fn slow(profile: Profile) -> Fixture {
    let operation = Some(Latency::Fixed { us: 2_000_000 });
    let settings = Settings { operation, operation_retry_after_s: Some(1), ..Settings::default() };
    Fixture::with(profile, 3, settings)
}

fn conflicts(fixture: &mut Fixture, times: u64) {
    let (code, message) = ("Conflict".to_owned(), "It did not work.".to_owned());
    let effect = FaultEffect::FailOperation { end: OperationFailure::Failed, code, message };
    fixture.fault_of("lb", FaultTarget::PoolPut, times, effect);
}

/// Runs a case in both profiles and at every moment; the attempt would end in a retriable failure.
fn at_every_moment(case: impl Fn(Fixture, Moment)) {
    both(|profile| {
        for moment in MOMENTS {
            let _named = Playing(format!("{moment:?}"));
            let mut fixture = slow(profile);
            conflicts(&mut fixture, 1_000);
            fixture.mark(profile.window());
            fixture.want("web", &[2]);
            moment.wait(&mut fixture);
            case(fixture, moment);
        }
    });
}

/// Checks that there is no second attempt. The PUT of the attempt is sent if its GET was in flight at this moment.
fn no_second_attempt(fixture: &Fixture, of: &PoolId, moment: Moment) {
    let puts = fixture.requests_of(of).iter().filter(|(_, verb, _)| *verb == "PUT").count();
    assert_eq!(puts, usize::from(moment >= Moment::DuringGet), "{:?}", fixture.requests_of(of));
}

#[test]
fn s0_case_15_a_service_gone_before_the_requeue_is_dropped() {
    at_every_moment(|mut fixture, moment| {
        fixture.leave(&web(), "web");
        fixture.run(600_000);
        assert_eq!(fixture.events(), moment.events());
        assert!(fixture.failures().is_empty());
        assert!(!fixture.has(&web()), "the pool has retired");
        no_second_attempt(&fixture, &web(), moment);
    });
}

/// S0 case 16, and case 15 for a changed load balancer: a migration removes the operation that a failure requeued
/// before it. The Service continues under its new load balancer with a new budget.
#[test]
fn s0_case_15_16_a_migration_drops_the_old_pools_operation() {
    at_every_moment(|mut fixture, moment| {
        let moved = pool("lb2", "shop-web");
        fixture.move_to(&moved, "web");
        fixture.run(600_000);
        assert_eq!(fixture.members(&moved), [2]);
        assert!(!fixture.has(&web()));
        no_second_attempt(&fixture, &web(), moment);
        let served = updated("web", 1, 1, 1).replace("lb/", "lb2/");
        assert_eq!(fixture.events(), [moment.events(), vec![served]].concat());
        assert_eq!(fixture.failures(), [false]);
    });
}

/// S0 case 17: a Service that is deleted after the requeue has its operation dropped on the next tick; one that is
/// deleted before is not requeued at all. Other Services of the pool are not affected.
#[test]
fn s0_case_17_a_deletion_drops_only_its_own_operation() {
    both(|profile| {
        for moment in MOMENTS {
            let _named = Playing(format!("{moment:?}"));
            let mut fixture = slow(profile);
            fixture.want("api", &[1]);
            fixture.run(100_000);
            fixture.forget();
            conflicts(&mut fixture, 1);
            fixture.want("api", &[2]);
            fixture.want("web", &[1, 3]);
            moment.wait(&mut fixture);
            // After the attempt has read the pool, its rule is removed: a new entity tag would be a different case.
            if moment < Moment::DuringGet {
                fixture.remove_rule(&web(), "api");
            }
            fixture.depart(&web(), "api");
            fixture.run(10_000);
            fixture.remove_rule(&web(), "api");
            fixture.run(90_000);
            let events = fixture.events();
            let events_of = |service: &str| -> Vec<String> {
                events.iter().filter(|text| text.starts_with(service)).cloned().collect()
            };
            let requeued = moment == Moment::AfterOutcome;
            let of_api = requeued.then(|| retrying("api", 1, 3, "Conflict"));
            assert_eq!(events_of("api"), of_api.into_iter().collect::<Vec<_>>());
            let of_web = [retrying("web", 1, 3, "Conflict"), updated("web", 2, 1, 0)];
            assert_eq!(events_of("web"), of_web);
            assert_eq!(fixture.members(&web()), [1, 3]);
            assert!(fixture.counts("web").is_empty() && fixture.counts("api").is_empty());
            assert_eq!(fixture.failures(), [false]);
        }
    });
}

/// A deletion followed by a recreation is a new operation of a Service.
#[test]
fn s0_case_17_an_early_return_has_a_fresh_operation() {
    at_every_moment(|mut fixture, moment| {
        fixture.leave(&web(), "web");
        fixture.run(0);
        fixture.want("web", &[3]);
        fixture.discover(&web().lb, 0);
        fixture.run(2_500);
        fixture.end_faults();
        assert_eq!(fixture.events(), moment.events());
        fixture.run(700_000);
        assert_eq!(fixture.members(&web()), [3]);
        // At these moments the default profile has tried the new operation before ARM was healed.
        let was_tried = fixture.profile == Profile::Default
            && matches!(moment, Moment::BeforeTake | Moment::BeforeOutcome | Moment::AfterOutcome);
        let tried = was_tried.then(|| retrying("web", 1, 3, "Conflict"));
        assert_eq!(fixture.events(), tried.into_iter().chain([updated("web", 1, 1, 1)]).collect::<Vec<_>>());
        assert_eq!(fixture.failures(), [false]);
    });
}

/// S0 "Cancellation And Shutdown", and Q6 Interrupted: leadership is lost at any moment of an attempt; nothing is
/// reported, and in the next term the pool is due again, exactly once.
#[test]
fn s0_cancellation_an_ended_term_reports_nothing() {
    at_every_moment(|mut fixture, moment| {
        fixture.set_standing(Leadership::Standby);
        fixture.run(5_000);
        assert_eq!(fixture.events(), Vec::<String>::new(), "{moment:?}");
        assert!(fixture.failures().is_empty());
        fixture.end_faults();
        fixture.run(100_000);
        let sent = fixture.requests().iter().filter(|(_, verb, _)| *verb == "PUT").count();
        fixture.new_term();
        fixture.run(200_000);
        assert_eq!(fixture.members(&web()), [2]);
        let puts = fixture.requests().iter().filter(|(_, verb, _)| *verb == "PUT").count();
        assert_eq!(puts - sent, 1, "{:?}", fixture.requests());
        assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
        assert_eq!(fixture.failures(), [false]);
        let ends = fixture.view(&web()).last_end.as_ref().map(|last| last.end);
        assert_eq!(ends, Some(AttemptEnd::Written));
    });
}

/// Leadership changes repeatedly; the pool is neither forgotten nor written twice.
#[test]
fn s0_cancellation_several_terms_in_a_row_leave_one_write() {
    at_every_moment(|mut fixture, moment| {
        for _ in 0..3 {
            fixture.set_standing(Leadership::Standby);
            fixture.new_term();
            let term = fixture.epoch();
            fixture.stop_before(|delivery| {
                matches!(delivery, Delivery::Pool(_, PoolMessage::In(queue::In::Take(id))) if id.epoch == term)
            });
        }
        fixture.set_standing(Leadership::Standby);
        fixture.end_faults();
        fixture.run(100_000);
        assert_eq!(fixture.events().iter().filter(|text| text.contains("Failed")).count(), 0, "{moment:?}");
        fixture.new_term();
        fixture.run(200_000);
        assert_eq!(fixture.members(&web()), [2]);
        assert_eq!(fixture.events().last(), Some(&updated("web", 1, 1, 1)));
        assert_eq!(fixture.failures(), [false]);
        assert_eq!(fixture.epoch(), Epoch(5));
    });
}

/// An attempt that waits for one of the client's tries, or for another client's operation, is interrupted like any
/// other; a change that arrives meanwhile does not cause two attempts.
#[test]
fn s0_cancellation_a_term_that_ends_in_a_wait_leaves_one_write() {
    both(|profile| {
        for (seconds, changes) in (1..60).flat_map(|seconds| [(seconds, false), (seconds, true)]) {
            let _named = Playing(format!("after {seconds} s, another change: {changes}"));
            let mut fixture = Fixture::new(profile);
            fixture.fail(FaultTarget::PoolPut, 1_000, 503, "ServerTrouble");
            fixture.mark(profile.window());
            fixture.want("web", &[2]);
            fixture.at(1_000);
            if changes {
                fixture.want("web", &[3]);
            }
            fixture.at(seconds * 1_000);
            let events = fixture.events().len();
            fixture.set_standing(Leadership::Standby);
            fixture.run(1_000);
            assert!(fixture.events().is_empty() && fixture.failures().len() == events);
            fixture.end_faults();
            let tried = fixture.requests().len();
            fixture.new_term();
            fixture.run(TICK * 3);
            let puts = fixture.requests()[tried..].iter().filter(|(_, verb, _)| *verb == "PUT").count();
            assert_eq!(puts, 1, "{:?}", fixture.requests());
            assert_eq!(fixture.events(), [updated("web", 1, 1, 1)]);
            assert_eq!(fixture.members(&web()), if changes { [3] } else { [2] });
        }
    });
}

#[test]
fn s0_cancellation_a_foreign_operation_leaves_one_write() {
    both(|profile| {
        for seconds in 1..40 {
            let _named = Playing(format!("after {seconds} s"));
            let operation = Some(Latency::Fixed { us: 45_000_000 });
            let mut fixture = Fixture::with(profile, 3, Settings { operation, ..Settings::default() });
            fixture.mark(profile.window());
            fixture.want("web", &[2]);
            fixture.at(-1);
            assert!(fixture.foreign_put(&[1, 9]) < 300);
            fixture.at(seconds * 1_000);
            fixture.set_standing(Leadership::Standby);
            fixture.run(1_000);
            fixture.new_term();
            fixture.run(TICK * 10);
            let puts = fixture.requests().iter().filter(|(_, verb, _)| *verb == "PUT").count();
            assert_eq!(puts, 1, "{:?}", fixture.requests());
            assert_eq!(fixture.members(&web()), [2]);
            assert_eq!(fixture.events(), [updated("web", 1, 1, 2)]);
            assert_eq!(fixture.failures(), [false]);
        }
    });
}
