//! Tests of Events about listed pools and their sources (D2, X4, E1).

use super::*;

/// A change that removes the proof of a pool, and the reported reason.
type Case = (fn(&mut PoolFacts), NotManageable);

fn refusal(fixture: &mut Fixture) -> Option<NotManageable> {
    let mut reports = fixture.reports_since();
    reports.retain(|report| !is_of_source(report));
    assert!(reports.len() <= 1, "{reports:?}");
    let Report { subjects, what, note } = reports.pop()?;
    let EventKind::NotManageable { pool, reason, attempted: false } = what else { panic!("{what:?}") };
    assert_eq!((pool, subjects), (id("lb", "edge"), vec![Subject::Controller]));
    assert_eq!(note.as_deref(), Some("xDS node id: replica-1"));
    Some(reason)
}

#[test]
fn x2_a_listed_pool_is_refused_until_it_has_proof() {
    let service_rule = || Arc::clone(&rule(1, "edge").name);
    let cases: [Case; 5] = [
        (|pool| pool.rules.push(rule(1, "edge").name), NotManageable::ServiceRule { rule: service_rule() }),
        (|pool| pool.outbound_rule = true, NotManageable::OutboundRule),
        (|pool| pool.inbound_nat_rule = true, NotManageable::InboundNatRule),
        (|pool| pool.nic_backed = true, NotManageable::NicBacked),
        (|pool| pool.sync_automatic = true, NotManageable::SyncAutomatic),
    ];
    for (spoil, reason) in cases {
        let mut fixture = filled(&[1]);
        let mut spoiled = Arc::unwrap_or_clone(edge(&[1]));
        spoiled.pools.iter_mut().for_each(|pool| spoil(Arc::make_mut(pool)));
        let spoiled = Arc::new(spoiled);
        let counted = |pools| Metric::NotManageable { reason: reason.label(), pools };
        fixture.observe(&spoiled);
        assert!(!fixture.is_assigned(), "{reason:?}");
        let said = fixture.take();
        let samples =
            |said: &[Out], sample| said.iter().any(|out| matches!(out, Out::Metric(of) if *of == sample));
        assert!(samples(&said, counted(1)), "{reason:?}");
        fixture.outputs = said;
        assert_eq!(refusal(&mut fixture), Some(reason.clone()));
        fixture.observe(&spoiled);
        fixture.source(beside(all(&[1, 2]), "connection refused"));
        assert_eq!(refusal(&mut fixture), None, "it is told once");
        fixture.source(all(&[1, 2]));
        fixture.take();
        fixture.observe(&edge(&[1]));
        assert_eq!(fixture.members().0, ips(&[1, 2]), "it lasted while {reason:?}");
        let said = fixture.take();
        assert!(samples(&said, counted(0)), "{reason:?}");
    }
}

#[test]
fn x2_a_pool_of_an_unknown_source_is_refused_too() {
    let mut fixture = unknown();
    let outbound = PoolFacts { outbound_rule: true, ..pool("lb", "edge", &[1]) };
    fixture.observe(&edge_with(outbound));
    let told = fixture.reports_since();
    let [Report { what: EventKind::NotManageable { .. }, note: None, .. }] = &told[..] else {
        panic!("{told:?}")
    };
    fixture.observe(&edge(&[1]));
    assert!(fixture.assigned.is_empty() && fixture.machine.pools.is_empty(), "it is left alone");
}

/// Returns the load balancer without the listed pool, and no load balancer.
fn absences() -> [(Option<Arc<LbFacts>>, NotManageable); 2] {
    let lb = LbName::new("lb");
    let without = balancer("lb", vec![pool("lb", "other", &[1])], vec![]);
    [
        (Some(without), NotManageable::PoolNotFound { lb: lb.clone() }),
        (None, NotManageable::LoadBalancerNotFound { lb }),
    ]
}

