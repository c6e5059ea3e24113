//! A client for the model: builds requests and parses answers.

use serde_json::{Value, json};
use simulator_models::arm::{
    ArmModel, Latency, Method, PoolSpec, Reply, Request, Response, Settings, VirtualNetwork,
};

/// Resource group of all resources.
pub const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg";
/// A virtual network.
pub const VNET: &str = "/subscriptions/s/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet";
/// One second.
pub const SECOND: u64 = 1_000_000;

/// Asynchronous operations of five seconds.
pub fn asynchronous() -> Settings {
    Settings { operation: Some(Latency::Fixed { us: 5 * SECOND }), ..Settings::default() }
}

/// Creates a model with the load balancers `lb` and `other`, each with pools `a` and `b` with one member.
pub fn model(settings: Settings) -> ArmModel {
    let mut model = ArmModel::new(settings);
    for lb in ["lb", "other"] {
        for (pool, ip) in [("a", "10.0.0.1"), ("b", "10.0.0.2")] {
            let spec = PoolSpec {
                virtual_network: VirtualNetwork::Pool(VNET.to_owned()),
                members: vec![(format!("node-{ip}"), ip.to_owned())],
                ..PoolSpec::default()
            };
            model.add_pool(lb, pool, &spec);
        }
    }
    model
}

/// Returns a path below the load balancers, with an API version.
pub fn path(rest: &str) -> String {
    let below = if rest.is_empty() { String::new() } else { format!("/{rest}") };
    format!("{GROUP}/providers/Microsoft.Network/loadBalancers{below}?api-version=2025-05-01")
}

/// Returns a pool's path.
pub fn pool_path(lb: &str, pool: &str) -> String {
    path(&format!("{lb}/backendAddressPools/{pool}"))
}

/// Returns a request.
pub fn request(method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Request {
    Request {
        method,
        path_and_query: path.to_owned(),
        headers: headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        body: body.as_bytes().to_vec(),
    }
}

/// Sends a request and requires an answer.
pub fn send(model: &mut ArmModel, request: &Request, now: u64) -> Response {
    match model.handle(request, now) {
        Reply::Answer(response) => response,
        other @ (Reply::Lost { .. } | Reply::Refused) => panic!("expected an answer, got {other:?}"),
    }
}

/// Sends a GET to a path.
pub fn get(model: &mut ArmModel, path: &str, now: u64) -> Response {
    send(model, &request(Method::Get, path, &[], ""), now)
}

/// Sends a PUT of a pool.
pub fn put(model: &mut ArmModel, lb: &str, pool: &str, body: &Value, now: u64) -> Response {
    put_with(model, lb, pool, body, &[], now)
}

/// Sends a PUT of a pool with headers.
pub fn put_with(
    model: &mut ArmModel,
    lb: &str,
    pool: &str,
    body: &Value,
    headers: &[(&str, &str)],
    now: u64,
) -> Response {
    send(model, &request(Method::Put, &pool_path(lb, pool), headers, &body.to_string()), now)
}

/// Returns the body with these IPs.
pub fn holding(ips: &[&str]) -> Value {
    let addresses: Vec<Value> =
        ips.iter().map(|ip| json!({"name": format!("node-{ip}"), "properties": {"ipAddress": ip}})).collect();
    let network = json!({"id": VNET});
    json!({"properties": {"virtualNetwork": network, "loadBalancerBackendAddresses": addresses}})
}

/// Returns the JSON of an answer.
pub fn json_of(response: &Response) -> Value {
    serde_json::from_slice(&response.body).expect("the body should be JSON")
}

/// Returns the error code of an answer.
pub fn code(response: &Response) -> String {
    text(&json_of(response), "/error/code")
}

/// Returns the error code of the first detail of an answer.
pub fn detail(response: &Response) -> String {
    text(&json_of(response), "/error/details/0/code")
}

/// Returns a text inside a JSON value.
pub fn text(value: &Value, pointer: &str) -> String {
    let found = value.pointer(pointer).and_then(Value::as_str);
    found.unwrap_or_else(|| panic!("no text at {pointer} in {value}")).to_owned()
}

/// Returns the path of the operation that an answer started.
pub fn operation(response: &Response) -> String {
    let url = response.header("azure-asyncoperation").expect("the answer should name an operation");
    url.strip_prefix("https://management.azure.com").expect("the endpoint should be the default").to_owned()
}

/// Returns the sorted IPs in a pool.
pub fn ips(model: &ArmModel, lb: &str, pool: &str) -> Vec<String> {
    let ips = model.member_ips(lb, pool).expect("the pool should be there");
    ips.into_iter().map(str::to_owned).collect()
}
