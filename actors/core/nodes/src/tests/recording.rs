//! Tests of records: a node has a record before its first Down, and as long as any entry of it may be Down (N4).

use super::*;
use model::object::RequestFailure;

const WEB: fn() -> PoolId = || pool("lb", "web");

/// Creates a leader whose requests about our ConfigMap wait.
fn slow(nodes: u8) -> Bench {
    let mut bench = Bench::new(nodes);
    bench.answers = false;
    bench
}

/// Returns the lines of a record without the time.
fn lines(bench: &Bench, n: u8) -> Vec<String> {
    let text = bench.server.text(&format!("down.uid-of-node-{n}")).expect("it is recorded");
    text.lines().filter(|line| !line.starts_with("since:")).map(str::to_owned).collect()
}

fn failed(why: &str) -> RequestFailure {
    RequestFailure::Other(why.into())
}

#[test]
fn n4_a_node_is_recorded_before_it_enters_the_set() {
    let mut bench = slow(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(bench.state(1), Some(NodeState::Recording));
    assert_eq!((bench.set.generation, bench.due.len(), bench.requests.len()), (0, 0, 1));
    bench.pass(5_900);
    assert_eq!((bench.set.generation, bench.requests.len()), (0, 1), "for any duration");
    bench.answer();
    assert_eq!(lines(&bench, 1), ["node-1", "ips: 10.0.0.1 fd00::1"]);
    assert_eq!(bench.take_due(), all(DOWN), "in the turn of the answer");
    assert_eq!(bench.state(1), Some(NodeState::Draining));
    bench.run_until_stable();
    assert_eq!((bench.state(1), bench.writes), (Some(NodeState::Down), 1), "once");
}

#[test]
fn n4_one_write_contains_all_waiting_records() {
    let mut bench = slow(8);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.deliver(node(3, &[SHUTDOWN]));
    assert_eq!(bench.requests.len(), 1);
    bench.answer();
    assert_eq!((bench.drains(), bench.requests.len()), (vec!["node-1"], 1));
    bench.answer();
    assert_eq!((bench.drains(), bench.writes), (vec!["node-1", "node-2", "node-3"], 2));
}

#[test]
fn n4_a_signal_that_ends_early_removes_the_record_again() {
    let mut bench = slow(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.deliver(node(1, &[]));
    assert_eq!(bench.state(1), None);
    bench.answer_all();
    assert!(bench.recorded().is_empty() && bench.take_due().is_empty() && bench.set.generation == 0);
    // The same, with a new signal before the answer: the earlier write does not count.
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.deliver(node(1, &[]));
    bench.set_foreign(1, State::Down);
    bench.observe_all();
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.answer();
    assert_eq!(bench.state(1), Some(NodeState::Recording), "the written record lacks the exception");
    bench.answer_all();
    assert_eq!(lines(&bench, 1)[2], "foreign: lb/web");
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert_eq!(bench.downs(), [(ips(1)[0], 1)].into(), "a foreign Down is none of ours");
}

#[test]
fn n4_after_a_conflict_or_lost_answer_the_record_is_read() {
    let mut bench = slow(4);
    bench.server.put("start.somebody", "else");
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.answer();
    assert!(bench.recorded().is_empty(), "another client wrote first");
    assert!(matches!(bench.requests.front(), Some((_, ConfigMapRequest::Get))), "read at once");
    bench.answer();
    bench.fail_ask(true, failed("lost"));
    assert_eq!(bench.state(1), Some(NodeState::Recording));
    bench.pass(100);
    bench.answer();
    assert_eq!((bench.drains(), bench.writes), (vec!["node-1"], 2), "a read that shows it confirms it");
    assert_eq!(bench.server.keys(), ["down.uid-of-node-1", "start.somebody"], "others' keys stay");
}

#[test]
fn n4_denied_requests_are_retried_slower_than_others() {
    let mut bench = slow(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    let mut waits = Vec::new();
    for _ in 0..9 {
        bench.fail_ask(false, failed("no"));
        let at = bench.machine.records.deadline().expect("tried again");
        waits.push(at.since(bench.now).as_millis());
        bench.pass(at.since(bench.now).as_millis().try_into().expect("short"));
    }
    assert_eq!(waits, [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000]);
    let failed_in_a_row = |bench: &Bench| bench.reports.iter().filter(|report| is_failure(report)).count();
    assert_eq!(failed_in_a_row(&bench), 1, "it is reported once");
    bench.fail_ask(false, RequestFailure::Denied("403".into()));
    let at = bench.machine.records.deadline().expect("tried again");
    assert_eq!(at.since(bench.now), Duration::from_secs(15));
    bench.pass(15_000);
    bench.answer_all();
    assert_eq!((bench.drains(), bench.machine.records.last_error()), (vec!["node-1"], None));
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.fail_ask(false, failed("no"));
    let at = bench.machine.records.deadline().expect("tried again");
    assert_eq!(at.since(bench.now), Duration::from_millis(100), "earlier failures do not count");
}

fn is_failure(report: &Report) -> bool {
    matches!(report.what, model::report::EventKind::AdminFailed { pool: None, .. })
}

#[test]
fn n4_a_request_without_an_answer_times_out() {
    let mut bench = slow(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.requests.clear();
    bench.pass(6_000);
    bench.pass(100);
    bench.answer_all();
    assert_eq!(bench.drains(), ["node-1"]);
}

#[test]
fn n4_a_server_that_drops_a_record_gets_paced_writes() {
    let mut bench = Bench::new(4);
    bench.server.put("start.somebody", "else");
    bench.server.drops = true;
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.pass(60_000);
    assert!((5..30).contains(&bench.writes), "{}", bench.writes);
    assert_eq!((bench.state(1), bench.set.generation), (Some(NodeState::Recording), 0));
    bench.server.drops = false;
    bench.pass(5_100);
    assert_eq!(bench.drains(), ["node-1"]);
}

#[test]
fn n4_a_record_is_removed_once_its_node_is_restored() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.write_all();
    assert_eq!(bench.recorded(), ["node-1"], "a read of each load balancer must confirm it first");
    assert_eq!(bench.state(1), Some(NodeState::Restoring));
    bench.observe_all();
    assert_eq!((bench.recorded(), bench.state(1)), (vec![], None));
    bench.pass(600_000);
    assert_eq!((bench.writes, bench.gets), (2, 1), "there are no more requests");
}

#[test]
fn n4_a_new_signal_during_a_removal_records_the_node_first() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.write_all();
    bench.answers = false;
    bench.observe_all();
    assert_eq!((bench.state(1), bench.recorded(), bench.requests.len()), (None, vec!["node-1"], 1));
    bench.set_foreign(1, State::Down);
    bench.observe_all();
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(bench.state(1), Some(NodeState::Recording));
    bench.answer_all();
    assert_eq!(lines(&bench, 1)[2], "foreign: lb/web", "a later foreign Down is an exception");
    assert_eq!(bench.drains(), ["node-1"]);
    // A node with a new signal before it is done keeps its record, and goes Down at once.
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.take_due();
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!((bench.state(1), bench.drains()), (Some(NodeState::Draining), vec!["node-1"]));
    bench.run_until_stable();
    assert_eq!((bench.requests.len(), bench.recorded()), (0, vec!["node-1"]));
}

#[test]
fn n4_a_late_removal_never_removes_a_draining_nodes_record() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.write_all();
    bench.answers = false;
    bench.observe_all();
    let late = bench.requests.front().expect("the record is about to be removed").1.clone();
    bench.fail_ask(false, failed("no answer"));
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.pass(100);
    bench.answer();
    assert_eq!(bench.state(1), Some(NodeState::Recording), "the existing record may still be removed");
    bench.answer();
    assert_eq!(bench.drains(), ["node-1"]);
    let answer = bench.server.carry_out(bench.now, &late);
    assert!(matches!(answer, ConfigMapAnswer::Conflict), "{answer:?}");
    assert_eq!(bench.recorded(), ["node-1"]);
}

#[test]
fn n4_a_record_after_a_late_removal_counts_once_rewritten() {
    for signalled in [true, false] {
        let mut bench = Bench::new(4);
        bench.deliver(node(1, &[SHUTDOWN]));
        bench.run_until_stable();
        bench.deliver(node(1, &[]));
        bench.write_all();
        bench.answers = false;
        bench.observe_all();
        let late = bench.requests.front().expect("the record is about to be removed").1.clone();
        bench.fail_ask(false, failed("no answer"));
        bench.step(In::Leadership(Leadership::Standby));
        bench.take_due();
        if signalled {
            bench.deliver(node(1, &[SHUTDOWN]));
        }
        bench.lead(2);
        bench.answer();
        assert_eq!((bench.opened, bench.recorded()), (Some(Epoch(2)), vec!["node-1"]));
        assert_eq!(bench.state(1), signalled.then_some(NodeState::Recording));
        assert!(
            bench.drains().is_empty() && bench.take_due().is_empty(),
            "the existing record may still be removed"
        );
        bench.answer();
        let left = usize::from(signalled);
        assert_eq!((bench.drains().len(), bench.recorded().len()), (left, left));
        let answer = bench.server.carry_out(bench.now, &late);
        assert!(matches!(answer, ConfigMapAnswer::Conflict), "{answer:?}");
    }
}

#[test]
fn n4_a_record_that_may_be_removed_counts_for_a_down_node() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.write_all();
    bench.answers = false;
    bench.observe_all();
    bench.fail_ask(false, failed("no answer"));
    bench.step(In::Leadership(Leadership::Standby));
    // Another replica led meanwhile, and used the record.
    bench.set_foreign(1, State::Down);
    bench.observe_all();
    bench.lead(2);
    bench.answer();
    assert_eq!(
        (bench.state(1), bench.requests.len()),
        (Some(NodeState::Restoring), 1),
        "it is written again"
    );
    bench.answers = true;
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.recorded().is_empty());
}

