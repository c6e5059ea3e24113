//! Rules for each step of a machine, checked by its inputs and outputs.

use std::collections::BTreeSet;
use std::sync::Arc;

use coordination::leader;
use model::attempt::WriteFate;
use model::ids::{AttemptId, Epoch, PoolId, ServiceUid};
use model::leadership::Leadership;
use model::lease::LeaseAnswer;
use model::machine::Now;
use model::operator_request::{Answer, Done, Scope};
use model::report::{EventKind, Report, Subject};
use model::sample::{Metric, PoolState};
use pool_core::route::{Delivery, Output, PoolMessage};
use pools::{directory, queue};
use sources::informer;

use super::{ASSIGNED_US, MAX_RETRIES, POSTS_US, UNTOLD, Watchdog};
use crate::replica::Actor;

impl Watchdog {
    /// Checks one step of a machine by its inputs and outputs.
    ///
    /// # Errors
    /// A violation.
    pub fn on_step(
        &mut self,
        now: u64,
        local: Now,
        process: usize,
        who: &Actor,
        input: Option<&Delivery>,
        outputs: &[Output],
    ) -> Result<(), String> {
        match who {
            Actor::Pool(pool, _) => self.on_pool_step(now, local, process, who, pool, input, outputs),
            Actor::Writer => {
                self.on_policy_step(now, process, input, outputs)?;
                self.on_admin_step(process, input, outputs)?;
                self.on_attempts_ended(now, process, outputs);
                self.on_writer_step(now, process, input, outputs)
            }
            Actor::Leader => self.on_leader_step(now, local, process, input, outputs),
            Actor::Informer => {
                self.on_informer_step(process, input, outputs);
                Ok(())
            }
            Actor::Directory => {
                if let Some(Delivery::Directory(input)) = input {
                    self.within[process].guards.record_input(now, input);
                }
                self.on_release(now, process, input, outputs);
                for output in outputs {
                    if let Output::Directory(directory::Out::Report(report)) = output {
                        self.stops += u64::from(matches!(report.what, EventKind::RemovalsStopped { .. }));
                    }
                    if let Output::Directory(directory::Out::Assign(assignment)) = output {
                        self.within[process].guards.assigns(now, assignment);
                        let given = self.within[process].given.entry(assignment.pool.clone()).or_default();
                        let services: BTreeSet<ServiceUid> = assignment.services.keys().cloned().collect();
                        for gone in given.services.difference(&services) {
                            given.gone.insert(gone.clone(), now);
                        }
                        given.gone.retain(|uid, _| !services.contains(uid));
                        given.services = services;
                    }
                }
                Ok(())
            }
            Actor::Watcher(_) => {
                for output in outputs {
                    if let Output::Watcher(output) = output {
                        self.within[process].guards.watched(now, output);
                    }
                }
                Ok(())
            }
            Actor::AdminState => {
                self.on_nodes_released(now, outputs);
                self.within[process].patches.step(now, input, outputs);
                self.on_admin_state_step(process, input, outputs)
            }
            Actor::Events => self.on_emitter_step(now, process, input, outputs),
            Actor::Discovery
            | Actor::Registry
            | Actor::XdsSource
            | Actor::XdsPort
            | Actor::Pauses
            | Actor::Snapshot
            | Actor::KubernetesPort
            | Actor::ArmPort
            | Actor::Metrics
            | Actor::Host => Ok(()),
        }
    }

    fn on_informer_step(&mut self, process: usize, input: Option<&Delivery>, outputs: &[Output]) {
        if let Some(Delivery::Informer(input)) = input {
            self.within[process].horizon.record_input(input);
            self.on_informer_input(process, input);
        }
        let within = &mut self.within[process];
        for output in outputs {
            if let Output::Informer(informer::Out::Service(uid, Some(fact))) = output {
                within.horizon.record_fact(uid, fact, &self.versions);
                within.guards.record_fact(uid, fact);
            }
        }
    }

    /// Records that the operator releases held removals. A release of everything applies to later leaders as well.
    fn on_release(&mut self, now: u64, process: usize, input: Option<&Delivery>, outputs: &[Output]) {
        for output in outputs {
            let Output::Directory(directory::Out::Answer(_, Answer::Done(Done::Released { pools, .. }))) =
                output
            else {
                continue;
            };
            let pools: Vec<PoolId> = pools.iter().map(|released| released.pool.clone()).collect();
            let everything =
                matches!(input, Some(Delivery::Directory(directory::In::Release(_, Scope::Everything, _))));
            self.within[process].guards.released(now, &pools, everything);
            if everything {
                self.within.iter_mut().for_each(|within| within.guards.released(now, &[], true));
            }
        }
    }

