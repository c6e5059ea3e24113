//! The meaning of a `ClusterLoadAssignment` for pools: whether it is valid, and its addresses by priority and health
//! (X2).
//!
//! This module has no state: `pools::membership` decides which priority is used, and for how long. Fields that only
//! a client-side load balancer can respect, such as drops and overprovisioning, are ignored.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use super::facts::{AddressFacts, AssignmentFacts, EndpointFacts, Locality, LocalityFacts};
use super::faults::{Faults, quoted};
use crate::ids::Family;

/// Size limits of an assignment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The maximum number of members of one pool.
    pub members: usize,
}

impl Limits {
    /// The limits of every Azure backend pool; some pools may be larger.
    pub const AZURE: Limits = Limits { members: 1_000 };
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::AZURE
    }
}

/// The health of an endpoint, ordered by preference. The best health of an address with several ports counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EndpointHealth {
    /// The endpoint takes traffic, or its health is unknown.
    Healthy,
    /// The endpoint takes traffic if no healthy endpoint is left.
    Degraded,
    /// The endpoint finishes its connections and takes no new ones.
    Draining,
    /// The endpoint takes no traffic.
    Unhealthy,
}

impl EndpointHealth {
    /// The health of members, the better one first.
    pub const USABLE: [EndpointHealth; 2] = [EndpointHealth::Healthy, EndpointHealth::Degraded];

    /// Returns the health for the number of a `HealthStatus`. `UNHEALTHY`, `TIMEOUT` and unknown numbers count as
    /// unhealthy.
    #[must_use]
    pub fn of_health(number: i32) -> EndpointHealth {
        const UNKNOWN: i32 = 0;
        const HEALTHY: i32 = 1;
        const DRAINING: i32 = 3;
        const DEGRADED: i32 = 5;
        match number {
            UNKNOWN | HEALTHY => EndpointHealth::Healthy,
            DRAINING => EndpointHealth::Draining,
            DEGRADED => EndpointHealth::Degraded,
            _ => EndpointHealth::Unhealthy,
        }
    }

    /// Returns the name in messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            EndpointHealth::Healthy => "healthy",
            EndpointHealth::Degraded => "degraded",
            EndpointHealth::Draining => "draining",
            EndpointHealth::Unhealthy => "out",
        }
    }
}

impl fmt::Display for EndpointHealth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A valid assignment, reduced to what matters to pools. The form does not depend on the order in the message.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LoadAssignment {
    /// The priorities, the highest first. The last one has an address; earlier ones may have none.
    pub priorities: Vec<Priority>,
    /// True if localities were skipped because their weight is 0.
    pub skips: bool,
    /// True if there are endpoints, usable or not. Without endpoints, the assignment is empty on purpose.
    pub has_endpoints: bool,
    /// True if there are endpoints and all of them drain, including those of both families and skipped ones.
    pub only_drains: bool,
    /// True if an endpoint has further addresses of the same family, which no pool gets.
    pub alternatives: bool,
}

/// The endpoints of one priority.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Priority {
    /// Their addresses, of both families.
    pub addresses: BTreeMap<IpAddr, EndpointHealth>,
    /// True if some endpoints should get more traffic than others, which a pool cannot do.
    pub weighted: bool,
}

impl Priority {
    /// Returns the addresses of a family with this health.
    pub fn with(&self, family: Family, health: EndpointHealth) -> impl Iterator<Item = IpAddr> + '_ {
        self.of(family).filter(move |(_, known)| *known == health).map(|(ip, _)| ip)
    }

    /// Returns the addresses of a family with their health.
    pub fn of(&self, family: Family) -> impl Iterator<Item = (IpAddr, EndpointHealth)> + '_ {
        let of_family = self.addresses.iter().filter(move |(ip, _)| family_of(**ip) == family);
        of_family.map(|(ip, health)| (*ip, *health))
    }
}

