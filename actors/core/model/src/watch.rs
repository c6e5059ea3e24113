//! Messages from a watcher to the machine that caches its objects (docs/design/sources.md, D6).

use std::sync::Arc;

use crate::ids::{Epoch, ReadId};
use crate::level::Provenance;
use crate::machine::Now;
use crate::object::{Object, ObjectKey, Owner, ResourceVersion};

/// A message from a watcher to the cache of its objects.
#[derive(Clone, Debug)]
pub enum WatchUpdate {
    /// A list begins. The objects up to [`WatchUpdate::ListDone`] are its complete content.
    ListBegan(Provenance),
    /// An object: part of the list while one is running, else a change.
    Object(Object),
    /// An object was deleted.
    Deleted {
        /// Key of the object.
        key: ObjectKey,
        /// resourceVersion of the deletion.
        resource_version: ResourceVersion,
    },
    /// An object that could not be decoded. Its last good state stays in use.
    Undecodable {
        /// Key of the object, if its metadata are readable.
        key: Option<ObjectKey>,
        /// The Service that owns the slice; without meaning for other kinds.
        owner: Owner,
        /// The decoding error.
        error: Arc<str>,
        /// An earlier observation of the object that was not delivered yet: its last good state, or its deletion.
        before: Option<Box<WatchUpdate>>,
    },
    /// The list is complete.
    ListDone {
        /// resourceVersion of the list.
        resource_version: ResourceVersion,
        /// The requests that the list serves.
        serves: ListCoverage,
    },
    /// The list failed. What arrived since it began is void.
    ListAborted,
    /// The stream is complete up to this version.
    Bookmark(ResourceVersion),
    /// The watch was re-established without a new list.
    Reconnected,
    /// In this term of leadership any list counts, even one from before the term, because no replica has led before
    /// (W8).
    AnyList(Epoch),
}

impl WatchUpdate {
    /// Returns the key of the object, if the message is about a single object with a known key.
    pub fn object(&self) -> Option<ObjectKey> {
        match self {
            WatchUpdate::Object(object) => Some(object.key()),
            WatchUpdate::Deleted { key, .. } => Some(key.clone()),
            WatchUpdate::Undecodable { key, .. } => key.clone(),
            WatchUpdate::ListBegan(_)
            | WatchUpdate::ListDone { .. }
            | WatchUpdate::ListAborted
            | WatchUpdate::Bookmark(_)
            | WatchUpdate::Reconnected
            | WatchUpdate::AnyList(_) => None,
        }
    }

    /// Takes over the eviction notice of an Event that was deleted since, or became undecodable. The notice still
    /// counts (N1).
    pub fn absorb_notice(&mut self, older: &WatchUpdate) {
        if !matches!(self, WatchUpdate::Object(_)) && matches!(older, WatchUpdate::Object(_)) {
            *self = older.clone();
        }
    }

    /// Takes over what must survive of an older observation of the same object: the oldest trigger, and the last good
    /// state if this one cannot be decoded (D6). Each observation comes with the time when it was read.
    pub fn absorb(&mut self, read: Now, (before_read, older): (Now, &WatchUpdate)) {
        if let WatchUpdate::Undecodable { before, .. } = older {
            return before.iter().for_each(|before| self.absorb(read, (before_read, &**before)));
        }
        match (self, older) {
            (WatchUpdate::Undecodable { before, .. }, older) => *before = Some(Box::new(older.clone())),
            (WatchUpdate::Object(newer), WatchUpdate::Object(older)) => {
                keep_trigger((read, newer), (before_read, older))
            }
            (_, _) => {}
        }
    }
}

/// Moves the older trigger into the newer state of a slice, and adjusts its age to the time when each was read.
pub fn keep_trigger((read, newer): (Now, &mut Object), (before, older): (Now, &Object)) {
    if let (Object::Slice(newer), Object::Slice(older)) = (newer, older) {
        let age = older.trigger_age.map(|age| age + read.since(before));
        if newer.trigger_age < age {
            Arc::make_mut(newer).trigger_age = age;
        }
    }
}

/// The requests that a list serves, because the list began after they were made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ListCoverage {
    /// The newest term of leadership that requires most recent data (W8).
    pub term: Option<Epoch>,
    /// The newest second read (G1).
    pub read: Option<ReadId>,
}
