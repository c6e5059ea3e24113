//! The handshake with a proxy: HTTP CONNECT and SOCKS5 (RFC 1928, RFC 1929). It reads no byte beyond the answer of the
//! proxy, because a server may send first, as with HTTP/2.

use std::io;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::stream::Duplex;
use crate::url::{Login, bare_host};

/// The longest answer of an HTTP proxy, in bytes.
const MAX_ANSWER: usize = 16 << 10;

/// Reasons why a proxy opened no tunnel.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    /// The connection to the proxy failed.
    #[error("the connection to the proxy ended")]
    Io(#[source] io::Error),
    /// The proxy refused.
    #[error("{0}")]
    Refused(String),
}

fn refused<T>(reason: impl Into<String>) -> Result<T, TunnelError> {
    Err(TunnelError::Refused(reason.into()))
}

/// Asks an HTTP proxy for a tunnel to this host, an IPv6 address in brackets.
pub(crate) async fn connect(
    io: &mut impl Duplex,
    (host, port): (&str, u16),
    login: Option<&Login>,
) -> Result<(), TunnelError> {
    let mut request = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n");
    if let Some(Login { user, password }) = login {
        let credentials = STANDARD.encode([user, &b":"[..], password].concat());
        request.push_str(&format!("Proxy-Authorization: Basic {credentials}\r\n"));
    }
    request.push_str("\r\n");
    io.write_all(request.as_bytes()).await.map_err(TunnelError::Io)?;
    io.flush().await.map_err(TunnelError::Io)?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        answer.push(io.read_u8().await.map_err(TunnelError::Io)?);
        if answer.len() > MAX_ANSWER {
            return refused("its answer to CONNECT is too long");
        }
    }
    let line = answer.split(|byte| *byte == b'\r').next().map(String::from_utf8_lossy).unwrap_or_default();
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)?.parse::<u16>().ok());
    match status {
        Some(200..=299) => Ok(()),
        Some(407) if login.is_none() => {
            refused("HTTP 407: it requires a user and password; write them into its address")
        }
        Some(407) => refused("HTTP 407: it refuses the user and password in its address"),
        Some(status) => refused(format!("it answered CONNECT with HTTP {status}")),
        None => refused("its answer to CONNECT is not HTTP; check its scheme and port"),
    }
}

/// The reasons in SOCKS5 replies, by their number.
const REPLIES: [&str; 8] = [
    "general failure",
    "connection not allowed",
    "network unreachable",
    "host unreachable",
    "connection refused",
    "TTL expired",
    "command not supported",
    "address type not supported",
];

const NO_LOGIN: u8 = 0;
const PASSWORD: u8 = 2;

/// Asks a SOCKS5 proxy for a connection to this host. The proxy resolves names.
pub(crate) async fn socks5(
    io: &mut impl Duplex,
    (host, port): (&str, u16),
    login: Option<&Login>,
) -> Result<(), TunnelError> {
    let methods: &[u8] = if login.is_some() { &[5, 2, NO_LOGIN, PASSWORD] } else { &[5, 1, NO_LOGIN] };
    io.write_all(methods).await.map_err(TunnelError::Io)?;
    io.flush().await.map_err(TunnelError::Io)?;
    match (read::<2>(io).await?, login) {
        ([5, NO_LOGIN], _) => {}
        ([5, PASSWORD], Some(Login { user, password })) => {
            let length = |text: &[u8]| u8::try_from(text.len()).unwrap_or(u8::MAX);
            let ask = [&[1, length(user)], user.as_slice(), &[length(password)], password].concat();
            io.write_all(&ask).await.map_err(TunnelError::Io)?;
            io.flush().await.map_err(TunnelError::Io)?;
            if read::<2>(io).await?[1] != 0 {
                return refused("it refuses the user and password in its address");
            }
        }
        ([5, _], None) => return refused("it requires a user and password; write them into its address"),
        ([5, _], Some(_)) => return refused("it takes no user and password"),
        _ => return refused("its answer is not SOCKS5; check its scheme and port"),
    }
    let mut ask = vec![5, 1, 0];
    match bare_host(host).parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => {
            ask.push(1);
            ask.extend(address.octets());
        }
        Ok(IpAddr::V6(address)) => {
            ask.push(4);
            ask.extend(address.octets());
        }
        Err(_) => {
            let Ok(length) = u8::try_from(host.len()) else {
                return refused("the name is too long for SOCKS5");
            };
            ask.extend([3, length]);
            ask.extend(host.as_bytes());
        }
    }
    ask.extend(port.to_be_bytes());
    io.write_all(&ask).await.map_err(TunnelError::Io)?;
    io.flush().await.map_err(TunnelError::Io)?;
    let [_, reply, _, kind] = read::<4>(io).await?;
    if reply != 0 {
        let reason = REPLIES.get(usize::from(reply) - 1).copied().unwrap_or("unknown failure");
        return refused(format!("SOCKS5 reply {reply}: {reason}"));
    }
    let length = match kind {
        1 => 4,
        4 => 16,
        3 => usize::from(read::<1>(io).await?[0]),
        _ => return refused("its answer is not SOCKS5; check its scheme and port"),
    };
    let mut bound = vec![0; length + 2];
    io.read_exact(&mut bound).await.map_err(TunnelError::Io)?;
    Ok(())
}

