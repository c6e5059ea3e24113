//! Reads a stream to its end, even while its watcher is busy. Unhandled lines wait here, where a newer line about the
//! same object replaces the older one (docs/design/model-and-mechanisms.md, A3). The reader pauses the connection
//! only when too many lines wait.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use futures::future::{BoxFuture, FutureExt};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use model::machine::Now;
use model::object::Kind;
use pool_core::intake::{Intake, MAX_UNREAD};
use pool_core::outbox::Outbox;
use pool_core::route::Delivery;
use sources::watch::{In, WatchFailure};
use tokio::time::MissedTickBehavior;
use tokio_util::codec::LinesCodecError;

use super::{WatchCall, WatcherRoute, decode, log_undecodable, other};
use crate::address_book::Deliver;
use crate::clock::Clock;
use crate::recorder;

/// Maximum lines that are decoded before other tasks on the same thread run.
const RUN: usize = 256;
/// Maximum deliveries in one message.
const BATCH: usize = 512;
/// Interval of the measurement while lines wait.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// Reads one stream.
pub(super) struct Reader {
    kind: Kind,
    clock: Clock,
    intake: Intake,
    watcher: Sender,
    /// Sender to the writer, which receives immediately the pools whose changes were read.
    writer: Sender,
    lag: Lag,
}

impl Reader {
    /// Creates a reader for the answer to this request.
    pub(super) fn new(clock: Clock, watch_call: &WatchCall, watcher: &WatcherRoute) -> Reader {
        Reader {
            kind: watch_call.kind,
            clock,
            intake: Intake::new(watch_call.kind, watch_call.call, &watch_call.request),
            watcher: Sender::to(watcher.recipient.clone()),
            writer: Sender::to(watcher.writer.clone()),
            lag: Lag { kind: watch_call.kind, is_reported: false },
        }
    }

    /// Reads until the stream has ended and its watcher has handled everything, or the watcher is gone. Returns the
    /// failure of the stream, if any. `wall` returns the time by the server's clock.
    pub(super) async fn read_all<S>(mut self, lines: S, wall: impl Fn() -> Timestamp) -> Option<WatchFailure>
    where
        S: Stream<Item = Result<String, LinesCodecError>> + Unpin,
    {
        let mut runs = lines.ready_chunks(RUN);
        let mut is_over = false;
        let mut failure = None;
        let mut measured = tokio::time::interval(MEASURE_INTERVAL);
        measured.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !(is_over && self.watcher.is_idle()) {
            tokio::select! {
                run = runs.next(), if !is_over && self.watcher.waiting.len() < MAX_UNREAD => match run {
                    Some(run) => {
                        failure = self.decode(run, wall());
                        is_over = failure.is_some();
                    }
                    None => is_over = true,
                },
                is_there = self.watcher.delivered() => if !is_there {
                    return None;
                },
                // Without a writer, nothing is granted.
                _ = self.writer.delivered() => {}
                _ = measured.tick() => self.lag.report(self.clock.now(), self.watcher.oldest),
            }
            self.writer.send();
            self.watcher.send();
        }
        failure
    }

    /// Decodes a run of lines and queues them; returns the failure of the stream, if there is one.
    fn decode(&mut self, run: Vec<Result<String, LinesCodecError>>, wall: Timestamp) -> Option<WatchFailure> {
        let now = self.clock.now();
        let mut decoded = Vec::with_capacity(run.len());
        let mut failure = None;
        for line in run {
            match line {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => decoded.push(decode::line(self.kind, line.as_bytes(), wall)),
                Err(LinesCodecError::MaxLineLengthExceeded) => {
                    let reason = "a line of the stream was longer than 8 MiB";
                    failure = Some(WatchFailure::Other(Arc::from(reason)));
                }
                Err(LinesCodecError::Io(error)) => failure = Some(other(&error)),
            }
            if failure.is_some() {
                break;
            }
        }
        log_undecodable(self.kind, &decoded);
        let (watcher, writer) = (&mut self.watcher.waiting, &mut self.writer.waiting);
        for line in decoded {
            self.intake.read(now, line, &mut |delivery| {
                let to = if let Delivery::Writer(_) = &delivery { &mut *writer } else { &mut *watcher };
                to.push(delivery);
            });
        }
        failure
    }
}

/// Deliveries that wait for a machine; one message is in flight at a time.
struct Sender {
    to: Recipient<Deliver>,
    waiting: Outbox,
    in_flight: Option<BoxFuture<'static, bool>>,
    /// Time at which the first line of the message in flight was read.
    oldest: Option<Now>,
}

impl Sender {
    fn to(to: Recipient<Deliver>) -> Sender {
        Sender { to, waiting: Outbox::default(), in_flight: None, oldest: None }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_none()
    }

    /// Sends the waiting deliveries, unless a message is in flight.
    fn send(&mut self) {
        if self.in_flight.is_some() || self.waiting.is_empty() {
            return;
        }
        let batch = self.waiting.take(BATCH);
        self.oldest = batch.first().and_then(read_at);
        let sending = self.to.send(Deliver(batch));
        self.in_flight = Some(async move { sending.await.is_ok() }.boxed());
    }

    /// Waits until the message in flight is handled, forever if there is none; returns false if the receiver is gone.
    async fn delivered(&mut self) -> bool {
        let Some(in_flight) = &mut self.in_flight else { return std::future::pending().await };
        let is_there = in_flight.await;
        (self.in_flight, self.oldest) = (None, None);
        is_there
    }
}

fn read_at(delivery: &Delivery) -> Option<Now> {
    if let Delivery::Watcher(_, In::Line { read, .. }) = delivery { Some(*read) } else { None }
}

/// Reports to the metrics how long the oldest unhandled line has waited for its watcher.
struct Lag {
    kind: Kind,
    is_reported: bool,
}

impl Lag {
    fn report(&mut self, now: Now, oldest: Option<Now>) {
        if oldest.is_some() || self.is_reported {
            recorder::processing_lag(self.kind, oldest.map_or(Duration::ZERO, |oldest| now.since(oldest)));
        }
        self.is_reported = oldest.is_some();
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.report(Now::ZERO, None);
    }
}

#[cfg(test)]
mod tests;
