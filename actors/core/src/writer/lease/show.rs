//! What people see of the shared Lease (H3).

use std::sync::Arc;

use crate::machine::Now;
use crate::view::SharedLeaseView;

use super::asking::What;
use super::known::{Holder, Known};
use super::{Out, Phase, SharedLease};

/// What is said while somebody who is not known holds it in our name.
const STRANGER: &str = "another installation holds it in the name of this one; it is waited for";

impl SharedLease {
    /// Until when a hold in our name that somebody unknown has made is waited for, unless it changes.
    fn stranger_until(&self, now: Now) -> Option<Now> {
        match (&self.known, &self.phase, self.holder()) {
            (Known::State(state), Phase::Apart, Some(Holder::Ours)) => {
                Some(state.own_name_is_free()).filter(|until| now < *until)
            }
            (Known::State(_) | Known::Absent(_) | Known::Nothing, _, _) => None,
        }
    }

    /// Shows what has changed.
    pub(super) fn publish(&mut self, now: Now, out: &mut Vec<Out>) {
        let (state, until) = self.state(now);
        let since = match &self.shown {
            Some(shown) if shown.state == state => shown.since,
            Some(_) | None => now,
        };
        let holder = match &self.known {
            Known::State(known) => known.facts.holder.clone(),
            Known::Absent(_) | Known::Nothing => None,
        };
        let wanted_since = self.wanted_since;
        let last_error = match self.stranger_until(now) {
            Some(_) => Some(Arc::from(STRANGER)),
            None => self.last_error.as_ref().map(Arc::clone),
        };
        let view = SharedLeaseView { state, holder, since, until, wanted_since, last_error };
        if self.shown.as_ref() != Some(&view) {
            self.shown = Some(view.clone());
            out.push(Out::SharedLease(view));
        }
    }

    /// The word for what we do, and when that ends at the latest.
    fn state(&self, now: Now) -> (&'static str, Option<Now>) {
        match &self.phase {
            Phase::Held(hold) => return ("held", Some(hold.forced_end())),
            Phase::Leaving(hold) => return ("releasing", Some(hold.certain_until())),
            Phase::Apart => {}
        }
        match self.asked.as_ref().map(|asked| asked.what) {
            Some(What::Take) => return ("acquiring", None),
            Some(What::Release) => return ("releasing", None),
            Some(What::Look | What::Renew) | None => {}
        }
        if let Some(until) = self.off.until(now) {
            return ("off", Some(until));
        }
        if self.wanted_since.is_none() {
            return ("free", None);
        }
        if let Some(until) = self.stranger_until(now) {
            return ("waiting", Some(until));
        }
        match (&self.known, self.holder()) {
            (Known::State(state), Some(Holder::Other)) => ("waiting", Some(state.foreign_hold_ends())),
            (Known::State(_) | Known::Absent(_) | Known::Nothing, _) => ("acquiring", None),
        }
    }
}
