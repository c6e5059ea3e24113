//! One pool: whether it is assigned, the level that its Services, the removal delay and the guards make, and
//! what was last said of it (D2, D4, D6, G2).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::gauges::Counted;
use super::mapping::SeenPool;
use super::memory::{Claims, Look, Memory, part};
use super::told::Told;
use super::{Out, Params, Term};
use crate::assignment::{Assignment, Share};
use crate::error::NotManageable;
use crate::ids::{AddressName, Family, PoolId, PoolName, ServiceKey, ServiceUid};
use crate::level::{Level, Member, Source};
use crate::machine::Now;
use crate::proof;

/// One pool that a candidate's rule sends to, or that has not yet let go.
#[derive(Default)]
pub(super) struct Pool {
    phase: Phase,
    /// Why it is not manageable.
    refused: Option<Refusal>,
    told: Told,
    memory: Memory,
    /// When time alone changes its level.
    pub(super) deadline: Option<Now>,
}

/// Why a pool is not written, and whose it would be.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Why.
    pub(super) reason: NotManageable,
    /// Whose it would be.
    pub(super) services: BTreeMap<ServiceUid, ServiceKey>,
}

#[derive(Default)]
enum Phase {
    /// It has no assignment.
    #[default]
    Unassigned,
    /// Its level was said.
    Assigned {
        said: Arc<Assignment>,
        /// Whether it may still answer an earlier assignment to nobody.
        answer_due: bool,
    },
    /// It was assigned to nobody and has not answered.
    Retiring {
        said: Arc<Assignment>,
        /// Whether its next answer may be one to an earlier such assignment, so that it must be asked again.
        ask_again: bool,
    },
}

/// Whose a pool is.
pub(super) enum Verdict {
    /// No candidate's rule sends to it, or it is a cluster pool.
    Nobody,
    /// Its Services', without proof of ownership.
    Refused(NotManageable, Claims),
    /// Its Services', with proof.
    Proven(Family, Claims),
}

/// Judges whose a pool is (D2).
pub(super) fn judge(pool: &PoolName, seen: &SeenPool, claims: Claims) -> Verdict {
    if claims.is_empty() {
        return Verdict::Nobody;
    }
    let named = |family| claims.values().any(|fact| fact.key.pool_name(family) == *pool);
    let family = match (named(Family::V4), named(Family::V6)) {
        (true, true) => return Verdict::Refused(NotManageable::MixedFamilies, claims),
        (false, true) => Family::V6,
        (true | false, false) => Family::V4,
    };
    let keys: BTreeMap<ServiceUid, ServiceKey> =
        claims.iter().map(|(uid, fact)| (uid.clone(), fact.key.clone())).collect();
    match proof::prove(&seen.facts, family, &keys) {
        Ok(()) => Verdict::Proven(family, claims),
        Err(reason) => Verdict::Refused(reason, claims),
    }
}

/// All that a pool's new assignment is made of besides the pool's own memory.
pub(super) struct Given<'a> {
    pub(super) now: Now,
    pub(super) term: Term,
    pub(super) params: &'a Params,
    pub(super) seen: &'a SeenPool,
    pub(super) observed_at: Now,
    pub(super) family: Family,
    pub(super) claims: Claims,
}

impl Pool {
    /// What it counts under.
    pub(super) fn counted(&self) -> Counted {
        let held = self.said().and_then(|said| said.held.as_ref()).map(|held| held.reason);
        Counted { held, refused: self.refused.as_ref().map(|refusal| refusal.reason.label()) }
    }

    /// Why it is not manageable.
    pub(super) fn refused(&self) -> Option<&Refusal> {
        self.refused.as_ref()
    }

    /// The assignment in force; `None` when it is nobody's.
    pub(super) fn said(&self) -> Option<&Arc<Assignment>> {
        match &self.phase {
            Phase::Unassigned | Phase::Retiring { .. } => None,
            Phase::Assigned { said, .. } => Some(said),
        }
    }

