//! Actions and checks of tests about draining nodes (docs/design/nodes.md, N1-N5): taints set by kubectl, events like
//! those of a node problem detector, the entries of pools in Azure, and the records in the controller's ConfigMap.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::ops::Deref;

use jiff::{SignedDuration, Timestamp};
use reqwest::Client;
use serde_json::{Value, json};
use simulator::models::arm::Settings;

use super::{TestEnvironment, ips};
use crate::support::kubernetes::Cluster;
use crate::support::{TEST_TIMEOUT, eventually, objects};

/// The taint with which operators take a node out of service.
pub(super) const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service=maintenance:NoSchedule";
/// The argument of kubectl that removes it.
pub(super) const IN_SERVICE: &str = "node.kubernetes.io/out-of-service-";
/// The taint that the controller adds to an evicted node.
pub(super) const EVICTED: &str = "cloudprovider.azure.microsoft.com/draining=spot-eviction:NoSchedule";
/// The argument of kubectl that removes it.
pub(super) const NOT_EVICTED: &str = "cloudprovider.azure.microsoft.com/draining-";
/// The reason of events about evictions.
pub(super) const PREEMPT_SCHEDULED: &str = "PreemptScheduled";
/// Path of events about nodes.
pub(super) const EVENTS: &str = "/api/v1/namespaces/default/events";

/// The taint that a node has until the node lifecycle controller has seen it Ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// An entry of a backend pool.
#[derive(Debug)]
struct Entry {
    pool: String,
    ip: IpAddr,
    is_down: bool,
}

impl Entry {
    /// Parses an entry of a pool. Returns `None` if the pool has no name or the entry no IP address.
    fn of(pool: &Value, entry: &Value) -> Option<Self> {
        let properties = &entry["properties"];
        Some(Self {
            pool: pool["name"].as_str()?.to_lowercase(),
            ip: properties["ipAddress"].as_str()?.parse().ok()?,
            is_down: properties["adminState"] == "Down",
        })
    }
}

impl<C: Deref<Target = Cluster>> TestEnvironment<C> {
    /// Sets or removes a taint of a node with kubectl.
    pub(super) async fn taint(&self, number: u8, taint: &str) {
        self.cluster.kubectl(&["taint", "node", &self.node(number), taint]).await;
    }

    /// Creates an event that announces a node's eviction in 30 seconds, and returns it.
    pub(super) async fn create_notice(&self, number: u8) -> Value {
        let event = problem(&self.node(number), PREEMPT_SCHEDULED, &notice());
        self.api.create(EVENTS, &event).await
    }

    /// Returns the UID of a node.
    pub(super) async fn uid(&self, number: u8) -> String {
        let node = self.api.get(&self.node_path(number)).await.expect("the Node exists");
        node["metadata"]["uid"].as_str().expect("an object has a UID").to_owned()
    }

    /// Returns the taints of a node in kubectl's format.
    pub(super) async fn taints(&self, number: u8) -> Result<BTreeSet<String>, String> {
        let node = self.api.get(&self.node_path(number)).await?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let taint =
            |it: &Value| format!("{}={}:{}", text(&it["key"]), text(&it["value"]), text(&it["effect"]));
        Ok(items(&node["spec"]["taints"]).filter(|it| it["key"] != NOT_READY).map(taint).collect())
    }

    /// Waits until a node has exactly these taints.
    pub(super) async fn has_taints<const N: usize>(&self, number: u8, taints: [&str; N]) {
        let wanted: BTreeSet<String> = taints.into_iter().map(str::to_owned).collect();
        eventually(&format!("node {number} has the taints {wanted:?}"), TEST_TIMEOUT, || async {
            let found = self.taints(number).await?;
            if found == wanted { Ok(()) } else { Err(format!("{found:?}")) }
        })
        .await;
    }

    /// Waits until a node has no taint, which also means that Kubernetes has found it Ready.
    pub(super) async fn is_bare(&self, number: u8) {
        eventually(&format!("node {number} has no taint"), TEST_TIMEOUT, || async {
            let node = self.api.get(&self.node_path(number)).await?;
            let taints = &node["spec"]["taints"];
            if taints.is_null() { Ok(()) } else { Err(taints.to_string()) }
        })
        .await;
    }

