//! Requests about the two Leases (W7, W8): each is sent at once, takes a bounded time, and has one answer. What a
//! state of a Lease means is the machines' to judge.
//!
//! The client speaks HTTP/1.1, so each request that is under way has a connection of its own: a watch that waits
//! delays no renewal.

mod document;
mod log;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use pool_core::lease::{LeaseAnswer, LeaseAsk, LeaseFacts, LeaseFailure, LeaseName};
use pool_core::object::ResourceVersion;
use serde_json::Value;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use super::exchange;
use super::follow::{chain, escaped, status_text};
use crate::azure::Effects;
use crate::clock::Clock;
use document::LeaseDocument;
pub(super) use log::{Asked, Told};

/// How long a read or a write of a Lease may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How much longer than it was asked for a watch may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How long a watch that begins with an older state than is known waits for that one: the server's cache lags behind.
const LAG: Duration = Duration::from_secs(2);
/// The longest line of a watch that is taken in.
const LONGEST_LINE: usize = 1 << 20;

/// Where a Lease is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// Its namespace.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Place {
    fn collection(&self) -> String {
        format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", escaped(&self.namespace))
    }

    fn object(&self) -> String {
        format!("{}/{}", self.collection(), escaped(&self.name))
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Where both are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Places {
    /// Our own (W8).
    pub own: Place,
    /// The one that the cloud-controller-manager takes too (W7).
    pub shared: Place,
}

/// Carries out requests about one Lease.
#[derive(Clone)]
pub(super) struct Requests {
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) effects: Effects,
    pub(super) lease: LeaseName,
    pub(super) place: Place,
}

impl Requests {
    /// Carries out one request; every failure is an answer too.
    pub(super) async fn carry_out(&self, ask: LeaseAsk) -> LeaseAnswer {
        let done = match ask {
            LeaseAsk::Get => self.timed(self.get()).await,
            LeaseAsk::Create(edit) => {
                let document = LeaseDocument::new(&self.place);
                let body = document.edited(&edit, self.clock);
                self.timed(self.write(Method::POST, self.place.collection(), body)).await
            }
            LeaseAsk::Replace(seen, edit) => match seen.document.get::<LeaseDocument>() {
                Some(document) => {
                    let body = document.edited(&edit, self.clock);
                    self.timed(self.write(Method::PUT, self.place.object(), body)).await
                }
                None => Err(other("the document of the Lease was not read by this port")),
            },
            LeaseAsk::Await(from, span) => self.watch(&from, span).await,
        };
        done.unwrap_or_else(LeaseAnswer::Failed)
    }

    async fn timed(
        &self,
        request: impl Future<Output = Result<LeaseAnswer, LeaseFailure>>,
    ) -> Result<LeaseAnswer, LeaseFailure> {
        let answer = tokio::time::timeout(ANSWER_WITHIN, request).await;
        answer.unwrap_or_else(|_| Err(other("the API server did not answer within 10 s")))
    }

    async fn get(&self) -> Result<LeaseAnswer, LeaseFailure> {
        let (status, body) = self.exchange(Method::GET, self.place.object(), Vec::new()).await?;
        match status {
            StatusCode::NOT_FOUND => Ok(LeaseAnswer::Absent),
            _ => self.judge(status, &body),
        }
    }

    async fn write(&self, method: Method, path: String, body: Vec<u8>) -> Result<LeaseAnswer, LeaseFailure> {
        match self.effects {
            Effects::Carried => {}
            // The machines do not ask; this is the last place where it can be made certain (C4).
            Effects::Withheld => return Err(other("a dry run writes no Lease")),
        }
        let creates = method == Method::POST;
        let (status, body) = self.exchange(method, path, body).await?;
        match status {
            StatusCode::CONFLICT => Ok(LeaseAnswer::Conflict),
            // Of a creation it says that there is no such namespace.
            StatusCode::NOT_FOUND if !creates => Ok(LeaseAnswer::Absent),
            _ => self.judge(status, &body),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: String,
        body: Vec<u8>,
    ) -> Result<(StatusCode, Vec<u8>), LeaseFailure> {
        exchange::exchange(&self.client, method, path, body).await.map_err(|why| other(&why))
    }

    async fn send(
        &self,
        method: Method,
        path: String,
        body: Vec<u8>,
    ) -> Result<http::Response<Body>, LeaseFailure> {
        exchange::send(&self.client, method, path, body).await.map_err(|why| other(&why))
    }

    fn judge(&self, status: StatusCode, body: &[u8]) -> Result<LeaseAnswer, LeaseFailure> {
        if status.is_success() {
            let value = serde_json::from_slice(body).map_err(|error| other(&error.to_string()))?;
            return self.read(value).map(LeaseAnswer::Seen);
        }
        let said = status_text(status, body);
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Err(LeaseFailure::Denied(Arc::from(said))),
            _ => Err(other(&said)),
        }
    }

