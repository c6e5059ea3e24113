//! The requests about the shared Lease, one at a time beside a watch, and the delays between them
//! (docs/design/writer.md, W7; A3).

use std::sync::Arc;
use std::time::Duration;

use mechanisms::backoff::Backoff;
use model::ids::CallId;
use model::lease::{LeaseEdit, LeaseFacts, LeaseRequest, WATCH_MARGIN};
use model::machine::{Now, earliest};
use model::object::{GIVE_UP_AFTER, ResourceVersion};
use model::sample::Caller;

use super::observed::{Holder, ObservedSharedLease};
use super::{Demand, HOLD, HoldPhase, Out, SharedLease};

/// Interval between renewals (W7).
const RENEW_INTERVAL: Duration = Duration::from_secs(15);

/// Duration in a Lease without a holder, which all other clients expect there (W7).
const RESTORED: Duration = Duration::from_secs(900);

/// Duration of a watch.
const WATCH_SPAN: Duration = Duration::from_secs(60);

/// Delay of the next watch after a failed one. Meanwhile, the Lease is read.
const WATCH_AGAIN: Duration = Duration::from_secs(5);

/// Shortest interval between the starts of two watches if the first brought nothing.
const WATCHES_APART: Duration = Duration::from_secs(1);

/// Interval between reads of a Lease that does not exist.
const ABSENT_AGAIN: Duration = Duration::from_secs(30);

/// Delays after consecutive failures. The last one repeats (W7).
const FAILURE_DELAYS: Backoff = Backoff(&[
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
]);

/// Maximum number of lost races in a row before the next request is delayed.
const MAX_LOST_RACES: u32 = 3;

/// Delays of the next take after more lost races than that. The last one repeats (W7). A lost race is not a failure:
/// between the holds of a client that takes and releases the Lease all the time there are gaps to use.
const LOST_RACE_DELAYS: Backoff = Backoff(&[Duration::from_secs(1), Duration::from_secs(2)]);

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct OpenRequest {
    /// Its id.
    pub id: CallId,
    /// Time at which it was sent.
    pub sent: Now,
    /// Its kind.
    pub kind: SharedLeaseAction,
    /// Newest known version when it was sent, which a write replaces. `None`: no version was known.
    pub base: Option<ResourceVersion>,
    /// Whether the Lease was in our name already, by a predecessor or by an abandoned request.
    pub from_ours: bool,
}

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SharedLeaseAction {
    /// Reads the Lease.
    Read,
    /// Takes the Lease.
    Take,
    /// Renews the hold.
    Renew,
    /// Releases the Lease.
    Release,
}

impl SharedLeaseAction {
    /// Returns whether the success of the request puts our name into the Lease.
    pub(super) fn claims_lease(self) -> bool {
        match self {
            SharedLeaseAction::Take | SharedLeaseAction::Renew => true,
            SharedLeaseAction::Read | SharedLeaseAction::Release => false,
        }
    }
}

/// The watch on the Lease.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    open: Option<OpenWatch>,
    /// Earliest start of the next watch.
    not_before: Now,
}

/// An open watch.
#[derive(Clone, Debug)]
pub(super) struct OpenWatch {
    id: CallId,
    sent: Now,
    /// The version after which it reports the next one.
    pub from: ResourceVersion,
}

impl Watch {
    /// Closes the watch, if this is the id of the watch.
    pub(super) fn close(&mut self, call: CallId) -> Option<OpenWatch> {
        self.open.take_if(|open| open.id == call)
    }

    /// Delays the next watch after a failure.
    pub(super) fn put_off(&mut self, now: Now) {
        self.not_before = now.plus(WATCH_AGAIN);
    }

    /// Delays the next watch after one that ended at once without a change.
    pub(super) fn brought_nothing(&mut self, open: &OpenWatch) {
        self.not_before = open.sent.plus(WATCHES_APART);
    }

    fn deadline(&self) -> Option<Now> {
        self.open.as_ref().map(|open| open.sent.plus(WATCH_SPAN).plus(WATCH_MARGIN))
    }
}

/// Delays of the next request after failures and lost races.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestDelays {
    /// Consecutive failures.
    failures: u32,
    /// Failed writes among them. A successful read does not reset these.
    unwritten: u32,
    /// Consecutive lost races, and refusals by the server that look like one.
    lost_races: u32,
    /// Version that a take tried to replace when it met another one, until a read shows which. `Some(None)`: no
    /// version was known.
    met_another: Option<Option<ResourceVersion>>,
    /// Earliest time of the next request.
    not_before: Now,
    /// Earliest time of the next take.
    take_not_before: Now,
}

