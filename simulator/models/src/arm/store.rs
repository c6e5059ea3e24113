//! The load balancers, their pools, and the references to the pools. This module handles neither HTTP nor time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::answer::Answer;
use super::operation::Running;
use super::random::Guid;

/// Number of answers that a load balancer remembers by client request id.
const REMEMBERED_ANSWERS: usize = 32;

/// A load balancer and everything below it. Its etag is also the etag of each child.
#[derive(Clone, Debug)]
pub(crate) struct LoadBalancer {
    pub(crate) name: Arc<str>,
    pub(crate) id: Arc<str>,
    pub(crate) etag: Guid,
    pub(crate) resource_guid: Guid,
    /// Set at creation; no write changes it.
    pub(crate) sku: Sku,
    pub(crate) top: Map<String, Value>,
    pub(crate) properties: Map<String, Value>,
    pub(crate) pools: BTreeMap<String, Pool>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) outbound_rules: Vec<Reference>,
    pub(crate) inbound_nat_rules: Vec<Reference>,
    /// Frontends from a PUT. Rules without properties have additional ones.
    pub(crate) frontends: Vec<Child>,
    /// Probes from a PUT. Rules without properties have additional ones.
    pub(crate) probes: Vec<Child>,
    pub(crate) inbound_nat_pools: Vec<Child>,
    /// IP configurations that use inbound NAT rules, by the keys of the rules.
    pub(crate) nat_targets: BTreeMap<String, String>,
    pub(crate) running: Option<Running>,
    /// End of the lock of a synchronous write, in microseconds.
    pub(crate) busy_until: u64,
    pub(crate) last_write: LastWrite,
    remembered: VecDeque<(String, Answer)>,
}

/// The SKU of load balancers and of public IP addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sku {
    /// The retired SKU.
    Basic,
    /// The SKU that replaces it.
    Standard,
}

impl Sku {
    /// Returns the name in bodies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Basic => "Basic",
            Self::Standard => "Standard",
        }
    }

    /// Returns the SKU that the `sku` of a body names.
    pub(crate) fn of(sku: Option<&Value>) -> Option<Self> {
        let name = sku?.get("name")?.as_str()?;
        [Self::Basic, Self::Standard].into_iter().find(|sku| sku.name().eq_ignore_ascii_case(name))
    }
}

/// End of the last write of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastWrite {
    Succeeded,
    Failed,
}

/// The part of a load balancer that a PUT replaces as a whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoadBalancerContent {
    pub(crate) top: Map<String, Value>,
    pub(crate) properties: Map<String, Value>,
    pub(crate) pools: BTreeMap<String, Pool>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) outbound_rules: Vec<Reference>,
    pub(crate) inbound_nat_rules: Vec<Reference>,
    pub(crate) frontends: Vec<Child>,
    pub(crate) probes: Vec<Child>,
    pub(crate) inbound_nat_pools: Vec<Child>,
}

/// A frontend, a probe or an inbound NAT pool from a PUT.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Child {
    pub(crate) name: Arc<str>,
    /// Fields besides the properties, such as zones.
    pub(crate) top: Map<String, Value>,
    pub(crate) properties: Map<String, Value>,
}

/// A load-balancing rule with its frontend, and its probe if it has one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rule {
    pub(crate) name: Arc<str>,
    pub(crate) pool: Arc<str>,
    pub(crate) with_probe: bool,
    /// Properties from a PUT; empty if the model generates them.
    pub(crate) properties: Map<String, Value>,
}

impl Rule {
    /// Returns the name of the frontend, by the convention of the cloud-controller-manager: the rule's name up to the
    /// first dash.
    pub(crate) fn frontend(&self) -> &str {
        self.name.split('-').next().unwrap_or(&self.name)
    }
}

/// An outbound or inbound NAT rule.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reference {
    pub(crate) name: Arc<str>,
    /// Pool that the rule uses; `None` for an inbound NAT rule of one machine.
    pub(crate) pool: Option<Arc<str>>,
    /// Properties from a PUT; empty if the model generates them.
    pub(crate) properties: Map<String, Value>,
}

/// A backend address pool.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pool {
    pub(crate) name: Arc<str>,
    pub(crate) content: Content,
    pub(crate) last_write: LastWrite,
    /// True if the members are network interfaces.
    pub(crate) nic_backed: bool,
    /// True if the members follow from the interfaces in the model, and not from the setup of a test.
    pub(crate) derived: bool,
    pub(crate) rules: Vec<Arc<str>>,
    pub(crate) outbound_rules: Vec<Arc<str>>,
    pub(crate) inbound_nat_rules: Vec<Arc<str>>,
}

