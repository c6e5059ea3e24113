//! The phase of one node, and what its signals make of it (docs/design/nodes.md, N1, N4, N5).

use std::collections::BTreeSet;

use model::ids::LbName;
use model::machine::Now;

#[derive(Debug, Default)]
pub(super) enum Phase {
    /// Nothing of it is Down by us.
    #[default]
    Still,
    /// A signal stands since then; its turn has not come yet (N5).
    Held { since: Now },
    /// Its turn has come; its record is not confirmed yet (N4).
    Recording { since: Now },
    /// It is in the set.
    Draining(NodeHistory),
    /// What is Down of it by us is taken back.
    Restoring(NodeHistory),
    /// Its object is gone. What is Down of it stays as long as the entries do, unless another node has its address.
    Gone(NodeHistory),
}

/// How far a node is of which something is, or may be, Down by us: it has a record.
#[derive(Clone, Debug)]
pub(super) struct NodeHistory {
    /// Since when what is wanted for it is wanted.
    pub since: Now,
    /// When it entered the set; `None`: in an earlier term, for its record was read at the beginning of this one.
    pub entered: Option<Now>,
    pub done: Done,
}

#[derive(Clone, Debug)]
pub(super) enum Done {
    /// Pools lack something for it, or may.
    Waits,
    /// None does. Load balancers are left of which no read that began since then was seen.
    /// What a PUT has made of the load balancer that went by a set before this one does not count.
    Looks { since: Now, generation: u64, left: BTreeSet<LbName> },
    /// Each was seen, and agrees.
    Yes,
}

/// What follows from another phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Follows {
    Nothing,
    /// Another thing is wanted for the node: work on it begins again.
    Turned,
    /// Its record is not needed: nothing was Down by it.
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

    /// Since when what is wanted for the node is wanted.
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

    /// Whether it is there, and what is Down of it by us is taken back.
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

    /// Whether it is being restored, and is not yet wherever that is known to be needed.
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

    /// Whether no PUT of ours can have set the node Down in a pool to which one was last sent at that moment: none was
    /// since the node has entered the set, in this term (N4).
    pub(super) fn precedes(&self, sent: Option<Now>) -> bool {
        match self {
            Phase::Recording { .. } => true,
            Phase::Draining(course) | Phase::Restoring(course) | Phase::Gone(course) => {
                course.entered.is_some_and(|entered| sent.is_none_or(|sent| sent < entered))
            }
            Phase::Still | Phase::Held { .. } => false,
        }
    }

    /// What it becomes where a signal stands for the node, which is there, or none does.
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

    /// What it becomes at the beginning of a term, of a node that is there: what was done in another term is to be seen
    /// again, and what is noted of it counts, not what this process remembers (N4).
    pub(super) fn begun(self, now: Now, signalled: bool, recorded: Option<Now>) -> Phase {
        match (signalled, recorded) {
            (false, None) => Phase::Still,
            (true, None) => Phase::Held { since: self.since().unwrap_or(now) },
            (false, Some(_)) => Phase::Restoring(NodeHistory::new(now, None)),
            (true, Some(since)) => Phase::Draining(NodeHistory::new(since, None)),
        }
    }
}
