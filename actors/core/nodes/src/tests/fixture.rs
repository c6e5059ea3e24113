//! Drives the machine on the test's clock, with its writer, pools and API server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use super::server::Server;
use super::{AdminState, In, Out, Params, RecordStorage};
use model::arm::{
    AdminState as State, Entry, Failure, FailureKind, LbFacts, PoolFacts, Provisioning, RetryAfter,
};
use model::config_map::{ConfigMapAnswer, ConfigMapRequest};
use model::draining::{AdminDue, AdminEnd, AdminError, AdminUrgency, Draining, PoolAdminStates};
use model::ids::{CallId, Epoch, LbName, NodeName, NodeUid, PoolId, PoolName};
use model::leadership::Leadership;
use model::level::DrainingAddresses;
use model::load_balancers::{LbObservation, OurPuts};
use model::machine::{Machine, Now};
use model::node::{NodeFact, Role};
use model::object::{RequestFailure, ResourceVersion, Taint, TaintPatch};
use model::operator_request::{Answer, RequestId};
use model::policy::OperatorPolicy;
use model::report::Report;
use model::signals::{DRAINING, SPOT_EVICTION};
use pool_testing::facts::pool_at_rest;

pub(super) const LBS: [&str; 2] = ["lb", "lb-internal"];

pub(super) fn uid(name: &str) -> NodeUid {
    NodeUid::new(format!("uid-of-{name}"))
}

pub(super) fn taint(key: &str) -> Taint {
    let value = if key == DRAINING { SPOT_EVICTION } else { "" };
    Taint { key: key.into(), value: value.into(), effect: "NoSchedule".into() }
}

/// Returns the addresses of node `n`.
pub(super) fn ips(n: u8) -> [IpAddr; 2] {
    [IpAddr::from([10, 0, 0, n]), IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)])]
}

/// Returns `node-<n>` with its addresses.
pub(super) fn node(n: u8, taints: &[&str]) -> NodeFact {
    let name = format!("node-{n}");
    NodeFact {
        uid: uid(&name),
        name: NodeName::new(name),
        ips: ips(n).into(),
        instance: None,
        ready: true,
        excluded: None,
        taints: taints.iter().map(|key| taint(key)).collect(),
        created: None,
        preempt: None,
        version: ResourceVersion::default(),
    }
}

pub(super) fn pool(lb: &str, name: &str) -> PoolId {
    PoolId::new(LbName::new(lb), PoolName::new(name))
}

pub(super) fn failure(status: u16) -> AdminError {
    if status == 404 {
        return AdminError::Absent;
    }
    AdminError::Failed(Arc::new(Failure {
        kind: FailureKind::Status(status),
        code: None,
        inner_codes: Vec::new(),
        message: "no".into(),
        retry_after: RetryAfter::Absent,
        correlation_id: None,
    }))
}

/// The machine, a writer, the pools and our ConfigMap.
pub(super) struct Fixture {
    pub(super) now: Now,
    pub(super) machine: AdminState,
    pub(super) params: Params,
    /// Time of the last PUT to each pool.
    pub(super) sent: BTreeMap<PoolId, Now>,
    /// The oldest set whose PUT may be in flight.
    pub(super) oldest: Option<u64>,
    /// The nodes of the cluster.
    pub(super) cluster: BTreeMap<NodeName, NodeFact>,
    pub(super) server: Server,
    /// Requests about our ConfigMap without an answer.
    pub(super) requests: VecDeque<(CallId, ConfigMapRequest)>,
    /// True if the requests are answered immediately.
    pub(super) answers: bool,
    /// Number of reads and writes of our ConfigMap.
    pub(super) gets: usize,
    pub(super) writes: usize,
    /// Due updates at the writer, and the set that was sent to it.
    pub(super) due: BTreeMap<PoolId, AdminDue>,
    pub(super) set: Arc<Draining>,
    /// The pool whose write has begun. Its end answers later withdrawals.
    pub(super) in_flight: Option<PoolId>,
    pub(super) azure: BTreeMap<PoolId, BTreeMap<IpAddr, State>>,
    /// Due updates since the last call of [`Fixture::take_due`], and the number of requested reads.
    pub(super) requested: Vec<(PoolId, AdminUrgency)>,
    pub(super) requested_reads: usize,
    pub(super) opened: Option<Epoch>,
    pub(super) taints: Vec<(CallId, TaintPatch)>,
    pub(super) answered: Vec<(RequestId, Answer)>,
    pub(super) released: Vec<(RequestId, Vec<NodeName>)>,
    pub(super) reports: Vec<Report>,
    /// The addresses that were sent to the Directory.
    pub(super) leaving: Arc<DrainingAddresses>,
}

