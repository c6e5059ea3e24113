//! The nodes of a cluster: machines with interfaces, and scale sets.

use serde_json::{Value, json};

use super::{
    Cluster, Ids, InboundNat, LOAD_BALANCER, NodeGroup, NodeKind, POOL, UpgradePolicy, balancer_name,
    frontend_name,
};
use crate::arm::ArmModel;

impl NodeGroup {
    pub(super) fn is_uniform(&self) -> bool {
        match self.kind {
            NodeKind::ScaleSet(_) => true,
            NodeKind::AvailabilitySet | NodeKind::Standalone | NodeKind::Flexible => false,
        }
    }

    /// Returns the name of a machine of the group.
    #[must_use]
    pub fn machine(&self, at: u32) -> String {
        format!("{}-{at}", self.name)
    }
}

impl Cluster {
    pub(super) fn seed_nodes(
        &self,
        model: &mut ArmModel,
        ids: &Ids,
        group: &NodeGroup,
    ) -> Result<(), String> {
        match group.kind {
            NodeKind::ScaleSet(policy) => self.seed_scale_set(model, ids, group, policy),
            NodeKind::AvailabilitySet => {
                let set = ids.compute(&format!("availabilitySets/{}", group.name));
                let body = json!({"location": ids.location, "sku": {"name": "Aligned"},
                    "properties": {"platformFaultDomainCount": 2, "platformUpdateDomainCount": 5}});
                model.seed(&set, &body)?;
                self.seed_machines(model, ids, group, &json!({"availabilitySet": {"id": set}}))
            }
            NodeKind::Flexible => {
                let set = ids.compute(&format!("virtualMachineScaleSets/{}", group.name));
                let body = json!({"location": ids.location, "sku": {"name": "Standard_D2s_v3", "capacity": group.count},
                    "properties": {"orchestrationMode": "Flexible", "platformFaultDomainCount": 1}});
                model.seed(&set, &body)?;
                self.seed_machines(model, ids, group, &json!({"virtualMachineScaleSet": {"id": set}}))
            }
            NodeKind::Standalone => self.seed_machines(model, ids, group, &json!({})),
        }
    }

    fn seed_machines(
        &self,
        model: &mut ArmModel,
        ids: &Ids,
        group: &NodeGroup,
        placed: &Value,
    ) -> Result<(), String> {
        for at in 0..group.count {
            let machine = group.machine(at);
            let interface = ids.network(&format!("networkInterfaces/{machine}-nic"));
            let mut own = json!({});
            if let Some(sku) = group.public_ip {
                let address = ids.network(&format!("publicIPAddresses/{machine}-pip"));
                let body = json!({"location": ids.location, "sku": {"name": sku.name()},
                    "properties": {"publicIPAllocationMethod": "Static"}});
                model.seed(&address, &body)?;
                own["publicIPAddress"] = json!({ "id": address });
            }
            // The machine comes first, because its group determines which members may share a Basic load balancer.
            let bare = self.interface(ids, &NodeGroup { in_pools: false, ..group.clone() }, &json!({}));
            model.seed(
                &interface,
                &json!({"location": ids.location, "properties": {"ipConfigurations": bare}}),
            )?;
            let mut properties = placed.clone();
            properties["hardwareProfile"] = json!({"vmSize": "Standard_D2s_v3"});
            properties["networkProfile"] = json!({"networkInterfaces": [{"id": interface}]});
            let id = ids.compute(&format!("virtualMachines/{machine}"));
            model.seed(&id, &json!({"location": ids.location, "properties": properties}))?;
            if self.inbound_nat == InboundNat::Rules && group.in_pools {
                let rule = format!("loadBalancers/{LOAD_BALANCER}/inboundNatRules/ssh-{machine}");
                own["loadBalancerInboundNatRules"] = json!([{"id": ids.network(&rule)}]);
            }
            let configurations = self.interface(ids, group, &own);
            let body = json!({"location": ids.location, "properties": {"ipConfigurations": configurations}});
            model.seed(&interface, &body)?;
        }
        Ok(())
    }

