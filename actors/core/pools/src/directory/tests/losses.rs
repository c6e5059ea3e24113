//! Tests of which losses the breaker counts (G4).

use super::*;
use model::object::ExclusionRule;

/// The nodes on which each Service has endpoints at first.
const ALL: [u8; 4] = [1, 2, 3, 4];
const SERVICES: u32 = 60;

/// The cause of a loss.
#[derive(Clone, Copy, Debug)]
enum Cause {
    /// A running watch shows that endpoints have left their slices.
    Endpoints,
    /// Nodes have the label that excludes them.
    Label,
    /// A list was needed because the watch could not continue.
    Relist,
    /// The watch has just been re-established.
    Reconnect,
    /// All slices have vanished.
    Slices,
    /// Not all slices of the Service can be read.
    Data,
}

impl Cause {
    const COUNTED: [Cause; 5] = [Cause::Label, Cause::Relist, Cause::Reconnect, Cause::Slices, Cause::Data];
}

fn two_slices(n: u32, part: Part) -> ServiceFact {
    ServiceFact { slices: 2, endpoints: 8, ..fact(n, &format!("s{n}"), part) }
}

/// Returns the `n`-th Service, which requires only these nodes, for this cause.
fn asks(n: u32, required: &[u8], cause: Cause) -> ServiceFact {
    let fact = two_slices(n, part(required, &[]));
    let with = |part: Part| two_slices(n, part);
    match cause {
        Cause::Endpoints => ServiceFact { endpoints: required.len(), ..fact },
        Cause::Label => with(labelled(required)),
        Cause::Relist => ServiceFact { provenance: Provenance::Relist, ..fact },
        Cause::Reconnect => ServiceFact { provenance: Provenance::Reconnect, ..fact },
        Cause::Slices => ServiceFact { slices: 0, ..fact },
        Cause::Data => with(Part { unusable: true, ..part(required, &[]) }),
    }
}

fn pool_of(n: u32) -> PoolId {
    id("lb", &format!("shop-s{n}"))
}

/// Returns all pools, each with these members.
fn all_with(members: impl Fn(u32) -> Vec<u8>) -> Arc<LbFacts> {
    let pools = (0..SERVICES).map(|n| pool("lb", &format!("shop-s{n}"), &members(n))).collect();
    let rules = (0..SERVICES).map(|n| rule(n, &format!("shop-s{n}"))).collect();
    balancer("lb", pools, rules)
}

/// Creates a running Directory with four members in each pool.
fn cluster() -> Fixture {
    let mut fixture = Fixture::running();
    fixture.together((0..SERVICES).map(|n| two_slices(n, part(&ALL, &[]))));
    fixture.observe(&all_with(|_| ALL.to_vec()));
    fixture.pass(400_000);
    fixture
}

fn is_stopped(fixture: &Fixture) -> bool {
    fixture.machine.breaker.tripped().is_some()
}

/// Returns how many members go, while all original ones are still present.
fn going(fixture: &Fixture) -> usize {
    fixture.assigned.values().map(|said| said.level.surplus(&ips(&ALL)).count()).sum()
}

#[test]
fn g4_services_that_scale_to_zero_do_not_trip_it() {
    for count in [4, 12, 13, 60] {
        let mut fixture = cluster();
        fixture.together((0..count).map(|n| asks(n, &[], Cause::Endpoints)));
        fixture.pass(61_000);
        assert!(!is_stopped(&fixture), "{count} Services");
        assert_eq!(going(&fixture), count as usize * 4);
    }
}

