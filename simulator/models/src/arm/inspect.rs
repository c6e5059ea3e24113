//! Looks into the model, for tests and reports. Nothing here changes it.

use serde_json::Value;

use super::ArmModel;
use super::journal::{Counters, LogEntry};
use super::render::{self, PoolView};
use super::settings::{Fault, Settings};
use super::store::{LastWrite, Pool, key};

/// One member of a pool.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The address's name.
    pub name: String,
    /// Its IP; empty where a network interface stands instead.
    pub ip: String,
    /// Its admin state; `None` (the text) when not set.
    pub admin_state: String,
    /// The id of its network interface configuration, in pools that interfaces fill.
    pub network_interface: Option<String>,
}

impl ArmModel {
    /// The members of a pool as a GET would show them now; None when there is no such pool.
    pub fn members(&self, load_balancer: &str, pool: &str) -> Option<Vec<Member>> {
        let addresses = &self.pool(load_balancer, pool)?.content.addresses;
        let members = addresses.iter().map(|address| Member {
            name: address.name.clone(),
            ip: address.text("ipAddress").unwrap_or_default().to_owned(),
            admin_state: address.text("adminState").unwrap_or("None").to_owned(),
            network_interface: address.network_interface().map(str::to_owned),
        });
        Some(members.collect())
    }

    /// The IPs of a pool's members, sorted; cheaper than [`ArmModel::members`]. None when there is no such pool.
    pub fn member_ips(&self, load_balancer: &str, pool: &str) -> Option<Vec<&str>> {
        let addresses = &self.pool(load_balancer, pool)?.content.addresses;
        let mut ips: Vec<&str> = addresses.iter().filter_map(|address| address.text("ipAddress")).collect();
        ips.sort_unstable();
        Some(ips)
    }

    /// The body that a GET of the pool would answer now.
    pub fn pool_json(&self, load_balancer: &str, pool: &str) -> Option<Value> {
        let lb = self.balancers.get(&key(load_balancer))?;
        let pool_key = key(pool);
        let view = PoolView::of(lb, &pool_key, lb.pools.get(&pool_key)?, &self.settings);
        serde_json::from_slice(&render::text(&view)).ok()
    }

    /// The etag that a load balancer shares with its children, as in bodies: `W/"guid"`.
    pub fn etag(&self, load_balancer: &str) -> Option<String> {
        self.balancers.get(&key(load_balancer)).map(|lb| format!("W/\"{}\"", lb.etag))
    }

    /// Whether the last operation on a load balancer failed, and left its provisioning state `Failed`.
    #[must_use]
    pub fn has_failed(&self, load_balancer: &str) -> bool {
        let lb = self.balancers.get(&key(load_balancer));
        lb.is_some_and(|lb| lb.running.is_none() && lb.last_write == LastWrite::Failed)
    }

    /// Whether an operation runs on the load balancer.
    pub fn is_updating(&self, load_balancer: &str) -> bool {
        self.balancers.get(&key(load_balancer)).is_some_and(|lb| lb.running.is_some())
    }

    /// The names of all load balancers, in a stable order.
    pub fn load_balancers(&self) -> impl Iterator<Item = &str> {
        self.balancers.values().map(|lb| &*lb.name)
    }

    /// The names of all pools of a load balancer, in a stable order.
    pub fn pools(&self, load_balancer: &str) -> impl Iterator<Item = &str> {
        let lb = self.balancers.get(&key(load_balancer));
        lb.into_iter().flat_map(|lb| lb.pools.values().map(|pool| &*pool.name))
    }

    /// The requests so far, oldest first, up to [`Settings::log_capacity`].
    pub fn log(&self) -> &[LogEntry] {
        &self.journal.entries
    }

    /// Sums over all requests so far.
    pub fn counters(&self) -> Counters {
        self.journal.counters
    }

    /// How often each planned fault has taken effect so far; what is no longer planned stays, and what never did is not
    /// there. Of several that strike one request, those take effect that decide what becomes of it.
    pub fn fault_effects(&self) -> &[(Fault, u64)] {
        self.faults.effects()
    }

    /// The IPs that the last write of a pool takes out, if another client made it. It may be running, or not succeed.
    pub fn taken_by_others(&self, load_balancer: &str, pool: &str) -> &[String] {
        self.journal.taken(load_balancer, pool)
    }

    /// Most pool PUTs that waited for their answer on this load balancer at the same time.
    pub fn max_concurrent_puts(&self, load_balancer: &str) -> u64 {
        self.journal.max_concurrent_puts(load_balancer)
    }

    /// The knobs in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets scheme and authority of absolute URLs, once the HTTP wrapper knows its address.
    pub fn set_endpoint(&mut self, endpoint: &str) {
        endpoint.trim_end_matches('/').clone_into(&mut self.settings.endpoint);
    }

    /// Turns a knob while the model runs. Quotas start full; faults start counting at 0.
    pub fn reconfigure(&mut self, change: impl FnOnce(&mut Settings)) {
        let (quotas, faults) = (self.settings.quotas, self.settings.faults.clone());
        change(&mut self.settings);
        if self.settings.quotas != quotas {
            self.throttle = super::throttle::Throttle::new(self.settings.quotas);
        }
        if self.settings.faults != faults {
            self.faults.plan(&self.settings);
        }
    }

    fn pool(&self, load_balancer: &str, pool: &str) -> Option<&Pool> {
        self.balancers.get(&key(load_balancer))?.pools.get(&key(pool))
    }
}
