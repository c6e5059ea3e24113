//! Admin states (chapter 8) and the order of lanes as far as it is seen from outside (W1): what a PUT may do to them,
//! who is answered, and whom a Down may wait for.

use std::collections::{BTreeMap, BTreeSet};

use pool_core::arm::{ArmRequest, Backend};
use pool_core::ids::{AttemptId, LbName, PoolId};
use pool_core::queue::{Class, Outcome};
use pool_core::route::{Delivery, Said};
use pool_core::writer::{self, AdminDue, AdminUrgency, Draining};
use serde_json::Value;
use simulator_models::arm::ArmModel;

use super::puts::ADDRESSES;
use super::{Put, Watchdog};
use crate::admin::EXCLUDED;
use crate::decode::{items, text};

/// How long after a node begins or ceases to drain a write that was begun before may not know it.
const DRAINING_NOTICED_US: u64 = 60_000_000;
/// Of so many grants of a lane one goes to what has waited longest (W1).
const FAIR_GRANT: u64 = 4;

/// What the writer of a process was asked about admin states, and what it granted meanwhile.
#[derive(Default)]
pub struct Downs {
    /// How urgent what was asked last is, whatever reaches the writer.
    meant: BTreeMap<PoolId, AdminUrgency>,
    due: BTreeMap<PoolId, Waiting>,
    classes: BTreeMap<PoolId, Class>,
    /// The attempts that pools were asked for and that have not ended, and whether an admin part goes with them.
    open: BTreeMap<PoolId, (AttemptId, bool)>,
}

/// An admin part that waits.
struct Waiting {
    generation: u64,
    /// Whether it may have been granted already.
    granted: bool,
    /// Grants of its lane since: of less urgent parts of other pools, and of all others.
    passed: u64,
    others: u64,
}

impl Downs {
    fn on_input(&mut self, input: &writer::In) {
        if let writer::In::AdminDue(pool, due) = input {
            let granted = self.open.contains_key(pool);
            let waiting = Waiting { generation: due.generation, granted, passed: 0, others: 0 };
            let known = self.due.entry(pool.clone()).or_insert(waiting);
            known.generation = due.generation;
        } else if let writer::In::Due(pool, due) = input {
            self.classes.insert(pool.clone(), due.class);
        }
    }

    fn is_down(&self, pool: &PoolId) -> bool {
        self.due.contains_key(pool) && self.meant.get(pool) == Some(&AdminUrgency::Down)
    }

    /// A lane is granted: whether a Down has waited for less urgent parts for too long.
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
        let is_urgent = self.is_down(pool) || self.classes.get(pool) == Some(&Class::Revive);
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
        said: &[Said],
    ) -> Result<(), String> {
        let Some((_, with_admin)) = self.open.remove(pool).filter(|(open, _)| *open == attempt) else {
            return Err(format!("N3: {pool} is told of {attempt:?}, for which it was not asked"));
        };
        // The answer, or the PUT that goes on for the admin part alone.
        let goes_on = |said: &Said| {
            if let Said::Writer(writer::Out::AdminFinished { pool: of, .. }) = said {
                of == pool
            } else if let Said::Writer(writer::Out::Call(call)) = said {
                matches!(&call.request, ArmRequest::PutPool { pool: of, .. } if of == pool)
            } else {
                false
            }
        };
        if with_admin && answers_both(outcome) && !said.iter().any(goes_on) {
            return Err(format!("W1: {pool} is written, and its admin part is not answered"));
        }
        Ok(())
    }

    /// The process is gone.
    pub fn end(&mut self) {
        *self = Downs::default();
    }
}

impl Watchdog {
    /// The draining set from now on.
    pub fn note_draining(&mut self, now: u64, draining: &Draining) {
        let texts = |backend: &Backend| backend.to_string();
        let addresses: BTreeSet<String> = draining.addresses.keys().map(texts).collect();
        for gone in self.draining.keys().filter(|known| !addresses.contains(*known)) {
            self.drained_until.insert(gone.clone(), now);
        }
        self.draining.retain(|address, _| addresses.contains(address));
        for address in addresses {
            self.draining.entry(address).or_insert(now);
        }
        self.restorable = draining.restorable.iter().map(texts).collect();
    }

    /// The writer of a process is asked for an admin state.
    pub fn asks_for_admin(&mut self, process: usize, pool: &PoolId, due: &AdminDue) {
        self.within[process].downs.meant.insert(pool.clone(), due.urgency);
    }

    /// Whether no pool has brought a level to the attempt of a PUT: then it may change admin states and nothing else.
    pub(super) fn is_admin_only(&self, put: &Put<'_>) -> bool {
        !self.within[put.process].horizon.knows(put.attempt)
    }

