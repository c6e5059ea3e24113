//! How a Deployment comes to run no Pods, so that whoever deletes it together with the Pods' rights takes these from
//! nobody who still needs them to give his Leases back (design.md W7, W8). It owns what is asked next, when it is over or
//! too late, and what is worth telling; asking and telling are the command's business.
//!
//! Its requests are answered one by one, and it makes none while another one is under way. Whoever carries them out bounds
//! them: one that is under way when the time is over is waited for.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::machine::{Machine, Now};

/// How long after an answer it is asked again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

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
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum In {
    /// Begin; time counts from here.
    Start,
    /// The answer to [`Out::Look`].
    Seen(Seen),
    /// The answer to [`Out::ScaleDown`]: it is done.
    Scaled,
    /// Either had no good answer, for this reason.
    Failed(String),
}

/// What the machine can say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// Read the Deployment and its Pods.
    Look,
    /// Have the Deployment run no Pods.
    ScaleDown {
        /// How many it is to run now.
        from: i32,
    },
    /// It is waited for this, and was not before.
    WaitsFor(Left),
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

/// How it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The Deployment was not there at any look, nor a Pod of it, where it is known which these are.
    Absent,
    /// None of its Pods runs.
    Retired,
    /// The time is over.
    Late(Left),
}

/// One Deployment on its way to no Pods (W7, W8).
#[derive(Debug)]
pub struct Retirement {
    within: Duration,
    phase: Phase,
    /// Whether the Deployment or a Pod of it was there at some look.
    found: bool,
    /// What was last said that it waits for.
    told: Option<Left>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Not begun.
    Idle,
    /// [`Out::Look`] is under way.
    Looking {
        until: Now,
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
    Over,
}

impl Retirement {
    /// One that has not begun, and may take so long.
    #[must_use]
    pub fn new(within: Duration) -> Retirement {
        Retirement { within, phase: Phase::Idle, found: false, told: None }
    }

    fn on_seen(&mut self, now: Now, until: Now, seen: Seen, out: &mut Vec<Out>) {
        let Seen { scale, pods } = seen;
        let was_found = self.found;
        let runs = pods.as_ref().is_some_and(|pods| !pods.is_empty());
        self.found |= scale.is_some() || runs;
        match (scale, pods) {
            (Some(Scale { wanted, .. }), _) if wanted > 0 => {
                self.phase = Phase::Scaling { until };
                out.push(Out::ScaleDown { from: wanted });
            }
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

    /// Looks again later, unless it is too late; says what it waits for, if that is news.
    fn wait(&mut self, now: Now, until: Now, left: Left, out: &mut Vec<Out>) {
        if self.rest(now, until, &left, out) && self.told.as_ref() != Some(&left) {
            out.push(Out::WaitsFor(left.clone()));
            self.told = Some(left);
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

    fn end(&mut self, end: End, out: &mut Vec<Out>) {
        self.phase = Phase::Over;
        out.push(Out::Ended(end));
    }
}

impl Machine for Retirement {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match (input, self.phase) {
            (In::Start, Phase::Idle) => {
                self.phase = Phase::Looking { until: now.plus(self.within) };
                out.push(Out::Look);
            }
            (In::Seen(seen), Phase::Looking { until }) => self.on_seen(now, until, seen, out),
            // Pods need a moment to be told; what is left then is said at the next look.
            (In::Scaled, Phase::Scaling { until }) => {
                self.rest(now, until, &Left::Controller, out);
            }
            (In::Failed(why), Phase::Looking { until } | Phase::Scaling { until }) => {
                self.wait(now, until, Left::Unknown(why), out);
            }
            // Nobody answers what was not asked.
            (
                In::Start | In::Seen(_) | In::Scaled | In::Failed(_),
                Phase::Idle
                | Phase::Looking { .. }
                | Phase::Scaling { .. }
                | Phase::Resting { .. }
                | Phase::Over,
            ) => {}
        }
    }

    fn deadline(&self) -> Option<Now> {
        match self.phase {
            Phase::Resting { next, .. } => Some(next),
            Phase::Idle | Phase::Looking { .. } | Phase::Scaling { .. } | Phase::Over => None,
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Phase::Resting { until, next } = self.phase
            && next <= now
        {
            self.phase = Phase::Looking { until };
            out.push(Out::Look);
        }
    }
}
