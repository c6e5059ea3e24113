//! ADS clients for tests: over TCP, TLS or a connection in memory.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;
use envoy_types::pb::envoy::config::core::v3::node::UserAgentVersionType;
use envoy_types::pb::envoy::service::discovery::v3::DiscoveryRequest;
use envoy_types::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use envoy_types::pb::google::rpc;
use futures::FutureExt;
use futures::stream::unfold;
use hyper_util::rt::TokioIo;
use prost::bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_rustls::TlsConnector;
use tonic::codegen::Service;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Uri};
use tonic::{Code, Response, Status, Streaming};

use crate::control_plane::serving::{METHOD, Raw};
use crate::control_plane::{ControlPlane, DiscoveryResponse, Identity, Kind};

/// Waits for something, with a time limit.
pub(super) async fn soon<T>(awaited: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), awaited).await.expect("nothing came within 20 s")
}

/// Returns a first request of a kind.
pub(super) fn first(kind: Kind, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        type_url: kind.type_url().to_owned(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        ..DiscoveryRequest::default()
    }
}

/// The same request with a node.
pub(super) fn named(request: DiscoveryRequest, id: &str) -> DiscoveryRequest {
    let node = Node {
        id: id.to_owned(),
        user_agent_name: "plain".to_owned(),
        user_agent_version_type: Some(UserAgentVersionType::UserAgentVersion("1.0".to_owned())),
        client_features: vec!["one".to_owned()],
        ..Node::default()
    };
    DiscoveryRequest { node: Some(node), ..request }
}

/// Returns an ACK of a response.
pub(super) fn ack(response: &DiscoveryResponse, names: &[&str]) -> DiscoveryRequest {
    DiscoveryRequest {
        version_info: response.version_info.clone(),
        type_url: response.type_url.clone(),
        response_nonce: response.nonce.clone(),
        resource_names: names.iter().map(ToString::to_string).collect(),
        ..DiscoveryRequest::default()
    }
}

/// Returns a NACK of a response.
pub(super) fn nack(response: &DiscoveryResponse, names: &[&str], message: &str) -> DiscoveryRequest {
    let error =
        rpc::Status { code: Code::InvalidArgument.into(), message: message.to_owned(), details: Vec::new() };
    DiscoveryRequest { version_info: String::new(), error_detail: Some(error), ..ack(response, names) }
}

type Replies = Streaming<DiscoveryResponse>;
type Opening = Pin<Box<dyn Future<Output = Result<Response<Replies>, Status>> + Send>>;

/// A generated client on one stream.
pub(super) struct Client {
    requests: mpsc::UnboundedSender<DiscoveryRequest>,
    replies: Option<Replies>,
}

impl Client {
    pub(super) async fn connect(control: &ControlPlane) -> Self {
        Self::try_connect(control).await.expect("a stream")
    }

    pub(super) async fn try_connect(control: &ControlPlane) -> Result<Self, Status> {
        Self::on(channel(control).await, None).await
    }

    pub(super) async fn with_authorization(control: &ControlPlane, authorization: &'static str) -> Self {
        Self::on(channel(control).await, Some(authorization)).await.expect("a stream")
    }

    /// Returns a client on a connection in memory, and a future for the response headers of its stream.
    pub(super) async fn dial(control: &ControlPlane) -> (Self, Opening) {
        let mut ends = vec![control.dial().await.expect("it runs")];
        let dialing = move || {
            let end = ends.pop().ok_or_else(|| io::ErrorKind::ConnectionRefused.into());
            std::future::ready(end).boxed()
        };
        let endpoint = Channel::from_static("http://memory");
        let channel = endpoint.connect_with_connector(Connector(dialing)).await.expect("a connection");
        Self::begin(channel, None)
    }

    async fn on(channel: Channel, authorization: Option<&'static str>) -> Result<Self, Status> {
        let (mut client, opening) = Self::begin(channel, authorization);
        client.open(soon(opening).await?);
        Ok(client)
    }

    fn begin(channel: Channel, authorization: Option<&'static str>) -> (Self, Opening) {
        let (requests, queued) = mpsc::unbounded_channel::<DiscoveryRequest>();
        let queued = unfold(queued, async |mut queued| queued.recv().await.map(|request| (request, queued)));
        let mut request = tonic::Request::new(queued);
        if let Some(authorization) = authorization {
            let value = authorization.parse().expect("a value of metadata");
            request.metadata_mut().insert("authorization", value);
        }
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let opening = async move { client.stream_aggregated_resources(request).await }.boxed();
        (Self { requests, replies: None }, opening)
    }

