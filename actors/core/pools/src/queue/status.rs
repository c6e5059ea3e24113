//! The published status of a pool: the state under which it is counted, and its view (E2, H3).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::queue::changes::ChangeOwner;
use crate::queue::last_result::LastResult;
use crate::queue::{Out, Phase, PoolQueue};
use model::assignment::Assignment;
use model::blocked::{Blocked, BlockedUntil};
use model::ids::ServiceUid;
use model::machine::Now;
use model::sample::{Metric, PoolState};
use model::view::{LastAttempt, PoolView};
use model::write_record::WriteRecord;

/// The last published status, and values that are only published.
#[derive(Default, Debug)]
pub(super) struct QueueStatus {
    /// The state under which the pool is counted, and since when.
    state: Option<(PoolState, Now)>,
    /// Whether anything visible changed since the last view.
    pub dirty: bool,
    /// The end of the last attempt.
    pub last_end: Option<LastAttempt>,
    /// The changes of the attempt that is about to end.
    pub record: Option<Arc<WriteRecord>>,
    /// Error of the last failure.
    pub last_error: Option<Arc<str>>,
    /// Changes that a dry run would have made: added, removed.
    pub withheld: Option<(BTreeSet<IpAddr>, BTreeSet<IpAddr>)>,
}

impl QueueStatus {
    /// Removes the pool from the counts.
    pub fn forget(&mut self, out: &mut Vec<Out>) {
        if let Some((from, _)) = self.state.take() {
            out.push(Out::Metric(Metric::PoolState { from: Some(from), to: None }));
        }
    }
}

/// Returns whether two assignments of a pool differ visibly.
pub(super) fn differ(old: Option<&Assignment>, new: &Assignment) -> bool {
    let Some(old) = old else { return true };
    let (before, after) = (old.level.required.values(), new.level.required.values());
    !old.level.same_members(&new.level)
        || !old.services.keys().eq(new.services.keys())
        || !before.eq(after)
        || (&old.paused, old.provenance, old.family) != (&new.paused, new.provenance, new.family)
        || (&old.held, &old.would_hold, &old.source) != (&new.held, &new.would_hold, &new.source)
        || old.overruled != new.overruled
}

impl PoolQueue {
    /// Counts the pool under its state, and publishes its view if anything visible changed.
    pub(super) fn publish(&mut self, now: Now, out: &mut Vec<Out>) {
        let Some(assignment) = self.assignment.as_ref().map(Arc::clone) else {
            return;
        };
        let state = self.state(now, &assignment);
        let counted = self.status_view.state.map(|(state, _)| state);
        if counted != Some(state) {
            out.push(Out::Metric(Metric::PoolState { from: counted, to: Some(state) }));
            self.status_view.state = Some((state, now));
            self.status_view.dirty = true;
        }
        if std::mem::take(&mut self.status_view.dirty) {
            let since = self.status_view.state.map_or(now, |(_, since)| since);
            out.push(Out::View(Arc::new(self.view(now, &assignment, state, since))));
        }
    }

    fn state(&self, now: Now, assignment: &Assignment) -> PoolState {
        if let Phase::Quarantined(_) = self.phase {
            return PoolState::Quarantined;
        }
        if self.in_flight() {
            return PoolState::Attempting;
        }
        if assignment.is_paused() {
            return PoolState::Paused;
        }
        if self.observed.is_none() {
            return PoolState::Unknown;
        }
        if let Phase::Due(_) = self.phase {
            return PoolState::Due;
        }
        if self.is_parked(now) {
            return PoolState::Parked;
        }
        if !self.waiting.changes.is_empty() {
            return PoolState::Waiting;
        }
        match &self.last_result {
            LastResult::Unknown => PoolState::Unknown,
            LastResult::InSync => PoolState::InSync,
            LastResult::Failed(_) | LastResult::Backoff(_) | LastResult::NotFound => PoolState::Failed,
            LastResult::LeftAlone(_) | LastResult::Withheld { .. } => PoolState::Waiting,
        }
    }

    fn is_parked(&self, now: Now) -> bool {
        self.waiting.changes.eligible_at().is_some_and(|at| at > now)
    }

    /// Returns why the pool is not due, and when it may become so. `None`: it is due or at work, nothing is to be
    /// written, or the next observation decides.
    pub(super) fn blocked(&self, now: Now) -> Option<BlockedUntil> {
        let assignment = self.assignment.as_ref()?;
        match &self.phase {
            Phase::Due(_) | Phase::Attempting(_) | Phase::Retiring(_) | Phase::Quarantined(_) => return None,
            Phase::Quiet | Phase::Open => {}
        }
        if assignment.is_paused() {
            return Some(Blocked::Paused.open_ended());
        }
        self.observed.as_ref()?;
        let blocked = if self.waiting.changes.is_empty() {
            let held = || {
                let held = assignment.held.as_ref()?;
                Some(BlockedUntil { why: Blocked::Held, until: held.waits.earliest() })
            };
            self.comparison_blocked().or_else(held)?
        } else {
            BlockedUntil { why: self.changes_blocked(now, assignment), until: self.due_at() }
        };
        Some(BlockedUntil { until: blocked.until.filter(|at| *at > now), ..blocked })
    }

