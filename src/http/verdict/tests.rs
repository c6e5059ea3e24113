//! Tests of verdicts about small snapshots.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use actors::clock::Clock;
use model::assignment::{Held, Waits};
use model::blocked::Blocked;
use model::error::NotManageable;
use model::ids::{AddressName, Epoch, Family, LbName, NodeName, PoolName, ServiceKey, ServiceUid};
use model::level::{Level, Member};
use model::machine::{Now, Wall};
use model::object::ExclusionRule;
use model::policy::{Mode, OperatorPolicy, Pause};
use model::sample::GateClass;
use model::view::{GateView, LaneView, LeadershipView, LeaseHolderKind, PolicyView, SharedLeaseView};
use pool_testing::views;

use super::*;

fn id() -> PoolId {
    PoolId::new(LbName::new("lb"), PoolName::new("shop-web"))
}

fn service() -> ServiceView {
    ServiceView {
        key: ServiceKey::new("shop", "web"),
        uid: ServiceUid::new("u"),
        candidacy: Candidacy::Candidate,
        paused: false,
        slices: 1,
        endpoints: 1,
        data_errors: Vec::new(),
        resource: None,
        excluded: Vec::new(),
        pools: vec![id()],
        not_manageable: Vec::new(),
    }
}

fn pool(state: PoolState) -> PoolView {
    views::pool(id(), state)
}

/// The time of all verdicts, counted from [`Now::ZERO`].
const NOW: Duration = Duration::from_secs(100);

fn of(service: &ServiceView, snapshot: &Snapshot) -> String {
    verdict(service, snapshot, &Show { clock: Clock::start(), now: Now::ZERO.plus(NOW) })
}

fn with(pool: PoolView) -> Snapshot {
    Snapshot { pools: [(id(), Arc::new(pool))].into(), ..Snapshot::default() }
}

fn said(service: &ServiceView, pool: Option<PoolView>) -> String {
    of(service, &pool.map_or_else(Snapshot::default, with))
}

fn hold(reason: HeldReason) -> Option<Held> {
    Some(Held { reason, since: Now::ZERO, waits: Waits::Facts, members: BTreeSet::new() })
}

/// Returns a pool that lacks one member and has one too many.
fn differing(state: PoolState) -> PoolView {
    let member = Member { name: AddressName::new("node-1"), node_ready: true };
    let required = [("10.0.0.1".parse().expect("an address"), member)].into();
    let observed = Some(["10.0.0.2".parse().expect("an address")].into());
    PoolView { level: Level { required, ..Level::default() }, observed, ..pool(state) }
}

#[test]
fn h3_each_candidacy_has_its_reason() {
    let told = |candidacy| said(&ServiceView { candidacy, ..service() }, Some(pool(PoolState::InSync)));
    assert_eq!(told(Candidacy::Candidate), "in sync: every pool matches its endpoints");
    assert!(told(Candidacy::NotLocal).starts_with("not managed: spec.externalTrafficPolicy"));
    assert!(told(Candidacy::NotLoadBalancer).starts_with("not managed: spec.type"));
    assert!(told(Candidacy::Deleting).starts_with("not managed: it is being deleted"));
    assert!(told(Candidacy::NotSelected).starts_with("not managed: services.selector"));
}

#[test]
fn h3_a_service_without_rules_or_a_seen_pool_is_never_in_sync() {
    let without = ServiceView { pools: Vec::new(), ..service() };
    assert!(said(&without, None).starts_with("not managed yet: no load-balancing rule"));
    assert_eq!(said(&service(), None), "pool lb/shop-web has not been read yet");
    assert!(said(&service(), Some(pool(PoolState::Unknown))).contains("has not been seen"));
}

