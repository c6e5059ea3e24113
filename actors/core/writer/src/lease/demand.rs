//! What the writer wants of the shared Lease, and what it does with and without it (docs/design/writer.md, W7; W8).

use std::collections::BTreeSet;
use std::time::Duration;

use model::ids::{CallId, PoolId};
use model::lease::LeaseAnswer;
use model::machine::Now;
use model::sample::{Caller, GateClass, Metric};

use super::super::budget::Need;
use super::super::lane::{Eligible, Lane};
use super::super::write::{Exclusion, Phase as Step, PollStep};
use super::super::{Life, Out, Writer};
use super::{LET_GO_LIMIT, SharedLease};

/// How long a Down waits for the Lease before it goes without it, where that is allowed (W7).
const BYPASS_AFTER: Duration = Duration::from_secs(2);

/// How long a read may wait for a token before its write counts as held up.
const SHORT_WAIT: Duration = Duration::from_secs(1);

/// What is wanted of the Lease now.
#[derive(Clone, Debug)]
pub(crate) struct Demand {
    /// Whether this process leads for certain.
    pub leads: bool,
    /// Whether it leads and goes on, so that what is known of the Lease is kept current.
    pub watches: bool,
    /// Whether a write could begin if it were ours.
    pub grant: bool,
    /// Who waits for it because of that.
    pub callers: BTreeSet<Caller>,
    /// Whether a write under way relies on it.
    pub used: bool,
    /// Whether a PUT that was sent under it is unanswered.
    pub putting: bool,
}

impl SharedLease {
    /// When a Down that still waits then may go without it; `None`: nothing waits, or that is not allowed.
    pub(super) fn bypass_at(&self) -> Option<Now> {
        let since = self.wanted_since.filter(|_| self.params.bypass_for_drain)?;
        Some(since.plus(BYPASS_AFTER))
    }

    /// Whether a Down may go without it, and how long ago it must have been due for that.
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

    /// Whether the Lease lets writes start; always, where it is not used.
    pub(crate) fn lock_may_start(&self, now: Now) -> bool {
        self.shared_lease.as_ref().is_none_or(|lease| lease.may_start(now))
    }

    /// Until when a PUT may be sent under the Lease; `None`: none may (W8).
    pub(crate) fn lock_send_before(&self) -> Option<Now> {
        self.shared_lease.as_ref().map_or(Some(Now::NEVER), SharedLease::send_before)
    }

    /// Tells the lock what is wanted of it, and lets it act.
    pub(crate) fn advance_shared_lease(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.life == Life::Quiet {
            return;
        }
        let Some(mut lease) = self.shared_lease.take() else { return };
        let leads = self.standing.leads_for_certain(now);
        let grant = self.could_grant(now);
        let waits = grant && !lease.may_start(now);
        let wants = Demand {
            leads,
            watches: leads && self.life == Life::Running,
            grant,
            callers: if waits { self.callers(now) } else { BTreeSet::new() },
            // A process that may not write does not hold it; a PUT that was sent is still waited for.
            used: self.is_let()
                && lease
                    .taken()
                    .is_some_and(|taken| self.lanes.values().any(|lane| self.relies_on(now, taken, lane))),
            putting: self.calls.puts() > 0 && self.lanes.values().any(is_putting_under_lease),
        };
        lease.advance(now, &wants, out);
        self.shared_lease = Some(lease);
    }

    /// Whether a lane's write relies on the Lease. What is held up by a closed gate or a dry budget does not, nor
    /// does an operation of an earlier hold.
    fn relies_on(&self, now: Now, taken: Now, lane: &Lane) -> bool {
        let Some(write) = lane.write.as_ref().filter(|write| !write.bypasses()) else { return false };
        let reads_go = || {
            self.gates.closed(now, GateClass::Reads).is_none()
                && self.budget.ready_at(now, Need::Begun).is_some_and(|at| at <= now.plus(SHORT_WAIT))
        };
        match &write.phase {
            Step::Putting(_) => true,
            Step::Taking => reads_go(),
            Step::Reading => self.calls.is_reading(&write.pool) || reads_go(),
            Step::Polling(polling) => {
                let asked = match polling.step {
                    PollStep::Until(_) | PollStep::Glancing => false,
                    PollStep::Asked | PollStep::ReadingBack | PollStep::LastLook => {
                        self.calls.is_reading(&write.pool)
                    }
                };
                taken <= write.granted && (asked || reads_go())
            }
        }
    }

    /// Lets Downs go that have waited for the Lease for long enough; [`Exclusion::AtRest`] is what they go by (W7).
    pub(crate) fn grant_bypasses(&mut self, now: Now, out: &mut Vec<Out>) {
        let Some(due_by) = self.shared_lease.as_ref().and_then(|lease| lease.bypasses(now)) else { return };
        let lbs: Vec<_> = self.ready.iter().cloned().collect();
        for lb in lbs {
            if !self.may_start(now) || !self.can_pay(now, Need::Admin) {
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

    /// Whether nothing of the shared Lease is ours any more, or giving it back was tried for long enough.
    pub(crate) fn has_let_go(&mut self, now: Now) -> bool {
        let Some(lease) = &self.shared_lease else { return true };
        let by = *self.let_go_by.get_or_insert(now.plus(LET_GO_LIMIT));
        lease.is_let_go() || now >= by
    }
}

fn is_putting_under_lease(lane: &Lane) -> bool {
    lane.write.as_ref().is_some_and(|write| !write.bypasses() && matches!(write.phase, Step::Putting(_)))
}
