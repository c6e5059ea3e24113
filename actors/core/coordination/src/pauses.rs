//! The operator's pauses, and the configured mode: owns the keys `pause.*` of our ConfigMap, reads them at start, for
//! each term and every 15 s, and executes requests to pause and to resume (docs/design/pools.md, G6; D1).
//!
//! The policy is sent as a whole, with the term for which it was read. No component writes in a new term before it has
//! received the current pauses, so a recorded pause applies under every later leader. The Informer, the Directory, the
//! writer and the event emitter decide what a pause means for writes. `pauses/notes.rs` holds the format of a note,
//! `pauses/requests.rs` the requests.
//!
//! The note that switches the admin state off is read with them. It applies for ten minutes at most, because the
//! process that wrote it may never remove it.
//!
//! A pause is always written, even if one exists already. A write that was lost on its way then names an older state,
//! and cannot end a pause that was already confirmed to the operator.

mod notes;
mod requests;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use mechanisms::object_client::ObjectClient;
use mechanisms::published::Published;
use model::config_map::{ConfigMapAnswer, ConfigMapFacts, ConfigMapRequest};
use model::ids::{CallId, Epoch};
use model::machine::{Machine, Now, earliest};
use model::operator_request::{Answer, Refusal, RequestId, Scope};
use model::policy::{Mode, OperatorPolicy, Pause};
use model::sample::Metric;
use model::view::PolicyView;
use notes::PauseNotes;
use requests::{ANSWER_TIMEOUT, PauseRequest};

/// Time for which the note applies that switches the admin state off, from its first observation.
const OFF_NOTE_LIFETIME: Duration = Duration::from_secs(600);

/// Settings of the machine, fixed at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `mode`.
    pub mode: Mode,
    /// Where pauses are stored.
    pub storage: PauseStorage,
    /// How this process applies them.
    pub effect: PauseEffect,
}

/// How a process applies pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PauseEffect {
    /// The process does not write paused pools.
    Pauses,
    /// The process restores pre-images.
    Restoring(Restoring),
}

/// How a process that restores pre-images applies pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restoring {
    /// Whether it writes only while everything is paused for all others, so that no other replica undoes its writes
    /// immediately. Otherwise it ignores a pause of everything.
    pub requires_global_pause: bool,
    /// Whether it respects pauses of single pools and Services. It does not if the operator has named the pools.
    pub respects_narrow_pauses: bool,
}

/// Where pauses are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PauseStorage {
    /// In our ConfigMap.
    ConfigMap,
    /// Nowhere: in a dry run only the mode applies (C4).
    Nothing,
}

/// Inputs of the machine.
#[derive(Clone, Debug)]
pub enum In {
    /// The start.
    Start,
    /// A term begins: its policy must be read after this moment (W8).
    Confirm(Epoch),
    /// The answer to a request about our ConfigMap.
    ConfigMap(CallId, ConfigMapAnswer),
    /// The operator pauses something.
    Pause {
        /// The id of the request.
        id: RequestId,
        /// The scope of the pause.
        scope: Scope,
        /// The operator's name.
        by: Option<Arc<str>>,
        /// The reason.
        reason: Option<Arc<str>>,
    },
    /// The operator ends a pause.
    Resume {
        /// The id of the request.
        id: RequestId,
        /// The scope of the pause.
        scope: Scope,
    },
}

/// Outputs of the machine.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the kubernetes port: a request about our ConfigMap.
    ConfigMap(CallId, ConfigMapRequest),
    /// To the writer, the admin state, the event emitter, the Informer and the Directory: the complete policy, as read
    /// after this term had begun.
    OperatorPolicy {
        /// The newest term that had begun when the policy was read; `None`: none had.
        term: Option<Epoch>,
        /// The complete policy.
        policy: Arc<OperatorPolicy>,
    },
    /// To the process, through the writer, which has then applied all earlier outputs: the answer to the operator's
    /// request.
    Answer(RequestId, Answer),
    /// To the snapshot.
    View(PolicyView),
    /// To the metrics.
    Metric(Metric),
}

/// The operator's policy and its storage (G6).
#[derive(Debug)]
pub struct Pauses {
    params: Params,
    /// The last read state; `None`: none yet.
    state: Option<ReadState>,
    /// The newest term that has begun.
    newest_term: Option<Epoch>,
    /// The newest term that had begun when `state` was requested.
    term: Option<Epoch>,
    /// The last sent policy and its term.
    sent: Published<(Option<Epoch>, Arc<OperatorPolicy>)>,
    /// Each of its requests carries the newest term that had begun at that time.
    client: ObjectClient<ConfigMapFacts, Option<Epoch>>,
    /// The operator's requests in the order of arrival; the first is being processed.
    requests: VecDeque<PauseRequest>,
    published: Published<PolicyView>,
}

