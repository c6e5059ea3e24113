//! The actions of a scenario except changes of pods, and their effects on the models.

use std::net::IpAddr;
use std::time::Duration;

use serde_json::Value;
use simulator_models::arm::{self, Latency, Method, Request};
use simulator_models::kube::Resource;

use super::disruption::{Disruption, Shift};
use super::model_setting::ModelSetting;
use super::reach::Reach;
use crate::azure::{Azure, FOREIGN_AGENT};
use crate::cluster::Cluster;
use crate::convergence::PoolName;
use crate::expected_members;
use crate::notation;
use crate::process_control::ProcessControl;
use crate::world::World;

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// A setting of ARM changes.
    Arm(ModelSetting),
    /// ARM aborts every connection, or serves again.
    ArmDown(bool),
    /// The API server refuses every connection, or serves again.
    ApiDown(bool),
    /// Latency of each answer of the API server.
    ApiSlow(Duration),
    /// The API server restarts: watches end, and their history is lost (410).
    ApiRestart,
    /// The next requests are answered 429 with this Retry-After in seconds.
    ApiThrottle {
        /// Number of requests.
        requests: u64,
        /// Retry-After.
        seconds: u64,
    },
    /// Lists of these kinds are answered 200 without objects, all others normally. Watches end, so that all clients
    /// list again.
    ListsEmpty(Vec<Resource>),
    /// The current content of etcd is saved as a backup.
    EtcdSave,
    /// etcd is restored from its backup.
    EtcdRestore,
    /// Many nodes or Services change at the same time.
    Disruption(Disruption),
    /// Another client removes one member from each n-th pool.
    TakeMembers(usize),
    /// Another client sets one member of each n-th pool Down.
    SetDown(usize),
    /// The n-th Service (modulo their number) gets another annotation, so that the cloud-controller-manager reconciles
    /// it.
    TouchService(usize),
    /// The wall clocks of ARM and of the API server jump by this number of seconds. A client that compares with them
    /// sees its own clock jump in the other direction.
    ClocksJump(i64),
    /// The controller's process is suspended or resumed, as on a suspended node.
    StandStill(bool),
    /// Limit of open files of the controller's process; `None` restores the system's limit.
    FilesLimit(Option<u64>),
    /// The controller's process is killed and restarted.
    Restart,
}

/// The kinds that lists can hide.
const LISTED: [Resource; 3] = [Resource::Services, Resource::EndpointSlices, Resource::Nodes];

