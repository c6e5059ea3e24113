//! A server on loopback with one scripted reply per connection, and a transport that redirects https requests to it.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use azure_core::http::{AsyncRawResponse, HttpClient, Method, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::transport::HttpTransport;

/// Reply to one request.
pub(super) enum Reply {
    /// Sends these bytes and closes.
    Raw(String),
    /// Sends nothing until the client closes.
    Never,
    /// Closes without an answer.
    Hangup,
}

/// Returns an answer with a body.
pub(super) fn reply(status: u16, headers: &str, body: &str) -> Reply {
    let length = body.len();
    Reply::Raw(format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
    ))
}

/// A request as the server received it.
#[derive(Debug)]
pub(super) struct Received {
    pub(super) line: String,
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

pub(super) struct Server {
    pub(super) address: SocketAddr,
    requests: UnboundedReceiver<Received>,
}

impl Server {
    /// Serves as many requests as there are replies, then refuses connections.
    pub(super) async fn start(replies: Vec<Reply>) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, requests) = unbounded_channel();
        drop(tokio::spawn(async move {
            for reply in replies {
                let (mut socket, _) = listener.accept().await.unwrap();
                sender.send(receive(&mut socket).await).unwrap();
                match reply {
                    Reply::Raw(text) => socket.write_all(text.as_bytes()).await.unwrap(),
                    Reply::Never => while socket.read(&mut [0; 64]).await.is_ok_and(|n| n > 0) {},
                    Reply::Hangup => {}
                }
            }
        }));
        Server { address, requests }
    }

    pub(super) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the next request; `None` if there was no other.
    pub(super) fn received(&mut self) -> Option<Received> {
        self.requests.try_recv().ok()
    }
}

async fn receive(socket: &mut TcpStream) -> Received {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let head = head.to_owned();
            let length = headers(&head).get("content-length").map_or(0, |n| n.parse().unwrap());
            break (head, length);
        }
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "the request broke off");
    };
    while bytes.len() < head.len() + 4 + length {
        assert_ne!(socket.read_buf(&mut bytes).await.unwrap(), 0, "the body broke off");
    }
    Received {
        line: head.lines().next().unwrap().to_owned(),
        headers: headers(&head),
        body: String::from_utf8(bytes[head.len() + 4..].to_vec()).unwrap(),
    }
}

fn headers(head: &str) -> BTreeMap<String, String> {
    let lines = head.lines().skip(1).filter_map(|line| line.split_once(": "));
    lines.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect()
}

/// Redirects requests for any https host, and for the instance metadata service, to a server on loopback; the host
/// stays in the header `x-meant-for`.
pub(super) struct Detour<F> {
    pub(super) inner: HttpTransport,
    pub(super) to: SocketAddr,
    /// Called with the method before each request.
    pub(super) on_request: F,
}

impl<F> std::fmt::Debug for Detour<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Detour")
    }
}

#[async_trait::async_trait]
impl<F: Fn(Method) + Send + Sync> HttpClient for Detour<F> {
    async fn execute_request(&self, request: &Request) -> azure_core::Result<AsyncRawResponse> {
        (self.on_request)(request.method());
        let mut request = request.clone();
        let host = request.url().host_str().unwrap().to_owned();
        let plain = host == "169.254.169.254";
        assert_eq!(request.url().scheme(), if plain { "http" } else { "https" });
        request.insert_header("x-meant-for", host);
        let url = request.url_mut();
        url.set_scheme("http").unwrap();
        url.set_ip_host(self.to.ip()).unwrap();
        url.set_port(Some(self.to.port())).unwrap();
        self.inner.execute_request(&request).await
    }
}
