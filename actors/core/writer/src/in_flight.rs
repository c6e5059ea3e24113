//! Calls to ARM that are in flight, and reads that wait for a token (docs/design/writer.md, W9; A3).
//!
//! Each call has an id, a purpose and a timeout. Reads wait in the order poll, pre-write, verify, discovery. The
//! purpose determines which part handles the answer.

use std::collections::BTreeMap;
use std::time::Duration;

use model::arm::{ArmAnswer, ArmRequest, FailureKind};
use model::ids::{AttemptId, CallId, LbName, Operation, PoolId};
use model::machine::Now;
use model::sample::{ArmResult, ArmVerb, GateClass};

use super::budget::BudgetPurpose;
use super::classify::{Answered, FailureClass};

/// Time after which a call without an answer counts as timed out.
const CALL_LIMIT: Duration = Duration::from_secs(90);

/// Time within which a PUT that waits in the port, for example for a token, may still be sent. One more try of 20
/// seconds then ends before the timeout of the call, so that no PUT is sent after the writer has abandoned it (W8).
pub(super) const SEND_LIMIT: Duration = Duration::from_secs(60);

/// The purpose of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Reads the load balancer before the pool, for a PUT without the shared Lease (W7).
    RestCheck(PoolId, AttemptId),
    /// Reads the pool before a PUT.
    PreWrite(PoolId, AttemptId),
    /// The PUT.
    Put(PoolId, AttemptId),
    /// Polls a PUT's operation: by its URL, else by a read of the pool.
    Poll(PoolId, AttemptId, Option<Operation>),
    /// Reads the load balancer of a PUT when polls have not settled its operation.
    ReadBack(PoolId, AttemptId),
    /// Reads the pool between two polls, to notice the end of the operation early.
    Glance(PoolId, AttemptId),
    /// Checks whether an operation runs on a pool whose PUT was not answered.
    Probe(PoolId),
    /// Initial read: checks whether an operation runs on a load balancer without a write in this term.
    InitialRead(LbName),
    /// Verifies that a write persisted.
    Verify(PoolId, AttemptId),
    /// Checks whether a write that seems lost was made to the present load balancer.
    Confirm(PoolId, AttemptId),
    /// Read of Discovery, with the id of its request.
    Discovery(CallId, LbName),
}

/// The order in which waiting reads are sent (W9).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ReadRank {
    /// Polls.
    Poll,
    /// Reads before a PUT, and probes that open a lane again.
    PreWrite,
    /// Verification.
    Verify,
    /// Discovery.
    Discovery,
}

impl Purpose {
    /// Returns the load balancer of the call.
    pub(super) fn lb(&self) -> &LbName {
        match self {
            Purpose::RestCheck(pool, _)
            | Purpose::PreWrite(pool, _)
            | Purpose::Put(pool, _)
            | Purpose::Poll(pool, _, _)
            | Purpose::ReadBack(pool, _)
            | Purpose::Glance(pool, _)
            | Purpose::Probe(pool)
            | Purpose::Verify(pool, _)
            | Purpose::Confirm(pool, _) => &pool.lb,
            Purpose::InitialRead(lb) | Purpose::Discovery(_, lb) => lb,
        }
    }

    /// Returns the class of the gate and budget of the call.
    pub(super) fn class(&self) -> GateClass {
        match self {
            Purpose::Put(..) => GateClass::Writes,
            Purpose::RestCheck(..)
            | Purpose::PreWrite(..)
            | Purpose::Poll(..)
            | Purpose::ReadBack(..)
            | Purpose::Glance(..)
            | Purpose::Probe(_)
            | Purpose::InitialRead(_)
            | Purpose::Verify(..)
            | Purpose::Confirm(..)
            | Purpose::Discovery(..) => GateClass::Reads,
        }
    }

    fn verb(&self) -> ArmVerb {
        match self {
            Purpose::Put(..) => ArmVerb::PutPool,
            Purpose::Poll(_, _, Some(_)) => ArmVerb::Poll,
            Purpose::PreWrite(..)
            | Purpose::Poll(_, _, None)
            | Purpose::Glance(..)
            | Purpose::Probe(_)
            | Purpose::Verify(..) => ArmVerb::GetPool,
            Purpose::RestCheck(..)
            | Purpose::ReadBack(..)
            | Purpose::InitialRead(_)
            | Purpose::Confirm(..)
            | Purpose::Discovery(..) => ArmVerb::GetLoadBalancer,
        }
    }

