//! A cluster of the required size, as objects and load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use model::arm::{AdminState, Entry, LbFacts, PoolFacts, Provisioning, RuleFacts};
use model::guard::{Fraction, GuardMode};
use model::ids::{
    Family, LbName, NodeName, NodeUid, PoolId, PoolName, RulePrefix, ServiceKey, ServiceUid, SliceKey,
};
use model::load_balancers::LbObservation;
use model::machine::Now;
use model::object::{
    AddressType, Endpoint, NodeMarks, NodeObject, Object, ResourceVersion, ServiceObject, ServiceType,
    SliceObject,
};
use pools::directory;
use sources::informer::{self, Counts, Selector};

pub const SERVICES: usize = 10_000;
const ENDPOINTS: usize = 10;
const NODES: usize = 1_000;
pub const BALANCERS: usize = 50;

pub fn informer_params() -> informer::Params {
    informer::Params {
        counts: Counts::Hosted,
        multi_slb: true,
        namespaces: BTreeSet::new(),
        selector: Selector::default(),
        last_known_for: Duration::from_secs(300),
        fail_on_data_errors: false,
        control_plane: false,
        per_family: true,
    }
}

pub fn directory_params() -> directory::Params {
    directory::Params {
        removal_delay: Duration::from_secs(30),
        empty_confirm: Duration::from_secs(60),
        guards: GuardMode::Enforce,
        max_removal: Fraction::millionths(500_000),
        cluster_name: "kubernetes".into(),
        pins: None,
        listed: Vec::new(),
        only_listed: BTreeSet::new(),
        dry_run: false,
    }
}

fn version(number: u64) -> ResourceVersion {
    ResourceVersion(number.to_string().into())
}

fn uid(service: usize) -> ServiceUid {
    ServiceUid::new(format!("{service:08x}-0000-4000-8000-000000000000"))
}

fn key(service: usize) -> ServiceKey {
    ServiceKey::new("shop", format!("web-{service}"))
}

fn address(node: usize) -> IpAddr {
    let [.., high, low] = node.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 0, high, low))
}

/// Returns the node of an endpoint of a Service; the nodes of one Service are distinct.
fn node_of(service: usize, endpoint: usize, shift: usize) -> usize {
    (service * 7 + endpoint * 97 + if endpoint == 0 { shift } else { 0 }) % NODES
}

fn node_name(node: usize) -> NodeName {
    NodeName::new(format!("node-{node}"))
}

pub fn nodes(number: u64, ready: bool) -> Vec<Object> {
    let node = |n: usize| NodeObject {
        name: node_name(n),
        uid: NodeUid::new(format!("uid-{n}")),
        resource_version: version(number),
        internal_ips: vec![address(n)],
        marks: NodeMarks::default(),
        ready,
        taints: Vec::new(),
        instance: None,
        created: None,
        preempt: None,
    };
    (0..NODES).map(|n| Object::Node(Arc::new(node(n)))).collect()
}

pub fn services() -> Vec<Object> {
    let service = |n: usize| ServiceObject {
        key: key(n),
        uid: uid(n),
        resource_version: version(1),
        service_type: ServiceType::LoadBalancer,
        local: true,
        deleting: false,
        families: vec![Family::V4],
        paused: false,
        labels: BTreeMap::new(),
        internal: false,
        exposure: 1,
        has_class: false,
        has_ingress: true,
    };
    (0..SERVICES).map(|n| Object::Service(Arc::new(service(n)))).collect()
}

/// Returns the slices of all Services in this version; the first endpoint of each is moved by `shift` nodes.
pub fn slices(number: u64, shift: usize) -> Vec<Object> {
    let endpoint = |service: usize, n: usize| Endpoint {
        node: Some(node_name(node_of(service, n, shift))),
        identity: u64::try_from(service * ENDPOINTS + n).unwrap_or_default(),
        ready: true,
        serving: true,
        terminating: false,
    };
    let slice = |n: usize| SliceObject {
        key: SliceKey { namespace: "shop".into(), name: format!("web-{n}-x7k2p").into() },
        service: Some(key(n)),
        resource_version: version(number),
        address_type: AddressType::Ip(Family::V4),
        endpoints: (0..ENDPOINTS).map(|e| endpoint(n, e)).collect(),
        trigger_age: None,
    };
    (0..SERVICES).map(|n| Object::Slice(Arc::new(slice(n)))).collect()
}

fn balancer_name(lb: usize) -> LbName {
    LbName::new(format!("lb-{lb}"))
}

pub fn pool_id(service: usize) -> PoolId {
    PoolId::new(balancer_name(service % BALANCERS), PoolName::new(format!("shop-web-{service}")))
}

fn entry(node: usize) -> Entry {
    Entry {
        name: format!("node-{node}").into(),
        ip: Some(address(node)),
        admin_state: AdminState::None,
        network: None,
        instance: None,
    }
}

/// Returns a pool with the members of its Service, and this many unknown ones.
fn pool(service: usize, foreign_entries: usize) -> PoolFacts {
    let own = (0..ENDPOINTS).map(|n| entry(node_of(service, n, 0)));
    PoolFacts {
        id: pool_id(service),
        entries: own.chain((0..foreign_entries).map(|n| entry(NODES + n))).collect(),
        rules: vec![rule_name(service)],
        outbound_rule: false,
        inbound_nat_rule: false,
        nic_backed: false,
        sync_automatic: false,
        network: None,
        etag: None,
        provisioning: Provisioning::Succeeded,
    }
}

fn rule_name(service: usize) -> Arc<str> {
    format!("{}-TCP-80", RulePrefix::of(&uid(service)).as_str()).into()
}

/// Returns the observations of a round of discovery.
pub fn observations(began: Now, foreign_entries: usize) -> Vec<directory::In> {
    let facts = |lb: usize| {
        let own = || (0..SERVICES).filter(move |service| service % BALANCERS == lb);
        let rule = |service: usize| RuleFacts {
            name: rule_name(service),
            pool: Some(pool_id(service).pool),
            probed: true,
        };
        LbFacts {
            lb: balancer_name(lb),
            etag: None,
            guid: None,
            provisioning: Provisioning::Succeeded,
            pools: own().map(|service| Arc::new(pool(service, foreign_entries))).collect(),
            rules: own().map(rule).collect(),
        }
    };
    let observation = |lb: usize| LbObservation {
        lb: balancer_name(lb),
        began,
        facts: Some(Arc::new(facts(lb))),
        puts: Default::default(),
    };
    (0..BALANCERS).map(|lb| directory::In::Lb(observation(lb))).collect()
}