impl LoadAssignment {
    /// Returns the assignment in normal form, or the errors with the paths of the fields.
    ///
    /// A locality without a weight counts: servers without locality balancing omit the weight. A locality of weight 0
    /// is skipped with all its endpoints, as in gRPC. It leaves a gap if its priority has no other locality.
    pub fn of(facts: &AssignmentFacts, limits: Limits) -> Result<LoadAssignment, String> {
        let mut reading = AssignmentReader::default();
        let mut gathered: BTreeMap<u32, PriorityBuilder> = BTreeMap::new();
        let mut skips = false;
        for (at, locality) in facts.localities.iter().enumerate() {
            if locality.weight == Some(0) {
                skips = true;
                continue;
            }
            let priority = gathered.entry(locality.priority).or_insert_with(|| PriorityBuilder::begin(at));
            for (n, endpoint) in locality.endpoints.iter().enumerate() {
                reading.read(EndpointPosition { locality: at, endpoint: n }, endpoint, priority);
            }
            priority.weigh(locality);
        }
        let AssignmentReader { alternatives, mut faults, seen: _ } = reading;
        check_gaps(&gathered, &mut faults);
        check_localities(&facts.localities, &mut faults);
        let mut priorities: Vec<Priority> = gathered.into_values().map(PriorityBuilder::end).collect();
        while priorities.last().is_some_and(|last| last.addresses.is_empty()) {
            priorities.pop();
        }
        check_sizes(&priorities, limits, &mut faults);
        let mut all = facts.localities.iter().flat_map(|locality| &locality.endpoints).peekable();
        let has_endpoints = all.peek().is_some();
        let only_drains = has_endpoints
            && all.all(|endpoint| EndpointHealth::of_health(endpoint.health) == EndpointHealth::Draining);
        faults.end(LoadAssignment { priorities, skips, has_endpoints, only_drains, alternatives })
    }

    /// Returns the addresses of a family with this health in one priority; none if the priority does not exist.
    pub fn with(
        &self,
        family: Family,
        priority: usize,
        health: EndpointHealth,
    ) -> impl Iterator<Item = IpAddr> + '_ {
        self.priorities.get(priority).into_iter().flat_map(move |priority| priority.with(family, health))
    }
}

/// Returns the family of an address.
fn family_of(ip: IpAddr) -> Family {
    match ip {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

/// Position of an endpoint in the message.
#[derive(Clone, Copy)]
struct EndpointPosition {
    locality: usize,
    endpoint: usize,
}

impl fmt::Display for EndpointPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "endpoints[{}].lb_endpoints[{}]", self.locality, self.endpoint)
    }
}

/// The socket of an endpoint. TCP and UDP are two endpoints, although a pool makes one member of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Socket {
    ip: IpAddr,
    /// 0: no port given.
    port: u16,
    protocol: i32,
}

impl fmt::Display for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ip {
            IpAddr::V4(ip) => write!(f, "{ip}:{}", self.port),
            IpAddr::V6(ip) => write!(f, "[{ip}]:{}", self.port),
        }
    }
}

/// An error in an address: the field and the fault.
struct AddressFault {
    field: &'static str,
    fault: String,
}

impl Socket {
    fn of(address: &AddressFacts) -> Result<Socket, AddressFault> {
        let no_socket = |field: &'static str, fault: &str| {
            Err(AddressFault { field, fault: format!("{fault}: name the IP address of the endpoint") })
        };
        match address {
            AddressFacts::Socket { address, port, protocol } => {
                Ok(Socket { ip: read_ip(address)?, port: read_port(*port)?, protocol: *protocol })
            }
            AddressFacts::Pipe => no_socket(".pipe", "is not reached by a load balancer"),
            AddressFacts::Internal => {
                no_socket(".envoy_internal_address", "is not reached by a load balancer")
            }
            AddressFacts::Missing => no_socket("", "is missing"),
        }
    }
}

