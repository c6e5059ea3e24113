//! The steps of a write: due parts, grant, level, GET and PUT (docs/design/writer.md, W1, W2).

use std::sync::Arc;

use model::arm::{
    AdminState, ArmAnswer, ArmCall, ArmRequest, FailureKind, LbFacts, Permit, PoolRead, Provisioning,
    PutAccepted,
};
use model::attempt::{MembershipDue, MembershipWrite, Outcome};
use model::ids::{AttemptId, LbName, PoolId};
use model::machine::Now;
use model::proof::prove;
use model::sample::{Caller, GateClass, Metric};

use super::breaker::WriteKind;
use super::classify::{Answered, FailedCall, FailedPut};
use super::completion::{WriteEnd, report_outcome};
use super::dispatch::unexpected;
use super::gate::gate_closed;
use super::in_flight::{Purpose, SEND_LIMIT};
use super::lane::{Eligible, LaneState};
use super::plan::{Plan, PoolChange, plan};
use super::record::record;
use super::slot::Slot;
use super::write::{Exclusion, MembershipPart, Polling, Put, Write, WriteHistory, WritePhase};
use super::{AdminDue, AdminUrgency, Out, Writer, WriterPhase};

impl Writer {
    pub(super) fn on_due(&mut self, now: Now, pool: &PoolId, due: MembershipDue) {
        if self.phase == WriterPhase::Running {
            let lane = self.lane(&pool.lb);
            lane.edit(&pool.pool, |slot| slot.membership_due(due));
            self.on_due_unread(now, pool);
            self.touch(&pool.lb);
        }
    }

    /// Withdraws the membership part of a pool. A pool with a waiting attempt cannot withdraw; it answers the next
    /// Take with `None`.
    pub(super) fn on_withdraw(&mut self, pool: &PoolId) {
        let Some(lane) = self.lanes.get_mut(&pool.lb) else { return };
        lane.edit(&pool.pool, Slot::withdraw);
        self.touch(&pool.lb);
    }

    /// Grants ready lanes, one after another, while there are turns and nothing else prevents it.
    pub(super) fn grant_all(&mut self, now: Now, out: &mut Vec<Out>) {
        while self.may_start(now) && self.lock_may_start(now) {
            let Some((lb, pick)) = self.next_grant(now, Eligible::Any) else { return };
            self.granted_last = Some(lb.clone());
            let granted = self.lanes.get_mut(&lb).and_then(|lane| lane.grant(pick));
            if let Some((pool, slot)) = granted {
                self.begin(now, PoolId::new(lb.clone(), pool), slot, Exclusion::SharedLease, out);
            }
            self.touch(&lb);
        }
    }

    /// Returns whether a grant would follow if we held the shared Lease.
    pub(super) fn could_grant(&self, now: Now) -> bool {
        self.may_start(now) && self.next_grant(now, Eligible::Any).is_some()
    }

    /// Returns whether grants are possible, apart from the state of single lanes and calls.
    pub(super) fn may_start(&self, now: Now) -> bool {
        self.phase == WriterPhase::Running
            && self.is_write_allowed()
            && self.busy < self.params.turns
            && self.leadership.send_deadline().is_some_and(|last| now <= last)
            && (!self.params.gates_delay_grants || self.gates.are_open(now))
    }

