//! What the lock asks about the shared Lease, one request at a time beside a watch that goes on, and how long it
//! waits for the answers (docs/design/writer.md, W7; A3).

use std::sync::Arc;
use std::time::Duration;

use model::ids::CallId;
use model::lease::{LeaseAsk, LeaseEdit, LeaseFacts, WATCH_MARGIN};
use model::machine::{Now, earliest, step_of};
use model::object::{GIVE_UP_AFTER, ResourceVersion};
use model::sample::Caller;

use super::observed::{Holder, ObservedSharedLease};
use super::{Demand, HOLD, Out, Phase, SharedLease};

/// The time between two renewals (W7).
const RENEW_EVERY: Duration = Duration::from_secs(15);

/// The duration that the Lease says when it has no holder: what all other clients expect there (W7).
const RESTORED: Duration = Duration::from_secs(900);

/// How long a watch lasts.
const WATCH_SPAN: Duration = Duration::from_secs(60);

/// How long after a watch that failed the next one begins; the Lease is looked at meanwhile.
const WATCH_AGAIN: Duration = Duration::from_secs(5);

/// How far apart two watches begin at least, where the first has brought nothing.
const WATCHES_APART: Duration = Duration::from_secs(1);

/// How often it is looked whether a Lease that did not exist exists by now.
const ABSENT_AGAIN: Duration = Duration::from_secs(30);

/// How long the next request waits after failures in a row; the last one repeats (W7).
const FAILURE_DELAYS: [Duration; 6] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
];

/// How many times in a row another client may be faster before the next request waits.
const MOST_OUTRUN: u32 = 3;

/// How long the next taking waits after more races in a row than that were lost to others; the last one repeats (W7).
/// They are no failures: a client that takes and releases it all the time leaves gaps that must be tried for.
const LOST_RACE_DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// A request that is under way.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Its id.
    pub id: CallId,
    /// When it was sent.
    pub sent: Now,
    /// What was asked.
    pub what: SharedLeaseRequest,
    /// The version that was the newest known when it was sent; a write replaces this one. `None`: none was known.
    pub base: Option<ResourceVersion>,
    /// Whether the Lease was in our name already, by a predecessor or by a request that was given up.
    pub from_ours: bool,
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SharedLeaseRequest {
    /// How it stands.
    Look,
    /// To have it.
    Take,
    /// To have it for longer.
    Renew,
    /// To give it back.
    Release,
}

impl SharedLeaseRequest {
    /// Whether what it does puts our name into the Lease.
    pub(super) fn makes_it_ours(self) -> bool {
        match self {
            SharedLeaseRequest::Take | SharedLeaseRequest::Renew => true,
            SharedLeaseRequest::Look | SharedLeaseRequest::Release => false,
        }
    }
}

/// The watch that keeps what is known current.
#[derive(Clone, Debug, Default)]
pub(super) struct Watch {
    open: Option<OpenWatch>,
    /// Not before this moment.
    not_before: Now,
}

/// A watch that goes on.
#[derive(Clone, Debug)]
pub(super) struct OpenWatch {
    id: CallId,
    sent: Now,
    /// The version after which it tells of the next one.
    pub from: ResourceVersion,
}

impl Watch {
    /// Ends it, when this answer is its own.
    pub(super) fn close(&mut self, call: CallId) -> Option<OpenWatch> {
        self.open.take_if(|open| open.id == call)
    }

    /// After a failure: later again.
    pub(super) fn put_off(&mut self, now: Now) {
        self.not_before = now.plus(WATCH_AGAIN);
    }

    /// After a watch that has brought nothing: not at once, where it has ended at once.
    pub(super) fn brought_nothing(&mut self, open: &OpenWatch) {
        self.not_before = open.sent.plus(WATCHES_APART);
    }

    fn deadline(&self) -> Option<Now> {
        self.open.as_ref().map(|open| open.sent.plus(WATCH_SPAN).plus(WATCH_MARGIN))
    }
}

/// How long the next request waits, after failures.
#[derive(Clone, Debug, Default)]
pub(super) struct Patience {
    /// Failures in a row.
    failures: u32,
    /// Those of writes among them, which a look that succeeds does not make good.
    unwritten: u32,
    /// How often another client was faster since a write has succeeded, or the server has refused one as if.
    outrun: u32,
    /// Which version a taking was to replace that has met another one, as long as no look has told which: `Some(None)`
    /// if none was known.
    met_another: Option<Option<ResourceVersion>>,
    /// Not before this moment.
    not_before: Now,
    /// No taking before this moment.
    take_not_before: Now,
}