#[test]
fn h3_every_state_except_in_sync_names_the_reason_to_wait() {
    for state in PoolState::ALL {
        let said = said(&service(), Some(pool(state)));
        assert_eq!(said.starts_with("in sync"), state == PoolState::InSync, "{said}");
    }
    let failed =
        PoolView { last_error: Some("HTTP 403 AuthorizationFailed".into()), ..pool(PoolState::Failed) };
    let failed = said(&service(), Some(failed));
    assert_eq!(failed, "pool lb/shop-web was not written; last error: HTTP 403 AuthorizationFailed");
    let shown = PoolView { withheld: Some(Default::default()), ..pool(PoolState::Waiting) };
    assert!(said(&service(), Some(shown)).ends_with("this is a dry run"));
}

#[test]
fn g5_a_held_removal_is_named_in_every_state() {
    for reason in HeldReason::ALL {
        for state in PoolState::ALL {
            let told = said(&service(), Some(PoolView { held: hold(reason), ..differing(state) }));
            let says_held = told.contains(&format!("a removal is held back ({})", reason.as_str()));
            assert_eq!(says_held, state != PoolState::Quarantined, "{told}");
            let differs = told.contains("1 missing, 1 surplus");
            assert_eq!(differs, state != PoolState::InSync, "{told}");
            let first = !matches!(state, PoolState::InSync);
            assert_eq!(told.starts_with("pool lb/shop-web: a removal"), !first, "{told}");
        }
    }
}

#[test]
fn g5_a_held_removal_comes_before_a_normal_delay() {
    let seconds = [
        (PoolState::Unknown, "besides, it has not been seen"),
        (PoolState::Waiting, "besides, it waits for its changes"),
        (PoolState::Due, "besides, it has waited for 100 s"),
        (PoolState::Attempting, "besides, it is being written"),
        (PoolState::Parked, "besides, it waits until Azure"),
    ];
    for (state, second) in seconds {
        let told = said(&service(), Some(PoolView { held: hold(HeldReason::Fraction), ..pool(state) }));
        assert!(told.starts_with("pool lb/shop-web: a removal is held back (fraction)"), "{told}");
        assert!(told.contains(second), "{told}");
    }
}

#[test]
fn h3_a_failure_in_any_state_comes_before_a_held_removal() {
    let error: Arc<str> = "HTTP 403 AuthorizationFailed".into();
    for state in PoolState::ALL.into_iter().filter(|state| *state != PoolState::InSync) {
        let failed = PoolView { last_error: Some(Arc::clone(&error)), ..pool(state) };
        let told = said(&service(), Some(PoolView { held: hold(HeldReason::AddOnly), ..failed }));
        let failure = told.find("last error: HTTP 403 AuthorizationFailed").expect("the failure is told");
        let held = told.find("held back").unwrap_or(told.len());
        assert!(failure < held, "{told}");
    }
    let failed = PoolView { last_error: Some(error), ..pool(PoolState::Failed) };
    assert_eq!(
        said(&service(), Some(PoolView { held: hold(HeldReason::AddOnly), ..failed })),
        "pool lb/shop-web was not written; last error: HTTP 403 AuthorizationFailed; besides, a removal is held back \
         (add_only), because the mode add-only removes no member"
    );
}

#[test]
fn h3_the_most_important_of_several_pools_is_named() {
    let second = PoolId::new(LbName::new("lb"), PoolName::new("shop-web-IPv6"));
    let service = ServiceView { pools: vec![id(), second.clone()], ..service() };
    let first = PoolView { held: hold(HeldReason::Fraction), ..pool(PoolState::InSync) };
    let mut snapshot = with(first);
    let failed = PoolView { pool: second.clone(), ..pool(PoolState::Failed) };
    snapshot.pools.insert(second, Arc::new(failed));
    assert_eq!(of(&service, &snapshot), "pool lb/shop-web-IPv6 was not written");
}

