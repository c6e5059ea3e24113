//! A pool that breaks an invariant is quarantined and does not affect others (A4). The pools, the writer, the event
//! emitter and the snapshot machine are real, and [`route`] connects them. The broken invariant: a level is the union
//! of its Services' shares.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use model::arm::{
    AdminState, ArmAnswer, ArmRequest, Document, Edit, Entry, Failure, FailureKind, LbFacts, PoolFacts,
    PoolRead, Provisioning, PutAccepted, RetryAfter,
};
use model::assignment::{Assignment, Observation, Share};
use model::ids::{
    AddressName, CallId, Epoch, Etag, Family, LbName, NetworkId, PoolId, PoolName, RulePrefix, ServiceKey,
    ServiceUid,
};
use model::leadership::Leadership;
use model::level::{Level, Member, Provenance, Source};
use model::machine::{Machine, Now, earliest};
use model::report::Subject;
use model::sample::{Metric, PoolState};
use model::view::Snapshot;
use pool_core::route::{ArmMessage, Delivery, HostMessage, KubernetesCall, Output, PoolMessage, route};
use pool_testing::facts::pool_at_rest;
use pools::queue::{self, In, PoolQueue};
use reporting::events::{self, Emitter, Event};
use reporting::snapshot::{self, SnapshotPublisher};
use writer::Writer;

/// Time that ARM takes to answer.
const LATENCY: Duration = Duration::from_millis(300);
const EPOCH: Epoch = Epoch(1);

/// A leader with pools on two load balancers, and a fake ARM.
struct LeaderHarness {
    now: Now,
    pools: BTreeMap<PoolId, PoolQueue>,
    writer: Writer,
    events: Emitter,
    snapshot_publisher: SnapshotPublisher,
    in_flight: VecDeque<Delivery>,
    /// ARM's answers in flight.
    answers: BTreeMap<(Now, CallId), ArmAnswer>,
    /// Members of each pool in Azure.
    azure_members: BTreeMap<PoolId, BTreeSet<IpAddr>>,
    /// The pool whose writes fail with a retriable error.
    failing: Option<PoolId>,
    /// The pool that breaks at its next grant.
    breaking: Option<PoolId>,
    /// Pools of the sent PUTs.
    sent: Vec<PoolId>,
    posted: Vec<Arc<Event>>,
    logged: Vec<(PoolId, &'static str)>,
    gauge: BTreeMap<PoolState, i64>,
    /// The last published state of each pool.
    states: BTreeMap<PoolId, PoolState>,
    snapshot: Arc<Snapshot>,
}

/// Returns the default profile.
fn params() -> queue::Params {
    queue::Params {
        quiet_period: Duration::from_millis(500),
        max_delay: Duration::from_secs(2),
        min_interval: Duration::from_secs(5),
        retry_interval: Duration::from_secs(30),
        max_retries: 3,
        after_failure: Some(Duration::from_secs(60)),
        drift: true,
        compare_after_stale: true,
        contention_backoff: true,
    }
}

fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn ips(members: &[u8]) -> BTreeSet<IpAddr> {
    members.iter().map(|n| ip(*n)).collect()
}

fn failure(status: u16, code: &str) -> Arc<Failure> {
    Arc::new(Failure {
        kind: FailureKind::Status(status),
        code: Some(code.into()),
        inner_codes: Vec::new(),
        message: "the request failed".into(),
        retry_after: RetryAfter::Absent,
        correlation_id: None,
    })
}

fn share(name: &str, required: &[u8]) -> Share {
    Share {
        key: ServiceKey::new("shop", name),
        revision: 0,
        required: ips(required),
        tolerated: BTreeSet::new(),
        triggered: None,
        read: None,
    }
}

/// Returns an assignment of a pool with this level, whose Service requires these members.
fn assignment(pool: &PoolId, level: &[u8], required: &[u8]) -> Assignment {
    let name = service_of(pool);
    let member = |n: &u8| (ip(*n), Member { name: AddressName::new("node"), node_ready: true });
    Assignment {
        epoch: EPOCH,
        opened: Now::ZERO,
        pool: pool.clone(),
        family: Family::V4,
        source: Source::Kubernetes,
        services: BTreeMap::from([(ServiceUid::new(name), share(name, required))]),
        level: Level { required: level.iter().map(member).collect(), ..Level::default() },
        provenance: Provenance::Watch,
        paused: BTreeSet::new(),
        held: None,
        would_hold: None,
        overruled: None,
    }
}

/// Returns an assignment that breaks the invariant.
fn invalid_assignment(pool: &PoolId) -> In {
    In::Assigned(Arc::new(assignment(pool, &[2, 9], &[2])))
}

fn pool_id(lb: &str, service: &str) -> PoolId {
    PoolId::new(LbName::new(lb), PoolName::new(format!("shop-{service}")))
}

fn service_of(pool: &PoolId) -> &str {
    pool.pool.as_str().trim_start_matches("shop-")
}

impl LeaderHarness {
    /// Creates a leader with these pools, which hold member 1 and are in sync.
    fn new(pools: &[PoolId]) -> LeaderHarness {
        let lease_free = writer::Params {
            turns: 64,
            if_match: true,
            etag_rounds: 3,
            client_retries: 3,
            lease: None,
            dry_run: false,
            rate_limit: None,
            retry_throttled: false,
            gates_delay_grants: true,
            throttling: writer::Throttling::Bounded,
            breaker: true,
            min_interval: params().min_interval,
            writes_per_5_minutes: 500,
            reads_per_5_minutes: 5_000,
            network: None,
        };
        let mut harness = LeaderHarness {
            now: Now::ZERO,
            pools: pools.iter().map(|pool| (pool.clone(), PoolQueue::new(pool.clone(), params()))).collect(),
            writer: Writer::new(lease_free),
            events: Emitter::new(events::Params { capacity: 100, per_second: 10, burst: 100 }),
            snapshot_publisher: SnapshotPublisher::new(),
            in_flight: VecDeque::new(),
            answers: BTreeMap::new(),
            azure_members: pools.iter().map(|pool| (pool.clone(), ips(&[1]))).collect(),
            failing: None,
            breaking: None,
            sent: Vec::new(),
            posted: Vec::new(),
            logged: Vec::new(),
            gauge: BTreeMap::new(),
            states: BTreeMap::new(),
            snapshot: Arc::default(),
        };
        let leads = Leadership::Leading { epoch: EPOCH, until: Now::NEVER };
        let (term, policy) = (Some(EPOCH), Arc::default());
        harness.dispatch(Delivery::Writer(writer::In::OperatorPolicy { term, policy: Arc::clone(&policy) }));
        harness.dispatch(Delivery::Events(events::In::OperatorPolicy { term, policy }));
        harness.dispatch(Delivery::Writer(writer::In::Leadership(leads)));
        harness.dispatch(Delivery::Events(events::In::Leadership(leads)));
        for pool in pools {
            harness.require(pool, 1);
            let facts = harness.facts(pool);
            harness.dispatch(to(pool, In::Observed(Observation { began: harness.now, facts })));
        }
        harness
    }

