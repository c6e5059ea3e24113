//! The port to xDS control planes: has the driver carry out what the follower of sources wants, and brings back what
//! happens on the streams, in order, as its inputs (X2).

use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};
use model::machine::Wall;
use model::xds::stream::DriverCall;
use model::xds::stream::StreamEvent;
use pool_core::route::Delivery;
use sources::xds_source::In;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use xds::{Bootstrap, Driver};

use crate::address_book::Deliver;
use crate::clock::Clock;

/// The most inputs that are handed on in one message.
const AT_ONCE: usize = 64;

/// The port.
pub struct XdsPort {
    driver: Option<Driver>,
    /// What the driver says; taken when the actor starts.
    heard: Option<UnboundedReceiver<StreamEvent>>,
    source: Recipient<Deliver>,
}

impl XdsPort {
    /// A port to the servers of this bootstrap, which gives them this version of ours. Without a bootstrap there is no
    /// server to ask, and nothing is asked.
    #[must_use]
    pub fn new(
        bootstrap: Option<Arc<Bootstrap>>,
        version: &str,
        clock: Clock,
        source: Recipient<Deliver>,
    ) -> XdsPort {
        let Some(bootstrap) = bootstrap else {
            return XdsPort { driver: None, heard: None, source };
        };
        // What the driver says is bounded by what it is told: it reads a message only when it has leave to.
        let (told, heard) = unbounded_channel();
        let wall = move || Wall::from_micros(clock.wall().as_microsecond());
        let driver = Driver::new(bootstrap, version, told, wall, move || clock.jitter());
        XdsPort { driver: Some(driver), heard: Some(heard), source }
    }
}

/// Hands on what happens on the streams, in order.
async fn hand_on(mut heard: UnboundedReceiver<StreamEvent>, source: Recipient<Deliver>) {
    let mut inputs = Vec::new();
    while heard.recv_many(&mut inputs, AT_ONCE).await > 0 {
        let deliveries = inputs.drain(..).map(|heard| Delivery::XdsSource(In::StreamEvent(heard))).collect();
        if source.send(Deliver(deliveries)).await.is_err() {
            tracing::debug!("something happened on an xDS stream after its follower had stopped");
            return;
        }
    }
}

impl Actor for XdsPort {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        if let Some(heard) = self.heard.take() {
            drop(tokio::spawn(hand_on(heard, self.source.clone())));
        }
    }
}

impl Handler<Deliver> for XdsPort {
    type Result = ();

    fn handle(&mut self, Deliver(deliveries): Deliver, _: &mut Self::Context) {
        let Some(driver) = &mut self.driver else { return };
        for delivery in deliveries {
            if let Delivery::Xds(call) = delivery {
                match call {
                    DriverCall::Open { stream, server, first } => driver.open(stream, server, first),
                    DriverCall::Send(stream, request) => driver.send(stream, &request),
                    DriverCall::Read(stream) => driver.read(stream),
                    DriverCall::Close(stream) => driver.close(stream),
                }
            }
        }
    }
}
