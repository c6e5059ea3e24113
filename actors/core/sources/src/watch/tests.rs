//! A watcher on the test's clock: lists, watches, failures and deadlines.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::*;
use model::ids::{NodeName, NodeUid};

mod empty;
use model::object::{NodeMarks, NodeObject};

fn version(n: u64) -> ResourceVersion {
    ResourceVersion(n.to_string().into())
}

fn object(n: u64) -> Line {
    Line::Object(Object::Node(Arc::new(NodeObject {
        name: NodeName::new("n1"),
        uid: NodeUid::new("u1"),
        resource_version: version(n),
        internal_ips: Vec::new(),
        marks: NodeMarks::default(),
        ready: true,
        taints: Vec::new(),
        instance: None,
        created: None,
        preempt: None,
    })))
}

fn bookmark(n: u64) -> Line {
    Line::Bookmark { resource_version: version(n), list_end: false }
}

fn list_end(n: u64) -> Line {
    Line::Bookmark { resource_version: version(n), list_end: true }
}

fn other() -> WatchFailure {
    WatchFailure::Other("connection reset".into())
}

/// A watcher on the test's clock. After each input `out` holds the new outputs.
struct Run {
    watcher: Watcher,
    now: Now,
    out: Vec<Out>,
}

impl Run {
    fn new() -> Run {
        Run { watcher: Watcher::new(Kind::Nodes), now: Now::ZERO, out: Vec::new() }
    }

    /// Returns a watcher whose streaming list ended at version 10, and whose watch delivers.
    fn watching() -> Run {
        let mut run = Run::new();
        run.step(In::Start);
        run.lines(vec![object(7), list_end(10), bookmark(10)]);
        run
    }

    fn step(&mut self, input: In) {
        self.out.clear();
        self.watcher.step(self.now, input, &mut self.out);
    }

    fn call(&self) -> CallId {
        self.watcher.current().expect("a request is open")
    }

    fn lines(&mut self, lines: Vec<Line>) {
        self.lines_of(self.call(), lines);
    }

    /// Delivers several lines of a request in one turn.
    fn lines_of(&mut self, call: CallId, lines: Vec<Line>) {
        self.out.clear();
        for line in lines {
            self.watcher.step(self.now, In::Line { call, read: self.now, line }, &mut self.out);
        }
    }

    fn page(&mut self, items: Vec<Line>, n: u64, next: Option<&str>) {
        let call = self.call();
        self.step(In::Page { call, items, resource_version: version(n), next: next.map(Into::into) });
    }

    fn ended(&mut self, failure: Option<WatchFailure>) {
        self.step(In::Ended { call: self.call(), failure, jitter: 1000 });
    }

    fn pass(&mut self, millis: u64) {
        self.now = self.now.plus(Duration::from_millis(millis));
        self.out.clear();
        self.watcher.tick(self.now, &mut self.out);
    }

    /// Returns the time to the next deadline, in milliseconds.
    fn waits(&self) -> u128 {
        self.watcher.deadline().expect("something is waited for").since(self.now).as_millis()
    }

    /// Advances the clock to the next deadline.
    fn wait(&mut self) {
        self.now = self.watcher.deadline().expect("something is waited for");
        self.pass(0);
    }

    fn requests(&self) -> Vec<WatchRequest> {
        let asked = |output: &Out| match output {
            Out::Open { request, .. } => Some(request.clone()),
            Out::Seen(..) | Out::View(_) | Out::Metric(_) | Out::Freshness(..) => None,
        };
        self.out.iter().filter_map(asked).collect()
    }

    fn observations(&self) -> Vec<String> {
        let event = |output: &Out| match output {
            Out::Seen(_, _, event) => Some(match event {
                WatchUpdate::ListBegan(provenance) => format!("began {provenance:?}"),
                WatchUpdate::Object(object) => format!("object {}", object.resource_version().0),
                WatchUpdate::Deleted { resource_version, .. } => format!("deleted {}", resource_version.0),
                WatchUpdate::Undecodable { key, .. } => format!("undecodable {}", key.is_some()),
                WatchUpdate::ListDone { resource_version, serves: ListCoverage { term, read } } => {
                    let term = term.map(|term| format!(" for {}", term.0)).unwrap_or_default();
                    let read = read.map(|read| format!(" as read {}", read.0)).unwrap_or_default();
                    format!("done {}{term}{read}", resource_version.0)
                }
                WatchUpdate::AnyList(term) => format!("any list for {}", term.0),
                WatchUpdate::ListAborted => "aborted".to_owned(),
                WatchUpdate::Bookmark(version) => format!("bookmark {}", version.0),
                WatchUpdate::Reconnected => "reconnected".to_owned(),
            }),
            Out::Open { .. } | Out::View(_) | Out::Metric(_) | Out::Freshness(..) => None,
        };
        self.out.iter().filter_map(event).collect()
    }

