//! Tests of the times at which Discovery reads load balancers, on the test's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::{Discovery, In, Out, Params};
use model::arm::{Failure, FailureKind, LbFacts, Provisioning, RetryAfter, RuleFacts};
use model::ids::{CallId, LbName, PoolId, PoolName, RulePrefix, ServiceKey, ServiceUid};
use model::level::Provenance;
use model::machine::{Machine, Now};
use model::operator_request::{self, Done, Refusal, RequestId};
use model::sample::Metric;
use model::services::{Parts, ServiceFact};
use model::view::{Candidacy, LbView};

mod internal;
mod places;
mod properties;

fn uid(n: u32) -> ServiceUid {
    ServiceUid::new(format!("{n:08x}-0000-4000-8000-000000000000"))
}

/// Returns the candidate `shop/s<n>`.
fn candidate(n: u32) -> ServiceFact {
    ServiceFact {
        key: ServiceKey::new("shop", format!("s{n}")),
        uid: uid(n),
        candidacy: Candidacy::Candidate,
        paused: false,
        internal: false,
        exposure: 0,
        parts: Parts::default(),
        slices: 0,
        endpoints: 0,
        data_errors: Vec::new(),
        resource: None,
        revision: 0,
        provenance: Provenance::Watch,
        triggered: None,
        read: None,
    }
}

/// Returns a load balancer on which each of these Services has a rule for this pool.
fn balancer(lb: &str, rules: &[(u32, &str)]) -> Arc<LbFacts> {
    let rule = |(n, pool): &(u32, &str)| RuleFacts {
        name: format!("{}-TCP-80", RulePrefix::of(&uid(*n)).as_str()).into(),
        pool: Some(PoolName::new(*pool)),
        probed: true,
    };
    Arc::new(LbFacts {
        lb: LbName::new(lb),
        etag: None,
        guid: None,
        provisioning: Provisioning::Succeeded,
        pools: Vec::new(),
        rules: rules.iter().map(rule).collect(),
    })
}

fn failure(kind: FailureKind) -> Arc<Failure> {
    Arc::new(Failure {
        kind,
        code: None,
        inner_codes: Vec::new(),
        message: "".into(),
        retry_after: RetryAfter::Absent,
        correlation_id: None,
    })
}

/// ARM's answer to reads of one load balancer.
#[derive(Clone, Debug)]
enum Answer {
    Is(Arc<LbFacts>),
    Fails(FailureKind),
    Never,
}

/// The machine, and an ARM that answers each read after a time.
struct Fixture {
    machine: Discovery,
    now: Now,
    /// The answers of load balancers; the others do not exist.
    arm: BTreeMap<LbName, Answer>,
    latency: Duration,
    /// True if reads wait for a gate or for the budget; and the waiting reads.
    throttled: bool,
    unsent: BTreeMap<LbName, CallId>,
    /// The reads in flight, and when they were requested.
    open: BTreeMap<LbName, (CallId, Now)>,
    answers: BTreeMap<Now, Vec<(CallId, LbName, Now)>>,
    /// The reads, each with its time.
    reads: Vec<(u64, String)>,
    said: Vec<Out>,
}

impl Fixture {
    fn new(load_balancers: &[&str]) -> Fixture {
        let params = Params {
            load_balancers: load_balancers.iter().map(|lb| LbName::new(*lb)).collect(),
            internal: load_balancers
                .iter()
                .filter(|lb| lb.ends_with("-internal"))
                .map(|lb| LbName::new(*lb))
                .collect(),
            interval: Duration::from_secs(60),
        };
        let arm = |lb: &&str| (LbName::new(*lb), Answer::Is(balancer(lb, &[])));
        Fixture {
            machine: Discovery::new(params),
            now: Now::ZERO,
            arm: load_balancers.iter().map(arm).collect(),
            latency: Duration::from_millis(100),
            throttled: false,
            unsent: BTreeMap::new(),
            open: BTreeMap::new(),
            answers: BTreeMap::new(),
            reads: Vec::new(),
            said: Vec::new(),
        }
    }

    /// Creates a fixture that has read all load balancers, and in which no regular read is due soon.
    fn synced(load_balancers: &[&str]) -> Fixture {
        let mut fixture = Fixture::new(load_balancers);
        fixture.step(In::ListsSynced);
        fixture.pass(1_000);
        fixture.reads.clear();
        fixture.said.clear();
        fixture
    }

