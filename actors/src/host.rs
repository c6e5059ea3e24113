//! The published snapshot, and word that the writer waits for nothing any more.

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use arc_swap::ArcSwap;
use pool_core::route::{Delivery, HostMessage};
use pool_core::view::Snapshot;
use tokio::sync::watch;

use crate::switchboard::Deliver;

/// The cell that HTTP handlers on their own threads read; one of the two named exceptions to "one owner".
pub type Published = Arc<ArcSwap<Snapshot>>;

/// The actor that swaps the snapshot.
pub struct Host {
    published: Published,
    writer_quiet: watch::Sender<bool>,
}

impl Host {
    /// A host for this cell; the receiver turns true when the writer waits for nothing any more.
    #[must_use]
    pub fn new(published: Published) -> (Host, watch::Receiver<bool>) {
        let (writer_quiet, receiver) = watch::channel(false);
        (Host { published, writer_quiet }, receiver)
    }
}

impl Actor for Host {
    type Context = Context<Self>;
}

impl Handler<Deliver> for Host {
    type Result = ();

    fn handle(&mut self, Deliver(deliveries): Deliver, _: &mut Self::Context) {
        for delivery in deliveries {
            if let Delivery::Host(message) = delivery {
                match message {
                    HostMessage::Publish(snapshot) => self.published.store(snapshot),
                    HostMessage::WriterQuiet => {
                        self.writer_quiet.send_replace(true);
                    }
                }
            }
        }
    }
}
