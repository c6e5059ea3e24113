//! The first look: in each term a load balancer must have been seen at rest before anything is written there
//! (docs/design/writer.md, W1, W2; W8).
//!
//! What an older term has begun, of this process or of another one, may still run, and must not be superseded. A
//! pool shows only the operations on itself; the load balancer shows *Updating* while one runs on any of its pools.
//! So a lane in which something is due waits until a GET of the load balancer that began in this term has shown no
//! operation: one of discovery's, which reads them all when a term begins, else one of the writer's own. What is
//! closed for this reason is not ready, so that neither turn nor the shared Lease is taken for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::arm::{ArmAnswer, LbFacts, Provisioning};
use model::ids::{CallId, LbName};
use model::machine::{Now, step_of};

use super::classify::{Class, Stage, classify};
use super::in_flight::Purpose;
use super::lane::Lane;
use super::write::FOREIGN_DELAYS;
use super::{Life, Writer};

/// How often a load balancer is looked at: with the waits between them, for about a quarter of an hour. One that
/// cannot be read must not stay closed forever; the GET and `If-Match` of each write stay.
const MOST_LOOKS: u32 = 32;

/// Whether a lane's load balancer has been seen at rest in the present term.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InitialRead {
    /// It has.
    AtRest,
    /// It has not.
    Unseen {
        /// How often it was looked at.
        looks: u32,
        /// What comes next.
        step: Step,
    },
}

/// What comes next for a load balancer that is to be looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A look, as soon as something could be granted.
    Due,
    /// Nothing before this moment.
    Until(Now),
    /// The answer to a look.
    Asked,
}

impl Default for InitialRead {
    fn default() -> InitialRead {
        InitialRead::Unseen { looks: 0, step: Step::Due }
    }
}

impl InitialRead {
    /// Whether it is to be looked at as soon as something could be granted.
    pub(super) fn is_due(self) -> bool {
        match self {
            InitialRead::Unseen { step: Step::Due, .. } => true,
            InitialRead::AtRest | InitialRead::Unseen { step: Step::Until(_) | Step::Asked, .. } => false,
        }
    }

    /// Whether the answer to a look is waited for.
    pub(super) fn is_asked(self) -> bool {
        match self {
            InitialRead::Unseen { step: Step::Asked, .. } => true,
            InitialRead::AtRest | InitialRead::Unseen { step: Step::Due | Step::Until(_), .. } => false,
        }
    }

    /// When it is looked at again.
    pub(super) fn deadline(self) -> Option<Now> {
        match self {
            InitialRead::Unseen { step: Step::Until(until), .. } => Some(until),
            InitialRead::AtRest | InitialRead::Unseen { step: Step::Due | Step::Asked, .. } => None,
        }
    }

    /// Until when it keeps its lane closed, as far as can be said now; `None`: it does not, or nothing is due there.
    pub(super) fn closed_until(self, now: Now) -> Option<Now> {
        match self {
            InitialRead::AtRest | InitialRead::Unseen { step: Step::Due, .. } => None,
            InitialRead::Unseen { step: Step::Until(until), .. } => Some(until),
            InitialRead::Unseen { step: Step::Asked, .. } => Some(now),
        }
    }

    /// Takes in the time.
    pub(super) fn wake(&mut self, now: Now) {
        match self {
            InitialRead::Unseen { step, .. } => {
                if matches!(step, Step::Until(until) if *until <= now) {
                    *step = Step::Due;
                }
            }
            InitialRead::AtRest => {}
        }
    }

    fn ask(&mut self) {
        match self {
            InitialRead::Unseen { step, .. } => *step = Step::Asked,
            InitialRead::AtRest => {}
        }
    }

    /// After a look that did not show it at rest: later again, or, after the last of them, as if it had.
    fn look_again(&mut self, now: Now) {
        match self {
            InitialRead::Unseen { looks, .. } if *looks + 1 >= MOST_LOOKS => *self = InitialRead::AtRest,
            InitialRead::Unseen { looks, step } => {
                *step = Step::Until(now.plus(delay(*looks)));
                *looks += 1;
            }
            InitialRead::AtRest => {}
        }
    }
}

/// How long after a look the next one is: as for any foreign operation (W2).
fn delay(looks: u32) -> Duration {
    step_of(&FOREIGN_DELAYS, looks)
}

/// What was seen of the load balancers in the present term.
#[derive(Clone, Debug)]
pub(super) struct Sights {
    /// Calls up to this one began in an older term.
    older: CallId,
    /// The load balancers that were seen at rest.
    at_rest: BTreeSet<LbName>,
    /// Those on which a PUT of an older term was answered in this one: what calls up to this one have seen says
    /// nothing about what that PUT began.
    disturbed: BTreeMap<LbName, CallId>,
}

