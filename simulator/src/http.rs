//! HTTP on loopback around the models: listeners that can be stopped, real latencies, and connections that are aborted
//! if the model requires it.

mod arm;
mod kubernetes;

use std::any::Any;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use actix_web::dev::{Extensions, ServerHandle};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};

use crate::azure::Azure;
use crate::cluster::Cluster;
use crate::owner::Owner;

/// Time for which an unused connection stays open.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// The largest body that a request may have; a pool of 5000 members has about 2 MiB.
const LARGEST_BODY: usize = 32 << 20;

/// A running listener. Dropping this value stops it.
pub(crate) struct Listener {
    address: SocketAddr,
    handle: ServerHandle,
}

impl Listener {
    /// Serves ARM on a free port of the loopback interface.
    pub(crate) fn arm(azure: Owner<Azure>) -> std::io::Result<Self> {
        Self::open(move |service| {
            service.app_data(web::Data::new(azure.clone())).default_service(web::to(arm::answer));
        })
    }

    /// Serves the API server on a free port of the loopback interface.
    pub(crate) fn kubernetes(cluster: Owner<Cluster>) -> std::io::Result<Self> {
        Self::open(move |service| {
            service.app_data(web::Data::new(cluster.clone())).default_service(web::to(kubernetes::answer));
        })
    }

    fn open(configure: impl Fn(&mut web::ServiceConfig) + Clone + Send + 'static) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let app = move || {
            let body = web::PayloadConfig::new(LARGEST_BODY);
            App::new().app_data(body).configure(configure.clone())
        };
        let server = HttpServer::new(app)
            .workers(1)
            .tcp_nodelay(true)
            .keep_alive(KEEP_ALIVE)
            // A connection pool opens connections early; these are no slow clients.
            .client_request_timeout(Duration::ZERO)
            // If a client closes its side, its watch ends.
            .h1_allow_half_closed(false)
            .on_connect(remember)
            .disable_signals()
            .listen(listener)?
            .run();
        let handle = server.handle();
        tokio::spawn(server);
        Ok(Self { address, handle })
    }

    /// Returns `http://127.0.0.1:port`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops immediately, also during answers.
    pub(crate) async fn stop(&self) {
        self.handle.stop(false).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The server gets the command immediately; its end need not be awaited.
        drop(self.handle.stop(false));
    }
}

/// A second handle of a connection's socket, to abort it under the server.
struct Socket(TcpStream);

fn remember(io: &dyn Any, connection: &mut Extensions) {
    let Some(stream) = io.downcast_ref::<tokio::net::TcpStream>() else { return };
    if let Ok(second) = stream.as_fd().try_clone_to_owned() {
        connection.insert(Socket(TcpStream::from(second)));
    }
}

/// Aborts the connection; the response is never sent.
fn cut(request: &HttpRequest) -> HttpResponse {
    if let Some(Socket(stream)) = request.conn_data::<Socket>() {
        // It may already be closed.
        drop(stream.shutdown(Shutdown::Both));
    }
    HttpResponse::InternalServerError().force_close().finish()
}

fn path_and_query(request: &HttpRequest) -> String {
    request.uri().path_and_query().map_or_else(String::new, ToString::to_string)
}

fn headers(request: &HttpRequest) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    request.headers().iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect()
}
