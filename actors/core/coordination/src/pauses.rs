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

use mechanisms::config_map_client::ConfigMapClient;
use model::config_map::{ConfigMapAnswer, ConfigMapAsk, ConfigMapFacts};
use model::ids::{CallId, Epoch};
use model::machine::{Machine, Now, earliest};
use model::operator_request::{Answer, Refusal, RequestId, Scope};
use model::policy::{Mode, OperatorPolicy, Pause};
use model::sample::Metric;
use model::view::PolicyView;
use notes::Noted;
use requests::{ANSWERED_WITHIN, Work};

/// Time for which the note applies that switches the admin state off, from its first observation.
const HEEDS_OFF_FOR: Duration = Duration::from_secs(600);

/// Settings of the machine, fixed at start.
#[derive(Clone, Debug)]
pub struct Params {
    /// `mode`.
    pub mode: Mode,
    /// Where pauses are stored.
    pub keeping: Keeping,
    /// How this process applies them.
    pub heeding: Heeding,
}

/// How a process applies pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Heeding {
    /// It does not write what is paused.
    Pauses,
    /// It restores pre-images.
    Restoring(Restoring),
}

/// How a process that restores pre-images applies pauses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restoring {
    /// Whether it writes only while everything is paused for all others, so that no other replica undoes its writes
    /// immediately. Otherwise it ignores a pause of everything.
    pub reversed: bool,
    /// Whether it respects pauses of single pools and Services. It does not if the operator has named the pools.
    pub heeds_single: bool,
}

/// Where pauses are stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keeping {
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
    ConfigMap(CallId, ConfigMapAsk),
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
    known: Option<Known>,
    /// The newest term that has begun.
    begun: Option<Epoch>,
    /// The newest term that had begun when `known` was requested.
    term: Option<Epoch>,
    /// The last sent policy and its term.
    said: Option<(Option<Epoch>, Arc<OperatorPolicy>)>,
    /// Each of its requests carries the newest term that had begun at that time.
    errand: ConfigMapClient<Option<Epoch>>,
    /// The operator's requests in the order of arrival; the first is being processed.
    work: VecDeque<Work>,
    shown: Option<PolicyView>,
}

/// A read state of the ConfigMap.
#[derive(Clone, Debug)]
struct Known {
    /// `None`: there is no ConfigMap.
    facts: Option<Arc<ConfigMapFacts>>,
    noted: Noted,
    /// The note that switches the admin state off.
    off: Option<Off>,
}

/// The note that switches the admin state off.
#[derive(Clone, Copy, Debug)]
enum Off {
    /// The note applies; `since` is its first observation.
    Heeded { since: Now },
    /// The note is too old and no longer applies.
    Outlived,
}

impl Known {
    fn of(now: Now, facts: Option<Arc<ConfigMapFacts>>, before: Option<&Known>) -> Known {
        let noted = facts.as_deref().map(Noted::of).unwrap_or_default();
        let stood = before.and_then(|before| before.off).unwrap_or(Off::Heeded { since: now });
        let off = noted.admin_state_off.then_some(stood);
        Known { facts, noted, off }
    }

    /// Returns until when the admin state is switched off; `None`: it is not.
    fn off_until(&self) -> Option<Now> {
        match self.off {
            Some(Off::Heeded { since }) => Some(since.plus(HEEDS_OFF_FOR)),
            Some(Off::Outlived) | None => None,
        }
    }
}

/// Returns the pauses in a state of our ConfigMap, under the default mode, and the unreadable keys with the reason. For
/// readers other than the machine.
#[must_use]
pub fn noted(facts: &ConfigMapFacts) -> (OperatorPolicy, BTreeMap<Arc<str>, &'static str>) {
    let Noted { everything, pools, services, admin_state_off, unreadable, .. } = Noted::of(facts);
    (OperatorPolicy { mode: Mode::default(), everything, pools, services, admin_state_off }, unreadable)
}

impl Pauses {
    /// Creates a machine that knows nothing yet.
    #[must_use]
    pub fn new(params: Params) -> Pauses {
        Pauses {
            params,
            known: None,
            begun: None,
            term: None,
            said: None,
            errand: ConfigMapClient::default(),
            work: VecDeque::new(),
            shown: None,
        }
    }

    fn on_start(&mut self, now: Now) {
        match self.params.keeping {
            Keeping::ConfigMap if self.errand.is_idle() => self.errand.look_at(now),
            Keeping::ConfigMap => {}
            Keeping::Nothing => self.known = Some(Known::of(now, None, None)),
        }
    }

    /// Begins a term. Earlier requests do not count for it: a read in flight is repeated.
    fn on_confirm(&mut self, now: Now, epoch: Epoch) {
        if self.begun >= Some(epoch) {
            return;
        }
        self.begun = Some(epoch);
        match self.params.keeping {
            Keeping::ConfigMap => self.errand.look_anew(now),
            Keeping::Nothing => self.term = self.begun,
        }
    }