#[test]
fn n4_a_late_record_that_is_not_needed_is_found_and_removed() {
    let mut bench = slow(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    let late = bench.requests.front().expect("a record").1.clone();
    bench.fail_ask(false, failed("no answer"));
    bench.deliver(node(1, &[]));
    bench.pass(100);
    bench.answer_all();
    bench.server.carry_out(bench.now, &late);
    assert_eq!((bench.recorded(), bench.state(1)), (vec!["node-1"], None));
    bench.answers = true;
    bench.pass(60_000);
    bench.run_until_stable();
    assert!(bench.recorded().is_empty() && bench.downs().is_empty());
    assert!(bench.take_due().is_empty(), "no update of it was ever due");
    let gets = bench.gets;
    bench.pass(600_000);
    assert_eq!(bench.gets, gets, "then nothing is due");
}

#[test]
fn n4_a_deleted_nodes_record_is_removed_with_its_last_down() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.delete(1);
    bench.observe_all();
    bench.observe_all();
    assert_eq!((bench.state(1), bench.recorded()), (Some(NodeState::Gone), vec!["node-1"]));
    for entries in bench.azure.values_mut() {
        entries.retain(|ip, _| !ips(1).contains(ip));
    }
    bench.observe_all();
    assert_eq!((bench.state(1), bench.recorded()), (None, vec![]));
    // A node whose signal ends before its Down needs no record.
    bench.answers = false;
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.delete(2);
    bench.answer_all();
    assert!(bench.recorded().is_empty() && bench.is_idle());
}

