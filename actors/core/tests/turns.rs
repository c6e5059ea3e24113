//! Duration of one turn of the Informer, the Directory and the AdminState machine at the required size: 10,000
//! Services, 100,000 endpoints, 1,000 nodes, 50 load balancers.
//!
//! All machines but the Leader share one thread, so the longest turn is the longest delay that one of them can cause
//! for the others. A turn is the shell's work for one message: a batch of inputs, the ticks that are due, and sorting
//! the outputs into outboxes. The tests assert counts: a turn does the required work and no more. Times are printed
//! (`benches/turns.sh`).

#[path = "turns/admin_state.rs"]
mod admin_state;
#[path = "turns/world.rs"]
mod world;

use model::services::ServiceFact;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use model::ids::Epoch;
use model::level::Provenance;
use model::machine::{Machine, Now};
use model::object::{Kind, Object, ResourceVersion};
use model::watch::{ListCoverage, WatchUpdate};
use pool_core::outbox::Outbox;
use pool_core::route::{Address, Delivery, Output, route};
use pools::directory::{self, Directory};
use sources::informer::{self, Informer};
use sources::watch::WatchFreshness;
use world::{BALANCERS, SERVICES};

/// Most deliveries of one message, and most ticks of one turn, as in the shell.
const BATCH: usize = 512;
const TICKS: usize = 32;

/// A machine with the outboxes of its shell.
struct Fixture<M: Machine> {
    machine: M,
    wrap: fn(M::Out) -> Output,
    now: Now,
    outboxes: BTreeMap<Address, Outbox>,
    /// Duration and description of each turn.
    turns: Vec<(Duration, String)>,
}

impl<M: Machine> Fixture<M> {
    fn new(machine: M, wrap: fn(M::Out) -> Output) -> Fixture<M> {
        let now = Now::from_millis(1_000);
        Fixture { machine, wrap, now, outboxes: BTreeMap::new(), turns: Vec::new() }
    }

    /// Runs one turn; returns the number of outputs by address.
    fn turn(&mut self, what: &str, inputs: impl IntoIterator<Item = M::In>) -> BTreeMap<Address, usize> {
        let inputs: Vec<M::In> = inputs.into_iter().collect();
        let began = thread_cpu_time();
        let mut out = Vec::new();
        for input in inputs {
            self.machine.step(self.now, input, &mut out);
        }
        for _ in 0..TICKS {
            if self.machine.deadline().is_none_or(|at| at > self.now) {
                break;
            }
            self.machine.tick(self.now, &mut out);
        }
        let mut deliveries = BTreeMap::new();
        for one in out {
            route((self.wrap)(one), &mut |delivery| {
                // This delivery follows each turn with slices, whichever they are.
                let counts = !matches!(delivery, Delivery::Directory(directory::In::ReadUpTo(_)));
                *deliveries.entry(all_pools_as_one(delivery.address())).or_default() += usize::from(counts);
                self.outboxes.entry(delivery.address()).or_default().push(delivery);
            });
        }
        self.turns.push((thread_cpu_time().saturating_sub(began), what.to_owned()));
        deliveries
    }

    /// Runs turns with as many inputs as one message carries; returns the number of all outputs.
    fn turns(&mut self, what: &str, inputs: Vec<M::In>) -> BTreeMap<Address, usize> {
        let mut all = BTreeMap::new();
        let mut inputs = inputs.into_iter().peekable();
        while inputs.peek().is_some() {
            let batch: Vec<M::In> = inputs.by_ref().take(BATCH).collect();
            for (address, count) in self.turn(what, batch) {
                *all.entry(address).or_default() += count;
            }
        }
        all
    }

    /// Takes all deliveries that wait for this address.
    fn take_deliveries(&mut self, from: &Address) -> Vec<Delivery> {
        self.outboxes.get_mut(from).map(|outbox| outbox.take(usize::MAX)).unwrap_or_default()
    }

    /// Drops all waiting deliveries, as if their receivers had taken them.
    fn clear_outboxes(&mut self) {
        self.outboxes.clear();
    }

