//! Reads JSON documents. A missing list is empty; a missing text is empty.

use serde_json::{Map, Value};

use crate::resource_id::ResourceId;

/// Returns the text of a value.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the items of a list.
pub(crate) fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the `id` of a sub-resource.
pub(crate) fn id(value: &Value) -> Option<ResourceId> {
    Some(text(&value["id"])).filter(|id| id.starts_with('/')).map(ResourceId::new)
}

/// Returns the ids of a list of sub-resources.
pub(crate) fn ids(value: &Value) -> impl Iterator<Item = ResourceId> + '_ {
    items(value).iter().filter_map(id)
}

/// Returns the object at a key; replaces any other value with an empty object.
pub(crate) fn object<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let field = &mut value[key];
    if !field.is_object() {
        *field = Value::Object(Map::new());
    }
    field.as_object_mut().expect("it was just made an object")
}

/// Returns the provisioning state, in lower case.
pub(crate) fn provisioning(body: &Value) -> String {
    text(&body["properties"]["provisioningState"]).to_ascii_lowercase()
}

/// Returns whether a resource has the SKU Basic. Old API versions omit the SKU of Basic load balancers and public
/// addresses.
pub(crate) fn is_basic(body: &Value) -> bool {
    body["sku"]["name"].as_str().is_none_or(|sku| sku.eq_ignore_ascii_case("Basic"))
}
