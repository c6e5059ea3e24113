//! ARM's side of the wire with a record: the simulator's model behind a listener of the story's own, which keeps the
//! body of every PUT.

use std::any::Any;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::Duration;

use actix_web::dev::{Extensions, ServerHandle};
use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use serde_json::Value;
use simulator::models::arm::{Method, Reply, Request, Response};
use simulator::{Azure, Owner};
use tokio::sync::mpsc;

/// A PUT of a pool as it arrived.
#[derive(Clone, Debug)]
pub struct Put {
    /// When it arrived, in microseconds of the fakes' clock.
    pub at_us: u64,
    /// When its answer was due.
    pub ended_us: u64,
    /// The load balancer, in lower case.
    pub load_balancer: String,
    /// The pool, in lower case.
    pub pool: String,
    /// The addresses in its body; `None` when that has no array of them.
    pub members: Option<BTreeSet<IpAddr>>,
    /// The status of its answer; 0 when there was none.
    pub status: u16,
    /// The body as it came.
    pub body: String,
    /// Whether the story has spoken of it.
    pub told: bool,
}

/// The running listener; it stops with this value.
pub struct Recorder {
    /// Where it listens, `http://127.0.0.1:port`.
    pub url: String,
    server: ServerHandle,
    arrived: mpsc::UnboundedReceiver<Put>,
}

#[derive(Clone)]
struct Wire {
    azure: Owner<Azure>,
    record: mpsc::UnboundedSender<Put>,
}

/// A second handle of a connection's socket, to cut it under the server.
struct Socket(TcpStream);

impl Recorder {
    /// Serves this model on a free port, on the current runtime.
    pub fn start(azure: Owner<Azure>) -> Self {
        let (record, arrived) = mpsc::unbounded_channel();
        let wire = Wire { azure, record };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        let app = move || App::new().app_data(web::Data::new(wire.clone())).default_service(web::to(answer));
        let server = HttpServer::new(app)
            .workers(1)
            .keep_alive(Duration::from_secs(75))
            .client_request_timeout(Duration::ZERO)
            .on_connect(remember)
            .disable_signals()
            .listen(listener)
            .expect("a bound listener can be served")
            .run();
        let handle = server.handle();
        tokio::spawn(server);
        Self { url, server: handle, arrived }
    }

    /// The next PUT that has arrived and was not taken yet.
    pub fn next(&mut self) -> Option<Put> {
        self.arrived.try_recv().ok()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // The server hears of it at once; nobody has to wait for its end.
        drop(self.server.stop(false));
    }
}

fn remember(io: &dyn Any, connection: &mut Extensions) {
    let Some(stream) = io.downcast_ref::<actix_web::rt::net::TcpStream>() else { return };
    if let Ok(second) = stream.as_fd().try_clone_to_owned() {
        connection.insert(Socket(TcpStream::from(second)));
    }
}

async fn answer(request: HttpRequest, body: web::Bytes, wire: web::Data<Wire>) -> HttpResponse {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let asked = Request {
        method: Method::parse(request.method().as_str()),
        path_and_query: request.uri().path_and_query().map_or_else(String::new, ToString::to_string),
        headers: request
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
            .collect(),
        body: body.to_vec(),
    };
    let record = wire.record.clone();
    let answered = wire.azure.ask(move |azure, now_us| {
        let reply = azure.handle(&asked, now_us);
        if asked.method == Method::Put {
            // A story that is over reads no more.
            drop(record.send(put(&asked, now_us, &reply)));
        }
        (reply, now_us)
    });
    let (reply, arrived_us) = answered.await;
    let wait =
        |latency_us: u64| tokio::time::sleep_until(wire.azure.clock().instant(arrived_us + latency_us));
    match reply {
        Reply::Answer(response) => {
            wait(response.latency_us).await;
            written(response)
        }
        Reply::Lost { latency_us } => {
            wait(latency_us).await;
            cut(&request)
        }
        Reply::Refused => cut(&request),
    }
}

fn written(response: Response) -> HttpResponse {
    let status = StatusCode::from_u16(response.status).expect("the model answers with valid statuses");
    let mut answer = HttpResponse::build(status);
    for (name, value) in &response.headers {
        answer.append_header((*name, value.as_ref()));
    }
    answer.body(response.body)
}

fn cut(request: &HttpRequest) -> HttpResponse {
    if let Some(Socket(stream)) = request.conn_data::<Socket>() {
        // It may be closed already, which is as good.
        drop(stream.shutdown(Shutdown::Both));
    }
    HttpResponse::InternalServerError().force_close().finish()
}

/// Reads a PUT of `…/loadBalancers/<name>/backendAddressPools/<pool>?…`.
fn put(request: &Request, at_us: u64, reply: &Reply) -> Put {
    let (status, latency_us) = match reply {
        Reply::Answer(response) => (response.status, response.latency_us),
        Reply::Lost { latency_us } => (0, *latency_us),
        Reply::Refused => (0, 0),
    };
    let path = request.path_and_query.split('?').next().unwrap_or_default();
    let mut last = path.rsplit('/');
    let (pool, _, load_balancer) = (last.next(), last.next(), last.next());
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let entries = body["properties"]["loadBalancerBackendAddresses"].as_array();
    let members = entries.map(|entries| {
        let ips = entries.iter().filter_map(|entry| entry["properties"]["ipAddress"].as_str());
        ips.filter_map(|ip| ip.parse().ok()).collect()
    });
    Put {
        at_us,
        ended_us: at_us + latency_us,
        load_balancer: load_balancer.unwrap_or_default().to_lowercase(),
        pool: pool.unwrap_or_default().to_lowercase(),
        members,
        status,
        body: String::from_utf8_lossy(&request.body).into_owned(),
        told: false,
    }
}
