//! The files that the bootstrap names, as they are now: certificates, keys and tokens. They are read for each stream
//! anew, so that whoever rotates them has nothing to tell us. What is in them is never said.

use std::path::Path;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio::io::AsyncReadExt;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

use crate::bootstrap::{LARGEST, TlsFiles};

/// A token, and the header that it goes in.
pub(super) struct Token {
    /// The token itself, to keep it out of what is said.
    pub secret: String,
    /// `Bearer` with the token.
    pub header: MetadataValue<Ascii>,
}

/// Reads a token.
///
/// # Errors
/// There is none, with the path and the remedy.
pub(super) async fn token(path: &Path) -> Result<Token, String> {
    const FIELD: &str = "jwt_token_file";
    let bytes = read(FIELD, path).await?;
    let secret = String::from_utf8(bytes).map(|text| text.trim().to_owned()).unwrap_or_default();
    // Tokens are of letters that a header can hold, without spaces: else it is some other file.
    let header =
        Some(&secret).filter(|secret| !secret.is_empty() && secret.bytes().all(|b| b.is_ascii_graphic()));
    let header = header.and_then(|secret| MetadataValue::try_from(format!("Bearer {secret}")).ok());
    let mut header = header
        .ok_or_else(|| format!("{FIELD} {} holds no token: write a JSON web token there", path.display()))?;
    header.set_sensitive(true);
    Ok(Token { secret, header })
}

/// Reads the files of TLS.
///
/// # Errors
/// One cannot be used, with its path and the remedy.
pub(super) async fn tls(files: &TlsFiles) -> Result<ClientTlsConfig, String> {
    let mut config = ClientTlsConfig::new();
    config = match &files.ca {
        None => config.with_native_roots(),
        Some(path) => {
            const FIELD: &str = "ca_certificate_file";
            let pem = read(FIELD, path).await?;
            has_certificate(FIELD, path, &pem)?;
            config.ca_certificate(Certificate::from_pem(pem))
        }
    };
    if let Some((certificate, key)) = &files.identity {
        const FIELD: &str = "certificate_file";
        let pem = read(FIELD, certificate).await?;
        has_certificate(FIELD, certificate, &pem)?;
        config = config.identity(Identity::from_pem(pem, read("private_key_file", key).await?));
    }
    Ok(config)
}

/// Which files are meant where TLS fails, for people.
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

fn has_certificate(field: &str, path: &Path, pem: &[u8]) -> Result<(), String> {
    let mut certificates = CertificateDer::pem_slice_iter(pem);
    if certificates.next().is_some_and(|first| first.is_ok()) && certificates.all(|more| more.is_ok()) {
        return Ok(());
    }
    Err(format!("{field} {} holds no certificates in PEM: write them there", path.display()))
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
