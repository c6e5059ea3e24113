//! Who stands behind each address. The wiring fills it once, before any machine runs.

use actix::{Message, Recipient};
use model::object::Kind;
use pool_core::route::{Address, Delivery};

/// A run of deliveries for one actor, in order.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Deliver(pub Vec<Delivery>);

/// Where an edge ends. All pools stand behind one end, the registry's, so that what goes to many pools at once
/// travels as one message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// The watcher of a kind.
    Watcher(Kind),
    /// The Informer.
    Informer,
    /// Discovery.
    Discovery,
    /// The Directory.
    Directory,
    /// The registry of pools.
    Pools,
    /// The writer.
    Writer,
    /// The admin state.
    AdminState,
    /// The Leader.
    Leader,
    /// The keeper of pauses.
    Pauses,
    /// The event emitter.
    Events,
    /// The board.
    Board,
    /// The follower of xDS sources.
    XdsSource,
    /// The port to xDS control planes.
    XdsPort,
    /// The port to ARM.
    ArmPort,
    /// The port to Kubernetes.
    KubernetesPort,
    /// The metrics recorder.
    Metrics,
    /// The published snapshot and the process's life.
    Host,
}

impl From<&Address> for End {
    fn from(address: &Address) -> End {
        match address {
            Address::Watcher(kind) => End::Watcher(*kind),
            Address::Informer => End::Informer,
            Address::Discovery => End::Discovery,
            Address::Directory => End::Directory,
            Address::Pool(_) => End::Pools,
            Address::Writer => End::Writer,
            Address::AdminState => End::AdminState,
            Address::Leader => End::Leader,
            Address::Pauses => End::Pauses,
            Address::Events => End::Events,
            Address::Board => End::Board,
            Address::XdsSource => End::XdsSource,
            Address::XdsPort => End::XdsPort,
            Address::ArmPort => End::ArmPort,
            Address::KubernetesPort => End::KubernetesPort,
            Address::Metrics => End::Metrics,
            Address::Host => End::Host,
        }
    }
}

/// The recipients of all addresses.
#[derive(Clone)]
pub struct AddressBook {
    /// The watchers, in the order of [`Kind::ALL`].
    pub watchers: [Recipient<Deliver>; 4],
    /// The Informer.
    pub informer: Recipient<Deliver>,
    /// Discovery.
    pub discovery: Recipient<Deliver>,
    /// The Directory.
    pub directory: Recipient<Deliver>,
    /// The registry of pools.
    pub pools: Recipient<Deliver>,
    /// The writer.
    pub writer: Recipient<Deliver>,
    /// The admin state.
    pub admin_state: Recipient<Deliver>,
    /// The Leader.
    pub leader: Recipient<Deliver>,
    /// The keeper of pauses.
    pub pauses: Recipient<Deliver>,
    /// The event emitter.
    pub events: Recipient<Deliver>,
    /// The board.
    pub board: Recipient<Deliver>,
    /// The follower of xDS sources.
    pub xds_source: Recipient<Deliver>,
    /// The port to xDS control planes.
    pub xds: Recipient<Deliver>,
    /// The port to ARM.
    pub arm: Recipient<Deliver>,
    /// The port to Kubernetes.
    pub kubernetes: Recipient<Deliver>,
    /// The metrics recorder.
    pub metrics: Recipient<Deliver>,
    /// The published snapshot and the process's life.
    pub host: Recipient<Deliver>,
}

impl AddressBook {
    /// Who stands at an end.
    #[must_use]
    pub fn recipient(&self, end: End) -> &Recipient<Deliver> {
        match end {
            End::Watcher(Kind::Services) => &self.watchers[0],
            End::Watcher(Kind::EndpointSlices) => &self.watchers[1],
            End::Watcher(Kind::Nodes) => &self.watchers[2],
            End::Watcher(Kind::Preemptions) => &self.watchers[3],
            End::Informer => &self.informer,
            End::Discovery => &self.discovery,
            End::Directory => &self.directory,
            End::Pools => &self.pools,
            End::Writer => &self.writer,
            End::AdminState => &self.admin_state,
            End::Leader => &self.leader,
            End::Pauses => &self.pauses,
            End::Events => &self.events,
            End::Board => &self.board,
            End::XdsSource => &self.xds_source,
            End::XdsPort => &self.xds,
            End::ArmPort => &self.arm,
            End::KubernetesPort => &self.kubernetes,
            End::Metrics => &self.metrics,
            End::Host => &self.host,
        }
    }
}