    fn set(&mut self, lb: &str, answer: Answer) {
        self.arm.insert(LbName::new(lb), answer);
    }

    fn step(&mut self, input: In) {
        let mut out = Vec::new();
        self.machine.step(self.now, input, &mut out);
        self.receive(out);
    }

    fn service(&mut self, fact: ServiceFact) {
        self.step(In::Service(fact.uid.clone(), Some(Arc::new(fact))));
    }

    /// Checks that each load balancer has at most one read in flight, and that only load balancers that were read are
    /// reported.
    fn receive(&mut self, out: Vec<Out>) {
        for said in out {
            match &said {
                Out::Read { call, lb } => {
                    self.reads.push((self.now.as_micros() / 1_000, lb.to_string()));
                    let open = self.open.insert(lb.clone(), (*call, self.now));
                    assert!(open.is_none(), "two reads of {lb} at a time");
                    self.unsent.insert(lb.clone(), *call);
                }
                Out::Lb(seen) => assert!(self.open.remove(&seen.lb).is_some(), "{} was not read", seen.lb),
                Out::View(view) if view.last_error.is_some() => {
                    self.open.remove(&view.lb);
                }
                Out::View(_) | Out::Synced | Out::Answer(..) | Out::Metric(_) => {}
            }
            self.said.push(said);
        }
        if !self.throttled {
            self.send();
        }
    }

    /// Lets the writer send the waiting reads.
    fn send(&mut self) {
        for (lb, call) in std::mem::take(&mut self.unsent) {
            let at = self.now.plus(self.latency);
            self.answers.entry(at).or_default().push((call, lb, self.now));
            self.step(In::Sent(call));
        }
    }

    fn answer(&mut self, call: CallId, lb: &LbName, began: Now) {
        let result = match self.arm.get(lb) {
            None => Ok(None),
            Some(Answer::Is(facts)) => Ok(Some(Arc::clone(facts))),
            Some(Answer::Fails(kind)) => Err(failure(*kind)),
            Some(Answer::Never) => return,
        };
        self.step(In::Read { call, began, result, puts: Default::default() });
    }

    /// Advances the clock, with answers and ticks at their times.
    fn pass(&mut self, millis: u64) {
        let end = self.now.plus(Duration::from_millis(millis));
        loop {
            let answer = self.answers.first_key_value().map(|(at, _)| *at);
            let next = [answer, self.machine.deadline()].into_iter().flatten().min();
            let Some(at) = next.filter(|at| *at <= end) else { break };
            self.now = self.now.max(at);
            for (call, lb, began) in self.answers.remove(&at).unwrap_or_default() {
                self.answer(call, &lb, began);
            }
            let mut out = Vec::new();
            self.machine.tick(self.now, &mut out);
            self.receive(out);
        }
        self.now = end;
    }

    /// Returns the times, in milliseconds, at which this load balancer was read.
    fn reads_of(&self, lb: &str) -> Vec<u64> {
        self.reads.iter().filter(|(_, read)| read == lb).map(|(at, _)| *at).collect()
    }

    fn synced_sent(&self) -> usize {
        self.said.iter().filter(|said| matches!(said, Out::Synced)).count()
    }

    fn view(&self, lb: &str) -> LbView {
        let views = self.said.iter().rev().filter_map(|said| match said {
            Out::View(view) => Some(view),
            Out::Read { .. } | Out::Lb(_) | Out::Synced | Out::Answer(..) | Out::Metric(_) => None,
        });
        let mut own = views.filter(|view| view.lb == LbName::new(lb));
        own.next().expect("it has a view").clone()
    }
}

#[test]
fn d3_each_lb_is_read_once_after_the_initial_lists() {
    let mut fixture = Fixture::new(&["a", "b", "c", "B"]);
    fixture.pass(100_000);
    assert!(fixture.reads.is_empty());
    fixture.step(In::ListsSynced);
    fixture.pass(99);
    assert_eq!(fixture.synced_sent(), 0);
    fixture.pass(1);
    let expected = [(100_000, "a".into()), (100_000, "b".into()), (100_000, "c".into())];
    assert_eq!(fixture.reads, expected);
    assert_eq!(fixture.synced_sent(), 1);
    fixture.pass(600_000);
    assert_eq!(fixture.synced_sent(), 1);
}

