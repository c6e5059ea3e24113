//! Reads the files that the bootstrap names: certificates, keys and tokens. They are read again for each stream, so
//! that rotation needs no notification. Their contents are never shown.

use std::path::Path;
use std::sync::Arc;

use model::redact::{Recipient, chain, record_sent_token};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::AsyncReadExt;
use tokio_rustls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tonic::metadata::{Ascii, MetadataValue};

use super::connection::HTTP2;
use crate::bootstrap::{LARGEST, TlsFiles};

/// A token, and its header.
pub(super) struct Token {
    /// The token itself, for redaction.
    pub secret: String,
    /// `Bearer` with the token.
    pub header: MetadataValue<Ascii>,
}

/// Reads the token for this server.
///
/// # Errors
/// There is no valid token; with the path and the remedy.
pub(super) async fn token(path: &Path, server: &Arc<str>) -> Result<Token, String> {
    const FIELD: &str = "jwt_token_file";
    let bytes = read(FIELD, path).await?;
    let secret = String::from_utf8(bytes).map(|text| text.trim().to_owned()).unwrap_or_default();
    // A token consists of characters that a header allows, without spaces; otherwise the file is something else.
    let header =
        Some(&secret).filter(|secret| !secret.is_empty() && secret.bytes().all(|b| b.is_ascii_graphic()));
    let header = header.and_then(|secret| MetadataValue::try_from(format!("Bearer {secret}")).ok());
    let mut header = header
        .ok_or_else(|| format!("{FIELD} {} holds no token: write a JSON web token there", path.display()))?;
    header.set_sensitive(true);
    record_sent_token(&Recipient::ControlPlane(Arc::clone(server)), &secret);
    Ok(Token { secret, header })
}

/// Reads the files of TLS.
///
/// # Errors
/// A file cannot be used; with its path and the remedy.
pub(super) async fn tls(files: &TlsFiles) -> Result<Arc<ClientConfig>, String> {
    let failed = |error: tokio_rustls::rustls::Error| format!("{} ({})", chain(&error), described(files));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(match &files.ca {
        None => system_roots()?,
        Some(path) => certificates("ca_certificate_file", path).await?,
    });
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(aws_lc_rs::default_provider()));
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(failed)?.with_root_certificates(roots);
    let mut config = match &files.identity {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => {
            let certificates = certificates("certificate_file", certificate).await?;
            config.with_client_auth_cert(certificates, private_key(key).await?).map_err(failed)?
        }
    };
    config.alpn_protocols.push(HTTP2.to_vec());
    Ok(Arc::new(config))
}

/// Describes the files that apply when TLS fails, for operators.
pub(super) fn described(files: &TlsFiles) -> String {
    let trusted = match &files.ca {
        Some(path) => format!("trusted: ca_certificate_file {}", path.display()),
        None => "trusted: the authorities of the system".to_owned(),
    };
    match &files.identity {
        Some((certificate, _)) => format!("{trusted}; shown: certificate_file {}", certificate.display()),
        None => format!("{trusted}; shown: no certificate"),
    }
}

/// Reads the certificate authorities of the system, without unreadable ones, as there are many.
fn system_roots() -> Result<Vec<CertificateDer<'static>>, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        let reasons: Vec<String> = found.errors.iter().map(|error| chain(error)).collect();
        return Err(format!(
            "the system has no CA certificates: set ca_certificate_file; {}",
            reasons.join("; ")
        ));
    }
    Ok(found.certs)
}

async fn certificates(field: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(field, path).await?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    certificates
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| format!("{field} {} contains no PEM certificates", path.display()))
}

async fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    const FIELD: &str = "private_key_file";
    let pem = read(FIELD, path).await?;
    PrivateKeyDer::from_pem_slice(&pem)
        .map_err(|_| format!("{FIELD} {} contains no PEM private key", path.display()))
}

async fn read(field: &str, path: &Path) -> Result<Vec<u8>, String> {
    let shown = path.display();
    let failed = |error: std::io::Error| {
        format!("{field} {shown} cannot be read: {error}: check its path and its mount")
    };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LARGEST as u64 + 1).read_to_end(&mut bytes).await.map_err(failed)?;
    if bytes.len() <= LARGEST {
        Ok(bytes)
    } else {
        Err(format!("{field} {shown} is larger than {LARGEST} bytes: check that it is the right file"))
    }
}
