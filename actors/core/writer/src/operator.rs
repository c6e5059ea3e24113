//! Policy and requests of the operator for writes: whether any may begin, and which pools' members are paused
//! (docs/design/pools.md, G6; D1, H3).

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use model::arm::PoolFacts;
use model::assignment::PausedBy;
use model::attempt::MembershipWrite;
use model::ids::{Epoch, LbName, PoolId};
use model::level::Level;
use model::machine::Now;
use model::operator_request::{Answer, Done, Effect, Refusal, RequestId};
use model::policy::{Mode, OperatorPolicy};
use model::sample::GateClass;

use super::completion::WriteEnd;
use super::lane::{LaneState, PROBE_DELAY};
use super::write::WritePhase;
use super::{Out, Writer, WriterPhase};

/// The operator's policy, as far as it is known.
#[derive(Debug, Default)]
pub(super) struct WriterPolicy {
    /// Newest term that had begun when it was read. `None`: none had, or no policy was received.
    term: Option<Epoch>,
    newest: Arc<OperatorPolicy>,
}

impl WriterPolicy {
    /// Returns whether the members of this pool are paused.
    pub(super) fn pauses(&self, pool: &PoolId, taken: &MembershipWrite) -> bool {
        let OperatorPolicy { pools, services, .. } = &*self.newest;
        pools.contains_key(pool) || taken.services.values().any(|key| services.contains_key(key))
    }

    /// Returns the level to write. If the policy allows only additions, all present members are tolerated (G6).
    pub(super) fn relaxed<'a>(&self, level: &'a Level, there: &PoolFacts) -> Cow<'a, Level> {
        match self.newest.mode {
            Mode::Observe | Mode::Enforce => Cow::Borrowed(level),
            Mode::AddOnly => {
                let mut level = level.clone();
                let more = there.members().into_iter().filter(|ip| !level.required.contains_key(ip));
                let more: Vec<IpAddr> = more.collect();
                level.tolerated.extend(more);
                Cow::Owned(level)
            }
        }
    }
}

impl Writer {
    pub(super) fn on_policy(&mut self, term: Option<Epoch>, policy: Arc<OperatorPolicy>) {
        self.policy = WriterPolicy { term: self.policy.term.max(term), newest: policy };
    }

    /// Passes on an answer about a pause. The writer has already applied the pause, so that it is effective now if no
    /// other client may write.
    pub(super) fn forward_answer(&self, now: Now, id: RequestId, answer: Answer, out: &mut Vec<Out>) {
        let effect = if self.leadership.leads_for_certain(now) { Effect::Now } else { Effect::WhenRead };
        let answer = match answer {
            Answer::Done(Done::Paused(_)) => Answer::Done(Done::Paused(effect)),
            Answer::Done(Done::Resumed { was, effect: _ }) => Answer::Done(Done::Resumed { was, effect }),
            Answer::Done(
                Done::Attempting | Done::Released { .. } | Done::Comparing(_) | Done::GatesOpened(_),
            )
            | Answer::Refused(_) => answer,
        };
        out.push(Out::Answer(id, answer));
    }

    /// Returns whether writes may begin: the policy of this term is known and allows them.
    pub(super) fn is_write_allowed(&self) -> bool {
        let term = self.leadership.term();
        term.is_some() && self.policy.term >= term && !self.policy.newest.only_observes()
    }

    /// Cancels everything that could lead to a PUT while no write is allowed, including grants and waiting retries. A
    /// PUT in flight is followed to its end.
    pub(super) fn cancel_while_disallowed(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.is_write_allowed() || !self.leadership.leads() || self.phase != WriterPhase::Running {
            return;
        }
        let begun = |lb: &LbName, writer: &Writer| {
            let Some(lane) = writer.lanes.get(lb) else { return (false, false) };
            let unsent = lane.write.as_ref().is_some_and(|write| match write.phase {
                WritePhase::Taking | WritePhase::Reading => true,
                WritePhase::Putting(_) | WritePhase::Polling(_) => false,
            });
            (unsent, !lane.paused().is_empty())
        };
        let lbs: Vec<LbName> = self.lanes.keys().cloned().collect();
        for lb in lbs {
            let (unsent, waits) = begun(&lb, self);
            if waits {
                self.interrupt_resumes(&lb, out);
            }
            if unsent {
                self.end(now, &lb, WriteEnd::NotGranted, out);
            }
            if waits || unsent {
                self.touch(&lb);
            }
        }
    }

    /// Handles an operator request for an attempt. The pool decides about it, unless the attempt could not begin.
    pub(super) fn on_attempt(&mut self, now: Now, id: RequestId, pool: PoolId, out: &mut Vec<Out>) {
        out.push(match self.refusal(now, &pool) {
            Some(refusal) => Out::Answer(id, Answer::Refused(refusal)),
            None => Out::Attempt(pool, id),
        });
    }

    /// Opens throttle gates for the operator. ARM is called again at once, and may close them again.
    pub(super) fn on_open_gates(
        &mut self,
        now: Now,
        id: RequestId,
        class: Option<GateClass>,
        out: &mut Vec<Out>,
    ) {
        let answer = if self.params.dry_run || self.leadership.leads_for_certain(now) {
            let asked = GateClass::ALL.into_iter().filter(|one| class.is_none_or(|class| class == *one));
            let closed: Vec<GateClass> =
                asked.filter(|class| self.gates.closed(now, *class).is_some()).collect();
            closed.iter().for_each(|class| self.gates.open(*class));
            Answer::Done(Done::GatesOpened(closed))
        } else {
            Answer::Refused(Refusal::NotLeading)
        };
        out.push(Out::Answer(id, answer));
    }

    fn refusal(&self, now: Now, pool: &PoolId) -> Option<Refusal> {
        if self.params.dry_run {
            return Some(Refusal::DryRun);
        }
        if self.phase != WriterPhase::Running || !self.leadership.leads_for_certain(now) {
            return Some(Refusal::NotLeading);
        }
        let paused = self.policy.newest.pools.contains_key(pool).then_some(PausedBy::Pool);
        if let Some(by) = self.policy.newest.stopped_by().or(paused) {
            return Some(Refusal::Paused(by));
        }
        // The policy of this term is not known yet.
        if !self.is_write_allowed() {
            return Some(Refusal::NotLeading);
        }
        let gate = GateClass::ALL.into_iter().filter_map(|class| self.gates.closed(now, class)).max();
        let lane = self.lanes.get(&pool.lb).and_then(|lane| match &lane.closed {
            LaneState::Open => None,
            LaneState::Until(until) => Some(*until),
            LaneState::InDoubt { next, .. } => Some(next.unwrap_or(now.plus(PROBE_DELAY))),
        });
        let blocked = self.breaker.probe_at(&pool.lb);
        let until = [gate, lane, blocked].into_iter().flatten().max();
        until.filter(|until| *until > now).map(Refusal::NotBefore)
    }
}
