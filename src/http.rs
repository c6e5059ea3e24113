//! The HTTP listeners: health and metrics, and the admin API, on loopback and with TLS (docs/design/surface.md, H1-H5).
//! Handlers read the published snapshot, hand operators' requests to the machines, and decide nothing.

mod admin;
mod answers;
mod auth;
mod body;
mod connection_limit;
mod effective;
mod enums;
mod events;
mod health;
mod installation;
mod log_limiter;
mod nodes;
mod one_request;
mod openapi;
mod page;
mod post;
mod problem;
mod query;
mod resources;
mod show;
mod tls;
mod values;
mod verdict;
mod web_page;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_http::error::DispatchError;
use actix_http::{HttpService, KeepAlive, ServiceConfig};
use actix_service::{ServiceFactoryExt as _, fn_service, map_config};
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_tls::accept::{TlsError, max_concurrent_tls_connect};
use actix_web::body::{BoxBody, MessageBody};
use actix_web::dev::{AppConfig, Server, ServerHandle, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::{Next, from_fn};
use actix_web::{App, FromRequest, Handler, Resource, Responder, guard, web};
use actors::clock::Clock;
use actors::host::Published;
use actors::kubernetes::{EventSubscription, Reviewer};
use actors::operator_requests::OperatorRequests;
use anyhow::Context as _;
use futures::future::join_all;
use metrics_exporter_prometheus::PrometheusHandle;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use crate::telemetry::Levels;
use crate::wiring::LivenessTargets;
use answers::{MAX_LARGE, Renderings};
use auth::{Access, Authorizer};
use connection_limit::{ConnectionLimit, ConnectionSlot, LimitedStream};
pub use effective::Effective;
use events::EventStreams;
pub use installation::Installation;
use one_request::OneRequest;
use openapi::OpenApi;
pub use openapi::openapi_document;
use problem::ServedPaths;
pub use resources::Listed;
use tls::{Certificate, Files};

/// Name of the listener of health and metrics in the log.
const HEALTH: &str = "health";
/// Timeout of open requests at shutdown, in seconds.
pub const END_TIMEOUT: u64 = 5;
/// Timeout of a client for the head of its request, and for the TLS handshake before it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Time that a connection stays open after the response for the rest of the request's body.
const DISCARDED_FOR: Duration = Duration::from_secs(1);
/// `TCP_USER_TIMEOUT` in milliseconds: the time that sent bytes may stay unacknowledged. Connections inherit it from
/// their listener.
const TCP_USER_TIMEOUT_MS: u32 = 10_000;
/// Send buffer of a connection, in bytes. The system's default is megabytes, which count as the container's memory.
const SEND_BUFFER: usize = 64 << 10;
/// Maximum connections of one listener: more would cost memory, and the process needs file descriptors for Azure and
/// the API server.
pub const CONNECTIONS: usize = 512;
/// Number of connections with a slot (`connection_limit`). The rest is for event streams and for connections that are
/// about to end.
const SLOTS: usize = 448;

/// State that every handler of the admin API reads.
#[derive(Clone)]
pub struct About {
    /// The process's clock.
    pub clock: Clock,
    /// Whether this is a dry run, which writes nothing (C4).
    pub dry_run: bool,
    /// The published snapshot.
    pub published: Published,
    /// The configuration in force.
    pub effective: Arc<Effective>,
    /// The installation that this process belongs to.
    pub installation: Arc<Installation>,
    /// The pools configured for each xDS source.
    pub listed: Arc<Listed>,
    /// Subscription to published events.
    pub event_subscription: EventSubscription,
}

/// Additional state of the handlers of operator requests.
#[derive(Clone)]
pub struct Operations {
    /// Sends requests to the machines.
    requests: OperatorRequests,
    /// Authorizes requests on loopback.
    authorizer: Authorizer,
    /// Changes the log level.
    levels: Levels,
}

impl Operations {
    /// Creates the state for operators that this reviewer's API server allows.
    #[must_use]
    pub fn new(requests: OperatorRequests, reviewer: Reviewer, levels: Levels) -> Operations {
        Operations { requests, authorizer: Authorizer::new(reviewer), levels }
    }
}

/// State of the health handlers.
#[derive(Clone)]
struct Health {
    about: About,
    liveness_targets: LivenessTargets,
    metrics: PrometheusHandle,
    shutting_down: Arc<AtomicBool>,
}

/// Bound addresses. They are bound before the rest of the service starts, so that a failure ends the start.
pub struct Addresses {
    health: TcpListener,
    admin: TcpListener,
    admin_tls: Option<(TcpListener, Certificate)>,
}

/// Listeners that are set up and not yet served.
pub struct Listeners {
    /// Address of health and metrics.
    pub health: SocketAddr,
    /// Address of the admin API on loopback.
    pub admin: SocketAddr,
    /// Address of the admin API with TLS, if configured.
    pub admin_tls: Option<SocketAddr>,
    /// The servers, with the names of their listeners in the log.
    servers: Vec<(&'static str, Server)>,
    certificate: Option<Certificate>,
    shutting_down: Arc<AtomicBool>,
    stop_streams: watch::Sender<bool>,
}

/// Listeners that are being served.
pub struct Served {
    handles: Vec<ServerHandle>,
    renewal: Option<JoinHandle<()>>,
    shutting_down: Arc<AtomicBool>,
    stop_streams: watch::Sender<bool>,
}

/// Binds an address of this configuration key, with the options of all listeners.
///
/// # Errors
/// The address is in use or not of this machine, or the system refuses an option.
pub(crate) fn bind(address: SocketAddr, key: &str) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind(address).with_context(|| {
        format!("{key}: failed to listen on {address}; is the port in use by another process?")
    })?;
    rustix::net::sockopt::set_tcp_user_timeout(&listener, TCP_USER_TIMEOUT_MS)
        .with_context(|| format!("{key}: failed to set TCP_USER_TIMEOUT on {address}"))?;
    rustix::net::sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER)
        .with_context(|| format!("{key}: failed to set the send buffer size on {address}"))?;
    Ok(listener)
}