    /// Makes the pool's Service require only this member.
    fn require(&mut self, pool: &PoolId, member: u8) {
        self.dispatch(to(pool, In::Assigned(Arc::new(assignment(pool, &[member], &[member])))));
    }

    /// Breaks an invariant of the pool, which the pool detects.
    fn break_invariant(&mut self, pool: &PoolId) {
        self.dispatch(to(pool, invalid_assignment(pool)));
    }

    fn facts(&self, pool: &PoolId) -> Arc<PoolFacts> {
        let entry = |ip: &IpAddr| Entry {
            name: format!("{ip}").into(),
            ip: Some(*ip),
            admin_state: AdminState::None,
            network: None,
            instance: None,
        };
        let uid = ServiceUid::new(service_of(pool));
        let entries = self.azure_members[pool].iter().map(entry).collect();
        Arc::new(PoolFacts {
            rules: vec![format!("{}-TCP-80", RulePrefix::of(&uid).as_str()).into()],
            network: Some(NetworkId::new("vnet")),
            ..pool_at_rest(pool.clone(), entries)
        })
    }

    /// Delivers a message and all messages that follow from it at this time.
    fn dispatch(&mut self, delivery: Delivery) {
        self.in_flight.push_back(delivery);
        while let Some(delivery) = self.in_flight.pop_front() {
            self.deliver(delivery);
        }
    }

