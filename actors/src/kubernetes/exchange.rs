//! One request to the API server and its whole answer, as the writers of single objects use it.

use http::{Method, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;

use super::follow::chain;

/// Sends a request with a JSON body, or none, and gives the head of the answer.
pub(super) async fn send(
    client: &Client,
    method: Method,
    path: String,
    body: Vec<u8>,
) -> Result<http::Response<Body>, String> {
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::ACCEPT, "application/json")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Body::from(body))
        .map_err(|error| chain(&error))?;
    client.send(request).await.map_err(|error| chain(&error))
}

/// The same, and reads the body to its end.
pub(super) async fn exchange(
    client: &Client,
    method: Method,
    path: String,
    body: Vec<u8>,
) -> Result<(StatusCode, Vec<u8>), String> {
    let answer = send(client, method, path, body).await?;
    let status = answer.status();
    let body = answer.into_body().collect().await.map_err(|error| chain(&error))?;
    Ok((status, body.to_bytes().into()))
}
