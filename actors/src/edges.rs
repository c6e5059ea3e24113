//! The edges that lead from one actor to others: on each, one delivery is under way at a time, and what comes
//! meanwhile waits in an [`Outbox`], where newer facts replace older ones (docs/design/model-and-mechanisms.md, A3).
//!
//! What waits for longer than a moment is measured (E2), by the actor that it waits for.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Recipient, WrapFuture};
use futures::future::OptionFuture;
use model::ids::PoolId;
use model::object::Kind;
use pool_core::outbox::Outbox;
use pool_core::route::Delivery;

use crate::address_book::{Deliver, End};
use crate::recorder;

/// The most deliveries that one message carries.
const BATCH: usize = 512;
/// How often what waits is measured, while anything does.
const MEASURED_EVERY: Duration = Duration::from_secs(1);

/// Where an edge ends.
pub trait Destination: Clone + Eq + Hash + 'static {
    /// What the metrics call the actor there: one of [`recorder::MAILBOXES`].
    fn mailbox(&self) -> &'static str;
}

impl Destination for End {
    fn mailbox(&self) -> &'static str {
        match self {
            End::Watcher(Kind::Services) => "services_watcher",
            End::Watcher(Kind::EndpointSlices) => "endpointslices_watcher",
            End::Watcher(Kind::Nodes) => "nodes_watcher",
            End::Watcher(Kind::Preemptions) => "preemptions_watcher",
            End::Informer => "informer",
            End::Discovery => "discovery",
            End::Directory => "directory",
            End::Pools => "pools",
            End::Writer => "writer",
            End::AdminState => "admin_state",
            End::Leader => "leader",
            End::Pauses => "pauses",
            End::Events => "events",
            End::Board => "board",
            End::XdsSource => "xds_source",
            End::XdsPort => "xds_port",
            End::ArmPort => "arm_port",
            End::KubernetesPort => "kubernetes_port",
            End::Metrics => "metrics",
            End::Host => "host",
        }
    }
}

impl Destination for PoolId {
    fn mailbox(&self) -> &'static str {
        "pool"
    }
}

/// An actor that has edges.
pub trait HasEdges: Actor<Context = Context<Self>> {
    /// By what its edges are told apart.
    type To: Destination;

    /// Its edges.
    fn edges(&mut self) -> &mut Edges<Self::To>;

    /// The actor at the end of an edge; `None` when it has gone.
    fn recipient(&self, to: &Self::To) -> Option<Recipient<Deliver>>;

    /// Called when everything on an edge has been delivered.
    fn delivered(&mut self, _: &mut Context<Self>) {}
}

/// All edges that lead from one actor.
pub struct Edges<To> {
    edges: HashMap<To, Edge>,
    /// Edges that were pushed to since the last flush.
    touched: Vec<To>,
    meter: Meter,
}

/// What waits, and what of it the metrics know.
#[derive(Default)]
struct Meter {
    /// How much waits on all edges.
    waiting: usize,
    /// What the metrics were told of each mailbox; no zeros.
    told: BTreeMap<&'static str, usize>,
    /// Whether it is looked at again in a moment.
    running: bool,
}

impl Meter {
    /// Tells the metrics what has changed since they were last told.
    fn tell(&mut self, now: BTreeMap<&'static str, usize>) {
        for (mailbox, count) in &now {
            let before = self.told.remove(mailbox).unwrap_or(0);
            recorder::mailbox_changed(mailbox, before, *count);
        }
        for (mailbox, before) in std::mem::replace(&mut self.told, now) {
            recorder::mailbox_changed(mailbox, before, 0);
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.tell(BTreeMap::new());
    }
}

#[derive(Default)]
struct Edge {
    outbox: Outbox,
    /// How much is under way: a delivery, and the last words of those who stood there before.
    under_way: usize,
}

impl<To> Default for Edges<To> {
    fn default() -> Self {
        Edges { edges: HashMap::new(), touched: Vec::new(), meter: Meter::default() }
    }
}

impl<To: Destination> Edges<To> {
    /// Puts a delivery on its edge; [`flush`] sends it.
    pub fn push(&mut self, to: To, delivery: Delivery) {
        let edge = self.edges.entry(to.clone()).or_default();
        if edge.outbox.is_empty() && edge.under_way == 0 {
            self.touched.push(to);
        }
        let before = edge.outbox.len();
        edge.outbox.push(delivery);
        self.meter.waiting += edge.outbox.len() - before;
    }

