//! A proxy on loopback: an HTTP proxy that opens tunnels for CONNECT, or a SOCKS5 server. It resolves every name to
//! this machine, and records the requested targets.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

/// User and password of a gateway that requires them.
pub const LOGIN: &str = "operator:planted-for-proxies";
const LOGIN_BASE64: &str = "b3BlcmF0b3I6cGxhbnRlZC1mb3ItcHJveGllcw==";

/// The protocol of a gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speaks {
    /// HTTP.
    Http,
    /// HTTP; it requires [`LOGIN`].
    HttpWithLogin,
    /// SOCKS5.
    Socks5,
    /// SOCKS5; it requires [`LOGIN`].
    Socks5WithLogin,
}

/// A running gateway. It stops when this value is dropped.
pub struct Gateway {
    pub address: SocketAddr,
    targets: watch::Receiver<Vec<String>>,
    listening: AbortHandle,
}

impl Gateway {
    /// Listens on loopback, on the current runtime.
    pub async fn start(speaks: Speaks) -> Self {
        Self::start_with(speaks, None).await
    }

    /// Listens like [`Gateway::start`], with TLS to its clients.
    pub async fn secured(speaks: Speaks, tls: TlsAcceptor) -> Self {
        Self::start_with(speaks, Some(tls)).await
    }

    async fn start_with(speaks: Speaks, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("loopback has free ports");
        let address = listener.local_addr().expect("a bound listener has an address");
        let (account, targets) = watch::channel(Vec::new());
        let listening = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (tls, account) = (tls.clone(), account.clone());
                drop(tokio::spawn(async move {
                    match tls {
                        None => serve(client, speaks, account).await,
                        Some(tls) => serve(tls.accept(client).await.ok()?, speaks, account).await,
                    }
                }));
            }
        });
        Self { address, targets, listening: listening.abort_handle() }
    }

    /// Returns the targets of its tunnels so far as `host:port`, one per tunnel.
    pub fn targets(&self) -> Vec<String> {
        self.targets.borrow().clone()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    mut client: S,
    speaks: Speaks,
    account: watch::Sender<Vec<String>>,
) -> Option<()> {
    let target = match speaks {
        Speaks::Http => http(&mut client, false).await?,
        Speaks::HttpWithLogin => http(&mut client, true).await?,
        Speaks::Socks5 => socks5(&mut client, false).await?,
        Speaks::Socks5WithLogin => socks5(&mut client, true).await?,
    };
    let port = target.rsplit_once(':')?.1.parse::<u16>().ok()?;
    account.send_modify(|targets| targets.push(target));
    let mut server = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    let answer: &[u8] = match speaks {
        Speaks::Http | Speaks::HttpWithLogin => b"HTTP/1.1 200 Connection established\r\n\r\n",
        Speaks::Socks5 | Speaks::Socks5WithLogin => b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00",
    };
    client.write_all(answer).await.ok()?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok().map(drop)
}

async fn http<S: AsyncRead + AsyncWrite + Unpin>(client: &mut S, asks: bool) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    if asks && !head.contains(&format!("Proxy-Authorization: Basic {LOGIN_BASE64}\r\n")) {
        let answer = "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n";
        client.write_all(answer.as_bytes()).await.ok()?;
        return None;
    }
    Some(head.strip_prefix("CONNECT ")?.split_once(' ')?.0.to_owned())
}

async fn socks5<S: AsyncRead + AsyncWrite + Unpin>(client: &mut S, asks: bool) -> Option<String> {
    let mut count = [0; 2];
    client.read_exact(&mut count).await.ok()?;
    text(client, count[1]).await?;
    client.write_all(&[5, if asks { 2 } else { 0 }]).await.ok()?;
    if asks {
        client.read_u8().await.ok()?;
        let length = client.read_u8().await.ok()?;
        let user = text(client, length).await?;
        let length = client.read_u8().await.ok()?;
        let password = text(client, length).await?;
        let is_right = format!("{user}:{password}") == LOGIN;
        client.write_all(&[1, u8::from(!is_right)]).await.ok()?;
        if !is_right {
            return None;
        }
    }
    let mut head = [0; 4];
    client.read_exact(&mut head).await.ok()?;
    let host = match head[3] {
        1 => Ipv4Addr::from(client.read_u32().await.ok()?).to_string(),
        _ => {
            let length = client.read_u8().await.ok()?;
            text(client, length).await?
        }
    };
    Some(format!("{host}:{}", client.read_u16().await.ok()?))
}

async fn text<S: AsyncRead + Unpin>(client: &mut S, length: u8) -> Option<String> {
    let mut bytes = vec![0; length.into()];
    client.read_exact(&mut bytes).await.ok()?;
    String::from_utf8(bytes).ok()
}
