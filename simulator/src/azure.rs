//! ARM's model in its owner task, with the trackers of its pools.

use std::collections::{BTreeMap, BTreeSet};

use simulator_models::arm::{ArmModel, Method, Reply, Request};

use crate::convergence::{ConvergenceTracker, PoolName};
use crate::downs::{AdminPut, Downs};
use crate::expected_members::{self, ExpectedPool, States, WrongEntry};
use crate::lanes::{Fate, Lanes, Write};
use crate::outages::Outages;
use crate::owner::Model;
use crate::scenario::Reach;
use crate::wire::Wire;

/// User agent of requests of another client.
pub(crate) const FOREIGN_AGENT: &str = "kubernetes-cloudprovider";

/// The state of the simulated Azure.
pub struct Azure {
    /// The model. The convergence tracker sees only writes by [`Azure::handle`] and [`Azure::foreign_put`].
    pub model: ArmModel,
    /// Required members of the pools, with the times of their changes.
    pub convergence: ConvergenceTracker,
    /// Time for which pools had no serving member.
    pub(crate) outages: Outages,
    /// The writes of each load balancer.
    pub lanes: Lanes,
    /// The Down entries, and the clients that have set them.
    pub(crate) downs: Downs,
    /// True while every connection is aborted.
    pub down: bool,
    /// The requests that its listener records, and the hook that decides about requests before the model does.
    pub wire: Wire,
    /// Number of aborted requests.
    pub(crate) cut: u64,
    /// Seconds by which its wall clock is ahead of the local one.
    pub(crate) ahead_s: i64,
    /// Counts of the models at the time of each action of the scenario.
    pub(crate) reach: Reach,
    /// The last written pool of each load balancer, while its content may still be reverted.
    unsettled: BTreeMap<String, PoolName>,
}

impl Azure {
    /// Creates Azure with this model and without required members.
    #[must_use]
    pub fn new(model: ArmModel) -> Self {
        Self {
            model,
            convergence: ConvergenceTracker::default(),
            outages: Outages::default(),
            lanes: Lanes::default(),
            downs: Downs::default(),
            down: false,
            cut: 0,
            wire: Wire::default(),
            ahead_s: 0,
            reach: Reach::default(),
            unsettled: BTreeMap::new(),
        }
    }

    /// Answers one request; a write takes effect at its answer.
    pub fn handle(&mut self, request: &Request, now_us: u64) -> Reply {
        if self.down {
            self.cut += 1;
            return Reply::Refused;
        }
        let put = self.admin_put(request, now_us);
        let reply = self.model.handle(request, now_us);
        let (latency_us, status) = match &reply {
            Reply::Answer(response) => (response.latency_us, response.status),
            Reply::Lost { latency_us } => (*latency_us, 0),
            Reply::Refused => {
                self.downs.sent_if(put, false);
                return reply;
            }
        };
        let taken = fate_of(status) != Fate::Refused;
        self.downs.sent_if(put, taken);
        if !matches!(request.method, Method::Get | Method::Head) {
            let answered_us = now_us.saturating_add(latency_us);
            self.record(request, status, now_us, answered_us);
            match pool_of(&request.path_and_query) {
                Some(pool) => {
                    if taken {
                        self.downs.wrote(&pool, is_foreign(request));
                    }
                    self.written(pool, answered_us);
                }
                None => self.observe_all(answered_us),
            }
        }
        reply
    }

    /// Returns the changes of admin states in a request, if it is a PUT of the controller with any.
    fn admin_put(&self, request: &Request, now_us: u64) -> Option<AdminPut> {
        if request.method != Method::Put || is_foreign(request) {
            return None;
        }
        self.downs.admin_put(pool_of(&request.path_and_query)?, &request.body, now_us)
    }

    /// Records a write on the lane of its load balancer.
    fn record(&mut self, request: &Request, status: u16, started_us: u64, answered_us: u64) {
        let Some(load_balancer) = balancer_of(&request.path_and_query) else { return };
        let pool = pool_of(&request.path_and_query);
        let runs = self.model.is_updating(&load_balancer);
        let write = Write {
            load_balancer,
            pool: pool.map(|pool| pool.pool),
            foreign: is_foreign(request),
            started_us,
            answered_us,
            ended_us: answered_us,
            status,
            fate: fate_of(status),
        };
        self.lanes.wrote(write, runs);
    }

    /// Changes the required members of pools at `changed_us` in the convergence tracker.
    pub(crate) fn want(&mut self, wanted: Vec<(PoolName, ExpectedPool)>, changed_us: u64) {
        for (pool, wanted) in wanted {
            let members = expected_members::members(&self.model, &pool.load_balancer, &pool.pool);
            self.outages.observe(&self.model, &pool, &wanted.required, changed_us);
            self.convergence.want(pool, wanted, &members, changed_us);
        }
    }

