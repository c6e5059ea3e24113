//! What of a pool is told to operators: each condition once when it begins, and once more in each term and after a pause
//! (D2, G5, E1). While a pool is paused nothing of it is told, as where everything is only observed (G6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Out;
use super::pool::Unproven;
use model::assignment::{Assignment, Held, HeldReason};
use model::error::NotManageable;
use model::ids::{Family, PoolId, ServiceKey, ServiceUid};
use model::report::{Condition, Effect, Ended, EventKind, LeftOutNodes, Report, Subject};
use model::xds::source::{Assigned, Fault, SourceFact};

/// The conditions of a pool, as they were last told.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Conditions {
    /// Why it is not manageable.
    refused: Option<NotManageable>,
    /// The Services that share it; none when there is only one.
    sharing: BTreeSet<ServiceUid>,
    /// Why a removal is held back, or would be if guards were enforced.
    held: Option<HeldReason>,
    /// The Services that were told of them.
    services: BTreeMap<ServiceUid, ServiceKey>,
}

impl Conditions {
    /// The conditions of a pool that is refused for this, or has this assignment.
    pub(super) fn of(refused: Option<&Unproven>, said: Option<&Assignment>) -> Conditions {
        let (refused, said) = unpaused(refused, said);
        let sharing = said.filter(|said| said.services.len() > 1);
        Conditions {
            refused: refused.map(|refusal| refusal.reason.clone()),
            sharing: sharing.into_iter().flat_map(|said| said.services.keys()).cloned().collect(),
            held: said.and_then(told_held).map(|(held, _)| held.reason),
            services: match (refused, said) {
                (Some(refusal), _) => refusal.services.clone(),
                (None, Some(said)) => owners(said),
                (None, None) => BTreeMap::new(),
            },
        }
    }

    /// The conditions that hold.
    fn conditions(&self, pool: &PoolId) -> BTreeSet<Condition> {
        let refused = || Condition::NotManageable { pool: pool.clone(), attempted: false };
        let conditions = [
            self.refused.as_ref().map(|_| refused()),
            (!self.sharing.is_empty()).then(|| Condition::Shared(pool.clone())),
            self.held.map(|_| Condition::RemovalHeld(pool.clone())),
        ];
        conditions.into_iter().flatten().collect()
    }

    /// Says which conditions have ended since they were told: for all Services, or for those that left the pool.
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

    /// Reports the conditions that have begun since they were last told. `left_out` gives the nodes that are left out of
    /// its pool of a family.
    pub(super) fn tell(
        &mut self,
        pool: &PoolId,
        refused: Option<&Unproven>,
        said: Option<&Assignment>,
        left_out: impl FnOnce(Family) -> Option<LeftOutNodes>,
        out: &mut Vec<Out>,
    ) {
        let before = std::mem::replace(self, Conditions::of(refused, said));
        self.end(pool, &before, out);
        let (refused, said) = unpaused(refused, said);
        if let Some(Unproven { reason, services, note, paused: _ }) =
            refused.filter(|_| self.refused != before.refused)
        {
            let what =
                EventKind::NotManageable { pool: pool.clone(), reason: reason.clone(), attempted: false };
            out.push(report(services, note.as_ref(), what));
        }
        let Some(said) = said else { return };
        let owners = owners(said);
        if !self.sharing.is_empty() && self.sharing != before.sharing {
            let what = EventKind::Shared { pool: pool.clone(), services: owners.values().cloned().collect() };
            out.push(report(&owners, said.source.note(), what));
        }
        if let Some((held, enforced)) = told_held(said).filter(|_| self.held != before.held) {
            let (reason, members) = (held.reason, held.members.len());
            let left_out = if reason == HeldReason::NoUsableNode { left_out(said.family) } else { None };
            let what = EventKind::Held { pool: pool.clone(), reason, members, enforced, left_out };
            out.push(report(&owners, said.source.note(), what));
        }
    }
}

/// The Services of an assignment.
fn owners(said: &Assignment) -> BTreeMap<ServiceUid, ServiceKey> {
    said.services.iter().map(|(uid, share)| (uid.clone(), share.key.clone())).collect()
}

/// What is to be told at all: nothing of a pool that is paused.
fn unpaused<'a>(
    refused: Option<&'a Unproven>,
    said: Option<&'a Assignment>,
) -> (Option<&'a Unproven>, Option<&'a Assignment>) {
    (refused.filter(|refusal| !refusal.paused), said.filter(|said| !said.is_paused()))
}

/// The removal that is held back, or that would be and goes on, if that is to be told. What the mode forbids is as the
/// operator wants it, and is not told.
fn told_held(said: &Assignment) -> Option<(&Held, bool)> {
    let held = said.held.as_ref().filter(|held| held.reason != HeldReason::AddOnly);
    held.map(|held| (held, true)).or_else(|| said.would_hold.as_ref().map(|held| (held, false)))
}

fn report(services: &BTreeMap<ServiceUid, ServiceKey>, note: Option<&Arc<str>>, what: EventKind) -> Out {
    let subjects = services.iter().map(|(uid, key)| Subject::of(uid, key)).collect();
    Out::Report(Report { subjects, what, note: note.cloned() })
}

/// What of a source was told.
#[derive(Default, Debug)]
pub(super) struct SourceTold {
    /// What became of its pools when something was last said to be wrong with it.
    failing: Option<Effect>,
    /// All the sources of which that was said at once.
    pub(super) group: Option<Arc<BTreeSet<Arc<str>>>>,
}

/// What is new about a source.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum SourceNews {
    /// Something is wrong with it.
    Failing {
        /// What becomes of its pools.
        effect: Effect,
        /// What it is.
        error: Arc<str>,
        /// What goes with that (X4).
        note: Option<Arc<str>>,
    },
    /// Nothing is any more; what goes with that.
    Recovered(Arc<str>),
}

impl SourceTold {
    /// Whether something is wrong with it, or is not any more. Another error with the same effect is no news: it goes
    /// with all else that is told, and with the views.
    pub(super) fn news(&mut self, fact: &SourceFact) -> Option<SourceNews> {
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
                Some(SourceNews::Failing { effect, error, note })
            }
            // What was never known and is waited for again is no better than it was.
            None if fact.assignment().is_none() => None,
            None => self.failing.take().map(|_| SourceNews::Recovered(note)),
        }
    }
}

impl SourceNews {
    /// Whether something is wrong with the source.
    pub(super) fn is_failing(&self) -> bool {
        match self {
            SourceNews::Failing { .. } => true,
            SourceNews::Recovered(_) => false,
        }
    }

    /// The report of this about all these sources at once, which so many pools get their members from: a server that is
    /// out of reach is one event, and not one for each source.
    pub(super) fn report(self, sources: BTreeSet<Arc<str>>, pools: usize) -> Report {
        let (what, note) = match self {
            SourceNews::Failing { effect, error, note } => {
                (EventKind::SourceFailing { sources, pools, effect, error }, note)
            }
            SourceNews::Recovered(note) => (EventKind::SourceRecovered { sources }, Some(note)),
        };
        Report { subjects: vec![Subject::Controller], what, note }
    }
}
