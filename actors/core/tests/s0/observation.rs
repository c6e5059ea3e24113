//! The effects of the fixture that operators, ARM and the metrics see.

use std::sync::Arc;
use std::time::Duration;

use model::ids::PoolId;
use model::sample::Metric;
use model::view::PoolView;
use simulator_models::arm::Kind;

use crate::fixture::{Fixture, web};

/// A request that reached ARM: milliseconds since the mark, the request, the status of the answer.
pub type Request = (i64, &'static str, u16);

impl Fixture {
    /// Clears the events, observations and requests.
    pub fn forget(&mut self) {
        self.events.clear();
        self.samples.clear();
        self.mark = self.now;
    }

    /// Returns the events since the last call: Service, type, reason, message.
    pub fn events(&mut self) -> Vec<String> {
        self.events.drain(..).map(|(_, text)| text).collect()
    }

    /// Returns the events since the last call, with milliseconds since the mark.
    pub fn events_at(&mut self) -> Vec<(i64, String)> {
        let events = std::mem::take(&mut self.events);
        events.into_iter().map(|(at, text)| (self.since_mark(at), text)).collect()
    }

    /// Returns the terminal observations since the last call: whether each was a failure, and its duration.
    pub fn observed(&mut self) -> Vec<(bool, Duration)> {
        let mut observed = Vec::new();
        for sample in self.samples.drain(..) {
            if let Metric::Attempt { took, failed } = sample {
                observed.push((failed, took));
            }
        }
        observed
    }

    /// Returns whether each terminal observation since the last call was a failure.
    pub fn failures(&mut self) -> Vec<bool> {
        self.observed().into_iter().map(|(failed, _)| failed).collect()
    }

    /// Returns the requests about `lb/shop-web` since the mark, without discovery's.
    pub fn requests(&self) -> Vec<Request> {
        self.requests_of(&web())
    }

    /// Returns the requests about a pool since the mark, without discovery's.
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

    /// Returns the view of a pool.
    pub fn view(&self, pool: &PoolId) -> Arc<PoolView> {
        Arc::clone(self.views.get(pool).expect("it was shown"))
    }

    /// Returns the retry counts of a Service's changes that wait in `lb/shop-web`.
    pub fn counts(&self, service: &str) -> Vec<u32> {
        self.view(&web()).retries.get(service).cloned().unwrap_or_default()
    }

    /// Returns whether a pool has a machine.
    pub fn has(&self, pool: &PoolId) -> bool {
        self.pools.contains_key(pool)
    }

    /// Returns the members of a pool in Azure, by their last number.
    pub fn members(&self, pool: &PoolId) -> Vec<u8> {
        let ips = self.model.member_ips(pool.lb.as_str(), pool.pool.as_str()).unwrap_or_default();
        let last = |ip: &&str| ip.rsplit('.').next().and_then(|n| n.parse().ok()).expect("an IPv4 address");
        let mut members: Vec<u8> = ips.iter().map(last).collect();
        members.sort_unstable();
        members
    }
}
