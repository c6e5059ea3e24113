//! No secret appears when a proxy before the API server or ARM echoes requests (C1): neither in the log, at the
//! listeners, in events, in the controller's ConfigMap, nor in the output of the commands.

use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use simulator::models::kube::build::Endpoint;

use super::peer::ReceivedRequest;
use super::repeater::{Choice, Repeater, Way};
use super::{END_TIMEOUT, FINEST, SIGNATURE, TOKEN};
use crate::admin::stage::{NAMESPACE, add_service, node_name, pool_of, set_endpoints};
use crate::commands::fixture::{Ended, Fixture};
use crate::support::{TEST_TIMEOUT, eventually, log_lines};

/// Tokens of the controller at the API server: one like those of service accounts, and one without a recognisable form.
const SIGNED: &str = "eyJhbGciOiJSUzI1NiJ9.eyJwbGFudGVkIjoia3ViZXJuZXRlcyJ9.cGxhbnRlZA-kubernetes";
const OPAQUE: &str = "planted-kubernetes-token";
const BOOTSTRAP: &str = "p1ante.d0123456789abcde";
/// Token of the operator.
const OPERATOR_TOKEN: &str = "planted-person-token";
const MARKERS: [&str; 6] = [SIGNED, OPAQUE, BOOTSTRAP, OPERATOR_TOKEN, TOKEN, SIGNATURE];

/// An environment with proxies that echo requests.
struct TestEnvironment {
    fixture: Fixture,
    kubernetes: Repeater,
    _arm: Repeater,
    log: PathBuf,
}

fn never(_: &ReceivedRequest, _: usize) -> Option<Way> {
    None
}

impl TestEnvironment {
    async fn new(token: &str, kubernetes: Choice, arm: Choice) -> Self {
        let keys = json!({
            "members": { "removalDelay": "0s" }, "batching": { "quietPeriod": "50ms" }, "discovery": { "interval": "5s" },
            "log": { "level": "trace" },
        });
        let fixture = Fixture::with(2, &keys).await;
        // Tokens are sent only over TLS, but any answer may contain one.
        let more = format!(
            "authorization: Bearer {TOKEN}\r\nsee https://localhost/x?sig={SIGNATURE}&sv=1 and {BOOTSTRAP} and {TOKEN}"
        );
        let kubernetes = Repeater::start(&fixture.fakes.kubernetes_url, &more, kubernetes).await;
        let arm = Repeater::start(&fixture.fakes.arm_url, &more, arm).await;
        let url = arm.url.clone();
        fixture.configure(|cloud| cloud["resourceManagerEndpoint"] = json!(url));
        fixture.fakes.azure.ask(move |azure, _| azure.model.set_endpoint(&url)).await;
        let log = fixture.folder.path().join("log");
        let env = Self { fixture, kubernetes, _arm: arm, log };
        env.sign_in(&json!({ "token": token }));
        env
    }

    /// Sets the credentials for the API server.
    fn sign_in(&self, user: &Value) {
        let path = &self.fixture.files.kubeconfig;
        let text = std::fs::read_to_string(path).expect("the simulator has written it");
        let mut file: Value = serde_json::from_str(&text).expect("it is JSON");
        file["users"][0]["user"] = user.clone();
        file["clusters"][0]["cluster"]["server"] = json!(self.kubernetes.url);
        std::fs::write(path, file.to_string()).expect("the folder can be written");
    }

    /// Runs the controller until its log satisfies `enough`, reads all its pages, those of these Services in detail,
    /// stops it, and returns everything it has shown.
    async fn run(&self, what: &str, services: &[&str], enough: impl Fn(&str) -> bool) -> String {
        let log = std::fs::File::create(&self.log).expect("the folder can be written");
        let mut command = self.fixture.command("run", &[]);
        command.env("RUST_LOG", FINEST).stdout(Stdio::null()).stderr(log);
        let mut child = command.spawn().expect("the binary under test");
        let started = eventually("the controller has its listeners", TEST_TIMEOUT, || async {
            let started = log_lines(&self.log).into_iter().find(|line| line["message"] == "started");
            started.ok_or_else(|| self.logged())
        })
        .await;
        eventually(what, TEST_TIMEOUT, || async {
            let log = self.logged();
            // At this level most lines are of dependencies.
            let ours = |line: &&str| line.contains("\"target\":\"a") && !line.contains("actix");
            let lines = || log.lines().filter(ours).collect::<Vec<_>>().join("\n");
            if enough(&log) { Ok(()) } else { Err(lines()) }
        })
        .await;
        let mut shown_text = shown(&started).await;
        if !services.is_empty() {
            shown_text.push_str(&details(&started, services).await);
        }
        let id = i32::try_from(child.id().expect("it runs")).expect("process ids are small");
        kill_process(Pid::from_raw(id).expect("not 0"), Signal::TERM).expect("it can be signalled");
        let ended = tokio::time::timeout(END_TIMEOUT, child.wait()).await.expect("it ends");
        assert_eq!(ended.expect("it is a child").code(), Some(0), "{}", self.logged());
        shown_text.push_str(&self.logged());
        shown_text.push_str(&self.in_the_cluster().await);
        shown_text
    }

