//! The resources of control planes in types of the test: clusters, assignments and their faults; the facts that a
//! driver passes on; and the expected pools, computed in the simplest way, to judge the machines (X2).

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use model::ids::Family;
use model::xds::facts::{
    AddressFacts, AssignmentFacts, Body, ClusterFacts, EdsFacts, EdsSource, EndpointFacts, LocalityFacts,
    Raw, Received,
};
use simulator_models::control_plane::Kind;

/// Load balancer of the pools that control planes fill; no Service uses it.
pub const BALANCER: &str = "Edge";

/// A pool that a control plane fills.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Its name.
    pub pool: &'static str,
    /// Source, as configured.
    pub source: &'static str,
    /// Family of its members.
    pub family: Family,
}

/// The only cluster.
pub const CLUSTER: &str = "api";

impl Listed {
    /// Returns the name of its endpoints; `None` if its cluster names them.
    pub fn endpoints(&self) -> Option<&'static str> {
        self.source.strip_prefix("eds:")
    }
}

/// All pools that control planes fill.
pub const LISTED: [Listed; 2] = [
    Listed { pool: "web", source: "eds:web", family: Family::V4 },
    Listed { pool: "api-ipv6", source: "cluster:api", family: Family::V6 },
];

/// Health of an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// The health is unknown.
    Unknown,
    /// The endpoint serves.
    Healthy,
    /// The endpoint does not serve.
    Unhealthy,
    /// The endpoint finishes existing requests.
    Draining,
    /// The endpoint serves badly.
    Degraded,
}

impl Health {
    /// Returns its number in `core.v3.HealthStatus`.
    pub fn number(self) -> i32 {
        match self {
            Health::Unknown => 0,
            Health::Healthy => 1,
            Health::Unhealthy => 2,
            Health::Draining => 3,
            Health::Degraded => 5,
        }
    }
}

/// One endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backend {
    /// Number from which its addresses are derived.
    pub number: u64,
    /// Priority; 0 is the highest.
    pub priority: usize,
    /// Health.
    pub health: Health,
    /// The only family of its addresses; `None` for both.
    pub only: Option<Family>,
}

impl Backend {
    /// Returns its address of a family.
    pub fn address(self, family: Family) -> Option<IpAddr> {
        let text = match family {
            Family::V4 => format!("10.2.{}.{}", self.number / 250, self.number % 250 + 1),
            Family::V6 => format!("fd02::{:x}", self.number + 1),
        };
        let has = self.only.is_none_or(|only| only == family);
        has.then(|| text.parse().expect("it is an address"))
    }

    fn facts(self, fault: Option<Fault>) -> EndpointFacts {
        let socket = |address: String| AddressFacts::Socket { address, port: Some(8080), protocol: 0 };
        let own = [Family::V4, Family::V6].into_iter().filter_map(|family| self.address(family));
        let mut own = own.map(|ip| socket(ip.to_string()));
        let address = own.next().unwrap_or(AddressFacts::Missing);
        EndpointFacts {
            address: if fault == Some(Fault::HostName) { socket("a-host".to_owned()) } else { address },
            additional: own.collect(),
            health: self.health.number(),
            weight: (fault == Some(Fault::Weight)).then_some(0),
        }
    }
}

/// A fault of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// An endpoint has a host name instead of an address.
    HostName,
    /// An endpoint has the weight 0.
    Weight,
    /// The priorities have a gap.
    Gap,
    /// A cluster is of another type than EDS.
    Type,
    /// Protobuf cannot decode it.
    Bytes,
}

/// Contents of a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contents {
    /// The endpoints.
    Endpoints(Vec<Backend>),
    /// Name of a cluster's endpoints.
    Cluster(String),
}

/// A served resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Served {
    /// Contents.
    pub what: Contents,
    /// Fault.
    pub fault: Option<Fault>,
}

