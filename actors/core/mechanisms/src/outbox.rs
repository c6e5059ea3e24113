//! The queue of messages from one sender to one receiver (docs/design/model-and-mechanisms.md, A3).
//!
//! While the receiver is busy, a newer fact about the same object replaces the older one, so that the number of queued
//! facts is bounded. Requests and answers keep their order, and no fact moves across one.

use std::collections::{BTreeMap, VecDeque};

/// A message: a fact about an object, or a request or answer.
pub trait Coalesce {
    /// Identifies the object of a fact.
    type Key: Ord + Clone;

    /// Returns the object of a fact; `None` for a request or answer.
    fn fact(&self) -> Option<Self::Key>;

    /// Takes over what must survive of an older fact about the same object, which this one replaces.
    fn absorb(&mut self, older: &Self);

    /// Returns the position of a newer fact about this object.
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

/// The number of vacant slots that are tolerated in addition to one for each message.
const VACANT: usize = 8;

/// A queue of messages that merges facts about the same object.
#[derive(Debug)]
pub struct CoalescingQueue<M: Coalesce> {
    /// The messages in ascending order of their positions. The first slot is never vacant.
    slots: VecDeque<Slot<M>>,
    /// The number of messages.
    len: usize,
    /// The last position given to an appended message.
    next: u64,
    /// The positions of the newest facts behind the last request or answer.
    facts: BTreeMap<M::Key, u64>,
}

/// A place in the queue.
#[derive(Debug)]
struct Slot<M> {
    position: u64,
    /// `None`: a fact was here and moved to the end of the queue.
    message: Option<M>,
}

impl<M: Coalesce> Default for CoalescingQueue<M> {
    fn default() -> CoalescingQueue<M> {
        CoalescingQueue { slots: VecDeque::new(), len: 0, next: 0, facts: BTreeMap::new() }
    }
}

impl<M: Coalesce> CoalescingQueue<M> {
    /// Adds a message. A fact replaces an older one about the same object, if that is queued behind the last request
    /// or answer.
    pub fn push(&mut self, mut message: M) {
        let key = message.fact();
        let older = key.as_ref().and_then(|key| self.index_of(key));
        if let Some(older) = older.and_then(|index| self.slots[index].message.as_ref()) {
            message.absorb(older);
        }
        let stays = older.filter(|_| key.as_ref().is_some_and(|key| M::place(key) != FactOrder::Last));
        let position = stays.map_or(self.next + 1, |index| self.slots[index].position);
        if key.as_ref().is_none_or(|key| M::place(key) == FactOrder::Barrier) {
            self.facts.retain(|_, fact| *fact > position);
        }
        if let Some(key) = key {
            self.facts.insert(key, position);
        }
        if let Some(index) = stays {
            self.slots[index].message = Some(message);
            return;
        }
        if let Some(index) = older {
            self.slots[index].message = None;
            self.len -= 1;
        }
        self.slots.push_back(Slot { position, message: Some(message) });
        (self.next, self.len) = (position, self.len + 1);
        self.trim();
    }

    /// Returns the index of the fact about this object that a newer one replaces.
    fn index_of(&self, key: &M::Key) -> Option<usize> {
        let position = self.facts.get(key)?;
        self.slots.binary_search_by_key(position, |slot| slot.position).ok()
    }

    /// Drops the vacant slots at the front, and all others when there are too many.
    fn trim(&mut self) {
        while self.slots.front().is_some_and(|slot| slot.message.is_none()) {
            self.slots.pop_front();
        }
        if self.slots.len() > 2 * self.len + VACANT {
            self.slots.retain(|slot| slot.message.is_some());
        }
    }

    /// Removes and returns up to `most` messages, oldest first. An empty queue holds no memory.
    pub fn take(&mut self, most: usize) -> Vec<M> {
        let count = most.min(self.len);
        let mut batch = Vec::with_capacity(count);
        let slots = std::iter::from_fn(|| self.slots.pop_front());
        batch.extend(slots.filter_map(|slot| slot.message).take(count));
        self.len -= count;
        if self.len == 0 {
            (self.slots, self.facts) = (VecDeque::new(), BTreeMap::new());
        }
        self.trim();
        batch
    }

    /// Returns the number of queued messages.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if no message is queued.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

#[cfg(test)]
mod tests;
