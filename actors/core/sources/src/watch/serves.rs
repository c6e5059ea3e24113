//! The reasons for which a watcher needs most recent data. A new term of leadership needs a list that begins after
//! the term (W8). The Directory needs a second read in case of doubt (G1). The Informer decides whether it accepts a
//! list. Every later list serves these reasons too, so a list that breaks off or is refused costs only time.

use super::{AfterWait, Out, Phase, Watcher};
use model::ids::{Epoch, ReadId};
use model::machine::Now;
use model::sample::{Metric, RelistReason};
use model::watch::WatchUpdate;

impl Watcher {
    /// Handles the request of a newer term, which replaces that of an older one.
    pub(super) fn on_confirm(&mut self, now: Now, epoch: Epoch, needs_new_list: bool, out: &mut Vec<Out>) {
        if self.serves.term.is_some_and(|term| epoch <= term) {
            return;
        }
        self.serves.term = Some(epoch);
        if needs_new_list {
            self.request_list(now, RelistReason::NewTerm, out);
        } else {
            out.push(Out::Seen(self.kind, self.read, WatchUpdate::AnyList(epoch)));
        }
    }

    /// Handles a newer read, which replaces an older one.
    pub(super) fn on_reread(&mut self, now: Now, read: ReadId, out: &mut Vec<Out>) {
        if self.serves.read.is_none_or(|known| known < read) {
            self.serves.read = Some(read);
            self.request_list(now, RelistReason::SecondRead, out);
        }
    }

    /// Lists again, but not before the end of a wait: the server has asked for the wait, or the wait spares it.
    fn request_list(&mut self, now: Now, reason: RelistReason, out: &mut Vec<Out>) {
        match &mut self.phase {
            // A list follows in any case, and begins after this request.
            Phase::Idle | Phase::Waiting { next: AfterWait::List, .. } => {}
            Phase::Waiting { next, .. } => {
                *next = AfterWait::List;
                self.set_fresh(now, false, out);
                out.push(Out::Metric(Metric::Relist { kind: self.kind, reason }));
            }
            Phase::Requested { .. } | Phase::Following { .. } => self.relist(now, reason, out),
        }
    }
}
