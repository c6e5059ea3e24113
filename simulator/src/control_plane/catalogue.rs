//! The configured resources and errors, and the version of each kind. What which stream knows of them is `stream`'s.

use std::collections::BTreeMap;

use envoy_types::pb::google::protobuf::Any;

use super::journal::Refusal;
use super::resources::Kind;

/// Everything that is configured.
#[derive(Default)]
pub(super) struct Catalogue {
    shelves: BTreeMap<Kind, Shelf>,
    /// Counts changes of all kinds, over restarts too: entries are told apart by it.
    changes: u64,
}

/// What is configured of one kind.
#[derive(Default)]
struct Shelf {
    /// Counts the changes of this kind since the last restart.
    version: u64,
    entries: BTreeMap<String, Entry>,
}

/// What is known of a name.
#[derive(Default)]
struct Entry {
    resource: Option<Any>,
    /// Hides the resource.
    error: Option<Refusal>,
    /// The change that made it so; never 0.
    change: u64,
}

/// What there is to say of a name.
pub(super) enum Found<'a> {
    /// It exists.
    Resource(&'a Any),
    /// There is an error in its place.
    Error(&'a Refusal),
    /// There is nothing of that name.
    Nothing,
}

impl Catalogue {
    /// What there is of a name, and the number of the change since when: 0 where there is nothing.
    pub(super) fn find(&self, kind: Kind, name: &str) -> (u64, Found<'_>) {
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
    pub(super) fn version(&self, kind: Kind) -> String {
        self.shelves.get(&kind).map_or(0, |shelf| shelf.version).to_string()
    }

    pub(super) fn set(&mut self, kind: Kind, resources: Vec<(String, Any)>) {
        let (change, shelf) = self.next(kind);
        for (name, resource) in resources {
            shelf.entries.insert(name, Entry { resource: Some(resource), error: None, change });
        }
    }

    pub(super) fn remove(&mut self, kind: Kind, name: &str) {
        self.next(kind).1.entries.remove(name);
    }

    pub(super) fn fail(&mut self, kind: Kind, name: String, error: Refusal) {
        let (change, shelf) = self.next(kind);
        let entry = shelf.entries.entry(name).or_default();
        entry.error = Some(error);
        entry.change = change;
    }

    pub(super) fn forget_error(&mut self, kind: Kind, name: &str) {
        let (change, shelf) = self.next(kind);
        let Some(entry) = shelf.entries.get_mut(name) else { return };
        entry.error = None;
        entry.change = change;
        if entry.resource.is_none() {
            shelf.entries.remove(name);
        }
    }

    pub(super) fn clear(&mut self, kind: Kind) {
        self.next(kind).1.entries.clear();
    }

    /// Counts versions anew, as after a restart: what is configured is the first change.
    pub(super) fn forget_versions(&mut self) {
        for shelf in self.shelves.values_mut() {
            shelf.version = u64::from(!shelf.entries.is_empty());
        }
    }

    fn next(&mut self, kind: Kind) -> (u64, &mut Shelf) {
        self.changes += 1;
        let shelf = self.shelves.entry(kind).or_default();
        shelf.version += 1;
        (self.changes, shelf)
    }
}
