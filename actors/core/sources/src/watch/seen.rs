//! What was read or seen of one object, as a level: while it waits, the newest replaces the older one
//! (docs/design/model-and-mechanisms.md, A3).

use super::{In, Line};
use model::ids::ServiceKey;
use model::object::{Object, ObjectKey, Owner};
use model::watch::keep_trigger;

impl In {
    /// The object that a line is about, where a newer line about it replaces this one.
    pub fn object(&self) -> Option<ObjectKey> {
        match self {
            In::Line { line, .. } => line.object(),
            In::Start
            | In::Opened(_)
            | In::Page { .. }
            | In::Ended { .. }
            | In::Relist(_)
            | In::Cached(_)
            | In::Confirm { .. }
            | In::Reread(_) => None,
        }
    }

    /// Takes over what must not be lost of an older line about the same object: the oldest trigger, and the notice of an
    /// Event that has been deleted since (N1).
    pub fn absorb(&mut self, older: &In) {
        let In::Line { read: before, line: older, .. } = older else { return };
        let In::Line { read, line: newer, .. } = self else { return };
        match (&mut *newer, older) {
            (Line::Object(newer), Line::Object(older)) => keep_trigger((*read, newer), (*before, older)),
            (Line::Deleted { .. }, Line::Object(Object::Preemption(_))) => *newer = older.clone(),
            (_, _) => {}
        }
    }
}

impl Line {
    /// The object that it is about, where all that it says of it is its newest state. The last good state of one that
    /// cannot be decoded stays in force (D6), so that nothing moves across such a line.
    fn object(&self) -> Option<ObjectKey> {
        match self {
            Line::Object(object) => Some(object.key()),
            Line::Deleted { key, .. } => Some(key.clone()),
            Line::Bookmark { .. } | Line::Error(_) | Line::Undecodable { .. } => None,
        }
    }

    /// The Service whose endpoints it changes, as far as it says that.
    pub fn service(&self) -> Option<&ServiceKey> {
        match self {
            Line::Object(Object::Slice(slice)) => slice.service.as_ref(),
            Line::Deleted { owner: Owner::Service(service), .. } => Some(service),
            Line::Object(Object::Service(_) | Object::Node(_) | Object::Preemption(_))
            | Line::Deleted { owner: Owner::Unknown | Owner::Nobody, .. }
            | Line::Bookmark { .. }
            | Line::Error(_)
            | Line::Undecodable { .. } => None,
        }
    }
}
