//! Calls to any Azure resource, for commands that change more than pools. Each call is sent once, to a path or to a URL
//! from an earlier response; the caller interprets the response. As everywhere, a change needs a permit.

use std::time::Duration;

use azure_core::http::headers::{ACCEPT, CONTENT_TYPE, IF_MATCH};
use azure_core::http::{Method, RawResponse, Request};
use model::arm::{Failure, Permit, RetryAfter};
use model::ids::Operation;

use super::{Client, JSON};
use crate::{answer, failure};

/// Method of a call about a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResourceMethod {
    /// Reads it.
    Get,
    /// Creates or replaces it.
    Put,
    /// Deletes it.
    Delete,
    /// Starts an action of it.
    Post,
}

/// Target of a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResourceAddress {
    /// A path with its query, below the endpoint of the cloud.
    Path(String),
    /// A URL from an earlier response; rejected unless it is on the endpoint.
    Url(String),
}

/// A call about any resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceCall {
    /// The method.
    pub method: ResourceMethod,
    /// The target.
    pub address: ResourceAddress,
    /// The JSON body.
    pub body: Option<String>,
    /// Required entity tag.
    pub if_match: Option<String>,
}

/// The answer, whatever its status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ResourceReply {
    /// The HTTP status.
    pub status: u16,
    /// The body, as text.
    pub body: String,
    /// URL for polling the operation that was started.
    pub operation: Option<String>,
    /// Azure's `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl Client {
    /// Returns the version of the network API for load balancers and pools.
    #[must_use]
    pub fn network_version(&self) -> &str {
        self.addresses.network_version()
    }

    /// Sends one call without retries.
    ///
    /// # Errors
    /// Nothing was sent, or no response arrived. An error status is a response, not an error.
    pub async fn resource(
        &self,
        call: ResourceCall,
        permit: Option<Permit>,
    ) -> Result<ResourceReply, Failure> {
        let url = match &call.address {
            ResourceAddress::Path(path) => self.addresses.path(path),
            ResourceAddress::Url(url) => self.addresses.operation(&Operation::new(url.as_str())),
        };
        let method = match call.method {
            ResourceMethod::Get => Method::Get,
            ResourceMethod::Put => Method::Put,
            ResourceMethod::Delete => Method::Delete,
            ResourceMethod::Post => Method::Post,
        };
        let mut request = Request::new(url.map_err(|error| failure::refused(&error))?, method);
        request.insert_header(ACCEPT, JSON);
        if let Some(etag) = call.if_match {
            request.insert_header(IF_MATCH, etag);
        }
        if let Some(body) = call.body {
            request.insert_header(CONTENT_TYPE, JSON);
            request.set_body(body);
        }
        let response = self.send(request, permit).await?;
        read(&response)
    }
}

fn read(response: &RawResponse) -> Result<ResourceReply, Failure> {
    let retry_after = match failure::retry_after(response.headers()) {
        RetryAfter::In(span) => Some(span),
        RetryAfter::Absent | RetryAfter::Invalid => None,
    };
    Ok(ResourceReply {
        status: u16::from(response.status()),
        body: answer::text(response)?.to_owned(),
        operation: answer::operation_url(response).map(str::to_owned),
        retry_after,
    })
}