impl Action {
    /// Parses the words after the time.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let count = |text: &str| text.parse::<usize>().map_err(|_| "a whole number".to_owned());
        let seconds = |text: &str| {
            let time = notation::duration(text)?;
            i64::try_from(time.as_secs()).map_err(|_| "a time that fits".to_owned())
        };
        if let Some(disruption) = Disruption::parse(words) {
            return disruption.map(Self::Disruption);
        }
        match words {
            ["arm", "down"] => Ok(Self::ArmDown(true)),
            ["arm", "up"] => Ok(Self::ArmDown(false)),
            ["arm", setting @ ..] => ModelSetting::parse(setting).map(Self::Arm),
            ["apiserver", "down"] => Ok(Self::ApiDown(true)),
            ["apiserver", "up"] => Ok(Self::ApiDown(false)),
            ["apiserver", "slow", time] => Ok(Self::ApiSlow(notation::duration(time)?)),
            ["apiserver", "restart"] => Ok(Self::ApiRestart),
            ["apiserver", "throttle", requests, "retry-after", seconds] => {
                Ok(Self::ApiThrottle { requests: count(requests)? as u64, seconds: count(seconds)? as u64 })
            }
            ["lists", "empty"] => Ok(Self::ListsEmpty(LISTED.to_vec())),
            ["lists", "empty", "services"] => Ok(Self::ListsEmpty(vec![Resource::Services])),
            ["lists", "empty", "endpointslices"] => Ok(Self::ListsEmpty(vec![Resource::EndpointSlices])),
            ["lists", "empty", "nodes"] => Ok(Self::ListsEmpty(vec![Resource::Nodes])),
            ["lists", "full"] => Ok(Self::ListsEmpty(Vec::new())),
            ["etcd", "save"] => Ok(Self::EtcdSave),
            ["etcd", "restore"] => Ok(Self::EtcdRestore),
            ["others", "take", "a", "member", "of", "every", number] => {
                count(number).map(|every| Self::TakeMembers(every.max(1)))
            }
            ["others", "set", "down", "a", "member", "of", "every", number] => {
                count(number).map(|every| Self::SetDown(every.max(1)))
            }
            ["a", "service", "changes"] => Ok(Self::TouchService(0)),
            ["clocks", "jump", time] => seconds(time).map(Self::ClocksJump),
            ["clocks", "jump", "back", time] => seconds(time).map(|time| Self::ClocksJump(-time)),
            ["controller", "stands", "still"] => Ok(Self::StandStill(true)),
            ["controller", "goes", "on"] => Ok(Self::StandStill(false)),
            ["controller", "restarts"] => Ok(Self::Restart),
            ["controller", "files", "unlimited"] => Ok(Self::FilesLimit(None)),
            ["controller", "files", number] => {
                count(number).map(|files| Self::FilesLimit(Some(files as u64)))
            }
            _ => Err("arm down|up|SETTING, apiserver down|up|slow TIME|restart|throttle N retry-after S, \
                      lists empty [KIND]|full, etcd save|restore, nodes add|delete|vanish N, nodes return, \
                      nodes fail N, nodes label N KEY|unlabel KEY, nodes taint N KEY[=VALUE]|untaint KEY, \
                      nodes stop N|start, nodes preempt N within TIME [as event|event-v1|condition] [notice TIME], \
                      nodes recreate N [same-addresses], services scale-to-zero N|scale-back, namespace delete, \
                      a service changes, others take a member of every N, \
                      others set down a member of every N, clocks jump [back] TIME, or \
                      controller stands still|goes on|restarts|files N|files unlimited"
                .to_owned()),
        }
    }

    /// Returns the same action in a scenario that runs `speed` times as fast.
    #[must_use]
    pub fn faster(self, speed: u32) -> Self {
        match self {
            Self::Arm(setting) => Self::Arm(setting.faster(speed)),
            Self::ApiSlow(time) => Self::ApiSlow(time / speed.max(1)),
            Self::ApiThrottle { requests, seconds } => {
                Self::ApiThrottle { requests, seconds: seconds.div_ceil(u64::from(speed.max(1))) }
            }
            Self::Disruption(disruption) => Self::Disruption(disruption.faster(speed)),
            other @ (Self::ArmDown(_)
            | Self::ApiDown(_)
            | Self::ApiRestart
            | Self::ListsEmpty(_)
            | Self::EtcdSave
            | Self::EtcdRestore
            | Self::TakeMembers(_)
            | Self::SetDown(_)
            | Self::TouchService(_)
            | Self::ClocksJump(_)
            | Self::StandStill(_)
            | Self::FilesLimit(_)
            | Self::Restart) => other,
        }
    }

    /// Returns the n-th occurrence of a repeated action.
    #[must_use]
    pub fn nth(self, number: usize) -> Self {
        match self {
            Self::TouchService(_) => Self::TouchService(number),
            other @ (Self::Arm(_)
            | Self::ArmDown(_)
            | Self::ApiDown(_)
            | Self::ApiSlow(_)
            | Self::ApiRestart
            | Self::ApiThrottle { .. }
            | Self::ListsEmpty(_)
            | Self::EtcdSave
            | Self::EtcdRestore
            | Self::Disruption(_)
            | Self::TakeMembers(_)
            | Self::SetDown(_)
            | Self::ClocksJump(_)
            | Self::StandStill(_)
            | Self::FilesLimit(_)
            | Self::Restart) => other,
        }
    }

    /// Returns the changes of the models, if the action needs neither the planned cluster nor the controller's process.
    #[must_use]
    pub fn alone(&self) -> Option<Scene> {
        match self {
            Self::Arm(_)
            | Self::ArmDown(_)
            | Self::ApiDown(_)
            | Self::ApiSlow(_)
            | Self::ApiRestart
            | Self::ApiThrottle { .. }
            | Self::ListsEmpty(_)
            | Self::EtcdSave
            | Self::EtcdRestore
            | Self::ClocksJump(_) => Some(self.scene()),
            Self::Disruption(_)
            | Self::TakeMembers(_)
            | Self::SetDown(_)
            | Self::TouchService(_)
            | Self::StandStill(_)
            | Self::FilesLimit(_)
            | Self::Restart => None,
        }
    }

    fn scene(&self) -> Scene {
        let needs_process = matches!(self, Self::StandStill(_) | Self::FilesLimit(_) | Self::Restart);
        Scene { action: self.clone(), shift: Shift::default(), touched: None, done: !needs_process }
    }

    /// Applies the action to the planned cluster, and returns the resulting changes of the models.
    pub fn begin(&self, world: &mut World, trigger_time: &str) -> Scene {
        let mut scene = self.scene();
        if let Self::Disruption(disruption) = self {
            scene.shift = disruption.begin(world, trigger_time);
        }
        if let Self::TouchService(number) = self {
            let there: Vec<usize> =
                (0..world.services().len()).filter(|index| !world.is_gone(*index)).collect();
            let touched = number.checked_rem(there.len()).map(|at| &world.services()[there[at]]);
            scene.touched = touched
                .map(|service| (service.namespace.clone(), service.name.clone(), trigger_time.to_owned()));
        }
        scene
    }
}

