//! The running service: clients, runtime, actors, listeners, and the order in which they end.

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

use crate::cli::{printable, tell};
use crate::control_planes;
use crate::http::{self, Addresses};
use crate::telemetry::Levels;
use crate::wiring::params::{self, Instance, Restoring};
use crate::wiring::{self, Ballot, Election, Parts, Running};

pub(crate) use kubernetes_client::{api_server_host, kubernetes_client};

/// How long it may take, after the signal, to hear of what was sent and to release both Leases: a token, one PUT of
/// 20 s, and up to 3 s for each Lease.
pub const QUIET_WITHIN: Duration = Duration::from_secs(28);
/// Threads for network work.
const WORKERS: usize = 2;

/// What a service is started with.
#[derive(Debug)]
pub struct Options {
    /// The validated configuration.
    pub config: Config,
    /// The kubeconfig; `None`: the pod's service account, else the default kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Whether nothing is written anywhere (C4).
    pub dry_run: bool,
    /// Which log lines are written.
    pub levels: Levels,
    /// Pre-images that are put back once the caller has said so; `None`: it does the controller's work.
    pub restoring: Option<Restoring>,
    /// When it takes part in the election.
    pub election: Election,
}

impl Options {
    /// How xDS control planes are reached, where any pool is filled from one. While pre-images are put back, none is
    /// asked.
    fn bootstrap(&self) -> anyhow::Result<Option<Arc<Bootstrap>>> {
        if self.restoring.is_some() {
            return Ok(None);
        }
        let bootstrap = control_planes::bootstrap(&self.config)?;
        for warning in bootstrap.iter().flat_map(|bootstrap| bootstrap.warnings()) {
            tracing::warn!(warning, "the xDS bootstrap holds something that has no effect");
        }
        Ok(bootstrap)
    }
}

/// What others see of the running service.
#[derive(Clone)]
pub struct Sight {
    /// The process's clock.
    pub clock: Clock,
    /// The published snapshot.
    pub published: Published,
    /// Who asks its machines.
    pub asks: OperatorRequests,
    /// What has it take part in the election, where it waits for that.
    pub ballot: Ballot,
}

impl Sight {
    fn of(clock: Clock, running: &Running) -> Sight {
        let (published, asks) = (running.published.clone(), running.asks.clone());
        Sight { clock, published, asks, ballot: running.ballot() }
    }
}

/// How a service has ended that a caller watched.
pub struct Ended<T> {
    /// What the watcher came to; `None`: a signal came first.
    pub answer: Option<T>,
    /// The last that was published.
    pub sight: Sight,
}

/// The storage of the API server was set back: what this process knows is of another past, so it has ended. The log says
/// so already.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the storage of the API server was set back to an earlier state: run the command again")]
pub(crate) struct StorageSetBack;

/// Whether the service answers over HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Listeners {
    /// All listeners that the configuration names are opened.
    Open,
    /// It takes no port.
    Absent,
}

/// Runs the service until SIGTERM or SIGINT.
///
/// # Errors
/// It could not be set up: no API server configuration, no ARM client, a listener's address in use. Or the API server's storage was set back (W8).
pub fn run(options: Options) -> anyhow::Result<()> {
    let for_ever = async |_| std::future::pending::<()>().await;
    in_system(serve(options, Listeners::Open, for_ever)).map(drop)
}

/// Runs this with everything that the service and its clients run in.
pub(crate) fn in_system<F: Future>(future: F) -> F::Output {
    let system = system();
    install_tls();
    system.block_on(future)
}

/// Both TLS users of the process, the API server's client and ARM's, take this provider.
pub(crate) fn install_tls() {
    if rustls::crypto::aws_lc_rs::default_provider().install_default().is_err() {
        tracing::debug!("a TLS provider was installed before");
    }
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

/// A panic anywhere ends the process (A4): a lost actor must not leave a pod that looks healthy. What is said of it may
/// hold an error with everything that others said, so no secret is told of it either (C1).
fn end_on_panic() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let place = panic.location().map_or_else(String::new, |place| format!(" at {place}"));
        let words = redact::redacted(panic.payload_as_str().unwrap_or("it says nothing of why"));
        // Holds functions and places in the sources, no values.
        let trace = Backtrace::capture();
        let is_wanted = trace.status() == BacktraceStatus::Captured;
        let trace = if is_wanted { trace.to_string() } else { String::new() };
        let name = thread.name().unwrap_or("unnamed");
        let said = [printable!("thread '{name}' panicked{place}:"), printable!("{words}")];
        tell(said.into_iter().chain(trace.lines().map(Printable::line)));
        std::process::abort();
    }));
}

