//! A lane: the serial order of writes on one load balancer, and what keeps it closed (docs/design/writer.md, W1, W4,
//! W6).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use model::arm::{LbFacts, Provisioning};
use model::ids::{LbName, PoolId, PoolName};
use model::machine::{Now, earliest, step_of};
use model::view::LaneView;

use super::AdminUrgency;
use super::initial_read::InitialRead;
use super::slot::{Rank, Slot};
use super::write::{FOREIGN_DELAYS, Write};

/// One grant of a lane in this many goes to what has waited longest (W1).
const FAIR_GRANT: u64 = 4;

/// How long after a lost answer, and after each look that did not settle it, the pool is looked at (W4).
pub(super) const PROBE_DELAY: Duration = Duration::from_secs(5);

/// The longest time between two such looks.
const PROBE_DELAY_MAX: Duration = Duration::from_secs(30);
/// How often a lane in doubt is looked at: with the waits between them, for about 15 minutes.
const MOST_LOOKS: u32 = 32;

/// The lane of one load balancer.
#[derive(Debug, Default)]
pub(super) struct Lane {
    slots: BTreeMap<PoolName, Slot>,
    /// The slots that may be granted, in the order of urgency, then waiting time, then name.
    order: BTreeSet<(Rank, Now, PoolName)>,
    /// The same slots by waiting time.
    ages: BTreeSet<(Now, PoolName)>,
    /// Those of them with an admin part, by its urgency, whether it is asked for again, and its waiting time.
    admins: BTreeSet<(AdminUrgency, bool, Now, PoolName)>,
    /// How many of the slots that may be granted have a membership part.
    memberships: usize,
    /// The slots that wait for a moment.
    deferred: BTreeSet<(Now, PoolName)>,
    grants: u64,
    /// The write under way.
    pub write: Option<Write>,
    /// Whether it may grant.
    pub closed: Closed,
    /// Whether it may grant in this term already.
    pub sight: InitialRead,
    /// Nothing goes without the shared Lease before this moment: another client was at work when that was last tried
    /// (W7).
    covered_until: Option<Now>,
    /// How often that was so since the lane was last granted under the shared Lease.
    covered: u32,
    /// What the writer has noted about it.
    pub noted: Noted,
}

/// Which of a lane's slots may be granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Eligible {
    /// Any.
    Any,
    /// Those with a membership part, whole.
    Members,
    /// Those with an admin part that is not only asked for again, whole: they have a claim to the reserve (W9).
    Admin,
    /// Those in which a node is to be cut out, and of them only that part: membership stays where it is, unless its
    /// attempt is already open.
    Down,
}

impl Eligible {
    /// What both let be granted; `None`: nothing.
    pub(super) fn and(self, other: Eligible) -> Option<Eligible> {
        match (self, other) {
            (Eligible::Any, pick) | (pick, Eligible::Any) => Some(pick),
            (Eligible::Members, Eligible::Members) => Some(Eligible::Members),
            (Eligible::Members, Eligible::Admin | Eligible::Down)
            | (Eligible::Admin | Eligible::Down, Eligible::Members) => None,
            (Eligible::Admin, Eligible::Admin) => Some(Eligible::Admin),
            (Eligible::Admin | Eligible::Down, Eligible::Down) | (Eligible::Down, Eligible::Admin) => {
                Some(Eligible::Down)
            }
        }
    }
}

/// What the writer's totals and timers contain of a lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Noted {
    /// Whether it is counted as busy.
    pub busy: bool,
    /// How many of its slots are counted as waiting.
    pub waiting: usize,
    /// The deadline that is armed for it.
    pub deadline: Option<Now>,
}

/// Whether a lane may grant.
#[derive(Clone, Debug, Default)]
pub(super) enum Closed {
    /// It may.
    #[default]
    Open,
    /// Another operation holds the load balancer's lock (W6).
    Until(Now),
    /// A PUT was sent and its fate is not known: closed until a GET shows that nothing runs (W4).
    InDoubt {
        /// The pool that was written.
        pool: PoolId,
        /// How often it was looked at.
        looks: u32,
        /// When it is looked at next; `None`: a look is under way.
        next: Option<Now>,
    },
}

impl Closed {
    /// Closed after the answer to a PUT of this pool was lost.
    pub(super) fn in_doubt(now: Now, pool: PoolId) -> Closed {
        Closed::InDoubt { pool, looks: 0, next: Some(now.plus(PROBE_DELAY)) }
    }

