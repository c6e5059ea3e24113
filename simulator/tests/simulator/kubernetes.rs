//! The API server over real HTTP.

use std::time::Duration;

use reqwest::{Client, Response};
use serde_json::Value;
use simulator::models::kube::Resource;
use simulator::models::kube::build::{self, Endpoint, Family};
use simulator::{Fakes, Settings};
use tokio::time::Instant;

use super::soon;

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";

async fn start() -> (Fakes, Client) {
    let fakes = Fakes::start(Settings::default()).await.expect("a free port");
    (fakes, Client::builder().no_proxy().build().expect("a client"))
}

fn slice(service: &str, nodes: &[&str]) -> Value {
    let endpoints: Vec<Endpoint> = nodes.iter().map(|node| Endpoint::ready(node)).collect();
    build::endpoint_slice("shop", service, 0, &endpoints, Family::V4)
}

async fn get(client: &Client, fakes: &Fakes, path: &str) -> Response {
    client.get(format!("{}{path}", fakes.kubernetes_url)).send().await.expect("an answer")
}

async fn json(response: Response) -> Value {
    serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON")
}

async fn line(watch: &mut Response) -> Value {
    let chunk = soon(watch.chunk()).await.expect("an open watch").expect("a line");
    assert_eq!(chunk.iter().filter(|byte| **byte == b'\n').count(), 1, "{chunk:?}");
    serde_json::from_slice(&chunk).expect("JSON")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_watch_continues_where_a_list_ended() {
    let (fakes, client) = start().await;
    fakes.apply(vec![slice("web", &["n1"])]).await.expect("a slice");
    let answer = get(&client, &fakes, SLICES).await;
    assert!(answer.headers().contains_key("date"));
    let list = json(answer).await;
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    let version = list["metadata"]["resourceVersion"].as_str().expect("a version");

    let mut watch = get(&client, &fakes, &format!("{SLICES}?watch=1&resourceVersion={version}")).await;
    assert_eq!(watch.status(), 200);
    fakes.apply(vec![slice("web", &["n2"])]).await.expect("a slice");
    let event = line(&mut watch).await;
    assert_eq!(
        (&event["type"], &event["object"]["endpoints"][0]["nodeName"]),
        (&"MODIFIED".into(), &"n2".into())
    );
    let name = event["object"]["metadata"]["name"].as_str().expect("a name").to_owned();
    assert!(fakes.delete(Resource::EndpointSlices, "shop", &name).await);
    assert_eq!(line(&mut watch).await["type"], "DELETED");
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_watch_gets_a_change_within_milliseconds() {
    let (fakes, client) = start().await;
    let mut watch = get(&client, &fakes, &format!("{SLICES}?watch=1")).await;
    let mut delays = Vec::new();
    for number in 0..21 {
        let before = Instant::now();
        fakes.apply(vec![slice("web", &[&format!("n{number}")])]).await.expect("a slice");
        line(&mut watch).await;
        delays.push(before.elapsed());
    }
    delays.sort_unstable();
    assert!(delays[10] < Duration::from_millis(20), "{delays:?}");
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_watch_from_before_a_restart_gets_410() {
    let (fakes, client) = start().await;
    fakes.apply(vec![slice("web", &["n1"]), slice("api", &["n1"])]).await.expect("slices");
    let mut open = get(&client, &fakes, &format!("{SLICES}?watch=1&resourceVersion=1")).await;
    assert!(soon(open.chunk()).await.expect("an open watch").is_some());
    fakes.plant(simulator::models::kube::KubeModel::restart).await;
    assert_eq!(soon(open.chunk()).await.expect("a proper end"), None, "a restart ends open watches");

    let mut late = get(&client, &fakes, &format!("{SLICES}?watch=1&resourceVersion=1")).await;
    let event = line(&mut late).await;
    assert_eq!((&event["type"], &event["object"]["code"]), (&"ERROR".into(), &410.into()));
    assert_eq!(soon(late.chunk()).await.expect("a proper end"), None);
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_stopped_server_cuts_connections_and_returns() {
    let (fakes, client) = start().await;
    assert_eq!(get(&client, &fakes, "/readyz").await.status(), 200);
    fakes.plant(|model| model.down(true)).await;
    let cut = client.get(format!("{}/readyz", fakes.kubernetes_url)).send().await;
    assert!(cut.is_err(), "{cut:?}");
    fakes.plant(|model| model.down(false)).await;
    assert_eq!(get(&client, &fakes, "/readyz").await.status(), 200);
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_watch_without_a_client_is_closed() {
    let (fakes, client) = start().await;
    let watch = get(&client, &fakes, &format!("{SLICES}?watch=1")).await;
    let open = || fakes.cluster.ask(|cluster, _| cluster.model.open_watches().len());
    assert_eq!(open().await, 1);
    let mut revision = fakes.cluster.revision();
    drop(watch);
    while open().await > 0 {
        soon(revision.changed()).await.expect("the owner lives");
    }
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_slow_server_delays_answers_but_not_writes() {
    let (fakes, client) = start().await;
    fakes.plant(|model| model.slow(30_000)).await;
    let before = Instant::now();
    let node = build::node("n1", &["10.0.0.1"], &[], true, &[]);
    let sent = client
        .post(format!("{}/api/v1/nodes", fakes.kubernetes_url))
        .header("content-type", "application/json")
        .body(node.to_string())
        .send();
    assert_eq!(sent.await.expect("an answer").status(), 201);
    assert!(before.elapsed() >= Duration::from_millis(30));
    let stored = fakes.cluster.ask(|cluster, _| cluster.model.get(Resource::Nodes, "", "n1")).await;
    assert!(stored.is_some());
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_watch_ends_properly_at_its_timeout() {
    let (fakes, client) = start().await;
    let before = Instant::now();
    let mut watch = get(&client, &fakes, &format!("{SLICES}?watch=1&timeoutSeconds=1")).await;
    assert_eq!(soon(watch.chunk()).await.expect("a proper end"), None);
    assert!(before.elapsed() >= Duration::from_secs(1));
    fakes.stop().await;
}
