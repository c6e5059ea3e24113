//! The shared Lease with a second client that behaves like the cloud-controller-manager: both write the same pools,
//! never at the same time, and neither starves the other (docs/design/writer.md, W7).

use std::time::Duration;

use serde_json::{Value, json};
use simulator::models::ccm::Settings;

use super::{TestEnvironment, load_balancer};
use crate::support::ccm::CloudControllerManager;
use crate::support::controller::{Controller, Flags, Replica};
use crate::support::kubernetes::Api;
use crate::support::{TEST_TIMEOUT, eventually, kubernetes};

/// Upstream's name of the Lease: only this test uses it.
const LEASE: &str = "aks-managed-resource-locker";
/// User agent of the controller.
const OURS: &str = "the-controller";
/// Maximum wait of the manager for the Lease (W7).
const STARVED: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_the_lease_is_shared_with_a_busy_cloud_controller_manager() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "ccm", 6).await;
    let names: Vec<String> = (0..6).map(|number| format!("web-{number}")).collect();
    let left = tokio::spawn(left_as_ours(env.api.clone()));
    let manager = start_manager(&env);
    let controller = start_controller(&env).await;
    // Only the manager creates rules and pools; the controller finds them.
    for name in &names {
        env.deploy(name, 2).await;
    }
    env.rolled_out(&names).await;
    env.converged("the first rollout").await;
    for replicas in [4, 1, 3] {
        for name in &names {
            env.scale(name, replicas).await;
        }
        env.rolled_out(&names).await;
        env.converged("scaling").await;
    }
    left.await.expect("the Lease was released by the controller once");
    let sums = eventually(
        "the manager works, and reads again after the controller has written",
        TEST_TIMEOUT,
        || async {
            let sums = manager.sums();
            let counters = &sums.counters;
            let works = counters.holds > 20 && counters.reconciled > 10 && counters.cache_rebuilds > 0;
            if works { Ok(sums) } else { Err(format!("{sums:?}")) }
        },
    )
    .await;
    assert!(sums.longest_wait < STARVED, "the manager is not starved: {sums:?}");

    let puts = env.azure.puts().await;
    let ours = |who: &str| who.starts_with(OURS);
    assert!(puts.iter().any(|put| ours(&put.user_agent)) && puts.iter().any(|put| !ours(&put.user_agent)));
    for (number, put) in puts.iter().enumerate() {
        let meets = puts[..number]
            .iter()
            .find(|other| ours(&other.user_agent) != ours(&put.user_agent) && other.answered_us > put.at_us);
        assert!(meets.is_none(), "two holders wrote at the same time: {meets:?} and {put:?}");
    }
    env.converged("all that has happened").await;
    controller.terminate().await;
}

/// Waits until the controller has released the Lease. The manager may acquire it soon after.
async fn left_as_ours(api: Api) {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{LEASE}");
    eventually("the controller has released the Lease", 2 * TEST_TIMEOUT, || async {
        let lease = api.get(&path).await?;
        let previous = &lease["metadata"]["annotations"]["aks-managed-resource-locker-previous-holder"];
        let is_free = lease["spec"]["holderIdentity"] == "";
        let left = is_free
            && previous == "azure-backend-pool-controller"
            && lease["spec"]["leaseDurationSeconds"] == 900;
        if left { Ok(()) } else { Err(lease.to_string()) }
    })
    .await;
}

fn start_manager(env: &TestEnvironment<&'static kubernetes::Cluster>) -> CloudControllerManager {
    let epoch_s = u64::try_from(jiff::Timestamp::now().as_second()).expect("it is after 1970");
    let settings = Settings {
        epoch_s,
        lease: LEASE.to_owned(),
        subscription: text(&env.azure.cloud_config()["subscriptionId"]),
        resource_group: text(&env.azure.cloud_config()["resourceGroup"]),
        updater_interval_us: 2_000_000,
        node_sync_us: 5_000_000,
        resync_us: Some(1_500_000),
        retry_us: 1_000_000,
        // A Service's delay doubles with each failure to acquire the Lease, in upstream up to five minutes. No Service
        // must wait longer than the test.
        max_retry_us: 8_000_000,
        ..Settings::default()
    };
    CloudControllerManager::start(env.api.clone(), &env.azure, env.namespace, settings, load_balancer)
}

async fn start_controller(env: &TestEnvironment<&'static kubernetes::Cluster>) -> Controller {
    let mut cloud_config = env.azure.cloud_config();
    cloud_config["userAgent"] = Value::from(OURS);
    let replica = Replica {
        name: "ccm.controller",
        namespace: env.namespace,
        kubeconfig: env.cluster.controller_kubeconfig(env.namespace).await,
        cloud_config,
        settings: json!({ "lease": { "name": LEASE, "minCooldown": "1s" } }),
        flags: Flags::default(),
    };
    Controller::start_replica(env.cluster, &replica).await
}

fn text(value: &Value) -> String {
    value.as_str().expect("the cloud configuration names it").to_owned()
}