impl Fixture {
    /// Creates a fixture without any input. The pool `web` of both load balancers holds the IPv4 addresses of the first
    /// nodes, and `web-ipv6` the IPv6 addresses.
    pub(super) fn silent(role: Role, nodes: u8) -> Fixture {
        Fixture::with_storage(role, RecordStorage::ConfigMap, nodes)
    }

    pub(super) fn with_storage(role: Role, storage: RecordStorage, nodes: u8) -> Fixture {
        let of =
            |family: usize| (1..=nodes).map(|n| (ips(n)[family], State::None)).collect::<BTreeMap<_, _>>();
        let pools = LBS.iter().flat_map(|lb| [(pool(lb, "web"), of(0)), (pool(lb, "web-ipv6"), of(1))]);
        let params = Params {
            role,
            load_balancers: LBS.map(LbName::new).into(),
            excluded: [PoolName::new("aksOutboundBackendPool")].into(),
            only_listed: BTreeSet::new(),
            listed: BTreeSet::new(),
            max_backoff: Duration::from_secs(15),
            storage,
        };
        Fixture {
            now: Now::from_millis(1_000),
            machine: AdminState::new(params.clone()),
            params,
            cluster: BTreeMap::new(),
            server: Server::default(),
            requests: VecDeque::new(),
            answers: true,
            gets: 0,
            writes: 0,
            due: BTreeMap::new(),
            set: Arc::default(),
            in_flight: None,
            sent: BTreeMap::new(),
            oldest: None,
            azure: pools.collect(),
            requested: Vec::new(),
            requested_reads: 0,
            opened: None,
            taints: Vec::new(),
            answered: Vec::new(),
            released: Vec::new(),
            reports: Vec::new(),
            leaving: Arc::default(),
        }
    }

    /// Creates a leader that has observed these nodes and all pools.
    pub(super) fn new(nodes: u8) -> Fixture {
        Fixture::leading(Role::On, RecordStorage::ConfigMap, nodes)
    }

    pub(super) fn leading(role: Role, storage: RecordStorage, nodes: u8) -> Fixture {
        let mut fixture = Fixture::with_storage(role, storage, nodes);
        for n in 1..=nodes {
            fixture.deliver(node(n, &[]));
        }
        fixture.observe_all();
        fixture.lead(1);
        fixture
    }

    pub(super) fn lead(&mut self, n: u64) {
        let epoch = Epoch(n);
        self.step(In::Confirmed(epoch));
        self.step(In::Opened(epoch));
        self.set_policy(n, OperatorPolicy::default());
        self.step(In::Reporting(Some(epoch)));
        self.step(In::Leadership(Leadership::Leading { epoch, until: Now::NEVER }));
    }

    /// Replaces the process by one that knows all nodes and pools, and has no term yet.
    pub(super) fn restart(&mut self, role: Role) {
        self.params.role = role;
        self.machine = AdminState::new(self.params.clone());
        (self.set, self.leaving, self.opened) = (Arc::default(), Arc::default(), None);
        self.sent.clear();
        self.due.clear();
        self.requests.clear();
        for fact in self.cluster.clone().into_values() {
            self.deliver(fact);
        }
        self.observe_all();
        self.requested.clear();
        self.requested_reads = 0;
    }

    pub(super) fn set_policy(&mut self, term: u64, policy: OperatorPolicy) {
        self.step(In::OperatorPolicy { term: Some(Epoch(term)), policy: Arc::new(policy) });
    }

    pub(super) fn deliver(&mut self, fact: NodeFact) {
        self.cluster.insert(fact.name.clone(), fact.clone());
        self.step(In::Node(fact.name.clone(), Some(Arc::new(fact))));
    }

    pub(super) fn delete(&mut self, n: u8) {
        let name = NodeName::new(format!("node-{n}"));
        self.cluster.remove(&name);
        self.step(In::Node(name, None));
    }

    pub(super) fn step(&mut self, input: In) {
        let mut out = Vec::new();
        self.machine.step(self.now, input, &mut out);
        while self.machine.deadline().is_some_and(|at| at <= self.now) {
            self.machine.tick(self.now, &mut out);
        }
        self.apply_output(out);
    }

    pub(super) fn pass(&mut self, millis: u64) {
        let until = self.now.plus(Duration::from_millis(millis));
        while let Some(at) = self.machine.deadline().filter(|at| *at <= until) {
            self.now = self.now.max(at);
            let mut out = Vec::new();
            self.machine.tick(self.now, &mut out);
            self.apply_output(out);
            assert!(
                self.machine.deadline() > Some(self.now) || self.machine.deadline().is_none(),
                "time does not advance"
            );
        }
        self.now = until;
    }

