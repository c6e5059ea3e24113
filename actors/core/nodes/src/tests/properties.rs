//! Property tests, also with late or lost answers about our ConfigMap and with restarts. There is no Down without a
//! signal, or before its record, and no foreign Down is restored. In the end, every entry is in sync, and only Down
//! nodes have records.

use proptest::prelude::*;

use super::*;
use model::object::RequestFailure;

/// An event.
#[derive(Clone, Debug)]
enum Event {
    Node(u8, NodeEvent),
    Write(WriteEvent),
    Server(ServerEvent),
    Term(TermEvent),
    /// Another client sets an entry.
    Foreign(usize, u8, bool),
    Look(usize),
    Pass(u16),
}

#[derive(Clone, Debug)]
enum NodeEvent {
    /// The taints of the node change to these.
    Taints(u8),
    /// The node becomes Ready, or NotReady.
    Ready(bool),
    /// The node is deleted, or created again.
    Replaced,
    Deleted,
    /// The operator releases the node.
    Released,
}

#[derive(Clone, Debug)]
enum WriteEvent {
    /// The writer writes the due pool at this index, or the write fails.
    Done(usize),
    Fails(usize, u16),
    /// The write begins. It is applied even if it is withdrawn from now on, and ends later.
    Begins(usize),
    Ends,
}

/// Behaviour of our ConfigMap.
#[derive(Clone, Debug)]
enum ServerEvent {
    /// It answers the oldest request.
    Answers,
    /// It fails the oldest request. A write may take effect nevertheless.
    Fails {
        carried_out: bool,
        denied: bool,
    },
    OtherClientWrites,
}

#[derive(Clone, Debug)]
enum TermEvent {
    Standby,
    Leads,
    Paused(bool),
    Off(bool),
    /// The process ends, and its request in flight takes effect or not. Another process takes over.
    Restarts {
        carried_out: bool,
    },
}

const NODES: u8 = 6;

fn event() -> impl Strategy<Value = Event> {
    let node = prop_oneof![
        6 => (0_u8..4).prop_map(NodeEvent::Taints),
        1 => any::<bool>().prop_map(NodeEvent::Ready),
        1 => Just(NodeEvent::Replaced),
        1 => Just(NodeEvent::Deleted),
        1 => Just(NodeEvent::Released),
    ];
    let write = prop_oneof![
        8 => (0_usize..4).prop_map(WriteEvent::Done),
        2 => (0_usize..4, prop_oneof![Just(404_u16), Just(500)])
            .prop_map(|(at, code)| WriteEvent::Fails(at, code)),
        3 => (0_usize..4).prop_map(WriteEvent::Begins),
        3 => Just(WriteEvent::Ends),
    ];
    let server = prop_oneof![
        12 => Just(ServerEvent::Answers),
        1 => any::<(bool, bool)>()
            .prop_map(|(carried_out, denied)| ServerEvent::Fails { carried_out, denied }),
        1 => Just(ServerEvent::OtherClientWrites),
    ];
    let term = prop_oneof![
        1 => Just(TermEvent::Standby),
        2 => Just(TermEvent::Leads),
        1 => any::<bool>().prop_map(TermEvent::Paused),
        1 => any::<bool>().prop_map(TermEvent::Off),
        1 => any::<bool>().prop_map(|carried_out| TermEvent::Restarts { carried_out }),
    ];
    prop_oneof![
        10 => (1..=NODES, node).prop_map(|(n, event)| Event::Node(n, event)),
        16 => write.prop_map(Event::Write),
        14 => server.prop_map(Event::Server),
        6 => term.prop_map(Event::Term),
        1 => (0_usize..4, 1..=NODES, any::<bool>()).prop_map(|(at, n, down)| Event::Foreign(at, n, down)),
        4 => (0_usize..2).prop_map(Event::Look),
        4 => (0_u16..2_000).prop_map(Event::Pass),
    ]
}

