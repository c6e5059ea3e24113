//! Random histories of sources, their cache and the delayed messages between them: safety and liveness. The tests also
//! detect bugs that are planted between the sources and their environment.

use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;

use super::*;
use crate::resource_cache::ResourceChange;
use pool_testing::planted::each_is_found;

/// All possible sources: clusters and endpoints that share resources.
const NAMES: [&str; 5] = ["cluster:c0", "cluster:c1", "eds:e0", "eds:e1", "eds:e2"];
/// The numbers of clusters and of resources.
const CLUSTERS: u8 = 2;
const KEYS: u8 = 5;
/// The maximum number of operations in a history.
const LENGTH: usize = 80;
/// The maximum number of rounds until all messages have arrived.
const ROUNDS: usize = 200;

fn key(n: u8) -> ResourceKey {
    if n < CLUSTERS { cluster(&format!("c{n}")) } else { endpoints(&format!("e{}", n - CLUSTERS)) }
}

fn value(key: &ResourceKey, n: u8) -> ResourceValue {
    match key.kind {
        ResourceKind::Cluster => {
            let named = n % (KEYS - CLUSTERS);
            ResourceValue::Cluster(Cluster { eds_name: Arc::from(format!("e{named}")) })
        }
        ResourceKind::Endpoints => ResourceValue::Endpoints(assignment(n)),
    }
}

#[derive(Clone, Debug)]
enum Op {
    /// Configures these sources, with a bit for each.
    Want(u8),
    Good(u8, u8),
    Invalid(u8),
    Delete(u8),
    Report(u8, Code),
    Lose,
    Connect,
    /// All requested resources are late.
    Late,
    /// The first message of the sources reaches the cache, or the first message of the cache reaches the sources.
    Ask,
    Deliver,
    DeliverAll,
}

/// A bug between the sources and their environment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plant {
    /// Ambient errors do not reach the sources.
    LosesAmbient,
    /// The reasons for missing resources do not reach the sources.
    LosesFailures,
    /// Every third notice is lost.
    LosesNotices,
    /// Notices for an earlier watcher reach the current one.
    MixesWatchers,
    /// Unwatched resources stay watched.
    KeepsWatching,
    /// Endpoints are not requested.
    AsksForClustersOnly,
    /// Resources are unwatched before others are watched.
    LetsGoFirst,
    /// Former endpoints are given up as soon as others are named.
    LetsGoEarly,
    /// A dropped assignment is published as unknown.
    ForgetsDrops,
    /// An unknown assignment is published as dropped.
    DropsTheUnknown,
    /// The node id is missing in facts.
    LosesTheNode,
    /// Ambient errors are missing in facts.
    LosesTheNote,
    /// Facts are published twice.
    SaysItTwice,
    /// An update is acknowledged before its consequences.
    ProcessedEarly,
    /// Updates are never acknowledged.
    NeverProcessed,
}

impl Plant {
    const ALL: [Plant; 15] = [
        Plant::LosesAmbient,
        Plant::LosesFailures,
        Plant::LosesNotices,
        Plant::MixesWatchers,
        Plant::KeepsWatching,
        Plant::AsksForClustersOnly,
        Plant::LetsGoFirst,
        Plant::LetsGoEarly,
        Plant::ForgetsDrops,
        Plant::DropsTheUnknown,
        Plant::LosesTheNode,
        Plant::LosesTheNote,
        Plant::SaysItTwice,
        Plant::ProcessedEarly,
        Plant::NeverProcessed,
    ];
}

fn op() -> impl Strategy<Value = Op> {
    let code = prop_oneof![Just(Code::NotFound), Just(Code::PermissionDenied), Just(Code::Unavailable)];
    prop_oneof![
        3 => (0_u8..32).prop_map(Op::Want),
        10 => (0..KEYS, 0_u8..6).prop_map(|(n, value)| Op::Good(n, value)),
        2 => (0..KEYS).prop_map(Op::Invalid),
        2 => (0..CLUSTERS).prop_map(Op::Delete),
        2 => (0..KEYS, code).prop_map(|(n, code)| Op::Report(n, code)),
        1 => Just(Op::Lose),
        2 => Just(Op::Connect),
        1 => Just(Op::Late),
        6 => Just(Op::Ask),
        6 => Just(Op::Deliver),
        6 => Just(Op::DeliverAll),
    ]
}

fn histories() -> impl Strategy<Value = (Policy, Vec<Op>)> {
    let policy = prop_oneof![2 => Just(PLAIN), 3 => Just(FAILS)];
    (policy, prop::collection::vec(op(), 1..=LENGTH))
}

