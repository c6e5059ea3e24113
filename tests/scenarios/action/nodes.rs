//! The actions of a scenario on nodes: changes of addresses and labels, signals and their ends, and recreation; admin
//! states that another client sets; and kills and restarts of the controller.

use serde_json::{Value, json};
use simulator::models::arm::{Method, Reply, Request};
use simulator::models::kube::{Resource, build, rfc3339};
use simulator::{Azure, Cluster};

use super::{Done, was_done};
use crate::scenarios::signals::{Notice, Taint};
use crate::scenarios::stage::Stage;

/// Age of the nodes at the start of a scenario, in seconds.
const AGE_S: u64 = 3_600;

/// The taint of a cordoned node.
const CORDONED: &str = "node.kubernetes.io/unschedulable";

/// User agent of the cloud-controller-manager, which represents all other clients.
const OTHER_CLIENT: &str = "kubernetes-cloudprovider/somebody";

impl Stage {
    pub(super) async fn change_node(&mut self, name: &str, words: &[&str]) -> Done {
        match words {
            ["gone" | "deleted"] => {
                let there = self.fakes.delete(Resource::Nodes, "", name).await;
                return if there { Ok(()) } else { Err(format!("there is no node {name}")) };
            }
            ["ip", ips @ ..] => self.set_node(name, ips)?,
            ["label", key] => self.world.label_node(name, key, Some(""))?,
            ["label", key, value] => self.world.label_node(name, key, Some(value))?,
            ["unlabel", key] => self.world.label_node(name, key, None)?,
            ["machine", machine] => self.world.set_machine(name, machine)?,
            ["replaced"] => self.world.renew_node(name)?,
            ["replaced", "ip", ips @ ..] => {
                self.world.renew_node(name)?;
                self.set_node(name, ips)?;
            }
            other => return self.signal_node(name, other).await,
        }
        self.write_node(name).await
    }

    fn set_node(&mut self, name: &str, ips: &[&str]) -> Done {
        let ips = ips.iter().map(|ip| ip.parse().map_err(|_| format!("{ip:?} is not an address")));
        self.world.set_node(name, ips.collect::<Result<_, _>>()?);
        Ok(())
    }

    /// Adds or removes a signal of a node, or something similar that is no signal.
    async fn signal_node(&self, name: &str, words: &[&str]) -> Done {
        match words {
            ["taint", taint] => {
                let taint = Taint::parse(taint)?;
                self.edit_node(name, move |node| add_taint(node, &taint)).await
            }
            ["untaint", key] => {
                let Taint { key, .. } = Taint::parse(key)?;
                self.edit_node(name, move |node| remove_taints(node, &key)).await
            }
            ["cordoned"] => {
                let taint = Taint::parse(CORDONED)?;
                let edit = move |node: &mut Value| {
                    node["spec"]["unschedulable"] = json!(true);
                    add_taint(node, &taint);
                };
                self.edit_node(name, edit).await
            }
            ["uncordoned"] => {
                let edit = |node: &mut Value| {
                    node["spec"]["unschedulable"] = json!(false);
                    remove_taints(node, CORDONED);
                };
                self.edit_node(name, edit).await
            }
            ["ready"] => self.edit_node(name, |node| set_condition(node, readiness(true))).await,
            ["not-ready"] => self.edit_node(name, |node| set_condition(node, readiness(false))).await,
            ["notice", rest @ ..] => {
                let notice = Notice::parse(rest)?;
                let object = notice.object(name, &self.clock());
                if notice.is_condition() {
                    self.edit_node(name, |node| set_condition(node, object)).await
                } else {
                    self.apply(vec![object]).await
                }
            }
            other => Err(format!(
                "a node does not know {other:?}; it is gone, deleted, replaced [ip ADDRESSES], ready, not-ready, cordoned or \
                 uncordoned, or gets ip ADDRESSES, label KEY [VALUE], unlabel KEY, machine SET/NUMBER, taint TAINT, untaint \
                 KEY, or notice event|event-v1|condition"
            )),
        }
    }

    /// Writes a node's planned object. Existing taints and conditions stay while it is the same node.
    pub(super) async fn write_node(&self, name: &str) -> Done {
        let mut node = self.world.node_object(name)?;
        let wanted = name.to_owned();
        let old =
            self.fakes.cluster.ask(move |cluster, _| cluster.model.get(Resource::Nodes, "", &wanted)).await;
        match old.filter(|old| old["metadata"]["uid"] == node["metadata"]["uid"]) {
            Some(old) => {
                for field in ["taints", "unschedulable"] {
                    if let Some(value) = old["spec"].get(field) {
                        node["spec"][field] = value.clone();
                    }
                }
                node["status"]["conditions"] = old["status"]["conditions"].clone();
            }
            None if !self.world.is_renewed(name) => {
                let created = rfc3339(self.clock().epoch_s() - AGE_S);
                node["metadata"]["creationTimestamp"] = created.into();
            }
            // The API server has set its creation time.
            None => {}
        }
        self.apply(vec![node]).await
    }

    /// Edits a node's current object.
    async fn edit_node(&self, name: &str, edit: impl FnOnce(&mut Value) + Send + 'static) -> Done {
        let wanted = name.to_owned();
        let change = move |cluster: &mut Cluster, now_us| {
            let mut node = cluster.model.get(Resource::Nodes, "", &wanted)?;
            edit(&mut node);
            Some(cluster.model.apply(node, now_us).map(drop))
        };
        let changed = self.fakes.cluster.ask(change).await;
        let absent = || format!("there is no node {name}; `given nodes N` makes node-1 to node-N");
        changed.ok_or_else(absent)?.map_err(|refused| refused.to_string())
    }

