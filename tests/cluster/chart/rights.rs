//! The chart grants exactly the rights that the controller needs: the API server's log of its daily work has all grants
//! and nothing else; `check` names each right that is removed; docs/rbac.yaml grants the same.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::process::Command;

use super::pod::{self, Container, Pod};
use super::{Release, rendered, secured, store_cloud_config, values};
use crate::cluster::leaving::{EVICTED, NOT_EVICTED};
use crate::cluster::replicas::has_role;
use crate::cluster::{TestEnvironment, load_balancer};
use crate::support::controller::Controller;
use crate::support::kubernetes::{self, Cluster, Request, credential_of};
use crate::support::{TEST_TIMEOUT, azure, eventually, objects};

const NAMESPACE: &str = "chart-rights";
/// The account of the release `rights` in it.
const ACCOUNT: &str = "system:serviceaccount:chart-rights:rights-azure-backend-pool-controller";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
/// A Service whose EndpointSlice the test writes.
const MOVING: &str = "moving-2";
/// Message about a missing right on the Secret, without which `check` cannot start.
const SECRET_MISSED: &str = "docs/rbac-cloud-config-secret.yaml has the Role";

/// One verb on one kind, as a role of the release grants it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Grant {
    /// The path of the role.
    role: String,
    /// Its namespace; `None`: all.
    namespace: Option<String>,
    group: String,
    resource: String,
    /// The only object for which it applies; `None`: all.
    name: Option<String>,
    verb: String,
}

impl Grant {
    /// Returns whether this grant allows a request.
    pub(super) fn covers(&self, request: &Request) -> bool {
        // RBAC sees no name in a create request; the log takes it from the body.
        let name: &str = if request.verb == "create" { "" } else { &request.name };
        self.verb == request.verb
            && self.group == request.group
            && self.resource == request.resource
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == request.namespace)
            && self.name.as_ref().is_none_or(|wanted| wanted == name)
    }

    /// Returns the rule with only this grant.
    fn rule(&self) -> Value {
        let mut rule =
            json!({ "apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb] });
        if let Some(name) = &self.name {
            rule["resourceNames"] = json!([name]);
        }
        rule
    }

    /// Returns the message of `check` without this grant.
    fn missed(&self) -> String {
        if self.resource == "secrets" {
            return SECRET_MISSED.to_owned();
        }
        let dot = if self.group.is_empty() { "" } else { "." };
        let mut text = format!("the account may not {} {}{dot}{}", self.verb, self.resource, self.group);
        if let Some(namespace) = &self.namespace {
            text.push_str(&format!(" in {namespace} ({}", self.name.as_deref().unwrap_or_default()));
        }
        text
    }
}

/// Returns the grants of all roles of a release to the controller's account.
async fn grants(env: &TestEnvironment<&Cluster>, release: &str) -> Vec<Grant> {
    let selector = format!("app.kubernetes.io/instance={release},app.kubernetes.io/component!=operator");
    let mut grants = Vec::new();
    for kind in ["clusterroles", "roles"] {
        let roles = env.api.items(&format!("{RBAC}/{kind}?labelSelector={selector}")).await;
        for role in roles.expect("the API server lists roles") {
            grants.extend(granted(&role));
        }
    }
    grants
}

/// Returns the grants of one role, one per verb.
pub(super) fn granted(role: &Value) -> Vec<Grant> {
    let texts = |value: &Value| -> Vec<String> {
        let all = value.as_array().into_iter().flatten();
        all.map(|text| text.as_str().expect("rules are made of texts").to_owned()).collect()
    };
    let name = role["metadata"]["name"].as_str().expect("a role has a name");
    let namespace = role["metadata"]["namespace"].as_str().map(str::to_owned);
    let path = match &namespace {
        Some(namespace) => format!("{RBAC}/namespaces/{namespace}/roles/{name}"),
        None => format!("{RBAC}/clusterroles/{name}"),
    };
    let mut grants = Vec::new();
    for rule in role["rules"].as_array().expect("a role has rules") {
        let names = texts(&rule["resourceNames"]);
        let names: Vec<Option<String>> =
            if names.is_empty() { vec![None] } else { names.into_iter().map(Some).collect() };
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                for verb in texts(&rule["verbs"]) {
                    grants.extend(names.iter().map(|name| Grant {
                        role: path.clone(),
                        namespace: namespace.clone(),
                        group: group.clone(),
                        resource: resource.clone(),
                        name: name.clone(),
                        verb: verb.clone(),
                    }));
                }
            }
        }
    }
    grants
}

