//! PUT of a whole load balancer: a full replacement of its pools, rules, frontends, probes and NAT rules, which
//! supersedes operations on its pools.
//!
//! Pools that the body does not name are removed, and the others are replaced. It is not known what Azure does with an
//! existing pool that is named without its address array; here the pool keeps its members.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::{Map, Value};

use super::answer::Answer;
use super::durations::TimedWrite;
use super::frontend::Proposal;
use super::lock::Start;
use super::operation::{Effect, OperationName, Running};
use super::render::{self, LoadBalancerView, State};
use super::rules::{self, Rule};
use super::settings::{Settings, UnfinishedWrite, Visibility};
use super::store::{
    self, Child, Content, LastWrite, LoadBalancer, LoadBalancerContent, Pool, Reference, Sku, key,
};
use super::validate::{self, Checked};
use super::write::PlannedFailure;
use super::{ArmModel, Call};

const TOP_READ_ONLY: [&str; 7] = ["id", "name", "etag", "type", "location", "sku", "properties"];
const READ_ONLY: [&str; 2] = ["provisioningState", "resourceGuid"];
/// References between children, and fields that the provider adds.
const CHILD_READ_ONLY: [&str; 6] = [
    "provisioningState",
    "loadBalancingRules",
    "inboundNatRules",
    "outboundRules",
    "inboundNatPools",
    "backendIPConfiguration",
];

impl ArmModel {
    pub(super) fn put_load_balancer(
        &mut self,
        call: &Call,
        name: &str,
        planned_failure: PlannedFailure,
    ) -> Answer {
        let lb_key = key(name);
        let client_request_id = call.request.header("x-ms-client-request-id");
        let existing = self.balancers.get(&lb_key);
        if let Some(lb) = existing {
            if let Some(answer) = client_request_id.and_then(|id| lb.remembered(id)) {
                self.journal.counters.replayed += 1;
                return answer.clone();
            }
            if let Some(given) = self.mismatched_etag(call, lb, true) {
                self.journal.counters.etag_mismatches += 1;
                return Answer::etag_mismatch(&given, lb.etag, &lb.id);
            }
        }
        let id = existing.map_or_else(|| self.new_id(name), |lb| lb.id.to_string());
        let body = Body { name, id: &id, existing, settings: &self.settings };
        let lb_content = body.read(&call.request.body).and_then(|(sku, mut lb_content)| {
            self.check_load_balancer(&Proposal { name, id: &id, sku }, &mut lb_content)?;
            Ok((sku, lb_content))
        });
        let (sku, lb_content) = match lb_content {
            Ok(read) => read,
            Err(refusal) => return refusal,
        };
        let answer = self.write_load_balancer(call, (name, sku), lb_content, planned_failure);
        let accepted = client_request_id.filter(|_| answer.status < 300);
        if let Some((id, lb)) = accepted.zip(self.balancers.get_mut(&lb_key)) {
            lb.remember(id, answer.clone());
        }
        answer
    }

    fn write_load_balancer(
        &mut self,
        call: &Call,
        (name, sku): (&str, Sku),
        goal: LoadBalancerContent,
        planned_failure: PlannedFailure,
    ) -> Answer {
        let lb_key = key(name);
        let existed = self.balancers.contains_key(&lb_key);
        let lb = self.load_balancer_mut(name);
        lb.sku = sku;
        let before = lb.content();
        let running = self.balancers.get(&lb_key).and_then(|lb| lb.running.as_ref());
        let same_kind = running.is_some_and(|running| match running.name {
            OperationName::PutLoadBalancer | OperationName::DeleteLoadBalancer => true,
            OperationName::PutPool | OperationName::DeletePool => false,
        });
        if existed && running.is_none() && before == goal {
            self.journal.counters.unchanged += 1;
            return Answer::json(200, self.balancer_body(&lb_key, None, State::Succeeded));
        }
        let id = self.identities.guid();
        let later = (OperationName::PutLoadBalancer, id);
        // A write of the parent cancels a running write of a child. If two writes of the parent overlap, one may be
        // refused.
        if !same_kind {
            self.supersede(&lb_key, later);
        } else if let Err(refusal) = self.claim(&lb_key, later, call.now) {
            return refusal;
        }
        self.journal.counters.applied += 1;
        let etag = self.identities.guid();
        let status = if existed { 200 } else { 201 };
        let lb = self.load_balancer_mut(name);
        lb.etag = etag;
        let before = lb.content();
        let Some(duration) = self.settings.time_of(TimedWrite::LoadBalancer(sku)) else {
            let lb = self.load_balancer_mut(name);
            lb.busy_until = call.answered_at;
            lb.last_write = LastWrite::Succeeded;
            lb.set_content(goal);
            self.follow_references();
            return Answer::json(status, self.balancer_body(&lb_key, None, State::Succeeded));
        };
        let write_stays = match self.settings.unfinished_write {
            UnfinishedWrite::Kept => true,
            UnfinishedWrite::Reverted => false,
        };
        let replace = |lb_content: &LoadBalancerContent| Effect::Replace(Box::new(lb_content.clone()));
        let (on_success, on_abort) = match (self.settings.visibility, write_stays) {
            (Visibility::AtOnce, true) => (Effect::Nothing, Effect::Nothing),
            (Visibility::AtOnce, false) => (Effect::Nothing, replace(&before)),
            (Visibility::AtEnd, true) => (replace(&goal), replace(&goal)),
            (Visibility::AtEnd, false) => (replace(&goal), Effect::Nothing),
        };
        if self.settings.visibility == Visibility::AtOnce {
            self.load_balancer_mut(name).set_content(goal.clone());
            self.follow_references();
        }
        let running = Running { id, name: OperationName::PutLoadBalancer, pool: None, on_success, on_abort };
        let ends_at = self.operation_end(call.answered_at, duration);
        self.start(Start { load_balancer: &lb_key, id, running, ends_at, planned_failure }, call.now);
        // In recordings, a new one reports Succeeded immediately.
        let state = if existed { State::Updating } else { State::Succeeded };
        let body = self.balancer_body(&lb_key, Some(goal), state);
        let version = call.target.query("api-version").unwrap_or_default();
        self.asynchronous(Answer::json(status, body), id, version)
    }

