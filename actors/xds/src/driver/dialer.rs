//! Opens the one connection of a stream for the transport: to the address, with TLS if configured, and with a
//! notification when the peer has sent its first frame.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper_util::rt::TokioIo;
use proxy::Connector;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tonic::codegen::{Service, StdError};

use super::connection::HTTP2;
use super::preface::{ServerPreface, WithPreface};
use crate::bootstrap::Target;

/// A byte stream in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<Io: AsyncRead + AsyncWrite + Send + Unpin> Duplex for Io {}

/// Connects once. Otherwise the transport would reconnect when a connection ends, and the driver would not notice.
pub(super) struct Dialer {
    target: Target,
    connector: Connector,
    tls: Option<Arc<ClientConfig>>,
    preface_sender: Option<oneshot::Sender<ServerPreface>>,
}

impl Dialer {
    /// Returns a dialer for this server, and the receiver of its preface.
    pub fn new(
        target: Target,
        connector: Connector,
        tls: Option<Arc<ClientConfig>>,
    ) -> (Dialer, oneshot::Receiver<ServerPreface>) {
        let (preface_sender, preface) = oneshot::channel();
        (Dialer { target, connector, tls, preface_sender: Some(preface_sender) }, preface)
    }
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<WithPreface<Box<dyn Duplex>>>;
    type Error = StdError;
    type Future = BoxFuture<'static, Result<Self::Response, StdError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StdError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let (target, tls, preface_sender) =
            (self.target.clone(), self.tls.clone(), self.preface_sender.take());
        let connector = self.connector.clone();
        async move {
            let preface_sender = preface_sender.ok_or("the connection has ended")?;
            let io: Box<dyn Duplex> = match target {
                Target::Unix(path) => Box::new(UnixStream::connect(path).await?),
                Target::Tcp { .. } => {
                    let host = address.host().unwrap_or_default().to_owned();
                    let io = connector.connect(address).await?;
                    match tls {
                        None => Box::new(io),
                        Some(config) => secured(config, &host, io).await?,
                    }
                }
            };
            Ok(TokioIo::new(WithPreface::new(io, preface_sender)))
        }
        .boxed()
    }
}

/// Does the TLS handshake with a server of this name.
async fn secured(
    config: Arc<ClientConfig>,
    host: &str,
    io: impl Duplex + 'static,
) -> Result<Box<dyn Duplex>, StdError> {
    // An IPv6 address is in brackets.
    let name = ServerName::try_from(host.trim_start_matches('[').trim_end_matches(']'))?.to_owned();
    let io = TlsConnector::from(config).connect(name, io).await?;
    if io.get_ref().1.alpn_protocol() != Some(HTTP2) {
        return Err("the server did not agree to HTTP/2 in the TLS handshake".into());
    }
    Ok(Box::new(io))
}
