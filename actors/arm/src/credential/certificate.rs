//! The client assertion of a certificate: a token signed with the certificate's RSA key. The file is read for every
//! assertion, so that a renewed certificate needs no restart.

use std::fmt;
use std::path::{Path, PathBuf};

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use azure_core::base64::{encode, encode_url_safe};
use azure_core::credentials::Secret;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::ClientMethodOptions;
use azure_identity::ClientAssertion;
#[cfg(feature = "pkcs12")]
use p12_keystore::Pkcs12Archive;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

use crate::settings::Clocks;

/// Lifetime of an assertion in seconds; it is used immediately.
const GOOD_FOR: i64 = 600;

/// Size limit of the file, in bytes.
const LARGEST: usize = 1 << 20;

/// A certificate's file and the claims of its assertions.
pub(super) struct Certificate {
    pub(super) path: PathBuf,
    pub(super) password: Option<Secret>,
    pub(super) client_id: String,
    /// The token endpoint.
    pub(super) audience: String,
    pub(super) clocks: Clocks,
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("path", &self.path).finish_non_exhaustive()
    }
}

#[async_trait::async_trait]
impl ClientAssertion for Certificate {
    async fn secret(&self, _: Option<ClientMethodOptions<'_>>) -> azure_core::Result<String> {
        let (path, password) = (self.path.clone(), self.password.clone());
        // A password costs thousands of hashes by design.
        let read = tokio::task::spawn_blocking(move || read(&path, password.as_ref()));
        let pair = read
            .await
            .map_err(|error| Error::with_error(ErrorKind::Credential, error, "certificate not read"))??;
        let now = self.clocks.wall().as_micros() / 1_000_000;
        let id = uuid::Uuid::new_v4().to_string();
        pair.assertion(&self.client_id, &self.audience, &id, now)
    }
}

/// Checks that the file can be used now.
pub(super) fn check(path: &Path, password: Option<&Secret>) -> azure_core::Result<()> {
    read(path, password).map(drop)
}

/// A key and its certificates: first the one that is registered in Entra, then possible issuers.
struct Pair {
    key: KeyPair,
    certificates: Vec<Vec<u8>>,
}

impl Pair {
    /// Builds an assertion of this application for this token endpoint. As upstream's, it carries the certificates,
    /// which an application needs that trusts a subject and issuer instead of one certificate.
    fn assertion(&self, client_id: &str, audience: &str, id: &str, now: i64) -> azure_core::Result<String> {
        let thumbprint = |algorithm| encode_url_safe(digest(algorithm, &self.certificates[0]));
        let chain: Vec<String> = self.certificates.iter().map(encode).collect();
        let header = json!({
            "alg": "RS256", "typ": "JWT",
            "x5t": thumbprint(&SHA1_FOR_LEGACY_USE_ONLY), "x5t#S256": thumbprint(&SHA256),
            "x5c": chain,
        });
        let claims = json!({
            "aud": audience, "iss": client_id, "sub": client_id, "jti": id,
            "nbf": now, "iat": now, "exp": now + GOOD_FOR,
        });
        let signed =
            format!("{}.{}", encode_url_safe(header.to_string()), encode_url_safe(claims.to_string()));
        let mut signature = vec![0; self.key.public_modulus_len()];
        let random = SystemRandom::new();
        self.key
            .sign(&RSA_PKCS1_SHA256, &random, signed.as_bytes(), &mut signature)
            .map_err(|error| Error::with_error(ErrorKind::Credential, error, "assertion not signed"))?;
        Ok(format!("{signed}.{}", encode_url_safe(signature)))
    }
}

/// Reasons why a file cannot be used, and the remedy. The library's message is not repeated, because it may be about
/// the decrypted contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
enum Unusable {
    #[error("is larger than {LARGEST} bytes; check aadClientCertPath")]
    TooLarge,
    #[error(
        "is neither PEM nor PKCS#12 that aadClientCertPassword opens; check aadClientCertPath and aadClientCertPassword"
    )]
    Unreadable,
    #[cfg(not(feature = "pkcs12"))]
    #[error(
        "is not PEM, and this build reads no PKCS#12; convert it: openssl pkcs12 -in FILE -out FILE.pem -nodes"
    )]
    NotPem,
    #[error("holds no private key; aadClientCertPath must name a file with certificate and key")]
    NoKey,
    #[error("holds an encrypted PEM key; decrypt it, or use PKCS#12 with aadClientCertPassword")]
    EncryptedPem,
    #[error(
        "holds a private key that is not RSA, which Entra requires; issue the certificate with an RSA key"
    )]
    NotRsa,
    #[error("holds no certificate of its private key; aadClientCertPath must name a file with both")]
    NoCertificate,
}

