//! The ends of broken streams.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::Status;

use super::server::{Ads, Fixed};
use super::*;
use crate::decode::MAX_WORDS;
use crate::driver::connection::{CONNECT_TIMEOUT, KEEPALIVE_INTERVAL, KEEPALIVE_TIMEOUT};

/// The first frame of a server, without settings.
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

#[tokio::test]
async fn x2_a_server_that_refuses_connections_is_unavailable() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    drop(listener);
    let mut site = Site::at(addr);
    let ended = site.ended().await;
    assert_eq!(ended.code, Code::Unavailable);
    assert!(ended.message.contains("tcp connect error: Connection refused"), "{ended:?}");
    site.driver.read(STREAM);
    site.driver.send(STREAM, &request_for(&["more"]));
    site.driver.close(STREAM);
    assert!(site.events.try_recv().is_err());
}

#[tokio::test]
async fn x2_a_server_missing_in_the_bootstrap_is_unavailable() {
    let mut site = Site::of(insecure("127.0.0.1:1"));
    site.driver.open(STREAM, ServerId(1), vec![request_for(&["web"])]);
    let ended = site.ended().await;
    assert_eq!((ended.code, ended.message.as_str()), (Code::Unavailable, "the bootstrap has no server 1"));
}

#[tokio::test]
async fn x2_a_broken_connection_ends_the_stream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut site = Site::at(listener.local_addr().unwrap());
    let (mut connection, _) = within(listener.accept()).await.unwrap();
    connection.write_all(&SETTINGS).await.unwrap();
    site.dispatched().await;
    drop(connection);
    let ended = site.ended().await;
    assert_ne!(ended.code, Code::Ok);
    assert!(!ended.message.is_empty(), "{ended:?}");
}

#[tokio::test]
async fn x2_a_status_of_the_server_is_passed_on() {
    let mut server = Ads::start().await;
    let mut site = Site::at(server.addr);
    site.dispatched().await;
    server.call().await.fail(Status::permission_denied("not for you"));
    let ended = site.ended().await;
    assert_eq!((ended.code, ended.message.as_str()), (Code::PermissionDenied, "not for you"));

    // After a message, it comes in the trailers.
    site.driver.open(STREAM, SERVER, vec![request_for(&["web"])]);
    site.driver.read(STREAM);
    site.dispatched().await;
    let peer = server.call().await;
    peer.answer(answer("1", Vec::new(), Vec::new()));
    peer.fail(Status::aborted("later"));
    site.response().await;
    site.driver.read(STREAM);
    let ended = site.ended().await;
    assert_eq!((ended.code, ended.message.as_str()), (Code::Aborted, "later"));
}

#[tokio::test]
async fn c1_the_text_of_a_status_is_short_and_without_secrets() {
    let mut server = Ads::start().await;
    let mut site = Site::at(server.addr);
    site.dispatched().await;
    let text = format!("authorization: Bearer planted-secret {}", "x ".repeat(2_000));
    server.call().await.fail(Status::unauthenticated(text));
    let ended = site.ended().await;
    assert_eq!(ended.code, Code::Unauthenticated);
    assert!(ended.message.len() <= MAX_WORDS && !ended.message.contains("planted-secret"), "{ended:?}");
}

#[tokio::test]
async fn x2_status_details_without_base64_are_tolerated() {
    const BROKEN: &[(&str, &str)] =
        &[("grpc-status", "7"), ("grpc-message", "no"), ("grpc-status-details-bin", "!!!")];
    let in_headers = Fixed { headers: BROKEN, body: &[], trailers: &[] };
    let in_trailers = Fixed { headers: &[], body: &[0; 5], trailers: BROKEN };
    for fixed in [in_headers, in_trailers] {
        let has_message = !fixed.body.is_empty();
        let (addr, _server) = fixed.start().await;
        let mut site = Site::at(addr);
        site.driver.read(STREAM);
        site.driver.read(STREAM);
        site.dispatched().await;
        if has_message {
            site.response().await;
        }
        let ended = site.ended().await;
        assert_eq!((ended.code, ended.message.as_str()), (Code::PermissionDenied, "no"));
    }
}

#[tokio::test]
async fn x2_an_answer_without_grpc_ends_the_stream() {
    let too_large = Fixed { headers: &[], body: &[0, 1, 0, 0, 1], trailers: &[] };
    let compressed = Fixed { headers: &[], body: &[1, 0, 0, 0, 1, 7], trailers: &[] };
    let cut = Fixed { headers: &[], body: &[0, 0, 0, 0, 9, 7], trailers: &[] };
    let no_status = Fixed { headers: &[], body: &[], trailers: &[] };
    let cases = [
        (too_large, Code::OutOfRange, "the limit is: 16777216 bytes"),
        (compressed, Code::Internal, "compressed-flag"),
        (cut, Code::Internal, "Unexpected EOF"),
        (no_status, Code::Unknown, ""),
    ];
    for (fixed, code, text) in cases {
        let (addr, _server) = fixed.start().await;
        let mut site = Site::at(addr);
        site.driver.read(STREAM);
        site.dispatched().await;
        let ended = site.ended().await;
        assert_eq!(ended.code, code, "{ended:?}");
        assert!(ended.message.contains(text), "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn x2_a_silent_peer_is_not_connected() {
    let (addr, _listener) = silent().await;
    let before = tokio::time::Instant::now();
    // The end is the first output: no request was dispatched, so that no resource timer runs (A57).
    let ended = Site::at(addr).ended().await;
    assert_eq!(ended.code, Code::Unavailable);
    assert_eq!(ended.message, "connected, but the server did not speak HTTP/2 within 20 seconds");
    assert_eq!(before.elapsed(), CONNECT_TIMEOUT);
}

#[tokio::test]
async fn x2_a_peer_without_http2_is_not_connected() {
    for (event, text) in [
        (b"".as_slice(), "the server closed the connection before it spoke HTTP/2"),
        (&SETTINGS[..8], "the server closed the connection before it spoke HTTP/2"),
        (b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n", "HTTP/2"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut site = Site::at(listener.local_addr().unwrap());
        let (mut connection, _) = within(listener.accept()).await.unwrap();
        // The preface of the client is read, so that the connection is closed without a reset.
        connection.read_u8().await.unwrap();
        connection.write_all(event).await.unwrap();
        connection.shutdown().await.unwrap();
        let ended = site.ended().await;
        assert_eq!(ended.code, Code::Unavailable);
        assert!(ended.message.contains(text), "{ended:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn x2_a_silent_connection_is_closed() {
    let (addr, listener) = silent().await;
    let mut site = Site::at(addr);
    let (mut connection, _) = listener.accept().await.unwrap();
    connection.write_all(&SETTINGS).await.unwrap();
    assert!(matches!(site.events.recv().await, Some(StreamEvent::Dispatched(STREAM))));
    let before = tokio::time::Instant::now();
    let Some(StreamEvent::Ended { stream: STREAM, ended, .. }) = site.events.recv().await else {
        panic!("it ends")
    };
    assert_eq!(ended.code, Code::Unavailable);
    assert!(ended.message.contains("keep-alive timed out"), "{ended:?}");
    assert_eq!(before.elapsed(), KEEPALIVE_INTERVAL + KEEPALIVE_TIMEOUT);
}
