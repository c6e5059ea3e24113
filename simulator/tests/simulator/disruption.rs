//! Cluster-wide disruptions in scenarios, checked in the models of the cluster and ARM.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use reqwest::Client;
use simulator::models::kube::{KubeModel, Resource};
use simulator::{
    Churn, Fakes, Outcome, Pattern, Play, Scenario, Settings, Size, World, expected_pools, vnet_id,
};

use super::azure::url;

const SIZE: Size = Size { services: 30, load_balancers: 2, nodes: 12, endpoints: 3, dual_stack: false };

/// Runs a scenario that consists of these actions, without a controller.
async fn play(actions: &[&str]) -> (Fakes, Outcome) {
    let fakes = Fakes::start(Settings::default()).await.expect("a free port");
    let world = World::new(SIZE, 1);
    world.populate(&fakes, &vnet_id()).await;
    let lines: Vec<String> =
        actions.iter().enumerate().map(|(ms, action)| format!("at {ms}ms {action}\n")).collect();
    let scenario = Scenario::read(&lines.concat()).expect("a scenario");
    let play = Play::new(&fakes, world, Churn::new(Pattern::Still, 1)).await.with(&scenario.timetable());
    let outcome = play.run(Duration::ZERO, |_| ()).await;
    (fakes, outcome)
}

async fn query<T: Send + 'static>(fakes: &Fakes, query: impl FnOnce(&KubeModel) -> T + Send + 'static) -> T {
    fakes.cluster.ask(|cluster, _| query(&cluster.model)).await
}

async fn required(fakes: &Fakes) -> BTreeMap<String, BTreeSet<IpAddr>> {
    let wanted = query(fakes, expected_pools).await;
    wanted.into_iter().map(|(pool, wanted)| (pool, wanted.required)).collect()
}

