//! One stream, from the connection to its end, in a task of its own. All that is said of it is said here, so that it
//! is said in order, and nothing after the end.

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
use crate::decode::{self, LONGEST_WORDS};

/// The method of aggregated streams.
const METHOD: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

/// The largest message that is received, in bytes.
pub(super) const LARGEST_MESSAGE: usize = 16 << 20;

/// A connection and what comes back on it.
type Called = (Grpc<WithoutDetails>, Streaming<Bytes>);

/// A stream.
pub(super) struct Stream {
    /// Its id.
    pub id: StreamId,
    /// Its server.
    pub config: ServerConfig,
    /// What program this is.
    pub agent: String,
    /// Where it is said what happens.
    pub told: UnboundedSender<StreamEvent>,
    /// Stamps what is received.
    pub wall: WallClock,
    /// Spreads what follows from its end.
    pub jitter: Jitter,
    /// The leaves to read.
    pub to_read: UnboundedReceiver<()>,
    /// What the transport has pulled.
    pub pulled: UnboundedReceiver<Pulled>,
    /// Whether a response came.
    pub is_heard: bool,
}

impl Stream {
    /// Opens it, follows it and says how it has ended.
    pub async fn run(mut self, outbound: Outbound) {
        let mut secrets = Vec::new();
        let ended = match self.open(outbound, &mut secrets).await {
            Ok((client, responses)) => {
                let ended = self.follow(responses).await;
                // The connection stays as long as the stream.
                drop(client);
                ended
            }
            Err(ended) => ended,
        };
        say_pulled(self.id, &self.told, &mut self.pulled);
        let known: Vec<&str> = secrets.iter().map(String::as_str).collect();
        let message = redact::safe_line(&ended.message, &known, LONGEST_WORDS);
        let ended = StreamEnd { code: ended.code, message };
        if self.is_heard && ended.code != Code::Ok {
            let (server, stream, code) = (&self.config.uri, self.id.0, ended.code);
            tracing::debug!(%server, stream, ?code, error = ended.message, "an xDS stream was cut after a response");
        }
        self.say(StreamEvent::Ended { stream: self.id, ended, jitter: (self.jitter)() });
    }

    /// Connects and calls. What must not be repeated is put into `secrets`.
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
        // The answer begins with the server's first message, which may be a long time after the first request.
        let call = client.streaming(request, PathAndQuery::from_static(METHOD), RawCodec);
        let called = meanwhile(self.id, &self.told, &mut self.pulled, call).await;
        let called = called.map_err(|status| of_status(&status))?;
        Ok((client, called.into_inner()))
    }

    /// Reads one message for each leave, until the stream ends.
    async fn follow(&mut self, mut responses: Streaming<Bytes>) -> StreamEnd {
        let mut is_legible = true;
        loop {
            let leave = self.to_read.recv();
            if meanwhile(self.id, &self.told, &mut self.pulled, leave).await.is_none() {
                // The driver is gone, and this task with it.
                std::future::pending::<()>().await;
            }
            let message = responses.message();
            let message = match meanwhile(self.id, &self.told, &mut self.pulled, message).await {
                Ok(Some(message)) => message,
                Ok(None) => return StreamEnd { code: Code::Ok, message: String::new() },
                Err(status) => return of_status(&status),
            };
            let (decoded, length) = (decode::response(&message), message.len());
            // Frees the memory before the response is handled.
            drop(message);
            match decoded {
                Ok(response) => {
                    (is_legible, self.is_heard) = (true, true);
                    self.say(StreamEvent::Response(self.id, response, (self.wall)()));
                }
                Err(error) => {
                    self.log(&error, length, is_legible);
                    is_legible = false;
                    self.say(StreamEvent::Illegible(self.id));
                }
            }
        }
    }

    /// Logs a message that cannot be decoded: the first in a row loudly.
    fn log(&self, error: &decode::DecodeError, length: usize, is_first: bool) {
        let (server, stream) = (&self.config.uri, self.id.0);
        let error = redact::safe_line(&redact::chain(error), &[], LONGEST_WORDS);
        if is_first {
            tracing::warn!(%server, stream, length, error, "passed over an xDS message that cannot be decoded");
        } else {
            tracing::debug!(%server, stream, length, error, "passed over one more xDS message");
        }
    }

    fn say(&self, what: StreamEvent) {
        super::pass(&self.told, what);
    }
}

/// Waits for something, and says meanwhile what the transport pulls. What was pulled before it came is said before.
async fn meanwhile<F: Future>(
    id: StreamId,
    told: &UnboundedSender<StreamEvent>,
    pulled: &mut UnboundedReceiver<Pulled>,
    awaited: F,
) -> F::Output {
    let mut awaited = pin!(awaited);
    let outcome = loop {
        tokio::select! {
            biased;
            Some(what) = pulled.recv() => say(id, told, what),
            outcome = &mut awaited => break outcome,
        }
    };
    say_pulled(id, told, pulled);
    outcome
}

/// Says what was pulled and was not said yet.
fn say_pulled(id: StreamId, told: &UnboundedSender<StreamEvent>, pulled: &mut UnboundedReceiver<Pulled>) {
    while let Ok(what) = pulled.try_recv() {
        say(id, told, what);
    }
}

fn say(id: StreamId, told: &UnboundedSender<StreamEvent>, what: Pulled) {
    let input = match what {
        Pulled::First => StreamEvent::Dispatched(id),
        Pulled::Later(kind) => StreamEvent::Sent(id, kind),
    };
    super::pass(told, input);
}

/// What a status means, be it the server's or the transport's.
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
