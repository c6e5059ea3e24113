//! The tokens that this process has sent recently. A peer may repeat a token anywhere and at any later time, without
//! the scheme before it, and that text passes through many modules before it is displayed. Therefore the tokens are
//! process-wide, like the log.

use std::sync::{Arc, PoisonError};

use super::needle::Needles;

/// The shortest token that is removed, in bytes. Removing shorter ones would hide ordinary words.
const SHORTEST: usize = 8;
/// The shortest part of a token that is removed by itself, in bytes.
const SHORTEST_PART: usize = 16;
/// The number of tokens that are kept for each recipient. A token lasts an hour or longer, so they cover several
/// hours.
const TOKENS_PER_RECIPIENT: usize = 8;

/// The recipient of a token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// Azure Resource Manager.
    Azure,
    /// The login endpoint, which issues tokens for Azure: the assertion of a workload identity.
    Authority,
    /// The Kubernetes API server.
    ApiServer,
    /// An xDS control plane, by its address. Each one is a separate recipient.
    ControlPlane(Arc<str>),
    /// A proxy, by its address. Each has its own password.
    Proxy(Arc<str>),
}

/// The tokens, and the secrets to search for because of them.
#[derive(Default)]
pub(super) struct RecentTokens {
    /// Tokens with their recipients; the newest of each recipient is last.
    tokens: Vec<(Recipient, Arc<str>)>,
    pub(super) needles: Needles,
}

#[expect(
    clippy::disallowed_types,
    reason = "the log and the commands need the tokens too, outside of actors; held only for a copy"
)]
static RECENT: std::sync::RwLock<Option<Arc<RecentTokens>>> = std::sync::RwLock::new(None);

/// Records a token that is being sent. Texts displayed from now on contain neither the token nor its signature.
pub fn record_sent_token(to: &Recipient, token: &str) {
    if token.len() >= SHORTEST && !recent().is_some_and(|recent| recent.is_newest(to, token)) {
        let mut recent = RECENT.write().unwrap_or_else(PoisonError::into_inner);
        *recent = Some(Arc::new(RecentTokens::with(recent.as_deref(), to, token)));
    }
}

/// Returns the tokens known now.
pub(super) fn recent() -> Option<Arc<RecentTokens>> {
    RECENT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl RecentTokens {
    fn is_newest(&self, to: &Recipient, token: &str) -> bool {
        let newest = self.tokens.iter().rev().find(|(recipient, _)| recipient == to);
        newest.is_some_and(|(_, newest)| **newest == *token)
    }

    /// Returns the tokens with this token added as the newest.
    pub(super) fn with(before: Option<&RecentTokens>, to: &Recipient, token: &str) -> RecentTokens {
        let mut tokens = before.map(|recent| recent.tokens.clone()).unwrap_or_default();
        tokens.retain(|(recipient, other)| (recipient, &**other) != (to, token));
        let of_recipient = tokens.iter().filter(|(recipient, _)| recipient == to).count();
        if of_recipient >= TOKENS_PER_RECIPIENT
            && let Some(oldest) = tokens.iter().position(|(recipient, _)| recipient == to)
        {
            tokens.remove(oldest);
        }
        tokens.push((to.clone(), Arc::from(token)));
        let mut needles = Needles::default();
        for (_, token) in &tokens {
            needles.add(token.as_bytes());
            needles.add_in_base64(token.as_bytes());
            // The signature is the secret part of a JSON web token.
            if let Some((_, signature)) = token.rsplit_once('.').filter(|(_, it)| it.len() >= SHORTEST_PART) {
                needles.add(signature.as_bytes());
            }
        }
        RecentTokens { tokens, needles }
    }
}

#[cfg(test)]
mod tests;