#[test]
fn n4_a_new_address_is_recorded_before_it_enters_the_set() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.answers = false;
    bench.azure.get_mut(&WEB()).expect("a pool").insert(ips(9)[0], State::None);
    bench.observe_all();
    let mut moved = node(1, &[SHUTDOWN]);
    moved.ips.insert(ips(9)[0]);
    bench.deliver(moved);
    let new = model::arm::Backend::Address(ips(9)[0]);
    assert!(!bench.set.addresses.contains_key(&new) && bench.due.is_empty());
    assert_eq!(bench.state(1), Some(NodeState::Down), "the old addresses stay");
    bench.answer();
    assert!(bench.set.addresses.contains_key(&new) && bench.due.len() == 1);
    assert_eq!(lines(&bench, 1)[1], "ips: 10.0.0.1 10.0.0.9 fd00::1");
    bench.run_until_stable();
    assert_eq!(bench.downs().len(), 3);
}

#[test]
fn n4_a_successor_owns_an_old_address_once_recorded() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.deliver(node(2, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.delete(2);
    bench.answers = false;
    let mut moved = node(1, &[SHUTDOWN]);
    moved.ips.extend(ips(2));
    bench.deliver(moved);
    let old = model::arm::Backend::Address(ips(2)[0]);
    assert!(!bench.set.addresses.contains_key(&old), "it is not recorded yet");
    assert!(
        !bench.set.restorable.contains(&old) && bench.due.is_empty(),
        "it is not restored in the meantime"
    );
    bench.answer();
    assert_eq!(bench.set.addresses.get(&old), Some(&uid("node-1")));
    bench.run_until_stable();
    assert_eq!(bench.downs().len(), 4);
}

#[test]
fn n4_a_deleted_nodes_exception_ends_for_its_successor() {
    let mut bench = Bench::new(4);
    bench.set_foreign(1, State::Down);
    bench.observe_all();
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(lines(&bench, 1)[2], "foreign: lb/web");
    bench.run_until_stable();
    bench.delete(1);
    let successor = |taints: &[&str]| NodeFact { ips: ips(1).into(), ..node(9, taints) };
    bench.set_foreign(1, State::Up);
    bench.observe_all();
    bench.deliver(successor(&[SHUTDOWN]));
    bench.run_until_stable();
    bench.observe_all();
    bench.run_until_stable();
    assert_eq!(bench.downs()[&ips(1)[0]], 2, "Down in both pools of its family");
    bench.deliver(successor(&[]));
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.recorded().is_empty());
}

