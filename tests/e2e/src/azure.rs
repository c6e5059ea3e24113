//! Azure as the tests use it: requests below one resource group, and waiting for operations.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use arm::{Clocks, RawAnswer, RawClient, RawMethod, RawRequest, Settings, Timeouts};
use model::machine::{Now, Wall};
use serde_json::Value;
use tokio::time::Instant;

use crate::environment::Environment;
use crate::wait;

/// The version of the network API, which is the product's.
const NETWORK: &str = "2025-05-01";
/// Time for which an operation may run.
const LIMIT: Duration = Duration::from_secs(15 * 60);

/// A client of Azure.
pub(crate) struct Azure {
    client: RawClient,
    /// The id of the resource group.
    group: String,
    pub(crate) location: String,
    /// Interval between polls.
    pub(crate) interval: Duration,
    /// Time of each GET and each PUT.
    times: RefCell<(Vec<Duration>, Vec<Duration>)>,
    /// The lowest remaining quotas, from headers.
    left: RefCell<Vec<(String, u64)>>,
}

/// The end of an operation.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// `Succeeded`, `Failed` or `Canceled`.
    pub(crate) status: String,
    /// Time from the answer of the request to the last poll.
    pub(crate) after: Duration,
    /// The body of that poll.
    pub(crate) body: Value,
}

impl Azure {
    pub(crate) fn new(environment: &Environment) -> anyhow::Result<Self> {
        let begin = Instant::now();
        let micros = |span: Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let settings = Settings {
            endpoint: environment.endpoint.clone(),
            subscription: environment.subscription.clone(),
            resource_group: environment.resource_group.clone(),
            api_version: NETWORK.to_owned(),
            identity: environment.identity.clone(),
            login: environment.login.clone(),
            user_agent: "azure-backend-pool-controller-e2e".to_owned(),
            timeouts: Timeouts { put: Duration::from_secs(60), ..Timeouts::default() },
            clocks: Clocks {
                now: Arc::new(move || Now::from_micros(micros(begin.elapsed()))),
                wall: Arc::new(wall),
            },
        };
        let group = format!(
            "/subscriptions/{}/resourceGroups/{}",
            environment.subscription, environment.resource_group
        );
        Ok(Self {
            client: RawClient::new(settings).context("failed to set up the client of Azure")?,
            group,
            location: environment.location.clone(),
            // A simulated Azure is polled more often: its operations are short.
            interval: Duration::from_millis(if environment.is_simulated() { 50 } else { 1000 }),
            times: RefCell::default(),
            left: RefCell::default(),
        })
    }

    /// Returns the id of a network resource, such as `loadBalancers/lb/backendAddressPools/pool`.
    pub(crate) fn id(&self, path: &str) -> String {
        format!("{}/providers/Microsoft.Network/{path}", self.group)
    }

    pub(crate) async fn get(&self, target: &str) -> anyhow::Result<RawAnswer> {
        self.send(RawMethod::Get, target, None, None).await
    }

    pub(crate) async fn put(&self, target: &str, body: Value) -> anyhow::Result<RawAnswer> {
        self.send(RawMethod::Put, target, Some(body), None).await
    }

    pub(crate) async fn put_if_match(
        &self,
        target: &str,
        body: Value,
        etag: &str,
    ) -> anyhow::Result<RawAnswer> {
        self.send(RawMethod::Put, target, Some(body), Some(etag.to_owned())).await
    }

    pub(crate) async fn post(&self, target: &str, body: Value) -> anyhow::Result<RawAnswer> {
        self.send(RawMethod::Post, target, Some(body), None).await
    }

    pub(crate) async fn delete(&self, target: &str) -> anyhow::Result<RawAnswer> {
        self.send(RawMethod::Delete, target, None, None).await
    }

    async fn send(
        &self,
        method: RawMethod,
        target: &str,
        body: Option<Value>,
        if_match: Option<String>,
    ) -> anyhow::Result<RawAnswer> {
        let request = RawRequest { method, target: target.to_owned(), api_version: NETWORK, if_match, body };
        let answer = self.client.send(&request).await;
        let answer = answer.map_err(|failure| anyhow::anyhow!("{method:?} {target}: {failure}"))?;
        self.record(method, &answer);
        Ok(answer)
    }

    fn record(&self, method: RawMethod, answer: &RawAnswer) {
        match method {
            RawMethod::Get => self.times.borrow_mut().0.push(answer.took),
            RawMethod::Put => self.times.borrow_mut().1.push(answer.took),
            RawMethod::Post | RawMethod::Delete => {}
        }
        for (name, value) in
            answer.headers.iter().filter(|(name, _)| name.starts_with("x-ms-ratelimit-remaining-"))
        {
            let Ok(value) = value.parse::<u64>() else { continue };
            let mut left = self.left.borrow_mut();
            match left.iter_mut().find(|(known, _)| known == name) {
                Some((_, least)) => *least = value.min(*least),
                None => left.push((name.clone(), value)),
            }
        }
    }

