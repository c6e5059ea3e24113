//! The published snapshot, the answers to operators, and word that nothing is waited for any more.

mod admin_state;

use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, Context, Handler, Message};
use arc_swap::ArcSwap;
use jiff::Timestamp;
use pool_core::ask::{Answer, RequestId};
use pool_core::events::{Dropped, Severity};
use pool_core::leader::Free;
use pool_core::report::Subject;
use pool_core::route::{Delivery, HostMessage};
use pool_core::view::{LeadershipView, Snapshot, WishesView};
use tokio::sync::{oneshot, watch};

use crate::switchboard::Deliver;

/// The cell that HTTP handlers on their own threads read; one of the two named exceptions to "one owner".
pub type Published = Arc<ArcSwap<Snapshot>>;

/// The actor that swaps the snapshot and hands answers over.
pub struct Host {
    published: Published,
    /// After a shutdown, which Leases are free; `None`: not known yet.
    ended: watch::Sender<Option<Free>>,
    /// Who waits for the answer to the operator's request.
    waiting: HashMap<RequestId, oneshot::Sender<Answer>>,
}

/// A caller waits for the answer to the operator's request, which is sent to its machine when this was heard.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Await {
    /// The id of the request.
    pub id: RequestId,
    /// Where the answer goes; a caller that does not wait any more has dropped the other end.
    pub answer: oneshot::Sender<Answer>,
}

impl Host {
    /// A host for this cell; the receiver gets the Leases that are free after a shutdown.
    #[must_use]
    pub fn new(published: Published) -> (Host, watch::Receiver<Option<Free>>) {
        let (ended, receiver) = watch::channel(None);
        (Host { published, ended, waiting: HashMap::new() }, receiver)
    }
}

/// Says once what was found.
fn log_synced(snapshot: &Snapshot) {
    let balancers = || snapshot.load_balancers.values();
    let those = |exists| -> Vec<&str> {
        balancers().filter(|lb| lb.exists == exists).map(|lb| lb.lb.as_str()).collect()
    };
    let (found, unread) = (those(Some(true)), those(None));
    let (services, pools) = (snapshot.services.len(), snapshot.pools.len());
    if !unread.is_empty() {
        let effect = "their pools are not written until they can be read; see lastError in /api/v1/status";
        tracing::warn!(load_balancers = ?found, ?unread, effect, services, pools, "synced without some load balancers");
    } else if found.is_empty() {
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
    let holder = holder.as_deref().unwrap_or("none");
    tracing::info!(role, %identity, holder, term = epoch.0, last_error = last_error.as_deref(), "leadership");
}

/// An event that is not posted leaves its words here (E1).
fn log_dropped(dropped: Dropped) {
    let Dropped { subject, severity, reason, message, why } = dropped;
    let about = match &subject {
        Subject::Service(service) => format!("Service {}", service.key),
        Subject::Node { name, .. } => format!("Node {name}"),
        Subject::Controller => "the controller".to_owned(),
    };
    let why = why.as_str();
    match severity {
        Severity::Warning => tracing::warn!(about, reason, text = %message, why, "an event is not posted"),
        Severity::Normal => tracing::info!(about, reason, text = %message, why, "an event is not posted"),
    }
}

/// Says what operators wish when that changes, that it cannot be read, and that a term waits for it (G6).
fn log_wishes(before: &Snapshot, after: &Snapshot) {
    let Some(WishesView { mode, wishes, returned, unreadable, term_waits, last_error }) = &after.wishes
    else {
        return;
    };
    let was = before.wishes.as_ref();
    // At first there are no wishes: that is not worth a line.
    let known = was.and_then(|was| was.wishes.clone()).unwrap_or_default();
    if let Some(wishes) = wishes
        && known != *wishes
    {
        let everything = wishes.everything.is_some();
        let pools: Vec<String> = wishes.pools.keys().map(ToString::to_string).collect();
        let services: Vec<String> = wishes.services.keys().map(ToString::to_string).collect();
        let by = wishes.everything.as_ref().and_then(|pause| pause.by.as_deref());
        tracing::info!(mode = mode.as_str(), everything, by, ?pools, ?services, "pauses");
    }
    let pauses = wishes.iter().flat_map(|wishes| wishes.pauses());
    for (scope, pause) in pauses.filter(|(scope, _)| returned.contains(scope)) {
        if was.is_none_or(|was| !was.returned.contains(&scope)) {
            let since = pause.since.and_then(|at| Timestamp::from_microsecond(at.as_micros()).ok());
            let since = since.map(tracing::field::display);
            let (by, reason) = (pause.by.as_deref(), pause.reason.as_deref());
            let remedy = "resume it, unless it is meant to be; where the API server's storage was set back, look whether \
                          pauses that were made since then are missing";
            tracing::warn!(?scope, since, by, reason, remedy, "a pause that had ended is back");
        }
    }
    for (key, why) in unreadable {
        if was.is_none_or(|was| !was.unreadable.contains(&(Arc::clone(key), why))) {
            let remedy = "correct or remove this key of the ConfigMap that is named like our Lease; see the admin API's \
                          documentation for what it must say";
            tracing::warn!(%key, why, remedy, "a note of a pause cannot be read");
        }
    }
    if let Some(why) = last_error
        && was.is_none_or(|was| was.last_error.is_none() || was.term_waits != *term_waits)
    {
        let remedy = "let the service account get, create and update the ConfigMap that is named like our Lease; until \
                      it can be read, no term of leadership begins, and pauses that others make are not seen";
        tracing::warn!(%why, nothing_is_written = term_waits, remedy, "pauses cannot be read");
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
                        log_wishes(&before, &snapshot);
                        admin_state::log(&before, &snapshot);
                    }
                    HostMessage::Quarantined(pool, broken) => {
                        let remedy = "this is an error of the controller: report it, and restart the controller to \
                                      try again; the other pools go on";
                        tracing::error!(%pool, broken, remedy, "a backend pool is quarantined");
                    }
                    HostMessage::EventDropped(dropped) => log_dropped(dropped),
                    HostMessage::NoticeIgnored(node, why) => admin_state::log_ignored(&node, why),
                    HostMessage::Answered(id, answer) => {
                        let gone = self.waiting.remove(&id).is_none_or(|waits| waits.send(answer).is_err());
                        if gone {
                            tracing::debug!(id = id.0, "a request was answered after its asker had left");
                        }
                    }
                    HostMessage::Done(free) => {
                        self.ended.send_replace(Some(free));
                    }
                }
            }
        }
    }
}

impl Handler<Await> for Host {
    type Result = ();

    fn handle(&mut self, Await { id, answer }: Await, _: &mut Self::Context) {
        self.waiting.retain(|_, waits| !waits.is_closed());
        self.waiting.insert(id, answer);
    }
}
