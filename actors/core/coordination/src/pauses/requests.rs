//! Requests about our ConfigMap: reads, and the writes for the operator (docs/design/pools.md, G6; A3). The
//! [`ConfigMapClient`](mechanisms::config_map_client::ConfigMapClient) sends them, one at a time.
//!
//! The operator gets an answer when a state was read that contains the change and that no older write can replace any
//! more. If the answer to a write was lost, the ConfigMap is read first.

use std::sync::Arc;
use std::time::Duration;

use mechanisms::config_map_client::{ConfigMapNews, ConfigMapRead, ConfigMapRequest, Failed};
use model::config_map::{ConfigMapAnswer, ConfigMapEdit, ConfigMapFacts};
use model::ids::{CallId, Epoch};
use model::machine::{Now, step_of};
use model::object::ResourceVersion;
use model::operator_request::{Answer, Done, Effect, Refusal, RequestId, Scope};
use model::sample::Metric;

use super::{Known, Out, Pauses};

/// Interval between reads of the ConfigMap while nothing else requests one.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Time within which the operator gets an answer.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// Delay after a failed request while the operator waits.
const HURRY: Duration = Duration::from_millis(500);
/// Delays while a term waits, or nothing is known yet; the last one repeats.
const RETRY_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];
/// Delays while no request waits: a pause recorded by another replica should still be observed soon.
const RETRY_PATIENTLY: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5), LOOK_EVERY];

/// A request of the operator.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub id: RequestId,
    wanted: Wanted,
    pub received: Now,
    /// The last request about the ConfigMap that was sent before this one arrived: only later ones count for it.
    after: u64,
    /// The state that its last write was to replace.
    written_over: Option<State>,
}

#[derive(Clone, Debug)]
enum Wanted {
    Pause { scope: Scope, by: Option<Arc<str>>, reason: Option<Arc<str>> },
    Resume { scope: Scope },
}

/// The identity of a state of the ConfigMap.
#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    Absent,
    Version(ResourceVersion),
}

impl State {
    fn of(facts: Option<&ConfigMapFacts>) -> State {
        facts.map_or(State::Absent, |facts| State::Version(facts.version.clone()))
    }
}

impl Work {
    pub(super) fn pause(
        id: RequestId,
        scope: Scope,
        by: Option<Arc<str>>,
        reason: Option<Arc<str>>,
        received: Now,
        after: u64,
    ) -> Work {
        Work { id, wanted: Wanted::Pause { scope, by, reason }, received, after, written_over: None }
    }

    pub(super) fn resume(id: RequestId, scope: Scope, received: Now, after: u64) -> Work {
        Work { id, wanted: Wanted::Resume { scope }, received, after, written_over: None }
    }

    /// Reports whether it names a node, which cannot be paused.
    pub(super) fn is_of_a_node(&self) -> bool {
        let (Wanted::Pause { scope, .. } | Wanted::Resume { scope }) = &self.wanted;
        match scope {
            Scope::Node(_) => true,
            Scope::Everything | Scope::Pool(_) | Scope::Service(_) => false,
        }
    }

    /// Returns the answer if this state shows that the request is done. A pause must be in a state that is newer than
    /// the request: earlier writes of other clients name an older state, and will fail.
    fn done(&self, known: &Known) -> Option<Done> {
        match &self.wanted {
            Wanted::Pause { scope, .. } => {
                let replaced = self.written_over.as_ref()?;
                let newer = *replaced != State::of(known.facts.as_deref());
                (newer && known.noted.has(scope)).then_some(Done::Paused(Effect::WhenRead))
            }
            Wanted::Resume { scope } => {
                let was = self.written_over.is_some();
                (!known.noted.has(scope)).then_some(Done::Resumed { was, effect: Effect::WhenRead })
            }
        }
    }

    /// Returns the edit that makes this state one in which the request is done.
    fn edit(&self, known: &Known) -> ConfigMapEdit {
        match &self.wanted {
            Wanted::Pause { scope, by, reason } => {
                let (by, reason) = (by.as_deref(), reason.as_deref());
                known.noted.pausing(known.facts.as_deref(), scope, self.received, by, reason)
            }
            Wanted::Resume { scope } => known.noted.resuming(scope),
        }
    }
}