    /// Returns the median and the 95th percentile of the latencies of GETs and PUTs.
    pub(crate) fn times(&self) -> Option<[(Duration, Duration); 2]> {
        let quantiles = |times: &[Duration]| {
            let mut times = times.to_vec();
            times.sort();
            let at = |part: usize| {
                times.get((times.len() * part / 100).min(times.len().saturating_sub(1))).copied()
            };
            at(50).zip(at(95))
        };
        let times = self.times.borrow();
        Some([quantiles(&times.0)?, quantiles(&times.1)?])
    }

    /// Returns the lowest remaining value of each quota.
    pub(crate) fn left(&self) -> Vec<(String, u64)> {
        self.left.borrow().clone()
    }

    /// Waits for the operation that an answer has started; returns `None` if there is none.
    pub(crate) async fn end(&self, answer: &RawAnswer) -> anyhow::Result<Option<End>> {
        let Some(address) = operation(answer) else { return Ok(None) };
        let begin = Instant::now();
        let end = wait::until("the operation ends", (self.interval, LIMIT), async || {
            let poll = self.get(address).await?;
            ensure!(poll.status < 300, "the operation cannot be polled: {}", describe(&poll));
            let status = match poll.body["status"].as_str() {
                Some(status) => status.to_owned(),
                // `Location` answers with the resource at the end.
                None if poll.status == 202 => "InProgress".to_owned(),
                None => "Succeeded".to_owned(),
            };
            let ended = matches!(status.as_str(), "Succeeded" | "Failed" | "Canceled");
            Ok(if ended { Ok(End { status, after: begin.elapsed(), body: poll.body }) } else { Err(status) })
        })
        .await?;
        Ok(Some(end))
    }

    /// Returns an error unless a request has succeeded, and waits for its operation.
    pub(crate) async fn done(&self, what: &str, answer: &RawAnswer) -> anyhow::Result<()> {
        ensure!(answer.status < 300, "{what}: {}", describe(answer));
        match self.end(answer).await? {
            Some(End { status, body, .. }) if status != "Succeeded" => {
                bail!("{what}: the operation ended {status}: {body}")
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Waits until no operation runs on a load balancer, and returns it.
    pub(crate) async fn at_rest(&self, load_balancer: &str) -> anyhow::Result<Value> {
        let id = self.id(&format!("loadBalancers/{load_balancer}"));
        wait::until("no operation runs on the load balancer", (self.interval, LIMIT), async || {
            let answer = self.get(&id).await?;
            ensure!(answer.status == 200, "GET of {load_balancer}: {}", describe(&answer));
            let pools = answer.body["properties"]["backendAddressPools"].as_array();
            let states = pools.into_iter().flatten().chain([&answer.body]);
            let busy = states
                .filter_map(|it| it["properties"]["provisioningState"].as_str())
                .find(|state| matches!(*state, "Updating" | "Creating" | "Deleting"));
            Ok(match busy {
                Some(state) => Err(state.to_owned()),
                None => Ok(answer.body),
            })
        })
        .await
    }
}

/// Returns the URL of the status of an operation.
pub(crate) fn operation(answer: &RawAnswer) -> Option<&str> {
    let named = |name: &str| answer.headers.get(name).map(String::as_str).filter(|url| !url.is_empty());
    named("azure-asyncoperation").or_else(|| named("location"))
}

/// Returns the innermost code of an error; empty if there is none.
pub(crate) fn code(body: &Value) -> &str {
    let error = if body["error"].is_object() { &body["error"] } else { body };
    let inner = error["details"][0]["code"].as_str();
    inner.or_else(|| error["code"].as_str()).unwrap_or("")
}

/// Returns whether this server lacks such resources or methods, as a simulated one may.
pub(crate) fn is_unknown(answer: &RawAnswer) -> bool {
    answer.status == 405 || (answer.status == 404 && code(&answer.body) == "InvalidResourceType")
}

/// Returns a description of an answer for operators.
pub(crate) fn describe(answer: &RawAnswer) -> String {
    let code = code(&answer.body);
    if code.is_empty() { format!("HTTP {}", answer.status) } else { format!("HTTP {} {code}", answer.status) }
}

#[expect(clippy::disallowed_methods, reason = "tokens expire by it, and the suite has no clock port")]
fn wall() -> Wall {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Wall::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
