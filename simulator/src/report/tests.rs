//! Reports of small runs.

use serde_json::{Value, json};
use simulator_models::kube::{self, KubeModel};

use super::measure::{events_by_reason, warnings};
use super::*;
use crate::expected_members::WrongEntry;
use crate::holds::{Hold, OURS};
use crate::lanes::{Fate, Write};
use crate::post_run_checks::{Held, StatusSample};

fn report() -> Report {
    Report {
        converged: true,
        wrong_pools: 0,
        pools: 3,
        scenario: None,
        speed: 1,
        services: 3,
        load_balancers: 1,
        nodes: 2,
        changes: 9,
        changing_seconds: 1.0,
        arm_gets: 4,
        arm_puts: 5,
        arm_polls: 6,
        arm_throttled: 0,
        arm_etag_mismatches: 0,
        arm_refused_by_lock: 0,
        arm_superseded: 0,
        max_concurrent_puts_per_lb: 1,
        emptied_pools: 0,
        unserved: Unserved::default(),
        admin_state: DrainReport::default(),
        flows_reset: 0,
        lane_turn_seconds: 0.1,
        lease: Lease::default(),
        ccm: None,
        first_event_to_converged_seconds: Some(1.5),
        converged_seconds_by_load_balancer: BTreeMap::from([("lb-0".to_owned(), Some(1.5))]),
        convergence_seconds: Convergence::of(&[1_000_000], 0),
        removal_seconds: Convergence::of(&[30_500_000], 0),
        removal_delay_seconds: 30.0,
        retries: 0,
        events: BTreeMap::from([("LoadBalancerBackendPoolUpdated".to_owned(), 5)]),
        cpu_seconds: Some(0.25),
        max_rss_bytes: Some(1 << 20),
        seed: 7,
        duration_seconds: 2.0,
        wrong_pool_details: Vec::new(),
        warnings: Vec::new(),
        unreached: Vec::new(),
        checks: Some(PostRunChecks { queue_depth_end: Some(0), ..PostRunChecks::default() }),
        upstream: None,
        picture: Picture::default(),
    }
}

