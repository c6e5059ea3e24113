//! The key that disables the admin state (N4).

use super::*;

const KEY: &str = "admin-state.off";

/// Advances the clock in steps, and answers every request.
fn run(bench: &mut Bench, until: Now) {
    while bench.now < until {
        bench.wait(bench.now.plus(Duration::from_secs(5)).min(until));
        bench.serve();
    }
}

fn is_off(bench: &Bench) -> bool {
    bench.known().1.admin_state_off
}

fn somebody(bench: &mut Bench, change: impl FnOnce(&mut BTreeMap<Arc<str>, Arc<str>>)) {
    bench.server.version += 1;
    change(bench.server.data.get_or_insert_default());
}

#[test]
fn n4_the_key_disables_the_admin_state_with_any_value() {
    let mut bench = Bench::begun(Server::with(&[("down.uid-7", "node-7")]));
    assert!(!is_off(&bench));
    somebody(&mut bench, |data| drop(data.insert(KEY.into(), "by: retire\nsince: @5".into())));
    run(&mut bench, at(20));
    assert_eq!(bench.known().1, OperatorPolicy { admin_state_off: true, ..OperatorPolicy::default() });
    assert!(bench.view.as_ref().expect("a view").unreadable.is_empty());
    somebody(&mut bench, |data| drop(data.remove(KEY)));
    run(&mut bench, at(40));
    assert!(!is_off(&bench));
    bench.server.binary.push(KEY.into());
    run(&mut bench, at(60));
    assert!(is_off(&bench));
    let facts = bench.server.facts(bench.now).expect("it exists");
    assert!(noted(&facts).0.admin_state_off);
}

#[test]
fn n4_a_key_that_stays_disables_for_ten_minutes() {
    let mut bench = Bench::begun(Server::with(&[(KEY, "by: retire")]));
    assert!(is_off(&bench));
    bench.send(In::Confirm(Epoch(2)));
    run(&mut bench, at(600));
    assert!(is_off(&bench), "with any other data");
    bench.wait(at(601));
    assert!(!is_off(&bench), "a failed hook does not disable it forever");
    bench.serve();
    run(&mut bench, at(2_000));
    assert!(!is_off(&bench));
    // A new key counts from its own first observation.
    somebody(&mut bench, |data| drop(data.remove(KEY)));
    run(&mut bench, at(2_020));
    somebody(&mut bench, |data| drop(data.insert(KEY.into(), "by: retire".into())));
    run(&mut bench, at(2_040));
    assert!(is_off(&bench));
}

#[test]
fn n4_in_a_dry_run_the_key_is_not_read() {
    let mut bench = Bench::new(Server::with(&[(KEY, "by: retire")]), PauseStorage::Nothing);
    bench.serve();
    assert!(!is_off(&bench));
}

#[test]
fn g6_a_node_cannot_be_paused() {
    let mut bench = Bench::begun(Server::default());
    let node = Scope::Node(model::ids::NodeName::new("node-7"));
    bench.pause(1, node.clone());
    bench.resume(2, node);
    let refused = |n| (RequestId(n), Answer::Refused(Refusal::Unknown));
    assert_eq!(bench.answers, [refused(1), refused(2)]);
    assert!(bench.requests.is_empty());
}
