//! The watcher of one kind of object on the API server: it decides which request comes next, and interprets the lines
//! of the stream.
//!
//! It owns the resourceVersion to continue from, the choice between a streaming list and a plain one, and the backoff
//! after failures. The kubernetes port opens the requests and decodes the lines. The Informer owns the objects, and
//! the admin state keeps the facts that it needs from Events.
//!
//! The port sets `timeoutSeconds` of a watch to 240 to 300 s and requests bookmarks, which servers send about once a
//! minute, so a healthy watch is never silent for long. A watch that is silent for [`REOPEN_AFTER`] may hang on a dead
//! connection. It is opened again from the same resourceVersion, which is cheap if bookmarks are merely rare. A watch
//! that is silent for [`SILENCE_LIMIT`] in total is replaced by a list, however often it was opened again. A watch
//! that the server closes twice in a row within seconds and without a line is replaced by a list too.

mod backoff;
mod coalescing;
mod delivery;
mod freshness;
mod serves;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use backoff::WatchBackoff;
use delivery::Deliveries;
pub use delivery::GivenUp;
pub use freshness::WatchFreshness;
use freshness::denial;
use model::ids::{CallId, Epoch, ReadId};
use model::machine::{Machine, Now};
use model::object::{Kind, Object, ObjectKey, Owner, ResourceVersion};
use model::sample::{Metric, RelistReason};
use model::view::SourceView;
use model::watch::{ListCoverage, WatchUpdate};

/// The maximum time from a request to the first answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The maximum time of a streaming list from its acceptance to its end.
const LIST_LIMIT: Duration = Duration::from_secs(60);
/// Time for which a watch may be silent before it is opened again from the same resourceVersion.
pub const REOPEN_AFTER: Duration = Duration::from_secs(100);
/// Time for which a watch may be silent, reopened or not, before it counts as broken.
pub const SILENCE_LIMIT: Duration = Duration::from_secs(330);
/// Time for which plain lists are used after a streaming list was refused.
const PLAIN_FOR: Duration = Duration::from_secs(600);
/// The minimum time between the starts of two watches.
const WATCHES_APART: Duration = Duration::from_secs(1);
/// The minimum and maximum of a respected `Retry-After`.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Inputs of a watcher. Inputs of a request carry its id; those of an older request are dropped.
#[derive(Clone, Debug)]
pub enum In {
    /// Start. Only the first one has an effect.
    Start,
    /// The server accepted the watch; lines follow.
    Opened(CallId),
    /// A line of the stream, in order. While it waits, a newer line about the same object replaces it (A3).
    Line {
        /// Id of the request.
        call: CallId,
        /// Time at which the line was read from the connection; later for each line.
        read: Now,
        /// The line.
        line: Line,
    },
    /// A page of a plain list, in order.
    Page {
        /// Id of the request.
        call: CallId,
        /// The objects of the page in order, including undecodable ones.
        items: Vec<Line>,
        /// The resourceVersion of the list.
        resource_version: ResourceVersion,
        /// The continue token of the next page; `None` on the last page.
        next: Option<Arc<str>>,
    },
    /// The request is over: the stream ended, or the request could not be made.
    Ended {
        /// Id of the request.
        call: CallId,
        /// The failure; `None`: the server closed the stream in good order.
        failure: Option<WatchFailure>,
        /// A random number from 0 to 1000 per mille that spreads the next try.
        jitter: u16,
    },
    /// The Informer has refused an observation and needs a list of most recent data.
    Relist(RelistReason),
    /// The number of objects of this kind in the Informer, for display.
    Cached(usize),
    /// A term of leadership needs most recent data (W8).
    Confirm {
        /// The term.
        epoch: Epoch,
        /// True if a list that began before this message does not count.
        needs_new_list: bool,
    },
    /// The Directory is in doubt and needs a list of most recent data that begins after this message (G1).
    Reread(ReadId),
}

