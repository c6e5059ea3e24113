//! The only place that starts actors: it creates every address first, then runs each actor with the full address book.
//!
//! The Leader runs on the main thread of the process, with the ports, one of which renews its Lease. All other machines
//! share a second thread, so that none of them can delay a renewal (W8).

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
use coordination::leader::{Free, Leader};
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
    pub leases: LeaseNames,
    /// When it takes part in the election.
    pub election: Election,
    /// How xDS control planes are reached; `None`: no pool is filled from one.
    pub bootstrap: Option<Arc<Bootstrap>>,
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
    /// The first messages to the Leader.
    fn first(self) -> Vec<leader::In> {
        match self {
            Election::AtOnce => vec![leader::In::Start],
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
        if self.0.send(Deliver(vec![Delivery::Leader(leader::In::Start)])).await.is_err() {
            tracing::warn!("the Leader had stopped before the election");
        }
    }
}

/// The running actors.
pub struct Running {
    /// The published snapshot.
    pub published: Published,
    /// Whom to ask whether the machines step.
    pub pulse: Pulse,
    /// Who asks the machines for operators.
    pub asks: OperatorRequests,
    /// Who has the API server judge operators.
    pub reviewer: Reviewer,
    /// Where the events that are told can be heard.
    pub event_subscription: EventSubscription,
    writer: Recipient<Deliver>,
    leader: Recipient<Deliver>,
    xds_source: Recipient<Deliver>,
    ended: Receiver<Option<End>>,
    /// The thread of all machines but the Leader.
    pub(crate) machines: ArbiterHandle,
}

