//! Tests of the confirmation of a term by lists (W8, D6).

use proptest::prelude::*;

use super::*;

/// Returns the confirmed terms; no fact may follow a confirmation in the same turn.
fn confirmed(out: &[Out]) -> Vec<u64> {
    let mut terms = Vec::new();
    for output in out {
        match output {
            Out::Confirmed(Epoch(term)) => terms.push(*term),
            Out::Service(..) | Out::Synced => {
                assert!(terms.is_empty(), "a fact comes after the confirmation")
            }
            Out::AwaitingIngress(_)
            | Out::Node(..)
            | Out::Cached(..)
            | Out::Relist(..)
            | Out::Report(_)
            | Out::Ended(_)
            | Out::Reread(_)
            | Out::ReadUpTo(_)
            | Out::Metric(_) => {}
        }
    }
    terms
}

impl Run {
    /// Delivers a list of these objects with this version, which serves this term.
    fn list_for<T: Into<Object>>(&mut self, kind: Kind, objects: Vec<T>, n: u64, term: u64) {
        self.observe(kind, WatchUpdate::ListBegan(Provenance::Relist));
        for object in objects {
            self.observe(kind, WatchUpdate::Object(stamped(object.into(), n)));
        }
        self.list_done(kind, n, Some(term));
    }
}

fn web(on: &str) -> Vec<SliceObject> {
    vec![slice("web-1", "web", &[on])]
}

/// Returns the completed second reads; no fact may follow one in the same turn.
fn reread(out: &[Out]) -> Vec<u64> {
    let mut reads = Vec::new();
    for output in out {
        match output {
            Out::Reread(ReadId(read)) => reads.push(*read),
            Out::Service(..) => assert!(reads.is_empty(), "a fact comes after the second read"),
            Out::Confirmed(_)
            | Out::ReadUpTo(_)
            | Out::Synced
            | Out::AwaitingIngress(_)
            | Out::Node(..)
            | Out::Cached(..)
            | Out::Relist(..)
            | Out::Report(_)
            | Out::Ended(_)
            | Out::Metric(_) => {}
        }
    }
    reads
}

#[test]
fn g1_a_second_read_is_complete_with_lists_of_all_its_kinds() {
    let mut run = Run::synced(vec![service("web")], web("n1"));
    let list = |run: &mut Run, kind: Kind, objects: Vec<Object>, n: u64, blind: bool| {
        run.observe(kind, WatchUpdate::ListBegan(Provenance::Relist));
        objects.into_iter().for_each(|object| run.observe(kind, WatchUpdate::Object(stamped(object, n))));
        if blind {
            run.observe(
                kind,
                WatchUpdate::Undecodable {
                    key: None,
                    owner: Owner::Unknown,
                    error: "torn".into(),
                    before: None,
                },
            );
        }
        let serves = ListCoverage { term: None, read: Some(ReadId(5)) };
        run.observe(kind, WatchUpdate::ListDone { resource_version: version(n), serves });
    };
    let nodes = || vec![node("n1", &["10.0.0.1"]).into(), node("n2", &["10.0.0.2"]).into()];
    list(&mut run, Kind::Services, vec![service("web").into()], 200, false);
    list(&mut run, Kind::Nodes, nodes(), 200, true);
    let slices = web("n2").into_iter().map(Object::from).collect();
    list(&mut run, Kind::EndpointSlices, slices, 200, false);
    assert_eq!(reread(&run.turn()), [], "a list in which anything may be missing resolves nothing");
    list(&mut run, Kind::Nodes, nodes(), 150, false);
    assert_eq!(reread(&run.turn()), [], "nor does one that is older than what was seen");
    list(&mut run, Kind::Nodes, nodes(), 201, false);
    assert_eq!(reread(&run.turn()), [5]);
    list(&mut run, Kind::Nodes, nodes(), 202, false);
    assert_eq!(reread(&run.turn()), [], "once");
}

