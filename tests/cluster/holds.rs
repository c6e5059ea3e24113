//! Holds of the shared Lease on the real API server: a predecessor's, another client's with and without an end, and the
//! state after the controller's own holds (docs/design/writer.md, W7).
//!
//! A watch of the API server shows every state of the Lease, so that no test depends on the time of a read.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{TestEnvironment, load_balancer};
use crate::support::azure::{Put, pool_name};
use crate::support::controller::{Controller, Flags, Replica};
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, eventually};

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
/// Name of the controller in the Lease, and prefix of its `User-Agent`.
const OURS: &str = "azure-backend-pool-controller";
const THEIRS: &str = "cloud-controller-manager";
/// The annotation with the name of the previous holder. It shows the next holder that the previous one may have
/// written.
const PREVIOUS: &str = "aks-managed-resource-locker-previous-holder";
/// Duration of the controller's holds without renewal, and of a predecessor's.
const OUR_HOLD: SignedDuration = SignedDuration::from_secs(60);
/// Time between two renewals.
const RENEW_INTERVAL: SignedDuration = SignedDuration::from_secs(15);
/// Maximum difference between two renewals in the time from the decision to the sending, as the Lease shows it.
const ON_ITS_WAY: SignedDuration = SignedDuration::from_secs(2);
/// Duration of a foreign hold, for any `leaseDurationSeconds`.
const FOREIGN_HOLD: SignedDuration = SignedDuration::from_secs(900);
/// Time for which a foreign hold is observed before its timestamps are trusted.
const LOOKED_AT: SignedDuration = SignedDuration::from_secs(30);
/// Maximum delay of the take-over after the end of a foreign hold, on a slow and shared machine.
const SLACK: SignedDuration = SignedDuration::from_secs(15);

type Shared = TestEnvironment<&'static Cluster>;

/// A recorded state of the Lease.
#[derive(Debug)]
struct State {
    holder: String,
    says_s: u64,
    previous: Option<String>,
    acquired: Option<Timestamp>,
    renewed: Option<Timestamp>,
    transitions: u64,
}

impl State {
    fn of(lease: &Value) -> Self {
        let spec = &lease["spec"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let time = |value: &Value| value.as_str().map(|text| text.parse().expect("a time"));
        Self {
            holder: text(&spec["holderIdentity"]).unwrap_or_default(),
            says_s: spec["leaseDurationSeconds"].as_u64().expect("a duration"),
            previous: text(&lease["metadata"]["annotations"][PREVIOUS]),
            acquired: time(&spec["acquireTime"]),
            renewed: time(&spec["renewTime"]),
            transitions: spec["leaseTransitions"].as_u64().unwrap_or(0),
        }
    }

    fn is_free(&self) -> bool {
        self.holder.is_empty()
    }

    /// Returns whether the Lease is free as after a release by the controller, with this name in the annotation.
    fn is_left(&self, previous: &str) -> bool {
        self.is_free() && self.says_s == 900 && self.previous.as_deref() == Some(previous)
    }
}

/// The shared Lease of a test, and its initial state.
struct Locker<'a> {
    env: &'a Shared,
    name: String,
    made: Value,
    began: State,
}

