//! The calls to ARM that are under way, and the reads that wait for a token (docs/design/writer.md, W9; A3).
//!
//! Each call has an id, a purpose and a watchdog. Reads wait in the order poll, pre-write, verify, discovery;
//! the purpose says which part decides what follows from an answer.

use std::collections::BTreeMap;
use std::time::Duration;

use model::arm::{ArmAnswer, ArmRequest, Failure, FailureKind};
use model::ids::{AttemptId, CallId, LbName, Operation, PoolId};
use model::machine::Now;
use model::sample::{ArmResult, ArmVerb, GateClass};

use super::budget::Need;

/// How long a call may go without an answer before it counts as timed out.
const CALL_LIMIT: Duration = Duration::from_secs(90);

/// Until when a PUT that waits before it is sent, such as for a token, may still be sent: one more try of 20
/// seconds ends before the watchdog gives the call up, so that no PUT is sent that counts as done with (W8).
pub(super) const SEND_LIMIT: Duration = Duration::from_secs(60);

/// What a call is for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// The GET of the load balancer before that of the pool, for a PUT without the shared Lease (W7).
    Rest(PoolId, AttemptId),
    /// The GET before a PUT.
    PreWrite(PoolId, AttemptId),
    /// The PUT.
    Put(PoolId, AttemptId),
    /// How a PUT's operation stands: by its URL, else by the pool itself.
    Poll(PoolId, AttemptId, Option<Operation>),
    /// The state of a PUT's operation, from a read of its load balancer when polls have not shown it.
    ReadBack(PoolId, AttemptId),
    /// Whether a PUT's operation has ended, before ARM wants to be asked for it again: by the pool itself.
    Glance(PoolId, AttemptId),
    /// Whether anything runs on a pool whose PUT got no answer.
    Probe(PoolId),
    /// Whether anything runs on a load balancer on which nothing was written in this term.
    Look(LbName),
    /// Whether a write is there.
    Verify(PoolId, AttemptId),
    /// Whether the load balancer of a write that seems lost is the one that was written.
    Confirm(PoolId, AttemptId),
    /// A read of discovery's, with the id of its request.
    Discovery(CallId, LbName),
}

/// The order in which waiting reads are sent (W9).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ReadRank {
    /// Polls.
    Poll,
    /// Reads before a PUT, and those that open a lane again.
    PreWrite,
    /// Verification.
    Verify,
    /// Discovery.
    Discovery,
}

impl Purpose {
    /// The load balancer that it is about.
    pub(super) fn lb(&self) -> &LbName {
        match self {
            Purpose::Rest(pool, _)
            | Purpose::PreWrite(pool, _)
            | Purpose::Put(pool, _)
            | Purpose::Poll(pool, _, _)
            | Purpose::ReadBack(pool, _)
            | Purpose::Glance(pool, _)
            | Purpose::Probe(pool)
            | Purpose::Verify(pool, _)
            | Purpose::Confirm(pool, _) => &pool.lb,
            Purpose::Look(lb) | Purpose::Discovery(_, lb) => lb,
        }
    }

    /// The gate and budget that it goes through.
    pub(super) fn class(&self) -> GateClass {
        match self {
            Purpose::Put(..) => GateClass::Writes,
            Purpose::Rest(..)
            | Purpose::PreWrite(..)
            | Purpose::Poll(..)
            | Purpose::ReadBack(..)
            | Purpose::Glance(..)
            | Purpose::Probe(_)
            | Purpose::Look(_)
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
            Purpose::Rest(..)
            | Purpose::ReadBack(..)
            | Purpose::Look(_)
            | Purpose::Confirm(..)
            | Purpose::Discovery(..) => ArmVerb::GetLoadBalancer,
        }
    }

    fn rank(&self) -> ReadRank {
        match self {
            Purpose::Poll(..) | Purpose::ReadBack(..) => ReadRank::Poll,
            Purpose::Rest(..)
            | Purpose::PreWrite(..)
            | Purpose::Probe(_)
            | Purpose::Look(_)
            | Purpose::Put(..) => ReadRank::PreWrite,
            // None of them keeps a write waiting.
            Purpose::Glance(..) | Purpose::Verify(..) | Purpose::Confirm(..) => ReadRank::Verify,
            Purpose::Discovery(..) => ReadRank::Discovery,
        }
    }

    /// What of the budget a read needs; the PUT has been paid for with its grant.
    pub(super) fn need(&self) -> Need {
        match self {
            Purpose::Rest(..)
            | Purpose::PreWrite(..)
            | Purpose::Put(..)
            | Purpose::Poll(..)
            | Purpose::ReadBack(..)
            | Purpose::Probe(_)
            | Purpose::Look(_) => Need::Begun,
            Purpose::Glance(..) | Purpose::Verify(..) | Purpose::Confirm(..) => Need::Verify,
            Purpose::Discovery(..) => Need::Discovery,
        }
    }

    /// The request of a read; `None` for the PUT, whose request is made of its plan.
    pub(super) fn read_request(&self) -> Option<ArmRequest> {
        match self {
            Purpose::Put(..) => None,
            Purpose::Poll(_, _, Some(operation)) => Some(ArmRequest::Poll(operation.clone())),
            Purpose::PreWrite(pool, _)
            | Purpose::Poll(pool, _, None)
            | Purpose::Glance(pool, _)
            | Purpose::Probe(pool)
            | Purpose::Verify(pool, _) => Some(ArmRequest::GetPool(pool.clone())),
            Purpose::Rest(PoolId { lb, .. }, _)
            | Purpose::ReadBack(PoolId { lb, .. }, _)
            | Purpose::Confirm(PoolId { lb, .. }, _)
            | Purpose::Look(lb)
            | Purpose::Discovery(_, lb) => Some(ArmRequest::GetLoadBalancer(lb.clone())),
        }
    }
}

