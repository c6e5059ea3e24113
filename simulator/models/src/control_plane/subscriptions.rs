//! What one stream has subscribed to, what it was told, and so what is due to it.

use std::collections::{BTreeMap, BTreeSet};

use super::{Catalogue, Found, Kind};

/// What a stream has subscribed to.
#[derive(Clone, Debug, Default)]
pub struct Subscriptions {
    kinds: BTreeMap<Kind, Subscription>,
}

/// What a stream has subscribed to of one kind.
#[derive(Clone, Debug, Default)]
struct Subscription {
    names: BTreeSet<String>,
    /// The change that the stream knows of each name; 0 if it knows that there is nothing.
    told: BTreeMap<String, u64>,
    /// The nonce of the last response; empty before the first.
    nonce: String,
}

/// What is due to a stream: a response without its nonce.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Due<R, E> {
    /// The version of the kind.
    pub version: String,
    /// The resources, by name.
    pub resources: Vec<(String, R)>,
    /// The errors in the places of others (TP3).
    pub errors: Vec<(String, E)>,
}

impl Subscriptions {
    /// Whether a request answers another response than the last one of its kind. One of no known kind answers none.
    #[must_use]
    pub fn is_stale(&self, kind: Option<Kind>, nonce: &str) -> bool {
        let last = kind.and_then(|kind| self.kinds.get(&kind)).map_or("", |known| &known.nonce);
        !nonce.is_empty() && nonce != last
    }

    /// Takes the names of a request that is to be heeded: one that is not stale, or the first of its kind. A control
    /// plane that trusts takes it that a client that claims the current version at first has all of it.
    pub fn take<R, E>(
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
        // What is subscribed to once more later is sent once more.
        subscription.told.retain(|name, _| subscription.names.contains(name));
        if is_first && trusts && version == catalogue.version(kind) {
            let told = |name: &String| (name.clone(), catalogue.find(kind, name).0);
            subscription.told = subscription.names.iter().map(told).collect();
        }
    }

    /// What is due to the stream of a kind; it counts as told.
    pub fn due<R: Clone, E: Clone>(&mut self, kind: Kind, catalogue: &Catalogue<R, E>) -> Option<Due<R, E>> {
        let Subscription { names, told, .. } = self.kinds.get_mut(&kind)?;
        let (mut resources, mut errors, mut any_news) = (Vec::new(), Vec::new(), false);
        for name in &*names {
            let (change, found) = catalogue.find(kind, name);
            let is_news = told.insert(name.clone(), change) != Some(change);
            any_news |= is_news;
            let said_again = match kind {
                Kind::Clusters => true,
                Kind::Endpoints => false,
            };
            match found {
                Found::Resource(resource) if is_news || said_again => {
                    resources.push((name.clone(), resource.clone()));
                }
                Found::Error(error) if is_news => errors.push((name.clone(), error.clone())),
                Found::Resource(_) | Found::Error(_) | Found::Nothing => {}
            }
        }
        let is_due = match kind {
            // What a response of clusters does not name is not there, and so even an empty one says something.
            Kind::Clusters => any_news,
            Kind::Endpoints => !resources.is_empty() || !errors.is_empty(),
        };
        is_due.then(|| Due { version: catalogue.version(kind), resources, errors })
    }

    /// A response of a kind was sent with this nonce.
    pub fn sent(&mut self, kind: Kind, nonce: &str) {
        if let Some(subscription) = self.kinds.get_mut(&kind) {
            nonce.clone_into(&mut subscription.nonce);
        }
    }

    /// Whether this is the nonce of the last response of a kind.
    #[must_use]
    pub fn is_last(&self, kind: Kind, nonce: &str) -> bool {
        self.kinds.get(&kind).is_some_and(|subscription| subscription.nonce == nonce)
    }
}
