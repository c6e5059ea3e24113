//! The writes of each load balancer, their clients, and the ends of their operations.
//!
//! This module only records; the model decides about writes.

use std::collections::BTreeMap;

/// Maximum number of writes; later ones are dropped.
const MOST: usize = 200_000;

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its operation still runs, or its answer is in flight.
    Running,
    /// The write succeeded.
    Done,
    /// A later write superseded it.
    Superseded,
    /// The write was answered with an error.
    Refused,
    /// Its answer was lost.
    Lost,
}

/// One PUT or DELETE of a pool or a load balancer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The load balancer, in lower case.
    pub load_balancer: String,
    /// The pool, in lower case; `None` for a write of the load balancer itself.
    pub pool: Option<String>,
    /// True if the cloud-controller-manager sent it.
    pub foreign: bool,
    /// Time at which it arrived, in microseconds.
    pub started_us: u64,
    /// Time of the answer, in microseconds.
    pub answered_us: u64,
    /// End of its operation, or the time of the answer without an operation or while it runs.
    pub ended_us: u64,
    /// Status of the answer; 0 if there was none.
    pub status: u16,
    /// Fate of the write.
    pub fate: Fate,
}

/// The writes so far, in the order of their arrival.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    writes: Vec<Write>,
    running: BTreeMap<String, usize>,
}

impl Lanes {
    /// Records a write; `runs` is true if an operation of its load balancer runs now.
    pub(crate) fn wrote(&mut self, write: Write, runs: bool) {
        let took_place = matches!(write.fate, Fate::Done | Fate::Lost);
        if took_place {
            self.end(&write.load_balancer, write.started_us, Fate::Superseded);
        }
        if self.writes.len() >= MOST {
            return;
        }
        if took_place && runs {
            self.running.insert(write.load_balancer.clone(), self.writes.len());
        }
        let fate = if runs && write.fate == Fate::Done { Fate::Running } else { write.fate };
        self.writes.push(Write { fate, ..write });
    }

    /// Ends the running writes of the load balancers for which `still_runs` is false.
    pub(crate) fn finish(&mut self, now_us: u64, still_runs: impl Fn(&str) -> bool) {
        let over: Vec<String> = self.running.keys().filter(|lb| !still_runs(lb)).cloned().collect();
        for load_balancer in over {
            self.end(&load_balancer, now_us, Fate::Done);
        }
    }

    fn end(&mut self, load_balancer: &str, at_us: u64, fate: Fate) {
        let Some(index) = self.running.remove(load_balancer) else { return };
        if let Some(write) = self.writes.get_mut(index) {
            write.ended_us = at_us.max(write.answered_us);
            if write.fate == Fate::Running {
                write.fate = fate;
            }
        }
    }

    /// Returns the writes so far.
    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(at: u64, status: u16, fate: Fate) -> Write {
        Write {
            load_balancer: "lb".to_owned(),
            pool: Some("pool".to_owned()),
            foreign: false,
            started_us: at,
            answered_us: at + 10,
            ended_us: at + 10,
            status,
            fate,
        }
    }

    #[test]
    fn a_write_lasts_until_its_operation_ends_or_a_later_write() {
        let mut lanes = Lanes::default();
        lanes.wrote(write(0, 200, Fate::Done), true);
        lanes.finish(50, |_| true);
        lanes.wrote(write(60, 429, Fate::Refused), true);
        lanes.wrote(write(100, 201, Fate::Done), true);
        lanes.finish(400, |_| false);
        lanes.wrote(write(500, 200, Fate::Done), false);
        let fates: Vec<(u64, Fate)> =
            lanes.writes().iter().map(|write| (write.ended_us, write.fate)).collect();
        let expected = [(100, Fate::Superseded), (70, Fate::Refused), (400, Fate::Done), (510, Fate::Done)];
        assert_eq!(fates, expected);
    }
}
