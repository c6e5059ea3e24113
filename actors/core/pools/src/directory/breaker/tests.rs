//! Tests of the breaker alone, on the test's clock (G4).

use proptest::prelude::*;

use super::history::MERGE_WINDOW;
use super::*;
use model::ids::{LbName, PoolName};

fn id(n: usize) -> PoolId {
    PoolId::new(LbName::new("lb"), PoolName::new(format!("p{n}")))
}

fn at(seconds: u64) -> Now {
    Now::from_millis(seconds * 1_000)
}

/// Returns the size of a pool with this many required members, all just observed.
fn asked(members: usize) -> PoolSize {
    let (seen, present, seen_at) = (members, members, Now::NEVER);
    let paused = PauseScope::No;
    PoolSize {
        left: members,
        lost: usize::MAX,
        asked: members,
        going: 0,
        seen,
        seen_at,
        present,
        paused,
        by_config: false,
    }
}

/// Returns a breaker with this many pools that have had ten members for a long time.
fn settled(pools: usize) -> RemovalBreaker {
    let mut breaker = RemovalBreaker::default();
    for n in 0..pools {
        breaker.record(at(1), &id(n), asked(10));
    }
    assert!(!breaker.evaluate(at(1)));
    breaker
}

/// Sets the number of required members of these pools to `size`, while `present` are in them. Returns whether the
/// breaker is tripped.
fn held(
    breaker: &mut RemovalBreaker,
    seconds: u64,
    pools: std::ops::Range<usize>,
    size: usize,
    present: usize,
) -> bool {
    let going = present.saturating_sub(size);
    pools.for_each(|n| {
        breaker.record(at(seconds), &id(n), PoolSize { going, seen: present, present, ..asked(size) });
    });
    breaker.evaluate(at(seconds));
    assert!(breaker.check());
    breaker.tripped().is_some()
}

/// Sets the number of required members of these pools to `size`. The others are removed immediately, unless the
/// breaker is tripped. Returns whether it is tripped.
fn shrink(breaker: &mut RemovalBreaker, seconds: u64, pools: std::ops::Range<usize>, size: usize) -> bool {
    for n in pools.clone() {
        let present = breaker.pools[&id(n)].newest().max(size);
        let going = present - size;
        breaker.record(at(seconds), &id(n), PoolSize { going, seen: present, present, ..asked(size) });
    }
    breaker.evaluate(at(seconds));
    assert!(breaker.check());
    if breaker.tripped().is_none() {
        pools.for_each(|n| breaker.record(at(seconds), &id(n), asked(size)));
        breaker.evaluate(at(seconds));
        assert!(breaker.check());
    }
    breaker.tripped().is_some()
}

#[test]
fn g4_more_than_five_pools_and_a_fifth_of_all_trip_it() {
    assert!(!shrink(&mut settled(6), 2, 0..5, 0), "five are few");
    assert!(shrink(&mut settled(6), 2, 0..6, 0));
    assert!(!shrink(&mut settled(100), 2, 0..20, 0), "a fifth of all");
    assert!(shrink(&mut settled(100), 2, 0..21, 0));
    assert!(!shrink(&mut settled(100), 2, 0..100, 5), "half of them stay");
    assert!(shrink(&mut settled(100), 2, 0..100, 4));
}

#[test]
fn g4_only_losses_that_count_trip_it() {
    for (left, lost, trips) in
        [(0, 0, false), (0, 1, true), (4, 4, false), (4, 5, true), (5, 5, false), (5, 9, false)]
    {
        let mut breaker = settled(10);
        let size = PoolSize { lost, going: lost, seen: 10, present: 10, ..asked(left) };
        (0..10).for_each(|n| breaker.record(at(100), &id(n), size));
        assert_eq!(breaker.evaluate(at(100)), trips, "{left} are left and {lost} lost");
    }
}

