//! Raw requests of any method and to any resource, with unparsed answers. The conformance suite (tests/e2e) sends
//! them to find out how real Azure treats requests that the product never sends. The product has no such client; a
//! tidy test checks that no other crate names it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use azure_core::http::headers::{ACCEPT, CONTENT_TYPE, IF_MATCH};
use azure_core::http::{Context, Method, Pipeline, PipelineSendOptions, Request, Transport};
use model::arm::{Failure, Permit};
use model::ids::{AttemptId, Epoch, Operation};
use model::machine::Now;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use crate::policy::Gates;
use crate::settings::{SetUpError, Settings};
use crate::transport::HttpTransport;
use crate::url::{AddressError, Addresses};
use crate::{answer, failure, pipeline};

const JSON: &str = "application/json";

/// Method of a raw request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RawMethod {
    /// GET.
    Get,
    /// PUT.
    Put,
    /// POST.
    Post,
    /// DELETE.
    Delete,
}

/// One request.
#[derive(Clone, Debug)]
pub struct RawRequest {
    /// The method.
    pub method: RawMethod,
    /// The id of a resource, or the absolute URL of an operation or a next page, which must be on the endpoint.
    pub target: String,
    /// The version of the resource's API; an absolute URL has its own.
    pub api_version: &'static str,
    /// The header `If-Match`.
    pub if_match: Option<String>,
    /// The body.
    pub body: Option<Value>,
}

/// One answer, whatever its status.
#[derive(Clone, Debug)]
pub struct RawAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The headers, by their names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body; null if there is none or it is not JSON.
    pub body: Value,
    /// Duration of the call.
    pub took: Duration,
}

/// A client for raw requests.
#[derive(Debug)]
pub struct RawClient {
    addresses: Addresses,
    pipeline: Pipeline,
}

impl RawClient {
    /// Creates a client with these settings.
    ///
    /// # Errors
    /// A setting cannot be used; the error names it and the remedy.
    pub fn new(settings: Settings) -> Result<RawClient, SetUpError> {
        settings.check()?;
        let transport = Transport::new(Arc::new(HttpTransport::new(&settings)?));
        let pipeline = pipeline::build(&settings, &Arc::new(Gates::default()), transport)?;
        let addresses = Addresses::new(&settings);
        Ok(RawClient { addresses, pipeline })
    }

    /// Sends one request with one try.
    ///
    /// # Errors
    /// There was no answer, or the target is not a valid URL.
    pub async fn send(&self, request: &RawRequest) -> Result<RawAnswer, Failure> {
        let url = self.address(request).map_err(|error| failure::refused(&error))?;
        let mut sent = Request::new(url, method(request.method));
        sent.insert_header(ACCEPT, JSON);
        if let Some(etag) = &request.if_match {
            sent.insert_header(IF_MATCH, etag.clone());
        }
        if let Some(body) = &request.body {
            sent.insert_header(CONTENT_TYPE, JSON);
            let text = body.to_string();
            sent.set_body(text);
        }
        // The operator has started the suite, and no other process leads, so the permit never expires.
        let context = Context::new().with_value(Permit {
            attempt: AttemptId { epoch: Epoch::default(), n: 0 },
            send_deadline: Now::from_micros(u64::MAX),
        });
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        let begin = Instant::now();
        let response = self.pipeline.send(&context, &mut sent, Some(options)).await;
        let response = response.map_err(|error| failure::of_error(&error))?;
        let took = begin.elapsed();
        let headers = response.headers().iter();
        let headers = headers.map(|(name, value)| (name.as_str().to_lowercase(), value.as_str().to_owned()));
        Ok(RawAnswer {
            status: response.status().into(),
            headers: headers.collect(),
            body: answer::text(&response)
                .ok()
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default(),
            took,
        })
    }

    fn address(&self, request: &RawRequest) -> Result<Url, AddressError> {
        if request.target.starts_with('/') {
            self.addresses.resource(&request.target, request.api_version)
        } else {
            self.addresses.operation(&Operation::new(request.target.as_str()))
        }
    }
}

fn method(method: RawMethod) -> Method {
    match method {
        RawMethod::Get => Method::Get,
        RawMethod::Put => Method::Put,
        RawMethod::Post => Method::Post,
        RawMethod::Delete => Method::Delete,
    }
}