fn read(path: &Path, password: Option<&Secret>) -> azure_core::Result<Pair> {
    let refused = |reason: String| {
        let message = format!("the certificate file {} {reason}", path.display());
        Error::with_message(ErrorKind::Credential, message)
    };
    let bytes = super::read_at_most(path, LARGEST).map_err(|error| {
        refused(format!("cannot be read ({error}); check aadClientCertPath, or mount the file there"))
    })?;
    pair(&bytes, password.map_or("", Secret::secret)).map_err(|reason| refused(reason.to_string()))
}

fn pair(bytes: &[u8], password: &str) -> Result<Pair, Unusable> {
    const PEM: &[u8] = b"-----BEGIN ";
    if bytes.len() > LARGEST {
        return Err(Unusable::TooLarge);
    }
    let is_pem = bytes.windows(PEM.len()).any(|part| part == PEM);
    let (keys, mut certificates) = if is_pem { of_pem(bytes)? } else { of_pkcs12(bytes, password)? };
    if keys.is_empty() {
        return Err(Unusable::NoKey);
    }
    let mut rsa = keys.into_iter().flatten().peekable();
    rsa.peek().ok_or(Unusable::NotRsa)?;
    // Of several keys, the one with a matching certificate.
    let found = rsa.find_map(|key| {
        let own = certificates.iter().position(|it| is_of(&key, it))?;
        Some((key, own))
    });
    let (key, own) = found.ok_or(Unusable::NoCertificate)?;
    certificates[..=own].rotate_right(1);
    Ok(Pair { key, certificates })
}

/// The keys of a file, `None` for those that are not RSA, and its certificates.
type Contents = (Vec<Option<KeyPair>>, Vec<Vec<u8>>);

/// Returns whether the certificate contains the public key, byte for byte.
fn is_of(key: &KeyPair, certificate: &[u8]) -> bool {
    let public = key.public_key().as_ref();
    certificate.windows(public.len()).any(|part| part == public)
}

fn of_pem(bytes: &[u8]) -> Result<Contents, Unusable> {
    const ENCRYPTED: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY";
    let keys = PrivateKeyDer::pem_slice_iter(bytes).map(|key| {
        key.map(|key| match key {
            PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()).ok(),
            PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()).ok(),
            PrivateKeyDer::Sec1(_) | _ => None,
        })
    });
    let keys: Vec<_> = keys.collect::<Result<_, _>>().map_err(|_| Unusable::Unreadable)?;
    if keys.is_empty() && bytes.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) {
        return Err(Unusable::EncryptedPem);
    }
    let certificates = CertificateDer::pem_slice_iter(bytes).map(|one| one.map(|one| one.to_vec()));
    let certificates = certificates.collect::<Result<_, _>>().map_err(|_| Unusable::Unreadable)?;
    Ok((keys, certificates))
}

#[cfg(feature = "pkcs12")]
fn of_pkcs12(bytes: &[u8], password: &str) -> Result<Contents, Unusable> {
    let archive = Pkcs12Archive::from_pkcs12(bytes, password).map_err(|_| Unusable::Unreadable)?;
    let certificates = archive.certs.iter().map(|bag| bag.cert.as_der().to_vec()).collect();
    let keys = archive.keys.iter().map(|bag| KeyPair::from_pkcs8(bag.key.as_der()).ok()).collect();
    Ok((keys, certificates))
}

#[cfg(not(feature = "pkcs12"))]
fn of_pkcs12(_: &[u8], _: &str) -> Result<Contents, Unusable> {
    Err(Unusable::NotPem)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::credential::test_certificates::{self, PASSWORD};

    #[test]
    fn c3_any_file_results_in_a_pair_or_a_reason() {
        let made = test_certificates::make();
        let files = made.files();
        let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(150));
        let damages = (0..files.len(), any::<prop::sample::Index>(), any::<u8>(), any::<bool>());
        let ran = runner.run(&damages, |(which, at, byte, cut)| {
            let (_, bytes, password) = &files[which];
            let mut bytes = bytes.clone();
            let at = at.index(bytes.len());
            bytes[at] = byte;
            if cut {
                bytes.truncate(at);
            }
            // A damaged hash count may be any number; this test skips those that cost minutes.
            let costly = !cut && bytes[at..].len() < 16;
            prop_assume!(!costly);
            let read = pair(&bytes, password.unwrap_or_default());
            prop_assert!(!cut || password.is_none() || read.is_err(), "half a PKCS#12 file is none");
            if let Ok(pair) = read {
                prop_assert!(pair.assertion("c", "a", "i", 0).is_ok());
            }
            Ok(())
        });
        ran.expect("no panic");
        for bytes in [&b""[..], b"-----BEGIN ", b"-----BEGIN PRIVATE KEY-----", &[0x30, 0x80], &[0xff; 64]] {
            assert!(pair(bytes, PASSWORD).is_err());
        }
    }
}
