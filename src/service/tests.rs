//! That a panic ends the process: shown by processes that do end, each this test once more as a child. And that the chart
//! leaves the process the time that its end may take.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::time::Duration;

use actix::{Actor, Context};
use rustix::process::Signal;
use serde_json::Value;

use super::{QUIET_WITHIN, system};
use crate::http::END_WITHIN;

/// Tells a child where it is to panic; who is not told is the parent.
const PANICS: &str = "TEST_PANICS_ON";

/// What the child dies of.
const WORDS: &str = "the panic that was asked for";
/// What an error may hold of what was sent.
const SENT: &str = "Authorization: Bearer a-planted-marker, sig=a-planted-marker";

/// An actor that is lost as soon as it has started.
struct Fragile;

impl Actor for Fragile {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Self::Context) {
        panic!("{WORDS}: {SENT}");
    }
}

/// What a child does: it panics in the runtime of the service. Were that not its end, it would end well.
async fn panic_on(place: &str) {
    match place {
        "a worker" => drop(tokio::spawn(async { panic!("{WORDS}: {SENT}") }).await),
        "a thread for blocking work" => {
            drop(tokio::task::spawn_blocking(|| panic!("{WORDS}: {SENT}")).await);
        }
        "an actor" => {
            let lost = Fragile.start();
            while lost.connected() {
                tokio::task::yield_now().await;
            }
        }
        "nothing" => {}
        other => unreachable!("no place to panic: {other}"),
    }
}

/// This test as a child that panics at this place, and how it has ended.
fn child(test: &str, place: &str) -> Output {
    let (_, module) = module_path!().split_once("::").expect("the crate comes first");
    let this = std::env::current_exe().expect("a test is a program");
    Command::new(this)
        .args(["--exact", &format!("{module}::{test}"), "--nocapture"])
        .env(PANICS, place)
        .output()
        .expect("a test can be run once more")
}

#[test]
fn a4_c1_a_panic_anywhere_aborts_the_process_without_secrets() {
    if let Ok(place) = std::env::var(PANICS) {
        return system().block_on(panic_on(&place));
    }
    let child = |place| child("a4_c1_a_panic_anywhere_aborts_the_process_without_secrets", place);
    for place in ["a worker", "a thread for blocking work", "an actor"] {
        let Output { status, stderr, .. } = child(place);
        let told = String::from_utf8_lossy(&stderr);
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "on {place}: {status}: {told}");
        assert!(told.contains(WORDS), "it says why: {told}");
        assert!(told.contains("src/service/tests.rs:"), "and where: {told}");
        assert!(!told.contains("a-planted-marker"), "without secrets (C1): {told}");
    }
    let Output { status, stdout, .. } = child("nothing");
    let told = String::from_utf8_lossy(&stdout);
    assert!(status.success() && told.contains("1 passed"), "who does not panic ends well: {status}: {told}");
}

#[test]
fn w8_the_chart_kills_no_process_before_its_end_may_be_complete() {
    const KEY: &str = "terminationGracePeriodSeconds";
    let schema = include_str!("../../charts/azure-backend-pool-controller/values.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("the schema is JSON");
    let values = include_str!("../../charts/azure-backend-pool-controller/values.yaml");
    let values: Value = serde_saphyr::from_str(values).expect("the values are YAML");
    let longest = QUIET_WITHIN + Duration::from_secs(END_WITHIN);
    for (which, seconds) in
        [("the smallest", &schema["properties"][KEY]["minimum"]), ("the default", &values[KEY])]
    {
        let grace = Duration::from_secs(seconds.as_u64().expect("whole seconds"));
        assert!(longest < grace, "{which} {KEY} is {grace:?}, and the end may take {longest:?}");
    }
}
