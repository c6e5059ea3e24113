//! Foreign text reaches neither a terminal nor a text log with unprintable characters.

use serde_json::json;
use simulator::models::arm::Lock;
use simulator::models::kube::build::{self, Family};

use super::bench::Bench;
use crate::admin::stage::NAMESPACE;

/// A name that clears the screen, rings the bell, reverses the text direction and begins a line of its own.
const HOSTILE: &str = "a\u{1b}[2J\u{7}\u{202e}\nERROR forged";
const SHOWN: &str = "a\\u{1b}[2J\\u{7}\\u{202e}\\u{a}ERROR forged";

fn must_be_printable(text: &str) {
    let bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!text.contains(bad) && !text.lines().any(|line| line.starts_with("ERROR forged")), "{text:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_prints_foreign_names_escaped() {
    let bench = Bench::new(1).await;
    let scope = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg".to_owned();
    let lock = Lock { name: HOSTILE.to_owned(), level: "ReadOnly".to_owned(), scope };
    bench.fakes.tune_arm(move |arm| arm.locks = vec![lock]).await;
    let text = bench.run("check", &["--within", "20s"]).await;
    assert!(text.stdout.contains(SHOWN), "{text:?}");
    must_be_printable(&text.stdout);
    must_be_printable(&text.stderr);
    let json = bench.run("check", &["--output", "json", "--within", "20s"]).await;
    must_be_printable(&json.stdout);
    assert!(json.json()["findings"].to_string().contains("forged"), "{json:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_names_a_service_in_one_printable_line() {
    let overlay = json!({
        "members": { "removalDelay": "0s" }, "log": { "format": "text", "level": "debug" },
    });
    let mut bench = Bench::with(1, &overlay).await;
    let mut service =
        build::with_ingress(build::service(NAMESPACE, "x", &[80], &[Family::V4]), &["20.1.1.1"]);
    service["metadata"]["name"] = json!(HOSTILE);
    bench.fakes.apply(vec![service]).await.expect("the model takes any name");
    bench.arranged().await;
    let arguments = ["--dry-run", "--export", "-", "--output", "text", "--until-synced", "--within", "20s"];
    let ended = bench.run("run", &arguments).await;
    assert!(ended.stdout.contains(SHOWN), "{ended:?}");
    must_be_printable(&ended.stdout);
    must_be_printable(&ended.stderr);
}
