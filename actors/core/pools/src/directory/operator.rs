//! The operator's settings and requests: pauses and the mode (D1, G6), and the release of what is held back (H3).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::guard_inputs::Owners;
use super::{Directory, Out};
use model::assignment::{HeldReason, PausedBy};
use model::ids::{Epoch, Family, NodeName, PoolId, ServiceKey, ServiceUid};
use model::machine::Now;
use model::operator_request::{Answer, Done, Refusal, ReleaseRefusal, Released, RequestId, Scope};
use model::policy::{Mode, OperatorPolicy};

/// The newest operator policy. Until it is known, nothing is paused, and no term that needs it opens.
#[derive(Default)]
pub(super) struct DirectoryPolicy {
    newest: Option<Arc<OperatorPolicy>>,
    /// The newest term in which the policy was read.
    term: Option<Epoch>,
}

impl DirectoryPolicy {
    /// Returns the parts of the policy that pause a pool of these Services (G6).
    fn paused<'a>(&'a self, id: &PoolId, owners: &'a Owners) -> impl Iterator<Item = PausedBy> + use<'a> {
        let policy = self.newest.as_deref();
        let mode = policy.filter(|policy| policy.mode == Mode::Observe).map(|_| PausedBy::Mode);
        let everything = policy.and_then(|policy| policy.everything.as_ref()).map(|_| PausedBy::Everything);
        let pool = policy.and_then(|policy| policy.pools.get(id)).map(|_| PausedBy::Pool);
        let services = policy.into_iter().flat_map(|policy| {
            let named = owners.values().map(|fact| &fact.key);
            named.filter(|key| policy.services.contains_key(key)).cloned().map(PausedBy::Service)
        });
        mode.into_iter().chain(everything).chain(pool).chain(services)
    }

    /// Returns whether the mode removes no member from any pool (G6).
    pub(super) fn is_add_only(&self) -> bool {
        self.newest.as_ref().is_some_and(|policy| match policy.mode {
            Mode::AddOnly => true,
            Mode::Observe | Mode::Enforce => false,
        })
    }
}

impl Directory {
    /// Returns everything that pauses a pool of these Services (D1, G6). While pre-images are restored, a pool without
    /// one is paused too. A Service's annotation is ignored then if the operator has named the pool.
    pub(super) fn paused(&self, id: &PoolId, family: Family, owners: &Owners) -> BTreeSet<PausedBy> {
        let mut paused: BTreeSet<PausedBy> = self.policy.paused(id, owners).collect();
        match &self.params.pins {
            Some(pins) => match pins.of(id, family) {
                Some(pin) if pin.ignore_pause => {}
                Some(_) => paused.extend(annotated(owners)),
                None => {
                    paused.insert(PausedBy::NotInRestore);
                }
            },
            None => paused.extend(annotated(owners)),
        }
        paused
    }

    /// Returns whether a refused pool would be paused if it were not refused.
    pub(super) fn is_refused_paused(&self, id: &PoolId, owners: &Owners) -> bool {
        self.policy.paused(id, owners).next().is_some() || annotated(owners).next().is_some()
    }

    /// Returns whether a term may open: a pause from an earlier term must still apply in it (G6).
    pub(super) fn is_policy_known(&self) -> bool {
        self.policy.term.is_some_and(|term| term >= self.term.epoch)
    }

    /// Replaces the operator policy.
    pub(super) fn on_policy(&mut self, now: Now, term: Option<Epoch>, policy: Arc<OperatorPolicy>) {
        self.policy.term = self.policy.term.max(term);
        let before = self.policy.newest.replace(Arc::clone(&policy)).unwrap_or_default();
        if self.opening {
            self.dirty.since.get_or_insert(now);
        }
        if before == policy {
            return;
        }
        let of_all = |policy: &OperatorPolicy| (policy.mode, policy.everything.is_some());
        if of_all(&before) != of_all(&policy) {
            let all: Vec<PoolId> = self.pools.keys().cloned().collect();
            all.into_iter().for_each(|id| self.dirty.pool(now, id));
            return;
        }
        let in_one = |id: &&PoolId| before.pools.contains_key(id) != policy.pools.contains_key(id);
        let pools: BTreeSet<PoolId> =
            before.pools.keys().chain(policy.pools.keys()).filter(in_one).cloned().collect();
        for id in pools.into_iter().filter(|id| self.pools.contains_key(id)).collect::<Vec<_>>() {
            self.dirty.pool(now, id);
        }
        let changed =
            |key: &ServiceKey| before.services.contains_key(key) != policy.services.contains_key(key);
        for uid in self.uids_of(changed) {
            self.touch_pools_of(now, &uid);
        }
    }

