//! Opens connections, directly or through a proxy.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use model::redact::chain;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower_service::Service;

use crate::stream::{Duplex, Stream};
use crate::tunnel;
use crate::url::{Kind, Proxy, bare_host};

/// The interval of TCP keep-alive probes. Azure drops idle connections after 4 minutes.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

type Source = Box<dyn std::error::Error + Send + Sync>;

/// Reasons why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The target cannot be reached directly.
    #[error(transparent)]
    Target(Source),
    /// The proxy cannot be reached.
    #[error("failed to reach the proxy {proxy}")]
    Proxy {
        /// The address of the proxy, and the variable or field that names it.
        proxy: String,
        /// The cause.
        source: Source,
    },
    /// The proxy did not open a tunnel.
    #[error("the proxy {proxy} did not connect to {target}")]
    Tunnel {
        /// The address of the proxy, and the variable or field that names it.
        proxy: String,
        /// Host and port of the target.
        target: String,
        /// The cause.
        source: Source,
    },
}

/// Opens connections, either all of them through one proxy or all of them directly.
#[derive(Clone)]
pub struct Connector {
    tcp: HttpConnector,
    proxy: Option<Arc<Proxy>>,
    /// For a proxy that requires TLS.
    tls: Option<TlsConnector>,
}

impl Connector {
    /// Returns a connector through this proxy, or directly to targets. All addresses of a host name share the TCP
    /// connect timeout `within`. The caller bounds the time of TLS and of the tunnel.
    pub fn new(proxy: Option<Proxy>, within: Duration) -> Connector {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        tcp.set_connect_timeout(Some(within));
        let tls = proxy.as_ref().filter(|proxy| proxy.kind == Kind::Https).map(|_| tls());
        Connector { tcp, proxy: proxy.map(Arc::new), tls }
    }

    /// Connects to the host and port of this address, without TLS to the target.
    ///
    /// # Errors
    /// The target or the proxy cannot be reached, or the proxy refuses.
    pub async fn connect(mut self, target: Uri) -> Result<Stream, ConnectError> {
        let Some(proxy) = self.proxy.take() else {
            let io = self.tcp.call(target).await.map_err(|error| ConnectError::Target(error.into()))?;
            return Ok(Stream(Box::new(io.into_inner())));
        };
        let shown = proxy.to_string();
        let unreachable = |source| ConnectError::Proxy { proxy: shown.clone(), source };
        let io = self.tcp.call(proxy.address.clone()).await.map_err(|error| unreachable(error.into()))?;
        let mut io: Box<dyn Duplex> = match &self.tls {
            None => Box::new(io.into_inner()),
            Some(tls) => secured(tls, &proxy, io.into_inner()).await.map_err(unreachable)?,
        };
        let host = target.host().unwrap_or_default();
        let port = target.port_u16().unwrap_or(if target.scheme_str() == Some("http") { 80 } else { 443 });
        let tunneled = match proxy.kind {
            Kind::Http | Kind::Https => tunnel::connect(&mut io, (host, port), proxy.login()).await,
            Kind::Socks5 => tunnel::socks5(&mut io, (host, port), proxy.login()).await,
        };
        tunneled.map_err(|error| ConnectError::Tunnel {
            proxy: proxy.to_string(),
            target: format!("{host}:{port}"),
            source: error.into(),
        })?;
        Ok(Stream(io))
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<TokioIo<Stream>, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        let connector = self.clone();
        Box::pin(async move { Ok(TokioIo::new(connector.connect(target).await?)) })
    }
}

/// TLS with the certificate authorities that the system trusts. Without any, each handshake fails with an error that
/// names the proxy.
fn tls() -> TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("the provider has TLS 1.2 and 1.3").with_root_certificates(roots);
    TlsConnector::from(Arc::new(config.with_no_client_auth()))
}

async fn secured(tls: &TlsConnector, proxy: &Proxy, io: TcpStream) -> Result<Box<dyn Duplex>, Source> {
    let host = bare_host(proxy.address.host().unwrap_or_default());
    let name = ServerName::try_from(host.to_owned())?;
    let io = tls.connect(name, io).await;
    let io = io.map_err(|error| {
        format!("{}; the system's certificate store or SSL_CERT_FILE must trust the proxy", chain(&error))
    })?;
    Ok(Box::new(io))
}