impl Addresses {
    /// Binds the addresses, and reads the certificate if there is a listener with TLS.
    ///
    /// # Errors
    /// An address is in use or not of this machine, or the certificate or its key cannot be used.
    pub fn bind(at: &config::ControllerConfig) -> anyhow::Result<Addresses> {
        let (http, tls) = (&at.http, &at.http_tls);
        let files = tls.certificate.clone().zip(tls.key.clone());
        let certificate = files.map(|(certificate, key)| Certificate::read(Files { certificate, key }));
        let health = bind(http.health_listen, "http.healthListen")?;
        let admin = bind(http.admin_listen, "http.adminListen")?;
        let admin_tls = match certificate {
            Some(certificate) => Some((bind(http.admin_tls_listen, "http.adminTlsListen")?, certificate?)),
            None => None,
        };
        Ok(Addresses { health, admin, admin_tls })
    }
}

impl Listeners {
    /// Sets up the listeners. The admin API with TLS has the same paths as on loopback, and requires authorization for
    /// all of them.
    ///
    /// # Errors
    /// The operating system refuses a listener, or the TLS library refuses the certificate.
    pub fn open(
        at: Addresses,
        about: About,
        operations: Operations,
        liveness_targets: LivenessTargets,
        metrics: PrometheusHandle,
    ) -> anyhow::Result<Listeners> {
        let shutting_down = Arc::new(AtomicBool::new(false));
        let health_state = Health {
            about: about.clone(),
            liveness_targets,
            metrics,
            shutting_down: Arc::clone(&shutting_down),
        };
        let (health_server, health) =
            listen(at.health, (None, Access::Open), health::SERVES, move |config| {
                config.app_data(web::Data::new(health_state.clone()));
                config.app_data(web::Data::new(Renderings::default())).configure(health::routes);
            })?;
        let tls_authorizer = operations.authorizer.separate();
        let page = web::Data::new(web_page::WebPage::assembled());
        let document = web::Data::new(OpenApi::of_this_version());
        let (stop_streams, stopped) = watch::channel(false);
        let streams = web::Data::new(EventStreams::new(about.event_subscription.clone(), stopped));
        let routes = move |config: &mut web::ServiceConfig| {
            let config =
                config.app_data(web::Data::new(about.clone())).app_data(web::Data::new(operations.clone()));
            let config = config.app_data(page.clone()).app_data(document.clone()).app_data(streams.clone());
            config.configure(admin::routes).configure(post::routes);
        };
        let (admin_server, admin) =
            listen(at.admin, (None, Access::Loopback), admin::SERVES, routes.clone())?;
        let mut listeners = Listeners {
            health,
            admin,
            admin_tls: None,
            servers: vec![(HEALTH, health_server), ("admin", admin_server)],
            certificate: None,
            shutting_down,
            stop_streams,
        };
        if let Some((address, certificate)) = at.admin_tls {
            let tls = (Some(certificate.server_config()?), Access::Authorized(tls_authorizer));
            let (server, bound) = listen(address, tls, admin::SERVES, routes)?;
            listeners.servers.push(("admin_tls", server));
            listeners.admin_tls = Some(bound);
            listeners.certificate = Some(certificate);
        }
        Ok(listeners)
    }

