//! Tests of records: a node has a record before its first Down, and as long as any entry of it may be Down (N4).

use super::*;
use model::object::RequestFailure;

const WEB: fn() -> PoolId = || pool("lb", "web");

/// Creates a leader whose requests about our ConfigMap wait.
fn slow(nodes: u8) -> Fixture {
    let mut fixture = Fixture::new(nodes);
    fixture.answers = false;
    fixture
}

/// Returns the lines of a record without the time.
fn lines(fixture: &Fixture, n: u8) -> Vec<String> {
    let text = fixture.server.text(&format!("down.uid-of-node-{n}")).expect("it is recorded");
    text.lines().filter(|line| !line.starts_with("since:")).map(str::to_owned).collect()
}

fn failed(why: &str) -> RequestFailure {
    RequestFailure::Other(why.into())
}

#[test]
fn n4_a_node_is_recorded_before_it_enters_the_set() {
    let mut fixture = slow(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(fixture.state(1), Some(NodeState::Recording));
    assert_eq!((fixture.set.generation, fixture.due.len(), fixture.requests.len()), (0, 0, 1));
    fixture.pass(5_900);
    assert_eq!((fixture.set.generation, fixture.requests.len()), (0, 1), "for any duration");
    fixture.answer();
    assert_eq!(lines(&fixture, 1), ["node-1", "ips: 10.0.0.1 fd00::1"]);
    assert_eq!(fixture.take_due(), all(DOWN), "in the turn of the answer");
    assert_eq!(fixture.state(1), Some(NodeState::Draining));
    fixture.run_until_stable();
    assert_eq!((fixture.state(1), fixture.writes), (Some(NodeState::Down), 1), "once");
}

#[test]
fn n4_one_write_contains_all_waiting_records() {
    let mut fixture = slow(8);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.deliver(node(3, &[SHUTDOWN]));
    assert_eq!(fixture.requests.len(), 1);
    fixture.answer();
    assert_eq!((fixture.drains(), fixture.requests.len()), (vec!["node-1"], 1));
    fixture.answer();
    assert_eq!((fixture.drains(), fixture.writes), (vec!["node-1", "node-2", "node-3"], 2));
}

#[test]
fn n4_a_signal_that_ends_early_removes_the_record_again() {
    let mut fixture = slow(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.deliver(node(1, &[]));
    assert_eq!(fixture.state(1), None);
    fixture.answer_all();
    assert!(fixture.recorded().is_empty() && fixture.take_due().is_empty() && fixture.set.generation == 0);
    // The same, with a new signal before the answer: the earlier write does not count.
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.deliver(node(1, &[]));
    fixture.set_foreign(1, State::Down);
    fixture.observe_all();
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.answer();
    assert_eq!(fixture.state(1), Some(NodeState::Recording), "the written record lacks the exception");
    fixture.answer_all();
    assert_eq!(lines(&fixture, 1)[2], "foreign: lb/web");
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert_eq!(fixture.downs(), [(ips(1)[0], 1)].into(), "a foreign Down is none of ours");
}

#[test]
fn n4_after_a_conflict_or_lost_answer_the_record_is_read() {
    let mut fixture = slow(4);
    fixture.server.put("start.somebody", "else");
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.answer();
    assert!(fixture.recorded().is_empty(), "another client wrote first");
    assert!(matches!(fixture.requests.front(), Some((_, ConfigMapRequest::Get))), "read at once");
    fixture.answer();
    fixture.fail_ask(true, failed("lost"));
    assert_eq!(fixture.state(1), Some(NodeState::Recording));
    fixture.pass(100);
    fixture.answer();
    assert_eq!((fixture.drains(), fixture.writes), (vec!["node-1"], 2), "a read that shows it confirms it");
    assert_eq!(fixture.server.keys(), ["down.uid-of-node-1", "start.somebody"], "others' keys stay");
}

#[test]
fn n4_denied_requests_are_retried_slower_than_others() {
    let mut fixture = slow(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    let mut waits = Vec::new();
    for _ in 0..9 {
        fixture.fail_ask(false, failed("no"));
        let at = fixture.machine.records.deadline().expect("tried again");
        waits.push(at.since(fixture.now).as_millis());
        fixture.pass(at.since(fixture.now).as_millis().try_into().expect("short"));
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]);
    let failed_in_a_row =
        |fixture: &Fixture| fixture.reports.iter().filter(|report| is_failure(report)).count();
    assert_eq!(failed_in_a_row(&fixture), 1, "it is reported once");
    fixture.fail_ask(false, RequestFailure::Denied("403".into()));
    let at = fixture.machine.records.deadline().expect("tried again");
    assert_eq!(at.since(fixture.now), Duration::from_secs(15));
    fixture.pass(15_000);
    fixture.answer_all();
    assert_eq!((fixture.drains(), fixture.machine.records.last_error()), (vec!["node-1"], None));
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.fail_ask(false, failed("no"));
    let at = fixture.machine.records.deadline().expect("tried again");
    assert_eq!(at.since(fixture.now), Duration::from_millis(100), "earlier failures do not count");
}

fn is_failure(report: &Report) -> bool {
    matches!(report.what, model::report::EventKind::AdminFailed { pool: None, .. })
}

#[test]
fn n4_a_request_without_an_answer_times_out() {
    let mut fixture = slow(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.requests.clear();
    fixture.pass(6_000);
    fixture.pass(100);
    fixture.answer_all();
    assert_eq!(fixture.drains(), ["node-1"]);
}

#[test]
fn n4_a_server_that_drops_a_record_gets_paced_writes() {
    let mut fixture = Fixture::new(4);
    fixture.server.put("start.somebody", "else");
    fixture.server.drops = true;
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.pass(60_000);
    assert!((5..30).contains(&fixture.writes), "{}", fixture.writes);
    assert_eq!((fixture.state(1), fixture.set.generation), (Some(NodeState::Recording), 0));
    fixture.server.drops = false;
    fixture.pass(5_100);
    assert_eq!(fixture.drains(), ["node-1"]);
}

#[test]
fn n4_a_record_is_removed_once_its_node_is_restored() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.write_all();
    assert_eq!(fixture.recorded(), ["node-1"], "a read of each load balancer must confirm it first");
    assert_eq!(fixture.state(1), Some(NodeState::Restoring));
    fixture.observe_all();
    assert_eq!((fixture.recorded(), fixture.state(1)), (vec![], None));
    fixture.pass(600_000);
    assert_eq!((fixture.writes, fixture.gets), (2, 1), "there are no more requests");
}

#[test]
fn n4_a_new_signal_during_a_removal_records_the_node_first() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.write_all();
    fixture.answers = false;
    fixture.observe_all();
    assert_eq!((fixture.state(1), fixture.recorded(), fixture.requests.len()), (None, vec!["node-1"], 1));
    fixture.set_foreign(1, State::Down);
    fixture.observe_all();
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(fixture.state(1), Some(NodeState::Recording));
    fixture.answer_all();
    assert_eq!(lines(&fixture, 1)[2], "foreign: lb/web", "a later foreign Down is an exception");
    assert_eq!(fixture.drains(), ["node-1"]);
    // A node with a new signal before its restore is complete keeps its record, and goes Down immediately.
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.take_due();
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!((fixture.state(1), fixture.drains()), (Some(NodeState::Draining), vec!["node-1"]));
    fixture.run_until_stable();
    assert_eq!((fixture.requests.len(), fixture.recorded()), (0, vec!["node-1"]));
}

#[test]
fn n4_a_late_removal_never_removes_a_draining_nodes_record() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.write_all();
    fixture.answers = false;
    fixture.observe_all();
    let late = fixture.requests.front().expect("the record is about to be removed").1.clone();
    fixture.fail_ask(false, failed("no answer"));
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.pass(100);
    fixture.answer();
    assert_eq!(fixture.state(1), Some(NodeState::Recording), "the existing record may still be removed");
    fixture.answer();
    assert_eq!(fixture.drains(), ["node-1"]);
    let answer = fixture.server.carry_out(fixture.now, &late);
    assert!(matches!(answer, ConfigMapAnswer::Conflict), "{answer:?}");
    assert_eq!(fixture.recorded(), ["node-1"]);
}

