//! The requests about our own Lease: when it is looked at, taken, renewed, awaited and released
//! (docs/design/coordination.md, W8).
//!
//! One request is under way at a time. A write whose answer is lost may have been carried out: the Lease is looked
//! at, and what stands in it decides. Only a write that was answered counts as a renewal. What a watch brings may be
//! older than what is known; the answers to all other requests are most recent when they are sent.

use std::sync::Arc;
use std::time::Duration;

use model::ids::CallId;
use model::lease::{GateTimes, LeaseAnswer, LeaseAsk, LeaseEdit, LeaseFacts, WATCH_MARGIN};
use model::machine::{Now, earliest};
use model::object::GIVE_UP_AFTER;
use model::sample::Sample;

use super::observed_lease::Chance;
use super::{Ending, Leader, Out, Times};

/// How long the Lease is awaited at a time.
const AWAIT: Duration = Duration::from_secs(60);
/// The least time between two awaits that bring nothing, and between two tries to let go.
const BREATH: Duration = Duration::from_secs(1);
/// The duration in a Lease without a holder: the least that the API allows, and what tells our release from
/// an emptied Lease.
pub(super) const RELEASED_FOR: Duration = Duration::from_secs(1);

/// The request that is under way, or the next one.
#[derive(Clone, Debug)]
pub(super) enum Errand {
    /// Nothing is asked.
    None,
    /// The Lease is looked at. `after_take`: it may be ours already.
    Look { at: Now, after_take: bool },
    /// Whatever its state calls for is done: it is taken, renewed, awaited, or released.
    Act { at: Now },
    /// A request was sent.
    Asked { call: CallId, sent: Now, give_up: Now, what: What },
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Look { after_take: bool },
    Await,
    Take,
    Renew,
    Release,
}

impl Errand {
    pub(super) fn look(at: Now) -> Errand {
        Errand::Look { at, after_take: false }
    }
}

impl Leader {
    /// Whether a request may have made the Lease ours without our knowing.
    pub(super) fn may_become_ours(&self) -> bool {
        match &self.errand {
            Errand::None | Errand::Act { .. } => false,
            Errand::Look { after_take, .. } => *after_take,
            Errand::Asked { what, .. } => match what {
                What::Look { after_take } => *after_take,
                What::Take => true,
                What::Await | What::Renew | What::Release => false,
            },
        }
    }

    /// When the next request is made, or the one under way is given up.
    pub(super) fn errand_deadline(&self, times: Times) -> Option<Now> {
        match &self.errand {
            Errand::None => None,
            Errand::Look { at, .. } | Errand::Act { at } => Some(*at),
            Errand::Asked { give_up, what, .. } => match what {
                What::Await => earliest(Some(*give_up), self.expiry(times)),
                What::Look { .. } | What::Take | What::Renew | What::Release => Some(*give_up),
            },
        }
    }

    /// When the hold of another client ends by itself.
    fn expiry(&self, times: Times) -> Option<Now> {
        match self.sight.chance(Now::ZERO, times) {
            Chance::Held(_, expires) => Some(expires),
            Chance::Unknown | Chance::Absent | Chance::Free(_) => None,
        }
    }

    /// Does what is due about the Lease.
    pub(super) fn go_on(&mut self, now: Now, times: Times, out: &mut Vec<Out>) {
        if let Errand::Asked { give_up, what, sent, .. } = self.errand {
            if give_up <= now {
                self.on_failed(now, sent, what, "no answer in time".into(), times);
            } else if what == What::Await
                && (self.expiry(times).is_none_or(|expires| expires <= now) || self.ending != Ending::Not)
            {
                // What its answer would bring is not waited for any more.
                self.errand = Errand::Act { at: now };
            }
        }
        if let (Ending::Releasing { .. }, Errand::Act { at }) = (self.ending, &mut self.errand) {
            *at = now;
        }
        match self.errand {
            Errand::Look { at, after_take } if at <= now => {
                self.ask(now, What::Look { after_take }, LeaseAsk::Get, GIVE_UP_AFTER, out);
            }
            Errand::Act { at } if at <= now => self.act(now, times, out),
            Errand::None | Errand::Look { .. } | Errand::Act { .. } | Errand::Asked { .. } => {}
        }
    }

