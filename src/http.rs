//! The HTTP listeners: health and metrics, and the admin API, on loopback and with TLS (docs/design/surface.md, H1-H5).
//! Handlers read the published snapshot, hand operators' requests to the machines, and decide nothing.

mod admin;
mod answers;
mod body;
mod door;
mod effective;
mod events;
mod health;
mod installation;
mod nodes;
mod one_request;
mod openapi;
mod page;
mod people;
mod places;
mod post;
mod problem;
mod query;
mod resources;
mod show;
mod tls;
mod values;
mod verdict;
mod web_page;
mod words;

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
use crate::wiring::Pulse;
use answers::{MAX_LARGE, Renderings};
use door::Door;
pub use effective::Effective;
use events::Audience;
pub use installation::Installation;
use one_request::OneRequest;
use openapi::OpenApi;
pub use openapi::openapi_document;
use people::Entry;
use places::{Place, Placed, Places};
use problem::Serves;
pub use resources::Listed;
use tls::{Certificate, Files};

/// How long open requests may take to end at shutdown, in seconds.
pub const END_WITHIN: u64 = 5;
/// How long a client may take to send its request's head, and before that to agree on TLS.
const HEAD_WITHIN: Duration = Duration::from_secs(5);
/// How long an answered connection stays open for the rest of its request's body.
const DISCARDED_FOR: Duration = Duration::from_secs(1);
/// How long a client may leave what it is sent unread, in milliseconds; connections have it from their listener.
const TAKEN_WITHIN_MS: u32 = 10_000;
/// How much of a response the system may keep for a client, in bytes. It would keep megabytes, which count as the
/// container's memory.
const SEND_BUFFER: usize = 64 << 10;
/// The most connections of one listener at a time: more would cost the process memory, and its connections to Azure and
/// to the API server.
pub const CONNECTIONS: usize = 512;
/// How many of them have a place (`places`). The rest is for event streams, and for connections that are about to end.
const PLACES: usize = 448;

/// What every handler knows.
#[derive(Clone)]
pub struct About {
    /// The process's clock.
    pub clock: Clock,
    /// Whether nothing is written anywhere (C4).
    pub dry_run: bool,
    /// The published snapshot.
    pub published: Published,
    /// The configuration that is in force.
    pub effective: Arc<Effective>,
    /// Which installation this process belongs to.
    pub installation: Arc<Installation>,
    /// The pools that are filled from each xDS source, as they are configured.
    pub listed: Arc<Listed>,
    /// Where the events that are told can be heard.
    pub event_subscription: EventSubscription,
}

/// What the handlers of operators' requests need besides.
#[derive(Clone)]
pub struct People {
    /// Who asks the machines.
    asks: OperatorRequests,
    /// The way in.
    door: Door,
    /// Which log lines are written.
    levels: Levels,
}

impl People {
    /// Those whom this reviewer's API server lets.
    #[must_use]
    pub fn new(asks: OperatorRequests, reviewer: Reviewer, levels: Levels) -> People {
        People { asks, door: Door::new(reviewer), levels }
    }
}

/// What the health handlers need besides.
#[derive(Clone)]
struct Life {
    about: About,
    pulse: Pulse,
    metrics: PrometheusHandle,
    leaving: Arc<AtomicBool>,
}

/// The addresses, taken before anything else of the service runs: what cannot be taken ends the start.
pub struct Addresses {
    health: TcpListener,
    admin: TcpListener,
    admin_tls: Option<(TcpListener, Certificate)>,
}

/// The listeners, set up and not yet served.
pub struct Listeners {
    /// Where health and metrics are served.
    pub health: SocketAddr,
    /// Where the admin API is served on loopback.
    pub admin: SocketAddr,
    /// Where it is served with TLS; `None`: nowhere.
    pub admin_tls: Option<SocketAddr>,
    servers: Vec<Server>,
    certificate: Option<Certificate>,
    leaving: Arc<AtomicBool>,
    ending: watch::Sender<bool>,
}

/// The listeners, being served.
pub struct Served {
    handles: Vec<ServerHandle>,
    renewal: Option<JoinHandle<()>>,
    leaving: Arc<AtomicBool>,
    ending: watch::Sender<bool>,
}

