//! What is known of each watched resource, and what its watchers are told of it: the cache of gRFC A88 (X1).
//!
//! It owns the states of resources, the values and errors in them, the timers of those that were asked for and have
//! not come, and what each watcher hears. What a resource is, how it is asked for and judged, and how its source is
//! reached are its callers'. Keys that have no watcher are ignored in all inputs.

mod entry;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::resource_cache::entry::{CacheEntry, Failed, Stand, Timer};
use model::machine::Now;
use model::xds::cache::{CacheState, Cached, Error, Policy, Reason, State};

/// Something that a watcher is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Notice<K, V, W> {
    /// Who is told.
    pub watcher: W,
    /// Of which resource.
    pub key: K,
    /// What.
    pub news: News<V>,
}

/// The watcher's interface of A88. A watcher that does as it is told holds what the cache holds, at any time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum News<V> {
    /// The resource to use from now on, or why none can be used: one that was in use is no longer. Whatever error was
    /// told before is over (`OnResourceChanged`).
    Changed(Result<Cached<V>, Error>),
    /// What is wrong while the resource in use stays in use; `None`: nothing any more (`OnAmbientError`). A watcher
    /// that has no resource yet hears `None` too, when the source that could not be reached can be: then it waits
    /// again.
    Ambient(Option<Error>),
}

/// An entry as it is shown (CSDS, the admin API).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed<'a, K, V> {
    /// Which resource it is.
    pub key: &'a K,
    /// Its state.
    pub state: State,
    /// The resource in use.
    pub cached: Option<&'a Cached<V>>,
    /// Its own most recent error. That its source cannot be reached is none of these.
    pub error: Option<&'a Error>,
    /// How many watch it.
    pub watchers: usize,
}

impl<K, V> Listed<'_, K, V> {
    /// What it is counted as.
    #[must_use]
    pub fn cache_state(&self) -> CacheState {
        self.state.cache_state(self.cached.is_some())
    }
}

/// The watched resources of one source (X1).
#[derive(Debug)]
pub struct ResourceCache<K, V, W> {
    policy: Policy,
    /// Why the source cannot be reached, while it cannot.
    lost: Option<Error>,
    entries: BTreeMap<K, CacheEntry<V, W>>,
    /// The timers that run, in the order in which they fire.
    due: BTreeSet<(Now, K)>,
}

impl<K: Ord + Clone, V: Clone + PartialEq, W: Ord + Clone> ResourceCache<K, V, W> {
    /// A cache in which nothing is watched, of a source of which nothing bad is known.
    #[must_use]
    pub fn new(policy: Policy) -> ResourceCache<K, V, W> {
        ResourceCache { policy, lost: None, entries: BTreeMap::new(), due: BTreeSet::new() }
    }

    /// Another server of a fallback list is in use, which may have other features. What comes from now on is judged
    /// by them; timers that run go on as they were started.
    pub fn set_policy(&mut self, policy: Policy) {
        self.policy = policy;
    }

    /// A watcher subscribes to a resource, and is told what is known of it: the resource in use and then what is wrong
    /// with it, or else why there is none, or else nothing (A88). One that watches it already is not told again.
    pub fn watch(&mut self, key: K, watcher: W, out: &mut Vec<Notice<K, V, W>>) {
        let entry = self.entries.entry(key.clone()).or_insert_with(|| CacheEntry::new(self.lost.clone()));
        if entry.watchers.insert(watcher.clone()) {
            entry.tell_one(&key, &watcher, &entry.known(), out);
        }
        debug_assert!(self.is_sound_at(&key));
    }

    /// A watcher unsubscribes from a resource. Whether that was the last one: then all that was known of the resource
    /// is forgotten.
    pub fn unwatch(&mut self, key: &K, watcher: &W) -> bool {
        let Some(entry) = self.entries.get_mut(key) else { return false };
        let is_last = entry.watchers.remove(watcher) && entry.watchers.is_empty();
        if is_last {
            self.forget_timer(key);
            self.entries.remove(key);
        }
        debug_assert!(self.is_sound_at(key));
        is_last
    }

