//! Tests of pools with unread changes: they are not granted before the changes are processed, for two seconds at most
//! (Q2).

use super::*;

fn name(pool: &PoolId) -> PoolName {
    PoolName::new(pool.pool.as_str().trim_end_matches("-ipv6"))
}

fn unread(fixture: &mut Fixture, pool: &PoolId, millis: u64) -> Vec<Out> {
    fixture.step(In::Unread(name(pool), at(millis)))
}

#[test]
fn a_pool_with_unread_changes_waits_until_they_are_processed() {
    for suffix in ["", "-ipv6"] {
        let mut fixture = Fixture::leading(params());
        let (web, api) = (pool("lb", &format!("web{suffix}")), pool("lb", "api"));
        fixture.now = 10;
        unread(&mut fixture, &web, 9);
        assert!(
            takes(&fixture.due(&web, due(0, MembershipUrgency::Revive))).is_empty(),
            "its level is superseded"
        );
        let attempt = take(&fixture.due(&api, due(5, MembershipUrgency::Remove)));
        assert!(takes(&nothing_to_do(&mut fixture, &api, attempt)).is_empty(), "others do not wait for it");
        assert!(takes(&fixture.step(In::ReadUpTo(at(8)))).is_empty(), "not as far as that");
        assert_eq!(takes(&fixture.step(In::ReadUpTo(at(9)))).len(), 1);
    }
}

#[test]
fn a_pool_that_is_due_already_waits_too() {
    let mut fixture = Fixture::leading(params());
    let (busy, web) = (pool("lb", "busy"), pool("lb", "web"));
    let attempt = take(&fixture.due(&busy, due(0, MembershipUrgency::Add)));
    fixture.due(&web, due(0, MembershipUrgency::Add));
    fixture.now = 20;
    unread(&mut fixture, &web, 20);
    assert!(takes(&nothing_to_do(&mut fixture, &busy, attempt)).is_empty());
    assert_eq!(takes(&fixture.step(In::ReadUpTo(at(25)))), [(web, AttemptId { epoch: EPOCH, n: 2 })]);
}

#[test]
fn a_change_processed_before_its_announcement_delays_nothing() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.now = 20;
    fixture.step(In::ReadUpTo(at(10)));
    unread(&mut fixture, &web, 10);
    take(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    assert!(fixture.writer.unread.is_empty(), "and is not kept");
}

#[test]
fn a_service_that_changes_all_the_time_is_still_written() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.now = 100;
    unread(&mut fixture, &web, 100);
    fixture.due(&web, due(0, MembershipUrgency::Add));
    let mut granted = None;
    while granted.is_none() {
        assert!(fixture.now < 2_200, "it waits for two seconds at most");
        let next = fixture.now + 100;
        let mut output = fixture.until(next);
        output.extend(unread(&mut fixture, &web, next));
        granted = takes(&output).first().map(|_| next);
    }
    assert_eq!(granted, Some(2_100));
    assert!(fixture.writer.deadline().is_none_or(|next| next > at(2_100)));
}

#[test]
fn n3_a_down_does_not_wait_for_unprocessed_changes() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    fixture.now = 10;
    unread(&mut fixture, &web, 10);
    assert!(takes(&fixture.due(&web, due(0, MembershipUrgency::Add))).is_empty());
    let output = fixture.step(In::AdminDue(web.clone(), Some(down(10))));
    assert_eq!(takes(&output).len(), 1, "both parts go together");
}

#[test]
fn a_standby_keeps_no_more_than_the_newest_change_of_each_service() {
    let mut fixture = Fixture::new(params());
    for millis in 0..1_000 {
        unread(&mut fixture, &pool("lb", "web"), millis);
    }
    fixture.step(In::ReadUpTo(at(998)));
    assert!(!fixture.writer.unread.is_empty());
    fixture.step(In::ReadUpTo(at(999)));
    assert!(fixture.writer.unread.is_empty());
}
