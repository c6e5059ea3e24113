//! `check` against a real API server, with and without the rights of docs/rbac.yaml.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use super::TestEnvironment;
use crate::admin::stage::PROGRAM;
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, eventually, objects};

/// Returns the findings of a check.
async fn findings(env: &TestEnvironment<&Cluster>, kubeconfig: &Path) -> Vec<Value> {
    let namespace = env.namespace;
    let settings = json!({
        "identity": "anonymous", "leaderElection": { "namespace": namespace },
        "lease": { "name": format!("locker-{namespace}") }, "services": { "namespaces": [namespace] },
    });
    let write = |kind: &str, value: &Value| {
        let path = env.cluster.folder().join(format!("{namespace}.check.{kind}"));
        std::fs::write(&path, value.to_string()).expect("the folder can be written");
        path
    };
    let mut command = Command::new(PROGRAM);
    command.args(["check", "--output", "json", "--within", "10s", "--kubeconfig"]).arg(kubeconfig);
    command.arg("--cloud-config").arg(write("azure.json", &env.azure.cloud_config()));
    command.arg("--config").arg(write("controller.yaml", &settings)).env_clear().stdin(Stdio::null());
    let output = command.output().await.expect("the binary under test");
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    report["findings"].as_array().expect("findings").clone()
}

/// Returns whether a finding of this check and severity contains this text.
fn says(findings: &[Value], check: &str, severity: &str, words: &str) -> bool {
    let has_words = |it: &&Value| it["what"].as_str().is_some_and(|what| what.contains(words));
    findings.iter().filter(has_words).any(|it| it["check"] == check && it["severity"] == severity)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_check_reads_its_rights_from_a_real_api_server() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, "preflight", 1).await;
    let node = env.node(1);
    env.set_endpoints_by_hand("web-0", &[("10.9.0.1", Some(&node))]).await;
    env.provision(env.namespace).await;
    let kubeconfig = cluster.controller_kubeconfig(env.namespace).await;
    eventually("check finds no problem", TEST_TIMEOUT, || async {
        let findings = findings(&env, &kubeconfig).await;
        let right = says(&findings, "rights", "ok", "all 24 rights")
            && says(&findings, "api-server-clock", "ok", "agree")
            && says(&findings, "shared-lease", "warning", "does not exist")
            && says(&findings, "own-objects", "ok", "no controller leads")
            && says(&findings, "candidates", "ok", "1 Services are candidates")
            && says(&findings, "pools", "ok", "1 pools are proven");
        if right { Ok(()) } else { Err(format!("{findings:#?}")) }
    })
    .await;

    let (rbac, account) = ("/apis/rbac.authorization.k8s.io/v1", objects::ACCOUNT);
    for binding in [
        format!("clusterrolebindings/preflight-{account}"),
        format!("namespaces/preflight/rolebindings/{account}"),
        format!("namespaces/kube-system/rolebindings/preflight-{account}-shared-lease"),
    ] {
        env.api.delete(&format!("{rbac}/{binding}")).await;
    }
    eventually("check reports every right as missing", TEST_TIMEOUT, || async {
        let findings = findings(&env, &kubeconfig).await;
        let rights =
            ["list, watch services", "list, watch nodes", "endpointslices", "create, patch, list events"];
        let both = [
            "get, create, update, watch leases.coordination.k8s.io in preflight (azure-backend-pool-controller)",
            "get, create, update, watch leases.coordination.k8s.io in kube-system (locker-preflight)",
        ];
        let rest = ["get, create, update configmaps in preflight (azure-backend-pool-controller)"];
        let mut all = rights.iter().chain(&both).chain(&rest);
        if all.all(|right| says(&findings, "rights", "problem", right)) {
            Ok(())
        } else {
            Err(format!("{findings:#?}"))
        }
    })
    .await;
    assert_eq!(env.azure.counters().await.pool_puts, 0);
}