#[test]
fn d3_reads_of_lbs_are_spread_evenly_over_the_interval() {
    let mut fixture = Fixture::new(&["a", "b", "c"]);
    fixture.step(In::ListsSynced);
    fixture.pass(1_000);
    fixture.reads.clear();
    fixture.pass(180_000);
    assert_eq!(fixture.reads_of("a"), [20_000, 80_000, 140_000]);
    assert_eq!(fixture.reads_of("b"), [40_000, 100_000, 160_000]);
    assert_eq!(fixture.reads_of("c"), [60_000, 120_000, 180_000]);
    let told = fixture.said.iter().filter(|said| matches!(said, Out::Lb(_))).count();
    assert_eq!(told, 12, "each read is output: it is the drift check");
}

#[test]
fn d1_the_absence_of_a_load_balancer_is_a_fact() {
    let mut fixture = Fixture::new(&["a", "a-internal"]);
    fixture.arm.remove(&LbName::new("a-internal"));
    fixture.step(In::ListsSynced);
    fixture.pass(1_000);
    assert_eq!(fixture.synced_sent(), 1);
    assert!(fixture.said.iter().any(|said| matches!(said, Out::Lb(seen)
        if seen.lb == LbName::new("a-internal") && seen.facts.is_none())));
    let view = fixture.view("a-internal");
    assert_eq!((view.exists, view.last_error), (Some(false), None));
}

#[test]
fn n4_a_404_without_proof_of_absence_is_a_failure() {
    let mut fixture = Fixture::synced(&["a"]);
    fixture.set("a", Answer::Fails(FailureKind::Status(404)));
    fixture.pass(70_000);
    let view = fixture.view("a");
    assert_eq!((view.exists, view.last_error.is_some()), (Some(true), true));
    assert!(!fixture.said.iter().any(|said| matches!(said, Out::Lb(_))));
    fixture.arm.clear();
    fixture.pass(70_000);
    assert_eq!(fixture.view("a").exists, Some(false));
    assert!(fixture.said.iter().any(|said| matches!(said, Out::Lb(seen) if seen.facts.is_none())));
}

#[test]
fn d6_without_the_resource_group_its_load_balancers_are_unknown() {
    let mut fixture = Fixture::new(&["a", "b"]);
    fixture.set("a", Answer::Fails(FailureKind::Status(404)));
    fixture.set("b", Answer::Fails(FailureKind::Status(404)));
    fixture.step(In::ListsSynced);
    fixture.pass(60_000);
    assert_eq!((fixture.synced_sent(), fixture.view("a").exists), (0, None));
    assert_eq!(fixture.view("a").last_error.as_deref(), Some("HTTP 404"));
}

#[test]
fn d6_discovery_is_not_synced_while_no_lb_is_readable() {
    let mut fixture = Fixture::new(&["a", "b"]);
    fixture.set("a", Answer::Fails(FailureKind::Status(503)));
    fixture.set("b", Answer::Fails(FailureKind::Status(503)));
    fixture.step(In::ListsSynced);
    fixture.pass(60_000);
    assert_eq!(fixture.synced_sent(), 0);
    fixture.set("b", Answer::Is(balancer("b", &[])));
    fixture.pass(60_000);
    assert_eq!(fixture.synced_sent(), 1);
}

#[test]
fn d6_an_unreadable_lb_is_unknown_and_delays_no_other() {
    let mut fixture = Fixture::new(&["a", "b"]);
    fixture.set("a", Answer::Fails(FailureKind::Status(503)));
    fixture.step(In::ListsSynced);
    fixture.pass(250_000);
    assert_eq!(fixture.reads_of("a"), [0, 5_100, 15_200, 35_300, 75_400, 135_500, 195_600]);
    assert_eq!(fixture.reads_of("b")[0], 0);
    assert_eq!(fixture.synced_sent(), 1);
    assert!(!fixture.said.iter().any(|said| matches!(said, Out::Lb(seen) if seen.lb == LbName::new("a"))));
    let view = fixture.view("a");
    assert_eq!((view.exists, view.read_at), (None, None));
    assert_eq!(view.last_error.as_deref(), Some("HTTP 503"));
    fixture.set("a", Answer::Is(balancer("a", &[])));
    fixture.pass(60_000);
    assert_eq!(fixture.view("a").last_error, None);
}

