//! Tests of the writer on the test's clock, one rule at a time.

mod audit;
mod breaker;
mod budget;
pub(crate) mod fake;
mod glances;
mod initial_read;
mod invariants;
mod lease;
mod measured;
mod missed;
mod policy;
mod polls;
mod properties;
mod retries;
mod rewrite;
mod shared;
mod throttle;
mod unread;
mod waits;
mod withdrawn;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use self::fake::{entry, failed, failure, ip, owned_pool, owner};
use super::*;
use model::arm::{
    ArmRequest, Document, Edit, Entry, OperationState, PoolFacts, PoolRead, Provisioning, PutAccepted,
    RetryAfter,
};
use model::attempt::MembershipUrgency;
use model::draining::{AdminEnd, AdminError};
use model::error::NotManageable;
use model::ids::{AddressName, Epoch, Etag, Family, NodeUid, Operation, PoolName, ServiceKey, ServiceUid};
use model::level::{Level, Member};
use model::load_balancers::OurPuts;
use model::sample::{ArmResult, ArmVerb};
use model::write_record::Trigger;

const EPOCH: Epoch = Epoch(1);

fn params() -> Params {
    Params {
        turns: 64,
        if_match: true,
        etag_rounds: 3,
        client_retries: 3,
        lease: None,
        dry_run: false,
        rate_limit: None,
        retry_throttled: false,
        gates_delay_grants: true,
        throttling: Throttling::Bounded,
        breaker: true,
        min_interval: Duration::from_secs(5),
        writes_per_5_minutes: 500,
        reads_per_5_minutes: 5000,
        network: None,
    }
}

fn pool(lb: &str, name: &str) -> PoolId {
    PoolId::new(LbName::new(lb), PoolName::new(format!("shop-{name}")))
}

fn at(millis: u64) -> Now {
    Now::from_millis(millis)
}

fn due(since: u64, urgency: MembershipUrgency) -> MembershipDue {
    MembershipDue { since: at(since), urgency }
}

/// Returns how an admin part has ended, if this output says so.
fn admin_end(output: &Out) -> Option<&AdminEnd> {
    if let Out::AdminStates(_, states) = output { states.ended.as_ref() } else { None }
}

fn down(since: u64) -> AdminDue {
    AdminDue { since: at(since), generation: 1, urgency: AdminUrgency::Down, again: false }
}

fn drains(last: u8) -> Arc<Draining> {
    Arc::new(Draining {
        generation: 1,
        addresses: BTreeMap::from([(ip(last).into(), NodeUid::new("uid"))]),
        ..Draining::default()
    })
}

fn taken_level(pool: &PoolId, required: &[u8]) -> MembershipWrite {
    let member =
        |last: &u8| (ip(*last), Member { name: AddressName::new(format!("n{last}")), node_ready: true });
    MembershipWrite {
        level: Level {
            required: required.iter().map(member).collect(),
            tolerated: BTreeSet::new(),
            ..Level::default()
        },
        family: Family::V4,
        services: BTreeMap::from([owner(pool)]),
        rewrites: false,
        trigger: Trigger::Endpoints,
    }
}

fn pool_with(pool: &PoolId, members: &[u8]) -> PoolFacts {
    owned_pool(pool, members.iter().map(|last| entry(&format!("n{last}"), Some(ip(*last)))).collect())
}

fn read_of(facts: PoolFacts, tag: &str) -> ArmAnswer {
    let document = Document::new(facts.entries.clone());
    ArmAnswer::Pool(PoolRead { facts: Arc::new(facts), document, etag: Some(Etag::new(tag)) })
}

fn lb_of(lb: &str, provisioning: Provisioning, pools: Vec<PoolFacts>) -> ArmAnswer {
    ArmAnswer::LoadBalancer(Arc::new(LbFacts {
        lb: LbName::new(lb),
        etag: None,
        guid: None,
        provisioning,
        pools: pools.into_iter().map(Arc::new).collect(),
        rules: Vec::new(),
    }))
}

/// Returns a load balancer with this `resourceGuid`, without a running operation.
fn lb_with(lb: &str, guid: &str, tag: &str, pools: Vec<PoolFacts>) -> ArmAnswer {
    ArmAnswer::LoadBalancer(Arc::new(LbFacts {
        lb: LbName::new(lb),
        etag: Some(Etag::new(tag)),
        guid: Some(guid.into()),
        provisioning: Provisioning::Succeeded,
        pools: pools.into_iter().map(Arc::new).collect(),
        rules: Vec::new(),
    }))
}

fn accepted(provisioning: Provisioning, retry_after: RetryAfter) -> ArmAnswer {
    ArmAnswer::Put(PutAccepted {
        provisioning,
        operation: (provisioning == Provisioning::Updating)
            .then(|| Operation::new("https://arm/operations/1")),
        retry_after,
        etag: Some(Etag::new("W/own")),
        correlation_id: None,
    })
}

fn running(retry_after: RetryAfter) -> ArmAnswer {
    ArmAnswer::Operation(OperationState::Running { retry_after })
}

/// A writer and its outputs to all machines. Outputs for display are kept apart.
struct Fixture {
    writer: Writer,
    now: u64,
    shown: Vec<Out>,
    /// True if the initial read of each term shows every load balancer without an operation, so that lanes open
    /// immediately.
    at_rest: bool,
}

/// Creates a writer that has received a policy without restrictions for any term.
fn writer_with_policy(params: Params) -> Writer {
    let mut writer = Writer::new(params);
    writer.on_policy(Some(Epoch(u64::MAX)), Arc::default());
    writer
}

impl Fixture {
    fn new(params: Params) -> Fixture {
        Fixture { writer: writer_with_policy(params), now: 0, shown: Vec::new(), at_rest: true }
    }

    /// Creates a leader that never loses leadership.
    fn leading(params: Params) -> Fixture {
        let mut fixture = Fixture::new(params);
        assert!(fixture.lead(1).is_empty());
        fixture
    }

    fn lead(&mut self, epoch: u64) -> Vec<Out> {
        self.step(In::Leadership(Leadership::Leading { epoch: Epoch(epoch), until: Now::NEVER }))
    }

    fn keep_output(&mut self, out: Vec<Out>) -> Vec<Out> {
        let is_for_display = |output: &Out| {
            matches!(output, Out::Lane(_) | Out::SharedLease(_) | Out::Gate(..) | Out::Metric(_))
        };
        let (shown, output) = out.into_iter().partition(is_for_display);
        self.shown.extend::<Vec<Out>>(shown);
        output
    }

    fn step(&mut self, input: In) -> Vec<Out> {
        if let (true, In::MembershipDue(pool, _) | In::AdminDue(pool, _)) = (self.at_rest, &input) {
            self.writer.at_rest(&pool.lb);
        }
        let begins = matches!(input, In::Leadership(_));
        let mut out = Vec::new();
        self.writer.step(at(self.now), input, &mut out);
        if begins && self.at_rest {
            self.answer_initial_reads(&mut out);
        }
        self.writer.check().expect("the invariants hold");
        self.keep_output(out)
    }

    /// Answers the initial reads of a term: no operation runs.
    fn answer_initial_reads(&mut self, out: &mut Vec<Out>) {
        let lb_read = |output: &Out| {
            let Out::Call(ArmCall { id, request: ArmRequest::GetLoadBalancer(lb) }) = output else {
                return None;
            };
            Some((*id, lb.clone()))
        };
        let reads: Vec<_> = out.iter().filter_map(lb_read).collect();
        out.retain(|output| lb_read(output).is_none());
        for (call, lb) in reads {
            let answer = lb_of(lb.as_str(), Provisioning::Succeeded, Vec::new());
            self.writer.step(at(self.now), In::Answered(call, answer), out);
        }
    }

