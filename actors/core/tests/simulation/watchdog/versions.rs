//! The state of a Service's EndpointSlices behind a write: an older level is never written over a newer one, by any
//! process (W8).
//!
//! A level is stamped with the newest write of a slice of its Service that the Informer had received when it sent the
//! Service's part of the level. Between two such writes, the Service's endpoints cannot differ.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::assignment::Assignment;
use model::ids::{AttemptId, PoolId, ServiceUid};
use model::object::{Kind, Object, ResourceVersion};
use model::services::ServiceFact;
use model::watch::WatchUpdate;
use sources::informer;

/// Stamp of each Service in a level.
pub type Stamp = BTreeMap<ServiceUid, u64>;

/// Knowledge of one process.
#[derive(Default)]
pub struct Horizon {
    /// Newest write of any slice that the Informer has received.
    slices: u64,
    facts: BTreeMap<(ServiceUid, u64), u64>,
    assigned: BTreeMap<PoolId, Stamp>,
    attempts: BTreeMap<AttemptId, Stamp>,
}

fn number(version: &ResourceVersion) -> u64 {
    version.0.parse().unwrap_or(0)
}

impl Horizon {
    /// Records an input of the Informer.
    pub fn record_input(&mut self, input: &informer::In) {
        let informer::In::Seen(Kind::EndpointSlices, _, event) = input else { return };
        let version = match event {
            WatchUpdate::Object(Object::Slice(slice)) => number(&slice.resource_version),
            WatchUpdate::Deleted { resource_version, .. } => number(resource_version),
            WatchUpdate::ListDone { resource_version: version, .. } | WatchUpdate::Bookmark(version) => {
                number(version)
            }
            WatchUpdate::Object(Object::Service(_) | Object::Node(_) | Object::Preemption(_))
            | WatchUpdate::ListBegan(_)
            | WatchUpdate::Undecodable { .. }
            | WatchUpdate::ListAborted
            | WatchUpdate::Reconnected
            | WatchUpdate::AnyList(_) => 0,
        };
        self.slices = self.slices.max(version);
    }

    /// Records that the storage was restored: earlier knowledge is of another history, neither older nor newer than
    /// what follows.
    pub fn rollback(&mut self) {
        self.slices = 0;
        self.facts.clear();
        self.assigned.clear();
        self.attempts.values_mut().for_each(BTreeMap::clear);
    }

    /// Records the Informer's fact about a Service.
    pub fn record_fact(&mut self, uid: &ServiceUid, fact: &ServiceFact, truth: &Versions) {
        let stamp = truth.stamp(&fact.key.name, self.slices);
        self.facts.entry((uid.clone(), fact.revision)).or_insert(stamp);
    }

    /// Records that a pool received its level.
    pub fn assigned(&mut self, assignment: &Assignment) {
        let stamp = assignment.services.iter().map(|(uid, share)| {
            (uid.clone(), self.facts.get(&(uid.clone(), share.revision)).copied().unwrap_or(0))
        });
        self.assigned.insert(assignment.pool.clone(), stamp.collect());
    }

    /// Records that a pool gave its level to an attempt.
    pub fn taken(&mut self, pool: &PoolId, attempt: AttemptId) {
        self.attempts.insert(attempt, self.assigned.get(pool).cloned().unwrap_or_default());
    }

    /// Records that the pool has left an attempt.
    pub fn left(&mut self, attempt: AttemptId) {
        self.attempts.remove(&attempt);
    }

    /// Returns whether a pool has given a level to an attempt.
    pub fn knows(&self, attempt: AttemptId) -> bool {
        self.attempts.contains_key(&attempt)
    }

    /// Returns the stamp of an attempt.
    pub fn of(&self, attempt: AttemptId) -> Stamp {
        self.attempts.get(&attempt).cloned().unwrap_or_default()
    }
}

/// True versions, and written ones.
#[derive(Default)]
pub struct Versions {
    /// Writes of slices, by the name of their Service.
    written: BTreeMap<Arc<str>, Vec<u64>>,
    accepted: BTreeMap<PoolId, Stamp>,
}

impl Versions {
    /// Records that a slice of a Service was written.
    pub fn record(&mut self, service: &str, version: u64) {
        let written = self.written.entry(Arc::from(service)).or_default();
        if written.last().is_none_or(|last| *last < version) {
            written.push(version);
        }
    }

    /// Records that the storage was restored to a version.
    pub fn rollback(&mut self, version: u64) {
        for written in self.written.values_mut() {
            written.retain(|known| *known <= version);
        }
        self.accepted.clear();
    }

    fn stamp(&self, service: &str, horizon: u64) -> u64 {
        let Some(written) = self.written.get(service) else { return 0 };
        let known = written.partition_point(|version| *version <= horizon);
        known.checked_sub(1).and_then(|last| written.get(last)).copied().unwrap_or(0)
    }

    /// Checks a PUT by the stamp of its level.
    ///
    /// # Errors
    /// An older part.
    pub fn check(&self, pool: &PoolId, stamp: &Stamp) -> Result<(), String> {
        let Some(accepted) = self.accepted.get(pool) else { return Ok(()) };
        for (uid, version) in stamp {
            if let Some(newest) = accepted.get(uid).filter(|newest| *newest > version) {
                return Err(format!(
                    "W8: an older level over a newer one in {pool}: {version} over {newest} of {uid}"
                ));
            }
        }
        Ok(())
    }

    /// Records that a PUT was accepted.
    pub fn accept(&mut self, pool: &PoolId, stamp: &Stamp) {
        let accepted = self.accepted.entry(pool.clone()).or_default();
        for (uid, version) in stamp {
            let newest = accepted.entry(uid.clone()).or_default();
            *newest = (*newest).max(*version);
        }
    }
}
