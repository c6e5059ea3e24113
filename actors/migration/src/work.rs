//! The required changes, computed from the resources that were read before the first change: load balancers to delete
//! and to create, changes of addresses, and the final references of each node.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use crate::inventory::{Inventory, Membership, Purpose, Scope};
use crate::json::{items, text};
use crate::members::{
    Attachment, Configuration, MemberKind, RemovedReferences, configurations, health_probe,
};
use crate::resource_id::ResourceId;
use crate::target::{Target, cluster_pool, repointed, targets};

/// Fate of a public address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressFate {
    /// The address is kept, and gets the SKU Standard.
    Kept,
    /// Azure cannot keep the address: the resource is deleted and recreated with another address.
    Replaced,
}

/// A public address in scope.
#[derive(Clone, PartialEq, Debug)]
pub struct Address {
    /// The IP address at the time of the read.
    pub ip: Option<IpAddr>,
    /// Fate of the address.
    pub fate: AddressFate,
    /// The body that was read.
    pub body: Value,
}

/// Final references of a node.
#[derive(Clone, PartialEq, Debug)]
pub struct Member {
    /// Kind of its body.
    pub kind: MemberKind,
    /// The references.
    pub attachments: Vec<Attachment>,
    /// The health probe of a scale set.
    pub probe: Option<ResourceId>,
}

/// All required changes.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Work {
    /// The Basic load balancers, which are deleted.
    pub basic: BTreeSet<ResourceId>,
    /// The Standard load balancers.
    pub targets: Vec<Target>,
    /// The public addresses.
    pub addresses: BTreeMap<ResourceId, Address>,
    /// The models and interfaces in scope.
    pub members: BTreeMap<ResourceId, Member>,
    /// Number of instances of the scale sets.
    pub instances: u64,
    /// Virtual machines and instances of nodes that are excluded from all pools.
    pub excluded: BTreeSet<ResourceId>,
    /// Pools whose members must be converted to addresses, by load balancer, with the number of members.
    pub pools: BTreeMap<ResourceId, BTreeMap<String, usize>>,
    /// Public addresses that are temporarily detached from the interfaces of nodes.
    pub detached_addresses: BTreeSet<ResourceId>,
}

impl Work {
    /// Returns the work that follows from an inventory.
    #[must_use]
    pub fn of(inventory: &Inventory) -> Work {
        let scope = Scope::of(inventory);
        if scope.load_balancers.is_empty() {
            return Work::default();
        }
        match inventory.cluster.purpose {
            Purpose::Standard => {}
            Purpose::IpPools => return Work::of_pools(inventory, &scope),
        }
        let targets = targets(inventory, &scope);
        let successors: BTreeMap<ResourceId, ResourceId> = targets
            .iter()
            .flat_map(|target| target.from.iter().map(|from| (from.clone(), target.id.clone())))
            .collect();
        let removed_references = scope.removed_references();
        let joined = Joined { inventory, targets: &targets };
        let members = scope
            .members(inventory)
            .filter(|(_, kind, _)| *kind != MemberKind::Instance)
            .map(|(id, kind, body)| {
                (id.clone(), joined.member(id, kind, body, &removed_references, &successors))
            })
            .collect();
        let addresses =
            scope.addresses.iter().filter_map(|id| Some((id.clone(), address(inventory.body(id)?))));
        let nodes = &inventory.cluster.nodes;
        Work {
            pools: BTreeMap::new(),
            addresses: addresses.collect(),
            members,
            instances: u64::try_from(scope.instances.len()).unwrap_or(u64::MAX),
            excluded: nodes
                .iter()
                .filter(|node| node.excluded)
                .filter_map(|node| node.machine.clone())
                .collect(),
            detached_addresses: removed_references.addresses,
            basic: scope.load_balancers,
            targets,
        }
    }

    fn of_pools(inventory: &Inventory, scope: &Scope) -> Work {
        let mut work = Work::default();
        for (lb, body) in scope.load_balancers.iter().filter_map(|lb| Some((lb, inventory.body(lb)?))) {
            let pools = items(&body["properties"]["backendAddressPools"]).iter();
            let ours = pools.filter(|pool| cluster_pool(text(&pool["name"]), &inventory.cluster).is_some());
            let converted = ours.filter(|pool| by_interface(pool) > 0 && by_address(pool) == 0);
            let counted: BTreeMap<String, usize> =
                converted.map(|pool| (text(&pool["name"]).to_owned(), by_interface(pool))).collect();
            if !counted.is_empty() {
                work.pools.insert(lb.clone(), counted);
            }
        }
        let nodes = scope.members(inventory).filter(|(_, kind, _)| *kind != MemberKind::Instance);
        let detached = |kind| Member { kind, attachments: Vec::new(), probe: None };
        work.members = nodes.map(|(id, kind, _)| (id.clone(), detached(kind))).collect();
        work
    }

