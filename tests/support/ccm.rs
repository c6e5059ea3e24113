//! A second client that behaves as the cloud-controller-manager does: the simulator's model of it, driven over real
//! HTTP against the real API server and the fake Azure. It takes the same Lease and writes the same pools.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{Client, Method};
use serde_json::Value;
use simulator::models::ccm::{Answer, Call, CallTarget, Ccm, Counters, In, Settings};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::azure::Azure;
use super::kubernetes::Api;

/// Interval between reads of the cluster's objects.
const POLL_INTERVAL: Duration = Duration::from_millis(300);

/// A running cloud-controller-manager. Dropping this value stops it.
pub struct CloudControllerManager {
    sums: watch::Receiver<Sums>,
    running: AbortHandle,
}

impl CloudControllerManager {
    /// Starts a manager for a namespace. `load_balancer_of` returns each Service's load balancer.
    pub fn start(
        api: Api,
        azure: &Azure,
        namespace: &str,
        settings: Settings,
        load_balancer_of: fn(&str) -> &'static str,
    ) -> Self {
        let (published, sums) = watch::channel(Sums::default());
        let driver = Driver {
            ccm: Ccm::new(settings),
            began: Instant::now(),
            api,
            azure: azure.url().to_owned(),
            http: Client::builder().no_proxy().build().expect("a client"),
            namespace: namespace.to_owned(),
            load_balancer_of,
            known: BTreeMap::new(),
            published,
        };
        let running = tokio::spawn(driver.run());
        Self { sums, running: running.abort_handle() }
    }

    /// Returns the sums so far.
    pub fn sums(&self) -> Sums {
        *self.sums.borrow()
    }
}

impl Drop for CloudControllerManager {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// Counts of the model, and its waits for the Lease.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    /// The model's counters.
    pub counters: Counters,
    /// The longest time from the first failure to acquire the Lease until it was acquired, or until now.
    pub longest_wait: Duration,
    /// Time of the first failure since the last hold.
    waits_since: Option<Instant>,
}

impl Sums {
    /// Returns these sums with the model's current counters.
    fn with(self, counters: Counters) -> Self {
        let failed = counters.lock_failures > self.counters.lock_failures;
        let got = counters.holds > self.counters.holds;
        let waited = self.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        let waits_since = self.waits_since.filter(|_| !got).or_else(|| failed.then(Instant::now));
        Self { counters, longest_wait: self.longest_wait.max(waited), waits_since }
    }
}

struct Driver {
    ccm: Ccm,
    began: Instant,
    api: Api,
    azure: String,
    http: Client,
    namespace: String,
    load_balancer_of: fn(&str) -> &'static str,
    /// The known objects, by kind and name.
    known: BTreeMap<(&'static str, String), Value>,
    published: watch::Sender<Sums>,
}

impl Driver {
    fn now_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    async fn run(mut self) {
        let (answered, mut answers) = mpsc::unbounded_channel::<In>();
        let mut interval = tokio::time::interval(POLL_INTERVAL);
        loop {
            let mut calls = Vec::new();
            let due = self.ccm.deadline().map(|at| self.began + Duration::from_micros(at));
            let due = due.unwrap_or_else(|| Instant::now() + POLL_INTERVAL);
            tokio::select! {
                Some(answer) = answers.recv() => {
                    let now = self.now_us();
                    self.ccm.step(now, answer, &mut calls);
                }
                () = tokio::time::sleep_until(due) => {
                    let now = self.now_us();
                    self.ccm.tick(now, &mut calls);
                }
                _ = interval.tick() => self.observe(&mut calls).await,
            }
            for call in calls {
                self.spawn_call(call, answered.clone());
            }
            let sums = self.published.borrow().with(self.ccm.counters());
            self.published.send_replace(sums);
        }
    }

    /// Starts a request; its answer becomes an input.
    fn spawn_call(&self, call: Call, answered: mpsc::UnboundedSender<In>) {
        let (api, http, azure) = (self.api.clone(), self.http.clone(), self.azure.clone());
        drop(tokio::spawn(async move {
            let method = Method::from_bytes(call.verb.word().as_bytes()).expect("it is a method");
            let arrived = match call.side {
                CallTarget::Kubernetes => {
                    api.raw(method, &call.path_and_query, &call.headers, call.bytes()).await
                }
                CallTarget::Arm => {
                    let mut request = http.request(method, format!("{azure}{}", call.path_and_query));
                    for (name, value) in &call.headers {
                        request = request.header(name, value);
                    }
                    answer_of(request.body(call.bytes())).await
                }
            };
            let answer = arrived.unwrap_or(Answer::Lost);
            // The receiver is dropped when the test ends.
            drop(answered.send(In::Answer(call.id, answer)));
        }));
    }

    /// Passes the changes of the cluster to the model.
    async fn observe(&mut self, calls: &mut Vec<Call>) {
        let namespace = &self.namespace;
        let paths = [
            ("services", format!("/api/v1/namespaces/{namespace}/services")),
            ("slices", format!("/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices")),
            ("nodes", "/api/v1/nodes".to_owned()),
        ];
        for (kind, path) in paths {
            let Ok(items) = self.api.items(&path).await else { return };
            let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            let mut present: BTreeMap<String, Value> =
                items.into_iter().map(|item| (name(&item), item)).collect();
            let gone: Vec<String> = self
                .known
                .keys()
                .filter(|(known, name)| *known == kind && !present.contains_key(name))
                .map(|(_, name)| name.clone())
                .collect();
            let now = self.now_us();
            for name in gone {
                self.known.remove(&(kind, name.clone()));
                let namespace = self.namespace.clone();
                let input = match kind {
                    "services" => In::ServiceGone { namespace, name },
                    "slices" => In::SliceGone { namespace, name },
                    _ => In::NodeGone { name },
                };
                self.ccm.step(now, input, calls);
            }
            present.retain(|name, item| {
                let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
                let before = self.known.get(&(kind, name.clone()));
                before.is_none_or(|before| version(before) != version(item))
            });
            for (name, item) in present {
                self.known.insert((kind, name.clone()), item.clone());
                let input = match kind {
                    "services" => {
                        In::Service { object: item, load_balancer: (self.load_balancer_of)(&name).to_owned() }
                    }
                    "slices" => In::Slice(item),
                    _ => In::Node(item),
                };
                self.ccm.step(now, input, calls);
            }
        }
    }
}

/// Sends a request and returns the parts of the answer; `None` if there was none.
pub async fn answer_of(request: reqwest::RequestBuilder) -> Option<Answer> {
    let answer = request.send().await.ok()?;
    let status = answer.status().as_u16();
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let headers =
        answer.headers().iter().map(|(name, value)| (name.to_string(), text(value.as_bytes()))).collect();
    Some(Answer::Arrived { status, headers, body: answer.bytes().await.ok()?.to_vec() })
}
