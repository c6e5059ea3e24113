//! The resources and errors that are served, and the version of each kind. What which stream knows of them is
//! `subscriptions`'.

use std::collections::BTreeMap;

use super::Kind;

/// Everything that is served: resources `R`, and errors `E` in their places.
#[derive(Clone, Debug)]
pub struct Catalogue<R, E> {
    shelves: BTreeMap<Kind, Shelf<R, E>>,
    /// Counts changes of all kinds, over restarts too: entries are told apart by it.
    changes: u64,
}

/// What is served of one kind.
#[derive(Clone, Debug)]
struct Shelf<R, E> {
    /// Counts the changes of this kind since the last restart.
    version: u64,
    entries: BTreeMap<String, Entry<R, E>>,
}

/// What is known of a name.
#[derive(Clone, Debug)]
struct Entry<R, E> {
    resource: Option<R>,
    /// Hides the resource.
    error: Option<E>,
    /// The change that made it so; never 0.
    change: u64,
}

/// What there is to say of a name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Found<'a, R, E> {
    /// It exists.
    Resource(&'a R),
    /// There is an error in its place.
    Error(&'a E),
    /// There is nothing of that name.
    Nothing,
}

impl<R, E> Default for Catalogue<R, E> {
    fn default() -> Self {
        Self { shelves: BTreeMap::new(), changes: 0 }
    }
}

impl<R, E> Default for Shelf<R, E> {
    fn default() -> Self {
        Self { version: 0, entries: BTreeMap::new() }
    }
}

impl<R, E> Catalogue<R, E> {
    /// What there is of a name, and the number of the change since when: 0 where there is nothing.
    pub fn find(&self, kind: Kind, name: &str) -> (u64, Found<'_, R, E>) {
        let Some(entry) = self.shelves.get(&kind).and_then(|shelf| shelf.entries.get(name)) else {
            return (0, Found::Nothing);
        };
        let found = match (&entry.error, &entry.resource) {
            (Some(error), _) => Found::Error(error),
            (None, Some(resource)) => Found::Resource(resource),
            (None, None) => Found::Nothing,
        };
        (entry.change, found)
    }

    /// The version of a kind, as it stands in responses.
    pub fn version(&self, kind: Kind) -> String {
        self.shelves.get(&kind).map_or(0, |shelf| shelf.version).to_string()
    }

    /// These exist from now on, each as it is here, and without an error.
    pub fn set(&mut self, kind: Kind, resources: Vec<(String, R)>) {
        let (change, shelf) = self.next(kind);
        for (name, resource) in resources {
            shelf.entries.insert(name, Entry { resource: Some(resource), error: None, change });
        }
    }

    /// There is nothing of this name any more, and no error either.
    pub fn remove(&mut self, kind: Kind, name: &str) {
        self.next(kind).1.entries.remove(name);
    }

    /// There is an error in the place of this name.
    pub fn fail(&mut self, kind: Kind, name: String, error: E) {
        let (change, shelf) = self.next(kind);
        let entry = shelf.entries.entry(name).or_insert(Entry { resource: None, error: None, change });
        (entry.error, entry.change) = (Some(error), change);
    }

    /// There is no error in the place of this name any more, but what was there before.
    pub fn forget_error(&mut self, kind: Kind, name: &str) {
        let (change, shelf) = self.next(kind);
        let Some(entry) = shelf.entries.get_mut(name) else { return };
        (entry.error, entry.change) = (None, change);
        if entry.resource.is_none() {
            shelf.entries.remove(name);
        }
    }

    /// There is nothing of this kind any more.
    pub fn clear(&mut self, kind: Kind) {
        self.next(kind).1.entries.clear();
    }

    /// Counts versions again, as after a restart: what is served is the first change.
    pub fn forget_versions(&mut self) {
        for shelf in self.shelves.values_mut() {
            shelf.version = u64::from(!shelf.entries.is_empty());
        }
    }

    fn next(&mut self, kind: Kind) -> (u64, &mut Shelf<R, E>) {
        self.changes += 1;
        let shelf = self.shelves.entry(kind).or_default();
        shelf.version += 1;
        (self.changes, shelf)
    }
}