#[test]
fn g4_deleted_slices_do_not_trip_it_while_one_remains() {
    // Either Kubernetes keeps one slice of a Service without endpoints, or one slice stays with its endpoints.
    for required in [&[][..], &[1]] {
        for provenance in [Provenance::Watch, Provenance::Relist] {
            let mut fixture = cluster();
            let fact = |n| asks(n, required, Cause::Endpoints);
            fixture.together((0..30).map(|n| ServiceFact { slices: 1, provenance, ..fact(n) }));
            for _ in 0..70 {
                fixture.pass(1_000);
                fixture.reread();
            }
            let going = if provenance == Provenance::Watch { 30 * (4 - required.len()) } else { 0 };
            let expected = (provenance == Provenance::Relist, going);
            assert_eq!((is_stopped(&fixture), self::going(&fixture)), expected, "{required:?}");
        }
    }
}

#[test]
fn g4_the_last_of_slices_that_vanish_one_by_one_counts() {
    let mut fixture = cluster();
    fixture.together((0..13).map(|n| ServiceFact { slices: 1, ..asks(n, &[1, 2], Cause::Endpoints) }));
    fixture.together((0..13).map(|n| asks(n, &[], Cause::Slices)));
    for _ in 0..100 {
        fixture.pass(1_000);
        fixture.reread();
    }
    assert!(is_stopped(&fixture));
}

#[test]
fn g4_terminating_and_moving_endpoints_do_not_trip_it() {
    let mut fixture = cluster();
    let terminating = |n| ServiceFact { endpoints: 4, ..two_slices(n, part(&[], &ALL)) };
    fixture.together((0..30).map(terminating));
    fixture.pass(5_000);
    fixture.together((0..30).map(|n| asks(n, &[], Cause::Endpoints)));
    // These Services have as many endpoints as before, on fewer nodes.
    fixture.together((30..SERVICES).map(|n| two_slices(n, part(&[1], &[]))));
    fixture.pass(61_000);
    assert!(!is_stopped(&fixture) && going(&fixture) == 30 * 4 + 30 * 3);
}

#[test]
fn g4_every_other_cause_stops_removals() {
    for cause in Cause::COUNTED {
        let mut fixture = cluster();
        fixture.together((0..13).map(|n| asks(n, &[1], cause)));
        for _ in 0..70 {
            fixture.pass(1_000);
            fixture.reread();
        }
        let held = match cause {
            // Only the guard of the pool holds the removal.
            Cause::Data => !is_stopped(&fixture),
            Cause::Endpoints | Cause::Label | Cause::Relist | Cause::Reconnect | Cause::Slices => {
                is_stopped(&fixture)
            }
        };
        assert!(held, "{cause:?}");
        assert_eq!(going(&fixture), 0, "{cause:?}");
    }
}

#[test]
fn g4_last_known_addresses_of_deleted_nodes_count() {
    let deleted = |n| two_slices(n, Part { last_known: ips(&[2, 3, 4]), ..part(&[1], &[2, 3, 4]) });
    // Either the pods of the nodes are deleted too, or they stay and their last addresses expire.
    for pods_go in [true, false] {
        let mut fixture = cluster();
        fixture.together((0..13).map(deleted));
        fixture.pass(100_000);
        assert!(!is_stopped(&fixture) && going(&fixture) == 0);
        let endpoints = if pods_go { 1 } else { 8 };
        fixture.together((0..13).map(|n| ServiceFact { endpoints, ..two_slices(n, part(&[1], &[])) }));
        fixture.pass(31_000);
        assert!(is_stopped(&fixture), "pods go: {pods_go}");
    }
}

