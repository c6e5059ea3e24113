//! The files that the service under test reads: kubeconfig, cloud configuration, controller.yaml.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use crate::fakes::Fakes;
use crate::world::World;

/// What the files say besides the fakes' addresses.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the service's health and metrics listen.
    pub health: SocketAddr,
    /// Where the service's admin API listens.
    pub admin: SocketAddr,
    /// Keys of controller.yaml that are laid over ours, except listeners; null removes one.
    pub overlay: Option<Value>,
}

/// An overlay that cannot be used.
#[derive(Debug, Error)]
pub enum BadOverlay {
    /// It is not YAML.
    #[error("not yaml")]
    NotYaml(#[source] serde_saphyr::Error),
    /// Its top is not a map.
    #[error("not a map of keys")]
    NotAMap,
}

/// The written files.
#[derive(Clone, Debug)]
pub struct Files {
    /// For `--kubeconfig`.
    pub kubeconfig: PathBuf,
    /// For `--cloud-config`.
    pub cloud_config: PathBuf,
    /// For `--config`.
    pub controller: PathBuf,
}

impl Options {
    /// Reads an overlay from YAML or JSON.
    ///
    /// # Errors
    /// The text is not a map.
    pub fn overlay(text: &str) -> Result<Value, BadOverlay> {
        let value: Value = serde_saphyr::from_str(text).map_err(BadOverlay::NotYaml)?;
        if value.is_object() { Ok(value) } else { Err(BadOverlay::NotAMap) }
    }
}

impl Files {
    /// Writes all three into a folder, which is made when it is missing.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn write(folder: &Path, fakes: &Fakes, world: &World, options: &Options) -> io::Result<Self> {
        std::fs::create_dir_all(folder)?;
        let files = Self {
            kubeconfig: folder.join("kubeconfig"),
            cloud_config: folder.join("azure.json"),
            controller: folder.join("controller.yaml"),
        };
        std::fs::write(&files.kubeconfig, pretty(&kubeconfig(&fakes.kubernetes_url)))?;
        std::fs::write(&files.cloud_config, pretty(&cloud_config(&fakes.arm_url, world)))?;
        std::fs::write(&files.controller, pretty(&controller(options)))?;
        Ok(files)
    }
}

/// The virtual network that the cloud configuration names.
#[must_use]
pub fn vnet_id() -> String {
    let defaults = simulator_models::arm::Settings::default();
    let (subscription, group) = (defaults.subscription, defaults.resource_group);
    format!(
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks/{VNET}"
    )
}

/// A port of the loopback interface that was free at the moment of the call.
///
/// # Errors
/// None can be had.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

const VNET: &str = "vnet";
const TENANT: &str = "00000000-0000-0000-0000-000000000001";

fn kubeconfig(server: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "simulator", "cluster": {"server": server}}],
        "users": [{"name": "simulator", "user": {"token": "simulator"}}],
        "contexts": [{"name": "simulator", "context": {"cluster": "simulator", "user": "simulator"}}],
        "current-context": "simulator"
    })
}

fn cloud_config(arm: &str, world: &World) -> Value {
    let defaults = simulator_models::arm::Settings::default();
    let configurations = world.load_balancers().into_iter().enumerate();
    let configurations: Vec<Value> = configurations
        .map(|(number, name)| json!({"name": name, "primaryVMSet": format!("vmss-{number}")}))
        .collect();
    json!({
        "cloud": "AzurePublicCloud",
        "resourceManagerEndpoint": arm,
        "tenantId": TENANT,
        "subscriptionId": defaults.subscription,
        "resourceGroup": defaults.resource_group,
        "location": defaults.location,
        "vnetName": VNET,
        "vnetResourceGroup": defaults.resource_group,
        "loadBalancerSku": "standard",
        "loadBalancerBackendPoolConfigurationType": "nodeIP",
        "multipleStandardLoadBalancerConfigurations": configurations
    })
}

/// The listeners are ours whatever the overlay says: whoever runs the service looks for it there.
fn controller(options: &Options) -> Value {
    let mut file = json!({"identity": "anonymous"});
    if let Some(overlay) = &options.overlay {
        lay_over(&mut file, overlay);
    }
    let listeners =
        json!({"healthListen": options.health.to_string(), "adminListen": options.admin.to_string()});
    lay_over(&mut file, &json!({ "http": listeners }));
    file
}

/// Lays keys over others, key by key; null removes one.
pub fn lay_over(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    under.remove(key);
                } else {
                    lay_over(under.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// JSON, which is YAML too.
fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_wins_key_by_key_except_over_the_listeners_and_null_removes() {
        let overlay =
            "identity: null\nbatching: {quietPeriod: 100ms}\nhttp: {healthListen: '[::]:1', more: 1}\n";
        let options = Options {
            health: ([127, 0, 0, 1], 1).into(),
            admin: ([127, 0, 0, 1], 2).into(),
            overlay: Options::overlay(overlay).ok(),
        };
        let listeners = json!({"healthListen": "127.0.0.1:1", "more": 1, "adminListen": "127.0.0.1:2"});
        assert_eq!(controller(&options), json!({"batching": {"quietPeriod": "100ms"}, "http": listeners}));
    }

    #[test]
    fn an_overlay_that_is_no_map_is_refused() {
        assert!(matches!(Options::overlay("[1, 2]"), Err(BadOverlay::NotAMap)));
        assert!(matches!(Options::overlay("a: [1"), Err(BadOverlay::NotYaml(_))));
    }
}
