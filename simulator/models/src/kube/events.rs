//! Events in both API groups: they are stored once, in the form of core/v1, and `events.k8s.io/v1` shows the same
//! objects with other names for some fields.

use serde_json::{Map, Value};

use super::resource::Resource;

/// The fields whose names differ: in core/v1, and in events.k8s.io/v1.
const NAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Converts an object of this kind to its stored form.
pub(super) fn stored_form(resource: Resource, object: Value) -> Value {
    match resource {
        Resource::Events => filled(resource, object),
        Resource::EventsV1 => filled(Resource::Events, renamed(object, Resource::Events)),
        Resource::Services
        | Resource::Nodes
        | Resource::Namespaces
        | Resource::ConfigMaps
        | Resource::Secrets
        | Resource::EndpointSlices
        | Resource::Leases => object,
    }
}

/// Converts a stored object to the form of this kind.
pub(super) fn shown(resource: Resource, object: Value) -> Value {
    if resource.is_stored_as_itself() {
        return object;
    }
    let mut object = filled(resource, renamed(object, resource));
    // core/v1 includes these even if they are empty, the other group does not.
    if let Some(fields) = object.as_object_mut() {
        for name in ["reportingController", "reportingInstance"] {
            if fields.get(name).is_some_and(|value| value == "") {
                fields.shift_remove(name);
            }
        }
    }
    object
}

/// Adds all fields to an event that the server always includes; other objects stay unchanged.
pub(super) fn filled(resource: Resource, mut object: Value) -> Value {
    if let (Resource::Events | Resource::EventsV1, Some(fields)) = (resource, object.as_object_mut()) {
        for (name, unset) in always(resource) {
            if !fields.contains_key(&name) {
                fields.insert(name, unset);
            }
        }
    }
    object
}

/// Returns the unset fields of an event that a bookmark has too.
fn always(resource: Resource) -> Map<String, Value> {
    let fields = resource.facts().bookmark_rest.trim_start_matches(',');
    serde_json::from_str(&format!("{{{fields}}}")).expect("the table holds fields in JSON")
}

/// Converts an event to the field names of this group. Fields that only the other group has are dropped, as the
/// server drops unknown fields.
fn renamed(object: Value, to: Resource) -> Value {
    let Value::Object(fields) = object else {
        return object;
    };
    let names =
        NAMES.map(|(core, other)| if to == Resource::EventsV1 { (core, other) } else { (other, core) });
    let mut out = Map::new();
    for (name, value) in fields {
        match names.iter().find(|(from, into)| name == *from || name == *into) {
            Some((from, into)) if name == *from => {
                out.insert((*into).to_owned(), value);
            }
            Some(_) => {}
            None => {
                out.insert(name, value);
            }
        }
    }
    out.insert("apiVersion".to_owned(), to.facts().api_version().into());
    Value::Object(out)
}

/// Returns the stored name of a selectable field of this kind.
pub(super) fn stored_field(resource: Resource, field: &str) -> String {
    match field.strip_prefix("regarding.") {
        Some(rest) if resource == Resource::EventsV1 => format!("involvedObject.{rest}"),
        Some(_) | None => field.to_owned(),
    }
}
