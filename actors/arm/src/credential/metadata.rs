//! Login addresses from the metadata document of an ARM endpoint (C3). The document is read with the first token
//! request, so that the process starts even while the endpoint is unreachable.

use std::fmt;
use std::sync::Arc;

use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::{
    ClientOptions, Context, Method, Pipeline, PipelineSendOptions, Request, RetryOptions,
};
use serde::Deserialize;
use tokio::sync::OnceCell;
use url::Url;

use super::scope_of;
use super::source::Source;
use crate::settings::{is_https, shown};

/// A credential whose authority and scope come from the document.
pub(super) struct FromMetadata {
    source: Arc<Source>,
    document: Url,
    cloud: String,
    authority_host: Option<String>,
    /// The authority's host and the scope from the document; read for the first token.
    known: OnceCell<(String, String)>,
}

impl FromMetadata {
    pub(super) fn new(
        source: Arc<Source>,
        document: Url,
        cloud: String,
        authority_host: Option<String>,
    ) -> FromMetadata {
        FromMetadata { source, document, cloud, authority_host, known: OnceCell::new() }
    }

    async fn read(&self) -> azure_core::Result<(String, String)> {
        let refused = |reason: String| {
            let endpoint = shown(self.document.as_str());
            let message = format!(
                "the metadata document of {endpoint} {reason}; check resourceManagerEndpoint, or remove it and set cloud"
            );
            Error::with_message(ErrorKind::Credential, message)
        };
        let options = ClientOptions {
            transport: Some(self.source.transport.clone()),
            retry: RetryOptions::none(),
            ..ClientOptions::default()
        };
        let (name, version) = (option_env!("CARGO_PKG_NAME"), option_env!("CARGO_PKG_VERSION"));
        let pipeline = Pipeline::new(name, version, options, Vec::new(), Vec::new(), None);
        let mut request = Request::new(self.document.clone(), Method::Get);
        let options = PipelineSendOptions { skip_checks: true, ..PipelineSendOptions::default() };
        let answer = pipeline
            .send(&Context::new(), &mut request, Some(options))
            .await
            .map_err(|error| refused(format!("cannot be read ({})", model::redact::chain(&error))))?;
        if !answer.status().is_success() {
            return Err(refused(format!("cannot be read (status {})", u16::from(answer.status()))));
        }
        let addresses = parse(answer.body(), &self.document, &self.cloud).map_err(refused)?;
        let Addresses { login, audience } = addresses;
        let host = self.authority_host.clone().or(login).unwrap_or_default();
        if self.source.identity.uses_authority() {
            if !is_https(&host) {
                return Err(refused(format!("names {} as login endpoint, which is not https", shown(&host))));
            }
            if host.trim_end_matches('/').to_ascii_lowercase().ends_with("/adfs") {
                let what = "names AD FS as login endpoint, which the controller does not support".to_owned();
                return Err(refused(what));
            }
        }
        Ok((host, scope_of(&audience)))
    }
}

impl fmt::Debug for FromMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FromMetadata")
    }
}

#[async_trait::async_trait]
impl TokenCredential for FromMetadata {
    async fn get_token(
        &self,
        _: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let (host, scope) = self.known.get_or_try_init(|| self.read()).await?;
        // A new credential for each token, so that none answers from a cache.
        self.source.credential(host)?.get_token(&[scope], options).await
    }
}

/// The part of a document that is needed.
#[derive(Debug, PartialEq, Eq)]
struct Addresses {
    login: Option<String>,
    audience: String,
}

/// One cloud of a document; other fields are ignored.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CloudEntry {
    name: Option<String>,
    resource_manager: Option<String>,
    authentication: Authentication,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Authentication {
    login_endpoint: Option<String>,
    #[serde(default)]
    audiences: Vec<String>,
}

/// Newer documents list clouds; older ones are one cloud.
#[derive(Deserialize)]
#[serde(untagged)]
enum Entries {
    Several(Vec<CloudEntry>),
    One(Box<CloudEntry>),
}

/// Returns the cloud of this endpoint, else the one of this name, else the first.
fn parse(body: &[u8], document: &Url, cloud: &str) -> Result<Addresses, String> {
    let entries = match serde_json::from_slice(body) {
        Ok(Entries::Several(entries)) => entries,
        Ok(Entries::One(entry)) => vec![*entry],
        Err(_) => return Err("is not one of Azure Resource Manager".to_owned()),
    };
    let ours = |entry: &&CloudEntry| {
        let address = entry.resource_manager.as_deref().and_then(|text| Url::parse(text).ok());
        address.is_some_and(|url| url.origin() == document.origin())
    };
    let named =
        |entry: &&CloudEntry| entry.name.as_deref().is_some_and(|name| name.eq_ignore_ascii_case(cloud));
    let found = entries.iter().find(ours).or_else(|| entries.iter().find(named)).or_else(|| entries.first());
    let entry = found.ok_or("lists no cloud")?;
    let audience = entry.authentication.audiences.iter().find(|audience| !audience.is_empty());
    Ok(Addresses {
        login: entry.authentication.login_endpoint.clone().filter(|login| !login.is_empty()),
        audience: audience.cloned().ok_or("names no audience")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(body: &str, cloud: &str) -> Result<Addresses, String> {
        let document = Url::parse("https://management.local.stack/metadata/endpoints").unwrap();
        parse(body.as_bytes(), &document, cloud)
    }

    fn entry(name: &str, arm: &str, audience: &str) -> String {
        format!(
            r#"{{"name": "{name}", "resourceManager": "{arm}", "suffixes": {{"x": "y"}},
                "authentication": {{"loginEndpoint": "https://login.{name}", "audiences": ["{audience}", "b"], "tenant": "common"}}}}"#
        )
    }

    #[test]
    fn c3_a_metadata_document_contains_the_endpoints() {
        let (a, b) =
            (entry("A", "https://arm.a", "for-a"), entry("B", "https://management.local.stack/", "for-b"));
        let rows = [
            (format!("[{a}, {b}]"), "a", "for-b"),
            (format!("[{b}, {a}]"), "", "for-b"),
            (format!("[{}, {a}]", entry("C", "https://arm.c", "for-c")), "a", "for-a"),
            (format!("[{a}]"), "azurestackcloud", "for-a"),
            (a.clone(), "", "for-a"),
        ];
        for (body, cloud, audience) in rows {
            assert_eq!(parsed(&body, cloud).unwrap().audience, audience, "{body}");
        }
        assert_eq!(parsed(&a, "").unwrap().login.as_deref(), Some("https://login.A"));
    }

    #[test]
    fn c3_a_metadata_document_without_an_audience_is_refused() {
        let rows = [
            ("[]", "lists no cloud"),
            ("{}", "is not one of Azure Resource Manager"),
            ("<html>", "is not one of Azure Resource Manager"),
            (r#"{"authentication": {"loginEndpoint": "https://a", "audiences": [""]}}"#, "names no audience"),
            (r#"[{"authentication": {}}]"#, "names no audience"),
        ];
        for (body, reason) in rows {
            assert_eq!(parsed(body, "").unwrap_err(), reason, "{body}");
        }
    }
}