    /// Returns the references that are removed from nodes.
    #[must_use]
    pub fn removed_references(&self) -> RemovedReferences {
        let pools = self
            .pools
            .iter()
            .flat_map(|(lb, pools)| pools.keys().map(|pool| lb.child("backendAddressPools", pool)));
        RemovedReferences {
            load_balancers: self.basic.clone(),
            addresses: self.detached_addresses.clone(),
            pools: pools.collect(),
        }
    }

    /// Returns the scale sets.
    pub fn scale_sets(&self) -> impl Iterator<Item = &ResourceId> {
        self.members.iter().filter(|(_, member)| member.kind == MemberKind::Model).map(|(id, _)| id)
    }

    /// Returns the references that a node must have. An instance has those of the model of its scale set.
    #[must_use]
    pub fn member(&self, id: &ResourceId) -> Option<&Member> {
        if self.excluded.contains(id) {
            return None;
        }
        self.members.get(id).or_else(|| self.members.get(&id.up_to("virtualMachineScaleSets")?))
    }
}

/// Returns the number of members of a pool that are interfaces.
pub(crate) fn by_interface(pool: &Value) -> usize {
    items(&pool["properties"]["backendIPConfigurations"]).len()
}

/// Returns the number of members of a pool that are addresses.
pub(crate) fn by_address(pool: &Value) -> usize {
    let entries = items(&pool["properties"]["loadBalancerBackendAddresses"]).iter();
    entries.filter(|entry| !text(&entry["properties"]["ipAddress"]).is_empty()).count()
}

fn address(body: &Value) -> Address {
    let properties = &body["properties"];
    let is_ipv6 = text(&properties["publicIPAddressVersion"]).eq_ignore_ascii_case("IPv6");
    Address {
        ip: text(&properties["ipAddress"]).parse().ok(),
        fate: if is_ipv6 { AddressFate::Replaced } else { AddressFate::Kept },
        body: body.clone(),
    }
}

/// Computes the final references of nodes.
struct Joined<'a> {
    inventory: &'a Inventory,
    targets: &'a [Target],
}

impl Joined<'_> {
    fn member(
        &self,
        id: &ResourceId,
        kind: MemberKind,
        body: &Value,
        removed_references: &RemovedReferences,
        successors: &BTreeMap<ResourceId, ResourceId>,
    ) -> Member {
        let all = configurations(kind, body);
        let joins = self.joins(id, body);
        let mut attachments = Vec::new();
        for configuration in &all {
            let mut attachment = Attachment::of(configuration, removed_references);
            attachment.repoint(|reference| repointed(successors, reference));
            let only = all.iter().filter(|other| other.interface == configuration.interface).count() == 1;
            self.cluster_pools(&mut attachment, configuration, joins, only);
            if !attachment.is_empty() {
                attachments.push(attachment);
            }
        }
        let probe = health_probe(body).and_then(|probe| repointed(successors, &probe));
        Member { kind, attachments, probe }
    }

    /// Returns whether this machine or scale set has a node of the cluster that belongs in pools.
    fn joins(&self, id: &ResourceId, body: &Value) -> bool {
        let machine = ResourceId::new(text(&body["properties"]["virtualMachine"]["id"]));
        let nodes = self.inventory.cluster.nodes.iter().filter(|node| !node.excluded);
        let mut machines = nodes.filter_map(|node| node.machine.as_ref());
        machines.any(|node| *node == machine || node.below(id).is_some())
    }

    /// Adds a node's primary interface to the pools of the cluster. If pools hold addresses, removes these references
    /// instead: the body of the load balancer has the addresses.
    fn cluster_pools(&self, attachment: &mut Attachment, of: &Configuration<'_>, joins: bool, only: bool) {
        for target in self.targets {
            for (pool, is_ipv6) in target.cluster_pools(&self.inventory.cluster) {
                let id = target.id.child("backendAddressPools", pool);
                match self.inventory.cluster.membership {
                    Membership::NodeIp => drop(attachment.pools.remove(&id)),
                    Membership::NodeIpConfiguration => {
                        // The primary configuration is IPv4. A dual-stack node has a further IPv6 configuration on the
                        // same interface.
                        let fits = if is_ipv6 {
                            of.primary_interface && of.is_ipv6()
                        } else {
                            of.is_primary(only) && !of.is_ipv6()
                        };
                        if joins && fits {
                            attachment.pools.insert(id);
                        }
                    }
                }
            }
        }
    }
}
