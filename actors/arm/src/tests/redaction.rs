//! No secret appears in any log, at any level, nor in anything that can be printed.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use model::arm::ArmRequest;
use model::ids::Operation;

use super::identity::{Fixture, POOL, fixture, of, token};
use super::server::{Reply, reply};
use super::{failure, login, pool_id, response};
use crate::credential::test_certificates::{self, PASSWORD};
use crate::{Identity, ManagedIdentity, Secret};

const TOKEN: &str = "planted-access-token";
const ASSERTION: &str = "planted-assertion";
const SIGNATURE: &str = "planted-signature";

const SECRET: &str = "planted/secret+with&signs";
const SECRET_ENCODED: &str = "planted%2Fsecret%2Bwith%26signs";
const JWT: &str = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJwbGFudGVkIn0.cGxhbnRlZA";

/// Returns the visible output of clients with every identity, whose authorities echo requests: all printable text of
/// the client, its settings and its failures.
async fn of_every_identity() -> String {
    let made = test_certificates::make();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), made.pkcs12()).unwrap();
    let assertion = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(assertion.path(), JWT).unwrap();
    let (tenant, client_id) = ("t".to_owned(), "c".to_owned());
    let identities = [
        Identity::ClientSecret {
            tenant: tenant.clone(),
            client_id: client_id.clone(),
            secret: Secret::new(SECRET),
        },
        Identity::ClientCertificate {
            tenant: tenant.clone(),
            client_id: client_id.clone(),
            path: file.path().to_owned(),
            password: Some(Secret::new(PASSWORD)),
        },
        Identity::WorkloadIdentity { tenant, client_id, token_file: assertion.path().to_owned() },
        Identity::Managed(ManagedIdentity::SystemAssigned),
    ];
    let echo = format!(
        "AADSTS1: {SECRET} {SECRET_ENCODED} client_secret={SECRET_ENCODED}&x {PASSWORD} {JWT}, t={JWT}."
    );
    let json = serde_json::json!({ "error_description": echo, "error_codes": [1] }).to_string();
    let wrong =
        format!(r#"{{"access_token": ["{TOKEN}"], "expires_on": "{TOKEN}", "expires_in": "{TOKEN}"}}"#);
    let mut printed = String::new();
    for identity in identities {
        // An authority may send its own data; only the data that its client has sent is secret here.
        let own = match &identity {
            Identity::ClientSecret { .. } => json.replace(PASSWORD, ""),
            Identity::ClientCertificate { .. } => json.replace(SECRET, "").replace(SECRET_ENCODED, ""),
            Identity::Anonymous | Identity::Managed(_) | Identity::WorkloadIdentity { .. } => {
                serde_json::json!({ "error_description": JWT }).to_string()
            }
        };
        for answer in [reply(400, "", &own), reply(418, "", &own), reply(200, "", &wrong)] {
            let login = login("https://login.test", "https://management.test");
            let (mut server, client) = of(identity.clone(), login, vec![answer], Duration::ZERO).await;
            let answered = client.execute(ArmRequest::GetPool(pool_id())).await.answer;
            assert!(server.received().is_some());
            printed.push_str(&format!("{identity:?} {client:?} {answered:?}\n"));
        }
    }
    assert!(printed.contains("<redacted>"), "something was redacted: {printed}");
    printed
}

/// Sends log output to the test.
struct Log(Sender<Vec<u8>>);

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Captures the log of this whole process, of `tracing` and of `log`, at the finest level.
fn capture() -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::TRACE)
        .with_writer(move || Log(sender.clone()))
        .with_ansi(false)
        .init();
    receiver
}

#[tokio::test]
async fn c1_no_token_assertion_secret_or_signature_is_logged() {
    let receiver = capture();
    let challenge = "www-authenticate: Bearer realm=\"\"\r\n";
    let replies = vec![
        token(TOKEN),
        reply(401, challenge, ""),
        token(TOKEN),
        reply(200, "", POOL),
        reply(500, "", "broken"),
        Reply::Hangup,
        reply(202, "", ""),
    ];
    let Fixture { client, mut server, file: _file } = fixture(replies, ASSERTION, Duration::ZERO).await;
    let poll = format!("https://management.test/operations/1?api-version=1&s={SIGNATURE}");
    let mut printed = format!("{client:?}");
    for request in [
        ArmRequest::GetPool(pool_id()),
        ArmRequest::GetPool(pool_id()),
        ArmRequest::Poll(Operation::new(poll.clone())),
        ArmRequest::Poll(Operation::new(poll.clone())),
        ArmRequest::Poll(Operation::new(poll)),
    ] {
        printed.push_str(&format!("{:?}", client.execute(request).await));
    }
    let sent: Vec<_> = std::iter::from_fn(|| server.received()).collect();
    assert_eq!(sent.len(), 7, "each secret was sent");
    assert!(sent[0].body.contains(ASSERTION) && sent[3].headers["authorization"].contains(TOKEN));
    assert!(sent[4..].iter().all(|it| it.headers["authorization"].contains(TOKEN)));
    assert!(sent[6].line.contains(SIGNATURE));

    printed.push_str(&of_every_identity().await);

    let logged: Vec<u8> = receiver.try_iter().flatten().collect();
    let logged = String::from_utf8_lossy(&logged);
    assert!(logged.contains("==> Request") && logged.contains("DEBUG arm::client"), "the log was captured");
    for line in logged.lines().chain(printed.lines()) {
        for secret in [TOKEN, ASSERTION, SIGNATURE, SECRET, SECRET_ENCODED, PASSWORD, JWT] {
            assert!(!line.contains(secret), "{line}");
        }
    }
}

