//! The certificate of the admin API with TLS (H2): read at the start, and again every 10 s, because the kubelet puts other
//! files in the place of a Secret's when it has changed. Whether what was found is shown from then on is decided by
//! [`Renewal`]. Nothing of a key is ever told.

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
use pool_core::certificate::{Decision, Fingerprint, Found, Renewal};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::parse_x509_certificate;

/// How often both files are read.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;
/// How often both files are read again in one look while they change.
const READINGS: usize = 3;

/// Where certificate and key are.
#[derive(Clone, Debug)]
pub(super) struct Files {
    /// The certificate, and those of the authorities below the root.
    pub(super) certificate: PathBuf,
    /// The private key.
    pub(super) key: PathBuf,
}

/// What is wrong with one of the files, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{key}: {} {why}", .path.display())]
struct Fault {
    /// The key of the configuration that names the file.
    key: &'static str,
    path: PathBuf,
    why: String,
    remedy: &'static str,
}

/// What both files hold.
#[derive(PartialEq, Eq)]
struct Content {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// A certificate with its key.
struct Pair {
    certified: Arc<CertifiedKey>,
    /// When it ends; `None`: it does not say.
    expires: Option<Timestamp>,
}

/// What clients are shown: read on the listener's thread at each handshake, replaced when it is renewed.
struct Shown(ArcSwap<CertifiedKey>);

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shown")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

/// The certificate that clients are shown, and where it comes from.
pub(super) struct Certificate {
    files: Files,
    provider: Arc<CryptoProvider>,
    shown: Arc<Shown>,
    expires: Option<Timestamp>,
    renewal: Renewal,
}

impl Certificate {
    /// Reads both files.
    ///
    /// # Errors
    /// One of them cannot be used, or the key is that of another certificate.
    pub(super) fn read(files: Files) -> anyhow::Result<Certificate> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let Found { fingerprint, pair } = files.look(&provider);
        let pair = pair.map_err(|fault| anyhow::anyhow!("{fault}; {}", fault.remedy))?;
        let shown = Arc::new(Shown(ArcSwap::new(pair.certified)));
        Ok(Certificate { files, provider, shown, expires: pair.expires, renewal: Renewal::new(fingerprint) })
    }

    /// How the listener speaks TLS: 1.2 and 1.3, without certificates of clients. No session is taken up again, for who
    /// does that sees no certificate and would not notice another one.
    ///
    /// # Errors
    /// The library does not speak these versions.
    pub(super) fn server_config(&self) -> anyhow::Result<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder.with_safe_default_protocol_versions().context("failed to set up TLS")?;
        let shown: Arc<dyn ResolvesServerCert> = Arc::<Shown>::clone(&self.shown);
        let mut config = builder.with_no_client_auth().with_cert_resolver(shown);
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    /// Reads both files again and again; connections that begin after they have changed are shown what is in them.
    pub(super) async fn renew(mut self) {
        self.tell_the_end();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let (files, provider) = (self.files.clone(), Arc::clone(&self.provider));
            let looked = tokio::task::spawn_blocking(move || files.look(&provider)).await;
            // The process ends.
            let Ok(found) = looked else { return };
            self.take(found);
        }
    }

    fn take(&mut self, found: Found<Pair, Fault>) {
        match self.renewal.step(found) {
            Decision::Present(pair) => {
                self.shown.0.store(pair.certified);
                self.expires = pair.expires;
                let (file, expires) =
                    (self.files.certificate.display(), self.expires.map(|at| at.to_string()));
                tracing::info!(%file, expires, "the admin API has another certificate");
                self.tell_the_end();
            }
            Decision::Report(fault) => {
                let remedy = fault.remedy;
                tracing::warn!(why = %fault, remedy, "the files of the admin API's certificate cannot be used");
            }
            Decision::Keep => {}
        }
    }

    fn tell_the_end(&self) {
        if let Some(expires) = self.expires {
            recorder::admin_certificate_expires(expires.as_second());
        }
    }
}

impl Files {
    fn look(&self, provider: &CryptoProvider) -> Found<Pair, Fault> {
        match self.content() {
            Ok(content) => {
                let fingerprint = fingerprint([&content.certificate, &content.key]);
                Found { fingerprint, pair: self.pair(content, provider) }
            }
            Err(fault) => {
                let fingerprint = fingerprint([fault.key.as_bytes(), fault.why.as_bytes()]);
                Found { fingerprint, pair: Err(fault) }
            }
        }
    }

    /// What both files hold at one moment: they may be replaced between the first and the second.
    fn content(&self) -> Result<Content, Fault> {
        let mut content = self.read()?;
        for _ in 1..READINGS {
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
            certificate: read(&self.certificate).map_err(|why| self.certificate_fault(&why))?,
            key: read(&self.key).map_err(|why| self.key_fault(&why))?,
        })
    }

    fn pair(&self, content: Content, provider: &CryptoProvider) -> Result<Pair, Fault> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&content.certificate).collect();
        // What a parser says may repeat what it has read.
        let chain = chain.map_err(|_| self.certificate_fault("is no PEM that can be read"))?;
        let Some(first) = chain.first() else {
            return Err(self.certificate_fault("holds no certificate in PEM"));
        };
        let expires = expires(first);
        let key = PrivateKeyDer::from_pem_slice(&content.key)
            .map_err(|_| self.key_fault("holds no private key in PEM that is not encrypted"))?;
        let key = provider.key_provider.load_private_key(key);
        let key = key.map_err(|_| self.key_fault("holds a private key of a kind that cannot be used"))?;
        let certified = CertifiedKey::new(chain, key);
        match certified.keys_match() {
            Ok(()) => Ok(Pair { certified: Arc::new(certified), expires }),
            Err(rustls::Error::InconsistentKeys(_)) => {
                let certificate = self.certificate.display();
                Err(self
                    .key_fault(&format!("holds another key than that of the certificate in {certificate}")))
            }
            Err(_) => Err(self.certificate_fault("holds a certificate that cannot be read")),
        }
    }

    fn certificate_fault(&self, why: &str) -> Fault {
        Fault {
            key: "http.tls.certificate",
            path: self.certificate.clone(),
            why: why.to_owned(),
            remedy: "give the server's certificate in PEM first in the file, and those of the authorities between it \
                     and the root after it",
        }
    }

    fn key_fault(&self, why: &str) -> Fault {
        Fault {
            key: "http.tls.key",
            path: self.key.clone(),
            why: why.to_owned(),
            remedy: "give the private key of the first certificate in PEM: RSA, ECDSA or Ed25519, not encrypted",
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if bytes.len() as u64 > LARGEST => Err(format!("is larger than {LARGEST} bytes")),
        Ok(_) => Ok(bytes),
        Err(error) => Err(format!("cannot be read ({error})")),
    }
}

/// The digest of these parts, each with its length before it.
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

/// When a certificate ends.
fn expires(certificate: &CertificateDer<'_>) -> Option<Timestamp> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    Timestamp::from_second(parsed.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests;
