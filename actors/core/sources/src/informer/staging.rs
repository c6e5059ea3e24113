//! The progress of each kind's stream, and the staging area of its current list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::arrival::Arrival;
use super::refusals::Refusals;
use model::ids::{Epoch, ReadId};
use model::level::Provenance;
use model::machine::Now;
use model::object::{Object, ObjectKey, Owner, ResourceVersion};
use model::watch::ListCoverage;

/// Time for which a list stands that contained an object without a readable name. No message announces that such an
/// object is repaired.
const UNNAMED_RELIST_AFTER: Duration = Duration::from_secs(300);
/// Time for which changes count as those of a new connection, unless a bookmark ends this period sooner.
const CATCHING_UP: Duration = Duration::from_secs(5);

/// Decision about a complete list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ListDecision {
    /// Commit it: it is as new as earlier observations.
    Current,
    /// Refuse it: it is older than earlier observations (D6).
    Refused,
    /// Commit it although it is older: so many lists were older that the earlier observations must belong to a
    /// discarded history (D6).
    Restored,
}

/// The stream of one kind.
#[derive(Default, Debug)]
pub(super) struct KindStream {
    /// The newest version observed; empty before the first one.
    pub(super) version: ResourceVersion,
    /// True if a complete list was committed.
    pub(super) synced: bool,
    /// The current list.
    pub(super) staging: Option<Staging>,
    /// The time until which changes count as missed by a broken connection.
    pub(super) catching_up_until: Option<Now>,
    /// When to list again, because the last list contained an object without a readable name.
    pub(super) relist_at: Option<Now>,
    /// The lists refused since the last accepted one.
    pub(super) refusals: Refusals,
    /// The newest term whose list was committed (W8).
    pub(super) confirmed: Option<Epoch>,
    /// The newest second read whose list was committed (G1).
    pub(super) read: Option<ReadId>,
    /// The newest term in which any list counts.
    any_list: Option<Epoch>,
}

impl KindStream {
    /// Records an observed version.
    pub(super) fn observe_version(&mut self, version: &ResourceVersion) {
        if self.version.0.is_empty() || self.version.is_older_than(version) {
            self.version = version.clone();
            self.refusals.end();
        }
    }

    /// Decides about a list that has ended with this version.
    pub(super) fn decide(&mut self, now: Now, version: &ResourceVersion) -> ListDecision {
        let decision = if self.version.0.is_empty() || !version.is_older_than(&self.version) {
            self.observe_version(version);
            ListDecision::Current
        } else if self.refusals.refuse(now, version) {
            return ListDecision::Refused;
        } else {
            self.version = version.clone();
            ListDecision::Restored
        };
        self.refusals.end();
        decision
    }

    /// Records a committed list that serves `serves`. If `has_unnamed`, it contained an object without a readable
    /// name, and does not resolve doubt.
    pub(super) fn on_listed(&mut self, now: Now, has_unnamed: bool, serves: ListCoverage) {
        self.synced = true;
        self.confirmed = self.confirmed.max(serves.term).max(self.any_list);
        if !has_unnamed {
            self.read = self.read.max(serves.read);
        }
        self.catching_up_until = None;
        self.relist_at = has_unnamed.then(|| now.plus(UNNAMED_RELIST_AFTER));
    }

    /// Records that any list counts for this term, including the committed one.
    pub(super) fn on_any_list(&mut self, term: Epoch) {
        self.any_list = self.any_list.max(Some(term));
        if self.synced {
            self.confirmed = self.confirmed.max(self.any_list);
        }
    }

    /// Records that the watch was re-established.
    pub(super) fn reconnected(&mut self, now: Now) {
        self.catching_up_until = Some(now.plus(CATCHING_UP));
    }

    /// Returns the arrival of a change that comes now.
    pub(super) fn arrival(&self, now: Now) -> Arrival {
        let catching_up = self.catching_up_until.is_some_and(|until| now < until);
        let provenance = if catching_up { Provenance::Reconnect } else { Provenance::Watch };
        Arrival { now, provenance }
    }
}

/// The staging area of a list.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) provenance: Provenance,
    /// True if an object could be neither decoded nor named. Absence from the list then proves nothing.
    pub(super) has_unnamed: bool,
    objects: BTreeMap<ObjectKey, Object>,
    /// The undecodable objects; for a slice with its owner.
    undecodable: BTreeMap<ObjectKey, Owner>,
    /// The decoding errors, which take effect with the list.
    errors: BTreeMap<ObjectKey, Arc<str>>,
}

impl Staging {
    pub(super) fn new(provenance: Provenance) -> Staging {
        Staging {
            provenance,
            has_unnamed: false,
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

    /// Returns true if the list contains the object, decodable or not.
    pub(super) fn holds(&self, key: &ObjectKey) -> bool {
        self.objects.contains_key(key) || self.undecodable.contains_key(key)
    }

    /// Returns the keys and versions of the decoded objects.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&ObjectKey, &ResourceVersion)> {
        self.objects.iter().map(|(key, object)| (key, object.resource_version()))
    }

    /// Takes the decoding errors.
    pub(super) fn take_errors(&mut self) -> BTreeMap<ObjectKey, Arc<str>> {
        std::mem::take(&mut self.errors)
    }

    /// Returns the decoded objects, and the undecodable ones with their owners.
    pub(super) fn into_parts(self) -> (BTreeMap<ObjectKey, Object>, BTreeMap<ObjectKey, Owner>) {
        (self.objects, self.undecodable)
    }
}
