//! Serves the state of the xDS client to operators' tools by CSDS (H5; gRFCs A40, A71, A88): for each watched
//! resource its state, the version in use as it was received, and its errors.
//!
//! Another component publishes the state; the owner of the listener decides who can reach it. `limits` bounds what
//! clients cost.

mod limits;
#[cfg(test)]
mod tests;

use std::future::Future;
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
use futures::{FutureExt, Stream, StreamExt, future, stream};
use model::machine::Wall;
use model::xds::cache::{Error, ResourceState};
use model::xds::dump::ResourceDump;
use model::xds::dump::XdsView;
use model::xds::facts::Raw;
use tokio::net::TcpListener;
use tonic::{Extensions, Request, Response, Streaming};

use crate::bootstrap::Node;
use limits::{AnswerPermit, LargeAnswers, MAX_REQUEST, PermittedService};

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
    let answers = Answers { state: Arc::new(state), large: LargeAnswers::default() };
    let service = ClientStatusDiscoveryServiceServer::new(Service { answers, end: end.clone() })
        .max_decoding_message_size(MAX_REQUEST);
    let connections = limits::connections(listener);
    let serving =
        limits::server().serve_with_incoming_shutdown(PermittedService(service), connections, end.clone());
    // A peer that never ends its request must not delay the end of the process.
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
    answers: Answers<F>,
    end: End,
}

/// Creates the answers.
struct Answers<F> {
    state: Arc<F>,
    large: LargeAnswers,
}

impl<F> Clone for Answers<F> {
    fn clone(&self) -> Answers<F> {
        Answers { state: Arc::clone(&self.state), large: self.large.clone() }
    }
}

impl<F: Fn() -> Option<Status>> Answers<F> {
    /// Returns the answer to a request on this connection, and its permit if it is large.
    fn answer(
        &self,
        request: &ClientStatusRequest,
        connection: &Extensions,
    ) -> Result<(ClientStatusResponse, Option<AnswerPermit>), tonic::Status> {
        let status = checked(request, (self.state)())?;
        let with_contents = !request.exclude_resource_contents;
        let contents = if with_contents { size_of_contents(&status.view) } else { 0 };
        let permit = self.large.permit(contents, connection)?;
        Ok((answer(&status, with_contents), permit))
    }
}

#[tonic::async_trait]
impl<F: Fn() -> Option<Status> + Send + Sync + 'static> ClientStatusDiscoveryService for Service<F> {
    type StreamClientStatusStream =
        Pin<Box<dyn Stream<Item = Result<ClientStatusResponse, tonic::Status>> + Send>>;

    async fn stream_client_status(
        &self,
        request: Request<Streaming<ClientStatusRequest>>,
    ) -> Result<Response<Self::StreamClientStatusStream>, tonic::Status> {
        let (_, connection, requests) = request.into_parts();
        let (answers, connection) = (self.answers.clone(), Arc::new(connection));
        let answers = stream::unfold((Some(requests), None), move |(requests, permit)| {
            let (answers, connection) = (answers.clone(), Arc::clone(&connection));
            async move {
                // By the next request, the client has read the previous answer.
                drop(permit);
                let mut requests = requests?;
                let answer = match requests.message().await {
                    Ok(request) => answers.answer(&request?, &connection),
                    Err(status) => Err(status),
                };
                match answer {
                    Ok((answer, permit)) => Some((Ok(answer), (Some(requests), permit))),
                    // Nothing follows an error.
                    Err(status) => Some((Err(status), (None, None))),
                }
            }
        });
        // An open stream must not delay the end of the process.
        Ok(Response::new(answers.take_until(self.end.clone()).boxed()))
    }

    async fn fetch_client_status(
        &self,
        request: Request<ClientStatusRequest>,
    ) -> Result<Response<ClientStatusResponse>, tonic::Status> {
        let (answer, permit) = self.answers.answer(request.get_ref(), request.extensions())?;
        let mut response = Response::new(answer);
        limits::hold(permit, response.extensions_mut());
        Ok(response)
    }
}

/// Returns the status that answers a request.
fn checked(request: &ClientStatusRequest, status: Option<Status>) -> Result<Status, tonic::Status> {
    if !request.node_matchers.is_empty() {
        let words =
            "node_matchers: not supported, because this process reports only its own node: leave them out";
        return Err(tonic::Status::invalid_argument(words));
    }
    status.ok_or_else(|| {
        tonic::Status::unavailable("the status of the control planes is not available yet: retry")
    })
}

/// Returns the bytes of all resources, as they were received.
fn size_of_contents(view: &XdsView) -> usize {
    let cached = |resource: &ResourceDump| resource.cached.as_ref()?.raw.clone();
    let rejected = |resource: &ResourceDump| resource.error.as_ref()?.rejected.as_ref()?.raw.clone();
    let contents = view.dump.resources.iter().flat_map(|resource| [cached(resource), rejected(resource)]);
    contents.flatten().map(|raw| raw.bytes.len()).sum()
}

fn answer(Status { node, view }: &Status, with_contents: bool) -> ClientStatusResponse {
    let shown = view.dump.resources.iter().map(|resource| generic(resource, with_contents));
    let config = ClientConfig {
        node: Some(node.message().clone()),
        generic_xds_configs: shown.collect(),
        client_scope: SCOPE.to_owned(),
        ..ClientConfig::default()
    };
    ClientStatusResponse { config: vec![config] }
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
