//! The environment of the experiments: the suite's own virtual network, public address and Standard load balancer. A
//! server without networks or addresses, as a simulated one may be, has only the load balancer.

use std::cell::{Cell, RefCell};

use anyhow::{Context as _, ensure};
use arm::RawAnswer;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::azure::{Azure, describe, is_unknown};
use crate::report::{Case, Outcome};

/// The suite's own resources.
pub(crate) struct Stage<'a> {
    pub(crate) azure: &'a Azure,
    /// The common prefix of all names.
    pub(crate) name: String,
    /// True if the server has virtual networks.
    pub(crate) has_networks: bool,
    /// True if the server has public addresses.
    pub(crate) has_addresses: bool,
    /// The last octet of the most recently used address.
    last: Cell<u8>,
    /// The ids of the created resources, which are deleted in reverse order.
    created: RefCell<Vec<String>>,
}

/// The pools of the load balancer.
pub(crate) const POOLS: [&str; 4] = ["first", "second", "outbound", "interfaces"];

impl<'a> Stage<'a> {
    /// Creates everything; an error includes the resources created so far.
    pub(crate) async fn set_up(azure: &'a Azure) -> Result<Stage<'a>, (Stage<'a>, anyhow::Error)> {
        let id = uuid::Uuid::new_v4().simple().to_string();
        let mut stage = Stage {
            azure,
            name: format!("conformance-{}", &id[..8]),
            has_networks: false,
            has_addresses: false,
            last: Cell::new(9),
            created: RefCell::default(),
        };
        match stage.create().await {
            Ok(()) => Ok(stage),
            Err(error) => Err((stage, error)),
        }
    }

    async fn create(&mut self) -> anyhow::Result<()> {
        let location = &self.azure.location;
        let network = json!({ "location": location, "properties": {
            "addressSpace": { "addressPrefixes": ["10.254.0.0/16"] },
            "subnets": [{ "name": "nodes", "properties": { "addressPrefix": "10.254.0.0/24" } }],
        } });
        self.has_networks = self.create_where_known(&self.network(), network).await?;
        let address = json!({
            "location": location, "sku": { "name": "Standard" },
            "properties": { "publicIPAllocationMethod": "Static" },
        });
        self.has_addresses = self.create_where_known(&self.address(), address).await?;
        let made = self.put_new(&self.load_balancer(), self.load_balancer_body()).await?;
        self.azure.done("the load balancer is created", &made).await
    }

    /// Creates a resource. Returns false if the server has no such resources.
    async fn create_where_known(&self, id: &str, body: Value) -> anyhow::Result<bool> {
        let made = self.put_new(id, body).await?;
        if is_unknown(&made) {
            return Ok(false);
        }
        self.azure.done(&format!("{id} is created"), &made).await?;
        Ok(true)
    }

    /// Creates a resource that [`Stage::clear_up`] deletes. Returns any answer, after its operation.
    pub(crate) async fn try_create(&self, path: &str, body: Value) -> anyhow::Result<RawAnswer> {
        let id = self.azure.id(path);
        let made = self.put_new(&id, body).await?;
        if made.status < 300 {
            self.azure.end(&made).await?;
        }
        Ok(made)
    }

    /// Sends a PUT of a new resource, which is deleted at the end unless it is refused.
    async fn put_new(&self, id: &str, body: Value) -> anyhow::Result<RawAnswer> {
        self.created.borrow_mut().push(id.to_owned());
        let made = self.azure.put(id, body).await?;
        if made.status >= 300 {
            self.created.borrow_mut().pop();
        }
        Ok(made)
    }

    pub(crate) fn network(&self) -> String {
        self.azure.id(&format!("virtualNetworks/{}", self.name))
    }

    pub(crate) fn subnet(&self) -> String {
        format!("{}/subnets/nodes", self.network())
    }

    pub(crate) fn address(&self) -> String {
        self.azure.id(&format!("publicIPAddresses/{}", self.name))
    }

    pub(crate) fn load_balancer(&self) -> String {
        self.azure.id(&format!("loadBalancers/{}", self.name))
    }

    pub(crate) fn pool(&self, pool: &str) -> String {
        format!("{}/backendAddressPools/{pool}", self.load_balancer())
    }

    fn load_balancer_body(&self) -> Value {
        let load_balancer = self.load_balancer();
        let reference = |kind: &str, name: &str| json!({ "id": format!("{load_balancer}/{kind}/{name}") });
        json!({
            "location": self.azure.location, "sku": { "name": "Standard" },
            "properties": {
                "frontendIPConfigurations": [
                    { "name": "frontend", "properties": { "publicIPAddress": { "id": self.address() } } },
                ],
                "backendAddressPools": POOLS.map(|name| json!({ "name": name })),
                "outboundRules": [{ "name": "egress", "properties": {
                    "protocol": "All", "allocatedOutboundPorts": 64,
                    "frontendIPConfigurations": [reference("frontendIPConfigurations", "frontend")],
                    "backendAddressPool": reference("backendAddressPools", "outbound"),
                } }],
            },
        })
    }

    /// Returns an unused address of the network.
    pub(crate) fn fresh(&self) -> String {
        self.last.set(self.last.get().wrapping_add(1).max(10));
        format!("10.254.0.{}", self.last.get())
    }

    /// Returns the body of a pool with these members.
    pub(crate) fn members(&self, addresses: &[&str]) -> Value {
        let members = addresses.iter().map(|ip| json!({ "name": ip, "properties": { "ipAddress": ip } }));
        json!({ "properties": {
            "virtualNetwork": { "id": self.network() },
            "loadBalancerBackendAddresses": members.collect::<Vec<_>>(),
        } })
    }

    /// Writes a pool and waits for the operation; returns the answer of the write.
    pub(crate) async fn write(&self, pool: &str, body: Value) -> anyhow::Result<RawAnswer> {
        let answer = self.azure.put(&self.pool(pool), body).await?;
        self.azure.done(&format!("pool {pool} is written"), &answer).await?;
        Ok(answer)
    }

    /// Reads a pool.
    pub(crate) async fn read(&self, pool: &str) -> anyhow::Result<Value> {
        let answer = self.azure.get(&self.pool(pool)).await?;
        ensure!(answer.status == 200, "GET of pool {pool}: {}", describe(&answer));
        Ok(answer.body)
    }

    /// Waits until no operation runs on the load balancer.
    pub(crate) async fn at_rest(&self) -> anyhow::Result<Value> {
        self.azure.at_rest(&self.name).await.context("the suite's load balancer")
    }

    /// Deletes everything; the cases name resources that could not be deleted.
    pub(crate) async fn clear_up(self) -> Vec<Case> {
        let begin = Instant::now();
        let ids: Vec<String> = self.created.borrow().iter().rev().cloned().collect();
        let mut left = Vec::new();
        for id in ids {
            if let Err(error) = self.remove(&id).await {
                left.push(format!("{error:#}"));
            }
        }
        if left.is_empty() {
            return Vec::new();
        }
        let outcome = Outcome::Failed(format!("delete these manually: {}", left.join("; ")));
        let about = "The suite's own resources are deleted.";
        vec![Case { suite: "conformance", name: "clear-up", about, outcome, took: begin.elapsed() }]
    }

    /// Deletes a resource, if it exists and the server can delete it.
    pub(crate) async fn remove(&self, id: &str) -> anyhow::Result<()> {
        let answer = self.azure.delete(id).await?;
        if answer.status == 404 || is_unknown(&answer) {
            return Ok(());
        }
        self.azure.done(&format!("{id} is deleted"), &answer).await
    }
}

/// Returns the members of a pool, by their addresses.
pub(crate) fn addresses(pool: &Value) -> Vec<&str> {
    let members = pool["properties"]["loadBalancerBackendAddresses"].as_array();
    members.into_iter().flatten().filter_map(|member| member["properties"]["ipAddress"].as_str()).collect()
}
