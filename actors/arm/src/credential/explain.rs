//! Explains why there is no token, in a message that names what to change. The authority's message is shown without the
//! secret of the request, which it may repeat, and without anything that looks like a token.

use std::time::Duration;

use azure_core::error::{Error, ErrorKind};
use model::arm::RetryAfter;
use model::redact::{chain, start_redacted_of};
use serde::Deserialize;
use serde_json::Value;

use super::NoToken;
use crate::abort_reason::AbortReason;
use crate::failure;
use crate::identity::Identity;

/// Maximum length of an authority's message in our error, in characters.
const MAX_MESSAGE_CHARS: usize = 400;

/// Explains the errors of one identity.
#[derive(Debug)]
pub(super) struct Explainer {
    identity: Identity,
}

/// An error of Entra.
#[derive(Deserialize)]
struct AuthorityError {
    error: Option<String>,
    error_description: Option<String>,
    /// Numbers in Entra's answers; other authorities may differ.
    #[serde(default)]
    error_codes: Vec<Value>,
}

impl AuthorityError {
    /// Returns the message and the codes of an error.
    fn of(body: &[u8]) -> Option<(String, Vec<u64>)> {
        let AuthorityError { error, error_description, error_codes } = serde_json::from_slice(body).ok()?;
        let number = |code: &Value| code.as_u64().or_else(|| code.as_str()?.parse().ok());
        Some((error_description.or(error)?, error_codes.iter().filter_map(number).collect()))
    }
}

impl Explainer {
    pub(super) fn new(identity: &Identity) -> Explainer {
        Explainer { identity: identity.clone() }
    }

    /// Explains an error. The SDK's error is not its source, because it holds the whole answer.
    pub(super) fn explain(&self, error: &Error) -> Error {
        let (detail, remedy, retry_after) = match error_response(error) {
            Some(ErrorResponse { status, body, retry_after }) => {
                let (detail, remedy) = self.explain_response(status, &body);
                (detail, remedy, retry_after)
            }
            None => {
                let (detail, remedy) = self.explain_no_response(error);
                (detail, remedy, None)
            }
        };
        // Redact before truncating: half a secret would not be recognised.
        self.no_token(&first_line(&self.redact(&detail)), remedy, retry_after)
    }

    /// Explains a successful answer without a token.
    pub(super) fn without_token(&self) -> Error {
        self.no_token("the answer holds no token", Some(self.wrong_server_remedy()), None)
    }

    fn no_token(&self, detail: &str, remedy: Option<&str>, retry_after: Option<Duration>) -> Error {
        let (name, remedy) = (self.identity.name(), remedy.map(|it| format!("; {it}")).unwrap_or_default());
        let reason = format!("{name} could not sign in: {detail}{remedy}");
        Error::new(ErrorKind::Credential, NoToken { reason, retry_after })
    }

    fn explain_response(&self, status: u16, body: &[u8]) -> (String, Option<&'static str>) {
        let busy = matches!(status, 408 | 410 | 429 | 500..).then_some(RETRIED);
        if let Identity::Managed(_) = self.identity {
            let unassigned = matches!(status, 400 | 404).then_some(IDENTITY_NOT_ASSIGNED);
            let remedy = busy.or(unassigned).unwrap_or(METADATA_UNREACHABLE);
            return (format!("status {status}{}", code_of(body)), Some(remedy));
        }
        match AuthorityError::of(body) {
            Some((message, codes)) => {
                let known = codes.iter().find_map(|code| self.remedy_for_code(*code));
                let other = "check tenantId, aadClientId and the credential of the identity";
                (message, Some(known.or(busy).unwrap_or(other)))
            }
            None => (format!("status {status}"), Some(busy.unwrap_or(NOT_LOGIN_ENDPOINT))),
        }
    }