#[test]
fn g4_losses_within_five_minutes_add_up() {
    let mut breaker = settled(100);
    assert!(!shrink(&mut breaker, 100, 0..20, 0));
    assert!(shrink(&mut breaker, 399, 20..21, 0));
    let mut breaker = settled(100);
    assert!(!shrink(&mut breaker, 100, 0..20, 0));
    assert!(!shrink(&mut breaker, 400, 20..40, 0), "the first losses are more than five minutes old");
    let mut breaker = settled(100);
    assert!(!shrink(&mut breaker, 100, 0..21, 7));
    assert!(shrink(&mut breaker, 200, 0..21, 4), "two steps");
}

#[test]
fn g4_draining_members_are_left_but_not_in_the_baseline() {
    let mut breaker = settled(10);
    for round in 0..6 {
        // All ten members are replaced by ten others, and the former ones drain. This happens three times within the
        // removal delay.
        let there = 10 * (1 + round % 3);
        let draining = PoolSize { left: there, seen: there, present: there, ..asked(10) };
        (0..10).for_each(|n| breaker.record(at(100 + 120 * round as u64), &id(n), draining));
        assert!(!breaker.evaluate(at(100 + 120 * round as u64)) && breaker.check());
    }
    let mut breaker = settled(10);
    let still = PoolSize { asked: 1, ..asked(10) };
    (0..10).for_each(|n| breaker.record(at(100), &id(n), still));
    assert!(!breaker.evaluate(at(100)), "the members are still in the pools");
    assert!(shrink(&mut breaker, 130, 0..10, 1), "now they go");
}

#[test]
fn g4_levels_and_operators_end_it_but_not_time_alone() {
    let mut breaker = settled(10);
    assert!(shrink(&mut breaker, 100, 0..10, 0));
    assert!(!breaker.evaluate(at(100_000)) && breaker.tripped() == Some(at(100)));
    assert!(shrink(&mut breaker, 100_001, 0..4, 10), "six are left");
    assert!(!shrink(&mut breaker, 100_002, 4..5, 10));
    let mut breaker = settled(10);
    assert!(shrink(&mut breaker, 100, 0..10, 0));
    breaker.release(at(101));
    assert!(breaker.evaluate(at(101)) && breaker.tripped().is_none() && breaker.check());
}

#[test]
fn g4_late_removals_are_compared_with_the_earlier_size() {
    let mut breaker = settled(10);
    let still = PoolSize { asked: 1, ..asked(10) };
    (0..10).for_each(|n| breaker.record(at(100), &id(n), still));
    assert!(!breaker.evaluate(at(100)) && !breaker.evaluate(at(699)), "they are still there");
    assert!(shrink(&mut breaker, 700, 0..10, 1), "now they go");
}

#[test]
fn g4_earlier_losses_alone_do_not_trip_it() {
    let mut breaker = settled(10);
    (0..10).for_each(|n| breaker.record(at(100), &id(n), asked(30)));
    (0..10).for_each(|n| breaker.record(at(200), &id(n), asked(10)));
    assert!(!breaker.evaluate(at(200)));
    assert!(!breaker.evaluate(at(400)), "five minutes ago there were more for a while");
    assert_eq!(breaker.counted(), (10, 10));
    assert!(!held(&mut breaker, 401, 3..4, 10, 11), "another client replaces one");
    assert!(held(&mut breaker, 402, 3..4, 9, 10), "one more would be removed");
}

#[test]
fn g4_it_ends_when_other_clients_removed_all_that_counts() {
    let mut breaker = settled(10);
    assert!(held(&mut breaker, 100, 0..10, 1, 10) && !breaker.evaluate(at(1_000)));
    assert!(held(&mut breaker, 1_001, 0..9, 1, 1), "one is left");
    assert!(!held(&mut breaker, 1_002, 9..10, 1, 1));
    assert!(!breaker.evaluate(at(1_003)), "it does not trip again");
    let mut again = settled(10);
    assert!(held(&mut again, 100, 0..10, 1, 10) && !held(&mut again, 1_000, 0..10, 1, 1));
    assert!(held(&mut again, 1_060, 0..10, 1, 10), "one read missed them, and the next one finds them");
    assert!(!held(&mut breaker, 1_302, 0..10, 1, 2), "five minutes later the baseline is one");
}

