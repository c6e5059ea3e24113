//! Serves the state of the xDS client to operators' tools by CSDS (H5; gRFCs A40, A71, A88): for each watched
//! resource its state, the version in use as it was received, and its errors.
//!
//! Another component publishes the state; the owner of the listener decides who can reach it.

#[cfg(test)]
mod tests;

use std::future::{Future, ready};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
use envoy_types::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use envoy_types::pb::envoy::service::status::v3::client_status_discovery_service_server::{
    ClientStatusDiscoveryService, ClientStatusDiscoveryServiceServer,
};
use envoy_types::pb::envoy::service::status::v3::{ClientConfig, ClientStatusRequest, ClientStatusResponse};
use envoy_types::pb::google::protobuf::{Any, Timestamp};
use futures::{FutureExt, Stream, StreamExt, future};
use model::machine::Wall;
use model::xds::cache::{Error, ResourceState};
use model::xds::dump::ResourceDump;
use model::xds::dump::XdsView;
use model::xds::facts::Raw;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Streaming};

use crate::bootstrap::Node;

/// The client scope of the resources (A71): the name of the only client in this process.
const SCOPE: &str = "#backend-pools";

/// Time that connections have to end after the shutdown.
const GRACE: Duration = Duration::from_secs(2);

/// State to serve.
#[derive(Clone, PartialEq, Debug)]
pub struct Status {
    /// Node of this client.
    pub node: Arc<Node>,
    /// State of the resources.
    pub view: Arc<XdsView>,
}

/// Serves CSDS on this listener until `shutdown`, and then for at most two seconds more. Calls `state` for each
/// request; `None`, before anything is published, is answered with `UNAVAILABLE`.
///
/// # Errors
/// The listener is broken.
pub async fn serve(
    listener: TcpListener,
    state: impl Fn() -> Option<Status> + Send + Sync + 'static,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), tonic::transport::Error> {
    let end = shutdown.boxed().shared();
    let service = Service { state: Arc::new(state), end: end.clone() };
    let server = Server::builder().http2_keepalive_interval(Some(Duration::from_secs(30)));
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let serving = server.serve_with_incoming_shutdown(
        ClientStatusDiscoveryServiceServer::new(service),
        incoming,
        end.clone(),
    );
    // A peer that never ends its request does not delay the end of the process.
    let late = async {
        end.await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        served = serving => served,
        () = late => Ok(()),
    }
}

/// The future that completes at shutdown.
type End = future::Shared<future::BoxFuture<'static, ()>>;

struct Service<F> {
    state: Arc<F>,
    end: End,
}

#[tonic::async_trait]
impl<F: Fn() -> Option<Status> + Send + Sync + 'static> ClientStatusDiscoveryService for Service<F> {
    type StreamClientStatusStream =
        Pin<Box<dyn Stream<Item = Result<ClientStatusResponse, tonic::Status>> + Send>>;

    async fn stream_client_status(
        &self,
        request: Request<Streaming<ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, tonic::Status> {
        let state = Arc::clone(&self.state);
        let answers = request.into_inner().map(move |request| answer(&request?, state()));
        // Nothing follows an error.
        let answers = answers.scan(false, |is_over, answer| {
            let answer = (!*is_over).then_some(answer);
            *is_over = answer.as_ref().is_none_or(Result::is_err);
            ready(answer)
        });
        // An open stream does not delay the end of the process.
        Ok(Response::new(answers.take_until(self.end.clone()).boxed()))
    }

    async fn fetch_client_status(
        &self,
        request: Request<ClientStatusRequest>,
    ) -> Result<Response<ClientStatusResponse>, tonic::Status> {
        answer(request.get_ref(), (self.state)()).map(Response::new)
    }
}

fn answer(
    request: &ClientStatusRequest,
    status: Option<Status>,
) -> Result<ClientStatusResponse, tonic::Status> {
    if !request.node_matchers.is_empty() {
        let words = "node_matchers: not supported, this is the only node here: leave them out";
        return Err(tonic::Status::invalid_argument(words));
    }
    let Some(Status { node, view }) = status else {
        return Err(tonic::Status::unavailable("nothing is known of control planes yet: ask again"));
    };
    let with_contents = !request.exclude_resource_contents;
    let shown = view.dump.resources.iter().map(|resource| generic(resource, with_contents));
    let config = ClientConfig {
        node: Some(node.message().clone()),
        generic_xds_configs: shown.collect(),
        client_scope: SCOPE.to_owned(),
        ..ClientConfig::default()
    };
    Ok(ClientStatusResponse { config: vec![config] })
}

/// Converts one resource, by the rules of gRPC's C-core.
fn generic(resource: &ResourceDump, with_contents: bool) -> GenericXdsConfig {
    let cached = resource.cached.as_ref();
    let raw = cached.and_then(|cached| cached.raw.as_ref());
    GenericXdsConfig {
        type_url: resource.key.kind.type_url().to_owned(),
        name: resource.key.name.to_string(),
        version_info: cached.map(|cached| cached.version.to_string()).unwrap_or_default(),
        xds_config: raw.filter(|_| with_contents).map(any),
        last_updated: cached.map(|cached| timestamp(cached.updated)),
        client_status: client_status(resource.state).into(),
        error_state: resource.error.as_ref().map(|error| failure(error, with_contents)),
        ..GenericXdsConfig::default()
    }
}

/// Converts an error; without a received version, there is no version and no time.
fn failure(error: &Error, with_contents: bool) -> UpdateFailureState {
    let rejected = error.rejected.as_ref();
    let raw = rejected.and_then(|rejected| rejected.raw.as_ref());
    UpdateFailureState {
        failed_configuration: raw.filter(|_| with_contents).map(any),
        last_update_attempt: rejected.map(|rejected| timestamp(rejected.at)),
        details: error.message.to_string(),
        version_info: rejected.map(|rejected| rejected.version.to_string()).unwrap_or_default(),
    }
}

fn client_status(state: ResourceState) -> ClientResourceStatus {
    match state {
        ResourceState::Requested => ClientResourceStatus::Requested,
        ResourceState::DoesNotExist => ClientResourceStatus::DoesNotExist,
        ResourceState::Acked => ClientResourceStatus::Acked,
        ResourceState::Nacked => ClientResourceStatus::Nacked,
        ResourceState::ReceivedError => ClientResourceStatus::ReceivedError,
        ResourceState::Timeout => ClientResourceStatus::Timeout,
    }
}

fn any(raw: &Raw) -> Any {
    Any { type_url: raw.type_url.to_string(), value: raw.bytes.to_vec() }
}

fn timestamp(at: Wall) -> Timestamp {
    let micros = at.as_micros();
    let nanos = i32::try_from(micros.rem_euclid(1_000_000) * 1_000).unwrap_or_default();
    Timestamp { seconds: micros.div_euclid(1_000_000), nanos }
}
