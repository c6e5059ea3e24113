//! The queue of messages from one sender to one receiver (docs/design/model-and-mechanisms.md, A3).
//!
//! While the receiver is busy, a newer fact about the same object replaces the older one, so that the number of queued
//! facts is bounded. Requests and answers keep their order, and no fact moves across one.

use std::collections::BTreeMap;

/// A message: a fact about an object, or a request or answer.
pub trait Coalesce {
    /// Identifies the object of a fact.
    type Key: Ord + Clone;

    /// The object of a fact; `None` for a request or answer.
    fn fact(&self) -> Option<Self::Key>;

    /// Takes over what must survive of an older fact about the same object, which this one replaces.
    fn absorb(&mut self, older: &Self);

    /// The position of a newer fact about this object.
    fn place(key: &Self::Key) -> FactOrder;
}

/// The position of a fact that replaces an older one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactOrder {
    /// The position of the older fact.
    SameAsOlder,
    /// The end of the queue: facts about objects are part of a history and keep its order.
    Last,
    /// The position of the older fact. No newer fact moves in front of it, because facts about other objects depend on
    /// it.
    Barrier,
}

/// A queue of messages that merges facts about the same object.
#[derive(Debug)]
pub struct CoalescingQueue<M: Coalesce> {
    /// The messages by position; later ones are greater.
    waiting: BTreeMap<u64, M>,
    /// The last position given to an appended message.
    next: u64,
    /// The positions of the newest facts behind the last request or answer.
    facts: BTreeMap<M::Key, u64>,
}

impl<M: Coalesce> Default for CoalescingQueue<M> {
    fn default() -> CoalescingQueue<M> {
        CoalescingQueue { waiting: BTreeMap::new(), next: 0, facts: BTreeMap::new() }
    }
}

impl<M: Coalesce> CoalescingQueue<M> {
    /// Adds a message. A fact replaces an older one about the same object, if that is queued behind the last request
    /// or answer.
    pub fn push(&mut self, mut message: M) {
        let key = message.fact();
        let older = key.as_ref().and_then(|key| self.facts.get(key).copied());
        let older = older.and_then(|place| Some((place, self.waiting.remove(&place)?)));
        if let Some((_, older)) = &older {
            message.absorb(older);
        }
        let place = match (&key, older) {
            (Some(key), Some((place, _))) if M::place(key) != FactOrder::Last => place,
            (_, _) => {
                self.next += 1;
                self.next
            }
        };
        if key.as_ref().is_none_or(|key| M::place(key) == FactOrder::Barrier) {
            self.facts.retain(|_, fact| *fact > place);
        }
        if let Some(key) = key {
            self.facts.insert(key, place);
        }
        self.waiting.insert(place, message);
    }

    /// Removes and returns up to `most` messages, oldest first.
    pub fn take(&mut self, most: usize) -> Vec<M> {
        let batch = std::iter::from_fn(|| self.waiting.pop_first()).take(most);
        let batch = batch.map(|(_, message)| message).collect();
        if self.waiting.is_empty() {
            self.facts.clear();
        }
        batch
    }

    /// The number of queued messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Returns true if no message is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}
