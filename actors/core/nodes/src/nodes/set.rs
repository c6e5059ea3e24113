//! The draining set, and the record of a node before it enters the set (docs/design/nodes.md, N2, N4).

use std::collections::{BTreeMap, BTreeSet};

use super::Nodes;
use crate::pools::Pools;
use crate::record_store::RecordStore;
use crate::records::{Exceptions, Record};
use model::arm::Backend;
use model::draining::Draining;
use model::ids::{NodeUid, PoolId, PoolName};
use model::load_balancers::LbObservation;
use model::machine::Now;
use model::node::NodeFact;

/// Returns the record of a node that is about to be drained.
pub(super) fn record(fact: &NodeFact, since: Now, pools: &Pools, records: &RecordStore) -> Record {
    let backends: BTreeSet<Backend> = fact.backends().collect();
    let mut foreign = Exceptions::default();
    for (pool, backend) in pools.downs(&backends) {
        if !is_explained(records, pools, &fact.uid, pool, &backend) {
            foreign.add(pool);
        }
    }
    Record {
        node: fact.name.clone(),
        uid: fact.uid.clone(),
        ips: fact.ips.clone(),
        instance: fact.instance.clone(),
        since,
        foreign,
        taint_ours: false,
        rest: Vec::new(),
    }
}

/// Returns whether a Down is ours by the record of another node, such as a deleted node that had the address, or by
/// the pool's source (X2).
fn is_explained(
    records: &RecordStore,
    pools: &Pools,
    uid: &NodeUid,
    pool: &PoolId,
    backend: &Backend,
) -> bool {
    let is_ours = |record: &Record| {
        record.uid != *uid && !record.foreign.holds(pool) && record.backends().any(|other| other == *backend)
    };
    pools.is_claimed(pool, backend) || records.all().any(is_ours)
}

impl Nodes {
    /// Returns the set, if it has changed. With `restores_all`, the set also restores Downs of deleted nodes, and
    /// Downs in pools whose sources are not known.
    pub(crate) fn set(
        &mut self,
        pools: &Pools,
        listed: &BTreeSet<PoolId>,
        records: &RecordStore,
        restores_all: bool,
        last: &Draining,
    ) -> Option<Draining> {
        if !std::mem::take(&mut self.stale) {
            return None;
        }
        let recorded = || self.busy().filter(|(_, node)| node.phase.history().is_some());
        let recorded = || recorded().filter_map(|(uid, node)| Some((records.confirmed(uid)?, node)));
        let recorded_backends: BTreeSet<Backend> =
            recorded().flat_map(|(record, _)| record.backends()).collect();
        let (mut drains, mut stays) = (BTreeMap::new(), BTreeSet::new());
        for (uid, node) in self.nodes.iter().filter(|_| !recorded_backends.is_empty()) {
            let Some(fact) = &node.fact else { continue };
            for backend in fact.backends().filter(|backend| recorded_backends.contains(backend)) {
                if node.phase.drains() {
                    // An address is added only once it is recorded.
                    let is_recorded = records.confirmed(uid).is_some_and(|record| record.has(&backend));
                    if is_recorded {
                        drains.insert(backend, uid.clone());
                    }
                } else if !node.phase.is_recording() {
                    stays.insert(backend);
                }
            }
        }
        let outlived = recorded().filter(|(_, node)| restores_all && node.phase.is_gone());
        stays.extend(outlived.flat_map(|(record, _)| record.backends()));
        // If a node that is about to be deleted shares its address with its successor, the successor counts.
        drains.retain(|backend, _| !stays.contains(backend));
        let (mut restores, mut foreign) = (BTreeMap::new(), BTreeSet::new());
        for (record, _) in recorded() {
            for backend in record.backends().filter(|backend| stays.contains(backend)) {
                restores.entry(backend).or_insert_with(|| record.uid.clone());
            }
            // A new exception counts at once. The end of an exception counts when it is confirmed.
            let newest = records.desired(&record.uid).unwrap_or(record);
            let has_any = !newest.foreign.is_empty() || !record.foreign.is_empty();
            let is_one = |pool: &&PoolId| newest.foreign.holds(pool) || record.foreign.holds(pool);
            let pools = pools.ids().filter(|_| has_any).filter(is_one);
            let pairs = |pool: &PoolId| {
                let pool = pool.clone();
                newest.backends().map(move |backend| (pool.clone(), backend))
            };
            foreign.extend(pools.flat_map(pairs));
        }
        let kept = pools.required_downs().filter(|(_, backend)| restores.contains_key(backend));
        // A source that is not known may require an existing Down (X3).
        let unknown = listed.iter().filter(|pool| !restores_all && !pools.knows_source(pool));
        let unknown = unknown.flat_map(|pool| restores.keys().map(move |backend| (pool, backend.clone())));
        let kept = kept.chain(unknown);
        let next = Draining {
            generation: last.generation,
            addresses: drains,
            restorable: restores.keys().cloned().collect(),
            foreign,
            kept: kept.map(|(pool, backend)| (pool.clone(), backend)).collect(),
            excluded: last.excluded.clone(),
        };
        self.restores = restores;
        (next != *last).then(|| Draining { generation: last.generation + 1, ..next })
    }