/// Everyone that must answer for the process to be alive.
#[derive(Clone)]
pub struct Pulse(pub Arc<[(&'static str, Recipient<Ping>)]>);

impl Running {
    /// What has this process take part in the election, where it waits for that.
    #[must_use]
    pub fn ballot(&self) -> Ballot {
        Ballot(self.leader.clone())
    }

    /// Comes when the storage of the API server was found set back, which is in the log then: the process ends at once,
    /// as in a crash, and both Leases lapse.
    pub async fn set_back(&self) {
        let mut ended = self.ended.clone();
        if ended.wait_for(|end| *end == Some(End::SetBack)).await.is_err() {
            std::future::pending().await
        }
    }

    /// Ends in order: nothing new is begun; what the writer has sent is waited for, at most `within`, and so is that
    /// both Leases are released. Until then this process goes on leading, so that no other client writes meanwhile (W8).
    pub async fn shut_down(mut self, within: Duration) {
        // The Leader receives it first: it must not wait for an answer of the writer, which runs on another thread.
        let leader = self.leader.send(Deliver(vec![Delivery::Leader(leader::In::Shutdown)])).await;
        let told = tokio::join!(
            self.writer.send(Deliver(vec![Delivery::Writer(writer::In::Shutdown)])),
            self.xds_source.send(Deliver(vec![Delivery::XdsSource(xds_source::In::Shutdown)])),
        );
        let (Ok(()), (Ok(()), Ok(()))) = (leader, told) else {
            tracing::warn!(
                "the writer, the Leader or the follower of sources had stopped before the shutdown"
            );
            return;
        };
        let in_time = tokio::time::timeout(within, self.ended.wait_for(Option::is_some)).await.is_ok();
        if !in_time {
            tracing::warn!("the shutdown was not complete when its time ran out: a write may be unanswered");
        }
        let Free { own, shared } = match *self.ended.borrow() {
            Some(End::Shutdown(free)) => free,
            Some(End::SetBack) | None => Free { own: false, shared: false },
        };
        let released = [("own_lease", own), ("shared_lease", shared)];
        for (what, _) in released.into_iter().filter(|(_, is_gone)| !is_gone) {
            tracing::warn!(what, "something may be left behind, which ends by itself");
        }
        self.machines.stop();
    }
}

/// How many messages the mailbox of an actor takes before senders wait; the default of actix.
const MAILBOX: usize = 16;

/// A mailbox and its address, before the actor runs.
fn mailbox<A: Actor>() -> (AddressReceiver<A>, Addr<A>) {
    let (sender, receiver) = channel(MAILBOX);
    (receiver, Addr::new(sender))
}

/// A shell that does not run yet.
type Made<M> = (AddressReceiver<Shell<M>>, Addr<Shell<M>>);

macro_rules! shells {
    (
        machines { $($(#[$doc:meta])* $name:ident: $module:ident::$machine:ident, $field:ident, $input:ident;)+ }
        ports { $($(#[$port_doc:meta])* $port:ident: $to_port:ident($message:ty), $port_field:ident;)+ }
    ) => {
        /// The shells of all machines, made before any of them runs, so that each can be told of all others.
        struct Shells {
            watchers: [(Kind, Made<Watcher>); 4],
            $($field: Made<$machine>,)+
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

            /// The recipients of all machines, with those of the ports.
            fn address_book(&self, ports: Ports) -> AddressBook {
                AddressBook {
                    watchers: self.watchers.each_ref().map(|(_, (_, addr))| addr.clone().recipient()),
                    $($field: self.$field.1.clone().recipient(),)+
                    pools: self.pools.1.clone().recipient(),
                    $($port_field: ports.$port_field,)+
                }
            }

            /// Everyone that must answer for the process to be alive.
            fn pulse(&self) -> Pulse {
                let watchers = self.watchers.iter().map(|(kind, (_, addr))| {
                    (address_book::End::Watcher(*kind).name(), addr.clone().recipient())
                });
                let others = [
                    $((address_book::End::$name.name(), self.$field.1.clone().recipient()),)+
                    (address_book::End::Pools.name(), self.pools.1.clone().recipient()),
                ];
                Pulse(watchers.chain(others).collect())
            }
        }
    };
}

pool_core::machines!(shells);

/// Starts every actor on the current actix System.
#[must_use]
pub fn start(parts: Parts) -> Running {
    let Parts { params, kubernetes, azure, metrics, labels, effects, clock, leases, election, bootstrap } =
        parts;
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
    let (asks, reviewer) = (
        OperatorRequests::new(host.recipient(), Arc::clone(&address_book)),
        Reviewer::new(kubernetes.clone()),
    );
    let leader = address_book.leader.clone();
    let stage = Stage { clock, address_book, machines: machines.clone() };
    let event_subscription = run_kubernetes_port(kubernetes_ctx, kubernetes, effects, leases, &stage);
    let pulse = shells.pulse();
    stage.run_all(shells, params, election);
    Running {
        published,
        pulse,
        asks,
        reviewer,
        event_subscription,
        writer,
        leader,
        xds_source,
        ended,
        machines,
    }
}

/// The targets of xDS servers, as metrics name them.
fn targets(bootstrap: Option<&Bootstrap>) -> Vec<Arc<str>> {
    let servers = bootstrap.map(Bootstrap::servers).unwrap_or_default();
    servers.into_iter().map(|server| server.uri).collect()
}

/// Starts the port to Kubernetes, and gives where the events that it carries out can be heard.
fn run_kubernetes_port(
    ctx: Context<KubernetesPort>,
    client: kube::Client,
    effects: Effects,
    leases: LeaseNames,
    stage: &Stage,
) -> EventSubscription {
    let variable = |name: &str| std::env::var(name).ok();
    let (deployment, pod) = (deployment_named(variable), Pod::from_variables(variable));
    let reporter = Reporter::new(deployment, pod, &leases.own, stage.clock);
    let (publisher, event_subscription) = EventPublisher::new();
    let address_book = Arc::clone(&stage.address_book);
    ctx.run(KubernetesPort::new(client, effects, stage.clock, (reporter, publisher), leases, address_book));
    event_subscription
}

/// What every shell is started with.
struct Stage {
    clock: Clock,
    address_book: Arc<AddressBook>,
    /// The thread of all machines but the Leader.
    machines: ArbiterHandle,
}

impl Stage {
    /// Starts a machine in its shell on the machines' thread, and delivers `first` to it.
    fn run<M>(
        &self,
        mailbox: AddressReceiver<Shell<M>>,
        machine: M,
        accept: fn(Delivery) -> Option<M::In>,
        say: fn(M::Out) -> Output,
        first: Vec<M::In>,
    ) where
        M: Machine + Unpin + Send + 'static,
        M::In: Unpin + Send + 'static,
        M::Out: 'static,
    {
        let (clock, address_book) = (self.clock, Arc::clone(&self.address_book));
        self.spawn(move || {
            let shell = Shell::new(machine, accept, say, clock, address_book);
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
    fn run_all(&self, shells: Shells, params: params::Machines, election: Election) {
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

    /// Starts the watchers of all kinds. That of preemptions never begins where they are not used: it asks for nothing.
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
