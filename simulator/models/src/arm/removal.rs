//! DELETE of resources other than load balancers, and of load balancers.

use serde_json::Value;

use super::answer::Answer;
use super::durations::TimedWrite;
use super::frontend::Proposal;
use super::lock::Start;
use super::operation::{Effect, OperationName, Running};
use super::requests::is_named;
use super::resource_type::{Provider, ResourcePath, ResourceType};
use super::resources::{Resource, Task, Work, ip_configurations, last, link, links};
use super::rules::Rule;
use super::store::key;
use super::write::PlannedFailure;
use super::{ArmModel, Call};

impl ArmModel {
    pub(super) fn delete_resource(
        &mut self,
        call: &Call,
        path: &ResourcePath,
        planned_failure: PlannedFailure,
    ) -> Answer {
        let id = self.resource_id(path);
        if path.kind.embedded_in().is_some() {
            return self.delete_embedded(&id, path);
        }
        let Some(found) = self.resources.get(&id).cloned() else { return Answer::empty(204) };
        if let Err(refusal) = self.check_at_rest(&found).and_then(|()| self.check_unused(&found)) {
            return refusal;
        }
        self.journal.counters.applied += 1;
        let work = Work { id: self.operation_id(), task: Task::Delete, before: None };
        let version = call.target.query("api-version").unwrap_or_default().to_owned();
        let provider = found.kind.provider();
        self.run(&id, work, call.answered_at, planned_failure, |model, started| match started {
            Some(operation) => {
                let location = model.operation_url(provider, "operationResults", operation, &version);
                let answer = model.asynchronous_of(provider, Answer::empty(202), operation, &version);
                answer.with("Location", location)
            }
            None => Answer::empty(200),
        })
    }

    /// Refuses to delete a resource in use.
    fn check_unused(&self, resource: &Resource) -> Result<(), Answer> {
        let id = &resource.id;
        let user = self.user_of(resource);
        let Some(user) = user else { return Ok(()) };
        let message = format!("{} cannot be deleted because it is in use by {user}.", resource.id);
        let rule = match resource.kind {
            ResourceType::PublicIpAddress => {
                let text = format!(
                    "Public IP address {id} can not be deleted since it is still allocated to resource {user}."
                );
                return Err(Rule::PublicIpCannotBeDeleted.refuse(&text));
            }
            ResourceType::NetworkInterface => Rule::InterfaceInUse,
            ResourceType::VirtualNetwork | ResourceType::Subnet => Rule::SubnetInUse,
            ResourceType::NetworkSecurityGroup | ResourceType::SecurityRule | ResourceType::RouteTable => {
                Rule::SecurityGroupInUse
            }
            ResourceType::NatGateway => Rule::NatGatewayInUse,
            ResourceType::AvailabilitySet
            | ResourceType::VirtualMachine
            | ResourceType::ScaleSet
            | ResourceType::ScaleSetVm => Rule::AvailabilitySetInUse,
        };
        Err(rule.refuse(&message))
    }

    /// Returns the id of a resource's user.
    fn user_of(&self, resource: &Resource) -> Option<String> {
        let id = key(&resource.id);
        match resource.kind {
            ResourceType::PublicIpAddress => resource.provider_state.attached.clone(),
            ResourceType::NetworkInterface => self.machine_of(&id).map(|machine| machine.id.clone()),
            ResourceType::VirtualNetwork => self
                .subnet_users("")
                .into_iter()
                .find(|(subnet, _)| subnet.starts_with(&format!("{id}/")))
                .map(|(_, user)| user),
            ResourceType::NetworkSecurityGroup | ResourceType::RouteTable | ResourceType::NatGateway => {
                self.users_of_subnet_part(&id)
            }
            ResourceType::AvailabilitySet => {
                let inside = |machine: &&Resource| {
                    link(&machine.body.properties, "availabilitySet").is_some_and(|set| key(set) == id)
                };
                self.resources.of(ResourceType::VirtualMachine).find(inside).map(|machine| machine.id.clone())
            }
            ResourceType::Subnet
            | ResourceType::SecurityRule
            | ResourceType::VirtualMachine
            | ResourceType::ScaleSet
            | ResourceType::ScaleSetVm => None,
        }
    }

    /// Returns the machine of an interface.
    pub(super) fn machine_of(&self, interface: &str) -> Option<&Resource> {
        self.resources.of(ResourceType::VirtualMachine).find(|machine| {
            let profile = machine.body.properties.get("networkProfile").and_then(Value::as_object);
            profile.is_some_and(|profile| {
                links(profile, "networkInterfaces").iter().any(|id| key(id) == key(interface))
            })
        })
    }

    /// Returns the keys of subnets with the ids of IP configurations in them; only of one subnet if its id is given.
    pub(super) fn subnet_users(&self, subnet: &str) -> Vec<(String, String)> {
        let mut users = Vec::new();
        let mut add_user = |found: Option<&str>, user: String| {
            if let Some(found) = found.map(key).filter(|found| subnet.is_empty() || *found == key(subnet)) {
                users.push((found, user));
            }
        };
        for resource in self.resources.iter().filter(|one| one.kind != ResourceType::ScaleSet) {
            for configuration in ip_configurations(resource.kind, &resource.body) {
                add_user(link(configuration.properties, "subnet"), configuration.id(&resource.id));
            }
        }
        for balancer in self.balancers.values() {
            for frontend in &balancer.frontends {
                let id = format!("{}/frontendIPConfigurations/{}", balancer.id, frontend.name);
                add_user(link(&frontend.properties, "subnet"), id);
            }
        }
        users
    }

