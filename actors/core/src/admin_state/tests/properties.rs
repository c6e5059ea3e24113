//! Whatever happens: no Down without a signal, no foreign Down taken back, and in the end every entry is right.

use proptest::prelude::*;

use super::*;

/// What happens.
#[derive(Clone, Debug)]
enum Event {
    /// A node has these taints now.
    Taints(u8, u8),
    /// A node becomes Ready, or ceases to be.
    Ready(u8, bool),
    /// A node's object goes, or comes back as another one.
    Replaced(u8),
    Deleted(u8),
    /// The writer writes the pool of this place among those that are due, or fails at it.
    Writes(usize),
    Fails(usize, u16),
    /// The writer begins: what is withdrawn from now on is carried out all the same, and ends later.
    Begins(usize),
    Ends,
    /// Somebody sets an entry.
    Foreign(usize, u8, bool),
    Look(usize),
    Pass(u16),
    Standby,
    Leads,
    Paused(bool),
}

const NODES: u8 = 6;

fn event() -> impl Strategy<Value = Event> {
    let n = 1..=NODES;
    prop_oneof![
        6 => (n.clone(), 0_u8..4).prop_map(|(n, taints)| Event::Taints(n, taints)),
        1 => (n.clone(), any::<bool>()).prop_map(|(n, ready)| Event::Ready(n, ready)),
        1 => n.clone().prop_map(Event::Replaced),
        1 => n.clone().prop_map(Event::Deleted),
        8 => (0_usize..4).prop_map(Event::Writes),
        2 => (0_usize..4, prop_oneof![Just(404_u16), Just(500)]).prop_map(|(at, code)| Event::Fails(at, code)),
        3 => (0_usize..4).prop_map(Event::Begins),
        3 => Just(Event::Ends),
        1 => (0_usize..4, n, any::<bool>()).prop_map(|(at, n, down)| Event::Foreign(at, n, down)),
        4 => (0_usize..2).prop_map(Event::Look),
        4 => (0_u16..2_000).prop_map(Event::Pass),
        1 => Just(Event::Standby),
        2 => Just(Event::Leads),
        1 => any::<bool>().prop_map(Event::Paused),
    ]
}

struct World {
    bench: Bench,
    /// What the cluster says of each node; `None`: it is gone.
    nodes: BTreeMap<u8, Option<NodeFact>>,
    replaced: u32,
    term: u64,
    /// The write that has begun, with the set that it carries out, and a withdrawal that came since.
    begun: Option<(PoolId, Arc<Draining>)>,
}

impl World {
    fn new() -> World {
        let bench = Bench::new(NODES);
        let nodes = (1..=NODES).map(|n| (n, Some(node(n, &[])))).collect();
        World { bench, nodes, replaced: 0, term: 1, begun: None }
    }

    fn change(&mut self, n: u8, change: impl FnOnce(&mut NodeFact)) {
        let Some(Some(fact)) = self.nodes.get_mut(&n) else { return };
        change(fact);
        self.bench.tell(fact.clone());
    }

    fn nth_due(&self, at: usize) -> Option<PoolId> {
        let due = &self.bench.due;
        due.keys().nth(at % due.len().max(1)).cloned()
    }

    /// In a term of its own everything that is due is carried out, retries and looks too.
    fn comes_to_rest(&mut self) {
        self.term += 1;
        self.bench.lead(self.term);
        self.bench.pass(60_000);
        self.bench.look();
        self.bench.settle();
    }

