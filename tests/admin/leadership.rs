//! Several replicas of the real binary (W8), and the Lease that is shared with the cloud-controller-manager (W7), as
//! shown to the operator.

use jiff::Timestamp;
use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::models::arm::Fault;
use simulator::models::kube::Resource;
use simulator::models::kube::build::Endpoint;

use super::stage::{Prepared, Stage, add_service, node_ip, node_name, pool_of, set_endpoints};
use crate::support::{TEST_TIMEOUT, eventually};

const OWN: &str = "azure-backend-pool-controller";
const SHARED: &str = "aks-managed-resource-locker";

async fn lease(stage: &Stage, name: &str) -> Option<Value> {
    let name = name.to_owned();
    stage.fakes.cluster.ask(move |cluster, _| cluster.model.get(Resource::Leases, "kube-system", &name)).await
}

async fn role(stage: &Stage, role: &str) -> Value {
    stage.shown("/api/v1/status", |status| status["leadership"]["role"] == role).await["leadership"].clone()
}

/// Waits until a pool has exactly the addresses of these nodes.
async fn holds(stage: &Stage, name: &str, nodes: &[usize]) {
    let wanted: Vec<String> = nodes.iter().map(|node| node_ip(*node)).collect();
    eventually("the pool is in sync", TEST_TIMEOUT, || async {
        let members = stage.fakes.members(simulator::CLUSTER_NAME, &pool_of(name)).await.expect("the pool");
        let mut members: Vec<String> = members.into_iter().map(|member| member.ip).collect();
        members.sort();
        if members == wanted { Ok(()) } else { Err(format!("{members:?}")) }
    })
    .await;
}

