//! Tests of the Directory's assignments, on the test's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use super::{Directory, In, Out, Params};
use model::arm::{AdminState, Entry, LbFacts, PoolFacts, Provisioning, RuleFacts};
use model::assignment::{Assignment, HeldReason, PoolMembers, Share, Waits};
use model::error::NotManageable;
use model::guard::{Fraction, GuardMode};
use model::ids::{
    Epoch, Family, LbName, NodeName, PoolId, PoolName, ReadId, RulePrefix, ServiceKey, ServiceUid,
};
use model::level::Provenance;
use model::load_balancers::LbObservation;
use model::machine::{Machine, Now};
use model::object::ExclusionRule;
use model::operator_request::{Answer, Done, Refusal, ReleaseRefusal, Released, RequestId, Scope};
use model::policy::OperatorPolicy;
use model::report::{Condition, EventKind, Report, ServiceRef, Subject};
use model::sample::Metric;
use model::services::{ExcludedNode, Part, Parts, RequiredNode, ServiceFact};
use model::view::Candidacy;
use pool_testing::facts::pool_at_rest;

mod breaker;
mod conditions;
mod failed;
mod families;
mod guards;
mod listed;
mod losses;
mod operator;
mod pins;
mod properties;
mod scale;
mod unconfirmed_removals;

/// Returns the UID of the `n`-th Service.
fn uid(n: u32) -> ServiceUid {
    ServiceUid::new(format!("{n:08x}-0000-4000-8000-000000000000"))
}

/// Returns the address of the `n`-th node.
fn ip(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
}

fn ips(of: &[u8]) -> BTreeSet<IpAddr> {
    of.iter().copied().map(ip).collect()
}

fn part(required: &[u8], tolerated: &[u8]) -> Part {
    let node = |n: &u8| RequiredNode { name: NodeName::new(format!("node-{n}")), ready: true };
    Part {
        required: required.iter().map(|n| (ip(*n), node(n))).collect(),
        tolerated: ips(tolerated),
        ..Part::default()
    }
}

/// Gives each family of a fact the fact's number of slices and endpoints.
fn of_each_family(mut fact: ServiceFact) -> Arc<ServiceFact> {
    for (_, part) in fact.parts.iter_mut() {
        (part.slices, part.endpoints) = (fact.slices, fact.endpoints);
    }
    Arc::new(fact)
}

/// Marks all parts of a fact as dropped by configuration.
fn dropped(mut fact: ServiceFact) -> ServiceFact {
    fact.parts.iter_mut().for_each(|(_, part)| part.is_dropped = true);
    fact
}

/// Returns a part with these required members. The other nodes among 1 to 9 have the label that excludes them.
fn labelled(required: &[u8]) -> Part {
    let node = |n: u8| {
        let node = ExcludedNode { ips: ips(&[n]), why: ExclusionRule::ExcludedByLabel };
        (NodeName::new(format!("node-{n}")), node)
    };
    let excluded = (1..10).filter(|n| !required.contains(n)).map(node).collect();
    Part { excluded, ..part(required, &[]) }
}

/// Returns a candidate `shop/<name>` with this IPv4 part.
fn fact(n: u32, name: &str, part: Part) -> ServiceFact {
    let part = Part { slices: 1, endpoints: 1, ..part };
    ServiceFact {
        key: ServiceKey::new("shop", name),
        uid: uid(n),
        candidacy: Candidacy::Candidate,
        paused: false,
        internal: false,
        exposure: 0,
        parts: Parts::of(Family::V4, part),
        slices: 1,
        endpoints: 1,
        data_errors: Vec::new(),
        resource: None,
        revision: 0,
        provenance: Provenance::Watch,
        triggered: None,
        read: None,
    }
}

fn rule(n: u32, pool: &str) -> RuleFacts {
    let name = format!("{}-TCP-80", RulePrefix::of(&uid(n)).as_str().to_uppercase());
    RuleFacts { name: name.into(), pool: Some(PoolName::new(pool)), probed: true }
}

/// Returns a pool with these members, before its rules are known.
fn pool(lb: &str, name: &str, members: &[u8]) -> PoolFacts {
    let entry = |n: &u8| Entry {
        name: format!("node-{n}").into(),
        ip: Some(ip(*n)),
        admin_state: AdminState::None,
        network: None,
        instance: None,
    };
    pool_at_rest(PoolId::new(LbName::new(lb), PoolName::new(name)), members.iter().map(entry).collect())
}

/// Returns a load balancer with these pools and rules. Each pool lists its rules.
fn balancer(lb: &str, mut pools: Vec<PoolFacts>, rules: Vec<RuleFacts>) -> Arc<LbFacts> {
    for pool in &mut pools {
        let own = rules.iter().filter(|rule| rule.pool.as_ref() == Some(&pool.id.pool));
        pool.rules = own.map(|rule| Arc::clone(&rule.name)).collect();
    }
    Arc::new(LbFacts {
        lb: LbName::new(lb),
        etag: None,
        guid: None,
        provisioning: Provisioning::Succeeded,
        pools: pools.into_iter().map(Arc::new).collect(),
        rules,
    })
}

