//! `simulate`: the destinations of its report (docs/design/surface.md, Z2). `faults` tests its scenarios and their
//! results.

use std::net::TcpListener;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::{Folder, command, path, refused, run, text};
use crate::support::{TEST_TIMEOUT, eventually, log_lines};

/// A run of a few seconds.
const SHORT: [&str; 13] = [
    "simulate",
    "--services=1",
    "--load-balancers=1",
    "--nodes=2",
    "--endpoints=1",
    "--duration=1s",
    "--rate=1",
    "--removal-delay=1s",
    "--settle=60s",
    "--exit-when-done",
    "--listen=127.0.0.1:0",
    "--report=json",
    "--folder",
];

/// Arguments with which `simulate` serves ARM and Kubernetes for a controller that the test starts.
const SERVED: [&str; 8] = [
    "simulate",
    "--serve-only",
    "--services=2",
    "--load-balancers=1",
    "--nodes=2",
    "--endpoints=1",
    "--listen=127.0.0.1:0",
    "--folder",
];

#[test]
fn z2_an_unwritable_report_fails_before_the_run() {
    let folder = Folder::new();
    for flag in ["--output", "--html"] {
        let arguments = [&SHORT[..], &[path(folder.0.path()), flag, "/nowhere/report"]].concat();
        let output = refused(&arguments, &[flag, "/nowhere/report", "check that its folder exists"]);
        assert!(!output.contains("configuration in "), "the service was started: {output}");
    }
}

