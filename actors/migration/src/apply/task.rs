//! The steps of one goal: read, evaluate, write, wait for the operation, and read again. A goal counts as reached only
//! after a read that shows it.

use std::time::Duration;

use mechanisms::backoff::Backoff;
use model::machine::Now;

use super::goal::Goal;
use crate::call::{CallOutcome, Reply, operation_error};
use crate::inventory::CallId;
use crate::json::{provisioning, text};

/// Delays before a task tries again.
const DELAYS: Backoff = Backoff(&[
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
    Duration::from_secs(30),
]);
/// Number of times Azure may refuse a call before the task gives up.
const REFUSALS: u32 = 4;
/// Maximum number of times Azure may accept a change that the object does not show afterwards.
const WRITES: u32 = 6;
/// Maximum number of waits of a task, while changes can still be undone.
const WAITS: u32 = 60;
/// Number of times a poll may fail before the object itself is read.
const POLLS: u32 = 3;

/// Returns whether Azure refuses a load balancer because another resource has taken one of its private addresses.
/// Sending the same body again would not help.
pub(super) fn is_address_in_use(reason: &str) -> bool {
    reason.contains("PrivateIPAddressIsAllocated")
}

/// Progress of a task.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Progress {
    /// The task reads the object at this time.
    Ready(Now),
    /// The object is being read.
    Reading(CallId),
    /// The object's body is being stored in the journal.
    Recording,
    /// A change is being sent.
    Writing(CallId),
    /// The task polls the operation at this time.
    Polling(Now, String),
    /// The operation is being polled.
    Asking(CallId, String),
    /// The goal is reached.
    Reached,
    /// The goal cannot be reached, for this reason.
    Failed(String),
}

/// The work on one goal.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Task {
    pub(super) goal: Goal,
    pub(super) progress: Progress,
    waits: u32,
    refusals: u32,
    writes: u32,
    polls: u32,
    /// Maximum number of waits, if it differs from the default.
    limit: Option<u32>,
}

impl Task {
    /// Returns a task that begins now.
    pub(super) fn new(goal: Goal, now: Now) -> Task {
        Task { goal, progress: Progress::Ready(now), waits: 0, refusals: 0, writes: 0, polls: 0, limit: None }
    }

    /// Returns a task for a goal that was not reached earlier, with this maximum number of waits.
    pub(super) fn once_more(goal: Goal, now: Now, waits: u32) -> Task {
        Task { limit: Some(waits), ..Task::new(goal, now) }
    }

    /// Reads the object again, without further waits.
    pub(super) fn waits_no_more(&mut self, now: Now) {
        self.limit = Some(0);
        if let Progress::Ready(_) = self.progress {
            self.progress = Progress::Ready(now);
        }
    }

    /// Returns whether the task has ended.
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

    /// Returns the time at which the task continues without an answer.
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

    /// Counts a write; returns `false` after too many writes that the object does not show.
    pub(super) fn may_write(&mut self) -> bool {
        self.writes += 1;
        if self.writes > WRITES {
            self.progress = Progress::Failed(format!(
                "Azure accepted the change {WRITES} times, but the object does not show it"
            ));
        }
        self.writes <= WRITES
    }

    /// Waits after an answer that asks for a later try, or after no answer. `patient`: without a maximum.
    pub(super) fn later(&mut self, now: Now, after: Option<Duration>, reason: &str, patient: bool) {
        self.wait(now, after, reason, self.limit.or((!patient).then_some(WAITS)));
    }

    /// Waits because the object is not ready. `patient`: without a maximum, except for addresses in use.
    pub(super) fn not_ready(&mut self, now: Now, reason: &str, patient: bool) {
        let most = match &self.goal {
            // A taken address must not delay the other frontends.
            Goal::Free(..) => Some(3),
            // The public address is still attached to another resource.
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

    /// Handles a refusal of Azure.
    pub(super) fn refused(&mut self, now: Now, reason: String) {
        self.refusals += 1;
        self.progress = if self.refusals > REFUSALS || is_address_in_use(&reason) {
            Progress::Failed(reason)
        } else {
            // Azure applies a new role assignment only after some time.
            Progress::Ready(now.plus(DELAYS.delay(self.refusals)))
        };
    }

    /// Handles an accepted change: the operation is polled, or the object is read.
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
            // The addresses of a pool that is being converted appear one after the other.
            Some(_) | None if is_running || matches!(self.goal, Goal::Convert(_)) => {
                Progress::Ready(now.plus(every))
            }
            Some(_) | None => Progress::Ready(now),
        };
    }

    /// Handles the answer to a poll of an operation.
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
            // The operation is no longer known, so the task reads the object.
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
