//! Foreign text reaches neither a terminal nor a text log with unprintable characters.

use serde_json::{Value, json};
use simulator::models::arm::{Fault, FaultAnswer, FaultBody, FaultEffect, FaultTarget, Lock};
use simulator::models::kube::build::{self, Family};

use super::fixture::{Ended, Fixture};
use crate::admin::stage::NAMESPACE;

/// A name that clears the screen, rings the bell, reverses the text direction and begins a new line.
const HOSTILE: &str = "a\u{1b}[2J\u{7}\u{202e}\nERROR forged";
const SHOWN: &str = "a\\u{1b}[2J\\u{7}\\u{202e}\\u{a}ERROR forged";

/// Asserts that the output of a command has the text, and no unprintable characters.
fn must_show(ended: &Ended, shown: &str) {
    assert!(ended.stdout.contains(shown) || ended.stderr.contains(shown), "{ended:?}");
    must_be_printable(&ended.stdout);
    must_be_printable(&ended.stderr);
}

fn must_be_printable(text: &str) {
    let bad = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
    assert!(!text.contains(bad) && !text.lines().any(|line| line.starts_with("ERROR forged")), "{text:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_prints_foreign_names_escaped() {
    let fixture = Fixture::new(1).await;
    let scope = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg".to_owned();
    let lock = Lock { name: HOSTILE.to_owned(), level: "ReadOnly".to_owned(), scope };
    fixture.fakes.tune_arm(move |arm| arm.locks = vec![lock]).await;
    let text = fixture.run("check", &["--within", "20s"]).await;
    assert!(text.stdout.contains(SHOWN), "{text:?}");
    must_be_printable(&text.stdout);
    must_be_printable(&text.stderr);
    let json = fixture.run("check", &["--output", "json", "--within", "20s"]).await;
    must_be_printable(&json.stdout);
    assert!(json.json()["findings"].to_string().contains("forged"), "{json:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_names_a_service_in_one_printable_line() {
    let overlay = json!({
        "members": { "removalDelay": "0s" }, "log": { "format": "text", "level": "debug" },
    });
    let mut fixture = Fixture::with(1, &overlay).await;
    let mut service =
        build::with_ingress(build::service(NAMESPACE, "x", &[80], &[Family::V4]), &["20.1.1.1"]);
    service["metadata"]["name"] = json!(HOSTILE);
    fixture.fakes.apply(vec![service]).await.expect("the model accepts any name");
    fixture.reset_baseline().await;
    let arguments = ["--dry-run", "--export", "-", "--output", "text", "--until-synced", "--within", "20s"];
    let ended = fixture.run("run", &arguments).await;
    assert!(ended.stdout.contains(SHOWN), "{ended:?}");
    must_be_printable(&ended.stdout);
    must_be_printable(&ended.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_text_of_a_snapshot_file_is_printed_escaped() {
    let fixture = Fixture::new(1).await;
    let file = fixture.path("pools.json");
    assert_eq!(fixture.run("snapshot", &["--output", &file]).await.code, Some(0));
    let text = std::fs::read_to_string(&file).expect("the file");
    let stored: Value = serde_json::from_str(&text).expect("it is JSON");
    let created = stored["createdAt"].as_str().expect("a time");
    let hostile = json!(HOSTILE).to_string();
    let plant = |from: &str, to: &str| {
        assert!(text.contains(from), "{from}: {text}");
        std::fs::write(&file, text.replacen(from, to, 1)).expect("the folder can be written");
    };
    plant(&json!(created).to_string(), &hostile);
    let verified = fixture.run("snapshot", &["--verify", &file]).await;
    assert_eq!(verified.code, Some(0), "{verified:?}");
    must_show(&verified, SHOWN);
    let restored = fixture.run("restore", &[&file, "--dry-run"]).await;
    assert_eq!(restored.code, Some(0), "{restored:?}");
    must_show(&restored, SHOWN);
    for (from, to) in [
        ("\"absent\": [", format!("\"absent\": [{hostile}, ")),
        ("\"absent\": [", format!("{hostile}: [], \"absent\": [")),
    ] {
        plant(from, &to);
        let refused = fixture.run("snapshot", &["--verify", &file]).await;
        assert_eq!(refused.code, Some(1), "{refused:?}");
        must_show(&refused, SHOWN);
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_azure_and_of_a_pause_are_printed_escaped() {
    let mut fixture = Fixture::new(1).await;
    let file = fixture.path("pools.json");
    assert_eq!(fixture.run("snapshot", &["--output", &file]).await.code, Some(0));
    let reason = HOSTILE.replace('\n', " ");
    // The decoder of the pause has replaced control characters with spaces.
    let shown = "a [2J \\u{202e} ERROR forged";
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "namespace": "kube-system", "name": "azure-backend-pool-controller" },
        "data": { "pause.everything": format!("since: 2026-11-20T08:00:00Z\nby: alice\nreason: {reason}\n") },
    });
    fixture.fakes.apply(vec![map]).await.expect("a good object");
    fixture.reset_baseline().await;
    let restored = fixture.run("restore", &[&file, "--dry-run"]).await;
    must_show(&restored, shown);

    let answer = FaultAnswer {
        status: 400,
        code: "Bad".to_owned(),
        message: HOSTILE.to_owned(),
        retry_after: None,
        body: FaultBody::Standard,
    };
    let fault = Fault {
        target: FaultTarget::LoadBalancerGet,
        every: 1,
        limit: None,
        load_balancer: None,
        effect: FaultEffect::Answer(answer),
    };
    fixture.fakes.tune_arm(move |arm| arm.faults = vec![fault]).await;
    let refused = fixture.run("snapshot", &["--verify", &file]).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    // A message of ARM is one line.
    let shown = SHOWN.replace("\\u{a}", " ");
    must_show(&refused, &shown);
    must_show(&fixture.run("check", &["--within", "5s"]).await, &shown);
}
