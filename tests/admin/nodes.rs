//! Draining nodes (N2, N4, N5, H3): from the taint to the return, in lists and alone, and released by the operator.

use model::node::NodeState;
use reqwest::Method;
use serde_json::{Value, json};
use simulator::models::arm;
use simulator::models::kube::Resource;
use simulator::{CLUSTER_NAME, Fakes};

use super::api::explained;
use super::stage::{Prepared, Stage, add_service, node_ip, node_name, pool_of};
use super::web::hold_the_first_write;
use crate::support::{TEST_TIMEOUT, eventually};

const STATUS: &str = "/api/v1/status";
const NODES: &str = "/api/v1/nodes";
const RELEASE: &str = "/api/v1/held/release";
const TOKEN: Option<&str> = Some("a-secret-token");
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

fn one(node: usize) -> String {
    format!("{NODES}/{}", node_name(node))
}

/// Creates six Ready nodes, of which the first is in three pools of one load balancer: the cluster's own, and those of
/// `mail` and `web`.
async fn prepared() -> Prepared {
    let prepared = Prepared::new(0).await;
    for (name, nodes) in [("mail", [0, 2]), ("web", [0, 1])] {
        add_service(&prepared.fakes, name, &nodes).await;
    }
    prepared
}

/// Starts a controller and waits until it leads and every pool is in sync.
async fn leading(prepared: Prepared) -> Stage {
    let stage = prepared.start(&json!({})).await;
    stage.wait_until_ready().await;
    let begun = |status: &Value| status["leadership"]["role"] == "leader" && status["adminState"].is_object();
    stage.shown(STATUS, begun).await;
    for name in ["mail", "web"] {
        stage.verdict(name, "in sync: ").await;
    }
    stage
}

/// Replaces the taints of a node.
pub async fn taint(stage: &Stage, node: usize, keys: &'static [&'static str]) {
    let name = node_name(node);
    let edit = move |cluster: &mut simulator::Cluster, now: u64| {
        let mut node = cluster.model.get(Resource::Nodes, "", &name).expect("a node of the world");
        let taints = keys.iter().map(|key| json!({ "key": key, "effect": "NoExecute" }));
        node["spec"]["taints"] = taints.collect();
        cluster.model.apply(node, now).expect("a node");
    };
    stage.fakes.cluster.ask(edit).await;
}

/// Returns the admin state of a node's entry in a pool of the first load balancer, as Azure has it.
async fn state_in(fakes: &Fakes, pool: &str, node: usize) -> String {
    let members = fakes.members(CLUSTER_NAME, pool).await.expect("the pool");
    let entry = members.into_iter().find(|member| member.ip == node_ip(node));
    entry.expect("the node is in the pool").admin_state
}

/// Waits until the entries of a node have these admin states.
async fn entries_are(stage: &Stage, node: usize, wanted: &[(&str, &str)]) {
    eventually("the entries of the node have these admin states", TEST_TIMEOUT, || async {
        let mut found = Vec::new();
        for (pool, _) in wanted {
            found.push(state_in(&stage.fakes, pool, node).await);
        }
        let is = found.iter().zip(wanted).all(|(found, (_, wanted))| found == wanted);
        if is { Ok(()) } else { Err(format!("{found:?} in {wanted:?}")) }
    })
    .await;
}

