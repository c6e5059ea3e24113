//! The objects of nodes in the modelled API server. Taints and conditions exist only there, because other clients
//! write them too.

use model::ids::Family;
use serde_json::{Value, json};
use simulator_models::kube::build;
use simulator_models::kube::{KubeModel, Resource};

use super::{Cluster, Node, address, apply, further_address};
use crate::clock::wall;
use crate::decode::{items, parse_time, text};

/// Type of the condition about events of the virtual machine.
const SCHEDULED: &str = "VMEventScheduled";
const HEARTBEAT: &str = "simulator/heartbeat";

impl Cluster {
    /// Adds a node, or creates it again under another UID and address.
    pub fn add_node(&mut self, kube: &mut KubeModel, now: u64, name: &str) {
        let address = self.new_address();
        self.add_node_at(kube, now, name, address);
    }

    /// Adds a node with an address that another node may have had before.
    pub fn add_node_at(&mut self, kube: &mut KubeModel, now: u64, name: &str, address: u64) {
        let life = self.new_life(name);
        self.nodes.insert(name.to_owned(), Node { address, life, excluded: false, ready: true });
        self.write_node(kube, now, name);
    }

    /// Gives a node another address.
    pub fn move_node(&mut self, kube: &mut KubeModel, now: u64, name: &str) {
        let address = self.new_address();
        if let Some(node) = self.nodes.get_mut(name) {
            node.address = address;
        }
        self.write_node(kube, now, name);
    }

    /// Deletes a node.
    pub fn delete_node(&mut self, kube: &mut KubeModel, now: u64, name: &str) {
        self.nodes.remove(name);
        kube.delete(Resource::Nodes, "", name, now);
    }

    /// Returns the UID of an existing node.
    pub fn node_uid(&self, name: &str) -> Option<String> {
        self.nodes.get(name).map(|node| build::uid("Node", "", &format!("{name}#{}", node.life)))
    }

    /// Returns when a node was created, in microseconds of the world; 0 if it was not, or at the start.
    pub fn began(&self, kube: &KubeModel, name: &str) -> u64 {
        let object = kube.get(Resource::Nodes, "", name).unwrap_or(Value::Null);
        let created = parse_time(text(&object["metadata"]["creationTimestamp"]));
        created.map_or(0, |at| u64::try_from(at - wall(0)).unwrap_or(0))
    }

    /// Writes a node's object; changes by other clients stay.
    pub fn write_node(&self, kube: &mut KubeModel, now: u64, name: &str) {
        let (Some(node), Some(uid)) = (self.nodes.get(name), self.node_uid(name)) else { return };
        let families = [Family::V4, Family::V6];
        let first = families.map(|family| address(node.address, family));
        let further = families.into_iter().filter_map(|family| further_address(node.address, family));
        let ips: Vec<String> = first.into_iter().chain(further).map(|ip| ip.to_string()).collect();
        let ips: Vec<&str> = ips.iter().map(String::as_str).collect();
        let labels: &[(&str, &str)] = if node.excluded {
            &[("node.kubernetes.io/exclude-from-external-load-balancers", "")]
        } else {
            &[]
        };
        let object = build::node(name, &ips, labels, node.ready, &[]);
        let mut object = build::with_uid(object, &uid);
        let stored = kube.get(Resource::Nodes, "", name);
        if let Some(stored) = stored.filter(|stored| stored["metadata"]["uid"] == *uid) {
            for path in ["/metadata/annotations", "/spec/taints"] {
                if let Some(stored_value) = stored.pointer(path) {
                    let (parent, field) = path.rsplit_once('/').expect("it is the path of a field");
                    object.pointer_mut(parent).expect("each node has it")[field] = stored_value.clone();
                }
            }
            for stored_value in items(&stored["status"]["conditions"]) {
                if stored_value["type"] != "Ready" {
                    object = build::with_condition(object, stored_value.clone());
                }
            }
        }
        apply(kube, now, object);
    }

    /// Changes the object of an existing node.
    fn edit_node(&self, kube: &mut KubeModel, now: u64, name: &str, edit: impl FnOnce(&mut Value)) {
        if let Some(mut object) = kube.get(Resource::Nodes, "", name) {
            edit(&mut object);
            apply(kube, now, object);
        }
    }

    /// Adds a taint to a node, replacing one with the same key and effect.
    pub fn taint(
        &self,
        kube: &mut KubeModel,
        now: u64,
        name: &str,
        (key, value, effect): (&str, &str, &str),
    ) {
        self.edit_node(kube, now, name, |object| {
            let mut taints = items(&object["spec"]["taints"]).to_vec();
            taints.retain(|taint| taint["key"] != key || taint["effect"] != effect);
            taints.push(json!({"key": key, "value": value, "effect": effect}));
            object["spec"]["taints"] = taints.into();
        });
    }

    /// Removes the taints with the selected keys from a node; returns whether there was one.
    pub fn untaint(&self, kube: &mut KubeModel, now: u64, name: &str, wanted: impl Fn(&str) -> bool) -> bool {
        let mut found = false;
        self.edit_node(kube, now, name, |object| {
            let before = items(&object["spec"]["taints"]);
            let left: Vec<Value> =
                before.iter().filter(|taint| !wanted(text(&taint["key"]))).cloned().collect();
            found = left.len() < before.len();
            if left.is_empty() {
                // The server omits an empty list.
                if let Some(spec) = object["spec"].as_object_mut() {
                    spec.shift_remove("taints");
                }
            } else {
                object["spec"]["taints"] = left.into();
            }
        });
        found
    }

    /// Sets the condition about events of a node's virtual machine; `None` removes it.
    pub fn set_scheduled_condition(
        &self,
        kube: &mut KubeModel,
        now: u64,
        name: &str,
        message: Option<(&str, &str)>,
    ) {
        self.edit_node(kube, now, name, |object| {
            if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
                conditions.retain(|condition| condition["type"] != SCHEDULED);
                conditions.extend(
                    message.map(|(message, since)| build::condition(SCHEDULED, SCHEDULED, message, since)),
                );
            }
        });
    }

    /// Changes an unused field of a node.
    pub fn touch_node(&self, kube: &mut KubeModel, now: u64, name: &str) {
        self.edit_node(kube, now, name, |object| {
            object["metadata"]["annotations"] = json!({ HEARTBEAT: now.to_string() });
        });
    }
}