    fn on_request(&mut self, now: Now, work: Work, out: &mut Vec<Out>) {
        if work.is_of_a_node() {
            out.push(Out::Answer(work.id, Answer::Refused(Refusal::Unknown)));
            return;
        }
        match self.params.keeping {
            Keeping::ConfigMap => {
                self.work.push_back(work);
                self.errand.hurry(now);
            }
            Keeping::Nothing => out.push(Out::Answer(work.id, Answer::Refused(Refusal::DryRun))),
        }
    }

    /// Returns the policy as this process applies it, if it is known.
    fn heeded(&self) -> Option<OperatorPolicy> {
        let noted = self.policy()?;
        Some(match self.params.heeding {
            Heeding::Pauses => noted,
            Heeding::Restoring(Restoring { reversed, heeds_single }) => {
                let others_write = reversed && noted.everything.is_none();
                let single = if heeds_single {
                    noted
                } else {
                    OperatorPolicy { mode: noted.mode, ..OperatorPolicy::default() }
                };
                OperatorPolicy { everything: others_write.then(Pause::default), ..single }
            }
        })
    }

    /// Returns the operator's policy, if it is known.
    fn policy(&self) -> Option<OperatorPolicy> {
        let known = self.known.as_ref()?;
        let Noted { everything, pools, services, .. } = &known.noted;
        Some(OperatorPolicy {
            mode: self.params.mode,
            everything: everything.clone(),
            pools: pools.clone(),
            services: services.clone(),
            admin_state_off: known.off_until().is_some(),
        })
    }

    /// Ends the effect of a note that is too old.
    fn outlive_off(&mut self, now: Now) {
        if let Some(known) = self.known.as_mut().filter(|known| known.off_until().is_some_and(|at| at <= now))
        {
            known.off = Some(Off::Outlived);
        }
    }

    /// Sends the policy if it or its term changed.
    fn say(&mut self, out: &mut Vec<Out>) {
        let Some(policy) = self.heeded() else { return };
        let same = self.said.as_ref().is_some_and(|(_, said)| **said == policy);
        if same && self.said.as_ref().is_some_and(|(term, _)| *term == self.term) {
            return;
        }
        let policy = match &self.said {
            Some((_, said)) if same => Arc::clone(said),
            Some(_) | None => Arc::new(policy),
        };
        self.said = Some((self.term, Arc::clone(&policy)));
        out.push(Out::OperatorPolicy { term: self.term, policy });
    }

    /// Does everything that is due now; the last part of every step and tick.
    fn advance(&mut self, now: Now, out: &mut Vec<Out>) {
        self.outlive_off(now);
        self.give_up_overdue(now, out);
        self.go_on(now, out);
        self.say(out);
        self.show(out);
        debug_assert!(self.check().is_ok(), "{:?}", self.check());
    }

    /// Checks the invariants that hold between any two steps.
    ///
    /// # Errors
    /// Returns the broken invariant.
    fn check(&self) -> Result<(), &'static str> {
        let rule = |holds: bool, what: &'static str| if holds { Ok(()) } else { Err(what) };
        rule(self.term <= self.begun, "what is known is of a term that has not begun")?;
        rule(self.work.is_empty() || !self.errand.is_idle(), "the operator waits and nothing is asked")?;
        let said = self.said.as_ref().and_then(|(term, _)| *term);
        rule(said == self.term || self.known.is_none(), "a term was not told of")
    }

    fn show(&mut self, out: &mut Vec<Out>) {
        let (policy, unreadable) = match (&self.said, &self.known) {
            (Some((_, policy)), Some(known)) => {
                let unreadable = known.noted.unreadable.clone();
                let noted = match self.params.heeding {
                    Heeding::Pauses => Some(Arc::clone(policy)),
                    Heeding::Restoring(_) => self.policy().map(Arc::new),
                };
                (noted, unreadable.into_iter().collect())
            }
            (Some(_) | None, _) => (None, Vec::new()),
        };
        let view = PolicyView {
            mode: self.params.mode,
            policy,
            unreadable,
            term_waits: self.params.keeping == Keeping::ConfigMap && self.begun > self.term,
            last_error: self.errand.last_error().cloned(),
        };
        if self.shown.as_ref() == Some(&view) {
            return;
        }
        out.push(Out::Metric(Metric::OperatorPolicy {
            mode: view.mode,
            everything: view.policy.as_ref().is_some_and(|policy| policy.everything.is_some()),
            pools: count(view.policy.as_ref().map_or(0, |policy| policy.pools.len())),
            services: count(view.policy.as_ref().map_or(0, |policy| policy.services.len())),
            unreadable: count(view.unreadable.len()),
            fresh: self.known.is_some() && view.last_error.is_none(),
            term_waits: view.term_waits,
        }));
        self.shown = Some(view.clone());
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
                let work = Work::pause(id, scope, by, reason, now, self.errand.calls());
                self.on_request(now, work, out);
            }
            In::Resume { id, scope } => {
                self.on_request(now, Work::resume(id, scope, now, self.errand.calls()), out);
            }
        }
        self.advance(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        let waits = self.work.front().map(|work| work.received.plus(ANSWERED_WITHIN));
        let off = self.known.as_ref().and_then(Known::off_until);
        earliest(off, earliest(self.errand.deadline(), waits))
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.advance(now, out);
    }
}