    /// Advances the clock to this time, and ticks the machine at each deadline.
    fn until(&mut self, millis: u64) -> Vec<Out> {
        let mut out = Vec::new();
        while let Some(next) = self.writer.deadline().filter(|next| *next <= at(millis)) {
            let next = next.max(at(self.now));
            self.writer.tick(next, &mut out);
            assert!(self.writer.deadline().is_none_or(|after| after > next), "it would wake forever");
        }
        self.now = millis;
        self.keep_output(out)
    }

    /// Does the same as `until`, while every load balancer is updating.
    fn until_updating(&mut self, millis: u64) -> Vec<Out> {
        let mut output = Vec::new();
        while let Some(next) = self.writer.deadline().filter(|next| *next <= at(millis)) {
            output.extend(self.until(next.as_micros().div_ceil(1_000)));
            for call in calls(&output).into_iter().cloned().collect::<Vec<_>>() {
                if let ArmRequest::GetLoadBalancer(lb) = &call.request {
                    output.retain(|output| !matches!(output, Out::Call(other) if other.id == call.id));
                    output
                        .extend(self.answer(call.id, lb_of(lb.as_str(), Provisioning::Updating, Vec::new())));
                }
            }
        }
        output.extend(self.until(millis));
        output
    }

    fn due(&mut self, pool: &PoolId, due: MembershipDue) -> Vec<Out> {
        self.step(In::MembershipDue(pool.clone(), due))
    }

    /// Makes a pool due and delivers its level. Returns the attempt and the id of its GET.
    fn begin(&mut self, pool: &PoolId, required: &[u8]) -> (AttemptId, CallId) {
        let now = self.now;
        let attempt = take(&self.due(pool, due(now, MembershipUrgency::Add)));
        (attempt, self.take_level(pool, attempt, required))
    }

    fn take_level(&mut self, pool: &PoolId, attempt: AttemptId, required: &[u8]) -> CallId {
        get(&self.step(In::Taken(pool.clone(), attempt, Some(taken_level(pool, required)))), pool)
    }

    /// Does the same, and continues up to the PUT, from an empty pool.
    fn begin_put(&mut self, pool: &PoolId, required: &[u8]) -> (AttemptId, CallId) {
        let (attempt, read) = self.begin(pool, required);
        let output = self.answer(read, read_of(pool_with(pool, &[]), "W/1"));
        (attempt, put(&output, pool).0)
    }

    fn answer(&mut self, call: CallId, answer: ArmAnswer) -> Vec<Out> {
        self.step(In::Answered(call, answer))
    }

    fn fail(&mut self, call: CallId, failure: Arc<Failure>) -> Vec<Out> {
        self.answer(call, ArmAnswer::Failed(failure))
    }

    /// Returns the emitted samples of this kind.
    fn samples<T>(&self, pick: impl Fn(&Metric) -> Option<T>) -> Vec<T> {
        let samples = self
            .shown
            .iter()
            .filter_map(|output| if let Out::Metric(sample) = output { Some(sample) } else { None });
        samples.filter_map(pick).collect()
    }

    fn unmatched(&self) -> usize {
        self.shown.iter().filter(|output| matches!(output, Out::Metric(Metric::UnmatchedAnswer))).count()
    }
}

fn takes(output: &[Out]) -> Vec<(PoolId, AttemptId)> {
    output
        .iter()
        .filter_map(|output| if let Out::Take(pool, id) = output { Some((pool.clone(), *id)) } else { None })
        .collect()
}

fn take(output: &[Out]) -> AttemptId {
    assert_eq!(takes(output).len(), 1, "{output:?}");
    takes(output)[0].1
}

fn calls(output: &[Out]) -> Vec<&ArmCall> {
    output.iter().filter_map(|output| if let Out::Call(call) = output { Some(call) } else { None }).collect()
}

fn get(output: &[Out], pool: &PoolId) -> CallId {
    match calls(output)[..] {
        [ArmCall { id, request: ArmRequest::GetPool(read) }] if read == pool => *id,
        _ => panic!("no single GET of {pool}: {output:?}"),
    }
}

/// Returns the only call in the output, which is the initial read of this load balancer.
fn lb_read(output: &[Out], at: &str) -> CallId {
    match calls(output)[..] {
        [ArmCall { id, request: ArmRequest::GetLoadBalancer(lb) }] if lb.as_str() == at => *id,
        _ => panic!("no single read of {at}: {output:?}"),
    }
}

/// Returns the polls in the output, without glances.
fn polls(output: &[Out]) -> Vec<CallId> {
    let polled = |call: &ArmCall| matches!(call.request, ArmRequest::Poll(_)).then_some(call.id);
    calls(output).into_iter().filter_map(polled).collect()
}

fn poll(output: &[Out]) -> CallId {
    match calls(output)[..] {
        [ArmCall { id, request: ArmRequest::Poll(_) }] => *id,
        _ => panic!("no single poll: {output:?}"),
    }
}

fn put(output: &[Out], pool: &PoolId) -> (CallId, Edit, Option<Etag>) {
    match calls(output)[..] {
        [ArmCall { id, request: ArmRequest::PutPool { pool: written, edit, if_match, .. } }]
            if written == pool =>
        {
            (*id, edit.clone(), if_match.clone())
        }
        _ => panic!("no single PUT of {pool}: {output:?}"),
    }
}

fn outcome(output: &[Out], attempt: AttemptId) -> &Outcome {
    let mut ends = output.iter().filter_map(|output| {
        if let Out::Finished(_, id, outcome) = output { (*id == attempt).then_some(outcome) } else { None }
    });
    let outcome = ends.next().unwrap_or_else(|| panic!("attempt {attempt} goes on: {output:?}"));
    assert!(ends.next().is_none(), "attempt {attempt} ended twice");
    outcome
}

fn set(members: &[u8]) -> BTreeSet<IpAddr> {
    members.iter().map(|last| ip(*last)).collect()
}

/// Answers a granted write with a pool in sync, and returns the output.
fn nothing_to_do(fixture: &mut Fixture, pool: &PoolId, attempt: AttemptId) -> Vec<Out> {
    let read = fixture.take_level(pool, attempt, &[1]);
    fixture.answer(read, read_of(pool_with(pool, &[1]), "W/1"))
}

#[test]
fn w1_a_lane_grants_by_class_then_by_waiting_time_and_name() {
    let mut fixture = Fixture::leading(params());
    fixture.step(In::Leadership(Leadership::Standby));
    for (name, since, urgency) in [
        ("a-removed", 10, MembershipUrgency::Remove),
        ("b-added", 30, MembershipUrgency::Add),
        ("d-added", 20, MembershipUrgency::Add),
        ("c-added", 20, MembershipUrgency::Add),
        ("z-revived", 50, MembershipUrgency::Revive),
    ] {
        assert!(
            fixture.due(&pool("lb", name), due(since, urgency)).is_empty(),
            "nothing is granted on standby"
        );
    }
    fixture.step(In::AdminDue(pool("lb", "y-drained"), Some(down(40))));
    let restore = AdminDue { urgency: AdminUrgency::Restore, ..down(15) };
    fixture.step(In::AdminDue(pool("lb", "x-restored"), Some(restore)));
    let name = |granted: &PoolId| granted.pool.as_str().trim_start_matches("shop-").to_owned();
    let mut output = fixture.lead(2);
    let mut order = Vec::new();
    for _ in 0..7 {
        match &takes(&output)[..] {
            [(granted, attempt)] => {
                order.push(name(granted));
                output = nothing_to_do(&mut fixture, granted, *attempt);
            }
            _ => {
                let (read, granted) = match calls(&output)[..] {
                    [ArmCall { id, request: ArmRequest::GetPool(pool) }] => (*id, pool.clone()),
                    _ => panic!("no single GET: {output:?}"),
                };
                order.push(name(&granted));
                output = fixture.answer(read, read_of(pool_with(&granted, &[]), "W/1"));
            }
        }
    }
    // The fourth grant goes to the pool that has waited longest, regardless of its rank.
    let expected = ["z-revived", "y-drained", "c-added", "a-removed", "d-added", "b-added", "x-restored"];
    assert_eq!(order, expected, "restores go with the rest");
    assert!(fixture.writer.lanes.is_empty(), "a lane with nothing in it is dropped");
}

