//! Watch events that are read but not applied: the writer takes no pool while a change of its Service has been read
//! that no level includes yet (Q2).

use std::collections::{BTreeMap, BTreeSet};

use model::ids::{PoolId, PoolName};
use model::machine::Now;
use model::object::Kind;
use pool_core::route::{Delivery, Output};
use sources::informer;

use super::Watchdog;

/// Maximum time until the writer receives a change: two slow deliveries in a row.
const DELIVERY_LIMIT_US: u64 = 500_000;
/// Minimum time that a due pool waits for such a change.
const MIN_WAIT_US: u64 = 1_900_000;

/// The watch events that one process has read and not applied.
#[derive(Default)]
pub struct Unread {
    /// For each Service, by the name of its IPv4 pool: since when a change is unread, and when the process read the
    /// newest change, by its own clock.
    changes: BTreeMap<PoolName, (u64, Now)>,
    /// Time since which pools without an attempt are due.
    due: BTreeMap<PoolId, u64>,
    attempts: BTreeSet<PoolId>,
    /// Pools with a due change that does not wait: a node had to be drained (N3).
    drained: BTreeSet<PoolId>,
    /// End of the time in which the writer receives nothing.
    writer_stalled_until: u64,
}

impl Unread {
    /// Records that the Informer applies an input.
    fn on_applied(&mut self, input: &informer::In) {
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

    fn on_take(&mut self, now: u64, pool: &PoolId) -> Result<(), String> {
        self.attempts.insert(pool.clone());
        let due = self.due.remove(pool).filter(|due| now < due + MIN_WAIT_US && !self.drained.contains(pool));
        let unread = self.changes.get(&pool.pool).map(|(since, _)| *since);
        match (
            due,
            unread.filter(|since| since + DELIVERY_LIMIT_US < now && *since > self.writer_stalled_until),
        ) {
            (Some(_), Some(since)) => Err(format!(
                "Q2: the writer takes {pool}, and a change of its Service is unread since {since}"
            )),
            (_, _) => Ok(()),
        }
    }
}

impl Watchdog {
    /// Records the changes that a process has read.
    pub fn on_lines_read(&mut self, now: u64, process: usize, read: &[Delivery]) {
        let unread = &mut self.within[process].unread;
        for delivery in read {
            if let Delivery::Writer(writer::In::Unread(pool, read)) = delivery {
                unread.changes.entry(pool.clone()).or_insert((now, *read)).1 = *read;
            }
        }
    }

    /// Records that the writer of a process receives nothing until this time.
    pub fn stall_writer(&mut self, process: usize, until: u64) {
        self.within[process].unread.writer_stalled_until = until;
    }

    /// Records that the Informer of a process applies an input.
    pub(super) fn on_informer_input(&mut self, process: usize, input: &informer::In) {
        self.within[process].unread.on_applied(input);
    }

    /// Checks that the changes of a pool's Service that are read are applied before the writer takes the pool (Q2).
    ///
    /// # Errors
    /// The writer takes a pool too early.
    pub(super) fn check_takes(
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
                unread.on_take(now, pool)?;
            } else if let Output::Writer(writer::Out::Finished(pool, ..)) = output {
                unread.attempts.remove(pool);
            }
        }
        Ok(())
    }
}
