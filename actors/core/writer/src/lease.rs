//! The Lease that is shared with the cloud-controller-manager: when it is asked for, until when it is certainly
//! ours, and when it is released (docs/design/writer.md, W7; W8).
//!
//! This file holds the lock and what the answers to its requests mean; what it asks next, and when it looks again,
//! stands in `lease/asking.rs`, what is known of the Lease in `lease/known.rs`, whether that may be relied on in
//! `lease/trust.rs`, what a state that is seen means in `lease/seen.rs`, how long it is left to others in
//! `lease/off.rs`, by what others show that they wait in `lease/signs.rs`, what the writer wants of it in
//! `lease/wants.rs`, and what the operator sees of it in `lease/show.rs`.
//!
//! All times are local: a hold of ours counts from the moment at which the request for it was sent, and a hold of
//! another client from the moment at which its state was seen.

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

/// How long a hold is certain after the sending of the last renewal that succeeded: what the Lease says (W7).
const HOLD: Duration = Duration::from_secs(60);

/// How long after it was taken it is released, operations running or not (W7).
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// How long a process that ends tries to give it back.
pub(super) const LET_GO_LIMIT: Duration = Duration::from_secs(3);

/// The shared Lease, as one holder among others.
#[derive(Debug)]
pub(super) struct SharedLease {
    params: LeaseParams,
    phase: Phase,
    known: ObservedSharedLease,
    trust: Freshness,
    /// The last request that could make it ours and has got no answer.
    lost: Option<LostRequest>,
    /// Whether this process may take it again: it leads, and goes on.
    goes_on: bool,
    /// The request that is under way, apart from the watch.
    asked: Option<Asked>,
    watch: Watch,
    /// The number of the last request.
    last: u64,
    patience: Patience,
    off: Cooldown,
    signs: ContentionSignals,
    /// Since when a write that could begin has waited for it.
    wanted_since: Option<Now>,
    /// The same for the writes of each caller.
    callers_since: BTreeMap<Caller, Now>,
    last_error: Option<Arc<str>>,
    watch_failures: WatchFailures,
    /// Since when that holder has had it who is not known and whom operators were told of.
    told_of: Option<Now>,
    /// Whether they were, and not that it is over.
    told: bool,
    /// When time alone changes something next.
    wake: Option<Now>,
    shown: Option<SharedLeaseView>,
}

/// Whether it is ours.
#[derive(Clone, Debug)]
enum Phase {
    /// It is not.
    Apart,
    /// It is.
    Held(Hold),
    /// It is being given back: nothing relies on it any more, and only the state that we made is replaced.
    DrainingAddresses(Hold),
}

/// A hold of this process.
#[derive(Clone, Debug)]
struct Hold {
    /// When the request that took it was sent.
    taken: Now,
    /// When the last request that renewed it was sent.
    renewed: Now,
    /// The state of the Lease that the last of our requests has made.
    facts: Arc<LeaseFacts>,
    /// Whether its answer has said so; else only we can have made it as long as we lead, but a successor may.
    made: bool,
    /// Since which of our requests another client may have written the Lease, so that it may have been taken from
    /// us: only what is answered to a later one ends that.
    doubt: Option<u64>,
    /// Whether a PUT was sent in it.
    wrote: bool,
}

impl Hold {
    /// Until when it is certain without another renewal.
    fn certain_until(&self) -> Now {
        self.renewed.plus(HOLD)
    }

    /// When it is released at the latest.
    fn forced_end(&self) -> Now {
        self.taken.plus(LONGEST_HOLD)
    }

    /// Until when a PUT may be sent in it; `None`: none may (W8).
    fn send_before(&self) -> Option<Now> {
        self.doubt.is_none().then(|| self.certain_until().min(self.forced_end()).minus(PERMIT_MARGIN))
    }
}

impl SharedLease {
    /// One that knows nothing yet.
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

    /// Whether writes may start in the present hold (W7).
    pub(super) fn may_start(&self, now: Now) -> bool {
        match &self.phase {
            Phase::Held(hold) => {
                now < hold.taken.plus(self.params.max_hold)
                    && hold.send_before().is_some_and(|last| now <= last)
            }
            Phase::Apart | Phase::DrainingAddresses(_) => false,
        }
    }

    /// Until when a PUT may be sent in the present hold; `None`: none may (W8).
    pub(super) fn send_before(&self) -> Option<Now> {
        match &self.phase {
            Phase::Held(hold) => hold.send_before(),
            Phase::Apart | Phase::DrainingAddresses(_) => None,
        }
    }

    /// When the present hold was taken.
    pub(super) fn taken(&self) -> Option<Now> {
        match &self.phase {
            Phase::Held(hold) => Some(hold.taken),
            Phase::Apart | Phase::DrainingAddresses(_) => None,
        }
    }

    /// Notes that a PUT is sent: the next holder of the Lease must learn that we were there.
    pub(super) fn note_put(&mut self) {
        match &mut self.phase {
            Phase::Held(hold) => hold.wrote = true,
            Phase::Apart | Phase::DrainingAddresses(_) => {}
        }
    }