/// The state of one watcher.
#[derive(Clone, PartialEq, Debug, Default)]
struct View {
    value: Option<ResourceValue>,
    error: Option<Error>,
}

impl View {
    fn on_outputs(&mut self, notices: ResourceChange<ResourceValue>) {
        match notices {
            ResourceChange::Changed(Ok(cached)) => *self = View { value: Some(cached.value), error: None },
            ResourceChange::Changed(Err(error)) => *self = View { value: None, error: Some(error) },
            ResourceChange::Ambient(error) => self.error = error,
        }
    }
}

/// The reference state of a source.
#[derive(Clone, Debug, Default)]
struct Account {
    /// The endpoints that were last in use.
    used: Option<Arc<str>>,
    /// True if they are in use now, and whether any ever were.
    in_use: bool,
    ever: bool,
}

struct World {
    sources: Sources,
    cache: ResourceCache<ResourceKey, ResourceValue, WatcherId>,
    plant: Option<Plant>,
    policy: Policy,
    now: Now,
    /// The messages in flight to the cache, and back.
    to_cache: VecDeque<Out>,
    to_sources: VecDeque<(UpdateId, Vec<WatcherNotice>)>,
    updates: u64,
    delivered_notices: u64,
    accounts: BTreeMap<Name, Account>,
    views: BTreeMap<ResourceKey, (WatcherId, View)>,
    facts: BTreeMap<Name, SourceFact>,
}

impl World {
    fn new(policy: Policy, plant: Option<Plant>) -> World {
        World {
            sources: Sources::new(Params { node_id: Arc::from(NODE) }),
            cache: ResourceCache::new(policy),
            plant,
            policy,
            now: NOW,
            to_cache: VecDeque::new(),
            to_sources: VecDeque::new(),
            updates: 0,
            delivered_notices: 0,
            accounts: BTreeMap::new(),
            views: BTreeMap::new(),
            facts: BTreeMap::new(),
        }
    }

    fn has(&self, plant: Plant) -> bool {
        self.plant == Some(plant)
    }

    fn apply(&mut self, op: Op) -> TestCaseResult {
        let mut notices = Vec::new();
        match op {
            Op::Want(bits) => {
                let wanted = NAMES.into_iter().enumerate().filter(|(n, _)| bits & (1 << n) != 0);
                self.want(wanted.map(|(_, text)| name(text)).collect())?;
            }
            Op::Good(n, number) => {
                let key = key(n);
                let value = value(&key, number);
                self.cache.received(key, cached(value), &mut notices);
            }
            Op::Invalid(n) => self.cache.invalid(key(n), invalid(), &mut notices),
            Op::Delete(n) => self.cache.deleted(key(n), deleted(), &mut notices),
            Op::Report(n, code) => {
                self.cache.reported(key(n), error(Reason::Reported, code, "no such thing"), &mut notices);
            }
            Op::Lose => self.cache.connectivity(lost(), &mut notices),
            Op::Connect => self.cache.connected(&mut notices),
            Op::Late => {
                let keys: Vec<ResourceKey> = self.cache.entries().map(|entry| entry.key.clone()).collect();
                self.cache.sent(self.now, &keys);
                self.now = self.now.plus(PLAIN.resource_timeout());
                self.cache.tick(self.now, &mut notices);
            }
            Op::Ask => {
                self.ask();
            }
            Op::Deliver => {
                self.deliver()?;
            }
            Op::DeliverAll => self.deliver_all()?,
        }
        self.queue_notices(notices);
        Ok(())
    }

    /// Queues notices of the cache.
    fn queue_notices(&mut self, notices: Vec<WatcherNotice>) {
        if !notices.is_empty() {
            self.updates += 1;
            self.to_sources.push_back((UpdateId(self.updates), notices));
        }
    }

    fn want(&mut self, wanted: BTreeSet<Name>) -> TestCaseResult {
        self.accounts.retain(|name, _| wanted.contains(name));
        self.facts.retain(|name, _| wanted.contains(name));
        for name in &wanted {
            self.accounts.entry(name.clone()).or_default();
        }
        let mut out = Vec::new();
        self.sources.step(self.now, In::SetSources(wanted), &mut out);
        self.on_outputs(out, None)
    }

    /// Delivers the next message of the sources to the cache; returns true if there was one.
    fn ask(&mut self) -> bool {
        let mut notices = Vec::new();
        match self.to_cache.pop_front() {
            Some(Out::Watch(key, watcher)) => self.cache.watch(key, watcher, &mut notices),
            Some(Out::Unwatch(key, watcher)) => {
                self.cache.unwatch(&key, &watcher);
            }
            Some(Out::Processed(_) | Out::Fact(..) | Out::Gone(_)) => {}
            None => return false,
        }
        self.queue_notices(notices);
        true
    }

