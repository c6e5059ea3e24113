//! A fake Azure for one test: the ARM of the simulator, which records every write, and the part of the
//! cloud-controller-manager that creates pools and rules but sets no members.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use serde_json::{Value, json};
use simulator::models::arm::topology::Cluster;
use simulator::models::arm::{
    ArmModel, Counters, Latency, Method, PoolSpec, Request, Settings, VirtualNetwork,
};
use simulator::{Arm, Clock, Exchange, Fate, Journal};
use tokio::sync::oneshot;

/// The virtual network that every pool names.
const VNET: &str = "vnet";
/// Time for which ARM takes to answer a write, in microseconds.
const PUT_US: u64 = 50_000;
/// Time for which a write's operation runs after its answer, in microseconds.
const OPERATION_US: u64 = 300_000;

/// A PUT of a pool.
#[derive(Clone, Debug)]
pub struct Put {
    /// Time at which the request arrived, in microseconds of [`Azure::now_us`].
    pub at_us: u64,
    /// Time at which it was answered.
    pub answered_us: u64,
    /// The client: the request's `User-Agent`.
    pub user_agent: String,
    /// The pool.
    pub pool: String,
    /// The written addresses; `None` if the body had no array of them.
    pub members: Option<BTreeSet<IpAddr>>,
    /// True if Azure rejected it, so that nothing was written.
    pub refused: bool,
}

/// A write of any resource.
#[derive(Clone, Debug)]
pub struct Write {
    /// Time at which the request arrived, in microseconds of [`Azure::now_us`].
    pub at_us: u64,
    /// Time at which it was answered.
    pub answered_us: u64,
    /// The client: the request's `User-Agent`.
    pub user_agent: String,
    /// The written path.
    pub path: String,
}

/// A running fake, which stops when it is dropped.
pub struct Azure {
    arm: Arm,
    journal: Journal,
    load_balancers: Vec<String>,
}

impl Azure {
    /// Starts a fake with these load balancers and no pools on the current runtime. As in Azure, the operation of a write
    /// continues after its answer.
    pub async fn start(load_balancers: &[&str]) -> Self {
        let settings = Settings {
            get_latency: Latency::Fixed { us: 5_000 },
            put_latency: Latency::Fixed { us: PUT_US },
            operation: Some(Latency::Fixed { us: OPERATION_US }),
            operation_retry_after_s: Some(1),
            ..Settings::default()
        };
        let arm = Arm::start(settings, Clock::start()).await.expect("loopback has free ports");
        let load_balancers: Vec<String> = load_balancers.iter().map(ToString::to_string).collect();
        let names = load_balancers.clone();
        let prepare = move |azure: &mut simulator::Azure, _: u64| {
            names.iter().for_each(|name| azure.model.add_load_balancer(name));
            azure.wire.record()
        };
        let journal = arm.azure.ask(prepare).await;
        Self { arm, journal, load_balancers }
    }

    /// Returns its base URL.
    pub fn url(&self) -> &str {
        &self.arm.url
    }

    /// Sets how long writes take from now on: until their answer, and then until the end of their operation.
    pub async fn set_write_latency(&self, put: Duration, operation: Duration) {
        let fixed =
            |span: Duration| Latency::Fixed { us: u64::try_from(span.as_micros()).unwrap_or(u64::MAX) };
        let (put, operation) = (fixed(put), fixed(operation));
        let change = move |azure: &mut simulator::Azure, _: u64| {
            azure.model.reconfigure(|settings| {
                settings.put_latency = put;
                settings.operation = Some(operation);
            });
        };
        self.arm.azure.ask(change).await;
    }

    /// Replaces the whole model with the resources of this cluster.
    pub async fn load_cluster(&self, cluster: Cluster) {
        let url = self.arm.url.clone();
        let load = move |azure: &mut simulator::Azure, _: u64| {
            let mut model = cluster.build(azure.model.settings().clone()).expect("Azure takes the cluster");
            model.set_endpoint(&url);
            azure.model = model;
        };
        self.arm.azure.ask(load).await;
    }