    /// Returns the contacts in the outputs.
    fn freshness_changes(&self) -> Vec<WatchFreshness> {
        let freshness = |output: &Out| match output {
            Out::Freshness(Kind::Nodes, freshness) => Some(freshness.clone()),
            Out::Open { .. } | Out::Seen(..) | Out::View(_) | Out::Metric(_) | Out::Freshness(..) => None,
        };
        self.out.iter().filter_map(freshness).collect()
    }

    fn samples(&self) -> Vec<Metric> {
        let sample = |output: &Out| match output {
            Out::Metric(sample) => Some(sample.clone()),
            Out::Open { .. } | Out::Seen(..) | Out::View(_) | Out::Freshness(..) => None,
        };
        self.out.iter().filter_map(sample).collect()
    }

    /// Returns the requests that were reported as given up, with the reasons.
    fn reports(&self) -> Vec<&GivenUp> {
        let mut reports = Vec::new();
        for output in &self.out {
            match output {
                Out::Open { given_up, .. } => reports.extend(given_up),
                Out::Seen(..) | Out::View(_) | Out::Metric(_) | Out::Freshness(..) => {}
            }
        }
        reports
    }

    fn view(&self) -> SourceView {
        let view = |output: &Out| match output {
            Out::View(view) => Some(view.clone()),
            Out::Open { .. } | Out::Seen(..) | Out::Metric(_) | Out::Freshness(..) => None,
        };
        self.out.iter().rev().find_map(view).expect("a view was said")
    }
}

fn watch_from(n: u64) -> Vec<WatchRequest> {
    vec![WatchRequest::Watch { from: version(n) }]
}

fn first_page() -> Vec<WatchRequest> {
    vec![WatchRequest::List { page: None }]
}

fn relisted(reason: RelistReason) -> Metric {
    Metric::Relist { kind: Kind::Nodes, reason }
}

#[test]
fn a_streaming_list_becomes_the_watch_at_its_end() {
    let mut run = Run::new();
    run.step(In::Start);
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
    assert_eq!(run.view().phase, "listing");
    run.step(In::Opened(run.call()));
    run.lines(vec![object(7), object(3)]);
    assert_eq!(run.observations(), ["began FirstList", "object 7", "object 3"]);
    run.lines(vec![bookmark(8), list_end(10), object(11), bookmark(12)]);
    assert_eq!(
        run.observations(),
        ["done 10", "object 11", "bookmark 12"],
        "a bookmark amid the list says nothing"
    );
    assert_eq!(run.requests(), []);
    assert_eq!(run.samples(), [Metric::SourceFresh { kind: Kind::Nodes, fresh: true }]);
    let view = run.view();
    assert_eq!((view.phase, view.synced), ("watching", true));
    run.pass(1_000);
    run.ended(None);
    assert_eq!(run.requests(), watch_from(12));
}

#[test]
fn a_list_without_objects_is_a_list() {
    let mut run = Run::new();
    run.step(In::Start);
    run.lines(vec![list_end(10)]);
    assert_eq!(run.observations(), ["began FirstList", "done 10"]);
}

#[test]
fn a_refused_streaming_list_falls_back_to_pages() {
    let mut run = Run::new();
    run.step(In::Start);
    run.ended(Some(WatchFailure::StreamingRefused("sendInitialEvents is forbidden".into())));
    assert_eq!(run.requests(), first_page());
    run.page(vec![object(7)], 10, Some("token"));
    assert_eq!(run.observations(), ["began FirstList", "object 7"]);
    assert_eq!(run.requests(), [WatchRequest::List { page: Some("token".into()) }]);
    run.page(vec![object(8)], 10, None);
    assert_eq!(run.observations(), ["object 8", "done 10"]);
    assert_eq!(run.requests(), watch_from(10));
    run.step(In::Opened(run.call()));
    assert_eq!(run.observations(), [] as [&str; 0], "the first watch after a list is no new connection");
    assert_eq!(run.view().phase, "watching");
}

#[test]
fn a_refusing_error_line_voids_the_streamed_objects() {
    let mut run = Run::new();
    run.step(In::Start);
    let call = run.call();
    run.lines(vec![object(7), Line::Error(WatchFailure::StreamingRefused("etcd".into())), object(8)]);
    assert_eq!(run.observations(), ["began FirstList", "object 7", "aborted"]);
    assert_eq!(run.requests(), first_page());
    run.step(In::Ended { call, failure: None, jitter: 0 });
    assert_eq!(run.samples(), [], "the end of a stream that an error line ended is expected");
    run.step(In::Ended { call, failure: None, jitter: 0 });
    assert_eq!(run.samples(), [Metric::UnmatchedAnswer]);
}

