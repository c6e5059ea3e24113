//! Requests about our own Lease: when it is read, taken, renewed, watched and released (docs/design/coordination.md,
//! W8).
//!
//! At most one request is in flight. A write whose answer is lost may have succeeded: the Lease is read, and its
//! content decides. Only an answered write counts as a renewal. A watch may return an older state than the known one;
//! the answers to all other requests are most recent when they are sent.

use std::sync::Arc;
use std::time::Duration;

use model::ids::CallId;
use model::lease::{GateTimes, LeaseAnswer, LeaseAsk, LeaseEdit, LeaseFacts, WATCH_MARGIN};
use model::machine::{Now, earliest};
use model::object::GIVE_UP_AFTER;
use model::sample::Metric;

use super::observed_lease::LeaseAvailability;
use super::{Leader, Out, Shutdown, Times};

/// Maximum duration of one watch of the Lease.
const WATCH_FOR: Duration = Duration::from_secs(60);
/// Least time between two watches without a result, and between two tries to release.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The duration in a Lease without a holder: the least that the API permits. It distinguishes our release from an
/// emptied Lease.
pub(super) const RELEASED_FOR: Duration = Duration::from_secs(1);

/// The request in flight, or the next one.
#[derive(Clone, Debug)]
pub(super) enum LeaseStep {
    /// No request.
    None,
    /// A read of the Lease. `after_take`: the Lease may be ours already.
    Read { at: Now, after_take: bool },
    /// Whatever the state requires: take, renew, watch, or release.
    Act { at: Now },
    /// A request was sent.
    InFlight { call: CallId, sent: Now, give_up: Now, what: LeaseRequest },
}

/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseRequest {
    Read { after_take: bool },
    Watch,
    Take,
    Renew,
    Release,
}

impl LeaseStep {
    pub(super) fn read(at: Now) -> LeaseStep {
        LeaseStep::Read { at, after_take: false }
    }
}

impl Leader {
    /// Reports whether a request may have made the Lease ours without our knowledge.
    pub(super) fn may_become_ours(&self) -> bool {
        match &self.request {
            LeaseStep::None | LeaseStep::Act { .. } => false,
            LeaseStep::Read { after_take, .. } => *after_take,
            LeaseStep::InFlight { what, .. } => match what {
                LeaseRequest::Read { after_take } => *after_take,
                LeaseRequest::Take => true,
                LeaseRequest::Watch | LeaseRequest::Renew | LeaseRequest::Release => false,
            },
        }
    }

    /// Returns when the next request is made, or the one in flight is given up.
    pub(super) fn request_deadline(&self, times: Times) -> Option<Now> {
        match &self.request {
            LeaseStep::None => None,
            LeaseStep::Read { at, .. } | LeaseStep::Act { at } => Some(*at),
            LeaseStep::InFlight { give_up, what, .. } => match what {
                LeaseRequest::Watch => earliest(Some(*give_up), self.expiry(times)),
                LeaseRequest::Read { .. }
                | LeaseRequest::Take
                | LeaseRequest::Renew
                | LeaseRequest::Release => Some(*give_up),
            },
        }
    }

    /// Returns when the hold of another process expires.
    fn expiry(&self, times: Times) -> Option<Now> {
        match self.observed.availability(Now::ZERO, times) {
            LeaseAvailability::Held(_, expires) => Some(expires),
            LeaseAvailability::Unknown | LeaseAvailability::Absent | LeaseAvailability::Free(_) => None,
        }
    }

    /// Sends the next request if it is due.
    pub(super) fn send_due(&mut self, now: Now, times: Times, out: &mut Vec<Out>) {
        if let LeaseStep::InFlight { give_up, what, sent, .. } = self.request {
            if give_up <= now {
                self.on_failed(now, sent, what, "no answer in time".into(), times);
            } else if what == LeaseRequest::Watch
                && (self.expiry(times).is_none_or(|expires| expires <= now) || self.shutdown != Shutdown::Not)
            {
                // The result of the watch does not matter any more.
                self.request = LeaseStep::Act { at: now };
            }
        }
        if let (Shutdown::Releasing { .. }, LeaseStep::Act { at }) = (self.shutdown, &mut self.request) {
            *at = now;
        }
        match self.request {
            LeaseStep::Read { at, after_take } if at <= now => {
                self.send(now, LeaseRequest::Read { after_take }, LeaseAsk::Get, GIVE_UP_AFTER, out);
            }
            LeaseStep::Act { at } if at <= now => self.act_on_state(now, times, out),
            LeaseStep::None | LeaseStep::Read { .. } | LeaseStep::Act { .. } | LeaseStep::InFlight { .. } => {
            }
        }
    }

