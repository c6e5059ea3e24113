//! How long a lane waits for the end of an operation (W2), by the truth of what runs at ARM.

use std::collections::BTreeMap;

use pool_core::ids::{LbName, PoolId};
use pool_core::machine::Now;
use pool_core::sample::GateClass;
use pool_core::view::LaneView;
use simulator_models::arm::ArmModel;

use super::Watchdog;

/// How long a lane may wait for an operation that has ended, while nothing keeps it from finding that out: half a minute,
/// and twice what an edge may stall and a read may be under way.
const ENDED_US: u64 = 120_000_000;

/// The operations that a process waits for.
#[derive(Default)]
pub struct Operations(BTreeMap<LbName, Operation>);

struct Operation {
    /// The write: its pool, and when its lane was granted.
    write: (PoolId, Now),
    /// Since when nothing runs on the load balancer, and nothing keeps the process from finding that out.
    ended: u64,
}

impl Operations {
    /// Notes what a lane does.
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

    /// Notes that until this moment the process could not find out what runs at a load balancer; `None`: at any.
    pub fn excused(&mut self, until: u64, lb: Option<&LbName>) {
        for (of, operation) in &mut self.0 {
            if lb.is_none_or(|lb| lb == of) {
                operation.ended = operation.ended.max(until);
            }
        }
    }
}

impl Watchdog {
    /// A process cannot find out what runs at a load balancer, or at any, until this moment.
    pub fn excuse(&mut self, until: u64, process: usize, lb: Option<&LbName>) {
        self.within[process].operations.excused(until, lb);
    }

    /// Judges the lanes of a process as a read of its reaches ARM.
    ///
    /// # Errors
    /// That one waits for an operation that has ended long ago.
    pub fn on_read(&mut self, now: u64, process: usize, arm: &ArmModel) -> Result<(), String> {
        let within = &mut self.within[process];
        if let Some((_, until)) = within.sender.told(GateClass::Reads) {
            within.operations.excused(until, None);
        }
        for (lb, operation) in &mut within.operations.0 {
            if arm.is_updating(lb.as_str()) {
                operation.ended = operation.ended.max(now);
            } else if operation.ended + ENDED_US < now {
                let (pool, _) = &operation.write;
                return Err(format!(
                    "W2: the lane of {lb} waits for the operation of {pool}, and nothing runs there since {}",
                    operation.ended
                ));
            }
        }
        Ok(())
    }
}
