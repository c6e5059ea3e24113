//! Finds the Deployment that runs this process, so that its Events are attached to an object that operators know and
//! that outlives a Pod (X2, E1). Decides when to request its UID, and when to report to operators that it cannot be
//! found.
//!
//! Nothing waits for the result: until then, Events are attached to another object that the port knows. The machine
//! retries until it succeeds, so it notices permissions that are granted later.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use model::machine::{Machine, Now};

/// Wait after the first failure; doubles with each further failure.
const FIRST_WAIT: Duration = Duration::from_secs(5);
/// Longest wait.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// Failures before the machine reports to operators: an API server may be unreachable for a moment.
const QUIET_FAILURES: u32 = 3;

/// Input of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum In {
    /// Start.
    Start,
    /// Result of a request.
    Answered(Result<Arc<str>, Failure>),
}

/// Reasons why there is no UID.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// The Deployment does not exist.
    Absent,
    /// The service account may not read it; with the server's message.
    Denied(Arc<str>),
    /// No answer, or an answer that cannot be read.
    Other(Arc<str>),
}

/// Output of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Out {
    /// To the port: request the UID. The port answers every request.
    Get,
    /// To the port: the UID. This is the last output.
    Found(Arc<str>),
    /// To operators, once: why the Deployment cannot be found.
    Missing(Failure),
}

/// Finds the Deployment that runs this process.
#[derive(Default, Debug)]
pub struct Deployment {
    phase: Phase,
    failures: u32,
    reported: bool,
}

#[derive(Default, Debug)]
enum Phase {
    /// Before the start, or done.
    #[default]
    Idle,
    /// A request is in flight.
    Asking,
    /// Waits until this time before the next request.
    Waiting(Now),
}

impl Deployment {
    fn on_failure(&mut self, now: Now, failure: Failure, out: &mut Vec<Out>) {
        let factor = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        self.phase = Phase::Waiting(now.plus(FIRST_WAIT.saturating_mul(factor).min(MAX_WAIT)));
        self.failures = self.failures.saturating_add(1);
        let is_certain = match failure {
            Failure::Absent | Failure::Denied(_) => true,
            Failure::Other(_) => false,
        };
        if !self.reported && (is_certain || self.failures >= QUIET_FAILURES) {
            self.reported = true;
            out.push(Out::Missing(failure));
        }
    }

    fn get(&mut self, out: &mut Vec<Out>) {
        self.phase = Phase::Asking;
        out.push(Out::Get);
    }
}

impl Machine for Deployment {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match (input, &self.phase) {
            (In::Start, Phase::Idle) => self.get(out),
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
            self.get(out);
        }
    }
}
