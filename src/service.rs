//! The running service: clients, runtime, actors and listeners, and the order of their shutdown.

mod kubernetes_client;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actors::azure::Effects;
use actors::clock::Clock;
use actors::host::Published;
use actors::operator_requests::OperatorRequests;
use actors::recorder;
use anyhow::Context as _;
use config::Config;
use metrics_exporter_prometheus::PrometheusHandle;
use model::redact::{self, Printable};
use tokio::signal::unix::{Signal, SignalKind, signal};
use xds::Bootstrap;

use crate::cli::{eprint_lines, printable};
use crate::control_planes;
use crate::http::{self, Addresses};
use crate::telemetry::Levels;
use crate::wiring::params::{self, Instance, Restoring};
use crate::wiring::{self, ActorDependencies, ElectionStart, ElectionTrigger, Running};

pub(crate) use kubernetes_client::{api_server_host, kubernetes_client};

/// The time after the signal for the answers to requests in flight and the release of both Leases: a token, one PUT of
/// 20 s, and up to 3 s for each Lease.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(28);
/// Number of threads for network I/O.
const WORKER_THREADS: usize = 2;

/// Options of a service.
#[derive(Debug)]
pub struct Options {
    /// The validated configuration.
    pub config: Config,
    /// The kubeconfig; `None`: the pod's service account, else the default kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Whether the service writes nothing (C4).
    pub dry_run: bool,
    /// Changes the log level.
    pub levels: Levels,
    /// The pre-images to restore, for `restore`; `None` for the controller.
    pub restoring: Option<Restoring>,
    /// When the service takes part in leader election.
    pub election: ElectionStart,
}

impl Options {
    /// Returns the xDS bootstrap if any pool has an xDS source. A restore uses no control plane.
    fn bootstrap(&self) -> anyhow::Result<Option<Arc<Bootstrap>>> {
        if self.restoring.is_some() {
            return Ok(None);
        }
        let bootstrap = control_planes::bootstrap(&self.config)?;
        for warning in bootstrap.iter().flat_map(|bootstrap| bootstrap.warnings()) {
            tracing::warn!(warning, "ignored a setting of the xDS bootstrap configuration");
        }
        Ok(bootstrap)
    }
}

/// A handle to the running service.
#[derive(Clone)]
pub struct ServiceHandle {
    /// The process's clock.
    pub clock: Clock,
    /// The published snapshot.
    pub published: Published,
    /// Sends requests of operators to the machines.
    pub requests: OperatorRequests,
    /// Joins the leader election, if `Options::election` defers it.
    pub election_trigger: ElectionTrigger,
}

impl ServiceHandle {
    fn of(clock: Clock, running: &Running) -> ServiceHandle {
        let (published, requests) = (running.published.clone(), running.operator_requests.clone());
        ServiceHandle { clock, published, requests, election_trigger: running.election_trigger() }
    }
}

/// The end of a service.
pub struct Ended<T> {
    /// The result of the watcher; `None` if a signal came first.
    pub answer: Option<T>,
    /// The handle, with the last published snapshot.
    pub handle: ServiceHandle,
}

/// The API server's storage was restored to an earlier state, so the facts of this process are invalid and it has
/// ended. This is logged already.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the API server's storage was restored to an earlier state: run the command again")]
pub(crate) struct StorageRollback;

/// Whether the service opens its HTTP listeners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listeners {
    /// All listeners of the configuration.
    Open,
    /// No listener.
    Absent,
}

/// Runs the service until SIGTERM or SIGINT.
///
/// # Errors
/// The service could not be set up: no API server configuration, no ARM client, a listener's address in use. Or the API
/// server's storage was restored to an earlier state (W8).
pub fn run(options: Options) -> anyhow::Result<()> {
    let never = async |_| std::future::pending::<()>().await;
    in_system(serve(options, Listeners::Open, never)).map(drop)
}

/// Runs a future in the runtime of the service, with the TLS provider installed.
pub(crate) fn in_system<F: Future>(future: F) -> F::Output {
    let system = system();
    install_tls();
    system.block_on(future)
}

/// Installs the TLS provider of the process, for the clients of the API server and of ARM.
pub(crate) fn install_tls() {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        tracing::debug!("a TLS provider was installed before");
    }
}

/// Creates the runtime; a panic on any of its threads ends the process (A4).
fn system() -> actix::SystemRunner {
    end_on_panic();
    actix::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(WORKER_THREADS)
            .enable_all()
            .build()
            .expect("the operating system grants threads and an event queue")
    })
}

/// Makes a panic on any thread end the process (A4): a lost actor must not leave a Pod that looks healthy. The panic's
/// message may contain an error with foreign text, so secrets in it are redacted (C1).
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let location = panic.location().map_or_else(String::new, |location| format!(" at {location}"));
        let message = redact::redacted(panic.payload_as_str().unwrap_or("without a message"));
        // A backtrace contains functions and source locations, and no values.
        let trace = Backtrace::capture();
        let is_captured = trace.status() == BacktraceStatus::Captured;
        let trace = if is_captured { trace.to_string() } else { String::new() };
        let name = thread.name().unwrap_or("unnamed");
        let head = [printable!("thread '{name}' panicked{location}:"), printable!("{message}")];
        eprint_lines(head.into_iter().chain(trace.lines().map(Printable::line)));
        std::process::abort();
    }));
}

