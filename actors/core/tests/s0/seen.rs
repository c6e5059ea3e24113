//! What operators, ARM and the metrics get to see of the bench.

use std::sync::Arc;
use std::time::Duration;

use model::ids::PoolId;
use model::sample::Metric;
use model::view::PoolView;
use simulator_models::arm::Kind;

use crate::bench::{Bench, web};

/// A request that reached ARM: milliseconds since the mark, what was asked, the status of the answer.
pub type Request = (i64, &'static str, u16);

impl Bench {
    /// Forgets what was told, observed and asked so far.
    pub fn forget(&mut self) {
        self.told.clear();
        self.samples.clear();
        self.mark = self.now;
    }

    /// The events since the last question: Service, type, reason, message.
    pub fn told(&mut self) -> Vec<String> {
        self.told.drain(..).map(|(_, text)| text).collect()
    }

    /// The same with their milliseconds since the mark.
    pub fn told_at(&mut self) -> Vec<(i64, String)> {
        let told = std::mem::take(&mut self.told);
        told.into_iter().map(|(at, text)| (self.since_mark(at), text)).collect()
    }

    /// The terminal observations since the last question: whether each was a failure, and how long it took.
    pub fn observed(&mut self) -> Vec<(bool, Duration)> {
        let mut observed = Vec::new();
        for sample in self.samples.drain(..) {
            if let Metric::Attempt { took, failed } = sample {
                observed.push((failed, took));
            }
        }
        observed
    }

    /// Whether each terminal observation since the last question was a failure.
    pub fn failures(&mut self) -> Vec<bool> {
        self.observed().into_iter().map(|(failed, _)| failed).collect()
    }

    /// The requests about `lb/shop-web` that have reached ARM since the mark, discovery's apart.
    pub fn requests(&self) -> Vec<Request> {
        self.requests_of(&web())
    }

    /// The requests about a pool that have reached ARM since the mark, discovery's apart.
    pub fn requests_of(&self, pool: &PoolId) -> Vec<Request> {
        let mut requests = Vec::new();
        for entry in self.model.log() {
            let verb = match entry.kind {
                Kind::PoolGet => "GET",
                Kind::PoolPut => "PUT",
                Kind::Poll => "POLL",
                Kind::LoadBalancerGet
                | Kind::LoadBalancerList
                | Kind::PoolList
                | Kind::PoolDelete
                | Kind::ForeignPoolPut
                | Kind::ForeignLoadBalancerPut
                | Kind::Other => continue,
            };
            let about = entry.pool.as_deref().is_none_or(|name| *name == *pool.pool.as_str())
                && entry.load_balancer.as_deref().is_none_or(|lb| *lb == *pool.lb.as_str());
            if about && entry.started_us >= self.mark {
                requests.push((self.since_mark(entry.started_us), verb, entry.status));
            }
        }
        requests
    }

    /// What a pool shows.
    pub fn view(&self, pool: &PoolId) -> Arc<PoolView> {
        Arc::clone(self.views.get(pool).expect("it was shown"))
    }

    /// The retry counts of the changes of a Service that wait in `lb/shop-web`.
    pub fn counts(&self, service: &str) -> Vec<u32> {
        self.view(&web()).retries.get(service).cloned().unwrap_or_default()
    }

    /// Whether a pool has a machine at all.
    pub fn has(&self, pool: &PoolId) -> bool {
        self.pools.contains_key(pool)
    }

    /// The members that a pool has in Azure, by their last number.
    pub fn members(&self, pool: &PoolId) -> Vec<u8> {
        let ips = self.model.member_ips(pool.lb.as_str(), pool.pool.as_str()).unwrap_or_default();
        let last = |ip: &&str| ip.rsplit('.').next().and_then(|n| n.parse().ok()).expect("an IPv4 address");
        let mut members: Vec<u8> = ips.iter().map(last).collect();
        members.sort_unstable();
        members
    }
}