    fn logged(&self) -> String {
        std::fs::read_to_string(&self.log).expect("the log")
    }

    /// Returns all objects that the controller has written.
    async fn in_the_cluster(&self) -> String {
        let map = self.fixture.config_map().await;
        format!("{}\n{map:?}\n", self.events().await)
    }

    async fn events(&self) -> String {
        let http = reqwest::Client::builder().no_proxy().build().expect("a client");
        let url = format!("{}/api/v1/events", self.fixture.fakes.kubernetes_url);
        http.get(url).send().await.expect("an answer").text().await.expect("a body")
    }
}

/// Returns all pages of the listeners, and the answers to an operator whose token is echoed.
async fn shown(started: &Value) -> String {
    // A listener that rejects a request before its body closes the connection.
    let http = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().expect("a client");
    let (admin, health) = (started["admin"].as_str(), started["health"].as_str());
    let (admin, health) = (admin.expect("an address"), health.expect("an address"));
    let mut shown = String::new();
    for path in ["status", "queues", "services", "held"] {
        let answer = http.get(format!("http://{admin}/api/v1/{path}")).send().await.expect("an answer");
        assert_eq!(answer.status().as_u16(), 200, "{path}");
        shown.push_str(&answer.text().await.expect("a body"));
    }
    for path in ["/metrics", "/readyz?verbose", "/livez?verbose"] {
        let answer = http.get(format!("http://{health}{path}")).send().await.expect("an answer");
        shown.push_str(&answer.text().await.expect("a body"));
    }
    // Each request gets another kind of answer.
    for _ in 0..8 {
        let post = http.post(format!("http://{admin}/api/v1/compare")).bearer_auth(OPERATOR_TOKEN).body("{}");
        let answer = post.send().await.expect("an answer");
        shown.push_str(&answer.text().await.expect("a body"));
    }
    shown
}

/// Waits until the admin API shows a failed write of each of these Services, and returns the details of each Service
/// and pool.
async fn details(started: &Value, services: &[&str]) -> String {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let admin = started["admin"].as_str().expect("an address");
    let mut details = String::new();
    for name in services {
        let queue = format!("queues/{}/{}", simulator::CLUSTER_NAME, pool_of(name));
        for path in [queue, format!("services/{NAMESPACE}/{name}")] {
            let what = format!("{path} has ARM's message");
            let details_shown = eventually(&what, TEST_TIMEOUT, || async {
                let answer = http.get(format!("http://{admin}/api/v1/{path}")).send().await;
                let answer = answer.map_err(|error| error.to_string())?;
                let status = answer.status().as_u16();
                let text = answer.text().await.map_err(|error| error.to_string())?;
                if status == 200 && text.contains("I was sent") {
                    Ok(text)
                } else {
                    Err(format!("{status}: {text}"))
                }
            });
            details.push_str(&details_shown.await);
        }
    }
    details
}

fn assert_unseen(what: &str, text: &str) {
    for marker in MARKERS {
        if let Some(at) = text.find(marker) {
            let around: String = text[..at].chars().rev().take(600).collect();
            let around: String = around.chars().rev().collect();
            panic!("{what} shows {marker}, after: {around}");
        }
    }
}

