//! Tests of the removal of the controller's taint, and of foreign taints.

use super::*;

#[test]
fn n1_our_taint_is_removed_after_10_min_ready_since_the_notice() {
    let mut fixture = marked_by_us();
    fixture.deliver(&NodeFact { version: version(7), ..marked(&node("a"), 2) });
    fixture.pass(seconds(629));
    fixture.asks_nothing();
    assert_eq!(fixture.statuses("a"), (true, true));
    fixture.pass(seconds(1));
    let (call, patch) = fixture.patch();
    assert_eq!((patch.edit, patch.uid), (TaintEdit::Remove { at: 0 }, uid("a")));
    assert_eq!(fixture.statuses("a"), (false, true), "the record stays until the taint is removed");
    fixture.notices.on_tainted(fixture.now, call, &TaintAnswer::Done);
    fixture.reconcile();
    assert_eq!(fixture.statuses("a"), (false, true));
    fixture.deliver(&NodeFact { version: version(8), ..node("a") });
    assert_eq!((fixture.statuses("a"), fixture.notices.deadline()), ((false, false), None));
    fixture.asks_nothing();
}

#[test]
fn n1_our_taint_stays_ours_when_a_list_lacks_the_node() {
    for (away, ours) in [(599, true), (600, false)] {
        let mut fixture = marked_by_us();
        fixture.gone("a");
        assert_eq!(fixture.statuses("a"), (false, false));
        fixture.pass(seconds(away));
        fixture.deliver(&marked(&node("a"), 2));
        assert_eq!(fixture.statuses("a"), (false, ours), "after {away} s");
        fixture.pass(seconds(630));
        assert_eq!(fixture.patches.len(), usize::from(ours));
    }
    let mut fixture = marked_by_us();
    fixture.gone("a");
    fixture.deliver(&NodeFact { version: version(3), ..node("a") });
    assert_eq!(fixture.statuses("a"), (false, false), "another client has removed it");
    // Another component sets the taint before the controller's patch is sent, so that it is foreign.
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.acts = false;
    fixture.event(event("a"));
    fixture.gone("a");
    fixture.deliver(&marked(&node("a"), 2));
    assert_eq!(fixture.statuses("a"), (false, false));
}

