//! What is asked about our ConfigMap: it is looked at, and what differs from what is wanted is written (design.md A4).
//! How that is asked, one request at a time, is [`Errand`](crate::config_map::errand::Errand)'s business.

use std::sync::Arc;
use std::time::Duration;

use crate::config_map::errand::{Failed, News, Sight, What};
use crate::config_map::{ConfigMapAnswer, ConfigMapEdit, ConfigMapFacts, Value};
use crate::ids::CallId;
use crate::machine::{Now, earliest, step_of};
use crate::sample::Sample;

use super::{Note, Out, PROVEN_AFTER, Phase, Seen, Starts, notes};

/// How often a passive process looks whether a person has removed the notes.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How long after a failed request the next is made while nothing else may begin or end.
const HURRY: Duration = Duration::from_millis(500);
/// The same after failures in a row at all other times; the last one repeats.
const RETRY_AFTER: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
];

impl Starts {
    /// Does what is due about the ConfigMap.
    pub(super) fn go_on(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Some(failed) = self.errand.overdue(now) {
            self.on_failed(now, &failed);
        }
        if let Some((call, ask)) = self.errand.look(now, ()) {
            out.push(Out::ConfigMap(call, ask));
        }
    }

    /// A shutdown: what is to be struck is struck now.
    pub(super) fn hasten(&mut self, now: Now) {
        match (self.note, self.errand.asked()) {
            (Note::Absent, None | Some(What::Look)) => self.errand.stop(),
            (Note::Absent, Some(What::Write)) => {}
            (Note::Possible | Note::There, _) => self.errand.hurry(now),
        }
    }

    /// Takes in the answer to the request that is under way.
    pub(super) fn on_answer(&mut self, now: Now, call: CallId, answer: ConfigMapAnswer, out: &mut Vec<Out>) {
        match self.errand.on_answer(now, call, answer) {
            News::Unmatched => out.push(Out::Sample(Sample::UnmatchedAnswer)),
            News::Forestalled => {}
            News::State(sight) => self.on_state(now, sight, out),
            News::Failed(failed) => {
                self.on_failed(now, &failed);
                match self.phase {
                    // Nothing is to be had by waiting for it.
                    Phase::Deciding { .. } if failed.denied => self.begin(now, out),
                    Phase::Idle
                    | Phase::Deciding { .. }
                    | Phase::Active
                    | Phase::Passive { .. }
                    | Phase::Ending { .. }
                    | Phase::Done => {}
                }
            }
        }
    }

    /// A state was seen: what differs from what is wanted is written, but not twice in a row.
    fn on_state(&mut self, now: Now, sight: Sight<()>, out: &mut Vec<Out>) {
        let Sight { what, facts, call, when: () } = sight;
        let there = facts.as_ref().is_some_and(|facts| facts.data.contains_key(&self.key));
        self.note = if there { Note::There } else { Note::Absent };
        self.seen = Some(facts.clone().map_or(Seen::Absent, Seen::Present));
        let is_newer = self.restored_after.is_some_and(|after| call > after);
        let edit = self.edit(now, facts.as_ref(), is_newer);
        match what {
            What::Look | What::Write if edit.is_empty() => {
                self.errand.forget_setbacks();
                self.restored_after = self.restored_after.filter(|_| !is_newer);
                self.rest(now);
            }
            What::Look => {
                self.note = Note::Possible;
                let (call, ask) = self.errand.write(now, (), facts, edit);
                out.push(Out::ConfigMap(call, ask));
            }
            // Somebody else undoes it, or the server does not do it.
            What::Write => self.retry_later(now),
        }
    }

    /// What has to change in a state. A process that ends strikes its own note and nothing else.
    /// `restored`: it is one that the storage was set back to.
    fn edit(&self, now: Now, facts: Option<&Arc<ConfigMapFacts>>, restored: bool) -> ConfigMapEdit {
        let mut edit = ConfigMapEdit::default();
        let there = facts.is_some_and(|facts| facts.data.contains_key(&self.key));
        match (self.wants_note(now), there) {
            (true, false) => {
                edit.set.insert(Arc::clone(&self.key), Value::Time(self.started));
            }
            (false, true) => {
                edit.remove.insert(Arc::clone(&self.key));
            }
            (true, true) | (false, false) => {}
        }
        if restored && self.phase == Phase::Active {
            edit.remove.extend(facts.into_iter().flat_map(|facts| notes::restored(facts, &self.key)));
        }
        match self.phase {
            Phase::Deciding { .. } | Phase::Active | Phase::Passive { .. } => {
                edit.remove.extend(facts.into_iter().flat_map(|facts| notes::needless(facts, &self.key)));
            }
            Phase::Idle | Phase::Ending { .. } | Phase::Done => {}
        }
        edit
    }

    /// Everything is as it should be: when it is looked at again.
    pub(super) fn rest(&mut self, now: Now) {
        let strike = match self.note {
            Note::Absent => None,
            Note::Possible | Note::There => Some(now.max(self.started.plus(PROVEN_AFTER))),
        };
        let look = match self.phase {
            Phase::Passive { .. } => Some(now.plus(LOOK_EVERY)),
            Phase::Idle | Phase::Deciding { .. } | Phase::Active | Phase::Ending { .. } | Phase::Done => None,
        };
        let again = self.restored_after.map(|_| now);
        match earliest(again, earliest(strike, look)) {
            Some(at) => self.errand.look_at(at),
            None => self.errand.stop(),
        }
    }

    fn on_failed(&mut self, now: Now, failed: &Failed) {
        match failed.what {
            What::Look => {}
            // It may have been carried out.
            What::Write => self.note = Note::Possible,
        }
        self.retry_later(now);
    }

    /// Looks again after a while, as long as there is anything to be done.
    fn retry_later(&mut self, now: Now) {
        let span = match self.phase {
            Phase::Deciding { .. } | Phase::Ending { .. } => HURRY,
            Phase::Idle | Phase::Active | Phase::Passive { .. } | Phase::Done => {
                step_of(&RETRY_AFTER, self.errand.setbacks())
            }
        };
        self.errand.put_off(now, span);
        let over = !self.wants_note(now) && self.note == Note::Absent && self.restored_after.is_none();
        match self.phase {
            Phase::Active | Phase::Ending { .. } if over => self.errand.stop(),
            Phase::Idle
            | Phase::Deciding { .. }
            | Phase::Active
            | Phase::Passive { .. }
            | Phase::Ending { .. }
            | Phase::Done => {}
        }
    }
}
