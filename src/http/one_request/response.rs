//! Adds headers to every response (docs/design/surface.md, H1-H5), including those that the HTTP server itself sends to
//! incomplete, invalid or oversized requests.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use actix_web::web::BytesMut;
use tokio::io::AsyncWrite;

/// Headers that are inserted after the status line.
const HEADERS: &[u8] = b"x-content-type-options: nosniff\r\ncache-control: no-store\r\n";
/// Start of the status line of an interim response such as `100 Continue`, which gets no headers.
const INTERIM: &[u8] = b"HTTP/1.1 1";
/// Maximum bytes accepted per write until the status line is complete.
const AT_ONCE: usize = 4 << 10;

/// Buffers a response until its status line is complete, and inserts the headers.
#[derive(Default)]
pub(super) struct ResponseStart {
    /// Buffered bytes.
    unwritten: BytesMut,
    /// Offset in `unwritten` of the first incomplete line. The bytes before it can be written.
    line: usize,
    /// Whether the headers have been inserted.
    has_headers: bool,
}

impl ResponseStart {
    /// Writes the buffered bytes, then the next bytes of the response.
    pub(super) fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.has_headers {
            ready!(self.poll_flush(stream, cx))?;
            return Pin::new(stream).poll_write(cx, from);
        }
        let taken = &from[..from.len().min(AT_ONCE)];
        self.take(taken);
        if self.has_headers
            && let Poll::Ready(Err(error)) = self.poll_flush(stream, cx)
        {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(taken.len()))
    }

    /// Writes the buffered bytes, except an incomplete status line.
    pub(super) fn poll_flush<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.line > 0 {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &self.unwritten[..self.line]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => {
                    self.line -= count;
                    drop(self.unwritten.split_to(count));
                }
            }
        }
        if self.has_headers {
            self.unwritten = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Buffers the next bytes, and inserts the headers after the status line.
    fn take(&mut self, bytes: &[u8]) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.unwritten.extend_from_slice(line);
            if !self.has_headers && line.ends_with(b"\n") {
                let whole = &self.unwritten[self.line..];
                if !whole.starts_with(INTERIM) && whole != b"\r\n" {
                    self.unwritten.extend_from_slice(HEADERS);
                    self.has_headers = true;
                }
                self.line = self.unwritten.len();
            }
        }
        if self.has_headers {
            self.line = self.unwritten.len();
        }
    }
}
