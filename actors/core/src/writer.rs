//! The one owner of writes to Azure: lanes, slots, gates, budget, and each write from its GET to its outcome
//! (design.md W1-W9). What a pool must hold, and whether a failure is tried again, is the pool's business.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arm::{ArmAnswer, ArmCall, Failure, LbFacts};
use crate::assignment::Observation;
use crate::ids::{AttemptId, CallId, Epoch, LbName, NetworkId, NodeUid, PoolId};
use crate::machine::Now;
use crate::queue::{Due, Outcome, Taken, Verdict};
use crate::sample::{GateClass, Sample};
use crate::view::{GateView, LaneView};

/// What the writer is told once, at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `writer.maxConcurrentLoadBalancers`: turns, 64 (W1).
    pub turns: usize,
    /// `writer.ifMatch`: whether a PUT carries the etag of its GET (W2).
    pub if_match: bool,
    /// `writer.etagRounds`: GETs within one attempt that 412s may cost, 3 (W2).
    pub etag_rounds: u32,
    /// `budget.writesPer5Minutes`, 500 (W9).
    pub writes_per_5_minutes: u32,
    /// `budget.readsPer5Minutes`, 5000 (W9).
    pub reads_per_5_minutes: u32,
    /// The virtual network written at pool level when a pool has none (W3); `None`: not configured.
    pub network: Option<NetworkId>,
}

/// What the writer can be told.
#[derive(Clone, Debug)]
pub enum In {
    /// Whether this process may write, and in which term (W8).
    Standing(Standing),
    /// A pool's membership is due.
    Due(PoolId, Due),
    /// A pool's membership is no longer due.
    Withdraw(PoolId),
    /// The answer to a Take.
    Taken(PoolId, AttemptId, Option<Taken>),
    /// A pool's admin state is due (N3): the other part of its slot.
    AdminDue(PoolId, AdminDue),
    /// The draining set (N2); every plan reads the newest one.
    Draining(Arc<Draining>),
    /// Discovery wants a load balancer read.
    Read {
        /// The id that the answer carries.
        call: CallId,
        /// Which.
        lb: LbName,
    },
    /// The arm port's answer to a call.
    Answered(CallId, ArmAnswer),
    /// Nothing new is started; what is sent is waited for.
    Shutdown,
}

/// Whether this process may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It may not.
    Standby,
    /// It may, in this term, until the permit time at the latest.
    Leading {
        /// The term.
        epoch: Epoch,
        /// Until when leadership is certain; [`Now::NEVER`] where nobody competes.
        until: Now,
    },
}

/// A pool's admin state is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdminDue {
    /// Since when.
    pub since: Now,
    /// The generation of the draining set that asks for it.
    pub generation: u64,
    /// Whether a node goes down, or is only restored.
    pub urgency: AdminUrgency,
}

/// How urgent an admin state write is (W1).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AdminUrgency {
    /// A node is to be cut out.
    Down,
    /// A node is to be restored.
    Restore,
}

/// The nodes that leave service, as a level (N2).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Draining {
    /// Raised with each change.
    pub generation: u64,
    /// Addresses of draining nodes, with the UID of the node.
    pub addresses: BTreeMap<std::net::IpAddr, NodeUid>,
    /// Addresses whose Down is ours to take back (N4).
    pub restorable: BTreeSet<std::net::IpAddr>,
}

/// What the writer can say.
#[derive(Clone, Debug)]
pub enum Out {
    /// To a pool: the lane is granted; bring the newest level.
    Take(PoolId, AttemptId),
    /// To a pool: its attempt ended.
    Finished(PoolId, AttemptId, Outcome),
    /// To a pool: what verification found.
    Verified(PoolId, Verdict),
    /// To a pool: what a read outside its attempts saw.
    Observed(PoolId, Observation),
    /// To the admin state: its part of a pool's slot ended, for this generation (N3).
    AdminFinished {
        /// The pool.
        pool: PoolId,
        /// The generation that was carried out.
        generation: u64,
        /// Why not, if it failed.
        failure: Option<Arc<Failure>>,
    },
    /// To Discovery: the answer to its read.
    Read {
        /// The id of the request.
        call: CallId,
        /// When the GET began.
        began: Now,
        /// What it saw.
        result: Result<Arc<LbFacts>, Arc<Failure>>,
    },
    /// To the arm port.
    Call(ArmCall),
    /// To the arm port's gate policy: until when each verb class is closed (W6).
    Gates {
        /// Reads.
        reads_until: Option<Now>,
        /// Writes.
        writes_until: Option<Now>,
    },
    /// To the board: a lane.
    Lane(LaneView),
    /// To the board: a gate and its budget.
    Gate(GateClass, GateView),
    /// To the metrics.
    Sample(Sample),
    /// To the wiring: after [`In::Shutdown`], nothing that was sent is unanswered any more.
    Quiet,
}
