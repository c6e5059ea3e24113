//! The paths, with their summaries, parameters, request bodies and responses.

use utoipa::openapi::path::{Operation, OperationBuilder, PathItem, Paths, PathsBuilder};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{
    ContentBuilder, HttpMethod, Ref, RefOr, Required, Response, ResponseBuilder, SecurityRequirement,
};

use super::super::admin::{EffectiveConfig, HeldPools, OnePool};
use super::super::enums;
use super::super::events::{Lagged, StreamedEvent};
use super::super::nodes::{NodeLine, OneNode};
use super::super::post::{Attempting, Comparing, GatesOpened, LevelSet, Paused, Released, Resumed};
use super::super::resources::Resources;
use super::super::show::{Lane, OneService, PoolLine, ServiceLine, Status};
use super::parameters;
use super::responses;
use super::schemas::Schemas;

/// The tag of reads.
pub(super) const READING: &str = "Reading";
/// The tag of requests.
pub(super) const REQUESTS: &str = "Requests";

/// Description of the response to a read.
const AS_IT_IS: &str = "The current state.";
/// Description of the response to most requests.
const DONE: &str = "The request is done, or has begun if it takes time.";
/// Description of the stream of events.
const STREAM: &str = "Server-sent events for 10 minutes at most: each has an increasing `id`, and a `StreamedEvent` as its data; an \
                      event `lagged` has a `Lagged`. A comment is sent after 15 s of silence.";

/// Returns all paths.
pub(super) fn paths(schemas: &mut Schemas) -> Paths {
    let read = own(schemas).into_iter().chain(lists(schemas)).chain(single(schemas));
    let read = read.map(|(path, operation)| (path, PathItem::new(HttpMethod::Get, operation)));
    let asked = requests(schemas);
    let asked = asked.into_iter().map(|(path, operation)| (path, PathItem::new(HttpMethod::Post, operation)));
    let all = read.chain(asked);
    all.fold(PathsBuilder::new(), |paths, (path, item)| paths.path(path, item)).build()
}

