//! Tests of the state that a tool receives over a real connection.

mod limits;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;

use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use envoy_types::pb::envoy::r#type::matcher::v3::NodeMatcher;
use futures::stream;
use http::uri::PathAndQuery;
use model::level::Provenance;
use model::xds::cache::{Cached, Reason, Rejected};
use model::xds::dump::Dump;
use model::xds::facts::{AssignmentFacts, Body, Code, Received, ResourceKey, ResourceKind};
use model::xds::{ResourceValue, validate};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;

use super::*;
use crate::bootstrap::Bootstrap;
use crate::driver::RawCodec;

fn node() -> Node {
    let text = r#"{"xds_servers": [{"server_uri": "xds.test", "channel_creds": [{"type": "insecure"}]}],
        "node": {"id": "pools-1", "metadata": {"a": "b"}}}"#;
    Bootstrap::parse(text).unwrap().node("1.2.3")
}

fn raw(text: &str) -> Raw {
    Raw { type_url: Arc::from(ResourceKind::Endpoints.type_url()), bytes: Arc::from(text.as_bytes()) }
}

fn cached() -> Cached<ResourceValue> {
    let facts = AssignmentFacts { cluster_name: "web".to_owned(), localities: Vec::new() };
    let received = Received { raw: raw("good"), wrapper: None, body: Ok(Body::Endpoints(facts)) };
    let (_, value) = validate(ResourceKind::Endpoints, &received).unwrap();
    Cached {
        value,
        raw: Some(raw("good")),
        version: Arc::from("7"),
        updated: Wall::from_micros(1_500_000),
        provenance: Provenance::Watch,
    }
}

fn error(reason: Reason, code: Code, rejected: Option<Rejected>) -> Error {
    Error { reason, code, message: Arc::from(format!("it is {}", reason.as_str())), rejected }
}

fn rejected(text: Option<&str>) -> Option<Rejected> {
    Some(Rejected { version: Arc::from("8"), at: Wall::from_micros(-1), raw: text.map(raw) })
}

fn resource(
    name: &str,
    state: ResourceState,
    cached: Option<Cached<ResourceValue>>,
    error: Option<Error>,
) -> ResourceDump {
    ResourceDump { key: ResourceKey::new(ResourceKind::Endpoints, name), state, cached, error, watchers: 1 }
}

/// Returns a status with these watched resources.
fn of(resources: Vec<ResourceDump>) -> Status {
    let dump = Dump { servers: Vec::new(), resources };
    let view = XdsView { node_id: Arc::from("pools-1"), dump, sources: BTreeMap::new() };
    Status { node: Arc::new(node()), view: Arc::new(view) }
}

/// Returns one resource in each state, with and without a version in use.
fn status() -> Status {
    let nack = || Some(error(Reason::Nack, Code::InvalidArgument, rejected(Some("bad"))));
    let gone = Some(error(Reason::Deleted, Code::NotFound, rejected(None)));
    let reported = || Some(error(Reason::Reported, Code::PermissionDenied, rejected(None)));
    let late = |code| Some(error(Reason::Timer, code, None));
    let resources = vec![
        ResourceDump {
            key: ResourceKey::new(ResourceKind::Cluster, "web"),
            ..resource("", ResourceState::Requested, None, None)
        },
        resource("acked", ResourceState::Acked, Some(cached()), None),
        resource("deleted", ResourceState::DoesNotExist, Some(cached()), gone),
        resource("late", ResourceState::DoesNotExist, None, late(Code::NotFound)),
        resource("nacked", ResourceState::Nacked, None, nack()),
        resource("nacked-but-cached", ResourceState::Nacked, Some(cached()), nack()),
        resource("reported", ResourceState::ReceivedError, None, reported()),
        resource("reported-but-cached", ResourceState::ReceivedError, Some(cached()), reported()),
        resource("slow", ResourceState::Timeout, None, late(Code::Unavailable)),
    ];
    of(resources)
}

/// A server of this status, until it is shut down.
struct Site {
    addr: SocketAddr,
    end: oneshot::Sender<()>,
    served: JoinHandle<Result<(), tonic::transport::Error>>,
}

impl Site {
    async fn start(status: impl Fn() -> Option<Status> + Send + Sync + 'static) -> Site {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let (end, ended) = oneshot::channel::<()>();
        let served = tokio::spawn(serve(listener, status, ended.map(drop)));
        Site { addr, end, served }
    }

    async fn client(&self) -> ClientStatusDiscoveryServiceClient<Channel> {
        ClientStatusDiscoveryServiceClient::connect(format!("http://{}", self.addr)).await.unwrap()
    }
}

async fn within<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(Duration::from_secs(60), awaited).await.expect("it happens in time")
}