#[test]
fn n4_a_record_after_a_late_removal_counts_once_rewritten() {
    for signalled in [true, false] {
        let mut fixture = Fixture::new(4);
        fixture.deliver(node(1, &[SHUTDOWN]));
        fixture.run_until_stable();
        fixture.deliver(node(1, &[]));
        fixture.write_all();
        fixture.answers = false;
        fixture.observe_all();
        let late = fixture.requests.front().expect("the record is about to be removed").1.clone();
        fixture.fail_ask(false, failed("no answer"));
        fixture.step(In::Leadership(Leadership::Standby));
        fixture.take_due();
        if signalled {
            fixture.deliver(node(1, &[SHUTDOWN]));
        }
        fixture.lead(2);
        fixture.answer();
        assert_eq!((fixture.opened, fixture.recorded()), (Some(Epoch(2)), vec!["node-1"]));
        assert_eq!(fixture.state(1), signalled.then_some(NodeState::Recording));
        assert!(
            fixture.drains().is_empty() && fixture.take_due().is_empty(),
            "the existing record may still be removed"
        );
        fixture.answer();
        let left = usize::from(signalled);
        assert_eq!((fixture.drains().len(), fixture.recorded().len()), (left, left));
        let answer = fixture.server.carry_out(fixture.now, &late);
        assert!(matches!(answer, ConfigMapAnswer::Conflict), "{answer:?}");
    }
}