/// ARM echoes a token without its scheme, in every part of a response.
#[tokio::test]
async fn c1_an_echoed_token_without_a_scheme_is_never_shown() {
    const OPAQUE: &str = "opaque+planted/repeated==";
    let escaped = r"opaque\u002Bplanted\/repeated\u003d=";
    let encoded = "opaque%2Bplanted%2Frepeated%3D%3D";
    let base64 = "b3BhcXVlK3BsYW50ZWQvcmVwZWF0ZWQ9PQ";
    let cut = &OPAQUE[..20];
    let header = format!("x-ms-correlation-request-id: {OPAQUE}\r\n");
    let bodies = [
        OPAQUE.to_owned(),
        format!("<html><title>{OPAQUE} {encoded}</title></html>"),
        format!(r#"{{"error":{{"code":"{OPAQUE}","message":"no {OPAQUE}, {encoded}, {base64}, {cut}"}}}}"#),
        format!(r#"{{"error":{{"code":"A","message":"no {escaped}","details":[{{"code":"{OPAQUE}"}}]}}}}"#),
        // The body is truncated within the message, and the message is JSON in JSON.
        format!(r#"{{"error":{{"code":"A","message":"no {escaped} and"#),
        serde_json::Value::from(format!(r#"{{"error":{{"code":"A","message":"no {OPAQUE}"}}}}"#)).to_string(),
    ];
    let mut replies = vec![token(OPAQUE)];
    replies.extend(bodies.iter().map(|body| reply(400, &header, body)));
    replies.extend(bodies.iter().map(|body| reply(200, &header, body)));
    let operation = format!("azure-asyncoperation: https://elsewhere.test/{OPAQUE}?t={OPAQUE}\r\n{header}");
    replies.push(reply(202, &operation, "{}"));
    let count = replies.len() - 1;
    let Fixture { client, server: _server, file: _file } = fixture(replies, "x", Duration::ZERO).await;
    let mut shown = String::new();
    for n in 0..count {
        let request = if n + 1 == count {
            ArmRequest::Poll(Operation::new(format!("https://management.test/operations/{OPAQUE}?t=1")))
        } else {
            ArmRequest::GetPool(pool_id())
        };
        let answered = client.execute(request).await;
        if let model::arm::ArmAnswer::Failed(failure) = &answered.answer {
            shown.push_str(&failure.to_string());
        }
        shown.push_str(&format!("{answered:?}\n"));
    }
    assert!(shown.contains("<redacted>"), "{shown}");
    for part in ["opaque", "planted", base64] {
        assert!(!shown.contains(part), "{shown}");
    }
}

#[test]
fn every_part_of_a_failure_is_one_printable_line() {
    const HOSTILE: &str = "a\u{1b}[2J\u{7}\u{202e}\u{9b}b";
    const SHOWN: &str = "a\\u{1b}[2J\\u{7}\\u{202e}\\u{9b}b";
    let body = serde_json::json!({ "error": {
        "code": HOSTILE, "message": format!("{HOSTILE}\n{HOSTILE}"), "details": [{ "code": HOSTILE }],
    } });
    let answer = response(400, &[("x-ms-correlation-request-id", HOSTILE)], &body.to_string());
    let failure = failure(crate::answer::pool(&pool_id(), &answer));
    assert_eq!(failure.code.as_deref(), Some(SHOWN));
    assert_eq!(failure.inner_codes.iter().map(|code| &**code).collect::<Vec<_>>(), [SHOWN]);
    assert_eq!(failure.correlation_id.as_deref(), Some(SHOWN));
    assert_eq!(*failure.message, format!("{SHOWN} {SHOWN}"));
}
