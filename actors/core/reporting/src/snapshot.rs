//! Collects the machines' views into one snapshot, published at most every 250 ms (docs/design/model-and-mechanisms.md,
//! A2).
//!
//! The publisher makes no decisions about the views.

mod carried;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use carried::PredecessorRecord;
use model::error::NotManageable;
use model::ids::{NodeName, PoolId, ServiceKey, ServiceUid};
use model::lease::OutOfSyncTimes;
use model::machine::{Machine, Now};
use model::node::NodeFact;
use model::sample::GateClass;
use model::view::{
    AdminView, GateView, GuardsView, LaneView, LbView, LeadershipView, NodeView, PolicyView, PoolView,
    ServiceView, SharedLeaseView, Snapshot, SourceView,
};
use model::xds::dump::XdsView;

/// Number of out-of-sync pools that our Lease records.
const MAX_RECORDED: usize = 20;
/// Minimum time between two snapshots.
const INTERVAL: Duration = Duration::from_millis(250);

/// Inputs of the publisher.
#[derive(Clone, Debug)]
pub enum In {
    /// The view of a pool.
    Pool(Arc<PoolView>),
    /// A pool that is gone.
    PoolGone(PoolId),
    /// A Service; `None` when it is gone. The UID tells a re-created Service from its predecessor.
    Service(ServiceUid, ServiceKey, Option<Arc<ServiceView>>),
    /// The view of a lane.
    Lane(LaneView),
    /// The view of a gate.
    Gate(GateClass, GateView),
    /// The view of a source.
    Source(SourceView),
    /// The view of a load balancer.
    Lb(LbView),
    /// Time since which the previous leader has found pools out of sync.
    OutOfSync(OutOfSyncTimes),
    /// The state of leadership.
    Leadership(LeadershipView),
    /// The state of the shared Lease.
    SharedLease(SharedLeaseView),
    /// The reason why a listed pool is not written; `None`: nothing blocks it any more.
    Refused(PoolId, Option<NotManageable>),
    /// The state of the xDS control planes.
    Xds(Arc<XdsView>),
    /// The state of the guards.
    Guards(GuardsView),
    /// The mode and the pauses.
    OperatorPolicy(PolicyView),
    /// A node that leaves service or comes back; `None`: nothing remains under this name.
    Node(NodeName, Option<NodeView>),
    /// An existing node; `None`: no node has this name any more.
    Known(NodeName, Option<Arc<NodeFact>>),
    /// The admin state as a whole.
    Admin(AdminView),
    /// The first lists are complete.
    ListsSynced,
    /// Discovery read at least one managed load balancer. Each other one was read, failed, or did not answer within 1
    /// s.
    DiscoverySynced,
}

/// Outputs of the publisher.
#[derive(Clone, Debug)]
pub enum Out {
    /// To the published cell.
    Publish(Arc<Snapshot>),
    /// To the Leader: the pools that have been out of sync longest.
    OutOfSync(OutOfSyncTimes),
}

/// The newest view of everything, and the time of the last publication.
#[derive(Debug, Default)]
pub struct SnapshotPublisher {
    newest: Snapshot,
    /// True if anything changed since the last publication.
    dirty: bool,
    /// Time of the last publication.
    published: Option<Now>,
    /// Time since which the previous leader has found pools out of sync.
    carried: PredecessorRecord,
    /// The pools last reported out of sync; `None`: none were reported in this term.
    out_of_sync: Option<OutOfSyncTimes>,
}

impl SnapshotPublisher {
    /// Creates an empty publisher.
    #[must_use]
    pub fn new() -> SnapshotPublisher {
        SnapshotPublisher::default()
    }

