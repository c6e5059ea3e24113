//! Which Services the cloud-controller-manager may be about to serve, and so waits for the shared Lease (W7): those
//! that this process saw become LoadBalancers, for some minutes, while they lack ingress.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cache::Arrival;
use model::ids::ServiceKey;
use model::level::Provenance;
use model::machine::Now;
use model::object::{ServiceObject, ServiceType};

/// For how long a Service counts. One that lacks ingress for longer has another reason to lack it.
const COUNTS_FOR: Duration = Duration::from_secs(600);

/// The Services that became LoadBalancers a short while ago.
#[derive(Default, Debug)]
pub(super) struct Awaiting {
    /// Until when each of them counts.
    until: BTreeMap<ServiceKey, Now>,
    /// The same, by that moment.
    by_time: BTreeSet<(Now, ServiceKey)>,
    /// Those of them that lack ingress, by the number under which each began to.
    lacking: BTreeMap<ServiceKey, u64>,
    /// These numbers.
    numbers: BTreeSet<u64>,
    /// The last number.
    last: u64,
    /// What was last said.
    said: Option<u64>,
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
        // The first list does not say how long it has been so.
        if became && arrival.provenance != Provenance::FirstList {
            let until = arrival.now.plus(COUNTS_FOR);
            self.until.insert(key.clone(), until);
            self.by_time.insert((until, key.clone()));
        }
        if after.has_ingress || after.has_class || after.deleting || !self.until.contains_key(key) {
            self.lacks_no_more(key);
        } else if !self.lacking.contains_key(key) {
            self.last += 1;
            self.lacking.insert(key.clone(), self.last);
            self.numbers.insert(self.last);
        }
    }

    fn lacks_no_more(&mut self, key: &ServiceKey) {
        if let Some(number) = self.lacking.remove(key) {
            self.numbers.remove(&number);
        }
    }

    /// A Service is gone, or no LoadBalancer.
    pub(super) fn forget(&mut self, key: &ServiceKey) {
        if let Some(until) = self.until.remove(key) {
            self.by_time.remove(&(until, key.clone()));
        }
        self.lacks_no_more(key);
    }

    /// When time alone may change the answer.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.by_time.first().map(|(at, _)| *at).filter(|_| !self.lacking.is_empty())
    }

    /// Forgets those whose time is over; whether the newest is another one than was said last.
    pub(super) fn has_news(&mut self, now: Now) -> bool {
        while let Some((at, key)) = self.by_time.first().cloned().filter(|(at, _)| *at <= now) {
            debug_assert!(self.until.get(&key) == Some(&at), "both sides of the index agree");
            self.forget(&key);
        }
        let newest = self.newest();
        std::mem::replace(&mut self.said, newest) != newest
    }

    /// The number of the Service that began last to lack ingress, of those that lack it now.
    pub(super) fn newest(&self) -> Option<u64> {
        self.numbers.last().copied()
    }

    /// The invariants: both sides of each index agree, and what lacks ingress has a time.
    pub(super) fn check(&self) -> bool {
        let placed = |(key, until): (&ServiceKey, &Now)| self.by_time.contains(&(*until, key.clone()));
        self.until.len() == self.by_time.len()
            && self.until.iter().all(placed)
            && self.lacking.keys().all(|key| self.until.contains_key(key))
            && self.lacking.len() == self.numbers.len()
            && self.lacking.values().all(|number| self.numbers.contains(number))
    }
}

fn balances(service: &ServiceObject) -> bool {
    match service.service_type {
        ServiceType::LoadBalancer => true,
        ServiceType::Other => false,
    }
}
