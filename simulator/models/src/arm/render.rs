//! Renders load balancers, pools and their children as JSON directly from borrowed parts, without an intermediate tree.

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};

use super::operation::OperationName;
use super::random::Guid;
use super::settings::Settings;
use super::store::{self, Address, Content, LastWrite, LoadBalancer, Pool, Reference, Rule};

const TYPE: &str = "Microsoft.Network/loadBalancers";

/// Returns the JSON text of a view.
pub(crate) fn text(view: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(view).expect("string keys and plain data always serialise")
}

/// Returns the id of a child of a load balancer.
pub(crate) fn child_id(load_balancer: &str, kind: &str, name: &str) -> String {
    format!("{load_balancer}/{kind}/{name}")
}

/// Provisioning state in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Succeeded,
    Updating,
    Deleting,
    Failed,
}

impl State {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Updating => "Updating",
            Self::Deleting => "Deleting",
            Self::Failed => "Failed",
        }
    }

    fn idle(last: LastWrite) -> Self {
        match last {
            LastWrite::Succeeded => Self::Succeeded,
            LastWrite::Failed => Self::Failed,
        }
    }
}

/// Returns the state of a load balancer.
pub(crate) fn state(lb: &LoadBalancer) -> State {
    match lb.running.as_ref().map(|running| running.name) {
        Some(OperationName::DeleteLoadBalancer) => State::Deleting,
        Some(OperationName::PutPool | OperationName::DeletePool | OperationName::PutLoadBalancer) => {
            State::Updating
        }
        None => State::idle(lb.last_write),
    }
}

/// Returns the state of one pool.
pub(crate) fn pool_state(lb: &LoadBalancer, key: &str, pool: &Pool) -> State {
    match &lb.running {
        Some(running) if running.pool.as_deref() == Some(key) => match running.name {
            OperationName::DeletePool => State::Deleting,
            OperationName::PutPool | OperationName::PutLoadBalancer | OperationName::DeleteLoadBalancer => {
                State::Updating
            }
        },
        Some(_) | None => State::idle(pool.last_write),
    }
}

struct Tag(Guid);

impl Serialize for Tag {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("W/\"{}\"", self.0))
    }
}

struct ChildId<'a>(&'a LoadBalancer, &'a str, &'a str);

impl Serialize for ChildId<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{}/{}/{}", self.0.id, self.1, self.2))
    }
}

/// The reference to a child, `{"id": …}`.
struct Link<'a>(ChildId<'a>);

impl Serialize for Link<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(1))?;
        map.serialize_entry("id", &self.0)?;
        map.end()
    }
}

struct Links<'a, N>(&'a LoadBalancer, &'static str, &'a [N]);

impl<N: AsRef<str>> Serialize for Links<'_, N> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.2.iter().map(|name| Link(ChildId(self.0, self.1, name.as_ref()))))
    }
}

/// A sequence from a closure.
struct Sequence<F>(F);

impl<I: Iterator<Item: Serialize>, F: Fn() -> I> Serialize for Sequence<F> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq((self.0)())
    }
}

/// A map from a closure.
struct Properties<F>(F);

trait WriteEntries {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error>;
}

impl<W: WriteEntries> Serialize for Properties<&W> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        self.0.write(&mut map)?;
        map.end()
    }
}

fn entries<M: SerializeMap>(map: &mut M, more: &Map<String, Value>) -> Result<(), M::Error> {
    more.iter().try_for_each(|(name, value)| map.serialize_entry(name, value))
}

/// A list page.
pub(crate) struct Page<'a, T> {
    pub(crate) value: &'a [T],
    pub(crate) next_link: Option<String>,
}

impl<T: Serialize> Serialize for Page<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("value", self.value)?;
        if let Some(link) = &self.next_link {
            map.serialize_entry("nextLink", link)?;
        }
        map.end()
    }
}

/// A pool as in the answer to a GET or a PUT. The content is separate, because the answer to a PUT has content that
/// reads may not show yet.
pub(crate) struct PoolView<'a> {
    pub(crate) lb: &'a LoadBalancer,
    pub(crate) pool: &'a Pool,
    pub(crate) content: &'a Content,
    pub(crate) state: State,
    pub(crate) settings: &'a Settings,
}

impl<'a> PoolView<'a> {
    pub(crate) fn of(lb: &'a LoadBalancer, key: &str, pool: &'a Pool, settings: &'a Settings) -> Self {
        Self { lb, pool, content: &pool.content, state: pool_state(lb, key, pool), settings }
    }
}

