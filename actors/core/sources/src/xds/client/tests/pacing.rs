//! Tests of the pace of repeated rejections: go-control-plane answers a NACK immediately with the same response.

use super::*;

fn x() -> ResourceKey {
    endpoints("x")
}

fn y() -> ResourceKey {
    endpoints("y")
}

/// Answers each rejection immediately with another invalid response, for this long. `version` chooses the versions.
/// Returns the times of rejections, in milliseconds since the start.
fn rejected_for(run: &mut Run, millis: u64, version: impl Fn(u32) -> String) -> Vec<u128> {
    let start = run.now;
    let end = start.plus(std::time::Duration::from_millis(millis));
    let mut sent = Vec::new();
    let mut n = 0;
    run.respond(ResourceKind::Endpoints, &version(n), "0", vec![bad(&x())]);
    loop {
        if run.requests().is_empty() {
            if run.client.deadline().is_none_or(|at| at > end) {
                return sent;
            }
            run.wait();
        } else {
            sent.push(run.now.since(start).as_millis());
            n += 1;
            run.respond(ResourceKind::Endpoints, &version(n), &n.to_string(), vec![bad(&x())]);
        }
    }
}

#[test]
fn x2_a_repeated_rejection_is_sent_with_growing_delays() {
    let mut run = Run::watching(&[x()]);
    let sent = rejected_for(&mut run, 30_000, |_| "1".to_owned());
    assert_eq!(sent, [0, 1_000, 3_000, 7_000, 12_000, 17_000, 22_000, 27_000]);
}

#[test]
fn x2_rejections_of_new_versions_are_bounded_over_time() {
    let mut run = Run::watching(&[x()]);
    let sent = rejected_for(&mut run, 60_000, |n| n.to_string());
    assert!(sent.len() <= 3 + 60, "{sent:?}");
    assert_eq!(sent[..5], [0, 0, 0, 1_000, 2_000]);
}

#[test]
fn x2_rejections_of_alternating_versions_are_bounded_over_time() {
    let mut run = Run::watching(&[x()]);
    let sent = rejected_for(&mut run, 60_000, |n| (n % 2).to_string());
    assert!(sent.len() <= 3 + 60, "{sent:?}");
}

#[test]
fn x2_a_rejection_that_waits_rejects_the_last_response() {
    let mut run = Run::watching(&[x()]);
    for nonce in ["a", "b", "c", "d"] {
        run.respond(ResourceKind::Endpoints, "1", nonce, vec![bad(&x())]);
    }
    assert_eq!(run.requests(), [""; 0]);
    assert_eq!(run.wait(), 1_000);
    assert_eq!(run.requests(), ["eds /d x !"]);
}

#[test]
fn x2_a_good_response_replaces_a_waiting_rejection() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]);
    run.respond(ResourceKind::Endpoints, "1", "b", vec![bad(&x())]);
    run.respond(ResourceKind::Endpoints, "2", "c", vec![good(&x(), 1)]);
    assert_eq!((run.requests(), run.waits()), (vec!["eds 2/c x".to_owned()], None));
    run.respond(ResourceKind::Endpoints, "1", "d", vec![bad(&x())]);
    assert_eq!(run.requests(), ["eds 2/d x !"], "what is rejected after it is rejected at once");
}

#[test]
fn x2_changed_names_are_requested_with_a_waiting_rejection() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]);
    run.respond(ResourceKind::Endpoints, "1", "b", vec![bad(&x())]);
    run.watch(&y());
    assert_eq!((run.requests(), run.waits()), (vec!["eds /b x y !".to_owned()], Some(15_000)));
    run.respond(ResourceKind::Endpoints, "1", "c", vec![bad(&x()), good(&y(), 1)]);
    assert_eq!(run.wait(), 2_000, "it counts as a repeated one");
}

#[test]
fn x2_a_delayed_nack_blocks_neither_reads_nor_other_kinds() {
    let mut run = Run::watching(&[cluster("c"), x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]);
    run.respond(ResourceKind::Endpoints, "1", "b", vec![bad(&x())]);
    assert_eq!((run.requests(), run.reads()), (Vec::new(), vec![run.stream(0)]));
    run.respond(ResourceKind::Cluster, "1", "p", vec![bad(&cluster("c"))]);
    assert_eq!(run.requests(), ["cds /p c !"]);
    run.respond(ResourceKind::Cluster, "2", "q", vec![good(&cluster("c"), 1)]);
    assert_eq!(run.requests(), ["cds 2/q c"]);
    assert_eq!(run.wait(), 1_000);
    assert_eq!(run.requests(), ["eds /b x !"]);
}

