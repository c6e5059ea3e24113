//! The only place that starts actors: it makes every address first, then runs each actor with the full switchboard.

pub mod params;

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Recipient};
use actors::asks::Asks;
use actors::azure::{AzurePort, Effects};
use actors::clock::Clock;
use actors::host::{Ended, Host, Published};
use actors::kubernetes::{KubernetesPort, Places, Pod, Reporter, Reviewer, Teller, Tellings};
use actors::pools::Pools;
use actors::recorder::{CloudLabels, Recorder};
use actors::shell::{Ping, Shell};
use actors::switchboard::{Deliver, Switchboard};
use metrics_exporter_prometheus::PrometheusHandle;
use pool_core::admin_state::{AdminState, Role};
use pool_core::board::Board;
use pool_core::directory::Directory;
use pool_core::discovery::Discovery;
use pool_core::events::Emitter;
use pool_core::informer::Informer;
use pool_core::leader::{Free, Leader};
use pool_core::machine::Machine;
use pool_core::object::Kind;
use pool_core::pauses::Pauses;
use pool_core::route::{Delivery, Said};
use pool_core::starts::Starts;
use pool_core::watch::Watcher;
use pool_core::writer::Writer;
use pool_core::{leader, pauses, starts, watch, writer};
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
    /// Where both Leases are.
    pub leases: Places,
    /// When it takes part in the election.
    pub election: Election,
}

/// When a process takes part in the election of the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Election {
    /// From its start.
    AtOnce,
    /// When it is told to: until then it reads and compares, and writes nothing.
    WhenTold,
}

impl Election {
    /// What the keeper of the notes of starts is told first: it lets the Leader begin.
    fn first(self) -> Vec<starts::In> {
        match self {
            Election::AtOnce => vec![starts::In::Start],
            Election::WhenTold => vec![],
        }
    }
}

/// Has a process take part in the election.
#[derive(Clone)]
pub struct Ballot(Recipient<Deliver>);

impl Ballot {
    /// It takes part from now on.
    pub async fn cast(&self) {
        if self.0.send(Deliver(vec![Delivery::Starts(starts::In::Start)])).await.is_err() {
            tracing::warn!("the keeper of the notes of starts had stopped before the election");
        }
    }
}

/// The running actors.
pub struct Running {
    /// The published snapshot.
    pub published: Published,
    /// Whom to ask whether the machines step.
    pub pulse: Pulse,
    /// Who asks the machines for people.
    pub asks: Asks,
    /// Who has the API server judge people.
    pub reviewer: Reviewer,
    /// Where the events that are told can be heard.
    pub tellings: Tellings,
    writer: Recipient<Deliver>,
    leader: Recipient<Deliver>,
    starts: Recipient<Deliver>,
    ended: Receiver<Ended>,
}

