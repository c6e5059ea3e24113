//! The phase of one node, and its changes (docs/design/nodes.md, N1, N4, N5).

use std::collections::BTreeSet;

use model::ids::LbName;
use model::machine::Now;

#[derive(Debug, Default)]
pub(super) enum NodePhase {
    /// None of the node's entries is Down by us.
    #[default]
    Still,
    /// Has a signal since this time, and waits for admission (N5).
    Held { since: Now },
    /// Admitted. Its record is not confirmed yet (N4).
    Recording { since: Now },
    /// In the draining set.
    Draining(NodeHistory),
    /// The Downs that we set for the node are being restored.
    Restoring(NodeHistory),
    /// Deleted. Its entries stay Down as long as they exist, unless another node has its address.
    Gone(NodeHistory),
}

/// The progress of a node with a record: we have set, or may have set, some of its entries Down.
#[derive(Clone, Debug)]
pub(super) struct NodeHistory {
    /// Time since which its target is unchanged.
    pub since: Now,
    /// Time at which it entered the set. `None`: in an earlier term, because its record was read at the start of this
    /// one.
    pub entered: Option<Now>,
    pub progress: NodeProgress,
}

#[derive(Clone, Debug)]
pub(super) enum NodeProgress {
    /// Pools lack something for it, or may.
    Lacking,
    /// No pool lacks anything. Each load balancer in `left` still needs a read that began later. A read does not
    /// count if a PUT of an older set than `generation` may have changed the load balancer since.
    Verifying { since: Now, generation: u64, left: BTreeSet<LbName> },
    /// Every load balancer was read, and agrees.
    Done,
}

/// The effect of a change of phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PhaseEffect {
    Nothing,
    /// The target of the node has changed, so that work on it begins again.
    Turned,
    /// The record of the node is not needed: nothing was Down by us.
    Dropped,
}

impl NodeHistory {
    pub(super) fn new(since: Now, entered: Option<Now>) -> NodeHistory {
        NodeHistory { since, entered, progress: NodeProgress::Lacking }
    }

    pub(super) fn is_done(&self) -> bool {
        match self.progress {
            NodeProgress::Done => true,
            NodeProgress::Lacking | NodeProgress::Verifying { .. } => false,
        }
    }
}

impl NodePhase {
    pub(super) fn history(&self) -> Option<&NodeHistory> {
        match self {
            NodePhase::Draining(history) | NodePhase::Restoring(history) | NodePhase::Gone(history) => {
                Some(history)
            }
            NodePhase::Still | NodePhase::Held { .. } | NodePhase::Recording { .. } => None,
        }
    }

    pub(super) fn history_mut(&mut self) -> Option<&mut NodeHistory> {
        match self {
            NodePhase::Draining(history) | NodePhase::Restoring(history) | NodePhase::Gone(history) => {
                Some(history)
            }
            NodePhase::Still | NodePhase::Held { .. } | NodePhase::Recording { .. } => None,
        }
    }

    /// Returns the time since which the target of the node is unchanged.
    pub(super) fn since(&self) -> Option<Now> {
        match self {
            NodePhase::Still => None,
            NodePhase::Held { since } | NodePhase::Recording { since } => Some(*since),
            NodePhase::Draining(history) | NodePhase::Restoring(history) | NodePhase::Gone(history) => {
                Some(history.since)
            }
        }
    }

    pub(super) fn is_still(&self) -> bool {
        match self {
            NodePhase::Still => true,
            NodePhase::Held { .. }
            | NodePhase::Recording { .. }
            | NodePhase::Draining(_)
            | NodePhase::Restoring(_)
            | NodePhase::Gone(_) => false,
        }
    }

    pub(super) fn is_recording(&self) -> bool {
        match self {
            NodePhase::Recording { .. } => true,
            NodePhase::Still
            | NodePhase::Held { .. }
            | NodePhase::Draining(_)
            | NodePhase::Restoring(_)
            | NodePhase::Gone(_) => false,
        }
    }

