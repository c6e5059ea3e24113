//! Checks of the cluster: its configuration, the network paths to the API server and from this process, outbound
//! traffic, and Services.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;

use super::{Accepted, Findings, NO_OUTBOUND, Reason};
use crate::inventory::{Inventory, Scope};
use crate::json::{id, is_basic, items, text};
use crate::members::configurations;
use crate::resource_id::ResourceId;
use crate::work::{AddressFate, Work};

/// Runs all checks.
pub(super) fn check(inventory: &Inventory, work: &Work, accepted: &Accepted, findings: &mut Findings) {
    let scope = Scope::of(inventory);
    configuration(inventory, findings);
    aks(inventory, &scope, findings);
    api_server(inventory, &scope, findings);
    outbound(inventory, &scope, accepted, findings);
    addresses(inventory, work, accepted, findings);
    services(inventory, &scope, findings);
    webhooks(inventory, findings);
}

fn configuration(inventory: &Inventory, findings: &mut Findings) {
    if !inventory.cluster.says_standard {
        findings.block(
            Reason::Configuration,
            "loadBalancerSku",
            "the cloud configuration does not say `standard`",
            "set loadBalancerSku to standard in the cloud configuration, and do not restart the cloud-controller-manager \
             before the migration has ended",
        );
    }
}

fn aks(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    let tags = |body: &Value| {
        body["tags"]
            .as_object()
            .is_some_and(|tags| tags.keys().any(|key| key.to_ascii_lowercase().starts_with("aks-managed")))
    };
    let owned = |body: &Value| text(&body["managedBy"]).to_ascii_lowercase().contains("/managedclusters/");
    let groups = inventory.of_kind("resourcegroups");
    let changing = scope.changing().filter_map(|id| Some((id, inventory.body(id)?)));
    for (id, _) in groups.chain(changing).filter(|(_, body)| tags(body) || owned(body)) {
        findings.block(
            Reason::ManagedByAks,
            id,
            "AKS manages it",
            "let AKS migrate: az aks update --load-balancer-sku standard",
        );
    }
}

/// Returns the addresses of all frontends in scope, public and private.
fn frontend_addresses(inventory: &Inventory, scope: &Scope) -> Vec<(IpAddr, ResourceId)> {
    let ip = |id: &ResourceId| text(&inventory.body(id)?["properties"]["ipAddress"]).parse().ok();
    let frontends = scope.frontends(inventory);
    frontends
        .filter_map(|frontend| {
            let address = frontend.public.as_ref().and_then(ip).or(frontend.private)?;
            Some((address, frontend.load_balancer.clone()))
        })
        .collect()
}

fn api_server(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    for (address, lb) in frontend_addresses(inventory, scope) {
        if inventory.cluster.api_server.contains(&address) {
            findings.block(
                Reason::ApiServerPath,
                lb,
                format!("the API server is reached through it, at {address}"),
                "put the API server behind a load balancer of its own, or pass a kubeconfig that reaches it directly",
            );
        }
    }
}

/// Returns the subnets of nodes that have neither a NAT gateway nor their own route to the internet.
fn subnets_without_way_out(inventory: &Inventory, scope: &Scope) -> BTreeSet<ResourceId> {
    let all = scope.members(inventory).flat_map(|(_, kind, body)| configurations(kind, body));
    let subnets = all.filter_map(|configuration| configuration.subnet());
    subnets.filter(|subnet| !has_way_out(inventory, subnet)).collect()
}

fn has_way_out(inventory: &Inventory, subnet: &ResourceId) -> bool {
    let Some(properties) = inventory.body(subnet).map(|body| &body["properties"]) else { return false };
    let routes = id(&properties["routeTable"]).and_then(|table| inventory.body(&table));
    let routes = routes.map(|table| items(&table["properties"]["routes"])).unwrap_or_default();
    let is_default = |route: &Value| {
        let hop = text(&route["properties"]["nextHopType"]).to_ascii_lowercase();
        text(&route["properties"]["addressPrefix"]) == "0.0.0.0/0"
            && matches!(hop.as_str(), "virtualappliance" | "virtualnetworkgateway")
    };
    id(&properties["natGateway"]).is_some() || routes.iter().any(is_default)
}

