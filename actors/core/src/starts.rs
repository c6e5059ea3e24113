//! The notes of starts: owns what this process writes about its own start to our ConfigMap, and decides by the notes
//! of earlier starts whether it begins passive (design.md A4).
//!
//! Each start is noted under `start.<identity>` and struck after 10 minutes of life or a clean stop, so a note that
//! stands is a process that is young or that ended badly. A process begins passive when 3 notes of earlier starts
//! bear its own name (a container that is restarted again and again in its Pod: where all Pods crash, each of them
//! sees its own), or 9 bear any name (Pods that are replaced by Pods of other names). Notes older than an hour are
//! struck by whoever sees them, so the object stays small. Passive, it reads everything and writes nothing but notes:
//! the Leader does not compete, so a healthy replica leads. That ends after 30 minutes of life, or as soon as so
//! many of the notes that made it so are gone that the rest would not have: a person has removed them, or processes
//! that have proven themselves have struck theirs. Whoever cannot read or write the notes begins active after 10 s at
//! most. Where the API server's storage is set back to an earlier state, notes come back that were struck, and would
//! make every process passive that starts within the hour: whoever is active then strikes all but the newest. What
//! passive means for leadership is the Leader's business; the requests stand in `starts/asking.rs`, what a state of the
//! ConfigMap says in `starts/notes.rs`.
//!
//! A4's letter makes a start passive at 3 notes, whoever left them. We depart from it, and count those of other names
//! only from 9 on: a healthy replica of a rollout has a note too until it is 10 minutes old, and so has each that was
//! killed with its Node, so that the fourth replica of a healthy rollout would find 3.

mod asking;
mod notes;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use crate::config_map::errand::Errand;
use crate::config_map::{ConfigMapAnswer, ConfigMapAsk, ConfigMapFacts};
use crate::ids::CallId;
use crate::machine::{Machine, Now, earliest};
use crate::sample::Sample;
use crate::view::StartsView;
pub use notes::Outlook;
use notes::Reason;

/// How long a process has to live for its start not to count any more.
const PROVEN_AFTER: Duration = Duration::from_secs(600);
/// How long a process that began passive stays so.
const PASSIVE_FOR: Duration = Duration::from_secs(1_800);
/// How long the first decision may take; then the process begins with what is known.
const DECIDED_WITHIN: Duration = Duration::from_secs(10);
/// How long after a shutdown the note may take to be struck.
const STRUCK_WITHIN: Duration = Duration::from_secs(2);

/// For which process the next start would be passive by the notes of a state of our ConfigMap (A4): for those who look at
/// it beside the machine.
#[must_use]
pub fn outlook(facts: &ConfigMapFacts) -> Outlook {
    notes::outlook(facts)
}

/// What the machine is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// Who this process is: `<name>_<what is unique among all restarts>`.
    pub identity: Arc<str>,
    /// Whether starts are noted.
    pub keeping: Keeping,
}

/// Whether starts are noted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeping {
    /// They are.
    Notes,
    /// They are not, and the process begins at once: a dry run (C4).
    Nothing,
}

/// What the machine can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// Begin; after the first time it does nothing.
    Start,
    /// The answer to a request about our ConfigMap.
    ConfigMap(CallId, ConfigMapAnswer),
    /// The API server's storage was set back to an earlier state: the notes may be of a past that is over.
    Restored,
    /// The process ends in good order: the note is struck.
    Shutdown,
}

/// What the machine can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the kubernetes port, about our ConfigMap.
    ConfigMap(CallId, ConfigMapAsk),
    /// To the Leader: whether it stays out of the election.
    Passive(bool),
    /// To the Leader: it may begin.
    Begin,
    /// To the board.
    View(StartsView),
    /// To the metrics.
    Sample(Sample),
    /// To the process: after a shutdown, the note is struck, or was given up: whether it is known to be gone.
    Struck {
        /// Whether no note of this start can be there.
        is_gone: bool,
    },
}

