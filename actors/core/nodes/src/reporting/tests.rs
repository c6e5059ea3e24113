//! Tests of the reports, on the test's clock, about nodes and pools in given states.

mod metrics;
mod shown;

use std::net::IpAddr;

use super::*;
use crate::RecordStorage;
use crate::pools::MissingAdminStates;
use crate::records::{Exceptions, Record};
use mechanisms::work_queue;
use model::arm::{AdminState as State, Entry, LbFacts, Provisioning};
use model::draining::AdminUrgency;
use model::ids::{LbName, PoolName};
use model::load_balancers::LbObservation;
use model::node::Role;
use model::object::ResourceVersion;
use model::sample::Metric;
use model::signals::Signal;
use model::view::{AdminView, NodeView};
use pool_testing::facts::pool_at_rest;

fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn pool(lb: &str, name: &str) -> PoolId {
    PoolId::new(LbName::new(lb), PoolName::new(name))
}

fn pools() -> [PoolId; 2] {
    [pool("lb", "web"), pool("lb-internal", "web")]
}

/// A node with its state. `None`: not draining.
struct Node {
    name: NodeName,
    uid: NodeUid,
    fact: Option<NodeFact>,
    state: Option<NodeState>,
    since: Now,
    record: Record,
}

impl Node {
    fn new(n: u8) -> Node {
        let (name, uid) = (NodeName::new(format!("node-{n}")), NodeUid::new(format!("uid-{n}")));
        let fact = NodeFact {
            name: name.clone(),
            uid: uid.clone(),
            ips: [ip(n)].into(),
            instance: None,
            ready: true,
            excluded: None,
            taints: Vec::new(),
            created: None,
            preempt: None,
            version: ResourceVersion::default(),
        };
        let record = Record {
            node: name.clone(),
            uid: uid.clone(),
            ips: [ip(n)].into(),
            instance: None,
            since: Now::ZERO,
            foreign: Exceptions::default(),
            taint_ours: false,
            rest: Vec::new(),
        };
        Node { name, uid, fact: Some(fact), state: None, since: Now::ZERO, record }
    }

    fn status(&self) -> Option<NodeStatus<'_>> {
        let state = self.state?;
        let leaves = match state {
            NodeState::Held | NodeState::Recording | NodeState::Draining | NodeState::Down => true,
            NodeState::Restoring | NodeState::Gone => false,
        };
        Some(NodeStatus {
            uid: &self.uid,
            name: &self.name,
            fact: self.fact.as_ref(),
            state,
            since: Some(self.since),
            signals: leaves.then_some(Signal::Shutdown).into_iter().collect(),
            record: (state != NodeState::Held).then_some(&self.record),
            done: state == NodeState::Down,
        })
    }
}

/// The emitted reports, views and samples.
#[derive(Debug, Default)]
struct Emitted {
    reports: Vec<Report>,
    nodes: Vec<(NodeName, Option<NodeView>)>,
    whole: Vec<AdminView>,
    samples: Vec<Metric>,
    ended: Vec<Ended>,
}

struct Fixture {
    now: Now,
    reporting: Reporting,
    nodes: Vec<Node>,
    /// Numbers of Ready nodes that are Down, and of all Ready nodes.
    bound: (usize, usize),
    azure: BTreeMap<PoolId, BTreeMap<IpAddr, State>>,
    pools: Pools,
    updates: PendingUpdates,
    queue: WorkQueue<NodeUid>,
    set: Draining,
    params: Params,
    unreadable: BTreeMap<Arc<str>, &'static str>,
    refused: BTreeMap<NodeUid, &'static str>,
    leads: bool,
    acts: bool,
    changed: bool,
}