    /// Begins the write of a granted slot.
    pub(super) fn begin(
        &mut self,
        now: Now,
        pool: PoolId,
        slot: Slot,
        exclusion: Exclusion,
        out: &mut Vec<Out>,
    ) {
        let Some(epoch) = self.leadership.term() else { return };
        let lb = pool.lb.clone();
        let Some(lane) = self.lanes.get_mut(&lb) else { return };
        self.breaker.granted(now, &lb, WriteKind::of(slot.membership, slot.admin));
        self.grant_limited = false;
        let asks = slot.membership.is_some();
        let admin_granted = slot.resume.as_ref().and_then(|resume| resume.admin_granted);
        // An id names one attempt of the pool. A new attempt must not reuse the id of a write that went on without
        // membership.
        let (resumed, history) = match slot.resume {
            Some(resume) if resume.taken == asks => (Some(resume.attempt), resume.history),
            Some(_) | None => (None, WriteHistory::default()),
        };
        let attempt = resumed.unwrap_or_else(|| {
            self.attempts += 1;
            AttemptId { epoch, n: self.attempts }
        });
        self.budget.spend(now, GateClass::Writes);
        if let Some(due) = slot.membership {
            if resumed.is_none() {
                let waited = now.since(due.since);
                out.push(Out::Metric(Metric::LaneWait { caller: Caller::Membership, waited }));
            }
            out.push(Out::Take(pool.clone(), attempt));
        }
        if let (Some(due), None) = (slot.admin, admin_granted) {
            let waited = now.since(due.since);
            out.push(Out::Metric(Metric::LaneWait { caller: Caller::AdminState, waited }));
        }
        lane.write = Some(Write {
            attempt,
            pool,
            granted: now,
            membership: slot.membership.map_or(MembershipPart::Absent, MembershipPart::Requested),
            admin: slot.admin,
            admin_granted: slot.admin.map(|_| admin_granted.unwrap_or(now)),
            history,
            token: true,
            exclusion,
            phase: WritePhase::Taking,
        });
        if !asks {
            self.begin_read(now, &lb, out);
        }
    }

