//! Tests of draining endpoints, and of which Downs belong to the controller (X2, N4).

use std::net::Ipv4Addr;

use super::*;
use crate::membership::AdminStates;
use model::level::States;
use model::xds::assignment::Limits;

/// Returns `lb` with `edge`, which holds these members; some of them are Down.
fn seen(members: &[u8], down: &[u8]) -> Arc<LbFacts> {
    let mut pool = pool("lb", "edge", members);
    for entry in &mut pool.entries {
        if entry.ip.is_some_and(|at| ips(down).contains(&at)) {
            entry.admin_state = AdminState::Down;
        }
    }
    edge_with(pool)
}

fn states(down: &[u8], lifted: &[u8]) -> States {
    States { down: ips(down), lifted: ips(lifted) }
}

impl Fixture {
    fn states(&self) -> &States {
        &self.edge().level.states
    }

    /// Reads it a while later, when the earlier operation has ended.
    fn read_later(&mut self, facts: &Arc<LbFacts>) {
        self.pass(61_000);
        self.observe(facts);
    }
}

/// Creates a fixture in which member 2 was draining and Down, and has returned to service.
fn back() -> Fixture {
    let mut fixture = filled(&[1, 2]);
    fixture.source(with(&[(1, UP), (2, DRAINS)]));
    fixture.read_later(&seen(&[1, 2], &[2]));
    fixture.source(all(&[1, 2]));
    fixture
}

#[test]
fn x2_draining_endpoints_stay_as_down_and_are_never_added() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(with(&[(1, UP), (2, DRAINS), (3, DRAINS)]));
    assert_eq!(fixture.members(), (ips(&[1]), ips(&[2, 3])));
    assert_eq!(fixture.states(), &states(&[2, 3], &[]));
    fixture.pass(600_000);
    assert_eq!(fixture.members(), (ips(&[1]), ips(&[2, 3])), "for as long as it drains");
    assert_eq!(fixture.edge().level.missing(&ips(&[1, 2])).count(), 0, "3 is not there and is not added");
}

#[test]
fn x2_a_tolerated_member_that_drains_is_only_set_down() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(all(&[1]));
    assert_eq!((fixture.members(), fixture.states().clone()), ((ips(&[1]), ips(&[2])), states(&[], &[])));
    fixture.source(with(&[(1, UP), (2, DRAINS)]));
    assert_eq!((fixture.members(), fixture.states().clone()), ((ips(&[1]), ips(&[2])), states(&[2], &[])));
}

#[test]
fn x2_without_admin_states_draining_endpoints_are_removed() {
    let membership = membership::Params { admin_states: AdminStates::Off, ..membership::Params::default() };
    let listed = vec![Listing { membership, ..listing("edge", shop(), Family::V4) }];
    let mut fixture = started(Params { listed, ..params() });
    fixture.observe(&edge(&[1, 2]));
    fixture.source(all(&[1, 2]));
    fixture.source(with(&[(1, UP), (2, DRAINS)]));
    assert_eq!((fixture.members(), fixture.states().clone()), ((ips(&[1]), ips(&[2])), states(&[], &[])));
    fixture.pass(30_000);
    assert_eq!(fixture.members().1, ips(&[]));
}

#[test]
fn x2_a_full_pool_prefers_present_draining_addresses() {
    let membership = membership::Params { limits: Limits { members: 3 }, ..membership::Params::default() };
    let listed = vec![Listing { membership, ..listing("edge", shop(), Family::V4) }];
    let mut fixture = started(Params { listed, ..params() });
    fixture.observe(&edge(&[1, 2, 9]));
    fixture.source(with(&[(1, UP), (2, UP), (5, DRAINS), (9, DRAINS)]));
    assert_eq!(fixture.members(), (ips(&[1, 2]), ips(&[9])));
    assert_eq!(fixture.states(), &states(&[9], &[]));
    // Without room for any of them, it is removed immediately.
    fixture.source(with(&[(1, UP), (2, UP), (3, UP), (9, DRAINS)]));
    assert_eq!(fixture.members(), (ips(&[1, 2, 3]), ips(&[])));
}

#[test]
fn n4_when_disabled_a_sources_down_ends_with_its_return() {
    let in_pool = |admin_states: AdminStates| {
        let membership = membership::Params { admin_states, ..membership::Params::default() };
        let listed = vec![Listing { membership, ..listing("edge", shop(), Family::V4) }];
        let mut fixture = started(Params { listed, ..params() });
        fixture.observe(&seen(&[1, 2, 3], &[1, 2, 3]));
        fixture.source(with(&[(1, DRAINS), (2, DRAINS), (3, UP)]));
        fixture.read_later(&seen(&[1, 2, 3], &[1, 2, 3]));
        assert_eq!(fixture.states(), &states(&[], &[]), "nothing is set");
        fixture.source(all(&[1, 2, 3]));
        fixture
    };
    let mut fixture = in_pool(AdminStates::Off);
    assert_eq!(fixture.states(), &states(&[], &[1, 2]), "that of 3 is foreign");
    fixture.read_later(&seen(&[1, 2, 3], &[]));
    assert_eq!(fixture.states(), &states(&[], &[]));
    // In a pool that is excluded from admin states, no state is changed.
    assert_eq!(in_pool(AdminStates::Excluded).states(), &states(&[], &[]));
}

