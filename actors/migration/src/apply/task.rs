//! The way of one goal: read, judge, write, wait for the operation, and read again. A goal counts as reached only after a
//! read that shows it.

use std::time::Duration;

use mechanisms::backoff::Backoff;
use model::machine::Now;

use super::goal::Goal;
use crate::call::{CallOutcome, Reply, operation_error};
use crate::inventory::CallId;
use crate::json::{provisioning, text};

/// Time for which a task waits before it tries again.
const DELAYS: Backoff = Backoff(&[
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
]);
/// Number of times Azure may refuse a call before the task gives up.
const REFUSALS: u32 = 4;
/// Number of times Azure may accept a change that does not show.
const WRITES: u32 = 6;
/// Number of times a task waits while something could still be undone.
const WAITS: u32 = 60;
/// Number of times a poll may fail before the object itself is read.
const POLLS: u32 = 3;

/// Returns whether Azure refuses a load balancer because something else has taken one of its private addresses. To send
/// the same body again is of no use.
pub(super) fn is_address_in_use(reason: &str) -> bool {
    reason.contains("PrivateIPAddressIsAllocated")
}

/// Progress of a task.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Progress {
    /// The task reads the object at this moment.
    Ready(Now),
    /// The object is being read.
    Reading(CallId),
    /// The journal stores the object's body.
    Recording,
    /// A change is being sent.
    Writing(CallId),
    /// The operation is asked at this moment.
    Polling(Now, String),
    /// The operation is being asked.
    Asking(CallId, String),
    /// The goal is reached.
    Reached,
    /// The goal cannot be reached, for this reason.
    Failed(String),
}

/// One goal on its way.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Task {
    pub(super) goal: Goal,
    pub(super) progress: Progress,
    waits: u32,
    refusals: u32,
    writes: u32,
    polls: u32,
    /// Number of times the task may wait at most, where it is not the default.
    limit: Option<u32>,
}

impl Task {
    /// Returns a task that begins now.
    pub(super) fn new(goal: Goal, now: Now) -> Task {
        Task { goal, progress: Progress::Ready(now), waits: 0, refusals: 0, writes: 0, polls: 0, limit: None }
    }

    /// Returns a task for what did not succeed earlier, which waits so often at most.
    pub(super) fn once_more(goal: Goal, now: Now, waits: u32) -> Task {
        Task { limit: Some(waits), ..Task::new(goal, now) }
    }

    /// Reads once more, and does not wait again.
    pub(super) fn waits_no_more(&mut self, now: Now) {
        self.limit = Some(0);
        if let Progress::Ready(_) = self.progress {
            self.progress = Progress::Ready(now);
        }
    }

    /// Returns whether nothing more happens.
    pub(super) fn is_over(&self) -> bool {
        match self.progress {
            Progress::Reached | Progress::Failed(_) => true,
            Progress::Ready(_)
            | Progress::Reading(_)
            | Progress::Recording
            | Progress::Writing(_)
            | Progress::Polling(..)
            | Progress::Asking(..) => false,
        }
    }

    /// Returns the call that is in flight.
    pub(super) fn call(&self) -> Option<CallId> {
        match self.progress {
            Progress::Reading(id) | Progress::Writing(id) | Progress::Asking(id, _) => Some(id),
            Progress::Ready(_)
            | Progress::Recording
            | Progress::Polling(..)
            | Progress::Reached
            | Progress::Failed(_) => None,
        }
    }

    /// Returns the time at which it goes on by itself.
    pub(super) fn due(&self) -> Option<Now> {
        match self.progress {
            Progress::Ready(at) | Progress::Polling(at, _) => Some(at),
            Progress::Reading(_)
            | Progress::Recording
            | Progress::Writing(_)
            | Progress::Asking(..)
            | Progress::Reached
            | Progress::Failed(_) => None,
        }
    }

    /// Records that a change is sent; returns `false` if it was sent too often and does not show.
    pub(super) fn may_write(&mut self) -> bool {
        self.writes += 1;
        if self.writes > WRITES {
            self.progress = Progress::Failed(format!(
                "Azure accepted the change {WRITES} times, but the object does not show it"
            ));
        }
        self.writes <= WRITES
    }