#[test]
fn n4_earlier_downs_are_exceptions_even_if_read_late() {
    let mut bench = Bench::new(4);
    bench.set_foreign(1, State::Down);
    let before = bench.now;
    bench.pass(10);
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(lines(&bench, 1).len(), 2, "it was unknown");
    // The read had begun before the node entered the set.
    bench.observe_at("lb", before);
    assert_eq!(lines(&bench, 1)[2], "foreign: lb/web");
    bench.run_until_stable();
    bench.observe_all();
    assert_eq!(lines(&bench, 1)[2], "foreign: lb/web", "a Down of ours is no exception");
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert_eq!(bench.downs(), [(ips(1)[0], 1)].into());
    assert!(bench.recorded().is_empty());
}

#[test]
fn n4_a_down_in_a_pool_we_may_have_written_is_no_exception() {
    for (written, exception) in [(Some("web"), false), (Some("shop"), true), (None, true)] {
        let mut bench = Bench::new(4);
        let before = bench.now;
        bench.pass(10);
        bench.deliver(node(1, &[SHUTDOWN]));
        bench.set_foreign(1, State::Down);
        bench.sent.extend(written.map(|name| (pool("lb", name), bench.now)));
        bench.observe_at("lb", before);
        assert_eq!(
            lines(&bench, 1)[2..] == ["foreign: lb/web"],
            exception,
            "{written:?}: {:?}",
            lines(&bench, 1)
        );
    }
}

#[test]
fn n4_a_down_of_another_record_is_no_exception() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.delete(1);
    // Its address belongs to another node now, which drains as well.
    let next = NodeFact { uid: uid("next"), ..node(1, &[SHUTDOWN]) };
    bench.deliver(next);
    bench.run_until_stable();
    let text = bench.server.text("down.uid-of-next").expect("it is recorded");
    assert!(!text.contains("foreign"), "{text}");
    bench.deliver(NodeFact { uid: uid("next"), ..node(1, &[]) });
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.recorded().is_empty());
}

