//! A rolling update of the chart's Deployment during constant changes of endpoints and writes in flight: no change is
//! lost, there are never two writers, and the durations of the hand-overs are printed.
//!
//! The interval of drift reads is longer than the test, so a lost change stays lost.
//!
//! The real helm updates the real Deployment, which creates the Pods of both versions. The test replaces their
//! processes in the same order: it starts a new one, and stops an old one when the new one is ready.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use serde_json::json;

use super::{Process, Release, pod, store_cloud_config, values};
use crate::cluster::TestEnvironment;
use crate::cluster::replicas::{has_role, writers};
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, eventually, log_line};

const NAMESPACE: &str = "chart-rolling";
/// Services whose endpoints move, on three load balancers.
const MOVING: [&str; 4] = ["web-0", "web-1", "web-2", "web-3"];
const NODES: u8 = 6;
/// Maximum time from the answer to the last write of a process to the first write of its successor, on a slow and
/// shared machine. The successor may have to wait for the operation of its predecessor's last write. The test of a
/// single hand-over has the documented limit.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(10);

/// Latency of a write in Azure, and duration of its operation.
const WRITE_TAKES: Duration = Duration::from_secs(2);
/// The metric of drift.
const DRIFT: &str = "backend_pool_controller_drift_total";

/// Returns the addresses of a Service's two endpoints, and their nodes after this number of moves.
fn endpoints(env: &TestEnvironment<&Cluster>, service: usize, moves: usize) -> [(String, String); 2] {
    [1, 2].map(|endpoint| {
        let node = (service + moves + endpoint) % usize::from(NODES) + 1;
        (format!("10.221.{service}.{endpoint}"), env.node(u8::try_from(node).expect("few nodes")))
    })
}

/// Returns the same as arguments of `replace_by_hand`.
fn written(endpoints: &[(String, String); 2]) -> [(&str, Option<&str>); 2] {
    endpoints.each_ref().map(|(address, node)| (address.as_str(), Some(node.as_str())))
}

/// Moves all endpoints repeatedly, each time after a write.
async fn churn(env: &TestEnvironment<&Cluster>) -> Infallible {
    let mut moves = 0;
    loop {
        moves += 1;
        let before = env.azure.puts().await.len();
        for (service, name) in MOVING.into_iter().enumerate() {
            env.replace_by_hand(name, &written(&endpoints(env, service, moves))).await;
        }
        eventually("a replica writes", TEST_TIMEOUT, || async {
            let puts = env.azure.puts().await.len();
            if puts > before { Ok(()) } else { Err(format!("{puts} writes")) }
        })
        .await;
    }
}

/// Runs an action while endpoints change; then waits until every pool matches its endpoints.
async fn under_churn<T>(env: &TestEnvironment<&Cluster>, what: &str, action: impl Future<Output = T>) -> T {
    let done = tokio::select! {
        done = action => done,
        never = churn(env) => match never {},
    };
    env.converged(what).await;
    done
}

/// Waits until this number of writes has arrived since a time.
async fn written_since(env: &TestEnvironment<&Cluster>, at_us: u64, writes: usize) {
    eventually("pools are written", TEST_TIMEOUT, || async {
        let since = env.azure.puts().await.iter().filter(|put| put.at_us > at_us).count();
        if since >= writes { Ok(()) } else { Err(format!("{since} writes")) }
    })
    .await;
}

/// Waits until a write of a process is in flight that will not be answered immediately.
async fn write_is_in_flight(env: &TestEnvironment<&Cluster>, name: &str) {
    eventually("a write is in flight", TEST_TIMEOUT, || async {
        let (puts, now_us) = (env.azure.puts().await, env.azure.now_us());
        let own = puts.iter().filter(|put| put.user_agent.starts_with(name));
        let last_us = own.map(|put| put.answered_us).max();
        if last_us > Some(now_us + 1_000_000) { Ok(()) } else { Err(format!("{last_us:?}, now {now_us}")) }
    })
    .await;
}