fn params() -> Params {
    Params {
        removal_delay: Duration::from_secs(30),
        empty_confirm: Duration::from_secs(60),
        guards: GuardMode::Enforce,
        max_removal: Fraction::millionths(500_000),
        cluster_name: "Kubernetes".into(),
        pins: None,
        listed: Vec::new(),
        only_listed: BTreeSet::new(),
        dry_run: false,
    }
}

/// The machine on the test's clock. As the shell does, it ticks after each batch of inputs, and at deadlines.
struct Fixture {
    machine: Directory,
    now: Now,
    /// Outputs since they were last taken.
    outputs: Vec<Out>,
    /// The newest assignment of each pool that was not dropped.
    assigned: BTreeMap<PoolId, Arc<Assignment>>,
    /// Reports of lasting conditions in this term.
    reported: Vec<Report>,
    /// The reported conditions that have not ended.
    open: BTreeSet<Condition>,
}

impl Fixture {
    /// Creates a Directory without facts.
    fn waiting() -> Fixture {
        Fixture::with(params())
    }

    /// Creates the same with these parameters.
    fn with(params: Params) -> Fixture {
        let mut fixture = Fixture::without_policy(params);
        let (term, policy) = (Some(Epoch(u64::MAX)), Arc::default());
        fixture.send(In::OperatorPolicy { term, policy });
        fixture
    }

    /// Creates the same without an operator policy.
    fn without_policy(params: Params) -> Fixture {
        let mut fixture = Fixture {
            machine: Directory::new(params),
            now: Now::from_millis(1_000),
            outputs: Vec::new(),
            assigned: BTreeMap::new(),
            reported: Vec::new(),
            open: BTreeSet::new(),
        };
        fixture.reporting(Some(1));
        fixture
    }

    /// Sets the term of the reports.
    fn reporting(&mut self, term: Option<u64>) {
        let term = term.map(Epoch);
        if term.is_some() && term != self.machine.reporting {
            self.reported.clear();
        }
        if term != self.machine.reporting {
            self.open.clear();
        }
        self.send(In::Reporting(term));
    }

    /// Returns whether the condition lasts and is reportable. During a pause it is not, and is reported again
    /// afterwards (G6).
    fn lasts(&self, report: &Report) -> bool {
        let of = |pool| self.assigned.get(pool);
        let said = |pool| of(pool).filter(|said| !said.services.is_empty() && !said.is_paused());
        match &report.what {
            EventKind::NotManageable { pool, reason, attempted } => {
                assert!(!attempted, "Discovery found it");
                let refused = self.machine.pools.get(pool).and_then(|pool| pool.refused());
                refused.is_some_and(|refusal| refusal.reason == *reason && !refusal.paused)
            }
            EventKind::Shared { pool, .. } => said(pool).is_some_and(|said| {
                let subject = |(uid, share): (&ServiceUid, &Share)| {
                    Subject::Service(ServiceRef { key: share.key.clone(), uid: uid.clone() })
                };
                said.services.iter().map(subject).eq(report.subjects.iter().cloned())
            }),
            EventKind::Held { pool, reason, .. } => {
                let held = said(pool).and_then(|said| said.held.as_ref().or(said.would_hold.as_ref()));
                held.is_some_and(|held| held.reason == *reason)
            }
            EventKind::Updated { .. }
            | EventKind::Retrying { .. }
            | EventKind::FailedTerminal { .. }
            | EventKind::FailedExhausted { .. }
            | EventKind::Blocked { .. }
            | EventKind::LeaseHeld { .. }
            | EventKind::Contested { .. }
            | EventKind::WritesLost { .. }
            | EventKind::Quarantined { .. }
            | EventKind::SourceFailing { .. }
            | EventKind::SourceRecovered { .. }
            | EventKind::DataError { .. }
            | EventKind::Undecodable { .. }
            | EventKind::AdminDown { .. }
            | EventKind::AdminRestored { .. }
            | EventKind::AdminFailed { .. }
            | EventKind::AdminHeld { .. }
            | EventKind::AdminForeign { .. } => panic!("not the Directory's to tell"),
            EventKind::RemovalsStopped { .. } => self.machine.breaker.tripped().is_some(),
        }
    }

    /// Checks that each condition is reported once while it lasts, and only in a term.
    fn on_report(&mut self, report: &Report) {
        let alike = |told: &Report| match (&told.what, &report.what) {
            // The Services and the number of members may change meanwhile.
            (EventKind::Held { pool: one, reason, .. }, EventKind::Held { pool: other, reason: why, .. }) => {
                (one, reason) == (other, why)
            }
            (EventKind::NotManageable { .. }, _) => told.what == report.what,
            _ => told == report,
        };
        assert!(self.machine.reporting.is_some(), "it would not be published");
        assert!(self.lasts(report), "it has ended: {report:?}");
        assert!(!self.reported.iter().any(alike), "told twice: {report:?}");
        self.reported.push(report.clone());
        self.open.extend(report.what.condition());
    }

