//! The OpenAPI document (H3): the answers of the real binary, on every path and in many states, match the document, and
//! each documented answer occurs.

use std::collections::BTreeSet;

use futures::future::join_all;
use reqwest::{Client, Method};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::events::Listening;
use super::stage::{Answer, Stage, node_name, pool_of};
use super::{nodes, tls, web};
use crate::support::TEST_TIMEOUT;
use crate::xds::trouble;

const TOKEN: Option<&str> = Some("a-secret-token");
const OUTSIDER: Option<&str> = Some("outsiders-token");
/// Documented answers that a correct controller never gives, with the reason.
const NEVER_GIVEN: [(u16, &str); 1] = [(504, "every machine answers within its time limit")];
/// The pool of the only Service of the cluster.
const POOL: &str = "team-000-web-00000";
/// Every request of operators, as in the document.
const REQUESTS: [&str; 7] = [
    "/api/v1/pause",
    "/api/v1/resume",
    "/api/v1/compare",
    "/api/v1/gates/open",
    "/api/v1/held/release",
    "/api/v1/log-level",
    "/api/v1/queues/{lb}/{pool}/attempt",
];

/// The document, and its answers that have occurred.
struct Contract {
    api: Value,
    met: BTreeSet<(String, String, u16)>,
}

impl Contract {
    async fn of(stage: &Stage) -> Self {
        let api = stage.get("/openapi.json").await;
        assert_eq!(api["openapi"], "3.1.0");
        assert_eq!(api["info"]["version"], env!("CARGO_PKG_VERSION"));
        Self { api, met: BTreeSet::new() }
    }

    /// Returns the paths with the method GET.
    fn readable(&self) -> Vec<String> {
        let paths = self.api["paths"].as_object().expect("paths").iter();
        paths.filter(|(_, item)| item.get("get").is_some()).map(|(path, _)| path.clone()).collect()
    }

