//! Actions on many nodes and Services, and the resulting changes of the cluster and of Azure.

pub(super) mod leaving;

use serde_json::{Value, json};
use simulator_models::kube::Resource;

use crate::azure::Azure;
use crate::cluster::Cluster;
use crate::convergence::PoolName;
use crate::world::World;

use leaving::Edit;
pub use leaving::NodeDisruption;

/// A simultaneous change of many nodes or Services.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disruption {
    /// New nodes join; no pod runs there yet.
    AddNodes(usize),
    /// Nodes are deleted; their pods run elsewhere immediately.
    LoseNodes {
        /// Number of nodes.
        count: usize,
        /// True for the oldest nodes, false for the newest.
        oldest: bool,
    },
    /// The oldest nodes are deleted with all their pods, which are not replaced until Services are scaled back.
    FailNodes(usize),
    /// The oldest nodes get a label.
    LabelNodes {
        /// Number of nodes.
        count: usize,
        /// Its key.
        key: String,
        /// Its value; may be empty.
        value: String,
    },
    /// The label is removed from all nodes.
    UnlabelNodes(String),
    /// The objects of the oldest nodes are deleted, while their pods still run and stay in their slices.
    HideNodes(usize),
    /// The deleted objects of nodes are recreated.
    ReturnNodes,
    /// Nodes start or stop draining.
    NodeDisruption(NodeDisruption),
    /// The first Services that have pods lose all of them.
    ScaleToZero(usize),
    /// Services that have lost pods get the same number again.
    ScaleBack,
    /// A namespace is deleted with its Services and slices, just after their rules and pools.
    DeleteNamespace,
}

impl Disruption {
    /// Parses an action on `nodes`, `services` or `namespace`; returns `None` for other actions.
    pub(super) fn parse(words: &[&str]) -> Option<Result<Self, String>> {
        let count = |text: &str| text.parse::<usize>().map_err(|_| "a whole number".to_owned());
        let action = match words {
            ["nodes", "add", number] => count(number).map(Self::AddNodes),
            ["nodes", "delete", number] => {
                count(number).map(|count| Self::LoseNodes { count, oldest: false })
            }
            ["nodes", "delete", number, "oldest"] => {
                count(number).map(|count| Self::LoseNodes { count, oldest: true })
            }
            ["nodes", "fail", number] => count(number).map(Self::FailNodes),
            ["nodes", "label", number, label] => {
                let (key, value) = label.split_once('=').unwrap_or((label, ""));
                let (key, value) = (key.to_owned(), value.to_owned());
                count(number).map(|count| Self::LabelNodes { count, key, value })
            }
            ["nodes", "unlabel", key] => Ok(Self::UnlabelNodes((*key).to_owned())),
            ["nodes", "vanish", number] => count(number).map(Self::HideNodes),
            ["nodes", "return"] => Ok(Self::ReturnNodes),
            ["services", "scale-to-zero", number] => count(number).map(Self::ScaleToZero),
            ["services", "scale-back"] => Ok(Self::ScaleBack),
            ["namespace", "delete"] => Ok(Self::DeleteNamespace),
            _ => return NodeDisruption::parse(words).map(|action| action.map(Self::NodeDisruption)),
        };
        Some(action)
    }

    /// Returns the same disruption in a scenario that runs `speed` times as fast.
    pub(super) fn faster(self, speed: u32) -> Self {
        match self {
            Self::NodeDisruption(action) => Self::NodeDisruption(action.faster(speed)),
            other @ (Self::AddNodes(_)
            | Self::LoseNodes { .. }
            | Self::FailNodes(_)
            | Self::LabelNodes { .. }
            | Self::UnlabelNodes(_)
            | Self::HideNodes(_)
            | Self::ReturnNodes
            | Self::ScaleToZero(_)
            | Self::ScaleBack
            | Self::DeleteNamespace) => other,
        }
    }

    /// Returns whether the required members of pools change.
    pub(super) fn changes_expected_members(&self) -> bool {
        match self {
            Self::NodeDisruption(action) => action.changes_expected_members(),
            Self::AddNodes(_)
            | Self::LoseNodes { .. }
            | Self::FailNodes(_)
            | Self::LabelNodes { .. }
            | Self::UnlabelNodes(_)
            | Self::HideNodes(_)
            | Self::ReturnNodes
            | Self::ScaleToZero(_)
            | Self::ScaleBack
            | Self::DeleteNamespace => true,
        }
    }