impl Patience {
    /// A write has succeeded, or what failed before does not matter any more.
    pub(super) fn reset(&mut self, now: Now) {
        *self = Patience { not_before: now, ..Patience::default() };
    }

    /// A look has succeeded, and has found this version; `None`: the Lease does not exist. It tells what a taking that
    /// failed has met: another state, so that the race was lost, or the one that it knew, so that the server refuses.
    pub(super) fn has_looked(&mut self, now: Now, found: Option<&ResourceVersion>) {
        self.failures = self.unwritten;
        match self.met_another.take() {
            Some(known) if known.as_ref() == found => self.outrun(now, SharedLeaseRequest::Take),
            Some(_) => self.lost_race(now),
            None => {}
        }
    }

    /// A taking has met another version than this one, as the server says.
    pub(super) fn met_another(&mut self, known: Option<ResourceVersion>) {
        self.met_another = Some(known);
    }

    fn lost_race(&mut self, now: Now) {
        self.outrun = self.outrun.saturating_add(1);
        if let Some(waits) = self.outrun.checked_sub(MOST_OUTRUN + 1) {
            self.take_not_before = now.plus(step_of(&LOST_RACE_DELAYS, waits));
        }
    }

    /// Another client has released it: now is the time for the next taking, however many were lost.
    pub(super) fn somebody_let_go(&mut self, now: Now) {
        self.take_not_before = now;
    }

    /// A request has failed: the next one waits, longer each time.
    pub(super) fn failed(&mut self, now: Now, what: SharedLeaseRequest) {
        match what {
            SharedLeaseRequest::Look => {}
            SharedLeaseRequest::Take | SharedLeaseRequest::Renew | SharedLeaseRequest::Release => {
                self.unwritten = self.unwritten.saturating_add(1)
            }
        }
        self.not_before = now.plus(step_of(&FAILURE_DELAYS, self.failures));
        self.failures = self.failures.saturating_add(1);
    }

    /// A write has met another state than was known, or has not made the one that it should: the next look is at
    /// once, unless that goes on.
    pub(super) fn outrun(&mut self, now: Now, what: SharedLeaseRequest) {
        self.outrun = self.outrun.saturating_add(1);
        if self.outrun > MOST_OUTRUN {
            self.failed(now, what);
        }
    }

    /// The next request does not wait.
    fn hurry(&mut self, now: Now) {
        self.not_before = now;
    }
}

impl SharedLease {
    /// Gives up requests whose answers never came.
    pub(crate) fn give_up_overdue(&mut self, now: Now) {
        if let Some(asked) = self.asked.take_if(|asked| asked.sent.plus(GIVE_UP_AFTER) <= now) {
            self.failed(now, &asked, "no answer in time");
        } else if self.forced_end_of_wait().is_some_and(|at| at <= now) {
            // The hold ends whatever becomes of it: of two writes of one version, one fails.
            let asked = self.asked.take();
            asked.into_iter().for_each(|asked| self.note_lost(now, &asked));
        }
        if self.watch.deadline().is_some_and(|at| at <= now) {
            self.watch.open = None;
            self.watch.put_off(now);
            self.watch_failures.failed("no answer in time".into());
            self.distrust();
        }
        if self.signs.give_up_overdue(now) {
            self.off.other_seen(now);
        }
    }

    /// When a request that was sent during a hold is not waited for any longer, since the hold must end.
    fn forced_end_of_wait(&self) -> Option<Now> {
        let asked = self.asked.as_ref().filter(|asked| match asked.what {
            SharedLeaseRequest::Look | SharedLeaseRequest::Renew => true,
            SharedLeaseRequest::Take | SharedLeaseRequest::Release => false,
        })?;
        match &self.phase {
            Phase::Held(hold) | Phase::DrainingAddresses(hold) => {
                Some(hold.forced_end()).filter(|end| asked.sent < *end)
            }
            Phase::Apart => None,
        }
    }