#[test]
fn g4_the_cause_of_a_loss_is_that_at_the_release() {
    // During the removal delay, the node is deleted or excluded, or a list shows the same.
    for cause in [Cause::Label, Cause::Relist, Cause::Reconnect, Cause::Slices] {
        let mut fixture = cluster();
        fixture.together((0..SERVICES).map(|n| asks(n, &[1], Cause::Endpoints)));
        fixture.pass(10_000);
        fixture.together((0..SERVICES).map(|n| asks(n, &[1], cause)));
        fixture.pass(30_000);
        assert!(!is_stopped(&fixture) && going(&fixture) == 60 * 3, "{cause:?}");
        // Endpoints also leave in a case in which the loss counts already.
        let mut fixture = cluster();
        fixture.together((0..SERVICES).map(|n| asks(n, &[1], cause)));
        fixture.pass(10_000);
        fixture.together((0..SERVICES).map(|n| asks(n, &[1], Cause::Endpoints)));
        for _ in 0..60 {
            fixture.pass(1_000);
            fixture.reread();
        }
        assert!(is_stopped(&fixture), "{cause:?}");
    }
    // A member that is required again and released again has the cause of the second release.
    let mut fixture = cluster();
    fixture.together((0..SERVICES).map(|n| asks(n, &[1], Cause::Label)));
    fixture.pass(10_000);
    fixture.together((0..SERVICES).map(|n| two_slices(n, part(&ALL, &[]))));
    fixture.together((0..SERVICES).map(|n| asks(n, &[1], Cause::Endpoints)));
    fixture.pass(31_000);
    assert!(!is_stopped(&fixture));
}

/// Returns the excluded nodes that the events about removals held for this reason name.
fn named(fixture: &mut Fixture, because: HeldReason) -> Vec<Option<(String, ExclusionRule, usize)>> {
    let named = |what| {
        let EventKind::Held { reason, excluded, .. } = what else { return None };
        let nodes = excluded.map(|nodes| (nodes.first.to_string(), nodes.why, nodes.more));
        (reason == because).then_some(nodes)
    };
    fixture.reports().into_iter().filter_map(named).collect()
}

#[test]
fn d5_events_about_stopped_removals_name_the_label_of_the_nodes() {
    for (cause, expected) in [
        (Cause::Label, Some(("node-2".to_owned(), ExclusionRule::ExcludedByLabel, 2))),
        (Cause::Relist, None),
    ] {
        let mut fixture = cluster();
        fixture.reporting(Some(1));
        fixture.reports();
        fixture.together((0..13).map(|n| asks(n, &[1], cause)));
        fixture.pass(31_000);
        fixture.reread();
        fixture.pass(31_000);
        assert!(is_stopped(&fixture), "{cause:?}");
        assert_eq!(named(&mut fixture, HeldReason::Breaker), vec![expected; 13], "{cause:?}");
    }
}

#[test]
fn d5_a_held_last_member_names_the_label_of_its_node() {
    let mut fixture = Fixture::running();
    fixture.reporting(Some(1));
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1])], vec![rule(1, "shop-web")]));
    // The only endpoint on node 5 terminates.
    fixture.service(fact(1, "web", Part { tolerated: ips(&[5]), ..labelled(&[]) }));
    fixture.pass(31_000);
    let expected = ("node-1".to_owned(), ExclusionRule::ExcludedByLabel, 0);
    assert_eq!(named(&mut fixture, HeldReason::LastMember), [Some(expected)]);
}

#[test]
fn g4_only_losses_that_count_are_compared() {
    // In each pool, one member is removed with its endpoints, and some of the other three with their nodes.
    for (left, stops) in [(&[1, 2][..], false), (&[1], true)] {
        let mut fixture = cluster();
        fixture.together((0..SERVICES).map(|n| asks(n, &[1, 2, 3], Cause::Endpoints)));
        fixture.pass(31_000);
        fixture.observe(&all_with(|_| vec![1, 2, 3]));
        fixture.together((0..SERVICES).map(|n| asks(n, left, Cause::Label)));
        fixture.pass(31_000);
        assert_eq!(is_stopped(&fixture), stops, "{left:?}");
    }
    // Twelve pools lose nodes, which is not too many. Others are scaled to zero, before and after.
    let mut fixture = cluster();
    fixture.together((12..30).map(|n| asks(n, &[], Cause::Endpoints)));
    fixture.together((0..12).map(|n| asks(n, &[1], Cause::Label)));
    fixture.together((30..50).map(|n| asks(n, &[], Cause::Endpoints)));
    fixture.pass(61_000);
    assert!(!is_stopped(&fixture));
    fixture.together((50..51).map(|n| asks(n, &[1], Cause::Label)));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture), "the thirteenth");
}

