//! Tests of the breaker (W10) and its use in the writer, with property tests.

use proptest::prelude::*;

use super::super::breaker::{OpenedBreaker, WriteBreaker, WriteKind};
use super::super::lane::Eligible;
use super::*;
use model::report::{EventKind, Report, Subject};
use model::sample::Caller;
use model::view::LaneView;

fn denied() -> Arc<Failure> {
    failed(403, "AuthorizationFailed", RetryAfter::Absent)
}

fn lb(name: &str) -> LbName {
    LbName::new(name)
}

/// Fails one pool after another with the same fault, each on the named load balancer. Returns the stop of the last
/// failure.
fn fails(breaker: &mut WriteBreaker, millis: u64, lbs: &[&str]) -> Option<OpenedBreaker> {
    let mut opened = None;
    for (number, name) in lbs.iter().enumerate() {
        let failed = pool(name, &format!("p{millis}-{number}"));
        opened = breaker.failed(at(millis), &failed, &denied(), WriteKind::Members);
    }
    opened
}

fn stops(breaker: &WriteBreaker, millis: u64, name: &str) -> bool {
    breaker.admits(at(millis), &lb(name)) != Some(Eligible::Any)
}

#[test]
fn w10_five_equal_failures_within_2_min_stop_everything_once() {
    let mut breaker = WriteBreaker::default();
    assert_eq!(fails(&mut breaker, 0, &["a", "a", "b", "b"]), None);
    let opened = fails(&mut breaker, 120_000, &["c"]).expect("the fifth opens it");
    assert_eq!((opened.lb, &*opened.description), (None, "HTTP 403 AuthorizationFailed"));
    assert!(stops(&breaker, 120_000, "a") && stops(&breaker, 120_000, "z"));
    assert_eq!(fails(&mut breaker, 120_001, &["d", "e", "f", "g", "h", "i"]), None, "one event");
    assert_eq!(breaker.scopes(), 1);
}

#[test]
fn w10_old_different_or_repeated_failures_do_not_count() {
    let mut breaker = WriteBreaker::default();
    fails(&mut breaker, 0, &["a"]);
    assert_eq!(fails(&mut breaker, 120_001, &["a", "b", "c", "d"]), None, "too old");
    let other = failed(403, "LinkedAuthorizationFailed", RetryAfter::Absent);
    assert_eq!(
        breaker.failed(at(120_002), &pool("e", "x"), &other, WriteKind::Members),
        None,
        "another code"
    );
    let other = failed(400, "AuthorizationFailed", RetryAfter::Absent);
    assert_eq!(
        breaker.failed(at(120_002), &pool("f", "x"), &other, WriteKind::Members),
        None,
        "another status"
    );
    for _ in 0..9 {
        let same = pool("d", "p120001-3");
        assert_eq!(breaker.failed(at(120_003), &same, &denied(), WriteKind::Members), None, "the same pool");
    }
    assert!(fails(&mut breaker, 120_004, &["g"]).is_some());
}

#[test]
fn w10_a_success_resets_the_count() {
    let mut breaker = WriteBreaker::default();
    fails(&mut breaker, 0, &["a", "b", "c", "d"]);
    assert!(!breaker.succeeded(&lb("z")));
    assert_eq!(fails(&mut breaker, 1, &["a", "b", "c", "d"]), None);
    assert!(fails(&mut breaker, 2, &["e"]).is_some());
}

#[test]
fn w10_failures_on_one_load_balancer_stop_only_that_one() {
    let mut breaker = WriteBreaker::default();
    for round in 0..4 {
        assert_eq!(fails(&mut breaker, round, &["a"]), None);
        breaker.succeeded(&lb("b"));
    }
    let opened = fails(&mut breaker, 4, &["a"]).expect("the fifth opens it");
    assert_eq!(opened.lb, Some(lb("a")));
    assert!(stops(&breaker, 5, "a") && !stops(&breaker, 5, "b"));
    assert!(!breaker.succeeded(&lb("b")), "it says nothing of the other");
    assert!(breaker.succeeded(&lb("a")) && !stops(&breaker, 5, "a"));
    for round in 6..10 {
        fails(&mut breaker, round, &["a"]);
        breaker.succeeded(&lb("a"));
    }
    assert_eq!(fails(&mut breaker, 10, &["a"]), None, "there it starts to count again");
}