    /// Creates a Directory that has the first lists and the first discovery, both empty.
    fn running() -> Fixture {
        let mut fixture = Fixture::waiting();
        fixture.send(In::ListsSynced);
        fixture.send(In::DiscoverySynced);
        fixture.outputs.clear();
        fixture
    }

    fn send(&mut self, input: In) {
        let mut out = Vec::new();
        self.machine.step(self.now, input, &mut out);
        if self.machine.deadline().is_some_and(|at| at <= self.now) {
            self.machine.tick(self.now, &mut out);
        }
        self.receive(out);
    }

    /// Sends the operator's request for a release, and returns its only answer.
    fn request_release(&mut self, scope: Scope) -> Answer {
        self.request_release_with(scope, &[])
    }

    /// Does the same where the admin state released these nodes for the same request.
    fn request_release_with(&mut self, scope: Scope, nodes: &[&str]) -> Answer {
        self.take();
        self.send(In::Release(RequestId(9), scope, nodes.iter().copied().map(NodeName::new).collect()));
        let mut answers: Vec<Answer> = Vec::new();
        for said in self.take() {
            if let Out::Answer(request, answer) = said {
                assert_eq!(request, RequestId(9));
                answers.push(answer);
            }
        }
        assert_eq!(answers.len(), 1, "one answer");
        answers.remove(0)
    }

    fn receive(&mut self, out: Vec<Out>) {
        for said in &out {
            match said {
                Out::Assign(assignment) => {
                    self.assigned.insert(assignment.pool.clone(), Arc::clone(assignment));
                }
                Out::Forget(pool) => {
                    self.assigned.remove(pool);
                }
                Out::Observe(pool, _) => {
                    assert!(self.assigned.contains_key(pool), "Observe before Assign");
                }
                Out::Opened(term) => {
                    let of_it = |assignment: &Arc<Assignment>| assignment.epoch == *term;
                    assert!(self.assigned.values().all(of_it), "opened before every assignment is of it");
                }
                Out::Report(report) if is_of_source(report) => {
                    assert!(self.machine.reporting.is_some(), "it would not be published");
                }
                Out::Report(report) => self.on_report(report),
                Out::Rewrite(pool) => {
                    let assigned = self.assigned.get(pool);
                    assert!(assigned.is_some_and(|said| !said.is_paused() && said.held.is_none()));
                }
                Out::Ended(ended) => {
                    if ended.subject.is_none() {
                        self.open.remove(&ended.condition);
                    }
                }
                Out::Service(..)
                | Out::Metric(_)
                | Out::Reread(_)
                | Out::ReadUpTo(_)
                | Out::Answer(..)
                | Out::Guards(_)
                | Out::SourceAdminStates(..)
                | Out::Refused(..) => {}
            }
        }
        self.outputs.extend(out);
        let told = std::mem::take(&mut self.reported);
        self.reported = told.into_iter().filter(|report| self.lasts(report)).collect();
        assert!(self.machine.check());
        let quiet = self.machine.reporting.is_none() || self.machine.report_all;
        assert!(
            quiet || self.reported.len() == self.conditions(),
            "something is never told: {:?}",
            self.reported
        );
        let told: BTreeSet<Condition> =
            self.reported.iter().filter_map(|report| report.what.condition()).collect();
        assert!(quiet || self.open == told, "ended, or not: {:?}, and {told:?}", self.open);
    }

    /// Returns the number of reportable conditions.
    fn conditions(&self) -> usize {
        let pools = self.machine.pools.values();
        let refused = pools.filter(|pool| pool.refused().is_some_and(|refusal| !refusal.paused)).count();
        let assigned = || self.assigned.values().filter(|said| !said.is_paused());
        let shared = assigned().filter(|said| said.services.len() > 1).count();
        let held = |said: &&Arc<Assignment>| {
            said.held.as_ref().is_some_and(|held| held.reason != HeldReason::AddOnly)
                || said.would_hold.is_some()
        };
        let stopped = usize::from(self.machine.breaker.tripped().is_some());
        refused + shared + stopped + assigned().filter(held).count()
    }

    /// Completes every requested second read, and returns their number.
    fn reread(&mut self) -> usize {
        let asked = |said: &Out| match said {
            Out::Reread(read) => Some(*read),
            Out::Assign(_)
            | Out::ReadUpTo(_)
            | Out::Opened(_)
            | Out::Observe(..)
            | Out::Forget(_)
            | Out::Rewrite(_)
            | Out::SourceAdminStates(..)
            | Out::Answer(..)
            | Out::Guards(_)
            | Out::Refused(..)
            | Out::Service(..)
            | Out::Report(_)
            | Out::Ended(_)
            | Out::Metric(_) => None,
        };
        let reads: Vec<ReadId> = self.outputs.iter().filter_map(asked).collect();
        self.outputs.retain(|said| asked(said).is_none());
        reads.iter().for_each(|read| self.send(In::Reread(*read)));
        reads.len()
    }

