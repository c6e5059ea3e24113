//! One pool: its assignment, the level that its Services, the removal delay and the guards make, and what was last sent
//! (D2, D4, D6, G2).

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::breaker::{PauseScope, PoolSize};
use super::conditions::Conditions;
use super::gauges::GaugeReasons;
use super::guard_inputs::{GuardInputs, Owners, asks, part};
use super::mapping::BalancerPool;
use super::pool_inputs::{Ownership, PoolInputs, Unproven};
use super::removal_guard::RemovalGuard;
use super::{Out, Term, pins};
use model::assignment::{Assignment, Held, HeldReason, Observation, PausedBy, Share, Waits};
use model::error::NotManageable;
use model::ids::{AddressName, Family, PoolId, PoolName, ServiceKey, ServiceUid};
use model::level::{Level, Member, Provenance, SurplusPolicy};
use model::machine::{Now, earliest};
use model::proof;
use model::services::ServiceFact;

/// A pool to which a candidate's rule sends, or which has not yet retired.
#[derive(Default)]
pub(super) struct Pool {
    phase: Phase,
    /// The reason why the pool is not manageable.
    refused: Option<Unproven>,
    reported: Conditions,
    guard: RemovalGuard,
    /// The assignment that this turn computed and has not sent yet.
    computed: Option<Box<ComputedAssignment>>,
    /// When time alone changes the level.
    pub(super) deadline: Option<Now>,
    /// The earliest time from which a second read would end the holding back (G1).
    pub(super) read_from: Option<Now>,
}

/// A pool's new assignment, before the breaker evaluates it together with all others (G4).
struct ComputedAssignment {
    assignment: Assignment,
    /// The members that may be in the pool.
    present: BTreeSet<IpAddr>,
    /// The observation, if it was not passed on.
    observation: Option<Observation>,
    deadline: Option<Now>,
    read_from: Option<Now>,
    /// Whether the assignment bypasses every guard, as its source is configured (X3).
    is_unguarded: bool,
}

/// Limits on removals that apply to every pool.
#[derive(Clone, Copy, Default)]
pub(super) struct RemovalPolicy {
    /// No removals, because too many pools would lose members (G4).
    pub(super) breaker: bool,
    /// No removals in this mode (G6).
    pub(super) add_only: bool,
    /// Guards only observe, so that the breaker holds nothing back (G5).
    pub(super) observes: bool,
}

#[derive(Default)]
enum Phase {
    /// No assignment.
    #[default]
    Unassigned,
    /// The level was sent.
    Assigned {
        sent: Arc<Assignment>,
        /// Whether the pool may still answer an earlier assignment without an owner.
        answer_due: bool,
    },
    /// The pool was assigned without an owner and has not answered.
    Retiring {
        sent: Arc<Assignment>,
        /// Whether the next answer may belong to an earlier such assignment, so that the pool must be asked again.
        ask_again: bool,
    },
}

/// Determines who owns a pool (D2).
pub(super) fn ownership(pool: &PoolName, seen: &BalancerPool, owners: Owners) -> Ownership {
    if owners.is_empty() {
        return Ownership::Nobody;
    }
    let named = |family| owners.values().any(|fact| fact.key.pool_name(family) == *pool);
    let family = match (named(Family::V4), named(Family::V6)) {
        (true, true) => return Ownership::Refused(NotManageable::MixedFamilies, owners),
        (false, true) => Family::V6,
        (true | false, false) => Family::V4,
    };
    let keys: BTreeMap<ServiceUid, ServiceKey> =
        owners.iter().map(|(uid, fact)| (uid.clone(), fact.key.clone())).collect();
    match proof::prove(&seen.facts, family, &keys) {
        Ok(()) => Ownership::Proven(family, owners, None),
        Err(reason) => Ownership::Refused(reason, owners),
    }
}

impl Pool {
    /// Returns the gauges under which the pool counts.
    pub(super) fn gauge_reasons(&self) -> GaugeReasons {
        let sent = self.assignment();
        let held = sent.and_then(|sent| sent.held.as_ref()).map(|held| held.reason);
        let would_hold = sent.and_then(|sent| sent.would_hold.as_ref()).map(|held| held.reason);
        GaugeReasons {
            held,
            would_hold,
            refused: self.refused.as_ref().map(|refusal| refusal.reason.label()),
        }
    }

