//! Two processes as replicas: hand-over, take-over after a crash, a suspended process, and a cut network. In each of
//! them Azure's log must never show two writers at once (docs/design/coordination.md, W8).

use std::ops::Deref;
use std::time::Duration;

use serde_json::{Value, json};

use super::{LOAD_BALANCERS, TestEnvironment, load_balancer};
use crate::support::azure::Put;
use crate::support::controller::{Controller, Flags, Replica};
use crate::support::kubernetes::{self, Cluster};
use crate::support::proxy::Proxy;
use crate::support::{TEST_TIMEOUT, eventually};

/// After a crash another replica leads within this time (W8).
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(75);
/// After SIGTERM another replica writes within this time of the answer to the last write in flight.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Two replicas, and the environment of their test.
struct Pair<C: Deref<Target = Cluster>> {
    env: TestEnvironment<C>,
    names: Vec<String>,
    /// The leader and the standby.
    leader: Controller,
    standby: Controller,
    /// The leader's proxy to the API server.
    way: Proxy,
}

/// Returns the names of a test's replicas.
fn replica_name(namespace: &str, number: u8) -> String {
    format!("{namespace}-replica-{number}")
}

impl<C: Deref<Target = Cluster>> Pair<C> {
    /// Starts two replicas of which the first leads, and six Services whose pools are in sync.
    async fn begin(cluster: C, namespace: &'static str) -> Self {
        let env = TestEnvironment::begin(cluster, namespace, 6).await;
        let names: Vec<String> = (0..6).map(|number| format!("web-{number}")).collect();
        for name in &names {
            env.deploy(name, 2).await;
        }
        env.provision(namespace).await;
        let kubeconfig = env.cluster.controller_kubeconfig(namespace).await;
        let way = Proxy::start(env.cluster.address()).await;
        let detour = env.cluster.detour(&kubeconfig, &format!("{namespace}-detour"), way.address());
        let start = async |number: u8, kubeconfig| {
            let name = replica_name(namespace, number);
            let mut cloud_config = env.azure.cloud_config();
            cloud_config["userAgent"] = Value::from(name.clone());
            let replica = Replica {
                name: &name,
                namespace,
                kubeconfig,
                cloud_config,
                settings: json!({}),
                flags: Flags::default(),
            };
            Controller::start_replica(&env.cluster, &replica).await
        };
        let leader = start(1, detour).await;
        has_role(&leader, "leader").await;
        let standby = start(2, kubeconfig).await;
        has_role(&standby, "standby").await;
        env.rolled_out(&names).await;
        env.converged("the first rollout").await;
        Self { env, names, leader, standby, way }
    }

    /// Changes every pool, and waits until the leader's first write of these changes is in flight.
    async fn write_is_in_flight(&self, replicas: u32) {
        self.write_of(self.names.iter(), replicas).await;
    }

    /// Does the same with the pools of these Services.
    async fn write_of(&self, names: impl Iterator<Item = &String>, replicas: u32) {
        let before = self.env.azure.puts().await.len();
        for name in names {
            self.env.scale(name, replicas).await;
        }
        eventually("a write is in flight", TEST_TIMEOUT, || async {
            let (puts, now) = (self.env.azure.puts().await, self.env.azure.now_us());
            let open = puts[before..].iter().any(|put| now + 200_000 < put.answered_us);
            if open { Ok(()) } else { Err(format!("{} writes", puts.len() - before)) }
        })
        .await;
    }
}

pub(super) async fn has_role(controller: &Controller, wanted: &str) {
    eventually(&format!("a replica is {wanted}"), TEST_TIMEOUT, || async {
        let role = controller.role().await?;
        if role == wanted { Ok(()) } else { Err(role) }
    })
    .await;
}

