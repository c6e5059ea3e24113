//! Since when pools are out of sync, across a change of leader (Q8).

use super::*;
use model::ids::PoolName;
use model::sample::PoolState;
use model::view::OutOfSync;
use pool_testing::views;

fn id(name: &str) -> PoolId {
    PoolId::new(LbName::new("lb"), PoolName::new(name))
}

fn pool(name: &str, since: Option<(u64, bool)>) -> In {
    let out_of_sync = since.map(|(ms, at_least)| OutOfSync { since: Now::from_millis(ms), at_least });
    In::Pool(Arc::new(PoolView { out_of_sync, ..views::pool(id(name), PoolState::Waiting) }))
}

fn noted(pools: &[(&str, u64)]) -> In {
    In::OutOfSync(Arc::new(pools.iter().map(|(name, ms)| (id(name), Now::from_millis(*ms))).collect()))
}

fn shown(snapshot: &Snapshot, name: &str) -> Option<(u64, bool)> {
    let out = snapshot.pools[&id(name)].out_of_sync;
    out.map(|out| (out.since.as_micros() / 1_000, out.at_least))
}

#[test]
fn a_pool_is_as_late_as_the_previous_leader_found_it() {
    let mut publisher = SnapshotPublisher::new();
    at(&mut publisher, 900_000, pool("before", Some((899_000, true))));
    at(&mut publisher, 901_000, noted(&[("before", 100_000), ("after", 200_000)]));
    at(&mut publisher, 902_000, pool("other", Some((902_000, false))));
    let snapshot = at(&mut publisher, 903_000, pool("after", Some((903_000, true)))).expect("a snapshot");
    assert_eq!(shown(&snapshot, "before"), Some((100_000, true)));
    assert_eq!(shown(&snapshot, "after"), Some((200_000, true)));
    assert_eq!(shown(&snapshot, "other"), Some((902_000, false)));
    let snapshot = at(&mut publisher, 990_000, pool("before", Some((899_000, true)))).expect("a snapshot");
    assert_eq!(shown(&snapshot, "before"), Some((100_000, true)), "as long as it is out of sync");
}

#[test]
fn what_the_previous_leader_found_ends_when_the_pool_is_in_sync() {
    let mut publisher = SnapshotPublisher::new();
    at(&mut publisher, 900_000, noted(&[("a", 100_000), ("b", 100_000)]));
    at(&mut publisher, 901_000, pool("a", None));
    let snapshot = at(&mut publisher, 902_000, pool("a", Some((902_000, false)))).expect("a snapshot");
    assert_eq!(shown(&snapshot, "a"), Some((902_000, false)));
    let snapshot = at(&mut publisher, 961_000, pool("b", Some((961_000, false)))).expect("a snapshot");
    assert_eq!(shown(&snapshot, "b"), Some((961_000, false)), "that is another time");
}

#[test]
fn the_leader_learns_of_the_twenty_longest_once_for_each_change() {
    let mut publisher = SnapshotPublisher::new();
    let mut lists = Vec::new();
    for n in 0..25_u64 {
        let mut out = Vec::new();
        let view = pool(&format!("p{n:02}"), Some((1_000 + n, false)));
        publisher.step(Now::from_millis(10_000 + n * 1_000), view, &mut out);
        lists.extend(out.into_iter().filter_map(|output| match output {
            Out::OutOfSync(pools) => Some(pools),
            Out::Publish(_) => None,
        }));
    }
    assert_eq!(lists.len(), 20, "the last five are not among them");
    let newest = lists.pop().expect("told");
    let names: Vec<String> = newest.keys().map(|pool| pool.pool.to_string()).collect();
    assert_eq!(names, (0..20).map(|n| format!("p{n:02}")).collect::<Vec<_>>());
}