/// Returns the grants that no request needed.
pub(super) fn unused<'a>(grants: &'a [Grant], requests: &[Request]) -> Vec<&'a Grant> {
    grants.iter().filter(|grant| !requests.iter().any(|request| grant.covers(request))).collect()
}

/// Runs the daily work of two replicas: rollouts, scaling, repeated events, a pause by the operator, a change of the
/// leader, an evicted node.
async fn daily_work(
    env: &TestEnvironment<&Cluster>,
    release: &Release<'_>,
    (leader, standby): (Controller, Controller),
    renewed: &[String],
) {
    let names = ["web-0".to_owned(), "web-1".to_owned()];
    env.rolled_out(&names).await;
    env.converged("the first rollout").await;
    for (name, replicas) in names.iter().zip([4, 1]) {
        env.scale(name, replicas).await;
    }
    env.rolled_out(&names).await;
    env.converged("scaling").await;
    let containers = objects::containers("example/web:2");
    for name in &names {
        env.respec(name, &json!({ "template": { "spec": { "containers": containers } } })).await;
    }
    env.rolled_out(&names).await;
    env.converged("a new image").await;
    env.event("web-0", "LoadBalancerBackendPoolUpdated").await;

    // From the tenth on, similar events are combined, which patches the existing one.
    for number in [2, 1].repeat(6) {
        move_to(env, number).await;
    }
    let path = format!("/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=involvedObject.name={MOVING}");
    eventually("an event was counted again", TEST_TIMEOUT, || async {
        let events = env.api.items(&path).await?;
        let is_again = events.iter().any(|event| event["count"].as_u64() >= Some(2));
        if is_again { Ok(()) } else { Err(format!("{events:#?}")) }
    })
    .await;

    pause_and_resume(env, release, &leader, &standby).await;
    wait_for_tokens(env, renewed).await;

    leader.terminate().await;
    has_role(&standby, "leader").await;
    move_to(env, 4).await;
    evict(env, 4).await;
    let unused_yet = grants(env, release.name).await;
    eventually("every right was used", TEST_TIMEOUT, || {
        let unused = format!("{:#?}", unused(&unused_yet, &env.cluster.requests()));
        async move { if unused == "[]" { Ok(()) } else { Err(unused) } }
    })
    .await;
    env.end(standby).await;
}

/// Posts an eviction notice for the node of the Service's only endpoint, like a node problem detector. The node is
/// tainted and gets no traffic until the operator removes the taint.
async fn evict(env: &TestEnvironment<&Cluster>, number: u8) {
    env.create_notice(number).await;
    env.has_taints(number, [EVICTED]).await;
    env.are_down([format!("10.1.0.{number}").as_str()]).await;
    env.node_event(number, "LoadBalancerAdminStateDown").await;
    env.taint(number, NOT_EVICTED).await;
    env.are_down([]).await;
    env.node_event(number, "LoadBalancerAdminStateNone").await;
    env.are_recorded([]).await;
}

/// Waits until the log has a request with each of these tokens. The controller reads the token file once a minute.
async fn wait_for_tokens(env: &TestEnvironment<&Cluster>, renewed: &[String]) {
    eventually("renewed tokens are used", TEST_TIMEOUT, || {
        let requests = env.cluster.requests();
        let was_used = |token: &&String| requests.iter().any(|request| request.credential == **token);
        let unused: Vec<&String> = renewed.iter().filter(|token| !was_used(token)).collect();
        let unused = if unused.is_empty() { Ok(()) } else { Err(format!("{unused:?} are not")) };
        async move { unused }
    })
    .await;
}

/// Moves the Service's only endpoint to this node, and waits until its pool has followed.
async fn move_to(env: &TestEnvironment<&Cluster>, number: u8) {
    env.replace_by_hand(MOVING, &[("10.220.0.1", Some(&env.node(number)))]).await;
    env.holds(MOVING, [format!("10.1.0.{number}").as_str()]).await;
}

