//! The cloud configuration from a Secret of a real API server, with only the rights of the Role in docs/ (C1).

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::admin::stage::PROGRAM;
use crate::support::{TEST_TIMEOUT, eventually, kubernetes, log_lines, objects};

const NAMESPACE: &str = "cloud-config";
const SECRET: &str = "swordfish-of-the-secret";

/// Returns the output of check-config: standard output if it succeeds, else standard error.
async fn check(kubeconfig: &Path, file: Option<&Path>) -> Result<String, String> {
    let mut command = Command::new(PROGRAM);
    command.arg("check-config").arg(format!("--cloud-config-secret={NAMESPACE}/azure-cloud-provider"));
    command.arg("--kubeconfig").arg(kubeconfig).env_clear().stdin(Stdio::null());
    if let Some(file) = file {
        command.arg("--cloud-config").arg(file);
    }
    let Output { status, stdout, stderr } = command.output().await.expect("the binary under test");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(!text(&stdout).contains(SECRET) && !text(&stderr).contains(SECRET));
    if status.success() { Ok(text(&stdout)) } else { Err(text(&stderr)) }
}

/// Waits for an error with these texts; rights and objects take effect with a delay.
async fn refused(kubeconfig: &Path, words: &[&str]) {
    eventually("the Secret is refused", TEST_TIMEOUT, || async {
        match check(kubeconfig, None).await {
            Err(output) if words.iter().all(|word| output.contains(word)) => Ok(()),
            Ok(output) | Err(output) => Err(output),
        }
    })
    .await;
}

/// Asserts that `run` starts with the Secret as its configuration.
async fn assert_starts(kubeconfig: &Path, folder: &Path) {
    let (log, settings) = (folder.join("cloud-config.log"), folder.join("cloud-config.controller.yaml"));
    let listeners = "http: {healthListen: '127.0.0.1:0', adminListen: '127.0.0.1:0'}\n";
    std::fs::write(&settings, listeners).expect("the folder can be written");
    let file = std::fs::File::create(&log).expect("the folder can be written");
    let mut command = Command::new(PROGRAM);
    command.args(["run", "--dry-run"]).arg(format!("--cloud-config-secret={NAMESPACE}/azure-cloud-provider"));
    command.arg("--kubeconfig").arg(kubeconfig).arg("--config").arg(&settings).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).kill_on_drop(true);
    let _running = command.spawn().expect("the binary under test");
    eventually("the controller has started", TEST_TIMEOUT, || async {
        let lines = log_lines(&log);
        let started = lines.iter().any(|line| line["message"] == "started");
        if started { Ok(()) } else { Err(format!("{lines:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_the_cloud_configuration_is_read_with_the_docs_role() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let api = cluster.api();
    api.create("/api/v1/namespaces", &objects::namespace(NAMESPACE)).await;
    let kubeconfig = cluster.controller_kubeconfig(NAMESPACE).await;
    let origin = format!("Secret {NAMESPACE}/azure-cloud-provider: whole file: found");
    refused(&kubeconfig, &[&origin, "forbidden", "docs/rbac-cloud-config-secret.yaml has the Role"]).await;

    let rights = include_str!("../../docs/rbac-cloud-config-secret.yaml").replace("kube-system", NAMESPACE);
    let rights: Vec<Value> = serde_saphyr::from_multiple(&rights).expect("it is YAML");
    for (kind, object) in ["roles", "rolebindings"].iter().zip(&rights) {
        api.create(&format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/{kind}"), object)
            .await;
    }
    refused(&kubeconfig, &[&origin, "found none", "create it"]).await;

    let secrets = format!("/api/v1/namespaces/{NAMESPACE}/secrets");
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "azure-cloud-provider" },
        "stringData": { "other": "x" },
    });
    api.create(&secrets, &secret).await;
    refused(&kubeconfig, &[&origin, "found no key cloud-config"]).await;

    let cloud = json!({
        "resourceManagerEndpoint": "https://localhost:9", "tenantId": "t-1", "subscriptionId": "s-1", "resourceGroup": "rg", "vnetName": "vnet", "aadClientId": "c",
        "aadClientSecret": SECRET, "loadBalancerBackendPoolConfigurationType": "nodeIP",
        "multipleStandardLoadBalancerConfigurations": [{ "name": "kubernetes", "primaryVMSet": "vmss" }],
    });
    let content = json!({ "stringData": { "cloud-config": cloud.to_string() } });
    api.merge(&format!("{secrets}/azure-cloud-provider"), &content).await;
    let shown = check(&kubeconfig, None).await.expect("a valid configuration");
    assert!(shown.contains("  subscriptionId: s-1  # secret\n"), "{shown}");
    assert!(shown.contains("  kind: clientSecret  # "), "{shown}");

    assert_starts(&kubeconfig, cluster.folder()).await;

    let file = cluster.folder().join("cloud-config.azure.json");
    let put = |value: &Value| std::fs::write(&file, value.to_string()).expect("the folder can be written");
    put(&json!({ "location": "here", "subscriptionId": "s-0" }));
    let shown = check(&kubeconfig, Some(&file)).await.expect("a valid configuration");
    assert!(
        shown.contains("  location: here  # file\n") && shown.contains("  subscriptionId: s-1  # secret\n"),
        "{shown}"
    );
    put(&json!({ "cloudConfigType": "file", "location": "here" }));
    let output = check(&kubeconfig, Some(&file)).await.expect_err("the file alone is not enough");
    assert!(output.contains("subscriptionId: found nothing"), "{output}");
}
