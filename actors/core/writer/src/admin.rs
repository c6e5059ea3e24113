//! The admin part of slots: due, withdrawn and ended (docs/design/nodes.md, N3). Also sends the admin states of pools,
//! as reads show them and writes leave them, to the admin state (N2, N4).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::classify::FailureClass;
use super::completion::{WriteEnd, left_behind};
use super::lane::Lane;
use super::write::{Put, Write};
use super::{AdminDue, AdminUrgency, Out, PoolAdminStates, Writer, WriterPhase};
use model::arm::{AdminState, Backend, Entry, LbFacts, PoolFacts};
use model::draining::{AdminEnd, AdminError};
use model::ids::{LbName, PoolId, of_balancer};
use model::load_balancers::OurPuts;
use model::machine::Now;
use model::sample::Metric;

/// Time for which the draining set of an ended PUT is kept: longer than any GET takes.
const PUTS_KEPT: Duration = Duration::from_secs(600);

impl Writer {
    pub(super) fn on_admin_due(&mut self, pool: &PoolId, due: AdminDue) {
        self.withdrawn.remove(pool);
        if self.phase == WriterPhase::Running {
            let lane = self.lane(&pool.lb);
            lane.edit(&pool.pool, |slot| slot.admin_due(due));
            self.touch(&pool.lb);
        }
    }

    /// Withdraws the admin part of a pool. A write in flight, or one that waits with membership, still runs to its
    /// end, to find out the state of the pool.
    pub(super) fn withdraw_admin(&mut self, now: Now, pool: &PoolId, out: &mut Vec<Out>) {
        if let Some(lane) = self.lanes.get_mut(&pool.lb) {
            lane.edit(&pool.pool, |slot| {
                if slot.resume.is_none() {
                    slot.admin = None;
                }
            });
            self.touch(&pool.lb);
        }
        let generation = self.draining.generation;
        if self.lanes.get(&pool.lb).is_some_and(|lane| lane.has_admin_of(pool)) {
            self.withdrawn.insert(pool.clone(), generation);
        } else {
            self.withdrawn.remove(pool);
            let withdrawn = Some(generation);
            let states = PoolAdminStates { withdrawn, ..self.admin_states(now, pool) };
            out.push(Out::AdminStates(pool.clone(), states));
        }
    }

    /// Returns the facts about a pool's admin states that are known without its content.
    fn admin_states(&self, at: Now, pool: &PoolId) -> PoolAdminStates {
        PoolAdminStates {
            at,
            facts: None,
            in_doubt: BTreeSet::new(),
            sent: self.sent.get(pool).copied(),
            ended: None,
            withdrawn: None,
        }
    }

    /// Ends the admin part of a write, which is answered or stays due, and sends the admin states that the write
    /// leaves.
    pub(super) fn end_admin(&mut self, now: Now, write: &Write, end: &WriteEnd, out: &mut Vec<Out>) {
        let pool = &write.pool;
        let mut ended = None;
        if let Some(due) = write.admin {
            if let Some(failed) = is_failure(end) {
                let took = now.since(write.admin_granted.unwrap_or(write.granted));
                let down = due.urgency == AdminUrgency::Down;
                out.push(Out::Metric(Metric::AdminEnded { down, took, failed }));
            }
            match self.admin_end(due, end) {
                Ok(end) => ended = Some(end),
                Err(due) => self.return_admin(pool, due),
            }
        }
        let (at, facts) = match end {
            // Another client may have written the pool since. Without an admin part, only the backends that the PUT
            // may have left in service matter.
            WriteEnd::Written { facts, as_of, .. } => (*as_of, ended.is_some().then_some(facts)),
            WriteEnd::Unchanged { facts, as_of } => {
                (*as_of, (ended.is_some() || self.draining.concerns(facts)).then_some(facts))
            }
            WriteEnd::Withheld(_)
            | WriteEnd::NotGranted
            | WriteEnd::Stale(_)
            | WriteEnd::Retriable { .. }
            | WriteEnd::Terminal(_)
            | WriteEnd::Interrupted
            | WriteEnd::Abandoned => (now, None),
        };
        let facts = facts.cloned();
        let in_doubt = self.in_doubt(pool, left_behind(write, end));
        if facts.is_some() || ended.is_some() || !in_doubt.is_empty() {
            let withdrawn = ended.as_ref().and_then(|_| self.withdrawn.remove(pool));
            let states = PoolAdminStates { facts, in_doubt, ended, withdrawn, ..self.admin_states(at, pool) };
            out.push(Out::AdminStates(pool.clone(), states));
        }
    }

    /// Returns the end of an admin part whose write ended, or the part that stays due.
    fn admin_end(&self, due: AdminDue, end: &WriteEnd) -> Result<AdminEnd, AdminDue> {
        match end {
            // The PUT omitted the restores. They stay due and complete the set.
            WriteEnd::Written { put, .. } | WriteEnd::Withheld(put) if put.leaves_restores => {
                Err(AdminDue { urgency: AdminUrgency::Restore, ..due })
            }
            WriteEnd::Written { put, .. } | WriteEnd::Withheld(put) => {
                Ok(AdminEnd { generation: put.draining.generation, result: Ok(()) })
            }
            WriteEnd::Unchanged { .. } => {
                Ok(AdminEnd { generation: self.draining.generation, result: Ok(()) })
            }
            WriteEnd::Stale(failed) | WriteEnd::Retriable { failed, .. } | WriteEnd::Terminal(failed) => {
                let error = if failed.class == FailureClass::Absent {
                    AdminError::Absent
                } else {
                    AdminError::Failed(Arc::clone(&failed.failure))
                };
                Ok(AdminEnd { generation: due.generation, result: Err(error) })
            }
            // Nothing was tried.
            WriteEnd::NotGranted | WriteEnd::Interrupted | WriteEnd::Abandoned => Err(due),
        }
    }