/// Sets the entry of a node in a pool of the first load balancer Down, as another client would.
async fn set_down(fakes: &Fakes, pool: &str, node: usize) {
    let (name, ip) = (pool.to_owned(), node_ip(node));
    let put = move |azure: &mut simulator::Azure, now: u64| {
        let mut body = azure.model.pool_json(CLUSTER_NAME, &name).expect("the pool");
        let entries = body["properties"]["loadBalancerBackendAddresses"].as_array_mut();
        let mut entries = entries.expect("entries").iter_mut();
        let entry = entries.find(|entry| entry["properties"]["ipAddress"] == *ip).expect("the node's entry");
        entry["properties"]["adminState"] = json!("Down");
        let id = body["id"].as_str().expect("an id");
        let request = arm::Request {
            method: arm::Method::Put,
            path_and_query: format!("{id}?api-version=2024-05-01"),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        azure.handle(&request, now);
    };
    fakes.azure.ask(put).await;
    assert_eq!(state_in(fakes, pool, node).await, "Down", "it can be set");
}

fn names(page: &Value) -> Vec<&str> {
    let items = page["items"].as_array().into_iter().flatten();
    items.filter_map(|item| item["name"].as_str()).collect()
}

/// Starts a controller with a node that is Down in all its pools, an entry of another node that another client has set
/// Down, and an unreadable record.
pub(super) async fn leaving() -> Stage {
    let prepared = prepared().await;
    set_down(&prepared.fakes, &pool_of("web"), 1).await;
    let garbled = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": "azure-backend-pool-controller", "namespace": "kube-system" },
        "data": { "down.garbled": "" },
    });
    prepared.fakes.apply(vec![garbled]).await.expect("a good object");
    let stage = leading(prepared).await;
    taint(&stage, 0, &[OUT_OF_SERVICE]).await;
    stage.shown(&one(0), |answer| answer["node"]["state"] == "down").await;
    let is_shown = |status: &Value| {
        let of = &status["adminState"];
        of["unreadable"][0]["key"] == "down.garbled" && of["foreign"][0]["node"] == *node_name(1)
    };
    stage.shown(STATUS, is_shown).await;
    stage
}

