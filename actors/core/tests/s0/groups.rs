//! Several operations in one backend-pool group (S0 cases 9, 10, 19, and "Merge Rule").

use simulator_models::arm::{FaultTarget, Settings};

use crate::fixture::{Fixture, web};
use crate::profile::{Profile, both};
use crate::texts::{exhausted, retrying, updated};

/// Returns a fixture whose pool is used by the Services `api` and `web`, which both require member 1; times count from
/// the moment at which the next change is due.
fn shared(profile: Profile, max_retries: u32) -> Fixture {
    let mut fixture = Fixture::with(profile, max_retries, Settings::default());
    fixture.want("api", &[1]);
    fixture.run(100_000);
    fixture.forget();
    fixture.mark(profile.window());
    fixture
}

#[test]
fn s0_case_09_a_fresh_operation_keeps_its_own_counter() {
    both(|profile| {
        let mut fixture = shared(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 2, 409, "Conflict");
        fixture.want("web", &[2]);
        fixture.at(10_000);
        assert_eq!(fixture.counts("web"), [1]);
        fixture.want("api", &[1, 3]);
        fixture.want("web", &[2, 4]);
        assert_eq!((fixture.counts("api"), fixture.counts("web")), (vec![0], vec![0, 1]));
        assert_eq!(fixture.events_at(), [(120, retrying("web", 1, 3, "Conflict"))]);
        fixture.at(31_000);
        assert_eq!((fixture.counts("api"), fixture.counts("web")), (vec![1], vec![1, 2]));
        let both = [retrying("api", 1, 3, "Conflict"), retrying("web", 2, 3, "Conflict")];
        assert_eq!(
            fixture.events_at(),
            both.map(|text| (30_240, text)),
            "each Service gets an event about its most used change"
        );
        assert!(fixture.failures().is_empty(), "an attempt that only requeues is no observation");
        fixture.at(62_000);
        assert_eq!(fixture.events(), [updated("api", 4, 3, 0), updated("web", 4, 3, 0)]);
        assert_eq!(fixture.failures(), [false], "one for the attempt");
    });
}

#[test]
fn s0_case_10_of_mixed_budgets_only_the_exhausted_is_reported() {
    both(|profile| {
        let mut fixture = shared(profile, 1);
        fixture.fail(FaultTarget::PoolPut, 2, 409, "Conflict");
        fixture.want("web", &[2]);
        fixture.at(10_000);
        fixture.want("api", &[1, 3]);
        fixture.events();
        fixture.at(31_000);
        let web_failed = exhausted("web", 1, "Conflict", &in_seconds(30));
        assert_eq!(fixture.events(), [web_failed, retrying("api", 1, 1, "Conflict")]);
        assert_eq!((fixture.counts("api"), fixture.counts("web")), (vec![1], vec![]));
        assert_eq!(fixture.failures(), [true], "a mixed attempt is one failed observation");
        fixture.at(62_000);
        assert_eq!(fixture.events(), [updated("api", 3, 2, 0)], "the Service with the change gets the event");
        assert_eq!(fixture.failures(), [false]);
        assert_eq!(
            fixture.members(&web()),
            [1, 2, 3],
            "the dropped operation removed nothing from the level"
        );
    });
}

#[test]
fn s0_case_10_exhausted_and_requeued_ones_are_both_reported() {
    both(|profile| {
        let mut fixture = shared(profile, 1);
        fixture.fail(FaultTarget::PoolPut, 2, 409, "Conflict");
        fixture.want("web", &[2]);
        fixture.at(10_000);
        fixture.want("web", &[3]);
        fixture.events();
        fixture.at(31_000);
        let failed = exhausted("web", 1, "Conflict", &in_seconds(30));
        assert_eq!(fixture.events(), [failed, retrying("web", 1, 1, "Conflict")]);
        assert_eq!(fixture.failures(), [true]);
    });
}

/// Returns the guidance if other changes of the pool wait: it is retried with them.
fn in_seconds(seconds: u64) -> String {
    format!("Backend pool lb/shop-web is compared again in {seconds} s.")
}

/// Upstream's `notify()` stopped after the first operation of a batch.
#[test]
fn s0_case_19_each_service_of_a_group_gets_one_event() {
    both(|profile| {
        let mut fixture = shared(profile, 1);
        fixture.fail(FaultTarget::PoolPut, 2, 409, "Conflict");
        for members in [&[2][..], &[2, 3], &[2]] {
            fixture.want("api", members);
            fixture.want("web", &[&[1], members].concat());
            fixture.want("admin", members);
        }
        let services = ["admin", "api", "web"];
        fixture.at(1_000);
        assert_eq!(fixture.events(), services.map(|service| retrying(service, 1, 1, "Conflict")));
        fixture.at(31_000);
        let afterwards = profile.afterwards(60);
        assert_eq!(fixture.events(), services.map(|service| exhausted(service, 1, "Conflict", &afterwards)));
        assert_eq!(fixture.failures(), [true], "one for the attempt");
        fixture.end_faults();
        fixture.want("api", &[2, 5]);
        fixture.want("web", &[6]);
        fixture.at(100_000);
        let events = fixture.events();
        assert_eq!(events, [updated("api", 3, 3, 1), updated("web", 3, 3, 1)], "those that changed");
    });
}

/// For any number of operations of a Service in the group, and any used part of their budgets.
#[test]
fn s0_case_19_operations_of_several_counts_report_once() {
    both(|profile| {
        let mut fixture = shared(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 4, 409, "Conflict");
        for attempt in 0..4_u8 {
            fixture.want("api", &[1, 10 + attempt]);
            fixture.want("web", &[2, 20 + attempt]);
            fixture.at(i64::from(attempt) * 30_120 + 1_000);
            let mut expected = Vec::new();
            if attempt == 3 {
                let afterwards = in_seconds(30);
                expected.extend(["api", "web"].map(|service| exhausted(service, 3, "Conflict", &afterwards)));
            }
            let retry = u32::from(attempt.min(2)) + 1;
            expected.extend(["api", "web"].map(|service| retrying(service, retry, 3, "Conflict")));
            assert_eq!(fixture.events(), expected, "attempt {attempt}");
            assert_eq!(fixture.failures(), if attempt == 3 { vec![true] } else { vec![] });
        }
        fixture.at(4 * 30_120 + 1_000);
        assert_eq!(fixture.events(), [updated("api", 4, 3, 0), updated("web", 4, 3, 0)]);
        assert_eq!(fixture.failures(), [false], "one for the attempt");
    });
}

/// S0 "Merge Rule": an exhausted change is dropped, the others of the group continue with their own counts.
#[test]
fn s0_merge_rule_counts_of_one_service_are_spent_one_by_one() {
    both(|profile| {
        let mut fixture = shared(profile, 3);
        fixture.fail(FaultTarget::PoolPut, 1_000, 409, "Conflict");
        fixture.want("web", &[2]);
        let mut counts = Vec::new();
        for n in 0..4_u8 {
            fixture.at(i64::from(n) * 30_120 + 1_000);
            counts.push(fixture.counts("web"));
            fixture.want("web", &[10 + n]);
        }
        assert_eq!(counts, [vec![1], vec![1, 2], vec![1, 2, 3], vec![1, 2, 3]]);
    });
}