#[test]
fn n4_a_record_that_may_be_removed_counts_for_a_down_node() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.write_all();
    fixture.answers = false;
    fixture.observe_all();
    fixture.fail_ask(false, failed("no answer"));
    fixture.step(In::Leadership(Leadership::Standby));
    // Another replica led meanwhile, and used the record.
    fixture.set_foreign(1, State::Down);
    fixture.observe_all();
    fixture.lead(2);
    fixture.answer();
    assert_eq!(
        (fixture.state(1), fixture.requests.len()),
        (Some(NodeState::Restoring), 1),
        "it is written again"
    );
    fixture.answers = true;
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.recorded().is_empty());
}

#[test]
fn n4_a_late_record_that_is_not_needed_is_found_and_removed() {
    let mut fixture = slow(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    let late = fixture.requests.front().expect("a record").1.clone();
    fixture.fail_ask(false, failed("no answer"));
    fixture.deliver(node(1, &[]));
    fixture.pass(100);
    fixture.answer_all();
    fixture.server.carry_out(fixture.now, &late);
    assert_eq!((fixture.recorded(), fixture.state(1)), (vec!["node-1"], None));
    fixture.answers = true;
    fixture.pass(60_000);
    fixture.run_until_stable();
    assert!(fixture.recorded().is_empty() && fixture.downs().is_empty());
    assert!(fixture.take_due().is_empty(), "no update of it was ever due");
    let gets = fixture.gets;
    fixture.pass(600_000);
    assert_eq!(fixture.gets, gets, "then nothing is due");
}

#[test]
fn n4_a_deleted_nodes_record_is_removed_with_its_last_down() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.delete(1);
    fixture.observe_all();
    fixture.observe_all();
    assert_eq!((fixture.state(1), fixture.recorded()), (Some(NodeState::Gone), vec!["node-1"]));
    for entries in fixture.azure.values_mut() {
        entries.retain(|ip, _| !ips(1).contains(ip));
    }
    fixture.observe_all();
    assert_eq!((fixture.state(1), fixture.recorded()), (None, vec![]));
    // A node whose signal ends before its Down needs no record.
    fixture.answers = false;
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.delete(2);
    fixture.answer_all();
    assert!(fixture.recorded().is_empty() && fixture.is_idle());
}

