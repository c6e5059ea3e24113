//! The validations of the real server that may affect a client of this product.

use std::collections::BTreeSet;

use serde_json::Value;

use super::object::meta;
use super::resource::Resource;
use super::status::Failure;

/// Checks an object before a client's write is stored.
pub(super) fn check(resource: Resource, object: &Value) -> Result<(), Failure> {
    let facts = resource.facts();
    let name = meta(object, "name");
    let invalid = |field: &str, detail: &str| Err(Failure::invalid(facts, name, field, detail));
    let dns = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let ends = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    if bytes.len() > 253
        || !bytes.iter().all(|byte| dns(*byte))
        || !ends(bytes.first())
        || !ends(bytes.last())
    {
        return invalid("metadata.name", "Invalid value: a lowercase RFC 1123 subdomain is required");
    }
    match resource {
        Resource::Leases => {
            let number = |key: &str| object["spec"][key].as_i64();
            if number("leaseDurationSeconds").is_some_and(|seconds| seconds <= 0) {
                return invalid("spec.leaseDurationSeconds", "Invalid value: must be greater than 0");
            }
            if number("leaseTransitions").is_some_and(|transitions| transitions < 0) {
                return invalid("spec.leaseTransitions", "Invalid value: must be greater than or equal to 0");
            }
            Ok(())
        }
        Resource::Events => check_event(resource, object, "involvedObject", "message", "reportingComponent"),
        Resource::EventsV1 => check_event(resource, object, "regarding", "note", "reportingController"),
        Resource::EndpointSlices => match object["addressType"].as_str() {
            Some("IPv4" | "IPv6" | "FQDN") => Ok(()),
            Some(_) | None => {
                invalid("addressType", "Required value: address type must be one of IPv4, IPv6, FQDN")
            }
        },
        Resource::Nodes => check_taints(object),
        Resource::Services | Resource::Namespaces | Resource::ConfigMaps | Resource::Secrets => Ok(()),
    }
}

/// Checks that each taint of a node has an effect, and that no two taints have the same key and effect.
fn check_taints(node: &Value) -> Result<(), Failure> {
    let invalid = |field: &str, detail: &str| {
        Err(Failure::invalid(Resource::Nodes.facts(), meta(node, "name"), field, detail))
    };
    let mut known = BTreeSet::new();
    let taints = node.pointer("/spec/taints").and_then(Value::as_array);
    for (index, taint) in taints.into_iter().flatten().enumerate() {
        let text = |key: &str| taint[key].as_str().unwrap_or_default();
        let (key, effect) = (text("key"), text("effect"));
        // The server writes "metadata" here, although taints are in the spec.
        let field = format!("metadata.taints[{index}]");
        if key.is_empty() {
            return invalid(&format!("{field}.key"), "Invalid value: \"\": name part must be non-empty");
        }
        if !matches!(effect, "NoSchedule" | "PreferNoSchedule" | "NoExecute") {
            let detail =
                "Unsupported value: supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"";
            return invalid(&format!("{field}.effect"), detail);
        }
        if !known.insert((key, effect)) {
            let detail = format!(
                "Duplicate value: {{Key:\"{key}\", Effect:\"{effect}\"}}: taints must be unique by key and effect pair"
            );
            return invalid(&field, &detail);
        }
    }
    Ok(())
}

/// Checks an event. Events with `eventTime` must satisfy stricter rules; `events.k8s.io` requires it.
fn check_event(
    resource: Resource,
    event: &Value,
    about: &str,
    note: &str,
    reporter: &str,
) -> Result<(), Failure> {
    let facts = resource.facts();
    let invalid =
        |field: &str, detail: &str| Err(Failure::invalid(facts, meta(event, "name"), field, detail));
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    let timed = !text("eventTime").is_empty();
    let home = meta(event, "namespace");
    let agrees = match event[about]["namespace"].as_str().unwrap_or_default() {
        "" => home == "default" || (timed && home == "kube-system"),
        other => other == home,
    };
    if !agrees {
        return invalid(&format!("{about}.namespace"), "Invalid value: does not match event.namespace");
    }
    if !timed {
        return match resource {
            Resource::EventsV1 => invalid("eventTime", "Required value"),
            Resource::Services
            | Resource::Nodes
            | Resource::Events
            | Resource::Namespaces
            | Resource::ConfigMaps
            | Resource::Secrets
            | Resource::EndpointSlices
            | Resource::Leases => Ok(()),
        };
    }
    for field in [reporter, "reportingInstance", "action", "reason"] {
        if text(field).is_empty() {
            return invalid(field, "Required value");
        }
        if text(field).len() > 128 {
            return invalid(field, "Invalid value: can have at most 128 characters");
        }
    }
    if text(note).len() > 1024 {
        return invalid(note, "Invalid value: can have at most 1024 characters");
    }
    if !matches!(text("type"), "Normal" | "Warning") {
        return invalid("type", "Invalid value: has invalid value");
    }
    Ok(())
}
