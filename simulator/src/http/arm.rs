//! ARM's side of the wire: each request is taken by its owner, and answered when the model and the hook say so.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use simulator_models::arm::{Method, Reply, Request, Response};

use super::{cut, headers, path_and_query};
use crate::azure::Azure;
use crate::owner::Owner;
use crate::wire::Verdict;

/// Answers one request after the time that the model says, or later when the answer is held back.
pub(super) async fn answer(
    request: HttpRequest,
    body: web::Bytes,
    azure: web::Data<Owner<Azure>>,
) -> HttpResponse {
    let asked = Request {
        method: Method::parse(request.method().as_str()),
        path_and_query: path_and_query(&request),
        headers: headers(&request),
        body: body.to_vec(),
    };
    let Verdict { reply, arrived_us, held } =
        azure.ask(move |azure, now_us| azure.receive(asked, now_us)).await;
    let wait = async |latency_us: u64| {
        if latency_us > 0 {
            tokio::time::sleep_until(azure.clock().instant(arrived_us.saturating_add(latency_us))).await;
        }
        if let Some(held) = held {
            held.over(&azure).await;
        }
    };
    match reply {
        Reply::Answer(response) => {
            wait(response.latency_us).await;
            written(response)
        }
        Reply::Lost { latency_us } => {
            wait(latency_us).await;
            cut(&request)
        }
        Reply::Refused => cut(&request),
    }
}

fn written(response: Response) -> HttpResponse {
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = HttpResponse::build(status);
    for (name, value) in &response.headers {
        answer.append_header((*name, value.as_ref()));
    }
    answer.body(response.body)
}
