//! Fills the model: load balancers, pools, rules, unknown fields, and the writes of another client.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::journal::{Kind, LogEntry};
use super::operation::{Effect, OperationName};
use super::store::{Address, Content, LastWrite, LoadBalancer, Pool, Reference, Rule, key};
use super::write::PoolWrite;
use super::{ArmModel, Method};

/// A new pool.
#[derive(Clone, Debug, Default)]
pub struct PoolSpec {
    /// Place of the virtual network.
    pub virtual_network: VirtualNetwork,
    /// Name and IP of each member. In a NIC-based pool: name and machine, as in [`PoolSpec::instances`].
    pub members: Vec<(String, String)>,
    /// True if the members are network interfaces; such addresses have GUIDs as names and no IP.
    pub nic_backed: bool,
    /// Virtual machines whose network interfaces are members: `<scale set>/<number>`, a number in the scale set `vmss`,
    /// or the name of a machine outside of scale sets. If there are any, the pool is NIC-based.
    pub instances: Vec<String>,
    /// The pool's `syncMode`; `None` omits it.
    pub sync_mode: Option<SyncMode>,
    /// Further properties, known to the API or not.
    pub properties: Map<String, Value>,
}

/// Position of the virtual network's resource id in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum VirtualNetwork {
    /// Nowhere.
    #[default]
    Absent,
    /// At pool level.
    Pool(String),
    /// In each address.
    Address(String),
    /// In each address, by this subnet.
    Subnet(String),
}

/// Values of `syncMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncMode {
    /// Azure maintains the pool itself.
    Automatic,
    /// Clients write the members.
    Manual,
}

impl ArmModel {
    /// Adds a load balancer; an existing one stays unchanged.
    pub fn add_load_balancer(&mut self, name: &str) {
        self.load_balancer_mut(name);
    }

    /// Adds or replaces a pool; adds its load balancer if it does not exist.
    pub fn add_pool(&mut self, load_balancer: &str, pool: &str, spec: &PoolSpec) {
        let mut properties = Map::new();
        if let VirtualNetwork::Pool(id) = &spec.virtual_network {
            properties.insert("virtualNetwork".to_owned(), json!({ "id": id }));
        }
        if let Some(mode) = spec.sync_mode {
            let mode = match mode {
                SyncMode::Automatic => "Automatic",
                SyncMode::Manual => "Manual",
            };
            properties.insert("syncMode".to_owned(), mode.into());
        }
        properties.extend(spec.properties.clone());
        let members = spec.members.iter();
        let nic_backed = spec.nic_backed || !spec.instances.is_empty();
        let addresses = if nic_backed {
            let machines = members.map(|(_, machine)| machine).chain(&spec.instances);
            machines.map(|machine| self.interface_address(machine)).collect()
        } else {
            members.map(|(name, ip)| ip_address(name, ip, &spec.virtual_network)).collect()
        };
        let content = Content { top: Map::new(), properties, addresses };
        self.change(load_balancer, |lb| {
            let entry = lb.pools.entry(key(pool)).or_insert_with(|| Pool::new(pool, Content::default()));
            entry.content = content.clone();
            entry.nic_backed = nic_backed;
        });
    }

    /// Removes a pool like a finished DELETE; rules that name it stay.
    pub fn remove_pool(&mut self, load_balancer: &str, pool: &str) {
        self.change(load_balancer, |lb| lb.pools.remove(&key(pool)));
    }

    /// Fails an operation of another client on a load balancer: the provisioning state stays `Failed` until an
    /// operation succeeds, and nothing else changes.
    pub fn fail_load_balancer(&mut self, load_balancer: &str) {
        if let Some(lb) = self.balancers.get_mut(&key(load_balancer)) {
            lb.last_write = LastWrite::Failed;
        }
    }

    /// Removes a load balancer with all its children.
    pub fn remove_load_balancer(&mut self, load_balancer: &str) {
        self.balancers.remove(&key(load_balancer));
    }

    /// Adds a load-balancing rule, its frontend, and a probe if requested; a missing pool is added empty.
    pub fn add_rule(&mut self, load_balancer: &str, rule: &str, pool: &str, with_probe: bool) {
        self.change(load_balancer, |lb| {
            let (name, pool) = lb.refer(rule, pool, |pool| &mut pool.rules);
            lb.rules.retain(|rule| rule.name != name);
            lb.rules.push(Rule { name, pool, with_probe, properties: Map::new() });
        });
    }

    /// Removes a load-balancing rule.
    pub fn remove_rule(&mut self, load_balancer: &str, rule: &str) {
        self.change(load_balancer, |lb| {
            lb.rules.retain(|known| &*known.name != rule);
            for pool in lb.pools.values_mut() {
                pool.rules.retain(|known| &**known != rule);
            }
        });
    }

