//! What a watcher tells the machine that keeps its objects (docs/design/sources.md, D6).

use std::sync::Arc;

use crate::ids::{Epoch, ReadId};
use crate::level::Provenance;
use crate::machine::Now;
use crate::object::{Object, ObjectKey, Owner, ResourceVersion};

/// What a watcher tells the store of its objects.
#[derive(Clone, Debug)]
pub enum Seen {
    /// A list begins; what follows until [`Seen::ListDone`] is the whole of it.
    ListBegan(Provenance),
    /// An object: of the list while one is under way, else a change.
    Object(Object),
    /// An object is gone.
    Deleted {
        /// Which.
        key: ObjectKey,
        /// The version of the deletion.
        resource_version: ResourceVersion,
    },
    /// An object that could not be decoded: its last good state stays in force.
    Undecodable {
        /// Which object, when its metadata could be read.
        key: Option<ObjectKey>,
        /// Whose slice it is; of no meaning for other kinds.
        owner: Owner,
        /// What is wrong with it.
        error: Arc<str>,
        /// The older observation of it that was not delivered yet: its last good state, or its deletion.
        before: Option<Box<Seen>>,
    },
    /// The list is complete.
    ListDone {
        /// As of which version.
        resource_version: ResourceVersion,
        /// What had been asked for before the list was begun.
        serves: Serves,
    },
    /// The list broke off; what was taken in since it began is void.
    ListAborted,
    /// The stream is complete up to this version.
    Bookmark(ResourceVersion),
    /// The watch was re-established without a new list.
    Reconnected,
    /// For this term of leadership any list counts, also one that was taken in before: no replica has led before (W8).
    AnyList(Epoch),
}

impl Seen {
    /// The object that it is about, if it is about a single one with a name.
    pub fn object(&self) -> Option<ObjectKey> {
        match self {
            Seen::Object(object) => Some(object.key()),
            Seen::Deleted { key, .. } => Some(key.clone()),
            Seen::Undecodable { key, .. } => key.clone(),
            Seen::ListBegan(_)
            | Seen::ListDone { .. }
            | Seen::ListAborted
            | Seen::Bookmark(_)
            | Seen::Reconnected
            | Seen::AnyList(_) => None,
        }
    }

    /// Takes over the notice of an Event that has been deleted since, or cannot be decoded any more: it counts all the same
    /// (N1).
    pub fn absorb_notice(&mut self, older: &Seen) {
        if !matches!(self, Seen::Object(_)) && matches!(older, Seen::Object(_)) {
            *self = older.clone();
        }
    }

    /// Takes over what must not be lost of what was seen of the same object before: the oldest trigger, and the last good
    /// state, which stays in force where this one cannot be decoded (D6). Both are given with when they were read.
    pub fn absorb(&mut self, read: Now, (before_read, older): (Now, &Seen)) {
        if let Seen::Undecodable { before, .. } = older {
            return before.iter().for_each(|before| self.absorb(read, (before_read, &**before)));
        }
        match (self, older) {
            (Seen::Undecodable { before, .. }, older) => *before = Some(Box::new(older.clone())),
            (Seen::Object(newer), Seen::Object(older)) => keep_trigger((read, newer), (before_read, older)),
            (_, _) => {}
        }
    }
}

/// Has the newer state of a slice tell of the older trigger. How old that is counts from when each was read.
pub fn keep_trigger((read, newer): (Now, &mut Object), (before, older): (Now, &Object)) {
    if let (Object::Slice(newer), Object::Slice(older)) = (newer, older) {
        let age = older.trigger_age.map(|age| age + read.since(before));
        if newer.trigger_age < age {
            Arc::make_mut(newer).trigger_age = age;
        }
    }
}

/// What a list serves, for it was begun after that had been asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Serves {
    /// The newest term of leadership that needs most recent data (W8).
    pub term: Option<Epoch>,
    /// The newest second read (G1).
    pub read: Option<ReadId>,
}
