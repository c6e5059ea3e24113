//! Tests of the driver with real servers on loopback, which answer or stay silent as each test needs.

mod conversation;
mod faults;
mod secure;
mod server;
mod streams;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::address::Address as Specific;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::core::v3::{Address, Locality, SocketAddress};
use envoy_types::pb::envoy::config::endpoint::v3::lb_endpoint::HostIdentifier;
use envoy_types::pb::envoy::config::endpoint::v3::{
    ClusterLoadAssignment, Endpoint, LbEndpoint, LocalityLbEndpoints,
};
use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse, ResourceError};
use envoy_types::pb::google::protobuf::{Any, UInt32Value};
use envoy_types::util::pack_any;
use model::xds::facts::{Code, ResourceKind, Response};
use model::xds::stream::StreamEnd;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;

use super::*;
use server::Peer;

const STREAM: StreamId = StreamId(1);
const SERVER: ServerId = ServerId(0);

/// Wall time of every event.
const AT: Wall = Wall::from_micros(7_000_000);
/// Jitter at the end of every stream.
const JITTER: u16 = 321;

/// Waits for an expected event, with a time limit.
async fn within<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), awaited).await.expect("it happens in time")
}

/// Returns a bootstrap of one server.
fn bootstrap(target: impl fmt::Display, fields: &str) -> Arc<Bootstrap> {
    let text = format!(
        r#"{{"xds_servers": [{{"server_uri": "{target}", {fields}}}], "node": {{"id": "pools-1"}}}}"#
    );
    Arc::new(Bootstrap::parse(&text).unwrap())
}

/// Version of the client in the tests.
const VERSION: &str = "1.2.3";

fn insecure(target: impl fmt::Display) -> Arc<Bootstrap> {
    bootstrap(target, r#""channel_creds": [{"type": "insecure"}]"#)
}

/// A driver and its events.
struct Site {
    driver: Driver,
    events: UnboundedReceiver<StreamEvent>,
}

impl Site {
    fn of(bootstrap: Arc<Bootstrap>) -> Site {
        let (sender, events) = unbounded_channel();
        Site { driver: Driver::new(bootstrap, VERSION, sender, || AT, || JITTER), events }
    }

    /// Creates a driver whose stream to this server requests endpoints.
    fn asking(bootstrap: Arc<Bootstrap>) -> Site {
        let mut site = Site::of(bootstrap);
        site.driver.open(STREAM, SERVER, vec![request_for(&["web"])]);
        site
    }

    fn at(addr: SocketAddr) -> Site {
        Site::asking(insecure(addr))
    }

    async fn next(&mut self) -> StreamEvent {
        within(self.events.recv()).await.expect("the driver runs")
    }

    async fn dispatched(&mut self) {
        let event = self.next().await;
        assert!(matches!(event, StreamEvent::Dispatched(STREAM)), "{event:?}");
    }

    async fn sent(&mut self, kind: ResourceKind) {
        let event = self.next().await;
        assert!(matches!(event, StreamEvent::Sent(STREAM, sent) if sent == kind), "{event:?}");
    }

    async fn response(&mut self) -> Response {
        let event = self.next().await;
        let StreamEvent::Response(STREAM, response, AT) = event else { panic!("{event:?}") };
        response
    }

    async fn illegible(&mut self) {
        let event = self.next().await;
        assert!(matches!(event, StreamEvent::Undecodable(STREAM)), "{event:?}");
    }

    async fn ended(&mut self) -> StreamEnd {
        let event = self.next().await;
        let StreamEvent::Ended { stream: STREAM, ended, jitter: JITTER } = event else { panic!("{event:?}") };
        ended
    }

    /// Checks that the next event is a pulled request, and so that no other event came before it.
    async fn assert_no_other_event(&mut self, peer: &mut Peer) {
        self.driver.send(STREAM, &request_for(&["more"]));
        self.sent(ResourceKind::Endpoints).await;
        assert_eq!(peer.request().await.resource_names, ["more"]);
        assert!(self.events.try_recv().is_err());
    }
}

/// Listens and accepts nothing: the system opens the connections, and no data is sent.
async fn silent() -> (SocketAddr, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    (listener.local_addr().unwrap(), listener)
}

fn request_for(names: &[&str]) -> XdsRequest {
    XdsRequest {
        kind: ResourceKind::Endpoints,
        version: Arc::default(),
        nonce: Arc::default(),
        names: names.iter().copied().map(Arc::from).collect(),
        error: None,
        node: false,
    }
}

/// Returns a valid assignment with one address.
fn assignment(name: &str, address: &str) -> Any {
    let socket = SocketAddress {
        address: address.to_owned(),
        port_specifier: Some(PortSpecifier::PortValue(80)),
        ..SocketAddress::default()
    };
    let address = Address { address: Some(Specific::SocketAddress(socket)) };
    let endpoint = Endpoint { address: Some(address), ..Endpoint::default() };
    let endpoint =
        LbEndpoint { host_identifier: Some(HostIdentifier::Endpoint(endpoint)), ..LbEndpoint::default() };
    let locality = LocalityLbEndpoints {
        locality: Some(Locality { region: "r".to_owned(), ..Locality::default() }),
        load_balancing_weight: Some(UInt32Value { value: 1 }),
        lb_endpoints: vec![endpoint],
        ..LocalityLbEndpoints::default()
    };
    pack_any(ClusterLoadAssignment {
        cluster_name: name.to_owned(),
        endpoints: vec![locality],
        ..ClusterLoadAssignment::default()
    })
}

fn answer(version: &str, resources: Vec<Any>, resource_errors: Vec<ResourceError>) -> Vec<u8> {
    let message = DiscoveryResponse {
        version_info: version.to_owned(),
        resources,
        type_url: ResourceKind::Endpoints.type_url().to_owned(),
        nonce: format!("n{version}"),
        resource_errors,
        ..DiscoveryResponse::default()
    };
    message.encode_to_vec()
}
