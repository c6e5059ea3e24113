//! A server on this machine that is login endpoint, metadata document, instance metadata service and ARM. It reports
//! all requests to the test.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose, PKCS_RSA_SHA256,
    RsaKeySize,
};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use super::{SIGNATURE, TOKEN};
use crate::support::TEST_TIMEOUT;

/// The name of the ARM peer behind a proxy.
pub const ARM: &str = "arm.azure.test";

/// Treatment of a request for a token.
#[derive(Clone, Copy)]
pub enum Authority {
    /// A token is issued.
    Gives,
    /// A token that is due for renewal is issued.
    GivesForAMinute,
    /// The request is rejected, and the answer echoes it.
    Repeats,
}

/// A request.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub line: String,
    pub head: String,
    pub body: String,
}

/// A running server. Dropping this value stops it.
pub struct Peer {
    pub port: u16,
    received: UnboundedReceiver<ReceivedRequest>,
    /// The requests so far.
    known: Vec<ReceivedRequest>,
    listening: AbortHandle,
}

impl Peer {
    /// Listens on `localhost`: with TLS, and the authority's certificate as `ca.pem` in this folder, or without.
    pub async fn start(tls: Option<&Path>, authority: Authority) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has free ports");
        let port = listener.local_addr().expect("a bound listener has an address").port();
        let acceptor = tls.map(|folder| acceptor(folder, &["localhost", ARM]));
        let (sender, received) = unbounded_channel();
        let listening = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, sender) = (acceptor.clone(), sender.clone());
                drop(tokio::spawn(async move {
                    match acceptor {
                        Some(acceptor) => {
                            let Ok(socket) = acceptor.accept(socket).await else { return };
                            serve(socket, port, authority, &sender).await;
                        }
                        None => serve(socket, port, authority, &sender).await,
                    }
                }));
            }
        });
        Self { port, received, known: Vec::new(), listening: listening.abort_handle() }
    }

    /// Waits for a matching request.
    pub async fn until(&mut self, what: &str, wanted: impl Fn(&ReceivedRequest) -> bool) {
        if self.known.iter().any(&wanted) {
            return;
        }
        loop {
            let next = tokio::time::timeout(TEST_TIMEOUT, self.received.recv()).await;
            let next = next.unwrap_or_else(|_| panic!("{what}: not asked; seen: {:#?}", self.known));
            let next = next.expect("the server runs");
            let found = wanted(&next);
            self.known.push(next);
            if found {
                return;
            }
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(
    mut socket: impl AsyncRead + AsyncWrite + Unpin,
    port: u16,
    authority: Authority,
    sender: &UnboundedSender<ReceivedRequest>,
) {
    let Some(received) = receive(&mut socket).await else { return };
    let (status, body) = answer(&received, port, authority);
    // The test may have ended.
    drop(sender.send(received));
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    drop(socket.write_all(text.as_bytes()).await);
    drop(socket.shutdown().await);
}

fn answer(received: &ReceivedRequest, port: u16, authority: Authority) -> (u16, String) {
    let ReceivedRequest { line, head, body } = received;
    // By the requested name.
    let name = if head.contains(ARM) { ARM } else { "localhost" };
    let here = format!("https://{name}:{port}");
    if line.contains("/metadata/endpoints") {
        let authentication = json!({ "loginEndpoint": here, "audiences": ["https://audience.test"] });
        return (200, json!([{ "resourceManager": here, "authentication": authentication }]).to_string());
    }
    let asks_for_token = line.contains("/oauth2/v2.0/token") || line.contains(" /msi");
    match authority {
        Authority::Gives | Authority::GivesForAMinute if asks_for_token => {
            let seconds = if matches!(authority, Authority::GivesForAMinute) { 60 } else { 86_400 };
            let token = json!({
                "token_type": "Bearer", "access_token": TOKEN, "expires_in": seconds, "ext_expires_in": seconds,
                "expires_on": "4102444800", "resource": "https://audience.test",
            });
            (200, token.to_string())
        }
        Authority::Repeats if asks_for_token => {
            let echo = format!("AADSTS7000215: wrong: {body} {head}");
            (401, json!({ "error_description": echo, "error_codes": [7_000_215] }).to_string())
        }
        Authority::Gives | Authority::GivesForAMinute | Authority::Repeats => {
            let echo = format!("refused: {head}; see https://localhost/x?sig={SIGNATURE}&sv=1");
            (403, json!({ "error": { "code": "AuthorizationFailed", "message": echo } }).to_string())
        }
    }
}

/// Reads a request.
pub async fn receive(socket: &mut (impl AsyncRead + Unpin)) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
            });
            if body.len() >= length.unwrap_or(0) {
                let (line, head) = head.split_once("\r\n").unwrap_or((head, ""));
                return Some(ReceivedRequest {
                    line: line.to_owned(),
                    head: head.to_owned(),
                    body: body.to_owned(),
                });
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}

/// Accepts TLS for these names. Writes the certificate of the authority to `ca.pem` in this folder.
pub fn acceptor(folder: &Path, names: &[&str]) -> TlsAcceptor {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate().expect("a key")).expect("signed by itself");
    std::fs::write(folder.join("ca.pem"), ca.pem()).expect("the folder can be written");
    let key = KeyPair::generate().expect("a key");
    let params =
        CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).expect("names");
    let certificate = params.signed_by(&key, &ca).expect("the authority signs");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has them")
        .with_no_client_auth();
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("it is PKCS#8");
    let config = config.with_single_cert(vec![certificate.der().clone()], key).expect("they match");
    TlsAcceptor::from(Arc::new(config))
}

/// Returns an application's certificate with its key, as PEM.
pub fn rsa_certificate() -> String {
    let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048).expect("a key");
    let params = CertificateParams::new(vec!["application.test".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("signed by itself");
    format!("{}{}", key.serialize_pem(), certificate.pem())
}
