//! Renders the cloud configuration without secrets: as JSON, and as effective values.

use super::file::RateLimitFile;
use super::{
    BalancerConfiguration, CloudConfig, LOAD_BALANCER_RATE_LIMIT, LoadBalancerSku, MAX_RETRIES, NODE_IP,
    NODE_IP_CONFIGURATION, POD_IP, PoolMembers, balancers,
};
use crate::value::{EffectiveValue, Origin, REDACTED, Value};

impl CloudConfig {
    /// Returns the configuration as JSON. Absent and null keys stay absent (Q7), unknown keys and selectors are
    /// dropped, and secrets are [`REDACTED`].
    pub fn to_json(&self) -> String {
        let mut root = json_of(self.file.values());
        root.extend(json_of(self.rate_limit.values()));
        if let Some(limit) = &self.load_balancer_rate_limit {
            root.insert(LOAD_BALANCER_RATE_LIMIT.to_owned(), json_of(limit.values()).into());
        }
        if !self.configurations.is_empty() {
            let entries: Vec<_> = self.configurations.iter().map(balancer_json).collect();
            root.insert(balancers::KEY.to_owned(), entries.into());
        }
        serde_json::to_string_pretty(&root).expect("a JSON map with text keys always serialises")
    }

    /// Returns every key with its value in force.
    pub(crate) fn effective(&self) -> Vec<EffectiveValue> {
        let resolved = self.resolved();
        let mut effective = Vec::new();
        for (key, written) in self.file.values() {
            let origin = self.origin(key, written.is_some());
            let in_force = resolved.iter().find(|(name, _)| *name == key).map(|(_, value)| value.clone());
            effective.push(EffectiveValue::new(key, in_force.or(written).unwrap_or(Value::Absent), origin));
        }
        let names = self.configurations.iter().map(|entry| entry.name.clone()).collect::<Vec<_>>();
        let origin = self.origin(balancers::KEY, !names.is_empty());
        effective.push(EffectiveValue::new(balancers::KEY, Value::List(names), origin));
        let nested = self.load_balancer_rate_limit.iter().flat_map(RateLimitFile::values);
        let nested = nested.map(|(key, value)| (format!("{LOAD_BALANCER_RATE_LIMIT}.{key}"), value));
        let general = self.rate_limit.values().into_iter().map(|(key, value)| (key.to_owned(), value));
        for (path, written) in general.chain(nested) {
            let origin = self.origin(&path, written.is_some());
            effective.push(EffectiveValue::new(path, written.unwrap_or(Value::Absent), origin));
        }
        effective
    }

    /// Returns the origin of a key's value.
    pub(crate) fn origin(&self, path: &str, is_written: bool) -> Origin {
        match is_written {
            false => Origin::Default,
            true if self.from_secret.contains(&path.to_ascii_lowercase()) => Origin::Secret,
            true => Origin::File,
        }
    }

    /// Returns the values in force of the keys that have a default or are normalised.
    fn resolved(&self) -> Vec<(&'static str, Value)> {
        let text = |text: &str| Value::Text(text.to_owned());
        let sku = match self.sku {
            LoadBalancerSku::Basic => "basic",
            LoadBalancerSku::Standard => "standard",
        };
        let pool_members = match self.pool_members {
            PoolMembers::NodeIpConfiguration => NODE_IP_CONFIGURATION,
            PoolMembers::NodeIp => NODE_IP,
            PoolMembers::PodIp => POD_IP,
        };
        let interval = i64::try_from(self.update_interval().as_secs()).unwrap_or(i64::MAX);
        vec![
            ("resourceManagerEndpoint", text(self.arm_endpoint.as_str())),
            ("networkResourceSubscriptionID", text(self.network_subscription())),
            ("resourceGroup", text(&self.resource_group)),
            ("loadBalancerResourceGroup", text(self.load_balancer_resource_group())),
            ("loadBalancerSku", text(sku)),
            ("loadBalancerBackendPoolConfigurationType", text(pool_members)),
            ("loadBalancerBackendPoolUpdateIntervalInSeconds", Value::Integer(interval)),
            (MAX_RETRIES, Value::Integer(self.max_retries().into())),
            ("enableLoadBalancerAdminState", Value::Boolean(self.admin_state_enabled())),
            ("excludeMasterFromStandardLB", Value::Boolean(self.excludes_control_plane())),
        ]
    }
}

fn json_of(values: Vec<(&'static str, Option<Value>)>) -> serde_json::Map<String, serde_json::Value> {
    let mut map = serde_json::Map::new();
    for (key, value) in values {
        let json: serde_json::Value = match value {
            None | Some(Value::Absent) => continue,
            Some(Value::Text(text)) => text.into(),
            Some(Value::Integer(number)) => number.into(),
            Some(Value::Decimal(number)) => number.into(),
            Some(Value::Boolean(on)) => on.into(),
            Some(Value::Duration(length)) => crate::duration::render(length).into(),
            Some(Value::List(items)) => items.into(),
            Some(Value::Maps(items)) => {
                items.into_iter().map(|pairs| pairs.into_iter().collect::<serde_json::Value>()).collect()
            }
            Some(Value::Secret) => REDACTED.into(),
        };
        map.insert(key.to_owned(), json);
    }
    map
}

fn balancer_json(entry: &BalancerConfiguration) -> serde_json::Value {
    let mut map = serde_json::Map::new();
    map.insert("name".to_owned(), entry.name.clone().into());
    map.insert("primaryVMSet".to_owned(), entry.primary_vm_set.clone().into());
    if let Some(allowed) = entry.allow_service_placement {
        map.insert("allowServicePlacement".to_owned(), allowed.into());
    }
    map.into()
}
