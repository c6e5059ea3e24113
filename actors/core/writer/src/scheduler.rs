//! Which lane is granted next, and which of its slots: as turns go round, as far as the budget and the breaker let
//! them (docs/design/writer.md, W1, W9, W10).

use std::collections::BTreeSet;
use std::ops::Bound;

use model::ids::LbName;
use model::machine::{Now, earliest};
use model::sample::{ArmVerb, Caller, GateClass, Metric};

use super::budget::Need;
use super::lane::{Eligible, Lane};
use super::write::Phase;
use super::{Out, Writer};

impl Writer {
    /// The lane that is granted next, and which of its slots may be; `None`: nothing may be granted now. No more
    /// than `most` is.
    pub(super) fn next_grant(&self, now: Now, most: Eligible) -> Option<(LbName, Eligible)> {
        if self.ready.is_empty() {
            return None;
        }
        let paid = if self.can_pay(now, Need::Membership) {
            Eligible::Any
        } else if self.can_pay(now, Need::Admin) {
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

    /// Which of a lane's slots the breaker lets go. Where a Down may be tried, one is: those that are asked for again
    /// come last among them, so that one that goes through is found (W10).
    fn admitted(&self, now: Now, lb: &LbName, lane: &Lane) -> Option<Eligible> {
        let pick = self.breaker.admits(now, lb)?;
        let tries_down = self.breaker.admin_probe_at(lb, true).is_some() && lane.has(Eligible::Down);
        Some(if tries_down { pick.and(Eligible::Down).unwrap_or(pick) } else { pick })
    }

    /// Whose work is among what the next grants of all lanes could be of.
    pub(super) fn callers(&self, now: Now) -> BTreeSet<Caller> {
        let admitted = |lb: &LbName, most: Eligible| {
            self.breaker.admits(now, lb).and_then(|pick| pick.and(most)).is_some()
        };
        let has = |lb: &LbName| self.lanes.get(lb).is_some_and(Lane::has_membership);
        let waits = |caller: &Caller| match caller {
            Caller::Membership => {
                self.ready.iter().any(|lb| has(lb) && admitted(lb, Eligible::Members))
                    && self.can_pay(now, Need::Membership)
            }
            Caller::AdminState => {
                let again = |lb: &LbName| self.lanes.get(lb).is_some_and(Lane::has_admin);
                let asks_again = self.ready.iter().any(|lb| again(lb) && admitted(lb, Eligible::Admin));
                self.next_grant(now, Eligible::Admin).is_some()
                    || asks_again && self.can_pay(now, Need::Membership)
            }
        };
        Caller::ALL.into_iter().filter(waits).collect()
    }

    /// Whether a grant can be paid for, its GET included: the reads that go before it are set aside. Without its GET
    /// a granted lane would keep its turn and the shared Lease for nothing, and be given up with the hold.
    pub(super) fn can_pay(&self, now: Now, need: Need) -> bool {
        match self.reads_before(now) {
            0 => self.budget.allows(now, need),
            reads => self.budget.allows_after(now, need, reads),
        }
    }

    /// How many reads go before the GET of the next grant: those of the lanes that were granted before and have not
    /// brought their level yet, and those of what has begun that wait. Behind a closed gate none is sent.
    fn reads_before(&self, now: Now) -> usize {
        if self.gates.closed(now, GateClass::Reads).is_some() {
            return 0;
        }
        let writes = self.lanes.values().filter_map(|lane| lane.write.as_ref());
        self.calls.begun_waiting() + writes.filter(|write| matches!(write.phase, Phase::Taking)).count()
    }

    /// Says that a grant begins to wait for a rate of the cloud configuration, once until it is made: for its PUT,
    /// else for the GET before it. What waits for our own budget alone is not told (E2).
    pub(super) fn note_rate_limited_grant(&mut self, now: Now, out: &mut Vec<Out>) {
        self.grant_limited &= !self.ready.is_empty();
        if self.grant_limited {
            return;
        }
        let admitted = |lb: &LbName| {
            let pick = self.breaker.admits(now, lb);
            pick.is_some_and(|pick| self.lanes.get(lb).is_some_and(|lane| lane.has(pick)))
        };
        let limited = self.budget.limited_by_rate(now, Need::Membership).filter(|_| self.may_start(now));
        let Some(class) = limited.filter(|_| self.ready.iter().any(admitted)) else { return };
        self.grant_limited = true;
        let verb = match class {
            GateClass::Reads => ArmVerb::GetPool,
            GateClass::Writes => ArmVerb::PutPool,
        };
        out.push(Out::Metric(Metric::RateLimited(verb)));
    }

    /// When time alone lets the next grant go, apart from the reads that go before its own, each of which has a
    /// deadline; `None`: none waits for tokens or for the breaker.
    pub(super) fn grant_refill(&self, now: Now) -> Option<Now> {
        if self.ready.is_empty() || !self.may_start(now) {
            return None;
        }
        let membership = self.budget.ready_at(now, Need::Membership);
        let admin = self.budget.ready_at(now, Need::Admin);
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

    /// The ready lanes, beginning behind the one that was granted last (W1).
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