#[test]
fn a_streaming_list_without_an_end_falls_back_to_pages() {
    let mut run = Run::new();
    run.step(In::Start);
    run.lines(vec![object(7)]);
    run.ended(None);
    assert_eq!(run.observations(), ["aborted"]);
    assert_eq!(
        run.reports(),
        [&GivenUp::StreamingList("the streaming list ended before all was sent".into())]
    );
    assert_eq!(run.requests(), first_page());

    let mut run = Run::new();
    run.step(In::Start);
    run.step(In::Opened(run.call()));
    run.pass(59_000);
    run.lines(vec![object(7)]);
    assert_eq!(run.waits(), 1_000, "lines do not prolong it");
    run.wait();
    assert_eq!(run.observations(), ["aborted"]);
    assert_eq!(run.reports(), [&GivenUp::StreamingList("the streaming list did not end within 60 s".into())]);
    assert_eq!(run.requests(), first_page());
}

#[test]
fn a_refusal_is_remembered_for_ten_minutes() {
    let mut run = Run::new();
    run.step(In::Start);
    run.ended(Some(WatchFailure::StreamingRefused("no".into())));
    run.page(vec![], 10, None);
    run.step(In::Opened(run.call()));
    run.pass(300_000);
    run.lines(vec![bookmark(11)]);
    run.ended(Some(WatchFailure::Expired));
    assert_eq!(run.requests(), first_page());
    run.page(vec![], 20, None);
    run.step(In::Opened(run.call()));
    run.pass(300_000);
    run.lines(vec![Line::Error(WatchFailure::Expired)]);
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
}

#[test]
fn a_stream_that_ends_in_good_order_is_followed_again() {
    let mut run = Run::watching();
    run.pass(99_000);
    run.ended(None);
    assert_eq!(run.requests(), watch_from(10));
    assert_eq!(run.samples(), []);
    run.step(In::Opened(run.call()));
    run.lines(vec![object(11)]);
    assert_eq!(run.observations(), ["object 11"]);
    run.ended(None);
    assert_eq!(
        (run.requests(), run.samples(), run.waits()),
        (vec![], vec![], 1_000),
        "but no more than once a second"
    );
    run.wait();
    run.lines(vec![object(12)]);
    assert_eq!(run.observations(), ["reconnected", "object 12"], "also without a message that it was opened");
}

#[test]
fn jitter_spreads_a_wait_over_its_second_half() {
    for (jitter, wait) in [(0, 500), (500, 750), (1000, 1_000), (60_000, 1_000)] {
        let mut run = Run::watching();
        run.step(In::Ended { call: run.call(), failure: Some(other()), jitter });
        assert_eq!(run.waits(), wait);
    }
}

#[test]
fn d6_an_expired_version_relists_immediately_then_slower() {
    let mut run = Run::watching();
    run.pass(60_000);
    run.lines(vec![Line::Error(WatchFailure::Expired)]);
    assert!(run.samples().contains(&relisted(RelistReason::Expired)));
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
    let mut waits = Vec::new();
    for n in 20..23 {
        run.lines(vec![object(n), list_end(n)]);
        assert_eq!(run.observations()[0], "began Relist");
        run.lines(vec![Line::Error(WatchFailure::Expired)]);
        waits.push(run.waits());
        run.wait();
    }
    assert_eq!(waits, [1_000, 2_000, 4_000], "half of it each, without jitter: {waits:?}");
}

#[test]
fn an_expired_page_token_starts_the_list_again() {
    let mut run = Run::new();
    run.step(In::Start);
    run.ended(Some(WatchFailure::StreamingRefused("no".into())));
    run.page(vec![object(7)], 10, Some("token"));
    run.ended(Some(WatchFailure::Expired));
    assert_eq!(run.observations(), ["aborted"]);
    assert_eq!(run.requests(), first_page());
    run.page(vec![object(7)], 12, None);
    assert_eq!(run.observations(), ["began FirstList", "object 7", "done 12"], "none was complete before");
}

