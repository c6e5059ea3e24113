//! Requests of operators: pause, resume, attempt, comparison, log level (G6, H2, H3).

use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::models::kube::Resource;
use simulator::models::kube::build::Endpoint;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};

use super::stage::{NAMESPACE, Prepared, Stage, add_service, node_ip, node_name, pool_of, set_endpoints};
use crate::support::{TEST_TIMEOUT, eventually};

const STATUS: &str = "/api/v1/status";
const TOKEN: Option<&str> = Some("a-secret-token");
const USER: &str = "system:serviceaccount:default:client";

async fn leads(stage: &Stage) {
    stage.shown(STATUS, |status| status["leadership"]["role"] == "leader").await;
}

/// Starts a controller and the Service `web` on node 0, and waits until the controller has this role.
async fn leading(overlay: &Value, flags: &[&str], role: &str) -> Stage {
    let prepared = Prepared::new(1).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    let stage = prepared.start_with(overlay, flags).await;
    stage.wait_until_ready().await;
    stage.shown(STATUS, |status| status["leadership"]["role"] == role).await;
    stage.verdict("web", "in sync: ").await;
    stage
}

fn queue(name: &str) -> String {
    format!("/api/v1/queues/kubernetes/{}", pool_of(name))
}

/// Waits until a pool is shown as out of sync and paused.
async fn differs_and_is_paused(stage: &Stage) -> Value {
    stage
        .shown(&queue("web"), |answer| {
            let pool = &answer["pool"];
            pool["state"] == "paused" && pool["members"]["missing"] == json!([node_ip(1)])
        })
        .await
}

/// Waits until the pool of a Service has this node as its only member.
async fn is_on(stage: &Stage, name: &str, node: usize) {
    eventually("the pool follows its endpoints", TEST_TIMEOUT, || async {
        let members = stage.fakes.members(simulator::CLUSTER_NAME, &pool_of(name)).await.expect("the pool");
        let members: Vec<String> = members.into_iter().map(|member| member.ip.to_string()).collect();
        if members == [node_ip(node)] { Ok(()) } else { Err(format!("{members:?}")) }
    })
    .await;
}

async fn holds(stage: &Stage, node: usize) {
    is_on(stage, "web", node).await;
}

async fn move_to(stage: &Stage, node: usize) {
    set_endpoints(&stage.fakes, "web", &[Endpoint::ready(&node_name(node))]).await;
}

