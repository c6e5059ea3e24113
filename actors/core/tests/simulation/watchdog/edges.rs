//! Checks the messages that wait on the edge to a machine: only the newest state of each object, and the newest
//! draining set (A3).

use std::collections::BTreeSet;

use model::object::ObjectKey;
use pool_core::route::Delivery;
use sources::informer;

use super::Watchdog;

/// An object or a set of which only the newest state may wait.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Newest {
    Object(ObjectKey),
    DrainingSet,
}

impl Newest {
    fn of(delivery: &Delivery) -> Option<Newest> {
        if let Delivery::Watcher(_, input) = delivery {
            return input.object().map(Newest::Object);
        }
        if let Delivery::Informer(informer::In::Seen(_, _, seen))
        | Delivery::AdminState(nodes::In::Preemption(seen)) = delivery
        {
            return seen.object().map(Newest::Object);
        }
        matches!(delivery, Delivery::Writer(writer::In::Draining(_))).then_some(Newest::DrainingSet)
    }
}

impl Watchdog {
    /// Checks a batch that has waited on an edge. Nothing moves across a message that is no fact.
    ///
    /// # Errors
    /// Two states of the same thing.
    pub fn on_batch(batch: &[Delivery]) -> Result<(), String> {
        let mut waiting = BTreeSet::new();
        for delivery in batch {
            match Newest::of(delivery) {
                Some(newest) => {
                    if let Some(twice) = waiting.replace(newest) {
                        return Err(format!("A3: {twice:?} waits twice in {} deliveries", batch.len()));
                    }
                }
                None if delivery.fact().is_none() => waiting.clear(),
                None => {}
            }
        }
        Ok(())
    }
}