#[test]
fn w1_slots_go_round_robin_to_the_lanes_within_the_limit() {
    let mut fixture = Fixture::leading(Params { turns: 2, ..params() });
    let mut output = Vec::new();
    for lb in ["a", "b", "c"] {
        for name in ["x", "y"] {
            output.extend(fixture.due(&pool(lb, name), due(0, MembershipUrgency::Add)));
        }
    }
    let mut order = Vec::new();
    let mut open = takes(&output);
    assert_eq!(open.len(), 2);
    while !open.is_empty() {
        let (granted, attempt) = open.remove(0);
        order.push(granted.lb.as_str().to_owned());
        open.extend(takes(&nothing_to_do(&mut fixture, &granted, attempt)));
        assert!(open.len() <= 2);
    }
    assert_eq!(order, ["a", "b", "c", "a", "b", "c"]);
}

#[test]
fn w1_a_withdrawn_pool_is_not_granted() {
    let mut fixture = Fixture::leading(Params { turns: 1, ..params() });
    let (busy, other) = (pool("a", "x"), pool("b", "y"));
    let attempt = take(&fixture.due(&busy, due(0, MembershipUrgency::Add)));
    fixture.due(&other, due(0, MembershipUrgency::Add));
    fixture.step(In::Withdraw(other));
    assert!(
        nothing_to_do(&mut fixture, &busy, attempt).iter().all(|output| !matches!(output, Out::Take(..)))
    );
    assert!(fixture.writer.lanes.is_empty());
}

#[test]
fn w2_a_write_is_a_get_and_a_put_with_its_etag() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1, 2]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[2, 3]), "W/7"));
    let (call, edit, if_match) = put(&output, &web);
    assert_eq!((edit.remove.len(), edit.add.len()), (1, 1));
    assert_eq!(if_match, Some(Etag::new("W/7")));
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let found = outcome(&output, attempt);
    let Outcome::Written { members, added, removed, .. } = found else { panic!("{found:?}") };
    assert_eq!((members, added, removed), (&set(&[1, 2]), &set(&[1]), &set(&[3])));
}

#[test]
fn w2_without_if_match_the_put_carries_no_etag() {
    let mut fixture = Fixture::leading(Params { if_match: false, ..params() });
    let web = pool("lb", "web");
    let (_, read) = fixture.begin(&web, &[1]);
    assert_eq!(put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/7")), &web).2, None);
}

#[test]
fn w2_nothing_to_change_is_unchanged_without_a_put() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let attempt = take(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    let output = nothing_to_do(&mut fixture, &web, attempt);
    assert!(matches!(outcome(&output, attempt), Outcome::Unchanged { members } if *members == set(&[1])));
    assert!(calls(&output).is_empty());
    assert_eq!(fixture.writer.budget.shown(at(0), GateClass::Writes).0.round(), 500.0, "no PUT was spent");
}

#[test]
fn w2_polls_follow_retry_after_within_bounds_or_slow_down() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    let seconds = |n| RetryAfter::In(Duration::from_secs(n));
    assert!(fixture.answer(call, accepted(Provisioning::Updating, seconds(7))).is_empty());
    let mut now = 0;
    let steps = [
        (7_000, running(seconds(600))),
        (60_000, running(RetryAfter::In(Duration::from_millis(1)))),
        (200, running(RetryAfter::Absent)),
        (5_000, running(RetryAfter::Invalid)),
        (5_000, ArmAnswer::Operation(OperationState::Succeeded)),
    ];
    let mut output = Vec::new();
    for (wait, answer) in steps {
        assert!(polls(&fixture.until_updating(now + wait - 1)).is_empty(), "not before its time");
        now += wait;
        let asked = polls(&fixture.until(now))[0];
        output = fixture.answer(asked, answer);
    }
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}

#[test]
fn w2_without_retry_after_polls_wait_1_2_4_5_and_5_seconds() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (_, call) = fixture.begin_put(&web, &[1]);
    fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
    let mut now = 0;
    for seconds in [1, 2, 4, 5, 5] {
        now += seconds * 1_000;
        assert!(calls(&fixture.until(now - 1)).is_empty());
        let asked = poll(&fixture.until(now));
        fixture.answer(asked, running(RetryAfter::Absent));
    }
}

#[test]
fn w2_a_failed_poll_only_delays_the_next_one() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
    let throttled = failed(429, "TooManyRequests", RetryAfter::In(Duration::from_secs(15)));
    for (when, problem) in [
        (1_000, failed(500, "InternalServerError", RetryAfter::Absent)),
        (3_000, throttled),
        (18_000, failure(FailureKind::Credential, "", RetryAfter::Absent)),
    ] {
        let asked = poll(&fixture.until(when));
        assert!(takes(&fixture.fail(asked, problem)).is_empty());
    }
    let asked = poll(&fixture.until(23_000));
    let output = fixture.answer(asked, ArmAnswer::Operation(OperationState::Succeeded));
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}

#[test]
fn w5_a_404_for_a_poll_reads_the_load_balancer() {
    for (members, written) in [(&[1][..], true), (&[][..], false)] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
        let asked = poll(&fixture.until(1_000));
        fixture.fail(asked, failed(404, "NotFound", RetryAfter::Absent));
        let read = lb_read(&fixture.until(1_000), "lb");
        let updating = lb_of("lb", Provisioning::Updating, vec![pool_with(&web, &[])]);
        assert!(fixture.answer(read, updating).is_empty(), "it still runs");
        let read = lb_read(&fixture.until(3_000), "lb");
        let output =
            fixture.answer(read, lb_of("lb", Provisioning::Succeeded, vec![pool_with(&web, members)]));
        let found = outcome(&output, attempt);
        assert_eq!(matches!(found, Outcome::Written { .. }), written, "{found:?}");
        assert_eq!(matches!(found, Outcome::Retriable { .. }), !written, "{found:?}");
    }
}

#[test]
fn w2_after_15_minutes_of_polling_the_pool_is_read() {
    for (members, written) in [(&[1][..], true), (&[][..], false)] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
        let mut polls = 0;
        let (read, minutes) = loop {
            let next = fixture.writer.deadline().expect("it goes on").as_micros() / 1_000;
            let output = fixture.until(next);
            match calls(&output).first().map(|call| (call.id, &call.request)) {
                Some((id, ArmRequest::Poll(_))) => {
                    polls += 1;
                    fixture.answer(id, running(RetryAfter::Absent));
                }
                Some((id, ArmRequest::GetLoadBalancer(_))) => {
                    fixture.answer(id, lb_of("lb", Provisioning::Updating, vec![pool_with(&web, members)]));
                }
                Some((id, ArmRequest::GetPool(_))) => break (id, next / 60_000),
                Some((_, other @ ArmRequest::PutPool { .. })) => panic!("{other:?}"),
                None => {}
            }
        };
        assert_eq!((minutes, polls > 170), (15, true));
        let updating = PoolFacts { provisioning: Provisioning::Updating, ..pool_with(&web, members) };
        let output = fixture.answer(read, read_of(updating, "W/2"));
        let found = outcome(&output, attempt);
        assert_eq!(matches!(found, Outcome::Written { .. }), written, "{found:?}");
        assert_eq!(matches!(found, Outcome::Retriable { .. }), !written, "{found:?}");
    }
}

