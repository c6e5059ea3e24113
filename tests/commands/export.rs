//! `run --dry-run --export`: pending changes and their reasons, for operators and for pipelines.

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use simulator::models::kube::build::{self, Endpoint, Family};
use tokio::process::Child;

use simulator::models::arm::{Fault, FaultTarget, Latency};

use super::fixture::Fixture;
use crate::admin::stage::{
    NAMESPACE, add_service, node_ip, node_name, pool_of, send_to_cluster_pool, set_endpoints,
};
use crate::support::{TEST_TIMEOUT, eventually};

/// The flags of an export in a pipeline.
const ONCE: [&str; 6] = ["--dry-run", "--export", "-", "--until-synced", "--within", "60s"];

fn pool<'a>(plan: &'a Value, name: &str) -> &'a Value {
    let pools = plan["pools"].as_array().expect("pools");
    let found = pools.iter().find(|pool| pool["backendPool"] == pool_of(name));
    found.unwrap_or_else(|| panic!("no pool of {name}: {plan:#}"))
}

fn short() -> Value {
    json!({ "members": { "removalDelay": "0s" }, "batching": { "quietPeriod": "50ms" } })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_an_export_of_pools_in_sync_ends_with_0_and_writes_nothing() {
    let fixture = Fixture::with(4, &short()).await;
    let ended = fixture.run("run", &ONCE).await;
    let plan = ended.json();
    assert_eq!(ended.code, Some(0), "{plan:#}");
    assert_eq!((&plan["complete"], &plan["schemaVersion"]), (&json!(true), &json!(1)));
    assert_eq!((&plan["summary"]["pools"], &plan["summary"]["wouldChange"]), (&json!(4), &json!(0)));
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_an_export_lists_changes_with_reasons_and_ends_with_3() {
    let mut fixture = Fixture::with(1, &short()).await;
    for name in ["moved", "paused", "empty", "nat"] {
        add_service(&fixture.fakes, name, &[0, 1]).await;
    }
    set_endpoints(&fixture.fakes, "moved", &[Endpoint::ready(&node_name(1)), Endpoint::ready(&node_name(2))])
        .await;
    let mut service =
        build::with_ingress(build::service(NAMESPACE, "paused", &[80], &[Family::V4]), &["20.1.1.1"]);
    service["metadata"]["annotations"] = json!({ "azure-backend-pool-controller.io/pause": "true" });
    fixture.fakes.apply(vec![service]).await.expect("a good Service");
    set_endpoints(&fixture.fakes, "paused", &[Endpoint::ready(&node_name(0))]).await;
    set_endpoints(&fixture.fakes, "empty", &[]).await;
    let nat = pool_of("nat");
    let spoil = move |azure: &mut simulator::Azure, _: u64| {
        azure.model.add_inbound_nat_rule(simulator::CLUSTER_NAME, "nat-rule", &nat);
    };
    fixture.fakes.azure.ask(spoil).await;
    fixture.reset_baseline().await;

    let ended = fixture.run("run", &ONCE).await;
    let plan = ended.json();
    assert_eq!(ended.code, Some(3), "{plan:#}\n{}", ended.stderr);
    let moved = pool(&plan, "moved");
    assert_eq!((&moved["add"], &moved["remove"]), (&json!([node_ip(2)]), &json!([node_ip(0)])));
    assert_eq!(moved["services"], json!(["shop/moved"]));
    let reasons = moved["reasons"].to_string();
    assert!(reasons.contains(&format!(
        "add {}: node {} hosts an endpoint of shop/moved",
        node_ip(2),
        node_name(2)
    )));
    assert!(reasons.contains(&format!("remove {}: no node", node_ip(0))), "{reasons}");
    let paused = pool(&plan, "paused");
    assert_eq!((&paused["paused"], &paused["remove"]), (&json!(true), &json!([node_ip(1)])));
    let empty = pool(&plan, "empty");
    assert_eq!((&empty["held"]["reason"], &empty["remove"]), (&json!("empty_confirm"), &json!([])));
    let refused = &plan["notManageable"][0];
    assert_eq!((&refused["reason"], &refused["service"]), (&json!("inbound_nat_rule"), &json!("shop/nat")));
    let summary = &plan["summary"];
    let counts = ["wouldChange", "add", "remove", "held", "paused", "notCompared", "notManageable"];
    let counts: Vec<&Value> = counts.iter().map(|key| &summary[key]).collect();
    assert_eq!(counts, [1, 1, 1, 1, 1, 0, 1], "{summary}");
    fixture.assert_nothing_written().await;

    let mut text = ONCE.to_vec();
    text.extend(["--output", "text"]);
    let ended = fixture.run("run", &text).await;
    assert_eq!(ended.code, Some(3));
    for words in
        ["1 would change (add 1, remove 1), 1 held, 1 paused", "kubernetes/shop-moved (shop/moved)", "hold "]
    {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d4_an_export_waits_until_a_removal_is_certain() {
    let mut fixture = Fixture::with(1, &json!({ "members": { "removalDelay": "3s" } })).await;
    add_service(&fixture.fakes, "web", &[0, 1]).await;
    set_endpoints(&fixture.fakes, "web", &[Endpoint::ready(&node_name(0))]).await;
    fixture.reset_baseline().await;
    let ended = fixture.run("run", &ONCE).await;
    let plan = ended.json();
    assert_eq!((ended.code, &pool(&plan, "web")["remove"]), (Some(3), &json!([node_ip(1)])), "{plan:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_an_observing_start_lists_the_changes() {
    let mut settings = short();
    settings["mode"] = json!("observe");
    let mut fixture = Fixture::with(1, &settings).await;
    add_service(&fixture.fakes, "web", &[0]).await;
    set_endpoints(&fixture.fakes, "web", &[Endpoint::ready(&node_name(0)), Endpoint::ready(&node_name(1))])
        .await;
    fixture.reset_baseline().await;
    let ended = fixture.run("run", &ONCE).await;
    let plan = ended.json();
    assert_eq!((ended.code, &plan["summary"]["wouldChange"]), (Some(3), &json!(1)), "{plan:#}");
    let web = pool(&plan, "web");
    assert_eq!((&web["paused"], &web["add"]), (&json!(false), &json!([node_ip(1)])));
    let reasons = web["reasons"].to_string();
    assert!(reasons.contains("`run` would write nothing: the mode is observe"), "{reasons}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_a_held_removal_is_pending() {
    let mut fixture = Fixture::with(1, &short()).await;
    add_service(&fixture.fakes, "empty", &[0]).await;
    set_endpoints(&fixture.fakes, "empty", &[]).await;
    fixture.reset_baseline().await;
    let ended = fixture.run("run", &ONCE).await;
    let summary = ended.json()["summary"].clone();
    assert_eq!((ended.code, &summary["wouldChange"], &summary["held"]), (Some(3), &json!(0), &json!(1)));
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_that_is_incomplete_in_time_fails() {
    let fixture = Fixture::with(1, &short()).await;
    fixture.fakes.arm_down(true).await;
    let file = fixture.path("plan.json");
    let ended =
        fixture.run("run", &["--dry-run", "--export", &file, "--until-synced", "--within", "2s"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("not everything was compared within 2s"), "{}", ended.stderr);
    let plan: Value = serde_json::from_str(&std::fs::read_to_string(&file).expect("the file")).expect("JSON");
    assert_eq!(plan["complete"], false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d3_an_export_is_incomplete_with_an_unreadable_load_balancer() {
    let fixture = Fixture::with(4, &short()).await;
    fixture
        .fakes
        .tune_arm(|arm| {
            let refused = Fault::every_nth_put(1, 403, "AuthorizationFailed", None);
            let (target, load_balancer) = (FaultTarget::LoadBalancerGet, Some("lb-2".to_owned()));
            arm.faults = vec![Fault { target, load_balancer, ..refused }];
        })
        .await;
    let mut arguments = ONCE.to_vec();
    arguments.extend(["--output", "text"]);
    arguments[5] = "6s";
    let ended = fixture.run("run", &arguments).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("within 6s: lb-2: HTTP 403"), "{}", ended.stderr);
    for words in [
        "incomplete: not everything was compared",
        "load balancer lb-2\n  could not be read: HTTP 403 AuthorizationFailed",
        "2 Services without a pool",
    ] {
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
    }
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_an_export_includes_the_pool_of_the_cluster() {
    let mut fixture = Fixture::with(1, &short()).await;
    for (name, pool) in [("shared", "kubernetes"), ("shared-six", "kubernetes-IPv6")] {
        add_service(&fixture.fakes, name, &[0]).await;
        send_to_cluster_pool(&fixture.fakes, name, pool).await;
    }
    fixture.reset_baseline().await;
    let mut arguments = ONCE;
    arguments[5] = "20s";
    let ended = fixture.run("run", &arguments).await;
    let plan = ended.json();
    assert_eq!(ended.code, Some(0), "{}\n{plan:#}", ended.stderr);
    let summary = &plan["summary"];
    assert_eq!((&plan["complete"], &summary["pools"]), (&json!(true), &json!(3)), "{summary}");
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_without_answers_names_the_missing_parts() {
    let fixture = Fixture::with(4, &short()).await;
    fixture.fakes.tune_arm(|arm| arm.get_latency = Latency::Fixed { us: 60_000_000 }).await;
    let mut arguments = ONCE;
    arguments[5] = "2s";
    let ended = fixture.run("run", &arguments).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let expected = "not everything was compared within 2s: load balancer kubernetes has not been read yet";
    assert!(ended.stderr.contains(expected), "{}", ended.stderr);
    assert_eq!(ended.json()["complete"], json!(false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_export_names_the_missing_parts() {
    let fixture = Fixture::with(1, &short()).await;
    fixture.fakes.tune_arm(|arm| arm.get_latency = Latency::Fixed { us: 60_000_000 }).await;
    let mut command = fixture.command("run", &ONCE);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary under test");
    eventually("ARM is asked", TEST_TIMEOUT, || async {
        if fixture.requests() > 0 { Ok(()) } else { Err("nothing was asked".to_owned()) }
    })
    .await;
    terminate(&child);
    let ended = tokio::time::timeout(TEST_TIMEOUT, child.wait_with_output()).await.expect("it ends in time");
    let ended = ended.expect("a child can be waited for");
    let message = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), ended.stdout.len()), (Some(1), 0), "{message}");
    let waited = message.split("interrupted before everything was compared: ").nth(1);
    assert!(
        waited.is_some_and(|waited| waited.contains("load balancer") && waited.contains("read yet")),
        "{message}"
    );
}

fn terminate(child: &Child) {
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    kill_process(pid.expect("it runs"), Signal::TERM).expect("it is still there");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_completes_while_some_pool_always_waits() {
    let keys = json!({ "members": { "removalDelay": "0s" }, "batching": { "quietPeriod": "900ms", "maxDelay": "2s" } });
    let fixture = Fixture::with(1, &keys).await;
    let names = ["a", "b", "c", "d", "e", "f"];
    for name in names {
        add_service(&fixture.fakes, name, &[0]).await;
    }
    let changing = async {
        let mut pause = tokio::time::interval(Duration::from_millis(100));
        for turn in 0_usize.. {
            pause.tick().await;
            let more = [Endpoint::ready(&node_name(0)), Endpoint::ready(&node_name(1))];
            let some = if (turn / names.len()).is_multiple_of(2) { &more[..] } else { &more[..1] };
            set_endpoints(&fixture.fakes, names[turn % names.len()], some).await;
        }
    };
    let mut arguments = ONCE;
    arguments[5] = "20s";
    let ended = tokio::select! {
        ended = fixture.run("run", &arguments) => ended,
        () = changing => unreachable!("it continues"),
    };
    let plan = ended.json();
    assert!(matches!(ended.code, Some(0 | 3)), "{}\n{plan:#}", ended.stderr);
    assert_eq!((&plan["complete"], &plan["summary"]["notCompared"]), (&json!(true), &json!(0)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_to_an_unusable_path_is_refused_first() {
    let fixture = Fixture::with(1, &short()).await;
    let (folder, null) = (fixture.path(""), fixture.path("null"));
    std::os::unix::fs::symlink("/dev/null", &null).expect("the folder can be written");
    for (file, words) in [
        (fixture.path("no/plan.json"), "check that its folder exists"),
        (folder, "is a folder; name a file"),
        (null, "is a device or a pipe; name a file"),
    ] {
        let ended = fixture.run("run", &["--dry-run", "--export", &file, "--until-synced"]).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {}", ended.stderr);
    }
    assert_eq!(fixture.requests(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exported_file_follows_the_cluster_until_the_run_ends() {
    let fixture = Fixture::with(1, &short()).await;
    add_service(&fixture.fakes, "web", &[0]).await;
    let file = fixture.path("plan.json");
    let mut command = fixture.command("run", &["--dry-run", "--export", &file]);
    let mut child =
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the binary under test");
    let read = || -> Option<Value> { serde_json::from_str(&std::fs::read_to_string(&file).ok()?).ok() };
    let shows = async |wanted: Value| {
        eventually("the export follows", TEST_TIMEOUT, || async {
            let plan = read().ok_or("no file")?;
            let shown = plan["pools"].as_array().and_then(|pools| {
                pools
                    .iter()
                    .find(|pool| pool["backendPool"] == pool_of("web"))
                    .map(|pool| pool["add"].clone())
            });
            if shown.as_ref() == Some(&wanted) { Ok(()) } else { Err(plan.to_string()) }
        })
        .await;
    };
    shows(json!([])).await;
    set_endpoints(&fixture.fakes, "web", &[Endpoint::ready(&node_name(0)), Endpoint::ready(&node_name(3))])
        .await;
    shows(json!([node_ip(3)])).await;
    terminate(&child);
    let ended = tokio::time::timeout(TEST_TIMEOUT, child.wait()).await.expect("it ends in time");
    assert_eq!(ended.expect("a child can be waited for").code(), Some(0));
}

#[test]
fn an_export_requires_a_dry_run() {
    let output = super::run(&["run", "--export", "-"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(super::text(&output.stderr).contains("--dry-run"), "{output:?}");
}
