//! What the data path does with one member of a pool: its admin state, and where that leaves it open, the health probe.

use super::ArmModel;
use super::store::{Pool, key};

/// What becomes of the TCP flows that a member has already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// They go on until they end by themselves.
    Kept,
    /// They are reset.
    Reset,
}

/// How a member is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Whether it gets new connections.
    pub new_connections: bool,
    /// What becomes of those that it has.
    pub existing: Flows,
}

impl ArmModel {
    /// How a member is served while its health probe says `healthy`; it is named by its IP, or by the id of its network
    /// interface's IP configuration where an interface stands instead. `Up` ignores the probe, `Down` wins over it, and
    /// without either the probe decides. A pool none of whose rules has a probe knows neither. None when there is no such
    /// member.
    pub fn traffic(&self, load_balancer: &str, pool: &str, member: &str, healthy: bool) -> Option<Traffic> {
        self.traffic_of_pool(load_balancer, pool, |_| healthy)
            .into_iter()
            .find_map(|(known, traffic)| (known == member).then_some(traffic))
    }

    /// The same of every member of a pool, whose probes say what `healthy` says of their names; none where there is no
    /// such pool.
    pub fn traffic_of_pool(
        &self,
        load_balancer: &str,
        pool: &str,
        healthy: impl Fn(&str) -> bool,
    ) -> Vec<(&str, Traffic)> {
        let Some(lb) = self.balancers.get(&key(load_balancer)) else { return Vec::new() };
        let Some(pool) = lb.pools.get(&key(pool)) else { return Vec::new() };
        let probed = lb.rules.iter().any(|rule| rule.with_probe && uses(pool, &rule.name));
        let down = if self.settings.down_resets_flows { Flows::Reset } else { Flows::Kept };
        let traffic = |new_connections, existing| Traffic { new_connections, existing };
        let members = pool.content.addresses.iter();
        members
            .filter_map(|address| {
                let member = address.text("ipAddress").or_else(|| address.network_interface())?;
                let served = match (probed, address.text("adminState")) {
                    (false, _) | (true, Some("Up")) => traffic(true, Flows::Kept),
                    (true, Some("Down")) => traffic(false, down),
                    (true, Some(_) | None) => traffic(healthy(member), Flows::Kept),
                };
                Some((member, served))
            })
            .collect()
    }
}

fn uses(pool: &Pool, rule: &str) -> bool {
    pool.rules.iter().any(|known| **known == *rule)
}