    /// Asserts that a value matches a schema.
    fn fits(&self, schema: &Value, found: &Value, context: &str) {
        let whole = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "components": self.api["components"],
            "allOf": [schema],
        });
        let validator =
            jsonschema::validator_for(&whole).unwrap_or_else(|error| panic!("{context}: {error}"));
        let wrong: Vec<String> =
            validator.iter_errors(found).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(wrong.is_empty(), "{context}: {wrong:#?}\n{found:#}");
    }

    /// Asserts that a value matches the schema with this name.
    fn is(&self, schema: &str, found: &Value, context: &str) {
        self.fits(&json!({ "$ref": format!("#/components/schemas/{schema}") }), found, context);
    }

    /// Asserts that the document has this answer for this path and method.
    fn meets(&mut self, method: &Method, path: &str, answer: &Answer) {
        let (method, context) = (method.as_str().to_lowercase(), format!("{method} {path}: {answer:?}"));
        let operation = &self.api["paths"][path][&method];
        assert!(operation.is_object(), "no such operation: {context}");
        let response = &operation["responses"][answer.status.to_string()];
        let response = match response["$ref"].as_str().and_then(|at| at.strip_prefix('#')) {
            Some(at) => self.api.pointer(at).unwrap_or_else(|| panic!("there is no {at}")),
            None => response,
        };
        let kind = answer.kind.split(';').next().unwrap_or_default();
        let schema = &response["content"][kind]["schema"];
        assert!(schema.is_object(), "no such answer: {context}");
        if kind.ends_with("json") {
            self.fits(schema, &answer.json(), &context);
        }
        self.met.insert((method, path.to_owned(), answer.status));
    }

    /// Returns the documented answers that have not occurred, without [`NEVER_GIVEN`].
    fn unmet(&self) -> Vec<String> {
        let paths = self.api["paths"].as_object().expect("paths").iter();
        let operations = paths.flat_map(|(path, item)| {
            let all = item.as_object().expect("a path").iter();
            all.map(move |(method, operation)| (method, path, operation))
        });
        let answers = operations.flat_map(|(method, path, operation)| {
            let all = operation["responses"].as_object().expect("answers").keys();
            all.map(move |status| (method.clone(), path.clone(), status.parse::<u16>().expect("a status")))
        });
        let is_never_given = |status: u16| NEVER_GIVEN.iter().any(|(never, _)| *never == status);
        let unmet = answers.filter(|answer| !self.met.contains(answer) && !is_never_given(answer.2));
        unmet.map(|(method, path, status)| format!("{method} {path}: {status}")).collect()
    }

    /// Sends a GET to `at`, which is an instance of the document's `path`.
    async fn read(&mut self, stage: &Stage, path: &str, at: &str) -> Answer {
        let answer = stage.admin(Method::GET, at).await;
        self.meets(&Method::GET, path, &answer);
        answer
    }

    /// Reads every path, every pool, every Service and every draining node.
    async fn read_all(&mut self, stage: &Stage) {
        for path in self.readable().iter().filter(|path| !path.contains('{')) {
            assert_eq!(self.read(stage, path, path).await.status, 200, "{path}");
        }
        for (list, one, [first, second]) in [
            ("/api/v1/queues", "/api/v1/queues/{lb}/{pool}", ["loadBalancer", "backendPool"]),
            ("/api/v1/services", "/api/v1/services/{namespace}/{name}", ["namespace", "name"]),
        ] {
            let all = stage.get(list).await;
            for item in all["items"].as_array().expect("a list") {
                let name = |key: &str| item[key].as_str().expect("a name").to_owned();
                let at = format!("{list}/{}/{}", name(first), name(second));
                assert_eq!(self.read(stage, one, &at).await.status, 200, "{at}");
            }
        }
        let all = stage.get("/api/v1/nodes").await;
        for item in all["items"].as_array().expect("a list") {
            let at = format!("/api/v1/nodes/{}", item["name"].as_str().expect("a name"));
            assert_eq!(self.read(stage, "/api/v1/nodes/{name}", &at).await.status, 200, "{at}");
        }
    }

    /// Sends a POST to a path, and asserts this status.
    async fn ask(&mut self, stage: &Stage, path: &str, body: &Value, status: u16) -> Value {
        self.ask_as(stage, TOKEN, path, body, status).await
    }

    async fn ask_as(
        &mut self,
        stage: &Stage,
        token: Option<&str>,
        path: &str,
        body: &Value,
        status: u16,
    ) -> Value {
        self.ask_at(stage, token, (path, &of_the_only_pool(path)), body, status).await
    }

    /// Sends a POST to a path with other names than those of the only Service's pool, and asserts this status.
    async fn ask_at(
        &mut self,
        stage: &Stage,
        token: Option<&str>,
        (path, at): (&str, &str),
        body: &Value,
        status: u16,
    ) -> Value {
        let answer = stage.post(at, token, body).await;
        assert_eq!(answer.status, status, "{at}: {answer:?}");
        self.meets(&Method::POST, path, &answer);
        answer.json()
    }
}

/// Returns an instance of a path for the only Service's pool.
fn of_the_only_pool(path: &str) -> String {
    path.replace("{lb}", "kubernetes").replace("{pool}", POOL)
}

/// Sends a POST with a `Content-Length` and without a body, and returns the answer.
async fn promised(stage: &Stage, path: &'static str) -> (&'static str, Answer) {
    let (at, token) = (of_the_only_pool(path), TOKEN.expect("a token"));
    let mut connection = TcpStream::connect(&stage.admin).await.expect("the listener");
    let head = format!("POST {at} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n");
    connection.write_all(format!("{head}content-length: 9\r\n\r\n").as_bytes()).await.expect("a head");
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(TEST_TIMEOUT, connection.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "{at} keeps the connection after {answer:?}");
    let answer = String::from_utf8(answer).expect("text");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    let kind = head.lines().find_map(|line| line.strip_prefix("content-type: ")).expect("a type").to_owned();
    (path, Answer { status, kind, allow: String::new(), text: text.to_owned() })
}

fn attempt_of(name: &str) -> (&'static str, String) {
    ("/api/v1/queues/{lb}/{pool}/attempt", format!("/api/v1/queues/kubernetes/{}/attempt", pool_of(name)))
}

/// Returns an instance of a path with names that do not exist.
fn named(path: &str) -> String {
    let named = path.replace("{lb}", "kubernetes").replace("{pool}", "nobodys");
    named.replace("{namespace}", "shop").replace("{name}", "nobody")
}

