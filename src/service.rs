//! The running service: clients, runtime, actors, listeners, and the order in which they end.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actors::azure::Effects;
use actors::clock::Clock;
use actors::recorder;
use anyhow::Context as _;
use config::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::signal::unix::{SignalKind, signal};

use crate::http::{self, Addresses, Listeners};
use crate::wiring::params::{self, Instance};
use crate::wiring::{self, Parts};

/// How long it may take, after the signal, to hear of what was sent and to let go of both Leases: a token, one PUT of
/// 20 s, and up to 3 s for each Lease.
const QUIET_WITHIN: Duration = Duration::from_secs(28);
/// Threads for network work.
const WORKERS: usize = 2;
/// How long a connection to the API server may take to stand.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// What a service is started with.
#[derive(Debug)]
pub struct Options {
    /// The validated configuration.
    pub config: Config,
    /// The kubeconfig; `None`: the pod's service account, else the default kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Whether nothing is written anywhere (C4).
    pub dry_run: bool,
}

/// Runs the service until SIGTERM or SIGINT.
///
/// # Errors
/// It could not be set up: no API server configuration, no ARM client, a listener's address in use.
pub fn run(options: Options) -> anyhow::Result<()> {
    let system = system();
    // Both TLS users of the process, the API server's client and ARM's, take this provider.
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        tracing::debug!("a TLS provider was installed before");
    }
    system.block_on(serve(options))
}

/// What everything runs in: a panic on any of its threads ends the process (A4).
fn system() -> actix::SystemRunner {
    end_on_panic();
    actix::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKERS)
            .enable_all()
            .build()
            .expect("the operating system grants threads and an event queue")
    })
}

/// A panic anywhere ends the process (A4): a lost actor must not leave a pod that looks healthy.
fn end_on_panic() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        told(panic);
        std::process::abort();
    }));
}

async fn serve(options: Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?;
    let clock = Clock::start();
    let effects = if options.dry_run { Effects::Withheld } else { Effects::Carried };
    let config = &options.config;
    let kubernetes = kubernetes_client(options.kubeconfig.as_ref()).await?;
    let azure = arm::Client::new(params::arm(config, clock)?).context("failed to set up the ARM client")?;
    let addresses = Addresses::take(&config.controller.http)?;
    let metrics = recorder::install().context("failed to install the metrics recorder")?;

    let instance = Instance { identity: identity(), dry_run: options.dry_run };
    let parts = Parts {
        params: params::machines(config, &instance),
        kubernetes,
        azure: Arc::new(azure),
        metrics: metrics.clone(),
        labels: params::labels(config),
        effects,
        clock,
        leases: params::leases(config),
    };
    let running = wiring::start(parts);
    let about = http::About { clock, dry_run: options.dry_run, published: running.published.clone() };
    let listeners = Listeners::open(addresses, about, running.pulse.clone(), metrics)?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        dry_run = options.dry_run,
        identity = %instance.identity,
        load_balancers = ?config.managed_load_balancers(),
        health = %listeners.health,
        admin = %listeners.admin,
        "started"
    );
    let served = listeners.serve();

    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: shutting down"),
        _ = interrupt.recv() => tracing::info!("SIGINT: shutting down"),
    }
    served.refuse();
    running.shut_down(QUIET_WITHIN).await;
    served.stop().await;
    tracing::info!("stopped");
    Ok(())
}

/// Who this process is among all replicas and all their restarts: a container that is started anew in its pod is
/// another one (W8).
fn identity() -> Arc<str> {
    let named = ["POD_NAME", "HOSTNAME"].into_iter().find_map(|name| {
        let value = std::env::var(name).ok()?;
        (!value.is_empty()).then_some(value)
    });
    let name = named.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    Arc::from(format!("{name}_{}", uuid::Uuid::new_v4().simple()))
}

async fn kubernetes_client(kubeconfig: Option<&PathBuf>) -> anyhow::Result<kube::Client> {
    let options = KubeConfigOptions::default();
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| {
                format!("failed to read kubeconfig {}; check --kubeconfig", path.display())
            })?;
            kube::Config::from_custom_kubeconfig(file, &options).await.with_context(|| {
                format!("failed to use kubeconfig {}; check its current-context", path.display())
            })?
        }
        None => kube::Config::infer()
            .await
            .context("no API server configured: pass --kubeconfig, or run in a pod with a service account")?,
    };
    config.connect_timeout = Some(CONNECT_WITHIN);
    // The machines decide about retries; a second layer of them would hide failures.
    config.default_retry = false;
    kube::Client::try_from(config).context("failed to set up the Kubernetes client")
}

#[cfg(test)]
mod tests;