impl Fixture {
    /// Creates a fixture with this number of nodes. All except the last are in both pools. Events are posted.
    fn new(nodes: u8) -> Fixture {
        let params = Params {
            role: Role::On,
            load_balancers: ["lb", "lb-internal"].map(LbName::new).into(),
            excluded: [PoolName::new("excluded")].into(),
            only_listed: BTreeSet::new(),
            listed: BTreeSet::new(),
            max_backoff: Duration::from_secs(15),
            storage: RecordStorage::ConfigMap,
        };
        let members: BTreeMap<IpAddr, State> = (1..nodes).map(|n| (ip(n), State::None)).collect();
        let mut fixture = Fixture {
            now: Now::from_millis(10_000),
            reporting: Reporting::default(),
            nodes: (1..=nodes).map(Node::new).collect(),
            bound: (0, nodes.into()),
            azure: pools().map(|pool| (pool, members.clone())).into(),
            pools: Pools::default(),
            updates: PendingUpdates::default(),
            queue: WorkQueue::new(work_queue::Params::S4),
            set: Draining { excluded: params.excluded.clone(), ..Draining::default() },
            params,
            unreadable: BTreeMap::new(),
            refused: BTreeMap::new(),
            leads: true,
            acts: true,
            changed: true,
        };
        fixture.reporting.set_term(Some(Epoch(1)));
        fixture.observe();
        fixture.later();
        fixture
    }

    fn uid(&self, n: u8) -> NodeUid {
        self.nodes[usize::from(n) - 1].uid.clone()
    }

    fn subject(&self, n: u8) -> Subject {
        let Node { name, uid, .. } = &self.nodes[usize::from(n) - 1];
        Subject::Node { name: name.clone(), uid: uid.clone() }
    }

    fn about(&self, n: u8, what: EventKind) -> Report {
        Report { subjects: vec![self.subject(n)], what, note: None }
    }

    /// Sets the state of a node.
    fn put(&mut self, n: u8, state: impl Into<Option<NodeState>>) {
        let node = &mut self.nodes[usize::from(n) - 1];
        let (before, after) = (node.state, state.into());
        if before.map(direction::Direction::of) != after.map(direction::Direction::of) {
            node.since = self.now;
        }
        node.state = after;
        self.changed = true;
    }

    fn record(&mut self, n: u8) -> &mut Record {
        &mut self.nodes[usize::from(n) - 1].record
    }

    /// Sets the admin state of the node's entry in this pool.
    fn set(&mut self, pool: &PoolId, n: u8, state: State) {
        self.azure.entry(pool.clone()).or_default().insert(ip(n), state);
        self.observe();
    }

    /// Sets the admin state of the node's entries in all pools.
    fn set_all(&mut self, n: u8, state: State) {
        for pool in pools() {
            self.set(&pool, n, state);
        }
    }

    fn observe(&mut self) {
        self.now = self.now.plus(Duration::from_millis(1));
        for lb in self.params.load_balancers.clone() {
            let entry = |(ip, state): (&IpAddr, &State)| Entry {
                name: ip.to_string().into(),
                ip: Some(*ip),
                admin_state: *state,
                network: None,
                instance: None,
            };
            let of_lb = self.azure.iter().filter(|(id, _)| id.lb == lb);
            let pools = of_lb
                .map(|(id, entries)| Arc::new(pool_at_rest(id.clone(), entries.iter().map(entry).collect())));
            let facts = LbFacts {
                lb: lb.clone(),
                etag: None,
                guid: None,
                provisioning: Provisioning::Succeeded,
                pools: pools.collect(),
                rules: Vec::new(),
            };
            self.pools.observe(&LbObservation {
                lb,
                began: self.now,
                facts: Some(Arc::new(facts)),
                puts: Default::default(),
            });
        }
        self.changed = true;
    }

    /// Makes an update for a node in a pool due.
    fn update(&mut self, pool: &PoolId, n: u8) {
        let (now, missing) = (self.now, MissingAdminStates::from([(self.uid(n), AdminUrgency::Down)]));
        self.updates.request(now, pool.clone(), missing, 1, |_| Some(now), &mut Vec::new());
        self.changed = true;
    }

    /// Makes the write of the update fail.
    fn fail(&mut self, pool: &PoolId, n: u8) {
        let uid = self.uid(n);
        self.queue.add(self.now, uid.clone());
        while let Some(taken) = self.queue.take(self.now) {
            if taken == uid {
                self.queue.finish(self.now, &uid, Err(work_queue::Failed::default()));
            } else {
                self.queue.done(self.now, &taken);
            }
        }
        self.reporting.failed(Some(pool), &[uid], "HTTP 500".into());
    }