    /// Delays the answer to the first DELETE. Returns a receiver that completes when the request arrives, and a sender that
    /// releases the answer.
    pub async fn hold_first_deletion(&self) -> (oneshot::Receiver<()>, oneshot::Sender<()>) {
        let (arrived, arrival) = oneshot::channel();
        let (release, released) = oneshot::channel();
        let mut first = Some((arrived, released));
        let hook = move |_: &mut simulator::Azure, request: &Request, _| {
            let held = if request.method == Method::Delete { first.take() } else { None };
            let Some((arrived, released)) = held else { return Fate::Answered };
            // The receiver is dropped when the test ends.
            arrived.send(()).unwrap_or_default();
            Fate::Held(released)
        };
        self.arm.azure.ask(move |azure, _| azure.wire.intercept(hook)).await;
        (arrival, release)
    }

    /// Reads or changes the model.
    pub async fn model<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut ArmModel) -> T + Send + 'static,
    ) -> T {
        self.arm.azure.ask(move |azure, _| question(&mut azure.model)).await
    }

    /// Returns the microseconds since the start of the fake.
    pub fn now_us(&self) -> u64 {
        self.arm.azure.clock().now_us()
    }

    /// Returns the cloud configuration of the cloud-controller-manager for this fake.
    pub fn cloud_config(&self) -> Value {
        let defaults = Settings::default();
        let balancers = self.load_balancers.iter().map(|name| json!({ "name": name, "primaryVMSet": name }));
        json!({
            "cloud": "AzurePublicCloud", "resourceManagerEndpoint": self.arm.url,
            "tenantId": "00000000-0000-0000-0000-000000000001", "subscriptionId": defaults.subscription,
            "resourceGroup": defaults.resource_group, "location": defaults.location,
            "vnetName": VNET, "vnetResourceGroup": defaults.resource_group, "loadBalancerSku": "standard",
            "loadBalancerBackendPoolConfigurationType": "nodeIP",
            "loadBalancerBackendPoolUpdateIntervalInSeconds": 1,
            "multipleStandardLoadBalancerConfigurations": balancers.collect::<Vec<_>>(),
        })
    }

    /// Creates the resources of these Services as the cloud-controller-manager does: a pool without members and a rule
    /// for each port, on the load balancer that `load_balancer_of` names.
    pub async fn create_service_resources(
        &self,
        services: &[Value],
        load_balancer_of: impl Fn(&str) -> String,
    ) {
        let subscription = Settings::default().subscription;
        let network = format!(
            "/subscriptions/{subscription}/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/{VNET}"
        );
        for service in services {
            let ServiceResources { pool, rules } = ServiceResources::of(service);
            let balancer = load_balancer_of(text(service, "name"));
            let spec =
                PoolSpec { virtual_network: VirtualNetwork::Pool(network.clone()), ..PoolSpec::default() };
            let provision = move |azure: &mut simulator::Azure, _: u64| {
                azure.model.add_pool(&balancer, &pool, &spec);
                for rule in rules {
                    azure.model.add_rule(&balancer, &rule, &pool, true);
                }
            };
            self.arm.azure.ask(provision).await;
        }
    }

    /// Deletes the rules and pools of these Services as the cloud-controller-manager does.
    pub async fn delete_service_resources(
        &self,
        services: &[Value],
        load_balancer_of: impl Fn(&str) -> String,
    ) {
        for service in services {
            let ServiceResources { pool, rules } = ServiceResources::of(service);
            let balancer = load_balancer_of(text(service, "name"));
            let withdraw = move |azure: &mut simulator::Azure, _: u64| {
                rules.iter().for_each(|rule| azure.model.remove_rule(&balancer, rule));
                azure.model.remove_pool(&balancer, &pool);
            };
            self.arm.azure.ask(withdraw).await;
        }
    }

    /// Adds an outbound rule of another client to a pool.
    pub async fn add_outbound_rule(&self, load_balancer: &str, pool: &str) {
        let (load_balancer, pool) = (load_balancer.to_owned(), pool.to_owned());
        self.arm
            .azure
            .ask(move |azure, _| azure.model.add_outbound_rule(&load_balancer, "egress", &pool))
            .await;
    }

    /// Returns the members of every pool by the pool's name; names are unique in a test.
    pub async fn pools(&self) -> BTreeMap<String, BTreeSet<IpAddr>> {
        let pools = |azure: &mut simulator::Azure, _: u64| {
            let model = &azure.model;
            let all = model.load_balancers().flat_map(|lb| model.pools(lb).map(move |pool| (lb, pool)));
            let members = |lb, pool| model.member_ips(lb, pool).unwrap_or_default().into_iter().map(address);
            all.map(|(lb, pool)| (pool.to_lowercase(), members(lb, pool).collect())).collect()
        };
        self.arm.azure.ask(pools).await
    }

    /// Returns the members of one pool.
    pub async fn members(&self, pool: &str) -> BTreeSet<IpAddr> {
        let mut pools = self.pools().await;
        pools.remove(&pool.to_lowercase()).unwrap_or_else(|| panic!("there is no pool {pool}"))
    }

    /// Returns the writes so far, oldest first.
    pub async fn puts(&self) -> Vec<Put> {
        let journal = self.journal.clone();
        // Read in the task of the model, so that all earlier requests are included.
        let exchanges = self.arm.azure.ask(move |_, _| journal.borrow().clone()).await;
        let puts = exchanges.iter().filter(|exchange| exchange.request.method == Method::Put);
        puts.map(|exchange| put(exchange)).collect()
    }

    /// Returns the writes of anything so far, oldest first.
    pub async fn writes(&self) -> Vec<Write> {
        let journal = self.journal.clone();
        let exchanges = self.arm.azure.ask(move |_, _| journal.borrow().clone()).await;
        let is_write = |exchange: &&std::sync::Arc<Exchange>| exchange.request.method != Method::Get;
        let write = |exchange: &std::sync::Arc<Exchange>| Write {
            at_us: exchange.arrived_us,
            answered_us: exchange.ended_us.unwrap_or(u64::MAX),
            user_agent: exchange.header("User-Agent").unwrap_or_default().to_owned(),
            path: exchange.request.path_and_query.clone(),
        };
        exchanges.iter().filter(is_write).map(write).collect()
    }

    /// Returns the counters of ARM.
    pub async fn counters(&self) -> Counters {
        self.arm.azure.ask(|azure, _| azure.model.counters()).await
    }

    /// Asserts that no two writes of one load balancer overlapped, neither their requests nor their operations.
    pub async fn assert_serial(&self) {
        let balancers = self.load_balancers.clone();
        let most = move |azure: &mut simulator::Azure, _: u64| {
            balancers.iter().map(|lb| azure.model.max_concurrent_puts(lb)).max().unwrap_or(0)
        };
        let (most, counters) = (self.arm.azure.ask(most).await, self.counters().await);
        assert!(most <= 1, "{most} writes of one load balancer were in flight at the same time");
        assert_eq!(
            (counters.refused_by_lock, counters.superseded),
            (0, 0),
            "a write began during a running operation"
        );
    }
}