struct World {
    fixture: Fixture,
    /// The nodes of the cluster. `None`: deleted.
    nodes: BTreeMap<u8, Option<NodeFact>>,
    replaced: u32,
    term: u64,
    /// The current write, its set, and a later withdrawal.
    begun: Option<(PoolId, Arc<Draining>)>,
    /// Entries that another client has set Down, observed while no record had their address.
    foreign: BTreeSet<(PoolId, IpAddr)>,
}

impl World {
    fn new() -> World {
        let mut fixture = Fixture::new(NODES);
        fixture.answers = false;
        let nodes = (1..=NODES).map(|n| (n, Some(node(n, &[])))).collect();
        World { fixture, nodes, replaced: 0, term: 1, begun: None, foreign: BTreeSet::new() }
    }

    fn change(&mut self, n: u8, change: impl FnOnce(&mut NodeFact)) {
        let Some(Some(fact)) = self.nodes.get_mut(&n) else { return };
        change(fact);
        self.fixture.deliver(fact.clone());
    }

    fn nth_due(&self, at: usize) -> Option<PoolId> {
        let due = &self.fixture.due;
        due.keys().nth(at % due.len().max(1)).cloned()
    }

    /// Begins a term and runs everything that is due, including retries and reads.
    fn run_to_idle(&mut self) {
        self.fixture.answers = true;
        self.lead();
        self.fixture.pass(60_000);
        self.fixture.observe_all();
        self.fixture.run_until_stable();
    }

    /// Starts a term, in this process or another one, in which the records count. A record in flight at the end of
    /// the last term may lack later observations.
    fn lead(&mut self) {
        self.term += 1;
        self.fixture.step(In::Leadership(Leadership::Standby));
        self.fixture.answer_all();
        let recorded = |ip: &IpAddr, pool: &PoolId| {
            let texts = self.fixture.server.data.iter().flatten().map(|(_, text)| &text.text);
            let mut of_it = texts.filter(|text| text.contains(&ip.to_string()));
            of_it.any(|text| !text.contains(&pool.to_string()))
        };
        let lost: Vec<_> = self.foreign.iter().filter(|(pool, ip)| recorded(ip, pool)).cloned().collect();
        for known in lost {
            self.foreign.remove(&known);
        }
        self.fixture.lead(self.term);
    }

    /// Sets an entry as another client, and observes it.
    fn set(&mut self, at: usize, n: u8, down: bool) {
        let (id, entries) = self.fixture.azure.iter_mut().nth(at).expect("four pools");
        let id = id.clone();
        let state = if down { State::Down } else { State::None };
        let mut set: Vec<(IpAddr, State)> = Vec::new();
        for (ip, of) in entries.iter_mut().filter(|(ip, _)| ips(n).contains(ip)) {
            set.push((*ip, std::mem::replace(of, state)));
        }
        self.fixture.observe_at(id.lb.as_str(), self.fixture.now);
        for (ip, before) in set {
            let texts = self.fixture.server.data.iter().flatten().map(|(_, text)| &text.text);
            let is_recorded = texts.into_iter().any(|text| text.contains(&ip.to_string()));
            if !down {
                self.foreign.remove(&(id.clone(), ip));
            } else if before != State::Down && !is_recorded {
                self.foreign.insert((id.clone(), ip));
            }
        }
    }

    /// Checks that no write has restored a Down of another client.
    fn check_foreign_downs(&self) {
        for (pool, ip) in &self.foreign {
            let state = self.fixture.azure[pool].get(ip);
            assert!(state.is_none_or(|state| *state == State::Down), "{ip} in {pool} is {state:?}");
        }
    }

