//! The deliveries that wait on one edge, from one sender to one address (design.md A3).
//!
//! While the receiver is busy, a newer fact about the same object replaces the older one, so that the number of waiting
//! facts is bounded. Requests and answers are kept in order, and no fact moves across one.

use std::collections::BTreeMap;

use crate::route::{Delivery, FactKey};

/// The deliveries that wait on one edge.
#[derive(Default)]
pub struct Outbox {
    /// By position; later ones are greater.
    waiting: BTreeMap<u64, Delivery>,
    /// The position of the next delivery that is appended.
    next: u64,
    /// Where the newest fact about each thing stands, among those behind the last request or answer.
    facts: BTreeMap<FactKey, u64>,
}

impl Outbox {
    /// Adds a delivery. A fact replaces an older one about the same object that waits behind the last request or
    /// answer.
    pub fn push(&mut self, mut delivery: Delivery) {
        let key = delivery.fact();
        let older = key.as_ref().and_then(|key| self.facts.get(key).copied());
        let older = older.and_then(|place| Some((place, self.waiting.remove(&place)?)));
        if let Some((_, older)) = &older {
            delivery.absorb(older);
        }
        let place = match (&key, older) {
            (Some(key), Some((place, _))) if !key.goes_last() => place,
            (_, _) => {
                self.next += 1;
                self.next
            }
        };
        if key.as_ref().is_none_or(FactKey::goes_first) {
            self.facts.retain(|_, fact| *fact > place);
        }
        if let Some(key) = key {
            self.facts.insert(key, place);
        }
        self.waiting.insert(place, delivery);
    }

    /// Takes out up to `most` deliveries, oldest first.
    pub fn take(&mut self, most: usize) -> Vec<Delivery> {
        let batch = std::iter::from_fn(|| self.waiting.pop_first()).take(most);
        let batch = batch.map(|(_, delivery)| delivery).collect();
        if self.waiting.is_empty() {
            self.facts.clear();
        }
        batch
    }

    /// How many wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::ids::{LbName, PoolId, PoolName, ServiceUid, SliceKey};
    use crate::level::Provenance;
    use crate::object::{Kind, Object, ObjectKey, Owner, ResourceVersion, SliceObject};
    use crate::watch::Seen;
    use crate::writer::Draining;
    use crate::xds::sources::{Assigned, Name, Note, SourceFact};
    use crate::{directory, discovery, informer, writer};

    fn service(uid: &str) -> Delivery {
        Delivery::Discovery(discovery::In::Service(ServiceUid::new(uid), None))
    }

    fn source(provenance: Provenance) -> Delivery {
        let (assigned, note) = (Assigned::Usable(Arc::default()), Note::Node("us".into()));
        let name = Name::parse("eds:a").expect("a source");
        Delivery::Directory(directory::In::Source(name, SourceFact { assigned, provenance, note }))
    }

    fn request() -> Delivery {
        let pool = PoolId::new(LbName::new("lb"), PoolName::new("pool"));
        Delivery::Discovery(discovery::In::Missing(pool))
    }

    #[test]
    fn a3_a_newer_fact_takes_the_place_of_an_older_one() {
        let mut outbox = Outbox::default();
        outbox.push(service("a"));
        outbox.push(service("b"));
        outbox.push(service("a"));
        assert_eq!(outbox.len(), 2);
        assert_eq!(outbox.take(1)[0].fact(), Some(FactKey::Service(ServiceUid::new("a"))));
        outbox.push(service("a"));
        assert_eq!(outbox.len(), 2, "what was taken is no longer replaced");
    }

    #[test]
    fn a3_no_fact_moves_across_a_request() {
        let mut outbox = Outbox::default();
        outbox.push(service("a"));
        outbox.push(request());
        outbox.push(service("a"));
        let facts: Vec<bool> = outbox.take(9).iter().map(|d| d.fact().is_some()).collect();
        assert_eq!(facts, [true, false, true]);
        assert!(outbox.is_empty());
    }

    fn due(pool: &str) -> Delivery {
        let pool = PoolId::new(LbName::new("lb"), PoolName::new(pool));
        Delivery::Writer(writer::In::AdminWithdraw(pool, 0))
    }

    fn draining(generation: u64) -> Delivery {
        Delivery::Writer(writer::In::Draining(Arc::new(Draining { generation, ..Draining::default() })))
    }

    #[test]
    fn n2_one_draining_set_waits_before_what_depends_on_it() {
        let mut outbox = Outbox::default();
        outbox.push(due("a"));
        for generation in 1..1_000 {
            outbox.push(draining(generation));
            outbox.push(due("a"));
            outbox.push(due("b"));
        }
        let word = |delivery: &Delivery| {
            if let Delivery::Writer(writer::In::AdminWithdraw(pool, _)) = delivery {
                return pool.pool.to_string();
            }
            let Delivery::Writer(writer::In::Draining(set)) = delivery else { panic!("{delivery:?}") };
            set.generation.to_string()
        };
        let waiting: Vec<String> = outbox.take(9).iter().map(word).collect();
        assert_eq!(waiting, ["a", "999", "a", "b"], "of what waited before the set nothing newer is due");
    }

