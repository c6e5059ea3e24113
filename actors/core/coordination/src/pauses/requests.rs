//! Requests about our ConfigMap: reads, and the writes for the operator (docs/design/pools.md, G6; A3). The
//! [`ObjectClient`](mechanisms::object_client::ObjectClient) sends them, one at a time.
//!
//! The operator gets an answer when a state was read that contains the change and that no older write can replace any
//! more. If the answer to a write was lost, the ConfigMap is read first.

use std::sync::Arc;
use std::time::Duration;

use mechanisms::backoff::Backoff;
use mechanisms::object_client::{Reply, SentRequest};
use model::config_map::{ConfigMapAnswer, ConfigMapEdit, ConfigMapFacts};
use model::ids::{CallId, Epoch};
use model::machine::Now;
use model::object::{RequestFailure, ResourceVersion};
use model::operator_request::{Answer, Done, Effect, Refusal, RequestId, Scope};
use model::sample::Metric;

use super::{Out, Pauses, ReadState};

/// Interval between reads of the ConfigMap while nothing else requests one.
const POLL_INTERVAL: Duration = Duration::from_secs(15);
/// Time within which the operator gets an answer.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a failed request while the operator waits.
const HURRY: Duration = Duration::from_millis(500);
/// Delays while a term waits, or nothing is known yet; the last one repeats.
const RETRY_AFTER: Backoff =
    Backoff(&[Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)]);
/// Delays while no request waits: a pause recorded by another replica should still be observed soon.
const RETRY_PATIENTLY: Backoff =
    Backoff(&[Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5), POLL_INTERVAL]);

/// A request of the operator.
#[derive(Clone, Debug)]
pub(super) struct PauseRequest {
    pub id: RequestId,
    change: PauseChange,
    pub received: Now,
    /// The last request about the ConfigMap that was sent before this one arrived: only later ones count for it.
    after: u64,
    /// The state that its last write was to replace.
    written_over: Option<StateId>,
}

#[derive(Clone, Debug)]
enum PauseChange {
    Pause { scope: Scope, by: Option<Arc<str>>, reason: Option<Arc<str>> },
    Resume { scope: Scope },
}

/// The identity of a state of the ConfigMap.
#[derive(Clone, PartialEq, Eq, Debug)]
enum StateId {
    Absent,
    Version(ResourceVersion),
}

impl StateId {
    fn of(facts: Option<&ConfigMapFacts>) -> StateId {
        facts.map_or(StateId::Absent, |facts| StateId::Version(facts.version.clone()))
    }
}

impl PauseRequest {
    pub(super) fn pause(
        id: RequestId,
        scope: Scope,
        by: Option<Arc<str>>,
        reason: Option<Arc<str>>,
        received: Now,
        after: u64,
    ) -> PauseRequest {
        PauseRequest {
            id,
            change: PauseChange::Pause { scope, by, reason },
            received,
            after,
            written_over: None,
        }
    }

    pub(super) fn resume(id: RequestId, scope: Scope, received: Now, after: u64) -> PauseRequest {
        PauseRequest { id, change: PauseChange::Resume { scope }, received, after, written_over: None }
    }

    /// Returns whether the request names a node, which cannot be paused.
    pub(super) fn is_of_a_node(&self) -> bool {
        let (PauseChange::Pause { scope, .. } | PauseChange::Resume { scope }) = &self.change;
        match scope {
            Scope::Node(_) => true,
            Scope::Everything | Scope::Pool(_) | Scope::Service(_) => false,
        }
    }

    /// Returns the answer if this state shows that the request is done. A pause must be in a state that is newer than
    /// the request: earlier writes of other clients name an older state, and will fail.
    fn done(&self, state: &ReadState) -> Option<Done> {
        match &self.change {
            PauseChange::Pause { scope, .. } => {
                let replaced = self.written_over.as_ref()?;
                let newer = *replaced != StateId::of(state.facts.as_deref());
                (newer && state.notes.has(scope)).then_some(Done::Paused(Effect::WhenRead))
            }
            PauseChange::Resume { scope } => {
                let was = self.written_over.is_some();
                (!state.notes.has(scope)).then_some(Done::Resumed { was, effect: Effect::WhenRead })
            }
        }
    }

    /// Returns the edit that makes this state one in which the request is done.
    fn edit(&self, state: &ReadState) -> ConfigMapEdit {
        match &self.change {
            PauseChange::Pause { scope, by, reason } => {
                let (by, reason) = (by.as_deref(), reason.as_deref());
                state.notes.pausing(state.facts.as_deref(), scope, self.received, by, reason)
            }
            PauseChange::Resume { scope } => state.notes.resuming(scope),
        }
    }
}

