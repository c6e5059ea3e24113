//! What a term of leadership asks of a watcher: that a list which began after its word is taken in before the term
//! opens (W8). Whether a list is taken in is for the Informer to say; every later list serves the term as well, so a
//! list that breaks off or is refused costs the term no more than time.

use super::{Next, Out, Phase, Seen, Watcher};
use crate::ids::Epoch;
use crate::machine::Now;
use crate::sample::{RelistReason, Sample};

impl Watcher {
    /// A newer term takes the place of an older one. A wait is not cut short: it is the server's wish, or spares it.
    pub(super) fn on_confirm(&mut self, now: Now, epoch: Epoch, anew: bool, out: &mut Vec<Out>) {
        if self.term.is_some_and(|term| epoch <= term) {
            return;
        }
        self.term = Some(epoch);
        if !anew {
            out.push(Out::Seen(self.kind, Seen::AnyList(epoch)));
            return;
        }
        let reason = RelistReason::NewTerm;
        match &mut self.phase {
            // A list comes anyway, and begins after this word.
            Phase::Idle | Phase::Waiting { next: Next::List, .. } => {}
            Phase::Waiting { next, .. } => {
                *next = Next::List;
                out.push(Out::Sample(Sample::Relist { kind: self.kind, reason }));
            }
            Phase::Asked { .. } | Phase::Following { .. } => self.relist(now, reason, out),
        }
    }
}