    /// Sends all these facts in one turn.
    fn together(&mut self, facts: impl IntoIterator<Item = ServiceFact>) {
        let mut out = Vec::new();
        for fact in facts {
            self.machine.step(self.now, In::Service(fact.uid.clone(), Some(of_each_family(fact))), &mut out);
        }
        self.machine.tick(self.now, &mut out);
        self.receive(out);
    }

    /// Advances the clock, and ticks at each deadline.
    fn pass(&mut self, millis: u64) {
        let end = self.now.plus(Duration::from_millis(millis));
        while let Some(at) = self.machine.deadline().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            let mut out = Vec::new();
            self.machine.tick(self.now, &mut out);
            self.receive(out);
        }
        self.now = end;
    }

    fn service(&mut self, fact: ServiceFact) {
        self.send(In::Service(fact.uid.clone(), Some(of_each_family(fact))));
    }

    fn observe(&mut self, facts: &Arc<LbFacts>) {
        self.observe_at(self.now, facts);
    }

    /// Sends the observation of a GET that began at this time.
    fn observe_at(&mut self, began: Now, facts: &Arc<LbFacts>) {
        let facts = Arc::clone(facts);
        self.send(In::Lb(LbObservation {
            lb: facts.lb.clone(),
            began,
            facts: Some(facts),
            puts: Default::default(),
        }));
    }

    /// Sends the members that an attempt, which has just ended, left in a pool.
    fn attempt_left(&mut self, lb: &str, name: &str, members: &[u8]) {
        self.attempt_left_at(self.now, lb, name, members);
    }

    /// Does the same with the time at which the attempt ended.
    fn attempt_left_at(&mut self, at: Now, lb: &str, name: &str, members: &[u8]) {
        self.send(In::Members(id(lb, name), PoolMembers { at, members: ips(members) }));
    }

    fn take(&mut self) -> Vec<Out> {
        std::mem::take(&mut self.outputs)
    }

    fn reports(&mut self) -> Vec<EventKind> {
        let reported = |out| match out {
            Out::Report(report) => Some(report.what),
            Out::Ended(_)
            | Out::Assign(_)
            | Out::Opened(_)
            | Out::Observe(..)
            | Out::Forget(_)
            | Out::Rewrite(_)
            | Out::SourceAdminStates(..)
            | Out::Reread(_)
            | Out::ReadUpTo(_)
            | Out::Answer(..)
            | Out::Guards(_)
            | Out::Refused(..)
            | Out::Service(..)
            | Out::Metric(_) => None,
        };
        self.take().into_iter().filter_map(reported).collect()
    }

    fn samples(&mut self) -> Vec<Metric> {
        let sampled = |out| match out {
            Out::Metric(sample) => Some(sample),
            Out::Assign(_)
            | Out::Opened(_)
            | Out::Observe(..)
            | Out::Forget(_)
            | Out::Rewrite(_)
            | Out::SourceAdminStates(..)
            | Out::Reread(_)
            | Out::ReadUpTo(_)
            | Out::Answer(..)
            | Out::Guards(_)
            | Out::Refused(..)
            | Out::Service(..)
            | Out::Report(_)
            | Out::Ended(_) => None,
        };
        self.take().into_iter().filter_map(sampled).collect()
    }

    fn assignment(&self, lb: &str, pool: &str) -> &Assignment {
        &self.assigned[&id(lb, pool)]
    }

    /// Returns the required and tolerated members of `lb/shop-web`.
    fn web(&self) -> (BTreeSet<IpAddr>, BTreeSet<IpAddr>) {
        let level = &self.assignment("lb", "shop-web").level;
        (level.required.keys().copied().collect(), level.tolerated.clone())
    }
}

/// Returns whether a report is about an xDS source: its time does not follow from the assignments.
fn is_of_source(report: &Report) -> bool {
    matches!(report.what, EventKind::SourceFailing { .. } | EventKind::SourceRecovered { .. })
}

fn id(lb: &str, pool: &str) -> PoolId {
    PoolId::new(LbName::new(lb), PoolName::new(pool))
}

/// Returns `lb` with the pool `shop-web` of Service 1.
fn web(members: &[u8]) -> Arc<LbFacts> {
    balancer("lb", vec![pool("lb", "shop-web", members)], vec![rule(1, "shop-web")])
}

/// Creates a running Directory whose pool `lb/shop-web` holds, and must hold, these members.
fn settled(members: &[u8]) -> Fixture {
    let mut fixture = Fixture::running();
    fixture.service(fact(1, "web", part(members, &[])));
    fixture.observe(&web(members));
    fixture.outputs.clear();
    fixture
}

