//! A subscription as documents, and a cluster on it. It answers reads; the simulated Azure Resource Manager of the
//! workspace answers writes.

use std::collections::BTreeMap;

use model::machine::{Machine, Now};
use serde_json::{Value, json};

use crate::call::{Address, Call, Method, Reply};
use crate::inventory::{Cluster, Inventory, Membership, Node, Purpose, Service, Survey, SurveyIn, SurveyOut};
use crate::resource_id::ResourceId;

pub(super) const GROUP: &str = "/subscriptions/s/resourceGroups/g";
pub(super) const SUBNET: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/net/subnets/nodes";

/// Returns the id of a resource of the network provider.
pub(super) fn network(kind: &str, name: &str) -> ResourceId {
    ResourceId::new(format!("{GROUP}/providers/Microsoft.Network/{kind}/{name}"))
}

/// Returns the id of a resource of the compute provider.
pub(super) fn compute(kind: &str, name: &str) -> ResourceId {
    ResourceId::new(format!("{GROUP}/providers/Microsoft.Compute/{kind}/{name}"))
}

/// Returns the id of a load balancer.
pub(super) fn balancer(name: &str) -> ResourceId {
    network("loadBalancers", name)
}

/// The documents.
#[derive(Clone)]
pub(crate) struct Cloud {
    pub(super) resources: BTreeMap<ResourceId, Value>,
    /// Locks, permissions and quotas, by the end of their path.
    pub(super) lists: BTreeMap<String, Vec<Value>>,
    pub(super) cluster: Cluster,
}

impl Cloud {
    /// Returns a subscription with a network, its security group, and no nodes.
    pub(super) fn new() -> Cloud {
        let group = ResourceId::new(GROUP);
        let security = network("networkSecurityGroups", "nsg");
        let mut cloud = Cloud {
            resources: BTreeMap::new(),
            lists: BTreeMap::from([(
                "permissions".to_owned(),
                vec![json!({"actions": ["*"], "notActions": []})],
            )]),
            cluster: Cluster {
                purpose: Purpose::Standard,
                name: "kubernetes".to_owned(),
                resource_group: group.clone(),
                load_balancer_group: group.clone(),
                network: Some(network("virtualNetworks", "net")),
                load_balancers: vec!["kubernetes".to_owned()],
                says_standard: true,
                membership: Membership::NodeIpConfiguration,
                api_server: vec!["192.0.2.1".parse().unwrap()],
                runs_on_a_node: false,
                nodes: Vec::new(),
                services: Vec::new(),
                webhooks: Vec::new(),
            },
        };
        cloud.put(&group, json!({"location": "westeurope"}));
        cloud.put(&security, json!({"properties": {"provisioningState": "Succeeded"}}));
        cloud.put(
            &ResourceId::new(SUBNET),
            json!({"properties": {"addressPrefix": "10.0.0.0/24", "networkSecurityGroup": {"id": security}}}),
        );
        cloud
    }

    /// Returns a cluster with one scale set behind a public and an internal load balancer.
    pub(crate) fn with_scale_set() -> Cloud {
        let mut cloud = Cloud::new();
        cloud.public("kubernetes", &[("a1", "20.0.0.1"), ("a2", "20.0.0.2")]);
        cloud.internal("kubernetes-internal", &[("i1", "10.0.0.100")]);
        cloud.scale_set("nodes", 2, &["kubernetes-internal", "kubernetes"]);
        cloud
    }

    /// Returns a cluster with two machines of an availability set behind a public load balancer.
    pub(super) fn with_availability_set() -> Cloud {
        let mut cloud = Cloud::new();
        cloud.public("kubernetes", &[("a1", "20.0.0.1")]);
        cloud.availability_set("machines", &["vm0", "vm1"], &["kubernetes"]);
        cloud
    }

    pub(super) fn put(&mut self, id: &ResourceId, mut body: Value) {
        body["id"] = json!(id);
        body["name"] = json!(id.name());
        self.resources.insert(id.clone(), body);
    }

    /// Changes a document.
    pub(super) fn edit(&mut self, id: &ResourceId, edit: impl FnOnce(&mut Value)) {
        edit(self.resources.get_mut(id).expect("the document exists"));
    }