impl Pauses {
    /// Answers overdue requests of the operator; gives up a request about the ConfigMap whose answer never came.
    pub(super) fn give_up_overdue(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.client.take_overdue(now).is_some() {
            self.on_failed(now);
        }
        while let Some(request) =
            self.requests.pop_front_if(|request| request.received.plus(ANSWER_TIMEOUT) <= now)
        {
            let why = self.client.last_error().cloned();
            let why = why.unwrap_or_else(|| "it did not complete in time".into());
            out.push(Out::Answer(request.id, Answer::Refused(Refusal::Failed(why))));
        }
    }

    /// Reads the ConfigMap if that is due.
    pub(super) fn send_due(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.client.is_due(now) {
            let (call, request) = self.client.read(now, self.newest_term);
            out.push(Out::ConfigMap(call, request));
        }
    }

    /// Processes the answer to the request in flight.
    pub(super) fn on_answer(&mut self, now: Now, call: CallId, answer: ConfigMapAnswer, out: &mut Vec<Out>) {
        let Some((request, reply)) = self.client.on_answer(now, call, answer) else {
            out.push(Out::Metric(Metric::UnmatchedAnswer));
            return;
        };
        match reply {
            Reply::Conflict | Reply::Unchanged => {}
            Reply::State(facts) => self.on_state(now, request, facts, out),
            Reply::Failed(RequestFailure::Other(_)) => self.on_failed(now),
            Reply::Failed(RequestFailure::Denied(why)) => {
                // A request that is denied stays denied for seconds.
                if let Some(request) = self.requests.pop_front() {
                    out.push(Out::Answer(request.id, Answer::Refused(Refusal::Failed(why))));
                }
                self.on_failed(now);
            }
        }
    }

    /// Processes the state that this request brought. Its context is the newest term that had begun when it was sent.
    fn on_state(
        &mut self,
        now: Now,
        request: SentRequest<Option<Epoch>>,
        facts: Option<Arc<ConfigMapFacts>>,
        out: &mut Vec<Out>,
    ) {
        self.client.forget_failures();
        let state = ReadState::of(now, facts, self.state.as_ref());
        self.term = self.term.max(request.context);
        let mut answers = Vec::new();
        let next = self.answer_requests(&request, &state, &mut answers);
        let facts = state.facts.clone();
        self.state = Some(state);
        // The writer must receive a pause before the operator gets the answer.
        self.send_policy(out);
        out.append(&mut answers);
        match next {
            NextStep::Rest if self.newest_term > self.term => self.client.plan(now),
            NextStep::Rest => {
                self.client.forget_setbacks();
                self.client.plan(now.plus(POLL_INTERVAL));
            }
            NextStep::Look => self.client.plan(now),
            NextStep::Later => self.client.plan(now.plus(HURRY)),
            NextStep::Write(edit) => {
                let (call, request) = self.client.write(now, self.newest_term, facts, edit);
                out.push(Out::ConfigMap(call, request));
            }
        }
    }

    /// Answers the requests that this state completes, and returns the step that the next request needs.
    fn answer_requests(
        &mut self,
        sent: &SentRequest<Option<Epoch>>,
        state: &ReadState,
        out: &mut Vec<Out>,
    ) -> NextStep {
        let mut answered = false;
        while let Some(request) = self.requests.front_mut() {
            if sent.call.0 <= request.after {
                return NextStep::Look;
            }
            if let Some(done) = request.done(state) {
                out.push(Out::Answer(request.id, Answer::Done(done)));
                self.requests.pop_front();
                answered = true;
                continue;
            }
            if sent.writes && !answered {
                // Another client undoes the write, or the server ignores it. The next try is delayed.
                return NextStep::Later;
            }
            request.written_over = Some(StateId::of(state.facts.as_deref()));
            return NextStep::Write(request.edit(state));
        }
        NextStep::Rest
    }

    fn on_failed(&mut self, now: Now) {
        let span = if !self.requests.is_empty() {
            HURRY
        } else if self.state.is_none() || self.newest_term > self.term {
            RETRY_AFTER.delay(self.client.failures())
        } else {
            RETRY_PATIENTLY.delay(self.client.failures())
        };
        self.client.put_off(now, span);
    }
}

/// The next step after a state was processed.
enum NextStep {
    /// No request waits.
    Rest,
    /// Read: the state is too old for the waiting request.
    Look,
    /// Read, but not immediately.
    Later,
    /// Write this for the waiting request.
    Write(ConfigMapEdit),
}
