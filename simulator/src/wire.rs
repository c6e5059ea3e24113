//! ARM's wire, for tests: a journal of the requests with their fates, and a hook that sees each request before the
//! model does. Both are off until they are enabled, and the server around them is the same.

use std::sync::Arc;

use serde_json::Value;
use simulator_models::arm::{Reply, Request};
use tokio::sync::{oneshot, watch};

use crate::azure::{Azure, pool_of};
use crate::convergence::PoolName;
use crate::owner::Owner;

/// The requests so far in the order of their arrival, from [`Wire::record`] on.
pub type Journal = watch::Receiver<Vec<Arc<Exchange>>>;

type Hook = Box<dyn FnMut(&mut Azure, &Request, u64) -> Fate + Send>;

/// A request and what became of it.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The request as it came.
    pub request: Request,
    /// Time at which it arrived, in microseconds of the owner's clock.
    pub arrived_us: u64,
    /// When its answer was due, or its connection was to be cut; `None` while that is held back. What is held back when
    /// its client gives up stays so.
    pub ended_us: Option<u64>,
    /// The status of its answer; `None` when the connection is cut instead.
    pub status: Option<u16>,
}

impl Exchange {
    /// Returns the value of a header of the request; names compare without case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.request.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the pool that the request names; `None` when it is about something else.
    #[must_use]
    pub fn pool(&self) -> Option<PoolName> {
        pool_of(&self.request.path_and_query)
    }

    /// Returns the addresses that the body puts into a pool, as they are written; `None` when it has no array of them.
    /// An entry without an address is left out.
    #[must_use]
    pub fn addresses(&self) -> Option<Vec<String>> {
        let body: Value = serde_json::from_slice(&self.request.body).ok()?;
        let entries = body.pointer("/properties/loadBalancerBackendAddresses")?.as_array()?;
        let ips = entries.iter().filter_map(|entry| entry.pointer("/properties/ipAddress")?.as_str());
        Some(ips.map(str::to_owned).collect())
    }
}

/// Fate of a request, as a hook decides it.
#[derive(Debug)]
pub enum Fate {
    /// The model answers it.
    Answered,
    /// The model answers it, and the answer is held back until the other end sends or is dropped. The model knows nothing
    /// of that: for its own sums the answer was given when it was due.
    Held(oneshot::Receiver<()>),
    /// The model carries it out; its connection is cut when its answer is due.
    Lost,
    /// The model never sees it; its connection is cut at once.
    Cut,
}

/// The journal and the hook of one listener.
#[derive(Default)]
pub struct Wire {
    journal: Option<watch::Sender<Vec<Arc<Exchange>>>>,
    hook: Option<Hook>,
}

impl Wire {
    /// Keeps every request from now on, with its body; a later caller gets the same journal.
    pub fn record(&mut self) -> Journal {
        self.journal.get_or_insert_default().subscribe()
    }

    /// Lets a hook decide about every request from now on, in place of the one before. It gets Azure, to act on it
    /// before the request does, the request, and the time.
    pub fn intercept(&mut self, hook: impl FnMut(&mut Azure, &Request, u64) -> Fate + Send + 'static) {
        self.hook = Some(Box::new(hook));
    }

    /// Appends a request to the journal; returns its index, if there is a journal.
    fn append(&self, exchange: Exchange) -> Option<usize> {
        let journal = self.journal.as_ref()?;
        let index = journal.borrow().len();
        journal.send_modify(|exchanges| exchanges.push(Arc::new(exchange)));
        Some(index)
    }

    /// Records that a held response was sent.
    fn ended(&self, index: usize, now_us: u64) {
        let Some(journal) = &self.journal else { return };
        journal.send_modify(|exchanges| {
            if let Some(exchange) = exchanges.get_mut(index) {
                Arc::make_mut(exchange).ended_us = Some(now_us);
            }
        });
    }
}

/// Answer to a request.
pub(crate) struct Verdict {
    /// The reply to the client.
    pub(crate) reply: Reply,
    /// Time at which the request arrived.
    pub(crate) arrived_us: u64,
    /// The hold on that reply.
    pub(crate) held: Option<Held>,
}

/// A hold on an answer.
pub(crate) struct Held {
    release: oneshot::Receiver<()>,
    index: Option<usize>,
}

impl Held {
    /// Waits until the answer may go, and notes that it goes.
    pub(crate) async fn over(self, azure: &Owner<Azure>) {
        // The holder releases it also by being dropped.
        drop(self.release.await);
        if let Some(index) = self.index {
            azure.ask(move |azure, now_us| azure.wire.ended(index, now_us)).await;
        }
    }
}

impl Azure {
    /// Takes a request from the wire: the hook decides, the model answers, and the journal keeps it.
    pub(crate) fn receive(&mut self, request: Request, now_us: u64) -> Verdict {
        let (reply, release) = match self.fate(&request, now_us) {
            Fate::Answered => (self.handle(&request, now_us), None),
            Fate::Held(release) => (self.handle(&request, now_us), Some(release)),
            Fate::Lost => (lost(self.handle(&request, now_us)), None),
            Fate::Cut => (Reply::Refused, None),
        };
        let (status, latency_us) = match &reply {
            Reply::Answer(response) => (Some(response.status), response.latency_us),
            Reply::Lost { latency_us } => (None, *latency_us),
            Reply::Refused => (None, 0),
        };
        let ended_us = release.is_none().then(|| now_us.saturating_add(latency_us));
        let index = self.wire.append(Exchange { request, arrived_us: now_us, ended_us, status });
        Verdict { reply, arrived_us: now_us, held: release.map(|release| Held { release, index }) }
    }

    fn fate(&mut self, request: &Request, now_us: u64) -> Fate {
        let Some(mut hook) = self.wire.hook.take() else { return Fate::Answered };
        let fate = hook(self, request, now_us);
        // It may have put another one into its place.
        self.wire.hook.get_or_insert(hook);
        fate
    }
}

fn lost(reply: Reply) -> Reply {
    match reply {
        Reply::Answer(response) => Reply::Lost { latency_us: response.latency_us },
        Reply::Lost { .. } | Reply::Refused => reply,
    }
}
