//! The model of upstream's cloud-controller-manager, fed by watches, and the changes that other clients make to load
//! balancers.

use std::collections::{BTreeMap, BTreeSet};

use ::model::ids::{Family, ServiceKey};
use ::model::lease::LeaseName;
use serde_json::{Value, json};
use simulator_models::arm::{ArmModel, PoolSpec};
use simulator_models::ccm::{self as model, Answer, Call, CallId, CallTarget, Counters, In, Settings, Verb};
use simulator_models::kube::{KubeModel, Reply, Request, Resource, WatchId};

use crate::cluster::{Cluster, NAMESPACE, address, further_address};
use crate::codec::put_pool;
use crate::decode::{items, text};
use crate::leases::object_name;
use crate::random::Random;

/// The virtual network of all pools.
pub const NETWORK: &str = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/vnet";

/// Longest wait of the cloud-controller-manager between two attempts of one Service, except in some runs.
pub const MAX_RETRY_US: u64 = 40_000_000;
/// Prefix of the names of other clients' rules.
pub const FOREIGN: &str = "somebody";

/// The pool in which no admin state is written (N2, `adminState.excludePools`).
pub const EXCLUDED: &str = "aksOutboundBackendPool";

/// Downtime of a restart.
const RESTARTED_US: u64 = 2_000_000;

/// Resources that it watches, and their paths.
const WATCHED: [(Resource, &str); 3] = [
    (Resource::Nodes, "/api/v1/nodes"),
    (Resource::Services, "/api/v1/services"),
    (Resource::EndpointSlices, "/apis/discovery.k8s.io/v1/endpointslices"),
];

#[derive(Default)]
struct Feed {
    watch: Option<WatchId>,
    known: BTreeSet<(String, String)>,
    /// Time at which a refused watch is requested again.
    retry_at: u64,
}

/// Effect on the world.
pub enum Effect {
    /// An answer arrives at this time.
    Answer(u64, CallId, Answer),
    /// A Lease was written.
    LeaseWritten(LeaseName),
}

/// The cloud-controller-manager.
pub struct Ccm {
    random: Random,
    balancers: usize,
    model: model::Ccm,
    feeds: BTreeMap<Resource, Feed>,
    /// Load balancer of each Service, by name.
    placed: BTreeMap<String, usize>,
    /// Pools, by load balancer and name, that a rule without an owner also uses: they must not be written (D2).
    pub foreign: BTreeSet<(String, String)>,
    /// True if other clients add rules to pools.
    foreign_writes: bool,
    /// Pools to which another client may have added a rule.
    written: BTreeSet<(String, String)>,
    set_down: Vec<SetDown>,
    /// Cases of 20 foreign writes in which admin states are set by hand.
    by_hand: u64,
}

/// Returns the name of a load balancer.
pub fn balancer(number: usize) -> String {
    format!("Lb-{number}")
}

impl Ccm {
    /// Creates a manager without Services.
    pub fn new(balancers: usize, mut random: Random) -> Ccm {
        let lingers = random.per_mille(300);
        let settings = Settings {
            seed: random.next(),
            network: NETWORK.to_owned(),
            drops_unknown_fields: false,
            updater: random.per_mille(400),
            cache_us: if random.per_mille(200) { 120_000_000 } else { 0 },
            linger_per_mille: if lingers { 100 } else { 0 },
            linger_us: random.between(1_000_000, 60_000_000),
            crash_per_mille: if random.per_mille(150) { 20 } else { 0 },
            max_retry_us: if random.per_mille(200) { 300_000_000 } else { MAX_RETRY_US },
            ..Settings::default()
        };
        let (feeds, placed, foreign, written) = Default::default();
        let model = model::Ccm::new(settings);
        Ccm {
            random,
            balancers,
            model,
            feeds,
            placed,
            foreign,
            foreign_writes: true,
            written,
            set_down: Vec::new(),
            by_hand: 4,
        }
    }

    /// Creates the load balancers.
    pub fn begin(&self, arm: &mut ArmModel) {
        (0..self.balancers).for_each(|number| Ccm::create_balancer(arm, &balancer(number)));
    }

