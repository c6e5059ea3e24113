//! Tests of the queue on the test's clock, with the test as the worker.

mod properties;

use super::*;

/// An error as defined in S4.
const ERROR: Result<Done, Failed> = Err(Failed { asked: Done::Success });

/// The limiter of admin state (N3).
const N3: Params = Params { max_backoff: Duration::from_secs(15), ..Params::S4 };

fn at(millis: u64) -> Now {
    Now::from_millis(millis)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::new(Params::S4)
}

/// Takes all ready items in order, and does not end their work.
fn take_all<Item: Ord + Clone>(queue: &mut WorkQueue<Item>, now: Now) -> Vec<Item> {
    std::iter::from_fn(|| queue.take(now)).collect()
}

/// Returns the time in milliseconds from each end of the work, with this result, to its next start; the worker is
/// always available.
fn gaps(queue: &mut WorkQueue<&'static str>, result: Result<Done, Failed>, count: usize) -> Vec<u64> {
    let mut now = at(1_000);
    let mut gaps = Vec::new();
    queue.add(now, "demo");
    for _ in 0..count {
        assert_eq!(queue.take(now), Some("demo"));
        queue.finish(now, &"demo", result);
        let due = queue.deadline().expect("it runs again");
        assert_eq!(queue.take(due.minus(Duration::from_micros(1))), None, "too early");
        gaps.push((due.as_micros() - now.as_micros()) / 1_000);
        now = due;
    }
    gaps
}

#[test]
fn s4_the_gap_between_retries_starts_at_5_ms_and_doubles() {
    let shown = gaps(&mut queue(), ERROR, 10);
    assert_eq!(shown, [5, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560]);
}

/// In the article's log, gaps of less than a second are hidden by a worker that pauses for a second after an error;
/// longer gaps come from the limiter. These are the milliseconds of each error from the ninth on, and of the
/// `Starting` line after it.
#[test]
fn s4_longer_gaps_between_retries_match_the_articles_log() {
    let log = [(26_318, 27_598), (27_598, 30_158), (30_158, 35_279), (35_280, 45_520), (45_520, 66_001)];
    let ours = gaps(&mut queue(), ERROR, 13);
    for (gap, (error, starting)) in ours[8..].iter().zip(log) {
        assert!(gap.abs_diff(starting - error) <= 2, "{gap} ms from {error} to {starting}");
    }
}

#[test]
fn s4_a_requeue_result_is_limited_like_an_error() {
    assert_eq!(gaps(&mut queue(), Ok(Done::Requeue), 12), gaps(&mut queue(), ERROR, 12));
}

#[test]
fn s4_an_items_own_wait_grows_to_1000_s() {
    assert_eq!(gaps(&mut queue(), ERROR, 20)[17..], [655_360, 1_000_000, 1_000_000]);
}

#[test]
fn n3_an_items_own_wait_grows_to_the_configured_maximum() {
    assert_eq!(gaps(&mut WorkQueue::new(N3), ERROR, 14)[11..], [10_240, 15_000, 15_000]);
}

#[test]
fn s4_retries_of_all_items_are_limited_to_100_and_ten_a_second() {
    let mut queue = WorkQueue::new(Params::S4);
    let start = at(1_000);
    (0..150).for_each(|item| queue.add(start, item));
    for item in take_all(&mut queue, start) {
        queue.finish(start, &item, ERROR);
    }
    let until = |queue: &mut WorkQueue<i32>, millis: u64| take_all(queue, at(1_000 + millis));
    assert_eq!(until(&mut queue, 5), (0..100).collect::<Vec<_>>());
    assert_eq!(until(&mut queue, 99), [0; 0]);
    assert_eq!(until(&mut queue, 100), [100]);
    assert_eq!(until(&mut queue, 1_100), (101..111).collect::<Vec<_>>());
    assert_eq!(until(&mut queue, 5_000), (111..150).collect::<Vec<_>>());
}

#[test]
fn s4_new_items_are_not_limited() {
    let mut queue = WorkQueue::new(Params::S4);
    (0..1_000).for_each(|item| queue.add(at(7), item));
    assert_eq!(take_all(&mut queue, at(7)), (0..1_000).collect::<Vec<_>>());
}

