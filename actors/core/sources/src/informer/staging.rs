//! How far each kind's stream has come, and the list that is being collected aside.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::cache::Arrival;
use super::refusals::Refusals;
use model::ids::{Epoch, ReadId};
use model::level::Provenance;
use model::machine::Now;
use model::object::{Object, ObjectKey, Owner, ResourceVersion};
use model::watch::Serves;

/// How long a list that held an object without a name is left as it is. Nothing tells when such an object is mended.
const BLIND_FOR: Duration = Duration::from_secs(300);
/// How long changes count as those of a new connection, unless a bookmark says sooner that it caught up.
const CATCHING_UP: Duration = Duration::from_secs(5);

/// What is to be done with a complete list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Judged {
    /// It is as new as what was seen: it is put in force.
    Current,
    /// It is older than what was seen: it is refused (D6).
    Refused,
    /// So many were older that what was seen must be of another past: it is put in force, however old it is (D6).
    TakenBack,
}

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
    /// When to list again, because the last list held an object that could not be named.
    pub(super) look_again: Option<Now>,
    /// The lists that were refused since the last one that was not.
    pub(super) refusals: Refusals,
    /// The newest term whose list was put in force (W8).
    pub(super) confirmed: Option<Epoch>,
    /// The newest second read whose list was put in force (G1).
    pub(super) read: Option<ReadId>,
    /// The newest term for which any list counts.
    any_list: Option<Epoch>,
}

impl Stream {
    /// Takes note of a version.
    pub(super) fn reach(&mut self, version: &ResourceVersion) {
        if self.version.0.is_empty() || self.version.is_older_than(version) {
            self.version = version.clone();
            self.refusals.end();
        }
    }

    /// A list came to its end with this version; what is to be done with it.
    pub(super) fn judge(&mut self, now: Now, version: &ResourceVersion) -> Judged {
        let judged = if self.version.0.is_empty() || !version.is_older_than(&self.version) {
            self.reach(version);
            Judged::Current
        } else if self.refusals.refuse(now, version) {
            return Judged::Refused;
        } else {
            self.version = version.clone();
            Judged::TakenBack
        };
        self.refusals.end();
        judged
    }

    /// A list that serves this was put in force; one that is `blind` held an object that could not be named, and does
    /// not resolve what is doubted.
    pub(super) fn on_listed(&mut self, now: Now, blind: bool, serves: Serves) {
        self.synced = true;
        self.confirmed = self.confirmed.max(serves.term).max(self.any_list);
        if !blind {
            self.read = self.read.max(serves.read);
        }
        self.catching_up_until = None;
        self.look_again = blind.then(|| now.plus(BLIND_FOR));
    }

    /// For this term any list counts, also the one in force.
    pub(super) fn on_any_list(&mut self, term: Epoch) {
        self.any_list = self.any_list.max(Some(term));
        if self.synced {
            self.confirmed = self.confirmed.max(self.any_list);
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
    /// With whose a slice is.
    undecodable: BTreeMap<ObjectKey, Owner>,
    /// Why each of them could not be decoded: it counts when the list does.
    errors: BTreeMap<ObjectKey, Arc<str>>,
}

impl Staging {
    pub(super) fn new(provenance: Provenance) -> Staging {
        Staging {
            provenance,
            blind: false,
            objects: BTreeMap::new(),
            undecodable: BTreeMap::new(),
            errors: BTreeMap::new(),
        }
    }

    pub(super) fn add(&mut self, key: ObjectKey, object: Object) {
        self.undecodable.remove(&key);
        self.errors.remove(&key);
        self.objects.insert(key, object);
    }

    pub(super) fn add_undecodable(&mut self, key: ObjectKey, owner: Owner, error: Arc<str>) {
        self.objects.remove(&key);
        self.errors.insert(key.clone(), error);
        self.undecodable.insert(key, owner);
    }

    pub(super) fn remove(&mut self, key: &ObjectKey) {
        self.undecodable.remove(key);
        self.errors.remove(key);
        self.objects.remove(key);
    }

    /// Whether the object exists as of this list, decodable or not.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key) || self.undecodable.contains_key(key)
    }

    /// The decoded objects' names and versions.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&ObjectKey, &ResourceVersion)> {
        self.objects.iter().map(|(key, object)| (key, object.resource_version()))
    }

    /// Why those could not be decoded that could not.
    pub(super) fn take_errors(&mut self) -> BTreeMap<ObjectKey, Arc<str>> {
        std::mem::take(&mut self.errors)
    }

    /// What it held: the decoded objects, and the others with whose a slice is.
    pub(super) fn into_parts(self) -> (BTreeMap<ObjectKey, Object>, BTreeMap<ObjectKey, Owner>) {
        (self.objects, self.undecodable)
    }
}
