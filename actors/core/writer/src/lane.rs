//! A lane: the serial order of writes on one load balancer, and what closes it (docs/design/writer.md, W1, W4, W6).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use model::arm::{LbFacts, Provisioning};
use model::blocked::{Blocked, BlockedUntil};
use model::ids::{LbName, PoolId, PoolName};
use model::machine::{Now, earliest};
use model::view::{LaneView, WaitingView};

use super::AdminUrgency;
use super::initial_read::InitialRead;
use super::slot::{Rank, Slot};
use super::write::{FOREIGN_DELAYS, Write};

/// One grant of a lane in this many goes to the slot that has waited longest (W1).
const FAIR_GRANT: u64 = 4;

/// Delay of the first probe of a pool after a lost answer, and increment of the delay between probes (W4).
pub(super) const PROBE_DELAY: Duration = Duration::from_secs(5);

/// Longest delay between two probes.
const PROBE_DELAY_MAX: Duration = Duration::from_secs(30);
/// Maximum number of probes of a lane in doubt: about 15 minutes, with the delays between them.
const MAX_PROBES: u32 = 32;

/// The lane of one load balancer.
#[derive(Debug, Default)]
pub(super) struct Lane {
    slots: BTreeMap<PoolName, Slot>,
    /// Slots that may be granted, by urgency, waiting time and name.
    order: BTreeSet<(Rank, Now, PoolName)>,
    /// The same slots, by waiting time.
    ages: BTreeSet<(Now, PoolName)>,
    /// The slots with an admin part, by the part's urgency, whether it is a repeat, and its waiting time.
    admins: BTreeSet<(AdminUrgency, bool, Now, PoolName)>,
    /// Number of grantable slots with a membership part.
    memberships: usize,
    /// Slots that wait until a set time.
    deferred: BTreeSet<(Now, PoolName)>,
    grants: u64,
    /// The current write.
    pub write: Option<Write>,
    /// Whether it may grant.
    pub closed: LaneState,
    /// Progress of the initial read of this term.
    pub initial_read: InitialRead,
    /// Time until which writes need the shared Lease, because another client was active when a write last went
    /// without it (W7).
    lease_required_until: Option<Now>,
    /// Number of times that another client was active since the last grant under the shared Lease.
    lease_required_count: u32,
    /// The lane's share in the writer's totals and timers.
    pub totals: LaneTotals,
}

/// Selects the slots of a lane that may be granted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Eligible {
    /// All slots.
    Any,
    /// Slots with a membership part, as a whole.
    Members,
    /// Slots with an admin part that is not a repeat, as a whole. They may use the reserve (W9).
    Admin,
    /// Only the Down part of slots in which a node must be drained. Membership stays in the slot, unless its attempt
    /// is already open.
    Down,
}

impl Eligible {
    /// Returns the slots that both selections allow, or `None` if they have none in common.
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

/// A lane's share in the writer's totals and timers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneTotals {
    /// Whether the lane counts as busy.
    pub busy: bool,
    /// Number of its slots that count as waiting.
    pub waiting: usize,
    /// Deadline that is armed for the lane.
    pub deadline: Option<Now>,
}

/// Whether a lane may grant, and if not, why.
#[derive(Clone, Debug, Default)]
pub(super) enum LaneState {
    /// The lane may grant.
    #[default]
    Open,
    /// Another operation holds the load balancer's lock (W6).
    Until(Now),
    /// A PUT was sent and its result is unknown. The lane stays closed until a GET shows that nothing runs (W4).
    InDoubt {
        /// The pool of the PUT.
        pool: PoolId,
        /// Number of probes so far.
        probes: u32,
        /// Time of the next probe. `None`: a probe is in flight.
        next: Option<Now>,
    },
}

impl LaneState {
    /// Closes the lane after the answer to a PUT to this pool was lost.
    pub(super) fn in_doubt(now: Now, pool: PoolId) -> LaneState {
        LaneState::InDoubt { pool, probes: 0, next: Some(now.plus(PROBE_DELAY)) }
    }

    /// Schedules the next probe after an inconclusive one.
    pub(super) fn schedule_probe(&mut self, now: Now) {
        match self {
            LaneState::InDoubt { probes, next, .. } => {
                *probes += 1;
                *next = Some(now.plus((PROBE_DELAY * *probes).min(PROBE_DELAY_MAX)));
            }
            LaneState::Open | LaneState::Until(_) => {}
        }
    }

