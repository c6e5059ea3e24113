//! The breaker: when pool after pool meets the same terminal failure, the other pools wait while single writes probe
//! (docs/design/writer.md, W10).
//!
//! Five terminal failures with the same status and code on different pools, within two minutes and without a success
//! between, stop all load balancers. On pools of a single load balancer they stop only that one, and only a success
//! there counts. A stopped pool spends no call and gets no outcome. Every 30 s one waiting slot is granted as a
//! probe, on the next load balancer each time; if none waits, the next that becomes due is granted. The first success
//! of any probe ends the stop.
//!
//! Failures of writes with only an admin part count separately, because a pool that refuses a Down may well accept
//! members. They stop admin parts and never membership, and the two have separate probes. An admin part in the same
//! write as membership is sent and stopped together with it.
//!
//! A Down must not wait for problems of membership (N3), and may well succeed where membership fails. A Down is sent
//! alone, until a write with only an admin part meets the same fault. From then on admin parts wait too, because they
//! would only spend their reserve. Restores are not urgent and wait with membership from the beginning.
//!
//! The state is that of the current term. A new term starts with a closed breaker, which costs at most five failures.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::arm::{Failure, FailureCause};
use model::attempt::MembershipDue;
use model::ids::{LbName, PoolId, of_balancer};
use model::machine::Now;
use model::report::{Condition, Ended, EventKind, Report, Subject};
use model::sample::{Caller, Metric};

use super::completion::WriteEnd;
use super::lane::Eligible;
use super::write::Write;
use super::{AdminDue, AdminUrgency, Out, Writer};

/// Number of pools that must fail with the same fault.
const FAILURES: usize = 5;

/// Period within which they must fail.
const WINDOW: Duration = Duration::from_secs(120);

/// Interval between probes while the breaker is open.
const PROBE_INTERVAL: Duration = Duration::from_secs(30);

/// The last terminal failure of a pool.
#[derive(Clone, Debug)]
struct PoolFailure {
    at: Now,
    /// Position in the order of all failures and successes.
    order: u64,
    fault: FailureCause,
}

/// A fault that stops all load balancers, or one.
#[derive(Clone, Debug)]
struct Block {
    fault: FailureCause,
    description: Arc<str>,
    /// Time of the next probe.
    probe: Now,
}

/// The kind of a write, as the breaker distinguishes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteKind {
    /// Membership, with or without an admin part.
    Members,
    /// An admin part alone that sets a node Down.
    Down,
    /// An admin part alone that only restores nodes.
    Restore,
}

impl WriteKind {
    /// Returns the kind of a write with these parts.
    pub(super) fn of(membership: Option<MembershipDue>, admin: Option<AdminDue>) -> WriteKind {
        match (membership, admin.map(|due| due.urgency)) {
            (Some(_), _) => WriteKind::Members,
            (None, Some(AdminUrgency::Restore)) => WriteKind::Restore,
            // Membership was in sync, so that the PUT only sets admin states.
            (None, Some(AdminUrgency::Down) | None) => WriteKind::Down,
        }
    }

    fn caller(self) -> Caller {
        match self {
            WriteKind::Members => Caller::Membership,
            WriteKind::Down | WriteKind::Restore => Caller::AdminState,
        }
    }
}

/// A stop that begins now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct OpenedBreaker {
    /// The caller that is stopped.
    pub caller: Caller,
    /// The load balancer. `None`: all of them.
    pub lb: Option<LbName>,
    /// Description of the fault.
    pub description: Arc<str>,
}

/// Failures and stops of one caller's writes.
#[derive(Clone, Debug, Default)]
struct Circuit {
    /// Failures without a later success on their load balancer.
    recent: BTreeMap<PoolId, PoolFailure>,
    all: Option<Block>,
    /// Empty while all are stopped.
    lbs: BTreeMap<LbName, Block>,
}

/// The breaker of W10, for all load balancers together and for each.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteBreaker {
    /// Number of failures and successes so far.
    order: u64,
    /// Position of the last success anywhere.
    succeeded: u64,
    members: Circuit,
    admin: Circuit,
    /// Stops that were reported and have not ended.
    reported: BTreeSet<(Caller, Option<LbName>)>,
}

