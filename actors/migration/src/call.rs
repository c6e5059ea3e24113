//! Calls to Azure Resource Manager, their replies, and the classification of replies.

use std::time::Duration;

use model::redact::safe_line;
use serde_json::Value;

use crate::json::{items, text};
use crate::resource_id::ResourceId;

/// The version of the network API that this crate was written for; see [`Call::with_network_version`].
const NETWORK_VERSION: &str = "2025-05-01";
const COMPUTE_VERSION: &str = "2025-04-01";
const AUTHORIZATION_VERSION: &str = "2022-04-01";
const LOCKS_VERSION: &str = "2016-09-01";
const RESOURCES_VERSION: &str = "2021-04-01";

/// Maximum length of a message of Azure in texts, in bytes.
const MAX_MESSAGE_BYTES: usize = 1024;

/// The HTTP method of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates or replaces.
    Put,
    /// Deletes.
    Delete,
    /// Starts an action.
    Post,
}

/// Target of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Address {
    /// A path with its query, below the endpoint of the cloud.
    Path(String),
    /// A URL from an answer of Azure: the next page of a list, or an operation.
    Url(String),
}

/// One call.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The method.
    pub method: Method,
    /// Target of the call.
    pub address: Address,
    /// The body of a PUT or a POST.
    pub body: Option<Value>,
    /// The required entity tag of the replaced body.
    pub if_match: Option<String>,
}

impl Call {
    /// Returns a call that reads a resource or lists a collection.
    #[must_use]
    pub fn get(id: &ResourceId) -> Call {
        Call::of(Method::Get, path(id, ""))
    }

    /// Returns a call that reads with a query, such as `ipAddress=10.0.0.4`.
    #[must_use]
    pub fn get_with(id: &ResourceId, query: &str) -> Call {
        Call::of(Method::Get, path(id, query))
    }

    /// Returns a call that follows a `nextLink` or an operation URL.
    #[must_use]
    pub fn follow(url: impl Into<String>) -> Call {
        Call { method: Method::Get, address: Address::Url(url.into()), body: None, if_match: None }
    }

    /// Returns a call that replaces a resource.
    #[must_use]
    pub fn put(id: &ResourceId, body: Value, if_match: Option<String>) -> Call {
        Call { body: Some(body), if_match, ..Call::of(Method::Put, path(id, "")) }
    }

    /// Returns a call that deletes a resource.
    #[must_use]
    pub fn delete(id: &ResourceId) -> Call {
        Call::of(Method::Delete, path(id, ""))
    }

    /// Returns a call that starts an action of a resource.
    #[must_use]
    pub fn post(id: &ResourceId, body: Value) -> Call {
        Call { body: Some(body), ..Call::of(Method::Post, path(id, "")) }
    }

    /// Returns whether this call can change something.
    #[must_use]
    pub fn writes(&self) -> bool {
        match self.method {
            Method::Get => false,
            Method::Put | Method::Delete | Method::Post => true,
        }
    }

    /// Returns the same call with this version of the network API, for a cloud without the default version. Calls to
    /// other providers and to Azure's URLs keep their versions.
    #[must_use]
    pub fn with_network_version(self, version: &str) -> Call {
        let address = match self.address {
            Address::Path(path) => {
                Address::Path(path.replacen(&versioned(NETWORK_VERSION), &versioned(version), 1))
            }
            url @ Address::Url(_) => url,
        };
        Call { address, ..self }
    }

    fn of(method: Method, path: String) -> Call {
        Call { method, address: Address::Path(path), body: None, if_match: None }
    }
}

