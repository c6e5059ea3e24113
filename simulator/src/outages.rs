//! Effects on the clients of Services: the time for which pools had no serving member, the flows that ARM reset, and
//! the required members that another client removed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use simulator_models::arm::{ArmModel, Flows};

use crate::convergence::PoolName;
use crate::expected_members;

/// The outages of all pools.
#[derive(Clone, Debug, Default)]
pub struct Outages {
    pools: BTreeMap<PoolName, Served>,
    flows_reset: u64,
    taken: u64,
}

#[derive(Clone, Debug, Default)]
struct Served {
    /// Start of the current outage, if any.
    since_us: Option<u64>,
    /// Total duration of earlier outages.
    past_us: u64,
    /// Members whose flows are reset.
    reset: BTreeSet<IpAddr>,
    /// Required members that were present at the last observation.
    held: BTreeSet<IpAddr>,
}

impl Outages {
    /// Observes a pool at `at_us`, whose Service has endpoints on these nodes. A member serves if it is one of them and
    /// gets new connections. Without required members there is no outage.
    pub(crate) fn observe(
        &mut self,
        azure: &ArmModel,
        pool: &PoolName,
        required: &BTreeSet<IpAddr>,
        at_us: u64,
    ) {
        let is_required = |ip: &str| ip.parse().is_ok_and(|ip| required.contains(&ip));
        let traffic = azure.traffic_of_pool(&pool.load_balancer, &pool.pool, is_required);
        let serves = required.is_empty()
            || traffic.iter().any(|(ip, traffic)| traffic.new_connections && is_required(ip));
        let reset = traffic.iter().filter(|(_, traffic)| traffic.existing == Flows::Reset);
        self.record(pool, serves, reset.filter_map(|(ip, _)| ip.parse().ok()).collect(), at_us);
        self.record_taken(azure, pool, required);
    }

    /// Counts the required members that another client's write has removed since the last observation.
    fn record_taken(&mut self, azure: &ArmModel, pool: &PoolName, required: &BTreeSet<IpAddr>) {
        let mut held = expected_members::members(azure, &pool.load_balancer, &pool.pool);
        held.retain(|ip| required.contains(ip));
        let served = self.pools.entry(pool.clone()).or_default();
        let before = std::mem::replace(&mut served.held, held);
        let gone = |ip: &IpAddr| before.contains(ip) && required.contains(ip) && !served.held.contains(ip);
        let taken = azure.taken_by_others(&pool.load_balancer, &pool.pool).iter();
        self.taken += taken.filter_map(|ip| ip.parse::<IpAddr>().ok()).filter(gone).count() as u64;
    }

    fn record(&mut self, pool: &PoolName, serves: bool, reset: BTreeSet<IpAddr>, at_us: u64) {
        let served = self.pools.entry(pool.clone()).or_default();
        self.flows_reset += reset.difference(&served.reset).count() as u64;
        served.reset = reset;
        match (serves, served.since_us) {
            (false, None) => served.since_us = Some(at_us),
            (true, Some(since)) => {
                served.past_us += at_us.saturating_sub(since);
                served.since_us = None;
            }
            (true, None) | (false, Some(_)) => {}
        }
    }

    /// Ends the outage of a pool that is no longer required.
    pub(crate) fn forget(&mut self, pool: &PoolName, at_us: u64) {
        if self.pools.contains_key(pool) {
            self.record(pool, true, BTreeSet::new(), at_us);
        }
    }

    /// Returns the pools with outages, with their total duration until `end_us` in microseconds, the longest first.
    #[must_use]
    pub fn all(&self, end_us: u64) -> Vec<(&PoolName, u64)> {
        let lacked = |served: &Served| {
            served.past_us + served.since_us.map_or(0, |since| end_us.saturating_sub(since))
        };
        let all = self.pools.iter().map(|(pool, served)| (pool, lacked(served)));
        let mut all: Vec<(&PoolName, u64)> = all.filter(|(_, lacked)| *lacked > 0).collect();
        all.sort_by_key(|(_, lacked)| std::cmp::Reverse(*lacked));
        all
    }

    /// Returns the number of required members that another client removed.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the number of times a member's flows were reset.
    pub(crate) fn flows_reset(&self) -> u64 {
        self.flows_reset
    }
}

#[cfg(test)]
mod tests {
    use simulator_models::arm::{Latency, Method, PoolSpec, Request, Settings, VirtualNetwork};

    use super::*;

    fn ips(last: &[u8]) -> BTreeSet<IpAddr> {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
    }

