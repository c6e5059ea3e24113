//! The port to Kubernetes. It runs the lists and watches of the watchers, and decodes their lines. It creates Events,
//! patches the taint of nodes that are evicted, and reads and writes the two Leases and our ConfigMap. It counts the
//! lock failures that the cloud-controller-manager reports. It requests reviews of clients of the admin API from the
//! API server. No other part of the program writes to Kubernetes.

mod config_map;
mod decode;
mod deployment;
mod event_stream;
mod lease;
mod lock_failures;
mod object_api;
mod post;
#[cfg(test)]
mod raw;
mod review;
pub mod sanitize;
mod server_clock;
mod taint;
mod watch_stream;

use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, AsyncContext, Context, Handler, Message, Recipient};
use coordination::{leader, pauses};
use kube::Client;
use model::config_map::{ConfigMapRequest, ConfigMapRequester};
use model::ids::CallId;
use model::lease::{LeaseAnswer, LeaseName, LeaseRequest};
use model::machine::Now;
use model::object::{Kind, TaintAnswer, TaintPatch};
use pool_core::route::{Delivery, KubernetesCall};
use reporting::events;
use sources::watch;
use tokio::task::AbortHandle;

use crate::address_book::{AddressBook, Deliver, End};
use crate::azure::Effects;
use crate::clock::Clock;
pub use config_map::{ConfigMapEntry, facts as config_map_facts, send_config_map_request, store_entry};
pub use deployment::named as deployment_named;
pub use event_stream::{EventPublisher, EventSubscription, Object, PublishedEvent};
pub use lease::{LeaseNames, send_lease_request};
use lock_failures::LockFailureCounter;
pub use object_api::NamespacedName;
use object_api::ObjectApi;
pub use post::{Pod, Reporter};
pub use review::{Reviewer, Verdict};

/// The port.
pub struct KubernetesPort {
    client: Client,
    effects: Effects,
    clock: Clock,
    reporter: Reporter,
    events: EventPublisher,
    address_book: Arc<AddressBook>,
    open: HashMap<Kind, AbortHandle>,
    own: LeasePort,
    shared: LeasePort,
    config_map: config_map::ConfigMapClient,
    taints: taint::TaintClient,
    patch_log: taint::PatchLog,
    lock_failures: LockFailureCounter,
    /// The search for our Deployment.
    search: Option<AbortHandle>,
}

/// The client of one Lease, and the state of its log lines.
struct LeasePort {
    client: lease::LeaseClient,
    log: lease::LeaseLog,
}

/// A request about a Lease was answered.
#[derive(Message)]
#[rtype(result = "()")]
struct LeaseAnswered {
    lease: LeaseName,
    kind: lease::LeaseRequestKind,
    answer: LeaseAnswer,
}

/// A patch of a node's taints was answered.
#[derive(Message)]
#[rtype(result = "()")]
struct Patched {
    patch: TaintPatch,
    answer: TaintAnswer,
}

impl KubernetesPort {
    /// Creates a port that calls through this client. `reporter` signs events, and `publisher` passes them to
    /// listeners. `lease_names` names both Leases; our ConfigMap has the namespace and name of our own Lease.
    #[must_use]
    pub fn new(
        client: Client,
        effects: Effects,
        clock: Clock,
        (reporter, publisher): (Reporter, EventPublisher),
        lease_names: LeaseNames,
        address_book: Arc<AddressBook>,
    ) -> KubernetesPort {
        let api_of = |kind, name| ObjectApi { client: client.clone(), effects, kind, name };
        let port_of = |lease: LeaseName, name: NamespacedName| LeasePort {
            client: lease::LeaseClient { api: api_of(object_api::Kind::Lease, name), clock, lease },
            log: lease::LeaseLog::default(),
        };
        let config_map = config_map::ConfigMapClient {
            api: api_of(object_api::Kind::ConfigMap, lease_names.own.clone()),
            clock,
        };
        let (own, shared) =
            (port_of(LeaseName::Own, lease_names.own), port_of(LeaseName::Shared, lease_names.shared));
        let taints = taint::TaintClient { client: client.clone(), effects };
        let (open, lock_failures) = (HashMap::new(), LockFailureCounter::new(client.clone()));
        KubernetesPort {
            client,
            effects,
            clock,
            reporter,
            events: publisher,
            address_book,
            open,
            own,
            shared,
            config_map,
            taints,
            patch_log: taint::PatchLog::default(),
            lock_failures,
            search: None,
        }
    }

