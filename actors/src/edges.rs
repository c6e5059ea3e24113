//! The edges from one actor to others. On each edge, one message is in flight at a time; further deliveries wait in
//! an [`Outbox`], where newer facts replace older ones (docs/design/model-and-mechanisms.md, A3).
//!
//! While deliveries wait, their number per receiving actor is reported once a second (E2).

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Recipient, WrapFuture};
use futures::future::OptionFuture;
use model::ids::PoolId;
use pool_core::outbox::Outbox;
use pool_core::route::Delivery;

use crate::address_book::{Deliver, End, POOL_MAILBOX};
use crate::recorder;

/// Maximum number of deliveries per message.
const BATCH: usize = 512;
/// Interval of the measurement while deliveries wait.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);

/// Receiving end of an edge.
pub trait Destination: Clone + Eq + Hash + 'static {
    /// Returns the name of the receiving actor in metrics: one of [`crate::address_book::MAILBOXES`].
    fn mailbox(&self) -> &'static str;
}

impl Destination for End {
    fn mailbox(&self) -> &'static str {
        self.name()
    }
}

impl Destination for PoolId {
    fn mailbox(&self) -> &'static str {
        POOL_MAILBOX
    }
}

/// An actor that has edges.
pub trait HasEdges: Actor<Context = Context<Self>> {
    /// Key of its edges.
    type To: Destination;

    /// Returns its edges.
    fn edges(&mut self) -> &mut Edges<Self::To>;

    /// Returns the actor at the end of an edge; `None` after that actor has ended.
    fn recipient(&self, to: &Self::To) -> Option<Recipient<Deliver>>;

    /// Handles the delivery of everything on an edge.
    fn delivered(&mut self, _: &mut Context<Self>) {}
}

/// All edges from one actor.
pub struct Edges<To> {
    edges: HashMap<To, Edge>,
    /// Edges with deliveries pushed since the last flush.
    touched: Vec<To>,
    meter: Meter,
}

/// Number of waiting deliveries, and its last measurement.
#[derive(Default)]
struct Meter {
    /// Number of waiting deliveries on all edges.
    waiting: usize,
    /// Last reported number per mailbox, without zeros.
    reported: BTreeMap<&'static str, usize>,
    /// Whether the next measurement is scheduled.
    running: bool,
}

impl Meter {
    /// Reports the changes since the last report.
    fn report(&mut self, now: BTreeMap<&'static str, usize>) {
        for (mailbox, count) in &now {
            let before = self.reported.remove(mailbox).unwrap_or(0);
            recorder::mailbox_changed(mailbox, before, *count);
        }
        for (mailbox, before) in std::mem::replace(&mut self.reported, now) {
            recorder::mailbox_changed(mailbox, before, 0);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.report(BTreeMap::new());
    }
}

#[derive(Default)]
struct Edge {
    outbox: Outbox,
    /// Number of messages in flight, including the last messages of earlier actors at this end.
    in_flight: usize,
}

impl<To> Default for Edges<To> {
    fn default() -> Self {
        Edges { edges: HashMap::new(), touched: Vec::new(), meter: Meter::default() }
    }
}

impl<To: Destination> Edges<To> {
    /// Queues a delivery on its edge; [`flush`] sends it.
    pub fn push(&mut self, to: To, delivery: Delivery) {
        let edge = self.edges.entry(to.clone()).or_default();
        if edge.outbox.is_empty() && edge.in_flight == 0 {
            self.touched.push(to);
        }
        let before = edge.outbox.len();
        edge.outbox.push(delivery);
        self.meter.waiting += edge.outbox.len() - before;
    }

    /// Returns whether nothing waits and nothing is in flight.
    #[must_use]
    pub fn are_idle(&self) -> bool {
        self.edges.is_empty()
    }

