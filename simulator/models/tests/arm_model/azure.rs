//! A client that reads, changes and writes resources of a cluster, one second apart.

use serde_json::{Value, json};
use simulator_models::arm::topology::{Cluster, NETWORK, SUBNET, Topology};
use simulator_models::arm::{ArmModel, Method, Response, Settings};

use crate::support::{GROUP, SECOND, json_of, operation, request, send, text};

/// The model and the time.
#[derive(Clone)]
pub struct Azure {
    /// The model.
    pub model: ArmModel,
    /// The time of the last request.
    pub now: u64,
}

impl Azure {
    /// Returns a cluster of the catalogue; writes are finished when they are answered.
    pub fn of(topology: Topology) -> Self {
        Self::with(&topology.cluster(), Settings::default())
    }

    /// Returns a cluster.
    pub fn with(cluster: &Cluster, settings: Settings) -> Self {
        Self { model: cluster.build(settings).expect("the cluster is taken"), now: 0 }
    }

    /// Sends a request one second after the last one.
    pub fn call(&mut self, method: Method, id: &str, headers: &[(&str, &str)], body: &Value) -> Response {
        self.now += SECOND;
        let separator = if id.contains('?') { '&' } else { '?' };
        let path = format!("{id}{separator}api-version=2025-05-01");
        send(&mut self.model, &request(method, &path, headers, &body.to_string()), self.now)
    }

    /// Returns an existing resource (GET).
    pub fn get(&mut self, id: &str) -> Value {
        let found = self.call(Method::Get, id, &[], &Value::Null);
        assert_eq!(found.status, 200, "{id}: {}", String::from_utf8_lossy(&found.body));
        json_of(&found)
    }

    /// Writes a resource (PUT).
    pub fn put(&mut self, id: &str, body: &Value) -> Response {
        self.call(Method::Put, id, &[], body)
    }

    /// Writes a resource (PUT), and requires success.
    pub fn must_put(&mut self, id: &str, body: &Value) -> Value {
        let answer = self.put(id, body);
        assert!(answer.status < 300, "{id}: {}", String::from_utf8_lossy(&answer.body));
        json_of(&answer)
    }

    /// Reads a resource, changes it, and writes it.
    pub fn change(&mut self, id: &str, change: impl FnOnce(&mut Value)) -> Response {
        let mut body = self.get(id);
        change(&mut body);
        self.put(id, &body)
    }

    /// Deletes a resource (DELETE).
    pub fn delete(&mut self, id: &str) -> Response {
        self.call(Method::Delete, id, &[], &Value::Null)
    }

    /// Waits for the operation of an answer, and returns its end.
    pub fn wait(&mut self, answer: &Response) -> String {
        let path = operation(answer);
        loop {
            self.now += SECOND;
            let poll = send(&mut self.model, &request(Method::Get, &path, &[], ""), self.now);
            let status = text(&json_of(&poll), "/status");
            if status != "InProgress" {
                return status;
            }
        }
    }
}

/// Returns the id of a network resource.
pub fn network(rest: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Network/{rest}")
}

/// Returns the id of a compute resource.
pub fn compute(rest: &str) -> String {
    format!("{GROUP}/providers/Microsoft.Compute/{rest}")
}

/// Returns the id of the subnet of the nodes.
pub fn subnet() -> String {
    network(&format!("virtualNetworks/{NETWORK}/subnets/{SUBNET}"))
}

/// Returns a public IP.
pub fn public_ip(sku: &str, method: &str) -> Value {
    json!({"location": "eastus", "sku": {"name": sku}, "properties": {"publicIPAllocationMethod": method}})
}

/// Returns a load balancer with one internal frontend, the pool `pool` and a rule between them.
pub fn internal_balancer(name: &str, sku: &str, address: Option<&str>) -> Value {
    let id = network(&format!("loadBalancers/{name}"));
    let mut frontend = json!({"subnet": {"id": subnet()}});
    if let Some(address) = address {
        frontend["privateIPAllocationMethod"] = "Static".into();
        frontend["privateIPAddress"] = address.into();
    }
    json!({"location": "eastus", "sku": {"name": sku}, "properties": {
        "frontendIPConfigurations": [{"name": "front", "properties": frontend}],
        "backendAddressPools": [{"name": "pool", "properties": {}}],
        "loadBalancingRules": [{"name": "rule", "properties": {
            "frontendIPConfiguration": {"id": format!("{id}/frontendIPConfigurations/front")},
            "backendAddressPool": {"id": format!("{id}/backendAddressPools/pool")},
            "protocol": "Tcp", "frontendPort": 80, "backendPort": 80}}]}})
}

/// Adds a pool to the first IP configuration of an interface, or of a list of interfaces.
pub fn join(configuration: &mut Value, load_balancer: &str) {
    let id = network(&format!("loadBalancers/{load_balancer}/backendAddressPools/pool"));
    let pools = &mut configuration["properties"]["loadBalancerBackendAddressPools"];
    if pools.is_null() {
        *pools = json!([]);
    }
    pools.as_array_mut().expect("pools are a list").push(json!({ "id": id }));
}

/// Returns the first IP configuration of an interface.
pub fn of_interface(interface: &mut Value) -> &mut Value {
    &mut interface["properties"]["ipConfigurations"][0]
}

/// Returns the first IP configuration in the model of a scale set.
pub fn of_scale_set(set: &mut Value) -> &mut Value {
    let profile = &mut set["properties"]["virtualMachineProfile"]["networkProfile"];
    of_interface(&mut profile["networkInterfaceConfigurations"][0])
}

/// Returns the first IP configuration of an instance.
pub fn of_instance(instance: &mut Value) -> &mut Value {
    let profile = &mut instance["properties"]["networkProfileConfiguration"];
    of_interface(&mut profile["networkInterfaceConfigurations"][0])
}

/// Removes an IP configuration from all load balancers.
pub fn leave(configuration: &mut Value) {
    for list in
        ["loadBalancerBackendAddressPools", "loadBalancerInboundNatPools", "loadBalancerInboundNatRules"]
    {
        configuration["properties"].as_object_mut().expect("properties are an object").shift_remove(list);
    }
}
