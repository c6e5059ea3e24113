//! Raw requests and their unparsed answers.

use model::arm::FailureKind;
use serde_json::{Value, json};

use super::server::{Server, reply};
use super::settings;
use crate::{RawClient, RawMethod, RawRequest};

fn request(method: RawMethod, target: &str) -> RawRequest {
    RawRequest { method, target: target.to_owned(), api_version: "2025-05-01", if_match: None, body: None }
}

#[tokio::test]
async fn a_request_is_sent_unchanged_and_every_answer_returned() {
    let refusal = reply(412, "Retry-After: 3\r\n", r#"{"error":{"code":"PreconditionFailed"}}"#);
    let mut server = Server::start(vec![refusal, reply(200, "", "no JSON")]).await;
    let client = RawClient::new(settings(&server.endpoint())).unwrap();
    let put = RawRequest {
        if_match: Some("W/\"stale\"".to_owned()),
        body: Some(json!({ "location": "here" })),
        ..request(RawMethod::Put, "/subscriptions/s/virtualNetworks/my net?ipAddress=10.0.0.4")
    };
    let answer = client.send(&put).await.unwrap();
    assert_eq!((answer.status, answer.headers["retry-after"].as_str()), (412, "3"));
    assert_eq!(answer.body["error"]["code"], "PreconditionFailed");
    let received = server.received().unwrap();
    let line =
        "PUT /subscriptions/s/virtualNetworks/my%20net?api-version=2025-05-01&ipAddress=10.0.0.4 HTTP/1.1";
    assert_eq!(received.line, line);
    assert_eq!(
        (received.headers["if-match"].as_str(), received.body.as_str()),
        ("W/\"stale\"", r#"{"location":"here"}"#)
    );

    let poll = format!("{}/operations/1?t=2", server.endpoint());
    assert_eq!(client.send(&request(RawMethod::Get, &poll)).await.unwrap().body, Value::Null);
    assert_eq!(server.received().unwrap().line, "GET /operations/1?t=2 HTTP/1.1");
    let elsewhere = client.send(&request(RawMethod::Get, "https://example.com/operations/1")).await;
    assert_eq!(elsewhere.unwrap_err().kind, FailureKind::Refused);
}
