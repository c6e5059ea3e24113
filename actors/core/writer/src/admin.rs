//! The admin part of slots: due, withdrawn and answered (docs/design/nodes.md, N3). Also reports backends that PUTs
//! of older draining sets missed (N2).
//!
//! Each withdrawal gets one answer: at once if nothing of the part has begun, else after the end of what has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::completion::WriteEnd;
use super::lane::Lane;
use super::write::{Put, Write};
use super::{AdminDue, AdminUrgency, Draining, Life, Out, Writer};
use model::arm::{AdminState, Backend, Entry, Failure, LbFacts, PoolFacts};
use model::ids::{LbName, PoolId, of_balancer};
use model::load_balancers::OurPuts;
use model::machine::Now;
use model::sample::Metric;

/// Time for which the draining set of an ended PUT is kept: longer than any GET takes.
const PUTS_KEPT: Duration = Duration::from_secs(600);

impl Writer {
    pub(super) fn on_admin_due(&mut self, pool: &PoolId, due: AdminDue) {
        self.withdrawn.remove(pool);
        if self.life == Life::Running {
            let lane = self.lane(&pool.lb);
            lane.edit(&pool.pool, |slot| slot.admin_due(due));
            self.touch(&pool.lb);
        }
    }

    /// A write in flight, or one that waits with membership, still runs to its end, to find out the state of the
    /// pool.
    pub(super) fn withdraw_admin(&mut self, pool: &PoolId, out: &mut Vec<Out>) {
        let generation = self.draining.generation;
        let mut has_begun = false;
        if let Some(lane) = self.lanes.get_mut(&pool.lb) {
            has_begun = lane.write.as_ref().is_some_and(|write| write.pool == *pool && write.admin.is_some());
            lane.edit(&pool.pool, |slot| match slot.resume {
                Some(_) => has_begun |= slot.admin.is_some(),
                None => slot.admin = None,
            });
            self.touch(&pool.lb);
        }
        if has_begun {
            self.withdrawn.insert(pool.clone(), generation);
        } else {
            self.withdrawn.remove(pool);
            out.push(Out::AdminWithdrawn(pool.clone(), generation));
        }
    }

    /// Ends the admin part of a write: it is answered, or stays due.
    pub(super) fn end_admin(&mut self, now: Now, write: &Write, end: &WriteEnd, out: &mut Vec<Out>) {
        let Some(due) = write.admin else { return };
        if let Some(failed) = is_failure(end) {
            let took = now.since(write.admin_granted.unwrap_or(write.granted));
            let down = due.urgency == AdminUrgency::Down;
            out.push(Out::Metric(Metric::AdminEnded { down, took, failed }));
        }
        let pool = &write.pool;
        match end {
            // Its restores stay due. They complete the set.
            WriteEnd::Written { put, .. } | WriteEnd::Withheld(put) if put.leaves_restores => {
                self.return_admin(pool, AdminDue { urgency: AdminUrgency::Restore, ..due });
            }
            WriteEnd::Written { put, .. } | WriteEnd::Withheld(put) => {
                self.admin_finished(pool, put.draining.generation, Ok(Arc::clone(&put.draining)), out);
            }
            WriteEnd::Unchanged(_) => {
                let set = Arc::clone(&self.draining);
                self.admin_finished(pool, set.generation, Ok(set), out);
            }
            WriteEnd::Stale(failure) | WriteEnd::Retriable { failure, .. } | WriteEnd::Terminal(failure) => {
                self.admin_finished(pool, due.generation, Err(Arc::clone(failure)), out);
            }
            // Nothing was tried, so that it stays due.
            WriteEnd::NotGranted | WriteEnd::Interrupted | WriteEnd::Abandoned => {
                self.return_admin(pool, due)
            }
        }
    }

    fn return_admin(&mut self, pool: &PoolId, due: AdminDue) {
        if let Some(lane) = self.lanes.get_mut(&pool.lb).filter(|_| self.life == Life::Running) {
            lane.edit(&pool.pool, |slot| slot.return_admin(due));
        }
    }