async fn nodes(fakes: &Fakes) -> Vec<String> {
    let name = |node: serde_json::Value| node["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    query(fakes, move |model| model.list(Resource::Nodes).map(name).collect()).await
}

#[tokio::test]
async fn z2_nodes_join_and_the_oldest_leave_with_their_pods() {
    let (fakes, outcome) = play(&["nodes add 12", "nodes delete 12 oldest"]).await;
    let expected: Vec<String> = (12..24).map(|number| format!("node-{number:04}")).collect();
    assert_eq!(nodes(&fakes).await, expected);
    for (pool, required) in required(&fakes).await {
        assert_eq!(required.len(), 3, "{pool} has all its pods, on three nodes");
        assert!(required.iter().all(|ip| matches!(ip, IpAddr::V4(ip) if ip.octets()[3] >= 16)), "{pool}");
    }
    assert_eq!(outcome.wrong_pools.len(), 30, "nothing was written");
}

#[tokio::test]
async fn z2_pods_of_failed_nodes_are_pending_until_scale_back() {
    let (fakes, _) = play(&["nodes fail 9"]).await;
    assert_eq!(nodes(&fakes).await, ["node-0009", "node-0010", "node-0011"]);
    let all: usize = required(&fakes).await.values().map(BTreeSet::len).sum();
    assert!(all < 45, "{all} of 90 members are left, with a quarter of the nodes");
    let (fakes, _) = play(&["nodes fail 9", "services scale-back"]).await;
    for (pool, required) in required(&fakes).await {
        assert!(required.len() == 3, "{pool} has all its pods, on the three nodes: {required:?}");
    }
}

#[tokio::test]
async fn z2_labelled_nodes_are_not_required_until_unlabelled() {
    let key = "node.kubernetes.io/exclude-from-external-load-balancers";
    let (before, _) = play(&[]).await;
    let before = required(&before).await;
    let (fakes, outcome) = play(&[&format!("nodes label 4 {key}")]).await;
    let is_excluded = |ip: &IpAddr| matches!(ip, IpAddr::V4(ip) if ip.octets()[3] < 8);
    let labelled = required(&fakes).await;
    for (pool, required) in &labelled {
        let included: BTreeSet<IpAddr> = before[pool].iter().filter(|ip| !is_excluded(ip)).copied().collect();
        assert_eq!(*required, included, "{pool}");
    }
    assert!(labelled != before && !outcome.wrong_pools.is_empty());
    let (fakes, outcome) =
        play(&[&format!("nodes label 4 {key}=yes"), &format!("nodes unlabel {key}")]).await;
    assert_eq!((required(&fakes).await, outcome.wrong_pools.len()), (before, 0));
}

#[tokio::test]
async fn z2_nodes_that_vanish_return_as_they_were() {
    let (fakes, _) = play(&["nodes vanish 5"]).await;
    assert_eq!(nodes(&fakes).await.len(), 7);
    let (fakes, outcome) = play(&["nodes vanish 5", "nodes return"]).await;
    assert_eq!((nodes(&fakes).await.len(), outcome.wrong_pools.len()), (12, 0));
}

#[tokio::test]
async fn n1_a_tainted_node_must_be_down_in_all_its_pools() {
    let key = "node.kubernetes.io/out-of-service";
    let (fakes, outcome) = play(&[&format!("nodes taint 2 {key}=nodeshutdown")]).await;
    assert_eq!(outcome.wrong_pools, [], "it stays a member");
    let count = |azure: &mut simulator::Azure, _| {
        let pools: Vec<(String, String)> = azure
            .model
            .load_balancers()
            .flat_map(|lb| azure.model.pools(lb).map(move |pool| (lb.to_owned(), pool.to_owned())))
            .collect();
        let members = pools.iter().flat_map(|(lb, pool)| azure.model.members(lb, pool).unwrap_or_default());
        members.filter(|member| matches!(member.ip.as_str(), "10.224.0.4" | "10.224.0.5")).count()
    };
    assert_eq!(outcome.wrong_entries.len(), fakes.azure.ask(count).await);
    assert!(outcome.wrong_entries.len() > 2, "the cluster's own pools and those of Services");
    let (_, outcome) = play(&[&format!("nodes taint 2 {key}"), &format!("nodes untaint {key}")]).await;
    assert_eq!(outcome.wrong_entries, []);
}

#[tokio::test]
async fn n4_a_foreign_down_may_stay() {
    let (fakes, outcome) = play(&["others set down a member of every 10"]).await;
    assert_eq!((outcome.wrong_pools.len(), outcome.wrong_entries.len()), (0, 0));
    let down = |azure: &mut simulator::Azure, _| {
        let pools: Vec<_> = azure.convergence.names().cloned().collect();
        let members = pools
            .iter()
            .flat_map(|pool| azure.model.members(&pool.load_balancer, &pool.pool).unwrap_or_default());
        members.filter(|member| member.admin_state == "Down").count()
    };
    assert_eq!(fakes.azure.ask(down).await, 3, "of thirty pools");
}

#[tokio::test]
async fn z2_scale_to_zero_and_back_keeps_the_pod_count() {
    let counts = |required: BTreeMap<String, BTreeSet<IpAddr>>| -> Vec<usize> {
        required.values().map(BTreeSet::len).collect()
    };
    let (fakes, _) = play(&["services scale-to-zero 1", "services scale-to-zero 2"]).await;
    let at_zero = counts(required(&fakes).await);
    assert_eq!((&at_zero[..3], at_zero[3..].iter().all(|count| *count == 3)), (&[0, 0, 0][..], true));
    let (fakes, _) = play(&["services scale-to-zero 3", "services scale-back"]).await;
    assert_eq!(counts(required(&fakes).await), [3; 30]);
}

#[tokio::test]
async fn z2_one_slice_of_a_service_without_pods_stays() {
    let slices = |model: &KubeModel| model.list(Resource::EndpointSlices).count();
    let (fakes, _) = play(&["services scale-back"]).await;
    assert_eq!(query(&fakes, slices).await, 45, "every second Service has two");
    let (fakes, _) = play(&["services scale-to-zero 4"]).await;
    assert_eq!(query(&fakes, slices).await, 43);
    let (fakes, _) = play(&["services scale-to-zero 4", "services scale-back"]).await;
    assert_eq!(query(&fakes, slices).await, 45);
}

#[tokio::test]
async fn z2_a_deleted_namespace_leaves_no_objects_or_pools() {
    let (fakes, outcome) = play(&["namespace delete"]).await;
    assert_eq!(outcome.wrong_pools.len(), 0);
    let left = |kind| {
        move |model: &KubeModel| {
            let mut all = model.list(kind);
            all.all(|object| object["metadata"]["namespace"] == "team-001")
        }
    };
    assert!(
        query(&fakes, left(Resource::Services)).await && query(&fakes, left(Resource::EndpointSlices)).await
    );
    assert_eq!(query(&fakes, |model| model.list(Resource::Services).count()).await, 10);
    let state = |azure: &mut simulator::Azure, _| {
        (azure.model.member_ips("kubernetes", "team-000-web-00000").is_none(), azure.convergence.pools())
    };
    assert_eq!(fakes.azure.ask(state).await, (true, 10));

    let fakes = Fakes::start(Settings::default()).await.expect("a free port");
    let world = World::new(SIZE, 1);
    world.populate(&fakes, &vnet_id()).await;
    let scenario = Scenario::read("at 0s namespace delete\nat 1s arm up\n").expect("a scenario");
    let play = Play::new(&fakes, world, Churn::new(Pattern::Still, 1)).await.with(&scenario.timetable());
    let again = async {
        let gone = async || fakes.members("kubernetes", "team-000-web-00000").await.is_none();
        while !gone().await {
            tokio::task::yield_now().await;
        }
        let members = vec![("node-0000".to_owned(), "10.224.0.4".to_owned())];
        fakes.foreign_put("kubernetes", "team-000-web-00000", members).await;
    };
    let (outcome, ()) = tokio::join!(play.run(Duration::ZERO, |_| ()), again);
    let wrong: Vec<&str> = outcome.wrong_pools.iter().map(|wrong| wrong.pool.as_str()).collect();
    assert_eq!(wrong, ["team-000-web-00000"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z2_lists_of_one_kind_are_empty_and_clocks_jump_on_both_sides() {
    let actions = ["lists empty nodes", "clocks jump 2h", "arm fault any 429 every 1 retry-after date+30"];
    let (fakes, _) = play(&actions).await;
    let client = Client::builder().no_proxy().build().expect("a client");
    let count = async |path: &str| -> usize {
        let url = format!("{}{path}", fakes.kubernetes_url);
        let answer = client.get(url).send().await.expect("an answer").text().await.expect("a body");
        let list: serde_json::Value = serde_json::from_str(&answer).expect("JSON");
        list["items"].as_array().map_or(0, Vec::len)
    };
    assert_eq!((count("/api/v1/nodes").await, count("/api/v1/services").await), (0, 30));

    let date = |answer: &reqwest::Response, header: &str| {
        let text = answer.headers().get(header).and_then(|value| value.to_str().ok()).expect(header);
        jiff::fmt::rfc2822::parse(text).expect("a date").timestamp()
    };
    let now = jiff::Timestamp::now().as_second();
    let server = client.get(format!("{}/version", fakes.kubernetes_url)).send().await.expect("an answer");
    let arm = client.get(url(&fakes, "kubernetes")).send().await.expect("an answer");
    for answer in [&server, &arm] {
        let ahead = date(answer, "date").as_second() - now;
        assert!((7_199..7_260).contains(&ahead), "{ahead}");
    }
    let retry_after = date(&arm, "retry-after").as_second() - date(&arm, "date").as_second();
    assert_eq!((arm.status().as_u16(), retry_after), (429, 30));
}

/// Resumes a watch from a resourceVersion; returns its first event and the following list.
async fn resume_watch(fakes: &Fakes, path: &str, version: u64) -> (serde_json::Value, serde_json::Value) {
    let client = Client::builder().no_proxy().build().expect("a client");
    let get = async |path: &str| {
        client.get(format!("{}{path}", fakes.kubernetes_url)).send().await.expect("an answer")
    };
    let mut watch = get(&format!("{path}?watch=1&resourceVersion={version}")).await;
    let event = super::soon(watch.chunk()).await.expect("an open watch").expect("a line");
    let list = get(path).await.bytes().await.expect("a body");
    (serde_json::from_slice(&event).expect("JSON"), serde_json::from_slice(&list).expect("JSON"))
}

#[tokio::test]
async fn z2_when_lists_become_empty_all_clients_list_again() {
    let kinds = [
        ("endpointslices", Resource::EndpointSlices, "/apis/discovery.k8s.io/v1/endpointslices"),
        ("nodes", Resource::Nodes, "/api/v1/nodes"),
        ("services", Resource::Services, "/api/v1/services"),
    ];
    for (word, _, path) in kinds {
        for (_, last, _) in kinds {
            let fakes = Fakes::start(Settings::default()).await.expect("a free port");
            let world = World::new(SIZE, 1);
            world.populate(&fakes, &vnet_id()).await;
            let touch = move |cluster: &mut simulator::Cluster, now_us| {
                let mut object = cluster.model.list(last).next().expect("there is one");
                object["metadata"]["annotations"]["simulator/last"] = "written".into();
                cluster.model.apply(object, now_us).expect("it was served before")
            };
            let newest = fakes.cluster.ask(touch).await;
            let scenario =
                Scenario::read(&format!("pods still\nat 0s lists empty {word}\n")).expect("a scenario");
            let churn = Churn::new(Pattern::Still, 1);
            let play = Play::new(&fakes, world, churn).await.with(&scenario.timetable());
            play.run(Duration::ZERO, |_| ()).await;
            let (event, list) = resume_watch(&fakes, path, newest).await;
            assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()), "{word}");
            assert_eq!(list["items"], serde_json::json!([]), "{word} after {last:?}");
            fakes.stop().await;
        }
    }
}
