//! The recipient of each address. The wiring fills the book once, before any machine runs.

use actix::{Message, Recipient};
use model::object::Kind;
use pool_core::route::{Address, Delivery};

/// Deliveries for one actor, in order.
#[derive(Message, Debug)]
#[rtype(result = "()")]
pub struct Deliver(pub Vec<Delivery>);

macro_rules! address_book {
    (
        machines { $($(#[$doc:meta])* $name:ident: $module:ident::$machine:ident, $field:ident, $input:ident;)+ }
        ports { $($(#[$port_doc:meta])* $port:ident: $to_port:ident($message:ty), $port_field:ident;)+ }
    ) => {
        /// Receiving end of an edge. All pools share one end, the registry, so that deliveries to many pools travel as
        /// one message.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum End {
            /// The watcher of a kind.
            Watcher(Kind),
            $($(#[$doc])* $name,)+
            /// The registry of pools.
            Pools,
            $($(#[$port_doc])* $port,)+
        }

        impl From<&Address> for End {
            fn from(address: &Address) -> End {
                match address {
                    Address::Watcher(kind) => End::Watcher(*kind),
                    $(Address::$name => End::$name,)+
                    Address::Pool(_) => End::Pools,
                    $(Address::$port => End::$port,)+
                }
            }
        }

        impl End {
            /// Returns the name of the actor's mailbox in metrics and health checks: one of [`MAILBOXES`].
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    End::Watcher(Kind::Services) => "services_watcher",
                    End::Watcher(Kind::EndpointSlices) => "endpointslices_watcher",
                    End::Watcher(Kind::Nodes) => "nodes_watcher",
                    End::Watcher(Kind::Preemptions) => "preemptions_watcher",
                    $(End::$name => stringify!($field),)+
                    End::Pools => "pools",
                    $(End::$port => stringify!($port_field),)+
                }
            }
        }

        /// Name of the mailboxes of all pools, which count as one.
        pub(crate) const POOL_MAILBOX: &str = "pool";

        /// Every mailbox, by its actor.
        pub const MAILBOXES: &[&str] = &[
            "services_watcher",
            "endpointslices_watcher",
            "nodes_watcher",
            "preemptions_watcher",
            $(stringify!($field),)+
            "pools",
            POOL_MAILBOX,
            $(stringify!($port_field),)+
        ];

        /// The recipients of all addresses.
        #[derive(Clone)]
        pub struct AddressBook {
            /// The watchers, in the order of [`Kind::ALL`].
            pub watchers: [Recipient<Deliver>; 4],
            $($(#[$doc])* pub $field: Recipient<Deliver>,)+
            /// The registry of pools.
            pub pools: Recipient<Deliver>,
            $($(#[$port_doc])* pub $port_field: Recipient<Deliver>,)+
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
                    $(End::$name => &self.$field,)+
                    End::Pools => &self.pools,
                    $(End::$port => &self.$port_field,)+
                }
            }

            /// Creates a book with the same recipient at every end.
            #[cfg(test)]
            pub(crate) fn all_to(one: &Recipient<Deliver>) -> AddressBook {
                AddressBook {
                    watchers: Kind::ALL.map(|_| one.clone()),
                    $($field: one.clone(),)+
                    pools: one.clone(),
                    $($port_field: one.clone(),)+
                }
            }
        }
    };
}

pool_core::machines!(address_book);