#[test]
fn g1_the_end_of_a_vanished_node_has_the_doubt_of_its_list() {
    for (listed, provenance) in [(true, Provenance::Relist), (false, Provenance::Watch)] {
        let mut run = Run::synced(vec![service("web")], web("n1"));
        if listed {
            run.list(Kind::Nodes, vec![node("n2", &["10.0.0.2"])]);
        } else {
            run.gone(node_key("n1"));
        }
        assert_eq!(shown(&run.fact(), V4), " | 1", "the last known address");
        let out = run.pass(300);
        let [(_, Some(fact))] = &facts(&out)[..] else { panic!("one fact was said: {out:?}") };
        assert_eq!((shown(fact, V4).as_str(), fact.provenance), (" | ", provenance));
    }
}

#[test]
fn w8_a_term_is_confirmed_after_the_facts_of_lists_of_all_kinds() {
    let mut run = Run::synced(vec![service("web")], web("n1"));
    run.list_for(Kind::Services, vec![service("web")], 200, 3);
    run.list_for(Kind::Nodes, vec![node("n2", &["10.0.0.2"])], 200, 3);
    assert_eq!(confirmed(&run.turn()), []);
    run.observe(Kind::EndpointSlices, WatchUpdate::ListBegan(Provenance::Relist));
    run.observe(Kind::EndpointSlices, WatchUpdate::ListAborted);
    assert_eq!(confirmed(&run.turn()), [], "one that broke off is none");
    run.list_for(Kind::EndpointSlices, web("n2"), 200, 3);
    let out = run.turn();
    assert_eq!(confirmed(&out), [3]);
    let [(_, Some(fact))] = &facts(&out)[..] else { panic!("one fact was said: {out:?}") };
    assert_eq!(shown(fact, V4), "2 | ");
    run.list_for(Kind::Services, vec![service("web")], 201, 3);
    assert_eq!(confirmed(&run.turn()), [], "once");
    for kind in Kind::OF_LEVELS {
        run.observe(kind, WatchUpdate::ListBegan(Provenance::Relist));
        run.list_done(kind, 300, Some(4));
    }
    assert_eq!(confirmed(&run.turn()), [4], "also when nothing else is news");
}

#[test]
fn d6_an_older_list_confirms_nothing() {
    let mut run = Run::synced(vec![service("web")], web("n1"));
    run.version = 500;
    run.put(slice("web-1", "web", &["n3"]));
    run.turn();
    run.list_for(Kind::Services, vec![service("web")], 502, 3);
    run.list_for(Kind::Nodes, vec![node("n3", &["10.0.0.3"])], 502, 3);
    run.list_for(Kind::EndpointSlices, web("n1"), 499, 3);
    let out = run.turn();
    assert_eq!(confirmed(&out), [], "a server that lags behind takes no term back in time");
    assert!(
        out.iter().any(|output| matches!(output, Out::Relist(Kind::EndpointSlices, RelistReason::Stale)))
    );
    run.list_for(Kind::EndpointSlices, web("n3"), 501, 3);
    assert_eq!(confirmed(&run.turn()), [3]);
}

#[test]
fn d6_a_list_of_restored_storage_confirms_once_accepted() {
    let mut run = refusing(30);
    run.list_for(Kind::Services, Vec::<ServiceObject>::new(), 600, 3);
    run.list_for(Kind::Nodes, Vec::<NodeObject>::new(), 600, 3);
    run.list_for(Kind::EndpointSlices, web("n2"), 330, 3);
    let out = run.turn();
    assert!(samples(&out).contains(&Metric::StaleAccepted(Kind::EndpointSlices)));
    assert_eq!(confirmed(&out), [3]);
}