    /// Creates a load balancer with unused pools.
    pub fn create_balancer(arm: &mut ArmModel, lb: &str) {
        arm.add_load_balancer(lb);
        let nodes = (1..=2).map(|number| (format!("ip-{number}"), address(number, Family::V4).to_string()));
        let other = ("somebody".to_owned(), "10.9.9.9".to_owned());
        let spec = PoolSpec { members: nodes.chain([other]).collect(), ..PoolSpec::default() };
        arm.add_pool(lb, "kubernetes", &spec);
        arm.add_pool(lb, EXCLUDED, &spec);
        arm.add_outbound_rule(lb, "outbound", EXCLUDED);
        if lb == balancer(0) {
            // The members of one pool are network interfaces (N2).
            let instances = (0..3).map(|number| format!("node-{number}")).collect();
            arm.add_pool(lb, "interfaces", &PoolSpec { instances, ..PoolSpec::default() });
        }
    }

    /// Ends its faults.
    pub fn end_faults(&mut self) {
        self.model.reconfigure(|settings| {
            settings.linger_per_mille = 0;
            settings.crash_per_mille = 0;
            settings.max_retry_us = settings.max_retry_us.min(MAX_RETRY_US);
        });
    }

    /// Restarts it if it has lost the names of addresses: otherwise it would retry forever, until an operator restarts
    /// it.
    pub fn restart_if_lost(&mut self) {
        if self.model.is_up() && self.model.has_lost_names() {
            self.model.kill(RESTARTED_US);
        }
    }

    /// Disables its updater: it writes pools with Services and nodes only.
    pub fn leave_slices_alone(&mut self) {
        self.model.reconfigure(|settings| settings.updater = false);
    }

    /// Configures it like upstream's default next to the controller: its updater is disabled. There are no other
    /// clients.
    pub fn use_upstream_defaults(&mut self) {
        self.foreign_writes = false;
        self.model.reconfigure(|settings| {
            let plain = Settings::default();
            (settings.updater, settings.cache_us) = (false, plain.cache_us);
            (settings.linger_per_mille, settings.crash_per_mille) = (0, 0);
            settings.max_retry_us = plain.max_retry_us;
        });
    }

    /// Makes it request the shared Lease continuously, without early time-outs.
    pub fn keep_requesting_lease(&mut self) {
        self.model.reconfigure(|settings| settings.resync_us = Some(15_000_000));
        self.end_faults();
    }

    /// Returns the counters of its work.
    pub fn counters(&self) -> Counters {
        self.model.counters()
    }

    /// Returns whether it has nothing to do, and every Service that is being deleted is gone.
    pub fn is_done(&self, cluster: &Cluster) -> bool {
        self.model.is_idle() && !cluster.services.values().any(|service| service.deleting)
    }

    /// Returns the time of its next action without other input.
    pub fn deadline(&self) -> Option<u64> {
        let retry = self.feeds.values().filter(|feed| feed.watch.is_none()).map(|feed| feed.retry_at).min();
        [self.model.deadline(), retry].into_iter().flatten().min()
    }

    /// Handles changes and continues.
    pub fn step(
        &mut self,
        kube: &mut KubeModel,
        arm: &mut ArmModel,
        cluster: &mut Cluster,
        now: u64,
    ) -> Vec<Effect> {
        let mut calls = Vec::new();
        for (resource, path) in WATCHED {
            for (kind, object) in self.watched_objects(kube, resource, path, now) {
                self.feed(kube, cluster, now, resource, &kind, object, &mut calls);
            }
        }
        if self.model.deadline().is_some_and(|at| at <= now) {
            self.model.tick(now, &mut calls);
        }
        self.look_at_pools(arm, cluster);
        self.serve(kube, arm, now, calls)
    }

    /// Handles an answer.
    pub fn answered(
        &mut self,
        kube: &mut KubeModel,
        arm: &mut ArmModel,
        now: u64,
        call: CallId,
        answer: Answer,
    ) -> Vec<Effect> {
        let mut calls = Vec::new();
        self.model.step(now, In::Answer(call, answer), &mut calls);
        self.serve(kube, arm, now, calls)
    }

