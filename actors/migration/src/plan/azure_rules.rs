//! Checks for conditions under which Azure would refuse a change halfway: states, locks, permissions, quotas, names,
//! and mixed SKUs.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Accepted, Blocker, Findings, Reason};
use crate::inventory::{Inventory, Listed, ReadResult, Scope};
use crate::json::{id, ids, is_basic, items, provisioning, text};
use crate::members::{Configuration, MemberKind, configurations, health_probe, is_basic_configuration};
use crate::resource_id::ResourceId;
use crate::work::Work;

/// The permissions that the steps need.
const RIGHTS: [&str; 14] = [
    "Microsoft.Network/loadBalancers/read",
    "Microsoft.Network/loadBalancers/write",
    "Microsoft.Network/loadBalancers/delete",
    "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
    "Microsoft.Network/publicIPAddresses/read",
    "Microsoft.Network/publicIPAddresses/write",
    "Microsoft.Network/publicIPAddresses/join/action",
    "Microsoft.Network/virtualNetworks/read",
    "Microsoft.Network/virtualNetworks/subnets/join/action",
    "Microsoft.Network/networkInterfaces/write",
    "Microsoft.Compute/virtualMachineScaleSets/read",
    "Microsoft.Compute/virtualMachineScaleSets/write",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
    "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write",
];

/// Types of resources that can be, or refer to, a Basic load balancer.
const HIDING: [&str; 4] =
    ["loadbalancers", "virtualmachinescalesets", "virtualmachines", "networkinterfaces"];

/// Runs all checks.
pub(super) fn check(inventory: &Inventory, work: &Work, _: &Accepted, findings: &mut Findings) {
    let scope = Scope::of(inventory);
    check_nodes(inventory, &scope, findings);
    rights(inventory, &scope, findings);
    quotas(inventory, work, findings);
    names(inventory, work, findings);
    mixed(inventory, &scope, findings);
    security_groups(inventory, &scope, findings);
    special_addresses(inventory, &scope, findings);
    floating_ip(inventory, &scope, findings);
}

/// Runs the checks that every change of nodes needs.
pub(super) fn check_nodes(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    unreadable(inventory, findings);
    states(inventory, scope, findings);
    scale_sets(inventory, scope, findings);
    instances(inventory, scope, findings);
    locks(inventory, findings);
}

/// Checks whether resources that cannot be read may be, or refer to, a Basic load balancer.
pub(super) fn check_scope(inventory: &Inventory, findings: &mut Findings) {
    let mut all = Findings::default();
    unreadable(inventory, &mut all);
    let hides = |blocker: &Blocker| {
        let id = ResourceId::new(&blocker.object);
        // A list is identified by its last segment, a resource by the type before its name.
        [id.kind(), &id.name().to_ascii_lowercase()].iter().any(|kind| HIDING.contains(kind))
    };
    findings.blockers.extend(all.blockers.into_iter().filter(hides));
}

fn unreadable(inventory: &Inventory, findings: &mut Findings) {
    let resources = inventory.resources.iter().filter_map(|(id, found)| match found {
        ReadResult::Unreadable(reason) => Some((id, reason)),
        ReadResult::Body(_) | ReadResult::Absent => None,
    });
    let lists = inventory.lists.iter().filter_map(|(id, listed)| match listed {
        Listed::Unreadable(reason) => Some((id, reason)),
        Listed::Items(_) => None,
    });
    for (id, reason) in resources.chain(lists) {
        let remedy = "grant the right to read it, and plan again";
        findings.block(Reason::Unreadable, id, format!("it could not be read: {reason}"), remedy);
    }
}

fn states(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    for (id, body) in scope.changing().filter_map(|id| Some((id, inventory.body(id)?))) {
        let state = provisioning(body);
        let remedy = match state.as_str() {
            "succeeded" | "" => continue,
            "failed" | "canceled" => {
                "read it and write it back unchanged, which usually repairs it, and plan again"
            }
            _ => "wait until the operation has ended, and plan again",
        };
        findings.block(Reason::NotSucceeded, id, format!("its provisioning state is {state}"), remedy);
    }
}

fn scale_sets(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    for (id, body) in scope.scale_sets.iter().filter_map(|id| Some((id, inventory.body(id)?))) {
        let properties = &body["properties"];
        if text(&properties["orchestrationMode"]).eq_ignore_ascii_case("Flexible") {
            let remedy = "move its nodes to a uniform scale set or to an availability set";
            findings.block(
                Reason::FlexibleScaleSet,
                id,
                "it is flexible, which Basic does not support",
                remedy,
            );
        }
        let policy = &properties["upgradePolicy"];
        if text(&policy["mode"]).eq_ignore_ascii_case("Rolling") {
            let remedy = "set upgradePolicy.mode to Manual until the migration has ended";
            findings.block(Reason::UpgradePolicy, id, "its upgrade policy is Rolling", remedy);
        }
        let automatic =
            policy["automaticOSUpgradePolicy"]["enableAutomaticOSUpgrade"].as_bool() == Some(true);
        if automatic && health_probe(body).is_some() {
            findings.block(
                Reason::UpgradePolicy,
                id,
                "automatic OS upgrades check its instances with a probe of the load balancer",
                "switch automatic OS upgrades off until the migration has ended",
            );
        }
    }
}

