//! A port that stays reserved for this server while it does not listen.

use std::io;
use std::net::SocketAddr;

use tokio::net::{TcpListener, TcpSocket};

/// Number of connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// A bound address: no other socket gets its port, and connections are refused while the server does not listen.
pub(super) struct Port {
    /// The address; its port is never 0.
    pub(super) address: SocketAddr,
    _bound: TcpSocket,
}

impl Port {
    /// Binds the address; port 0 selects a free port.
    ///
    /// # Errors
    /// The address is in use, or is not an address of this machine.
    pub(super) fn reserve(address: SocketAddr) -> io::Result<Self> {
        let bound = bind(address)?;
        Ok(Self { address: bound.local_addr()?, _bound: bound })
    }

    /// Listens on the address with another socket. It can be called again after the listener is closed.
    ///
    /// # Errors
    /// There is a listener already.
    pub(super) fn listen(&self) -> io::Result<TcpListener> {
        bind(self.address)?.listen(BACKLOG)
    }
}

fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpStream;

    use super::*;

    #[tokio::test]
    async fn a_port_without_a_listener_refuses_and_stays_reserved() {
        let port = Port::reserve(([127, 0, 0, 1], 0).into()).expect("loopback has free ports");
        let listener = port.listen().expect("it is ours");
        TcpStream::connect(port.address).await.expect("there is a listener");
        assert!(port.listen().is_err(), "one listener at a time");

        drop(listener);

        let refused = TcpStream::connect(port.address).await.map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(io::ErrorKind::ConnectionRefused));
        let stranger = TcpSocket::new_v4().expect("a socket");
        let taken = stranger.bind(port.address).map_err(|error| error.kind());
        assert_eq!(taken.err(), Some(io::ErrorKind::AddrInUse));
        port.listen().expect("it is still ours");
    }
}
