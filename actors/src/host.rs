//! Publishes the snapshot, delivers answers to operators, and reports how the Leader has ended.

mod admin_state;

use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, Context, Handler, Message};
use arc_swap::ArcSwap;
use coordination::leader::{ReleasedLeases, StorageRollback};
use model::operator_request::{Answer, RequestId};
use model::report::Subject;
use model::view::{LeadershipView, PolicyView, Snapshot};
use pool_core::route::{Delivery, HostMessage};
use reporting::events::{Dropped, Severity};
use tokio::sync::{oneshot, watch};

use crate::address_book::Deliver;
use crate::kubernetes::NamespacedName;

/// The cell that HTTP handlers on their own threads read; one of the two named exceptions to "one owner".
pub type Published = Arc<ArcSwap<Snapshot>>;

/// The actor that replaces the snapshot and delivers answers.
pub struct Host {
    published: Published,
    /// Namespace and name of our own Lease.
    lease: NamespacedName,
    /// The end of the Leader; `None` while it runs.
    ended: watch::Sender<Option<End>>,
    /// Callers that wait for the answer to an operator request.
    waiting: HashMap<RequestId, oneshot::Sender<Answer>>,
}

/// The end of the Leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Shutdown, with these Leases free.
    Shutdown(ReleasedLeases),
    /// The API server's storage was restored to an older state: the process must end.
    StorageRollback,
}

/// Registers a caller that waits for the answer to an operator request. The request is sent to its machine after this
/// message is handled.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct AwaitAnswer {
    /// Id of the request.
    pub id: RequestId,
    /// Receiver of the answer; closed if the caller no longer waits.
    pub answer: oneshot::Sender<Answer>,
}

impl Host {
    /// Creates a host for this cell and our own Lease, by its namespace and name. The returned receiver gets the end of
    /// the Leader.
    #[must_use]
    pub fn new(published: Published, lease: NamespacedName) -> (Host, watch::Receiver<Option<End>>) {
        let (ended, receiver) = watch::channel(None);
        (Host { published, lease, ended, waiting: HashMap::new() }, receiver)
    }
}

/// Logs the result of the first lists, once.
fn log_synced(snapshot: &Snapshot) {
    let balancers = || snapshot.load_balancers.values();
    let those = |exists| -> Vec<&str> {
        balancers().filter(|lb| lb.exists == exists).map(|lb| lb.lb.as_str()).collect()
    };
    let (found, unread) = (those(Some(true)), those(None));
    let (services, pools) = (snapshot.services.len(), snapshot.pools.len());
    if !unread.is_empty() {
        let effect =
            "their pools are not written until they can be read; lastError in /api/v1/status has the reason";
        tracing::warn!(load_balancers = ?found, ?unread, effect, services, pools,
            "synced, but some load balancers could not be read");
    } else if found.is_empty() {
        let looked_for: Vec<&str> = balancers().map(|lb| lb.lb.as_str()).collect();
        let remedy = "none if no Service needs a load balancer; otherwise check clusterName, loadBalancerName, \
                      multipleStandardLoadBalancerConfigurations and the resource group";
        tracing::warn!(?looked_for, services, remedy, "synced, but no managed load balancer exists");
    } else {
        tracing::info!(load_balancers = ?found, services, pools, "synced");
    }
}

/// Logs when this process starts or stops leading, and why it waits in between.
fn log_leadership(before: &Snapshot, after: &Snapshot) {
    let Some(now) = &after.leadership else { return };
    if before.leadership.as_ref().is_some_and(|before| before.role == now.role) {
        return;
    }
    let LeadershipView { identity, role, holder, epoch, last_error, .. } = now;
    let holder = holder.as_deref().unwrap_or("none");
    tracing::info!(role, %identity, holder, term = epoch.0, last_error = last_error.as_deref(), "leadership");
}

/// Logs that the process ends because the storage of the API server was restored (W8).
fn log_rollback(lease: &NamespacedName, StorageRollback { known, read }: &StorageRollback) {
    let effect = "this process stops writing and ends with exit code 1; guards apply to the removals of the next process";
    let remedy = "none in the cluster: the kubelet restarts the controller, which lists everything again; if a command \
                  ended with this error, run it again";
    tracing::error!(%lease, known = &*known.0, read = &*read.0, effect, remedy,
        "the API server's storage was restored to an earlier state");
}