async fn shown(request: ClientStatusRequest) -> ClientConfig {
    let site = Site::start(|| Some(status())).await;
    let answer = within(site.client().await.fetch_client_status(request)).await.unwrap();
    let mut configs = answer.into_inner().config;
    assert_eq!(configs.len(), 1);
    configs.remove(0)
}

/// Name, state, version, contents, and the seconds and nanoseconds of the last update.
type Row<'a> = (&'a str, ClientResourceStatus, &'a str, &'a str, Option<(i64, i32)>);

fn row(config: &GenericXdsConfig) -> Row<'_> {
    let contents = config.xds_config.as_ref().map_or("", |any| std::str::from_utf8(&any.value).unwrap());
    let updated = config.last_updated.as_ref().map(|at| (at.seconds, at.nanos));
    (&config.name, config.client_status(), &config.version_info, contents, updated)
}

/// Details, version, contents, and the time.
type Failure<'a> = (&'a str, &'a str, &'a str, Option<(i64, i32)>);

fn statuses(config: &GenericXdsConfig) -> Option<Failure<'_>> {
    config.error_state.as_ref().map(|error| {
        let contents = error.failed_configuration.as_ref();
        let contents = contents.map_or("", |any| std::str::from_utf8(&any.value).unwrap());
        let at = error.last_update_attempt.as_ref().map(|at| (at.seconds, at.nanos));
        (error.details.as_str(), error.version_info.as_str(), contents, at)
    })
}

#[tokio::test]
async fn h5_a88_each_state_is_shown_with_the_version_in_use() {
    use ClientResourceStatus::{Acked, DoesNotExist, Nacked, ReceivedError, Requested, Timeout};
    let config = shown(ClientStatusRequest::default()).await;
    let is_bare = |one: &GenericXdsConfig| one.config_status == 0 && !one.is_static_resource;
    assert!(config.generic_xds_configs.iter().all(is_bare), "what is a server's to say, and no client's");
    #[expect(deprecated, reason = "what A40 has clients leave alone")]
    let former = &config.xds_config;
    assert_eq!(former, &[]);
    let in_use = Some((1, 500_000_000));
    let rows: Vec<Row<'_>> = config.generic_xds_configs.iter().map(row).collect();
    let expected = [
        ("web", Requested, "", "", None),
        ("acked", Acked, "7", "good", in_use),
        ("deleted", DoesNotExist, "7", "good", in_use),
        ("late", DoesNotExist, "", "", None),
        ("nacked", Nacked, "", "", None),
        ("nacked-but-cached", Nacked, "7", "good", in_use),
        ("reported", ReceivedError, "", "", None),
        ("reported-but-cached", ReceivedError, "7", "good", in_use),
        ("slow", Timeout, "", "", None),
    ];
    assert_eq!(rows, expected);
    let types: Vec<&str> = config.generic_xds_configs.iter().map(|one| one.type_url.as_str()).collect();
    assert_eq!(types[..2], [ResourceKind::Cluster.type_url(), ResourceKind::Endpoints.type_url()]);
    let contents = config.generic_xds_configs[1].xds_config.as_ref().unwrap();
    assert_eq!(contents.type_url, ResourceKind::Endpoints.type_url());
}

#[tokio::test]
async fn h5_a88_errors_have_version_and_time_after_a_response() {
    let config = shown(ClientStatusRequest::default()).await;
    let failures: Vec<_> = config.generic_xds_configs.iter().map(statuses).collect();
    let before = Some((-1, 999_999_000));
    let nack = Some(("it is nack", "8", "bad", before));
    let reported = Some(("it is reported", "8", "", before));
    let late = Some(("it is timer", "", "", None));
    let deleted = Some(("it is deleted", "8", "", before));
    assert_eq!(failures, [None, None, deleted, late, nack, nack, reported, reported, late]);
}

#[tokio::test]
async fn h5_the_client_is_shown_as_control_planes_know_it() {
    let config = shown(ClientStatusRequest::default()).await;
    assert_eq!(config.node.as_ref(), Some(node().message()));
    assert_eq!(config.client_scope, "#backend-pools");
}

#[tokio::test]
async fn h5_contents_are_omitted_on_request() {
    let request = ClientStatusRequest { exclude_resource_contents: true, ..ClientStatusRequest::default() };
    let config = shown(request).await;
    for one in &config.generic_xds_configs {
        assert_eq!(one.xds_config, None);
        assert!(one.error_state.as_ref().is_none_or(|error| error.failed_configuration.is_none()));
    }
    assert_eq!(row(&config.generic_xds_configs[1]).2, "7");
}

