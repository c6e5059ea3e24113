//! Pauses (G6), judged by the true state of our ConfigMap: the answers to operators, and that nothing is written in a
//! paused scope.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use coordination::leader;
use model::arm::ArmRequest;
use model::ids::{Epoch, PoolId};
use model::lease::LeaseRequest;
use model::operator_request::{Answer, Done, RequestId, Scope};
use model::policy::OperatorPolicy;
use pool_core::route::{Delivery, Output};

use super::Watchdog;

/// Time for which a term that has begun before a pause may write in it: a read each 15 s, some of which fail, and edges
/// that stall.
const NOTICED_US: u64 = 150_000_000;
/// Time limit for an answer to the operator: 10 s of the process's clock, and its edges.
const ANSWERED_US: u64 = 40_000_000;

/// Policies that a process has read.
#[derive(Default)]
pub struct PolicyInputs {
    policy: Option<(Option<Epoch>, Arc<OperatorPolicy>)>,
    /// Start of its terms.
    terms: BTreeMap<Epoch, u64>,
}

/// The recorded pauses, and operators who wait for an answer.
#[derive(Default)]
pub struct RecordedPauses {
    /// Start of each pause.
    since: BTreeMap<Scope, u64>,
    /// Last time at which each scope was paused, and last time at which it was not.
    last: BTreeMap<Scope, (Option<u64>, Option<u64>)>,
    open: BTreeMap<(usize, RequestId), (Scope, OperatorAct, u64)>,
    /// Number of times operators were informed of a pause.
    pub paused: u64,
    /// Number of times operators were informed of a release.
    pub released: u64,
}

/// Request of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperatorAct {
    /// Start a pause.
    Pause,
    /// End a pause.
    Resume,
    /// Release held removals.
    Release,
}

impl Watchdog {
    /// Records that the operator sends a request.
    pub fn on_request(&mut self, now: u64, process: usize, id: RequestId, scope: Scope, act: OperatorAct) {
        let last = self.recorded.last.entry(scope.clone()).or_default();
        if self.recorded.since.contains_key(&scope) {
            last.0 = Some(now);
        } else {
            last.1 = Some(now);
        }
        self.recorded.open.insert((process, id), (scope, act, now));
    }

    /// Records the current pauses.
    pub fn record_pauses(&mut self, now: u64, paused: &BTreeSet<Scope>) {
        let recorded = &mut self.recorded;
        for (scope, _) in recorded.since.extract_if(.., |scope, _| !paused.contains(scope)) {
            recorded.last.entry(scope).or_default().1 = Some(now);
        }
        for scope in paused {
            recorded.since.entry(scope.clone()).or_insert(now);
            recorded.last.entry(scope.clone()).or_default().0 = Some(now);
        }
    }

    /// Checks G6: an answer to the operator was true at some time since the request.
    ///
    /// # Errors
    ///
    /// A wrong answer.
    pub fn answered(
        &mut self,
        now: u64,
        process: usize,
        id: RequestId,
        answer: &Answer,
    ) -> Result<(), String> {
        let Some((scope, act, from)) = self.recorded.open.remove(&(process, id)) else {
            return Err(format!("A3: {id:?} of process {process} is answered without an open request"));
        };
        if now > from + ANSWERED_US && self.within[process].started_at < from {
            return Err(format!(
                "H3: {id:?} of process {process} was sent at {from} and is answered too late"
            ));
        }
        let (recorded, free) = self.recorded.last.get(&scope).copied().unwrap_or_default();
        let recorded = recorded.max(self.recorded.since.contains_key(&scope).then_some(now));
        let free = free.max((!self.recorded.since.contains_key(&scope)).then_some(now));
        let holds = match answer {
            Answer::Done(Done::Paused(_)) => act == OperatorAct::Pause && recorded >= Some(from),
            Answer::Done(Done::Resumed { .. }) => act == OperatorAct::Resume && free >= Some(from),
            // Only a leader releases anything.
            Answer::Done(Done::Released { .. }) => {
                act == OperatorAct::Release && self.on_post(now, process).is_ok()
            }
            Answer::Done(Done::Attempting | Done::Comparing(_) | Done::GatesOpened(_)) => false,
            Answer::Refused(_) => true,
        };
        self.recorded.paused += u64::from(matches!(answer, Answer::Done(Done::Paused(_))));
        self.recorded.released += u64::from(
            matches!(answer, Answer::Done(Done::Released { pools, nodes }) if !pools.is_empty() || !nodes.is_empty()),
        );
        let wrong = || format!("G6, H3: {act:?} of {scope:?}: {answer:?}, which was never true since {from}");
        if holds { Ok(()) } else { Err(wrong()) }
    }

