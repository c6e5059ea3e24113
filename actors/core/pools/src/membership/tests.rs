//! Tests of the members that a pool gets from successive assignments, on the test's clock.

mod properties;

use super::*;
use model::xds::facts::{AddressFacts, AssignmentFacts, EndpointFacts, LocalityFacts};

/// The numbers of `HealthStatus`.
const UNKNOWN: i32 = 0;
const HEALTHY: i32 = 1;
const UNHEALTHY: i32 = 2;
const DRAINING: i32 = 3;
const TIMEOUT: i32 = 4;
const DEGRADED: i32 = 5;

fn at(seconds: u64) -> Now {
    Now::from_millis(seconds * 1_000)
}

fn endpoint(address: &str, health: i32) -> EndpointFacts {
    let address = AddressFacts::Socket { address: address.to_owned(), port: Some(80), protocol: 0 };
    EndpointFacts { address, additional: Vec::new(), health, weight: None }
}

fn valid(localities: Vec<LocalityFacts>) -> LoadAssignment {
    let facts = AssignmentFacts { cluster_name: "shop".to_owned(), localities };
    LoadAssignment::of(&facts, Limits::AZURE).expect("it is valid")
}

/// Returns an assignment of these addresses with their health, by priority.
fn assigned(priorities: &[&[(&str, i32)]]) -> LoadAssignment {
    let locality = |(priority, endpoints): (u32, &&[(&str, i32)])| {
        let endpoints = endpoints.iter().map(|(address, health)| endpoint(address, *health)).collect();
        LocalityFacts { priority, endpoints, ..LocalityFacts::default() }
    };
    valid((0..).zip(priorities).map(locality).collect())
}

fn ips(texts: &[&str]) -> BTreeSet<IpAddr> {
    texts.iter().map(|text| text.parse::<IpAddr>().expect("an address")).collect()
}

fn told(diagnostics: &[Diagnostic]) -> BTreeSet<Diagnostic> {
    diagnostics.iter().copied().collect()
}

fn pool() -> Failover {
    Failover::new(Family::V4, Params::default())
}

/// Returns the members of an IPv4 pool without history.
fn first(assignment: &LoadAssignment) -> PoolMembership {
    pool().members(at(0), assignment)
}

/// Returns an assignment of two priorities, each with one endpoint that is healthy or not.
fn pair(first: bool, second: bool) -> LoadAssignment {
    let health = |usable: bool| if usable { HEALTHY } else { UNHEALTHY };
    assigned(&[&[("10.0.0.1", health(first))], &[("10.0.1.1", health(second))]])
}

/// Returns the used priority.
fn priority(pool: &Failover) -> Option<usize> {
    pool.used().map(|used| used.priority)
}

#[test]
fn x2_only_unknown_and_healthy_endpoints_are_members() {
    let PoolMembership { members, draining, diagnostics, .. } = first(&assigned(&[&[
        ("10.0.0.1", UNKNOWN),
        ("10.0.0.2", HEALTHY),
        ("10.0.0.3", UNHEALTHY),
        ("10.0.0.4", TIMEOUT),
        ("10.0.0.5", 6),
        ("10.0.0.6", DEGRADED),
        ("fd00::1", HEALTHY),
    ]]));
    assert_eq!(members, ips(&["10.0.0.1", "10.0.0.2"]));
    assert!(draining.is_empty() && diagnostics.is_empty(), "{draining:?} {diagnostics:?}");
}

#[test]
fn x2_draining_endpoints_stay_as_down_if_admin_state_is_on() {
    let assignment = assigned(&[
        &[("10.0.0.1", HEALTHY), ("10.0.0.2", DRAINING), ("fd00::2", DRAINING)],
        &[("10.0.1.1", HEALTHY), ("10.0.1.2", DRAINING)],
    ]);
    let with = first(&assignment);
    assert_eq!((with.members, with.draining), (ips(&["10.0.0.1"]), ips(&["10.0.0.2", "10.0.1.2"])));
    let params = Params { admin_states: AdminStates::Off, ..Params::default() };
    let without = Failover::new(Family::V4, params).members(at(0), &assignment);
    assert_eq!((without.members, without.draining), (ips(&["10.0.0.1"]), ips(&[])));
}

#[test]
fn x2_draining_endpoints_are_no_members() {
    let alone = first(&assigned(&[&[("10.0.0.1", DRAINING)]]));
    assert_eq!((alone.members, alone.draining), (ips(&[]), ips(&["10.0.0.1"])));
    assert_eq!(alone.diagnostics, told(&[Diagnostic::NothingUsable]));
    let mut both = assigned(&[&[("10.0.0.1", HEALTHY)], &[("10.0.0.2", DRAINING)]]);
    both.priorities[1].addresses.insert("10.0.0.1".parse().expect("ip"), EndpointHealth::Draining);
    let both = first(&both);
    assert_eq!((both.members, both.draining), (ips(&["10.0.0.1"]), ips(&["10.0.0.2"])));
}