/// Returns the published reasons of refusal of `lb/edge`, the newest last.
fn shown_refused(said: &[Out]) -> Vec<Option<NotManageable>> {
    let of = |out: &Out| {
        let Out::Refused(pool, reason) = out else { return None };
        (*pool == id("lb", "edge")).then(|| reason.clone())
    };
    said.iter().filter_map(of).collect()
}

#[test]
fn x2_d2_a_missing_listed_pool_is_refused_until_it_exists() {
    for (absent, reason) in absences() {
        let mut fixture = unknown();
        fixture.source(all(&[1, 2]));
        fixture.observe(&balancer("other", vec![], vec![]));
        assert_eq!(shown_refused(&fixture.take()), [], "its load balancer was not read");
        fixture.read("lb", absent.clone());
        let said = fixture.take();
        assert_eq!(shown_refused(&said), [Some(reason.clone())]);
        let counted = Metric::NotManageable { reason: reason.label(), pools: 1 };
        assert!(said.iter().any(|out| matches!(out, Out::Metric(of) if *of == counted)), "{said:?}");
        fixture.outputs = said;
        assert_eq!(refusal(&mut fixture), Some(reason));
        fixture.read("lb", absent);
        fixture.source(all(&[1, 2, 3]));
        assert!(shown_refused(&fixture.outputs).is_empty() && fixture.assigned.is_empty());
        assert_eq!(refusal(&mut fixture), None, "it is told once");
        fixture.observe(&edge(&[1]));
        assert_eq!(shown_refused(&fixture.outputs), [None]);
        assert_eq!(fixture.members().0, ips(&[1, 2, 3]), "it is filled as soon as it is there");
    }
}

#[test]
fn x2_d2_a_deleted_listed_pool_is_released_and_refused() {
    for (absent, reason) in absences() {
        let mut fixture = filled(&[1]);
        fixture.read("lb", absent);
        assert!(!fixture.is_assigned());
        assert_eq!(refusal(&mut fixture), Some(reason));
        fixture.observe(&edge(&[]));
        assert_eq!(fixture.members().0, ips(&[1]), "it was made again");
        assert_eq!(refusal(&mut fixture), None);
    }
}

#[test]
fn x2_d2_d6_missing_listed_pools_are_reported_after_reads() {
    for (absent, reason) in absences() {
        let mut fixture =
            Fixture::with(Params { listed: vec![listing("edge", shop(), Family::V4)], ..params() });
        fixture.read("lb", absent);
        fixture.send(In::ListsSynced);
        assert_eq!(shown_refused(&fixture.take()), []);
        fixture.send(In::DiscoverySynced);
        assert_eq!(shown_refused(&fixture.take()), [Some(reason)]);
    }
}

#[test]
fn x2_a_services_rule_for_a_listed_pool_causes_no_event() {
    let mut fixture = filled(&[1]);
    fixture.service(fact(1, "web", part(&[5], &[])));
    let mut second = rule(1, "edge");
    second.name = format!("{}-8080", second.name).into();
    let own = |also: Option<RuleFacts>| {
        let pools = vec![pool("lb", "shop-web", &[5]), pool("lb", "edge", &[1])];
        let rules = [rule(1, "shop-web"), edge_rule(true)].into_iter().chain(also);
        balancer("lb", pools, rules.collect())
    };
    fixture.observe(&own(Some(second.clone())));
    assert!(!fixture.is_assigned());
    assert_eq!(fixture.web().0, ips(&[5]));
    let to_services = |reports: &[Report]| {
        let of_service = |subject: &Subject| matches!(subject, Subject::Service(_));
        reports.iter().flat_map(|report| &report.subjects).filter(|subject| of_service(subject)).count()
    };
    let told = fixture.reports_since();
    assert_eq!((told.len(), to_services(&told)), (1, 0), "{told:?}");
    fixture.observe(&own(None));
    assert!(fixture.is_assigned() && fixture.reports_since().is_empty());
}