#[test]
fn d3_a_failed_read_keeps_the_last_facts() {
    let mut fixture = Fixture::synced(&["a"]);
    fixture.set("a", Answer::Fails(FailureKind::Connection));
    fixture.pass(70_000);
    let view = fixture.view("a");
    assert_eq!((view.exists, view.last_error.is_some()), (Some(true), true));
    assert!(!fixture.said.iter().any(|said| matches!(said, Out::Lb(_))));
}

#[test]
fn a3_a_read_times_out_and_its_late_answer_is_ignored() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.set("a", Answer::Never);
    fixture.step(In::ListsSynced);
    fixture.pass(119_999);
    assert_eq!(fixture.view("a").last_error, None);
    fixture.pass(1);
    assert_eq!(fixture.view("a").last_error.as_deref(), Some("no answer within 2 min"));
    fixture.pass(5_000);
    assert_eq!(fixture.reads_of("a"), [0, 125_000]);
    fixture.said.clear();
    fixture.step(In::Read {
        call: CallId(1),
        began: Now::ZERO,
        result: Ok(Some(balancer("a", &[]))),
        puts: Default::default(),
    });
    assert!(matches!(fixture.said[..], [Out::Metric(Metric::UnmatchedAnswer)]));
}

#[test]
fn d3_a_candidate_without_a_rule_causes_rounds_until_it_has_one() {
    let mut fixture = Fixture::synced(&["a", "b"]);
    fixture.service(candidate(1));
    fixture.pass(11_500);
    assert_eq!(fixture.reads_of("a"), [3_000, 6_000, 11_000]);
    assert_eq!(fixture.reads_of("b"), [3_000, 6_000, 11_000]);
    fixture.set("b", Answer::Is(balancer("b", &[(1, "shop-s1")])));
    fixture.pass(60_000);
    assert_eq!(fixture.reads_of("a"), [3_000, 6_000, 11_000, 21_000, 30_000], "one round found it");
}

#[test]
fn d3_a_rule_for_the_cluster_s_pool_contradicts_the_policy() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.set("a", Answer::Is(balancer("a", &[(1, "kubernetes")])));
    fixture.step(In::ListsSynced);
    fixture.pass(1_000);
    fixture.service(candidate(1));
    fixture.pass(50_000);
    assert_eq!(fixture.reads_of("a"), [0, 3_000, 6_000, 11_000, 21_000, 41_000]);
}

#[test]
fn d3_a_change_of_a_settled_candidate_causes_one_round() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.set("a", Answer::Is(balancer("a", &[(1, "shop-s1")])));
    fixture.service(candidate(1));
    fixture.step(In::ListsSynced);
    fixture.pass(10_000);
    assert_eq!(fixture.reads_of("a"), [0], "the first round found its rule");
    fixture.service(candidate(1));
    let mut moved = candidate(1);
    moved.revision = 7;
    fixture.service(moved);
    fixture.pass(10_000);
    assert_eq!(fixture.reads_of("a"), [0], "a change of slices causes no round");
    let mut exposed = candidate(1);
    exposed.exposure = 1;
    fixture.service(exposed);
    fixture.pass(30_000);
    assert_eq!(fixture.reads_of("a"), [0, 22_000]);
}

#[test]
fn d3_a_candidate_without_a_rule_at_start_causes_rounds() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.service(candidate(1));
    fixture.step(In::ListsSynced);
    fixture.pass(50_000);
    assert_eq!(fixture.reads_of("a"), [0, 5_000, 10_000, 20_000, 40_000]);
}

