//! The proof of ownership that precedes every membership write (D2).

use std::collections::BTreeMap;

use crate::arm::PoolFacts;
use crate::error::NotManageable;
use crate::ids::{Family, RulePrefix, ServiceKey, ServiceUid};

/// Proves that a pool belongs to these Services, or returns why it does not (D2).
///
/// If `services` stand for an xDS source, the proof is that of [`prove_listed`]. Otherwise: the pool has the name of
/// one of the Services; at least one rule uses it, and each rule belongs to one of them; no outbound or inbound NAT
/// rule uses it; it has no member by network interface; and Azure does not fill it itself.
///
/// # Errors
/// The first condition that does not hold.
pub fn prove(
    facts: &PoolFacts,
    family: Family,
    services: &BTreeMap<ServiceUid, ServiceKey>,
) -> Result<(), NotManageable> {
    if services.values().any(|key| !key.is_service()) {
        return prove_listed(facts);
    }
    let named = services.values().any(|key| key.pool_name(family) == facts.id.pool);
    if !named {
        let expected =
            services.values().next().map_or_else(|| facts.id.pool.clone(), |key| key.pool_name(family));
        return Err(NotManageable::ForeignName { expected });
    }
    if facts.rules.is_empty() {
        return Err(NotManageable::NoRule);
    }
    let prefixes: Vec<RulePrefix> = services.keys().map(RulePrefix::of).collect();
    if let Some(rule) = facts.rules.iter().find(|rule| !prefixes.iter().any(|prefix| prefix.owns(rule))) {
        return Err(NotManageable::ForeignRule { rule: rule.clone() });
    }
    prove_untouched(facts)
}

/// Proves that no other client owns a listed pool that is filled from an xDS source, or returns why this is not proven
/// (D2): no rule of the pool has the prefix of a cloud-controller-manager; the other conditions are those of
/// [`prove`].
///
/// # Errors
/// The first condition that does not hold.
pub fn prove_listed(facts: &PoolFacts) -> Result<(), NotManageable> {
    match facts.rules.iter().find(|rule| RulePrefix::is_service_rule(rule)) {
        Some(rule) => Err(NotManageable::ServiceRule { rule: rule.clone() }),
        None => prove_untouched(facts),
    }
}

/// Checks that only the owner of its rules fills the pool.
fn prove_untouched(facts: &PoolFacts) -> Result<(), NotManageable> {
    if facts.outbound_rule {
        return Err(NotManageable::OutboundRule);
    }
    if facts.inbound_nat_rule {
        return Err(NotManageable::InboundNatRule);
    }
    if facts.nic_backed {
        return Err(NotManageable::NicBacked);
    }
    if facts.sync_automatic {
        return Err(NotManageable::SyncAutomatic);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{LbName, PoolId, PoolName};

    fn owned() -> (PoolFacts, BTreeMap<ServiceUid, ServiceKey>) {
        let uid = ServiceUid::new("11111111-2222-3333-4444-555555555555");
        let rule = format!("{}-TCP-80", RulePrefix::of(&uid).as_str());
        let id = PoolId::new(LbName::new("lb"), PoolName::new("shop-web"));
        let facts = PoolFacts { rules: vec![rule.into()], ..PoolFacts::at_rest(id, Vec::new()) };
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
        let rule: std::sync::Arc<str> = "afffffffffffffffffffffffffffffff-TCP-80".into();
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
            let mut facts = PoolFacts::at_rest(id, Vec::new());
            change(&mut facts);
            prove_listed(&facts)
        };
        assert_eq!(verdict(|_| ()), Ok(()));
        assert_eq!(verdict(|f| f.rules.push("edge-https".into())), Ok(()));
        // Exactly as many hexadecimal digits as the prefix has.
        let rules = ["a1111111122223333444455555555555-TCP-80", "A1111111122223333444455555555555"];
        for rule in rules.map(std::sync::Arc::from) {
            let expected = NotManageable::ServiceRule { rule: std::sync::Arc::clone(&rule) };
            let id = PoolId::new(LbName::new("lb"), PoolName::new("edge"));
            let facts = PoolFacts { rules: vec![rule], ..PoolFacts::at_rest(id, Vec::new()) };
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
            let mut facts = PoolFacts::at_rest(id, Vec::new());
            change(&mut facts);
            prove(&facts, Family::V4, &services)
        };
        assert_eq!(verdict(|_| ()), Ok(()), "neither a name nor a rule tells whose it is");
        assert_eq!(verdict(|f| f.rules.push("edge-https".into())), Ok(()));
        let rule: std::sync::Arc<str> = "a1111111122223333444455555555555-TCP-80".into();
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
}