#[test]
fn n4_unknown_lines_survive() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    let text = bench.server.text("down.uid-of-node-1").expect("recorded").to_owned();
    bench.server.put("down.uid-of-node-1", &format!("{text}mood: fine\n"));
    let mut moved = node(1, &[SHUTDOWN]);
    moved.ips.insert(ips(9)[0]);
    bench.deliver(moved);
    bench.run_until_stable();
    assert_eq!(lines(&bench, 1), ["node-1", "ips: 10.0.0.1 10.0.0.9 fd00::1", "mood: fine"]);
}

#[test]
fn n4_a_record_that_another_client_removes_is_written_again() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.server.remove("down.uid-of-node-1");
    bench.pass(60_000);
    assert_eq!((bench.recorded(), bench.drains()), (vec!["node-1"], vec!["node-1"]));
    bench.server.data = None;
    bench.pass(60_000);
    assert_eq!(bench.recorded(), ["node-1"]);
    assert_eq!(bench.take_due().len(), 4, "nothing was due besides the first Downs");
}

#[test]
fn n4_a_record_that_appears_during_a_term_counts() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.azure.get_mut(&WEB()).expect("a pool").insert(ips(2)[0], State::Down);
    bench.observe_all();
    bench.server.put("down.uid-of-node-2", "node-2\nips: 10.0.0.2 fd00::2\n");
    bench.pass(60_000);
    assert_eq!(bench.state(2), Some(NodeState::Restoring));
    bench.run_until_stable();
    assert_eq!((bench.downs().len(), bench.recorded()), (2, vec!["node-1"]));
}

#[test]
fn n4_a_record_without_room_waits_in_the_order_of_signals() {
    let mut bench = Bench::new(8);
    // Unreadable records take room, too.
    let filler = format!("node\nips: nonsense {}", "x".repeat(super::records::LONGEST));
    for n in 0..23 {
        bench.server.put(&format!("down.filler-{n}"), &filler);
    }
    let left = super::records::MAX_OF_ALL
        - bench.server.data.iter().flatten().map(|(key, text)| key.len() + text.text.len()).sum::<usize>();
    bench.server.put("down.filler-last", &format!("node\nips: nonsense {}", "x".repeat(left - 135)));
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.pass(1);
    bench.deliver(node(3, &[SHUTDOWN]));
    bench.pass(1);
    bench.deliver(node(2, &[SHUTDOWN]));
    assert_eq!((bench.drains(), bench.machine.records.refused().len()), (vec!["node-1"], 2));
    assert_eq!(bench.machine.records.unreadable().len(), 24);
    assert_eq!((bench.state(2), bench.state(3)), (Some(NodeState::Recording), Some(NodeState::Recording)));
    bench.run_until_stable();
    let writes = bench.writes;
    bench.pass(600_000);
    assert_eq!(bench.writes, writes, "an impossible write is not tried");
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert_eq!(bench.drains(), ["node-3"], "the older signal");
    bench.server.remove("down.filler-0");
    bench.pass(60_000);
    assert_eq!((bench.drains(), bench.machine.records.refused().len()), (vec!["node-2", "node-3"], 0));
}

#[test]
fn n4_a_node_without_a_valid_key_or_record_is_refused() {
    let mut bench = Bench::new(6);
    let odd = NodeFact { uid: NodeUid::new("a/b"), ..node(1, &[SHUTDOWN]) };
    bench.deliver(odd);
    bench.deliver(node(2, &[SHUTDOWN]));
    assert_eq!((bench.drains(), bench.state(1)), (vec!["node-2"], Some(NodeState::Recording)));
    let refused: Vec<_> = bench.machine.records.refused().values().collect();
    assert_eq!(refused, [&"its UID is none that a key of a ConfigMap can hold"]);
    let mut many = node(3, &[SHUTDOWN]);
    many.ips = (0..2_000_u32).map(|n| IpAddr::from((0x0a00_0000_u32 + n).to_be_bytes())).collect();
    bench.deliver(many);
    assert_eq!((bench.drains(), bench.machine.records.refused().len()), (vec!["node-2"], 2));
    bench.deliver(node(1, &[]));
    bench.deliver(node(3, &[]));
    assert!(bench.machine.records.refused().is_empty() && bench.state(1).is_none());
    bench.pass(60_000);
    assert_eq!(bench.recorded(), ["node-2"]);
}

