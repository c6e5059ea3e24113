//! `check`: each finding is provoked once, and nothing is written.

use serde_json::{Value, json};
use simulator::models::arm::{Fault, FaultTarget, Lock, Permission, Settings};
use simulator::models::kube::Resource;

use super::fixture::{Ended, Fixture};
use super::{Folder, KUBECONFIG, cloud, command, path, signs_in, text};
use crate::admin::stage::{add_pool, add_service, pool_of, send_to_cluster_pool};

const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg";

/// The findings of a check, from its JSON output.
pub struct Findings(Vec<Value>);

impl Findings {
    /// Returns the texts of the findings of one check and severity.
    pub fn of(&self, check: &str, severity: &str) -> String {
        let found = self.0.iter().filter(|it| it["check"] == check && it["severity"] == severity);
        let words = found.map(|it| it["what"].as_str().expect("words").to_owned());
        words.collect::<Vec<_>>().join("\n")
    }

    /// Asserts a finding with these texts, with its effect and a remedy.
    pub fn must_have(&self, check: &str, severity: &str, words: &str) {
        let found = self.0.iter().find(|it| {
            it["check"] == check
                && it["severity"] == severity
                && it["what"].as_str().is_some_and(|what| what.contains(words))
        });
        let found = found.unwrap_or_else(|| panic!("no {severity} of {check} says {words:?}: {:#?}", self.0));
        let is_explained = |key: &str| found[key].as_str().is_some_and(|text| text.len() > 10);
        assert!(severity == "ok" || is_explained("means") && is_explained("remedy"), "{found}");
    }

    /// Returns the findings that are warnings or problems.
    pub fn bad(&self) -> Vec<String> {
        let bad = self.0.iter().filter(|it| it["severity"] != "ok");
        bad.map(|it| format!("{}: {}", it["check"], it["what"])).collect()
    }
}

/// Runs the check; asserts that the exit code matches the findings, and that nothing was written.
async fn check(fixture: &Fixture) -> Findings {
    let ended = fixture.run("check", &["--output", "json", "--within", "20s"]).await;
    let findings = judged(&ended);
    fixture.assert_nothing_written().await;
    findings
}

pub fn judged(ended: &Ended) -> Findings {
    let report = ended.json();
    let code = if report["result"] == "problem" { 1 } else { 0 };
    assert_eq!(ended.code, Some(code), "{ended:?}");
    let findings = report["findings"].as_array().expect("findings").clone();
    let count = |severity: &str| findings.iter().filter(|it| it["severity"] == severity).count();
    assert_eq!(
        (&report["problems"], &report["warnings"]),
        (&json!(count("problem")), &json!(count("warning")))
    );
    Findings(findings)
}

