//! The tokens that this process has sent recently. A peer may repeat a token anywhere and at any later time, without
//! the scheme before it, and that text passes through many modules before it is shown. Therefore the tokens are
//! process-wide, like the log.

use std::sync::{Arc, PoisonError};

use super::needle::Needles;

/// The shortest token that is known, in bytes: a shorter one would blot out ordinary words.
const SHORTEST: usize = 8;
/// The shortest part of a token that is known by itself, in bytes.
const SHORTEST_PART: usize = 16;
/// How many tokens of each recipient are kept. A token lasts for an hour or longer, so these cover several hours.
const KEPT: usize = 8;

/// To whom a token is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Recipient {
    /// Azure Resource Manager.
    Azure,
    /// The login endpoint, which issues tokens for Azure: the assertion of a workload identity.
    Authority,
    /// The Kubernetes API server.
    ApiServer,
    /// A control plane of xDS, by its address. Each of them is a recipient by itself.
    ControlPlane(Arc<str>),
    /// A proxy, by its address: each has a password of its own.
    Proxy(Arc<str>),
}

/// The tokens, and what is looked for because of them.
#[derive(Default)]
pub(super) struct Recent {
    /// The newest of each recipient last.
    tokens: Vec<(Recipient, Arc<str>)>,
    pub(super) needles: Needles,
}

#[expect(
    clippy::disallowed_types,
    reason = "log and commands know the tokens too, and no actor; held for a copy"
)]
static RECENT: std::sync::RwLock<Option<Arc<Recent>>> = std::sync::RwLock::new(None);

/// Remembers a token that is sent now: no text that is shown from now on holds it, nor its signature, where it has one.
pub fn sent(to: &Recipient, token: &str) {
    if token.len() >= SHORTEST && !recent().is_some_and(|recent| recent.is_newest(to, token)) {
        let mut recent = RECENT.write().unwrap_or_else(PoisonError::into_inner);
        *recent = Some(Arc::new(Recent::with(recent.as_deref(), to, token)));
    }
}

/// What is known of tokens now.
pub(super) fn recent() -> Option<Arc<Recent>> {
    RECENT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

impl Recent {
    fn is_newest(&self, to: &Recipient, token: &str) -> bool {
        let newest = self.tokens.iter().rev().find(|(recipient, _)| recipient == to);
        newest.is_some_and(|(_, newest)| **newest == *token)
    }

    /// These, with this one as the newest.
    pub(super) fn with(before: Option<&Recent>, to: &Recipient, token: &str) -> Recent {
        let mut tokens = before.map(|recent| recent.tokens.clone()).unwrap_or_default();
        tokens.retain(|(recipient, other)| (recipient, &**other) != (to, token));
        let of_recipient = tokens.iter().filter(|(recipient, _)| recipient == to).count();
        if of_recipient >= KEPT
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
        Recent { tokens, needles }
    }
}

#[cfg(test)]
mod tests;