    /// N1-N4: an address on a draining node is Down after each PUT, whoever asked for it (W1); no other address
    /// goes Down; only a Down of ours ends; and where no pool has brought a level nothing else changes (N3).
    pub(super) fn judge_admin(&self, now: u64, put: &Put<'_>) -> Result<(), String> {
        let before: BTreeMap<&str, &str> = states(put.base);
        let is_new = self.within[put.process].started_at + DRAINING_NOTICED_US >= now;
        for (ip, state) in states(put.body) {
            let pool = put.pool;
            let drains = self.draining.get(ip).is_some_and(|since| since + DRAINING_NOTICED_US < now);
            if drains && state != DOWN && !is_new {
                return Err(format!("N4: {ip} is on a draining node and is {state:?} in a PUT of {pool}"));
            }
            let was_down = before.get(ip) == Some(&DOWN);
            let drained = self.drained_until.get(ip).is_some_and(|at| now < at + DRAINING_NOTICED_US);
            if state == DOWN && !was_down && !self.draining.contains_key(ip) && !drained {
                return Err(format!("N4: {ip} of {pool} goes Down, and does not drain"));
            }
            if was_down && state != DOWN && !self.restorable.contains(ip) {
                return Err(format!("N4: the Down of {ip} in {pool} is not ours to end"));
            }
        }
        if self.is_admin_only(put) {
            if stripped(put.base) != stripped(put.body) {
                return Err(format!("N3: a PUT of {} for its admin states changes more", put.pool));
            }
            if put.pool.pool.as_str() == EXCLUDED {
                return Err(format!("N2: a PUT of {}, which is left out", put.pool));
            }
        }
        Ok(())
    }

    /// Whether a PUT may go without the shared Lease: where that is allowed, a Down alone, with the entity tag of a
    /// pool at rest (W7).
    pub(super) fn may_bypass(&self, put: &Put<'_>) -> bool {
        let before = states(put.base);
        let downs = states(put.body)
            .into_iter()
            .filter(|(ip, state)| *state == DOWN && before.get(ip) != Some(&DOWN));
        self.bypass
            && states(put.body).keys().eq(before.keys())
            && downs.count() > 0
            && put.if_match.is_some()
            && put.base["properties"]["provisioningState"] == "Succeeded"
    }

    /// What a PUT does to admin states, in words.
    pub(super) fn admin_changes(&self, put: &Put<'_>) -> String {
        let before = states(put.base);
        let mut after = states(put.body);
        after.retain(|ip, state| before.get(ip) != Some(state));
        let (pool, state) = (put.pool, text(&put.base["properties"]["provisioningState"]));
        format!("{pool} is {state}, admin states alone: {}, {after:?}", self.is_admin_only(put))
    }

    /// W1, N3: judges a step of a writer by the admin parts that it was told of.
    pub(super) fn on_admin_step(
        &mut self,
        process: usize,
        input: Option<&Delivery>,
        said: &[Said],
    ) -> Result<(), String> {
        let default_profile = self.guarded;
        let downs = &mut self.within[process].downs;
        if let Some(Delivery::Writer(input)) = input {
            downs.on_input(input);
        }
        for word in said {
            let Said::Writer(word) = word else { continue };
            let mut passed = Ok(());
            if let writer::Out::Take(pool, attempt) = word {
                passed = downs.on_take(pool, *attempt);
            } else if let writer::Out::Call(call) = word {
                if let ArmRequest::GetPool(pool) = &call.request {
                    passed = downs.on_read(pool);
                }
            } else if let writer::Out::AdminFinished { pool, generation, .. } = word {
                downs.due.retain(|of, waiting| of != pool || waiting.generation > *generation);
            } else if let writer::Out::Finished(pool, attempt, outcome) = word {
                downs.on_finished(pool, *attempt, outcome, said)?;
            }
            // In upstream's profile a part waits for gates without a call that could be seen.
            if default_profile {
                passed?;
            }
        }
        Ok(())
    }

    /// N2, N4: when nothing happens any more, every address that drains is Down, and no Down of ours is left.
    ///
    /// # Errors
    /// The first that is not so.
    pub fn downs_at_rest(&self, arm: &ArmModel) -> Result<(), String> {
        for lb in arm.load_balancers() {
            for name in arm.pools(lb).filter(|name| *name != EXCLUDED) {
                let Some(pool) = arm.pool_json(lb, name) else { continue };
                for (ip, state) in states(&pool) {
                    let drains = self.draining.contains_key(ip);
                    if drains && state != DOWN {
                        return Err(format!(
                            "N2: {ip} in {lb}/{name} is on a draining node and is {state:?}"
                        ));
                    }
                    if !drains && state == DOWN && self.restorable.contains(ip) {
                        return Err(format!("N4: {ip} in {lb}/{name} is still Down"));
                    }
                }
            }
        }
        Ok(())
    }
}

const DOWN: &str = "Down";

/// Whether an outcome ends the whole write, so that its admin part must be answered with it.
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

/// The admin state of each address of a pool.
fn states(pool: &Value) -> BTreeMap<&str, &str> {
    let entries = items(&pool["properties"][ADDRESSES]).iter();
    entries
        .map(|entry| (text(&entry["properties"]["ipAddress"]), text(&entry["properties"]["adminState"])))
        .collect()
}

/// A pool without the admin states of its addresses.
fn stripped(pool: &Value) -> Value {
    let mut pool = pool.clone();
    if let Some(entries) = pool["properties"][ADDRESSES].as_array_mut() {
        for entry in entries {
            if let Some(properties) = entry["properties"].as_object_mut() {
                properties.shift_remove("adminState");
            }
        }
    }
    pool
}
