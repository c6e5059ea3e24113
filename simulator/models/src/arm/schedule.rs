//! Planned events without a request: another client takes an address, or a member of a pool becomes visible.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde_json::{Map, Value, json};

use super::ArmModel;
use super::resource_type::ResourceType;
use super::resources::{Body, Etag, ProviderState, Resource};
use super::store::{Address, key};

/// A planned event.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Another client takes a private address, if it is free.
    TakeAddress { subnet: String, address: IpAddr },
    /// An address becomes visible in a pool that is being converted to IP addresses.
    ShowAddress { load_balancer: String, pool: String, address: Address },
}

/// Planned events, in the order of their times.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schedule {
    planned: BTreeMap<(u64, u64), Event>,
    count: u64,
}

impl Schedule {
    pub(crate) fn plan(&mut self, at: u64, event: Event) {
        self.count += 1;
        self.planned.insert((at, self.count), event);
    }

    pub(crate) fn next(&self) -> Option<u64> {
        self.planned.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn take_due(&mut self, now: u64) -> Option<Event> {
        let first = self.planned.first_entry().filter(|first| first.key().0 <= now)?;
        Some(first.remove())
    }
}

impl ArmModel {
    /// Plans that another client takes a private address this long after it has become free. An earlier request gets
    /// the address.
    pub fn plan_address_taker(&mut self, address: IpAddr, after_us: u64) {
        self.address_takers.insert(address, after_us);
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::TakeAddress { subnet, address } => self.take_address(&subnet, address),
            Event::ShowAddress { load_balancer, pool, address } => {
                let lb = self.balancers.get_mut(&load_balancer);
                if let Some(pool) = lb.and_then(|lb| lb.pools.get_mut(&pool)) {
                    pool.content.addresses.push(address);
                }
                let etag = self.identities.guid();
                if let Some(lb) = self.balancers.get_mut(&load_balancer) {
                    lb.etag = etag;
                }
            }
        }
    }

    /// Gives the address to an interface of another client.
    fn take_address(&mut self, subnet: &str, address: IpAddr) {
        if self.taken_addresses(subnet).contains_key(&address) {
            return;
        }
        let name = format!("rival-{}", address.to_string().replace([':', '.'], "-"));
        let id = ResourceType::NetworkInterface.id(&self.settings.resource_group_id(), &[name]);
        let mut body = Body::default();
        body.top.insert("location".to_owned(), self.settings.location.clone().into());
        let properties = json!({"subnet": {"id": subnet}, "privateIPAllocationMethod": "Static",
            "privateIPAddress": address.to_string(), "primary": true, "privateIPAddressVersion": "IPv4"});
        let configurations = json!([{"name": "ipconfig1", "properties": properties}]);
        body.properties.insert("ipConfigurations".to_owned(), configurations);
        let resource = Resource {
            kind: ResourceType::NetworkInterface,
            id,
            body,
            etag: Etag::Weak(self.identities.guid()),
            guid: self.identities.guid(),
            failed: false,
            running: None,
            provider_state: ProviderState::default(),
        };
        self.resources.insert(resource);
    }

    /// Converts pools from interfaces to IP addresses. The addresses appear one after the other, and interfaces and
    /// instances lose their references. The model of a scale set with manual upgrades keeps its references.
    pub(super) fn migrate_pool(
        &mut self,
        lb_key: &str,
        pool_key: &str,
        members: Vec<(String, String)>,
        network: &str,
    ) {
        let step = self.settings.ip_migration_us;
        let mut at = self.now;
        let mut shown = Vec::new();
        for (name, ip) in members {
            let mut properties = Map::new();
            properties.insert("ipAddress".to_owned(), ip.into());
            let address = Address { name, top: Map::new(), properties };
            if step == 0 {
                shown.push(address);
                continue;
            }
            at = at.saturating_add(step);
            let (load_balancer, pool) = (lb_key.to_owned(), pool_key.to_owned());
            self.schedule.plan(at, Event::ShowAddress { load_balancer, pool, address });
        }
        let Some(pool) = self.balancers.get_mut(lb_key).and_then(|lb| lb.pools.get_mut(pool_key)) else {
            return;
        };
        (pool.derived, pool.nic_backed) = (false, false);
        pool.content.addresses = shown;
        pool.content.properties.insert("syncMode".to_owned(), Value::from("Manual"));
        pool.content.properties.insert("virtualNetwork".to_owned(), json!({ "id": network }));
    }

    /// Returns whether an id names the pool with these keys.
    pub(super) fn names_pool(id: &str, lb_key: &str, pool_key: &str) -> bool {
        super::resources::balancer_child(id)
            .is_some_and(|(balancer, _, pool)| key(balancer) == lb_key && key(pool) == pool_key)
    }
}