#[test]
fn x2_degraded_endpoints_are_used_only_without_healthy_ones() {
    let of = |health: i32| {
        assigned(&[&[("10.0.0.1", DEGRADED), ("10.0.0.2", UNHEALTHY)], &[("10.0.1.1", health)]])
    };
    let healthy = first(&of(HEALTHY));
    assert_eq!(
        (healthy.members, healthy.diagnostics),
        (ips(&["10.0.1.1"]), told(&[Diagnostic::PriorityUsed(1)]))
    );
    let degraded = first(&of(DEGRADED));
    assert_eq!(
        (degraded.members, degraded.diagnostics),
        (ips(&["10.0.0.1"]), told(&[Diagnostic::DegradedUsed]))
    );
}

#[test]
fn x2_healthy_endpoints_replace_degraded_ones_immediately() {
    let mut pool = pool();
    let of = |health: i32| assigned(&[&[("10.0.0.1", DEGRADED)], &[("10.0.1.1", health)]]);
    assert_eq!(pool.members(at(0), &of(UNHEALTHY)).members, ips(&["10.0.0.1"]));
    assert_eq!(pool.members(at(1), &of(HEALTHY)).members, ips(&["10.0.1.1"]));
    assert_eq!(pool.deadline(), None, "no wait for degraded endpoints");
}

#[test]
fn x2_a_pool_uses_the_best_priority_usable_in_its_family() {
    let assignment = assigned(&[
        &[("10.0.0.1", UNHEALTHY), ("fd00::1", TIMEOUT)],
        &[("10.0.1.1", HEALTHY)],
        &[("fd00::3", HEALTHY), ("10.0.2.1", HEALTHY)],
    ]);
    assert_eq!(first(&assignment).members, ips(&["10.0.1.1"]));
    let v6 = Failover::new(Family::V6, Params::default()).members(at(0), &assignment);
    assert_eq!((v6.members, v6.diagnostics), (ips(&["fd00::3"]), told(&[Diagnostic::PriorityUsed(2)])));
}

#[test]
fn x2_a_pool_fails_over_immediately_and_back_after_30_s() {
    let mut pool = pool();
    pool.members(at(0), &pair(true, true));
    assert_eq!((priority(&pool), pool.deadline()), (Some(0), None));
    let over = pool.members(at(10), &pair(false, true));
    assert_eq!((over.members, priority(&pool), pool.deadline()), (ips(&["10.0.1.1"]), Some(1), None));
    let waits = pool.members(at(20), &pair(true, true));
    assert_eq!((waits.members, pool.deadline()), (ips(&["10.0.1.1"]), Some(at(50))));
    assert_eq!(waits.diagnostics, told(&[Diagnostic::PriorityUsed(1), Diagnostic::FailbackWaits(0)]));
    let early = at(50).minus(Duration::from_micros(1));
    assert_eq!(pool.members(early, &pair(true, true)).members, ips(&["10.0.1.1"]));
    let back = pool.members(at(50), &pair(true, true));
    assert_eq!((back.members, back.diagnostics), (ips(&["10.0.0.1"]), told(&[])));
    assert_eq!(pool.deadline(), None);
}

#[test]
fn x2_each_flap_of_a_better_priority_restarts_the_wait() {
    let mut pool = pool();
    pool.members(at(0), &pair(false, true));
    for seconds in 1..100 {
        pool.members(at(seconds), &pair(!seconds.is_multiple_of(25), true));
        assert_eq!(priority(&pool), Some(1), "after {seconds} s");
    }
    assert_eq!(pool.deadline(), Some(at(76 + 30)));
}

#[test]
fn x2_a_pool_fails_back_early_if_nothing_else_is_usable() {
    let mut pool = pool();
    pool.members(at(0), &pair(false, true));
    pool.members(at(1), &pair(true, true));
    assert_eq!(pool.members(at(2), &pair(true, false)).members, ips(&["10.0.0.1"]));
    assert_eq!((priority(&pool), pool.deadline()), (Some(0), None));
}

#[test]
fn x2_a_pool_fails_back_step_by_step() {
    let mut pool = pool();
    let of = |first: i32, second: i32| {
        assigned(&[&[("10.0.0.1", first)], &[("10.0.1.1", second)], &[("10.0.2.1", HEALTHY)]])
    };
    pool.members(at(0), &of(UNHEALTHY, UNHEALTHY));
    pool.members(at(5), &of(UNHEALTHY, HEALTHY));
    pool.members(at(15), &of(HEALTHY, HEALTHY));
    assert_eq!((priority(&pool), pool.deadline()), (Some(2), Some(at(35))));
    pool.members(at(35), &of(HEALTHY, HEALTHY));
    assert_eq!((priority(&pool), pool.deadline()), (Some(1), Some(at(45))));
    pool.members(at(45), &of(HEALTHY, HEALTHY));
    assert_eq!((priority(&pool), pool.deadline()), (Some(0), None));
}

