//! The client: one request of the writer, one try, one answer.

mod query;
mod resource;

use std::fmt;
use std::sync::Arc;

use azure_core::http::headers::{ACCEPT, CONTENT_TYPE, IF_MATCH};
use azure_core::http::{Context, Method, Pipeline, PipelineSendOptions, RawResponse, Request, Transport};
use model::arm::{ArmAnswer, ArmRequest, Document, Edit, Failure, Permit};
use model::ids::{Etag, PoolId};
use model::machine::Now;
use url::Url;

use crate::document::PoolDocument;
use crate::headroom::Headroom;
use crate::policy::Gates;
use crate::settings::{SetUpError, Settings};
use crate::transport::HttpTransport;
use crate::url::{Addresses, answers_with_resource};
use crate::{answer, failure, pipeline};

pub use query::{Query, QueryResult};
pub use resource::{ResourceAddress, ResourceCall, ResourceMethod};

const JSON: &str = "application/json";

/// The client of Azure Resource Manager.
///
/// It is created once and shared; all calls share its connections, its token and its gates.
pub struct Client {
    addresses: Addresses,
    pipeline: Pipeline,
    gates: Arc<Gates>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("addresses", &self.addresses).finish_non_exhaustive()
    }
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The answer.
    pub answer: ArmAnswer,
    /// Remaining quota, by the headers of any answer.
    pub headroom: Headroom,
}

/// The document of a PUT comes from another port.
#[derive(Debug, thiserror::Error)]
#[error("the document of the pool was not read by this client")]
struct ForeignDocument;

impl Client {
    /// Creates a client with these settings.
    ///
    /// # Errors
    /// A setting cannot be used; the error names it and the remedy.
    pub fn new(settings: Settings) -> Result<Client, SetUpError> {
        settings.check()?;
        let transport = Transport::new(Arc::new(HttpTransport::new(&settings)?));
        Client::with_transport(settings, transport)
    }

    /// Creates a client that sends through this transport.
    pub(crate) fn with_transport(settings: Settings, transport: Transport) -> Result<Client, SetUpError> {
        settings.check()?;
        let gates = Arc::new(Gates::default());
        let pipeline = pipeline::build(&settings, &gates, transport)?;
        let addresses = Addresses::new(&settings);
        Ok(Client { addresses, pipeline, gates })
    }

    /// Closes the gates of reads and of writes until these times; `None` opens them (W6). New tries fail with
    /// [`model::arm::FailureKind::GateClosed`] until then; tries in flight continue.
    pub fn set_gates(&self, reads_until: Option<Now>, writes_until: Option<Now>) {
        self.gates.set(reads_until, writes_until);
    }

    /// Runs one request with one try; every failure is an answer too.
    ///
    /// A PUT is sent only while its permit is valid (W8), with the entity tag as `If-Match` if there is one.
    pub async fn execute(&self, request: ArmRequest) -> Answered {
        let answered = self.try_execute(request).await.unwrap_or_else(|failure| Answered {
            answer: answer::failed(failure),
            headroom: Headroom::default(),
        });
        if let ArmAnswer::Failed(failure) = &answered.answer {
            tracing::debug!(%failure, "failed to call Azure Resource Manager");
        }
        answered
    }

    async fn try_execute(&self, request: ArmRequest) -> Result<Answered, Failure> {
        let (method, response, answer) = match request {
            ArmRequest::GetLoadBalancer(lb) => {
                let url = self.addresses.load_balancer(&lb).map_err(|error| failure::refused(&error))?;
                let response = self.get(url).await?;
                let answer = answer::load_balancer(&lb, &response);
                (Method::Get, response, answer)
            }
            ArmRequest::GetPool(pool) => {
                let url = self.addresses.pool(&pool).map_err(|error| failure::refused(&error))?;
                let response = self.get(url).await?;
                let answer = answer::pool(&pool, &response);
                (Method::Get, response, answer)
            }
            ArmRequest::PutPool { pool, base, edit, if_match, permit, record: _ } => {
                let request = self.put(&pool, &base, &edit, if_match.as_ref())?;
                let response = self.send(request, Some(permit)).await?;
                let answer = answer::put(&response);
                (Method::Put, response, answer)
            }
            ArmRequest::Poll(operation) => {
                let url = self.addresses.operation(&operation).map_err(|error| failure::refused(&error))?;
                let resource = answers_with_resource(&url);
                let response = self.get(url).await?;
                let answer = answer::operation(resource, &response);
                (Method::Get, response, answer)
            }
        };
        Ok(Answered { answer, headroom: Headroom::read(method, response.headers()) })
    }

    fn put(
        &self,
        pool: &PoolId,
        base: &Document,
        edit: &Edit,
        if_match: Option<&Etag>,
    ) -> Result<Request, Failure> {
        let url = self.addresses.pool(pool).map_err(|error| failure::refused(&error))?;
        let document = base.get::<PoolDocument>().ok_or_else(|| failure::refused(&ForeignDocument))?;
        let body = document.apply(edit).map_err(|error| failure::refused(&error))?;
        let mut request = Request::new(url, Method::Put);
        request.insert_header(ACCEPT, JSON);
        request.insert_header(CONTENT_TYPE, JSON);
        if let Some(etag) = if_match {
            request.insert_header(IF_MATCH, etag.as_str().to_owned());
        }
        request.set_body(body);
        Ok(request)
    }

    async fn get(&self, url: Url) -> Result<RawResponse, Failure> {
        let mut request = Request::new(url, Method::Get);
        request.insert_header(ACCEPT, JSON);
        self.send(request, None).await
    }

    async fn send(&self, mut request: Request, permit: Option<Permit>) -> Result<RawResponse, Failure> {
        let mut context = Context::new();
        if let Some(permit) = permit {
            context.insert(permit);
        }
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        let sent = self.pipeline.send(&context, &mut request, Some(options)).await;
        sent.map_err(|error| failure::of_error(&error))
    }
}