/// Runs the service until SIGTERM, SIGINT, or until its caller has come to an answer. It ends in good order
/// either way.
///
/// # Errors
/// It could not be set up, as in [`run`].
pub(crate) async fn serve<T>(
    options: Options,
    listeners: Listeners,
    watcher: impl AsyncFnOnce(Sight) -> T,
) -> anyhow::Result<Ended<T>> {
    let mut signals = Signals::listen()?;
    let clock = Clock::start();
    let config = &options.config;
    let kubernetes = kubernetes_client(options.kubeconfig.as_ref()).await?;
    let azure = arm::Client::new(params::arm(config, clock)).context("failed to set up the ARM client")?;
    let bootstrap = options.bootstrap()?;
    let addresses = match listeners {
        Listeners::Open => {
            Some((Addresses::take(&config.controller)?, control_planes::Address::take(config)?))
        }
        Listeners::Absent => None,
    };
    let metrics = recorder::install().context("failed to install the metrics recorder")?;

    let instance = Instance { identity: identity(), dry_run: options.dry_run };
    let (addresses, csds) = addresses.unzip();
    let params = machines(&options, &instance, listeners, bootstrap.as_deref());
    let clients = (kubernetes, azure, bootstrap.clone());
    let running = wiring::start(parts(&options, clock, params, clients, metrics.clone()));
    let sight = Sight::of(clock, &running);
    let about = about(&options, clock, &running);
    let people = http::People::new(running.asks.clone(), running.reviewer.clone(), options.levels.clone());
    let open = |at| http::Listeners::open(at, about, people, running.pulse.clone(), metrics);
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
        answer = signals.unless_one_comes(watcher(sight.clone())) => answer,
        () = running.set_back() => return Err(StorageSetBack.into()),
    };
    if let Some(served) = &served {
        served.refuse();
    }
    running.shut_down(QUIET_WITHIN).await;
    if let Some(served) = served {
        served.stop().await;
    }
    if let Some(csds) = csds {
        csds.stop().await;
    }
    tracing::info!("stopped");
    Ok(Ended { answer, sight })
}

/// The signals that end the process in good order.
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

    /// What this comes to; `None`: a signal came first.
    async fn unless_one_comes<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
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

/// The parts from which the actors are built.
fn parts(
    options: &Options,
    clock: Clock,
    params: params::Machines,
    (kubernetes, azure, bootstrap): (kube::Client, arm::Client, Option<Arc<Bootstrap>>),
    metrics: PrometheusHandle,
) -> Parts {
    let config = &options.config;
    Parts {
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

/// What the listeners' handlers know.
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

/// The machines' parameters.
fn machines(
    options: &Options,
    instance: &Instance,
    listeners: Listeners,
    bootstrap: Option<&Bootstrap>,
) -> params::Machines {
    let params = params::machines(&options.config, instance).following(bootstrap);
    match (&options.restoring, listeners) {
        (Some(restoring), _) => params.restoring(restoring),
        (None, Listeners::Absent) => params.comparing(),
        (None, Listeners::Open) => params,
    }
}

/// Who this process is among all replicas and all their restarts: a container that is started again in its pod is
/// another one (W8).
fn identity() -> Arc<str> {
    let named = ["POD_NAME", "HOSTNAME"].into_iter().find_map(|name| {
        let value = std::env::var(name).ok()?;
        (!value.is_empty()).then_some(value)
    });
    let name = named.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    Arc::from(format!("{name}_{}", uuid::Uuid::new_v4().simple()))
}

#[cfg(test)]
mod blocked;
#[cfg(test)]
mod tests;