    /// Observes every pool, after an action that may have changed any of them.
    pub(crate) fn observe_all(&mut self, at_us: u64) {
        let pools: BTreeSet<PoolName> = self.convergence.names().chain(self.downs.names()).cloned().collect();
        for pool in pools {
            self.observe(&pool, at_us);
        }
    }

    /// Writes a pool as another client, and returns the status.
    pub fn foreign_put(
        &mut self,
        load_balancer: &str,
        pool: &str,
        members: &[(&str, &str)],
        now_us: u64,
    ) -> u16 {
        let status = self.model.foreign_put(load_balancer, pool, members, now_us);
        let name = PoolName::new(load_balancer, pool);
        let write = Write {
            load_balancer: name.load_balancer.clone(),
            pool: Some(name.pool.clone()),
            foreign: true,
            started_us: now_us,
            answered_us: now_us,
            ended_us: now_us,
            status,
            fate: fate_of(status),
        };
        if write.fate == Fate::Done {
            self.downs.wrote(&name, true);
        }
        self.lanes.wrote(write, self.model.is_updating(load_balancer));
        self.written(name, now_us);
        status
    }

    /// Starts the record of admin states with the existing pools.
    pub(crate) fn track_admin_states(&mut self) {
        let model = &self.model;
        let of = |lb| model.pools(lb).map(move |pool| PoolName::new(lb, pool));
        let pools: Vec<PoolName> = model.load_balancers().flat_map(of).collect();
        for pool in pools {
            self.downs.observe(&self.model, &pool, 0);
        }
    }

    /// Returns the entries whose admin states differ from those required by the nodes' taints.
    #[must_use]
    pub fn wrong_entries(&self, states: &States) -> Vec<WrongEntry> {
        expected_members::wrong_entries(&self.model, states, &self.downs)
    }

    fn written(&mut self, pool: PoolName, at_us: u64) {
        self.observe(&pool, at_us);
        let earlier = self.unsettled.insert(pool.load_balancer.clone(), pool);
        if let Some(earlier) = earlier {
            self.observe(&earlier, at_us);
        }
    }

    fn observe(&mut self, pool: &PoolName, at_us: u64) {
        let members = expected_members::members(&self.model, &pool.load_balancer, &pool.pool);
        self.convergence.observe(pool, &members, at_us);
        self.downs.observe(&self.model, pool, at_us);
        if let Some(required) = self.convergence.required(pool) {
            self.outages.observe(&self.model, pool, required, at_us);
        }
    }
}

impl Model for Azure {
    fn revision(&self) -> u64 {
        self.convergence.moves() + self.downs.moves()
    }

    fn deadline(&self) -> Option<u64> {
        self.model.deadline()
    }

    fn tick(&mut self, now_us: u64) {
        self.model.tick(now_us);
        self.lanes.finish(now_us, |lb| self.model.is_updating(lb));
        let settled: Vec<String> =
            self.unsettled.keys().filter(|lb| !self.model.is_updating(lb)).cloned().collect();
        for load_balancer in settled {
            if let Some(pool) = self.unsettled.remove(&load_balancer) {
                self.observe(&pool, now_us);
            }
        }
    }
}

/// Returns whether the cloud-controller-manager sent a request, or another client under its name.
fn is_foreign(request: &Request) -> bool {
    let agent = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("user-agent"));
    agent.is_some_and(|(_, agent)| agent.starts_with(FOREIGN_AGENT))
}

/// Returns the result of a write by its status; 0 is a lost answer.
fn fate_of(status: u16) -> Fate {
    match status {
        0 => Fate::Lost,
        200..300 => Fate::Done,
        _ => Fate::Refused,
    }
}

/// Returns the load balancer of a path to it or to one of its children.
fn balancer_of(path_and_query: &str) -> Option<String> {
    let path = path_and_query.split('?').next()?;
    let mut words = path.split('/').skip_while(|word| !word.eq_ignore_ascii_case("loadBalancers"));
    words.nth(1).map(str::to_lowercase)
}

/// Returns the pool of a path: `…/loadBalancers/<name>/backendAddressPools/<pool>`.
pub(crate) fn pool_of(path_and_query: &str) -> Option<PoolName> {
    let path = path_and_query.split('?').next()?;
    let mut last = path.rsplit('/');
    let (pool, pools, load_balancer, balancers) = (last.next()?, last.next()?, last.next()?, last.next()?);
    let is_pool =
        pools.eq_ignore_ascii_case("backendAddressPools") && balancers.eq_ignore_ascii_case("loadBalancers");
    is_pool.then(|| PoolName::new(load_balancer, pool))
}
