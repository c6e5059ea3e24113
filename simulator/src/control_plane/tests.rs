//! Tests of the control plane with a plain ADS client.

mod client;

use std::time::Duration;

use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::service::discovery::v3::Resource;
use prost::Message;

use super::*;
use client::{Bytewise, Client, Tls, ack, first, nack, named, soon};

async fn started() -> ControlPlane {
    ControlPlane::start().await.expect("a free port")
}

/// Returns endpoints with this name and one address.
fn with(name: &str, address: &str) -> Any {
    endpoints(name, [Locality::of([(address, 80)])])
}

fn clusters_in(response: &DiscoveryResponse) -> Vec<String> {
    let name = |any: &Any| Cluster::decode(&any.value[..]).expect("a cluster").name;
    response.resources.iter().map(name).collect()
}

fn endpoints_in(response: &DiscoveryResponse) -> Vec<String> {
    let name = |any: &Any| ClusterLoadAssignment::decode(&any.value[..]).expect("endpoints").cluster_name;
    response.resources.iter().map(name).collect()
}

#[tokio::test]
async fn a_subscription_is_answered_once_and_its_ack_is_not() {
    let control = started().await;
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.1")).await;
    let mut client = Client::connect(&control).await;

    client.ask(first(Kind::Endpoints, &["a"]));
    let response = client.receive().await;
    assert_eq!(response.type_url, Kind::Endpoints.type_url());
    assert_eq!((response.version_info.as_str(), response.nonce.as_str()), ("1", "1"));
    assert_eq!(response.resources, [with("a", "10.0.0.1")]);

    client.ask(ack(&response, &["a"]));
    control.wait_until(|journal| journal.len() == 2).await.expect("the ACK");
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.2")).await;
    let pushed = client.receive().await;
    assert_eq!((pushed.version_info.as_str(), pushed.nonce.as_str()), ("2", "2"), "nothing came in between");
    assert_eq!(pushed.resources, [with("a", "10.0.0.2")]);
}

#[tokio::test]
async fn endpoints_are_sent_if_new_or_requested_again() {
    let control = started().await;
    control.set_all(Kind::Endpoints, ["a", "b"].map(|name| (name.to_owned(), endpoints(name, [])))).await;
    let mut client = Client::connect(&control).await;

    client.ask(first(Kind::Endpoints, &["a", "absent"]));
    let response = client.receive().await;
    assert_eq!(endpoints_in(&response), ["a"]);
    client.ask(ack(&response, &["a", "b"]));
    let response = client.receive().await;
    assert_eq!(endpoints_in(&response), ["b"]);
    client.ask(ack(&response, &["b"]));
    client.ask(ack(&response, &["a", "b"]));
    let response = client.receive().await;
    assert_eq!((endpoints_in(&response), response.nonce.as_str()), (vec!["a".to_owned()], "3"));

    control.remove(Kind::Endpoints, "a").await;
    control.set(Kind::Endpoints, "c", endpoints("c", [])).await;
    control.set(Kind::Endpoints, "b", with("b", "10.0.0.1")).await;
    let response = client.receive().await;
    assert_eq!(endpoints_in(&response), ["b"]);
    assert_eq!(response.nonce, "4", "neither a removal nor an unrequested name is sent");
}

#[tokio::test]
async fn a_response_of_clusters_lacks_removed_ones() {
    let control = started().await;
    control.set_all(Kind::Clusters, ["a", "b"].map(|name| (name.to_owned(), cluster(name, "")))).await;
    let mut client = Client::connect(&control).await;

    client.ask(first(Kind::Clusters, &["a", "b", "absent"]));
    assert_eq!(clusters_in(&client.receive().await), ["a", "b"]);
    control.set(Kind::Clusters, "b", cluster("b", "other")).await;
    assert_eq!(clusters_in(&client.receive().await), ["a", "b"]);
    control.remove(Kind::Clusters, "a").await;
    assert_eq!(clusters_in(&client.receive().await), ["b"]);
    control.remove(Kind::Clusters, "b").await;
    let response = client.receive().await;
    assert_eq!(clusters_in(&response), [""; 0]);
    assert_eq!(response.version_info, "4");
}

