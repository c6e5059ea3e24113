//! What waits to be delivered on one edge, from one sender to one address (design.md A3).
//!
//! While the receiver is busy, a newer fact about the same thing takes the place of the older one, so that what
//! waits is bounded by what there is to know about. Requests and answers are kept in order, each of them, and
//! no fact moves across one.

use std::collections::{BTreeMap, VecDeque};

use crate::route::{Delivery, FactKey};

/// The deliveries that wait on one edge.
#[derive(Default)]
pub struct Outbox {
    waiting: VecDeque<Delivery>,
    /// How many have been taken out at the front; positions in `facts` count from the first ever.
    taken: usize,
    /// Where the newest fact about each thing stands, among those behind the last request or answer.
    facts: BTreeMap<FactKey, usize>,
}

impl Outbox {
    /// Adds a delivery; a fact takes the place of an older one about the same thing that still waits behind the
    /// last request or answer.
    pub fn push(&mut self, mut delivery: Delivery) {
        let Some(key) = delivery.fact() else {
            self.facts.clear();
            self.waiting.push_back(delivery);
            return;
        };
        let place = self.facts.get(&key).and_then(|at| at.checked_sub(self.taken));
        match place.and_then(|at| self.waiting.get_mut(at)) {
            Some(older) => {
                delivery.absorb(older);
                *older = delivery;
            }
            None => {
                self.facts.insert(key, self.taken + self.waiting.len());
                self.waiting.push_back(delivery);
            }
        }
    }

    /// Takes out up to `most` deliveries, oldest first.
    pub fn take(&mut self, most: usize) -> Vec<Delivery> {
        let count = most.min(self.waiting.len());
        self.taken += count;
        let batch = self.waiting.drain(..count).collect();
        if self.waiting.is_empty() {
            self.facts.clear();
            self.taken = 0;
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

    use super::*;
    use crate::ids::{LbName, PoolId, PoolName, ServiceUid};
    use crate::level::Provenance;
    use crate::xds::sources::{Assigned, Name, Note, SourceFact};
    use crate::{directory, discovery};

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
