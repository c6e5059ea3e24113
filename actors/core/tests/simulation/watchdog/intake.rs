//! Lines that are read and not applied: a pool gets no turn while a change of its Service has been read that no level
//! includes yet (Q2).

use std::collections::{BTreeMap, BTreeSet};

use model::ids::{PoolId, PoolName};
use model::machine::Now;
use model::object::Kind;
use pool_core::route::{Delivery, Output};
use sources::informer;

use super::Watchdog;

/// Maximum time until the writer receives a change: a slow edge, and another one before it.
const HEARD_US: u64 = 500_000;
/// Minimum time that a due pool waits for such a change.
const WAITS_US: u64 = 1_900_000;

/// Lines that one process has read and not applied.
#[derive(Default)]
pub struct Unread {
    /// For each Service, by the name of its pool for IPv4: since when, and the process's time at which the newest
    /// change was read.
    changes: BTreeMap<PoolName, (u64, Now)>,
    /// Time since which pools without an attempt are due.
    due: BTreeMap<PoolId, u64>,
    attempts: BTreeSet<PoolId>,
    /// Pools with a due change that does not wait: a node had to be drained (N3).
    drained: BTreeSet<PoolId>,
    /// Time until which the writer has received nothing.
    deaf_until: u64,
}

impl Unread {
    /// The Informer applies something.
    fn taken_in(&mut self, input: &informer::In) {
        if let informer::In::Seen(Kind::EndpointSlices, read, _) = input {
            self.changes.retain(|_, (_, newest)| *newest > *read);
        }
    }

    fn record_input(&mut self, now: u64, input: &writer::In) {
        if let writer::In::MembershipDue(pool, _) = input
            && !self.attempts.contains(pool)
        {
            self.due.entry(pool.clone()).or_insert(now);
        } else if let writer::In::Withdraw(pool) = input {
            self.due.remove(pool);
        } else if let writer::In::AdminDue(pool, Some(_)) = input {
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
    /// A process has read lines.
    pub fn on_lines_read(&mut self, now: u64, process: usize, read: &[Delivery]) {
        let unread = &mut self.within[process].unread;
        for delivery in read {
            if let Delivery::Writer(writer::In::Unread(pool, read)) = delivery {
                unread.changes.entry(pool.clone()).or_insert((now, *read)).1 = *read;
            }
        }
    }

    /// The writer of a process receives nothing until this time.
    pub fn mute_writer(&mut self, process: usize, until: u64) {
        self.within[process].unread.deaf_until = until;
    }

    /// The Informer of a process applies something.
    pub(super) fn on_taken_in(&mut self, process: usize, input: &informer::In) {
        self.within[process].unread.taken_in(input);
    }

    /// Q2: changes of a pool's Service that are read are applied before the pool gets a turn.
    ///
    /// # Errors
    /// A turn that is too early.
    pub(super) fn on_turns(
        &mut self,
        now: u64,
        process: usize,
        input: Option<&Delivery>,
        outputs: &[Output],
    ) -> Result<(), String> {
        let unread = &mut self.within[process].unread;
        if let Some(Delivery::Writer(input)) = input {
            unread.record_input(now, input);
        }
        for output in outputs {
            if let Output::Writer(writer::Out::Take(pool, _)) = output {
                unread.grants(now, pool)?;
            } else if let Output::Writer(writer::Out::Finished(pool, ..)) = output {
                unread.attempts.remove(pool);
            }
        }
        Ok(())
    }
}
