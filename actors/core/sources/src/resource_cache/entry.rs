//! One watched resource: its state with its contents, its timer, and the state of its watchers.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use crate::resource_cache::{Listed, Notice, ResourceChange};
use model::machine::Now;
use model::xds::cache::{Cached, Error, Policy, Reason, ResourceState};
use model::xds::facts::Code;

/// A running timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Timer {
    /// Time at which it fires.
    pub fires: Now,
    /// The features of the source that was asked; they determine the meaning of the timer.
    policy: Policy,
}

impl Timer {
    /// Starts the timer of a resource that is requested now.
    pub fn start(now: Now, policy: Policy) -> Timer {
        Timer { fires: now.plus(policy.resource_timeout()), policy }
    }

    /// Returns the error of a timer that fires.
    fn error(self) -> Error {
        let timeout = self.policy.resource_timeout().as_secs();
        let late = format!("was not received within {timeout} s of the request");
        let (code, message) = if self.policy.timer_is_transient {
            (Code::Unavailable, late)
        } else {
            (Code::NotFound, format!("does not exist: {late}"))
        };
        Error { reason: Reason::Timer, code, message: Arc::from(message), rejected: None }
    }
}

/// An error, with the resource that stays in use.
#[derive(Debug)]
pub(super) struct ErrorState<V> {
    error: Error,
    cached: Option<Cached<V>>,
}

/// A state of A88 with its contents.
#[derive(Debug)]
pub(super) enum EntryState<V> {
    Requested,
    Acked(Cached<V>),
    DoesNotExist(ErrorState<V>),
    Nacked(ErrorState<V>),
    ReceivedError(ErrorState<V>),
    Timeout(Error),
}

impl<V> EntryState<V> {
    fn state(&self) -> ResourceState {
        match self {
            EntryState::Requested => ResourceState::Requested,
            EntryState::Acked(_) => ResourceState::Acked,
            EntryState::DoesNotExist(_) => ResourceState::DoesNotExist,
            EntryState::Nacked(_) => ResourceState::Nacked,
            EntryState::ReceivedError(_) => ResourceState::ReceivedError,
            EntryState::Timeout(_) => ResourceState::Timeout,
        }
    }

    fn cached(&self) -> Option<&Cached<V>> {
        match self {
            EntryState::Requested | EntryState::Timeout(_) => None,
            EntryState::Acked(cached) => Some(cached),
            EntryState::DoesNotExist(failed)
            | EntryState::Nacked(failed)
            | EntryState::ReceivedError(failed) => failed.cached.as_ref(),
        }
    }

    fn into_cached(self) -> Option<Cached<V>> {
        match self {
            EntryState::Requested | EntryState::Timeout(_) => None,
            EntryState::Acked(cached) => Some(cached),
            EntryState::DoesNotExist(failed)
            | EntryState::Nacked(failed)
            | EntryState::ReceivedError(failed) => failed.cached,
        }
    }

    fn error(&self) -> Option<&Error> {
        match self {
            EntryState::Requested | EntryState::Acked(_) => None,
            EntryState::DoesNotExist(failed)
            | EntryState::Nacked(failed)
            | EntryState::ReceivedError(failed) => Some(&failed.error),
            EntryState::Timeout(error) => Some(error),
        }
    }
}

/// The state of every watcher of an entry after all notices.
#[derive(Debug)]
struct WatcherView {
    /// True if it uses the resource.
    uses_resource: bool,
    /// The error that it knows: the newest of the entry's own error and the connectivity error.
    error: Option<Error>,
}

/// The state of a watched resource.
#[derive(Debug)]
pub(super) struct CacheEntry<V, W> {
    entry_state: EntryState<V>,
    /// The running timer, whatever the state before the request.
    timer: Option<Timer>,
    watcher_view: WatcherView,
    /// The watchers.
    pub watchers: BTreeSet<W>,
}

impl<V: Clone + PartialEq, W: Ord + Clone> CacheEntry<V, W> {
    /// Creates the entry of a newly watched resource; `connectivity_error` is that of its source.
    pub fn new(connectivity_error: Option<Error>) -> CacheEntry<V, W> {
        CacheEntry {
            entry_state: EntryState::Requested,
            timer: None,
            watcher_view: WatcherView { uses_resource: false, error: connectivity_error },
            watchers: BTreeSet::new(),
        }
    }

    /// Returns the running timer.
    pub fn timer(&self) -> Option<Timer> {
        self.timer
    }

    /// Starts the timer if nothing is cached and no timer is running. Returns true if it has started.
    pub fn start_timer(&mut self, timer: Timer) -> bool {
        let starts = self.entry_state.cached().is_none() && self.timer.is_none();
        if starts {
            self.timer = Some(timer);
        }
        starts
    }

    /// Stops the timer.
    pub fn stop_timer(&mut self) {
        self.timer = None;
    }

    /// Handles a valid resource.
    pub fn receive(
        &mut self,
        cached: Cached<V>,
        connectivity_error: Option<&Error>,
    ) -> Vec<ResourceChange<V>> {
        let is_new = self.entry_state.cached().is_none_or(|before| before.value != cached.value);
        self.entry_state = EntryState::Acked(cached);
        self.timer = None;
        self.update_watchers(is_new, connectivity_error.cloned())
    }

