//! How far each kind's stream has come, and the list that is being collected aside.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::cache::Arrival;
use crate::level::Provenance;
use crate::machine::Now;
use crate::object::{Object, ObjectKey, ResourceVersion};

/// How long changes count as those of a new connection, unless a bookmark says sooner that it caught up.
const CATCHING_UP: Duration = Duration::from_secs(5);

/// The stream of one kind.
#[derive(Default, Debug)]
pub(super) struct Stream {
    /// The newest version seen; empty while nothing was.
    pub(super) version: ResourceVersion,
    /// Whether a complete list has been put in force.
    pub(super) synced: bool,
    /// The list under way.
    pub(super) staging: Option<Staging>,
    /// Until when changes are those that a broken connection missed.
    pub(super) catching_up_until: Option<Now>,
}

impl Stream {
    /// Takes note of a version.
    pub(super) fn reach(&mut self, version: &ResourceVersion) {
        if self.version.0.is_empty() || self.version.is_older_than(version) {
            self.version = version.clone();
        }
    }

    /// The watch was re-established.
    pub(super) fn reconnected(&mut self, now: Now) {
        self.catching_up_until = Some(now.plus(CATCHING_UP));
    }

    /// How a change that comes now reaches us.
    pub(super) fn arrival(&self, now: Now) -> Arrival {
        let catching_up = self.catching_up_until.is_some_and(|until| now < until);
        let provenance = if catching_up { Provenance::Reconnect } else { Provenance::Watch };
        Arrival { now, provenance }
    }
}

/// A list under way.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) provenance: Provenance,
    /// Whether an object in it could be neither decoded nor named: then absence proves nothing.
    pub(super) blind: bool,
    objects: BTreeMap<ObjectKey, Object>,
    undecodable: BTreeSet<ObjectKey>,
}

impl Staging {
    pub(super) fn new(provenance: Provenance) -> Staging {
        Staging { provenance, blind: false, objects: BTreeMap::new(), undecodable: BTreeSet::new() }
    }

    pub(super) fn add(&mut self, key: ObjectKey, object: Object) {
        self.undecodable.remove(&key);
        self.objects.insert(key, object);
    }

    pub(super) fn add_undecodable(&mut self, key: ObjectKey) {
        self.objects.remove(&key);
        self.undecodable.insert(key);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.undecodable.remove(key);
        self.objects.remove(key);
    }

    /// Whether the object exists as of this list, decodable or not.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key) || self.undecodable.contains(key)
    }

    pub(super) fn undecodable(&self) -> &BTreeSet<ObjectKey> {
        &self.undecodable
    }

    pub(super) fn into_objects(self) -> BTreeMap<ObjectKey, Object> {
        self.objects
    }
}
