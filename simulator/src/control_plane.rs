//! A control plane for tests and simulations: real ADS (state of the world) on loopback, with scripted behaviour and
//! faults.
//!
//! Owns the listener, the streams and the journal of requests. The model ([`simulator_models::control_plane`]) owns the
//! resources and decides about responses. The control plane does not check requests: that is left to readers of the
//! journal. One owner task holds the state (`plane`); `stream` converts to protobuf, and `serving` transports bytes.
//!
//! It answers the first request and requests with new names, pushes changes, and does not answer ACKs and NACKs. A
//! response of clusters has all subscribed ones that exist; a response of endpoints only those that are new on its
//! stream, so that removed endpoints are omitted silently. Per-resource errors (TP3) are sent once per stream and
//! change. There are no wildcards: a request without names subscribes to nothing. A request of an unknown type is
//! recorded and not answered; a request that cannot be decoded ends its stream with INVALID_ARGUMENT.

mod journal;
mod plane;
mod port;
mod resources;
mod serving;
mod stream;
mod stream_behaviour;
#[cfg(test)]
mod tests;
mod tls;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::google::protobuf::Any;
use prost::bytes::Bytes;
use tokio_rustls::TlsAcceptor;
pub use tonic::{Code, Status};

use crate::clock::Clock;
use crate::owner::Owner;
pub use envoy_types::pb::envoy::config::core::v3::HealthStatus;
pub use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
pub use journal::{Client, RecordedRequest, Refusal, Streams, WaitTimeout};
use plane::Plane;
use port::{Listener, Port};
pub use resources::{Bad, Endpoint, Kind, Locality, cluster, endpoints, packed};
pub use stream_behaviour::{Ending, StreamBehaviour};
pub use tls::Identity;

/// Time limit of [`ControlPlane::wait_until`] and the other waits.
const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// The handle of a running control plane; dropping its last clone ends the listener and all streams.
#[derive(Clone)]
pub struct ControlPlane {
    host: Arc<Host>,
}

/// The state that all clones of a handle share.
struct Host {
    plane: Owner<Plane>,
    port: Port,
    tls: Option<TlsAcceptor>,
}

impl Drop for Host {
    fn drop(&mut self) {
        self.plane.send(|plane, _| plane.close());
    }
}

/// Start, stop, and connections.
impl ControlPlane {
    /// Starts the control plane on the current runtime and a free port of the loopback interface, without TLS.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start() -> io::Result<Self> {
        Self::start_with(None).await
    }

    /// Starts the control plane with TLS: HTTP/2 by ALPN, and client certificates if the identity has roots for them.
    ///
    /// # Errors
    /// The PEMs are no identity ([`io::ErrorKind::InvalidInput`]), or no port is free.
    pub async fn start_tls(identity: &Identity) -> io::Result<Self> {
        Self::start_with(Some(identity.acceptor()?)).await
    }

    async fn start_with(tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let port = Port::reserve()?;
        let listener = port.listen()?;
        let plane = Owner::start(Plane::new(), Clock::start());
        let started = Self { host: Arc::new(Host { plane, port, tls }) };
        started.listen(listener).await;
        Ok(started)
    }

    async fn listen(&self, listener: Listener) {
        let accepting = serving::accept(listener, self.host.plane.clone(), self.host.tls.clone());
        self.host.plane.ask(move |plane, _| plane.listen(tokio::spawn(accepting))).await;
    }

    /// Returns the address at which the control plane listens, also after [`ControlPlane::restart`].
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.host.port.address
    }

    /// Closes the listener and all connections; afterwards connections are refused.
    pub async fn stop(&self) {
        let (listening, mut connections) = self.host.plane.ask(|plane, _| plane.stop()).await;
        if let Some(listening) = listening {
            listening.abort();
            // The task was told to end, so its result does not matter.
            drop(listening.await);
        }
        connections.shutdown().await;
        self.host.plane.ask(|plane, _| plane.forget_streams()).await;
    }

    /// Restarts the control plane on the same address: versions and nonces begin again; resources, errors, behaviour
    /// and the journal are kept. Call [`ControlPlane::clear`] first to remove the resources too.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn restart(&self) -> io::Result<()> {
        self.stop().await;
        let listener = self.host.port.listen()?;
        self.host.plane.ask(|plane, _| plane.forget_versions()).await;
        self.listen(listener).await;
        Ok(())
    }

    /// Opens a connection in memory and returns the client's end, for tests on a paused clock. It never has TLS.
    #[cfg(test)]
    async fn dial(&self) -> io::Result<tokio::io::DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let owner = self.host.plane.clone();
        let taken = self.host.plane.ask(move |plane, _| plane.connect(ours, None, owner)).await;
        if taken { Ok(theirs) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
    }
}