    fn return_admin(&mut self, pool: &PoolId, due: AdminDue) {
        if let Some(lane) = self.lanes.get_mut(&pool.lb).filter(|_| self.phase == WriterPhase::Running) {
            lane.edit(&pool.pool, |slot| slot.return_admin(due));
        }
    }

    /// Returns how our own PUTs may have affected a GET of a load balancer that began at `began`.
    pub(super) fn our_puts(&self, lb: &LbName, began: Now) -> OurPuts {
        let sent = of_balancer(&self.sent, lb).map(|(id, at)| (id.pool.clone(), *at));
        let sent = Arc::new(sent.collect());
        let ended = self.ended.range((lb.clone(), 0)..=(lb.clone(), u64::MAX));
        let ended = ended.filter(|(_, at)| **at >= began).map(|((_, generation), _)| *generation).next();
        let open = self.lanes.get(lb).and_then(Lane::oldest_put);
        OurPuts { sent, oldest: [ended, open].into_iter().flatten().min() }
    }

    /// Drops old PUTs to pools that a read of their load balancer does not show.
    pub(super) fn forget_puts(&mut self, began: Now, facts: &LbFacts) {
        let there: BTreeSet<&PoolId> = facts.pools.iter().map(|pool| &pool.id).collect();
        let long_ago = began.minus(PUTS_KEPT);
        self.sent.retain(|id, at| id.lb != facts.lb || *at >= long_ago || there.contains(id));
    }

    /// Records the draining sets of the PUTs of a write that ends now, for as long as a GET can take.
    pub(super) fn record_puts(&mut self, now: Now, write: &Write) {
        for generation in write.puts().map(|put| put.draining.generation) {
            self.ended.insert((write.pool.lb.clone(), generation), now);
        }
        let long_ago = now.minus(PUTS_KEPT);
        self.ended.retain(|_, at| *at >= long_ago);
    }

    /// Sends the pool before its write if backends are already Down, as required. If we have sent no PUT since their
    /// nodes began to drain, another client has set them (N4).
    pub(super) fn send_found_downs(
        &self,
        began: Now,
        pool: &PoolId,
        facts: &Arc<PoolFacts>,
        out: &mut Vec<Out>,
    ) {
        let is_down = |entry: &&Entry| entry.admin_state == AdminState::Down;
        let mut downs = facts.entries.iter().filter(is_down).filter_map(Entry::backend);
        if downs.any(|backend| self.draining.would_set(pool, &backend)) {
            let facts = Some(Arc::clone(facts));
            out.push(Out::AdminStates(
                pool.clone(),
                PoolAdminStates { facts, ..self.admin_states(began, pool) },
            ));
        }
    }

    /// Returns the backends that these PUTs may have left in their pool, although the newest set requires them Down.
    /// The pool may have no due admin part, because these backends were not in it, or were Down, when the PUTs were
    /// planned (N2). A PUT of the newest set leaves none.
    fn in_doubt<'a>(&self, pool: &PoolId, puts: impl IntoIterator<Item = &'a Put>) -> BTreeSet<Backend> {
        let older = puts.into_iter().filter(|put| put.draining.generation < self.draining.generation);
        let left = older.flat_map(|put| {
            let added = put.change.edit.add.iter();
            let born = added.map(|new| (Backend::from(new.ip), new.admin_state.unwrap_or(AdminState::None)));
            born.chain(put.change.restored.iter().map(|backend| (backend.clone(), AdminState::None)))
        });
        let is_missed = |(backend, state): &(Backend, AdminState)| {
            self.draining.wants_of(pool, backend, *state) == Some(AdminState::Down)
        };
        left.filter(is_missed).map(|(backend, _)| backend).collect()
    }

    /// Sends what PUTs whose answers were lost may have left behind, for a write that gives its lane back.
    pub(super) fn send_in_doubt(&self, now: Now, lb: &LbName, out: &mut Vec<Out>) {
        let Some(write) = self.open_write(lb) else { return };
        let puts = write.history.unconfirmed_puts.iter().map(|put| &**put);
        let in_doubt = self.in_doubt(&write.pool, puts);
        if !in_doubt.is_empty() {
            let states = PoolAdminStates { in_doubt, ..self.admin_states(now, &write.pool) };
            out.push(Out::AdminStates(write.pool.clone(), states));
        }
    }
}

/// Returns whether the end of a write is a failure of its admin part. `None`: nothing was tried or sent (C4). A pool
/// that does not exist has no backend to set Down.
fn is_failure(end: &WriteEnd) -> Option<bool> {
    match end {
        WriteEnd::Written { .. } | WriteEnd::Unchanged { .. } => Some(false),
        WriteEnd::Stale(failed) => Some(failed.class != FailureClass::Absent),
        WriteEnd::Retriable { .. } | WriteEnd::Terminal(_) => Some(true),
        WriteEnd::Withheld(_) | WriteEnd::NotGranted | WriteEnd::Interrupted | WriteEnd::Abandoned => None,
    }
}