/// An action with the objects that it writes and deletes.
#[derive(Clone, Debug)]
pub struct Scene {
    action: Action,
    /// Changes of the models for a disruption.
    shift: Shift,
    /// A changed Service: namespace, name, and time.
    touched: Option<(String, String, String)>,
    /// True if the controller's process existed, for an action on it.
    done: bool,
}

impl Scene {
    /// Applies the changes to the cluster.
    pub fn on_cluster(&self, cluster: &mut Cluster, now_us: u64) {
        self.shift.on_cluster(cluster, now_us);
        let model = &mut cluster.model;
        match &self.action {
            Action::ApiDown(down) => model.down(*down),
            Action::ApiSlow(time) => model.slow(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            Action::ApiRestart => model.restart(),
            Action::ApiThrottle { requests, seconds } => model.answer_429(*requests, *seconds),
            Action::ListsEmpty(empty) => {
                for resource in LISTED {
                    model.hide(resource, empty.contains(&resource));
                }
                model.restart();
            }
            Action::EtcdSave => cluster.backup = Some(model.resource_version()),
            Action::EtcdRestore => {
                if let Some(backup) = cluster.backup {
                    // A backup that is too old no longer exists; then nothing happens.
                    model.rollback(backup);
                    cluster.signals.observe_all(&cluster.model, now_us);
                    cluster.record_holder(now_us);
                }
            }
            Action::TouchService(_) => {
                let Some((namespace, name, time)) = &self.touched else { return };
                if let Some(mut service) = model.get(Resource::Services, namespace, name) {
                    service["metadata"]["annotations"]["simulator/changed-at"] = time.clone().into();
                    model.apply(service, now_us).expect("it was served before");
                }
            }
            Action::ClocksJump(seconds) => cluster.ahead_s = cluster.ahead_s.saturating_add(*seconds),
            Action::Arm(_)
            | Action::ArmDown(_)
            | Action::Disruption(_)
            | Action::TakeMembers(_)
            | Action::SetDown(_)
            | Action::StandStill(_)
            | Action::FilesLimit(_)
            | Action::Restart => {}
        }
    }

    /// Applies the action to the controller's process, and records whether there was one. With `--serve-only` there is
    /// none, and nothing happens.
    pub(crate) async fn on_process(&mut self, control: Option<&ProcessControl>) {
        let Some(control) = control else { return };
        match self.action {
            Action::StandStill(still) => self.done = control.set_suspended(still),
            Action::FilesLimit(files) => self.done = control.limit_files(files),
            Action::Restart => self.done = control.restart().await,
            // The controller exits when its Lease has an older version than before, and the kubelet restarts it.
            Action::EtcdRestore => self.done = control.restart_on_failure(),
            Action::Arm(_)
            | Action::ArmDown(_)
            | Action::ApiDown(_)
            | Action::ApiSlow(_)
            | Action::ApiRestart
            | Action::ApiThrottle { .. }
            | Action::ListsEmpty(_)
            | Action::EtcdSave
            | Action::Disruption(_)
            | Action::TakeMembers(_)
            | Action::SetDown(_)
            | Action::TouchService(_)
            | Action::ClocksJump(_) => {}
        }
    }

    /// Applies the changes to Azure, which records the counts before them.
    pub fn on_azure(&self, azure: &mut Azure, now_us: u64) {
        Reach::record(azure, &self.action, self.done);
        self.shift.on_azure(azure, now_us);
        match &self.action {
            Action::Arm(setting) => azure.model.reconfigure(|settings| setting.clone().turn(settings)),
            Action::ArmDown(down) => azure.down = *down,
            Action::TakeMembers(every) => take_members(azure, *every, now_us),
            Action::SetDown(every) => set_down(azure, *every, now_us),
            Action::ClocksJump(seconds) => azure.ahead_s = azure.ahead_s.saturating_add(*seconds),
            Action::ApiDown(_)
            | Action::ApiSlow(_)
            | Action::ApiRestart
            | Action::ApiThrottle { .. }
            | Action::ListsEmpty(_)
            | Action::EtcdSave
            | Action::EtcdRestore
            | Action::Disruption(_)
            | Action::TouchService(_)
            | Action::StandStill(_)
            | Action::FilesLimit(_)
            | Action::Restart => {}
        }
    }

    /// Returns whether the required members of pools change.
    pub(crate) fn changes_expected_members(&self) -> bool {
        match &self.action {
            Action::Disruption(disruption) => disruption.changes_expected_members(),
            Action::EtcdRestore => true,
            Action::Arm(_)
            | Action::ArmDown(_)
            | Action::ApiDown(_)
            | Action::ApiSlow(_)
            | Action::ApiRestart
            | Action::ApiThrottle { .. }
            | Action::ListsEmpty(_)
            | Action::EtcdSave
            | Action::TakeMembers(_)
            | Action::SetDown(_)
            | Action::TouchService(_)
            | Action::ClocksJump(_)
            | Action::StandStill(_)
            | Action::FilesLimit(_)
            | Action::Restart => false,
        }
    }
}

/// Removes a member from each n-th pool: a required one, if there is one.
fn take_members(azure: &mut Azure, every: usize, now_us: u64) {
    // Missing members can be counted only relative to the state before.
    azure.observe_all(now_us);
    let pools: Vec<_> = azure.convergence.names().step_by(every).cloned().collect();
    for pool in pools {
        let members = expected_members::members(&azure.model, &pool.load_balancer, &pool.pool);
        let needed = azure.convergence.required(&pool).and_then(|needed| members.intersection(needed).next());
        let taken = needed.or_else(|| members.first()).copied();
        let left = members.iter().filter(|ip| Some(**ip) != taken);
        let left: Vec<String> = left.map(ToString::to_string).collect();
        let left: Vec<(&str, &str)> = left.iter().map(|ip| (ip.as_str(), ip.as_str())).collect();
        azure.foreign_put(&pool.load_balancer, &pool.pool, &left, now_us);
    }
}

/// Sets the lowest member of each n-th pool Down that is not Down already, by a PUT of the whole pool. The PUT takes no
/// time, so that pools of one load balancer do not block each other; a pool that is being written rejects it.
fn set_down(azure: &mut Azure, every: usize, now_us: u64) {
    let arm::Settings { put_latency, operation, .. } = *azure.model.settings();
    azure.model.reconfigure(|settings| {
        (settings.put_latency, settings.operation) = (Latency::Fixed { us: 0 }, None);
    });
    let pools: Vec<_> = azure.convergence.names().step_by(every).cloned().collect();
    for pool in pools {
        if let Some(request) = down_put(azure, &pool) {
            azure.handle(&request, now_us);
        }
    }
    azure.model.reconfigure(|settings| (settings.put_latency, settings.operation) = (put_latency, operation));
}

/// Returns the PUT that sets one more member Down; `None` if all members are Down.
fn down_put(azure: &Azure, pool: &PoolName) -> Option<Request> {
    let mut body = azure.model.pool_json(&pool.load_balancer, &pool.pool)?;
    let entries = body.pointer_mut("/properties/loadBalancerBackendAddresses")?.as_array_mut()?;
    let ip_of = |entry: &Value| entry["properties"]["ipAddress"].as_str()?.parse::<IpAddr>().ok();
    let others = entries.iter_mut().filter(|entry| entry["properties"]["adminState"] != "Down");
    let entry = others.filter(|entry| ip_of(entry).is_some()).min_by_key(|entry| ip_of(entry))?;
    entry["properties"]["adminState"] = "Down".into();
    let settings = azure.model.settings();
    let group =
        format!("/subscriptions/{}/resourceGroups/{}", settings.subscription, settings.resource_group);
    let PoolName { load_balancer, pool } = pool;
    Some(Request {
        method: Method::Put,
        path_and_query: format!(
            "{group}/providers/Microsoft.Network/loadBalancers/{load_balancer}/backendAddressPools/{pool}\
             ?api-version=2025-05-01"
        ),
        headers: vec![("User-Agent".to_owned(), format!("{FOREIGN_AGENT}/somebody"))],
        body: body.to_string().into_bytes(),
    })
}