#[test]
fn retry_after_is_bounded_and_a_denial_is_a_failure() {
    let throttled = |seconds| WatchFailure::TooManyRequests(Some(Duration::from_secs(seconds)));
    let denied = WatchFailure::Denied("nodes is forbidden".into());
    for (failure, wait) in
        [(throttled(0), 1_000), (throttled(7), 7_000), (throttled(900), 60_000), (denied.clone(), 1_000)]
    {
        let mut run = Run::watching();
        run.ended(Some(failure));
        assert_eq!(run.waits(), wait);
        assert_eq!(run.view().phase, "waiting");
        assert_eq!(run.samples(), [Metric::SourceFresh { kind: Kind::Nodes, fresh: false }]);
        run.wait();
        assert_eq!(run.requests(), watch_from(10));
    }
    let mut run = Run::watching();
    run.ended(Some(denied));
    assert_eq!(run.view().last_error.as_deref(), Some("denied: nodes is forbidden"));
    run.wait();
    run.step(In::Opened(run.call()));
    assert_eq!(run.view().last_error, None);
}

#[test]
fn x5_the_currency_of_data_is_published_on_change() {
    let denied = |reason: &str| Some(WatchFailure::Denied(reason.into()));
    let denial = |reason: &str| [WatchFreshness::Denied(format!("denied: {reason}").into())];
    let mut run = Run::new();
    run.step(In::Start);
    assert_eq!(run.freshness_changes(), [WatchFreshness::Stale], "nothing was told yet");
    run.lines(vec![object(7)]);
    assert_eq!(run.freshness_changes(), [], "a list that has begun is not complete");
    run.lines(vec![list_end(10), bookmark(10)]);
    assert_eq!(run.freshness_changes(), [WatchFreshness::Current]);
    run.ended(denied("nodes is forbidden"));
    assert_eq!(run.freshness_changes(), denial("nodes is forbidden"));
    for (failure, output) in [
        (denied("nodes is forbidden"), vec![]),
        (denied("who are you?"), denial("who are you?").to_vec()),
        (Some(other()), vec![WatchFreshness::Stale]),
        (Some(WatchFailure::TooManyRequests(None)), vec![]),
        (denied("who are you?"), denial("who are you?").to_vec()),
        (Some(WatchFailure::Expired), vec![WatchFreshness::Stale]),
        (denied("nodes is forbidden"), denial("nodes is forbidden").to_vec()),
    ] {
        if run.requests().is_empty() {
            run.wait();
            assert_eq!(run.freshness_changes(), [], "that it is asked again says nothing");
        }
        run.ended(failure.clone());
        assert_eq!(run.freshness_changes(), output, "{failure:?}");
    }
    run.wait();
    run.lines(vec![object(8), list_end(20)]);
    assert_eq!(run.freshness_changes(), [WatchFreshness::Current]);
    // The watch hangs; the earlier denials are over.
    run.wait();
    assert_eq!(run.freshness_changes(), [WatchFreshness::Stale]);
    run.step(In::Opened(run.call()));
    assert_eq!(run.freshness_changes(), [WatchFreshness::Current]);
    run.lines(vec![object(21)]);
    run.ended(None);
    assert_eq!(run.freshness_changes(), [], "a stream that ends in good order is followed again");
}

#[test]
fn a_watch_silent_for_100_s_is_reopened_where_it_was() {
    let mut run = Run::watching();
    run.pass(90_000);
    run.lines(vec![bookmark(11)]);
    assert_eq!(run.waits(), 100_000);
    run.pass(99_999);
    assert!(run.out.is_empty());
    let silent = run.call();
    run.wait();
    assert_eq!(run.requests(), watch_from(11));
    assert_eq!(run.samples(), [Metric::SourceFresh { kind: Kind::Nodes, fresh: false }], "it is no relist");
    assert_eq!(run.observations(), [] as [&str; 0]);
    assert_eq!(run.view().last_error.as_deref(), Some("the watch was silent for 100 s"));
    run.lines_of(silent, vec![object(12)]);
    assert_eq!(run.observations(), [] as [&str; 0], "the one before is dropped");
    assert_eq!(run.samples(), [], "what was read before the port has dropped it is expected");
    run.step(In::Opened(run.call()));
    assert_eq!(run.observations(), ["reconnected"]);
    assert_eq!(run.samples(), [Metric::SourceFresh { kind: Kind::Nodes, fresh: true }]);
    assert_eq!(run.view().last_error, None);
    assert_eq!(run.waits(), 100_000, "at most every 100 s");
    run.lines(vec![object(13)]);
    for _ in 0..20 {
        run.pass(99_000);
        run.lines(vec![bookmark(14)]);
        assert_eq!(run.requests(), [], "it is not silent");
    }
}

#[test]
fn a_reopened_watch_that_fails_waits_as_after_any_failure() {
    let mut run = Run::watching();
    run.wait();
    assert_eq!(run.waits(), 60_000, "for an answer");
    run.wait();
    assert_eq!(run.view().last_error.as_deref(), Some("no answer for 60 s"));
    run.wait();
    assert_eq!(run.requests(), watch_from(10));
    run.step(In::Opened(run.call()));
    run.pass(100_000);
    assert_eq!(run.requests(), watch_from(10), "its silence began with the new connection");
    run.ended(Some(WatchFailure::Expired));
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
}

