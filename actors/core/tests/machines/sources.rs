//! Tests of a pool that is filled from a source and has draining nodes: the machine with the Directory, the pool and
//! the plan of each write (X2, N4). An entry is Down if its node drains, if the source drains it, or if the operator
//! has set it Down. Writes come to an end.

#[path = "../../nodes/src/tests/fixture.rs"]
#[expect(dead_code, reason = "the tests of its crate use more of it")]
mod fixture;
#[path = "../../nodes/src/tests/server.rs"]
#[expect(dead_code, reason = "the tests of its crate use more of it")]
mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use fixture::{Fixture, ips, node, pool};
use model::arm::{AdminState as State, Entry, LbFacts, PoolFacts, Provisioning};
use model::assignment::Assignment;
use model::attempt::Outcome;
use model::guard::{Fraction, GuardMode};
use model::ids::{AttemptId, Epoch, Family, PoolId};
use model::level::{DrainingAddresses, Level, Provenance, Source};
use model::load_balancers::LbObservation;
use model::machine::{Machine, Now};
use model::node::Role;
use model::policy::OperatorPolicy;
use model::report::{EventKind, Report};
use model::signals::SHUTDOWN;
use model::xds::assignment::{EndpointHealth, LoadAssignment, Priority};
use model::xds::diagnostic::Diagnostic;
use model::xds::name::Name;
use model::xds::source::{Assigned, Note, SourceFact};
use nodes::{AdminState, In, Out, Params, RecordStorage};
use pool_testing::facts::pool_at_rest;
use pools::directory::{self, Directory, Listing};
use pools::membership;
use pools::queue::{self, PoolQueue};
use writer::plan::{Plan, PoolChange, plan};

const UP: EndpointHealth = EndpointHealth::Healthy;
const DRAINS: EndpointHealth = EndpointHealth::Draining;
const NODES: u8 = 3;

fn shop() -> Name {
    Name::Endpoints("shop".into())
}

fn web() -> PoolId {
    pool("lb", "web")
}

/// `lb/web` is filled from a source. Its addresses belong to these nodes.
struct World {
    fixture: Fixture,
    directory: Directory,
    queue: PoolQueue,
    assigned: Option<Arc<Assignment>>,
    due: bool,
    term: u64,
    attempts: u64,
    /// Number of PUTs to the pool.
    puts: usize,
    /// The draining addresses that were last sent to the Directory.
    leaving: Option<Arc<DrainingAddresses>>,
    /// Health of each node's endpoint in the source. `None`: the source is not known.
    says: Option<BTreeMap<u8, EndpointHealth>>,
}

fn directory_of() -> Directory {
    let membership = membership::Params::default();
    let listing = Listing { pool: web(), source: shop(), family: Family::V4, membership };
    Directory::new(directory::Params {
        removal_delay: Duration::from_secs(30),
        empty_confirm: Duration::from_secs(60),
        guards: GuardMode::Off,
        max_removal: Fraction::millionths(500_000),
        cluster_name: "kubernetes".into(),
        pins: None,
        listed: vec![listing],
        only_listed: BTreeSet::new(),
        dry_run: false,
    })
}

fn queue_of() -> PoolQueue {
    let params = queue::Params {
        quiet_period: Duration::from_millis(500),
        max_delay: Duration::from_secs(2),
        min_interval: Duration::from_secs(5),
        retry_interval: Duration::from_secs(30),
        max_retries: 3,
        after_failure: None,
        drift: true,
        compare_after_stale: true,
        contention_backoff: true,
    };
    PoolQueue::new(web(), params)
}

impl World {
    /// Creates a world in which all nodes are in the pool and in service, also in the source.
    fn new() -> World {
        let mut world = World::unknown();
        world.source(&[(1, UP), (2, UP), (3, UP)]);
        world.rest();
        world
    }

    /// Creates a world in which the source is not known.
    fn unknown() -> World {
        World::excluding(None)
    }

    /// Does the same, with this pool excluded.
    fn excluding(excluded: Option<PoolId>) -> World {
        let mut fixture = Fixture::silent(Role::On, NODES);
        fixture.params.listed = [web()].into();
        fixture.params.excluded = excluded.into_iter().map(|pool| pool.pool).collect();
        fixture.machine = AdminState::new(fixture.params.clone());
        let mut world = World {
            fixture,
            directory: directory_of(),
            queue: queue_of(),
            assigned: None,
            due: false,
            term: 0,
            attempts: 0,
            puts: 0,
            leaving: None,
            says: None,
        };
        (1..=NODES).for_each(|n| world.fixture.deliver(node(n, &[])));
        world.begin();
        world
    }