    /// Whether nothing waits and nothing is under way.
    #[must_use]
    pub fn are_idle(&self) -> bool {
        self.edges.is_empty()
    }

    /// Drops what waits on an edge, and notes one thing more that is under way there.
    fn hold(&mut self, to: &To) {
        let edge = self.edges.entry(to.clone()).or_default();
        self.meter.waiting -= std::mem::take(&mut edge.outbox).len();
        edge.under_way += 1;
    }

    /// Whether nothing is under way on an edge.
    fn is_free(&self, to: &To) -> bool {
        self.edges.get(to).is_some_and(|edge| edge.under_way == 0)
    }

    /// Notes that something that was under way has ended; says whether that was all.
    fn ended(&mut self, to: &To) -> bool {
        let Some(edge) = self.edges.get_mut(to) else { return false };
        edge.under_way = edge.under_way.saturating_sub(1);
        edge.under_way == 0
    }

    fn next(&mut self, to: &To) -> Option<Vec<Delivery>> {
        let edge = self.edges.get_mut(to)?;
        if edge.outbox.is_empty() {
            self.edges.remove(to);
            return None;
        }
        edge.under_way += 1;
        let batch = edge.outbox.take(BATCH);
        self.meter.waiting -= batch.len();
        Some(batch)
    }

    /// How much waits for each mailbox, where anything does.
    fn backlog(&self) -> BTreeMap<&'static str, usize> {
        let mut backlog = BTreeMap::new();
        for (to, edge) in self.edges.iter().filter(|(_, edge)| !edge.outbox.is_empty()) {
            *backlog.entry(to.mailbox()).or_default() += edge.outbox.len();
        }
        debug_assert_eq!(backlog.values().sum::<usize>(), self.meter.waiting, "what waits is counted");
        backlog
    }
}

/// Sends what waits on every edge that is not busy.
pub fn flush<A: HasEdges>(actor: &mut A, ctx: &mut Context<A>) {
    for to in std::mem::take(&mut actor.edges().touched) {
        if actor.edges().is_free(&to) {
            send_next(actor, ctx, to);
        }
    }
    measure_later(actor, ctx);
}

/// Looks at what waits in a moment, and from then on until nothing does. What arrives at once is never looked at.
fn measure_later<A: HasEdges>(actor: &mut A, ctx: &mut Context<A>) {
    let meter = &mut actor.edges().meter;
    if meter.running || (meter.waiting == 0 && meter.told.is_empty()) {
        return;
    }
    meter.running = true;
    ctx.run_later(MEASURED_EVERY, |actor, ctx| {
        let edges = actor.edges();
        edges.meter.running = false;
        let backlog = edges.backlog();
        edges.meter.tell(backlog);
        measure_later(actor, ctx);
    });
}

fn send_next<A: HasEdges>(actor: &mut A, ctx: &mut Context<A>, to: A::To) {
    let Some(batch) = actor.edges().next(&to) else {
        actor.delivered(ctx);
        return;
    };
    // What cannot be sent is dropped: the actor at the end was stopped in good order at shutdown, or its end ends the
    // process (A4).
    let sending = OptionFuture::from(actor.recipient(&to).map(|recipient| recipient.send(Deliver(batch))));
    wait_for(actor, ctx, to, sending);
}

/// Goes on with an edge once what is under way there has ended.
fn wait_for<A: HasEdges>(
    actor: &mut A,
    ctx: &mut Context<A>,
    to: A::To,
    under_way: impl Future<Output: 'static> + 'static,
) {
    ctx.spawn(under_way.into_actor(actor).map(move |_, actor, ctx| {
        if actor.edges().ended(&to) {
            send_next(actor, ctx, to);
        }
    }));
}

/// Drops what waits on an edge, and keeps what is pushed from now on until the actor at its end has ended: what that
/// has said is handled before anything that is said after it.
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
