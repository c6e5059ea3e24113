//! What can go wrong with an API server, as knobs of the model.

use std::collections::{BTreeMap, BTreeSet};

use super::KubeModel;
use super::request::WatchId;
use super::resource::Resource;

/// How the server answers a streaming list (`sendInitialEvents=true`).
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

/// How often clients have met what the knobs do; a knob that no client has met has changed nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Met {
    /// Connections refused while the server was down.
    pub refused: u64,
    /// Answers that were slow.
    pub slowed: u64,
    /// Requests answered 429.
    pub throttled: u64,
    /// Watches whose resourceVersion was forgotten (410).
    pub expired: u64,
    /// Lists and streams of initial events that held no object of a kind because it was hidden.
    pub hidden: BTreeMap<Resource, u64>,
    /// How often etcd was restored.
    pub rollbacks: u64,
    /// TokenReviews; no knob turns them on, and a client that keeps verdicts makes fewer.
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
    /// The server is killed and started again: all watches end at once, and its history is gone, so that a
    /// watch from any resourceVersion that a client may know is answered 410.
    pub fn restart(&mut self) {
        self.end_all_watches();
        // A server that starts writes a Lease of its own, and so even the newest resourceVersion of before is old.
        self.store.rv += 1;
        self.compact();
    }

    /// How often clients have met each knob since the model began.
    pub fn met(&self) -> &Met {
        &self.met
    }

    /// History up to now is forgotten for new requests; running watches go on. (Stands for etcd's
    /// compaction together with a cold watch cache: compaction alone is not enough in 1.36.)
    pub fn compact(&mut self) {
        self.store.horizon = self.store.rv;
        self.changed();
    }

    /// How streaming lists are answered from now on.
    pub fn refuse_streaming_lists(&mut self, how: StreamingLists) {
        self.faults.streaming = how;
        self.changed();
    }

    /// The next `requests` requests are answered 429 with `retry-after` in seconds and a text/plain body.
    /// Health checks are exempt.
    pub fn answer_429(&mut self, requests: u64, retry_after_s: u64) {
        self.faults.throttle = (requests > 0).then_some(Throttle { left: requests, retry_after_s });
        self.changed();
    }

    /// Every request for this kind is answered 403; access reviews say so too. Running watches go on.
    pub fn forbid(&mut self, resource: Resource) {
        self.faults.forbidden.insert(resource);
        self.changed();
    }

    /// Takes back `forbid`.
    pub fn permit(&mut self, resource: Resource) {
        self.faults.forbidden.remove(&resource);
        self.changed();
    }

    /// While hidden, lists of this kind and the initial events of its watches hold no object, though all are there:
    /// an answer of 200 that is wrong. Running watches go on, and single objects are read as ever.
    pub fn hide(&mut self, resource: Resource, hidden: bool) {
        if hidden {
            self.faults.hidden.insert(resource);
        } else {
            self.faults.hidden.remove(&resource);
        }
        self.changed();
    }

    /// While down, connections are refused; open watches break. History survives (see `restart`).
    pub fn down(&mut self, down: bool) {
        self.faults.down = down;
        if down {
            self.end_all_watches();
        }
        self.changed();
    }

    /// Whether connections are to be refused.
    pub fn is_down(&self) -> bool {
        self.faults.down
    }

    /// A middlebox between the server and its clients ends every watch that is opened from now on after this many
    /// microseconds; with 0 it answers 200 and sends nothing. `None`: without a middlebox.
    pub fn cut_watches(&mut self, after_us: Option<u64>) {
        self.faults.watches_last_us = after_us;
        self.changed();
    }

    /// Watch events arrive this many microseconds late, and reads with resourceVersion 0 are as stale.
    pub fn lag(&mut self, lag_us: u64) {
        self.faults.lag_us = lag_us;
        self.changed();
    }

    /// Each answer takes this many microseconds (told to the wrapper in `Reply::Answer::after_us`).
    pub fn slow(&mut self, slow_us: u64) {
        self.faults.slow_us = slow_us;
        self.changed();
    }

    /// Puts bytes of the caller's into a running watch, after what has been queued before.
    pub fn raw_line(&mut self, watch: WatchId, bytes: &[u8]) {
        if let Some(watch) = self.watches.get_mut(&watch) {
            watch.queue_raw(bytes);
        }
        self.changed();
    }

    /// etcd is restored to what it was at resourceVersion `to`, which becomes the newest again, and the server
    /// restarts. False, and nothing happens, when that state is no longer (or not yet) known.
    pub fn rollback(&mut self, to: u64) -> bool {
        let done = self.store.rollback(to);
        if done {
            self.met.rollbacks += 1;
            self.end_all_watches();
            self.compact();
        }
        done
    }
}
