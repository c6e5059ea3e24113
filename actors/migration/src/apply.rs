//! The machine that carries out a plan. In each stage, it reads the live state of each object, and changes what differs
//! from the plan. So another process can continue after a crash at any call, and a second run changes nothing.
//!
//! [`Stage`] lists the stages, `goal` defines the goals of single objects, and `task` works on one goal.

mod goal;
mod guide;
mod stage;
mod stages;
mod task;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::machine::{Machine, Now, earliest};
use serde_json::Value;

use crate::call::{Call, CallOutcome, Reply, classify};
use crate::inventory::CallId;
use crate::journal::Journal;
use crate::json::text;
use crate::members::RemovedReferences;
use crate::resource_id::ResourceId;
use crate::work::Work;

use goal::{Context, Evaluation, Goal};
use task::{Progress, Task};

pub use guide::Guide;
pub use stage::Stage;

/// Maximum number of concurrent calls.
const AT_ONCE: usize = 64;
/// Interval between polls of an operation, while few operations run.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of polls of all operations per second.
const POLLS_PER_SECOND: u32 = 20;
/// Time for which the shared Lease is free between two stages.
const HAND_OVER: Duration = Duration::from_secs(10);
/// Maximum number of times nodes are detached again because a load balancer is in use.
const DETACH_ROUNDS: u32 = 3;
/// Maximum number of times private addresses are checked again because one was taken after the check.
const CHECK_ROUNDS: u32 = 3;
/// Maximum number of waits for an address that is in use, after all others are served: nine minutes in total.
const RETAKES: u32 = 20;
/// Maximum number of waits for such an address, if something else is more urgent.
const FEW_RETAKES: u32 = 1;
/// Delay before the journal is stored again after a failure.
const RECORD_AGAIN: Duration = Duration::from_secs(10);

/// Inputs of the machine.
#[derive(Clone, Debug)]
pub enum ApplyIn {
    /// Start the migration.
    Start,
    /// The answer to a call, or the reason why there is none.
    Answer(CallId, Result<Reply, String>),
    /// The answer to [`ApplyOut::Record`]: success, or the reason of the failure.
    Recorded(Result<(), String>),
    /// True if this process holds the shared Lease.
    Lease(bool),
    /// The operator requests a stop. This has an effect only before nodes are detached, and while the migration only
    /// waits for addresses that are in use.
    Stop,
}

/// Outputs of the machine.
#[derive(Clone, PartialEq, Debug)]
pub enum ApplyOut {
    /// Make this call.
    Call(CallId, Call),
    /// Store the journal, and read it back.
    Record(Box<Journal>),
    /// True if the shared Lease is needed from now on.
    Lease(bool),
    /// Progress.
    Progress {
        /// The stage.
        stage: Stage,
        /// Number of objects that have reached their goals.
        done: usize,
        /// Number of objects.
        total: usize,
    },
    /// The migration has ended.
    Finished(Outcome),
}

/// Outcome of a migration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Everything is migrated.
    Done,
    /// Everything is migrated, except these frontends; the next run tries them again.
    Incomplete(Vec<String>),
    /// The migration stopped; the guide has the next steps for the operator.
    Stopped(Guide),
}

/// Carries out a plan.
pub struct Apply {
    journal: Journal,
    work: Work,
    removed_references: RemovedReferences,
    stage: Stage,
    tasks: Vec<Task>,
    last: u64,
    has_lease: bool,
    wished_lease: bool,
    throttled_until: Now,
    hand_over_until: Option<Now>,
    recording: Recording,
    /// Basic load balancers that exist.
    alive: BTreeSet<ResourceId>,
    /// Standard load balancers that existed at the start, or were created since.
    standard: BTreeMap<ResourceId, Value>,
    listed: BTreeSet<ResourceId>,
    /// Scale sets that are known only from an error of Azure.
    named_by_errors: BTreeSet<ResourceId>,
    /// Frontends that could not be built, with the reason.
    unavailable: BTreeMap<(usize, String), String>,
    rounds: u32,
    checks: u32,
    /// True if an omitted load balancer can be created now. Nodes are then attached to it, too.
    builds_again: bool,
    is_in_use: bool,
    has_written: bool,
    past_return: bool,
    is_stopping: bool,
    /// Guide with which the migration ends, once the journal is stored with `done`.
    giving_up: Option<Guide>,
    shown: Option<(Stage, usize)>,
    /// Maximum number of waits, at the end, for an address that is in use.
    retakes: u32,
    is_finished: bool,
}

/// State of the stored journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Recording {
    Stored,
    /// The journal is being stored. `again` is true if it has changed meanwhile.
    Sent {
        again: bool,
    },
    /// The journal must be stored at this time.
    At(Now),
}

