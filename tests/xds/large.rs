//! A response of the maximum length with only empty messages is rejected and uses little memory (X2, C1).

use envoy_types::pb::envoy::admin::v3::ClientResourceStatus::Nacked;
use simulator::control_plane::{Kind, RecordedRequest};

use super::stage::{Plan, control_plane, endpoints_at, server};

const BEFORE: &str = "10.9.0.1";
const GOOD: &str = "10.1.0.1";
const BETTER: &str = "10.1.0.2";

/// Maximum memory for such a response: 64 MiB more than for 100,000 endpoints, which take 40 MiB.
const MOST: u64 = 104 << 20;

/// The total length of the empty messages: almost the maximum.
const FULL: usize = (16 << 20) - 512;

fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = value.len();
    while length > 0x7f {
        bytes.push(u8::try_from(length & 0x7f).expect("seven bits") | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).expect("seven bits"));
    bytes.extend_from_slice(value);
    bytes
}

/// Returns a response with endpoints.
fn response(rest: &[u8]) -> Vec<u8> {
    let head = [field(1, b"large"), field(4, Kind::Endpoints.type_url().as_bytes()), field(5, b"large")];
    [head.concat(), rest.to_vec()].concat()
}

/// Returns a response whose assignment of `web` has this content.
fn assigned(rest: &[u8]) -> Vec<u8> {
    let assignment = [field(1, b"web"), rest.to_vec()].concat();
    let any = [field(1, Kind::Endpoints.type_url().as_bytes()), field(2, &assignment)].concat();
    response(&field(2, &any))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_a_response_of_empty_messages_costs_little_memory() {
    let plane = control_plane().await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[GOOD])).await;
    let plan = Plan::new().await.pool("web", "eds:web", &[BEFORE]).await;
    let env = plan.start(&[server(&plane, &[])]).await;
    env.wait_for_members("web", &[GOOD]).await;
    let before = env.stage.peak_bytes();
    let rows = [
        ("localities", assigned(&field(2, &[]).repeat(FULL / 2)), "web: endpoints: are"),
        ("endpoints", assigned(&field(2, &field(2, &[]).repeat(FULL / 2))), "web: endpoints: are more than"),
        ("resources", response(&field(2, &[]).repeat(FULL / 2)), "resource index 0: "),
        ("errors", response(&field(7, &[]).repeat(FULL / 2)), "resource_errors index 0: "),
    ];
    for (what, bytes, words) in rows {
        let requests = plane.journal().await.len();
        plane.send_bytes(bytes).await;
        let is_refused =
            |journal: &[RecordedRequest]| journal.iter().skip(requests).any(RecordedRequest::is_nack);
        let journal = plane.wait_until(is_refused).await.expect("it is refused");
        let refusal = format!("{:?}", journal.iter().rev().find(|request| request.is_nack()));
        assert!(refusal.contains(words), "{what}: {refusal}");
        let cost = env.stage.peak_bytes().saturating_sub(before);
        assert!(cost <= MOST, "{what}: {} MiB", cost >> 20);
    }
    env.wait_for_csds_state("web", Nacked).await;
    plane.set(Kind::Endpoints, "web", endpoints_at("web", &[BETTER])).await;
    env.wait_for_members("web", &[BETTER]).await;
    env.wait_for_no_error("web").await;
    assert_eq!(plane.streams().await.opened_us.len(), 1, "there was one stream");
    env.assert_no_logged_errors();
}