async fn with_service() -> Stage {
    let prepared = Prepared::new(1).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    role(&stage, "leader").await;
    stage
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_a_second_replica_takes_over_when_the_first_ends() {
    let mut first = with_service().await;
    let second = first.another("second.log").await;
    second.wait_until_ready().await;
    let standby = role(&second, "standby").await;
    let leader = role(&first, "leader").await;
    assert_ne!(standby["identity"], leader["identity"]);
    eventually("the standby shows the leader", TEST_TIMEOUT, || async {
        let status = role(&second, "standby").await;
        if status["holder"] == leader["identity"] { Ok(()) } else { Err(status.to_string()) }
    })
    .await;

    set_endpoints(&first.fakes, "web", &[Endpoint::ready(&node_name(1))]).await;
    holds(&first, "web", &[1]).await;
    let wrote =
        |stage: &Stage| stage.log().iter().filter(|line| line["message"] == "wrote backend pool").count();
    eventually("the write is logged", TEST_TIMEOUT, || async {
        if wrote(&first) == 1 { Ok(()) } else { Err(format!("{:?}", first.log())) }
    })
    .await;
    assert_eq!(wrote(&second), 0, "a standby writes nothing");

    first.signal(Signal::TERM);
    assert_eq!(first.ended().await.code(), Some(0), "{:?}", first.log());
    let follower = role(&second, "leader").await;
    assert!(follower["term"].as_u64() > leader["term"].as_u64(), "{follower} after {leader}");
    assert!(first.log().iter().any(|line| line["message"] == "released the Lease"), "{:?}", first.log());
    set_endpoints(&second.fakes, "web", &[Endpoint::ready(&node_name(2))]).await;
    holds(&second, "web", &[2]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn q8_out_of_sync_times_survive_a_change_of_leader() {
    let mut first = with_service().await;
    let forbidden = Fault::every_nth_put(1, 403, "AuthorizationFailed", None);
    first.fakes.tune_arm(|arm| arm.faults = vec![forbidden]).await;
    set_endpoints(&first.fakes, "web", &[Endpoint::ready(&node_name(1))]).await;
    let queue = format!("/api/v1/queues/{}/{}", simulator::CLUSTER_NAME, pool_of("web"));
    let is_late = |answer: &Value| answer["pool"]["outOfSyncSeconds"].as_f64() > Some(3.0);
    let since = |answer: &Value| -> Timestamp {
        let since = answer["pool"]["outOfSyncSince"].as_str().expect("it is out of sync");
        since.parse().expect("a time")
    };
    let before = since(&first.shown(&queue, is_late).await);
    eventually("the Lease has the time", TEST_TIMEOUT, || async {
        let lease = lease(&first, OWN).await.expect("our own Lease").to_string();
        if lease.contains(&pool_of("web")) { Ok(()) } else { Err(lease) }
    })
    .await;

    // The second replica starts when the pool has been out of sync for some seconds, and gets the start time only from
    // the Lease.
    let second = first.another("second.log").await;
    role(&second, "standby").await;
    first.signal(Signal::TERM);
    assert_eq!(first.ended().await.code(), Some(0), "{:?}", first.log());
    role(&second, "leader").await;
    let is_carried = |answer: &Value| {
        answer["pool"]["outOfSyncSince"].is_string()
            && since(answer).duration_since(before).as_millis().abs() < 1_000
    };
    let after = second.shown(&queue, is_carried).await;
    assert_eq!(after["pool"]["outOfSyncAtLeast"], true, "{after}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_w8_both_leases_are_released_at_the_end() {
    let mut stage = with_service().await;
    set_endpoints(&stage.fakes, "web", &[Endpoint::ready(&node_name(1))]).await;
    holds(&stage, "web", &[1]).await;
    stage.signal(Signal::TERM);
    assert_eq!(stage.ended().await.code(), Some(0), "{:?}", stage.log());
    let own = lease(&stage, OWN).await.expect("our own Lease");
    assert_eq!(own["spec"]["holderIdentity"], "", "{own}");
    let shared = lease(&stage, SHARED).await.expect("the shared Lease");
    assert_eq!(shared["spec"]["holderIdentity"], "", "{shared}");
    assert_eq!(shared["spec"]["leaseDurationSeconds"], 900, "{shared}");
    let previous = &shared["metadata"]["annotations"]["aks-managed-resource-locker-previous-holder"];
    assert_eq!(
        previous, OWN,
        "the annotation tells the cloud-controller-manager that another client has written"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_an_unreadable_lease_is_in_log_and_status() {
    let prepared = Prepared::new(1).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    prepared.fakes.plant(|model| model.forbid(Resource::Leases)).await;
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    let denied = |status: &Value| {
        let error = status["leadership"]["lastError"].as_str();
        error.is_some_and(|error| error.contains("403") && error.contains("leases"))
    };
    let status = stage.shown("/api/v1/status", denied).await;
    assert_eq!(status["leadership"]["role"], "standby", "{status}");
    let is_refused = |line: &Value| line["message"] == "the API server denies access to a Lease";
    let warnings = stage.logged("that a Lease is refused", is_refused).await;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert_eq!(warnings[0]["level"], "WARN");
    assert!(
        warnings[0]["remedy"].as_str().is_some_and(|remedy| remedy.contains("get, create, update and watch"))
    );

    set_endpoints(&stage.fakes, "web", &[Endpoint::ready(&node_name(1))]).await;
    stage.fakes.plant(|model| model.permit(Resource::Leases)).await;
    role(&stage, "leader").await;
    holds(&stage, "web", &[1]).await;
    assert_eq!(stage.fakes.counters().await.pool_puts, 1, "the only write is that of the leader");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_a_dry_run_uses_no_lease() {
    let prepared = Prepared::new(1).await;
    add_service(&prepared.fakes, "web", &[0]).await;
    let stage = prepared.start_with(&json!({}), &["--dry-run"]).await;
    stage.wait_until_ready().await;
    role(&stage, "alone").await;
    set_endpoints(&stage.fakes, "web", &[Endpoint::ready(&node_name(1))]).await;
    let path = format!("/api/v1/queues/kubernetes/{}", pool_of("web"));
    stage.shown(&path, |answer| !answer["pool"]["wouldChange"].is_null()).await;
    assert_eq!((lease(&stage, OWN).await, lease(&stage, SHARED).await), (None, None));
    assert_eq!(stage.get("/api/v1/status").await["sharedLease"], Value::Null);
}
