//! The time since which pools are out of sync, across a change of leader (Q8).

use super::*;
use model::ids::PoolName;
use model::sample::PoolState;
use model::view::OutOfSync;
use pool_testing::views;

fn id(name: &str) -> PoolId {
    PoolId::new(LbName::new("lb"), PoolName::new(name))
}

fn pool(name: &str, since: Option<(u64, bool)>) -> In {
    pool_read(name, since, None)
}

/// Returns a pool with the time in milliseconds of its last read.
fn pool_read(name: &str, since: Option<(u64, bool)>, observed_at: Option<u64>) -> In {
    let out_of_sync = since.map(|(ms, at_least)| OutOfSync { since: Now::from_millis(ms), at_least });
    In::Pool(Arc::new(PoolView {
        observed_at: observed_at.map(Now::from_millis),
        out_of_sync,
        ..views::pool(id(name), PoolState::Waiting)
    }))
}

/// Returns the view of the load balancer, with the time in milliseconds of its last read.
fn balancer(read_at: Option<u64>) -> In {
    balancer_read(read_at, read_at)
}

/// Returns the view of the load balancer, with the times in milliseconds at which its last read began and was
/// answered.
fn balancer_read(began: Option<u64>, read_at: Option<u64>) -> In {
    In::Lb(LbView {
        lb: LbName::new("lb"),
        exists: read_at.map(|_| true),
        read_at: read_at.map(Now::from_millis),
        read_began: began.map(Now::from_millis),
        pools: 0,
        last_error: None,
    })
}

/// Sends an input at this time in milliseconds, and the publication after it; returns the last list for the Leader.
fn list_after(publisher: &mut SnapshotPublisher, ms: u64, input: In) -> Option<Vec<(String, u64)>> {
    let mut out = Vec::new();
    publisher.step(Now::from_millis(ms), input, &mut out);
    publisher.tick(Now::from_millis(ms + 250), &mut out);
    let lists = out.into_iter().filter_map(|output| match output {
        Out::OutOfSync(pools) => Some(pools),
        Out::Publish(_) => None,
    });
    let shown = |(pool, since): (&PoolId, &Now)| (pool.pool.to_string(), since.as_micros() / 1_000);
    lists.last().map(|list| list.iter().map(shown).collect())
}

fn noted(pools: &[(&str, u64)]) -> In {
    In::OutOfSync(Arc::new(pools.iter().map(|(name, ms)| (id(name), Now::from_millis(*ms))).collect()))
}

fn shown(snapshot: &Snapshot, name: &str) -> Option<(u64, bool)> {
    let out = snapshot.pools[&id(name)].out_of_sync;
    out.map(|out| (out.since.as_micros() / 1_000, out.at_least))
}