/// Parses an address. An IPv4-mapped IPv6 address becomes IPv4: connections use that, and Azure accepts it.
fn read_ip(text: &str) -> Result<IpAddr, AddressFault> {
    const FIELD: &str = ".socket_address.address";
    let Ok(ip) = text.parse::<IpAddr>() else {
        let text = quoted(text);
        let fault = format!("{text} is not an IP address, and a pool holds no names: name that of the host");
        return Err(AddressFault { field: FIELD, fault });
    };
    let ip = ip.to_canonical();
    match unfitness(ip) {
        None => Ok(ip),
        Some(why) => {
            let fault = format!("{ip} is {why}: name the one by which a load balancer reaches the endpoint");
            Err(AddressFault { field: FIELD, fault })
        }
    }
}

fn read_port(port: Option<u32>) -> Result<u16, AddressFault> {
    let number = port.unwrap_or(0);
    u16::try_from(number).map_err(|_| {
        let fault = format!("{number} is not the number of a port: name one up to 65535");
        AddressFault { field: ".socket_address.port_value", fault }
    })
}

/// Returns why no pool can hold an address; `None`: a pool can. One unfit address may make Azure refuse the whole
/// pool.
fn unfitness(ip: IpAddr) -> Option<&'static str> {
    /// The address of Azure itself in every network; health probes come from it.
    const AZURE: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);
    let (unspecified, broadcast, link_local) = match ip {
        IpAddr::V4(ip) => (ip.octets()[0] == 0, ip.is_broadcast(), ip.is_link_local()),
        IpAddr::V6(ip) => (ip.is_unspecified(), false, ip.is_unicast_link_local()),
    };
    if unspecified {
        Some("an unspecified address, which no host has")
    } else if broadcast {
        Some("the broadcast address, which no member may have")
    } else if ip == IpAddr::V4(AZURE) {
        Some("Azure's own in every network")
    } else if link_local {
        Some("a link-local address, which is another host's on every link")
    } else if ip.is_loopback() {
        Some("a loopback address, by which every host means itself")
    } else if ip.is_multicast() {
        Some("a multicast address, which is no single host's")
    } else {
        None
    }
}

/// The state of reading an assignment.
#[derive(Default)]
struct AssignmentReader {
    /// The sockets read so far, each with its first position.
    seen: BTreeMap<Socket, EndpointPosition>,
    alternatives: bool,
    faults: Faults,
}

impl AssignmentReader {
    fn read(&mut self, place: EndpointPosition, facts: &EndpointFacts, priority: &mut PriorityBuilder) {
        if facts.weight == Some(0) {
            let fault = "is 0 and must be at least 1: leave it out, or set health_status to DRAINING";
            self.faults.add(format_args!("{place}.load_balancing_weight"), fault);
        }
        priority.weights.insert(facts.weight.unwrap_or(1));
        let health = EndpointHealth::of_health(facts.health);
        // A pool is of one family and takes an endpoint once, by its first address of that family.
        let mut chosen: BTreeMap<Family, IpAddr> = BTreeMap::new();
        for (n, address) in std::iter::once(&facts.address).chain(&facts.additional).enumerate() {
            let Some(Socket { ip, .. }) = self.read_socket(place, n, address) else { continue };
            if *chosen.entry(family_of(ip)).or_insert(ip) != ip {
                self.alternatives = true;
                continue;
            }
            let known = priority.addresses.entry(ip).or_insert(health);
            *known = health.min(*known);
        }
    }

    /// Reads address number `n` of an endpoint; `None` after an error.
    fn read_socket(&mut self, place: EndpointPosition, n: usize, address: &AddressFacts) -> Option<Socket> {
        let path = |field: &str| match n.checked_sub(1) {
            None => format!("{place}.endpoint.address{field}"),
            Some(n) => format!("{place}.endpoint.additional_addresses[{n}].address{field}"),
        };
        let socket = match Socket::of(address) {
            Ok(socket) => socket,
            Err(AddressFault { field, fault }) => {
                self.faults.add(path(field), fault);
                return None;
            }
        };
        if let Some(first) = self.seen.get(&socket) {
            let fault = format!("{socket} is a duplicate, it is also in {first}: name each endpoint once");
            self.faults.add(path(""), fault);
            return None;
        }
        self.seen.insert(socket, place);
        Some(socket)
    }
}

