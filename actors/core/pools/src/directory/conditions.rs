//! The conditions of a pool that operators see as events. Each is reported when it begins, and once more in each term
//! and after a pause (D2, G5, E1). Nothing is reported while the pool is paused or everything is only observed (G6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Out;
use super::pool_inputs::Unproven;
use model::assignment::{Assignment, Held, HeldReason};
use model::error::NotManageable;
use model::ids::{Family, PoolId, ServiceKey, ServiceUid};
use model::report::{Condition, Effect, Ended, EventKind, ExcludedNodes, Report, Subject};
use model::xds::source::{Assigned, Fault, SourceFact};

/// The conditions of a pool, as last reported.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Conditions {
    /// The reason why the pool is not manageable.
    refused: Option<NotManageable>,
    /// The Services that share the pool; empty when there is only one.
    sharing: BTreeSet<ServiceUid>,
    /// The reason why a removal is held back, or would be if guards were enforced.
    held: Option<HeldReason>,
    /// The Services to which the conditions were reported; empty if none holds.
    services: BTreeMap<ServiceUid, ServiceKey>,
}

impl Conditions {
    /// Returns the conditions of a pool with this refusal or assignment.
    pub(super) fn of(refused: Option<&Unproven>, assignment: Option<&Assignment>) -> Conditions {
        let (refused, assignment) = unpaused(refused, assignment);
        let sharing = assignment.filter(|assignment| assignment.services.len() > 1);
        let held = assignment.and_then(reportable_held).map(|(held, _)| held.reason);
        let reported = assignment.filter(|_| sharing.is_some() || held.is_some());
        Conditions {
            refused: refused.map(|refusal| refusal.reason.clone()),
            sharing: sharing.into_iter().flat_map(|assignment| assignment.services.keys()).cloned().collect(),
            held,
            services: match (refused, reported) {
                (Some(refusal), _) => refusal.services.clone(),
                (None, Some(assignment)) => owners(assignment),
                (None, None) => BTreeMap::new(),
            },
        }
    }

    /// Returns the conditions that hold.
    fn conditions(&self, pool: &PoolId) -> BTreeSet<Condition> {
        let refused = || Condition::NotManageable { pool: pool.clone(), attempted: false };
        let conditions = [
            self.refused.as_ref().map(|_| refused()),
            (!self.sharing.is_empty()).then(|| Condition::Shared(pool.clone())),
            self.held.map(|_| Condition::RemovalHeld(pool.clone())),
        ];
        conditions.into_iter().flatten().collect()
    }

    /// Emits which reported conditions have ended: for all Services, or for those that left the pool.
    fn end(&self, pool: &PoolId, before: &Conditions, out: &mut Vec<Out>) {
        let hold = self.conditions(pool);
        for condition in before.conditions(pool) {
            if !hold.contains(&condition) {
                out.push(Out::Ended(Ended::of(condition)));
                continue;
            }
            for (uid, key) in before.services.iter().filter(|(uid, _)| !self.services.contains_key(*uid)) {
                let subject = Some(Subject::of(uid, key));
                out.push(Out::Ended(Ended { condition: condition.clone(), subject }));
            }
        }
    }

    /// Reports the conditions that began since the last report. `excluded` returns the nodes that are excluded from the
    /// pool of a family, and that explain why a removal is held back.
    pub(super) fn report(
        &mut self,
        pool: &PoolId,
        refused: Option<&Unproven>,
        assignment: Option<&Assignment>,
        excluded: impl FnOnce(Family, &Held) -> Option<ExcludedNodes>,
        out: &mut Vec<Out>,
    ) {
        let before = std::mem::replace(self, Conditions::of(refused, assignment));
        self.end(pool, &before, out);
        let (refused, assignment) = unpaused(refused, assignment);
        if let Some(Unproven { reason, services, note, paused: _ }) =
            refused.filter(|_| self.refused != before.refused)
        {
            let what =
                EventKind::NotManageable { pool: pool.clone(), reason: reason.clone(), attempted: false };
            out.push(report(services, note.as_ref(), what));
        }
        let reported = assignment.filter(|_| !self.sharing.is_empty() || self.held.is_some());
        let Some(assignment) = reported else { return };
        let owners = owners(assignment);
        if !self.sharing.is_empty() && self.sharing != before.sharing {
            let what = EventKind::Shared { pool: pool.clone(), services: owners.values().cloned().collect() };
            out.push(report(&owners, assignment.source.note(), what));
        }
        if let Some((held, enforced)) = reportable_held(assignment).filter(|_| self.held != before.held) {
            let (reason, members) = (held.reason, held.members.len());
            let excluded = excluded(assignment.family, held);
            let what = EventKind::Held { pool: pool.clone(), reason, members, enforced, excluded };
            out.push(report(&owners, assignment.source.note(), what));
        }
    }
}