/// Echoes every request, in each way in turn.
fn everything(request: &ReceivedRequest, number: usize) -> Option<Way> {
    if request.line.contains("watch=true") {
        // Streaming lists are requested once; after a refusal lists are paged.
        return Some(Way::Event(500));
    }
    Some(match number % 4 {
        0 => Way::Text(403),
        1 if request.line.contains("tokenreviews") => Way::Reason,
        1 => Way::Message(500),
        2 => Way::Nonsense,
        _ => Way::Message(403),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_no_secret_is_seen_when_a_proxy_echoes_requests() {
    for token in [OPAQUE, BOOTSTRAP] {
        let env = TestEnvironment::new(token, everything, never).await;
        let kinds = ["\"kind\":\"services\"", "\"kind\":\"nodes\"", "\"kind\":\"endpointslices\""];
        let is_logged = |log: &str| {
            kinds.iter().all(|kind| log.contains(kind))
                && ["HTTP 403: I was sent", "HTTP 500: I was sent"].iter().all(|words| log.contains(words))
        };
        let request = env.run("the refusals are logged", &[], is_logged).await;
        assert!(request.contains("<redacted>"), "something was redacted");
        assert!(request.contains("failed to authorize"), "the reason is shown");
        assert_unseen("run", &request);
    }
}

/// Forwards reads of the cluster, and every second event.
fn some_events(request: &ReceivedRequest, number: usize) -> Option<Way> {
    let is_event = request.line.contains("/events") && !request.line.starts_with("GET");
    let ways = [Some(Way::Message(403)), None, Some(Way::Text(403)), None];
    ways[number % 4].filter(|_| is_event)
}

fn writes(request: &ReceivedRequest, number: usize) -> Option<Way> {
    let way = if number.is_multiple_of(2) { Way::Message(403) } else { Way::Text(403) };
    request.line.starts_with("PUT").then_some(way)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_events_about_an_echoed_write_show_no_secret() {
    let env = TestEnvironment::new(OPAQUE, some_events, writes).await;
    let names = ["web", "shop", "blog", "mail"];
    for name in names {
        add_service(&env.fixture.fakes, name, &[0]).await;
        set_endpoints(&env.fixture.fakes, name, &[Endpoint::ready(&node_name(1))]).await;
    }
    let is_logged = |log: &str| {
        log.contains("the API server rejected an Event") && log.matches("\"posted\":true").count() >= 2
    };
    let request = env.run("events are posted and refused", &names, is_logged).await;
    let events = env.events().await;
    assert!(events.contains("I was sent"), "events report the failed write: {events}");
    assert!(env.logged().contains("HTTP 403: I was sent"));
    assert_unseen("run", &request);
}

/// Echoes the reads of ARM too.
fn all_of_arm(_: &ReceivedRequest, number: usize) -> Option<Way> {
    Some(if number.is_multiple_of(2) { Way::Message(403) } else { Way::Text(403) })
}

fn output(ended: &Ended) -> String {
    format!("{}\n{}", ended.stdout, ended.stderr)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_no_secret_is_seen_in_the_output_of_commands() {
    for token in [SIGNED, OPAQUE] {
        let good = TestEnvironment::new(token, never, never).await;
        let file = good.fixture.path("pools.json");
        let ended = good.fixture.run("snapshot", &["--output", &file]).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");

        let env = TestEnvironment::new(token, everything, all_of_arm).await;
        let (new, plan) = (env.fixture.path("new.json"), env.fixture.path("plan.json"));
        let commands: [(&str, &[&str]); 6] = [
            ("check", &["--within", "5s"]),
            ("check", &["--within", "5s", "--output", "json", "--cloud-config-secret"]),
            ("snapshot", &["--output", &new]),
            ("snapshot", &["--verify", &file]),
            ("restore", &[&file, "--yes"]),
            ("run", &["--dry-run", "--export", &plan, "--until-synced", "--within", "5s"]),
        ];
        for (name, arguments) in commands {
            let ended = env.fixture.run(name, arguments).await;
            assert_ne!(ended.code, Some(0), "{name} {arguments:?}: {ended:?}");
            // The content of an unreadable Secret is not shown at all.
            let is_logged =
                output(&ended).contains("I was sent") || arguments.contains(&"--cloud-config-secret");
            assert!(is_logged, "{name} {arguments:?} tells why: {ended:?}");
            assert_unseen(name, &output(&ended));
        }
        let plan = std::fs::read_to_string(&plan).unwrap_or_default();
        assert_unseen("the export", &plan);

        // ARM answers normally, and the API server echoes.
        let env = TestEnvironment::new(token, everything, never).await;
        let new = env.fixture.path("new.json");
        let commands: [(&str, &[&str]); 2] = [
            ("snapshot", &["--output", &new, "--configmap"]),
            ("restore", &[&file, "--yes", "--within", "5s"]),
        ];
        for (name, arguments) in commands {
            let ended = env.fixture.run(name, arguments).await;
            assert_unseen(name, &output(&ended));
            assert!(output(&ended).contains("I was sent"), "{name} {arguments:?} tells why: {ended:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_no_secret_is_seen_of_a_kubeconfig_that_cannot_be_used() {
    let env = TestEnvironment::new(OPAQUE, never, never).await;
    let printed = json!({ "kind": "ExecCredential", "status": { "token": OPAQUE } }).to_string();
    let plugin = json!({
        "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never", "command": "/bin/sh",
        "args": ["-c", format!("echo '{printed}'; exit 1")],
    });
    for user in [
        json!({ "token": [OPAQUE] }),
        json!({ "token": OPAQUE, "as": [] }),
        json!({ "username": { "x": 1 }, "password": OPAQUE }),
        json!({ "exec": plugin }),
    ] {
        env.sign_in(&user);
        for name in ["check", "run"] {
            let ended = env.fixture.run(name, &["--dry-run"][..usize::from(name == "run")]).await;
            assert_eq!(ended.code, Some(1), "{user}: {ended:?}");
            let tells = ["kubeconfig", "failed to set up the Kubernetes client"];
            assert!(
                tells.iter().any(|reason| output(&ended).contains(reason)),
                "{name} tells why: {ended:?}"
            );
            assert_unseen(name, &output(&ended));
        }
    }
}
