//! HTTP requests, and the handling of responses.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use model::arm::{ArmAnswer, ArmRequest, Edit, FailureKind, OperationState, RetryAfter};
use model::ids::{Etag, LbName, Operation};
use model::machine::Now;

use super::server::{Reply, Server, reply};
use super::{NOW, document, failure, permit, pool_id, pool_read, settings};
use crate::{Client, Settings, Timeouts};

const POOL: &str = r#"{"name":"pool","etag":"W/\"body\"","properties":{"provisioningState":"Succeeded",
    "loadBalancerBackendAddresses":[{"name":"n1","properties":{"ipAddress":"10.0.0.4"}}]}}"#;

fn put(send_deadline: Now) -> ArmRequest {
    ArmRequest::PutPool {
        pool: pool_id(),
        base: document(POOL),
        edit: Edit { remove: BTreeSet::from([0]), ..Edit::default() },
        if_match: Some(Etag::new("W/\"seen\"")),
        permit: permit(send_deadline),
        record: Arc::default(),
    }
}

async fn started(replies: Vec<Reply>) -> (Server, Client) {
    let server = Server::start(replies).await;
    let client = Client::new(settings(&server.endpoint())).unwrap();
    (server, client)
}

#[tokio::test]
async fn w3_a_get_and_its_put_have_the_right_url_and_body() {
    let accepted = r#"{"etag":"W/\"new\"","properties":{"provisioningState":"Updating"}}"#;
    let headers = "azure-asyncoperation: https://h/op?t=1\r\nlocation: https://h/other\r\nretry-after: 10\r\nx-ms-correlation-request-id: c-1\r\n";
    let (mut server, client) =
        started(vec![reply(200, "etag: W/\"head\"\r\n", POOL), reply(201, headers, accepted)]).await;
    let read = pool_read(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
    assert_eq!(read.etag, Some(Etag::new("W/\"head\"")));
    assert_eq!(read.facts.etag, Some(Etag::new("W/\"body\"")));
    let answer = client
        .execute(ArmRequest::PutPool {
            pool: pool_id(),
            base: read.document,
            edit: Edit { remove: BTreeSet::from([0]), ..Edit::default() },
            if_match: read.etag,
            permit: permit(NOW),
            record: Arc::default(),
        })
        .await
        .answer;
    let ArmAnswer::Put(accepted) = answer else { panic!("{answer:?}") };
    assert_eq!(accepted.operation, Some(Operation::new("https://h/op?t=1")));
    assert_eq!(accepted.retry_after, RetryAfter::In(Duration::from_secs(10)));
    assert_eq!(accepted.correlation_id.as_deref(), Some("c-1"));
    assert_eq!(accepted.etag, Some(Etag::new("W/\"new\"")));

    let (get, put) = (server.received().unwrap(), server.received().unwrap());
    let path = "/subscriptions/sub/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/lb/backendAddressPools/pool?api-version=2025-05-01";
    assert_eq!(get.line, format!("GET {path} HTTP/1.1"));
    assert_eq!(put.line, format!("PUT {path} HTTP/1.1"));
    assert_eq!(put.headers["if-match"], "W/\"head\"");
    assert_eq!(put.headers["content-type"], "application/json");
    assert!(put.body.contains(r#""loadBalancerBackendAddresses":[]"#), "{}", put.body);
    assert!(!get.headers.contains_key("if-match"));
    for request in [&get, &put] {
        assert_eq!(request.headers["user-agent"], "azure-backend-pool-controller/test");
        assert_eq!(request.headers["x-ms-return-client-request-id"], "true");
        assert!(!request.headers.contains_key("authorization"));
    }
    assert_eq!(put.headers["x-ms-client-request-id"].len(), 36);
    assert_ne!(get.headers["x-ms-client-request-id"], put.headers["x-ms-client-request-id"]);
}

#[tokio::test]
async fn w8_a_put_is_sent_until_its_permit_expires() {
    let (mut server, client) = started(vec![reply(200, "", POOL)]).await;
    let late = failure(client.execute(put(Now::from_micros(NOW.as_micros() - 1))).await.answer);
    assert_eq!(late.kind, FailureKind::PermitExpired);
    assert!(server.received().is_none());
    assert!(matches!(client.execute(put(NOW)).await.answer, ArmAnswer::Put(_)));
    assert!(server.received().is_some());
}

#[tokio::test]
async fn w6_a_closed_gate_stops_only_its_request_class() {
    let (mut server, client) =
        started(vec![reply(200, "", POOL), reply(200, "", POOL), reply(200, "", POOL)]).await;
    let soon = NOW.plus(Duration::from_secs(3));
    client.set_gates(Some(soon), None);
    let shut = failure(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
    assert_eq!(shut.kind, FailureKind::GateClosed);
    assert_eq!(shut.retry_after, RetryAfter::In(Duration::from_secs(3)));
    let poll = ArmRequest::Poll(Operation::new(format!("{}/op", server.endpoint())));
    assert_eq!(failure(client.execute(poll).await.answer).kind, FailureKind::GateClosed);
    assert!(matches!(client.execute(put(NOW)).await.answer, ArmAnswer::Put(_)));

    client.set_gates(Some(NOW), Some(soon));
    assert_eq!(failure(client.execute(put(NOW)).await.answer).kind, FailureKind::GateClosed);
    pool_read(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
    client.set_gates(None, None);
    assert!(matches!(client.execute(put(NOW)).await.answer, ArmAnswer::Put(_)));
    let lines: Vec<String> =
        std::iter::from_fn(|| server.received()).map(|it| it.line[..3].to_owned()).collect();
    assert_eq!(lines, ["PUT", "GET", "PUT"]);
}

#[tokio::test]
async fn w4_a_request_without_an_answer_times_out() {
    let server = Server::start(vec![Reply::Never, Reply::Never]).await;
    let short = Duration::from_millis(50);
    let client = |timeouts| Client::new(Settings { timeouts, ..settings(&server.endpoint()) }).unwrap();
    let puts = client(Timeouts { put: short, ..Timeouts::default() });
    assert_eq!(failure(puts.execute(put(NOW)).await.answer).kind, FailureKind::Timeout);
    let gets = client(Timeouts { get: short, ..Timeouts::default() });
    let load_balancer = ArmRequest::GetLoadBalancer(LbName::new("lb"));
    assert_eq!(failure(gets.execute(load_balancer).await.answer).kind, FailureKind::Timeout);
}

#[tokio::test]
async fn w4_a_broken_or_refused_connection_is_not_retried() {
    let half = "HTTP/1.1 200 OK\r\ncontent-length: 500\r\n\r\n{\"name\":";
    let (mut server, client) = started(vec![Reply::Hangup, Reply::Raw(half.to_owned())]).await;
    // The third request finds no server, and so was certainly not applied.
    for kind in [FailureKind::Connection, FailureKind::Connection, FailureKind::NotConnected] {
        let broken = failure(client.execute(put(NOW)).await.answer);
        assert_eq!(broken.kind, kind, "{broken}");
        assert!(!broken.message.contains("127.0.0.1:"), "no address in {broken}");
    }
    assert_eq!(std::iter::from_fn(|| server.received()).count(), 2);
}

#[tokio::test]
async fn w4_the_client_neither_retries_nor_follows_redirects() {
    let error = r#"{"error":{"code":"ServiceUnavailable","message":"a \"quoted\" word"}}"#;
    let elsewhere = "location: http://127.0.0.1:1/elsewhere\r\n";
    let (mut server, client) = started(vec![
        reply(503, "retry-after: 1\r\n", error),
        reply(429, "retry-after: 0\r\n", error),
        reply(307, elsewhere, ""),
    ])
    .await;
    let busy = failure(client.execute(put(NOW)).await.answer);
    assert_eq!(busy.kind, FailureKind::Status(503));
    assert_eq!(busy.code.as_deref(), Some("ServiceUnavailable"));
    assert_eq!(&*busy.message, "a \"quoted\" word");
    assert_eq!(failure(client.execute(put(NOW)).await.answer).retry_after, RetryAfter::Invalid);
    assert_eq!(failure(client.execute(put(NOW)).await.answer).kind, FailureKind::Status(307));
    assert_eq!(std::iter::from_fn(|| server.received()).count(), 3);
}

#[tokio::test]
async fn w5_a_polling_url_is_unchanged_and_never_foreign() {
    let (mut server, client) = started(vec![reply(200, "", r#"{"status":"InProgress"}"#)]).await;
    let odd = "/subscriptions/s/locations/e/operations/g?api-version=1&t=63%2b9&c=MII+a/b%3d&s=x_-y&h=~";
    let foreign = [
        "https://127.0.0.1/op".to_owned(),
        format!("http://127.0.0.1:{}/op", server.address.port() ^ 1),
        format!("http://localhost:{}/op", server.address.port()),
        format!("http://user@{}/op", server.address),
        "/relative".to_owned(),
        String::new(),
    ];
    for url in foreign {
        let refused = failure(client.execute(ArmRequest::Poll(Operation::new(url.clone()))).await.answer);
        assert_eq!(refused.kind, FailureKind::Refused, "{url}");
    }
    let answer =
        client.execute(ArmRequest::Poll(Operation::new(format!("{}{odd}", server.endpoint())))).await.answer;
    assert!(matches!(answer, ArmAnswer::Operation(OperationState::Running { .. })), "{answer:?}");
    assert_eq!(server.received().unwrap().line, format!("GET {odd} HTTP/1.1"));
    assert!(server.received().is_none());
}

#[tokio::test]
async fn a_put_that_does_not_fit_its_document_is_not_sent() {
    let (mut server, client) = started(vec![reply(200, "", POOL)]).await;
    let request = |base, edit| {
        let (pool, permit, record) = (pool_id(), permit(NOW), Arc::default());
        ArmRequest::PutPool { pool, base, edit, if_match: None, permit, record }
    };
    let beyond = Edit { remove: BTreeSet::from([1]), ..Edit::default() };
    let foreign = model::arm::Document::new("another port's");
    for request in [request(document(POOL), beyond), request(foreign, Edit::default())] {
        assert_eq!(failure(client.execute(request).await.answer).kind, FailureKind::Refused);
    }
    let bad_header = ArmRequest::PutPool {
        pool: pool_id(),
        base: document(POOL),
        edit: Edit::default(),
        if_match: Some(Etag::new("a\r\nb")),
        permit: permit(NOW),
        record: Arc::default(),
    };
    assert_eq!(failure(client.execute(bad_header).await.answer).kind, FailureKind::Refused);
    assert!(server.received().is_none());
}

#[tokio::test]
async fn w9_remaining_quota_is_reported_with_every_answer() {
    let left = "x-ms-ratelimit-remaining-subscription-reads: 11\r\n\
                x-ms-ratelimit-remaining-resource: A/B;41,C/D;5\r\n";
    let replies = vec![reply(200, left, POOL), reply(429, left, ""), Reply::Hangup];
    let server = Server::start(replies).await;
    let client = Client::new(settings(&server.endpoint())).unwrap();
    let mut results = Vec::new();
    for _ in 0..3 {
        let answered = client.execute(ArmRequest::GetPool(pool_id())).await;
        results.push((matches!(answered.answer, ArmAnswer::Pool(_)), answered.headroom.reads));
    }
    assert_eq!(results, [(true, Some(5)), (false, Some(5)), (false, None)]);
}