fn outbound(inventory: &Inventory, scope: &Scope, accepted: &Accepted, findings: &mut Findings) {
    findings.add_notice(
        "Configure outbound traffic yourself: a Standard load balancer provides none by itself, except for the \
         protocols of its public rules. Attach a NAT gateway to the subnet after the Basic load balancers are gone, or add an \
         outbound rule for all protocols to the Standard load balancer.",
    );
    let bare = subnets_without_way_out(inventory, scope);
    if bare.is_empty() {
        return;
    }
    let is_public = scope.frontends(inventory).any(|frontend| frontend.public.is_some());
    let names: Vec<&str> = bare.iter().map(ResourceId::name).collect();
    let subnets = names.join(", ");
    if inventory.cluster.runs_on_a_node && is_public {
        findings.block(
            Reason::OwnPath,
            &subnets,
            "this process runs on a node, and nodes reach Azure through the load balancers in scope",
            "run the command from a machine outside of the cluster, or send outbound traffic of these subnets through a \
             firewall first",
        );
    }
    if !is_public && !accepted.contains(NO_OUTBOUND) {
        findings.block(
            Reason::NoOutbound,
            &subnets,
            "no NAT gateway, no route through a firewall and no public load balancer was found: under Standard, nodes lose \
             the internet",
            format!(
                "route outbound traffic through a firewall, or plan a NAT gateway for right after the migration and pass \
                 --accept {NO_OUTBOUND}"
            ),
        );
    }
    if is_public {
        findings.add_notice(format!(
            "Nodes of subnet {subnets} reach the internet through the public load balancer. Their outbound addresses can change, and \
             between the first and the last step they may have none."
        ));
    }
}

fn addresses(inventory: &Inventory, work: &Work, accepted: &Accepted, findings: &mut Findings) {
    for (id, address) in &work.addresses {
        let shown = address.ip.map_or_else(|| id.name().to_owned(), |ip| ip.to_string());
        match address.fate {
            AddressFate::Kept => {}
            AddressFate::Replaced if accepted.contains(&shown) => {
                findings.add_notice(format!("{shown} of {} changes, as accepted.", id.name()));
            }
            AddressFate::Replaced => findings.block(
                Reason::AddressChanges,
                id,
                format!("Azure cannot keep the Basic IPv6 address {shown}"),
                format!("plan for a new address, and pass --accept {shown}"),
            ),
        }
    }
    for (scale_set, body) in inventory.of_kind("virtualmachinescalesets") {
        let all = configurations(crate::members::MemberKind::Model, body);
        let own = all.iter().filter_map(|configuration| configuration.instance_address());
        if work.members.contains_key(scale_set) && own.into_iter().any(crate::members::is_basic_configuration)
        {
            if accepted.contains(scale_set.name()) {
                findings.add_notice(format!(
                    "The public addresses of the instances of {} change, as accepted.",
                    scale_set.name()
                ));
            } else {
                findings.block(
                    Reason::AddressChanges,
                    scale_set,
                    "Azure cannot keep the Basic public addresses of its instances",
                    format!("plan for new addresses of these nodes, and pass --accept {}", scale_set.name()),
                );
            }
        }
    }
}

fn services(inventory: &Inventory, scope: &Scope, findings: &mut Findings) {
    let there: BTreeSet<IpAddr> =
        frontend_addresses(inventory, scope).into_iter().map(|(ip, _)| ip).collect();
    let standard = inventory.of_kind("loadbalancers").filter(|(_, body)| !is_basic(body));
    let elsewhere: BTreeSet<IpAddr> = standard
        .flat_map(|(id, body)| crate::inventory::Frontend::all(id, body).collect::<Vec<_>>())
        .filter_map(|frontend| frontend.private)
        .collect();
    for service in &inventory.cluster.services {
        for address in &service.addresses {
            if !there.contains(address) && !elsewhere.contains(address) {
                findings.add_notice(format!(
                    "Service {} has the address {address}, which belongs to no load balancer in scope: it is not migrated.",
                    service.name
                ));
            }
        }
    }
}

fn webhooks(inventory: &Inventory, findings: &mut Findings) {
    if !inventory.cluster.webhooks.is_empty() {
        findings.add_notice(format!(
            "Webhooks that run in the cluster can refuse requests while nodes have no outbound path: {}.",
            inventory.cluster.webhooks.join(", ")
        ));
    }
}