    fn begin(&mut self) {
        self.term += 1;
        self.deliver(directory::In::ListsSynced);
        self.deliver(directory::In::DiscoverySynced);
        let policy = Arc::new(OperatorPolicy::default());
        self.deliver(directory::In::OperatorPolicy { term: Some(Epoch(self.term)), policy });
        self.deliver(directory::In::Confirmed(Epoch(self.term)));
        self.deliver(directory::In::Reporting(Some(Epoch(self.term))));
        self.fixture.lead(self.term);
        self.observe_all();
    }

    /// Replaces the process with one that has the records, but not the source.
    fn restart(&mut self) {
        self.fixture.restart(Role::On);
        (self.directory, self.queue) = (directory_of(), queue_of());
        (self.assigned, self.due, self.says, self.leaving) = (None, false, None, None);
        self.begin();
    }

    fn deliver(&mut self, input: directory::In) {
        let mut out = Vec::new();
        self.directory.step(self.fixture.now, input, &mut out);
        self.directory.tick(self.fixture.now, &mut out);
        self.on_directory_output(out);
    }

    fn on_directory_output(&mut self, out: Vec<directory::Out>) {
        for output in out {
            match output {
                directory::Out::Assign(assignment) => {
                    self.assigned = Some(Arc::clone(&assignment));
                    self.pool(queue::In::Assigned(assignment));
                }
                directory::Out::Observe(_, observation) => self.pool(queue::In::Observed(observation)),
                directory::Out::SourceAdminStates(pool, word) => {
                    self.fixture.step(In::SourceAdminStates(pool, word))
                }
                directory::Out::Forget(_)
                | directory::Out::Rewrite(_)
                | directory::Out::Opened(_)
                | directory::Out::Reread(_)
                | directory::Out::ReadUpTo(_)
                | directory::Out::Answer(..)
                | directory::Out::Report(_)
                | directory::Out::Ended(_)
                | directory::Out::Refused(..)
                | directory::Out::Guards(_)
                | directory::Out::Service(..)
                | directory::Out::Metric(_) => {}
            }
        }
    }

    fn pool(&mut self, input: queue::In) {
        let mut out = Vec::new();
        self.queue.step(self.fixture.now, input, &mut out);
        self.on_queue_output(out);
    }

    fn on_queue_output(&mut self, out: Vec<queue::Out>) {
        for output in out {
            match output {
                queue::Out::Due(..) => self.due = true,
                queue::Out::Withdraw(_) => self.due = false,
                queue::Out::Taken(_, attempt, Some(taken)) => self.write(attempt, &taken.level),
                queue::Out::Taken(_, _, None)
                | queue::Out::Retired(_)
                | queue::Out::Members(..)
                | queue::Out::Missing(_)
                | queue::Out::RewriteSkipped(_)
                | queue::Out::Answer(..)
                | queue::Out::Report(_)
                | queue::Out::Ended(_)
                | queue::Out::View(_)
                | queue::Out::Gone(_)
                | queue::Out::Quarantined(..)
                | queue::Out::Metric(_) => {}
            }
        }
    }

    fn facts(&self) -> PoolFacts {
        let entry = |(ip, state): (&IpAddr, &State)| Entry {
            name: ip.to_string().into(),
            ip: Some(*ip),
            admin_state: *state,
            network: None,
            instance: None,
        };
        pool_at_rest(web(), self.fixture.azure[&web()].iter().map(entry).collect())
    }

    /// Writes the pool, with the due admin part.
    fn write(&mut self, attempt: AttemptId, level: &Level) {
        let members = self.facts().members();
        let set = Arc::clone(&self.fixture.set);
        let outcome = match plan(&self.facts(), Some(level), &set, None) {
            Plan::Unchanged => Outcome::Unchanged { members },
            Plan::Edit(change) => {
                self.put(&change);
                let PoolChange { members, added, removed, .. } = *change;
                Outcome::Written { members, added, removed, record: Arc::default() }
            }
        };
        self.fixture.pass(1);
        if self.fixture.due.remove(&web()).is_some() {
            self.fixture.finished(&web(), set.generation, None);
        }
        self.pool(queue::In::Finished(attempt, outcome));
    }

