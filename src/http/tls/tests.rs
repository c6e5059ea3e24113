//! Loading and renewal of the files of a certificate and its key.

use std::fs;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::*;

/// Returns a line of the key, which no message may contain.
fn secret_of(key: &str) -> &str {
    key.lines().nth(1).expect("a key in PEM has lines")
}

/// Returns a certificate that ends in this year, and its key.
fn pair(year: i32) -> (String, String) {
    let own = KeyPair::generate().expect("the random source works");
    let mut params = CertificateParams::new(["localhost".to_owned()]).expect("a name");
    params.not_after = date_time_ymd(year, 1, 1);
    (params.self_signed(&own).expect("it signs itself").pem(), own.serialize_pem())
}

fn files(folder: &TempDir, (certificate, key): &(String, String)) -> Files {
    let files = Files { certificate: folder.path().join("tls.crt"), key: folder.path().join("tls.key") };
    fs::write(&files.certificate, certificate).expect("the folder can be written");
    fs::write(&files.key, key).expect("the folder can be written");
    files
}

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

#[test]
fn h2_an_unusable_pair_is_refused_by_its_key_and_file() {
    let (one, other) = (pair(2040), pair(2040));
    let nothing = || ("nothing".to_owned(), one.1.clone());
    let cut = || (one.0[..one.0.len() / 2].to_owned(), one.1.clone());
    let wrong = one.0.lines().next().map(|first| format!("{first}\nAAAA\n-----END CERTIFICATE-----\n"));
    let encrypted = one.1.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let secret = secret_of(&one.1).to_owned();
    for (content, key, file, reason) in [
        (nothing(), "http.tls.certificate", "tls.crt", "contains no certificate in PEM"),
        (cut(), "http.tls.certificate", "tls.crt", "is not readable PEM"),
        (
            (wrong.expect("a first line"), one.1.clone()),
            "http.tls.certificate",
            "tls.crt",
            "contains a certificate that cannot be read",
        ),
        (
            (one.0.clone(), one.0.clone()),
            "http.tls.key",
            "tls.key",
            "contains no unencrypted private key in PEM",
        ),
        ((one.0.clone(), encrypted), "http.tls.key", "tls.key", "contains no unencrypted private key in PEM"),
        (
            (one.0.clone(), other.1),
            "http.tls.key",
            "tls.key",
            "contains a key that does not belong to the certificate in",
        ),
        (("x".repeat(1 << 21), one.1.clone()), "http.tls.certificate", "tls.crt", "is larger than"),
    ] {
        let folder = folder();
        let path = folder.path().join(file);
        let refused = Certificate::read(files(&folder, &content)).err().expect("it cannot be used");
        let text = format!("{refused:#}");
        assert!(text.starts_with(&format!("{key}: {} {reason}", path.display())), "{text}");
        assert!(text.contains("; give the "), "with a remedy: {text}");
        assert!(!text.contains(&secret), "without what is in the key");
    }
    let folder = folder();
    let files = files(&folder, &one);
    fs::remove_file(&files.key).expect("it was there");
    let text = Certificate::read(files).err().expect("there is no key").to_string();
    assert!(text.starts_with("http.tls.key: ") && text.contains("cannot be read (No such file"), "{text}");
}

#[test]
fn h2_each_file_counts_separately() {
    assert_eq!(fingerprint([b"ab", b"c"]), fingerprint([b"ab", b"c"]));
    let others: [[&[u8]; 2]; 4] = [[b"ab", b"d"], [b"a", b"bc"], [b"", b"abc"], [b"c", b"ab"]];
    for other in others {
        assert_ne!(fingerprint([b"ab", b"c"]), fingerprint(other));
    }
}

#[test]
fn h2_a_new_pair_is_used_once_it_is_complete_and_valid() {
    let (folder, first, second) = (folder(), pair(2040), pair(2050));
    let mut certificate = Certificate::read(files(&folder, &first)).expect("a pair");
    let provider = Arc::clone(&certificate.provider);
    let current = |certificate: &Certificate| certificate.current.0.load().cert[0].to_vec();
    let der = |pair: &(String, String)| {
        CertificateDer::from_pem_slice(pair.0.as_bytes()).expect("a certificate").to_vec()
    };
    let reload = |certificate: &mut Certificate| {
        let found = certificate.files.load(&provider);
        certificate.update(found);
    };
    assert_eq!(current(&certificate), der(&first));
    assert_eq!(certificate.expires.map(|at| at.to_string()).as_deref(), Some("2040-01-01T00:00:00Z"));

    // First the one file, then the other, as the operator copies them.
    fs::write(&certificate.files.certificate, &second.0).expect("written");
    reload(&mut certificate);
    assert_eq!(current(&certificate), der(&first));
    fs::write(&certificate.files.key, &second.1).expect("written");
    reload(&mut certificate);
    assert_eq!(current(&certificate), der(&second));
    assert_eq!(certificate.expires.map(|at| at.to_string()).as_deref(), Some("2050-01-01T00:00:00Z"));

    fs::remove_file(&certificate.files.certificate).expect("it was there");
    reload(&mut certificate);
    assert_eq!(current(&certificate), der(&second));
}

#[test]
fn h2_tls_has_two_versions_and_no_session_resumption() {
    let folder = folder();
    let certificate = Certificate::read(files(&folder, &pair(2040))).expect("a pair");
    let config = certificate.server_config().expect("the library speaks TLS");
    assert!(
        config.send_tls13_tickets == 0 && !config.session_storage.can_cache() && !config.ticketer.enabled()
    );
    assert!(config.alpn_protocols.is_empty(), "the server of HTTP says which");
}
