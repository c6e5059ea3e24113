//! What the writer needs of the shared Lease, and what it does with and without it (docs/design/writer.md, W7; W8).

use std::collections::BTreeSet;
use std::time::Duration;

use model::ids::{CallId, PoolId};
use model::lease::LeaseAnswer;
use model::machine::Now;
use model::sample::{Caller, GateClass, Metric};

use super::super::budget::BudgetPurpose;
use super::super::lane::{Eligible, Lane};
use super::super::write::{Exclusion, PollStep, WritePhase as Step};
use super::super::{Out, Writer, WriterPhase};
use super::{RELEASE_LIMIT, SharedLease};

/// Time after which a Down may go without the Lease, if that is allowed (W7).
const BYPASS_AFTER: Duration = Duration::from_secs(2);

/// Longest wait for a read token with which a write still relies on the Lease.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// The current need for the Lease.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// Whether this process certainly leads.
    pub leads: bool,
    /// Whether the Lease is observed: this process leads and is not shutting down.
    pub watches: bool,
    /// Whether a write could begin with the Lease.
    pub grant: bool,
    /// Callers of such writes.
    pub callers: BTreeSet<Caller>,
    /// Whether a current write relies on the Lease.
    pub used: bool,
    /// Whether a PUT sent under the Lease is unanswered.
    pub putting: bool,
}

impl SharedLease {
    /// Returns the time at which a waiting Down may go without the Lease. `None`: no Down waits, or that is not
    /// allowed.
    pub(super) fn bypass_at(&self) -> Option<Now> {
        let since = self.wanted_since.filter(|_| self.params.bypass_for_drain)?;
        Some(since.plus(BYPASS_AFTER))
    }

    /// Returns the latest due time of a Down that may go without the Lease now. `None`: no Down may.
    fn bypasses(&self, now: Now) -> Option<Now> {
        self.bypass_at().filter(|at| *at <= now).map(|_| now.minus(BYPASS_AFTER))
    }
}

impl Writer {
    pub(crate) fn on_lease(&mut self, now: Now, call: CallId, answer: LeaseAnswer, out: &mut Vec<Out>) {
        match &mut self.shared_lease {
            Some(lease) => lease.on_answer(now, call, answer, out),
            None => out.push(Out::Metric(Metric::UnmatchedAnswer)),
        }
    }

    pub(crate) fn on_lock_failures(
        &mut self,
        now: Now,
        call: CallId,
        count: Option<u32>,
        out: &mut Vec<Out>,
    ) {
        match &mut self.shared_lease {
            Some(lease) => lease.on_lock_failures(now, call, count, out),
            None => out.push(Out::Metric(Metric::UnmatchedAnswer)),
        }
    }

    /// Returns whether writes may start. Always, if the shared Lease is not used.
    pub(crate) fn lock_may_start(&self, now: Now) -> bool {
        self.shared_lease.as_ref().is_none_or(|lease| lease.may_start(now))
    }

    /// Returns the time until which a PUT may be sent under the Lease. `None`: no PUT may (W8).
    pub(crate) fn lock_send_deadline(&self) -> Option<Now> {
        self.shared_lease.as_ref().map_or(Some(Now::NEVER), SharedLease::send_deadline)
    }

    /// Passes the current demand to the Lease and reconciles it.
    pub(crate) fn reconcile_shared_lease(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.phase == WriterPhase::Quiet {
            return;
        }
        let Some(mut lease) = self.shared_lease.take() else { return };
        let leads = self.leadership.leads_for_certain(now);
        let grant = self.could_grant(now);
        let waits = grant && !lease.may_start(now);
        let demand = Demand {
            leads,
            watches: leads && self.phase == WriterPhase::Running,
            grant,
            callers: if waits { self.callers(now) } else { BTreeSet::new() },
            // A process that may not write does not hold the Lease. It still waits for the PUTs in flight.
            used: self.is_write_allowed()
                && lease
                    .taken()
                    .is_some_and(|taken| self.lanes.values().any(|lane| self.relies_on(now, taken, lane))),
            putting: self.calls.puts() > 0 && self.lanes.values().any(is_putting_under_lease),
        };
        lease.reconcile(now, &demand, out);
        self.shared_lease = Some(lease);
    }

    /// Returns whether a lane's write relies on the Lease. A write that waits for a gate or for budget does not, and
    /// neither does an operation of an earlier hold.
    fn relies_on(&self, now: Now, taken: Now, lane: &Lane) -> bool {
        let Some(write) = lane.write.as_ref().filter(|write| !write.bypasses()) else { return false };
        let reads_go = || {
            self.gates.closed(now, GateClass::Reads).is_none()
                && self
                    .budget
                    .ready_at(now, BudgetPurpose::Begun)
                    .is_some_and(|at| at <= now.plus(SHORT_WAIT))
        };
        match &write.phase {
            Step::Putting(_) => true,
            Step::Taking => reads_go(),
            Step::Reading => self.calls.is_reading(&write.pool) || reads_go(),
            Step::Polling(polling) => {
                let open_request = match polling.step {
                    PollStep::Until(_) | PollStep::Glancing => false,
                    PollStep::Polling | PollStep::ReadingBack(_) | PollStep::LastRead => {
                        self.calls.is_reading(&write.pool)
                    }
                };
                taken <= write.granted && (open_request || reads_go())
            }
        }
    }

    /// Grants Downs that have waited for the Lease long enough, under [`Exclusion::AtRest`] (W7).
    pub(crate) fn grant_bypasses(&mut self, now: Now, out: &mut Vec<Out>) {
        let Some(due_by) = self.shared_lease.as_ref().and_then(|lease| lease.bypasses(now)) else { return };
        let lbs: Vec<_> = self.ready.iter().cloned().collect();
        for lb in lbs {
            if !self.may_start(now) || !self.can_pay(now, BudgetPurpose::Admin) {
                return;
            }
            if self.breaker.admits(now, &lb).and_then(|pick| pick.and(Eligible::Down)).is_none() {
                continue;
            }
            let granted = self.lanes.get_mut(&lb).and_then(|lane| lane.grant_down(due_by));
            if let Some((pool, slot)) = granted {
                self.begin(now, PoolId::new(lb.clone(), pool), slot, Exclusion::AtRest(None), out);
                self.touch(&lb);
            }
        }
    }

    /// Returns whether the Lease is released, or the time for the release is over.
    pub(crate) fn has_released(&mut self, now: Now) -> bool {
        let Some(lease) = &self.shared_lease else { return true };
        let by = *self.release_by.get_or_insert(now.plus(RELEASE_LIMIT));
        lease.is_released() || now >= by
    }
}

fn is_putting_under_lease(lane: &Lane) -> bool {
    lane.write.as_ref().is_some_and(|write| !write.bypasses() && matches!(write.phase, Step::Putting(_)))
}
