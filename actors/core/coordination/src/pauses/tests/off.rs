//! The key that disables the admin state (N4).

use super::*;

const KEY: &str = "admin-state.off";

/// Advances the clock in steps, and answers every request.
fn run(fixture: &mut Fixture, until: Now) {
    while fixture.now < until {
        fixture.wait(fixture.now.plus(Duration::from_secs(5)).min(until));
        fixture.serve();
    }
}

fn is_off(fixture: &Fixture) -> bool {
    fixture.known().1.admin_state_off
}

fn edit_as_other_client(fixture: &mut Fixture, change: impl FnOnce(&mut BTreeMap<Arc<str>, Arc<str>>)) {
    fixture.server.version += 1;
    change(fixture.server.data.get_or_insert_default());
}

#[test]
fn n4_the_key_disables_the_admin_state_with_any_value() {
    let mut fixture = Fixture::begun(Server::with(&[("down.uid-7", "node-7")]));
    assert!(!is_off(&fixture));
    edit_as_other_client(&mut fixture, |data| drop(data.insert(KEY.into(), "by: retire\nsince: @5".into())));
    run(&mut fixture, at(20));
    assert_eq!(fixture.known().1, OperatorPolicy { admin_state_off: true, ..OperatorPolicy::default() });
    assert!(fixture.view.as_ref().expect("a view").unreadable.is_empty());
    edit_as_other_client(&mut fixture, |data| drop(data.remove(KEY)));
    run(&mut fixture, at(40));
    assert!(!is_off(&fixture));
    fixture.server.binary.push(KEY.into());
    run(&mut fixture, at(60));
    assert!(is_off(&fixture));
    let facts = fixture.server.facts(fixture.now).expect("it exists");
    assert!(noted(&facts).0.admin_state_off);
}

#[test]
fn n4_a_key_that_stays_disables_for_ten_minutes() {
    let mut fixture = Fixture::begun(Server::with(&[(KEY, "by: retire")]));
    assert!(is_off(&fixture));
    fixture.send(In::Confirm(Epoch(2)));
    run(&mut fixture, at(600));
    assert!(is_off(&fixture), "with any other data");
    fixture.wait(at(601));
    assert!(!is_off(&fixture), "a failed hook does not disable it forever");
    fixture.serve();
    run(&mut fixture, at(2_000));
    assert!(!is_off(&fixture));
    // A new key counts from its own first observation.
    edit_as_other_client(&mut fixture, |data| drop(data.remove(KEY)));
    run(&mut fixture, at(2_020));
    edit_as_other_client(&mut fixture, |data| drop(data.insert(KEY.into(), "by: retire".into())));
    run(&mut fixture, at(2_040));
    assert!(is_off(&fixture));
}

#[test]
fn n4_in_a_dry_run_the_key_is_not_read() {
    let mut fixture = Fixture::new(Server::with(&[(KEY, "by: retire")]), PauseStorage::Nothing);
    fixture.serve();
    assert!(!is_off(&fixture));
}

#[test]
fn g6_a_node_cannot_be_paused() {
    let mut fixture = Fixture::begun(Server::default());
    let node = Scope::Node(model::ids::NodeName::new("node-7"));
    fixture.pause(1, node.clone());
    fixture.resume(2, node);
    let refused = |n| (RequestId(n), Answer::Refused(Refusal::Unknown));
    assert_eq!(fixture.answers, [refused(1), refused(2)]);
    assert!(fixture.requests.is_empty());
}
