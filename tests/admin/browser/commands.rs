//! The commands of the page work when copied: a shell runs each of them, with a `kubectl` that creates tokens only for
//! the service account of this installation.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;

use serde_json::{Value, json};
use simulator::models::arm::Fault;
use simulator::models::kube::build::Endpoint;
use tempfile::TempDir;
use tokio::process::Command;

use super::{Reader, encoded};
use crate::admin::nodes::{OUT_OF_SERVICE, taint};
use crate::admin::stage::{Prepared, Stage, add_service, node_name, pool_of, set_endpoints};

/// Values that the chart sets for a release with another name than the chart.
const INSTALLATION: [(&str, &str); 3] = [
    ("POD_NAMESPACE", "pools"),
    ("DEPLOYMENT_NAME", "edge-pools"),
    ("OPERATOR_SERVICE_ACCOUNT", "edge-pools-operator"),
];

const KUBECTL: &str = r#"#!/bin/sh
if [ "$*" != "create token edge-pools-operator --namespace pools" ]; then
  echo "not the release's own names: kubectl $*" >&2
  exit 1
fi
echo a-secret-token
"#;

/// A shell whose `kubectl` knows one service account.
struct Shell(TempDir);

impl Shell {
    fn new() -> Shell {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let kubectl = folder.path().join("kubectl");
        std::fs::write(&kubectl, KUBECTL).expect("the folder can be written");
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&kubectl, permissions).expect("it can be made executable");
        Shell(folder)
    }

    /// Runs a command unchanged, and returns its output.
    async fn run(&self, text: &str) -> Value {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new("sh");
        command.args(["-c", text]).env("PATH", format!("{}:{path}", self.0.path().display()));
        command.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").stdin(Stdio::null());
        let output = command.output().await.expect("a shell");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {text}: {output:?}"))
    }
}

/// An operator who uses the page.
struct Operator {
    reader: Reader,
    shell: Shell,
    requested: BTreeSet<String>,
}

impl Operator {
    /// Opens a part of the page, runs the command under this title, and asserts this answer.
    async fn asks(&mut self, stage: &Stage, fragment: &str, title: &str, answer: &str) {
        self.reader.open(stage, fragment).await;
        let shown = format!(
            "[...document.querySelectorAll('details.request')].find((one) => \
             one.querySelector('summary').textContent.startsWith({}))",
            json!(title)
        );
        self.reader.browser.wait(&format!("Boolean({shown})")).await;
        let text = self.reader.browser.value(&format!("{shown}.querySelector('pre').textContent")).await;
        let text = text.as_str().expect("a command");
        let response = self.shell.run(text).await;
        assert_eq!(response["answer"], answer, "{text}: {response}");
        let path = text.split_once("/api/v1").map(|(_, path)| path.trim_end_matches('\'').to_owned());
        self.requested.insert(path.expect("a path of the API"));
        self.reader.is_right(title).await;
    }
}

fn of(kind: &str, name: &str) -> String {
    let name = if kind == "pool" { format!("kubernetes/{}", pool_of(name)) } else { format!("shop/{name}") };
    format!("open={}", encoded(&format!("{kind}:{name}")))
}

