//! What was seen of one object, as a level: while it waits, a newer observation replaces the older one (design.md A3).

use std::sync::Arc;

use super::Seen;
use crate::object::{Object, ObjectKey};

impl Seen {
    /// The object that it is about, if it is about a single one with a name.
    pub(crate) fn object(&self) -> Option<ObjectKey> {
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

    /// Takes over from the older observation of the same object what must not be lost: the oldest trigger, and the last
    /// good state, which stays in force if this one cannot be decoded (D6).
    pub(crate) fn absorb(&mut self, older: &Seen) {
        if let Seen::Undecodable { before, .. } = older {
            return before.iter().for_each(|before| self.absorb(before));
        }
        match (self, older) {
            (Seen::Undecodable { before, .. }, older) => *before = Some(Box::new(older.clone())),
            (Seen::Object(Object::Slice(newer)), Seen::Object(Object::Slice(older)))
                if newer.trigger_age < older.trigger_age =>
            {
                Arc::make_mut(newer).trigger_age = older.trigger_age;
            }
            (_, _) => {}
        }
    }
}
