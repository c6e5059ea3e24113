//! The tests of tests/e2e on a real API server, with a simulated Azure and a model of the cloud-controller-manager.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use simulator::models::ccm::Settings;

use super::TestEnvironment;
use crate::support::ccm::CloudControllerManager;
use crate::support::controller::{Controller, Flags, Replica, shared_lease};
use crate::support::{TEST_TIMEOUT, eventually, kubernetes};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn e2e_tests_pass_and_fail_as_the_controller_does() {
    // They use any node of the cluster, so other tests cannot share it.
    let Some(cluster) = kubernetes::own().await else { return };
    let env = TestEnvironment::begin(Box::new(cluster), "e2e", 3).await;
    let config = env.azure.cloud_config();
    let of = |key: &str| config[key].as_str().expect("it is configured").to_owned();
    let settings = Settings {
        epoch_s: u64::try_from(jiff::Timestamp::now().as_second()).expect("it is after 1970"),
        lease: shared_lease(env.namespace),
        subscription: of("subscriptionId"),
        resource_group: of("resourceGroup"),
        updater: false,
        retry_us: 500_000,
        ..Settings::default()
    };
    let load_balancer_of = |_: &str| "kubernetes";
    let _manager =
        CloudControllerManager::start(env.api.clone(), &env.azure, env.namespace, settings, load_balancer_of);
    let replica = Replica {
        name: "e2e.controller",
        namespace: env.namespace,
        kubeconfig: env.cluster.controller_kubeconfig(env.namespace).await,
        cloud_config: config.clone(),
        // The default.
        settings: json!({ "guards": { "emptyConfirm": "60s" } }),
        flags: Flags::default(),
    };
    let controller = Controller::start_replica(&env.cluster, &replica).await;
    eventually("all nodes are Ready", TEST_TIMEOUT, || async {
        let nodes = env.api.items("/api/v1/nodes").await?;
        let is_ready = |node: &Value| {
            let conditions = node["status"]["conditions"].as_array();
            conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
        };
        if nodes.iter().all(is_ready) { Ok(()) } else { Err(format!("{nodes:?}")) }
    })
    .await;

    let folder = tempfile::tempdir().expect("a folder");
    let mut variables = BTreeMap::from([
        ("AZURE_RESOURCE_MANAGER_ENDPOINT".to_owned(), of("resourceManagerEndpoint")),
        ("AZURE_SUBSCRIPTION_ID".to_owned(), of("subscriptionId")),
        ("AZURE_RESOURCE_GROUP".to_owned(), of("resourceGroup")),
        ("AZURE_LOCATION".to_owned(), of("location")),
        ("KUBECONFIG".to_owned(), env.cluster.admin_kubeconfig().display().to_string()),
        ("E2E_NAMESPACE".to_owned(), env.namespace.to_owned()),
        ("CONTROLLER_LEASE".to_owned(), format!("{}/azure-backend-pool-controller", env.namespace)),
    ]);
    let mut options = e2e::Options {
        suite: e2e::Suite::Cluster,
        focus: String::new(),
        skip: None,
        reports: folder.path().to_owned(),
        dry_run: false,
        simulated: false,
    };
    let result = e2e::run(&options, &variables).await.expect("all variables are set");
    assert!(!result.failed && result.text.ends_with("7 passed, 0 failed, 0 skipped\n"), "{}", result.text);
    // The folder has the cluster's name in the kubeconfig.
    let junit = std::fs::read_to_string(folder.path().join("test/junit.xml")).expect("a report");
    assert!(junit.contains("tests=\"7\" failures=\"0\" skipped=\"0\""), "{junit}");
    controller.terminate().await;

    // No replica leads any more.
    variables.insert("CONTROLLER_LEASE".to_owned(), format!("{}/nobody", env.namespace));
    "leader".clone_into(&mut options.focus);
    let result = e2e::run(&options, &variables).await.expect("all variables are set");
    assert!(result.failed && result.text.contains("no process holds the Lease"), "{}", result.text);
}
