//! Facts from ARM.

use model::arm::{Entry, PoolFacts, Provisioning};
use model::ids::PoolId;

/// Returns a pool with these entries, without a running operation and without rules.
#[must_use]
pub fn pool_at_rest(id: PoolId, entries: Vec<Entry>) -> PoolFacts {
    PoolFacts {
        id,
        entries,
        rules: Vec::new(),
        outbound_rule: false,
        inbound_nat_rule: false,
        nic_backed: false,
        sync_automatic: false,
        network: None,
        etag: None,
        provisioning: Provisioning::Succeeded,
    }
}
