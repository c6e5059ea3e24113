//! Reads a stream to its end, also while its watcher is busy: what was read waits here, where a newer line about the
//! same object replaces the older one (docs/design/model-and-mechanisms.md, A3). Only when too much waits is the
//! connection left to wait too.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use futures::future::{BoxFuture, FutureExt};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use model::machine::Now;
use model::object::Kind;
use pool_core::intake::{Intake, MOST_UNREAD};
use pool_core::outbox::Outbox;
use pool_core::route::Delivery;
use sources::watch::{In, WatchFailure};
use tokio::time::MissedTickBehavior;
use tokio_util::codec::LinesCodecError;

use super::{Request, WayBack, decode, log_undecodable, other};
use crate::address_book::Deliver;
use crate::clock::Clock;
use crate::recorder;

/// The most lines that are decoded before others on the same thread have their turn.
const RUN: usize = 256;
/// The most deliveries that one message carries.
const BATCH: usize = 512;
/// How often the age of what waits is measured, while anything does.
const MEASURED_EVERY: Duration = Duration::from_secs(1);

/// Reads one stream.
pub(super) struct Reader {
    kind: Kind,
    clock: Clock,
    intake: Intake,
    watcher: Sender,
    /// Who hears at once of which pools changes were read.
    writer: Sender,
    lag: Lag,
}

impl Reader {
    /// A reader of what answers this request.
    pub(super) fn new(clock: Clock, request: &Request, watcher: &WayBack) -> Reader {
        Reader {
            kind: request.kind,
            clock,
            intake: Intake::new(request.kind, request.call, &request.ask),
            watcher: Sender::to(watcher.recipient.clone()),
            writer: Sender::to(watcher.writer.clone()),
            lag: Lag { kind: request.kind, is_shown: false },
        }
    }

    /// Reads until the stream ends and its watcher has taken in everything, or is gone. Returns how the stream has
    /// failed, if it has; `wall` is the time by the server's clock.
    pub(super) async fn read_all<S>(mut self, lines: S, wall: impl Fn() -> Timestamp) -> Option<WatchFailure>
    where
        S: Stream<Item = Result<String, LinesCodecError>> + Unpin,
    {
        let mut runs = lines.ready_chunks(RUN);
        let mut is_over = false;
        let mut failure = None;
        let mut measured = tokio::time::interval(MEASURED_EVERY);
        measured.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !(is_over && self.watcher.is_idle()) {
            tokio::select! {
                run = runs.next(), if !is_over && self.watcher.waiting.len() < MOST_UNREAD => match run {
                    Some(run) => {
                        failure = self.take_in(run, wall());
                        is_over = failure.is_some();
                    }
                    None => is_over = true,
                },
                is_there = self.watcher.delivered() => if !is_there {
                    return None;
                },
                // Nothing is granted where there is no writer.
                _ = self.writer.delivered() => {}
                _ = measured.tick() => self.lag.show(self.clock.now(), self.watcher.oldest),
            }
            self.writer.send();
            self.watcher.send();
        }
        failure
    }

    /// Decodes a run of lines, which wait from now on; returns what is wrong with the stream, if anything is.
    fn take_in(
        &mut self,
        run: Vec<Result<String, LinesCodecError>>,
        wall: Timestamp,
    ) -> Option<WatchFailure> {
        let now = self.clock.now();
        let mut decoded = Vec::with_capacity(run.len());
        let mut failure = None;
        for line in run {
            match line {
                Ok(line) if line.trim().is_empty() => {}
                Ok(line) => decoded.push(decode::line(self.kind, line.as_bytes(), wall)),
                Err(LinesCodecError::MaxLineLengthExceeded) => {
                    let why = "a line of the stream was longer than 8 MiB";
                    failure = Some(WatchFailure::Other(Arc::from(why)));
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

/// What waits for a machine; one message is under way at a time.
struct Sender {
    to: Recipient<Deliver>,
    waiting: Outbox,
    under_way: Option<BoxFuture<'static, bool>>,
    /// When the first line of what is under way was read.
    oldest: Option<Now>,
}

impl Sender {
    fn to(to: Recipient<Deliver>) -> Sender {
        Sender { to, waiting: Outbox::default(), under_way: None, oldest: None }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_none()
    }

    /// Sends what waits, unless something is under way.
    fn send(&mut self) {
        if self.under_way.is_some() || self.waiting.is_empty() {
            return;
        }
        let batch = self.waiting.take(BATCH);
        self.oldest = batch.first().and_then(read_at);
        let sending = self.to.send(Deliver(batch));
        self.under_way = Some(async move { sending.await.is_ok() }.boxed());
    }

    /// Waits until what is under way was taken in, forever if nothing is; false if the receiver is gone.
    async fn delivered(&mut self) -> bool {
        let Some(under_way) = &mut self.under_way else { return std::future::pending().await };
        let is_there = under_way.await;
        (self.under_way, self.oldest) = (None, None);
        is_there
    }
}

fn read_at(delivery: &Delivery) -> Option<Now> {
    if let Delivery::Watcher(_, In::Line { read, .. }) = delivery { Some(*read) } else { None }
}

/// For how long the oldest line that was read has waited for its watcher, as the metrics know it.
struct Lag {
    kind: Kind,
    is_shown: bool,
}

impl Lag {
    fn show(&mut self, now: Now, oldest: Option<Now>) {
        if oldest.is_some() || self.is_shown {
            recorder::intake_lag(self.kind, oldest.map_or(Duration::ZERO, |oldest| now.since(oldest)));
        }
        self.is_shown = oldest.is_some();
    }
}

impl Drop for Lag {
    fn drop(&mut self) {
        self.show(Now::ZERO, None);
    }
}

#[cfg(test)]
mod tests;
