//! The requests of one service account to the API server, from the server's audit log.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::support::log_lines;

const POLICY: &str = "audit-policy.json";
const LOG: &str = "audit.log";

/// A request with the API server's decision.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Request {
    /// The verb, as in RBAC rules.
    pub verb: String,
    /// The API group; empty for the core's.
    pub group: String,
    /// The resource, as in RBAC rules: with its subresource after a slash. Empty if there is none.
    pub resource: String,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The object's name, if any.
    pub name: String,
    /// Its path and query.
    pub uri: String,
    /// The status of its answer; 0 if there was none.
    pub status: u64,
    /// The id of its token, as in [`credential_of`].
    pub credential: String,
}

/// Writes an audit policy that logs every request of this user only, and returns the API server's flags for it.
/// Requests are logged before they are answered.
pub(super) fn flags(folder: &Path, user: &str) -> Vec<String> {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata", "users": [user] }, { "level": "None" }],
    });
    std::fs::write(folder.join(POLICY), policy.to_string()).expect("the folder can be written");
    vec![format!("--audit-policy-file={POLICY}"), format!("--audit-log-path={LOG}")]
}

/// Returns the requests so far; a long-running request is listed twice.
pub(super) fn requests(folder: &Path) -> Vec<Request> {
    log_lines(&folder.join(LOG)).iter().map(Request::of).collect()
}

/// Returns the id of this token of a service account in the log.
pub fn credential_of(token: &str) -> String {
    let claims = token.split('.').nth(1).and_then(|claims| URL_SAFE_NO_PAD.decode(claims).ok());
    let claims = claims.and_then(|claims| serde_json::from_slice::<Value>(&claims).ok());
    let claims = claims.expect("the token of a service account is a JWT");
    format!("JTI={}", claims["jti"].as_str().expect("such a token has an id"))
}

impl Request {
    fn of(event: &Value) -> Self {
        let about = &event["objectRef"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let resource = match about["subresource"].as_str() {
            Some(subresource) => format!("{}/{subresource}", text(&about["resource"])),
            None => text(&about["resource"]),
        };
        Self {
            verb: text(&event["verb"]),
            group: text(&about["apiGroup"]),
            resource,
            namespace: text(&about["namespace"]),
            name: text(&about["name"]),
            uri: text(&event["requestURI"]),
            status: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
            credential: text(&event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0]),
        }
    }
}
