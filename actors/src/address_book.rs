//! The recipient of each address. The wiring fills the book once, before any machine runs.

use actix::{Message, Recipient};
use model::object::Kind;
use pool_core::route::{Address, Delivery};

/// Deliveries for one actor, in order.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Deliver(pub Vec<Delivery>);

/// Receiving end of an edge. All pools share one end, the registry, so that deliveries to many pools travel as one
/// message.
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
    /// The port to xDS control planes.
    XdsPort,
    /// The port to ARM.
    ArmPort,
    /// The port to Kubernetes.
    KubernetesPort,
    /// The metrics recorder.
    Metrics,
    /// The host, which publishes snapshots and ends the process.
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
            Address::Snapshot => End::Snapshot,
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
    /// The AdminState machine.
    pub admin_state: Recipient<Deliver>,
    /// The Leader.
    pub leader: Recipient<Deliver>,
    /// The Pauses machine.
    pub pauses: Recipient<Deliver>,
    /// The event emitter.
    pub events: Recipient<Deliver>,
    /// The snapshot machine.
    pub snapshot: Recipient<Deliver>,
    /// The xDS source machine.
    pub xds_source: Recipient<Deliver>,
    /// The port to xDS control planes.
    pub xds: Recipient<Deliver>,
    /// The port to ARM.
    pub arm: Recipient<Deliver>,
    /// The port to Kubernetes.
    pub kubernetes: Recipient<Deliver>,
    /// The metrics recorder.
    pub metrics: Recipient<Deliver>,
    /// The host, which publishes snapshots and ends the process.
    pub host: Recipient<Deliver>,
}

impl AddressBook {
    /// Returns the recipient at an end.
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
            End::Snapshot => &self.snapshot,
            End::XdsSource => &self.xds_source,
            End::XdsPort => &self.xds,
            End::ArmPort => &self.arm,
            End::KubernetesPort => &self.kubernetes,
            End::Metrics => &self.metrics,
            End::Host => &self.host,
        }
    }
}
