//! Verdicts on small snapshots.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pool_core::assignment::Held;
use pool_core::error::NotManageable;
use pool_core::ids::{Family, LbName, PoolName, ServiceKey, ServiceUid};
use pool_core::level::{Level, Provenance, Source};
use pool_core::machine::Now;

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
        pools: vec![id()],
        not_manageable: Vec::new(),
    }
}

fn pool(state: PoolState) -> PoolView {
    PoolView {
        pool: id(),
        family: Family::V4,
        source: Source::Kubernetes,
        services: BTreeMap::new(),
        state,
        since: Now::ZERO,
        level: Level::default(),
        provenance: Provenance::Watch,
        observed: None,
        observed_at: None,
        waiting_since: None,
        next_at: None,
        retries: BTreeMap::new(),
        attempt: None,
        last_end: None,
        last_error: None,
        held: None,
        withheld: None,
        lost_writes: 0,
    }
}

fn said(service: &ServiceView, pool: Option<PoolView>) -> String {
    let pools = pool.into_iter().map(|pool| (id(), Arc::new(pool))).collect();
    verdict(service, &Snapshot { pools, ..Snapshot::default() })
}

#[test]
fn h3_each_candidacy_has_its_reason() {
    let of = |candidacy| said(&ServiceView { candidacy, ..service() }, Some(pool(PoolState::Right)));
    assert_eq!(of(Candidacy::Candidate), "right: every pool of it is as it should be");
    assert!(of(Candidacy::NotLocal).starts_with("not managed: spec.externalTrafficPolicy"));
    assert!(of(Candidacy::NotLoadBalancer).starts_with("not managed: spec.type"));
    assert!(of(Candidacy::Deleting).starts_with("not managed: it is being deleted"));
    assert!(of(Candidacy::NotSelected).starts_with("not managed: services.selector"));
}

#[test]
fn h3_a_service_without_rules_or_without_a_seen_pool_is_never_called_right() {
    let without = ServiceView { pools: Vec::new(), ..service() };
    assert!(said(&without, None).starts_with("not managed yet: no load-balancing rule"));
    assert_eq!(said(&service(), None), "pool lb/shop-web has not been looked at yet");
    assert!(said(&service(), Some(pool(PoolState::Unknown))).contains("has not been seen"));
}

#[test]
fn h3_every_state_but_right_says_what_is_waited_for() {
    for state in PoolState::ALL {
        let said = said(&service(), Some(pool(state)));
        assert_eq!(said.starts_with("right"), state == PoolState::Right, "{said}");
    }
    let failed =
        PoolView { last_error: Some("HTTP 403 AuthorizationFailed".into()), ..pool(PoolState::Failed) };
    let failed = said(&service(), Some(failed));
    assert_eq!(failed, "pool lb/shop-web was not written; last error: HTTP 403 AuthorizationFailed");
    let shown = PoolView { withheld: Some(Default::default()), ..pool(PoolState::Waiting) };
    assert!(said(&service(), Some(shown)).ends_with("this is a dry run"));
}

#[test]
fn g5_a_held_removal_is_told_though_the_pool_is_right() {
    for reason in HeldReason::ALL {
        let held = Held { reason, since: Now::ZERO, until: None, members: BTreeSet::new() };
        let said = said(&service(), Some(PoolView { held: Some(held), ..pool(PoolState::Right) }));
        assert!(said.contains(reason.as_str()), "{said}");
    }
}

#[test]
fn a4_a_quarantined_pool_is_told_with_what_is_wrong_before_all_else() {
    let held =
        Held { reason: HeldReason::EmptyConfirm, since: Now::ZERO, until: None, members: BTreeSet::new() };
    let quarantined = PoolView {
        last_error: Some("a change of nobody waits".into()),
        held: Some(held),
        ..pool(PoolState::Quarantined)
    };
    assert_eq!(
        said(&service(), Some(quarantined)),
        "pool lb/shop-web is quarantined for an error of the controller: report it, and restart the controller to try \
         again; last error: a change of nobody waits"
    );
}

#[test]
fn d2_a_refused_pool_and_d6_a_data_error_are_told() {
    let refused = ServiceView { not_manageable: vec![(id(), NotManageable::OutboundRule)], ..service() };
    assert_eq!(said(&refused, None), "pool lb/shop-web is not written: an outbound rule uses the pool");
    let wrong = ServiceView { data_errors: vec!["node n is not known".into()], ..service() };
    let told = said(&wrong, Some(pool(PoolState::Right)));
    assert!(told.starts_with("right") && told.ends_with("node n is not known"), "{told}");
}
