//! The end of the process while no server answers (W8): Azure does not answer a write, and the API server accepts
//! connections and does not answer.

use std::sync::Arc;
use std::time::Duration;

use azure_backend_pool_controller::{END_TIMEOUT, SHUTDOWN_TIMEOUT};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::Instant;

use super::stage::{Prepared, add_service};
use super::web::one_is_written_and_one_waits;
use crate::support::proxy::Proxy;

/// The controller's own Lease.
const OWN: &str = "kube-system/azure-backend-pool-controller";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w8_without_answers_the_process_ends_in_time() {
    let prepared = Prepared::new(1).await;
    for name in ["slow", "waits"] {
        add_service(&prepared.fakes, name, &[0]).await;
    }
    let (_, server) = prepared.fakes.kubernetes_url.split_once("//").expect("a URL has a scheme");
    let way = Proxy::start(server.parse().expect("the fake is at an address")).await;
    let mut stage = prepared.start_by(way.address()).await;
    stage.wait_until_ready().await;
    stage.shown("/api/v1/status", |status| status["leadership"]["role"] == "leader").await;
    for name in ["slow", "waits"] {
        stage.verdict(name, "in sync: ").await;
    }
    let _unanswered = one_is_written_and_one_waits(&stage).await;
    let fakes = Arc::clone(&stage.fakes);
    assert_eq!(fakes.counters().await.pool_puts, 1, "one is written, and one waits");

    way.cut();
    let signalled_at = Instant::now();
    stage.signal(Signal::TERM);
    let status = stage.ended().await;
    let took = signalled_at.elapsed();
    let log = stage.log();
    assert_eq!(status.code(), Some(0), "{log:?}");
    let promised = SHUTDOWN_TIMEOUT + Duration::from_secs(END_TIMEOUT);
    assert!(took <= promised, "it has ended after {took:?}, not within {promised:?}: {log:?}");
    assert_eq!(fakes.counters().await.pool_puts, 1, "no waiting write is started: {log:?}");

    let lines_with =
        |message: &str| log.iter().filter(|line| line["message"] == message).collect::<Vec<&Value>>();
    let [write] = lines_with("failed to write backend pool")[..] else {
        panic!("not one failed write: {log:?}")
    };
    let failure = write["failure"].as_str().unwrap_or_default();
    assert!(write["pool"] == "kubernetes/shop-slow" && failure.starts_with("no answer in time"), "{write}");
    let leases = lines_with("failed to read or write a Lease");
    assert!(leases.iter().any(|line| line["lease"] == OWN && line["request"] == "write"), "{log:?}");
    assert_eq!(
        lines_with("released the Lease"),
        Vec::<&Value>::new(),
        "the Lease was not logged as released"
    );
    let left = lines_with("a Lease may not have been released");
    let leases = left.iter().filter_map(|line| line["lease"].as_str());
    assert_eq!(leases.collect::<Vec<_>>(), ["own", "shared"], "{log:?}");
    assert_eq!((lines_with("SIGTERM: shutting down").len(), lines_with("stopped").len()), (1, 1), "{log:?}");
    assert!(log.iter().all(|line| line["level"] != "ERROR"), "{log:?}");
}
