//! Converts the writer's requests into HTTP for the modelled ARM, and responses into answers: the simulation's own
//! small counterpart of the `arm` crate.

use std::sync::Arc;
use std::time::Duration;

use model::arm::{
    AdminState, ArmAnswer, ArmRequest, Document, Edit, Entry, EntryNetwork, Failure, FailureKind, LbFacts,
    OperationState, PoolFacts, PoolRead, Provisioning, PutAccepted, RetryAfter, RuleFacts,
};
use model::ids::{Etag, InstanceId, LbName, NetworkId, Operation, PoolId, PoolName, SubnetId};
use serde_json::{Value, json};
use simulator_models::arm::{ArmModel, Method, Reply, Request, Response};

use crate::decode::{items, text};

const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg";
const ADDRESSES: &str = "loadBalancerBackendAddresses";

fn path(lb: &LbName, below: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Network/loadBalancers/{lb}{below}?api-version=2025-05-01")
}

fn pool_path(pool: &PoolId) -> String {
    path(&pool.lb, &format!("/backendAddressPools/{}", pool.pool))
}

/// Writes a pool with this document as another client. Returns the status of ARM's answer.
pub fn put_pool(arm: &mut ArmModel, lb: &str, pool: &str, document: &Value, now: u64) -> u16 {
    let pool = PoolId::new(LbName::new(lb), PoolName::new(pool));
    let (path_and_query, body) = (pool_path(&pool), document.to_string().into_bytes());
    match arm.handle(&Request { method: Method::Put, path_and_query, headers: Vec::new(), body }, now) {
        Reply::Answer(response) => response.status,
        Reply::Refused | Reply::Lost { .. } => 503,
    }
}

/// Returns the HTTP request, and the body of a PUT as a value.
pub fn request(request: &ArmRequest) -> (Request, Option<Value>) {
    let get = |path_and_query: String| {
        (Request { method: Method::Get, path_and_query, headers: Vec::new(), body: Vec::new() }, None)
    };
    match request {
        ArmRequest::GetLoadBalancer(lb) => get(path(lb, "")),
        ArmRequest::GetPool(pool) => get(pool_path(pool)),
        ArmRequest::Poll(operation) => get(operation.as_str().to_owned()),
        ArmRequest::PutPool { pool, base, edit, if_match, .. } => {
            let base = base.get::<Value>().expect("the document of a PUT is one of this port");
            let body = apply(base, edit);
            let headers =
                if_match.iter().map(|tag| ("If-Match".to_owned(), tag.as_str().to_owned())).collect();
            let bytes = body.to_string().into_bytes();
            let request =
                Request { method: Method::Put, path_and_query: pool_path(pool), headers, body: bytes };
            (request, Some(body))
        }
    }
}

/// Returns the document with the edit applied (W3).
fn apply(base: &Value, edit: &Edit) -> Value {
    let mut body = base.clone();
    let old = items(&base["properties"][ADDRESSES]);
    assert!(
        edit.remove.iter().chain(edit.set_admin.keys()).all(|at| *at < old.len()),
        "an edit names what is there"
    );
    let mut addresses = Vec::new();
    for (position, entry) in old.iter().enumerate().filter(|(position, _)| !edit.remove.contains(position)) {
        let mut entry = entry.clone();
        if let Some(state) = edit.set_admin.get(&position) {
            entry["properties"]["adminState"] = spelling(*state).into();
        }
        addresses.push(entry);
    }
    for new in &edit.add {
        let mut entry = json!({"name": new.name.as_str(), "properties": {"ipAddress": new.ip.to_string()}});
        if let Some(network) = &new.network {
            let (field, id) = match &**network {
                EntryNetwork::VirtualNetwork(id) => ("virtualNetwork", id.as_str()),
                EntryNetwork::Subnet(id) => ("subnet", id.as_str()),
            };
            entry["properties"][field] = json!({"id": id});
        }
        if let Some(state) = new.admin_state {
            entry["properties"]["adminState"] = spelling(state).into();
        }
        addresses.push(entry);
    }
    body["properties"][ADDRESSES] = addresses.into();
    if let (Some(network), true) = (&edit.pool_network, base["properties"]["virtualNetwork"].is_null()) {
        body["properties"]["virtualNetwork"] = json!({"id": network.as_str()});
    }
    body
}

fn spelling(state: AdminState) -> &'static str {
    match state {
        AdminState::None | AdminState::Unknown => "None",
        AdminState::Up => "Up",
        AdminState::Down => "Down",
    }
}

/// Returns the answer for an HTTP response.
pub fn answer(request: &ArmRequest, response: &Response) -> ArmAnswer {
    let body: Value = serde_json::from_slice(&response.body).unwrap_or(Value::Null);
    if response.status >= 400 {
        return failed(failure(FailureKind::Status(response.status), &body["error"], response));
    }
    match request {
        ArmRequest::GetLoadBalancer(lb) => ArmAnswer::LoadBalancer(Arc::new(load_balancer(lb, &body))),
        ArmRequest::GetPool(pool) => {
            let facts = Arc::new(self::pool(pool, &body));
            let etag = response.header("ETag").map(Etag::new).or_else(|| facts.etag.clone());
            ArmAnswer::Pool(PoolRead { facts, document: Document::new(body), etag })
        }
        ArmRequest::PutPool { .. } => ArmAnswer::Put(PutAccepted {
            provisioning: provisioning(&body["properties"]["provisioningState"]),
            operation: response.header("Azure-AsyncOperation").map(Operation::new),
            retry_after: retry_after(response),
            etag: etag(&body),
            correlation_id: None,
        }),
        ArmRequest::Poll(_) => ArmAnswer::Operation(match text(&body["status"]) {
            "Succeeded" => OperationState::Succeeded,
            "Failed" => {
                OperationState::Failed(Arc::new(failure(FailureKind::Operation, &body["error"], response)))
            }
            "Canceled" => {
                OperationState::Canceled(Arc::new(failure(FailureKind::Operation, &body["error"], response)))
            }
            _ => OperationState::Running { retry_after: retry_after(response) },
        }),
    }
}