    /// Delivers the next notice of the cache to the sources; returns true if there was one.
    fn deliver(&mut self) -> Result<bool, TestCaseError> {
        let Some((update, notices)) = self.to_sources.pop_front() else { return Ok(false) };
        let mut delivered = Vec::new();
        for mut notice in notices {
            self.delivered_notices += 1;
            let current = self.views.get_mut(&notice.key).filter(|(watcher, _)| *watcher == notice.watcher);
            if let Some((_, view)) = current {
                view.on_outputs(notice.change.clone());
            }
            let is_lost = match &notice.change {
                ResourceChange::Ambient(_) => self.has(Plant::LosesAmbient),
                ResourceChange::Changed(Err(_)) => self.has(Plant::LosesFailures),
                ResourceChange::Changed(Ok(_)) => false,
            };
            if is_lost || (self.has(Plant::LosesNotices) && self.delivered_notices.is_multiple_of(3)) {
                continue;
            }
            if let Some((watcher, _)) = self.views.get(&notice.key).filter(|_| self.has(Plant::MixesWatchers))
            {
                notice.watcher = *watcher;
            }
            delivered.push(notice);
        }
        if self.has(Plant::LetsGoEarly) {
            delivered.extend(self.given_up());
        }
        let mut out = Vec::new();
        self.sources.step(self.now, In::Notices(update, delivered), &mut out);
        self.on_outputs(out, Some(update))?;
        Ok(true)
    }

    /// Changes a fact as if former endpoints were given up early.
    fn given_up(&self) -> Option<WatcherNotice> {
        let mut used = self.accounts.iter().filter(|(_, account)| account.in_use);
        let (_, account) =
            used.find(|(name, account)| self.named(name).is_some_and(|named| account.used != Some(named)))?;
        let key = ResourceKey::new(ResourceKind::Endpoints, account.used.clone()?);
        let watcher = self.views.get(&key)?.0;
        Some(WatcherNotice { watcher, key, change: ResourceChange::Changed(Err(deleted())) })
    }

    /// Checks the outputs of the sources, and queues them.
    fn on_outputs(&mut self, mut out: Vec<Out>, update: Option<UpdateId>) -> TestCaseResult {
        if self.has(Plant::LetsGoFirst) {
            out.sort_by_key(|output| !matches!(output, Out::Unwatch(..)));
        }
        if self.has(Plant::NeverProcessed) {
            out.retain(|output| !matches!(output, Out::Processed(_)));
        }
        if self.has(Plant::ProcessedEarly) {
            out.sort_by_key(|output| !matches!(output, Out::Processed(_)));
        }
        let processed = out.iter().rposition(|output| matches!(output, Out::Processed(_)));
        prop_assert_eq!(processed.map(|at| out[at].clone()), update.map(Out::Processed));
        prop_assert!(processed.is_none_or(|at| at + 1 == out.len()), "it is processed too early");
        let mut releases = false;
        for output in out {
            match output {
                Out::Watch(key, watcher) => {
                    prop_assert!(!releases, "something is released before all is watched");
                    let is_delivered =
                        key.kind == ResourceKind::Cluster || !self.has(Plant::AsksForClustersOnly);
                    let before = self.views.insert(key.clone(), (watcher, View::default()));
                    prop_assert_eq!(before, None, "{} is watched twice", key);
                    if is_delivered {
                        self.to_cache.push_back(Out::Watch(key, watcher));
                    }
                }
                Out::Unwatch(key, watcher) => {
                    releases = true;
                    let before = self.views.remove(&key).map(|(watcher, _)| watcher);
                    prop_assert_eq!(before, Some(watcher), "{} is not watched so", key);
                    if !self.has(Plant::KeepsWatching) {
                        self.to_cache.push_back(Out::Unwatch(key, watcher));
                    }
                }
                Out::Fact(name, fact) => self.on_fact(name, fact)?,
                Out::Gone(name) => prop_assert!(!self.accounts.contains_key(&name), "{} is gone", name),
                Out::Processed(_) => {}
            }
        }
        self.check_state()
    }

