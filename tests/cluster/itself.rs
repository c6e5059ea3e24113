//! Events about the controller itself and about listed pools are attached to its Deployment, or to another object of
//! the controller if the Deployment cannot be read (X2, E1).

use serde_json::{Value, json};

use super::TestEnvironment;
use crate::support::controller::{Controller, Flags, Replica};
use crate::support::kubernetes::{self, Cluster};
use crate::support::objects::{self, ACCOUNT};
use crate::support::{TEST_TIMEOUT, eventually};
use crate::xds::stage::{FREE, control_plane, server, write_bootstrap};

const NAMESPACE: &str = "itself";

/// Waits for the event about a missing listed pool on an object of this kind, and returns that object.
async fn event_about(env: &TestEnvironment<&Cluster>, kind: &str) -> Value {
    let path = format!("/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=reason=BackendPoolNotManageable");
    eventually(&format!("an event on the {kind}"), TEST_TIMEOUT, || async {
        let events = env.api.items(&path).await?;
        let is_on = |event: &&Value| event["involvedObject"]["kind"] == kind;
        let found = events.iter().find(is_on).ok_or_else(|| format!("{events:#?}"))?;
        assert!(
            found["message"].as_str().is_some_and(|text| text.contains("kubernetes/misspelt")),
            "{found}"
        );
        Ok(found["involvedObject"].clone())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_e1_the_controllers_events_go_to_deployment_or_lease() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, NAMESPACE, 1).await;
    let node = env.node(1);
    env.set_endpoints_by_hand("web-0", &[("10.9.0.1", Some(&node))]).await;
    env.provision(NAMESPACE).await;
    let own = objects::deployment(NAMESPACE, ACCOUNT, 0);
    env.create("deployments", &own).await;
    let uid =
        env.api.get(&env.path("deployments", ACCOUNT)).await.expect("it was made")["metadata"]["uid"].clone();

    let (plane, folder) = (control_plane().await, tempfile::tempdir().expect("a temporary folder"));
    let settings = json!({
        "pools": [{ "loadBalancer": "kubernetes", "backendPool": "misspelt", "source": "eds:web" }],
        "xds": { "bootstrap": write_bootstrap(&folder, &[server(&plane, &[])]) },
        "http": { "healthListen": FREE, "adminListen": FREE, "csdsListen": FREE },
    });
    let kubeconfig = cluster.controller_kubeconfig(NAMESPACE).await;
    let start = async |name: &str, deployment: &'static str| {
        let replica = Replica {
            name,
            namespace: NAMESPACE,
            kubeconfig: kubeconfig.clone(),
            cloud_config: env.azure.cloud_config(),
            settings: settings.clone(),
            flags: Flags { deployment: Some(deployment), ..Flags::default() },
        };
        Controller::start_replica(cluster, &replica).await
    };
    let log = |name: &str| {
        let path = cluster.folder().join(format!("{name}.log"));
        std::fs::read_to_string(path).expect("the log is there")
    };

    let controller = start("itself-1", ACCOUNT).await;
    let expected = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "namespace": NAMESPACE, "name": ACCOUNT, "uid": uid });
    assert_eq!(event_about(&env, "Deployment").await, expected);
    env.end(controller).await;
    let log_text = log("itself-1");
    assert!(log_text.contains("events about this controller are attached to its Deployment"), "{log_text}");

    // A Deployment that the controller's account may not read.
    let controller = start("itself-2", "somebody-else").await;
    let lease = event_about(&env, "Lease").await;
    assert_eq!((&lease["name"], &lease["namespace"]), (&json!(ACCOUNT), &json!(NAMESPACE)));
    env.end(controller).await;
    let log_text = log("itself-2");
    let warned =
        log_text.lines().filter(|line| line.contains("failed to read the Deployment of the controller"));
    let warned: Vec<&str> = warned.collect();
    assert!(
        warned.len() == 1 && warned[0].contains("forbidden") && warned[0].contains("docs/rbac.yaml"),
        "{log_text}"
    );
}
