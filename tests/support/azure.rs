//! A fake Azure of a story's own: the simulator's model of ARM behind HTTP on loopback, with every written pool on
//! record, and a cloud-controller-manager that makes pools and rules and sets no members.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::StatusCode;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use serde_json::{Value, json};
use simulator::models::arm::{
    ArmModel, Counters, Latency, Method, PoolSpec, Reply, Request, Settings, VirtualNetwork,
};
use simulator::{Clock, Model, Owner};

/// The virtual network that every pool names.
const VNET: &str = "vnet";
/// How long ARM takes to answer a write, in microseconds.
const PUT_US: u64 = 50_000;
/// How long a write's operation runs after its answer, in microseconds.
const OPERATION_US: u64 = 300_000;

/// A written pool.
#[derive(Clone, Debug)]
pub struct Put {
    /// When the request arrived, in microseconds of [`Azure::now_us`].
    pub at_us: u64,
    /// When it was answered.
    pub answered_us: u64,
    /// Who wrote: the request's `User-Agent`.
    pub who: String,
    /// The pool.
    pub pool: String,
    /// The addresses that were written; `None` when the body had no array of them.
    pub members: Option<BTreeSet<IpAddr>>,
}

/// The model and its record.
struct Recorded {
    model: ArmModel,
    puts: Vec<Put>,
}

impl Model for Recorded {
    fn revision(&self) -> u64 {
        self.puts.len() as u64
    }

    fn deadline(&self) -> Option<u64> {
        self.model.deadline()
    }

    fn tick(&mut self, now_us: u64) {
        self.model.tick(now_us);
    }
}

/// A running fake. Its listener stops with this value.
pub struct Azure {
    owner: Owner<Recorded>,
    url: String,
    load_balancers: Vec<String>,
    server: ServerHandle,
}

impl Azure {
    /// A fake with these load balancers and no pools, on the current runtime. Writes run on after their answer, as
    /// Azure's do.
    pub async fn start(load_balancers: &[&str]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has free ports");
        let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        let mut model = ArmModel::new(Settings {
            endpoint: url.clone(),
            get_latency: Latency::Fixed { us: 5_000 },
            put_latency: Latency::Fixed { us: PUT_US },
            operation: Some(Latency::Fixed { us: OPERATION_US }),
            operation_retry_after_s: Some(1),
            ..Settings::default()
        });
        for name in load_balancers {
            model.add_load_balancer(name);
        }
        let owner = Owner::start(Recorded { model, puts: Vec::new() }, Clock::start());
        let shared = owner.clone();
        let app =
            move || App::new().app_data(web::Data::new(shared.clone())).default_service(web::to(answer));
        let server =
            HttpServer::new(app).workers(1).disable_signals().listen(listener).expect("a listener").run();
        let handle = server.handle();
        tokio::spawn(server);
        let load_balancers = load_balancers.iter().map(ToString::to_string).collect();
        Self { owner, url, load_balancers, server: handle }
    }

    /// Its base URL.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// How long writes take from now on: to be answered, and then to be carried out.
    pub async fn take(&self, put: Duration, operation: Duration) {
        let fixed =
            |span: Duration| Latency::Fixed { us: u64::try_from(span.as_micros()).unwrap_or(u64::MAX) };
        let (put, operation) = (fixed(put), fixed(operation));
        let change = move |azure: &mut Recorded, _: u64| {
            azure.model.reconfigure(|settings| {
                settings.put_latency = put;
                settings.operation = Some(operation);
            });
        };
        self.owner.ask(change).await;
    }

    /// Microseconds since the fake was started.
    pub fn now_us(&self) -> u64 {
        self.owner.clock().now_us()
    }

    /// The cloud configuration that leads to this fake, as the cloud-controller-manager has it.
    pub fn cloud_config(&self) -> Value {
        let defaults = Settings::default();
        let balancers = self.load_balancers.iter().map(|name| json!({ "name": name, "primaryVMSet": name }));
        json!({
            "cloud": "AzurePublicCloud", "resourceManagerEndpoint": self.url,
            "tenantId": "00000000-0000-0000-0000-000000000001", "subscriptionId": defaults.subscription,
            "resourceGroup": defaults.resource_group, "location": defaults.location,
            "vnetName": VNET, "vnetResourceGroup": defaults.resource_group, "loadBalancerSku": "standard",
            "loadBalancerBackendPoolConfigurationType": "nodeIP",
            "loadBalancerBackendPoolUpdateIntervalInSeconds": 1,
            "multipleStandardLoadBalancerConfigurations": balancers.collect::<Vec<_>>(),
        })
    }

    /// Does for these Services what the cloud-controller-manager does when it sees them: a pool without members and a
    /// rule for each port, on the load balancer that `place` names.
    pub async fn provision(&self, services: &[Value], place: impl Fn(&str) -> String) {
        let subscription = Settings::default().subscription;
        let network = format!(
            "/subscriptions/{subscription}/resourceGroups/rg/providers/Microsoft.Network/virtualNetworks/{VNET}"
        );
        for service in services {
            let text = |field: &str| service["metadata"][field].as_str().expect("the API server names it");
            let (name, prefix) = (text("name"), rule_prefix(text("uid")));
            let (balancer, pool) = (place(name), pool_name(text("namespace"), name));
            let ports = service["spec"]["ports"].as_array().expect("a Service has ports");
            let rules: Vec<String> =
                ports.iter().map(|port| format!("{prefix}-TCP-{}", port["port"])).collect();
            let spec =
                PoolSpec { virtual_network: VirtualNetwork::Pool(network.clone()), ..PoolSpec::default() };
            let provision = move |azure: &mut Recorded, _: u64| {
                azure.model.add_pool(&balancer, &pool, &spec);
                for rule in rules {
                    azure.model.add_rule(&balancer, &rule, &pool, true);
                }
            };
            self.owner.ask(provision).await;
        }
    }