#[test]
fn n4_an_unreadable_record_is_kept_and_makes_no_down_ours() {
    let mut bench = Bench::silent(Role::On, 4);
    bench.server.put("down.uid-of-node-1", "node-1\nips: nonsense\n");
    bench.server.put("down.uid-of-node-2", "node-2\nips: 10.0.0.2\nforeign: nonsense\n");
    bench.server.binary.insert("down.uid-of-node-3".into());
    for n in 1..=4 {
        bench.deliver(node(n, &[]));
        bench.set_foreign(n, State::Down);
    }
    bench.observe_all();
    bench.lead(1);
    bench.run_until_stable();
    let unreadable: Vec<_> = bench.machine.records.unreadable().keys().map(|key| &**key).collect();
    assert_eq!(unreadable, ["down.uid-of-node-1", "down.uid-of-node-2", "down.uid-of-node-3"]);
    assert_eq!((bench.downs().len(), bench.writes), (4, 0));
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!((bench.state(1), bench.writes), (Some(NodeState::Recording), 0));
    assert_eq!(bench.machine.records.refused().len(), 1);
    assert_eq!(bench.recorded(), ["node-1", "node-2"]);
    bench.server.remove("down.uid-of-node-1");
    bench.pass(60_000);
    assert_eq!(bench.drains(), ["node-1"], "the operator has repaired it");
}

#[test]
fn n4_a_node_with_an_unreadable_key_is_reported_with_the_remedy() {
    let mut bench = Bench::silent(Role::On, 4);
    bench.server.put("down.uid-of-node-1", "node-1\nips: 10.0.0.1\nforeign: nonsense\n");
    bench.deliver(node(1, &[]));
    bench.observe_all();
    bench.lead(1);
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(bench.state(1), Some(NodeState::Recording));
    let failures: Vec<&Report> = bench.reports.iter().filter(|report| is_failure(report)).collect();
    let [Report { what: model::report::EventKind::AdminFailed { why, .. }, .. }] = &failures[..] else {
        panic!("{failures:?}")
    };
    assert!(why.contains("its key down.<UID>") && why.contains("correct or remove it"), "{why}");
}

#[test]
fn n4_the_get_before_our_first_put_finds_a_newer_down() {
    let mut bench = Bench::new(4);
    bench.pass(10);
    bench.set_foreign(1, State::Down);
    bench.pass(10);
    bench.deliver(node(1, &[SHUTDOWN]));
    assert_eq!(lines(&bench, 1).len(), 2, "it was unknown");
    bench.run_until_stable();
    assert_eq!(lines(&bench, 1)[2], "foreign: lb/web");
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert_eq!(bench.downs(), [(ips(1)[0], 1)].into(), "it is unchanged");
    assert!(bench.recorded().is_empty());
}

#[test]
fn n4_a_read_finds_a_down_until_a_put_was_sent_to_its_pool() {
    for written in [false, true] {
        let mut bench = Bench::new(4);
        bench.deliver(node(1, &[SHUTDOWN]));
        bench.pass(10);
        if written {
            bench.write(&WEB());
        } else {
            bench.set_foreign(1, State::Down);
        }
        bench.observe_all();
        assert_eq!(lines(&bench, 1)[2..] == ["foreign: lb/web"], !written, "{:?}", lines(&bench, 1));
    }
}

