//! The load-balancing rules of all managed load balancers, indexed by the beginning of their names (D1). Does not
//! decide whether a rule's owner is a candidate.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::arm::LbFacts;
use model::ids::{LbName, PoolName, RulePrefix};

/// Rules by name in lower case and load balancer, with the pool to which each sends.
#[derive(Default)]
pub(crate) struct RuleIndex {
    by_name: BTreeMap<(Arc<str>, LbName), Option<PoolName>>,
}

impl RuleIndex {
    /// Replaces the known rules of one load balancer. Returns whether they differ.
    pub(crate) fn replace(&mut self, lb: &LbName, old: Option<&LbFacts>, new: Option<&LbFacts>) -> bool {
        let before = old.map_or(&[][..], |facts| &facts.rules);
        let after = new.map_or(&[][..], |facts| &facts.rules);
        if before == after {
            return false;
        }
        for rule in before {
            self.by_name.remove(&(folded(&rule.name), lb.clone()));
        }
        for rule in after {
            self.by_name.insert((folded(&rule.name), lb.clone()), rule.pool.clone());
        }
        true
    }

    /// Returns the load balancers of the rules with this Service's prefix, and the pool to which each rule sends.
    pub(crate) fn of(&self, prefix: &RulePrefix) -> impl Iterator<Item = (&LbName, Option<&PoolName>)> {
        let head: Arc<str> = Arc::from(prefix.as_str());
        let from = (Arc::clone(&head), LbName::new(""));
        self.by_name
            .range(from..)
            .take_while(move |((name, _), _)| name.starts_with(&*head))
            .map(|((_, lb), pool)| (lb, pool.as_ref()))
    }
}

/// Returns a rule's name in lower case, as names are compared.
pub(crate) fn folded(name: &Arc<str>) -> Arc<str> {
    if name.bytes().any(|b| b.is_ascii_uppercase()) {
        Arc::from(name.to_ascii_lowercase())
    } else {
        Arc::clone(name)
    }
}
