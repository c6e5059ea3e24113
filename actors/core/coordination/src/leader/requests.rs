//! Requests about our own Lease: when it is read, taken, renewed, watched and released (docs/design/coordination.md,
//! W8).
//!
//! The [`ObjectClient`](mechanisms::object_client::ObjectClient) sends them, one at a time. A write whose answer is
//! lost may have succeeded: the Lease is read, and its content decides. Only an answered write counts as a renewal. A
//! watch may return an older state than the known one; the answers to all other requests are most recent when they are
//! sent.

use std::sync::Arc;
use std::time::Duration;

use mechanisms::object_client::Reply;
use model::ids::CallId;
use model::lease::{GateTimes, LeaseAnswer, LeaseEdit, LeaseFacts};
use model::machine::{Now, earliest};
use model::object::RequestFailure;
use model::sample::Metric;

use super::observed_lease::{LeaseAvailability, RELEASED_FOR};
use super::{Leader, Out, Shutdown, Times};

/// Maximum duration of one watch of the Lease.
const WATCH_FOR: Duration = Duration::from_secs(60);
/// Minimum time between two watches without a result, and between two tries to release.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
/// The purpose of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LeaseAction {
    Read,
    Watch,
    Take,
    Renew,
    Release,
}

impl Leader {
    /// Returns when the next request is made, or the one in flight is given up.
    pub(super) fn request_deadline(&self, times: Times) -> Option<Now> {
        let expiry = if self.is_watching() { self.expiry(times) } else { None };
        earliest(self.client.deadline(), expiry)
    }

    fn is_watching(&self) -> bool {
        self.client.in_flight().is_some_and(|request| request.context == LeaseAction::Watch)
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
        if let Some((request, failure)) = self.client.take_overdue(now) {
            self.on_failed(now, request.sent, request.context, failure, times);
        }
        let expires = || self.expiry(times).is_none_or(|expires| expires <= now);
        if self.is_watching() && (expires() || self.shutdown != Shutdown::Not) {
            // The result of the watch does not matter any more.
            self.client.plan(now);
        }
        if matches!(self.shutdown, Shutdown::Releasing { .. }) && !self.must_read {
            self.client.hurry(now);
        }
        if self.client.is_due(now) {
            self.send_next(now, times, out);
        }
    }

    /// Sends what the state requires: a read, a take, a renewal, a release, or a watch of another process's hold.
    fn send_next(&mut self, now: Now, times: Times, out: &mut Vec<Out>) {
        let write = match (self.renewed.is_some(), self.shutdown) {
            _ if self.must_read => None,
            (true, shutdown) => self.observed.ours().map(|facts| {
                let edit = self.edit(&facts, times);
                match shutdown {
                    Shutdown::Not | Shutdown::Begun => (LeaseAction::Renew, Some(facts), edit),
                    Shutdown::Releasing { .. } => {
                        let edit = LeaseEdit { holder: None, duration: RELEASED_FOR, ..edit };
                        (LeaseAction::Release, Some(facts), edit)
                    }
                }
            }),
            // A process that shuts down does not take the Lease.
            (false, Shutdown::Begun | Shutdown::Releasing { .. }) => return self.client.stop(),
            (false, Shutdown::Not) => match self.observed.availability(now, times) {
                LeaseAvailability::Unknown => None,
                LeaseAvailability::Absent => Some((LeaseAction::Take, None, self.first_edit(times))),
                LeaseAvailability::Free(facts) => {
                    // The number of transitions rises even if the holder stays the same, because each term has its
                    // own number.
                    let edit = LeaseEdit { acquired: true, transition: true, ..self.edit(&facts, times) };
                    Some((LeaseAction::Take, Some(facts), edit))
                }
                LeaseAvailability::Held(facts, expires) => {
                    let span = WATCH_FOR.min(expires.since(now));
                    let (call, request) = self.client.watch(now, LeaseAction::Watch, &facts.version, span);
                    return out.push(Out::Lease(call, request));
                }
            },
        };
        self.must_read = false;
        let (call, request) = match write {
            Some((what, facts, edit)) => {
                self.may_become_ours = what == LeaseAction::Take;
                self.client.write(now, what, facts, edit)
            }
            None => self.client.read(now, LeaseAction::Read),
        };
        out.push(Out::Lease(call, request));
    }

