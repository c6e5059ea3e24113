//! Which Services the cloud-controller-manager may be about to serve, and so waits for the shared Lease (W7): those
//! that this process saw become LoadBalancers, for some minutes, while they lack ingress.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cache::Arrival;
use crate::ids::ServiceKey;
use crate::level::Provenance;
use crate::machine::Now;
use crate::object::{ServiceObject, ServiceType};

/// For how long a Service counts. One that lacks ingress for longer has another reason to lack it.
const COUNTS_FOR: Duration = Duration::from_secs(600);

/// The Services that became LoadBalancers a short while ago.
#[derive(Default, Debug)]
pub(super) struct Awaiting {
    /// Until when each of them counts.
    until: BTreeMap<ServiceKey, Now>,
    /// The same, by that moment.
    by_time: BTreeSet<(Now, ServiceKey)>,
    /// Those of them that lack ingress.
    lacking: BTreeSet<ServiceKey>,
    /// What was last said.
    said: bool,
}

impl Awaiting {
    /// A Service has a new state.
    pub(super) fn note(&mut self, arrival: Arrival, before: Option<&ServiceObject>, after: &ServiceObject) {
        let key = &after.key;
        if !balances(after) {
            return self.forget(key);
        }
        let became = before.is_none_or(|before| before.uid != after.uid || !balances(before));
        if became {
            self.forget(key);
        }
        // Of what the first list tells nobody knows how long it has been so.
        if became && arrival.provenance != Provenance::FirstList {
            let until = arrival.now.plus(COUNTS_FOR);
            self.until.insert(key.clone(), until);
            self.by_time.insert((until, key.clone()));
        }
        if after.has_ingress || after.has_class || after.deleting || !self.until.contains_key(key) {
            self.lacking.remove(key);
        } else {
            self.lacking.insert(key.clone());
        }
    }

    /// A Service is gone, or no LoadBalancer.
    pub(super) fn forget(&mut self, key: &ServiceKey) {
        if let Some(until) = self.until.remove(key) {
            self.by_time.remove(&(until, key.clone()));
        }
        self.lacking.remove(key);
    }

    /// When time alone may change the answer.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.by_time.first().map(|(at, _)| *at).filter(|_| !self.lacking.is_empty())
    }

    /// Whether any Service counts now, when that is not what was said last.
    pub(super) fn news(&mut self, now: Now) -> Option<bool> {
        while let Some((at, key)) = self.by_time.first().cloned().filter(|(at, _)| *at <= now) {
            debug_assert!(self.until.get(&key) == Some(&at), "both sides of the index agree");
            self.forget(&key);
        }
        let any = !self.lacking.is_empty();
        (std::mem::replace(&mut self.said, any) != any).then_some(any)
    }

    /// The invariants: both sides of the index agree, and what lacks ingress has a time.
    pub(super) fn check(&self) -> bool {
        let placed = |(key, until): (&ServiceKey, &Now)| self.by_time.contains(&(*until, key.clone()));
        self.until.len() == self.by_time.len()
            && self.until.iter().all(placed)
            && self.lacking.iter().all(|key| self.until.contains_key(key))
    }
}

fn balances(service: &ServiceObject) -> bool {
    match service.service_type {
        ServiceType::LoadBalancer => true,
        ServiceType::Other => false,
    }
}