#[test]
fn s4_an_addition_skips_the_wait_after_errors() {
    let mut queue = queue();
    gaps(&mut queue, ERROR, 14);
    let waits_until = queue.deadline().expect("it waits");
    let soon = waits_until.minus(millis(30_000));
    queue.add(soon, "demo");
    assert_eq!(queue.take(soon), Some("demo"));
    assert_eq!(queue.requeues(&"demo"), 14, "its failures still count");
}

#[test]
fn s4_requeue_after_is_not_limited() {
    let mut queue = WorkQueue::new(Params { per_second: 0, burst: 1, ..Params::S4 });
    assert_eq!(gaps(&mut queue, Ok(Done::RequeueAfter(millis(30))), 500), [30; 500]);
    assert_eq!(queue.take(queue.deadline().expect("it waits")), Some("demo"));
    queue.finish(at(90_000), &"demo", ERROR);
    assert_eq!(queue.deadline(), Some(at(90_005)), "it has used no token");
}

#[test]
fn s4_requeue_after_resets_the_failures() {
    let mut queue = queue();
    let result = Ok(Done::RequeueAfter(millis(30)));
    gaps(&mut queue, ERROR, 5);
    let now = queue.deadline().expect("it waits");
    assert_eq!(queue.take(now), Some("demo"));
    assert_eq!(queue.finish(now, &"demo", result), Some(WorkResult::RequeueAfter));
    assert_eq!((queue.requeues(&"demo"), queue.deadline()), (0, Some(now.plus(millis(30)))));
}

#[test]
fn s4_requeue_after_is_ignored_with_an_error() {
    for asked in [Done::RequeueAfter(millis(3)), Done::RequeueAfter(millis(90_000)), Done::Requeue] {
        let lost = gaps(&mut queue(), Err(Failed { asked }), 4);
        assert_eq!(lost, [5, 10, 20, 40], "{asked:?}");
    }
}

#[test]
fn s4_requeue_after_no_time_is_success() {
    let mut queue = queue();
    queue.add(at(1), "demo");
    queue.take(at(1));
    assert_eq!(
        queue.finish(at(1), &"demo", Ok(Done::RequeueAfter(Duration::ZERO))),
        Some(WorkResult::Success)
    );
    assert!(queue.is_idle());
}

#[test]
fn s4_success_resets_the_failures() {
    let mut queue = queue();
    gaps(&mut queue, ERROR, 6);
    let now = queue.deadline().expect("it waits");
    assert_eq!(queue.take(now), Some("demo"));
    queue.finish(now, &"demo", Ok(Done::Success));
    assert!(queue.is_idle(), "{queue:?}");
    queue.add(now, "demo");
    queue.take(now);
    queue.finish(now, &"demo", ERROR);
    assert_eq!(queue.deadline(), Some(now.plus(millis(5))));
}

#[test]
fn s4_add_rate_limited_adds_after_the_limiters_delay() {
    let mut queue = WorkQueue::new(Params { burst: 2, ..Params::S4 });
    for item in ["one", "two", "three"] {
        queue.add_rate_limited(at(50), item);
    }
    assert_eq!(take_all(&mut queue, at(54)), [""; 0]);
    assert_eq!(take_all(&mut queue, at(55)), ["one", "two"]);
    assert_eq!(take_all(&mut queue, at(149)), [""; 0]);
    assert_eq!(take_all(&mut queue, at(150)), ["three"], "the bucket's wait is the longer one");
}

#[test]
fn s4_requeues_are_counted_per_item_until_a_reset() {
    let mut queue = queue();
    (0..3).for_each(|_| queue.add_rate_limited(at(0), "one"));
    queue.add_rate_limited(at(0), "two");
    queue.add(at(0), "three");
    assert_eq!(["one", "two", "three"].map(|item| queue.requeues(&item)), [3, 1, 0]);
    queue.forget(&"one");
    assert_eq!(["one", "two", "three"].map(|item| queue.requeues(&item)), [0, 1, 0]);
    assert_eq!(
        take_all(&mut queue, at(5)),
        ["three", "one", "two"],
        "after a reset the wait is the initial one"
    );
}

