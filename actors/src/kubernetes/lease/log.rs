//! Log lines about a Lease: its holder, and requests that fail. Each is logged once, however often the request is
//! repeated.

use std::sync::Arc;

use model::lease::{LeaseAnswer, LeaseEdit, LeaseName, LeaseRequest};
use model::object::RequestFailure;

use super::NamespacedName;

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
    /// Returns the kind of request for log lines.
    fn kind(&self) -> &'static str {
        match self {
            LeaseRequestKind::Read => "read",
            LeaseRequestKind::Acquire(_) | LeaseRequestKind::Renew | LeaseRequestKind::Release => "write",
            LeaseRequestKind::Watch => "watch",
        }
    }
}

impl From<&LeaseRequest> for LeaseRequestKind {
    fn from(request: &LeaseRequest) -> LeaseRequestKind {
        let write = |edit: &LeaseEdit| match &edit.holder {
            None => LeaseRequestKind::Release,
            Some(holder) if edit.acquired => LeaseRequestKind::Acquire(Arc::clone(holder)),
            Some(_) => LeaseRequestKind::Renew,
        };
        match request {
            LeaseRequest::Get => LeaseRequestKind::Read,
            LeaseRequest::Create(edit) | LeaseRequest::Replace(_, edit) => write(edit),
            LeaseRequest::Watch(..) => LeaseRequestKind::Watch,
        }
    }
}

/// State of the log lines about one Lease.
#[derive(Default)]
pub(in crate::kubernetes) struct LeaseLog {
    /// Identity with which this process holds the Lease; `None` if it does not hold it.
    held_as: Option<Arc<str>>,
    failures: FailureStates,
}

/// Logged failures of each kind of request: success of one does not clear the others.
#[derive(Default)]
struct FailureStates {
    reads: FailureState,
    writes: FailureState,
    watches: FailureState,
    /// Failed watches in a row.
    failed_watches: u32,
}

/// The logged failure of a kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum FailureState {
    #[default]
    Nothing,
    Denied,
    Failing,
}

impl LeaseLog {
    /// Records a request. A Lease that is being released does not count as lost, whichever request shows it first.
    pub(in crate::kubernetes) fn record_request(&mut self, request: &LeaseRequestKind) {
        if *request == LeaseRequestKind::Release {
            self.held_as = None;
        }
    }

    /// Records an answer, and logs changes.
    pub(in crate::kubernetes) fn record_answer(
        &mut self,
        lease: LeaseName,
        name: &NamespacedName,
        request: &LeaseRequestKind,
        answer: &LeaseAnswer,
    ) {
        if let Some(change) = self.failures.change(request, answer) {
            log_change(name, request, &change);
        }
        match answer {
            LeaseAnswer::Seen(facts) => {
                match request {
                    LeaseRequestKind::Acquire(holder) => {
                        self.held_as = Some(Arc::clone(holder));
                        match lease {
                            LeaseName::Own => tracing::info!(lease = %name, %holder, "took the Lease"),
                            // Taken and released with every few writes.
                            LeaseName::Shared => tracing::debug!(lease = %name, %holder, "took the Lease"),
                        }
                    }
                    LeaseRequestKind::Release => match lease {
                        LeaseName::Own => tracing::info!(lease = %name, "released the Lease"),
                        LeaseName::Shared => tracing::debug!(lease = %name, "released the Lease"),
                    },
                    LeaseRequestKind::Read | LeaseRequestKind::Renew | LeaseRequestKind::Watch => {
                        self.compare(name, facts.holder.as_deref());
                    }
                }
            }
            LeaseAnswer::Absent => self.compare(name, None),
            LeaseAnswer::Conflict | LeaseAnswer::Unchanged | LeaseAnswer::Failed(_) => {}
        }
    }

    fn compare(&mut self, name: &NamespacedName, holder: Option<&str>) {
        if self.held_as.is_some() && self.held_as.as_deref() != holder {
            self.held_as = None;
            let holder = holder.unwrap_or("none");
            tracing::info!(lease = %name, holder, "lost the Lease");
        }
    }
}

/// A change in the state of failing requests.
#[derive(Clone, PartialEq, Eq, Debug)]
enum FailureChange {
    /// The requests succeed again.
    Recovered,
    /// The requests are denied.
    Denied(Arc<str>),
    /// The requests fail.
    Failing(Arc<str>),
}