/// Sends requests of operators to a leader, valid ones and refused ones.
async fn requests(contract: &mut Contract, stage: &Stage) {
    let everything = json!({ "scope": "everything" });
    for path in REQUESTS {
        contract.ask_as(stage, None, path, &json!({}), 401).await;
        contract.ask_as(stage, OUTSIDER, path, &json!({}), 403).await;
        contract.ask(stage, path, &json!({ "nosuch": 1 }), 400).await;
    }
    contract.ask(stage, "/api/v1/compare", &json!({}), 200).await;
    contract.ask(stage, "/api/v1/compare", &json!({ "loadBalancer": "nosuch" }), 404).await;
    contract.ask(stage, "/api/v1/gates/open", &json!({}), 200).await;
    contract.ask(stage, "/api/v1/gates/open", &json!({ "class": "polls" }), 400).await;
    contract.ask(stage, "/api/v1/held/release", &everything, 409).await;
    let unknown = json!({ "scope": "service", "namespace": "shop", "name": "nobody" });
    contract.ask(stage, "/api/v1/held/release", &unknown, 404).await;
    contract.ask(stage, "/api/v1/log-level", &json!({ "level": "debug" }), 200).await;
    let (attempt, unknown) = attempt_of("nobody");
    contract.ask_at(stage, TOKEN, (attempt, &unknown), &json!({}), 404).await;
    contract.ask(stage, attempt, &json!({}), 200).await;
    let paused = json!({ "scope": "everything", "reason": "a test" });
    contract.ask(stage, "/api/v1/pause", &paused, 200).await;
    let paused = |status: &Value| status["pauses"]["items"][0].is_object();
    stage.shown("/api/v1/status", paused).await;
    contract.read_all(stage).await;
    contract.ask(stage, attempt, &json!({}), 409).await;
    contract.ask(stage, "/api/v1/resume", &everything, 200).await;

    let standby = stage.another("standby").await;
    standby.wait_until_ready().await;
    let knows = |status: &Value| status["leadership"]["holder"].is_string();
    standby.shown("/api/v1/status", knows).await;
    contract.read_all(&standby).await;
    contract.ask(&standby, "/api/v1/gates/open", &json!({}), 409).await;
    let refused = contract.ask(&standby, attempt, &json!({}), 409).await;
    assert!(refused["leader"].is_string(), "{refused}");
}

/// Sends requests that are refused because of the method, the host, the length or the body.
async fn misfits(contract: &mut Contract, stage: &Stage) {
    let large = json!({ "scope": "everything", "reason": "x".repeat(12_000) });
    for path in REQUESTS {
        contract.ask(stage, path, &large, 413).await;
        let at = of_the_only_pool(path);
        let read = stage.admin(Method::GET, &at).await;
        let elsewhere = stage.for_another_host(Method::POST, &at).await;
        for (answer, status) in [(read, 405), (elsewhere, 421)] {
            assert_eq!(answer.status, status, "{at}: {answer:?}");
            contract.meets(&Method::POST, path, &answer);
        }
    }
    let (attempt, at) = attempt_of(&"x".repeat(1_100));
    contract.ask_at(stage, TOKEN, (attempt, &at), &json!({}), 414).await;
    for (path, answer) in join_all(REQUESTS.map(|path| promised(stage, path))).await {
        assert_eq!(answer.status, 408, "{path}: {answer:?}");
        contract.meets(&Method::POST, path, &answer);
    }
}

/// Sends requests while the API server does not answer.
async fn unanswered(contract: &mut Contract, stage: &Stage, http: &Client) {
    stage.fakes.plant(|model| model.down(true)).await;
    for path in contract.readable() {
        let answer = tls::call(stage, http, &Method::GET, &named(&path), Some("another-token")).await;
        assert_eq!(answer.status, 503, "{path}: {answer:?}");
        contract.meets(&Method::GET, &path, &answer);
    }
    for path in REQUESTS {
        contract.ask(stage, path, &json!({}), 503).await;
    }
}

