//! Views of nodes that leave service (docs/design/nodes.md, N1-N5).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::arm::{AdminState, Backend};
use crate::ids::{NodeName, NodeUid, PoolId};
use crate::machine::Now;
use crate::node::{NodeState, Role};
use crate::signals::Signal;

/// A node that leaves service, or that is not yet back in every pool. Other nodes have no such view.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeView {
    /// Its name.
    pub name: NodeName,
    /// Its UID.
    pub uid: NodeUid,
    /// Progress of the node.
    pub state: NodeState,
    /// Why the node leaves service. Empty when it returns to service, or when its object is gone.
    pub signals: BTreeSet<Signal>,
    /// Time since which the node leaves or returns.
    pub since: Option<Now>,
    /// True if the node is Ready.
    pub ready: bool,
    /// The backends of its entries: its addresses and its virtual machine.
    pub backends: Vec<Backend>,
    /// Generation of the draining set that includes the node; `None`: no set does.
    pub generation: Option<u64>,
    /// True if our ConfigMap is confirmed to hold the node's record (N4).
    pub recorded: bool,
    /// True if we have set the eviction taint on the node (N1).
    pub taint_ours: bool,
    /// The pools of the node, in order.
    pub pools: Vec<NodePool>,
    /// Number of consecutive failures.
    pub retries: u32,
    /// Time of the next try, if it waits for a time.
    pub next: Option<Now>,
    /// Message of the last failure; cleared when the node is done.
    pub last_error: Option<Arc<str>>,
}

impl NodeView {
    /// Returns the number of the node's pools in this state.
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
    /// State of the node's entry in the pool.
    pub state: NodePoolState,
}

/// State of a leaving node's entry in one pool.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NodePoolState {
    /// We have set the entry Down.
    Down,
    /// The entry waits to be set Down or restored.
    Waiting,
    /// The last try failed and is repeated.
    Failed,
    /// The entry was Down before we acted, so it is left unchanged (N4).
    Foreign,
    /// The entry has an admin state that we do not know, so it is left unchanged.
    Unknown,
    /// The configuration excludes the pool (N2).
    Excluded,
}

impl NodePoolState {
    /// Every state.
    pub const ALL: [NodePoolState; 6] = [
        NodePoolState::Down,
        NodePoolState::Waiting,
        NodePoolState::Failed,
        NodePoolState::Foreign,
        NodePoolState::Unknown,
        NodePoolState::Excluded,
    ];

    /// Returns the value in the admin API.
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
    /// Role of the machine.
    pub role: Role,
    /// True if a key in our ConfigMap has switched the admin state off (N4).
    pub switched_off: bool,
    /// Generation of the draining set that the writer uses.
    pub generation: u64,
    /// Number of records in our ConfigMap.
    pub records: usize,
    /// Keys of unreadable records, with the reason. Nothing under these keys counts as ours.
    pub unreadable: BTreeMap<Arc<str>, &'static str>,
    /// Number of nodes that wait for a record that our ConfigMap cannot take.
    pub refused: usize,
    /// Admin states of known nodes that are not ours, in order; at most [`AdminView::MAX_FOREIGN`]. Entries that
    /// belong to no known node are not included.
    pub foreign: Vec<ForeignState>,
    /// True if the last read or write of our ConfigMap succeeded.
    pub fresh: bool,
    /// Message of the last failed request about our ConfigMap; cleared by the next success.
    pub last_error: Option<Arc<str>>,
}

impl AdminView {
    /// The maximum number of foreign admin states in the view, over all nodes.
    pub const MAX_FOREIGN: usize = 100;
}

/// An admin state that another client has set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignState {
    /// The pool.
    pub pool: PoolId,
    /// The backend of the entry.
    pub backend: Backend,
    /// The admin state.
    pub state: AdminState,
    /// The node of the entry.
    pub node: NodeName,
}

/// Returns the spelling of an admin state in Azure.
#[must_use]
pub fn admin_state_word(state: AdminState) -> &'static str {
    match state {
        AdminState::None => "None",
        AdminState::Up => "Up",
        AdminState::Down => "Down",
        AdminState::Unknown => "Unknown",
    }
}