    fn seed_scale_set(
        &self,
        model: &mut ArmModel,
        ids: &Ids,
        group: &NodeGroup,
        policy: UpgradePolicy,
    ) -> Result<(), String> {
        let mode = match policy {
            UpgradePolicy::Manual => "Manual",
            UpgradePolicy::Automatic => "Automatic",
            UpgradePolicy::Rolling => "Rolling",
        };
        let mut own = json!({});
        if let Some(sku) = group.public_ip {
            own["publicIPAddressConfiguration"] = json!({"name": "pip", "sku": {"name": sku.name(), "tier": "Regional"},
                "properties": {"idleTimeoutInMinutes": 15}});
        }
        if self.inbound_nat == InboundNat::Pools && group.in_pools {
            let pool = format!("loadBalancers/{LOAD_BALANCER}/inboundNatPools/ssh-{}", group.name);
            own["loadBalancerInboundNatPools"] = json!([{"id": ids.network(&pool)}]);
        }
        let interface = json!({"name": group.name, "properties": {"primary": true, "enableIPForwarding": true,
            "ipConfigurations": self.interface(ids, group, &own)}});
        let mut network = json!({"networkInterfaceConfigurations": [interface]});
        let first = self.services.iter().enumerate().find(|(_, service)| service.is_external());
        if let Some((at, service)) = first.filter(|_| self.health_probe) {
            let probe =
                format!("loadBalancers/{LOAD_BALANCER}/probes/{}-TCP-{}", frontend_name(at), service.port);
            network["healthProbe"] = json!({"id": ids.network(&probe)});
        }
        let body = json!({
            "location": ids.location,
            "sku": {"name": "Standard_D2s_v3", "tier": "Standard", "capacity": group.count},
            "properties": {
                "orchestrationMode": "Uniform",
                "upgradePolicy": {"mode": mode, "automaticOSUpgradePolicy": {"enableAutomaticOSUpgrade": false}},
                "overprovision": false,
                "virtualMachineProfile": {
                    "osProfile": {"computerNamePrefix": group.name},
                    "storageProfile": {"imageReference": {"sku": "22_04-lts", "version": "latest"}},
                    "networkProfile": network,
                },
            },
        });
        model.seed(&ids.compute(&format!("virtualMachineScaleSets/{}", group.name)), &body)
    }

    /// Returns the IP configurations of a node.
    fn interface(&self, ids: &Ids, group: &NodeGroup, own: &Value) -> Value {
        let balancers = [true, false].into_iter().filter(|external| {
            group.in_pools && self.services.iter().any(|service| service.is_external() == *external)
        });
        let pools: Vec<Value> = balancers
            .map(|external| {
                let pool = format!("loadBalancers/{}/backendAddressPools/{POOL}", balancer_name(external));
                json!({"id": ids.network(&pool)})
            })
            .collect();
        let mut first = own.clone();
        first["primary"] = true.into();
        first["subnet"] = json!({"id": ids.subnet()});
        first["privateIPAddressVersion"] = "IPv4".into();
        first["loadBalancerBackendAddressPools"] = pools.into();
        let mut all = vec![json!({"name": "ipconfig1", "properties": first})];
        if group.secondary {
            all.push(json!({"name": "ipconfig2", "properties": {"primary": false,
                "subnet": {"id": ids.subnet()}, "privateIPAddressVersion": "IPv4"}}));
        }
        if self.has_v6() {
            let pool = format!("loadBalancers/{LOAD_BALANCER}/backendAddressPools/{POOL}-IPv6");
            let pools = if group.in_pools { json!([{"id": ids.network(&pool)}]) } else { json!([]) };
            all.push(json!({"name": "ipconfig-v6", "properties": {"primary": false,
                "subnet": {"id": ids.subnet()}, "privateIPAddressVersion": "IPv6",
                "loadBalancerBackendAddressPools": pools}}));
        }
        all.into()
    }
}
