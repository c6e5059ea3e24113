//! Tests of the reason for which a pool of a snapshot waits.

use model::blocked::Blocked;
use model::ids::{Epoch, LbName, PoolId, PoolName};
use model::machine::Now;
use model::sample::PoolState;
use model::view::{LeadershipView, PoolView, Snapshot};
use pool_testing::views::pool;

fn led_by(role: &'static str) -> Snapshot {
    let leadership = LeadershipView {
        identity: "replica".into(),
        role,
        holder: None,
        epoch: Epoch(1),
        since: Now::ZERO,
        until: None,
        last_error: None,
    };
    Snapshot { leadership: Some(leadership), ..Snapshot::default() }
}

#[test]
fn h3_a_pool_waits_for_leadership_first_in_any_state() {
    let (held, not_leader) = (Blocked::Held.open_ended(), Blocked::NotLeader.open_ended());
    for (state, blocked, expected) in [
        (PoolState::Waiting, Some(held), [Some(held), Some(not_leader)]),
        (PoolState::Due, None, [None, Some(not_leader)]),
        (PoolState::InSync, None, [None, None]),
    ] {
        let id = PoolId::new(LbName::new("lb"), PoolName::new("shop-web"));
        let pool = PoolView { blocked, ..pool(id, state) };
        let why = ["leader", "standby"].map(|role| led_by(role).blocked(Now::ZERO, &pool));
        assert_eq!(why, expected, "{state:?}");
    }
}