/// The Azure resources that the cloud-controller-manager creates for a Service.
struct ServiceResources {
    pool: String,
    rules: Vec<String>,
}

impl ServiceResources {
    fn of(service: &Value) -> Self {
        let prefix = rule_prefix(text(service, "uid"));
        let ports = service["spec"]["ports"].as_array().expect("a Service has ports");
        Self {
            pool: pool_name(text(service, "namespace"), text(service, "name")),
            rules: ports.iter().map(|port| format!("{prefix}-TCP-{}", port["port"])).collect(),
        }
    }
}

/// Returns a field of an object's metadata.
fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().expect("the API server names it")
}

/// Returns the name that the cloud-controller-manager gives to a Service's own IPv4 pool.
pub fn pool_name(namespace: &str, service: &str) -> String {
    format!("{namespace}-{service}").to_lowercase()
}

/// Returns the prefix that the cloud-controller-manager gives to the names of a Service's rules.
fn rule_prefix(uid: &str) -> String {
    format!("a{}", uid.replace('-', "")).chars().take(32).collect()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is a member's address"))
}

/// Returns the addresses that a request writes into a pool; `None` when its body has no array of them.
pub fn members(exchange: &Exchange) -> Option<BTreeSet<IpAddr>> {
    Some(exchange.addresses()?.iter().map(|ip| address(ip)).collect())
}

fn put(exchange: &Exchange) -> Put {
    Put {
        at_us: exchange.arrived_us,
        // A write whose answer is delayed is in flight until the answer is released.
        answered_us: exchange.ended_us.unwrap_or(u64::MAX),
        user_agent: exchange.header("User-Agent").unwrap_or_default().to_owned(),
        pool: exchange.pool().map(|pool| pool.pool).unwrap_or_default(),
        members: members(exchange),
        refused: exchange.status.is_some_and(|status| status >= 400),
    }
}