    pub(super) fn drains(&self) -> bool {
        match self {
            NodePhase::Draining(_) => true,
            NodePhase::Still
            | NodePhase::Held { .. }
            | NodePhase::Recording { .. }
            | NodePhase::Restoring(_)
            | NodePhase::Gone(_) => false,
        }
    }

    /// Returns whether the node exists and is being restored.
    pub(super) fn restores(&self) -> bool {
        match self {
            NodePhase::Restoring(_) => true,
            NodePhase::Still
            | NodePhase::Held { .. }
            | NodePhase::Recording { .. }
            | NodePhase::Draining(_)
            | NodePhase::Gone(_) => false,
        }
    }

    /// Returns whether the node is being restored, and a pool still lacks the restore.
    pub(super) fn is_down_yet(&self) -> bool {
        match self {
            NodePhase::Restoring(NodeHistory { progress: NodeProgress::Lacking, .. }) => true,
            NodePhase::Restoring(NodeHistory {
                progress: NodeProgress::Verifying { .. } | NodeProgress::Done,
                ..
            })
            | NodePhase::Still
            | NodePhase::Held { .. }
            | NodePhase::Recording { .. }
            | NodePhase::Draining(_)
            | NodePhase::Gone(_) => false,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        match self {
            NodePhase::Gone(_) => true,
            NodePhase::Still
            | NodePhase::Held { .. }
            | NodePhase::Recording { .. }
            | NodePhase::Draining(_)
            | NodePhase::Restoring(_) => false,
        }
    }

    /// Returns whether a last PUT at `sent` cannot have set the node Down in its pool, because it precedes the node's
    /// entry into the set in this term (N4).
    pub(super) fn precedes(&self, sent: Option<Now>) -> bool {
        match self {
            NodePhase::Recording { .. } => true,
            NodePhase::Draining(history) | NodePhase::Restoring(history) | NodePhase::Gone(history) => {
                history.entered.is_some_and(|entered| sent.is_none_or(|sent| sent < entered))
            }
            NodePhase::Still | NodePhase::Held { .. } => false,
        }
    }

    /// Returns the next phase of an existing node with or without a signal.
    pub(super) fn signalled(self, now: Now, signalled: bool) -> (NodePhase, PhaseEffect) {
        match (self, signalled) {
            (NodePhase::Still | NodePhase::Held { .. }, false) => (NodePhase::Still, PhaseEffect::Nothing),
            (NodePhase::Still, true) => (NodePhase::Held { since: now }, PhaseEffect::Nothing),
            (NodePhase::Recording { .. }, false) => (NodePhase::Still, PhaseEffect::Dropped),
            (
                phase @ (NodePhase::Held { .. } | NodePhase::Recording { .. } | NodePhase::Draining(_)),
                true,
            )
            | (phase @ NodePhase::Restoring(_), false) => (phase, PhaseEffect::Nothing),
            (NodePhase::Restoring(history) | NodePhase::Gone(history), true) => {
                (NodePhase::Draining(NodeHistory::new(now, history.entered)), PhaseEffect::Turned)
            }
            (NodePhase::Draining(history) | NodePhase::Gone(history), false) => {
                (NodePhase::Restoring(NodeHistory::new(now, history.entered)), PhaseEffect::Turned)
            }
        }
    }

    /// Returns the phase of an existing node at the start of a term. Earlier work must be verified again, and the
    /// record counts, not the memory of this process (N4).
    pub(super) fn begun(self, now: Now, signalled: bool, recorded: Option<Now>) -> NodePhase {
        match (signalled, recorded) {
            (false, None) => NodePhase::Still,
            (true, None) => NodePhase::Held { since: self.since().unwrap_or(now) },
            (false, Some(_)) => NodePhase::Restoring(NodeHistory::new(now, None)),
            (true, Some(since)) => NodePhase::Draining(NodeHistory::new(since, None)),
        }
    }
}
