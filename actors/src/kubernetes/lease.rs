//! Requests about the two Leases (W7, W8): each is sent at once, takes a bounded time, and has one answer. What a
//! state of a Lease means is the machines' to judge.
//!
//! Both Leases have the same limits of time, each for its reason:
//! - [`ANSWER_WITHIN`], 5 s, ends a read or a write here, from its sending to the last byte of its answer, and the
//!   wait for a watch's beginning. It is what W8's 45/30/5 and W7's 60 s less 25 s leave room for, several times over.
//! - [`model::object::GIVE_UP_AFTER`], 6 s, is after how long a machine asks again without an answer of this
//!   port. It is longer, so that no request is given up whose answer comes.
//! - [`model::lease::WATCH_MARGIN`], 10 s, is the same for a watch, beyond the time that it was asked for. Here a
//!   watch ends 8 s after that at the latest: 5 s until its answer begins, up to 1 s for whole seconds, and 2 s of
//!   grace for a server that does not end it.

mod document;
mod log;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use http_body_util::BodyExt;
use kube::Client;
use model::lease::{LeaseAnswer, LeaseAsk, LeaseFacts, LeaseName};
use model::object::{ANSWER_WITHIN, RequestFailure, ResourceVersion};
use serde_json::Value;
use tokio::io::AsyncRead;
use tokio::time::Instant;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use super::exchange::{Answered, Exchange, Kind, Place, other};
use super::sanitize::chain;
use crate::azure::Effects;
use crate::clock::Clock;
use document::LeaseDocument;
pub(super) use log::{Asked, Told};

/// How much longer than it was asked for a watch may take to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// How long a watch that begins with an older state than is known waits for that one: the server's cache lags behind.
const LAG: Duration = Duration::from_secs(2);
/// A watch that breaks after this time counts as closed: connections are cut now and then.
const ROUTINE: Duration = Duration::from_secs(10);
/// The longest line of a watch that is taken in.
const LONGEST_LINE: usize = 1 << 20;

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
    pub(super) exchange: Exchange,
    pub(super) clock: Clock,
    pub(super) lease: LeaseName,
}

/// Carries out one request about a Lease, for a command that the operator has started; every failure is an answer too.
pub async fn ask(client: Client, place: Place, clock: Clock, lease: LeaseName, ask: LeaseAsk) -> LeaseAnswer {
    let exchange = Exchange { client, effects: Effects::Carried, kind: Kind::Lease, place };
    Requests { exchange, clock, lease }.carry_out(ask).await
}

impl Requests {
    /// Carries out one request; every failure is an answer too.
    pub(super) async fn carry_out(&self, ask: LeaseAsk) -> LeaseAnswer {
        self.attempt(ask).await.unwrap_or_else(LeaseAnswer::Failed)
    }

    async fn attempt(&self, ask: LeaseAsk) -> Result<LeaseAnswer, RequestFailure> {
        let answered = match ask {
            LeaseAsk::Get => self.exchange.read().await,
            LeaseAsk::Create(edit) => {
                let new = LeaseDocument::new(&self.exchange.place);
                self.exchange.create(new.edited(&edit, self.clock)).await
            }
            LeaseAsk::Replace(seen, edit) => {
                let document = seen.document.get::<LeaseDocument>();
                let document = document.ok_or_else(|| self.exchange.foreign())?;
                self.exchange.replace(document.edited(&edit, self.clock)).await
            }
            LeaseAsk::Await(from, span) => return self.watch(&from, span).await,
        };
        match answered? {
            Answered::Object(value) => self.read(value).map(LeaseAnswer::Seen),
            Answered::Absent => Ok(LeaseAnswer::Absent),
            Answered::Conflict => Ok(LeaseAnswer::Conflict),
        }
    }

    fn read(&self, value: Value) -> Result<Arc<LeaseFacts>, RequestFailure> {
        let facts = document::facts(self.lease, value, self.clock);
        facts.map(Arc::new).map_err(|error| self.exchange.unusable(&error.to_string()))
    }

    /// Waits for the first state that is newer than a version.
    ///
    /// The watch begins with the present state, whatever its version: one that began at the version of a Lease which
    /// was not written for a while would be refused, since the API server keeps few minutes of all Leases.
    async fn watch(&self, from: &ResourceVersion, span: Duration) -> Result<LeaseAnswer, RequestFailure> {
        // 0 would leave the time to the server.
        let seconds = u64::try_from(span.as_millis().div_ceil(1_000).max(1)).unwrap_or(u64::MAX);
        let body = self.exchange.watch(seconds).await?.into_data_stream();
        let bytes = StreamReader::new(body.map_err(std::io::Error::other));
        let within = Duration::from_secs(seconds).saturating_add(GRACE);
        let heard = tokio::time::timeout(within, self.first_news(from, bytes)).await;
        heard.unwrap_or_else(|_| Err(other("the watch did not end in time")))
    }

    /// The first event that tells of another state than the known one.
    async fn first_news(
        &self,
        from: &ResourceVersion,
        bytes: impl AsyncRead + Unpin,
    ) -> Result<LeaseAnswer, RequestFailure> {
        let mut lines = FramedRead::new(bytes, LinesCodec::new_with_max_length(LONGEST_LINE));
        let (began, mut state) = (Instant::now(), Seen::Nothing);
        loop {
            let line = match &state {
                Seen::Nothing => tokio::time::timeout(ANSWER_WITHIN, lines.next()).await,
                Seen::Older(_) => tokio::time::timeout(LAG, lines.next()).await,
                Seen::Known => Ok(lines.next().await),
            };
            let line = match (line, state) {
                // The next watch begins with the current state, so nothing is lost with this connection.
                (Ok(Some(Err(_))), Seen::Known) if began.elapsed() >= ROUTINE => {
                    return Ok(LeaseAnswer::Unchanged);
                }
                (Ok(Some(line)), before) => {
                    state = before;
                    line.map_err(|error| other(&chain(&error)))?
                }
                // Nothing newer follows: a caller that knows better must look.
                (Err(_) | Ok(None), Seen::Older(facts)) => return Ok(LeaseAnswer::Seen(facts)),
                // It may have been deleted before the watch began, which no event tells of.
                (Err(_), _) => return Err(other("the watch has not begun with the Lease")),
                (Ok(None), Seen::Known) => return Ok(LeaseAnswer::Unchanged),
                (Ok(None), Seen::Nothing) => {
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

#[cfg(test)]
mod tests;