    /// After a look that did not settle it: later again.
    pub(super) fn look_again(&mut self, now: Now) {
        match self {
            Closed::InDoubt { looks, next, .. } => {
                *looks += 1;
                *next = Some(now.plus((PROBE_DELAY * *looks).min(PROBE_DELAY_MAX)));
            }
            Closed::Open | Closed::Until(_) => {}
        }
    }

    /// Whether it has been looked at so often, for a quarter of an hour, that no look will settle it: a pool that
    /// cannot be read must not close its load balancer forever. The GET and `If-Match` of each write stay.
    pub(super) fn is_past_looking(&self) -> bool {
        match self {
            Closed::InDoubt { looks, .. } => *looks >= MOST_LOOKS,
            Closed::Open | Closed::Until(_) => false,
        }
    }

    fn deadline(&self) -> Option<Now> {
        match self {
            Closed::Open => None,
            Closed::Until(until) => Some(*until),
            Closed::InDoubt { next, .. } => *next,
        }
    }

    fn is_open(&self) -> bool {
        match self {
            Closed::Open => true,
            Closed::Until(_) | Closed::InDoubt { .. } => false,
        }
    }
}

impl Lane {
    /// One in which nothing is due, of a load balancer of which this was seen.
    pub(super) fn new(sight: InitialRead) -> Lane {
        Lane { sight, ..Lane::default() }
    }

    /// Changes a pool's slot and puts it in its place; an emptied slot goes.
    pub(super) fn edit(&mut self, pool: &PoolName, change: impl FnOnce(&mut Slot)) {
        let (name, mut slot) =
            self.slots.remove_entry(pool).unwrap_or_else(|| (pool.clone(), Slot::default()));
        if let Some(keys) = keys(&slot) {
            match slot.deferred() {
                Some(until) => {
                    self.deferred.remove(&(until, name.clone()));
                }
                None => {
                    self.order.remove(&(keys.rank, keys.since, name.clone()));
                    self.ages.remove(&(keys.age, name.clone()));
                    if let Some((urgency, again, since)) = keys.admin {
                        self.admins.remove(&(urgency, again, since, name.clone()));
                    }
                    self.memberships -= usize::from(slot.membership.is_some());
                }
            }
        }
        change(&mut slot);
        let Some(keys) = keys(&slot) else { return };
        match slot.deferred() {
            Some(until) => {
                self.deferred.insert((until, name.clone()));
            }
            None => {
                self.order.insert((keys.rank, keys.since, name.clone()));
                self.ages.insert((keys.age, name.clone()));
                if let Some((urgency, again, since)) = keys.admin {
                    self.admins.insert((urgency, again, since, name.clone()));
                }
                self.memberships += usize::from(slot.membership.is_some());
            }
        }
        self.slots.insert(name, slot);
    }

    /// Takes out the slot whose turn it is, of those that may be granted (W1).
    pub(super) fn grant(&mut self, pick: Eligible) -> Option<(PoolName, Slot)> {
        self.grants += 1;
        (self.covered_until, self.covered) = (None, 0);
        let fair = self.grants.is_multiple_of(FAIR_GRANT);
        let takes = |pool: &PoolName| self.slots.get(pool).is_some_and(|slot| slot.membership.is_some());
        let pool = match pick {
            Eligible::Any if fair => self.ages.first().map(|(_, pool)| pool.clone()),
            Eligible::Any => self.order.first().map(|(_, _, pool)| pool.clone()),
            Eligible::Members if fair => {
                self.ages.iter().map(|(_, pool)| pool).find(|pool| takes(pool)).cloned()
            }
            Eligible::Members => self.order.iter().map(|(_, _, pool)| pool).find(|pool| takes(pool)).cloned(),
            Eligible::Admin | Eligible::Down => self.first_admin(pick).cloned(),
        }?;
        let mut granted = None;
        self.edit(&pool, |slot| {
            granted = Some(match pick {
                Eligible::Any | Eligible::Members | Eligible::Admin => slot.take_granted(),
                Eligible::Down => slot.take_down(),
            });
        });
        granted.map(|slot| (pool, slot))
    }

    /// Takes out the part of a slot in which a node is to be cut out, that has been due since this moment at the
    /// latest and does not belong to a write whose attempt the pool has open.
    pub(super) fn grant_down(&mut self, due_by: Now) -> Option<(PoolName, Slot)> {
        let pool = self.bypassing(due_by)?.clone();
        let mut granted = None;
        self.edit(&pool, |slot| granted = Some(slot.take_down()));
        granted.map(|slot| (pool, slot))
    }