#[test]
fn d6_nothing_is_assigned_before_lists_and_first_discovery() {
    for order in [[In::ListsSynced, In::DiscoverySynced], [In::DiscoverySynced, In::ListsSynced]] {
        let mut fixture = Fixture::waiting();
        fixture.service(fact(1, "web", part(&[1], &[])));
        fixture.observe(&web(&[2]));
        let [first, second] = order;
        fixture.send(first);
        fixture.pass(600_000);
        assert!(fixture.assigned.is_empty());
        fixture.send(second);
        assert_eq!(fixture.web(), (ips(&[1]), ips(&[2])));
    }
}

#[test]
fn a2_a_pool_receives_its_assignment_before_observations() {
    let mut fixture = Fixture::running();
    fixture.observe(&web(&[7]));
    assert!(fixture.take().is_empty() && fixture.assigned.is_empty());
    fixture.service(fact(1, "web", part(&[1], &[])));
    let said = fixture.take();
    assert!(matches!(&said[0], Out::Assign(a) if a.pool == id("lb", "shop-web") && a.family == Family::V4));
    assert!(matches!(&said[1], Out::Observe(pool, o) if *pool == id("lb", "shop-web")
        && o.facts.members() == ips(&[7])));
    fixture.pass(1_000);
    fixture.observe(&web(&[7]));
    let said = fixture.take();
    assert!(matches!(said[..], [Out::Observe(..)]), "the level is said only when it differs: {said:?}");
}

#[test]
fn d1_the_name_of_the_pool_shows_its_family() {
    let mut fixture = Fixture::running();
    let v6: IpAddr = "fd00::1".parse().expect("an address");
    let mut dual = fact(1, "web", part(&[1], &[]));
    let node = RequiredNode { name: NodeName::new("node-1"), ready: false };
    dual.parts[&Family::V6] = Part { required: BTreeMap::from([(v6, node)]), ..Part::default() };
    fixture.service(dual);
    let pools = vec![pool("lb", "shop-web", &[]), pool("lb", "Shop-Web-IPv6", &[])];
    let mut second = rule(1, "shop-web-ipv6");
    second.name = format!("{}-IPv6", second.name).into();
    fixture.observe(&balancer("LB", pools, vec![rule(1, "shop-web"), second]));
    assert_eq!(fixture.web().0, ips(&[1]));
    let other = fixture.assignment("lb", "shop-web-ipv6");
    assert_eq!(other.family, Family::V6);
    assert_eq!(other.level.required.keys().collect::<Vec<_>>(), [&v6]);
    assert!(!other.level.required[&v6].node_ready);
    assert_eq!(other.level.required[&v6].name.as_str(), "node-1");
}

#[test]
fn a3_a_changed_revision_pause_or_doubt_is_sent_again() {
    let mut fixture = settled(&[1]);
    let mut next = fact(1, "web", part(&[1], &[]));
    fixture.service(next.clone());
    assert!(fixture.take().is_empty());
    next.revision = 1;
    fixture.service(next.clone());
    assert!(matches!(fixture.take()[..], [Out::Assign(_)]));
    next.provenance = Provenance::Relist;
    fixture.service(next.clone());
    assert_eq!(fixture.assignment("lb", "shop-web").provenance, Provenance::Relist);
    next.provenance = Provenance::Watch;
    fixture.service(next.clone());
    assert_eq!(fixture.assignment("lb", "shop-web").provenance, Provenance::Watch, "it was acted on");
    next.paused = true;
    fixture.service(next);
    assert!(fixture.assignment("lb", "shop-web").is_paused());
}

#[test]
fn a3_facts_of_one_turn_keep_oldest_trigger_and_most_doubt() {
    let mut fixture = settled(&[1]);
    let mut out = Vec::new();
    let mut first = fact(1, "web", part(&[1, 2], &[]));
    first.triggered = Some(Now::from_millis(5));
    first.provenance = Provenance::FirstList;
    let mut second = fact(1, "web", part(&[1, 3], &[]));
    second.triggered = Some(Now::from_millis(9));
    for fact in [first, second] {
        fixture.machine.step(fixture.now, In::Service(uid(1), Some(Arc::new(fact))), &mut out);
    }
    assert!(out.is_empty() && fixture.machine.deadline() == Some(fixture.now));
    fixture.pass(0);
    let said = fixture.assignment("lb", "shop-web");
    assert_eq!(said.services[&uid(1)].triggered, Some(Now::from_millis(5)));
    assert_eq!(said.provenance, Provenance::FirstList);
    assert_eq!(fixture.web().0, ips(&[1, 3]));
}

#[test]
#[should_panic(expected = "an assignment is not of the term that opens")]
fn a4_an_assignment_of_another_term_ends_the_process() {
    let mut fixture = settled(&[1]);
    // No pool receives this term.
    fixture.machine.term.epoch = Epoch(7);
    fixture.machine.opening = true;
    fixture.machine.tick(fixture.now, &mut Vec::new());
}

