//! HTTP server of the simulated ARM: passes each request to the model's task, and sends the response when the model and
//! the test hook allow it.

use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use simulator_models::arm::{Method, Reply, Request, Response};

use super::{cut, headers, path_and_query};
use crate::azure::Azure;
use crate::clock::Clock;
use crate::owner::Owner;
use crate::wire::Verdict;

/// Prefix of a header value in seconds that is sent as an HTTP date that far in the future.
const FROM_NOW: &str = "date+";

/// Responds after the model's latency, or later if the hook holds the response back.
pub(super) async fn answer(
    request: HttpRequest,
    body: web::Bytes,
    azure: web::Data<Owner<Azure>>,
) -> HttpResponse {
    let model_request = Request {
        method: Method::parse(request.method().as_str()),
        path_and_query: path_and_query(&request),
        headers: headers(&request),
        body: body.to_vec(),
    };
    let (Verdict { reply, arrived_us, held }, ahead_s) =
        azure.ask(move |azure, now_us| (azure.receive(model_request, now_us), azure.ahead_s)).await;
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
            written(response, azure.clock().ahead(ahead_s))
        }
        Reply::Lost { latency_us } => {
            wait(latency_us).await;
            cut(&request)
        }
        Reply::Refused => cut(&request),
    }
}

/// Builds the response, with the server's time as `Date`.
fn written(response: Response, clock: Clock) -> HttpResponse {
    let now_us = clock.now_us();
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = HttpResponse::build(status);
    answer.insert_header(("Date", clock.http_date(now_us)));
    for (name, value) in &response.headers {
        let seconds: Option<u64> = value.strip_prefix(FROM_NOW).and_then(|seconds| seconds.parse().ok());
        match seconds {
            Some(s) => {
                let date = clock.http_date(now_us.saturating_add(s.saturating_mul(1_000_000)));
                answer.append_header((*name, date))
            }
            None => answer.append_header((*name, value.as_ref())),
        };
    }
    answer.body(response.body)
}