#[test]
fn d2_g6_a_paused_refused_listed_pool_is_reported_later() {
    let mut fixture = filled(&[1]);
    let pause =
        OperatorPolicy { pools: [(id("lb", "edge"), Pause::default())].into(), ..OperatorPolicy::default() };
    policy(&mut fixture, pause);
    let outbound = PoolFacts { outbound_rule: true, ..pool("lb", "edge", &[1]) };
    fixture.observe(&edge_with(outbound));
    assert_eq!(refusal(&mut fixture), None);
    policy(&mut fixture, OperatorPolicy::default());
    assert_eq!(refusal(&mut fixture), Some(NotManageable::OutboundRule));
}

fn named(sources: &[&str]) -> BTreeSet<Arc<str>> {
    sources.iter().copied().map(Arc::from).collect()
}

/// Returns the reports about the source since the last call: `None` is a recovery.
fn of_source(fixture: &mut Fixture) -> Vec<Option<(Effect, String)>> {
    let mut said = Vec::new();
    for Report { subjects, what, note } in fixture.reports_since() {
        let says_all = matches!(what, EventKind::SourceFailing { effect: Effect::Kept, .. });
        assert_eq!(
            note.is_none(),
            says_all,
            "what is wrong beside, or else the node id, goes with it: {what:?}"
        );
        if let EventKind::SourceFailing { sources, pools, effect, error } = &what {
            assert_eq!((sources, *pools), (&named(&["eds:shop"]), 2));
            said.push(Some((*effect, error.to_string())));
        } else if let EventKind::SourceRecovered { sources } = &what {
            assert_eq!(sources, &named(&["eds:shop"]));
            said.push(None);
        } else {
            panic!("not of a source: {what:?}");
        }
        assert_eq!(subjects, [Subject::Controller]);
    }
    said
}

fn failing(effect: Effect, error: &str) -> Vec<Option<(Effect, String)>> {
    vec![Some((effect, error.to_owned()))]
}

#[test]
fn x3_x4_a_source_error_is_reported_once_per_consequence() {
    let mut fixture = unknown();
    fixture.observe(&edge(&[1]));
    fixture.source(waited_for(None));
    assert_eq!(of_source(&mut fixture), [], "it is only waited for");
    let mut told = |fact| {
        fixture.source(fact);
        of_source(&mut fixture)
    };
    assert_eq!(told(waited_for(Some(fault("refused")))), failing(Effect::Untouched, "refused"));
    assert_eq!(told(waited_for(Some(fault("timed out")))), [], "the same becomes of them");
    assert_eq!(told(all(&[1])), [None]);
    assert_eq!(told(all(&[1, 2])), []);
    assert_eq!(told(beside(all(&[1, 2]), "refused")), failing(Effect::Kept, "refused"));
    assert_eq!(told(beside(all(&[1]), "timed out")), []);
    assert_eq!(told(dropped("deleted")), failing(Effect::Emptied, "deleted"));
    assert_eq!(told(beside(dropped("deleted"), "refused")), []);
    assert_eq!(told(beside(all(&[1]), "refused")), failing(Effect::Kept, "refused"));
    assert_eq!(told(all(&[1])), [None]);
    assert_eq!(told(all(&[1])), []);
}

