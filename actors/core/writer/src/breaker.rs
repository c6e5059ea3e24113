//! The breaker: when the same terminal failure hits pool after pool, the others wait and one at a time is tried
//! (docs/design/writer.md, W10).
//!
//! Five terminal failures of one class, status and code, on different pools within two minutes and with no success
//! between stop everything; on pools of a single load balancer they stop only that one, and a success is one there.
//! What is stopped spends nothing and is reported nothing; one of what waits is granted every 30 seconds, on the
//! next load balancer each time, and if nothing waits then, what comes due next is. Whatever is tried so, the first
//! success lets all go on.
//!
//! What writes meet that carry an admin part alone is kept apart, for a pool that takes no Down may well take
//! members: it stops admin parts and never membership, and what is tried of the one spends no try of the other. An
//! admin part that travels with membership goes and waits with that.
//!
//! A Down must not wait behind the troubles of membership (N3), and may well go through where that does not: it is
//! let through alone, until an admin part alone has met the fault itself. From then on admin parts wait too, for they
//! would only spend the reserve that is theirs. Restores, which have time, wait with membership from the beginning.
//!
//! It knows only the present term: a new one starts closed, which costs five failures at most.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::arm::{Failure, FailureKind};
use model::attempt::Due;
use model::ids::{LbName, PoolId, of_balancer};
use model::machine::Now;
use model::report::{Condition, Ended, EventKind, Report, Subject};
use model::sample::{Caller, Metric};

use super::completion::End;
use super::lane::Eligible;
use super::write::Write;
use super::{AdminDue, AdminUrgency, Out, Writer};

/// How many pools must have failed alike.
const FAILURES: usize = 5;

/// Within which time.
const WINDOW: Duration = Duration::from_secs(120);

/// The time between two tries while it is open.
const PROBE_EVERY: Duration = Duration::from_secs(30);

/// A class of failures.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Fault {
    kind: FailureKind,
    code: Option<Arc<str>>,
}

/// The last terminal failure of a pool.
#[derive(Clone, Debug)]
struct Failed {
    at: Now,
    /// Its place among all failures and successes.
    order: u64,
    fault: Fault,
}

/// A fault that stops all load balancers, or one.
#[derive(Clone, Debug)]
struct Block {
    fault: Fault,
    words: Arc<str>,
    /// When the next try may be granted.
    probe: Now,
}

/// What a write is of, as far as the breaker tells it apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Membership, and what travels with it.
    Members,
    /// An admin part alone, by which a node is cut out.
    Down,
    /// An admin part alone, by which nodes are only restored.
    Restore,
}

impl Part {
    /// What a write with these parts is of.
    pub(super) fn of(membership: Option<Due>, admin: Option<AdminDue>) -> Part {
        match (membership, admin.map(|due| due.urgency)) {
            (Some(_), _) => Part::Members,
            (None, Some(AdminUrgency::Restore)) => Part::Restore,
            // Members that were right leave a PUT of admin states that was not asked for.
            (None, Some(AdminUrgency::Down) | None) => Part::Down,
        }
    }

    /// Whose work it is.
    fn caller(self) -> Caller {
        match self {
            Part::Members => Caller::Membership,
            Part::Down | Part::Restore => Caller::AdminState,
        }
    }
}

/// That something is stopped from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Opened {
    /// Whose work.
    pub caller: Caller,
    /// Which load balancer; `None`: all of them.
    pub lb: Option<LbName>,
    /// The fault, in words.
    pub words: Arc<str>,
}

/// What writes of one caller have met, and what of theirs is stopped.
#[derive(Clone, Debug, Default)]
struct Circuit {
    /// Failures that no success on their load balancer has followed.
    recent: BTreeMap<PoolId, Failed>,
    all: Option<Block>,
    /// Empty while all are stopped.
    lbs: BTreeMap<LbName, Block>,
}

/// W10's breaker, of all load balancers and of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaker {
    /// How many failures and successes there were.
    order: u64,
    /// The place of the last success anywhere.
    succeeded: u64,
    members: Circuit,
    admin: Circuit,
    /// What was reported as stopped, and goes on no earlier.
    reported: BTreeSet<(Caller, Option<LbName>)>,
}

impl Circuit {
    /// Takes in a failure of a pool; says whether that stops something: one load balancer, or all of them.
    fn failed(
        &mut self,
        pool: &PoolId,
        failed: Failed,
        words: &Arc<str>,
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
        let probe = now.plus(PROBE_EVERY);
        let block = Block { fault, words: Arc::clone(words), probe };
        self.stop(lb.as_ref(), block);
        Some(lb)
    }

    /// Stops one load balancer, or all of them.
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

    /// Takes in a success on a load balancer; says whether that lets something go on.
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

    /// Whether something on a load balancer may be granted: it is not stopped, or may be tried.
    fn lets_go(&self, now: Now, lb: &LbName) -> bool {
        self.block(lb).is_none_or(|block| block.probe <= now)
    }

    fn is_consistent(&self) -> bool {
        self.all.is_none() || self.lbs.is_empty()
    }
}

impl Breaker {
    /// Takes in that a write of a pool failed for good; says so if that stops something.
    pub(super) fn failed(
        &mut self,
        now: Now,
        pool: &PoolId,
        failure: &Failure,
        part: Part,
    ) -> Option<Opened> {
        self.order += 1;
        let fault = Fault { kind: failure.kind, code: failure.code.clone() };
        let words: Arc<str> = Failure { correlation_id: None, ..failure.clone() }.to_string().into();
        let failed = Failed { at: now, order: self.order, fault };
        let caller = part.caller();
        let circuit = match caller {
            Caller::Membership => &mut self.members,
            Caller::AdminState => &mut self.admin,
        };
        let opened = circuit.failed(pool, failed, &words, self.succeeded);
        self.stop_admin_with_members(now, &pool.lb);
        opened.map(|lb| Opened { caller, lb, words })
    }

