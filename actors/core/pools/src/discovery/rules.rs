//! The load-balancing rules of all managed load balancers, found by the beginning of their names (D1). Whether
//! a rule's owner is a candidate is for others to say.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::arm::LbFacts;
use model::ids::{LbName, PoolName, RulePrefix};

/// Rules by name in lower case and load balancer, and the pool that each sends to.
#[derive(Default)]
pub(crate) struct RuleIndex {
    by_name: BTreeMap<(Arc<str>, LbName), Option<PoolName>>,
}

impl RuleIndex {
    /// Puts what is known now of one load balancer in the place of what was known before; says whether its
    /// rules differ.
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

    /// Where the rules of the Service with this prefix stand, and the pool that each sends to.
    pub(crate) fn of(&self, prefix: &RulePrefix) -> impl Iterator<Item = (&LbName, Option<&PoolName>)> {
        let head: Arc<str> = Arc::from(prefix.as_str());
        let from = (Arc::clone(&head), LbName::new(""));
        self.by_name
            .range(from..)
            .take_while(move |((name, _), _)| name.starts_with(&*head))
            .map(|((_, lb), pool)| (lb, pool.as_ref()))
    }
}

/// A rule's name as it is compared: in lower case.
pub(crate) fn folded(name: &Arc<str>) -> Arc<str> {
    if name.bytes().any(|b| b.is_ascii_uppercase()) {
        Arc::from(name.to_ascii_lowercase())
    } else {
        Arc::clone(name)
    }
}