    fn deliver(&mut self, delivery: Delivery) {
        let now = self.now;
        match delivery {
            Delivery::Pool(pool, PoolMessage::In(input)) => self.deliver_to_pool(&pool, input),
            Delivery::Writer(input) => {
                let mut out = Vec::new();
                self.writer.step(now, input, &mut out);
                self.pass_on(out, Output::Writer);
            }
            Delivery::Events(input) => {
                let mut out = Vec::new();
                self.events.step(now, input, &mut out);
                self.pass_on(out, Output::Events);
            }
            Delivery::Snapshot(input) => {
                if let snapshot::In::Pool(view) = &input {
                    self.states.insert(view.pool.clone(), view.state);
                }
                let mut out = Vec::new();
                self.snapshot_publisher.step(now, input, &mut out);
                self.pass_on(out, Output::Snapshot);
            }
            Delivery::Arm(ArmMessage::Call(call)) => {
                let answer = self.answer(&call.request);
                self.answers.insert((now.plus(LATENCY), call.id), answer);
            }
            Delivery::Kubernetes(KubernetesCall::Post { call, event }) => {
                self.posted.push(event);
                let answer = Ok(format!("event-{}", call.0).into());
                self.in_flight.push_back(Delivery::Events(events::In::Posted { call, answer }));
            }
            Delivery::Metrics(Metric::PoolState { from, to }) => {
                from.into_iter().for_each(|state| *self.gauge.entry(state).or_default() -= 1);
                to.into_iter().for_each(|state| *self.gauge.entry(state).or_default() += 1);
            }
            Delivery::Host(HostMessage::Quarantined(pool, broken)) => self.logged.push((pool, broken)),
            Delivery::Host(HostMessage::Publish(snapshot)) => self.snapshot = snapshot,
            Delivery::Host(HostMessage::EventDropped(_)) => {}
            // Receivers that this test does not model.
            Delivery::Watcher(..)
            | Delivery::Informer(_)
            | Delivery::Discovery(_)
            | Delivery::Directory(_)
            | Delivery::Leader(_)
            | Delivery::AdminState(_)
            | Delivery::Pauses(_)
            | Delivery::XdsSource(_)
            | Delivery::Xds(_)
            | Delivery::Arm(ArmMessage::Gates { .. })
            | Delivery::Metrics(_) => {}
            Delivery::Pool(_, PoolMessage::Forget)
            | Delivery::Kubernetes(
                KubernetesCall::Open { .. }
                | KubernetesCall::Lease { .. }
                | KubernetesCall::ConfigMap { .. }
                | KubernetesCall::Taint { .. }
                | KubernetesCall::CountLockFailures { .. },
            )
            | Delivery::Host(
                HostMessage::NoticeIgnored(..)
                | HostMessage::Answered(..)
                | HostMessage::Done(_)
                | HostMessage::StorageRollback(_),
            ) => {
                panic!("unexpected {delivery:?}")
            }
        }
    }

    /// Delivers a message to the queue of a pool, preceded by an invalid level if the pool must break.
    fn deliver_to_pool(&mut self, pool: &PoolId, input: In) {
        let mut out = Vec::new();
        let machine = self.pools.get_mut(pool).expect("the pool");
        if let In::Take(_) = input
            && self.breaking.take_if(|breaking| breaking == pool).is_some()
        {
            machine.step(self.now, invalid_assignment(pool), &mut out);
        }
        machine.step(self.now, input, &mut out);
        self.pass_on(out, Output::Pool);
    }

    fn pass_on<T>(&mut self, out: Vec<T>, wrap: fn(T) -> Output) {
        for out in out {
            route(wrap(out), &mut |delivery| self.in_flight.push_back(delivery));
        }
    }

    /// Applies a request to ARM and returns its answer.
    fn answer(&mut self, request: &ArmRequest) -> ArmAnswer {
        match request {
            ArmRequest::GetLoadBalancer(lb) => ArmAnswer::LoadBalancer(Arc::new(LbFacts {
                lb: lb.clone(),
                etag: None,
                guid: None,
                provisioning: Provisioning::Succeeded,
                pools: self.pools.keys().filter(|pool| pool.lb == *lb).map(|pool| self.facts(pool)).collect(),
                rules: Vec::new(),
            })),
            ArmRequest::GetPool(pool) => ArmAnswer::Pool(PoolRead {
                facts: self.facts(pool),
                document: Document::new(self.azure_members[pool].clone()),
                etag: Some(Etag::new("W/1")),
            }),
            ArmRequest::PutPool { pool, base, edit, .. } => {
                let members = edited(base.get().expect("a document of this ARM"), edit);
                self.sent.push(pool.clone());
                if self.failing.as_ref() == Some(pool) {
                    return ArmAnswer::Failed(failure(503, "ServiceUnavailable"));
                }
                self.azure_members.insert(pool.clone(), members);
                ArmAnswer::Put(PutAccepted {
                    provisioning: Provisioning::Succeeded,
                    operation: None,
                    retry_after: RetryAfter::Absent,
                    etag: Some(Etag::new("W/1")),
                    correlation_id: None,
                })
            }
            ArmRequest::Poll(operation) => panic!("no operation is asynchronous: {operation:?}"),
        }
    }