#[test]
fn w10_a_later_failure_elsewhere_counts_for_the_wider_scope() {
    let mut breaker = WriteBreaker::default();
    assert_eq!(fails(&mut breaker, 0, &["a"; 5]).and_then(|opened| opened.lb), Some(lb("a")));
    assert_eq!(fails(&mut breaker, 1, &["b"]).map(|opened| opened.lb), Some(None));
    assert!(breaker.is_consistent() && breaker.scopes() == 1 && stops(&breaker, 1, "z"));
    assert!(breaker.succeeded(&lb("b")));
    assert!(!stops(&breaker, 1, "a"), "one success ends it for all");
}

#[test]
fn w10_downs_are_written_until_one_fails_too() {
    let mut breaker = WriteBreaker::default();
    fails(&mut breaker, 0, &["a", "b", "c", "d", "e"]);
    assert_eq!(breaker.admits(at(1), &lb("a")), Some(Eligible::Down));
    let other = failed(400, "", RetryAfter::Absent);
    breaker.failed(at(1), &pool("a", "x"), &other, WriteKind::Down);
    assert_eq!(breaker.admits(at(1), &lb("a")), Some(Eligible::Down), "that was another fault");
    breaker.failed(at(2), &pool("a", "x"), &denied(), WriteKind::Down);
    assert_eq!(breaker.admits(at(2), &lb("a")), None);
    assert_eq!(breaker.admits(at(30_000), &lb("a")), Some(Eligible::Any), "and are tried as all are");
}

#[test]
fn w10_failures_of_admin_parts_alone_never_stop_membership() {
    let mut breaker = WriteBreaker::default();
    let refuse = |breaker: &mut WriteBreaker, name: &str| {
        breaker.failed(at(0), &pool(name, "nics"), &denied(), WriteKind::Down)
    };
    for name in ["a", "b", "c", "d"] {
        assert_eq!(refuse(&mut breaker, name), None);
    }
    let opened = refuse(&mut breaker, "e").expect("the fifth opens it");
    assert_eq!((opened.caller, opened.lb), (Caller::AdminState, None));
    assert_eq!(breaker.admits(at(1), &lb("a")), Some(Eligible::Members));
    assert_eq!((breaker.fault(&lb("a")), breaker.probe_at(&lb("a"))), (None, None));
    assert_eq!(breaker.scopes(), 1);
    assert_eq!(fails(&mut breaker, 2, &["a", "b", "c", "d"]), None, "those of membership are counted apart");
    let opened = fails(&mut breaker, 3, &["e"]).expect("the fifth opens it");
    assert_eq!((opened.caller, breaker.admits(at(4), &lb("a"))), (Caller::Membership, None));

    assert_eq!(breaker.admits(at(30_000), &lb("a")), Some(Eligible::Down));
    breaker.granted(at(30_000), &lb("a"), WriteKind::Down);
    assert_eq!(breaker.admits(at(30_003), &lb("a")), Some(Eligible::Members), "its try is not spent");
    breaker.granted(at(30_003), &lb("b"), WriteKind::Members);
    assert_eq!(breaker.admits(at(30_003), &lb("a")), None);
    assert_eq!(
        breaker.admits(at(60_000), &lb("a")),
        Some(Eligible::Down),
        "and neither is that of an admin part"
    );
    assert!(breaker.succeeded(&lb("z")));
    assert_eq!((breaker.admits(at(60_001), &lb("a")), breaker.scopes()), (Some(Eligible::Any), 0));
}