    fn read(&self, value: Value) -> Result<Arc<LeaseFacts>, LeaseFailure> {
        let facts: LeaseFacts = document::facts(self.lease, value, self.clock)
            .map_err(|error| other(&format!("Lease {}: {error}", self.place)))?;
        Ok(Arc::new(facts))
    }

    /// Waits for the first state that is newer than a version.
    ///
    /// The watch begins with the present state, whatever its version: one that began at the version of a Lease which
    /// nobody has written for a while would be refused, since the API server keeps few minutes of all Leases.
    async fn watch(&self, from: &ResourceVersion, span: Duration) -> Result<LeaseAnswer, LeaseFailure> {
        // 0 would leave the time to the server.
        let seconds = span.as_millis().div_ceil(1_000).max(1);
        let path = format!(
            "{}?watch=true&fieldSelector=metadata.name%3D{}&timeoutSeconds={seconds}",
            self.place.collection(),
            escaped(&self.place.name),
        );
        let answer = tokio::time::timeout(ANSWER_WITHIN, self.send(Method::GET, path, Vec::new())).await;
        let answer = answer.map_err(|_| other("the API server did not answer within 10 s"))??;
        let status = answer.status();
        if !status.is_success() {
            let body = tokio::time::timeout(ANSWER_WITHIN, answer.into_body().collect()).await;
            let body = body.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes);
            return self.judge(status, &body.unwrap_or_default());
        }
        let within = Duration::from_secs(u64::try_from(seconds).unwrap_or(u64::MAX)).saturating_add(GRACE);
        let heard = tokio::time::timeout(within, self.first_news(from, answer.into_body())).await;
        heard.unwrap_or_else(|_| Err(other("the watch did not end in time")))
    }

    /// The first event that tells of another state than the known one.
    async fn first_news(&self, from: &ResourceVersion, body: Body) -> Result<LeaseAnswer, LeaseFailure> {
        let bytes = body.into_data_stream().map_err(std::io::Error::other);
        let mut lines =
            FramedRead::new(StreamReader::new(bytes), LinesCodec::new_with_max_length(LONGEST_LINE));
        let mut state = Seen::Nothing;
        loop {
            let line = match &state {
                Seen::Nothing => tokio::time::timeout(ANSWER_WITHIN, lines.next()).await,
                Seen::Older(_) => tokio::time::timeout(LAG, lines.next()).await,
                Seen::Known => Ok(lines.next().await),
            };
            let line = match (line, state) {
                (Ok(Some(line)), before) => {
                    state = before;
                    line.map_err(|error| other(&chain(&error)))?
                }
                // Nothing newer follows: whoever knows better must look.
                (Err(_) | Ok(None), Seen::Older(facts)) => return Ok(LeaseAnswer::Seen(facts)),
                // It may have been deleted before the watch began, which no event tells of.
                (Err(_), _) => return Err(other("the watch has not begun with the Lease")),
                (Ok(None), Seen::Nothing | Seen::Known) => return Ok(LeaseAnswer::Unchanged),
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
                        state = Seen::Known;
                    } else if facts.version.is_older_than(from) {
                        state = Seen::Older(facts);
                    } else {
                        return Ok(LeaseAnswer::Seen(facts));
                    }
                }
                "DELETED" => return Ok(LeaseAnswer::Absent),
                "BOOKMARK" => {}
                _ => {
                    let said = object["message"].as_str().unwrap_or("the watch ended with an error");
                    return Err(other(said));
                }
            }
        }
    }
}

/// What a watch has shown so far.
enum Seen {
    /// No state.
    Nothing,
    /// An older state than the known one.
    Older(Arc<LeaseFacts>),
    /// The known one.
    Known,
}

fn other(why: &str) -> LeaseFailure {
    LeaseFailure::Other(Arc::from(why))
}

#[cfg(test)]
mod tests;
