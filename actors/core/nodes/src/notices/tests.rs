//! Tests of notices and taints on the test's clock, with a port that answers on demand.

mod patches;
mod properties;
mod removal;
mod terms;

use std::sync::Arc;

use super::*;
use model::ids::EventKey;
use model::level::Provenance;
use model::machine::Wall;
use model::object::{
    NotBefore, Object, ObjectKey, Preempt, PreemptionObject, RequestFailure, ResourceVersion, Taint,
    TaintEdit, TaintPatch,
};
use model::signals::{DRAINING, SPOT_EVICTION};
use model::watch::ListCoverage;

const NOTICE: &str = "Preempt Scheduled: Wed, 26 Feb 2025 10:13:13 GMT. DurationInSeconds: -1.";

fn uid(name: &str) -> NodeUid {
    NodeUid::new(format!("uid-of-{name}"))
}

fn version(n: u64) -> ResourceVersion {
    ResourceVersion(n.to_string().into())
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Returns this second of the wall clock.
fn wall(second: i64) -> Option<Wall> {
    Some(Wall::from_micros(second * 1_000_000))
}

fn taint(key: &str, value: &str, effect: &str) -> Taint {
    Taint { key: key.into(), value: value.into(), effect: effect.into() }
}

/// Returns the controller's taint.
fn mark() -> Taint {
    taint(DRAINING, SPOT_EVICTION, "NoSchedule")
}

fn spot_pool() -> Taint {
    taint("kubernetes.azure.com/scalesetpriority", "spot", "NoSchedule")
}

/// Returns a Ready node in its first state.
fn node(name: &str) -> NodeFact {
    NodeFact {
        uid: uid(name),
        name: NodeName::new(name),
        ips: BTreeSet::new(),
        instance: None,
        ready: true,
        excluded: None,
        taints: Vec::new(),
        created: wall(1_000),
        preempt: None,
        version: version(1),
    }
}

fn marked(fact: &NodeFact, n: u64) -> NodeFact {
    let taints = fact.taints.iter().cloned().chain([mark()]).collect();
    NodeFact { taints, version: version(n), ..fact.clone() }
}

fn condition(message: &str, at: i64) -> Option<Preempt> {
    Some(Preempt { at: wall(at), age: Some(Duration::ZERO), not_before: None, message: message.into() })
}

fn key(name: &str) -> EventKey {
    EventKey { namespace: "default".into(), name: name.into() }
}

/// Returns a new event about a node, in its first state.
fn event(of: &str) -> PreemptionObject {
    PreemptionObject {
        key: key(&format!("{of}.1")),
        resource_version: version(1),
        node: NodeName::new(of),
        uid: None,
        at: wall(2_000),
        age: Some(Duration::ZERO),
        not_before: None,
        message: NOTICE.into(),
    }
}

/// Returns the event in a later state.
fn later_state(event: &PreemptionObject) -> PreemptionObject {
    let n: u64 = event.resource_version.0.parse().expect("a number");
    PreemptionObject { resource_version: version(n + 1), ..event.clone() }
}

fn seen(event: PreemptionObject) -> WatchUpdate {
    WatchUpdate::Object(Object::Preemption(Arc::new(event)))
}

fn lost() -> TaintAnswer {
    TaintAnswer::Failed(RequestFailure::Other("connection reset".into()))
}

fn denied() -> TaintAnswer {
    TaintAnswer::Failed(RequestFailure::Denied("may not patch nodes".into()))
}

struct Fixture {
    notices: EvictionNotices,
    now: Now,
    /// True if records are stored immediately.
    records: bool,
    acts: bool,
    patches: Vec<(CallId, TaintPatch)>,
    samples: Vec<Metric>,
}

impl Fixture {
    /// Creates a fixture with these nodes.
    fn of(nodes: &[NodeFact]) -> Fixture {
        let mut fixture = Fixture {
            notices: EvictionNotices::default(),
            now: Now::from_millis(1_000_000),
            records: true,
            acts: true,
            patches: Vec::new(),
            samples: Vec::new(),
        };
        nodes.iter().for_each(|fact| fixture.deliver(fact));
        fixture
    }

    fn reconcile(&mut self) {
        if !self.acts {
            return;
        }
        let (mut out, records) = (Vec::new(), self.records);
        self.notices.reconcile(self.now, |_| records, &mut out);
        for output in out {
            if let Out::Taint(call, patch) = output {
                self.patches.push((call, patch));
            } else if let Out::Metric(sample) = output {
                self.samples.push(sample);
            } else {
                panic!("{output:?}");
            }
        }
        assert!(self.notices.deadline().is_none_or(|at| at > self.now), "no work is due");
    }

    fn deliver(&mut self, fact: &NodeFact) {
        self.notices.on_fact(self.now, fact);
        self.reconcile();
    }

    fn gone(&mut self, name: &str) {
        self.notices.on_gone(self.now, &uid(name));
        self.reconcile();
    }

    fn observe(&mut self, seen: WatchUpdate) {
        self.notices.on_seen(self.now, &seen);
        self.reconcile();
    }

    fn event(&mut self, event: PreemptionObject) {
        self.observe(seen(event));
    }

    /// Delivers a complete list of events.
    fn list(&mut self, events: Vec<PreemptionObject>) {
        self.observe(WatchUpdate::ListBegan(Provenance::FirstList));
        events.into_iter().for_each(|event| self.event(event));
        self.observe(WatchUpdate::ListDone { resource_version: version(9), serves: ListCoverage::default() });
    }

    /// Returns the only patch requested since the last call.
    fn patch(&mut self) -> (CallId, TaintPatch) {
        let patches = std::mem::take(&mut self.patches);
        let [patch] = &patches[..] else { panic!("not exactly one patch: {patches:?}") };
        patch.clone()
    }

    fn edit(&mut self) -> TaintEdit {
        self.patch().1.edit
    }

    #[track_caller]
    fn asks_nothing(&self) {
        assert!(self.patches.is_empty(), "{:?}", self.patches);
    }

    /// Answers the only requested patch.
    fn answer(&mut self, answer: &TaintAnswer) {
        let (call, _) = self.patch();
        self.notices.on_tainted(self.now, call, answer);
        self.reconcile();
    }

    /// Advances the clock, with all due work.
    fn pass(&mut self, span: Duration) {
        let until = self.now.plus(span);
        while let Some(at) = self.notices.deadline().filter(|at| self.acts && *at <= until) {
            self.now = at;
            self.reconcile();
        }
        self.now = until;
        self.reconcile();
    }

    fn statuses(&self, name: &str) -> (bool, bool) {
        (self.notices.is_noticed(&uid(name)), self.notices.is_ours(&uid(name)))
    }

    fn changed(&mut self) -> Vec<NodeUid> {
        self.notices.changed().into_iter().collect()
    }
}

/// Returns a fixture with a node that has the controller's taint after an event. The notice has passed 30 s after the
/// start.
fn marked_by_us() -> Fixture {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(event("a"));
    fixture.answer(&TaintAnswer::Done);
    fixture.deliver(&marked(&node("a"), 2));
    assert_eq!(fixture.statuses("a"), (true, true));
    fixture
}

#[test]
fn n1_an_event_taints_its_node_after_the_record() {
    let mut fixture = Fixture::of(&[node("a"), node("b")]);
    fixture.records = false;
    assert_eq!(fixture.changed(), []);
    fixture.event(event("a"));
    assert_eq!((fixture.statuses("a"), fixture.statuses("b")), ((true, true), (false, false)));
    assert_eq!((fixture.changed(), fixture.changed()), (vec![uid("a")], vec![]));
    fixture.asks_nothing();
    fixture.records = true;
    fixture.reconcile();
    let (call, patch) = fixture.patch();
    assert_eq!(patch, TaintPatch { node: NodeName::new("a"), uid: uid("a"), edit: TaintEdit::AddFirst });
    fixture.notices.on_tainted(fixture.now, call, &TaintAnswer::Done);
    fixture.deliver(&marked(&super::tests::node("a"), 2));
    fixture.pass(seconds(600));
    fixture.asks_nothing();
    assert_eq!(fixture.samples, [Metric::TaintPatch(TaintResult::Done)]);
    assert_eq!(fixture.statuses("a"), (true, true));
}

#[test]
fn n1_the_taint_is_added_to_existing_taints() {
    let mut fixture = Fixture::of(&[NodeFact { taints: vec![spot_pool()], ..node("a") }]);
    fixture.event(event("a"));
    assert_eq!(fixture.edit(), TaintEdit::AddTo);
}

#[test]
fn n1_a_failed_metadata_query_is_no_notice() {
    let mut fixture = Fixture::of(&[node("a")]);
    let failed = "IMDS query failed, exit code: 28 / Connection timed out after 24 seconds.";
    fixture.event(PreemptionObject { message: failed.into(), ..event("a") });
    fixture.deliver(&NodeFact { preempt: condition(failed, 2_000), ..node("a") });
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.event(PreemptionObject { message: "unknown text".into(), ..later_state(&event("a")) });
    assert_eq!(fixture.statuses("a"), (true, true), "any other event is one");
}

/// Returns whether a notice with these times counts for a node that is, or is not, Ready. Checks events from a list and
/// from a watch, and conditions of new and known nodes.
fn counts(age: Option<Duration>, not_before: Option<NotBefore>, ready: bool) -> bool {
    let node = NodeFact { ready, ..node("a") };
    let event = PreemptionObject { age, not_before, ..event("a") };
    let preempt = condition(NOTICE, 2_000).map(|preempt| Preempt { age, not_before, ..preempt });
    let with_condition = NodeFact { preempt, version: version(2), ..node.clone() };

    let mut listed = Fixture::of(std::slice::from_ref(&node));
    listed.list(vec![event.clone()]);
    let mut watched = Fixture::of(std::slice::from_ref(&node));
    watched.list(Vec::new());
    watched.event(event);
    let new = Fixture::of(std::slice::from_ref(&with_condition));
    let mut known = Fixture::of(&[node]);
    known.deliver(&with_condition);
    let all = [listed, watched, new, known].map(|fixture| fixture.statuses("a").0);
    assert!(all.iter().all(|one| *one == all[0]), "event listed, watched, condition new, known: {all:?}");
    all[0]
}

#[test]
fn n1_a_notice_counts_until_it_is_60_s_overdue() {
    let (young, old) = (seconds(60) - Duration::from_micros(1), seconds(60));
    for (age, not_before, expected) in [
        (Some(young), None, true),
        (Some(old), None, false),
        (None, None, false),
        (Some(old), Some(NotBefore::In(seconds(1))), true),
        (Some(old), Some(NotBefore::Ago(young)), true),
        (None, Some(NotBefore::Ago(young)), true),
        (Some(Duration::ZERO), Some(NotBefore::Ago(old)), false),
    ] {
        assert_eq!(counts(age, not_before, true), expected, "{age:?} {not_before:?}");
        assert!(counts(age, not_before, false), "{age:?} {not_before:?} of a node that is not Ready");
    }
}

#[test]
fn n1_an_ignored_notice_is_not_the_first() {
    let old = Preempt { age: Some(seconds(99)), ..condition(NOTICE, 2_000).expect("a condition") };
    let told = NodeFact { preempt: Some(old), version: version(2), ..node("a") };
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.deliver(&told);
    fixture.deliver(&NodeFact { version: version(3), ..told.clone() });
    fixture.event(PreemptionObject { age: Some(seconds(99)), ..event("a") });
    let ignored = (NodeName::new("a"), IgnoredNotice::Old(seconds(99)));
    assert_eq!(fixture.notices.take_ignored(fixture.now), [ignored.clone(), ignored], "each once");
    assert_eq!((fixture.statuses("a"), fixture.patches.len()), ((false, false), 0));
    let mut not_ready = Fixture { notices: std::mem::take(&mut fixture.notices), ..Fixture::of(&[]) };
    not_ready.deliver(&NodeFact { ready: false, version: version(4), ..told });
    assert_eq!(
        not_ready.statuses("a"),
        (true, true),
        "the condition counts as soon as the node is not Ready"
    );
}

#[test]
fn n1_a_notice_about_an_unknown_node_is_reported_after_60_s() {
    let mut fixture = Fixture::of(&[node("other")]);
    fixture.event(event("a"));
    assert_eq!(
        fixture.notices.waits_until(),
        Some(fixture.now.plus(seconds(60)).plus(Duration::from_micros(1)))
    );
    fixture.pass(seconds(60));
    assert_eq!(fixture.notices.take_ignored(fixture.now), []);
    fixture.pass(seconds(1));
    assert_eq!(fixture.notices.take_ignored(fixture.now), [(NodeName::new("a"), IgnoredNotice::UnknownNode)]);
    assert_eq!(
        (fixture.notices.take_ignored(fixture.now), fixture.notices.waits_until()),
        (Vec::new(), None)
    );
}

#[test]
fn n1_scheduled_events_other_than_preempt_are_no_notices() {
    let mut fixture = Fixture::of(&[node("a")]);
    for event in ["Freeze", "Reboot", "Redeploy", "Terminate", "Rebalance"] {
        let preempt = condition(&NOTICE.replace("Preempt", event), 2_000);
        fixture.deliver(&NodeFact { preempt, ..node("a") });
    }
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.deliver(&NodeFact { preempt: condition("Preempt Started", 2_000), ..node("a") });
    assert_eq!(fixture.statuses("a"), (true, true));
}

#[test]
fn s1_duplicate_events_are_ignored_once_the_taint_exists() {
    let mut fixture = marked_by_us();
    let second = PreemptionObject { key: key("a.2"), ..event("a") };
    for duplicate in [later_state(&event("a")), second.clone(), later_state(&second)] {
        fixture.event(duplicate);
        fixture.pass(seconds(20));
    }
    fixture.asks_nothing();
    assert_eq!(fixture.changed(), [uid("a")], "of the first");
}

#[test]
fn s1_an_event_and_a_condition_of_one_eviction_are_one_notice() {
    let told = NodeFact { preempt: condition(NOTICE, 2_000), version: version(2), ..node("a") };
    let mut event_first = Fixture::of(&[node("a")]);
    event_first.event(event("a"));
    event_first.deliver(&told);
    let mut condition_first = Fixture::of(&[node("a")]);
    condition_first.deliver(&told);
    condition_first.event(event("a"));
    for mut fixture in [event_first, condition_first] {
        fixture.answer(&TaintAnswer::Done);
        fixture.deliver(&marked(&told, 3));
        fixture.pass(seconds(60));
        fixture.asks_nothing();
        assert_eq!(fixture.statuses("a"), (true, true));
    }
}

#[test]
fn s1_an_event_in_several_lists_counts_once() {
    let mut fixture = marked_by_us();
    fixture.deliver(&NodeFact { version: version(3), ..node("a") });
    assert_eq!(fixture.statuses("a"), (false, false), "the operator has cleared the taint");
    fixture.pass(seconds(1));
    fixture.list(vec![event("a")]);
    fixture.observe(WatchUpdate::ListBegan(Provenance::Relist));
    fixture.event(event("a"));
    fixture.observe(WatchUpdate::ListAborted);
    fixture.observe(WatchUpdate::Reconnected);
    fixture.event(event("a"));
    assert_eq!(fixture.statuses("a"), (false, false));
}

#[test]
fn s1_an_event_that_reuses_the_name_of_a_deleted_one_is_new() {
    let deleted = |fixture: &mut Fixture| {
        let key = ObjectKey::Preemption(key("a.1"));
        fixture.observe(WatchUpdate::Deleted { key, resource_version: version(9) });
    };
    let missed = |fixture: &mut Fixture| fixture.list(Vec::new());
    for ends in [deleted, missed] {
        let mut fixture = marked_by_us();
        fixture.deliver(&NodeFact { version: version(3), ..node("a") });
        fixture.pass(seconds(1));
        ends(&mut fixture);
        fixture.event(event("a"));
        assert_eq!(fixture.statuses("a"), (true, true));
    }
}

#[test]
fn s1_after_the_taint_was_cleared_only_a_newer_event_counts() {
    let mut fixture = marked_by_us();
    fixture.pass(seconds(10));
    fixture.deliver(&NodeFact { version: version(3), ..node("a") });
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.pass(seconds(2));
    let late = PreemptionObject { age: Some(seconds(3)), ..later_state(&event("a")) };
    fixture.event(late.clone());
    fixture.event(PreemptionObject { key: key("late"), age: Some(seconds(2)), ..event("a") });
    assert_eq!(fixture.statuses("a"), (false, false), "they were sent before");
    fixture.event(PreemptionObject { age: Some(seconds(1)), ..later_state(&late) });
    assert_eq!(fixture.statuses("a"), (true, true));
    assert_eq!(fixture.edit(), TaintEdit::AddFirst);
}

#[test]
fn s1_after_the_taint_was_cleared_only_another_condition_counts() {
    let told = NodeFact { preempt: condition(NOTICE, 2_000), ..node("a") };
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.deliver(&told);
    fixture.answer(&TaintAnswer::Done);
    fixture.deliver(&marked(&told, 2));
    let cleared = NodeFact { version: version(3), ..told.clone() };
    fixture.deliver(&cleared);
    fixture.pass(seconds(5));
    fixture.deliver(&NodeFact { version: version(4), ..told });
    fixture.deliver(&NodeFact { version: version(5), preempt: None, ..cleared.clone() });
    fixture.deliver(&NodeFact { version: version(6), ..cleared.clone() });
    let older = condition("Preempt Started", 2_000).map(|it| Preempt { age: Some(seconds(59)), ..it });
    let same_time = NodeFact { preempt: older, version: version(7), ..cleared.clone() };
    for other in [same_time, NodeFact { preempt: condition(NOTICE, 2_010), ..cleared }] {
        let mut fixture = Fixture { notices: std::mem::take(&mut fixture.notices), ..Fixture::of(&[]) };
        fixture.now = fixture.now.plus(seconds(5));
        fixture.deliver(&other);
        assert_eq!(fixture.statuses("a"), (true, true));
        fixture.answer(&TaintAnswer::Done);
        fixture.deliver(&marked(&other, 8));
        fixture.deliver(&NodeFact { version: version(9), ..other });
        assert_eq!(fixture.statuses("a"), (false, false));
    }
}

#[test]
fn s1_a_condition_from_before_the_taint_was_cleared_is_ignored() {
    for heard in [None, condition(NOTICE, 1_999)] {
        let mut fixture = marked_by_us();
        fixture.deliver(&NodeFact { preempt: heard, ..marked(&node("a"), 2) });
        fixture.deliver(&NodeFact { version: version(3), ..node("a") });
        fixture.pass(seconds(4));
        for (age, counts) in [(4_u32, false), (3, true)] {
            let at = 2_000 - i64::from(age);
            let late = condition(NOTICE, at).map(|it| Preempt { age: Some(seconds(age.into())), ..it });
            fixture.deliver(&NodeFact { preempt: late, ..node("a") });
            assert_eq!(fixture.statuses("a"), (counts, counts), "{age}");
        }
    }
}

#[test]
fn n1_a_notice_older_than_its_node_is_about_another_node() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(PreemptionObject { at: wall(999), ..event("a") });
    fixture.deliver(&NodeFact { preempt: condition(NOTICE, 999), ..node("a") });
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.event(PreemptionObject { at: wall(1_000), ..later_state(&event("a")) });
    assert_eq!(fixture.statuses("a"), (true, true));
}

