//! Selects the next lane and its slots for a grant: round-robin, as far as budget and breaker allow
//! (docs/design/writer.md, W1, W9, W10).

use std::collections::BTreeSet;
use std::ops::Bound;

use model::ids::LbName;
use model::machine::{Now, earliest};
use model::sample::{ArmVerb, Caller, GateClass, Metric};

use super::budget::BudgetPurpose;
use super::lane::{Eligible, Lane};
use super::write::WritePhase;
use super::{Out, Writer};

impl Writer {
    /// Returns the next lane to grant, and its eligible slots, restricted to `most`. `None`: nothing may be granted
    /// now.
    pub(super) fn next_grant(&self, now: Now, most: Eligible) -> Option<(LbName, Eligible)> {
        if self.ready.is_empty() {
            return None;
        }
        let paid = if self.can_pay(now, BudgetPurpose::Membership) {
            Eligible::Any
        } else if self.can_pay(now, BudgetPurpose::Admin) {
            Eligible::Admin
        } else {
            return None;
        };
        self.ready_in_turn().find_map(|lb| {
            let lane = self.lanes.get(lb)?;
            let pick = paid.and(most)?.and(self.admitted(now, lb, lane)?)?;
            (lane.has(pick) && lane.has(paid)).then(|| (lb.clone(), pick))
        })
    }

    /// Returns the slots of a lane that the breaker allows. If a Down may probe, one does: repeated Downs come last,
    /// so that a Down that succeeds is found (W10).
    fn admitted(&self, now: Now, lb: &LbName, lane: &Lane) -> Option<Eligible> {
        let pick = self.breaker.admits(now, lb)?;
        let tries_down = self.breaker.admin_probe_at(lb, true).is_some() && lane.has(Eligible::Down);
        Some(if tries_down { pick.and(Eligible::Down).unwrap_or(pick) } else { pick })
    }

    /// Returns the callers of the writes for which lanes could be granted next.
    pub(super) fn callers(&self, now: Now) -> BTreeSet<Caller> {
        let admitted = |lb: &LbName, most: Eligible| {
            self.breaker.admits(now, lb).and_then(|pick| pick.and(most)).is_some()
        };
        let has = |lb: &LbName| self.lanes.get(lb).is_some_and(Lane::has_membership);
        let waits = |caller: &Caller| match caller {
            Caller::Membership => {
                self.ready.iter().any(|lb| has(lb) && admitted(lb, Eligible::Members))
                    && self.can_pay(now, BudgetPurpose::Membership)
            }
            Caller::AdminState => {
                let again = |lb: &LbName| self.lanes.get(lb).is_some_and(Lane::has_admin);
                let asks_again = self.ready.iter().any(|lb| again(lb) && admitted(lb, Eligible::Admin));
                self.next_grant(now, Eligible::Admin).is_some()
                    || asks_again && self.can_pay(now, BudgetPurpose::Membership)
            }
        };
        Caller::ALL.into_iter().filter(waits).collect()
    }

    /// Returns whether the budget allows a grant with its GET, after the reads that go before it. Without its GET, a
    /// granted lane would keep its turn and the shared Lease without using them until the end of the hold.
    pub(super) fn can_pay(&self, now: Now, need: BudgetPurpose) -> bool {
        match self.reads_before(now) {
            0 => self.budget.allows(now, need),
            reads => self.budget.allows_after(now, need, reads),
        }
    }

    /// Returns the number of reads that go before the GET of the next grant: waiting reads of writes that have begun,
    /// and one for each granted lane without its level. None is sent behind a closed gate.
    fn reads_before(&self, now: Now) -> usize {
        if self.gates.closed(now, GateClass::Reads).is_some() {
            return 0;
        }
        let writes = self.lanes.values().filter_map(|lane| lane.write.as_ref());
        self.calls.begun_waiting() + writes.filter(|write| matches!(write.phase, WritePhase::Taking)).count()
    }

    /// Counts a grant that is delayed by a rate limit of the cloud configuration, for its PUT or else for its GET.
    /// Each grant counts once. Waits for our own budget do not count (E2).
    pub(super) fn count_rate_limited_grant(&mut self, now: Now, out: &mut Vec<Out>) {
        self.grant_limited &= !self.ready.is_empty();
        if self.grant_limited {
            return;
        }
        let admitted = |lb: &LbName| {
            let pick = self.breaker.admits(now, lb);
            pick.is_some_and(|pick| self.lanes.get(lb).is_some_and(|lane| lane.has(pick)))
        };
        let limited =
            self.budget.limited_by_rate(now, BudgetPurpose::Membership).filter(|_| self.may_start(now));
        let Some(class) = limited.filter(|_| self.ready.iter().any(admitted)) else { return };
        self.grant_limited = true;
        let verb = match class {
            GateClass::Reads => ArmVerb::GetPool,
            GateClass::Writes => ArmVerb::PutPool,
        };
        out.push(Out::Metric(Metric::RateLimited(verb)));
    }

    /// Returns the time at which the next grant becomes possible without input. The reads before its own have their
    /// own deadlines. `None`: no grant waits for tokens or for the breaker.
    pub(super) fn grant_refill(&self, now: Now) -> Option<Now> {
        if self.ready.is_empty() || !self.may_start(now) {
            return None;
        }
        let membership = self.budget.ready_at(now, BudgetPurpose::Membership);
        let admin = self.budget.ready_at(now, BudgetPurpose::Admin);
        let of_lane = |lb: &LbName| {
            let lane = self.lanes.get(lb)?;
            let from = |paid: Option<Now>, probe: Option<Now>| {
                paid.map(|at| probe.map_or(at, |probe| probe.max(at)))
            };
            let paid = if lane.has(Eligible::Admin) { admin } else { membership };
            let of_admin = from(paid, self.breaker.admin_probe_at(lb, lane.has(Eligible::Down)));
            let of_members = from(membership, self.breaker.probe_at(lb));
            earliest(of_admin.filter(|_| lane.has_admin()), of_members.filter(|_| lane.has_membership()))
        };
        self.ready.iter().map(of_lane).fold(None, earliest)
    }

    /// Returns the ready lanes, starting after the last granted one (W1).
    fn ready_in_turn(&self) -> impl Iterator<Item = &LbName> {
        let (behind, before) = match &self.granted_last {
            Some(last) => (
                self.ready.range::<LbName, _>((Bound::Excluded(last), Bound::Unbounded)),
                self.ready.range::<LbName, _>((Bound::Unbounded, Bound::Included(last))),
            ),
            None => (self.ready.range::<LbName, _>(..), self.ready.range::<LbName, _>(..)),
        };
        behind.chain(before)
    }
}