    /// Records that the operator releases nodes, some of which the breaker held.
    fn on_nodes_released(&mut self, now: u64, outputs: &[Output]) {
        for output in outputs {
            if let Output::AdminState(
                nodes::Out::Release(_, nodes)
                | nodes::Out::Answer(_, Answer::Done(Done::Released { nodes, .. })),
            ) = output
            {
                self.release_nodes(now, nodes.iter().map(|name| name.as_str()));
            }
        }
    }

    fn on_leader_step(
        &mut self,
        now: u64,
        local: Now,
        process: usize,
        input: Option<&Delivery>,
        outputs: &[Output],
    ) -> Result<(), String> {
        self.within[process].lease_known.step(now, input, outputs);
        for output in outputs {
            if let Output::Leader(output) = output {
                self.term_begins(now, process, output);
            }
        }
        let Some(identity) = self.within[process].identity.clone() else { return Ok(()) };
        let is_unmatched =
            |output: &Output| matches!(output, Output::Leader(leader::Out::Metric(Metric::UnmatchedAnswer)));
        if let Some(Delivery::Leader(leader::In::Lease(_, LeaseAnswer::Seen(facts)))) = input
            && facts.holder.is_some()
            && !outputs.iter().any(is_unmatched)
        {
            self.within[process].lease_version = Some(Arc::clone(&facts.version.0));
        }
        for output in outputs {
            if let Output::Leader(leader::Out::Leadership(Leadership::Leading { epoch, until })) = output
                && *until > local
            {
                self.tenure.on_leading(now, process, &identity, epoch.0)?;
            }
        }
        Ok(())
    }

    fn on_writer_step(
        &mut self,
        now: u64,
        process: usize,
        input: Option<&Delivery>,
        outputs: &[Output],
    ) -> Result<(), String> {
        self.check_takes(now, process, input, outputs)?;
        let within = &mut self.within[process];
        if let Some(Delivery::Writer(writer::In::Taken(pool, attempt, _))) = input {
            within.takes.remove(&(pool.clone(), *attempt));
        }
        for output in outputs {
            let Output::Writer(output) = output else { continue };
            match output {
                writer::Out::Take(pool, attempt) => {
                    within.takes.insert((pool.clone(), *attempt), now);
                    if within.started_at + POSTS_US < now {
                        self.tenure.may_grant(now, within.identity.as_ref(), pool)?;
                    }
                }
                writer::Out::Finished(pool, attempt, outcome) => match outcome {
                    model::attempt::Outcome::Written { .. } => {
                        if !within.accepted.remove(pool) {
                            return Err(format!("W2: {pool} counts as written without an accepted PUT"));
                        }
                        within.untold.remove(pool);
                        within.given_up.remove(pool);
                    }
                    model::attempt::Outcome::Retriable { eligible_at, .. } => {
                        if let Some(at) = eligible_at {
                            within.eligible.insert(pool.clone(), (*attempt, *at));
                        }
                        let untold = within.untold.entry(pool.clone()).or_default();
                        // Repeated failures of a reported pool are not reported again (Q8).
                        *untold += u32::from(!within.given_up.contains(pool));
                        if *untold > UNTOLD {
                            return Err(format!(
                                "Q6: {untold} attempts of {pool} have failed, and that was not reported"
                            ));
                        }
                    }
                    model::attempt::Outcome::Unchanged { .. }
                    | model::attempt::Outcome::Withheld { .. }
                    | model::attempt::Outcome::NotGranted
                    | model::attempt::Outcome::Stale
                    | model::attempt::Outcome::NotManageable(_)
                    | model::attempt::Outcome::Terminal { .. }
                    | model::attempt::Outcome::Interrupted => {}
                },
                writer::Out::Lane(lane) => within.operations.shown(now, lane),
                writer::Out::Verified(pool, WriteFate::Lost { .. }) => {
                    if self.created_again.get(&pool.lb) > within.put_at.get(pool) {
                        return Err(format!("W2: a lost write of {pool}, whose load balancer was recreated"));
                    }
                }
                writer::Out::Verified(_, WriteFate::Persisted(_) | WriteFate::Overwritten { .. })
                | writer::Out::Observed(..)
                | writer::Out::AdminStates(..)
                | writer::Out::Read { .. }
                | writer::Out::Call(_)
                | writer::Out::Gates { .. }
                | writer::Out::Lease(..)
                | writer::Out::CountLockFailures { .. }
                | writer::Out::ForeignRelease
                | writer::Out::Sent(_)
                | writer::Out::Pace(..)
                | writer::Out::Attempt(..)
                | writer::Out::Answer(..)
                | writer::Out::Report(_)
                | writer::Out::Ended(_)
                | writer::Out::SharedLease(_)
                | writer::Out::Gate(..)
                | writer::Out::Metric(_)
                | writer::Out::Quiet { .. } => {}
            }
        }
        Ok(())
    }

