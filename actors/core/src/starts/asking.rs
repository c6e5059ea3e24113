//! The requests about our ConfigMap: it is looked at, and what differs from what is wanted is written (design.md A4).
//!
//! One request is under way at a time. A write names the state that it replaces; where that was no longer the newest,
//! or the answer was lost, the ConfigMap is looked at again.

use std::sync::Arc;
use std::time::Duration;

use crate::config_map::{ConfigMapAnswer, ConfigMapAsk, ConfigMapEdit, ConfigMapFacts, Value};
use crate::ids::CallId;
use crate::machine::{Now, earliest, step_of};
use crate::object::{GIVE_UP_AFTER, RequestFailure};
use crate::sample::Sample;

use super::{Note, Out, PROVEN_AFTER, Phase, Seen, Starts, notes};

/// How often a passive process looks whether a person has removed the notes.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The pause after a request that failed, while nothing else may begin or end.
const HURRY: Duration = Duration::from_millis(500);
/// The pauses after requests that failed one after another; the last one repeats.
const PAUSES: [Duration; 5] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(30),
];
/// By how much each further conflict in a row puts off the next look, and by how much at most.
const CONFLICT_STEP: Duration = Duration::from_millis(100);
const CONFLICT_MOST: Duration = Duration::from_secs(1);

/// The request that is under way, or the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Errand {
    /// Nothing is asked, and nothing will be.
    None,
    /// The ConfigMap is looked at.
    Look { at: Now },
    /// A request was sent.
    Asked { call: CallId, give_up: Now, what: What },
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum What {
    Look,
    Write,
}

impl Errand {
    pub(super) fn is_asked(&self) -> bool {
        match self {
            Errand::None | Errand::Look { .. } => false,
            Errand::Asked { .. } => true,
        }
    }

    /// When the next request is made, or the one under way is given up.
    pub(super) fn deadline(&self) -> Option<Now> {
        match self {
            Errand::None => None,
            Errand::Look { at } => Some(*at),
            Errand::Asked { give_up, .. } => Some(*give_up),
        }
    }
}

impl Starts {
    /// Does what is due about the ConfigMap.
    pub(super) fn go_on(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Errand::Asked { give_up, what, .. } = self.errand
            && give_up <= now
        {
            self.on_failed(now, what, "no answer in time".into());
        }
        if let Errand::Look { at } = self.errand
            && at <= now
        {
            self.ask(now, What::Look, ConfigMapAsk::Get, out);
        }
    }

    /// A shutdown: what is to be struck is struck now.
    pub(super) fn hasten(&mut self, now: Now) {
        self.errand = match (self.errand, self.note) {
            (Errand::Asked { what: What::Look, .. } | Errand::Look { .. } | Errand::None, Note::Absent) => {
                Errand::None
            }
            (Errand::Look { .. } | Errand::None, Note::Possible | Note::There) => Errand::Look { at: now },
            (asked @ Errand::Asked { .. }, Note::Absent | Note::Possible | Note::There) => asked,
        };
    }

    fn ask(&mut self, now: Now, what: What, ask: ConfigMapAsk, out: &mut Vec<Out>) {
        self.calls += 1;
        let call = CallId(self.calls);
        self.errand = Errand::Asked { call, give_up: now.plus(GIVE_UP_AFTER), what };
        if what == What::Write {
            self.note = Note::Possible;
        }
        out.push(Out::ConfigMap(call, ask));
    }

    /// Takes in the answer to the request that is under way.
    pub(super) fn on_answer(&mut self, now: Now, call: CallId, answer: ConfigMapAnswer, out: &mut Vec<Out>) {
        let Errand::Asked { call: open, what, .. } = self.errand else {
            out.push(Out::Sample(Sample::UnmatchedAnswer));
            return;
        };
        if open != call {
            out.push(Out::Sample(Sample::UnmatchedAnswer));
            return;
        }
        match answer {
            ConfigMapAnswer::Seen(facts) => {
                let there = facts.data.contains_key(&self.key);
                self.note = if there { Note::There } else { Note::Absent };
                self.on_state(now, what, Seen::Present(facts), out);
            }
            ConfigMapAnswer::Absent => {
                self.note = Note::Absent;
                self.on_state(now, what, Seen::Absent, out);
            }
            ConfigMapAnswer::Conflict => {
                let wait = CONFLICT_STEP.saturating_mul(self.failures).min(CONFLICT_MOST);
                self.failures = self.failures.saturating_add(1);
                self.errand = Errand::Look { at: now.plus(wait) };
            }
            ConfigMapAnswer::Failed(RequestFailure::Other(why)) => self.on_failed(now, what, why),
            ConfigMapAnswer::Failed(RequestFailure::Denied(why)) => {
                self.on_failed(now, what, why);
                // Whoever may not do it will not be let do it within seconds.
                match self.phase {
                    Phase::Deciding { .. } => self.begin(now, out),
                    Phase::Idle
                    | Phase::Active
                    | Phase::Passive { .. }
                    | Phase::Ending { .. }
                    | Phase::Done => {}
                }
            }
        }
    }

    /// A state was seen: what differs from what is wanted is written, but not twice in a row.
    fn on_state(&mut self, now: Now, what: What, seen: Seen, out: &mut Vec<Out>) {
        self.last_error = None;
        self.seen = Some(seen.clone());
        let (ask, mends) = match seen {
            Seen::Absent => {
                let edit = self.edit(now, None);
                let mends = !edit.is_empty();
                (ConfigMapAsk::Create(edit), mends)
            }
            Seen::Present(facts) => {
                let edit = self.edit(now, Some(&facts));
                let mends = !edit.is_empty();
                (ConfigMapAsk::Replace(facts, edit), mends)
            }
        };
        match what {
            What::Look | What::Write if !mends => {
                self.failures = 0;
                self.rest(now);
            }
            What::Look => self.ask(now, What::Write, ask, out),
            // Somebody else undoes it, or the server does not do it.
            What::Write => self.pause(now),
        }
    }

    /// What has to change in a state. A process that ends strikes its own note and nothing else.
    fn edit(&self, now: Now, facts: Option<&Arc<ConfigMapFacts>>) -> ConfigMapEdit {
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
        let next = earliest(strike, look);
        self.errand = next.map_or(Errand::None, |at| Errand::Look { at });
    }

    fn on_failed(&mut self, now: Now, what: What, why: Arc<str>) {
        self.last_error = Some(why);
        match what {
            What::Look => {}
            // It may have been carried out.
            What::Write => self.note = Note::Possible,
        }
        self.pause(now);
    }

    /// Looks again after a while, as long as there is anything to be done.
    fn pause(&mut self, now: Now) {
        let span = match self.phase {
            Phase::Deciding { .. } | Phase::Ending { .. } => HURRY,
            Phase::Idle | Phase::Active | Phase::Passive { .. } | Phase::Done => {
                step_of(&PAUSES, self.failures)
            }
        };
        self.failures = self.failures.saturating_add(1);
        let over = !self.wants_note(now) && self.note == Note::Absent;
        self.errand = match self.phase {
            Phase::Active | Phase::Ending { .. } if over => Errand::None,
            Phase::Idle
            | Phase::Deciding { .. }
            | Phase::Active
            | Phase::Passive { .. }
            | Phase::Ending { .. }
            | Phase::Done => Errand::Look { at: now.plus(span) },
        };
    }
}