#[test]
fn g4_unwritten_removals_stay_in_the_baseline() {
    // Few pools at a time lose members, and nothing is written for an hour. Then all removals would be written at the
    // same time.
    let mut breaker = settled(10);
    for n in 0..5 {
        assert!(!held(&mut breaker, 100 + 600 * n as u64, n..n + 1, 1, 10));
    }
    assert!(held(&mut breaker, 4_000, 5..6, 1, 10), "six pools still have their baseline");
    // Removed members no longer count after five minutes, whichever client has removed them.
    let mut breaker = settled(10);
    assert!(!held(&mut breaker, 100, 0..5, 1, 10) && !held(&mut breaker, 200, 0..5, 1, 1));
    assert!(held(&mut breaker, 499, 5..6, 1, 10));
    let mut breaker = settled(10);
    assert!(!held(&mut breaker, 100, 0..5, 1, 10) && !held(&mut breaker, 200, 0..5, 1, 1));
    assert!(!held(&mut breaker, 500, 5..6, 1, 10));
}

#[test]
fn g4_members_of_other_clients_are_not_in_the_baseline() {
    let mut breaker = settled(10);
    assert!(!held(&mut breaker, 100, 0..10, 10, 30) && !held(&mut breaker, 500, 0..10, 10, 30));
    assert_eq!(breaker.counted(), (0, 10));
}

/// Sets the number of required members of these pools to `size`, while they are paused and `seen` members were
/// observed. Returns whether the breaker is tripped.
fn paused(
    breaker: &mut RemovalBreaker,
    (seconds, paused): (u64, PauseScope),
    pools: std::ops::Range<usize>,
    size: usize,
    seen: usize,
) -> bool {
    let going = seen.saturating_sub(size);
    let present = seen.max(size);
    pools.for_each(|n| {
        breaker.record(at(seconds), &id(n), PoolSize { going, seen, present, paused, ..asked(size) });
    });
    breaker.evaluate(at(seconds));
    assert!(breaker.check());
    breaker.tripped().is_some()
}

#[test]
fn g4_members_restored_in_a_pause_count_when_it_ends() {
    for kind in [PauseScope::Alone, PauseScope::WithAll] {
        let mut breaker = settled(10);
        assert!(held(&mut breaker, 100, 0..10, 1, 10));
        breaker.release(at(101));
        assert!(!held(&mut breaker, 101, 0..10, 1, 10) && !held(&mut breaker, 200, 0..10, 1, 1), "all gone");
        paused(&mut breaker, (9_000, kind), 0..10, 1, 1);
        paused(&mut breaker, (9_100, kind), 0..10, 1, 10);
        assert!(held(&mut breaker, 9_110, 0..10, 1, 10), "{kind:?}: put back 10 s before");
        assert!(!held(&mut breaker, 9_120, 0..10, 10, 10));
    }
    // One pool after another resumes. The sixth within five minutes trips the breaker.
    let mut breaker = settled(10);
    assert!(!paused(&mut breaker, (100, PauseScope::Alone), 0..10, 1, 10));
    for n in 0..5 {
        assert!(!held(&mut breaker, 9_000 + n as u64, n..n + 1, 1, 10));
        assert!(!held(&mut breaker, 9_010 + n as u64, n..n + 1, 1, 1));
    }
    assert!(held(&mut breaker, 9_200, 5..6, 1, 10));
    // The observed members count, not the required ones that never arrived.
    let mut breaker = settled(10);
    paused(&mut breaker, (100, PauseScope::Alone), 0..10, 30, 10);
    assert!(!held(&mut breaker, 500, 0..10, 5, 10), "a half of the ten that were there");
}

