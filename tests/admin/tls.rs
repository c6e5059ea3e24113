//! The admin API with TLS (H2): every request is authorized; the certificate is renewed while the process runs; and a
//! client that only opens connections does not block others.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use azure_backend_pool_controller::CONNECTIONS;
use reqwest::{Certificate, Client, Method};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::stage::{Answer, Prepared, Stage};
use crate::support::certificates::{Authority, Pair};
use crate::support::{TEST_TIMEOUT, eventually};

const STATUS: &str = "/api/v1/status";
const TOKEN: Option<&str> = Some("a-secret-token");
/// The token of a user with read permission only.
const READER: Option<&str> = Some("readers-token");
/// Maximum time of one call.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for which the authorization of a read is cached.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// More requests than the log may have lines in some seconds.
const MANY: usize = 100;
/// More connections than a listener accepts.
const TOO_MANY: usize = CONNECTIONS + 18;

/// A Secret's files in a pod: the kubelet changes both at the same time, with a new symbolic link.
pub(super) struct Secret {
    folder: TempDir,
    versions: usize,
}

impl Secret {
    fn new(pair: &Pair) -> Self {
        let mut secret = Self { folder: tempfile::tempdir().expect("a temporary folder"), versions: 0 };
        secret.put(pair);
        for file in ["tls.crt", "tls.key"] {
            symlink(format!("..data/{file}"), secret.folder.path().join(file)).expect("a link");
        }
        secret
    }