    fn on_fact(&mut self, name: Name, mut fact: SourceFact) -> TestCaseResult {
        let twice = if self.has(Plant::SaysItTwice) { 2 } else { 1 };
        match &fact.assigned {
            Assigned::Dropped(fault) if self.has(Plant::ForgetsDrops) => {
                fact.assigned = Assigned::Unknown(Some(fault.clone()));
            }
            Assigned::Unknown(Some(fault)) if self.has(Plant::DropsTheUnknown) => {
                fact.assigned = Assigned::Dropped(fault.clone());
            }
            Assigned::Unknown(_) | Assigned::Usable(_) | Assigned::Dropped(_) => {}
        }
        match &fact.note {
            Note::Node(_) if self.has(Plant::LosesTheNode) => fact.note = Note::Errors(Vec::new()),
            Note::Errors(_) if self.has(Plant::LosesTheNote) => fact.note = Note::Node(Arc::from(NODE)),
            Note::Node(_) | Note::Errors(_) => {}
        }
        for _ in 0..twice {
            let before = self.facts.insert(name.clone(), fact.clone());
            prop_assert!(before.as_ref() != Some(&fact), "the same is said twice of {}", name);
        }
        Ok(())
    }

    fn view(&self, key: &ResourceKey) -> View {
        self.views.get(key).map(|(_, view)| view.clone()).unwrap_or_default()
    }

    /// Returns the endpoints that a source names, by the notices delivered so far.
    fn named(&self, name: &Name) -> Option<Arc<str>> {
        match name {
            Name::Endpoints(endpoints) => Some(Arc::clone(endpoints)),
            Name::Cluster(cluster) => {
                match self.view(&ResourceKey::new(ResourceKind::Cluster, Arc::clone(cluster))).value? {
                    ResourceValue::Cluster(cluster) => Some(cluster.eds_name),
                    ResourceValue::Endpoints(_) => None,
                }
            }
        }
    }

    /// Checks that every fact follows from the delivered notices, and that the watched resources are those that the
    /// facts need.
    fn check_state(&mut self) -> TestCaseResult {
        let mut needed = BTreeSet::new();
        let mut accounts = self.accounts.clone();
        for (name, account) in &mut accounts {
            needed.extend(self.check_source(name, account)?);
        }
        self.accounts = accounts;
        prop_assert!(self.facts.keys().eq(self.accounts.keys()), "facts of other sources");
        prop_assert!(self.views.keys().eq(&needed), "{:?} are watched, not {:?}", self.views.keys(), needed);
        Ok(())
    }

    /// Returns the resources that a source needs.
    fn check_source(
        &self,
        name: &Name,
        account: &mut Account,
    ) -> Result<BTreeSet<ResourceKey>, TestCaseError> {
        let of = |name: &Arc<str>| ResourceKey::new(ResourceKind::Endpoints, Arc::clone(name));
        let has = |name: &Arc<str>| self.view(&of(name)).value.is_some();
        let named = self.named(name);
        let mut needed: BTreeSet<ResourceKey> = named.iter().map(of).collect();
        if let Name::Cluster(cluster) = name {
            needed.insert(ResourceKey::new(ResourceKind::Cluster, Arc::clone(cluster)));
        }
        let former = account.used.clone().filter(|used| account.in_use && named.is_some() && has(used));
        let used = named.clone().filter(has).or(former);
        let fact = self.facts.get(name).cloned();
        let fact = fact.ok_or_else(|| TestCaseError::fail(format!("nothing is said of {name}")))?;
        needed.extend(used.iter().map(of));
        account.in_use = used.is_some();
        account.ever |= used.is_some();
        match (&fact.assigned, &used) {
            (Assigned::Usable(assignment), Some(used)) => {
                let value = ResourceValue::Endpoints(LoadAssignment::clone(assignment));
                prop_assert_eq!(self.view(&of(used)).value, Some(value), "{}", name);
                account.used = Some(Arc::clone(used));
            }
            (Assigned::Dropped(_), None) => {
                prop_assert!(account.ever, "{} is dropped and was never there", name);
                prop_assert!(self.policy.fail_on_data_errors, "{} is dropped against the policy", name);
            }
            (Assigned::Unknown(_), None) => {
                prop_assert!(!account.ever, "{} is unknown and was there", name);
            }
            (Assigned::Usable(_), None) | (Assigned::Unknown(_) | Assigned::Dropped(_), Some(_)) => {
                prop_assert!(false, "{} is {:?}, and {:?} should be used", name, fact, used);
            }
        }
        self.check_errors(name, &fact, &needed)?;
        Ok(needed)
    }