/// Asserts that only the chart's account for operators may pause everything, at each replica.
async fn pause_and_resume(
    env: &TestEnvironment<&Cluster>,
    release: &Release<'_>,
    leader: &Controller,
    standby: &Controller,
) {
    // The commands of the page name the namespace and the account of the chart.
    let status = leader.get("/api/v1/status").await.expect("the leader answers");
    let installation = &status["installation"];
    assert_eq!(installation["namespace"], NAMESPACE, "{installation}");
    assert_eq!(installation["deployment"], release.full_name(), "{installation}");
    let operator = installation["operatorServiceAccount"].as_str().expect("the chart names it");
    let token = env.cluster.token(NAMESPACE, operator).await;
    let unauthorized = env.cluster.token(NAMESPACE, "default").await;
    let everything = json!({ "scope": "everything", "reason": "a drill" });
    let (status, text) = standby.post("/api/v1/pause", &unauthorized, &everything).await;
    assert_eq!(status, 403, "{text}");
    let (status, text) = standby.post("/api/v1/pause", &token, &everything).await;
    assert_eq!(status, 200, "{text}");
    let path = format!("/api/v1/queues/{}/{}", load_balancer(MOVING), azure::pool_name(NAMESPACE, MOVING));
    let shown = async |wanted: &str| {
        eventually(&format!("the pool is {wanted}"), TEST_TIMEOUT, || async {
            let pool = leader.get(&path).await?["pool"].clone();
            if pool["state"] == wanted { Ok(()) } else { Err(pool.to_string()) }
        })
        .await;
    };
    shown("paused").await;
    let before = env.azure.puts().await.len();
    let node = env.node(2);
    env.replace_by_hand(MOVING, &[("10.220.0.1", Some(&node))]).await;
    eventually("the leader has seen the move", TEST_TIMEOUT, || async {
        let pool = leader.get(&path).await?["pool"].clone();
        let knows = pool["wouldChange"]["add"] == json!(["10.1.0.2"]);
        if knows { Ok(()) } else { Err(pool.to_string()) }
    })
    .await;
    assert_eq!(env.azure.puts().await.len(), before, "nothing is written while everything is paused");
    let (status, text) = standby.post("/api/v1/resume", &token, &json!({ "scope": "everything" })).await;
    assert_eq!(status, 200, "{text}");
    env.holds(MOVING, ["10.1.0.2"]).await;
    shown("in_sync").await;
}

/// Returns the rights that `check` reports as missing, or the reason why it cannot check them.
async fn missing(container: &Container) -> Vec<String> {
    let mut check = Command::from(container.command());
    let Output { stdout, stderr, .. } =
        check.stdin(Stdio::null()).output().await.expect("the binary under test");
    let Ok(report) = serde_json::from_slice::<Value>(&stdout) else {
        return vec![String::from_utf8_lossy(&stderr).into_owned()];
    };
    let findings = report["findings"].as_array().into_iter().flatten();
    let wrong = findings.filter(|it| it["check"] == "rights" && it["severity"] != "ok");
    wrong.map(|it| it["what"].as_str().expect("words").to_owned()).collect()
}

/// Returns the Pod of `helm test`, which is not created here.
async fn check_of(release: &Release<'_>) -> Pod {
    let hooks = release.helm(&["get", "hooks", release.name]).await;
    let hooks: Vec<Value> = serde_saphyr::from_multiple(&hooks).expect("hooks are YAML");
    let pod = hooks.into_iter().find(|hook| hook["kind"] == "Pod");
    let mut pod = pod.expect("the chart has a hook for `helm test`");
    pod["metadata"]["uid"] = json!("00000000-0000-0000-0000-000000000000");
    Pod::new(pod)
}