    /// Returns the backends of deleted nodes with a record, in those of these pools in which their Down is ours.
    /// Skips excluded pools (N2) and exceptions that are recorded or about to be.
    pub(crate) fn outlived(
        &self,
        listed: &BTreeSet<PoolId>,
        excluded: &BTreeSet<PoolName>,
        records: &RecordStore,
    ) -> BTreeSet<(PoolId, Backend)> {
        let gone = self.busy().filter(|(_, node)| node.phase.is_gone());
        let gone = gone.filter_map(|(uid, _)| records.confirmed(uid));
        let of = |record: &Record| -> Vec<(PoolId, Backend)> {
            let newest = records.desired(&record.uid).unwrap_or(record);
            let is_foreign = |pool: &PoolId| record.foreign.holds(pool) || newest.foreign.holds(pool);
            let pools = listed.iter().filter(|pool| !excluded.contains(&pool.pool) && !is_foreign(pool));
            pools.flat_map(|pool| record.backends().map(|backend| (pool.clone(), backend))).collect()
        };
        gone.flat_map(of).collect()
    }

    /// Returns whether the set must be computed again.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Marks the set to be computed again.
    pub(crate) fn make_stale(&mut self) {
        self.stale = true;
    }

    /// Returns the node of each Down that may be restored.
    pub(crate) fn restores(&self) -> &BTreeMap<Backend, NodeUid> {
        &self.restores
    }

    /// Applies an observation of a load balancer to the exceptions. A Down that precedes any PUT of ours is foreign
    /// (N4). The exception of a draining node ends when nothing is Down: a later Down is a new one. That of a deleted
    /// node ends likewise if a draining node has one of its addresses. Any exception ends when the pool's source
    /// accounts for all Downs (X2).
    pub(crate) fn observe_lb(&mut self, seen: &LbObservation, pools: &Pools, records: &mut RecordStore) {
        let (mut found, mut over) = (Vec::new(), Vec::new());
        let mut downs: BTreeMap<&Backend, BTreeSet<&PoolId>> = BTreeMap::new();
        for (pool, backend) in pools.downs_of(&seen.lb).filter(|(pool, _)| pools.is_as_seen(pool, seen.began))
        {
            downs.entry(backend).or_default().insert(pool);
        }
        for (uid, node) in self.busy() {
            let Some(record) = records.desired(uid) else { continue };
            if !node.phase.precedes(None) && record.foreign.is_empty() {
                continue;
            }
            let backends: BTreeSet<Backend> = record.backends().collect();
            let ends = node.phase.drains() || node.phase.is_gone() && self.is_drained(&backends);
            let is_foreign = |pool: &&PoolId| record.foreign.holds(pool);
            if !record.foreign.is_empty() {
                for pool in
                    pools.of(&seen.lb).filter(|pool| pools.is_as_seen(pool, seen.began)).filter(is_foreign)
                {
                    let mut downs = pools.downs_in(pool, &backends).peekable();
                    let is_over = if downs.peek().is_none() { ends } else { pools.accounts_for(pool, downs) };
                    if is_over {
                        over.push((uid.clone(), pool.clone()));
                    }
                }
            }
            let with_downs: BTreeSet<&PoolId> =
                backends.iter().filter_map(|backend| downs.get(backend)).flatten().copied().collect();
            for pool in with_downs.into_iter().filter(|pool| !is_foreign(pool)) {
                if node.phase.precedes(seen.puts.sent.get(&pool.pool).copied())
                    && pools
                        .downs_in(pool, &backends)
                        .any(|backend| !is_explained(records, pools, uid, pool, &backend))
                {
                    found.push((uid.clone(), pool.clone()));
                }
            }
        }
        self.record_exceptions(&found, &over, records);
        // A pool that exists again may be an exception.
        self.stale |= records.all().any(|record| !record.foreign.is_empty());
    }

    /// Returns whether a draining node has one of these backends.
    fn is_drained(&self, backends: &BTreeSet<Backend>) -> bool {
        let mut facts =
            self.busy().filter(|(_, node)| node.phase.drains()).filter_map(|(_, node)| node.fact.as_ref());
        facts.any(|fact| fact.backends().any(|backend| backends.contains(&backend)))
    }

    /// Applies a change of the admin states that a pool's source sets: it may account for exceptions there (X2).
    pub(crate) fn source_changed(&mut self, pool: &PoolId, pools: &Pools, records: &mut RecordStore) {
        let mut over = Vec::new();
        for (uid, _) in self.busy() {
            let Some(record) = records.desired(uid).filter(|record| record.foreign.holds(pool)) else {
                continue;
            };
            let backends: BTreeSet<Backend> = record.backends().collect();
            let mut downs = pools.downs_in(pool, &backends).peekable();
            if downs.peek().is_some() && pools.accounts_for(pool, downs) {
                over.push((uid.clone(), pool.clone()));
            }
        }
        self.record_exceptions(&[], &over, records);
        self.stale = true;
    }

    /// Applies a report that these backends were Down in a pool before a write. `sent` is the time of our last PUT to
    /// it.
    pub(crate) fn downs_found(
        &mut self,
        pool: &PoolId,
        sent: Option<Now>,
        downs: &BTreeSet<Backend>,
        pools: &Pools,
        records: &mut RecordStore,
    ) {
        let mut found = Vec::new();
        for (uid, _) in self.busy().filter(|(_, node)| node.phase.precedes(sent)) {
            let record = records.desired(uid).filter(|record| !record.foreign.holds(pool));
            let mut of = record.into_iter().flat_map(Record::backends).filter(|of| downs.contains(of));
            if of.any(|backend| !is_explained(records, pools, uid, pool, &backend)) {
                found.push((uid.clone(), pool.clone()));
            }
        }
        self.record_exceptions(&found, &[], records);
    }

    fn record_exceptions(
        &mut self,
        found: &[(NodeUid, PoolId)],
        over: &[(NodeUid, PoolId)],
        records: &mut RecordStore,
    ) {
        for (uid, pool) in found {
            records.add_foreign(uid, pool);
        }
        for (uid, pool) in over {
            records.end_foreign(uid, pool);
        }
        self.stale |= !found.is_empty() || !over.is_empty();
    }
}
