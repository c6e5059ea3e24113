//! Converts responses into ARM answers. Each function is total; an unreadable body becomes a failure that keeps the
//! status.

use std::sync::Arc;

use azure_core::http::RawResponse;
use azure_core::http::headers::{ETAG, HeaderName};
use model::arm::{ArmAnswer, Document, Failure, OperationState, PoolRead, PutAccepted};
use model::ids::{Etag, LbName, Operation, PoolId};
use serde_json::Value;

use crate::document::PoolDocument;
use crate::{failure, read};

const ASYNC_OPERATION: HeaderName = HeaderName::from_static("azure-asyncoperation");
const LOCATION: HeaderName = HeaderName::from_static("location");

/// Returns the answer to a GET of a load balancer.
pub(crate) fn load_balancer(lb: &LbName, response: &RawResponse) -> ArmAnswer {
    answer(load_balancer_facts(lb, response))
}

fn load_balancer_facts(lb: &LbName, response: &RawResponse) -> Result<ArmAnswer, Failure> {
    let body = json(success(response)?)?;
    let facts =
        read::load_balancer(lb, &body).map_err(|error| failure::undecodable(response, &error.to_string()))?;
    Ok(ArmAnswer::LoadBalancer(Arc::new(facts)))
}

/// Returns the answer to a GET of a pool.
pub(crate) fn pool(id: &PoolId, response: &RawResponse) -> ArmAnswer {
    answer(pool_read(id, response))
}

fn pool_read(id: &PoolId, response: &RawResponse) -> Result<ArmAnswer, Failure> {
    let body = json(success(response)?)?;
    let facts = read::pool(id, &body).map_err(|error| failure::undecodable(response, &error.to_string()))?;
    let document = PoolDocument::parse(text(response)?)
        .map_err(|error| failure::undecodable(response, &error.to_string()))?;
    let header = response.headers().get_optional_str(&ETAG).map(str::trim).filter(|tag| !tag.is_empty());
    Ok(ArmAnswer::Pool(PoolRead {
        etag: header.map(Etag::new).or_else(|| facts.etag.clone()),
        facts: Arc::new(facts),
        document: Document::new(document),
    }))
}

/// Returns the answer to a PUT of a pool.
pub(crate) fn put(response: &RawResponse) -> ArmAnswer {
    answer(put_accepted(response))
}

fn put_accepted(response: &RawResponse) -> Result<ArmAnswer, Failure> {
    let response = success(response)?;
    let may_be_empty = matches!(u16::from(response.status()), 202 | 204);
    let body = if may_be_empty && text(response)?.is_empty() { Value::Null } else { json(response)? };
    if !body.is_object() && !body.is_null() {
        return Err(failure::undecodable(response, "the answer is not an object"));
    }
    let headers = response.headers();
    Ok(ArmAnswer::Put(PutAccepted {
        provisioning: read::provisioning(&body["properties"]["provisioningState"]),
        operation: operation_url(response).map(Operation::new),
        retry_after: failure::retry_after(headers),
        etag: read::etag(&body),
        correlation_id: failure::correlation_id(headers),
    }))
}

/// Returns the URL for polling the operation that a call has started.
pub(crate) fn operation_url(response: &RawResponse) -> Option<&str> {
    let headers = [ASYNC_OPERATION, LOCATION];
    let mut urls = headers.iter().filter_map(|name| response.headers().get_optional_str(name).map(str::trim));
    urls.find(|url| !url.is_empty())
}

/// Returns the answer to a poll. `resource`: the URL returns the resource at the end, and not a status.
pub(crate) fn operation(resource: bool, response: &RawResponse) -> ArmAnswer {
    answer(operation_state(resource, response).map(ArmAnswer::Operation))
}

fn operation_state(resource: bool, response: &RawResponse) -> Result<OperationState, Failure> {
    let response = success(response)?;
    let body = json(response);
    let state = body.as_ref().ok().and_then(|body| {
        let status = body["status"].as_str();
        status.or_else(|| body["properties"]["provisioningState"].as_str()).filter(|state| !state.is_empty())
    });
    let running = || OperationState::Running { retry_after: failure::retry_after(response.headers()) };
    let Some(state) = state else {
        return match u16::from(response.status()) {
            202 => Ok(running()),
            204 => Ok(OperationState::Succeeded),
            _ if resource => Ok(OperationState::Succeeded),
            _ => Err(body.err().unwrap_or_else(|| failure::undecodable(response, "the poll has no status"))),
        };
    };
    let failed = || Arc::new(failure::of_operation(response, body.as_ref().unwrap_or(&Value::Null)));
    Ok(match state.to_ascii_lowercase().as_str() {
        "succeeded" => OperationState::Succeeded,
        "failed" => OperationState::Failed(failed()),
        "canceled" | "cancelled" => OperationState::Canceled(failed()),
        _ => running(),
    })
}

/// Wraps a failure.
pub(crate) fn failed(failure: Failure) -> ArmAnswer {
    ArmAnswer::Failed(Arc::new(failure))
}

fn answer(result: Result<ArmAnswer, Failure>) -> ArmAnswer {
    result.unwrap_or_else(failed)
}

pub(crate) fn success(response: &RawResponse) -> Result<&RawResponse, Failure> {
    if response.status().is_success() { Ok(response) } else { Err(failure::of_response(response)) }
}

pub(crate) fn text(response: &RawResponse) -> Result<&str, Failure> {
    let text = std::str::from_utf8(response.body())
        .map_err(|error| failure::undecodable(response, &error.to_string()))?;
    Ok(text.trim_start_matches('\u{feff}').trim())
}

fn json(response: &RawResponse) -> Result<Value, Failure> {
    serde_json::from_str(text(response)?).map_err(|error| failure::undecodable(response, &error.to_string()))
}