#[test]
fn x2_a_server_that_ends_streams_gets_no_more_nacks() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]);
    run.respond(ResourceKind::Endpoints, "1", "b", vec![bad(&x())]);
    run.wait();
    assert_eq!(run.requests(), ["eds /b x !"]);
    run.fail(0);
    run.wait();
    run.respond(ResourceKind::Endpoints, "1", "c", vec![bad(&x())]);
    assert_eq!((run.requests(), run.waits()), (Vec::new(), Some(1_000)), "a second of the two is over");
}

#[test]
fn x2_a_rejection_that_waits_ends_with_its_stream() {
    let mut run = Run::watching(&[x()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]);
    run.respond(ResourceKind::Endpoints, "1", "b", vec![bad(&x())]);
    run.fail(0);
    run.wait();
    assert_eq!(run.requests(), ["eds / x node"]);
    assert_eq!(run.waits(), None);
}

#[test]
fn x2_another_error_of_the_same_version_is_rejected_immediately() {
    let mut run = Run::watching(&[x(), y()]);
    run.respond(ResourceKind::Endpoints, "1", "a", vec![bad(&x())]);
    run.respond(ResourceKind::Endpoints, "1", "b", vec![bad(&y())]);
    assert_eq!(run.requests(), ["eds /b x y !"]);
}

/// Runs a server that sends another message whenever one may be read, for this many seconds; `send` makes message
/// number `n`. Returns the times of reads, in milliseconds since the start.
fn read_for(run: &mut Run, seconds: u64, mut send: impl FnMut(&mut Run, u32)) -> Vec<u128> {
    let start = run.now;
    let end = start.plus(std::time::Duration::from_secs(seconds));
    let mut read = Vec::new();
    // The stream was opened with permission to read the first message.
    let mut may_read = true;
    loop {
        if may_read {
            read.push(run.now.since(start).as_millis());
            send(run, u32::try_from(read.len()).expect("few are read"));
        } else if run.client.deadline().is_none_or(|at| at > end) {
            return read;
        } else {
            run.wait();
        }
        may_read = !run.reads().is_empty();
    }
}

/// Sends a message with new content, which must be used immediately.
fn send_new(run: &mut Run, n: u32) {
    run.respond(ResourceKind::Endpoints, &n.to_string(), &n.to_string(), vec![good(&x(), (n % 251) as u8)]);
    assert_eq!(run.notices(), [format!("x is {n}")]);
    assert_eq!(run.requests(), [format!("eds {n}/{n} x")]);
}

#[test]
fn x2_ten_messages_a_second_are_read_after_a_burst() {
    let mut run = Run::watching(&[x()]);
    let read = read_for(&mut run, 60, send_new);
    assert_eq!(read.len(), 50 + 600, "as many ACKs go, so a server that answers each is paced too");
    assert_eq!((read[0], read[49], read[50], read[51]), (0, 0, 100, 200), "a burst is read at once");
    // After a pause, messages are read immediately again.
    run.pass(6_000);
    let read = read_for(&mut run, 1, send_new);
    assert_eq!(read[..50], [0; 50]);
}

#[test]
fn x2_undecodable_messages_are_read_at_the_same_pace() {
    let mut run = Run::watching(&[x()]);
    let stream = run.stream(0);
    let read = read_for(&mut run, 10, |run, _| run.step(StreamEvent::Undecodable(stream)));
    assert_eq!(read.len(), 50 + 100);
}

#[test]
fn x2_messages_are_paced_even_if_the_server_ends_its_streams() {
    let mut run = Run::watching(&[x()]);
    let mut read = read_for(&mut run, 1, send_new).len();
    for _ in 0..10 {
        run.fail(0);
        run.wait();
        run.connect(0);
        read += read_for(&mut run, 1, send_new).len();
    }
    assert!(read <= 50 + 10 * 22, "{read} in 22 seconds");
}

#[test]
fn x2_no_timer_fires_while_messages_may_be_unread() {
    let mut run = Run::watching(&[x(), y()]);
    let mut notices = Vec::new();
    read_for(&mut run, 40, |run, n| {
        run.respond(
            ResourceKind::Endpoints,
            &n.to_string(),
            &n.to_string(),
            vec![good(&x(), (n % 251) as u8)],
        );
        notices.extend(run.notices());
    });
    assert!(
        notices.iter().all(|notice| notice.starts_with("x is ")),
        "y may be among what was not read: {notices:?}"
    );
    assert_eq!(run.state(&y()), "requested");
    // The last message has been read, and no further one comes.
    (0..6).for_each(|_| run.pass(1_000));
    assert_eq!(run.state(&y()), "does_not_exist");
}
