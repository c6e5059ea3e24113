//! Reasons why a migration does not start.

use serde::{Deserialize, Serialize};

/// Reasons why a migration does not start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A migration has started and has not ended.
    Unfinished,
    /// A key of the cloud configuration does not have the required value.
    Configuration,
    /// AKS owns the resources.
    ManagedByAks,
    /// The API server is reached through a load balancer in scope.
    ApiServerPath,
    /// This process reaches Azure through a load balancer in scope.
    OwnPath,
    /// An address cannot be kept.
    AddressChanges,
    /// No outbound path of the nodes was found.
    NoOutbound,
    /// A resource could not be read.
    Unreadable,
    /// A resource is not in the state `Succeeded`.
    NotSucceeded,
    /// An instance is protected.
    ProtectedInstance,
    /// An instance does not run.
    InstanceNotRunning,
    /// The upgrade policy of a scale set would upgrade instances by itself.
    UpgradePolicy,
    /// A scale set is flexible.
    FlexibleScaleSet,
    /// A lock forbids changes.
    Locked,
    /// A permission is missing.
    MissingRight,
    /// A quota is too small.
    Quota,
    /// The name of a new load balancer is in use.
    NameInUse,
    /// Two Basic load balancers that will be merged use one name for different things.
    NameConflict,
    /// A node refers to resources of both SKUs.
    MixedSku,
    /// No network security group would apply to a public frontend.
    NoSecurityGroup,
    /// A public address comes from a prefix or another migration.
    SpecialAddress,
    /// A rule with floating IP uses a secondary IP configuration.
    SecondaryFloatingIp,
}

/// A reason, with the object and the remedy.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Blocker {
    /// Reason.
    pub reason: Reason,
    /// The object, by id or name.
    pub object: String,
    /// Finding.
    pub finding: String,
    /// Remedy.
    pub remedy: String,
}
