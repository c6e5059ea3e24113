//! Azure's refusals, rule by rule: status, code, and source. The table is checked against
//! `tests/arm_model/fixtures/rules.json`, which names the source of each.

use super::answer::Answer;
use super::store::Sku;

/// A rule that a request violates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rule {
    PublicIpInUseCannotUpgrade,
    StandardMustBeStatic,
    Ipv6CannotBeStatic,
    SkuCannotBeChanged,
    ScaleSetPublicIpSku,
    LoadBalancerAndPublicIpSku,
    MixedSkus,
    MixedSkusInScaleSet,
    OtherAvailabilitySet,
    LoadBalancerInUse,
    PoolInUse,
    NatPoolInUse,
    ProbeInUse,
    PublicIpCannotBeDeleted,
    PublicIpReferencedTwice,
    PrivateAddressTaken,
    PrivateAddressTwice,
    PrivateAddressOutside,
    MemberFailed,
    NotProvisioned,
    WithoutFrontend,
    OutboundTwice,
    OutboundRuleAndSecondary,
    NatGatewayAndBasic,
    ZonesOnBasic,
    BasicPublicIpRetired,
    BasicLoadBalancerRetired,
    MixedMembership,
    IpMembersOnBasic,
    BasicAndFlexible,
    PublicIpLimit,
    LoadBalancerLimit,
    InterfaceInUse,
    SubnetInUse,
    SecurityGroupInUse,
    AvailabilitySetInUse,
    NatGatewayInUse,
    DanglingReference,
    MissingRight,
    OperationRuns,
    MigrationNeedsStandard,
}

impl Rule {
    /// Returns status and code.
    fn parts(self) -> (u16, &'static str) {
        match self {
            Self::PublicIpInUseCannotUpgrade => (400, "PublicIPAddressInUseCannotUpdate"),
            Self::StandardMustBeStatic => (400, "StandardSkuPublicIPAddressesMustBeStatic"),
            Self::Ipv6CannotBeStatic => (400, "CannotSpecifyPublicIpAllocationMethodAsStaticForIpV6PublicIp"),
            Self::SkuCannotBeChanged => (400, "SkuCannotBeChangedOnUpdate"),
            Self::ScaleSetPublicIpSku => (400, "SkuCannotBeUpdatedOnVMSSPublicIpAddresses"),
            Self::LoadBalancerAndPublicIpSku => (400, "PublicIPAndLBSkuDoNotMatch"),
            Self::MixedSkus => (400, "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed"),
            Self::MixedSkusInScaleSet => (400, "DifferentSkuLoadBalancerAndPublicIPAddressNotAllowedInVMSS"),
            Self::OtherAvailabilitySet => {
                (400, "NetworkInterfaceAndLoadBalancerAreInDifferentAvailabilitySets")
            }
            Self::LoadBalancerInUse => (400, "LoadBalancerInUseByVirtualMachineScaleSet"),
            Self::PoolInUse => (400, "BackendAddressPoolInUseByVirtualMachineScaleSet"),
            Self::NatPoolInUse => (400, "InboundNatPoolInUseByVirtualMachineScaleSet"),
            Self::ProbeInUse => (400, "CannotRemoveRuleUsedByProbeUsedByVMSS"),
            Self::PublicIpCannotBeDeleted => (400, "PublicIPAddressCannotBeDeleted"),
            Self::PublicIpReferencedTwice => (400, "PublicIPReferencedByMultipleIPConfigs"),
            Self::PrivateAddressTaken => (400, "PrivateIPAddressIsAllocated"),
            Self::PrivateAddressTwice => (400, "MultipleIpConfigsRequestSamePrivateIpAddress"),
            Self::PrivateAddressOutside => (400, "PrivateIPAddressNotInSubnet"),
            Self::MemberFailed => (400, "ReferencedResourceNotProvisioned"),
            Self::NotProvisioned => (429, "ReferencedResourceNotProvisioned"),
            Self::WithoutFrontend => (400, "LoadBalancerWithoutFrontendIPCantHaveChildResources"),
            Self::OutboundTwice => {
                (400, "MoreThanOneOutboundRuleUsingSameFrontendIPConfigurationAndProtocolIsNotSupported")
            }
            Self::OutboundRuleAndSecondary => {
                (400, "OutboundRuleCannotBeUsedWithBackendAddressPoolThatIsReferencedBySecondaryIpConfigs")
            }
            Self::NatGatewayAndBasic => (400, "SubnetWithNatGatewayAndBasicSkuResourceNotAllowed"),
            Self::ZonesOnBasic => (400, "ZonesNotAllowedInBasicSkuResource"),
            Self::BasicPublicIpRetired => (400, "IPv4BasicSkuPublicIpCountLimitReached"),
            Self::BasicLoadBalancerRetired => (400, "BasicSkuLoadBalancerRetired"),
            Self::MixedMembership => {
                (400, "CannotMixIPBasedAddressesAndIPConfigurationsOnLoadBalancerBackendAddressPool")
            }
            Self::IpMembersOnBasic => (400, "BackendAddressesNotSupportedOnBasicSkuLoadBalancer"),
            Self::BasicAndFlexible => (400, "BasicSkuNotSupportedWithFlexibleOrchestration"),
            Self::PublicIpLimit => (400, "IPv4StandardSkuPublicIpCountLimitReached"),
            Self::LoadBalancerLimit => (400, "StandardSkuLoadBalancerCountLimitReached"),
            Self::InterfaceInUse => (400, "NicInUse"),
            Self::SubnetInUse => (400, "InUseSubnetCannotBeDeleted"),
            Self::SecurityGroupInUse => (400, "InUseNetworkSecurityGroupCannotBeDeleted"),
            Self::AvailabilitySetInUse => (409, "OperationNotAllowed"),
            Self::NatGatewayInUse => (400, "InUseNatGatewayCannotBeDeleted"),
            Self::DanglingReference => (400, "InvalidResourceReference"),
            Self::MissingRight => (403, "LinkedAuthorizationFailed"),
            Self::OperationRuns => (409, "OperationNotAllowed"),
            Self::MigrationNeedsStandard => (400, "MigrateToIpBasedNotSupportedOnBasicSkuLoadBalancer"),
        }
    }

