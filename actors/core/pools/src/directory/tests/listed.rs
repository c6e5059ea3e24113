//! Tests of pools that are filled from an xDS source (X2-X4), on the test's clock.

use super::*;
use crate::directory::Listing;
use crate::membership;
use crate::queue::{self, PoolQueue};
use model::level::{Source, SurplusPolicy};
use model::policy::{Mode, Pause};
use model::report::Effect;
use model::xds::assignment::{EndpointHealth, LoadAssignment, Priority};
use model::xds::cache::Reason;
use model::xds::diagnostic::Diagnostic;
use model::xds::name::Name;
use model::xds::source::{Assigned, Fault, Note, SourceFact};

mod conditions;
mod guarded;
mod properties;
mod states;

const UP: EndpointHealth = EndpointHealth::Healthy;
const DRAINS: EndpointHealth = EndpointHealth::Draining;
const OUT: EndpointHealth = EndpointHealth::Unhealthy;

/// Returns the source that fills the pools of most tests.
fn shop() -> Name {
    Name::Endpoints("shop".into())
}

fn listing(pool: &str, source: Name, family: Family) -> Listing {
    Listing { pool: id("lb", pool), source, family, membership: membership::Params::default() }
}

/// Creates a running Directory without facts about sources and load balancers. `lb/edge` and `lb6/edge-v6` are filled
/// from one source.
fn unknown() -> Fixture {
    let v6 = Listing { pool: id("lb6", "edge-v6"), ..listing("", shop(), Family::V6) };
    let listed = vec![listing("edge", shop(), Family::V4), v6];
    started(Params { listed, ..params() })
}

fn started(params: Params) -> Fixture {
    let mut fixture = Fixture::with(params);
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.take();
    fixture
}

/// Creates the same, with these members assigned and held by `lb/edge`.
fn filled(members: &[u8]) -> Fixture {
    let mut fixture = unknown();
    fixture.source(all(members));
    fixture.observe(&edge(members));
    fixture.pass(60_000);
    fixture.observe(&edge(members));
    fixture.take();
    fixture
}

/// Returns `lb` with the pool `edge`, which is used by a rule without an owner.
fn edge(members: &[u8]) -> Arc<LbFacts> {
    edge_with(pool("lb", "edge", members))
}

fn edge_with(pool: PoolFacts) -> Arc<LbFacts> {
    balancer("lb", vec![pool], vec![edge_rule(true)])
}

fn edge_rule(probed: bool) -> RuleFacts {
    RuleFacts { name: "edge-https".into(), pool: Some(PoolName::new("edge")), probed }
}

fn node() -> Note {
    Note::Node("replica-1".into())
}

fn fault(message: &str) -> Fault {
    Fault { resource: None, reason: Reason::Connectivity, message: message.into() }
}

/// Returns an assignment of these endpoints, by priority.
fn assignment(priorities: &[&[(IpAddr, EndpointHealth)]]) -> Arc<LoadAssignment> {
    let priority = |endpoints: &&[(IpAddr, EndpointHealth)]| Priority {
        addresses: endpoints.iter().copied().collect(),
        weighted: false,
    };
    let mut all = priorities.iter().copied().flatten().peekable();
    let has_endpoints = all.peek().is_some();
    let only_drains = has_endpoints && all.all(|(_, health)| *health == EndpointHealth::Draining);
    let priorities = priorities.iter().map(priority).collect();
    Arc::new(LoadAssignment { priorities, has_endpoints, only_drains, ..LoadAssignment::default() })
}

fn usable(assignment: Arc<LoadAssignment>) -> SourceFact {
    SourceFact { assigned: Assigned::Usable(assignment), provenance: Provenance::Watch, note: node() }
}

/// Returns an assignment of these endpoints in one priority.
fn with(endpoints: &[(u8, EndpointHealth)]) -> SourceFact {
    let endpoints: Vec<(IpAddr, EndpointHealth)> =
        endpoints.iter().map(|(n, health)| (ip(*n), *health)).collect();
    usable(assignment(&[&endpoints]))
}

