//! Tests of notices and taints after a new term, another process and a restart.

use super::*;

#[test]
fn n1_a_recorded_taint_stays_10_min_after_the_notice() {
    let mut bench = Bench::of(&[marked(&node("a"), 1)]);
    bench.pass(seconds(3_600));
    assert_eq!(bench.statuses("a"), (false, false));
    bench.notices.on_read(&uid("a"));
    bench.reconcile();
    assert_eq!((bench.statuses("a"), bench.changed()), ((false, true), vec![uid("a")]));
    bench.pass(seconds(629));
    bench.asks_nothing();
    bench.pass(seconds(1));
    assert_eq!(bench.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_record_of_a_missing_taint_ends() {
    let other_effect = NodeFact { taints: vec![taint(DRAINING, SPOT_EVICTION, "NoExecute")], ..node("a") };
    for fact in [node("a"), other_effect] {
        let mut bench = Bench::of(&[fact]);
        bench.notices.on_read(&uid("a"));
        assert_eq!((bench.statuses("a"), bench.changed()), ((false, false), vec![uid("a")]));
        assert_eq!(bench.notices.deadline(), None);
    }
}

#[test]
fn n1_a_record_waits_for_its_unknown_node() {
    for (fact, ours) in [(node("a"), false), (marked(&node("a"), 2), true)] {
        let mut bench = Bench::of(&[]);
        bench.notices.on_read(&uid("a"));
        assert_eq!(bench.statuses("a"), (false, true));
        bench.changed();
        bench.deliver(&fact);
        assert_eq!((bench.statuses("a"), bench.changed()), ((false, ours), vec![uid("a")]));
    }
    let mut bench = Bench::of(&[]);
    bench.notices.on_read(&uid("a"));
    bench.gone("a");
    assert_eq!(bench.statuses("a"), (false, false));
}

#[test]
fn n1_a_successor_completes_a_patch_that_was_only_recorded() {
    let mut bench = Bench::of(&[]);
    bench.list(vec![PreemptionObject { age: Some(seconds(20)), ..event("a") }]);
    bench.notices.on_read(&uid("a"));
    bench.notices.begin();
    bench.deliver(&node("a"));
    assert_eq!(bench.statuses("a"), (true, true));
    bench.answer(&TaintAnswer::Overtaken);
    bench.deliver(&marked(&node("a"), 2));
    assert_eq!(bench.statuses("a"), (true, true), "it may have sent the patch");
}

#[test]
fn n1_each_read_of_the_record_restarts_the_30_s_and_the_10_min() {
    let mut bench = Bench::of(&[marked(&node("a"), 1)]);
    bench.notices.on_read(&uid("a"));
    bench.reconcile();
    bench.deliver(&NodeFact { version: version(2), ..node("a") });
    assert_eq!(bench.statuses("a"), (false, false));
    bench.deliver(&marked(&node("a"), 3));
    bench.pass(seconds(900));
    bench.notices.on_read(&uid("a"));
    bench.reconcile();
    bench.pass(seconds(629));
    bench.asks_nothing();
    bench.pass(seconds(1));
    assert_eq!(bench.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn w8_a_patch_in_flight_at_a_new_term_may_have_been_applied() {
    let mut bench = Bench::of(&[node("a")]);
    bench.event(event("a"));
    let (call, _) = bench.patch();
    bench.acts = false;
    bench.notices.begin();
    bench.acts = true;
    bench.reconcile();
    let (second, patch) = bench.patch();
    assert_eq!(patch.edit, TaintEdit::AddFirst, "the other is never answered");
    for (call, answer) in [(call, TaintAnswer::Done), (second, TaintAnswer::Overtaken)] {
        bench.notices.on_tainted(bench.now, call, &answer);
        bench.reconcile();
    }
    let overtaken = Metric::TaintPatch(TaintResult::Overtaken);
    assert_eq!(bench.samples, [Metric::UnmatchedAnswer, overtaken]);
    bench.deliver(&marked(&node("a"), 2));
    assert_eq!(bench.statuses("a"), (true, true));
}

#[test]
fn w8_a_removal_in_flight_at_a_new_term_is_repeated() {
    let mut bench = marked_by_us();
    bench.pass(seconds(630));
    bench.patch();
    bench.notices.begin();
    bench.reconcile();
    assert_eq!(bench.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_notice_of_another_term_counts_only_while_recent() {
    for (span, counts) in [(seconds(59), true), (seconds(60), false)] {
        let mut bench = Bench::of(&[node("a")]);
        bench.acts = false;
        bench.event(event("a"));
        bench.pass(span);
        bench.asks_nothing();
        bench.notices.begin();
        bench.acts = true;
        bench.reconcile();
        assert_eq!(bench.statuses("a"), (counts, counts), "{span:?}");
        assert_eq!(bench.patches.len(), usize::from(counts));
        bench.pass(seconds(1));
        bench.event(PreemptionObject { resource_version: version(9), ..event("a") });
        assert_eq!(bench.statuses("a"), (true, true), "the next one counts in any case");
    }
}

#[test]
fn n1_a_listed_event_of_another_term_is_not_more_recent() {
    for (age, counts) in [(39, true), (40, false)] {
        let mut bench = Bench::of(&[node("a")]);
        bench.acts = false;
        bench.list(vec![PreemptionObject { age: Some(seconds(age)), ..event("a") }]);
        assert_eq!(bench.statuses("a"), (true, true));
        bench.pass(seconds(20));
        bench.notices.begin();
        bench.acts = true;
        bench.reconcile();
        assert_eq!(bench.statuses("a"), (counts, counts), "{age}");
    }
}

#[test]
fn n1_an_unrecorded_notice_lasts_while_this_process_leads() {
    let mut bench = Bench::of(&[node("a")]);
    bench.records = false;
    bench.event(event("a"));
    bench.pass(seconds(120));
    assert_eq!(bench.statuses("a"), (true, true));
    bench.notices.begin();
    bench.reconcile();
    assert_eq!(bench.statuses("a"), (false, false), "in another term it is outdated");
    bench.asks_nothing();
}

#[test]
fn n1_a_taint_of_another_leader_is_ours_only_with_a_record() {
    let standby = || {
        let mut bench = Bench::of(&[node("a")]);
        bench.acts = false;
        bench.event(event("a"));
        bench.deliver(&marked(&node("a"), 2));
        assert_eq!(bench.statuses("a"), (true, false));
        bench.pass(seconds(300));
        bench.notices.begin();
        bench.acts = true;
        bench
    };
    let mut foreign = standby();
    foreign.pass(seconds(3_600));
    foreign.asks_nothing();
    let mut ours = standby();
    ours.notices.on_read(&uid("a"));
    ours.reconcile();
    assert_eq!(ours.statuses("a"), (true, true));
    ours.pass(seconds(330));
    assert_eq!(ours.edit(), TaintEdit::Remove { at: 0 }, "the notice was received, so that its end is known");
}
