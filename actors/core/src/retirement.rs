//! How a Deployment comes to run no Pods, so that whoever deletes it together with the Pods' rights takes these from
//! nobody who still needs them to give his Leases back (docs/design/writer.md, W7; W8), or to take nodes back that are
//! Down by us (N4). It owns what is asked next, when it is over or too late, and what is worth telling; asking and
//! telling are the command's business.
//!
//! Its requests are answered one by one, and it makes none while another one is under way. Whoever carries them out bounds
//! them: one that is under way when the time is over is waited for.
//!
//! Nodes are taken back by the Pods, so that comes first: a note in our ConfigMap switches the admin state off, and no
//! longer than for half of the time it is waited for that no node is noted as Down. However all of it ends, the note is
//! taken away at last. What the keys say stands in `retirement/notes.rs`.

mod notes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::admin_state::records::is_off;
use crate::config_map::{ConfigMapAnswer, ConfigMapAsk};
use crate::machine::{Machine, Now};
use crate::object::RequestFailure;
use notes::Downs;

/// How long after an answer it is asked again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often it is tried to take the note away.
const TRIES: u32 = 3;
/// What is told of a write that others forestall.
const FORESTALLED: &str = "somebody else writes it at the same time";

/// How many Pods a Deployment runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scale {
    /// How many it is to run.
    pub wanted: i32,
    /// Whether its controller has heard that, and knows of no Pod.
    pub settled: bool,
}

/// What was seen at one look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// The Deployment; `None`: there is none.
    pub scale: Option<Scale>,
    /// The names of its Pods that have not ended. Where there is no Deployment, those that would be its own by their
    /// labels; `None`: it is not known by which.
    pub pods: Option<BTreeSet<String>>,
}

/// What the machine can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// Begin; time counts from here.
    Start,
    /// The answer to [`Out::Look`].
    Seen(Seen),
    /// The answer to [`Out::ScaleDown`]: it is done.
    Scaled,
    /// Either had no good answer, for this reason.
    Failed(String),
    /// The answer to [`Out::ConfigMap`].
    ConfigMap(ConfigMapAnswer),
    /// It is to end now. What is under way is not answered any more.
    Terminated,
}

/// What the machine can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// Read the Deployment and its Pods.
    Look,
    /// Have the Deployment run no Pods.
    ScaleDown {
        /// How many it is to run now.
        from: i32,
    },
    /// Ask this of our ConfigMap.
    ConfigMap(ConfigMapAsk),
    /// It is waited for this, and was not before.
    WaitsFor(Left),
    /// These nodes are Down by us, and it is waited for that they are taken back; others were told before, or none.
    TakesBack(BTreeSet<String>),
    /// Nodes stay Down, or may; that was not told before.
    StaysDown(Stay),
    /// The note that switches the admin state off may still be there, for this reason.
    NoteStays(String),
    /// It is over, once.
    Ended(End),
}

/// What keeps it from being over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// These Pods have not ended.
    Pods(BTreeSet<String>),
    /// These Pods have not ended, and there is no Deployment.
    Orphans(BTreeSet<String>),
    /// The Deployment's controller has not carried it out.
    Controller,
    /// The last request had no good answer, for this reason.
    Unknown(String),
}

/// Which nodes stay Down.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stay {
    /// These, by their names.
    Nodes(BTreeSet<String>),
    /// Nobody has said where they are noted.
    Unnamed,
    /// It is not known, for this reason.
    Unknown(String),
}

/// How it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The Deployment was not there at any look, nor a Pod of it, where it is known which these are.
    Absent,
    /// None of its Pods runs.
    Retired,
    /// The time is over.
    Late(Left),
    /// It was told to end.
    Terminated,
}

/// One Deployment on its way to no Pods (W7, W8).
#[derive(Debug)]
pub struct Retirement {
    within: Duration,
    phase: Phase,
    notes: Notes,
    /// Whether the Deployment or a Pod of it was there at some look.
    found: bool,
    /// What was last said that it waits for.
    told: Option<Left>,
    /// Which nodes were last said to be taken back.
    taken_back: Option<BTreeSet<String>>,
    /// Which nodes were last said to stay Down.
    stays: Option<Stay>,
}