/// Returns the Services of an assignment.
fn owners(assignment: &Assignment) -> BTreeMap<ServiceUid, ServiceKey> {
    assignment.services.iter().map(|(uid, share)| (uid.clone(), share.key.clone())).collect()
}

/// Drops what is paused: a paused pool reports nothing.
fn unpaused<'a>(
    refused: Option<&'a Unproven>,
    assignment: Option<&'a Assignment>,
) -> (Option<&'a Unproven>, Option<&'a Assignment>) {
    (refused.filter(|refusal| !refusal.paused), assignment.filter(|assignment| !assignment.is_paused()))
}

/// Returns the reportable removal that is held back, or that guards would hold back. A removal that the mode forbids is
/// the operator's intention, and is not reported.
fn reportable_held(assignment: &Assignment) -> Option<(&Held, bool)> {
    let held = assignment.held.as_ref().filter(|held| held.reason != HeldReason::AddOnly);
    held.map(|held| (held, true)).or_else(|| assignment.would_hold.as_ref().map(|held| (held, false)))
}

fn report(services: &BTreeMap<ServiceUid, ServiceKey>, note: Option<&Arc<str>>, what: EventKind) -> Out {
    let subjects = services.iter().map(|(uid, key)| Subject::of(uid, key)).collect();
    Out::Report(Report { subjects, what, note: note.cloned() })
}

/// The last report about a source.
#[derive(Default, Debug)]
pub(super) struct SourceCondition {
    /// Effect on its pools at the last reported error; `None` when no error was reported.
    failing: Option<Effect>,
    /// All sources that shared that report.
    pub(super) group: Option<Arc<BTreeSet<Arc<str>>>>,
}

/// A change in the state of a source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum SourceChange {
    /// The source has an error.
    Failing {
        /// Effect on its pools.
        effect: Effect,
        /// The error.
        error: Arc<str>,
        /// The text that accompanies it (X4).
        note: Option<Arc<str>>,
    },
    /// The source has no error any more; the text that accompanies that.
    Recovered(Arc<str>),
}

impl SourceCondition {
    /// Returns the change of the source's state, if there is one. Another error with the same effect is not a change:
    /// it is part of other reports and of the views.
    pub(super) fn change(&mut self, fact: &SourceFact) -> Option<SourceChange> {
        let note: Arc<str> = Arc::from(fact.note.to_string());
        let kept = (!fact.stands()).then(|| (Effect::Kept, Arc::clone(&note), None));
        let with_note = |effect: Effect, fault: &Fault| {
            (effect, Arc::<str>::from(fault.to_string()), Some(Arc::clone(&note)))
        };
        let failing = match &fact.assigned {
            Assigned::Unknown(fault) => fault.as_ref().map(|fault| with_note(Effect::Untouched, fault)),
            Assigned::Usable(_) => kept,
            Assigned::Dropped(fault) => Some(with_note(Effect::Emptied, fault)),
        };
        match failing {
            Some((effect, ..)) if self.failing == Some(effect) => None,
            Some((effect, error, note)) => {
                self.failing = Some(effect);
                Some(SourceChange::Failing { effect, error, note })
            }
            // A source that never had an assignment and waits again has not recovered.
            None if fact.assignment().is_none() => None,
            None => self.failing.take().map(|_| SourceChange::Recovered(note)),
        }
    }
}

impl SourceChange {
    /// Returns whether the source has an error.
    pub(super) fn is_failing(&self) -> bool {
        match self {
            SourceChange::Failing { .. } => true,
            SourceChange::Recovered(_) => false,
        }
    }

    /// Returns one report for all these sources, which fill this many pools: an unreachable server is one event, not
    /// one for each source.
    pub(super) fn report(self, sources: BTreeSet<Arc<str>>, pools: usize) -> Report {
        let (what, note) = match self {
            SourceChange::Failing { effect, error, note } => {
                (EventKind::SourceFailing { sources, pools, effect, error }, note)
            }
            SourceChange::Recovered(note) => (EventKind::SourceRecovered { sources }, Some(note)),
        };
        Report { subjects: vec![Subject::Controller], what, note }
    }
}