    fn rank(&self) -> ReadRank {
        match self {
            Purpose::Poll(..) | Purpose::ReadBack(..) => ReadRank::Poll,
            Purpose::RestCheck(..)
            | Purpose::PreWrite(..)
            | Purpose::Probe(_)
            | Purpose::InitialRead(_)
            | Purpose::Put(..) => ReadRank::PreWrite,
            // No write waits for these reads.
            Purpose::Glance(..) | Purpose::Verify(..) | Purpose::Confirm(..) => ReadRank::Verify,
            Purpose::Discovery(..) => ReadRank::Discovery,
        }
    }

    /// Returns the budget of a read. A PUT was paid for with its grant.
    pub(super) fn need(&self) -> BudgetPurpose {
        match self {
            Purpose::RestCheck(..)
            | Purpose::PreWrite(..)
            | Purpose::Put(..)
            | Purpose::Poll(..)
            | Purpose::ReadBack(..)
            | Purpose::Probe(_)
            | Purpose::InitialRead(_) => BudgetPurpose::Begun,
            Purpose::Glance(..) | Purpose::Verify(..) | Purpose::Confirm(..) => BudgetPurpose::Verify,
            Purpose::Discovery(..) => BudgetPurpose::Discovery,
        }
    }

    /// Returns the request of a read. `None` for the PUT, whose request is made from its plan.
    pub(super) fn read_request(&self) -> Option<ArmRequest> {
        match self {
            Purpose::Put(..) => None,
            Purpose::Poll(_, _, Some(operation)) => Some(ArmRequest::Poll(operation.clone())),
            Purpose::PreWrite(pool, _)
            | Purpose::Poll(pool, _, None)
            | Purpose::Glance(pool, _)
            | Purpose::Probe(pool)
            | Purpose::Verify(pool, _) => Some(ArmRequest::GetPool(pool.clone())),
            Purpose::RestCheck(PoolId { lb, .. }, _)
            | Purpose::ReadBack(PoolId { lb, .. }, _)
            | Purpose::Confirm(PoolId { lb, .. }, _)
            | Purpose::InitialRead(lb)
            | Purpose::Discovery(_, lb) => Some(ArmRequest::GetLoadBalancer(lb.clone())),
        }
    }
}

/// A call in flight.
#[derive(Clone, Debug)]
pub(super) struct InFlightCall {
    /// Purpose of the call.
    pub purpose: Purpose,
    /// Time at which it was sent.
    pub began: Now,
}

impl InFlightCall {
    pub(super) fn verb(&self) -> ArmVerb {
        self.purpose.verb()
    }
}

/// Calls in flight and waiting reads.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    last: u64,
    open: BTreeMap<CallId, InFlightCall>,
    puts: usize,
    waiting: BTreeMap<(ReadRank, u64), WaitingRead>,
    queued: u64,
}

/// A waiting read.
#[derive(Clone, Debug)]
struct WaitingRead {
    purpose: Purpose,
    /// Whether its delay by a rate limit of the cloud configuration was counted.
    limited: bool,
}

impl Calls {
    /// Registers a call that is sent now, and returns its id.
    pub(super) fn open(&mut self, now: Now, purpose: Purpose) -> CallId {
        self.last += 1;
        let id = CallId(self.last);
        self.puts += usize::from(purpose.class() == GateClass::Writes);
        self.open.insert(id, InFlightCall { purpose, began: now });
        id
    }

    /// Returns the id of the last call.
    pub(super) fn last(&self) -> CallId {
        CallId(self.last)
    }

    /// Removes and returns the call with this id.
    pub(super) fn close(&mut self, id: CallId) -> Option<InFlightCall> {
        let call = self.open.remove(&id)?;
        self.puts -= usize::from(call.purpose.class() == GateClass::Writes);
        Some(call)
    }

    /// Returns the oldest call that has timed out.
    pub(super) fn overdue(&self, now: Now) -> Option<CallId> {
        let (id, call) = self.open.first_key_value()?;
        (call.began.plus(CALL_LIMIT) <= now).then_some(*id)
    }