    /// Sets the admin state of a node's entry as another client does, by a PUT of the whole pool; `none` omits it, like
    /// a client that does not know admin states.
    pub(super) async fn set_state(&self, state: &str, pool: &str, node: &str) -> Done {
        let (lb, name) = self.lb_and_pool(pool).await?;
        let query = {
            let (lb, name) = (lb.clone(), name.clone());
            move |azure: &mut Azure, _| azure.model.pool_json(&lb, &name)
        };
        let body = self.fakes.azure.ask(query).await;
        let mut body = body.ok_or_else(|| format!("{lb} has no pool {name}"))?;
        let entries = body["properties"]["loadBalancerBackendAddresses"].as_array_mut();
        let is_of = |entry: &&mut Value| {
            let of = &entry["properties"];
            let interface = of["networkInterfaceIPConfiguration"]["id"].as_str();
            let ip = of["ipAddress"].as_str().and_then(|ip| ip.parse().ok());
            self.world.is_of(node, ip, interface)
        };
        let entry = entries.into_iter().flatten().find(is_of);
        let properties = entry.and_then(|entry| entry["properties"].as_object_mut());
        let properties = properties.ok_or_else(|| format!("{pool} has no entry of {node}"))?;
        match state {
            "down" => properties.insert("adminState".to_owned(), "Down".into()),
            "up" => properties.insert("adminState".to_owned(), "Up".into()),
            _ => properties.remove("adminState"),
        };
        let id = body["id"].as_str().ok_or("the pool has no id")?;
        let request = Request {
            method: Method::Put,
            path_and_query: format!("{id}?api-version=2025-05-01"),
            headers: vec![("User-Agent".to_owned(), OTHER_CLIENT.to_owned())],
            body: body.to_string().into_bytes(),
        };
        match self.fakes.azure.ask(move |azure, now_us| azure.handle(&request, now_us)).await {
            Reply::Answer(answer) => was_done(answer.status),
            Reply::Lost { .. } | Reply::Refused => Err("the foreign PUT was not answered".to_owned()),
        }
    }

    /// Stops or kills the controller, or starts it with the current configuration.
    pub(super) async fn change_controller(&mut self, words: &[&str]) -> Done {
        match words {
            ["killed"] => self.kill().await,
            ["stopped"] => match self.stop().await? {
                status if status.code() == Some(0) => Ok(()),
                status => Err(format!("the controller ended with {status}")),
            },
            ["started"] => self.launch().await,
            other => Err(format!("the controller cannot be {other:?}: it is killed, stopped or started")),
        }
    }
}

fn add_taint(node: &mut Value, taint: &Taint) {
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let object = taint.object();
    // The API server rejects a second taint with the same key and effect.
    taints.retain(|known| known["key"] != object["key"] || known["effect"] != object["effect"]);
    taints.push(object);
    node["spec"]["taints"] = taints.into();
}

fn remove_taints(node: &mut Value, key: &str) {
    let Some(spec) = node["spec"].as_object_mut() else { return };
    let Some(taints) = spec.get_mut("taints").and_then(Value::as_array_mut) else { return };
    taints.retain(|known| known["key"] != key);
    // The API server omits an empty list.
    if taints.is_empty() {
        spec.remove("taints");
    }
}

/// Sets a condition, and replaces the one of the same type.
fn set_condition(node: &mut Value, condition: Value) {
    let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|known| known["type"] != condition["type"]);
    conditions.push(condition);
    node["status"]["conditions"] = conditions.into();
}

/// Returns the Ready condition of a Ready node, or of a node whose kubelet does not report.
fn readiness(ready: bool) -> Value {
    build::node("", &[], &[], ready, &[])["status"]["conditions"][0].take()
}

#[test]
fn foreign_taints_stay_and_the_last_taint_removes_the_list() {
    let mut node = build::node("node-1", &[], &[], true, &[("mine", "", "NoSchedule")]);
    let taint = Taint::parse("out-of-service").expect("a taint");
    add_taint(&mut node, &taint);
    add_taint(&mut node, &taint);
    let taints: Vec<Taint> =
        node["spec"]["taints"].as_array().expect("a list").iter().map(Taint::of).collect();
    assert_eq!(taints, [Taint::parse("mine").expect("a taint"), taint.clone()]);
    remove_taints(&mut node, "mine");
    remove_taints(&mut node, "of no one");
    assert_eq!(node["spec"]["taints"], json!([taint.object()]));
    remove_taints(&mut node, &taint.key);
    assert_eq!(node["spec"].get("taints"), None);
}

#[test]
fn a_condition_replaces_the_one_of_its_type() {
    let mut node = build::node("node-1", &[], &[], true, &[]);
    set_condition(&mut node, readiness(false));
    set_condition(&mut node, build::condition("Preempt", "Soon", "", "2026-11-22T16:30:35Z"));
    let conditions = node["status"]["conditions"].as_array().expect("a list");
    let words: Vec<[&str; 2]> = conditions
        .iter()
        .map(|condition| ["type", "status"].map(|field| condition[field].as_str().unwrap_or_default()))
        .collect();
    assert_eq!(words, [["Ready", "Unknown"], ["Preempt", "True"]]);
}
