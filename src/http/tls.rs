//! The certificate of the admin API with TLS (H2). It is read at startup and again every 10 s, because the kubelet
//! replaces the files when the Secret changes. [`Renewal`] decides whether the new files are used. Messages never
//! contain any part of a key.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::aws_lc_rs::digest::{Context, SHA256};
use actors::recorder;
use anyhow::Context as _;
use arc_swap::ArcSwap;
use jiff::Timestamp;
use pool_core::certificate::{CertificateRead, Decision, Fingerprint, Renewal};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::parse_x509_certificate;

/// Interval between reads of both files.
const READ_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Maximum reads of both files in one load, while they change.
const MAX_READS: usize = 3;

/// Paths of the certificate and its key.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// The certificate, and those of the authorities below the root.
    pub(super) certificate: PathBuf,
    /// The private key.
    pub(super) key: PathBuf,
}

/// A file that cannot be used, and the remedy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {} {reason}", .path.display())]
struct Fault {
    /// The key of the configuration that names the file.
    key: &'static str,
    path: PathBuf,
    reason: String,
    remedy: &'static str,
}

/// Content of both files.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// A certificate with its key.
struct Pair {
    certified: Arc<CertifiedKey>,
    /// End of its validity, if it can be read.
    expires: Option<Timestamp>,
}

/// The certificate in use. Listeners read it at each handshake; a renewal replaces it.
struct CurrentCertificate(ArcSwap<CertifiedKey>);

impl fmt::Debug for CurrentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// The certificate in use, and its files.
pub(super) struct Certificate {
    files: Files,
    provider: Arc<CryptoProvider>,
    current: Arc<CurrentCertificate>,
    expires: Option<Timestamp>,
    renewal: Renewal,
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// A file cannot be used, or the key belongs to another certificate.
    pub(super) fn read(files: Files) -> anyhow::Result<Certificate> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let CertificateRead { fingerprint, pair } = files.load(&provider);
        let pair = pair.map_err(|fault| anyhow::anyhow!("{fault}; {}", fault.remedy))?;
        let current = Arc::new(CurrentCertificate(ArcSwap::new(pair.certified)));
        Ok(Certificate {
            files,
            provider,
            current,
            expires: pair.expires,
            renewal: Renewal::new(fingerprint),
        })
    }

    /// Returns the TLS configuration: versions 1.2 and 1.3, without client certificates and without session resumption.
    /// A client that resumed a session would not receive a renewed certificate.
    ///
    /// # Errors
    /// The library does not support these versions.
    pub(super) fn server_config(&self) -> anyhow::Result<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder.with_safe_default_protocol_versions().context("failed to set up TLS")?;
        let current: Arc<dyn ResolvesServerCert> = Arc::<CurrentCertificate>::clone(&self.current);
        let mut config = builder.with_no_client_auth().with_cert_resolver(current);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// Reads both files periodically; new connections use a certificate that has changed.
    pub(super) async fn renew(mut self) {
        self.record_expiry();
        loop {
            tokio::time::sleep(READ_INTERVAL).await;
            let (files, provider) = (self.files.clone(), Arc::clone(&self.provider));
            let loaded = tokio::task::spawn_blocking(move || files.load(&provider)).await;
            // The process is shutting down.
            let Ok(found) = loaded else { return };
            self.update(found);
        }
    }

    fn update(&mut self, found: CertificateRead<Pair, Fault>) {
        match self.renewal.step(found) {
            Decision::Present(pair) => {
                self.current.0.store(pair.certified);
                self.expires = pair.expires;
                let (file, expires) =
                    (self.files.certificate.display(), self.expires.map(|at| at.to_string()));
                tracing::info!(%file, expires, "the admin API uses a new certificate");
                self.record_expiry();
            }
            Decision::Report(fault) => {
                let (effect, remedy) = ("the previous certificate stays in use", fault.remedy);
                tracing::warn!(reason = %fault, effect, remedy, "failed to load the certificate of the admin API");
            }
            Decision::Keep => {}
        }
    }

    fn record_expiry(&self) {
        if let Some(expires) = self.expires {
            recorder::admin_certificate_expires(expires.as_second());
        }
    }
}

impl Files {
    fn load(&self, provider: &CryptoProvider) -> CertificateRead<Pair, Fault> {
        match self.content() {
            Ok(content) => {
                let fingerprint = fingerprint([&content.certificate, &content.key]);
                CertificateRead { fingerprint, pair: self.pair(content, provider) }
            }
            Err(fault) => {
                let fingerprint = fingerprint([fault.key.as_bytes(), fault.reason.as_bytes()]);
                CertificateRead { fingerprint, pair: Err(fault) }
            }
        }
    }

    /// Reads both files until two reads agree, because they may be replaced between the first and the second file.
    fn content(&self) -> Result<Content, Fault> {
        let mut content = self.read()?;
        for _ in 1..MAX_READS {
            let again = self.read()?;
            if again == content {
                break;
            }
            content = again;
        }
        Ok(content)
    }

    fn read(&self) -> Result<Content, Fault> {
        Ok(Content {
            certificate: read(&self.certificate).map_err(|reason| self.certificate_fault(&reason))?,
            key: read(&self.key).map_err(|reason| self.key_fault(&reason))?,
        })
    }

    fn pair(&self, content: Content, provider: &CryptoProvider) -> Result<Pair, Fault> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content.certificate).collect();
        // Parser errors are dropped: they may quote the file.
        let chain = chain.map_err(|_| self.certificate_fault("is not readable PEM"))?;
        let Some(first) = chain.first() else {
            return Err(self.certificate_fault("contains no certificate in PEM"));
        };
        let expires = expires(first);
        let key = PrivateKeyDer::from_pem_slice(&content.key)
            .map_err(|_| self.key_fault("contains no unencrypted private key in PEM"))?;
        let key = provider.key_provider.load_private_key(key);
        let key = key.map_err(|_| self.key_fault("contains a private key of an unsupported type"))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => Ok(Pair { certified: Arc::new(certified), expires }),
            Err(rustls::Error::InconsistentKeys(_)) => {
                let certificate = self.certificate.display();
                Err(self.key_fault(&format!(
                    "contains a key that does not belong to the certificate in {certificate}"
                )))
            }
            Err(_) => Err(self.certificate_fault("contains a certificate that cannot be read")),
        }
    }

    fn certificate_fault(&self, reason: &str) -> Fault {
        Fault {
            key: "http.tls.certificate",
            path: self.certificate.clone(),
            reason: reason.to_owned(),
            remedy: "give the server's certificate in PEM first in the file, and those of the authorities between it \
                     and the root after it",
        }
    }

    fn key_fault(&self, reason: &str) -> Fault {
        Fault {
            key: "http.tls.key",
            path: self.key.clone(),
            reason: reason.to_owned(),
            remedy: "give the private key of the first certificate in PEM: RSA, ECDSA or Ed25519, not encrypted",
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > MAX_FILE => Err(format!("is larger than {MAX_FILE} bytes")),
        Ok(_) => Ok(bytes),
        Err(error) => Err(format!("cannot be read ({error})")),
    }
}

/// Returns the digest of both parts, each preceded by its length.
fn fingerprint(parts: [&[u8]; 2]) -> Fingerprint {
    let mut context = Context::new(&SHA256);
    for part in parts {
        context.update(&part.len().to_be_bytes());
        context.update(part);
    }
    let mut digest = [0; 32];
    digest.copy_from_slice(context.finish().as_ref());
    Fingerprint::of_digest(digest)
}

/// Returns the end of a certificate's validity.
fn expires(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests;