#[test]
fn w2_after_too_many_412s_the_outcome_is_retriable() {
    let mut fixture = Fixture::leading(Params { etag_rounds: 2, ..params() });
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    let output = fixture.fail(call, failed(412, "PreconditionFailed", RetryAfter::Absent));
    let read = get(&output, &web);
    assert!(takes(&output).is_empty(), "the same attempt");
    let (call, _, if_match) = put(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/2")), &web);
    assert_eq!(if_match, Some(Etag::new("W/2")));
    let output = fixture.fail(call, failed(412, "PreconditionFailed", RetryAfter::Absent));
    assert!(matches!(outcome(&output, attempt), Outcome::Retriable { eligible_at: None, .. }));
}

#[test]
fn w2_a_foreign_operation_is_waited_for_off_the_lane_for_2_min() {
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let updating = |pool| PoolFacts { provisioning: Provisioning::Updating, ..pool_with(pool, &[]) };
    let (attempt, mut read) = fixture.begin(&web, &[1]);
    let mut now = 0;
    for (times, wait) in [5_000, 10_000, 20_000, 30_000, 30_000, 25_000].into_iter().enumerate() {
        assert!(fixture.answer(read, read_of(updating(&web), "W/1")).is_empty(), "never superseded");
        assert_eq!(fixture.writer.busy, 0, "lane and turn are given back");
        if times == 0 {
            let elsewhere = take(&fixture.due(&other, due(0, MembershipUrgency::Add)));
            nothing_to_do(&mut fixture, &other, elsewhere);
            fixture.step(In::Withdraw(web.clone()));
        }
        assert!(takes(&fixture.until(now + wait - 1)).is_empty());
        now += wait;
        assert_eq!(take(&fixture.until(now)), attempt, "granted again under its id");
        read = fixture.take_level(&web, attempt, &[1]);
    }
    let output = fixture.answer(read, read_of(updating(&web), "W/1"));
    assert!(matches!(outcome(&output, attempt), Outcome::Retriable { .. }));
    assert!(fixture.writer.lanes.is_empty());
}

#[test]
fn w2_a_waiting_write_that_is_no_longer_needed_ends() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    let updating = PoolFacts { provisioning: Provisioning::Updating, ..pool_with(&web, &[]) };
    fixture.answer(read, read_of(updating, "W/1"));
    assert_eq!(take(&fixture.until(5_000)), attempt);
    assert!(fixture.step(In::Taken(web, attempt, None)).is_empty());
    assert!(fixture.writer.lanes.is_empty());
}

#[test]
fn n3_only_arm_can_say_that_the_pool_of_an_admin_part_is_absent() {
    for (code, is_absent) in [("NotFound", true), ("ResourceGroupNotFound", false), ("", false)] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        fixture.step(In::Draining(drains(2)));
        let read = get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
        let output = fixture.fail(read, failed(404, code, RetryAfter::Absent));
        let ended = output.iter().find_map(admin_end).expect("it has ended");
        assert_eq!(matches!(ended.result, Err(AdminError::Absent)), is_absent, "{code}: {ended:?}");
    }
}

#[test]
fn w5_a_failed_operation_is_classified_by_its_error_codes() {
    let ended = |state: OperationState| {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
        let asked = poll(&fixture.until(1_000));
        let output = fixture.answer(asked, ArmAnswer::Operation(state));
        outcome(&output, attempt).clone()
    };
    let with = |code| failure(FailureKind::Operation, code, RetryAfter::Absent);
    let conflict = OperationState::Failed(with("AnotherOperationInProgress"));
    assert!(matches!(ended(conflict), Outcome::Retriable { eligible_at: None, .. }));
    assert!(matches!(ended(OperationState::Canceled(with(""))), Outcome::Retriable { .. }));
    assert!(matches!(ended(OperationState::Failed(with("InternalServerError"))), Outcome::Terminal { .. }));
}

#[test]
fn w5_the_failure_of_a_get_or_put_decides_the_outcome() {
    type Expected = fn(&Outcome) -> bool;
    let table: [(Arc<Failure>, Expected); 6] = [
        (failed(404, "NotFound", RetryAfter::Absent), |o| matches!(o, Outcome::Stale)),
        (failed(409, "Conflict", RetryAfter::Absent), |o| {
            matches!(o, Outcome::Retriable { eligible_at: None, .. })
        }),
        (failed(403, "AuthorizationFailed", RetryAfter::Absent), |o| matches!(o, Outcome::Terminal { .. })),
        (failed(400, "", RetryAfter::Absent), |o| matches!(o, Outcome::Terminal { .. })),
        (failure(FailureKind::PermitExpired, "", RetryAfter::Absent), |o| matches!(o, Outcome::NotGranted)),
        (
            failure(FailureKind::GateClosed, "", RetryAfter::In(Duration::from_secs(4))),
            |o| matches!(o, Outcome::Retriable { eligible_at: Some(until), .. } if *until == at(4_000)),
        ),
    ];
    for (problem, expected) in table {
        for in_put in [false, true] {
            let mut fixture = Fixture::leading(params());
            let web = pool("lb", "web");
            let (attempt, call) =
                if in_put { fixture.begin_put(&web, &[1]) } else { fixture.begin(&web, &[1]) };
            let output = fixture.fail(call, Arc::clone(&problem));
            let found = outcome(&output, attempt);
            assert!(expected(found), "{problem} in_put {in_put}: {found:?}");
            assert!(fixture.writer.lanes.is_empty());
        }
    }
}

#[test]
fn d2_without_proof_of_ownership_membership_is_not_written() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    let foreign = PoolFacts { outbound_rule: true, ..pool_with(&web, &[]) };
    let output = fixture.answer(read, read_of(foreign, "W/1"));
    assert!(matches!(outcome(&output, attempt), Outcome::NotManageable(_)));
    assert!(calls(&output).is_empty() && fixture.writer.lanes.is_empty());
}

#[test]
fn d2_a_pool_of_a_source_is_written_without_a_services_rule() {
    let edge = pool("lb", "edge");
    let key = ServiceKey::of_source("eds:edge");
    let services = BTreeMap::from([(ServiceUid::new("eds:edge"), key)]);
    for (rule, is_written) in [("edge-https", true), ("a1111111122223333444455555555555-TCP-80", false)] {
        let mut fixture = Fixture::leading(params());
        let attempt = take(&fixture.due(&edge, due(0, MembershipUrgency::Add)));
        let taken = MembershipWrite { services: services.clone(), ..taken_level(&edge, &[1]) };
        let read = get(&fixture.step(In::Taken(edge.clone(), attempt, Some(taken))), &edge);
        let facts = PoolFacts { rules: vec![rule.into()], ..pool_with(&edge, &[]) };
        let output = fixture.answer(read, read_of(facts, "W/1"));
        if is_written {
            assert_eq!(put(&output, &edge).1.add.len(), 1);
            continue;
        }
        let expected = NotManageable::ServiceRule { rule: rule.into() };
        assert!(
            matches!(outcome(&output, attempt), Outcome::NotManageable(reason) if *reason == expected),
            "{output:?}"
        );
        assert!(calls(&output).is_empty() && fixture.writer.lanes.is_empty());
    }
}

