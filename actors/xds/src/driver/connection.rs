//! Makes the connection of a stream: the address, TLS, the time that it may take, and how it is kept alive.

use std::time::Duration;

use pool_core::redact::chain;
use pool_core::xds::client::Ended;
use pool_core::xds::facts::Code;
use tonic::transport::Endpoint;

use super::credentials;
use super::wire::WithoutDetails;
use crate::bootstrap::{Channel, ServerConfig, Target};

/// How long it may take until there is a connection, TLS included.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a connection may be silent before an HTTP/2 PING is sent: as long as with gRPC's own clients of xDS. Servers
/// of gRPC end the connection of whoever pings more often, unless they are configured otherwise.
pub(super) const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(300);

/// How long the acknowledgement of an HTTP/2 PING may take.
pub(super) const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// How often the kernel tells what lies between that the connection is in use; Azure forgets one after 4 minutes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// Connects to a server.
///
/// # Errors
/// It cannot be reached, or the files for it cannot be read.
pub(super) async fn connect(config: &ServerConfig, agent: &str) -> Result<WithoutDetails, Ended> {
    let endpoint = endpoint(config, agent).await.map_err(unavailable)?;
    let failed = |error: String| match &config.channel {
        Channel::Tls(files) => unavailable(format!("{error} ({})", credentials::described(files))),
        Channel::Insecure => unavailable(error),
    };
    // The endpoint's own time is for TCP alone, and shared by all addresses of a name.
    match tokio::time::timeout(CONNECT_TIMEOUT, endpoint.connect()).await {
        Ok(Ok(channel)) => Ok(WithoutDetails(channel)),
        Ok(Err(error)) => Err(failed(chain(&error))),
        Err(_) => Err(failed(format!("not connected within {} seconds", CONNECT_TIMEOUT.as_secs()))),
    }
}

async fn endpoint(config: &ServerConfig, agent: &str) -> Result<Endpoint, String> {
    let scheme = match config.channel {
        Channel::Insecure => "http",
        Channel::Tls(_) => "https",
    };
    let bare = |address: String| Endpoint::from_shared(address).map_err(|error| chain(&error));
    let endpoint = match &config.target {
        Target::Tcp { authority } => bare(format!("{scheme}://{authority}"))?,
        // As gRPC calls whoever is behind a socket.
        Target::Unix(path) => {
            bare(format!("unix:{path}"))?.origin(http::Uri::from_static("http://localhost"))
        }
    };
    let endpoint = endpoint
        .user_agent(agent)
        .map_err(|error| chain(&error))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(Some(TCP_KEEPALIVE))
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .keep_alive_while_idle(true);
    match &config.channel {
        Channel::Insecure => Ok(endpoint),
        Channel::Tls(files) => {
            let tls = credentials::tls(files).await?;
            let failed = |error| format!("{} ({})", chain(&error), credentials::described(files));
            endpoint.tls_config(tls).map_err(failed)
        }
    }
}

/// That the server cannot be reached.
pub(super) fn unavailable(message: String) -> Ended {
    Ended { code: Code::Unavailable, message }
}