/// Returns an assignment of these endpoints, which are all healthy.
fn all(members: &[u8]) -> SourceFact {
    with(&members.iter().map(|n| (*n, UP)).collect::<Vec<_>>())
}

/// Returns a valid assignment without endpoints.
fn empty() -> SourceFact {
    usable(assignment(&[]))
}

fn dropped(message: &str) -> SourceFact {
    SourceFact { assigned: Assigned::Dropped(fault(message)), provenance: Provenance::Watch, note: node() }
}

fn waited_for(fault: Option<Fault>) -> SourceFact {
    SourceFact { assigned: Assigned::Unknown(fault), provenance: Provenance::Watch, note: node() }
}

/// Returns the same fact with an additional error.
fn beside(fact: SourceFact, message: &str) -> SourceFact {
    SourceFact { note: Note::Errors(vec![fault(message)]), ..fact }
}

fn policy(fixture: &mut Fixture, policy: OperatorPolicy) {
    fixture.send(In::OperatorPolicy { term: None, policy: Arc::new(policy) });
}

fn add_only() -> OperatorPolicy {
    OperatorPolicy { mode: Mode::AddOnly, ..OperatorPolicy::default() }
}

impl Fixture {
    /// Sends the state of the source `shop`.
    fn source(&mut self, fact: SourceFact) {
        self.send(In::Source(shop(), fact));
    }

    fn edge(&self) -> &Assignment {
        self.assignment("lb", "edge")
    }

    /// Returns the required and tolerated members of `lb/edge`.
    fn members(&self) -> (BTreeSet<IpAddr>, BTreeSet<IpAddr>) {
        let level = &self.edge().level;
        (level.required.keys().copied().collect(), level.tolerated.clone())
    }

    /// Returns the number of members that are removed from `lb/edge` if it was observed with these.
    fn going(&self, seen: &[u8]) -> usize {
        self.edge().level.surplus(&ips(seen)).count()
    }

    /// Returns why a removal from `lb/edge` is held.
    fn held(&self) -> Option<HeldReason> {
        self.edge().held.as_ref().map(|held| held.reason)
    }

    fn is_assigned(&self) -> bool {
        self.assigned.get(&id("lb", "edge")).is_some_and(|said| !said.services.is_empty())
    }

    /// Sends a read of this load balancer. `None`: it does not exist.
    fn read(&mut self, lb: &str, facts: Option<Arc<LbFacts>>) {
        let (lb, began) = (LbName::new(lb), self.now);
        self.send(In::Lb(LbObservation { lb, began, facts, puts: Default::default() }));
    }

    /// Returns the reports since the last call.
    fn reports_since(&mut self) -> Vec<Report> {
        let reported = |out| if let Out::Report(report) = out { Some(report) } else { None };
        self.take().into_iter().filter_map(reported).collect()
    }

    /// Returns the assignments since the last call.
    fn assigned_since(&mut self) -> Vec<Arc<Assignment>> {
        let assigned = |out| if let Out::Assign(assignment) = out { Some(assignment) } else { None };
        self.take().into_iter().filter_map(assigned).collect()
    }
}

