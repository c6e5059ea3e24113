//! The Lease that is shared with the cloud-controller-manager: when to take it, how long it is certainly ours, and
//! when to release it (docs/design/writer.md, W7; W8).
//!
//! This file holds the machine and handles the answers to its requests. The submodules:
//! - `requests`: the next request, and the delays between requests;
//! - `observed`: the last observed state of the Lease, and its holder;
//! - `freshness`: whether that state is reliable;
//! - `observe`: applies an observed state, and its effect on our hold;
//! - `cooldown`: how long the Lease is left to others;
//! - `contention_signals`: signs that the cloud-controller-manager waits for the Lease;
//! - `demand`: what the writer needs;
//! - `status`: views and events for the operator.
//!
//! All times are local. Our hold counts from the time at which its request was sent, another client's hold from the
//! time at which its state was observed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use mechanisms::published::Published;
use mechanisms::watch_failures::WatchFailures;
use model::ids::CallId;
use model::lease::{LeaseAnswer, LeaseFacts};
use model::machine::Now;
use model::sample::{Caller, Metric};
use model::view::SharedLeaseView;

use super::{LeaseParams, Out, PERMIT_MARGIN};

mod contention_signals;
mod cooldown;
mod demand;
mod freshness;
mod observe;
mod observed;
mod requests;
mod status;

use contention_signals::ContentionSignals;
use cooldown::Cooldown;
pub(super) use demand::Demand;
use freshness::{Freshness, LostRequest};
pub use observed::FOREIGN_HOLD;
use observed::{Holder, LeaseAuthor, LeaseProvenance, ObservedSharedLease};
use requests::{OpenRequest, OpenWatch, RequestDelays, SharedLeaseAction, Watch};

/// Time for which a hold is certain after the last successful renewal was sent, and the duration in the Lease (W7).
const HOLD: Duration = Duration::from_secs(60);

/// Time after taking at which the Lease is released, whether operations run or not (W7).
const MAX_HOLD: Duration = Duration::from_secs(60);

/// Time for which a process that shuts down tries to release the Lease.
pub(super) const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// The shared Lease, from the view of one of its holders.
#[derive(Debug)]
pub(super) struct SharedLease {
    params: LeaseParams,
    phase: HoldPhase,
    observed: ObservedSharedLease,
    freshness: Freshness,
    /// The last unanswered request that could make the Lease ours.
    lost_request: Option<LostRequest>,
    /// Whether this process may take it again: it leads, and is not shutting down.
    may_take_again: bool,
    /// The request in flight, apart from the watch.
    open_request: Option<OpenRequest>,
    watch: Watch,
    /// Number of the last request.
    last: u64,
    delays: RequestDelays,
    cooldown: Cooldown,
    contention: ContentionSignals,
    /// Time since which a write that could begin has waited for the Lease.
    wanted_since: Option<Now>,
    /// Time since which such a write of each caller has waited.
    callers_since: BTreeMap<Caller, Now>,
    last_error: Option<Arc<str>>,
    watch_failures: WatchFailures,
    /// Time since which the last reported unknown holder has held the Lease.
    reported_since: Option<Now>,
    /// Whether that report is still active.
    is_reported: bool,
    /// Time of the next change without input.
    wake: Option<Now>,
    published: Published<SharedLeaseView>,
}

/// Whether the Lease is ours.
#[derive(Clone, Debug)]
enum HoldPhase {
    /// Not ours.
    NotHeld,
    /// Ours.
    Held(Hold),
    /// Being released. Nothing relies on the hold any more, and the release replaces only our own state of the Lease.
    Releasing(Hold),
}

/// A hold of this process.
#[derive(Clone, Debug)]
struct Hold {
    /// Time at which the request that took it was sent.
    taken: Now,
    /// Time at which the last successful renewal was sent.
    renewed: Now,
    /// The state of the Lease after our last request.
    facts: Arc<LeaseFacts>,
    /// Whether an answer confirms that state. Otherwise, while we lead, only we can have made it; later, a successor
    /// may.
    made: bool,
    /// Our last request before another client may have written the Lease and taken it from us. Only the answer to a
    /// later request settles that.
    doubted: Option<u64>,
    /// Whether a PUT was sent under this hold.
    wrote: bool,
}

impl Hold {
    /// Returns the time until which the hold is certain without another renewal.
    fn certain_until(&self) -> Now {
        self.renewed.plus(HOLD)
    }

    /// Returns the latest time of the hold's release.
    fn forced_end(&self) -> Now {
        self.taken.plus(MAX_HOLD)
    }

