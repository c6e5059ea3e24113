//! Whether load balancers that answer are looked at in time where many others do not answer (D3).

use std::collections::BTreeMap;

use pool_core::ids::LbName;

use super::Watchdog;
use crate::process::{Settings, used};

/// Within which time of its start a process has asked for each load balancer that answers: it lists, and 20 that do not
/// answer cost 3 s.
const FIRST_US: u64 = 15_000_000;
/// How far apart two reads of one are: an interval, with some room.
const APART_US: u64 = 75_000_000;

/// When each load balancer is to have been asked for again, by one process.
#[derive(Default)]
pub struct Looks {
    by: BTreeMap<LbName, u64>,
}

impl Looks {
    /// Of a process that starts now; nothing is asked of it where load balancers all answer.
    pub fn new(now: u64, settings: &Settings) -> Looks {
        let used = used(*settings).into_iter().filter(|_| settings.silent > 0);
        Looks { by: used.map(|lb| (lb, now + FIRST_US)).collect() }
    }
}

impl Watchdog {
    /// A read of a load balancer by a process reaches ARM.
    pub fn reads(&mut self, now: u64, process: usize, lb: &LbName) {
        if let Some(by) = self.within[process].looks.by.get_mut(lb) {
            *by = now + APART_US;
        }
    }

    /// D3: load balancers that do not answer delay no others.
    ///
    /// # Errors
    /// The one that was not read in time.
    pub fn looks_around(&self, now: u64, process: usize) -> Result<(), String> {
        let late = self.within[process].looks.by.iter().find(|(_, by)| **by < now);
        late.map_or(Ok(()), |(lb, by)| Err(format!("D3: {lb} was to be read until {by}, and was not")))
    }
}
