//! The edges that lead from one actor to others: on each, one delivery is under way at a time, and what comes
//! meanwhile waits in an [`Outbox`], where newer facts replace older ones (design.md A3).

use std::collections::HashMap;
use std::hash::Hash;

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Recipient, WrapFuture};
use pool_core::outbox::Outbox;
use pool_core::route::Delivery;

use crate::switchboard::Deliver;

/// The most deliveries that one message carries.
const BATCH: usize = 512;

/// An actor that has edges.
pub trait HasEdges: Actor<Context = Context<Self>> {
    /// By what its edges are told apart.
    type To: Clone + Eq + Hash + 'static;

    /// Its edges.
    fn edges(&mut self) -> &mut Edges<Self::To>;

    /// Who stands at the end of an edge; `None` when nobody does any more.
    fn recipient(&self, to: &Self::To) -> Option<Recipient<Deliver>>;

    /// Called when everything on an edge has been delivered.
    fn delivered(&mut self, _: &mut Context<Self>) {}
}

/// All edges that lead from one actor.
pub struct Edges<To> {
    edges: HashMap<To, Edge>,
    /// Edges that were pushed to since the last flush.
    touched: Vec<To>,
}

#[derive(Default)]
struct Edge {
    outbox: Outbox,
    busy: bool,
}

impl<To> Default for Edges<To> {
    fn default() -> Self {
        Edges { edges: HashMap::new(), touched: Vec::new() }
    }
}

impl<To: Clone + Eq + Hash + 'static> Edges<To> {
    /// Puts a delivery on its edge; [`flush`] sends it.
    pub fn push(&mut self, to: To, delivery: Delivery) {
        let edge = self.edges.entry(to.clone()).or_default();
        if edge.outbox.is_empty() && !edge.busy {
            self.touched.push(to);
        }
        edge.outbox.push(delivery);
    }

    /// Whether nothing waits and nothing is under way.
    #[must_use]
    pub fn are_idle(&self) -> bool {
        self.edges.is_empty()
    }

    /// Drops what waits on an edge. What is under way there arrives first; what is pushed later follows it.
    pub fn forget(&mut self, to: &To) {
        if let Some(edge) = self.edges.get_mut(to) {
            edge.outbox = Outbox::default();
        }
    }

    fn next(&mut self, to: &To) -> Option<Vec<Delivery>> {
        let edge = self.edges.get_mut(to)?;
        if edge.outbox.is_empty() {
            self.edges.remove(to);
            return None;
        }
        edge.busy = true;
        Some(edge.outbox.take(BATCH))
    }
}

/// Sends what waits on every edge that is not busy.
pub fn flush<A: HasEdges>(actor: &mut A, ctx: &mut Context<A>) {
    for to in std::mem::take(&mut actor.edges().touched) {
        send_next(actor, ctx, to);
    }
}

fn send_next<A: HasEdges>(actor: &mut A, ctx: &mut Context<A>, to: A::To) {
    let Some(batch) = actor.edges().next(&to) else {
        actor.delivered(ctx);
        return;
    };
    let Some(recipient) = actor.recipient(&to) else {
        actor.edges().edges.remove(&to);
        return;
    };
    let sending = recipient.send(Deliver(batch)).into_actor(actor).map(move |sent, actor, ctx| {
        if sent.is_err() {
            // The receiver is gone: it stopped in good order at shutdown, or its end ends the process (A4).
            actor.edges().edges.remove(&to);
            actor.delivered(ctx);
            return;
        }
        send_next(actor, ctx, to);
    });
    ctx.spawn(sending);
}