    /// Returns the longest turns, longest first.
    fn longest(&mut self) -> String {
        self.turns.sort_by(|one, other| other.cmp(one));
        let text = self.turns.iter().take(10).map(|(took, what)| format!("{} ms: {what}", took.as_millis()));
        text.collect::<Vec<_>>().join("\n")
    }

    fn advance(&mut self, millis: u64) {
        self.now = self.now.plus(Duration::from_millis(millis));
    }
}

/// Returns the processor time of this thread, with a resolution of some milliseconds. Other processes do not count.
/// Zero if the system does not provide it.
fn thread_cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = text.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}

/// Maps the addresses of all pools to one, so that they count together.
fn all_pools_as_one(address: Address) -> Address {
    match address {
        Address::Pool(_) => Address::Pool(world::pool_id(0)),
        Address::Watcher(_)
        | Address::Informer
        | Address::Discovery
        | Address::Directory
        | Address::Writer
        | Address::Leader
        | Address::AdminState
        | Address::Pauses
        | Address::Events
        | Address::Snapshot
        | Address::XdsSource
        | Address::XdsPort
        | Address::ArmPort
        | Address::KubernetesPort
        | Address::Metrics
        | Address::Host => address,
    }
}

fn count(deliveries: &BTreeMap<Address, usize>, to: &Address) -> usize {
    deliveries.get(to).copied().unwrap_or_default()
}

fn list(kind: Kind, provenance: Provenance, objects: Vec<Object>, version: u64) -> Vec<informer::In> {
    let done = WatchUpdate::ListDone {
        resource_version: ResourceVersion(version.to_string().into()),
        serves: ListCoverage::default(),
    };
    let middle = objects.into_iter().map(WatchUpdate::Object);
    let all = std::iter::once(WatchUpdate::ListBegan(provenance)).chain(middle).chain([done]);
    all.map(|seen| informer::In::Seen(kind, Now::ZERO, seen)).collect()
}

fn events(kind: Kind, objects: impl IntoIterator<Item = Object>) -> Vec<informer::In> {
    objects
        .into_iter()
        .map(|object| informer::In::Seen(kind, Now::ZERO, WatchUpdate::Object(object)))
        .collect()
}

/// Returns an Informer that has read all objects, and its outputs to the Directory.
fn synced_informer() -> (Fixture<Informer>, Vec<directory::In>) {
    let mut fixture = Fixture::new(Informer::new(world::informer_params()), Output::Informer);
    let first = Provenance::FirstList;
    fixture.turns("Informer, first list of Nodes", list(Kind::Nodes, first, world::nodes(1, true), 1));
    fixture.turns("Informer, first list of Services", list(Kind::Services, first, world::services(), 1));
    let slices = list(Kind::EndpointSlices, first, world::slices(1, 0), 1);
    fixture.turns("Informer, first list of EndpointSlices", slices);
    let deliveries = fixture.take_deliveries(&Address::Directory).into_iter();
    let facts: Vec<directory::In> = deliveries.filter_map(Delivery::for_directory).collect();
    let of_services = facts.iter().filter(|fact| matches!(fact, directory::In::Service(..))).count();
    assert_eq!(of_services, SERVICES, "each Service once");
    assert!(facts.iter().any(|fact| matches!(fact, directory::In::ListsSynced)), "all is known");
    fixture.clear_outboxes();
    (fixture, facts)
}

