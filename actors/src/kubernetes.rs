//! The port to Kubernetes: opens the watchers' lists and watches, decodes their lines straight from the stream,
//! and creates events. Nothing else in the program writes to Kubernetes.

pub mod decode;
mod follow;
mod post;

use std::collections::HashMap;
use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};
use kube::Client;
use pool_core::ids::CallId;
use pool_core::object::Kind;
use pool_core::report::Subject;
use pool_core::route::{Delivery, KubernetesCall};
use pool_core::{events, watch};
use tokio::task::AbortHandle;

use crate::azure::Effects;
use crate::clock::Clock;
use crate::switchboard::{Deliver, End, Switchboard};

/// The port.
pub struct KubernetesPort {
    client: Client,
    effects: Effects,
    clock: Clock,
    reporter: Arc<str>,
    switchboard: Arc<Switchboard>,
    open: HashMap<Kind, AbortHandle>,
}

impl KubernetesPort {
    /// A port that calls through this client. `reporter` names this instance in events.
    #[must_use]
    pub fn new(
        client: Client,
        effects: Effects,
        clock: Clock,
        reporter: Arc<str>,
        switchboard: Arc<Switchboard>,
    ) -> KubernetesPort {
        KubernetesPort { client, effects, clock, reporter, switchboard, open: HashMap::new() }
    }

    fn open(&mut self, request: follow::Request) {
        let kind = request.kind;
        let watcher = WayBack { kind, recipient: self.switchboard.recipient(End::Watcher(kind)).clone() };
        let task = tokio::spawn(follow::follow(self.client.clone(), self.clock, request, watcher));
        if let Some(before) = self.open.insert(kind, task.abort_handle()) {
            before.abort();
        }
    }

    fn post(&self, call: CallId, event: Arc<events::Event>) {
        let (client, clock, reporter) = (self.client.clone(), self.clock, Arc::clone(&self.reporter));
        let (effects, emitter) = (self.effects, self.switchboard.events.clone());
        drop(tokio::spawn(async move {
            let failure = match effects {
                Effects::Carried => post::create(&client, &event, &reporter, clock.wall()).await.err(),
                Effects::Withheld => Some(events::PostFailure::Withheld),
            };
            log_event(&event, effects, failure.as_ref());
            let delivery = Delivery::Events(events::In::Posted { call, failure });
            if emitter.send(Deliver(vec![delivery])).await.is_err() {
                tracing::debug!("an event was posted after the emitter had stopped");
            }
        }));
    }
}

/// What is told to people stands in the log too: cares at info, all else at debug.
fn log_event(event: &events::Event, effects: Effects, failure: Option<&events::PostFailure>) {
    let events::Event { subject, severity, reason, message } = event;
    let about = match subject {
        Subject::Service(service) => format!("Service {}", service.key),
        Subject::Node { name, .. } => format!("Node {name}"),
    };
    let posted = effects == Effects::Carried;
    match failure {
        None | Some(events::PostFailure::Withheld) => match severity {
            events::Severity::Warning => tracing::info!(about, reason, text = %message, posted, "event"),
            events::Severity::Normal => tracing::debug!(about, reason, text = %message, posted, "event"),
        },
        Some(events::PostFailure::Transient(retry_after)) => {
            tracing::info!(
                about,
                reason,
                ?retry_after,
                "the API server did not take an event; it is tried again"
            );
        }
        Some(events::PostFailure::Final(why)) => {
            let remedy = "let the service account create events in all namespaces";
            tracing::warn!(about, reason, text = %message, %why, remedy, "the API server refuses an event");
        }
    }
}

/// The way back from a request's task to its watcher.
pub(crate) struct WayBack {
    kind: Kind,
    recipient: Recipient<Deliver>,
}

impl WayBack {
    /// Tells the watcher and waits until it has heard; false when it is gone.
    pub(crate) async fn tell(&self, input: watch::In) -> bool {
        self.recipient.send(Deliver(vec![Delivery::Watcher(self.kind, input)])).await.is_ok()
    }
}

impl Actor for KubernetesPort {
    type Context = Context<Self>;

    fn stopped(&mut self, _: &mut Self::Context) {
        for task in self.open.values() {
            task.abort();
        }
    }
}

impl Handler<Deliver> for KubernetesPort {
    type Result = ();

    fn handle(&mut self, Deliver(deliveries): Deliver, _: &mut Self::Context) {
        for delivery in deliveries {
            if let Delivery::Kubernetes(call) = delivery {
                match call {
                    KubernetesCall::Open { call, kind, ask } => {
                        self.open(follow::Request { call, kind, ask })
                    }
                    KubernetesCall::Post { call, event } => self.post(call, event),
                }
            }
        }
    }
}