#[test]
fn n4_a_read_from_before_our_put_finds_no_down() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    let older = PoolAdminStates { facts: Some(bench.facts_of(&WEB())), ..bench.states(&WEB()) };
    bench.pass(10);
    bench.write(&WEB());
    bench.observe_all();
    bench.step(In::AdminStates(WEB(), older));
    assert_eq!(lines(&bench, 1).len(), 2, "the Down is ours: {:?}", lines(&bench, 1));
}

#[test]
fn n4_an_exception_ends_when_its_entry_is_not_down() {
    let mut bench = Bench::new(4);
    bench.set_foreign(1, State::Down);
    bench.observe_all();
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    assert_eq!(lines(&bench, 1)[2], "foreign: lb/web");
    bench.take_due();
    bench.set_foreign(1, State::None);
    bench.answers = false;
    bench.observe_all();
    assert!(bench.take_due().is_empty(), "its entry is not written before the record");
    bench.answer();
    assert_eq!(lines(&bench, 1).len(), 2);
    assert_eq!(bench.take_due(), [("lb/web".to_owned(), DOWN)]);
    bench.answers = true;
    bench.run_until_stable();
    assert_eq!(bench.downs(), [(ips(1)[0], 2), (ips(1)[1], 2)].into());
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.recorded().is_empty(), "it is ours to restore");
}

#[test]
fn n4_a_restore_ends_when_no_older_put_can_set_down_again() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    // A write of membership with the node as draining is in flight, and may add it Down.
    bench.oldest = Some(bench.set.generation);
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert!(bench.downs().is_empty());
    assert_eq!((bench.state(1), bench.recorded()), (Some(NodeState::Restoring), vec!["node-1"]));
    bench.set_foreign(1, State::Down);
    bench.oldest = None;
    bench.run_until_stable();
    assert!(bench.downs().is_empty() && bench.recorded().is_empty(), "the record still marked it as ours");
}

#[test]
fn n4_a_foreign_down_stays_if_the_signal_ends_before_our_put() {
    let mut bench = Bench::new(4);
    bench.pass(10);
    bench.set_foreign(1, State::Down);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.pass(10);
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    assert_eq!(bench.downs(), [(ips(1)[0], 1)].into());
    assert!(bench.recorded().is_empty());
}

#[test]
fn n4_an_older_read_does_not_end_an_exception() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.deliver(node(2, &[SHUTDOWN]));
    let before = bench.now;
    bench.pass(10);
    bench.set_foreign(1, State::Down);
    bench.in_flight = Some(WEB());
    bench.due.remove(&WEB());
    let set = Arc::clone(&bench.set);
    bench.carry_out(&WEB(), &set);
    assert_eq!(lines(&bench, 1)[2], "foreign: lb/web");
    // A read that began before does not show it.
    bench.set_foreign(1, State::None);
    bench.observe_at("lb", before);
    assert_eq!(lines(&bench, 1)[2], "foreign: lb/web");
    bench.set_foreign(1, State::Down);
    bench.in_flight = None;
    bench.finished(&WEB(), set.generation, None);
    bench.run_until_stable();
    bench.deliver(node(1, &[]));
    bench.deliver(node(2, &[]));
    bench.run_until_stable();
    assert_eq!(bench.downs(), [(ips(1)[0], 1)].into());
}

#[test]
fn n4_a_read_that_did_not_count_is_requested_again() {
    let mut bench = Bench::new(4);
    bench.deliver(node(1, &[SHUTDOWN]));
    bench.run_until_stable();
    bench.oldest = Some(bench.set.generation);
    bench.deliver(node(1, &[]));
    bench.run_until_stable();
    bench.requested_reads = 0;
    bench.pass(14_000);
    assert_eq!(bench.requested_reads, 0);
    bench.pass(1_100);
    assert_eq!(bench.requested_reads, 1);
    bench.oldest = None;
    bench.observe_all();
    assert!(bench.recorded().is_empty());
    bench.pass(60_000);
    assert_eq!(bench.requested_reads, 1, "then nothing is due");
}
