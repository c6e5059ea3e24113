//! The slice sets of candidates as resources, with the states of gRFC A88 (X1, X5): whether each Service's endpoints
//! are known, their errors, and whether the last good state is still in use.
//!
//! The resource of a Service is all its EndpointSlices together. Endpoints that vanish with a newer state of a slice
//! are not an error. Data errors are: a slice whose newest state cannot be decoded (NACK), a Service without any
//! slice left (deletion), and a denial by the API server for a minute (a reported error). An unreachable API server,
//! or one that has not listed slices in time, is a transient error. `sources.kubernetes.failOnDataErrors` defines the
//! effect of a data error on the last good state. The guards decide when to release the members that stay (G2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::resource_cache::{Notice, ResourceCache};
use crate::watch::WatchFreshness;
use model::ids::{Family, ServiceKey};
use model::level::Provenance;
use model::machine::{Now, Wall, earliest};
use model::sample::Metric;
use model::view::ResourceView;
use model::xds::cache::{CacheState, Cached, Error, Policy, Reason};
use model::xds::facts::Code;

/// Time for which the API server must deny EndpointSlices before the denial counts. A server that restarts denies
/// everything for a while.
const DENIED_FOR: Duration = Duration::from_secs(60);

/// The minimum interval between counts of Services, whose cost is proportional to their number.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// All EndpointSlices of a Service with a known state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SliceSet {
    /// A number that rises with every slice event (A3).
    pub(super) revision: u64,
    /// Number of slices with a state in use.
    pub(super) slices: usize,
    /// The address families that they count for (D4).
    pub(super) families: BTreeSet<Family>,
}

/// The only watcher is the Informer.
type Watcher = ();

/// The slice sets of candidates.
#[derive(Debug)]
pub(super) struct Resources {
    cache: ResourceCache<ServiceKey, SliceSet, Watcher>,
    fail_on_data_errors: bool,
    /// The start of the API server's denial of EndpointSlices, with its message.
    denied: Option<(Now, Arc<str>)>,
    /// The message of a denial that counts, until the API server sends slices again.
    refused: Option<Arc<str>>,
    /// The Services with a good state of slices so far, and its families.
    known: BTreeMap<ServiceKey, BTreeSet<Family>>,
    counted: BTreeMap<CacheState, u64>,
    counted_at: Option<Now>,
    has_changed: bool,
    /// Notices of the cache. They are not used, because `view` reads the cache directly.
    notices: Vec<Notice<ServiceKey, SliceSet, Watcher>>,
}

/// An error in a Service's slices.
pub(super) struct SliceError {
    /// Name of the first slice whose newest state cannot be decoded.
    pub(super) slice: Arc<str>,
    /// The error.
    pub(super) error: Arc<str>,
}

impl Resources {
    pub(super) fn new(fail_on_data_errors: bool) -> Resources {
        // Only a complete list shows that a Service has no slices; a late list does not.
        let policy = Policy { fail_on_data_errors, timer_is_transient: true };
        Resources {
            cache: ResourceCache::new(policy),
            fail_on_data_errors,
            denied: None,
            refused: None,
            known: BTreeMap::new(),
            counted: BTreeMap::new(),
            counted_at: None,
            has_changed: false,
            notices: Vec::new(),
        }
    }

    /// Returns true if a data error ends the use of the last good state.
    pub(super) fn drops(&self) -> bool {
        self.fail_on_data_errors
    }

    /// Starts to follow the slices of a candidate.
    pub(super) fn follow(&mut self, now: Now, service: &ServiceKey) {
        if self.cache.get(service).is_none() {
            self.cache.watch(service.clone(), (), &mut self.notices);
            self.cache.sent(now, [service]);
            self.has_changed = true;
        }
    }

    /// Stops following the slices of a Service.
    pub(super) fn leave(&mut self, service: &ServiceKey) {
        self.has_changed |= self.cache.unwatch(service, &());
        self.known.remove(service);
    }

    /// Updates a candidate's slice set, once all lists are complete. `set` is the state in use; `None`: there is none.
    /// `provenance` is how it arrived.
    pub(super) fn update(
        &mut self,
        now: Now,
        service: &ServiceKey,
        set: Option<SliceSet>,
        provenance: Provenance,
        slice_error: Option<SliceError>,
    ) {
        self.follow(now, service);
        self.has_changed = true;
        if self.refused.is_some() {
            // The slices are from before the denial.
            self.refuse(std::slice::from_ref(service));
            self.notices.clear();
            return;
        }
        let is_used = set.is_some();
        match set {
            Some(set) => {
                self.known.entry(service.clone()).or_default().extend(&set.families);
                let version = Arc::from(set.revision.to_string());
                // The wall-clock time of the state is not shown: objects have their own versions.
                let updated = Wall::from_micros(0);
                let cached = Cached { value: set, raw: None, version, updated, provenance };
                self.cache.received(service.clone(), cached, &mut self.notices);
            }
            None if slice_error.is_none() => {
                let message = "all EndpointSlices of the Service have vanished";
                let gone = data_error(Reason::Deleted, Code::NotFound, message);
                self.cache.deleted(service.clone(), gone, &mut self.notices);
            }
            None => {}
        }
        if let Some(SliceError { slice, error }) = slice_error {
            let words = format!("EndpointSlice {}/{slice}: {error}", service.namespace);
            let error = data_error(Reason::Nack, Code::InvalidArgument, &words);
            if is_used {
                self.cache.partly_invalid(service.clone(), error, &mut self.notices);
            } else {
                self.cache.invalid(service.clone(), error, &mut self.notices);
            }
        }
        self.notices.clear();
    }

