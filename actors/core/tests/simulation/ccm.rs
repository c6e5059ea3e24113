//! The least of a cloud-controller-manager: makes pools and rules some seconds after a Service appears, takes them
//! away, and sometimes writes a pool in its own way.

use std::collections::{BTreeMap, BTreeSet};

use pool_core::ids::{Family, ServiceKey};
use serde_json::json;
use simulator_models::arm::{ArmModel, PoolSpec, VirtualNetwork};
use simulator_models::kube::KubeModel;

use crate::cluster::{Cluster, address};
use crate::decode::items;
use crate::random::Random;

/// The virtual network of all pools.
pub const NETWORK: &str =
    "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet";

/// A rule that it made, and of which pool it is.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rule {
    /// The load balancer.
    pub lb: String,
    /// The pool.
    pub pool: String,
    /// The rule.
    pub name: String,
}

/// The cloud-controller-manager.
pub struct Ccm {
    random: Random,
    balancers: usize,
    rules: BTreeSet<Rule>,
    /// Pools into which unknown fields were planted and that have not been made anew since.
    pub planted: BTreeSet<(String, String)>,
    /// Pools, by load balancer and name, that an outbound rule uses besides: not to be written (D2).
    pub outbound: BTreeSet<(String, String)>,
    /// In how many of a thousand steps it writes a pool of its own accord.
    pub meddles: u64,
}

/// The name of a load balancer.
pub fn balancer(number: usize) -> String {
    format!("Lb-{number}")
}

impl Ccm {
    /// One that has made nothing yet.
    pub fn new(balancers: usize, random: Random) -> Ccm {
        let (rules, planted, outbound) = Default::default();
        Ccm { random, balancers, rules, planted, outbound, meddles: 0 }
    }

    /// Makes the load balancers, each with pools that are nobody's business.
    pub fn begin(&self, arm: &mut ArmModel) {
        for lb in (0..self.balancers).map(balancer) {
            arm.add_load_balancer(&lb);
            let member = |ip: &str| ("somebody".to_owned(), ip.to_owned());
            let spec = PoolSpec { members: vec![member("10.9.9.9")], ..PoolSpec::default() };
            arm.add_pool(&lb, "kubernetes", &spec);
            arm.add_pool(&lb, "aksOutboundBackendPool", &spec);
            arm.add_outbound_rule(&lb, "outbound", "aksOutboundBackendPool");
        }
    }

    /// How long until its next step, in microseconds.
    pub fn pause(&mut self) -> u64 {
        self.random.between(300_000, 2_500_000)
    }

    fn wanted(&self, cluster: &Cluster) -> BTreeMap<Rule, (Family, String)> {
        let mut wanted = BTreeMap::new();
        for service in cluster.services.values().filter(|service| service.is_candidate()) {
            for family in &service.families {
                let pool = pool_name(&service.key(), *family);
                let rule = Rule { lb: balancer(service.lb), pool, name: service.rule(*family) };
                wanted.insert(rule, (*family, service.name.clone()));
            }
        }
        wanted
    }

    /// Whether every Service has its rules, and nothing else has any.
    pub fn is_done(&self, cluster: &Cluster) -> bool {
        self.rules.iter().eq(self.wanted(cluster).keys())
            && !cluster.services.values().any(|service| service.deleting)
    }

    /// One step; says in words what it did.
    pub fn step(
        &mut self,
        arm: &mut ArmModel,
        kube: &mut KubeModel,
        cluster: &mut Cluster,
        now: u64,
    ) -> String {
        arm.tick(now);
        let wanted = self.wanted(cluster);
        let surplus: Vec<Rule> =
            self.rules.iter().filter(|rule| !wanted.contains_key(rule)).cloned().collect();
        let lacking: Vec<Rule> = wanted.keys().filter(|rule| !self.rules.contains(rule)).cloned().collect();
        let mut words = String::new();
        if let Some(rule) = self.random.pick(&surplus).filter(|rule| !arm.is_updating(&rule.lb)) {
            arm.remove_rule(&rule.lb, &rule.name);
            self.rules.remove(&rule);
            if !self.rules.iter().any(|other| other.lb == rule.lb && other.pool == rule.pool) {
                arm.remove_pool(&rule.lb, &rule.pool);
                self.planted.remove(&(rule.lb.clone(), rule.pool.clone()));
                self.outbound.remove(&(rule.lb.clone(), rule.pool.clone()));
            }
            words = format!("rule gone: {rule:?}");
        } else if let Some(rule) = self.random.pick(&lacking).filter(|rule| !arm.is_updating(&rule.lb)) {
            let (family, service) = &wanted[&rule];
            let probe = cluster.services[service].probe;
            self.make(arm, cluster, &rule, *family, probe);
            words = format!("rule made: {rule:?}");
        }
        let dying: Vec<String> = cluster
            .services
            .values()
            .filter(|service| service.deleting)
            .filter(|service| {
                !self.rules.iter().any(|rule| service.families.iter().any(|f| rule.name == service.rule(*f)))
            })
            .map(|service| service.name.clone())
            .collect();
        for name in dying {
            cluster.finalize_service(kube, now, &name);
        }
        if self.random.per_mille(self.meddles) {
            words = self.meddle(arm, cluster, now);
        }
        words
    }

