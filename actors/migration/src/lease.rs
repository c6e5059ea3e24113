//! Holds one Lease for the duration of a command. The Lease is acquired when it is free, renewed, and released. Unlike
//! the controller's own machines, this one has no terms and no turns: a command waits, works, and ends.
//!
//! A hold of another client has ended when its Lease has not changed for a certain time, by the clock of this process.

use std::sync::Arc;
use std::time::Duration;

use model::ids::CallId;
use model::lease::{LeaseAnswer, LeaseEdit, LeaseFacts, LeaseRequest};
use model::machine::{Machine, Now};
use model::object::ResourceVersion;

/// Time between two reads, and delay after a failure.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Time before the end of a hold in which no change is started.
const MARGIN: Duration = Duration::from_secs(25);

/// Settings for holding a Lease.
#[derive(Clone, Debug)]
pub struct LeaseParams {
    /// Identity of the holder.
    pub holder: Arc<str>,
    /// Time for which a hold lasts after its last renewal.
    pub duration: Duration,
    /// Time between two renewals.
    pub renew_every: Duration,
    /// Time for which a hold of another client lasts after its last change.
    pub foreign_for: Duration,
    /// Lease duration that is written at a release.
    pub released_duration: Duration,
    /// True if the holder's name stays in the Lease at a release.
    pub leaves_name: bool,
}

/// Inputs of the machine.
#[derive(Clone, Debug)]
pub enum LeaseIn {
    /// True if the Lease is needed.
    Want(bool),
    /// The answer to a request.
    Answer(CallId, LeaseAnswer),
}

/// Outputs of the machine.
#[derive(Clone, Debug)]
pub enum LeaseOut {
    /// A request about the Lease.
    Request(CallId, LeaseRequest),
    /// True if this process holds the Lease.
    Held(bool),
    /// Another client holds the Lease.
    HeldBy(Arc<str>),
    /// A request has failed, for this reason; the machine tries again.
    Failed(String),
}

/// Holds one Lease.
#[derive(Debug)]
pub struct LeaseHold {
    params: LeaseParams,
    is_wanted: bool,
    /// The state of the Lease after our last successful write, and the time at which that write was sent.
    held: Option<(Arc<LeaseFacts>, Now)>,
    /// The last version that was read, and the time since which it has been the same.
    observed: Option<(ResourceVersion, Now)>,
    pending: Option<(CallId, Now, LeaseAction)>,
    next: Now,
    last: u64,
    shown: Option<bool>,
    last_reported: Option<Arc<str>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LeaseAction {
    Read,
    Take,
    Renew,
    Release,
}

impl LeaseHold {
    /// Returns a hold that is not wanted yet.
    #[must_use]
    pub fn new(params: LeaseParams) -> LeaseHold {
        LeaseHold {
            params,
            is_wanted: false,
            held: None,
            observed: None,
            pending: None,
            next: Now::ZERO,
            last: 0,
            shown: None,
            last_reported: None,
        }
    }

    /// Returns the time until which a change may be sent under the current hold; `None` if no change may be sent.
    #[must_use]
    pub fn send_deadline(&self) -> Option<Now> {
        let (_, renewed) = self.held.as_ref().filter(|_| self.is_wanted)?;
        Some(renewed.plus(self.params.duration).minus(MARGIN))
    }

    /// Returns whether this process neither holds the Lease nor has a request in flight.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.held.is_none() && self.pending.is_none()
    }

    fn edit(&self) -> LeaseEdit {
        LeaseEdit {
            holder: Some(Arc::clone(&self.params.holder)),
            duration: self.params.duration,
            acquired: false,
            transition: false,
            previous_holder: None,
            gates: None,
            out_of_sync: None,
        }
    }

    fn released(&self) -> LeaseEdit {
        let previous_holder = self.params.leaves_name.then(|| Arc::clone(&self.params.holder));
        LeaseEdit { holder: None, duration: self.params.released_duration, previous_holder, ..self.edit() }
    }

