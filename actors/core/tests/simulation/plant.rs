//! Bugs that are planted into the world, never into the machines: each stands for a mistake that a change of a
//! machine, of a shell or of a port could make. A simulation that does not find them proves nothing.

use pool_core::assignment::Assignment;
use pool_core::route::{Delivery, PoolMessage};
use pool_core::{directory, queue, writer};

use crate::random::Random;

/// One planted bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// Some outcomes never reach their pool.
    OutcomesLost,
    /// A Service's facts overtake each other on their way to the Directory.
    FactsReordered,
    /// Every PUT carries the first entity tag that was ever seen.
    StaleEtag,
    /// A PUT that was accepted counts as carried out.
    AcceptedIsWritten,
    /// A PUT that failed counts as done, and nobody verifies it.
    LostIsWritten,
    /// Every later list shows what the first one showed.
    StaleLists,
    /// Every later list of EndpointSlices is empty.
    EmptyLists,
    /// Deletions on a watch are not heard.
    DeletionsOverheard,
    /// The guard of emptiness and the removal delay are off.
    GuardOff,
    /// Outbound rules are not seen.
    ProofHidden,
    /// Pauses are not passed on.
    PauseIgnored,
    /// Pools do not answer each Take.
    TakesUnanswered,
}

impl Plant {
    /// All of them.
    pub const ALL: [Plant; 12] = [
        Plant::OutcomesLost,
        Plant::FactsReordered,
        Plant::StaleEtag,
        Plant::AcceptedIsWritten,
        Plant::LostIsWritten,
        Plant::StaleLists,
        Plant::EmptyLists,
        Plant::DeletionsOverheard,
        Plant::GuardOff,
        Plant::ProofHidden,
        Plant::PauseIgnored,
        Plant::TakesUnanswered,
    ];
}

/// What a planted bug does to deliveries on their way to an edge.
pub struct Saboteur {
    plant: Option<Plant>,
    random: Random,
    /// A delivery that is held back until the next one has overtaken it.
    held: Option<Delivery>,
}

impl Saboteur {
    /// One that does nothing without a plant.
    pub fn new(plant: Option<Plant>, random: Random) -> Saboteur {
        Saboteur { plant, random, held: None }
    }

    /// What becomes of a delivery.
    pub fn pass(&mut self, mut delivery: Delivery) -> Vec<Delivery> {
        match (self.plant, &mut delivery) {
            (Some(Plant::OutcomesLost), Delivery::Pool(_, PoolMessage::In(queue::In::Finished(..)))) => {
                if self.random.per_mille(50) {
                    Vec::new()
                } else {
                    vec![delivery]
                }
            }
            (Some(Plant::FactsReordered), Delivery::Directory(directory::In::Service(_, Some(_)))) => {
                if self.held.is_none() && self.random.per_mille(300) {
                    self.held = Some(delivery);
                    return Vec::new();
                }
                let mut all = vec![delivery];
                all.extend(self.held.take());
                all
            }
            (Some(Plant::LostIsWritten), Delivery::Pool(_, PoolMessage::In(queue::In::Verified(_)))) => {
                Vec::new()
            }
            (
                Some(Plant::PauseIgnored),
                Delivery::Pool(_, PoolMessage::In(queue::In::Assigned(assignment))),
            ) => {
                *assignment =
                    std::sync::Arc::new(Assignment { paused: false, ..Assignment::clone(assignment) });
                vec![delivery]
            }
            (Some(Plant::TakesUnanswered), Delivery::Writer(writer::In::Taken(..))) => {
                if self.random.per_mille(50) { Vec::new() } else { vec![delivery] }
            }
            (_, _) => vec![delivery],
        }
    }
}