    /// Returns a user of this security group, route table or NAT gateway.
    fn users_of_subnet_part(&self, id: &str) -> Option<String> {
        self.part_users(id).into_iter().next()
    }

    /// Returns the ids of subnets and interfaces that refer to a security group, a route table or a NAT gateway.
    pub(super) fn part_users(&self, id: &str) -> Vec<String> {
        let mut users = Vec::new();
        for network in self.resources.of(ResourceType::VirtualNetwork) {
            let subnets = network.body.properties.get("subnets").and_then(Value::as_array);
            for subnet in subnets.into_iter().flatten() {
                let Some(properties) = subnet.get("properties").and_then(Value::as_object) else { continue };
                let parts = ["networkSecurityGroup", "routeTable", "natGateway"];
                if parts.iter().any(|part| link(properties, part).is_some_and(|used| key(used) == key(id))) {
                    let name = subnet.get("name").and_then(Value::as_str).unwrap_or_default();
                    users.push(format!("{}/subnets/{name}", network.id));
                }
            }
        }
        for interface in self.resources.of(ResourceType::NetworkInterface) {
            if link(&interface.body.properties, "networkSecurityGroup")
                .is_some_and(|used| key(used) == key(id))
            {
                users.push(interface.id.clone());
            }
        }
        users
    }

    /// Removes a resource with everything below it.
    pub(super) fn remove_resource(&mut self, id: &str) {
        let below: Vec<String> = self.resources.instances(id).into_iter().map(Resource::key).collect();
        for instance in below {
            self.resources.remove(&instance);
        }
        self.resources.remove(id);
    }

    fn delete_embedded(&mut self, id: &str, path: &ResourcePath) -> Answer {
        let Some((parent, list)) = path.kind.embedded_in() else { return Answer::empty(204) };
        let parent = parent.id(&self.settings.resource_group_id(), &path.names[..1]);
        if let Some((_, user)) =
            self.subnet_users(id).into_iter().next().filter(|_| path.kind == ResourceType::Subnet)
        {
            let message = format!("Subnet {} is in use by {user} and cannot be deleted.", last(id));
            return Rule::SubnetInUse.refuse(&message);
        }
        let etag = super::resources::Etag::Weak(self.identities.guid());
        let Some(found) = self.resources.get_mut(&parent) else { return Answer::empty(204) };
        let Some(all) = found.body.properties.get_mut(list).and_then(Value::as_array_mut) else {
            return Answer::empty(204);
        };
        let before = all.len();
        all.retain(|one| !is_named(one, last(id)));
        let status = if all.len() == before { 204 } else { 200 };
        if status == 200 {
            found.etag = etag;
        }
        Answer::empty(status)
    }

    /// Handles a DELETE of a load balancer: refused while scale sets use it, otherwise long-running.
    pub(super) fn delete_load_balancer(
        &mut self,
        call: &Call,
        name: &str,
        planned_failure: PlannedFailure,
    ) -> Answer {
        let lb_key = key(name);
        let Some(lb) = self.balancers.get(&lb_key) else { return Answer::empty(204) };
        if let Some(given) = self.mismatched_etag(call, lb, true) {
            self.journal.counters.etag_mismatches += 1;
            return Answer::etag_mismatch(&given, lb.etag, &lb.id);
        }
        if let Some(scale_set) = self.blocking_scale_set(lb) {
            let message = format!(
                "Cannot delete load balancer {} since its child resources {name} are in use by virtual machine scale set {scale_set}.",
                lb.id
            );
            return Rule::LoadBalancerInUse.refuse_with(self.settings.in_use_status, &message);
        }
        let (sku, id) = (lb.sku, lb.id.clone());
        if let Err(refusal) = self.check_members(&Proposal { name, id: &id, sku }) {
            return refusal;
        }
        let operation = self.identities.guid();
        if let Err(refusal) = self.claim(&lb_key, (OperationName::DeleteLoadBalancer, operation), call.now) {
            return refusal;
        }
        self.journal.counters.applied += 1;
        let Some(duration) = self.settings.time_of(TimedWrite::LoadBalancer(sku)) else {
            self.vanish(&lb_key);
            self.follow_references();
            return Answer::empty(200);
        };
        let running = Running {
            id: operation,
            name: OperationName::DeleteLoadBalancer,
            pool: None,
            on_success: Effect::Nothing,
            on_abort: Effect::Nothing,
        };
        let ends_at = self.operation_end(call.answered_at, duration);
        self.start(
            Start { load_balancer: &lb_key, id: operation, running, ends_at, planned_failure },
            call.now,
        );
        let version = call.target.query("api-version").unwrap_or_default();
        let location = self.operation_url(Provider::Network, "operationResults", operation, version);
        self.asynchronous(Answer::empty(202), operation, version).with("Location", location)
    }
}