async fn read<const N: usize>(io: &mut impl Duplex) -> Result<[u8; N], TunnelError> {
    let mut bytes = [0; N];
    io.read_exact(&mut bytes).await.map_err(TunnelError::Io)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    fn login() -> Login {
        Login { user: b"user".to_vec(), password: b"pass".to_vec() }
    }

    /// Returns the bytes that the client sends to a proxy that answers like this, the outcome, and the unread bytes.
    async fn http(answer: &str, login: Option<&Login>) -> (String, Result<(), String>, String) {
        let (mut ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(answer.as_bytes()).await.unwrap();
        theirs.shutdown().await.unwrap();
        let outcome = connect(&mut ours, ("[fd00::1]", 6443), login).await.map_err(|error| error.to_string());
        let (mut rest, mut sent) = (String::new(), String::new());
        ours.read_to_string(&mut rest).await.unwrap();
        drop(ours);
        theirs.read_to_string(&mut sent).await.unwrap();
        (sent, outcome, rest)
    }

    #[tokio::test]
    async fn connect_reads_no_byte_of_the_server() {
        let (sent, outcome, rest) = http("HTTP/1.1 200 Yes\r\nVia: x\r\n\r\nhello", Some(&login())).await;
        assert_eq!((outcome, rest.as_str()), (Ok(()), "hello"));
        let expected = "CONNECT [fd00::1]:6443 HTTP/1.1\r\nHost: [fd00::1]:6443\r\n\
                        Proxy-Authorization: Basic dXNlcjpwYXNz\r\n\r\n";
        assert_eq!(sent, expected);
    }

    #[tokio::test]
    async fn a_refusal_of_connect_has_a_remedy() {
        for (answer, reason) in [
            ("HTTP/1.1 407 Who\r\n\r\n", "requires a user and password"),
            ("HTTP/1.0 403 No\r\n\r\n", "HTTP 403"),
            ("SSH-2.0-x\r\n\r\n", "not HTTP"),
            ("HTTP/1.1 200 Y", "ended"),
        ] {
            let (_, outcome, _) = http(answer, None).await;
            assert!(outcome.as_ref().is_err_and(|error| error.contains(reason)), "{answer}: {outcome:?}");
        }
    }

    async fn socks(
        answer: &[u8],
        host: &str,
        login: Option<&Login>,
    ) -> (Vec<u8>, Result<(), String>, Vec<u8>) {
        let (mut ours, mut theirs) = duplex(1 << 16);
        theirs.write_all(answer).await.unwrap();
        theirs.shutdown().await.unwrap();
        let outcome = socks5(&mut ours, (host, 258), login).await.map_err(|error| error.to_string());
        let (mut rest, mut sent) = (Vec::new(), Vec::new());
        ours.read_to_end(&mut rest).await.unwrap();
        drop(ours);
        theirs.read_to_end(&mut sent).await.unwrap();
        (sent, outcome, rest)
    }

    #[tokio::test]
    async fn socks5_lets_the_proxy_resolve_names() {
        let (sent, outcome, rest) =
            socks(b"\x05\x00\x05\x00\x00\x01\x0a\0\0\x01\0\x50hi", "api.test", None).await;
        assert_eq!((outcome, rest.as_slice()), (Ok(()), &b"hi"[..]));
        assert_eq!(sent, b"\x05\x01\x00\x05\x01\x00\x03\x08api.test\x01\x02");
        let (sent, outcome, _) = socks(b"\x05\x00\x05\x00\x00\x03\x01a\0\0", "[::1]", None).await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(sent[3..], *b"\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\x02");
    }

    #[tokio::test]
    async fn socks5_authenticates_on_request() {
        let answer = b"\x05\x02\x01\x00\x05\x00\x00\x01\0\0\0\0\0\0";
        let (sent, outcome, _) = socks(answer, "10.0.0.1", Some(&login())).await;
        assert_eq!(outcome, Ok(()));
        assert_eq!(sent, b"\x05\x02\x00\x02\x01\x04user\x04pass\x05\x01\x00\x01\x0a\0\0\x01\x01\x02");
    }

    #[tokio::test]
    async fn a_refusal_of_socks5_has_its_reason() {
        for (answer, login, reason) in [
            (&b"\x05\xff"[..], None, "requires a user and password"),
            (b"\x05\x02\x01\x01", Some(&login()), "refuses the user"),
            (b"\x05\x00\x05\x05\x00\x01", None, "connection refused"),
            (b"\x05\x00\x05\x99\x00\x01", None, "reply 153"),
            (b"HTTP/1.1 400", None, "not SOCKS5"),
            (b"\x05", None, "ended"),
        ] {
            let (_, outcome, _) = socks(answer, "api.test", login).await;
            assert!(outcome.as_ref().is_err_and(|error| error.contains(reason)), "{answer:?}: {outcome:?}");
        }
    }
}
