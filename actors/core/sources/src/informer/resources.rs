//! The slice sets of candidates as resources, with the states of gRFC A88 (X1, X5): what is known of each Service's
//! endpoints, what is wrong with it, and whether what was known is still in use.
//!
//! The resource of a Service is all its EndpointSlices together. Endpoints that go with a newer state of a slice are no
//! error. What is: a slice whose newest state cannot be decoded (NACK), that all have vanished while the Service is there
//! (deletion), and that the API server has denied them for a minute (a reported error). That it is not reached, or has not
//! listed them in time, is transient. `sources.kubernetes.failOnDataErrors` says what a data error does to what was known;
//! what is kept is for guards to release (G2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::resource_cache::{Notice, ResourceCache};
use crate::watch::Contact;
use model::ids::{Family, ServiceKey};
use model::level::Provenance;
use model::machine::{Now, Wall, earliest};
use model::sample::Metric;
use model::view::ResourceView;
use model::xds::cache::{CacheState, Cached, Error, Policy, Reason};
use model::xds::facts::Code;

/// For how long the API server must have denied EndpointSlices before that is taken for its word: one that restarts denies
/// everything for a while.
const DENIED_FOR: Duration = Duration::from_secs(60);

/// How often Services are counted at most: that costs as much as there are.
const COUNTED_EVERY: Duration = Duration::from_secs(1);

/// All EndpointSlices of a Service, as far as their states are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct SliceSet {
    /// Raised by every slice event (A3).
    pub(super) revision: u64,
    /// How many there are of which a state is in use.
    pub(super) slices: usize,
    /// The address families that these count for (D4).
    pub(super) families: BTreeSet<Family>,
}

/// Only the Informer watches them.
type Watcher = ();

/// What is known of the slice sets of candidates.
#[derive(Debug)]
pub(super) struct Resources {
    cache: ResourceCache<ServiceKey, SliceSet, Watcher>,
    fail_on_data_errors: bool,
    /// Since when the API server has denied EndpointSlices, and what it says.
    denied: Option<(Now, Arc<str>)>,
    /// What it said when that had lasted, and counts as its word until it sends them again.
    refused: Option<Arc<str>>,
    /// The Services of whose slices anything was ever in use, and for which families.
    known: BTreeMap<ServiceKey, BTreeSet<Family>>,
    counted: BTreeMap<CacheState, u64>,
    counted_at: Option<Now>,
    is_moved: bool,
    /// What the cache said last; only those that ask receive it.
    news: Vec<Notice<ServiceKey, SliceSet, Watcher>>,
}

/// What of a Service's slices is wrong.
pub(super) struct Wrong {
    /// The first slice, by name, whose newest state cannot be decoded.
    pub(super) slice: Arc<str>,
    /// Why.
    pub(super) error: Arc<str>,
}

impl Resources {
    pub(super) fn new(fail_on_data_errors: bool) -> Resources {
        // Whether a list comes is the API server's word that a Service has no slices: a slow one is no such word.
        let policy = Policy { fail_on_data_errors, timer_is_transient: true };
        Resources {
            cache: ResourceCache::new(policy),
            fail_on_data_errors,
            denied: None,
            refused: None,
            known: BTreeMap::new(),
            counted: BTreeMap::new(),
            counted_at: None,
            is_moved: false,
            news: Vec::new(),
        }
    }

    /// Whether a data error ends the use of what was known.
    pub(super) fn drops(&self) -> bool {
        self.fail_on_data_errors
    }

    /// A candidate's slices are asked for from now on.
    pub(super) fn follow(&mut self, now: Now, service: &ServiceKey) {
        if self.cache.get(service).is_none() {
            self.cache.watch(service.clone(), (), &mut self.news);
            self.cache.sent(now, [service]);
            self.is_moved = true;
        }
    }

    /// A Service's slices are not needed any more.
    pub(super) fn leave(&mut self, service: &ServiceKey) {
        self.is_moved |= self.cache.unwatch(service, &());
        self.known.remove(service);
    }

    /// What is known of a candidate's slices now, when all lists are complete. `set` is what is in use of them; `None`:
    /// there is none; `provenance` tells how that has come.
    pub(super) fn settle(
        &mut self,
        now: Now,
        service: &ServiceKey,
        set: Option<SliceSet>,
        provenance: Provenance,
        wrong: Option<Wrong>,
    ) {
        self.follow(now, service);
        self.is_moved = true;
        if self.refused.is_some() {
            // What is known was known before that.
            self.refuse(std::slice::from_ref(service));
            self.news.clear();
            return;
        }
        let is_used = set.is_some();
        match set {
            Some(set) => {
                self.known.entry(service.clone()).or_default().extend(&set.families);
                let version = Arc::from(set.revision.to_string());
                // The wall time of a state of the cluster is not shown: objects have versions of their own.
                let updated = Wall::from_micros(0);
                let cached = Cached { value: set, raw: None, version, updated, provenance };
                self.cache.received(service.clone(), cached, &mut self.news);
            }
            None if wrong.is_none() => {
                let message = "all EndpointSlices of the Service have vanished";
                let gone = data_error(Reason::Deleted, Code::NotFound, message);
                self.cache.deleted(service.clone(), gone, &mut self.news);
            }
            None => {}
        }
        if let Some(Wrong { slice, error }) = wrong {
            let words = format!("EndpointSlice {}/{slice}: {error}", service.namespace);
            let error = data_error(Reason::Nack, Code::InvalidArgument, &words);
            if is_used {
                self.cache.partly_invalid(service.clone(), error, &mut self.news);
            } else {
                self.cache.invalid(service.clone(), error, &mut self.news);
            }
        }
        self.news.clear();
    }

