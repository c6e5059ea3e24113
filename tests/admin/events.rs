//! The stream of events (H3): each event is sent when it is posted, to a limited number of clients, and no client
//! delays the end of the process.

use std::time::Duration;

use reqwest::{Client, Method, Response};
use rustix::process::Signal;
use serde_json::{Value, json};
use simulator::models::kube::build::Endpoint;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::stage::{Prepared, Stage, add_service, node_name, set_endpoints};
use super::tls::answer_to;
use crate::support::{TEST_TIMEOUT, eventually};

const UPDATED: &str = "LoadBalancerBackendPoolUpdated";
/// Maximum number of streams.
const STREAMS: usize = 16;

/// An open stream.
pub(super) struct Listening {
    answer: Response,
    text: String,
}

/// Requests a stream with this query.
async fn ask(stage: &Stage, query: &str) -> Response {
    // A stream has no end, so the client has no total timeout.
    let http = Client::builder().no_proxy().connect_timeout(TEST_TIMEOUT).build().expect("a client");
    let url = format!("http://{}/api/v1/events{query}", stage.admin);
    let answer = tokio::time::timeout(TEST_TIMEOUT, http.get(url).send()).await.expect("an answer in time");
    answer.unwrap_or_else(|error| panic!("{error:?}\n{:?}", stage.log()))
}

impl Listening {
    /// Opens a stream that receives all events from now on.
    pub(super) async fn to(stage: &Stage, query: &str) -> Self {
        let answer = ask(stage, query).await;
        assert_eq!(answer.status(), 200);
        let header = |name: &str| answer.headers()[name].to_str().expect("text").to_owned();
        assert_eq!(
            (header("content-type"), header("cache-control")),
            ("text/event-stream".into(), "no-store".into())
        );
        let mut listening = Self { answer, text: String::new() };
        assert_eq!(listening.next().await.as_deref(), Some(": open"));
        listening
    }

    /// Returns the next part; `None` if the server has closed the stream.
    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            let part = tokio::time::timeout(TEST_TIMEOUT, self.answer.chunk()).await;
            let part = part.expect("something is sent in time").expect("it is not aborted")?;
            self.text.push_str(std::str::from_utf8(&part).expect("an event is sent as a whole"));
        }
    }

    /// Returns the next event and its number, without keep-alive comments.
    pub(super) async fn event(&mut self) -> (u64, Value) {
        let read = async {
            loop {
                let block = self.next().await.expect("the stream continues");
                if let Some(rest) = block.strip_prefix("id: ") {
                    let (id, data) = rest.split_once("\ndata: ").expect("a number and data");
                    let data: Value = serde_json::from_str(data).expect("JSON");
                    return (id.parse::<u64>().expect("a number"), data);
                }
                assert_eq!(block, ": alive");
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, read).await.expect("an event in time")
    }
}

async fn leading(flags: &[&str], role: &str) -> Stage {
    let prepared = Prepared::new(1).await;
    for name in ["web", "mail"] {
        add_service(&prepared.fakes, name, &[0]).await;
    }
    let stage = prepared.start_with(&json!({}), flags).await;
    stage.wait_until_ready().await;
    stage.shown("/api/v1/status", |status| status["leadership"]["role"] == role).await;
    for name in ["web", "mail"] {
        stage.verdict(name, "in sync: ").await;
    }
    stage
}

