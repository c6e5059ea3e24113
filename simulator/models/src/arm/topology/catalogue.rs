//! The clusters with which every step of a migration is tested.

use super::{Cluster, Frontend, InboundNat, NodeGroup, NodeKind, Service, UpgradePolicy};
use crate::arm::{ArmModel, Settings, Sku};

/// A named cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Three machines in an availability set behind an external and an internal load balancer.
    AvailabilitySet,
    /// A uniform scale set with manual upgrades.
    ScaleSetManual,
    /// A uniform scale set with automatic upgrades.
    ScaleSetAutomatic,
    /// A scale set without instances, whose model refers to the load balancer.
    ScaleSetEmpty,
    /// An availability set behind the Basic load balancer, and a flexible scale set outside of all pools.
    Flexible,
    /// A single machine outside of any set.
    Standalone,
    /// An internal load balancer with a static address and a dynamic one.
    InternalStatic,
    /// An external load balancer whose public IP is dynamic.
    ExternalDynamic,
    /// An external and an internal load balancer with five Services each, on one availability set.
    ExternalAndInternal,
    /// Inbound NAT rules to the machines of an availability set.
    NatRules,
    /// An inbound NAT pool of a scale set.
    NatPools,
    /// A scale set that uses a probe of the load balancer as its health probe.
    HealthProbe,
    /// An IPv6 frontend.
    Ipv6,
    /// A Basic public IP on each machine.
    InstancePublicIp,
    /// A Basic public IP on each instance of a scale set.
    ScaleSetPublicIp,
    /// Machines with a second IP configuration.
    SecondaryIpConfiguration,
    /// A lock on the resource group that forbids deletion.
    LockedDelete,
    /// A lock on the resource group that forbids writes.
    LockedReadOnly,
    /// No Standard public IP is left in the subscription.
    QuotaExhausted,
    /// The node resource group of AKS.
    Aks,
    /// Load balancers that are Standard already, with pools of interfaces.
    StandardInterfaces,
}

impl Topology {
    /// All clusters.
    pub const ALL: [Self; 21] = [
        Self::AvailabilitySet,
        Self::ScaleSetManual,
        Self::ScaleSetAutomatic,
        Self::ScaleSetEmpty,
        Self::Flexible,
        Self::Standalone,
        Self::InternalStatic,
        Self::ExternalDynamic,
        Self::ExternalAndInternal,
        Self::NatRules,
        Self::NatPools,
        Self::HealthProbe,
        Self::Ipv6,
        Self::InstancePublicIp,
        Self::ScaleSetPublicIp,
        Self::SecondaryIpConfiguration,
        Self::LockedDelete,
        Self::LockedReadOnly,
        Self::QuotaExhausted,
        Self::Aks,
        Self::StandardInterfaces,
    ];

    /// Returns its name.
    #[must_use]
    pub fn name(self) -> String {
        format!("{self:?}")
    }

    /// Returns the cluster.
    #[must_use]
    pub fn cluster(self) -> Cluster {
        let both = || vec![Service::external(false), Service::internal(None)];
        let agents = |count| vec![NodeGroup::new("agents", NodeKind::AvailabilitySet, count)];
        let set = |policy, count| vec![NodeGroup::new("workers", NodeKind::ScaleSet(policy), count)];
        let cluster = |nodes, services| Cluster { nodes, services, ..Cluster::default() };
        let manual = UpgradePolicy::Manual;
        match self {
            Self::AvailabilitySet => cluster(agents(3), both()),
            Self::ScaleSetManual => cluster(set(manual, 3), both()),
            Self::ScaleSetAutomatic => cluster(set(UpgradePolicy::Automatic, 3), both()),
            Self::ScaleSetEmpty => cluster(set(manual, 0), both()),
            Self::Flexible => {
                let flexible = NodeGroup { in_pools: false, ..NodeGroup::new("flex", NodeKind::Flexible, 2) };
                cluster([agents(2), vec![flexible]].concat(), both())
            }
            Self::Standalone => cluster(vec![NodeGroup::new("alone", NodeKind::Standalone, 1)], both()),
            Self::InternalStatic => {
                cluster(agents(2), vec![Service::internal(Some("10.240.0.100")), Service::internal(None)])
            }
            Self::ExternalDynamic => cluster(agents(2), vec![Service::external(false)]),
            Self::ExternalAndInternal => {
                let services =
                    (0..5).flat_map(|at| [Service::external(at % 2 == 0), Service::internal(None)]);
                cluster(agents(2), services.collect())
            }
            Self::NatRules => Cluster { inbound_nat: InboundNat::Rules, ..cluster(agents(2), both()) },
            Self::NatPools => Cluster { inbound_nat: InboundNat::Pools, ..cluster(set(manual, 2), both()) },
            Self::HealthProbe => Cluster { health_probe: true, ..cluster(set(manual, 2), both()) },
            Self::Ipv6 => {
                let v6 = Service { frontend: Frontend::External { is_static: false, is_v6: true }, port: 80 };
                cluster(agents(2), vec![Service::external(true), v6])
            }
            Self::InstancePublicIp => {
                let node = NodeGroup { public_ip: Some(Sku::Basic), ..agents(2).remove(0) };
                cluster(vec![node], both())
            }
            Self::ScaleSetPublicIp => {
                let node = NodeGroup { public_ip: Some(Sku::Basic), ..set(manual, 2).remove(0) };
                cluster(vec![node], both())
            }
            Self::SecondaryIpConfiguration => {
                cluster(vec![NodeGroup { secondary: true, ..agents(2).remove(0) }], both())
            }
            Self::LockedDelete => Cluster { lock: Some("CanNotDelete"), ..cluster(agents(2), both()) },
            Self::LockedReadOnly => Cluster { lock: Some("ReadOnly"), ..cluster(agents(2), both()) },
            Self::QuotaExhausted => {
                Cluster { standard_public_ip_limit: Some(0), ..cluster(agents(2), both()) }
            }
            Self::Aks => {
                let tag = ("aks-managed-cluster-name".to_owned(), "production".to_owned());
                Cluster { group_tags: [tag].into(), ..cluster(set(manual, 2), both()) }
            }
            Self::StandardInterfaces => Cluster {
                sku: Sku::Standard,
                ..cluster(set(manual, 3), vec![Service::external(true), Service::internal(None)])
            },
        }
    }

    /// Creates a model of Azure with the cluster.
    #[must_use]
    pub fn build(self, settings: Settings) -> ArmModel {
        self.cluster().build(settings).expect("Azure takes the clusters of the catalogue")
    }
}
