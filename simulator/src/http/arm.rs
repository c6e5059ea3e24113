//! ARM's side of the wire.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use simulator_models::arm::{Method, Reply, Request, Response};

use super::{cut, headers, path_and_query};
use crate::azure::Azure;
use crate::owner::Owner;

/// Answers one request after the time that the model says.
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
    let (reply, arrived_us) = azure.ask(move |azure, now_us| (azure.handle(&asked, now_us), now_us)).await;
    let wait = async |latency_us: u64| {
        if latency_us > 0 {
            tokio::time::sleep_until(azure.clock().instant(arrived_us.saturating_add(latency_us))).await;
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