    /// Records that a term starts in a process.
    pub(super) fn term_begins(&mut self, now: u64, process: usize, output: &leader::Out) {
        if let leader::Out::Confirm { epoch, .. } = output {
            self.within[process].policy_inputs.terms.entry(*epoch).or_insert(now);
        }
    }

    /// Checks G6: a writer starts no PUT and takes no shared Lease against the policy that it has received. Nor does
    /// it in a scope that was paused before its term began, or long ago.
    pub(super) fn on_policy_step(
        &mut self,
        now: u64,
        process: usize,
        input: Option<&Delivery>,
        outputs: &[Output],
    ) -> Result<(), String> {
        let inputs = &mut self.within[process].policy_inputs;
        if let Some(Delivery::Writer(writer::In::OperatorPolicy { term, policy })) = input {
            inputs.policy = Some((*term, Arc::clone(policy)));
        }
        let observes = inputs.policy.as_ref().is_none_or(|(_, policy)| policy.only_observes());
        for output in outputs {
            let Output::Writer(output) = output else { continue };
            if let writer::Out::Lease(_, LeaseRequest::Create(edit) | LeaseRequest::Replace(_, edit)) = output
                && edit.holder.is_some()
                && observes
            {
                return Err(format!("G6: the shared Lease is taken or kept despite {:?}", inputs.policy));
            }
            let writer::Out::Call(call) = output else { continue };
            let ArmRequest::PutPool { pool, edit, permit, .. } = &call.request else { continue };
            let members = !edit.add.is_empty() || !edit.remove.is_empty();
            let epoch = permit.attempt.epoch;
            let known = inputs.policy.as_ref().is_some_and(|(term, _)| *term >= Some(epoch));
            if observes || !known {
                return Err(format!("G6: a PUT of {pool} begins despite {:?}", inputs.policy));
            }
            let is_paused = inputs.policy.as_ref().is_some_and(|(_, policy)| policy.pools.contains_key(pool));
            if members && is_paused {
                return Err(format!("G6: members of {pool} are written, which is paused"));
            }
            let began = inputs.terms.get(&epoch).copied().unwrap_or(0);
            self.recorded.check(now, began, pool, members)?;
        }
        Ok(())
    }

    /// Returns how often operators were informed of a pause.
    pub fn pauses(&self) -> u64 {
        self.recorded.paused
    }

    /// Returns how often operators were informed of a release.
    pub fn releases(&self) -> u64 {
        self.recorded.released
    }

    /// Records that a process has ended: its requests are not answered.
    pub(super) fn process_gone(&mut self, process: usize) {
        self.recorded.open.retain(|(owner, _), _| *owner != process);
    }
}

impl RecordedPauses {
    /// Returns whether everything was paused at any time since then.
    pub(super) fn was_stopped(&self, since: u64) -> bool {
        let last = self.last.get(&Scope::Everything).and_then(|(recorded, _)| *recorded);
        self.since.contains_key(&Scope::Everything) || last.is_some_and(|at| at >= since)
    }

    fn check(&self, now: u64, began: u64, pool: &PoolId, members: bool) -> Result<(), String> {
        let scopes = [Some(Scope::Everything), members.then(|| Scope::Pool(pool.clone()))];
        for scope in scopes.into_iter().flatten() {
            let Some(since) = self.since.get(&scope) else { continue };
            if *since < began || since + NOTICED_US < now {
                return Err(format!(
                    "G6: a PUT of {pool} begins in a term of {began}, and {scope:?} has been paused since {since}"
                ));
            }
        }
        Ok(())
    }
}
