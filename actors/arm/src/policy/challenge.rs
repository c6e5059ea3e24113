//! What follows a 401: one more try with a token that no cache held (W5).

use std::sync::Arc;

use azure_core::credentials::TokenRequestOptions;
use azure_core::http::headers::Headers;
use azure_core::http::policies::auth::{Authorizer, OnChallenge};
use azure_core::http::{Context, Request};

use crate::credential::Renewable;

/// Renews the credential and puts its new token on the request; the bearer policy then sends it once more.
#[derive(Debug)]
pub(crate) struct RenewOnChallenge {
    credential: Arc<Renewable>,
    scope: String,
}

impl RenewOnChallenge {
    pub(crate) fn new(credential: Arc<Renewable>, scope: String) -> RenewOnChallenge {
        RenewOnChallenge { credential, scope }
    }
}

#[async_trait::async_trait]
impl OnChallenge for RenewOnChallenge {
    async fn on_challenge(
        &self,
        _: &Context,
        request: &mut Request,
        authorizer: &dyn Authorizer,
        _: &Headers,
    ) -> azure_core::Result<()> {
        self.credential.renew()?;
        authorizer.authorize(request, &[&self.scope], TokenRequestOptions::default()).await
    }
}