    fn on_answer(&mut self, now: Now, call: CallId, answer: LeaseAnswer, out: &mut Vec<LeaseOut>) {
        let Some((_, sent, pending)) = self.pending.take_if(|(id, _, _)| *id == call) else { return };
        self.next = now;
        match (pending, answer) {
            (LeaseAction::Read, LeaseAnswer::Seen(facts)) => self.on_read(now, facts, out),
            (LeaseAction::Read, LeaseAnswer::Absent) => self.send(
                now,
                LeaseAction::Take,
                |edit| LeaseRequest::Create(LeaseEdit { acquired: true, ..edit }),
                out,
            ),
            (LeaseAction::Take | LeaseAction::Renew, LeaseAnswer::Seen(facts)) => {
                self.last_reported = None;
                self.held = Some((facts, sent));
                self.next = sent.plus(self.params.renew_every);
            }
            (LeaseAction::Release, LeaseAnswer::Seen(_)) => self.held = None,
            // The Lease was written by another client, so it must be read again.
            (_, LeaseAnswer::Absent | LeaseAnswer::Conflict | LeaseAnswer::Unchanged) => self.held = None,
            (_, LeaseAnswer::Failed(failure)) => {
                out.push(LeaseOut::Failed(failure.into_why().to_string()));
                self.next = now.plus(POLL_INTERVAL);
            }
        }
    }

    fn on_read(&mut self, now: Now, facts: Arc<LeaseFacts>, out: &mut Vec<LeaseOut>) {
        let since = match &self.observed {
            Some((version, since)) if *version == facts.version => *since,
            Some(_) | None => now,
        };
        self.observed = Some((facts.version.clone(), since));
        let holder = facts.holder.clone().filter(|holder| *holder != self.params.holder);
        match holder {
            Some(holder) if now < since.plus(self.params.foreign_for) => {
                if self.last_reported.as_ref() != Some(&holder) {
                    self.last_reported = Some(Arc::clone(&holder));
                    out.push(LeaseOut::HeldBy(holder));
                }
                self.next = now.plus(POLL_INTERVAL);
            }
            Some(_) | None => {
                let transition = facts.holder.as_ref() != Some(&self.params.holder);
                self.send(
                    now,
                    LeaseAction::Take,
                    |edit| LeaseRequest::Replace(facts, LeaseEdit { acquired: true, transition, ..edit }),
                    out,
                );
            }
        }
    }

    fn send(
        &mut self,
        now: Now,
        action: LeaseAction,
        request: impl FnOnce(LeaseEdit) -> LeaseRequest,
        out: &mut Vec<LeaseOut>,
    ) {
        self.last += 1;
        let id = CallId(self.last);
        self.pending = Some((id, now, action));
        let edit = if action == LeaseAction::Release { self.released() } else { self.edit() };
        out.push(LeaseOut::Request(id, request(edit)));
    }

    fn proceed(&mut self, now: Now, out: &mut Vec<LeaseOut>) {
        if self.held.as_ref().is_some_and(|(_, renewed)| now >= renewed.plus(self.params.duration)) {
            self.held = None;
        }
        if self.pending.is_none() && now >= self.next {
            match (self.is_wanted, self.held.clone()) {
                (true, None) => self.send(now, LeaseAction::Read, |_| LeaseRequest::Get, out),
                (true, Some((facts, _))) => {
                    self.send(now, LeaseAction::Renew, |edit| LeaseRequest::Replace(facts, edit), out)
                }
                (false, Some((facts, _))) => {
                    self.send(now, LeaseAction::Release, |edit| LeaseRequest::Replace(facts, edit), out)
                }
                (false, None) => {}
            }
        }
        let is_held = self.send_deadline().is_some_and(|last| now < last);
        if self.shown != Some(is_held) {
            self.shown = Some(is_held);
            out.push(LeaseOut::Held(is_held));
        }
    }
}

impl Machine for LeaseHold {
    type In = LeaseIn;
    type Out = LeaseOut;

    fn step(&mut self, now: Now, input: LeaseIn, out: &mut Vec<LeaseOut>) {
        match input {
            LeaseIn::Want(wanted) if wanted != self.is_wanted => {
                self.is_wanted = wanted;
                self.next = now;
            }
            LeaseIn::Want(_) => {}
            LeaseIn::Answer(call, answer) => self.on_answer(now, call, answer, out),
        }
        self.proceed(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let asks = (self.pending.is_none() && (self.is_wanted || self.held.is_some())).then_some(self.next);
        let ends = self.send_deadline().filter(|_| self.shown == Some(true));
        model::machine::earliest(asks, ends)
    }

    fn tick(&mut self, now: Now, out: &mut Vec<LeaseOut>) {
        self.proceed(now, out);
    }
}