#[test]
fn d2_an_admin_part_needs_no_proof_of_ownership() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.step(In::Draining(drains(2)));
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    fixture.due(&web, due(0, MembershipUrgency::Add));
    let attempt = take(&fixture.lead(2));
    let read = fixture.take_level(&web, attempt, &[1]);
    let foreign = PoolFacts { outbound_rule: true, ..pool_with(&web, &[2]) };
    let output = fixture.answer(read, read_of(foreign, "W/1"));
    assert!(matches!(outcome(&output, attempt), Outcome::NotManageable(_)));
    let (_, edit, _) = put(&output, &web);
    assert!(edit.add.is_empty() && edit.remove.is_empty() && edit.set_admin.len() == 1);
}

#[test]
fn n3_an_admin_write_alone_keeps_the_members() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(2)));
    let output = fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    assert!(takes(&output).is_empty());
    let output = fixture.answer(get(&output, &web), read_of(pool_with(&web, &[1, 2]), "W/1"));
    let (call, edit, _) = put(&output, &web);
    assert!(edit.add.is_empty() && edit.remove.is_empty());
    assert_eq!(edit.set_admin, BTreeMap::from([(1, model::arm::AdminState::Down)]));
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let [Out::AdminStates(of, states)] = &output[..] else { panic!("{output:?}") };
    assert_eq!((of, states.sent), (&web, Some(at(0))));
    assert!(matches!(states.ended, Some(AdminEnd { generation: 1, result: Ok(()) })), "{output:?}");
    let facts = states.facts.as_ref().expect("it was written");
    let entries: Vec<_> = facts.entries.iter().map(|entry| (entry.ip, entry.admin_state)).collect();
    let expected = [(Some(ip(1)), model::arm::AdminState::None), (Some(ip(2)), model::arm::AdminState::Down)];
    assert_eq!(entries, expected, "as the PUT has left them");
}

#[test]
fn w1_both_parts_of_a_slot_share_a_put_and_get_two_answers() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.step(In::Draining(drains(2)));
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    fixture.due(&web, due(0, MembershipUrgency::Add));
    let attempt = take(&fixture.lead(2));
    let read = fixture.take_level(&web, attempt, &[1, 2]);
    let (call, edit, _) = put(&fixture.answer(read, read_of(pool_with(&web, &[2]), "W/1")), &web);
    assert_eq!((edit.add.len(), edit.set_admin.len()), (1, 1));
    let output = fixture.fail(call, failed(409, "Conflict", RetryAfter::Absent));
    assert!(matches!(outcome(&output, attempt), Outcome::Retriable { .. }));
    let failures = output.iter().filter_map(admin_end).filter(|end| end.result.is_err());
    assert_eq!(failures.count(), 1);
}

#[test]
fn n3_a_down_during_a_write_of_its_pool_stays_due() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (_, call) = fixture.begin_put(&web, &[1]);
    fixture.step(In::Draining(drains(1)));
    assert!(fixture.step(In::AdminDue(web.clone(), Some(down(0)))).is_empty());
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert!(output.iter().all(|output| admin_end(output).is_none()));
    get(&output, &web);
}

#[test]
fn w2_members_in_sync_are_answered_before_a_put_of_admin_states() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Draining(drains(1)));
    let (attempt, read) = fixture.begin(&web, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[1]), "W/1"));
    assert!(matches!(outcome(&output, attempt), Outcome::Unchanged { .. }));
    let call = put(&output, &web).0;
    assert!(
        fixture.fail(call, failed(500, "", RetryAfter::Absent)).is_empty(),
        "that PUT is not expected any more"
    );
}

#[test]
fn w4_after_an_unanswered_put_the_lane_is_closed_until_a_get() {
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let (_, call) = fixture.begin_put(&web, &[1]);
    assert!(fixture.fail(call, failure(FailureKind::Timeout, "", RetryAfter::Absent)).is_empty());
    assert_eq!(fixture.writer.busy, 0, "the turn is free");
    assert!(fixture.due(&other, due(0, MembershipUrgency::Revive)).is_empty());
    assert_eq!(takes(&fixture.due(&pool("elsewhere", "x"), due(0, MembershipUrgency::Add))).len(), 1);
    assert!(calls(&fixture.until(4_999)).is_empty());
    let lb_read = get(&fixture.until(5_000), &web);
    let updating = PoolFacts { provisioning: Provisioning::Updating, ..pool_with(&web, &[]) };
    assert!(fixture.answer(lb_read, read_of(updating, "W/2")).is_empty());
    let lb_read = get(&fixture.until(10_000), &web);
    assert!(fixture.fail(lb_read, failed(500, "", RetryAfter::Absent)).is_empty());
    let output = fixture.until(20_000);
    let lb_read = match calls(&output)[..] {
        [ArmCall { id, request: ArmRequest::GetPool(read) }] if *read == web => *id,
        _ => panic!("{output:?}"),
    };
    let output = fixture.answer(lb_read, read_of(pool_with(&web, &[1]), "W/3"));
    assert!(output.iter().any(|output| matches!(output, Out::Observed(pool, _) if *pool == web)));
    assert_eq!(takes(&output)[0].0, other);
}

#[test]
fn w6_a_quota_429_closes_the_gate_of_its_verb_and_delays_grants() {
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("lb", "web"), pool("b", "other"));
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    let header = RetryAfter::In(Duration::from_secs(17));
    let output = fixture.fail(call, failed(429, "SubscriptionRequestsThrottled", header));
    let found = outcome(&output, attempt);
    let Outcome::Retriable { eligible_at, .. } = found else { panic!("{found:?}") };
    assert_eq!(*eligible_at, Some(at(17_000)));
    let gates = output.iter().find_map(|output| {
        if let Out::Gates { reads_until, writes_until } = output {
            Some((*reads_until, *writes_until))
        } else {
            None
        }
    });
    assert_eq!(gates, Some((None, Some(at(17_000)))));
    assert!(fixture.due(&other, due(0, MembershipUrgency::Revive)).is_empty());
    assert!(fixture.until(16_999).is_empty());
    let output = fixture.until(17_000);
    assert_eq!(takes(&output)[0].0, other);
    assert!(
        output.iter().any(|output| matches!(output, Out::Gates { reads_until: None, writes_until: None }))
    );
    let sampled = |closed| Out::Metric(Metric::Gate { class: GateClass::Writes, closed });
    for closed in [true, false] {
        let expected = format!("{:?}", sampled(closed));
        assert!(fixture.shown.iter().any(|output| format!("{output:?}") == expected));
    }
}

#[test]
fn w6_a_lock_429_closes_only_the_lane_of_its_load_balancer() {
    let mut fixture = Fixture::leading(params());
    let (web, sibling, other) = (pool("lb", "web"), pool("lb", "sibling"), pool("b", "other"));
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    let output = fixture.fail(call, failed(429, "RetryableError", RetryAfter::Absent));
    assert!(matches!(outcome(&output, attempt), Outcome::Retriable { eligible_at: None, .. }));
    assert!(fixture.due(&sibling, due(0, MembershipUrgency::Add)).is_empty());
    assert_eq!(takes(&fixture.due(&other, due(0, MembershipUrgency::Add))).len(), 1, "other lanes go on");
    assert!(takes(&fixture.until(9_999)).is_empty());
    assert_eq!(takes(&fixture.until(10_000))[0].0, sibling);
}

