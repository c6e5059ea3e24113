//! Durations of operations by the type of write, and the references of a scale set that block a load balancer.

use serde::{Deserialize, Serialize};

use super::settings::{Latency, Settings};
use super::store::Sku;

/// Durations of operations after their answer. The defaults are those of the documentation and of public reports.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Durations {
    /// Writes of Basic load balancers. Default 75 s, 90 s at the 95th percentile.
    pub basic_load_balancer: Latency,
    /// Writes of Standard load balancers and their pools. Default 10 s, 25 s at the 95th percentile.
    pub standard_load_balancer: Latency,
    /// Writes of public IPs. Default 10 s, 30 s at the 95th percentile.
    pub public_ip: Latency,
    /// Writes of the model of a scale set. Default 10 s, 20 s at the 95th percentile.
    pub scale_set: Latency,
    /// Writes and upgrades of instances. Default 20 s, 60 s at the 95th percentile.
    pub instance: Latency,
    /// Writes of virtual machines and NAT gateways. Default 10 s, 30 s at the 95th percentile.
    pub other: Latency,
}

impl Default for Durations {
    fn default() -> Self {
        let seconds = |median: u64, p95: u64| Latency::LogNormal {
            median_us: median * 1_000_000,
            p95_us: p95 * 1_000_000,
        };
        Self {
            basic_load_balancer: seconds(75, 90),
            standard_load_balancer: seconds(10, 25),
            public_ip: seconds(10, 30),
            scale_set: seconds(10, 20),
            instance: seconds(20, 60),
            other: seconds(10, 30),
        }
    }
}

/// A write that starts an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TimedWrite {
    LoadBalancer(Sku),
    PublicIp,
    ScaleSet,
    Instance,
    Other,
}

impl Settings {
    /// Returns the duration of this type of operation; `None` if the write is finished when it is answered.
    pub(crate) fn time_of(&self, write: TimedWrite) -> Option<Latency> {
        let Some(times) = self.durations else { return self.operation };
        Some(match write {
            TimedWrite::LoadBalancer(Sku::Basic) => times.basic_load_balancer,
            TimedWrite::LoadBalancer(Sku::Standard) => times.standard_load_balancer,
            TimedWrite::PublicIp => times.public_ip,
            TimedWrite::ScaleSet => times.scale_set,
            TimedWrite::Instance => times.instance,
            TimedWrite::Other => times.other,
        })
    }
}

/// The references of a scale set that prevent the deletion of a load balancer. Azure's actual checks are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct ScaleSetBlocks {
    /// Backend pools in the model. Default true.
    pub model: bool,
    /// Backend pools in the instances. Default true.
    pub instances: bool,
    /// The model's health probe. Default true.
    pub health_probe: bool,
    /// Inbound NAT pools in the model and, if `instances` is set, in the instances. Default true.
    pub inbound_nat_pools: bool,
}

impl Default for ScaleSetBlocks {
    fn default() -> Self {
        Self { model: true, instances: true, health_probe: true, inbound_nat_pools: true }
    }
}