    /// Serves all listeners until [`Served::stop`].
    #[must_use]
    pub fn serve(self) -> Served {
        let handles = self.servers.iter().map(|(_, server)| server.handle()).collect();
        for (listener, server) in self.servers {
            drop(actix::spawn(async move {
                if let Err(error) = server.await {
                    let effect = if listener == HEALTH {
                        "probes fail, and the kubelet restarts the container"
                    } else {
                        "this listener is unavailable until the process is restarted; backend pools are written"
                    };
                    let remedy = "restart the Pod if the kubelet does not";
                    tracing::error!(listener, %error, effect, remedy, "an HTTP listener failed");
                }
            }));
        }
        let renewal = self.certificate.map(|certificate| actix::spawn(certificate.renew()));
        Served { handles, renewal, shutting_down: self.shutting_down, stop_streams: self.stop_streams }
    }
}

impl Served {
    /// Makes `/readyz` fail, so that this process receives no more traffic.
    pub fn fail_readiness(&self) {
        self.shutting_down.store(true, Ordering::Relaxed);
    }

    /// Stops all listeners: event streams immediately, open requests within [`END_TIMEOUT`].
    pub async fn stop(self) {
        self.stop_streams.send_replace(true);
        if let Some(renewal) = self.renewal {
            renewal.abort();
        }
        join_all(self.handles.iter().map(|handle| handle.stop(true))).await;
    }
}

/// Returns a read-only path: GET and HEAD reach the handler, other methods get 405.
fn get<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    let read = web::route().guard(guard::Any(guard::Get()).or(guard::Head()));
    web::resource(path).route(read.to(handler)).default_service(web::to(problem::not_allowed))
}

/// Returns a path that supports only POST; other methods get 405.
fn post<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    web::resource(path).route(web::post().to(handler)).default_service(web::to(problem::not_allowed_but_post))
}

/// Returns an application with these routes and with the middleware of all requests: access control, and the limit of
/// large responses.
fn application(
    serves: ServedPaths,
    access: Access,
    large_responses: Arc<Semaphore>,
    routes: impl Fn(&mut web::ServiceConfig) + 'static,
) -> App<
    impl ServiceFactory<
        ServiceRequest,
        Config = (),
        Response = ServiceResponse<impl MessageBody>,
        Error = actix_web::Error,
        InitError = (),
    >,