#[test]
fn a2_a_turn_of_the_informer_computes_each_service_once() {
    let (mut fixture, _) = synced_informer();
    let to = Address::Directory;
    let turn = fixture.turns(
        "Informer, most recent list of EndpointSlices without news",
        list(Kind::EndpointSlices, Provenance::Relist, world::slices(1, 0), 2),
    );
    assert_eq!(count(&turn, &to), 0);
    let turn = fixture.turns(
        "Informer, most recent list of EndpointSlices, all of them changed",
        list(Kind::EndpointSlices, Provenance::Relist, world::slices(3, 1), 3),
    );
    assert_eq!(count(&turn, &to), SERVICES);
    fixture.clear_outboxes();
    let changed = world::slices(4, 2).into_iter().take(BATCH);
    let turn = fixture.turn("Informer, a batch of EndpointSlices", events(Kind::EndpointSlices, changed));
    assert_eq!(count(&turn, &to), BATCH);
    let one = world::slices(5, 3).into_iter().next();
    let turn = fixture.turn("Informer, one EndpointSlice", events(Kind::EndpointSlices, one));
    assert_eq!(count(&turn, &to), 1);
    let unready = world::nodes(6, false).into_iter().take(BATCH);
    let turn = fixture.turn("Informer, a batch of Nodes", events(Kind::Nodes, unready));
    assert!((SERVICES / 2..=SERVICES).contains(&count(&turn, &to)), "{turn:?}");
    fixture.clear_outboxes();
    let turn = fixture.turn(
        "Informer, all slices in doubt",
        [informer::In::Freshness(Kind::EndpointSlices, WatchFreshness::Stale)],
    );
    assert!(count(&turn, &to) <= SERVICES);
    fixture.turn(
        "Informer, fresh again",
        [informer::In::Freshness(Kind::EndpointSlices, WatchFreshness::Current)],
    );
    fixture.turn("Informer, a term's reports", [informer::In::Reporting(Some(Epoch(1)))]);
    println!("The longest turns, in processor time:\n{}", fixture.longest());
}

#[test]
fn a2_the_directory_computes_each_pool_once_per_turn() {
    let (_, facts) = synced_informer();
    let mut fixture = Fixture::new(Directory::new(world::directory_params()), Output::Directory);
    let pools = all_pools_as_one(Address::Pool(world::pool_id(0)));
    fixture.turns("Directory, the facts of the first lists", facts.clone());
    fixture.turns("Directory, the first discovery", world::observations(fixture.now, 0));
    let deliveries = fixture.turn("Directory, all is known", [directory::In::DiscoverySynced]);
    assert_eq!(count(&deliveries, &pools), 2 * SERVICES, "each pool is assigned and told what was seen");
    fixture.clear_outboxes();
    fixture.turn("Directory, a term's reports", [directory::In::Reporting(Some(Epoch(1)))]);
    let (term, policy) = (Some(Epoch(1)), Arc::default());
    fixture.turn("Directory, the operator's policy", [directory::In::OperatorPolicy { term, policy }]);
    fixture.clear_outboxes();
    let deliveries = fixture.turn("Directory, a new term", [directory::In::Confirmed(Epoch(1))]);
    assert_eq!(count(&deliveries, &pools), SERVICES);
    fixture.clear_outboxes();
    fixture.advance(1_000);
    let all = world::observations(fixture.now, 0);
    let deliveries = fixture.turn("Directory, all load balancers at once", all);
    assert_eq!(count(&deliveries, &pools), SERVICES);
    fixture.clear_outboxes();
    let one = world::observations(fixture.now, 0).into_iter().next();
    let deliveries = fixture.turn("Directory, one load balancer", one);
    assert_eq!(count(&deliveries, &pools), SERVICES / BALANCERS);
    let changed = facts.into_iter().filter_map(without_one_member).collect();
    let deliveries = fixture.turns("Directory, a batch of Services", changed);
    assert_eq!(count(&deliveries, &pools), SERVICES);
    fixture.clear_outboxes();
    fixture.advance(1_000);
    let first = world::observations(fixture.now, 1);
    fixture.turns("Directory, an unknown member in each pool", first);
    fixture.clear_outboxes();
    fixture.advance(120_000);
    let deliveries = fixture.turn("Directory, the removal delay of every pool ends", []);
    assert_eq!(count(&deliveries, &pools), SERVICES);
    println!("The longest turns, in processor time:\n{}", fixture.longest());
}

/// Returns the fact about a Service without its first member.
fn without_one_member(fact: directory::In) -> Option<directory::In> {
    let directory::In::Service(uid, Some(fact)) = fact else { return None };
    let mut fact = ServiceFact::clone(&fact);
    for (_, part) in fact.parts.iter_mut() {
        part.required.pop_first();
    }
    fact.revision += 1;
    Some(directory::In::Service(uid, Some(fact.into())))
}
