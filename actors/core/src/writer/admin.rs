//! The admin part of slots: made due, withdrawn, and answered (design.md N3).
//!
//! Each withdrawal is answered once: at once, where nothing of the part has begun, else behind the end of what has.

use std::sync::Arc;

use super::{AdminDue, Life, Out, Writer};
use crate::arm::Failure;
use crate::ids::PoolId;

impl Writer {
    pub(super) fn on_admin_due(&mut self, pool: &PoolId, due: AdminDue) {
        self.withdrawn.remove(pool);
        if self.life == Life::Running {
            let lane = self.lane(&pool.lb);
            lane.edit(&pool.pool, |slot| slot.admin_due(due));
            self.touch(&pool.lb);
        }
    }

    /// What a PUT may have been sent of goes on to its end: it finds out what is there.
    pub(super) fn on_admin_withdraw(&mut self, pool: &PoolId, generation: u64, out: &mut Vec<Out>) {
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

    /// Answers the admin part of a write that has ended.
    pub(super) fn admin_finished(
        &mut self,
        pool: &PoolId,
        generation: u64,
        failure: Option<Arc<Failure>>,
        out: &mut Vec<Out>,
    ) {
        out.push(Out::AdminFinished { pool: pool.clone(), generation, failure });
        if let Some(generation) = self.withdrawn.remove(pool) {
            out.push(Out::AdminWithdrawn(pool.clone(), generation));
        }
    }
}
