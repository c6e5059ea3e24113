//! Tokens: the requests for them, their renewal, and permits during a request.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use azure_core::http::{Method, Transport};
use model::arm::{ArmRequest, Edit, FailureKind};
use model::machine::Now;
use url::Url;

use super::server::{Detour, Reply, Server, reply};
use super::{NOW, WALL, document, failure, login, permit, pool_id, pool_read, settings};
use crate::transport::HttpTransport;
use crate::{Client, Clocks, Identity, Login, Settings};

pub(super) const POOL: &str = r#"{"properties":{"loadBalancerBackendAddresses":[]}}"#;
const CHALLENGE: &str = "www-authenticate: Bearer authorization_uri=\"https://login.test\"\r\n";

pub(super) fn token(token: &str) -> Reply {
    let body = format!(
        r#"{{"token_type":"Bearer","expires_in":3600,"ext_expires_in":3600,"access_token":"{token}"}}"#
    );
    reply(200, "content-type: application/json\r\n", &body)
}

pub(super) struct Fixture {
    pub(super) server: Server,
    pub(super) client: Client,
    /// Kept because dropping it deletes the file.
    pub(super) file: tempfile::NamedTempFile,
}

/// Creates a client with workload identity, whose clock advances by `token_takes` with each token request.
pub(super) async fn fixture(replies: Vec<Reply>, assertion: &str, token_takes: Duration) -> Fixture {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), assertion).unwrap();
    let identity = Identity::WorkloadIdentity {
        tenant: "my-tenant".to_owned(),
        client_id: "my-client".to_owned(),
        token_file: PathBuf::from(file.path()),
    };
    let login = login("https://login.test", "https://management.test");
    let (server, client) = of(identity, login, replies, token_takes).await;
    Fixture { server, client, file }
}

/// Creates a client with this identity, whose clock advances by `token_takes` with each POST.
pub(super) async fn of(
    identity: Identity,
    login: Login,
    replies: Vec<Reply>,
    token_takes: Duration,
) -> (Server, Client) {
    let server = Server::start(replies).await;
    let clock = Arc::new(AtomicU64::new(NOW.as_micros()));
    let read = Arc::clone(&clock);
    let settings = Settings {
        endpoint: Url::parse("https://management.test").unwrap(),
        identity,
        login,
        clocks: Clocks {
            now: Arc::new(move || Now::from_micros(read.load(Ordering::SeqCst))),
            wall: Arc::new(|| WALL),
        },
        ..settings(&server.endpoint())
    };
    let plain = super::settings(&server.endpoint());
    let detour = Detour {
        inner: HttpTransport::new(&plain).unwrap(),
        to: server.address,
        on_request: move |method| {
            if method == Method::Post {
                clock.fetch_add(u64::try_from(token_takes.as_micros()).unwrap(), Ordering::SeqCst);
            }
        },
    };
    let client = Client::with_transport(settings, Transport::new(Arc::new(detour))).unwrap();
    (server, client)
}

fn put() -> ArmRequest {
    ArmRequest::PutPool {
        pool: pool_id(),
        base: document(POOL),
        edit: Edit::default(),
        if_match: None,
        permit: permit(NOW.plus(Duration::from_secs(1))),
        record: Arc::default(),
    }
}

