//! `restore`: it restores pools that another client has overwritten, and no controller changes them afterwards.

mod confirmation;
mod killed;
mod skipped;

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::models::arm::Fault;

use super::fixture::{Ended, Fixture, Running};
use crate::support::{TEST_TIMEOUT, eventually};

/// An address that no node has.
const WRONG: &str = "10.224.0.99";
/// An address that only snapshots contain; no endpoint requires it.
const OLD: &str = "10.224.0.50";

/// A pool of a snapshot.
#[derive(Clone, Debug)]
struct Pool {
    lb: String,
    name: String,
    /// Address and name of each member.
    members: Vec<(String, String)>,
}

impl Pool {
    fn id(&self) -> String {
        format!("{}/{}", self.lb, self.name)
    }
}

/// Returns a setting with which a controller soon removes members that no endpoint requires.
fn soon_removed() -> Value {
    json!({ "members": { "removalDelay": "1s" } })
}

/// Adds a member to the pool of each Service, takes a snapshot, and returns the pools of Services.
async fn snapshot_with_old_member(fixture: &Fixture, file: &str) -> Vec<Pool> {
    for pool in take_snapshot(fixture, &fixture.path("before.json")).await {
        let mut members = pool.members.clone();
        members.push((OLD.to_owned(), "old-node".to_owned()));
        foreign_put(fixture, &pool, &members).await;
    }
    take_snapshot(fixture, file).await
}

/// Takes a snapshot of all pools and returns those of Services.
async fn take_snapshot(fixture: &Fixture, file: &str) -> Vec<Pool> {
    let ended = fixture.run("snapshot", &["--output", file]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let text = std::fs::read_to_string(file).expect("the file");
    let stored: Value = serde_json::from_str(&text).expect("JSON");
    let mut pools = Vec::new();
    for lb in stored["loadBalancers"].as_array().expect("load balancers") {
        for pool in lb["pools"].as_array().expect("pools") {
            let entries = pool["document"]["properties"]["loadBalancerBackendAddresses"].as_array();
            let text = |value: &Value| value.as_str().expect("a text").to_owned();
            let member = |entry: &Value| (text(&entry["properties"]["ipAddress"]), text(&entry["name"]));
            let members = entries.expect("members").iter().map(member).collect();
            let (lb, name) = (text(&lb["name"]), text(&pool["name"]));
            if name != "kubernetes" {
                pools.push(Pool { lb, name, members });
            }
        }
    }
    pools
}

/// Lets another client write a pool, as soon as no operation runs on its load balancer.
async fn foreign_put(fixture: &Fixture, pool: &Pool, members: &[(String, String)]) {
    let members: Vec<(String, String)> =
        members.iter().map(|(ip, name)| (name.clone(), ip.clone())).collect();
    eventually("another client writes a pool", TEST_TIMEOUT, || async {
        let status = fixture.fakes.foreign_put(&pool.lb, &pool.name, members.clone()).await;
        if (200..300).contains(&status) { Ok(()) } else { Err(status.to_string()) }
    })
    .await;
}

/// Lets another client replace all members by one that is no node.
async fn overwrite(fixture: &Fixture, pool: &Pool) {
    foreign_put(fixture, pool, &[(WRONG.to_owned(), "wrong".to_owned())]).await;
}

/// Returns the current members of a pool as in [`Pool::members`], sorted.
async fn current_members(fixture: &Fixture, pool: &Pool) -> Vec<(String, String)> {
    let members = fixture.fakes.members(&pool.lb, &pool.name).await.expect("the pool");
    let mut members: Vec<(String, String)> = members.into_iter().map(|it| (it.ip, it.name)).collect();
    members.sort();
    members
}

async fn is_restored(fixture: &Fixture, pool: &Pool) -> bool {
    let mut then = pool.members.clone();
    then.sort();
    current_members(fixture, pool).await == then
}

/// Returns the line of the last table about a pool.
fn result_line<'a>(ended: &'a Ended, pool: &Pool) -> &'a str {
    let head = format!("- {}: ", pool.id());
    ended.stdout.lines().rev().find_map(|line| line.strip_prefix(&head)).unwrap_or("")
}

