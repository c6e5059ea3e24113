//! Checks that load balancers that answer are read in time, even if many others do not answer (D3).

use std::collections::BTreeMap;

use model::ids::LbName;

use super::Watchdog;
use crate::process::{Settings, used};

/// Time after its start within which a process must request each load balancer that answers. It makes its lists first,
/// and 20 load balancers that do not answer cost 3 s.
const FIRST_US: u64 = 15_000_000;
/// The longest time between two reads of a load balancer: an interval, with some room.
const APART_US: u64 = 75_000_000;

/// The time by which one process must request each load balancer again.
#[derive(Default)]
pub struct ReadDeadlines {
    by: BTreeMap<LbName, u64>,
}

impl ReadDeadlines {
    /// Creates the deadlines of a process that starts now. Nothing is checked if all load balancers answer.
    pub fn new(now: u64, settings: &Settings) -> ReadDeadlines {
        let used = used(*settings).into_iter().filter(|_| settings.unanswered_balancers > 0);
        ReadDeadlines { by: used.map(|lb| (lb, now + FIRST_US)).collect() }
    }
}

impl Watchdog {
    /// Records that a read of a load balancer by a process reaches ARM.
    pub fn reads(&mut self, now: u64, process: usize, lb: &LbName) {
        if let Some(by) = self.within[process].read_deadlines.by.get_mut(lb) {
            *by = now + APART_US;
        }
    }

    /// D3: load balancers that do not answer delay no others.
    ///
    /// # Errors
    /// Names a load balancer that was not read in time.
    pub fn reads_in_time(&self, now: u64, process: usize) -> Result<(), String> {
        let late = self.within[process].read_deadlines.by.iter().find(|(_, by)| **by < now);
        late.map_or(Ok(()), |(lb, by)| Err(format!("D3: {lb} was not read by {by}")))
    }
}
