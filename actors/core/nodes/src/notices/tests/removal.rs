//! Tests of the removal of the controller's taint, and of foreign taints.

use super::*;

#[test]
fn n1_our_taint_is_removed_after_10_min_ready_since_the_notice() {
    let mut bench = marked_by_us();
    bench.deliver(&NodeFact { version: version(7), ..marked(&node("a"), 2) });
    bench.pass(seconds(629));
    bench.asks_nothing();
    assert_eq!(bench.statuses("a"), (true, true));
    bench.pass(seconds(1));
    let (call, patch) = bench.patch();
    assert_eq!((patch.edit, patch.uid), (TaintEdit::Remove { at: 0 }, uid("a")));
    assert_eq!(bench.statuses("a"), (false, true), "the record stays until the taint is removed");
    bench.notices.on_tainted(bench.now, call, &TaintAnswer::Done);
    bench.reconcile();
    assert_eq!(bench.statuses("a"), (false, true));
    bench.deliver(&NodeFact { version: version(8), ..node("a") });
    assert_eq!((bench.statuses("a"), bench.notices.deadline()), ((false, false), None));
    bench.asks_nothing();
}

#[test]
fn n1_our_taint_stays_ours_when_a_list_lacks_the_node() {
    for (away, ours) in [(599, true), (600, false)] {
        let mut bench = marked_by_us();
        bench.gone("a");
        assert_eq!(bench.statuses("a"), (false, false));
        bench.pass(seconds(away));
        bench.deliver(&marked(&node("a"), 2));
        assert_eq!(bench.statuses("a"), (false, ours), "after {away} s");
        bench.pass(seconds(630));
        assert_eq!(bench.patches.len(), usize::from(ours));
    }
    let mut bench = marked_by_us();
    bench.gone("a");
    bench.deliver(&NodeFact { version: version(3), ..node("a") });
    assert_eq!(bench.statuses("a"), (false, false), "another client has removed it");
    // Another component sets the taint before the controller's patch is sent, so that it is foreign.
    let mut bench = Bench::of(&[node("a")]);
    bench.acts = false;
    bench.event(event("a"));
    bench.gone("a");
    bench.deliver(&marked(&node("a"), 2));
    assert_eq!(bench.statuses("a"), (false, false));
}

