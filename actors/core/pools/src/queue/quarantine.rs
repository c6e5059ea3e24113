//! A pool's invariants, and the quarantine of a pool that breaks one: it does nothing, and the other pools continue
//! (docs/design/model-and-mechanisms.md, A4). The quarantine ends when the pool has no owner any more, or with the
//! process.

use std::sync::Arc;
use std::time::Duration;

use crate::queue::changes::{ChangeOwner, Changes};
use crate::queue::outcome::retired_end;
use crate::queue::{Attempt, In, Out, Phase, PoolQueue, status};
use model::assignment::Assignment;
use model::ids::AttemptId;
use model::machine::Now;
use model::report::EventKind;
use model::sample::{AttemptEnd, Metric};

/// Time after a term's first assignment, or the end of a pause, at which the quarantine is reported once more. The
/// event emitter of a standby drops reports, and learns of its leadership soon after the pools do.
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// The state of a quarantined pool.
#[derive(Debug)]
pub(super) struct Quarantine {
    /// The invariant that does not hold.
    pub(super) broken: &'static str,
    /// An attempt that the writer has yet to answer; its outcome is ignored.
    pub running: Option<Attempt>,
    /// When the quarantine is reported once more.
    pub report_at: Option<Now>,
}

impl PoolQueue {
    /// Checks the invariants of a pool (Q1, Q3, Q4); cheap enough for every step.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let changes = &self.waiting.changes;
        let all = |test: bool, broken: &'static str| if test { Ok(()) } else { Err(broken) };
        all(changes.within(self.params.max_retries), "a waiting change is beyond its budget")?;
        let named = |owner: &ChangeOwner| match owner {
            ChangeOwner::Pool => self.assignment.is_some(),
            ChangeOwner::Service(uid) => {
                self.assignment.as_ref().is_some_and(|a| a.services.contains_key(uid))
            }
        };
        all(changes.owners().all(named), "a change without an owner waits")?;
        match &self.phase {
            Phase::Quiet => all(changes.is_empty(), "changes wait in a quiet pool"),
            Phase::Open => all(!changes.is_empty(), "a window is open for nothing"),
            Phase::Due(_) => all(self.ready_at().is_some(), "a pool is due that may not take part"),
            Phase::Attempting(attempt) => {
                all(
                    attempt.changes.within(self.params.max_retries),
                    "a running change is beyond its budget",
                )?;
                all(attempt.changes.owners().all(named), "a change without an owner runs")
            }
            Phase::Retiring(attempt) => {
                all(attempt.changes.is_empty() && changes.is_empty(), "a retiring pool has changes")
            }
            Phase::Quarantined(_) => all(changes.is_empty(), "a quarantined pool has changes"),
        }
    }

    /// Ends a step, whose outputs are in `out` from `from` on: checks the invariants, and publishes the pool. In
    /// tests and in the simulation a broken invariant ends the program. If the level is not `sound`, the fault is in
    /// its sender, which checks it.
    pub(super) fn finish_step(&mut self, now: Now, sound: bool, from: usize, out: &mut Vec<Out>) {
        let own = self.check();
        debug_assert!(own.is_ok() || self.broken_on_purpose, "{}: {own:?}: {self:?}", self.pool);
        let sound = if sound { Ok(()) } else { Err("a level is not the union of its Services' parts") };
        if let Err(broken) = sound.and(own) {
            self.quarantine(now, broken, from, out);
        }
        self.end_conditions(now, from, out);
        self.publish(now, out);
    }

    /// Releases everything except the owners of the pool, and takes back what this step has sent to the writer.
    fn quarantine(&mut self, now: Now, broken: &'static str, from: usize, out: &mut Vec<Out>) {
        let mut refused = None;
        for said in out.iter_mut().skip(from) {
            if let Out::Taken(_, id, taken) = said {
                refused = Some(*id);
                *taken = None;
            }
        }
        out.push(Out::Withdraw(self.pool.clone()));
        let blank = PoolQueue::new(self.pool.clone(), self.params.clone());
        let old = std::mem::replace(self, blank);
        let running = match old.phase {
            Phase::Attempting(attempt) | Phase::Retiring(attempt) if refused != Some(attempt.id) => {
                Some(Attempt { changes: Changes::default(), ..attempt })
            }
            Phase::Attempting(_)
            | Phase::Retiring(_)
            | Phase::Quiet
            | Phase::Open
            | Phase::Due(_)
            | Phase::Quarantined(_) => None,
        };
        (self.assignment, self.epoch, self.status_view) = (old.assignment, old.epoch, old.status_view);
        (self.reported, self.out_of_sync) = (old.reported, old.out_of_sync);
        (self.ended, self.not_before, self.losses.total) = (old.ended, old.not_before, old.losses.total);
        self.status_view.last_error = Some(Arc::from(broken));
        self.status_view.withheld = None;
        self.status_view.dirty = true;
        self.phase = Phase::Quarantined(Quarantine { broken, running, report_at: None });
        out.push(Out::Quarantined(self.pool.clone(), broken));
        self.report_quarantine(broken, out);
        if let Some(unowned) = self.assignment.take_if(|assignment| assignment.services.is_empty()) {
            self.leave_quarantine(now, unowned, out);
        }
    }

    fn report_quarantine(&self, broken: &'static str, out: &mut Vec<Out>) {
        let what = EventKind::Quarantined { pool: self.pool.clone(), broken };
        self.report([&ChangeOwner::Pool].into_iter(), what, out);
    }

    /// Reports the quarantine once more when that is due.
    pub(super) fn report_again(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Phase::Quarantined(quarantine) = &mut self.phase
            && quarantine.report_at.take_if(|at| *at <= now).is_some()
        {
            let broken = quarantine.broken;
            self.report_quarantine(broken, out);
        }
    }

    /// Processes an input in quarantine: answers what must be answered, and does nothing else.
    pub(super) fn step_quarantined(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        let from = out.len();
        match input {
            In::Assigned(assignment) => self.on_assigned_in_quarantine(now, assignment, out),
            In::Take(id) => {
                self.epoch = self.epoch.max(id.epoch);
                if self.end_running(|running| running == id) {
                    self.end(now, AttemptEnd::Interrupted, out);
                }
                out.push(Out::Taken(self.pool.clone(), id, None));
            }
            In::Finished(id, outcome) => {
                if self.end_running(|running| running == id) {
                    self.end(now, retired_end(&outcome), out);
                } else {
                    out.push(Out::Metric(Metric::UnmatchedAnswer));
                }
            }
            In::Attempt(id) => self.on_attempt_requested(now, id, out),
            In::Rewrite => out.push(Out::RewriteSkipped(self.pool.clone())),
            In::Observed(_) | In::Pace(_) | In::Verified(_) => {}
        }
        self.record_sync(now, false);
        self.end_conditions(now, from, out);
        self.publish(now, out);
    }

    /// Ends the running attempt if it is the given one. Returns whether an attempt was ended.
    fn end_running(&mut self, is_meant: impl Fn(AttemptId) -> bool) -> bool {
        match &mut self.phase {
            Phase::Quarantined(quarantine) => {
                quarantine.running.take_if(|attempt| is_meant(attempt.id)).is_some()
            }
            Phase::Quiet | Phase::Open | Phase::Due(_) | Phase::Attempting(_) | Phase::Retiring(_) => false,
        }
    }

    fn on_assigned_in_quarantine(&mut self, now: Now, new: Arc<Assignment>, out: &mut Vec<Out>) {
        let old = self.assignment.as_ref();
        if old.is_some_and(|old| new.epoch < old.epoch) {
            return;
        }
        if new.services.is_empty() {
            return self.leave_quarantine(now, new, out);
        }
        let begins = old.is_none_or(|old| old.epoch < new.epoch);
        let resumes = old.is_some_and(|old| old.is_paused()) && !new.is_paused();
        self.status_view.dirty |= status::differ(old.map(AsRef::as_ref), &new);
        let epoch = new.epoch;
        self.epoch = self.epoch.max(epoch);
        self.assignment = Some(new);
        if begins && self.end_running(|running| running.epoch < epoch) {
            self.end(now, AttemptEnd::Interrupted, out);
        }
        if let Phase::Quarantined(quarantine) = &mut self.phase
            && (begins || resumes)
        {
            quarantine.report_at = Some(now.plus(REPORT_AGAIN_AFTER));
        }
    }

    /// Ends the quarantine of a pool without an owner: the pool retires when none of its attempts is in flight.
    fn leave_quarantine(&mut self, now: Now, unowned: Arc<Assignment>, out: &mut Vec<Out>) {
        if let Phase::Quarantined(quarantine) = std::mem::replace(&mut self.phase, Phase::Quiet)
            && let Some(attempt) = quarantine.running
        {
            self.phase = Phase::Retiring(attempt);
        }
        self.status_view.last_error = None;
        self.on_released(now, unowned, out);
    }
}