impl Circuit {
    /// Records a failure of a pool. Returns whether it stops one load balancer, or all of them.
    fn failed(
        &mut self,
        pool: &PoolId,
        failed: PoolFailure,
        description: &Arc<str>,
        succeeded: u64,
    ) -> Option<Option<LbName>> {
        let (now, fault) = (failed.at, failed.fault.clone());
        self.recent.retain(|_, failed| now.since(failed.at) <= WINDOW);
        self.recent.insert(pool.clone(), failed);
        if self.all.is_some() {
            return None;
        }
        let alike = || self.recent.iter().filter(|(_, failed)| failed.fault == fault);
        let anywhere = || alike().filter(|(_, failed)| failed.order > succeeded);
        let here = alike().filter(|(other, _)| other.lb == pool.lb).count();
        let is_wide = anywhere().count() >= FAILURES && anywhere().any(|(other, _)| other.lb != pool.lb);
        let lb = if is_wide {
            None
        } else if here >= FAILURES && !self.lbs.contains_key(&pool.lb) {
            Some(pool.lb.clone())
        } else {
            return None;
        };
        let probe = now.plus(PROBE_INTERVAL);
        let block = Block { fault, description: Arc::clone(description), probe };
        self.stop(lb.as_ref(), block);
        Some(lb)
    }

    /// Stops one load balancer, or all for `None`.
    fn stop(&mut self, lb: Option<&LbName>, block: Block) {
        match lb {
            Some(lb) => {
                self.lbs.insert(lb.clone(), block);
            }
            None => {
                self.all = Some(block);
                self.lbs.clear();
            }
        }
    }

    /// Records a success on a load balancer. Returns whether it ends a stop.
    fn succeeded(&mut self, lb: &LbName) -> bool {
        let here: Vec<PoolId> = of_balancer(&self.recent, lb).map(|(pool, _)| pool.clone()).collect();
        for pool in here {
            self.recent.remove(&pool);
        }
        self.all.take().is_some() | self.lbs.remove(lb).is_some()
    }

    fn block(&self, lb: &LbName) -> Option<&Block> {
        self.all.as_ref().or_else(|| self.lbs.get(lb))
    }

    fn block_mut(&mut self, lb: &LbName) -> Option<&mut Block> {
        self.all.as_mut().or_else(|| self.lbs.get_mut(lb))
    }

    /// Returns whether a load balancer may be granted: it is not stopped, or a probe is due.
    fn is_admitted(&self, now: Now, lb: &LbName) -> bool {
        self.block(lb).is_none_or(|block| block.probe <= now)
    }

    fn is_consistent(&self) -> bool {
        self.all.is_none() || self.lbs.is_empty()
    }
}

impl WriteBreaker {
    /// Records a terminal failure of a pool. Returns the stop that it causes, if any.
    pub(super) fn failed(
        &mut self,
        now: Now,
        pool: &PoolId,
        failure: &Failure,
        part: WriteKind,
    ) -> Option<OpenedBreaker> {
        self.order += 1;
        let description: Arc<str> = Failure { correlation_id: None, ..failure.clone() }.to_string().into();
        let failed = PoolFailure { at: now, order: self.order, fault: failure.cause() };
        let caller = part.caller();
        let circuit = match caller {
            Caller::Membership => &mut self.members,
            Caller::AdminState => &mut self.admin,
        };
        let opened = circuit.failed(pool, failed, &description, self.succeeded);
        self.stop_admin_with_members(now, &pool.lb);
        opened.map(|lb| OpenedBreaker { caller, lb, description })
    }

    /// Stops admin parts where membership is stopped, once a write of an admin part alone has met the same fault.
    fn stop_admin_with_members(&mut self, now: Now, lb: &LbName) {
        let (lb, block) = match (&self.members.all, self.members.lbs.get(lb)) {
            (Some(block), _) if self.admin.all.is_none() => (None, block),
            (None, Some(block)) if self.admin.block(lb).is_none() => (Some(lb), block),
            (Some(_), _) | (None, Some(_) | None) => return,
        };
        let is_there = |pool: &PoolId, failed: &PoolFailure| match lb {
            Some(lb) => pool.lb == *lb,
            None => failed.order > self.succeeded,
        };
        let has_met = |(pool, failed): (&PoolId, &PoolFailure)| {
            failed.fault == block.fault && now.since(failed.at) <= WINDOW && is_there(pool, failed)
        };
        if self.admin.recent.iter().any(has_met) {
            let block = block.clone();
            self.admin.stop(lb, block);
        }
    }

    /// Records a successful write on a load balancer. Returns whether it ends a stop.
    pub(super) fn succeeded(&mut self, lb: &LbName) -> bool {
        self.order += 1;
        self.succeeded = self.order;
        self.members.succeeded(lb) | self.admin.succeeded(lb)
    }

    /// Returns the slots of a load balancer that may be granted. `None`: no slot.
    pub(super) fn admits(&self, now: Now, lb: &LbName) -> Option<Eligible> {
        match (self.members.is_admitted(now, lb), self.admin.is_admitted(now, lb)) {
            (true, true) => Some(Eligible::Any),
            (true, false) => Some(Eligible::Members),
            (false, true) => Some(Eligible::Down),
            (false, false) => None,
        }
    }