    /// Another client is at work here, or the last operation has failed: for a while, longer each time, nothing is
    /// granted without the shared Lease.
    pub(super) fn keep_covered(&mut self, now: Now) {
        self.covered_until = Some(now.plus(step_of(&FOREIGN_DELAYS, self.covered)));
        self.covered = self.covered.saturating_add(1);
    }

    /// The pool whose Down that would be.
    pub(super) fn bypassing(&self, due_by: Now) -> Option<&PoolName> {
        if self.covered_until.is_some() {
            return None;
        }
        let open = |pool: &PoolName| {
            let resume = self.slots.get(pool).and_then(|slot| slot.resume.as_ref());
            resume.is_some_and(|resume| resume.taken)
        };
        let downs = self.admins.iter().take_while(|(urgency, ..)| match urgency {
            AdminUrgency::Down => true,
            AdminUrgency::Restore => false,
        });
        downs.filter(|(_, _, since, _)| *since <= due_by).map(|(.., pool)| pool).find(|pool| !open(pool))
    }

    /// Whether there is a slot that may be granted.
    pub(super) fn has(&self, pick: Eligible) -> bool {
        match pick {
            Eligible::Any => !self.order.is_empty(),
            Eligible::Members => self.has_membership(),
            Eligible::Admin | Eligible::Down => self.first_admin(pick).is_some(),
        }
    }

    /// Whether there is a slot with a membership part that may be granted.
    pub(super) fn has_membership(&self) -> bool {
        self.memberships > 0
    }

    /// Whether there is a slot with an admin part that may be granted.
    pub(super) fn has_admin(&self) -> bool {
        !self.admins.is_empty()
    }

    fn first_admin(&self, pick: Eligible) -> Option<&PoolName> {
        let (urgency, again, _, pool) = self.admins.first()?;
        match (urgency, pick) {
            (AdminUrgency::Down | AdminUrgency::Restore, Eligible::Members)
            | (AdminUrgency::Restore, Eligible::Down) => None,
            (AdminUrgency::Down, Eligible::Any | Eligible::Down) | (AdminUrgency::Restore, Eligible::Any) => {
                Some(pool)
            }
            (AdminUrgency::Down | AdminUrgency::Restore, Eligible::Admin) if !again => Some(pool),
            (AdminUrgency::Down, Eligible::Admin) => self.first_restore(),
            (AdminUrgency::Restore, Eligible::Admin) => None,
        }
    }

    /// The first slot with a restore that was not asked for before.
    fn first_restore(&self) -> Option<&PoolName> {
        let restores = (AdminUrgency::Restore, false, Now::ZERO, PoolName::new(""));
        let (_, again, _, pool) = self.admins.range(restores..).next()?;
        (!again).then_some(pool)
    }

    /// The oldest draining set of which a PUT may be carried out yet. Of one in doubt it is not known (W4).
    pub(super) fn oldest_put(&self) -> Option<u64> {
        match self.closed {
            Closed::InDoubt { .. } => return Some(0),
            Closed::Open | Closed::Until(_) => {}
        }
        let open = self.write.iter().flat_map(Write::puts);
        let waiting = self.slots.values().filter_map(|slot| slot.resume.as_ref());
        let waiting = waiting.flat_map(|resume| &resume.course.unsure);
        open.chain(waiting).map(|put| put.draining.generation).min()
    }

    /// Takes in a look at the whole load balancer, sent at `began`: what it shows of a pool that is at rest is
    /// compared with what lost answers would have said, as far as those PUTs must have arrived by then (W4).
    pub(super) fn looked_at(&mut self, began: Now, facts: &LbFacts) {
        if facts.provisioning == Provisioning::Updating {
            return;
        }
        for (name, slot) in &mut self.slots {
            let Some(resume) = slot.resume.as_mut().filter(|resume| !resume.course.unsure.is_empty()) else {
                continue;
            };
            let seen = facts.pools.iter().find(|pool| pool.id.pool == *name);
            if let Some(pool) = seen.filter(|pool| pool.provisioning != Provisioning::Updating)
                && began >= resume.since.plus(PROBE_DELAY)
            {
                resume.course.seen(&pool.members());
            }
        }
    }

    /// The pools whose writes gave the lane back.
    pub(super) fn paused(&self) -> Vec<PoolName> {
        let paused = |(pool, slot): (&PoolName, &Slot)| slot.resume.is_some().then(|| pool.clone());
        self.slots.iter().filter_map(paused).collect()
    }

    /// Forgets what is due.
    pub(super) fn clear_slots(&mut self) {
        self.slots.clear();
        self.order.clear();
        self.ages.clear();
        self.admins.clear();
        self.memberships = 0;
        self.deferred.clear();
    }

