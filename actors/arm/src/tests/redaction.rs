//! No secret in any log, at any level, nor in anything that can be printed.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use pool_core::arm::ArmRequest;
use pool_core::ids::Operation;

use super::identity::{Fixture, POOL, fixture, token};
use super::pool_id;
use super::server::{Reply, reply};

const TOKEN: &str = "planted-access-token";
const ASSERTION: &str = "planted-assertion";
const SIGNATURE: &str = "planted-signature";

/// Sends what is logged to the test.
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

/// Takes the log of this whole process, of `tracing` and of `log`, at the finest level.
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
async fn neither_token_nor_assertion_nor_signature_is_ever_logged_or_printed() {
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
    assert_eq!(sent.len(), 7, "each of them has really been sent");
    assert!(sent[0].body.contains(ASSERTION) && sent[3].headers["authorization"].contains(TOKEN));
    assert!(sent[4..].iter().all(|it| it.headers["authorization"].contains(TOKEN)));
    assert!(sent[6].line.contains(SIGNATURE));

    let logged: Vec<u8> = receiver.try_iter().flatten().collect();
    let logged = String::from_utf8_lossy(&logged);
    assert!(logged.contains("==> Request") && logged.contains("DEBUG arm::client"), "the log was captured");
    for line in logged.lines().chain(printed.lines()) {
        for secret in [TOKEN, ASSERTION, SIGNATURE] {
            assert!(!line.contains(secret), "{line}");
        }
    }
}