    /// Handles the events of one of its watches; a new watch starts with all objects.
    fn watched_objects(
        &mut self,
        kube: &mut KubeModel,
        resource: Resource,
        path: &str,
        now: u64,
    ) -> Vec<(String, Value)> {
        let feed = self.feeds.entry(resource).or_default();
        let mut lines = Vec::new();
        let mut is_new_list = false;
        if feed.watch.is_none_or(|watch| kube.watch_ended(watch)) {
            if now < feed.retry_at {
                return Vec::new();
            }
            if let Some(watch) = feed.watch.take() {
                kube.close_watch(watch);
            }
            feed.retry_at = now + 1_000_000;
            let request = Request::new("GET", &format!("{path}?watch=true&timeoutSeconds=100000"));
            let Reply::Watch(watch, first) = kube.handle(&request, now) else { return Vec::new() };
            (feed.watch, lines, is_new_list) = (Some(watch), first, true);
        }
        if let Some(watch) = feed.watch {
            lines.extend(kube.poll_watch(watch, now));
        }
        let mut objects = Vec::new();
        let mut found = BTreeSet::new();
        for line in lines {
            let Ok(mut event) = serde_json::from_slice::<Value>(&line) else { continue };
            let object = event["object"].take();
            let key = key_of(&object);
            match text(&event["type"]) {
                "DELETED" => feed.known.remove(&key),
                "ADDED" | "MODIFIED" => found.insert(key.clone()) | feed.known.insert(key),
                _ => continue,
            };
            objects.push((text(&event["type"]).to_owned(), object));
        }
        if is_new_list {
            let gone: Vec<(String, String)> = feed.known.difference(&found).cloned().collect();
            feed.known.retain(|key| found.contains(key));
            objects.extend(gone.into_iter().map(|(namespace, name)| {
                ("DELETED".to_owned(), json!({"metadata": {"namespace": namespace, "name": name}}))
            }));
        }
        objects
    }

    #[expect(clippy::too_many_arguments, reason = "the whole world")]
    fn feed(
        &mut self,
        kube: &mut KubeModel,
        cluster: &mut Cluster,
        now: u64,
        resource: Resource,
        kind: &str,
        object: Value,
        calls: &mut Vec<Call>,
    ) {
        let (namespace, name) = key_of(&object);
        let gone = kind == "DELETED";
        let input = match resource {
            Resource::Nodes if gone => In::NodeGone { name },
            Resource::Nodes => In::Node(object),
            Resource::Services if gone => {
                cluster.is_gone(kube, now, &name);
                In::ServiceGone { namespace, name }
            }
            Resource::Services => {
                let number = cluster.services.get(&name).map(|service| service.lb);
                let number = number.or_else(|| self.placed.get(&name).copied()).unwrap_or(0);
                self.placed.insert(name, number);
                In::Service { object, load_balancer: balancer(number) }
            }
            Resource::EndpointSlices if gone => In::SliceGone { namespace, name },
            Resource::EndpointSlices => In::Slice(object),
            Resource::Events
            | Resource::Namespaces
            | Resource::ConfigMaps
            | Resource::Secrets
            | Resource::Leases
            | Resource::EventsV1 => return,
        };
        self.model.step(now, input, calls);
    }

    fn serve(&mut self, kube: &mut KubeModel, arm: &mut ArmModel, now: u64, calls: Vec<Call>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for call in calls {
            self.record_rewrites(arm, &call);
            let (answer, after_us) = call.serve(kube, arm, now);
            let is_write = matches!(call.verb, Verb::Put | Verb::Post);
            if is_write && call.side == CallTarget::Kubernetes && call.path_and_query.contains("/leases") {
                effects.push(Effect::LeaseWritten(LeaseName::Shared));
            }
            effects.push(Effect::Answer(now + after_us + self.random.between(500, 5_000), call.id, answer));
        }
        effects
    }

    /// Records the pools that its writes create and delete. Another client sometimes adds a rule to a new pool, and
    /// removes it when the pool is no longer needed.
    fn look_at_pools(&mut self, arm: &mut ArmModel, cluster: &Cluster) {
        let there: BTreeSet<(String, String)> = arm
            .load_balancers()
            .flat_map(|lb| arm.pools(lb).map(move |pool| (lb.to_owned(), pool.to_owned())))
            .collect();
        self.written.retain(|pool| there.contains(pool));
        // A write of a whole load balancer may drop such a rule, or restore it.
        let has_rule = |(lb, pool): &&(String, String)| {
            let rules = arm.pool_json(lb, pool).map(|pool| rules_of(&pool)).unwrap_or_default();
            rules.contains(&foreign_rule(pool))
        };
        self.foreign = self.written.iter().filter(has_rule).cloned().collect();
        let candidates = cluster.services.values().filter(|service| service.is_candidate());
        let needed: BTreeSet<String> = candidates
            .flat_map(|service| service.families.iter().map(|family| pool_name(&service.key(), *family)))
            .collect();
        self.foreign.retain(|(lb, pool)| {
            if !needed.contains(pool) {
                arm.remove_rule(lb, &foreign_rule(pool));
            }
            needed.contains(pool)
        });
        for (lb, pool) in there {
            // A rule that is added during a write of the load balancer would exist twice after that write is
            // reverted.
            if arm.is_updating(&lb) {
                continue;
            }
            let own = pool.starts_with(NAMESPACE);
            if self.written.insert((lb.clone(), pool.clone()))
                && own
                && self.foreign_writes
                && self.random.per_mille(60)
            {
                arm.add_rule(&lb, &foreign_rule(&pool), &pool, true);
                self.foreign.insert((lb, pool));
            }
        }
    }

