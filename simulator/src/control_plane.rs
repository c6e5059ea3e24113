//! A control plane for tests and simulations: real ADS (state of the world) on loopback that does what a script says,
//! well or badly.
//!
//! Owns the listener, the streams and the journal of what clients asked; what is served, and what is due to whom, is the
//! model's ([`simulator_models::control_plane`]). It does not judge clients: whether a client asked the right thing is
//! for the reader of the journal. One owner task holds the state (`plane`); `stream` puts the model's words into
//! protobuf, `serving` puts bytes on the wire.
//!
//! As a server may, it answers a first request and one with new names, pushes changes, and leaves an ACK or a NACK
//! without an answer. A response of clusters names all subscribed ones that exist; one of endpoints only what is new
//! on its stream, so that removed endpoints are silently gone. Errors of TP3 are said once per stream and change.
//! There are no wildcards: a request without names subscribes to nothing. A request of a type that it does not have is
//! journaled and not answered; one that cannot be decoded ends its stream with INVALID_ARGUMENT.

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
use tokio::io::DuplexStream;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
pub use tonic::{Code, Status};

use crate::clock::Clock;
use crate::owner::Owner;
pub use envoy_types::pb::envoy::config::core::v3::HealthStatus;
pub use envoy_types::pb::envoy::service::discovery::v3::DiscoveryResponse;
pub use journal::{Client, NeverCame, RecordedRequest, Refusal, Streams};
use plane::Plane;
use port::Port;
pub use resources::{Bad, Endpoint, Kind, Locality, cluster, endpoints, packed};
pub use stream_behaviour::{Ending, StreamBehaviour};
pub use tls::Identity;

/// Time for which [`ControlPlane::wait_until`] and its like wait.
const PATIENCE: Duration = Duration::from_secs(20);
/// Number of bytes that a connection in memory holds in each direction.
const PIPE: usize = 1 << 16;

/// The handle of a running control plane; the listener and all streams end with the last clone of it.
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

/// Its life: starting, stopping, and connections.
impl ControlPlane {
    /// Starts it on the current runtime, without TLS; port 0 takes a free one.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn start(address: SocketAddr) -> io::Result<Self> {
        Self::start_with(address, None).await
    }

    /// Starts it with TLS: HTTP/2 by ALPN, and clients' certificates if the identity has roots for them.
    ///
    /// # Errors
    /// The PEMs are no identity ([`io::ErrorKind::InvalidInput`]), or the address cannot be listened on.
    pub async fn start_tls(address: SocketAddr, identity: &Identity) -> io::Result<Self> {
        Self::start_with(address, Some(identity.acceptor()?)).await
    }

    async fn start_with(address: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let port = Port::reserve(address)?;
        let listener = port.listen()?;
        let plane = Owner::start(Plane::new(), Clock::start());
        let started = Self { host: Arc::new(Host { plane, port, tls }) };
        started.listen(listener).await;
        Ok(started)
    }

    async fn listen(&self, listener: TcpListener) {
        let accepting = serving::accept(listener, self.host.plane.clone(), self.host.tls.clone());
        self.host.plane.ask(move |plane, _| plane.listen(tokio::spawn(accepting))).await;
    }

    /// Returns the address at which the control plane listens, also after [`ControlPlane::restart`].
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.host.port.address
    }

    /// Closes the listener and cuts all connections; afterwards the port is refused.
    pub async fn stop(&self) {
        let (listening, mut connections) = self.host.plane.ask(|plane, _| plane.stop()).await;
        if let Some(listening) = listening {
            listening.abort();
            // It was told to end, and so its result says nothing.
            drop(listening.await);
        }
        connections.shutdown().await;
        self.host.plane.ask(|plane, _| plane.forget_streams()).await;
    }

    /// Stops it, if it runs, and starts it again on the same address: versions and nonces begin again, resources, errors,
    /// manners and the journal are kept. [`ControlPlane::clear`] before it makes it forget the resources too.
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

    /// Opens a connection in memory and gives the client's end of it, for tests on a paused clock. It never has TLS.
    ///
    /// # Errors
    /// It is stopped ([`io::ErrorKind::ConnectionRefused`]).
    pub async fn dial(&self) -> io::Result<DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(PIPE);
        let owner = self.host.plane.clone();
        let taken = self.host.plane.ask(move |plane, _| plane.connect(ours, None, owner)).await;
        if taken { Ok(theirs) } else { Err(io::ErrorKind::ConnectionRefused.into()) }
    }
}

/// The served resources and errors. Each change is pushed at once to the streams that have subscribed to its name.
impl ControlPlane {
    /// Configures a resource, in place of an earlier one or an error.
    pub async fn set(&self, kind: Kind, name: &str, resource: Any) {
        self.set_all(kind, [(name.to_owned(), resource)]).await;
    }

    /// Configures several resources by one change, and so by one response to each stream.
    pub async fn set_all(&self, kind: Kind, resources: impl IntoIterator<Item = (String, Any)>) {
        let resources: Vec<(String, Any)> = resources.into_iter().collect();
        self.change(kind, move |plane| plane.catalogue.set(kind, resources)).await;
    }

