//! Requests about the two Leases (W7, W8): each is sent immediately, takes a bounded time, and has one answer. The
//! machines interpret the state of a Lease.
//!
//! Both Leases have the same time limits:
//! - [`REQUEST_TIMEOUT`], 5 s, ends a read or a write, from its sending to the last byte of its answer, and the wait
//!   for the start of a watch. W8's 45/30/5 and W7's 60 s less 25 s leave room for several of these.
//! - [`model::object::GIVE_UP_AFTER`], 6 s, is the time after which a machine asks again if this port has not
//!   answered. It is longer, so that no machine gives up a request whose answer is still to come.
//! - [`model::lease::WATCH_MARGIN`], 10 s, is the same for a watch, in addition to its requested duration. A watch
//!   ends at most 8 s after that duration: 5 s until its answer starts, up to 1 s of rounding to whole seconds, and 2
//!   s of grace for a server that does not end it.

mod document;
mod log;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use kube::Client;
use model::lease::{LeaseAnswer, LeaseFacts, LeaseName, LeaseRequest};
use model::object::{REQUEST_TIMEOUT, RequestFailure, ResourceVersion};
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use super::object_api::{Kind, NamespacedName, ObjectApi, ObjectResponse, other};
use super::sanitize::chain;
use crate::azure::Effects;
use crate::clock::Clock;
use document::LeaseDocument;
pub(super) use log::{LeaseLog, LeaseRequestKind};

/// Time that a watch may last longer than requested.
const WATCH_GRACE: Duration = Duration::from_secs(2);
/// Time that a watch waits for the known state after it has started with an older one: the server's cache may lag
/// behind.
const CACHE_LAG: Duration = Duration::from_secs(2);
/// A watch that breaks after this time counts as closed: connections are interrupted from time to time.
const ROUTINE_CLOSE_AFTER: Duration = Duration::from_secs(10);
/// Maximum length of a line of a watch, in bytes.
const MAX_LINE: usize = 1 << 20;

/// Namespaces and names of both Leases.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaseNames {
    /// Our own (W8).
    pub own: NamespacedName,
    /// The one that the cloud-controller-manager takes too (W7).
    pub shared: NamespacedName,
}

/// Sends requests about one Lease.
#[derive(Clone)]
pub(super) struct LeaseClient {
    pub(super) api: ObjectApi,
    pub(super) clock: Clock,
    pub(super) lease: LeaseName,
}

/// Sends one request about a Lease, for a command; every failure is an answer too.
pub async fn send_lease_request(
    client: Client,
    name: NamespacedName,
    clock: Clock,
    lease: LeaseName,
    request: LeaseRequest,
) -> LeaseAnswer {
    let api = ObjectApi { client, effects: Effects::Carried, kind: Kind::Lease, name };
    LeaseClient { api, clock, lease }.send(request).await
}

impl LeaseClient {
    /// Sends one request; every failure is an answer too.
    pub(super) async fn send(&self, request: LeaseRequest) -> LeaseAnswer {
        self.try_send(request).await.unwrap_or_else(LeaseAnswer::Failed)
    }

    async fn try_send(&self, request: LeaseRequest) -> Result<LeaseAnswer, RequestFailure> {
        let response = match request {
            LeaseRequest::Get => self.api.read().await,
            LeaseRequest::Create(edit) => {
                let new = LeaseDocument::new(&self.api.name);
                self.api.create(new.edited(&edit, self.clock)).await
            }
            LeaseRequest::Replace(current, edit) => {
                let document = current.document.get::<LeaseDocument>();
                let document = document.ok_or_else(|| self.api.foreign())?;
                self.api.replace(document.edited(&edit, self.clock)).await
            }
            LeaseRequest::Watch(from, span) => return self.watch(&from, span).await,
        };
        match response? {
            ObjectResponse::Object(value) => self.read(value).map(LeaseAnswer::Seen),
            ObjectResponse::Absent => Ok(LeaseAnswer::Absent),
            ObjectResponse::Conflict => Ok(LeaseAnswer::Conflict),
        }
    }