    /// Adds an outbound rule that uses the pool.
    pub fn add_outbound_rule(&mut self, load_balancer: &str, rule: &str, pool: &str) {
        self.change(load_balancer, |lb| {
            let (name, pool) = lb.refer(rule, pool, |pool| &mut pool.outbound_rules);
            lb.outbound_rules.retain(|known| known.name != name);
            lb.outbound_rules.push(Reference { name, pool: Some(pool), properties: Map::new() });
        });
    }

    /// Adds an inbound NAT rule that uses the pool.
    pub fn add_inbound_nat_rule(&mut self, load_balancer: &str, rule: &str, pool: &str) {
        self.change(load_balancer, |lb| {
            let (name, pool) = lb.refer(rule, pool, |pool| &mut pool.inbound_nat_rules);
            lb.inbound_nat_rules.retain(|known| known.name != name);
            lb.inbound_nat_rules.push(Reference { name, pool: Some(pool), properties: Map::new() });
        });
    }

    /// Adds unknown fields to each load balancer, pool and address, at every level.
    pub fn plant_unknown_fields(&mut self) {
        for lb in self.balancers.values_mut() {
            lb.etag = self.identities.guid();
            plant(&mut lb.top, "loadBalancer");
            plant(&mut lb.properties, "loadBalancerProperties");
            for pool in lb.pools.values_mut() {
                plant(&mut pool.content.top, "pool");
                plant(&mut pool.content.properties, "poolProperties");
                for address in &mut pool.content.addresses {
                    plant(&mut address.top, "address");
                    plant(&mut address.properties, "addressProperties");
                }
            }
        }
    }

    /// Writes the members of a pool as another controller would: existing addresses stay unchanged, and new ones get a
    /// name and an IP. The write respects the lock and starts operations like a PUT; returns its status.
    pub fn foreign_put(
        &mut self,
        load_balancer: &str,
        pool: &str,
        members: &[(&str, &str)],
        now_us: u64,
    ) -> u16 {
        self.tick(now_us);
        let now = self.now;
        let answered_at = now.saturating_add(self.settings.put_latency.draw(&mut self.latencies));
        let lb_key = key(load_balancer);
        let found = self.balancers.get(&lb_key).and_then(|lb| lb.pools.get(&key(pool)));
        let mut content = found.map_or_else(Content::default, |pool| pool.content.clone());
        content.addresses.retain(|known| members.iter().any(|(_, ip)| known.text("ipAddress") == Some(*ip)));
        for (name, ip) in members {
            if !content.addresses.iter().any(|known| known.text("ipAddress") == Some(*ip)) {
                content.addresses.push(ip_address(name, ip, &VirtualNetwork::Absent));
            }
        }
        let answer = self.write_pool(PoolWrite {
            load_balancer: &lb_key,
            pool,
            content,
            now,
            answered_at,
            planned_failure: None,
            api_version: "2025-05-01",
            foreign: true,
        });
        let entry = LogEntry {
            started_us: now,
            ended_us: answered_at,
            method: Method::Put,
            kind: Kind::ForeignPoolPut,
            load_balancer: Some(self.interned(load_balancer)),
            pool: Some(pool.into()),
            status: answer.status,
            code: answer.code,
            foreign: true,
        };
        self.journal.record(entry);
        answer.status
    }

    /// Writes the whole load balancer, like a service reconcile: running operations of its pools are canceled and
    /// superseded, the etag changes, and an operation starts if writes are asynchronous.
    pub fn foreign_load_balancer_put(&mut self, load_balancer: &str, now_us: u64) -> u16 {
        self.tick(now_us);
        let now = self.now;
        let answered_at = now.saturating_add(self.settings.put_latency.draw(&mut self.latencies));
        let lb_key = key(load_balancer);
        let status = if self.balancers.contains_key(&lb_key) {
            let id = self.identities.guid();
            self.supersede(&lb_key, (OperationName::PutLoadBalancer, id));
            let etag = self.identities.guid();
            if let Some(lb) = self.balancers.get_mut(&lb_key) {
                lb.etag = etag;
                lb.busy_until = answered_at;
            }
            if let Some(duration) = self.settings.operation {
                let ends_at = self.operation_end(answered_at, duration);
                self.start_on_load_balancer(&lb_key, id, ends_at, now);
            }
            self.journal.counters.applied += 1;
            200
        } else {
            404
        };
        self.journal.record(LogEntry {
            started_us: now,
            ended_us: answered_at,
            method: Method::Put,
            kind: Kind::ForeignLoadBalancerPut,
            load_balancer: Some(self.interned(load_balancer)),
            pool: None,
            status,
            code: None,
            foreign: true,
        });
        status
    }

    /// Returns the id of a new load balancer.
    pub(super) fn new_id(&self, name: &str) -> String {
        let super::Settings { subscription, resource_group, .. } = &self.settings;
        let group = format!("/subscriptions/{subscription}/resourceGroups/{resource_group}");
        format!("{group}/providers/Microsoft.Network/loadBalancers/{name}")
    }

