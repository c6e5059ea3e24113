//! The port to xDS control planes: the driver carries out the calls of the xDS source machine, and the port returns the
//! events of the streams, in order, as inputs (X2).

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

/// Maximum inputs in one message.
const MAX_BATCH: usize = 64;

/// The port.
pub struct XdsPort {
    driver: Option<Driver>,
    /// Events of the driver; taken when the actor starts.
    events: Option<UnboundedReceiver<StreamEvent>>,
    source: Recipient<Deliver>,
}

impl XdsPort {
    /// Creates a port to the servers of this bootstrap, to which the client reports this version. Without a bootstrap
    /// there are no servers, and the port does nothing.
    #[must_use]
    pub fn new(
        bootstrap: Option<Arc<Bootstrap>>,
        version: &str,
        clock: Clock,
        source: Recipient<Deliver>,
    ) -> XdsPort {
        let Some(bootstrap) = bootstrap else {
            return XdsPort { driver: None, events: None, source };
        };
        // The channel stays bounded by the calls: the driver reads a message only when a call allows it.
        let (sender, events) = unbounded_channel();
        let wall = move || Wall::from_micros(clock.wall().as_microsecond());
        let driver = Driver::new(bootstrap, version, sender, wall, move || clock.jitter());
        XdsPort { driver: Some(driver), events: Some(events), source }
    }
}

/// Forwards the events of all streams to the source machine, in order.
async fn forward(mut events: UnboundedReceiver<StreamEvent>, source: Recipient<Deliver>) {
    let mut inputs = Vec::new();
    while events.recv_many(&mut inputs, MAX_BATCH).await > 0 {
        let deliveries = inputs.drain(..).map(|event| Delivery::XdsSource(In::StreamEvent(event))).collect();
        if source.send(Deliver(deliveries)).await.is_err() {
            tracing::debug!("dropped an event of an xDS stream: the source machine has stopped");
            return;
        }
    }
}

impl Actor for XdsPort {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        if let Some(events) = self.events.take() {
            drop(tokio::spawn(forward(events, self.source.clone())));
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