#[test]
fn a_watch_silent_for_330_s_is_broken_and_relisted() {
    let mut run = Run::watching();
    run.pass(80_000);
    run.lines(vec![bookmark(11)]);
    for _ in 0..3 {
        run.wait();
        assert_eq!(run.requests(), watch_from(11));
        run.pass(1_000);
        run.step(In::Opened(run.call()));
    }
    assert_eq!(run.waits(), 27_000, "connections that open and say nothing do not prolong it");
    run.wait();
    assert!(run.samples().contains(&relisted(RelistReason::Broken)));
    assert_eq!(run.view().last_error.as_deref(), Some("the watch was silent for 330 s"));
    run.wait();
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
}

#[test]
fn a_request_without_an_answer_is_given_up_after_a_minute() {
    let mut run = Run::new();
    run.step(In::Start);
    let lost = run.call();
    run.wait();
    assert_eq!(run.now, Now::from_millis(60_000));
    run.wait();
    assert_eq!(run.requests(), [WatchRequest::StreamingList], "silence is no refusal");
    run.lines_of(lost, vec![list_end(9)]);
    assert_eq!(run.samples(), [Metric::UnmatchedAnswer]);
    assert_eq!(run.observations(), [] as [&str; 0]);

    run.ended(Some(WatchFailure::StreamingRefused("no".into())));
    run.page(vec![object(7)], 10, Some("token"));
    run.wait();
    assert_eq!(run.observations(), ["aborted"], "a page that never comes");
    run.wait();
    assert_eq!(run.requests(), first_page());
}

#[test]
fn d6_a_refused_list_is_repeated_ever_more_slowly() {
    let mut run = Run::watching();
    let mut waits = Vec::new();
    for n in 0..7 {
        run.step(In::Relist(RelistReason::Stale));
        assert!(run.samples().contains(&relisted(RelistReason::Stale)));
        run.step(In::Relist(RelistReason::Stale));
        assert_eq!(run.samples(), [], "once is enough");
        waits.push(run.waits());
        run.wait();
        run.lines(vec![object(n), list_end(n + 1)]);
    }
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
    run.pass(60_000);
    run.step(In::Relist(RelistReason::Stale));
    assert_eq!(run.waits(), 500, "a list that lasted resets it");
}

#[test]
fn a3_a_watch_line_without_an_object_costs_a_list() {
    let mut run = Run::watching();
    run.pass(60_000);
    let garbage = Line::Undecodable {
        key: None,
        owner: Owner::Unknown,
        resource_version: None,
        error: "garbage".into(),
    };
    run.lines(vec![garbage]);
    assert_eq!(run.waits(), 500, "a server that sends nothing else is not hammered");
    let relist = Metric::Relist { kind: Kind::Nodes, reason: RelistReason::Broken };
    assert!(run.samples().contains(&relist));
}

#[test]
fn a_refusal_while_a_wait_is_on_does_not_shorten_it() {
    let mut run = Run::watching();
    run.ended(Some(WatchFailure::TooManyRequests(Some(Duration::from_secs(30)))));
    run.step(In::Relist(RelistReason::Stale));
    assert_eq!(run.waits(), 30_000);
    run.wait();
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
}

#[test]
fn d6_an_undecodable_line_is_passed_on_counted_and_skipped() {
    let mut run = Run::watching();
    let key = Some(ObjectKey::Node(NodeName::new("n1")));
    let line = |key| Line::Undecodable {
        key,
        owner: Owner::Unknown,
        resource_version: Some(version(15)),
        error: "bad".into(),
    };
    run.lines(vec![line(key)]);
    assert_eq!(run.observations(), ["undecodable true"]);
    assert_eq!(run.samples(), [Metric::UndecodableObject(Kind::Nodes)]);
    run.pass(1_000);
    run.ended(None);
    assert_eq!(run.requests(), watch_from(15));
}

#[test]
fn what_the_informer_holds_is_shown() {
    let mut run = Run::watching();
    run.step(In::Cached(3));
    assert_eq!(run.view().objects, 3);
    run.step(In::Cached(3));
    assert!(run.out.is_empty());
}

#[test]
fn a_list_without_a_version_is_a_failure() {
    let mut run = Run::new();
    run.step(In::Start);
    let nameless = Line::Bookmark { resource_version: ResourceVersion::default(), list_end: true };
    run.lines(vec![object(7), nameless]);
    assert_eq!(run.observations(), ["began FirstList", "object 7", "aborted"]);
}