fn path(id: &ResourceId, query: &str) -> String {
    let lower = id.as_str().to_ascii_lowercase();
    let provider = lower.rfind("/providers/").map_or("", |at| &lower[at..]);
    let version = if provider.starts_with("/providers/microsoft.compute") {
        COMPUTE_VERSION
    } else if provider.ends_with("/locks") {
        LOCKS_VERSION
    } else if provider.starts_with("/providers/microsoft.authorization") {
        AUTHORIZATION_VERSION
    } else if provider.is_empty() {
        RESOURCES_VERSION
    } else {
        NETWORK_VERSION
    };
    let more = if query.is_empty() { String::new() } else { format!("&{query}") };
    format!("{}{}{more}", id.as_str(), versioned(version))
}

/// Returns the API version as the start of a query.
fn versioned(version: &str) -> String {
    format!("?api-version={version}")
}

/// The answer to a call.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// The body; null if there is none.
    pub body: Value,
    /// URL for polling the operation that the call has started.
    pub operation: Option<String>,
    /// Azure's `Retry-After`.
    pub retry_after: Option<Duration>,
}

/// Outcome of a call, for the step that made it.
#[derive(Clone, PartialEq, Debug)]
pub enum CallOutcome {
    /// The call succeeded.
    Done(Reply),
    /// The resource does not exist.
    NotFound,
    /// The resource changed since it was read.
    PreconditionFailed,
    /// The same call may succeed later.
    Retriable {
        /// Azure's `Retry-After`.
        after: Option<Duration>,
        /// Azure's message.
        reason: String,
    },
    /// A scale set still uses the load balancer.
    InUse {
        /// The scale sets that the message names.
        scale_sets: Vec<ResourceId>,
        /// Azure's message.
        reason: String,
    },
    /// Azure refuses the call.
    Refused(String),
}

/// Classifies the reply to a call, or the failure of its connection.
#[must_use]
pub fn classify(answer: Result<Reply, String>) -> CallOutcome {
    let reply = match answer {
        Ok(reply) => reply,
        Err(reason) => return CallOutcome::Retriable { after: None, reason },
    };
    if (200..300).contains(&reply.status) {
        return CallOutcome::Done(reply);
    }
    let (code, reason) = error(&reply);
    let later = [
        "RetryableError",
        "RetryableErrorDueToAnotherOperation",
        "ReferencedResourceNotProvisioned",
        "AnotherOperationInProgress",
        "OperationPreempted",
        "Canceled",
        "CanceledAndSupersededDueToAnotherOperation",
        "TooManyRequests",
    ];
    match reply.status {
        404 => CallOutcome::NotFound,
        412 => CallOutcome::PreconditionFailed,
        _ if code == "LoadBalancerInUseByVirtualMachineScaleSet" => {
            CallOutcome::InUse { scale_sets: scale_sets(&reason), reason }
        }
        408 | 425 | 429 | 500.. => CallOutcome::Retriable { after: reply.retry_after, reason },
        _ if later.contains(&code.as_str()) => CallOutcome::Retriable { after: reply.retry_after, reason },
        409 if code != "ScopeLocked" => CallOutcome::Retriable { after: reply.retry_after, reason },
        _ => CallOutcome::Refused(reason),
    }
}

/// Returns the error code for classification, and the message for the operator. Azure may wrap the error in another
/// one; the inner error is in its details.
fn error(reply: &Reply) -> (String, String) {
    let error = if reply.body["error"].is_object() { &reply.body["error"] } else { &reply.body };
    let inner = items(&error["details"]).iter().find(|detail| !text(&detail["code"]).is_empty());
    let shown = inner.unwrap_or(error);
    let code = text(&shown["code"]).to_owned();
    let message =
        [text(&shown["message"]), text(&error["message"])].into_iter().find(|text| !text.is_empty());
    let code_shown = if code.is_empty() { "no code" } else { &code };
    let message = safe_line(message.unwrap_or("no message"), &[], MAX_MESSAGE_BYTES);
    (code.clone(), format!("{} {code_shown}: {message}", reply.status))
}

/// Returns the error of an operation, from its last poll.
pub(crate) fn operation_error(reply: &Reply) -> String {
    error(reply).1
}