    /// What it was told last, and has not answered if that was that it is nobody's.
    pub(super) fn last_said(&self) -> Option<&Arc<Assignment>> {
        match &self.phase {
            Phase::Unassigned => None,
            Phase::Assigned { said, .. } | Phase::Retiring { said, .. } => Some(said),
        }
    }

    /// Whether nothing needs to be known of it any more.
    pub(super) fn is_over(&self) -> bool {
        match &self.phase {
            Phase::Unassigned => self.refused.is_none(),
            Phase::Assigned { .. } | Phase::Retiring { .. } => false,
        }
    }

    /// It is not to be written: lets go of it.
    pub(super) fn refuse(&mut self, term: Term, reason: NotManageable, claims: &Claims, out: &mut Vec<Out>) {
        self.release_assignment(term, out);
        let services = claims.iter().map(|(uid, fact)| (uid.clone(), fact.key.clone())).collect();
        self.refused = Some(Refusal { reason, services });
    }

    /// It is nobody's.
    pub(super) fn release(&mut self, term: Term, out: &mut Vec<Out>) {
        self.release_assignment(term, out);
        self.refused = None;
    }

    fn release_assignment(&mut self, term: Term, out: &mut Vec<Out>) {
        let (said, ask_again) = match &self.phase {
            Phase::Unassigned | Phase::Retiring { .. } => return,
            Phase::Assigned { said, answer_due } => (said, *answer_due),
        };
        let empty = Arc::new(Assignment {
            epoch: term.epoch,
            opened: term.opened,
            services: BTreeMap::new(),
            level: Level::default(),
            paused: false,
            held: None,
            ..Assignment::clone(said)
        });
        out.push(Out::Assign(Arc::clone(&empty)));
        self.phase = Phase::Retiring { said: empty, ask_again };
        self.memory = Memory::default();
        self.deadline = None;
    }

    /// Works out its level and says it when it differs from what was last said. Tells whether the pool had no
    /// assignment before.
    pub(super) fn assign(&mut self, id: &PoolId, given: Given<'_>, out: &mut Vec<Out>) -> bool {
        self.refused = None;
        let new = Arc::new(self.work_out(id, &given));
        debug_assert!(new.is_sound(), "a level is the union of its shares");
        let before = self.said().cloned();
        if before.as_ref().is_some_and(|before| same(before, &new)) {
            return false;
        }
        out.push(Out::Assign(Arc::clone(&new)));
        let answer_due = match &self.phase {
            Phase::Unassigned => false,
            Phase::Assigned { answer_due, .. } => *answer_due,
            Phase::Retiring { .. } => true,
        };
        self.phase = Phase::Assigned { said: new, answer_due };
        before.is_none()
    }