    /// Drops the waiting deliveries of an edge, and counts one more message in flight on it.
    fn hold(&mut self, to: &To) {
        let edge = self.edges.entry(to.clone()).or_default();
        self.meter.waiting -= std::mem::take(&mut edge.outbox).len();
        edge.in_flight += 1;
    }

    /// Returns whether nothing is in flight on an edge.
    fn is_free(&self, to: &To) -> bool {
        self.edges.get(to).is_some_and(|edge| edge.in_flight == 0)
    }

    /// Records the end of one message in flight; returns whether it was the last one.
    fn ended(&mut self, to: &To) -> bool {
        let Some(edge) = self.edges.get_mut(to) else { return false };
        edge.in_flight = edge.in_flight.saturating_sub(1);
        edge.in_flight == 0
    }

    fn next(&mut self, to: &To) -> Option<Vec<Delivery>> {
        let edge = self.edges.get_mut(to)?;
        if edge.outbox.is_empty() {
            self.edges.remove(to);
            return None;
        }
        edge.in_flight += 1;
        let batch = edge.outbox.take(BATCH);
        self.meter.waiting -= batch.len();
        Some(batch)
    }

    /// Returns the number of waiting deliveries per mailbox, without zeros.
    fn backlog(&self) -> BTreeMap<&'static str, usize> {
        let mut backlog = BTreeMap::new();
        for (to, edge) in self.edges.iter().filter(|(_, edge)| !edge.outbox.is_empty()) {
            *backlog.entry(to.mailbox()).or_default() += edge.outbox.len();
        }
        debug_assert_eq!(backlog.values().sum::<usize>(), self.meter.waiting, "the counter is right");
        backlog
    }
}

/// Sends the waiting deliveries of every edge with nothing in flight.
pub fn flush<A: HasEdges>(actor: &mut A, ctx: &mut Context<A>) {
    for to in std::mem::take(&mut actor.edges().touched) {
        if actor.edges().is_free(&to) {
            send_next(actor, ctx, to);
        }
    }
    measure_later(actor, ctx);
}

/// Schedules a measurement in one second, and repeats it until nothing waits.
fn measure_later<A: HasEdges>(actor: &mut A, ctx: &mut Context<A>) {
    let meter = &mut actor.edges().meter;
    if meter.running || (meter.waiting == 0 && meter.reported.is_empty()) {
        return;
    }
    meter.running = true;
    ctx.run_later(MEASURE_INTERVAL, |actor, ctx| {
        let edges = actor.edges();
        edges.meter.running = false;
        let backlog = edges.backlog();
        edges.meter.report(backlog);
        measure_later(actor, ctx);
    });
}

fn send_next<A: HasEdges>(actor: &mut A, ctx: &mut Context<A>, to: A::To) {
    let Some(batch) = actor.edges().next(&to) else {
        actor.delivered(ctx);
        return;
    };
    // Deliveries that cannot be sent are dropped: either the receiver was stopped in order at shutdown, or its end
    // ends the process (A4).
    let sending = OptionFuture::from(actor.recipient(&to).map(|recipient| recipient.send(Deliver(batch))));
    wait_for(actor, ctx, to, sending);
}

/// Continues with an edge once its message in flight has been handled.
fn wait_for<A: HasEdges>(
    actor: &mut A,
    ctx: &mut Context<A>,
    to: A::To,
    in_flight: impl Future<Output: 'static> + 'static,
) {
    ctx.spawn(in_flight.into_actor(actor).map(move |_, actor, ctx| {
        if actor.edges().ended(&to) {
            send_next(actor, ctx, to);
        }
    }));
}

/// Drops the waiting deliveries of an edge, and holds new ones until the actor at its end has ended: receivers handle
/// that actor's outputs before any later output.
pub fn hold_until<A: HasEdges>(
    actor: &mut A,
    ctx: &mut Context<A>,
    to: A::To,
    ended: impl Future<Output: 'static> + 'static,
) {
    actor.edges().hold(&to);
    wait_for(actor, ctx, to, ended);
}

#[cfg(test)]
mod tests;
