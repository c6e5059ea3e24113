//! Detects watches that the server accepts and that deliver nothing. A request that repeatedly succeeds without data
//! is a failure. A proxy may answer in place of the API server. Then no request fails, but no change in the cluster
//! arrives.

use std::sync::Arc;
use std::time::Duration;

use super::{AfterWait, Out, Phase, Purpose, SILENCE_LIMIT, WATCHES_APART, WatchFailure, Watcher};
use model::machine::Now;
use model::object::ResourceVersion;
use model::sample::{Metric, RelistReason};

/// A watch that ends sooner than this, without a line, has delivered nothing.
pub(super) const SHORT_WATCH: Duration = Duration::from_secs(10);
/// Number of watches in a row that may deliver nothing before a list follows.
const EMPTY_LIMIT: u32 = 2;
/// Time for which watches may fail, one after another, before a list follows.
const FAILING_LIMIT: Duration = Duration::from_secs(100);

/// A request that was given up although it had not failed, with the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GivenUp {
    /// A watch: a list follows.
    Watch(Arc<str>),
    /// A streaming list: a list in pages follows.
    StreamingList(Arc<str>),
}

/// The deliveries of recent watches.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// Time at which the last line or page arrived.
    last: Now,
    /// Watches in a row that delivered nothing.
    empty: u32,
    /// Time at which the first of several consecutive watches that failed or delivered nothing ended.
    failing_since: Option<Now>,
    /// The request that was given up, until it is logged.
    report: Option<GivenUp>,
    /// True if this was logged since the last line of a watch.
    reported: bool,
}

impl Deliveries {
    /// Returns true if the last watch delivered a line, or lasted long enough.
    pub(super) fn is_trusted(&self) -> bool {
        self.empty == 0
    }

    /// Returns when an open watch without a line counts as delivering, if the watches before it delivered nothing.
    pub(super) fn proven_at(&self, opened: Now) -> Option<Now> {
        (!self.is_trusted()).then(|| opened.plus(SHORT_WATCH))
    }

    /// Returns the time at which a watch has been silent for too long. Opening it again does not end the silence, but
    /// gives it a moment to deliver a line.
    pub(super) fn silent_at(&self, opened: Now) -> Now {
        self.last.plus(SILENCE_LIMIT).max(opened.plus(SHORT_WATCH))
    }

    /// Handles a page of a list, or a line of a streaming list.
    pub(super) fn on_list(&mut self, now: Now) {
        self.last = now;
    }

    /// Returns the request that was given up before the next one, if that must be logged.
    pub(super) fn take_report(&mut self) -> Option<GivenUp> {
        self.report.take()
    }

    /// Handles the end of a watch. `accepted`: when the watch was opened, and whether a line arrived; `None`: the
    /// server did not accept the watch.
    fn on_ended(&mut self, now: Now, accepted: Option<(Now, bool)>) {
        match accepted {
            Some((since, lines)) if lines || now.since(since) >= SHORT_WATCH => {
                self.empty = 0;
                self.failing_since = None;
            }
            Some(_) => self.empty = self.empty.saturating_add(1),
            None => {}
        }
        self.failing_since.get_or_insert(now);
    }

    /// Returns true if a list must follow.
    fn needs_list(&self, now: Now) -> bool {
        self.empty >= EMPTY_LIMIT || self.failing_since.is_some_and(|since| now.since(since) >= FAILING_LIMIT)
    }

    fn give_up(&mut self, reason: &Arc<str>) {
        if !std::mem::replace(&mut self.reported, true) {
            self.report = Some(GivenUp::Watch(Arc::clone(reason)));
        }
    }
}

impl Watcher {
    /// Handles a line other than an error.
    pub(super) fn on_data(&mut self, now: Now, out: &mut Vec<Out>) {
        self.deliveries.on_list(now);
        let Phase::Following { lines, purpose, .. } = &mut self.phase else { return };
        *lines = true;
        match purpose {
            Purpose::Watch { .. } => {
                self.deliveries.reported = false;
                self.confirm_delivery(now, out);
            }
            Purpose::StreamingList { .. } | Purpose::List { .. } => {}
        }
    }

    /// Records that the open watch delivers, so that the known state is current.
    pub(super) fn confirm_delivery(&mut self, now: Now, out: &mut Vec<Out>) {
        self.deliveries.empty = 0;
        self.last_error = None;
        self.set_fresh(now, true, out);
    }

    /// Handles that the server has ended the watch normally. `since`: when the watch was opened; `lines`: whether it
    /// delivered any.
    pub(super) fn on_watch_ended(
        &mut self,
        now: Now,
        (since, lines): (Now, bool),
        from: ResourceVersion,
        out: &mut Vec<Out>,
    ) {
        self.deliveries.on_ended(now, Some((since, lines)));
        let lasted = now.since(since);
        if self.deliveries.empty >= EMPTY_LIMIT {
            self.give_up("the watch ended twice in a row within seconds, without a line", now, out);
        } else if self.deliveries.empty > 0 {
            self.last_error = Some("the watch ended within seconds, without a line".into());
            let delay = self.backoff.after_failure();
            self.wait(now, delay, AfterWait::Watch { from }, out);
        } else if lasted < WATCHES_APART {
            // The known state stays current for this moment.
            self.dropped_call = self.current();
            self.phase = Phase::Waiting { until: since.plus(WATCHES_APART), next: AfterWait::Watch { from } };
        } else {
            self.watch_again(now, from, out);
        }
    }

    /// Handles that the watch has failed or was refused. `delay` depends on the failure.
    pub(super) fn on_watch_failed(
        &mut self,
        now: Now,
        accepted: Option<(Now, bool)>,
        (from, delay): (ResourceVersion, Duration),
        out: &mut Vec<Out>,
    ) {
        self.deliveries.on_ended(now, accepted);
        if !self.deliveries.needs_list(now) {
            return self.wait(now, delay, AfterWait::Watch { from }, out);
        }
        let reason = RelistReason::Broken;
        out.push(Out::Metric(Metric::Relist { kind: self.kind, reason }));
        let delay = delay.max(self.backoff.before_relist(now, reason));
        self.wait(now, delay, AfterWait::List, out);
    }

    /// Replaces a streaming list that the server has not refused by a list in pages.
    pub(super) fn give_up_streaming(&mut self, reason: &'static str, now: Now, out: &mut Vec<Out>) {
        let reason: Arc<str> = reason.into();
        self.deliveries.report = Some(GivenUp::StreamingList(Arc::clone(&reason)));
        self.fail(now, WatchFailure::StreamingRefused(reason), out);
    }

    /// Gives up watching from this version: only a list can show the changes since then.
    pub(super) fn give_up(&mut self, reason: &'static str, now: Now, out: &mut Vec<Out>) {
        let reason = Arc::from(reason);
        self.deliveries.give_up(&reason);
        self.last_error = Some(reason);
        self.relist(now, RelistReason::Broken, out);
    }
}