    /// Advances to this time, and handles everything that is due.
    fn at(&mut self, ms: u64) -> &mut LeaderHarness {
        let end = Now::from_millis(ms);
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            let now = self.now;
            if let Some(entry) = self.answers.first_entry().filter(|entry| entry.key().0 <= now) {
                let ((_, call), answer) = entry.remove_entry();
                self.dispatch(Delivery::Writer(writer::In::Answered(call, answer)));
                continue;
            }
            let mut out = Vec::new();
            for queue in self.pools.values_mut().filter(|queue| queue.deadline().is_some_and(|at| at <= now))
            {
                queue.tick(now, &mut out);
            }
            self.pass_on(out, Output::Pool);
            let mut out = Vec::new();
            if self.writer.deadline().is_some_and(|at| at <= now) {
                self.writer.tick(now, &mut out);
            }
            self.pass_on(out, Output::Writer);
            let mut out = Vec::new();
            if self.events.deadline().is_some_and(|at| at <= now) {
                self.events.tick(now, &mut out);
            }
            self.pass_on(out, Output::Events);
            let mut out = Vec::new();
            if self.snapshot_publisher.deadline().is_some_and(|at| at <= now) {
                self.snapshot_publisher.tick(now, &mut out);
            }
            self.pass_on(out, Output::Snapshot);
            while let Some(delivery) = self.in_flight.pop_front() {
                self.deliver(delivery);
            }
        }
        self.now = end;
        self
    }

    fn next(&self) -> Option<Now> {
        let machines = [self.writer.deadline(), self.events.deadline(), self.snapshot_publisher.deadline()];
        let pools = self.pools.values().map(Machine::deadline);
        let answer = self.answers.keys().next().map(|(at, _)| *at);
        machines.into_iter().chain(pools).chain([answer]).fold(None, earliest)
    }

    /// Returns the number of PUTs of a pool.
    fn writes(&self, pool: &PoolId) -> usize {
        self.sent.iter().filter(|sent| *sent == pool).count()
    }

    /// Returns the reasons of the events of a pool's Service.
    fn event_reasons(&self, pool: &PoolId) -> Vec<&'static str> {
        let is_about = |subject: &Subject| match subject {
            Subject::Service(service) => service.key == ServiceKey::new("shop", service_of(pool)),
            Subject::Node { .. } | Subject::Controller => false,
        };
        self.posted.iter().filter(|event| is_about(&event.subject)).map(|event| event.reason).collect()
    }
}

fn to(pool: &PoolId, input: In) -> Delivery {
    Delivery::Pool(pool.clone(), PoolMessage::In(input))
}

/// Returns the members after an edit.
fn edited(before: &BTreeSet<IpAddr>, edit: &Edit) -> BTreeSet<IpAddr> {
    let remaining = before.iter().enumerate().filter(|(at, _)| !edit.remove.contains(at)).map(|(_, ip)| *ip);
    remaining.chain(edit.add.iter().map(|new| new.ip)).collect()
}

/// Makes a pool due while another pool of the same lane is being written.
fn due_behind(harness: &mut LeaderHarness, pool: &PoolId, first: &PoolId) {
    harness.at(1_000).require(first, 2);
    harness.at(1_300).require(pool, 2);
    harness.at(1_850);
    assert_eq!([first, pool].map(|pool| harness.states[pool]), [PoolState::Attempting, PoolState::Due]);
}