    fn send(&mut self, now: Now, what: LeaseRequest, ask: LeaseAsk, within: Duration, out: &mut Vec<Out>) {
        self.calls += 1;
        let call = CallId(self.calls);
        self.request = LeaseStep::InFlight { call, sent: now, give_up: now.plus(within), what };
        out.push(Out::Lease(call, ask));
    }

    fn act_on_state(&mut self, now: Now, times: Times, out: &mut Vec<Out>) {
        let (what, ask, within) = match (self.renewed.is_some(), self.shutdown) {
            (true, Shutdown::Not | Shutdown::Begun) => match self.observed.ours() {
                Some(facts) => {
                    let edit = self.edit(&facts, times);
                    (LeaseRequest::Renew, LeaseAsk::Replace(facts, edit), GIVE_UP_AFTER)
                }
                None => (LeaseRequest::Read { after_take: false }, LeaseAsk::Get, GIVE_UP_AFTER),
            },
            (true, Shutdown::Releasing { .. }) => match self.observed.ours() {
                Some(facts) => {
                    let edit = LeaseEdit { holder: None, duration: RELEASED_FOR, ..self.edit(&facts, times) };
                    (LeaseRequest::Release, LeaseAsk::Replace(facts, edit), GIVE_UP_AFTER)
                }
                None => (LeaseRequest::Read { after_take: false }, LeaseAsk::Get, GIVE_UP_AFTER),
            },
            // A process that ends takes no Lease.
            (false, Shutdown::Begun | Shutdown::Releasing { .. }) => {
                self.request = LeaseStep::None;
                return;
            }
            (false, Shutdown::Not) => match self.observed.availability(now, times) {
                LeaseAvailability::Unknown => {
                    (LeaseRequest::Read { after_take: false }, LeaseAsk::Get, GIVE_UP_AFTER)
                }
                LeaseAvailability::Absent => {
                    (LeaseRequest::Take, LeaseAsk::Create(self.first_edit(times)), GIVE_UP_AFTER)
                }
                LeaseAvailability::Free(facts) => {
                    // Also if the holder stays the same: each term has its own number.
                    let edit = LeaseEdit { acquired: true, transition: true, ..self.edit(&facts, times) };
                    (LeaseRequest::Take, LeaseAsk::Replace(facts, edit), GIVE_UP_AFTER)
                }
                LeaseAvailability::Held(facts, expires) => {
                    let span = WATCH_FOR.min(expires.since(now));
                    (
                        LeaseRequest::Watch,
                        LeaseAsk::Await(facts.version.clone(), span),
                        span.saturating_add(WATCH_MARGIN),
                    )
                }
            },
        };
        self.send(now, what, ask, within, out);
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

    /// Returns a renewal. The leader records gate times and out-of-sync pools, because standbys know none.
    fn edit(&self, facts: &LeaseFacts, times: Times) -> LeaseEdit {
        let gates = self.is_leading().then_some(self.gates).filter(|gates| *gates != facts.gates);
        let changed = self.is_leading() && self.out_of_sync != facts.out_of_sync;
        let out_of_sync = changed.then(|| Arc::clone(&self.out_of_sync));
        LeaseEdit { acquired: false, gates, out_of_sync, ..self.first_edit(times) }
    }

    /// Processes the answer to the request in flight.
    pub(super) fn on_answer(
        &mut self,
        now: Now,
        call: CallId,
        answer: LeaseAnswer,
        times: Times,
        out: &mut Vec<Out>,
    ) {
        let LeaseStep::InFlight { call: open, sent, what, .. } = self.request else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        };
        if open != call {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        }
        let failed = matches!(answer, LeaseAnswer::Failed(_));
        // The holder does not watch the Lease.
        if !failed && !matches!(what, LeaseRequest::Read { .. }) {
            self.watch_failures.clear();
        }
        match answer {
            LeaseAnswer::Seen(facts)
                if what != LeaseRequest::Watch || self.observed.is_older_than(&facts) =>
            {
                self.on_state(now, sent, what, facts, times, out);
            }
            LeaseAnswer::Absent if what != LeaseRequest::Watch => {
                self.last_error = None;
                self.observed.record_absent(times);
                self.confirmed = false;
                self.end_term(now, out);
                self.request = LeaseStep::Act { at: now };
            }
            // A watch may lag, and return a state or a deletion that newer states have followed. It counts only if it
            // is certainly newer than the known state. Otherwise a read decides, because it is most recent.
            LeaseAnswer::Seen(_) | LeaseAnswer::Absent => {
                self.request = LeaseStep::read(now.max(sent.plus(MIN_INTERVAL)));
            }
            // One conflict is a lost race. Several in a row mean a server that refuses, or a client that writes all the
            // time.
            LeaseAnswer::Conflict => {
                let after_take = what == LeaseRequest::Take;
                let at = if self.conflicts == 0 { now } else { now.max(sent.plus(MIN_INTERVAL)) };
                self.conflicts = self.conflicts.saturating_add(1);
                self.request = LeaseStep::Read { at, after_take };
            }
            LeaseAnswer::Unchanged => self.request = LeaseStep::Act { at: now.max(sent.plus(MIN_INTERVAL)) },
            LeaseAnswer::Failed(failure) => self.on_failed(now, sent, what, failure.into_why(), times),
        }
    }