#[test]
fn g6_a_pause_has_its_author_start_reason_and_scope() {
    let pause = |by: &str| Pause {
        since: Some(Wall::from_micros(1_700_000_000_000_000)),
        by: Some(by.into()),
        reason: Some("a drill".into()),
    };
    let policy = OperatorPolicy {
        mode: Mode::Enforce,
        everything: Some(pause("restore")),
        pools: [(id(), Pause::default())].into(),
        ..OperatorPolicy::default()
    };
    let policy = PolicyView {
        mode: Mode::Enforce,
        policy: Some(Arc::new(policy)),
        unreadable: Vec::new(),
        leader_waits: false,
        last_error: None,
    };
    let paused = PoolView {
        paused: [PausedBy::Everything, PausedBy::Pool].into(),
        held: hold(HeldReason::Fraction),
        ..differing(PoolState::Paused)
    };
    assert_eq!(
        of(&service(), &Snapshot { policy: Some(policy), ..with(paused) }),
        "pool lb/shop-web is compared and not written: everything is paused (by restore, since \
         2023-11-14T22:13:20.000Z, a drill), and the pool is paused; 1 missing, 1 surplus; besides, a removal is held \
         back (fraction), until a second list confirms the removal of so many members (guards.maxRemovalFraction)"
    );
    let observed = PoolView { paused: [PausedBy::Mode].into(), ..differing(PoolState::Paused) };
    assert_eq!(
        said(&service(), Some(observed)),
        "pool lb/shop-web is compared and not written: the mode is observe; 1 missing, 1 surplus"
    );
}

fn lane() -> LaneView {
    let lb = LbName::new("lb");
    LaneView { lb, writing: None, waiting: Vec::new(), closed: None, fault: None }
}

fn on(lane: LaneView) -> Snapshot {
    Snapshot { lanes: [(lane.lb.clone(), Arc::new(lane))].into(), ..with(due()) }
}

/// Returns a pool that has been due for 21 s.
fn due() -> PoolView {
    PoolView { since: Now::from_millis(79_000), ..pool(PoolState::Due) }
}

fn lease(state: &'static str, holder_kind: LeaseHolderKind) -> Snapshot {
    let lease = SharedLeaseView {
        state,
        holder: Some("another".into()),
        holder_kind,
        held_since: Some(Now::from_millis(40_000)),
        since: Now::from_millis(90_000),
        until: Some(Now::from_millis(105_000)),
        wanted_since: Some(Now::from_millis(80_000)),
        last_error: None,
    };
    Snapshot { shared_lease: Some(lease), ..with(due()) }
}

fn gated(gate: GateView) -> Snapshot {
    Snapshot { gates: [(GateClass::Writes, gate)].into(), ..with(due()) }
}

#[test]
fn h3_a_due_pool_names_its_reason_and_time_to_wait() {
    let later = |why: Blocked| Some(why.until(Now::from_millis(130_000)));
    let other = PoolId::new(LbName::new("lb"), PoolName::new("other"));
    let gate = |blocked| GateView { blocked, tokens: 0.0, capacity: 500.0 };
    let leads = |role, holder: Option<&str>| LeadershipView {
        identity: "us".into(),
        role,
        holder: holder.map(Into::into),
        epoch: Epoch(1),
        since: Now::from_millis(60_000),
        until: None,
        last_error: None,
    };
    let led = |view| Snapshot { leadership: Some(view), ..with(due()) };
    let cases = [
        (
            on(LaneView { fault: Some("HTTP 403 AuthorizationFailed".into()), ..lane() }),
            "one is tried at a time: HTTP 403",
        ),
        (
            on(LaneView { writing: Some((other, "polling", Now::from_millis(93_000))), ..lane() }),
            "at work on pool lb/other for 7 s (polling)",
        ),
        (
            on(LaneView { closed: later(Blocked::LaneLocked), ..lane() }),
            "another operation holds its load balancer's lock for 30 s more",
        ),
        (
            on(LaneView { closed: later(Blocked::LaneInDoubt), ..lane() }),
            "its load balancer is closed for 30 s more",
        ),
        (gated(gate(later(Blocked::Throttled))), "Azure throttles writes for 30 s more"),
        (gated(gate(later(Blocked::Budget))), "the budget for writes is spent for 30 s more"),
        (
            lease("waiting", LeaseHolderKind::Other),
            "the shared Lease, wanted for 20 s, which another, an unknown client, has held for 60 s, for 5 s more at \
             most",
        ),
        (lease("cooldown", LeaseHolderKind::None), "is left to other clients, for 5 s more at most"),
        (led(leads("standby", None)), "no leader is known: this replica has been standby for 40 s"),
        (led(leads("standby", Some("them"))), "does not write it; them leads"),
        (led(leads("leader", Some("us"))), "its turn among the load balancers"),
        (lease("held", LeaseHolderKind::Controller), "its turn among the load balancers"),
        (on(lane()), "its turn among the load balancers"),
    ];
    for (snapshot, cause) in cases {
        let told = of(&service(), &snapshot);
        assert!(told.starts_with("pool lb/shop-web has waited for 21 s: ") && told.contains(cause), "{told}");
    }
}

