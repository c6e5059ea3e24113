//! Tracks undecodable objects, so that each is reported once per error and term.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cache::{Cache, ServiceEntry, kind_of};
use super::resources::SliceError;
use model::ids::ServiceKey;
use model::object::{Kind, ObjectKey, Owner, SliceObject};
use model::report::{Condition, EventKind, Report, Subject};

/// The objects whose newest state is not known.
#[derive(Default, Debug)]
pub(super) struct Undecodables {
    errors: BTreeMap<ObjectKey, Arc<str>>,
    unreported: BTreeSet<ObjectKey>,
    /// The objects reported in this term, with the condition of each.
    reported: BTreeMap<ObjectKey, Condition>,
}

impl Undecodables {
    /// Adds an object that could not be decoded. Returns true if the error is new.
    pub(super) fn add(&mut self, key: ObjectKey, error: Arc<str>) -> bool {
        if self.errors.get(&key) == Some(&error) {
            return false;
        }
        self.errors.insert(key.clone(), error);
        self.unreported.insert(key)
    }

    /// Removes an object that is decoded or gone. Returns true if it was tracked.
    pub(super) fn remove(&mut self, key: &ObjectKey) -> bool {
        self.unreported.remove(key);
        self.errors.remove(key).is_some()
    }

    /// Handles a complete list of this kind: removes and returns the objects that are not undecodable in it.
    pub(super) fn retain_listed(
        &mut self,
        kind: Kind,
        undecodable: &BTreeMap<ObjectKey, Owner>,
    ) -> Vec<ObjectKey> {
        let is_over = |key: &ObjectKey| kind_of(key) == kind && !undecodable.contains_key(key);
        self.unreported.retain(|key| !is_over(key));
        self.errors.extract_if(.., |key, _| is_over(key)).map(|(key, _)| key).collect()
    }

    /// Returns the names of a Service's slices that have a known state but an undecodable newest one.
    pub(super) fn slices_of<'a>(&'a self, entry: &'a ServiceEntry) -> impl Iterator<Item = Arc<str>> + 'a {
        self.undecodable_of(entry).map(|(slice, _)| Arc::clone(&slice.key.name))
    }

    /// Returns the first of a Service's slices that have a known state but an undecodable newest one, with its error.
    pub(super) fn first_error(&self, entry: &ServiceEntry) -> Option<SliceError> {
        let (slice, error) = self.undecodable_of(entry).next()?;
        Some(SliceError { slice: Arc::clone(&slice.key.name), error: Arc::clone(error) })
    }

    fn undecodable_of<'a>(
        &'a self,
        entry: &'a ServiceEntry,
    ) -> impl Iterator<Item = (&'a SliceObject, &'a Arc<str>)> {
        // Most clusters have no undecodable objects, and this runs for each Service in each reconcile.
        let slices = entry.slices.values().filter(|_| !self.errors.is_empty());
        slices.filter_map(|slice| {
            let error = self.errors.get(&ObjectKey::Slice(slice.key.clone()))?;
            Some((&**slice, error))
        })
    }

    /// Marks all objects as unreported.
    pub(super) fn mark_unreported(&mut self) {
        self.unreported = self.errors.keys().cloned().collect();
        self.reported.clear();
    }

    /// Removes and returns the reported conditions that no longer hold. During a pause, no condition of a Service is
    /// reported (G6).
    pub(super) fn take_ended(
        &mut self,
        cache: &Cache,
        paused: impl Fn(&ServiceKey) -> bool,
    ) -> Vec<Condition> {
        let (errors, reported) = (&self.errors, &mut self.reported);
        let is_over = |key: &ObjectKey, _: &mut Condition| {
            !errors.contains_key(key) || owner(key, cache).is_some_and(&paused)
        };
        reported.extract_if(.., is_over).map(|(_, condition)| condition).collect()
    }

    /// Returns true if no object must be reported now.
    pub(super) fn are_reported(&self, cache: &Cache, paused: impl Fn(&ServiceKey) -> bool) -> bool {
        self.unreported.iter().all(|key| owner(key, cache).is_some_and(&paused))
    }

    /// Reports the unreported objects, on the Service that owns the object or on the Node. An object without any known
    /// state is not reported: the Services that it leaves incomplete report it (D6). The objects of a paused Service
    /// are reported when the pause ends (G6).
    pub(super) fn reports(
        &mut self,
        cache: &Cache,
        drops: bool,
        paused: impl Fn(&ServiceKey) -> bool,
    ) -> Vec<Report> {
        let is_paused = |key: &&ObjectKey| owner(key, cache).is_some_and(&paused);
        let later = self.errors.keys().filter(is_paused).cloned().collect();
        let unreported: Vec<ObjectKey> = std::mem::replace(&mut self.unreported, later)
            .into_iter()
            .filter(|key| !is_paused(&key))
            .collect();
        let (errors, reported) = (&self.errors, &mut self.reported);
        let report = |key: ObjectKey| {
            let error = Arc::clone(errors.get(&key)?);
            let (subject, object) = match &key {
                ObjectKey::Service(service) => (cache.service_subject(service)?, service.to_string()),
                ObjectKey::Slice(slice) => {
                    let owner = cache.owner(slice)?;
                    (cache.service_subject(owner)?, format!("{}/{}", slice.namespace, slice.name))
                }
                ObjectKey::Node(name) => {
                    let uid = cache.node(name)?.uid.clone();
                    (Subject::Node { name: name.clone(), uid }, name.to_string())
                }
                ObjectKey::Preemption(_) => return None,
            };
            let (kind, object) = (kind_of(&key), object.into());
            let still_used = !drops || kind != Kind::EndpointSlices;
            let what = EventKind::Undecodable { kind, object, error, kept: still_used };
            reported.extend(what.condition().map(|condition| (key, condition)));
            Some(Report { subjects: vec![subject], what, note: None })
        };
        unreported.into_iter().filter_map(report).collect()
    }
}

/// Returns the Service that owns the object, if it is known.
fn owner<'a>(key: &'a ObjectKey, cache: &'a Cache) -> Option<&'a ServiceKey> {
    match key {
        ObjectKey::Service(service) => Some(service),
        ObjectKey::Slice(slice) => cache.owner(slice),
        ObjectKey::Node(_) | ObjectKey::Preemption(_) => None,
    }
}
