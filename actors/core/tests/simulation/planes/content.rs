//! The resources that all control planes of a world serve, and their changes: assignments move, drain and empty;
//! clusters vanish and return; resources are invalid for a while, or reported as errors (TP3).

use std::collections::{BTreeMap, BTreeSet};

use model::ids::Family;
use model::xds::facts::Code;
use simulator_models::control_plane::Kind;

use crate::random::Random;
use crate::served::{Backend, CLUSTER, Contents, ExpectedMembers, Fault, Health, Listed, Served};

/// Key of a resource: its kind and name.
pub type Key = (Kind, &'static str);

/// The existing assignments: `web` by its own name, the others by the name in the cluster.
pub const ASSIGNMENTS: [&str; 3] = ["web", "api-1", "api-2"];

/// A change of the served resources.
#[derive(Clone, Debug)]
pub enum Change {
    /// Sets a resource and removes its error.
    Set(Key, Served),
    /// Removes a resource.
    Remove(Key),
    /// Replaces a resource by an error.
    Fail(Key, Code),
    /// Removes the error of a resource.
    ForgetError(Key),
}

/// The served resources.
pub struct Content {
    random: Random,
    backends: u64,
    assignments: BTreeMap<&'static str, Served>,
    cluster: Option<Served>,
    failing: BTreeSet<Key>,
}

fn good(backends: Vec<Backend>) -> Served {
    Served { what: Contents::Endpoints(backends), fault: None }
}

impl Content {
    /// Creates empty content.
    pub fn new(random: Random) -> Content {
        let (assignments, failing) = Default::default();
        Content { random, backends: 0, assignments, cluster: None, failing }
    }

    /// Returns the expected members of a pool.
    pub fn expected_members(&self, listed: &Listed) -> Option<ExpectedMembers> {
        let cluster = self.cluster.as_ref();
        let endpoints = match listed.endpoints() {
            Some(name) => name,
            None => match cluster.filter(|served| served.fault.is_none()).map(|served| &served.what) {
                Some(Contents::Cluster(endpoints)) => endpoints.as_str(),
                Some(Contents::Endpoints(_)) | None => return None,
            },
        };
        let is_failing = |kind: Kind, name: &str| self.failing.iter().any(|key| *key == (kind, name));
        let assignment = self.assignments.get(endpoints).filter(|served| served.fault.is_none())?;
        match &assignment.what {
            Contents::Endpoints(backends) if !is_failing(Kind::Endpoints, endpoints) => {
                Some(ExpectedMembers::of(backends, listed.family))
            }
            Contents::Endpoints(_) | Contents::Cluster(_) => None,
        }
    }

    fn backend(&mut self) -> Backend {
        self.backends += 1;
        let health = match self.random.below(10) {
            0..4 => Health::Healthy,
            4..8 => Health::Unknown,
            8 => Health::Degraded,
            _ => Health::Unhealthy,
        };
        let only = match self.random.below(8) {
            0 => Some(Family::V4),
            1 => Some(Family::V6),
            _ => None,
        };
        let priority = if self.random.per_mille(700) { 0 } else { 1 + self.random.index(2) };
        Backend { number: self.backends, priority, health, only }
    }

    fn fresh(&mut self) -> Vec<Backend> {
        let count = 1 + self.random.below(5);
        (0..count).map(|_| self.backend()).collect()
    }

    /// Returns the first resources: sometimes not all of them.
    pub fn first(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        for name in ASSIGNMENTS {
            if self.random.per_mille(850) {
                let fresh = self.fresh();
                changes.push(self.set(name, good(fresh)));
            }
        }
        if self.random.per_mille(850) {
            changes.push(self.name_endpoints("api-1"));
        }
        changes
    }

    fn set(&mut self, name: &'static str, served: Served) -> Change {
        self.assignments.insert(name, served.clone());
        self.failing.remove(&(Kind::Endpoints, name));
        Change::Set((Kind::Endpoints, name), served)
    }

    fn name_endpoints(&mut self, endpoints: &str) -> Change {
        self.set_cluster(Served { what: Contents::Cluster(endpoints.to_owned()), fault: None })
    }

    fn set_cluster(&mut self, served: Served) -> Change {
        self.cluster = Some(served.clone());
        self.failing.remove(&(Kind::Clusters, CLUSTER));
        Change::Set((Kind::Clusters, CLUSTER), served)
    }

    /// Makes one change.
    pub fn make_change(&mut self) -> Change {
        let name = ASSIGNMENTS[self.random.index(ASSIGNMENTS.len())];
        match self.random.below(100) {
            0..62 => self.moves(name),
            62..70 => self.is_wrong(name),
            70..76 => self.fail(name),
            76..82 => self.repair_resource(name),
            82..88 => {
                self.cluster = None;
                self.failing.remove(&(Kind::Clusters, CLUSTER));
                Change::Remove((Kind::Clusters, CLUSTER))
            }
            88..91 => {
                let fault = Some(if self.random_half() { Fault::Type } else { Fault::Bytes });
                self.set_cluster(Served { what: Contents::Cluster("api-1".to_owned()), fault })
            }
            _ => {
                let endpoints = ["api-1", "api-2"][self.random.index(2)];
                self.name_endpoints(endpoints)
            }
        }
    }

    fn random_half(&mut self) -> bool {
        self.random.per_mille(500)
    }

    /// Changes an assignment as real endpoints change.
    fn moves(&mut self, name: &'static str) -> Change {
        let mut backends = self.backends_of(name);
        let at = self.random.index(backends.len());
        let fresh = self.backend();
        match (self.random.below(100), backends.get_mut(at)) {
            (0..25, _) | (_, None) => backends.push(fresh),
            (25..45, Some(backend)) => backend.health = Health::Draining,
            (45..55, Some(backend)) => backend.health = Health::Unhealthy,
            (55..65, Some(backend)) => backend.health = Health::Healthy,
            (65..70, Some(backend)) => backend.health = Health::Degraded,
            (70..75, Some(backend)) => backend.priority = (backend.priority + 1) % 3,
            (75..82, Some(_)) => drop(backends.remove(at)),
            // Draining endpoints are removed.
            (82..88, Some(_)) => backends.retain(|backend| backend.health != Health::Draining),
            // A whole priority becomes unhealthy, or healthy again.
            (88..91, Some(_)) => self.turn(&mut backends, Health::Unhealthy),
            (91..94, Some(_)) => self.turn(&mut backends, Health::Healthy),
            (94..97, Some(_)) => backends.clear(),
            (_, Some(_)) => backends = self.fresh(),
        }
        self.set(name, good(backends))
    }

    fn turn(&mut self, backends: &mut [Backend], health: Health) {
        let priority = self.random.index(2);
        let of = backends.iter_mut().filter(|backend| backend.priority == priority);
        of.for_each(|backend| backend.health = health);
    }

    fn backends_of(&self, name: &str) -> Vec<Backend> {
        match self.assignments.get(name).map(|served| &served.what) {
            Some(Contents::Endpoints(backends)) => backends.clone(),
            Some(Contents::Cluster(_)) | None => Vec::new(),
        }
    }

    /// Makes an assignment invalid, with addresses that were never assigned.
    fn is_wrong(&mut self, name: &'static str) -> Change {
        let faults = [Fault::HostName, Fault::Weight, Fault::Gap, Fault::Bytes];
        let mut backends = self.backends_of(name);
        let fresh = self.fresh();
        if self.random_half() {
            backends.clear();
        }
        backends.extend(fresh);
        // The first endpoint of the first priority has the fault.
        let fault = faults[self.random.index(faults.len())];
        self.set(name, Served { what: Contents::Endpoints(backends), fault: Some(fault) })
    }

    fn fail(&mut self, name: &'static str) -> Change {
        let codes = [Code::NotFound, Code::PermissionDenied, Code::Unavailable, Code::Internal];
        let code = codes[self.random.index(codes.len())];
        let key =
            if self.random.per_mille(300) { (Kind::Clusters, CLUSTER) } else { (Kind::Endpoints, name) };
        self.failing.insert(key);
        Change::Fail(key, code)
    }

    fn repair_resource(&mut self, name: &'static str) -> Change {
        if let Some(key) = self.failing.pop_first() {
            return Change::ForgetError(key);
        }
        let backends = self.backends_of(name);
        self.set(name, good(backends))
    }

    /// Changes every resource once, for profiles in which only a change corrects anything (C2).
    pub fn change_everything(&mut self) -> Vec<Change> {
        let stirred = ASSIGNMENTS.map(|name| {
            let (mut backends, mut fresh) = (self.backends_of(name), self.backend());
            (fresh.health, fresh.only) = (Health::Healthy, None);
            backends.push(fresh);
            self.set(name, good(backends))
        });
        stirred.into()
    }

    /// Withdraws all resources: the cluster is removed. Endpoints are replaced by errors, because nothing else
    /// reports that they do not exist.
    pub fn take_back(&mut self) -> Vec<Change> {
        let fail = |name| {
            self.failing.insert((Kind::Endpoints, name));
            Change::Fail((Kind::Endpoints, name), Code::NotFound)
        };
        let mut changes: Vec<Change> = ASSIGNMENTS.map(fail).into();
        self.cluster = None;
        changes.push(Change::Remove((Kind::Clusters, CLUSTER)));
        changes
    }

    /// Makes the repairs that the operator would make: nothing is invalid or missing, and remaining assignments have
    /// a healthy endpoint.
    pub fn repair(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        while let Some(key) = self.failing.pop_first() {
            changes.push(Change::ForgetError(key));
        }
        for name in ASSIGNMENTS {
            let mut backends = self.backends_of(name);
            let serves = |family: Family| !ExpectedMembers::of(&backends, family).serving.is_empty();
            let all_serve = serves(Family::V4) && serves(Family::V6);
            if !backends.is_empty() && !all_serve {
                let fresh = self.backend();
                backends.push(Backend { health: Health::Healthy, only: None, ..fresh });
            }
            changes.push(self.set(name, good(backends)));
        }
        let named = match self.cluster.as_ref().map(|served| &served.what) {
            Some(Contents::Cluster(endpoints)) => endpoints.clone(),
            Some(Contents::Endpoints(_)) | None => "api-1".to_owned(),
        };
        changes.push(self.name_endpoints(&named));
        changes
    }
}