#[test]
fn w6_a_first_read_waiting_for_a_token_meets_the_closed_gate() {
    let mut fixture = Fixture::leading(params());
    let (second, third) = (pool("a", "second"), pool("b", "third"));
    let second_attempt = take(&fixture.due(&second, due(0, MembershipUrgency::Add)));
    let third_attempt = take(&fixture.due(&third, due(0, MembershipUrgency::Add)));
    let read = fixture.take_level(&second, second_attempt, &[1]);
    fixture.step(In::Headroom(GateClass::Reads, 0));
    assert!(
        fixture.step(In::Taken(third.clone(), third_attempt, Some(taken_level(&third, &[1])))).is_empty()
    );
    let output = fixture.fail(read, failed(429, "", RetryAfter::In(Duration::from_secs(9))));
    for attempt in [second_attempt, third_attempt] {
        let found = outcome(&output, attempt);
        assert!(matches!(found, Outcome::Retriable { eligible_at: Some(until), .. } if *until == at(9_000)));
    }
}

#[test]
fn a3_the_level_of_an_older_attempt_is_ignored() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let old = take(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.due(&web, due(0, MembershipUrgency::Add));
    let new = take(&fixture.lead(2));
    assert!(fixture.step(In::Taken(web.clone(), old, Some(taken_level(&web, &[1])))).is_empty());
    assert_eq!(fixture.unmatched(), 1);
    fixture.take_level(&web, new, &[1]);
}

#[test]
fn w6_a_pool_at_a_closed_gate_gets_its_time_without_a_call() {
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("a", "web"), pool("b", "other"));
    let attempt = take(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    let (_, read) = fixture.begin(&other, &[1]);
    fixture.fail(read, failed(429, "", RetryAfter::In(Duration::from_secs(9))));
    let output = fixture.step(In::Taken(web.clone(), attempt, Some(taken_level(&web, &[1]))));
    assert!(calls(&output).is_empty());
    assert!(
        matches!(outcome(&output, attempt), Outcome::Retriable { eligible_at: Some(until), .. } if *until == at(9_000))
    );
}

#[test]
fn w8_on_standby_only_a_sent_put_keeps_its_lane() {
    let mut fixture = Fixture::leading(params());
    let (web, taking, reading, polling) =
        (pool("a", "web"), pool("b", "taking"), pool("c", "reading"), pool("d", "polling"));
    let (put_attempt, call) = fixture.begin_put(&web, &[1]);
    let taking_attempt = take(&fixture.due(&taking, due(0, MembershipUrgency::Add)));
    let (reading_attempt, read) = fixture.begin(&reading, &[1]);
    let (polling_attempt, polled) = fixture.begin_put(&polling, &[1]);
    fixture.answer(polled, accepted(Provisioning::Updating, RetryAfter::Absent));
    let output = fixture.step(In::Leadership(Leadership::Standby));
    for attempt in [put_attempt, taking_attempt, reading_attempt, polling_attempt] {
        assert!(matches!(outcome(&output, attempt), Outcome::Interrupted));
    }
    assert_eq!(fixture.writer.busy, 1);
    assert_eq!(fixture.unmatched(), 0);
    assert!(
        fixture.step(In::Taken(taking.clone(), taking_attempt, Some(taken_level(&taking, &[1])))).is_empty()
    );
    assert_eq!(fixture.unmatched(), 1);
    assert!(fixture.answer(read, read_of(pool_with(&reading, &[]), "W/1")).is_empty());
    fixture.lead(2);
    assert!(
        fixture.due(&pool("a", "next"), due(0, MembershipUrgency::Add)).is_empty(),
        "the old PUT holds the lane"
    );
    let output = fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
    assert!(output.iter().all(|output| !matches!(output, Out::Finished(..))));
    // Its operation may still run.
    let output = fixture.answer(lb_read(&output, "a"), lb_of("a", Provisioning::Succeeded, Vec::new()));
    assert_eq!(take(&output).epoch, Epoch(2));
}

#[test]
fn w8_an_admin_part_outlives_a_lost_leadership_in_its_slot() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    get(&fixture.step(In::AdminDue(web.clone(), Some(down(0)))), &web);
    assert!(fixture.step(In::Leadership(Leadership::Standby)).is_empty());
    get(&fixture.lead(2), &web);
}

#[test]
fn w8_no_put_or_grant_with_less_than_25_s_of_leadership_left() {
    let mut fixture = Fixture::leading(params());
    fixture.step(In::Leadership(Leadership::Leading { epoch: EPOCH, until: at(30_000) }));
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    fixture.until(5_001);
    let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
    assert!(matches!(outcome(&output, attempt), Outcome::NotGranted));
    assert!(fixture.due(&web, due(0, MembershipUrgency::Add)).is_empty());
    fixture.until(6_000);
    let renewed = Leadership::Leading { epoch: EPOCH, until: at(50_000) };
    let attempt = take(&fixture.step(In::Leadership(renewed)));
    let read = fixture.take_level(&web, attempt, &[1]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[]), "W/1"));
    let found = &calls(&output)[0].request;
    let ArmRequest::PutPool { permit, .. } = found else { panic!("{found:?}") };
    assert_eq!(permit.send_deadline, at(25_000));
}

#[test]
fn w8_on_shutdown_nothing_starts_and_polls_are_abandoned() {
    let mut fixture = Fixture::leading(params());
    let (web, reading, polling) = (pool("a", "web"), pool("b", "reading"), pool("c", "polling"));
    let (put_attempt, call) = fixture.begin_put(&web, &[1]);
    let (reading_attempt, _) = fixture.begin(&reading, &[1]);
    let (polling_attempt, polled) = fixture.begin_put(&polling, &[1]);
    fixture.answer(polled, accepted(Provisioning::Updating, RetryAfter::Absent));
    fixture.due(&pool("a", "waits"), due(0, MembershipUrgency::Add));
    let output = fixture.step(In::Shutdown);
    assert!(matches!(outcome(&output, reading_attempt), Outcome::Interrupted));
    assert!(matches!(outcome(&output, polling_attempt), Outcome::Interrupted));
    assert!(
        output
            .iter()
            .all(|output| !matches!(output, Out::Quiet { .. } | Out::Finished(_, AttemptId { n: 1, .. }, _)))
    );
    assert!(fixture.due(&web, due(0, MembershipUrgency::Add)).is_empty());
    let refused = fixture.step(In::Read { call: CallId(77), lb: LbName::new("a") });
    assert!(matches!(&refused[..], [Out::Read { call: CallId(77), result: Err(_), .. }]));
    let output = fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert!(matches!(outcome(&output, put_attempt), Outcome::Written { .. }));
    assert_eq!(output.iter().filter(|output| matches!(output, Out::Quiet { .. })).count(), 1);
    assert!(fixture.step(In::Shutdown).is_empty() && fixture.until(600_000).is_empty(), "and nothing more");
}

#[test]
fn q3_a_take_without_an_answer_loses_the_grant_after_10_s() {
    let mut fixture = Fixture::leading(params());
    let (web, other) = (pool("lb", "web"), pool("lb", "other"));
    let attempt = take(&fixture.due(&web, due(0, MembershipUrgency::Add)));
    fixture.due(&other, due(0, MembershipUrgency::Add));
    assert!(fixture.until(9_999).is_empty());
    let output = fixture.until(10_000);
    assert!(matches!(outcome(&output, attempt), Outcome::NotGranted));
    assert_eq!(takes(&output)[0].0, other);
    assert!(fixture.step(In::Taken(web.clone(), attempt, Some(taken_level(&web, &[1])))).is_empty());
    assert_eq!(fixture.unmatched(), 1);
}

