//! A small HTTP server for tests that answers with given bytes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Ways in which a server, or a proxy in front of it, answers 200 and sends nothing: an empty body, an empty chunked
/// body, one empty line, a connection that is closed, and one that breaks.
pub(super) const EMPTY: [&str; 5] = [
    "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n1\r\n\n\r\n0\r\n\r\n",
    "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n",
];

/// Answers each request according to its first line, and closes the connection unless `keep_open`. Returns the URL.
pub(super) async fn serve(answer: impl Fn(&str) -> String + Send + 'static, keep_open: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    drop(tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let Some(line) = request(&mut socket).await else { continue };
            let sent = socket.write_all(answer(&line).as_bytes()).await;
            let mut rest = Vec::new();
            while keep_open && sent.is_ok() && socket.read_buf(&mut rest).await.is_ok_and(|read| read > 0) {}
        }
    }));
    url
}

/// Reads a whole request and returns its first line; `None` if the client has closed the connection.
async fn request(socket: &mut TcpStream) -> Option<String> {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|end| end == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&read[..end]).to_ascii_lowercase();
            let length =
                head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
            if read.len() >= end + 4 + length.unwrap_or(0) {
                return Some(String::from_utf8_lossy(&read).lines().next()?.to_owned());
            }
        }
        if socket.read_buf(&mut read).await.ok()? == 0 {
            return None;
        }
    }
}