/// Runs the check after a change of ARM's settings.
async fn with_arm(change: impl FnOnce(&mut Settings) + Send + 'static) -> Findings {
    let fixture = Fixture::new(3).await;
    fixture.fakes.tune_arm(change).await;
    check(&fixture).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_check_finds_nothing_in_a_healthy_cluster() {
    let fixture = Fixture::new(3).await;
    let findings = check(&fixture).await;
    assert_eq!(findings.bad(), Vec::<String>::new());
    let mut made: Vec<&str> = findings.0.iter().filter_map(|it| it["check"].as_str()).collect();
    made.dedup();
    assert_eq!(made.len(), 16, "each check runs once: {made:?}");
    findings.must_have("rights", "ok", "all 24 rights");
    findings.must_have("load-balancers", "ok", "absent: ");
    findings.must_have("candidates", "ok", "3 Services are candidates");
    findings.must_have("pools", "ok", "3 pools are proven to belong to managed Services, 0 are not");

    let text = fixture.run("check", &[]).await;
    assert_eq!((text.code, text.stderr.as_str()), (Some(0), ""), "{text:?}");
    assert!(text.stdout.contains("0 problems, 0 warnings"), "{}", text.stdout);
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_check_accepts_a_rule_to_the_pool_of_the_cluster() {
    let mut fixture = Fixture::new(1).await;
    add_service(&fixture.fakes, "shared", &[0]).await;
    send_to_cluster_pool(&fixture.fakes, "shared", "kubernetes").await;
    fixture.reset_baseline().await;
    let findings = check(&fixture).await;
    assert_eq!(findings.bad(), Vec::<String>::new());
    findings.must_have("pools", "ok", "2 pools are proven to belong to managed Services, 0 are not");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_names_each_missing_right_and_its_effect() {
    let fixture = Fixture::new(1).await;
    fixture.fakes.plant(|model| model.forbid(Resource::Events)).await;
    fixture.fakes.plant(|model| model.forbid(Resource::Leases)).await;
    let findings = check(&fixture).await;
    findings.must_have("rights", "problem", "may not create, patch, list events");
    for lease in ["azure-backend-pool-controller", "aks-managed-resource-locker"] {
        let words =
            format!("may not get, create, update, watch leases.coordination.k8s.io in kube-system ({lease})");
        findings.must_have("rights", "problem", &words);
    }
    findings.must_have("shared-lease", "warning", "cannot be read");
    findings.must_have("pools", "ok", "1 pools are proven");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_names_missing_load_balancers_and_their_group() {
    let mut fixture = Fixture::new(2).await;
    fixture.configure(|cloud| {
        cloud["multipleStandardLoadBalancerConfigurations"] =
            json!([{ "name": "elsewhere", "primaryVMSet": "v" }]);
    });
    fixture.reset_baseline().await;
    let findings = check(&fixture).await;
    findings.must_have(
        "load-balancers",
        "warning",
        "elsewhere, elsewhere-internal were not found in resource group rg",
    );
    findings.must_have("load-balancers", "problem", "2 candidates have no load-balancing rule");

    fixture.configure(|cloud| cloud["loadBalancerResourceGroup"] = json!("nowhere"));
    let findings = check(&fixture).await;
    findings.must_have("load-balancers", "problem", "ResourceGroupNotFound");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s1_check_lists_open_steps_of_a_single_load_balancer() {
    let fixture = Fixture::new(2).await;
    fixture.configure(|cloud| {
        let keys = cloud.as_object_mut().expect("a map of keys");
        keys.remove("multipleStandardLoadBalancerConfigurations");
        keys.insert("loadBalancerBackendPoolConfigurationType".to_owned(), json!("nodeIPConfiguration"));
    });
    let findings = check(&fixture).await;
    findings.must_have("candidates", "warning", "2 Services have no pool of their own");
    findings.must_have("configuration", "warning", "only nodes that leave service are taken out of traffic");
    let of_candidates = findings.0.iter().filter(|it| it["check"] == "candidates");
    let means: Vec<&str> = of_candidates.filter_map(|it| it["means"].as_str()).collect();
    assert!(
        means.iter().any(|text| text.contains("nodes that leave service are still taken out of traffic")),
        "{means:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_finds_locks_that_forbid_writes_and_no_others() {
    let lock = |name: &str, level: &str, scope: &str| Lock {
        name: name.to_owned(),
        level: level.to_owned(),
        scope: scope.to_owned(),
    };
    let subscription = GROUP.split("/resourceGroups").next().expect("a subscription");
    let locks = vec![
        lock("frozen", "ReadOnly", GROUP),
        lock("all", "ReadOnly", subscription),
        lock("kept", "CanNotDelete", GROUP),
        lock(
            "part",
            "ReadOnly",
            &format!("{GROUP}/providers/Microsoft.Network/loadBalancers/lb-2/backendAddressPools/a"),
        ),
        lock("disk", "ReadOnly", &format!("{GROUP}/providers/Microsoft.Compute/disks/d")),
    ];
    let findings = with_arm(move |arm| arm.locks = locks).await;
    findings.must_have("locks", "problem", "the lock frozen on");
    findings.must_have("locks", "problem", "the lock all on");
    findings.must_have("locks", "problem", "the lock part on");
    assert_eq!(findings.of("locks", "problem").lines().count(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_names_the_actions_that_are_missing_and_where() {
    let permission = |actions: &[&str], not_actions: &[&str]| {
        let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        vec![Permission { actions: own(actions), not_actions: own(not_actions) }]
    };
    let reader = permission(&["*/read"], &[]);
    let findings = with_arm(move |arm| arm.permissions = reader).await;
    findings.must_have("permissions", "problem", "backendAddressPools/write on /subscriptions/");
    assert_eq!(findings.of("permissions", "problem").lines().count(), 1);
    findings.must_have("network-permissions", "problem", "joinLoadBalancer/action");

    let no_polls = permission(&["*"], &["Microsoft.Network/locations/*"]);
    let findings = with_arm(move |arm| arm.permissions = no_polls).await;
    findings.must_have("permissions", "warning", "locations/operations/read");
    findings.must_have("permissions", "warning", "locations/operationResults/read");

    let silent = permission(&["*"], &["Microsoft.Authorization/*"]);
    let findings = with_arm(move |arm| arm.permissions = silent).await;
    findings.must_have(
        "permissions",
        "warning",
        "permissions cannot be listed: HTTP 403 AuthorizationFailed",
    );
    findings.must_have("locks", "warning", "locks cannot be listed");

    let blind = permission(&["*"], &["Microsoft.Network/loadBalancers/read"]);
    let findings = with_arm(move |arm| arm.permissions = blind).await;
    findings.must_have("load-balancers", "problem", "cannot be read: HTTP 403 AuthorizationFailed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_reports_no_missing_right_for_a_throttled_load_balancer() {
    let mut fixture = Fixture::new(2).await;
    let throttled = Fault {
        target: FaultTarget::LoadBalancerGet,
        load_balancer: Some("lb-2".to_owned()),
        ..Fault::every_nth_put(1, 429, "SubscriptionRequestsThrottled", Some("60"))
    };
    fixture.fakes.tune_arm(move |arm| arm.faults = vec![throttled]).await;
    fixture.reset_baseline().await;
    let findings = judged(&fixture.run("check", &["--output", "json", "--within", "10s"]).await);
    findings.must_have("load-balancers", "problem", "lb-2 cannot be read: HTTP 429");
    // The quota closes the gate for both load balancers; either of them may be read first.
    findings.must_have("candidates", "problem", "not everything was compared in time: ");
    findings.must_have("candidates", "problem", "lb-2: HTTP 429");
    let remedies: Vec<&str> = findings.0.iter().filter_map(|it| it["remedy"].as_str()).collect();
    assert!(remedies.iter().all(|remedy| !remedy.contains("grant")), "{remedies:?}");
    assert!(findings.of("candidates", "warning").is_empty(), "{:#?}", findings.0);
    fixture.assert_nothing_written().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_check_warns_of_clocks_five_seconds_apart() {
    let fixture = Fixture::new(1).await;
    fixture.fakes.clocks_ahead(-60, 30).await;
    let findings = check(&fixture).await;
    findings.must_have("arm-clock", "warning", "behind the local one");
    findings.must_have("api-server-clock", "warning", "ahead of the local one");
    fixture.fakes.clocks_ahead(3, -3).await;
    assert_eq!(check(&fixture).await.bad(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_separates_a_refused_token_from_no_answer() {
    let findings = with_arm(|arm| arm.require_bearer = true).await;
    findings.must_have(
        "token",
        "problem",
        "ARM refuses the token of the identity anonymous: HTTP 401 AuthenticationFailed",
    );
    findings.must_have("candidates", "warning", "not checked");

    let fixture = Fixture::new(1).await;
    fixture.fakes.arm_down(true).await;
    check(&fixture).await.must_have("token", "problem", "does not answer");
}

#[test]
fn c3_check_reports_a_missing_token_with_its_identity() {
    let folder = Folder::new();
    let (kubeconfig, missing) =
        (folder.write("kubeconfig", KUBECONFIG), folder.0.path().join("missing-token"));
    let present = folder.write("token", "not a token that any server takes");
    for (token_file, words) in [
        (missing, "no ARM client with the identity workloadIdentity: "),
        (present, "no token for the identity workloadIdentity: "),
    ] {
        let mut cloud = cloud();
        signs_in(&mut cloud);
        cloud["aadFederatedTokenFile"] = json!(token_file);
        let cloud = folder.write("azure.json", &cloud.to_string());
        let mut command = command(&["check", "--output", "json", "--cloud-config", path(&cloud)]);
        command.args(["--kubeconfig", path(&kubeconfig)]);
        // No server listens at this address.
        command.env("AZURE_AUTHORITY_HOST", "https://127.0.0.1:9").env("NO_PROXY", "127.0.0.1");
        let output = command.output().expect("the binary under test");
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        let findings = judged(&Ended { code: output.status.code(), stdout, stderr });
        findings.must_have("token", "problem", words);
        findings.must_have("api-server", "problem", "does not answer");
        findings.must_have("candidates", "warning", "not checked");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w7_check_names_the_holder_of_the_shared_lease() {
    let mut fixture = Fixture::new(1).await;
    let now = fixture.fakes.clock().rfc3339(fixture.fakes.clock().now_us());
    for (holder, severity, words) in [
        ("cloud-controller-manager", "ok", "cloud-controller-manager holds the Lease"),
        ("stranger", "warning", "the unknown client \"stranger\" holds the Lease"),
    ] {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "namespace": "kube-system", "name": "aks-managed-resource-locker" },
            "spec": { "holderIdentity": holder, "leaseDurationSeconds": 900, "renewTime": now },
        });
        fixture.fakes.apply(vec![lease]).await.expect("a good Lease");
        fixture.reset_baseline().await;
        check(&fixture).await.must_have("shared-lease", severity, words);
    }
    fixture.fakes.delete(Resource::Leases, "kube-system", "aks-managed-resource-locker").await;
    fixture.reset_baseline().await;
    check(&fixture).await.must_have("shared-lease", "warning", "does not exist");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g6_check_warns_of_pauses_and_of_keys_that_cannot_be_read() {
    let mut fixture = Fixture::new(1).await;
    let map = |data: Value| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "namespace": "kube-system", "name": "azure-backend-pool-controller" },
            "data": data,
        })
    };
    let since = "since: 2026-11-20T08:00:00Z";
    let all = json!({
        "pause.everything": format!("{since}\nby: alice\nreason: the network moves"),
        "pause.pool.a": format!("kubernetes/shop-a\n{since}\nby: bob"),
        "pause.service.b": format!("shop/b\n{since}"),
        "pause.nothing": "?",
    });
    fixture.fakes.apply(vec![map(all)]).await.expect("a good ConfigMap");
    fixture.reset_baseline().await;
    let findings = check(&fixture).await;
    for words in [
        "everything is paused since 2026-11-20T08:00:00Z by alice, the network moves",
        "1 pools and 1 Services are paused: the pool kubernetes/shop-a since 2026-11-20T08:00:00Z by bob, without",
        "the key pause.nothing of the controller's ConfigMap kube-system/azure-backend-pool-controller looks like a \
         pause",
    ] {
        findings.must_have("own-objects", "warning", words);
    }
    assert_eq!(findings.bad().len(), 3, "{:?}", findings.bad());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn d2_check_names_unproven_and_missing_pools() {
    let mut fixture = Fixture::new(1).await;
    add_service(&fixture.fakes, "nat", &[0]).await;
    add_service(&fixture.fakes, "bare", &[0]).await;
    add_pool(&fixture.fakes, "nat", &[0]).await;
    let (nat, bare) = (pool_of("nat"), pool_of("bare"));
    let spoil = move |azure: &mut simulator::Azure, _: u64| {
        azure.model.add_inbound_nat_rule(simulator::CLUSTER_NAME, "nat-rule", &nat);
        azure.model.remove_pool(simulator::CLUSTER_NAME, &bare);
    };
    fixture.fakes.azure.ask(spoil).await;
    fixture.reset_baseline().await;
    let findings = check(&fixture).await;
    findings.must_have("pools", "warning", "inbound_nat_rule: 1 pools are not written");
    findings.must_have("pools", "warning", "kubernetes/shop-nat (shop/nat)");
    findings.must_have("candidates", "problem", "in time: kubernetes/shop-bare was not compared");
    findings.must_have("candidates", "ok", "3 Services are candidates");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn check_reports_an_api_server_that_does_not_answer() {
    let fixture = Fixture::new(1).await;
    fixture.fakes.plant(|model| model.down(true)).await;
    let ended = fixture.run("check", &["--output", "json"]).await;
    let findings = judged(&ended);
    findings.must_have("api-server", "problem", "the API server does not answer");
    findings.must_have("load-balancers", "ok", "kubernetes");
}
