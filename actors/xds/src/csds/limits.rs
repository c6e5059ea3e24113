//! Bounds what clients of CSDS cost (H5): their connections, the requests on each, and the large answers that wait to
//! be read.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::ready;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt, stream};
use http_body_util::{BodyStream, StreamBody};
use hyper::body::{Body as _, Frame};
use model::redact::chain;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tokio_util::task::AbortOnDropHandle;
use tonic::Extensions;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::transport::Server;
use tonic::transport::server::Connected;

/// Maximum size of a request, in bytes. A request without `node_matchers` has 2.
pub(super) const MAX_REQUEST: usize = 16 << 10;
/// Maximum number of connections. One more ends the oldest, so that idle clients do not keep out others.
pub(super) const MAX_CONNECTIONS: usize = 32;
/// Maximum number of requests at a time on a connection.
pub(super) const MAX_STREAMS: u32 = 4;
/// Bytes that a client may send before they are handled: HTTP/2's default.
const WINDOW: u32 = 65_535;
/// Maximum size of headers, in bytes.
const MAX_HEADERS: u32 = 8 << 10;
/// An answer with more bytes of resources is large.
const LARGE: usize = 64 << 10;
/// Maximum number of large answers that wait to be read.
pub(super) const MAX_LARGE: usize = 4;
/// Maximum number of bytes of an answer that are passed to its connection at a time.
const PIECE: usize = 16 << 10;
/// Time limit for reading a large answer.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// Delay before the next try if the system returns no connection.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Returns a server with these limits.
pub(super) fn server() -> Server {
    Server::builder()
        .http2_keepalive_interval(Some(Duration::from_secs(30)))
        .max_concurrent_streams(MAX_STREAMS)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .http2_max_header_list_size(MAX_HEADERS)
}

/// Returns the connections of a listener.
pub(super) fn connections(listener: TcpListener) -> impl Stream<Item = io::Result<Connection>> {
    let open = VecDeque::<CancellationToken>::new();
    stream::unfold((listener, open), |(listener, mut open)| async move {
        let stream = loop {
            match listener.accept().await {
                Ok((stream, _)) => break stream,
                Err(error) => {
                    tracing::debug!(error = chain(&error), "no connection for a client of CSDS");
                    tokio::time::sleep(ACCEPT_AGAIN_AFTER).await;
                }
            }
        };
        // Without this option, answers may be delayed.
        drop(stream.set_nodelay(true));
        open.retain(|end| !end.is_cancelled());
        if open.len() >= MAX_CONNECTIONS
            && let Some(oldest) = open.pop_front()
        {
            oldest.cancel();
        }
        let end = CancellationToken::new();
        open.push_back(end.clone());
        let ended = Box::pin(end.clone().cancelled_owned());
        Some((Ok(Connection { stream, end: ConnectionEnd(end), ended }), (listener, open)))
    })
}

/// A connection, which can be ended from outside.
pub(super) struct Connection {
    stream: TcpStream,
    end: ConnectionEnd,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
}

/// Ends a connection. Each request of a connection has this handle in its extensions.
#[derive(Clone)]
pub(super) struct ConnectionEnd(CancellationToken);

impl Connection {
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.ended.poll_unpin(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(()),
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.end.0.cancel();
    }
}

impl Connected for Connection {
    type ConnectInfo = ConnectionEnd;

    fn connect_info(&self) -> ConnectionEnd {
        self.end.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(context)?;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// Permits of large answers.
#[derive(Clone)]
pub(super) struct LargeAnswers(Arc<Semaphore>);

impl Default for LargeAnswers {
    fn default() -> LargeAnswers {
        LargeAnswers(Arc::new(Semaphore::new(MAX_LARGE)))
    }
}

/// The permit of a large answer, until it has been read. After [`READ_TIMEOUT`], its connection ends.
#[derive(Clone)]
pub(super) struct AnswerPermit(#[expect(dead_code, reason = "what is held")] Arc<AcquiredPermit>);

struct AcquiredPermit {
    _permit: OwnedSemaphorePermit,
    _deadline: AbortOnDropHandle<()>,
}

impl LargeAnswers {
    /// Takes a permit for an answer with this number of bytes of resources; a small answer needs none.
    ///
    /// # Errors
    /// All permits are taken.
    pub fn permit(
        &self,
        contents: usize,
        connection: &Extensions,
    ) -> Result<Option<AnswerPermit>, tonic::Status> {
        if contents <= LARGE {
            return Ok(None);
        }
        let permit = Arc::clone(&self.0).try_acquire_owned().map_err(|_| {
            tonic::Status::resource_exhausted(format!(
                "{MAX_LARGE} large responses wait for their clients to read them: retry, or set \
                 exclude_resource_contents"
            ))
        })?;
        let end = connection.get::<ConnectionEnd>().cloned();
        let deadline = tokio::spawn(async move {
            tokio::time::sleep(READ_TIMEOUT).await;
            if let Some(ConnectionEnd(end)) = end {
                end.cancel();
            }
        });
        let taken = AcquiredPermit { _permit: permit, _deadline: AbortOnDropHandle::new(deadline) };
        Ok(Some(AnswerPermit(Arc::new(taken))))
    }
}

/// Makes a permit last as long as the response with these extensions, which [`PermittedService`] serves.
pub(super) fn hold(permit: Option<AnswerPermit>, response: &mut Extensions) {
    if let Some(permit) = permit {
        response.insert(permit);
    }
}

/// A service whose responses are sent in pieces, and hold their permits until the last piece.
#[derive(Clone)]
pub(super) struct PermittedService<S>(pub S);

impl<S> Service<http::Request<Body>> for PermittedService<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let response = self.0.call(request);
        async move {
            let mut response = response.await?;
            let permit = response.extensions_mut().remove::<AnswerPermit>();
            Ok(response.map(|body| in_pieces(body, permit)))
        }
        .boxed()
    }
}

/// Returns a body that passes one piece at a time to the transport. The transport requests the next piece when the
/// client has read most of the earlier ones.
fn in_pieces(body: Body, permit: Option<AnswerPermit>) -> Body {
    if body.is_end_stream() {
        return body;
    }
    let frames = BodyStream::new(body).flat_map(move |frame| {
        let _held = &permit;
        match frame.map(Frame::into_data) {
            Ok(Ok(mut left)) => {
                let piece = move || (!left.is_empty()).then(|| left.split_to(left.len().min(PIECE)));
                let pieces = std::iter::from_fn(piece).map(|piece| Ok(Frame::data(piece)));
                stream::iter(pieces).left_stream()
            }
            Ok(Err(trailers)) => stream::once(ready(Ok(trailers))).right_stream(),
            Err(status) => stream::once(ready(Err(status))).right_stream(),
        }
    });
    Body::new(StreamBody::new(frames))
}