    /// Ends the current write with the set that it began with.
    fn end(&mut self) {
        let Some((id, set)) = self.begun.take() else { return };
        self.fixture.in_flight = None;
        self.fixture.oldest = None;
        self.fixture.carry_out(&id, &set);
        self.fixture.pass(1);
        self.fixture.finished(&id, set.generation, None);
        self.fixture.withdrawn(&id);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Node(n, event) => self.node(n, event),
            Event::Write(event) => self.writer(event),
            Event::Server(event) => self.server(event),
            Event::Term(event) => self.term(event),
            Event::Foreign(at, n, down) => {
                self.fixture.pass(1);
                self.set(at, n, down);
            }
            Event::Look(at) => {
                self.fixture.pass(1);
                self.fixture.observe_at(LBS[at], self.fixture.now);
            }
            Event::Pass(millis) => self.fixture.pass(millis.into()),
        }
        self.no_down_without_a_signal();
        self.check_foreign_downs();
    }

    fn node(&mut self, n: u8, event: NodeEvent) {
        match event {
            NodeEvent::Taints(bits) => {
                let keys = [SHUTDOWN, OUT_OF_SERVICE];
                let chosen = keys.iter().enumerate().filter(|(at, _)| bits & (1 << at) != 0);
                let taints = chosen.map(|(_, key)| taint(key)).collect();
                self.change(n, |fact| fact.taints = taints);
            }
            NodeEvent::Ready(ready) => self.change(n, |fact| fact.ready = ready),
            NodeEvent::Replaced => {
                self.replaced += 1;
                let other = uid(&format!("node-{n}-{}", self.replaced));
                let fact = NodeFact { uid: other, ..node(n, &[]) };
                self.nodes.insert(n, Some(fact.clone()));
                self.fixture.deliver(fact);
            }
            NodeEvent::Deleted => {
                self.nodes.insert(n, None);
                self.fixture.delete(n);
            }
            NodeEvent::Released => {
                let name = NodeName::new(format!("node-{n}"));
                self.fixture.step(In::Release(RequestId(1), Scope::Node(name)));
            }
        }
    }

    fn writer(&mut self, event: WriteEvent) {
        match event {
            WriteEvent::Done(at) => {
                if let Some(id) = self.nth_due(at).filter(|_| self.begun.is_none()) {
                    self.fixture.write(&id);
                }
            }
            WriteEvent::Fails(at, code) => {
                // A lane writes one pool at a time.
                let busy = self.begun.as_ref().map(|(id, _)| id);
                let Some(id) = self.nth_due(at).filter(|id| Some(id) != busy) else { return };
                if code == 404 {
                    // The pool was deleted, and is created again.
                    let entries = self.fixture.azure.entry(id.clone()).or_default();
                    entries.values_mut().for_each(|state| *state = State::None);
                    self.foreign.retain(|(pool, _)| *pool != id);
                }
                self.fixture.fail(&id, code);
            }
            WriteEvent::Begins(at) => {
                if let Some(id) = self.nth_due(at).filter(|_| self.begun.is_none()) {
                    self.fixture.due.remove(&id);
                    self.fixture.in_flight = Some(id.clone());
                    self.fixture.oldest = Some(self.fixture.set.generation);
                    self.begun = Some((id, Arc::clone(&self.fixture.set)));
                }
            }
            WriteEvent::Ends => self.end(),
        }
    }

    fn server(&mut self, event: ServerEvent) {
        let is_asked = !self.fixture.requests.is_empty();
        match event {
            ServerEvent::Answers if is_asked => self.fixture.answer(),
            ServerEvent::Fails { carried_out, denied } if is_asked => {
                let why = "no".into();
                let failure = if denied { RequestFailure::Denied(why) } else { RequestFailure::Other(why) };
                self.fixture.fail_ask(carried_out, failure);
            }
            ServerEvent::Answers | ServerEvent::Fails { .. } => {}
            ServerEvent::OtherClientWrites => self.fixture.server.put("start.somebody", "else"),
        }
    }

    fn term(&mut self, event: TermEvent) {
        match event {
            TermEvent::Standby => {
                // The current write ends before another term begins.
                self.end();
                self.fixture.due.clear();
                self.fixture.step(In::Leadership(Leadership::Standby));
            }
            TermEvent::Leads => {
                self.end();
                self.fixture.due.clear();
                self.lead();
            }
            TermEvent::Paused(is) => {
                let everything = is.then(Pause::default);
                self.fixture
                    .set_policy(self.term, OperatorPolicy { everything, ..OperatorPolicy::default() });
            }
            TermEvent::Off(admin_state_off) => {
                self.fixture
                    .set_policy(self.term, OperatorPolicy { admin_state_off, ..OperatorPolicy::default() });
            }
            TermEvent::Restarts { carried_out } => {
                self.end();
                if let Some((_, request)) = self.fixture.requests.pop_front().filter(|_| carried_out) {
                    self.fixture.server.carry_out(self.fixture.now, &request);
                }
                self.fixture.restart(Role::On);
                self.lead();
            }
        }
    }

    fn no_down_without_a_signal(&self) {
        if !self.fixture.machine.acts() {
            return;
        }
        for uid in self.fixture.set.addresses.values() {
            let signalled = |fact: &NodeFact| fact.uid == *uid && !fact.taints.is_empty();
            assert!(self.nodes.values().flatten().any(signalled), "{uid} has no signal");
        }
    }
}