#[test]
fn n4_a_new_address_is_recorded_before_it_enters_the_set() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.answers = false;
    fixture.azure.get_mut(&WEB()).expect("a pool").insert(ips(9)[0], State::None);
    fixture.observe_all();
    let mut moved = node(1, &[SHUTDOWN]);
    moved.ips.insert(ips(9)[0]);
    fixture.deliver(moved);
    let new = model::arm::Backend::Address(ips(9)[0]);
    assert!(!fixture.set.addresses.contains_key(&new) && fixture.due.is_empty());
    assert_eq!(fixture.state(1), Some(NodeState::Down), "the old addresses stay");
    fixture.answer();
    assert!(fixture.set.addresses.contains_key(&new) && fixture.due.len() == 1);
    assert_eq!(lines(&fixture, 1)[1], "ips: 10.0.0.1 10.0.0.9 fd00::1");
    fixture.run_until_stable();
    assert_eq!(fixture.downs().len(), 3);
}

#[test]
fn n4_a_successor_owns_an_old_address_once_recorded() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.deliver(node(2, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.delete(2);
    fixture.answers = false;
    let mut moved = node(1, &[SHUTDOWN]);
    moved.ips.extend(ips(2));
    fixture.deliver(moved);
    let old = model::arm::Backend::Address(ips(2)[0]);
    assert!(!fixture.set.addresses.contains_key(&old), "it is not recorded yet");
    assert!(
        !fixture.set.restorable.contains(&old) && fixture.due.is_empty(),
        "it is not restored in the meantime"
    );
    fixture.answer();
    assert_eq!(fixture.set.addresses.get(&old), Some(&uid("node-1")));
    fixture.run_until_stable();
    assert_eq!(fixture.downs().len(), 4);
}

#[test]
fn n4_a_deleted_nodes_exception_ends_for_its_successor() {
    let mut fixture = Fixture::new(4);
    fixture.set_foreign(1, State::Down);
    fixture.observe_all();
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(lines(&fixture, 1)[2], "foreign: lb/web");
    fixture.run_until_stable();
    fixture.delete(1);
    let successor = |taints: &[&str]| NodeFact { ips: ips(1).into(), ..node(9, taints) };
    fixture.set_foreign(1, State::Up);
    fixture.observe_all();
    fixture.deliver(successor(&[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.observe_all();
    fixture.run_until_stable();
    assert_eq!(fixture.downs()[&ips(1)[0]], 2, "Down in both pools of its family");
    fixture.deliver(successor(&[]));
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.recorded().is_empty());
}

#[test]
fn n4_earlier_downs_are_exceptions_even_if_read_late() {
    let mut fixture = Fixture::new(4);
    fixture.set_foreign(1, State::Down);
    let before = fixture.now;
    fixture.pass(10);
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(lines(&fixture, 1).len(), 2, "it was unknown");
    // The read had begun before the node entered the set.
    fixture.observe_at("lb", before);
    assert_eq!(lines(&fixture, 1)[2], "foreign: lb/web");
    fixture.run_until_stable();
    fixture.observe_all();
    assert_eq!(lines(&fixture, 1)[2], "foreign: lb/web", "a Down of ours is no exception");
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert_eq!(fixture.downs(), [(ips(1)[0], 1)].into());
    assert!(fixture.recorded().is_empty());
}

#[test]
fn n4_a_down_in_a_pool_we_may_have_written_is_no_exception() {
    for (written, exception) in [(Some("web"), false), (Some("shop"), true), (None, true)] {
        let mut fixture = Fixture::new(4);
        let before = fixture.now;
        fixture.pass(10);
        fixture.deliver(node(1, &[SHUTDOWN]));
        fixture.set_foreign(1, State::Down);
        fixture.sent.extend(written.map(|name| (pool("lb", name), fixture.now)));
        fixture.observe_at("lb", before);
        assert_eq!(
            lines(&fixture, 1)[2..] == ["foreign: lb/web"],
            exception,
            "{written:?}: {:?}",
            lines(&fixture, 1)
        );
    }
}

#[test]
fn n4_a_down_of_another_record_is_no_exception() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.delete(1);
    // Its address belongs to another node now, which drains as well.
    let next = NodeFact { uid: uid("next"), ..node(1, &[SHUTDOWN]) };
    fixture.deliver(next);
    fixture.run_until_stable();
    let text = fixture.server.text("down.uid-of-next").expect("it is recorded");
    assert!(!text.contains("foreign"), "{text}");
    fixture.deliver(NodeFact { uid: uid("next"), ..node(1, &[]) });
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.recorded().is_empty());
}

#[test]
fn n4_unknown_lines_survive() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    let text = fixture.server.text("down.uid-of-node-1").expect("recorded").to_owned();
    fixture.server.put("down.uid-of-node-1", &format!("{text}mood: fine\n"));
    let mut moved = node(1, &[SHUTDOWN]);
    moved.ips.insert(ips(9)[0]);
    fixture.deliver(moved);
    fixture.run_until_stable();
    assert_eq!(lines(&fixture, 1), ["node-1", "ips: 10.0.0.1 10.0.0.9 fd00::1", "mood: fine"]);
}