/// A decoded line of a stream, or item of a list.
#[derive(Clone, Debug)]
pub enum Line {
    /// `ADDED`, `MODIFIED`, or an item of a list.
    Object(Object),
    /// `DELETED`.
    Deleted {
        /// Key of the object.
        key: ObjectKey,
        /// The Service that owned the slice; without meaning for other kinds.
        owner: Owner,
        /// resourceVersion of the deletion.
        resource_version: ResourceVersion,
    },
    /// `BOOKMARK`.
    Bookmark {
        /// The version up to which the stream is complete.
        resource_version: ResourceVersion,
        /// True if it is annotated as the end of a streaming list.
        list_end: bool,
    },
    /// `ERROR`: the stream is over.
    Error(WatchFailure),
    /// A line or item that could not be decoded.
    Undecodable {
        /// Key of the object, if its metadata are readable.
        key: Option<ObjectKey>,
        /// The Service that owns the slice; without meaning for other kinds.
        owner: Owner,
        /// resourceVersion of the object, if it is readable.
        resource_version: Option<ResourceVersion>,
        /// The decoding error.
        error: Arc<str>,
    },
}

/// Reasons why a request or a stream failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchFailure {
    /// 410, or an equivalent ERROR event: the resourceVersion is too old.
    Expired,
    /// The server does not support streaming lists (400, 422, or an equivalent ERROR event).
    StreamingRefused(Arc<str>),
    /// 429, with `Retry-After` if present.
    TooManyRequests(Option<Duration>),
    /// 401 or 403.
    Denied(Arc<str>),
    /// Any other answer, a broken connection, or silence.
    Other(Arc<str>),
}

/// Outputs of a watcher.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the kubernetes port: open this request. The previous one is over or must be dropped.
    Open {
        /// The id for all inputs of the request.
        call: CallId,
        /// The kind.
        kind: Kind,
        /// The request.
        request: WatchRequest,
        /// Reason why the previous watch was given up, if that must be logged.
        given_up: Option<GivenUp>,
    },
    /// To the Informer, or to the admin state for [`Kind::Preemptions`]: an observation, with the time when it was
    /// read from the connection.
    Seen(Kind, Now, WatchUpdate),
    /// To the Informer: whether the observations are current. Not sent for [`Kind::Preemptions`].
    Freshness(Kind, WatchFreshness),
    /// To the snapshot.
    View(SourceView),
    /// To the metrics recorder.
    Metric(Metric),
}

/// A request to the API server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WatchRequest {
    /// A watch that begins with all objects, from most recent data: `sendInitialEvents=true`.
    StreamingList,
    /// A page of a plain list of most recent data.
    List {
        /// The continue token; `None` for the first page.
        page: Option<Arc<str>>,
    },
    /// A watch from a resourceVersion.
    Watch {
        /// The resourceVersion.
        from: ResourceVersion,
    },
}

/// The watcher of one kind of object.
#[derive(Debug)]
pub struct Watcher {
    kind: Kind,
    phase: Phase,
    calls: u64,
    /// The previous request, if it was dropped before the port reported its end. Its `Ended` is expected.
    dropped_call: Option<CallId>,
    /// The time until which lists are plain, after a streaming list was refused.
    plain_until: Option<Now>,
    backoff: WatchBackoff,
    /// Record of whether recent watches have delivered lines.
    deliveries: Deliveries,
    /// True if a list was completed.
    listed: bool,
    /// The requests for most recent data; every list that begins from now on serves them.
    serves: ListCoverage,
    fresh: Option<bool>,
    /// Time since which no watch has delivered; `None` while one does.
    stale_since: Option<Now>,
    /// The last published contact.
    freshness: Option<WatchFreshness>,
    /// The API server's message since it began to deny requests.
    denied: Option<Arc<str>>,
    cached: usize,
    /// Time at which the current input was read from the connection.
    read: Now,
    heard_at: Option<Now>,
    last_error: Option<Arc<str>>,
    published: Option<SourceView>,
}