    fn ask(&mut self, now: Now, what: What, ask: LeaseAsk, within: Duration, out: &mut Vec<Out>) {
        self.calls += 1;
        let call = CallId(self.calls);
        self.errand = Errand::Asked { call, sent: now, give_up: now.plus(within), what };
        out.push(Out::Lease(call, ask));
    }

    fn act(&mut self, now: Now, times: Times, out: &mut Vec<Out>) {
        let (what, ask, within) = match (self.renewed.is_some(), self.ending) {
            (true, Ending::Not | Ending::Begun) => match self.sight.ours() {
                Some(facts) => {
                    let edit = self.edit(&facts, times);
                    (What::Renew, LeaseAsk::Replace(facts, edit), GIVE_UP_AFTER)
                }
                None => (What::Look { after_take: false }, LeaseAsk::Get, GIVE_UP_AFTER),
            },
            (true, Ending::Releasing { .. }) => match self.sight.ours() {
                Some(facts) => {
                    let edit = LeaseEdit { holder: None, duration: RELEASED_FOR, ..self.edit(&facts, times) };
                    (What::Release, LeaseAsk::Replace(facts, edit), GIVE_UP_AFTER)
                }
                None => (What::Look { after_take: false }, LeaseAsk::Get, GIVE_UP_AFTER),
            },
            // Nothing is taken by a process that ends.
            (false, Ending::Begun | Ending::Releasing { .. }) => {
                self.errand = Errand::None;
                return;
            }
            (false, Ending::Not) => match self.sight.chance(now, times) {
                Chance::Unknown => (What::Look { after_take: false }, LeaseAsk::Get, GIVE_UP_AFTER),
                Chance::Absent => (What::Take, LeaseAsk::Create(self.first_edit(times)), GIVE_UP_AFTER),
                Chance::Free(facts) => {
                    // Also where the holder stays: each term has its own number.
                    let edit = LeaseEdit { acquired: true, transition: true, ..self.edit(&facts, times) };
                    (What::Take, LeaseAsk::Replace(facts, edit), GIVE_UP_AFTER)
                }
                Chance::Held(facts, expires) => {
                    let span = AWAIT.min(expires.since(now));
                    (
                        What::Await,
                        LeaseAsk::Await(facts.version.clone(), span),
                        span.saturating_add(WATCH_MARGIN),
                    )
                }
            },
        };
        self.ask(now, what, ask, within, out);
    }

    fn first_edit(&self, times: Times) -> LeaseEdit {
        let gates = Some(self.gates).filter(|gates| *gates != GateTimes::default());
        LeaseEdit {
            holder: Some(Arc::clone(&self.params.identity)),
            duration: times.duration,
            acquired: true,
            transition: false,
            previous_holder: None,
            gates,
            out_of_sync: None,
        }
    }

    /// A renewal; gate times and pools out of sync are noted by the leader, because standbys know of none.
    fn edit(&self, facts: &LeaseFacts, times: Times) -> LeaseEdit {
        let gates = self.is_leading().then_some(self.gates).filter(|gates| *gates != facts.gates);
        let changed = self.is_leading() && self.out_of_sync != facts.out_of_sync;
        let out_of_sync = changed.then(|| Arc::clone(&self.out_of_sync));
        LeaseEdit { acquired: false, gates, out_of_sync, ..self.first_edit(times) }
    }