    fn put(&mut self, change: &PoolChange) {
        let facts = self.facts();
        let pool = self.fixture.azure.get_mut(&web()).expect("it is there");
        for at in &change.edit.remove {
            pool.remove(&facts.entries[*at].ip.expect("an address"));
        }
        for (at, state) in &change.edit.set_admin {
            pool.insert(facts.entries[*at].ip.expect("an address"), *state);
        }
        for new in &change.edit.add {
            pool.insert(new.ip, new.admin_state.unwrap_or(State::None));
        }
        self.fixture.sent.insert(web(), self.fixture.now);
        self.puts += 1;
    }

    /// Runs due updates of the writer, and delivers draining addresses to the Directory.
    fn work(&mut self) {
        self.send_departures();
        self.fixture.answer_all();
        if std::mem::take(&mut self.due) {
            self.attempts += 1;
            self.pool(queue::In::Take(AttemptId { epoch: Epoch(self.term), n: self.attempts }));
        }
        while let Some((id, _)) = self.fixture.due.first_key_value() {
            let (id, before) = (id.clone(), self.fixture.azure[&web()].clone());
            self.fixture.write(&id);
            self.puts += usize::from(before != self.fixture.azure[&web()]);
        }
        self.send_departures();
    }

    /// Sends the draining addresses if they have changed.
    fn send_departures(&mut self) {
        let leaving = Some(Arc::clone(&self.fixture.leaving));
        if self.leaving != leaving {
            self.leaving = leaving;
            self.deliver(directory::In::DrainingAddresses(Arc::clone(&self.fixture.leaving)));
        }
    }

    fn observe_all(&mut self) {
        self.fixture.observe_all();
        let facts = LbFacts {
            lb: web().lb,
            etag: None,
            guid: None,
            provisioning: Provisioning::Succeeded,
            pools: vec![Arc::new(self.facts())],
            rules: Vec::new(),
        };
        let (lb, began, facts) = (web().lb, self.fixture.now, Some(Arc::new(facts)));
        self.deliver(directory::In::Lb(LbObservation { lb, began, facts, puts: Default::default() }));
    }

    /// Advances the clock by this many seconds, with all due work.
    fn pass(&mut self, seconds: u16) {
        for _ in 0..seconds {
            self.fixture.pass(1_000);
            let now = self.fixture.now;
            if self.directory.deadline().is_some_and(|at| at <= now) {
                let mut out = Vec::new();
                self.directory.tick(now, &mut out);
                self.on_directory_output(out);
            }
            if self.queue.deadline().is_some_and(|at| at <= now) {
                let mut out = Vec::new();
                self.queue.tick(now, &mut out);
                self.on_queue_output(out);
            }
            self.work();
        }
    }

    /// Advances by some minutes, with observations.
    fn rest(&mut self) {
        for _ in 0..5 {
            self.pass(60);
            self.observe_all();
        }
    }

    fn source(&mut self, endpoints: &[(u8, EndpointHealth)]) {
        self.says = Some(endpoints.iter().copied().collect());
        let addresses = endpoints.iter().map(|(n, statuses)| (ips(*n)[0], *statuses)).collect();
        let priorities = vec![Priority { addresses, weighted: false }];
        let assigned = Assigned::Usable(Arc::new(LoadAssignment { priorities, ..LoadAssignment::default() }));
        let note = Note::Node("replica-1".into());
        self.deliver(directory::In::Source(
            shop(),
            SourceFact { assigned, provenance: Provenance::Watch, note },
        ));
        self.work();
    }

    fn node(&mut self, n: u8, leaves: bool) {
        self.fixture.deliver(node(n, if leaves { &[SHUTDOWN] } else { &[] }));
        self.work();
    }

    /// Returns the nodes whose addresses are Down in the pool.
    fn down(&self) -> Vec<u8> {
        (1..=NODES).filter(|n| self.fixture.azure[&web()].get(&ips(*n)[0]) == Some(&State::Down)).collect()
    }

    /// Returns the number of members that are shown as set Down by another client.
    fn told(&self) -> usize {
        let assignment = self.assigned.as_ref().expect("it is assigned");
        let Source::Xds { diagnostics, .. } = &assignment.source else { panic!("it has a source") };
        let told = |note: &Diagnostic| {
            if let Diagnostic::ForeignDown(members) = note { Some(*members) } else { None }
        };
        diagnostics.iter().find_map(told).unwrap_or(0)
    }

