//! The initial read: in each term, a load balancer must be seen at rest before its first write
//! (docs/design/writer.md, W1, W2; W8).
//!
//! An operation of an earlier term, of this process or another one, may still run and must not be superseded. A pool
//! shows only operations on itself. The load balancer shows *Updating* while an operation runs on any of its pools.
//! Therefore a lane with due slots waits until a GET of the load balancer that began in this term shows no operation.
//! Discovery reads all load balancers when a term begins; otherwise the writer reads them itself. A lane that waits
//! for this is not ready, so that it takes neither a turn nor the shared Lease.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::arm::{LbFacts, Provisioning};
use model::ids::{CallId, LbName};
use model::machine::Now;

use super::classify::FailedCall;
use super::in_flight::Purpose;
use super::write::FOREIGN_DELAYS;
use super::{Writer, WriterPhase};

/// Maximum number of reads of a load balancer, about a quarter of an hour with the delays between them. A load
/// balancer that cannot be read must not stay closed forever; the GET and `If-Match` of each write still protect it.
const MAX_READS: u32 = 32;

/// Whether a lane's load balancer was seen at rest in the current term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InitialRead {
    /// Seen at rest.
    AtRest,
    /// Not yet.
    Pending {
        /// Number of reads so far.
        reads: u32,
        /// The next step.
        step: ReadStep,
    },
}

/// The next step of an initial read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadStep {
    /// A read, as soon as the lane could be granted.
    Due,
    /// Nothing before this time.
    Until(Now),
    /// The answer to a read.
    Reading,
}

impl Default for InitialRead {
    fn default() -> InitialRead {
        InitialRead::Pending { reads: 0, step: ReadStep::Due }
    }
}

impl InitialRead {
    /// Returns whether a read is due as soon as the lane could be granted.
    pub(super) fn is_due(self) -> bool {
        match self {
            InitialRead::Pending { step: ReadStep::Due, .. } => true,
            InitialRead::AtRest
            | InitialRead::Pending { step: ReadStep::Until(_) | ReadStep::Reading, .. } => false,
        }
    }

    /// Returns whether a read is in flight.
    pub(super) fn is_reading(self) -> bool {
        match self {
            InitialRead::Pending { step: ReadStep::Reading, .. } => true,
            InitialRead::AtRest | InitialRead::Pending { step: ReadStep::Due | ReadStep::Until(_), .. } => {
                false
            }
        }
    }

    /// Returns the time of the next read.
    pub(super) fn deadline(self) -> Option<Now> {
        match self {
            InitialRead::Pending { step: ReadStep::Until(until), .. } => Some(until),
            InitialRead::AtRest | InitialRead::Pending { step: ReadStep::Due | ReadStep::Reading, .. } => {
                None
            }
        }
    }

    /// Returns the time until which the initial read closes the lane, as far as known. `None`: the lane is not
    /// closed, or no slot is due.
    pub(super) fn closed_until(self, now: Now) -> Option<Now> {
        match self {
            InitialRead::AtRest | InitialRead::Pending { step: ReadStep::Due, .. } => None,
            InitialRead::Pending { step: ReadStep::Until(until), .. } => Some(until),
            InitialRead::Pending { step: ReadStep::Reading, .. } => Some(now),
        }
    }

    /// Makes the read due when its time has come.
    pub(super) fn wake(&mut self, now: Now) {
        match self {
            InitialRead::Pending { step, .. } => {
                if matches!(step, ReadStep::Until(until) if *until <= now) {
                    *step = ReadStep::Due;
                }
            }
            InitialRead::AtRest => {}
        }
    }

    fn begin_read(&mut self) {
        match self {
            InitialRead::Pending { step, .. } => *step = ReadStep::Reading,
            InitialRead::AtRest => {}
        }
    }

    /// Schedules the next read after one that did not show the load balancer at rest. After the last one, opens the
    /// lane.
    fn schedule_retry(&mut self, now: Now) {
        match self {
            InitialRead::Pending { reads, .. } if *reads + 1 >= MAX_READS => *self = InitialRead::AtRest,
            InitialRead::Pending { reads, step } => {
                *step = ReadStep::Until(now.plus(delay(*reads)));
                *reads += 1;
            }
            InitialRead::AtRest => {}
        }
    }
}

/// Returns the delay of the next read, as for any foreign operation (W2).
fn delay(reads: u32) -> Duration {
    FOREIGN_DELAYS.delay(reads)
}

