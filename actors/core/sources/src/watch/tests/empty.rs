//! Accepted watches that deliver nothing, and connections that are cut.

use super::*;

const TWICE: &str = "the watch ended twice in a row within seconds, without a line";

impl Run {
    /// Opens the watch, if none is open, and ends it after `ms` without a line.
    fn empty(&mut self, millis: u64, failure: Option<WatchFailure>) {
        self.step(In::Opened(self.call()));
        self.pass(millis);
        self.ended(failure);
    }

    /// Completes the list with this version.
    fn listed(&mut self, n: u64) {
        self.lines(vec![list_end(n)]);
    }
}

#[test]
fn a_watch_that_ends_twice_without_a_line_is_followed_by_a_list() {
    let ends = [
        (0, None),
        (900, None),
        (2_500, None),
        (9_000, None),
        (0, Some(other())),
        (2_500, Some(other())),
        (0, Some(WatchFailure::TooManyRequests(None))),
    ];
    for (millis, failure) in ends {
        let mut run = Run::watching();
        run.pass(1_000);
        run.ended(None);
        run.empty(millis, failure.clone());
        assert_eq!(
            (run.requests(), run.freshness_changes()),
            (vec![], vec![WatchFreshness::Stale]),
            "one may happen"
        );
        assert!(run.view().last_error.is_some());
        run.wait();
        assert_eq!(run.requests(), watch_from(10));
        run.step(In::Opened(run.call()));
        assert_eq!(run.freshness_changes(), [], "that it is accepted proves nothing");
        assert!(run.watcher.last_error.is_some());
        run.pass(millis);
        run.ended(failure);
        assert!(run.samples().contains(&relisted(RelistReason::Broken)));
        assert!(run.watcher.last_error.is_some());
        run.wait();
        assert_eq!(run.requests(), [WatchRequest::StreamingList]);
    }
}

#[test]
fn an_error_line_delivers_nothing() {
    let mut run = Run::watching();
    run.pass(1_000);
    run.ended(None);
    for _ in 0..2 {
        run.lines(vec![Line::Error(other())]);
        assert_eq!(run.requests(), []);
        run.wait();
    }
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
}

#[test]
fn empty_watches_cause_ever_fewer_lists_and_one_log_line() {
    let mut run = Run::watching();
    run.pass(1_000);
    run.ended(None);
    run.empty(0, None);
    let (mut lists, mut requests, mut reports) = (Vec::new(), 0, Vec::new());
    while run.now < Now::from_millis(600_000) {
        assert_eq!(run.watcher.fresh, Some(false), "no change arrives");
        run.wait();
        reports.extend(run.reports().into_iter().cloned());
        requests += run.requests().len();
        if run.requests() == [WatchRequest::StreamingList] {
            lists.push(run.now);
            run.listed(20);
            assert!(run.view().synced && run.watcher.last_error.is_some());
            run.ended(None);
        } else {
            run.empty(0, None);
        }
    }
    let longest = lists.windows(2).map(|pair| pair[1].since(pair[0]).as_secs()).max();
    assert!(longest <= Some(31), "{longest:?}");
    assert!((18..30).contains(&lists.len()) && requests <= 60, "{} lists, {requests} requests", lists.len());
    assert_eq!(reports, [GivenUp::Watch(TWICE.into())], "once, with the first list");
    assert_eq!(run.watcher.stale_since, Some(Now::from_millis(1_000)));

    // The watch delivers again.
    run.wait();
    if run.requests() == [WatchRequest::StreamingList] {
        run.listed(30);
    }
    run.lines(vec![bookmark(31)]);
    assert_eq!(run.watcher.fresh, Some(true));
    let view = run.view();
    assert_eq!((view.stale_since, view.last_error), (None, None));
    // A later failure is reported again.
    run.pass(1_000);
    run.ended(None);
    run.empty(0, None);
    run.wait();
    run.empty(0, None);
    run.wait();
    assert_eq!(run.reports(), [&GivenUp::Watch(TWICE.into())]);
}

#[test]
fn a_streaming_list_whose_watch_ends_with_it_counts_too() {
    let mut run = Run::new();
    run.step(In::Start);
    run.lines(vec![object(7), list_end(10)]);
    run.ended(None);
    assert_eq!((run.requests(), run.freshness_changes()), (vec![], vec![WatchFreshness::Stale]));
    run.wait();
    run.empty(0, None);
    run.wait();
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
    run.lines(vec![object(7), list_end(11)]);
    assert_eq!(run.observations(), ["began Relist", "object 7", "done 11"]);
    assert_eq!(run.freshness_changes(), [], "what is known is right now, but not followed");
}

