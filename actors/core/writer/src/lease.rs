//! The Lease that is shared with the cloud-controller-manager: when to take it, how long it is certainly ours, and
//! when to release it (docs/design/writer.md, W7, W8).
//!
//! This file holds the machine and handles the answers to its requests. The submodules:
//! - `requests`: the next request, and the delays between requests;
//! - `observed`: the last observed state of the Lease, and its holder;
//! - `freshness`: whether that state is reliable;
//! - `seen`: applies an observed state, and its effect on our hold;
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
mod observed;
mod requests;
mod seen;
mod status;

use contention_signals::ContentionSignals;
use cooldown::Cooldown;
pub(super) use demand::Demand;
use freshness::{Freshness, LostRequest};
pub use observed::FOREIGN_HOLD;
use observed::{Heard, Holder, Maker, ObservedSharedLease};
use requests::{Asked, OpenWatch, Patience, SharedLeaseRequest, Watch};

/// Time for which a hold is certain after the last successful renewal was sent, and the duration in the Lease (W7).
const HOLD: Duration = Duration::from_secs(60);

/// Time after taking at which the Lease is released, whether operations run or not (W7).
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// Time for which a process that shuts down tries to release the Lease.
pub(super) const LET_GO_LIMIT: Duration = Duration::from_secs(3);

/// The shared Lease, from the view of one of its holders.
#[derive(Debug)]
pub(super) struct SharedLease {
    params: LeaseParams,
    phase: Phase,
    known: ObservedSharedLease,
    trust: Freshness,
    /// The last unanswered request that could make the Lease ours.
    lost: Option<LostRequest>,
    /// Whether this process may take it again: it leads, and is not shutting down.
    goes_on: bool,
    /// The request in flight, apart from the watch.
    asked: Option<Asked>,
    watch: Watch,
    /// Number of the last request.
    last: u64,
    patience: Patience,
    off: Cooldown,
    signs: ContentionSignals,
    /// Time since which a write that could begin has waited for the Lease.
    wanted_since: Option<Now>,
    /// The same for each caller.
    callers_since: BTreeMap<Caller, Now>,
    last_error: Option<Arc<str>>,
    watch_failures: WatchFailures,
    /// Time since which the unknown holder has had it that was last reported.
    told_of: Option<Now>,
    /// Whether that report is still active.
    told: bool,
    /// Time of the next change without input.
    wake: Option<Now>,
    shown: Option<SharedLeaseView>,
}

/// Whether the Lease is ours.
#[derive(Clone, Debug)]
enum Phase {
    /// Not ours.
    Apart,
    /// Ours.
    Held(Hold),
    /// Being released. Nothing relies on the hold any more, and the release replaces only our own state of the Lease.
    DrainingAddresses(Hold),
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
    doubt: Option<u64>,
    /// Whether a PUT was sent under this hold.
    wrote: bool,
}

impl Hold {
    /// Time until which the hold is certain without another renewal.
    fn certain_until(&self) -> Now {
        self.renewed.plus(HOLD)
    }

    /// Latest time of its release.
    fn forced_end(&self) -> Now {
        self.taken.plus(LONGEST_HOLD)
    }

    /// Time until which a PUT may be sent under it. `None`: no PUT may (W8).
    fn send_before(&self) -> Option<Now> {
        self.doubt.is_none().then(|| self.certain_until().min(self.forced_end()).minus(PERMIT_MARGIN))
    }
}

impl SharedLease {
    /// Creates the state before the first observation.
    pub(super) fn new(params: LeaseParams) -> SharedLease {
        SharedLease {
            params,
            phase: Phase::Apart,
            known: ObservedSharedLease::Nothing,
            trust: Freshness::TermBegins,
            lost: None,
            goes_on: false,
            asked: None,
            watch: Watch::default(),
            last: 0,
            patience: Patience::default(),
            off: Cooldown::default(),
            signs: ContentionSignals::default(),
            wanted_since: None,
            callers_since: BTreeMap::new(),
            last_error: None,
            watch_failures: WatchFailures::default(),
            told_of: None,
            told: false,
            wake: None,
            shown: None,
        }
    }