#[test]
fn x2_draining_endpoints_outside_the_pool_take_no_room() {
    let address = |n: u16| IpAddr::from(Ipv4Addr::from_bits(0x0a01_0000 + u32::from(n)));
    let of = |up: std::ops::Range<u16>, drains: std::ops::Range<u16>| {
        let up = up.map(|n| (address(n), UP));
        let all: Vec<_> = up.chain(drains.map(|n| (address(n), DRAINS))).collect();
        usable(assignment(&[&all]))
    };
    // 300 members leave, 400 are added, and 600 absent ones drain: there is room for all present ones.
    let mut fixture = filled(&[]);
    fixture.source(of(0..300, 0..0));
    fixture.source(of(1_000..1_400, 3_000..3_600));
    let (_, stays) = fixture.members();
    assert_eq!((0..300).filter(|n| stays.contains(&address(*n))).count(), 300);
    // 500 members that are present, though not observed yet, drain in addition to 300 absent ones.
    let mut fixture = filled(&[]);
    fixture.source(of(5_000..5_500, 0..0));
    let mut next = Vec::new();
    next.extend((5_000..5_500).chain(0..300).map(|n| (address(n), DRAINS)));
    next.extend((1_000..1_400).map(|n| (address(n), UP)));
    for _ in 0..2 {
        fixture.source(usable(assignment(&[&next])));
        let down = &fixture.states().down;
        assert_eq!((5_000..5_500).filter(|n| down.contains(&address(*n))).count(), 500);
        next.push((address(1_400), UP));
    }
}

#[test]
fn n4_our_down_is_restored_once_and_a_later_one_is_foreign() {
    let mut fixture = back();
    assert_eq!((fixture.members(), fixture.states().clone()), ((ips(&[1, 2]), ips(&[])), states(&[], &[2])));
    fixture.read_later(&seen(&[1, 2], &[2]));
    assert_eq!(fixture.states(), &states(&[], &[2]), "it is still there");
    fixture.take();
    fixture.read_later(&seen(&[1, 2], &[]));
    assert_eq!(fixture.states(), &states(&[], &[]));
    assert_eq!(fixture.assigned_since().len(), 1, "the pool hears of it");
    fixture.read_later(&seen(&[1, 2], &[2]));
    assert_eq!(fixture.states(), &states(&[], &[]), "another client has set it");
}

#[test]
fn n4_an_earlier_down_is_restored_only_if_it_was_draining() {
    let mut fixture = unknown();
    fixture.observe(&seen(&[1, 2, 3], &[2, 3]));
    fixture.source(with(&[(1, UP), (2, DRAINS), (3, UP)]));
    assert_eq!(fixture.states(), &states(&[2], &[]), "that of 3 is foreign");
    fixture.read_later(&seen(&[1, 2, 3], &[2, 3]));
    fixture.source(all(&[1, 2, 3]));
    assert_eq!(fixture.states(), &states(&[], &[2]));
}

#[test]
fn n4_a_read_before_an_endpoints_return_proves_no_restore() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(with(&[(1, UP), (2, DRAINS)]));
    // The pool is written, and not read before the endpoint is in service again.
    fixture.pass(10_000);
    fixture.source(all(&[1, 2]));
    assert_eq!(fixture.states(), &states(&[], &[2]), "the newest look is older than the Down");
    fixture.observe(&seen(&[1, 2], &[]));
    assert_eq!(fixture.states(), &states(&[], &[2]), "the look may have begun before the write was sent");
    fixture.pass(600_000);
    let mut updating = Arc::unwrap_or_clone(seen(&[1, 2], &[]));
    updating.pools.iter_mut().for_each(|pool| {
        Arc::make_mut(pool).provisioning = Provisioning::Updating;
    });
    fixture.observe(&Arc::new(updating));
    assert_eq!(fixture.states(), &states(&[], &[2]), "an operation runs that may end in it");
    fixture.pass(1_000);
    fixture.observe(&seen(&[1, 2], &[]));
    assert_eq!(fixture.states(), &states(&[], &[]));
}

#[test]
fn n4_an_endpoint_that_left_while_down_is_restored_later() {
    for seen_meanwhile in [false, true] {
        let mut fixture = filled(&[1, 2]);
        fixture.source(with(&[(1, UP), (2, DRAINS)]));
        fixture.pass(1_000);
        fixture.source(all(&[1]));
        assert_eq!(fixture.states(), &states(&[], &[]), "it goes as it is");
        fixture.pass(10_000);
        if seen_meanwhile {
            fixture.observe(&seen(&[1, 2], &[2]));
        }
        fixture.source(all(&[1, 2]));
        assert_eq!(fixture.states(), &states(&[], &[2]), "seen meanwhile: {seen_meanwhile}");
        fixture.read_later(&seen(&[1, 2], &[2]));
        assert_eq!(fixture.states(), &states(&[], &[2]));
        fixture.read_later(&seen(&[1, 2], &[]));
        assert_eq!(fixture.states(), &states(&[], &[]));
    }
}

#[test]
fn n4_our_down_is_forgotten_when_its_entry_is_removed() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(with(&[(1, UP), (2, DRAINS)]));
    fixture.read_later(&seen(&[1, 2], &[2]));
    fixture.source(all(&[1]));
    fixture.read_later(&seen(&[1], &[]));
    fixture.source(all(&[1, 2]));
    assert_eq!(fixture.states(), &states(&[], &[]), "a new entry is not Down");
    fixture.read_later(&seen(&[1, 2], &[2]));
    assert_eq!(fixture.states(), &states(&[], &[]));
}

#[test]
fn n4_x3_a_down_is_restored_when_the_source_returns() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(with(&[(1, UP), (2, DRAINS)]));
    fixture.read_later(&seen(&[1, 2], &[2]));
    policy(&mut fixture, add_only());
    fixture.source(dropped("gone"));
    assert_eq!(fixture.states(), &states(&[], &[]), "nothing is said of what is to go");
    fixture.read_later(&seen(&[1, 2], &[2]));
    fixture.source(all(&[1, 2]));
    assert_eq!(fixture.states(), &states(&[], &[2]));
}