    /// Returns whether the probes are used up, after about a quarter of an hour. A pool that cannot be read must not
    /// close its load balancer forever. The GET and `If-Match` of each write still protect it.
    pub(super) fn probes_are_used_up(&self) -> bool {
        match self {
            LaneState::InDoubt { probes, .. } => *probes >= MAX_PROBES,
            LaneState::Open | LaneState::Until(_) => false,
        }
    }

    fn deadline(&self) -> Option<Now> {
        match self {
            LaneState::Open => None,
            LaneState::Until(until) => Some(*until),
            LaneState::InDoubt { next, .. } => *next,
        }
    }

    fn is_open(&self) -> bool {
        match self {
            LaneState::Open => true,
            LaneState::Until(_) | LaneState::InDoubt { .. } => false,
        }
    }
}

impl Lane {
    /// Creates an empty lane with this state of the initial read.
    pub(super) fn new(initial_read: InitialRead) -> Lane {
        Lane { initial_read, ..Lane::default() }
    }

    /// Changes a pool's slot and updates its place in the orders. Drops a slot that becomes empty.
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

    /// Takes out the next slot among those that may be granted (W1).
    pub(super) fn grant(&mut self, pick: Eligible) -> Option<(PoolName, Slot)> {
        self.grants += 1;
        (self.lease_required_until, self.lease_required_count) = (None, 0);
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

    /// Takes out the Down part of a slot that has been due since `due_by` or earlier. Skips slots whose membership
    /// attempt is open.
    pub(super) fn grant_down(&mut self, due_by: Now) -> Option<(PoolName, Slot)> {
        let pool = self.bypassing(due_by)?.clone();
        let mut granted = None;
        self.edit(&pool, |slot| granted = Some(slot.take_down()));
        granted.map(|slot| (pool, slot))
    }

    /// Requires the shared Lease for a while, longer each time, because another client is active or the last
    /// operation failed.
    pub(super) fn require_shared_lease(&mut self, now: Now) {
        self.lease_required_until = Some(now.plus(FOREIGN_DELAYS.delay(self.lease_required_count)));
        self.lease_required_count = self.lease_required_count.saturating_add(1);
    }

    /// Returns the pool that [`Lane::grant_down`] would grant.
    pub(super) fn bypassing(&self, due_by: Now) -> Option<&PoolName> {
        if self.lease_required_until.is_some() {
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

    /// Returns whether a slot may be granted.
    pub(super) fn has(&self, pick: Eligible) -> bool {
        match pick {
            Eligible::Any => !self.order.is_empty(),
            Eligible::Members => self.has_membership(),
            Eligible::Admin | Eligible::Down => self.first_admin(pick).is_some(),
        }
    }

    /// Returns whether a slot with a membership part may be granted.
    pub(super) fn has_membership(&self) -> bool {
        self.memberships > 0
    }

    /// Returns whether a slot with an admin part may be granted.
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

    /// Returns the first slot with a restore that is not a repeat.
    fn first_restore(&self) -> Option<&PoolName> {
        let restores = (AdminUrgency::Restore, false, Now::ZERO, PoolName::new(""));
        let (_, again, _, pool) = self.admins.range(restores..).next()?;
        (!again).then_some(pool)
    }

    /// Returns whether an admin part of this pool is due or in flight.
    pub(super) fn has_admin_of(&self, pool: &PoolId) -> bool {
        let is_of = |write: &Write| write.pool == *pool && write.admin.is_some();
        self.write.as_ref().is_some_and(is_of)
            || self.slots.get(&pool.pool).is_some_and(|slot| slot.admin.is_some())
    }

    /// Returns the oldest draining set whose PUT may still be carried out. A lane in doubt returns 0: its set is
    /// unknown (W4).
    pub(super) fn oldest_put(&self) -> Option<u64> {
        match self.closed {
            LaneState::InDoubt { .. } => return Some(0),
            LaneState::Open | LaneState::Until(_) => {}
        }
        let open = self.write.iter().flat_map(Write::puts);
        let waiting = self.slots.values().filter_map(|slot| slot.resume.as_ref());
        let waiting = waiting.flat_map(|resume| &resume.history.unconfirmed_puts);
        open.chain(waiting).map(|put| put.draining.generation).min()
    }

    /// Applies a read of the whole load balancer that was sent at `began`. For each pool at rest, compares the
    /// members with the PUTs whose answers were lost, if those PUTs must have arrived by then (W4).
    pub(super) fn apply_read(&mut self, began: Now, facts: &LbFacts) {
        if facts.provisioning == Provisioning::Updating {
            return;
        }
        for (name, slot) in &mut self.slots {
            let Some(resume) =
                slot.resume.as_mut().filter(|resume| !resume.history.unconfirmed_puts.is_empty())
            else {
                continue;
            };
            let seen = facts.pools.iter().find(|pool| pool.id.pool == *name);
            if let Some(pool) = seen.filter(|pool| pool.provisioning != Provisioning::Updating)
                && began >= resume.since.plus(PROBE_DELAY)
            {
                resume.history.seen(&pool.members());
            }
        }
    }

    /// Returns the pools whose writes wait for another grant.
    pub(super) fn paused(&self) -> Vec<PoolName> {
        let paused = |(pool, slot): (&PoolName, &Slot)| slot.resume.is_some().then(|| pool.clone());
        self.slots.iter().filter_map(paused).collect()
    }

    /// Removes all slots.
    pub(super) fn clear_slots(&mut self) {
        self.slots.clear();
        self.order.clear();
        self.ages.clear();
        self.admins.clear();
        self.memberships = 0;
        self.deferred.clear();
    }

    /// Returns whether this pool has a slot.
    pub(super) fn has_slot(&self, pool: &PoolName) -> bool {
        self.slots.contains_key(pool)
    }

    /// Returns the number of waiting pools.
    pub(super) fn waiting(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the lane can be granted now.
    pub(super) fn is_ready(&self) -> bool {
        self.could_grant() && self.initial_read == InitialRead::AtRest
    }

    /// Returns whether the lane could be granted after an initial read, and that read is due.
    pub(super) fn wants_initial_read(&self) -> bool {
        self.could_grant() && self.initial_read.is_due()
    }

    fn could_grant(&self) -> bool {
        self.write.is_none() && self.closed.is_open() && !self.order.is_empty()
    }

    /// Returns whether the lane holds no state.
    pub(super) fn is_idle(&self) -> bool {
        self.write.is_none() && self.slots.is_empty() && self.closed.is_open()
    }

    /// Releases deferred slots and closures whose time has come.
    pub(super) fn wake(&mut self, now: Now) {
        while let Some((_, pool)) = self.deferred.first().filter(|(at, _)| *at <= now).cloned() {
            self.edit(&pool, |slot| slot.wake(now));
        }
        if let LaneState::Until(until) = self.closed
            && until <= now
        {
            self.closed = LaneState::Open;
        }
        self.lease_required_until.take_if(|until| *until <= now);
        self.initial_read.wake(now);
    }

    /// Returns the time of the next change without input.
    pub(super) fn deadline(&self) -> Option<Now> {
        let write = self.write.as_ref().and_then(Write::deadline);
        let deferred = self.deferred.first().map(|(at, _)| *at);
        // A lane without slots needs no read, and nothing must keep it alive.
        let read_at = self.initial_read.deadline().filter(|_| !self.slots.is_empty());
        let lease_required_until = self.lease_required_until.filter(|_| !self.slots.is_empty());
        let closed = earliest(earliest(self.closed.deadline(), read_at), lease_required_until);
        earliest(earliest(write, deferred), closed)
    }

    /// Returns why the lane is closed, if it is: a lock, or an operation of which the result is unknown.
    pub(super) fn blocked(&self, now: Now) -> Option<BlockedUntil> {
        let closed = match &self.closed {
            LaneState::Open => None,
            LaneState::Until(until) => Some(Blocked::LaneLocked.until(*until)),
            LaneState::InDoubt { next, .. } => Some(Blocked::LaneInDoubt.until(next.unwrap_or(now))),
        };
        let unread = self.initial_read.closed_until(now).map(|until| Blocked::LaneInDoubt.until(until));
        [closed, unread].into_iter().flatten().max_by_key(|blocked| blocked.until)
    }

    /// Returns the view of the lane for the snapshot, with the fault that stops its writes.
    pub(super) fn view(&self, lb: &LbName, now: Now, fault: Option<Arc<str>>) -> LaneView {
        let later = self.deferred.iter().map(|(_, pool)| pool);
        let waiting = self.order.iter().map(|(_, _, pool)| pool).chain(later).filter_map(|pool| {
            let slot = self.slots.get(pool)?;
            let pool = PoolId::new(lb.clone(), pool.clone());
            Some(WaitingView { pool, class: slot.label(), since: slot.since()?, blocked: slot.blocked() })
        });
        LaneView {
            lb: lb.clone(),
            writing: self
                .write
                .as_ref()
                .map(|write| (write.pool.clone(), write.phase.label(), write.granted)),
            waiting: waiting.collect(),
            closed: self.blocked(now),
            fault,
        }
    }

    /// Checks that each slot is in exactly one of the orders, in its place.
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

/// The positions of a slot in the orders of its lane.
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
