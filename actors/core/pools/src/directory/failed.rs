//! Load balancers whose provisioning state stays `Failed`: Azure may not have programmed the members of their pools.
//! One pool of each is written once more after 10, 20, 40 minutes and so on, at most 6 hours apart. A successful write
//! ends the state for the whole load balancer.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Directory, Out};
use model::arm::{LbFacts, Provisioning};
use model::ids::{LbName, PoolId, of_balancer};
use model::machine::Now;

/// Time for which a load balancer must stay failed before one of its pools is written.
const FIRST_DELAY: Duration = Duration::from_secs(600);
/// Time until the next try if no pool of the load balancer may be written.
const RETRY_AFTER: Duration = Duration::from_secs(60);
/// Longest time between two such writes.
const MAX_DELAY: Duration = Duration::from_secs(6 * 3600);

/// The load balancers that were last observed as failed.
#[derive(Default, Debug)]
pub(super) struct FailedBalancers(BTreeMap<LbName, Rewrite>);

/// When a pool of a load balancer is written once more.
#[derive(Debug)]
struct Rewrite {
    at: Now,
    /// Time between the last such write and this one.
    delay: Duration,
    /// Number of pools chosen so far.
    chosen: usize,
    /// Number of pools that could not be written this time.
    refused: usize,
}

impl FailedBalancers {
    /// Updates the state after a GET. A running operation or an unknown state changes nothing.
    pub(super) fn observe(&mut self, now: Now, lb: &LbName, facts: Option<&LbFacts>) {
        let states = facts.map(|facts| {
            let pools = facts.pools.iter().map(|pool| pool.provisioning);
            pools.chain([facts.provisioning]).collect::<Vec<_>>()
        });
        match states {
            Some(states) if states.contains(&Provisioning::Updating) => {}
            Some(states) if states.contains(&Provisioning::Failed) => {
                let first = Rewrite { at: now.plus(FIRST_DELAY), delay: FIRST_DELAY, chosen: 0, refused: 0 };
                self.0.entry(lb.clone()).or_insert(first);
            }
            Some(_) | None => drop(self.0.remove(lb)),
        }
    }

    /// Returns when the next pool is written.
    pub(super) fn deadline(&self) -> Option<Now> {
        self.0.values().map(|rewrite| rewrite.at).min()
    }

    fn due(&self, now: Now) -> Vec<LbName> {
        self.0.iter().filter(|(_, rewrite)| rewrite.at <= now).map(|(lb, _)| lb.clone()).collect()
    }
}

impl Directory {
    /// Returns when this process writes the next pool of a failed load balancer; only the leader does.
    pub(super) fn rewrite_at(&self) -> Option<Now> {
        self.failed.deadline().filter(|_| self.reporting.is_some())
    }

    /// Requests a write of one pool of each failed load balancer that is due.
    pub(super) fn rewrite_failed(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.reporting.is_none() {
            return;
        }
        for lb in self.failed.due(now) {
            self.rewrite_one(now, &lb, 0, out);
        }
    }

    /// Chooses the next pool of a load balancer instead of one that could not be written.
    pub(super) fn on_not_rewritten(&mut self, now: Now, lb: &LbName, out: &mut Vec<Out>) {
        let Some(rewrite) = self.failed.0.get_mut(lb) else { return };
        rewrite.delay = (rewrite.delay / 2).max(FIRST_DELAY);
        let refused = rewrite.refused + 1;
        self.rewrite_one(now, lb, refused, out);
    }

    /// Requests a write of the next pool of a load balancer, after this many that could not be written. If there is no
    /// other, tries again soon.
    fn rewrite_one(&mut self, now: Now, lb: &LbName, refused: usize, out: &mut Vec<Out>) {
        let pools = if self.reporting.is_some() { self.rewritable(lb) } else { Vec::new() };
        let Some(rewrite) = self.failed.0.get_mut(lb) else { return };
        rewrite.refused = refused;
        if refused >= pools.len() {
            rewrite.at = now.plus(RETRY_AFTER);
            return;
        }
        let pool = pools[rewrite.chosen % pools.len()].clone();
        rewrite.chosen += 1;
        rewrite.delay = rewrite.delay.saturating_mul(2).min(MAX_DELAY);
        rewrite.at = now.plus(rewrite.delay);
        out.push(Out::Rewrite(pool));
    }

    /// Returns our failed pools of a load balancer that are neither paused nor held.
    fn rewritable(&self, lb: &LbName) -> Vec<PoolId> {
        let is_failed = |id: &PoolId| {
            let seen = self.balancers.get(lb).and_then(|balancer| balancer.pools.get(&id.pool));
            seen.is_some_and(|seen| seen.facts.provisioning == Provisioning::Failed)
        };
        let may_be = |pool: &super::pool::Pool| {
            pool.assignment().is_some_and(|assignment| !assignment.is_paused() && assignment.held.is_none())
        };
        let pools = of_balancer(&self.pools, lb);
        pools.filter(|(id, pool)| is_failed(id) && may_be(pool)).map(|(id, _)| id.clone()).collect()
    }
}