#[tokio::test]
async fn missing_clusters_are_answered_with_an_empty_response() {
    let control = started().await;
    let mut client = Client::connect(&control).await;

    client.ask(first(Kind::Clusters, &["a"]));
    let response = client.receive().await;

    assert_eq!((response.version_info.as_str(), response.resources.len()), ("0", 0));
}

#[tokio::test]
async fn an_error_is_sent_once_per_stream_and_can_be_forgotten() {
    let control = started().await;
    control.set_all(Kind::Clusters, ["a", "b"].map(|name| (name.to_owned(), cluster(name, "")))).await;
    let mut client = Client::connect(&control).await;
    client.ask(first(Kind::Clusters, &["a", "b"]));
    client.receive().await;

    control.fail(Kind::Clusters, "a", Code::PermissionDenied, "not yours").await;
    let response = client.receive().await;
    assert_eq!(clusters_in(&response), ["b"]);
    let [error] = &response.resource_errors[..] else { panic!("{response:?}") };
    assert_eq!(error.resource_name.as_ref().map(|name| name.name.as_str()), Some("a"));
    let detail = error.error_detail.as_ref().expect("a detail");
    assert_eq!((Code::from(detail.code), detail.message.as_str()), (Code::PermissionDenied, "not yours"));

    control.set(Kind::Clusters, "b", cluster("b", "other")).await;
    let response = client.receive().await;
    assert_eq!((clusters_in(&response), response.resource_errors.len()), (vec!["b".to_owned()], 0));

    let mut second = Client::connect(&control).await;
    second.ask(first(Kind::Clusters, &["a"]));
    assert_eq!(second.receive().await.resource_errors.len(), 1, "another stream has not received it");

    control.forget_error(Kind::Clusters, "a").await;
    assert_eq!(clusters_in(&client.receive().await), ["a", "b"]);
}

#[tokio::test]
async fn an_error_of_missing_endpoints_is_sent_and_forgotten() {
    let control = started().await;
    control.fail(Kind::Endpoints, "a", Code::NotFound, "never heard of it").await;
    let mut client = Client::connect(&control).await;

    client.ask(first(Kind::Endpoints, &["a"]));
    let response = client.receive().await;
    assert_eq!((response.resources.len(), response.resource_errors.len()), (0, 1));

    control.forget_error(Kind::Endpoints, "a").await;
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.1")).await;
    let response = client.receive().await;
    assert_eq!((response.nonce.as_str(), response.resources.len()), ("2", 1));
}

#[tokio::test]
async fn the_journal_has_all_fields_of_a_request() {
    let control = started().await;
    control.set_bad(Kind::Endpoints, "a", Bad::Content).await;
    let mut client = Client::with_authorization(&control, "Bearer token").await;

    client.ask(named(first(Kind::Endpoints, &["a"]), "node-7"));
    let response = client.receive().await;
    client.ask(nack(&response, &["a"], "no address"));
    client.ask(ack(&DiscoveryResponse { nonce: "old".to_owned(), ..response }, &["a", "b"]));
    let journal = control.wait_until(|journal| journal.len() == 3).await.expect("three requests");

    assert_eq!(journal[0].names, ["a"]);
    assert_eq!(journal[0].authorization.as_deref(), Some("Bearer token"));
    let node = journal[0].node.as_ref().expect("a node");
    assert_eq!((node.id.as_str(), node.user_agent.as_str()), ("node-7", "plain"));
    assert_eq!((node.user_agent_version.as_str(), &node.features[..]), ("1.0", &["one".to_owned()][..]));
    assert!(journal[1].is_nack() && !journal[1].is_ack() && !journal[1].stale, "{}", journal[1]);
    let refused = Refusal { code: Code::InvalidArgument, message: "no address".to_owned() };
    assert_eq!((journal[1].error.as_ref(), journal[1].response_nonce.as_str()), (Some(&refused), "1"));
    assert_eq!((journal[1].stream, &journal[1].node), (1, &None));
    assert!(journal[2].is_ack() && journal[2].stale, "{}", journal[2]);
    assert_eq!((control.requests(Kind::Endpoints).await, control.requests(Kind::Clusters).await), (3, 0));
}