#[test]
fn n4_a_record_that_another_client_removes_is_written_again() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.server.remove("down.uid-of-node-1");
    fixture.pass(60_000);
    assert_eq!((fixture.recorded(), fixture.drains()), (vec!["node-1"], vec!["node-1"]));
    fixture.server.data = None;
    fixture.pass(60_000);
    assert_eq!(fixture.recorded(), ["node-1"]);
    assert_eq!(fixture.take_due().len(), 4, "nothing was due besides the first Downs");
}

#[test]
fn n4_a_record_that_appears_during_a_term_counts() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.azure.get_mut(&WEB()).expect("a pool").insert(ips(2)[0], State::Down);
    fixture.observe_all();
    fixture.server.put("down.uid-of-node-2", "node-2\nips: 10.0.0.2 fd00::2\n");
    fixture.pass(60_000);
    assert_eq!(fixture.state(2), Some(NodeState::Restoring));
    fixture.run_until_stable();
    assert_eq!((fixture.downs().len(), fixture.recorded()), (2, vec!["node-1"]));
}

#[test]
fn n4_a_record_without_room_waits_in_the_order_of_signals() {
    let mut fixture = Fixture::new(8);
    // Unreadable records take room, too.
    let filler = format!("node\nips: nonsense {}", "x".repeat(super::records::MAX_RECORD_BYTES));
    for n in 0..23 {
        fixture.server.put(&format!("down.filler-{n}"), &filler);
    }
    let left = super::records::MAX_OF_ALL
        - fixture.server.data.iter().flatten().map(|(key, text)| key.len() + text.text.len()).sum::<usize>();
    fixture.server.put("down.filler-last", &format!("node\nips: nonsense {}", "x".repeat(left - 135)));
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.pass(1);
    fixture.deliver(node(3, &[SHUTDOWN]));
    fixture.pass(1);
    fixture.deliver(node(2, &[SHUTDOWN]));
    assert_eq!((fixture.drains(), fixture.machine.records.refused().len()), (vec!["node-1"], 2));
    assert_eq!(fixture.machine.records.unreadable().len(), 24);
    assert_eq!(
        (fixture.state(2), fixture.state(3)),
        (Some(NodeState::Recording), Some(NodeState::Recording))
    );
    fixture.run_until_stable();
    let writes = fixture.writes;
    fixture.pass(600_000);
    assert_eq!(fixture.writes, writes, "an impossible write is not tried");
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert_eq!(fixture.drains(), ["node-3"], "the older signal");
    fixture.server.remove("down.filler-0");
    fixture.pass(60_000);
    assert_eq!((fixture.drains(), fixture.machine.records.refused().len()), (vec!["node-2", "node-3"], 0));
}

#[test]
fn n4_a_node_without_a_valid_key_or_record_is_refused() {
    let mut fixture = Fixture::new(6);
    let odd = NodeFact { uid: NodeUid::new("a/b"), ..node(1, &[SHUTDOWN]) };
    fixture.deliver(odd);
    fixture.deliver(node(2, &[SHUTDOWN]));
    assert_eq!((fixture.drains(), fixture.state(1)), (vec!["node-2"], Some(NodeState::Recording)));
    let refused: Vec<_> = fixture.machine.records.refused().values().collect();
    assert_eq!(refused, [&"its UID is none that a key of a ConfigMap can hold"]);
    let mut many = node(3, &[SHUTDOWN]);
    many.ips = (0..2_000_u32).map(|n| IpAddr::from((0x0a00_0000_u32 + n).to_be_bytes())).collect();
    fixture.deliver(many);
    assert_eq!((fixture.drains(), fixture.machine.records.refused().len()), (vec!["node-2"], 2));
    fixture.deliver(node(1, &[]));
    fixture.deliver(node(3, &[]));
    assert!(fixture.machine.records.refused().is_empty() && fixture.state(1).is_none());
    fixture.pass(60_000);
    assert_eq!(fixture.recorded(), ["node-2"]);
}

