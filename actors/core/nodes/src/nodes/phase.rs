//! The phase of one node, and its changes (docs/design/nodes.md, N1, N4, N5).

use std::collections::BTreeSet;

use model::ids::LbName;
use model::machine::Now;

#[derive(Debug, Default)]
pub(super) enum Phase {
    /// Nothing of it is Down by us.
    #[default]
    Still,
    /// Has a signal since this time, and waits for admission (N5).
    Held { since: Now },
    /// Admitted. Its record is not confirmed yet (N4).
    Recording { since: Now },
    /// In the draining set.
    Draining(NodeHistory),
    /// Our Downs of it are being restored.
    Restoring(NodeHistory),
    /// Deleted. Its entries stay Down as long as they exist, unless another node has its address.
    Gone(NodeHistory),
}

/// The progress of a node with a record: something of it is, or may be, Down by us.
#[derive(Clone, Debug)]
pub(super) struct NodeHistory {
    /// Time since which its target is unchanged.
    pub since: Now,
    /// Time at which it entered the set. `None`: in an earlier term, because its record was read at the start of this
    /// one.
    pub entered: Option<Now>,
    pub done: Done,
}

#[derive(Clone, Debug)]
pub(super) enum Done {
    /// Pools lack something for it, or may.
    Waits,
    /// No pool lacks anything. Each load balancer in `left` still needs a read that began later. A read does not
    /// count if a PUT of an older set than `generation` may have changed the load balancer since.
    Looks { since: Now, generation: u64, left: BTreeSet<LbName> },
    /// Every load balancer was read, and agrees.
    Yes,
}

/// The effect of a change of phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Follows {
    Nothing,
    /// The target of the node has changed, so that work on it begins again.
    Turned,
    /// The record of the node is not needed: nothing was Down by us.
    Dropped,
}

impl NodeHistory {
    pub(super) fn new(since: Now, entered: Option<Now>) -> NodeHistory {
        NodeHistory { since, entered, done: Done::Waits }
    }

    pub(super) fn is_done(&self) -> bool {
        match self.done {
            Done::Yes => true,
            Done::Waits | Done::Looks { .. } => false,
        }
    }
}

impl Phase {
    pub(super) fn course(&self) -> Option<&NodeHistory> {
        match self {
            Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course) => Some(course),
            Phase::Still | Phase::Held { .. } | Phase::Recording { .. } => None,
        }
    }

    pub(super) fn course_mut(&mut self) -> Option<&mut NodeHistory> {
        match self {
            Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course) => Some(course),
            Phase::Still | Phase::Held { .. } | Phase::Recording { .. } => None,
        }
    }

    /// Time since which the target of the node is unchanged.
    pub(super) fn since(&self) -> Option<Now> {
        match self {
            Phase::Still => None,
            Phase::Held { since } | Phase::Recording { since } => Some(*since),
            Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course) => Some(course.since),
        }
    }

    pub(super) fn is_still(&self) -> bool {
        match self {
            Phase::Still => true,
            Phase::Held { .. }
            | Phase::Recording { .. }
            | Phase::Draining(_)
            | Phase::Restoring(_)
            | Phase::Gone(_) => false,
        }
    }

    pub(super) fn is_recording(&self) -> bool {
        match self {
            Phase::Recording { .. } => true,
            Phase::Still | Phase::Held { .. } | Phase::Draining(_) | Phase::Restoring(_) | Phase::Gone(_) => {
                false
            }
        }
    }

    pub(super) fn drains(&self) -> bool {
        match self {
            Phase::Draining(_) => true,
            Phase::Still
            | Phase::Held { .. }
            | Phase::Recording { .. }
            | Phase::Restoring(_)
            | Phase::Gone(_) => false,
        }
    }

    /// Whether it exists and is being restored.
    pub(super) fn restores(&self) -> bool {
        match self {
            Phase::Restoring(_) => true,
            Phase::Still
            | Phase::Held { .. }
            | Phase::Recording { .. }
            | Phase::Draining(_)
            | Phase::Gone(_) => false,
        }
    }

    /// Whether it is being restored, and a pool still lacks that.
    pub(super) fn is_down_yet(&self) -> bool {
        match self {
            Phase::Restoring(NodeHistory { done: Done::Waits, .. }) => true,
            Phase::Restoring(NodeHistory { done: Done::Looks { .. } | Done::Yes, .. })
            | Phase::Still
            | Phase::Held { .. }
            | Phase::Recording { .. }
            | Phase::Draining(_)
            | Phase::Gone(_) => false,
        }
    }

    pub(super) fn is_gone(&self) -> bool {
        match self {
            Phase::Gone(_) => true,
            Phase::Still
            | Phase::Held { .. }
            | Phase::Recording { .. }
            | Phase::Draining(_)
            | Phase::Restoring(_) => false,
        }
    }

    /// Whether a last PUT at `sent` cannot have set the node Down in its pool, because it precedes the node's entry
    /// into the set in this term (N4).
    pub(super) fn precedes(&self, sent: Option<Now>) -> bool {
        match self {
            Phase::Recording { .. } => true,
            Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course) => {
                course.entered.is_some_and(|entered| sent.is_none_or(|sent| sent < entered))
            }
            Phase::Still | Phase::Held { .. } => false,
        }
    }

    /// The next phase of an existing node with or without a signal.
    pub(super) fn signalled(self, now: Now, signalled: bool) -> (Phase, Follows) {
        match (self, signalled) {
            (Phase::Still | Phase::Held { .. }, false) => (Phase::Still, Follows::Nothing),
            (Phase::Still, true) => (Phase::Held { since: now }, Follows::Nothing),
            (Phase::Recording { .. }, false) => (Phase::Still, Follows::Dropped),
            (phase @ (Phase::Held { .. } | Phase::Recording { .. } | Phase::Draining(_)), true)
            | (phase @ Phase::Restoring(_), false) => (phase, Follows::Nothing),
            (Phase::Restoring(course) | Phase::Gone(course), true) => {
                (Phase::Draining(NodeHistory::new(now, course.entered)), Follows::Turned)
            }
            (Phase::Draining(course) | Phase::Gone(course), false) => {
                (Phase::Restoring(NodeHistory::new(now, course.entered)), Follows::Turned)
            }
        }
    }

    /// The phase of an existing node at the start of a term. Earlier work must be verified again, and the record
    /// counts, not the memory of this process (N4).
    pub(super) fn begun(self, now: Now, signalled: bool, recorded: Option<Now>) -> Phase {
        match (signalled, recorded) {
            (false, None) => Phase::Still,
            (true, None) => Phase::Held { since: self.since().unwrap_or(now) },
            (false, Some(_)) => Phase::Restoring(NodeHistory::new(now, None)),
            (true, Some(since)) => Phase::Draining(NodeHistory::new(since, None)),
        }
    }
}
