//! The parts of xDS outside the actors: the bootstrap, which has the addresses of the control planes, and the listener
//! of CSDS, which serves their state (X2, H5).

use std::future::Future;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

use actors::host::Published;
use anyhow::Context as _;
use config::Config;
use model::redact;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use xds::{Bootstrap, Node, Source, Status};

use crate::http;

/// Version of this program, as sent to control planes.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Reads the bootstrap if any pool has an xDS source.
///
/// # Errors
/// The bootstrap is missing or cannot be used.
pub fn bootstrap(config: &Config) -> anyhow::Result<Option<Arc<Bootstrap>>> {
    if config.controller.pools.is_empty() {
        return Ok(None);
    }
    let configured = config.controller.xds.bootstrap.as_deref();
    let source = Source::choose(configured, |name| std::env::var_os(name))
        .context("`pools` has entries, but the xDS bootstrap is not configured (xds.bootstrap)")?;
    let bootstrap =
        Bootstrap::load(&source).with_context(|| format!("failed to use the xDS bootstrap ({source})"))?;
    Ok(Some(Arc::new(bootstrap)))
}

/// The bound address of CSDS.
pub struct Address(TcpListener);

impl Address {
    /// Binds the address; `None` if no pool has an xDS source.
    ///
    /// # Errors
    /// The address is in use, or not an address of this machine.
    pub fn bind(config: &Config) -> anyhow::Result<Option<Address>> {
        if config.controller.pools.is_empty() {
            return Ok(None);
        }
        let address = config.controller.http.csds_listen;
        let listener = http::bind(address, "http.csdsListen")?;
        listener.set_nonblocking(true).with_context(|| format!("failed to listen on {address}"))?;
        Ok(Some(Address(listener)))
    }

    /// Serves CSDS until [`Serving::stop`].
    ///
    /// # Errors
    /// The operating system refuses the listener.
    pub fn serve(self, bootstrap: &Bootstrap, published: Published) -> anyhow::Result<Serving> {
        let at = self.0.local_addr().context("failed to read the address of a listener")?;
        let listener =
            tokio::net::TcpListener::from_std(self.0).with_context(|| format!("failed to listen on {at}"))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let state = status_source(bootstrap.node(VERSION), published);
        let stopped_signal = async move { drop(stopped.await) };
        let task = tokio::spawn(run(listener, state, stopped_signal));
        Ok(Serving { at, stop, task })
    }
}

async fn run(
    listener: tokio::net::TcpListener,
    state: impl Fn() -> Option<Status> + Send + Sync + 'static,
    stopped_signal: impl Future<Output = ()> + Send + 'static,
) {
    if let Err(error) = xds::serve_csds(listener, state, stopped_signal).await {
        let effect = "CSDS is unavailable until this process is restarted; backend pools are written";
        let remedy = "restart the Pod if you need CSDS";
        tracing::error!(error = redact::chain(&error), effect, remedy, "the CSDS listener failed");
    }
}

/// Returns the function with which CSDS reads the last published status, if any.
fn status_source(node: Node, published: Published) -> impl Fn() -> Option<Status> + Send + Sync + 'static {
    let node = Arc::new(node);
    move || Some(Status { node: Arc::clone(&node), view: Arc::clone(published.load().xds.as_ref()?) })
}

/// The running listener of CSDS.
pub struct Serving {
    /// Its address.
    pub at: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Stops the listener; open requests have a moment to complete.
    pub async fn stop(self) {
        if self.stop.send(()).is_err() || self.task.await.is_err() {
            tracing::debug!("the listener of CSDS had ended before");
        }
    }
}