#[tokio::test]
async fn a_request_with_an_outdated_nonce_is_ignored() {
    let control = started().await;
    control.set_all(Kind::Endpoints, ["a", "b"].map(|name| (name.to_owned(), endpoints(name, [])))).await;
    let mut client = Client::connect(&control).await;
    client.ask(first(Kind::Endpoints, &["a"]));
    let older = client.receive().await;
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.1")).await;
    client.receive().await;

    client.ask(ack(&older, &["a", "b"]));
    control.wait_until(|journal| journal.len() == 2).await.expect("the request");
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.2")).await;
    let response = client.receive().await;
    assert_eq!((endpoints_in(&response), response.nonce.as_str()), (vec!["a".to_owned()], "3"));

    client.ask(ack(&response, &["a", "b"]));
    assert_eq!(endpoints_in(&client.receive().await), ["b"]);
}

#[tokio::test]
async fn a_nack_is_answered_again_only_if_configured() {
    let control = started().await;
    control.set_bad(Kind::Endpoints, "a", Bad::Bytes).await;
    let mut client = Client::connect(&control).await;
    client.ask(first(Kind::Endpoints, &["a"]));
    let response = client.receive().await;
    client.ask(nack(&response, &["a"], "what?"));
    control.wait_until(|journal| journal.len() == 2).await.expect("the NACK");
    control.set_bad(Kind::Endpoints, "a", Bad::Content).await;
    let response = client.receive().await;
    assert_eq!(response.nonce, "2", "the NACK was not answered");

    control.repeat_on_nack(true).await;
    let mut last = response;
    for nonce in ["3", "4"] {
        client.ask(nack(&last, &["a"], "what?"));
        let again = client.receive().await;
        assert_eq!(again, DiscoveryResponse { nonce: nonce.to_owned(), ..last });
        last = again;
    }
}

#[tokio::test]
async fn an_ack_is_answered_again_only_if_configured() {
    let control = started().await;
    control.set(Kind::Endpoints, "a", endpoints("a", [Locality::of([("10.0.0.1", 80)])])).await;
    control.repeat_on_ack(true).await;
    let mut client = Client::connect(&control).await;
    client.ask(first(Kind::Endpoints, &["a"]));
    let mut last = client.receive().await;
    for nonce in ["2", "3"] {
        client.ask(ack(&last, &["a"]));
        let again = client.receive().await;
        assert_eq!(again, DiscoveryResponse { nonce: nonce.to_owned(), ..last });
        last = again;
    }
    control.repeat_on_ack(false).await;
    client.ask(ack(&last, &["a"]));
    control.set(Kind::Endpoints, "a", endpoints("a", [Locality::of([("10.0.0.2", 80)])])).await;
    let next = client.receive().await;
    assert_eq!((next.nonce.as_str(), next.version_info.as_str()), ("4", "2"), "the ACK was not answered");
}

#[tokio::test]
async fn resources_are_wrapped_on_demand() {
    let control = started().await;
    control.wrap(true).await;
    control.set_bad(Kind::Endpoints, "a", Bad::Bytes).await;
    let mut client = Client::connect(&control).await;

    client.ask(first(Kind::Endpoints, &["a"]));
    let response = client.receive().await;

    assert!(response.resources[0].type_url.ends_with("/envoy.service.discovery.v3.Resource"));
    let wrapper = Resource::decode(&response.resources[0].value[..]).expect("a wrapper");
    assert_eq!((wrapper.name.as_str(), wrapper.version.as_str()), ("a", "1"));
    let inner = wrapper.resource.expect("a resource");
    assert_eq!(inner.type_url, Kind::Endpoints.type_url());
    assert!(ClusterLoadAssignment::decode(&inner.value[..]).is_err(), "{inner:?}");
}