async fn get_json(admin: &str, path: &str) -> Result<Value, String> {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let answer =
        client.get(format!("http://{admin}{path}")).send().await.map_err(|error| error.to_string())?;
    let text = answer.text().await.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))
}

/// Waits until a controller shows every pool paused.
async fn all_paused(admin: &str) {
    eventually("every pool is paused", TEST_TIMEOUT, || async {
        let status = get_json(admin, "/api/v1/status").await?;
        let (total, paused) = (&status["pools"]["total"], &status["pools"]["byState"]["paused"]);
        if total == paused && *total != json!(0) { Ok(()) } else { Err(status["pools"].to_string()) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w2_overwritten_pools_are_restored_by_one_put_each() {
    let fixture = Fixture::new(4).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    assert!(pools.len() >= 4, "{pools:?}");
    for pool in &pools[..2] {
        overwrite(&fixture, pool).await;
    }
    let ended = fixture.run("restore", &[&file, "--yes"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for pool in &pools {
        assert!(is_restored(&fixture, pool).await, "{pool:?}: {ended:?}");
    }
    for pool in &pools[..2] {
        assert_eq!(result_line(&ended, pool), "restored", "{ended:?}");
        assert!(ended.stdout.contains(&format!("remove {WRONG} (wrong)")), "{ended:?}");
    }
    assert_eq!(result_line(&ended, &pools[2]), "", "pools in sync are only counted");
    let puts = fixture.puts();
    let named: Vec<String> = puts.iter().filter_map(|put| Some(put.pool()?.pool.to_string())).collect();
    assert_eq!(named.len(), 2, "{named:?}");
    assert!(puts.iter().all(|put| put.header("If-Match").is_some() && put.status.is_some()));

    let note = fixture.config_map().await.expect("the controller's ConfigMap");
    let note = note["data"]["pause.everything"].as_str().expect("a pause").to_owned();
    assert!(note.contains("by: restore") && note.contains("pools.json"), "{note}");
    assert!(
        ended.stdout.contains("everything is paused") && ended.stdout.contains("/api/v1/resume"),
        "{ended:?}"
    );
    let map = fixture.config_map().await.expect("the controller's ConfigMap");
    let keys: Vec<&String> = map["data"].as_object().expect("data").keys().collect();
    assert_eq!(keys, ["pause.everything"], "no start is noted");

    let (controller, admin) = Running::start_leader(&fixture).await;
    all_paused(&admin).await;
    controller.signal(Signal::TERM);
    let log = controller.ended().await;
    assert_eq!(fixture.puts().len(), 2, "endpoints require other members: {}", log.stderr);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_restore_waits_for_a_leader_and_names_it() {
    let fixture = Fixture::with(2, &soon_removed()).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    let (controller, admin) = Running::start_leader(&fixture).await;
    eventually("the controller has written the pools that endpoints require", TEST_TIMEOUT, || async {
        let put = fixture.puts().len();
        if put == pools.len() { Ok(()) } else { Err(put.to_string()) }
    })
    .await;
    let status = get_json(&admin, "/api/v1/status").await.expect("the status");
    let leader = status["leadership"]["identity"].as_str().expect("a name").to_owned();
    let restore = Running::start(&fixture, "restore", &[&file, "--yes", "--leave-unpaused"], "restore.log");
    restore.wait_for_log(&format!("{leader} leads: nothing is restored before it ends")).await;
    assert_eq!(fixture.puts().len(), pools.len());
    controller.signal(Signal::TERM);
    assert_eq!(controller.ended().await.code, Some(0));
    let ended = restore.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    for pool in &pools {
        assert!(is_restored(&fixture, pool).await, "{pool:?}");
        assert_eq!(result_line(&ended, pool), "restored", "{ended:?}");
    }
    assert_eq!(fixture.puts().len(), 2 * pools.len());
    assert!(ended.stdout.contains("nothing is paused: a controller that runs"), "{ended:?}");
    let map = fixture.config_map().await;
    assert!(map.is_none_or(|map| map["data"]["pause.everything"].is_null()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_missing_or_unproven_pools_are_named_and_others_restored() {
    let fixture = Fixture::new(3).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    for pool in &pools {
        overwrite(&fixture, pool).await;
    }
    let (gone, foreign) = (pools[0].clone(), pools[1].clone());
    fixture.fakes.azure.ask(move |azure, _| azure.model.remove_pool(&gone.lb, &gone.name)).await;
    fixture
        .fakes
        .azure
        .ask(move |azure, _| azure.model.add_outbound_rule(&foreign.lb, "out", &foreign.name))
        .await;
    let ended = fixture.run("restore", &[&file, "--yes"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(result_line(&ended, &pools[0]), "no longer exists", "{ended:?}");
    assert!(result_line(&ended, &pools[1]).contains("an outbound rule uses the pool"), "{ended:?}");
    assert_eq!(result_line(&ended, &pools[2]), "restored", "{ended:?}");
    assert!(is_restored(&fixture, &pools[2]).await);
    assert_eq!(fixture.puts().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g2_an_empty_saved_pool_with_endpoints_needs_a_flag() {
    let fixture = Fixture::new(1).await;
    let file = fixture.path("pools.json");
    let pool = take_snapshot(&fixture, &fixture.path("before.json")).await.remove(0);
    foreign_put(&fixture, &pool, &[]).await;
    assert!(take_snapshot(&fixture, &file).await[0].members.is_empty());
    foreign_put(&fixture, &pool, &pool.members).await;
    let ended = fixture.run("restore", &[&file, "--yes"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(result_line(&ended, &pool).contains("pass --allow-empty"), "{ended:?}");
    fixture.assert_nothing_written().await;
    let ended = fixture.run("restore", &[&file, "--yes", "--allow-empty"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(current_members(&fixture, &pool).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_conflicts_and_throttling_are_retried() {
    let fixture = Fixture::new(3).await;
    // A pool that ARM rejects for 2 s is retried soon after.
    fixture.configure(|cloud| cloud["loadBalancerBackendPoolUpdateIntervalInSeconds"] = json!(1));
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    for pool in &pools {
        overwrite(&fixture, pool).await;
    }
    let once = |status, code, after| Fault { limit: Some(1), ..Fault::every_nth_put(1, status, code, after) };
    let faults = vec![
        once(412, "PreconditionFailed", None),
        Fault { every: 2, ..once(429, "SubscriptionRequestsThrottled", Some("2")) },
    ];
    fixture.fakes.tune_arm(move |arm| arm.faults = faults).await;
    let overlay = ["--pool", &pools[0].name, "--pool", &pools[1].name];
    let ended = fixture.run("restore", &[&[&file, "--yes"][..], &overlay].concat()).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let statuses: Vec<Option<u16>> = fixture.puts().iter().map(|put| put.status).collect();
    assert!(statuses.contains(&Some(412)) && statuses.contains(&Some(429)), "{statuses:?}");
    assert!(is_restored(&fixture, &pools[0]).await && is_restored(&fixture, &pools[1]).await);
    assert_eq!(
        current_members(&fixture, &pools[2]).await,
        [(WRONG.to_owned(), "wrong".to_owned())],
        "it was not requested"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w5_a_pool_that_cannot_be_written_is_named_with_the_reason() {
    let fixture = Fixture::new(1).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    overwrite(&fixture, &pools[0]).await;
    let fault = Fault::every_nth_put(1, 403, "LinkedAuthorizationFailed", None);
    fixture.fakes.tune_arm(move |arm| arm.faults = vec![fault]).await;
    let ended = fixture.run("restore", &[&file, "--yes"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let line = result_line(&ended, &pools[0]);
    assert!(line.starts_with("failed: ") && line.contains("LinkedAuthorizationFailed"), "{ended:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_a_dry_run_shows_writes_and_skipped_pools() {
    let mut fixture = Fixture::with(2, &soon_removed()).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    // A rule of another Service uses the cluster's pool.
    let uid = "0badcafe-0000-4000-8000-000000000000";
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "namespace": "default", "name": "everywhere", "uid": uid },
        "spec": { "type": "LoadBalancer", "externalTrafficPolicy": "Cluster", "ports": [{ "port": 80 }] },
    });
    fixture.fakes.apply(vec![service]).await.expect("a good Service");
    let rule = format!("a{}-TCP-80", &uid.replace('-', "")[..31]);
    fixture.fakes.azure.ask(move |azure, _| azure.model.add_rule("lb-2", &rule, "kubernetes", true)).await;
    fixture.reset_baseline().await;
    let ended = fixture.run("restore", &[&file, "--dry-run", "--within", "20s"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let other =
        fixture.run("run", &["--dry-run", "--export", "-", "--until-synced", "--within", "60s"]).await;
    assert_eq!(other.json()["complete"], true, "{other:?}");
    overwrite(&fixture, &pools[0]).await;
    let mut renamed = pools[1].members.clone();
    foreign_put(&fixture, &pools[1], &[(WRONG.to_owned(), "wrong".to_owned())]).await;
    renamed[0].1 = "renamed".to_owned();
    foreign_put(&fixture, &pools[1], &renamed).await;
    let ended = fixture.run("restore", &[&file, "--dry-run"]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let words = result_line(&ended, &pools[0]);
    assert!(
        words.contains(&format!("{OLD} (old-node)")) && words.contains(&format!("remove {WRONG}")),
        "{ended:?}"
    );
    let words = result_line(&ended, &pools[1]);
    assert!(words.starts_with("not restored: ") && words.ends_with(" and is renamed"), "{ended:?}");
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_or_foreign_file_is_refused_before_any_read() {
    let fixture = Fixture::new(1).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    let text = std::fs::read_to_string(&file).expect("the file");
    let before = fixture.requests();
    let refused = async |arguments: &[&str], words: &str| {
        let ended = fixture.run("restore", arguments).await;
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains(words), "{words}: {ended:?}");
    };
    refused(&[&file], "pass --yes").await;
    refused(&[&file, "--yes", "--lb", "nothing"], "--lb nothing: no load balancer").await;
    refused(&[&file, "--yes", "--pool", "nothing"], "--pool nothing: no pool").await;
    let damaged = fixture.path("damaged.json");
    std::fs::write(&damaged, text.replacen(OLD, "10.224.0.51", 1)).expect("the folder can be written");
    refused(&[&damaged, "--yes"], &format!("{} is not what its sha256 says", pools[0].id())).await;
    fixture.configure(|cloud| cloud["subscriptionId"] = json!("11111111-2222-3333-4444-555555555555"));
    refused(&[&file, "--yes"], "11111111-2222-3333-4444-555555555555").await;
    assert_eq!(fixture.requests(), before);
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_signal_or_timeout_ends_restore_with_a_report() {
    let fixture = Fixture::new(1).await;
    let file = fixture.path("pools.json");
    let pools = snapshot_with_old_member(&fixture, &file).await;
    overwrite(&fixture, &pools[0]).await;
    let time = jiff::Timestamp::now();
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": { "namespace": "kube-system", "name": "azure-backend-pool-controller" },
        "spec": {
            "holderIdentity": "replica-2", "leaseDurationSeconds": 45, "leaseTransitions": 1,
            "acquireTime": format!("{time:.6}"), "renewTime": format!("{time:.6}"),
        },
    });
    fixture.fakes.apply(vec![lease]).await.expect("a good Lease");
    let ended = fixture.run("restore", &[&file, "--yes", "--within", "4s"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("replica-2 leads"), "{ended:?}");
    assert!(result_line(&ended, &pools[0]).starts_with("not done: "), "{ended:?}");

    let restore = Running::start(&fixture, "restore", &[&file, "--yes"], "restore.log");
    restore.wait_for_log("replica-2 leads").await;
    restore.signal(Signal::INT);
    let ended = tokio::time::timeout(Duration::from_secs(30), restore.ended()).await.expect("it ends");
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(
        ended.stderr.contains("interrupted") && result_line(&ended, &pools[0]).starts_with("not done"),
        "{ended:?}"
    );
    assert_eq!(fixture.puts().len(), 0);
    assert!(fixture.config_map().await.is_none(), "nothing is paused for nothing");
}