    /// Returns the current reports.
    fn report(&mut self) -> Emitted {
        let statuses: Vec<NodeStatus<'_>> = self.nodes.iter().filter_map(Node::status).collect();
        let seen = ReportInput {
            statuses: &statuses,
            facts: &|| self.nodes.iter().filter_map(|node| node.fact.as_ref()).collect(),
            bound: &|| self.bound,
            pools: &self.pools,
            updates: &self.updates,
            added: &BTreeMap::new(),
            queue: &self.queue,
            set: &self.set,
            records: RecordsView {
                count: statuses.len(),
                unreadable: &self.unreadable,
                refused: &self.refused,
                fresh: true,
                last_error: None,
            },
            params: &self.params,
            switched_off: false,
            leads: self.leads,
            acts: self.acts,
            changed: self.changed,
        };
        let mut out = Vec::new();
        self.reporting.report(self.now, &seen, &mut out);
        self.changed = false;
        let mut output = Emitted::default();
        for one in out {
            match one {
                Out::Report(report) => output.reports.push(report),
                Out::Node(name, view) => output.nodes.push((name, view)),
                Out::View(view) => output.whole.push(view),
                Out::Metric(sample) => output.samples.push(sample),
                Out::Ended(ended) => output.ended.push(ended),
                other @ (Out::Draining(_)
                | Out::DrainingAddresses(_)
                | Out::Due(..)
                | Out::Opened(_)
                | Out::ReadLoadBalancers
                | Out::NoticeIgnored(..)
                | Out::ConfigMap(..)
                | Out::Taint(..)
                | Out::Answer(..)
                | Out::Release(..)) => panic!("{other:?} is not emitted here"),
            }
        }
        output
    }

    /// Returns the reports after another second.
    fn later(&mut self) -> Emitted {
        self.now = self.now.plus(Duration::from_secs(1));
        self.report()
    }

    /// Returns the events after another second.
    fn reports(&mut self) -> Vec<Report> {
        self.later().reports
    }

    /// Sets the node Down in all pools.
    fn cut(&mut self, n: u8) -> Vec<Report> {
        self.set_all(n, State::Down);
        self.put(n, NodeState::Down);
        self.reports()
    }
}

fn down(pools: usize, balancers: usize) -> EventKind {
    EventKind::AdminDown { pools, balancers, signals: [Signal::Shutdown].into(), unknown: None }
}

fn failed(pool: Option<PoolId>, why: &str, retry: u32, next: Option<Duration>) -> EventKind {
    EventKind::AdminFailed { pool, why: why.into(), retry, next }
}

#[test]
fn s1_a_down_and_a_return_are_reported_once_each() {
    let mut fixture = Fixture::new(3);
    for _ in 0..2 {
        fixture.put(1, NodeState::Draining);
        assert_eq!(fixture.reports(), [], "not before all pools are written");
        assert_eq!(fixture.cut(1), [fixture.about(1, down(2, 2))]);
        fixture.put(1, NodeState::Draining);
        assert_eq!(fixture.reports(), []);
        fixture.put(1, NodeState::Down);
        assert_eq!(fixture.reports(), [], "a repair is not reported");

        fixture.put(1, NodeState::Restoring);
        assert_eq!(fixture.reports(), []);
        fixture.set(&pools()[0], 1, State::None);
        assert_eq!(fixture.reports(), []);
        fixture.set_all(1, State::None);
        fixture.put(1, None);
        assert_eq!(fixture.reports(), [fixture.about(1, EventKind::AdminRestored { pools: 2 })]);
        assert_eq!(fixture.reports(), []);
    }
}

#[test]
fn s1_an_entry_with_an_unknown_state_is_named_and_not_down() {
    let mut fixture = Fixture::new(3);
    fixture.put(1, NodeState::Draining);
    assert_eq!(fixture.reports(), []);
    fixture.set_all(1, State::Down);
    let odd = pools()[1].clone();
    fixture.set(&odd, 1, State::Unknown);
    fixture.put(1, NodeState::Down);
    let what = EventKind::AdminDown {
        pools: 1,
        balancers: 1,
        signals: [Signal::Shutdown].into(),
        unknown: Some((1, odd)),
    };
    assert_eq!(fixture.reports(), [fixture.about(1, what)]);
}

