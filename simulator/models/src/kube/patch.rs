//! The three patch formats: JSON merge patch, JSON patch, and strategic merge patch.
//!
//! Strategic merge merges the lists that have a merge key in the real API (`MERGE_KEYS`) and replaces all others.
//! Node taints are such an atomic list: a client that sends fewer taints removes the others.

use serde_json::{Map, Value};

use super::status::Failure;

const MERGE_KEYS: [(&str, &str, &str); 4] = [
    ("", "conditions", "type"),
    ("", "ownerReferences", "uid"),
    ("Service", "ports", "port"),
    ("Node", "addresses", "type"),
];

/// Applies a patch document of the given content type to an object.
pub(super) fn apply(content_type: &str, patch: &[u8], object: &Value) -> Result<Value, Failure> {
    let patch: Value = serde_json::from_slice(patch)
        .map_err(|error| Failure::bad_request(format!("error decoding patch: {error}")))?;
    match content_type {
        "application/merge-patch+json" => {
            whole_object(&patch)?;
            let mut patched = object.clone();
            merge(&mut patched, &patch);
            Ok(patched)
        }
        "application/strategic-merge-patch+json" => {
            whole_object(&patch)?;
            let mut patched = object.clone();
            let kind = object["kind"].as_str().unwrap_or_default();
            strategic(kind, &mut patched, &patch)?;
            Ok(patched)
        }
        "application/json-patch+json" => operations(object, &patch),
        _ => Err(Failure::unsupported_media(
            "application/json-patch+json, application/merge-patch+json, application/strategic-merge-patch+json",
        )),
    }
}

fn whole_object(patch: &Value) -> Result<(), Failure> {
    if patch.is_object() { Ok(()) } else { Err(Failure::bad_request("the patch is not an object")) }
}

/// Applies a JSON merge patch (RFC 7386).
fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else {
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            object.shift_remove(key);
        } else {
            merge(object.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn strategic(kind: &str, target: &mut Value, patch: &Value) -> Result<(), Failure> {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return Ok(());
    };
    let replaces = fields.get("$patch").and_then(Value::as_str) == Some("replace");
    if replaces || !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(object) = target.as_object_mut() else {
        return Ok(());
    };
    for (key, value) in fields {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(items) = object.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !gone.contains(item));
            }
        } else if key.starts_with('$') {
            // $setElementOrder and $retainKeys only affect the order of fields that the patch contains anyway.
        } else if value.is_null() {
            object.shift_remove(key);
        } else if let Some(items) = value.as_array() {
            let slot = object.entry(key.clone()).or_insert_with(|| Value::Array(Vec::new()));
            strategic_list(kind, key, slot, items)?;
        } else {
            strategic(kind, object.entry(key.clone()).or_insert(Value::Null), value)?;
        }
    }
    Ok(())
}

fn strategic_list(kind: &str, name: &str, slot: &mut Value, items: &[Value]) -> Result<(), Failure> {
    let mut current = slot.as_array().cloned().unwrap_or_default();
    if name == "finalizers" {
        let fresh: Vec<Value> = items.iter().filter(|item| !current.contains(item)).cloned().collect();
        current.extend(fresh);
    } else if let Some((_, _, merge_key)) =
        MERGE_KEYS.iter().find(|(of, list, _)| *list == name && (of.is_empty() || *of == kind))
    {
        for item in items {
            let Some(id) = item.get(*merge_key) else {
                return Err(Failure::bad_request(format!(
                    "map: {item} does not contain declared merge key: {merge_key}"
                )));
            };
            let found = current.iter().position(|existing| existing.get(*merge_key) == Some(id));
            let deletes = item.get("$patch").and_then(Value::as_str) == Some("delete");
            match (found, deletes) {
                (Some(index), true) => {
                    current.remove(index);
                }
                (None, true) => {}
                (Some(index), false) => strategic(kind, &mut current[index], item)?,
                (None, false) => current.push(item.clone()),
            }
        }
    } else {
        current = items.to_vec();
    }
    *slot = Value::Array(current);
    Ok(())
}

/// Applies a JSON patch (RFC 6902). If one operation does not apply, the whole patch is refused.
fn operations(object: &Value, patch: &Value) -> Result<Value, Failure> {
    let Some(list) = patch.as_array() else {
        return Err(Failure::bad_request("error decoding patch: a JSON patch is an array of operations"));
    };
    if list.len() > 10_000 {
        return Err(Failure::bad_request("the allowed maximum operations in a JSON patch is 10000"));
    }
    let mut document = object.clone();
    for operation in list {
        operate(&mut document, operation).ok_or_else(Failure::patch_refused)?;
    }
    Ok(document)
}

fn operate(document: &mut Value, operation: &Value) -> Option<()> {
    let path = operation.get("path")?.as_str()?;
    match operation.get("op")?.as_str()? {
        // A missing value compares as null.
        "test" => {
            let there = document.pointer(path).unwrap_or(&Value::Null);
            (there == operation.get("value").unwrap_or(&Value::Null)).then_some(())
        }
        "add" => add(document, path, operation.get("value")?.clone()),
        "replace" => {
            *document.pointer_mut(path)? = operation.get("value")?.clone();
            Some(())
        }
        "remove" => remove(document, path).map(|_| ()),
        "copy" => {
            let value = document.pointer(operation.get("from")?.as_str()?)?.clone();
            add(document, path, value)
        }
        "move" => {
            let value = remove(document, operation.get("from")?.as_str()?)?;
            add(document, path, value)
        }
        _ => None,
    }
}

fn parent_and_token(path: &str) -> Option<(&str, String)> {
    let (parent, token) = path.rsplit_once('/')?;
    Some((parent, token.replace("~1", "/").replace("~0", "~")))
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        *document = value;
        return Some(());
    }
    let (parent, token) = parent_and_token(path)?;
    let parent = document.pointer_mut(parent)?;
    if let Some(items) = parent.as_array_mut() {
        let index = if token == "-" { items.len() } else { token.parse().ok()? };
        if index > items.len() {
            return None;
        }
        items.insert(index, value);
    } else {
        parent.as_object_mut()?.insert(token, value);
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    let (parent, token) = parent_and_token(path)?;
    let parent = document.pointer_mut(parent)?;
    if let Some(items) = parent.as_array_mut() {
        let index: usize = token.parse().ok()?;
        (index < items.len()).then(|| items.remove(index))
    } else {
        parent.as_object_mut()?.shift_remove(&token)
    }
}
