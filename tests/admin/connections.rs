//! Each connection carries one request, of any kind and with any following bytes (H1, H2).

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::stage::Stage;
use super::tls::answer_to;
use crate::support::TEST_TIMEOUT;

/// The header that announces the end of a connection.
const CLOSES: &str = "connection: close\r\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_every_request_is_answered_once_with_close() {
    let stage = Stage::ready(1).await;
    let token = "authorization: Bearer a-secret-token";
    let level = r#"{"level":"debug"}"#;
    let length = level.len();
    let (first, rest) = level.split_at(5);
    let chunks = format!("5\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\n\r\n", length - 5);
    let post = format!("POST /api/v1/log-level HTTP/1.1\r\nhost: localhost\r\n{token}\r\n");
    let cases = [
        (
            &stage.health,
            "GET /livez HTTP/1.1\r\nhost: pod\r\nconnection: keep-alive\r\n\r\n".to_owned(),
            "200",
        ),
        // The request of a kubelet probe.
        (
            &stage.health,
            "GET /readyz HTTP/1.1\r\nHost: pod\r\nUser-Agent: kube-probe/1.36\r\nConnection: close\r\n\r\n"
                .to_owned(),
            "200",
        ),
        (&stage.health, "HEAD /livez HTTP/1.1\r\nhost: pod\r\n\r\n".to_owned(), "200"),
        (&stage.health, "OPTIONS /livez HTTP/1.1\r\nhost: pod\r\n\r\n".to_owned(), "405"),
        (&stage.admin, "GET /api/v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(), "200"),
        (&stage.admin, format!("{post}content-length: {length}\r\n\r\n{level}"), "200"),
        (&stage.admin, format!("{post}transfer-encoding: chunked\r\n\r\n{chunks}"), "200"),
        (
            &stage.admin,
            format!("{post}transfer-encoding: chunked\r\ncontent-length: 3\r\n\r\n{chunks}"),
            "400",
        ),
    ];
    for (address, request, status) in cases {
        for behind in ["", "\r\n", "GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"] {
            let answer = answer_to(address, format!("{request}{behind}").as_bytes()).await;
            let case = format!("{request:?} and then {behind:?}: {answer}");
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{case}");
            assert!(answer.contains(CLOSES), "{case}");
            assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{case}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_expect_100_continue_is_answered() {
    let stage = Stage::ready(1).await;
    let level = r#"{"level":"debug"}"#;
    let head = format!(
        "POST /api/v1/log-level HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer a-secret-token\r\nexpect: \
         100-continue\r\ncontent-length: {}\r\n\r\n",
        level.len()
    );
    let mut connection = TcpStream::connect(&stage.admin).await.expect("the listener");
    let exchange = async {
        connection.write_all(head.as_bytes()).await.expect("the connection is open");
        let go_on = b"HTTP/1.1 100 Continue\r\n\r\n";
        let mut interim = vec![0; go_on.len()];
        connection.read_exact(&mut interim).await.expect("an interim answer");
        assert_eq!(interim, go_on);
        connection.write_all(level.as_bytes()).await.expect("the connection is open");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).await.expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(CLOSES), "{answer}");
    };
    tokio::time::timeout(TEST_TIMEOUT, exchange).await.expect("an answer in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_a_head_of_more_than_40_kib_is_refused() {
    let stage = Stage::ready(1).await;
    for (bytes, status) in [(32 << 10, "HTTP/1.1 200 "), (48 << 10, "HTTP/1.1 431 "), (1 << 20, "")] {
        let head = format!("GET /livez HTTP/1.1\r\nhost: pod\r\nx-long: {}\r\n\r\n", "a".repeat(bytes));
        let mut connection = TcpStream::connect(&stage.health).await.expect("the listener");
        let (mut from, mut to) = connection.split();
        let mut answer = Vec::new();
        // Unread bytes of the head may reset the connection before the response.
        let both = async { tokio::join!(to.write_all(head.as_bytes()), from.read_to_end(&mut answer)) };
        let (_, _) = tokio::time::timeout(TEST_TIMEOUT, both).await.expect("the connection ends");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(status), "{bytes} bytes: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h1_an_endless_body_does_not_keep_the_connection() {
    let stage = Stage::ready(1).await;
    let head = "POST /livez HTTP/1.1\r\nhost: pod\r\n";
    let endless = "1\r\na\r\n".repeat(40 << 10);
    for request in [
        format!("{head}transfer-encoding: chunked\r\n\r\n"),
        format!("{head}content-length: 1000000000\r\n\r\n"),
        format!("{head}transfer-encoding: chunked\r\n\r\n{endless}"),
        "CONNECT pod:80 HTTP/1.1\r\nhost: pod\r\n\r\n".to_owned(),
    ] {
        let mut connection = TcpStream::connect(&stage.health).await.expect("it listens");
        // The connection may be reset while the client sends.
        drop(connection.write_all(request.as_bytes()).await);
        let ends = async { while connection.read(&mut [0; 1024]).await.is_ok_and(|count| count > 0) {} };
        let shown = &request[..request.len().min(80)];
        assert!(tokio::time::timeout(TEST_TIMEOUT, ends).await.is_ok(), "{shown:?} keeps its connection");
    }
}