    /// Admin parts wait where membership does, once one of them has met alone what stops that.
    fn stop_admin_with_members(&mut self, now: Now, lb: &LbName) {
        let (lb, block) = match (&self.members.all, self.members.lbs.get(lb)) {
            (Some(block), _) if self.admin.all.is_none() => (None, block),
            (None, Some(block)) if self.admin.block(lb).is_none() => (Some(lb), block),
            (Some(_), _) | (None, Some(_) | None) => return,
        };
        let is_there = |pool: &PoolId, failed: &Failed| match lb {
            Some(lb) => pool.lb == *lb,
            None => failed.order > self.succeeded,
        };
        let has_met = |(pool, failed): (&PoolId, &Failed)| {
            failed.fault == block.fault && now.since(failed.at) <= WINDOW && is_there(pool, failed)
        };
        if self.admin.recent.iter().any(has_met) {
            let block = block.clone();
            self.admin.stop(lb, block);
        }
    }

    /// Takes in that a write on a load balancer succeeded; says whether that lets something go on.
    pub(super) fn succeeded(&mut self, lb: &LbName) -> bool {
        self.order += 1;
        self.succeeded = self.order;
        self.members.succeeded(lb) | self.admin.succeeded(lb)
    }

    /// Which of a load balancer's slots may be granted; `None`: not one.
    pub(super) fn admits(&self, now: Now, lb: &LbName) -> Option<Eligible> {
        match (self.members.lets_go(now, lb), self.admin.lets_go(now, lb)) {
            (true, true) => Some(Eligible::Any),
            (true, false) => Some(Eligible::Members),
            (false, true) => Some(Eligible::Down),
            (false, false) => None,
        }
    }

    /// Takes in a grant: where it is a try, the next one of its kind has to wait. A restore is one of membership, as
    /// long as that alone is what it waits for.
    pub(super) fn granted(&mut self, now: Now, lb: &LbName, part: Part) {
        let circuit = match part {
            Part::Members => &mut self.members,
            Part::Restore if self.admin.block(lb).is_none() => &mut self.members,
            Part::Down | Part::Restore => &mut self.admin,
        };
        if let Some(block) = circuit.block_mut(lb).filter(|block| block.probe <= now) {
            block.probe = now.plus(PROBE_EVERY);
        }
    }

    /// When membership that is stopped on a load balancer may be tried; `None`: it is not stopped.
    pub(super) fn probe_at(&self, lb: &LbName) -> Option<Now> {
        self.members.block(lb).map(|block| block.probe)
    }

    /// When an admin part that is stopped on a load balancer may be tried alone: a Down, or one that only restores;
    /// `None`: it is not stopped.
    pub(super) fn admin_probe_at(&self, lb: &LbName, down: bool) -> Option<Now> {
        let probe = self.admin.block(lb).map(|block| block.probe);
        if down { probe } else { probe.max(self.probe_at(lb)) }
    }

    /// The fault that stops membership on a load balancer, in words.
    pub(super) fn blocked_by(&self, lb: &LbName) -> Option<Arc<str>> {
        self.members.block(lb).map(|block| Arc::clone(&block.words))
    }

    /// Takes out what was reported as stopped, and is not any more.
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

    /// On how many load balancers something is stopped; 1 when it is on all of them.
    pub(super) fn scopes(&self) -> u64 {
        let (members, admin) = (&self.members, &self.admin);
        if members.all.is_some() || admin.all.is_some() {
            return 1;
        }
        let others = admin.lbs.keys().filter(|lb| !members.lbs.contains_key(*lb)).count();
        u64::try_from(members.lbs.len() + others).unwrap_or(u64::MAX)
    }

    /// The invariant: while everything is stopped, nothing is stopped apart from that.
    pub(super) fn is_consistent(&self) -> bool {
        self.members.is_consistent() && self.admin.is_consistent()
    }
}

impl Writer {
    /// Tells the breaker how a write has ended, and all machines what follows.
    pub(super) fn note_end(&mut self, now: Now, write: &Write, end: &End, out: &mut Vec<Out>) {
        if !self.params.breaker || !self.is_current(write.attempt) {
            return;
        }
        match end {
            // Nothing of a dry run is sent, but what it reads was answered.
            End::Written { .. } | End::Unchanged(_) | End::Withheld(_) => {
                if self.breaker.succeeded(&write.pool.lb) {
                    self.show_blocks(out);
                }
            }
            End::Terminal(failure) => {
                let part = Part::of(write.due(), write.admin);
                let Some(opened) = self.breaker.failed(now, &write.pool, failure, part) else { return };
                let Opened { caller, lb, words } = opened;
                self.breaker.reported.insert((caller, lb.clone()));
                let what = EventKind::Blocked { caller, fault: words, lb };
                out.push(Out::Report(Report { subjects: vec![Subject::Controller], what, note: None }));
                self.show_blocks(out);
            }
            End::NotGranted | End::Stale(_) | End::Retriable { .. } | End::Interrupted | End::Left => {}
        }
        out.extend(self.breaker.take_ended().into_iter().map(|over| Out::Ended(Ended::of(over))));
    }

    /// Forgets what an older term has met.
    pub(super) fn close_breaker(&mut self, out: &mut Vec<Out>) {
        if std::mem::take(&mut self.breaker).scopes() > 0 {
            self.show_blocks(out);
        }
    }

    fn show_blocks(&mut self, out: &mut Vec<Out>) {
        out.push(Out::Metric(Metric::Blocked { scopes: self.breaker.scopes() }));
        for lb in self.lanes.keys() {
            self.shown.lane_changed(lb);
        }
    }
}