#[test]
fn d3_no_round_is_due_before_the_initial_reads_end() {
    let names: Vec<String> = (0..9).map(|n| format!("lb-{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut fixture = Fixture::new(&names);
    for lb in &names[..8] {
        fixture.set(lb, Answer::Fails(FailureKind::Status(503)));
    }
    fixture.set("lb-8", Answer::Is(balancer("lb-8", &[(1, "shop-s1")])));
    fixture.throttled = true;
    fixture.service(candidate(1));
    fixture.step(In::ListsSynced);
    fixture.pass(6_000);
    fixture.throttled = false;
    fixture.send();
    fixture.pass(4_000);
    assert_eq!(
        fixture.reads_of("lb-8"),
        [6_100],
        "the last round finds the rule that the round after 5 s missed"
    );
}

#[test]
fn d3_a_former_candidate_causes_rounds_until_its_rule_is_gone() {
    for (gone, rules) in [(true, &[][..]), (false, &[(1, "kubernetes")])] {
        let mut fixture = Fixture::new(&["a"]);
        fixture.set("a", Answer::Is(balancer("a", &[(1, "shop-s1")])));
        fixture.service(candidate(1));
        fixture.step(In::ListsSynced);
        fixture.pass(20_000);
        if gone {
            fixture.step(In::Service(uid(1), None));
        } else {
            let mut fact = candidate(1);
            fact.candidacy = Candidacy::NotLocal;
            fixture.service(fact);
        }
        fixture.pass(6_000);
        assert_eq!(fixture.reads_of("a"), [0, 22_000, 25_000]);
        fixture.set("a", Answer::Is(balancer("a", rules)));
        fixture.pass(30_000);
        assert_eq!(fixture.reads_of("a"), [0, 22_000, 25_000, 30_000]);
    }
}

#[test]
fn d3_many_changes_cause_one_round_in_two_seconds() {
    let mut fixture = Fixture::synced(&["a"]);
    for n in 0..100 {
        fixture.service(candidate(n));
        fixture.pass(10);
    }
    fixture.pass(4_000);
    assert_eq!(fixture.reads_of("a"), [3_000, 5_000], "changes from 1 s to 2 s are due at 3 s to 4 s");
}

#[test]
fn q6_a_404_on_a_pool_causes_at_most_one_read_in_5_s() {
    let mut fixture = Fixture::synced(&["a", "b"]);
    let missing = |lb: &str| In::Missing(PoolId::new(LbName::new(lb), PoolName::new("shop-web")));
    fixture.step(missing("B"));
    fixture.pass(1_000);
    fixture.step(missing("b"));
    fixture.step(missing("b"));
    fixture.step(missing("elsewhere"));
    fixture.pass(20_000);
    assert_eq!(fixture.reads_of("b"), [1_000, 6_000]);
    assert!(fixture.reads_of("a").is_empty());
    fixture.step(missing("b"));
    fixture.pass(100);
    assert_eq!(fixture.reads_of("b"), [1_000, 6_000, 22_000]);
}

#[test]
fn q6_a_404_during_a_read_of_its_lb_causes_another_read() {
    let mut fixture = Fixture::synced(&["a"]);
    let missing = || In::Missing(PoolId::new(LbName::new("a"), PoolName::new("shop-web")));
    fixture.latency = Duration::from_secs(8);
    fixture.step(missing());
    fixture.pass(6_000);
    fixture.step(missing());
    fixture.pass(10_000);
    assert_eq!(fixture.reads_of("a"), [1_000, 9_000]);
}

#[test]
fn d3_a_foreign_release_causes_reads_of_all_after_2_s() {
    let mut fixture = Fixture::synced(&["a", "b"]);
    fixture.step(In::ForeignRelease);
    fixture.pass(20_000);
    assert_eq!(fixture.reads, [(3_000, "a".into()), (3_000, "b".into())]);
}

#[test]
fn d3_foreign_releases_cause_at_most_one_round_of_reads_in_15_s() {
    let mut fixture = Fixture::synced(&["a"]);
    for _ in 0..100 {
        fixture.step(In::ForeignRelease);
        fixture.pass(100);
    }
    // Released from 1 s to 10.9 s.
    fixture.pass(28_000);
    assert_eq!(fixture.reads_of("a"), [3_000, 18_000], "the second one follows the last release");
    fixture.step(In::ForeignRelease);
    fixture.pass(2_000);
    assert_eq!(
        fixture.reads_of("a"),
        [3_000, 18_000, 41_000],
        "2 s after a release, if there was none for long"
    );
}

#[test]
fn d3_a_release_shortly_before_a_round_causes_another() {
    let mut fixture = Fixture::synced(&["a"]);
    fixture.step(In::ForeignRelease);
    fixture.pass(1_500);
    fixture.step(In::ForeignRelease);
    fixture.pass(40_000);
    assert_eq!(fixture.reads_of("a"), [3_000, 18_000]);
}

#[test]
fn d3_initial_reads_serve_an_earlier_foreign_release() {
    let mut fixture = Fixture::new(&["a"]);
    fixture.step(In::ForeignRelease);
    assert_eq!(fixture.machine.deadline(), None);
    fixture.step(In::ListsSynced);
    fixture.pass(10_000);
    assert_eq!(fixture.reads_of("a"), [0]);
}

#[test]
fn w8_a_term_reads_all_in_order_and_ignores_earlier_reads() {
    let mut fixture = Fixture::synced(&["a", "b", "c"]);
    fixture.latency = Duration::from_millis(500);
    fixture.step(In::Missing(PoolId::new(LbName::new("b"), PoolName::new("shop-web"))));
    fixture.pass(200);
    fixture.step(In::StartRound);
    fixture.pass(10_000);
    let expected = [(1_000, "b"), (1_200, "a"), (1_200, "c"), (1_500, "b")];
    assert_eq!(fixture.reads, expected.map(|(at, lb)| (at, lb.to_owned())));
}

#[test]
fn n2_admin_state_reads_are_rounds_at_least_2_s_apart() {
    let mut fixture = Fixture::synced(&["a", "b"]);
    fixture.step(In::ReadSoon);
    fixture.step(In::ReadSoon);
    fixture.pass(500);
    fixture.step(In::ReadSoon);
    fixture.step(In::ReadSoon);
    fixture.pass(10_000);
    let expected = [(1_000, "a"), (1_000, "b"), (3_000, "a"), (3_000, "b")];
    assert_eq!(fixture.reads, expected.map(|(at, lb)| (at, lb.to_owned())));
}

#[test]
fn n2_a_request_during_a_read_causes_another_read() {
    let mut fixture = Fixture::synced(&["a"]);
    fixture.step(In::ReadSoon);
    fixture.pass(50);
    fixture.step(In::ReadSoon);
    fixture.pass(10_000);
    assert_eq!(fixture.reads_of("a"), [1_000, 3_000]);
}

#[test]
fn w8_a_term_does_not_wait_for_a_retry() {
    let mut fixture = Fixture::new(&["a", "b"]);
    fixture.set("a", Answer::Fails(FailureKind::Status(503)));
    fixture.step(In::ListsSynced);
    fixture.pass(40_000);
    fixture.reads.clear();
    fixture.step(In::StartRound);
    fixture.pass(30_000);
    assert_eq!(fixture.reads_of("a"), [40_000], "the delay of the next retry is unchanged");
}

#[test]
fn w8_initial_reads_serve_a_term_that_begins_before_they_end() {
    let names: Vec<String> = (0..9).map(|n| format!("lb-{n}")).collect();
    let mut fixture = Fixture::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
    fixture.step(In::StartRound);
    fixture.step(In::ListsSynced);
    fixture.pass(50);
    fixture.step(In::StartRound);
    fixture.pass(5_000);
    let last = fixture.reads_of("lb-8");
    assert_eq!((fixture.reads.len(), last), (8 + 9, vec![100]), "a read from before the term is repeated");
}

#[test]
fn d3_without_load_balancers_discovery_is_synced_with_the_lists() {
    let mut fixture = Fixture::new(&[]);
    fixture.step(In::ListsSynced);
    assert_eq!(fixture.synced_sent(), 1);
    assert_eq!(fixture.machine.deadline(), None);
}

#[test]
fn h3_the_operator_can_request_reads_of_one_lb_or_all() {
    let answers = |fixture: &Fixture| -> Vec<operator_request::Answer> {
        let answer = |said: &Out| if let Out::Answer(_, answer) = said { Some(answer.clone()) } else { None };
        fixture.said.iter().filter_map(answer).collect()
    };
    let mut early = Fixture::new(&["a"]);
    early.step(In::Compare(RequestId(1), None));
    assert!(matches!(answers(&early)[..], [operator_request::Answer::Refused(Refusal::Failed(_))]));

    let mut fixture = Fixture::synced(&["a", "b"]);
    let from = fixture.now.as_micros() / 1_000;
    fixture.reads.clear();
    let b = LbName::new("B");
    fixture.step(In::Compare(RequestId(1), Some(b.clone())));
    fixture.step(In::Compare(RequestId(2), Some(LbName::new("nobodys"))));
    fixture.pass(1_000);
    assert_eq!((fixture.reads_of("b"), fixture.reads_of("a").len()), (vec![from], 0));
    fixture.step(In::Compare(RequestId(3), None));
    fixture.pass(1_000);
    assert_eq!((fixture.reads_of("a").len(), fixture.reads_of("b").len()), (1, 2));
    let all = vec![LbName::new("a"), b.clone()];
    let comparing = |all| operator_request::Answer::Done(Done::Comparing(all));
    assert_eq!(
        answers(&fixture),
        [comparing(vec![b]), operator_request::Answer::Refused(Refusal::Unknown), comparing(all)]
    );
}
