//! The expectations about draining nodes: the admin states of their entries, their traffic, taints, records and events;
//! and the number of requests to ARM for these.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use simulator::models::arm::{Flows, LogEntry, Member, Method, Traffic};
use simulator::models::kube::Resource;
use simulator::{Azure, Cluster};

use super::{Done, Polling};
use crate::scenarios::azure::Entry;
use crate::scenarios::signals::Taint;
use crate::scenarios::stage::Stage;
use crate::scenarios::world::{NO_MEMBERS, ServiceName};

/// Namespace and name of the controller's ConfigMap.
const CONFIG_MAP: [&str; 2] = ["kube-system", "azure-backend-pool-controller"];
/// Prefix of the keys of records.
const RECORD: &str = "down.";

/// Subject of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum About {
    Service(ServiceName),
    Node(String),
}

impl About {
    /// Parses `<service>` or `node <node>`, and returns it with the remaining words.
    pub fn parse<'a, 'w>(words: &'a [&'w str]) -> Result<(Self, &'a [&'w str]), String> {
        match words {
            ["node", name, rest @ ..] => Ok((Self::Node((*name).to_owned()), rest)),
            ["node"] | [] => Err("an event is about <service> or node <node>".to_owned()),
            [service, rest @ ..] => Ok((Self::Service(ServiceName::parse(service)), rest)),
        }
    }

    /// Returns whether this event has this subject.
    pub fn is_of(&self, event: &Value) -> bool {
        let about = &event["involvedObject"];
        match self {
            Self::Service(ServiceName { namespace, name }) => {
                about["namespace"] == *namespace && about["name"] == *name
            }
            Self::Node(name) => about["kind"] == "Node" && about["name"] == *name,
        }
    }
}

/// Parses a list of nodes, which may be empty.
pub(super) fn nodes<'w>(words: &[&'w str]) -> Result<Vec<&'w str>, String> {
    match words {
        [] => Err(format!("nodes are missing at the end of the line; {NO_MEMBERS} means none")),
        words => Ok(words.iter().copied().filter(|word| *word != NO_MEMBERS).collect()),
    }
}

/// Returns whether these entries belong to these nodes, one entry per node.
pub(super) fn are_of(nodes: &[&str], entries: &[Entry], is_of: impl Fn(&str, &Entry) -> bool) -> bool {
    let nodes: Vec<&str> = nodes.iter().copied().filter(|node| *node != NO_MEMBERS).collect();
    let is_there = |node: &&str| entries.iter().any(|entry| is_of(node, entry));
    entries.len() == nodes.len() && nodes.iter().all(is_there)
}

impl Stage {
    /// Returns the network interfaces of a pool's entries, by the names of the entries.
    pub(super) async fn interfaces(&self, pool: &str) -> BTreeMap<String, String> {
        let Ok((lb, name)) = self.lb_and_pool(pool).await else { return BTreeMap::new() };
        let members = self.fakes.members(&lb, &name).await.unwrap_or_default();
        members.into_iter().filter_map(|member| Some((member.name, member.network_interface?))).collect()
    }

    /// Asserts that exactly the entries of these nodes are Down in a pool.
    pub(super) async fn expect_down(&mut self, pool: &str, words: &[&str]) -> Done {
        let (nodes, (lb, name)) = (nodes(words)?, self.lb_and_pool(pool).await?);
        let mut again = Polling::of(self);
        loop {
            let members = self.fakes.members(&lb, &name).await;
            let mut down = members.ok_or_else(|| format!("{lb} has no pool {name}"))?;
            down.retain(|member| member.admin_state == "Down");
            let is_of = |node: &str, member: &Member| {
                self.world.is_of(node, member.ip.parse().ok(), member.network_interface.as_deref())
            };
            let is_there = |node: &&str| down.iter().any(|member| is_of(node, member));
            if down.len() == nodes.len() && nodes.iter().all(is_there) {
                return Ok(());
            }
            again.more(&format!("Down are {down:?}")).await?;
        }
    }

    /// Asserts `new <nodes> [kept <nodes>]`: exactly the first members get new connections, and the others only keep
    /// their existing ones. All members count as healthy, so that only the admin state matters.
    pub(super) async fn expect_traffic(&mut self, pool: &str, words: &[&str]) -> Done {
        let ["new", words @ ..] = words else {
            return Err(format!("{words:?}: traffic is new <nodes> [kept <nodes>]"));
        };
        let (new, unchanged) = match words.iter().position(|word| *word == "kept") {
            Some(at) => (nodes(&words[..at])?, nodes(&words[at + 1..])?),
            None => (nodes(words)?, Vec::new()),
        };
        let (lb, name) = self.lb_and_pool(pool).await?;
        let mut again = Polling::of(self);
        loop {
            let (lb, name) = (lb.clone(), name.clone());
            let query = move |azure: &mut Azure, _| {
                let served = azure.model.traffic_of_pool(&lb, &name, |_| true).into_iter();
                served.map(|(member, traffic)| (member.to_owned(), traffic)).collect::<Vec<_>>()
            };
            let served = self.fakes.azure.ask(query).await;
            let is_of = |node: &str, member: &str| self.world.is_of(node, member.parse().ok(), Some(member));
            let are_served = |nodes: &[&str], new_connections: bool| {
                let traffic = Traffic { new_connections, existing: Flows::Kept };
                let so = served.iter().filter(|(_, actual)| *actual == traffic);
                let members: Vec<&str> = so.map(|(member, _)| member.as_str()).collect();
                let is_there = |node: &&str| members.iter().any(|member| is_of(node, member));
                members.len() == nodes.len() && nodes.iter().all(is_there)
            };
            if served.len() == new.len() + unchanged.len()
                && are_served(&new, true)
                && are_served(&unchanged, false)
            {
                return Ok(());
            }
            again.more(&format!("{served:?}")).await?;
        }
    }

