//! GETs for commands: the state in Azure, and the caller's permissions there. They bypass the writer and its budget,
//! so the running service sends none of them. Only GET can be sent this way.

use azure_core::http::RawResponse;
use azure_core::http::headers::HeaderName;
use model::arm::Failure;
use model::ids::{LbName, Operation};
use url::Url;

use super::Client;
use crate::url::AddressError;
use crate::{answer, failure};

const DATE: HeaderName = HeaderName::from_static("date");
const PERMISSIONS_VERSION: &str = "2022-04-01";
const LOCKS_VERSION: &str = "2016-09-01";

/// A read of resources. A scope is the id of a subscription, a resource group or a resource.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Query {
    /// A load balancer with all its pools and rules.
    LoadBalancer(LbName),
    /// The caller's permissions at this scope.
    Permissions(String),
    /// The management locks at this scope and below it.
    Locks(String),
    /// The management locks at this scope and above it.
    LocksAbove(String),
    /// The next page of an earlier answer, by its `nextLink`.
    Next(String),
}

/// Result of a read.
#[derive(Clone, Debug)]
pub struct QueryResult {
    /// The body of a success as ARM sent it, or the failure.
    pub text: Result<String, Failure>,
    /// The `Date` header of the response, also of an error status.
    pub date: Option<String>,
}

impl Client {
    /// Sends one GET. Failures are part of the result.
    pub async fn query(&self, query: &Query) -> QueryResult {
        let response = match self.address(query) {
            Ok(url) => self.get(url).await,
            Err(error) => Err(failure::refused(&error)),
        };
        match response {
            Ok(response) => read(&response),
            Err(failure) => QueryResult { text: Err(failure), date: None },
        }
    }

    fn address(&self, query: &Query) -> Result<Url, AddressError> {
        let about = |scope: &str, what, version| self.addresses.about(scope, what, version);
        match query {
            Query::LoadBalancer(lb) => self.addresses.load_balancer(lb),
            Query::Permissions(scope) => about(scope, "permissions", PERMISSIONS_VERSION),
            Query::Locks(scope) => about(scope, "locks", LOCKS_VERSION),
            Query::LocksAbove(scope) => {
                let mut url = about(scope, "locks", LOCKS_VERSION)?;
                url.query_pairs_mut().append_pair("$filter", "atScope()");
                Ok(url)
            }
            // The link is checked like the URL of an operation: the token must not be sent to another server.
            Query::Next(link) => self.addresses.operation(&Operation::new(link.as_str())),
        }
    }
}

fn read(response: &RawResponse) -> QueryResult {
    let text = answer::success(response).and_then(answer::text).map(str::to_owned);
    let date = response.headers().get_optional_str(&DATE).map(str::to_owned);
    QueryResult { text, date }
}