#[test]
fn s1_a_deleted_node_or_one_in_no_pool_is_not_reported() {
    let mut fixture = Fixture::new(3);
    for state in [NodeState::Draining, NodeState::Down, NodeState::Restoring] {
        fixture.put(3, state);
        assert_eq!(fixture.reports(), []);
    }
    fixture.put(3, None);
    assert_eq!(fixture.reports(), [], "it is in no pool");
    fixture.put(3, NodeState::Down);
    assert_eq!(fixture.reports(), []);
    assert_eq!(fixture.cut(3), [fixture.about(3, down(2, 2))], "now it is in two");

    fixture.cut(1);
    fixture.put(1, NodeState::Restoring);
    assert_eq!(fixture.reports(), []);
    fixture.nodes[0].fact = None;
    fixture.put(1, NodeState::Gone);
    assert_eq!(fixture.reports(), []);
    fixture.put(1, None);
    assert_eq!(fixture.reports(), []);
    fixture.cut(2);
    fixture.put(2, NodeState::Restoring);
    assert_eq!(fixture.reports(), []);
    fixture.nodes[1].fact = None;
    fixture.put(2, None);
    assert_eq!(fixture.reports(), [], "it is deleted immediately");
}

#[test]
fn s1_a_return_without_posted_events_is_reported_later() {
    let mut fixture = Fixture::new(3);
    fixture.reporting.set_term(None);
    assert_eq!(fixture.cut(1), []);
    fixture.reporting.set_term(Some(Epoch(1)));
    assert_eq!(fixture.reports(), [fixture.about(1, down(2, 2))]);
    fixture.acts = false;
    assert_eq!(fixture.cut(2), [], "no update has begun");
    fixture.acts = true;
    assert_eq!(fixture.reports(), [fixture.about(2, down(2, 2))]);

    fixture.put(1, NodeState::Restoring);
    assert_eq!(fixture.reports(), []);
    fixture.acts = false;
    fixture.set_all(1, State::None);
    fixture.put(1, None);
    assert_eq!(fixture.reports(), []);
    fixture.acts = true;
    assert_eq!(fixture.reports(), [fixture.about(1, EventKind::AdminRestored { pools: 2 })]);
    assert_eq!(fixture.reports(), []);
}

#[test]
fn n3_the_first_of_a_row_of_failures_is_reported() {
    let mut fixture = Fixture::new(3);
    let [web, internal] = pools();
    fixture.put(1, NodeState::Draining);
    fixture.later();
    fixture.fail(&web, 1);
    let first = failed(Some(web.clone()), "HTTP 500", 0, Some(Duration::from_millis(5)));
    assert_eq!(fixture.report().reports, [fixture.about(1, first.clone())]);
    fixture.now = fixture.now.plus(Duration::from_millis(300));
    fixture.fail(&internal, 1);
    let output = fixture.report();
    assert_eq!(output.reports, [], "the failures continue");
    let [(_, Some(view))] = &output.nodes[..] else { panic!("{output:?}") };
    assert_eq!((view.retries, view.last_error.as_deref()), (2, Some("HTTP 500")));
    assert_eq!(view.next, Some(fixture.now.plus(Duration::from_millis(10))));

    fixture.cut(1);
    fixture.put(1, NodeState::Draining);
    let output = fixture.later();
    let [(_, Some(view))] = &output.nodes[..] else { panic!("{output:?}") };
    assert_eq!(view.last_error, None, "the failures have ended");
    fixture.fail(&web, 1);
    assert_eq!(fixture.report().reports.len(), 1);
    fixture.put(1, NodeState::Restoring);
    assert_eq!(fixture.reports(), []);
    fixture.fail(&web, 1);
    assert_eq!(fixture.report().reports.len(), 1, "another state is required");
    fixture.fail(&web, 2);
    assert_eq!(fixture.reports(), [], "a node without updates has no failures");
}