    /// Records a view. Returns whether anything visible changed.
    fn record(&mut self, now: Now, input: In) -> bool {
        let newest = &mut self.newest;
        match input {
            In::Pool(view) => {
                newest.pools.insert(view.pool.clone(), self.carried.applied(now, view));
                true
            }
            In::PoolGone(pool) => {
                self.carried.forget(&pool);
                newest.pools.remove(&pool).is_some()
            }
            In::OutOfSync(pools) => {
                (self.carried, self.out_of_sync) = (PredecessorRecord::new(now, &pools), None);
                for view in newest.pools.values_mut().filter(|view| view.out_of_sync.is_some()) {
                    *view = self.carried.applied(now, Arc::clone(view));
                }
                true
            }
            In::Service(_, key, Some(view)) => {
                newest.services.insert(key, view);
                true
            }
            In::Service(uid, key, None) => {
                let same = newest.services.get(&key).is_some_and(|view| view.uid == uid);
                same && newest.services.remove(&key).is_some()
            }
            In::Lane(view) => {
                newest.lanes.insert(view.lb.clone(), Arc::new(view));
                true
            }
            In::Gate(class, view) => {
                let same = newest.gates.get(&class) == Some(&view);
                newest.gates.insert(class, view);
                !same
            }
            In::Source(view) => {
                let same = newest.sources.get(&view.kind) == Some(&view);
                newest.sources.insert(view.kind, view);
                !same
            }
            In::Lb(view) => {
                self.carried.on_balancer(&view);
                newest.load_balancers.insert(view.lb.clone(), Arc::new(view));
                true
            }
            In::Refused(pool, Some(reason)) => newest.refused.insert(pool, reason.clone()) != Some(reason),
            In::Refused(pool, None) => newest.refused.remove(&pool).is_some(),
            In::Leadership(view) => replace_view(&mut newest.leadership, view),
            In::Xds(view) => replace_view(&mut newest.xds, view),
            In::SharedLease(view) => replace_view(&mut newest.shared_lease, view),
            In::Guards(view) => replace_view(&mut newest.guards, view),
            In::OperatorPolicy(view) => replace_view(&mut newest.policy, view),
            In::Node(name, Some(view)) => {
                let same = newest.nodes.get(&name).is_some_and(|known| **known == view);
                newest.nodes.insert(name, Arc::new(view));
                !same
            }
            In::Node(name, None) => newest.nodes.remove(&name).is_some(),
            In::Known(name, Some(fact)) => {
                newest.known_nodes.insert(name, fact);
                true
            }
            In::Known(name, None) => newest.known_nodes.remove(&name).is_some(),
            In::Admin(view) => {
                let same = newest.admin_state.as_ref().is_some_and(|known| **known == view);
                newest.admin_state = Some(Arc::new(view));
                !same
            }
            In::ListsSynced => !std::mem::replace(&mut newest.synced.lists, true),
            In::DiscoverySynced => !std::mem::replace(&mut newest.synced.discovery, true),
        }
    }

    fn next_publication(&self) -> Now {
        self.published.map_or(Now::ZERO, |published| published.plus(INTERVAL))
    }

    /// Publishes changes once the interval has passed. Only this copies the maps, and those hold `Arc`s.
    fn publish(&mut self, now: Now, out: &mut Vec<Out>) {
        if self.dirty && self.next_publication() <= now {
            self.dirty = false;
            self.published = Some(now);
            self.newest.at = now;
            self.send_out_of_sync(now, out);
            out.push(Out::Publish(Arc::new(self.newest.clone())));
        }
    }
}

impl SnapshotPublisher {
    /// Sends the pools that have been out of sync longest to the Leader, when they change. Those that the previous
    /// leader recorded count too while their load balancer has not been read.
    fn send_out_of_sync(&mut self, now: Now, out: &mut Vec<Out>) {
        let Snapshot { synced, load_balancers, .. } = &self.newest;
        let is_managed = |pool: &PoolId| !synced.discovery || load_balancers.contains_key(&pool.lb);
        let late = self.newest.longest_out_of_sync(MAX_RECORDED).into_iter();
        let unfound = self.carried.unfound(now).filter(|(_, pool)| is_managed(pool));
        let mut longest: Vec<(Now, &PoolId)> =
            late.map(|(since, view)| (since, &view.pool)).chain(unfound).collect();
        longest.sort_unstable();
        longest.truncate(MAX_RECORDED);
        let longest: BTreeMap<PoolId, Now> =
            longest.into_iter().map(|(since, pool)| (pool.clone(), since)).collect();
        if self.out_of_sync.as_ref().is_none_or(|sent| **sent != longest) {
            let longest = Arc::new(longest);
            self.out_of_sync = Some(Arc::clone(&longest));
            out.push(Out::OutOfSync(longest));
        }
    }
}

/// Replaces a view. Returns whether it differs from the former one.
fn replace_view<V: PartialEq>(current: &mut Option<V>, view: V) -> bool {
    let same = current.as_ref() == Some(&view);
    *current = Some(view);
    !same
}

impl Machine for SnapshotPublisher {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        self.dirty |= self.record(now, input);
        self.publish(now, out);
    }

    fn deadline(&self) -> Option<Now> {
        self.dirty.then(|| self.next_publication())
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        self.publish(now, out);
    }
}