/// What is done about nodes that are Down by us.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Notes {
    /// Nobody has said where they are noted.
    Unnamed,
    /// Nothing yet.
    Untouched,
    /// It was begun to switch the admin state off. No state of our ConfigMap was seen since.
    Begun,
    /// The admin state was switched off, or may have been.
    Off,
    /// Nothing more.
    Closed,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Phase {
    /// Not begun.
    Idle,
    /// [`Out::Look`] is under way.
    Looking {
        until: Now,
    },
    /// A request is under way by which the admin state is switched off, or seen who is still Down.
    TakingBack {
        until: Now,
        what: What,
    },
    /// Who is still Down is seen again at `next`.
    Waiting {
        until: Now,
        next: Now,
    },
    /// [`Out::ScaleDown`] is under way.
    Scaling {
        until: Now,
    },
    /// It looks again at `next`.
    Resting {
        until: Now,
        next: Now,
    },
    /// How it ends is certain, and a request is under way by which the note is taken away.
    Closing {
        end: End,
        /// How often that has failed.
        failures: u32,
        what: What,
    },
    /// That is tried again at `next`.
    Reclosing {
        end: End,
        failures: u32,
        next: Now,
    },
    Over,
}

/// What a request about our ConfigMap does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    Look,
    Write,
}

impl Retirement {
    /// One that has not begun, and may take so long.
    #[must_use]
    pub fn new(within: Duration) -> Retirement {
        Retirement {
            within,
            phase: Phase::Idle,
            notes: Notes::Unnamed,
            found: false,
            told: None,
            taken_back: None,
            stays: None,
        }
    }

    /// The same, and the nodes that our ConfigMap notes as Down by us are taken back first (N4).
    #[must_use]
    pub fn taking_back(mut self) -> Retirement {
        self.notes = Notes::Untouched;
        self
    }

    fn look(&mut self, until: Now, out: &mut Vec<Out>) {
        self.phase = Phase::Looking { until };
        out.push(Out::Look);
    }

    fn on_seen(&mut self, now: Now, until: Now, seen: Seen, out: &mut Vec<Out>) {
        let Seen { scale, pods } = seen;
        let was_found = self.found;
        let runs = pods.as_ref().is_some_and(|pods| !pods.is_empty());
        self.found |= scale.is_some() || runs;
        match (scale, pods) {
            (Some(Scale { wanted, .. }), _) if wanted > 0 => self.on_running(until, wanted, out),
            (Some(_), Some(pods)) if runs => self.wait(now, until, Left::Pods(pods), out),
            (Some(_), None) => {
                let why = "nobody says by which labels its Pods are known".to_owned();
                self.wait(now, until, Left::Unknown(why), out);
            }
            (Some(Scale { settled: false, .. }), Some(_)) => self.wait(now, until, Left::Controller, out),
            (Some(Scale { settled: true, .. }), Some(_)) => self.end(End::Retired, out),
            // Whoever has deleted it, its Pods end later than it, or not at all.
            (None, Some(pods)) if runs => self.wait(now, until, Left::Orphans(pods), out),
            (None, _) if was_found => self.end(End::Retired, out),
            (None, _) => self.end(End::Absent, out),
        }
    }

    /// As long as Pods run, they can take nodes back. After that they are told to end.
    fn on_running(&mut self, until: Now, wanted: i32, out: &mut Vec<Out>) {
        match self.notes {
            Notes::Untouched => {
                self.notes = Notes::Begun;
                self.see_downs(until, out);
                return;
            }
            Notes::Unnamed => {
                self.notes = Notes::Closed;
                self.tell_stay(Stay::Unnamed, out);
            }
            Notes::Begun | Notes::Off | Notes::Closed => {}
        }
        self.phase = Phase::Scaling { until };
        out.push(Out::ScaleDown { from: wanted });
    }

    /// Looks again later, unless it is too late; says what it waits for, if that is news.
    fn wait(&mut self, now: Now, until: Now, left: Left, out: &mut Vec<Out>) {
        if self.rest(now, until, &left, out) {
            self.tell_wait(left, out);
        }
    }

    fn tell_wait(&mut self, left: Left, out: &mut Vec<Out>) {
        if self.told.as_ref() != Some(&left) {
            out.push(Out::WaitsFor(left.clone()));
            self.told = Some(left);
        }
    }

    fn tell_stay(&mut self, stay: Stay, out: &mut Vec<Out>) {
        if self.stays.as_ref() != Some(&stay) {
            out.push(Out::StaysDown(stay.clone()));
            self.stays = Some(stay);
        }
    }

    /// Looks again later, unless it is too late; whether it is not.
    fn rest(&mut self, now: Now, until: Now, left: &Left, out: &mut Vec<Out>) -> bool {
        let is_in_time = now < until;
        if is_in_time {
            self.phase = Phase::Resting { until, next: now.plus(LOOK_EVERY).min(until) };
        } else {
            self.end(End::Late(left.clone()), out);
        }
        is_in_time
    }