    /// Returns the time until which a PUT may be sent under the hold. `None`: no PUT may (W8).
    fn send_deadline(&self) -> Option<Now> {
        self.doubted.is_none().then(|| self.certain_until().min(self.forced_end()).minus(PERMIT_MARGIN))
    }
}

impl SharedLease {
    /// Creates the state before the first observation.
    pub(super) fn new(params: LeaseParams) -> SharedLease {
        SharedLease {
            params,
            phase: HoldPhase::NotHeld,
            observed: ObservedSharedLease::Nothing,
            freshness: Freshness::TermBegins,
            lost_request: None,
            may_take_again: false,
            open_request: None,
            watch: Watch::default(),
            last: 0,
            delays: RequestDelays::default(),
            cooldown: Cooldown::default(),
            contention: ContentionSignals::default(),
            wanted_since: None,
            callers_since: BTreeMap::new(),
            last_error: None,
            watch_failures: WatchFailures::default(),
            reported_since: None,
            is_reported: false,
            wake: None,
            published: Published::default(),
        }
    }

    /// Returns whether writes may start in the current hold (W7).
    pub(super) fn may_start(&self, now: Now) -> bool {
        match &self.phase {
            HoldPhase::Held(hold) => {
                now < hold.taken.plus(self.params.max_hold)
                    && hold.send_deadline().is_some_and(|last| now <= last)
            }
            HoldPhase::NotHeld | HoldPhase::Releasing(_) => false,
        }
    }

    /// Returns the time until which a PUT may be sent in the current hold. `None`: no PUT may (W8).
    pub(super) fn send_deadline(&self) -> Option<Now> {
        match &self.phase {
            HoldPhase::Held(hold) => hold.send_deadline(),
            HoldPhase::NotHeld | HoldPhase::Releasing(_) => None,
        }
    }

    /// Returns the time at which the current hold was taken.
    pub(super) fn taken(&self) -> Option<Now> {
        match &self.phase {
            HoldPhase::Held(hold) => Some(hold.taken),
            HoldPhase::NotHeld | HoldPhase::Releasing(_) => None,
        }
    }

    /// Records a PUT, because the release must then name us as the previous holder.
    pub(super) fn record_put(&mut self) {
        match &mut self.phase {
            HoldPhase::Held(hold) => hold.wrote = true,
            HoldPhase::NotHeld | HoldPhase::Releasing(_) => {}
        }
    }

    /// Stops relying on the hold, because leadership was lost or won again. A standby releases it by its version. A
    /// new leader reads first, because another replica may have taken the Lease over.
    pub(super) fn forfeit(&mut self, now: Now, leads: bool, out: &mut Vec<Out>) {
        self.freshness = Freshness::TermBegins;
        self.may_take_again = false;
        self.delays.reset(now);
        match self.holder() {
            // The hold time of another client stays valid. Another replica may have made any other state.
            Some(Holder::Other) => {}
            Some(Holder::None | Holder::Ours) | None => self.observed = ObservedSharedLease::Nothing,
        }
        if leads {
            // A request of the previous term may still take effect. The result is then our own write.
            let open_request = self.open_request.take();
            open_request.into_iter().for_each(|open_request| self.record_lost_request(now, &open_request));
            self.end_hold(now, out);
        } else if let HoldPhase::Held(hold) = std::mem::replace(&mut self.phase, HoldPhase::NotHeld) {
            self.phase = HoldPhase::Releasing(hold);
        }
        self.contention.clear();
    }

    /// Makes the next request at once, because the process is shutting down.
    pub(super) fn skip_delay(&mut self, now: Now) {
        self.delays.reset(now);
    }

    /// Returns whether the Lease is certainly not ours, even if an unanswered request was carried out.
    pub(super) fn is_free(&self, now: Now) -> bool {
        self.is_released() && !self.may_yet_be_ours(now)
    }

    /// Returns whether the Lease is not ours, and no request in flight could make it ours.
    pub(super) fn is_released(&self) -> bool {
        let taking = self.open_request.as_ref().is_some_and(|open_request| match open_request.kind {
            SharedLeaseAction::Take | SharedLeaseAction::Renew | SharedLeaseAction::Release => true,
            SharedLeaseAction::Read => false,
        });
        matches!(self.phase, HoldPhase::NotHeld) && !taking
    }

    /// Records the last Service that waits for the cloud-controller-manager. It counts once, when a hold ends.
    pub(super) fn on_awaiting_ingress(&mut self, newest: Option<u64>) {
        self.contention.on_awaiting_ingress(newest);
    }