/// Returns a failure without an answer of ARM.
pub fn unanswered(kind: FailureKind, retry_after: RetryAfter) -> ArmAnswer {
    let message = Arc::from("no answer");
    failed(Failure { kind, code: None, inner_codes: Vec::new(), message, retry_after, correlation_id: None })
}

fn failed(failure: Failure) -> ArmAnswer {
    ArmAnswer::Failed(Arc::new(failure))
}

fn failure(kind: FailureKind, error: &Value, response: &Response) -> Failure {
    let code = Some(text(&error["code"])).filter(|code| !code.is_empty()).map(Arc::from);
    let inner = items(&error["details"]).iter().map(|detail| Arc::from(text(&detail["code"])));
    Failure {
        kind,
        code,
        inner_codes: inner.collect(),
        message: Arc::from(text(&error["message"])),
        retry_after: retry_after(response),
        correlation_id: None,
    }
}

fn retry_after(response: &Response) -> RetryAfter {
    match response.header("Retry-After").map(str::parse::<u64>) {
        None => RetryAfter::Absent,
        Some(Ok(seconds)) if seconds > 0 => RetryAfter::In(Duration::from_secs(seconds)),
        Some(Ok(_) | Err(_)) => RetryAfter::Invalid,
    }
}

fn load_balancer(lb: &LbName, body: &Value) -> LbFacts {
    let properties = &body["properties"];
    let pools = items(&properties["backendAddressPools"]).iter().map(|pool| {
        let id = PoolId::new(lb.clone(), PoolName::new(text(&pool["name"])));
        Arc::new(self::pool(&id, pool))
    });
    let rules = items(&properties["loadBalancingRules"]).iter().map(|rule| RuleFacts {
        name: Arc::from(text(&rule["name"])),
        pool: last_segment(&rule["properties"]["backendAddressPool"]["id"]).map(PoolName::new),
        probed: !rule["properties"]["probe"].is_null(),
    });
    LbFacts {
        lb: lb.clone(),
        etag: etag(body),
        guid: Some(text(&properties["resourceGuid"])).filter(|guid| !guid.is_empty()).map(Arc::from),
        provisioning: provisioning(&properties["provisioningState"]),
        pools: pools.collect(),
        rules: rules.collect(),
    }
}

fn pool(id: &PoolId, body: &Value) -> PoolFacts {
    let properties = &body["properties"];
    let entries = items(&properties[ADDRESSES]).iter().map(|entry| Entry {
        name: Arc::from(text(&entry["name"])),
        ip: text(&entry["properties"]["ipAddress"]).parse().ok(),
        admin_state: match text(&entry["properties"]["adminState"]) {
            "" | "None" => AdminState::None,
            "Up" => AdminState::Up,
            "Down" => AdminState::Down,
            _ => AdminState::Unknown,
        },
        network: entry_network(&entry["properties"]).map(Arc::new),
        instance: entry["properties"]["networkInterfaceIPConfiguration"]["id"]
            .as_str()
            .and_then(InstanceId::of_ip_configuration),
    });
    let rules = items(&properties["loadBalancingRules"]).iter();
    PoolFacts {
        id: id.clone(),
        entries: entries.collect(),
        rules: rules.filter_map(|rule| last_segment(&rule["id"])).map(Arc::from).collect(),
        outbound_rule: !properties["outboundRule"].is_null()
            || !items(&properties["outboundRules"]).is_empty(),
        inbound_nat_rule: !items(&properties["inboundNatRules"]).is_empty(),
        nic_backed: !items(&properties["backendIPConfigurations"]).is_empty(),
        sync_automatic: properties["syncMode"] == "Automatic",
        network: network(&properties["virtualNetwork"]),
        etag: etag(body),
        provisioning: provisioning(&properties["provisioningState"]),
    }
}

fn network(value: &Value) -> Option<NetworkId> {
    value["id"].as_str().map(NetworkId::new)
}

/// Returns the network of an entry. A subnet is more specific than its virtual network.
fn entry_network(properties: &Value) -> Option<EntryNetwork> {
    let subnet = properties["subnet"]["id"].as_str().map(|id| EntryNetwork::Subnet(SubnetId::new(id)));
    subnet.or_else(|| network(&properties["virtualNetwork"]).map(EntryNetwork::VirtualNetwork))
}

fn etag(body: &Value) -> Option<Etag> {
    body["etag"].as_str().map(Etag::new)
}

fn last_segment(id: &Value) -> Option<&str> {
    id.as_str()?.rsplit('/').next().filter(|name| !name.is_empty())
}

fn provisioning(value: &Value) -> Provisioning {
    match text(value) {
        "Succeeded" => Provisioning::Succeeded,
        "Creating" | "Updating" | "Deleting" => Provisioning::Updating,
        "Failed" | "Canceled" => Provisioning::Failed,
        _ => Provisioning::Unknown,
    }
}

/// Returns the answer to a PUT that ended immediately; for a planted bug.
pub fn accepted() -> ArmAnswer {
    ArmAnswer::Put(PutAccepted {
        provisioning: Provisioning::Succeeded,
        operation: None,
        retry_after: RetryAfter::Absent,
        etag: None,
        correlation_id: None,
    })
}
