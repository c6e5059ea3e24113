//! Tests of the patches that add a taint, and of their answers.

use super::*;

/// Returns the request times of the patches in seconds after the event, with these answers and no other inputs.
fn tries(event: PreemptionObject, fact: &NodeFact, answers: &[TaintAnswer], span: u64) -> Vec<u64> {
    let mut fixture = Fixture::of(std::slice::from_ref(fact));
    let began = fixture.now;
    fixture.event(event);
    let (mut at, mut answers) = (Vec::new(), answers.iter().cycle());
    for _ in 0..span * 10 {
        if let Some((call, _)) = fixture.patches.pop() {
            at.push(fixture.now.since(began).as_secs());
            let answer = answers.next().expect("the answers repeat");
            fixture.notices.on_tainted(fixture.now, call, answer);
            fixture.reconcile();
        }
        fixture.pass(Duration::from_millis(100));
    }
    at
}

#[test]
fn n1_a_failed_patch_is_retried_until_the_notice_has_passed() {
    let dated =
        |in_seconds| PreemptionObject { not_before: Some(NotBefore::In(seconds(in_seconds))), ..event("a") };
    assert_eq!(tries(dated(80), &node("a"), &[lost()], 200), [0, 1, 3, 7, 15, 30, 45, 60, 75]);
    assert_eq!(tries(dated(80), &node("a"), &[denied()], 200), [0, 1, 3, 7, 15, 30, 45, 60, 75]);
    assert_eq!(tries(event("a"), &node("a"), &[lost()], 200), [0, 1, 3, 7, 15], "without a date: after 30 s");
    let old = PreemptionObject { age: Some(seconds(20)), ..event("a") };
    assert_eq!(tries(old, &node("a"), &[lost()], 200), [0, 1, 3, 7]);
}

#[test]
fn n1_failures_of_an_older_notice_do_not_slow_down_a_newer_one() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(event("a"));
    for wait in [1, 2, 4, 8, 15] {
        fixture.answer(&denied());
        fixture.pass(seconds(wait));
    }
    fixture.asks_nothing();
    fixture.pass(seconds(600));
    assert_eq!((fixture.statuses("a"), fixture.notices.deadline()), ((false, false), None));
    fixture.pass(seconds(1));
    fixture.event(later_state(&event("a")));
    fixture.answer(&denied());
    fixture.pass(seconds(1));
    assert_eq!(fixture.edit(), TaintEdit::AddFirst);
}

#[test]
fn n1_a_notice_that_has_passed_is_tried_once() {
    let passed = PreemptionObject { not_before: Some(NotBefore::In(Duration::ZERO)), ..event("a") };
    assert_eq!(tries(passed, &node("a"), &[lost()], 100), [0]);
}

#[test]
fn n1_an_applied_patch_is_not_repeated() {
    let others = NodeFact { taints: vec![spot_pool()], ..node("a") };
    assert_eq!(tries(event("a"), &others, &[lost(), TaintAnswer::Done], 600), [0, 1]);
    assert_eq!(tries(event("a"), &others, &[TaintAnswer::Gone], 600), [0]);
}

#[test]
fn n1_a_patch_with_a_conflict_is_retried_from_the_next_state() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(event("a"));
    fixture.answer(&TaintAnswer::Overtaken);
    fixture.asks_nothing();
    fixture.deliver(&NodeFact { ready: false, ..node("a") });
    fixture.asks_nothing();
    fixture.deliver(&NodeFact { version: version(2), taints: vec![spot_pool()], ..node("a") });
    let (call, patch) = fixture.patch();
    assert_eq!(patch.edit, TaintEdit::AddTo);
    fixture.deliver(&NodeFact { version: version(3), ..node("a") });
    fixture.asks_nothing();
    fixture.notices.on_tainted(fixture.now, call, &TaintAnswer::Overtaken);
    fixture.reconcile();
    assert_eq!(fixture.patch().1.edit, TaintEdit::AddFirst, "the next state arrived before the answer");
}

#[test]
fn n1_a_patch_with_a_conflict_is_repeated_without_a_new_state() {
    assert_eq!(tries(event("a"), &node("a"), &[TaintAnswer::Overtaken, lost()], 100), [0, 1, 3, 7, 15, 30]);
}

#[test]
fn n1_a_conflict_is_no_attempt_of_a_notice_that_has_passed() {
    let passed = PreemptionObject { not_before: Some(NotBefore::In(Duration::ZERO)), ..event("a") };
    let conflict = TaintAnswer::Overtaken;
    let answers = [conflict.clone(), conflict, TaintAnswer::Done];
    assert_eq!(tries(passed, &node("a"), &answers, 100), [0, 1, 3], "a conflict certainly had no effect");
}

#[test]
fn c4_a_withheld_patch_is_not_repeated_until_the_next_notice() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(event("a"));
    fixture.answer(&TaintAnswer::Withheld);
    fixture.event(later_state(&event("a")));
    fixture.deliver(&NodeFact { version: version(2), ..node("a") });
    fixture.pass(seconds(600));
    fixture.asks_nothing();
    assert_eq!(fixture.statuses("a"), (true, false), "nothing of the node is the controller's");
    fixture.pass(seconds(60));
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.event(later_state(&later_state(&event("a"))));
    assert_eq!(fixture.edit(), TaintEdit::AddFirst);
}