    fn put(&mut self, pair: &Pair) {
        self.versions += 1;
        let (folder, version) = (self.folder.path(), format!("..{}", self.versions));
        fs::create_dir(folder.join(&version)).expect("a folder");
        fs::write(folder.join(&version).join("tls.crt"), &pair.certificate).expect("a certificate");
        fs::write(folder.join(&version).join("tls.key"), &pair.key).expect("a key");
        symlink(&version, folder.join("..next")).expect("a link");
        fs::rename(folder.join("..next"), folder.join("..data")).expect("the new one is there");
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Returns the configuration keys of the listener.
    fn overlay(&self) -> Value {
        let tls = json!({ "certificate": self.path("tls.crt"), "key": self.path("tls.key") });
        json!({ "http": { "adminTlsListen": "127.0.0.1:0", "tls": tls } })
    }
}

/// Returns a client that trusts only this authority, and opens a connection for each request.
fn client(authority: &Authority) -> Client {
    let trusted = Certificate::from_pem(authority.pem().as_bytes()).expect("a certificate");
    let builder = Client::builder().no_proxy().timeout(REQUEST_TIMEOUT).pool_max_idle_per_host(0);
    builder.tls_certs_only([trusted]).build().expect("a client")
}

/// Returns a ready controller with a listener with TLS, its Secret, and a client.
pub(super) async fn secured() -> (Stage, Secret, Client) {
    let authority = Authority::new("first");
    let (stage, secret) = secured_by(&authority).await;
    (stage, secret, client(&authority))
}

/// Returns a ready controller with a listener with TLS, whose certificate this authority has signed, and its Secret.
pub(super) async fn secured_by(authority: &Authority) -> (Stage, Secret) {
    let secret = Secret::new(&authority.server());
    let stage = Prepared::new(1).await.start(&secret.overlay()).await;
    stage.wait_until_ready().await;
    stage.shown(STATUS, |status| status["leadership"]["role"] == "leader").await;
    (stage, secret)
}

pub(super) async fn call(
    stage: &Stage,
    http: &Client,
    method: &Method,
    path: &str,
    token: Option<&str>,
) -> Answer {
    let answer = stage.secured(http, method.clone(), path, token).await;
    answer.unwrap_or_else(|error| panic!("{error}\n{:?}", stage.log()))
}

/// Returns every path of the admin API in docs/admin-api.md, with names in it.
fn paths() -> Vec<String> {
    let document = include_str!("../../docs/admin-api.md");
    let mut sections = document.split("\n## ");
    let section = |heading: &str| sections.find(|section| section.starts_with(heading)).expect("the section");
    let sections_shown = ["Admin API\n", "Requests\n"].map(section);
    let rows = sections_shown.iter().flat_map(|section| section.lines());
    let cells = rows.filter_map(|line| line.strip_prefix("| `/")?.split_once('`'));
    let named = |path: &str| {
        let named = path.replace("{lb}", "kubernetes").replace("{pool}", "nobodys");
        format!("/{}", named.replace("{namespace}", "shop").replace("{name}", "nobody"))
    };
    cells.map(|(path, _)| named(path)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_with_tls_every_request_is_authorized_first() {
    let (stage, _secret, http) = secured().await;
    let mut paths = paths();
    assert!(paths.len() >= 13 && paths.iter().any(|path| path == "/"), "{paths:?}");
    let strange = ["/api/v1/nosuch", "/nosuch", "/livez", "/metrics", "//api/v1/status", "/api/v1/%73tatus"];
    paths.extend(strange.map(str::to_owned));
    for path in &paths {
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE] {
            // Kubernetes lets every account read below `/api`; the discoverer represents such an account.
            for (token, status) in [
                (None, 401),
                (Some("nobody"), 401),
                (Some("outsiders-token"), 403),
                (Some("discoverers-token"), 403),
            ] {
                let answer = call(&stage, &http, &method, path, token).await;
                let found = (answer.status, answer.kind.as_str());
                assert_eq!(
                    found,
                    (status, "application/problem+json"),
                    "{method} {path} {token:?}: {answer:?}"
                );
            }
            let answer = call(&stage, &http, &method, path, TOKEN).await;
            let there = if method == Method::POST {
                stage.post(path, TOKEN, &json!({})).await
            } else {
                stage.admin(method.clone(), path).await
            };
            assert_eq!(
                (answer.status, answer.kind, answer.allow),
                (there.status, there.kind, there.allow),
                "{method} {path}: with the right, the answer is as on loopback"
            );
        }
    }
    assert_eq!(stage.admin(Method::GET, STATUS).await.status, 200, "reading on loopback is open");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_a_refused_post_names_the_missing_permission() {
    let (stage, _secret, http) = secured().await;
    for (method, path) in [(Method::GET, STATUS), (Method::HEAD, STATUS), (Method::GET, "/")] {
        assert_eq!(call(&stage, &http, &method, path, READER).await.status, 200, "{method} {path}");
    }
    let refused = call(&stage, &http, &Method::POST, "/api/v1/pause", READER).await;
    assert_eq!(refused.status, 403, "{refused:?}");
    let detail = refused.json()["detail"].as_str().unwrap_or_default().to_owned();
    assert!(
        detail.starts_with("reader may not post /azure-backend-pool-controller/api/v1/pause; ")
            && detail.contains(
                r#"{nonResourceURLs: ["/azure-backend-pool-controller/*"], verbs: ["get", "post"]}"#
            ),
        "{detail}"
    );

    stage.fakes.plant(|model| model.down(true)).await;
    for method in [Method::GET, Method::POST] {
        let answer = call(&stage, &http, &method, STATUS, Some("another-token")).await;
        assert_eq!(answer.status, 503, "{answer:?}");
    }
}

/// Returns the number of tokens that the API server has reviewed.
async fn token_reviews(stage: &Stage) -> u64 {
    stage.fakes.cluster.ask(|cluster, _| cluster.model.fault_effects().token_reviews).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_only_reads_cache_authorization_and_no_token_is_logged() {
    let (stage, _secret, http) = secured().await;
    let level = json!({ "level": "trace" });
    assert_eq!(stage.post("/api/v1/log-level", TOKEN, &level).await.status, 200);
    let (begin, since) = (token_reviews(&stage).await, Instant::now());
    for method in [Method::GET, Method::GET, Method::HEAD] {
        assert_eq!(call(&stage, &http, &method, STATUS, TOKEN).await.status, 200);
    }
    let judged = token_reviews(&stage).await - begin;
    // On a machine that was suspended, the cached result has expired.
    assert!(judged == 1 || since.elapsed() >= KEPT_FOR, "{judged}");
    let begin = token_reviews(&stage).await;
    for _ in 0..2 {
        assert_eq!(call(&stage, &http, &Method::POST, "/api/v1/compare", TOKEN).await.status, 200);
    }
    assert_eq!(token_reviews(&stage).await, begin + 2);
    let done = |line: &Value| line["message"] == "an operator request" && line["path"] == "/api/v1/compare";
    stage.logged("the last request", done).await;
    assert!(!format!("{:?}", stage.log()).contains("a-secret-token"), "a token is logged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_a_renewed_certificate_is_used_and_a_broken_one_is_not() {
    let (stage, mut secret, first) = secured().await;
    let series = "backend_pool_controller_admin_certificate_expiration_timestamp_seconds";
    assert!(stage.series(series).await.is_some_and(|ends| ends > 1e9));
    let (authority, last) = (Authority::new("second"), Authority::new("third"));
    let second = client(&authority);
    assert!(stage.secured(&second, Method::GET, STATUS, TOKEN).await.is_err(), "another authority's");
    let pair = authority.server();
    secret.put(&pair);
    eventually("the renewed certificate is used", TEST_TIMEOUT, || async {
        stage.secured(&second, Method::GET, STATUS, TOKEN).await.map(drop)
    })
    .await;
    assert!(
        stage.secured(&first, Method::GET, STATUS, TOKEN).await.is_err(),
        "the old certificate is not used"
    );
    let is_logged = |line: &Value| line["message"] == "the admin API uses a new certificate";
    assert_eq!(stage.logged("the renewal is logged", is_logged).await.len(), 1);

    secret.put(&Pair { certificate: last.server().certificate, ..pair.clone() });
    let is_logged = |line: &Value| line["message"] == "failed to load the certificate of the admin API";
    let warned = stage.logged("the log says that the key does not match", is_logged).await;
    assert_eq!(warned[0]["level"], "WARN");
    let reason = warned[0]["reason"].as_str().unwrap_or_default();
    assert!(
        reason.starts_with(&format!("http.tls.key: {} ", secret.path("tls.key").display())),
        "{warned:?}"
    );
    assert!(warned[0]["remedy"].is_string(), "{warned:?}");
    assert!(
        stage.secured(&second, Method::GET, STATUS, TOKEN).await.is_ok(),
        "the old certificate stays in use"
    );

    secret.put(&last.server());
    let third = client(&last);
    eventually("the repaired certificate is used", TEST_TIMEOUT, || async {
        stage.secured(&third, Method::GET, STATUS, TOKEN).await.map(drop)
    })
    .await;
    assert_eq!(stage.logged("it once", is_logged).await.len(), 1);
    let key = pair.key.lines().nth(1).expect("a key has lines");
    assert!(!format!("{:?}", stage.log()).contains(key), "no part of a key is logged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_the_start_fails_on_an_unusable_certificate() {
    let (one, other) = (Authority::new("one").server(), Authority::new("other").server());
    let secret = Secret::new(&Pair { key: other.key.clone(), ..one });
    let (status, output) = Prepared::new(1).await.ends(&secret.overlay()).await;
    assert!(!status.success(), "{status}: {output}");
    let file = secret.path("tls.key");
    assert!(
        output.contains(&format!("http.tls.key: {} contains a key that does not belong", file.display())),
        "{output}"
    );
    let key = other.key.lines().nth(1).expect("a key has lines");
    assert!(!output.contains(key), "without the key");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_without_tls_nothing_is_answered() {
    let (stage, _secret, _) = secured().await;
    let plain = Client::builder().no_proxy().timeout(REQUEST_TIMEOUT).build().expect("a client");
    let answer = plain.get(format!("http://{}{STATUS}", stage.admin_tls)).bearer_auth("a-secret-token");
    assert!(answer.send().await.is_err(), "a client without TLS gets no answer");
}

/// Opens more connections than a listener accepts, and sends nothing on them.
async fn open_idle_connections(address: &str) -> Vec<TcpStream> {
    let mut silent = Vec::new();
    for _ in 0..TOO_MANY {
        silent.push(TcpStream::connect(address).await.expect("the system takes connections"));
    }
    silent
}

/// Returns the number of these connections that the listener has closed.
fn ended(silent: Vec<TcpStream>) -> usize {
    let has_ended = |connection: TcpStream| {
        let connection = connection.into_std().expect("a connection of this runtime");
        let peeked = connection.peek(&mut [0; 1]);
        !matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    };
    silent.into_iter().map(has_ended).filter(|ended| *ended).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_idle_connections_delay_others_until_they_are_closed() {
    // This process has one socket of each connection.
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("up to the hard limit");
    let (stage, _secret, http) = secured().await;
    // A later client is accepted when this many connections are closed.
    let must_have_ended = TOO_MANY + 1 - CONNECTIONS;

    let silent = open_idle_connections(&stage.admin_tls).await;
    assert_eq!(stage.health("/livez").await.status, 200, "other listeners have their own limits");
    assert_eq!(stage.admin(Method::GET, STATUS).await.status, 200);
    // This attempt waits until it is accepted.
    assert_eq!(call(&stage, &http, &Method::GET, STATUS, TOKEN).await.status, 200);
    let cut = ended(silent);
    assert!(
        cut >= must_have_ended,
        "{cut} of {TOO_MANY} without TLS were closed before the next was answered"
    );

    let silent = open_idle_connections(&stage.admin).await;
    assert_eq!(stage.admin(Method::GET, STATUS).await.status, 200);
    let cut = ended(silent);
    assert!(
        cut >= must_have_ended,
        "{cut} of {TOO_MANY} without a head were closed before the next was answered"
    );
}

/// Returns the answer of a listener to these bytes, until it closes the connection.
pub(super) async fn answer_to(address: &str, bytes: &[u8]) -> String {
    let mut connection = TcpStream::connect(address).await.expect("the listener takes connections");
    connection.write_all(bytes).await.expect("the connection is open");
    let mut answer = Vec::new();
    let ended = tokio::time::timeout(TEST_TIMEOUT, connection.read_to_end(&mut answer)).await;
    assert!(ended.is_ok(), "{address} keeps the connection after {answer:?}");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_clients_without_rights_cannot_fill_the_log() {
    let (stage, _secret, http) = secured().await;
    // The tests send no second request on a connection, because it has no time limit.
    let request = b"GET /livez HTTP/1.1\r\nhost: pod\r\n\r\nG";
    let (health, admin) = (stage.health.as_str(), stage.admin.as_str());
    let answer = answer_to(health, request).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("ok"), "{answer}");
    for address in [health, admin, stage.admin_tls.as_str()] {
        answer_to(address, b"nonsense\r\n\r\n").await;
    }
    // A web page may make its own host name resolve to the operator's port-forward.
    let page = format!("GET {STATUS} HTTP/1.1\r\nhost: pages.example\r\nx-forwarded-host: localhost\r\n\r\n");
    assert!(answer_to(admin, page.as_bytes()).await.starts_with("HTTP/1.1 421 "));
    let long = format!("/{}", "a".repeat(30_000));
    for token in [None, TOKEN] {
        assert_eq!(call(&stage, &http, &Method::GET, &long, token).await.status, 414);
        assert_eq!(call(&stage, &http, &Method::GET, STATUS, None).await.status, 401);
    }
    let since = Instant::now();
    for _ in 0..MANY {
        assert_eq!(call(&stage, &http, &Method::GET, STATUS, Some("nobody")).await.status, 401);
        assert_eq!(call(&stage, &http, &Method::GET, STATUS, Some("outsiders-token")).await.status, 403);
    }
    let periods = since.elapsed().as_secs() / 10 + 2;
    // This request is logged after all others.
    assert_eq!(call(&stage, &http, &Method::POST, "/api/v1/compare", TOKEN).await.status, 200);
    let done = |line: &Value| line["message"] == "an operator request" && line["path"] == "/api/v1/compare";
    stage.logged("the last request", done).await;
    let log = stage.log();
    let refused = ["request rejected: invalid token", "request rejected: not allowed"];
    let lines = log.iter().filter(|line| refused.iter().any(|text| line["message"] == *text)).count() as u64;
    assert!((1..=20 * periods).contains(&lines), "{lines} lines of {MANY} requests");
    let strange = |line: &&Value| line["level"] == "ERROR" || line.to_string().contains("no bearer token");
    assert_eq!(log.iter().filter(strange).collect::<Vec<_>>(), Vec::<&Value>::new());
    assert!(log.iter().all(|line| line.to_string().len() < 2_000), "{log:?}");
}