    /// Returns why the pool is not manageable.
    pub(super) fn refused(&self) -> Option<&Unproven> {
        self.refused.as_ref()
    }

    /// Returns the assignment in force; `None` when the pool has no owner.
    pub(super) fn assignment(&self) -> Option<&Arc<Assignment>> {
        match &self.phase {
            Phase::Unassigned | Phase::Retiring { .. } => None,
            Phase::Assigned { sent, .. } => Some(sent),
        }
    }

    /// Returns the assignment that was sent last. If it has no owner, the pool has not answered it.
    pub(super) fn last_sent(&self) -> Option<&Arc<Assignment>> {
        match &self.phase {
            Phase::Unassigned => None,
            Phase::Assigned { sent, .. } | Phase::Retiring { sent, .. } => Some(sent),
        }
    }

    /// Returns whether the release of an address is in doubt (G1).
    pub(super) fn is_doubted(&self) -> bool {
        self.guard.is_doubted()
    }

    /// Returns whether the Directory may drop the pool.
    pub(super) fn is_over(&self) -> bool {
        match &self.phase {
            Phase::Unassigned => self.refused.is_none(),
            Phase::Assigned { .. } | Phase::Retiring { .. } => false,
        }
    }

    /// Marks the pool as not manageable and releases it.
    pub(super) fn refuse(&mut self, term: Term, refusal: Unproven, out: &mut Vec<Out>) {
        self.release_assignment(term, out);
        self.refused = Some(refusal);
    }

    /// Releases the pool because it has no owner any more.
    pub(super) fn retire(&mut self, term: Term, out: &mut Vec<Out>) {
        self.release_assignment(term, out);
        self.refused = None;
    }

    fn release_assignment(&mut self, term: Term, out: &mut Vec<Out>) {
        let (sent, ask_again) = match &self.phase {
            Phase::Unassigned | Phase::Retiring { .. } => return,
            Phase::Assigned { sent, answer_due } => (sent, *answer_due),
        };
        let empty = Arc::new(Assignment {
            epoch: term.epoch,
            opened: term.opened,
            services: BTreeMap::new(),
            level: Level::default(),
            paused: BTreeSet::new(),
            held: None,
            would_hold: None,
            overruled: None,
            ..Assignment::clone(sent)
        });
        out.push(Out::Assign(Arc::clone(&empty)));
        self.phase = Phase::Retiring { sent: empty, ask_again };
        self.guard = RemovalGuard::default();
        (self.deadline, self.read_from) = (None, None);
    }

    /// Computes the level, which [`Pool::send`] sends once all pools of the turn are evaluated. `observation` is set if
    /// it was not passed on. Returns the sizes that the breaker compares.
    pub(super) fn compute(
        &mut self,
        id: &PoolId,
        inputs: &PoolInputs<'_>,
        observation: Option<Observation>,
    ) -> PoolSize {
        let assignment = match (&inputs.params.pins, &inputs.listed) {
            (Some(pins), _) => pins::assignment(id, inputs, pins),
            (None, Some(listed)) if listed.is_dropped => self.empty_assignment(id, inputs),
            (None, Some(_) | None) => self.compute_assignment(id, inputs),
        };
        debug_assert!(assignment.is_sound(), "a level is the union of its shares");
        let delay = inputs.delay();
        let present = self.guard.present(&inputs.seen.members);
        let level = &assignment.level;
        let is_unguarded = inputs.listed.as_ref().is_some_and(|listed| listed.is_dropped);
        // Members that no source ever asked for and that the other family brought do not count as former members (D4).
        let strays = inputs.strays(&self.guard);
        let is_had = |ip: &&IpAddr| !strays.contains(*ip);
        let had = |members: &BTreeSet<IpAddr>| members.iter().filter(is_had).count();
        // A removal that the configuration asks for is not a loss (G4, X3).
        let stays = inputs.add_only || is_unguarded;
        let goes: Vec<&IpAddr> =
            if stays { Vec::new() } else { level.surplus(&present).filter(is_had).collect() };
        let left = had(&present) + level.missing(&present).count() - goes.len();
        let losses = self.guard.losses();
        let size = PoolSize {
            left,
            lost: losses.len(),
            asked: level.required.len(),
            going: goes.into_iter().filter(|ip| losses.has(ip)).count(),
            seen: had(&inputs.seen.members),
            seen_at: inputs.seen.at,
            present: had(&present),
            paused: paused(&inputs.paused),
            by_config: is_unguarded,
        };
        self.computed = Some(Box::new(ComputedAssignment {
            present,
            observation,
            deadline: earliest(
                self.guard.deadline(inputs.now, delay),
                inputs.listed.as_ref().and_then(|listed| listed.deadline),
            ),
            read_from: self.guard.read_from(inputs.now, delay),
            assignment,
            is_unguarded,
        }));
        size
    }