    /// Handles the state of the EndpointSlice watch. Returns true if this may affect all Services.
    pub(super) fn on_freshness(&mut self, now: Now, freshness: &WatchFreshness) -> bool {
        match freshness {
            WatchFreshness::Current => {
                self.denied = None;
                self.cache.connected(&mut self.notices);
            }
            WatchFreshness::Stale | WatchFreshness::Denied(_) => {
                let reason = match freshness {
                    WatchFreshness::Denied(reason) => Arc::clone(reason),
                    WatchFreshness::Current | WatchFreshness::Stale => {
                        Arc::from("the API server does not send EndpointSlices")
                    }
                };
                self.denied = match (freshness, self.denied.take()) {
                    (WatchFreshness::Denied(reason), denied) => {
                        Some((denied.map_or(now, |(since, _)| since), Arc::clone(reason)))
                    }
                    (WatchFreshness::Current | WatchFreshness::Stale, _) => None,
                };
                let error = Error {
                    reason: Reason::Connectivity,
                    code: Code::Unavailable,
                    message: reason,
                    rejected: None,
                };
                self.cache.connectivity(error, &mut self.notices);
            }
        }
        let was_refused = self.refused.is_some();
        if freshness.is_current() {
            self.refused = None;
        }
        self.has_changed = true;
        self.notices.clear();
        was_refused != self.refused.is_some()
    }

    /// Returns the next time at which time alone changes something.
    pub(super) fn deadline(&self) -> Option<Now> {
        let denied =
            self.denied.as_ref().filter(|_| self.refused.is_none()).map(|(since, _)| since.plus(DENIED_FOR));
        let counted = self.counted_at.map_or(Now::ZERO, |at| at.plus(COUNT_INTERVAL));
        let moved = self.has_changed.then_some(counted);
        earliest(moved, earliest(denied, self.cache.deadline()))
    }

    /// Handles the deadline. Returns true if this affects all Services.
    pub(super) fn tick(&mut self, now: Now) -> bool {
        let is_late = self.cache.deadline().is_some_and(|at| at <= now);
        if is_late {
            self.cache.tick(now, &mut self.notices);
            self.has_changed = true;
        }
        let lasts = |(since, _): &(Now, Arc<str>)| since.plus(DENIED_FOR) <= now;
        let begins = self.refused.is_none() && self.denied.as_ref().is_some_and(lasts);
        if begins {
            self.refused = self.denied.as_ref().map(|(_, reason)| Arc::clone(reason));
            let all: Vec<ServiceKey> = self.cache.entries().map(|entry| entry.key.clone()).collect();
            self.refuse(&all);
        }
        self.notices.clear();
        begins || is_late
    }

    /// Applies the API server's denial to these Services.
    fn refuse(&mut self, services: &[ServiceKey]) {
        let Some(reason) = self.refused.clone() else { return };
        for service in services {
            let error = data_error(Reason::Reported, Code::PermissionDenied, &reason);
            self.cache.reported(service.clone(), error, &mut self.notices);
        }
        self.has_changed = true;
    }

    /// Returns true if a denial has ended the use of all slices.
    pub(super) fn are_withdrawn(&self) -> bool {
        self.refused.is_some() && self.fail_on_data_errors
    }

    /// Returns the families of a Service whose last good state is no longer used, as configured. A family without any
    /// good state so far is not included (X3).
    pub(super) fn dropped(&self, service: &ServiceKey) -> BTreeSet<Family> {
        let known = self.known.get(service).filter(|_| self.fail_on_data_errors);
        let (Some(known), Some(entry)) = (known, self.cache.get(service)) else {
            return BTreeSet::new();
        };
        match entry.cached {
            Some(cached) => known.difference(&cached.value.families).copied().collect(),
            None if entry.error.is_some_and(Error::is_data_error) => known.clone(),
            None => BTreeSet::new(),
        }
    }

    /// Returns the view of a Service's slices. An unreachable API server is not included: it is the same for all
    /// Services, and no reason to publish each fact again.
    pub(super) fn view(&self, service: &ServiceKey) -> Option<ResourceView> {
        let entry = self.cache.get(service)?;
        Some(ResourceView {
            state: entry.state,
            is_cached: entry.cached.is_some(),
            error: entry.error.map(|error| (error.reason, Arc::clone(&error.message))),
        })
    }

    /// Returns the reason why the watch of slices is not current.
    #[cfg(test)]
    pub(super) fn lost(&self) -> Option<&Error> {
        self.cache.connectivity_error()
    }

    /// Returns the number of Services in each state, if it has changed.
    pub(super) fn samples(&mut self, now: Now) -> Vec<Metric> {
        if !self.has_changed || self.counted_at.is_some_and(|at| at.plus(COUNT_INTERVAL) > now) {
            return Vec::new();
        }
        (self.has_changed, self.counted_at) = (false, Some(now));
        let counts = self.cache.states_count();
        let differ = counts.iter().filter(|(state, count)| self.counted.get(state) != Some(count));
        let samples = differ.map(|(state, count)| Metric::ServiceResources { state: *state, count: *count });
        let samples = samples.collect();
        self.counted = counts;
        samples
    }
}

fn data_error(reason: Reason, code: Code, message: &str) -> Error {
    Error { reason, code, message: Arc::from(message), rejected: None }
}