#[test]
fn x2_a_restart_uses_the_best_usable_priority_immediately() {
    let mut pool = pool();
    pool.members(at(0), &pair(false, true));
    pool.members(at(1), &pair(true, true));
    assert_eq!(priority(&pool), Some(1));
    assert_eq!(first(&pair(true, true)).members, ips(&["10.0.0.1"]));
}

#[test]
fn x2_with_failback_0_a_pool_fails_back_immediately() {
    let mut pool = Failover::new(Family::V4, Params { failback: Duration::ZERO, ..Params::default() });
    pool.members(at(0), &pair(false, true));
    assert_eq!(pool.members(at(1), &pair(true, true)).members, ips(&["10.0.0.1"]));
    assert_eq!(pool.deadline(), None);
}

#[test]
fn x2_after_an_outage_the_best_usable_endpoints_are_used() {
    let mut pool = pool();
    pool.members(at(0), &pair(false, true));
    let nothing = pool.members(at(1), &pair(false, false));
    assert_eq!((nothing.members, nothing.diagnostics), (ips(&[]), told(&[Diagnostic::NothingUsable])));
    assert_eq!(pool.members(at(2), &pair(true, true)).members, ips(&["10.0.0.1"]));
    let empty = pool.members(at(3), &LoadAssignment::default());
    assert_eq!((empty, pool.used(), pool.deadline()), (PoolMembership::default(), None, None));
}

#[test]
fn x2_draining_endpoints_take_no_room_from_members() {
    let drains = [("10.0.0.3", DRAINING), ("10.0.0.4", DRAINING)];
    let assignment = assigned(&[&[("10.0.0.1", HEALTHY), ("10.0.0.2", HEALTHY), drains[0], drains[1]]]);
    let in_room = |most: usize, there: &[&str]| {
        let mut full = first(&assignment);
        full.make_room(most, |ip| ips(there).contains(ip));
        assert_eq!(full.members, ips(&["10.0.0.1", "10.0.0.2"]));
        (full.draining, full.diagnostics)
    };
    assert_eq!(in_room(4, &[]), (ips(&["10.0.0.3", "10.0.0.4"]), told(&[])));
    assert_eq!(in_room(3, &[]), (ips(&["10.0.0.3"]), told(&[])));
    assert_eq!(in_room(3, &["10.0.0.4"]), (ips(&["10.0.0.4"]), told(&[])));
    let cut = told(&[Diagnostic::DrainingCut]);
    assert_eq!(in_room(3, &["10.0.0.3", "10.0.0.4"]), (ips(&["10.0.0.3"]), cut.clone()));
    assert_eq!(in_room(2, &["10.0.0.4"]), (ips(&[]), cut));
    assert_eq!(in_room(1, &[]), (ips(&[]), told(&[])), "it does not drop members");
}

#[test]
fn x2_endpoints_that_a_pool_cannot_apply_are_reported() {
    let weighty = EndpointFacts { weight: Some(3), ..endpoint("10.0.0.1", HEALTHY) };
    let further = vec![endpoint("10.0.0.9", HEALTHY).address];
    let several = EndpointFacts { additional: further, ..endpoint("10.0.0.2", HEALTHY) };
    let skipped = LocalityFacts { weight: Some(0), ..LocalityFacts::default() };
    let used = LocalityFacts { endpoints: vec![weighty, several], ..LocalityFacts::default() };
    let PoolMembership { members, diagnostics, .. } = first(&valid(vec![skipped, used]));
    assert_eq!(members, ips(&["10.0.0.1", "10.0.0.2"]));
    assert_eq!(
        diagnostics,
        told(&[Diagnostic::WeightsIgnored, Diagnostic::LocalitiesSkipped, Diagnostic::AlternativesIgnored])
    );
}

#[test]
fn each_diagnostic_has_its_own_label_and_text() {
    let all = [
        Diagnostic::NothingUsable,
        Diagnostic::PriorityUsed(1),
        Diagnostic::FailbackWaits(0),
        Diagnostic::DegradedUsed,
        Diagnostic::WeightsIgnored,
        Diagnostic::LocalitiesSkipped,
        Diagnostic::AlternativesIgnored,
        Diagnostic::DrainingCut,
    ];
    let words: BTreeSet<&str> = all.into_iter().map(Diagnostic::as_str).collect();
    let sentences: BTreeSet<String> = all.into_iter().map(|note| note.to_string()).collect();
    assert_eq!((words.len(), sentences.len()), (all.len(), all.len()));
    assert!(sentences.contains("endpoints of priority 1 are used"), "{sentences:?}");
}

#[test]
fn x2_an_address_entry_is_named_by_its_address_with_hyphens() {
    let table = [
        ("10.0.0.1", "10-0-0-1"),
        ("fd00::1", "fd00--1"),
        ("2001:db8:0:1::a", "2001-db8-0-1--a"),
        ("fd00::", "fd00--0"),
        ("::5:6", "0--5-6"),
    ];
    for (address, expected) in table {
        assert_eq!(address_name(address.parse().expect("an address")).as_str(), expected);
    }
}