    fn apply_output(&mut self, out: Vec<Out>) {
        assert_eq!(self.machine.check(), Ok(()));
        for output in out {
            match output {
                Out::Draining(set) => {
                    assert!(set.generation > self.set.generation, "raised with each change");
                    self.check_recorded(&set);
                    self.set = set;
                }
                Out::DrainingAddresses(leaving) => self.leaving = leaving,
                Out::Due(pool, Some(due)) => {
                    assert_eq!(due.generation, self.set.generation, "the writer knows the set first");
                    self.requested.push((pool.clone(), due.urgency));
                    self.due.insert(pool, due);
                }
                Out::Due(pool, None) => {
                    let was_due = self.due.remove(&pool).is_some();
                    if was_due && self.in_flight.as_ref() != Some(&pool) {
                        self.withdrawn(&pool);
                    }
                }
                Out::Opened(epoch) => self.opened = Some(epoch),
                Out::ReadLoadBalancers => self.requested_reads += 1,
                Out::ConfigMap(call, request) => {
                    match request {
                        ConfigMapRequest::Get | ConfigMapRequest::Watch(..) => self.gets += 1,
                        ConfigMapRequest::Create(_) | ConfigMapRequest::Replace(..) => self.writes += 1,
                    }
                    self.requests.push_back((call, request));
                    if self.answers {
                        self.answer();
                    }
                }
                Out::Taint(call, patch) => self.taints.push((call, patch)),
                Out::Report(report) => self.reports.push(report),
                Out::Answer(id, answer) => self.answered.push((id, answer)),
                Out::Release(id, nodes) => self.released.push((id, nodes)),
                Out::Ended(_) | Out::Node(..) | Out::View(_) | Out::Metric(_) | Out::NoticeIgnored(..) => {}
            }
        }
    }

    /// Checks that all Down backends have a record (N4).
    fn check_recorded(&self, set: &Draining) {
        for (backend, uid) in &set.addresses {
            if self.params.storage == RecordStorage::Nothing || self.set.addresses.contains_key(backend) {
                continue;
            }
            let text = self.server.text(&format!("down.{uid}")).expect("it is recorded");
            assert!(text.lines().nth(1).expect("addresses").contains(&backend.to_string()), "{text}");
        }
    }

    /// Lets the API server execute the oldest request about our ConfigMap.
    pub(super) fn answer(&mut self) {
        let (call, request) = self.requests.pop_front().expect("a request waits");
        let answer = self.server.carry_out(self.now, &request);
        self.step(In::ConfigMap(call, answer));
    }

    /// Lets the API server execute all requests.
    pub(super) fn answer_all(&mut self) {
        while !self.requests.is_empty() {
            self.answer();
        }
    }

    /// Fails the oldest request, which the API server has executed or not.
    pub(super) fn fail_ask(&mut self, carried_out: bool, failure: RequestFailure) {
        let (call, request) = self.requests.pop_front().expect("a request waits");
        if carried_out {
            self.server.carry_out(self.now, &request);
        }
        self.step(In::ConfigMap(call, ConfigMapAnswer::Failed(failure)));
    }

    /// Takes the updates that became due since the last call.
    pub(super) fn take_due(&mut self) -> Vec<(String, AdminUrgency)> {
        let mut due: Vec<_> =
            self.requested.drain(..).map(|(pool, urgency)| (pool.to_string(), urgency)).collect();
        due.sort();
        due
    }

    /// Lets the writer apply the due update of a pool.
    pub(super) fn write(&mut self, id: &PoolId) {
        self.due.remove(id);
        let set = Arc::clone(&self.set);
        self.in_flight = Some(id.clone());
        self.carry_out(id, &set);
        self.pass(1);
        self.in_flight = None;
        self.finished(id, set.generation, None);
        self.withdrawn(id);
    }

    /// Returns the writer's information about a pool without its content.
    pub(super) fn states(&self, id: &PoolId) -> PoolAdminStates {
        PoolAdminStates {
            at: self.now,
            facts: None,
            in_doubt: BTreeSet::new(),
            sent: self.sent.get(id).copied(),
            ended: None,
            withdrawn: None,
        }
    }

    /// Reports that the withdrawn work of a pool has ended.
    pub(super) fn withdrawn(&mut self, id: &PoolId) {
        let withdrawn = Some(self.set.generation);
        self.step(In::AdminStates(id.clone(), PoolAdminStates { withdrawn, ..self.states(id) }));
    }

