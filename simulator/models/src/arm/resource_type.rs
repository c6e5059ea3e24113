//! The resource types other than load balancers: their paths, their providers, and whether their writes are
//! long-running.

/// A resource provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provider {
    Network,
    Compute,
}

impl Provider {
    pub(crate) const ALL: [Self; 2] = [Self::Network, Self::Compute];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Network => "Microsoft.Network",
            Self::Compute => "Microsoft.Compute",
        }
    }

    pub(crate) fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.name().eq_ignore_ascii_case(word))
    }
}

/// A type of resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ResourceType {
    PublicIpAddress,
    NetworkInterface,
    VirtualNetwork,
    Subnet,
    NetworkSecurityGroup,
    SecurityRule,
    NatGateway,
    RouteTable,
    AvailabilitySet,
    VirtualMachine,
    ScaleSet,
    ScaleSetVm,
}

/// Row of the table of types.
struct Row {
    provider: Provider,
    path: &'static [&'static str],
    /// True if a PUT starts an operation; recordings show that a PUT of an interface does not.
    long_running: bool,
}

const fn row(provider: Provider, path: &'static [&'static str], long_running: bool) -> Row {
    Row { provider, path, long_running }
}

impl ResourceType {
    pub(crate) const ALL: [Self; 12] = [
        Self::PublicIpAddress,
        Self::NetworkInterface,
        Self::VirtualNetwork,
        Self::Subnet,
        Self::NetworkSecurityGroup,
        Self::SecurityRule,
        Self::NatGateway,
        Self::RouteTable,
        Self::AvailabilitySet,
        Self::VirtualMachine,
        Self::ScaleSet,
        Self::ScaleSetVm,
    ];

    fn row(self) -> Row {
        match self {
            Self::PublicIpAddress => row(Provider::Network, &["publicIPAddresses"], true),
            Self::NetworkInterface => row(Provider::Network, &["networkInterfaces"], false),
            Self::VirtualNetwork => row(Provider::Network, &["virtualNetworks"], false),
            Self::Subnet => row(Provider::Network, &["virtualNetworks", "subnets"], false),
            Self::NetworkSecurityGroup => row(Provider::Network, &["networkSecurityGroups"], false),
            Self::SecurityRule => row(Provider::Network, &["networkSecurityGroups", "securityRules"], false),
            Self::NatGateway => row(Provider::Network, &["natGateways"], true),
            Self::RouteTable => row(Provider::Network, &["routeTables"], false),
            Self::AvailabilitySet => row(Provider::Compute, &["availabilitySets"], false),
            Self::VirtualMachine => row(Provider::Compute, &["virtualMachines"], true),
            Self::ScaleSet => row(Provider::Compute, &["virtualMachineScaleSets"], true),
            Self::ScaleSetVm => row(Provider::Compute, &["virtualMachineScaleSets", "virtualMachines"], true),
        }
    }

    pub(crate) fn provider(self) -> Provider {
        self.row().provider
    }

    pub(crate) fn is_long_running(self) -> bool {
        self.row().long_running
    }

    /// Returns the type as in bodies: `Microsoft.Network/publicIPAddresses`.
    pub(crate) fn name(self) -> String {
        format!("{}/{}", self.provider().name(), self.row().path.join("/"))
    }

    /// Returns the resource type whose array holds resources of this type; the store does not have them as separate
    /// resources.
    pub(crate) fn embedded_in(self) -> Option<(Self, &'static str)> {
        match self {
            Self::Subnet => Some((Self::VirtualNetwork, "subnets")),
            Self::SecurityRule => Some((Self::NetworkSecurityGroup, "securityRules")),
            Self::PublicIpAddress
            | Self::NetworkInterface
            | Self::VirtualNetwork
            | Self::NetworkSecurityGroup
            | Self::NatGateway
            | Self::RouteTable
            | Self::AvailabilitySet
            | Self::VirtualMachine
            | Self::ScaleSet
            | Self::ScaleSetVm => None,
        }
    }

    /// Returns the id of a resource of this type.
    pub(crate) fn id(self, group: &str, names: &[String]) -> String {
        let pairs: String =
            self.row().path.iter().zip(names).map(|(kind, name)| format!("/{kind}/{name}")).collect();
        format!("{group}/providers/{}{pairs}", self.provider().name())
    }
}

/// Target of a path below a provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) kind: ResourceType,
    /// Names along the path; without the last one for a list.
    pub(crate) names: Vec<String>,
    pub(crate) part: Part,
}

/// The part of a resource type that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    One,
    List,
    Action(String),
}

impl ResourcePath {
    /// Parses the segments after the provider. Outside of a resource group there are only lists.
    pub(crate) fn parse(provider: Provider, words: &[&str], in_group: bool) -> Option<Self> {
        for kind in ResourceType::ALL.into_iter().filter(|kind| kind.provider() == provider) {
            let path = kind.row().path;
            let kinds = words.iter().step_by(2).take(path.len());
            if kinds.len() < path.len()
                || !kinds.zip(path).all(|(word, kind)| word.eq_ignore_ascii_case(kind))
            {
                continue;
            }
            let part = match words.len() + 1 - 2 * path.len() {
                0 => Part::List,
                1 => Part::One,
                2 if !is_child(words) => {
                    Part::Action(words.last().map_or_else(String::new, |word| word.to_lowercase()))
                }
                _ => continue,
            };
            if !in_group && (part != Part::List || path.len() > 1) {
                return None;
            }
            let names = words.iter().skip(1).step_by(2).take(path.len());
            return Some(Self { kind, names: names.map(|name| (*name).to_owned()).collect(), part });
        }
        None
    }
}

/// Returns whether the segments name the list of a child type.
fn is_child(words: &[&str]) -> bool {
    ResourceType::ALL.iter().any(|kind| {
        let path = kind.row().path;
        words.len() == 2 * path.len() - 1
            && words.iter().step_by(2).zip(path).all(|(word, kind)| word.eq_ignore_ascii_case(kind))
    })
}
