//! One watched resource: its state with its contents, its timer, and the state of its watchers.

use std::collections::BTreeSet;
use std::mem;
use std::sync::Arc;

use crate::resource_cache::{Listed, News, Notice};
use model::machine::Now;
use model::xds::cache::{Cached, Error, Policy, Reason, State};
use model::xds::facts::Code;

/// A running timer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Timer {
    /// When it fires.
    pub fires: Now,
    /// The features of the source that was asked; they determine the meaning of the timer.
    policy: Policy,
}

impl Timer {
    /// Starts the timer of a resource that is requested now.
    pub fn start(now: Now, policy: Policy) -> Timer {
        Timer { fires: now.plus(policy.patience()), policy }
    }

    /// The error when it fires.
    fn error(self) -> Error {
        let patience = self.policy.patience().as_secs();
        let late = format!("was not received within {patience} s after it was asked for");
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
pub(super) struct Failed<V> {
    error: Error,
    cached: Option<Cached<V>>,
}

/// A state of A88 with its contents.
#[derive(Debug)]
pub(super) enum Stand<V> {
    Requested,
    Acked(Cached<V>),
    DoesNotExist(Failed<V>),
    Nacked(Failed<V>),
    ReceivedError(Failed<V>),
    Timeout(Error),
}

impl<V> Stand<V> {
    fn state(&self) -> State {
        match self {
            Stand::Requested => State::Requested,
            Stand::Acked(_) => State::Acked,
            Stand::DoesNotExist(_) => State::DoesNotExist,
            Stand::Nacked(_) => State::Nacked,
            Stand::ReceivedError(_) => State::ReceivedError,
            Stand::Timeout(_) => State::Timeout,
        }
    }

    fn cached(&self) -> Option<&Cached<V>> {
        match self {
            Stand::Requested | Stand::Timeout(_) => None,
            Stand::Acked(cached) => Some(cached),
            Stand::DoesNotExist(failed) | Stand::Nacked(failed) | Stand::ReceivedError(failed) => {
                failed.cached.as_ref()
            }
        }
    }

    fn into_cached(self) -> Option<Cached<V>> {
        match self {
            Stand::Requested | Stand::Timeout(_) => None,
            Stand::Acked(cached) => Some(cached),
            Stand::DoesNotExist(failed) | Stand::Nacked(failed) | Stand::ReceivedError(failed) => {
                failed.cached
            }
        }
    }

    fn error(&self) -> Option<&Error> {
        match self {
            Stand::Requested | Stand::Acked(_) => None,
            Stand::DoesNotExist(failed) | Stand::Nacked(failed) | Stand::ReceivedError(failed) => {
                Some(&failed.error)
            }
            Stand::Timeout(error) => Some(error),
        }
    }
}

/// The state of every watcher of an entry after all notices.
#[derive(Debug)]
struct Held {
    /// True if it uses the resource.
    uses_resource: bool,
    /// The error that it knows: the newest of the entry's own error and the connectivity error.
    error: Option<Error>,
}

/// The state of a watched resource.
#[derive(Debug)]
pub(super) struct CacheEntry<V, W> {
    stand: Stand<V>,
    /// The running timer, whatever the state before the request.
    timer: Option<Timer>,
    held: Held,
    /// The watchers.
    pub watchers: BTreeSet<W>,
}

impl<V: Clone + PartialEq, W: Ord + Clone> CacheEntry<V, W> {
    /// Creates the entry of a newly watched resource; `lost` is the connectivity error of its source.
    pub fn new(lost: Option<Error>) -> CacheEntry<V, W> {
        CacheEntry {
            stand: Stand::Requested,
            timer: None,
            held: Held { uses_resource: false, error: lost },
            watchers: BTreeSet::new(),
        }
    }

    /// The running timer.
    pub fn timer(&self) -> Option<Timer> {
        self.timer
    }

    /// Starts the timer if nothing is cached and no timer is running. Returns true if it has started.
    pub fn arm(&mut self, timer: Timer) -> bool {
        let starts = self.stand.cached().is_none() && self.timer.is_none();
        if starts {
            self.timer = Some(timer);
        }
        starts
    }

    /// Stops the timer.
    pub fn disarm(&mut self) {
        self.timer = None;
    }

    /// Handles a valid resource.
    pub fn receive(&mut self, cached: Cached<V>, lost: Option<&Error>) -> Vec<News<V>> {
        let is_new = self.stand.cached().is_none_or(|known| known.value != cached.value);
        self.stand = Stand::Acked(cached);
        self.timer = None;
        self.settle(is_new, lost.cloned())
    }

    /// Handles an error of the resource itself; `drops` ends the use of the cached resource.
    pub fn fail(&mut self, becomes: fn(Failed<V>) -> Stand<V>, error: Error, drops: bool) -> Vec<News<V>> {
        let known = mem::replace(&mut self.stand, Stand::Requested).into_cached();
        self.timer = None;
        self.stand = becomes(Failed { error: error.clone(), cached: known.filter(|_| !drops) });
        self.settle(false, Some(error))
    }

    /// Handles the end of the timer.
    pub fn expire(&mut self) -> Vec<News<V>> {
        let Some(timer) = self.timer.take() else { return Vec::new() };
        let error = timer.error();
        self.stand = if timer.policy.timer_is_transient {
            Stand::Timeout(error.clone())
        } else {
            Stand::DoesNotExist(Failed { error: error.clone(), cached: None })
        };
        self.settle(false, Some(error))
    }

    /// Handles an unreachable source.
    pub fn lose(&mut self, error: &Error) -> Vec<News<V>> {
        self.settle(false, Some(error.clone()))
    }

    /// Handles an answer of the source: only the entry's own error counts now.
    pub fn regain(&mut self) -> Vec<News<V>> {
        self.settle(false, self.stand.error().cloned())
    }

    /// All changes for a new watcher: the resource and then the error.
    pub fn known(&self) -> Vec<News<V>> {
        match (self.stand.cached(), &self.held.error) {
            (None, None) => Vec::new(),
            (None, Some(error)) => vec![News::Changed(Err(error.clone()))],
            (Some(cached), None) => vec![News::Changed(Ok(cached.clone()))],
            (Some(cached), Some(error)) => {
                vec![News::Changed(Ok(cached.clone())), News::Ambient(Some(error.clone()))]
            }
        }
    }

    /// Sends changes to every watcher.
    pub fn tell<K: Clone>(&self, key: &K, news: &[News<V>], out: &mut Vec<Notice<K, V, W>>) {
        self.watchers.iter().for_each(|watcher| self.tell_one(key, watcher, news, out));
    }

    /// Sends changes to one watcher.
    pub fn tell_one<K: Clone>(&self, key: &K, watcher: &W, news: &[News<V>], out: &mut Vec<Notice<K, V, W>>) {
        for news in news.iter().cloned() {
            out.push(Notice { watcher: watcher.clone(), key: key.clone(), news });
        }
    }

    /// The entry as shown to operators.
    pub fn listed<'a, K>(&'a self, key: &'a K) -> Listed<'a, K, V> {
        Listed {
            key,
            state: self.stand.state(),
            cached: self.stand.cached(),
            error: self.stand.error(),
            watchers: self.watchers.len(),
        }
    }

    /// Checks the invariants: the state contains what A88 requires, the watchers agree with it, and there is a
    /// watcher.
    pub fn is_sound(&self, lost: Option<&Error>) -> bool {
        let is_cached = self.stand.cached().is_some();
        let reason = self.stand.error().map(|error| error.reason);
        let is_present = match self.stand.state() {
            State::Requested => !is_cached && reason.is_none(),
            State::Acked => is_cached && reason.is_none(),
            State::DoesNotExist => {
                reason == Some(Reason::Deleted) || (reason == Some(Reason::Timer) && !is_cached)
            }
            State::Nacked => reason == Some(Reason::Nack),
            State::ReceivedError => reason == Some(Reason::Reported),
            State::Timeout => reason == Some(Reason::Timer) && !is_cached,
        };
        let is_held = match &self.held.error {
            None => self.stand.error().is_none() && lost.is_none(),
            Some(held) => self.stand.error() == Some(held) || lost == Some(held),
        };
        let is_awaited = self.timer.is_none() || !is_cached;
        is_present
            && is_held
            && is_awaited
            && self.held.uses_resource == is_cached
            && !self.watchers.is_empty()
    }

    /// The changes that bring the watchers to the resource and this error. Data errors and transient errors are
    /// ambient if a resource is in use, and otherwise the reason why there is none (A88). Unchanged state is not sent
    /// again.
    fn settle(&mut self, is_new: bool, error: Option<Error>) -> Vec<News<V>> {
        let cached = self.stand.cached();
        let mut news = Vec::new();
        if is_new {
            news.extend(cached.map(|cached| News::Changed(Ok(cached.clone()))));
        }
        // A new resource ends the known error.
        let known = if is_new { None } else { self.held.error.as_ref() };
        let is_told = match (known, &error) {
            (None, None) => true,
            (Some(known), Some(error)) => known.says_the_same_as(error),
            (None, Some(_)) | (Some(_), None) => false,
        };
        let ends = self.held.uses_resource && cached.is_none();
        if ends || !is_told {
            news.push(match &error {
                Some(error) if cached.is_none() => News::Changed(Err(error.clone())),
                Some(_) | None => News::Ambient(error.clone()),
            });
        }
        self.held = Held { uses_resource: cached.is_some(), error };
        news
    }
}