impl Pool {
    pub(crate) fn new(name: &str, content: Content) -> Self {
        Self {
            name: name.into(),
            content,
            last_write: LastWrite::Succeeded,
            nic_backed: false,
            derived: false,
            rules: Vec::new(),
            outbound_rules: Vec::new(),
            inbound_nat_rules: Vec::new(),
        }
    }
}

/// The part of a pool that a PUT replaces as a whole: everything but names, ids, states and references.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Content {
    pub(crate) top: Map<String, Value>,
    pub(crate) properties: Map<String, Value>,
    pub(crate) addresses: Vec<Address>,
}

impl Content {
    pub(crate) fn synchronises_itself(&self) -> bool {
        let mode = self.properties.get("syncMode").and_then(Value::as_str);
        mode.is_some_and(|mode| mode.eq_ignore_ascii_case("Automatic"))
    }
}

/// One backend address.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Address {
    pub(crate) name: String,
    pub(crate) top: Map<String, Value>,
    pub(crate) properties: Map<String, Value>,
}

impl Address {
    pub(crate) fn text(&self, property: &str) -> Option<&str> {
        self.properties.get(property).and_then(Value::as_str)
    }

    pub(crate) fn network_interface(&self) -> Option<&str> {
        self.properties.get("networkInterfaceIPConfiguration")?.get("id")?.as_str()
    }
}

/// Returns the key of a name: Azure compares names without case, and keeps their original case.
pub(crate) fn key(name: &str) -> String {
    name.to_lowercase()
}

impl LoadBalancer {
    pub(crate) fn new(name: &str, id: String, etag: Guid, resource_guid: Guid) -> Self {
        Self {
            name: name.into(),
            id: id.into(),
            etag,
            resource_guid,
            sku: Sku::Standard,
            top: Map::new(),
            properties: Map::new(),
            pools: BTreeMap::new(),
            rules: Vec::new(),
            outbound_rules: Vec::new(),
            inbound_nat_rules: Vec::new(),
            frontends: Vec::new(),
            probes: Vec::new(),
            inbound_nat_pools: Vec::new(),
            nat_targets: BTreeMap::new(),
            running: None,
            busy_until: 0,
            last_write: LastWrite::Succeeded,
            remembered: VecDeque::new(),
        }
    }

    pub(crate) fn remembered(&self, client_request_id: &str) -> Option<&Answer> {
        self.remembered.iter().find(|(id, _)| id == client_request_id).map(|(_, answer)| answer)
    }

    pub(crate) fn remember(&mut self, client_request_id: &str, answer: Answer) {
        if self.remembered.len() == REMEMBERED_ANSWERS {
            self.remembered.pop_front();
        }
        self.remembered.push_back((client_request_id.to_owned(), answer));
    }

    /// Returns the rules of which the model knows only the pool and the probe.
    pub(crate) fn bare_rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().filter(|rule| rule.properties.is_empty())
    }

    /// Returns the frontends that bare rules need and no PUT has set.
    pub(crate) fn bare_frontends(&self) -> Vec<&str> {
        let given = |name: &&str| !self.frontends.iter().any(|known| known.name.eq_ignore_ascii_case(name));
        let mut names: Vec<&str> = self.bare_rules().map(Rule::frontend).filter(given).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Returns the rules whose probes no PUT has set. The probe of a removed rule stays, and the next rule of this name
    /// uses it.
    pub(crate) fn bare_probes(&self) -> impl Iterator<Item = &Rule> {
        let given =
            |rule: &&Rule| self.probes.iter().any(|known| known.name.eq_ignore_ascii_case(&rule.name));
        self.bare_rules().filter(move |rule| rule.with_probe && !given(rule))
    }

    pub(crate) fn content(&self) -> LoadBalancerContent {
        LoadBalancerContent {
            top: self.top.clone(),
            properties: self.properties.clone(),
            pools: self.pools.clone(),
            rules: self.rules.clone(),
            outbound_rules: self.outbound_rules.clone(),
            inbound_nat_rules: self.inbound_nat_rules.clone(),
            frontends: self.frontends.clone(),
            probes: self.probes.clone(),
            inbound_nat_pools: self.inbound_nat_pools.clone(),
        }
    }

    pub(crate) fn set_content(&mut self, lb_content: LoadBalancerContent) {
        self.top = lb_content.top;
        self.properties = lb_content.properties;
        self.pools = lb_content.pools;
        self.rules = lb_content.rules;
        self.outbound_rules = lb_content.outbound_rules;
        self.inbound_nat_rules = lb_content.inbound_nat_rules;
        self.frontends = lb_content.frontends;
        self.probes = lb_content.probes;
        self.inbound_nat_pools = lb_content.inbound_nat_pools;
    }
}
