//! One process of the controller: all machines, and the edges between them as in the shells
//! (docs/design/model-and-mechanisms.md, A1, A3). On an edge one batch is in flight at a time; further deliveries
//! wait in an [`Outbox`].

use std::collections::{BTreeMap, VecDeque};

use coordination::leader::Leader;
use coordination::pauses::Pauses;
use coordination::{leader, pauses};
use model::ids::PoolId;
use model::machine::{Machine, Now};
use model::object::Kind;
use nodes::AdminState;
use pool_core::outbox::Outbox;
use pool_core::route::{Address, Delivery, Output, route};
use pools::directory::Directory;
use pools::discovery::Discovery;
use pools::queue::PoolQueue;
use pools::{directory, discovery, queue};
use reporting::events;
use reporting::events::Emitter;
use reporting::snapshot::SnapshotPublisher;
use sources::informer::Informer;
use sources::watch::Watcher;
use sources::xds_source::XdsSource;
use sources::{informer, watch, xds_source};
use writer::Writer;

/// Number of times a machine may act on its deadline in one turn.
const TICKS_PER_TURN: usize = 32;
/// Most deliveries of one batch.
const BATCH: usize = 512;

/// The senders and receivers in one process. A pool's machine has a number, because a pool that is forgotten and
/// started again has another machine.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Actor {
    /// The watcher of a kind.
    Watcher(Kind),
    /// The Informer.
    Informer,
    /// Discovery.
    Discovery,
    /// The Directory.
    Directory,
    /// The registry of pools.
    Registry,
    /// A pool.
    Pool(PoolId, u64),
    /// The writer.
    Writer,
    /// The AdminState machine.
    AdminState,
    /// The Leader.
    Leader,
    /// The Pauses machine.
    Pauses,
    /// The event emitter.
    Events,
    /// The snapshot machine.
    Snapshot,
    /// The xDS source machine.
    XdsSource,
    /// The port to control planes.
    XdsPort,
    /// The port to Kubernetes.
    KubernetesPort,
    /// The port to ARM.
    ArmPort,
    /// The metrics recorder.
    Metrics,
    /// The host.
    Host,
}

impl Actor {
    fn at(address: &Address) -> Actor {
        match address {
            Address::Watcher(kind) => Actor::Watcher(*kind),
            Address::Informer => Actor::Informer,
            Address::Discovery => Actor::Discovery,
            Address::Directory => Actor::Directory,
            Address::Pool(_) => Actor::Registry,
            Address::Writer => Actor::Writer,
            Address::AdminState => Actor::AdminState,
            Address::Leader => Actor::Leader,
            Address::Events => Actor::Events,
            Address::Snapshot => Actor::Snapshot,
            Address::ArmPort => Actor::ArmPort,
            Address::KubernetesPort => Actor::KubernetesPort,
            Address::Metrics => Actor::Metrics,
            Address::Pauses => Actor::Pauses,
            Address::Host => Actor::Host,
            Address::XdsSource => Actor::XdsSource,
            Address::XdsPort => Actor::XdsPort,
        }
    }
}

/// An edge: sender and receiver.
pub type EdgeId = (Actor, Actor);

/// Parameters of the machines.
#[derive(Clone, Debug)]
pub struct Params {
    /// Of the Informer.
    pub informer: informer::Params,
    /// Of Discovery.
    pub discovery: discovery::Params,
    /// Of the Directory.
    pub directory: directory::Params,
    /// Of every pool.
    pub queue: queue::Params,
    /// Of the writer.
    pub writer: writer::Params,
    /// Of the AdminState machine.
    pub admin_state: nodes::Params,
    /// Of the Leader.
    pub leader: leader::Params,
    /// Of the Pauses machine.
    pub pauses: pauses::Params,
    /// Of the event emitter.
    pub events: events::Params,
    /// Of the xDS source machine.
    pub xds_source: xds_source::Params,
    /// True if newer facts do not replace older ones that wait, for a planted bug.
    pub facts_pile_up: bool,
}

#[derive(Default)]
struct Edge {
    outbox: Outbox,
    /// Waits in the place of the outbox if facts pile up.
    pile: VecDeque<Delivery>,
    in_flight: Option<Vec<Delivery>>,
}

impl Edge {
    fn len(&self) -> usize {
        self.outbox.len() + self.pile.len()
    }

    /// Removes and returns the next batch.
    fn take(&mut self) -> Vec<Delivery> {
        let piled = BATCH.min(self.pile.len());
        if piled > 0 { self.pile.drain(..piled).collect() } else { self.outbox.take(BATCH) }
    }
}