    /// Sends the assignment of this turn if it differs from the last one.
    pub(super) fn send(&mut self, id: &PoolId, now: Now, policy: RemovalPolicy, out: &mut Vec<Out>) {
        let Some(computed) = self.computed.take().map(|computed| *computed) else {
            return;
        };
        self.refused = None;
        (self.deadline, self.read_from) = (computed.deadline, computed.read_from);
        let before = self.assignment().cloned();
        let policy = RemovalPolicy { breaker: policy.breaker && !computed.is_unguarded, ..policy };
        let mut new = computed.assignment;
        hold_back(&mut new, policy, now, before.as_deref(), &computed.present);
        debug_assert!(new.is_sound(), "what is held back may stay");
        if !before.as_ref().is_some_and(|before| same(before, &new)) {
            let new = Arc::new(new);
            out.push(Out::Assign(Arc::clone(&new)));
            let answer_due = match &self.phase {
                Phase::Unassigned => false,
                Phase::Assigned { answer_due, .. } => *answer_due,
                Phase::Retiring { .. } => true,
            };
            self.phase = Phase::Assigned { sent: new, answer_due };
        }
        if let Some(observation) = computed.observation {
            out.push(Out::Observe(id.clone(), observation));
        }
    }

    /// Releases the removals that the pool's own guards hold back, on the operator's request. The level must be
    /// computed again.
    pub(super) fn release(&mut self) {
        self.guard.release();
    }

    /// Releases the losses that the breaker counts for the pool, on the operator's request.
    pub(super) fn release_losses(&mut self) {
        self.guard.release_losses();
    }

    fn compute_assignment(&mut self, id: &PoolId, inputs: &PoolInputs<'_>) -> Assignment {
        let PoolInputs { now, term, params, seen, family, owners, .. } = inputs;
        let (now, family, mode, delay) = (*now, *family, params.guards, inputs.delay());
        let last = self.assignment().cloned();
        let observed = &seen.members;
        let guard_inputs = GuardInputs {
            now,
            family,
            owners,
            observed,
            observed_at: inputs.seen.at,
            delay,
            confirm: params.empty_confirm,
            mode,
            max_removal: params.max_removal,
            confirmation: inputs.confirmation(),
            room: inputs.room(&self.guard.present(observed)),
            paused: !inputs.paused.is_empty(),
            compared_at: inputs.stopped.unwrap_or(now),
        };
        self.guard.evaluate(&guard_inputs, || match &last {
            Some(last) if !last.level.is_empty() => {
                last.level.required.keys().chain(&last.level.tolerated).copied().collect()
            }
            Some(_) | None => observed.clone(),
        });
        let (level, services) = self.shares(inputs);
        let is_asked = |ip: &IpAddr| owners.values().any(|fact| asks(fact, family, ip));
        let held = self.guard.held(now, delay).and_then(|mut held| {
            held.members.retain(|ip| !is_asked(ip));
            (!held.members.is_empty()).then_some(held)
        });
        // A removal for lack of facts is held back in every mode (D6).
        let observes = |held: &Held| mode.only_observes() && held.reason != HeldReason::NoUsableNode;
        let (would_hold, held) = match held {
            Some(held) if observes(&held) => (Some(held), None),
            held => (None, held),
        };
        Assignment {
            epoch: term.epoch,
            opened: term.opened,
            pool: id.clone(),
            family,
            source: inputs.source(),
            services,
            level,
            provenance: owners.values().map(|fact| fact.provenance).max().unwrap_or_default(),
            paused: inputs.paused.clone(),
            held,
            would_hold,
            overruled: None,
        }
    }