    fn on_state(
        &mut self,
        now: Now,
        sent: Now,
        what: LeaseRequest,
        facts: Arc<LeaseFacts>,
        times: Times,
        out: &mut Vec<Out>,
    ) {
        if let Some(set_back) = self.observed.set_back(&facts) {
            self.on_set_back(now, set_back, out);
            return;
        }
        self.last_error = None;
        self.observed.record(now, facts, times);
        let ours = self.observed.ours().is_some();
        self.confirmed &= ours;
        match what {
            LeaseRequest::Read { .. } | LeaseRequest::Watch => {}
            LeaseRequest::Take | LeaseRequest::Renew | LeaseRequest::Release => self.conflicts = 0,
        }
        let next = now.max(sent.plus(times.retry));
        self.request = LeaseStep::Act { at: now };
        match what {
            LeaseRequest::Read { .. } | LeaseRequest::Watch => {
                if self.renewed.is_some() && !ours {
                    self.end_term(now, out);
                }
                // A take whose answer was lost, in a process that ends: it must be released.
                if ours && self.renewed.is_none() && self.shutdown != Shutdown::Not {
                    self.renewed = Some(now);
                }
            }
            LeaseRequest::Take if ours => {
                self.request = LeaseStep::Act { at: next };
                match self.shutdown {
                    Shutdown::Not => self.begin_term(now, sent, out),
                    Shutdown::Begun | Shutdown::Releasing { .. } => self.renewed = Some(sent),
                }
            }
            LeaseRequest::Renew if ours => {
                // A renewal answered after its term was given up begins no term: the Lease must be taken.
                if self.renewed.is_some() || self.shutdown != Shutdown::Not {
                    self.request = LeaseStep::Act { at: next };
                    self.renewed = Some(sent);
                    self.send_standing(out);
                }
            }
            LeaseRequest::Take | LeaseRequest::Renew | LeaseRequest::Release => self.end_term(now, out),
        }
    }

    fn on_failed(&mut self, now: Now, sent: Now, what: LeaseRequest, why: Arc<str>, times: Times) {
        if what == LeaseRequest::Watch {
            self.watch_failures.failed(Arc::clone(&why));
        }
        self.last_error = Some(why);
        let pause = match what {
            LeaseRequest::Release => MIN_INTERVAL,
            LeaseRequest::Read { .. } | LeaseRequest::Watch | LeaseRequest::Take | LeaseRequest::Renew => {
                times.retry
            }
        };
        let after_take = match what {
            LeaseRequest::Take => true,
            LeaseRequest::Read { after_take } => after_take,
            LeaseRequest::Watch | LeaseRequest::Renew | LeaseRequest::Release => false,
        };
        self.request = LeaseStep::Read { at: now.max(sent.plus(pause)), after_take };
    }
}
