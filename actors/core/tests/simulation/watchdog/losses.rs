//! Reasons why Services have released addresses, by the facts of the Informer, even if the Directory receives others
//! (G4).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use model::ids::ServiceUid;
use model::level::Provenance;
use model::services::{Part, ServiceFact};

use super::asks;

/// Number of a pool's addresses that are lost for causes that count.
#[derive(Clone, Copy, Default)]
pub struct Lost {
    /// Certain losses.
    pub surely: usize,
    /// Possible losses: it may be unknown which facts arrived together.
    pub possibly: usize,
}

/// Reasons why an address was released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    /// A list, a reconnect, no slice left, or a node that is excluded.
    Counts,
    /// Its endpoints left their slices on a running watch.
    Endpoints,
    /// Its node was deleted, and its endpoints may have left at the same time; or the operator has released it.
    Unclear,
}

/// Addresses that Services have released and not required again.
#[derive(Default)]
pub struct Losses {
    of: BTreeMap<ServiceUid, BTreeMap<IpAddr, Cause>>,
    /// Last fact of the Informer about each Service that the Directory has received.
    last_facts: BTreeMap<ServiceUid, Arc<ServiceFact>>,
}

impl Losses {
    /// Records that the Directory receives a fact about a Service, which replaces all facts since the previous one.
    pub fn record_fact(&mut self, uid: &ServiceUid, facts: &[Arc<ServiceFact>], received: &Arc<ServiceFact>) {
        let last = facts.last().unwrap_or(received);
        let before = self.last_facts.insert(uid.clone(), Arc::clone(last));
        let causes = self.of.entry(uid.clone()).or_default();
        let is_watched = facts.iter().all(|fact| match fact.provenance {
            Provenance::Watch => true,
            Provenance::Reconnect | Provenance::Relist | Provenance::FirstList => false,
        });
        for (family, is) in last.parts.iter() {
            let was = before.as_ref().map(|before| before.parts[&family].clone()).unwrap_or_default();
            let demand = asks(is);
            for ip in asks(&was).difference(&demand) {
                causes.entry(*ip).or_insert_with(|| cause(&was, is, is_watched, ip));
            }
            causes.retain(|ip, _| !demand.contains(ip));
        }
    }

    /// Records that a Service was deleted.
    pub fn forget(&mut self, uid: &ServiceUid) {
        self.of.remove(uid);
        self.last_facts.remove(uid);
    }

    /// Records that the operator has released a Service's held removals, or those of all Services. Later removals may
    /// still count.
    pub fn release(&mut self, of: Option<&ServiceUid>) {
        let named = self.of.iter_mut().filter(|(uid, _)| of.is_none_or(|of| of == *uid));
        for cause in
            named.flat_map(|(_, causes)| causes.values_mut()).filter(|cause| **cause == Cause::Counts)
        {
            *cause = Cause::Unclear;
        }
    }

    /// Returns whether one of these Services does not require it because its endpoints left their slices on a running
    /// watch.
    pub fn is_of_endpoints<'a>(&self, mut uids: impl Iterator<Item = &'a ServiceUid>, ip: &IpAddr) -> bool {
        uids.any(|uid| self.of.get(uid).and_then(|causes| causes.get(ip)) == Some(&Cause::Endpoints))
    }

    /// Returns the addresses that these Services have released for causes that count: certainly, and possibly.
    pub fn of<'a>(&self, uids: impl Iterator<Item = &'a ServiceUid>) -> (BTreeSet<IpAddr>, BTreeSet<IpAddr>) {
        let (mut surely, mut possibly) = (BTreeSet::new(), BTreeSet::new());
        for (ip, cause) in uids.filter_map(|uid| self.of.get(uid)).flatten() {
            match cause {
                Cause::Counts => {
                    surely.insert(*ip);
                    possibly.insert(*ip);
                }
                Cause::Unclear => {
                    possibly.insert(*ip);
                }
                Cause::Endpoints => {}
            }
        }
        (surely, possibly)
    }
}

fn cause(was: &Part, is: &Part, is_watched: bool, ip: &IpAddr) -> Cause {
    let is_excluded = is.excluded.values().any(|node| node.why.is_everywhere() && node.ips.contains(ip));
    if !is_watched || is_excluded || is.slices == 0 {
        Cause::Counts
    } else if is.unusable || was.last_known.contains(ip) {
        Cause::Unclear
    } else {
        Cause::Endpoints
    }
}