    /// Whether something of this pool is due, or waits.
    pub(super) fn has_slot(&self, pool: &PoolName) -> bool {
        self.slots.contains_key(pool)
    }

    /// How many pools wait.
    pub(super) fn waiting(&self) -> usize {
        self.slots.len()
    }

    /// Whether it could be granted now.
    pub(super) fn is_ready(&self) -> bool {
        self.could_grant() && self.sight == InitialRead::AtRest
    }

    /// Whether it could be granted, were its load balancer seen at rest; and a look at that is due.
    pub(super) fn wants_look(&self) -> bool {
        self.could_grant() && self.sight.is_due()
    }

    fn could_grant(&self) -> bool {
        self.write.is_none() && self.closed.is_open() && !self.order.is_empty()
    }

    /// Whether there is nothing to know about it.
    pub(super) fn is_idle(&self) -> bool {
        self.write.is_none() && self.slots.is_empty() && self.closed.is_open()
    }

    /// Lets the slots go whose time has come, and opens what has ended.
    pub(super) fn wake(&mut self, now: Now) {
        while let Some((_, pool)) = self.deferred.first().filter(|(at, _)| *at <= now).cloned() {
            self.edit(&pool, |slot| slot.wake(now));
        }
        if let Closed::Until(until) = self.closed
            && until <= now
        {
            self.closed = Closed::Open;
        }
        self.covered_until.take_if(|until| *until <= now);
        self.sight.wake(now);
    }

    /// The next moment at which time alone changes something in it.
    pub(super) fn deadline(&self) -> Option<Now> {
        let write = self.write.as_ref().and_then(Write::deadline);
        let deferred = self.deferred.first().map(|(at, _)| *at);
        // Where nothing is due, nothing is looked at, and nothing may keep the lane.
        let looked_at = self.sight.deadline().filter(|_| !self.slots.is_empty());
        let covered = self.covered_until.filter(|_| !self.slots.is_empty());
        let closed = earliest(earliest(self.closed.deadline(), looked_at), covered);
        earliest(earliest(write, deferred), closed)
    }

    /// What is shown of it.
    pub(super) fn view(&self, lb: &LbName, now: Now) -> LaneView {
        let later = self.deferred.iter().map(|(_, pool)| pool);
        let waiting = self.order.iter().map(|(_, _, pool)| pool).chain(later).filter_map(|pool| {
            let slot = self.slots.get(pool)?;
            Some((PoolId::new(lb.clone(), pool.clone()), slot.word(), slot.since()?))
        });
        let closed = match &self.closed {
            Closed::Open => None,
            Closed::Until(until) => Some(*until),
            Closed::InDoubt { next, .. } => Some(next.unwrap_or(now)),
        };
        LaneView {
            lb: lb.clone(),
            writing: self.write.as_ref().map(|write| (write.pool.clone(), write.phase.word(), write.granted)),
            waiting: waiting.collect(),
            closed_until: closed.max(self.sight.closed_until(now)),
            blocked_by: None,
        }
    }

    /// The invariant of every lane: each slot stands in exactly one of the orders, in its place.
    pub(super) fn is_consistent(&self) -> bool {
        let placed = |(pool, slot): (&PoolName, &Slot)| match (keys(slot), slot.deferred()) {
            (None, _) => false,
            (Some(_), Some(until)) => self.deferred.contains(&(until, pool.clone())),
            (Some(Keys { rank, since, age, admin }), None) => {
                self.order.contains(&(rank, since, pool.clone()))
                    && self.ages.contains(&(age, pool.clone()))
                    && admin.is_none_or(|(urgency, again, at)| {
                        self.admins.contains(&(urgency, again, at, pool.clone()))
                    })
            }
        };
        let admins = self.slots.values().filter(|slot| slot.deferred().is_none() && slot.admin.is_some());
        let members =
            self.slots.values().filter(|slot| slot.deferred().is_none() && slot.membership.is_some());
        self.slots.iter().all(placed)
            && self.order.len() == self.ages.len()
            && self.order.len() + self.deferred.len() == self.slots.len()
            && self.admins.len() == admins.count()
            && self.memberships == members.count()
    }
}

/// The places of a slot in the orders of its lane.
struct Keys {
    rank: Rank,
    since: Now,
    age: Now,
    admin: Option<(AdminUrgency, bool, Now)>,
}

fn keys(slot: &Slot) -> Option<Keys> {
    let (rank, since) = slot.rank()?;
    let admin = slot.admin.map(|due| (due.urgency, due.again, due.since));
    Some(Keys { rank, since, age: slot.since()?, admin })
}
