//! Upstream's changes of a load balancer's JSON for one Service: pools, frontends, probes and rules.

use serde_json::{Value, json};

use super::facts::{Port, Service};
use super::pool::{keep_known_fields, object};
use super::settings::Settings;
use crate::kube::build::Family;

const POOLS: &str = "backendAddressPools";
const FRONTENDS: &str = "frontendIPConfigurations";
const RULES: &str = "loadBalancingRules";
const PROBES: &str = "probes";

/// Returns the body of a load balancer that does not exist yet.
pub(super) fn fresh(settings: &Settings, name: &str) -> Value {
    json!({
        "name": name,
        "location": settings.location,
        "sku": {"name": "Standard", "tier": "Regional"},
        "properties": {FRONTENDS: [], POOLS: [], RULES: [], PROBES: []},
    })
}

/// Returns the children of one kind; creates the array if it is missing.
fn children<'a>(balancer: &'a mut Value, kind: &str) -> &'a mut Vec<Value> {
    let properties = object(object(balancer).entry("properties").or_insert(Value::Null));
    let listed = properties.entry(kind).or_insert(Value::Null);
    if !listed.is_array() {
        *listed = Value::Array(Vec::new());
    }
    listed.as_array_mut().expect("an array was put there")
}

fn listed<'a>(balancer: &'a Value, kind: &str) -> &'a [Value] {
    balancer["properties"][kind].as_array().map_or(&[], Vec::as_slice)
}

fn name_of(child: &Value) -> &str {
    child["name"].as_str().unwrap_or_default()
}

fn belongs(child: &Value, prefix: &str) -> bool {
    name_of(child).to_uppercase().starts_with(&prefix.to_uppercase())
}

/// Returns the pool of this name.
pub(super) fn pool<'a>(balancer: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    children(balancer, POOLS).iter_mut().find(|pool| name_of(pool).eq_ignore_ascii_case(name))
}

/// Returns those of the named pools that exist and are not used by any rule.
pub(super) fn unused_pools(balancer: &Value, names: &[String]) -> Vec<String> {
    let used = |name: &str| {
        listed(balancer, RULES).iter().any(|rule| {
            let id = rule["properties"]["backendAddressPool"]["id"].as_str().unwrap_or_default();
            id.rsplit('/').next().is_some_and(|used| used.eq_ignore_ascii_case(name))
        })
    };
    let exists =
        |name: &str| listed(balancer, POOLS).iter().any(|pool| name_of(pool).eq_ignore_ascii_case(name));
    names.iter().filter(|name| exists(name) && !used(name)).cloned().collect()
}

/// Adds a Service's pools, frontends, probes and rules, and removes its obsolete ones. Returns whether anything
/// changed.
pub(super) fn wire(balancer: &mut Value, service: &Service, settings: &Settings) -> bool {
    let mut dirty = false;
    let (mut frontends, mut probes, mut rules) = (Vec::new(), Vec::new(), Vec::new());
    for family in &service.families {
        let wanted = service.pool(*family, &settings.cluster_name);
        if pool(balancer, &wanted).is_none() {
            children(balancer, POOLS).push(json!({"name": wanted, "properties": {}}));
            dirty = true;
        }
        let wanted = wanted_of(service, *family, settings);
        frontends.push(wanted.frontend);
        probes.extend(wanted.probes);
        rules.extend(wanted.rules);
    }
    let prefix = service.prefix();
    for (kind, wanted) in [(FRONTENDS, frontends), (PROBES, probes), (RULES, rules)] {
        dirty |= replace_children(children(balancer, kind), &prefix, wanted);
    }
    dirty
}

/// Removes frontends, probes and rules of a Service. Returns whether there were any.
pub(super) fn unwire(balancer: &mut Value, service: &Service) -> bool {
    let prefix = service.prefix();
    let mut dirty = false;
    for kind in [FRONTENDS, PROBES, RULES] {
        dirty |= replace_children(children(balancer, kind), &prefix, Vec::new());
    }
    dirty
}