/// Changes every pool once a minute for an hour, and asserts that all but the quarantined one follow.
fn assert_others_follow_for_an_hour(harness: &mut LeaderHarness, quarantined: &PoolId, from_ms: u64) {
    let written = harness.writes(quarantined);
    let others: Vec<PoolId> = harness.pools.keys().filter(|pool| *pool != quarantined).cloned().collect();
    for minute in 1..=60 {
        let member = if minute % 2 == 0 { 4 } else { 5 };
        for pool in harness.pools.keys().cloned().collect::<Vec<_>>() {
            harness.require(&pool, member);
        }
        harness.at(from_ms + minute * 60_000);
        for pool in &others {
            assert_eq!(harness.azure_members[pool], ips(&[member]), "{pool} in minute {minute}");
        }
    }
    assert_eq!(harness.writes(quarantined), written, "nothing writes the quarantined pool");
    assert_eq!(harness.logged.iter().map(|(pool, _)| pool).collect::<Vec<_>>(), [quarantined]);
    assert_eq!(
        harness
            .event_reasons(quarantined)
            .iter()
            .filter(|reason| **reason == "BackendPoolQuarantined")
            .count(),
        1
    );
    for pool in &others {
        assert!(
            harness.event_reasons(pool).iter().all(|reason| *reason == "LoadBalancerBackendPoolUpdated"),
            "{pool}"
        );
    }
    let count = |state| harness.gauge.get(&state).copied().unwrap_or(0);
    let in_sync = i64::try_from(others.len()).expect("a few");
    assert_eq!(
        (count(PoolState::Quarantined), count(PoolState::InSync)),
        (1, in_sync),
        "{:?}",
        harness.gauge
    );
    for (pool, view) in &harness.snapshot.pools {
        let wanted = if pool == quarantined { PoolState::Quarantined } else { PoolState::InSync };
        assert_eq!(view.state, wanted, "{pool}");
    }
    assert_eq!(harness.snapshot.pools.len(), others.len() + 1);
}

#[test]
fn a4_a_broken_pool_is_quarantined_alone() {
    let [broken, same, other] = [pool_id("one", "broken"), pool_id("one", "same"), pool_id("two", "other")];
    let mut harness = LeaderHarness::new(&[broken.clone(), same.clone(), other]);
    due_behind(&mut harness, &broken, &same);
    harness.break_invariant(&broken);
    harness.at(10_000);
    assert_eq!(harness.azure_members[&same], ips(&[2]));
    assert_eq!((harness.azure_members[&broken].clone(), harness.writes(&broken)), (ips(&[1]), 0));
    assert_others_follow_for_an_hour(&mut harness, &broken, 10_000);
}

#[test]
fn a4_a_pool_that_breaks_during_its_write_frees_the_lane() {
    let [broken, same, other] = [pool_id("one", "broken"), pool_id("one", "same"), pool_id("two", "other")];
    let mut harness = LeaderHarness::new(&[broken.clone(), same.clone(), other]);
    harness.at(1_000);
    harness.require(&broken, 2);
    harness.require(&same, 2);
    // Advance until the first pool's PUT is in flight; the second pool waits for the lane.
    (1_000..5_000).step_by(50).find(|ms| harness.at(*ms).writes(&broken) > 0).expect("it is written");
    assert_eq!(harness.writes(&same), 0, "{:?}", harness.sent);
    harness.break_invariant(&broken);
    harness.at(10_000);
    assert_eq!(harness.azure_members[&same], ips(&[2]));
    assert_others_follow_for_an_hour(&mut harness, &broken, 10_000);
}

#[test]
fn a4_a_pool_that_breaks_at_its_grant_is_not_written() {
    let [broken, same, other] = [pool_id("one", "broken"), pool_id("one", "same"), pool_id("two", "other")];
    let mut harness = LeaderHarness::new(&[broken.clone(), same.clone(), other]);
    due_behind(&mut harness, &broken, &same);
    harness.breaking = Some(broken.clone());
    harness.at(10_000);
    assert!(harness.breaking.is_none(), "it was granted");
    assert_eq!((harness.writes(&broken), harness.azure_members[&same].clone()), (0, ips(&[2])));
    assert_others_follow_for_an_hour(&mut harness, &broken, 10_000);
}

#[test]
fn a4_a_pool_that_breaks_before_a_retry_is_not_written() {
    let [broken, same, other] = [pool_id("one", "broken"), pool_id("one", "same"), pool_id("two", "other")];
    let mut harness = LeaderHarness::new(&[broken.clone(), same.clone(), other]);
    harness.at(1_000).failing = Some(broken.clone());
    harness.require(&broken, 2);
    (1_000..5_000).step_by(50).find(|ms| harness.at(*ms).writes(&broken) > 0).expect("it is written");
    harness.at(5_000).break_invariant(&broken);
    harness.failing = None;
    harness.require(&same, 2);
    harness.at(30_000);
    assert_eq!((harness.writes(&broken), harness.azure_members[&same].clone()), (1, ips(&[2])));
    assert_others_follow_for_an_hour(&mut harness, &broken, 30_000);
}