    /// Records an input of a pool: the attempt that ended, and the time before which another try is useless.
    fn on_pool_input(
        &mut self,
        process: usize,
        pool: &PoolId,
        input: Option<&queue::In>,
        outputs: &[Output],
    ) -> Result<(Option<AttemptId>, Option<Now>), String> {
        let within = &mut self.within[process];
        let mut finished = None;
        let mut eligible = None;
        match input {
            Some(queue::In::Finished(attempt, _)) => {
                finished = Some(*attempt);
                within.parked.remove(pool);
                let known = within.eligible.remove(pool).filter(|(of, _)| of == attempt);
                eligible = known.map(|(_, at)| at);
            }
            Some(queue::In::Take(attempt)) => {
                let answers = |output: &&Output| matches!(output, Output::Pool(queue::Out::Taken(of, id, _)) if of == pool && id == attempt);
                if outputs.iter().filter(answers).count() != 1 {
                    return Err(format!("Q3: {pool} does not answer the Take {attempt}"));
                }
            }
            Some(queue::In::Assigned(assignment)) => {
                within.horizon.assigned(assignment);
                let of: (Epoch, Vec<ServiceUid>) =
                    (assignment.epoch, assignment.services.keys().cloned().collect());
                if within.assigned.get(pool) != Some(&of) {
                    within.parked.remove(pool);
                    within.assigned.insert(pool.clone(), of);
                }
            }
            Some(
                queue::In::Observed(_)
                | queue::In::Attempt(_)
                | queue::In::Rewrite
                | queue::In::Pace(_)
                | queue::In::Verified(_),
            )
            | None => {}
        }
        Ok((finished, eligible))
    }

    #[expect(clippy::too_many_arguments, reason = "all of a step")]
    fn on_pool_step(
        &mut self,
        now: u64,
        local: Now,
        process: usize,
        who: &Actor,
        pool: &PoolId,
        input: Option<&Delivery>,
        outputs: &[Output],
    ) -> Result<(), String> {
        let before = self.within[process].states.get(who).copied();
        let input = match input {
            Some(Delivery::Pool(_, PoolMessage::In(input))) => Some(input),
            Some(_) | None => None,
        };
        if let Some(queue::In::Assigned(assignment)) = input.filter(|_| self.guarded) {
            self.within[process].guards.assigned(now, assignment)?;
        }
        let (finished, eligible) = self.on_pool_input(process, pool, input, outputs)?;
        let within = &mut self.within[process];
        for output in outputs {
            let Output::Pool(output) = output else { continue };
            match output {
                queue::Out::Taken(_, attempt, Some(_)) => {
                    within.horizon.taken(pool, *attempt);
                    if let Some(until) = within.parked.get(pool).filter(|until| **until > local) {
                        return Err(format!(
                            "Q5: {pool} takes part at {local:?} and is parked until {until:?}"
                        ));
                    }
                }
                // A waiting write continues without its pool, only for its admin part, with the same id.
                queue::Out::Taken(_, attempt, None) => within.horizon.left(*attempt),
                queue::Out::Report(report) => {
                    if let (EventKind::Retrying { .. }, Some(until)) = (&report.what, eligible) {
                        within.parked.insert(pool.clone(), until);
                    }
                }
                queue::Out::Metric(Metric::PoolState { from, to }) => {
                    if within.states.get(who) != from.as_ref() {
                        return Err(format!(
                            "E2: {pool} changes from {from:?} and was counted as {before:?}"
                        ));
                    }
                    match to {
                        Some(to) => within.states.insert(who.clone(), *to),
                        None => within.states.remove(who),
                    };
                }
                queue::Out::Quarantined(_, broken) => return Err(format!("A4: {pool}: {broken}")),
                queue::Out::Ended(_)
                | queue::Out::Answer(..)
                | queue::Out::Due(..)
                | queue::Out::Withdraw(_)
                | queue::Out::Retired(_)
                | queue::Out::Members(..)
                | queue::Out::Missing(_)
                | queue::Out::RewriteSkipped(_)
                | queue::Out::View(_)
                | queue::Out::Gone(_)
                | queue::Out::Metric(_) => {}
            }
        }
        let posts = |output: &Output| matches!(output, Output::Pool(queue::Out::Due(..)));
        if let Some(until) = within.parked.get(pool).filter(|until| **until > local)
            && finished.is_none()
            && outputs.iter().any(posts)
        {
            return Err(format!("Q5: {pool} is due at {local:?} and is parked until {until:?}"));
        }
        let is_due = outputs.iter().any(posts);
        let state = within.states.get(who).copied();
        if is_due && matches!(state, Some(PoolState::Paused | PoolState::Parked)) {
            return Err(format!("Q5, D1: {pool} is due while it is {state:?}"));
        }
        for output in outputs {
            if let Output::Pool(queue::Out::Report(report)) = output {
                self.on_report(now, process, who, pool, before, finished, report)?;
            }
        }
        Ok(())
    }