#[derive(Debug)]
enum Phase {
    /// Not started.
    Idle,
    /// Waiting; no request is open.
    Waiting { until: Now, next: AfterWait },
    /// A request was sent and is not answered yet.
    Requested { call: CallId, sent: Now, purpose: Purpose },
    /// A stream is open.
    Following { call: CallId, opened: Now, last_line_at: Now, lines: bool, purpose: Purpose },
}

/// The request after a wait.
#[derive(Clone, PartialEq, Eq, Debug)]
enum AfterWait {
    List,
    Watch { from: ResourceVersion },
}

/// The purpose of the open request.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Purpose {
    /// A streaming list. `began`: the Informer knows of the list, and must learn how it ends. `serves`: the requests
    /// for most recent data that were made before the list began.
    StreamingList { began: bool, serves: ListCoverage },
    /// One page of a plain list; `began` and `serves` as above.
    List { page: Option<Arc<str>>, began: bool, serves: ListCoverage },
    /// A watch that is complete up to `from`. `again`: the Informer does not know of the new connection yet.
    Watch { from: ResourceVersion, again: bool },
}

impl Purpose {
    fn began(&self) -> bool {
        match self {
            Purpose::StreamingList { began, serves: _ } | Purpose::List { page: _, began, serves: _ } => {
                *began
            }
            Purpose::Watch { .. } => false,
        }
    }

    /// Returns the requests for most recent data that were made before the list began.
    fn serves(&self) -> ListCoverage {
        match self {
            Purpose::StreamingList { began: _, serves } | Purpose::List { page: _, began: _, serves } => {
                *serves
            }
            Purpose::Watch { .. } => ListCoverage::default(),
        }
    }
}

impl Machine for Watcher {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        let mut bookmarked = false;
        self.read = now;
        match input {
            In::Start => match self.phase {
                Phase::Idle => {
                    self.set_fresh(now, false, out);
                    self.begin_list(now, out);
                }
                Phase::Waiting { .. } | Phase::Requested { .. } | Phase::Following { .. } => {}
            },
            In::Opened(call) => self.on_opened(now, call, out),
            In::Line { call, read, line } => bookmarked = self.on_line(now, call, (read, line), out),
            In::Page { call, items, resource_version, next } => {
                self.on_page(now, call, (items, resource_version, next), out);
            }
            In::Ended { call, failure, jitter } => self.on_ended(now, call, failure, jitter, out),
            In::Relist(reason) => self.on_relist(now, reason, out),
            In::Cached(count) => self.cached = count,
            In::Confirm { epoch, needs_new_list } => self.on_confirm(now, epoch, needs_new_list, out),
            In::Reread(read) => self.on_reread(now, read, out),
        }
        self.publish_view(bookmarked, out);
        debug_assert!(self.check());
    }

    fn deadline(&self) -> Option<Now> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Waiting { until, .. } => Some(*until),
            Phase::Requested { sent, .. } => Some(sent.plus(ANSWER_LIMIT)),
            Phase::Following { opened, last_line_at, purpose, .. } => Some(match purpose {
                Purpose::StreamingList { .. } => opened.plus(LIST_LIMIT),
                Purpose::List { .. } => last_line_at.plus(SILENCE_LIMIT),
                Purpose::Watch { .. } => {
                    let proven = self.deliveries.proven_at(*opened).unwrap_or(Now::NEVER);
                    last_line_at.plus(REOPEN_AFTER).min(self.deliveries.silent_at(*opened)).min(proven)
                }
            }),
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.deadline().is_none_or(|at| now < at) {
            return;
        }
        self.read = now;
        match &self.phase {
            Phase::Idle => {}
            Phase::Waiting { next, .. } => match next.clone() {
                AfterWait::List => self.begin_list(now, out),
                AfterWait::Watch { from } => self.watch_again(now, from, out),
            },
            Phase::Requested { .. } => self.fail(now, WatchFailure::Other("no answer for 60 s".into()), out),
            Phase::Following { opened, purpose, .. } => match purpose {
                Purpose::StreamingList { .. } => {
                    self.give_up_streaming("the streaming list did not end within 60 s", now, out);
                }
                // A watch from a version that the server has not reached, for example after its storage was restored,
                // is silent too. Only a list helps then.
                Purpose::Watch { .. } if self.deliveries.silent_at(*opened) <= now => {
                    self.give_up("the watch was silent for 330 s", now, out);
                }
                Purpose::Watch { .. } if self.deliveries.proven_at(*opened).is_some_and(|at| at <= now) => {
                    self.confirm_delivery(now, out);
                }
                Purpose::Watch { from, .. } => {
                    let from = from.clone();
                    self.last_error = Some("the watch was silent for 100 s".into());
                    self.set_fresh(now, false, out);
                    self.watch_again(now, from, out);
                }
                Purpose::List { .. } => self.relist(now, RelistReason::Broken, out),
            },
        }
        self.publish_view(false, out);
        debug_assert!(self.check());
    }
}

