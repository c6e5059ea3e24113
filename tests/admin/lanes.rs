//! The lanes (H3): the running and the waiting writes of each load balancer, as in `status`, in pages.

use std::collections::BTreeMap;

use reqwest::Method;
use serde_json::{Value, json};
use simulator::Size;

use super::stage::{Prepared, Stage};
use super::web;

const TOKEN: Option<&str> = Some("a-secret-token");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_a_lane_shows_its_write_and_its_queue() {
    let names = ["quiet", "slow", "waits", "held", "paused", "foreign"];
    let (stage, release) = web::in_the_middle(&names).await;
    let all = stage.get("/api/v1/lanes?lb=KUBERNETES").await;
    assert!(all["snapshotAgeSeconds"].is_number(), "{all}");
    let lanes = all["items"].as_array().expect("a list");
    assert_eq!((lanes.len(), &all["next"]), (1, &Value::Null), "{all}");
    let lane = &lanes[0];
    assert_eq!(
        (&lane["loadBalancer"], &lane["writing"]["pool"], &lane["waiting"][0]["pool"], &lane["fault"]),
        (&json!("kubernetes"), &json!("kubernetes/shop-slow"), &json!("kubernetes/shop-waits"), &Value::Null)
    );
    assert!(lane["waiting"][0]["class"].is_string() && lane["waiting"][0]["seconds"].is_number(), "{lane}");
    let status = stage.get("/api/v1/status").await;
    let mut shown = status["lanes"].as_array().into_iter().flatten();
    let shown = shown.find(|lane| lane["loadBalancer"] == "kubernetes").expect("status has it");
    assert_eq!(shown["writing"]["pool"], lane["writing"]["pool"]);
    let keys = |value: &Value| value.as_object().expect("an object").keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(shown), keys(lane));
    assert_eq!(stage.get("/api/v1/lanes?lb=nosuch").await["items"], json!([]));
    drop(release);
    let at_rest =
        |page: &Value| page["items"][0]["writing"].is_null() && page["items"][0]["waiting"] == json!([]);
    stage.shown("/api/v1/lanes?lb=kubernetes", at_rest).await;
}

/// Follows `next` to the end, one lane a page; returns the load balancers.
async fn walk(stage: &Stage) -> Vec<String> {
    let (mut names, mut after) = (Vec::new(), String::new());
    loop {
        let page = stage.get(&format!("/api/v1/lanes?limit=1{after}")).await;
        let items = page["items"].as_array().expect("a list");
        assert_eq!(items.len(), 1, "{page}");
        names.push(items[0]["loadBalancer"].as_str().expect("a name").to_owned());
        match page["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return names,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_lanes_have_pages_by_load_balancer() {
    let size = Size { services: 9, load_balancers: 3, nodes: 6, endpoints: 2, dual_stack: false };
    let stage = Prepared::sized(size).await.start(&json!({})).await;
    stage.wait_until_ready().await;
    stage.shown("/api/v1/status", |status| status["leadership"]["role"] == "leader").await;
    let pools = stage.shown("/api/v1/queues?state=in_sync", |page| page["items"][8].is_object()).await;
    // An attempt creates the lane of its load balancer.
    let one_of_each: BTreeMap<&str, &str> = pools["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|pool| Some((pool["loadBalancer"].as_str()?, pool["backendPool"].as_str()?)))
        .collect();
    assert_eq!(one_of_each.len(), 3, "{pools}");
    for (lb, pool) in &one_of_each {
        let answer = stage.post(&format!("/api/v1/queues/{lb}/{pool}/attempt"), TOKEN, &json!({})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    stage.shown("/api/v1/lanes", |page| page["items"].as_array().is_some_and(|all| all.len() == 3)).await;
    let names = walk(&stage).await;
    assert!(names.iter().eq(one_of_each.keys()), "{names:?}");
    for (query, detail) in [
        ("state=in_sync", "state: unknown parameter; this path has lb, limit, after"),
        ("limit=0", "limit: \"0\" is not a whole number"),
    ] {
        let answer = stage.admin(Method::GET, &format!("/api/v1/lanes?{query}")).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(answer.text.contains(&detail.replace('"', "\\\"")), "{answer:?}");
    }
}