async fn shown_paused(stage: &Stage, count: usize) {
    let all = |status: &Value| status["pauses"]["items"].as_array().is_some_and(|all| all.len() == count);
    stage.shown("/api/v1/status", all).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_every_request_is_shown_as_a_working_command() {
    let Some(reader) = Reader::start().await else { return };
    let mut operator = Operator { reader, shell: Shell::new(), requested: BTreeSet::new() };
    let prepared = Prepared::new(1).await;
    for name in ["web", "one", "two", "three"] {
        add_service(&prepared.fakes, name, &[0]).await;
    }
    let stage = prepared.start_in(&json!({}), &INSTALLATION).await;
    stage.wait_until_ready().await;
    stage.shown("/api/v1/status", |status| status["leadership"]["role"] == "leader").await;
    for name in ["web", "one", "two", "three"] {
        stage.verdict(name, "in sync: ").await;
    }
    for name in ["one", "two", "three"] {
        set_endpoints(&stage.fakes, name, &[]).await;
        stage.verdict(name, "held back (empty_confirm)").await;
    }

    operator.asks(&stage, &of("pool", "one"), "Release the held removal of this pool", "released").await;
    operator.asks(&stage, &of("service", "two"), "Release the held removals", "released").await;
    operator.asks(&stage, "view=held", "Release everything", "released").await;
    operator.asks(&stage, &of("pool", "web"), "Attempt it now", "attempting").await;
    operator.asks(&stage, &of("pool", "web"), "Compare the pools of kubernetes", "comparing").await;
    operator.asks(&stage, "view=sources", "Compare all pools", "comparing").await;
    operator.asks(&stage, "view=sources", "Log more lines", "set").await;
    for (at, pause, resume) in [
        (of("pool", "web"), "Pause this pool", "Resume this pool"),
        (of("service", "web"), "Pause this Service", "Resume this Service"),
        ("view=sources".to_owned(), "Pause everything", "Resume everything"),
        // The same from the line about the pause.
        (of("service", "web"), "Pause this Service", "Resume shop/web"),
        (of("pool", "web"), "Pause this pool", "Resume kubernetes/shop-web"),
    ] {
        operator.asks(&stage, &at, pause, "paused").await;
        shown_paused(&stage, 1).await;
        operator.asks(&stage, &at, resume, "resumed").await;
        shown_paused(&stage, 0).await;
    }

    // Half of six nodes may be Down at a time: the fourth waits.
    for node in 0..4 {
        taint(&stage, node, &[OUT_OF_SERVICE]).await;
    }
    let held = stage.shown("/api/v1/nodes?state=held", |page| page["items"][0].is_object()).await;
    let name = held["items"][0]["name"].as_str().expect("a name");
    operator.asks(&stage, &format!("view=nodes&open=node%3A{name}"), "Release this node", "released").await;

    let throttled = Fault::every_nth_put(1, 429, "TooManyRequests", Some("600"));
    stage.fakes.tune_arm(|arm| arm.faults = vec![throttled]).await;
    set_endpoints(&stage.fakes, "web", &[Endpoint::ready(&node_name(5))]).await;
    stage
        .shown("/api/v1/status", |status| {
            let gates = status["gates"].as_array();
            gates.into_iter().flatten().any(|gate| gate["blockedBy"] == "throttled")
        })
        .await;
    operator.asks(&stage, "view=sources", "Ask Azure for writes again", "opened").await;

    let api = stage.get("/openapi.json").await;
    let paths = api["paths"].as_object().expect("paths").iter();
    let posts = paths.filter(|(_, item)| item.get("post").is_some()).map(|(path, _)| path);
    let wanted: BTreeSet<String> = posts
        .map(|path| path.replace("{lb}", "kubernetes").replace("{pool}", &pool_of("web")))
        .map(|path| path.trim_start_matches("/api/v1").to_owned())
        .collect();
    assert_eq!(operator.requested, wanted, "every request of operators is offered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_under_simulate_a_command_works_without_kubectl() {
    let Some(reader) = Reader::start().await else { return };
    let mut operator = Operator { reader, shell: Shell::new(), requested: BTreeSet::new() };
    let prepared = Prepared::new(1).await;
    let stage = prepared.start_in(&json!({}), &[("SIMULATED_API_SERVER", "true")]).await;
    stage.wait_until_ready().await;
    operator.asks(&stage, "view=sources", "Pause everything", "paused").await;
    let page = operator.reader.text("list").await;
    assert!(!page.contains("kubectl"), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_the_page_explains_sign_in_and_names_the_leader() {
    let Some(mut reader) = Reader::start().await else { return };
    let stage = Stage::ready(1).await;
    let commands = "[...document.querySelectorAll('#rows pre')].map((one) => one.textContent).join('\\n')";
    reader.open(&stage, "view=sources").await;
    let shown = reader.browser.value(commands).await;
    let shown = shown.as_str().expect("commands");
    for part in [
        "kubectl create serviceaccount operator --namespace kube-system",
        "--serviceaccount=kube-system:operator",
        "$(kubectl create token operator --namespace kube-system)",
    ] {
        assert!(shown.contains(part), "{part} is not in {shown}");
    }
    let standby = stage.another("standby").await;
    standby.wait_until_ready().await;
    let status = standby.shown("/api/v1/status", |status| status["leadership"]["holder"].is_string()).await;
    let holder = status["leadership"]["holder"].as_str().and_then(|holder| holder.split_once('_'));
    let pod = holder.expect("a pod").0;
    let queues = stage.shown("/api/v1/queues", |page| page["items"][0].is_object()).await;
    let of = |key: &str| queues["items"][0][key].as_str().expect("a name").to_owned();
    let link = encoded(&format!("pool:{}/{}", of("loadBalancer"), of("backendPool")));
    reader.open(&standby, &format!("open={link}")).await;
    let shown = reader.browser.value(&commands.replace("#rows", "#one")).await;
    let way = format!("kubectl --namespace kube-system port-forward pod/{pod} :");
    assert!(shown.as_str().is_some_and(|shown| shown.contains(&way)), "{way} is not in {shown}");
}