    /// Returns the answer to a request that violates the rule.
    pub(crate) fn refuse(self, message: &str) -> Answer {
        self.refuse_with(self.parts().0, message)
    }

    /// Returns the answer with another status.
    pub(crate) fn refuse_with(self, status: u16, message: &str) -> Answer {
        let code = self.parts().1;
        if self == Self::NotProvisioned {
            return Answer::detailed(
                status,
                ["RetryableError", "A retryable error occurred."],
                code,
                message,
            );
        }
        if self == Self::MissingRight {
            return Answer::gateway(status, code, message);
        }
        if status == 409 {
            Answer::flat(status, code, message)
        } else {
            Answer::provider(status, code, message)
        }
    }
}

/// Returns the message about a SKU that cannot be changed.
pub(crate) fn sku_change(from: Sku, to: Sku, id: &str) -> String {
    let (from, to) = (from.name(), to.name());
    format!(
        "Sku property is set at creation time and cannot be changed from {from} to {to} on resource update for resource {id}."
    )
}

/// Returns the refusal of a reference to a resource that does not exist.
pub(crate) fn dangling(missing: &str, by: &str) -> Answer {
    Rule::DanglingReference.refuse(&format!("Resource {missing} referenced by resource {by} was not found."))
}

/// Returns the message about a referenced resource that is not in a usable state.
pub(crate) fn not_succeeded(used: &str, by: &str, state: &str, operation: &str) -> String {
    format!(
        "Cannot proceed with operation because resource {used} used by resource {by} is not in Succeeded state. Resource is in {state} state and the last operation that updated/is updating the resource is {operation}."
    )
}