/// One turn of a machine.
pub struct Turn {
    /// The outputs of each input, or tick (`None`).
    pub steps: Vec<(Option<Delivery>, Vec<Output>)>,
    /// Its deadline after the turn.
    pub deadline: Option<Now>,
}

/// One process.
pub struct Replica {
    watchers: BTreeMap<Kind, Watcher>,
    informer: Informer,
    discovery: Discovery,
    directory: Directory,
    /// Machines of pools, each with its number.
    pub pools: BTreeMap<PoolId, (u64, PoolQueue)>,
    writer: Writer,
    admin_state: AdminState,
    leader: Leader,
    pauses: Pauses,
    emitter: Emitter,
    snapshot: SnapshotPublisher,
    xds_source: XdsSource,
    started: u64,
    /// Number of machines that were started by a Take that crossed the pool's end; they have no owner and send
    /// nothing more.
    pub by_take: usize,
    params: Params,
    edges: BTreeMap<EdgeId, Edge>,
    /// Time for which each machine's timer is set.
    pub armed: BTreeMap<Actor, Now>,
}

impl Replica {
    /// Creates a process without inputs.
    pub fn new(params: Params) -> Replica {
        Replica {
            watchers: Kind::ALL.into_iter().map(|kind| (kind, Watcher::new(kind))).collect(),
            informer: Informer::new(params.informer.clone()),
            discovery: Discovery::new(params.discovery.clone()),
            directory: Directory::new(params.directory.clone()),
            pools: BTreeMap::new(),
            writer: Writer::new(params.writer.clone()),
            admin_state: AdminState::new(params.admin_state.clone()),
            leader: Leader::new(params.leader.clone()),
            pauses: Pauses::new(params.pauses.clone()),
            emitter: Emitter::new(params.events.clone()),
            snapshot: SnapshotPublisher::new(),
            xds_source: XdsSource::new(params.xds_source.clone()),
            started: 0,
            by_take: 0,
            params,
            edges: BTreeMap::new(),
            armed: BTreeMap::new(),
        }
    }

    /// Returns the first input of each machine.
    pub fn first_inputs() -> Vec<(Actor, Delivery)> {
        // Evictions are watched in every configuration, so that worlds do not differ in this.
        let watchers = Kind::ALL
            .into_iter()
            .map(|kind| (Actor::Watcher(kind), Delivery::Watcher(kind, watch::In::Start)));
        let leader = (Actor::Leader, Delivery::Leader(leader::In::Start));
        let pauses = (Actor::Pauses, Delivery::Pauses(pauses::In::Start));
        let follower = (Actor::XdsSource, Delivery::XdsSource(xds_source::In::Start));
        watchers.chain([pauses, leader, follower]).collect()
    }

    /// Puts a delivery on the edge from `from` to its receiver; returns the edge and the number of waiting
    /// deliveries.
    pub fn push(&mut self, from: &Actor, delivery: Delivery) -> (EdgeId, usize) {
        let to = Actor::at(&delivery.address());
        self.push_to(from, to, delivery)
    }

    /// Puts a delivery on a given edge.
    pub fn push_to(&mut self, from: &Actor, to: Actor, delivery: Delivery) -> (EdgeId, usize) {
        let id = (from.clone(), to);
        let edge = self.edges.entry(id.clone()).or_default();
        if self.params.facts_pile_up {
            edge.pile.push_back(delivery);
        } else {
            edge.outbox.push(delivery);
        }
        (id, edge.len())
    }

    /// Sends the next batch of an edge, if one waits and none is in flight.
    pub fn depart(&mut self, id: &EdgeId) -> bool {
        let Some(edge) = self.edges.get_mut(id) else { return false };
        if edge.in_flight.is_some() {
            return false;
        }
        if edge.len() == 0 {
            self.edges.remove(id);
            return false;
        }
        edge.in_flight = Some(edge.take());
        true
    }

    /// Handles the arrival of the batch in flight on an edge.
    pub fn arrive(&mut self, id: &EdgeId) -> Vec<Delivery> {
        self.edges.get_mut(id).and_then(|edge| edge.in_flight.take()).unwrap_or_default()
    }

    /// Returns the machine of a pool. An assignment starts it; a late verdict or observation about a forgotten pool
    /// does not.
    pub fn start(&mut self, pool: &PoolId, input: &queue::In) -> Option<Actor> {
        if !self.pools.contains_key(pool) {
            match input {
                queue::In::Assigned(_) => {}
                queue::In::Take(_) => self.by_take += 1,
                queue::In::Observed(_)
                | queue::In::Attempt(_)
                | queue::In::Rewrite
                | queue::In::Pace(_)
                | queue::In::Finished(..)
                | queue::In::Verified(_) => return None,
            }
            self.started += 1;
            let machine = PoolQueue::new(pool.clone(), self.params.queue.clone());
            self.pools.insert(pool.clone(), (self.started, machine));
        }
        self.pools.get(pool).map(|(number, _)| Actor::Pool(pool.clone(), *number))
    }