impl<'a> Locker<'a> {
    /// Creates a Lease that this client holds and has renewed this long ago.
    async fn held(env: &'a Shared, holder: &str, ago: SignedDuration, says_s: u64) -> Self {
        let name = format!("locker-{}", env.namespace);
        let renewed = Timestamp::now() - ago;
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": name, "namespace": "kube-system", "annotations": { PREVIOUS: THEIRS },
            },
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": says_s, "leaseTransitions": 7,
                "acquireTime": format!("{renewed:.6}"), "renewTime": format!("{renewed:.6}"),
            },
        });
        let made = env.api.create(LEASES, &lease).await;
        let began = State::of(&made);
        Self { env, name, made, began }
    }

    async fn now(&self) -> Result<State, String> {
        Ok(State::of(&self.env.api.get(&format!("{LEASES}/{}", self.name)).await?))
    }

    /// Waits until the Lease is in a matching state.
    async fn becomes(&self, what: &str, wanted: impl Fn(&State) -> bool) {
        eventually(&format!("the Lease is {what}"), TEST_TIMEOUT, || async {
            let state = self.now().await?;
            if wanted(&state) { Ok(()) } else { Err(format!("{state:?}")) }
        })
        .await;
    }

    /// Returns every state since the first one, oldest first.
    async fn states(&self) -> Vec<State> {
        let version = self.made["metadata"]["resourceVersion"].as_str().expect("a version");
        let name = &self.name;
        // The API server ends the watch after some seconds, and has sent all earlier changes by then.
        let query = format!("watch=true&timeoutSeconds=5&resourceVersion={version}");
        let path = format!("{LEASES}?{query}&fieldSelector=metadata.name={name}");
        let text = self.env.api.text(&path).await.expect("the API server sends the changes");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).expect("an event"));
        lines
            .map(|event| {
                assert_eq!(event["type"], "MODIFIED", "{event}");
                State::of(&event["object"])
            })
            .collect()
    }

    /// Returns the age of a state since the renewal at the start of the test.
    fn age(&self, state: &State) -> SignedDuration {
        state.renewed.expect("when").duration_since(self.began.renewed.expect("when"))
    }

    /// Releases the Lease as its holder does.
    async fn release(&self) {
        let path = format!("{LEASES}/{}", self.name);
        let free =
            json!({ "spec": { "holderIdentity": "" }, "metadata": { "annotations": { PREVIOUS: THEIRS } } });
        self.env.api.merge(&path, &free).await;
    }
}

/// Waits until a write waits for a Lease of this holder, and returns the maximum wait, in seconds.
async fn waits_for(controller: &Controller, holder: &str) -> f64 {
    eventually("a write waits for the Lease", TEST_TIMEOUT, || async {
        let status = controller.get("/api/v1/status").await?;
        let lock = &status["sharedLease"];
        let ends = lock["endsInSeconds"].as_f64().filter(|_| lock["state"] == "waiting");
        ends.filter(|_| lock["holder"] == holder).ok_or_else(|| lock.to_string())
    })
    .await
}

fn ours(puts: &[Put]) -> Vec<&Put> {
    puts.iter().filter(|put| put.user_agent.starts_with(OURS)).collect()
}