impl FailureStates {
    fn of(&mut self, request: &LeaseRequestKind) -> &mut FailureState {
        match request {
            LeaseRequestKind::Read => &mut self.reads,
            LeaseRequestKind::Acquire(_) | LeaseRequestKind::Renew | LeaseRequestKind::Release => {
                &mut self.writes
            }
            LeaseRequestKind::Watch => &mut self.watches,
        }
    }

    /// Returns the change that follows from this answer, unless it is logged already.
    fn change(&mut self, request: &LeaseRequestKind, answer: &LeaseAnswer) -> Option<FailureChange> {
        // A watch may break once: the Lease is read then.
        let is_first = *request == LeaseRequestKind::Watch && {
            let failed = matches!(answer, LeaseAnswer::Failed(_));
            self.failed_watches = if failed { self.failed_watches.saturating_add(1) } else { 0 };
            self.failed_watches == 1
        };
        let state = self.of(request);
        match answer {
            LeaseAnswer::Seen(_) | LeaseAnswer::Absent | LeaseAnswer::Conflict | LeaseAnswer::Unchanged => {
                (std::mem::take(state) != FailureState::Nothing).then_some(FailureChange::Recovered)
            }
            LeaseAnswer::Failed(RequestFailure::Denied(reason)) if *state != FailureState::Denied => {
                *state = FailureState::Denied;
                Some(FailureChange::Denied(Arc::clone(reason)))
            }
            LeaseAnswer::Failed(RequestFailure::Other(reason))
                if *state == FailureState::Nothing && !is_first =>
            {
                *state = FailureState::Failing;
                Some(FailureChange::Failing(Arc::clone(reason)))
            }
            LeaseAnswer::Failed(RequestFailure::Denied(reason) | RequestFailure::Other(reason)) => {
                tracing::debug!(?request, %reason, "a request about a Lease failed");
                None
            }
        }
    }
}

fn log_change(name: &NamespacedName, request: &LeaseRequestKind, change: &FailureChange) {
    let request = request.kind();
    match change {
        FailureChange::Recovered => {
            tracing::info!(lease = %name, request, "the Lease can be read and written again")
        }
        FailureChange::Denied(reason) => {
            let remedy = "let the service account get, create, update and watch this Lease; nothing is written \
                          to Azure without it";
            tracing::warn!(lease = %name, request, %reason, remedy, "the API server denies access to a Lease");
        }
        FailureChange::Failing(reason) => {
            let remedy = "no answer: check that the API server is up and reachable; HTTP 404: check that the namespace of \
                          this Lease exists; otherwise see the reason; the request is retried";
            tracing::warn!(lease = %name, request, %reason, remedy, "failed to read or write a Lease");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn w8_a_denial_is_logged_once_even_if_other_requests_succeed() {
        let mut failures = FailureStates::default();
        let reason: Arc<str> = Arc::from("HTTP 403");
        let denied = LeaseAnswer::Failed(RequestFailure::Denied(Arc::clone(&reason)));
        let failing = LeaseAnswer::Failed(RequestFailure::Other(Arc::clone(&reason)));
        for request in [LeaseRequestKind::Watch, LeaseRequestKind::Renew] {
            assert_eq!(failures.change(&request, &denied), Some(FailureChange::Denied(Arc::clone(&reason))));
            for _ in 0..3 {
                assert_eq!(failures.change(&LeaseRequestKind::Read, &LeaseAnswer::Absent), None);
                assert_eq!(failures.change(&request, &denied), None);
            }
        }
        assert_eq!(
            failures.change(&LeaseRequestKind::Acquire(Arc::from("us")), &LeaseAnswer::Conflict),
            Some(FailureChange::Recovered)
        );
        assert_eq!(
            failures.change(&LeaseRequestKind::Release, &failing),
            Some(FailureChange::Failing(Arc::clone(&reason)))
        );
        assert_eq!(failures.change(&LeaseRequestKind::Renew, &failing), None);
        assert_eq!(
            failures.change(&LeaseRequestKind::Watch, &LeaseAnswer::Unchanged),
            Some(FailureChange::Recovered)
        );
        assert_eq!(failures.change(&LeaseRequestKind::Watch, &failing), None, "a watch may break off");
        assert_eq!(failures.change(&LeaseRequestKind::Read, &LeaseAnswer::Absent), None);
        assert_eq!(
            failures.change(&LeaseRequestKind::Watch, &failing),
            Some(FailureChange::Failing(Arc::clone(&reason)))
        );
        assert_eq!(failures.change(&LeaseRequestKind::Watch, &failing), None, "once");
        assert_eq!(
            failures.change(&LeaseRequestKind::Watch, &LeaseAnswer::Unchanged),
            Some(FailureChange::Recovered)
        );
    }
}
