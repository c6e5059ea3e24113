//! The scope of the migration, from the resources that were read: the Basic load balancers by name and by reference,
//! the nodes behind them with their whole availability sets and scale sets, and the public addresses of both.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::{Inventory, Purpose};
use crate::json::{id, ids, is_basic, items, text};
use crate::members::{Configuration, MemberKind, RemovedReferences, configurations, health_probe};
use crate::resource_id::ResourceId;

const LOAD_BALANCERS: &str = "loadBalancers";
const SCALE_SETS: &str = "virtualMachineScaleSets";
const INTERFACES: &str = "networkInterfaces";

/// A frontend of a load balancer in scope.
#[derive(Clone, Debug)]
pub struct Frontend<'a> {
    /// The load balancer.
    pub load_balancer: &'a ResourceId,
    /// The name.
    pub name: &'a str,
    /// The public address.
    pub public: Option<ResourceId>,
    /// The subnet.
    pub subnet: Option<ResourceId>,
    /// The private address.
    pub private: Option<IpAddr>,
}

impl<'a> Frontend<'a> {
    /// Returns all frontends of a load balancer.
    pub fn all(load_balancer: &'a ResourceId, body: &'a Value) -> impl Iterator<Item = Frontend<'a>> {
        items(&body["properties"]["frontendIPConfigurations"]).iter().map(move |frontend| {
            let properties = &frontend["properties"];
            Frontend {
                load_balancer,
                name: text(&frontend["name"]),
                public: id(&properties["publicIPAddress"]),
                subnet: id(&properties["subnet"]),
                private: text(&properties["privateIPAddress"]).parse().ok(),
            }
        })
    }
}

/// The resources that the migration changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// The Basic load balancers.
    pub load_balancers: BTreeSet<ResourceId>,
    /// The scale sets behind them.
    pub scale_sets: BTreeSet<ResourceId>,
    /// The instances of these scale sets.
    pub instances: BTreeSet<ResourceId>,
    /// The network interfaces of virtual machines behind them.
    pub interfaces: BTreeSet<ResourceId>,
    /// The Basic public addresses of the load balancers and of the nodes.
    pub addresses: BTreeSet<ResourceId>,
}

impl Scope {
    /// Returns the scope, according to the resources that were read so far. It grows as more resources are read.
    #[must_use]
    pub fn of(inventory: &Inventory) -> Scope {
        let mut scope = Scope::default();
        loop {
            let before = scope.clone();
            scope.add_load_balancers(inventory);
            scope.add_members(inventory);
            if scope == before {
                scope.add_addresses(inventory);
                return scope;
            }
        }
    }

    /// Returns every resource that the migration changes, in a fixed order.
    pub fn changing(&self) -> impl Iterator<Item = &ResourceId> {
        let Scope { load_balancers, scale_sets, instances, interfaces, addresses } = self;
        [load_balancers, scale_sets, instances, interfaces, addresses].into_iter().flatten()
    }

