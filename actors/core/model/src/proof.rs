//! The proof of ownership that precedes every membership write (D2).

use std::collections::BTreeMap;

use crate::arm::PoolFacts;
use crate::error::NotManageable;
use crate::ids::{Family, RulePrefix, ServiceKey, ServiceUid};

/// Proves that a pool belongs to these Services, or returns why it does not (D2).
///
/// If `services` stand for an xDS source, the proof is that of [`prove_listed`]. Otherwise, the pool has the name of
/// one of the Services. At least one load-balancing rule uses it, and each such rule belongs to one of the Services.
/// No outbound or inbound NAT rule uses it. It has no member by network interface, and Azure does not fill it itself.
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

/// Proves that no other client owns a listed pool that is filled from an xDS source, or returns why this is not
/// proven (D2). No rule of the pool has the prefix of a cloud-controller-manager. The other conditions are those of
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