    /// Checks that exactly the errors of a source's resources are published: the one that ends its use as the error,
    /// and the rest beside it.
    fn check_errors(&self, name: &Name, fact: &SourceFact, needed: &BTreeSet<ResourceKey>) -> TestCaseResult {
        let mut wrong: Vec<(Fault, bool)> = Vec::new();
        for key in needed {
            let View { value, error } = self.view(key);
            wrong.extend(error.map(|error| (Fault::of(key, &error), value.is_some())));
        }
        let mut output: Vec<Fault> = match &fact.note {
            Note::Errors(faults) => {
                prop_assert!(!faults.is_empty(), "{} has no note", name);
                faults.clone()
            }
            Note::Node(id) => {
                prop_assert_eq!(&**id, NODE);
                Vec::new()
            }
        };
        for fault in &output {
            prop_assert!(wrong.iter().any(|(wrong, _)| wrong == fault), "{}: {:?} is not wrong", name, fault);
        }
        let ends = wrong.iter().find(|(_, is_there)| fact.assignment().is_none() && !is_there);
        match (ends, fact.error()) {
            (Some((ends, _)), Some(error)) => prop_assert_eq!(ends, error, "{}", name),
            (Some(_), None) => prop_assert!(false, "{} has no error: {:?}", name, fact),
            (None, error) => {
                let is_dropped = matches!(fact.assigned, Assigned::Dropped(_));
                prop_assert_eq!(error.is_some(), is_dropped, "{}", name);
            }
        }
        let notice = output.len();
        output.extend(fact.error().cloned());
        prop_assert!(wrong.iter().all(|(wrong, _)| output.contains(wrong)), "{}: {:?}", name, wrong);
        let doubled = (0..notice).any(|n| output[n + 1..notice].contains(&output[n]));
        prop_assert!(!doubled, "{}: the same is said twice: {:?}", name, output);
        Ok(())
    }

    /// Delivers all messages, and checks that the sources agree with the cache.
    fn deliver_all(&mut self) -> TestCaseResult {
        for _ in 0..ROUNDS {
            if !self.ask() && !self.deliver()? {
                let watched: BTreeSet<&ResourceKey> = self.cache.entries().map(|entry| entry.key).collect();
                prop_assert!(self.views.keys().eq(watched), "something else is watched");
                return self.compare();
            }
        }
        Err(TestCaseError::fail("it never comes to rest"))
    }

    /// Checks that a new watcher gets the state that the sources know.
    fn compare(&mut self) -> TestCaseResult {
        for (key, (_, view)) in &self.views {
            let (late, mut notices) = (WatcherId(u64::MAX), Vec::new());
            self.cache.watch(key.clone(), late, &mut notices);
            self.cache.unwatch(key, &late);
            let mut known = View::default();
            notices.into_iter().for_each(|notice| known.on_outputs(notice.change));
            prop_assert_eq!(view, &known, "{}", key);
        }
        Ok(())
    }

    /// Makes everything valid from now on, and checks that each source has its assignment, and no errors.
    fn calm(&mut self) -> TestCaseResult {
        self.want(NAMES.into_iter().map(name).collect())?;
        self.apply(Op::Connect)?;
        for round in [0_u8, 1] {
            // Endpoints arrive only after their clusters have named them.
            for n in (0..KEYS).chain(CLUSTERS..KEYS) {
                self.deliver_all()?;
                self.apply(Op::Good(n, 10 * round + n))?;
            }
            self.deliver_all()?;
            for (index, text) in NAMES.into_iter().enumerate() {
                let index = u8::try_from(index).expect("few");
                let endpoints = if index < CLUSTERS {
                    (10 * round + index) % (KEYS - CLUSTERS)
                } else {
                    index - CLUSTERS
                };
                let expected = Arc::new(assignment(10 * round + endpoints + CLUSTERS));
                let fact = self.facts.get(&name(text)).cloned();
                let expected = (Assigned::Usable(expected), Note::Node(Arc::from(NODE)));
                let output = fact.map(|fact| (fact.assigned, fact.note));
                prop_assert_eq!(output, Some(expected), "{}", text);
            }
        }
        Ok(())
    }
}

fn play((policy, ops): (Policy, Vec<Op>), plant: Option<Plant>) -> TestCaseResult {
    let mut world = World::new(policy, plant);
    for op in ops {
        world.apply(op)?;
    }
    world.calm()
}

proptest! {
    #[test]
    fn x3_a_source_is_dropped_only_by_its_own_policy(
        history in histories(),
    ) {
        play(history, None)?;
    }
}

#[test]
fn each_planted_bug_is_found() {
    each_is_found(Plant::ALL, 500, histories, |history, plant| play(history, Some(plant)));
}