    /// The request that names these resources was sent on a live stream: those without a cached value must arrive in
    /// time from now on, even if they were invalid or missing before. A running timer is not prolonged (A57). The
    /// caller leaves out resources that the source has answered on that stream, and those whose timer has fired on it.
    pub fn sent<'a>(&mut self, now: Now, keys: impl IntoIterator<Item = &'a K>)
    where
        K: 'a,
    {
        let timer = Timer::start(now, self.policy);
        for key in keys {
            if self.entries.get_mut(key).is_some_and(|entry| entry.arm(timer)) {
                self.due.insert((timer.fires, key.clone()));
            }
            debug_assert!(self.is_sound_at(key));
        }
    }

    /// The stream has ended: no resource is late while it is not asked for (A57).
    pub fn disarm(&mut self) {
        self.due.clear();
        self.entries.values_mut().for_each(CacheEntry::disarm);
        debug_assert!(self.is_sound());
    }

    /// A good resource came. Its watchers hear of it when it differs from the one in use, and else that what was
    /// wrong with it is over, if anything was.
    pub fn received(&mut self, key: K, cached: Cached<V>, out: &mut Vec<Notice<K, V, W>>) {
        self.forget_timer(&key);
        if let Some(entry) = self.entries.get_mut(&key) {
            let news = entry.receive(cached, self.lost.as_ref());
            entry.tell(&key, &news, out);
        }
        debug_assert!(self.is_sound_at(&key));
    }

    /// An invalid version of the resource came (a NACK).
    pub fn invalid(&mut self, key: K, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Nack);
        self.fail(&key, Stand::Nacked, error, out);
    }

    /// Something in the newest version of the resource is invalid, and the rest of it was received in its place: that
    /// stays in use, whatever the policy says, since what is bad of it was left out already.
    pub fn partly_invalid(&mut self, key: K, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Nack);
        self.fail_as(&key, Stand::Nacked, error, false, out);
    }

    /// The resource is missing in a response that names all that exist. One that is not cached cannot be deleted: the
    /// response may answer an older request, and the timer decides (A88).
    pub fn deleted(&mut self, key: K, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Deleted);
        if self.get(&key).is_some_and(|entry| entry.cached.is_some()) {
            self.fail(&key, Stand::DoesNotExist, error, out);
        }
    }

    /// The source has reported an error in the place of the resource (xRFC TP3).
    pub fn reported(&mut self, key: K, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Reported);
        self.fail(&key, Stand::ReceivedError, error, out);
    }

    /// The source cannot be reached. All watchers hear of it; no entry changes.
    pub fn connectivity(&mut self, error: Error, out: &mut Vec<Notice<K, V, W>>) {
        debug_assert_eq!(error.reason, Reason::Connectivity);
        for (key, entry) in &mut self.entries {
            let news = entry.lose(&error);
            entry.tell(key, &news, out);
        }
        self.lost = Some(error);
        debug_assert!(self.is_sound());
    }

    /// The source has answered. Watchers who heard last that it cannot be reached hear what is wrong with their
    /// resource itself, or that nothing is.
    pub fn connected(&mut self, out: &mut Vec<Notice<K, V, W>>) {
        if self.lost.take().is_some() {
            for (key, entry) in &mut self.entries {
                let news = entry.regain();
                entry.tell(key, &news, out);
            }
        }
        debug_assert!(self.is_sound());
    }

    /// When the next timer fires; `None`: none runs.
    #[must_use]
    pub fn deadline(&self) -> Option<Now> {
        self.due.first().map(|(fires, _)| *fires)
    }

    /// Fires the timers that are due, and returns their resources. Calling it early or late is harmless.
    pub fn tick(&mut self, now: Now, out: &mut Vec<Notice<K, V, W>>) -> Vec<K> {
        let mut late = Vec::new();
        while self.deadline().is_some_and(|fires| fires <= now) {
            let Some((_, key)) = self.due.pop_first() else { break };
            if let Some(entry) = self.entries.get_mut(&key) {
                let news = entry.expire();
                entry.tell(&key, &news, out);
            }
            late.push(key);
        }
        debug_assert!(self.is_sound());
        late
    }

    /// Why the source cannot be reached; `None`: it has answered, or was not tried yet.
    #[must_use]
    pub fn connectivity_error(&self) -> Option<&Error> {
        self.lost.as_ref()
    }

    /// All watched resources, in the order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = Listed<'_, K, V>> {
        self.entries.iter().map(|(key, entry)| entry.listed(key))
    }

    /// One of them; `None`: it has no watcher.
    #[must_use]
    pub fn get(&self, key: &K) -> Option<Listed<'_, K, V>> {
        self.entries.get_key_value(key).map(|(key, entry)| entry.listed(key))
    }

    /// How many watched resources are in each state, also where there are none (A78).
    #[must_use]
    pub fn states_count(&self) -> BTreeMap<CacheState, u64> {
        let mut counts: BTreeMap<CacheState, u64> =
            CacheState::ALL.into_iter().map(|state| (state, 0)).collect();
        for entry in self.entries() {
            *counts.entry(entry.cache_state()).or_default() += 1;
        }
        counts
    }

    /// The invariants: in each state is what A88 says, what the watchers were told is what the cache holds, every
    /// entry is watched, and the timers that run are those of the entries.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let running = self.entries.iter().filter_map(|(key, entry)| Some((entry.timer()?.fires, key)));
        let order: BTreeSet<(Now, &K)> = running.collect();
        order.into_iter().eq(self.due.iter().map(|(fires, key)| (*fires, key)))
            && self.lost.as_ref().is_none_or(|error| error.reason == Reason::Connectivity)
            && self.entries.values().all(|entry| entry.is_sound(self.lost.as_ref()))
    }

    /// The invariants of one entry, which cost nothing where there are many.
    fn is_sound_at(&self, key: &K) -> bool {
        let entry = self.entries.get(key);
        let timer = entry.and_then(CacheEntry::timer);
        timer.is_none_or(|timer| self.due.contains(&(timer.fires, key.clone())))
            && entry.is_none_or(|entry| entry.is_sound(self.lost.as_ref()))
    }

    /// Something is wrong with the resource itself. The state that it becomes carries the error; the policy says whether
    /// what is in use is dropped.
    fn fail(
        &mut self,
        key: &K,
        becomes: fn(Failed<V>) -> Stand<V>,
        error: Error,
        out: &mut Vec<Notice<K, V, W>>,
    ) {
        let drops = self.policy.fail_on_data_errors && error.is_data_error();
        self.fail_as(key, becomes, error, drops, out);
    }

    fn fail_as(
        &mut self,
        key: &K,
        becomes: fn(Failed<V>) -> Stand<V>,
        error: Error,
        drops: bool,
        out: &mut Vec<Notice<K, V, W>>,
    ) {
        self.forget_timer(key);
        if let Some(entry) = self.entries.get_mut(key) {
            let news = entry.fail(becomes, error, drops);
            entry.tell(key, &news, out);
        }
        debug_assert!(self.is_sound_at(key));
    }

    /// Takes the timer of an entry that is about to leave its state out of the order.
    fn forget_timer(&mut self, key: &K) {
        if let Some(timer) = self.entries.get(key).and_then(CacheEntry::timer) {
            self.due.remove(&(timer.fires, key.clone()));
        }
    }
}
