//! TLS and tokens: the files that are used, and the errors about unusable ones.

use std::fs;
use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, Certificate as Made, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tonic::Status;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::server::Ads;
use super::*;

/// A certificate authority.
struct Authority {
    certificate: Made,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn of(name: &str) -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        Authority { certificate, issuer: Issuer::new(params, key) }
    }

    /// Issues a certificate of this name; returns it with its key.
    fn issue(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    fn server(&self, name: &str) -> ServerTlsConfig {
        let (certificate, key) = self.issue(name);
        ServerTlsConfig::new().identity(Identity::from_pem(certificate, key))
    }

    fn pem(&self) -> Certificate {
        Certificate::from_pem(self.certificate.pem())
    }
}

/// The files of a client.
struct Files {
    folder: TempDir,
}

impl Files {
    fn trusting(authority: &Authority) -> Files {
        let files = Files { folder: tempfile::tempdir().unwrap() };
        files.write("ca.pem", &authority.certificate.pem());
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn show(&self, (certificate, key): (String, String)) {
        self.write("tls.crt", &certificate);
        self.write("tls.key", &key);
    }

    /// Returns a bootstrap with these files and fields.
    fn bootstrap(&self, port: u16, files: &[(&str, &str)], fields: &str) -> Arc<Bootstrap> {
        let file = |(field, name): &(&str, &str)| format!(r#""{field}": "{}""#, self.path(name).display());
        let config: Vec<String> = files.iter().map(file).collect();
        let config = config.join(", ");
        let fields = format!(r#""channel_creds": [{{"type": "tls", "config": {{{config}}}}}]{fields}"#);
        bootstrap(format!("localhost:{port}"), &fields)
    }

    fn tls(&self, port: u16) -> Arc<Bootstrap> {
        self.bootstrap(port, &[("ca_certificate_file", "ca.pem")], "")
    }

    fn mutual(&self, port: u16) -> Arc<Bootstrap> {
        let files = [
            ("ca_certificate_file", "ca.pem"),
            ("certificate_file", "tls.crt"),
            ("private_key_file", "tls.key"),
        ];
        self.bootstrap(port, &files, "")
    }

    fn with_tokens(&self, port: u16, names: &[&str]) -> Arc<Bootstrap> {
        let entry = |name: &&str| {
            let path = self.path(name);
            format!(r#"{{"type": "jwt_token_file", "config": {{"jwt_token_file": "{}"}}}}"#, path.display())
        };
        let entries: Vec<String> = names.iter().map(entry).collect();
        let fields = format!(r#", "call_creds": [{}]"#, entries.join(", "));
        self.bootstrap(port, &[("ca_certificate_file", "ca.pem")], &fields)
    }
}

/// Checks that a stream is unavailable, with this text and this path.
async fn unavailable(bootstrap: Arc<Bootstrap>, text: &str, path: &Path) {
    let ended = Site::asking(bootstrap).ended().await;
    assert_eq!(ended.code, Code::Unavailable, "{ended:?}");
    let path = path.display().to_string();
    assert!(ended.message.contains(text) && ended.message.contains(&path), "{ended:?}");
}

#[tokio::test]
async fn x2_a_server_is_verified_by_authority_and_name() {
    let authority = Authority::of("ours");
    let mut server = Ads::with_tls(authority.server("localhost")).await;
    let port = server.addr.port();
    let files = Files::trusting(&authority);
    let mut site = Site::asking(files.tls(port));
    site.dispatched().await;
    assert_eq!(server.call().await.request().await.resource_names, ["web"]);

    let other = Files::trusting(&Authority::of("another"));
    unavailable(other.tls(port), "invalid peer certificate: UnknownIssuer", &other.path("ca.pem")).await;
    // The system's authorities do not include this one.
    let system = files.bootstrap(port, &[], "");
    unavailable(system, "trusted: ", Path::new("the authorities of the system")).await;
    let elsewhere = Ads::with_tls(authority.server("elsewhere.test")).await;
    let port = elsewhere.addr.port();
    unavailable(files.tls(port), "certificate not valid for name \"localhost\"", &files.path("ca.pem")).await;
}

#[tokio::test]
async fn x2_a_configured_client_certificate_is_presented() {
    let authority = Authority::of("ours");
    let tls = authority.server("localhost").client_ca_root(authority.pem());
    let mut server = Ads::with_tls(tls).await;
    let port = server.addr.port();
    let files = Files::trusting(&authority);
    files.show(authority.issue("pools.test"));
    let mut site = Site::asking(files.mutual(port));
    site.dispatched().await;
    assert_eq!(server.call().await.request().await.resource_names, ["web"]);

    // With TLS 1.3, a client learns of its refusal after the handshake.
    let ended = Site::asking(files.tls(port)).ended().await;
    assert!(ended.message.contains("CertificateRequired"), "{ended:?}");
}

#[tokio::test]
async fn x2_tls_files_are_read_for_each_stream() {
    let authority = Authority::of("ours");
    let tls = authority.server("localhost").client_ca_root(authority.pem());
    let mut server = Ads::with_tls(tls).await;
    let port = server.addr.port();
    let files = Files::trusting(&authority);
    let bootstrap = files.mutual(port);
    unavailable(Arc::clone(&bootstrap), "certificate_file ", &files.path("tls.crt")).await;
    let (certificate, key) = authority.issue("pools.test");
    files.show((certificate.clone(), "no key".to_owned()));
    unavailable(Arc::clone(&bootstrap), "contains no PEM private key", &files.path("tls.key")).await;
    files.show((certificate.clone(), authority.issue("pools.test").1));
    unavailable(Arc::clone(&bootstrap), "shown: certificate_file ", &files.path("tls.crt")).await;
    files.show(("no certificate".to_owned(), key.clone()));
    unavailable(Arc::clone(&bootstrap), "contains no PEM certificates", &files.path("tls.crt")).await;
    files.show((certificate, key));
    files.write("ca.pem", "");
    unavailable(Arc::clone(&bootstrap), "contains no PEM certificates", &files.path("ca.pem")).await;
    files.write("ca.pem", &"x".repeat((1 << 20) + 1));
    unavailable(Arc::clone(&bootstrap), "is larger than 1048576 bytes", &files.path("ca.pem")).await;
    files.write("ca.pem", &authority.certificate.pem());
    Site::asking(bootstrap).dispatched().await;
    assert_eq!(server.call().await.request().await.resource_names, ["web"]);
}

#[tokio::test]
async fn x2_a97_all_tokens_are_read_for_each_stream() {
    let authority = Authority::of("ours");
    let mut server = Ads::with_tls(authority.server("localhost")).await;
    let files = Files::trusting(&authority);
    let bootstrap = files.with_tokens(server.addr.port(), &["one", "two"]);
    files.write("one", "planted-1.a.b\n");
    unavailable(Arc::clone(&bootstrap), "jwt_token_file ", &files.path("two")).await;
    for (text, expected) in
        [("", "holds no token"), ("two words", "holds no token"), ("\u{e9}", "holds no token")]
    {
        files.write("two", text);
        unavailable(Arc::clone(&bootstrap), expected, &files.path("two")).await;
    }
    files.write("two", "planted-2");
    let mut site = Site::asking(bootstrap);
    let sent = |peer: &Peer| -> Vec<String> {
        let all = peer.headers.get_all("authorization").iter();
        all.map(|value| value.to_str().unwrap().to_owned()).collect()
    };
    site.dispatched().await;
    assert_eq!(sent(&server.call().await), ["Bearer planted-1.a.b", "Bearer planted-2"]);
    site.driver.close(STREAM);
    files.write("one", "planted-3");
    site.driver.open(STREAM, SERVER, vec![request_for(&["web"])]);
    site.dispatched().await;
    let peer = server.call().await;
    assert_eq!(sent(&peer), ["Bearer planted-3", "Bearer planted-2"]);
    // A token that the server repeats is redacted.
    peer.fail(Status::unauthenticated("neither planted-3 nor planted-2 is known"));
    let ended = site.ended().await;
    assert_eq!(ended.message, "neither <redacted> nor <redacted> is known");
}

#[tokio::test(start_paused = true)]
async fn x2_a_peer_silent_during_tls_times_out() {
    let (addr, _listener) = silent().await;
    let files = Files::trusting(&Authority::of("ours"));
    let mut site = Site::asking(files.tls(addr.port()));
    let before = tokio::time::Instant::now();
    let Some(StreamEvent::Ended { stream: STREAM, ended, .. }) = site.events.recv().await else {
        panic!("it ends")
    };
    assert_eq!(ended.code, Code::Unavailable);
    assert!(ended.message.starts_with("not connected within 20 seconds (trusted: ca_"), "{ended:?}");
    assert_eq!(before.elapsed().as_secs(), 20);
}

#[tokio::test(start_paused = true)]
async fn x2_a_peer_silent_after_tls_times_out() {
    let authority = Authority::of("ours");
    let (addr, _peer) = silent_behind_tls(authority.issue("localhost")).await;
    let files = Files::trusting(&authority);
    let before = tokio::time::Instant::now();
    let ended = Site::asking(files.tls(addr.port())).ended().await;
    assert_eq!(ended.code, Code::Unavailable);
    assert!(
        ended.message.starts_with("connected, but the server did not speak HTTP/2 within 20"),
        "{ended:?}"
    );
    assert_eq!(before.elapsed().as_secs(), 20);
}

/// Completes TLS handshakes and sends nothing more.
async fn silent_behind_tls((certificate, key): (String, String)) -> (SocketAddr, impl Drop) {
    use rustls_pki_types::pem::PemObject;
    use rustls_pki_types::{CertificateDer, PrivateKeyDer};
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::aws_lc_rs;

    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols.push(b"h2".to_vec());
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = async move {
        let (connection, _) = listener.accept().await.unwrap();
        let _silent = acceptor.accept(connection).await.unwrap();
        std::future::pending::<()>().await;
    };
    (addr, AbortOnDropHandle::new(tokio::spawn(serving)))
}
