//! Compares the queue with a plain model: an ordered map from positions to messages.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{Coalesce, CoalescingQueue, FactOrder, VACANT};

/// A fact about an object, or a request, with the numbers of all messages that it absorbed.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Message {
    object: Option<u8>,
    numbers: Vec<usize>,
}

impl Coalesce for Message {
    type Key = u8;

    fn fact(&self) -> Option<u8> {
        self.object
    }

    fn absorb(&mut self, older: &Message) {
        self.numbers.extend(&older.numbers);
    }

    fn place(object: &u8) -> FactOrder {
        match object {
            0..4 => FactOrder::Last,
            4..8 => FactOrder::SameAsOlder,
            _ => FactOrder::Barrier,
        }
    }
}

/// The rules of the queue, without its memory management.
#[derive(Default)]
struct Model {
    waiting: BTreeMap<usize, Message>,
    next: usize,
    facts: BTreeMap<u8, usize>,
}

impl Model {
    fn push(&mut self, mut message: Message) {
        let object = message.object;
        let older = object.and_then(|object| self.facts.get(&object).copied());
        let older = older.and_then(|place| Some((place, self.waiting.remove(&place)?)));
        if let Some((_, older)) = &older {
            message.absorb(older);
        }
        let place = match (object, older) {
            (Some(object), Some((place, _))) if Message::place(&object) != FactOrder::Last => place,
            (_, _) => {
                self.next += 1;
                self.next
            }
        };
        if object.is_none_or(|object| Message::place(&object) == FactOrder::Barrier) {
            self.facts.retain(|_, fact| *fact > place);
        }
        if let Some(object) = object {
            self.facts.insert(object, place);
        }
        self.waiting.insert(place, message);
    }

    fn take(&mut self, most: usize) -> Vec<Message> {
        std::iter::from_fn(|| self.waiting.pop_first()).take(most).map(|(_, message)| message).collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push(Option<u8>),
    Take(usize),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let fact = || (0..10_u8).prop_map(|object| Op::Push(Some(object)));
    let moving = || (0..4_u8).prop_map(|object| Op::Push(Some(object)));
    let op = prop_oneof![
        6 => fact(),
        6 => moving(),
        1 => Just(Op::Push(None)),
        1 => (0..5_usize).prop_map(Op::Take),
        1 => Just(Op::Take(usize::MAX)),
    ];
    prop::collection::vec(op, 1..200)
}

fn play(ops: Vec<Op>) -> Result<(), TestCaseError> {
    let (mut queue, mut model) = (CoalescingQueue::default(), Model::default());
    for (number, op) in ops.into_iter().chain([Op::Take(usize::MAX)]).enumerate() {
        match op {
            Op::Push(object) => {
                let message = Message { object, numbers: vec![number] };
                queue.push(message.clone());
                model.push(message);
            }
            Op::Take(most) => prop_assert_eq!(queue.take(most), model.take(most)),
        }
        prop_assert_eq!((queue.len(), queue.is_empty()), (model.waiting.len(), model.waiting.is_empty()));
        prop_assert!(queue.slots.len() <= 2 * queue.len() + VACANT, "too many slots are vacant");
    }
    prop_assert_eq!((queue.slots.capacity(), queue.facts.len()), (0, 0), "an empty queue holds no memory");
    Ok(())
}

proptest! {
    #[test]
    fn a3_the_queue_behaves_as_an_ordered_map(ops in ops()) {
        play(ops)?;
    }
}

#[test]
fn a3_facts_that_move_to_the_end_leave_no_gaps() {
    let mut queue = CoalescingQueue::default();
    queue.push(Message { object: None, numbers: Vec::new() });
    for number in 0..10_000 {
        queue.push(Message { object: Some(u8::from(number % 2 == 0)), numbers: Vec::new() });
        assert!(queue.slots.len() <= 2 * queue.len() + VACANT, "after {number} facts");
    }
    let objects: Vec<_> = queue.take(9).iter().map(|message| message.object).collect();
    assert_eq!(objects, [None, Some(1), Some(0)]);
}