    /// Applies the disruption to the planned cluster, and returns the resulting changes of the models.
    pub(super) fn begin(&self, world: &mut World, trigger_time: &str) -> Shift {
        let mut shift = Shift::default();
        match self {
            Self::AddNodes(count) => shift.objects = world.add_nodes(*count),
            Self::LoseNodes { count, oldest } => {
                let (gone, changed) = world.lose_nodes(*count, *oldest);
                shift.deleted = gone.into_iter().map(node).collect();
                shift.objects = world.changed_slices(&changed, trigger_time);
            }
            Self::FailNodes(count) => {
                let (gone, changed) = world.fail_nodes(*count);
                shift.deleted = gone.into_iter().map(node).collect();
                shift.objects = world.changed_slices(&changed, trigger_time);
            }
            Self::LabelNodes { count, key, value } => {
                let label = |node| (node, key.clone(), Some(value.clone()));
                shift.labels = world.oldest_nodes(*count).into_iter().map(label).collect();
            }
            Self::UnlabelNodes(key) => {
                let nodes = world.oldest_nodes(usize::MAX).into_iter();
                shift.labels = nodes.map(|node| (node, key.clone(), None)).collect();
            }
            Self::HideNodes(count) => {
                shift.hidden = world.oldest_nodes(*count);
                shift.deleted = shift.hidden.iter().cloned().map(node).collect();
            }
            Self::ReturnNodes => shift.returns = true,
            Self::NodeDisruption(action) => return action.begin(world, trigger_time),
            Self::ScaleToZero(count) => {
                let (changed, deleted) = world.scale_to_zero(*count);
                let slice = |(namespace, name)| (Resource::EndpointSlices, namespace, name);
                shift.deleted = deleted.into_iter().map(slice).collect();
                shift.objects = world.changed_slices(&changed, trigger_time);
            }
            Self::ScaleBack => {
                let changed = world.scale_back();
                shift.objects = world.changed_slices(&changed, trigger_time);
            }
            Self::DeleteNamespace => {
                let Some(gone) = world.delete_namespace() else { return shift };
                let own = |kind, names: Vec<String>| {
                    let namespace = gone.namespace.clone();
                    names.into_iter().map(move |name| (kind, namespace.clone(), name))
                };
                shift.deleted = own(Resource::Services, gone.services)
                    .chain(own(Resource::EndpointSlices, gone.slices))
                    .collect();
                shift.pools = gone.pools;
            }
        }
        shift
    }
}

fn node(name: String) -> (Resource, String, String) {
    (Resource::Nodes, String::new(), name)
}

/// Changes of the models.
#[derive(Clone, Debug, Default)]
pub(super) struct Shift {
    /// Kind, namespace and name of objects to delete.
    deleted: Vec<(Resource, String, String)>,
    /// Objects to write after that.
    objects: Vec<Value>,
    /// Labels that nodes get or lose.
    labels: Vec<(String, String, Option<String>)>,
    /// Nodes and their edits.
    edits: Vec<(String, Edit)>,
    /// Nodes with an eviction notice, each with the time until the eviction in microseconds.
    notices: Vec<(String, u64)>,
    /// The nodes with stopped machines, if that changes.
    stopped: Option<Vec<String>>,
    /// Nodes whose objects are kept for their return.
    hidden: Vec<String>,
    /// True if the hidden nodes return.
    returns: bool,
    /// Pools to remove, each with its rule.
    pools: Vec<(PoolName, String)>,
}

impl Shift {
    pub(super) fn on_cluster(&self, cluster: &mut Cluster, now_us: u64) {
        let model = &mut cluster.model;
        let hidden = self.hidden.iter().filter_map(|name| model.get(Resource::Nodes, "", name));
        cluster.hidden_nodes.extend(hidden.collect::<Vec<_>>());
        for (kind, namespace, name) in &self.deleted {
            model.delete(*kind, namespace, name, now_us);
        }
        // A Service is deleted when the cloud-controller-manager has removed its finalizer.
        let waiting =
            self.deleted.iter().filter_map(|(kind, namespace, name)| model.get(*kind, namespace, name));
        let released = waiting.map(|mut object| {
            object["metadata"]["finalizers"] = json!([]);
            object
        });
        let mut objects: Vec<Value> = released.chain(self.objects.iter().cloned()).collect();
        for (name, key, value) in &self.labels {
            let Some(mut node) = model.get(Resource::Nodes, "", name) else { continue };
            if node["metadata"]["labels"].get(key).and_then(Value::as_str) == value.as_deref() {
                continue;
            }
            match (value, node["metadata"]["labels"].as_object_mut()) {
                (Some(value), Some(labels)) => drop(labels.insert(key.clone(), value.clone().into())),
                (None, Some(labels)) => drop(labels.remove(key)),
                (Some(_) | None, None) => continue,
            }
            objects.push(node);
        }
        if self.returns {
            objects.append(&mut cluster.hidden_nodes);
        }
        for mut object in objects {
            if let Some(meta) = object["metadata"].as_object_mut() {
                meta.remove("resourceVersion");
            }
            model.apply(object, now_us).expect("the model accepts the objects of the builders");
        }
        for (name, edit) in &self.edits {
            edit.write(model, name, now_us);
        }
        self.signal(cluster, now_us);
    }

    /// Updates the signals of draining nodes.
    fn signal(&self, cluster: &mut Cluster, now_us: u64) {
        if let Some(stopped) = &self.stopped {
            leaving::stop_machines(cluster, stopped, now_us);
        }
        let Cluster { model, signals, .. } = cluster;
        if self.returns {
            signals.observe_all(model, now_us);
        }
        let deleted = self.deleted.iter().filter(|(kind, ..)| *kind == Resource::Nodes);
        let written = self.objects.iter().filter(|object| object["kind"] == "Node");
        let names = deleted
            .map(|(.., name)| name.as_str())
            .chain(written.filter_map(|object| object["metadata"]["name"].as_str()))
            .chain(self.edits.iter().map(|(name, _)| name.as_str()));
        for name in names {
            signals.observe(model, name, now_us);
        }
        for (name, notice_us) in &self.notices {
            signals.notice(model, name, now_us.saturating_add(*notice_us), now_us);
        }
    }

    pub(super) fn on_azure(&self, azure: &mut Azure, now_us: u64) {
        for (pool, rule) in &self.pools {
            azure.model.remove_rule(&pool.load_balancer, rule);
            azure.model.remove_pool(&pool.load_balancer, &pool.pool);
            azure.downs.observe(&azure.model, pool, now_us);
            azure.convergence.forget(pool, now_us);
            azure.outages.forget(pool, now_us);
        }
    }
}
