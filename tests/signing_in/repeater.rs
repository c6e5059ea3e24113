//! A proxy on this machine that answers selected requests with an echo of the request, and forwards all others. It
//! represents any middlebox between the controller and the API server or ARM.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;

use super::peer::{ReceivedRequest, receive};

/// Form of an echo.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// In the message of a Status object, or of an error of ARM.
    Message(u16),
    /// As plain text.
    Text(u16),
    /// In the ERROR event of a watch.
    Event(u16),
    /// As a success that is not an object.
    Nonsense,
    /// In the reason of a denied access review.
    Reason,
}

/// Selects the echoed requests and their form. Each request has another number, in arbitrary order.
pub type Choice = fn(&ReceivedRequest, usize) -> Option<Way>;

/// A running proxy. Dropping this value stops it.
pub struct Repeater {
    pub url: String,
    listening: AbortHandle,
}

impl Repeater {
    /// Listens on loopback, in front of this address; echoes also contain `more`.
    pub async fn start(target: &str, more: &str, choice: Choice) -> Self {
        let target: SocketAddr = target.trim_start_matches("http://").parse().expect("an address");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has free ports");
        let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        let more: Arc<str> = Arc::from(more);
        let listening = tokio::spawn(async move {
            let mut count = 0_usize;
            while let Ok((socket, _)) = listener.accept().await {
                count += 1;
                let number = count.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
                drop(tokio::spawn(serve(socket, target, Arc::clone(&more), choice, number)));
            }
        });
        Self { url, listening: listening.abort_handle() }
    }
}

impl Drop for Repeater {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve(mut socket: TcpStream, target: SocketAddr, more: Arc<str>, choice: Choice, number: usize) {
    let Some(request) = receive(&mut socket).await else { return };
    match choice(&request, number) {
        Some(way) => {
            let (status, body) = repeated(&request, &more, way);
            let length = body.len();
            let text = format!(
                "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            drop(socket.write_all(text.as_bytes()).await);
            drop(socket.shutdown().await);
        }
        None => pass(socket, target, &request).await,
    }
}

fn repeated(request: &ReceivedRequest, more: &str, way: Way) -> (u16, String) {
    let ReceivedRequest { line, head, body } = request;
    let echo = format!("I was sent: {line}\r\n{head}\r\n{body}\r\n{more}");
    match way {
        Way::Message(status) => {
            let error = json!({ "code": "AuthorizationFailed", "message": echo });
            (status, json!({ "kind": "Status", "message": echo, "error": error }).to_string())
        }
        Way::Text(status) => (status, echo),
        Way::Event(code) => {
            let object = json!({ "kind": "Status", "code": code, "message": echo });
            (200, format!("{}\n", json!({ "type": "ERROR", "object": object })))
        }
        Way::Nonsense => (200, json!(echo).to_string()),
        Way::Reason => {
            let user = json!({ "username": "somebody" });
            let status = json!({ "authenticated": false, "error": echo, "user": user });
            (201, json!({ "status": status }).to_string())
        }
    }
}

/// Forwards a request on its own connection, and the answer until either side closes.
async fn pass(mut socket: TcpStream, target: SocketAddr, request: &ReceivedRequest) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    let ReceivedRequest { line, head, body } = request;
    let text = format!("{line}\r\n{head}\r\nconnection: close\r\n\r\n{body}");
    if server.write_all(text.as_bytes()).await.is_err() {
        return;
    }
    let (mut from_client, mut to_client) = socket.split();
    let (mut from_server, _to_server) = server.split();
    let mut byte = [0];
    // A closed client connection ends the watch.
    tokio::select! {
        _ = tokio::io::copy(&mut from_server, &mut to_client) => drop(to_client.shutdown().await),
        _ = from_client.read(&mut byte) => {}
    }
}