#[test]
fn a3_the_id_of_an_answered_attempt_is_not_used_for_a_newer_one() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    fixture.step(In::Leadership(Leadership::Standby));
    fixture.step(In::AdminDue(web.clone(), Some(down(0))));
    fixture.due(&web, due(0, MembershipUrgency::Add));
    let old = take(&fixture.lead(2));
    let output = fixture.until(10_000);
    assert!(matches!(outcome(&output, old), Outcome::NotGranted));
    let updating = PoolFacts { provisioning: Provisioning::Updating, ..pool_with(&web, &[]) };
    fixture.answer(get(&output, &web), read_of(updating, "W/1"));
    fixture.due(&web, due(10_000, MembershipUrgency::Add));
    assert_ne!(take(&fixture.until(15_000)), old);
}

#[test]
fn a3_a_call_times_out_after_90_s_and_late_answers_are_ignored() {
    let mut fixture = Fixture::leading(Params { client_retries: 0, ..params() });
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    assert!(fixture.until(89_999).is_empty());
    let output = fixture.until(90_000);
    assert!(matches!(outcome(&output, attempt), Outcome::Terminal { .. }));
    assert!(fixture.answer(read, read_of(pool_with(&web, &[]), "W/1")).is_empty());
    assert!(fixture.answer(CallId(999), ArmAnswer::Withheld).is_empty());
    assert_eq!(fixture.unmatched(), 2);
}

#[test]
fn w9_grants_wait_for_tokens_and_reads_are_ranked_by_purpose() {
    let mut fixture =
        Fixture::leading(Params { reads_per_5_minutes: 6, writes_per_5_minutes: 2, ..params() });
    let (web, other) = (pool("a", "web"), pool("b", "other"));
    let waiting = |n| In::Read { call: CallId(n), lb: LbName::new("a") };
    for n in 1..=2 {
        let output = fixture.step(waiting(n));
        let sent = calls(&output)[0].id;
        fixture.fail(sent, failed(404, "", RetryAfter::Absent));
    }
    assert!(fixture.step(waiting(3)).is_empty(), "two fifths of six reads are discovery's");
    let (_, call) = fixture.begin_put(&web, &[1]);
    fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
    let second = take(&fixture.due(&other, due(0, MembershipUrgency::Add)));
    let third = pool("c", "third");
    assert!(
        fixture.due(&third, due(0, MembershipUrgency::Add)).is_empty(),
        "both PUTs of the budget are set aside"
    );
    let output = nothing_to_do(&mut fixture, &other, second);
    assert_eq!(takes(&output)[0].0, third, "the second was not made");
    assert!(fixture.step(In::Taken(third, takes(&output)[0].1, None)).is_empty());
    // The poll gets the last read beyond the reserve. Verification gets the next one, although discovery waits
    // longer.
    let asked = poll(&fixture.until(1_000));
    fixture.answer(asked, ArmAnswer::Operation(OperationState::Succeeded));
    assert!(fixture.until(49_999).is_empty());
    let lb_read = get(&fixture.until(50_000), &web);
    fixture.answer(lb_read, read_of(pool_with(&web, &[1]), "W/own"));
    assert!(fixture.until(149_999).is_empty());
    let output = fixture.until(150_000);
    assert!(
        matches!(calls(&output)[..], [ArmCall { request: ArmRequest::GetLoadBalancer(_), .. }]),
        "{output:?}"
    );
}

#[test]
fn d3_at_most_one_read_waits_per_load_balancer() {
    let mut fixture = Fixture::leading(Params { reads_per_5_minutes: 5, ..params() });
    let read = |call, lb: &str| In::Read { call: CallId(call), lb: LbName::new(lb) };
    for call in 1..=2 {
        let output = fixture.step(read(call, "spends"));
        assert!(
            output.iter().any(|output| matches!(output, Out::Sent(sent) if *sent == CallId(call))),
            "{output:?}"
        );
    }
    assert!(fixture.step(read(3, "a")).is_empty(), "two fifths of the budget are spent");
    assert!(fixture.step(read(4, "b")).is_empty());
    let output = fixture.step(read(5, "a"));
    assert!(matches!(output[..], [Out::Read { call: CallId(3), result: Err(_), .. }]), "{output:?}");
    let output = fixture.until(600_000);
    let sent: Vec<CallId> = output
        .iter()
        .filter_map(|output| if let Out::Sent(call) = output { Some(*call) } else { None })
        .collect();
    assert_eq!(sent, [CallId(4), CallId(5)]);
}

#[test]
fn w8_reads_of_discovery_need_no_leadership() {
    let mut fixture = Fixture::leading(params());
    fixture.step(In::Leadership(Leadership::Standby));
    assert_eq!(calls(&fixture.step(In::Read { call: CallId(1), lb: LbName::new("lb") })).len(), 1);
}

#[test]
fn d3_a_discovery_answer_has_the_start_of_its_get_and_failures() {
    for (code, is_absent) in [("ResourceNotFound", true), ("ResourceGroupNotFound", false), ("", false)] {
        let mut fixture = Fixture::leading(params());
        let output = fixture.step(In::Read { call: CallId(5), lb: LbName::new("lb") });
        let id = calls(&output)[0].id;
        fixture.until(700);
        let output = fixture.fail(id, failed(404, code, RetryAfter::Absent));
        let [Out::Read { call: CallId(5), began, result, puts }] = &output[..] else { panic!("{output:?}") };
        assert_eq!((*began, puts.sent.len()), (at(0), 0));
        assert_eq!((matches!(result, Ok(None)), result.is_err()), (is_absent, !is_absent), "{code}");
        let expected = if is_absent { ArmResult::NotFound } else { ArmResult::ClientError };
        let called = |output: &Out| {
            matches!(output, Out::Metric(Metric::ArmCall { verb: ArmVerb::GetLoadBalancer, took, result })
                if *took == Duration::from_millis(700) && *result == expected)
        };
        assert!(fixture.shown.iter().any(called), "{code}");
    }
}

