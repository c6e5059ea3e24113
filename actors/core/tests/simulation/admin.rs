//! Who asks the writers for admin states: what the machine of chapter 8 will do, done by the world itself. It knows
//! what each process has seen, what it was answered, and the draining set; it asks whoever leads.

use std::collections::BTreeMap;
use std::sync::Arc;

use pool_core::arm::{AdminState, Backend, Failure, FailureKind, LbFacts, PoolFacts};
use pool_core::ids::{Epoch, LbName, PoolId};
use pool_core::machine::Now;
use pool_core::route::Said;
use pool_core::writer::{AdminDue, AdminUrgency, Draining, Standing};
use pool_core::{discovery, leader, writer};

/// The pool that is left out (N2, `adminState.excludePools`).
pub const EXCLUDED: &str = "aksOutboundBackendPool";
/// How long it waits after failures: doubling from here to there.
const BACK_OFF_US: (u64, u64) = (500_000, 15_000_000);

/// What one process's admin state knows.
#[derive(Default)]
pub struct Asker {
    seen: BTreeMap<LbName, Arc<LbFacts>>,
    /// In which term the process leads.
    leads: Option<Epoch>,
    /// What the writer was asked and has not answered.
    asked: BTreeMap<PoolId, AdminDue>,
    /// How often a pool has failed in a row, and before when it is not asked again.
    failed: BTreeMap<PoolId, (u32, u64)>,
    /// Load balancers to be gone through.
    stirred: bool,
}

impl Asker {
    /// Takes in what a machine of the process has said.
    pub fn hear(&mut self, now: u64, said: &[Said]) {
        for said in said {
            if let Said::Discovery(discovery::Out::Lb(observation)) = said {
                match &observation.facts {
                    Some(facts) => self.seen.insert(observation.lb.clone(), Arc::clone(facts)),
                    None => self.seen.remove(&observation.lb),
                };
                self.stirred = true;
            } else if let Said::Leader(leader::Out::Standing(standing)) = said {
                let leads = match standing {
                    Standing::Standby => None,
                    Standing::Leading { epoch, .. } => Some(*epoch),
                };
                if self.leads != leads {
                    self.asked.clear();
                    self.failed.clear();
                    (self.leads, self.stirred) = (leads, true);
                }
            } else if let Said::Writer(writer::Out::AdminFinished { pool, generation, failure }) = said {
                let is_gone = |failure: &Arc<Failure>| failure.kind == FailureKind::Status(404);
                self.answered(now, pool, *generation, failure.as_ref().is_none_or(is_gone));
            }
        }
    }

    fn answered(&mut self, now: u64, pool: &PoolId, generation: u64, is_well: bool) {
        if self.asked.get(pool).is_some_and(|due| due.generation <= generation) {
            self.asked.remove(pool);
        }
        if is_well {
            self.failed.remove(pool);
        } else {
            let (times, until) = self.failed.entry(pool.clone()).or_default();
            let (least, most) = BACK_OFF_US;
            *until = now + (least << (*times).min(8)).min(most);
            *times += 1;
        }
    }

    /// The draining set is another one.
    pub fn stir(&mut self) {
        self.stirred = true;
    }

    /// What is to be asked now.
    pub fn ask(&mut self, now: u64, local: Now, draining: &Draining) -> Vec<(PoolId, AdminDue)> {
        let tries = self.failed.values().any(|(_, until)| *until <= now && *until > 0);
        if self.leads.is_none() || !self.stirred && !tries {
            return Vec::new();
        }
        self.stirred = false;
        let mut asks = Vec::new();
        for pool in self.seen.values().flat_map(|facts| &facts.pools) {
            let known = self.asked.get(&pool.id).copied();
            let urgency = match (wanted(pool, draining), known) {
                (Some(urgency), _) => urgency,
                // What was asked is not wanted any more.
                (None, Some(AdminDue { urgency: AdminUrgency::Down, .. })) => AdminUrgency::Restore,
                (None, _) => continue,
            };
            let waits = self.failed.get(&pool.id).is_some_and(|(_, until)| *until > now);
            let due = AdminDue { since: local, generation: draining.generation, urgency };
            let is_asked =
                known.is_some_and(|known| known.generation == due.generation && known.urgency == urgency);
            if waits || is_asked || pool.id.pool.as_str() == EXCLUDED {
                continue;
            }
            self.asked.insert(pool.id.clone(), due);
            asks.push((pool.id.clone(), due));
        }
        for (_, until) in self.failed.values_mut().filter(|(_, until)| *until <= now) {
            *until = 0;
        }
        asks
    }

    /// When it asks again by time alone.
    pub fn again_at(&self) -> Option<u64> {
        self.failed.values().map(|(_, until)| *until).filter(|until| *until > 0).min()
    }
}

/// What a pool needs (N2, N4).
fn wanted(pool: &PoolFacts, draining: &Draining) -> Option<AdminUrgency> {
    let of = |state: AdminState| {
        let entries = pool.entries.iter().filter(move |entry| entry.admin_state == state);
        entries.filter_map(|entry| entry.ip.map(Backend::Address))
    };
    let drains = |backend: &Backend| draining.addresses.contains_key(backend);
    if of(AdminState::None).chain(of(AdminState::Up)).any(|backend| drains(&backend)) {
        Some(AdminUrgency::Down)
    } else if of(AdminState::Down).any(|backend| !drains(&backend) && draining.restorable.contains(&backend))
    {
        Some(AdminUrgency::Restore)
    } else {
        None
    }
}