#[test]
fn g4_later_members_compensate_for_departed_endpoints() {
    // A rolling restart moves all Services to other nodes. Then most of these nodes get the label.
    let mut fixture = cluster();
    let moved = [5, 6, 7, 8];
    fixture.together((0..SERVICES).map(|n| two_slices(n, part(&moved, &[]))));
    fixture.pass(31_000);
    fixture.observe(&all_with(|_| moved.to_vec()));
    fixture.pass(10_000);
    fixture.together((0..SERVICES).map(|n| two_slices(n, labelled(&[5]))));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
}

#[test]
fn g4_losses_count_for_5_min_and_later_departures_do_not() {
    let mut fixture = cluster();
    fixture.together((0..12).map(|n| asks(n, &[1], Cause::Label)));
    fixture.pass(31_000);
    fixture.observe(&all_with(|n| if n < 12 { vec![1] } else { ALL.to_vec() }));
    fixture.together((0..12).map(|n| asks(n, &[], Cause::Endpoints)));
    fixture.pass(61_000);
    fixture.observe(&all_with(|n| if n < 12 { vec![] } else { ALL.to_vec() }));
    fixture.pass(100_000);
    fixture.together((12..13).map(|n| asks(n, &[1], Cause::Label)));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture), "thirteen pools within five minutes");
    // Much later, the pools have no members left to lose.
    fixture.request_release(Scope::Everything);
    fixture.observe(&all_with(|n| if n < 12 { vec![] } else { vec![1] }));
    fixture.pass(400_000);
    assert!(!is_stopped(&fixture));
}

#[test]
fn g4_released_losses_no_longer_count() {
    let mut fixture = cluster();
    fixture.together((0..SERVICES).map(|n| asks(n, &[1], Cause::Label)));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
    fixture.request_release(Scope::Everything);
    assert!(!is_stopped(&fixture) && going(&fixture) == 60 * 3);
    fixture.together((0..SERVICES).map(|n| asks(n, &[], Cause::Endpoints)));
    fixture.pass(61_000);
    assert!(!is_stopped(&fixture) && going(&fixture) == 60 * 4, "the last ones leave with their endpoints");
}

#[test]
fn g4_removals_by_endpoints_are_held_too_during_a_trip() {
    let mut fixture = cluster();
    fixture.together((0..13).map(|n| asks(n, &[1], Cause::Label)));
    fixture.pass(31_000);
    fixture.together((20..21).map(|n| asks(n, &[1], Cause::Endpoints)));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
    let held = fixture.assigned[&pool_of(20)].held.clone().expect("held");
    assert_eq!((held.reason, held.members), (HeldReason::Breaker, ips(&[2, 3, 4])));
}

#[test]
fn g4_members_found_at_the_start_count_but_not_foreign_ones() {
    // Other clients add members and remove them again. The Services are scaled to zero soon after.
    let mut fixture = cluster();
    fixture.observe(&all_with(|_| vec![1, 2, 3, 4, 5, 6, 7, 8, 9]));
    fixture.pass(31_000);
    fixture.observe(&all_with(|_| ALL.to_vec()));
    fixture.together((0..SERVICES).map(|n| asks(n, &[], Cause::Endpoints)));
    fixture.pass(61_000);
    assert!(!is_stopped(&fixture));
    // A process that starts finds members that no source requires.
    let mut fixture = Fixture::running();
    fixture.together((0..SERVICES).map(|n| asks(n, &[1], Cause::Endpoints)));
    fixture.observe(&all_with(|_| ALL.to_vec()));
    fixture.pass(31_000);
    assert!(is_stopped(&fixture));
}