#[test]
fn h3_a_waiting_pool_names_the_reason_and_the_rest_of_the_wait() {
    for why in Blocked::ALL {
        let waiting =
            PoolView { blocked: Some(why.until(Now::from_millis(130_000))), ..pool(PoolState::Waiting) };
        let expected = format!("pool lb/shop-web waits 30 s more: {}", why.meaning());
        assert_eq!(said(&service(), Some(waiting)), expected);
    }
}

#[test]
fn h3_the_first_reason_in_the_order_of_the_enum_is_named() {
    let throttled = GateView {
        blocked: Some(Blocked::Throttled.until(Now::from_millis(130_000))),
        tokens: 0.0,
        capacity: 500.0,
    };
    let other = PoolId::new(LbName::new("lb"), PoolName::new("other"));
    let busy = LaneView { writing: Some((other, "polling", Now::from_millis(93_000))), ..lane() };
    let gates = [(GateClass::Writes, throttled)].into();
    let both = Snapshot { gates, ..on(busy.clone()) };
    assert!(of(&service(), &both).contains("Azure throttles writes"));
    let fault =
        Snapshot { gates: both.gates.clone(), ..on(LaneView { fault: Some("HTTP 403".into()), ..busy }) };
    assert!(of(&service(), &fault).contains("fail in the same way"));
}

#[test]
fn w10_a_fault_that_stops_writes_comes_before_a_held_removal() {
    let lane = LaneView { fault: Some("HTTP 403".into()), ..lane() };
    let lanes = [(lane.lb.clone(), Arc::new(lane))].into();
    let pool = PoolView { held: hold(HeldReason::AddOnly), ..due() };
    let told = of(&service(), &Snapshot { lanes, ..with(pool) });
    assert!(
        told.find("fail in the same way").expect("the fault") < told.find("held back").expect("the removal"),
        "{told}"
    );
}

#[test]
fn a4_a_quarantined_pool_comes_first_with_its_error() {
    let quarantined = PoolView {
        last_error: Some("a change without an owner waits".into()),
        held: hold(HeldReason::EmptyConfirm),
        ..pool(PoolState::Quarantined)
    };
    assert_eq!(
        said(&service(), Some(quarantined)),
        "pool lb/shop-web is not written any more because of an internal error: report it, and restart the controller \
         to try again; last error: a change without an owner waits"
    );
}

#[test]
fn d2_d6_a_refused_pool_and_a_data_error_are_named() {
    let refused = ServiceView { not_manageable: vec![(id(), NotManageable::OutboundRule)], ..service() };
    assert_eq!(said(&refused, None), "pool lb/shop-web is not written: an outbound rule uses the pool");
    let wrong = ServiceView { data_errors: vec!["node n is not known".into()], ..service() };
    let told = said(&wrong, Some(pool(PoolState::InSync)));
    assert!(told.starts_with("in sync") && told.ends_with("node n is not known"), "{told}");
}