async fn shared_lease(stage: &Stage) -> Option<Value> {
    let name = "aks-managed-resource-locker";
    stage.fakes.cluster.ask(move |cluster, _| cluster.model.get(Resource::Leases, "kube-system", name)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_each_post_needs_a_permitted_token() {
    let stage = Stage::ready(1).await;
    for path in [
        "pause",
        "resume",
        "compare",
        "gates/open",
        "held/release",
        "log-level",
        "queues/kubernetes/x/attempt",
    ] {
        let path = format!("/api/v1/{path}");
        for token in [None, Some("nobody")] {
            let answer = stage.post(&path, token, &json!({})).await;
            assert_eq!(
                (answer.status, answer.kind.as_str()),
                (401, "application/problem+json"),
                "{answer:?}"
            );
        }
        let answer = stage.post(&path, Some("outsiders-token"), &json!({})).await;
        assert_eq!(answer.status, 403, "{answer:?}");
        assert!(answer.text.contains("nonResourceURLs") && answer.text.contains("outsider"), "{answer:?}");
        assert!(answer.text.contains(&format!("post /azure-backend-pool-controller{path}")), "{answer:?}");
    }
    stage.fakes.plant(|model| model.down(true)).await;
    let answer = stage.post("/api/v1/pause", TOKEN, &json!({ "scope": "everything" })).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    stage.fakes.plant(|model| model.down(false)).await;
    let status = stage.get(STATUS).await;
    assert_eq!(status["pauses"]["items"], json!([]), "{status}");
}

/// Sends a POST with a `Content-Length` and without a body, and returns the first line of the answer.
async fn promised(stage: &Stage, token: Option<&str>) -> String {
    let mut connection = tokio::net::TcpStream::connect(&stage.admin).await.expect("the listener");
    let token = token.map_or_else(String::new, |token| format!("Authorization: Bearer {token}\r\n"));
    let head = format!("POST /api/v1/pause HTTP/1.1\r\nHost: localhost\r\n{token}Content-Length: 9\r\n\r\n");
    connection.write_all(head.as_bytes()).await.expect("a head");
    let mut line = String::new();
    let read = BufReader::new(connection);
    let read_line =
        tokio::time::timeout(TEST_TIMEOUT, async { read.take(1_000).read_line(&mut line).await }).await;
    read_line.expect("an answer in time").expect("an answer");
    line.trim().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_a_body_is_awaited_from_permitted_clients_within_bounds() {
    let stage = Stage::ready(1).await;
    assert_eq!(promised(&stage, None).await, "HTTP/1.1 401 Unauthorized");
    assert_eq!(promised(&stage, TOKEN).await, "HTTP/1.1 408 Request Timeout");
    let body = json!({ "scope": "everything", "reason": "x".repeat(12_000) });
    let answer = stage.post("/api/v1/pause", TOKEN, &body).await;
    assert_eq!((answer.status, answer.kind.as_str()), (413, "application/problem+json"), "{answer:?}");
    let status = stage.get(STATUS).await;
    assert_eq!(status["pauses"]["items"], json!([]), "{status}");

    // No token is logged at any level.
    assert_eq!(stage.post("/api/v1/log-level", TOKEN, &json!({ "level": "trace" })).await.status, 200);
    assert_eq!(stage.post("/api/v1/compare", TOKEN, &json!({})).await.status, 200);
    eventually("the request is logged among lines of the level trace", TEST_TIMEOUT, || async {
        let log = stage.log();
        assert!(!format!("{log:?}").contains("a-secret-token"), "a token is logged");
        let done =
            |line: &Value| line["message"] == "an operator request" && line["path"] == "/api/v1/compare";
        let traced = |line: &Value| line["level"] == "TRACE";
        if log.iter().any(done) && log.iter().any(traced) { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_a_pause_of_everything_outlives_the_process() {
    let mut stage = leading(&json!({}), &[], "leader").await;
    let puts = stage.fakes.counters().await.pool_puts;
    let body = json!({ "scope": "everything", "reason": "a drill" });
    let answer = stage.post("/api/v1/pause", TOKEN, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!((&answer.json()["answer"], &answer.json()["takesEffect"]), (&json!("paused"), &json!("now")));
    let status = stage.shown(STATUS, |status| status["pauses"]["items"][0]["scope"] == "everything").await;
    let item = &status["pauses"]["items"][0];
    assert_eq!((&item["by"], &item["reason"]), (&json!(USER), &json!("a drill")), "{status}");
    assert!(item["since"].is_string(), "{status}");
    assert_eq!(status["mode"], "enforce");
    let series = "backend_pool_controller_pauses{scope=\"everything\"}";
    assert_eq!(stage.series(series).await, Some(1.0));
    move_to(&stage, 1).await;
    let pool = differs_and_is_paused(&stage).await;
    let by = &pool["pool"]["pausedBy"][0];
    assert_eq!(
        (&by["scope"], &by["by"], &by["reason"]),
        (&json!("everything"), &json!(USER), &json!("a drill")),
        "{pool}"
    );
    let verdict = format!("everything is paused (by {USER}, since ");
    let shown = stage.verdict("web", &verdict).await;
    assert!(
        shown["verdict"].as_str().is_some_and(|text| text.ends_with("; 1 missing, 1 surplus")),
        "{shown}"
    );

    stage.signal(Signal::KILL);
    assert_eq!(stage.ended().await.code(), None);
    let lease = shared_lease(&stage).await;
    let stage = stage.another("second").await;
    leads(&stage).await;
    differs_and_is_paused(&stage).await;
    assert_eq!(stage.fakes.counters().await.pool_puts, puts);
    assert_eq!(shared_lease(&stage).await, lease, "the shared Lease is not taken");
    let answer = stage.post(&format!("{}/attempt", queue("web")), TOKEN, &json!({})).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    assert!(answer.text.contains("resume with the scope everything"), "{answer:?}");
    let wanted = |line: &Value| line["action"] == "an attempt of pool kubernetes/shop-web";
    stage.logged("the log names the request", wanted).await;

    let answer = stage.post("/api/v1/resume", TOKEN, &json!({ "scope": "everything" })).await;
    assert_eq!((answer.status, &answer.json()["wasPaused"]), (200, &json!(true)), "{answer:?}");
    holds(&stage, 1).await;
    let answer = stage.post("/api/v1/resume", TOKEN, &json!({ "scope": "everything" })).await;
    assert_eq!(answer.json()["wasPaused"], false, "{answer:?}");
    stage.logged("the user of the request", |line| line.to_string().contains(USER)).await;
    assert!(!format!("{:?}", stage.log()).contains("a-secret-token"), "and not its token");
}

/// Moves `mail`, whose pool is written after all earlier changes of the same load balancer, and asserts that this is
/// the only write.
async fn only_mail_is_written(stage: &Stage, node: usize, puts: u64) {
    set_endpoints(&stage.fakes, "mail", &[Endpoint::ready(&node_name(node))]).await;
    is_on(stage, "mail", node).await;
    assert_eq!(stage.fakes.counters().await.pool_puts, puts, "a paused pool is not written");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_one_pool_or_service_is_paused_and_bad_notes_are_shown() {
    let stage = leading(&json!({}), &[], "leader").await;
    add_service(&stage.fakes, "mail", &[0]).await;
    stage.verdict("mail", "in sync: ").await;
    let puts = stage.fakes.counters().await.pool_puts;
    let service = json!({ "scope": "service", "namespace": NAMESPACE, "name": "web" });
    let pool = json!({ "scope": "pool", "loadBalancer": "kubernetes", "backendPool": pool_of("web") });
    for body in [&service, &pool] {
        assert_eq!(stage.post("/api/v1/pause", TOKEN, body).await.status, 200);
    }
    move_to(&stage, 1).await;
    let shown = differs_and_is_paused(&stage).await;
    let by: Vec<&Value> =
        shown["pool"]["pausedBy"].as_array().into_iter().flatten().map(|by| &by["scope"]).collect();
    assert_eq!(by, ["pool", "service"], "{shown}");
    let answer = stage.verdict("web", "the pool is paused").await;
    let service_shown = &answer["service"];
    assert_eq!(service_shown["paused"], true, "{answer}");
    let by: Vec<(&Value, &Value, &Value)> = service_shown["pausedBy"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (&one["scope"], &one["target"], &one["by"]))
        .collect();
    let user = json!(USER);
    let (pool_target, service_target) = (json!("kubernetes/shop-web"), json!("shop/web"));
    assert_eq!(
        by,
        [(&json!("pool"), &pool_target, &user), (&json!("service"), &service_target, &user)],
        "{answer}"
    );
    only_mail_is_written(&stage, 1, puts + 1).await;
    assert_eq!(stage.post("/api/v1/resume", TOKEN, &service).await.status, 200);
    let by_pool_alone = |answer: &Value| {
        let by = answer["pool"]["pausedBy"].as_array();
        by.is_some_and(|by| by.len() == 1 && by[0]["scope"] == "pool")
    };
    stage.shown(&queue("web"), by_pool_alone).await;
    differs_and_is_paused(&stage).await;
    only_mail_is_written(&stage, 2, puts + 2).await;
    assert_eq!(stage.post("/api/v1/resume", TOKEN, &pool).await.status, 200);
    holds(&stage, 1).await;
    assert_eq!(stage.fakes.counters().await.pool_puts, puts + 3, "one write per change of a pool");

    let edit = |cluster: &mut simulator::Cluster, now: u64| {
        let name = "azure-backend-pool-controller";
        let mut map = cluster.model.get(Resource::ConfigMaps, "kube-system", name).expect("it is there");
        map["data"]["pause.pool.typo"] = "kubernetes".into();
        cluster.model.apply(map, now).expect("a ConfigMap");
    };
    stage.fakes.cluster.ask(edit).await;
    let status = stage.shown(STATUS, |status| status["pauses"]["unreadable"][0].is_object()).await;
    let unreadable = &status["pauses"]["unreadable"][0];
    assert_eq!(unreadable["key"], "pause.pool.typo", "{status}");
    assert!(unreadable["remedy"].is_string(), "{status}");
    let is_logged = |line: &Value| line["message"] == "failed to read a pause";
    assert_eq!(stage.logged("what cannot be read", is_logged).await.len(), 1, "{:?}", stage.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_unreadable_pauses_keep_the_term_from_beginning() {
    let prepared = Prepared::new(1).await;
    prepared.fakes.plant(|model| model.forbid(Resource::ConfigMaps)).await;
    let stage = prepared.start(&json!({})).await;
    let status = stage.shown(STATUS, |status| status["pauses"]["leaderWaits"] == true).await;
    assert!(status["pauses"]["lastError"].as_str().is_some_and(|error| error.contains("403")), "{status}");
    assert_eq!(status["pauses"]["items"], Value::Null, "{status}");
    assert_eq!(status["leadership"]["role"], "confirming", "{status}");
    let is_logged =
        |line: &Value| line["message"] == "failed to read the pauses" && line["remedy"].is_string();
    stage.logged("that pauses cannot be read", is_logged).await;
    assert_eq!(stage.series("backend_pool_controller_leader_waits_for_pauses").await, Some(1.0));
    let ready = stage.health("/readyz?verbose").await.text;
    let expected = "[+]pauses cannot be read; nothing is written until they can be; see the log and pauses in /api/v1/status";
    assert!(ready.contains(expected), "{ready}");
    assert!(!ready.contains("403"), "the API server's message is shown only by the admin API: {ready}");
    stage.fakes.plant(|model| model.permit(Resource::ConfigMaps)).await;
    leads(&stage).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_an_attempt_compares_a_pool_in_sync_on_the_leader_alone() {
    let stage = leading(&json!({}), &[], "leader").await;
    let path = format!("{}/attempt", queue("web"));
    let answer = stage.post(&path, TOKEN, &json!({})).await;
    assert_eq!((answer.status, &answer.json()["answer"]), (200, &json!("attempting")), "{answer:?}");
    stage.shown(&queue("web"), |answer| answer["pool"]["lastAttempt"]["outcome"] == "unchanged").await;
    let answer = stage.post("/api/v1/queues/kubernetes/nobodys/attempt", TOKEN, &json!({})).await;
    assert_eq!(answer.status, 404, "{answer:?}");
    assert_eq!(stage.admin(reqwest::Method::GET, &path).await.allow, "POST");

    let standby = stage.another("standby").await;
    standby.wait_until_ready().await;
    let identity = stage.get(STATUS).await["leadership"]["identity"].as_str().expect("a name").to_owned();
    standby.shown(STATUS, |status| status["leadership"]["holder"] == *identity).await;
    let answer = standby.post(&path, TOKEN, &json!({})).await;
    assert_eq!(answer.status, 409, "{answer:?}");
    assert_eq!(answer.json()["leader"], *identity, "{answer:?}");
    let release = json!({ "scope": "everything" });
    assert_eq!(standby.post("/api/v1/held/release", TOKEN, &release).await.json()["leader"], *identity);
    // A standby accepts a pause, and answers that the leader applies it.
    let answer = standby.post("/api/v1/pause", TOKEN, &json!({ "scope": "everything" })).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.json()["takesEffect"].as_str().is_some_and(|when| when.contains("15 s")), "{answer:?}");
    stage.shown(STATUS, |status| status["pauses"]["items"][0]["scope"] == "everything").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_load_balancers_are_compared_and_the_log_level_changes() {
    let stage = Stage::ready(1).await;
    let answer = stage.post("/api/v1/compare", TOKEN, &json!({})).await;
    assert_eq!(answer.json()["loadBalancers"].as_array().map(Vec::len), Some(4), "{answer:?}");
    let one = json!({ "loadBalancer": "KUBERNETES" });
    assert_eq!(stage.post("/api/v1/compare", TOKEN, &one).await.json()["loadBalancers"][0], "kubernetes");
    let answer = stage.post("/api/v1/compare", TOKEN, &json!({ "loadBalancer": "other" })).await;
    assert_eq!(answer.status, 404, "{answer:?}");
    let answer = stage.post("/api/v1/compare?lb=x", TOKEN, &json!({})).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    let answer = stage.post("/api/v1/pause", TOKEN, &json!({ "scope": "all" })).await;
    assert_eq!(answer.status, 400, "{answer:?}");

    assert_eq!(stage.post("/api/v1/log-level", TOKEN, &json!({ "level": "loud" })).await.status, 400);
    let is_debug = |line: &Value| line["level"] == "DEBUG";
    assert!(!stage.log().iter().any(is_debug));
    assert_eq!(stage.post("/api/v1/log-level", TOKEN, &json!({ "level": "debug" })).await.status, 200);
    eventually("a line of the level debug", TEST_TIMEOUT, || async {
        stage.health("/livez").await;
        if stage.log().iter().any(is_debug) { Ok(()) } else { Err("none".to_owned()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_the_mode_observe_shows_differences_and_writes_nothing() {
    let prepared = Prepared::new(1).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    let stage = prepared.start(&json!({ "mode": "observe" })).await;
    stage.wait_until_ready().await;
    leads(&stage).await;
    move_to(&stage, 1).await;
    let shown = differs_and_is_paused(&stage).await;
    let by = &shown["pool"]["pausedBy"];
    assert_eq!((by.as_array().map(Vec::len), &by[0]["scope"]), (Some(1), &json!("mode")), "{shown}");
    assert_eq!(
        shown["pool"]["wouldChange"],
        json!({ "add": [node_ip(1)], "remove": [node_ip(0)] }),
        "{shown}"
    );
    stage.verdict("web", "the mode is observe; 1 missing, 1 surplus").await;
    let status = stage.get(STATUS).await;
    assert_eq!(status["mode"], "observe");
    let sums = json!({
        "compared": 2, "unseen": 0, "pools": 1, "add": 1, "remove": 1, "held": { "pools": 0, "members": 0 },
    });
    assert_eq!(status["wouldChange"], sums, "{status}");
    let release = ("/api/v1/held/release".to_owned(), json!({ "scope": "everything" }));
    for (path, body) in [(format!("{}/attempt", queue("web")), json!({})), release] {
        let answer = stage.post(&path, TOKEN, &body).await;
        assert_eq!(
            (answer.status, &answer.json()["title"]),
            (409, &json!("the mode only observes")),
            "{answer:?}"
        );
        assert!(
            answer.text.contains("mode: enforce") && !answer.text.contains("/api/v1/resume"),
            "{answer:?}"
        );
    }
    assert_eq!(stage.series("backend_pool_controller_mode{mode=\"observe\"}").await, Some(1.0));
    assert_eq!(stage.fakes.counters().await.pool_puts, 0);
    assert_eq!(shared_lease(&stage).await, None);
    let events = stage.fakes.cluster.ask(|cluster, _| cluster.model.list(Resource::Events).count()).await;
    assert_eq!(events, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_a_dry_run_refuses_operators_writes_and_compares() {
    let stage = leading(&json!({}), &["--dry-run"], "alone").await;
    let attempt = format!("{}/attempt", queue("web"));
    for path in ["/api/v1/pause", "/api/v1/resume", "/api/v1/held/release", &attempt] {
        let body = if path == attempt { json!({}) } else { json!({ "scope": "everything" }) };
        let answer = stage.post(path, TOKEN, &body).await;
        assert_eq!((answer.status, &answer.json()["title"]), (409, &json!("dry run")), "{path}: {answer:?}");
    }
    let answer = stage.post("/api/v1/compare", TOKEN, &json!({})).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(stage.get(STATUS).await["wouldChange"]["compared"], 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_h3_a_paused_service_gets_no_event() {
    let stage = leading(&json!({}), &[], "leader").await;
    let service = json!({ "scope": "service", "namespace": NAMESPACE, "name": "web" });
    let pool = json!({ "scope": "pool", "loadBalancer": "kubernetes", "backendPool": pool_of("web") });
    for body in [&service, &pool, &json!({ "scope": "everything" })] {
        let answer = stage.post("/api/v1/held/release", TOKEN, body).await;
        assert_eq!((answer.status, &answer.json()["title"]), (409, &json!("nothing is held")), "{answer:?}");
    }
    let unknown = json!({ "scope": "service", "namespace": NAMESPACE, "name": "nobody" });
    assert_eq!(stage.post("/api/v1/held/release", TOKEN, &unknown).await.status, 404);

    assert_eq!(stage.post("/api/v1/pause", TOKEN, &service).await.status, 200);
    let events = async || {
        let of = |cluster: &mut simulator::Cluster, _| {
            let events = cluster.model.list(Resource::Events);
            let held = events.filter(|event| event["reason"] == "BackendPoolRemovalHeld");
            held.count()
        };
        stage.fakes.cluster.ask(of).await
    };
    set_endpoints(&stage.fakes, "web", &[]).await;
    stage.shown(&queue("web"), |answer| answer["pool"]["held"].is_object()).await;
    assert_eq!(stage.series("backend_pool_controller_oldest_waiting_change_seconds").await, Some(0.0));
    assert_eq!(events().await, 0, "as in the mode observe");
    assert_eq!(stage.post("/api/v1/resume", TOKEN, &service).await.status, 200);
    eventually("conditions that still hold are reported after the pause", TEST_TIMEOUT, || async {
        if events().await == 1 { Ok(()) } else { Err("not yet".to_owned()) }
    })
    .await;
    let answer = stage.post("/api/v1/held/release", TOKEN, &service).await;
    assert_eq!(answer.json()["released"][0]["reason"], "empty_confirm", "{answer:?}");
}