    fn seen(seen: Seen) -> Delivery {
        Delivery::Informer(informer::In::Seen(Kind::EndpointSlices, seen))
    }

    fn slice(name: &str, version: u64, age: Option<u64>) -> Seen {
        Seen::Object(Object::Slice(Arc::new(SliceObject {
            key: SliceKey { namespace: "shop".into(), name: name.into() },
            service: None,
            resource_version: ResourceVersion(version.to_string().into()),
            endpoints: Vec::new(),
            trigger_age: age.map(Duration::from_secs),
        })))
    }

    fn gone(name: &str, version: u64) -> Seen {
        let key = ObjectKey::Slice(SliceKey { namespace: "shop".into(), name: name.into() });
        Seen::Deleted { key, resource_version: ResourceVersion(version.to_string().into()) }
    }

    fn bad(name: &str) -> Seen {
        let key = ObjectKey::Slice(SliceKey { namespace: "shop".into(), name: name.into() });
        Seen::Undecodable { key: Some(key), owner: Owner::Nobody, error: "bad".into(), before: None }
    }

    /// The waiting deliveries, as text.
    fn words(outbox: &mut Outbox) -> Vec<String> {
        fn word(seen: &Seen) -> String {
            match seen {
                Seen::Object(object) => {
                    let version = &object.resource_version().0;
                    let Object::Slice(slice) = object else { panic!("no slice: {object:?}") };
                    let age = slice.trigger_age.map_or(String::new(), |age| format!(" {age:?}"));
                    format!("{} {version}{age}", slice.key.name)
                }
                Seen::Deleted { resource_version, .. } => format!("gone {}", resource_version.0),
                Seen::Undecodable { before, .. } => {
                    format!("bad after {}", before.as_deref().map_or(String::new(), word))
                }
                Seen::Bookmark(_) => "bookmark".to_owned(),
                Seen::ListBegan(_)
                | Seen::ListDone { .. }
                | Seen::ListAborted
                | Seen::Reconnected
                | Seen::AnyList(_) => panic!("{seen:?}"),
            }
        }
        let word_of = |delivery: &Delivery| {
            let Delivery::Informer(informer::In::Seen(_, seen)) = delivery else { panic!("{delivery:?}") };
            word(seen)
        };
        outbox.take(99).iter().map(word_of).collect()
    }

    #[test]
    fn a3_only_the_newest_state_of_an_object_waits() {
        let mut outbox = Outbox::default();
        for version in (1..1_000).step_by(3) {
            outbox.push(seen(slice("a", version, None)));
            outbox.push(seen(slice("b", version + 1, None)));
            outbox.push(seen(gone("a", version + 2)));
        }
        assert_eq!(words(&mut outbox), ["b 998", "gone 999"]);
        outbox.push(seen(slice("a", 1_000, None)));
        outbox.push(seen(Seen::Bookmark(ResourceVersion::default())));
        outbox.push(seen(slice("a", 1_001, None)));
        assert_eq!(words(&mut outbox), ["a 1000", "bookmark", "a 1001"], "none moves across a bookmark");
    }

    #[test]
    fn a3_the_newest_state_of_an_object_keeps_the_oldest_trigger() {
        let mut outbox = Outbox::default();
        for (version, age) in [(1, Some(3)), (2, Some(9)), (3, None), (4, Some(1))] {
            outbox.push(seen(slice("a", version, age)));
        }
        assert_eq!(words(&mut outbox), ["a 4 9s"]);
    }

    #[test]
    fn d6_an_undecodable_state_keeps_the_last_good_one() {
        let mut outbox = Outbox::default();
        for first in [slice("a", 1, Some(3)), gone("a", 1)] {
            outbox.push(seen(first));
            outbox.push(seen(bad("a")));
            outbox.push(seen(bad("a")));
        }
        assert_eq!(words(&mut outbox), ["bad after gone 1"]);
        outbox.push(seen(slice("a", 2, Some(3))));
        outbox.push(seen(bad("a")));
        assert_eq!(words(&mut outbox), ["bad after a 2 3s"]);
        outbox.push(seen(slice("a", 2, Some(3))));
        outbox.push(seen(bad("a")));
        outbox.push(seen(slice("a", 3, None)));
        assert_eq!(words(&mut outbox), ["a 3 3s"]);
    }

    #[test]
    fn g1_a_fact_about_a_source_keeps_the_doubt_of_the_one_whose_place_it_takes() {
        let mut outbox = Outbox::default();
        outbox.push(source(Provenance::Relist));
        outbox.push(source(Provenance::Watch));
        let waiting = outbox.take(9);
        let [Delivery::Directory(directory::In::Source(_, fact))] = &waiting[..] else {
            panic!("{waiting:?}");
        };
        assert_eq!(fact.provenance, Provenance::Relist);
    }
}