    /// Handles an error of the resource itself; `drops` ends the use of the cached resource.
    pub fn fail(
        &mut self,
        becomes: fn(ErrorState<V>) -> EntryState<V>,
        error: Error,
        drops: bool,
    ) -> Vec<ResourceChange<V>> {
        let before = mem::replace(&mut self.entry_state, EntryState::Requested).into_cached();
        self.timer = None;
        self.entry_state = becomes(ErrorState { error: error.clone(), cached: before.filter(|_| !drops) });
        self.update_watchers(false, Some(error))
    }

    /// Handles the end of the timer.
    pub fn expire(&mut self) -> Vec<ResourceChange<V>> {
        let Some(timer) = self.timer.take() else { return Vec::new() };
        let error = timer.error();
        self.entry_state = if timer.policy.timer_is_transient {
            EntryState::Timeout(error.clone())
        } else {
            EntryState::DoesNotExist(ErrorState { error: error.clone(), cached: None })
        };
        self.update_watchers(false, Some(error))
    }

    /// Handles an unreachable source.
    pub fn on_unreachable(&mut self, error: &Error) -> Vec<ResourceChange<V>> {
        self.update_watchers(false, Some(error.clone()))
    }

    /// Handles an answer of the source: only the entry's own error counts now.
    pub fn on_reachable(&mut self) -> Vec<ResourceChange<V>> {
        self.update_watchers(false, self.entry_state.error().cloned())
    }

    /// Returns all changes for a new watcher: the resource and then the error.
    pub fn initial_changes(&self) -> Vec<ResourceChange<V>> {
        match (self.entry_state.cached(), &self.watcher_view.error) {
            (None, None) => Vec::new(),
            (None, Some(error)) => vec![ResourceChange::Changed(Err(error.clone()))],
            (Some(cached), None) => vec![ResourceChange::Changed(Ok(cached.clone()))],
            (Some(cached), Some(error)) => {
                vec![
                    ResourceChange::Changed(Ok(cached.clone())),
                    ResourceChange::Ambient(Some(error.clone())),
                ]
            }
        }
    }

    /// Sends changes to every watcher.
    pub fn notify<K: Clone>(&self, key: &K, changes: &[ResourceChange<V>], out: &mut Vec<Notice<K, V, W>>) {
        self.watchers.iter().for_each(|watcher| self.notify_one(key, watcher, changes, out));
    }

    /// Sends changes to one watcher.
    pub fn notify_one<K: Clone>(
        &self,
        key: &K,
        watcher: &W,
        changes: &[ResourceChange<V>],
        out: &mut Vec<Notice<K, V, W>>,
    ) {
        for change in changes.iter().cloned() {
            out.push(Notice { watcher: watcher.clone(), key: key.clone(), change });
        }
    }

    /// Returns the entry as shown to operators.
    pub fn listed<'a, K>(&'a self, key: &'a K) -> Listed<'a, K, V> {
        Listed {
            key,
            state: self.entry_state.state(),
            cached: self.entry_state.cached(),
            error: self.entry_state.error(),
            watchers: self.watchers.len(),
        }
    }

    /// Checks the invariants: the state contains what A88 requires, the watchers agree with it, and there is a
    /// watcher.
    pub fn is_sound(&self, connectivity_error: Option<&Error>) -> bool {
        let is_cached = self.entry_state.cached().is_some();
        let reason = self.entry_state.error().map(|error| error.reason);
        let is_present = match self.entry_state.state() {
            ResourceState::Requested => !is_cached && reason.is_none(),
            ResourceState::Acked => is_cached && reason.is_none(),
            ResourceState::DoesNotExist => {
                reason == Some(Reason::Deleted) || (reason == Some(Reason::Timer) && !is_cached)
            }
            ResourceState::Nacked => reason == Some(Reason::Nack),
            ResourceState::ReceivedError => reason == Some(Reason::Reported),
            ResourceState::Timeout => reason == Some(Reason::Timer) && !is_cached,
        };
        let is_in_view = match &self.watcher_view.error {
            None => self.entry_state.error().is_none() && connectivity_error.is_none(),
            Some(known) => self.entry_state.error() == Some(known) || connectivity_error == Some(known),
        };
        let is_awaited = self.timer.is_none() || !is_cached;
        is_present
            && is_in_view
            && is_awaited
            && self.watcher_view.uses_resource == is_cached
            && !self.watchers.is_empty()
    }

    /// Returns the changes that bring the watchers to the resource and this error. Data errors and transient errors are
    /// ambient if a resource is in use, and otherwise the reason why there is none (A88). Unchanged state is not sent
    /// again.
    fn update_watchers(&mut self, is_new: bool, error: Option<Error>) -> Vec<ResourceChange<V>> {
        let cached = self.entry_state.cached();
        let mut changes = Vec::new();
        if is_new {
            changes.extend(cached.map(|cached| ResourceChange::Changed(Ok(cached.clone()))));
        }
        // A new resource ends the known error.
        let known_error = if is_new { None } else { self.watcher_view.error.as_ref() };
        let is_known = match (known_error, &error) {
            (None, None) => true,
            (Some(known), Some(error)) => known.is_same_as(error),
            (None, Some(_)) | (Some(_), None) => false,
        };
        let ends = self.watcher_view.uses_resource && cached.is_none();
        if ends || !is_known {
            changes.push(match &error {
                Some(error) if cached.is_none() => ResourceChange::Changed(Err(error.clone())),
                Some(_) | None => ResourceChange::Ambient(error.clone()),
            });
        }
        self.watcher_view = WatcherView { uses_resource: cached.is_some(), error };
        changes
    }
}
