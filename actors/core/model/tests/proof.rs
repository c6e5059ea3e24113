//! Tests of the proof that a pool is ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::arm::PoolFacts;
use model::error::NotManageable;
use model::ids::{Family, LbName, PoolId, PoolName, RulePrefix, ServiceKey, ServiceUid};
use model::proof::{prove, prove_listed};
use pool_testing::facts::pool_at_rest;

fn owned() -> (PoolFacts, BTreeMap<ServiceUid, ServiceKey>) {
    let uid = ServiceUid::new("11111111-2222-3333-4444-555555555555");
    let rule = format!("{}-TCP-80", RulePrefix::of(&uid).as_str());
    let id = PoolId::new(LbName::new("lb"), PoolName::new("shop-web"));
    let facts = PoolFacts { rules: vec![rule.into()], ..pool_at_rest(id, Vec::new()) };
    (facts, BTreeMap::from([(uid, ServiceKey::new("shop", "web"))]))
}

fn verdict(change: impl FnOnce(&mut PoolFacts)) -> Result<(), NotManageable> {
    let (mut facts, services) = owned();
    change(&mut facts);
    prove(&facts, Family::V4, &services)
}

#[test]
fn d2_each_missing_condition_withholds_the_proof() {
    assert_eq!(verdict(|_| ()), Ok(()));
    let foreign = NotManageable::ForeignName { expected: PoolName::new("shop-web") };
    assert_eq!(verdict(|f| f.id.pool = PoolName::new("kubernetes")), Err(foreign));
    assert_eq!(verdict(|f| f.rules.clear()), Err(NotManageable::NoRule));
    let rule: Arc<str> = "afffffffffffffffffffffffffffffff-TCP-80".into();
    let added = rule.clone();
    assert_eq!(verdict(|f| f.rules.push(added)), Err(NotManageable::ForeignRule { rule }));
    assert_eq!(verdict(|f| f.outbound_rule = true), Err(NotManageable::OutboundRule));
    assert_eq!(verdict(|f| f.inbound_nat_rule = true), Err(NotManageable::InboundNatRule));
    assert_eq!(verdict(|f| f.nic_backed = true), Err(NotManageable::NicBacked));
    assert_eq!(verdict(|f| f.sync_automatic = true), Err(NotManageable::SyncAutomatic));
}

#[test]
fn d2_a_listed_pool_needs_no_rule_and_none_of_a_services_rules() {
    let verdict = |change: fn(&mut PoolFacts)| {
        let id = PoolId::new(LbName::new("lb"), PoolName::new("edge"));
        let mut facts = pool_at_rest(id, Vec::new());
        change(&mut facts);
        prove_listed(&facts)
    };
    assert_eq!(verdict(|_| ()), Ok(()));
    assert_eq!(verdict(|f| f.rules.push("edge-https".into())), Ok(()));
    // Exactly as many hexadecimal digits as the prefix has.
    let rules = ["a1111111122223333444455555555555-TCP-80", "A1111111122223333444455555555555"];
    for rule in rules.map(Arc::from) {
        let expected = NotManageable::ServiceRule { rule: Arc::clone(&rule) };
        let id = PoolId::new(LbName::new("lb"), PoolName::new("edge"));
        let facts = PoolFacts { rules: vec![rule], ..pool_at_rest(id, Vec::new()) };
        assert_eq!(prove_listed(&facts), Err(expected));
    }
    assert_eq!(verdict(|f| f.rules.push("a111111112222333344445555555555-TCP-80".into())), Ok(()));
    assert_eq!(verdict(|f| f.outbound_rule = true), Err(NotManageable::OutboundRule));
    assert_eq!(verdict(|f| f.inbound_nat_rule = true), Err(NotManageable::InboundNatRule));
    assert_eq!(verdict(|f| f.nic_backed = true), Err(NotManageable::NicBacked));
    assert_eq!(verdict(|f| f.sync_automatic = true), Err(NotManageable::SyncAutomatic));
}

#[test]
fn d2_a_pool_with_a_source_needs_the_proof_of_a_listed_pool() {
    let source = "eds:shop";
    let services = BTreeMap::from([(ServiceUid::new(source), ServiceKey::of_source(source))]);
    let verdict = |change: fn(&mut PoolFacts)| {
        let id = PoolId::new(LbName::new("lb"), PoolName::new("edge"));
        let mut facts = pool_at_rest(id, Vec::new());
        change(&mut facts);
        prove(&facts, Family::V4, &services)
    };
    assert_eq!(verdict(|_| ()), Ok(()), "neither a name nor a rule tells whose it is");
    assert_eq!(verdict(|f| f.rules.push("edge-https".into())), Ok(()));
    let rule: Arc<str> = "a1111111122223333444455555555555-TCP-80".into();
    let of_a_service = |f: &mut PoolFacts| f.rules.push("a1111111122223333444455555555555-TCP-80".into());
    assert_eq!(verdict(of_a_service), Err(NotManageable::ServiceRule { rule }));
    assert_eq!(verdict(|f| f.outbound_rule = true), Err(NotManageable::OutboundRule));
    assert_eq!(verdict(|f| f.inbound_nat_rule = true), Err(NotManageable::InboundNatRule));
    assert_eq!(verdict(|f| f.nic_backed = true), Err(NotManageable::NicBacked));
    assert_eq!(verdict(|f| f.sync_automatic = true), Err(NotManageable::SyncAutomatic));
}

#[test]
fn d2_a_pool_named_for_the_other_family_is_not_proven() {
    let (facts, services) = owned();
    assert!(prove(&facts, Family::V6, &services).is_err());
}