    /// Returns the body of an answer. `lb_content` replaces the stored content, which may be older.
    fn balancer_body(&self, lb_key: &str, lb_content: Option<LoadBalancerContent>, state: State) -> Vec<u8> {
        let Some(lb) = self.balancers.get(lb_key) else { return Vec::new() };
        let mut shown = lb.clone();
        if let Some(lb_content) = lb_content {
            shown.set_content(lb_content);
        }
        render::text(&LoadBalancerView { lb: &shown, state, settings: &self.settings })
    }
}

const POOL: &str = "backendAddressPool";

/// Context for parsing a body.
struct Body<'a> {
    name: &'a str,
    id: &'a str,
    existing: Option<&'a LoadBalancer>,
    settings: &'a Settings,
}

impl Body<'_> {
    fn read(&self, body: &[u8]) -> Result<(Sku, LoadBalancerContent), Answer> {
        validate::check_name(self.name)?;
        let mut top = validate::object(body)?;
        let mut properties = match top.shift_remove("properties") {
            Some(Value::Object(properties)) => properties,
            None | Some(Value::Null) => Map::new(),
            Some(_) => {
                return Err(validate::malformed("The properties of a load balancer must be an object."));
            }
        };
        let given = Sku::of(top.get("sku"));
        let sku = self.existing.map(|lb| lb.sku).or(given).unwrap_or(Sku::Standard);
        if let Some(given) = given.filter(|given| *given != sku) {
            return Err(Rule::SkuCannotBeChanged.refuse(&rules::sku_change(sku, given, self.id)));
        }
        top.retain(|name, _| !TOP_READ_ONLY.contains(&name.as_str()));
        let mut pools = BTreeMap::new();
        for pool in take(&mut properties, "backendAddressPools")? {
            let (name, content) = self.pool(pool)?;
            let known = self.existing.and_then(|lb| lb.pools.get(&key(&name)));
            let (nic_backed, derived) = known.map_or((false, false), |pool| (pool.nic_backed, pool.derived));
            pools.insert(key(&name), Pool { nic_backed, derived, ..Pool::new(&name, content) });
        }
        let frontends = children(take(&mut properties, "frontendIPConfigurations")?);
        let probes = children(take(&mut properties, "probes")?);
        let mut rules = Vec::new();
        for child in children(take(&mut properties, "loadBalancingRules")?) {
            rules.push(self.rule(child, &mut pools, &frontends)?);
        }
        let inbound_nat_pools = children(take(&mut properties, "inboundNatPools")?);
        let mut used = |kind: &str, list: fn(&mut Pool) -> &mut Vec<Arc<str>>| {
            let mut references = Vec::new();
            for child in children(take(&mut properties, kind)?) {
                let stands_alone = kind == "inboundNatRules" && !child.properties.contains_key(POOL);
                let mut used = None;
                if !stands_alone {
                    let pool = self.refer(&child, kind, &mut pools)?;
                    list(pool).push(child.name.clone());
                    used = Some(pool.name.clone());
                }
                references.push(Reference { name: child.name, pool: used, properties: child.properties });
            }
            Ok(references)
        };
        let outbound_rules = used("outboundRules", |pool| &mut pool.outbound_rules)?;
        let inbound_nat_rules = used("inboundNatRules", |pool| &mut pool.inbound_nat_rules)?;
        properties.retain(|name, _| !READ_ONLY.contains(&name.as_str()));
        let lb_content = LoadBalancerContent {
            top,
            properties,
            pools,
            rules,
            outbound_rules,
            inbound_nat_rules,
            frontends,
            probes,
            inbound_nat_pools,
        };
        Ok((sku, lb_content))
    }

    fn pool(&self, pool: Value) -> Result<(String, Content), Answer> {
        let name = pool["name"].as_str().unwrap_or_default().to_owned();
        let existing = self.existing.and_then(|lb| lb.pools.get(&key(&name)));
        let name = existing.map_or(name, |pool| pool.name.to_string());
        let pool_id = render::child_id(self.id, "backendAddressPools", &name);
        let silent = pool["properties"]["loadBalancerBackendAddresses"].is_null();
        let checked = Checked { pool_name: &name, pool_id: &pool_id, existing, settings: self.settings };
        let mut content = checked.read(pool.to_string().as_bytes())?;
        if let Some(known) = existing.filter(|_| silent) {
            content.addresses.clone_from(&known.content.addresses);
        }
        Ok((name, content))
    }

    fn rule(
        &self,
        child: Child,
        pools: &mut BTreeMap<String, Pool>,
        frontends: &[Child],
    ) -> Result<store::Rule, Answer> {
        let frontend = last_segment(&child.properties, "frontendIPConfiguration");
        if !frontends.iter().any(|known| key(&known.name) == key(frontend)) {
            return Err(self.dangling("frontendIPConfigurations", frontend, "loadBalancingRules", &child));
        }
        let pool = self.refer(&child, "loadBalancingRules", pools)?;
        pool.rules.push(child.name.clone());
        let with_probe = !last_segment(&child.properties, "probe").is_empty();
        Ok(store::Rule {
            name: child.name,
            pool: pool.name.clone(),
            with_probe,
            properties: child.properties,
        })
    }

    /// Returns the pool that a child uses.
    fn refer<'a>(
        &self,
        child: &Child,
        kind: &str,
        pools: &'a mut BTreeMap<String, Pool>,
    ) -> Result<&'a mut Pool, Answer> {
        let pool = last_segment(&child.properties, POOL);
        let pool_key = key(pool);
        pools.get_mut(&pool_key).ok_or_else(|| self.dangling("backendAddressPools", pool, kind, child))
    }

    fn dangling(&self, kind: &str, name: &str, by: &str, child: &Child) -> Answer {
        let (missing, by) =
            (render::child_id(self.id, kind, name), render::child_id(self.id, by, &child.name));
        let message = format!("Resource {missing} referenced by resource {by} was not found.");
        Answer::provider(400, "InvalidResourceReference", &message)
    }
}