/// The served resources and errors. Each change is pushed immediately to the streams that subscribe to its name.
impl ControlPlane {
    /// Sets a resource, which replaces an earlier one or an error.
    pub async fn set(&self, kind: Kind, name: &str, resource: Any) {
        self.set_all(kind, [(name.to_owned(), resource)]).await;
    }

    /// Sets several resources in one change, and so in one response to each stream.
    pub async fn set_all(&self, kind: Kind, resources: impl IntoIterator<Item = (String, Any)>) {
        let resources: Vec<(String, Any)> = resources.into_iter().collect();
        self.change(kind, move |plane| plane.catalogue.set(kind, resources)).await;
    }

    /// Sets a resource that a client must reject.
    pub async fn set_bad(&self, kind: Kind, name: &str, bad: Bad) {
        self.set(kind, name, bad.resource(kind, name)).await;
    }

    /// Removes a resource and its error. Streams get the removal only as a response of clusters without it.
    pub async fn remove(&self, kind: Kind, name: &str) {
        let name = name.to_owned();
        self.change(kind, move |plane| plane.catalogue.remove(kind, &name)).await;
    }

    /// Sends an error in `resource_errors` (TP3) in place of the resource, once per stream.
    pub async fn fail(&self, kind: Kind, name: &str, code: Code, message: &str) {
        let (name, refusal) = (name.to_owned(), Refusal { code, message: message.to_owned() });
        self.change(kind, move |plane| plane.catalogue.fail(kind, name, refusal)).await;
    }

    /// Ends an error: the hidden resource, if there is one, is sent again.
    pub async fn forget_error(&self, kind: Kind, name: &str) {
        let name = name.to_owned();
        self.change(kind, move |plane| plane.catalogue.forget_error(kind, &name)).await;
    }

    /// Removes all resources and errors.
    pub async fn clear(&self) {
        for kind in Kind::ALL {
            self.change(kind, move |plane| plane.catalogue.clear(kind)).await;
        }
    }

    async fn change(&self, kind: Kind, change: impl FnOnce(&mut Plane) + Send + 'static) {
        let change = move |plane: &mut Plane, _| {
            change(plane);
            plane.push(kind);
        };
        self.host.plane.ask(change).await;
    }
}

/// The behaviour of streams, and single faults.
impl ControlPlane {
    /// Sets the behaviour of streams. Pending responses of a silent server are sent when it answers again.
    pub async fn behave(&self, behaviour: StreamBehaviour) {
        self.host.plane.ask(move |plane, _| plane.behave(behaviour)).await;
    }

    /// Sets whether each resource is wrapped in a `Resource` with its name and version.
    pub async fn wrap(&self, wraps: bool) {
        self.host.plane.ask(move |plane, _| plane.wraps = wraps).await;
    }

    /// Sets whether each NACK is answered immediately with the rejected resources under a new nonce.
    pub async fn repeat_on_nack(&self, repeats: bool) {
        self.host.plane.ask(move |plane, _| plane.repeats = repeats).await;
    }

    /// Sets whether each ACK is answered immediately with the accepted resources under a new nonce.
    pub async fn repeat_on_ack(&self, repeats: bool) {
        self.host.plane.ask(move |plane, _| plane.repeats_accepted = repeats).await;
    }

