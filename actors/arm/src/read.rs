//! Reads the facts about a load balancer and a pool. A missing list is empty. A value that must be a list and is not,
//! and a resource without properties, are unreadable and never count as empty.

use std::sync::Arc;

use model::arm::{LbFacts, PoolFacts, Provisioning, RuleFacts};
use model::ids::{Etag, LbName, NetworkId, PoolId, PoolName};
use serde_json::Value;

use crate::entry;

/// Reasons why a resource cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Unreadable {
    /// The resource has no properties.
    #[error("{0} has no properties")]
    NoProperties(&'static str),
    /// A value that must be a list is not.
    #[error("{0} is not a list")]
    NoList(&'static str),
}

/// Reads a load balancer.
pub(crate) fn load_balancer(lb: &LbName, body: &Value) -> Result<LbFacts, Unreadable> {
    let properties = properties(body, "the load balancer")?;
    let mut pools = Vec::new();
    for pool in list(properties, "backendAddressPools")? {
        let name = name_of(pool);
        pools.push(Arc::new(self::pool(&PoolId::new(lb.clone(), PoolName::new(name)), pool)?));
    }
    let mut rules = Vec::new();
    for rule in list(properties, "loadBalancingRules")? {
        rules_of(rule, lb, text(&body["id"]), &mut rules)?;
    }
    Ok(LbFacts {
        lb: lb.clone(),
        etag: etag(body),
        guid: Some(text(&properties["resourceGuid"])).filter(|guid| !guid.is_empty()).map(Arc::from),
        provisioning: provisioning(&properties["provisioningState"]),
        pools,
        rules,
    })
}

/// Reads a pool, as a separate body or within its load balancer.
pub(crate) fn pool(id: &PoolId, body: &Value) -> Result<PoolFacts, Unreadable> {
    let properties = properties(body, "the pool")?;
    let mut entries = Vec::new();
    let mut inbound_nat_rule = !list(properties, "inboundNatRules")?.is_empty();
    for value in list(properties, "loadBalancerBackendAddresses")? {
        let reading = entry::read(value);
        inbound_nat_rule |= reading.has_inbound_nat_rule;
        entries.push(reading.entry);
    }
    let rules = list(properties, "loadBalancingRules")?;
    let outbound = list(properties, "outboundRules")?;
    Ok(PoolFacts {
        id: id.clone(),
        entries,
        rules: rules.iter().map(|rule| Arc::from(last_segment(text(&rule["id"])))).collect(),
        outbound_rule: !outbound.is_empty() || !properties["outboundRule"].is_null(),
        inbound_nat_rule,
        nic_backed: !list(properties, "backendIPConfigurations")?.is_empty(),
        sync_automatic: text(&properties["syncMode"]).eq_ignore_ascii_case("Automatic"),
        network: Some(text(&properties["virtualNetwork"]["id"]))
            .filter(|id| !id.is_empty())
            .map(NetworkId::new),
        etag: etag(body),
        provisioning: provisioning(&properties["provisioningState"]),
    })
}

/// Adds one fact for each pool that a rule uses, or one without a pool.
fn rules_of(rule: &Value, lb: &LbName, lb_id: &str, out: &mut Vec<RuleFacts>) -> Result<(), Unreadable> {
    let name: Arc<str> = Arc::from(name_of(rule));
    let properties = &rule["properties"];
    let probed = !text(&properties["probe"]["id"]).is_empty();
    let mut ids = vec![text(&properties["backendAddressPool"]["id"])];
    ids.extend(list(properties, "backendAddressPools")?.iter().map(|pool| text(&pool["id"])));
    let mut pools: Vec<PoolName> = Vec::new();
    for pool in ids.into_iter().filter_map(|id| pool_of(id, lb, lb_id)) {
        if !pools.contains(&pool) {
            pools.push(pool);
        }
    }
    if pools.is_empty() {
        out.push(RuleFacts { name, pool: None, probed });
    } else {
        out.extend(pools.into_iter().map(|pool| RuleFacts {
            name: Arc::clone(&name),
            pool: Some(pool),
            probed,
        }));
    }
    Ok(())
}

/// Returns the pool of an id, if it belongs to this load balancer.
fn pool_of(id: &str, lb: &LbName, lb_id: &str) -> Option<PoolName> {
    let (rest, pool) = id.rsplit_once('/')?;
    let (parent, kind) = rest.rsplit_once('/')?;
    let ours = if lb_id.is_empty() {
        last_segment(parent).eq_ignore_ascii_case(lb.as_str())
    } else {
        parent.eq_ignore_ascii_case(lb_id)
    };
    (ours && kind.eq_ignore_ascii_case("backendAddressPools") && !pool.is_empty())
        .then(|| PoolName::new(pool))
}

/// Parses the provisioning state in any spelling.
pub(crate) fn provisioning(value: &Value) -> Provisioning {
    match text(value).to_ascii_lowercase().as_str() {
        "succeeded" => Provisioning::Succeeded,
        "creating" | "updating" | "deleting" => Provisioning::Updating,
        "failed" | "canceled" | "cancelled" => Provisioning::Failed,
        _ => Provisioning::Unknown,
    }
}

/// Returns the entity tag in a body.
pub(crate) fn etag(body: &Value) -> Option<Etag> {
    Some(text(&body["etag"])).filter(|tag| !tag.is_empty()).map(Etag::new)
}

fn properties<'a>(body: &'a Value, what: &'static str) -> Result<&'a Value, Unreadable> {
    let properties = &body["properties"];
    if properties.is_object() { Ok(properties) } else { Err(Unreadable::NoProperties(what)) }
}

fn list<'a>(properties: &'a Value, key: &'static str) -> Result<&'a [Value], Unreadable> {
    match &properties[key] {
        Value::Null => Ok(&[]),
        Value::Array(items) => Ok(items),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err(Unreadable::NoList(key))
        }
    }
}

/// Returns the name of a resource, or else the end of its id.
fn name_of(resource: &Value) -> &str {
    let name = text(&resource["name"]);
    if name.is_empty() { last_segment(text(&resource["id"])) } else { name }
}

fn last_segment(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