/// Asserts that no write of one writer was in flight during a write of another one, on any load balancer. Returns the
/// writers in the order in which they took over from each other.
pub(super) fn writers(puts: &[Put]) -> Vec<&str> {
    let mut runs: Vec<&str> = Vec::new();
    let mut busy_until = 0;
    for put in puts {
        let who = put.user_agent.split(['/', ' ']).next().unwrap_or_default();
        if runs.last() != Some(&who) {
            assert!(
                put.at_us >= busy_until,
                "{who} began to write at {} while a write of {:?} was unanswered until {busy_until}",
                put.at_us,
                runs.last()
            );
            runs.push(who);
        }
        busy_until = busy_until.max(put.answered_us);
    }
    runs
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_sigterm_hands_over_within_2_s_of_the_last_answer() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let pair = Pair::begin(cluster, "hand-over").await;
    // Operations end with their answers, so that the successor waits only for its predecessor.
    pair.env.azure.set_write_latency(Duration::from_secs(5), Duration::ZERO).await;
    let is_idle = |name: &&String| load_balancer(name) == LOAD_BALANCERS[2];
    pair.write_of(pair.names.iter().filter(|name| !is_idle(name)), 4).await;
    let Pair { env, names, leader, standby, way: _way } = pair;
    let [first, second] = [1, 2].map(|number| replica_name("hand-over", number));
    let handed_over = async {
        // On an idle load balancer, only the predecessor's writes elsewhere delay the successor.
        for name in names.iter().filter(is_idle) {
            env.scale(name, 4).await;
        }
        eventually("the standby writes", TEST_TIMEOUT, || async {
            let puts = env.azure.puts().await;
            let put = puts.iter().find(|put| put.user_agent.starts_with(&second)).map(|put| put.at_us);
            put.ok_or_else(|| format!("{:?}", puts.last()))
        })
        .await
    };
    let ((), wrote_us) = tokio::join!(leader.terminate(), handed_over);
    let puts = env.azure.puts().await;
    let last_us =
        puts.iter().filter(|put| put.user_agent.starts_with(&first)).map(|put| put.answered_us).max();
    let last_us = last_us.expect("the first replica has written");
    assert!(wrote_us >= last_us, "written at {wrote_us}, beside a write until {last_us}");
    let took = Duration::from_micros(wrote_us - last_us);
    assert!(took < HAND_OVER_TIMEOUT, "the hand-over took {took:?}");
    env.azure.set_write_latency(Duration::from_millis(50), Duration::ZERO).await;
    env.rolled_out(&names).await;
    env.converged("the hand-over").await;
    let puts = env.azure.puts().await;
    assert_eq!(writers(&puts), [first, second]);
    env.end(standby).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_sigkill_during_a_write_is_taken_over_within_75_s() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let pair = Pair::begin(cluster, "sigkill").await;
    pair.env.azure.set_write_latency(Duration::from_secs(2), Duration::from_secs(3)).await;
    pair.write_is_in_flight(4).await;
    let Pair { env, names, leader, standby, way: _way } = pair;
    leader.kill();
    let killed_us = env.azure.now_us();
    let second = replica_name("sigkill", 2);
    let first_us = eventually("the other replica writes", TAKE_OVER_TIMEOUT, || async {
        let puts = env.azure.puts().await;
        let mut by_second = puts.iter().filter(|put| put.user_agent.starts_with(&second));
        by_second.next().map(|put| put.at_us).ok_or_else(|| format!("{:?}", puts.last()))
    })
    .await;
    let took = Duration::from_micros(first_us.saturating_sub(killed_us));
    assert!(took < TAKE_OVER_TIMEOUT, "the take-over took {took:?}");
    env.rolled_out(&names).await;
    env.converged("the take-over").await;
    assert_eq!(writers(&env.azure.puts().await), [replica_name("sigkill", 1), second]);
    env.end(standby).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_a_leader_suspended_beyond_its_lease_never_writes() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let pair = Pair::begin(cluster, "sigstop").await;
    pair.env.azure.set_write_latency(Duration::from_secs(1), Duration::from_secs(2)).await;
    pair.write_is_in_flight(4).await;
    let Pair { env, names, leader, standby, way: _way } = pair;
    leader.suspend();
    has_role(&standby, "leader").await;
    for name in &names {
        env.scale(name, 2).await;
    }
    // The process resumes during its successor's work, with everything that it had begun.
    let went_on_us = env.azure.now_us();
    leader.go_on();
    env.rolled_out(&names).await;
    env.converged("both run again").await;
    has_role(&leader, "standby").await;
    let [first, second] = [1, 2].map(|number| replica_name("sigstop", number));
    // No permit stops a request that was in flight when the process was suspended. It arrives afterwards, and Azure
    // refuses it because of its If-Match (W2). There may be no other requests of this process.
    let (late, puts): (Vec<Put>, Vec<Put>) = env
        .azure
        .puts()
        .await
        .into_iter()
        .partition(|put| put.user_agent.starts_with(&first) && put.at_us >= went_on_us);
    assert!(late.iter().all(|put| put.refused), "{late:?}");
    assert_eq!(writers(&puts), [first, second]);
    leader.terminate().await;
    env.end(standby).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_a_leader_without_the_api_server_stops_first() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let pair = Pair::begin(cluster, "cut").await;
    pair.env.azure.set_write_latency(Duration::from_secs(1), Duration::from_secs(2)).await;
    pair.write_is_in_flight(4).await;
    let Pair { env, names, leader, standby, way } = pair;
    // Azure stays reachable for the process all the time.
    way.cut();
    has_role(&standby, "leader").await;
    for name in &names {
        env.scale(name, 3).await;
    }
    env.rolled_out(&names).await;
    env.converged("the cut").await;
    way.mend();
    has_role(&leader, "standby").await;
    for name in &names {
        env.scale(name, 1).await;
    }
    env.rolled_out(&names).await;
    env.converged("the way is mended").await;
    let [first, second] = [1, 2].map(|number| replica_name("cut", number));
    assert_eq!(writers(&env.azure.puts().await), [first, second]);
    leader.terminate().await;
    env.end(standby).await;
}

#[test]
fn w8_overlapping_writers_are_found_on_any_load_balancers() {
    let put = |who: &str, at_us, answered_us| Put {
        at_us,
        answered_us,
        user_agent: format!("{who}/1.0"),
        pool: String::new(),
        members: None,
        refused: false,
    };
    assert_eq!(writers(&[put("a", 0, 10), put("a", 5, 20), put("b", 20, 30)]), ["a", "b"]);
    let overlapping = [put("a", 0, 10), put("b", 9, 30)];
    assert!(std::panic::catch_unwind(|| writers(&overlapping).len()).is_err());
}