impl Sights {
    /// Nothing, in a term that begins after this call.
    pub(super) fn after(older: CallId) -> Sights {
        Sights { older, at_rest: BTreeSet::new(), disturbed: BTreeMap::new() }
    }

    /// Whether a load balancer was seen at rest.
    pub(super) fn is_at_rest(&self, lb: &LbName) -> bool {
        self.at_rest.contains(lb)
    }

    /// Whether what this call has seen counts in this term.
    fn counts(&self, lb: &LbName, call: CallId) -> bool {
        call > *self.disturbed.get(lb).unwrap_or(&self.older)
    }
}

impl Writer {
    /// The lane of a load balancer, made where there was none.
    pub(super) fn lane(&mut self, lb: &LbName) -> &mut Lane {
        let sights = &self.sights;
        self.lanes.entry(lb.clone()).or_insert_with(|| {
            let sight = if sights.is_at_rest(lb) { InitialRead::AtRest } else { InitialRead::default() };
            Lane::new(sight)
        })
    }

    /// Forgets what older terms have seen; what follows from that for the lanes is the caller's.
    pub(super) fn close_eyes(&mut self) {
        self.sights = Sights::after(self.calls.last());
        self.calls.take_out(|purpose| matches!(purpose, Purpose::Look(_)));
        for lane in self.lanes.values_mut() {
            lane.sight = InitialRead::default();
        }
    }

    /// A PUT of an older term was answered: what it has begun may run unseen by the reads under way.
    pub(super) fn disturbed(&mut self, lb: &LbName) {
        self.sights.at_rest.remove(lb);
        self.sights.disturbed.insert(lb.clone(), self.calls.last());
        if let Some(lane) = self.lanes.get_mut(lb) {
            lane.sight = InitialRead::default();
        }
    }

    /// Asks for the looks that are due.
    pub(super) fn look_around(&mut self) {
        if self.life != Life::Running || !self.standing.leads() {
            return;
        }
        for lb in std::mem::take(&mut self.unseen) {
            if let Some(lane) = self.lanes.get_mut(&lb) {
                lane.sight.ask();
                // One of a lane that has gone meanwhile may still wait for a token.
                self.calls.take_out(|purpose| matches!(purpose, Purpose::Look(other) if *other == lb));
                self.calls.queue(Purpose::Look(lb.clone()));
                self.touch(&lb);
            }
        }
    }

    /// Takes in what a GET of a load balancer has shown, one of discovery's or a look: at rest, or that it is not
    /// there, opens its lane.
    pub(super) fn note_sight(
        &mut self,
        now: Now,
        call: CallId,
        lb: &LbName,
        is_look: bool,
        answer: &ArmAnswer,
    ) {
        if !self.standing.leads() || !self.sights.counts(lb, call) {
            return;
        }
        let at_rest = match answer {
            ArmAnswer::LoadBalancer(facts) => shows_rest(facts),
            // The GETs of the pools say the rest.
            ArmAnswer::Failed(failure) => classify(failure, Stage::Read) == Class::Stale,
            ArmAnswer::Pool(_) | ArmAnswer::Put(_) | ArmAnswer::Operation(_) | ArmAnswer::Withheld => false,
        };
        if at_rest {
            self.at_rest(lb);
        } else if is_look && let Some(lane) = self.lanes.get_mut(lb).filter(|lane| lane.sight.is_asked()) {
            lane.sight.look_again(now);
            if lane.sight == InitialRead::AtRest {
                self.at_rest(lb);
            }
        }
    }

    /// A load balancer counts as seen at rest in this term.
    pub(super) fn at_rest(&mut self, lb: &LbName) {
        self.sights.at_rest.insert(lb.clone());
        if let Some(lane) = self.lanes.get_mut(lb) {
            lane.sight = InitialRead::AtRest;
        }
    }

    /// The invariant: a lane knows what was seen, and those that want a look are known.
    pub(super) fn sights_are_consistent(&self) -> bool {
        let known =
            |(lb, lane): (&LbName, &Lane)| (lane.sight == InitialRead::AtRest) == self.sights.is_at_rest(lb);
        let wanting = self.lanes.iter().filter(|(_, lane)| lane.wants_look()).map(|(lb, _)| lb);
        self.lanes.iter().all(known) && wanting.eq(&self.unseen)
    }
}

/// Whether no operation runs on a load balancer.
pub(super) fn shows_rest(facts: &LbFacts) -> bool {
    let rests = |provisioning| match provisioning {
        Provisioning::Updating => false,
        Provisioning::Succeeded | Provisioning::Failed | Provisioning::Unknown => true,
    };
    rests(facts.provisioning) && facts.pools.iter().all(|pool| rests(pool.provisioning))
}