/// Returns the request of a term for most recent data.
fn confirm(n: u64, needs_new_list: bool) -> In {
    In::Confirm { epoch: Epoch(n), needs_new_list }
}

#[test]
fn w8_a_term_lists_a_watched_kind_again_immediately() {
    let mut run = Run::watching();
    run.step(confirm(3, true));
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
    assert!(run.samples().contains(&relisted(RelistReason::NewTerm)));
    run.step(confirm(3, true));
    run.step(confirm(2, true));
    assert!(run.out.is_empty(), "once is enough, and an older term is over");
    run.lines(vec![object(7), list_end(20)]);
    assert_eq!(run.observations(), ["began Relist", "object 7", "done 20 for 3"]);
    run.step(In::Relist(RelistReason::Stale));
    assert_eq!(run.waits(), 500, "it says nothing about the server, whose first failure this is");
    run.wait();
    run.lines(vec![list_end(21)]);
    assert_eq!(
        run.observations(),
        ["began Relist", "done 21 for 3"],
        "what replaces a refused list serves the term too"
    );
}

#[test]
fn w8_a_list_that_began_before_the_request_does_not_serve_it() {
    let mut run = Run::new();
    run.step(In::Start);
    run.lines(vec![object(7)]);
    let before = run.call();
    run.step(confirm(3, true));
    assert_eq!(run.observations(), ["aborted"]);
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
    run.lines_of(before, vec![list_end(9)]);
    assert_eq!(run.observations(), [] as [&str; 0]);
    run.ended(Some(WatchFailure::StreamingRefused("no".into())));
    run.page(vec![object(7)], 10, Some("token"));
    run.step(confirm(4, true));
    assert_eq!(run.observations(), ["aborted"], "a newer term takes the place of the older one");
    assert_eq!(run.requests(), first_page());
    run.page(vec![object(7)], 11, Some("token"));
    run.page(vec![object(8)], 11, None);
    assert_eq!(run.observations(), ["object 8", "done 11 for 4"], "all pages are of one list");
}

#[test]
fn g1_a_second_read_is_a_list_that_began_after_the_request() {
    let mut run = Run::watching();
    run.step(In::Reread(ReadId(1)));
    assert_eq!(run.requests(), [WatchRequest::StreamingList], "at once");
    assert!(run.samples().contains(&relisted(RelistReason::SecondRead)));
    run.step(In::Reread(ReadId(1)));
    assert!(run.out.is_empty(), "once is enough");
    run.lines(vec![object(7), list_end(20)]);
    assert_eq!(run.observations(), ["began Relist", "object 7", "done 20 as read 1"]);
    // A list in progress when the next request arrives began before it.
    run.step(In::Relist(RelistReason::Broken));
    run.wait();
    run.lines(vec![object(7)]);
    run.step(In::Reread(ReadId(2)));
    assert_eq!(run.observations(), ["aborted"]);
    run.lines(vec![object(7)]);
    run.ended(Some(WatchFailure::Other("reset".into())));
    assert_eq!(run.observations(), ["aborted"]);
    run.wait();
    run.lines(vec![object(7), list_end(30)]);
    assert_eq!(
        run.observations(),
        ["began Relist", "object 7", "done 30 as read 2"],
        "one that broke off is made again"
    );
    run.step(confirm(3, true));
    run.lines(vec![list_end(40)]);
    assert_eq!(run.observations(), ["began Relist", "done 40 for 3 as read 2"]);
}

#[test]
fn w8_the_first_list_serves_an_earlier_terms_request() {
    let mut run = Run::new();
    run.step(confirm(1, true));
    assert!(run.out.is_empty());
    run.step(In::Start);
    run.lines(vec![list_end(10)]);
    assert_eq!(run.observations(), ["began FirstList", "done 10 for 1"]);
}

#[test]
fn w8_a_term_does_not_shorten_a_wait() {
    let throttled = || Some(WatchFailure::TooManyRequests(Some(Duration::from_secs(30))));
    let mut run = Run::watching();
    run.ended(throttled());
    run.step(confirm(3, true));
    assert_eq!((run.requests(), run.waits()), (vec![], 30_000));
    assert_eq!(run.samples(), [relisted(RelistReason::NewTerm)]);
    run.wait();
    assert_eq!(run.requests(), [WatchRequest::StreamingList]);
    run.ended(throttled());
    run.step(confirm(4, true));
    assert!(run.out.is_empty(), "the list that comes anyway begins after it");
    run.wait();
    run.lines(vec![list_end(10)]);
    assert_eq!(run.observations(), ["began Relist", "done 10 for 4"]);
}