    /// Takes in the answer to the request that is under way.
    pub(super) fn on_answer(
        &mut self,
        now: Now,
        call: CallId,
        answer: LeaseAnswer,
        times: Times,
        out: &mut Vec<Out>,
    ) {
        let Errand::Asked { call: open, sent, what, .. } = self.errand else {
            out.push(Out::Sample(Sample::UnmatchedAnswer));
            return;
        };
        if open != call {
            out.push(Out::Sample(Sample::UnmatchedAnswer));
            return;
        }
        let failed = matches!(answer, LeaseAnswer::Failed(_));
        // The holder does not watch the Lease.
        if !failed && !matches!(what, What::Look { .. }) {
            self.watch_failures.clear();
        }
        match answer {
            LeaseAnswer::Seen(facts) if what != What::Await || self.sight.is_older_than(&facts) => {
                self.on_seen(now, sent, what, facts, times, out);
            }
            LeaseAnswer::Absent if what != What::Await => {
                self.last_error = None;
                self.sight.absent(times);
                self.confirmed = false;
                self.lose(now, out);
                self.errand = Errand::Act { at: now };
            }
            // A watch may lag behind, and tell of a state or a deletion that others have followed: what it brings
            // counts only where it is certainly newer than what is known. Else a read, which is most recent, tells.
            LeaseAnswer::Seen(_) | LeaseAnswer::Absent => {
                self.errand = Errand::look(now.max(sent.plus(BREATH)));
            }
            // One is a race that was lost; more in a row are a server that refuses, or a client that writes all the
            // time.
            LeaseAnswer::Conflict => {
                let after_take = what == What::Take;
                let at = if self.conflicts == 0 { now } else { now.max(sent.plus(BREATH)) };
                self.conflicts = self.conflicts.saturating_add(1);
                self.errand = Errand::Look { at, after_take };
            }
            LeaseAnswer::Unchanged => self.errand = Errand::Act { at: now.max(sent.plus(BREATH)) },
            LeaseAnswer::Failed(failure) => self.on_failed(now, sent, what, failure.into_why(), times),
        }
    }

    fn on_seen(
        &mut self,
        now: Now,
        sent: Now,
        what: What,
        facts: Arc<LeaseFacts>,
        times: Times,
        out: &mut Vec<Out>,
    ) {
        if let Some(set_back) = self.sight.set_back(&facts) {
            self.on_set_back(now, set_back, out);
            return;
        }
        self.last_error = None;
        self.sight.seen(now, facts, times);
        let ours = self.sight.ours().is_some();
        self.confirmed &= ours;
        match what {
            What::Look { .. } | What::Await => {}
            What::Take | What::Renew | What::Release => self.conflicts = 0,
        }
        let next = now.max(sent.plus(times.retry));
        self.errand = Errand::Act { at: now };
        match what {
            What::Look { .. } | What::Await => {
                if self.renewed.is_some() && !ours {
                    self.lose(now, out);
                }
                // A take whose answer was lost, in a process that ends: it is to be released.
                if ours && self.renewed.is_none() && self.ending != Ending::Not {
                    self.renewed = Some(now);
                }
            }
            What::Take if ours => {
                self.errand = Errand::Act { at: next };
                match self.ending {
                    Ending::Not => self.win(now, sent, out),
                    Ending::Begun | Ending::Releasing { .. } => self.renewed = Some(sent),
                }
            }
            What::Renew if ours => {
                // One that is answered after its term was given up begins none: the Lease is taken for that.
                if self.renewed.is_some() || self.ending != Ending::Not {
                    self.errand = Errand::Act { at: next };
                    self.renewed = Some(sent);
                    self.say_standing(out);
                }
            }
            What::Take | What::Renew | What::Release => self.lose(now, out),
        }
    }

    fn on_failed(&mut self, now: Now, sent: Now, what: What, why: Arc<str>, times: Times) {
        if what == What::Await {
            self.watch_failures.failed(Arc::clone(&why));
        }
        self.last_error = Some(why);
        let pause = match what {
            What::Release => BREATH,
            What::Look { .. } | What::Await | What::Take | What::Renew => times.retry,
        };
        let after_take = match what {
            What::Take => true,
            What::Look { after_take } => after_take,
            What::Await | What::Renew | What::Release => false,
        };
        self.errand = Errand::Look { at: now.max(sent.plus(pause)), after_take };
    }
}