#[test]
fn g4_a_separately_paused_pool_neither_trips_nor_ends_it() {
    let mut breaker = settled(20);
    assert!(!paused(&mut breaker, (100, PauseScope::Alone), 0..19, 1, 10));
    assert!(!held(&mut breaker, 110, 19..20, 1, 10), "other pools are not stopped");
    let mut breaker = settled(20);
    assert!(
        paused(&mut breaker, (100, PauseScope::WithAll), 0..19, 1, 10),
        "a pause of everything does not hide it"
    );
    let mut breaker = settled(20);
    assert!(
        held(&mut breaker, 100, 0..20, 1, 10) && paused(&mut breaker, (110, PauseScope::Alone), 0..20, 1, 10)
    );
    breaker.release(at(111));
    assert!(!held(&mut breaker, 120, 19..20, 1, 10), "the operator releases the others");
    assert!(held(&mut breaker, 130, 0..19, 1, 10), "and the formerly paused pools are evaluated again");
}

#[test]
fn g4_separately_paused_pools_do_not_count_for_the_fifth() {
    let mut breaker = settled(100);
    assert!(!paused(&mut breaker, (100, PauseScope::Alone), 0..80, 1, 10));
    assert_eq!(breaker.counted(), (0, 20));
    assert!(held(&mut breaker, 110, 80..86, 1, 10), "six of the twenty that are written");
}

#[test]
fn g4_pools_paused_before_the_trip_do_not_prolong_it() {
    let mut breaker = settled(20);
    assert!(!paused(&mut breaker, (100, PauseScope::Alone), 0..6, 1, 10));
    assert!(held(&mut breaker, 200, 6..20, 4, 10));
    assert!(!held(&mut breaker, 300, 6..20, 10, 10), "the fourteen require their members again");
}

#[test]
fn g4_members_first_seen_after_the_resume_count() {
    let mut breaker = settled(10);
    paused(&mut breaker, (100, PauseScope::WithAll), 0..10, 1, 1);
    paused(&mut breaker, (9_000, PauseScope::WithAll), 0..10, 1, 1);
    let stale = PoolSize { going: 0, seen_at: at(8_990), ..asked(1) };
    (0..10).for_each(|n| breaker.record(at(9_020), &id(n), stale));
    assert!(!breaker.evaluate(at(9_020)), "members restored at 9010 s have not been read yet");
    let first = PoolSize { left: 1, asked: 1, going: 9, seen_at: at(9_080), ..asked(10) };
    (0..10).for_each(|n| breaker.record(at(9_081), &id(n), first));
    assert!(breaker.evaluate(at(9_081)) && breaker.check());
}

#[test]
fn g4_a_release_does_not_cover_members_required_again() {
    let mut breaker = settled(10);
    assert!(held(&mut breaker, 100, 0..10, 1, 10));
    breaker.release(at(600));
    assert!(!held(&mut breaker, 600, 0..10, 1, 10) && !held(&mut breaker, 610, 0..10, 10, 10));
    assert!(held(&mut breaker, 650, 0..10, 1, 10), "the source breaks again");
    let mut breaker = settled(10);
    assert!(held(&mut breaker, 100, 0..10, 1, 10));
    breaker.release(at(600));
    assert!(!held(&mut breaker, 600, 0..10, 1, 10) && !held(&mut breaker, 650, 0..10, 1, 1));
    assert!(!held(&mut breaker, 901, 0..10, 10, 10), "members are required again much later");
    assert!(!held(&mut breaker, 950, 0..10, 1, 10), "and were not there five minutes ago");
}

#[test]
fn g4_an_unwritten_release_ends_if_it_is_required_again() {
    let mut breaker = settled(10);
    assert!(held(&mut breaker, 100, 0..10, 1, 10));
    breaker.release(at(600));
    assert!(!held(&mut breaker, 600, 0..10, 1, 10) && !held(&mut breaker, 4_000, 0..10, 1, 10));
    assert!(!held(&mut breaker, 4_200, 0..10, 10, 10), "Azure has taken no write");
    assert!(held(&mut breaker, 4_250, 0..10, 1, 10), "and the source breaks again");
}

