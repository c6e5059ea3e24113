//! The served resources and errors, and the version of each kind. `subscriptions` records the resources that were sent
//! on each stream.

use std::collections::BTreeMap;

use super::Kind;

/// All served entries: resources `R`, and errors `E` that replace them.
#[derive(Clone, Debug)]
pub struct Catalogue<R, E> {
    kinds: BTreeMap<Kind, KindEntries<R, E>>,
    /// Number of changes of all kinds, across restarts: it distinguishes versions of entries.
    changes: u64,
}

/// Served entries of one kind.
#[derive(Clone, Debug)]
struct KindEntries<R, E> {
    /// Number of changes of this kind since the last restart.
    version: u64,
    entries: BTreeMap<String, Entry<R, E>>,
}

/// State of a name.
#[derive(Clone, Debug)]
struct Entry<R, E> {
    resource: Option<R>,
    /// Error that hides the resource.
    error: Option<E>,
    /// Number of its last change; never 0.
    change: u64,
}

/// Answer about a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CatalogueMatch<'a, R, E> {
    /// The resource exists.
    Resource(&'a R),
    /// An error replaces the resource.
    Error(&'a E),
    /// The resource does not exist.
    Nothing,
}

impl<R, E> Default for Catalogue<R, E> {
    fn default() -> Self {
        Self { kinds: BTreeMap::new(), changes: 0 }
    }
}

impl<R, E> Default for KindEntries<R, E> {
    fn default() -> Self {
        Self { version: 0, entries: BTreeMap::new() }
    }
}

impl<R, E> Catalogue<R, E> {
    /// Returns the state of a name, and the number of its last change: 0 if it does not exist.
    pub fn find(&self, kind: Kind, name: &str) -> (u64, CatalogueMatch<'_, R, E>) {
        let Some(entry) = self.kinds.get(&kind).and_then(|kind_entries| kind_entries.entries.get(name))
        else {
            return (0, CatalogueMatch::Nothing);
        };
        let found = match (&entry.error, &entry.resource) {
            (Some(error), _) => CatalogueMatch::Error(error),
            (None, Some(resource)) => CatalogueMatch::Resource(resource),
            (None, None) => CatalogueMatch::Nothing,
        };
        (entry.change, found)
    }

    /// Returns the version of a kind in responses.
    pub fn version(&self, kind: Kind) -> String {
        self.kinds.get(&kind).map_or(0, |kind_entries| kind_entries.version).to_string()
    }

    /// Sets these resources, and removes their errors.
    pub fn set(&mut self, kind: Kind, resources: Vec<(String, R)>) {
        let (change, kind_entries) = self.next(kind);
        for (name, resource) in resources {
            kind_entries.entries.insert(name, Entry { resource: Some(resource), error: None, change });
        }
    }

    /// Removes this name, and its error.
    pub fn remove(&mut self, kind: Kind, name: &str) {
        self.next(kind).1.entries.remove(name);
    }

    /// Replaces this name by an error.
    pub fn fail(&mut self, kind: Kind, name: String, error: E) {
        let (change, kind_entries) = self.next(kind);
        let entry = kind_entries.entries.entry(name).or_insert(Entry { resource: None, error: None, change });
        (entry.error, entry.change) = (Some(error), change);
    }

    /// Removes the error of this name, which restores the state before.
    pub fn forget_error(&mut self, kind: Kind, name: &str) {
        let (change, kind_entries) = self.next(kind);
        let Some(entry) = kind_entries.entries.get_mut(name) else { return };
        (entry.error, entry.change) = (None, change);
        if entry.resource.is_none() {
            kind_entries.entries.remove(name);
        }
    }

    /// Removes everything of this kind.
    pub fn clear(&mut self, kind: Kind) {
        self.next(kind).1.entries.clear();
    }

    /// Restarts the counting of versions, as after a restart: the current state is the first change.
    pub fn forget_versions(&mut self) {
        for kind_entries in self.kinds.values_mut() {
            kind_entries.version = u64::from(!kind_entries.entries.is_empty());
        }
    }

    fn next(&mut self, kind: Kind) -> (u64, &mut KindEntries<R, E>) {
        self.changes += 1;
        let kind_entries = self.kinds.entry(kind).or_default();
        kind_entries.version += 1;
        (self.changes, kind_entries)
    }
}