/// A read state of the ConfigMap.
#[derive(Clone, Debug)]
struct ReadState {
    /// `None`: there is no ConfigMap.
    facts: Option<Arc<ConfigMapFacts>>,
    notes: PauseNotes,
    /// The note that switches the admin state off.
    off: Option<OffSwitch>,
}

/// The note that switches the admin state off.
#[derive(Clone, Copy, Debug)]
enum OffSwitch {
    /// The note applies; `since` is its first observation.
    Active { since: Now },
    /// The note is too old and no longer applies.
    Expired,
}

impl ReadState {
    fn of(now: Now, facts: Option<Arc<ConfigMapFacts>>, before: Option<&ReadState>) -> ReadState {
        let notes = facts.as_deref().map(PauseNotes::of).unwrap_or_default();
        let switch = before.and_then(|before| before.off).unwrap_or(OffSwitch::Active { since: now });
        let off = notes.admin_state_off.then_some(switch);
        ReadState { facts, notes, off }
    }

    /// Returns until when the admin state is switched off; `None`: it is not.
    fn off_until(&self) -> Option<Now> {
        match self.off {
            Some(OffSwitch::Active { since }) => Some(since.plus(OFF_NOTE_LIFETIME)),
            Some(OffSwitch::Expired) | None => None,
        }
    }
}

/// Returns the pauses in a state of our ConfigMap, under the default mode, and the unreadable keys with the reason. For
/// readers other than the machine.
#[must_use]
pub fn noted(facts: &ConfigMapFacts) -> (OperatorPolicy, BTreeMap<Arc<str>, &'static str>) {
    let PauseNotes { everything, pools, services, admin_state_off, unreadable, .. } = PauseNotes::of(facts);
    (OperatorPolicy { mode: Mode::default(), everything, pools, services, admin_state_off }, unreadable)
}

impl Pauses {
    /// Creates a machine that knows nothing yet.
    #[must_use]
    pub fn new(params: Params) -> Pauses {
        Pauses {
            params,
            state: None,
            newest_term: None,
            term: None,
            sent: Published::default(),
            client: ObjectClient::default(),
            requests: VecDeque::new(),
            published: Published::default(),
        }
    }

    fn on_start(&mut self, now: Now) {
        match self.params.storage {
            PauseStorage::ConfigMap if self.client.is_idle() => self.client.plan(now),
            PauseStorage::ConfigMap => {}
            PauseStorage::Nothing => self.state = Some(ReadState::of(now, None, None)),
        }
    }

    /// Begins a term. Earlier requests do not count for it: a read in flight is repeated.
    fn on_confirm(&mut self, now: Now, epoch: Epoch) {
        if self.newest_term >= Some(epoch) {
            return;
        }
        self.newest_term = Some(epoch);
        match self.params.storage {
            PauseStorage::ConfigMap => self.client.reread(now),
            PauseStorage::Nothing => self.term = self.newest_term,
        }
    }

    fn on_request(&mut self, now: Now, request: PauseRequest, out: &mut Vec<Out>) {
        if request.is_of_a_node() {
            out.push(Out::Answer(request.id, Answer::Refused(Refusal::Unknown)));
            return;
        }
        match self.params.storage {
            PauseStorage::ConfigMap => {
                self.requests.push_back(request);
                self.client.hurry(now);
            }
            PauseStorage::Nothing => out.push(Out::Answer(request.id, Answer::Refused(Refusal::DryRun))),
        }
    }

    /// Returns the policy as this process applies it, if it is known.
    fn effective_policy(&self) -> Option<OperatorPolicy> {
        let notes = self.policy()?;
        Some(match self.params.effect {
            PauseEffect::Pauses => notes,
            PauseEffect::Restoring(Restoring { requires_global_pause, respects_narrow_pauses }) => {
                let others_write = requires_global_pause && notes.everything.is_none();
                let single = if respects_narrow_pauses {
                    notes
                } else {
                    OperatorPolicy { mode: notes.mode, ..OperatorPolicy::default() }
                };
                OperatorPolicy { everything: others_write.then(Pause::default), ..single }
            }
        })
    }

