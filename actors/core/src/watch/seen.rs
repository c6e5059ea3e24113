//! What was read or seen of one object, as a level: while it waits, the newest replaces the older one
//! (docs/design/model-and-mechanisms.md, A3).

use std::sync::Arc;

use super::{In, Line, Seen};
use crate::ids::ServiceKey;
use crate::machine::Now;
use crate::object::{Object, ObjectKey, Owner};

impl In {
    /// The object that a line is about, where a newer line about it replaces this one.
    pub(crate) fn object(&self) -> Option<ObjectKey> {
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
    pub(crate) fn absorb(&mut self, older: &In) {
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
    pub(crate) fn service(&self) -> Option<&ServiceKey> {
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

    /// Takes over the notice of an Event that has been deleted since, or cannot be decoded any more: it counts all the same
    /// (N1).
    pub(crate) fn absorb_notice(&mut self, older: &Seen) {
        if !matches!(self, Seen::Object(_)) && matches!(older, Seen::Object(_)) {
            *self = older.clone();
        }
    }

    /// Takes over what must not be lost of what was seen of the same object before: the oldest trigger, and the last good
    /// state, which stays in force where this one cannot be decoded (D6). Both are given with when they were read.
    pub(crate) fn absorb(&mut self, read: Now, (before_read, older): (Now, &Seen)) {
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
fn keep_trigger((read, newer): (Now, &mut Object), (before, older): (Now, &Object)) {
    if let (Object::Slice(newer), Object::Slice(older)) = (newer, older) {
        let age = older.trigger_age.map(|age| age + read.since(before));
        if newer.trigger_age < age {
            Arc::make_mut(newer).trigger_age = age;
        }
    }
}
