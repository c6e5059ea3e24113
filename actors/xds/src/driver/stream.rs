//! One stream, from the connection to its end, in its own task. Only this task reports its events, so they are in
//! order and none follows the end.

use std::pin::pin;

use http::uri::PathAndQuery;
use model::redact;
use model::xds::facts::Code;
use model::xds::stream::{StreamEnd, StreamEvent, StreamId};
use prost::bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tonic::client::Grpc;
use tonic::{Request, Streaming};

use super::connection::{self, unavailable};
use super::credentials::{self, Token};
use super::outbound::{Outbound, Pulled};
use super::wire::{RawCodec, WithoutDetails};
use super::{Jitter, WallClock};
use crate::bootstrap::ServerConfig;
use crate::decode::{self, MAX_WORDS};

/// The method of aggregated streams.
const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// Size limit of a received message, in bytes.
pub(super) const LARGEST_MESSAGE: usize = 16 << 20;

/// A connection and its responses.
type Called = (Grpc<WithoutDetails>, Streaming<Bytes>);

/// A stream.
pub(super) struct Stream {
    /// Its id.
    pub id: StreamId,
    /// Server.
    pub config: ServerConfig,
    /// Name of this program.
    pub agent: String,
    /// Receiver of the events.
    pub events: UnboundedSender<StreamEvent>,
    /// Source of receive times.
    pub wall: WallClock,
    /// Source of the jitter at the end.
    pub jitter: Jitter,
    /// Permissions to read.
    pub to_read: UnboundedReceiver<()>,
    /// Requests that the transport has pulled.
    pub pulled: UnboundedReceiver<Pulled>,
    /// True if a response came.
    pub has_response: bool,
}

impl Stream {
    /// Opens the stream, follows it and reports its end.
    pub async fn run(mut self, outbound: Outbound) {
        let mut secrets = Vec::new();
        let ended = match self.open(outbound, &mut secrets).await {
            Ok((client, responses)) => {
                let ended = self.follow(responses).await;
                // The connection lasts as long as the stream.
                drop(client);
                ended
            }
            Err(ended) => ended,
        };
        report_pulled(self.id, &self.events, &mut self.pulled);
        let known: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let message = redact::safe_line(&ended.message, &known, MAX_WORDS);
        let ended = StreamEnd { code: ended.code, message };
        if self.has_response && ended.code != Code::Ok {
            let (server, stream, code) = (&self.config.uri, self.id.0, ended.code);
            tracing::debug!(%server, stream, ?code, error = ended.message, "an xDS stream was cut after a response");
        }
        self.report(StreamEvent::Ended { stream: self.id, ended, jitter: (self.jitter)() });
    }

    /// Connects and calls. Adds the texts that must not be shown to `secrets`.
    async fn open(&mut self, outbound: Outbound, secrets: &mut Vec<String>) -> Result<Called, StreamEnd> {
        let mut request = Request::new(outbound);
        for path in &self.config.tokens {
            let Token { secret, header } =
                credentials::token(path, &self.config.uri).await.map_err(unavailable)?;
            request.metadata_mut().append("authorization", header);
            secrets.push(secret);
        }
        let channel = connection::connect(&self.config, &self.agent).await?;
        let mut client = Grpc::new(channel).max_decoding_message_size(LARGEST_MESSAGE);
        client.ready().await.map_err(|error| unavailable(redact::chain(&error)))?;
        // The answer starts with the server's first message, which may come long after the first request.
        let call = client.streaming(request, PathAndQuery::from_static(METHOD), RawCodec);
        let called = meanwhile(self.id, &self.events, &mut self.pulled, call).await;
        let called = called.map_err(|status| of_status(&status))?;
        Ok((client, called.into_inner()))
    }

    /// Reads one message per permission, until the stream ends.
    async fn follow(&mut self, mut responses: Streaming<Bytes>) -> StreamEnd {
        let mut was_decoded = true;
        loop {
            let leave = self.to_read.recv();
            if meanwhile(self.id, &self.events, &mut self.pulled, leave).await.is_none() {
                // The driver was dropped, and this task ends with it.
                std::future::pending::<()>().await;
            }
            let message = responses.message();
            let message = match meanwhile(self.id, &self.events, &mut self.pulled, message).await {
                Ok(Some(message)) => message,
                Ok(None) => return StreamEnd { code: Code::Ok, message: String::new() },
                Err(status) => return of_status(&status),
            };
            let (decoded, length) = (decode::response(&message), message.len());
            // Frees the memory before the response is handled.
            drop(message);
            match decoded {
                Ok(response) => {
                    (was_decoded, self.has_response) = (true, true);
                    self.report(StreamEvent::Response(self.id, response, (self.wall)()));
                }
                Err(error) => {
                    self.log(&error, length, was_decoded);
                    was_decoded = false;
                    self.report(StreamEvent::Undecodable(self.id));
                }
            }
        }
    }

    /// Logs an undecodable message: the first in a row at a higher level.
    fn log(&self, error: &decode::DecodeError, length: usize, is_first: bool) {
        let (server, stream) = (&self.config.uri, self.id.0);
        let error = redact::safe_line(&redact::chain(error), &[], MAX_WORDS);
        if is_first {
            let effect = "the last good resources stay in use";
            let remedy = "correct the message at the control plane";
            tracing::warn!(%server, stream, length, error, effect, remedy,
                "ignored an xDS message that cannot be decoded");
        } else {
            tracing::debug!(%server, stream, length, error, "ignored one more xDS message");
        }
    }

    fn report(&self, what: StreamEvent) {
        super::pass(&self.events, what);
    }
}

/// Waits for a future, and in the meantime reports the requests that the transport pulls. Requests that were pulled
/// before the future completes are reported first.
async fn meanwhile<F: Future>(
    id: StreamId,
    events: &UnboundedSender<StreamEvent>,
    pulled: &mut UnboundedReceiver<Pulled>,
    awaited: F,
) -> F::Output {
    let mut awaited = pin!(awaited);
    let outcome = loop {
        tokio::select! {
            biased;
            Some(what) = pulled.recv() => report(id, events, what),
            outcome = &mut awaited => break outcome,
        }
    };
    report_pulled(id, events, pulled);
    outcome
}

/// Reports the pulled requests that were not reported yet.
fn report_pulled(
    id: StreamId,
    events: &UnboundedSender<StreamEvent>,
    pulled: &mut UnboundedReceiver<Pulled>,
) {
    while let Ok(what) = pulled.try_recv() {
        report(id, events, what);
    }
}

fn report(id: StreamId, events: &UnboundedSender<StreamEvent>, what: Pulled) {
    let input = match what {
        Pulled::First => StreamEvent::Dispatched(id),
        Pulled::Later(kind) => StreamEvent::Sent(id, kind),
    };
    super::pass(events, input);
}

/// Converts a status of the server or of the transport.
fn of_status(status: &tonic::Status) -> StreamEnd {
    let mut message = status.message().to_owned();
    if let Some(source) = std::error::Error::source(status) {
        let more = redact::chain(source);
        if message.is_empty() || more.contains(&message) {
            message = more;
        } else if !message.contains(&more) {
            message = format!("{message}: {more}");
        }
    }
    StreamEnd { code: Code::of_number(status.code().into()), message }
}