    pub(super) fn open(&mut self, response: Response<Replies>) {
        self.replies = Some(response.into_inner());
    }

    pub(super) fn ask(&self, request: DiscoveryRequest) {
        self.requests.send(request).expect("the stream is open");
    }

    /// Returns the next response.
    pub(super) async fn receive(&mut self) -> DiscoveryResponse {
        let replies = self.replies.as_mut().expect("the stream is open");
        // Longer than any wait of a test on a paused clock.
        let within = Duration::from_secs(90);
        let received = tokio::time::timeout(within, replies.message()).await.expect("no response in time");
        received.expect("no error").expect("no end")
    }

    /// Returns the end of the stream: `None` for OK.
    pub(super) async fn end(&mut self) -> Option<Code> {
        let replies = self.replies.as_mut().expect("the stream is open");
        match soon(replies.message()).await {
            Ok(None) => None,
            Ok(Some(response)) => panic!("a response: {response:?}"),
            Err(status) => Some(status.code()),
        }
    }
}

/// A client that sends and receives bytes.
pub(super) struct Bytewise {
    replies: Streaming<Bytes>,
}

impl Bytewise {
    pub(super) async fn connect(control: &ControlPlane) -> Self {
        let mut client = tonic::client::Grpc::new(channel(control).await);
        client.ready().await.expect("a connection");
        let request = tonic::Request::new(futures::stream::pending::<Bytes>());
        let streaming = client.streaming(request, PathAndQuery::from_static(METHOD), Raw);
        Self { replies: soon(streaming).await.expect("a stream").into_inner() }
    }

    pub(super) async fn receive(&mut self) -> Bytes {
        soon(self.replies.message()).await.expect("no error").expect("no end")
    }
}

/// An authority and its certificates.
pub(super) struct Tls {
    authority: String,
    certificate: (String, KeyPair),
}

impl Tls {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        let certificate = params.signed_by(&key, &authority).expect("a certificate");
        Self { authority: authority.pem(), certificate: (certificate.pem(), key) }
    }

    /// Returns the identity of a control plane that requires client certificates.
    pub(super) fn identity(&self) -> Identity {
        let (certificates, key) = (self.certificate.0.clone(), self.certificate.1.serialize_pem());
        Identity { certificates, key, client_roots: Some(self.authority.clone()) }
    }

    /// Returns a client with the same certificate, or without one.
    pub(super) async fn connect(&self, control: &ControlPlane, shows: bool) -> Result<Client, Status> {
        let connector = TlsConnector::from(Arc::new(self.client_config(shows)));
        let address = control.address();
        let dialing = move || {
            let connector = connector.clone();
            async move {
                let name = ServerName::try_from("localhost").expect("a name");
                connector.connect(name, TcpStream::connect(address).await?).await
            }
            .boxed()
        };
        let channel =
            Channel::from_static("http://localhost").connect_with_connector(Connector(dialing)).await;
        let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
        Client::on(channel, None).await
    }

    fn client_config(&self, shows: bool) -> rustls::ClientConfig {
        use rustls_pki_types::pem::PemObject;
        let mut roots = rustls::RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(self.authority.as_bytes()).expect("PEM");
        roots.add(root).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let mut config = if shows {
            let chain = vec![CertificateDer::from_pem_slice(self.certificate.0.as_bytes()).expect("PEM")];
            let key = self.certificate.1.serialize_pem();
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(chain, key).expect("a certificate")
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }
}

async fn channel(control: &ControlPlane) -> Channel {
    let endpoint = Channel::from_shared(format!("http://{}", control.address())).expect("an address");
    soon(endpoint.connect()).await.expect("a connection")
}

type Dialing<IO> = Pin<Box<dyn Future<Output = io::Result<IO>> + Send>>;

/// Opens connections with a function.
struct Connector<F>(F);

impl<F, IO> Service<Uri> for Connector<F>
where
    F: FnMut() -> Dialing<IO>,
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    type Response = TokioIo<IO>;
    type Error = io::Error;
    type Future = Dialing<TokioIo<IO>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let dialing = (self.0)();
        async { dialing.await.map(TokioIo::new) }.boxed()
    }
}