    /// Lets somebody's outbound rule use a pool.
    pub async fn add_outbound_rule(&self, load_balancer: &str, pool: &str) {
        let (load_balancer, pool) = (load_balancer.to_owned(), pool.to_owned());
        self.owner.ask(move |azure, _| azure.model.add_outbound_rule(&load_balancer, "egress", &pool)).await;
    }

    /// The members of every pool by the pool's name; names are unique in a story.
    pub async fn pools(&self) -> BTreeMap<String, BTreeSet<IpAddr>> {
        let pools = |azure: &mut Recorded, _: u64| {
            let model = &azure.model;
            let all = model.load_balancers().flat_map(|lb| model.pools(lb).map(move |pool| (lb, pool)));
            let members = |lb, pool| model.member_ips(lb, pool).unwrap_or_default().into_iter().map(address);
            all.map(|(lb, pool)| (pool.to_lowercase(), members(lb, pool).collect())).collect()
        };
        self.owner.ask(pools).await
    }

    /// The members of one pool.
    pub async fn members(&self, pool: &str) -> BTreeSet<IpAddr> {
        let mut pools = self.pools().await;
        pools.remove(&pool.to_lowercase()).unwrap_or_else(|| panic!("there is no pool {pool}"))
    }

    /// The writes so far, oldest first.
    pub async fn puts(&self) -> Vec<Put> {
        self.owner.ask(|azure, _| azure.puts.clone()).await
    }

    /// ARM's sums so far.
    pub async fn counters(&self) -> Counters {
        self.owner.ask(|azure, _| azure.model.counters()).await
    }

    /// Requires that no two writes of one load balancer ever overlapped, neither their requests nor their operations.
    pub async fn assert_serial(&self) {
        let balancers = self.load_balancers.clone();
        let most = move |azure: &mut Recorded, _: u64| {
            balancers.iter().map(|lb| azure.model.max_concurrent_puts(lb)).max().unwrap_or(0)
        };
        let (most, counters) = (self.owner.ask(most).await, self.counters().await);
        assert!(most <= 1, "{most} writes of one load balancer were under way at the same time");
        assert_eq!(
            (counters.refused_by_lock, counters.superseded),
            (0, 0),
            "a write met a running operation"
        );
    }
}

impl Drop for Azure {
    fn drop(&mut self) {
        // The server hears of it at once; nobody has to wait for its end.
        drop(self.server.stop(false));
    }
}

/// The name that the cloud-controller-manager gives to a Service's own IPv4 pool.
pub fn pool_name(namespace: &str, service: &str) -> String {
    format!("{namespace}-{service}").to_lowercase()
}

/// How the cloud-controller-manager begins the names of a Service's rules.
fn rule_prefix(uid: &str) -> String {
    format!("a{}", uid.replace('-', "")).chars().take(32).collect()
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is a member's address"))
}

async fn answer(request: HttpRequest, body: web::Bytes, owner: web::Data<Owner<Recorded>>) -> HttpResponse {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let asked = Request {
        method: Method::parse(request.method().as_str()),
        path_and_query: request.uri().to_string(),
        headers: request
            .headers()
            .iter()
            .map(|(name, value)| (name.to_string(), text(value.as_bytes())))
            .collect(),
        body: body.to_vec(),
    };
    let (reply, arrived_us) = owner.ask(move |azure, now_us| (azure.answer(&asked, now_us), now_us)).await;
    match reply {
        Reply::Answer(response) => {
            let due = owner.clock().instant(arrived_us.saturating_add(response.latency_us));
            tokio::time::sleep_until(due).await;
            let status =
                StatusCode::from_u16(response.status).expect("the model answers with valid statuses");
            let mut answer = HttpResponse::build(status);
            for (name, value) in &response.headers {
                answer.append_header((*name, value.as_ref()));
            }
            answer.body(response.body)
        }
        Reply::Lost { .. } | Reply::Refused => unreachable!("no story plants faults"),
    }
}

impl Recorded {
    fn answer(&mut self, request: &Request, now_us: u64) -> Reply {
        let mut written = (request.method == Method::Put).then(|| put(request, now_us));
        let reply = self.model.handle(request, now_us);
        if let (Some(put), Reply::Answer(response)) = (&mut written, &reply) {
            put.answered_us = now_us + response.latency_us;
        }
        self.puts.extend(written);
        reply
    }
}

/// Reads a PUT of `…/backendAddressPools/<pool>?…`.
fn put(request: &Request, at_us: u64) -> Put {
    let path = request.path_and_query.split('?').next().unwrap_or_default();
    let pool = path.rsplit('/').next().unwrap_or_default().to_lowercase();
    let body: Value = serde_json::from_slice(&request.body).unwrap_or(Value::Null);
    let entries = body["properties"]["loadBalancerBackendAddresses"].as_array();
    let members = entries.map(|entries| {
        entries.iter().filter_map(|entry| entry["properties"]["ipAddress"].as_str()).map(address).collect()
    });
    let agent = request.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("user-agent"));
    let who = agent.map_or_else(String::new, |(_, value)| value.clone());
    Put { at_us, answered_us: at_us, who, pool, members }
}