#[test]
fn w8_a_new_term_opens_after_it_has_sent_every_assignment() {
    let mut fixture = settled(&[1]);
    fixture.pass(5_000);
    fixture.send(In::Confirmed(Epoch(7)));
    let [Out::Assign(said), Out::Opened(Epoch(7))] = &fixture.take()[..] else { panic!("not opened") };
    assert_eq!((said.epoch, said.opened), (Epoch(7), fixture.now));
    fixture.pass(5_000);
    fixture.service(fact(1, "web", part(&[2], &[])));
    let said = fixture.assignment("lb", "shop-web");
    assert_eq!((said.epoch, fixture.now.since(said.opened)), (Epoch(7), Duration::from_secs(5)));
    fixture.take();
    fixture.send(In::Confirmed(Epoch(7)));
    fixture.send(In::Confirmed(Epoch(6)));
    assert!(fixture.take().is_empty(), "it is open, and an older one is over");
}

#[test]
fn w8_a_term_opens_with_all_facts_from_before_it() {
    let mut fixture = settled(&[1]);
    let mut out = Vec::new();
    let changed = Arc::new(fact(1, "web", part(&[1, 2], &[])));
    fixture.machine.step(fixture.now, In::Service(uid(1), Some(changed)), &mut out);
    fixture.machine.step(fixture.now, In::Confirmed(Epoch(7)), &mut out);
    assert!(out.is_empty() && fixture.machine.deadline() == Some(fixture.now), "at the end of the turn");
    fixture.machine.tick(fixture.now, &mut out);
    fixture.receive(out);
    assert_eq!(fixture.web().0, ips(&[1, 2]));
    assert!(matches!(&fixture.take()[..], [Out::Assign(_), .., Out::Opened(Epoch(7))]));
}

#[test]
fn w8_a_term_that_opens_before_assignments_applies_to_all() {
    let mut fixture = Fixture::waiting();
    fixture.send(In::Confirmed(Epoch(7)));
    assert!(matches!(&fixture.take()[..], [Out::Opened(Epoch(7))]));
    let opened = fixture.now;
    fixture.pass(1_000);
    fixture.send(In::ListsSynced);
    fixture.send(In::DiscoverySynced);
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.observe(&web(&[1]));
    let said = fixture.assignment("lb", "shop-web");
    assert_eq!((said.epoch, said.opened), (Epoch(7), opened));
}

#[test]
fn w8_a_retiring_pool_is_asked_again_in_a_new_term() {
    let mut fixture = settled(&[1]);
    fixture.send(In::Service(uid(1), None));
    fixture.take();
    fixture.send(In::Confirmed(Epoch(7)));
    let [Out::Assign(said), Out::Opened(_)] = &fixture.take()[..] else { panic!("not told again") };
    assert!(said.epoch == Epoch(7) && said.opened == fixture.now && said.services.is_empty());
    fixture.send(In::Retired(id("lb", "shop-web")));
    assert!(matches!(&fixture.take()[..], [Out::Forget(_)]));
}

#[test]
fn q2_read_marks_are_sent_after_the_assignments() {
    let mut fixture = settled(&[1]);
    fixture.take();
    let read = fixture.now;
    let mut out = Vec::new();
    fixture.machine.step(fixture.now, In::ReadUpTo(read), &mut out);
    let newest = Arc::new(fact(1, "web", part(&[1, 2], &[])));
    fixture.machine.step(fixture.now, In::Service(uid(1), Some(newest)), &mut out);
    fixture.machine.tick(fixture.now, &mut out);
    let last = out.iter().rposition(|said| matches!(said, Out::Assign(_)));
    let passed_on = out.iter().position(|said| matches!(said, Out::ReadUpTo(up_to) if *up_to == read));
    assert!(last.is_some() && last < passed_on, "{out:?}");
    fixture.receive(out);
    fixture.take();
    fixture.send(In::ReadUpTo(read));
    assert!(matches!(&fixture.take()[..], [Out::ReadUpTo(_)]), "also where nothing has changed");
}

#[test]
fn w8_a_pool_released_when_a_term_begins_retires_in_that_term() {
    let mut fixture = settled(&[1]);
    let mut out = Vec::new();
    fixture.machine.step(fixture.now, In::Service(uid(1), None), &mut out);
    fixture.machine.step(fixture.now, In::Confirmed(Epoch(7)), &mut out);
    fixture.machine.tick(fixture.now, &mut out);
    fixture.receive(out);
    let said = fixture.assignment("lb", "shop-web");
    assert!(said.epoch == Epoch(7) && said.services.is_empty());
}

