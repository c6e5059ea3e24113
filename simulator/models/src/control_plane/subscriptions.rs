//! The subscriptions of one stream, the changes that were sent on it, and so the pending responses.

use std::collections::{BTreeMap, BTreeSet};

use super::{Catalogue, CatalogueMatch, Kind};

/// Subscriptions of a stream.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    kinds: BTreeMap<Kind, Subscription>,
}

/// Subscriptions of a stream for one kind.
#[derive(Clone, Debug, Default)]
struct Subscription {
    names: BTreeSet<String>,
    /// The last change of each name that was sent on the stream; 0 if its absence was sent.
    sent_changes: BTreeMap<String, u64>,
    /// Nonce of the last response; empty before the first.
    nonce: String,
}

/// A pending response without its nonce.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PendingResponse<R, E> {
    /// Version of the kind.
    pub version: String,
    /// Resources, by name.
    pub resources: Vec<(String, R)>,
    /// Errors that replace resources (TP3).
    pub errors: Vec<(String, E)>,
}

impl Subscriptions {
    /// Returns whether a request answers another response than the last one of its kind. A request of an unknown kind
    /// answers none.
    #[must_use]
    pub fn is_stale(&self, kind: Option<Kind>, nonce: &str) -> bool {
        let last = kind.and_then(|kind| self.kinds.get(&kind)).map_or("", |known| &known.nonce);
        !nonce.is_empty() && nonce != last
    }

    /// Records the names of a request that is not stale, or the first of its kind. A trusting control plane assumes
    /// that a client that first claims the current version has all resources of it.
    pub fn on_request<R, E>(
        &mut self,
        kind: Kind,
        (version, nonce): (&str, &str),
        names: &[String],
        catalogue: &Catalogue<R, E>,
        trusts: bool,
    ) {
        let is_first = !self.kinds.contains_key(&kind);
        if self.is_stale(Some(kind), nonce) && !is_first {
            return;
        }
        let subscription = self.kinds.entry(kind).or_default();
        subscription.names = names.iter().cloned().collect();
        // A name that is subscribed to again later is sent again.
        subscription.sent_changes.retain(|name, _| subscription.names.contains(name));
        if is_first && trusts && version == catalogue.version(kind) {
            let sent_changes = |name: &String| (name.clone(), catalogue.find(kind, name).0);
            subscription.sent_changes = subscription.names.iter().map(sent_changes).collect();
        }
    }

    /// Returns the pending response of a kind, which counts as sent.
    pub fn pending_response<R: Clone, E: Clone>(
        &mut self,
        kind: Kind,
        catalogue: &Catalogue<R, E>,
    ) -> Option<PendingResponse<R, E>> {
        let Subscription { names, sent_changes, .. } = self.kinds.get_mut(&kind)?;
        let (mut resources, mut errors, mut any_new) = (Vec::new(), Vec::new(), false);
        for name in &*names {
            let (change, found) = catalogue.find(kind, name);
            let is_new = sent_changes.insert(name.clone(), change) != Some(change);
            any_new |= is_new;
            let is_repeated = match kind {
                Kind::Clusters => true,
                Kind::Endpoints => false,
            };
            match found {
                CatalogueMatch::Resource(resource) if is_new || is_repeated => {
                    resources.push((name.clone(), resource.clone()));
                }
                CatalogueMatch::Error(error) if is_new => errors.push((name.clone(), error.clone())),
                CatalogueMatch::Resource(_) | CatalogueMatch::Error(_) | CatalogueMatch::Nothing => {}
            }
        }
        let is_due = match kind {
            // A cluster that a response does not contain does not exist, so even an empty response has a meaning.
            Kind::Clusters => any_new,
            Kind::Endpoints => !resources.is_empty() || !errors.is_empty(),
        };
        is_due.then(|| PendingResponse { version: catalogue.version(kind), resources, errors })
    }

    /// Records that a response of a kind was sent with this nonce.
    pub fn on_sent(&mut self, kind: Kind, nonce: &str) {
        if let Some(subscription) = self.kinds.get_mut(&kind) {
            nonce.clone_into(&mut subscription.nonce);
        }
    }

    /// Returns whether this is the nonce of the last response of a kind.
    #[must_use]
    pub fn is_last(&self, kind: Kind, nonce: &str) -> bool {
        self.kinds.get(&kind).is_some_and(|subscription| subscription.nonce == nonce)
    }
}