    /// Sees who is still Down by us.
    fn see_downs(&mut self, until: Now, out: &mut Vec<Out>) {
        self.phase = Phase::TakingBack { until, what: What::Look };
        out.push(Out::ConfigMap(ConfigMapAsk::Get));
    }

    /// Switches the admin state off where it is not, and waits until nobody is Down by us.
    fn on_notes(&mut self, now: Now, until: Now, what: What, answer: ConfigMapAnswer, out: &mut Vec<Out>) {
        match answer {
            ConfigMapAnswer::Seen(facts) if what == What::Look && !is_off(&facts) => {
                self.notes = Notes::Off;
                self.phase = Phase::TakingBack { until, what: What::Write };
                out.push(Out::ConfigMap(ConfigMapAsk::Replace(facts, notes::switching_off(now))));
            }
            ConfigMapAnswer::Seen(facts) => {
                self.notes = Notes::Off;
                self.on_downs(now, until, Downs::of(&facts, now), out);
            }
            ConfigMapAnswer::Absent => self.stop_taking_back(until, "it does not exist".to_owned(), out),
            ConfigMapAnswer::Failed(RequestFailure::Denied(why)) => {
                self.stop_taking_back(until, why.to_string(), out);
            }
            ConfigMapAnswer::Conflict => self.on_notes_unknown(now, until, FORESTALLED.to_owned(), out),
            ConfigMapAnswer::Failed(RequestFailure::Other(why)) => {
                self.on_notes_unknown(now, until, why.to_string(), out);
            }
        }
    }

    fn on_downs(&mut self, now: Now, until: Now, downs: Downs, out: &mut Vec<Out>) {
        if downs.nodes.is_empty() || !self.awaits_downs(now, until) {
            self.tell_left(downs, out);
            self.look(until, out);
        } else if self.taken_back.as_ref() != Some(&downs.nodes) {
            out.push(Out::TakesBack(downs.nodes.clone()));
            self.taken_back = Some(downs.nodes);
        }
    }

    fn tell_left(&mut self, downs: Downs, out: &mut Vec<Out>) {
        let left = downs.left();
        if !left.is_empty() {
            self.tell_stay(Stay::Nodes(left), out);
        }
    }

    fn on_notes_unknown(&mut self, now: Now, until: Now, why: String, out: &mut Vec<Out>) {
        if self.awaits_downs(now, until) {
            self.tell_wait(Left::Unknown(why), out);
        } else {
            self.tell_stay(Stay::Unknown(why), out);
            self.look(until, out);
        }
    }

    /// Sees later who is still Down, unless half of the time is over; whether it is not.
    fn awaits_downs(&mut self, now: Now, until: Now) -> bool {
        let half = until.minus(self.within / 2);
        let is_in_time = now < half;
        if is_in_time {
            self.phase = Phase::Waiting { until, next: now.plus(LOOK_EVERY).min(half) };
        }
        is_in_time
    }

    /// Asking again would be of no use, but for a note that may have been written before.
    fn stop_taking_back(&mut self, until: Now, why: String, out: &mut Vec<Out>) {
        match self.notes {
            Notes::Off => {}
            Notes::Unnamed | Notes::Untouched | Notes::Begun | Notes::Closed => self.notes = Notes::Closed,
        }
        self.tell_stay(Stay::Unknown(why), out);
        self.look(until, out);
    }

    /// Ends, once the note is taken away; an earlier call may have left it.
    fn end(&mut self, end: End, out: &mut Vec<Out>) {
        let may_be_off = match self.notes {
            Notes::Off => true,
            Notes::Untouched | Notes::Begun => end != End::Terminated,
            Notes::Unnamed | Notes::Closed => false,
        };
        if may_be_off {
            self.close(end, 0, out);
        } else {
            self.be_over(end, out);
        }
    }

    fn close(&mut self, end: End, failures: u32, out: &mut Vec<Out>) {
        self.phase = Phase::Closing { end, failures, what: What::Look };
        out.push(Out::ConfigMap(ConfigMapAsk::Get));
    }

