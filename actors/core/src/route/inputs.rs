//! A machine's input out of a delivery: one function each, shared by the shells and the simulation.

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
    /// What it tells a watcher.
    for_watcher: watch::In, Delivery::Watcher(_, input) => input;
    /// What it tells the Informer.
    for_informer: informer::In, Delivery::Informer(input) => input;
    /// What it tells Discovery.
    for_discovery: discovery::In, Delivery::Discovery(input) => input;
    /// What it tells the Directory.
    for_directory: directory::In, Delivery::Directory(input) => input;
    /// What it tells a pool's machine.
    for_pool: queue::In, Delivery::Pool(_, PoolMessage::In(input)) => input;
    /// What it tells the writer.
    for_writer: writer::In, Delivery::Writer(input) => input;
    /// What it tells the admin state.
    for_admin_state: nodes::In, Delivery::AdminState(input) => input;
    /// What it tells the Leader.
    for_leader: leader::In, Delivery::Leader(input) => input;
    /// What it tells the keeper of pauses.
    for_pauses: pauses::In, Delivery::Pauses(input) => input;
    /// What it tells the event emitter.
    for_events: events::In, Delivery::Events(input) => input;
    /// What it tells the board.
    for_board: snapshot::In, Delivery::Board(input) => input;
    /// What it tells the follower of xDS sources.
    for_xds_source: xds_source::In, Delivery::XdsSource(input) => input;
}
