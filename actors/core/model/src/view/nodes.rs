//! What is shown of nodes that leave service (docs/design/nodes.md, N1-N5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arm::{AdminState, Backend};
use crate::ids::{NodeName, NodeUid, PoolId};
use crate::machine::Now;
use crate::node::{NodeState, Role};
use crate::signals::Signal;

/// A node that leaves service, or has not come back in every pool yet. Others are not shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// Its UID.
    pub uid: NodeUid,
    /// How far it is.
    pub state: NodeState,
    /// Why it leaves service; none: it comes back, or its object is gone.
    pub signals: BTreeSet<Signal>,
    /// Since when that is wanted.
    pub since: Option<Now>,
    /// Whether it is Ready.
    pub ready: bool,
    /// What entries send to it: its addresses and its virtual machine.
    pub backends: Vec<Backend>,
    /// The generation of the set that has it; `None`: none has.
    pub generation: Option<u64>,
    /// Whether our ConfigMap is confirmed to hold its record (N4).
    pub recorded: bool,
    /// Whether we have set the taint that says that it is evicted (N1).
    pub taint_ours: bool,
    /// The pools that it is in, in their order.
    pub pools: Vec<NodePool>,
    /// How often work on it has failed in a row.
    pub retries: u32,
    /// When it is worked on again, if it waits for that.
    pub next: Option<Now>,
    /// What the last failure said, until it is done.
    pub last_error: Option<Arc<str>>,
}

impl NodeView {
    /// In how many of its pools it is in this state.
    #[must_use]
    pub fn count(&self, state: NodePoolState) -> usize {
        self.pools.iter().filter(|pool| pool.state == state).count()
    }
}

/// One pool of a node that leaves service.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodePool {
    /// The pool.
    pub pool: PoolId,
    /// How it is there.
    pub state: NodePoolState,
}

/// How a node that leaves service is in one pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodePoolState {
    /// Its entry is Down by us.
    Down,
    /// Its entry waits to be set Down, or to be taken back.
    Waiting,
    /// That has failed, and is tried again.
    Failed,
    /// Its entry was Down before us: it is left as it is (N4).
    Foreign,
    /// Its entry has an admin state that we do not know: it is left as it is.
    Unknown,
    /// The pool is left out by the configuration (N2).
    Excluded,
}

impl NodePoolState {
    /// Each of them.
    pub const ALL: [NodePoolState; 6] = [
        NodePoolState::Down,
        NodePoolState::Waiting,
        NodePoolState::Failed,
        NodePoolState::Foreign,
        NodePoolState::Unknown,
        NodePoolState::Excluded,
    ];

    /// The word for the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            NodePoolState::Down => "down",
            NodePoolState::Waiting => "waiting",
            NodePoolState::Failed => "failed",
            NodePoolState::Foreign => "foreign",
            NodePoolState::Unknown => "unknown",
            NodePoolState::Excluded => "excluded",
        }
    }
}

/// The admin state as a whole.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AdminView {
    /// What the machine does.
    pub role: Role,
    /// Whether a note in our ConfigMap has switched it off (N4).
    pub switched_off: bool,
    /// The generation of the set that the writer goes by.
    pub generation: u64,
    /// How many records our ConfigMap holds.
    pub records: usize,
    /// The keys of records that cannot be read, and why: nothing of theirs is ours.
    pub unreadable: BTreeMap<Arc<str>, &'static str>,
    /// How many nodes wait for a record that our ConfigMap cannot take.
    pub refused: usize,
    /// Admin states of known nodes that are not ours, in order; [`AdminView::MOST_FOREIGN`] at most. Entries that send
    /// to no known node are not among them.
    pub foreign: Vec<ForeignState>,
    /// Whether our ConfigMap could be read, or written, when it was asked for last.
    pub fresh: bool,
    /// What the last failed request about it said, until one succeeds.
    pub last_error: Option<Arc<str>>,
}

impl AdminView {
    /// How many admin states are shown at most that another client has set, of all nodes together.
    pub const MOST_FOREIGN: usize = 100;
}

/// An admin state that another client has set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignState {
    /// In which pool.
    pub pool: PoolId,
    /// Of which entry.
    pub backend: Backend,
    /// What is set.
    pub state: AdminState,
    /// Whose entry that is.
    pub node: NodeName,
}

/// The word for an admin state, as Azure spells it.
#[must_use]
pub fn admin_state_word(state: AdminState) -> &'static str {
    match state {
        AdminState::None => "None",
        AdminState::Up => "Up",
        AdminState::Down => "Down",
        AdminState::Unknown => "Unknown",
    }
}