#[test]
fn n4_an_unreadable_record_is_kept_and_makes_no_down_ours() {
    let mut fixture = Fixture::silent(Role::On, 4);
    fixture.server.put("down.uid-of-node-1", "node-1\nips: nonsense\n");
    fixture.server.put("down.uid-of-node-2", "node-2\nips: 10.0.0.2\nforeign: nonsense\n");
    fixture.server.binary.insert("down.uid-of-node-3".into());
    for n in 1..=4 {
        fixture.deliver(node(n, &[]));
        fixture.set_foreign(n, State::Down);
    }
    fixture.observe_all();
    fixture.lead(1);
    fixture.run_until_stable();
    let unreadable: Vec<_> = fixture.machine.records.unreadable().keys().map(|key| &**key).collect();
    assert_eq!(unreadable, ["down.uid-of-node-1", "down.uid-of-node-2", "down.uid-of-node-3"]);
    assert_eq!((fixture.downs().len(), fixture.writes), (4, 0));
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!((fixture.state(1), fixture.writes), (Some(NodeState::Recording), 0));
    assert_eq!(fixture.machine.records.refused().len(), 1);
    assert_eq!(fixture.recorded(), ["node-1", "node-2"]);
    fixture.server.remove("down.uid-of-node-1");
    fixture.pass(60_000);
    assert_eq!(fixture.drains(), ["node-1"], "the operator has repaired it");
}

#[test]
fn n4_a_node_with_an_unreadable_key_is_reported_with_the_remedy() {
    let mut fixture = Fixture::silent(Role::On, 4);
    fixture.server.put("down.uid-of-node-1", "node-1\nips: 10.0.0.1\nforeign: nonsense\n");
    fixture.deliver(node(1, &[]));
    fixture.observe_all();
    fixture.lead(1);
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(fixture.state(1), Some(NodeState::Recording));
    let failures: Vec<&Report> = fixture.reports.iter().filter(|report| is_failure(report)).collect();
    let [Report { what: model::report::EventKind::AdminFailed { why, .. }, .. }] = &failures[..] else {
        panic!("{failures:?}")
    };
    assert!(why.contains("its key down.<UID>") && why.contains("correct or remove it"), "{why}");
}

#[test]
fn n4_the_get_before_our_first_put_finds_a_newer_down() {
    let mut fixture = Fixture::new(4);
    fixture.pass(10);
    fixture.set_foreign(1, State::Down);
    fixture.pass(10);
    fixture.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(lines(&fixture, 1).len(), 2, "it was unknown");
    fixture.run_until_stable();
    assert_eq!(lines(&fixture, 1)[2], "foreign: lb/web");
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert_eq!(fixture.downs(), [(ips(1)[0], 1)].into(), "it is unchanged");
    assert!(fixture.recorded().is_empty());
}

#[test]
fn n4_a_read_finds_a_down_until_a_put_was_sent_to_its_pool() {
    for written in [false, true] {
        let mut fixture = Fixture::new(4);
        fixture.deliver(node(1, &[SHUTDOWN]));
        fixture.pass(10);
        if written {
            fixture.write(&WEB());
        } else {
            fixture.set_foreign(1, State::Down);
        }
        fixture.observe_all();
        assert_eq!(lines(&fixture, 1)[2..] == ["foreign: lb/web"], !written, "{:?}", lines(&fixture, 1));
    }
}

