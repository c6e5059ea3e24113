//! The cache of gRFC A88: the state of each watched resource, and the notices to its watchers (X1).
//!
//! It owns the states of resources with their values and errors, the timers of requested resources that have not
//! arrived, and the notices to each watcher. Its callers define what a resource is, request and validate it, and
//! connect to its source. Inputs for keys without a watcher are ignored.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::resource_cache::entry::{CacheEntry, EntryState, ErrorState, Timer};
use model::machine::Now;
use model::xds::cache::{CacheState, Cached, Error, Policy, Reason, ResourceState};

/// A notice to a watcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice<K, V, W> {
    /// The watcher.
    pub watcher: W,
    /// Key of the resource.
    pub key: K,
    /// The change.
    pub change: ResourceChange<V>,
}

/// The watcher interface of A88. A watcher that applies every notice always has the same state as the cache.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResourceChange<V> {
    /// The resource to use from now on, or the reason why none can be used, which ends the use of an earlier one.
    /// Earlier errors are over (`OnResourceChanged`).
    Changed(Result<Cached<V>, Error>),
    /// An error beside the resource in use; `None`: the error is over (`OnAmbientError`). A watcher without a resource
    /// gets `None` when its unreachable source becomes reachable; it then waits again.
    Ambient(Option<Error>),
}

/// An entry as shown in CSDS and the admin API.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed<'a, K, V> {
    /// Key of the resource.
    pub key: &'a K,
    /// Its state.
    pub state: ResourceState,
    /// The resource in use.
    pub cached: Option<&'a Cached<V>>,
    /// Its own most recent error. An unreachable source is not included.
    pub error: Option<&'a Error>,
    /// Number of watchers.
    pub watchers: usize,
}

impl<K, V> Listed<'_, K, V> {
    /// Returns the metric label.
    #[must_use]
    pub fn cache_state(&self) -> CacheState {
        self.state.cache_state(self.cached.is_some())
    }
}

/// The watched resources of one source (X1).
#[derive(Debug)]
pub struct ResourceCache<K, V, W> {
    policy: Policy,
    /// The connectivity error, while the source is unreachable.
    connectivity_error: Option<Error>,
    entries: BTreeMap<K, CacheEntry<V, W>>,
    /// The running timers, in the order in which they fire.
    due: BTreeSet<(Now, K)>,
}

impl<K: Ord + Clone, V: Clone + PartialEq, W: Ord + Clone> ResourceCache<K, V, W> {
    /// Creates a cache without watched resources, for a source without errors.
    #[must_use]
    pub fn new(policy: Policy) -> ResourceCache<K, V, W> {
        ResourceCache { policy, connectivity_error: None, entries: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// Sets the features of another server of a fallback list. They apply to later inputs; running timers stay
    /// unchanged.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// Subscribes a watcher to a resource. It gets the resource in use and then the current error, or only the error,
    /// or nothing (A88). A watcher that is subscribed already gets no notice.
    pub fn watch(&mut self, key: K, watcher: W, out: &mut Vec<Notice<K, V, W>>) {
        let entry = self
            .entries
            .entry(key.clone())
            .or_insert_with(|| CacheEntry::new(self.connectivity_error.clone()));
        if entry.watchers.insert(watcher.clone()) {
            entry.notify_one(&key, &watcher, &entry.initial_changes(), out);
        }
        debug_assert!(self.is_sound_at(&key));
    }

    /// Unsubscribes a watcher from a resource. Returns true for the last watcher; the resource is then forgotten.
    pub fn unwatch(&mut self, key: &K, watcher: &W) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let is_last = entry.watchers.remove(watcher) && entry.watchers.is_empty();
        if is_last {
            self.remove_timer(key);
            self.entries.remove(key);
        }
        debug_assert!(self.is_sound_at(key));
        is_last
    }

    /// Records that a request with these resources was sent on a live stream. Resources without a cached value must
    /// arrive in time from now on, even if they were invalid or missing before. A running timer is not prolonged
    /// (A57). The caller leaves out resources that the source has answered on that stream, and those whose timer has
    /// fired on it.
    pub fn sent<'a>(&mut self, now: Now, keys: impl IntoIterator<Item = &'a K>)
    where
        K: 'a,
    {
        let timer = Timer::start(now, self.policy);
        for key in keys {
            if self.entries.get_mut(key).is_some_and(|entry| entry.start_timer(timer)) {
                self.due.insert((timer.fires, key.clone()));
            }
            debug_assert!(self.is_sound_at(key));
        }
    }

    /// Records the end of the stream: a resource that is not requested cannot be late (A57).
    pub fn stop_timers(&mut self) {
        self.due.clear();
        self.entries.values_mut().for_each(CacheEntry::stop_timer);
        debug_assert!(self.is_sound());
    }

    /// Handles a valid resource. If it differs from the one in use, watchers get it. Otherwise they get the end of the
    /// error, if there was one.
    pub fn received(&mut self, key: K, cached: Cached<V>, out: &mut Vec<Notice<K, V, W>>) {
        self.remove_timer(&key);
        if let Some(entry) = self.entries.get_mut(&key) {
            let changes = entry.receive(cached, self.connectivity_error.as_ref());
            entry.notify(&key, &changes, out);
        }
        debug_assert!(self.is_sound_at(&key));
    }

