//! The parameters in paths and queries.

use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr, Required};

use super::super::enums;
use super::super::query::{DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE};
use super::schemas::Schemas;

/// Returns the reference to the parameter with this key.
pub(super) fn named(key: &str) -> Ref {
    Ref::new(format!("#/components/parameters/{key}"))
}

/// Returns all parameters, by the keys with which paths refer to them.
pub(super) fn parameters(schemas: &mut Schemas) -> Vec<(String, RefOr<Parameter>)> {
    let limit = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(MAX_PAGE_SIZE))
        .default(Some(DEFAULT_PAGE_SIZE.into()));
    let sort = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(["name", "verdict"]))
        .default(Some("name".into()));
    vec![
        query("limit", "limit", "Maximum number of entries of a page.", limit),
        query("after", "after", "The `next` of the page before.", text()),
        query("ofLb", "lb", "A load balancer (case-insensitive).", text()),
        query("state", "state", "A state of pools.", schemas.of::<enums::PoolState>()),
        query(
            "outOfSync",
            "outOfSync",
            "`true`: pools that are out of sync, or would be changed if they were not only compared; `false`: the others.",
            ObjectBuilder::new().schema_type(Type::Boolean),
        ),
        query("verdict", "verdict", "What the verdict is about.", schemas.of::<enums::VerdictReason>()),
        query(
            "sort",
            "sort",
            "`verdict`: the most serious verdicts first, in the order of their reasons.",
            sort,
        ),
        query("heldReason", "reason", "Why removals are held back.", schemas.of::<enums::HeldReason>()),
        query(
            "containsPool",
            "contains",
            "A part of the name of a pool or of a Service of it (case-insensitive).",
            text(),
        ),
        query("containsService", "contains", "A part of the name of a Service (case-insensitive).", text()),
        query("nodeState", "state", "A state of nodes.", schemas.of::<enums::NodeState>()),
        query("containsNode", "contains", "A part of the name of a node (case-insensitive).", text()),
        query("resourceType", "type", "The type of resources.", schemas.of::<enums::ResourceType>()),
        query("resourceState", "state", "A state of resources.", schemas.of::<enums::ResourceState>()),
        query(
            "containsResource",
            "contains",
            "A part of the name of a resource or of a source (case-insensitive).",
            text(),
        ),
        query("ofNamespace", "namespace", "A namespace.", text()),
        query("ofName", "name", "The name of an object.", text()),
        query("eventReason", "reason", "The reason of an event.", text()),
        path("lb", "The load balancer (case-insensitive)."),
        path("pool", "The backend pool (case-insensitive)."),
        path("namespace", "The namespace."),
        path("name", "The name."),
    ]
}

fn text() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

/// Returns a query parameter with its schema.
fn query(
    key: &str,
    name: &str,
    description: &str,
    schema: impl Into<RefOr<Schema>>,
) -> (String, RefOr<Parameter>) {
    let parameter =
        ParameterBuilder::new().name(name).parameter_in(ParameterIn::Query).required(Required::False);
    let parameter = parameter.description(Some(description)).schema(Some(schema));
    (key.to_owned(), RefOr::T(parameter.build()))
}

/// Returns a path parameter.
fn path(name: &str, description: &str) -> (String, RefOr<Parameter>) {
    let parameter =
        ParameterBuilder::new().name(name).parameter_in(ParameterIn::Path).required(Required::True);
    let parameter = parameter.description(Some(description)).schema(Some(text()));
    (name.to_owned(), RefOr::T(parameter.build()))
}