#[test]
fn w10_refused_admin_parts_stop_only_their_load_balancer() {
    let mut breaker = WriteBreaker::default();
    for number in 0..5 {
        breaker.failed(at(0), &pool("a", &format!("p{number}")), &denied(), WriteKind::Restore);
    }
    assert_eq!(breaker.admits(at(1), &lb("a")), Some(Eligible::Members));
    assert_eq!(breaker.admits(at(1), &lb("b")), Some(Eligible::Any));
    fails(&mut breaker, 2, &["b"; 5]);
    assert_eq!((breaker.scopes(), breaker.is_consistent()), (2, true));
    assert_eq!(breaker.admits(at(3), &lb("b")), Some(Eligible::Down), "none has met that here");
    assert_eq!(breaker.admin_probe_at(&lb("b"), true), None);
    assert_eq!(breaker.admin_probe_at(&lb("b"), false), Some(at(30_002)), "a restore has time");
}

/// Denies the PUT of a grant.
fn deny(fixture: &mut Fixture, pool: &PoolId, attempt: AttemptId) -> Vec<Out> {
    let read = fixture.take_level(pool, attempt, &[1]);
    fixture.fail(read, denied())
}

fn reports(output: &[Out]) -> Vec<Report> {
    output
        .iter()
        .filter_map(|output| if let Out::Report(report) = output { Some(report.clone()) } else { None })
        .collect()
}

/// Creates a leader after five pools on these load balancers were denied at second 0.
fn blocked(lbs: [&str; 5], params: Params) -> (Fixture, Vec<Out>) {
    let mut fixture = Fixture::leading(params);
    let mut output = Vec::new();
    for (number, name) in lbs.into_iter().enumerate() {
        let denied = pool(name, &format!("denied{number}"));
        let attempt = take(&fixture.due(&denied, due(0, MembershipUrgency::Add)));
        output.extend(deny(&mut fixture, &denied, attempt));
    }
    (fixture, output)
}

fn scopes(fixture: &Fixture) -> Vec<u64> {
    let of = |output: &Out| {
        if let Out::Metric(Metric::Blocked { scopes }) = output { Some(*scopes) } else { None }
    };
    fixture.shown.iter().filter_map(of).collect()
}

#[test]
fn w10_an_open_breaker_probes_the_next_balancer_every_30_s() {
    let (mut fixture, output) = blocked(["a", "b", "c", "d", "e"], params());
    let description: Arc<str> = Arc::from("HTTP 403 AuthorizationFailed");
    let what = EventKind::Blocked { caller: Caller::Membership, fault: Arc::clone(&description), lb: None };
    assert_eq!(reports(&output), [Report { subjects: vec![Subject::Controller], what, note: None }]);
    assert_eq!(scopes(&fixture), [1]);
    for name in ["a", "b", "c"] {
        for number in 0..2 {
            assert!(
                fixture.due(&pool(name, &format!("p{number}")), due(0, MembershipUrgency::Add)).is_empty()
            );
        }
    }
    let mut tried = Vec::new();
    for seconds in [30, 60, 90, 120] {
        assert!(fixture.until(seconds * 1_000 - 1).is_empty(), "nothing is spent, nothing is reported");
        let output = fixture.until(seconds * 1_000);
        let (probe, attempt) = takes(&output)[0].clone();
        assert_eq!(takes(&output).len(), 1);
        tried.push(probe.lb.as_str().to_owned());
        let output = deny(&mut fixture, &probe, attempt);
        assert!(matches!(outcome(&output, attempt), Outcome::Terminal { .. }) && reports(&output).is_empty());
    }
    assert_eq!(tried, ["a", "b", "c", "a"]);
    let lane = |output: &Out| if let Out::Lane(view) = output { Some(view.clone()) } else { None };
    let view: LaneView = fixture.shown.iter().rev().find_map(lane).expect("the lanes are shown");
    assert_eq!(view.fault, Some(description));
    let output = fixture.until(150_000);
    let (probe, attempt) = takes(&output)[0].clone();
    let output = nothing_to_do(&mut fixture, &probe, attempt);
    assert_eq!(takes(&output).len(), 1, "one success ends it for all that wait");
    assert_eq!(scopes(&fixture), [1, 0]);
    fixture.until(151_000);
    let view: LaneView = fixture.shown.iter().rev().find_map(lane).expect("the lanes are shown");
    assert_eq!(view.fault, None);
}