/// A call that was sent and not answered.
#[derive(Clone, Debug)]
pub(super) struct Call {
    /// What it is for.
    pub purpose: Purpose,
    /// When it was sent.
    pub began: Now,
}

impl Call {
    /// What was called.
    pub(super) fn verb(&self) -> ArmVerb {
        self.purpose.verb()
    }
}

/// Calls under way and reads that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Calls {
    last: u64,
    open: BTreeMap<CallId, Call>,
    puts: usize,
    waiting: BTreeMap<(ReadRank, u64), Waiting>,
    queued: u64,
}

/// A read that waits.
#[derive(Clone, Debug)]
struct Waiting {
    purpose: Purpose,
    /// Whether it was told that it waits for a rate of the cloud configuration.
    limited: bool,
}

impl Calls {
    /// Notes a call that is sent now and names it.
    pub(super) fn open(&mut self, now: Now, purpose: Purpose) -> CallId {
        self.last += 1;
        let id = CallId(self.last);
        self.puts += usize::from(purpose.class() == GateClass::Writes);
        self.open.insert(id, Call { purpose, began: now });
        id
    }

    /// The call that was sent last.
    pub(super) fn last(&self) -> CallId {
        CallId(self.last)
    }

    /// Takes out the call that an answer is for.
    pub(super) fn close(&mut self, id: CallId) -> Option<Call> {
        let call = self.open.remove(&id)?;
        self.puts -= usize::from(call.purpose.class() == GateClass::Writes);
        Some(call)
    }

    /// The oldest call whose watchdog has gone off.
    pub(super) fn overdue(&self, now: Now) -> Option<CallId> {
        let (id, call) = self.open.first_key_value()?;
        (call.began.plus(CALL_LIMIT) <= now).then_some(*id)
    }

    /// When the next watchdog goes off: ids rise with time, so it is the first one's.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.open.first_key_value().map(|(_, call)| call.began.plus(CALL_LIMIT))
    }

    /// How many PUTs are unanswered.
    pub(super) fn puts(&self) -> usize {
        self.puts
    }

    /// Puts a read behind the others of its rank.
    pub(super) fn queue(&mut self, purpose: Purpose) {
        self.queued += 1;
        self.waiting.insert((purpose.rank(), self.queued), Waiting { purpose, limited: false });
    }

    /// The read that goes first.
    pub(super) fn first(&self) -> Option<&Purpose> {
        self.waiting.first_key_value().map(|(_, first)| &first.purpose)
    }

    /// How many reads wait that go before all that is not granted yet.
    pub(super) fn begun_waiting(&self) -> usize {
        self.waiting.range(..(ReadRank::Verify, 0)).count()
    }

    /// Notes that the read that goes first waits for a rate of the cloud configuration; gives what it asks for when
    /// that is new.
    pub(super) fn limit_first(&mut self) -> Option<ArmVerb> {
        let mut first = self.waiting.first_entry()?;
        let first = first.get_mut();
        (!std::mem::replace(&mut first.limited, true)).then(|| first.purpose.verb())
    }

    /// Takes out the read that goes first.
    pub(super) fn take_first(&mut self) -> Option<Purpose> {
        self.waiting.pop_first().map(|(_, first)| first.purpose)
    }

    /// Takes out the waiting reads that a test picks.
    pub(super) fn take_out(&mut self, picks: impl Fn(&Purpose) -> bool) -> Vec<Purpose> {
        let taken = self.waiting.extract_if(.., |_, waiting| picks(&waiting.purpose));
        taken.map(|(_, waiting)| waiting.purpose).collect()
    }

    /// Whether a read of this pool for its write was sent and is unanswered.
    pub(super) fn is_reading(&self, pool: &PoolId) -> bool {
        self.open.values().any(|call| match &call.purpose {
            Purpose::PreWrite(read, _) | Purpose::Poll(read, _, _) | Purpose::ReadBack(read, _) => {
                read == pool
            }
            Purpose::Rest(..)
            | Purpose::Put(..)
            | Purpose::Glance(..)
            | Purpose::Probe(_)
            | Purpose::Look(_)
            | Purpose::Verify(..)
            | Purpose::Confirm(..)
            | Purpose::Discovery(..) => false,
        })
    }

    /// The PUTs that are unanswered.
    pub(super) fn open_puts(&self) -> impl Iterator<Item = &PoolId> {
        self.open.values().filter_map(|call| match &call.purpose {
            Purpose::Put(pool, _) => Some(pool),
            Purpose::Rest(..)
            | Purpose::PreWrite(..)
            | Purpose::Poll(..)
            | Purpose::ReadBack(..)
            | Purpose::Glance(..)
            | Purpose::Probe(_)
            | Purpose::Look(_)
            | Purpose::Verify(..)
            | Purpose::Confirm(..)
            | Purpose::Discovery(..) => None,
        })
    }
}

/// Returns how the answer to a call is counted.
pub(super) fn result_of(verb: ArmVerb, answer: &ArmAnswer) -> ArmResult {
    match answer {
        ArmAnswer::LoadBalancer(_) | ArmAnswer::Pool(_) | ArmAnswer::Put(_) | ArmAnswer::Operation(_) => {
            ArmResult::Ok
        }
        ArmAnswer::Withheld => ArmResult::NotSent,
        ArmAnswer::Failed(failure) if verb == ArmVerb::GetLoadBalancer && failure.says_absent() => {
            ArmResult::NotFound
        }
        ArmAnswer::Failed(failure) => result_of_failure(failure),
    }
}

fn result_of_failure(failure: &Failure) -> ArmResult {
    match failure.kind {
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
