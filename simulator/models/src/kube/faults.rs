//! Faults of an API server, as settings of the model.

use std::collections::{BTreeMap, BTreeSet};

use super::KubeModel;
use super::request::WatchId;
use super::resource::Resource;

/// Answer of the server to a streaming list (`sendInitialEvents=true`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum StreamingLists {
    /// As Kubernetes 1.36 with a recent etcd.
    #[default]
    Served,
    /// HTTP 200 and one ERROR event, as with an etcd before 3.4.25 or 3.5.8 (no progress requests).
    RefusedByErrorEvent,
    /// HTTP 422 Invalid, as a server without the WatchList feature.
    RefusedAsInvalid,
    /// HTTP 400 BadRequest, as a proxy or a server that does not know the options.
    RefusedAsBadRequest,
}

/// Number of times each setting has affected clients. A setting without effect has changed nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FaultEffects {
    /// Connections refused while the server was down.
    pub refused: u64,
    /// Slow answers.
    pub slowed: u64,
    /// Requests answered 429.
    pub throttled: u64,
    /// Watches with a forgotten resourceVersion (410).
    pub expired: u64,
    /// Lists and streams of initial events without objects of a hidden kind.
    pub hidden: BTreeMap<Resource, u64>,
    /// Restores of etcd.
    pub rollbacks: u64,
    /// Number of TokenReviews, which does not depend on a setting. A client that caches verdicts requests fewer.
    pub token_reviews: u64,
}

#[derive(Debug, Clone)]
pub(super) struct Throttle {
    pub left: u64,
    pub retry_after_s: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    pub streaming: StreamingLists,
    pub throttle: Option<Throttle>,
    pub forbidden: BTreeSet<Resource>,
    pub down: bool,
    pub lag_us: u64,
    pub slow_us: u64,
    pub hidden: BTreeSet<Resource>,
    pub watches_last_us: Option<u64>,
}

impl KubeModel {
    /// Restarts the server: all watches end immediately, and its history is gone, so that a watch from any known
    /// resourceVersion is answered 410.
    pub fn restart(&mut self) {
        self.end_all_watches();
        // A server that starts writes its own Lease, so even the newest earlier resourceVersion is old.
        self.store.rv += 1;
        self.compact();
    }

    /// Returns how often each setting has affected clients since the model began.
    pub fn fault_effects(&self) -> &FaultEffects {
        &self.fault_effects
    }

    /// Drops the history for new requests; running watches continue. This combines etcd's compaction with a cold watch
    /// cache, because compaction alone has no such effect in 1.36.
    pub fn compact(&mut self) {
        self.store.horizon = self.store.rv;
        self.changed();
    }

    /// Sets how streaming lists are answered from now on.
    pub fn refuse_streaming_lists(&mut self, how: StreamingLists) {
        self.faults.streaming = how;
        self.changed();
    }

    /// Answers this number of next requests with 429, a `retry-after` in seconds and a text/plain body. Health checks
    /// are exempt.
    pub fn answer_429(&mut self, requests: u64, retry_after_s: u64) {
        self.faults.throttle = (requests > 0).then_some(Throttle { left: requests, retry_after_s });
        self.changed();
    }

    /// Answers every request for this kind with 403, also in access reviews. Running watches continue.
    pub fn forbid(&mut self, resource: Resource) {
        self.faults.forbidden.insert(resource);
        self.changed();
    }

    /// Reverts `forbid`.
    pub fn permit(&mut self, resource: Resource) {
        self.faults.forbidden.remove(&resource);
        self.changed();
    }

    /// Hides or shows the objects of this kind. While they are hidden, lists and the initial events of watches contain
    /// none of them, with status 200. Running watches continue, and reads of single objects are not affected.
    pub fn hide(&mut self, resource: Resource, hidden: bool) {
        if hidden {
            self.faults.hidden.insert(resource);
        } else {
            self.faults.hidden.remove(&resource);
        }
        self.changed();
    }

    /// Takes the server down or up. While it is down, connections are refused and open watches break. The history
    /// survives (see `restart`).
    pub fn down(&mut self, down: bool) {
        self.faults.down = down;
        if down {
            self.end_all_watches();
        }
        self.changed();
    }

    /// Returns whether connections must be refused.
    pub fn is_down(&self) -> bool {
        self.faults.down
    }

    /// Adds a middlebox between the server and its clients, which ends every new watch after this many microseconds.
    /// With 0, it answers 200 and sends nothing. `None` removes it.
    pub fn cut_watches(&mut self, after_us: Option<u64>) {
        self.faults.watches_last_us = after_us;
        self.changed();
    }

    /// Delays watch events by this many microseconds. Reads with resourceVersion 0 are equally stale.
    pub fn lag(&mut self, lag_us: u64) {
        self.faults.lag_us = lag_us;
        self.changed();
    }

    /// Delays each answer by this many microseconds (in `Reply::Answer::after_us`).
    pub fn slow(&mut self, slow_us: u64) {
        self.faults.slow_us = slow_us;
        self.changed();
    }

    /// Inserts bytes into a running watch, after the queued lines.
    pub fn raw_line(&mut self, watch: WatchId, bytes: &[u8]) {
        if let Some(watch) = self.watches.get_mut(&watch) {
            watch.queue_raw(bytes);
        }
        self.changed();
    }

    /// Restores etcd to its state at resourceVersion `to`, which becomes the newest again, and restarts the server.
    /// Returns false, without an effect, if that state is no longer (or not yet) known.
    pub fn rollback(&mut self, to: u64) -> bool {
        let done = self.store.rollback(to);
        if done {
            self.fault_effects.rollbacks += 1;
            self.end_all_watches();
            self.compact();
        }
        done
    }
}
