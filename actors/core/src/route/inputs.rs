//! Extracts a machine's input from a delivery: one function per machine, used by the shells and the simulation.

use super::{Delivery, PoolMessage};
use coordination::{leader, pauses};
use pools::{directory, discovery, queue};
use reporting::{events, snapshot};
use sources::{informer, watch, xds_source};

macro_rules! inputs {
    ($($(#[$doc:meta])* $name:ident: $input:ty, $variant:pat => $value:expr;)+) => {
        impl Delivery {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(self) -> Option<$input> {
                if let $variant = self { Some($value) } else { None }
            })+
        }
    };
}

inputs! {
    /// Input for a watcher.
    for_watcher: watch::In, Delivery::Watcher(_, input) => input;
    /// Input for the Informer.
    for_informer: informer::In, Delivery::Informer(input) => input;
    /// Input for Discovery.
    for_discovery: discovery::In, Delivery::Discovery(input) => input;
    /// Input for the Directory.
    for_directory: directory::In, Delivery::Directory(input) => input;
    /// Input for a pool's machine.
    for_pool: queue::In, Delivery::Pool(_, PoolMessage::In(input)) => input;
    /// Input for the writer.
    for_writer: writer::In, Delivery::Writer(input) => input;
    /// Input for the AdminState machine.
    for_admin_state: nodes::In, Delivery::AdminState(input) => input;
    /// Input for the Leader.
    for_leader: leader::In, Delivery::Leader(input) => input;
    /// Input for the Pauses machine.
    for_pauses: pauses::In, Delivery::Pauses(input) => input;
    /// Input for the event emitter.
    for_events: events::In, Delivery::Events(input) => input;
    /// Input for the snapshot machine.
    for_snapshot: snapshot::In, Delivery::Snapshot(input) => input;
    /// Input for the xDS source machine.
    for_xds_source: xds_source::In, Delivery::XdsSource(input) => input;
}
