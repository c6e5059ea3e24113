//! The AdminState machine at the same size: 10,000 pools with ten members each, 1,000 nodes.
//!
//! The tests assert counts: which pools a change of the draining set makes due, and no others. The times of the turns
//! are printed (`benches/turns.sh`), and with `QUIET_MACHINE=1` they must reach the goals.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::arm::Document;
use model::arm::{AdminState as State, LbFacts, PoolFacts};
use model::config_map::{ConfigMapAnswer, ConfigMapFacts, ConfigMapRequest, Text, Value};
use model::draining::{AdminEnd, Draining, PoolAdminStates};
use model::ids::{Epoch, NodeName, PoolId};
use model::leadership::Leadership;
use model::load_balancers::{LbObservation, OurPuts};
use model::machine::{Machine, Now, Wall};
use model::node::NodeFact;
use model::node::Role;
use model::object::{Object, ResourceVersion, Taint};
use model::policy::OperatorPolicy;
use nodes::{AdminState, In, Out, Params, RecordStorage};
use pools::directory;

use super::{BATCH, TICKS, world};

/// Time for which the shell continues with due work in one turn.
const TURN_LIMIT: Duration = Duration::from_millis(2);
/// The goals: the limit for 99 of 100 turns, and the time after which all pools of 333 tainted nodes are due.
const MAX_TURN: Duration = Duration::from_millis(5);
const ALL_DUE_TIMEOUT: Duration = Duration::from_secs(1);

/// A leading AdminState machine with all its peers.
struct Fixture {
    machine: AdminState,
    now: Now,
    turns: Vec<(Duration, String)>,
    asks: VecDeque<In>,
    records: BTreeMap<Arc<str>, Text>,
    version: u64,
    set: Arc<Draining>,
    due: BTreeSet<PoolId>,
    nodes: BTreeMap<NodeName, NodeFact>,
    azure: Vec<LbObservation>,
    /// Time of the last PUT to each pool.
    sent: BTreeMap<PoolId, Now>,
}

/// Returns a fraction of `all` in a normal run; `TURNS=all` runs all.
fn of(all: usize) -> usize {
    if std::env::var_os("TURNS").is_some_and(|turns| turns == "all") { all } else { (all / 20).max(4) }
}

/// CPU time has a resolution of several milliseconds.
#[expect(clippy::disallowed_methods, reason = "the test measures real time")]
fn instant() -> Instant {
    Instant::now()
}

impl Fixture {
    fn leading() -> Fixture {
        let now = Now::from_millis(1_000);
        let observation = world::observations(now, 0).into_iter().map(|input| {
            let directory::In::Lb(observation) = input else { panic!("no observation: {input:?}") };
            observation
        });
        let azure: Vec<LbObservation> = observation.collect();
        let params = Params {
            role: Role::On,
            load_balancers: azure.iter().map(|observation| observation.lb.clone()).collect(),
            only_listed: BTreeSet::new(),
            excluded: BTreeSet::new(),
            listed: BTreeSet::new(),
            max_backoff: Duration::from_secs(1_000),
            storage: RecordStorage::ConfigMap,
        };
        let facts = world::nodes(1, true).into_iter().map(|object| {
            let Object::Node(node) = object else { panic!("no Node: {object:?}") };
            NodeFact::of(&node, None)
        });
        let mut fixture = Fixture {
            machine: AdminState::new(params),
            now,
            turns: Vec::new(),
            asks: VecDeque::new(),
            records: BTreeMap::new(),
            version: 1,
            set: Arc::default(),
            due: BTreeSet::new(),
            nodes: facts.map(|fact| (fact.name.clone(), fact)).collect(),
            azure,
            sent: BTreeMap::new(),
        };
        let epoch = Epoch(1);
        fixture.turn("all nodes", fixture.nodes.values().map(timings).collect());
        fixture.read_all();
        let leadership = Leadership::Leading { epoch, until: Now::NEVER };
        let policy = In::OperatorPolicy { term: Some(epoch), policy: Arc::new(OperatorPolicy::default()) };
        fixture.turn("a term", vec![In::Confirmed(epoch), In::Opened(epoch), policy]);
        fixture.turn("a term's reports", vec![In::Reporting(Some(epoch)), In::Leadership(leadership)]);
        fixture.answer();
        fixture.advance(1_000);
        fixture.turns.clear();
        fixture
    }

    /// Runs one turn of the shell, and further ones while ticks are due.
    fn turn(&mut self, what: &str, inputs: Vec<In>) {
        let mut inputs = inputs.into_iter();
        loop {
            let mut out = Vec::new();
            let began = instant();
            for input in inputs.by_ref().take(BATCH) {
                self.machine.step(self.now, input, &mut out);
            }
            for _ in 0..TICKS {
                let is_due = self.machine.deadline().is_some_and(|at| at <= self.now);
                if !is_due || began.elapsed() > TURN_LIMIT {
                    break;
                }
                self.machine.tick(self.now, &mut out);
            }
            self.turns.push((began.elapsed(), what.to_owned()));
            self.handle_outputs(out);
            let is_due = self.machine.deadline().is_some_and(|at| at <= self.now);
            if inputs.len() == 0 && !is_due {
                break;
            }
        }
    }

