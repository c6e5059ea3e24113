//! Shares equal texts: each endpoint contains the name of its node.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::ids::{NodeName, ServiceKey, SliceKey};
use model::object::SliceObject;

/// The shared texts.
#[derive(Default, Debug)]
pub(super) struct Interner {
    known: BTreeSet<Arc<str>>,
    /// The number of texts above which unused ones are dropped.
    limit: usize,
}

impl Interner {
    fn share(&mut self, text: Arc<str>) -> Arc<str> {
        if let Some(known) = self.known.get(&text) {
            return Arc::clone(known);
        }
        if self.known.len() >= self.limit {
            self.known.retain(|text| Arc::strong_count(text) > 1);
            self.limit = 1_024.max(self.known.len() * 2);
        }
        self.known.insert(Arc::clone(&text));
        text
    }

    /// Returns the name, shared.
    pub(super) fn node(&mut self, name: &NodeName) -> NodeName {
        NodeName::new(self.share(name.shared()))
    }

    /// Returns the slice with shared texts and without spare capacity. It is copied only if the caller is not its only
    /// holder.
    pub(super) fn slice(&mut self, slice: Arc<SliceObject>) -> Arc<SliceObject> {
        let mut slice = Arc::unwrap_or_clone(slice);
        let namespace = self.share(slice.key.namespace);
        slice.key = SliceKey { namespace: Arc::clone(&namespace), name: slice.key.name };
        if let Some(service) = slice.service.take() {
            // Of slices without a Service, only the name and the version are used.
            slice.service = Some(ServiceKey { namespace, name: self.share(service.name) });
        } else {
            slice.endpoints.clear();
        }
        for endpoint in &mut slice.endpoints {
            if let Some(node) = endpoint.node.take() {
                endpoint.node = Some(self.node(&node));
            }
        }
        slice.endpoints.shrink_to_fit();
        Arc::new(slice)
    }
}
