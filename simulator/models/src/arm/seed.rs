//! Fills the model without the rules about new resources, and shows its contents to tests.

use std::collections::BTreeSet;

use serde_json::Value;

use super::addresses::text;
use super::path::Target;
use super::render::{self, LoadBalancerView};
use super::resource_type::ResourceType;
use super::resources::{balancer_child, ip_configurations, link, links};
use super::store::{LoadBalancer, Sku, key};
use super::{ArmModel, Call, Kind, Method, Request};

impl ArmModel {
    /// Creates or replaces a resource by its id: immediately, without permission checks, and even if its SKU is
    /// retired.
    ///
    /// # Errors
    /// The model refuses the resource; the error is the refusal.
    pub fn seed(&mut self, id: &str, body: &Value) -> Result<(), String> {
        let request = Request {
            method: Method::Put,
            path_and_query: format!("{id}?api-version=2025-05-01"),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        let target = Target::parse(&request.path_and_query);
        let kind = Kind::of(request.method, &target.route);
        let times = (self.settings.operation.take(), self.settings.durations.take());
        self.is_seeding = true;
        let call = Call { request: &request, target, kind, now: self.now, answered_at: self.now };
        let answer = self.provide(&call, None);
        self.is_seeding = false;
        (self.settings.operation, self.settings.durations) = times;
        if let Some(lb) =
            call.target.route.load_balancer().and_then(|name| self.balancers.get_mut(&key(name)))
        {
            lb.busy_until = self.now;
        }
        if answer.status < 300 {
            return Ok(());
        }
        Err(format!("{id}: {} {}", answer.status, String::from_utf8_lossy(&answer.body)))
    }

    /// Returns the body that a GET of a resource or of a load balancer would show.
    #[must_use]
    pub fn json(&self, id: &str) -> Option<Value> {
        if let Some(found) = self.resources.get(id) {
            return Some(self.show(found));
        }
        let lb = self.balancers.values().find(|lb| key(&lb.id) == key(id))?;
        serde_json::from_slice(&render::text(&LoadBalancerView::of(lb, &self.settings))).ok()
    }

    /// Returns the ids of all load balancers and resources, in a stable order.
    #[must_use]
    pub fn ids(&self) -> Vec<String> {
        let balancers = self.balancers.values().map(|lb| lb.id.to_string());
        balancers.chain(self.resources.iter().map(|one| one.id.clone())).collect()
    }

    /// Marks the last operation of a resource as failed: its provisioning state is `Failed` until a write succeeds.
    pub fn fail_resource(&mut self, id: &str) {
        if let Some(found) = self.resources.get_mut(id) {
            found.failed = true;
        }
    }

    /// Deallocates a machine or an instance of a scale set, or starts it again.
    pub fn set_deallocated(&mut self, id: &str, is_deallocated: bool) {
        if let Some(found) = self.resources.get_mut(id) {
            found.provider_state.is_deallocated = is_deallocated;
        }
    }

    /// Returns whether a connection to a frontend reaches a machine. Then the load balancer exists, a rule leads from
    /// the frontend to a pool with a running member, and the public IP has an address. With the Standard SKU, a
    /// security group must also admit the port.
    #[must_use]
    pub fn frontend_serves(&self, load_balancer: &str, frontend: &str) -> bool {
        let Some(lb) = self.balancers.get(&key(load_balancer)) else { return false };
        let Some(known) = lb.frontends.iter().find(|known| key(&known.name) == key(frontend)) else {
            return false;
        };
        let address = link(&known.properties, "publicIPAddress").map(|id| self.resources.get(id));
        let has_address = match address {
            Some(found) => found.is_some_and(|found| {
                found.body.properties.contains_key("ipAddress") && found.sku() == lb.sku
            }),
            None => known.properties.contains_key("privateIPAddress"),
        };
        let is_filtered = lb.sku == Sku::Standard && address.is_some();
        has_address
            && lb.rules.iter().any(|rule| {
                let from = link(&rule.properties, "frontendIPConfiguration").and_then(balancer_child);
                let leads = from.is_some_and(|(_, _, name)| key(name) == key(frontend));
                let port = rule.properties.get("backendPort").and_then(Value::as_u64).unwrap_or_default();
                leads && self.serving_members(lb, &rule.pool, is_filtered.then_some(port)) > 0
            })
    }

    /// Returns the number of members of a pool that run and, if a port is given, admit it.
    fn serving_members(&self, lb: &LoadBalancer, pool: &str, port: Option<u64>) -> usize {
        let Some(pool) = lb.pools.get(&key(pool)) else { return 0 };
        let is_member = |id: &str, ip: Option<&str>| {
            pool.content.addresses.iter().any(|member| {
                member.network_interface().is_some_and(|known| key(known) == key(id))
                    || (ip.is_some() && member.text("ipAddress") == ip)
            })
        };
        let mut serving = 0;
        for resource in self.resources.iter().filter(|one| one.kind != ResourceType::ScaleSet) {
            let is_instance = resource.kind == ResourceType::ScaleSetVm;
            let machine = if is_instance { Some(resource) } else { self.machine_of(&resource.id) };
            for one in ip_configurations(resource.kind, &resource.body) {
                let assigned = resource.provider_state.addresses.get(&one.path()).map(String::as_str);
                let ip = assigned.or_else(|| text(one.properties, "privateIPAddress"));
                let runs = machine.is_some_and(|machine| !machine.provider_state.is_deallocated);
                let subnet = link(one.properties, "subnet").and_then(|id| self.subnet(id));
                let group = one
                    .security_group
                    .or_else(|| subnet.and_then(|subnet| link(subnet, "networkSecurityGroup")));
                let lets_in = port.is_none_or(|port| self.lets_in(group, port));
                if runs && lets_in && is_member(&one.id(&resource.id), ip) {
                    serving += 1;
                }
            }
        }
        serving
    }

    fn lets_in(&self, group: Option<&str>, port: u64) -> bool {
        let Some(group) = group.and_then(|id| self.resources.get(id)) else { return false };
        let rules = group.body.properties.get("securityRules").and_then(Value::as_array);
        rules.into_iter().flatten().filter_map(|rule| rule.get("properties")?.as_object()).any(|rule| {
            let is =
                |name: &str, wanted: &str| text(rule, name).is_some_and(|it| it.eq_ignore_ascii_case(wanted));
            let all = rule.get("destinationPortRanges").and_then(Value::as_array);
            let mut ranges =
                all.into_iter().flatten().filter_map(Value::as_str).chain(text(rule, "destinationPortRange"));
            is("direction", "Inbound") && is("access", "Allow") && ranges.any(|range| covers(range, port))
        })
    }

    /// Checks that both sides of every reference agree, and that no machine uses both SKUs.
    ///
    /// # Errors
    /// The first disagreement.
    pub fn check_references(&self) -> Result<(), String> {
        if self.resources.is_empty() {
            return Ok(());
        }
        let users = self.public_ip_users();
        for (address, used_by) in &users {
            if used_by.len() > 1 {
                return Err(format!("{address} has several users: {used_by:?}"));
            }
            let Some(found) = self.resources.get(address) else {
                return Err(format!("{address} is used by {used_by:?} and is not there"));
            };
            if found.provider_state.attached.as_ref() != used_by.first() {
                return Err(format!(
                    "{address} shows {:?} and is used by {used_by:?}",
                    found.provider_state.attached
                ));
            }
        }
        for address in self.resources.of(ResourceType::PublicIpAddress) {
            if address.provider_state.attached.is_some() && !users.contains_key(&address.key()) {
                return Err(format!("{} shows a user that does not use it", address.id));
            }
            let has_address = address.body.properties.contains_key("ipAddress");
            let is_static = text(&address.body.properties, "publicIPAllocationMethod") == Some("Static");
            if has_address != (is_static || address.provider_state.attached.is_some()) {
                return Err(format!("{} has an address: {has_address}", address.id));
            }
        }
        self.check_pools()?;
        self.check_interfaces()?;
        self.check_addresses()
    }

    fn check_pools(&self) -> Result<(), String> {
        for lb in self.balancers.values() {
            for pool in lb.pools.values().filter(|pool| pool.derived) {
                for member in &pool.content.addresses {
                    let id = member.network_interface().unwrap_or_default();
                    let owner = id.split("/ipConfigurations/").next().unwrap_or_default();
                    let owner = owner
                        .split("/networkInterfaces/")
                        .next()
                        .filter(|_| key(id).contains("/virtualmachines/"))
                        .unwrap_or(owner);
                    let Some(found) = self.resources.get(owner) else {
                        return Err(format!("member {id} of {}/{} is not there", lb.name, pool.name));
                    };
                    let refers = ip_configurations(found.kind, found.in_force()).iter().any(|one| {
                        key(&one.id(&found.id)) == key(id)
                            && links(one.properties, "loadBalancerBackendAddressPools")
                                .iter()
                                .any(|used| Self::names_pool(used, &key(&lb.name), &key(&pool.name)))
                    });
                    if !refers {
                        return Err(format!("member {id} of {}/{} does not refer to it", lb.name, pool.name));
                    }
                }
            }
            for frontend in &lb.frontends {
                let address =
                    link(&frontend.properties, "publicIPAddress").and_then(|id| self.resources.get(id));
                if address.is_some_and(|found| found.sku() != lb.sku) {
                    return Err(format!("{} and the address of {} differ in SKU", lb.name, frontend.name));
                }
            }
        }
        Ok(())
    }

    fn check_interfaces(&self) -> Result<(), String> {
        let groups = self.groups();
        let mut skus: std::collections::BTreeMap<String, BTreeSet<Sku>> = std::collections::BTreeMap::new();
        for resource in self.resources.iter() {
            let group = super::interfaces::group_of(resource.kind, &resource.id, &groups);
            skus.entry(group).or_default().extend(self.skus(resource.kind, resource.in_force()));
            if resource.kind != ResourceType::NetworkInterface {
                continue;
            }
            for one in ip_configurations(resource.kind, &resource.body) {
                for used in links(one.properties, "loadBalancerBackendAddressPools") {
                    let shown = balancer_child(used).and_then(|(lb, _, pool)| {
                        let pool = self.balancers.get(&key(lb))?.pools.get(&key(pool))?;
                        let id = one.id(&resource.id);
                        Some(
                            pool.content
                                .addresses
                                .iter()
                                .any(|member| member.network_interface() == Some(&*id)),
                        )
                    });
                    if shown != Some(true) {
                        return Err(format!("{} refers to {used}, which does not show it", resource.id));
                    }
                }
            }
        }
        match skus.iter().find(|(_, skus)| skus.len() > 1) {
            Some((group, _)) => Err(format!("{group} uses both SKUs")),
            None => Ok(()),
        }
    }

    /// Checks that no private address has two holders.
    fn check_addresses(&self) -> Result<(), String> {
        let mut used = BTreeSet::new();
        for resource in self.resources.iter().filter(|one| one.kind != ResourceType::ScaleSet) {
            for one in ip_configurations(resource.kind, &resource.body) {
                let assigned = resource.provider_state.addresses.get(&one.path()).map(String::as_str);
                let ip = assigned.or_else(|| text(one.properties, "privateIPAddress")).map(str::to_owned);
                let subnet = link(one.properties, "subnet").map(key);
                if ip.is_some() && !used.insert((subnet, ip)) {
                    return Err(format!("{} has an address that is in use", one.id(&resource.id)));
                }
            }
        }
        for lb in self.balancers.values() {
            for frontend in &lb.frontends {
                let ip = text(&frontend.properties, "privateIPAddress").map(str::to_owned);
                let subnet = link(&frontend.properties, "subnet").map(key);
                if ip.is_some() && !used.insert((subnet, ip)) {
                    return Err(format!("{} of {} has an address that is in use", frontend.name, lb.name));
                }
            }
        }
        Ok(())
    }
}

/// Returns whether a range such as `80`, `8000-8080` or `*` covers a port.
fn covers(range: &str, port: u64) -> bool {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match range.split_once('-') {
        Some((from, to)) => {
            number(from).zip(number(to)).is_some_and(|(from, to)| (from..=to).contains(&port))
        }
        None => range == "*" || number(range) == Some(port),
    }
}