impl RequestDelays {
    /// Resets all delays, after a successful write or when earlier failures do not matter any more.
    pub(super) fn reset(&mut self, now: Now) {
        *self = RequestDelays { not_before: now, ..RequestDelays::default() };
    }

    /// Applies a successful read of this version; `None`: the Lease does not exist. The version shows why a take met
    /// a conflict: another version means a lost race, the same version means that the server refuses writes.
    pub(super) fn on_read(&mut self, now: Now, found: Option<&ResourceVersion>) {
        self.failures = self.unwritten;
        match self.met_another.take() {
            Some(observed) if observed.as_ref() == found => {
                self.on_unexpected_state(now, SharedLeaseAction::Take)
            }
            Some(_) => self.lost_race(now),
            None => {}
        }
    }

    /// Records that a take met another version than this one.
    pub(super) fn met_another(&mut self, observed: Option<ResourceVersion>) {
        self.met_another = Some(observed);
    }

    fn lost_race(&mut self, now: Now) {
        self.lost_races = self.lost_races.saturating_add(1);
        if let Some(waits) = self.lost_races.checked_sub(MAX_LOST_RACES + 1) {
            self.take_not_before = now.plus(LOST_RACE_DELAYS.delay(waits));
        }
    }

    /// Allows the next take at once, because another client released the Lease.
    pub(super) fn on_foreign_release(&mut self, now: Now) {
        self.take_not_before = now;
    }

