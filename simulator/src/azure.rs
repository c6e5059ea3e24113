//! ARM's model as an owner task has it, together with the ledger that watches its pools.

use std::collections::BTreeMap;

use simulator_models::arm::{ArmModel, Method, Reply, Request};

use crate::ledger::{Ledger, PoolName};
use crate::owner::Model;
use crate::truth;

/// The state of the simulated Azure.
pub struct Azure {
    /// The model. Writes that go past [`Azure::handle`] and [`Azure::foreign_put`] are not seen by the ledger.
    pub model: ArmModel,
    /// What the pools must hold, and since when they do.
    pub ledger: Ledger,
    /// While set, every connection is cut.
    pub down: bool,
    /// The last pool written on each load balancer, while its content may still be taken back.
    unsettled: BTreeMap<String, PoolName>,
}

impl Azure {
    /// Azure as this model has it, with nothing wanted yet.
    #[must_use]
    pub fn new(model: ArmModel) -> Self {
        Self { model, ledger: Ledger::default(), down: false, unsettled: BTreeMap::new() }
    }

    /// Answers one request; a write counts as there from the moment of its answer.
    pub fn handle(&mut self, request: &Request, now_us: u64) -> Reply {
        if self.down {
            return Reply::Refused;
        }
        let reply = self.model.handle(request, now_us);
        let latency_us = match &reply {
            Reply::Answer(response) => response.latency_us,
            Reply::Lost { latency_us } => *latency_us,
            Reply::Refused => return reply,
        };
        if matches!(request.method, Method::Put | Method::Delete)
            && let Some(pool) = pool_of(&request.path_and_query)
        {
            self.written(pool, now_us.saturating_add(latency_us));
        }
        reply
    }

    /// A write of somebody else; answers with its status.
    pub fn foreign_put(
        &mut self,
        load_balancer: &str,
        pool: &str,
        members: &[(&str, &str)],
        now_us: u64,
    ) -> u16 {
        let status = self.model.foreign_put(load_balancer, pool, members, now_us);
        self.written(PoolName::new(load_balancer, pool), now_us);
        status
    }

    fn written(&mut self, pool: PoolName, at_us: u64) {
        self.observe(&pool, at_us);
        let earlier = self.unsettled.insert(pool.load_balancer.clone(), pool);
        if let Some(earlier) = earlier {
            self.observe(&earlier, at_us);
        }
    }

    fn observe(&mut self, pool: &PoolName, at_us: u64) {
        let members = truth::members(&self.model, &pool.load_balancer, &pool.pool);
        self.ledger.observe(pool, &members, at_us);
    }
}

impl Model for Azure {
    fn revision(&self) -> u64 {
        self.ledger.moves()
    }

    fn deadline(&self) -> Option<u64> {
        self.model.deadline()
    }

    fn tick(&mut self, now_us: u64) {
        self.model.tick(now_us);
        let settled: Vec<String> =
            self.unsettled.keys().filter(|lb| !self.model.is_updating(lb)).cloned().collect();
        for load_balancer in settled {
            if let Some(pool) = self.unsettled.remove(&load_balancer) {
                self.observe(&pool, now_us);
            }
        }
    }
}

/// The pool that a path names: `…/loadBalancers/<name>/backendAddressPools/<pool>`.
fn pool_of(path_and_query: &str) -> Option<PoolName> {
    let path = path_and_query.split('?').next()?;
    let mut last = path.rsplit('/');
    let (pool, pools, load_balancer, balancers) = (last.next()?, last.next()?, last.next()?, last.next()?);
    let is_pool =
        pools.eq_ignore_ascii_case("backendAddressPools") && balancers.eq_ignore_ascii_case("loadBalancers");
    is_pool.then(|| PoolName::new(load_balancer, pool))
}