    /// How the stream of EndpointSlices stands. Says whether it may mean something else for Services than before.
    pub(super) fn contact(&mut self, now: Now, contact: &Contact) -> bool {
        match contact {
            Contact::Current => {
                self.denied = None;
                self.cache.connected(&mut self.news);
            }
            Contact::Lost | Contact::Denied(_) => {
                let why = match contact {
                    Contact::Denied(why) => Arc::clone(why),
                    Contact::Current | Contact::Lost => {
                        Arc::from("the API server does not send EndpointSlices")
                    }
                };
                self.denied = match (contact, self.denied.take()) {
                    (Contact::Denied(why), denied) => {
                        Some((denied.map_or(now, |(since, _)| since), Arc::clone(why)))
                    }
                    (Contact::Current | Contact::Lost, _) => None,
                };
                let error = Error {
                    reason: Reason::Connectivity,
                    code: Code::Unavailable,
                    message: why,
                    rejected: None,
                };
                self.cache.connectivity(error, &mut self.news);
            }
        }
        let was_refused = self.refused.is_some();
        if contact.is_current() {
            self.refused = None;
        }
        self.is_moved = true;
        self.news.clear();
        was_refused != self.refused.is_some()
    }

    /// When time alone changes something.
    pub(super) fn deadline(&self) -> Option<Now> {
        let denied =
            self.denied.as_ref().filter(|_| self.refused.is_none()).map(|(since, _)| since.plus(DENIED_FOR));
        let counted = self.counted_at.map_or(Now::ZERO, |at| at.plus(COUNTED_EVERY));
        let moved = self.is_moved.then_some(counted);
        earliest(moved, earliest(denied, self.cache.deadline()))
    }

    /// Does what the moment is for. Says whether that means something else for all Services.
    pub(super) fn tick(&mut self, now: Now) -> bool {
        let is_late = self.cache.deadline().is_some_and(|at| at <= now);
        if is_late {
            self.cache.tick(now, &mut self.news);
            self.is_moved = true;
        }
        let lasts = |(since, _): &(Now, Arc<str>)| since.plus(DENIED_FOR) <= now;
        let begins = self.refused.is_none() && self.denied.as_ref().is_some_and(lasts);
        if begins {
            self.refused = self.denied.as_ref().map(|(_, why)| Arc::clone(why));
            let all: Vec<ServiceKey> = self.cache.entries().map(|entry| entry.key.clone()).collect();
            self.refuse(&all);
        }
        self.news.clear();
        begins || is_late
    }

    /// The API server's word is that these may not be read.
    fn refuse(&mut self, services: &[ServiceKey]) {
        let Some(why) = self.refused.clone() else { return };
        for service in services {
            let error = data_error(Reason::Reported, Code::PermissionDenied, &why);
            self.cache.reported(service.clone(), error, &mut self.news);
        }
        self.is_moved = true;
    }

    /// Whether the API server's word that slices may not be read makes go all that was known of them.
    pub(super) fn are_withdrawn(&self) -> bool {
        self.refused.is_some() && self.fail_on_data_errors
    }

    /// The families for which what was known of a Service's slices is not to be used any more, as it was configured.
    /// Where nothing ever was known, there is no opinion (X3).
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

    /// What is shown of a Service's slices. That the API server is not heard is nothing of theirs: it is the same for all,
    /// and no reason to say each of them again.
    pub(super) fn view(&self, service: &ServiceKey) -> Option<ResourceView> {
        let entry = self.cache.get(service)?;
        Some(ResourceView {
            state: entry.state,
            is_cached: entry.cached.is_some(),
            error: entry.error.map(|error| (error.reason, Arc::clone(&error.message))),
        })
    }

    /// Why nothing is heard of slices.
    #[cfg(test)]
    pub(super) fn lost(&self) -> Option<&Error> {
        self.cache.connectivity_error()
    }

    /// How many Services are in each state, where that has changed.
    pub(super) fn samples(&mut self, now: Now) -> Vec<Metric> {
        if !self.is_moved || self.counted_at.is_some_and(|at| at.plus(COUNTED_EVERY) > now) {
            return Vec::new();
        }
        (self.is_moved, self.counted_at) = (false, Some(now));
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