    fn handle_outputs(&mut self, out: Vec<Out>) {
        for output in out {
            match output {
                Out::Draining(set) => self.set = set,
                Out::Due(pool, Some(due)) => {
                    assert!(due.generation <= self.set.generation);
                    self.due.insert(pool);
                }
                Out::Due(pool, None) => {
                    self.due.remove(&pool);
                    let withdrawn = Some(self.set.generation);
                    let states = PoolAdminStates { withdrawn, ..self.states(&pool) };
                    self.asks.push_back(In::AdminStates(pool, states));
                }
                Out::ConfigMap(call, request) => {
                    let answer = self.carry_out(&request);
                    self.asks.push_back(In::ConfigMap(call, answer));
                }
                Out::DrainingAddresses(_)
                | Out::Opened(_)
                | Out::ReadLoadBalancers
                | Out::NoticeIgnored(..)
                | Out::Taint(..)
                | Out::Report(_)
                | Out::Ended(_)
                | Out::Node(..)
                | Out::View(_)
                | Out::Answer(..)
                | Out::Release(..)
                | Out::Metric(_) => {}
            }
        }
    }

    fn carry_out(&mut self, request: &ConfigMapRequest) -> ConfigMapAnswer {
        match request {
            ConfigMapRequest::Get | ConfigMapRequest::Watch(..) => {}
            ConfigMapRequest::Create(edit) | ConfigMapRequest::Replace(_, edit) => {
                self.version += 1;
                self.records.retain(|key, _| !edit.remove.contains(key));
                for (key, value) in &edit.set {
                    let Value::Since { head, tail, .. } = value else { panic!("a record has a time") };
                    let text = format!("{head}\nsince: 2023-11-14T22:13:20.000000Z\n{tail}").into();
                    self.records.insert(Arc::clone(key), Text { text, time: Some(Wall::from_micros(0)) });
                }
            }
        }
        ConfigMapAnswer::Seen(Arc::new(ConfigMapFacts {
            binary: BTreeSet::new(),
            data: self.records.clone(),
            read: Wall::from_micros(0),
            version: ResourceVersion(self.version.to_string().into()),
            document: Document::new(()),
        }))
    }

    /// Answers every request, one answer per turn.
    fn answer(&mut self) {
        while let Some(answer) = self.asks.pop_front() {
            self.turn("an answer", vec![answer]);
        }
    }

    fn advance(&mut self, millis: u64) {
        let until = self.now.plus(Duration::from_millis(millis));
        while let Some(at) = self.machine.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            self.turn("time passes", Vec::new());
        }
        self.now = until;
    }

    /// Lets Discovery read every load balancer, one per turn.
    fn read_all(&mut self) {
        for mut observation in self.azure.clone() {
            self.advance(1);
            observation.began = self.now;
            let sent = self
                .sent
                .iter()
                .filter(|(id, _)| id.lb == observation.lb)
                .map(|(id, at)| (id.pool.clone(), *at));
            observation.puts = OurPuts { sent: Arc::new(sent.collect()), oldest: None };
            self.turn("an observation", vec![In::Lb(observation)]);
        }
    }

    /// Adds or removes the taint of these nodes, and returns the facts.
    fn taint(&mut self, nodes: std::ops::Range<usize>, tainted: bool) -> Vec<In> {
        let names = nodes.map(|node| NodeName::new(format!("node-{node}")));
        let taint = Taint {
            key: "node.kubernetes.io/out-of-service".into(),
            value: "nodeshutdown".into(),
            effect: "NoExecute".into(),
        };
        let mut all = Vec::new();
        for name in names {
            let fact = self.nodes.get_mut(&name).expect("it is there");
            fact.taints = if tainted { vec![taint.clone()] } else { Vec::new() };
            all.push(timings(fact));
        }
        all
    }

    /// Returns the admin states of a pool, as known by the writer.
    fn states(&self, id: &PoolId) -> PoolAdminStates {
        PoolAdminStates {
            at: self.now,
            facts: None,
            in_doubt: BTreeSet::new(),
            sent: self.sent.get(id).copied(),
            ended: None,
            withdrawn: None,
        }
    }

    /// Lets the writer write up to `count` due pools, one answer per turn.
    fn write(&mut self, count: usize) -> usize {
        let pools: Vec<PoolId> = self.due.iter().take(count).cloned().collect();
        for id in &pools {
            self.advance(2);
            self.due.remove(id);
            self.sent.insert(id.clone(), self.now);
            self.advance(1);
            let set = Arc::clone(&self.set);
            for observation in self.azure.iter_mut().filter(|observation| observation.lb == id.lb) {
                carry_out(observation, id, &set);
            }
            let left =
                self.azure.iter().filter(|seen| seen.lb == id.lb).filter_map(|seen| seen.facts.as_ref());
            let facts = left.flat_map(|facts| &facts.pools).find(|pool| pool.id == *id).cloned();
            let ended = Some(AdminEnd { generation: set.generation, result: Ok(()) });
            let states = PoolAdminStates { facts, ended, ..self.states(id) };
            self.turn("a write", vec![In::AdminStates(id.clone(), states)]);
        }
        pools.len()
    }

    /// Returns the pools that have an entry of one of these nodes.
    fn holding(&self, nodes: std::ops::Range<usize>) -> BTreeSet<PoolId> {
        let names: BTreeSet<String> = nodes.map(|node| format!("node-{node}")).collect();
        let pools =
            self.azure.iter().flat_map(|observation| observation.facts.iter().flat_map(|facts| &facts.pools));
        let holds = |pool: &&Arc<PoolFacts>| pool.entries.iter().any(|entry| names.contains(&*entry.name));
        pools.filter(holds).map(|pool| pool.id.clone()).collect()
    }

    /// Checks on a quiet machine that 99 of 100 turns take 5 ms at most.
    fn assert_short_turns(&mut self) {
        self.turns.sort_by(|one, other| other.cmp(one));
        let (p99, what) = &self.turns[self.turns.len() / 100];
        assert!(!is_quiet() || *p99 <= MAX_TURN, "p99 of the turns is {p99:?}: {what}");
    }

    /// Returns the durations of the turns, and the longest ones, as text.
    fn timings(&mut self) -> String {
        self.turns.sort_by(|one, other| other.cmp(one));
        let at = |share: usize| self.turns[self.turns.len() * share / 1_000].0;
        let shares = [10, 1].map(|share| format!("{:?}", at(share)));
        let longest = self.turns.iter().take(10).map(|(took, what)| format!("{took:?}: {what}"));
        let longest = longest.collect::<Vec<_>>().join("\n");
        let all: Duration = self.turns.iter().map(|(took, _)| *took).sum();
        let (count, shares) = (self.turns.len(), shares.join(", "));
        format!("{count} turns in {all:?}, p99 and p99.9: {shares}\nthe longest:\n{longest}")
    }
}