proptest! {
    #[test]
    fn n1_n2_n4_every_entry_is_correct_in_the_end(
        events in prop::collection::vec(event(), 0..80),
    ) {
        let mut world = World::new();
        for event in events {
            world.happen(event);
        }
        world.end();
        world.fixture.due.clear();
        // In the end all nodes are Ready, few of them drain, and the writer works.
        for n in 1..=NODES {
            if let Some(Some(mut fact)) = world.nodes.get(&n).cloned() {
                fact.ready = true;
                if n > 2 {
                    fact.taints.clear();
                }
                world.nodes.insert(n, Some(fact.clone()));
                world.fixture.deliver(fact);
            }
        }
        world.run_to_idle();
        let fixture = &world.fixture;
        for (n, fact) in &world.nodes {
            let drains = fact.as_ref().is_some_and(|fact| !fact.taints.is_empty());
            for (id, entries) in &fixture.azure {
                for (ip, state) in entries.iter().filter(|(ip, _)| ips(*n).contains(ip)) {
                    prop_assert!(!drains || *state == State::Down, "{ip} of node {n} in {id} is {state:?}");
                }
            }
        }
        // A restored node has no record any more, and a draining node has one.
        for fact in world.nodes.values().flatten() {
            let is_recorded = fixture.server.text(&format!("down.{}", fact.uid)).is_some();
            prop_assert_eq!(is_recorded, !fact.taints.is_empty(), "{:?}: {:?}", fact, fixture.server.keys());
        }
        world.check_foreign_downs();
        prop_assert!(fixture.is_idle(), "{:?}", fixture.machine.queue);
        let restores = fixture.machine.nodes.restores().keys().collect::<Vec<_>>();
        prop_assert!(fixture.due.is_empty() && world.begun.is_none(), "{restores:?}");
    }

    #[test]
    fn n4_without_foreign_writes_only_draining_nodes_stay_down(
        events in prop::collection::vec(event(), 0..80),
    ) {
        let mut world = World::new();
        for event in events.into_iter().filter(|event| !matches!(event, Event::Foreign(..))) {
            world.happen(event);
        }
        world.end();
        world.fixture.due.clear();
        for n in 1..=NODES {
            let fact = NodeFact { uid: uid(&format!("node-{n}-last")), ..node(n, &[]) };
            let fact = world.nodes.get(&n).cloned().flatten().map_or(fact, |known| NodeFact { taints: Vec::new(), ..known });
            world.fixture.deliver(fact);
        }
        world.run_to_idle();
        prop_assert_eq!(world.fixture.downs(), BTreeMap::new());
        prop_assert!(world.fixture.is_idle() && world.fixture.set.restorable.is_empty());
    }
}