    /// The write that has begun is carried out by the set that it began with.
    fn end(&mut self) {
        let Some((id, set)) = self.begun.take() else { return };
        for (ip, state) in self.bench.azure.entry(id.clone()).or_default() {
            *state = set.wants_of(&id, &(*ip).into(), *state).unwrap_or(*state);
        }
        self.bench.pass(1);
        self.bench.finished(&id, set.generation, None);
        // Whatever was withdrawn meanwhile has ended with it.
        let generation = self.bench.set.generation;
        self.bench.hear(In::Withdrawn(id, generation));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Taints(n, bits) => {
                let keys = [SHUTDOWN, OUT_OF_SERVICE];
                let chosen = keys.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
                let taints = chosen.map(|(_, key)| taint(key)).collect();
                self.change(n, |fact| fact.taints = taints);
            }
            Event::Ready(n, ready) => self.change(n, |fact| fact.ready = ready),
            Event::Replaced(n) => {
                self.replaced += 1;
                let other = uid(&format!("node-{n}-{}", self.replaced));
                let fact = NodeFact { uid: other, ..node(n, &[]) };
                self.nodes.insert(n, Some(fact.clone()));
                self.bench.tell(fact);
            }
            Event::Deleted(n) => {
                self.nodes.insert(n, None);
                self.bench.delete(n);
            }
            Event::Writes(at) => {
                if let Some(id) = self.nth_due(at).filter(|_| self.begun.is_none()) {
                    self.bench.write(&id);
                }
            }
            Event::Fails(at, code) => {
                if let Some(id) = self.nth_due(at) {
                    self.bench.fail(&id, code);
                }
            }
            Event::Begins(at) => {
                if let Some(id) = self.nth_due(at).filter(|_| self.begun.is_none()) {
                    self.bench.due.remove(&id);
                    self.begun = Some((id, Arc::clone(&self.bench.set)));
                }
            }
            Event::Ends => self.end(),
            Event::Foreign(at, n, down) => {
                let entries = self.bench.azure.values_mut().nth(at).expect("four pools");
                let state = if down { State::Down } else { State::None };
                let mut ours = entries.iter_mut().filter(|(ip, _)| ips(n).contains(ip));
                ours.by_ref().for_each(|(_, of)| *of = state);
            }
            Event::Look(at) => {
                self.bench.pass(1);
                self.bench.look_at(LBS[at], self.bench.now);
            }
            Event::Pass(millis) => self.bench.pass(millis.into()),
            Event::Standby => {
                // What is under way ends before another term begins.
                self.end();
                self.bench.due.clear();
                self.bench.hear(In::Standing(Standing::Standby));
            }
            Event::Leads => {
                self.end();
                self.bench.due.clear();
                self.term += 1;
                self.bench.lead(self.term);
            }
            Event::Paused(is) => {
                let everything = is.then(Pause::default);
                self.bench.wish(self.term, Wishes { everything, ..Wishes::default() });
            }
        }
        self.no_down_without_a_signal();
    }

    fn no_down_without_a_signal(&self) {
        if !self.bench.machine.acts() {
            return;
        }
        for uid in self.bench.set.addresses.values() {
            let signalled = |fact: &NodeFact| fact.uid == *uid && !fact.taints.is_empty();
            assert!(self.nodes.values().flatten().any(signalled), "{uid} has no signal");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn n1_n2_n4_whatever_happens_every_entry_is_right_in_the_end(
        events in prop::collection::vec(event(), 0..80),
    ) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
        }
        world.end();
        world.bench.due.clear();
        // In the end all nodes are Ready, few of them drain, and the writer does its work.
        for n in 1..=NODES {
            if let Some(Some(mut fact)) = world.nodes.get(&n).cloned() {
                fact.ready = true;
                if n > 2 {
                    fact.taints.clear();
                }
                world.nodes.insert(n, Some(fact.clone()));
                world.bench.tell(fact);
            }
        }
        world.comes_to_rest();
        let bench = &world.bench;
        for (n, fact) in &world.nodes {
            let drains = fact.as_ref().is_some_and(|fact| !fact.taints.is_empty());
            for (id, entries) in &bench.azure {
                for (ip, state) in entries.iter().filter(|(ip, _)| ips(*n).contains(ip)) {
                    prop_assert!(!drains || *state == State::Down, "{ip} of node {n} in {id} is {state:?}");
                }
            }
        }
        // What is Down of a node that is there and does not drain is nothing of ours.
        prop_assert!(bench.is_idle(), "{:?}", bench.machine.queue);
        let restores = bench.machine.nodes.restores().keys().collect::<Vec<_>>();
        prop_assert!(bench.due.is_empty() && world.begun.is_none(), "{restores:?}");
    }

    #[test]
    fn n4_without_foreign_writes_nothing_stays_down_of_nodes_that_do_not_drain(
        events in prop::collection::vec(event(), 0..80),
    ) {
        let mut world = World::new();
        for event in events.into_iter().filter(|event| !matches!(event, Event::Foreign(..))) {
            world.happen(event);
        }
        world.end();
        world.bench.due.clear();
        for n in 1..=NODES {
            let fact = NodeFact { uid: uid(&format!("node-{n}-last")), ..node(n, &[]) };
            let fact = world.nodes.get(&n).cloned().flatten().map_or(fact, |known| NodeFact { taints: Vec::new(), ..known });
            world.bench.tell(fact);
        }
        world.comes_to_rest();
        prop_assert_eq!(world.bench.downs(), BTreeMap::new());
        prop_assert!(world.bench.is_idle() && world.bench.set.restorable.is_empty());
    }
}