    /// Does what the present wishes and the time ask for.
    pub(crate) fn advance(&mut self, now: Now, wants: &Demand, out: &mut Vec<Out>) {
        // Also at an input of that very moment: no deadline that has come may be passed over.
        self.give_up_overdue(now);
        self.goes_on = wants.watches;
        if wants.grant && !self.may_start(now) {
            self.wanted_since = self.wanted_since.or(Some(now));
        } else {
            self.wanted_since = None;
        }
        let waits_since = |caller: &Caller| self.callers_since.get(caller).copied().unwrap_or(now);
        self.callers_since = wants.callers.iter().map(|caller| (*caller, waits_since(caller))).collect();
        if self.asked.is_none() {
            self.let_go_where_due(now, wants, out);
            if now >= self.patience.not_before
                && let Some(what) = self.next(now, wants)
            {
                self.ask(now, what, out);
            }
        }
        self.keep_watching(now, wants, out);
        self.count_failures(now, out);
        self.tell(now, out);
        self.wake = self.next_wake(now, wants);
        self.publish(now, out);
    }

    /// When time alone changes something next.
    pub(crate) fn deadline(&self) -> Option<Now> {
        self.wake
    }

    /// Ends a hold that nothing uses, that has lasted for too long, or that is not certain any more.
    fn let_go_where_due(&mut self, now: Now, wants: &Demand, out: &mut Vec<Out>) {
        match &self.phase {
            Phase::Apart => return,
            Phase::Held(hold) | Phase::DrainingAddresses(hold) if now >= hold.certain_until() => {
                self.distrust();
                self.end_hold(now, out);
                return;
            }
            // It may be the successor's by now.
            Phase::Held(hold) | Phase::DrainingAddresses(hold) if !wants.leads && !hold.made => {
                self.end_hold(now, out);
                return;
            }
            Phase::DrainingAddresses(_) => return,
            Phase::Held(hold) => {
                // Which version is to be given back is found out first, as long as there is time.
                let stays = wants.used || self.must_look();
                if wants.leads && stays && now < hold.forced_end() {
                    return;
                }
                if now >= hold.forced_end() {
                    self.patience.hurry(now);
                }
            }
        }
        if let Phase::Held(hold) = std::mem::replace(&mut self.phase, Phase::Apart) {
            self.phase = Phase::DrainingAddresses(hold);
        }
    }

    /// What is to be asked now, if anything.
    fn next(&self, now: Now, wants: &Demand) -> Option<SharedLeaseRequest> {
        match &self.phase {
            Phase::DrainingAddresses(hold) => {
                return (!wants.putting || now >= hold.forced_end()).then_some(SharedLeaseRequest::Release);
            }
            Phase::Held(_) if self.must_look() => return wants.leads.then_some(SharedLeaseRequest::Look),
            Phase::Held(hold) => {
                let due = wants.leads && now >= hold.renewed.plus(RENEW_EVERY);
                return due.then_some(SharedLeaseRequest::Renew);
            }
            Phase::Apart => {}
        }
        if !wants.watches {
            return None;
        }
        if self.must_look() {
            return Some(SharedLeaseRequest::Look);
        }
        let take = wants.grant && self.off.until(now).is_none() && !self.signs.is_counting();
        let races = take && now >= self.patience.take_not_before;
        match &self.known {
            ObservedSharedLease::Nothing => Some(SharedLeaseRequest::Look),
            ObservedSharedLease::Absent(_) if races => Some(SharedLeaseRequest::Take),
            ObservedSharedLease::Absent(at) => {
                (now >= at.plus(ABSENT_AGAIN)).then_some(SharedLeaseRequest::Look)
            }
            ObservedSharedLease::State(state) => match Holder::of(&state.facts, &self.params.holder) {
                Holder::Ours if now < state.own_name_is_free() => None,
                // A predecessor's, or ours by a request that was given up.
                Holder::Ours if take => Some(SharedLeaseRequest::Take),
                Holder::Ours => (!wants.putting).then_some(SharedLeaseRequest::Release),
                Holder::Nobody => races.then_some(SharedLeaseRequest::Take),
                Holder::Other => {
                    (races && now >= state.foreign_hold_ends()).then_some(SharedLeaseRequest::Take)
                }
            },
        }
    }