    /// Records a grant. After a probe, the next one of its kind must wait. A restore counts as membership while only
    /// the stop of membership delays it.
    pub(super) fn granted(&mut self, now: Now, lb: &LbName, part: WriteKind) {
        let circuit = match part {
            WriteKind::Members => &mut self.members,
            WriteKind::Restore if self.admin.block(lb).is_none() => &mut self.members,
            WriteKind::Down | WriteKind::Restore => &mut self.admin,
        };
        if let Some(block) = circuit.block_mut(lb).filter(|block| block.probe <= now) {
            block.probe = now.plus(PROBE_INTERVAL);
        }
    }

    /// Returns the time of the next membership probe on a stopped load balancer. `None`: not stopped.
    pub(super) fn probe_at(&self, lb: &LbName) -> Option<Now> {
        self.members.block(lb).map(|block| block.probe)
    }

    /// Returns the time of the next probe with an admin part alone, a Down or one that only restores. `None`: not
    /// stopped.
    pub(super) fn admin_probe_at(&self, lb: &LbName, down: bool) -> Option<Now> {
        let probe = self.admin.block(lb).map(|block| block.probe);
        if down { probe } else { probe.max(self.probe_at(lb)) }
    }

    /// Returns the description of the fault that stops membership on a load balancer.
    pub(super) fn fault(&self, lb: &LbName) -> Option<Arc<str>> {
        self.members.block(lb).map(|block| Arc::clone(&block.description))
    }

    /// Takes the reported stops that have ended.
    fn take_ended(&mut self) -> Vec<Condition> {
        let (members, admin) = (&self.members, &self.admin);
        let is_over = |(caller, lb): &(Caller, Option<LbName>)| {
            let circuit = match caller {
                Caller::Membership => members,
                Caller::AdminState => admin,
            };
            match lb {
                Some(lb) => !circuit.lbs.contains_key(lb),
                None => circuit.all.is_none(),
            }
        };
        let over = self.reported.extract_if(.., is_over);
        over.map(|(caller, lb)| Condition::Blocked(caller, lb)).collect()
    }

    /// Returns the number of load balancers with a stop. A stop of all of them counts as 1.
    pub(super) fn scopes(&self) -> u64 {
        let (members, admin) = (&self.members, &self.admin);
        if members.all.is_some() || admin.all.is_some() {
            return 1;
        }
        let others = admin.lbs.keys().filter(|lb| !members.lbs.contains_key(*lb)).count();
        u64::try_from(members.lbs.len() + others).unwrap_or(u64::MAX)
    }

    /// Checks that no load balancer is stopped by itself while all are stopped.
    pub(super) fn is_consistent(&self) -> bool {
        self.members.is_consistent() && self.admin.is_consistent()
    }
}

impl Writer {
    /// Records the end of a write in the breaker, and reports the consequences.
    pub(super) fn record_end(&mut self, now: Now, write: &Write, end: &WriteEnd, out: &mut Vec<Out>) {
        if !self.params.breaker || !self.is_current(write.attempt) {
            return;
        }
        match end {
            // A dry run sends no PUT, but its reads succeeded.
            WriteEnd::Written { .. } | WriteEnd::Unchanged { .. } | WriteEnd::Withheld(_) => {
                if self.breaker.succeeded(&write.pool.lb) {
                    self.show_blocks(out);
                }
            }
            WriteEnd::Terminal(failed) => {
                let part = WriteKind::of(write.due(), write.admin);
                let Some(opened) = self.breaker.failed(now, &write.pool, &failed.failure, part) else {
                    return;
                };
                let OpenedBreaker { caller, lb, description } = opened;
                self.breaker.reported.insert((caller, lb.clone()));
                let what = EventKind::Blocked { caller, fault: description, lb };
                out.push(Out::Report(Report { subjects: vec![Subject::Controller], what, note: None }));
                self.show_blocks(out);
            }
            WriteEnd::NotGranted
            | WriteEnd::Stale(_)
            | WriteEnd::Retriable { .. }
            | WriteEnd::Interrupted
            | WriteEnd::Abandoned => {}
        }
        out.extend(self.breaker.take_ended().into_iter().map(|over| Out::Ended(Ended::of(over))));
    }

    /// Resets the breaker for a new term.
    pub(super) fn reset_breaker(&mut self, out: &mut Vec<Out>) {
        if std::mem::take(&mut self.breaker).scopes() > 0 {
            self.show_blocks(out);
        }
    }

    fn show_blocks(&mut self, out: &mut Vec<Out>) {
        out.push(Out::Metric(Metric::Blocked { scopes: self.breaker.scopes() }));
        for lb in self.lanes.keys() {
            self.status.lane_changed(lb);
        }
    }
}