/// Sends reads that are refused because of the client, parameters, names, the method or the host.
async fn refusals(contract: &mut Contract, stage: &Stage, http: &Client) {
    for path in contract.readable() {
        let at = named(&path);
        for (token, status) in [(None, 401), (OUTSIDER, 403)] {
            let answer = tls::call(stage, http, &Method::GET, &at, token).await;
            assert_eq!(answer.status, status, "{at}: {answer:?}");
            contract.meets(&Method::GET, &path, &answer);
        }
        let answer = contract.read(stage, &path, &format!("{at}?nosuch=1")).await;
        assert_eq!(answer.status, 400, "{at}: {answer:?}");
        if path.contains('{') {
            assert_eq!(contract.read(stage, &path, &at).await.status, 404, "{at}");
            let long = format!("{at}{}", "x".repeat(1_100));
            let answer = tls::call(stage, http, &Method::GET, &long, TOKEN).await;
            assert_eq!(answer.status, 414, "{at}: {answer:?}");
            contract.meets(&Method::GET, &path, &answer);
        }
        let another = stage.admin(Method::DELETE, &at).await;
        let elsewhere = stage.for_another_host(Method::GET, &at).await;
        for (answer, status) in [(another, 405), (elsewhere, 421)] {
            assert_eq!(answer.status, status, "{at}: {answer:?}");
            contract.meets(&Method::GET, &path, &answer);
        }
    }
    let answer = stage.admin(Method::GET, "/api/v1/nosuch").await;
    contract.is("Problem", &answer.json(), "the answer for an unknown path");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_every_answer_follows_the_openapi_document() {
    let (stage, _secret, http) = tls::secured().await;
    let mut contract = Contract::of(&stage).await;
    stage.shown("/api/v1/queues?state=in_sync", |page| page["items"][0].is_object()).await;
    refusals(&mut contract, &stage, &http).await;
    misfits(&mut contract, &stage).await;
    requests(&mut contract, &stage).await;
    unanswered(&mut contract, &stage, &http).await;
    drop(stage);

    let names = ["quiet", "slow", "waits", "held", "paused", "foreign"];
    let (stage, release) = web::in_the_middle(&names).await;
    web::write_unreadable_pause(&stage).await;
    contract.read_all(&stage).await;
    let (attempt, of_paused) = attempt_of("paused");
    contract.ask_at(&stage, TOKEN, (attempt, &of_paused), &json!({}), 409).await;
    let mut listening = Listening::to(&stage, "").await;
    drop(release);
    let (_, context) = listening.event().await;
    contract.is("StreamedEvent", &context, "an event");
    drop(stage);

    let stage = web::stopped().await;
    contract.read_all(&stage).await;
    let released = contract.ask(&stage, "/api/v1/held/release", &json!({ "scope": "everything" }), 200).await;
    assert!(released["released"][0].is_object(), "{released}");
    drop(stage);

    let stage = web::dry().await;
    contract.read_all(&stage).await;
    for path in ["/api/v1/pause", "/api/v1/resume"] {
        contract.ask(&stage, path, &json!({ "scope": "everything" }), 409).await;
    }

    drop(stage);

    let stage = nodes::leaving().await;
    contract.read_all(&stage).await;
    let down = json!({ "scope": "node", "name": node_name(0) });
    contract.ask(&stage, "/api/v1/held/release", &down, 409).await;

    drop(stage);

    let (scene, _plane) = trouble::in_trouble().await;
    contract.read_all(&scene.stage).await;

    let unmet = contract.unmet();
    assert!(unmet.is_empty(), "did not occur: {unmet:#?}; not requested: {NEVER_GIVEN:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_undocumented_answers_are_detected() {
    let stage = Stage::ready(1).await;
    let contract = Contract::of(&stage).await;
    let queue = format!("/api/v1/queues/kubernetes/{POOL}");
    let (status, pool) = (stage.get("/api/v1/status").await, stage.get(&queue).await);
    let more = |value: &Value, at: &str| {
        let mut value = value.clone();
        value.pointer_mut(at).expect("it is there")["undocumented"] = json!(1);
        value
    };
    for (schema, value, at) in [
        ("Status", &status, ""),
        ("Status", &status, "/gates/0"),
        ("OnePool", &pool, "/pool"),
        ("OnePool", &pool, "/pool/members"),
    ] {
        let whole = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "components": contract.api["components"],
            "$ref": format!("#/components/schemas/{schema}"),
        });
        let validator = jsonschema::validator_for(&whole).expect("a good schema");
        assert!(validator.is_valid(value), "{schema}");
        assert!(!validator.is_valid(&more(value, at)), "{schema}{at}");
    }
}