    /// Returns the message and the remedy for an error without a refused answer. The message about an unreadable
    /// answer is not repeated, because it may quote the answer.
    fn explain_no_response(&self, error: &Error) -> (String, Option<&'static str>) {
        if let Some(aborted @ AbortReason::TooLarge { .. }) = AbortReason::within(error) {
            return (aborted.to_string(), Some(self.wrong_server_remedy()));
        }
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        let mut is_unreadable = false;
        while let Some(one) = cause {
            match one.downcast_ref::<Error>().map(Error::kind) {
                Some(ErrorKind::Connection | ErrorKind::Io) => {
                    return (chain(one), Some(self.unreachable_remedy()));
                }
                Some(ErrorKind::DataConversion) => is_unreadable = true,
                Some(ErrorKind::Credential | ErrorKind::Other | ErrorKind::HttpResponse { .. }) | None => {}
            }
            cause = one.source();
        }
        if is_unreadable {
            ("the answer cannot be read".to_owned(), Some(self.wrong_server_remedy()))
        } else {
            (chain(cause_of(error)), None)
        }
    }

    /// Returns the remedy if another server answers instead of the token service.
    fn wrong_server_remedy(&self) -> &'static str {
        if self.identity.uses_authority() { NOT_LOGIN_ENDPOINT } else { NOT_METADATA_SERVICE }
    }

    /// Returns the remedy if there is no answer.
    fn unreachable_remedy(&self) -> &'static str {
        if self.identity.uses_authority() { AUTHORITY_UNREACHABLE } else { METADATA_UNREACHABLE }
    }

    /// Returns the remedy for an error code of Entra (AADSTS…).
    fn remedy_for_code(&self, code: u64) -> Option<&'static str> {
        Some(match code {
            7_000_215 => {
                "aadClientSecret or AZURE_CLIENT_SECRET is wrong: give the secret's value, not its id"
            }
            7_000_222 => {
                "the secret has expired: create a new one and set aadClientSecret or AZURE_CLIENT_SECRET"
            }
            700_016 => {
                "check aadClientId or AZURE_CLIENT_ID, and that the application is in the tenant of tenantId"
            }
            90_002 | 900_023 | 90_013 => "check tenantId or AZURE_TENANT_ID, and cloud",
            70_021 | 700_211 | 700_212 | 700_213 | 700_223 => {
                "add a federated credential with the issuer, subject and audience of the token in \
                 aadFederatedTokenFile to the application"
            }
            700_024 => match self.identity {
                Identity::WorkloadIdentity { .. } => {
                    "the token in aadFederatedTokenFile is out of date: check that it is a projected volume, and the clock"
                }
                Identity::Anonymous
                | Identity::Managed(_)
                | Identity::ClientSecret { .. }
                | Identity::ClientCertificate { .. } => "check the clock of this machine",
            },
            700_027 | 700_030 => {
                "add the certificate of aadClientCertPath to the application; check that it has not expired"
            }
            500_011 | 500_014 => {
                "check cloud and resourceManagerEndpoint: the tenant does not know that audience"
            }
            7_000_112 | 7_000_114 => "the application is disabled: enable it in the tenant",
            _ => return None,
        })
    }

    /// Removes the secret of the request, and texts that look like a token, from the examined part of a text.
    fn redact(&self, text: &str) -> String {
        let secret = match &self.identity {
            Identity::ClientSecret { secret, .. } => Some(secret),
            Identity::ClientCertificate { password, .. } => password.as_ref(),
            Identity::Anonymous | Identity::WorkloadIdentity { .. } | Identity::Managed(_) => None,
        };
        let known: Vec<&str> = secret.map(azure_core::credentials::Secret::secret).into_iter().collect();
        start_redacted_of(text, &known).0.into_owned()
    }
}

const RETRIED: &str = "the controller retries automatically";
const NOT_LOGIN_ENDPOINT: &str =
    "the answer is not from a login endpoint: check cloud, AZURE_AUTHORITY_HOST and the proxy variables";
const NOT_METADATA_SERVICE: &str = "the answer is not from the instance metadata service: check what intercepts \
                                    169.254.169.254 for the pod";
const AUTHORITY_UNREACHABLE: &str =
    "check the network, the proxy variables, and cloud or AZURE_AUTHORITY_HOST";
const METADATA_UNREACHABLE: &str =
    "check that the pod reaches the instance metadata service, 169.254.169.254";
const IDENTITY_NOT_ASSIGNED: &str = "assign the identity to every virtual machine or scale set that this pod may run on, and \
                          check userAssignedIdentityID";