/// The load balancers seen in the current term.
#[derive(Clone, Debug)]
pub(super) struct InitialReads {
    /// Last call that began in an earlier term.
    older: CallId,
    /// Load balancers that were seen at rest.
    at_rest: BTreeSet<LbName>,
    /// Load balancers on which a PUT of an earlier term was answered in this one. Calls up to this one do not show
    /// the operation of that PUT.
    disturbed: BTreeMap<LbName, CallId>,
}

impl InitialReads {
    /// Creates the state of a term that begins after this call.
    pub(super) fn after(older: CallId) -> InitialReads {
        InitialReads { older, at_rest: BTreeSet::new(), disturbed: BTreeMap::new() }
    }

    /// Returns whether a load balancer was seen at rest.
    pub(super) fn is_at_rest(&self, lb: &LbName) -> bool {
        self.at_rest.contains(lb)
    }

    /// Returns whether the result of this call counts in this term.
    fn counts(&self, lb: &LbName, call: CallId) -> bool {
        call > *self.disturbed.get(lb).unwrap_or(&self.older)
    }
}

impl Writer {
    /// Drops everything that earlier terms have seen. The caller updates the lanes.
    pub(super) fn reset_initial_reads(&mut self) {
        self.initial_reads = InitialReads::after(self.calls.last());
        self.calls.take_out(|purpose| matches!(purpose, Purpose::InitialRead(_)));
        for lane in self.lanes.values_mut() {
            lane.initial_read = InitialRead::default();
        }
    }

    /// Records the answer to a PUT of an earlier term. Reads in flight may not show its operation.
    pub(super) fn disturbed(&mut self, lb: &LbName) {
        self.initial_reads.at_rest.remove(lb);
        self.initial_reads.disturbed.insert(lb.clone(), self.calls.last());
        if let Some(lane) = self.lanes.get_mut(lb) {
            lane.initial_read = InitialRead::default();
        }
    }

    /// Queues the reads that are due.
    pub(super) fn queue_initial_reads(&mut self) {
        if self.phase != WriterPhase::Running || !self.leadership.leads() {
            return;
        }
        for lb in std::mem::take(&mut self.awaiting_initial_read) {
            if let Some(lane) = self.lanes.get_mut(&lb) {
                lane.initial_read.begin_read();
                // A read for a lane that was dropped meanwhile may still wait for a token.
                self.calls.take_out(|purpose| matches!(purpose, Purpose::InitialRead(other) if *other == lb));
                self.calls.queue(Purpose::InitialRead(lb.clone()));
                self.touch(&lb);
            }
        }
    }

    /// Applies a GET of a load balancer, by Discovery or an initial read. The lane opens if it is at rest or does not
    /// exist.
    pub(super) fn apply_initial_read(
        &mut self,
        now: Now,
        call: CallId,
        lb: &LbName,
        is_initial_read: bool,
        read: &Result<Arc<LbFacts>, FailedCall>,
    ) {
        if !self.leadership.leads() || !self.initial_reads.counts(lb, call) {
            return;
        }
        let at_rest = match read {
            Ok(facts) => shows_rest(facts),
            // The GETs of the pools report all other failures.
            Err(failed) => failed.class.is_stale(),
        };
        if at_rest {
            self.at_rest(lb);
        } else if is_initial_read
            && let Some(lane) = self.lanes.get_mut(lb).filter(|lane| lane.initial_read.is_reading())
        {
            lane.initial_read.schedule_retry(now);
            if lane.initial_read == InitialRead::AtRest {
                self.at_rest(lb);
            }
        }
    }

    /// Marks a load balancer as seen at rest in this term.
    pub(super) fn at_rest(&mut self, lb: &LbName) {
        self.initial_reads.at_rest.insert(lb.clone());
        if let Some(lane) = self.lanes.get_mut(lb) {
            lane.initial_read = InitialRead::AtRest;
        }
    }
}

/// Returns whether no operation runs on a load balancer.
pub(super) fn shows_rest(facts: &LbFacts) -> bool {
    let rests = |provisioning| match provisioning {
        Provisioning::Updating => false,
        Provisioning::Succeeded | Provisioning::Failed | Provisioning::Unknown => true,
    };
    rests(facts.provisioning) && facts.pools.iter().all(|pool| rests(pool.provisioning))
}