    /// Whether writes may start in the current hold (W7).
    pub(super) fn may_start(&self, now: Now) -> bool {
        match &self.phase {
            Phase::Held(hold) => {
                now < hold.taken.plus(self.params.max_hold)
                    && hold.send_before().is_some_and(|last| now <= last)
            }
            Phase::Apart | Phase::DrainingAddresses(_) => false,
        }
    }

    /// Time until which a PUT may be sent in the current hold. `None`: no PUT may (W8).
    pub(super) fn send_before(&self) -> Option<Now> {
        match &self.phase {
            Phase::Held(hold) => hold.send_before(),
            Phase::Apart | Phase::DrainingAddresses(_) => None,
        }
    }

    /// Time at which the current hold was taken.
    pub(super) fn taken(&self) -> Option<Now> {
        match &self.phase {
            Phase::Held(hold) => Some(hold.taken),
            Phase::Apart | Phase::DrainingAddresses(_) => None,
        }
    }

    /// Records a PUT, because the release must then name us as the previous holder.
    pub(super) fn note_put(&mut self) {
        match &mut self.phase {
            Phase::Held(hold) => hold.wrote = true,
            Phase::Apart | Phase::DrainingAddresses(_) => {}
        }
    }

    /// Stops relying on the hold, because leadership was lost or won again. A standby releases it by its version. A
    /// new leader reads first, because another replica may have taken the Lease over.
    pub(super) fn forfeit(&mut self, now: Now, leads: bool, out: &mut Vec<Out>) {
        self.trust = Freshness::TermBegins;
        self.goes_on = false;
        self.patience.reset(now);
        match self.holder() {
            // The hold time of another client stays valid. Another replica may have made any other state.
            Some(Holder::Other) => {}
            Some(Holder::Nobody | Holder::Ours) | None => self.known = ObservedSharedLease::Nothing,
        }
        if leads {
            // A request of the previous term may still be carried out. Its result is not a stranger's.
            let asked = self.asked.take();
            asked.into_iter().for_each(|asked| self.note_lost(now, &asked));
            self.end_hold(now, out);
        } else if let Phase::Held(hold) = std::mem::replace(&mut self.phase, Phase::Apart) {
            self.phase = Phase::DrainingAddresses(hold);
        }
        self.signs.forget();
    }

    /// Makes the next request at once, because the process is shutting down.
    pub(super) fn hurry(&mut self, now: Now) {
        self.patience.reset(now);
    }

    /// Whether the Lease is certainly not ours, even if an unanswered request was carried out.
    pub(super) fn is_free(&self, now: Now) -> bool {
        self.is_let_go() && !self.may_yet_be_ours(now)
    }

    /// Whether the Lease is not ours, and no request in flight could make it ours.
    pub(super) fn is_let_go(&self) -> bool {
        let taking = self.asked.as_ref().is_some_and(|asked| match asked.what {
            SharedLeaseRequest::Take | SharedLeaseRequest::Renew | SharedLeaseRequest::Release => true,
            SharedLeaseRequest::Look => false,
        });
        matches!(self.phase, Phase::Apart) && !taking
    }

    /// Records the last Service that waits for the cloud-controller-manager. It counts once, when a hold ends.
    pub(super) fn on_awaiting_ingress(&mut self, newest: Option<u64>) {
        self.signs.on_awaiting_ingress(newest);
    }

    /// Applies the number of lock failures of the cloud-controller-manager during our holds.
    pub(super) fn on_lock_failures(
        &mut self,
        now: Now,
        call: CallId,
        count: Option<u32>,
        out: &mut Vec<Out>,
    ) {
        if !self.signs.is_answer(call) {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        }
        match count {
            Some(0) => {}
            Some(count) => {
                out.push(Out::Metric(Metric::ForeignLockFailures(count.into())));
                self.off.other_seen(now);
                self.off.others_wait(now, !matches!(self.phase, Phase::Apart));
            }
            // Without an answer, assume that it waits.
            None => self.off.other_seen(now),
        }
    }