/// Returns the cause without the SDK's wrapping, which names its types and its documentation.
fn cause_of(error: &Error) -> &(dyn std::error::Error + 'static) {
    match (error.kind(), std::error::Error::source(error)) {
        (ErrorKind::Credential, Some(cause)) => cause,
        (_, _) => error,
    }
}

/// An unsuccessful answer.
struct ErrorResponse {
    status: u16,
    body: Vec<u8>,
    /// `Retry-After` of the server.
    retry_after: Option<Duration>,
}

/// Returns the answer that the error contains, at any depth.
fn error_response(error: &Error) -> Option<ErrorResponse> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(one) = cause {
        if let Some(ErrorKind::HttpResponse { status, raw_response, .. }) =
            one.downcast_ref::<Error>().map(Error::kind)
        {
            let response = raw_response.as_ref();
            let retry_after = match response.map(|response| failure::retry_after(response.headers())) {
                Some(RetryAfter::In(span)) => Some(span),
                Some(RetryAfter::Absent | RetryAfter::Invalid) | None => None,
            };
            let body = response.map(|response| response.body().to_vec()).unwrap_or_default();
            return Some(ErrorResponse { status: u16::from(*status), body, retry_after });
        }
        cause = one.source();
    }
    None
}

/// Returns the code in a metadata service's answer. The other text of the answer is not repeated: it helps little, and
/// a server in place of the service may repeat our header.
fn code_of(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct CodedError {
        error: String,
    }
    let code = serde_json::from_slice(body).map(|parsed: CodedError| parsed.error).unwrap_or_default();
    let is_code = code.len() <= 64 && code.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_code && !code.is_empty() { format!(": {code}") } else { String::new() }
}

/// Returns the text that describes the error, without the trace and correlation ids, which follow on separate lines
/// or after `Trace ID`.
fn first_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    let line = line.split(" Trace ID:").next().unwrap_or_default();
    let mut short: String = line.chars().take(MAX_MESSAGE_CHARS).collect();
    if short.len() < line.len() {
        short.push('\u{2026}');
    }
    short
}

#[cfg(test)]
mod tests {
    use azure_core::credentials::Secret;
    use azure_core::http::RawResponse;
    use azure_core::http::headers::Headers;

    use super::*;

    #[test]
    fn c3_a_refusal_contains_the_retry_time_of_the_authority() {
        let explainer = Explainer::new(&Identity::Managed(crate::ManagedIdentity::SystemAssigned));
        for (header, retry_after) in [(Some("20"), Some(20)), (Some("soon"), None), (None, None)] {
            let mut headers = Headers::new();
            if let Some(value) = header {
                headers.insert("retry-after", value);
            }
            let raw_response = Some(Box::new(RawResponse::from_bytes(429.into(), headers, "")));
            let kind = ErrorKind::HttpResponse { status: 429.into(), error_code: None, raw_response };
            let error = explainer.explain(&Error::with_message(kind, "refused"));
            assert_eq!(error.kind().to_string(), ErrorKind::Credential.to_string());
            let error = error.downcast_ref::<NoToken>().unwrap();
            assert_eq!(error.retry_after, retry_after.map(Duration::from_secs), "{header:?}");
        }
    }

    #[test]
    fn c1_no_part_of_a_secret_survives_a_repeating_authority() {
        const SECRET: &str = "planted  secret\twith-gaps";
        let (tenant, client_id) = ("t".to_owned(), "c".to_owned());
        let identity = Identity::ClientSecret { tenant, client_id, secret: Secret::new(SECRET) };
        let explainer = Explainer::new(&identity);
        for before in
            [0, 1, 200].into_iter().chain(MAX_MESSAGE_CHARS - 2 * SECRET.len()..MAX_MESSAGE_CHARS + 2)
        {
            let detail = format!("{} {SECRET} after", "x".repeat(before));
            let body = serde_json::json!({ "error_description": detail, "error_codes": [1] }).to_string();
            let response = RawResponse::from_bytes(400.into(), Headers::new(), body);
            let kind = ErrorKind::HttpResponse {
                status: 400.into(),
                error_code: None,
                raw_response: Some(Box::new(response)),
            };
            let error = explainer.explain(&Error::with_message(kind, "refused")).to_string();
            assert!(!error.contains("pla") && !error.contains("gaps"), "{before}: {error}");
        }
    }
}