/// The state of reading one priority.
struct PriorityBuilder {
    /// Index of its first locality.
    first: usize,
    addresses: BTreeMap<IpAddr, EndpointHealth>,
    /// The weights of its endpoints.
    weights: BTreeSet<u32>,
    /// Weight and number of endpoints of each locality that has both.
    shares: Vec<(u64, u64)>,
}

impl PriorityBuilder {
    fn begin(first: usize) -> PriorityBuilder {
        PriorityBuilder { first, addresses: BTreeMap::new(), weights: BTreeSet::new(), shares: Vec::new() }
    }

    fn weigh(&mut self, locality: &LocalityFacts) {
        let endpoints = u64::try_from(locality.endpoints.len()).unwrap_or(u64::MAX);
        if let Some(weight) = locality.weight.filter(|_| endpoints > 0) {
            self.shares.push((u64::from(weight), endpoints));
        }
    }

    /// Ends the priority and returns its content. A larger locality gets more traffic in any case, so weights are
    /// compared per endpoint.
    fn end(self) -> Priority {
        let differs = |pair: &[(u64, u64)]| match pair {
            [one, other] => one.0.saturating_mul(other.1) != other.0.saturating_mul(one.1),
            _ => false,
        };
        let weighted = self.weights.len() > 1 || self.shares.windows(2).any(differs);
        Priority { addresses: self.addresses, weighted }
    }
}

/// Checks that priorities count from 0 without gaps.
fn check_gaps(gathered: &BTreeMap<u32, PriorityBuilder>, faults: &mut Faults) {
    let mut counted = (0_u32..).zip(gathered);
    if let Some((missing, (found, beyond))) = counted.find(|(expected, (found, _))| expected != *found) {
        let path = format!("endpoints[{}].priority", beyond.first);
        let fault = format!("is {found}, and no locality with a weight has {missing}: leave no gaps");
        faults.add(path, fault);
    }
}

/// Checks, as gRPC does, that a priority contains each locality once, and that its weights add up to at most 32 bits.
/// Localities without a name are not compared, because control planes without zones omit the name.
fn check_localities(localities: &[LocalityFacts], faults: &mut Faults) {
    let mut seen: BTreeMap<(u32, &Locality), usize> = BTreeMap::new();
    let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
    for (at, locality) in localities.iter().enumerate().filter(|(_, locality)| locality.weight != Some(0)) {
        let priority = locality.priority;
        if let Some(name) = &locality.locality {
            let first = *seen.entry((priority, name)).or_insert(at);
            if first != at {
                let Locality { region, zone, sub_zone } = name;
                let name = quoted(&format!("{region}/{zone}/{sub_zone}"));
                let fault =
                    format!("{name} is a duplicate in priority {priority}, it is also endpoints[{first}]");
                faults.add(format_args!("endpoints[{at}].locality"), format_args!("{fault}: merge the two"));
            }
        }
        let sum = sums.entry(priority).or_default();
        let before = *sum;
        *sum += u64::from(locality.weight.unwrap_or_default());
        if before <= u64::from(u32::MAX) && *sum > u64::from(u32::MAX) {
            let fault = format!("makes more than {} in priority {priority}: use smaller weights", u32::MAX);
            faults.add(format_args!("endpoints[{at}].load_balancing_weight"), fault);
        }
    }
}

/// Checks that every possible selection of members fits in a pool.
fn check_sizes(priorities: &[Priority], limits: Limits, faults: &mut Faults) {
    for (number, priority) in priorities.iter().enumerate() {
        for (family, name) in [(Family::V4, "IPv4"), (Family::V6, "IPv6")] {
            for health in EndpointHealth::USABLE {
                let count = priority.with(family, health).count();
                if count > limits.members {
                    let most = limits.members;
                    let fault = format!("are {count} {health} {name} addresses of priority {number}");
                    let remedy = format!("a pool holds {most}, so split the cluster over several ones");
                    faults.add("endpoints", format_args!("{fault}: {remedy}"));
                }
            }
        }
    }
}