#[test]
fn g4_a_release_releases_nothing_that_only_begins_to_drain() {
    let mut breaker = settled(40);
    assert!(held(&mut breaker, 30, 0..9, 1, 10));
    let drains = PoolSize { asked: 1, ..asked(10) };
    (9..40).for_each(|n| breaker.record(at(35), &id(n), drains));
    breaker.release(at(40));
    assert!(breaker.evaluate(at(40)) && breaker.tripped().is_none());
    assert!(held(&mut breaker, 65, 9..40, 1, 10), "these removals were not held at the release");
}

#[test]
fn g4_a_trip_at_the_release_is_reported_as_a_new_one() {
    let mut breaker = settled(20);
    assert!(held(&mut breaker, 100, 0..10, 1, 10) && breaker.take_due_report());
    breaker.release(at(200));
    assert!(held(&mut breaker, 200, 10..20, 1, 10));
    assert_eq!((breaker.tripped(), breaker.take_due_report()), (Some(at(200)), true));
}

#[test]
fn g4_the_release_of_one_pool_does_not_end_the_trip() {
    let mut breaker = settled(20);
    assert!(held(&mut breaker, 100, 0..6, 1, 10));
    breaker.release_pool(&id(0));
    assert!(held(&mut breaker, 110, 0..1, 0, 10), "six are still to lose most of theirs");
}

#[test]
fn g4_losses_count_if_the_pool_is_paused_afterwards() {
    let mut breaker = settled(20);
    assert!(!shrink(&mut breaker, 100, 0..5, 1));
    assert!(!paused(&mut breaker, (110, PauseScope::Alone), 0..5, 1, 1));
    assert!(held(&mut breaker, 200, 5..6, 1, 10));
}

#[test]
fn g4_members_never_written_are_not_in_the_baseline() {
    // Azure accepts no write for an hour, in which all Services scale up and down again.
    let mut breaker = settled(10);
    for (seconds, wanted) in [(100, 25), (2_000, 12)] {
        let unwritten = PoolSize { seen: 10, present: 40, seen_at: at(50), ..asked(wanted) };
        (0..10).for_each(|n| breaker.record(at(seconds), &id(n), unwritten));
        assert!(!breaker.evaluate(at(seconds)) && breaker.check());
    }
    assert!(!breaker.evaluate(at(3_600)));
}

#[test]
fn g4_released_pools_do_not_count() {
    let mut breaker = settled(100);
    assert!(!shrink(&mut breaker, 2, 0..20, 0));
    (0..20).for_each(|n| breaker.forget(&id(n)));
    assert_eq!(breaker.counted(), (0, 80));
    assert!(!shrink(&mut breaker, 3, 20..36, 1));
    (60..70).for_each(|n| breaker.forget(&id(n)));
    assert!(held(&mut breaker, 4, 20..21, 0, 1), "16 of 70 are more than a fifth");
}

#[test]
fn g4_a_source_that_fails_again_keeps_its_first_baseline() {
    let mut breaker = settled(10);
    assert!(held(&mut breaker, 100, 0..10, 1, 10));
    for round in 0..3 {
        let from = 10_000 * (round + 1);
        assert!(!shrink(&mut breaker, from, 0..10, 10), "it is whole again");
        assert!(!breaker.evaluate(at(from + 299)));
        assert!(held(&mut breaker, from + 299, 0..10, 1, 10), "none of its removals was carried out");
    }
    assert!(!shrink(&mut breaker, 50_000, 0..10, 10) && !shrink(&mut breaker, 50_400, 0..10, 10));
    assert!(held(&mut breaker, 50_401, 0..10, 4, 10));
}