impl Apply {
    /// Creates a migration that starts or continues. `is_stored` is true if the journal was read from its store.
    #[must_use]
    pub fn new(journal: Journal, is_stored: bool) -> Apply {
        let work = Work::of(&journal.inventory);
        let removed_references = work.removed_references();
        Apply {
            work,
            removed_references,
            stage: Stage::Journal,
            tasks: Vec::new(),
            last: 0,
            has_lease: false,
            wished_lease: false,
            throttled_until: Now::ZERO,
            hand_over_until: None,
            recording: if is_stored { Recording::Stored } else { Recording::At(Now::ZERO) },
            alive: BTreeSet::new(),
            standard: BTreeMap::new(),
            listed: BTreeSet::new(),
            named_by_errors: BTreeSet::new(),
            unavailable: BTreeMap::new(),
            rounds: 0,
            checks: 0,
            builds_again: false,
            is_in_use: false,
            has_written: false,
            past_return: false,
            is_stopping: false,
            giving_up: None,
            shown: None,
            retakes: RETAKES,
            is_finished: false,
            journal,
        }
    }

    /// Returns the migration with few waits for addresses that are in use, because something else is more urgent.
    #[must_use]
    pub fn with_few_retakes(self) -> Apply {
        Apply { retakes: FEW_RETAKES, ..self }
    }

    /// Returns the current stage.
    #[must_use]
    pub fn stage(&self) -> Stage {
        self.stage
    }

    fn on_answer(&mut self, now: Now, id: CallId, answer: Result<Reply, String>, out: &mut Vec<ApplyOut>) {
        let Some(at) = self.tasks.iter().position(|task| task.call() == Some(id)) else { return };
        if let Ok(Reply { status: 429, retry_after: Some(after), .. }) = &answer {
            self.throttled_until = self.throttled_until.max(now.plus(*after));
        }
        let every = self.poll_every();
        match self.tasks[at].progress.clone() {
            Progress::Reading(_) => self.on_read(now, at, classify(answer), out),
            Progress::Writing(_) => {
                let outcome = classify(answer);
                self.on_written(now, at, outcome, every);
            }
            Progress::Asking(_, operation) => {
                let failed = answer.as_ref().ok().filter(|reply| text(&reply.body["status"]) == "Failed");
                let in_use = failed.map(|reply| classify(Ok(Reply { status: 400, ..reply.clone() })));
                match in_use {
                    Some(CallOutcome::InUse { scale_sets, reason }) => self.on_in_use(at, scale_sets, reason),
                    Some(_) | None => self.tasks[at].polled(now, operation, classify(answer), every),
                }
            }
            Progress::Ready(_)
            | Progress::Recording
            | Progress::Polling(..)
            | Progress::Reached
            | Progress::Failed(_) => {}
        }
    }

    fn on_read(&mut self, now: Now, at: usize, outcome: CallOutcome, out: &mut Vec<ApplyOut>) {
        match outcome {
            CallOutcome::Done(reply) => {
                if let Some(next) = self.next_page(at, &reply) {
                    let id = self.call(Call::follow(next), out);
                    self.tasks[at].progress = Progress::Reading(id);
                    return;
                }
                self.evaluate(now, at, Some(&reply.body), out);
            }
            CallOutcome::NotFound => self.evaluate(now, at, None, out),
            CallOutcome::Retriable { after, reason } => {
                self.tasks[at].later(now, after, &reason, self.past_return)
            }
            CallOutcome::PreconditionFailed => {
                self.tasks[at].refused(now, "412 in answer to a read".to_owned())
            }
            CallOutcome::InUse { reason, .. } | CallOutcome::Refused(reason) => {
                self.tasks[at].refused(now, reason)
            }
        }
    }

    /// Records the instances of a page, and returns the URL of the next page, if any.
    fn next_page(&mut self, at: usize, reply: &Reply) -> Option<String> {
        let Goal::Instances(_) = self.tasks[at].goal else { return None };
        self.listed.extend(goal::instances(&reply.body));
        Some(text(&reply.body["nextLink"])).filter(|next| !next.is_empty()).map(str::to_owned)
    }

    fn evaluate(&mut self, now: Now, at: usize, live: Option<&Value>, out: &mut Vec<ApplyOut>) {
        let goal = self.tasks[at].goal.clone();
        let unavailable = |target| self.unavailable_of(target);
        let omitted = || self.omitted();
        let context = Context {
            inventory: &self.journal.inventory,
            work: &self.work,
            removed_references: &self.removed_references,
            unavailable: &unavailable,
            omitted: &omitted,
            past_return: self.past_return,
        };
        match goal.evaluate(live, &context) {
            Evaluation::Reached => {
                self.on_reached(&goal, live);
                self.tasks[at].progress = Progress::Reached;
            }
            Evaluation::Write(call) => self.write(now, at, &goal, live, call, out),
            Evaluation::Wait(reason) => {
                let patient = self.past_return;
                self.tasks[at].not_ready(now, &reason, patient);
            }
            Evaluation::Never(reason) => self.tasks[at].progress = Progress::Failed(reason),
        }
    }