    fn lb(&mut self, name: &str, frontends: Vec<Value>) {
        let id = balancer(name);
        let pool = id.child("backendAddressPools", "kubernetes");
        let names: Vec<String> = frontends.iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect();
        let rules: Vec<Value> = names
            .iter()
            .map(|frontend| {
                json!({"name": format!("{frontend}-TCP-80"), "id": id.child("loadBalancingRules", frontend), "properties": {
                    "frontendIPConfiguration": {"id": id.child("frontendIPConfigurations", frontend)},
                    "backendAddressPool": {"id": pool},
                    "probe": {"id": id.child("probes", &format!("{frontend}-TCP-80"))},
                    "protocol": "Tcp", "frontendPort": 80, "backendPort": 80, "enableFloatingIP": true,
                }})
            })
            .collect();
        let probes: Vec<Value> = names
            .iter()
            .map(|frontend| json!({"name": format!("{frontend}-TCP-80"), "properties": {"protocol": "Tcp", "port": 30080}}))
            .collect();
        self.put(
            &id,
            json!({"location": "westeurope", "sku": {"name": "Basic", "tier": "Regional"}, "etag": "W/\"1\"",
                "tags": {"owner": "shop"}, "properties": {
                "provisioningState": "Succeeded", "resourceGuid": "guid",
                "frontendIPConfigurations": frontends, "loadBalancingRules": rules, "probes": probes,
                "backendAddressPools": [{"name": "kubernetes", "id": pool, "properties": {"provisioningState": "Succeeded"}}],
            }}),
        );
    }

    /// Adds a public Basic load balancer.
    pub(super) fn public(&mut self, name: &str, frontends: &[(&str, &str)]) {
        let mut bodies = Vec::new();
        for (frontend, ip) in frontends {
            let address = network("publicIPAddresses", &format!("pip-{frontend}"));
            self.put(
                &address,
                json!({"location": "westeurope", "sku": {"name": "Basic"}, "properties": {
                    "provisioningState": "Succeeded", "publicIPAllocationMethod": "Dynamic",
                    "publicIPAddressVersion": "IPv4", "ipAddress": ip,
                }}),
            );
            bodies.push(json!({"name": frontend, "properties": {"publicIPAddress": {"id": address},
                "privateIPAllocationMethod": "Dynamic", "loadBalancingRules": [{"id": "/x"}]}}));
        }
        self.lb(name, bodies);
    }

    /// Adds an internal Basic load balancer.
    pub(super) fn internal(&mut self, name: &str, frontends: &[(&str, &str)]) {
        let body = |(frontend, ip): &(&str, &str)| {
            json!({"name": frontend, "properties": {"subnet": {"id": SUBNET}, "privateIPAddress": ip,
                "privateIPAllocationMethod": "Dynamic"}})
        };
        self.lb(name, frontends.iter().map(body).collect());
    }

    fn configuration(name: &str, lbs: &[&str]) -> Value {
        let pools: Vec<Value> = lbs
            .iter()
            .map(|lb| json!({"id": balancer(lb).child("backendAddressPools", "kubernetes")}))
            .collect();
        json!({"name": name, "properties": {"primary": true, "subnet": {"id": SUBNET},
            "privateIPAddressVersion": "IPv4", "loadBalancerBackendAddressPools": pools}})
    }

    /// Lists a configuration as a member of the pools that it refers to.
    fn list_member(&mut self, lbs: &[&str], configuration: &ResourceId) {
        for lb in lbs {
            self.edit(&balancer(lb), |body| {
                let pool = &mut body["properties"]["backendAddressPools"][0]["properties"];
                let mut members = pool["backendIPConfigurations"].as_array().cloned().unwrap_or_default();
                members.push(json!({"id": configuration}));
                pool["backendIPConfigurations"] = json!(members);
            });
        }
    }

    /// Adds a uniform scale set whose instances are nodes.
    pub(super) fn scale_set(&mut self, name: &str, instances: usize, lbs: &[&str]) {
        let id = compute("virtualMachineScaleSets", name);
        let profile = json!({"networkInterfaceConfigurations": [
            {"name": "nic", "properties": {"primary": true, "ipConfigurations": [Cloud::configuration("ip", lbs)]}},
        ]});
        self.put(
            &id,
            json!({"location": "westeurope", "etag": "\"1\"", "sku": {"capacity": instances}, "properties": {
                "provisioningState": "Succeeded", "orchestrationMode": "Uniform", "upgradePolicy": {"mode": "Manual"},
                "virtualMachineProfile": {"osProfile": {"computerNamePrefix": name}, "networkProfile": profile},
            }}),
        );
        for number in 0..instances {
            let instance = id.child("virtualMachines", &number.to_string());
            self.put(
                &instance,
                json!({"location": "westeurope", "properties": {"provisioningState": "Succeeded", "latestModelApplied": true,
                    "networkProfileConfiguration": profile}}),
            );
            let configuration = instance.child("networkInterfaces", "nic").child("ipConfigurations", "ip");
            self.list_member(lbs, &configuration);
            self.node(&format!("{name}-{number}"), &instance);
        }
    }