    /// Writes as another client without any lock: a pool's members, a whole load balancer, or unknown fields. Returns
    /// a description.
    pub fn write_without_lock(&mut self, arm: &mut ArmModel, cluster: &Cluster, now: u64) -> String {
        arm.tick(now);
        let pools: Vec<(String, String)> = arm
            .load_balancers()
            .flat_map(|lb| arm.pools(lb).map(move |pool| (lb.to_owned(), pool.to_owned())))
            .filter(|(_, pool)| pool.starts_with(NAMESPACE))
            .collect();
        let Some((lb, pool)) = self.random.pick(&pools) else { return String::new() };
        match self.random.below(20) {
            0 => {
                if (0..self.balancers).any(|number| arm.is_updating(&balancer(number))) {
                    return String::new();
                }
                arm.plant_unknown_fields();
                "unknown fields planted".to_owned()
            }
            index if index < self.by_hand => {
                let pool = if self.random.per_mille(250) { "kubernetes" } else { &pool };
                self.set_by_hand(arm, now, &lb, pool)
            }
            16 if self.foreign_writes => Ccm::change_rule(arm, &lb, &pool),
            17 => Ccm::name_subnets(arm, now, &lb, &pool),
            18.. => format!("foreign write of {lb}: {}", arm.foreign_load_balancer_put(&lb, now)),
            _ => {
                let family = if pool.ends_with("-ipv6") { Family::V6 } else { Family::V4 };
                let share = self.random.below(1_001);
                let mut members = Vec::new();
                for (name, node) in &cluster.nodes {
                    if self.random.per_mille(share) {
                        members.push((name.clone(), address(node.address, family).to_string()));
                    }
                    if let Some(further) = further_address(node.address, family)
                        && self.random.per_mille(share)
                    {
                        members.push((format!("{name}-further"), further.to_string()));
                    }
                }
                let members: Vec<(&str, &str)> =
                    members.iter().map(|(name, ip)| (name.as_str(), ip.as_str())).collect();
                let status = arm.foreign_put(&lb, &pool, &members, now);
                format!("foreign write of {lb}/{pool}: {members:?} {status}")
            }
        }
    }
}

/// An entry that another client has set Down, or may set Down again with a stale write.
pub struct SetDown {
    /// Load balancer.
    pub lb: String,
    /// Pool.
    pub pool: String,
    /// Address or interface.
    pub backend: String,
    /// True if the entry was not Down, and no other write was in flight there.
    pub is_certain: bool,
}

impl Ccm {
    /// Makes other clients mostly set admin states by hand.
    pub fn prefer_hands(&mut self) {
        self.by_hand = 16;
    }

    /// Returns the entries that others have set Down since the last call.
    pub fn take_set_down(&mut self) -> Vec<SetDown> {
        std::mem::take(&mut self.set_down)
    }

    /// Sets the admin state of an entry by hand, as another client. The controller must not change it, unless its
    /// node drains (N4).
    fn set_by_hand(&mut self, arm: &mut ArmModel, now: u64, lb: &str, pool: &str) -> String {
        let Some(mut document) = arm.pool_json(lb, pool) else { return String::new() };
        let busy = arm.is_updating(lb);
        let state = ["Down", "Down", "Down", "None", "Up"][self.random.index(5)];
        let entries = document["properties"]["loadBalancerBackendAddresses"].as_array_mut();
        let mut members: Vec<&mut Value> = entries.into_iter().flatten().collect();
        let of = |entry: &Value| entry["properties"]["adminState"].as_str().unwrap_or("None").to_owned();
        members.retain(|entry| of(entry) != state && !text(&entry["properties"]["ipAddress"]).is_empty());
        let index = self.random.index(members.len());
        let Some(member) = members.into_iter().nth(index) else { return String::new() };
        let backend = text(&member["properties"]["ipAddress"]).to_owned();
        member["properties"]["adminState"] = state.into();
        let status = put_pool(arm, lb, pool, &document, now);
        if status < 300 && state == "Down" {
            let (lb, pool, is_certain) = (lb.to_owned(), pool.to_owned(), !busy);
            self.set_down.push(SetDown { lb, pool, backend: backend.clone(), is_certain });
        }
        format!("{backend} of {lb}/{pool} is set {state} by hand: {status}")
    }

