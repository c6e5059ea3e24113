//! Reads the Deployment that owns this Pod, until it is found, and logs when it cannot be read (E1). A machine decides
//! about retries.

use std::sync::Arc;

use actix::{Message, Recipient};
use http::{Method, StatusCode};
use kube::Client;
use model::machine::Machine as _;
use model::object::{REQUEST_TIMEOUT, RequestFailure};
use pool_core::deployment::{Deployment, Failure, In, Out};
use serde::Deserialize;

use super::object_api::{NamespacedName, exchange, no_answer, other, refusal};
use super::watch_stream::escaped;
use crate::clock::Clock;

/// The UID of the Deployment.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct DeploymentFound(pub(super) Arc<str>);

/// Returns the name of the Deployment from the variables `POD_NAMESPACE` and `DEPLOYMENT_NAME`; `None` unless both are
/// set.
#[must_use]
pub fn named(value: impl Fn(&str) -> Option<String>) -> Option<NamespacedName> {
    let of = |variable| value(variable).filter(|value| !value.is_empty()).map(Arc::from);
    Some(NamespacedName { namespace: of("POD_NAMESPACE")?, name: of("DEPLOYMENT_NAME")? })
}

/// Reads the Deployment until it is found, and sends its UID to `port`.
pub(super) async fn find(
    client: Client,
    clock: Clock,
    name: NamespacedName,
    port: Recipient<DeploymentFound>,
) {
    let (mut machine, mut outputs) = (Deployment::default(), Vec::new());
    machine.step(clock.now(), In::Start, &mut outputs);
    loop {
        for output in std::mem::take(&mut outputs) {
            match output {
                Out::Get => {
                    let answer = request(&client, &name).await;
                    machine.step(clock.now(), In::Answered(answer), &mut outputs);
                }
                Out::Found(uid) => {
                    tracing::info!(deployment = %name, "events about this controller are attached to its Deployment");
                    if port.send(DeploymentFound(uid)).await.is_err() {
                        tracing::debug!("the Deployment was found after the end");
                    }
                }
                Out::Missing(failure) => log_missing(&name, failure),
            }
        }
        if outputs.is_empty() {
            let Some(at) = machine.deadline() else { return };
            tokio::time::sleep(at.since(clock.now())).await;
            machine.tick(clock.now(), &mut outputs);
        }
    }
}

async fn request(client: &Client, name: &NamespacedName) -> Result<Arc<str>, Failure> {
    let (namespace, name) = (escaped(&name.namespace), escaped(&name.name));
    let path = format!("/apis/apps/v1/namespaces/{namespace}/deployments/{name}");
    let answer = tokio::time::timeout(REQUEST_TIMEOUT, exchange(client, Method::GET, path, Vec::new())).await;
    let (status, body) = answer.unwrap_or_else(|_| Err(no_answer())).map_err(failure)?;
    match status {
        StatusCode::NOT_FOUND => Err(Failure::Absent),
        status if status.is_success() => {
            let read = serde_json::from_slice::<Object>(&body)
                .map_err(|error| failure(other(&error.to_string())))?;
            Ok(Arc::from(read.metadata.uid))
        }
        status => Err(failure(refusal(status, &body))),
    }
}

fn failure(reason: RequestFailure) -> Failure {
    match reason {
        RequestFailure::Denied(reason) => Failure::Denied(reason),
        RequestFailure::Other(reason) => Failure::Other(reason),
    }
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    uid: String,
}

fn log_missing(name: &NamespacedName, failure: Failure) {
    let (reason, remedy) = match failure {
        Failure::Absent => (
            Arc::from("there is no such Deployment"),
            "set DEPLOYMENT_NAME to the name of this Pod's Deployment, or remove the variable if there is none",
        ),
        Failure::Denied(reason) => {
            (reason, "let the service account get this Deployment (apps/v1), as docs/rbac.yaml has it")
        }
        Failure::Other(reason) => (reason, "none: the request is retried"),
    };
    tracing::warn!(
        deployment = %name,
        %reason,
        remedy,
        "failed to read the Deployment of the controller, so Events about it are attached to its Pod or Lease"
    );
}

/// Logs that no Deployment is configured for this process.
pub(super) fn log_unnamed() {
    let remedy = "in a Deployment, set DEPLOYMENT_NAME and POD_NAMESPACE, as the chart does";
    tracing::debug!(
        remedy,
        "DEPLOYMENT_NAME is not set, so Events about the controller are attached to its Pod or Lease"
    );
}

#[cfg(test)]
mod tests;