    /// Returns the share of each Service: the members that it asks for, and the members that stay for it. Also
    /// returns the union of the shares.
    fn shares(&self, inputs: &PoolInputs<'_>) -> (Level, BTreeMap<ServiceUid, Share>) {
        let (owners, family, mode) = (&inputs.owners, inputs.family, inputs.params.guards);
        let room = inputs.room(&self.guard.present(&inputs.seen.members));
        let staying = self.guard.staying(inputs.now, inputs.delay(), mode, room);
        let mut level = Level::default();
        let mut services = BTreeMap::new();
        for (uid, fact) in owners {
            let stays = |of: &BTreeSet<ServiceUid>| {
                of.contains(uid) || !of.iter().any(|owner| owners.contains_key(owner))
            };
            let own = part(fact, family);
            let required: BTreeMap<IpAddr, Member> = own
                .required
                .iter()
                .map(|(ip, node)| {
                    let name = AddressName::new(node.name.shared());
                    (*ip, Member { name, node_ready: node.ready })
                })
                .collect();
            let tolerated: BTreeSet<IpAddr> = own
                .tolerated
                .iter()
                .chain(staying.iter().filter(|(_, of)| stays(of)).map(|(ip, _)| ip))
                .filter(|ip| !required.contains_key(ip))
                .copied()
                .collect();
            let share = Share {
                key: fact.key.clone(),
                revision: fact.revision,
                required: required.keys().copied().collect(),
                tolerated: tolerated.clone(),
                triggered: fact.triggered,
                read: fact.read,
            };
            let keeps = self.guard.keeps(mode);
            level.unite(&Level { required, tolerated, keeps, ..Level::default() });
            services.insert(uid.clone(), share);
        }
        if let Some(listed) = &inputs.listed {
            level.states.clone_from(&listed.states);
        }
        level.other_family = inputs.of_other_family().filter(|ip| !level.allows(ip)).copied().collect();
        (level, services)
    }

    /// Returns the assignment of a pool whose source must not be used any more: it empties the pool at once (X3).
    fn empty_assignment(&mut self, id: &PoolId, inputs: &PoolInputs<'_>) -> Assignment {
        self.guard = RemovalGuard::default();
        let share = |fact: &ServiceFact| Share {
            key: fact.key.clone(),
            revision: fact.revision,
            required: BTreeSet::new(),
            tolerated: BTreeSet::new(),
            triggered: fact.triggered,
            read: fact.read,
        };
        Assignment {
            epoch: inputs.term.epoch,
            opened: inputs.term.opened,
            pool: id.clone(),
            family: inputs.family,
            source: inputs.source(),
            services: inputs.owners.iter().map(|(uid, fact)| (uid.clone(), share(fact))).collect(),
            level: Level::default(),
            provenance: Provenance::Watch,
            paused: inputs.paused.clone(),
            held: None,
            would_hold: None,
            overruled: None,
        }
    }

    /// Reports the conditions that were not reported in this term.
    pub(super) fn report(&mut self, id: &PoolId, out: &mut Vec<Out>) {
        let sent = self.assignment().cloned();
        let excluded = |family: Family, held: &Held| self.guard.excluded(family, held);
        self.reported.report(id, self.refused.as_ref(), sent.as_deref(), excluded, out);
    }

    /// Makes lasting conditions due for a report again.
    pub(super) fn reset_reports(&mut self) {
        self.reported = Conditions::default();
    }

    /// Returns whether no condition waits for its report.
    #[cfg(test)]
    pub(super) fn has_reported(&self) -> bool {
        self.reported == Conditions::of(self.refused(), self.assignment().map(AsRef::as_ref))
    }

