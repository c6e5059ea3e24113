//! The files of the controller under test: kubeconfig, cloud configuration, controller.yaml.

use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use crate::fakes::Fakes;
use crate::world::World;

/// Settings of the files, in addition to the fakes' addresses.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the controller's health and metrics.
    pub health: SocketAddr,
    /// Address of the controller's admin API.
    pub admin: SocketAddr,
    /// Keys of controller.yaml that override those of the simulation, except listeners; null removes one.
    pub overlay: Option<Value>,
}

/// An overlay that cannot be used.
#[derive(Debug, Error)]
pub enum BadOverlay {
    /// The text is not YAML.
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
    /// Parses an overlay from YAML or JSON.
    ///
    /// # Errors
    /// The text is not a map.
    pub fn overlay(text: &str) -> Result<Value, BadOverlay> {
        let value: Value = serde_saphyr::from_str(text).map_err(BadOverlay::NotYaml)?;
        if value.is_object() { Ok(value) } else { Err(BadOverlay::NotAMap) }
    }
}

impl Files {
    /// Writes all three into a folder, which is created if it is missing.
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

/// Returns the id of the virtual network in the cloud configuration.
#[must_use]
pub fn vnet_id() -> String {
    let defaults = simulator_models::arm::Settings::default();
    let (subscription, group) = (defaults.subscription, defaults.resource_group);
    format!(
        "/subscriptions/{subscription}/resourceGroups/{group}/providers/Microsoft.Network/virtualNetworks/{VNET}"
    )
}

/// Ports below the default range of ephemeral ports.
const PORTS: Range<u32> = 10_240..32_768;

/// A reserved address for a listener that another process opens later.
#[derive(Debug)]
pub struct Reserved {
    /// The address, with a port.
    pub address: SocketAddr,
    /// A UDP socket that reserves the port against other reservations, without the TCP port.
    _held: Option<UdpSocket>,
}

impl Reserved {
    /// Reserves this address; port 0 selects a free port. The reservation lasts until this value is dropped.
    ///
    /// # Errors
    /// No port is free, or the address is not one of this machine.
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        if address.port() != 0 {
            return Ok(Self { address, _held: None });
        }
        let count = PORTS.end - PORTS.start;
        // Two processes rarely begin at the same port.
        let first = std::process::id().wrapping_mul(37) % count;
        for step in 0..count {
            let port = u16::try_from(PORTS.start + (first + step) % count).expect("ports are below 65536");
            let address = SocketAddr::new(address.ip(), port);
            let held = UdpSocket::bind(address).and_then(|held| TcpListener::bind(address).map(|_| held));
            match held {
                Ok(held) => return Ok(Self { address, _held: Some(held) }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }
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

/// Returns controller.yaml. The overlay cannot change the listeners, because the caller uses them.
fn controller(options: &Options) -> Value {
    let mut file = json!({"identity": "anonymous"});
    if let Some(overlay) = &options.overlay {
        merge_overlay(&mut file, overlay);
    }
    let listeners =
        json!({"healthListen": options.health.to_string(), "adminListen": options.admin.to_string()});
    merge_overlay(&mut file, &json!({ "http": listeners }));
    file
}

/// Merges keys into others, key by key; null removes one.
pub fn merge_overlay(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                if value.is_null() {
                    under.remove(key);
                } else {
                    merge_overlay(under.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (under, over) => *under = over.clone(),
    }
}

/// Returns JSON, which is also YAML.
fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_wins_by_key_and_null_removes() {
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
    fn z2_a_listener_without_a_port_gets_a_free_one() {
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        let reserve = |address| Reserved::new(address).expect("loopback has free ports");
        let (first, second) = (reserve(any), reserve(any));
        assert!(first.address.port() != 0 && first.address.ip() == any.ip(), "{first:?}");
        assert_ne!(first.address, second.address);
        // The other process can open the port, which then stays in use after the reservation.
        let opened = TcpListener::bind(first.address).expect("it is free");
        let address = first.address;
        drop(first);
        let third = reserve(any);
        assert!(third.address != address && third.address != second.address, "{third:?}");
        drop(opened);
        let named: SocketAddr = ([127, 0, 0, 1], 8081).into();
        assert_eq!(reserve(named).address, named);
        assert!(Reserved::new(([203, 0, 113, 1], 0).into()).is_err(), "no interface has that address");
    }

    #[test]
    fn an_overlay_that_is_no_map_is_refused() {
        assert!(matches!(Options::overlay("[1, 2]"), Err(BadOverlay::NotAMap)));
        assert!(matches!(Options::overlay("a: [1"), Err(BadOverlay::NotYaml(_))));
    }
}