/// Runs the service until SIGTERM, SIGINT, or until the watcher returns, and then shuts it down.
///
/// # Errors
/// As for [`run`].
pub(crate) async fn serve<T>(
    options: Options,
    listeners: Listeners,
    watcher: impl AsyncFnOnce(ServiceHandle) -> T,
) -> anyhow::Result<Ended<T>> {
    let mut signals = Signals::listen()?;
    let clock = Clock::start();
    let config = &options.config;
    let kubernetes = kubernetes_client(options.kubeconfig.as_ref()).await?;
    let azure = arm::Client::new(params::arm(config, clock)).context("failed to set up the ARM client")?;
    let bootstrap = options.bootstrap()?;
    let addresses = match listeners {
        Listeners::Open => {
            Some((Addresses::bind(&config.controller)?, control_planes::Address::bind(config)?))
        }
        Listeners::Absent => None,
    };
    let metrics = recorder::install().context("failed to install the metrics recorder")?;

    let instance = Instance { identity: identity(), dry_run: options.dry_run };
    let (addresses, csds) = addresses.unzip();
    let params = machines(&options, &instance, listeners, bootstrap.as_deref());
    let clients = (kubernetes, azure, bootstrap.clone());
    let running = wiring::start(actor_dependencies(&options, clock, params, clients, metrics.clone()));
    let handle = ServiceHandle::of(clock, &running);
    let about = about(&options, clock, &running);
    let operations = http::Operations::new(
        running.operator_requests.clone(),
        running.reviewer.clone(),
        options.levels.clone(),
    );
    let open = |at| http::Listeners::open(at, about, operations, running.liveness_targets.clone(), metrics);
    let listeners = addresses.map(open).transpose()?;
    let serve =
        |(at, of): (control_planes::Address, Arc<Bootstrap>)| at.serve(&of, running.published.clone());
    let csds = csds.flatten().zip(bootstrap).map(serve).transpose()?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        dry_run = options.dry_run,
        identity = %instance.identity,
        load_balancers = ?config.managed_load_balancers(),
        health = listeners.as_ref().map(|at| at.health.to_string()),
        admin = listeners.as_ref().map(|at| at.admin.to_string()),
        admin_tls = listeners.as_ref().and_then(|at| at.admin_tls).map(|at| at.to_string()),
        csds = csds.as_ref().map(|csds| csds.at.to_string()),
        "started"
    );
    let served = listeners.map(http::Listeners::serve);

    let answer = tokio::select! {
        answer = signals.run_until_signal(watcher(handle.clone())) => answer,
        () = running.rollback() => return Err(StorageRollback.into()),
    };
    if let Some(served) = &served {
        served.fail_readiness();
    }
    running.shut_down(SHUTDOWN_TIMEOUT).await;
    if let Some(served) = served {
        served.stop().await;
    }
    if let Some(csds) = csds {
        csds.stop().await;
    }
    tracing::info!("stopped");
    Ok(Ended { answer, handle })
}

/// The signals that shut down the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn listen() -> anyhow::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate()).context("failed to listen for SIGTERM")?,
            interrupt: signal(SignalKind::interrupt()).context("failed to listen for SIGINT")?,
        })
    }

    /// Awaits the future; `None` if a signal came first.
    async fn run_until_signal<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            _ = self.terminate.recv() => {
                tracing::info!("SIGTERM: shutting down");
                None
            }
            _ = self.interrupt.recv() => {
                tracing::info!("SIGINT: shutting down");
                None
            }
            answer = future => Some(answer),
        }
    }
}

/// Returns the parts from which the actors are built.
fn actor_dependencies(
    options: &Options,
    clock: Clock,
    params: params::Machines,
    (kubernetes, azure, bootstrap): (kube::Client, arm::Client, Option<Arc<Bootstrap>>),
    metrics: PrometheusHandle,
) -> ActorDependencies {
    let config = &options.config;
    ActorDependencies {
        params,
        kubernetes,
        azure: Arc::new(azure),
        metrics,
        labels: params::labels(config),
        effects: if options.dry_run { Effects::Withheld } else { Effects::Carried },
        clock,
        leases: params::leases(config),
        election: options.election,
        bootstrap,
    }
}

/// Returns the state of the HTTP handlers.
fn about(options: &Options, clock: Clock, running: &Running) -> http::About {
    http::About {
        clock,
        dry_run: options.dry_run,
        published: running.published.clone(),
        effective: Arc::new(http::Effective::of(&options.config)),
        installation: Arc::new(http::Installation::of(&options.config, |name| std::env::var(name).ok())),
        listed: Arc::new(params::pools_by_source(&options.config)),
        event_subscription: running.event_subscription.clone(),
    }
}

/// Returns the parameters of the machines.
fn machines(
    options: &Options,
    instance: &Instance,
    listeners: Listeners,
    bootstrap: Option<&Bootstrap>,
) -> params::Machines {
    let params = params::machines(&options.config, instance).with_bootstrap(bootstrap);
    match (&options.restoring, listeners) {
        (Some(restoring), _) => params.restoring(restoring),
        (None, Listeners::Absent) => params.for_comparison(),
        (None, Listeners::Open) => params,
    }
}

/// Returns the identity of this process, which is unique among all replicas and restarts, even of a container in the
/// same Pod (W8).
fn identity() -> Arc<str> {
    let pod_name = ["POD_NAME", "HOSTNAME"].into_iter().find_map(|name| {
        let value = std::env::var(name).ok()?;
        (!value.is_empty()).then_some(value)
    });
    let name = pod_name.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    Arc::from(format!("{name}_{}", uuid::Uuid::new_v4().simple()))
}

#[cfg(test)]
mod blocked;
#[cfg(test)]
mod tests;
