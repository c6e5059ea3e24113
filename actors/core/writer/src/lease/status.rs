//! Views of the shared Lease (H3), and events about an unknown holder (W7).

use std::sync::Arc;
use std::time::Duration;

use model::machine::Now;
use model::report::{Condition, Ended, EventKind, Report, Subject};
use model::view::{LeaseHolderKind, SharedLeaseView};

use super::observed::{Holder, ObservedSharedLease};
use super::requests::SharedLeaseAction;
use super::{HoldPhase, Out, SharedLease};

/// Time for which a write must wait without a break for an unknown holder before that is reported.
const REPORT_AFTER: Duration = Duration::from_secs(60);

impl SharedLease {
    /// Returns the latest time until which another client's hold in our name delays us, unless it changes.
    fn same_name_until(&self, now: Now) -> Option<Now> {
        match (&self.observed, &self.phase, self.holder()) {
            (ObservedSharedLease::State(state), HoldPhase::NotHeld, Some(Holder::Ours)) => {
                Some(state.takeover_at()).filter(|until| now < *until)
            }
            (
                ObservedSharedLease::State(_) | ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing,
                _,
                _,
            ) => None,
        }
    }

    /// Publishes a changed view.
    pub(super) fn publish(&mut self, now: Now, out: &mut Vec<Out>) {
        let (state, until) = self.state(now);
        let since = match self.published.last() {
            Some(view) if view.state == state => view.since,
            Some(_) | None => now,
        };
        let holder = match &self.observed {
            ObservedSharedLease::State(observed) => observed.facts.holder.clone(),
            ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing => None,
        };
        let view = SharedLeaseView {
            state,
            holder_kind: self.holder_kind(),
            held_since: self.held_since().filter(|_| holder.is_some()),
            holder,
            since,
            until,
            wanted_since: self.wanted_since,
            last_error: self.last_error.clone().or_else(|| self.watch_failures.shown()),
        };
        out.extend(self.published.update(view).map(Out::SharedLease));
    }

    /// Returns the last known holder.
    fn holder_kind(&self) -> LeaseHolderKind {
        match &self.observed {
            ObservedSharedLease::Nothing => LeaseHolderKind::Unknown,
            ObservedSharedLease::Absent(_) => LeaseHolderKind::None,
            ObservedSharedLease::State(state) => state.holder_kind(&self.params.holder),
        }
    }

    fn held_since(&self) -> Option<Now> {
        match &self.observed {
            ObservedSharedLease::Nothing | ObservedSharedLease::Absent(_) => None,
            ObservedSharedLease::State(state) => Some(state.held_since),
        }
    }

    /// Returns the time at which an unknown holder is reported, if a write waits for it. `None`: already reported, or
    /// no such holder.
    pub(super) fn report_other_holder_at(&self) -> Option<Now> {
        let held_since = self.held_since()?;
        match self.holder_kind() {
            LeaseHolderKind::Other if self.reported_since != Some(held_since) => {
                Some(self.wanted_since?.max(held_since).plus(REPORT_AFTER))
            }
            LeaseHolderKind::Unknown
            | LeaseHolderKind::None
            | LeaseHolderKind::Controller
            | LeaseHolderKind::SameName
            | LeaseHolderKind::CloudControllerManager
            | LeaseHolderKind::Other => None,
        }
    }

    /// Reports an unknown holder, once for each of its holds.
    pub(super) fn report_other_holder(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.is_reported && self.reported_holder_is_gone() {
            self.is_reported = false;
            out.push(Out::Ended(Ended::of(Condition::LeaseHeld)));
        }
        if self.report_other_holder_at().is_none_or(|at| now < at) {
            return;
        }
        (self.reported_since, self.is_reported) = (self.held_since(), true);
        if let ObservedSharedLease::State(state) = &self.observed
            && let Some(holder) = &state.facts.holder
        {
            let what = EventKind::LeaseHeld { holder: Arc::clone(holder) };
            out.push(Out::Report(Report { subjects: vec![Subject::Controller], what, note: None }));
        }
    }

    /// Returns whether the reported unknown holder does not hold the Lease any more.
    fn reported_holder_is_gone(&self) -> bool {
        match self.holder_kind() {
            LeaseHolderKind::Other => self.reported_since != self.held_since(),
            LeaseHolderKind::Unknown
            | LeaseHolderKind::None
            | LeaseHolderKind::Controller
            | LeaseHolderKind::SameName
            | LeaseHolderKind::CloudControllerManager => true,
        }
    }

    /// Returns our state for the operator, and the latest time of its end.
    fn state(&self, now: Now) -> (&'static str, Option<Now>) {
        match &self.phase {
            HoldPhase::Held(hold) => return ("held", Some(hold.forced_end())),
            HoldPhase::Releasing(hold) => return ("releasing", Some(hold.certain_until())),
            HoldPhase::NotHeld => {}
        }
        match self.open_request.as_ref().map(|open_request| open_request.kind) {
            Some(SharedLeaseAction::Take) => return ("acquiring", None),
            Some(SharedLeaseAction::Release) => return ("releasing", None),
            Some(SharedLeaseAction::Read | SharedLeaseAction::Renew) | None => {}
        }
        if let Some(until) = self.cooldown.until(now) {
            return ("cooldown", Some(until));
        }
        if self.wanted_since.is_none() {
            return ("free", None);
        }
        if let Some(until) = self.same_name_until(now) {
            return ("waiting", Some(until));
        }
        match (&self.observed, self.holder()) {
            (ObservedSharedLease::State(state), Some(Holder::Other)) => {
                ("waiting", Some(state.foreign_hold_ends()))
            }
            (
                ObservedSharedLease::State(_) | ObservedSharedLease::Absent(_) | ObservedSharedLease::Nothing,
                _,
            ) => ("acquiring", None),
        }
    }
}