    /// Applies the answer to a request.
    pub(super) fn on_answer(&mut self, now: Now, call: CallId, answer: LeaseAnswer, out: &mut Vec<Out>) {
        if let Some(asked) = self.asked.take_if(|asked| asked.id == call) {
            self.on_asked(now, asked, answer, out);
        } else if let Some(open) = self.watch.close(call) {
            self.on_watched(now, &open, answer, out);
        } else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
        }
    }

    fn on_asked(&mut self, now: Now, asked: Asked, answer: LeaseAnswer, out: &mut Vec<Out>) {
        match answer {
            LeaseAnswer::Seen(facts) => {
                self.last_error = None;
                let done = match asked.what {
                    SharedLeaseRequest::Look => {
                        let found = facts.version.clone();
                        self.see(now, facts, Heard::Looked(asked.id), out);
                        self.patience.has_looked(now, Some(&found));
                        self.has_read(asked.id);
                        return;
                    }
                    SharedLeaseRequest::Take => self.on_taken(now, &asked, facts, out),
                    SharedLeaseRequest::Renew => self.on_renewed(now, &asked, facts, out),
                    SharedLeaseRequest::Release => {
                        self.see(now, facts, Heard::Made(asked.id), out);
                        self.end_hold(now, out);
                        self.holder() == Some(Holder::Nobody)
                    }
                };
                if done {
                    self.patience.reset(now);
                } else {
                    self.patience.outrun(now, asked.what);
                }
            }
            LeaseAnswer::Absent => {
                self.last_error = None;
                match asked.what {
                    SharedLeaseRequest::Look => self.patience.has_looked(now, None),
                    SharedLeaseRequest::Take | SharedLeaseRequest::Renew | SharedLeaseRequest::Release => {
                        self.patience.outrun(now, asked.what)
                    }
                }
                self.has_read(asked.id);
                self.gone(now, out);
            }
            LeaseAnswer::Conflict => self.on_conflict(now, &asked, out),
            LeaseAnswer::Unchanged => {
                self.failed(now, &asked, "the answer is of another kind than the request");
            }
            LeaseAnswer::Failed(failure) => self.failed(now, &asked, &failure.into_why()),
        }
    }

    /// Handles the success of a take. Returns false if the answer, or a newer state, shows another holder.
    fn on_taken(&mut self, now: Now, asked: &Asked, facts: Arc<LeaseFacts>, out: &mut Vec<Out>) -> bool {
        let ours = Holder::of(&facts, &self.params.holder) == Holder::Ours;
        if !self.see(now, Arc::clone(&facts), Heard::Made(asked.id), out) || !ours {
            self.distrust();
            return false;
        }
        for (caller, since) in std::mem::take(&mut self.callers_since) {
            out.push(Out::Metric(Metric::LeaseWait { caller, waited: now.since(since) }));
        }
        // The predecessor may have sent PUTs in the hold that is taken over.
        self.phase = Phase::Held(Hold {
            taken: asked.sent,
            renewed: asked.sent,
            facts,
            made: true,
            doubt: None,
            wrote: asked.from_ours,
        });
        true
    }

    /// Handles the success of a renewal. Returns false if a newer state is known.
    fn on_renewed(&mut self, now: Now, asked: &Asked, facts: Arc<LeaseFacts>, out: &mut Vec<Out>) -> bool {
        let newest = self.see(now, Arc::clone(&facts), Heard::Made(asked.id), out);
        match &mut self.phase {
            Phase::Held(hold) | Phase::DrainingAddresses(hold) if newest => {
                hold.renewed = asked.sent;
                hold.facts = facts;
                hold.made = true;
                true
            }
            Phase::Apart | Phase::Held(_) | Phase::DrainingAddresses(_) => false,
        }
    }

    /// Handles a conflict: another client wrote the Lease before our request.
    fn on_conflict(&mut self, now: Now, asked: &Asked, out: &mut Vec<Out>) {
        self.distrust();
        match asked.what {
            SharedLeaseRequest::Take => self.patience.met_another(asked.base.clone()),
            SharedLeaseRequest::Look | SharedLeaseRequest::Renew | SharedLeaseRequest::Release => {
                self.patience.outrun(now, asked.what)
            }
        }
        let by_stranger = match &mut self.known {
            ObservedSharedLease::State(state) if state.maker == Maker::Request(asked.id) => {
                state.maker = Maker::Stranger;
                true
            }
            ObservedSharedLease::State(_) | ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => {
                false
            }
        };
        match asked.what {
            SharedLeaseRequest::Renew if by_stranger => self.end_hold(now, out),
            SharedLeaseRequest::Renew => self.doubt(),
            // Another client has replaced our state, so that there is nothing to release.
            SharedLeaseRequest::Release => self.end_hold(now, out),
            SharedLeaseRequest::Look | SharedLeaseRequest::Take => {}
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
                    self.distrust();
                    self.watch.put_off(now);
                }
                self.see(now, facts, Heard::Watched, out);
            }
            LeaseAnswer::Unchanged => self.watch.brought_nothing(open),
            // Another client may have created the Lease again since the deletion that a late watch reports. A read
            // shows whether it exists; until then, no hold is reliable.
            LeaseAnswer::Absent => {
                self.distrust();
                self.doubt();
                self.watch.put_off(now);
            }
            LeaseAnswer::Conflict | LeaseAnswer::Failed(_) => {
                self.distrust();
                self.watch.put_off(now);
            }
        }
    }

    /// Handles the absence of the Lease.
    fn gone(&mut self, now: Now, out: &mut Vec<Out>) {
        self.known = ObservedSharedLease::Absent(now);
        self.end_hold(now, out);
    }

    fn failed(&mut self, now: Now, asked: &Asked, text: &str) {
        self.note_lost(now, asked);
        self.distrust();
        self.last_error = Some(Arc::from(text));
        self.patience.failed(now, asked.what);
    }

    /// Ends the hold and starts the cooldown. Also asks whether the cloud-controller-manager waited for the Lease.
    fn end_hold(&mut self, now: Now, out: &mut Vec<Out>) {
        let hold = match std::mem::replace(&mut self.phase, Phase::Apart) {
            Phase::Apart => return,
            Phase::Held(hold) | Phase::DrainingAddresses(hold) => hold,
        };
        let held = now.since(hold.taken);
        out.push(Out::Metric(Metric::LeaseHeld(held)));
        self.off.hold_ended(now, held, self.params.min_off);
        if self.signs.awaits_ingress() && self.off.others_wait(now, false) {
            self.signs.count_ingress();
        }
        self.signs.hold_ended(hold.taken, held);
        self.count_failures(now, out);
    }

    /// Counts lock failures of the cloud-controller-manager if a count is due.
    fn count_failures(&mut self, now: Now, out: &mut Vec<Out>) {
        let Some(since) = self.signs.question(now).filter(|_| self.goes_on) else { return };
        self.last += 1;
        let call = CallId(self.last);
        self.signs.asks(now, call);
        out.push(Out::CountLockFailures { call, since });
    }

    /// Checks that a held Lease is known to be ours and was not renewed before it was taken.
    pub(super) fn is_consistent(&self) -> bool {
        match &self.phase {
            Phase::Held(hold) => self.holder() == Some(Holder::Ours) && hold.taken <= hold.renewed,
            Phase::DrainingAddresses(hold) => hold.taken <= hold.renewed,
            Phase::Apart => true,
        }
    }

    /// The holder, as far as it is known.
    fn holder(&self) -> Option<Holder> {
        match &self.known {
            ObservedSharedLease::State(state) => Some(Holder::of(&state.facts, &self.params.holder)),
            ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => None,
        }
    }
}