    pub(super) fn on_taken(
        &mut self,
        now: Now,
        pool: &PoolId,
        attempt: AttemptId,
        taken: Option<MembershipWrite>,
        out: &mut Vec<Out>,
    ) {
        let asked = self
            .write_mut(pool, attempt)
            .filter(|write| matches!(write.phase, WritePhase::Taking))
            .and_then(|write| write.due().map(|due| (write, due)));
        let Some((write, due)) = asked else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        };
        write.membership = match taken {
            Some(taken) => MembershipPart::Taken(due, Arc::new(taken)),
            None => MembershipPart::Absent,
        };
        self.continue_with_remaining_parts(now, &pool.lb, out);
        self.touch(&pool.lb);
    }

    /// Takes the grant back from a pool that does not answer its Take. Messages to the pool stay in order: if it
    /// answers late, it learns next that its attempt was not granted.
    pub(super) fn on_take_unanswered(&mut self, now: Now, lb: &LbName, out: &mut Vec<Out>) {
        let Some(write) = self.open_write_mut(lb) else { return };
        write.membership = MembershipPart::Absent;
        out.push(Out::Finished(write.pool.clone(), write.attempt, Outcome::NotGranted));
        self.continue_with_remaining_parts(now, lb, out);
    }

    fn continue_with_remaining_parts(&mut self, now: Now, lb: &LbName, out: &mut Vec<Out>) {
        let parts_left = self.open_write(lb).is_some_and(Write::has_parts);
        if parts_left {
            self.begin_read(now, lb, out);
        } else {
            self.end(now, lb, WriteEnd::Abandoned, out);
        }
    }

    /// Begins a round with its GET. A closed gate ends the write, or costs one of its tries (W6). A write with a
    /// throttled PUT does not read before the gate for writes is open.
    fn begin_read(&mut self, now: Now, lb: &LbName, out: &mut Vec<Out>) {
        let Some(write) = self.open_write(lb) else { return };
        let met = if write.history.put_throttled && self.gates.closed(now, GateClass::Writes).is_some() {
            Some(GateClass::Writes)
        } else {
            self.gates.closed(now, GateClass::Reads).map(|_| GateClass::Reads)
        };
        match met {
            Some(verb) => self.fail(now, lb, verb, gate_closed(), out),
            None => self.queue_read(lb),
        }
    }

    /// Queues the GET of the write's next round. Without the shared Lease, a read of the load balancer comes first.
    pub(super) fn queue_read(&mut self, lb: &LbName) {
        let Some(write) = self.open_write_mut(lb) else { return };
        write.phase = WritePhase::Reading;
        let (pool, attempt) = (write.pool.clone(), write.attempt);
        let read = match write.exclusion {
            Exclusion::SharedLease => Purpose::PreWrite(pool, attempt),
            Exclusion::AtRest(_) => Purpose::RestCheck(pool, attempt),
        };
        self.calls.queue(read);
    }

    /// Handles the read of the load balancer before a write without the shared Lease, during which another client may
    /// be active. A Down is sent only while the last operation on the load balancer and on each of its pools has
    /// succeeded. All pools share the entity tag, so that it shows any later change (W7).
    pub(super) fn on_rest_check(
        &mut self,
        now: Now,
        pool: &PoolId,
        attempt: AttemptId,
        read: Result<Arc<LbFacts>, FailedCall>,
        out: &mut Vec<Out>,
    ) {
        let Some(write) = self.reading(pool, attempt) else { return };
        let facts = match read {
            Ok(facts) => facts,
            Err(failed) => return self.fail(now, &pool.lb, GateClass::Reads, failed, out),
        };
        if facts.etag.is_some() && facts.has_succeeded() {
            write.exclusion = Exclusion::AtRest(facts.etag.clone());
            self.calls.queue(Purpose::PreWrite(pool.clone(), attempt));
        } else {
            self.require_shared_lease(now, &pool.lb, out);
        }
    }

    /// Cancels a write without the shared Lease. The write stays due, and begins again under the next hold.
    fn require_shared_lease(&mut self, now: Now, lb: &LbName, out: &mut Vec<Out>) {
        if let Some(lane) = self.lanes.get_mut(lb) {
            lane.require_shared_lease(now);
        }
        self.end(now, lb, WriteEnd::NotGranted, out);
    }

    /// Returns the current write of a lane.
    pub(super) fn open_write(&self, lb: &LbName) -> Option<&Write> {
        self.lanes.get(lb)?.write.as_ref()
    }

    pub(super) fn open_write_mut(&mut self, lb: &LbName) -> Option<&mut Write> {
        self.lanes.get_mut(lb)?.write.as_mut()
    }

    /// Returns the current write of the pool's lane, if it is this attempt of this pool.
    pub(super) fn write_mut(&mut self, pool: &PoolId, attempt: AttemptId) -> Option<&mut Write> {
        let write = self.open_write_mut(&pool.lb)?;
        (write.attempt == attempt && write.pool == *pool).then_some(write)
    }

    fn reading(&mut self, pool: &PoolId, attempt: AttemptId) -> Option<&mut Write> {
        self.write_mut(pool, attempt).filter(|write| matches!(write.phase, WritePhase::Reading))
    }

    pub(super) fn on_pre_write_failed(
        &mut self,
        now: Now,
        pool: &PoolId,
        attempt: AttemptId,
        failed: FailedCall,
        out: &mut Vec<Out>,
    ) {
        if self.reading(pool, attempt).is_some() {
            self.fail(now, &pool.lb, GateClass::Reads, failed, out);
        }
    }

    /// Evaluates the GET: foreign operation, proof of ownership, plan (W2, D2, W3).
    pub(super) fn on_pre_write(
        &mut self,
        now: Now,
        began: Now,
        pool: &PoolId,
        attempt: AttemptId,
        read: PoolRead,
        out: &mut Vec<Out>,
    ) {
        let draining = Arc::clone(&self.draining);
        let network = self.params.network.clone();
        let pace = self.pace(now);
        let Some(write) = self.reading(pool, attempt) else { return };
        if write.exclusion.is_disturbed(&read) {
            self.require_shared_lease(now, &pool.lb, out);
            return;
        }
        if read.facts.provisioning == Provisioning::Updating {
            self.wait_for_foreign(now, &pool.lb, out);
            return;
        }
        write.history.wait = None;
        write.history.seen(&read.facts.members());
        if !self.drop_unwritable_membership(now, pool, attempt, &read, out) {
            return;
        }
        let taken = self.open_write(&pool.lb).and_then(Write::taken);
        let level = taken.map(|taken| self.policy.relaxed(&taken.level, &read.facts));
        let level = level.as_deref();
        self.send_found_downs(began, pool, &read.facts, out);
        let planned = plan(&read.facts, level, &draining, network.as_ref());
        let Some(write) = self.reading(pool, attempt) else { return };
        let rewrites = write.rewrites();
        match if rewrites { planned.or_as_it_is(&read.facts) } else { planned } {
            Plan::Unchanged => {
                let facts = Arc::clone(&read.facts);
                let end = match write.history.found() {
                    // The answer to this PUT was lost. The pool satisfies the newest draining set, so the PUT counts
                    // as one of that set.
                    Some(put) => {
                        let put = Arc::new(Put { draining, leaves_restores: false, ..put.clone() });
                        WriteEnd::Written { put, facts, as_of: began, etag: read.etag.clone() }
                    }
                    None => WriteEnd::Unchanged { facts, as_of: began },
                };
                self.end(now, &pool.lb, end, out);
            }
            Plan::Edit(mut change) => {
                let leaves_restores = leave_restores(write, &mut change);
                if leaves_restores && change.edit.set_admin.is_empty() {
                    write.admin = write.admin.map(|due| AdminDue { urgency: AdminUrgency::Restore, ..due });
                    self.end(now, &pool.lb, WriteEnd::NotGranted, out);
                    return;
                }
                // Members in sync do not depend on the outcome of a PUT that only sets admin states.
                let is_right = change.keeps_members() && !rewrites;
                if write.taken().is_some() && is_right {
                    let members = change.members.clone();
                    let outcome = match write.history.found() {
                        Some(Put { change: PoolChange { added, removed, .. }, record, .. }) => {
                            Outcome::Written {
                                members,
                                added: added.clone(),
                                removed: removed.clone(),
                                record: Arc::clone(record),
                            }
                        }
                        None => Outcome::Unchanged { members },
                    };
                    write.membership = MembershipPart::Absent;
                    report_outcome(pace, pool.clone(), attempt, outcome, out);
                }
                let record = Arc::new(record(&read.facts, &change, write.taken().map(|taken| &**taken)));
                let leaves = Arc::new(change.applied_to(&read.facts));
                let put = Arc::new(Put { change: *change, leaves, draining, leaves_restores, record });
                self.put(now, &pool.lb, &read, put, out);
            }
        }
    }

    /// Drops membership without proof of ownership (D2), or paused by the operator since the grant (D1). Returns
    /// whether any part of the write is left.
    fn drop_unwritable_membership(
        &mut self,
        now: Now,
        pool: &PoolId,
        attempt: AttemptId,
        read: &PoolRead,
        out: &mut Vec<Out>,
    ) -> bool {
        let pace = self.pace(now);
        let write = self.lanes.get_mut(&pool.lb).and_then(|lane| lane.write.as_mut());
        let Some(write) = write else { return false };
        let Some(taken) = write.taken() else { return true };
        let outcome = match prove(&read.facts, taken.family, &taken.services) {
            Err(reason) => Outcome::NotManageable(reason),
            Ok(()) if self.policy.pauses(pool, taken) => Outcome::NotGranted,
            Ok(()) => return true,
        };
        write.membership = MembershipPart::Absent;
        let parts_left = write.has_parts();
        report_outcome(pace, pool.clone(), attempt, outcome, out);
        if !parts_left {
            self.end(now, &pool.lb, WriteEnd::Abandoned, out);
        }
        parts_left
    }

    fn put(&mut self, now: Now, lb: &LbName, read: &PoolRead, put: Arc<Put>, out: &mut Vec<Out>) {
        if self.gates.closed(now, GateClass::Writes).is_some() {
            self.fail(now, lb, GateClass::Writes, gate_closed(), out);
            return;
        }
        let bypass = self.open_write(lb).is_some_and(Write::bypasses);
        let permit = match self.permit(now, bypass) {
            Ok(permit) => permit,
            Err(why) => {
                let failed = FailedCall::ours(FailureKind::PermitExpired, why);
                self.fail(now, lb, GateClass::Writes, failed, out);
                return;
            }
        };
        let Some(write) = self.lanes.get_mut(lb).and_then(|lane| lane.write.as_mut()) else { return };
        if !std::mem::take(&mut write.token) {
            self.budget.spend(now, GateClass::Writes);
        }
        let (pool, attempt) = (write.pool.clone(), write.attempt);
        let (edit, record) = (put.change.edit.clone(), Arc::clone(&put.record));
        // The port must not send the PUT later than this, so that the try ends before the timeout of the call.
        let send_deadline = permit.min(now.plus(SEND_LIMIT));
        if let Some(lease) = &mut self.shared_lease {
            lease.record_put();
        }
        write.phase = WritePhase::Putting(put);
        self.sent.insert(pool.clone(), now);
        self.verifications.cancel(&pool);
        let alone = self.calls.open_puts().all(|open| open.lb != pool.lb);
        assert!(self.is_write_allowed(), "invariant G6 violated: a PUT against the operator's policy");
        assert!(alone, "invariant A4 violated: a second PUT at the same time on the load balancer of {pool}");
        let id = self.calls.open(now, Purpose::Put(pool.clone(), attempt));
        let request = ArmRequest::PutPool {
            pool,
            base: read.document.clone(),
            edit,
            if_match: read.etag.clone().filter(|_| self.params.if_match || bypass),
            permit: Permit { attempt, send_deadline },
            record,
        };
        out.push(Out::Call(ArmCall { id, request }));
    }

    /// Returns the time until which a PUT may be sent: within leadership and, unless it bypasses the Lease, within
    /// the hold (W8).
    fn permit(&self, now: Now, bypass: bool) -> Result<Now, &'static str> {
        if !self.is_write_allowed() {
            return Err("nothing may be written: everything is paused, or the mode is observe");
        }
        let leading = self
            .leadership
            .send_deadline()
            .filter(|last| now <= *last)
            .ok_or("leadership is about to end")?;
        if bypass {
            return Ok(leading);
        }
        let held =
            self.lock_send_deadline().filter(|last| now <= *last).ok_or("the shared lease is released")?;
        Ok(leading.min(held))
    }

    pub(super) fn on_put(
        &mut self,
        now: Now,
        began: Now,
        pool: &PoolId,
        attempt: AttemptId,
        answer: Answered,
        out: &mut Vec<Out>,
    ) {
        let (current, busy) = (self.is_current(attempt), self.busy);
        if !current {
            self.disturbed(&pool.lb);
        }
        let Some(write) = self.write_mut(pool, attempt) else { return };
        let WritePhase::Putting(put) = &mut write.phase else { return };
        let failed = match answer {
            Ok(ArmAnswer::Put(accepted)) => {
                let PutAccepted { provisioning, operation, retry_after, etag, correlation_id } = accepted;
                Arc::make_mut(put).answered(correlation_id);
                let put = Arc::clone(put);
                if provisioning == Provisioning::Succeeded {
                    self.end(now, &pool.lb, WriteEnd::written(put, began, etag), out);
                } else if current {
                    let polling = Polling::new(now, put, operation, etag, retry_after, busy);
                    write.phase = WritePhase::Polling(polling);
                } else {
                    self.end(now, &pool.lb, WriteEnd::Interrupted, out);
                }
                return;
            }
            Ok(ArmAnswer::Withheld) => {
                let put = Arc::clone(put);
                self.end(now, &pool.lb, WriteEnd::Withheld(put), out);
                return;
            }
            Ok(_) => unexpected(),
            Err(failed) => failed,
        };
        if failed.put == FailedPut::InDoubt
            && self.phase == WriterPhase::Running
            && let Some(lane) = self.lanes.get_mut(&pool.lb)
        {
            lane.closed = LaneState::in_doubt(now, pool.clone());
        }
        self.fail(now, &pool.lb, GateClass::Writes, failed, out);
    }
}

/// Drops restores from a write without the shared Lease: they can wait (W7). Returns whether there was any.
fn leave_restores(write: &Write, change: &mut PoolChange) -> bool {
    let planned = change.edit.set_admin.len();
    if write.bypasses() {
        change.edit.set_admin.retain(|_, state| *state == AdminState::Down);
        change.restored.clear();
    }
    change.edit.set_admin.len() < planned
}