impl Addresses {
    /// Takes the addresses, and reads the certificate where there is a listener with TLS.
    ///
    /// # Errors
    /// One of them is taken already, or is none of this machine; the certificate or its key cannot be used.
    pub fn take(at: &config::ControllerConfig) -> anyhow::Result<Addresses> {
        let take = |address: SocketAddr, key: &str| {
            let listener = TcpListener::bind(address).with_context(|| {
                format!("{key}: failed to listen on {address}; is the port in use by another process?")
            })?;
            let listening = rustix::net::sockopt::set_tcp_user_timeout(&listener, TAKEN_WITHIN_MS);
            listening.with_context(|| format!("{key}: failed to limit connections to {address} in time"))?;
            let sending = rustix::net::sockopt::set_socket_send_buffer_size(&listener, SEND_BUFFER);
            sending
                .with_context(|| format!("{key}: failed to limit what connections to {address} buffer"))?;
            anyhow::Ok(listener)
        };
        let (http, tls) = (&at.http, &at.http_tls);
        let files = tls.certificate.clone().zip(tls.key.clone());
        let certificate = files.map(|(certificate, key)| Certificate::read(Files { certificate, key }));
        let health = take(http.health_listen, "http.healthListen")?;
        let admin = take(http.admin_listen, "http.adminListen")?;
        let admin_tls = match certificate {
            Some(certificate) => Some((take(http.admin_tls_listen, "http.adminTlsListen")?, certificate?)),
            None => None,
        };
        Ok(Addresses { health, admin, admin_tls })
    }
}

impl Listeners {
    /// Sets up what the addresses serve. What is served with TLS is what is served on loopback, to those alone whom the
    /// API server lets.
    ///
    /// # Errors
    /// The operating system refuses a listener, or the library for TLS the certificate.
    pub fn open(
        at: Addresses,
        about: About,
        people: People,
        pulse: Pulse,
        metrics: PrometheusHandle,
    ) -> anyhow::Result<Listeners> {
        let leaving = Arc::new(AtomicBool::new(false));
        let life = Life { about: about.clone(), pulse, metrics, leaving: Arc::clone(&leaving) };
        let (health_server, health) =
            listen(at.health, (None, Entry::Open), health::SERVES, move |config| {
                config.app_data(web::Data::new(life.clone()));
                config.app_data(web::Data::new(Renderings::default())).configure(health::routes);
            })?;
        let door = Door::new(people.door.reviewer.apart());
        let page = web::Data::new(web_page::WebPage::assembled());
        let document = web::Data::new(OpenApi::of_this_version());
        let (ending, ends) = watch::channel(false);
        let audience = web::Data::new(Audience::new(about.event_subscription.clone(), ends));
        let routes = move |config: &mut web::ServiceConfig| {
            let config =
                config.app_data(web::Data::new(about.clone())).app_data(web::Data::new(people.clone()));
            let config = config.app_data(page.clone()).app_data(document.clone()).app_data(audience.clone());
            config.configure(admin::routes).configure(post::routes);
        };
        let (admin_server, admin) = listen(at.admin, (None, Entry::Loopback), admin::SERVES, routes.clone())?;
        let mut listeners = Listeners {
            health,
            admin,
            admin_tls: None,
            servers: vec![health_server, admin_server],
            certificate: None,
            leaving,
            ending,
        };
        if let Some((address, certificate)) = at.admin_tls {
            let guarded = (Some(certificate.server_config()?), Entry::Judged(door));
            let (server, bound) = listen(address, guarded, admin::SERVES, routes)?;
            listeners.servers.push(server);
            listeners.admin_tls = Some(bound);
            listeners.certificate = Some(certificate);
        }
        Ok(listeners)
    }

    /// Serves all until [`Served::stop`].
    #[must_use]
    pub fn serve(self) -> Served {
        let handles = self.servers.iter().map(Server::handle).collect();
        for server in self.servers {
            drop(actix::spawn(async move {
                if let Err(error) = server.await {
                    tracing::error!(%error, "an HTTP listener ended");
                }
            }));
        }
        let renewal = self.certificate.map(|certificate| actix::spawn(certificate.renew()));
        Served { handles, renewal, leaving: self.leaving, ending: self.ending }
    }
}

impl Served {
    /// Turns `/readyz` to 503 so that no traffic is sent here any more.
    pub fn refuse(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Ends all listeners: streams at once; open requests have 5 s to end.
    pub async fn stop(self) {
        self.ending.send_replace(true);
        if let Some(renewal) = self.renewal {
            renewal.abort();
        }
        join_all(self.handles.iter().map(|handle| handle.stop(true))).await;
    }
}

/// A path that can be read and nothing else; other methods are told so.
fn get<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    let read = web::route().guard(guard::Any(guard::Get()).or(guard::Head()));
    web::resource(path).route(read.to(handler)).default_service(web::to(problem::not_allowed))
}