#[tokio::test]
async fn builders_set_all_fields() {
    let endpoint = Endpoint {
        health: HealthStatus::Draining,
        weight: Some(3),
        additional: vec![("fd00::1".to_owned(), 80)],
        ..Endpoint::at("10.0.0.1", 80)
    };
    let locality = Locality { priority: 2, weight: None, zone: None, endpoints: vec![endpoint] };
    let any = endpoints("a", [locality, Locality::of([("10.0.0.2", 81)])]);

    let assignment = ClusterLoadAssignment::decode(&any.value[..]).expect("endpoints");
    let [bare, usual] = &assignment.endpoints[..] else { panic!("{assignment:?}") };
    assert_eq!((bare.priority, &bare.locality, &bare.load_balancing_weight), (2, &None, &None));
    assert_eq!(bare.lb_endpoints[0].health_status(), HealthStatus::Draining);
    let words = format!("{:?}", bare.lb_endpoints[0]);
    assert!(words.contains("fd00::1") && words.contains("UInt32Value { value: 3 }"), "{words}");
    assert_eq!(usual.locality.as_ref().map(|locality| locality.zone.as_str()), Some("zone-1"));
    assert_eq!(usual.load_balancing_weight.map(|weight| weight.value), Some(1));
    let words = format!("{:?}", Cluster::decode(&cluster("c", "a").value[..]).expect("a cluster"));
    assert!(words.contains("service_name: \"a\"") && words.contains("Ads("), "{words}");
}

#[tokio::test]
async fn a_silent_control_plane_sends_its_responses_later() {
    let control = started().await;
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.1")).await;
    control.behave(StreamBehaviour::Silent).await;
    let mut client = Client::connect(&control).await;
    client.ask(first(Kind::Endpoints, &["a"]));
    control.wait_until(|journal| journal.len() == 1).await.expect("the request");
    for address in ["10.0.0.2", "10.0.0.3"] {
        control.set(Kind::Endpoints, "a", with("a", address)).await;
    }

    control.behave(StreamBehaviour::Answers).await;
    let response = client.receive().await;

    assert_eq!((response.nonce.as_str(), &response.resources[..]), ("1", &[with("a", "10.0.0.3")][..]));
}

#[tokio::test]
async fn streams_end_with_a_status_or_with_their_connection() {
    let control = started().await;
    for (number, ending, code) in [
        (1, Ending::Cleanly, None),
        (2, Ending::Status(Status::unavailable("going")), Some(Code::Unavailable)),
    ] {
        let mut client = Client::connect(&control).await;
        client.ask(first(Kind::Endpoints, &["a"]));
        control.wait_until(|journal| journal.len() == number).await.expect("the request");
        assert_eq!(control.cut(ending).await, 1);
        assert_eq!(client.end().await, code);
    }
    let mut client = Client::connect(&control).await;
    client.ask(first(Kind::Endpoints, &["a"]));
    control.wait_for_streams(|streams| streams.open == 1).await.expect("the stream");
    assert_eq!(control.cut(Ending::Connections).await, 1);
    assert!(client.end().await.is_some(), "an aborted connection is no clean end");
    control.wait_for_streams(|streams| streams.open == 0).await.expect("its end");
}

#[tokio::test]
async fn streams_can_end_before_their_first_response() {
    let control = started().await;
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.1")).await;
    let mut early = Client::connect(&control).await;
    early.ask(first(Kind::Endpoints, &["a"]));
    let response = early.receive().await;

    control.behave(StreamBehaviour::EndsStreams(Ending::Status(Status::internal("broken")))).await;
    let mut late = Client::connect(&control).await;
    late.ask(first(Kind::Endpoints, &["a"]));
    assert_eq!(late.end().await, Some(Code::Internal));
    assert_eq!(control.journal().await.len(), 2, "its request is known");

    early.ask(ack(&response, &["a"]));
    control.wait_until(|journal| journal.len() == 3).await.expect("the ACK");
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.2")).await;
    assert_eq!(early.receive().await.nonce, "2");
}