#[tokio::test]
async fn c3_workload_identity_sends_one_token_for_its_file() {
    let replies = vec![token("token-1"), reply(200, "", POOL), reply(200, "", POOL)];
    let Fixture { mut server, client, file: _file } = fixture(replies, "assertion-1", Duration::ZERO).await;
    for _ in 0..2 {
        pool_read(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
    }
    let request = server.received().unwrap();
    assert_eq!(request.line, "POST /my-tenant/oauth2/v2.0/token HTTP/1.1");
    assert_eq!(request.headers["x-meant-for"], "login.test");
    assert!(!request.headers.contains_key("authorization"));
    for part in [
        "client_assertion=assertion-1",
        "client_id=my-client",
        "scope=https%3A%2F%2Fmanagement.test%2F.default",
    ] {
        assert!(request.body.contains(part), "{}", request.body);
    }
    for _ in 0..2 {
        let get = server.received().unwrap();
        assert_eq!(get.headers["authorization"], "Bearer token-1");
        assert_eq!(get.headers["x-meant-for"], "management.test");
    }
}

#[tokio::test]
async fn w5_a_refused_token_is_renewed_once_from_the_file() {
    let replies = vec![
        token("token-1"),
        reply(200, "", POOL),
        reply(401, CHALLENGE, ""),
        token("token-2"),
        reply(200, "", POOL),
    ];
    let Fixture { mut server, client, file } = fixture(replies, "assertion-1\n", Duration::ZERO).await;
    pool_read(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
    std::fs::write(file.path(), "assertion-2\n").unwrap();
    pool_read(client.execute(ArmRequest::GetPool(pool_id())).await.answer);
    let all: Vec<_> = std::iter::from_fn(|| server.received()).collect();
    assert!(all[0].body.contains("client_assertion=assertion-1&"), "without the line's end");
    assert_eq!(all[1].headers["authorization"], "Bearer token-1");
    assert_eq!(all[2].headers["authorization"], "Bearer token-1");
    assert!(all[3].body.contains("client_assertion=assertion-2&"));
    assert_eq!(all[4].headers["authorization"], "Bearer token-2");
    assert_eq!(all[2].headers["x-ms-client-request-id"], all[4].headers["x-ms-client-request-id"]);

    let refused = vec![token("a"), reply(401, CHALLENGE, ""), token("b"), reply(401, CHALLENGE, "")];
    let Fixture { client, server: _server, file: _file } = fixture(refused, "x", Duration::ZERO).await;
    assert_eq!(failure(client.execute(put()).await.answer).kind, FailureKind::Status(401));
}

#[tokio::test]
async fn w8_a_permit_that_expires_during_a_token_request_stops_a_put() {
    let replies = vec![token("token-1"), reply(200, "", POOL)];
    let Fixture { mut server, client, file: _file } = fixture(replies, "x", Duration::from_secs(2)).await;
    assert_eq!(failure(client.execute(put()).await.answer).kind, FailureKind::PermitExpired);
    assert!(server.received().unwrap().line.starts_with("POST "));
    assert!(server.received().is_none());
}

#[tokio::test]
async fn w8_a_permit_that_expires_during_renewal_stops_the_put() {
    let replies = vec![token("a"), reply(401, CHALLENGE, ""), token("b"), reply(200, "", POOL)];
    let Fixture { mut server, client, file: _file } = fixture(replies, "x", Duration::from_millis(600)).await;
    assert_eq!(failure(client.execute(put()).await.answer).kind, FailureKind::PermitExpired);
    let lines: Vec<String> =
        std::iter::from_fn(|| server.received()).map(|it| it.line[..4].to_owned()).collect();
    assert_eq!(lines, ["POST", "PUT ", "POST"]);
}

#[tokio::test]
async fn w6_a_stopped_try_requests_no_token() {
    let Fixture { mut server, client, file: _file } = fixture(vec![token("a")], "x", Duration::ZERO).await;
    client.set_gates(Some(Now::NEVER), Some(Now::NEVER));
    assert_eq!(
        failure(client.execute(ArmRequest::GetPool(pool_id())).await.answer).kind,
        FailureKind::GateClosed
    );
    client.set_gates(None, None);
    let mut late = put();
    if let ArmRequest::PutPool { permit, .. } = &mut late {
        permit.send_deadline = Now::ZERO;
    }
    assert_eq!(failure(client.execute(late).await.answer).kind, FailureKind::PermitExpired);
    assert!(server.received().is_none());
}

#[tokio::test]
async fn c3_a_refused_token_is_a_credential_failure() {
    let body = r#"{"error":"invalid_client","error_description":"AADSTS700016: no such application"}"#;
    let Fixture { client, server: _server, file: _file } =
        fixture(vec![reply(400, "", body)], "x", Duration::ZERO).await;
    let failed = failure(client.execute(put()).await.answer);
    assert_eq!(failed.kind, FailureKind::Credential);
    assert!(failed.message.contains("AADSTS700016"), "{failed}");
}