#[test]
fn z2_the_first_line_has_the_time_of_members() {
    let first = |report: Report| report.text().lines().next().unwrap_or_default().to_owned();
    let took = Convergence::of(&[1_000_000, 2_000_000], 0);
    let of = |convergence_seconds| Report { convergence_seconds, ..report() };
    assert_eq!(first(of(took)), "change → members in place: p50 1.000 s, p99 2.000 s");
    let late = Convergence { waiting: 3, ..took };
    assert_eq!(first(of(late)), "change → members in place: p50 1.000 s, p99 2.000 s (3 still missing)");
    assert_eq!(first(of(Convergence::of(&[], 0))), "change → members in place: no change needed new members");
    let text = report().text();
    let removed = "old members removed  p50 30.500 s, p99 30.500 s, of which removalDelay is 30 s";
    assert!(text.lines().any(|line| line == removed), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
}

#[test]
fn z2_the_json_report_has_every_promised_key() {
    let value: Value = serde_json::from_str(&report().json()).expect("JSON");
    for key in [
        "converged",
        "wrong_pools",
        "pools",
        "services",
        "load_balancers",
        "changes",
        "arm_gets",
        "arm_puts",
        "arm_polls",
        "arm_throttled",
        "max_concurrent_puts_per_lb",
        "first_event_to_converged_seconds",
        "convergence_seconds",
        "removal_seconds",
        "removal_delay_seconds",
        "retries",
        "events",
        "cpu_seconds",
        "max_rss_bytes",
        "seed",
        "speed",
        "emptied_pools",
        "lease",
        "lane_turn_seconds",
        "duration_seconds",
        "held",
        "guards_wrong",
        "unreached",
        "unserved",
        "flows_reset",
        "admin_state",
    ] {
        assert!(value.get(key).is_some_and(|value| !value.is_null()), "{key}");
    }
    for key in ["p50", "p99", "max"] {
        assert_eq!(value["convergence_seconds"][key], 1.0, "{key}");
        for times in ["drained_seconds", "sent_seconds"] {
            assert!(value["admin_state"][times].get(key).is_some(), "{times} {key}");
        }
    }
    let sums = ["nodes", "reached_in_time", "late", "never", "puts", "puts_per_pool_max", "wrong_entries"];
    for key in sums {
        assert_eq!(value["admin_state"][key], 0, "{key}");
    }
}

#[test]
fn n2_wrong_admin_states_and_unreached_nodes_fail_the_verdict() {
    let wrong_entry = WrongEntry {
        load_balancer: "lb-0".to_owned(),
        pool: "shop-web".to_owned(),
        ip: std::net::IpAddr::from([10, 0, 0, 7]),
        state: "None".to_owned(),
        why: "its node leaves service",
    };
    let admin_state =
        DrainReport { wrong_entries: 1, wrong_entry_details: vec![wrong_entry], ..DrainReport::default() };
    let wrong = Report { converged: false, admin_state, ..report() };
    assert!(!wrong.passed() && wrong.verdict() == "FAILED: 1 entries have a wrong admin state.");
    assert!(
        wrong.text().contains("lb-0/shop-web 10.0.0.7 None: its node leaves service"),
        "{}",
        wrong.text()
    );
    assert!(wrong.html().contains("<b>1</b><span>entries with a wrong admin state</span>"));

    let of = |reached_in_time, expected| {
        let reached_expected = Some(expected);
        let admin_state = DrainReport {
            nodes: 3,
            reached_in_time,
            never: 3 - reached_in_time,
            reached_expected,
            best_possible: 3,
            drained_seconds: Times { p50: Some(1.5), p99: Some(2.0), max: Some(2.0) },
            ..DrainReport::default()
        };
        Report { admin_state, ..report() }
    };
    assert!(of(2, 2).passed());
    let missed = of(2, 3);
    assert!(!missed.passed() && missed.verdict() == "FAILED: 2 nodes were reached in time, not 3.");
    for text in [missed.text(), missed.html()] {
        let row = "2 of 3 in time (3 possible), 0 late, 1 never; p50 1.500 s, p99 2.000 s, max 2.000 s";
        assert_eq!(text.matches(row).count(), 1, "{text}");
    }
    assert!(missed.html().contains("<b>2 of 3</b><span>nodes drained in time</span>"));
    assert!(!report().text().contains("nodes drained") && !report().html().contains("drained in time"));
}

#[test]
fn z2_pools_out_of_sync_and_overlapping_writes_fail() {
    assert!(report().passed() && report().text().contains("PASSED: all 3 pools are in sync."));
    let wrong = Report { converged: false, wrong_pools: 2, ..report() };
    assert!(!wrong.passed() && wrong.text().contains("FAILED: 2 of 3 pools are out of sync."));
    let overlapped = Report { max_concurrent_puts_per_lb: 2, ..report() };
    assert!(!overlapped.passed() && overlapped.text().contains("FAILED: 2 PUTs ran at once"));
    let idle = Report { unreached: vec!["arm down".to_owned()], ..report() };
    assert!(!idle.passed() && idle.text().contains("FAILED: `arm down` had no effect."));
}

#[test]
fn z2_the_verdict_fails_for_waiting_or_unknown_work() {
    let left = |queue_depth_end| Report {
        checks: Some(PostRunChecks { queue_depth_end, ..PostRunChecks::default() }),
        ..report()
    };
    assert!(left(Some(0)).passed());
    assert!(!left(Some(2)).passed() && left(Some(2)).verdict() == "FAILED: the queue depth is still 2.");
    let silent = left(None);
    assert!(
        !silent.passed() && silent.verdict() == "FAILED: the controller did not report what still waits."
    );
    let json: Value = serde_json::from_str(&silent.json()).expect("JSON");
    assert_eq!(json.get("queue_depth_end"), Some(&Value::Null));
    // Upstream's updater has no status to check.
    let upstream = Report { checks: None, ..report() };
    let json: Value = serde_json::from_str(&upstream.json()).expect("JSON");
    assert!(upstream.passed() && json.get("queue_depth_end").is_none());
}

#[test]
fn percentiles_are_the_smallest_sufficient_time() {
    let waits: Vec<u64> = (1..=200).map(|ms| ms * 1_000).collect();
    let took = Convergence::of(&waits, 3);
    assert_eq!((took.p50, took.p99, took.max), (Some(0.1), Some(0.198), Some(0.2)));
    assert_eq!((took.count, took.waiting), (200, 3));
    let none = Convergence::of(&[], 0);
    assert_eq!((none.p50, none.p99, none.max), (None, None, None));
}

#[test]
fn e1_events_of_both_groups_are_counted_with_their_repetitions() {
    let mut cluster = KubeModel::new(kube::Settings::default());
    let event = |version: &str, name: &str, rest: Value| {
        let mut event = json!({"apiVersion": version, "kind": "Event", "reason": "Updated",
            "metadata": {"namespace": "shop", "name": name}});
        for (key, value) in rest.as_object().expect("a map") {
            event[key] = value.clone();
        }
        event
    };
    for object in [
        event("v1", "a", json!({"count": 3, "type": "Warning", "message": "throttled"})),
        event("v1", "b", json!({"count": null})),
        event(
            "events.k8s.io/v1",
            "c",
            json!({"series": {"count": 4}, "type": "Warning", "note": "throttled"}),
        ),
        event("events.k8s.io/v1", "d", json!({"reason": "Failed", "type": "Warning", "note": "refused"})),
    ] {
        cluster.apply(object, 0).expect("an event");
    }
    let expected = BTreeMap::from([("Updated".to_owned(), 8), ("Failed".to_owned(), 1)]);
    assert_eq!(events_by_reason(&cluster), expected);
    assert_eq!(warnings(&cluster), ["throttled", "refused"]);
}

fn write(pool: &str, at_us: u64, foreign: bool, fate: Fate) -> Write {
    Write {
        load_balancer: "lb-0".to_owned(),
        pool: Some(pool.to_owned()),
        foreign,
        started_us: at_us,
        answered_us: at_us + 200_000,
        ended_us: at_us + 5_000_000,
        status: 200,
        fate,
    }
}

/// Returns a report with data in every chart, and upstream's.
fn drawn() -> Report {
    let hold = |holder: &str, from_us| Hold {
        holder: holder.to_owned(),
        from_us,
        until_us: Some(from_us + 9_000_000),
    };
    let picture = Picture {
        length_us: 60_000_000,
        out_of_sync: vec![(1_000_000, 3), (20_000_000, 1), (59_000_000, 0)],
        waits_us: vec![500_000, 2_000_000, 9_000_000],
        writes: vec![
            write("shop-<web>", 1_000_000, false, Fate::Done),
            write("shop-api", 8_000_000, true, Fate::Done),
            write("shop-api", 15_000_000, false, Fate::Superseded),
            write("shop-api", 25_000_000, false, Fate::Refused),
        ],
        holds: vec![hold(OURS, 1_000_000), hold("ccm", 12_000_000)],
        requests: vec![(1_000_000, true, false), (2_000_000, false, false), (3_000_000, true, true)],
        timeline: vec![(10_000_000, "arm fault any 503 every 2 & more".to_owned())],
    };
    let upstream = Report { wrong_pools: 2, converged: false, picture: picture.clone(), ..report() };
    let samples = [(1.0, 9, 0, false), (10.0, 40, 60, false), (20.0, 30, 60, true), (61.0, 0, 0, false)];
    let checks = PostRunChecks {
        queue_depth_end: Some(0),
        queue_depth_max: 40,
        held: BTreeMap::from([("empty_confirm".to_owned(), Held { pools: 60, seconds: 51.0 })]),
        removals_stopped_seconds: Some(41.25),
        samples: samples.map(|(at, depth, held, stopped)| StatusSample { at, depth, held, stopped }).to_vec(),
        ..PostRunChecks::default()
    };
    let scenario = Some("a <b>".to_owned());
    let upstream = Some(Box::new(Report { checks: None, ..upstream }));
    Report { scenario, picture, upstream, checks: Some(checks), ..report() }
}

#[test]
fn z2_the_page_is_self_contained_with_all_pictures() {
    let page = drawn().html();
    for foreign in ["http://", "https://", "<script", "<link", "<img", "@import", "url("] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    // Convergence and waits once for both; guards of the controller only; lanes, Lease, writes and reads of each.
    assert_eq!(page.matches("<svg").count(), 3 + 2 * 4);
    for (open, close) in
        [("<section>", "</section>"), ("<rect", "</rect>"), ("<g ", "</g>"), ("<div", "</div>")]
    {
        assert_eq!(page.matches(open).count(), page.matches(close).count(), "{open}");
    }
    for words in [
        "Simulation: a &lt;b&gt;",
        "shop-&lt;web&gt;",
        "every 2 &amp; more",
        "The controller: PASSED: all 3 pools are in sync.",
        "Upstream's updater: FAILED: 2 of 3 pools are out of sync.",
        "up to 60 pools held from 10 s to 61 s",
        "all removals stopped from 20 s to 61 s",
    ] {
        assert!(page.contains(words), "{words}");
    }
    for class in ["rect class=\"ours\"", "rect class=\"others\"", "rect class=\"cut\"", "rect class=\"bad\""]
    {
        assert!(page.contains(class), "{class}");
    }
}

#[test]
fn g5_text_and_page_show_held_removals_and_waiting_work() {
    let (text, page) = (drawn().text(), drawn().html());
    for text in [&text, &page] {
        for row in [
            "empty_confirm: 60 pools at once, 51.0 s at most",
            "all of them, for 41.2 s at most",
            "40 at most, 0 at the end",
        ] {
            assert_eq!(text.matches(row).count(), 1, "{row}: {text}");
        }
    }
    assert!(page.contains("rect class=\"held\"") && page.contains("i class=\"held\""));
    let worst = vec![("lb-0/shop-web".to_owned(), 7.5)];
    let unserved = Unserved { pools: 2, longest_seconds: 7.5, total_seconds: 9.0, worst };
    let text = Report { unserved, flows_reset: 3, ..report() }.text();
    assert!(text.contains("2 pools, 9.0 s in sum, 7.5 s at most (lb-0/shop-web)"), "{text}");
    assert!(text.contains("flows reset") && text.contains("  3 times"), "{text}");
    let never = report().text();
    assert!(!never.contains("removals stopped") && never.contains("0 at most, 0 at the end"), "{never}");
}

#[test]
fn z2_a_report_with_two_verdicts_ends_with_the_controllers() {
    let text = drawn().text();
    assert_eq!(text.lines().last(), Some("The controller: PASSED: all 3 pools are in sync."), "{text}");
    assert!(text.contains("\nUpstream's updater: FAILED: 2 of 3 pools are out of sync.\n"), "{text}");
    let alone = Report { upstream: None, ..drawn() };
    assert_eq!(alone.text().lines().last(), Some("PASSED: all 3 pools are in sync."));
}

#[test]
fn z2_the_page_of_a_run_without_changes_is_complete() {
    let page = report().html();
    assert!(page.ends_with("</html>\n") && !page.contains("NaN") && !page.contains("inf"), "{page}");
}