#[test]
fn q8_a_pool_keeps_the_time_that_the_previous_leader_recorded() {
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
fn q8_a_recorded_time_ends_when_the_pool_is_in_sync() {
    let mut publisher = SnapshotPublisher::new();
    at(&mut publisher, 900_000, noted(&[("a", 100_000), ("b", 100_000)]));
    at(&mut publisher, 901_000, balancer(Some(901_000)));
    at(&mut publisher, 901_500, pool_read("a", None, Some(900_500)));
    let snapshot = at(&mut publisher, 902_000, pool("a", Some((902_000, false)))).expect("a snapshot");
    assert_eq!(shown(&snapshot, "a"), Some((902_000, false)));
    let snapshot = at(&mut publisher, 962_000, pool("b", Some((962_000, false)))).expect("a snapshot");
    assert_eq!(
        shown(&snapshot, "b"),
        Some((962_000, false)),
        "the pool is out of sync again, since a later time"
    );
}

#[test]
fn q8_a_load_balancer_read_late_keeps_the_recorded_times() {
    let mut publisher = SnapshotPublisher::new();
    at(&mut publisher, 800_000, balancer(Some(800_000)));
    at(&mut publisher, 900_000, noted(&[("a", 100_000), ("b", 110_000), ("c", 120_000), ("gone", 130_000)]));
    // It cannot be read for ten minutes; a read of an earlier term is no evidence.
    at(&mut publisher, 960_000, balancer(Some(800_000)));
    at(&mut publisher, 1_000_000, pool_read("b", None, Some(800_000)));
    at(&mut publisher, 1_500_000, balancer(Some(1_500_000)));
    let a = pool_read("a", Some((1_501_000, true)), Some(1_499_000));
    let snapshot = at(&mut publisher, 1_501_000, a).expect("a snapshot");
    assert_eq!(shown(&snapshot, "a"), Some((100_000, true)));
    let b = pool_read("b", Some((1_502_000, true)), Some(1_499_000));
    let snapshot = at(&mut publisher, 1_502_000, b).expect("a snapshot");
    assert_eq!(shown(&snapshot, "b"), Some((110_000, true)), "the earlier read is no evidence");
    let c = pool_read("c", Some((1_561_000, false)), Some(1_560_000));
    let snapshot = at(&mut publisher, 1_561_000, c).expect("a snapshot");
    assert_eq!(shown(&snapshot, "c"), Some((1_561_000, false)), "60 s after the first read");
}

#[test]
fn q8_a_read_that_began_before_the_term_is_no_evidence() {
    let mut publisher = SnapshotPublisher::new();
    at(&mut publisher, 900_000, noted(&[("a", 100_000)]));
    at(&mut publisher, 901_000, balancer_read(Some(899_000), Some(901_000)));
    at(&mut publisher, 980_000, balancer_read(Some(970_000), Some(980_000)));
    let a = pool_read("a", Some((981_000, true)), Some(970_000));
    let snapshot = at(&mut publisher, 981_000, a).expect("a snapshot");
    assert_eq!(
        shown(&snapshot, "a"),
        Some((100_000, true)),
        "the first read of the term began 70 s after its start"
    );
}

#[test]
fn q8_an_unread_pool_keeps_its_entry_in_the_lease() {
    let mut publisher = SnapshotPublisher::new();
    at(&mut publisher, 899_000, balancer(None));
    let list = |of: &[(&str, u64)]| -> Option<Vec<(String, u64)>> {
        Some(of.iter().map(|(name, ms)| ((*name).to_owned(), *ms)).collect())
    };
    let carried = noted(&[("a", 100_000), ("b", 200_000)]);
    assert_eq!(list_after(&mut publisher, 900_000, carried), list(&[("a", 100_000), ("b", 200_000)]));
    let other = pool("other", Some((902_000, false)));
    let all = list(&[("a", 100_000), ("b", 200_000), ("other", 902_000)]);
    assert_eq!(list_after(&mut publisher, 902_000, other), all);
    for out_of_sync in [Some((940_000, true)), None] {
        let former = pool_read("b", out_of_sync, Some(800_000));
        assert_eq!(list_after(&mut publisher, 950_000, former), None, "the earlier read is no evidence");
    }
    assert_eq!(list_after(&mut publisher, 990_000, balancer(None)), None, "it is still not read");
    assert_eq!(list_after(&mut publisher, 1_500_000, balancer(Some(1_500_000))), None);
    let a = pool_read("a", Some((1_501_000, true)), Some(1_499_000));
    assert_eq!(list_after(&mut publisher, 1_501_000, a), None, "its time is unchanged");
    let only = list(&[("a", 100_000), ("other", 902_000)]);
    assert_eq!(list_after(&mut publisher, 1_561_000, balancer(Some(1_561_000))), only, "b was not found");
    // The next term begins with another list.
    assert_eq!(list_after(&mut publisher, 1_570_000, noted(&[])), only);
    let a = pool_read("a", Some((1_501_000, true)), Some(1_569_000));
    let own = list(&[("a", 1_501_000), ("other", 902_000)]);
    assert_eq!(list_after(&mut publisher, 1_571_000, a), own);
}

#[test]
fn q8_a_recorded_pool_on_no_managed_load_balancer_is_dropped() {
    let mut publisher = SnapshotPublisher::new();
    at(&mut publisher, 1_000, In::DiscoverySynced);
    assert_eq!(list_after(&mut publisher, 900_000, noted(&[("a", 100_000)])), Some(Vec::new()));
}

#[test]
fn q8_the_leader_gets_the_twenty_oldest_once_per_change() {
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