#[test]
fn g4_losses_after_levels_end_it_count_for_five_minutes() {
    for (seconds, trips) in [(5_308, true), (5_309, false)] {
        let mut breaker = settled(20);
        assert!(held(&mut breaker, 100, 0..20, 0, 10));
        assert!(!held(&mut breaker, 5_000, 5..20, 10, 10), "five go now");
        assert!(!held(&mut breaker, 5_009, 0..5, 0, 0), "and are gone");
        assert_eq!(held(&mut breaker, seconds, 5..6, 0, 10), trips, "one more at {seconds} s");
    }
}

#[test]
fn g4_the_baseline_during_a_trip_is_the_observed_members() {
    // Each pool gets ten more members: 200 seconds before the trip, 15 and 5 seconds before it, and during it.
    for added in [100, 285, 295, 400] {
        let mut breaker = settled(20);
        assert!(added > 300 || !shrink(&mut breaker, added, 0..10, 20));
        assert!(held(&mut breaker, 300, 10..20, 0, 10));
        assert!(added < 300 || shrink(&mut breaker, added, 0..10, 20));
        assert!(!held(&mut breaker, 9_000, 10..20, 10, 10));
        assert!(held(&mut breaker, 9_001, 0..10, 9, 20), "added at {added} s");
    }
    // Members that were removed more than five minutes ago do not count.
    let mut breaker = settled(20);
    assert!(!shrink(&mut breaker, 200, 0..10, 6) && held(&mut breaker, 300, 10..20, 0, 10));
    assert!(!held(&mut breaker, 9_000, 10..20, 10, 10) && !held(&mut breaker, 9_001, 0..10, 4, 6));
    // However often a pool changes, only the last five minutes are kept.
    let mut breaker = settled(20);
    assert!(held(&mut breaker, 300, 10..20, 0, 10));
    for n in 0..1_000 {
        assert!(shrink(&mut breaker, 320 + 20 * n, 0..1, 20 + (n % 2) as usize));
    }
    assert!(breaker.pools[&id(0)].later.len() <= 16, "{}", breaker.pools[&id(0)].later.len());
    assert!(!held(&mut breaker, 30_000, 10..20, 10, 10));
}

/// Returns a breaker with this many pools that were found empty and receive their first members.
fn given(pools: usize, members: usize) -> RemovalBreaker {
    let mut breaker = RemovalBreaker::default();
    (0..pools).for_each(|n| breaker.record(at(1), &id(n), PoolSize { seen: 0, ..asked(members) }));
    (0..pools).for_each(|n| breaker.record(at(1), &id(n), asked(members)));
    assert!(!breaker.evaluate(at(1)) && breaker.check());
    breaker
}

#[test]
fn g4_first_members_of_an_empty_pool_count_after_30_s() {
    for (seconds, trips) in [(30, false), (31, true), (200, true), (900, true)] {
        assert_eq!(shrink(&mut given(10, 10), seconds, 0..10, 4), trips, "{seconds} s");
        assert!(!shrink(&mut given(10, 10), seconds, 0..10, 5), "a half stays");
    }
    // While more members arrive, the earlier ones do not count, but for at most five minutes.
    for (seconds, trips) in [(300, false), (301, true)] {
        let mut breaker = given(10, 1);
        (1..=14).for_each(|n| assert!(!shrink(&mut breaker, 1 + 20 * n, 0..10, 1 + n as usize)));
        assert!(!shrink(&mut breaker, 290, 0..10, 20));
        assert_eq!(shrink(&mut breaker, seconds, 0..10, 0), trips, "{seconds} s");
    }
    // Members that were removed immediately after they were added never count.
    let mut breaker = given(10, 10);
    assert!(!shrink(&mut breaker, 20, 0..10, 0) && !shrink(&mut breaker, 60, 0..10, 0));
    assert!(!shrink(&mut breaker, 61, 0..10, 3) && !shrink(&mut breaker, 80, 0..10, 0));
    // A pool that had members is compared with its members five minutes ago.
    let mut breaker = settled(10);
    assert!(!shrink(&mut breaker, 100, 0..10, 30) && !shrink(&mut breaker, 399, 0..10, 10));
}