#[test]
fn n1_a_notice_passes_at_its_date() {
    let mut bench = Bench::of(&[node("a")]);
    bench.event(PreemptionObject { not_before: Some(NotBefore::In(seconds(300))), ..event("a") });
    bench.answer(&TaintAnswer::Done);
    bench.deliver(&marked(&node("a"), 2));
    bench.pass(seconds(899));
    bench.asks_nothing();
    bench.pass(seconds(1));
    assert_eq!(bench.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_not_ready_node_restarts_the_10_min() {
    let mut bench = marked_by_us();
    bench.pass(seconds(620));
    bench.deliver(&NodeFact { ready: false, ..marked(&node("a"), 3) });
    bench.pass(seconds(3_600));
    bench.asks_nothing();
    assert_eq!(bench.statuses("a"), (true, true));
    bench.deliver(&marked(&node("a"), 4));
    bench.pass(seconds(599));
    bench.asks_nothing();
    bench.pass(seconds(1));
    assert_eq!(bench.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_not_ready_node_keeps_its_taint_after_a_failed_removal() {
    let mut bench = marked_by_us();
    bench.pass(seconds(630));
    bench.answer(&TaintAnswer::Overtaken);
    bench.deliver(&NodeFact { ready: false, ..marked(&node("a"), 3) });
    bench.pass(seconds(60));
    bench.asks_nothing();
    assert_eq!((bench.statuses("a"), bench.notices.deadline()), ((false, true), None));
    bench.deliver(&marked(&node("a"), 4));
    bench.pass(seconds(600));
    assert_eq!(bench.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_later_notice_delays_the_removal() {
    let mut bench = marked_by_us();
    bench.pass(seconds(600));
    bench.event(later_state(&event("a")));
    bench.pass(seconds(629));
    bench.asks_nothing();
    bench.pass(seconds(1));
    assert_eq!(bench.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_removal_is_retried_until_it_succeeds() {
    let mut bench = marked_by_us();
    bench.pass(seconds(630));
    for wait in [1, 2, 4, 8, 15, 15] {
        bench.answer(&lost());
        bench.pass(Duration::from_millis(wait * 1_000 - 1));
        bench.asks_nothing();
        bench.pass(Duration::from_millis(1));
    }
    bench.answer(&TaintAnswer::Overtaken);
    bench.deliver(&NodeFact { taints: vec![spot_pool(), mark()], version: version(9), ..node("a") });
    let (call, patch) = bench.patch();
    assert_eq!(patch.edit, TaintEdit::Remove { at: 1 });
    bench.notices.on_tainted(bench.now, call, &TaintAnswer::Done);
    bench.pass(seconds(60));
    bench.asks_nothing();
    bench.deliver(&NodeFact { taints: vec![spot_pool(), mark()], version: version(11), ..node("a") });
    assert_eq!(bench.statuses("a"), (false, false), "another client has added it again");
    bench.pass(seconds(3_600));
    bench.asks_nothing();
}

#[test]
fn n1_a_removal_is_not_retried_without_its_node_or_the_mode() {
    for answer in [TaintAnswer::Gone, TaintAnswer::Withheld] {
        let mut bench = marked_by_us();
        bench.pass(seconds(630));
        bench.answer(&answer);
        bench.pass(seconds(3_600));
        bench.asks_nothing();
        assert_eq!((bench.statuses("a"), bench.notices.deadline()), ((false, true), None));
        bench.deliver(&NodeFact { version: version(9), ..node("a") });
        bench.event(later_state(&event("a")));
        assert_eq!((bench.statuses("a"), bench.edit()), ((true, true), TaintEdit::AddFirst));
    }
}

#[test]
fn n1_a_removal_seen_before_its_answer_is_complete() {
    let mut bench = marked_by_us();
    bench.pass(seconds(630));
    bench.deliver(&NodeFact { version: version(3), ..node("a") });
    assert_eq!(bench.statuses("a"), (false, false));
    bench.answer(&TaintAnswer::Done);
    bench.deliver(&marked(&node("a"), 4));
    assert_eq!(bench.statuses("a"), (false, false), "it belongs to another client");
    bench.pass(seconds(3_600));
    bench.asks_nothing();
}

#[test]
fn n1_a_taint_added_again_during_our_removal_is_foreign() {
    let mut bench = marked_by_us();
    bench.pass(seconds(630));
    bench.deliver(&marked(&node("a"), 9));
    bench.answer(&TaintAnswer::Done);
    assert_eq!(bench.statuses("a"), (false, false));
    bench.asks_nothing();
}

#[test]
fn n1_a_foreign_taint_is_never_removed() {
    let mut bench = Bench::of(&[marked(&node("a"), 1)]);
    bench.event(event("a"));
    bench.pass(seconds(3_600));
    bench.asks_nothing();
    assert_eq!((bench.statuses("a"), bench.notices.deadline()), ((false, false), None));
}

#[test]
fn n1_a_taint_of_another_effect_is_never_removed() {
    let drains = taint(DRAINING, SPOT_EVICTION, "NoExecute");
    let mut bench = marked_by_us();
    bench.deliver(&NodeFact { taints: vec![drains.clone(), mark()], version: version(3), ..node("a") });
    bench.pass(seconds(630));
    let (_, patch) = bench.patch();
    assert_eq!(patch.edit, TaintEdit::Remove { at: 1 });
    let mut bench = marked_by_us();
    bench.deliver(&NodeFact { taints: vec![drains], version: version(3), ..node("a") });
    assert_eq!(
        bench.statuses("a"),
        (true, false),
        "the controller's taint was removed, and the node still has another"
    );
    bench.pass(seconds(3_600));
    bench.asks_nothing();
}

#[test]
fn n1_a_notice_during_the_removal_adds_a_new_taint() {
    for seen_first in [true, false] {
        let mut bench = marked_by_us();
        bench.pass(seconds(630));
        let (call, _) = bench.patch();
        bench.pass(seconds(1));
        bench.event(PreemptionObject { key: key("a.2"), ..event("a") });
        let cleared = NodeFact { version: version(3), ..node("a") };
        if seen_first {
            bench.deliver(&cleared);
        }
        bench.notices.on_tainted(bench.now, call, &TaintAnswer::Done);
        bench.reconcile();
        if !seen_first {
            bench.asks_nothing();
            bench.deliver(&cleared);
        }
        assert_eq!(bench.statuses("a"), (true, true), "{seen_first}");
        let (call, patch) = bench.patch();
        assert_eq!(patch.edit, TaintEdit::AddFirst);
        bench.notices.on_tainted(bench.now, call, &TaintAnswer::Overtaken);
        bench.deliver(&marked(&node("a"), 4));
        assert_eq!(bench.statuses("a"), (true, false), "another client was faster");
    }
}

#[test]
fn n1_a_deleted_node_is_dropped() {
    let mut bench = marked_by_us();
    bench.changed();
    bench.gone("a");
    assert_eq!((bench.statuses("a"), bench.notices.deadline()), ((false, false), None));
    assert_eq!(bench.changed(), [uid("a")]);
}