    /// Delays the next request after a failure, longer each time.
    pub(super) fn failed(&mut self, now: Now, kind: SharedLeaseAction) {
        match kind {
            SharedLeaseAction::Read => {}
            SharedLeaseAction::Take | SharedLeaseAction::Renew | SharedLeaseAction::Release => {
                self.unwritten = self.unwritten.saturating_add(1)
            }
        }
        self.not_before = now.plus(FAILURE_DELAYS.delay(self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    /// Records a write that met an unknown state, or did not make the intended one. The next read follows at once,
    /// unless that happens repeatedly.
    pub(super) fn on_unexpected_state(&mut self, now: Now, kind: SharedLeaseAction) {
        self.lost_races = self.lost_races.saturating_add(1);
        if self.lost_races > MAX_LOST_RACES {
            self.failed(now, kind);
        }
    }

    /// Allows the next request at once.
    fn skip_delay(&mut self, now: Now) {
        self.not_before = now;
    }
}

impl SharedLease {
    /// Abandons requests that were not answered in time.
    pub(crate) fn abandon_overdue(&mut self, now: Now) {
        if let Some(open_request) =
            self.open_request.take_if(|open_request| open_request.sent.plus(GIVE_UP_AFTER) <= now)
        {
            self.failed(now, &open_request, "no answer in time");
        } else if self.forced_end_of_wait().is_some_and(|at| at <= now) {
            // The hold ends in any case: of two writes that replace the same version, one fails.
            let open_request = self.open_request.take();
            open_request.into_iter().for_each(|open_request| self.record_lost_request(now, &open_request));
        }
        if self.watch.deadline().is_some_and(|at| at <= now) {
            self.watch.open = None;
            self.watch.put_off(now);
            self.watch_failures.failed("no answer in time".into());
            self.require_read();
        }
        if self.contention.abandon_overdue(now) {
            self.cooldown.on_foreign_holder(now);
        }
    }

    /// Returns the time at which a request of a hold is abandoned, because the hold must end.
    fn forced_end_of_wait(&self) -> Option<Now> {
        let open_request = self.open_request.as_ref().filter(|open_request| match open_request.kind {
            SharedLeaseAction::Read | SharedLeaseAction::Renew => true,
            SharedLeaseAction::Take | SharedLeaseAction::Release => false,
        })?;
        match &self.phase {
            HoldPhase::Held(hold) | HoldPhase::Releasing(hold) => {
                Some(hold.forced_end()).filter(|end| open_request.sent < *end)
            }
            HoldPhase::NotHeld => None,
        }
    }

    /// Reconciles the Lease with the demand.
    pub(crate) fn reconcile(&mut self, now: Now, demand: &Demand, out: &mut Vec<Out>) {
        // An input may arrive at the very time of a deadline, which must not be missed.
        self.abandon_overdue(now);
        self.may_take_again = demand.watches;
        if demand.grant && !self.may_start(now) {
            self.wanted_since = self.wanted_since.or(Some(now));
        } else {
            self.wanted_since = None;
        }
        let waits_since = |caller: &Caller| self.callers_since.get(caller).copied().unwrap_or(now);
        self.callers_since = demand.callers.iter().map(|caller| (*caller, waits_since(caller))).collect();
        if self.open_request.is_none() {
            self.release_if_due(now, demand, out);
            if now >= self.delays.not_before
                && let Some(kind) = self.next(now, demand)
            {
                self.send_request(now, kind, out);
            }
        }
        self.keep_watching(now, demand, out);
        self.count_failures(now, out);
        self.report_other_holder(now, out);
        self.wake = self.next_wake(now, demand);
        self.publish(now, out);
    }

    /// Returns the time of the next change without input.
    pub(crate) fn deadline(&self) -> Option<Now> {
        self.wake
    }

    /// Starts the release of a hold that is unused, too old, or no longer certain.
    fn release_if_due(&mut self, now: Now, demand: &Demand, out: &mut Vec<Out>) {
        match &self.phase {
            HoldPhase::NotHeld => return,
            HoldPhase::Held(hold) | HoldPhase::Releasing(hold) if now >= hold.certain_until() => {
                self.require_read();
                self.end_hold(now, out);
                return;
            }
            // The Lease may be the successor's by now.
            HoldPhase::Held(hold) | HoldPhase::Releasing(hold) if !demand.leads && !hold.made => {
                self.end_hold(now, out);
                return;
            }
            HoldPhase::Releasing(_) => return,
            HoldPhase::Held(hold) => {
                // The version to release is read first, as long as there is time.
                let stays = demand.used || self.must_read();
                if demand.leads && stays && now < hold.forced_end() {
                    return;
                }
                if now >= hold.forced_end() {
                    self.delays.skip_delay(now);
                }
            }
        }
        if let HoldPhase::Held(hold) = std::mem::replace(&mut self.phase, HoldPhase::NotHeld) {
            self.phase = HoldPhase::Releasing(hold);
        }
    }

    /// Returns the next request, if any.
    fn next(&self, now: Now, demand: &Demand) -> Option<SharedLeaseAction> {
        match &self.phase {
            HoldPhase::Releasing(hold) => {
                return (!demand.putting || now >= hold.forced_end()).then_some(SharedLeaseAction::Release);
            }
            HoldPhase::Held(_) if self.must_read() => {
                return demand.leads.then_some(SharedLeaseAction::Read);
            }
            HoldPhase::Held(hold) => {
                let due = demand.leads && now >= hold.renewed.plus(RENEW_INTERVAL);
                return due.then_some(SharedLeaseAction::Renew);
            }
            HoldPhase::NotHeld => {}
        }
        if !demand.watches {
            return None;
        }
        if self.must_read() {
            return Some(SharedLeaseAction::Read);
        }
        let take = demand.grant && self.cooldown.until(now).is_none() && !self.contention.is_counting();
        let races = take && now >= self.delays.take_not_before;
        match &self.observed {
            ObservedSharedLease::Nothing => Some(SharedLeaseAction::Read),
            ObservedSharedLease::Absent(_) if races => Some(SharedLeaseAction::Take),
            ObservedSharedLease::Absent(at) => {
                (now >= at.plus(ABSENT_AGAIN)).then_some(SharedLeaseAction::Read)
            }
            ObservedSharedLease::State(state) => match Holder::of(&state.facts, &self.params.holder) {
                Holder::Ours if now < state.takeover_at() => None,
                // A predecessor's hold, or ours by an abandoned request.
                Holder::Ours if take => Some(SharedLeaseAction::Take),
                Holder::Ours => (!demand.putting).then_some(SharedLeaseAction::Release),
                Holder::None => races.then_some(SharedLeaseAction::Take),
                Holder::Other => {
                    (races && now >= state.foreign_hold_ends()).then_some(SharedLeaseAction::Take)
                }
            },
        }
    }

    fn send_request(&mut self, now: Now, kind: SharedLeaseAction, out: &mut Vec<Out>) {
        let request = match kind {
            SharedLeaseAction::Read => LeaseRequest::Get,
            SharedLeaseAction::Take => self.replace(None, self.taken_edit()),
            SharedLeaseAction::Renew => self.replace(self.own_state(), self.held_edit()),
            SharedLeaseAction::Release => self.replace(self.own_state(), self.released_edit()),
        };
        self.last += 1;
        let id = CallId(self.last);
        let from_ours = matches!(self.holder(), Some(Holder::Ours));
        let base = self.observed.version().cloned();
        self.open_request = Some(OpenRequest { id, sent: now, kind, base, from_ours });
        out.push(Out::Lease(id, request));
    }

    /// Returns the state of the Lease after our last request.
    fn own_state(&self) -> Option<Arc<LeaseFacts>> {
        match &self.phase {
            HoldPhase::Held(hold) | HoldPhase::Releasing(hold) => Some(Arc::clone(&hold.facts)),
            HoldPhase::NotHeld => None,
        }
    }

    fn replace(&self, own: Option<Arc<LeaseFacts>>, edit: LeaseEdit) -> LeaseRequest {
        let newest = match &self.observed {
            ObservedSharedLease::State(state) => Some(Arc::clone(&state.facts)),
            ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => None,
        };
        match own.or(newest) {
            Some(facts) => LeaseRequest::Replace(facts, edit),
            None => LeaseRequest::Create(edit),
        }
    }

    fn held_edit(&self) -> LeaseEdit {
        LeaseEdit {
            holder: Some(Arc::clone(&self.params.holder)),
            duration: HOLD,
            acquired: false,
            transition: false,
            previous_holder: None,
            gates: None,
            out_of_sync: None,
        }
    }

    fn taken_edit(&self) -> LeaseEdit {
        let transition = match self.holder() {
            Some(Holder::Ours) => false,
            Some(Holder::None | Holder::Other) | None => true,
        };
        LeaseEdit { acquired: true, transition, ..self.held_edit() }
    }

    /// Clears the holder and restores the duration that others expect. Names us as the previous holder if we may have
    /// written (W7).
    fn released_edit(&self) -> LeaseEdit {
        let wrote = match &self.phase {
            HoldPhase::Held(hold) | HoldPhase::Releasing(hold) => hold.wrote,
            HoldPhase::NotHeld => true,
        };
        let previous_holder = wrote.then(|| Arc::clone(&self.params.holder));
        LeaseEdit { holder: None, duration: RESTORED, previous_holder, ..self.held_edit() }
    }

    fn keep_watching(&mut self, now: Now, demand: &Demand, out: &mut Vec<Out>) {
        if !demand.watches || self.watch.open.is_some() || now < self.watch.not_before {
            return;
        }
        if let ObservedSharedLease::State(state) = &self.observed {
            let from = state.facts.version.clone();
            self.last += 1;
            let id = CallId(self.last);
            self.watch.open = Some(OpenWatch { id, sent: now, from: from.clone() });
            out.push(Out::Lease(id, LeaseRequest::Watch(from, WATCH_SPAN)));
        }
    }

    fn next_wake(&self, now: Now, demand: &Demand) -> Option<Now> {
        let mut moments = vec![
            self.watch.deadline(),
            self.contention.deadline(),
            self.cooldown.until(now),
            demand.watches.then_some(self.watch.not_before),
        ];
        match &self.open_request {
            Some(open_request) => {
                moments.extend([Some(open_request.sent.plus(GIVE_UP_AFTER)), self.forced_end_of_wait()]);
            }
            None => {
                moments.extend([Some(self.delays.not_before), Some(self.delays.take_not_before)]);
                match &self.phase {
                    HoldPhase::Held(hold) => moments.extend([
                        demand.leads.then(|| hold.renewed.plus(RENEW_INTERVAL)),
                        Some(hold.forced_end()),
                        Some(hold.certain_until()),
                    ]),
                    HoldPhase::Releasing(hold) => {
                        moments.extend([Some(hold.forced_end()), Some(hold.certain_until())]);
                    }
                    HoldPhase::NotHeld => moments.push(match &self.observed {
                        ObservedSharedLease::State(state) => {
                            match Holder::of(&state.facts, &self.params.holder) {
                                Holder::Ours => demand.watches.then(|| state.takeover_at()),
                                Holder::Other => demand.grant.then(|| state.foreign_hold_ends()),
                                Holder::None => None,
                            }
                        }
                        ObservedSharedLease::Absent(at) => demand.watches.then(|| at.plus(ABSENT_AGAIN)),
                        ObservedSharedLease::Nothing => None,
                    }),
                }
            }
        }
        // At this time, a Down may be sent without the Lease.
        moments.push(self.bypass_at());
        moments.push(self.report_other_holder_at());
        // Anything in the past is done, or waits for another event.
        moments.into_iter().map(|at| at.filter(|at| *at > now)).fold(None, earliest)
    }
}
