//! Read-only access to the model, for tests and reports.

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
    /// IP; empty for a network interface.
    pub ip: String,
    /// Admin state; the text `None` if not set.
    pub admin_state: String,
    /// Id of its network interface configuration, in NIC-based pools.
    pub network_interface: Option<String>,
}

impl ArmModel {
    /// Returns the members of a pool as a GET would show them now; `None` if there is no such pool.
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

    /// Returns the IPs of a pool's members, sorted; cheaper than [`ArmModel::members`]. `None` if there is no such
    /// pool.
    pub fn member_ips(&self, load_balancer: &str, pool: &str) -> Option<Vec<&str>> {
        let addresses = &self.pool(load_balancer, pool)?.content.addresses;
        let mut ips: Vec<&str> = addresses.iter().filter_map(|address| address.text("ipAddress")).collect();
        ips.sort_unstable();
        Some(ips)
    }

    /// Returns the body that a GET of the pool would return now.
    pub fn pool_json(&self, load_balancer: &str, pool: &str) -> Option<Value> {
        let lb = self.balancers.get(&key(load_balancer))?;
        let pool_key = key(pool);
        let view = PoolView::of(lb, &pool_key, lb.pools.get(&pool_key)?, &self.settings);
        serde_json::from_slice(&render::text(&view)).ok()
    }

    /// Returns the etag that a load balancer shares with its children, as in bodies: `W/"guid"`.
    pub fn etag(&self, load_balancer: &str) -> Option<String> {
        self.balancers.get(&key(load_balancer)).map(|lb| format!("W/\"{}\"", lb.etag))
    }

    /// Returns whether the last operation on a load balancer failed, so that its provisioning state is `Failed`.
    #[must_use]
    pub fn has_failed(&self, load_balancer: &str) -> bool {
        let lb = self.balancers.get(&key(load_balancer));
        lb.is_some_and(|lb| lb.running.is_none() && lb.last_write == LastWrite::Failed)
    }

    /// Returns whether an operation runs on the load balancer.
    pub fn is_updating(&self, load_balancer: &str) -> bool {
        self.balancers.get(&key(load_balancer)).is_some_and(|lb| lb.running.is_some())
    }

    /// Returns the names of all load balancers, in a stable order.
    pub fn load_balancers(&self) -> impl Iterator<Item = &str> {
        self.balancers.values().map(|lb| &*lb.name)
    }

    /// Returns the names of all pools of a load balancer, in a stable order.
    pub fn pools(&self, load_balancer: &str) -> impl Iterator<Item = &str> {
        let lb = self.balancers.get(&key(load_balancer));
        lb.into_iter().flat_map(|lb| lb.pools.values().map(|pool| &*pool.name))
    }

    /// Returns the requests so far, oldest first, up to [`Settings::log_capacity`].
    pub fn log(&self) -> &[LogEntry] {
        &self.journal.entries
    }

    /// Returns sums over all requests so far.
    pub fn counters(&self) -> Counters {
        self.journal.counters
    }

    /// Returns how often each planned fault has taken effect. Faults that are no longer planned stay; faults that
    /// never took effect are missing. If several faults match one request, only those that determine the outcome count.
    pub fn fault_effects(&self) -> &[(Fault, u64)] {
        self.faults.effects()
    }

    /// Returns the IPs that the last write of a pool removes, if another client made it. The write may still be
    /// running, or may have failed.
    pub fn taken_by_others(&self, load_balancer: &str, pool: &str) -> &[String] {
        self.journal.taken(load_balancer, pool)
    }

    /// Returns the largest number of concurrent pool PUTs on this load balancer.
    pub fn max_concurrent_puts(&self, load_balancer: &str) -> u64 {
        self.journal.max_concurrent_puts(load_balancer)
    }

    /// Returns the current settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Sets scheme and authority of absolute URLs, once the HTTP wrapper knows its address.
    pub fn set_endpoint(&mut self, endpoint: &str) {
        endpoint.trim_end_matches('/').clone_into(&mut self.settings.endpoint);
    }

    /// Changes the settings while the model runs. Quotas start full; faults start counting at 0.
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
