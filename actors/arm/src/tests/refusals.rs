//! The authority refuses a token: the error names the server and its message, immediately, and without useless
//! requests.

use std::time::Duration;

use model::arm::{ArmRequest, FailureKind};
use tokio::time::Instant;

use super::identity::{POOL, of, token};
use super::server::{Reply, Server, reply};
use super::{failure, login, pool_id, pool_read};
use crate::{Client, Identity, ManagedIdentity, Secret};

fn secret() -> Identity {
    let (tenant, client_id) = ("my-tenant".to_owned(), "my-client".to_owned());
    Identity::ClientSecret { tenant, client_id, secret: Secret::new("s3cr3t") }
}

fn managed() -> Identity {
    Identity::Managed(ManagedIdentity::SystemAssigned)
}

async fn start(identity: Identity, replies: Vec<Reply>) -> (Server, Client) {
    let login = login("https://login.test/", "https://management.core.test/");
    of(identity, login, replies, Duration::ZERO).await
}

/// Returns the error after this one answer, and the number of requests.
async fn error_of(identity: Identity, answer: Reply) -> (String, usize) {
    let (mut server, client) = start(identity, vec![answer]).await;
    let failed = failure(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
    assert_eq!(failed.kind, FailureKind::Credential, "{failed}");
    (failed.message.to_string(), std::iter::from_fn(|| server.received()).count())
}

#[tokio::test]
async fn c3_a_refusing_metadata_service_is_reported_with_its_status() {
    let again = "the controller retries automatically";
    let rows = [
        (reply(404, "", r#"{"error":"not_found"}"#), "status 404: not_found; assign the identity"),
        (reply(410, "", ""), again),
        (reply(429, "retry-after: 3600\r\n", ""), again),
        (reply(500, "", "<html>"), again),
        (reply(503, "", ""), again),
        (reply(302, "location: https://elsewhere.test/\r\n", ""), "status 302; check that the pod reaches"),
        (reply(200, "", "welcome"), "cannot be read; the answer is not from the instance metadata service"),
        (
            reply(200, "", r#"{"access_token":"planted","resource":"x","token_type":"Bearer"}"#),
            "cannot be read; the answer is not from the instance metadata service",
        ),
        (Reply::Hangup, "check that the pod reaches the instance metadata service"),
    ];
    for (answer, expected) in rows {
        let began = Instant::now();
        let (error, requests) = error_of(managed(), answer).await;
        assert!(error.starts_with("the managed identity could not sign in: "), "{error}");
        assert!(error.contains(expected) && !error.contains("planted"), "{expected}: {error}");
        assert!(!error.contains("retried") && !error.contains("cloud or AZURE"), "{error}");
        assert_eq!(requests, 1, "{error}");
        assert!(began.elapsed() < Duration::from_secs(10), "{error}");
    }
}

#[tokio::test]
async fn c3_a_busy_login_endpoint_is_reported_with_its_status() {
    let again = "the controller retries automatically";
    let rows = [
        (reply(429, "retry-after: 3600\r\n", ""), "status 429"),
        (reply(503, "retry-after: 3600\r\n", "<html>"), "status 503"),
        (reply(504, "", r#"{"error":"temporarily_unavailable"}"#), "temporarily_unavailable"),
    ];
    for (answer, expected) in rows {
        let (error, requests) = error_of(secret(), answer).await;
        assert!(error.contains(expected) && error.contains(again), "{expected}: {error}");
        assert_eq!(requests, 1, "{error}");
    }
}

#[tokio::test]
async fn c3_escaped_errors_of_a_login_endpoint_are_read() {
    let rows = [
        r#"{"error_description":"AADSTS700016: \"x\" \u0027y\u0027\r\nTrace ID: 1","error_codes":[700016]}"#,
        r#"{"error_description":"AADSTS700016: no","error_codes":["700016", -1, null]}"#,
    ];
    for answer in rows {
        let (error, _) = error_of(secret(), reply(400, "", answer)).await;
        assert!(error.contains("AADSTS700016") && error.contains("check aadClientId"), "{error}");
        assert!(!error.contains("Trace ID"), "{error}");
    }
}

#[tokio::test]
async fn c3_an_answer_without_a_token_is_no_token() {
    for answer in ["{}", r#"{"access_token":"","expires_in":3600,"token_type":"Bearer"}"#] {
        let (error, requests) = error_of(secret(), reply(200, "", answer)).await;
        assert!(
            error.contains("the answer holds no token; the answer is not from a login endpoint"),
            "{error}"
        );
        assert_eq!(requests, 1, "nothing is sent to the endpoint");
    }
}

#[tokio::test]
async fn w5_a_refused_token_is_renewed_without_a_named_scheme() {
    let replies = vec![token("token-1"), reply(401, "", ""), token("token-2"), reply(200, "", POOL)];
    let (mut server, client) = start(secret(), replies).await;
    pool_read(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
    let last = std::iter::from_fn(|| server.received()).last().unwrap();
    assert_eq!(last.headers["authorization"], "Bearer token-2");
}
