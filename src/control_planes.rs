//! What the process has to do with xDS control planes besides its actors: the bootstrap, which says where they are, and
//! the listener of CSDS, which shows what is known of them (X2, H5).

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

/// Our version, as control planes are told.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Reads the bootstrap, where any pool is to be filled from a control plane. Without such pools none is read.
///
/// # Errors
/// There is none, or it cannot be used.
pub fn bootstrap(config: &Config) -> anyhow::Result<Option<Arc<Bootstrap>>> {
    if config.controller.pools.is_empty() {
        return Ok(None);
    }
    let configured = config.controller.xds.bootstrap.as_deref();
    let source = Source::choose(configured, |name| std::env::var_os(name)).context(
        "pools are to be filled from an xDS control plane, and where that is cannot be told (xds.bootstrap)",
    )?;
    let bootstrap =
        Bootstrap::load(&source).with_context(|| format!("the xDS bootstrap cannot be used ({source})"))?;
    Ok(Some(Arc::new(bootstrap)))
}

/// The address of CSDS, taken before anything else runs.
pub struct Address(TcpListener);

impl Address {
    /// Takes the address, where there is anything to show.
    ///
    /// # Errors
    /// It is taken already, or is none of this machine.
    pub fn take(config: &Config) -> anyhow::Result<Option<Address>> {
        if config.controller.pools.is_empty() {
            return Ok(None);
        }
        let address = config.controller.http.csds_listen;
        let take = || {
            let listener = TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            std::io::Result::Ok(listener)
        };
        let listener = take().with_context(|| {
            format!("http.csdsListen: failed to listen on {address}; is the port in use by another process?")
        })?;
        Ok(Some(Address(listener)))
    }

    /// Serves CSDS there until it is told to stop.
    ///
    /// # Errors
    /// The operating system refuses the listener.
    pub fn serve(self, bootstrap: &Bootstrap, published: Published) -> anyhow::Result<Serving> {
        let at = self.0.local_addr().context("failed to ask for a listener's address")?;
        let listener =
            tokio::net::TcpListener::from_std(self.0).with_context(|| format!("failed to listen on {at}"))?;
        let (stop, stopped) = oneshot::channel::<()>();
        let state = shown(bootstrap.node(VERSION), published);
        let ends = async move { drop(stopped.await) };
        let task = tokio::spawn(run(listener, state, ends));
        Ok(Serving { at, stop, task })
    }
}

async fn run(
    listener: tokio::net::TcpListener,
    state: impl Fn() -> Option<Status> + Send + Sync + 'static,
    ends: impl Future<Output = ()> + Send + 'static,
) {
    if let Err(error) = xds::csds::serve(listener, state, ends).await {
        tracing::error!(error = redact::chain(&error), "the listener of CSDS ended");
    }
}

/// What CSDS shows: the newest that was published, if anything was.
fn shown(node: Node, published: Published) -> impl Fn() -> Option<Status> + Send + Sync + 'static {
    let node = Arc::new(node);
    move || Some(Status { node: Arc::clone(&node), view: Arc::clone(published.load().xds.as_ref()?) })
}

/// CSDS, being served.
pub struct Serving {
    /// Where.
    pub at: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Serving {
    /// Ends the listener; open requests have a moment to end.
    pub async fn stop(self) {
        if self.stop.send(()).is_err() || self.task.await.is_err() {
            tracing::debug!("the listener of CSDS had ended before");
        }
    }
}
