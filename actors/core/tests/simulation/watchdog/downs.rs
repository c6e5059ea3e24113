//! The order of lanes (W1), by the messages of the writer: every part is answered, and a Down waits only for urgent
//! parts.

use std::collections::BTreeMap;

use model::arm::ArmRequest;
use model::attempt::{MembershipUrgency, Outcome};
use model::draining::AdminUrgency;
use model::ids::{AttemptId, LbName, PoolId};
use pool_core::route::{Delivery, Output};

use super::Watchdog;

/// One in this many grants of a lane goes to the part that has waited longest (W1).
const FAIR_GRANT: u64 = 4;

/// Admin states that the writer of a process was requested to write, and the grants since then.
#[derive(Default)]
pub struct Downs {
    /// Intended urgency of the last request, even if the writer receives another one.
    meant: BTreeMap<PoolId, AdminUrgency>,
    due: BTreeMap<PoolId, Waiting>,
    urgencies: BTreeMap<PoolId, MembershipUrgency>,
    /// Running attempts of pools, and whether each includes an admin part.
    open: BTreeMap<PoolId, (AttemptId, bool)>,
}

/// A waiting admin part.
struct Waiting {
    generation: u64,
    /// True if it may have been granted already.
    granted: bool,
    /// Grants of its lane since then: of less urgent parts of other pools, and of all others.
    passed: u64,
    others: u64,
}

impl Downs {
    fn on_input(&mut self, input: &writer::In) {
        if let writer::In::AdminDue(pool, Some(due)) = input {
            let granted = self.open.contains_key(pool);
            let waiting = Waiting { generation: due.generation, granted, passed: 0, others: 0 };
            let known = self.due.entry(pool.clone()).or_insert(waiting);
            known.generation = due.generation;
        } else if let writer::In::AdminDue(pool, None) = input {
            self.due.remove(pool);
        } else if let writer::In::MembershipDue(pool, due) = input {
            self.urgencies.insert(pool.clone(), due.urgency);
        }
    }

    fn is_down(&self, pool: &PoolId) -> bool {
        self.due.contains_key(pool) && self.meant.get(pool) == Some(&AdminUrgency::Down)
    }

    /// Records a grant of a lane; checks whether a Down has waited for less urgent parts for too long.
    fn on_grant(&mut self, lb: &LbName, granted: &PoolId, is_urgent: bool) -> Result<(), String> {
        let (meant, open) = (&self.meant, &self.open);
        for (pool, down) in self.due.iter_mut().filter(|(pool, _)| pool.lb == *lb && *pool != granted) {
            let waits =
                meant.get(pool) == Some(&AdminUrgency::Down) && !down.granted && !open.contains_key(pool);
            if !waits {
                continue;
            }
            if is_urgent {
                down.others += 1;
            } else {
                down.passed += 1;
            }
            if down.passed > 1 + down.others / (FAIR_GRANT - 1) {
                return Err(format!(
                    "W1: {granted} is granted before the Down of {pool}, which {} less urgent ones have passed",
                    down.passed
                ));
            }
        }
        Ok(())
    }

    fn on_take(&mut self, pool: &PoolId, attempt: AttemptId) -> Result<(), String> {
        let is_urgent = self.is_down(pool) || self.urgencies.get(pool) == Some(&MembershipUrgency::Revive);
        self.on_grant(&pool.lb, pool, is_urgent)?;
        self.open.insert(pool.clone(), (attempt, self.due.contains_key(pool)));
        if let Some(waiting) = self.due.get_mut(pool) {
            waiting.granted = true;
        }
        Ok(())
    }

    fn on_read(&mut self, pool: &PoolId) -> Result<(), String> {
        if let Some(waiting) = self.due.get_mut(pool)
            && !self.open.contains_key(pool)
        {
            waiting.granted = true;
            self.on_grant(&pool.lb, pool, true)?;
        }
        Ok(())
    }

    fn on_finished(
        &mut self,
        pool: &PoolId,
        attempt: AttemptId,
        outcome: &Outcome,
        outputs: &[Output],
    ) -> Result<(), String> {
        let Some((_, with_admin)) = self.open.remove(pool).filter(|(open, _)| *open == attempt) else {
            return Err(format!("N3: {pool} gets the unrequested result {attempt:?}"));
        };
        // The answer, or the PUT that continues only for the admin part.
        let goes_on = |output: &Output| {
            if let Output::Writer(writer::Out::AdminStates(of, states)) = output {
                of == pool && states.ended.is_some()
            } else if let Output::Writer(writer::Out::Call(call)) = output {
                matches!(&call.request, ArmRequest::PutPool { pool: of, .. } if of == pool)
            } else {
                false
            }
        };
        if with_admin && answers_both(outcome) && !outputs.iter().any(goes_on) {
            return Err(format!("W1: {pool} is written without an answer to its admin part"));
        }
        Ok(())
    }

    /// Records that the process has ended.
    pub fn end(&mut self) {
        *self = Downs::default();
    }
}

impl Watchdog {
    /// Records the intended urgency of a request from the AdminState machine to its writer.
    pub(super) fn record_admin_request(&mut self, process: usize, output: &nodes::Out) {
        let meant = &mut self.within[process].downs.meant;
        if let nodes::Out::Due(pool, Some(due)) = output {
            meant.insert(pool.clone(), due.urgency);
        } else if let nodes::Out::Due(pool, None) = output {
            meant.remove(pool);
        }
    }

    /// Checks a step of a writer against the admin parts that it has received (W1, N3).
    pub(super) fn on_admin_step(
        &mut self,
        process: usize,
        input: Option<&Delivery>,
        outputs: &[Output],
    ) -> Result<(), String> {
        let default_profile = self.guarded;
        let downs = &mut self.within[process].downs;
        if let Some(Delivery::Writer(input)) = input {
            downs.on_input(input);
        }
        for output in outputs {
            let Output::Writer(output) = output else { continue };
            let mut passed = Ok(());
            if let writer::Out::Take(pool, attempt) = output {
                passed = downs.on_take(pool, *attempt);
            } else if let writer::Out::Call(call) = output {
                if let ArmRequest::GetPool(pool) = &call.request {
                    passed = downs.on_read(pool);
                }
            } else if let writer::Out::AdminStates(pool, states) = output
                && let Some(end) = &states.ended
            {
                downs.due.retain(|of, waiting| of != pool || waiting.generation > end.generation);
            } else if let writer::Out::Finished(pool, attempt, outcome) = output {
                downs.on_finished(pool, *attempt, outcome, outputs)?;
            }
            // In upstream's profile, a part waits for gates without a visible call.
            if default_profile {
                passed?;
            }
        }
        Ok(())
    }
}

/// Returns whether an outcome ends the whole write, so that its admin part must be answered with it.
fn answers_both(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Written { .. } | Outcome::Stale | Outcome::Retriable { .. } | Outcome::Terminal { .. } => {
            true
        }
        Outcome::Unchanged { .. }
        | Outcome::Withheld { .. }
        | Outcome::NotGranted
        | Outcome::NotManageable(_)
        | Outcome::Interrupted => false,
    }
}