    /// Asserts that a node has exactly these taints, or `none`.
    pub(super) async fn expect_taints(&mut self, node: &str, words: &[&str]) -> Done {
        let wanted: BTreeSet<Taint> = match words {
            [] => {
                return Err(
                    "taints are missing at the end of the line; write `none` for an empty list".to_owned()
                );
            }
            ["none"] => BTreeSet::new(),
            taints => taints.iter().map(|taint| Taint::parse(taint)).collect::<Result<_, _>>()?,
        };
        let mut again = Polling::of(self);
        loop {
            let name = node.to_owned();
            let query = move |cluster: &mut Cluster, _| cluster.model.get(Resource::Nodes, "", &name);
            let object =
                self.fakes.cluster.ask(query).await.ok_or_else(|| format!("there is no node {node}"))?;
            let actual = object["spec"]["taints"].as_array().into_iter().flatten().map(Taint::of);
            let actual: BTreeSet<Taint> = actual.collect();
            if actual == wanted {
                return Ok(());
            }
            again.more(&format!("{actual:?}")).await?;
        }
    }

    /// Asserts that the controller's ConfigMap has records of exactly these nodes (N4).
    pub(super) async fn expect_records(&mut self, words: &[&str]) -> Done {
        let wanted: BTreeSet<String> = nodes(words)?.into_iter().map(str::to_owned).collect();
        let mut again = Polling::of(self);
        loop {
            let query = |cluster: &mut Cluster, _| {
                let [namespace, name] = CONFIG_MAP;
                recorded(&cluster.model.get(Resource::ConfigMaps, namespace, name).unwrap_or_default())
            };
            let actual = self.fakes.cluster.ask(query).await;
            if actual == wanted {
                return Ok(());
            }
            again.more(&format!("{actual:?}")).await?;
        }
    }

    /// Waits until the controller has sent no request to ARM for this long.
    pub(super) async fn expect_quiet(&mut self, span_us: u64) -> Done {
        let mut again = Polling::of(self);
        loop {
            let (log, now_us) = (self.fakes.log().await, self.now_us());
            let ours = log.iter().filter(|call| !call.foreign);
            let last_us = ours.map(|call| call.ended_us).max().unwrap_or(0).max(self.zero_us);
            if now_us >= last_us + span_us {
                self.mark_us = now_us;
                return Ok(());
            }
            again.more("ARM was asked for something").await?;
        }
    }

    /// Asserts that the controller sends no request to ARM, or no write, until this time.
    pub(super) async fn expect_no_request(&mut self, only_writes: bool, end_us: u64) -> Done {
        self.wait_until(end_us).await;
        let (from_us, log) = (self.mark_us, self.fakes.log().await);
        let is_meant = |call: &&LogEntry| {
            let writes = !matches!(call.method, Method::Get | Method::Head);
            !call.foreign && (writes || !only_writes) && (from_us..end_us).contains(&call.started_us)
        };
        log.iter().find(is_meant).map_or(Ok(()), |call| Err(format!("there was one: {call:?}")))
    }
}

/// Returns the nodes with a record in a ConfigMap.
fn recorded(config_map: &Value) -> BTreeSet<String> {
    let data = config_map["data"].as_object().into_iter().flatten();
    let records = data.filter(|(key, _)| key.starts_with(RECORD)).filter_map(|(_, record)| record.as_str());
    records.filter_map(|record| record.lines().next()).map(str::to_owned).collect()
}

#[test]
fn an_event_is_about_a_service_or_a_node() {
    let web = About::Service(ServiceName::parse("web"));
    assert_eq!(About::parse(&["web", "x1", "why"]), Ok((web, &["x1", "why"][..])));
    assert_eq!(About::parse(&["node", "node-1"]), Ok((About::Node("node-1".to_owned()), &[][..])));
    for nothing in [&[][..], &["node"]] {
        assert_eq!(About::parse(nothing), Err("an event is about <service> or node <node>".to_owned()));
    }
    let event =
        serde_json::json!({ "involvedObject": { "kind": "Node", "name": "web", "namespace": "shop" } });
    assert!(About::Node("web".to_owned()).is_of(&event) && !About::Node("api".to_owned()).is_of(&event));
}

#[test]
fn a_list_of_nodes_may_be_empty_but_not_missing() {
    assert_eq!(nodes(&["node-1", "node-2"]), Ok(vec!["node-1", "node-2"]));
    assert_eq!(nodes(&["no-members"]), Ok(vec![]));
    assert!(nodes(&[]).expect_err("nothing").contains("means none"));
}

#[test]
fn records_are_recognised_by_their_first_lines() {
    let config_map = serde_json::json!({ "data": {
        "down.uid-1": "node-1\nips: 10.0.0.1\n", "down.uid-2": "node-2", "starts": "of the process",
    } });
    assert_eq!(recorded(&config_map), BTreeSet::from(["node-1".to_owned(), "node-2".to_owned()]));
    assert_eq!(recorded(&Value::Null), BTreeSet::new());
}