#[test]
fn g4_first_members_added_in_steps_count_together() {
    let mut breaker = given(10, 3);
    assert!(!shrink(&mut breaker, 20, 0..10, 10) && !breaker.evaluate(at(50)));
    assert!(shrink(&mut breaker, 51, 0..10, 4), "the baseline is ten, not three");
}

#[test]
fn g4_short_lived_members_count_five_minutes_later() {
    for (seconds, trips) in [(300, false), (301, true), (325, true), (326, false)] {
        let mut breaker = given(10, 9);
        assert!(!shrink(&mut breaker, 26, 0..10, 2), "nine have not lasted long enough");
        assert_eq!(shrink(&mut breaker, seconds, 0..10, 1), trips, "{seconds} s");
    }
}

#[test]
fn g4_changes_within_ten_seconds_count_as_one() {
    for (apart, trips) in [(9, true), (10, false)] {
        let mut breaker = settled(10);
        assert!(!shrink(&mut breaker, 100, 0..10, 20) && !shrink(&mut breaker, 100 + apart, 0..10, 30));
        assert_eq!(shrink(&mut breaker, 400, 0..10, 12), trips, "{apart} s apart");
    }
}

#[test]
fn g4_a_small_removal_elsewhere_does_not_trip_it() {
    let mut breaker = settled(20);
    let gone = asked(1);
    (0..10).for_each(|n| breaker.record(at(100), &id(n), gone));
    breaker.record(at(100), &id(15), asked(9));
    assert!(!breaker.evaluate(at(100)) && breaker.counted() == (10, 20));
}

#[test]
fn g4_removals_by_other_clients_lower_the_baseline() {
    let carried_out = || {
        let mut breaker = settled(10);
        assert!(held(&mut breaker, 100, 0..10, 4, 10) && !held(&mut breaker, 200, 0..10, 4, 4));
        breaker
    };
    assert!(!held(&mut carried_out(), 500, 0..10, 2, 4), "half of the baseline");
    assert!(held(&mut carried_out(), 500, 0..10, 1, 4));
}

#[test]
fn g4_draining_beside_removals_is_not_in_the_baseline() {
    let mut breaker = settled(10);
    (0..10).for_each(|n| breaker.record(at(100), &id(n), PoolSize { asked: 8, ..asked(18) }));
    assert!(!breaker.evaluate(at(100)) && !shrink(&mut breaker, 130, 0..10, 8));
    assert!(!breaker.evaluate(at(401)) && breaker.counted() == (0, 10));
}

#[test]
fn g4_losses_released_in_single_pools_are_omitted_once() {
    let released = || {
        let mut breaker = settled(10);
        assert!((0..10).all(|n| breaker.release_pool(&id(n))));
        (0..10).for_each(|n| breaker.record(at(100), &id(n), PoolSize { asked: 4, ..asked(10) }));
        assert!(!breaker.evaluate(at(100)) && breaker.check(), "they drain");
        assert!(!shrink(&mut breaker, 130, 0..10, 4), "and then they go");
        breaker
    };
    assert!(!shrink(&mut released(), 131, 0..10, 2), "half of what is left");
    assert!(shrink(&mut released(), 131, 0..10, 1), "later losses are evaluated again");
}

#[test]
fn g4_a_change_is_sent_and_a_trip_reported_once_per_term() {
    let mut breaker = settled(10);
    assert_eq!(
        (breaker.take_change(), breaker.take_change(), breaker.take_due_report()),
        (Some(false), None, false)
    );
    assert!(shrink(&mut breaker, 100, 0..10, 0));
    assert_eq!((breaker.take_change(), breaker.take_change()), (Some(true), None));
    assert_eq!((breaker.take_due_report(), breaker.take_due_report()), (true, false));
    breaker.reset_reports();
    assert_eq!((breaker.take_due_report(), breaker.take_due_report()), (true, false), "in another term");
    assert!(!shrink(&mut breaker, 101, 0..10, 10) && !breaker.take_due_report());
    assert!(shrink(&mut breaker, 102, 0..10, 0) && breaker.take_due_report(), "and when it trips again");
}

