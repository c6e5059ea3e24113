//! A TCP proxy on loopback that can be blocked: no data passes in either direction, and no side gets an error, as with
//! dropped packets.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// A running proxy. Dropping this value stops it.
pub struct Proxy {
    address: SocketAddr,
    open: watch::Sender<bool>,
    listening: AbortHandle,
}

impl Proxy {
    /// Starts an open proxy in front of this address, on the current runtime.
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has free ports");
        let address = listener.local_addr().expect("a bound listener has an address");
        let (open, opened) = watch::channel(true);
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                drop(tokio::spawn(connect(client, target, opened.clone())));
            }
        });
        Self { address, open, listening: listening.abort_handle() }
    }

    /// Returns the proxy's address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Blocks all traffic from now on.
    pub fn cut(&self) {
        self.open.send_replace(false);
    }

    /// Forwards waiting and new traffic again.
    pub fn mend(&self) {
        self.open.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn connect(client: TcpStream, target: SocketAddr, mut open: watch::Receiver<bool>) {
    // The client's connection is established, but no data passes.
    if open.wait_for(|open| *open).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(target).await else { return };
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let forth = tokio::spawn(carry(from_client, to_server, open.clone()));
    carry(from_server, to_client, open).await;
    forth.abort();
}

/// Forwards bytes in one direction while the proxy is open, until either end closes or the proxy is dropped.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut open: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let Ok(count) = from.read(&mut buffer).await else { return };
        if open.wait_for(|open| *open).await.is_err() {
            return;
        }
        if count == 0 {
            // The other side may still send data.
            drop(to.shutdown().await);
            return;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
