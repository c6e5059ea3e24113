//! Remembers which objects could not be decoded, so that each is told about once per error and term.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::cache::{Cache, Entry, kind_of};
use super::resources::Wrong;
use model::ids::ServiceKey;
use model::object::{Kind, ObjectKey, Owner, SliceObject};
use model::report::{Condition, EventKind, Report, Subject};

/// The objects whose newest state is not known.
#[derive(Default, Debug)]
pub(super) struct Undecodables {
    errors: BTreeMap<ObjectKey, Arc<str>>,
    untold: BTreeSet<ObjectKey>,
    /// Those that were reported in this term, and the condition that each is.
    reported: BTreeMap<ObjectKey, Condition>,
}

impl Undecodables {
    /// An object came that could not be decoded; whether that is news.
    pub(super) fn note(&mut self, key: ObjectKey, error: Arc<str>) -> bool {
        if self.errors.get(&key) == Some(&error) {
            return false;
        }
        self.errors.insert(key.clone(), error);
        self.untold.insert(key)
    }

    /// The object is good again, or gone; whether that is news.
    pub(super) fn forget(&mut self, key: &ObjectKey) -> bool {
        self.untold.remove(key);
        self.errors.remove(key).is_some()
    }

    /// A list of this kind is complete: those that were not bad in it are no longer. Gives these.
    pub(super) fn keep_listed(&mut self, kind: Kind, bad: &BTreeMap<ObjectKey, Owner>) -> Vec<ObjectKey> {
        let is_over = |key: &ObjectKey| kind_of(key) == kind && !bad.contains_key(key);
        self.untold.retain(|key| !is_over(key));
        self.errors.extract_if(.., |key, _| is_over(key)).map(|(key, _)| key).collect()
    }

    /// The slices of a Service, by name, of which a state is known and the newest is not.
    pub(super) fn slices_of<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = Arc<str>> + 'a {
        self.bad_of(entry).map(|(slice, _)| Arc::clone(&slice.key.name))
    }

    /// The first of them, and why.
    pub(super) fn wrong_of(&self, entry: &Entry) -> Option<Wrong> {
        let (slice, error) = self.bad_of(entry).next()?;
        Some(Wrong { slice: Arc::clone(&slice.key.name), error: Arc::clone(error) })
    }

    fn bad_of<'a>(&'a self, entry: &'a Entry) -> impl Iterator<Item = (&'a SliceObject, &'a Arc<str>)> {
        // In nearly every cluster nothing is bad, and this is asked for each Service each time.
        let slices = entry.slices.values().filter(|_| !self.errors.is_empty());
        slices.filter_map(|slice| {
            let error = self.errors.get(&ObjectKey::Slice(slice.key.clone()))?;
            Some((&**slice, error))
        })
    }

    /// All are to be told again.
    pub(super) fn forget_told(&mut self) {
        self.untold = self.errors.keys().cloned().collect();
        self.reported.clear();
    }

    /// Takes out what was reported and holds no longer. In a pause nothing of a Service is reported (G6).
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

    /// Whether none is to be told now.
    pub(super) fn are_told(&self, cache: &Cache, paused: impl Fn(&ServiceKey) -> bool) -> bool {
        self.untold.iter().all(|key| owner(key, cache).is_some_and(&paused))
    }

    /// Reports what has not been told: on the Service whose object it is, else on the Node. One of which no state is
    /// known is only counted here; the Services that it leaves incomplete tell of it (D6). Those of a Service that is
    /// paused are told when that ends (G6).
    pub(super) fn reports(
        &mut self,
        cache: &Cache,
        drops: bool,
        paused: impl Fn(&ServiceKey) -> bool,
    ) -> Vec<Report> {
        let is_paused = |key: &&ObjectKey| owner(key, cache).is_some_and(&paused);
        let later = self.errors.keys().filter(is_paused).cloned().collect();
        let untold: Vec<ObjectKey> =
            std::mem::replace(&mut self.untold, later).into_iter().filter(|key| !is_paused(&key)).collect();
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
            let kept = !drops || kind != Kind::EndpointSlices;
            let what = EventKind::Undecodable { kind, object, error, kept };
            reported.extend(what.condition().map(|condition| (key, condition)));
            Some(Report { subjects: vec![subject], what, note: None })
        };
        untold.into_iter().filter_map(report).collect()
    }
}

/// The Service whose object it is, as far as that is known.
fn owner<'a>(key: &'a ObjectKey, cache: &'a Cache) -> Option<&'a ServiceKey> {
    match key {
        ObjectKey::Service(service) => Some(service),
        ObjectKey::Slice(slice) => cache.owner(slice),
        ObjectKey::Node(_) | ObjectKey::Preemption(_) => None,
    }
}