impl Serialize for PoolView<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", &*self.pool.name)?;
        map.serialize_entry("id", &ChildId(self.lb, "backendAddressPools", &self.pool.name))?;
        map.serialize_entry("etag", &Tag(self.lb.etag))?;
        map.serialize_entry("properties", &Properties(self))?;
        map.serialize_entry("type", "Microsoft.Network/loadBalancers/backendAddressPools")?;
        entries(&mut map, &self.content.top)?;
        map.end()
    }
}

impl WriteEntries for PoolView<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let Self { lb, pool, content, .. } = self;
        map.serialize_entry("provisioningState", self.state.text())?;
        entries(map, &content.properties)?;
        let addresses = || content.addresses.iter().map(|address| AddressView { pool: self, address });
        map.serialize_entry("loadBalancerBackendAddresses", &Sequence(addresses))?;
        if pool.nic_backed {
            let interfaces = content.addresses.iter().filter_map(Address::network_interface);
            let configurations: Vec<Value> = interfaces.map(|id| serde_json::json!({ "id": id })).collect();
            map.serialize_entry("backendIPConfigurations", &configurations)?;
        }
        if !pool.rules.is_empty() {
            map.serialize_entry("loadBalancingRules", &Links(lb, "loadBalancingRules", &pool.rules))?;
        }
        if let Some(first) = pool.outbound_rules.first() {
            map.serialize_entry("outboundRule", &Link(ChildId(lb, "outboundRules", first)))?;
            map.serialize_entry("outboundRules", &Links(lb, "outboundRules", &pool.outbound_rules))?;
        }
        if !pool.inbound_nat_rules.is_empty() {
            map.serialize_entry("inboundNatRules", &Links(lb, "inboundNatRules", &pool.inbound_nat_rules))?;
        }
        Ok(())
    }
}

struct AddressView<'a> {
    pool: &'a PoolView<'a>,
    address: &'a Address,
}

impl Serialize for AddressView<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        const TYPE: &str = "Microsoft.Network/loadBalancers/backendAddressPools/loadBalancerBackendAddresses";
        let PoolView { lb, pool, settings, .. } = self.pool;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", &self.address.name)?;
        if settings.address_resource_fields {
            struct Id<'a>(&'a str, &'a str, &'a str);
            impl Serialize for Id<'_> {
                fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                    let Self(lb, pool, name) = self;
                    let parent = format_args!("{lb}/backendAddressPools/{pool}");
                    to.collect_str(&format_args!("{parent}/loadBalancerBackendAddresses/{name}"))
                }
            }
            map.serialize_entry("id", &Id(&lb.id, &pool.name, &self.address.name))?;
            map.serialize_entry("etag", &Tag(lb.etag))?;
        }
        map.serialize_entry("properties", &Properties(self))?;
        if settings.address_resource_fields {
            map.serialize_entry("type", TYPE)?;
        }
        entries(&mut map, &self.address.top)?;
        map.end()
    }
}

impl WriteEntries for AddressView<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        if self.pool.settings.address_resource_fields {
            map.serialize_entry("provisioningState", self.pool.state.text())?;
        }
        entries(map, &self.address.properties)
    }
}

/// A load balancer with all its children.
pub(crate) struct LoadBalancerView<'a> {
    pub(crate) lb: &'a LoadBalancer,
    pub(crate) state: State,
    pub(crate) settings: &'a Settings,
}

impl<'a> LoadBalancerView<'a> {
    pub(crate) fn of(lb: &'a LoadBalancer, settings: &'a Settings) -> Self {
        Self { lb, state: state(lb), settings }
    }
}

impl Serialize for LoadBalancerView<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", &*self.lb.name)?;
        map.serialize_entry("id", &*self.lb.id)?;
        map.serialize_entry("etag", &Tag(self.lb.etag))?;
        map.serialize_entry("type", TYPE)?;
        map.serialize_entry("location", &self.settings.location)?;
        map.serialize_entry("properties", &Properties(self))?;
        let sku = serde_json::json!({"name": self.lb.sku.name(), "tier": "Regional"});
        map.serialize_entry("sku", &sku)?;
        entries(&mut map, &self.lb.top)?;
        map.end()
    }
}

