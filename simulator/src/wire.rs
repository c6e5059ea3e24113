//! Recording and interception of requests to ARM, for tests: a journal of the requests with their results, and a hook
//! before the model. Both are off until they are enabled.

use std::sync::Arc;

use serde_json::Value;
use simulator_models::arm::{Reply, Request};
use tokio::sync::{oneshot, watch};

use crate::azure::{Azure, pool_of};
use crate::convergence::PoolName;
use crate::owner::Owner;

/// The requests since recording began, in the order of their arrival.
pub type Journal = watch::Receiver<Vec<Arc<Exchange>>>;

type Hook = Box<dyn FnMut(&mut Azure, &Request, u64) -> Fate + Send>;

/// A request and its result.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// The received request.
    pub request: Request,
    /// Time at which it arrived, in microseconds of the owner's clock.
    pub arrived_us: u64,
    /// Time of the answer or of the abort of the connection; `None` while it is held. It stays `None` if the client
    /// gives up first.
    pub ended_us: Option<u64>,
    /// The status of its answer; `None` if the connection is aborted instead.
    pub status: Option<u16>,
}

impl Exchange {
    /// Returns the value of a header of the request; names compare without case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.request.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the pool of the request; `None` for other resources.
    #[must_use]
    pub fn pool(&self) -> Option<PoolName> {
        pool_of(&self.request.path_and_query)
    }

    /// Returns the addresses in the body of a pool; `None` if it has no array of them. An entry without an address is
    /// omitted.
    #[must_use]
    pub fn addresses(&self) -> Option<Vec<String>> {
        let body: Value = serde_json::from_slice(&self.request.body).ok()?;
        let entries = body.pointer("/properties/loadBalancerBackendAddresses")?.as_array()?;
        let ips = entries.iter().filter_map(|entry| entry.pointer("/properties/ipAddress")?.as_str());
        Some(ips.map(str::to_owned).collect())
    }
}

/// A hook's decision about a request.
#[derive(Debug)]
pub enum Fate {
    /// The model answers it.
    Answered,
    /// The model answers it, and the answer is delayed until the sender sends or is dropped. The model's counters
    /// ignore the delay.
    Held(oneshot::Receiver<()>),
    /// The model applies it; its connection is aborted at the time of the answer.
    Lost,
    /// The model never sees it; its connection is aborted immediately.
    Cut,
}

/// The journal and the hook of one listener.
#[derive(Default)]
pub struct Wire {
    journal: Option<watch::Sender<Vec<Arc<Exchange>>>>,
    hook: Option<Hook>,
}

impl Wire {
    /// Records every request from now on, with its body; a later caller gets the same journal.
    pub fn record(&mut self) -> Journal {
        self.journal.get_or_insert_default().subscribe()
    }

    /// Sets the hook that decides about every request from now on. It gets Azure, which it may change before the
    /// request, the request, and the time.
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
    /// Waits until the answer is released, and records that.
    pub(crate) async fn over(self, azure: &Owner<Azure>) {
        // Dropping the sender also releases it.
        drop(self.release.await);
        if let Some(index) = self.index {
            azure.ask(move |azure, now_us| azure.wire.ended(index, now_us)).await;
        }
    }
}

impl Azure {
    /// Handles a received request: the hook decides, the model answers, and the journal records it.
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
        // The hook may have replaced itself.
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