    /// Returns the time of the next timeout. Ids rise with time, so this is the timeout of the first call.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.open.first_key_value().map(|(_, call)| call.began.plus(CALL_LIMIT))
    }

    /// Returns the number of PUTs in flight.
    pub(super) fn puts(&self) -> usize {
        self.puts
    }

    /// Queues a read behind the others of its rank.
    pub(super) fn queue(&mut self, purpose: Purpose) {
        self.queued += 1;
        self.waiting.insert((purpose.rank(), self.queued), WaitingRead { purpose, limited: false });
    }

    /// Returns the first waiting read.
    pub(super) fn first(&self) -> Option<&Purpose> {
        self.waiting.first_key_value().map(|(_, first)| &first.purpose)
    }

    /// Returns whether a call with this purpose is in flight.
    pub(super) fn is_open(&self, purpose: &Purpose) -> bool {
        self.open.values().any(|call| call.purpose == *purpose)
    }

    /// Returns whether a call with this purpose is in flight or waits.
    pub(super) fn is_asked(&self, purpose: &Purpose) -> bool {
        self.is_open(purpose) || self.waiting.values().any(|waiting| waiting.purpose == *purpose)
    }

    /// Returns the number of waiting reads that are sent before the reads of later grants.
    pub(super) fn begun_waiting(&self) -> usize {
        self.waiting.range(..(ReadRank::Verify, 0)).count()
    }

    /// Marks the first read as delayed by a rate limit of the cloud configuration. Returns its verb if that is new.
    pub(super) fn limit_first(&mut self) -> Option<ArmVerb> {
        let mut first = self.waiting.first_entry()?;
        let first = first.get_mut();
        (!std::mem::replace(&mut first.limited, true)).then(|| first.purpose.verb())
    }

    /// Removes and returns the first waiting read.
    pub(super) fn take_first(&mut self) -> Option<Purpose> {
        self.waiting.pop_first().map(|(_, first)| first.purpose)
    }

    /// Removes and returns the waiting reads that match.
    pub(super) fn take_out(&mut self, picks: impl Fn(&Purpose) -> bool) -> Vec<Purpose> {
        let taken = self.waiting.extract_if(.., |_, waiting| picks(&waiting.purpose));
        taken.map(|(_, waiting)| waiting.purpose).collect()
    }

    /// Returns whether a read of this pool for its write is in flight.
    pub(super) fn is_reading(&self, pool: &PoolId) -> bool {
        self.open.values().any(|call| match &call.purpose {
            Purpose::PreWrite(read, _) | Purpose::Poll(read, _, _) | Purpose::ReadBack(read, _) => {
                read == pool
            }
            Purpose::RestCheck(..)
            | Purpose::Put(..)
            | Purpose::Glance(..)
            | Purpose::Probe(_)
            | Purpose::InitialRead(_)
            | Purpose::Verify(..)
            | Purpose::Confirm(..)
            | Purpose::Discovery(..) => false,
        })
    }

    /// Returns the pools of the PUTs in flight.
    pub(super) fn open_puts(&self) -> impl Iterator<Item = &PoolId> {
        self.open.values().filter_map(|call| match &call.purpose {
            Purpose::Put(pool, _) => Some(pool),
            Purpose::RestCheck(..)
            | Purpose::PreWrite(..)
            | Purpose::Poll(..)
            | Purpose::ReadBack(..)
            | Purpose::Glance(..)
            | Purpose::Probe(_)
            | Purpose::InitialRead(_)
            | Purpose::Verify(..)
            | Purpose::Confirm(..)
            | Purpose::Discovery(..) => None,
        })
    }
}

/// Returns the result of a call for the metrics.
pub(super) fn result_of(verb: ArmVerb, answer: &Answered) -> ArmResult {
    let failed = match answer {
        Ok(ArmAnswer::Withheld) => return ArmResult::NotSent,
        Ok(_) => return ArmResult::Ok,
        Err(failed) => failed,
    };
    match failed.failure.kind {
        FailureKind::Status(_)
            if verb == ArmVerb::GetLoadBalancer && failed.class == FailureClass::Absent =>
        {
            ArmResult::NotFound
        }
        FailureKind::Status(429) => ArmResult::Throttled,
        FailureKind::Status(status) if status < 500 => ArmResult::ClientError,
        FailureKind::Status(_) | FailureKind::Undecodable(_) | FailureKind::Operation => {
            ArmResult::ServerError
        }
        FailureKind::NotConnected | FailureKind::Connection | FailureKind::Timeout => ArmResult::NoAnswer,
        FailureKind::Credential
        | FailureKind::PermitExpired
        | FailureKind::GateClosed
        | FailureKind::Refused => ArmResult::NotSent,
    }
}