#[test]
fn d5_excluded_nodes_are_named_with_the_rule() {
    let excluded =
        |node: &str, family, why| ExcludedNodeView { node: NodeName::new(node), family, ips: [].into(), why };
    let one = ServiceView {
        excluded: vec![excluded("k3s", Family::V4, ExclusionRule::ExcludedByLabel)],
        ..service()
    };
    let expected = "in sync: every pool matches its endpoints; node k3s is excluded from its IPv4 pool, because it has the \
                    label node.kubernetes.io/exclude-from-external-load-balancers";
    assert_eq!(said(&one, Some(pool(PoolState::InSync))), expected);
    let all = (0..3).map(|n| excluded(&format!("n{n}"), Family::V6, ExclusionRule::OtherFamily));
    let three = ServiceView { excluded: all.collect(), ..service() };
    let expected = "node n0 is excluded from its IPv6 pool, because its endpoints are all of the other address family; 2 more \
                    are excluded";
    assert!(said(&three, Some(pool(PoolState::InSync))).ends_with(expected));
}

#[test]
fn n2_a_required_member_that_is_down_is_named_with_the_reason() {
    let ip = IpAddr::from([10, 0, 0, 1]);
    let member = Member { name: AddressName::new("n1"), node_ready: true };
    let level = Level { required: [(ip, member)].into(), ..Level::default() };
    let down = PoolView {
        level,
        observed: Some([ip].into()),
        observed_down: [ip].into(),
        ..pool(PoolState::InSync)
    };
    let told = said(&service(), Some(down.clone()));
    let expected = "in sync: every pool matches its endpoints; but member n1 (10.0.0.1) of pool lb/shop-web is Down \
                    and gets no new connections (another client has set it Down, or the restored entry has not been \
                    read yet)";
    assert_eq!(told, expected);
    let up = PoolView { observed_down: [].into(), ..down };
    assert_eq!(said(&service(), Some(up)), "in sync: every pool matches its endpoints");
}

#[test]
fn h3_a_verdict_is_about_the_most_important_reason() {
    let reason = |service: &ServiceView, pool: Option<PoolView>| {
        verdict_reason(service, &pool.map_or_else(Snapshot::default, with))
    };
    let of = |pool: PoolView| reason(&service(), Some(pool));
    let elsewhere = ServiceView { candidacy: Candidacy::NotLocal, ..service() };
    assert_eq!(reason(&elsewhere, Some(pool(PoolState::Failed))), VerdictReason::NotManaged);
    assert_eq!(reason(&ServiceView { pools: Vec::new(), ..service() }, None), VerdictReason::NoRule);
    assert_eq!(reason(&service(), None), VerdictReason::OutOfSync);
    for state in PoolState::ALL {
        let expected = match state {
            PoolState::InSync => VerdictReason::InSync,
            PoolState::Quarantined => VerdictReason::Quarantined,
            PoolState::Failed => VerdictReason::Failed,
            PoolState::Paused => VerdictReason::Paused,
            PoolState::Unknown
            | PoolState::Waiting
            | PoolState::Due
            | PoolState::Attempting
            | PoolState::Parked => VerdictReason::OutOfSync,
        };
        assert_eq!(of(pool(state)), expected, "{state:?}");
        let held = of(PoolView { held: hold(HeldReason::Breaker), ..pool(state) });
        assert_eq!(held, expected.min(VerdictReason::Held), "{state:?}, and a removal is held");
    }
    assert_eq!(of(differing(PoolState::Due)), VerdictReason::MissingMembers);
    let in_parts = ServiceView { data_errors: vec!["an endpoint".into()], ..service() };
    assert_eq!(reason(&in_parts, Some(pool(PoolState::InSync))), VerdictReason::Incomplete);
}

#[test]
fn h3_the_reasons_of_verdicts_are_those_of_the_openapi_document() {
    let document = crate::http::openapi_document();
    let words = VerdictReason::ALL.map(VerdictReason::as_str);
    assert_eq!(document["components"]["schemas"]["VerdictReason"]["enum"], serde_json::json!(words));
    assert!(VerdictReason::ALL.is_sorted(), "the worst comes first");
    let documented = include_str!("../../../docs/admin-api.md");
    assert!(words.iter().all(|word| documented.contains(&format!("`{word}`"))), "{words:?}");
}