#[tokio::test]
async fn h5_each_request_on_a_stream_gets_the_current_state() {
    let (publish, published) = tokio::sync::watch::channel(Some(status()));
    let site = Site::start(move || published.borrow().clone()).await;
    let (ask, requests) = futures::channel::mpsc::unbounded();
    let mut client = site.client().await;
    ask.unbounded_send(ClientStatusRequest::default()).unwrap();
    let mut answers = within(client.stream_client_status(requests)).await.unwrap().into_inner();
    let first = within(answers.message()).await.unwrap().unwrap();
    assert_eq!(first.config[0].generic_xds_configs.len(), 9);
    publish.send(Some(of(Vec::new()))).unwrap();
    ask.unbounded_send(ClientStatusRequest::default()).unwrap();
    let second = within(answers.message()).await.unwrap().unwrap();
    assert_eq!(second.config[0].generic_xds_configs, []);
    drop(ask);
    assert_eq!(within(answers.message()).await.unwrap(), None);
}

#[tokio::test]
async fn h5_an_unknown_state_is_not_shown_as_empty() {
    let (publish, published) = tokio::sync::watch::channel(None);
    let site = Site::start(move || published.borrow().clone()).await;
    let mut client = site.client().await;
    let refused = within(client.fetch_client_status(ClientStatusRequest::default())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
    let requests = stream::iter([ClientStatusRequest::default()]);
    let mut answers = within(client.stream_client_status(requests)).await.unwrap().into_inner();
    let refused = within(answers.message()).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::Unavailable, "{refused}");
    publish.send(Some(of(Vec::new()))).unwrap();
    let answer = within(client.fetch_client_status(ClientStatusRequest::default())).await.unwrap();
    assert_eq!(answer.into_inner().config[0].generic_xds_configs, [], "nothing is watched, which is known");
}

#[tokio::test]
async fn h5_nodes_cannot_be_chosen() {
    let site = Site::start(|| Some(status())).await;
    let mut client = site.client().await;
    let request = || ClientStatusRequest {
        node_matchers: vec![NodeMatcher::default()],
        ..ClientStatusRequest::default()
    };
    let refused = within(client.fetch_client_status(request())).await.unwrap_err();
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    assert!(refused.message().starts_with("node_matchers: not supported"), "{refused}");
    let (ask, requests) = futures::channel::mpsc::unbounded();
    ask.unbounded_send(request()).unwrap();
    ask.unbounded_send(ClientStatusRequest::default()).unwrap();
    let refused = match within(client.stream_client_status(requests)).await {
        Ok(answers) => within(answers.into_inner().message()).await.unwrap_err(),
        Err(status) => status,
    };
    assert_eq!(refused.code(), tonic::Code::InvalidArgument);
}

#[tokio::test]
async fn h5_the_server_ends_also_with_an_open_stream() {
    let site = Site::start(|| Some(status())).await;
    let (ask, requests) = futures::channel::mpsc::unbounded();
    ask.unbounded_send(ClientStatusRequest::default()).unwrap();
    let mut client = site.client().await;
    let mut answers = within(client.stream_client_status(requests)).await.unwrap().into_inner();
    within(answers.message()).await.unwrap().unwrap();
    site.end.send(()).unwrap();
    assert_eq!(within(answers.message()).await.unwrap(), None);
    within(site.served).await.unwrap().unwrap();
    assert!(tokio::net::TcpStream::connect(site.addr).await.is_err());
    drop(ask);
}

#[tokio::test(start_paused = true)]
async fn h5_shutdown_does_not_wait_for_an_unfinished_request() {
    const METHOD: &str = "/envoy.service.status.v3.ClientStatusDiscoveryService/FetchClientStatus";
    let site = Site::start(|| Some(status())).await;
    let channel = Channel::from_shared(format!("http://{}", site.addr)).unwrap().connect().await.unwrap();
    let mut endless = tonic::client::Grpc::new(channel.clone());
    endless.ready().await.unwrap();
    let request = Request::new(stream::pending::<Vec<u8>>());
    let mut endless = pin!(endless.client_streaming(request, PathAndQuery::from_static(METHOD), RawCodec));
    // An answer to a later request shows that this one has arrived.
    let mut client = ClientStatusDiscoveryServiceClient::new(channel);
    let mut answered = pin!(client.fetch_client_status(ClientStatusRequest::default()));
    let first = future::select(endless.as_mut(), answered.as_mut()).await;
    let future::Either::Right((answered, _)) = first else { panic!("it cannot be answered") };
    answered.unwrap();
    let before = tokio::time::Instant::now();
    site.end.send(()).unwrap();
    site.served.await.unwrap().unwrap();
    assert_eq!(before.elapsed().as_secs(), GRACE.as_secs());
}
