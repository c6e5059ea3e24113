//! Q4: a pool is reported as not manageable because of its rules only after its load balancer has been read again.

use std::collections::BTreeMap;

use model::attempt::Outcome;
use model::error::NotManageable;
use model::ids::{AttemptId, PoolId};
use pool_core::route::Output;

use super::Watchdog;

/// The attempts of one process that found rules unknown to discovery, by pool.
#[derive(Default)]
pub(super) struct Doubts(BTreeMap<PoolId, Doubt>);

/// Findings of attempts since the pool was last written, or found in sync.
struct Doubt {
    since: u64,
    first: AttemptId,
    last: AttemptId,
}

impl Doubts {
    /// Records the end of an attempt, by the output of the writer.
    fn ends(&mut self, now: u64, pool: &PoolId, attempt: AttemptId, outcome: &Outcome) {
        if let Outcome::NotManageable(NotManageable::NoRule | NotManageable::ForeignRule { .. }) = outcome {
            let doubt = Doubt { since: now, first: attempt, last: attempt };
            self.0.entry(pool.clone()).or_insert(doubt).last = attempt;
        } else if matches!(outcome, Outcome::Written { .. } | Outcome::Unchanged { .. }) {
            self.0.remove(pool);
        }
    }
}

impl Watchdog {
    /// Records how attempts ended.
    pub(super) fn on_attempts_ended(&mut self, now: u64, process: usize, outputs: &[Output]) {
        for output in outputs {
            if let Output::Writer(writer::Out::Finished(pool, attempt, outcome)) = output {
                self.within[process].doubts.ends(now, pool, *attempt, outcome);
            }
        }
    }

    /// Checks a report of a pool that an attempt could not manage.
    ///
    /// # Errors
    /// The load balancer was not read since an attempt first found other rules.
    pub(super) fn check_unmanageable(
        &self,
        now: u64,
        process: usize,
        pool: &PoolId,
        finished: Option<AttemptId>,
    ) -> Result<(), String> {
        let within = &self.within[process];
        let Some(doubt) = within.doubts.0.get(pool).filter(|doubt| finished == Some(doubt.last)) else {
            return Ok(());
        };
        let is_read = within.observations.has_read(pool.lb.as_str(), doubt.since, now);
        if doubt.first == doubt.last || !is_read {
            return Err(format!(
                "Q4: {pool} is reported as not manageable, and {} was not read since {}",
                pool.lb, doubt.since
            ));
        }
        Ok(())
    }
}