#[test]
fn s4_results_are_counted_by_kind() {
    let mut queue = queue();
    let table = [
        (Ok(Done::Success), WorkResult::Success),
        (ERROR, WorkResult::Error),
        (Err(Failed { asked: Done::RequeueAfter(millis(9)) }), WorkResult::Error),
        (Ok(Done::Requeue), WorkResult::Requeue),
        (Ok(Done::Requeue), WorkResult::Requeue),
        (Ok(Done::Requeue), WorkResult::Requeue),
        (Ok(Done::RequeueAfter(millis(1))), WorkResult::RequeueAfter),
    ];
    for (result, kind) in table {
        queue.add(at(0), "demo");
        assert_eq!(queue.take(at(0)), Some("demo"));
        assert_eq!(queue.finish(at(0), &"demo", result), Some(kind));
    }
    assert_eq!(queue.results(), Results { success: 1, error: 2, requeue: 3, requeue_after: 1 });
    let labels = WorkResult::ALL.map(WorkResult::as_str);
    assert_eq!(labels, ["success", "error", "requeue", "requeue_after"]);
}

#[test]
fn an_item_that_is_added_often_runs_once() {
    let mut queue = queue();
    for item in ["one", "two", "one", "one", "two"] {
        queue.add(at(0), item);
    }
    assert_eq!(take_all(&mut queue, at(0)), ["one", "two"]);
}

#[test]
fn an_item_added_during_its_work_runs_again() {
    let mut queue = queue();
    queue.add(at(0), "one");
    assert_eq!(queue.take(at(0)), Some("one"));
    for item in ["one", "two", "one"] {
        queue.add(at(1), item);
    }
    assert_eq!(take_all(&mut queue, at(1)), ["two"], "never twice at the same time");
    queue.finish(at(2), &"one", Ok(Done::Success));
    assert_eq!(queue.take(at(2)), Some("one"));
    queue.finish(at(3), &"one", Ok(Done::Success));
    assert_eq!(queue.take(at(3)), None);
}

#[test]
fn an_item_that_becomes_due_during_its_work_runs_again() {
    let mut queue = queue();
    queue.add_after(at(0), "one", millis(5));
    queue.add(at(0), "one");
    assert_eq!(queue.take(at(0)), Some("one"));
    assert!(!queue.is_ready(at(5)), "it is worked on");
    assert_eq!((queue.take(at(5)), queue.deadline()), (None, None));
    queue.done(at(6), &"one");
    assert!(queue.is_ready(at(6)));
    assert_eq!(queue.take(at(6)), Some("one"));
}

#[test]
fn an_item_becomes_ready_at_the_earliest_time_it_was_added_for() {
    let mut queue = queue();
    for wait in [500, 300, 400, 900] {
        queue.add_after(at(1_000), "one", millis(wait));
    }
    assert_eq!(queue.deadline(), Some(at(1_300)));
    assert!(!queue.is_ready(at(1_299)) && queue.is_ready(at(1_300)));
    assert_eq!(take_all(&mut queue, at(1_300)), ["one"]);
    queue.done(at(1_300), &"one");
    assert!(queue.is_idle(), "later times are dropped: {queue:?}");
}

#[test]
fn an_item_with_no_delay_is_ready_immediately() {
    let mut queue = queue();
    queue.add_after(at(1_000), "one", Duration::ZERO);
    assert_eq!((queue.take(at(1_000)), queue.deadline()), (Some("one"), None));
}

#[test]
fn items_are_taken_in_the_order_in_which_they_became_ready() {
    let mut queue = queue();
    queue.add_after(at(0), "due second", millis(20));
    queue.add_after(at(0), "due first", millis(10));
    queue.add_after(at(5), "due with the second", millis(15));
    queue.add(at(30), "added last");
    let order = ["due first", "due second", "due with the second", "added last"];
    assert_eq!(take_all(&mut queue, at(30)), order);
}