    /// Asserts that observations cause no more writes.
    fn is_quiet(&mut self) {
        let before = (self.puts, self.attempts);
        self.rest();
        let after = (self.puts, self.attempts);
        assert_eq!(after, before, "a write without a change: {:?}", self.fixture.azure[&web()]);
        assert!(!self.due && self.fixture.due.is_empty());
    }
}

#[test]
fn n4_x2_a_down_of_the_source_stays_without_its_node() {
    let mut world = World::new();
    world.node(2, true);
    world.rest();
    world.source(&[(1, UP), (2, DRAINS), (3, UP)]);
    world.rest();
    let puts = world.puts;
    world.node(2, false);
    world.rest();
    assert_eq!((world.down(), world.puts), (vec![2], puts), "it drains");
    world.is_quiet();
    assert!(world.fixture.recorded().is_empty(), "from now on the source drains it");
    world.source(&[(1, UP), (2, UP), (3, UP)]);
    world.rest();
    assert_eq!((world.down(), world.told()), (vec![], 0));
    world.is_quiet();
}

#[test]
fn x2_n4_a_draining_node_stays_down_without_the_source() {
    let mut world = World::new();
    world.source(&[(1, UP), (2, DRAINS), (3, UP)]);
    world.rest();
    world.node(2, true);
    world.rest();
    assert!(world.fixture.server.text("down.uid-of-node-2").is_some_and(|text| !text.contains("foreign")));
    world.source(&[(1, UP), (2, UP), (3, UP)]);
    world.rest();
    assert_eq!((world.down(), world.told()), (vec![2], 0));
    world.is_quiet();
    world.restart();
    world.source(&[(1, UP), (2, UP), (3, UP)]);
    world.rest();
    assert_eq!((world.down(), world.told()), (vec![2], 0));
    world.node(2, false);
    world.rest();
    assert_eq!(world.down(), [0_u8; 0], "it is recorded as the controller's");
    world.is_quiet();
}

#[test]
fn n4_x2_an_exception_ends_when_the_source_drains_it() {
    let mut world = World::unknown();
    world.fixture.set_foreign(2, State::Down);
    world.observe_all();
    world.node(2, true);
    world.rest();
    let text = world.fixture.server.text("down.uid-of-node-2").expect("it is recorded");
    assert!(text.contains("foreign: lb/web"), "{text}");
    world.source(&[(1, UP), (2, DRAINS), (3, UP)]);
    world.rest();
    let text = world.fixture.server.text("down.uid-of-node-2").expect("it is recorded");
    assert!(!text.contains("foreign"), "{text}");
    world.source(&[(1, UP), (2, UP), (3, UP)]);
    world.node(2, false);
    world.rest();
    assert_eq!(world.down(), [0_u8; 0]);
    world.is_quiet();
}

#[test]
fn n4_x2_an_orphaned_down_ends_when_the_source_assigns_it() {
    let mut world = World::new();
    world.node(2, true);
    world.rest();
    assert_eq!(world.down(), [2]);
    world.fixture.delete(2);
    world.rest();
    assert_eq!((world.down(), world.told()), (vec![], 0));
    world.is_quiet();
    // The operator had set it before, so that it is foreign.
    let mut world = World::new();
    world.fixture.set_foreign(2, State::Down);
    world.observe_all();
    world.node(2, true);
    world.rest();
    world.fixture.delete(2);
    world.rest();
    assert_eq!((world.down(), world.told()), (vec![2], 1));
    world.is_quiet();
}

#[test]
fn n2_x2_in_an_excluded_pool_a_foreign_down_stays() {
    let mut world = World::excluding(Some(web()));
    world.source(&[(1, UP), (2, UP), (3, UP)]);
    world.rest();
    world.node(2, true);
    world.rest();
    assert_eq!(world.down(), [0_u8; 0]);
    // A Down after the controller's PUT could be the controller's.
    world.source(&[(1, UP), (2, UP)]);
    world.rest();
    world.fixture.set_foreign(2, State::Down);
    world.observe_all();
    world.fixture.delete(2);
    world.rest();
    assert_eq!(world.down(), [2]);
    assert_eq!(world.fixture.recorded().len(), 1, "it is Down in other pools");
    world.is_quiet();
}

