//! Tests that a panic ends the process: each test runs itself as a child process that panics. Also tests that the chart
//! grants the process enough time to shut down.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::Duration;

use actix::{Actor, Context};
use rustix::process::Signal;
use serde_json::Value;

use super::{SHUTDOWN_TIMEOUT, system};
use crate::http::END_TIMEOUT;

/// Environment variable with the site where a child panics; the parent does not have it.
const PANIC_SITE: &str = "TEST_PANICS_ON";

/// The panic message of a child.
const MESSAGE: &str = "the panic that was asked for";
/// Secrets that an error may contain.
const SECRET: &str = "Authorization: Bearer a-planted-marker, sig=a-planted-marker";

/// An actor that panics when it starts.
struct PanickingActor;

impl Actor for PanickingActor {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        panic!("{MESSAGE}: {SECRET}");
    }
}

/// Panics at this site in the runtime of the service; a child that survives the panic ends successfully.
async fn panic_on(site: &str) {
    match site {
        "a worker" => drop(tokio::spawn(async { panic!("{MESSAGE}: {SECRET}") }).await),
        "a thread for blocking work" => {
            drop(tokio::task::spawn_blocking(|| panic!("{MESSAGE}: {SECRET}")).await);
        }
        "an actor" => {
            let actor = PanickingActor.start();
            while actor.connected() {
                tokio::task::yield_now().await;
            }
        }
        "nothing" => {}
        other => unreachable!("no site to panic: {other}"),
    }
}

/// Runs this test as a child that panics at this site, and returns its output.
fn child(test: &str, site: &str) -> Output {
    let (_, module) = module_path!().split_once("::").expect("the crate comes first");
    let this = std::env::current_exe().expect("a test is a program");
    Command::new(this)
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
        .env(PANIC_SITE, site)
        .output()
        .expect("a test can be run once more")
}

#[test]
fn a4_c1_a_panic_anywhere_aborts_the_process_without_secrets() {
    if let Ok(site) = std::env::var(PANIC_SITE) {
        return system().block_on(panic_on(&site));
    }
    let child = |site| child("a4_c1_a_panic_anywhere_aborts_the_process_without_secrets", site);
    for site in ["a worker", "a thread for blocking work", "an actor"] {
        let Output { status, stderr, .. } = child(site);
        let output = String::from_utf8_lossy(&stderr);
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "on {site}: {status}: {output}");
        assert!(output.contains(MESSAGE), "the message: {output}");
        assert!(output.contains("src/service/tests.rs:"), "the location: {output}");
        assert!(!output.contains("a-planted-marker"), "without secrets (C1): {output}");
    }
    let Output { status, stdout, .. } = child("nothing");
    let output = String::from_utf8_lossy(&stdout);
    assert!(
        status.success() && output.contains("1 passed"),
        "a child without a panic succeeds: {status}: {output}"
    );
}

#[test]
fn w8_the_grace_period_of_the_chart_covers_a_shutdown() {
    const KEY: &str = "terminationGracePeriodSeconds";
    let schema = include_str!("../../charts/azure-backend-pool-controller/values.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let values = include_str!("../../charts/azure-backend-pool-controller/values.yaml");
    let values: Value = serde_saphyr::from_str(values).expect("the values are YAML");
    let longest = SHUTDOWN_TIMEOUT + Duration::from_secs(END_TIMEOUT);
    for (which, seconds) in
        [("the smallest", &schema["properties"][KEY]["minimum"]), ("the default", &values[KEY])]
    {
        let grace = Duration::from_secs(seconds.as_u64().expect("whole seconds"));
        assert!(longest < grace, "{which} {KEY} is {grace:?}, and the end may take {longest:?}");
    }
}