#[tokio::test]
async fn streams_can_be_refused_before_requests_are_read() {
    let control = started().await;
    control.behave(StreamBehaviour::Refuses(Status::unauthenticated("who?"))).await;

    let refused = Client::try_connect(&control).await.err().expect("a refusal");

    assert_eq!((refused.code(), refused.message()), (Code::Unauthenticated, "who?"));
    let streams = control.streams().await;
    assert_eq!((streams.connections, streams.opened_us.len(), streams.open), (1, 1, 0));
    assert_eq!(control.journal().await, []);
}

#[tokio::test]
async fn a_stream_that_its_client_ends_is_no_longer_open() {
    let control = started().await;
    let client = Client::connect(&control).await;
    control.wait_for_streams(|streams| streams.open == 1).await.expect("the stream");

    drop(client);

    control.wait_for_streams(|streams| streams.open == 0).await.expect("its end");
}

#[tokio::test]
async fn bytes_arrive_as_they_were_sent() {
    let control = started().await;
    let mut bytewise = Bytewise::connect(&control).await;
    let mut client = Client::connect(&control).await;
    control.wait_for_streams(|streams| streams.open == 2).await.expect("both streams");

    let bytes = [0xff, 0x00, 0x17, 0xff];
    assert_eq!(control.send_bytes(bytes.to_vec()).await, 2);

    assert_eq!(bytewise.receive().await, bytes[..]);
    assert_eq!(client.end().await, Some(Code::Internal));
}

#[tokio::test]
async fn a_response_is_sent_unchanged_with_missing_version_and_nonce() {
    let control = started().await;
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.1")).await;
    let mut client = Client::connect(&control).await;
    client.ask(first(Kind::Endpoints, &["a"]));
    client.receive().await;

    let type_url = Kind::Endpoints.type_url().to_owned();
    assert_eq!(control.send(DiscoveryResponse { type_url, ..DiscoveryResponse::default() }).await, 1);
    let empty = client.receive().await;
    assert_eq!((empty.version_info.as_str(), empty.nonce.as_str()), ("1", "2"));
    assert_eq!(empty.resources, []);
    let odd = DiscoveryResponse { type_url: "odd".to_owned(), nonce: "n".to_owned(), ..empty };
    control.send(odd.clone()).await;
    assert_eq!(client.receive().await, odd);

    client.ask(ack(&DiscoveryResponse { nonce: "2".to_owned(), ..odd }, &["a"]));
    let journal = control.wait_until(|journal| journal.len() == 2).await.expect("the ACK");
    assert_eq!(journal[1].kind(), None);
}

#[tokio::test]
async fn versions_and_nonces_restart_with_the_server() {
    let control = started().await;
    for address in ["10.0.0.1", "10.0.0.2"] {
        control.set(Kind::Endpoints, "a", with("a", address)).await;
    }
    let mut client = Client::connect(&control).await;
    client.ask(first(Kind::Endpoints, &["a"]));
    let response = client.receive().await;
    assert_eq!((response.version_info.as_str(), response.nonce.as_str()), ("2", "1"));

    control.stop().await;
    assert!(client.end().await.is_some(), "it is no clean end");
    assert_eq!(control.streams().await.open, 0);
    let refused = tokio::net::TcpStream::connect(control.address()).await.map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(io::ErrorKind::ConnectionRefused));
    assert_eq!(control.dial().await.err().map(|error| error.kind()), Some(io::ErrorKind::ConnectionRefused));

    control.restart().await.expect("the same address");
    let mut client = Client::connect(&control).await;
    client.ask(ack(&response, &["a"]));
    let response = client.receive().await;
    assert_eq!((response.version_info.as_str(), response.nonce.as_str()), ("1", "1"));
    assert_eq!(response.resources, [with("a", "10.0.0.2")]);
    let journal = control.journal().await;
    assert_eq!((journal[1].stream, journal[1].version_info.as_str()), (2, "2"));

    control.clear().await;
    control.restart().await.expect("the same address");
    let mut client = Client::connect(&control).await;
    client.ask(first(Kind::Clusters, &["a"]));
    assert_eq!(client.receive().await.version_info, "0", "the resources were cleared");
}