#[test]
fn w8_if_any_list_serves_a_term_the_current_lists_confirm_it() {
    let mut run = Run::synced(vec![], vec![]);
    for kind in Kind::OF_LEVELS {
        run.observe(kind, WatchUpdate::AnyList(Epoch(1)));
    }
    assert_eq!(confirmed(&run.turn()), [1]);

    let mut run = Run::of(params());
    run.observe(Kind::Nodes, WatchUpdate::AnyList(Epoch(1)));
    run.list(Kind::Nodes, Vec::<NodeObject>::new());
    run.observe(Kind::Services, WatchUpdate::ListBegan(Provenance::FirstList));
    run.observe(Kind::Services, WatchUpdate::AnyList(Epoch(1)));
    run.list_done(Kind::Services, 100, None);
    run.list(Kind::EndpointSlices, web("n1"));
    let out = run.turn();
    assert_eq!(
        (confirmed(&out), out.iter().filter(|output| matches!(output, Out::Synced)).count()),
        (vec![], 1)
    );
    run.observe(Kind::EndpointSlices, WatchUpdate::AnyList(Epoch(1)));
    assert_eq!(confirmed(&run.turn()), [1]);
}

#[derive(Clone, Debug)]
enum Action {
    /// A list ends, for this term, with a version newer or older than earlier ones by this much.
    List(Kind, i64, Option<u64>),
    Aborted(Kind),
    AnyList(Kind, u64),
    Turn,
}

fn action() -> impl Strategy<Value = Action> {
    let kind = || prop::sample::select(Kind::OF_LEVELS.to_vec());
    prop_oneof![
        6 => (kind(), -2_i64..5, prop::option::weighted(0.9, 0_u64..5))
            .prop_map(|(kind, newer, term)| Action::List(kind, newer, term)),
        1 => kind().prop_map(Action::Aborted),
        1 => (kind(), 0_u64..3).prop_map(|(kind, term)| Action::AnyList(kind, term)),
        3 => Just(Action::Turn),
    ]
}

proptest! {
    /// Safety: a term is confirmed only if each kind has a committed list that serves it. Liveness: a term with lists
    /// of all kinds is confirmed in the same turn, once.
    #[test]
    fn w8_a_term_is_confirmed_only_by_accepted_lists_of_all_kinds(
        actions in prop::collection::vec(action(), 0..40),
    ) {
        let mut run = Run::of(params());
        let mut reached: BTreeMap<Kind, i64> = BTreeMap::new();
        let mut served: BTreeMap<Kind, Option<u64>> = BTreeMap::new();
        let mut any: BTreeMap<Kind, Option<u64>> = BTreeMap::new();
        let mut confirmed_term = None;
        for action in actions.into_iter().chain([Action::Turn]) {
            match action {
                Action::List(kind, newer, term) => {
                    let before = reached.get(&kind).copied();
                    let n = before.unwrap_or(100) + newer;
                    run.observe(kind, WatchUpdate::ListBegan(Provenance::Relist));
                    run.list_done(kind, n.unsigned_abs(), term);
                    if before.is_none_or(|before| n >= before) {
                        reached.insert(kind, n);
                        let any = any.get(&kind).copied().flatten();
                        let served = served.entry(kind).or_default();
                        *served = (*served).max(term).max(any);
                    }
                }
                Action::Aborted(kind) => {
                    run.observe(kind, WatchUpdate::ListBegan(Provenance::Relist));
                    run.observe(kind, WatchUpdate::ListAborted);
                }
                Action::AnyList(kind, term) => {
                    run.observe(kind, WatchUpdate::AnyList(Epoch(term)));
                    let any = any.entry(kind).or_default();
                    *any = (*any).max(Some(term));
                    if let Some(served) = served.get_mut(&kind) {
                        *served = (*served).max(*any);
                    }
                }
                Action::Turn => {
                    let all = Kind::OF_LEVELS.map(|kind| served.get(&kind).copied().flatten());
                    let expected = all.into_iter().min().flatten();
                    let newly_confirmed: Vec<u64> = expected.filter(|_| confirmed_term < expected).into_iter().collect();
                    confirmed_term = confirmed_term.max(expected);
                    prop_assert_eq!(confirmed(&run.turn()), newly_confirmed);
                }
            }
        }
    }
}