    fn read(&self, value: Value) -> Result<Arc<LeaseFacts>, RequestFailure> {
        let facts = document::facts(self.lease, value, self.clock);
        facts.map(Arc::new).map_err(|error| self.api.unusable(&error.to_string()))
    }

    /// Waits for the first state that is newer than a version.
    ///
    /// The watch starts with the current state, whatever its version. The API server keeps only a few minutes of
    /// changes of all Leases. It would refuse a watch from the version of a Lease that was not written recently.
    async fn watch(&self, from: &ResourceVersion, span: Duration) -> Result<LeaseAnswer, RequestFailure> {
        // 0 would leave the duration to the server.
        let seconds = u64::try_from(span.as_millis().div_ceil(1_000).max(1)).unwrap_or(u64::MAX);
        let body = self.api.watch(seconds).await?.into_data_stream();
        let bytes = StreamReader::new(body.map_err(std::io::Error::other));
        let within = Duration::from_secs(seconds).saturating_add(WATCH_GRACE);
        let result = tokio::time::timeout(within, self.first_change(from, bytes)).await;
        result.unwrap_or_else(|_| Err(other("the watch did not end in time")))
    }

    /// Returns the first state that differs from the known one.
    async fn first_change(
        &self,
        from: &ResourceVersion,
        bytes: impl AsyncRead + Unpin,
    ) -> Result<LeaseAnswer, RequestFailure> {
        let mut lines = FramedRead::new(bytes, LinesCodec::new_with_max_length(MAX_LINE));
        let (began, mut state) = (Instant::now(), WatchState::Nothing);
        loop {
            let line = match &state {
                WatchState::Nothing => tokio::time::timeout(REQUEST_TIMEOUT, lines.next()).await,
                WatchState::Older(_) => tokio::time::timeout(CACHE_LAG, lines.next()).await,
                WatchState::Known => Ok(lines.next().await),
            };
            let line = match (line, state) {
                // The next watch starts with the current state, so nothing is lost with this connection.
                (Ok(Some(Err(_))), WatchState::Known) if began.elapsed() >= ROUTINE_CLOSE_AFTER => {
                    return Ok(LeaseAnswer::Unchanged);
                }
                (Ok(Some(line)), before) => {
                    state = before;
                    line.map_err(|error| other(&chain(&error)))?
                }
                // No newer state follows, so the caller must read the Lease.
                (Err(_) | Ok(None), WatchState::Older(facts)) => return Ok(LeaseAnswer::Seen(facts)),
                // The Lease may have been deleted before the watch began, which no event reports.
                (Err(_), _) => return Err(other("the watch has not begun with the Lease")),
                (Ok(None), WatchState::Known) => return Ok(LeaseAnswer::Unchanged),
                (Ok(None), WatchState::Nothing) => {
                    return Err(other("the watch ended without a line about the Lease"));
                }
            };
            if line.trim().is_empty() {
                continue;
            }
            let mut event: Value = serde_json::from_str(&line).map_err(|error| other(&error.to_string()))?;
            let object = event.get_mut("object").map(Value::take).unwrap_or_default();
            match event["type"].as_str().unwrap_or_default() {
                "ADDED" | "MODIFIED" => {
                    let facts = self.read(object)?;
                    if facts.version == *from {
                        state = WatchState::Known;
                    } else if facts.version.is_older_than(from) {
                        state = WatchState::Older(facts);
                    } else {
                        return Ok(LeaseAnswer::Seen(facts));
                    }
                }
                "DELETED" => return Ok(LeaseAnswer::Absent),
                "BOOKMARK" => {}
                _ => {
                    let message = object["message"].as_str().unwrap_or("the watch ended with an error");
                    return Err(other(message));
                }
            }
        }
    }
}

/// State that a watch has shown so far.
enum WatchState {
    /// No state.
    Nothing,
    /// An older state than the known one.
    Older(Arc<LeaseFacts>),
    /// The known state.
    Known,
}

#[cfg(test)]
mod tests;