#[test]
fn next_start_is_known_for_waiting_and_ready_items() {
    let mut queue = queue();
    assert_eq!((queue.deadline(), queue.is_ready(at(0))), (None, false));
    queue.add(at(0), "one");
    assert_eq!((queue.deadline(), queue.is_ready(at(0))), (None, true));
    queue.add_after(at(0), "two", millis(9));
    assert_eq!(queue.take(at(0)), Some("one"));
    assert_eq!((queue.deadline(), queue.is_ready(at(8))), (Some(at(9)), false));
    queue.tick(at(9));
    assert_eq!((queue.deadline(), queue.is_ready(at(9))), (None, true));
}

#[test]
fn s4_next_start_includes_the_common_limit() {
    let mut queue = WorkQueue::new(Params { burst: 1, ..Params::S4 });
    for item in ["one", "two"] {
        queue.add(at(0), item);
        assert_eq!((queue.due(&item), queue.take(at(0))), (None, Some(item)));
        queue.finish(at(0), &item, ERROR);
    }
    assert_eq!((queue.due(&"one"), queue.due(&"two")), (Some(at(5)), Some(at(100))));
    assert_eq!((queue.take(at(100)), queue.due(&"one"), queue.due(&"two")), (Some("one"), None, None));
}

#[test]
fn n3_a_retired_item_leaves_queue_wait_and_limiter() {
    let mut queue = queue();
    queue.add(at(0), "in line");
    queue.add(at(0), "behind");
    queue.add_after(at(0), "waiting", millis(9));
    queue.add_rate_limited(at(0), "failed");
    for item in ["in line", "waiting", "failed", "never seen"] {
        queue.retire(&item);
    }
    assert_eq!((take_all(&mut queue, at(9_000)), queue.deadline()), (vec!["behind"], None));
    queue.finish(at(9_000), &"behind", Ok(Done::Success));
    assert!(queue.is_idle(), "{queue:?}");
}

#[test]
fn n3_the_work_of_a_retired_item_is_only_counted() {
    for result in [ERROR, Ok(Done::Requeue), Ok(Done::RequeueAfter(millis(9))), Ok(Done::Success)] {
        let mut queue = queue();
        queue.add(at(0), "one");
        queue.take(at(0));
        queue.add(at(0), "one");
        queue.retire(&"one");
        assert!(queue.finish(at(1), &"one", result).is_some());
        assert!(queue.is_idle(), "{result:?}: {queue:?}");
        assert_ne!(queue.results(), Results::default());
    }
}

#[test]
fn n3_an_item_added_again_starts_after_its_old_work() {
    let mut queue = queue();
    queue.add(at(0), "one");
    queue.take(at(0));
    queue.retire(&"one");
    queue.add(at(1), "one");
    assert_eq!(queue.take(at(1)), None, "never twice at the same time");
    queue.finish(at(2), &"one", ERROR);
    assert_eq!((queue.requeues(&"one"), queue.deadline()), (0, None));
    assert_eq!(queue.take(at(2)), Some("one"));
    queue.finish(at(3), &"one", ERROR);
    assert_eq!((queue.requeues(&"one"), queue.deadline()), (1, Some(at(8))));
}

#[test]
fn a_result_without_running_work_is_ignored() {
    let mut queue = queue();
    queue.add(at(0), "in line");
    for item in ["in line", "never seen"] {
        assert_eq!(queue.finish(at(0), &item, ERROR), None);
        queue.done(at(0), &item);
    }
    assert_eq!((queue.results(), queue.deadline()), (Results::default(), None));
    assert_eq!(take_all(&mut queue, at(0)), ["in line"]);
}

#[test]
fn work_that_ends_without_a_result_keeps_the_failures() {
    let mut queue = queue();
    gaps(&mut queue, ERROR, 3);
    let now = queue.deadline().expect("it waits");
    assert_eq!(queue.take(now), Some("demo"));
    queue.done(now, &"demo");
    assert_eq!((queue.requeues(&"demo"), queue.take(now), queue.deadline()), (3, None, None));
}