    /// Returns the load balancer; adds it if it does not exist.
    pub(super) fn load_balancer_mut(&mut self, name: &str) -> &mut LoadBalancer {
        let id = self.new_id(name);
        let identities = &mut self.identities;
        self.balancers
            .entry(key(name))
            .or_insert_with(|| LoadBalancer::new(name, id, identities.guid(), identities.guid()))
    }

    /// Changes a load balancer outside any request; its etag changes with it.
    ///
    /// ARM serialises writes of one load balancer. So while a write of the whole load balancer runs, the change comes
    /// after it: the result of that write includes the change.
    fn change<T>(&mut self, name: &str, change: impl Fn(&mut LoadBalancer) -> T) {
        let etag = self.identities.guid();
        let lb = self.load_balancer_mut(name);
        lb.etag = etag;
        if let Some(mut running) = lb.running.take() {
            for effect in [&mut running.on_success, &mut running.on_abort] {
                if let Effect::Replace(lb_content) = effect {
                    let mut left = lb.clone();
                    left.set_content((**lb_content).clone());
                    change(&mut left);
                    **lb_content = left.content();
                }
            }
            lb.running = Some(running);
        }
        change(lb);
    }

    fn interface_address(&self, machine: &str) -> Address {
        let seed = machine.bytes().fold(self.settings.seed, |seed, byte| {
            seed.wrapping_mul(0x0100_0000_01B3).wrapping_add(u64::from(byte))
        });
        let name = super::random::Random::new(seed).guid().to_string();
        let mut properties = Map::new();
        let id = self.ip_configuration(machine);
        properties.insert("networkInterfaceIPConfiguration".to_owned(), json!({ "id": id }));
        Address { name, top: Map::new(), properties }
    }

    /// Returns the id of the first IP configuration of a virtual machine's interface. In a scale set, the interface
    /// is part of the machine; otherwise it is a resource with a name derived from the machine's.
    fn ip_configuration(&self, machine: &str) -> String {
        let super::Settings { subscription, resource_group, .. } = &self.settings;
        let providers = format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers");
        let in_set = if is_number(machine) { Some(("vmss", machine)) } else { machine.split_once('/') };
        if let Some((set, number)) = in_set {
            let machine = format!("virtualMachineScaleSets/{set}/virtualMachines/{number}");
            let interface = format!("networkInterfaces/{set}/ipConfigurations/ipconfig1");
            return format!("{providers}/Microsoft.Compute/{machine}/{interface}");
        }
        let interface = interface_name(machine);
        format!("{providers}/Microsoft.Network/networkInterfaces/{interface}/ipConfigurations/ipconfig1")
    }
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the name of the interface of a machine outside of scale sets: `<machine>-nic`, as Cluster API makes it,
/// and `aks-<pool>-<digits>-nic-<number>` for AKS's `aks-<pool>-<digits>-<number>`.
fn interface_name(machine: &str) -> String {
    let parts = machine.rsplit_once('-').filter(|(rest, number)| {
        let of_aks = rest.starts_with("aks-") && rest.rsplit('-').next().is_some_and(is_number);
        of_aks && is_number(number)
    });
    match parts {
        Some((rest, number)) => format!("{rest}-nic-{number}"),
        None => format!("{machine}-nic"),
    }
}

impl LoadBalancer {
    /// Records in a pool that a rule uses it; returns both names as stored.
    fn refer(
        &mut self,
        rule: &str,
        pool: &str,
        list: impl FnOnce(&mut Pool) -> &mut Vec<Arc<str>>,
    ) -> (Arc<str>, Arc<str>) {
        let entry = self.pools.entry(key(pool)).or_insert_with(|| Pool::new(pool, Content::default()));
        let names = (Arc::from(rule), entry.name.clone());
        let list = list(entry);
        list.retain(|known| *known != names.0);
        list.push(names.0.clone());
        names
    }
}

fn ip_address(name: &str, ip: &str, network: &VirtualNetwork) -> Address {
    let mut properties = Map::new();
    properties.insert("ipAddress".to_owned(), ip.into());
    match network {
        VirtualNetwork::Address(id) => {
            properties.insert("virtualNetwork".to_owned(), json!({ "id": id }));
        }
        VirtualNetwork::Subnet(id) => {
            properties.insert("subnet".to_owned(), json!({ "id": id }));
        }
        VirtualNetwork::Absent | VirtualNetwork::Pool(_) => {}
    }
    Address { name: name.to_owned(), top: Map::new(), properties }
}

fn plant(into: &mut Map<String, Value>, level: &str) {
    let planted = json!({
        "level": level,
        "largest": u64::MAX,
        "smallest": i64::MIN,
        "fraction": 0.1,
        "nothing": null,
        "text": "quote \" backslash \\ newline \n snowman \u{2603} bell \u{7}",
        "nested": [[], {}, [1, "2", {"three": [true, false, null]}]],
    });
    into.insert("fieldOfTheFuture".to_owned(), planted);
}