    /// Takes the note away, and ends.
    fn on_closing(
        &mut self,
        now: Now,
        (end, failures, what): (End, u32, What),
        answer: ConfigMapAnswer,
        out: &mut Vec<Out>,
    ) {
        let why = match answer {
            ConfigMapAnswer::Seen(facts) if what == What::Look => {
                self.tell_left(Downs::of(&facts, now), out);
                if is_off(&facts) {
                    self.phase = Phase::Closing { end, failures, what: What::Write };
                    out.push(Out::ConfigMap(ConfigMapAsk::Replace(facts, notes::switching_on())));
                } else {
                    self.be_over(end, out);
                }
                return;
            }
            ConfigMapAnswer::Seen(_) | ConfigMapAnswer::Absent => return self.be_over(end, out),
            ConfigMapAnswer::Failed(RequestFailure::Denied(why)) => return self.leave_note(end, &why, out),
            ConfigMapAnswer::Failed(RequestFailure::Other(why)) => why,
            ConfigMapAnswer::Conflict => Arc::from(FORESTALLED),
        };
        let failures = failures + 1;
        if failures < TRIES {
            self.phase = Phase::Reclosing { end, failures, next: now.plus(LOOK_EVERY) };
        } else {
            self.leave_note(end, &why, out);
        }
    }

    /// Ends without knowing that the note is gone, where there may be one.
    fn leave_note(&mut self, end: End, why: &str, out: &mut Vec<Out>) {
        match self.notes {
            Notes::Off => out.push(Out::NoteStays(why.to_owned())),
            Notes::Unnamed | Notes::Untouched | Notes::Begun | Notes::Closed => {
                self.tell_stay(Stay::Unknown(why.to_owned()), out);
            }
        }
        self.be_over(end, out);
    }

    fn on_terminated(&mut self, out: &mut Vec<Out>) {
        match self.phase.clone() {
            Phase::Idle | Phase::Over => {}
            Phase::Looking { .. }
            | Phase::TakingBack { .. }
            | Phase::Waiting { .. }
            | Phase::Scaling { .. }
            | Phase::Resting { .. } => self.end(End::Terminated, out),
            Phase::Closing { end, failures, .. } | Phase::Reclosing { end, failures, .. } => {
                if failures + 1 < TRIES {
                    self.close(end, failures + 1, out);
                } else {
                    self.leave_note(end, "it was told to end", out);
                }
            }
        }
    }

    fn be_over(&mut self, end: End, out: &mut Vec<Out>) {
        self.phase = Phase::Over;
        out.push(Out::Ended(end));
    }
}

impl Machine for Retirement {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match (input, self.phase.clone()) {
            (In::Start, Phase::Idle) => self.look(now.plus(self.within), out),
            (In::Seen(seen), Phase::Looking { until }) => self.on_seen(now, until, seen, out),
            // Pods need a moment to be told; what is left then is said at the next look.
            (In::Scaled, Phase::Scaling { until }) => {
                self.rest(now, until, &Left::Controller, out);
            }
            (In::Failed(why), Phase::Looking { until } | Phase::Scaling { until }) => {
                self.wait(now, until, Left::Unknown(why), out);
            }
            (In::ConfigMap(answer), Phase::TakingBack { until, what }) => {
                self.on_notes(now, until, what, answer, out);
            }
            (In::ConfigMap(answer), Phase::Closing { end, failures, what }) => {
                self.on_closing(now, (end, failures, what), answer, out);
            }
            (In::Terminated, _) => self.on_terminated(out),
            // Nobody answers what was not asked.
            (
                In::Start | In::Seen(_) | In::Scaled | In::Failed(_) | In::ConfigMap(_),
                Phase::Idle
                | Phase::Looking { .. }
                | Phase::TakingBack { .. }
                | Phase::Waiting { .. }
                | Phase::Scaling { .. }
                | Phase::Resting { .. }
                | Phase::Closing { .. }
                | Phase::Reclosing { .. }
                | Phase::Over,
            ) => {}
        }
    }

    fn deadline(&self) -> Option<Now> {
        match self.phase {
            Phase::Waiting { next, .. } | Phase::Resting { next, .. } | Phase::Reclosing { next, .. } => {
                Some(next)
            }
            Phase::Idle
            | Phase::Looking { .. }
            | Phase::TakingBack { .. }
            | Phase::Scaling { .. }
            | Phase::Closing { .. }
            | Phase::Over => None,
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.deadline().is_none_or(|next| now < next) {
            return;
        }
        match self.phase.clone() {
            Phase::Waiting { until, .. } => self.see_downs(until, out),
            Phase::Resting { until, .. } => self.look(until, out),
            Phase::Reclosing { end, failures, .. } => self.close(end, failures, out),
            Phase::Idle
            | Phase::Looking { .. }
            | Phase::TakingBack { .. }
            | Phase::Scaling { .. }
            | Phase::Closing { .. }
            | Phase::Over => {}
        }
    }
}
