//! The only place that starts actors: it makes every address first, then runs each actor with the full switchboard.

pub mod params;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Recipient};
use actors::azure::{AzurePort, Effects};
use actors::clock::Clock;
use actors::host::{Host, Published};
use actors::kubernetes::KubernetesPort;
use actors::pools::Pools;
use actors::recorder::{CloudLabels, Recorder};
use actors::shell::{Ping, Shell};
use actors::switchboard::{Deliver, Switchboard};
use metrics_exporter_prometheus::PrometheusHandle;
use pool_core::board::Board;
use pool_core::directory::Directory;
use pool_core::discovery::Discovery;
use pool_core::events::Emitter;
use pool_core::ids::Epoch;
use pool_core::informer::Informer;
use pool_core::machine::{Machine, Now};
use pool_core::object::Kind;
use pool_core::route::{Delivery, Said};
use pool_core::watch::Watcher;
use pool_core::writer::{Standing, Writer};
use pool_core::{directory, watch, writer};
use tokio::sync::watch::Receiver;

/// What the actors are made of.
pub struct Parts {
    /// The machines' parameters.
    pub params: params::Machines,
    /// The client of the API server.
    pub kubernetes: kube::Client,
    /// The client of ARM.
    pub azure: Arc<arm::Client>,
    /// The installed metrics recorder.
    pub metrics: PrometheusHandle,
    /// Labels of upstream's series.
    pub labels: CloudLabels,
    /// What becomes of writes.
    pub effects: Effects,
    /// The process's clock.
    pub clock: Clock,
}

/// The running actors.
pub struct Running {
    /// The published snapshot.
    pub published: Published,
    /// Whom to ask whether the machines step.
    pub pulse: Pulse,
    writer: Recipient<Deliver>,
    writer_quiet: Receiver<bool>,
}

/// Everyone that must answer for the process to be alive.
#[derive(Clone)]
pub struct Pulse(pub Arc<[(&'static str, Recipient<Ping>)]>);

impl Running {
    /// Ends in order: the writer starts nothing more, and what it has sent is waited for, at most `within`.
    pub async fn shut_down(mut self, within: Duration) {
        let shutdown = Deliver(vec![Delivery::Writer(writer::In::Shutdown)]);
        if self.writer.send(shutdown).await.is_err() {
            tracing::warn!("the writer had stopped before the shutdown");
            return;
        }
        let quiet = self.writer_quiet.wait_for(|quiet| *quiet);
        if tokio::time::timeout(within, quiet).await.is_err() {
            tracing::warn!("writes were still unanswered when the time for shutdown ran out");
        }
    }
}

/// The term of leadership of a process that nobody competes with.
const ONLY_TERM: Epoch = Epoch(1);

fn shell_context<M>() -> (Context<Shell<M>>, Addr<Shell<M>>)
where
    M: Machine + Unpin + 'static,
    M::In: Unpin + 'static,
    M::Out: 'static,
{
    let ctx = Context::new();
    let addr = ctx.address();
    (ctx, addr)
}

/// Starts every actor on the current actix System.
#[must_use]
pub fn start(parts: Parts) -> Running {
    let Parts { params, kubernetes, azure, metrics, labels, effects, clock } = parts;
    let watchers = Kind::ALL.map(|kind| (kind, shell_context::<Watcher>()));
    let (informer_ctx, informer) = shell_context::<Informer>();
    let (discovery_ctx, discovery) = shell_context::<Discovery>();
    let (directory_ctx, directory) = shell_context::<Directory>();
    let (writer_ctx, writer) = shell_context::<Writer>();
    let (events_ctx, events) = shell_context::<Emitter>();
    let (board_ctx, board) = shell_context::<Board>();
    let pools_ctx = Context::<Pools>::new();
    let pools = pools_ctx.address();
    let kubernetes_ctx = Context::<KubernetesPort>::new();
    let published = Published::default();
    let (host, writer_quiet) = Host::new(Arc::clone(&published));

    let switchboard = Arc::new(Switchboard {
        watchers: watchers.each_ref().map(|(_, (_, addr))| addr.clone().recipient()),
        informer: informer.clone().recipient(),
        discovery: discovery.clone().recipient(),
        directory: directory.clone().recipient(),
        pools: pools.clone().recipient(),
        writer: writer.clone().recipient(),
        events: events.clone().recipient(),
        board: board.clone().recipient(),
        arm: AzurePort::new(azure, effects, writer.clone().recipient()).start().recipient(),
        kubernetes: kubernetes_ctx.address().recipient(),
        metrics: Recorder::new(metrics, labels).start().recipient(),
        host: host.start().recipient(),
    });
    let [services, slices, nodes] =
        watchers.each_ref().map(|(_, (_, addr))| addr.clone().recipient::<Ping>());
    let pulse: [(&'static str, Recipient<Ping>); 10] = [
        ("services-watcher", services),
        ("endpointslices-watcher", slices),
        ("nodes-watcher", nodes),
        ("informer", informer.recipient()),
        ("discovery", discovery.recipient()),
        ("directory", directory.recipient()),
        ("pools", pools.recipient()),
        ("writer", writer.clone().recipient()),
        ("events", events.recipient()),
        ("board", board.recipient()),
    ];

    let reporter: Arc<str> = std::env::var("POD_NAME").unwrap_or_default().into();
    let board_of = || Arc::clone(&switchboard);
    kubernetes_ctx.run(KubernetesPort::new(kubernetes, effects, clock, reporter, board_of()));
    pools_ctx.run(Pools::new(params.queue, clock, board_of()));
    let machine = Informer::new(params.informer);
    informer_ctx.run(Shell::new(machine, Delivery::for_informer, Said::Informer, clock, board_of()));
    let machine = Discovery::new(params.discovery);
    discovery_ctx.run(Shell::new(machine, Delivery::for_discovery, Said::Discovery, clock, board_of()));
    let machine = Directory::new(params.directory);
    let directory = Shell::new(machine, Delivery::for_directory, Said::Directory, clock, board_of());
    directory_ctx.run(directory.beginning_with(vec![directory::In::Epoch(ONLY_TERM)]));
    let standing = Standing::Leading { epoch: ONLY_TERM, until: Now::NEVER };
    let writing =
        Shell::new(Writer::new(params.writer), Delivery::for_writer, Said::Writer, clock, board_of());
    writer_ctx.run(writing.beginning_with(vec![writer::In::Standing(standing)]));
    events_ctx.run(Shell::new(
        Emitter::new(params.events),
        Delivery::for_events,
        Said::Events,
        clock,
        board_of(),
    ));
    board_ctx.run(Shell::new(Board::new(), Delivery::for_board, Said::Board, clock, board_of()));
    for (kind, (ctx, _)) in watchers {
        let watching =
            Shell::new(Watcher::new(kind), Delivery::for_watcher, Said::Watcher, clock, board_of());
        ctx.run(watching.beginning_with(vec![watch::In::Start]));
    }
    Running { published, pulse: Pulse(Arc::new(pulse)), writer: writer.recipient(), writer_quiet }
}