    /// Returns a pool as a GET returns it.
    pub(super) fn facts_of(&self, id: &PoolId) -> Arc<PoolFacts> {
        let entry = |(ip, state): (&IpAddr, &State)| Entry {
            name: ip.to_string().into(),
            ip: Some(*ip),
            admin_state: *state,
            network: None,
            instance: None,
        };
        let entries = self.azure.get(id).into_iter().flatten().map(entry).collect();
        Arc::new(pool_at_rest(id.clone(), entries))
    }

    /// Reads a pool as the writer, delivers it if it has Downs, and sends a PUT if this set requires one.
    pub(super) fn carry_out(&mut self, id: &PoolId, set: &Draining) {
        let facts = self.facts_of(id);
        let entries = self.azure.entry(id.clone()).or_default();
        let is_found =
            |(ip, state): (&IpAddr, &State)| *state == State::Down && set.would_set(id, &(*ip).into());
        let finds = entries.iter().any(is_found);
        let mut puts = false;
        for (ip, state) in entries {
            if let Some(wanted) = set.wants_of(id, &(*ip).into(), *state) {
                (*state, puts) = (wanted, true);
            }
        }
        if finds {
            let states = PoolAdminStates { facts: Some(facts), ..self.states(id) };
            self.step(In::AdminStates(id.clone(), states));
        }
        if puts {
            self.sent.insert(id.clone(), self.now);
        }
    }

    pub(super) fn finished(&mut self, id: &PoolId, generation: u64, error: Option<AdminError>) {
        let facts = error.is_none().then(|| self.facts_of(id));
        let ended = Some(AdminEnd { generation, result: error.map_or(Ok(()), Err) });
        self.step(In::AdminStates(id.clone(), PoolAdminStates { facts, ended, ..self.states(id) }));
    }

    /// Lets the write of a pool fail.
    pub(super) fn fail(&mut self, id: &PoolId, status: u16) {
        let due = self.due.remove(id).expect("it is due");
        self.finished(id, due.generation, Some(failure(status)));
    }

    pub(super) fn write_all(&mut self) {
        while let Some((id, _)) = self.due.first_key_value() {
            self.write(&id.clone());
        }
    }

    /// Delivers an observation of every load balancer.
    pub(super) fn observe_all(&mut self) {
        self.pass(1);
        for lb in LBS {
            self.observe_at(lb, self.now);
        }
    }

    pub(super) fn observe_at(&mut self, lb: &str, began: Now) {
        let lb = LbName::new(lb);
        let pools = self.azure.keys().filter(|id| id.lb == lb).map(|id| self.facts_of(id));
        let facts = LbFacts {
            lb: lb.clone(),
            etag: None,
            guid: None,
            provisioning: Provisioning::Succeeded,
            pools: pools.collect(),
            rules: Vec::new(),
        };
        let sent = self.sent.iter().filter(|(id, _)| id.lb == lb).map(|(id, at)| (id.pool.clone(), *at));
        let sent = Arc::new(sent.collect());
        let puts = OurPuts { sent, oldest: self.oldest };
        self.step(In::Lb(LbObservation { lb, began, facts: Some(Arc::new(facts)), puts }));
    }

    /// Delivers the absence of a load balancer.
    pub(super) fn step_absent(&mut self, lb: &str) {
        let (lb, began) = (LbName::new(lb), self.now);
        self.step(In::Lb(LbObservation { lb, began, facts: None, puts: OurPuts::default() }));
    }

    /// Writes and reads until nothing changes.
    pub(super) fn run_until_stable(&mut self) {
        for _ in 0..4 {
            self.answer_all();
            self.write_all();
            self.observe_all();
        }
        assert!(self.due.is_empty());
    }

    /// Sets the admin state of an entry of `lb/web`, as another client does.
    pub(super) fn set_foreign(&mut self, n: u8, state: State) {
        self.azure.get_mut(&pool("lb", "web")).expect("a pool").insert(ips(n)[0], state);
    }

    /// Returns the Down addresses, with the number of entries.
    pub(super) fn downs(&self) -> BTreeMap<IpAddr, usize> {
        let mut downs = BTreeMap::new();
        for (ip, state) in self.azure.values().flatten() {
            if *state == State::Down {
                *downs.entry(*ip).or_default() += 1;
            }
        }
        downs
    }

    /// Returns the nodes in the set.
    pub(super) fn drains(&self) -> Vec<&str> {
        let uids: BTreeSet<&NodeUid> = self.set.addresses.values().collect();
        uids.into_iter().map(|uid| uid.as_str().trim_start_matches("uid-of-")).collect()
    }

    /// Returns the nodes with a record.
    pub(super) fn recorded(&self) -> Vec<&str> {
        let keys = self.server.keys().into_iter();
        keys.filter_map(|key| key.strip_prefix("down.uid-of-")).collect()
    }
}