/// Removes an array of named objects from the properties; names must be unique.
fn take(properties: &mut Map<String, Value>, kind: &str) -> Result<Vec<Value>, Answer> {
    let listed = match properties.shift_remove(kind) {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(listed)) => listed,
        Some(_) => return Err(validate::malformed(&format!("{kind} must be an array."))),
    };
    let mut names = BTreeSet::new();
    for child in &listed {
        let Some(name) = child["name"].as_str() else {
            return Err(validate::malformed(&format!("Each of the {kind} must be an object with a name.")));
        };
        if !names.insert(key(name)) {
            return Err(validate::duplicate(name));
        }
    }
    Ok(listed)
}

fn children(listed: Vec<Value>) -> Vec<Child> {
    let child = |mut value: Value| {
        let name = value["name"].as_str().unwrap_or_default().into();
        let mut properties = match value["properties"].take() {
            Value::Object(properties) => properties,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Map::new()
            }
        };
        properties.retain(|name, _| !CHILD_READ_ONLY.contains(&name.as_str()));
        let mut top = match value {
            Value::Object(top) => top,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Map::new()
            }
        };
        top.retain(|name, _| !["id", "name", "etag", "type", "properties"].contains(&name.as_str()));
        Child { name, top, properties }
    };
    listed.into_iter().map(child).collect()
}

/// Returns the name at the end of the id in a property, or an empty text.
pub(super) fn last_segment<'a>(properties: &'a Map<String, Value>, name: &str) -> &'a str {
    let id = properties.get(name).and_then(|reference| reference["id"].as_str()).unwrap_or_default();
    id.rsplit('/').next().unwrap_or_default()
}
