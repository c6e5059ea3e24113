//! The schemas of request bodies. The module `body` parses the bodies by the names of their keys.

use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, OneOfBuilder, Schema, SchemaType, Type};
use utoipa::openapi::{Ref, RefOr};

use super::super::enums::{self, ValueSet as _, one_of};

/// Returns all schemas, by their names.
pub(super) fn bodies() -> [(&'static str, RefOr<Schema>); 7] {
    let reason = || {
        let text = ObjectBuilder::new().schema_type(or_null()).description(Some("Text for later readers."));
        ("reason", text.into(), false)
    };
    let any = |all: Vec<Vec<Key>>| all.into_iter().map(object).fold(OneOfBuilder::new(), OneOfBuilder::item);
    let with_reason = scopes().map(|scope| scope.into_iter().chain([reason()]).collect());
    let node = object(vec![scope("node"), ("name", name().into(), true)]);
    let release = OneOfBuilder::new().item(Ref::from_schema_name("Scope")).item(node);
    let classes = enums::GateClass::all().into_iter().map(Some).chain([None]);
    let class = ObjectBuilder::new().schema_type(or_null()).enum_values(Some(classes));
    [
        ("Scope", any(scopes().to_vec()).into()),
        ("ReleaseScope", release.into()),
        ("ScopeWithReason", any(with_reason.to_vec()).into()),
        ("CompareBody", object(vec![("loadBalancer", name().schema_type(or_null()).into(), false)]).into()),
        ("OpenGatesBody", object(vec![("class", class.into(), false)]).into()),
        ("LogLevelBody", object(vec![("level", one_of(&enums::LogLevel::all(), ""), true)]).into()),
        ("NoKeys", object(Vec::new()).into()),
    ]
}

/// A key of a body: its name, its schema, and whether it is required.
type Key = (&'static str, RefOr<Schema>, bool);

/// Returns the scopes of a pause, each with the keys that name its target.
fn scopes() -> [Vec<Key>; 3] {
    let named = |key| (key, name().into(), true);
    [
        vec![scope("everything")],
        vec![scope("pool"), named("loadBalancer"), named("backendPool")],
        vec![scope("service"), named("namespace"), named("name")],
    ]
}

fn scope(word: &str) -> Key {
    ("scope", one_of(&[word], ""), true)
}

fn name() -> ObjectBuilder {
    let text = ObjectBuilder::new().schema_type(Type::String);
    text.min_length(Some(1)).max_length(Some(253)).pattern(Some(r"^[^/\s]+$"))
}

fn or_null() -> SchemaType {
    SchemaType::from_iter([Type::String, Type::Null])
}

/// Returns the schema of an object with these keys and no others.
fn object(keys: Vec<Key>) -> ObjectBuilder {
    let add = |object: ObjectBuilder, (key, schema, is_required): Key| {
        let object = object.property(key, schema);
        if is_required { object.required(key) } else { object }
    };
    let object = keys.into_iter().fold(ObjectBuilder::new(), add);
    object.additional_properties(Some(AdditionalProperties::FreeForm(false)))
}