/// A path that can be posted to and nothing else.
fn post<F, Args>(path: &str, handler: F) -> Resource
where
    F: Handler<Args>,
    Args: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    web::resource(path).route(web::post().to(handler)).default_service(web::to(problem::not_allowed_but_post))
}

/// These routes behind what holds for every request: who may come in, and how many large responses there are at a time.
fn application(
    serves: Serves,
    entry: Entry,
    room: Arc<Semaphore>,
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
            people::enter(entry.clone(), request, next)
        }))
        .wrap(from_fn::<_, ()>(move |request: ServiceRequest, next: Next<BoxBody>| {
            answers::limit(Arc::clone(&room), request, next)
        }))
}

/// Serves these routes here, in clear or with TLS, to those who may come in.
fn listen(
    at: TcpListener,
    (tls, entry): (Option<ServerConfig>, Entry),
    serves: Serves,
    routes: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static,
) -> anyhow::Result<(Server, SocketAddr)> {
    let bound = at.local_addr().context("failed to ask for a listener's address")?;
    let room = Arc::new(Semaphore::new(MAX_LARGE));
    let app = move || application(serves, entry.clone(), Arc::clone(&room), routes.clone());
    let builder = Server::build()
        .workers(1)
        .max_concurrent_connections(CONNECTIONS)
        .disable_signals()
        .shutdown_timeout(END_WITHIN);
    let leaving = builder.graceful_shutdown_signal();
    // A macro, because the services for the two kinds of streams have no common type that could be named.
    macro_rules! service {
        () => {{
            let leaving = leaving.clone();
            HttpService::build()
                .graceful_shutdown_signal(move || {
                    let leaving = leaving.clone();
                    async move { leaving.notified().await }
                })
                .client_request_timeout(HEAD_WITHIN)
                .client_disconnect_timeout(DISCARDED_FOR)
                // A second head has no timeout, so one client could keep all places.
                .keep_alive(KeepAlive::Disabled)
                // A client that has closed its side has left: the place of its stream is free at once.
                .h1_allow_half_closed(false)
                .local_addr(bound)
                .on_connect_ext(|connection: &OneRequest<_>, data| {
                    data.insert::<Rc<Place>>(Rc::clone(connection.place()));
                })
                .h1(map_config(app(), |()| AppConfig::default()))
        }};
    }
    let name = format!("http-{bound}");
    let server = match tls {
        Some(tls) => {
            // As many may be in the TLS handshake: with a lower limit, fewer slow clients could block all others.
            max_concurrent_tls_connect(CONNECTIONS);
            builder.listen(name, at, move || {
                let (config, places) = (ServiceConfig::default(), Places::new(PLACES));
                let mut acceptor = Acceptor::new(tls.clone());
                acceptor.set_handshake_timeout(HEAD_WITHIN);
                let seat = fn_service(move |stream: TcpStream| {
                    let client = stream.peer_addr().ok().map(|peer| peer.ip());
                    let seated = places.seat(stream, client);
                    std::future::ready(Ok::<_, TlsError<io::Error, DispatchError>>(seated))
                });
                let acceptor = acceptor
                    .map_init_err(|_| unreachable!("an acceptor can always be made"))
                    .map_err(TlsError::into_service_error)
                    .map(move |stream: TlsStream<Placed<TcpStream>>| {
                        let placed = stream.get_ref().0;
                        let (place, peer) = (placed.place(), placed.stream().peer_addr().ok());
                        (OneRequest::of(stream, place, &config), peer)
                    });
                seat.and_then(acceptor).and_then(service!().map_err(TlsError::Service))
            })
        }
        None => builder.listen(name, at, move || {
            let (config, places) = (ServiceConfig::default(), Places::new(PLACES));
            let one_request = fn_service(move |stream: TcpStream| {
                let peer = stream.peer_addr().ok();
                let stream = places.seat(stream, peer.map(|peer| peer.ip()));
                let place = stream.place();
                std::future::ready(Ok::<_, DispatchError>((OneRequest::of(stream, place, &config), peer)))
            });
            one_request.and_then(service!())
        }),
    };
    let server = server.with_context(|| format!("failed to listen on {bound}"))?;
    Ok((server.run(), bound))
}

#[cfg(test)]
mod tests;