#[test]
fn x3_n4_an_unrestorable_down_waits_for_no_source() {
    let mut world = World::unknown();
    world.fixture.set_foreign(2, State::Down);
    world.observe_all();
    world.node(2, true);
    world.rest();
    assert_eq!(world.fixture.recorded().len(), 1);
    world.node(2, false);
    world.rest();
    assert_eq!((world.down(), world.fixture.recorded().len()), (vec![2], 0));
    world.is_quiet();
}

#[test]
fn x3_n4_the_source_of_an_unread_load_balancer_is_not_known() {
    let mut directory = directory_of();
    let mut words = |input: Vec<directory::In>| -> Vec<bool> {
        let mut out = Vec::new();
        for input in input {
            directory.step(Now::ZERO, input, &mut out);
        }
        directory.tick(Now::ZERO, &mut out);
        let word = |output: &directory::Out| {
            if let directory::Out::SourceAdminStates(_, word) = output { Some(word.is_some()) } else { None }
        };
        out.iter().filter_map(word).collect()
    };
    let assigned = Assigned::Usable(Arc::default());
    let note = Note::Node("replica-1".into());
    let fact = SourceFact { assigned, provenance: Provenance::Watch, note };
    let synced = [directory::In::ListsSynced, directory::In::DiscoverySynced];
    let known = synced.into_iter().chain([directory::In::Source(shop(), fact)]);
    assert_eq!(words(known.collect()), [false; 0], "there may be a Down that it requires");
    let seen = LbObservation { lb: web().lb, began: Now::ZERO, facts: None, puts: Default::default() };
    assert_eq!(words(vec![directory::In::Lb(seen)]), [true], "there is none");
}

#[test]
fn x3_n4_a_down_is_not_restored_before_the_source_is_known() {
    for (says, down) in [(DRAINS, &[2_u8][..]), (UP, &[])] {
        let mut world = World::new();
        world.source(&[(1, UP), (2, DRAINS), (3, UP)]);
        world.node(2, true);
        world.rest();
        let puts = world.puts;
        world.restart();
        world.node(2, false);
        world.rest();
        assert_eq!((world.down(), world.puts), (vec![2], puts), "the source may require it");
        assert_eq!(world.fixture.recorded().len(), 1, "the source does not require it");
        world.source(&[(1, UP), (2, says), (3, UP)]);
        world.rest();
        assert_eq!((world.down(), world.told()), (down.to_vec(), 0));
        assert!(world.fixture.recorded().is_empty());
        world.is_quiet();
    }
}

#[test]
fn n4_disabling_restores_downs_before_the_source_is_known() {
    let mut world = World::unknown();
    world.node(2, true);
    world.rest();
    assert_eq!(world.down(), [2]);
    world.fixture.restart(Role::Off);
    (world.directory, world.queue) = (directory_of(), queue_of());
    world.begin();
    world.rest();
    assert_eq!(world.down(), [0_u8; 0]);
}

#[test]
fn n4_a_down_that_is_not_required_is_reported_and_left() {
    let mut world = World::new();
    world.fixture.set_foreign(1, State::Down);
    world.observe_all();
    let told = |world: &World| {
        let of = |report: &&Report| matches!(&report.what, EventKind::AdminForeign { .. });
        world.fixture.reports.iter().filter(of).count()
    };
    assert_eq!((world.told(), told(&world)), (1, 1));
    world.is_quiet();
    assert_eq!(world.down(), [1]);
    // An endpoint that returned to service while no process ran is treated in the same way.
    world.source(&[(1, UP), (2, DRAINS), (3, UP)]);
    world.rest();
    assert_eq!((world.down(), world.told()), (vec![1, 2], 1));
    world.restart();
    assert_eq!(told(&world), 1, "nothing is reported while the source is not known");
    world.source(&[(1, UP), (2, UP), (3, UP)]);
    world.rest();
    assert_eq!((world.down(), world.told(), told(&world)), (vec![1, 2], 2, 3));
    world.is_quiet();
}

/// An event.
#[derive(Clone, Copy, Debug)]
enum Event {
    Node(u8, bool),
    Says([u8; 3]),
    /// The operator sets an entry Down, or restores it.
    Hand(u8, bool),
    Restart,
    Look,
    Pass(u16),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (1..=NODES, any::<bool>()).prop_map(|(n, leaves)| Event::Node(n, leaves)),
        6 => prop::array::uniform3(0_u8..3).prop_map(Event::Says),
        2 => (1..=NODES, any::<bool>()).prop_map(|(n, down)| Event::Hand(n, down)),
        1 => Just(Event::Restart),
        4 => Just(Event::Look),
        5 => (0_u16..90).prop_map(Event::Pass),
    ]
}