/// Pools whose members are removed immediately unless the breaker is tripped.
struct Cluster {
    breaker: RemovalBreaker,
    wanted: Vec<usize>,
    /// The number of members of each pool, each with the second from which it applies.
    had: Vec<Vec<(u64, usize)>>,
}

impl Cluster {
    fn of(pools: usize) -> Cluster {
        Cluster { breaker: settled(pools), wanted: vec![10; pools], had: vec![vec![(0, 10)]; pools] }
    }

    fn now(&self, n: usize) -> usize {
        self.had[n].last().map_or(0, |(_, members)| *members)
    }

    /// Returns the smallest number of members that a pool had about five minutes ago.
    fn before(&self, n: usize, seconds: u64) -> usize {
        let had = &self.had[n];
        let (from, to) = (seconds.saturating_sub(311), seconds.saturating_sub(289));
        let first = had.iter().rposition(|(at, _)| *at <= from).unwrap_or(0);
        let then = had.iter().skip(first).take_while(|(at, _)| *at <= to.max(from));
        then.map(|(_, members)| *members).min().unwrap_or(0)
    }

    /// Records the required and the present members of each pool.
    fn look(&mut self, seconds: u64) {
        for n in 0..self.wanted.len() {
            let (seen, wanted) = (self.now(n), self.wanted[n]);
            let (going, present) = (seen.saturating_sub(wanted), seen.max(wanted));
            self.breaker.record(at(seconds), &id(n), PoolSize { going, seen, present, ..asked(wanted) });
        }
        self.breaker.evaluate(at(seconds));
        assert!(self.breaker.check());
    }

    fn step(&mut self, seconds: u64, pools: u32, members: usize) {
        let named: Vec<usize> = (0..self.wanted.len()).filter(|n| pools & (1 << n) != 0).collect();
        named.iter().for_each(|n| self.wanted[*n] = members);
        self.look(seconds);
        let held = self.breaker.tripped().is_some();
        for n in 0..self.wanted.len() {
            let members = if held { self.wanted[n].max(self.now(n)) } else { self.wanted[n] };
            if members != self.now(n) {
                self.had[n].push((seconds, members));
            }
        }
        self.look(seconds);
    }

    /// Returns the number of pools that have lost most of their members, if one of them loses members in this second;
    /// otherwise 0. The former number of members also changes with time, without a removal.
    fn lost(&self, seconds: u64) -> usize {
        let shrunk = |n: &usize| 2 * self.now(*n) < self.before(*n, seconds);
        let lost: Vec<usize> = (0..self.wanted.len()).filter(shrunk).collect();
        let goes_now = |n: &usize| match self.had[*n].as_slice() {
            [.., (_, before), (at, now)] => *at == seconds && now < before,
            [..] => false,
        };
        if lost.iter().any(goes_now) { lost.len() } else { 0 }
    }
}

proptest! {
    #[test]
    fn g4_few_pools_ever_lose_most_members_in_five_minutes(
        steps in prop::collection::vec((1..400_u64, any::<u32>(), any::<u32>(), 0..20_usize), 1..60)
    ) {
        let mut cluster = Cluster::of(12);
        let mut seconds = 1;
        for (later, pools, others, members) in steps {
            // Faster changes count as one change.
            seconds += MERGE_WINDOW.as_secs() + if later % 3 == 0 { later } else { later % 40 };
            cluster.step(seconds, if later % 2 == 0 { pools } else { pools & others }, members);
            prop_assert!(cluster.lost(seconds) <= POOLS_ALLOWED, "at {} s", seconds);
        }
        // Afterwards, the breaker does not hold a removal that is not a loss.
        cluster.step(seconds + 1, u32::MAX, 30);
        prop_assert!(cluster.breaker.tripped().is_none());
    }
}
