//! Failures with the real server's texts: `Status` objects with code, reason, message and details.

use serde_json::{Value, json};

use super::resource::Facts;

/// An answer with a `Status` of failure.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub code: u16,
    pub reason: &'static str,
    pub message: String,
    pub details: Value,
}

const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

impl Failure {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Failure {
        Failure { code, reason, message: message.into(), details: Value::Null }
    }

    fn about(mut self, facts: &Facts, name: &str) -> Failure {
        let mut details = serde_json::Map::new();
        if !name.is_empty() {
            details.insert("name".to_owned(), name.into());
        }
        if !facts.group.is_empty() {
            details.insert("group".to_owned(), facts.group.into());
        }
        details.insert("kind".to_owned(), facts.plural.into());
        self.details = Value::Object(details);
        self
    }

    pub fn bad_request(message: impl Into<String>) -> Failure {
        Failure::new(400, "BadRequest", message)
    }

    pub fn not_found(facts: &Facts, name: &str) -> Failure {
        Failure::new(404, "NotFound", format!("{} \"{name}\" not found", facts.qualified()))
            .about(facts, name)
    }

    pub fn already_exists(facts: &Facts, name: &str) -> Failure {
        Failure::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", facts.qualified()))
            .about(facts, name)
    }

    /// Returns the failure of optimistic locking: another write came first.
    pub fn modified(facts: &Facts, name: &str) -> Failure {
        Failure::conflict(facts, name, MODIFIED)
    }

    pub fn conflict(facts: &Facts, name: &str, detail: &str) -> Failure {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {detail}", facts.qualified());
        Failure::new(409, "Conflict", message).about(facts, name)
    }

    pub fn invalid(facts: &Facts, name: &str, field: &str, detail: &str) -> Failure {
        let message = format!("{} \"{name}\" is invalid: {field}: {detail}", facts.qualified_kind());
        let mut failure = Failure::new(422, "Invalid", message).about(facts, name);
        failure.details["kind"] = facts.kind.into();
        failure.details["causes"] =
            json!([{"reason": "FieldValueInvalid", "message": detail, "field": field}]);
        failure
    }

    /// Returns the failure for list or watch options that exclude each other.
    pub fn invalid_options(field: &str, detail: &str) -> Failure {
        let message = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {detail}");
        let mut failure = Failure::new(422, "Invalid", message);
        failure.details = json!({"group": "meta.k8s.io", "kind": "ListOptions",
            "causes": [{"reason": "FieldValueForbidden", "message": detail, "field": field}]});
        failure
    }

    /// Returns the failure for a patch whose operations do not apply to the object.
    pub fn patch_refused() -> Failure {
        let message = "the server rejected our request due to an error in our request";
        let mut failure = Failure::new(422, "Invalid", message);
        failure.details = json!({});
        failure
    }

    pub fn forbidden(facts: &Facts, user: &str, verb: &str, namespace: Option<&str>, name: &str) -> Failure {
        let location = match namespace {
            Some(namespace) => format!("in the namespace \"{namespace}\""),
            None => "at the cluster scope".to_owned(),
        };
        let object = if name.is_empty() { String::new() } else { format!(" \"{name}\"") };
        let message = format!(
            "{}{object} is forbidden: User \"{user}\" cannot {verb} resource \"{}\" in API group \"{}\" {location}",
            facts.qualified(),
            facts.plural,
            facts.group
        );
        Failure::new(403, "Forbidden", message).about(facts, name)
    }

    pub fn method_not_allowed() -> Failure {
        Failure::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
    }

    pub fn not_acceptable() -> Failure {
        Failure::new(406, "NotAcceptable", "only the following media types are accepted: application/json")
    }

    pub fn unsupported_media(accepted: &str) -> Failure {
        Failure::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {accepted}"
            ),
        )
    }

    /// Returns the failure for a resourceVersion that is older than the kept history.
    pub fn expired(wanted: u64, oldest: u64) -> Failure {
        Failure::new(410, "Expired", format!("too old resource version: {wanted} ({oldest})"))
    }

    /// Returns the failure for a continue token whose snapshot is gone.
    pub fn continue_expired() -> Failure {
        let message = "The provided continue parameter is too old to display a consistent list result. You can \
            start a new list without the continue parameter, or use the continue token in this response to \
            retrieve the remainder of the results.";
        Failure::new(410, "Expired", message)
    }

    /// Returns the failure for a resourceVersion in the future.
    pub fn too_large_version(wanted: u64, current: u64) -> Failure {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let mut failure = Failure::new(504, "Timeout", message);
        failure.details = json!({"retryAfterSeconds": 1,
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
        failure
    }

    pub fn internal(message: impl Into<String>) -> Failure {
        Failure::new(500, "InternalError", message)
    }

    /// Returns an error of the storage layer that the real server passes on without a reason.
    pub fn unexplained(message: impl Into<String>) -> Failure {
        Failure::new(500, "", message)
    }

    /// Returns the `Status` object.
    pub fn body(&self) -> Value {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message});
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        status["code"] = self.code.into();
        status
    }
}
