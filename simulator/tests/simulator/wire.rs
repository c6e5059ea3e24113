//! Recording and interception of requests to the simulated ARM.

use reqwest::{Client, Response};
use simulator::models::arm::{self, Latency, Method, Request};
use simulator::{Arm, Azure, Clock, Fakes, Fate, Journal, PoolName};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::azure::{ips, json_of, put, quick, start, url};
use super::soon;

/// Records requests and lets `hook` decide how each PUT is answered.
async fn record_with_hook(
    fakes: &Fakes,
    mut hook: impl FnMut(&mut Azure, u64) -> Fate + Send + 'static,
) -> Journal {
    let on_puts = move |azure: &mut Azure, request: &Request, now_us| {
        if request.method == Method::Put { hook(azure, now_us) } else { Fate::Answered }
    };
    let install = move |azure: &mut Azure, _| {
        azure.wire.intercept(on_puts);
        azure.wire.record()
    };
    fakes.azure.ask(install).await
}

async fn get(client: &Client, fakes: &Fakes) -> Response {
    client.get(url(fakes, "lb/backendAddressPools/shop-web")).send().await.expect("an answer")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_the_journal_records_requests_and_answer_times() {
    let put_latency = Latency::Fixed { us: 40_000 };
    let (fakes, client) = start(arm::Settings { put_latency, ..quick() }).await;
    get(&client, &fakes).await;
    let journal = fakes.azure.ask(|azure, _| azure.wire.record()).await;
    let before_us = fakes.clock().now_us();
    put(&client, &fakes, "10.0.0.1").await.expect("an answer");
    fakes.arm_down(true).await;
    put(&client, &fakes, "10.0.0.2").await.expect_err("ARM is down");

    let exchanges = journal.borrow().clone();
    let [written, refused] = exchanges.as_slice() else { panic!("{exchanges:?}") };
    assert_eq!((written.request.method, written.status), (Method::Put, Some(200)));
    assert_eq!(written.pool(), Some(PoolName::new("lb", "shop-web")));
    assert_eq!(written.addresses(), Some(vec!["10.0.0.1".to_owned()]));
    assert_eq!(written.header("Content-Type"), Some("application/json"));
    assert!(written.arrived_us >= before_us && written.ended_us == Some(written.arrived_us + 40_000));
    assert_eq!((refused.status, refused.ended_us), (None, Some(refused.arrived_us)));
    assert_eq!(refused.addresses(), Some(vec!["10.0.0.2".to_owned()]));
    let again = fakes.azure.ask(|azure, _| azure.wire.record()).await;
    assert_eq!(again.borrow().len(), 2);
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_held_answer_is_sent_when_released() {
    let release_fns: [fn(oneshot::Sender<()>); 2] = [|hold| hold.send(()).expect("it is held"), drop];
    for release in release_fns {
        let (fakes, client) = start(quick()).await;
        let (holds, mut held) = mpsc::unbounded_channel();
        let hold = move |_: &mut Azure, _| {
            let (hold, released) = oneshot::channel();
            holds.send(hold).expect("the test runs");
            Fate::Held(released)
        };
        let journal = record_with_hook(&fakes, hold).await;
        let begun_us = fakes.clock().now_us();
        let writes = async {
            let answer = put(&client, &fakes, "10.0.0.1").await.expect("an answer");
            (answer.status().as_u16(), Instant::now())
        };
        let releases = async {
            let hold = soon(held.recv()).await.expect("the hook has sent it");
            // ARM has applied the PUT and answers other requests; the journal shows the PUT as in flight.
            assert_eq!(ips(&fakes).await, ["10.0.0.1"]);
            assert_eq!(get(&client, &fakes).await.status(), 200);
            assert_eq!(journal.borrow()[0].ended_us, None);
            let (now, now_us) = (Instant::now(), fakes.clock().now_us());
            release(hold);
            (now, now_us)
        };
        let ((status, answered), (released, released_us)) =
            soon(async { tokio::join!(writes, releases) }).await;
        assert!(status == 200 && answered >= released, "{status}: {answered:?}, {released:?}");
        let exchange = journal.borrow()[0].clone();
        assert_eq!(exchange.status, Some(200));
        assert!(exchange.arrived_us >= begun_us && exchange.ended_us >= Some(released_us), "{exchange:?}");
        fakes.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_connection_is_cut_before_the_request_or_the_answer() {
    for (applied, fate) in [(false, Fate::Cut), (true, Fate::Lost)] {
        let (fakes, client) = start(quick()).await;
        let mut fates = vec![fate];
        let journal = record_with_hook(&fakes, move |_, _| fates.pop().unwrap_or(Fate::Answered)).await;
        put(&client, &fakes, "10.0.0.1").await.expect_err("its connection is cut");
        assert_eq!(ips(&fakes).await.is_empty(), !applied);
        assert_eq!(fakes.counters().await.pool_puts, u64::from(applied));
        assert_eq!(put(&client, &fakes, "10.0.0.2").await.expect("an answer").status(), 200);
        let statuses: Vec<_> = journal.borrow().iter().map(|exchange| exchange.status).collect();
        assert_eq!(statuses, [None, Some(200)]);
        fakes.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_hook_can_change_azure_before_the_request() {
    let (fakes, client) = start(quick()).await;
    let first = |azure: &mut Azure, now_us| {
        azure.foreign_put("lb", "shop-web", &[("n7", "10.0.0.7")], now_us);
        azure.wire.intercept(|_, _, _| Fate::Cut);
        Fate::Answered
    };
    record_with_hook(&fakes, first).await;
    let etag = json_of(get(&client, &fakes).await).await["etag"].clone();
    assert_eq!(put(&client, &fakes, "10.0.0.1").await.expect("an answer").status(), 200);
    assert_eq!(ips(&fakes).await, ["10.0.0.1"]);
    let log = fakes.log().await;
    let foreign: Vec<bool> = log.iter().map(|entry| entry.foreign).collect();
    assert_eq!(foreign, [false, true, false]);
    put(&client, &fakes, "10.0.0.2").await.expect_err("the second hook cuts it");
    assert_eq!(ips(&fakes).await, ["10.0.0.1"]);
    fakes.azure.ask(|azure, _| azure.wire.intercept(|_, _, _| Fate::Answered)).await;
    assert_ne!(json_of(get(&client, &fakes).await).await["etag"], etag);
    fakes.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn z1_a_standalone_arm_stops_when_dropped() {
    let arm = Arm::start(quick(), Clock::start()).await.expect("a free port");
    arm.azure.ask(|azure, _| azure.model.add_load_balancer("lb")).await;
    let client = Client::builder().no_proxy().build().expect("a client");
    let subscription = arm::Settings::default().subscription;
    let list = format!(
        "{}/subscriptions/{subscription}/resourceGroups/rg/providers/Microsoft.Network/loadBalancers?api-version=2025-05-01",
        arm.url
    );
    let answer = json_of(client.get(&list).send().await.expect("an answer")).await;
    assert_eq!(answer["value"][0]["name"], "lb");
    drop(arm);
    soon(async { while client.get(&list).send().await.is_ok() {} }).await;
}
