//! Finds the Deployment that runs this process, so that its Events are attached to an object that operators know and
//! that outlives a Pod (X2, E1). Decides when its UID is asked for, and when operators are told that it cannot be
//! found.
//!
//! Nothing waits for it: what is told before it is found is attached to what the port has else. A right that is granted
//! later is noticed, so it asks again for as long as it has found nothing.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use model::machine::{Machine, Now};

/// The wait after the first failure; it doubles.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// How many requests may go unanswered before operators are told: an API server may be away for a moment.
const QUIET_FAILURES: u32 = 3;

/// What the machine can be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum In {
    /// Begin.
    Start,
    /// What came of a request.
    Answered(Result<Arc<str>, Failure>),
}

/// Why there is no UID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// There is no such Deployment.
    Absent,
    /// Our account may not read it; in the server's words.
    Denied(Arc<str>),
    /// Nothing that tells: no answer, or none that can be read.
    Other(Arc<str>),
}

/// What the machine can say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// To the port: ask for it. It is answered in any case.
    Ask,
    /// To the port: this is its UID. Nothing follows.
    Found(Arc<str>),
    /// To operators, once: why it cannot be found.
    Missing(Failure),
}

/// Finds the Deployment that runs this process.
#[derive(Default, Debug)]
pub struct Deployment {
    phase: Phase,
    failures: u32,
    told: bool,
}

#[derive(Default, Debug)]
enum Phase {
    /// Not begun, or done.
    #[default]
    Idle,
    /// A request is under way.
    Asking,
    /// Until when it waits before it asks again.
    Waiting(Now),
}

impl Deployment {
    fn on_failure(&mut self, now: Now, failure: Failure, out: &mut Vec<Out>) {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.phase = Phase::Waiting(now.plus(FIRST_WAIT.saturating_mul(factor).min(LONGEST_WAIT)));
        self.failures = self.failures.saturating_add(1);
        let is_certain = match failure {
            Failure::Absent | Failure::Denied(_) => true,
            Failure::Other(_) => false,
        };
        if !self.told && (is_certain || self.failures >= QUIET_FAILURES) {
            self.told = true;
            out.push(Out::Missing(failure));
        }
    }

    fn ask(&mut self, out: &mut Vec<Out>) {
        self.phase = Phase::Asking;
        out.push(Out::Ask);
    }
}

impl Machine for Deployment {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match (input, &self.phase) {
            (In::Start, Phase::Idle) => self.ask(out),
            (In::Answered(Ok(uid)), Phase::Asking) => {
                self.phase = Phase::Idle;
                out.push(Out::Found(uid));
            }
            (In::Answered(Err(failure)), Phase::Asking) => self.on_failure(now, failure, out),
            (In::Start, Phase::Asking | Phase::Waiting(_))
            | (In::Answered(_), Phase::Idle | Phase::Waiting(_)) => {}
        }
    }

    fn deadline(&self) -> Option<Now> {
        match self.phase {
            Phase::Idle | Phase::Asking => None,
            Phase::Waiting(until) => Some(until),
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.deadline().is_some_and(|until| until <= now) {
            self.ask(out);
        }
    }
}