#[test]
fn n4_a_read_from_before_our_put_finds_no_down() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    let older = PoolAdminStates { facts: Some(fixture.facts_of(&WEB())), ..fixture.states(&WEB()) };
    fixture.pass(10);
    fixture.write(&WEB());
    fixture.observe_all();
    fixture.step(In::AdminStates(WEB(), older));
    assert_eq!(lines(&fixture, 1).len(), 2, "the Down is ours: {:?}", lines(&fixture, 1));
}

#[test]
fn n4_an_exception_ends_when_its_entry_is_not_down() {
    let mut fixture = Fixture::new(4);
    fixture.set_foreign(1, State::Down);
    fixture.observe_all();
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    assert_eq!(lines(&fixture, 1)[2], "foreign: lb/web");
    fixture.take_due();
    fixture.set_foreign(1, State::None);
    fixture.answers = false;
    fixture.observe_all();
    assert!(fixture.take_due().is_empty(), "its entry is not written before the record");
    fixture.answer();
    assert_eq!(lines(&fixture, 1).len(), 2);
    assert_eq!(fixture.take_due(), [("lb/web".to_owned(), DOWN)]);
    fixture.answers = true;
    fixture.run_until_stable();
    assert_eq!(fixture.downs(), [(ips(1)[0], 2), (ips(1)[1], 2)].into());
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty() && fixture.recorded().is_empty(), "it is ours to restore");
}

#[test]
fn n4_a_restore_ends_when_no_older_put_can_set_down_again() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    // A write of membership with the node as draining is in flight, and may add it Down.
    fixture.oldest = Some(fixture.set.generation);
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert!(fixture.downs().is_empty());
    assert_eq!((fixture.state(1), fixture.recorded()), (Some(NodeState::Restoring), vec!["node-1"]));
    fixture.set_foreign(1, State::Down);
    fixture.oldest = None;
    fixture.run_until_stable();
    assert!(
        fixture.downs().is_empty() && fixture.recorded().is_empty(),
        "the record still marked it as ours"
    );
}

#[test]
fn n4_a_foreign_down_stays_if_the_signal_ends_before_our_put() {
    let mut fixture = Fixture::new(4);
    fixture.pass(10);
    fixture.set_foreign(1, State::Down);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.pass(10);
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    assert_eq!(fixture.downs(), [(ips(1)[0], 1)].into());
    assert!(fixture.recorded().is_empty());
}

#[test]
fn n4_an_older_read_does_not_end_an_exception() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.deliver(node(2, &[SHUTDOWN]));
    let before = fixture.now;
    fixture.pass(10);
    fixture.set_foreign(1, State::Down);
    fixture.in_flight = Some(WEB());
    fixture.due.remove(&WEB());
    let set = Arc::clone(&fixture.set);
    fixture.carry_out(&WEB(), &set);
    assert_eq!(lines(&fixture, 1)[2], "foreign: lb/web");
    // A read that began before does not show it.
    fixture.set_foreign(1, State::None);
    fixture.observe_at("lb", before);
    assert_eq!(lines(&fixture, 1)[2], "foreign: lb/web");
    fixture.set_foreign(1, State::Down);
    fixture.in_flight = None;
    fixture.finished(&WEB(), set.generation, None);
    fixture.run_until_stable();
    fixture.deliver(node(1, &[]));
    fixture.deliver(node(2, &[]));
    fixture.run_until_stable();
    assert_eq!(fixture.downs(), [(ips(1)[0], 1)].into());
}

#[test]
fn n4_a_read_that_did_not_count_is_requested_again() {
    let mut fixture = Fixture::new(4);
    fixture.deliver(node(1, &[SHUTDOWN]));
    fixture.run_until_stable();
    fixture.oldest = Some(fixture.set.generation);
    fixture.deliver(node(1, &[]));
    fixture.run_until_stable();
    fixture.requested_reads = 0;
    fixture.pass(14_000);
    assert_eq!(fixture.requested_reads, 0);
    fixture.pass(1_100);
    assert_eq!(fixture.requested_reads, 1);
    fixture.oldest = None;
    fixture.observe_all();
    assert!(fixture.recorded().is_empty());
    fixture.pass(60_000);
    assert_eq!(fixture.requested_reads, 1, "then nothing is due");
}
