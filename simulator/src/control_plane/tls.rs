//! TLS settings of the simulated xDS control plane, in PEM.

use std::error::Error;
use std::io;
use std::sync::Arc;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

/// Server certificate of the control plane, and the CAs for client certificates. All values are PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Server certificate, followed by intermediates.
    pub certificates: String,
    /// Private key of the server certificate.
    pub key: String,
    /// CA certificates for clients; if set, a client without a certificate is rejected.
    pub client_roots: Option<String>,
}

impl Identity {
    pub(super) fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(unusable)?;
        let builder = match &self.client_roots {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for root in certificates(pem)? {
                    roots.add(root).map_err(unusable)?;
                }
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(unusable)?)
            }
        };
        let key = PrivateKeyDer::from_pem_slice(self.key.as_bytes()).map_err(unusable)?;
        let mut config =
            builder.with_single_cert(certificates(&self.certificates)?, key).map_err(unusable)?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

fn certificates(pem: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(unusable)
}

fn unusable(source: impl Error + Send + Sync + 'static) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, source)
}
