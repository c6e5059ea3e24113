//! A minimal server of aggregated streams: it decodes no message, and passes each call to the test.

use std::convert::Infallible;
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use http::HeaderMap;
use prost::bytes::Bytes;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::{Grpc, StreamingService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Response, Status, Streaming};

use super::super::wire::RawCodec;
use super::*;

/// A server that runs until it is dropped.
pub(super) struct Ads {
    pub(super) addr: SocketAddr,
    calls: UnboundedReceiver<Peer>,
    task: JoinHandle<()>,
}

impl Drop for Ads {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A call, as its server sees it. It is silent until the first answer; without one it ends with status OK.
pub(super) struct Peer {
    pub(super) headers: HeaderMap,
    requests: Streaming<Bytes>,
    answers: UnboundedSender<Result<Vec<u8>, Status>>,
}

impl Peer {
    pub(super) async fn request(&mut self) -> DiscoveryRequest {
        let message =
            within(self.requests.message()).await.expect("the stream is open").expect("the stream continues");
        DiscoveryRequest::decode(message).unwrap()
    }

    pub(super) fn answer(&self, answer: impl Into<Vec<u8>>) {
        self.answers.send(Ok(answer.into())).unwrap();
    }

    pub(super) fn fail(&self, status: Status) {
        self.answers.send(Err(status)).unwrap();
    }

    /// Waits until the client has closed the stream.
    pub(super) async fn closed(mut self) {
        while let Ok(Some(_)) = within(self.requests.message()).await {}
    }
}

impl Ads {
    pub(super) async fn start() -> Ads {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Ads::on(Server::builder(), listener)
    }

    pub(super) async fn with_tls(tls: ServerTlsConfig) -> Ads {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Ads::on(Server::builder().tls_config(tls).unwrap(), listener)
    }

    fn on(server: Server, listener: TcpListener) -> Ads {
        let addr = listener.local_addr().unwrap();
        let (calls, called) = unbounded_channel();
        let serving = server.serve_with_incoming(Calls(calls), TcpIncoming::from(listener));
        Ads { addr, calls: called, task: tokio::spawn(serving.map(drop)) }
    }

    /// Starts a server at a Unix socket.
    pub(super) fn at_path(path: &std::path::Path) -> Ads {
        let listener = tokio::net::UnixListener::bind(path).unwrap();
        let incoming = stream::unfold(listener, |listener| async {
            let accepted = listener.accept().await.map(|(stream, _)| stream);
            Some((accepted, listener))
        });
        let (calls, called) = unbounded_channel();
        let serving = Server::builder().serve_with_incoming(Calls(calls), incoming);
        let addr = SocketAddr::from(([0, 0, 0, 0], 0));
        Ads { addr, calls: called, task: tokio::spawn(serving.map(drop)) }
    }

    pub(super) async fn call(&mut self) -> Peer {
        within(self.calls.recv()).await.expect("the server runs")
    }
}

#[derive(Clone)]
struct Calls(UnboundedSender<Peer>);

impl Service<http::Request<Body>> for Calls {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let call = Call { headers: request.headers().clone(), calls: self.0.clone() };
        async move { Ok(Grpc::new(RawCodec).streaming(call, request).await) }.boxed()
    }
}

struct Call {
    headers: HeaderMap,
    calls: UnboundedSender<Peer>,
}

impl StreamingService<Bytes> for Call {
    type Response = Vec<u8>;
    type ResponseStream = BoxStream<'static, Result<Vec<u8>, Status>>;
    type Future = BoxFuture<'static, Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Bytes>>) -> Self::Future {
        let (answers, mut to_give) = unbounded_channel();
        let peer = Peer { headers: self.headers.clone(), requests: request.into_inner(), answers };
        self.calls.send(peer).ok().unwrap();
        async move {
            // As in gRPC's servers, the headers go with the first message.
            let first = to_give.recv().await.transpose()?;
            let rest = stream::poll_fn(move |context| to_give.poll_recv(context));
            Ok(Response::new(stream::iter(first.map(Ok)).chain(rest).boxed()))
        }
        .boxed()
    }
}

/// A server that gives each call this response.
#[derive(Clone)]
pub(super) struct Fixed {
    pub(super) headers: &'static [(&'static str, &'static str)],
    pub(super) body: &'static [u8],
    pub(super) trailers: &'static [(&'static str, &'static str)],
}

impl Fixed {
    pub(super) async fn start(self) -> (SocketAddr, impl Drop) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serving = Server::builder().serve_with_incoming(self, TcpIncoming::from(listener));
        (addr, AbortOnDropHandle::new(tokio::spawn(serving.map(drop))))
    }
}

fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
    };
    pairs.iter().map(pair).collect()
}

impl Service<http::Request<Body>> for Fixed {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<http::Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        use http_body_util::{BodyExt, Full};
        let trailers = Some(headers(self.trailers)).filter(|trailers| !trailers.is_empty());
        let body = Full::new(Bytes::from_static(self.body));
        let body = body.with_trailers(std::future::ready(trailers.map(Ok)));
        let mut response = http::Response::new(Body::new(body));
        response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/grpc"));
        response.headers_mut().extend(headers(self.headers));
        std::future::ready(Ok(response))
    }
}
