//! The breaker: when the same terminal failure hits pool after pool, the others wait and one at a time is tried
//! (design.md W10).
//!
//! Five terminal failures of one class, status and code, on different pools within two minutes and with no success
//! between stop everything; on pools of a single load balancer they stop only that one, and a success is one there.
//! What is stopped spends nothing and is reported nothing; one of what waits is granted every 30 seconds, on the
//! next load balancer each time, and if nothing waits then, what comes due next is. Whatever is tried so, the first
//! success lets all go on.
//!
//! A Down must not wait behind the troubles of membership (N3), and may well go through where that does not: it is
//! let through alone, until a Down has met the fault itself. From then on Downs wait too, for they would only
//! spend the reserve that is theirs; in their lanes they are among the first to be tried.
//!
//! It knows only the present term: a new one starts closed, which costs five failures at most.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::arm::{Failure, FailureKind};
use crate::ids::{LbName, PoolId, PoolName};
use crate::machine::Now;
use crate::report::{Report, Subject, What};
use crate::sample::Sample;

use super::ending::End;
use super::lane::Pick;
use super::write::Write;
use super::{AdminUrgency, Out, Writer};

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
    /// Whether a node was to be cut out.
    down: bool,
}

/// A fault that stops all load balancers, or one.
#[derive(Clone, Debug)]
struct Block {
    fault: Fault,
    words: Arc<str>,
    /// When the next try may be granted.
    probe: Now,
    /// Whether Downs wait too.
    holds_downs: bool,
}

/// That something is stopped from now on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Opened {
    /// Which load balancer; `None`: all of them.
    pub lb: Option<LbName>,
    /// The fault, in words.
    pub words: Arc<str>,
}

/// W10's breaker, of all load balancers and of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaker {
    /// Failures that no success on their load balancer has followed.
    recent: BTreeMap<PoolId, Failed>,
    /// How many failures and successes there were.
    order: u64,
    /// The place of the last success anywhere.
    succeeded: u64,
    all: Option<Block>,
    /// Empty while all are stopped.
    lbs: BTreeMap<LbName, Block>,
}

impl Breaker {
    /// Takes in that a write of a pool failed for good; says so if that stops something.
    pub(super) fn failed(
        &mut self,
        now: Now,
        pool: &PoolId,
        failure: &Failure,
        down: bool,
    ) -> Option<Opened> {
        self.order += 1;
        let fault = Fault { kind: failure.kind, code: failure.code.clone() };
        self.recent.retain(|_, failed| now.since(failed.at) <= WINDOW);
        let failed = Failed { at: now, order: self.order, fault: fault.clone(), down };
        self.recent.insert(pool.clone(), failed);
        if let Some(block) = self.block_mut(&pool.lb).filter(|block| block.fault == fault) {
            block.holds_downs |= down;
        }
        if self.all.is_some() {
            return None;
        }
        let alike = || self.recent.iter().filter(|(_, failed)| failed.fault == fault);
        let anywhere = || alike().filter(|(_, failed)| failed.order > self.succeeded);
        let here = || alike().filter(|(other, _)| other.lb == pool.lb);
        let words: Arc<str> = Failure { correlation_id: None, ..failure.clone() }.to_string().into();
        let block = |holds_downs| Block {
            fault: fault.clone(),
            words: Arc::clone(&words),
            probe: now.plus(PROBE_EVERY),
            holds_downs,
        };
        if anywhere().count() >= FAILURES && anywhere().any(|(other, _)| other.lb != pool.lb) {
            self.all = Some(block(anywhere().any(|(_, failed)| failed.down)));
            self.lbs.clear();
            return Some(Opened { lb: None, words });
        }
        if here().count() >= FAILURES && !self.lbs.contains_key(&pool.lb) {
            let block = block(here().any(|(_, failed)| failed.down));
            self.lbs.insert(pool.lb.clone(), block);
            return Some(Opened { lb: Some(pool.lb.clone()), words });
        }
        None
    }

    /// Takes in that a write on a load balancer succeeded; says whether that lets something go on.
    pub(super) fn succeeded(&mut self, lb: &LbName) -> bool {
        self.order += 1;
        self.succeeded = self.order;
        let from = PoolId::new(lb.clone(), PoolName::new(""));
        let here = self.recent.range(from..).take_while(|(pool, _)| pool.lb == *lb);
        let here: Vec<PoolId> = here.map(|(pool, _)| pool.clone()).collect();
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

    /// Which of a load balancer's slots may be granted; `None`: not one.
    pub(super) fn admits(&self, now: Now, lb: &LbName) -> Option<Pick> {
        match self.block(lb) {
            None => Some(Pick::Any),
            Some(block) if block.probe <= now => Some(Pick::Any),
            Some(block) => (!block.holds_downs).then_some(Pick::Down),
        }
    }

    /// Takes in a grant: where it is a try, the next one has to wait.
    pub(super) fn granted(&mut self, now: Now, lb: &LbName) {
        if let Some(block) = self.block_mut(lb).filter(|block| block.probe <= now) {
            block.probe = now.plus(PROBE_EVERY);
        }
    }

    /// When a load balancer that is stopped may be tried; `None`: it is not stopped.
    pub(super) fn probe_at(&self, lb: &LbName) -> Option<Now> {
        self.block(lb).map(|block| block.probe)
    }

    /// Whether Downs wait on a load balancer.
    pub(super) fn holds_downs(&self, lb: &LbName) -> bool {
        self.block(lb).is_some_and(|block| block.holds_downs)
    }

    /// The fault that stops a load balancer, in words.
    pub(super) fn blocked_by(&self, lb: &LbName) -> Option<Arc<str>> {
        self.block(lb).map(|block| Arc::clone(&block.words))
    }

    /// How many load balancers are stopped; 1 when all of them are.
    pub(super) fn scopes(&self) -> u64 {
        match &self.all {
            Some(_) => 1,
            None => u64::try_from(self.lbs.len()).unwrap_or(u64::MAX),
        }
    }

    /// The invariant: while everything is stopped, nothing is stopped apart from that.
    pub(super) fn is_consistent(&self) -> bool {
        self.all.is_none() || self.lbs.is_empty()
    }
}

impl Writer {
    /// Tells the breaker how a write has ended, and everybody what follows.
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
                // What travels with membership has not met it alone.
                let alone = write.due().is_none();
                let down = alone
                    && write.admin.is_some_and(|due| match due.urgency {
                        AdminUrgency::Down => true,
                        AdminUrgency::Restore => false,
                    });
                let Some(opened) = self.breaker.failed(now, &write.pool, failure, down) else { return };
                let what = What::Blocked { fault: opened.words, lb: opened.lb };
                out.push(Out::Report(Report { subjects: vec![Subject::Controller], what }));
                self.show_blocks(out);
            }
            End::NotGranted | End::Stale(_) | End::Retriable { .. } | End::Interrupted | End::Left => {}
        }
    }

    /// Forgets what an older term has met.
    pub(super) fn close_breaker(&mut self, out: &mut Vec<Out>) {
        if std::mem::take(&mut self.breaker).scopes() > 0 {
            self.show_blocks(out);
        }
    }

    fn show_blocks(&mut self, out: &mut Vec<Out>) {
        out.push(Out::Sample(Sample::Blocked { scopes: self.breaker.scopes() }));
        for lb in self.lanes.keys() {
            self.shown.lane_changed(lb);
        }
    }
}