    /// Begins a new term. Requests of the older term may never be answered, so a retiring pool is asked again (W8).
    /// Returns whether its assignment is to be computed again.
    pub(super) fn begin_term(&mut self, term: Term, out: &mut Vec<Out>) -> bool {
        match &mut self.phase {
            Phase::Unassigned => false,
            Phase::Assigned { .. } => true,
            Phase::Retiring { sent, .. } => {
                let again = Arc::make_mut(sent);
                (again.epoch, again.opened) = (term.epoch, term.opened);
                out.push(Out::Assign(Arc::clone(sent)));
                false
            }
        }
    }

    /// Processes the pool's answer that it has released everything. Returns whether the answer was unexpected.
    pub(super) fn retired(&mut self, id: &PoolId, out: &mut Vec<Out>) -> bool {
        match &mut self.phase {
            Phase::Unassigned => return true,
            Phase::Assigned { sent, answer_due } | Phase::Retiring { sent, ask_again: answer_due @ true } => {
                *answer_due = false;
                out.push(Out::Assign(Arc::clone(sent)));
            }
            Phase::Retiring { .. } => {
                self.phase = Phase::Unassigned;
                out.push(Out::Forget(id.clone()));
            }
        }
        false
    }
}

/// Returns how far the pool is paused, as the breaker counts it.
fn paused(by: &BTreeSet<PausedBy>) -> PauseScope {
    let of_all = |by: &PausedBy| match by {
        PausedBy::Mode | PausedBy::Everything => true,
        PausedBy::NotInRestore | PausedBy::Pool | PausedBy::Service(_) | PausedBy::Annotation(_) => false,
    };
    if by.is_empty() {
        PauseScope::No
    } else if by.iter().any(of_all) {
        PauseScope::WithAll
    } else {
        PauseScope::Alone
    }
}

/// Holds back removals that no pool may make now (G4, G6). Removals that a guard of the pool already holds back stay
/// with that guard.
fn hold_back(
    new: &mut Assignment,
    policy: RemovalPolicy,
    now: Now,
    before: Option<&Assignment>,
    present: &BTreeSet<IpAddr>,
) {
    let going: BTreeSet<IpAddr> = new.level.surplus(present).copied().collect();
    let held = |reason: HeldReason, of: fn(&Assignment) -> Option<&Held>| {
        let lasting = before.and_then(of).filter(|held| held.reason == reason);
        let since = lasting.map_or(now, |held| held.since);
        (!going.is_empty()).then(|| Held { reason, since, waits: Waits::Facts, members: going.clone() })
    };
    if policy.breaker && policy.observes {
        let would_hold = || held(HeldReason::Breaker, |sent| sent.would_hold.as_ref());
        new.would_hold = new.would_hold.take().or_else(would_hold);
    } else if policy.breaker {
        new.held = new.held.take().or_else(|| held(HeldReason::Breaker, |sent| sent.held.as_ref()));
        new.level.keeps = SurplusPolicy::KeepAll;
    }
    if policy.add_only {
        new.held = new.held.take().or_else(|| held(HeldReason::AddOnly, |sent| sent.held.as_ref()));
        new.level.keeps = SurplusPolicy::KeepAll;
    }
}

/// Compares two assignments, node readiness and revisions included.
fn same(one: &Assignment, other: &Assignment) -> bool {
    let Assignment {
        epoch,
        opened,
        pool,
        family,
        source,
        services,
        level,
        provenance,
        paused,
        held,
        would_hold,
        overruled,
    } = one;
    *epoch == other.epoch
        && *opened == other.opened
        && *pool == other.pool
        && *family == other.family
        && *source == other.source
        && *services == other.services
        && level.required == other.level.required
        && level.tolerated == other.level.tolerated
        && level.keeps == other.level.keeps
        && level.states == other.level.states
        && level.other_family == other.level.other_family
        && *provenance == other.provenance
        && *paused == other.paused
        && *held == other.held
        && *would_hold == other.would_hold
        && *overruled == other.overruled
}