    /// Returns the operator's policy, if it is known.
    fn policy(&self) -> Option<OperatorPolicy> {
        let state = self.state.as_ref()?;
        let PauseNotes { everything, pools, services, .. } = &state.notes;
        Some(OperatorPolicy {
            mode: self.params.mode,
            everything: everything.clone(),
            pools: pools.clone(),
            services: services.clone(),
            admin_state_off: state.off_until().is_some(),
        })
    }

    /// Ends the effect of a note that is too old.
    fn expire_off(&mut self, now: Now) {
        if let Some(state) = self.state.as_mut().filter(|state| state.off_until().is_some_and(|at| at <= now))
        {
            state.off = Some(OffSwitch::Expired);
        }
    }

    /// Sends the policy if it or its term changed.
    fn send_policy(&mut self, out: &mut Vec<Out>) {
        let Some(policy) = self.effective_policy() else { return };
        let policy = match self.sent.last() {
            Some((_, sent)) if **sent == policy => Arc::clone(sent),
            Some(_) | None => Arc::new(policy),
        };
        let changed = self.sent.update((self.term, policy));
        out.extend(changed.map(|(term, policy)| Out::OperatorPolicy { term, policy }));
    }

    /// Does everything that is due now; the last part of every step and tick.
    fn process_due(&mut self, now: Now, out: &mut Vec<Out>) {
        self.expire_off(now);
        self.give_up_overdue(now, out);
        self.send_due(now, out);
        self.send_policy(out);
        self.publish_view(out);
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }

    /// Checks the invariants that hold between any two steps.
    ///
    /// # Errors
    /// Returns the broken invariant.
    fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        rule(self.term <= self.newest_term, "the policy is of a term that has not begun")?;
        rule(
            self.requests.is_empty() || !self.client.is_idle(),
            "a request of the operator waits, and the ConfigMap is not requested",
        )?;
        let sent = self.sent.last().and_then(|(term, _)| *term);
        rule(sent == self.term || self.state.is_none(), "the policy was not sent for its term")
    }

    fn publish_view(&mut self, out: &mut Vec<Out>) {
        let (policy, unreadable) = match (self.sent.last(), &self.state) {
            (Some((_, policy)), Some(state)) => {
                let unreadable = state.notes.unreadable.clone();
                let notes = match self.params.effect {
                    PauseEffect::Pauses => Some(Arc::clone(policy)),
                    PauseEffect::Restoring(_) => self.policy().map(Arc::new),
                };
                (notes, unreadable.into_iter().collect())
            }
            (Some(_) | None, _) => (None, Vec::new()),
        };
        let view = PolicyView {
            mode: self.params.mode,
            policy,
            unreadable,
            leader_waits: self.params.storage == PauseStorage::ConfigMap && self.newest_term > self.term,
            last_error: self.client.last_error().cloned(),
        };
        let Some(view) = self.published.update(view) else { return };
        out.push(Out::Metric(Metric::OperatorPolicy {
            mode: view.mode,
            everything: view.policy.as_ref().is_some_and(|policy| policy.everything.is_some()),
            pools: count(view.policy.as_ref().map_or(0, |policy| policy.pools.len())),
            services: count(view.policy.as_ref().map_or(0, |policy| policy.services.len())),
            unreadable: count(view.unreadable.len()),
            fresh: self.state.is_some() && view.last_error.is_none(),
            leader_waits: view.leader_waits,
        }));
        out.push(Out::View(view));
    }
}

fn count(many: usize) -> u64 {
    u64::try_from(many).unwrap_or(u64::MAX)
}

impl Machine for Pauses {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match input {
            In::Start => self.on_start(now),
            In::Confirm(epoch) => self.on_confirm(now, epoch),
            In::ConfigMap(call, answer) => self.on_answer(now, call, answer, out),
            In::Pause { id, scope, by, reason } => {
                let request = PauseRequest::pause(id, scope, by, reason, now, self.client.calls());
                self.on_request(now, request, out);
            }
            In::Resume { id, scope } => {
                self.on_request(now, PauseRequest::resume(id, scope, now, self.client.calls()), out);
            }
        }
        self.process_due(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let waits = self.requests.front().map(|request| request.received.plus(ANSWER_TIMEOUT));
        let off = self.state.as_ref().and_then(ReadState::off_until);
        earliest(off, earliest(self.client.deadline(), waits))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.process_due(now, out);
    }
}
