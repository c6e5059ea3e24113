//! Load balancers that are deleted and created again while a write of ours runs there (W2).

use model::ids::PoolId;
use simulator_models::arm::PoolSpec;

use super::World;
use crate::ccm::{Ccm, rules_of};
use crate::cluster::NAMESPACE;
use crate::story::Often;

impl World {
    /// Recreates the load balancer of a PUT that has reached ARM, now and then in some worlds, while the operation
    /// runs.
    pub(super) fn maybe_create_again(&mut self, pool: &PoolId) {
        let lb = pool.lb.as_str();
        let happens = self.stormy && self.size.faults.often == Some(Often::CreatedAgain);
        if happens && self.arm.is_updating(lb) && self.fates.per_mille(200) {
            self.create_again(lb);
            self.watchdog.created_again(self.now, &pool.lb);
            self.record(format!("{lb} is created again"));
        }
    }

    /// Creates a load balancer again, as the operator does, with the same rules and with empty pools.
    fn create_again(&mut self, lb: &str) {
        let pool = |name: &str| {
            let pool = self.arm.pool_json(lb, name).unwrap_or_default();
            (name.to_owned(), rules_of(&pool))
        };
        let pools: Vec<(String, Vec<String>)> = self.arm.pools(lb).map(pool).collect();
        self.arm.remove_load_balancer(lb);
        Ccm::create_balancer(&mut self.arm, lb);
        for (pool, rules) in pools {
            if pool.starts_with(NAMESPACE) {
                self.arm.add_pool(lb, &pool, &PoolSpec::default());
            }
            rules.iter().for_each(|rule| self.arm.add_rule(lb, rule, &pool, true));
        }
    }
}