#[test]
fn x2_a_listed_pool_gets_named_addresses_of_its_family() {
    let mut fixture = unknown();
    let v6: IpAddr = "fd00::9".parse().expect("an address");
    fixture.source(usable(assignment(&[&[(ip(1), UP), (ip(2), OUT), (v6, UP), (ip(3), UP)]])));
    fixture.observe(&edge(&[]));
    fixture.observe(&balancer("lb6", vec![pool("lb6", "edge-v6", &[])], vec![]));
    assert_eq!(fixture.members(), (ips(&[1, 3]), ips(&[])));
    let both = [("lb", "edge"), ("lb6", "edge-v6")];
    let names = both.map(|(lb, pool)| -> Vec<String> {
        let level = &fixture.assignment(lb, pool).level;
        level.required.values().map(|member| member.name.as_str().to_owned()).collect()
    });
    assert_eq!(names[0], ["10-0-0-1", "10-0-0-3"]);
    assert_eq!(names[1], ["fd00--9"], "a pool without rules is filled");
    assert!(fixture.edge().level.required.values().all(|member| member.node_ready));
    let families = both.map(|(lb, pool)| fixture.assignment(lb, pool).family);
    assert_eq!(families, [Family::V4, Family::V6]);
    for (lb, pool) in both {
        let said = fixture.assignment(lb, pool);
        let keys: Vec<_> = said.services.values().map(|share| &share.key).collect();
        assert_eq!(keys, [&ServiceKey::of_source("eds:shop")]);
        assert!(matches!(&said.source, Source::Xds { name, .. } if *name == shop()));
    }
}

#[test]
fn x2_a_pool_that_is_not_listed_gets_no_members_of_a_source() {
    let mut fixture = unknown();
    fixture.source(all(&[1]));
    fixture.send(In::Source(Name::Cluster("shop".into()), all(&[2])));
    fixture.observe(&balancer("lb", vec![pool("lb", "other", &[5]), pool("lb", "edge", &[])], vec![]));
    assert_eq!(fixture.assigned.keys().collect::<Vec<_>>(), [&id("lb", "edge")]);
    assert_eq!(fixture.members().0, ips(&[1]), "a cluster of the same name is another source");
}

#[test]
fn d1_on_a_balancer_of_listed_pools_other_pools_are_foreign() {
    let pools = || vec![pool("lb", "shop-web", &[7]), pool("lb", "other", &[7]), pool("lb", "edge", &[])];
    // On a managed load balancer, `shop-web` belongs to a Service, and `other` would with the right name.
    let rules = || vec![rule(1, "shop-web"), rule(2, "other"), edge_rule(true)];
    for only_listed in [BTreeSet::new(), BTreeSet::from([LbName::new("lb")])] {
        let is_managed = only_listed.is_empty();
        let listed = vec![listing("edge", shop(), Family::V4)];
        let mut fixture = started(Params { listed, only_listed, ..params() });
        fixture.service(fact(1, "web", part(&[1], &[])));
        fixture.service(fact(2, "api", part(&[1], &[])));
        fixture.source(all(&[2]));
        for _ in 0..2 {
            fixture.observe(&balancer("lb", pools(), rules()));
            fixture.pass(60_000);
        }
        assert_eq!(fixture.members().0, ips(&[2]), "the listed pool is filled");
        let ours: Vec<&PoolId> = fixture.assigned.keys().collect();
        let said = std::mem::take(&mut fixture.outputs);
        let reports = said.iter().filter(|out| matches!(out, Out::Report(_))).count();
        let view = |out: &Out| {
            let Out::Service(uid, _, Some(view)) = out else { return None };
            Some((uid.clone(), view.pools.len() + view.not_manageable.len()))
        };
        let shown: BTreeMap<ServiceUid, usize> = said.iter().filter_map(view).collect();
        if is_managed {
            assert_eq!(ours, [&id("lb", "edge"), &id("lb", "shop-web")]);
            assert_eq!((reports, shown), (1, [(uid(1), 1), (uid(2), 2)].into()));
        } else {
            assert_eq!(ours, [&id("lb", "edge")]);
            assert_eq!((reports, shown), (0, [(uid(1), 0), (uid(2), 0)].into()));
        }
    }
}