/// Removes each right, one after the other: `check` names exactly that one.
async fn assert_check_names_each_missing_right(
    env: &TestEnvironment<&Cluster>,
    release: &Release<'_>,
    grants: &[Grant],
) {
    let mut check = check_of(release).await.container(env.cluster).await;
    check.replace_argument("--output=text", "--output=json");
    assert_eq!(missing(&check).await, Vec::<String>::new());
    for grant in grants {
        let of_role: Vec<&Grant> = grants.iter().filter(|other| other.role == grant.role).collect();
        let all: Vec<Value> = of_role.iter().map(|other| other.rule()).collect();
        let others: Vec<Value> =
            of_role.iter().filter(|other| **other != grant).map(|other| other.rule()).collect();
        env.api.merge(&grant.role, &json!({ "rules": others })).await;
        let wanted = grant.missed();
        eventually(&format!("check says: {wanted}"), TEST_TIMEOUT, || async {
            let text = missing(&check).await;
            if text.len() == 1 && text[0].contains(&wanted) { Ok(()) } else { Err(format!("{text:?}")) }
        })
        .await;
        env.api.merge(&grant.role, &json!({ "rules": all })).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_binary_works_with_exactly_the_rights_of_the_chart() {
    let Some(cluster) = kubernetes::audited(ACCOUNT).await else { return };
    if !pod::supports_mount_namespaces().await {
        return;
    }
    let env = TestEnvironment::begin(&cluster, NAMESPACE, 4).await;
    store_cloud_config(&env).await;
    let mut values = values(NAMESPACE);
    // Read through the API server, which needs a right as well.
    values["cloudConfig"] = json!({ "source": "api", "api": { "namespace": NAMESPACE } });
    values["tests"] = json!({ "within": "1s" });
    values["admin"] = json!({ "enabled": true });
    // The policy allows the taint of an evicted node.
    values["admissionPolicy"] = json!({ "enabled": true });
    // The probes use this port.
    values["config"]["http"] = json!({ "healthListen": "0.0.0.0:9080" });
    for (name, replicas) in [("web-0", 2), ("web-1", 3)] {
        env.deploy(name, replicas).await;
    }
    let node = env.node(1);
    env.set_endpoints_by_hand(MOVING, &[("10.220.0.1", Some(&node))]).await;
    // This comes first, because the release's own Service needs no load balancer.
    env.provision(NAMESPACE).await;
    let release = Release::install(&env, "rights", &values).await;
    let (mut running, mut renewed) = (Vec::new(), Vec::new());
    for (pod, role) in release.pods().await.iter().zip(["leader", "standby"]) {
        let container = pod.container(&cluster).await;
        let controller = Controller::launch(&cluster, pod.name(), &mut container.command()).await;
        has_role(&controller, role).await;
        pod.answers_the_kubelet(&container, &controller).await;
        let token = cluster.token(NAMESPACE, &release.full_name()).await;
        container.renew_token(&token);
        renewed.push(credential_of(&token));
        running.push(controller);
    }
    let [leader, standby] = <[Controller; 2]>::try_from(running).ok().expect("the chart runs two");
    env.converged("the start").await;
    secured::assert_every_request_is_authorized(&release, &leader, MOVING).await;
    secured::assert_each_verb_is_needed(&release, &leader).await;
    daily_work(&env, &release, (leader, standby), &renewed).await;

    let (grants, requests) = (grants(&env, release.name).await, cluster.requests());
    assert!(grants.iter().any(|grant| grant.namespace.is_none()), "{grants:#?}");
    let own = |request: &&Request| request.resource == "deployments" && request.name == release.full_name();
    assert_eq!(requests.iter().filter(own).count(), 2, "each replica reads its Deployment once");
    assert_eq!(unused(&grants, &requests), Vec::<&Grant>::new(), "rights that are not needed");
    let line_of = |request: &Request| format!("{} {}: {}", request.verb, request.uri, request.status);
    let refused = requests.iter().filter(|request| request.status == 403).map(line_of);
    assert_eq!(refused.collect::<BTreeSet<_>>(), BTreeSet::new(), "rights that are missing");
    let strange = requests.iter().filter(|request| !grants.iter().any(|grant| grant.covers(request)));
    assert_eq!(
        strange.map(line_of).collect::<BTreeSet<_>>(),
        BTreeSet::new(),
        "requests without a right of the chart"
    );

    assert_check_names_each_missing_right(&env, &release, &grants).await;
}

/// Returns the roles, bindings and the account of some YAML, by kind, namespace and name, without labels.
fn rights(text: &str) -> BTreeMap<String, Value> {
    let kinds = ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "ServiceAccount"];
    let objects: Vec<Value> = serde_saphyr::from_multiple(text).expect("it is YAML");
    let ours = objects.into_iter().filter(|object| kinds.iter().any(|kind| object["kind"] == *kind));
    let named = ours.map(|mut object| {
        object["metadata"].as_object_mut().expect("it has a name").retain(|key, _| key != "labels");
        // The setting for the Pods' token is no right.
        object.as_object_mut().expect("an object").retain(|key, _| key != "automountServiceAccountToken");
        let of = |key: &str| object["metadata"][key].as_str().unwrap_or_default();
        (format!("{} {}/{}", object["kind"], of("namespace"), of("name")), object)
    });
    named.collect()
}

#[tokio::test]
async fn the_chart_grants_by_default_the_rights_of_the_docs() {
    let Some(helm) = kubernetes::tool("helm") else { return };
    let rendered = async |more: &[&str]| rights(&rendered(&helm, more).await);
    let mut documented = rights(include_str!("../../../docs/rbac.yaml"));
    assert_eq!(documented.len(), 9);
    assert_eq!(rendered(&[]).await, documented);
    documented.extend(rights(include_str!("../../../docs/rbac-cloud-config-secret.yaml")));
    assert_eq!(documented.len(), 11);
    assert_eq!(rendered(&["--set", "cloudConfig.source=api"]).await, documented);
    let mut documented = rights(include_str!("../../../docs/rbac.yaml"));
    documented.extend(rights(include_str!("../../../docs/rbac-migration.yaml")));
    assert_eq!(documented.len(), 15);
    for way in ["config.migration.onStartup=true", "migration.job.enabled=true"] {
        assert_eq!(rendered(&["--set", way]).await, documented, "{way}");
    }
}
