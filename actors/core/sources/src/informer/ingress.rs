//! The Services that the cloud-controller-manager may be about to process, for which it waits for the shared Lease
//! (W7): those that this process saw become LoadBalancers, for some minutes, while they lack ingress.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::arrival::Arrival;
use model::ids::ServiceKey;
use model::level::Provenance;
use model::machine::Now;
use model::object::{ServiceObject, ServiceType};

/// Time for which a Service counts. A Service that lacks ingress for longer has another reason for it.
const COUNTS_FOR: Duration = Duration::from_secs(600);

/// The Services that became LoadBalancers recently.
#[derive(Default, Debug)]
pub(super) struct Awaiting {
    /// The time until which each of them counts.
    until: BTreeMap<ServiceKey, Now>,
    /// The same Services, ordered by time.
    by_time: BTreeSet<(Now, ServiceKey)>,
    /// The Services that lack ingress, with the number that each got when it began to lack ingress.
    lacking: BTreeMap<ServiceKey, u64>,
    /// The numbers in the field above.
    numbers: BTreeSet<u64>,
    /// The last number.
    last: u64,
    /// The last published number.
    published: Option<u64>,
}

impl Awaiting {
    /// Handles a new state of a Service.
    pub(super) fn observe(
        &mut self,
        arrival: Arrival,
        before: Option<&ServiceObject>,
        after: &ServiceObject,
    ) {
        let key = &after.key;
        if !is_load_balancer(after) {
            return self.forget(key);
        }
        let became = before.is_none_or(|before| before.uid != after.uid || !is_load_balancer(before));
        if became {
            self.forget(key);
        }
        // The first list does not show how long the Service has been a LoadBalancer.
        if became && arrival.provenance != Provenance::FirstList {
            let until = arrival.now.plus(COUNTS_FOR);
            self.until.insert(key.clone(), until);
            self.by_time.insert((until, key.clone()));
        }
        if after.has_ingress || after.has_class || after.deleting || !self.until.contains_key(key) {
            self.clear_lacking(key);
        } else if !self.lacking.contains_key(key) {
            self.last += 1;
            self.lacking.insert(key.clone(), self.last);
            self.numbers.insert(self.last);
        }
    }

    fn clear_lacking(&mut self, key: &ServiceKey) {
        if let Some(number) = self.lacking.remove(key) {
            self.numbers.remove(&number);
        }
    }

    /// Removes a Service that is gone, or that is not a LoadBalancer.
    pub(super) fn forget(&mut self, key: &ServiceKey) {
        if let Some(until) = self.until.remove(key) {
            self.by_time.remove(&(until, key.clone()));
        }
        self.clear_lacking(key);
    }

    /// Returns the next time at which time alone may change the result.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.by_time.first().map(|(at, _)| *at).filter(|_| !self.lacking.is_empty())
    }

    /// Removes expired Services. Returns true if the newest number differs from the last published one.
    pub(super) fn has_changed(&mut self, now: Now) -> bool {
        while let Some((at, key)) = self.by_time.first().cloned().filter(|(at, _)| *at <= now) {
            debug_assert!(self.until.get(&key) == Some(&at), "both sides of the index agree");
            self.forget(&key);
        }
        let newest = self.newest();
        std::mem::replace(&mut self.published, newest) != newest
    }

    /// Returns the number of the Service that most recently began to lack ingress and still lacks it.
    pub(super) fn newest(&self) -> Option<u64> {
        self.numbers.last().copied()
    }

    /// Checks the invariants: both sides of each index agree, and every Service that lacks ingress has a time.
    pub(super) fn check(&self) -> bool {
        let placed = |(key, until): (&ServiceKey, &Now)| self.by_time.contains(&(*until, key.clone()));
        self.until.len() == self.by_time.len()
            && self.until.iter().all(placed)
            && self.lacking.keys().all(|key| self.until.contains_key(key))
            && self.lacking.len() == self.numbers.len()
            && self.lacking.values().all(|number| self.numbers.contains(number))
    }
}

fn is_load_balancer(service: &ServiceObject) -> bool {
    match service.service_type {
        ServiceType::LoadBalancer => true,
        ServiceType::Other => false,
    }
}