fn instances(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    let mut pending = Vec::new();
    for (id, body) in scope.instances.iter().filter_map(|id| Some((id, inventory.body(id)?))) {
        let properties = &body["properties"];
        if properties["protectionPolicy"]["protectFromScaleSetActions"].as_bool() == Some(true) {
            let remedy = "remove the protection from scale set actions until the migration has ended";
            findings.block(Reason::ProtectedInstance, id, "it is protected from scale set actions", remedy);
        }
        let statuses =
            items(&properties["instanceView"]["statuses"]).iter().map(|status| text(&status["code"]));
        let power = statuses.filter_map(|code| code.strip_prefix("PowerState/")).next();
        if let Some(power) = power.filter(|power| *power != "running") {
            let remedy = "start it or delete it, and plan again";
            findings.block(Reason::InstanceNotRunning, id, format!("its power state is {power}"), remedy);
        }
        if properties["latestModelApplied"].as_bool() == Some(false) {
            pending.push(id.name());
        }
    }
    if !pending.is_empty() {
        findings.add_notice(format!(
            "The model of the scale set has changes that instances {} do not have yet. The migration applies only what is \
             about networks.",
            pending.join(", ")
        ));
    }
}

fn locks(inventory: &Inventory, findings: &mut Findings) {
    let lists = inventory.lists.keys().filter(|id| id.name().eq_ignore_ascii_case("locks"));
    for lock in lists.flat_map(|list| inventory.items(list)) {
        let level = text(&lock["properties"]["level"]);
        let object = text(&lock["id"]);
        let remedy = "remove the lock until the migration has ended";
        findings.block(
            Reason::Locked,
            object,
            format!("a lock of level {level} is on it or above it"),
            remedy,
        );
    }
}

fn rights(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    let has_scale_sets = !scope.scale_sets.is_empty();
    for list in inventory.lists.keys().filter(|id| id.name().eq_ignore_ascii_case("permissions")) {
        let permissions = inventory.items(list);
        let may = |right: &str| {
            permissions.iter().any(|permission| {
                let named =
                    |key: &str| items(&permission[key]).iter().any(|action| matches(text(action), right));
                named("actions") && !named("notActions")
            })
        };
        let needed = RIGHTS.iter().filter(|right| has_scale_sets || !right.contains("ScaleSets"));
        let missing: Vec<&str> = needed.copied().filter(|right| !may(right)).collect();
        if !missing.is_empty() {
            let group = list.as_str().split("/providers/").next().unwrap_or_default();
            let finding = format!("rights are missing: {}", missing.join(", "));
            findings.block(Reason::MissingRight, group, finding, "grant them for this resource group");
        }
    }
}

/// Returns whether an action matches a pattern, in which `*` stands for any text.
fn matches(pattern: &str, action: &str) -> bool {
    let (pattern, action) = (pattern.to_ascii_lowercase(), action.to_ascii_lowercase());
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| action.strip_prefix(first)) else { return false };
    let mut last = None;
    for part in parts {
        last = Some(part);
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    last.map_or(rest.is_empty(), |last| last.is_empty() || rest.is_empty() || action.ends_with(last))
}

fn quotas(inventory: &Inventory, work: &Work, findings: &mut Findings) {
    let with_family = |ipv6: bool| {
        work.addresses.values().filter(|address| address.ip.is_some_and(|ip| ip.is_ipv6()) == ipv6).count()
    };
    let needed = [
        ("StandardSkuLoadBalancers", work.targets.len()),
        ("StandardSkuPublicIpAddresses", work.addresses.len()),
        ("IPv4StandardSkuPublicIpAddresses", with_family(false)),
        ("IPv6StandardSkuPublicIpAddresses", with_family(true)),
    ];
    for list in inventory.lists.keys().filter(|id| id.name().eq_ignore_ascii_case("usages")) {
        for usage in inventory.items(list) {
            let name = text(&usage["name"]["value"]);
            let Some((_, needed)) = needed.iter().find(|(quota, _)| quota.eq_ignore_ascii_case(name)) else {
                continue;
            };
            let (Some(limit), Some(current)) = (usage["limit"].as_u64(), usage["currentValue"].as_u64())
            else {
                continue;
            };
            let free = limit.saturating_sub(current);
            if u64::try_from(*needed).unwrap_or(u64::MAX) > free {
                let finding = format!("{needed} are needed and {free} of {limit} are free");
                findings.block(Reason::Quota, name, finding, "ask Azure for a higher quota");
            }
        }
    }
}

fn names(inventory: &Inventory, work: &Work, findings: &mut Findings) {
    for target in &work.targets {
        let is_taken = !work.basic.contains(&target.id) && inventory.body(&target.id).is_some();
        if is_taken {
            findings.block(
                Reason::NameInUse,
                &target.id,
                "a load balancer of this name exists already",
                "delete it if it serves nothing, or name another one in the cloud configuration",
            );
        }
        for conflict in &target.conflicts {
            let finding = format!("the load balancers that merge have different settings for {conflict}");
            findings.block(Reason::NameConflict, &target.id, finding, "rename one of them");
        }
    }
}

