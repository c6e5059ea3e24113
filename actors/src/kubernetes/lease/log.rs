//! Log lines about a Lease: its holder, and requests that fail. Each is logged once, however often the request is
//! repeated.

use std::sync::Arc;

use model::lease::{LeaseAnswer, LeaseAsk, LeaseEdit, LeaseName};
use model::object::RequestFailure;

use super::Place;

/// A request, in the detail that matters to operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::kubernetes) enum LeaseRequestKind {
    /// Read the state.
    Read,
    /// Take the Lease for this holder.
    Acquire(Arc<str>),
    /// Renew it.
    Renew,
    /// Release it.
    Release,
    /// Wait for a change.
    Watch,
}

impl LeaseRequestKind {
    /// The kind of request, as operators read it.
    fn kind(&self) -> &'static str {
        match self {
            LeaseRequestKind::Read => "read",
            LeaseRequestKind::Acquire(_) | LeaseRequestKind::Renew | LeaseRequestKind::Release => "write",
            LeaseRequestKind::Watch => "watch",
        }
    }
}

impl From<&LeaseAsk> for LeaseRequestKind {
    fn from(ask: &LeaseAsk) -> LeaseRequestKind {
        let write = |edit: &LeaseEdit| match &edit.holder {
            None => LeaseRequestKind::Release,
            Some(holder) if edit.acquired => LeaseRequestKind::Acquire(Arc::clone(holder)),
            Some(_) => LeaseRequestKind::Renew,
        };
        match ask {
            LeaseAsk::Get => LeaseRequestKind::Read,
            LeaseAsk::Create(edit) | LeaseAsk::Replace(_, edit) => write(edit),
            LeaseAsk::Await(..) => LeaseRequestKind::Watch,
        }
    }
}

/// What was logged about one Lease so far.
#[derive(Default)]
pub(in crate::kubernetes) struct LeaseLog {
    /// The holder identity with which this process has it.
    ours: Option<Arc<str>>,
    troubles: Troubles,
}

/// What blocks each kind of request: success of one does not clear the others.
#[derive(Default)]
struct Troubles {
    reads: Trouble,
    writes: Trouble,
    watches: Trouble,
    /// Failed watches in a row.
    failed_watches: u32,
}

/// What blocks a kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Trouble {
    #[default]
    Nothing,
    Denied,
    Failing,
}

impl LeaseLog {
    /// Records a request. A Lease that is being released does not count as lost, whichever request shows it first.
    pub(in crate::kubernetes) fn record_request(&mut self, request: &LeaseRequestKind) {
        if *request == LeaseRequestKind::Release {
            self.ours = None;
        }
    }

    /// Records an answer, and logs what is new.
    pub(in crate::kubernetes) fn record_answer(
        &mut self,
        lease: LeaseName,
        place: &Place,
        request: &LeaseRequestKind,
        answer: &LeaseAnswer,
    ) {
        if let Some(change) = self.troubles.change(request, answer) {
            log_change(place, request, &change);
        }
        match answer {
            LeaseAnswer::Seen(facts) => {
                match request {
                    LeaseRequestKind::Acquire(holder) => {
                        self.ours = Some(Arc::clone(holder));
                        match lease {
                            LeaseName::Own => tracing::info!(lease = %place, %holder, "took the Lease"),
                            // Taken and released with every few writes.
                            LeaseName::Shared => tracing::debug!(lease = %place, %holder, "took the Lease"),
                        }
                    }
                    LeaseRequestKind::Release => match lease {
                        LeaseName::Own => tracing::info!(lease = %place, "released the Lease"),
                        LeaseName::Shared => tracing::debug!(lease = %place, "released the Lease"),
                    },
                    LeaseRequestKind::Read | LeaseRequestKind::Renew | LeaseRequestKind::Watch => {
                        self.compare(place, facts.holder.as_deref());
                    }
                }
            }
            LeaseAnswer::Absent => self.compare(place, None),
            LeaseAnswer::Conflict | LeaseAnswer::Unchanged | LeaseAnswer::Failed(_) => {}
        }
    }

    fn compare(&mut self, place: &Place, holder: Option<&str>) {
        if self.ours.is_some() && self.ours.as_deref() != holder {
            self.ours = None;
            let holder = holder.unwrap_or("none");
            tracing::info!(lease = %place, holder, "lost the Lease");
        }
    }
}

/// A change in the state of failing requests.
#[derive(Clone, PartialEq, Eq, Debug)]
enum TroubleChange {
    /// They succeed again.
    Recovered,
    /// They are denied.
    Denied(Arc<str>),
    /// They fail.
    Failing(Arc<str>),
}