/// Writes a pool of the test as the cloud-controller-manager does.
async fn write_as_theirs(env: &Shared, service: &str, member: &str) {
    let cloud = env.azure.cloud_config();
    let text = |key: &str| cloud[key].as_str().expect("the cloud configuration names it").to_owned();
    let url = format!(
        "{}/subscriptions/{}/resourceGroups/{}/providers/Microsoft.Network/loadBalancers/{}/backendAddressPools/{}\
         ?api-version=2024-05-01",
        env.azure.url(),
        text("subscriptionId"),
        text("resourceGroup"),
        load_balancer(service),
        pool_name(env.namespace, service),
    );
    let http = reqwest::Client::builder().no_proxy().user_agent(THEIRS).build().expect("a client");
    let got = http.get(&url).send().await.expect("the fake Azure answers");
    let body = got.text().await.expect("a body");
    let mut pool: Value = serde_json::from_str(&body).expect("a pool");
    pool["properties"]["loadBalancerBackendAddresses"] =
        json!([{ "name": "theirs", "properties": { "ipAddress": member } }]);
    let put = http.put(&url).header("Content-Type", "application/json").body(pool.to_string());
    let status = put.send().await.expect("the fake Azure answers").status();
    assert!(status.is_success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_a_predecessors_hold_is_taken_over_immediately() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "predecessor", 2).await;
    let node = env.node(1);
    env.set_endpoints_by_hand("web-1", &[("10.201.0.1", Some(&node))]).await;
    let lease = Locker::held(&env, OURS, SignedDuration::ZERO, 60).await;
    let controller = env.start_controller(Flags::default()).await;
    env.holds("web-1", ["10.1.0.1"]).await;
    lease.becomes("given back", |state| state.is_left(OURS)).await;

    let states = lease.states().await;
    // If no write is due at the first observation, the Lease is released and then acquired like any free Lease.
    let first = states.first().expect("the Lease has changed");
    let goes_on = first.holder == OURS && first.transitions == lease.began.transitions;
    assert!(goes_on || first.is_left(OURS), "{states:?}");
    assert!(lease.age(first) < OUR_HOLD, "the controller did not wait: {states:?}");
    let taken = states.iter().find(|state| state.holder == OURS).expect("it was taken");
    assert_eq!(taken.says_s, 60, "{states:?}");
    assert!(lease.age(taken) < OUR_HOLD, "{states:?}");
    env.end(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_a_predecessors_hold_is_released_with_our_name() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "predecessor-idle", 1).await;
    let lease = Locker::held(&env, OURS, SignedDuration::ZERO, 60).await;
    let controller = env.start_controller(Flags::default()).await;
    // The predecessor may have written during its hold.
    lease.becomes("given back", |state| state.is_left(OURS)).await;
    let states = lease.states().await;
    assert!(states.iter().all(State::is_free), "it was never taken: {states:?}");
    assert!(lease.age(&states[0]) < OUR_HOLD, "the controller did not wait: {states:?}");
    assert!(env.azure.puts().await.is_empty());
    env.end(controller).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_a_foreign_hold_is_awaited_and_wakes_the_lanes() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "foreign-hold", 3).await;
    let node = env.node(1);
    env.set_endpoints_by_hand("web-1", &[("10.200.0.1", Some(&node))]).await;
    // The holder may work for 900 s although the Lease contains 60 s.
    let lease = Locker::held(&env, THEIRS, SignedDuration::ZERO, 60).await;
    let controller = env.start_controller(Flags::default()).await;
    let ends_in_s = waits_for(&controller, THEIRS).await;
    assert!(ends_in_s > 600.0 && ends_in_s <= 900.0, "{ends_in_s}");
    assert!(env.azure.puts().await.is_empty());
    let released_us = env.azure.now_us();
    lease.release().await;
    env.holds("web-1", ["10.1.0.1"]).await;
    let puts = env.azure.puts().await;
    let waited = Duration::from_micros(puts[0].at_us.saturating_sub(released_us));
    assert!(puts[0].at_us >= released_us && waited < Duration::from_secs(5), "{waited:?}");
    env.end(controller).await;
}

