//! The messages that wait on one edge, from one sender to one receiver (docs/design/model-and-mechanisms.md, A3).
//!
//! While the receiver is busy, a newer fact about the same object replaces the older one, so that the number of waiting
//! facts is bounded. Requests and answers are kept in order, and no fact moves across one.

use std::collections::BTreeMap;

/// A message that is a fact about something, or a request or answer.
pub trait Coalesce {
    /// What a fact is about.
    type Key: Ord + Clone;

    /// What it is about, if it is a fact.
    fn fact(&self) -> Option<Self::Key>;

    /// Takes over from an older fact about the same thing, which this one replaces, what must not be lost.
    fn absorb(&mut self, older: &Self);

    /// Where a newer fact about this goes.
    fn place(key: &Self::Key) -> FactOrder;
}

/// Where a fact goes that replaces an older one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FactOrder {
    /// To the place of the older one.
    SameAsOlder,
    /// Behind all messages that wait: facts about objects are part of a history, and keep its order.
    Last,
    /// To the place of the older one, and no newer fact moves in front of it: facts about other objects depend on it.
    Barrier,
}

/// The messages that wait on one edge.
#[derive(Debug)]
pub struct CoalescingQueue<M: Coalesce> {
    /// By position; later ones are greater.
    waiting: BTreeMap<u64, M>,
    /// The position of the next message that is appended.
    next: u64,
    /// Where the newest fact about each thing stands, among those behind the last request or answer.
    facts: BTreeMap<M::Key, u64>,
}

impl<M: Coalesce> Default for CoalescingQueue<M> {
    fn default() -> CoalescingQueue<M> {
        CoalescingQueue { waiting: BTreeMap::new(), next: 0, facts: BTreeMap::new() }
    }
}

impl<M: Coalesce> CoalescingQueue<M> {
    /// Adds a message. A fact replaces an older one about the same object that waits behind the last request or
    /// answer.
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

    /// Takes out up to `most` messages, oldest first.
    pub fn take(&mut self, most: usize) -> Vec<M> {
        let batch = std::iter::from_fn(|| self.waiting.pop_first()).take(most);
        let batch = batch.map(|(_, message)| message).collect();
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