#[test]
fn w8_any_list_serves_a_first_term() {
    for started in [false, true] {
        let mut run = Run::new();
        if started {
            run.step(In::Start);
            run.lines(vec![object(7)]);
        }
        run.step(confirm(1, false));
        assert_eq!((run.observations(), run.requests()), (vec!["any list for 1".to_owned()], vec![]));
    }
    let mut run = Run::watching();
    run.step(confirm(1, false));
    assert_eq!((run.observations(), run.requests()), (vec!["any list for 1".to_owned()], vec![]));
    run.step(confirm(2, true));
    assert_eq!(run.requests(), [WatchRequest::StreamingList], "a newer term may ask for more");
}

#[derive(Clone, Debug)]
enum Action {
    Start,
    Opened,
    Lines(Vec<Line>),
    Page(Vec<Line>, u64, bool),
    Ended(Option<WatchFailure>, u16),
    Relist(RelistReason),
    Confirm(Epoch, bool),
    Reread(ReadId),
    Pass(u64),
    Wait,
}

fn failure() -> impl Strategy<Value = WatchFailure> {
    prop_oneof![
        Just(WatchFailure::Expired),
        Just(WatchFailure::StreamingRefused("no".into())),
        (0_u64..100).prop_map(|s| WatchFailure::TooManyRequests(Some(Duration::from_secs(s)))),
        Just(WatchFailure::TooManyRequests(None)),
        Just(WatchFailure::Denied("no".into())),
        Just(other()),
    ]
}

fn line() -> impl Strategy<Value = Line> {
    prop_oneof![
        4 => (1_u64..100).prop_map(object),
        2 => (1_u64..100).prop_map(list_end),
        2 => (1_u64..100).prop_map(bookmark),
        1 => failure().prop_map(Line::Error),
        1 => Just(Line::Bookmark { resource_version: ResourceVersion::default(), list_end: true }),
        1 => (1_u64..100).prop_map(|n| Line::Deleted {
            key: ObjectKey::Node(NodeName::new("n1")),
            owner: Owner::Nobody,
            resource_version: version(n),
        }),
        1 => Just(Line::Undecodable { key: None, owner: Owner::Unknown, resource_version: None, error: "bad".into() }),
    ]
}

fn action() -> impl Strategy<Value = (Action, bool)> {
    let action = prop_oneof![
        1 => Just(Action::Start),
        2 => Just(Action::Opened),
        4 => prop::collection::vec(line(), 0..4).prop_map(Action::Lines),
        3 => (prop::collection::vec(line(), 0..3), 0_u64..100, any::<bool>())
            .prop_map(|(items, n, more)| Action::Page(items, n, more)),
        3 => (prop::option::of(failure()), 0_u16..1001).prop_map(|(failure, jitter)| Action::Ended(failure, jitter)),
        1 => prop::sample::select(vec![RelistReason::Expired, RelistReason::Stale, RelistReason::Broken])
            .prop_map(Action::Relist),
        1 => (0..5_u64, any::<bool>()).prop_map(|(epoch, needs_new_list)| Action::Confirm(Epoch(epoch), needs_new_list)),
        1 => (0..5_u64).prop_map(|read| Action::Reread(ReadId(read))),
        2 => (0_u64..400_000).prop_map(Action::Pass),
        2 => Just(Action::Wait),
    ];
    (action, prop::bool::weighted(0.9))
}