/// An independent model of the Downs.
struct Outsider {
    world: World,
    leaves: BTreeSet<u8>,
    /// Downs that the operator has set while nothing else required them.
    by_hand: BTreeSet<u8>,
    /// Downs of unknown origin: there was no record when the process ended.
    unknown: BTreeSet<u8>,
}

impl Outsider {
    fn happen(&mut self, event: Event) {
        let world = &mut self.world;
        match event {
            // More than two would exceed the limit (N5).
            Event::Node(n, true) if self.leaves.len() == 2 && !self.leaves.contains(&n) => {}
            Event::Node(n, leaves) => {
                if leaves {
                    self.leaves.insert(n)
                } else {
                    self.leaves.remove(&n)
                };
                world.node(n, leaves);
            }
            Event::Says(states) => {
                let of = |(n, state): (u8, u8)| match state {
                    0 => None,
                    1 => Some((n, DRAINS)),
                    _ => Some((n, UP)),
                };
                let says: Vec<(u8, EndpointHealth)> = (1..=NODES).zip(states).filter_map(of).collect();
                world.source(&says);
                for (n, _) in says.iter().filter(|(_, statuses)| *statuses == DRAINS) {
                    self.by_hand.remove(n);
                    self.unknown.remove(n);
                }
            }
            Event::Hand(n, down) => {
                // All updates have ended and were observed.
                world.rest();
                world.rest();
                let recorded = !world.fixture.recorded().is_empty();
                let known = world.says.as_ref().is_some_and(|says| says.get(&n) == Some(&UP));
                let is_there = world.fixture.azure[&web()].contains_key(&ips(n)[0]);
                if !is_there || !known || recorded {
                    return;
                }
                if down && !world.down().contains(&n) {
                    world.fixture.set_foreign(n, State::Down);
                    self.by_hand.insert(n);
                } else if !down {
                    world.fixture.set_foreign(n, State::None);
                    self.by_hand.remove(&n);
                    self.unknown.remove(&n);
                }
                world.observe_all();
            }
            Event::Restart => {
                let recorded = |n: &u8| world.fixture.recorded().contains(&format!("node-{n}").as_str());
                self.unknown.extend(world.down().into_iter().filter(|n| !recorded(n)));
                world.restart();
            }
            Event::Look => world.observe_all(),
            Event::Pass(seconds) => world.pass(seconds),
        }
        let there = &self.world.fixture.azure[&web()];
        let is_there = |n: &u8| there.contains_key(&ips(*n)[0]);
        self.by_hand.retain(is_there);
        self.unknown.retain(is_there);
        let down = self.world.down();
        assert!(self.by_hand.iter().all(|n| down.contains(n)), "the operator's Down is restored");
    }

    /// Checks liveness: without further events, everything becomes in sync, and writes end.
    fn run_to_idle(&mut self) {
        if self.world.says.is_none() {
            self.happen(Event::Says([2, 2, 2]));
        }
        self.world.rest();
        self.world.rest();
        self.world.is_quiet();
        let says = self.world.says.clone().expect("it is known");
        let down = self.world.down();
        let mut foreign = 0;
        for n in (1..=NODES).filter(|n| self.world.fixture.azure[&web()].contains_key(&ips(*n)[0])) {
            let (leaves, is_down) = (self.leaves.contains(&n), down.contains(&n));
            let drains = says.get(&n) == Some(&DRAINS);
            let theirs = self.by_hand.contains(&n) || self.unknown.contains(&n);
            assert!(is_down || !(leaves || drains || self.by_hand.contains(&n)), "{n} is not Down");
            assert!(!is_down || leaves || drains || theirs, "{n} is Down without a reason");
            foreign += usize::from(is_down && !leaves && !drains);
        }
        assert_eq!(self.world.told(), foreign, "a Down that no source requires is reported");
    }
}

proptest! {
    #[test]
    fn x2_n4_an_entry_is_down_only_for_a_reason_and_writes_end(
        events in prop::collection::vec(event(), 0..24),
    ) {
        let (leaves, by_hand, unknown) = Default::default();
        let mut outsider = Outsider { world: World::new(), leaves, by_hand, unknown };
        for event in events {
            outsider.happen(event);
        }
        outsider.run_to_idle();
    }
}
