//! The published snapshot, and word that nothing is waited for any more.

use std::sync::Arc;

use actix::{Actor, Context, Handler};
use arc_swap::ArcSwap;
use pool_core::route::{Delivery, HostMessage};
use pool_core::view::{LeadershipView, Snapshot, StartsView};
use tokio::sync::watch;

use crate::switchboard::Deliver;

/// The cell that HTTP handlers on their own threads read; one of the two named exceptions to "one owner".
pub type Published = Arc<ArcSwap<Snapshot>>;

/// The actor that swaps the snapshot.
pub struct Host {
    published: Published,
    ended: watch::Sender<Ended>,
}

/// What is over after a shutdown.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Ended {
    /// The writer waits for nothing, and both Leases are let go of.
    pub leadership: bool,
    /// The note of this start is struck, or was given up (A4).
    pub note: bool,
}

impl Ended {
    /// Whether nothing is waited for any more.
    #[must_use]
    pub fn all(self) -> bool {
        self.leadership && self.note
    }
}

impl Host {
    /// A host for this cell; the receiver tells what is over after a shutdown.
    #[must_use]
    pub fn new(published: Published) -> (Host, watch::Receiver<Ended>) {
        let (ended, receiver) = watch::channel(Ended::default());
        (Host { published, ended }, receiver)
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

/// Says when this process begins or ceases to lead, and why it waits in between.
fn log_leadership(before: &Snapshot, after: &Snapshot) {
    let Some(now) = &after.leadership else { return };
    if before.leadership.as_ref().is_some_and(|before| before.role == now.role) {
        return;
    }
    let LeadershipView { identity, role, holder, epoch, last_error, .. } = now;
    let holder = holder.as_deref().unwrap_or("nobody");
    tracing::info!(role, %identity, holder, term = epoch.0, last_error = last_error.as_deref(), "leadership");
}

/// Says when this process begins or ceases to be passive, and that its start cannot be noted (A4).
fn log_starts(before: &Snapshot, after: &Snapshot) {
    let Some(StartsView { phase, until, notes, last_error, .. }) = &after.starts else { return };
    let was = before.starts.as_ref();
    let phase_before = was.map_or("", |view| view.phase);
    if *phase == "passive" && phase_before != "passive" {
        let ends_in_s = until.map(|until| until.since(after.at).as_secs());
        let remedy = "find out why the process ends; to end this at once, delete the keys start.* of the ConfigMap \
                      that is named like our Lease";
        tracing::warn!(notes, ends_in_s, remedy, "too many starts ended badly: this process writes nothing");
    }
    if *phase == "active" && phase_before == "passive" {
        tracing::info!("this process is passive no longer");
    }
    if let Some(why) = last_error
        && was.is_none_or(|view| view.last_error.is_none())
    {
        let remedy = "let the service account get, create and update the ConfigMap that is named like our Lease; \
                      without it, a process that crashes again and again is not stopped from writing";
        tracing::warn!(%why, remedy, "the start of this process cannot be noted");
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
                        log_leadership(&before, &snapshot);
                        log_starts(&before, &snapshot);
                    }
                    HostMessage::Quarantined(pool, broken) => {
                        let remedy = "this is an error of the controller: report it, and restart the controller to \
                                      try again; the other pools go on";
                        tracing::error!(%pool, broken, remedy, "a backend pool is quarantined");
                    }
                    HostMessage::Done => {
                        self.ended.send_modify(|ended| ended.leadership = true);
                    }
                    HostMessage::Struck => self.ended.send_modify(|ended| ended.note = true),
                }
            }
        }
    }
}
