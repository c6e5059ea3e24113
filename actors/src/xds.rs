//! The port to xDS control planes: has the driver carry out what the follower of sources wants, and brings back what
//! happens on the streams, in order, as its inputs (X2).

use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};
use pool_core::machine::Wall;
use pool_core::route::Delivery;
use pool_core::xds::client::In;
use pool_core::xds_source::Call;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use xds::{Bootstrap, Driver};

use crate::clock::Clock;
use crate::switchboard::Deliver;

/// The most inputs that are handed on in one message.
const AT_ONCE: usize = 64;

/// The port.
pub struct XdsPort {
    driver: Option<Driver>,
    /// What the driver says; taken when the actor starts.
    heard: Option<UnboundedReceiver<In>>,
    clock: Clock,
    source: Recipient<Deliver>,
}

impl XdsPort {
    /// A port to the servers of this bootstrap, which gives them this version of ours. Without a bootstrap there is
    /// nobody to ask, and nobody asks.
    #[must_use]
    pub fn new(
        bootstrap: Option<Arc<Bootstrap>>,
        version: &str,
        clock: Clock,
        source: Recipient<Deliver>,
    ) -> XdsPort {
        let Some(bootstrap) = bootstrap else {
            return XdsPort { driver: None, heard: None, clock, source };
        };
        // What the driver says is bounded by what it is told: it reads a message only when it has leave to.
        let (told, heard) = unbounded_channel();
        let wall = move || Wall::from_micros(clock.wall().as_microsecond());
        let driver = Driver::new(bootstrap, version, told, wall);
        XdsPort { driver: Some(driver), heard: Some(heard), clock, source }
    }
}

/// Hands on what happens on the streams, in order. Before a stream's end comes a number that spreads the next tries of
/// many processes.
async fn hand_on(mut heard: UnboundedReceiver<In>, clock: Clock, source: Recipient<Deliver>) {
    let mut inputs = Vec::new();
    while heard.recv_many(&mut inputs, AT_ONCE).await > 0 {
        let mut deliveries = Vec::with_capacity(inputs.len());
        for input in inputs.drain(..) {
            if let In::Ended(..) = input {
                deliveries.push(Delivery::XdsSource(In::Jitter(clock.jitter())));
            }
            deliveries.push(Delivery::XdsSource(input));
        }
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
            drop(tokio::spawn(hand_on(heard, self.clock, self.source.clone())));
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
                    Call::Open { stream, server, first } => driver.open(stream, server, first),
                    Call::Send(stream, request) => driver.send(stream, &request),
                    Call::Read(stream) => driver.read(stream),
                    Call::Close(stream) => driver.close(stream),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use pool_core::xds::client::{Ended, StreamId};
    use pool_core::xds::facts::Code;
    use tokio::sync::mpsc;

    use super::*;

    /// Hears what the follower would.
    struct Heard(mpsc::UnboundedSender<Delivery>);

    impl Actor for Heard {
        type Context = Context<Self>;
    }

    impl Handler<Deliver> for Heard {
        type Result = ();

        fn handle(&mut self, Deliver(deliveries): Deliver, _: &mut Self::Context) {
            for delivery in deliveries {
                self.0.send(delivery).expect("the test listens");
            }
        }
    }

    #[actix::test]
    async fn x2_a57_before_each_end_of_a_stream_comes_a_number_that_spreads_the_next_try() {
        let ended = |stream| {
            In::Ended(StreamId(stream), Ended { code: Code::Unavailable, message: "gone".to_owned() })
        };
        let (sender, mut hears) = mpsc::unbounded_channel();
        let (tells, told) = unbounded_channel();
        for input in [ended(1), In::Dispatched(StreamId(2)), ended(2), ended(3)] {
            tells.send(input).expect("it is handed on");
        }
        drop(tells);
        hand_on(told, Clock::start(), Heard(sender).start().recipient()).await;

        let mut words = Vec::new();
        while let Ok(delivery) = hears.try_recv() {
            let Delivery::XdsSource(input) = delivery else { panic!("{delivery:?}") };
            if let In::Jitter(number) = input {
                assert!(number <= 1_000, "{number} of 1000");
                words.push("jitter");
            } else {
                words.push(if matches!(input, In::Ended(..)) { "end" } else { "sent" });
            }
        }
        assert_eq!(words, ["jitter", "end", "sent", "jitter", "end", "jitter", "end"]);
    }
}