    /// Returns the entries of all pools.
    async fn entries(&self) -> Result<Vec<Entry>, String> {
        let group = Settings::default().resource_group_id();
        let balancers = format!("{group}/providers/Microsoft.Network/loadBalancers?api-version=2025-05-01");
        let http = Client::builder().no_proxy().build().expect("a client");
        let answer = http.get(format!("{}{balancers}", self.azure.url())).send().await;
        let answer = answer.map_err(|error| format!("{error:?}"))?;
        let text = answer.text().await.map_err(|error| format!("{error:?}"))?;
        let list: Value = serde_json::from_str(&text).map_err(|error| format!("{error}: {text}"))?;
        let balancers = list["value"].as_array().ok_or(text)?;
        let pools = balancers.iter().flat_map(|it| items(&it["properties"]["backendAddressPools"]));
        let entries = pools.flat_map(|pool| {
            let of_pool = items(&pool["properties"]["loadBalancerBackendAddresses"]);
            of_pool.filter_map(move |entry| Entry::of(pool, entry))
        });
        Ok(entries.collect())
    }

    /// Returns the entries that are Down, each by its backend pool and its address.
    pub(super) async fn downs(&self) -> Result<BTreeSet<String>, String> {
        let entries = self.entries().await?;
        let down = entries.iter().filter(|entry| entry.is_down);
        Ok(down.map(|entry| format!("{} {}", entry.pool, entry.ip)).collect())
    }

    /// Waits until exactly the entries of these addresses are Down.
    pub(super) async fn are_down<const N: usize>(&self, addresses: [&str; N]) {
        let wanted = ips(addresses);
        eventually(&format!("the entries of {wanted:?} are Down"), TEST_TIMEOUT, || async {
            let entries = self.entries().await?;
            let known: BTreeSet<IpAddr> = entries.iter().map(|entry| entry.ip).collect();
            let in_sync = entries.iter().all(|entry| entry.is_down == wanted.contains(&entry.ip));
            if in_sync && wanted.is_subset(&known) { Ok(()) } else { Err(format!("{entries:?}")) }
        })
        .await;
    }

    /// Returns the records of nodes in the controller's ConfigMap, by their keys.
    pub(super) async fn records(&self) -> Result<BTreeMap<String, String>, String> {
        let map = self.api.get(&self.path("configmaps", objects::ACCOUNT)).await?;
        let data = map["data"].as_object().into_iter().flatten();
        let records = data.filter(|(key, _)| key.starts_with("down."));
        Ok(records.map(|(key, text)| (key.clone(), text.as_str().unwrap_or_default().to_owned())).collect())
    }

    /// Waits until exactly the nodes with these UIDs are recorded.
    pub(super) async fn are_recorded<const N: usize>(&self, uids: [&str; N]) {
        let wanted: BTreeSet<String> = uids.into_iter().map(|uid| format!("down.{uid}")).collect();
        eventually(&format!("the ConfigMap has the records {wanted:?}"), TEST_TIMEOUT, || async {
            let records = self.records().await?;
            if records.keys().eq(&wanted) { Ok(()) } else { Err(format!("{records:?}")) }
        })
        .await;
    }

    /// Waits until the API server has an event of this reason for a node, and returns it.
    pub(super) async fn node_event(&self, number: u8, reason: &str) -> Value {
        let node = self.node(number);
        let about = format!("involvedObject.kind=Node,involvedObject.name={node},reason={reason}");
        let path = format!("{EVENTS}?fieldSelector={about}");
        eventually(&format!("node {node} has the event {reason}"), TEST_TIMEOUT, || async {
            let mut events = self.api.items(&path).await?;
            events.pop().ok_or_else(|| "no such event".to_owned())
        })
        .await
    }
}

/// Returns an event about a node, in the form that the node problem detector uses: with the node's name as its UID.
pub(super) fn problem(node: &str, reason: &str, message: &str) -> Value {
    let now = format!("{:.0}", Timestamp::now());
    json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": { "name": format!("{node}.{}", reason.to_lowercase()), "namespace": "default" },
        "involvedObject": { "kind": "Node", "name": node, "uid": node },
        "reason": reason, "type": "Warning", "message": message,
        "source": {
            "component": "custom-scheduledevents-consolidated-preempt-plugin-monitor", "host": node,
        },
        "firstTimestamp": now, "lastTimestamp": now, "count": 1,
    })
}

/// Returns the message of an event that announces an eviction in 30 seconds.
pub(super) fn notice() -> String {
    let at = Timestamp::now() + SignedDuration::from_secs(30);
    let at = at.strftime("%a, %d %b %Y %H:%M:%S GMT");
    let more = "For more information, see https://aka.ms/aks/scheduledevents.";
    format!("Preempt Scheduled: {at}. DurationInSeconds: -1.  {more}")
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
