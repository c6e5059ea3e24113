//! The gRPC transport: connections that can be frozen and aborted, and the only method of ADS with messages as bytes,
//! so that any bytes can be sent. `plane` decides about the messages of streams.

use std::convert::Infallible;
use std::future::Future;
use std::pin::{Pin, pin};

use futures::Stream;
use futures::stream::{self, StreamExt};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::bytes::{Buf, BufMut, Bytes};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_rustls::TlsAcceptor;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, StreamingService};
use tonic::{Request, Response, Status, Streaming};

use super::plane::Plane;
use super::port::Listener;
use super::stream::Never;
use crate::owner::Owner;

/// The path of the only method.
pub(super) const METHOD: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";

type Replies = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

/// Accepts connections until the task is ended.
pub(super) async fn accept(listener: Listener, plane: Owner<Plane>, tls: Option<TlsAcceptor>) {
    loop {
        // A connection that ended before it was accepted is ignored.
        let Ok(socket) = listener.accept().await else { continue };
        if socket.set_nodelay(true).is_ok() {
            let (owner, tls) = (plane.clone(), tls.clone());
            plane.send(move |plane, _| {
                plane.connect(socket, tls, owner);
            });
        }
    }
}

/// Serves one connection to its end; while frozen, it transfers nothing.
pub(super) async fn serve<IO>(
    io: IO,
    tls: Option<TlsAcceptor>,
    plane: Owner<Plane>,
    mut frozen: watch::Receiver<bool>,
) where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut serving = pin!(async move {
        match tls {
            None => speak(io, plane).await,
            Some(tls) => {
                if let Ok(io) = tls.accept(io).await {
                    speak(io, plane).await;
                }
            }
        }
    });
    loop {
        let is_frozen = *frozen.borrow_and_update();
        // A frozen connection sends nothing, not even data that is ready.
        tokio::select! {
            biased;
            changed = frozen.changed() => if changed.is_err() { return },
            () = &mut serving, if !is_frozen => return,
        }
    }
}

/// Serves HTTP/2 on a connection.
async fn speak<IO>(io: IO, plane: Owner<Plane>)
where
    IO: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = service_fn(move |request: http::Request<Incoming>| {
        let plane = plane.clone();
        async move {
            if request.uri().path() == METHOD {
                return Ok::<_, Infallible>(Grpc::new(Raw).streaming(Ads { plane }, request).await);
            }
            Ok(Status::unimplemented("there is only StreamAggregatedResources").into_http())
        }
    });
    let connection = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(io), service);
    // The client and the readers of the streams see the end of the connection.
    drop(connection.await);
}

/// `StreamAggregatedResources`.
struct Ads {
    plane: Owner<Plane>,
}

impl StreamingService<Bytes> for Ads {
    type Response = Bytes;
    type ResponseStream = Replies;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Replies>, Status>> + Send>>;

    fn call(&mut self, request: Request<Streaming<Bytes>>) -> Self::Future {
        Box::pin(open(self.plane.clone(), request))
    }
}

async fn open(plane: Owner<Plane>, request: Request<Streaming<Bytes>>) -> Result<Response<Replies>, Status> {
    let authorization = request.metadata().get("authorization");
    let authorization = authorization.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let (replies, mut replied) = mpsc::unbounded_channel();
    let (open, ended) = oneshot::channel();
    let opened = plane.ask(move |plane, now_us| plane.open(authorization, replies, open, now_us)).await?;
    tokio::spawn(read(plane, opened.stream, request.into_inner(), ended));
    if !opened.holds {
        return Ok(Response::new(all(replied)));
    }
    match replied.recv().await {
        None => Ok(Response::new(Box::pin(stream::empty()))),
        Some(Ok(first)) => Ok(Response::new(Box::pin(stream::iter([Ok(first)]).chain(all(replied))))),
        Some(Err(status)) => Err(status),
    }
}

fn all(replied: mpsc::UnboundedReceiver<Result<Bytes, Status>>) -> Replies {
    Box::pin(stream::unfold(replied, async |mut replied| replied.recv().await.map(|reply| (reply, replied))))
}

/// Forwards the requests of a stream until either side ends it.
async fn read(
    plane: Owner<Plane>,
    stream: u64,
    mut requests: Streaming<Bytes>,
    mut ended: oneshot::Receiver<Never>,
) {
    loop {
        let request = tokio::select! {
            request = requests.message() => request,
            _ = &mut ended => return,
        };
        match request {
            Ok(Some(bytes)) => plane.send(move |plane, now_us| plane.on_request(stream, &bytes, now_us)),
            Ok(None) | Err(_) => {
                plane.send(move |plane, _| plane.ended(stream));
                return;
            }
        }
    }
}

/// A codec of encoded messages.
#[derive(Clone, Copy)]
pub(super) struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
