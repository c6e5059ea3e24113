//! Tests of notices and taints after a new term, another process and a restart.

use super::*;

#[test]
fn n1_a_recorded_taint_stays_10_min_after_the_notice() {
    let mut fixture = Fixture::of(&[marked(&node("a"), 1)]);
    fixture.pass(seconds(3_600));
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.notices.on_read(&uid("a"));
    fixture.reconcile();
    assert_eq!((fixture.statuses("a"), fixture.changed()), ((false, true), vec![uid("a")]));
    fixture.pass(seconds(629));
    fixture.asks_nothing();
    fixture.pass(seconds(1));
    assert_eq!(fixture.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_record_of_a_missing_taint_ends() {
    let other_effect = NodeFact { taints: vec![taint(DRAINING, SPOT_EVICTION, "NoExecute")], ..node("a") };
    for fact in [node("a"), other_effect] {
        let mut fixture = Fixture::of(&[fact]);
        fixture.notices.on_read(&uid("a"));
        assert_eq!((fixture.statuses("a"), fixture.changed()), ((false, false), vec![uid("a")]));
        assert_eq!(fixture.notices.deadline(), None);
    }
}

#[test]
fn n1_a_record_waits_for_its_unknown_node() {
    for (fact, ours) in [(node("a"), false), (marked(&node("a"), 2), true)] {
        let mut fixture = Fixture::of(&[]);
        fixture.notices.on_read(&uid("a"));
        assert_eq!(fixture.statuses("a"), (false, true));
        fixture.changed();
        fixture.deliver(&fact);
        assert_eq!((fixture.statuses("a"), fixture.changed()), ((false, ours), vec![uid("a")]));
    }
    let mut fixture = Fixture::of(&[]);
    fixture.notices.on_read(&uid("a"));
    fixture.gone("a");
    assert_eq!(fixture.statuses("a"), (false, false));
}

#[test]
fn n1_a_successor_completes_a_patch_that_was_only_recorded() {
    let mut fixture = Fixture::of(&[]);
    fixture.list(vec![PreemptionObject { age: Some(seconds(20)), ..event("a") }]);
    fixture.notices.on_read(&uid("a"));
    fixture.notices.begin();
    fixture.deliver(&node("a"));
    assert_eq!(fixture.statuses("a"), (true, true));
    fixture.answer(&TaintAnswer::Overtaken);
    fixture.deliver(&marked(&node("a"), 2));
    assert_eq!(fixture.statuses("a"), (true, true), "it may have sent the patch");
}

#[test]
fn n1_each_read_of_the_record_restarts_the_30_s_and_the_10_min() {
    let mut fixture = Fixture::of(&[marked(&node("a"), 1)]);
    fixture.notices.on_read(&uid("a"));
    fixture.reconcile();
    fixture.deliver(&NodeFact { version: version(2), ..node("a") });
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.deliver(&marked(&node("a"), 3));
    fixture.pass(seconds(900));
    fixture.notices.on_read(&uid("a"));
    fixture.reconcile();
    fixture.pass(seconds(629));
    fixture.asks_nothing();
    fixture.pass(seconds(1));
    assert_eq!(fixture.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn w8_a_patch_in_flight_at_a_new_term_may_have_been_applied() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(event("a"));
    let (call, _) = fixture.patch();
    fixture.acts = false;
    fixture.notices.begin();
    fixture.acts = true;
    fixture.reconcile();
    let (second, patch) = fixture.patch();
    assert_eq!(patch.edit, TaintEdit::AddFirst, "the other is never answered");
    for (call, answer) in [(call, TaintAnswer::Done), (second, TaintAnswer::Overtaken)] {
        fixture.notices.on_tainted(fixture.now, call, &answer);
        fixture.reconcile();
    }
    let overtaken = Metric::TaintPatch(TaintResult::Overtaken);
    assert_eq!(fixture.samples, [Metric::UnmatchedAnswer, overtaken]);
    fixture.deliver(&marked(&node("a"), 2));
    assert_eq!(fixture.statuses("a"), (true, true));
}

#[test]
fn w8_a_removal_in_flight_at_a_new_term_is_repeated() {
    let mut fixture = marked_by_us();
    fixture.pass(seconds(630));
    fixture.patch();
    fixture.notices.begin();
    fixture.reconcile();
    assert_eq!(fixture.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_notice_of_another_term_counts_only_while_recent() {
    for (span, counts) in [(seconds(59), true), (seconds(60), false)] {
        let mut fixture = Fixture::of(&[node("a")]);
        fixture.acts = false;
        fixture.event(event("a"));
        fixture.pass(span);
        fixture.asks_nothing();
        fixture.notices.begin();
        fixture.acts = true;
        fixture.reconcile();
        assert_eq!(fixture.statuses("a"), (counts, counts), "{span:?}");
        assert_eq!(fixture.patches.len(), usize::from(counts));
        fixture.pass(seconds(1));
        fixture.event(PreemptionObject { resource_version: version(9), ..event("a") });
        assert_eq!(fixture.statuses("a"), (true, true), "the next one counts in any case");
    }
}

#[test]
fn n1_a_listed_event_of_another_term_is_not_more_recent() {
    for (age, counts) in [(39, true), (40, false)] {
        let mut fixture = Fixture::of(&[node("a")]);
        fixture.acts = false;
        fixture.list(vec![PreemptionObject { age: Some(seconds(age)), ..event("a") }]);
        assert_eq!(fixture.statuses("a"), (true, true));
        fixture.pass(seconds(20));
        fixture.notices.begin();
        fixture.acts = true;
        fixture.reconcile();
        assert_eq!(fixture.statuses("a"), (counts, counts), "{age}");
    }
}

#[test]
fn n1_an_unrecorded_notice_lasts_while_this_process_leads() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.records = false;
    fixture.event(event("a"));
    fixture.pass(seconds(120));
    assert_eq!(fixture.statuses("a"), (true, true));
    fixture.notices.begin();
    fixture.reconcile();
    assert_eq!(fixture.statuses("a"), (false, false), "in another term it is outdated");
    fixture.asks_nothing();
}

#[test]
fn n1_a_taint_of_another_leader_is_ours_only_with_a_record() {
    let standby = || {
        let mut fixture = Fixture::of(&[node("a")]);
        fixture.acts = false;
        fixture.event(event("a"));
        fixture.deliver(&marked(&node("a"), 2));
        assert_eq!(fixture.statuses("a"), (true, false));
        fixture.pass(seconds(300));
        fixture.notices.begin();
        fixture.acts = true;
        fixture
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