    /// Sets whether a first request with the current version gets no response, as with snapshot caches.
    pub async fn trust_versions(&self, trusts: bool) {
        self.host.plane.ask(move |plane, _| plane.trusts = trusts).await;
    }

    /// Sets whether new streams send their response headers with the first message, as servers in Go do.
    pub async fn hold_headers(&self, holds: bool) {
        self.host.plane.ask(move |plane, _| plane.holds = holds).await;
    }

    /// Freezes all connections, open and new ones: they stay open, but nothing is read, written or answered, pings included.
    pub async fn freeze(&self, frozen: bool) {
        self.host.plane.ask(move |plane, _| plane.freeze(frozen)).await;
    }

    /// Ends all open streams; returns their number.
    pub async fn cut(&self, ending: Ending) -> usize {
        self.host.plane.ask(move |plane, _| plane.cut(&ending)).await
    }

    /// Sends these bytes as one message on every open stream; returns the number of streams.
    pub async fn send_bytes(&self, bytes: impl Into<Bytes>) -> usize {
        let bytes = bytes.into();
        self.host.plane.ask(move |plane, _| plane.send_bytes(&bytes)).await
    }

    /// Sends a response on every open stream, with a version and a nonce if it has none; returns the number of streams.
    /// The configured resources do not change.
    pub async fn send(&self, response: DiscoveryResponse) -> usize {
        self.host.plane.ask(move |plane, _| plane.send_to_all(&response)).await
    }
}

/// The recorded requests.
impl ControlPlane {
    /// Returns the time on the journal's clock, in microseconds since the first start.
    pub async fn now_us(&self) -> u64 {
        self.host.plane.ask(|_, now_us| now_us).await
    }

    /// Returns all requests so far, across restarts, oldest first.
    pub async fn journal(&self) -> Vec<RecordedRequest> {
        self.host.plane.ask(|plane, _| plane.journal.clone()).await
    }

    /// Returns the number of requests of a kind so far.
    pub async fn requests(&self, kind: Kind) -> usize {
        let of_kind = move |request: &&RecordedRequest| request.kind() == Some(kind);
        self.host.plane.ask(move |plane, _| plane.journal.iter().filter(of_kind).count()).await
    }

    /// Returns the counts of connections and streams.
    pub async fn streams(&self) -> Streams {
        self.host.plane.ask(|plane, _| plane.stream_counts()).await
    }

    /// Waits at most 20 s until the journal satisfies the condition, and returns it.
    ///
    /// # Errors
    /// The time limit was reached; the error lists the journal.
    pub async fn wait_until(
        &self,
        awaited: impl Fn(&[RecordedRequest]) -> bool,
    ) -> Result<Vec<RecordedRequest>, WaitTimeout> {
        self.wait(async || {
            let journal = self.journal().await;
            awaited(&journal).then_some(journal)
        })
        .await
    }

    /// Waits at most 20 s until connections and streams satisfy the condition, and returns them.
    ///
    /// # Errors
    /// The time limit was reached; the error lists the journal.
    pub async fn wait_for_streams(&self, awaited: impl Fn(&Streams) -> bool) -> Result<Streams, WaitTimeout> {
        self.wait(async || {
            let streams = self.streams().await;
            awaited(&streams).then_some(streams)
        })
        .await
    }

    async fn wait<T>(&self, probe: impl AsyncFn() -> Option<T>) -> Result<T, WaitTimeout> {
        let mut moved = self.host.plane.revision();
        let came = async {
            loop {
                moved.mark_unchanged();
                if let Some(found) = probe().await {
                    return found;
                }
                moved.changed().await.expect("the owner lives as long as its handle");
            }
        };
        if let Ok(found) = tokio::time::timeout(TEST_TIMEOUT, came).await {
            return Ok(found);
        }
        Err(WaitTimeout {
            timeout: TEST_TIMEOUT,
            streams: self.streams().await,
            journal: self.journal().await,
        })
    }
}