    /// Writes members of these last bytes and admin states into pool `a` of `lb`.
    fn put(azure: &mut ArmModel, members: &[(u8, &str)]) {
        let member = |(last, state): &(u8, &str)| {
            serde_json::json!({"name": format!("n{last}"),
                "properties": {"ipAddress": format!("10.0.0.{last}"), "adminState": state}})
        };
        let members: Vec<serde_json::Value> = members.iter().map(member).collect();
        let body = serde_json::json!({"properties": {"loadBalancerBackendAddresses": members}});
        let subscription = Settings::default().subscription;
        let request = Request {
            method: Method::Put,
            path_and_query: format!(
                "/subscriptions/{subscription}/resourceGroups/rg/providers/Microsoft.Network/loadBalancers/lb/\
                 backendAddressPools/a?api-version=2024-05-01"
            ),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
        };
        azure.handle(&request, 0);
        assert_eq!(azure.member_ips("lb", "a").map(|ips| ips.len()), Some(members.len()));
    }

    #[test]
    fn z2_a_pool_without_a_serving_member_is_unserved() {
        let mut azure = ArmModel::new(Settings {
            down_resets_flows: true,
            put_latency: Latency::Fixed { us: 0 },
            ..Settings::default()
        });
        azure.add_load_balancer("lb");
        let network = VirtualNetwork::Pool(crate::vnet_id());
        azure.add_pool("lb", "a", &PoolSpec { virtual_network: network, ..PoolSpec::default() });
        azure.add_rule("lb", "rule", "a", true);
        let (pool, mut outages) = (PoolName::new("lb", "a"), Outages::default());

        outages.observe(&azure, &pool, &ips(&[]), 1_000);
        outages.observe(&azure, &pool, &ips(&[1]), 2_000);
        assert_eq!(outages.all(5_000), [(&pool, 3_000)], "the outage lasts, and there was none before");
        put(&mut azure, &[(2, "Up")]);
        outages.observe(&azure, &pool, &ips(&[1]), 6_000);
        assert_eq!(outages.all(7_000), [(&pool, 5_000)], "a member without an endpoint serves no traffic");
        put(&mut azure, &[(1, "None"), (2, "None")]);
        outages.observe(&azure, &pool, &ips(&[1]), 8_000);
        assert_eq!((outages.all(20_000), outages.flows_reset()), (vec![(&pool, 6_000)], 0));

        put(&mut azure, &[(1, "Down"), (2, "None")]);
        outages.observe(&azure, &pool, &ips(&[1]), 30_000);
        outages.observe(&azure, &pool, &ips(&[1]), 31_000);
        assert_eq!((outages.all(32_000), outages.flows_reset()), (vec![(&pool, 8_000)], 1));
        outages.forget(&pool, 33_000);
        assert_eq!(outages.all(90_000), [(&pool, 9_000)]);
    }

    #[test]
    fn z2_a_required_member_that_others_remove_is_counted() {
        let mut azure =
            ArmModel::new(Settings { put_latency: Latency::Fixed { us: 0 }, ..Settings::default() });
        let network = VirtualNetwork::Pool(crate::vnet_id());
        azure.add_pool("lb", "a", &PoolSpec { virtual_network: network, ..PoolSpec::default() });
        let (pool, mut outages) = (PoolName::new("lb", "a"), Outages::default());
        let mut observe = |azure: &ArmModel, required: &[u8]| {
            outages.observe(azure, &pool, &ips(required), 0);
            outages.taken()
        };
        put(&mut azure, &[(1, "None"), (2, "None"), (3, "None")]);
        assert_eq!(observe(&azure, &[1, 2]), 0);
        azure.foreign_put("lb", "a", &[("n1", "10.0.0.1"), ("n2", "10.0.0.2")], 1);
        assert_eq!(observe(&azure, &[1, 2]), 0, "the third was not required");
        assert_eq!(
            (observe(&azure, &[1, 2, 3]), observe(&azure, &[1, 2, 3])),
            (0, 0),
            "not required at its removal"
        );
        azure.foreign_put("LB", "A", &[("n1", "10.0.0.1")], 2);
        assert_eq!((observe(&azure, &[1, 2]), observe(&azure, &[1, 2])), (1, 1), "it is counted once");
        put(&mut azure, &[(1, "None"), (2, "None")]);
        assert_eq!(observe(&azure, &[1, 2]), 1);
        put(&mut azure, &[(1, "None")]);
        assert_eq!(observe(&azure, &[1, 2]), 1, "no other client removed that one");
    }
}