    /// Adds an availability set whose machines are nodes.
    pub(super) fn availability_set(&mut self, name: &str, machines: &[&str], lbs: &[&str]) {
        let set = compute("availabilitySets", name);
        let members: Vec<Value> =
            machines.iter().map(|machine| json!({"id": compute("virtualMachines", machine)})).collect();
        self.put(&set, json!({"location": "westeurope", "properties": {"virtualMachines": members}}));
        for name in machines {
            let (machine, interface) =
                (compute("virtualMachines", name), network("networkInterfaces", &format!("{name}-nic")));
            self.put(
                &machine,
                json!({"location": "westeurope", "properties": {"provisioningState": "Succeeded",
                    "availabilitySet": {"id": set}, "networkProfile": {"networkInterfaces": [{"id": interface}]}}}),
            );
            self.put(
                &interface,
                json!({"location": "westeurope", "properties": {"provisioningState": "Succeeded", "primary": true,
                    "virtualMachine": {"id": machine}, "ipConfigurations": [Cloud::configuration("ip", lbs)]}}),
            );
            self.list_member(lbs, &interface.child("ipConfigurations", "ip"));
            self.node(name, &machine);
        }
    }

    fn node(&mut self, name: &str, machine: &ResourceId) {
        let address = format!("10.0.0.{}", self.cluster.nodes.len() + 4).parse().unwrap();
        self.cluster.nodes.push(Node {
            name: name.to_owned(),
            machine: Some(machine.clone()),
            addresses: vec![address],
            excluded: false,
        });
    }

    /// Adds a Service with this address.
    pub(super) fn service(&mut self, name: &str, address: &str) {
        self.cluster
            .services
            .push(Service { name: name.to_owned(), addresses: vec![address.parse().unwrap()] });
    }

    /// Returns the direct children of a collection.
    fn children(&self, collection: &ResourceId) -> Vec<&Value> {
        let is_child =
            |id: &ResourceId| id.below(collection).is_some_and(|rest| rest.matches('/').count() == 1);
        self.resources.iter().filter(|(id, _)| is_child(id)).map(|(_, body)| body).collect()
    }

    fn answer(&self, call: &Call) -> Reply {
        assert_eq!(call.method, Method::Get, "a survey only reads");
        let Address::Path(path) = &call.address else { panic!("no list has a second page") };
        let id = ResourceId::new(path.split('?').next().unwrap());
        let ok = |body| Reply { status: 200, body, ..Reply::default() };
        match id.name().to_ascii_lowercase().as_str() {
            "locks" | "permissions" | "usages" => {
                let above = id.resource_group().is_none() && id.name() == "locks";
                let list = self.lists.get(id.name()).filter(|_| !above).cloned().unwrap_or_default();
                ok(json!({ "value": list }))
            }
            "virtualmachinescalesets" | "virtualmachines" => ok(json!({ "value": self.children(&id) })),
            _ => match self.resources.get(&id) {
                Some(body) => ok(body.clone()),
                None => Reply { status: 404, ..Reply::default() },
            },
        }
    }

    /// Reads everything in scope.
    pub(crate) fn survey(&self) -> Inventory {
        let mut survey = Survey::new(self.cluster.clone());
        let mut out = Vec::new();
        survey.step(Now::ZERO, SurveyIn::Start, &mut out);
        loop {
            let mut next = Vec::new();
            for output in std::mem::take(&mut out) {
                match output {
                    SurveyOut::Done(inventory) => return *inventory,
                    SurveyOut::Call(id, call) => {
                        survey.step(Now::ZERO, SurveyIn::Answer(id, Ok(self.answer(&call))), &mut next);
                    }
                }
            }
            assert!(!next.is_empty(), "the survey waits for nothing");
            out = next;
        }
    }
}
