//! The only place that starts actors: it creates every address first, then runs each actor with the full address book.
//!
//! The Leader runs on the main thread of the process, with the ports, one of which renews its Lease. All other machines
//! share a second thread, so that they cannot delay a renewal (W8).

pub mod params;

use std::sync::Arc;
use std::time::Duration;

use actix::dev::channel::{AddressReceiver, channel};
use actix::{Actor, Addr, Arbiter, ArbiterHandle, AsyncContext, Context, Recipient};
use actors::address_book::{self, AddressBook, Deliver};
use actors::azure::{AzurePort, Effects};
use actors::clock::Clock;
use actors::host::{End, Host, Published};
use actors::kubernetes::{
    EventPublisher, EventSubscription, KubernetesPort, LeaseNames, Pod, Reporter, Reviewer, deployment_named,
};
use actors::operator_requests::OperatorRequests;
use actors::pools::Pools;
use actors::recorder::{CloudLabels, Recorder};
use actors::shell::{Ping, Shell};
use actors::xds::XdsPort;
use coordination::leader::{Leader, ReleasedLeases};
use coordination::pauses::Pauses;
use coordination::{leader, pauses};
use metrics_exporter_prometheus::PrometheusHandle;
use model::machine::Machine;
use model::node::Role;
use model::object::Kind;
use nodes::AdminState;
use pool_core::route::{Delivery, Output};
use pools::directory::Directory;
use pools::discovery::Discovery;
use reporting::events::Emitter;
use reporting::snapshot::SnapshotPublisher;
use sources::informer::Informer;
use sources::watch;
use sources::watch::Watcher;
use sources::xds_source::{self, XdsSource};
use tokio::sync::watch::Receiver;
use writer::Writer;
use xds::Bootstrap;

use crate::control_planes::VERSION;

/// Everything from which the actors are built.
pub struct ActorDependencies {
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
    /// Whether writes are carried out.
    pub effects: Effects,
    /// The clock of the process.
    pub clock: Clock,
    /// The namespaces and names of both Leases.
    pub leases: LeaseNames,
    /// When this process joins the election of the leader.
    pub election: ElectionStart,
    /// The bootstrap configuration of xDS; `None` if no pool has an xDS source.
    pub bootstrap: Option<Arc<Bootstrap>>,
}

/// When a process joins the election of the leader.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElectionStart {
    /// At its start.
    Immediate,
    /// When [`ElectionTrigger::join_election`] is called. Until then it reads and compares, and writes nothing.
    Deferred,
}

impl ElectionStart {
    /// Returns the first messages to the Leader.
    fn first(self) -> Vec<leader::In> {
        match self {
            ElectionStart::Immediate => vec![leader::In::Start],
            ElectionStart::Deferred => vec![],
        }
    }
}

/// Makes a process join the election of the leader.
#[derive(Clone)]
pub struct ElectionTrigger(Recipient<Deliver>);

impl ElectionTrigger {
    /// Joins the election now.
    pub async fn join_election(&self) {
        if self.0.send(Deliver(vec![Delivery::Leader(leader::In::Start)])).await.is_err() {
            let effect = "this process never leads";
            let remedy =
                "this is a bug in the controller: report it, and restart the process or repeat the command";
            tracing::warn!(effect, remedy, "the leader election stopped before it began");
        }
    }
}

/// The running actors.
pub struct Running {
    /// The published snapshot.
    pub published: Published,
    /// The actors that the liveness probe checks.
    pub liveness_targets: LivenessTargets,
    /// Sends requests of operators to the machines.
    pub operator_requests: OperatorRequests,
    /// Authenticates and authorizes operators at the API server.
    pub reviewer: Reviewer,
    /// The stream of emitted Kubernetes Events.
    pub event_subscription: EventSubscription,
    writer: Recipient<Deliver>,
    leader: Recipient<Deliver>,
    xds_source: Recipient<Deliver>,
    ended: Receiver<Option<End>>,
    /// The thread of all machines but the Leader.
    pub(crate) machines: ArbiterHandle,
}

