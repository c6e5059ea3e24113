//! Tests of the page at `/` (H3): its headers, that it loads no foreign content and escapes foreign text, and that it
//! explains every word of the API. `browser` opens it in a browser.

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use model::assignment::HeldReason;
use model::blocked::Blocked;
use model::node::NodeState;
use model::sample::PoolState;
use model::xds::cache::ResourceState;
use reqwest::Method;
use serde_json::{Value, json};
use simulator::Fate;
use simulator::models::kube::Resource;
use simulator::models::kube::build::{self, Endpoint};
use tokio::sync::oneshot;

use super::stage::{NAMESPACE, Prepared, Stage, add_service, node_ip, node_name, pool_of, set_endpoints};

const TOKEN: Option<&str> = Some("a-secret-token");

/// Returns the text between two marks.
fn between<'a>(text: &'a str, from: &str, to: &str) -> &'a str {
    let inner = text.split_once(from).and_then(|(_, rest)| rest.split_once(to));
    inner.map(|(inner, _)| inner).unwrap_or_else(|| panic!("the page has no {from:?} … {to:?}"))
}

fn style_of(page: &str) -> &str {
    between(page, "<style>", "</style>")
}

fn script_of(page: &str) -> &str {
    between(page, "<script>", "</script>")
}

/// Returns the words that the script explains.
fn words_of(script: &str) -> Value {
    let declared = between(script, "const WORDS = ", ";\n// End of the words.");
    serde_json::from_str(declared).expect("the words are JSON")
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().expect("an object").keys().cloned().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_the_page_is_only_at_the_root_of_the_admin_listener() {
    let stage = Stage::ready(1).await;
    let answer = stage.raw(Method::GET, "/").await;
    assert_eq!(answer.status(), 200);
    let header = |name: &str| answer.headers()[name].to_str().expect("text").to_owned();
    assert_eq!(header("content-type"), "text/html; charset=utf-8");
    assert_eq!(
        (header("x-content-type-options"), header("cache-control")),
        ("nosniff".into(), "no-store".into())
    );
    assert_eq!(header("referrer-policy"), "no-referrer");
    let policy = header("content-security-policy");
    let page = answer.text().await.expect("a body");
    let hash = |text: &str| format!("'sha256-{}'", STANDARD.encode(digest(&SHA256, text.as_bytes())));
    let directives: Vec<&str> = policy.split("; ").collect();
    for wanted in [
        "default-src 'none'".to_owned(),
        format!("style-src {}", hash(style_of(&page))),
        format!("script-src {}", hash(script_of(&page))),
        "connect-src 'self'".to_owned(),
        "base-uri 'none'".to_owned(),
        "form-action 'none'".to_owned(),
        "frame-ancestors 'none'".to_owned(),
    ] {
        assert!(directives.contains(&wanted.as_str()), "{wanted} is not in {policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    assert!(
        page.contains(&format!("data-version=\"{}\"", env!("CARGO_PKG_VERSION"))),
        "it contains the version"
    );
    assert!(!page.contains("{{"), "every placeholder is replaced");

    let head = stage.raw(Method::HEAD, "/").await;
    assert_eq!(head.status(), 200);
    assert_eq!(head.headers()["content-security-policy"].to_str().ok(), Some(policy.as_str()));
    assert_eq!(head.text().await.expect("no body"), "");
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        let refused = stage.admin(method, "/").await;
        assert_eq!((refused.status, refused.allow.as_str()), (405, "GET, HEAD"), "{refused:?}");
    }
    assert_eq!(stage.admin(Method::GET, "/?a=1").await.status, 400);
    assert_eq!(stage.admin(Method::GET, "/index.html").await.status, 404);
    assert_eq!(stage.health("/").await.status, 404, "the health listener does not serve the page");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_the_page_escapes_text_and_names_no_foreign_address() {
    let stage = Stage::ready(1).await;
    let page = stage.admin(Method::GET, "/").await.text;
    let markup = [
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "DOMParser",
        "createContextualFragment",
        "srcdoc",
    ];
    let code = [
        "eval(",
        "new Function",
        "setTimeout('",
        "setTimeout(\"",
        "import(",
        "javascript:",
        "XMLHttpRequest",
        "WebSocket",
    ];
    let foreign = [
        "http://",
        "https://",
        "src=",
        "url(",
        "@import",
        "<link",
        "<iframe",
        "style=",
        "onclick=\"",
        "onload=",
    ];
    for word in markup.iter().chain(&code).chain(&foreign) {
        assert!(!page.contains(word), "the page has {word}");
    }
    // It sends requests in one place, and only GETs.
    let script = script_of(&page);
    assert_eq!(script.matches("fetch(").count(), 1);
    assert!(!script.contains("method:"), "GET is the default");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_the_page_explains_every_state_reason_and_role() {
    let stage = Stage::ready(1).await;
    let page = stage.admin(Method::GET, "/").await.text;
    let words = words_of(script_of(&page));
    let states: BTreeSet<String> = PoolState::ALL.iter().map(|state| state.as_str().to_owned()).collect();
    assert_eq!(keys(&words["state"]), states);
    let reasons: BTreeSet<String> = HeldReason::ALL.iter().map(|reason| reason.as_str().to_owned()).collect();
    assert_eq!(keys(&words["reason"]), reasons);
    for why in Blocked::ALL {
        assert_eq!(words["blockedBy"][why.as_str()][1], why.meaning());
    }
    assert_eq!(words["blockedBy"].as_object().map(serde_json::Map::len), Some(Blocked::ALL.len()));
    let nodes: BTreeSet<String> = NodeState::ALL.iter().map(|state| state.as_str().to_owned()).collect();
    assert_eq!(keys(&words["nodeState"]), nodes);
    let resources: BTreeSet<String> =
        ResourceState::ALL.iter().map(|state| state.as_str().to_owned()).collect();
    assert_eq!(keys(&words["resourceState"]), resources);
    assert_eq!(keys(&words["assigned"]), BTreeSet::from(["dropped", "unknown", "usable"].map(str::to_owned)));
    let api = stage.get("/openapi.json").await;
    let verdicts = api["components"]["schemas"]["VerdictReason"]["enum"].as_array().expect("the reasons");
    let verdicts: BTreeSet<String> = verdicts.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    assert_eq!(keys(&words["verdict"]), verdicts);
    // Another test compares these tables with the sources.
    let document = include_str!("../../docs/admin-api.md");
    let cells = |from: &str| -> BTreeSet<String> {
        let table = document.split_once(from).expect("the table").1.split_once("\n\n").expect("its end").0;
        table
            .lines()
            .filter_map(|line| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned()))
            .collect()
    };
    assert_eq!(keys(&words["role"]), cells("| role | meaning | what to do |"));
    assert_eq!(keys(&words["waitsFor"]), cells("| waitsFor | meaning |"));
}

/// Returns a controller with a held removal, some pauses, and writes without an answer: of two changes of one load
/// balancer one is written, and one waits.
pub(super) async fn in_the_middle(names: &[&str]) -> (Stage, oneshot::Sender<()>) {
    let prepared = Prepared::new(1).await;
    for name in names {
        add_service(&prepared.fakes, name, &[0]).await;
    }
    let foreign = |azure: &mut simulator::Azure, _| {
        azure.model.add_outbound_rule(simulator::CLUSTER_NAME, "egress", &pool_of("foreign"));
    };
    prepared.fakes.azure.ask(foreign).await;
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    stage.shown("/api/v1/status", |status| status["leadership"]["role"] == "leader").await;
    let path = format!("/api/v1/queues/kubernetes/{}/attempt", pool_of("quiet"));
    stage.verdict("quiet", "in sync: ").await;
    assert_eq!(stage.post(&path, TOKEN, &json!({})).await.status, 200);
    stage
        .shown("/api/v1/queues/kubernetes/shop-quiet", |answer| answer["pool"]["lastAttempt"].is_object())
        .await;
    let pause =
        json!({ "scope": "service", "namespace": NAMESPACE, "name": "paused", "reason": "<b>a test</b>" });
    assert_eq!(stage.post("/api/v1/pause", TOKEN, &pause).await.status, 200);
    set_endpoints(&stage.fakes, "held", &[]).await;
    stage.verdict("held", "held back (empty_confirm)").await;
    let release = one_is_written_and_one_waits(&stage).await;
    (stage, release)
}

/// Changes the Services `slow` and `waits` of one load balancer: Azure does not answer the first write until the sender
/// is dropped, and the second one waits for it.
pub(super) async fn one_is_written_and_one_waits(stage: &Stage) -> oneshot::Sender<()> {
    let release = hold_the_first_write(stage).await;
    set_endpoints(&stage.fakes, "slow", &[Endpoint::ready(&node_name(1))]).await;
    let writes = |status: &Value| lane(status)["writing"]["pool"] == "kubernetes/shop-slow";
    stage.shown("/api/v1/status", writes).await;
    set_endpoints(&stage.fakes, "waits", &[Endpoint::ready(&node_name(1))]).await;
    stage
        .shown("/api/v1/status", |status| lane(status)["waiting"][0]["pool"] == "kubernetes/shop-waits")
        .await;
    release
}

/// Makes Azure not answer the next write until the sender is dropped.
pub(super) async fn hold_the_first_write(stage: &Stage) -> oneshot::Sender<()> {
    let (release, held) = oneshot::channel();
    let mut held = Some(held);
    let hook = move |_: &mut simulator::Azure, request: &simulator::models::arm::Request, _| {
        let first = if request.method == simulator::models::arm::Method::Put { held.take() } else { None };
        first.map_or(Fate::Answered, Fate::Held)
    };
    stage.fakes.azure.ask(move |azure, _| azure.wire.intercept(hook)).await;
    release
}

fn lane(status: &Value) -> &Value {
    let lanes = status["lanes"].as_array();
    lanes.into_iter().flatten().find(|lane| lane["loadBalancer"] == "kubernetes").unwrap_or(&Value::Null)
}

/// Returns a controller that has stopped all removals, because labels take most members from most pools.
pub(super) async fn stopped() -> Stage {
    let prepared = Prepared::new(0).await;
    let names: Vec<String> = (1..=7).map(|number| format!("web-{number}")).collect();
    for name in &names {
        add_service(&prepared.fakes, name, &[0, 1, 2, 3]).await;
    }
    let slow = json!({ "batching": { "quietPeriod": "2s", "maxDelay": "6s", "minInterval": "100ms" } });
    let stage = prepared.start(&slow).await;
    stage.wait_until_ready().await;
    stage.shown("/api/v1/status", |status| status["pools"]["byState"]["in_sync"] == 7).await;
    let label = ("node.kubernetes.io/exclude-from-external-load-balancers", "");
    let labelled = |node| build::node(&node_name(node), &[&node_ip(node)], &[label], true, &[]);
    stage.fakes.apply((1..=3).map(labelled).collect()).await.expect("good nodes");
    stage.shown("/api/v1/held", |held| held["guards"]["removalsStopped"].is_object()).await;
    stage
}

/// Returns a dry run with guards that only observe, with a change that it would make and a removal that they would
/// hold.
pub(super) async fn dry() -> Stage {
    let prepared = Prepared::new(1).await;
    for name in ["moves", "empties"] {
        add_service(&prepared.fakes, name, &[0]).await;
    }
    let observe = json!({ "guards": { "mode": "observe", "emptyConfirm": "1h" } });
    let stage = prepared.start_with(&observe, &["--dry-run"]).await;
    stage.wait_until_ready().await;
    stage.verdict("moves", "in sync: ").await;
    stage.verdict("empties", "in sync: ").await;
    set_endpoints(&stage.fakes, "moves", &[Endpoint::ready(&node_name(1))]).await;
    set_endpoints(&stage.fakes, "empties", &[]).await;
    stage
        .shown("/api/v1/queues/kubernetes/shop-moves", |answer| answer["pool"]["wouldChange"].is_object())
        .await;
    stage.shown("/api/v1/held", |held| held["items"][0]["wouldHold"].is_object()).await;
    stage
}

/// Writes an unreadable pause, and waits until it is shown.
pub(super) async fn write_unreadable_pause(stage: &Stage) {
    let edit = |cluster: &mut simulator::Cluster, now: u64| {
        let name = "azure-backend-pool-controller";
        let mut map =
            cluster.model.get(Resource::ConfigMaps, "kube-system", name).expect("it contains a pause");
        map["data"]["pause.pool.garbled"] = "no slash".into();
        cluster.model.apply(map, now).expect("a ConfigMap");
    };
    stage.fakes.cluster.ask(edit).await;
    let is_shown = |status: &Value| status["pauses"]["unreadable"][0].is_object();
    stage.shown("/api/v1/status", is_shown).await;
}