    /// Configures a resource that a client must refuse.
    pub async fn set_bad(&self, kind: Kind, name: &str, bad: Bad) {
        self.set(kind, name, bad.resource(kind, name)).await;
    }

    /// Removes a resource and its error. Streams hear of it only in a response of clusters that no longer names it.
    pub async fn remove(&self, kind: Kind, name: &str) {
        let name = name.to_owned();
        self.change(kind, move |plane| plane.catalogue.remove(kind, &name)).await;
    }

    /// Reports in `resource_errors` that a resource is not available (TP3), in place of the resource, once per stream.
    pub async fn fail(&self, kind: Kind, name: &str, code: Code, message: &str) {
        let (name, refusal) = (name.to_owned(), Refusal { code, message: message.to_owned() });
        self.change(kind, move |plane| plane.catalogue.fail(kind, name, refusal)).await;
    }

    /// Ends an error: the resource that it hid, if there is one, is sent again.
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

/// The behaviour of streams: lasting behaviour, and single faults.
impl ControlPlane {
    /// Deals with streams in this manner from now on. What a silent one owes is sent when it answers again.
    pub async fn behave(&self, behaviour: StreamBehaviour) {
        self.host.plane.ask(move |plane, _| plane.behave(behaviour)).await;
    }

    /// Wraps each resource in a `Resource` with its name and version, or no longer.
    pub async fn wrap(&self, wraps: bool) {
        self.host.plane.ask(move |plane, _| plane.wraps = wraps).await;
    }

    /// Answers each NACK at once with what was refused, under a new nonce, or no longer.
    pub async fn repeat_on_nack(&self, repeats: bool) {
        self.host.plane.ask(move |plane, _| plane.repeats = repeats).await;
    }

    /// Sets whether each ACK is answered at once with the accepted resources under a new nonce.
    pub async fn repeat_on_ack(&self, repeats: bool) {
        self.host.plane.ask(move |plane, _| plane.repeats_accepted = repeats).await;
    }

    /// Takes a first request with the current version as proof that its sender knows all, as snapshot caches do, or no
    /// longer.
    pub async fn trust_versions(&self, trusts: bool) {
        self.host.plane.ask(move |plane, _| plane.trusts = trusts).await;
    }

    /// Sends the response headers of streams opened from now on with their first message, as servers in Go do, or at once.
    pub async fn hold_headers(&self, holds: bool) {
        self.host.plane.ask(move |plane, _| plane.holds = holds).await;
    }

    /// Freezes all connections, open and new ones: they stay open, but nothing is read, written or answered, pings included.
    pub async fn freeze(&self, frozen: bool) {
        self.host.plane.ask(move |plane, _| plane.freeze(frozen)).await;
    }

    /// Ends all open streams now; answers with their number.
    pub async fn cut(&self, ending: Ending) -> usize {
        self.host.plane.ask(move |plane, _| plane.cut(&ending)).await
    }

    /// Sends these bytes as one message on every open stream; answers with the number of streams.
    pub async fn send_bytes(&self, bytes: impl Into<Bytes>) -> usize {
        let bytes = bytes.into();
        self.host.plane.ask(move |plane, _| plane.send_bytes(&bytes)).await
    }

    /// Sends a response as it stands on every open stream, with a version and a nonce where it has none; answers with the
    /// number of streams. It changes nothing in what is configured.
    pub async fn send(&self, response: DiscoveryResponse) -> usize {
        self.host.plane.ask(move |plane, _| plane.send_to_all(&response)).await
    }
}

/// The recorded requests.
impl ControlPlane {
    /// Returns the time on the clock of the journal, in microseconds since it was first started.
    pub async fn now_us(&self) -> u64 {
        self.host.plane.ask(|_, now_us| now_us).await
    }

    /// Returns all requests so far, over restarts too, oldest first.
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

    /// Waits until the journal is as asked, and gives it; never longer than 20 s.
    ///
    /// # Errors
    /// It never was; the error tells the journal in words.
    pub async fn wait_until(
        &self,
        awaited: impl Fn(&[RecordedRequest]) -> bool,
    ) -> Result<Vec<RecordedRequest>, NeverCame> {
        self.wait(async || {
            let journal = self.journal().await;
            awaited(&journal).then_some(journal)
        })
        .await
    }

    /// Waits until connections and streams are as asked, and gives them; never longer than 20 s.
    ///
    /// # Errors
    /// They never were; the error tells the journal in words.
    pub async fn wait_for_streams(&self, awaited: impl Fn(&Streams) -> bool) -> Result<Streams, NeverCame> {
        self.wait(async || {
            let streams = self.streams().await;
            awaited(&streams).then_some(streams)
        })
        .await
    }

    async fn wait<T>(&self, probe: impl AsyncFn() -> Option<T>) -> Result<T, NeverCame> {
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
        if let Ok(found) = tokio::time::timeout(PATIENCE, came).await {
            return Ok(found);
        }
        Err(NeverCame { patience: PATIENCE, streams: self.streams().await, journal: self.journal().await })
    }
}