#[test]
fn n1_a_notice_passes_at_its_date() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(PreemptionObject { not_before: Some(NotBefore::In(seconds(300))), ..event("a") });
    fixture.answer(&TaintAnswer::Done);
    fixture.deliver(&marked(&node("a"), 2));
    fixture.pass(seconds(899));
    fixture.asks_nothing();
    fixture.pass(seconds(1));
    assert_eq!(fixture.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_not_ready_node_restarts_the_10_min() {
    let mut fixture = marked_by_us();
    fixture.pass(seconds(620));
    fixture.deliver(&NodeFact { ready: false, ..marked(&node("a"), 3) });
    fixture.pass(seconds(3_600));
    fixture.asks_nothing();
    assert_eq!(fixture.statuses("a"), (true, true));
    fixture.deliver(&marked(&node("a"), 4));
    fixture.pass(seconds(599));
    fixture.asks_nothing();
    fixture.pass(seconds(1));
    assert_eq!(fixture.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_not_ready_node_keeps_its_taint_after_a_failed_removal() {
    let mut fixture = marked_by_us();
    fixture.pass(seconds(630));
    fixture.answer(&TaintAnswer::Overtaken);
    fixture.deliver(&NodeFact { ready: false, ..marked(&node("a"), 3) });
    fixture.pass(seconds(60));
    fixture.asks_nothing();
    assert_eq!((fixture.statuses("a"), fixture.notices.deadline()), ((false, true), None));
    fixture.deliver(&marked(&node("a"), 4));
    fixture.pass(seconds(600));
    assert_eq!(fixture.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_later_notice_delays_the_removal() {
    let mut fixture = marked_by_us();
    fixture.pass(seconds(600));
    fixture.event(later_state(&event("a")));
    fixture.pass(seconds(629));
    fixture.asks_nothing();
    fixture.pass(seconds(1));
    assert_eq!(fixture.edit(), TaintEdit::Remove { at: 0 });
}

#[test]
fn n1_a_removal_is_retried_until_it_succeeds() {
    let mut fixture = marked_by_us();
    fixture.pass(seconds(630));
    for wait in [1, 2, 4, 8, 15, 15] {
        fixture.answer(&lost());
        fixture.pass(Duration::from_millis(wait * 1_000 - 1));
        fixture.asks_nothing();
        fixture.pass(Duration::from_millis(1));
    }
    fixture.answer(&TaintAnswer::Overtaken);
    fixture.deliver(&NodeFact { taints: vec![spot_pool(), mark()], version: version(9), ..node("a") });
    let (call, patch) = fixture.patch();
    assert_eq!(patch.edit, TaintEdit::Remove { at: 1 });
    fixture.notices.on_tainted(fixture.now, call, &TaintAnswer::Done);
    fixture.pass(seconds(60));
    fixture.asks_nothing();
    fixture.deliver(&NodeFact { taints: vec![spot_pool(), mark()], version: version(11), ..node("a") });
    assert_eq!(fixture.statuses("a"), (false, false), "another client has added it again");
    fixture.pass(seconds(3_600));
    fixture.asks_nothing();
}

#[test]
fn n1_a_removal_is_not_retried_without_its_node_or_the_mode() {
    for answer in [TaintAnswer::Gone, TaintAnswer::Withheld] {
        let mut fixture = marked_by_us();
        fixture.pass(seconds(630));
        fixture.answer(&answer);
        fixture.pass(seconds(3_600));
        fixture.asks_nothing();
        assert_eq!((fixture.statuses("a"), fixture.notices.deadline()), ((false, true), None));
        fixture.deliver(&NodeFact { version: version(9), ..node("a") });
        fixture.event(later_state(&event("a")));
        assert_eq!((fixture.statuses("a"), fixture.edit()), ((true, true), TaintEdit::AddFirst));
    }
}

#[test]
fn n1_a_removal_seen_before_its_answer_is_complete() {
    let mut fixture = marked_by_us();
    fixture.pass(seconds(630));
    fixture.deliver(&NodeFact { version: version(3), ..node("a") });
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.answer(&TaintAnswer::Done);
    fixture.deliver(&marked(&node("a"), 4));
    assert_eq!(fixture.statuses("a"), (false, false), "it belongs to another client");
    fixture.pass(seconds(3_600));
    fixture.asks_nothing();
}

#[test]
fn n1_a_taint_added_again_during_our_removal_is_foreign() {
    let mut fixture = marked_by_us();
    fixture.pass(seconds(630));
    fixture.deliver(&marked(&node("a"), 9));
    fixture.answer(&TaintAnswer::Done);
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.asks_nothing();
}

#[test]
fn n1_a_foreign_taint_is_never_removed() {
    let mut fixture = Fixture::of(&[marked(&node("a"), 1)]);
    fixture.event(event("a"));
    fixture.pass(seconds(3_600));
    fixture.asks_nothing();
    assert_eq!((fixture.statuses("a"), fixture.notices.deadline()), ((false, false), None));
}

#[test]
fn n1_a_taint_of_another_effect_is_never_removed() {
    let drains = taint(DRAINING, SPOT_EVICTION, "NoExecute");
    let mut fixture = marked_by_us();
    fixture.deliver(&NodeFact { taints: vec![drains.clone(), mark()], version: version(3), ..node("a") });
    fixture.pass(seconds(630));
    let (_, patch) = fixture.patch();
    assert_eq!(patch.edit, TaintEdit::Remove { at: 1 });
    let mut fixture = marked_by_us();
    fixture.deliver(&NodeFact { taints: vec![drains], version: version(3), ..node("a") });
    assert_eq!(
        fixture.statuses("a"),
        (true, false),
        "the controller's taint was removed, and the node still has another"
    );
    fixture.pass(seconds(3_600));
    fixture.asks_nothing();
}

#[test]
fn n1_a_notice_during_the_removal_adds_a_new_taint() {
    for seen_first in [true, false] {
        let mut fixture = marked_by_us();
        fixture.pass(seconds(630));
        let (call, _) = fixture.patch();
        fixture.pass(seconds(1));
        fixture.event(PreemptionObject { key: key("a.2"), ..event("a") });
        let cleared = NodeFact { version: version(3), ..node("a") };
        if seen_first {
            fixture.deliver(&cleared);
        }
        fixture.notices.on_tainted(fixture.now, call, &TaintAnswer::Done);
        fixture.reconcile();
        if !seen_first {
            fixture.asks_nothing();
            fixture.deliver(&cleared);
        }
        assert_eq!(fixture.statuses("a"), (true, true), "{seen_first}");
        let (call, patch) = fixture.patch();
        assert_eq!(patch.edit, TaintEdit::AddFirst);
        fixture.notices.on_tainted(fixture.now, call, &TaintAnswer::Overtaken);
        fixture.deliver(&marked(&node("a"), 4));
        assert_eq!(fixture.statuses("a"), (true, false), "another client was faster");
    }
}

#[test]
fn n1_a_deleted_node_is_dropped() {
    let mut fixture = marked_by_us();
    fixture.changed();
    fixture.gone("a");
    assert_eq!((fixture.statuses("a"), fixture.notices.deadline()), ((false, false), None));
    assert_eq!(fixture.changed(), [uid("a")]);
}