    /// Returns the Services with these names.
    fn uids_of(&self, wanted: impl Fn(&ServiceKey) -> bool) -> Vec<ServiceUid> {
        let is_wanted =
            |uid: &&ServiceUid| self.services.get(uid).is_some_and(|entry| wanted(&entry.fact.key));
        self.services.uids().filter(is_wanted).cloned().collect()
    }

    /// Returns why nothing is released here: this process does not write, so the writing process would still hold it
    /// back.
    fn release_refusal(&self) -> Option<Refusal> {
        if self.params.dry_run {
            return Some(Refusal::DryRun);
        }
        let stopped_by = self.policy.newest.as_ref().and_then(|policy| policy.stopped_by());
        match self.reporting {
            Some(_) => None,
            None => Some(stopped_by.map_or(Refusal::NotLeading, Refusal::Paused)),
        }
    }

    /// Releases everything in the scope that is held back now, on the operator's request. Later removals are held back
    /// again. If nodes were released for the same request, the request succeeds even if no removal was released.
    pub(super) fn on_release(
        &mut self,
        now: Now,
        request: RequestId,
        scope: &Scope,
        nodes: Vec<NodeName>,
        out: &mut Vec<Out>,
    ) {
        let refused = self.release_refusal();
        let answer = match refused.map_or_else(|| self.release(now, scope), Err) {
            Ok(pools) => Answer::Done(Done::Released { pools, nodes }),
            Err(_) if !nodes.is_empty() => Answer::Done(Done::Released { pools: Vec::new(), nodes }),
            Err(refusal) => Answer::Refused(refusal),
        };
        out.push(Out::Answer(request, answer));
    }

    fn release(&mut self, now: Now, scope: &Scope) -> Result<Vec<Released>, Refusal> {
        let everything = *scope == Scope::Everything;
        let is_stopped = self.breaker.tripped().is_some();
        let ends_stop = everything && is_stopped;
        if ends_stop {
            for id in self.breaker.release(now) {
                if let Some(pool) = self.pools.get_mut(&id) {
                    pool.release_losses();
                }
            }
            self.dirty.since.get_or_insert(now);
        }
        let mut released = Vec::new();
        // Why the removals that are not released stay.
        let mut stays = ReleaseRefusal::NothingHeld;
        for id in self.pools_in(scope)? {
            let Some(pool) = self.pools.get_mut(&id) else { continue };
            let Some(reason) =
                pool.assignment().and_then(|assignment| assignment.held.as_ref()).map(|held| held.reason)
            else {
                continue;
            };
            let goes = match reason {
                HeldReason::EmptyConfirm
                | HeldReason::NoUsableNode
                | HeldReason::LastMember
                | HeldReason::Fraction => {
                    pool.release();
                    if self.breaker.release_pool(&id) {
                        pool.release_losses();
                    }
                    true
                }
                HeldReason::Breaker => everything,
                HeldReason::AddOnly => false,
            };
            if goes {
                let still = self.held_besides(is_stopped && !everything);
                released.push(Released { pool: id.clone(), reason, still });
                self.dirty.pool(now, id);
            } else if reason == HeldReason::Breaker {
                stays = ReleaseRefusal::AllStopped;
            } else if stays == ReleaseRefusal::NothingHeld {
                stays = ReleaseRefusal::AddOnly;
            }
        }
        if released.is_empty() && !ends_stop {
            return Err(Refusal::NothingReleased(stays));
        }
        Ok(released)
    }

    /// Returns the reason that holds back every removal, apart from the pool's own guards.
    fn held_besides(&self, is_stopped: bool) -> Option<HeldReason> {
        let stopped = is_stopped && !self.params.guards.only_observes();
        let add_only = || self.policy.is_add_only().then_some(HeldReason::AddOnly);
        stopped.then_some(HeldReason::Breaker).or_else(add_only)
    }

    /// Returns the pools in the scope of a request.
    fn pools_in(&self, scope: &Scope) -> Result<BTreeSet<PoolId>, Refusal> {
        match scope {
            Scope::Everything => Ok(self.pools.keys().cloned().collect()),
            Scope::Pool(id) => match self.pools.get_key_value(id) {
                Some((id, _)) => Ok([id.clone()].into()),
                None => Err(Refusal::Unknown),
            },
            Scope::Service(key) => {
                let uids = self.uids_of(|name| name == key);
                if uids.is_empty() {
                    return Err(Refusal::Unknown);
                }
                Ok(uids.iter().flat_map(|uid| self.pools_of(uid)).collect())
            }
            // The admin state releases nodes.
            Scope::Node(_) => Err(Refusal::Unknown),
        }
    }
}

/// Returns the pauses by annotation of these Services.
fn annotated(owners: &Owners) -> impl Iterator<Item = PausedBy> {
    owners.values().filter(|fact| fact.paused).map(|fact| PausedBy::Annotation(fact.key.clone()))
}
