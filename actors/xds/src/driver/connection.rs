//! Opens the connection of a stream: its time limit and its keep-alive.

use std::time::Duration;

use model::redact::chain;
use model::xds::facts::Code;
use model::xds::stream::StreamEnd;
use proxy::{Connector, Proxies};
use tokio::time::{Instant, timeout_at};
use tonic::transport::Endpoint;

use super::credentials;
use super::dialer::Dialer;
use super::wire::WithoutDetails;
use crate::bootstrap::{Channel, ServerConfig, Target};

/// Time limit for connecting, including TLS and the server's first HTTP/2 frame: the same as in gRPC clients.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// Idle time of a connection before an HTTP/2 PING is sent: the same as in gRPC's xDS clients. gRPC servers end the
/// connection of a client that pings more often, by default.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(300);

/// Time limit for the acknowledgement of an HTTP/2 PING.
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The ALPN name of HTTP/2.
pub(super) const HTTP2: &[u8] = b"h2";

/// Connects to a server and waits for its first frame: a server that accepts a connection and sends nothing is not
/// connected.
///
/// # Errors
/// The server cannot be reached, does not speak HTTP/2, or the files for it cannot be read.
pub(super) async fn connect(config: &ServerConfig, agent: &str) -> Result<WithoutDetails, StreamEnd> {
    let endpoint = endpoint(config, agent).map_err(unavailable)?;
    let tls = match &config.channel {
        Channel::Insecure => None,
        Channel::Tls(files) => Some(credentials::tls(files).await.map_err(unavailable)?),
    };
    let failed = |error: String| match &config.channel {
        Channel::Tls(files) => unavailable(format!("{error} ({})", credentials::described(files))),
        Channel::Insecure => unavailable(error),
    };
    let proxies = Proxies::from_environment();
    let proxy = proxies.of_grpc(endpoint.uri()).map_err(|error| unavailable(error.to_string()))?;
    let connector = Connector::new(proxy.cloned(), CONNECT_TIMEOUT);
    let (dialer, preface) = Dialer::new(config.target.clone(), connector, tls);
    let (deadline, seconds) = (Instant::now() + CONNECT_TIMEOUT, CONNECT_TIMEOUT.as_secs());
    let channel = match timeout_at(deadline, endpoint.connect_with_connector(dialer)).await {
        Ok(Ok(channel)) => channel,
        Ok(Err(error)) => return Err(failed(chain(&error))),
        Err(_) => return Err(failed(format!("not connected within {seconds} seconds"))),
    };
    match timeout_at(deadline, preface).await {
        Ok(Ok(Ok(()))) => Ok(WithoutDetails(channel)),
        Ok(Ok(Err(error))) => Err(failed(error)),
        Ok(Err(_)) => Err(failed("the server does not speak HTTP/2".to_owned())),
        Err(_) => {
            Err(failed(format!("connected, but the server did not speak HTTP/2 within {seconds} seconds")))
        }
    }
}

fn endpoint(config: &ServerConfig, agent: &str) -> Result<Endpoint, String> {
    let scheme = match config.channel {
        Channel::Insecure => "http",
        Channel::Tls(_) => "https",
    };
    let authority = match &config.target {
        Target::Tcp { authority } => authority,
        // gRPC's name for the server behind a socket.
        Target::Unix(_) => "localhost",
    };
    let origin = format!("{scheme}://{authority}").parse::<http::Uri>().map_err(|error| chain(&error))?;
    // The scheme of this URL keeps the transport from using TLS: the dialer does that.
    let endpoint = Endpoint::from_shared(format!("http://{authority}")).map_err(|error| chain(&error))?;
    let endpoint = endpoint.origin(origin).user_agent(agent).map_err(|error| chain(&error))?;
    Ok(endpoint
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true))
}

/// Returns the end of a stream whose server cannot be reached.
pub(super) fn unavailable(message: String) -> StreamEnd {
    StreamEnd { code: Code::Unavailable, message }
}
