//! ARM over real HTTP.

use std::time::Duration;

use reqwest::{Client, Response};
use serde_json::{Value, json};
use simulator::models::arm::topology::{Topology, public_ip_name};
use simulator::models::arm::{self, Kind, Latency, PoolSpec};
use simulator::{ExpectedPool, Fakes, PoolName, Settings, fault};
use tokio::time::Instant;

use super::soon;

const GROUP: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg";
const BALANCERS: &str = "providers/Microsoft.Network/loadBalancers";

pub async fn start(arm: arm::Settings) -> (Fakes, Client) {
    let fakes = Fakes::start(Settings { arm, ..Settings::default() }).await.expect("a free port");
    fakes
        .azure
        .ask(|azure, _| {
            azure.model.add_pool("lb", "shop-web", &PoolSpec::default());
            azure.model.add_rule("lb", "a-rule", "shop-web", true);
        })
        .await;
    (fakes, Client::builder().no_proxy().build().expect("a client"))
}

pub fn quick() -> arm::Settings {
    let none = Latency::Fixed { us: 0 };
    arm::Settings { get_latency: none, put_latency: none, ..arm::Settings::default() }
}

pub fn url(fakes: &Fakes, rest: &str) -> String {
    format!("{}{GROUP}/{BALANCERS}/{rest}?api-version=2025-05-01", fakes.arm_url)
}

pub async fn put(client: &Client, fakes: &Fakes, ip: &str) -> Result<Response, reqwest::Error> {
    let address = json!({"name": "n1", "properties": {"ipAddress": ip}});
    let body = json!({"properties": {"loadBalancerBackendAddresses": [address]}}).to_string();
    let pool = url(fakes, "lb/backendAddressPools/shop-web");
    client.put(pool).header("content-type", "application/json").body(body).send().await
}

pub async fn json_of(response: Response) -> Value {
    serde_json::from_slice(&response.bytes().await.expect("a body")).expect("JSON")
}