    /// Applies the number of lock failures of the cloud-controller-manager during our holds.
    pub(super) fn on_lock_failures(
        &mut self,
        now: Now,
        call: CallId,
        count: Option<u32>,
        out: &mut Vec<Out>,
    ) {
        if !self.contention.is_answer(call) {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        }
        match count {
            Some(0) => {}
            Some(count) => {
                out.push(Out::Metric(Metric::ForeignLockFailures(count.into())));
                self.cooldown.on_foreign_holder(now);
                self.cooldown.on_contention(now, !matches!(self.phase, HoldPhase::NotHeld));
            }
            // Without an answer, another client is assumed to have held the Lease.
            None => self.cooldown.on_foreign_holder(now),
        }
    }

    /// Applies the answer to a request.
    pub(super) fn on_answer(&mut self, now: Now, call: CallId, answer: LeaseAnswer, out: &mut Vec<Out>) {
        if let Some(open_request) = self.open_request.take_if(|open_request| open_request.id == call) {
            self.on_asked(now, open_request, answer, out);
        } else if let Some(open) = self.watch.close(call) {
            self.on_watched(now, &open, answer, out);
        } else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
        }
    }

    fn on_asked(&mut self, now: Now, open_request: OpenRequest, answer: LeaseAnswer, out: &mut Vec<Out>) {
        match answer {
            LeaseAnswer::Seen(facts) => {
                self.last_error = None;
                let done = match open_request.kind {
                    SharedLeaseAction::Read => {
                        let found = facts.version.clone();
                        self.observe(now, facts, LeaseProvenance::Read(open_request.id), out);
                        self.delays.on_read(now, Some(&found));
                        self.has_read(open_request.id);
                        return;
                    }
                    SharedLeaseAction::Take => self.on_taken(now, &open_request, facts, out),
                    SharedLeaseAction::Renew => self.on_renewed(now, &open_request, facts, out),
                    SharedLeaseAction::Release => {
                        self.observe(now, facts, LeaseProvenance::Written(open_request.id), out);
                        self.end_hold(now, out);
                        self.holder() == Some(Holder::None)
                    }
                };
                if done {
                    self.delays.reset(now);
                } else {
                    self.delays.on_unexpected_state(now, open_request.kind);
                }
            }
            LeaseAnswer::Absent => {
                self.last_error = None;
                match open_request.kind {
                    SharedLeaseAction::Read => self.delays.on_read(now, None),
                    SharedLeaseAction::Take | SharedLeaseAction::Renew | SharedLeaseAction::Release => {
                        self.delays.on_unexpected_state(now, open_request.kind)
                    }
                }
                self.has_read(open_request.id);
                self.on_absent(now, out);
            }
            LeaseAnswer::Conflict => self.on_conflict(now, &open_request, out),
            LeaseAnswer::Unchanged => {
                self.failed(now, &open_request, "the answer is of another kind than the request");
            }
            LeaseAnswer::Failed(failure) => self.failed(now, &open_request, &failure.into_why()),
        }
    }

    /// Handles the success of a take. Returns false if the answer, or a newer state, shows another holder.
    fn on_taken(
        &mut self,
        now: Now,
        open_request: &OpenRequest,
        facts: Arc<LeaseFacts>,
        out: &mut Vec<Out>,
    ) -> bool {
        let ours = Holder::of(&facts, &self.params.holder) == Holder::Ours;
        if !self.observe(now, Arc::clone(&facts), LeaseProvenance::Written(open_request.id), out) || !ours {
            self.require_read();
            return false;
        }
        for (caller, since) in std::mem::take(&mut self.callers_since) {
            out.push(Out::Metric(Metric::LeaseWait { caller, waited: now.since(since) }));
        }
        // The predecessor may have sent PUTs in the hold that is taken over.
        self.phase = HoldPhase::Held(Hold {
            taken: open_request.sent,
            renewed: open_request.sent,
            facts,
            made: true,
            doubted: None,
            wrote: open_request.from_ours,
        });
        true
    }

    /// Handles the success of a renewal. Returns false if a newer state is known.
    fn on_renewed(
        &mut self,
        now: Now,
        open_request: &OpenRequest,
        facts: Arc<LeaseFacts>,
        out: &mut Vec<Out>,
    ) -> bool {
        let newest = self.observe(now, Arc::clone(&facts), LeaseProvenance::Written(open_request.id), out);
        match &mut self.phase {
            HoldPhase::Held(hold) | HoldPhase::Releasing(hold) if newest => {
                hold.renewed = open_request.sent;
                hold.facts = facts;
                hold.made = true;
                true
            }
            HoldPhase::NotHeld | HoldPhase::Held(_) | HoldPhase::Releasing(_) => false,
        }
    }

    /// Handles a conflict: another client wrote the Lease before our request.
    fn on_conflict(&mut self, now: Now, open_request: &OpenRequest, out: &mut Vec<Out>) {
        self.require_read();
        match open_request.kind {
            SharedLeaseAction::Take => self.delays.met_another(open_request.base.clone()),
            SharedLeaseAction::Read | SharedLeaseAction::Renew | SharedLeaseAction::Release => {
                self.delays.on_unexpected_state(now, open_request.kind)
            }
        }
        let by_other_client = match &mut self.observed {
            ObservedSharedLease::State(state) if state.author == LeaseAuthor::Request(open_request.id) => {
                state.author = LeaseAuthor::Other;
                true
            }
            ObservedSharedLease::State(_) | ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => {
                false
            }
        };
        match open_request.kind {
            SharedLeaseAction::Renew if by_other_client => self.end_hold(now, out),
            SharedLeaseAction::Renew => self.doubt_hold(),
            // Another client has replaced our state, so that there is nothing to release.
            SharedLeaseAction::Release => self.end_hold(now, out),
            SharedLeaseAction::Read | SharedLeaseAction::Take => {}
        }
    }

    fn on_watched(&mut self, now: Now, open: &OpenWatch, answer: LeaseAnswer, out: &mut Vec<Out>) {
        match &answer {
            LeaseAnswer::Failed(failure) => self.watch_failures.failed(failure.clone().into_why()),
            LeaseAnswer::Seen(_) | LeaseAnswer::Absent | LeaseAnswer::Conflict | LeaseAnswer::Unchanged => {
                self.watch_failures.clear();
            }
        }
        match answer {
            LeaseAnswer::Seen(facts) => {
                if facts.version == open.from {
                    self.watch.brought_nothing(open);
                } else if facts.version.is_older_than(&open.from) {
                    // The watch lags behind, or storage was restored from a backup. A read shows which.
                    self.require_read();
                    self.watch.put_off(now);
                }
                self.observe(now, facts, LeaseProvenance::Watched, out);
            }
            LeaseAnswer::Unchanged => self.watch.brought_nothing(open),
            // Another client may have created the Lease again since the deletion that a late watch reports. A read
            // shows whether it exists; until then, no hold is reliable.
            LeaseAnswer::Absent => {
                self.require_read();
                self.doubt_hold();
                self.watch.put_off(now);
            }
            LeaseAnswer::Conflict | LeaseAnswer::Failed(_) => {
                self.require_read();
                self.watch.put_off(now);
            }
        }
    }

    /// Handles the absence of the Lease.
    fn on_absent(&mut self, now: Now, out: &mut Vec<Out>) {
        self.observed = ObservedSharedLease::Absent(now);
        self.end_hold(now, out);
    }

    fn failed(&mut self, now: Now, open_request: &OpenRequest, text: &str) {
        self.record_lost_request(now, open_request);
        self.require_read();
        self.last_error = Some(Arc::from(text));
        self.delays.failed(now, open_request.kind);
    }

    /// Ends the hold and starts the cooldown. Also asks whether the cloud-controller-manager waited for the Lease.
    fn end_hold(&mut self, now: Now, out: &mut Vec<Out>) {
        let hold = match std::mem::replace(&mut self.phase, HoldPhase::NotHeld) {
            HoldPhase::NotHeld => return,
            HoldPhase::Held(hold) | HoldPhase::Releasing(hold) => hold,
        };
        let held = now.since(hold.taken);
        out.push(Out::Metric(Metric::LeaseHeld(held)));
        self.cooldown.hold_ended(now, held, self.params.min_cooldown);
        if self.contention.awaits_ingress() && self.cooldown.on_contention(now, false) {
            self.contention.count_ingress();
        }
        self.contention.hold_ended(hold.taken, held);
        self.count_failures(now, out);
    }

    /// Counts lock failures of the cloud-controller-manager if a count is due.
    fn count_failures(&mut self, now: Now, out: &mut Vec<Out>) {
        let Some(since) = self.contention.count_due_since(now).filter(|_| self.may_take_again) else {
            return;
        };
        self.last += 1;
        let call = CallId(self.last);
        self.contention.on_count_requested(now, call);
        out.push(Out::CountLockFailures { call, since });
    }

    /// Checks that a held Lease is known to be ours and was not renewed before it was taken.
    pub(super) fn is_consistent(&self) -> bool {
        match &self.phase {
            HoldPhase::Held(hold) => self.holder() == Some(Holder::Ours) && hold.taken <= hold.renewed,
            HoldPhase::Releasing(hold) => hold.taken <= hold.renewed,
            HoldPhase::NotHeld => true,
        }
    }

    /// Returns the holder, as far as it is known.
    fn holder(&self) -> Option<Holder> {
        match &self.observed {
            ObservedSharedLease::State(state) => Some(Holder::of(&state.facts, &self.params.holder)),
            ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => None,
        }
    }
}