fn scale_sets(message: &str) -> Vec<ResourceId> {
    let ends = |c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ',' | ')' | ']');
    let begins = message.match_indices("/subscriptions/").map(|(at, _)| &message[at..]);
    let words = begins.map(|rest| rest.split(ends).next().unwrap_or_default().trim_end_matches('.'));
    let mut found: Vec<ResourceId> =
        words.filter_map(|word| ResourceId::new(word).up_to("virtualMachineScaleSets")).collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(status: u16, body: Value) -> CallOutcome {
        classify(Ok(Reply { status, body, ..Reply::default() }))
    }

    #[test]
    fn the_code_decides_and_not_the_status() {
        let message = "Load balancer /subscriptions/s/resourceGroups/g/providers/Microsoft.Network/loadBalancers/l is \
                       in use by '/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/v'.";
        for status in [400, 409] {
            let body =
                json!({"error": {"code": "LoadBalancerInUseByVirtualMachineScaleSet", "message": message}});
            let CallOutcome::InUse { scale_sets, .. } = refused(status, body) else { panic!("{status}") };
            let names: Vec<&str> = scale_sets.iter().map(ResourceId::name).collect();
            assert_eq!(names, ["v"]);
        }
    }

    #[test]
    fn a_resource_lock_is_refused_and_a_conflict_is_retriable() {
        let code = |code: &str| json!({"error": {"code": code, "message": "m"}});
        assert_eq!(refused(409, code("ScopeLocked")), CallOutcome::Refused("409 ScopeLocked: m".to_owned()));
        assert!(matches!(refused(409, code("OperationNotAllowed")), CallOutcome::Retriable { .. }));
    }

    #[test]
    fn the_details_name_the_cause() {
        let body = json!({"error": {"code": "RetryableError", "message": "m", "details":
            [{"code": "PublicIPAndLBSkuDoNotMatch", "message": "skus differ"}]}});
        assert_eq!(
            refused(400, body),
            CallOutcome::Refused("400 PublicIPAndLBSkuDoNotMatch: skus differ".to_owned())
        );
    }

    #[test]
    fn each_provider_has_its_api_version() {
        let group = ResourceId::new("/subscriptions/s/resourceGroups/g");
        let address = |id: &ResourceId| Call::get(id).address;
        let path = |text: &str| Address::Path(text.to_owned());
        assert_eq!(address(&group), path("/subscriptions/s/resourceGroups/g?api-version=2021-04-01"));
        let locks = ResourceId::new("/subscriptions/s/providers/Microsoft.Authorization/locks");
        assert_eq!(
            address(&locks),
            path("/subscriptions/s/providers/Microsoft.Authorization/locks?api-version=2016-09-01")
        );
    }

    #[test]
    fn only_the_network_api_gets_another_version() {
        let of = |id: &str| {
            let call = Call::get_with(&ResourceId::new(id), "ipAddress=10.0.0.4");
            call.with_network_version("2024-05-01").address
        };
        let group = "/subscriptions/s/resourceGroups/g";
        let network = format!("{group}/providers/Microsoft.Network/virtualNetworks/v");
        let rows = [
            (network, "2024-05-01"),
            (group.to_owned(), RESOURCES_VERSION),
            (format!("{group}/providers/Microsoft.Compute/virtualMachineScaleSets/v"), COMPUTE_VERSION),
            (format!("{group}/providers/Microsoft.Authorization/permissions"), AUTHORIZATION_VERSION),
            (format!("{group}/providers/Microsoft.Authorization/locks"), LOCKS_VERSION),
        ];
        for (id, version) in rows {
            let expected = format!("{id}?api-version={version}&ipAddress=10.0.0.4");
            assert_eq!(of(&id), Address::Path(expected), "{id}");
        }
        let next = Call::follow("https://arm/next?api-version=2025-05-01");
        assert_eq!(next.clone().with_network_version("2024-05-01"), next);
    }
}
