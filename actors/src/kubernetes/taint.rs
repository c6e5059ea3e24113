//! Patches the taint of nodes that are evicted (N1). For the API server, the list of taints is one value, and a
//! client that replaces it loses concurrent changes. So each patch names one position and tests its assumptions, and
//! the server refuses it if they no longer hold.

use http::{Method, StatusCode};
use kube::Client;
use model::object::{REQUEST_TIMEOUT, RequestFailure, TaintAnswer, TaintEdit, TaintPatch};
use model::signals::{DRAINING, EFFECT, SPOT_EVICTION};
use serde_json::{Value, json};
use tracing::Instrument;

use super::object_api::{exchange_of, no_answer, object_in, refusal};
use super::sanitize::status_text;
use super::watch_stream::escaped;
use crate::azure::Effects;

const JSON_PATCH: &str = "application/json-patch+json";

/// Sends patches. Each is sent immediately and lasts at most [`REQUEST_TIMEOUT`].
#[derive(Clone)]
pub(super) struct TaintClient {
    pub(super) client: Client,
    pub(super) effects: Effects,
}

impl TaintClient {
    /// Sends one patch; every failure is an answer too.
    pub(super) async fn apply(&self, patch: &TaintPatch) -> TaintAnswer {
        match self.effects {
            Effects::Carried => {}
            Effects::Withheld => return TaintAnswer::Withheld,
        }
        let span = tracing::info_span!("taint", node = %patch.node, edit = ?patch.edit);
        self.send(patch).instrument(span).await
    }

    async fn send(&self, patch: &TaintPatch) -> TaintAnswer {
        let path = format!("/api/v1/nodes/{}", escaped(patch.node.as_str()));
        let body = json_patch(patch).to_string().into_bytes();
        let request = exchange_of(&self.client, Method::PATCH, path, JSON_PATCH, body);
        let answer = tokio::time::timeout(REQUEST_TIMEOUT, request).await;
        match answer.unwrap_or_else(|_| Err(no_answer())) {
            Ok((status, body)) if status.is_success() => match object_in(status, &body) {
                Ok(_) => TaintAnswer::Done,
                Err(failure) => TaintAnswer::Failed(failure),
            },
            // 422: a test has failed, or the taint exists already.
            Ok((status @ (StatusCode::CONFLICT | StatusCode::UNPROCESSABLE_ENTITY), body)) => {
                tracing::debug!(reason = %status_text(status, &body), "a node has changed since it was read");
                TaintAnswer::Overtaken
            }
            Ok((StatusCode::NOT_FOUND, _)) => TaintAnswer::Gone,
            Ok((status, body)) => TaintAnswer::Failed(refusal(status, &body)),
            Err(failure) => TaintAnswer::Failed(failure),
        }
    }
}

/// Builds the patch (RFC 6902). Appending needs no version, because it leaves the existing taints unchanged.
fn json_patch(patch: &TaintPatch) -> Value {
    let test = |path: &str, value: &str| json!({ "op": "test", "path": path, "value": value });
    let add = |path: &str, value: Value| json!({ "op": "add", "path": path, "value": value });
    let uid = test("/metadata/uid", patch.uid.as_str());
    // A missing value compares as null.
    let none = json!({ "op": "test", "path": "/spec/taints", "value": null });
    let ours = json!({ "key": DRAINING, "value": SPOT_EVICTION, "effect": EFFECT });
    match patch.edit {
        TaintEdit::AddTo => json!([uid, add("/spec/taints/-", ours)]),
        TaintEdit::AddFirst => json!([uid, none, add("/spec/taints", json!([ours]))]),
        TaintEdit::Remove { at } => {
            let pointer = format!("/spec/taints/{at}");
            let test_field =
                |field: &str| test(&format!("{pointer}/{field}"), ours[field].as_str().unwrap_or_default());
            json!([uid, test_field("key"), test_field("value"), test_field("effect"), { "op": "remove", "path": pointer }])
        }
    }
}

/// State of the log lines about patches.
#[derive(Default)]
pub(super) struct PatchLog {
    state: FailureState,
}

/// The logged failure of patches, in ascending order of severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
enum FailureState {
    #[default]
    Nothing,
    Failing,
    Denied,
}

impl From<&RequestFailure> for FailureState {
    fn from(failure: &RequestFailure) -> FailureState {
        match failure {
            RequestFailure::Denied(_) => FailureState::Denied,
            RequestFailure::Other(_) => FailureState::Failing,
        }
    }
}

impl PatchLog {
    /// Logs the result of a patch: each success, and each cause of failure once.
    pub(super) fn record(&mut self, patch: &TaintPatch, answer: &TaintAnswer) {
        let (node, change) = (&patch.node, change_text(patch.edit));
        match answer {
            TaintAnswer::Done => {
                tracing::info!(%node, change, taint = DRAINING, "patched the taints of a node");
            }
            TaintAnswer::Withheld => {
                tracing::info!(%node, change, taint = DRAINING, "a dry run patches no taints");
            }
            TaintAnswer::Overtaken | TaintAnswer::Gone => {
                tracing::debug!(%node, change, ?answer, "the taints of a node were not patched");
            }
            TaintAnswer::Failed(failure) => {
                if self.is_new(failure) {
                    log_failure(patch, failure);
                } else {
                    tracing::debug!(%node, change, ?failure, "the taints of a node were not patched");
                }
            }
        }
        self.state = match answer {
            TaintAnswer::Done | TaintAnswer::Overtaken | TaintAnswer::Gone => FailureState::Nothing,
            TaintAnswer::Withheld => self.state,
            TaintAnswer::Failed(failure) => self.state.max(failure.into()),
        };
    }

    /// Returns whether a failure was not logged yet.
    fn is_new(&self, failure: &RequestFailure) -> bool {
        FailureState::from(failure) > self.state
    }
}

fn change_text(edit: TaintEdit) -> &'static str {
    match edit {
        TaintEdit::AddTo | TaintEdit::AddFirst => "add",
        TaintEdit::Remove { .. } => "remove",
    }
}

fn log_failure(patch: &TaintPatch, failure: &RequestFailure) {
    let (node, change) = (&patch.node, change_text(patch.edit));
    match failure {
        RequestFailure::Denied(reason) => {
            let effect = "nodes with an eviction notice are taken out of traffic, but not tainted";
            let remedy = "let the service account patch nodes";
            tracing::warn!(%node, change, %reason, effect, remedy,
                "the API server denies patching the taints of a node");
        }
        RequestFailure::Other(reason) => {
            let remedy = "check that the API server is up and reachable; the patch is retried";
            tracing::warn!(%node, change, %reason, remedy, "failed to patch the taints of a node");
        }
    }
}

#[cfg(test)]
mod tests;
