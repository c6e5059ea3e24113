//! Detects whether the peer of a connection speaks HTTP/2: its first frame, SETTINGS, must arrive (RFC 9113, 3.4).
//! Until then the server is not connected, as in gRPC clients.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use model::redact::chain;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

/// The size of the length field of a frame, in bytes.
const LENGTH: usize = 3;

/// The size of a frame header, in bytes.
const HEADER: usize = 9;

/// The first frame has arrived, or the reason why it never will.
pub(super) type ServerPreface = Result<(), String>;

/// A connection that reports when the first frame of the peer was read.
pub(super) struct WithPreface<Io> {
    io: Io,
    /// Taken when the result is sent.
    sender: Option<oneshot::Sender<ServerPreface>>,
    /// The first bytes that were read.
    head: Vec<u8>,
    read: usize,
}

impl<Io> WithPreface<Io> {
    /// Returns a connection from which nothing was read yet.
    pub fn new(io: Io, sender: oneshot::Sender<ServerPreface>) -> WithPreface<Io> {
        WithPreface { io, sender: Some(sender), head: Vec::with_capacity(LENGTH), read: 0 }
    }

    fn on_read(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            self.report(Err("the server closed the connection before it spoke HTTP/2".to_owned()));
            return;
        }
        self.read += bytes.len();
        self.head.extend(bytes.iter().take(LENGTH - self.head.len()));
        if let &[high, middle, low] = self.head.as_slice()
            && self.read >= HEADER + usize::from(high) * 65_536 + usize::from(middle) * 256 + usize::from(low)
        {
            self.report(Ok(()));
        }
    }

    fn report(&mut self, preface: ServerPreface) {
        if let Some(sender) = self.sender.take() {
            // Without a receiver, the connection has been given up.
            drop(sender.send(preface));
        }
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for WithPreface<Io> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut this.io).poll_read(context, buffer));
        if this.sender.is_some() {
            match &read {
                Ok(()) => this.on_read(buffer.filled().get(before..).unwrap_or_default()),
                Err(error) => this.report(Err(chain(error))),
            }
        }
        Poll::Ready(read)
    }
}

impl<Io: AsyncWrite + Unpin> AsyncWrite for WithPreface<Io> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::sync::oneshot::error::TryRecvError;

    use super::*;

    /// SETTINGS with one setting.
    const SETTINGS: [u8; 15] = [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 100];

    #[tokio::test]
    async fn x2_the_preface_is_found_byte_by_byte() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let (sender, mut preface) = oneshot::channel();
        let mut io = WithPreface::new(ours, sender);
        for byte in SETTINGS {
            assert_eq!(preface.try_recv(), Err(TryRecvError::Empty));
            theirs.write_u8(byte).await.unwrap();
            assert_eq!(io.read_u8().await.unwrap(), byte, "nothing is kept back");
        }
        assert_eq!(preface.try_recv(), Ok(Ok(())));
        theirs.write_u8(7).await.unwrap();
        assert_eq!(io.read_u8().await.unwrap(), 7);
    }

    #[tokio::test]
    async fn x2_an_end_within_the_preface_is_an_error() {
        let (ours, mut theirs) = tokio::io::duplex(64);
        let (sender, preface) = oneshot::channel();
        let mut io = WithPreface::new(ours, sender);
        theirs.write_all(&SETTINGS[..14]).await.unwrap();
        drop(theirs);
        io.read_to_end(&mut Vec::new()).await.unwrap();
        assert!(preface.await.unwrap().unwrap_err().contains("before it spoke HTTP/2"));
    }
}