/// Taints the first node, and asserts that it is recorded before any of its entries is set Down, and then set Down in
/// all its pools.
async fn goes_down(stage: &Stage) {
    stage.fakes.plant(|model| model.forbid(Resource::ConfigMaps)).await;
    let release = hold_the_first_write(stage).await;
    taint(stage, 0, &[OUT_OF_SERVICE]).await;
    let shown = stage.shown(&one(0), |answer| answer["node"]["state"] == "recording").await;
    let node = &shown["node"];
    assert_eq!(
        (&node["reasons"], &node["recorded"], &node["ready"], &node["addresses"]),
        (&json!(["out-of-service"]), &json!(false), &json!(true), &json!([node_ip(0)])),
        "{shown}"
    );
    assert_eq!(stage.fakes.counters().await.pool_puts, 0, "an entry is Down only if its node is recorded");
    stage.fakes.plant(|model| model.permit(Resource::ConfigMaps)).await;

    let shown = stage.shown(&one(0), |answer| answer["node"]["state"] == "draining").await;
    explained("Nodes that leave service", &shown["node"], &[]);
    let (node, in_pools) = (&shown["node"], shown["node"]["inPools"].as_array().expect("a list"));
    assert_eq!((&node["recorded"], &node["pools"]["total"]), (&json!(true), &json!(3)), "{shown}");
    // The load balancer's second write waits for the answer to the first.
    assert!(node["pools"]["waiting"].as_u64() >= Some(2), "{shown}");
    let pools: Vec<&str> = in_pools.iter().filter_map(|pool| pool["backendPool"].as_str()).collect();
    assert_eq!(pools, ["kubernetes", "shop-mail", "shop-web"], "{shown}");
    assert!(in_pools.iter().all(|pool| pool["loadBalancer"] == "kubernetes"), "{shown}");
    let status = stage.get(STATUS).await;
    explained("Nodes that leave service", &status["adminState"], &[]);
    assert_eq!(status["adminState"]["draining"], 1, "{status}");

    drop(release);
    let shown = stage.shown(&one(0), |answer| answer["node"]["state"] == "down").await;
    assert_eq!(shown["node"]["pools"]["down"], 3, "{shown}");
    let down = [("kubernetes", "Down"), ("shop-mail", "Down"), ("shop-web", "Down")];
    entries_are(stage, 0, &down).await;
    assert_eq!(stage.fakes.counters().await.pool_puts, 3, "one for each pool");
    let event = stage.event(&node_name(0), "LoadBalancerAdminStateDown").await;
    assert!(
        event["message"].as_str().is_some_and(|text| text.contains("3 pools of 1 load balancer")),
        "{event}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n2_h3_a_tainted_node_is_shown_until_it_is_down_and_back() {
    let stage = leading(prepared().await).await;
    assert_eq!(stage.get(NODES).await["items"], json!([]));
    let shown = stage.get(&one(0)).await;
    assert_eq!((&shown["node"]["state"], &shown["node"]["excludedBy"]), (&json!("in_service"), &Value::Null));
    assert_eq!(shown["node"]["inPools"][0]["adminState"], "None", "{shown}");
    let answer = stage.admin(Method::GET, "/api/v1/nodes/nosuch").await;
    assert_eq!((answer.status, &answer.json()["title"]), (404, &json!("no such node")), "{answer:?}");

    goes_down(&stage).await;
    let filters: [(&str, &[&str]); 5] = [
        ("state=down", &["node-0000"]),
        ("contains=NODE-00", &["node-0000"]),
        ("state=down&contains=node-0001", &[]),
        ("state=restoring", &[]),
        ("after=node-0000", &[]),
    ];
    for (query, wanted) in filters {
        let page = stage.get(&format!("{NODES}?{query}")).await;
        assert_eq!((names(&page), &page["next"]), (wanted.to_vec(), &Value::Null), "{query}");
    }
    let all = NodeState::ALL.map(NodeState::as_str).join(", ");
    for (query, detail) in [
        ("state=lost", format!("state: \"lost\" is not one of {all}")),
        ("limit=0", "limit: \"0\" is not a whole number".to_owned()),
        ("lb=kubernetes", "lb: unknown parameter; this path has state, contains, limit, after".to_owned()),
    ] {
        let answer = stage.admin(Method::GET, &format!("{NODES}?{query}")).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.json()["detail"].as_str().is_some_and(|text| text.starts_with(&detail)), "{answer:?}");
    }
    let held = json!({ "scope": "node", "name": node_name(0) });
    let answer = stage.post(RELEASE, TOKEN, &held).await;
    assert_eq!((answer.status, &answer.json()["title"]), (409, &json!("the node is not held")), "{answer:?}");
    assert!(answer.text.contains("GET /api/v1/nodes?state=held"), "{answer:?}");

    taint(&stage, 0, &[]).await;
    stage.shown(NODES, |page| page["items"] == json!([])).await;
    let back = [("kubernetes", "None"), ("shop-mail", "None"), ("shop-web", "None")];
    entries_are(&stage, 0, &back).await;
    assert_eq!(stage.get(&one(0)).await["node"]["state"], "in_service");
    let event = stage.event(&node_name(0), "LoadBalancerAdminStateNone").await;
    assert!(event["message"].as_str().is_some_and(|text| text.contains("3 pools")), "{event}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n5_h3_waiting_nodes_are_shown_in_pages_and_can_be_released() {
    let stage = leading(prepared().await).await;
    for node in 0..3 {
        taint(&stage, node, &[OUT_OF_SERVICE]).await;
        stage.shown(&one(node), |answer| answer["node"]["state"] == "down").await;
    }
    taint(&stage, 3, &[OUT_OF_SERVICE]).await;
    stage.shown(&one(3), |answer| answer["node"]["state"] == "held").await;
    let status = stage.shown(STATUS, |status| status["adminState"]["held"] == 1).await;
    assert_eq!(status["adminState"]["down"], 3, "half of the Ready nodes: {status}");
    stage.event(&node_name(3), "LoadBalancerAdminStateHeld").await;
    let held = stage.get(&format!("{NODES}?state=held")).await;
    assert_eq!(names(&held), [node_name(3)]);

    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = stage.get(&format!("{NODES}?limit=1{after}")).await;
        assert_eq!(names(&page).len(), 1, "{page}");
        all.extend(names(&page).into_iter().map(str::to_owned));
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(all, [0, 1, 2, 3].map(node_name));

    let wanted = json!({ "scope": "node", "name": node_name(3) });
    let answer = stage.post(RELEASE, TOKEN, &wanted).await;
    let done = json!({ "answer": "released", "released": [], "nodes": [node_name(3)] });
    assert_eq!((answer.status, answer.json()), (200, done), "{answer:?}");
    stage.shown(&one(3), |answer| answer["node"]["state"] == "down").await;

    taint(&stage, 4, &[OUT_OF_SERVICE]).await;
    stage.shown(&one(4), |answer| answer["node"]["state"] == "held").await;
    let answer = stage.post(RELEASE, TOKEN, &json!({ "scope": "everything" })).await;
    assert_eq!((answer.status, &answer.json()["nodes"]), (200, &json!([node_name(4)])), "{answer:?}");
    stage.shown(&one(4), |answer| answer["node"]["state"] == "down").await;
    let answer = stage.post(RELEASE, TOKEN, &json!({ "scope": "everything" })).await;
    assert_eq!((answer.status, &answer.json()["title"]), (409, &json!("nothing is held")), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n5_h3_releasing_a_node_that_does_not_wait_is_refused() {
    let stage = leading(prepared().await).await;
    let ask = async |name: &str| stage.post(RELEASE, TOKEN, &json!({ "scope": "node", "name": name })).await;
    let answer = ask(&node_name(0)).await;
    assert_eq!((answer.status, &answer.json()["title"]), (409, &json!("the node is not held")), "{answer:?}");
    let answer = ask("nosuch").await;
    assert_eq!(answer.status, 404, "{answer:?}");
    assert!(answer.text.contains("GET /api/v1/nodes lists"), "{answer:?}");
    for body in [
        json!({ "scope": "node" }),
        json!({ "scope": "node", "name": "a/b" }),
        json!({ "scope": "node", "name": "a", "namespace": "b" }),
    ] {
        assert_eq!(stage.post(RELEASE, TOKEN, &body).await.status, 400, "{body}");
    }
    let pause = json!({ "scope": "node", "name": node_name(0) });
    assert_eq!(stage.post("/api/v1/pause", TOKEN, &pause).await.status, 400, "nodes cannot be paused");
    let pause = json!({ "scope": "everything" });
    assert_eq!(stage.post("/api/v1/pause", TOKEN, &pause).await.status, 200);
    stage.shown(STATUS, |status| status["pauses"]["items"][0].is_object()).await;
    let answer = ask(&node_name(0)).await;
    assert_eq!((answer.status, &answer.json()["title"]), (409, &json!("paused")), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn n4_h3_a_foreign_state_stays_when_the_node_is_back() {
    let prepared = prepared().await;
    set_down(&prepared.fakes, &pool_of("web"), 1).await;
    let stage = leading(prepared).await;
    let is_shown = |status: &Value| status["adminState"]["foreign"][0].is_object();
    let status = stage.shown(STATUS, is_shown).await;
    let foreign = json!([{
        "loadBalancer": "kubernetes", "backendPool": "shop-web", "adminState": "Down", "backend": node_ip(1),
        "node": node_name(1),
    }]);
    assert_eq!(status["adminState"]["foreign"], foreign);
    stage.event(&node_name(1), "LoadBalancerAdminStateForeign").await;
    let shown = stage.get(&one(1)).await;
    assert_eq!((&shown["node"]["state"], &shown["node"]["recorded"]), (&json!("in_service"), &json!(false)));
    assert_eq!(shown["node"]["inPools"][0]["adminState"], "Down", "{shown}");

    taint(&stage, 1, &[OUT_OF_SERVICE]).await;
    let shown = stage.shown(&one(1), |answer| answer["node"]["state"] == "down").await;
    let pools = json!([
        { "loadBalancer": "kubernetes", "backendPool": "shop-web", "listed": true, "state": "foreign", "adminState": "Down" },
        { "loadBalancer": "lb-2", "backendPool": "kubernetes", "listed": false, "state": "down", "adminState": "Down" },
    ]);
    assert_eq!(shown["node"]["inPools"], pools, "{shown}");
    taint(&stage, 1, &[]).await;
    stage.shown(NODES, |page| page["items"] == json!([])).await;
    entries_are(&stage, 1, &[("shop-web", "Down")]).await;
}
