//! Messages as bytes on a gRPC connection, so that an undecodable one does not end the stream. Other modules decode
//! them.

use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use http_body_util::BodyExt;
use prost::bytes::{Buf, BufMut, Bytes};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;

/// The codec of messages that are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RawCodec;

impl Codec for RawCodec {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = RawCodec;
    type Decoder = RawCodec;

    fn encoder(&mut self) -> RawCodec {
        RawCodec
    }

    fn decoder(&mut self) -> RawCodec {
        RawCodec
    }
}

impl Encoder for RawCodec {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        to.put_slice(&item);
        Ok(())
    }
}

impl Decoder for RawCodec {
    type Item = Bytes;
    type Error = tonic::Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, tonic::Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

/// The header with details of a status. They are not needed, and tonic 0.14 panics if they are not base64.
const DETAILS: &str = "grpc-status-details-bin";

/// A connection that hides the details of statuses from tonic.
#[derive(Clone, Debug)]
pub(super) struct WithoutDetails(pub Channel);

impl GrpcService<Body> for WithoutDetails {
    type ResponseBody = Body;
    type Error = tonic::transport::Error;
    type Future = BoxFuture<'static, Result<http::Response<Body>, tonic::transport::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), tonic::transport::Error>> {
        GrpcService::<Body>::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let response = GrpcService::<Body>::call(&mut self.0, request);
        let without = |mut response: http::Response<Body>| {
            response.headers_mut().remove(DETAILS);
            response.map(|body| {
                Body::new(body.map_frame(|mut frame| {
                    if let Some(trailers) = frame.trailers_mut() {
                        trailers.remove(DETAILS);
                    }
                    frame
                }))
            })
        };
        response.map(move |response| response.map(without)).boxed()
    }
}