#[test]
fn a3_a_late_answer_to_a_patch_is_ignored() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(event("a"));
    let (call, _) = fixture.patch();
    fixture.pass(Duration::from_millis(5_999));
    fixture.notices.on_tainted(fixture.now, CallId(77), &TaintAnswer::Done);
    fixture.reconcile();
    assert_eq!(fixture.samples, [Metric::UnmatchedAnswer]);
    fixture.pass(Duration::from_millis(1));
    assert_eq!(fixture.samples.last(), Some(&Metric::TaintPatch(TaintResult::Failed)));
    fixture.pass(seconds(1));
    let (second, _) = fixture.patch();
    fixture.notices.on_tainted(fixture.now, call, &TaintAnswer::Done);
    fixture.reconcile();
    assert_eq!(fixture.samples.last(), Some(&Metric::UnmatchedAnswer));
    fixture.notices.on_tainted(fixture.now, second, &TaintAnswer::Done);
    fixture.pass(seconds(60));
    fixture.asks_nothing();
}

#[test]
fn n1_every_answer_is_counted() {
    let answers = [
        (TaintAnswer::Done, TaintResult::Done),
        (TaintAnswer::Overtaken, TaintResult::Overtaken),
        (TaintAnswer::Gone, TaintResult::Gone),
        (TaintAnswer::Withheld, TaintResult::Withheld),
        (lost(), TaintResult::Failed),
        (denied(), TaintResult::Failed),
    ];
    for (answer, result) in answers {
        let mut fixture = Fixture::of(&[node("a")]);
        fixture.event(event("a"));
        fixture.answer(&answer);
        assert_eq!(fixture.samples, [Metric::TaintPatch(result)]);
    }
}

#[test]
fn n1_an_existing_taint_is_foreign_and_none_is_added() {
    for effect in ["NoSchedule", "NoExecute"] {
        let before = NodeFact { taints: vec![taint(DRAINING, SPOT_EVICTION, effect)], ..node("a") };
        let mut fixture = Fixture::of(std::slice::from_ref(&before));
        fixture.event(event("a"));
        assert_eq!(fixture.statuses("a"), (true, false));
        fixture.deliver(&NodeFact { version: version(2), ..before });
        fixture.asks_nothing();
        fixture.deliver(&NodeFact { version: version(3), ..node("a") });
        assert_eq!(fixture.statuses("a"), (false, false), "clearing it ends the notice too");
        fixture.asks_nothing();
    }
}

#[test]
fn n1_a_taint_with_another_value_is_no_eviction() {
    let before = NodeFact { taints: vec![taint(DRAINING, "maintenance", "NoExecute")], ..node("a") };
    let mut fixture = Fixture::of(&[before]);
    fixture.event(event("a"));
    assert_eq!((fixture.statuses("a"), fixture.edit()), ((true, true), TaintEdit::AddTo));
}

#[test]
fn n1_a_taint_that_another_client_adds_first_is_foreign() {
    let mut unsent = Fixture::of(&[node("a")]);
    unsent.records = false;
    unsent.event(event("a"));
    unsent.deliver(&marked(&node("a"), 2));
    assert_eq!(unsent.statuses("a"), (true, false));
    unsent.records = true;
    unsent.reconcile();
    unsent.asks_nothing();

    let refusals = [TaintAnswer::Overtaken, denied()];
    for (refusal, fact_first) in refusals.iter().flat_map(|answer| [(answer, true), (answer, false)]) {
        let mut fixture = Fixture::of(&[node("a")]);
        fixture.event(event("a"));
        if fact_first {
            fixture.deliver(&marked(&node("a"), 2));
            assert_eq!(fixture.statuses("a"), (true, true), "it may be the one in flight");
            fixture.answer(refusal);
        } else {
            fixture.answer(refusal);
            fixture.deliver(&marked(&node("a"), 2));
        }
        assert_eq!(fixture.statuses("a"), (true, false), "{refusal:?} {fact_first}");
        fixture.pass(seconds(3_600));
        fixture.asks_nothing();
    }
}

#[test]
fn n1_a_taint_after_a_patch_with_a_lost_answer_is_ours() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(event("a"));
    fixture.answer(&lost());
    fixture.pass(seconds(1));
    fixture.answer(&TaintAnswer::Overtaken);
    fixture.deliver(&marked(&node("a"), 2));
    assert_eq!(fixture.statuses("a"), (true, true));
}

#[test]
fn n1_a_taint_that_never_appears_is_not_recorded_as_ours() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(event("a"));
    fixture.answer(&TaintAnswer::Done);
    fixture.pass(seconds(629));
    assert_eq!(fixture.statuses("a"), (true, true));
    fixture.pass(seconds(1));
    assert_eq!((fixture.statuses("a"), fixture.notices.deadline()), ((false, false), None));
    fixture.asks_nothing();
}