#[test]
fn x4_e1_errors_of_many_sources_at_once_are_one_event() {
    let other = |name: &str| Name::Cluster(name.into());
    let listed = vec![
        listing("edge", shop(), Family::V4),
        listing("edge-v6", shop(), Family::V6),
        listing("mail", other("mail"), Family::V4),
        listing("news", other("news"), Family::V4),
    ];
    let mut fixture = started(Params { listed, ..params() });
    let mut all_at_once = |facts: [(Name, SourceFact); 3]| {
        let mut out = Vec::new();
        for (name, fact) in facts {
            fixture.machine.step(fixture.now, In::Source(name, fact), &mut out);
        }
        fixture.machine.tick(fixture.now, &mut out);
        fixture.receive(out);
        fixture.reports_since().into_iter().map(|report| report.what).collect::<Vec<EventKind>>()
    };
    let refused = || waited_for(Some(fault("refused")));
    let told = all_at_once([
        (shop(), refused()),
        (other("mail"), refused()),
        (other("news"), waited_for(Some(fault("no such thing")))),
    ]);
    let failing = |sources: &[&str], pools, error: &str| EventKind::SourceFailing {
        sources: named(sources),
        pools,
        effect: Effect::Untouched,
        error: error.into(),
    };
    assert_eq!(
        told,
        [
            failing(&["cluster:news"], 1, "no such thing"),
            failing(&["cluster:mail", "eds:shop"], 3, "refused")
        ]
    );
    let told = all_at_once([(shop(), all(&[1])), (other("mail"), all(&[1])), (other("news"), refused())]);
    assert_eq!(told, [EventKind::SourceRecovered { sources: named(&["cluster:mail", "eds:shop"]) }]);
}

#[test]
fn x3_x4_a_never_known_source_has_not_recovered() {
    let mut fixture = unknown();
    fixture.source(waited_for(Some(fault("refused"))));
    assert_eq!(of_source(&mut fixture), failing(Effect::Untouched, "refused"));
    fixture.source(waited_for(None));
    assert_eq!(of_source(&mut fixture), [], "it is no better than it was");
    fixture.source(waited_for(Some(fault("refused"))));
    assert_eq!(of_source(&mut fixture), [], "and no worse");
    fixture.source(waited_for(None));
    fixture.source(all(&[1]));
    assert_eq!(of_source(&mut fixture), [None], "who was told that it fails is told that it does not");
}

#[test]
fn e1_the_leader_reports_a_source_error_once_per_term() {
    let mut fixture = unknown();
    fixture.reporting(None);
    fixture.source(dropped("deleted"));
    fixture.pass(60_000);
    assert_eq!(of_source(&mut fixture), [], "a standby tells nothing");
    fixture.reporting(Some(2));
    assert_eq!(of_source(&mut fixture), failing(Effect::Emptied, "deleted"));
    for _ in 0..3 {
        fixture.reporting(Some(2));
        fixture.source(dropped("deleted"));
        fixture.pass(60_000);
    }
    assert_eq!(of_source(&mut fixture), []);
    fixture.reporting(Some(3));
    assert_eq!(of_source(&mut fixture), failing(Effect::Emptied, "deleted"), "it lasts");
    fixture.reporting(None);
    fixture.source(all(&[1]));
    fixture.reporting(Some(4));
    assert_eq!(of_source(&mut fixture), [], "it has ended");
}

#[test]
fn x4_holds_are_reported_with_the_error_or_the_node_id() {
    for (fact, note) in
        [(empty(), "xDS node id: replica-1"), (beside(empty(), "connection refused"), "connection refused")]
    {
        let mut fixture = filled(&[1, 2]);
        fixture.source(fact);
        let told = fixture.reports_since();
        let held = told.iter().find(|report| matches!(report.what, EventKind::Held { .. })).expect("held");
        assert_eq!(held.subjects, [Subject::Controller]);
        assert_eq!(held.note.as_deref(), Some(note));
    }
}

#[test]
fn x4_the_note_of_an_unused_source_begins_with_the_reason() {
    let mut fixture = filled(&[1]);
    let note = |fixture: &Fixture| fixture.edge().source.note().map(ToString::to_string);
    assert_eq!(note(&fixture).as_deref(), Some("xDS node id: replica-1"));
    fixture.source(beside(dropped("deleted"), "refused"));
    assert_eq!(note(&fixture).as_deref(), Some("deleted; refused"));
    fixture.source(dropped("deleted"));
    assert_eq!(note(&fixture).as_deref(), Some("deleted; xDS node id: replica-1"));
}
