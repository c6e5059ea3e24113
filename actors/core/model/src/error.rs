//! Why membership of a pool may not be written (D2).

use std::fmt;
use std::sync::Arc;

use crate::ids::{LbName, PoolName};

/// Why ownership is not proven; the event `BackendPoolNotManageable` reports it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum NotManageable {
    /// The pool has the name of no managed Service.
    #[error("the pool's name is not that of any of its Services (expected {expected})")]
    ForeignName {
        /// The expected name.
        expected: PoolName,
    },
    /// Services of both families use the pool, because their names collide.
    #[error("services of both IP families use the pool")]
    MixedFamilies,
    /// No load-balancing rule uses the pool.
    #[error("no load-balancing rule uses the pool")]
    NoRule,
    /// A rule of the pool belongs to no managed Service.
    #[error("rule {rule} of the pool belongs to no managed Service")]
    ForeignRule {
        /// The rule.
        rule: Arc<str>,
    },
    /// A rule of a Service uses the pool, although it is configured to be filled from an xDS source (D2, X2).
    #[error(
        "rule {rule} of the pool is that of a Service, whose pool the cloud-controller-manager fills: take the pool out of `pools`"
    )]
    ServiceRule {
        /// The rule.
        rule: Arc<str>,
    },
    /// An outbound rule uses the pool.
    #[error("an outbound rule uses the pool")]
    OutboundRule,
    /// An inbound NAT rule uses the pool.
    #[error("an inbound NAT rule uses the pool")]
    InboundNatRule,
    /// The pool has members by network interface.
    #[error("the pool has members by network interface")]
    NicBacked,
    /// Azure itself synchronises the pool with a scale set.
    #[error("the pool's syncMode is Automatic")]
    SyncAutomatic,
    /// The pool is configured to be filled from an xDS source, but its load balancer has no such pool (X2).
    #[error("load balancer {lb} has no such backend pool: create it, or correct `backendPool` in `pools`")]
    PoolNotFound {
        /// The load balancer.
        lb: LbName,
    },
    /// The pool is configured to be filled from an xDS source, but its load balancer does not exist (X2).
    #[error("load balancer {lb} does not exist: create it, or correct `loadBalancer` in `pools`")]
    LoadBalancerNotFound {
        /// The load balancer.
        lb: LbName,
    },
}

/// The reason as a label of a closed set, for metrics and the admin API.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReasonLabel(pub &'static str);

impl fmt::Display for ReasonLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl NotManageable {
    /// Returns true if the reason is about rules. Rules change with the Services, so the last read of the load
    /// balancer may be outdated.
    #[must_use]
    pub fn is_about_rules(&self) -> bool {
        match self {
            NotManageable::NoRule | NotManageable::ForeignRule { .. } => true,
            NotManageable::ForeignName { .. }
            | NotManageable::MixedFamilies
            | NotManageable::ServiceRule { .. }
            | NotManageable::OutboundRule
            | NotManageable::InboundNatRule
            | NotManageable::NicBacked
            | NotManageable::SyncAutomatic
            | NotManageable::PoolNotFound { .. }
            | NotManageable::LoadBalancerNotFound { .. } => false,
        }
    }

    /// Returns the label of this reason.
    #[must_use]
    pub fn label(&self) -> ReasonLabel {
        ReasonLabel(match self {
            NotManageable::ForeignName { .. } => "foreign_name",
            NotManageable::MixedFamilies => "mixed_families",
            NotManageable::NoRule => "no_rule",
            NotManageable::ForeignRule { .. } => "foreign_rule",
            NotManageable::ServiceRule { .. } => "service_rule",
            NotManageable::OutboundRule => "outbound_rule",
            NotManageable::InboundNatRule => "inbound_nat_rule",
            NotManageable::NicBacked => "nic_backed",
            NotManageable::SyncAutomatic => "sync_automatic",
            NotManageable::PoolNotFound { .. } => "pool_not_found",
            NotManageable::LoadBalancerNotFound { .. } => "load_balancer_not_found",
        })
    }
}