#[test]
fn w10_without_waiting_pools_the_next_due_pool_is_probed() {
    let (mut fixture, _) = blocked(["a", "b", "c", "d", "e"], params());
    assert!(fixture.until(200_000).is_empty());
    let attempt = take(&fixture.due(&pool("f", "late"), due(200_000, MembershipUrgency::Add)));
    assert!(
        fixture.due(&pool("g", "later"), due(200_000, MembershipUrgency::Add)).is_empty(),
        "and the next one waits"
    );
    nothing_to_do(&mut fixture, &pool("f", "late"), attempt);
}

#[test]
fn w10_failures_on_one_load_balancer_stop_no_other() {
    let (mut fixture, output) = blocked(["a"; 5], params());
    let fault = Arc::from("HTTP 403 AuthorizationFailed");
    assert_eq!(
        reports(&output)[0].what,
        EventKind::Blocked { caller: Caller::Membership, fault, lb: Some(lb("a")) }
    );
    assert!(fixture.due(&pool("a", "waits"), due(0, MembershipUrgency::Revive)).is_empty());
    let attempt = take(&fixture.due(&pool("b", "goes"), due(0, MembershipUrgency::Add)));
    nothing_to_do(&mut fixture, &pool("b", "goes"), attempt);
    assert!(takes(&fixture.until(29_999)).is_empty());
    let attempt = take(&fixture.until(30_000));
    nothing_to_do(&mut fixture, &pool("a", "waits"), attempt);
    assert_eq!(scopes(&fixture), [1, 0]);
    take(&fixture.due(&pool("a", "goes"), due(30_000, MembershipUrgency::Add)));
}

#[test]
fn n3_a_down_passes_an_open_breaker_until_it_fails() {
    let (mut fixture, _) = blocked(["a", "b", "c", "d", "e"], params());
    let web = pool("a", "web");
    fixture.step(In::Draining(drains(2)));
    assert!(fixture.due(&web, due(0, MembershipUrgency::Add)).is_empty());
    let restore = AdminDue { urgency: AdminUrgency::Restore, ..down(0) };
    assert!(
        fixture.step(In::AdminDue(pool("b", "restored"), Some(restore))).is_empty(),
        "a restore has time"
    );
    let output = fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    assert!(takes(&output).is_empty(), "its membership waits");
    let (call, edit, _) =
        put(&fixture.answer(get(&output, &web), read_of(pool_with(&web, &[2]), "W/1")), &web);
    assert!(edit.add.is_empty() && edit.remove.is_empty() && edit.set_admin.len() == 1);
    let output = fixture.fail(call, denied());
    let [only] = &output[..] else { panic!("{output:?}") };
    assert!(admin_end(only).is_some_and(|end| end.result.is_err()), "{output:?}");
    assert!(fixture.step(In::AdminDue(web.clone(), Some(down(1)))).is_empty(), "now it waits, too");
    let output = fixture.until(30_000);
    assert_eq!((takes(&output).len(), calls(&output).len()), (1, 1), "a try of each: {output:?}");
}

/// Creates a leader after a Down was refused on five load balancers at second 0. Each is requested again.
fn refused() -> (Fixture, Vec<Out>) {
    let mut fixture = Fixture::leading(params());
    fixture.step(In::Draining(drains(2)));
    let mut output = Vec::new();
    for name in ["a", "b", "c", "d", "e"] {
        let nics = pool(name, "nics");
        let read = get(&fixture.step(In::AdminDue(nics.clone(), Some(down(0)))), &nics);
        output.extend(fixture.fail(read, refusal()));
    }
    for name in ["a", "b", "c", "d", "e"] {
        let again = AdminDue { again: true, ..down(0) };
        assert!(fixture.step(In::AdminDue(pool(name, "nics"), Some(again))).is_empty(), "it waits");
    }
    (fixture, output)
}