impl Watcher {
    /// Creates a watcher of this kind that has not started.
    #[must_use]
    pub fn new(kind: Kind) -> Watcher {
        Watcher {
            kind,
            phase: Phase::Idle,
            calls: 0,
            dropped_call: None,
            plain_until: None,
            backoff: WatchBackoff::default(),
            deliveries: Deliveries::default(),
            listed: false,
            serves: ListCoverage::default(),
            fresh: None,
            stale_since: None,
            freshness: None,
            denied: None,
            cached: 0,
            read: Now::ZERO,
            heard_at: None,
            last_error: None,
            published: None,
        }
    }

    /// Checks the invariants. A started watcher always has a deadline. A stream is open only for a request that
    /// streams. Only a watcher with a watch, or with one that follows at once, is fresh.
    fn check(&self) -> bool {
        let streams = match &self.phase {
            Phase::Idle | Phase::Waiting { .. } | Phase::Requested { .. } => true,
            Phase::Following { purpose, .. } => !matches!(purpose, Purpose::List { .. }),
        };
        let waits = matches!(self.phase, Phase::Idle) != self.deadline().is_some();
        let fresh = self.fresh != Some(true)
            || match &self.phase {
                Phase::Idle => false,
                Phase::Waiting { next, .. } => matches!(next, AfterWait::Watch { .. }),
                Phase::Requested { purpose, .. } | Phase::Following { purpose, .. } => {
                    matches!(purpose, Purpose::Watch { .. })
                }
            };
        streams && waits && fresh
    }

    fn current(&self) -> Option<CallId> {
        match &self.phase {
            Phase::Idle | Phase::Waiting { .. } => None,
            Phase::Requested { call, .. } | Phase::Following { call, .. } => Some(*call),
        }
    }

    fn purpose_mut(&mut self) -> Option<&mut Purpose> {
        match &mut self.phase {
            Phase::Idle | Phase::Waiting { .. } => None,
            Phase::Requested { purpose, .. } | Phase::Following { purpose, .. } => Some(purpose),
        }
    }

    fn open(&mut self, now: Now, purpose: Purpose, out: &mut Vec<Out>) {
        self.dropped_call = self.current();
        self.calls += 1;
        let call = CallId(self.calls);
        let request = match &purpose {
            Purpose::StreamingList { .. } => WatchRequest::StreamingList,
            Purpose::List { page, .. } => WatchRequest::List { page: page.clone() },
            Purpose::Watch { from, .. } => WatchRequest::Watch { from: from.clone() },
        };
        let given_up = self.deliveries.take_report();
        out.push(Out::Open { call, kind: self.kind, request, given_up });
        self.phase = Phase::Requested { call, sent: now, purpose };
    }

    fn wait(&mut self, now: Now, delay: Duration, next: AfterWait, out: &mut Vec<Out>) {
        self.dropped_call = self.current();
        self.set_fresh(now, false, out);
        self.phase = Phase::Waiting { until: now.plus(delay), next };
    }