    /// Leadership was lost, or won again: the hold is not relied on any more. Who does not lead gives it back by
    /// its version; who leads again begins by looking, for another replica may have taken it over meanwhile.
    pub(super) fn forfeit(&mut self, now: Now, leads: bool, out: &mut Vec<Out>) {
        self.trust = Freshness::TermBegins;
        self.goes_on = false;
        self.patience.reset(now);
        match self.holder() {
            // Since when it is another client's stays known; all else may have been done by another replica.
            Some(Holder::Other) => {}
            Some(Holder::Nobody | Holder::Ours) | None => self.known = ObservedSharedLease::Nothing,
        }
        if leads {
            // What the term before has asked for may be carried out in this one: it is no stranger's.
            let asked = self.asked.take();
            asked.into_iter().for_each(|asked| self.note_lost(now, &asked));
            self.end_hold(now, out);
        } else if let Phase::Held(hold) = std::mem::replace(&mut self.phase, Phase::Apart) {
            self.phase = Phase::DrainingAddresses(hold);
        }
        self.signs.forget();
    }

    /// The process ends: a failure before does not delay what is tried now.
    pub(super) fn hurry(&mut self, now: Now) {
        self.patience.reset(now);
    }

    /// Whether it is certain that it is not ours: no take that had no answer may have been carried out either.
    pub(super) fn is_free(&self, now: Now) -> bool {
        self.is_let_go() && !self.may_yet_be_ours(now)
    }

    /// Whether nothing of it is ours, and no request is under way that could make it so.
    pub(super) fn is_let_go(&self) -> bool {
        let taking = self.asked.as_ref().is_some_and(|asked| match asked.what {
            SharedLeaseRequest::Take | SharedLeaseRequest::Renew | SharedLeaseRequest::Release => true,
            SharedLeaseRequest::Look => false,
        });
        matches!(self.phase, Phase::Apart) && !taking
    }

    /// Which Service waits for the cloud-controller-manager, the last of them, which counts once, when a hold ends.
    pub(super) fn on_awaiting_ingress(&mut self, newest: Option<u64>) {
        self.signs.on_awaiting_ingress(newest);
    }

    /// Takes in how many lock failures the cloud-controller-manager had during a hold of ours.
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
            // Who cannot be heard may be there.
            None => self.off.other_seen(now),
        }
    }

    /// Takes in the answer to a request.
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

    /// The request that takes it has succeeded, unless a newer state says otherwise, or its own.
    fn on_taken(&mut self, now: Now, asked: &Asked, facts: Arc<LeaseFacts>, out: &mut Vec<Out>) -> bool {
        let ours = Holder::of(&facts, &self.params.holder) == Holder::Ours;
        if !self.see(now, Arc::clone(&facts), Heard::Made(asked.id), out) || !ours {
            self.distrust();
            return false;
        }
        for (caller, since) in std::mem::take(&mut self.callers_since) {
            out.push(Out::Metric(Metric::LeaseWait { caller, waited: now.since(since) }));
        }
        // Whether a predecessor has sent PUTs in the hold that is taken over is not known.
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

    /// The request that renews it has succeeded, unless as above.
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

    /// Another client has written the Lease before a request of ours.
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
            // What we had was not there any more to be given back.
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
                    // It lags behind, or storage was restored from a backup: a look tells.
                    self.distrust();
                    self.watch.put_off(now);
                }
                self.see(now, facts, Heard::Watched, out);
            }
            LeaseAnswer::Unchanged => self.watch.brought_nothing(open),
            // A watch that lags behind tells of a deletion that another client has reversed since: a look shows it.
            // Meanwhile no hold is relied on.
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

    /// The Lease does not exist.
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

    /// A hold is over. Where it was given back or taken away it is left to others for a while, and whether the
    /// cloud-controller-manager has waited for it is asked.
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

    /// Asks for the lock failures of the cloud-controller-manager, where some may be of interest.
    fn count_failures(&mut self, now: Now, out: &mut Vec<Out>) {
        let Some(since) = self.signs.question(now).filter(|_| self.goes_on) else { return };
        self.last += 1;
        let call = CallId(self.last);
        self.signs.asks(now, call);
        out.push(Out::CountLockFailures { call, since });
    }

    /// The invariant: what is held is known to be ours, and was not renewed before it was taken.
    pub(super) fn is_consistent(&self) -> bool {
        match &self.phase {
            Phase::Held(hold) => self.holder() == Some(Holder::Ours) && hold.taken <= hold.renewed,
            Phase::DrainingAddresses(hold) => hold.taken <= hold.renewed,
            Phase::Apart => true,
        }
    }

    /// Whose it is, as far as is known.
    fn holder(&self) -> Option<Holder> {
        match &self.known {
            ObservedSharedLease::State(state) => Some(Holder::of(&state.facts, &self.params.holder)),
            ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => None,
        }
    }
}