#[test]
fn s1_a_recreated_node_counts_as_new() {
    let mut fixture = marked_by_us();
    let successor = NodeFact { uid: uid("new"), created: wall(3_000), ..node("a") };
    fixture.deliver(&successor);
    fixture.gone("a");
    assert_eq!((fixture.statuses("a"), fixture.statuses("new")), ((false, false), (false, false)));
    assert_eq!(fixture.changed(), [uid("a")]);
    fixture.event(later_state(&event("a")));
    assert_eq!(fixture.statuses("new"), (false, false), "it is older than the node");
    fixture.event(PreemptionObject { at: wall(3_001), ..later_state(&later_state(&event("a"))) });
    assert_eq!((fixture.statuses("new"), fixture.edit()), ((true, true), TaintEdit::AddFirst));
}

#[test]
fn n1_a_uid_overrides_the_name() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(PreemptionObject { uid: Some(uid("old")), ..event("a") });
    assert_eq!(fixture.statuses("a"), (false, false));
    fixture.event(PreemptionObject { uid: Some(uid("a")), ..later_state(&event("a")) });
    assert_eq!(fixture.statuses("a"), (true, true));
}

#[test]
fn n1_an_event_waits_60_s_for_its_node() {
    for (span, counts) in [(seconds(59), true), (seconds(61), false)] {
        let mut fixture = Fixture::of(&[node("other")]);
        fixture.event(event("a"));
        fixture.pass(span);
        fixture.event(event("third"));
        fixture.deliver(&node("a"));
        assert_eq!(fixture.statuses("a"), (counts, counts), "{span:?}");
    }
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(PreemptionObject { uid: Some(uid("new")), ..event("a") });
    fixture.deliver(&NodeFact { uid: uid("new"), ..node("a") });
    assert_eq!(
        (fixture.statuses("a"), fixture.statuses("new")),
        ((false, false), (true, true)),
        "the node with its UID"
    );
}

#[test]
fn n1_other_objects_are_no_notices() {
    let mut fixture = Fixture::of(&[node("a")]);
    fixture.event(event("gone"));
    let key = ObjectKey::Preemption(key("gone.1"));
    fixture.observe(WatchUpdate::Deleted { key, resource_version: version(9) });
    fixture.observe(WatchUpdate::Bookmark(version(10)));
    fixture.deliver(&node("gone"));
    assert_eq!((fixture.statuses("a"), fixture.statuses("gone")), ((false, false), (true, true)));
}