pub async fn ips(fakes: &Fakes) -> Vec<String> {
    let members = fakes.members("lb", "shop-web").await.expect("a pool");
    members.into_iter().map(|member| member.ip).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_pool_is_read_and_written_and_its_convergence_is_tracked() {
    let (fakes, client) = start(quick()).await;
    let wanted = ExpectedPool {
        required: ["10.0.0.1".parse().expect("an address")].into(),
        allowed: ["10.0.0.1".parse().expect("an address")].into(),
    };
    fakes
        .azure
        .ask(move |azure, now_us| {
            azure.convergence.want(PoolName::new("lb", "shop-web"), wanted, &[].into(), now_us);
        })
        .await;
    let before = client.get(url(&fakes, "lb")).send().await.expect("an answer");
    assert_eq!(before.status(), 200);
    assert!(before.headers().contains_key("date") && before.headers().contains_key("x-ms-request-id"));
    let before = json_of(before).await;
    assert_eq!(before["properties"]["backendAddressPools"][0]["name"], "shop-web");

    let written = put(&client, &fakes, "10.0.0.1").await.expect("an answer");
    assert!(written.status().is_success(), "{}", written.status());
    let read = client.get(url(&fakes, "lb/backendAddressPools/shop-web")).send().await.expect("an answer");
    let read = json_of(read).await;
    let addresses = &read["properties"]["loadBalancerBackendAddresses"];
    assert_eq!(addresses[0]["properties"]["ipAddress"], "10.0.0.1");

    let (wrong, waits) =
        fakes.azure.ask(|azure, _| (azure.convergence.out_of_sync(), azure.convergence.waits_us())).await;
    assert_eq!((wrong, waits.len()), (0, 1));
    let counters = fakes.counters().await;
    assert_eq!((counters.load_balancer_gets, counters.pool_gets, counters.pool_puts), (1, 1, 1));
    let kinds: Vec<Kind> = fakes.log().await.iter().map(|entry| entry.kind).collect();
    assert_eq!(kinds, [Kind::LoadBalancerGet, Kind::PoolPut, Kind::PoolGet]);
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_answers_come_after_their_latency() {
    let put_latency = Latency::Fixed { us: 40_000 };
    let (fakes, client) = start(arm::Settings { put_latency, ..quick() }).await;
    let before = Instant::now();
    put(&client, &fakes, "10.0.0.1").await.expect("an answer");
    assert!(before.elapsed() >= Duration::from_millis(40));
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_lost_answer_closes_the_connection_after_the_write() {
    let faults = vec![fault("put lost every 1").expect("a fault")];
    let (fakes, client) = start(arm::Settings { faults, ..quick() }).await;
    let lost = put(&client, &fakes, "10.0.0.1").await;
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(ips(&fakes).await, ["10.0.0.1"]);
    fakes.tune_arm(|settings| settings.faults.clear()).await;
    assert!(put(&client, &fakes, "10.0.0.2").await.expect("an answer").status().is_success());
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_while_arm_is_down_nothing_is_written() {
    let (fakes, client) = start(quick()).await;
    fakes.arm_down(true).await;
    let cut = put(&client, &fakes, "10.0.0.1").await;
    assert!(cut.is_err(), "{cut:?}");
    fakes.arm_down(false).await;
    assert!(ips(&fakes).await.is_empty());
    assert!(put(&client, &fakes, "10.0.0.1").await.expect("an answer").status().is_success());
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_an_operation_is_polled_at_the_given_address() {
    let operation = Some(Latency::Fixed { us: 2_000_000 });
    let get_latency = Latency::Fixed { us: 5_000 };
    let (fakes, client) = start(arm::Settings { operation, get_latency, ..quick() }).await;
    let before = Instant::now();
    let answer = put(&client, &fakes, "10.0.0.1").await.expect("an answer");
    let poll = answer.headers()["azure-asyncoperation"].to_str().expect("text").to_owned();
    assert!(poll.starts_with(&fakes.arm_url), "{poll}");
    let mut states = Vec::new();
    while states.last().is_none_or(|state| state == "InProgress") {
        let answer = client.get(&poll).send().await.expect("an answer");
        states.push(json_of(answer).await["status"].as_str().unwrap_or_default().to_owned());
    }
    assert_eq!((states.first(), states.last()), (Some(&"InProgress".into()), Some(&"Succeeded".into())));
    assert!(before.elapsed() >= Duration::from_secs(2));
    assert_eq!(fakes.counters().await.polls, states.len() as u64);
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_convergence_follows_a_failed_operation() {
    let operation = Some(Latency::Fixed { us: 30_000 });
    let effect = arm::FaultEffect::FailOperation {
        end: arm::OperationFailure::Canceled,
        code: "Canceled".to_owned(),
        message: "planned".to_owned(),
    };
    let faults = vec![arm::Fault { effect, ..arm::Fault::every_nth_put(1, 500, "", None) }];
    let (fakes, client) = start(arm::Settings { operation, faults, ..quick() }).await;
    let wanted = ExpectedPool {
        required: ["10.0.0.1".parse().expect("an address")].into(),
        allowed: ["10.0.0.1".parse().expect("an address")].into(),
    };
    let mut moved = fakes.azure.revision();
    fakes
        .azure
        .ask(|azure, now_us| {
            azure.convergence.want(PoolName::new("lb", "shop-web"), wanted, &[].into(), now_us);
        })
        .await;
    put(&client, &fakes, "10.0.0.1").await.expect("an answer");
    // In sync when the write is answered, out of sync again when it is reverted; ARM gets no request in between.
    let mut counts = (0, 0);
    while counts.0 < 2 {
        soon(moved.changed()).await.expect("the owner lives");
        counts =
            fakes.azure.ask(|azure, _| (azure.convergence.moves(), azure.convergence.out_of_sync())).await;
    }
    assert_eq!(counts, (2, 1));
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_the_next_read_shows_a_foreign_write() {
    let (fakes, client) = start(quick()).await;
    let members = vec![("n7".to_owned(), "10.0.0.7".to_owned())];
    assert!((200..300).contains(&fakes.foreign_put("lb", "shop-web", members).await));
    let read = client.get(url(&fakes, "lb/backendAddressPools/shop-web")).send().await.expect("an answer");
    let read = json_of(read).await;
    assert_eq!(read["properties"]["loadBalancerBackendAddresses"][0]["properties"]["ipAddress"], "10.0.0.7");
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_resources_are_served_and_polled() {
    let settings = arm::Settings { operation: Some(Latency::Fixed { us: 1_000 }), ..quick() };
    let (fakes, client) = start(quick()).await;
    let endpoint = fakes.arm_url.clone();
    fakes
        .azure
        .ask(move |azure, _| {
            azure.model = Topology::AvailabilitySet.build(settings);
            azure.model.set_endpoint(&endpoint);
        })
        .await;
    let at = |rest: &str| {
        let group = format!("{}{GROUP}/providers/Microsoft.Network", fakes.arm_url);
        format!("{group}/{rest}?api-version=2025-05-01")
    };
    let address = at(&format!("publicIPAddresses/{}", public_ip_name(0)));
    let mut body = json_of(client.get(&address).send().await.expect("an answer")).await;
    assert!(body["properties"]["ipConfiguration"]["id"].is_string());
    body["properties"]["publicIPAllocationMethod"] = "Static".into();
    let written = client.put(&address).body(body.to_string()).send().await.expect("an answer");
    assert_eq!(written.status(), 200);
    let poll = written.headers()["azure-asyncoperation"].to_str().expect("text").to_owned();
    let is_done = async || {
        let polled = client.get(&poll).send().await.expect("an answer");
        json_of(polled).await["status"] == "Succeeded"
    };
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_done().await {
        assert!(Instant::now() < deadline, "the operation ends");
    }
    let after = json_of(client.get(&address).send().await.expect("an answer")).await;
    assert_eq!(after["properties"]["ipAddress"], body["properties"]["ipAddress"]);
    let refused = client.delete(&address).send().await.expect("an answer");
    assert_eq!(json_of(refused).await["error"]["code"], "PublicIPAddressCannotBeDeleted");
    let writes = fakes.azure.ask(|azure, _| azure.lanes.writes().len()).await;
    assert_eq!(writes, 0, "none of them was a write of a load balancer");
}
