//! The registry of pools: one actor per pool's machine, started with the pool's first assignment and stopped when the
//! Directory forgets the pool. A successor starts to receive only after the outputs of its predecessor are delivered.

use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, Addr, Context, Handler, Recipient};
use model::ids::{AttemptId, PoolId};
use pool_core::route::{Delivery, Output, PoolMessage, reply_for_missing_pool};
use pools::queue::{In, Params, PoolQueue};

use crate::address_book::{AddressBook, Deliver, End};
use crate::clock::Clock;
use crate::edges::{Edges, HasEdges, flush, hold_until};
use crate::shell::{Ping, Shell, Stop};

/// The registry.
pub struct Pools {
    params: Params,
    clock: Clock,
    address_book: Arc<AddressBook>,
    running: HashMap<PoolId, Addr<Shell<PoolQueue>>>,
    edges: Edges<PoolId>,
}

impl Pools {
    /// Creates a registry without pools.
    #[must_use]
    pub fn new(params: Params, clock: Clock, address_book: Arc<AddressBook>) -> Pools {
        Pools { params, clock, address_book, running: HashMap::new(), edges: Edges::default() }
    }

    /// Starts the pool's actor if an assignment arrives and none runs; returns whether one runs. Late verdicts or
    /// observations about a forgotten pool start no actor, because the Directory would never forget it again.
    fn ensure_running(&mut self, pool: &PoolId, input: &In) -> bool {
        if self.running.contains_key(pool) {
            return true;
        }
        match input {
            In::Assigned(_) => {}
            In::Take(attempt) => {
                self.answer_take_for_missing_pool(pool.clone(), *attempt);
                return false;
            }
            In::Attempt(_)
            | In::Observed(_)
            | In::Pace(_)
            | In::Rewrite
            | In::Finished(..)
            | In::Verified(_) => {
                self.answer_for_missing_pool(input);
                return false;
            }
        }
        let machine = PoolQueue::new(pool.clone(), self.params.clone());
        let address_book = Arc::clone(&self.address_book);
        let shell = Shell::new(machine, Delivery::for_pool, Output::Pool, self.clock, address_book);
        self.running.insert(pool.clone(), shell.start());
        true
    }

    /// Answers a Take for a pool that does not exist, because every Take must be answered: there is nothing to write.
    fn answer_take_for_missing_pool(&self, pool: PoolId, attempt: AttemptId) {
        let nothing = Delivery::Writer(writer::In::Taken(pool, attempt, None));
        let sending = self.address_book.writer.send(Deliver(vec![nothing]));
        drop(actix::spawn(async move {
            if sending.await.is_err() {
                tracing::debug!("dropped the answer of a missing pool: the writer has stopped");
            }
        }));
    }

    /// Answers an operator request for a pool that does not exist.
    fn answer_for_missing_pool(&self, input: &In) {
        let Some(delivery) = reply_for_missing_pool(input) else { return };
        let recipient = self.address_book.recipient(End::from(&delivery.address())).clone();
        drop(actix::spawn(async move {
            if recipient.send(Deliver(vec![delivery])).await.is_err() {
                tracing::debug!("dropped the answer to an operator request: the receiver has stopped");
            }
        }));
    }

    /// Drops the deliveries that wait for the pool: they were sent before it was forgotten. A successor receives and
    /// sends nothing before all outputs of this actor are delivered, because the writer and the snapshot machine
    /// cannot tell the two apart.
    fn forget(&mut self, pool: PoolId, ctx: &mut Context<Self>) {
        if let Some(running) = self.running.remove(&pool) {
            hold_until(self, ctx, pool, running.send(Stop));
        }
    }
}

impl Actor for Pools {
    type Context = Context<Self>;
}

impl HasEdges for Pools {
    type To = PoolId;

    fn edges(&mut self) -> &mut Edges<PoolId> {
        &mut self.edges
    }

    fn recipient(&self, to: &PoolId) -> Option<Recipient<Deliver>> {
        self.running.get(to).map(|running| running.clone().recipient())
    }
}

impl Handler<Deliver> for Pools {
    type Result = ();

    fn handle(&mut self, Deliver(deliveries): Deliver, ctx: &mut Self::Context) {
        for delivery in deliveries {
            match delivery {
                Delivery::Pool(pool, PoolMessage::Forget) => self.forget(pool, ctx),
                Delivery::Pool(pool, PoolMessage::In(input)) => {
                    if self.ensure_running(&pool, &input) {
                        self.edges.push(pool.clone(), Delivery::Pool(pool, PoolMessage::In(input)));
                    }
                }
                Delivery::Watcher(..)
                | Delivery::Informer(_)
                | Delivery::Discovery(_)
                | Delivery::Directory(_)
                | Delivery::Writer(_)
                | Delivery::AdminState(_)
                | Delivery::Leader(_)
                | Delivery::Pauses(_)
                | Delivery::Events(_)
                | Delivery::Snapshot(_)
                | Delivery::XdsSource(_)
                | Delivery::Xds(_)
                | Delivery::Arm(_)
                | Delivery::Kubernetes(_)
                | Delivery::Metrics(_)
                | Delivery::Host(_) => {}
            }
        }
        flush(self, ctx);
    }
}

impl Handler<Ping> for Pools {
    type Result = ();

    fn handle(&mut self, _: Ping, _: &mut Self::Context) {}
}

#[cfg(test)]
mod tests;