proptest! {
    /// Safety: one request at a time, with rising ids; lists begin, then end or abort; inputs of a dropped request
    /// have no effect. Liveness: there is always a deadline, and with a server that answers the watcher returns to
    /// watching.
    #[test]
    fn a_watcher_always_waits_and_passes_on_whole_lists(actions in prop::collection::vec(action(), 0..60)) {
        let mut run = Run::new();
        run.step(In::Start);
        let mut newest = run.watcher.current();
        let mut listing = false;
        // The newest term that has requested data, and the newest for which a list that had begun before does not
        // count.
        let (mut asked, mut needs_new_list) = (None, None);
        // The newest term that had requested data when the current list began.
        let mut before_list = None;
        // The newest second read requested now, and when the current list began.
        let (mut read_requested, mut read_before_list) = (None, None);
        for (action, current) in actions {
            let open = run.watcher.current();
            let answer = matches!(action, Action::Opened | Action::Lines(_) | Action::Page(..) | Action::Ended(..));
            let call = if current { open.unwrap_or(CallId(0)) } else { CallId(u64::MAX) };
            match action {
                Action::Start => run.step(In::Start),
                Action::Opened => run.step(In::Opened(call)),
                Action::Lines(lines) => run.lines_of(call, lines),
                Action::Page(items, n, more) => {
                    let resource_version = if n == 0 { ResourceVersion::default() } else { version(n) };
                    run.step(In::Page { call, items, resource_version, next: more.then(|| "t".into()) });
                }
                Action::Ended(failure, jitter) => run.step(In::Ended { call, failure, jitter }),
                Action::Relist(reason) => run.step(In::Relist(reason)),
                Action::Confirm(epoch, again) => {
                    if asked < Some(epoch) {
                        asked = Some(epoch);
                        needs_new_list = if again { asked } else { needs_new_list };
                    }
                    run.step(In::Confirm { epoch, needs_new_list: again });
                }
                Action::Reread(read) => {
                    read_requested = read_requested.max(Some(read));
                    run.step(In::Reread(read));
                }
                Action::Pass(millis) => run.pass(millis),
                Action::Wait => run.wait(),
            }
            prop_assert!(run.watcher.check());
            prop_assert!(run.watcher.deadline().is_some());
            for output in &run.out {
                match output {
                    Out::Open { call, request, .. } => {
                        prop_assert!(Some(*call) > newest);
                        newest = Some(*call);
                        if matches!(request, WatchRequest::StreamingList | WatchRequest::List { page: None }) {
                            before_list = asked;
                            read_before_list = read_requested;
                        }
                    }
                    Out::Seen(_, _, WatchUpdate::ListBegan(_)) => prop_assert!(!std::mem::replace(&mut listing, true)),
                    Out::Seen(_, _, WatchUpdate::ListDone { serves: ListCoverage { term, read }, .. }) => {
                        prop_assert!(std::mem::replace(&mut listing, false));
                        prop_assert!(*term >= needs_new_list, "every list that ends serves the newest term");
                        prop_assert!(*term <= before_list, "no list serves a term that asked after its beginning");
                        prop_assert_eq!(*read, read_before_list, "nor a read; and each all that came before");
                    }
                    Out::Seen(_, _, WatchUpdate::ListAborted) => {
                        prop_assert!(std::mem::replace(&mut listing, false));
                    }
                    Out::Seen(_, _, WatchUpdate::AnyList(term)) => prop_assert_eq!(Some(*term), asked),
                    Out::Seen(_, _, WatchUpdate::Bookmark(_) | WatchUpdate::Reconnected) => prop_assert!(!listing),
                    Out::Seen(_, _, WatchUpdate::Object(_) | WatchUpdate::Deleted { .. } | WatchUpdate::Undecodable { .. }) => {}
                    Out::View(_) | Out::Metric(_) | Out::Freshness(..) => {}
                }
            }
            if answer && !current {
                prop_assert!(run.observations().is_empty());
            }
        }
        // A server that accepts every request and sends nothing must get a list request within the limit.
        let mut listed = run.watcher.fresh != Some(true);
        let silence = run.now;
        while !listed {
            prop_assert!(run.now.since(silence) <= Duration::from_secs(330 + 60), "silence is believed");
            if run.watcher.current().is_none() {
                run.wait();
            }
            let asked = run.call();
            if matches!(run.watcher.phase, Phase::Requested { .. }) {
                run.step(In::Opened(asked));
            }
            run.wait();
            listed = run.samples().contains(&relisted(RelistReason::Broken));
        }
        for _ in 0..4 {
            if run.watcher.current().is_none() {
                prop_assert!(run.waits() <= 60_000);
                run.wait();
            }
            let call = run.call();
            match run.watcher.purpose_mut().cloned() {
                Some(Purpose::StreamingList { .. }) => run.lines_of(call, vec![list_end(100)]),
                Some(Purpose::List { .. }) => run.page(vec![], 100, None),
                Some(Purpose::Watch { .. }) => run.lines_of(call, vec![bookmark(100)]),
                None => prop_assert!(false, "a request is open"),
            }
        }
        prop_assert_eq!(run.watcher.fresh, Some(true));
        // A term that requests data now is served by the next list.
        run.step(In::Confirm { epoch: Epoch(9), needs_new_list: true });
        prop_assert!(!run.requests().is_empty(), "at once");
        match run.watcher.purpose_mut().cloned() {
            Some(Purpose::StreamingList { .. }) => run.lines(vec![list_end(101)]),
            Some(Purpose::List { .. } | Purpose::Watch { .. }) | None => run.page(vec![], 101, None),
        }
        let served = |output: &Out| matches!(output, Out::Seen(_, _, WatchUpdate::ListDone { serves: ListCoverage { term: Some(Epoch(9)), .. }, .. }));
        prop_assert!(run.out.iter().any(served));
    }
}