    fn work_out(&mut self, id: &PoolId, given: &Given<'_>) -> Assignment {
        let Given { now, term, params, seen, observed_at, family, claims } = given;
        let (now, family, confirm) = (*now, *family, params.empty_confirm);
        let delay = if seen.unprobed { Duration::ZERO } else { params.removal_delay };
        let last = self.said().cloned();
        let observed = &seen.members;
        let (observed_at, guards) = (*observed_at, params.guards);
        let look = Look { now, family, claims, observed, observed_at, delay, confirm, guards };
        self.memory.look(&look, || match &last {
            Some(last) if !last.level.is_empty() => {
                last.level.required.keys().chain(&last.level.tolerated).copied().collect()
            }
            Some(_) | None => observed.clone(),
        });
        self.deadline = self.memory.deadline(now, delay);
        let staying = self.memory.staying(now, delay);
        let mut level = Level::default();
        let mut services = BTreeMap::new();
        for (uid, fact) in claims {
            let stays = |owners: &BTreeSet<ServiceUid>| {
                owners.contains(uid) || !owners.iter().any(|owner| claims.contains_key(owner))
            };
            let own = part(fact, family);
            let required: BTreeMap<IpAddr, Member> = own
                .into_iter()
                .flat_map(|part| &part.required)
                .map(|(ip, node)| {
                    let name = AddressName::new(node.name.shared());
                    (*ip, Member { name, node_ready: node.ready })
                })
                .collect();
            let tolerated: BTreeSet<IpAddr> = own
                .into_iter()
                .flat_map(|part| &part.tolerated)
                .chain(staying.iter().filter(|(_, owners)| stays(owners)).map(|(ip, _)| ip))
                .filter(|ip| !required.contains_key(ip))
                .copied()
                .collect();
            let share = Share {
                key: fact.key.clone(),
                revision: fact.revision,
                required: required.keys().copied().collect(),
                tolerated: tolerated.clone(),
                triggered: fact.triggered,
            };
            level.unite(&Level { required, tolerated, keeps_last: self.memory.keeps_last(guards) });
            services.insert(uid.clone(), share);
        }
        let held = self.memory.held().and_then(|mut held| {
            held.members.retain(|ip| !level.required.contains_key(ip));
            (!held.members.is_empty()).then_some(held)
        });
        Assignment {
            epoch: term.epoch,
            opened: term.opened,
            pool: id.clone(),
            family,
            source: Source::Kubernetes,
            services,
            level,
            provenance: claims.values().map(|fact| fact.provenance).max().unwrap_or_default(),
            paused: claims.values().any(|fact| fact.paused),
            held,
        }
    }

    /// Reports what has begun and was not told in this term.
    pub(super) fn tell(&mut self, id: &PoolId, out: &mut Vec<Out>) {
        let said = self.said().cloned();
        self.told.tell(id, self.refused.as_ref(), said.as_deref(), out);
    }

    /// What lasts is to be told again.
    pub(super) fn forget_told(&mut self) {
        self.told = Told::default();
    }

    /// Whether nothing is kept back that is to be told.
    #[cfg(test)]
    pub(super) fn has_told(&self) -> bool {
        self.told == Told::of(self.refused(), self.said().map(AsRef::as_ref))
    }

    /// A new term of leadership. What is in flight of the older one may never be answered, so a pool that lets
    /// go is told again (W8). Tells whether its assignment is to be worked out again.
    pub(super) fn new_term(&mut self, term: Term, out: &mut Vec<Out>) -> bool {
        match &mut self.phase {
            Phase::Unassigned => false,
            Phase::Assigned { .. } => true,
            Phase::Retiring { said, .. } => {
                let again = Arc::make_mut(said);
                (again.epoch, again.opened) = (term.epoch, term.opened);
                out.push(Out::Assign(Arc::clone(said)));
                false
            }
        }
    }

    /// The pool has let go of everything. Tells whether that was unexpected.
    pub(super) fn retired(&mut self, id: &PoolId, out: &mut Vec<Out>) -> bool {
        match &mut self.phase {
            Phase::Unassigned => return true,
            Phase::Assigned { said, answer_due } | Phase::Retiring { said, ask_again: answer_due @ true } => {
                *answer_due = false;
                out.push(Out::Assign(Arc::clone(said)));
            }
            Phase::Retiring { .. } => {
                self.phase = Phase::Unassigned;
                out.push(Out::Forget(id.clone()));
            }
        }
        false
    }
}

/// Whether two assignments say the same, node readiness and revisions included.
fn same(one: &Assignment, other: &Assignment) -> bool {
    let Assignment { epoch, opened, pool, family, source, services, level, provenance, paused, held } = one;
    *epoch == other.epoch
        && *opened == other.opened
        && *pool == other.pool
        && *family == other.family
        && *source == other.source
        && *services == other.services
        && level.required == other.level.required
        && level.tolerated == other.level.tolerated
        && level.keeps_last == other.level.keeps_last
        && *provenance == other.provenance
        && *paused == other.paused
        && *held == other.held
}