/// The note of this start, and whether the process is passive (A4).
#[derive(Debug)]
pub struct Starts {
    params: Params,
    /// The key of our own note.
    key: Arc<str>,
    phase: Phase,
    /// When it began.
    started: Now,
    errand: Errand<()>,
    note: Note,
    /// The storage was set back, and what has come back is to be struck; answers to calls up to this one may be older.
    restored_after: Option<CallId>,
    /// The state of the ConfigMap that was seen last.
    seen: Option<Seen>,
    /// How many notes counted when the process began; `None`: not known.
    counted: Option<usize>,
    shown: Option<StartsView>,
}

/// How far the process has come.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// Not begun.
    Idle,
    /// The notes are read and ours is written before anything else begins; until this moment at the latest.
    Deciding { until: Now },
    /// At work.
    Active,
    /// Begun, and out of the election until this moment, or until the reason is gone.
    Passive { until: Now, reason: Reason },
    /// A shutdown: the note is struck, until this moment at the latest.
    Ending { until: Now },
    /// Over.
    Done,
}

/// What is known of our own note.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Note {
    /// It was never written, or it is struck.
    Absent,
    /// A write that makes it or strikes it has no answer: it may be there.
    Possible,
    /// It is there.
    There,
}

/// What the ConfigMap was when it was last seen.
#[derive(Clone, Debug)]
enum Seen {
    Absent,
    Present(Arc<ConfigMapFacts>),
}

impl Starts {
    /// One that has not begun.
    #[must_use]
    pub fn new(params: Params) -> Starts {
        Starts {
            key: notes::key(&params.identity),
            params,
            phase: Phase::Idle,
            started: Now::ZERO,
            errand: Errand::new(),
            note: Note::Absent,
            restored_after: None,
            seen: None,
            counted: None,
            shown: None,
        }
    }

    fn on_start(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.phase != Phase::Idle {
            return;
        }
        self.started = now;
        match self.params.keeping {
            Keeping::Notes => {
                self.phase = Phase::Deciding { until: now.plus(DECIDED_WITHIN) };
                self.errand.look_at(now);
            }
            Keeping::Nothing => {
                self.phase = Phase::Active;
                out.push(Out::Begin);
            }
        }
    }

    /// Begins, active or passive, by the notes that are known.
    fn begin(&mut self, now: Now, out: &mut Vec<Out>) {
        let known = match &self.seen {
            Some(Seen::Present(facts)) => Some(notes::counting(facts, &self.key)),
            Some(Seen::Absent) => Some(notes::Counting::default()),
            None => None,
        };
        self.counted = known.as_ref().map(notes::Counting::told);
        match known.and_then(notes::Counting::reason) {
            Some(reason) => {
                self.phase = Phase::Passive { until: self.started.plus(PASSIVE_FOR), reason };
                out.push(Out::Sample(Sample::Passive(true)));
                out.push(Out::Passive(true));
            }
            None => self.phase = Phase::Active,
        }
        out.push(Out::Begin);
        if self.note == Note::There && self.errand.asked().is_none() {
            self.rest(now);
        }
    }

    /// What has come back is struck by who is at work; others are told nothing of it, or have notes of their own to heed.
    fn on_restored(&mut self, now: Now) {
        match self.phase {
            Phase::Active if self.params.keeping == Keeping::Notes => {
                self.restored_after = Some(CallId(self.errand.calls()));
                self.errand.hurry(now);
            }
            Phase::Active
            | Phase::Idle
            | Phase::Deciding { .. }
            | Phase::Passive { .. }
            | Phase::Ending { .. }
            | Phase::Done => {}
        }
    }

    fn on_shutdown(&mut self, now: Now) {
        match self.phase {
            Phase::Idle | Phase::Deciding { .. } | Phase::Active | Phase::Passive { .. } => {
                self.phase = Phase::Ending { until: now.plus(STRUCK_WITHIN) };
                self.errand.forget_setbacks();
                self.hasten(now);
            }
            Phase::Ending { .. } | Phase::Done => {}
        }
    }

