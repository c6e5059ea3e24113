//! A port that stays reserved for this server while it does not listen.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use rustix::net::Shutdown;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// Number of connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// A bound address: the system gives its port to no other program, and refuses connections while the server does not
/// listen.
pub(super) struct Port {
    /// The address; its port is never 0.
    pub(super) address: SocketAddr,
    _bound: TcpSocket,
}

impl Port {
    /// Binds a free port of the loopback interface.
    ///
    /// # Errors
    /// None is free.
    pub(super) fn reserve() -> io::Result<Self> {
        let bound = socket()?;
        bound.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { address: bound.local_addr()?, _bound: bound })
    }

    /// Listens on the address, in addition to the socket that is only bound.
    ///
    /// # Errors
    /// The system refuses it.
    pub(super) fn listen(&self) -> io::Result<Listener> {
        let socket = socket()?;
        // Connections of an earlier listener may not have ended.
        socket.set_reuseaddr(true)?;
        socket.bind(self.address)?;
        socket.listen(BACKLOG).map(Listener)
    }
}

/// A listener that ends when it is dropped. A child process that is being started has a copy of each descriptor until
/// it executes its program: closing only our descriptor leaves the port open until then.
pub(super) struct Listener(TcpListener);

impl Listener {
    pub(super) async fn accept(&self) -> io::Result<TcpStream> {
        self.0.accept().await.map(|(socket, _)| socket)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Only a shutdown ends the copies too.
        rustix::net::shutdown(&self.0, Shutdown::Both).ok();
    }
}

/// Opens a socket that shares its port only with other sockets of this function.
fn socket() -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseport(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use super::*;

    #[tokio::test]
    async fn a_port_without_a_listener_refuses_and_stays_reserved() {
        let port = Port::reserve().expect("loopback has free ports");
        let listener = port.listen().expect("it is ours");
        TcpStream::connect(port.address).await.expect("there is a listener");
        let copy_of_a_child = listener.0.as_fd().try_clone_to_owned().expect("a descriptor");

        drop(listener);

        let refused = TcpStream::connect(port.address).await.map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(io::ErrorKind::ConnectionRefused));
        let other = TcpListener::bind(port.address).await.map_err(|error| error.kind());
        assert_eq!(other.err(), Some(io::ErrorKind::AddrInUse));
        port.listen().expect("it is still ours");
        drop(copy_of_a_child);
    }
}