    /// Adds a rule to a pool, or removes it, at any time, as another client (Q4).
    fn change_rule(arm: &mut ArmModel, lb: &str, pool: &str) -> String {
        if arm.is_updating(lb) {
            return String::new();
        }
        let rule = foreign_rule(pool);
        let rules = arm.pool_json(lb, pool).map(|pool| rules_of(&pool)).unwrap_or_default();
        if rules.contains(&rule) {
            arm.remove_rule(lb, &rule);
            return format!("{rule} is taken from {lb}/{pool}");
        }
        arm.add_rule(lb, &rule, pool, true);
        format!("{rule} is added to {lb}/{pool}")
    }

    /// Names a subnet in each entry of a pool, as another client (W3).
    fn name_subnets(arm: &mut ArmModel, now: u64, lb: &str, pool: &str) -> String {
        let Some(mut document) = arm.pool_json(lb, pool) else { return String::new() };
        let entries = document["properties"]["loadBalancerBackendAddresses"].as_array_mut();
        for entry in entries.into_iter().flatten() {
            entry["properties"]["subnet"] = json!({ "id": format!("{NETWORK}/subnets/nodes") });
        }
        format!("subnets are named in {lb}/{pool}: {}", put_pool(arm, lb, pool, &document, now))
    }

    /// Records entries that a write of the cloud-controller-manager sets Down again, because they were Down when it
    /// read them.
    fn record_rewrites(&mut self, arm: &ArmModel, call: &Call) {
        let (Verb::Put, CallTarget::Arm, Some(body)) = (call.verb, call.side, &call.body) else { return };
        let path = call.path_and_query.split('?').next().unwrap_or_default();
        let after =
            |word: &str| Some(path.split_once(word)?.1.split('/').next().unwrap_or_default().to_owned());
        let Some(lb) = after("/loadBalancers/") else { return };
        let pools: Vec<(String, &Value)> = match after("/backendAddressPools/") {
            Some(pool) => vec![(pool, body)],
            None => {
                let pools = items(&body["properties"]["backendAddressPools"]).iter();
                pools.map(|pool| (text(&pool["name"]).to_owned(), pool)).collect()
            }
        };
        for (pool, body) in pools {
            let known = arm.pool_json(&lb, &pool).unwrap_or(Value::Null);
            let downs = |pool: &Value| -> BTreeSet<String> {
                let entries = items(&pool["properties"]["loadBalancerBackendAddresses"]).iter();
                let down = entries.filter(|entry| entry["properties"]["adminState"] == "Down");
                down.map(|entry| text(&entry["properties"]["ipAddress"]).to_owned()).collect()
            };
            for backend in &downs(body) - &downs(&known) {
                self.set_down.push(SetDown {
                    lb: lb.clone(),
                    pool: pool.clone(),
                    backend,
                    is_certain: false,
                });
            }
        }
    }
}

fn key_of(object: &Value) -> (String, String) {
    let meta = &object["metadata"];
    (text(&meta["namespace"]).to_owned(), text(&meta["name"]).to_owned())
}

/// Returns the name of the rule that another client adds to a pool.
fn foreign_rule(pool: &str) -> String {
    format!("{FOREIGN}-{pool}")
}

/// Returns the number of lock failures reported as events since a wall time in seconds since 1970.
pub fn lock_failures(kube: &KubeModel, since: &str) -> u32 {
    let mut count = 0;
    for event in kube.list(Resource::Events) {
        let of_lock = text(&event["message"]).contains("lock azure resources");
        if of_lock && text(&event["lastTimestamp"]) >= since {
            count += 1;
        }
    }
    count
}

/// Returns the Lease's object, if it exists.
pub fn lease_object(kube: &KubeModel, lease: LeaseName) -> Option<Value> {
    kube.get(Resource::Leases, crate::leases::NAMESPACE, object_name(lease))
}

/// Returns the name of a Service's own pool, as the cloud-controller-manager writes it.
pub fn pool_name(key: &ServiceKey, family: Family) -> String {
    let suffix = if family == Family::V6 { "-ipv6" } else { "" };
    format!("{}-{}{suffix}", key.namespace, key.name).to_lowercase()
}

/// Returns the names of the rules of a pool, as a GET shows them.
pub fn rules_of(pool: &Value) -> Vec<String> {
    let rules = items(&pool["properties"]["loadBalancingRules"]).iter();
    rules.filter_map(|rule| Some(rule["id"].as_str()?.rsplit('/').next()?.to_owned())).collect()
}