    /// How our own PUTs may have affected a GET of a load balancer that began at `began`.
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

    /// Reports backends that are already Down, as required, before anything is written. If we have sent no PUT since
    /// their nodes began to drain, another client has set them (N4).
    pub(super) fn report_found_down(&self, pool: &PoolId, facts: &PoolFacts, out: &mut Vec<Out>) {
        let is_down = |entry: &&Entry| entry.admin_state == AdminState::Down;
        let downs = facts.entries.iter().filter(is_down).filter_map(Entry::backend);
        let found: BTreeSet<Backend> =
            downs.filter(|backend| self.draining.would_set(pool, backend)).collect();
        if !found.is_empty() {
            out.push(Out::AdminFound(pool.clone(), self.sent.get(pool).copied(), found));
        }
    }

    /// Reports backends that PUTs of older draining sets may have left in their pool, although the newest set
    /// requires them Down. The pool may have had no due admin part, because these backends were not in it, or were
    /// Down (N2).
    ///
    /// `reported` is the generation of the last such report.
    pub(super) fn report_missed(
        &self,
        pool: &PoolId,
        missed_reported: u64,
        puts: &[&Put],
        out: &mut Vec<Out>,
    ) {
        let newest = &self.draining;
        let older =
            puts.iter().filter(|put| put.draining.generation.max(missed_reported) < newest.generation);
        let left = older.flat_map(|put| {
            let added = put.change.edit.add.iter();
            let born = added.map(|new| (Backend::from(new.ip), new.admin_state.unwrap_or(AdminState::None)));
            born.chain(put.change.restored.iter().map(|backend| (backend.clone(), AdminState::None)))
        });
        let is_missed = |(backend, state): &(Backend, AdminState)| {
            newest.wants_of(pool, backend, *state) == Some(AdminState::Down)
        };
        let missed: BTreeSet<Backend> = left.filter(is_missed).map(|(backend, _)| backend).collect();
        if !missed.is_empty() {
            out.push(Out::AdminMissed(pool.clone(), missed));
        }
    }

    /// The same for a write that gives its lane back and has PUTs whose answers were lost.
    pub(super) fn report_missed_while_waiting(&mut self, lb: &LbName, out: &mut Vec<Out>) {
        let newest = self.draining.generation;
        let Some(write) = self.open_write_mut(lb) else { return };
        let (pool, unconfirmed_puts) = (write.pool.clone(), write.history.unconfirmed_puts.clone());
        let missed_reported = std::mem::replace(&mut write.history.missed_reported, newest);
        let puts: Vec<&Put> = unconfirmed_puts.iter().map(|put| &**put).collect();
        self.report_missed(&pool, missed_reported, &puts, out);
    }

    /// Answers the admin part of a write that has ended.
    fn admin_finished(
        &mut self,
        pool: &PoolId,
        generation: u64,
        result: Result<Arc<Draining>, Arc<Failure>>,
        out: &mut Vec<Out>,
    ) {
        out.push(Out::AdminFinished { pool: pool.clone(), generation, result });
        if let Some(generation) = self.withdrawn.remove(pool) {
            out.push(Out::AdminWithdrawn(pool.clone(), generation));
        }
    }
}

/// Whether the end of a write is a failure of its admin part. `None`: nothing was tried or sent (C4). A pool that
/// does not exist has no backend to set Down.
fn is_failure(end: &WriteEnd) -> Option<bool> {
    match end {
        WriteEnd::Written { .. } | WriteEnd::Unchanged(_) => Some(false),
        WriteEnd::Stale(failure) => Some(!failure.says_absent()),
        WriteEnd::Retriable { .. } | WriteEnd::Terminal(_) => Some(true),
        WriteEnd::Withheld(_) | WriteEnd::NotGranted | WriteEnd::Interrupted | WriteEnd::Abandoned => None,
    }
}
