//! Outputs, addresses and deliveries: a variant for each row of the table of machines, and how they belong together.

use super::{ArmMessage, HostMessage, KubernetesCall, PoolMessage};
use coordination::{leader, pauses};
use model::ids::PoolId;
use model::object::Kind;
use model::operator_request::Request;
use model::sample::Metric;
use model::xds::stream::DriverCall;
use pools::{directory, discovery, queue};
use reporting::{events, snapshot};
use sources::{informer, watch, xds_source};

macro_rules! messages {
    (
        machines { $($(#[$doc:meta])* $name:ident: $module:ident::$machine:ident, $field:ident, $input:ident;)+ }
        ports { $($(#[$port_doc:meta])* $port:ident: $to_port:ident($message:ty), $port_field:ident;)+ }
    ) => {
        /// An output, with the machine that sent it.
        #[derive(Clone, Debug)]
        pub enum Output {
            /// The watcher of a kind.
            Watcher(watch::Out),
            $($(#[$doc])* $name($module::Out),)+
            /// A pool.
            Pool(queue::Out),
            /// An operator, through the admin API.
            Operator(Request),
        }

        /// Receiver of a delivery. Deliveries from one sender to one address arrive in order.
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Address {
            /// The watcher of this kind.
            Watcher(Kind),
            $($(#[$doc])* $name,)+
            /// A pool; its machine starts with the first delivery.
            Pool(PoolId),
            $($(#[$port_doc])* $port,)+
        }

        /// A message to one receiver.
        #[derive(Clone, Debug)]
        pub enum Delivery {
            /// The watcher of this kind.
            Watcher(Kind, watch::In),
            $($(#[$doc])* $name($module::In),)+
            /// A pool.
            Pool(PoolId, PoolMessage),
            $($(#[$port_doc])* $to_port($message),)+
        }

        impl Delivery {
            /// Returns the receiver.
            #[must_use]
            pub fn address(&self) -> Address {
                match self {
                    Delivery::Watcher(kind, _) => Address::Watcher(*kind),
                    $(Delivery::$name(_) => Address::$name,)+
                    Delivery::Pool(pool, _) => Address::Pool(pool.clone()),
                    $(Delivery::$to_port(_) => Address::$port,)+
                }
            }

            /// Extracts the input for a watcher.
            #[must_use]
            pub fn for_watcher(self) -> Option<watch::In> {
                if let Delivery::Watcher(_, input) = self { Some(input) } else { None }
            }

            /// Extracts the input for a pool's machine.
            #[must_use]
            pub fn for_pool(self) -> Option<queue::In> {
                if let Delivery::Pool(_, PoolMessage::In(input)) = self { Some(input) } else { None }
            }

            $(
                /// Extracts the input for the machine of this name.
                #[must_use]
                pub fn $input(self) -> Option<$module::In> {
                    if let Delivery::$name(input) = self { Some(input) } else { None }
                }
            )+
        }
    };
}

crate::machines!(messages);
