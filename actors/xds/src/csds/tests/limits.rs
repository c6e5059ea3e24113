//! Tests of clients that send too much, read nothing, or only hold connections open.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tonic::transport::Endpoint;

use super::super::limits::{MAX_CONNECTIONS, MAX_LARGE, MAX_REQUEST, MAX_STREAMS, READ_TIMEOUT};
use super::*;

#[tokio::test]
async fn h5_a_request_over_16_kib_is_refused_before_it_is_decoded() {
    let site = Site::start(|| Some(status())).await;
    let request = ClientStatusRequest {
        node_matchers: vec![NodeMatcher::default(); MAX_REQUEST / 2],
        ..ClientStatusRequest::default()
    };
    let mut client = site.client().await;
    let refused = within(client.fetch_client_status(request.clone())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument, "of the limit's size: {refused}");
    let request = ClientStatusRequest { exclude_resource_contents: true, ..request };
    let refused = within(client.fetch_client_status(request.clone())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::OutOfRange, "{refused}");
    let refused = match within(client.stream_client_status(stream::iter([request]))).await {
        Ok(answers) => within(answers.into_inner().message()).await.unwrap_err(),
        Err(status) => status,
    };
    assert_eq!(refused.code(), tonic::Code::OutOfRange, "{refused}");
}

/// An empty SETTINGS frame after the client's preface (RFC 9113, 3.4).
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Connects, and returns the server's settings with the connection.
async fn hello(addr: SocketAddr) -> (TcpStream, BTreeMap<u16, u32>) {
    let mut connection = TcpStream::connect(addr).await.unwrap();
    connection.write_all(HELLO).await.unwrap();
    let mut head = [0; 9];
    within(connection.read_exact(&mut head)).await.unwrap();
    let [0, high, low, 4, 0, ..] = head else { panic!("no SETTINGS: {head:?}") };
    let count = u16::from_be_bytes([high, low]) / 6;
    let mut settings = BTreeMap::new();
    for _ in 0..count {
        let name = connection.read_u16().await.unwrap();
        settings.insert(name, connection.read_u32().await.unwrap());
    }
    (connection, settings)
}

#[tokio::test]
async fn h5_requests_and_bytes_of_a_connection_are_limited() {
    let site = Site::start(|| Some(status())).await;
    let (_connection, settings) = hello(site.addr).await;
    assert_eq!(settings.get(&3), Some(&MAX_STREAMS), "MAX_CONCURRENT_STREAMS: {settings:?}");
    let window = settings.get(&4).copied().unwrap_or(65_535);
    assert!(window <= 65_535, "INITIAL_WINDOW_SIZE: {settings:?}");
}

#[tokio::test]
async fn h5_more_connections_end_the_oldest() {
    let site = Site::start(|| Some(status())).await;
    let mut open = Vec::new();
    for _ in 0..MAX_CONNECTIONS + 2 {
        open.push(hello(site.addr).await.0);
    }
    let rest = open.split_off(2);
    for mut ended in open {
        // The connection may be reset, because the last bytes of the client are not read.
        drop(within(ended.read_to_end(&mut Vec::new())).await);
    }
    let answered = within(site.client().await.fetch_client_status(ClientStatusRequest::default())).await;
    assert_eq!(answered.unwrap().into_inner().config.len(), 1);
    // Connections that have ended do not count.
    drop(rest);
    let mut client = site.client().await;
    for _ in 0..3 * MAX_CONNECTIONS {
        drop(hello(site.addr).await);
    }
    within(client.fetch_client_status(ClientStatusRequest::default())).await.unwrap();
}

/// Returns a status whose contents are 1 MiB.
fn large() -> Status {
    let raw = Raw { bytes: Arc::from(vec![0; 1 << 20]), ..raw("") };
    let cached = Cached { raw: Some(raw), ..cached() };
    of(vec![resource("web", ResourceState::Acked, Some(cached), None)])
}

async fn client_with_windows(addr: SocketAddr) -> ClientStatusDiscoveryServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535).initial_connection_window_size(65_535);
    ClientStatusDiscoveryServiceClient::new(endpoint.connect().await.unwrap())
}

/// Fetches the contents until there is room for them.
async fn fetched(client: &mut ClientStatusDiscoveryServiceClient<Channel>) -> ClientStatusResponse {
    let asking = async {
        loop {
            match client.fetch_client_status(ClientStatusRequest::default()).await {
                Ok(answer) => return answer.into_inner(),
                Err(status) => assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}"),
            }
        }
    };
    within(asking).await
}

#[tokio::test]
async fn h5_large_answers_that_wait_to_be_read_are_limited() {
    let (asked, mut made) = mpsc::unbounded_channel();
    let site = Site::start(move || {
        asked.send(()).unwrap();
        Some(large())
    })
    .await;
    let mut unread = Vec::new();
    for _ in 0..MAX_LARGE {
        let mut client = client_with_windows(site.addr).await;
        let requests = stream::iter([ClientStatusRequest::default()]).chain(stream::pending());
        unread.push(within(client.stream_client_status(requests)).await.unwrap().into_inner());
        within(made.recv()).await.unwrap();
    }
    let mut client = site.client().await;
    let refused = within(client.fetch_client_status(ClientStatusRequest::default())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::ResourceExhausted, "{refused}");
    assert!(refused.message().contains("exclude_resource_contents"), "{refused}");
    let small = ClientStatusRequest { exclude_resource_contents: true, ..ClientStatusRequest::default() };
    within(client.fetch_client_status(small)).await.unwrap();
    // A request that is read makes room, although its stream stays open.
    let mut read = unread.remove(0);
    within(read.message()).await.unwrap().unwrap();
    for _ in 0..2 * MAX_LARGE {
        let answer = fetched(&mut client).await;
        let contents = answer.config[0].generic_xds_configs[0].xds_config.as_ref().unwrap();
        assert_eq!(contents.value.len(), 1 << 20);
    }
    // The connection of a client that does not read in time ends.
    tokio::time::pause();
    tokio::time::advance(READ_TIMEOUT).await;
    tokio::time::resume();
    for mut answers in unread {
        within(answers.message()).await.unwrap_err();
    }
    let mut others = Vec::new();
    for _ in 0..MAX_LARGE {
        let mut client = client_with_windows(site.addr).await;
        let requests = stream::iter([ClientStatusRequest::default()]).chain(stream::pending());
        others.push(within(client.stream_client_status(requests)).await.unwrap().into_inner());
    }
    for answers in &mut others {
        within(answers.message()).await.unwrap().unwrap();
    }
}