impl<'a> WriteEntries for LoadBalancerView<'a> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let Self { lb, state, settings } = self;
        map.serialize_entry("provisioningState", state.text())?;
        map.serialize_entry("resourceGuid", &lb.resource_guid.to_string())?;
        entries(map, &lb.properties)?;
        let bare = lb.bare_frontends();
        let child = |kind, name, content| ChildView { lb, kind, name, content };
        let given = |kind, known: &'a store::Child| child(kind, &known.name, Child::Given(known));
        let frontends = || {
            let bare = bare.iter().map(|name| child("frontendIPConfigurations", name, Child::Frontend));
            lb.frontends.iter().map(|known| given("frontendIPConfigurations", known)).chain(bare)
        };
        map.serialize_entry("frontendIPConfigurations", &Sequence(frontends))?;
        let pools = || lb.pools.iter().map(|(key, pool)| PoolView::of(lb, key, pool, settings));
        map.serialize_entry("backendAddressPools", &Sequence(pools))?;
        let rules = || lb.rules.iter().map(|rule| child("loadBalancingRules", &rule.name, Child::Rule(rule)));
        map.serialize_entry("loadBalancingRules", &Sequence(rules))?;
        let probes = || {
            let bare = lb.bare_probes().map(|rule| child("probes", &rule.name, Child::Probe(rule)));
            lb.probes.iter().map(|known| given("probes", known)).chain(bare)
        };
        map.serialize_entry("probes", &Sequence(probes))?;
        let nat = || {
            let rules = lb.inbound_nat_rules.iter();
            rules.map(|rule| child("inboundNatRules", &rule.name, Child::Uses(rule)))
        };
        map.serialize_entry("inboundNatRules", &Sequence(nat))?;
        let outbound = || {
            let rules = lb.outbound_rules.iter();
            rules.map(|rule| child("outboundRules", &rule.name, Child::Uses(rule)))
        };
        map.serialize_entry("outboundRules", &Sequence(outbound))?;
        let pools = || lb.inbound_nat_pools.iter().map(|pool| given("inboundNatPools", pool));
        map.serialize_entry("inboundNatPools", &Sequence(pools))
    }
}

/// A child that is not a pool.
struct ChildView<'a> {
    lb: &'a LoadBalancer,
    kind: &'static str,
    name: &'a str,
    content: Child<'a>,
}

#[derive(Clone, Copy)]
enum Child<'a> {
    Frontend,
    Given(&'a store::Child),
    Rule(&'a Rule),
    Probe(&'a Rule),
    Uses(&'a Reference),
}

impl Serialize for ChildView<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", self.name)?;
        map.serialize_entry("id", &ChildId(self.lb, self.kind, self.name))?;
        map.serialize_entry("etag", &Tag(self.lb.etag))?;
        map.serialize_entry("properties", &Properties(self))?;
        struct Type(&'static str);
        impl Serialize for Type {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.collect_str(&format_args!("{TYPE}/{}", self.0))
            }
        }
        map.serialize_entry("type", &Type(self.kind))?;
        if let Child::Given(known) = self.content {
            entries(&mut map, &known.top)?;
        }
        map.end()
    }
}

impl WriteEntries for ChildView<'_> {
    fn write<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let pool = |name| Link(ChildId(self.lb, "backendAddressPools", name));
        map.serialize_entry("provisioningState", "Succeeded")?;
        match self.content {
            Child::Frontend => map.serialize_entry("privateIPAllocationMethod", "Dynamic"),
            Child::Given(known) => entries(map, &known.properties),
            Child::Rule(rule) if !rule.properties.is_empty() => entries(map, &rule.properties),
            Child::Rule(rule) => {
                let frontend = Link(ChildId(self.lb, "frontendIPConfigurations", rule.frontend()));
                map.serialize_entry("backendAddressPool", &pool(&rule.pool))?;
                map.serialize_entry("frontendIPConfiguration", &frontend)?;
                if rule.with_probe {
                    map.serialize_entry("probe", &Link(ChildId(self.lb, "probes", &rule.name)))?;
                }
                map.serialize_entry("protocol", "Tcp")?;
                map.serialize_entry("frontendPort", &80)?;
                map.serialize_entry("backendPort", &80)?;
                map.serialize_entry("enableFloatingIP", &true)?;
                map.serialize_entry("idleTimeoutInMinutes", &4)?;
                map.serialize_entry("loadDistribution", "Default")
            }
            Child::Probe(rule) => {
                map.serialize_entry("protocol", "Http")?;
                map.serialize_entry("port", &10_256)?;
                map.serialize_entry("requestPath", "/healthz")?;
                map.serialize_entry("intervalInSeconds", &5)?;
                map.serialize_entry("numberOfProbes", &2)?;
                let rules = [rule.name.as_ref()];
                map.serialize_entry("loadBalancingRules", &Links(self.lb, "loadBalancingRules", &rules))
            }
            Child::Uses(rule) => {
                if let Some(target) = self.lb.nat_targets.get(&store::key(&rule.name)) {
                    map.serialize_entry("backendIPConfiguration", &serde_json::json!({ "id": target }))?;
                }
                if !rule.properties.is_empty() {
                    return entries(map, &rule.properties);
                }
                if let Some(used) = &rule.pool {
                    map.serialize_entry("backendAddressPool", &pool(used))?;
                }
                map.serialize_entry("protocol", "All")
            }
        }
    }
}