impl Served {
    /// Returns the resource as a driver passes it on.
    pub fn received(&self, name: &str, wraps: bool) -> Received {
        let (kind, body) = match &self.what {
            Contents::Endpoints(backends) => {
                (Kind::Endpoints, Body::Endpoints(self.assignment(name, backends)))
            }
            Contents::Cluster(endpoints) => (Kind::Clusters, Body::Cluster(self.cluster(name, endpoints))),
        };
        let illegible = self.fault == Some(Fault::Bytes);
        Received {
            raw: Raw {
                type_url: Arc::from(kind.type_url()),
                bytes: Arc::from(format!("{self:?}").as_bytes()),
            },
            // Only its wrapper names a resource that cannot be decoded.
            wrapper: (wraps || illegible).then(|| name.to_owned()),
            body: if illegible { Err("a byte is wrong".to_owned()) } else { Ok(body) },
        }
    }

    fn assignment(&self, name: &str, backends: &[Backend]) -> AssignmentFacts {
        let numbers: BTreeSet<usize> = backends.iter().map(|backend| backend.priority).collect();
        let gap = u32::from(self.fault == Some(Fault::Gap));
        let locality = |(priority, number): (u32, &usize)| {
            let of = backends.iter().filter(|backend| backend.priority == *number).enumerate();
            let fault = |n: usize| self.fault.filter(|_| n == 0 && priority == 0);
            LocalityFacts {
                priority: priority + gap,
                endpoints: of.map(|(n, backend)| backend.facts(fault(n))).collect(),
                ..LocalityFacts::default()
            }
        };
        let localities = (0..).zip(&numbers).map(locality).collect();
        AssignmentFacts { cluster_name: name.to_owned(), localities }
    }

    fn cluster(&self, name: &str, endpoints: &str) -> ClusterFacts {
        const EDS: i32 = 3;
        let discovery = if self.fault == Some(Fault::Type) { 0 } else { EDS };
        let eds = EdsFacts { service_name: endpoints.to_owned(), source: EdsSource::Ads };
        ClusterFacts { name: name.to_owned(), discovery: Some(discovery), eds: Some(eds) }
    }
}

/// Expected members of a pool by an assignment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExpectedMembers {
    /// The addresses that take traffic, of the best usable priority.
    pub serving: BTreeSet<IpAddr>,
    /// The draining addresses, of any priority.
    pub draining: BTreeSet<IpAddr>,
}

impl ExpectedMembers {
    /// Returns the expected members for a pool of this family.
    pub fn of(backends: &[Backend], family: Family) -> ExpectedMembers {
        let with = |healths: &'static [Health]| {
            backends.iter().filter(move |backend| healths.contains(&backend.health))
        };
        let addresses = |priority: Option<usize>, healths: &'static [Health]| -> BTreeSet<IpAddr> {
            let of = with(healths).filter(|backend| priority.is_none_or(|number| number == backend.priority));
            of.filter_map(|backend| backend.address(family)).collect()
        };
        let mut serving = BTreeSet::new();
        for healths in
            [const { &[Health::Unknown, Health::Healthy] as &'static [Health] }, &[Health::Degraded]]
        {
            let of = with(healths).filter(|backend| backend.address(family).is_some());
            if let Some(best) = of.map(|backend| backend.priority).min() {
                serving = addresses(Some(best), healths);
                break;
            }
        }
        let mut draining = addresses(None, &[Health::Draining]);
        draining.retain(|ip| !serving.contains(ip));
        ExpectedMembers { serving, draining }
    }

    /// Returns every address that takes traffic, or would in another priority.
    pub fn ever_serving(backends: &[Backend], family: Family) -> BTreeSet<IpAddr> {
        let can = |health: Health| match health {
            Health::Unknown | Health::Healthy | Health::Degraded => true,
            Health::Unhealthy | Health::Draining => false,
        };
        let usable = backends.iter().filter(|backend| can(backend.health));
        usable.filter_map(|backend| backend.address(family)).collect()
    }
}