fn refusal() -> Arc<Failure> {
    failed(400, "AdminStateNotSupported", RetryAfter::Absent)
}

#[test]
fn w10_refused_admin_states_do_not_delay_membership() {
    let (mut fixture, output) = refused();
    let fault = Arc::from("HTTP 400 AdminStateNotSupported");
    let what = EventKind::Blocked { caller: Caller::AdminState, fault, lb: None };
    assert_eq!(reports(&output), [Report { subjects: vec![Subject::Controller], what, note: None }]);
    for name in ["a", "b", "c", "d", "e"] {
        let attempt = take(&fixture.due(&pool(name, "web"), due(0, MembershipUrgency::Add)));
        deny(&mut fixture, &pool(name, "web"), attempt);
    }
    for name in ["a", "b", "c", "d", "e"] {
        assert!(fixture.due(&pool(name, "late"), due(0, MembershipUrgency::Add)).is_empty(), "now all wait");
    }
    for seconds in [30, 60] {
        assert!(fixture.until(seconds * 1_000 - 1).is_empty());
        let output = fixture.until(seconds * 1_000);
        assert_eq!((takes(&output).len(), calls(&output).len()), (1, 1), "a try of each: {output:?}");
        let (tried, attempt) = takes(&output)[0].clone();
        let read = calls(&output)[0].id;
        fixture.fail(read, refusal());
        deny(&mut fixture, &tried, attempt);
    }
}

#[test]
fn w10_a_refused_admin_state_that_is_not_repeated_is_tried_first() {
    let (mut fixture, _) = refused();
    let web = pool("a", "web");
    assert!(fixture.step(In::AdminDue(web.clone(), Some(down(0)))).is_empty());
    let read = get(&fixture.until(30_000), &web);
    let call = put(&fixture.answer(read, read_of(pool_with(&web, &[2]), "W/1")), &web).0;
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert_eq!(calls(&output).len(), 5, "one success ends it for all: {output:?}");
}

#[test]
fn n3_a_successful_down_closes_the_breaker() {
    let (mut fixture, _) = blocked(["a", "b", "c", "d", "e"], params());
    let web = pool("a", "web");
    fixture.step(In::Draining(drains(2)));
    fixture.due(&web, due(0, MembershipUrgency::Add));
    let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    let call = put(&fixture.answer(read, read_of(pool_with(&web, &[2]), "W/1")), &web).0;
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert_eq!(takes(&output)[0].0, web, "the membership that had to wait");
}

