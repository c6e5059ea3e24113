//! Who we are: the credential of the SDK, and the means to begin it anew when Azure refuses its token (C3).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use azure_core::cloud::CustomConfiguration;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::{ClientOptions, ExponentialRetryOptions, RetryOptions, Transport};
use azure_identity::{
    ClientAssertionCredentialOptions, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};

use crate::settings::Identity;

/// How often a token is asked for again when the authority does not answer.
const TOKEN_RETRIES: u32 = 2;

/// How long a token is waited for, tries and all. The SDK would sleep as long as the authority's `Retry-After`
/// says, and every other call behind it.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);

/// A workload identity whose token cache can be thrown away.
///
/// The SDK's credential keeps a token until shortly before it expires, and would give out one that Azure has
/// refused again and again; a new credential has no token, and reads the service account token anew.
pub(crate) struct Renewable {
    make: Box<dyn Fn() -> azure_core::Result<Arc<WorkloadIdentityCredential>> + Send + Sync>,
    current: ArcSwap<WorkloadIdentityCredential>,
}

impl Renewable {
    /// The credential of an identity; `None` for the identity that has none.
    pub(crate) fn new(
        identity: &Identity,
        transport: &Transport,
    ) -> azure_core::Result<Option<Arc<Renewable>>> {
        match identity {
            Identity::Anonymous => Ok(None),
            Identity::WorkloadIdentity { tenant, client_id, token_file, authority_host } => {
                let (tenant, client_id) = (tenant.clone(), client_id.clone());
                let (token_file, authority_host) = (token_file.clone(), authority_host.clone());
                let transport = transport.clone();
                let make = Box::new(move || {
                    WorkloadIdentityCredential::new(Some(WorkloadIdentityCredentialOptions {
                        credential_options: ClientAssertionCredentialOptions {
                            client_options: client_options(&transport, &authority_host),
                        },
                        client_id: Some(client_id.clone()),
                        tenant_id: Some(tenant.clone()),
                        token_file_path: Some(token_file.clone()),
                    }))
                });
                let current = ArcSwap::new(make()?);
                Ok(Some(Arc::new(Renewable { make, current })))
            }
        }
    }

    /// Begins the credential anew; the old one stays when that fails.
    pub(crate) fn renew(&self) -> azure_core::Result<()> {
        self.current.store((self.make)()?);
        Ok(())
    }
}

fn client_options(transport: &Transport, authority_host: &str) -> ClientOptions {
    let mut cloud = CustomConfiguration::default();
    cloud.authority_host = authority_host.to_owned();
    ClientOptions {
        transport: Some(transport.clone()),
        cloud: Some(Arc::new(cloud.into())),
        retry: RetryOptions::exponential(ExponentialRetryOptions {
            max_retries: TOKEN_RETRIES,
            ..ExponentialRetryOptions::default()
        }),
        ..ClientOptions::default()
    }
}

impl fmt::Debug for Renewable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renewable")
    }
}

#[async_trait::async_trait]
impl TokenCredential for Renewable {
    async fn get_token(
        &self,
        scopes: &[&str],
        options: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let current = self.current.load_full();
        match tokio::time::timeout(TOKEN_TIMEOUT, current.get_token(scopes, options)).await {
            Ok(result) => result,
            Err(elapsed) => Err(Error::with_error(ErrorKind::Credential, elapsed, "no token in time")),
        }
    }
}