/// Removes every field that upstream's SDK types do not have.
pub(super) fn keep_known(balancer: &mut Value) {
    const TOP: [&str; 8] = ["id", "name", "etag", "type", "location", "tags", "sku", "properties"];
    const PROPERTIES: [&str; 10] = [
        "provisioningState",
        "resourceGuid",
        "scope",
        FRONTENDS,
        POOLS,
        RULES,
        PROBES,
        "inboundNatRules",
        "inboundNatPools",
        "outboundRules",
    ];
    object(balancer).retain(|name, _| TOP.contains(&name.as_str()));
    object(&mut balancer["properties"]).retain(|name, _| PROPERTIES.contains(&name.as_str()));
    children(balancer, POOLS).iter_mut().for_each(keep_known_fields);
}

struct DesiredLoadBalancer {
    frontend: Value,
    probes: Vec<Value>,
    rules: Vec<Value>,
}

fn wanted_of(service: &Service, family: Family, settings: &Settings) -> DesiredLoadBalancer {
    let id = settings.balancer(&service.balancer);
    let prefix = service.prefix();
    let suffix = match family {
        Family::V6 if service.families.len() > 1 => "-IPv6",
        Family::V4 | Family::V6 => "",
    };
    let frontend_name = format!("{prefix}{suffix}");
    let address = settings.balancer("").replace("loadBalancers/", "publicIPAddresses/");
    let frontend = json!({"name": frontend_name, "properties": {"publicIPAddress": {
        "id": format!("{address}{}-{frontend_name}", settings.cluster_name)}}});
    let name = |port: &Port| format!("{prefix}-{}-{}{suffix}", port.protocol, port.port);
    let probe = |port: &Port| {
        let (protocol, number) =
            if service.health_port > 0 { ("Http", service.health_port) } else { ("Tcp", port.node_port) };
        let mut properties = json!({"protocol": protocol, "port": number, "intervalInSeconds": 5,
            "numberOfProbes": 2});
        if protocol == "Http" {
            properties["requestPath"] = "/healthz".into();
        }
        json!({"name": name(port), "properties": properties})
    };
    let pool = service.pool(family, &settings.cluster_name);
    let rule = |port: &Port| {
        let protocol = if port.protocol == "UDP" { "Udp" } else { "Tcp" };
        json!({"name": name(port), "properties": {
            "frontendIPConfiguration": {"id": format!("{id}/{FRONTENDS}/{frontend_name}")},
            "backendAddressPool": {"id": format!("{id}/{POOLS}/{pool}")},
            "probe": {"id": format!("{id}/{PROBES}/{}", name(port))},
            "protocol": protocol, "frontendPort": port.port, "backendPort": port.port,
            "enableFloatingIP": true, "idleTimeoutInMinutes": 4, "disableOutboundSnat": true}})
    };
    let ports = || service.ports.iter();
    DesiredLoadBalancer { frontend, probes: ports().map(probe).collect(), rules: ports().map(rule).collect() }
}

/// Updates the children with a prefix to the wanted ones; the others stay unchanged. Returns whether anything
/// changed.
fn replace_children(children: &mut Vec<Value>, prefix: &str, wanted: Vec<Value>) -> bool {
    let before = children.len();
    children
        .retain(|child| !belongs(child, prefix) || wanted.iter().any(|wanted| is_satisfied(wanted, child)));
    let mut dirty = children.len() != before;
    for child in wanted {
        if !children.iter().any(|known| is_satisfied(&child, known)) {
            children.push(child);
            dirty = true;
        }
    }
    dirty
}

/// Returns whether a child has all wanted fields; ids and names compare without case.
fn is_satisfied(wanted: &Value, child: &Value) -> bool {
    match (wanted, child) {
        (Value::Object(wanted), Value::Object(child)) => wanted
            .iter()
            .all(|(name, wanted)| child.get(name).is_some_and(|child| is_satisfied(wanted, child))),
        (Value::String(wanted), Value::String(child)) => wanted.eq_ignore_ascii_case(child),
        (_, _) => wanted == child,
    }
}