> {
    App::new()
        .app_data(web::PathConfig::default().error_handler(problem::unreadable_path))
        .app_data(web::Data::new(serves))
        .configure(move |config| routes(config))
        .default_service(web::to(problem::no_such_path))
        .wrap(from_fn::<_, ()>(move |request: ServiceRequest, next: Next<BoxBody>| {
            auth::admit(access.clone(), request, next)
        }))
        .wrap(from_fn::<_, ()>(move |request: ServiceRequest, next: Next<BoxBody>| {
            answers::limit(Arc::clone(&large_responses), request, next)
        }))
}

/// Serves these routes at this address, with or without TLS. Returns the server and the bound address.
fn listen(
    at: TcpListener,
    (tls, access): (Option<ServerConfig>, Access),
    serves: ServedPaths,
    routes: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
) -> anyhow::Result<(Server, SocketAddr)> {
    let bound = at.local_addr().context("failed to read the address of a listener")?;
    let large = Arc::new(Semaphore::new(MAX_LARGE));
    let app = move || application(serves, access.clone(), Arc::clone(&large), routes.clone());
    let builder = Server::build()
        .workers(1)
        .max_concurrent_connections(CONNECTIONS)
        .disable_signals()
        .shutdown_timeout(END_TIMEOUT);
    let shutdown = builder.graceful_shutdown_signal();
    // A macro, because the services for the two kinds of streams have no common type that could be named.
    macro_rules! service {
        () => {{
            let shutdown = shutdown.clone();
            HttpService::build()
                .graceful_shutdown_signal(move || {
                    let shutdown = shutdown.clone();
                    async move { shutdown.notified().await }
                })
                .client_request_timeout(HEAD_TIMEOUT)
                .client_disconnect_timeout(DISCARDED_FOR)
                // A second head has no timeout, so one client could occupy all slots.
                .keep_alive(KeepAlive::Disabled)
                // A client that closes its side has left: its event stream ends immediately.
                .h1_allow_half_closed(false)
                .local_addr(bound)
                .on_connect_ext(|connection: &OneRequest<_>, data| {
                    data.insert::<Rc<ConnectionSlot>>(Rc::clone(connection.slot()));
                })
                .h1(map_config(app(), |()| AppConfig::default()))
        }};
    }
    let name = format!("http-{bound}");
    let server = match tls {
        Some(tls) => {
            // All connections may be in their TLS handshake: with a lower limit, fewer slow clients could block others.
            max_concurrent_tls_connect(CONNECTIONS);
            builder.listen(name, at, move || {
                let (config, limit) = (ServiceConfig::default(), ConnectionLimit::new(SLOTS));
                let mut acceptor = Acceptor::new(tls.clone());
                acceptor.set_handshake_timeout(HEAD_TIMEOUT);
                let limiter = fn_service(move |stream: TcpStream| {
                    let client = stream.peer_addr().ok().map(|peer| peer.ip());
                    let limited = limit.accept(stream, client);
                    std::future::ready(Ok::<_, TlsError<io::Error, DispatchError>>(limited))
                });
                let acceptor = acceptor
                    .map_init_err(|_| unreachable!("an acceptor can always be made"))
                    .map_err(TlsError::into_service_error)
                    .map(move |stream: TlsStream<LimitedStream<TcpStream>>| {
                        let limited = stream.get_ref().0;
                        let (slot, peer) = (limited.slot(), limited.stream().peer_addr().ok());
                        (OneRequest::of(stream, slot, &config), peer)
                    });
                limiter.and_then(acceptor).and_then(service!().map_err(TlsError::Service))
            })
        }
        None => builder.listen(name, at, move || {
            let (config, limit) = (ServiceConfig::default(), ConnectionLimit::new(SLOTS));
            let one_request = fn_service(move |stream: TcpStream| {
                let peer = stream.peer_addr().ok();
                let stream = limit.accept(stream, peer.map(|peer| peer.ip()));
                let slot = stream.slot();
                std::future::ready(Ok::<_, DispatchError>((OneRequest::of(stream, slot, &config), peer)))
            });
            one_request.and_then(service!())
        }),
    };
    let server = server.with_context(|| format!("failed to listen on {bound}"))?;
    Ok((server.run(), bound))
}

#[cfg(test)]
mod tests;
