//! The generic shell: the only code that reads the clock for a machine, sends its outputs along `route`, and keeps
//! its one timer (docs/design/model-and-mechanisms.md, A1).

use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorContext, AsyncContext, Context, Handler, Message, Recipient, ResponseFuture, SpawnHandle,
};
use model::machine::{Machine, Now};
use pool_core::route::{Delivery, Output, route};
use tokio::sync::oneshot;

use crate::address_book::{AddressBook, Deliver, End};
use crate::clock::Clock;
use crate::edges::{Edges, HasEdges, flush};

/// Maximum ticks of a machine in one turn, before other actors get theirs.
const TICKS_PER_TURN: usize = 32;
/// Time after which a turn stops handling due work; the next turn does the rest.
const MAX_TURN: Duration = Duration::from_millis(2);

/// Checks that a shell handles messages; any reply counts (H1).
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub struct Ping;

/// Stops a shell whose machine is no longer needed. The shell ends once all outputs are delivered; the end of the
/// reply channel reports it.
#[derive(Message, Clone, Copy, Debug)]
#[rtype(result = "()")]
pub(crate) struct Stop;

/// A machine that runs as an actor.
pub struct Shell<M: Machine> {
    machine: M,
    accept: fn(Delivery) -> Option<M::In>,
    wrap: fn(M::Out) -> Output,
    clock: Clock,
    address_book: Arc<AddressBook>,
    edges: Edges<End>,
    timer: Option<(Now, SpawnHandle)>,
    first: Vec<M::In>,
    /// Callers that wait for its end; the shell runs while there are none.
    stopping: Vec<oneshot::Sender<()>>,
}

impl<M> Shell<M>
where
    M: Machine + Unpin + 'static,
    M::In: Unpin + 'static,
    M::Out: 'static,
{
    /// Creates a shell for a machine. `accept` extracts its inputs from deliveries; `wrap` turns its outputs into an
    /// `Output`.
    pub fn new(
        machine: M,
        accept: fn(Delivery) -> Option<M::In>,
        wrap: fn(M::Out) -> Output,
        clock: Clock,
        address_book: Arc<AddressBook>,
    ) -> Self {
        let (edges, first, stopping) = (Edges::default(), Vec::new(), Vec::new());
        Shell { machine, accept, wrap, clock, address_book, edges, timer: None, first, stopping }
    }

    /// Sets the inputs that the machine receives when the actor starts.
    #[must_use]
    pub fn beginning_with(mut self, first: Vec<M::In>) -> Self {
        self.first = first;
        self
    }

    fn turn(&mut self, inputs: impl IntoIterator<Item = M::In>, ctx: &mut Context<Self>) {
        let now = self.clock.now();
        let mut out = Vec::new();
        for input in inputs {
            self.machine.step(now, input, &mut out);
        }
        for _ in 0..TICKS_PER_TURN {
            if self.machine.deadline().is_none_or(|at| at > now) {
                break;
            }
            self.machine.tick(now, &mut out);
            if self.clock.now().since(now) > MAX_TURN {
                break;
            }
        }
        for output in out {
            let edges = &mut self.edges;
            route((self.wrap)(output), &mut |delivery| edges.push(End::from(&delivery.address()), delivery));
        }
        flush(self, ctx);
        self.rearm(now, ctx);
    }

    fn rearm(&mut self, now: Now, ctx: &mut Context<Self>) {
        let deadline = self.machine.deadline().filter(|at| *at != Now::NEVER && self.stopping.is_empty());
        if self.timer.map(|(at, _)| at) == deadline {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(at) = deadline {
            let timer = ctx.run_later(at.since(now), |shell, ctx| {
                shell.timer = None;
                shell.turn([], ctx);
            });
            self.timer = Some((at, timer));
        }
    }
}

impl<M> Actor for Shell<M>
where
    M: Machine + Unpin + 'static,
    M::In: Unpin + 'static,
    M::Out: 'static,
{
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let first = std::mem::take(&mut self.first);
        self.turn(first, ctx);
    }
}

impl<M> HasEdges for Shell<M>
where
    M: Machine + Unpin + 'static,
    M::In: Unpin + 'static,
    M::Out: 'static,
{
    type To = End;

    fn edges(&mut self) -> &mut Edges<End> {
        &mut self.edges
    }

    fn recipient(&self, to: &End) -> Option<Recipient<Deliver>> {
        Some(self.address_book.recipient(*to).clone())
    }

    fn delivered(&mut self, ctx: &mut Context<Self>) {
        if !self.stopping.is_empty() && self.edges.are_idle() {
            ctx.stop();
        }
    }
}

impl<M> Handler<Deliver> for Shell<M>
where
    M: Machine + Unpin + 'static,
    M::In: Unpin + 'static,
    M::Out: 'static,
{
    type Result = ();

    fn handle(&mut self, Deliver(deliveries): Deliver, ctx: &mut Self::Context) {
        let accept = self.accept;
        self.turn(deliveries.into_iter().filter_map(accept), ctx);
    }
}

impl<M> Handler<Ping> for Shell<M>
where
    M: Machine + Unpin + 'static,
    M::In: Unpin + 'static,
    M::Out: 'static,
{
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut Self::Context) {}
}

impl<M> Handler<Stop> for Shell<M>
where
    M: Machine + Unpin + 'static,
    M::In: Unpin + 'static,
    M::Out: 'static,
{
    type Result = ResponseFuture<()>;

    fn handle(&mut self, _: Stop, ctx: &mut Self::Context) -> Self::Result {
        let (caller, ended) = oneshot::channel();
        self.stopping.push(caller);
        if let Some((_, timer)) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        self.delivered(ctx);
        // There is no explicit answer: the end of the shell closes the channel.
        Box::pin(async move { drop(ended.await) })
    }
}

#[cfg(test)]
pub(crate) mod tests;
