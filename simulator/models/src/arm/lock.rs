//! The lock of a load balancer. Only one write runs at a time; a later one is refused or supersedes it.

use super::ArmModel;
use super::answer::Answer;
use super::operation::{self, Effect, End, Operation, OperationName, Running};
use super::random::Guid;
use super::resource_type::Provider;
use super::settings::{ConcurrentWrite, Latency, OperationFailure};
use super::store::{LastWrite, LoadBalancer};
use super::write::{PlannedFailure, parent_not_found};

/// An operation that is about to start.
pub(super) struct Start<'a> {
    pub(super) load_balancer: &'a str,
    pub(super) id: Guid,
    pub(super) running: Running,
    pub(super) ends_at: u64,
    pub(super) planned_failure: PlannedFailure,
}

impl ArmModel {
    /// Takes the load balancer for a later write, or refuses it.
    pub(super) fn claim(
        &mut self,
        lb_key: &str,
        later: (OperationName, Guid),
        now: u64,
    ) -> Result<(), Answer> {
        let Some(lb) = self.balancers.get(lb_key) else {
            return Err(parent_not_found(lb_key));
        };
        let holder = match &lb.running {
            Some(running) => (running.name, running.id),
            None if lb.busy_until > now => (OperationName::PutPool, self.identities.guid()),
            None => return Ok(()),
        };
        let supersedes = match self.settings.concurrent_write {
            ConcurrentWrite::Refuse => false,
            ConcurrentWrite::Supersede => true,
            ConcurrentWrite::Mixed { supersede } => self.outcomes.chance(supersede),
        };
        if supersedes {
            self.supersede(lb_key, later);
            return Ok(());
        }
        self.journal.counters.refused_by_lock += 1;
        let seconds = self.settings.lock_retry_after_s;
        let answer = Answer::locked(holder.0.text(), holder.1, &lb.id, seconds);
        Err(if self.settings.lock_retry_after_header {
            answer.with("Retry-After", seconds.to_string())
        } else {
            answer
        })
    }

    /// Cancels the operation on the load balancer in favour of a later one.
    pub(super) fn supersede(&mut self, lb_key: &str, later: (OperationName, Guid)) {
        let Some(lb) = self.balancers.get_mut(lb_key) else {
            return;
        };
        if let Some(running) = lb.running.take() {
            self.journal.counters.superseded += 1;
            self.operations.end_early(running.id, operation::superseded((running.name, running.id), later));
            lb.take_effect(running.pool.as_deref(), running.on_abort);
            self.follow_references();
        }
    }

    /// Ends the operation on a load balancer.
    pub(super) fn complete(&mut self, lb_key: &str, id: Guid, end: &End) {
        let Some(lb) = self.balancers.get_mut(lb_key) else {
            return;
        };
        let Some(running) = lb.running.take_if(|running| running.id == id) else {
            return;
        };
        // In recordings a pool operation changes the etag again when it ends; one on the load balancer does not.
        if self.settings.etag_changes_at_end && running.pool.is_some() {
            lb.etag = self.identities.guid();
        }
        let (effect, last_write) = match end {
            End::Succeeded => (running.on_success, LastWrite::Succeeded),
            End::Failed { .. } | End::Canceled { .. } => (running.on_abort, LastWrite::Failed),
        };
        lb.last_write = last_write;
        lb.take_effect(running.pool.as_deref(), effect);
        if let Some(pool) = running.pool.and_then(|pool| lb.pools.get_mut(&pool)) {
            pool.last_write = last_write;
        }
        if running.name == OperationName::DeleteLoadBalancer && *end == End::Succeeded {
            self.vanish(lb_key);
        }
        self.follow_references();
    }

    pub(super) fn operation_end(&mut self, answered_at: u64, duration: Latency) -> u64 {
        answered_at.saturating_add(duration.draw(&mut self.latencies).max(1))
    }

    /// Starts an operation on the load balancer itself.
    pub(super) fn start_on_load_balancer(&mut self, lb_key: &str, id: Guid, ends_at: u64, now: u64) {
        let name = OperationName::PutLoadBalancer;
        let running =
            Running { id, name, pool: None, on_success: Effect::Nothing, on_abort: Effect::Nothing };
        self.start(Start { load_balancer: lb_key, id, running, ends_at, planned_failure: None }, now);
    }

    /// Returns the end of an operation, and counts unsuccessful ends.
    pub(super) fn planned_end(&mut self, planned_failure: PlannedFailure) -> End {
        self.journal.counters.planned_failures += u64::from(planned_failure.is_some());
        match planned_failure {
            None => End::Succeeded,
            Some((OperationFailure::Failed, code, message)) => End::Failed { code, message },
            Some((OperationFailure::Canceled, code, message)) => End::Canceled { code, message },
        }
    }

    pub(super) fn start(&mut self, start: Start, now: u64) {
        let planned = self.planned_end(start.planned_failure);
        let operation = Operation {
            owner: start.load_balancer.to_owned(),
            provider: Provider::Network,
            ends_at: start.ends_at,
            planned,
            ended: None,
        };
        self.operations.start(start.id, operation, now);
        if let Some(lb) = self.balancers.get_mut(start.load_balancer) {
            lb.running = Some(start.running);
        }
    }
}

impl LoadBalancer {
    fn take_effect(&mut self, pool: Option<&str>, effect: Effect) {
        match (effect, pool) {
            (Effect::Nothing, _) | (Effect::Become(_) | Effect::Vanish, None) => {}
            (Effect::Become(content), Some(pool)) => {
                if let Some(pool) = self.pools.get_mut(pool) {
                    pool.content = *content;
                }
            }
            (Effect::Vanish, Some(pool)) => {
                self.pools.remove(pool);
            }
            (Effect::Replace(lb_content), _) => self.set_content(*lb_content),
        }
    }
}