/// Finds nodes that already use the Standard SKU in part: Azure refuses a node with both SKUs.
fn mixed(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    for (id, kind, body) in scope.members(inventory) {
        let all = configurations(kind, body);
        let is_standard = |id: &ResourceId| inventory.body(id).is_some_and(|body| !is_basic(body));
        let balancers = all.iter().flat_map(Configuration::references);
        let balancers = balancers.filter_map(|reference| reference.up_to("loadBalancers"));
        let addresses = all.iter().filter_map(Configuration::public_address);
        let standard: BTreeSet<ResourceId> = balancers.chain(addresses).filter(is_standard).collect();
        let own =
            all.iter().filter_map(Configuration::instance_address).any(|own| !is_basic_configuration(own));
        if !standard.is_empty() || own {
            let names: Vec<&str> = standard.iter().map(ResourceId::name).collect();
            let what =
                if names.is_empty() { "public addresses of its own".to_owned() } else { names.join(", ") };
            findings.block(
                Reason::MixedSku,
                id,
                format!("it refers to resources with the SKU Standard: {what}"),
                "remove these references first: Azure refuses nodes with both SKUs",
            );
        }
    }
}

fn security_groups(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    if !scope.frontends(inventory).any(|frontend| frontend.public.is_some()) {
        return;
    }
    let in_subnet = |subnet: &ResourceId| {
        inventory.body(subnet).is_some_and(|body| id(&body["properties"]["networkSecurityGroup"]).is_some())
    };
    for (node, kind, body) in scope.members(inventory).filter(|(_, kind, _)| *kind != MemberKind::Instance) {
        let own = crate::inventory::security_groups(kind, body);
        let all = configurations(kind, body);
        let covered = all.iter().filter_map(Configuration::subnet).all(|subnet| in_subnet(&subnet));
        if own.is_empty() && !covered {
            findings.block(
                Reason::NoSecurityGroup,
                node,
                "neither it nor its subnet has a network security group: a public Standard frontend blocks \
                 inbound traffic without one",
                "attach a network security group that allows the ports of the Services",
            );
        }
    }
}

fn special_addresses(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    for (address, body) in scope.addresses.iter().filter_map(|id| Some((id, inventory.body(id)?))) {
        let properties = &body["properties"];
        let phase = text(&properties["migrationPhase"]);
        if id(&properties["publicIPPrefix"]).is_some() {
            let remedy = "move the Service to an address of its own first";
            findings.block(Reason::SpecialAddress, address, "it comes from a public IP prefix", remedy);
        }
        if id(&properties["linkedPublicIPAddress"]).is_some() || !matches!(phase, "" | "None") {
            let remedy = "finish or abort the migration from the classic model that it is part of";
            findings.block(
                Reason::SpecialAddress,
                address,
                "another migration of this address is not finished",
                remedy,
            );
        }
    }
}

fn floating_ip(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    let mut floating = BTreeSet::new();
    for lb in scope.load_balancers.iter().filter_map(|lb| inventory.body(lb)) {
        let rules = items(&lb["properties"]["loadBalancingRules"]).iter().map(|rule| &rule["properties"]);
        for rule in rules.filter(|rule| rule["enableFloatingIP"].as_bool() == Some(true)) {
            floating.extend(id(&rule["backendAddressPool"]));
            floating.extend(ids(&rule["backendAddressPools"]));
        }
    }
    for (node, kind, body) in scope.members(inventory).filter(|(_, kind, _)| *kind != MemberKind::Instance) {
        let all = configurations(kind, body);
        let secondary = |of: &&Configuration<'_>| {
            let explicit: Option<bool> = Value::as_bool(&of.body["properties"]["primary"]);
            explicit == Some(false) && !of.is_ipv6()
        };
        if all
            .iter()
            .filter(secondary)
            .flat_map(Configuration::references)
            .any(|pool| floating.contains(&pool))
        {
            findings.block(
                Reason::SecondaryFloatingIp,
                node,
                "a rule with floating IP reaches one of its secondary IP configurations, which Standard refuses",
                "remove the secondary configuration from the pool, or switch floating IP off for the rule",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_has_its_actions() {
        for (pattern, action, has) in [
            ("*", "Microsoft.Network/loadBalancers/read", true),
            ("*/read", "Microsoft.Network/loadBalancers/read", true),
            ("*/read", "Microsoft.Network/loadBalancers/write", false),
            ("Microsoft.Network/*", "microsoft.network/loadBalancers/write", true),
            ("Microsoft.Network/loadBalancers/*", "Microsoft.Network/publicIPAddresses/read", false),
            ("Microsoft.Network/loadBalancers/read", "Microsoft.Network/loadBalancers/read", true),
            ("Microsoft.Network/*/read", "Microsoft.Network/loadBalancers/read/extra", false),
        ] {
            assert_eq!(matches(pattern, action), has, "{pattern} {action}");
        }
    }
}