    /// Handles an invalid version of the resource (a NACK).
    pub fn invalid(&mut self, key: K, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Nack);
        self.fail(&key, EntryState::Nacked, error, out);
    }

    /// Handles an invalid part of the newest version of the resource, whose rest was received instead. The rest stays
    /// in use whatever the policy is, because the invalid part is left out already.
    pub fn partly_invalid(&mut self, key: K, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Nack);
        self.fail_as(&key, EntryState::Nacked, error, false, out);
    }

    /// Handles the absence of the resource from a complete response. A resource that is not cached cannot be deleted:
    /// the response may answer an older request, and the timer decides (A88).
    pub fn deleted(&mut self, key: K, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Deleted);
        if self.get(&key).is_some_and(|entry| entry.cached.is_some()) {
            self.fail(&key, EntryState::DoesNotExist, error, out);
        }
    }

    /// Handles an error that the source has reported instead of the resource (xRFC TP3).
    pub fn reported(&mut self, key: K, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Reported);
        self.fail(&key, EntryState::ReceivedError, error, out);
    }

    /// Handles an unreachable source. All watchers get the error; no entry changes.
    pub fn connectivity(&mut self, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Connectivity);
        for (key, entry) in &mut self.entries {
            let changes = entry.on_unreachable(&error);
            entry.notify(key, &changes, out);
        }
        self.connectivity_error = Some(error);
        debug_assert!(self.is_sound());
    }

    /// Handles an answer of the source. Watchers whose last notice was a connectivity error get the resource's own
    /// error, or the end of the error.
    pub fn connected(&mut self, out: &mut Vec<Notice<K, V, W>>) {
        if self.connectivity_error.take().is_some() {
            for (key, entry) in &mut self.entries {
                let changes = entry.on_reachable();
                entry.notify(key, &changes, out);
            }
        }
        debug_assert!(self.is_sound());
    }

    /// Returns the time at which the next timer fires; `None` if none is running.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        self.due.first().map(|(fires, _)| *fires)
    }

    /// Fires the timers that are due, and returns their resources. An early or late call is harmless.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Notice<K, V, W>>) -> Vec<K> {
        let mut late = Vec::new();
        while self.deadline().is_some_and(|fires| fires <= now) {
            let Some((_, key)) = self.due.pop_first() else { break };
            if let Some(entry) = self.entries.get_mut(&key) {
                let changes = entry.expire();
                entry.notify(&key, &changes, out);
            }
            late.push(key);
        }
        debug_assert!(self.is_sound());
        late
    }

    /// Returns the connectivity error; `None`: the source has answered, or was not tried yet.
    #[must_use]
    pub fn connectivity_error(&self) -> Option<&Error> {
        self.connectivity_error.as_ref()
    }

    /// Returns all watched resources, in the order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = Listed<'_, K, V>> {
        self.entries.iter().map(|(key, entry)| entry.listed(key))
    }

    /// Returns one watched resource; `None` if it has no watcher.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Listed<'_, K, V>> {
        self.entries.get_key_value(key).map(|(key, entry)| entry.listed(key))
    }

    /// Returns the number of watched resources in each state, including zeros (A78).
    #[must_use]
    pub fn states_count(&self) -> BTreeMap<CacheState, u64> {
        let mut counts: BTreeMap<CacheState, u64> =
            CacheState::ALL.into_iter().map(|state| (state, 0)).collect();
        for entry in self.entries() {
            *counts.entry(entry.cache_state()).or_default() += 1;
        }
        counts
    }

    /// Checks the invariants: each state contains what A88 requires, notices and cache agree, every entry is watched,
    /// and the running timers are those of the entries.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let running = self.entries.iter().filter_map(|(key, entry)| Some((entry.timer()?.fires, key)));
        let order: BTreeSet<(Now, &K)> = running.collect();
        order.into_iter().eq(self.due.iter().map(|(fires, key)| (*fires, key)))
            && self.connectivity_error.as_ref().is_none_or(|error| error.reason == Reason::Connectivity)
            && self.entries.values().all(|entry| entry.is_sound(self.connectivity_error.as_ref()))
    }

    /// Checks the invariants of one entry, at a cost that does not depend on the number of entries.
    fn is_sound_at(&self, key: &K) -> bool {
        let entry = self.entries.get(key);
        let timer = entry.and_then(CacheEntry::timer);
        timer.is_none_or(|timer| self.due.contains(&(timer.fires, key.clone())))
            && entry.is_none_or(|entry| entry.is_sound(self.connectivity_error.as_ref()))
    }

    /// Handles an error of the resource itself, which `becomes` puts into the new state. The policy decides whether
    /// the resource in use is dropped.
    fn fail(
        &mut self,
        key: &K,
        becomes: fn(ErrorState<V>) -> EntryState<V>,
        error: Error,
        out: &mut Vec<Notice<K, V, W>>,
    ) {
        let drops = self.policy.fail_on_data_errors && error.is_data_error();
        self.fail_as(key, becomes, error, drops, out);
    }

    fn fail_as(
        &mut self,
        key: &K,
        becomes: fn(ErrorState<V>) -> EntryState<V>,
        error: Error,
        drops: bool,
        out: &mut Vec<Notice<K, V, W>>,
    ) {
        self.remove_timer(key);
        if let Some(entry) = self.entries.get_mut(key) {
            let changes = entry.fail(becomes, error, drops);
            entry.notify(key, &changes, out);
        }
        debug_assert!(self.is_sound_at(key));
    }

    /// Removes the timer of an entry that is about to leave its state.
    fn remove_timer(&mut self, key: &K) {
        if let Some(timer) = self.entries.get(key).and_then(CacheEntry::timer) {
            self.due.remove(&(timer.fires, key.clone()));
        }
    }
}