#[tokio::test]
async fn dropping_the_last_handle_closes_the_port() {
    let control = started().await;
    let address = control.address();
    let second = control.clone();
    drop(control);
    let mut client = Client::connect(&second).await;

    drop(second);

    assert!(client.end().await.is_some());
    let gone = async { while tokio::net::TcpStream::connect(address).await.is_ok() {} };
    soon(gone).await;
}

#[tokio::test]
async fn a_current_version_gets_no_resend_where_trusted() {
    let control = started().await;
    control.trust_versions(true).await;
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.1")).await;
    let mut client = Client::connect(&control).await;

    let mut request = first(Kind::Endpoints, &["a"]);
    request.version_info = "1".to_owned();
    client.ask(request);
    control.wait_until(|journal| journal.len() == 1).await.expect("the request");
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.2")).await;

    let response = client.receive().await;
    assert_eq!((response.version_info.as_str(), response.nonce.as_str()), ("2", "1"));
}

#[tokio::test(start_paused = true)]
async fn held_headers_are_sent_with_the_first_message() {
    let control = started().await;
    control.hold_headers(true).await;
    let (mut client, opening) = Client::dial(&control).await;
    let mut opening = std::pin::pin!(opening);
    let held = tokio::time::timeout(Duration::from_secs(60), &mut opening).await;
    assert!(held.is_err(), "no headers without a message");

    client.ask(first(Kind::Clusters, &["a"]));
    client.open(opening.await.expect("headers"));
    assert_eq!(client.receive().await.nonce, "1");
    control.cut(Ending::Cleanly).await;
    assert_eq!(client.end().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_frozen_connection_stays_open_without_traffic() {
    let control = started().await;
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.1")).await;
    let (mut client, opening) = Client::dial(&control).await;
    client.open(opening.await.expect("headers"));
    control.freeze(true).await;

    client.ask(first(Kind::Endpoints, &["a"]));
    let received = tokio::time::timeout(Duration::from_secs(60), client.receive()).await;
    assert!(received.is_err(), "{received:?}");
    assert_eq!(control.journal().await, []);

    control.freeze(false).await;
    assert_eq!(client.receive().await.resources.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_shows_the_journal() {
    let control = started().await;
    let never = control.wait_until(|_| false).await.expect_err("nothing can come");
    assert_eq!(
        never.to_string(),
        "the condition did not hold within 20 s; 0 connections, 0 streams of which 0 are open; no request was received"
    );

    let (client, opening) = Client::dial(&control).await;
    client.ask(named(first(Kind::Endpoints, &["a"]), "node-7"));
    let opened = opening.await.expect("headers");
    let never = control.wait_for_streams(|streams| streams.open == 2).await.expect_err("there is one");
    assert!(
        never.to_string().ends_with(
            "1 connections, 1 streams of which 1 are open; stream 1 asks for ClusterLoadAssignment [\"a\"] \
             with version \"\" and nonce \"\" as node \"node-7\""
        ),
        "{never}"
    );
    drop((client, opened));
}

#[tokio::test]
async fn tls_requires_a_client_certificate_if_configured() {
    let tls = Tls::new();
    let control = ControlPlane::start_tls(&tls.identity()).await.expect("an identity");
    control.set(Kind::Endpoints, "a", with("a", "10.0.0.1")).await;

    let mut client = tls.connect(&control, true).await.expect("a client with a certificate");
    client.ask(first(Kind::Endpoints, &["a"]));
    assert_eq!(client.receive().await.resources.len(), 1);
    assert!(tls.connect(&control, false).await.is_err(), "a client without one");

    let broken = Identity { key: "no PEM".to_owned(), ..tls.identity() };
    let refused = ControlPlane::start_tls(&broken).await.err().map(|error| error.kind());
    assert_eq!(refused, Some(io::ErrorKind::InvalidInput));
}