async fn move_to(stage: &Stage, name: &str, node: usize) {
    set_endpoints(&stage.fakes, name, &[Endpoint::ready(&node_name(node))]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_each_event_reaches_its_readers() {
    let stage = leading(&[], "leader").await;
    let standby = stage.another("standby").await;
    standby.wait_until_ready().await;
    let mut silent = Listening::to(&standby, "").await;
    let mut all = Listening::to(&stage, "").await;
    let mut of_web = Listening::to(&stage, &format!("?namespace=shop&name=web&reason={UPDATED}")).await;

    move_to(&stage, "web", 1).await;
    let (first, event) = all.event().await;
    let posted = stage.event("web", UPDATED).await;
    assert_eq!(
        (&event["reason"], &event["type"], &event["count"]),
        (&json!(UPDATED), &json!("Normal"), &json!(1))
    );
    assert_eq!(event["message"], posted["message"], "{event}");
    let involved = &posted["involvedObject"];
    for key in ["apiVersion", "kind", "namespace", "name", "uid"] {
        assert_eq!(event["object"][key], involved[key], "{key}: {event}");
    }
    assert!(event["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{event}");
    assert_eq!(of_web.event().await, (first, event));

    move_to(&stage, "mail", 1).await;
    let (second, of_mail) = all.event().await;
    move_to(&stage, "web", 2).await;
    let (third, again) = all.event().await;
    assert!(first < second && second < third, "{first}, {second}, {third}");
    assert_eq!(of_mail["object"]["name"], "mail");
    // Its text has another correlation id, so it is another event.
    assert_eq!((&again["object"]["name"], &again["count"]), (&json!("web"), &json!(1)), "{again}");
    assert_eq!(of_web.event().await, (third, again), "no event of mail");

    assert_eq!(silent.next().await.as_deref(), Some(": alive"), "a standby's stream is open, and silent");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_a_dry_run_streams_events_that_it_does_not_post() {
    let stage = leading(&["--dry-run"], "alone").await;
    let mut all = Listening::to(&stage, "?reason=BackendPoolRemovalHeld").await;
    set_endpoints(&stage.fakes, "web", &[]).await;
    let (_, event) = all.event().await;
    assert_eq!((&event["object"]["name"], &event["type"]), (&json!("web"), &json!("Warning")), "{event}");
    let withheld = "backend_pool_controller_events_total{result=\"withheld\"}";
    eventually("it is not posted", TEST_TIMEOUT, || async {
        let count = stage.series(withheld).await;
        if count.is_some_and(|count| count >= 1.0) { Ok(()) } else { Err(format!("{count:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_there_are_at_most_16_streams_and_none_delays_the_end() {
    let mut stage = leading(&[], "leader").await;
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(Listening::to(&stage, "").await);
    }
    let refused = ask(&stage, "").await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["retry-after"], "30");
    let problem = refused.text().await.expect("a body");
    let problem: Value = serde_json::from_str(&problem).expect("a problem document");
    assert_eq!(
        (&problem["title"], &problem["retryAfterSeconds"]),
        (&json!("too many streams"), &json!(30)),
        "{problem}"
    );
    let head = stage.raw(Method::HEAD, "/api/v1/events").await;
    assert_eq!(
        (head.status().as_u16(), head.headers()["content-type"].to_str().ok()),
        (200, Some("text/event-stream"))
    );
    let wrong = stage.admin(Method::GET, "/api/v1/events?kind=Service").await;
    assert_eq!(wrong.status, 400, "{wrong:?}");
    assert!(wrong.text.contains("this path has namespace, name, reason"), "{wrong:?}");

    // The server detects a closed connection when it sends something.
    drop(streams.pop());
    eventually("a stream is free again", TEST_TIMEOUT, || async {
        let answer = ask(&stage, "").await;
        if answer.status() == 200 { Ok(()) } else { Err(format!("{answer:?}")) }
    })
    .await;

    stage.signal(Signal::TERM);
    let ends = async {
        for stream in &mut streams {
            // A stream that does not end is aborted at the listener's time limit.
            while stream.next().await.is_some() {}
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, ends).await.expect("every stream ends");
    let ended = tokio::time::timeout(Duration::from_secs(30), stage.ended()).await;
    assert_eq!(ended.expect("it ends").code(), Some(0), "{:?}", stage.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_bytes_after_a_stream_request_are_not_read() {
    let stage = Stage::ready(1).await;
    let connection = TcpStream::connect(&stage.admin).await.expect("the listener");
    let (mut from, mut to) = connection.into_split();
    let many = b"GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    let sends = async { while to.write_all(&many).await.is_ok() {} };
    let hears_of_its_beginning = async {
        let (mut received, mut piece) = (Vec::new(), [0; 1024]);
        while !String::from_utf8_lossy(&received).contains(": open") {
            let count = from.read(&mut piece).await.expect("the stream");
            assert_ne!(count, 0, "the stream has ended: {received:?}");
            received.extend_from_slice(&piece[..count]);
        }
    };
    let opened = async {
        tokio::select! {
            () = sends => panic!("the stream has ended"),
            () = hears_of_its_beginning => {}
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, opened).await.expect("the stream begins");
    // The stream counts once, not once per request.
    let mut streams = Vec::new();
    for _ in 1..STREAMS {
        streams.push(Listening::to(&stage, "").await);
    }
    assert!(stage.log().iter().all(|line| line["level"] != "ERROR"), "{:?}", stage.log());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2_cross_site_requests_are_refused() {
    let stage = leading(&[], "leader").await;
    let http = Client::builder().no_proxy().connect_timeout(TEST_TIMEOUT).build().expect("a client");
    let asked_from = async |site: &str, path: &str| {
        let url = format!("http://{}{path}", stage.admin);
        let sent = http.get(url).header("sec-fetch-site", site).send();
        let answer = tokio::time::timeout(TEST_TIMEOUT, sent).await.expect("an answer in time");
        answer.expect("the listener answers")
    };
    let mut open = Vec::new();
    for site in ["cross-site", "same-site", "Cross-Site", "cross-site, same-origin", ""] {
        for path in ["/api/v1/events", "/api/v1/status", "/api/v1/nothing", "/openapi.json", "/"] {
            open.push((site, path, asked_from(site, path).await));
        }
    }
    for (site, path, answer) in &open {
        assert_eq!(answer.status(), 403, "{site:?} {path}");
        assert_eq!(answer.headers()["content-type"], "application/problem+json", "{site:?} {path}");
    }
    for site in ["same-origin", "none"] {
        assert_eq!(asked_from(site, "/").await.status(), 200, "{site}");
    }
    // Older browsers send only `Origin`, in POSTs and event streams.
    let asked_by = async |method: Method, origin: &str, path: &str| {
        let request = http.request(method, format!("http://{}{path}", stage.admin)).header("origin", origin);
        let answer = tokio::time::timeout(TEST_TIMEOUT, request.send()).await.expect("an answer in time");
        answer.expect("the listener answers").status()
    };
    for origin in ["http://pages.example", "http://127.0.0.1", "null"] {
        assert_eq!(asked_by(Method::GET, origin, "/api/v1/events").await, 403, "{origin}");
        assert_eq!(asked_by(Method::POST, origin, "/api/v1/compare").await, 403, "{origin}");
    }
    let own = format!("http://{}", stage.admin);
    assert_eq!(asked_by(Method::GET, &own, "/").await, 200);
    assert_eq!(asked_by(Method::POST, &own, "/api/v1/compare").await, 401, "it has no token");
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        streams.push(Listening::to(&stage, "").await);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h3_every_response_has_no_store_and_nosniff() {
    let stage = Stage::ready(1).await;
    for (method, path, status) in [
        (Method::GET, "/api/v1/status", 200),
        (Method::HEAD, "/api/v1/queues", 200),
        (Method::HEAD, "/api/v1/events", 200),
        (Method::GET, "/api/v1/status?wrong=1", 400),
        (Method::GET, "/api/v1/nothing", 404),
        (Method::GET, "/api/v1/queues/no/no", 404),
        (Method::DELETE, "/api/v1/status", 405),
        (Method::POST, "/api/v1/pause", 401),
        (Method::GET, "/openapi.json", 200),
    ] {
        let answer = stage.raw(method.clone(), path).await;
        assert_eq!(answer.status(), status, "{method} {path}");
        for (name, value) in [("x-content-type-options", "nosniff"), ("cache-control", "no-store")] {
            let found: Vec<_> = answer.headers().get_all(name).iter().collect();
            assert_eq!(found, [value], "{method} {path}: {name}");
        }
    }
    // Responses that no handler writes.
    let long = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(41 << 10));
    for address in [&stage.health, &stage.admin] {
        for (sent, status) in [("nonsense\r\n\r\n", "400"), ("GET / HTTP/1.1\r\n", "408"), (&*long, "431")] {
            let answer = answer_to(address, sent.as_bytes()).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
            for header in ["\r\nx-content-type-options: nosniff\r\n", "\r\ncache-control: no-store\r\n"] {
                assert_eq!(answer.matches(header).count(), 1, "{address} {status}: {answer}");
            }
        }
    }
}