    fn watch_again(&mut self, now: Now, from: ResourceVersion, out: &mut Vec<Out>) {
        self.open(now, Purpose::Watch { from, again: true }, out);
    }

    fn begin_list(&mut self, now: Now, out: &mut Vec<Out>) {
        self.set_fresh(now, false, out);
        let serves = self.serves;
        let purpose = if self.plain_until.is_some_and(|until| now < until) {
            Purpose::List { page: None, began: false, serves }
        } else {
            self.plain_until = None;
            Purpose::StreamingList { began: false, serves }
        };
        self.open(now, purpose, out);
    }

    fn on_ended(
        &mut self,
        now: Now,
        call: CallId,
        failure: Option<WatchFailure>,
        jitter: u16,
        out: &mut Vec<Out>,
    ) {
        self.backoff.set_jitter(jitter);
        if self.current() != Some(call) {
            if self.dropped_call.take_if(|dropped_call| *dropped_call == call).is_none() {
                out.push(Out::Metric(Metric::UnmatchedAnswer));
            }
            return;
        }
        if let Some(failure) = failure {
            return self.fail(now, failure, out);
        }
        let (since, lines, purpose) = match &self.phase {
            Phase::Idle | Phase::Waiting { .. } => return,
            Phase::Requested { sent, purpose, .. } => (*sent, false, purpose.clone()),
            Phase::Following { opened, lines, purpose, .. } => (*opened, *lines, purpose.clone()),
        };
        match purpose {
            Purpose::Watch { from, .. } => self.on_watch_ended(now, (since, lines), from, out),
            Purpose::StreamingList { .. } => {
                self.give_up_streaming("the streaming list ended before all was sent", now, out);
            }
            Purpose::List { .. } => self.fail(now, WatchFailure::Other("no page came".into()), out),
        }
    }

    /// Handles a failure of the open request.
    fn fail(&mut self, now: Now, failure: WatchFailure, out: &mut Vec<Out>) {
        let (purpose, accepted) = match &self.phase {
            Phase::Idle | Phase::Waiting { .. } => return,
            Phase::Requested { purpose, .. } => (purpose.clone(), None),
            Phase::Following { opened, lines, purpose, .. } => (purpose.clone(), Some((*opened, *lines))),
        };
        self.last_error = Some(describe(&failure));
        self.denied = denial(&failure);
        let delay = match failure {
            WatchFailure::Expired => return self.relist(now, RelistReason::Expired, out),
            WatchFailure::StreamingRefused(_) => match purpose {
                Purpose::StreamingList { began, serves: _ } => {
                    self.abort_list(began, out);
                    self.plain_until = Some(now.plus(PLAIN_FOR));
                    return self.begin_list(now, out);
                }
                Purpose::Watch { .. } => return self.relist(now, RelistReason::Broken, out),
                Purpose::List { .. } => self.backoff.after_failure(),
            },
            WatchFailure::TooManyRequests(Some(after)) => after.clamp(RETRY_AFTER.0, RETRY_AFTER.1),
            // A server that restarts denies everything until its own caches are filled, so a denial has the same delay
            // as any other failure.
            WatchFailure::TooManyRequests(None) | WatchFailure::Denied(_) | WatchFailure::Other(_) => {
                self.backoff.after_failure()
            }
        };
        self.abort_list(purpose.began(), out);
        match purpose {
            Purpose::Watch { from, .. } => self.on_watch_failed(now, accepted, (from, delay), out),
            Purpose::StreamingList { .. } | Purpose::List { .. } => {
                self.wait(now, delay, AfterWait::List, out)
            }
        }
    }

    fn abort_list(&mut self, began: bool, out: &mut Vec<Out>) {
        if began {
            out.push(Out::Seen(self.kind, self.read, WatchUpdate::ListAborted));
        }
    }