    /// Looks for the Deployment that events about this process are attached to. A process that writes no events does
    /// not need it.
    fn search(&mut self, port: Recipient<deployment::DeploymentFound>) {
        match (self.effects, self.reporter.deployment().cloned()) {
            (Effects::Withheld, _) => {}
            (Effects::Carried, None) => deployment::log_unnamed(),
            (Effects::Carried, Some(name)) => {
                let search = deployment::find(self.client.clone(), self.clock, name, port);
                self.search = Some(tokio::spawn(search).abort_handle());
            }
        }
    }

    fn lease_port(&mut self, lease: LeaseName) -> &mut LeasePort {
        match lease {
            LeaseName::Own => &mut self.own,
            LeaseName::Shared => &mut self.shared,
        }
    }

    /// Sends a request about a Lease immediately: the machine counts its hold from this moment.
    fn lease(
        &mut self,
        call: CallId,
        lease: LeaseName,
        request: LeaseRequest,
        port: Recipient<LeaseAnswered>,
    ) {
        let address_book = Arc::clone(&self.address_book);
        let kind = lease::LeaseRequestKind::from(&request);
        let lease_port = self.lease_port(lease);
        lease_port.log.record_request(&kind);
        let client = lease_port.client.clone();
        drop(tokio::spawn(async move {
            let answer = client.send(request).await;
            let (delivery, machine) = match lease {
                LeaseName::Own => {
                    (Delivery::Leader(leader::In::Lease(call, answer.clone())), &address_book.leader)
                }
                LeaseName::Shared => {
                    (Delivery::Writer(writer::In::Lease(call, answer.clone())), &address_book.writer)
                }
            };
            // A process may end as soon as its machine knows that a Lease is released, so the log line comes first.
            let is_release = kind == lease::LeaseRequestKind::Release;
            let answered = LeaseAnswered { lease, kind, answer };
            let delivered = if is_release {
                let logged = port.send(answered).await;
                machine.send(Deliver(vec![delivery])).await.and(logged)
            } else {
                machine.send(Deliver(vec![delivery])).await.and(port.send(answered).await)
            };
            if delivered.is_err() {
                tracing::debug!(lease = lease.as_str(), "dropped a Lease response: the receiver has stopped");
            }
        }));
    }

    fn config_map(&self, requester: ConfigMapRequester, call: CallId, request: ConfigMapRequest) {
        let client = self.config_map.clone();
        let machine = match requester {
            ConfigMapRequester::Pauses => self.address_book.pauses.clone(),
            ConfigMapRequester::AdminState => self.address_book.admin_state.clone(),
        };
        drop(tokio::spawn(async move {
            let answer = client.send(request).await;
            let delivery = match requester {
                ConfigMapRequester::Pauses => Delivery::Pauses(pauses::In::ConfigMap(call, answer)),
                ConfigMapRequester::AdminState => Delivery::AdminState(nodes::In::ConfigMap(call, answer)),
            };
            if machine.send(Deliver(vec![delivery])).await.is_err() {
                tracing::debug!("dropped a ConfigMap response: the receiver has stopped");
            }
        }));
    }

    fn taint(&self, call: CallId, patch: TaintPatch, port: Recipient<Patched>) {
        let client = self.taints.clone();
        let machine = self.address_book.admin_state.clone();
        drop(tokio::spawn(async move {
            let answer = client.apply(&patch).await;
            let delivery = Delivery::AdminState(nodes::In::Tainted(call, answer.clone()));
            let delivered = machine.send(Deliver(vec![delivery])).await;
            if delivered.is_err() || port.send(Patched { patch, answer }).await.is_err() {
                tracing::debug!("dropped a taint response: the receiver has stopped");
            }
        }));
    }

    fn count_lock_failures(&self, call: CallId, since: Now) {
        let (counter, since) = (self.lock_failures.clone(), self.clock.timestamp_of(since));
        let writer = self.address_book.writer.clone();
        drop(tokio::spawn(async move {
            let count = counter.count(since).await;
            let delivery = Delivery::Writer(writer::In::LockFailures(call, count));
            if writer.send(Deliver(vec![delivery])).await.is_err() {
                tracing::debug!("dropped a count of lock failures: the writer has stopped");
            }
        }));
    }

