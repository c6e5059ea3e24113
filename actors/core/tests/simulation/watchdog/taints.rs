//! The owner of an eviction taint that no known patch of ours has added (N1): the knowledge of a process by its record
//! and by the answers to its patches.

use std::collections::{BTreeMap, BTreeSet};

use model::ids::CallId;
use model::object::{RequestFailure, TaintAnswer, TaintEdit};
use pool_core::route::{Delivery, Output};

use super::Watchdog;

#[path = "taints/tests.rs"]
mod tests;

/// Time within which the answer to a patch certainly reaches its machine before the machine abandons the patch.
const ANSWER_TIMEOUT_US: u64 = 5_000_000;

/// Patches of one process that add our taint.
#[derive(Default)]
pub(super) struct TaintPatches {
    /// Without an answer so far: the UID of the node, and the time of the request.
    open: BTreeMap<CallId, (String, u64)>,
    /// Nodes with a patch that may have taken effect, with any answer.
    uncertain: BTreeSet<String>,
}

impl TaintPatches {
    /// Records a step of the AdminState machine.
    pub(super) fn step(&mut self, now: u64, input: Option<&Delivery>, outputs: &[Output]) {
        if let Some(Delivery::AdminState(nodes::In::Tainted(call, answer))) = input
            && let Some((uid, at)) = self.open.remove(call)
            && (may_have_added(answer) || now > at + ANSWER_TIMEOUT_US)
        {
            self.uncertain.insert(uid);
        }
        for output in outputs {
            if let Output::AdminState(nodes::Out::Taint(call, patch)) = output
                && adds(patch.edit)
            {
                self.open.insert(*call, (patch.uid.to_string(), now));
            }
        }
    }

    /// Returns whether the process may believe that one of its patches has added the taint to this node.
    fn may_have_added_to(&self, uid: &str) -> bool {
        self.uncertain.contains(uid) || self.open.values().any(|(of, _)| of == uid)
    }
}

fn adds(edit: TaintEdit) -> bool {
    match edit {
        TaintEdit::AddTo | TaintEdit::AddFirst => true,
        TaintEdit::Remove { .. } => false,
    }
}

fn may_have_added(answer: &TaintAnswer) -> bool {
    match answer {
        TaintAnswer::Done | TaintAnswer::Failed(RequestFailure::Other(_)) => true,
        TaintAnswer::Overtaken
        | TaintAnswer::Gone
        | TaintAnswer::Withheld
        | TaintAnswer::Failed(RequestFailure::Denied(_)) => false,
    }
}

impl Watchdog {
    /// Returns whether a taint that another client has set may count as ours for a process (N1). A record must have
    /// marked it as ours since the taint appeared. The process must also be unable to know that none of our patches
    /// has added it: a process that ends between record and patch leaves only the record to its successor.
    pub(super) fn may_count_as_ours(&self, now: u64, process: usize, leads: bool, uid: &str) -> bool {
        let Some(node) = self.nodes.all.get(uid) else { return false };
        let Some((recorder, since)) = self.records.recorder_of_taint(now, uid, node.marked_since()) else {
            return false;
        };
        let within = &self.within[process];
        let goes_on = leads && self.tenure.led_since() < since && within.sees_all_since() < since;
        let knows = goes_on && recorder == Some(process) && !within.patches.may_have_added_to(uid);
        !knows
    }
}