#[test]
fn x2_a_listed_pool_waits_for_its_source_and_the_lists() {
    let mut fixture = unknown();
    fixture.source(all(&[1]));
    fixture.observe(&balancer("lb", vec![], vec![]));
    assert!(fixture.assigned.is_empty(), "it is not found");
    fixture.take();
    fixture.observe(&edge(&[7]));
    let mut said = fixture.take();
    said.retain(|out| !matches!(out, Out::Refused(..) | Out::Ended(_) | Out::Metric(_)));
    assert!(matches!(&said[..], [Out::Assign(_), Out::Observe(..)]), "{said:?}");
    assert_eq!(fixture.members(), (ips(&[1]), ips(&[7])));
    fixture.pass(1_000);
    fixture.observe(&balancer("lb", vec![], vec![]));
    assert!(!fixture.is_assigned(), "it is gone");
    fixture.send(In::Retired(id("lb", "edge")));
    assert!(fixture.assigned.is_empty() && fixture.machine.deadline().is_none());
    fixture.observe(&edge(&[]));
    assert_eq!(fixture.members(), (ips(&[1]), ips(&[])), "it is found again");

    let listed = vec![listing("edge", shop(), Family::V4)];
    let mut fixture = Fixture::with(Params { listed, ..params() });
    fixture.source(all(&[1]));
    fixture.observe(&balancer("lb", vec![pool("lb", "edge", &[])], vec![]));
    fixture.send(In::DiscoverySynced);
    fixture.pass(600_000);
    assert!(fixture.assigned.is_empty(), "the mapping is not complete");
    fixture.send(In::ListsSynced);
    assert_eq!(fixture.members(), (ips(&[1]), ips(&[])));
}

#[test]
fn d4_the_removal_delay_applies_to_leaving_probed_addresses() {
    let mut fixture = filled(&[1, 2]);
    fixture.source(with(&[(1, UP), (2, OUT)]));
    assert_eq!(fixture.members(), (ips(&[1]), ips(&[2])));
    fixture.pass(29_999);
    assert_eq!(fixture.members(), (ips(&[1]), ips(&[2])));
    fixture.pass(1);
    assert_eq!(fixture.members(), (ips(&[1]), ips(&[])));
    let mut fixture = filled(&[1, 2]);
    fixture.observe(&balancer("lb", vec![pool("lb", "edge", &[1, 2])], vec![edge_rule(false)]));
    fixture.source(all(&[1]));
    assert_eq!(fixture.members(), (ips(&[1]), ips(&[])));
}

#[test]
fn x2_a_pool_fails_over_immediately_and_back_by_time_alone() {
    let of = |first: EndpointHealth| usable(assignment(&[&[(ip(1), first)], &[(ip(2), UP)]]));
    let diagnostics = |fixture: &Fixture| match &fixture.edge().source {
        Source::Xds { diagnostics, .. } => diagnostics.clone(),
        Source::Kubernetes => panic!("it comes from a source"),
    };
    let mut fixture = unknown();
    fixture.observe(&balancer("lb", vec![pool("lb", "edge", &[])], vec![edge_rule(false)]));
    fixture.source(of(UP));
    assert_eq!(fixture.members().0, ips(&[1]));
    fixture.source(of(OUT));
    assert_eq!(fixture.members().0, ips(&[2]), "what cannot be used serves no traffic");
    assert_eq!(diagnostics(&fixture), [Diagnostic::PriorityUsed(1)].into());
    fixture.pass(1_000);
    fixture.source(of(UP));
    assert_eq!(fixture.members().0, ips(&[2]));
    let waits = [Diagnostic::PriorityUsed(1), Diagnostic::FailbackWaits(0)];
    assert_eq!(diagnostics(&fixture), waits.into());
    let back_at = fixture.now.plus(membership::Params::FAILBACK);
    assert_eq!(fixture.machine.deadline(), Some(back_at));
    fixture.pass(29_999);
    assert_eq!(fixture.members().0, ips(&[2]));
    fixture.pass(1);
    assert_eq!((fixture.now, fixture.members().0), (back_at, ips(&[1])), "no new fact has come");
    assert_eq!(diagnostics(&fixture), BTreeSet::new());
    assert_eq!(fixture.machine.deadline(), None);
}