    fn ask(&mut self, now: Now, what: SharedLeaseRequest, out: &mut Vec<Out>) {
        let ask = match what {
            SharedLeaseRequest::Look => LeaseAsk::Get,
            SharedLeaseRequest::Take => self.replace(None, self.taken_edit()),
            SharedLeaseRequest::Renew => self.replace(self.own_state(), self.held_edit()),
            SharedLeaseRequest::Release => self.replace(self.own_state(), self.released_edit()),
        };
        self.last += 1;
        let id = CallId(self.last);
        let from_ours = matches!(self.holder(), Some(Holder::Ours));
        let base = self.known.version().cloned();
        self.asked = Some(Asked { id, sent: now, what, base, from_ours });
        out.push(Out::Lease(id, ask));
    }

    /// The state that our last request has made.
    fn own_state(&self) -> Option<Arc<LeaseFacts>> {
        match &self.phase {
            Phase::Held(hold) | Phase::DrainingAddresses(hold) => Some(Arc::clone(&hold.facts)),
            Phase::Apart => None,
        }
    }

    fn replace(&self, own: Option<Arc<LeaseFacts>>, edit: LeaseEdit) -> LeaseAsk {
        let newest = match &self.known {
            ObservedSharedLease::State(state) => Some(Arc::clone(&state.facts)),
            ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => None,
        };
        match own.or(newest) {
            Some(facts) => LeaseAsk::Replace(facts, edit),
            None => LeaseAsk::Create(edit),
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
            Some(Holder::Nobody | Holder::Other) | None => true,
        };
        LeaseEdit { acquired: true, transition, ..self.held_edit() }
    }

    /// Without a holder, with the duration that others expect; our name stays behind where we may have written (W7).
    fn released_edit(&self) -> LeaseEdit {
        let wrote = match &self.phase {
            Phase::Held(hold) | Phase::DrainingAddresses(hold) => hold.wrote,
            Phase::Apart => true,
        };
        let previous_holder = wrote.then(|| Arc::clone(&self.params.holder));
        LeaseEdit { holder: None, duration: RESTORED, previous_holder, ..self.held_edit() }
    }

    fn keep_watching(&mut self, now: Now, wants: &Demand, out: &mut Vec<Out>) {
        if !wants.watches || self.watch.open.is_some() || now < self.watch.not_before {
            return;
        }
        if let ObservedSharedLease::State(state) = &self.known {
            let from = state.facts.version.clone();
            self.last += 1;
            let id = CallId(self.last);
            self.watch.open = Some(OpenWatch { id, sent: now, from: from.clone() });
            out.push(Out::Lease(id, LeaseAsk::Await(from, WATCH_SPAN)));
        }
    }

    fn next_wake(&self, now: Now, wants: &Demand) -> Option<Now> {
        let mut moments = vec![
            self.watch.deadline(),
            self.signs.deadline(),
            self.off.until(now),
            wants.watches.then_some(self.watch.not_before),
        ];
        match &self.asked {
            Some(asked) => {
                moments.extend([Some(asked.sent.plus(GIVE_UP_AFTER)), self.forced_end_of_wait()]);
            }
            None => {
                moments.extend([Some(self.patience.not_before), Some(self.patience.take_not_before)]);
                match &self.phase {
                    Phase::Held(hold) => moments.extend([
                        wants.leads.then(|| hold.renewed.plus(RENEW_EVERY)),
                        Some(hold.forced_end()),
                        Some(hold.certain_until()),
                    ]),
                    Phase::DrainingAddresses(hold) => {
                        moments.extend([Some(hold.forced_end()), Some(hold.certain_until())]);
                    }
                    Phase::Apart => moments.push(match &self.known {
                        ObservedSharedLease::State(state) => {
                            match Holder::of(&state.facts, &self.params.holder) {
                                Holder::Ours => wants.watches.then(|| state.own_name_is_free()),
                                Holder::Other => wants.grant.then(|| state.foreign_hold_ends()),
                                Holder::Nobody => None,
                            }
                        }
                        ObservedSharedLease::Absent(at) => wants.watches.then(|| at.plus(ABSENT_AGAIN)),
                        ObservedSharedLease::Nothing => None,
                    }),
                }
            }
        }
        // For a Down that goes without it.
        moments.push(self.bypass_at());
        moments.push(self.tell_at());
        // What lies in the past was done, or waits for something else.
        moments.into_iter().map(|at| at.filter(|at| *at > now)).fold(None, earliest)
    }
}