    fn on_relist(&mut self, now: Now, reason: RelistReason, out: &mut Vec<Out>) {
        let bound = match &self.phase {
            // The next request is a list anyway.
            Phase::Idle | Phase::Waiting { next: AfterWait::List, .. } => return,
            Phase::Waiting { until, next: AfterWait::Watch { .. } } => Some(*until),
            Phase::Requested { .. } | Phase::Following { .. } => None,
        };
        self.relist(now, reason, out);
        if let (Phase::Waiting { until, .. }, Some(bound)) = (&mut self.phase, bound) {
            *until = bound.max(*until);
        }
    }

    /// Gives up the current request and lists again. The first expiry in a while leads to an immediate list. Otherwise
    /// the delay grows while lists do not lead to a lasting watch, to spare a stale server.
    fn relist(&mut self, now: Now, reason: RelistReason, out: &mut Vec<Out>) {
        let began = self.purpose_mut().is_some_and(|purpose| purpose.began());
        self.abort_list(began, out);
        out.push(Out::Metric(Metric::Relist { kind: self.kind, reason }));
        let delay = self.backoff.before_relist(now, reason);
        if delay.is_zero() {
            self.begin_list(now, out);
        } else {
            self.wait(now, delay, AfterWait::List, out);
        }
    }

    fn set_fresh(&mut self, now: Now, fresh: bool, out: &mut Vec<Out>) {
        if self.fresh.replace(fresh) != Some(fresh) {
            out.push(Out::Metric(Metric::SourceFresh { kind: self.kind, fresh }));
        }
        if fresh {
            self.denied = None;
            self.stale_since = None;
        } else {
            self.stale_since.get_or_insert(now);
        }
        let freshness = match (fresh, &self.denied) {
            (true, _) => WatchFreshness::Current,
            (false, None) => WatchFreshness::Stale,
            (false, Some(reason)) => WatchFreshness::Denied(Arc::clone(reason)),
        };
        if self.freshness.as_ref() != Some(&freshness) {
            self.freshness = Some(freshness.clone());
            out.push(Out::Freshness(self.kind, freshness));
        }
    }

    /// Publishes the view if it has changed. A newer `heard_at` alone counts as a change only if `even_unchanged` is
    /// set.
    fn publish_view(&mut self, even_unchanged: bool, out: &mut Vec<Out>) {
        let phase = match &self.phase {
            Phase::Idle => return,
            Phase::Waiting { .. } => "waiting",
            Phase::Requested { purpose, .. } | Phase::Following { purpose, .. } => match purpose {
                Purpose::StreamingList { .. } | Purpose::List { .. } => "listing",
                Purpose::Watch { .. } => "watching",
            },
        };
        let view = SourceView {
            kind: self.kind,
            phase,
            synced: self.listed,
            objects: self.cached,
            heard_at: self.heard_at,
            stale_since: self.stale_since,
            last_error: self.last_error.clone(),
        };
        let known = self.published.as_ref().is_some_and(|published| {
            published.phase == view.phase
                && published.synced == view.synced
                && published.objects == view.objects
                && published.stale_since == view.stale_since
                && published.last_error == view.last_error
        });
        if even_unchanged || !known {
            self.published = Some(view.clone());
            out.push(Out::View(view));
        }
    }
}

/// Returns the description of a failure for operators.
fn describe(failure: &WatchFailure) -> Arc<str> {
    match failure {
        WatchFailure::Expired => "the resourceVersion is too old".into(),
        WatchFailure::StreamingRefused(reason) => format!("streaming list refused: {reason}").into(),
        WatchFailure::TooManyRequests(Some(after)) => {
            format!("too many requests, retry after {} s", after.as_secs()).into()
        }
        WatchFailure::TooManyRequests(None) => "too many requests".into(),
        WatchFailure::Denied(reason) => format!("denied: {reason}").into(),
        WatchFailure::Other(reason) => Arc::clone(reason),
    }
}