impl Pauses {
    /// Answers overdue requests of the operator; gives up a request about the ConfigMap whose answer never came.
    pub(super) fn give_up_overdue(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.errand.overdue(now).is_some() {
            self.on_failed(now);
        }
        while let Some(work) = self.work.pop_front_if(|work| work.received.plus(ANSWERED_WITHIN) <= now) {
            let why = self.errand.last_error().cloned();
            let why = why.unwrap_or_else(|| "there was no end to it in time".into());
            out.push(Out::Answer(work.id, Answer::Refused(Refusal::Failed(why))));
        }
    }

    /// Reads the ConfigMap if that is due.
    pub(super) fn go_on(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Some((call, ask)) = self.errand.look(now, self.begun) {
            out.push(Out::ConfigMap(call, ask));
        }
    }

    /// Processes the answer to the request in flight.
    pub(super) fn on_answer(&mut self, now: Now, call: CallId, answer: ConfigMapAnswer, out: &mut Vec<Out>) {
        match self.errand.on_answer(now, call, answer) {
            ConfigMapNews::Unmatched => out.push(Out::Metric(Metric::UnmatchedAnswer)),
            ConfigMapNews::Forestalled => {}
            ConfigMapNews::State(sight) => self.on_state(now, sight, out),
            ConfigMapNews::Failed(Failed { denied: false, .. }) => self.on_failed(now),
            ConfigMapNews::Failed(Failed { why, denied: true, .. }) => {
                // A request that is denied stays denied for seconds.
                if let Some(work) = self.work.pop_front() {
                    out.push(Out::Answer(work.id, Answer::Refused(Refusal::Failed(why))));
                }
                self.on_failed(now);
            }
        }
    }

    /// Processes a state that was requested when the term `begun` had begun.
    fn on_state(&mut self, now: Now, sight: ConfigMapRead<Option<Epoch>>, out: &mut Vec<Out>) {
        let ConfigMapRead { call, what, when: begun, facts } = sight;
        self.errand.forget_failures();
        let known = Known::of(now, facts, self.known.as_ref());
        self.term = self.term.max(begun);
        let mut answers = Vec::new();
        let next = self.settle_work(call, what, &known, &mut answers);
        let facts = known.facts.clone();
        self.known = Some(known);
        // The writer must receive a pause before the operator gets the answer.
        self.say(out);
        out.append(&mut answers);
        match next {
            Next::Rest if self.begun > self.term => self.errand.look_at(now),
            Next::Rest => {
                self.errand.forget_setbacks();
                self.errand.look_at(now.plus(LOOK_EVERY));
            }
            Next::Look => self.errand.look_at(now),
            Next::Later => self.errand.look_at(now.plus(HURRY)),
            Next::Write(edit) => {
                let (call, ask) = self.errand.write(now, self.begun, facts, edit);
                out.push(Out::ConfigMap(call, ask));
            }
        }
    }

    /// Answers the requests that this state completes, and returns what the next one needs.
    fn settle_work(
        &mut self,
        call: CallId,
        what: ConfigMapRequest,
        known: &Known,
        out: &mut Vec<Out>,
    ) -> Next {
        let mut answered = false;
        while let Some(work) = self.work.front_mut() {
            if call.0 <= work.after {
                return Next::Look;
            }
            if let Some(done) = work.done(known) {
                out.push(Out::Answer(work.id, Answer::Done(done)));
                self.work.pop_front();
                answered = true;
                continue;
            }
            match what {
                // Another client undoes the write, or the server ignores it: not again immediately.
                ConfigMapRequest::Write if !answered => return Next::Later,
                ConfigMapRequest::Look | ConfigMapRequest::Write => {}
            }
            work.written_over = Some(State::of(known.facts.as_deref()));
            return Next::Write(work.edit(known));
        }
        Next::Rest
    }

    fn on_failed(&mut self, now: Now) {
        let span = if !self.work.is_empty() {
            HURRY
        } else if self.known.is_none() || self.begun > self.term {
            step_of(&RETRY_AFTER, self.errand.failures())
        } else {
            step_of(&RETRY_PATIENTLY, self.errand.failures())
        };
        self.errand.put_off(now, span);
    }
}

/// What follows a state.
enum Next {
    /// No request waits.
    Rest,
    /// Read: the state is too old for the waiting request.
    Look,
    /// Read, but not immediately.
    Later,
    /// Write this for the waiting request.
    Write(ConfigMapEdit),
}