#[test]
fn d2_a_pool_without_proof_is_reported_once_per_reason() {
    let mut fixture = Fixture::running();
    fixture.service(fact(1, "web", part(&[1], &[])));
    let mut outbound = pool("lb", "shop-web", &[]);
    outbound.outbound_rule = true;
    let outbound = balancer("lb", vec![outbound], vec![rule(1, "shop-web")]);
    fixture.observe(&outbound);
    fixture.observe(&outbound);
    let refused = |reason| EventKind::NotManageable { pool: id("lb", "shop-web"), reason, attempted: false };
    let said = fixture.take();
    let count = |pools| Metric::NotManageable { reason: NotManageable::OutboundRule.label(), pools };
    assert!(said.iter().any(|out| matches!(out, Out::Metric(sample) if *sample == count(1))));
    let mut views = said.iter().filter_map(|out| match out {
        Out::Service(_, _, view) => view.clone(),
        Out::Assign(_)
        | Out::Opened(_)
        | Out::Observe(..)
        | Out::Forget(_)
        | Out::Rewrite(_)
        | Out::SourceAdminStates(..)
        | Out::Reread(_)
        | Out::ReadUpTo(_)
        | Out::Answer(..)
        | Out::Guards(_)
        | Out::Refused(..)
        | Out::Report(_)
        | Out::Ended(_)
        | Out::Metric(_) => None,
    });
    let last = views.next_back().expect("the Service is shown");
    assert_eq!(last.not_manageable, [(id("lb", "shop-web"), NotManageable::OutboundRule)]);
    fixture.outputs = said;
    assert_eq!(fixture.reports(), [refused(NotManageable::OutboundRule)]);
    let mut automatic = pool("lb", "shop-web", &[]);
    automatic.sync_automatic = true;
    fixture.observe(&balancer("lb", vec![automatic], vec![rule(1, "shop-web")]));
    assert_eq!(fixture.reports(), [refused(NotManageable::SyncAutomatic)]);
    fixture.observe(&web(&[]));
    assert!(
        fixture
            .samples()
            .contains(&Metric::NotManageable { reason: NotManageable::SyncAutomatic.label(), pools: 0 })
    );
    assert_eq!(fixture.web().0, ips(&[1]));
    fixture.observe(&outbound);
    assert_eq!(fixture.reports(), [refused(NotManageable::OutboundRule)], "it was manageable in between");
}

#[test]
fn d2_a_pool_that_loses_its_proof_is_released() {
    let mut fixture = settled(&[1]);
    let foreign = rule(9, "shop-web");
    let reason = NotManageable::ForeignRule { rule: Arc::clone(&foreign.name) };
    let rules = vec![rule(1, "shop-web"), foreign];
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1])], rules));
    let said = fixture.take();
    assert!(
        said.iter().any(|out| matches!(out, Out::Assign(a) if a.services.is_empty() && a.level.is_empty()))
    );
    assert!(!said.iter().any(|out| matches!(out, Out::Observe(..))));
    fixture.outputs = said;
    assert_eq!(
        fixture.reports(),
        [EventKind::NotManageable { pool: id("lb", "shop-web"), reason, attempted: false }]
    );
    fixture.send(In::Retired(id("lb", "shop-web")));
    assert!(matches!(&fixture.take()[..], [Out::Forget(_)]));
    fixture.observe(&web(&[1]));
    assert_eq!(fixture.web().0, ips(&[1]));
}

#[test]
fn d2_the_cluster_s_own_pools_are_never_assigned_or_reported() {
    let mut fixture = Fixture::running();
    fixture.service(fact(1, "web", part(&[1], &[])));
    for name in ["kubernetes", "KUBERNETES-ipv6"] {
        fixture.observe(&balancer("lb", vec![pool("lb", name, &[1])], vec![rule(1, name)]));
        fixture.pass(120_000);
    }
    assert!(fixture.assigned.is_empty());
    assert!(fixture.reports().is_empty());
}

#[test]
fn d2_services_that_share_a_pool_are_united_and_reported_once() {
    let mut fixture = settled(&[1]);
    fixture.service(fact(2, "web", part(&[2], &[1])));
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    let both = balancer("lb", vec![pool("lb", "shop-web", &[1])], rules);
    fixture.observe(&both);
    fixture.observe(&both);
    assert_eq!(fixture.web(), (ips(&[1, 2]), ips(&[])));
    let shared = fixture.reports();
    assert_eq!(shared.len(), 1);
    assert!(matches!(&shared[0], EventKind::Shared { services, .. } if services.len() == 2));
    fixture.send(In::Service(uid(2), None));
    let said = fixture.assignment("lb", "shop-web");
    assert!(said.services.is_empty(), "the rule of the one that is gone is foreign now");
}

#[test]
fn d1_one_paused_service_pauses_the_pool_that_it_shares() {
    let mut fixture = settled(&[1]);
    let mut second = fact(2, "web", part(&[2], &[]));
    second.paused = true;
    fixture.service(second);
    assert!(!fixture.assignment("lb", "shop-web").is_paused());
    let rules = vec![rule(1, "shop-web"), rule(2, "shop-web")];
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web", &[1])], rules));
    assert!(fixture.assignment("lb", "shop-web").is_paused());
}

#[test]
fn d2_a_pool_name_that_fits_both_families_is_not_manageable() {
    let mut fixture = Fixture::running();
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.service(fact(2, "web-ipv6", part(&[2], &[])));
    let rules = vec![rule(1, "shop-web-ipv6"), rule(2, "shop-web-ipv6")];
    fixture.observe(&balancer("lb", vec![pool("lb", "shop-web-ipv6", &[])], rules));
    assert!(fixture.assigned.is_empty());
    let reports = fixture.reports();
    assert!(matches!(&reports[..], [EventKind::NotManageable { reason: NotManageable::MixedFamilies, .. }]));
}