    /// Whether our note should be there.
    fn wants_note(&self, now: Now) -> bool {
        match self.phase {
            Phase::Deciding { .. } | Phase::Active | Phase::Passive { .. } => {
                now < self.started.plus(PROVEN_AFTER)
            }
            Phase::Idle | Phase::Ending { .. } | Phase::Done => false,
        }
    }

    /// Does what time and the last input allow; the end of every step and tick.
    fn advance(&mut self, now: Now, out: &mut Vec<Out>) {
        self.go_on(now, out);
        match &self.phase {
            Phase::Deciding { until } => {
                if *until <= now || self.note == Note::There {
                    self.begin(now, out);
                }
            }
            Phase::Passive { until, reason } => {
                let stands = match &self.seen {
                    Some(Seen::Present(facts)) => reason.stands(facts),
                    Some(Seen::Absent) => false,
                    None => true,
                };
                if *until <= now || !stands {
                    self.phase = Phase::Active;
                    out.push(Out::Sample(Sample::Passive(false)));
                    out.push(Out::Passive(false));
                }
            }
            Phase::Ending { until } => {
                if *until <= now || (self.note == Note::Absent && self.errand.asked().is_none()) {
                    self.phase = Phase::Done;
                    self.errand.stop();
                    out.push(Out::Struck { is_gone: self.note == Note::Absent });
                }
            }
            Phase::Idle | Phase::Active | Phase::Done => {}
        }
        self.show(out);
        debug_assert!(self.check(now).is_ok(), "{:?}", self.check(now));
    }

    /// The invariants that hold between any two steps.
    ///
    /// # Errors
    /// The one that does not hold.
    fn check(&self, now: Now) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        let idle = self.errand.is_idle();
        match self.phase {
            Phase::Idle | Phase::Done => rule(idle, "something is asked before the start or after the end")?,
            Phase::Deciding { until } => {
                rule(now < until, "the process is kept from beginning")?;
                rule(!idle, "nothing is asked and nothing will be")?;
            }
            Phase::Passive { until, .. } => rule(now < until, "passive for too long")?,
            Phase::Ending { until } => {
                rule(now < until, "the process is kept from ending")?;
                rule(!idle, "the note is not struck and will not be")?;
            }
            Phase::Active => {}
        }
        let keeps = self.params.keeping == Keeping::Notes;
        rule(keeps || (idle && self.note == Note::Absent), "a note where none is kept")
    }

    fn show(&mut self, out: &mut Vec<Out>) {
        let (phase, until) = match &self.phase {
            Phase::Idle => return,
            Phase::Deciding { .. } => ("deciding", None),
            Phase::Active => ("active", None),
            Phase::Passive { until, .. } => ("passive", Some(*until)),
            Phase::Ending { .. } | Phase::Done => ("stopping", None),
        };
        let view = StartsView {
            phase,
            until,
            notes: self.counted,
            noted: self.note == Note::There,
            last_error: self.errand.last_error().cloned(),
        };
        if self.shown.as_ref() != Some(&view) {
            self.shown = Some(view.clone());
            out.push(Out::View(view));
        }
    }
}

impl Machine for Starts {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::Start => self.on_start(now, out),
            In::ConfigMap(call, answer) => self.on_answer(now, call, answer, out),
            In::Restored => self.on_restored(now),
            In::Shutdown => self.on_shutdown(now),
        }
        self.advance(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let phase = match &self.phase {
            Phase::Deciding { until } | Phase::Passive { until, .. } | Phase::Ending { until } => {
                Some(*until)
            }
            Phase::Idle | Phase::Active | Phase::Done => None,
        };
        earliest(phase, self.errand.deadline())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        match self.phase {
            Phase::Idle | Phase::Done => {}
            Phase::Deciding { .. } | Phase::Active | Phase::Passive { .. } | Phase::Ending { .. } => {
                self.advance(now, out);
            }
        }
    }
}
