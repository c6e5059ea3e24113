//! The SDK's credential for each identity, with our transport and clock. Files are read again for every token, and
//! errors name what to change.

use std::fmt;
use std::sync::Arc;

use azure_core::cloud::CustomConfiguration;
use azure_core::credentials::{AccessToken, Secret, TokenCredential, TokenRequestOptions};
use azure_core::http::{ClientOptions, RetryOptions, Transport};
use azure_identity::{
    ClientAssertion, ClientAssertionCredential, ClientAssertionCredentialOptions, ClientSecretCredential,
    ClientSecretCredentialOptions, ManagedIdentityCredential, ManagedIdentityCredentialOptions,
    UserAssignedId,
};
use url::Url;

use super::CredentialFactory;
use super::certificate::Certificate;
use super::explain::Explainer;
use super::metadata::FromMetadata;
use super::once::NoRetryTransport;
use super::token_file::TokenFile;
use crate::identity::{Identity, Login, ManagedIdentity};
use crate::settings::Clocks;

/// Returns the factory for credentials of an identity; `None` for the anonymous one. Reads the files of the identity
/// once, so that a wrong path is reported at startup and not with the first write.
pub(super) fn of(
    identity: &Identity,
    login: &Login,
    transport: &Transport,
    clocks: &Clocks,
) -> azure_core::Result<Option<CredentialFactory>> {
    match identity {
        Identity::Anonymous => return Ok(None),
        Identity::WorkloadIdentity { .. }
        | Identity::Managed(_)
        | Identity::ClientSecret { .. }
        | Identity::ClientCertificate { .. } => {}
    }
    let source = Source { identity: identity.clone(), transport: transport.clone(), clocks: clocks.clone() };
    source.check_files()?;
    let (source, login) = (Arc::new(source), login.clone());
    Ok(Some(Arc::new(move || {
        let made: Arc<dyn TokenCredential> = match &login {
            Login::Known { authority_host, .. } => {
                // A credential that cannot be created is reported immediately.
                source.credential(authority_host)?;
                Arc::new(Uncached { source: Arc::clone(&source), authority_host: authority_host.clone() })
            }
            Login::Metadata { document, cloud, authority_host } => {
                let (document, host) = (document.clone(), authority_host.clone());
                Arc::new(FromMetadata::new(Arc::clone(&source), document, cloud.clone(), host))
            }
        };
        Ok(Arc::new(Explained { inner: made, explainer: Explainer::new(&source.identity) }))
    })))
}

/// An identity and the parts of its credentials.
pub(super) struct Source {
    pub(super) identity: Identity,
    pub(super) transport: Transport,
    clocks: Clocks,
}

impl Source {
    /// Creates a credential for this authority, without a token.
    pub(super) fn credential(&self, authority_host: &str) -> azure_core::Result<Arc<dyn TokenCredential>> {
        let client_options = self.client_options(authority_host);
        match &self.identity {
            Identity::Anonymous => unreachable!("the anonymous identity makes no credential"),
            Identity::WorkloadIdentity { tenant, client_id, token_file } => {
                let file = TokenFile::new(token_file.clone());
                asserting(tenant, client_id, file, client_options)
            }
            Identity::Managed(which) => {
                let user_assigned_id = match which {
                    ManagedIdentity::SystemAssigned => None,
                    ManagedIdentity::ClientId(id) => Some(UserAssignedId::ClientId(id.clone())),
                    ManagedIdentity::ResourceId(id) => Some(UserAssignedId::ResourceId(id.clone())),
                };
                let options = ManagedIdentityCredentialOptions { user_assigned_id, client_options };
                let made: Arc<dyn TokenCredential> = ManagedIdentityCredential::new(Some(options))?;
                Ok(made)
            }
            Identity::ClientSecret { tenant, client_id, secret } => {
                let options = Some(ClientSecretCredentialOptions { client_options });
                let secret = Secret::new(secret.secret().to_owned());
                let made: Arc<dyn TokenCredential> =
                    ClientSecretCredential::new(tenant, client_id.clone(), secret, options)?;
                Ok(made)
            }
            Identity::ClientCertificate { tenant, client_id, path, password } => {
                let certificate = Certificate {
                    path: path.clone(),
                    password: password.clone(),
                    client_id: client_id.clone(),
                    audience: token_endpoint(authority_host, tenant)?,
                    clocks: self.clocks.clone(),
                };
                asserting(tenant, client_id, certificate, client_options)
            }
        }
    }

    /// Checks that the files of the identity can be used now.
    fn check_files(&self) -> azure_core::Result<()> {
        match &self.identity {
            Identity::Anonymous | Identity::Managed(_) | Identity::ClientSecret { .. } => Ok(()),
            Identity::WorkloadIdentity { token_file, .. } => super::token_file::check(token_file),
            Identity::ClientCertificate { path, password, .. } => {
                super::certificate::check(path, password.as_ref())
            }
        }
    }

    fn client_options(&self, authority_host: &str) -> ClientOptions {
        let mut cloud = CustomConfiguration::default();
        cloud.authority_host = authority_host.to_owned();
        ClientOptions {
            transport: Some(NoRetryTransport::over(&self.transport)),
            cloud: Some(Arc::new(cloud.into())),
            retry: RetryOptions::none(),
            ..ClientOptions::default()
        }
    }
}

/// Returns the token endpoint that an assertion names: below the root of the authority's host, whatever the path of
/// the host is.
fn token_endpoint(authority_host: &str, tenant: &str) -> azure_core::Result<String> {
    let host = Url::parse(authority_host)?;
    Ok(host.join(&format!("/{tenant}/oauth2/v2.0/token"))?.into())
}

fn asserting(
    tenant: &str,
    client_id: &str,
    assertion: impl ClientAssertion + 'static,
    client_options: ClientOptions,
) -> azure_core::Result<Arc<dyn TokenCredential>> {
    let options = Some(ClientAssertionCredentialOptions { client_options });
    let made: Arc<dyn TokenCredential> =
        ClientAssertionCredential::new(tenant.to_owned(), client_id.to_owned(), assertion, options)?;
    Ok(made)
}

/// The SDK's credential, created again for each token: otherwise it would answer from a cache with its own clock, and
/// [`renewal`](super::renewal) decides about that.
struct Uncached {
    source: Arc<Source>,
    authority_host: String,
}

impl fmt::Debug for Uncached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Uncached")
    }
}

#[async_trait::async_trait]
impl TokenCredential for Uncached {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        self.source.credential(&self.authority_host)?.get_token(scopes, options).await
    }
}

/// A credential whose errors name what to change.
#[derive(Debug)]
struct Explained {
    inner: Arc<dyn TokenCredential>,
    explainer: Explainer,
}

#[async_trait::async_trait]
impl TokenCredential for Explained {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        match self.inner.get_token(scopes, options).await {
            Ok(token) if token.token.secret().is_empty() => Err(self.explainer.without_token()),
            Ok(token) => Ok(token),
            Err(error) => Err(self.explainer.explain(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::token_endpoint;

    #[test]
    fn c3_the_audience_of_an_assertion_is_its_destination() {
        for host in ["https://login.test", "https://login.test/", "https://login.test/common/?x=1"] {
            let endpoint = token_endpoint(host, "my-tenant").unwrap();
            assert_eq!(endpoint, "https://login.test/my-tenant/oauth2/v2.0/token", "{host}");
        }
    }
}