    fn write(
        &mut self,
        now: Now,
        at: usize,
        goal: &Goal,
        live: Option<&Value>,
        call: Call,
        out: &mut Vec<ApplyOut>,
    ) {
        if !self.has_lease || self.is_stopping {
            self.tasks[at].progress = Progress::Ready(now);
            return;
        }
        // The node appeared after the journal was stored.
        if let (Some(node), Some(live)) = (goal.node(), live)
            && self.journal.inventory.body(node).is_none()
            && !self.journal.later.contains_key(node)
        {
            self.journal.later.insert(node.clone(), live.clone());
            self.record_again(now);
            self.tasks[at].progress = Progress::Recording;
            return;
        }
        if !self.tasks[at].may_write() {
            return;
        }
        self.has_written = true;
        if matches!(goal, Goal::Delete(_)) {
            self.past_return = true;
        }
        let id = self.call(call, out);
        self.tasks[at].progress = Progress::Writing(id);
    }

    fn on_written(&mut self, now: Now, at: usize, outcome: CallOutcome, every: Duration) {
        match outcome {
            CallOutcome::Done(reply) => self.tasks[at].accepted(now, reply, every),
            CallOutcome::InUse { scale_sets, reason } => self.on_in_use(at, scale_sets, reason),
            CallOutcome::Refused(reason) => self.tasks[at].refused(now, reason),
            CallOutcome::Retriable { after, reason } => {
                self.tasks[at].later(now, after, &reason, self.past_return)
            }
            CallOutcome::NotFound => self.tasks[at].later(now, None, "it does not exist", self.past_return),
            CallOutcome::PreconditionFailed => {
                self.tasks[at].later(now, None, "another client changes it too", self.past_return)
            }
        }
    }

    fn on_in_use(&mut self, at: usize, scale_sets: Vec<ResourceId>, reason: String) {
        self.named_by_errors.extend(scale_sets);
        self.is_in_use = true;
        self.tasks[at].progress = Progress::Failed(reason);
    }

    fn on_recorded(&mut self, now: Now, result: Result<(), String>, out: &mut Vec<ApplyOut>) {
        let Recording::Sent { again } = self.recording else { return };
        if let Err(reason) = result {
            self.recording = Recording::At(now.plus(RECORD_AGAIN));
            if let Some(guide) = self.giving_up.take() {
                self.end(Outcome::Stopped(guide), out);
                return;
            }
            match self.stage {
                Stage::Journal => {
                    self.stop(now, vec![format!("the journal could not be stored: {reason}")], out)
                }
                // All work is done. The next run will find nothing to do.
                Stage::Close => self.finish(out),
                Stage::Inspect
                | Stage::StaticAddresses
                | Stage::HandOver
                | Stage::Compare
                | Stage::Convert
                | Stage::DetachModels
                | Stage::ListInstances
                | Stage::DetachNodes
                | Stage::Delete
                | Stage::CheckAddresses
                | Stage::BuildInternal
                | Stage::BuildPublic
                | Stage::AttachModels
                | Stage::ListAgain
                | Stage::AttachNodes
                | Stage::Retake
                | Stage::Prove => {}
            }
            return;
        }
        self.recording = if again { Recording::At(now) } else { Recording::Stored };
        if self.recording == Recording::Stored {
            for task in self.tasks.iter_mut().filter(|task| task.progress == Progress::Recording) {
                task.progress = Progress::Ready(now);
            }
        }
    }

    fn record_again(&mut self, now: Now) {
        self.recording = match self.recording {
            Recording::Sent { .. } => Recording::Sent { again: true },
            Recording::Stored | Recording::At(_) => Recording::At(now),
        };
    }

    fn call(&mut self, call: Call, out: &mut Vec<ApplyOut>) -> CallId {
        self.last += 1;
        out.push(ApplyOut::Call(CallId(self.last), call));
        CallId(self.last)
    }

    fn in_flight(&self) -> usize {
        self.tasks.iter().filter(|task| task.call().is_some()).count()
    }

    /// Returns the interval between polls of an operation, which grows with the number of operations.
    fn poll_every(&self) -> Duration {
        let polls = self.tasks.iter().filter(|task| matches!(task.progress, Progress::Polling(..))).count();
        let polls = u32::try_from(polls).unwrap_or(u32::MAX);
        POLL_INTERVAL.max(Duration::from_secs(1) * polls / POLLS_PER_SECOND)
    }

