//! The mapping between Services and load balancers: which Service a rule belongs to, and which pools and rules a load
//! balancer was last observed with (D1). Does not decide whether a pool may be written.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::discovery::rules::folded;
use mechanisms::published::Published;
use model::arm::{LbFacts, PoolFacts, Provisioning};
use model::ids::{PoolName, RulePrefix, ServiceUid};
use model::machine::Now;
use model::services::ServiceFact;
use model::view::{Candidacy, ServiceView};

/// All Services, indexed by UID and by the prefix of their rules.
#[derive(Default)]
pub(super) struct Services {
    by_uid: BTreeMap<ServiceUid, MappedService>,
    by_prefix: BTreeMap<Arc<str>, BTreeSet<ServiceUid>>,
    /// Number of prefixes of each length. In a real cluster all have the same length.
    lengths: BTreeMap<usize, usize>,
}

/// One Service.
pub(super) struct MappedService {
    /// The newest fact.
    pub(super) fact: Arc<ServiceFact>,
    /// The prefix of the names of its rules.
    pub(super) prefix: RulePrefix,
    /// The last published view.
    pub(super) published: Published<Option<Arc<ServiceView>>>,
    /// Whether no assignment includes the fact yet.
    pub(super) fresh: bool,
}

impl Services {
    /// Inserts the newest fact of a Service. If the earlier fact was not yet acted on, its doubtful provenance and its
    /// oldest trigger are kept (G1, A3).
    pub(super) fn insert(&mut self, uid: &ServiceUid, mut fact: Arc<ServiceFact>) {
        if let Some(entry) = self.by_uid.get_mut(uid) {
            if entry.fresh {
                ServiceFact::absorb(&mut fact, &entry.fact);
            }
            entry.fact = fact;
            entry.fresh = true;
            return;
        }
        let prefix = RulePrefix::of(uid);
        let text: Arc<str> = Arc::from(prefix.as_str());
        *self.lengths.entry(text.len()).or_default() += 1;
        self.by_prefix.entry(text).or_default().insert(uid.clone());
        self.by_uid.insert(
            uid.clone(),
            MappedService { fact, prefix, published: Published::assumed(None), fresh: true },
        );
    }

    /// Removes a Service and returns its entry.
    pub(super) fn remove(&mut self, uid: &ServiceUid) -> Option<MappedService> {
        let entry = self.by_uid.remove(uid)?;
        let text = entry.prefix.as_str();
        if let Some(sharing) = self.by_prefix.get_mut(text) {
            sharing.remove(uid);
            if sharing.is_empty() {
                self.by_prefix.remove(text);
            }
        }
        if let Some(count) = self.lengths.get_mut(&text.len()) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&text.len());
            }
        }
        Some(entry)
    }

    pub(super) fn get(&self, uid: &ServiceUid) -> Option<&MappedService> {
        self.by_uid.get(uid)
    }

    pub(super) fn get_mut(&mut self, uid: &ServiceUid) -> Option<&mut MappedService> {
        self.by_uid.get_mut(uid)
    }

    /// Returns the UIDs of all Services.
    pub(super) fn uids(&self) -> impl Iterator<Item = &ServiceUid> {
        self.by_uid.keys()
    }

    /// Returns the owners of a rule with this name in lower case: normally one or none.
    pub(super) fn owners<'a>(&'a self, rule: &'a str) -> impl Iterator<Item = &'a ServiceUid> {
        self.lengths.keys().filter_map(move |length| self.by_prefix.get(rule.get(..*length)?)).flatten()
    }

    /// Returns the candidates among the owners of these rules, with their facts.
    pub(super) fn candidate_owners(&self, rules: &[Arc<str>]) -> BTreeMap<ServiceUid, Arc<ServiceFact>> {
        rules
            .iter()
            .flat_map(|rule| self.owners(rule))
            .filter_map(|uid| self.by_uid.get_key_value(uid))
            .filter(|(_, entry)| entry.fact.candidacy == Candidacy::Candidate)
            .map(|(uid, entry)| (uid.clone(), Arc::clone(&entry.fact)))
            .collect()
    }
}

/// A load balancer as last observed.
pub(super) struct ObservedBalancer {
    /// When the GET began.
    pub(super) began: Now,
    /// The result of the GET; `None`: the load balancer does not exist.
    pub(super) facts: Option<Arc<LbFacts>>,
    /// Its pools.
    pub(super) pools: BTreeMap<PoolName, BalancerPool>,
}

/// A pool as last observed within its load balancer.
pub(super) struct BalancerPool {
    /// The observed pool.
    pub(super) facts: Arc<PoolFacts>,
    /// The members: as observed, or as an attempt has left them since.
    pub(super) members: BTreeSet<IpAddr>,
    /// The time at which that GET began or that attempt ended.
    pub(super) at: Now,
    /// The names, in lower case, of the rules that send to the pool.
    pub(super) rules: Vec<Arc<str>>,
    /// Whether one of those rules has no health probe (D4).
    pub(super) unprobed: bool,
}

impl ObservedBalancer {
    /// Builds the view of a load balancer from the result of a GET.
    pub(super) fn new(began: Now, facts: Option<Arc<LbFacts>>) -> ObservedBalancer {
        let mut pools = BTreeMap::new();
        if let Some(facts) = &facts {
            for pool in &facts.pools {
                let mut pool = Arc::clone(pool);
                // Azure programs a load balancer as a whole.
                if (facts.provisioning, pool.provisioning) == (Provisioning::Failed, Provisioning::Succeeded)
                {
                    Arc::make_mut(&mut pool).provisioning = Provisioning::Failed;
                }
                let seen = BalancerPool {
                    members: pool.members(),
                    facts: pool,
                    at: began,
                    rules: Vec::new(),
                    unprobed: false,
                };
                pools.insert(seen.facts.id.pool.clone(), seen);
            }
            for rule in &facts.rules {
                if let Some(seen) = rule.pool.as_ref().and_then(|pool| pools.get_mut(pool)) {
                    seen.rules.push(folded(&rule.name));
                    seen.unprobed |= !rule.probed;
                }
            }
        }
        ObservedBalancer { began, facts, pools }
    }

    /// Keeps the members that attempts left in pools after the GET of this read had begun.
    pub(super) fn keep_newer_members(&mut self, old: &ObservedBalancer) {
        for (name, pool) in &mut self.pools {
            if let Some(old) = old.pools.get(name).filter(|old| old.at > pool.at) {
                (pool.members, pool.at) = (old.members.clone(), old.at);
            }
        }
    }
}
