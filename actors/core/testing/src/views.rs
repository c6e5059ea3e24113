//! Views of the snapshot.

use std::collections::BTreeMap;

use model::ids::{Family, PoolId};
use model::level::{Level, Provenance, Source};
use model::machine::Now;
use model::sample::PoolState;
use model::view::PoolView;

/// Returns the view of a pool of Services in this state, of which nothing else is known.
#[must_use]
pub fn pool(id: PoolId, state: PoolState) -> PoolView {
    PoolView {
        pool: id,
        family: Family::V4,
        source: Source::Kubernetes,
        services: BTreeMap::new(),
        state,
        since: Now::ZERO,
        level: Level::default(),
        provenance: Provenance::Watch,
        observed: None,
        observed_down: [].into(),
        observed_other: [].into(),
        observed_at: None,
        waiting_since: None,
        out_of_sync: None,
        provisioning_failed: false,
        blocked: None,
        retries: BTreeMap::new(),
        attempt: None,
        last_end: None,
        last_error: None,
        held: None,
        would_hold: None,
        overruled: None,
        paused: [].into(),
        withheld: None,
        lost_writes: 0,
    }
}