    /// Returns why waiting changes are not due: of window, interval and back-off, the one that ends last.
    fn changes_blocked(&self, now: Now, assignment: &Assignment) -> Blocked {
        if self.is_parked(now) {
            return Blocked::Parked;
        }
        if assignment.epoch < self.epoch {
            return Blocked::NotLeader;
        }
        // Drift that is left alone for a while is recorded as a change at a later time (W11).
        if self.waiting.changes.since().is_some_and(|since| since > now) {
            return Blocked::Contention;
        }
        let closes = self.waiting.closes(self.params.quiet_period, self.params.max_delay);
        if closes > self.not_before { Blocked::Window } else { Blocked::Interval }
    }

    /// Returns when the state Parked ends, while the pool is counted under it.
    pub(super) fn parked_state_until(&self) -> Option<Now> {
        match self.status_view.state {
            Some((PoolState::Parked, _)) => self.waiting.changes.eligible_at(),
            Some(_) | None => None,
        }
    }

    fn view(&self, now: Now, assignment: &Assignment, state: PoolState, since: Now) -> PoolView {
        let attempt = match &self.phase {
            Phase::Attempting(attempt) | Phase::Retiring(attempt) => Some(attempt),
            Phase::Quarantined(quarantine) => quarantine.running.as_ref(),
            Phase::Quiet | Phase::Open | Phase::Due(_) => None,
        };
        PoolView {
            pool: self.pool.clone(),
            family: assignment.family,
            source: assignment.source.clone(),
            services: assignment
                .services
                .iter()
                .map(|(uid, share)| (uid.clone(), share.key.clone()))
                .collect(),
            state,
            since,
            level: assignment.level.clone(),
            provenance: assignment.provenance,
            observed: self.observed.as_ref().map(|observed| observed.members.clone()),
            observed_down: self.observed.as_ref().map(|observed| observed.down.clone()).unwrap_or_default(),
            observed_other: self.observed.as_ref().map(|observed| observed.other.clone()).unwrap_or_default(),
            observed_at: self.observed.as_ref().map(|observed| observed.seen),
            waiting_since: self.waiting_since(assignment),
            out_of_sync: self.out_of_sync,
            provisioning_failed: self.observed.as_ref().is_some_and(|observed| observed.failed),
            blocked: self.blocked(now),
            retries: self.retries(assignment),
            attempt: attempt.map(|attempt| attempt.id),
            last_end: self.status_view.last_end.clone(),
            last_error: self.status_view.last_error.clone(),
            held: assignment.held.clone(),
            would_hold: assignment.would_hold.clone(),
            overruled: assignment.overruled.clone(),
            paused: assignment.paused.clone(),
            withheld: self.status_view.withheld.clone(),
            lost_writes: self.losses.total,
        }
    }

    /// Returns since when a change has waited that may be written; the time of a pause does not count. A level whose
    /// write failed and will be tried again waits too, for as long as the pool has been out of sync.
    fn waiting_since(&self, assignment: &Assignment) -> Option<Now> {
        let is_tried_again = self.last_result.failed().is_some_and(|failed| failed.compare_at.is_some());
        let failed = self.out_of_sync.filter(|_| is_tried_again).map(|out| out.since);
        let since = [self.waiting.changes.since(), failed].into_iter().flatten().min();
        let since = since.filter(|_| !assignment.is_paused())?;
        Some(since.max(self.resumed.unwrap_or(since)))
    }

    /// Returns the waiting retry counts by Service; a change that no single Service caused is shown under each
    /// Service.
    fn retries(&self, assignment: &Assignment) -> BTreeMap<ServiceUid, Vec<u32>> {
        let counts = |uid: &ServiceUid| -> Vec<u32> {
            let owner = ChangeOwner::Service(uid.clone());
            let own = self.waiting.changes.counts(&owner);
            let all: BTreeSet<u32> = own.chain(self.waiting.changes.counts(&ChangeOwner::Pool)).collect();
            all.into_iter().collect()
        };
        let by_service = assignment.services.keys().map(|uid| (uid.clone(), counts(uid)));
        by_service.filter(|(_, counts)| !counts.is_empty()).collect()
    }
}
