//! The admin API (H3): status, pools, Services with their verdicts, and problems.

use reqwest::Method;
use serde_json::{Value, json};
use simulator::models::kube::build::{self, Endpoint, Family};

use super::stage::{
    NAMESPACE, Prepared, Stage, add_pool, add_service, node_ip, node_name, pool_of, set_endpoints,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_status_has_every_documented_field() {
    let stage = Stage::ready(4).await;
    let all_in_sync = |status: &Value| {
        status["leadership"]["role"] == "leader"
            && status["pools"]["byState"]["in_sync"] == 4
            && items(&status["sources"]).filter(|source| source["synced"] == true).count() == 4
    };
    let status = stage.shown("/api/v1/status", all_in_sync).await;
    assert!(status["snapshotAgeSeconds"].as_f64().is_some_and(|age| (0.0..600.0).contains(&age)), "{status}");
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!((&status["dryRun"], &status["services"]), (&json!(false), &json!(4)));
    assert_eq!(status["synced"], json!({ "lists": true, "discovery": true }));
    assert_eq!(status["pools"]["total"], 4);
    let states: Vec<&String> = status["pools"]["byState"].as_object().expect("an object").keys().collect();
    assert_eq!(states.len(), 9, "each state is listed, also with 0: {states:?}");
    let kinds: Vec<&Value> = items(&status["sources"]).map(|source| &source["kind"]).collect();
    assert_eq!(kinds, ["services", "endpointslices", "nodes", "events"]);
    let balancers: Vec<(&Value, &Value)> =
        items(&status["loadBalancers"]).map(|lb| (&lb["name"], &lb["exists"])).collect();
    let wanted =
        [("kubernetes", true), ("kubernetes-internal", false), ("lb-2", true), ("lb-2-internal", false)];
    let wanted = wanted.map(|(name, exists)| (json!(name), json!(exists)));
    assert!(
        balancers.iter().map(|(name, exists)| ((*name).clone(), (*exists).clone())).eq(wanted),
        "{status}"
    );
    let gates: Vec<&Value> = items(&status["gates"]).map(|gate| &gate["class"]).collect();
    assert_eq!(gates, ["reads", "writes"]);
    let leadership = &status["leadership"];
    assert_eq!((&leadership["role"], &leadership["term"]), (&json!("leader"), &json!(1)), "{status}");
    assert_eq!(leadership["holder"], leadership["identity"]);
    assert!(leadership["certainForSeconds"].as_f64().is_some_and(|left| left > 0.0), "{leadership}");
    explained("Fields of `status`", &status, &["snapshotAgeSeconds"]);
    explained("Fields of `status`", leadership, &[]);
    explained("Fields of `status`", &status["wouldChange"], &[]);
    explained("Fields of `status`", &status["sharedLease"], &[]);
}

/// Asserts that the section of the document names each field of an object, except these.
pub(super) fn explained(section: &str, object: &Value, elsewhere: &[&str]) {
    let document = include_str!("../../docs/admin-api.md");
    let section = document.split("\n## ").find(|text| text.starts_with(section)).expect("the section");
    for field in object.as_object().unwrap_or_else(|| panic!("no object: {object}")).keys() {
        let is_documented = elsewhere.contains(&field.as_str()) || section.contains(&format!("`{field}`"));
        assert!(is_documented, "docs/admin-api.md does not explain {field}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_a_pool_is_found_in_any_case() {
    let stage = Stage::ready(1).await;
    stage.shown("/api/v1/queues?state=in_sync", |page| items(&page["items"]).count() == 1).await;
    for path in
        ["/api/v1/queues/kubernetes/team-000-web-00000", "/api/v1/queues/KUBERNETES/Team-000-Web-00000"]
    {
        let answer = stage.get(path).await;
        assert!(answer["snapshotAgeSeconds"].is_number(), "{answer}");
        let pool = &answer["pool"];
        assert_eq!(
            (&pool["loadBalancer"], &pool["backendPool"]),
            (&json!("kubernetes"), &json!("team-000-web-00000"))
        );
        assert_eq!(
            (&pool["state"], &pool["family"], &pool["source"]),
            (&json!("in_sync"), &json!("IPv4"), &json!("kubernetes"))
        );
        let members = &pool["members"];
        let required: Vec<&Value> = items(&members["required"]).map(|member| &member["ip"]).collect();
        assert_eq!(required.len(), 2, "{pool}");
        assert!(
            required.iter().all(|ip| items(&members["observed"]).any(|address| address == *ip)),
            "{pool}"
        );
        assert_eq!((&members["missing"], &members["surplus"]), (&json!([]), &json!([])));
        assert!(pool["observedAt"].as_str().is_some_and(|at| at.ends_with('Z')), "{pool}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_each_service_has_a_verdict_about_its_pool() {
    let prepared = Prepared::new(1).await;
    let fakes = &prepared.fakes;
    for name in ["plain", "paused", "foreign", "held"] {
        add_service(fakes, name, &[0]).await;
    }
    let service = |name| build::service(NAMESPACE, name, &[80], &[Family::V4]);
    let mut paused = service("paused");
    paused["metadata"]["annotations"] = json!({ "azure-backend-pool-controller.io/pause": "true" });
    let mut cluster = service("cluster");
    cluster["spec"]["externalTrafficPolicy"] = json!("Cluster");
    let mut other = service("other");
    other["spec"]["type"] = json!("ClusterIP");
    fakes.apply(vec![paused, service("ruleless"), cluster, other]).await.expect("good objects");
    let foreign = |azure: &mut simulator::Azure, _| {
        azure.model.add_outbound_rule(simulator::CLUSTER_NAME, "egress", &pool_of("foreign"));
    };
    fakes.azure.ask(foreign).await;
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;

    let plain = stage.verdict("plain", "in sync: every pool matches its endpoints").await;
    explained("Fields of a Service", &plain["service"], &["verdict"]);
    assert_eq!((&plain["service"]["paused"], &plain["service"]["pausedBy"]), (&json!(false), &json!([])));
    assert_eq!(plain["service"]["candidacy"], "candidate");
    assert_eq!(plain["pools"][0]["members"]["observed"], json!([node_ip(0)]));
    let ruleless = stage.verdict("ruleless", "not managed yet: no load-balancing rule").await;
    assert_eq!((&ruleless["service"]["pools"], &ruleless["pools"]), (&json!([]), &json!([])));
    let cluster = stage.verdict("cluster", "not managed: spec.externalTrafficPolicy is not Local").await;
    assert_eq!(cluster["service"]["candidacy"], "not_local");
    let paused = stage.verdict("paused", "annotation azure-backend-pool-controller.io/pause").await;
    assert_eq!(
        (&paused["service"]["paused"], &paused["pools"][0]["state"]),
        (&json!(true), &json!("paused"))
    );
    let foreign = stage.verdict("foreign", "is not written: an outbound rule uses the pool").await;
    assert_eq!(foreign["service"]["notManageable"][0]["reason"], "outbound_rule");
    assert_eq!(
        stage.series("backend_pool_controller_not_manageable_pools{reason=\"outbound_rule\"}").await,
        Some(1.0)
    );

    set_endpoints(&stage.fakes, "held", &[]).await;
    let held = stage.verdict("held", "a removal is held back (empty_confirm)").await;
    assert_eq!(held["pools"][0]["held"]["members"], json!([node_ip(0)]));
    let status = stage.get("/api/v1/status").await;
    assert_eq!(status["held"][0]["pool"], "kubernetes/shop-held");
    let guards = json!({ "mode": "enforce", "removalsStopped": null, "secondReadSeconds": null });
    assert_eq!(status["guards"], guards);
    let listed = stage.get("/api/v1/held?reason=empty_confirm&lb=KUBERNETES").await;
    assert_eq!((items(&listed["items"]).count(), &listed["guards"]), (1, &guards));
    let item = &listed["items"][0];
    assert_eq!((&item["backendPool"], &item["wouldHold"]), (&json!("shop-held"), &json!(null)));
    assert_eq!((&item["held"]["waitsFor"], &item["held"]["members"]), (&json!("time"), &json!([node_ip(0)])));
    assert!(item["held"]["endsInSeconds"].as_f64().is_some_and(|seconds| seconds > 3_000.0), "{item}");
    let none = stage.get("/api/v1/held?reason=breaker").await;
    assert_eq!(none["items"], json!([]));
    let unknown = stage.admin(Method::GET, &format!("/api/v1/services/{NAMESPACE}/other")).await;
    assert_eq!(unknown.status, 404, "a ClusterIP Service is not listed: {unknown:?}");
    let all = stage.get(&format!("/api/v1/services?namespace={NAMESPACE}")).await;
    let names: Vec<&str> = items(&all["items"]).filter_map(|service| service["name"].as_str()).collect();
    assert_eq!(names, ["cluster", "foreign", "held", "paused", "plain", "ruleless"]);
    assert!(items(&all["items"]).all(|service| service["verdict"].is_string()), "{all}");

    // The pause ends, the endpoint returns, and the rules are created.
    stage.fakes.apply(vec![service("paused")]).await.expect("a good object");
    stage.verdict("paused", "in sync: ").await;
    set_endpoints(&stage.fakes, "held", &[Endpoint::ready(&node_name(0))]).await;
    stage.verdict("held", "in sync: ").await;
    add_pool(&stage.fakes, "ruleless", &[]).await;
    stage.verdict("ruleless", "in sync: ").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_problems_are_rfc_9457_documents_with_the_cause() {
    let stage = Stage::ready(1).await;
    let cases = [
        (
            Method::GET,
            "/api/v1/queues/kubernetes/nosuch",
            404,
            "kubernetes/nosuch is not a pool of a managed Service",
        ),
        (Method::GET, "/api/v1/services/shop/nosuch", 404, "Service shop/nosuch does not exist"),
        (Method::GET, "/api/v1/nosuch", 404, "/api/v1/nosuch is not served here"),
        (Method::GET, "/api/v1/queues/onlyone", 404, "/api/v1/queues/onlyone is not served here"),
        (Method::GET, "/nosuch", 404, "this listener serves / (a page for operators), /api/v1/status"),
        (Method::POST, "/api/v1/nosuch", 404, "is not served here"),
        (Method::GET, "/api/v1/queues?limit=many", 400, "limit: \"many\" is not a whole number"),
        (Method::GET, "/api/v1/queues?limit=0", 400, "limit: \"0\" is not a whole number from 1 to 1000"),
        (Method::GET, "/api/v1/queues?state=broken", 400, "state: \"broken\" is not one of unknown, in_sync"),
        (Method::GET, "/api/v1/queues?colour=red", 400, "colour: unknown parameter"),
        (Method::GET, "/api/v1/held?reason=whim", 400, "reason: \"whim\" is not one of empty_confirm"),
        (
            Method::GET,
            "/api/v1/queues?after=nonsense",
            400,
            "after: \"nonsense\" is not the `next` of a page",
        ),
        (Method::GET, "/api/v1/services?limit=1&limit=2", 400, "limit: given more than once"),
        (Method::GET, "/api/v1/status?verbose", 400, "verbose: unknown parameter"),
        (Method::GET, "/api/v1/queues/kubernetes/x?a=1", 400, "a: unknown parameter"),
        (Method::POST, "/api/v1/status", 405, "supports GET, HEAD, not POST"),
        (Method::DELETE, "/api/v1/queues/kubernetes/team-000-web-00000", 405, "not DELETE"),
        (Method::PUT, "/api/v1/services", 405, "not PUT"),
        (Method::PATCH, "/api/v1/services/team-000/web-00000", 405, "not PATCH"),
    ];
    for (method, path, status, detail) in cases {
        let answer = stage.admin(method.clone(), path).await;
        let request = format!("{method} {path}: {answer:?}");
        assert_eq!((answer.status, answer.kind.as_str()), (status, "application/problem+json"), "{request}");
        let document = answer.json();
        assert_eq!(
            (&document["type"], &document["status"]),
            (&json!("about:blank"), &json!(status)),
            "{request}"
        );
        assert!(document["title"].as_str().is_some_and(|title| !title.is_empty()), "{request}");
        assert!(document["detail"].as_str().is_some_and(|text| text.contains(detail)), "{request}");
        assert_eq!(answer.allow, if status == 405 { "GET, HEAD" } else { "" }, "{request}");
    }
    let head = stage.admin(Method::HEAD, "/api/v1/status").await;
    assert_eq!((head.status, head.kind.as_str(), head.text.as_str()), (200, "application/json", ""));
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
