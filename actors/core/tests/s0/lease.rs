//! The fixture's API server for the Lease that is shared with the cloud-controller-manager: S0's `azureResourceLocker`.

use std::sync::Arc;
use std::time::Duration;

use model::arm::Document;
use model::ids::CallId;
use model::lease::{GateTimes, LeaseAnswer, LeaseEdit, LeaseFacts, LeaseName, LeaseRequest};
use model::machine::Now;
use model::object::{RequestFailure, ResourceVersion};
use pool_core::route::Delivery;

use crate::fixture::Fixture;

/// Duration in the Lease while it has no holder.
const RESTORED: Duration = Duration::from_secs(900);

/// Reasons why the writer cannot acquire the Lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Locked {
    /// The cloud-controller-manager holds it.
    Held,
    /// The API server refuses every request about it.
    Failing,
}

/// The Lease.
pub(super) struct SharedLease {
    holder: Option<Arc<str>>,
    duration: Duration,
    renewed: u64,
    version: u64,
    is_failing: bool,
    /// Watches that wait for the next state.
    watches: Vec<CallId>,
}

impl Default for SharedLease {
    fn default() -> SharedLease {
        let (watches, is_failing) = Default::default();
        SharedLease { holder: None, duration: RESTORED, renewed: 0, version: 1, is_failing, watches }
    }
}

impl SharedLease {
    fn facts(&self, now: u64) -> LeaseAnswer {
        LeaseAnswer::Seen(Arc::new(LeaseFacts {
            lease: LeaseName::Shared,
            holder: self.holder.clone(),
            duration: Some(self.duration),
            renewed_ago: Some(Duration::from_micros(now - self.renewed)),
            transitions: 0,
            version: ResourceVersion(self.version.to_string().into()),
            gates: GateTimes::default(),
            out_of_sync: Default::default(),
            document: Document::new(()),
        }))
    }

    fn write(&mut self, now: u64, holder: Option<Arc<str>>, duration: Duration) {
        (self.holder, self.duration, self.renewed) = (holder, duration, now);
        self.version += 1;
    }
}

impl Fixture {
    /// Prevents the writer from acquiring the shared Lease from now on.
    pub fn block_shared_lease(&mut self, locked: Locked) {
        match locked {
            Locked::Held => self.hold(Some("cloud-controller-manager")),
            Locked::Failing => self.lease.is_failing = true,
        }
    }

    /// Allows the writer to acquire the shared Lease again.
    pub fn unlock(&mut self) {
        self.lease.is_failing = false;
        self.hold(None);
    }

    fn hold(&mut self, holder: Option<&str>) {
        self.lease.write(self.now, holder.map(Arc::from), RESTORED);
        self.answer_watches();
    }

    fn answer_watches(&mut self) {
        for call in std::mem::take(&mut self.lease.watches) {
            let answer = self.lease.facts(self.now);
            self.push(self.now, Delivery::Writer(writer::In::Lease(call, answer)));
        }
    }

    /// Handles a request as the kubernetes port does: a request about the Lease is answered immediately, a watch
    /// after the next change.
    pub(super) fn lease(&mut self, call: CallId, request: &LeaseRequest) {
        let answer = |at: u64, answer: LeaseAnswer| (at, Delivery::Writer(writer::In::Lease(call, answer)));
        let replied = match request {
            _ if self.lease.is_failing => {
                let failure = RequestFailure::Other("HTTP 500".into());
                Some(answer(self.now, LeaseAnswer::Failed(failure)))
            }
            LeaseRequest::Get => Some(answer(self.now, self.lease.facts(self.now))),
            LeaseRequest::Create(_) => Some(answer(self.now, LeaseAnswer::Conflict)),
            LeaseRequest::Replace(known, LeaseEdit { holder, duration, .. }) => {
                let is_newest = *known.version.0 == *self.lease.version.to_string();
                if is_newest {
                    self.lease.write(self.now, holder.clone(), *duration);
                    self.answer_watches();
                }
                let current = if is_newest { self.lease.facts(self.now) } else { LeaseAnswer::Conflict };
                Some(answer(self.now, current))
            }
            LeaseRequest::Watch(version, within) => {
                if *version.0 == *self.lease.version.to_string() {
                    self.lease.watches.push(call);
                    let end = Now::from_micros(self.now).plus(*within).as_micros();
                    Some(answer(end, LeaseAnswer::Unchanged))
                } else {
                    Some(answer(self.now, self.lease.facts(self.now)))
                }
            }
        };
        if let Some((at, delivery)) = replied {
            self.push(at, delivery);
        }
    }
}