/// An operation, with its path.
type Named = (&'static str, Operation);

/// Returns the paths of the page, this document, the configuration and the events.
fn own(schemas: &mut Schemas) -> [Named; 4] {
    let text = || ObjectBuilder::new().schema_type(Type::String);
    let is_3_1 = enums::one_of(&["3.1.0"], "");
    let document = ObjectBuilder::new().property("openapi", is_3_1);
    let document = ["openapi", "info", "paths"].into_iter().fold(document, ObjectBuilder::required);
    schemas.of::<StreamedEvent>();
    schemas.of::<Lagged>();
    [
        read(
            "/",
            ("page", "A page for operators, which reads the paths below."),
            &[],
            answer(AS_IT_IS, "text/html", text()),
        ),
        read(
            "/openapi.json",
            ("openapi", "This document."),
            &[],
            answer(AS_IT_IS, "application/json", document),
        ),
        read(
            "/api/v1/config",
            (
                "config",
                "The configuration in force, and where each value comes from; secrets without content.",
            ),
            &[],
            json(AS_IT_IS, schemas.of::<EffectiveConfig>()),
        ),
        read(
            "/api/v1/events",
            ("events", "The events of this process, as they occur."),
            &["ofNamespace", "ofName", "eventReason"],
            answer(STREAM, "text/event-stream", text()),
        ),
    ]
}

/// Returns the paths of the status and of the lists.
fn lists(schemas: &mut Schemas) -> [Named; 7] {
    [
        read(
            "/api/v1/status",
            ("status", "A summary of the controller's state."),
            &[],
            json(AS_IT_IS, schemas.of::<Status>()),
        ),
        read(
            "/api/v1/queues",
            ("queues", "The pools, in the order of load balancer and name."),
            &["state", "outOfSync", "ofLb", "containsPool", "limit", "after"],
            json(AS_IT_IS, schemas.listing::<PoolLine>("Queues")),
        ),
        read(
            "/api/v1/held",
            ("held", "The pools with a removal that is held back, or would be."),
            &["heldReason", "ofLb", "limit", "after"],
            json(AS_IT_IS, schemas.of::<HeldPools>()),
        ),
        read(
            "/api/v1/lanes",
            ("lanes", "What is written on each load balancer, and what waits."),
            &["ofLb", "limit", "after"],
            json(AS_IT_IS, schemas.listing::<Lane>("Lanes")),
        ),
        read(
            "/api/v1/services",
            ("services", "The Services of type LoadBalancer, each with its verdict."),
            &["ofNamespace", "containsService", "verdict", "sort", "limit", "after"],
            json(AS_IT_IS, schemas.listing::<ServiceLine>("Services")),
        ),
        read(
            "/api/v1/nodes",
            (
                "nodes",
                "The nodes that leave service, and those that are being restored, in the order of their names.",
            ),
            &["nodeState", "containsNode", "limit", "after"],
            json(AS_IT_IS, schemas.listing::<NodeLine>("Nodes")),
        ),
        read(
            "/api/v1/resources",
            (
                "resources",
                "The xDS control planes: servers, resources in the order of type and name, and the sources of pools.",
            ),
            &["resourceType", "resourceState", "containsResource", "limit", "after"],
            json(AS_IT_IS, schemas.of::<Resources>()),
        ),
    ]
}

/// Returns the paths of single pools, Services and nodes.
fn single(schemas: &mut Schemas) -> [Named; 3] {
    [
        read(
            "/api/v1/queues/{lb}/{pool}",
            ("queue", "One pool in full."),
            &[],
            json(AS_IT_IS, schemas.of::<OnePool>()),
        ),
        read(
            "/api/v1/services/{namespace}/{name}",
            ("service", "One Service, its verdict, and its pools."),
            &[],
            json(AS_IT_IS, schemas.of::<OneService>()),
        ),
        read(
            "/api/v1/nodes/{name}",
            ("node", "One node with all of its pools, also one that stays in service."),
            &[],
            json(AS_IT_IS, schemas.of::<OneNode>()),
        ),
    ]
}

/// Returns the paths of operator requests.
fn requests(schemas: &mut Schemas) -> [Named; 7] {
    [
        ask(
            "/api/v1/pause",
            ("pause", "Stores a pause."),
            body(Required::True, "ScopeWithReason"),
            json(DONE, schemas.of::<Paused>()),
            &[409, 504],
        ),
        ask(
            "/api/v1/resume",
            ("resume", "Ends a pause."),
            body(Required::True, "Scope"),
            json(DONE, schemas.of::<Resumed>()),
            &[409, 504],
        ),
        ask(
            "/api/v1/compare",
            ("compare", "Reads load balancers now, and compares their pools."),
            body(Required::False, "CompareBody"),
            json(DONE, schemas.of::<Comparing>()),
            &[404, 504],
        ),
        ask(
            "/api/v1/gates/open",
            (
                "openGates",
                "Opens throttle gates early, so that the controller sends requests to Azure again.",
            ),
            body(Required::False, "OpenGatesBody"),
            json("The gates are open.", schemas.of::<GatesOpened>()),
            &[409, 504],
        ),
        ask(
            "/api/v1/held/release",
            (
                "release",
                "Releases removals that a guard holds back, and nodes that wait to be taken out of traffic.",
            ),
            body(Required::True, "ReleaseScope"),
            json(DONE, schemas.of::<Released>()),
            &[404, 409, 504],
        ),
        ask(
            "/api/v1/log-level",
            ("logLevel", "Sets the log level of this replica until it ends."),
            body(Required::True, "LogLevelBody"),
            json(DONE, schemas.of::<LevelSet>()),
            &[],
        ),
        ask(
            "/api/v1/queues/{lb}/{pool}/attempt",
            ("attempt", "Starts an attempt to write this pool now."),
            body(Required::False, "NoKeys"),
            json(DONE, schemas.of::<Attempting>()),
            &[404, 409, 504],
        ),
    ]
}

/// Returns a path for reads. On loopback, it requires no token.
fn read(
    path: &'static str,
    (id, summary): (&str, &str),
    query: &[&str],
    answer: Response,
) -> (&'static str, Operation) {
    let of_names: &[u16] = if path.contains('{') { &[404, 414] } else { &[] };
    let operation = operation(path, READING, (id, summary), query, answer)
        .securities(Some([SecurityRequirement::default(), bearer()]));
    (path, refusing(operation, &[&[400, 401, 403, 405, 421, 503], of_names].concat(), responses::of_reading))
}

/// Returns a path for an operator request. `more` lists its statuses in addition to those of all requests.
fn ask(
    path: &'static str,
    (id, summary): (&str, &str),
    body: RequestBody,
    answer: Response,
    more: &[u16],
) -> (&'static str, Operation) {
    let of_names: &[u16] = if path.contains('{') { &[414] } else { &[] };
    let operation = operation(path, REQUESTS, (id, summary), &[], answer)
        .securities(Some([bearer()]))
        .request_body(Some(body));
    let all = [&[400, 401, 403, 405, 408, 413, 421, 503], of_names, more].concat();
    (path, refusing(operation, &all, responses::of_requests))
}

/// Returns an operation with its 200 response. The names in the path become parameters too.
fn operation(
    path: &str,
    tag: &str,
    (id, summary): (&str, &str),
    query: &[&str],
    answer: Response,
) -> OperationBuilder {
    let operation = OperationBuilder::new().operation_id(Some(id)).summary(Some(summary)).tag(tag);
    let names = path.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name);
    let all = names.chain(query.iter().copied()).map(parameters::named);
    all.fold(operation, OperationBuilder::parameter_ref).response("200", answer)
}

/// Adds the responses with these statuses.
fn refusing(operation: OperationBuilder, all: &[u16], response: fn(u16) -> Ref) -> Operation {
    let add =
        |operation: OperationBuilder, status: &u16| operation.response(status.to_string(), response(*status));
    all.iter().fold(operation, add).build()
}

fn bearer() -> SecurityRequirement {
    SecurityRequirement::new::<_, [&str; 0], _>("bearer", [])
}

/// Returns a response with this content type.
fn answer(description: &str, kind: &str, schema: impl Into<RefOr<Schema>>) -> Response {
    let content = ContentBuilder::new().schema(Some(schema)).build();
    ResponseBuilder::new().description(description).content(kind, content).build()
}

/// Returns a response with JSON.
fn json(description: &str, schema: Ref) -> Response {
    answer(description, "application/json", schema)
}

/// Returns a request body with the schema of this name.
fn body(required: Required, schema: &str) -> RequestBody {
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name(schema))).build();
    RequestBodyBuilder::new().required(Some(required)).content("application/json", content).build()
}