    /// Drops a pool's machine, its timer, and the deliveries that wait for it. Its earlier outputs still arrive.
    pub fn forget(&mut self, pool: &PoolId) {
        let Some((number, _)) = self.pools.remove(pool) else { return };
        let actor = Actor::Pool(pool.clone(), number);
        self.armed.remove(&actor);
        for (id, edge) in &mut self.edges {
            if id.1 == actor {
                (edge.outbox, edge.pile) = Default::default();
            }
        }
    }

    /// Returns the batch in flight to a pool's machine: it is handled before the machine stops.
    pub fn under_way_to(&mut self, pool: &PoolId) -> Option<(Actor, Vec<Delivery>)> {
        let number = self.pools.get(pool).map(|(number, _)| *number)?;
        let actor = Actor::Pool(pool.clone(), number);
        let batch = self.edges.get_mut(&(Actor::Registry, actor.clone()))?.in_flight.as_mut()?;
        Some((actor, std::mem::take(batch)))
    }

    /// Runs one turn of a machine: its inputs, then ticks while its deadline has passed.
    pub fn turn(&mut self, now: Now, who: &Actor, batch: Vec<Delivery>) -> Turn {
        match who {
            Actor::Watcher(kind) => match self.watchers.get_mut(kind) {
                Some(machine) => run(machine, now, batch, Delivery::for_watcher, Output::Watcher),
                None => Turn { steps: Vec::new(), deadline: None },
            },
            Actor::Informer => run(&mut self.informer, now, batch, Delivery::for_informer, Output::Informer),
            Actor::Discovery => {
                run(&mut self.discovery, now, batch, Delivery::for_discovery, Output::Discovery)
            }
            Actor::Directory => {
                run(&mut self.directory, now, batch, Delivery::for_directory, Output::Directory)
            }
            Actor::Pool(pool, number) => match self.pools.get_mut(pool) {
                Some((current, machine)) if current == number => {
                    run(machine, now, batch, Delivery::for_pool, Output::Pool)
                }
                Some(_) | None => Turn { steps: Vec::new(), deadline: None },
            },
            Actor::Writer => run(&mut self.writer, now, batch, Delivery::for_writer, Output::Writer),
            Actor::AdminState => {
                run(&mut self.admin_state, now, batch, Delivery::for_admin_state, Output::AdminState)
            }
            Actor::Leader => run(&mut self.leader, now, batch, Delivery::for_leader, Output::Leader),
            Actor::Pauses => run(&mut self.pauses, now, batch, Delivery::for_pauses, Output::Pauses),
            Actor::Events => run(&mut self.emitter, now, batch, Delivery::for_events, Output::Events),
            Actor::Snapshot => run(&mut self.snapshot, now, batch, Delivery::for_snapshot, Output::Snapshot),
            Actor::XdsSource => {
                run(&mut self.xds_source, now, batch, Delivery::for_xds_source, Output::XdsSource)
            }
            Actor::Registry
            | Actor::KubernetesPort
            | Actor::ArmPort
            | Actor::XdsPort
            | Actor::Metrics
            | Actor::Host => Turn { steps: Vec::new(), deadline: None },
        }
    }

    /// Checks the machines' own invariants.
    pub fn check(&self) -> Result<(), String> {
        self.writer.check().map_err(|broken| format!("the writer: {broken}"))?;
        self.admin_state.check().map_err(|broken| format!("the admin state: {broken}"))
    }
}

/// Returns the deliveries that follow from an output.
pub fn routed(output: Output) -> Vec<Delivery> {
    let mut all = Vec::new();
    route(output, &mut |delivery| all.push(delivery));
    all
}

fn run<M: Machine>(
    machine: &mut M,
    now: Now,
    batch: Vec<Delivery>,
    accept: fn(Delivery) -> Option<M::In>,
    wrap: fn(M::Out) -> Output,
) -> Turn {
    let mut steps = Vec::new();
    let mut out = Vec::new();
    for delivery in batch {
        if let Some(input) = accept(delivery.clone()) {
            machine.step(now, input, &mut out);
            steps.push((Some(delivery), out.drain(..).map(wrap).collect()));
        }
    }
    for _ in 0..TICKS_PER_TURN {
        if machine.deadline().is_none_or(|at| at > now) {
            break;
        }
        machine.tick(now, &mut out);
        steps.push((None, out.drain(..).map(wrap).collect()));
    }
    Turn { steps, deadline: machine.deadline().filter(|at| *at != Now::NEVER) }
}