#[test]
fn n3_when_many_nodes_fail_the_common_limiter_sets_the_next_try() {
    let mut fixture = Fixture::new(4);
    fixture.queue = WorkQueue::new(work_queue::Params { burst: 1, ..work_queue::Params::S4 });
    fixture.now = fixture.now.plus(Duration::from_millis(300));
    let web = &pools()[0];
    for n in [1, 2] {
        fixture.put(n, NodeState::Draining);
        fixture.fail(web, n);
    }
    let first = |n: u8, millis| {
        let next = Some(Duration::from_millis(millis));
        fixture.about(n, failed(Some(web.clone()), "HTTP 500", 0, next))
    };
    let expected = [first(1, 5), first(2, 100)];
    let output = fixture.report();
    assert_eq!(output.reports, expected);
    let next: Vec<Option<Now>> = output.nodes.iter().map(|(_, view)| view.as_ref()?.next).collect();
    assert_eq!(next, [5, 100].map(|millis| Some(fixture.now.plus(Duration::from_millis(millis)))));
}

#[test]
fn n4_a_node_that_cannot_be_recorded_is_reported_once() {
    let mut fixture = Fixture::new(3);
    fixture.nodes[1].uid = NodeUid::new("no key/at all");
    fixture.refused = [(fixture.uid(1), "there is no room"), (fixture.uid(2), "its UID is odd")].into();
    fixture.put(1, NodeState::Recording);
    fixture.put(2, NodeState::Recording);
    let output = fixture.reports();
    let why = |report: &Report| {
        let EventKind::AdminFailed { pool: None, why, retry: 0, next: None } = &report.what else {
            panic!("{report:?}")
        };
        why.to_string()
    };
    let whys: Vec<String> = output.iter().map(why).collect();
    let expected = |why: &str| format!("the node cannot be recorded: {why}");
    assert_eq!(whys, [expected("its UID is odd"), expected("there is no room")]);
    assert_eq!(fixture.reports(), []);
    fixture.refused.clear();
    fixture.put(1, NodeState::Draining);
    assert_eq!(fixture.reports(), []);
    fixture.fail(&pools()[0], 1);
    assert_eq!(fixture.report().reports.len(), 1, "it was recorded: these are new failures");
}

#[test]
fn n5_each_held_node_is_reported_once_per_term() {
    let mut fixture = Fixture::new(7);
    fixture.bound = (2, 6);
    for (n, state) in [(1, NodeState::Draining), (2, NodeState::Recording), (3, NodeState::Held)] {
        fixture.put(n, state);
    }
    let held = EventKind::AdminHeld { down: 2, ready: 6 };
    let both = vec![fixture.subject(3), Subject::Controller];
    assert_eq!(fixture.reports(), [Report { subjects: both.clone(), what: held.clone(), note: None }]);
    fixture.put(4, NodeState::Held);
    assert_eq!(fixture.reports(), [fixture.about(4, held.clone())]);
    for state in [NodeState::Draining, NodeState::Held] {
        fixture.put(3, state);
        assert_eq!(fixture.reports(), [], "once in a term");
    }
    fixture.put(4, None);
    fixture.reporting.set_term(Some(Epoch(2)));
    assert_eq!(fixture.reports(), [Report { subjects: both, what: held, note: None }]);
    assert_eq!(fixture.reports(), []);
}

#[test]
fn n4_a_foreign_admin_state_is_reported_once_per_node_and_term() {
    let mut fixture = Fixture::new(4);
    let [web, internal] = pools();
    fixture.set(&web, 1, State::Down);
    fixture.set(&internal, 1, State::Up);
    fixture.set(&web, 99, State::Down);
    fixture.set(&pool("lb", "Excluded"), 2, State::Down);
    let told = EventKind::AdminForeign { pools: 2, example: web.clone(), state: State::Down };
    assert_eq!(fixture.reports(), [fixture.about(1, told.clone())]);
    fixture.set(&web, 1, State::Up);
    assert_eq!(fixture.reports(), []);
    fixture.set(&web, 1, State::Down);
    fixture.reporting.set_term(Some(Epoch(2)));
    assert_eq!(fixture.reports(), [fixture.about(1, told)]);

    fixture.set_all(2, State::Down);
    fixture.record(2).foreign.add(&internal);
    fixture.put(2, NodeState::Draining);
    assert_eq!(fixture.reports(), [], "a draining node is not reported");
    fixture.put(2, NodeState::Restoring);
    let told = EventKind::AdminForeign { pools: 1, example: internal, state: State::Down };
    assert_eq!(
        fixture.reports(),
        [fixture.about(2, told)],
        "an exception is not restored; the other Down is the controller's"
    );
}
