//! Checks how long a lane waits for the end of an operation (W2), by the operations that really run in ARM.

use std::collections::BTreeMap;

use model::ids::{LbName, PoolId};
use model::machine::Now;
use model::sample::GateClass;
use model::view::LaneView;
use simulator_models::arm::ArmModel;

use super::Watchdog;

/// Time for which a lane may wait for an operation that has ended, if nothing prevents the process from noticing: half
/// a minute, plus twice the time that an edge may stall and a read may take.
const ENDED_US: u64 = 120_000_000;

/// The operations that a process waits for.
#[derive(Default)]
pub struct Operations(BTreeMap<LbName, Operation>);

struct Operation {
    /// The write: its pool, and when its lane was granted.
    write: (PoolId, Now),
    /// Time since which no operation runs on the load balancer, and nothing prevents the process from noticing.
    ended: u64,
}

impl Operations {
    /// Records the state of a lane.
    pub fn shown(&mut self, now: u64, lane: &LaneView) {
        match &lane.writing {
            Some((pool, "polling", since)) => {
                let write = (pool.clone(), *since);
                if self.0.get(&lane.lb).is_none_or(|known| known.write != write) {
                    self.0.insert(lane.lb.clone(), Operation { write, ended: now });
                }
            }
            Some(_) | None => {
                self.0.remove(&lane.lb);
            }
        }
    }

    /// Records that before `until`, the process could not detect which operations run on a load balancer. `None`: on
    /// any.
    pub fn exempt_until(&mut self, until: u64, lb: Option<&LbName>) {
        for (of, operation) in &mut self.0 {
            if lb.is_none_or(|lb| lb == of) {
                operation.ended = operation.ended.max(until);
            }
        }
    }
}

impl Watchdog {
    /// Records that until this time a process cannot detect which operations run on a load balancer, or on any.
    pub fn exempt(&mut self, until: u64, process: usize, lb: Option<&LbName>) {
        self.within[process].operations.exempt_until(until, lb);
    }

    /// Checks the lanes of a process when a read of its reaches ARM.
    ///
    /// # Errors
    /// A lane waits for an operation after it has ended.
    pub fn on_read(&mut self, now: u64, process: usize, arm: &ArmModel) -> Result<(), String> {
        let within = &mut self.within[process];
        if let Some((_, until)) = within.sender.throttled_until(GateClass::Reads) {
            within.operations.exempt_until(until, None);
        }
        for (lb, operation) in &mut within.operations.0 {
            if arm.is_updating(lb.as_str()) {
                operation.ended = operation.ended.max(now);
            } else if operation.ended + ENDED_US < now {
                let (pool, _) = &operation.write;
                return Err(format!(
                    "W2: the lane of {lb} waits for the operation of {pool}, and no operation has run there since {}",
                    operation.ended
                ));
            }
        }
        Ok(())
    }
}
