//! The chart's ValidatingAdmissionPolicy: the controller's account may add and remove the controller's taint, and
//! change nothing else of Nodes, even if RBAC grants more. The policy does not apply to other accounts.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Release, store_cloud_config, values};
use crate::cluster::TestEnvironment;
use crate::support::kubernetes::{self, Cluster};
use crate::support::{TEST_TIMEOUT, eventually};

const NAMESPACE: &str = "chart-admission";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const NODES: &str = "/api/v1/nodes";
const DRAINING: &str = "cloudprovider.azure.microsoft.com/draining";
/// The text of the refusals by each rule.
const TAINTS_ONLY: &str = "may change the taints of Nodes only";
const METADATA: &str = "may not change labels, annotations or other metadata of Nodes";
const SPEC: &str = "may not change unschedulable, or anything else of Nodes but taints";
const OUR_TAINT: &str = "may add and remove the taint cloudprovider.azure.microsoft.com/draining=spot-eviction:\
    NoSchedule only";

fn taint(key: &str, value: &str, effect: &str) -> Value {
    json!({ "key": key, "value": value, "effect": effect })
}

fn our_taint() -> Value {
    taint(DRAINING, "spot-eviction", "NoSchedule")
}

fn add(path: &str, value: impl Into<Value>) -> Value {
    json!([{ "op": "add", "path": path, "value": value.into() }])
}

fn remove(path: &str) -> Value {
    json!([{ "op": "remove", "path": path }])
}

/// The requests of one user about the test's node.
struct User<'a> {
    env: &'a TestEnvironment<&'a Cluster>,
    name: String,
}

impl<'a> User<'a> {
    fn account(env: &'a TestEnvironment<&'a Cluster>, account: &str) -> Self {
        Self { env, name: format!("system:serviceaccount:{NAMESPACE}:{account}") }
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> (u16, String) {
        let answer = self.env.api.ask_as(&self.name, method, path, body).await;
        answer.expect("the API server answers")
    }

    /// Patches the node. Returns the reason of a refusal.
    async fn patch(&self, patch: &Value) -> Result<(), String> {
        match self.ask(Method::PATCH, &format!("{NODES}/{}", self.env.node(1)), patch).await {
            (200, _) => Ok(()),
            (status, text) => Err(format!("{status}: {text}")),
        }
    }

    /// Grants a role to the user, in this test only.
    async fn is_granted(&self, binding: &str, role: &str) {
        let subject = json!({ "kind": "User", "name": self.name, "apiGroup": "rbac.authorization.k8s.io" });
        let role = json!({ "kind": "ClusterRole", "name": role, "apiGroup": "rbac.authorization.k8s.io" });
        let object = json!({ "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": binding }, "roleRef": role, "subjects": [subject] });
        self.env.api.create(&format!("{RBAC}/clusterrolebindings"), &object).await;
    }
}

/// Returns whether this rule of the policy has refused a request, with a status that the controller counts as a
/// refusal.
fn is_refusal(answer: &str, policy: &str, rule: &str) -> bool {
    let policy = format!("ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request");
    answer.contains(&policy) && answer.contains(rule) && answer.contains("\"code\":403")
}

