//! The pace of requests to a faulty control plane, and messages that cannot be decoded (A46, A57, X2).

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::Nacked;
use simulator::control_plane::{
    Bad, ControlPlane, DiscoveryResponse, Ending, Kind, Locality, RecordedRequest, StreamBehaviour, endpoints,
};

use super::stage::{Plan, TestEnvironment, control_plane, endpoints_at, server};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";
const BETTER: &str = "10.1.0.2";

async fn env(plane: &ControlPlane) -> TestEnvironment {
    for name in ["web", "mail"] {
        plane.set(Kind::Endpoints, name, endpoints_at(name, &[GOOD])).await;
    }
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.pool("mail", "eds:mail", &[BEFORE]).await.start(&[server(plane, &[])]).await;
    for pool in ["web", "mail"] {
        env.wait_for_members(pool, &[GOOD]).await;
    }
    env
}

/// Returns the time of each ACK in the journal, in microseconds.
fn acks(journal: &[RecordedRequest]) -> Vec<u64> {
    journal.iter().filter(|request| request.is_ack()).map(|request| request.at_us).collect()
}

/// Returns the intervals between these times, in whole tenths of a second.
fn gaps(at_us: &[u64]) -> Vec<u64> {
    at_us.windows(2).map(|pair| (pair[1] - pair[0]) / 100_000).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a_repeated_bad_response_is_answered_less_and_less_often() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    plane.repeat_on_nack(true).await;
    plane.set_bad(Kind::Endpoints, "web", Bad::Content).await;
    let nacks = |journal: &[RecordedRequest]| {
        journal.iter().filter(|request| request.is_nack()).map(|request| request.at_us).collect::<Vec<u64>>()
    };
    let journal = plane.wait_until(|journal| nacks(journal).len() >= 4).await.expect("NACKs");
    let gaps = gaps(&nacks(&journal));
    for (gap, least) in gaps.iter().zip([9, 19, 39]) {
        assert!(*gap >= least, "at least {least} tenths of a second lie between NACKs: {gaps:?}");
    }
    // During the wait before the next NACK, valid resources are accepted immediately.
    let before = plane.journal().await.len();
    plane.set(Kind::Endpoints, "mail", endpoints_at("mail", &[BETTER])).await;
    env.wait_for_members("mail", &[BETTER]).await;
    env.wait_for_note("web", "no-address").await;
    let nacked = env.metric("backend_pool_controller_xds_nacks_total", &[]).await;
    assert!((4.0..7.0).contains(&nacked), "{nacked} NACKs were sent");
    let count = plane.journal().await.len();
    assert!(count - before <= 3, "{count} requests after {before}");
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[GOOD], 1).await;
    env.assert_members_and_puts("mail", &[BETTER], 2).await;
    plane.repeat_on_nack(false).await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    env.wait_for_no_error("web").await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_paced_acks_do_not_delay_changes() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    let before = acks(&plane.journal().await);
    plane.repeat_on_ack(true).await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[BETTER])).await;
    env.wait_for_members("web", &[BETTER]).await;
    let many = before.len() + 80;
    let journal = plane.wait_until(|journal| acks(journal).len() >= many).await.expect("ACKs");
    // 50 in a burst, and then one every 100 ms: 80 take at least this long, however late they arrive.
    let took_ms = (acks(&journal)[many - 1] - before.last().expect("those of the start")) / 1_000;
    assert!(took_ms >= 2_900, "80 ACKs in {took_ms} ms");
    plane.set(Kind::Endpoints, "mail", endpoints_at("mail", &[BETTER])).await;
    env.wait_for_members("mail", &[BETTER]).await;
    plane.repeat_on_ack(false).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[BETTER], 2).await;
    env.assert_members_and_puts("mail", &[BETTER], 2).await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_messages_that_cannot_be_read_are_paced() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    let before = acks(&plane.journal().await).len();
    let began_us = plane.now_us().await;
    for _ in 0..80 {
        plane.send_bytes(vec![0xff; 7]).await;
    }
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[BETTER])).await;
    env.wait_for_members("web", &[BETTER]).await;
    let acks = acks(&plane.journal().await);
    let took_ms = (acks[before] - began_us) / 1_000;
    assert!(took_ms >= 2_500, "80 messages and a good one were read in {took_ms} ms");
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a46_the_good_part_of_a_response_is_used() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    // `web` is invalid, and `mail` in the same response is not.
    let (good, wrong) =
        (endpoints_at("mail", &[BETTER]), endpoints("web", [Locality::of([("no-address", 80)])]));
    plane.set_all(Kind::Endpoints, [("web".to_owned(), wrong), ("mail".to_owned(), good)]).await;
    env.wait_for_members("mail", &[BETTER]).await;
    env.wait_for_csds_state("web", Nacked).await;
    env.wait_for_no_error("mail").await;

    // Bytes that are no resource have no name: the response is rejected without an error of a resource.
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    env.wait_for_no_error("web").await;
    plane.set_bad(Kind::Endpoints, "web", Bad::Bytes).await;
    plane.wait_until(|journal| journal.last().is_some_and(RecordedRequest::is_nack)).await.expect("a NACK");
    env.wait_for_no_error("web").await;
    // With a wrapper that has the name, the error belongs to the resource.
    plane.wrap(true).await;
    plane.set_bad(Kind::Endpoints, "web", Bad::Bytes).await;
    assert!(!env.wait_for_csds_state("web", Nacked).await.version.is_empty());
    // A message that is no response, and a response of a type that was not requested.
    plane.send_bytes(vec![0xff; 7]).await;
    let other = DiscoveryResponse {
        type_url: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration".to_owned(),
        resources: vec![endpoints_at("web", &[BETTER])],
        ..DiscoveryResponse::default()
    };
    plane.send(other).await;
    // An empty response about endpoints deletes nothing.
    let empty =
        DiscoveryResponse { type_url: Kind::Endpoints.type_url().to_owned(), ..DiscoveryResponse::default() };
    let count = plane.journal().await.len();
    plane.send(empty).await;
    plane.wait_until(|journal| journal.len() > count).await.expect("an ACK");
    env.flush_writes().await;
    let mail = env.wait_for_csds(Kind::Endpoints, "mail", |_| true).await;
    assert!(mail.is_good(), "a response does not delete missing endpoints: {mail:?}");
    env.assert_members_and_puts("web", &[GOOD], 1).await;
    env.assert_members_and_puts("mail", &[BETTER], 2).await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[BETTER])).await;
    env.wait_for_members("web", &[BETTER]).await;
    env.wait_for_no_error("web").await;
    assert_eq!(plane.streams().await.opened_us.len(), 1, "there was one stream");
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_a57_a_server_that_ends_its_streams_is_used_less_often() {
    let plane = control_plane().await;
    let env = env(&plane).await;
    plane.behave(StreamBehaviour::EndsStreams(Ending::Cleanly)).await;
    plane.cut(Ending::Cleanly).await;
    let streams = plane.wait_for_streams(|streams| streams.opened_us.len() >= 5).await.expect("new streams");
    let gaps = gaps(&streams.opened_us);
    // The first stream stayed open while it was valid. The waits of 1, 1.6 and 2.56 s vary by a fifth.
    for (gap, least) in gaps.iter().skip(1).zip([8, 12, 20]) {
        assert!(*gap >= least, "{gaps:?}");
    }
    plane.behave(StreamBehaviour::Answers).await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[BETTER])).await;
    env.wait_for_members("web", &[BETTER]).await;
    env.wait_for_no_error("web").await;

    // A response resets the wait; without it, the next wait would be at least 5.2 s.
    for _ in 0..2 {
        let opened = plane.streams().await.opened_us.len();
        let ended = plane.now_us().await;
        plane.cut(Ending::Cleanly).await;
        let next = plane.wait_for_streams(|streams| streams.opened_us.len() > opened).await;
        let took = (next.expect("a new stream").opened_us[opened] - ended) / 100_000;
        assert!((8..40).contains(&took), "a stream after {took} tenths of a second");
        let is_acknowledged = |request: &RecordedRequest| request.stream > opened as u64 && request.is_ack();
        plane
            .wait_until(|journal| journal.iter().any(is_acknowledged))
            .await
            .expect("a response was received");
    }
    env.wait_for_no_error("web").await;
    env.assert_no_logged_errors();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn x2_requests_do_not_wait_for_the_headers_of_the_server() {
    let plane = control_plane().await;
    plane.hold_headers(true).await;
    let env = env(&plane).await;
    plane.cut(Ending::Connections).await;
    plane.wait_for_streams(|streams| streams.opened_us.len() == 2).await.expect("another stream");
    // While the server is silent nothing changes, and no pending response is lost.
    plane.behave(StreamBehaviour::Silent).await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[BETTER])).await;
    env.flush_writes().await;
    env.assert_members_and_puts("web", &[GOOD], 1).await;
    plane.behave(StreamBehaviour::Answers).await;
    env.wait_for_members("web", &[BETTER]).await;
    env.wait_for_no_error("web").await;
    env.assert_no_logged_errors();
}