#[test]
fn x2_an_emptied_pool_refills_from_the_best_priority() {
    let of = |first: EndpointHealth| usable(assignment(&[&[(ip(1), first)], &[(ip(2), UP)]]));
    let mut fixture = unknown();
    fixture.observe(&edge(&[]));
    fixture.source(of(OUT));
    fixture.source(of(UP));
    assert_eq!(fixture.members().0, ips(&[2]), "the better one is waited for");
    fixture.source(dropped("gone"));
    assert_eq!(fixture.machine.deadline(), None, "nothing is waited for");
    fixture.source(of(UP));
    assert_eq!(fixture.members().0, ips(&[1]), "nothing was in use that it could flap from");
}

#[test]
fn x3_a_pool_of_a_never_known_source_is_unchanged() {
    for fact in [None, Some(waited_for(None)), Some(waited_for(Some(fault("no such thing"))))] {
        let mut fixture = unknown();
        fixture.observe(&edge(&[1, 2]));
        fact.into_iter().for_each(|fact| fixture.source(fact));
        fixture.pass(600_000);
        fixture.send(In::Confirmed(Epoch(4)));
        fixture.observe(&edge(&[1, 2]));
        assert!(fixture.assigned.is_empty(), "it may hold what an earlier process has written");
        fixture.source(all(&[2, 3]));
        assert_eq!(fixture.members(), (ips(&[2, 3]), ips(&[1])), "what was there leaves as anything else");
    }
}

#[test]
fn x3_an_ambient_error_changes_only_the_source_status() {
    let mut fixture = filled(&[1, 2]);
    let before = fixture.edge().clone();
    fixture.source(beside(all(&[1, 2]), "connection refused"));
    let said = fixture.assigned_since();
    let [said] = &said[..] else { panic!("{said:?}") };
    let note = said.source.note().expect("it goes with all that is told").to_string();
    assert_eq!(note, "connection refused");
    assert!(said.level.same_members(&before.level) && said.services == before.services);
    assert_eq!((said.provenance, &said.held, &said.paused), (before.provenance, &None, &before.paused));

    let mut queue = PoolQueue::new(id("lb", "edge"), queue::Params::upstream(Duration::from_secs(1), 3));
    let mut said_by_queue = Vec::new();
    queue.step(fixture.now, queue::In::Assigned(Arc::new(before)), &mut said_by_queue);
    let facts = Arc::new(pool("lb", "edge", &[1, 2]));
    let seen = model::assignment::Observation { began: fixture.now, facts };
    queue.step(fixture.now, queue::In::Observed(seen), &mut said_by_queue);
    said_by_queue.clear();
    queue.step(fixture.now, queue::In::Assigned(Arc::clone(said)), &mut said_by_queue);
    assert!(matches!(&said_by_queue[..], [queue::Out::View(view)] if view.source == said.source));
    assert_eq!(queue.deadline(), None, "there is nothing to write");
}

#[test]
fn a3_a_changed_assignment_raises_the_revision_but_not_a_note() {
    let mut fixture = unknown();
    fixture.observe(&edge(&[]));
    let share = |fixture: &Fixture| {
        let share = fixture.edge().services.values().next().expect("one source").clone();
        (share.revision, share.triggered)
    };
    fixture.source(waited_for(None));
    fixture.source(all(&[1]));
    assert_eq!(share(&fixture), (1, None), "what is assigned first tells of old changes");
    fixture.pass(5_000);
    fixture.source(beside(all(&[1]), "connection refused"));
    assert_eq!(share(&fixture), (1, None));
    fixture.source(with(&[(1, UP), (2, OUT)]));
    let at = fixture.now;
    assert_eq!(share(&fixture), (2, Some(at)), "also where no member changes");
    fixture.pass(5_000);
    fixture.source(with(&[(1, UP), (2, OUT)]));
    assert_eq!(share(&fixture), (2, Some(at)));
}
