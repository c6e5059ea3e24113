//! Events of a working stream: requests as they are pulled, messages as they may be read, and its end.

use super::server::Ads;
use super::*;

#[tokio::test]
async fn x2_a57_requests_are_dispatched_to_a_silent_server() {
    let mut server = Ads::start().await;
    let bootstrap = insecure(server.addr);
    let mut site = Site::of(Arc::clone(&bootstrap));
    let clusters = XdsRequest { kind: ResourceKind::Cluster, node: true, ..request_for(&["a", "b"]) };
    site.driver.open(STREAM, SERVER, vec![clusters, request_for(&["web"])]);
    site.dispatched().await;
    let mut peer = server.call().await;
    let first = peer.request().await;
    assert_eq!((first.type_url.as_str(), first.resource_names.len()), (ResourceKind::Cluster.type_url(), 2));
    assert_eq!(first.node.as_ref(), Some(bootstrap.node(VERSION).message()));
    let second = peer.request().await;
    assert_eq!((second.resource_names, second.node), (vec!["web".to_owned()], None));
    let agent = peer.headers["user-agent"].to_str().unwrap();
    assert!(agent.starts_with("azure-backend-pool-controller/1.2.3 "), "{agent}");
    site.assert_no_other_event(&mut peer).await;
}

#[tokio::test]
async fn x2_later_requests_are_reported_as_sent_one_by_one() {
    let mut server = Ads::start().await;
    let mut site = Site::at(server.addr);
    site.driver.send(STREAM, &XdsRequest { kind: ResourceKind::Cluster, ..request_for(&["a"]) });
    site.driver.send(STREAM, &request_for(&["b"]));
    site.dispatched().await;
    site.sent(ResourceKind::Cluster).await;
    site.sent(ResourceKind::Endpoints).await;
    let mut peer = server.call().await;
    for names in ["web", "a", "b"] {
        assert_eq!(peer.request().await.resource_names, [names]);
    }
}

#[tokio::test]
async fn x2_each_permission_reads_one_message() {
    let mut server = Ads::start().await;
    let mut site = Site::at(server.addr);
    site.dispatched().await;
    let mut peer = server.call().await;
    assert_eq!(peer.request().await.resource_names, ["web"]);
    for version in ["1", "2", "3"] {
        peer.answer(answer(version, vec![assignment("web", "10.0.0.1")], Vec::new()));
    }
    site.assert_no_other_event(&mut peer).await;
    site.driver.read(STREAM);
    let first = site.response().await;
    assert_eq!((first.version.as_str(), first.nonce.as_str(), first.resources.len()), ("1", "n1", 1));
    site.assert_no_other_event(&mut peer).await;
    site.driver.read(STREAM);
    site.driver.read(STREAM);
    assert_eq!(site.response().await.version, "2");
    assert_eq!(site.response().await.version, "3");
    site.assert_no_other_event(&mut peer).await;
}

#[tokio::test]
async fn x2_an_undecodable_message_does_not_end_the_stream() {
    let mut server = Ads::start().await;
    let mut site = Site::at(server.addr);
    site.driver.read(STREAM);
    site.dispatched().await;
    let mut peer = server.call().await;
    assert_eq!(peer.request().await.resource_names, ["web"]);
    for message in [vec![0x0a, 0xff], vec![7], answer("1", Vec::new(), Vec::new())] {
        peer.answer(message);
    }
    site.illegible().await;
    site.assert_no_other_event(&mut peer).await;
    site.driver.read(STREAM);
    site.illegible().await;
    site.driver.read(STREAM);
    assert_eq!(site.response().await.version, "1");
}

#[tokio::test]
async fn x2_an_empty_message_is_delivered_like_any_other() {
    let mut server = Ads::start().await;
    let mut site = Site::at(server.addr);
    site.driver.read(STREAM);
    site.dispatched().await;
    let peer = server.call().await;
    peer.answer(Vec::new());
    assert_eq!(site.response().await.type_url, "");
}

#[tokio::test]
async fn x2_an_orderly_close_ends_the_stream_without_an_error() {
    let mut server = Ads::start().await;
    let mut site = Site::at(server.addr);
    site.driver.read(STREAM);
    site.dispatched().await;
    let peer = server.call().await;
    peer.answer(answer("1", Vec::new(), Vec::new()));
    site.response().await;
    drop(peer);
    site.driver.read(STREAM);
    assert_eq!(site.ended().await, StreamEnd { code: Code::Ok, message: String::new() });
    // So does a stream that ends without a message.
    site.driver.open(STREAM, SERVER, vec![request_for(&["web"])]);
    site.driver.read(STREAM);
    site.dispatched().await;
    drop(server.call().await);
    assert_eq!(site.ended().await, StreamEnd { code: Code::Ok, message: String::new() });
}

#[tokio::test]
async fn x2_a_closed_stream_is_silent_and_the_server_is_notified() {
    let mut server = Ads::start().await;
    let mut site = Site::at(server.addr);
    site.driver.read(STREAM);
    site.dispatched().await;
    let peer = server.call().await;
    peer.answer(answer("1", Vec::new(), Vec::new()));
    site.driver.close(STREAM);
    site.driver.send(STREAM, &request_for(&["more"]));
    site.driver.read(STREAM);
    peer.closed().await;
    assert!(site.events.try_recv().is_err());
}

#[tokio::test]
async fn x2_all_streams_are_closed_when_the_driver_is_dropped() {
    let mut server = Ads::start().await;
    let mut site = Site::at(server.addr);
    site.driver.open(StreamId(2), SERVER, vec![request_for(&["web"])]);
    let peers = [server.call().await, server.call().await];
    let Site { driver, mut events } = site;
    drop(driver);
    for peer in peers {
        peer.closed().await;
    }
    while let Some(event) = within(events.recv()).await {
        assert!(matches!(event, StreamEvent::Dispatched(_)), "{event:?}");
    }
}

#[tokio::test]
async fn x2_a_server_is_reached_by_name_or_unix_socket() {
    let mut server = Ads::start().await;
    let mut site = Site::asking(insecure(format!("dns:///localhost:{}", server.addr.port())));
    site.dispatched().await;
    assert_eq!(server.call().await.request().await.resource_names, ["web"]);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("xds.sock");
    let mut server = Ads::at_path(&path);
    let mut site = Site::asking(insecure(format!("unix:{}", path.display())));
    site.dispatched().await;
    assert_eq!(server.call().await.request().await.resource_names, ["web"]);
}
