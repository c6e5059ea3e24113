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
    /// How the member with this IP is served while its health probe says `healthy`. `Up` ignores the probe, `Down`
    /// wins over it, and without either the probe decides. A pool none of whose rules has a probe knows neither.
    /// None when there is no such member.
    pub fn traffic(&self, load_balancer: &str, pool: &str, ip: &str, healthy: bool) -> Option<Traffic> {
        let lb = self.balancers.get(&key(load_balancer))?;
        let pool = lb.pools.get(&key(pool))?;
        let address = pool.content.addresses.iter().find(|address| address.text("ipAddress") == Some(ip))?;
        let probed = lb.rules.iter().any(|rule| rule.with_probe && uses(pool, &rule.name));
        let down = if self.settings.down_resets_flows { Flows::Reset } else { Flows::Kept };
        let traffic = |new_connections, existing| Traffic { new_connections, existing };
        Some(match (probed, address.text("adminState")) {
            (false, _) | (true, Some("Up")) => traffic(true, Flows::Kept),
            (true, Some("Down")) => traffic(false, down),
            (true, Some(_) | None) => traffic(healthy, Flows::Kept),
        })
    }
}

fn uses(pool: &Pool, rule: &str) -> bool {
    pool.rules.iter().any(|known| **known == *rule)
}
