//! What is asked about our ConfigMap: looks, and the writes that operators ask for (docs/design/pools.md, G6; A3). How
//! that is asked, one request at a time, is [`ConfigMapClient`](mechanisms::config_map_client::Errand)'s business.
//!
//! The operator is answered when a state was seen that shows it done and that no older write can change any more; a
//! write whose answer was lost is looked for first.

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

/// How often the ConfigMap is looked at while nothing else asks for it.
const LOOK_EVERY: Duration = Duration::from_secs(15);
/// Within what time the operator is answered.
pub(super) const ANSWERED_WITHIN: Duration = Duration::from_secs(10);
/// How long after a failed request the next is made while the operator waits.
const HURRY: Duration = Duration::from_millis(500);
/// The same while a term waits, or nothing is known yet; the last one repeats.
const RETRY_AFTER: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5)];
/// The same while no request waits: a pause that another replica has noted is to be seen soon all the same.
const RETRY_PATIENTLY: [Duration; 4] =
    [Duration::from_secs(1), Duration::from_secs(2), Duration::from_secs(5), LOOK_EVERY];

/// The operator's request.
#[derive(Clone, Debug)]
pub(super) struct Work {
    pub id: RequestId,
    wanted: Wanted,
    pub received: Now,
    /// The last request about the ConfigMap that was sent before it came: only later ones count for it.
    after: u64,
    /// The state that its last write was to replace.
    written_over: Option<State>,
}

#[derive(Clone, Debug)]
enum Wanted {
    Pause { scope: Scope, by: Option<Arc<str>>, reason: Option<Arc<str>> },
    Resume { scope: Scope },
}

/// Which state of the ConfigMap it is.
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

    /// Whether it is about a node, which cannot be paused.
    pub(super) fn is_of_a_node(&self) -> bool {
        let (Wanted::Pause { scope, .. } | Wanted::Resume { scope }) = &self.wanted;
        match scope {
            Scope::Node(_) => true,
            Scope::Everything | Scope::Pool(_) | Scope::Service(_) => false,
        }
    }

    /// What it is answered with, when this state shows that it is done. A pause must be in a state that is newer than
    /// the request: what others have sent before that names an older one, and will fail.
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

    /// What makes this state one in which it is done.
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
    /// Operators whose time is over are answered; a request whose answer never came is given up.
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

    /// Looks, when that is due.
    pub(super) fn go_on(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Some((call, ask)) = self.errand.look(now, self.begun) {
            out.push(Out::ConfigMap(call, ask));
        }
    }

    /// Takes in the answer to the request that is under way.
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

    /// A state was seen that was asked for when that term had begun.
    fn on_state(&mut self, now: Now, sight: ConfigMapRead<Option<Epoch>>, out: &mut Vec<Out>) {
        let ConfigMapRead { call, what, when: begun, facts } = sight;
        self.errand.forget_failures();
        let known = Known::of(now, facts, self.known.as_ref());
        self.term = self.term.max(begun);
        let mut answers = Vec::new();
        let next = self.settle_work(call, what, &known, &mut answers);
        let facts = known.facts.clone();
        self.known = Some(known);
        // The writer learns of a pause before the operator does.
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

    /// Answers the operators for whom this state is the end, and says what the next one needs.
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
                // Another client undoes it, or the server does not do it: not again immediately.
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

/// What follows from a state.
enum Next {
    /// No request waits.
    Rest,
    /// What is known is too old for who waits.
    Look,
    /// The same, but not at once.
    Later,
    /// Who waits needs this.
    Write(ConfigMapEdit),
}