    /// Returns every node: models, instances and interfaces, with their bodies.
    pub fn members<'a>(
        &'a self,
        inventory: &'a Inventory,
    ) -> impl Iterator<Item = (&'a ResourceId, MemberKind, &'a Value)> {
        let ids = [&self.scale_sets, &self.instances, &self.interfaces].into_iter().flatten();
        ids.filter_map(|id| Some((id, MemberKind::of(id)?, inventory.body(id)?)))
    }

    /// Returns all frontends.
    pub fn frontends<'a>(&'a self, inventory: &'a Inventory) -> impl Iterator<Item = Frontend<'a>> {
        self.load_balancers
            .iter()
            .filter_map(|lb| Some((lb, inventory.body(lb)?)))
            .flat_map(|(lb, body)| Frontend::all(lb, body))
    }

    /// Returns the references that are removed from nodes.
    #[must_use]
    pub fn removed_references(&self) -> RemovedReferences {
        RemovedReferences {
            load_balancers: self.load_balancers.clone(),
            addresses: self.addresses.clone(),
            pools: BTreeSet::new(),
        }
    }

    /// Adds the load balancers of the cluster and, for [`Purpose::Standard`], those to which nodes in scope refer.
    fn add_load_balancers(&mut self, inventory: &Inventory) {
        let cluster = &inventory.cluster;
        let named = cluster.load_balancers.iter().flat_map(|name| {
            [name.clone(), format!("{name}-internal")].map(|name| {
                cluster.load_balancer_group.child("providers/Microsoft.Network/loadBalancers", &name)
            })
        });
        let referenced: Vec<ResourceId> =
            self.members(inventory).flat_map(|(_, kind, body)| balancers_of(kind, body)).collect();
        let all: Vec<ResourceId> = match cluster.purpose {
            Purpose::Standard => named.chain(referenced).collect(),
            Purpose::IpPools => named.collect(),
        };
        for lb in all {
            let is_for = cluster.purpose == Purpose::Standard;
            if inventory.body(&lb).is_some_and(|body| is_basic(body) == is_for) {
                self.load_balancers.insert(lb);
            }
        }
    }

    /// Adds the members of load balancers in scope, with their whole scale sets and availability sets. Adds the nodes
    /// of the cluster that belong in pools, too.
    fn add_members(&mut self, inventory: &Inventory) {
        for lb in self.load_balancers.clone() {
            let pools = inventory.body(&lb).map(|body| items(&body["properties"]["backendAddressPools"]));
            for pool in pools.into_iter().flatten() {
                for member in ids(&pool["properties"]["backendIPConfigurations"]) {
                    self.add_member(&member);
                }
            }
            for rule in rules_with_interfaces(inventory.body(&lb)) {
                self.add_member(&rule);
            }
        }
        // A scale set without instances is not in any pool.
        for (id, body) in inventory.of_kind("virtualmachinescalesets") {
            if balancers_of(MemberKind::Model, body).iter().any(|lb| self.load_balancers.contains(lb)) {
                self.scale_sets.insert(id.clone());
            }
        }
        for node in inventory.cluster.nodes.iter().filter(|node| !node.excluded) {
            let Some(machine) = &node.machine else { continue };
            match machine.up_to(SCALE_SETS) {
                Some(scale_set) => drop(self.scale_sets.insert(scale_set)),
                None => self.add_machine(inventory, machine),
            }
        }
        self.add_availability_sets(inventory);
        for scale_set in &self.scale_sets {
            let instances = inventory.items(&scale_set.child_list("virtualMachines"));
            self.instances.extend(instances.iter().filter_map(id));
        }
    }

    fn add_member(&mut self, configuration: &ResourceId) {
        if let Some(scale_set) = configuration.up_to(SCALE_SETS) {
            self.scale_sets.insert(scale_set);
        } else if let Some(interface) = configuration.up_to(INTERFACES) {
            self.interfaces.insert(interface);
        }
    }

    fn add_machine(&mut self, inventory: &Inventory, machine: &ResourceId) {
        let interfaces = inventory
            .body(machine)
            .map(|body| ids(&body["properties"]["networkProfile"]["networkInterfaces"]));
        self.interfaces.extend(interfaces.into_iter().flatten());
    }

    /// Adds all machines of each availability set that has a machine in scope.
    fn add_availability_sets(&mut self, inventory: &Inventory) {
        let machines: Vec<ResourceId> = self.machines(inventory).collect();
        for machine in machines {
            self.add_machine(inventory, &machine);
            let set = inventory.body(&machine).and_then(|body| id(&body["properties"]["availabilitySet"]));
            let set = set.and_then(|set| inventory.body(&set));
            for sibling in set.into_iter().flat_map(|set| ids(&set["properties"]["virtualMachines"])) {
                self.add_machine(inventory, &sibling);
            }
        }
    }

    /// Returns the virtual machines whose interfaces are in scope.
    pub(super) fn machines<'a>(&'a self, inventory: &'a Inventory) -> impl Iterator<Item = ResourceId> + 'a {
        let bodies = self.interfaces.iter().filter_map(|interface| inventory.body(interface));
        bodies.filter_map(|body| id(&body["properties"]["virtualMachine"]))
    }

    fn add_addresses(&mut self, inventory: &Inventory) {
        let of_frontends = self.frontends(inventory).filter_map(|frontend| frontend.public);
        let of_nodes = self
            .members(inventory)
            .flat_map(|(_, kind, body)| configurations(kind, body))
            .filter_map(|configuration| configuration.public_address());
        let all: Vec<ResourceId> = of_frontends.chain(of_nodes).collect();
        self.addresses.extend(all.into_iter().filter(|id| inventory.body(id).is_some_and(is_basic)));
    }
}

/// Returns the load balancers that a body refers to.
pub(super) fn balancers_of(kind: MemberKind, body: &Value) -> Vec<ResourceId> {
    let all = configurations(kind, body);
    let references = all.iter().flat_map(Configuration::references).chain(health_probe(body));
    references.filter_map(|reference| reference.up_to(LOAD_BALANCERS)).collect()
}

fn rules_with_interfaces(body: Option<&Value>) -> Vec<ResourceId> {
    let rules = body.map(|body| items(&body["properties"]["inboundNatRules"]));
    let rules = rules.into_iter().flatten();
    rules.filter_map(|rule| id(&rule["properties"]["backendIPConfiguration"])).collect()
}