#[test]
fn z2_a_busy_port_is_named_on_standard_error() {
    let folder = Folder::new();
    let busy = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = busy.local_addr().expect("its address");
    let listen = format!("--listen={address}");
    let others = SHORT.iter().copied().filter(|argument| !argument.starts_with("--listen"));
    let arguments: Vec<&str> = others.chain([path(folder.0.path()), &listen]).collect();
    let reason = format!("failed to listen on {address}; is the port in use by another process?");
    refused(&arguments, &[&reason, "service.log"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z2_under_simulate_the_page_shows_no_kubectl_commands() {
    let folder = Folder::new();
    let others = SHORT.iter().copied().filter(|argument| *argument != "--exit-when-done");
    let arguments: Vec<&str> = others.chain([path(folder.0.path())]).collect();
    let simulator = child(&arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut simulator = simulator.expect("the binary under test");
    let mut lines = BufReader::new(simulator.stderr.take().expect("it is piped")).lines();
    let page = async {
        loop {
            let line = lines.next_line().await.expect("text").expect("it is printed before the end");
            if let Some((_, page)) = line.split_once("watch it at ") {
                break page.to_owned();
            }
        }
    };
    let page = tokio::time::timeout(TEST_TIMEOUT, page).await.expect("it is printed in time");
    let answer = get(&format!("{page}api/v1/status")).await;
    // SIGTERM also stops the controller; SIGKILL would not.
    let id = i32::try_from(simulator.id().expect("it runs")).expect("process ids are small");
    kill_process(Pid::from_raw(id).expect("not 0"), Signal::TERM).expect("it can be signalled");
    let reading = async { while lines.next_line().await.is_ok_and(|line| line.is_some()) {} };
    let ended = tokio::time::timeout(TEST_TIMEOUT, async { tokio::join!(simulator.wait(), reading).0 }).await;
    ended.expect("it ends").expect("it is a child");
    let (_, text) = answer.expect("an answer");
    let status: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(status["installation"]["simulated"], true, "{text}");
}

#[test]
fn z2_the_report_replaces_the_content_of_both_files() {
    let folder = Folder::new();
    let old = "old words\n".repeat(100_000);
    let (output, html) = (folder.write("report.json", &old), folder.write("report.html", &old));
    let files = [path(folder.0.path()), "--output", path(&output), "--html", path(&html)];
    let ended = run(&[&SHORT[..], &files].concat());
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    let read = |file| std::fs::read_to_string(file).expect("the report");
    let report: serde_json::Value = serde_json::from_str(&read(&output)).expect("only JSON");
    assert_eq!(report["converged"], true, "{report}");
    let page = read(&html);
    assert!(page.trim_end().ends_with("</html>") && !page.contains("old words"), "{} bytes", page.len());
}

#[test]
fn z2_a_report_with_upstreams_updater_has_both_sides() {
    let folder = Folder::new();
    let output = folder.0.path().join("report.json");
    let more = [path(folder.0.path()), "--compare-upstream", "--output", path(&output)];
    let ended = run(&[&SHORT[..], &more].concat());
    assert!(ended.status.success(), "{}", text(&ended.stderr));
    assert_eq!(text(&ended.stdout), "", "the report is in the file alone");
    let report = std::fs::read_to_string(&output).expect("the report");
    let report: Value = serde_json::from_str(&report).expect("only JSON");
    let upstream = &report["upstream"];
    assert!(upstream.is_object(), "{report}");
    for key in ["services", "pools", "changes"] {
        assert_eq!((&report[key], &upstream[key]), (&json!(1), &json!(1)), "{key}: {report}");
    }
    assert_eq!(report["converged"], true, "{report}");
    assert!(upstream["converged"].is_boolean(), "{report}");
    // The controller ran as a process and without other clients; upstream's updater is part of a
    // cloud-controller-manager.
    let process = |side: &Value| side["cpu_seconds"].is_number() && side["queue_depth_end"] == 0;
    assert!(process(&report) && report["ccm"].is_null(), "{report}");
    assert!(!process(upstream) && upstream["ccm"]["reconciled"].is_number(), "{report}");
    assert!(upstream["upstream"].is_null(), "{report}");
}

/// Returns the command; its process is killed if the test ends first.
fn child(arguments: &[&str]) -> Command {
    let mut child = Command::from(command(arguments));
    child.env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1").kill_on_drop(true);
    child
}

/// Returns the status and the body of an answer.
async fn get(url: &str) -> Result<(u16, String), String> {
    let http = reqwest::Client::builder().no_proxy().build().expect("a client");
    let answer = http.get(url).send().await.map_err(|error| format!("{url}: {error:?}"))?;
    let status = answer.status().as_u16();
    Ok((status, answer.text().await.map_err(|error| format!("{url}: {error:?}"))?))
}

/// Sends SIGTERM, and asserts that the process exits with 0.
async fn terminate(mut child: Child, what: &str) {
    let id = i32::try_from(child.id().expect("it runs")).expect("process ids are small");
    kill_process(Pid::from_raw(id).expect("not 0"), Signal::TERM).expect("it can be signalled");
    let ended = tokio::time::timeout(TEST_TIMEOUT, child.wait()).await;
    let status = ended.unwrap_or_else(|_| panic!("{what} does not end")).expect("it is a child");
    assert_eq!(status.code(), Some(0), "{what}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z2_the_output_of_serve_only_starts_a_ready_service() {
    let folder = Folder::new();
    let files = folder.0.path().join("files");
    let serving = [&SERVED[..], &[path(&files)]].concat();
    let simulator = child(&serving).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut simulator = simulator.expect("the binary under test");
    let mut printed = BufReader::new(simulator.stdout.take().expect("it is piped")).lines();
    let command = async {
        loop {
            let line = printed.next_line().await.expect("text").expect("it is printed before the end");
            if let Some(arguments) = line.strip_prefix("azure-backend-pool-controller ") {
                break arguments.to_owned();
            }
        }
    };
    let command = tokio::time::timeout(TEST_TIMEOUT, command).await.expect("it is printed in time");

    let arguments: Vec<&str> = command.split(' ').collect();
    assert_eq!(arguments.first(), Some(&"run"), "{command}");
    let log = folder.0.path().join("log");
    let file = std::fs::File::create(&log).expect("the folder can be written");
    let service = child(&arguments).stdout(Stdio::null()).stderr(file).spawn();
    let service = service.expect("the binary under test");
    let started = eventually("the service has its listeners", TEST_TIMEOUT, || async {
        let lines = log_lines(&log);
        let started = lines.iter().find(|line| line["message"] == "started").cloned();
        started.ok_or_else(|| format!("{lines:?}"))
    })
    .await;
    let url = |field: &str, path: &str| {
        let listener = started[field].as_str().expect("the address of a listener");
        format!("http://{listener}{path}")
    };
    let (ready, status) = (url("health", "/readyz?verbose"), url("admin", "/api/v1/status"));
    eventually("the service is ready", TEST_TIMEOUT, || async {
        let (status, text) = get(&ready).await?;
        if status == 200 { Ok(()) } else { Err(text) }
    })
    .await;
    eventually("it knows both pools", TEST_TIMEOUT, || async {
        let (_, text) = get(&status).await?;
        let status: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        if status["pools"]["total"] == 2 { Ok(()) } else { Err(text) }
    })
    .await;
    terminate(service, "the service").await;
    terminate(simulator, "the simulator").await;
}