/// Starts a controller beside a foreign hold that is not renewed. Returns the start and the time at which the
/// controller acquired the Lease; nothing was written before.
async fn outwaits(env: &Shared, lease: &Locker<'_>) -> (Timestamp, Timestamp) {
    let node = env.node(1);
    env.set_endpoints_by_hand("web-1", &[("10.202.0.1", Some(&node))]).await;
    let controller = env.start_controller(Flags::default()).await;
    waits_for(&controller, THEIRS).await;
    let began = Timestamp::now();
    env.holds("web-1", ["10.1.0.1"]).await;
    lease.becomes("given back", |state| state.is_left(OURS)).await;
    let states = lease.states().await;
    let taken = states.first().expect("it was taken");
    assert_eq!((taken.holder.as_str(), taken.says_s), (OURS, 60), "{states:?}");
    assert_eq!(taken.transitions, lease.began.transitions + 1, "{states:?}");
    let taken = taken.acquired.expect("when");
    // Both clocks are this machine's.
    let since_taken = Timestamp::now().duration_since(taken);
    let taken_us =
        env.azure.now_us().saturating_sub(since_taken.as_micros().try_into().expect("it is small"));
    let puts = env.azure.puts().await;
    assert!(!puts.is_empty() && puts.iter().all(|put| put.at_us >= taken_us), "{puts:?} before {taken_us}");
    env.end(controller).await;
    (began, taken)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_a_foreign_hold_is_taken_over_900_s_after_its_renewal() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "foreign-60", 1).await;
    // By its own timestamps it ended 13 minutes ago; the rest of the 900 s is longer than the observation time.
    let lease = Locker::held(&env, THEIRS, SignedDuration::from_secs(855), 60).await;
    let (_, taken) = outwaits(&env, &lease).await;
    let ended = lease.began.renewed.expect("when") + FOREIGN_HOLD;
    let late = taken.duration_since(ended);
    assert!(late >= SignedDuration::ZERO && late < SLACK, "taken {late:?} after its end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_a_foreign_hold_about_to_end_is_watched_for_30_s_first() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "foreign-900", 1).await;
    // The holder's clock may differ from the local one.
    let lease = Locker::held(&env, THEIRS, SignedDuration::from_secs(895), 900).await;
    let started = Timestamp::now();
    let (began, taken) = outwaits(&env, &lease).await;
    let (most, least) = (taken.duration_since(started), taken.duration_since(began));
    assert!(most >= LOOKED_AT && least < LOOKED_AT + SLACK, "taken after {least:?} to {most:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_our_lease_has_60_s_and_after_the_release_900_s() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "our-hold", 2).await;
    let (one, two) = (env.node(1), env.node(2));
    env.set_endpoints_by_hand("web-1", &[("10.203.0.1", Some(&one))]).await;
    let lease = Locker::held(&env, THEIRS, SignedDuration::ZERO, 900).await;
    env.provision(env.namespace).await;
    let replica = Replica {
        name: "our-hold.controller",
        namespace: env.namespace,
        kubeconfig: env.cluster.controller_kubeconfig(env.namespace).await,
        cloud_config: env.azure.cloud_config(),
        // It reads foreign writes only before its own writes, and a move causes one write.
        settings: json!({ "discovery": { "interval": "1h" }, "members": { "removalDelay": "0s" } }),
        flags: Flags::default(),
    };
    let controller = Controller::start_replica(env.cluster, &replica).await;
    waits_for(&controller, THEIRS).await;

    // The holder makes the change that the controller was about to make.
    env.azure.set_write_latency(Duration::from_millis(50), Duration::ZERO).await;
    write_as_theirs(&env, "web-1", "10.1.0.1").await;
    lease.release().await;
    let begun = lease.began.transitions;
    lease.becomes("given back", |state| state.is_left(THEIRS) && state.transitions > begun).await;
    assert!(ours(&env.azure.puts().await).is_empty(), "nothing was left to write");

    env.azure.set_write_latency(Duration::from_secs(1), Duration::from_secs(18)).await;
    env.replace_by_hand("web-1", &[("10.203.0.1", Some(&two))]).await;
    lease.becomes("given back", |state| state.is_left(OURS)).await;
    env.holds("web-1", ["10.1.0.2"]).await;
    assert_eq!(ours(&env.azure.puts().await).len(), 1);

    let states = lease.states().await;
    let (mine, others): (Vec<&State>, Vec<&State>) = states.iter().partition(|state| state.holder == OURS);
    assert!(mine.iter().all(|state| state.says_s == 60), "{states:?}");
    assert!(others.iter().all(|state| state.is_free() && state.says_s == 900), "{states:?}");
    let mut holds: BTreeMap<Timestamp, Vec<Timestamp>> = BTreeMap::new();
    for state in mine {
        let acquired = state.acquired.expect("when");
        holds.entry(acquired).or_default().push(state.renewed.expect("when"));
    }
    let renewals = || holds.values().flat_map(|renewals| renewals.windows(2));
    assert!(renewals().count() > 0, "no hold lasted long enough: {holds:?}");
    for renewal in renewals() {
        let apart = renewal[1].duration_since(renewal[0]);
        assert!(
            apart > RENEW_INTERVAL - ON_ITS_WAY && apart < RENEW_INTERVAL + SLACK,
            "renewed after {apart:?}: {holds:?}"
        );
    }
    env.end(controller).await;
}
