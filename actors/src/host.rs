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

/// Says once what was found.
fn log_synced(snapshot: &Snapshot) {
    let balancers = || snapshot.load_balancers.values();
    let found: Vec<&str> =
        balancers().filter(|lb| lb.exists == Some(true)).map(|lb| lb.lb.as_str()).collect();
    let (services, pools) = (snapshot.services.len(), snapshot.pools.len());
    if found.is_empty() {
        let looked_for: Vec<&str> = balancers().map(|lb| lb.lb.as_str()).collect();
        let remedy = "none is to be done where no Service needs a load balancer; else check clusterName, \
                      loadBalancerName, multipleStandardLoadBalancerConfigurations and the resource group";
        tracing::warn!(?looked_for, services, remedy, "synced, but no managed load balancer exists");
    } else {
        tracing::info!(load_balancers = ?found, services, pools, "synced");
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
                    HostMessage::Publish(snapshot) => {
                        let before = self.published.swap(Arc::clone(&snapshot));
                        if snapshot.synced.done() && !before.synced.done() {
                            log_synced(&snapshot);
                        }
                    }
                    HostMessage::WriterQuiet => {
                        self.writer_quiet.send_replace(true);
                    }
                }
            }
        }
    }
}