/// Patches that change more than the controller's taint, each with the rule that rejects it. The node already has a
/// foreign taint.
fn refused_patches() -> Vec<(Value, &'static str)> {
    let label = add("/metadata/labels/example.com~1a", "b");
    let with_label = [label.as_array().cloned(), add("/spec/taints/-", our_taint()).as_array().cloned()];
    vec![
        (label, METADATA),
        (remove("/metadata/labels/kubernetes.io~1hostname"), METADATA),
        (add("/metadata/labels/kubernetes.io~1hostname", "elsewhere"), METADATA),
        (add("/metadata/annotations/example.com~1a", "b"), METADATA),
        (add("/metadata/finalizers", vec!["example.com/stays"]), METADATA),
        (json!(with_label.into_iter().flatten().flatten().collect::<Vec<_>>()), METADATA),
        (add("/spec/unschedulable", true), SPEC),
        (add("/spec/providerID", "azure://elsewhere"), SPEC),
        (add("/spec/taints/-", taint("example.com/evil", "", "NoExecute")), OUR_TAINT),
        (add("/spec/taints/-", taint(DRAINING, "spot-eviction", "NoExecute")), OUR_TAINT),
        (add("/spec/taints/-", taint(DRAINING, "anything", "NoSchedule")), OUR_TAINT),
        (remove("/spec/taints/0"), OUR_TAINT),
        (remove("/spec/taints"), OUR_TAINT),
        (add("/spec/taints", json!([our_taint()])), OUR_TAINT),
        (add("/spec/taints/0/effect", "PreferNoSchedule"), OUR_TAINT),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_account_may_change_only_its_taint_of_nodes() {
    let Some(cluster) = kubernetes::shared().await else { return };
    let env = TestEnvironment::begin(cluster, NAMESPACE, 1).await;
    store_cloud_config(&env).await;
    let release = Release::install(&env, "admission", &values(NAMESPACE)).await;
    let policy = release.full_name();
    let (controller, other) = (User::account(&env, &policy), User::account(&env, "default"));
    env.is_bare(1).await;
    env.taint(1, "example.com/foreign=stays:NoSchedule").await;
    let label = add("/metadata/labels/example.com~1a", "a");
    assert_eq!(controller.patch(&label).await, Ok(()), "RBAC alone does not limit what is patched");
    // A patch that changes nothing is allowed.
    let take_label_away = async || {
        let node = format!("{NODES}/{}", env.node(1));
        env.api.merge(&node, &json!({ "metadata": { "labels": { "example.com/a": null } } })).await;
    };
    take_label_away().await;

    release.upgrade("admissionPolicy.enabled=true").await;
    eventually("the policy is in force", TEST_TIMEOUT, || async {
        match controller.patch(&label).await {
            Ok(()) => {
                take_label_away().await;
                Err("a label is patched".to_owned())
            }
            Err(answer) if is_refusal(&answer, &policy, METADATA) => Ok(()),
            Err(answer) => Err(answer),
        }
    })
    .await;

    for is_tainted in [false, true] {
        if is_tainted {
            assert_eq!(controller.patch(&add("/spec/taints/-", our_taint())).await, Ok(()));
        }
        // If the taint already exists, the API server itself rejects a second one with the same key.
        let adds_ours = |patch: &Value| patch.to_string().contains(DRAINING);
        for (patch, rule) in refused_patches().iter().filter(|(patch, _)| !is_tainted || !adds_ours(patch)) {
            let answer = controller.patch(patch).await.expect_err("it is refused");
            assert!(is_refusal(&answer, &policy, rule), "{patch}: {answer}");
        }
    }
    assert_eq!(controller.patch(&remove("/spec/taints/1")).await, Ok(()));
    env.has_taints(1, ["example.com/foreign=stays:NoSchedule"]).await;
    env.taint(1, "example.com/foreign-").await;
    assert_eq!(controller.patch(&add("/spec/taints", json!([our_taint()]))).await, Ok(()));
    assert_eq!(controller.patch(&remove("/spec/taints/0")).await, Ok(()));
    env.has_taints(1, []).await;

    whatever_rbac_grants(&env, &controller, &policy).await;

    other.is_granted("chart-admission-other", &policy).await;
    eventually("the policy does not apply to another account", TEST_TIMEOUT, || other.patch(&label)).await;
    env.taint(1, "example.com/foreign=again:NoExecute").await;
}

/// Asserts that the policy rejects requests that only another role grants.
async fn whatever_rbac_grants(env: &TestEnvironment<&Cluster>, controller: &User<'_>, policy: &str) {
    controller.is_granted("chart-admission-more", "cluster-admin").await;
    let node = format!("{NODES}/{}", env.node(1));
    let status = add("/status/addresses", json!([{ "type": "InternalIP", "address": "10.9.9.9" }]));
    let made = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "chart-admission-made" } });
    let requests = [
        (Method::PATCH, format!("{node}/status"), status),
        (Method::DELETE, node, json!({})),
        (Method::POST, NODES.to_owned(), made),
    ];
    for (method, path, body) in requests {
        eventually(&format!("{method} {path} is refused by the policy"), TEST_TIMEOUT, || async {
            let (_, answer) = controller.ask(method.clone(), &path, &body).await;
            if is_refusal(&answer, policy, TAINTS_ONLY) { Ok(()) } else { Err(answer) }
        })
        .await;
    }
}