#[test]
fn n3_a_down_is_written_with_the_open_attempt_of_its_pool() {
    let mut fixture = Fixture::leading(params());
    let web = pool("a", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.fail(read, failed(503, "", RetryAfter::Absent));
    for name in ["b", "c", "d", "e", "f"] {
        let denied = pool(name, "denied");
        let attempt = take(&fixture.due(&denied, due(0, MembershipUrgency::Add)));
        deny(&mut fixture, &denied, attempt);
    }
    assert!(takes(&fixture.until(20_000)).is_empty(), "its retry waits as well");
    assert_eq!(take(&fixture.step(In::AdminDue(web.clone(), Some(down(0))))), attempt);
    let read = fixture.take_level(&web, attempt, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1"));
    assert!(matches!(outcome(&output, attempt), Outcome::Unchanged { .. }));
}

#[test]
fn w10_a_new_term_starts_closed() {
    let (mut fixture, _) = blocked(["a", "b", "c", "d", "e"], params());
    fixture.due(&pool("a", "web"), due(0, MembershipUrgency::Add));
    fixture.step(In::Leadership(Leadership::Standby));
    assert_eq!(scopes(&fixture), [1, 0]);
    take(&fixture.lead(2));
}

#[test]
fn w10_the_outcome_of_an_older_term_does_not_count() {
    for succeeds in [false, true] {
        let mut fixture = Fixture::leading(params());
        let (_, old) = fixture.begin_put(&pool("old", "web"), &[1]);
        fixture.lead(2);
        let lbs = ["a", "b", "c", "d", "e"];
        for name in &lbs[..if succeeds { 5 } else { 4 }] {
            let refused = pool(name, "denied");
            let attempt = take(&fixture.due(&refused, due(0, MembershipUrgency::Add)));
            deny(&mut fixture, &refused, attempt);
        }
        if succeeds {
            fixture.answer(old, accepted(Provisioning::Succeeded, RetryAfter::Absent));
            assert_eq!(scopes(&fixture), [1], "it does not let the others go");
        } else {
            fixture.fail(old, denied());
            assert!(scopes(&fixture).is_empty(), "it is not the fifth");
        }
    }
}

#[test]
fn w10_failures_with_404_409_or_412_do_not_count() {
    let mut fixture = Fixture::leading(params());
    for (number, problem) in [
        failed(404, "", RetryAfter::Absent),
        failed(409, "", RetryAfter::Absent),
        failed(412, "", RetryAfter::Absent),
    ]
    .into_iter()
    .cycle()
    .take(30)
    .enumerate()
    {
        let web = pool("a", &format!("p{number}"));
        let (_, read) = fixture.begin(&web, &[1]);
        let mut output = fixture.fail(read, Arc::clone(&problem));
        while let Some(again) = calls(&output).first().map(|call| call.id) {
            output = fixture.fail(again, Arc::clone(&problem));
        }
    }
    assert!(scopes(&fixture).is_empty());
}

#[test]
fn c2_without_the_breaker_nothing_is_stopped() {
    let (mut fixture, output) = blocked(["a", "b", "c", "d", "e"], Params { breaker: false, ..params() });
    assert!(reports(&output).is_empty() && scopes(&fixture).is_empty());
    take(&fixture.due(&pool("a", "web"), due(0, MembershipUrgency::Add)));
}

/// ARM's answers on a load balancer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ServerBehaviour {
    Well,
    Denied,
    Trouble,
}

/// Pools that are due again and again, and an ARM with changing answers.
struct Play {
    fixture: Fixture,
    behaviours: [ServerBehaviour; LBS],
    /// Pools that failed or are in sync, and the time at which they are due again.
    again: BTreeMap<PoolId, u64>,
    /// Time of the last grant of each pool.
    granted: BTreeMap<PoolId, u64>,
    /// Time of the last probe of each stopped scope: everything, or one load balancer.
    tried: BTreeMap<Option<LbName>, u64>,
}

const LBS: usize = 3;
const POOLS: usize = 6;

impl Play {
    fn new() -> Play {
        let mut again = BTreeMap::new();
        for number in 0..LBS * POOLS {
            let name = format!("lb{}", number % LBS);
            again.insert(pool(&name, &format!("p{number}")), 0);
        }
        Play {
            fixture: Fixture::leading(params()),
            behaviours: [ServerBehaviour::Well; LBS],
            again,
            granted: BTreeMap::new(),
            tried: BTreeMap::new(),
        }
    }

    fn behaviour(&self, name: &LbName) -> ServerBehaviour {
        let number = name.as_str().trim_start_matches("lb").parse::<usize>().expect("a number");
        self.behaviours[number]
    }

    /// Returns the scope in which a load balancer is stopped before its grant.
    fn scope(&self, name: &LbName) -> Option<Option<LbName>> {
        self.fixture.writer.breaker.fault(name)?;
        let all = (0..LBS).all(|n| self.fixture.writer.breaker.fault(&lb(&format!("lb{n}"))).is_some());
        let one = self.fixture.writer.breaker.scopes() > 1 || !all;
        Some(one.then(|| name.clone()))
    }

    fn apply_output(&mut self, output: Vec<Out>) {
        let now = self.fixture.now;
        let mut open = self.record_grants(&output);
        while let Some((granted, attempt)) = open.pop() {
            let read = self.fixture.take_level(&granted, attempt, &[1]);
            let answer = match self.behaviour(&granted.lb) {
                ServerBehaviour::Well => read_of(pool_with(&granted, &[1]), "W/1"),
                ServerBehaviour::Denied => ArmAnswer::Failed(denied()),
                ServerBehaviour::Trouble => ArmAnswer::Failed(failed(400, "Odd", RetryAfter::Absent)),
            };
            let pause = if self.behaviour(&granted.lb) == ServerBehaviour::Well { 20_000 } else { 60_000 };
            self.again.insert(granted, now + pause);
            let output = self.fixture.answer(read, answer);
            open.extend(self.record_grants(&output));
        }
    }

    /// Records the grants of one step, before anything else happens.
    fn record_grants(&mut self, output: &[Out]) -> Vec<(PoolId, AttemptId)> {
        let now = self.fixture.now;
        let granted = takes(output);
        for (pool, _) in &granted {
            self.granted.insert(pool.clone(), now);
            if let Some(scope) = self.scope(&pool.lb) {
                let before = self.tried.insert(scope, now);
                assert!(before.is_none_or(|before| now >= before + 30_000), "two tries within 30 s");
            }
        }
        granted
    }

    fn until(&mut self, millis: u64) {
        while self.fixture.now < millis {
            let due: Vec<PoolId> = self
                .again
                .extract_if(.., |_, again| *again <= self.fixture.now)
                .map(|(pool, _)| pool)
                .collect();
            for pool in due {
                let now = self.fixture.now;
                let output = self.fixture.due(&pool, due_at(now));
                self.apply_output(output);
            }
            // Never advance past the time of a grant, because that time is checked.
            let wakes = self.fixture.writer.deadline().map_or(millis, |at| at.as_micros().div_ceil(1_000));
            let next = wakes.min(self.fixture.now + 500).min(millis);
            let output = self.fixture.until(next);
            self.apply_output(output);
        }
    }
}

fn due_at(millis: u64) -> MembershipDue {
    due(millis, MembershipUrgency::Add)
}

proptest! {
    #[test]
    fn w10_one_probe_per_30_s_and_scope_then_all_are_granted(
        story in prop::collection::vec(
            (0..LBS, prop::sample::select(vec![ServerBehaviour::Well, ServerBehaviour::Denied, ServerBehaviour::Denied, ServerBehaviour::Trouble]), 0..90_000_u64),
            1..12,
        ),
    ) {
        let mut play = Play::new();
        for (number, behaviour, pause) in story {
            play.behaviours[number] = behaviour;
            let until = play.fixture.now + pause;
            play.until(until);
        }
        play.behaviours = [ServerBehaviour::Well; LBS];
        let healed = play.fixture.now;
        // This lasts at most until the next probe of each scope, and until each pool is due again after its failure.
        play.until(healed + 30_000 + 61_000);
        for number in 0..LBS {
            prop_assert_eq!(play.fixture.writer.breaker.fault(&lb(&format!("lb{number}"))), None);
        }
        prop_assert_eq!(play.granted.len(), LBS * POOLS);
        for (pool, granted) in &play.granted {
            prop_assert!(*granted >= healed, "{} waits since {}", pool, granted);
        }
    }
}

#[test]
fn w10_the_play_of_these_properties_opens_the_breaker() {
    let mut play = Play::new();
    play.until(1_000);
    play.behaviours = [ServerBehaviour::Denied; LBS];
    play.until(60_000);
    assert_eq!(play.fixture.writer.breaker.scopes(), 1);
}