/// Logs the text of an event that is not created (E1).
fn log_dropped(dropped: Dropped) {
    let Dropped { subject, severity, reason, message, cause } = dropped;
    let about = match &subject {
        Subject::Service(service) => format!("Service {}", service.key),
        Subject::Node { name, .. } => format!("Node {name}"),
        Subject::Controller => "the controller".to_owned(),
    };
    let cause = cause.as_str();
    match severity {
        Severity::Warning => {
            tracing::warn!(about, reason, text = %message, cause, "dropped a Kubernetes Event")
        }
        // A burst of writes drops many of these events, and each write has its own line.
        Severity::Normal => {
            tracing::debug!(about, reason, text = %message, cause, "dropped a Kubernetes Event")
        }
    }
}

/// Logs changes of the policy, failures to read it, and a term that waits for it (G6).
fn log_policy(config_map: &NamespacedName, before: &Snapshot, after: &Snapshot) {
    let Some(PolicyView { mode, policy, unreadable, leader_waits, last_error }) = &after.policy else {
        return;
    };
    let was = before.policy.as_ref();
    // The first state is an empty policy, which is not logged.
    let known = was.and_then(|was| was.policy.clone()).unwrap_or_default();
    if let Some(policy) = policy
        && known != *policy
    {
        let everything = policy.everything.is_some();
        let pools: Vec<String> = policy.pools.keys().map(ToString::to_string).collect();
        let services: Vec<String> = policy.services.keys().map(ToString::to_string).collect();
        let by = policy.everything.as_ref().and_then(|pause| pause.by.as_deref());
        tracing::info!(mode = mode.as_str(), everything, by, ?pools, ?services, "pauses");
    }
    for (key, reason) in unreadable {
        if was.is_none_or(|was| !was.unreadable.contains(&(Arc::clone(key), reason))) {
            // A value that is not text still pauses everything.
            let is_everything = key.eq_ignore_ascii_case("pause.everything");
            let effect = if is_everything { "everything is paused" } else { "this pause has no effect" };
            let remedy = "correct or remove this key of the ConfigMap; docs/admin-api.md has its format";
            tracing::warn!(%config_map, %key, reason, effect, remedy, "failed to read a pause");
        }
    }
    if let Some(reason) = last_error
        && was.is_none_or(|was| was.last_error.is_none() || was.leader_waits != *leader_waits)
    {
        let effect = "until they can be read, no new leader writes, and new pauses have no effect";
        let remedy = "let the service account get, create and update this ConfigMap";
        tracing::warn!(%config_map, %reason, writes_blocked = leader_waits, effect, remedy, "failed to read the pauses");
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
                        // The controller's ConfigMap has the namespace and the name of its own Lease.
                        log_policy(&self.lease, &before, &snapshot);
                        admin_state::log(&self.lease, &before, &snapshot);
                    }
                    HostMessage::Quarantined(pool, invariant) => {
                        let effect = "its members stay as they are; other pools are not affected";
                        let remedy = "this is a bug in the controller: report it, and restart the controller to write \
                                      the pool again";
                        tracing::error!(%pool, invariant, effect, remedy,
                            "stopped writing a backend pool after an internal error");
                    }
                    HostMessage::EventDropped(dropped) => log_dropped(dropped),
                    HostMessage::NoticeIgnored(node, reason) => admin_state::log_ignored(&node, reason),
                    HostMessage::Answered(id, answer) => {
                        let is_closed =
                            self.waiting.remove(&id).is_none_or(|caller| caller.send(answer).is_err());
                        if is_closed {
                            tracing::debug!(id = id.0, "a request was answered after its caller had left");
                        }
                    }
                    HostMessage::Done(free) => {
                        self.ended.send_replace(Some(End::Shutdown(free)));
                    }
                    HostMessage::StorageRollback(rollback) => {
                        log_rollback(&self.lease, &rollback);
                        self.ended.send_replace(Some(End::StorageRollback));
                    }
                }
            }
        }
    }
}

impl Handler<AwaitAnswer> for Host {
    type Result = ();

    fn handle(&mut self, AwaitAnswer { id, answer }: AwaitAnswer, _: &mut Self::Context) {
        self.waiting.retain(|_, caller| !caller.is_closed());
        self.waiting.insert(id, answer);
    }
}