#[test]
fn n4_a_discovery_answer_contains_the_times_of_the_puts() {
    let mut fixture = Fixture::leading(params());
    let web = pool("a", "web");
    let (_, write) = fixture.begin_put(&web, &[1]);
    let read = |fixture: &mut Fixture, n: u64| {
        let output = fixture.step(In::Read { call: CallId(n), lb: LbName::new("a") });
        let output = fixture.fail(calls(&output)[0].id, failed(404, "ResourceNotFound", RetryAfter::Absent));
        let named =
            |output: &Out| if let Out::Read { puts, .. } = output { Some(puts.clone()) } else { None };
        output.iter().find_map(named).expect("an answer")
    };
    let sent = BTreeMap::from([(web.pool.clone(), at(0))]);
    let output = |puts: OurPuts| (BTreeMap::clone(&puts.sent), puts.oldest);
    assert_eq!(output(read(&mut fixture, 1)), (sent.clone(), Some(0)), "a PUT of that set is in flight");
    fixture.until(700);
    fixture.answer(write, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert_eq!(
        output(read(&mut fixture, 2)),
        (sent.clone(), Some(0)),
        "it has ended as late as the read began"
    );
    fixture.until(800);
    fixture.begin(&pool("b", "web"), &[1]);
    assert_eq!(
        output(read(&mut fixture, 3)),
        (sent, None),
        "a GET is no PUT, and another load balancer another one"
    );
}

#[test]
fn w2_a_write_is_verified_off_the_lane_until_a_newer_put() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    assert_eq!(fixture.writer.busy, 0);
    for millis in [1_000, 2_000] {
        let lb_read = get(&fixture.until(millis), &web);
        assert!(fixture.answer(lb_read, read_of(pool_with(&web, &[]), "W/own")).is_empty());
    }
    let read = get(&fixture.until(4_000), &web);
    let confirm = lb_read(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/own")), "lb");
    let output = fixture.answer(confirm, lb_with("lb", "first", "W/own", vec![pool_with(&web, &[])]));
    assert!(matches!(&output[..], [Out::Verified(_, WriteFate::Lost { attempt: id, .. })] if *id == attempt));

    let (_, call) = fixture.begin_put(&web, &[1]);
    fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
    let lb_read = get(&fixture.until(5_000), &web);
    let (_, read) = fixture.begin(&web, &[1, 2]);
    put(&fixture.answer(read, read_of(pool_with(&web, &[1]), "W/own")), &web);
    assert!(fixture.answer(lb_read, read_of(pool_with(&web, &[]), "W/own")).is_empty());
    assert!(calls(&fixture.until(60_000)).is_empty());
}

/// The load balancer was deleted and created again while the operation ran. Its pool is empty, and its first tag is
/// seen after the end of our operation.
#[test]
fn w2_a_write_to_a_recreated_load_balancer_is_not_lost() {
    for (guid, lost) in [("first", true), ("second", false)] {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        fixture.writer.verifications.observe_guid(at(0), &web.lb, Some(&"first".into()));
        fixture.now = 500;
        let (attempt, call) = fixture.begin_put(&web, &[1]);
        fixture.answer(call, accepted(Provisioning::Succeeded, RetryAfter::Absent));
        for millis in [1_500, 2_500] {
            let read = get(&fixture.until(millis), &web);
            assert!(fixture.answer(read, read_of(pool_with(&web, &[]), "W/own")).is_empty());
        }
        let read = get(&fixture.until(4_500), &web);
        let confirm = lb_read(&fixture.answer(read, read_of(pool_with(&web, &[]), "W/own")), "lb");
        let output = fixture.answer(confirm, lb_with("lb", guid, "W/own", vec![pool_with(&web, &[])]));
        let [Out::Verified(_, fate)] = &output[..] else { panic!("{output:?}") };
        match fate {
            WriteFate::Lost { attempt: id, .. } => assert!(lost && *id == attempt),
            WriteFate::Overwritten { attempt: id, .. } => assert!(!lost && *id == attempt),
            WriteFate::Persisted(_) => panic!("it is not there"),
        }
    }
}

#[test]
fn c4_a_withheld_put_reports_its_change() {
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1, 2]);
    let output = fixture.answer(read, read_of(pool_with(&web, &[2, 3]), "W/1"));
    let output = fixture.answer(put(&output, &web).0, ArmAnswer::Withheld);
    let found = outcome(&output, attempt);
    let Outcome::Withheld { members, added, removed } = found else { panic!("{found:?}") };
    assert_eq!((members, added, removed), (&set(&[2, 3]), &set(&[1]), &set(&[3])));
    assert!(calls(&fixture.until(60_000)).is_empty(), "nothing is verified");
}

#[test]
fn x2_a_down_of_the_source_alone_ends_the_attempt_when_written() {
    type Case = (ArmAnswer, fn(&Outcome) -> bool);
    let cases: [Case; 3] = [
        (
            accepted(Provisioning::Succeeded, RetryAfter::Absent),
            |outcome| matches!(outcome, Outcome::Written { added, removed, .. } if added.is_empty() && removed.is_empty()),
        ),
        (ArmAnswer::Withheld, |outcome| matches!(outcome, Outcome::Withheld { .. })),
        (ArmAnswer::Failed(failed(409, "Conflict", RetryAfter::Absent)), |outcome| {
            matches!(outcome, Outcome::Retriable { .. })
        }),
    ];
    for (answer, is_in_sync) in cases {
        let mut fixture = Fixture::leading(params());
        let web = pool("lb", "web");
        let now = fixture.now;
        let attempt = take(&fixture.due(&web, due(now, MembershipUrgency::Remove)));
        let mut taken = taken_level(&web, &[1]);
        taken.level.tolerated = set(&[2]);
        taken.level.states.down = set(&[2]);
        let read = get(&fixture.step(In::Taken(web.clone(), attempt, Some(taken))), &web);
        let output = fixture.answer(read, read_of(pool_with(&web, &[1, 2]), "W/1"));
        let told = output.iter().any(|output| matches!(output, Out::Finished(..)));
        assert!(!told, "nothing has come of it yet: {output:?}");
        let output = fixture.answer(put(&output, &web).0, answer);
        let found = outcome(&output, attempt);
        assert!(is_in_sync(found), "{found:?}");
    }
}

#[test]
fn e2_lanes_are_shown_at_most_four_times_a_second() {
    let mut fixture = Fixture::leading(params());
    for n in 0..100 {
        fixture.due(&pool("lb", &format!("p{n:03}")), due(n, MembershipUrgency::Add));
    }
    let lanes =
        |fixture: &Fixture| fixture.shown.iter().filter(|output| matches!(output, Out::Lane(_))).count();
    assert_eq!(lanes(&fixture), 1);
    fixture.until(250);
    assert_eq!(lanes(&fixture), 2);
    match fixture
        .shown
        .iter()
        .rev()
        .find_map(|output| if let Out::Lane(view) = output { Some(view) } else { None })
    {
        Some(view) => {
            assert_eq!(view.waiting.len(), 99);
            assert!(matches!(view.writing, Some((_, "taking", _))));
            assert_eq!(view.waiting[0].pool, pool("lb", "p001"));
        }
        None => panic!("no lane was shown"),
    }
    assert!(
        fixture
            .shown
            .iter()
            .any(|output| matches!(output, Out::Metric(Metric::Lanes { busy: 1, waiting: 99 })))
    );
    let budgets = fixture
        .shown
        .iter()
        .filter(|output| matches!(output, Out::Metric(Metric::BudgetLeft { .. })))
        .count();
    assert_eq!(budgets, 2, "once for each class");
}

#[test]
fn garbage_from_the_port_ends_the_attempt_and_never_the_process() {
    let entries: Vec<Entry> = Vec::new();
    let wrong = || ArmAnswer::Operation(OperationState::Succeeded);
    let mut fixture = Fixture::leading(params());
    let web = pool("lb", "web");
    let (attempt, read) = fixture.begin(&web, &[1]);
    assert!(matches!(outcome(&fixture.answer(read, wrong()), attempt), Outcome::Terminal { .. }));
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    assert!(matches!(outcome(&fixture.answer(call, wrong()), attempt), Outcome::Terminal { .. }));
    let lb_read = get(&fixture.until(5_000), &web);
    fixture.answer(lb_read, wrong());
    let lb_read = get(&fixture.until(10_000), &web);
    fixture.answer(lb_read, read_of(owned_pool(&web, entries), "W/1"));
    let (attempt, call) = fixture.begin_put(&web, &[1]);
    fixture.answer(call, accepted(Provisioning::Updating, RetryAfter::Absent));
    let asked = poll(&fixture.until(11_000));
    fixture.answer(asked, ArmAnswer::Withheld);
    let asked = poll(&fixture.until(13_000));
    let output = fixture.answer(asked, wrong());
    assert!(matches!(outcome(&output, attempt), Outcome::Written { .. }));
}