    /// Azure asks to come later, or there was no answer; `patient`: the task tries however long it takes.
    pub(super) fn later(&mut self, now: Now, after: Option<Duration>, reason: &str, patient: bool) {
        self.wait(now, after, reason, self.limit.or((!patient).then_some(WAITS)));
    }

    /// The object is not ready; `patient`: the task waits however long it takes.
    pub(super) fn not_ready(&mut self, now: Now, reason: &str, patient: bool) {
        let most = match &self.goal {
            // Other frontends do not wait for one that is taken.
            Goal::Free(..) => Some(3),
            // Something else holds the public address.
            Goal::Upgrade(_) if reason.contains("attached") => Some(12),
            Goal::Inspect(_)
            | Goal::Static(_)
            | Goal::Unchanged(_)
            | Goal::Detach(..)
            | Goal::Instances(_)
            | Goal::Delete(_)
            | Goal::Build(_)
            | Goal::Upgrade(_)
            | Goal::Convert(_)
            | Goal::Attach(..) => (!patient).then_some(WAITS),
        };
        self.wait(now, None, reason, self.limit.or(most));
    }

    fn wait(&mut self, now: Now, after: Option<Duration>, reason: &str, most: Option<u32>) {
        self.waits += 1;
        self.progress = match most {
            Some(most) if self.waits > most => Progress::Failed(reason.to_owned()),
            Some(_) | None => {
                Progress::Ready(now.plus(after.unwrap_or_default().max(DELAYS.delay(self.waits - 1))))
            }
        };
    }

    /// Azure has refused something.
    pub(super) fn refused(&mut self, now: Now, reason: String) {
        self.refusals += 1;
        self.progress = if self.refusals > REFUSALS || is_address_in_use(&reason) {
            Progress::Failed(reason)
        } else {
            // A right that was just granted is refused for a while.
            Progress::Ready(now.plus(DELAYS.delay(self.refusals)))
        };
    }

    /// A change was accepted: its operation is asked, or the object is read.
    pub(super) fn accepted(&mut self, now: Now, reply: Reply, every: Duration) {
        let is_running = match reply.status {
            202 => true,
            _ => !matches!(provisioning(&reply.body).as_str(), "" | "succeeded" | "failed" | "canceled"),
        };
        self.polls = 0;
        self.progress = match reply.operation {
            Some(operation) if is_running => {
                Progress::Polling(now.plus(reply.retry_after.unwrap_or_default().max(every)), operation)
            }
            // The addresses of a pool that is converted appear one after the other.
            Some(_) | None if is_running || matches!(self.goal, Goal::Convert(_)) => {
                Progress::Ready(now.plus(every))
            }
            Some(_) | None => Progress::Ready(now),
        };
    }

    /// The answer about an operation.
    pub(super) fn polled(&mut self, now: Now, operation: String, outcome: CallOutcome, every: Duration) {
        let again = |after: Option<Duration>| {
            Progress::Polling(now.plus(after.unwrap_or_default().max(every)), operation.clone())
        };
        self.progress = match outcome {
            CallOutcome::Done(reply) => {
                self.polls = 0;
                match text(&reply.body["status"]).to_ascii_lowercase().as_str() {
                    "succeeded" => Progress::Ready(now),
                    "failed" | "canceled" => return self.refused(now, operation_error(&reply)),
                    "" if reply.status != 202 => Progress::Ready(now),
                    _ => again(reply.retry_after),
                }
            }
            // An operation that is not known any more: the object says how it ended.
            CallOutcome::NotFound | CallOutcome::PreconditionFailed => Progress::Ready(now),
            CallOutcome::Retriable { after, .. } => self.poll_failed(now, again(after)),
            CallOutcome::InUse { .. } | CallOutcome::Refused(_) => self.poll_failed(now, again(None)),
        };
    }

    fn poll_failed(&mut self, now: Now, again: Progress) -> Progress {
        self.polls += 1;
        if self.polls > POLLS { Progress::Ready(now) } else { again }
    }
}
