//! What is read and not taken in: no turn for a pool of whose Service a change has been read that no level holds yet (Q2).

use std::collections::{BTreeMap, BTreeSet};

use model::ids::{PoolId, PoolName};
use model::machine::Now;
use model::object::Kind;
use pool_core::route::{Delivery, Output};
use sources::informer;

use super::Watchdog;

/// How long it may take until the writer has heard of a change: a slow edge, and another one before it.
const HEARD_US: u64 = 500_000;
/// For how long after it has become due a pool waits for such a change at least.
const WAITS_US: u64 = 1_900_000;

/// What one process has read and not taken in.
#[derive(Default)]
pub struct Unread {
    /// Of each Service, by the name of its pool for IPv4: since when, and when the newest change was read by its clock.
    changes: BTreeMap<PoolName, (u64, Now)>,
    /// Since when pools are due that have no attempt.
    due: BTreeMap<PoolId, u64>,
    attempts: BTreeSet<PoolId>,
    /// Pools that had something due that does not wait: a node was to be cut out (N3).
    drained: BTreeSet<PoolId>,
    /// Until when the writer has not heard anything.
    deaf_until: u64,
}

impl Unread {
    /// The Informer takes something in.
    fn taken_in(&mut self, input: &informer::In) {
        if let informer::In::Seen(Kind::EndpointSlices, read, _) = input {
            self.changes.retain(|_, (_, newest)| *newest > *read);
        }
    }

    fn told(&mut self, now: u64, input: &writer::In) {
        if let writer::In::Due(pool, _) = input
            && !self.attempts.contains(pool)
        {
            self.due.entry(pool.clone()).or_insert(now);
        } else if let writer::In::Withdraw(pool) = input {
            self.due.remove(pool);
        } else if let writer::In::AdminDue(pool, _) = input {
            self.drained.insert(pool.clone());
        } else if let writer::In::Taken(pool, _, None) = input {
            self.attempts.remove(pool);
        }
    }

    fn grants(&mut self, now: u64, pool: &PoolId) -> Result<(), String> {
        self.attempts.insert(pool.clone());
        let due = self.due.remove(pool).filter(|due| now < due + WAITS_US && !self.drained.contains(pool));
        let unread = self.changes.get(&pool.pool).map(|(since, _)| *since);
        match (due, unread.filter(|since| since + HEARD_US < now && *since > self.deaf_until)) {
            (Some(_), Some(since)) => {
                Err(format!("Q2: {pool} gets a turn, and a change of its Service is unread since {since}"))
            }
            (_, _) => Ok(()),
        }
    }
}

impl Watchdog {
    /// A process has read something.
    pub fn on_lines_read(&mut self, now: u64, process: usize, read: &[Delivery]) {
        let unread = &mut self.within[process].unread;
        for delivery in read {
            if let Delivery::Writer(writer::In::Unread(pool, read)) = delivery {
                unread.changes.entry(pool.clone()).or_insert((now, *read)).1 = *read;
            }
        }
    }

    /// The writer of a process hears nothing until then.
    pub fn deafens(&mut self, process: usize, until: u64) {
        self.within[process].unread.deaf_until = until;
    }

    /// The Informer of a process takes something in.
    pub(super) fn on_taken_in(&mut self, process: usize, input: &informer::In) {
        self.within[process].unread.taken_in(input);
    }

    /// Q2: what has been read of a pool's Service is taken in before the pool gets a turn.
    ///
    /// # Errors
    /// The turn that comes too early.
    pub(super) fn on_turns(
        &mut self,
        now: u64,
        process: usize,
        input: Option<&Delivery>,
        said: &[Output],
    ) -> Result<(), String> {
        let unread = &mut self.within[process].unread;
        if let Some(Delivery::Writer(input)) = input {
            unread.told(now, input);
        }
        for said in said {
            if let Output::Writer(writer::Out::Take(pool, _)) = said {
                unread.grants(now, pool)?;
            } else if let Output::Writer(writer::Out::Finished(pool, ..)) = said {
                unread.attempts.remove(pool);
            }
        }
        Ok(())
    }
}
