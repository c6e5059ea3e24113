//! Tests of pools with unread changes: they are not granted before the changes are processed, for two seconds at most
//! (Q2).

use super::*;

fn name(pool: &PoolId) -> PoolName {
    PoolName::new(pool.pool.as_str().trim_end_matches("-ipv6"))
}

fn unread(bench: &mut Bench, pool: &PoolId, millis: u64) -> Vec<Out> {
    bench.step(In::Unread(name(pool), at(millis)))
}

#[test]
fn a_pool_with_unread_changes_waits_until_they_are_processed() {
    for suffix in ["", "-ipv6"] {
        let mut bench = Bench::leading(params());
        let (web, api) = (pool("lb", &format!("web{suffix}")), pool("lb", "api"));
        bench.now = 10;
        unread(&mut bench, &web, 9);
        assert!(
            takes(&bench.due(&web, due(0, MembershipUrgency::Revive))).is_empty(),
            "its level is superseded"
        );
        let attempt = take(&bench.due(&api, due(5, MembershipUrgency::Remove)));
        assert!(takes(&nothing_to_do(&mut bench, &api, attempt)).is_empty(), "others do not wait for it");
        assert!(takes(&bench.step(In::ReadUpTo(at(8)))).is_empty(), "not as far as that");
        assert_eq!(takes(&bench.step(In::ReadUpTo(at(9)))).len(), 1);
    }
}

#[test]
fn a_pool_that_is_due_already_waits_too() {
    let mut bench = Bench::leading(params());
    let (busy, web) = (pool("lb", "busy"), pool("lb", "web"));
    let attempt = take(&bench.due(&busy, due(0, MembershipUrgency::Add)));
    bench.due(&web, due(0, MembershipUrgency::Add));
    bench.now = 20;
    unread(&mut bench, &web, 20);
    assert!(takes(&nothing_to_do(&mut bench, &busy, attempt)).is_empty());
    assert_eq!(takes(&bench.step(In::ReadUpTo(at(25)))), [(web, AttemptId { epoch: EPOCH, n: 2 })]);
}

#[test]
fn a_change_processed_before_its_announcement_delays_nothing() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.now = 20;
    bench.step(In::ReadUpTo(at(10)));
    unread(&mut bench, &web, 10);
    take(&bench.due(&web, due(0, MembershipUrgency::Add)));
    assert!(bench.writer.unread.is_empty(), "and is not kept");
}

#[test]
fn a_service_that_changes_all_the_time_is_still_written() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.now = 100;
    unread(&mut bench, &web, 100);
    bench.due(&web, due(0, MembershipUrgency::Add));
    let mut granted = None;
    while granted.is_none() {
        assert!(bench.now < 2_200, "it waits for two seconds at most");
        let next = bench.now + 100;
        let mut output = bench.until(next);
        output.extend(unread(&mut bench, &web, next));
        granted = takes(&output).first().map(|_| next);
    }
    assert_eq!(granted, Some(2_100));
    assert!(bench.writer.deadline().is_none_or(|next| next > at(2_100)));
}

#[test]
fn n3_a_down_does_not_wait_for_what_was_read() {
    let mut bench = Bench::leading(params());
    let web = pool("lb", "web");
    bench.step(In::Draining(drains(1)));
    bench.now = 10;
    unread(&mut bench, &web, 10);
    assert!(takes(&bench.due(&web, due(0, MembershipUrgency::Add))).is_empty());
    let output = bench.step(In::AdminDue(web.clone(), Some(down(10))));
    assert_eq!(takes(&output).len(), 1, "both parts go together");
}

#[test]
fn a_standby_keeps_no_more_than_the_newest_change_of_each_service() {
    let mut bench = Bench::new(params());
    for millis in 0..1_000 {
        unread(&mut bench, &pool("lb", "web"), millis);
    }
    bench.step(In::ReadUpTo(at(998)));
    assert!(!bench.writer.unread.is_empty());
    bench.step(In::ReadUpTo(at(999)));
    assert!(bench.writer.unread.is_empty());
}