/// The actors that must answer a ping while the process is alive.
#[derive(Clone)]
pub struct LivenessTargets(pub Arc<[(&'static str, Recipient<Ping>)]>);

impl Running {
    /// Returns the trigger with which a deferred process joins the election.
    #[must_use]
    pub fn election_trigger(&self) -> ElectionTrigger {
        ElectionTrigger(self.leader.clone())
    }

    /// Completes when the Leader has found that the storage of the API server was restored to an earlier state, and has
    /// logged it. The process then ends immediately, as in a crash, and both Leases lapse.
    pub async fn rollback(&self) {
        let mut ended = self.ended.clone();
        if ended.wait_for(|end| *end == Some(End::StorageRollback)).await.is_err() {
            std::future::pending().await
        }
    }

    /// Shuts down: begins nothing new, and waits at most `within` until the writes in flight are answered and both Leases
    /// are released. Until then this process keeps leading, so that no other client writes in the meantime (W8).
    pub async fn shut_down(mut self, within: Duration) {
        // The Leader receives it first: it must not wait for an answer of the writer, which runs on another thread.
        let leader = self.leader.send(Deliver(vec![Delivery::Leader(leader::In::Shutdown)])).await;
        let (writer, xds_source) = tokio::join!(
            self.writer.send(Deliver(vec![Delivery::Writer(writer::In::Shutdown)])),
            self.xds_source.send(Deliver(vec![Delivery::XdsSource(xds_source::In::Shutdown)])),
        );
        let sent = [("leader", leader), ("writer", writer), ("xds_source", xds_source)];
        let actors: Vec<&str> =
            sent.iter().filter(|(_, result)| result.is_err()).map(|(actor, _)| *actor).collect();
        if !actors.is_empty() {
            let effect = "a write to Azure may be unanswered, and the Leases are not released: they expire";
            let remedy = "this is a bug in the controller: report it with the lines before this one";
            tracing::warn!(?actors, effect, remedy, "an actor stopped before the shutdown");
            return;
        }
        let in_time = tokio::time::timeout(within, self.ended.wait_for(Option::is_some)).await.is_ok();
        if !in_time {
            let effect = "the next leader reads each load balancer before it writes";
            let remedy = "none; if it recurs, check that Azure and the API server answer";
            tracing::warn!(
                effect,
                remedy,
                "the shutdown timed out: the result of a write to Azure may be unknown"
            );
        }
        let ReleasedLeases { own, shared } = match *self.ended.borrow() {
            Some(End::Shutdown(free)) => free,
            Some(End::StorageRollback) | None => ReleasedLeases { own: false, shared: false },
        };
        let released = [
            ("own", own, "another replica leads once it has expired, and writes 20 s later"),
            ("shared", shared, "other clients wait until it has expired, which takes at most a minute"),
        ];
        for (lease, _, effect) in released.into_iter().filter(|(_, is_released, _)| !is_released) {
            tracing::warn!(lease, effect, remedy = "none", "a Lease may not have been released");
        }
        self.machines.stop();
    }
}

/// Capacity of a mailbox, after which senders wait; the default of actix.
const MAILBOX: usize = 16;

/// Creates the mailbox and the address of an actor that does not run yet.
fn mailbox<A: Actor>() -> (AddressReceiver<A>, Addr<A>) {
    let (sender, receiver) = channel(MAILBOX);
    (receiver, Addr::new(sender))
}

/// The mailbox and the address of a shell that does not run yet.
type UnstartedShell<M> = (AddressReceiver<Shell<M>>, Addr<Shell<M>>);

macro_rules! shells {
    (
        machines { $($(#[$doc:meta])* $name:ident: $module:ident::$machine:ident, $field:ident, $input:ident;)+ }
        ports { $($(#[$port_doc:meta])* $port:ident: $to_port:ident($message:ty), $port_field:ident;)+ }
    ) => {
        /// The shells of all machines, created before any of them runs, so that each can get the addresses of the others.
        struct Shells {
            watchers: [(Kind, UnstartedShell<Watcher>); 4],
            $($field: UnstartedShell<$machine>,)+
            pools: (AddressReceiver<Pools>, Addr<Pools>),
        }

        /// The ports.
        struct Ports {
            $($port_field: Recipient<Deliver>,)+
        }

        impl Shells {
            fn make() -> Shells {
                Shells {
                    watchers: Kind::ALL.map(|kind| (kind, mailbox())),
                    $($field: mailbox(),)+
                    pools: mailbox(),
                }
            }

            /// Returns the addresses of all machines and ports.
            fn address_book(&self, ports: Ports) -> AddressBook {
                AddressBook {
                    watchers: self.watchers.each_ref().map(|(_, (_, addr))| addr.clone().recipient()),
                    $($field: self.$field.1.clone().recipient(),)+
                    pools: self.pools.1.clone().recipient(),
                    $($port_field: ports.$port_field,)+
                }
            }

            /// Returns the actors that must answer a ping while the process is alive.
            fn liveness_targets(&self) -> LivenessTargets {
                let watchers = self.watchers.iter().map(|(kind, (_, addr))| {
                    (address_book::End::Watcher(*kind).name(), addr.clone().recipient())
                });
                let others = [
                    $((address_book::End::$name.name(), self.$field.1.clone().recipient()),)+
                    (address_book::End::Pools.name(), self.pools.1.clone().recipient()),
                ];
                LivenessTargets(watchers.chain(others).collect())
            }
        }
    };
}

pool_core::machines!(shells);

/// Starts every actor on the current actix System.
#[must_use]
pub fn start(dependencies: ActorDependencies) -> Running {
    let ActorDependencies {
        params,
        kubernetes,
        azure,
        metrics,
        labels,
        effects,
        clock,
        leases,
        election,
        bootstrap,
    } = dependencies;
    let shells = Shells::make();
    let published = Published::default();
    let (host, ended) = Host::new(Arc::clone(&published), leases.own.clone());
    let host = host.start();
    let machines = Arbiter::new().handle();
    let kubernetes_ctx = Context::<KubernetesPort>::new();
    let writer = shells.writer.1.clone().recipient::<Deliver>();
    let xds_source = shells.xds_source.1.clone().recipient::<Deliver>();
    let servers = targets(bootstrap.as_deref());

    let address_book = Arc::new(shells.address_book(Ports {
        xds_port: XdsPort::new(bootstrap, VERSION, clock, xds_source.clone()).start().recipient(),
        arm_port: AzurePort::new(azure, effects, writer.clone()).start().recipient(),
        kubernetes_port: kubernetes_ctx.address().recipient(),
        metrics: Recorder::new(metrics, labels, servers).start().recipient(),
        host: host.clone().recipient(),
    }));
    let (operator_requests, reviewer) = (
        OperatorRequests::new(host.recipient(), Arc::clone(&address_book)),
        Reviewer::new(kubernetes.clone()),
    );
    let leader = address_book.leader.clone();
    let starter = ShellStarter { clock, address_book, machines: machines.clone() };
    let event_subscription = run_kubernetes_port(kubernetes_ctx, kubernetes, effects, leases, &starter);
    let liveness_targets = shells.liveness_targets();
    starter.run_all(shells, params, election);
    Running {
        published,
        liveness_targets,
        operator_requests,
        reviewer,
        event_subscription,
        writer,
        leader,
        xds_source,
        ended,
        machines,
    }
}

/// Returns the targets of the xDS servers, as metrics name them.
fn targets(bootstrap: Option<&Bootstrap>) -> Vec<Arc<str>> {
    let servers = bootstrap.map(Bootstrap::servers).unwrap_or_default();
    servers.into_iter().map(|server| server.uri).collect()
}

/// Starts the port to Kubernetes, and returns the stream of the Events that it writes.
fn run_kubernetes_port(
    ctx: Context<KubernetesPort>,
    client: kube::Client,
    effects: Effects,
    leases: LeaseNames,
    starter: &ShellStarter,
) -> EventSubscription {
    let variable = |name: &str| std::env::var(name).ok();
    let (deployment, pod) = (deployment_named(variable), Pod::from_variables(variable));
    let reporter = Reporter::new(deployment, pod, &leases.own, starter.clock);
    let (publisher, event_subscription) = EventPublisher::new();
    let address_book = Arc::clone(&starter.address_book);
    ctx.run(KubernetesPort::new(client, effects, starter.clock, (reporter, publisher), leases, address_book));
    event_subscription
}

/// Starts shells, with the objects that all of them share.
struct ShellStarter {
    clock: Clock,
    address_book: Arc<AddressBook>,
    /// The thread of all machines but the Leader.
    machines: ArbiterHandle,
}

impl ShellStarter {
    /// Starts a machine in its shell on the machines' thread, and delivers `first` to it.
    fn run<M>(
        &self,
        mailbox: AddressReceiver<Shell<M>>,
        machine: M,
        accept: fn(Delivery) -> Option<M::In>,
        wrap: fn(M::Out) -> Output,
        first: Vec<M::In>,
    ) where
        M: Machine + Unpin + Send + 'static,
        M::In: Unpin + Send + 'static,
        M::Out: 'static,
    {
        let (clock, address_book) = (self.clock, Arc::clone(&self.address_book));
        self.spawn(move || {
            let shell = Shell::new(machine, accept, wrap, clock, address_book);
            Context::with_receiver(mailbox).run(shell.beginning_with(first));
        });
    }

    /// Runs `start` on the machines' thread.
    fn spawn(&self, start: impl FnOnce() + Send + 'static) {
        let is_started = self.machines.spawn_fn(start);
        assert!(is_started, "the thread of the machines ends with the process");
    }

    /// Starts the Leader on the main thread.
    fn run_leader(&self, mailbox: AddressReceiver<Shell<Leader>>, leader: Leader, first: Vec<leader::In>) {
        let address_book = Arc::clone(&self.address_book);
        let shell = Shell::new(leader, Delivery::for_leader, Output::Leader, self.clock, address_book);
        Context::with_receiver(mailbox).run(shell.beginning_with(first));
    }

    /// Starts all machines.
    fn run_all(&self, shells: Shells, params: params::Machines, election: ElectionStart) {
        let (mailbox, clock, address_book) = (shells.pools.0, self.clock, Arc::clone(&self.address_book));
        self.spawn(move || {
            Context::with_receiver(mailbox).run(Pools::new(params.queue, clock, address_book));
        });
        let (informer, discovery) = (Informer::new(params.informer), Discovery::new(params.discovery));
        self.run(shells.informer.0, informer, Delivery::for_informer, Output::Informer, vec![]);
        self.run(shells.discovery.0, discovery, Delivery::for_discovery, Output::Discovery, vec![]);
        let (directory, follower) = (Directory::new(params.directory), XdsSource::new(params.xds_source));
        self.run(shells.directory.0, directory, Delivery::for_directory, Output::Directory, vec![]);
        self.run(
            shells.xds_source.0,
            follower,
            Delivery::for_xds_source,
            Output::XdsSource,
            vec![xds_source::In::Start],
        );
        self.run(shells.writer.0, Writer::new(params.writer), Delivery::for_writer, Output::Writer, vec![]);
        let (role, admin) = (params.admin_state.role, AdminState::new(params.admin_state));
        self.run(shells.admin_state.0, admin, Delivery::for_admin_state, Output::AdminState, vec![]);
        self.run_leader(shells.leader.0, Leader::new(params.leader), election.first());
        let pauses = (Pauses::new(params.pauses), vec![pauses::In::Start]);
        self.run(shells.pauses.0, pauses.0, Delivery::for_pauses, Output::Pauses, pauses.1);
        self.run(shells.events.0, Emitter::new(params.events), Delivery::for_events, Output::Events, vec![]);
        self.run(
            shells.snapshot.0,
            SnapshotPublisher::new(),
            Delivery::for_snapshot,
            Output::Snapshot,
            vec![],
        );
        self.run_watchers(shells.watchers.map(|(kind, (ctx, _))| (kind, ctx)), role);
    }

    /// Starts the watchers of all kinds. The watcher of preemptions makes no request if they are not used.
    fn run_watchers(&self, watchers: [(Kind, AddressReceiver<Shell<Watcher>>); 4], role: Role) {
        for (kind, ctx) in watchers {
            let begins = match kind {
                Kind::Services | Kind::EndpointSlices | Kind::Nodes => true,
                Kind::Preemptions => role == Role::On,
            };
            let first = if begins { vec![watch::In::Start] } else { vec![] };
            self.run(ctx, Watcher::new(kind), Delivery::for_watcher, Output::Watcher, first);
        }
    }
}