    /// Checks E1: one event of each reason per Service and attempt, only for an outcome, and none about a Service
    /// that no longer belongs to the pool (Q4).
    #[expect(clippy::too_many_arguments, reason = "all of a report")]
    fn on_report(
        &mut self,
        now: u64,
        process: usize,
        who: &Actor,
        pool: &PoolId,
        before: Option<PoolState>,
        finished: Option<AttemptId>,
        report: &Report,
    ) -> Result<(), String> {
        self.reports += 1;
        let within = &mut self.within[process];
        let reason = match &report.what {
            EventKind::Updated { .. } => "updated",
            EventKind::Retrying { retry, .. } => {
                within.untold.remove(pool);
                if *retry > MAX_RETRIES {
                    return Err(format!("Q6: retry {retry} of {pool}"));
                }
                "retrying"
            }
            EventKind::FailedTerminal { .. } | EventKind::FailedExhausted { .. } => {
                within.untold.remove(pool);
                within.given_up.insert(pool.clone());
                "failed"
            }
            EventKind::NotManageable { attempted: true, .. } => {
                return self.check_unmanageable(now, process, pool, finished);
            }
            EventKind::NotManageable { attempted: false, .. }
            | EventKind::Shared { .. }
            | EventKind::Blocked { .. }
            | EventKind::LeaseHeld { .. }
            | EventKind::Contested { .. }
            | EventKind::WritesLost { .. }
            | EventKind::Quarantined { .. }
            | EventKind::Held { .. }
            | EventKind::RemovalsStopped { .. }
            | EventKind::DataError { .. }
            | EventKind::Undecodable { .. }
            | EventKind::AdminDown { .. }
            | EventKind::AdminRestored { .. }
            | EventKind::AdminFailed { .. }
            | EventKind::AdminHeld { .. }
            | EventKind::SourceFailing { .. }
            | EventKind::SourceRecovered { .. }
            | EventKind::AdminForeign { .. } => return Ok(()),
        };
        let Some(attempt) = finished.filter(|_| before == Some(PoolState::Attempting)) else {
            return Err(format!(
                "E1: {pool} reports {reason} while it is {before:?}, outcome of {finished:?}"
            ));
        };
        for subject in &report.subjects {
            let Subject::Service(service) = subject else { continue };
            if !within.reported.insert((who.clone(), attempt, service.uid.clone(), reason)) {
                return Err(format!("E1: {pool} reports {reason} twice for attempt {attempt}"));
            }
            let gone = within.given.get(pool).and_then(|given| given.gone.get(&service.uid));
            if gone.is_some_and(|gone| gone + ASSIGNED_US < now) {
                return Err(format!("Q4: {pool} reports {reason} on {}, deleted at {gone:?}", service.key));
            }
        }
        Ok(())
    }
}