    fn open(&mut self, watch_call: watch_stream::WatchCall) {
        let kind = watch_call.kind;
        let recipient = self.address_book.recipient(End::Watcher(kind)).clone();
        let watcher = WatcherRoute { kind, recipient, writer: self.address_book.writer.clone() };
        let task = tokio::spawn(watch_stream::follow(self.client.clone(), self.clock, watch_call, watcher));
        if let Some(before) = self.open.insert(kind, task.abort_handle()) {
            before.abort();
        }
    }

    fn post(&mut self, call: CallId, event: Arc<events::Event>) {
        self.events.publish(post::object_of(&event.subject, &self.reporter), &event);
        let (client, clock, reporter) = (self.client.clone(), self.clock, self.reporter.clone());
        let (effects, emitter) = (self.effects, self.address_book.events.clone());
        drop(tokio::spawn(async move {
            let answer = match effects {
                Effects::Carried => post::write(&client, clock, &reporter, &event).await,
                Effects::Withheld => Err(events::PostFailure::Withheld),
            };
            post::log(&event, effects == Effects::Carried, answer.as_ref().err());
            let delivery = Delivery::Events(events::In::Posted { call, answer });
            if emitter.send(Deliver(vec![delivery])).await.is_err() {
                tracing::debug!("dropped the result of an Event: the emitter has stopped");
            }
        }));
    }
}

/// Sends lines from a watch task to its watcher, and changes to the writer, which receives them first.
pub(crate) struct WatcherRoute {
    kind: Kind,
    recipient: Recipient<Deliver>,
    writer: Recipient<Deliver>,
}

impl WatcherRoute {
    /// Sends an input to the watcher and waits until it is handled; returns false if the watcher has ended.
    pub(crate) async fn send(&self, input: watch::In) -> bool {
        self.recipient.send(Deliver(vec![Delivery::Watcher(self.kind, input)])).await.is_ok()
    }
}

impl Actor for KubernetesPort {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.search(ctx.address().recipient());
    }

    fn stopped(&mut self, _: &mut Self::Context) {
        for task in self.open.values().chain(&self.search) {
            task.abort();
        }
    }
}

impl Handler<LeaseAnswered> for KubernetesPort {
    type Result = ();

    fn handle(&mut self, LeaseAnswered { lease, kind, answer }: LeaseAnswered, _: &mut Self::Context) {
        let lease_port = self.lease_port(lease);
        lease_port.log.record_answer(lease, &lease_port.client.api.name, &kind, &answer);
    }
}

impl Handler<Patched> for KubernetesPort {
    type Result = ();

    fn handle(&mut self, Patched { patch, answer }: Patched, _: &mut Self::Context) {
        self.patch_log.record(&patch, &answer);
    }
}

impl Handler<deployment::DeploymentFound> for KubernetesPort {
    type Result = ();

    fn handle(
        &mut self,
        deployment::DeploymentFound(uid): deployment::DeploymentFound,
        _: &mut Self::Context,
    ) {
        self.reporter.set_deployment_uid(uid);
    }
}

impl Handler<Deliver> for KubernetesPort {
    type Result = ();

    fn handle(&mut self, Deliver(deliveries): Deliver, ctx: &mut Self::Context) {
        for delivery in deliveries {
            if let Delivery::Kubernetes(call) = delivery {
                match call {
                    KubernetesCall::Open { call, kind, request, given_up } => {
                        if let Some(reason) = given_up {
                            watch_stream::log_given_up(kind, &reason);
                        }
                        self.open(watch_stream::WatchCall { call, kind, request })
                    }
                    KubernetesCall::Lease { call, lease, request } => {
                        self.lease(call, lease, request, ctx.address().recipient());
                    }
                    KubernetesCall::ConfigMap { requester, call, request } => {
                        self.config_map(requester, call, request)
                    }
                    KubernetesCall::Taint { call, patch } => {
                        self.taint(call, patch, ctx.address().recipient())
                    }
                    KubernetesCall::CountLockFailures { call, since } => {
                        self.count_lock_failures(call, since);
                    }
                    KubernetesCall::Post { call, event } => self.post(call, event),
                }
            }
        }
    }
}