impl Troubles {
    fn of(&mut self, request: &LeaseRequestKind) -> &mut Trouble {
        match request {
            LeaseRequestKind::Read => &mut self.reads,
            LeaseRequestKind::Acquire(_) | LeaseRequestKind::Renew | LeaseRequestKind::Release => {
                &mut self.writes
            }
            LeaseRequestKind::Watch => &mut self.watches,
        }
    }

    /// Returns the change that this answer brings, if it was not logged yet.
    fn change(&mut self, request: &LeaseRequestKind, answer: &LeaseAnswer) -> Option<TroubleChange> {
        // A watch may break; the Lease is read then.
        let is_first = *request == LeaseRequestKind::Watch && {
            let failed = matches!(answer, LeaseAnswer::Failed(_));
            self.failed_watches = if failed { self.failed_watches.saturating_add(1) } else { 0 };
            self.failed_watches == 1
        };
        let trouble = self.of(request);
        match answer {
            LeaseAnswer::Seen(_) | LeaseAnswer::Absent | LeaseAnswer::Conflict | LeaseAnswer::Unchanged => {
                (std::mem::take(trouble) != Trouble::Nothing).then_some(TroubleChange::Recovered)
            }
            LeaseAnswer::Failed(RequestFailure::Denied(why)) if *trouble != Trouble::Denied => {
                *trouble = Trouble::Denied;
                Some(TroubleChange::Denied(Arc::clone(why)))
            }
            LeaseAnswer::Failed(RequestFailure::Other(why)) if *trouble == Trouble::Nothing && !is_first => {
                *trouble = Trouble::Failing;
                Some(TroubleChange::Failing(Arc::clone(why)))
            }
            LeaseAnswer::Failed(RequestFailure::Denied(why) | RequestFailure::Other(why)) => {
                tracing::debug!(asked = ?request, %why, "a request about a Lease failed");
                None
            }
        }
    }
}

fn log_change(place: &Place, request: &LeaseRequestKind, change: &TroubleChange) {
    let request = request.kind();
    match change {
        TroubleChange::Recovered => {
            tracing::info!(lease = %place, request, "the Lease can be read and written again")
        }
        TroubleChange::Denied(why) => {
            let remedy = "let the service account get, create, update and watch this Lease; nothing is written \
                          to Azure without it";
            tracing::warn!(lease = %place, request, %why, remedy, "the API server refuses a Lease");
        }
        TroubleChange::Failing(why) => {
            let remedy = "no answer: check that the API server is up and reachable; HTTP 404: check that the namespace of \
                          this Lease exists; else see why; it is tried again";
            tracing::warn!(lease = %place, request, %why, remedy, "a Lease cannot be read or written");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w8_what_is_denied_is_told_once_though_other_requests_succeed() {
        let mut troubles = Troubles::default();
        let why: Arc<str> = Arc::from("HTTP 403");
        let denied = LeaseAnswer::Failed(RequestFailure::Denied(Arc::clone(&why)));
        let failing = LeaseAnswer::Failed(RequestFailure::Other(Arc::clone(&why)));
        for request in [LeaseRequestKind::Watch, LeaseRequestKind::Renew] {
            assert_eq!(troubles.change(&request, &denied), Some(TroubleChange::Denied(Arc::clone(&why))));
            for _ in 0..3 {
                assert_eq!(troubles.change(&LeaseRequestKind::Read, &LeaseAnswer::Absent), None);
                assert_eq!(troubles.change(&request, &denied), None);
            }
        }
        assert_eq!(
            troubles.change(&LeaseRequestKind::Acquire(Arc::from("us")), &LeaseAnswer::Conflict),
            Some(TroubleChange::Recovered)
        );
        assert_eq!(
            troubles.change(&LeaseRequestKind::Release, &failing),
            Some(TroubleChange::Failing(Arc::clone(&why)))
        );
        assert_eq!(troubles.change(&LeaseRequestKind::Renew, &failing), None);
        assert_eq!(
            troubles.change(&LeaseRequestKind::Watch, &LeaseAnswer::Unchanged),
            Some(TroubleChange::Recovered)
        );
        assert_eq!(troubles.change(&LeaseRequestKind::Watch, &failing), None, "a watch may break off");
        assert_eq!(troubles.change(&LeaseRequestKind::Read, &LeaseAnswer::Absent), None);
        assert_eq!(
            troubles.change(&LeaseRequestKind::Watch, &failing),
            Some(TroubleChange::Failing(Arc::clone(&why)))
        );
        assert_eq!(troubles.change(&LeaseRequestKind::Watch, &failing), None, "once");
        assert_eq!(
            troubles.change(&LeaseRequestKind::Watch, &LeaseAnswer::Unchanged),
            Some(TroubleChange::Recovered)
        );
    }
}