/// Stops a process during a write, and returns the time from the answer to its last write to the first write of another
/// process.
async fn hand_over(env: &TestEnvironment<&Cluster>, from: Process) -> Duration {
    let Process { name, controller } = from;
    write_is_in_flight(env, &name).await;
    let requested_us = env.azure.now_us();
    let wrote = async {
        eventually("a successor writes", TEST_TIMEOUT, || async {
            let puts = env.azure.puts().await;
            let by_others =
                puts.iter().find(|put| put.at_us > requested_us && !put.user_agent.starts_with(&name));
            by_others.map(|put| put.at_us).ok_or_else(|| format!("{:?}", puts.last()))
        })
        .await
    };
    let ((), wrote_us) = tokio::join!(controller.terminate(), wrote);
    let puts = env.azure.puts().await;
    let last_us =
        puts.iter().filter(|put| put.user_agent.starts_with(&name)).map(|put| put.answered_us).max();
    let last_us = last_us.expect("it has written");
    assert!(requested_us < last_us, "a write was in flight");
    assert!(wrote_us >= last_us, "written at {wrote_us}, beside a write until {last_us}");
    let took = Duration::from_micros(wrote_us - last_us);
    assert!(took < HAND_OVER_TIMEOUT, "the hand-over took {took:?}");
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_a_rolling_update_under_churn_loses_no_change() {
    let Some(cluster) = kubernetes::shared().await else { return };
    if !pod::supports_mount_namespaces().await {
        return;
    }
    let env = TestEnvironment::begin(cluster, NAMESPACE, NODES).await;
    store_cloud_config(&env).await;
    for (service, name) in MOVING.into_iter().enumerate() {
        env.set_endpoints_by_hand(name, &written(&endpoints(&env, service, 0))).await;
    }
    env.provision(NAMESPACE).await;
    let mut values = values(NAMESPACE);
    values["config"]["discovery"] = json!({ "interval": "1h" });
    let release = Release::install(&env, "rolling", &values).await;
    let mut old = Vec::new();
    for (pod, role) in release.pods().await.iter().zip(["leader", "standby"]) {
        let process = Process::start(&env, pod).await;
        has_role(&process.controller, role).await;
        old.push(process);
    }
    assert_eq!(old.len(), 2);
    env.converged("the start").await;

    env.azure.set_write_latency(WRITE_TAKES, WRITE_TAKES).await;
    release.upgrade("config.batching.quietPeriod=150ms").await;
    let before: BTreeSet<String> = old.iter().map(|process| process.name.clone()).collect();
    let pods = release.pods().await;
    assert!(pods.len() == 2 && pods.iter().all(|pod| !before.contains(pod.name())));
    let mut new = Vec::new();
    let mut hand_overs = Vec::new();
    for (pod, gone) in pods.iter().zip(old) {
        let step = async {
            let fresh = Process::start(&env, pod).await;
            written_since(&env, env.azure.now_us(), MOVING.len()).await;
            let leads = gone.controller.role().await.expect("it answers") == "leader";
            let took = if leads {
                Some(hand_over(&env, gone).await)
            } else {
                gone.controller.terminate().await;
                None
            };
            written_since(&env, env.azure.now_us(), MOVING.len()).await;
            (fresh, took)
        };
        let (fresh, took) = under_churn(&env, "a step of the update", step).await;
        new.push(fresh);
        hand_overs.extend(took);
    }
    log_line(&format!(
        "a rolling update under churn: a successor wrote {hand_overs:?} after the last answer to its predecessor"
    ));
    assert!(!hand_overs.is_empty(), "the first one to go was the leader");

    for Process { name, controller } in &new {
        assert_eq!(controller.counter(DRIFT).await, Ok(0.0), "{name} found drift");
    }
    let puts = env.azure.puts().await;
    let runs = writers(&puts);
    let different: BTreeSet<&str> = runs.iter().copied().collect();
    assert_eq!(runs.len(), different.len(), "a replica writes again after it has handed over: {runs:?}");
    let last = runs.last().expect("a replica has written");
    assert!(new.iter().any(|process| process.name == *last), "{runs:?}");
    let (leads, stands_by): (Vec<Process>, Vec<Process>) =
        new.into_iter().partition(|process| process.name == *last);
    for process in stands_by {
        process.controller.terminate().await;
    }
    for process in leads {
        env.end(process.controller).await;
    }
}