/// Returns whether times count: nothing else runs on this computer, and the machines are optimised.
fn is_quiet() -> bool {
    std::env::var_os("QUIET_MACHINE").is_some()
}

fn timings(fact: &NodeFact) -> In {
    In::Node(fact.name.clone(), Some(Arc::new(fact.clone())))
}

/// Applies a write of the states of this set in a pool.
fn carry_out(observation: &mut LbObservation, id: &PoolId, set: &Draining) {
    let mut facts = LbFacts::clone(observation.facts.as_ref().expect("it exists"));
    for pool in facts.pools.iter_mut().filter(|pool| pool.id == *id) {
        let mut changed = PoolFacts::clone(pool);
        for entry in &mut changed.entries {
            let wanted = set.wants(id, entry);
            entry.admin_state = wanted.unwrap_or(entry.admin_state);
        }
        *pool = Arc::new(changed);
    }
    observation.facts = Some(Arc::new(facts));
}

#[test]
fn n2_taints_make_the_pools_of_their_nodes_due_and_no_others() {
    let mut fixture = Fixture::leading();
    for node in 0..of(80) {
        let one = fixture.taint(node..node + 1, true);
        fixture.turn("a taint", one);
        fixture.answer();
        fixture.advance(1);
        assert!(
            fixture.due == fixture.holding(0..node + 1),
            "after {node} {} pools are due",
            fixture.due.len()
        );
    }
    println!("80 taints, one after another: {}", fixture.timings());
    fixture.assert_short_turns();
}

#[test]
fn n2_inputs_during_a_drain_concern_their_own_pools() {
    let mut fixture = Fixture::leading();
    let count = of(100);
    let nodes = fixture.taint(0..count, true);
    fixture.turn("100 taints", nodes);
    fixture.answer();
    fixture.turns.clear();
    while fixture.write(200) > 0 {
        fixture.read_all();
    }
    let is_down = |pool: &&Arc<PoolFacts>| pool.entries.iter().any(|entry| entry.admin_state == State::Down);
    let pools =
        fixture.azure.iter().flat_map(|observation| observation.facts.iter().flat_map(|facts| &facts.pools));
    assert_eq!(pools.filter(is_down).count(), fixture.holding(0..count).len());
    println!("100 nodes drain: {}", fixture.timings());
    fixture.assert_short_turns();
}

#[test]
fn n2_a_third_of_the_nodes_drains_and_returns() {
    let mut fixture = Fixture::leading();
    let count = of(333);
    for tainted in [true, false] {
        let nodes = fixture.taint(0..count, tainted);
        fixture.turn("333 nodes", nodes);
        fixture.answer();
        let took: Duration = fixture.turns.iter().map(|(took, _)| *took).sum();
        println!("333 nodes, tainted {tainted}, until all is due: {took:?}; {}", fixture.timings());
        assert!(fixture.due == fixture.holding(0..count), "{} pools are due", fixture.due.len());
        assert!(!is_quiet() || took <= ALL_DUE_TIMEOUT, "all is due after {took:?}");
        fixture.turns.clear();
        while fixture.write(1_000) > 0 {}
        fixture.read_all();
        println!("their writes: {}", fixture.timings());
        fixture.assert_short_turns();
        fixture.turns.clear();
    }
}