/// Everyone that must answer for the process to be alive.
#[derive(Clone)]
pub struct Pulse(pub Arc<[(&'static str, Recipient<Ping>)]>);

impl Pulse {
    /// The watchers, in the order of [`Kind::ALL`], and all others by name.
    fn of(watchers: &[Recipient<Ping>; 4], others: [(&'static str, Recipient<Ping>); 11]) -> Pulse {
        let names = ["services_watcher", "endpointslices_watcher", "nodes_watcher", "preemptions_watcher"];
        let watchers = names.into_iter().zip(watchers.iter().cloned());
        Pulse(watchers.chain(others).collect())
    }
}

impl Running {
    /// What has this process take part in the election, where it waits for that.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        Ballot(self.starts.clone())
    }

    /// Ends in order: nothing new is begun; what the writer has sent is waited for, at most `within`, and so is that
    /// both Leases are let go of, and, at the same time, that the note of this start is struck. Until then this process
    /// goes on leading, so that nobody else writes meanwhile (W8).
    pub async fn shut_down(mut self, within: Duration) {
        let told = tokio::join!(
            self.writer.send(Deliver(vec![Delivery::Writer(writer::In::Shutdown)])),
            self.leader.send(Deliver(vec![Delivery::Leader(leader::In::Shutdown)])),
            self.starts.send(Deliver(vec![Delivery::Starts(starts::In::Shutdown)])),
        );
        let (Ok(()), Ok(()), Ok(())) = told else {
            tracing::warn!("the writer, the Leader or the keeper of notes had stopped before the shutdown");
            return;
        };
        let in_time = tokio::time::timeout(within, self.ended.wait_for(|ended| ended.all())).await.is_ok();
        let Ended { leadership, note } = *self.ended.borrow();
        if !in_time {
            tracing::warn!(
                writes_answered = leadership.is_some(),
                start_note_struck = note.is_some(),
                "the shutdown was not complete when its time ran out"
            );
        }
        let Free { own, shared } = leadership.unwrap_or(Free { own: false, shared: false });
        let gone = [("own_lease", own), ("shared_lease", shared), ("start_note", note == Some(true))];
        for (what, _) in gone.into_iter().filter(|(_, is_gone)| !is_gone) {
            tracing::warn!(what, "something may be left behind, which ends by itself");
        }
    }
}

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
    let Parts { params, kubernetes, azure, metrics, labels, effects, clock, leases, election } = parts;
    let watchers = Kind::ALL.map(|kind| (kind, shell_context::<Watcher>()));
    let (informer_ctx, informer) = shell_context::<Informer>();
    let (discovery_ctx, discovery) = shell_context::<Discovery>();
    let (directory_ctx, directory) = shell_context::<Directory>();
    let (writer_ctx, writer) = shell_context::<Writer>();
    let (admin_ctx, admin_state) = shell_context::<AdminState>();
    let (leader_ctx, leader) = shell_context::<Leader>();
    let (starts_ctx, starts) = shell_context::<Starts>();
    let (pauses_ctx, pauses) = shell_context::<Pauses>();
    let (events_ctx, events) = shell_context::<Emitter>();
    let (board_ctx, board) = shell_context::<Board>();
    let published = Published::default();
    let (host, ended) = Host::new(Arc::clone(&published));
    let pools_ctx = Context::<Pools>::new();
    let (pools, host) = (pools_ctx.address(), host.start());
    let kubernetes_ctx = Context::<KubernetesPort>::new();

    let switchboard = Arc::new(Switchboard {
        watchers: watchers.each_ref().map(|(_, (_, addr))| addr.clone().recipient()),
        informer: informer.clone().recipient(),
        discovery: discovery.clone().recipient(),
        directory: directory.clone().recipient(),
        pools: pools.clone().recipient(),
        writer: writer.clone().recipient(),
        admin_state: admin_state.clone().recipient(),
        leader: leader.clone().recipient(),
        starts: starts.clone().recipient(),
        pauses: pauses.clone().recipient(),
        events: events.clone().recipient(),
        board: board.clone().recipient(),
        arm: AzurePort::new(azure, effects, writer.clone().recipient()).start().recipient(),
        kubernetes: kubernetes_ctx.address().recipient(),
        metrics: Recorder::new(metrics, labels).start().recipient(),
        host: host.clone().recipient(),
    });
    let pulse = Pulse::of(
        &watchers.each_ref().map(|(_, (_, addr))| addr.clone().recipient()),
        [
            ("informer", informer.recipient()),
            ("discovery", discovery.recipient()),
            ("directory", directory.recipient()),
            ("pools", pools.recipient()),
            ("writer", writer.clone().recipient()),
            ("admin_state", admin_state.recipient()),
            ("leader", leader.clone().recipient()),
            ("starts", starts.clone().recipient()),
            ("pauses", pauses.recipient()),
            ("events", events.recipient()),
            ("board", board.recipient()),
        ],
    );

    let (asks, reviewer) =
        (Asks::new(host.recipient(), Arc::clone(&switchboard)), Reviewer::new(kubernetes.clone()));
    let stage = Stage { clock, switchboard };
    let tellings = run_kubernetes_port(kubernetes_ctx, kubernetes, effects, leases, &stage);
    pools_ctx.run(Pools::new(params.queue, clock, Arc::clone(&stage.switchboard)));
    stage.run(informer_ctx, Informer::new(params.informer), Delivery::for_informer, Said::Informer, vec![]);
    let (discovery, directory) = (Discovery::new(params.discovery), Directory::new(params.directory));
    stage.run(discovery_ctx, discovery, Delivery::for_discovery, Said::Discovery, vec![]);
    stage.run(directory_ctx, directory, Delivery::for_directory, Said::Directory, vec![]);
    stage.run(writer_ctx, Writer::new(params.writer), Delivery::for_writer, Said::Writer, vec![]);
    let (role, admin) = (params.admin_state.role, AdminState::new(params.admin_state));
    stage.run(admin_ctx, admin, Delivery::for_admin_state, Said::AdminState, vec![]);
    // The Leader begins when the notes of earlier starts have been read (A4).
    stage.run(leader_ctx, Leader::new(params.leader), Delivery::for_leader, Said::Leader, vec![]);
    stage.run_notes((starts_ctx, params.starts, election.first()), (pauses_ctx, params.pauses));
    stage.run(events_ctx, Emitter::new(params.events), Delivery::for_events, Said::Events, vec![]);
    stage.run(board_ctx, Board::new(), Delivery::for_board, Said::Board, vec![]);
    stage.run_watchers(watchers.map(|(kind, (ctx, _))| (kind, ctx)), role);
    let (writer, leader, starts) = (writer.recipient(), leader.recipient(), starts.recipient());
    Running { published, pulse, asks, reviewer, tellings, writer, leader, starts, ended }
}

/// Starts the port to Kubernetes, and gives where the events that it carries out can be heard.
fn run_kubernetes_port(
    ctx: Context<KubernetesPort>,
    client: kube::Client,
    effects: Effects,
    leases: Places,
    stage: &Stage,
) -> Tellings {
    let pod = Pod::from_variables(|name| std::env::var(name).ok());
    let reporter = Reporter::new(pod, &leases.own, stage.clock);
    let (teller, tellings) = Teller::new();
    let switchboard = Arc::clone(&stage.switchboard);
    ctx.run(KubernetesPort::new(client, effects, stage.clock, reporter, teller, leases, switchboard));
    tellings
}

/// What every shell is started with.
struct Stage {
    clock: Clock,
    switchboard: Arc<Switchboard>,
}

impl Stage {
    /// Starts a machine in its shell, and tells it this first.
    fn run<M>(
        &self,
        ctx: Context<Shell<M>>,
        machine: M,
        accept: fn(Delivery) -> Option<M::In>,
        say: fn(M::Out) -> Said,
        first: Vec<M::In>,
    ) where
        M: Machine + Unpin + 'static,
        M::In: Unpin + 'static,
        M::Out: 'static,
    {
        let shell = Shell::new(machine, accept, say, self.clock, Arc::clone(&self.switchboard));
        ctx.run(shell.beginning_with(first));
    }

    /// Starts the keepers of what is noted in our ConfigMap.
    fn run_notes(
        &self,
        (starts, params, first): (Context<Shell<Starts>>, starts::Params, Vec<starts::In>),
        (pauses, wished): (Context<Shell<Pauses>>, pauses::Params),
    ) {
        self.run(starts, Starts::new(params), Delivery::for_starts, Said::Starts, first);
        let (machine, first) = (Pauses::new(wished), vec![pauses::In::Start]);
        self.run(pauses, machine, Delivery::for_pauses, Said::Pauses, first);
    }

    /// Starts the watchers of all kinds. That of preemptions never begins where nobody heeds them: it asks for nothing.
    fn run_watchers(&self, watchers: [(Kind, Context<Shell<Watcher>>); 4], role: Role) {
        for (kind, ctx) in watchers {
            let begins = match kind {
                Kind::Services | Kind::EndpointSlices | Kind::Nodes => true,
                Kind::Preemptions => role == Role::On,
            };
            let first = if begins { vec![watch::In::Start] } else { vec![] };
            self.run(ctx, Watcher::new(kind), Delivery::for_watcher, Said::Watcher, first);
        }
    }
}