    /// Sends the due calls.
    fn send(&mut self, now: Now, out: &mut Vec<ApplyOut>) {
        let may = !self.is_stopping && (self.has_lease || !self.stage.needs_lease());
        if !may || now < self.throttled_until {
            return;
        }
        let mut free = AT_ONCE.saturating_sub(self.in_flight());
        for at in 0..self.tasks.len() {
            if free == 0 {
                return;
            }
            let sent = match self.tasks[at].progress.clone() {
                Progress::Ready(due) if due <= now => {
                    let read = self.tasks[at].goal.read(&self.work);
                    Some(Progress::Reading(self.call(read, out)))
                }
                Progress::Polling(due, operation) if due <= now => {
                    let id = self.call(Call::follow(operation.as_str()), out);
                    Some(Progress::Asking(id, operation))
                }
                Progress::Ready(_)
                | Progress::Polling(..)
                | Progress::Reading(_)
                | Progress::Recording
                | Progress::Writing(_)
                | Progress::Asking(..)
                | Progress::Reached
                | Progress::Failed(_) => None,
            };
            if let Some(progress) = sent {
                self.tasks[at].progress = progress;
                free -= 1;
            }
        }
    }

    /// Stores the journal, if that is due.
    fn record(&mut self, now: Now, out: &mut Vec<ApplyOut>) {
        if let Recording::At(at) = self.recording
            && at <= now
        {
            self.recording = Recording::Sent { again: false };
            out.push(ApplyOut::Record(Box::new(self.journal.clone())));
        }
    }

    fn show(&mut self, out: &mut Vec<ApplyOut>) {
        let done = self.tasks.iter().filter(|task| task.progress == Progress::Reached).count();
        if self.shown != Some((self.stage, done)) && !self.tasks.is_empty() {
            self.shown = Some((self.stage, done));
            out.push(ApplyOut::Progress { stage: self.stage, done, total: self.tasks.len() });
        }
    }

    fn proceed(&mut self, now: Now, out: &mut Vec<ApplyOut>) {
        while !self.is_finished {
            self.record(now, out);
            self.send(now, out);
            self.show(out);
            if let Some(guide) = self.giving_up.take() {
                if self.recording == Recording::Stored {
                    self.end(Outcome::Stopped(guide), out);
                } else {
                    self.giving_up = Some(guide);
                }
                return;
            }
            if self.is_stopping && self.in_flight() == 0 {
                self.stop(now, vec!["the operator asked for it".to_owned()], out);
                continue;
            }
            if !self.is_stage_over(now) {
                return;
            }
            self.end_stage(now, out);
        }
    }

    fn is_stage_over(&self, now: Now) -> bool {
        match self.stage {
            Stage::Journal | Stage::Close => self.recording == Recording::Stored,
            Stage::HandOver => self.hand_over_until.is_none_or(|until| until <= now),
            // The outage does not begin before it is recorded in the stored journal.
            Stage::Compare => self.recording == Recording::Stored && self.tasks.iter().all(Task::is_over),
            Stage::Inspect
            | Stage::StaticAddresses
            | Stage::Convert
            | Stage::DetachModels
            | Stage::ListInstances
            | Stage::DetachNodes
            | Stage::Delete
            | Stage::CheckAddresses
            | Stage::BuildInternal
            | Stage::BuildPublic
            | Stage::AttachModels
            | Stage::ListAgain
            | Stage::AttachNodes
            | Stage::Retake
            | Stage::Prove => self.tasks.iter().all(Task::is_over),
        }
    }
}

impl Machine for Apply {
    type In = ApplyIn;
    type Out = ApplyOut;

    fn step(&mut self, now: Now, input: ApplyIn, out: &mut Vec<ApplyOut>) {
        if self.is_finished {
            return;
        }
        match input {
            ApplyIn::Start => {}
            ApplyIn::Answer(id, answer) => self.on_answer(now, id, answer, out),
            ApplyIn::Recorded(result) => self.on_recorded(now, result, out),
            ApplyIn::Lease(held) => self.has_lease = held,
            ApplyIn::Stop if self.stage == Stage::Retake => {
                self.tasks.iter_mut().for_each(|task| task.waits_no_more(now));
            }
            ApplyIn::Stop => self.is_stopping |= self.stage < Stage::DetachModels,
        }
        self.proceed(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        if self.is_finished {
            return None;
        }
        let may = !self.is_stopping && (self.has_lease || !self.stage.needs_lease());
        let is_full = self.in_flight() >= AT_ONCE;
        let due = self.tasks.iter().filter_map(Task::due).min().filter(|_| may && !is_full);
        let due = due.map(|due| due.max(self.throttled_until));
        let record = match self.recording {
            Recording::At(at) => Some(at),
            Recording::Stored | Recording::Sent { .. } => None,
        };
        earliest(earliest(due, record), self.hand_over_until.filter(|_| self.stage == Stage::HandOver))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<ApplyOut>) {
        self.proceed(now, out);
    }
}
