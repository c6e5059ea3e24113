//! Merging of queued observations of one object: the newest replaces the older one
//! (docs/design/model-and-mechanisms.md, A3).

use super::{In, Line};
use model::ids::ServiceKey;
use model::object::{Object, ObjectKey, Owner};
use model::watch::keep_trigger;

impl In {
    /// Returns the object of a line that a newer line about the same object replaces.
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

    /// Takes over what must survive of an older line about the same object: the oldest trigger, and the notice of an
    /// Event that was deleted since (N1).
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
    /// Returns the object of a line that only carries its newest state. An undecodable object returns `None`: its last
    /// good state stays in use (D6), so no line may move across it.
    fn object(&self) -> Option<ObjectKey> {
        match self {
            Line::Object(object) => Some(object.key()),
            Line::Deleted { key, .. } => Some(key.clone()),
            Line::Bookmark { .. } | Line::Error(_) | Line::Undecodable { .. } => None,
        }
    }

    /// Returns the Service whose endpoints the line changes, if the line names it.
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
