//! Outgoing connections through proxies: the choice of the proxy for a target, by the variables that curl, Go and
//! gRPC read ([`Proxies`]), and the connection through it ([`Connector`]). The clients of the API server and of xDS
//! use both; ARM's client opens its own connections and uses [`Proxies`] alone.

mod connector;
mod environment;
mod no_proxy;
mod stream;
mod tunnel;
mod url;

pub use connector::{ConnectError, Connector};
pub use environment::Proxies;
pub use stream::Stream;
pub use url::{Proxy, Unusable};
