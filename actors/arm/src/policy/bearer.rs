//! Adds the token to each try, and retries once with another token after a 401 (W5).

use std::sync::Arc;

use azure_core::credentials::AccessToken;
use azure_core::error::{Error, ErrorKind};
use azure_core::http::headers::AUTHORIZATION;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request, StatusCode};
use model::redact::{Recipient, record_sent_token};

use crate::credential::Tokens;

/// Adds a token to each request. The SDK's own policy would cache tokens with its own clock.
#[derive(Debug)]
pub(crate) struct BearerPolicy(pub(crate) Arc<Tokens>);

impl BearerPolicy {
    async fn authorize(&self, request: &mut Request) -> azure_core::Result<AccessToken> {
        let token = self.0.token().await?;
        record_sent_token(&Recipient::Azure, token.token.secret());
        request.insert_header(AUTHORIZATION, format!("Bearer {}", token.token.secret()));
        Ok(token)
    }
}

#[async_trait::async_trait]
impl Policy for BearerPolicy {
    async fn send(&self, context: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        if request.url().scheme() != "https" {
            return Err(Error::with_message(ErrorKind::Other, "no token is sent over plain http"));
        }
        let token = self.authorize(request).await?;
        let answer = next[0].send(context, request, &next[1..]).await?;
        if answer.status() != StatusCode::Unauthorized {
            return Ok(answer);
        }
        let refused = token.token.secret().to_owned();
        self.0.rejected(token).await;
        let token = self.authorize(request).await?;
        if token.token.secret() == refused {
            // A token was replaced recently: Azure rejects it for a reason other than its age.
            return Ok(answer);
        }
        request.body_mut().reset().await?;
        next[0].send(context, request, &next[1..]).await
    }
}
