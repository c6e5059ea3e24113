//! Who we are: the credential of the SDK, and the means to begin it anew when Azure refuses its token (C3).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use azure_core::cloud::CustomConfiguration;
use azure_core::credentials::{AccessToken, TokenCredential, TokenRequestOptions};
use azure_core::error::{Error, ErrorKind};
use azure_core::http::{ClientOptions, ExponentialRetryOptions, RetryOptions, Transport};
use azure_identity::{
    ClientAssertionCredentialOptions, WorkloadIdentityCredential, WorkloadIdentityCredentialOptions,
};
use pool_core::machine::Now;

use crate::settings::{Clocks, Identity};

/// How often a token is asked for again when the authority does not answer.
const TOKEN_RETRIES: u32 = 2;

/// How long a token is waited for, tries and all. The SDK would sleep as long as the authority's `Retry-After`
/// says, and every other call behind it.
const TOKEN_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a new token is waited for while the old one is still good.
const PATIENCE: Duration = Duration::from_secs(3);

/// How long a refresh that brought nothing is not tried again while the old token is still good.
const REST: Duration = Duration::from_secs(10);

/// For how long a token must still be good so that nobody is asked: a little longer than where the SDK begins to ask.
const FRESH: Duration = Duration::from_secs(6 * 60);

/// How long a token must still be good when it is given out in place of a new one.
const STILL_GOOD: Duration = Duration::from_secs(30);

/// Makes a credential without token.
pub(crate) type Make = Box<dyn Fn() -> azure_core::Result<Arc<dyn TokenCredential>> + Send + Sync>;

/// A workload identity whose token cache can be thrown away.
///
/// The SDK's credential keeps a token until shortly before it expires, and would give out one that Azure has
/// refused again and again; a new credential has no token, and reads the service account token anew.
///
/// In the last minutes of a token the SDK asks for a new one with every call, one call behind the other. When that
/// hangs or fails, the old token is given out meanwhile.
pub(crate) struct Renewable {
    make: Make,
    clocks: Clocks,
    current: ArcSwap<Current>,
}

/// One credential and what it gave.
struct Current {
    credential: Arc<dyn TokenCredential>,
    last: ArcSwapOption<AccessToken>,
    /// When a refresh brought nothing.
    failed: ArcSwapOption<Now>,
    clocks: Clocks,
}

impl Renewable {
    /// The credential of an identity; `None` for the identity that has none.
    pub(crate) fn new(
        identity: &Identity,
        transport: &Transport,
        clocks: Clocks,
    ) -> azure_core::Result<Option<Arc<Renewable>>> {
        match identity {
            Identity::Anonymous => Ok(None),
            Identity::WorkloadIdentity { tenant, client_id, token_file, authority_host } => {
                let (tenant, client_id) = (tenant.clone(), client_id.clone());
                let (token_file, authority_host) = (token_file.clone(), authority_host.clone());
                let transport = transport.clone();
                let make = move || {
                    let options = WorkloadIdentityCredentialOptions {
                        credential_options: ClientAssertionCredentialOptions {
                            client_options: client_options(&transport, &authority_host),
                        },
                        client_id: Some(client_id.clone()),
                        tenant_id: Some(tenant.clone()),
                        token_file_path: Some(token_file.clone()),
                    };
                    let made: Arc<dyn TokenCredential> = WorkloadIdentityCredential::new(Some(options))?;
                    Ok(made)
                };
                Ok(Some(Arc::new(Renewable::made_by(Box::new(make), clocks)?)))
            }
        }
    }

    /// One that gets its credentials from here.
    pub(crate) fn made_by(make: Make, clocks: Clocks) -> azure_core::Result<Renewable> {
        let current = ArcSwap::from_pointee(Current::new(make()?, clocks.clone()));
        Ok(Renewable { make, clocks, current })
    }

    /// Begins the credential anew; the old one stays when that fails.
    pub(crate) fn renew(&self) -> azure_core::Result<()> {
        self.current.store(Arc::new(Current::new((self.make)()?, self.clocks.clone())));
        Ok(())
    }
}

impl Current {
    fn new(credential: Arc<dyn TokenCredential>, clocks: Clocks) -> Current {
        Current { credential, last: ArcSwapOption::empty(), failed: ArcSwapOption::empty(), clocks }
    }

    /// The last token, if it is good for longer than this.
    fn good_for(&self, span: Duration) -> Option<AccessToken> {
        let last = self.last.load_full()?;
        let left =
            last.expires_on.unix_timestamp_nanos() / 1_000 - i128::from(self.clocks.wall().as_micros());
        (left > i128::try_from(span.as_micros()).unwrap_or(i128::MAX)).then(|| (*last).clone())
    }

    fn rests(&self) -> bool {
        self.failed.load().as_ref().is_some_and(|failed| self.clocks.now().since(**failed) < REST)
    }

    /// A refresh has brought nothing.
    fn note_failure(&self) {
        self.failed.store(Some(Arc::new(self.clocks.now())));
    }

    /// Asks the SDK, which answers from its cache unless the token is about to expire.
    async fn ask(&self, scopes: Vec<String>) -> azure_core::Result<AccessToken> {
        let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
        match tokio::time::timeout(TOKEN_TIMEOUT, self.credential.get_token(&scopes, None)).await {
            Ok(Ok(token)) => {
                self.last.store(Some(Arc::new(token.clone())));
                self.failed.store(None);
                Ok(token)
            }
            Ok(Err(error)) => {
                self.note_failure();
                Err(error)
            }
            Err(elapsed) => {
                self.note_failure();
                Err(Error::with_error(ErrorKind::Credential, elapsed, "no token in time"))
            }
        }
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
        _: Option<TokenRequestOptions<'_>>,
    ) -> azure_core::Result<AccessToken> {
        let current = self.current.load_full();
        if let Some(fresh) = current.good_for(FRESH) {
            return Ok(fresh);
        }
        let old = current.good_for(STILL_GOOD);
        if let (Some(old), true) = (&old, current.rests()) {
            return Ok(old.clone());
        }
        let scopes: Vec<String> = scopes.iter().map(ToString::to_string).collect();
        let Some(old) = old else { return current.ask(scopes).await };
        // On a task of its own: it goes on when nobody waits for it any more.
        let asking = Arc::clone(&current);
        let asked = tokio::spawn(async move { asking.ask(scopes).await });
        match tokio::time::timeout(PATIENCE, asked).await {
            Ok(Ok(Ok(token))) => Ok(token),
            Ok(Ok(Err(error))) => {
                tracing::debug!(%error, "no new token; the old one is used on");
                Ok(old)
            }
            Ok(Err(_)) => Ok(old),
            Err(_) => {
                current.note_failure();
                tracing::debug!("a new token does not come; the old one is used on");
                Ok(old)
            }
        }
    }
}
