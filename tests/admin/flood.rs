//! Clients that pipeline many requests, read no responses, or only hold connections open use little memory and do not
//! delay other clients, such as the kubelet with its probes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use reqwest::Method;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use super::stage::Stage;
use super::tls::secured_by;
use crate::support::certificates::Authority;
use crate::support::{TEST_TIMEOUT, eventually, limit};

/// Number of clients that send at the same time, on a listener with at most 512 connections.
const ATTACKERS: usize = 500;
/// Number of bytes that each client sends.
const EACH: usize = 128 << 10;
/// Maximum memory for all of them, in bytes.
const COST: u64 = 64 << 20;
/// Maximum latency of other clients: on an idle machine, and while other tests run.
const ANSWER_TIMEOUT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Pipelines many requests, with TLS if there is a connector. Returns the number of responses.
async fn attack(listener: &str, tls: Option<&TlsConnector>) -> usize {
    let connection = TcpStream::connect(listener).await.expect("the listener takes connections");
    let Some(tls) = tls else { return send_many(connection).await };
    let name = ServerName::try_from("localhost").expect("a name");
    match tls.connect(name, connection).await {
        Ok(connection) => send_many(connection).await,
        // Too many connections are in their handshake.
        Err(_) => 0,
    }
}

async fn send_many(connection: impl AsyncRead + AsyncWrite) -> usize {
    let request = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let (mut from, mut to) = tokio::io::split(connection);
    let many = request.repeat(EACH / request.len());
    let mut answers = Vec::new();
    // Unread requests may reset the connection before the response.
    let sending = async {
        let sent = to.write_all(&many).await;
        // With TLS, written bytes may not be sent yet.
        sent.and(to.flush().await)
    };
    let (_, _) = tokio::join!(sending, from.read_to_end(&mut answers));
    String::from_utf8_lossy(&answers).matches("HTTP/1.1 ").count()
}

/// Returns a connector that trusts this authority.
fn connector(authority: &Authority) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    let pem = CertificateDer::from_pem_slice(authority.pem().as_bytes()).expect("a certificate");
    roots.add(pem).expect("an authority");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("the provider has them").with_root_certificates(roots).with_no_client_auth();
    TlsConnector::from(Arc::new(config))
}

/// Number of clients that hold connections open and send nothing: the listener's limit, and more that wait.
const IDLE: usize = 2_500;
/// Maximum latency of probes: a second, and more while other tests run.
const PROBE_TIMEOUT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(8));

/// Holds a connection from another address open, and reopens it whenever it ends.
async fn idle(listener: SocketAddr) {
    loop {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.bind(([127, 0, 0, 2], 0).into()).expect("a free port");
        match socket.connect(listener).await {
            Ok(mut connection) => drop(connection.read(&mut [0; 99]).await),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Sends a request and does not read the response.
async fn ask(listener: &str, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4 << 10).expect("a small buffer");
    let address = listener.parse().expect("an address");
    let mut connection = socket.connect(address).await.expect("the listener takes connections");
    let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    connection.write_all(request.as_bytes()).await.expect("the connection is open");
    connection
}

/// Raises the limit of connections of this process and its children.
fn with_many_connections() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
}

async fn is_flooded(stage: &Stage, listener: &str, tls: Option<&TlsConnector>) {
    let before = stage.peak_bytes();
    let attackers = join_all((0..ATTACKERS).map(|_| attack(listener, tls)));
    let others = async {
        let mut slowest = Duration::ZERO;
        for _ in 0..50 {
            let began = Instant::now();
            assert_eq!(stage.health("/livez").await.status, 200);
            slowest = slowest.max(began.elapsed());
        }
        slowest
    };
    let both = async { tokio::join!(attackers, others) };
    let (answers, slowest) = tokio::time::timeout(TEST_TIMEOUT, both).await.expect("all connections end");
    let cost = stage.peak_bytes().saturating_sub(before);
    assert!(cost < COST, "{ATTACKERS} connections to {listener} took {} KiB", cost >> 10);
    let (goal, shared) = ANSWER_TIMEOUT;
    assert!(slowest < limit(goal, shared), "another client waited for {slowest:?}");
    assert!(answers.iter().all(|count| *count <= 1), "{answers:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_pipelined_requests_cost_no_memory_and_no_time() {
    with_many_connections();
    let stage = Stage::ready(1).await;
    is_flooded(&stage, &stage.health, None).await;
    is_flooded(&stage, &stage.admin, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_pipelined_requests_with_tls_cost_no_memory_and_no_time() {
    with_many_connections();
    let authority = Authority::new("flooded");
    let (stage, _secret) = secured_by(&authority).await;
    is_flooded(&stage, &stage.admin_tls, Some(&connector(&authority))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_idle_connections_do_not_delay_probes() {
    with_many_connections();
    let stage = Stage::ready(1).await;
    let listener: SocketAddr = stage.health.parse().expect("an address");
    let attackers: Vec<_> = (0..IDLE).map(|_| tokio::spawn(idle(listener))).collect();
    // The attack lasts longer than a connection may be idle.
    let until = Instant::now() + Duration::from_secs(6);
    let mut probes = 0;
    while Instant::now() < until {
        let began = Instant::now();
        assert_eq!(stage.health("/livez").await.status, 200);
        let took = began.elapsed();
        assert!(took < limit(PROBE_TIMEOUT.0, PROBE_TIMEOUT.1), "probe {probes} waited for {took:?}");
        probes += 1;
    }
    attackers.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Number of Services for a large list.
const SERVICES: usize = 600;
/// Number of clients that request the list and do not read it.
const READERS: usize = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_unread_large_responses_cost_little_memory() {
    if std::env::var_os("QUIET_MACHINE").is_none() {
        println!("skipped: this needs an idle machine (QUIET_MACHINE), and the nightly tier runs it");
        return;
    }
    with_many_connections();
    let stage = Stage::ready(SERVICES).await;
    for (listener, path) in [(&stage.admin, "/api/v1/services?limit=1000"), (&stage.health, "/metrics")] {
        let before = stage.peak_bytes();
        let unread = join_all((0..READERS).map(|_| ask(listener, path))).await;
        let began = Instant::now();
        assert_eq!(stage.health("/livez").await.status, 200);
        assert_eq!(stage.health("/metrics").await.status, 200);
        assert!(
            began.elapsed() < limit(ANSWER_TIMEOUT.0, ANSWER_TIMEOUT.1),
            "others waited for {:?}",
            began.elapsed()
        );
        if path != "/metrics" {
            eventually("another list is refused", TEST_TIMEOUT, || async {
                let refused = stage.try_admin(path).await?;
                let is_refused =
                    refused.status == 503 && refused.json()["title"] == "too many large responses";
                if is_refused { Ok(()) } else { Err(format!("{refused:?}")) }
            })
            .await;
            assert_eq!(stage.admin(Method::GET, "/api/v1/services?limit=1").await.status, 200);
        }
        let cost = stage.peak_bytes().saturating_sub(before);
        assert!(cost < COST, "{READERS} unread responses of {path} took {} KiB", cost >> 10);
        drop(unread);
        // The limit is free again when the connections have ended.
        eventually("a list can be read again", TEST_TIMEOUT, || async {
            let answer = stage.try_admin("/api/v1/services?limit=1000").await?;
            if answer.status == 200 { Ok(()) } else { Err(answer.text) }
        })
        .await;
    }
}
