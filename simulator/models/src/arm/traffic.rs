//! The data path for one member of a pool: its admin state, and the health probe unless the admin state decides.

use super::ArmModel;
use super::store::{Pool, key};

/// Fate of the existing TCP flows of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flows {
    /// They continue until they end.
    Kept,
    /// They are reset.
    Reset,
}

/// Traffic of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// True if it gets new connections.
    pub new_connections: bool,
    /// Fate of the existing flows.
    pub existing: Flows,
}

impl ArmModel {
    /// Returns the traffic of a member while its health probe reports `healthy`. The member is named by its IP, or by
    /// the id of its network interface's IP configuration. `Up` ignores the probe, `Down` wins over it, and otherwise
    /// the probe decides. In a pool without probes, neither applies. `None` if there is no such member.
    pub fn traffic(&self, load_balancer: &str, pool: &str, member: &str, healthy: bool) -> Option<Traffic> {
        self.traffic_of_pool(load_balancer, pool, |_| healthy)
            .into_iter()
            .find_map(|(known, traffic)| (known == member).then_some(traffic))
    }

    /// Returns the traffic of every member of a pool; `healthy` returns the probe's result by name. `None` if there is
    /// no such pool.
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