    fn make(&mut self, arm: &mut ArmModel, cluster: &Cluster, rule: &Rule, family: Family, probe: bool) {
        if arm.members(&rule.lb, &rule.pool).is_none() {
            let members = self.some_nodes(cluster, family);
            let virtual_network = match self.random.below(3) {
                0 => VirtualNetwork::Absent,
                1 => VirtualNetwork::Pool(NETWORK.to_owned()),
                _ => VirtualNetwork::Address(NETWORK.to_owned()),
            };
            arm.add_pool(&rule.lb, &rule.pool, &PoolSpec { virtual_network, members, ..PoolSpec::default() });
            if self.random.per_mille(60) {
                arm.add_outbound_rule(&rule.lb, &format!("outbound-{}", rule.pool), &rule.pool);
                self.outbound.insert((rule.lb.clone(), rule.pool.clone()));
            }
        }
        arm.add_rule(&rule.lb, &rule.name, &rule.pool, probe);
        self.rules.insert(rule.clone());
    }

    fn some_nodes(&mut self, cluster: &Cluster, family: Family) -> Vec<(String, String)> {
        let share = self.random.below(1_001);
        let mut chosen = Vec::new();
        for (name, node) in &cluster.nodes {
            if self.random.per_mille(share) {
                chosen.push((name.clone(), address(node.address, family).to_string()));
            }
        }
        chosen
    }

    /// Writes as it sees fit: a pool's members, the load balancer as a whole, or fields that nobody knows.
    fn meddle(&mut self, arm: &mut ArmModel, cluster: &Cluster, now: u64) -> String {
        let rules: Vec<Rule> = self.rules.iter().cloned().collect();
        let Some(rule) = self.random.pick(&rules) else { return String::new() };
        match self.random.below(10) {
            0 => {
                if (0..self.balancers).any(|number| arm.is_updating(&balancer(number))) {
                    return String::new();
                }
                arm.plant_unknown_fields();
                self.planted = rules.into_iter().map(|rule| (rule.lb, rule.pool)).collect();
                "unknown fields planted".to_owned()
            }
            1..3 => format!("foreign write of {}: {}", rule.lb, arm.foreign_load_balancer_put(&rule.lb, now)),
            _ => {
                let family = if rule.pool.ends_with("-ipv6") { Family::V6 } else { Family::V4 };
                let members = self.some_nodes(cluster, family);
                let members: Vec<(&str, &str)> =
                    members.iter().map(|(name, ip)| (name.as_str(), ip.as_str())).collect();
                let status = arm.foreign_put(&rule.lb, &rule.pool, &members, now);
                format!("foreign write of {}/{}: {members:?} {status}", rule.lb, rule.pool)
            }
        }
    }

    /// The planted fields that did not survive.
    pub fn unplanted(&self, arm: &ArmModel) -> Option<(String, String)> {
        let lacks = |(lb, pool): &&(String, String)| {
            let body = arm.pool_json(lb, pool).unwrap_or_else(|| json!({}));
            body["fieldOfTheFuture"].is_null() || body["properties"]["fieldOfTheFuture"].is_null()
        };
        self.planted.iter().find(lacks).cloned()
    }
}

/// The name of a Service's own pool, as the cloud-controller-manager writes it.
pub fn pool_name(key: &ServiceKey, family: Family) -> String {
    let suffix = if family == Family::V6 { "-ipv6" } else { "" };
    format!("{}-{}{suffix}", key.namespace, key.name).to_lowercase()
}

/// The names of the rules of a pool, as a GET shows them.
pub fn rules_of(pool: &serde_json::Value) -> Vec<String> {
    let rules = items(&pool["properties"]["loadBalancingRules"]).iter();
    rules.filter_map(|rule| Some(rule["id"].as_str()?.rsplit('/').next()?.to_owned())).collect()
}