#[test]
fn after_empty_watches_one_that_lasts_counts_as_current() {
    let mut run = Run::watching();
    run.pass(1_000);
    run.ended(None);
    run.empty(0, None);
    run.wait();
    run.step(In::Opened(run.call()));
    assert_eq!(run.observations(), ["reconnected"]);
    assert_eq!((run.freshness_changes(), run.waits()), (vec![], 10_000));
    run.wait();
    assert_eq!((run.freshness_changes(), run.requests()), (vec![WatchFreshness::Current], vec![]));
    assert_eq!(run.view().last_error, None);
    run.pass(1_000);
    run.ended(None);
    assert_eq!((run.requests(), run.samples()), (watch_from(10), vec![]), "it was no short one");
}

#[test]
fn the_measured_silence_survives_reopening() {
    for failure in [None, Some(other())] {
        let mut run = Run::watching();
        while run.waits() > 60_000 {
            run.pass(60_000);
            run.ended(failure.clone());
            if run.requests().is_empty() {
                run.wait();
            }
            assert_eq!(run.requests(), watch_from(10));
            run.step(In::Opened(run.call()));
        }
        run.wait();
        assert!(run.samples().contains(&relisted(RelistReason::Broken)), "{failure:?}");
        let waited = run.now.since(Now::ZERO).as_secs();
        assert!((330..345).contains(&waited), "{failure:?}: {waited} s");
        assert_eq!(run.watcher.last_error.as_deref(), Some("the watch was silent for 330 s"));
        run.wait();
        assert_eq!(run.reports(), [&GivenUp::Watch("the watch was silent for 330 s".into())]);
    }
}

#[test]
fn watches_cut_every_minute_cause_no_list_and_stay_fresh() {
    // A normal end, or a reset.
    for failure in [None, Some(other())] {
        let mut run = Run::watching();
        let (mut at, mut samples) = (10, Vec::new());
        for _ in 0..60 {
            run.pass(20_000);
            at += 1;
            run.lines(vec![object(at)]);
            run.pass(40_000);
            run.ended(failure.clone());
            samples.extend(run.samples());
            if run.requests().is_empty() {
                assert!(run.waits() <= 1_000, "{failure:?}: {}", run.waits());
                run.wait();
            }
            assert_eq!(run.requests(), watch_from(at));
            run.step(In::Opened(run.call()));
            assert_eq!((run.observations(), run.watcher.fresh), (vec!["reconnected".to_owned()], Some(true)));
            assert_eq!(run.watcher.last_error, None);
        }
        assert!(!samples.contains(&relisted(RelistReason::Broken)), "{failure:?}");
    }
}

#[test]
fn watches_that_are_refused_for_100_s_are_followed_by_lists() {
    let refused = || Some(WatchFailure::Other("HTTP 502".into()));
    let mut run = Run::new();
    run.step(In::Start);
    run.ended(Some(WatchFailure::StreamingRefused("no".into())));
    run.page(vec![], 10, None);
    let (mut lists, mut requests) = (Vec::new(), 0);
    while run.now < Now::from_millis(600_000) {
        if run
            .requests()
            .iter()
            .any(|request| matches!(request, WatchRequest::List { .. } | WatchRequest::StreamingList))
        {
            lists.push(run.now);
            match run.requests()[0] {
                WatchRequest::StreamingList => run.ended(Some(WatchFailure::StreamingRefused("no".into()))),
                WatchRequest::List { .. } | WatchRequest::Watch { .. } => run.page(vec![], 11, None),
            }
        } else {
            requests += 1;
            run.ended(refused());
            assert_eq!(run.watcher.fresh, Some(false));
            run.wait();
        }
    }
    let first = lists[0].since(Now::ZERO).as_secs();
    assert!((100..=161).contains(&first), "{first}");
    assert!(lists.len() >= 10 && requests <= 40, "{lists:?}, {requests}");
}

#[test]
fn a_page_without_items_that_leads_to_itself_ends_the_list() {
    let mut run = Run::new();
    run.step(In::Start);
    run.ended(Some(WatchFailure::StreamingRefused("no".into())));
    run.page(vec![], 10, Some("a"));
    run.page(vec![], 10, Some("b"));
    assert_eq!(run.requests().len(), 1, "objects may be filtered out by page");
    run.page(vec![], 10, Some("b"));
    assert_eq!((run.requests(), run.observations()), (vec![], vec!["aborted".to_owned()]));
    assert_eq!(
        run.view().last_error.as_deref(),
        Some("an empty page of the list has its own continue token")
    );
}