    /// Plans a read, whose answer decides the next request.
    pub(super) fn read_at(&mut self, at: Now) {
        self.must_read = true;
        self.client.plan(at);
    }

    fn first_edit(&self, times: Times) -> LeaseEdit {
        let gates = Some(self.gates).filter(|gates| *gates != GateTimes::default());
        LeaseEdit {
            holder: Some(Arc::clone(&self.params.identity)),
            duration: times.lease_duration,
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
        let Some((request, reply)) = self.client.on_answer(now, call, answer) else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        };
        let (sent, what) = (request.sent, request.context);
        // The holder does not watch the Lease.
        if !matches!(reply, Reply::Failed(_)) && what != LeaseAction::Read {
            self.watch_failures.clear();
        }
        match reply {
            Reply::State(Some(facts))
                if what != LeaseAction::Watch || self.observed.is_older_than(&facts) =>
            {
                self.on_state(now, sent, what, facts, times, out);
            }
            Reply::State(None) if what != LeaseAction::Watch => {
                self.observed.record_absent(times);
                (self.confirmed, self.may_become_ours) = (false, false);
                self.end_term(now, out);
                self.client.plan(now);
            }
            // A watch may lag, and return a state or a deletion that newer states have followed. It counts only if it
            // is certainly newer than the known state. Otherwise a read decides, because it is most recent.
            Reply::State(_) => self.read_at(now.max(sent.plus(MIN_INTERVAL))),
            // One conflict is a lost race. Several in a row mean a server that refuses, or a client that writes all the
            // time.
            Reply::Conflict if self.client.conflicts() == 1 => self.read_at(now),
            Reply::Conflict => self.read_at(now.max(sent.plus(MIN_INTERVAL))),
            Reply::Unchanged => self.client.plan(now.max(sent.plus(MIN_INTERVAL))),
            Reply::Failed(failure) => self.on_failed(now, sent, what, failure, times),
        }
    }

    fn on_state(
        &mut self,
        now: Now,
        sent: Now,
        what: LeaseAction,
        facts: Arc<LeaseFacts>,
        times: Times,
        out: &mut Vec<Out>,
    ) {
        self.may_become_ours = false;
        if let Some(rollback) = self.observed.rollback(&facts) {
            self.on_rollback(now, rollback, out);
            return;
        }
        self.observed.record(now, facts, times);
        let ours = self.observed.ours().is_some();
        self.confirmed &= ours;
        match what {
            LeaseAction::Read | LeaseAction::Watch => {}
            LeaseAction::Take | LeaseAction::Renew | LeaseAction::Release => {
                self.client.forget_setbacks();
            }
        }
        let next = now.max(sent.plus(times.retry_period));
        self.client.plan(now);
        match what {
            LeaseAction::Read | LeaseAction::Watch => {
                if self.renewed.is_some() && !ours {
                    self.end_term(now, out);
                }
                // The answer to a take was lost, and this process shuts down: the Lease must be released.
                if ours && self.renewed.is_none() && self.shutdown != Shutdown::Not {
                    self.renewed = Some(now);
                }
            }
            LeaseAction::Take if ours => {
                self.client.plan(next);
                match self.shutdown {
                    Shutdown::Not => self.begin_term(now, sent, out),
                    Shutdown::Begun | Shutdown::Releasing { .. } => self.renewed = Some(sent),
                }
            }
            LeaseAction::Renew if ours => {
                // A renewal answered after its term was given up begins no term: the Lease must be taken.
                if self.renewed.is_some() || self.shutdown != Shutdown::Not {
                    self.client.plan(next);
                    self.renewed = Some(sent);
                    self.send_leadership(out);
                }
            }
            LeaseAction::Take | LeaseAction::Renew | LeaseAction::Release => self.end_term(now, out),
        }
    }

    fn on_failed(&mut self, now: Now, sent: Now, what: LeaseAction, failure: RequestFailure, times: Times) {
        let pause = match what {
            LeaseAction::Release => MIN_INTERVAL,
            LeaseAction::Watch => {
                self.watch_failures.failed(failure.into_why());
                times.retry_period
            }
            LeaseAction::Read | LeaseAction::Take | LeaseAction::Renew => times.retry_period,
        };
        self.read_at(now.max(sent.plus(pause)));
    }
}