#[test]
fn d1_a_service_that_is_no_candidate_leaves_its_pool_as_is() {
    let mut fixture = settled(&[1]);
    let mut cluster = fact(1, "web", part(&[1], &[]));
    cluster.candidacy = Candidacy::NotLocal;
    fixture.service(cluster);
    assert!(fixture.assignment("lb", "shop-web").services.is_empty());
    fixture.send(In::Retired(id("lb", "shop-web")));
    assert!(fixture.assigned.is_empty());
    assert!(fixture.reports().is_empty());
    fixture.send(In::Retired(id("lb", "shop-web")));
    assert!(matches!(fixture.take()[..], [Out::Metric(Metric::UnmatchedAnswer)]));
}

#[test]
fn d1_a_pool_is_released_when_rules_pool_or_balancer_go() {
    let gone = [
        Some(balancer("lb", vec![pool("lb", "shop-web", &[1])], vec![])),
        Some(balancer("lb", vec![], vec![rule(1, "shop-web")])),
        None,
    ];
    for facts in gone {
        let mut fixture = settled(&[1]);
        fixture.send(In::Lb(LbObservation {
            lb: LbName::new("LB"),
            began: fixture.now,
            facts,
            puts: Default::default(),
        }));
        assert!(fixture.assignment("lb", "shop-web").services.is_empty());
        fixture.send(In::Retired(id("lb", "shop-web")));
        assert!(fixture.assigned.is_empty());
        fixture.observe(&web(&[1]));
        assert_eq!(fixture.web().0, ips(&[1]));
    }
}

#[test]
fn a3_a_pool_assigned_again_before_its_answer_is_kept() {
    let mut fixture = settled(&[1]);
    let shop_web = id("lb", "shop-web");
    fixture.send(In::Service(uid(1), None));
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.take();
    fixture.send(In::Retired(shop_web.clone()));
    assert!(matches!(&fixture.take()[..], [Out::Assign(a)] if !a.services.is_empty()));
    // The pool was released twice and answered once. The answer may belong to the first release, so the pool is asked
    // again.
    fixture.send(In::Service(uid(1), None));
    fixture.service(fact(1, "web", part(&[1], &[])));
    fixture.send(In::Service(uid(1), None));
    fixture.take();
    fixture.send(In::Retired(shop_web.clone()));
    assert!(matches!(&fixture.take()[..], [Out::Assign(a)] if a.services.is_empty()));
    fixture.send(In::Retired(shop_web));
    assert!(matches!(&fixture.take()[..], [Out::Forget(_)]));
}

#[test]
fn h3_a_service_is_shown_on_change_and_removed_at_its_end() {
    let mut fixture = Fixture::waiting();
    let mut hidden = fact(1, "web", part(&[], &[]));
    hidden.candidacy = Candidacy::NotLoadBalancer;
    fixture.service(hidden);
    assert!(fixture.take().is_empty());
    fixture.service(fact(1, "web", part(&[1], &[])));
    assert!(matches!(&fixture.take()[..], [Out::Service(_, _, Some(view))] if view.pools.is_empty()));
    fixture.observe(&web(&[1]));
    assert!(
        matches!(&fixture.take()[..], [Out::Service(_, _, Some(v))] if v.pools == [id("lb", "shop-web")]),
        "its rule was found"
    );
    fixture.service(fact(1, "web", part(&[2], &[])));
    assert!(fixture.take().is_empty());
    fixture.observe(&balancer("lb", vec![], vec![]));
    assert!(
        matches!(&fixture.take()[..], [Out::Service(_, _, Some(v))] if v.pools.is_empty()),
        "its rule is gone"
    );
    fixture.send(In::Service(uid(1), None));
    assert!(matches!(&fixture.take()[..], [Out::Service(_, _, None)]));
}

#[test]
fn h3_a_service_without_a_pool_is_not_shown_as_refused() {
    let mut fixture = Fixture::running();
    fixture.service(fact(1, "web", part(&[1], &[])));
    let mut nic = pool("lb", "shop-web", &[]);
    nic.nic_backed = true;
    fixture.observe(&balancer("lb", vec![nic], vec![rule(1, "shop-web")]));
    fixture.take();
    fixture.observe(&balancer("lb", vec![], vec![rule(1, "shop-web")]));
    let said = fixture.take();
    assert!(said.iter().any(|out| matches!(out, Out::Service(_, _, Some(v)) if v.not_manageable.is_empty())));
}

#[test]
fn d3_an_observation_older_than_the_last_one_is_discarded() {
    let mut fixture = settled(&[1]);
    let old =
        LbObservation { lb: LbName::new("lb"), began: Now::ZERO, facts: None, puts: Default::default() };
    fixture.send(In::Lb(old));
    assert!(fixture.take().is_empty());
    assert_eq!(fixture.web().0, ips(&[1]));
}
