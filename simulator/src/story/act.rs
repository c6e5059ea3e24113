//! What can happen in a story besides changes of pods, and how it is done to the models.

use std::time::Duration;

use serde_json::Value;
use simulator_models::kube::Resource;

use super::knob::Knob;
use crate::azure::Azure;
use crate::cluster::Cluster;
use crate::notation;
use crate::truth;
use crate::world::World;

/// What happens.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// A knob of ARM is turned.
    Arm(Knob),
    /// ARM cuts every connection, or serves again.
    ArmDown(bool),
    /// The API server refuses every connection, or serves again.
    ApiDown(bool),
    /// Each answer of the API server takes so long.
    ApiSlow(Duration),
    /// The API server is started anew: watches end, and their history is gone (410).
    ApiRestart,
    /// The next requests are answered 429 with this Retry-After in seconds.
    ApiThrottle {
        /// How many.
        requests: u64,
        /// Retry-After.
        seconds: u64,
    },
    /// Lists of Services, EndpointSlices and Nodes are answered 200 without objects, or as they should be; watches end
    /// at both moments, so that everybody lists anew.
    ListsEmpty(bool),
    /// What etcd holds now is kept as a backup.
    EtcdSave,
    /// etcd is set back to its backup.
    EtcdRestore,
    /// Nodes are deleted; their pods run elsewhere at once.
    LoseNodes(usize),
    /// Somebody else takes one member out of each n-th pool.
    TakeMembers(usize),
    /// The n-th Service, counted round and round, gets another annotation, so that the cloud-controller-manager
    /// reconciles it.
    TouchService(usize),
}

impl Act {
    /// Reads what stands behind the time.
    ///
    /// # Errors
    /// What was expected instead.
    pub fn parse(words: &[&str]) -> Result<Self, String> {
        let count = |text: &str| text.parse::<usize>().map_err(|_| "a whole number".to_owned());
        match words {
            ["arm", "down"] => Ok(Self::ArmDown(true)),
            ["arm", "up"] => Ok(Self::ArmDown(false)),
            ["arm", knob @ ..] => Knob::parse(knob).map(Self::Arm),
            ["apiserver", "down"] => Ok(Self::ApiDown(true)),
            ["apiserver", "up"] => Ok(Self::ApiDown(false)),
            ["apiserver", "slow", time] => {
                notation::duration(time).map(Self::ApiSlow).map_err(|bad| bad.to_string())
            }
            ["apiserver", "restart"] => Ok(Self::ApiRestart),
            ["apiserver", "throttle", requests, "retry-after", seconds] => {
                Ok(Self::ApiThrottle { requests: count(requests)? as u64, seconds: count(seconds)? as u64 })
            }
            ["lists", "empty"] => Ok(Self::ListsEmpty(true)),
            ["lists", "full"] => Ok(Self::ListsEmpty(false)),
            ["etcd", "save"] => Ok(Self::EtcdSave),
            ["etcd", "restore"] => Ok(Self::EtcdRestore),
            ["nodes", "delete", number] => count(number).map(Self::LoseNodes),
            ["somebody", "takes", "a", "member", "of", "every", number] => {
                count(number).map(|every| Self::TakeMembers(every.max(1)))
            }
            ["a", "service", "changes"] => Ok(Self::TouchService(0)),
            _ => Err("arm down|up|KNOB, apiserver down|up|slow TIME|restart|throttle N retry-after S, \
                      lists empty|full, etcd save|restore, nodes delete N, a service changes, or \
                      somebody takes a member of every N"
                .to_owned()),
        }
    }

    /// The same in a story that runs `speed` times as fast.
    #[must_use]
    pub fn faster(self, speed: u32) -> Self {
        match self {
            Self::Arm(knob) => Self::Arm(knob.faster(speed)),
            Self::ApiSlow(time) => Self::ApiSlow(time / speed.max(1)),
            Self::ApiThrottle { requests, seconds } => {
                Self::ApiThrottle { requests, seconds: seconds.div_ceil(u64::from(speed.max(1))) }
            }
            other @ (Self::ArmDown(_)
            | Self::ApiDown(_)
            | Self::ApiRestart
            | Self::ListsEmpty(_)
            | Self::EtcdSave
            | Self::EtcdRestore
            | Self::LoseNodes(_)
            | Self::TakeMembers(_)
            | Self::TouchService(_)) => other,
        }
    }

    /// The n-th occurrence of what happens again and again.
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
            | Self::LoseNodes(_)
            | Self::TakeMembers(_)) => other,
        }
    }

    /// What it does to the world, and what has to be told to the models for it.
    pub fn begin(&self, world: &mut World, trigger_time: &str) -> Scene {
        let mut scene = Scene { act: self.clone(), gone: Vec::new(), objects: Vec::new(), touched: None };
        match self {
            Self::LoseNodes(count) => {
                let (gone, changed) = world.lose_nodes(*count);
                scene.gone = gone;
                for (service, slice) in changed {
                    scene.objects.extend(world.slices(service, slice, trigger_time));
                }
            }
            Self::TouchService(number) => {
                let services = world.services();
                let touched = number.checked_rem(services.len()).and_then(|at| services.get(at));
                scene.touched = touched.map(|service| {
                    (service.namespace.clone(), service.name.clone(), trigger_time.to_owned())
                });
            }
            Self::Arm(_)
            | Self::ArmDown(_)
            | Self::ApiDown(_)
            | Self::ApiSlow(_)
            | Self::ApiRestart
            | Self::ApiThrottle { .. }
            | Self::ListsEmpty(_)
            | Self::EtcdSave
            | Self::EtcdRestore
            | Self::TakeMembers(_) => {}
        }
        scene
    }
}

/// An act with the objects that it writes and deletes.
#[derive(Clone, Debug)]
pub struct Scene {
    act: Act,
    /// Nodes to delete.
    gone: Vec<String>,
    /// Objects to write.
    objects: Vec<Value>,
    /// A Service that changes: its namespace, its name, and the time.
    touched: Option<(String, String, String)>,
}

impl Scene {
    /// Does it to the cluster.
    pub fn on_cluster(&self, cluster: &mut Cluster, now_us: u64) {
        let model = &mut cluster.model;
        match &self.act {
            Act::ApiDown(down) => model.down(*down),
            Act::ApiSlow(time) => model.slow(u64::try_from(time.as_micros()).unwrap_or(u64::MAX)),
            Act::ApiRestart => model.restart(),
            Act::ApiThrottle { requests, seconds } => model.answer_429(*requests, *seconds),
            Act::ListsEmpty(empty) => {
                for resource in [Resource::Services, Resource::EndpointSlices, Resource::Nodes] {
                    model.hide(resource, *empty);
                }
                model.restart();
            }
            Act::EtcdSave => cluster.backup = Some(model.resource_version()),
            Act::EtcdRestore => {
                if let Some(backup) = cluster.backup {
                    // A backup that is too old is no longer there; then nothing happens.
                    model.rollback(backup);
                    cluster.note_holder(now_us);
                }
            }
            Act::LoseNodes(_) => {
                for node in &self.gone {
                    model.delete(Resource::Nodes, "", node, now_us);
                }
                for object in &self.objects {
                    model
                        .apply(object.clone(), now_us)
                        .expect("the builders make objects that the model takes");
                }
            }
            Act::TouchService(_) => {
                let Some((namespace, name, time)) = &self.touched else { return };
                if let Some(mut service) = model.get(Resource::Services, namespace, name) {
                    service["metadata"]["annotations"]["simulator/changed-at"] = time.clone().into();
                    model.apply(service, now_us).expect("it was served before");
                }
            }
            Act::Arm(_) | Act::ArmDown(_) | Act::TakeMembers(_) => {}
        }
    }

    /// Does it to Azure.
    pub fn on_azure(&self, azure: &mut Azure, now_us: u64) {
        match &self.act {
            Act::Arm(knob) => azure.model.reconfigure(|settings| knob.clone().turn(settings)),
            Act::ArmDown(down) => azure.down = *down,
            Act::TakeMembers(every) => take_members(azure, *every, now_us),
            Act::ApiDown(_)
            | Act::ApiSlow(_)
            | Act::ApiRestart
            | Act::ApiThrottle { .. }
            | Act::ListsEmpty(_)
            | Act::EtcdSave
            | Act::EtcdRestore
            | Act::LoseNodes(_)
            | Act::TouchService(_) => {}
        }
    }

    /// Whether pools want something else afterwards.
    #[must_use]
    pub fn changes_wishes(&self) -> bool {
        matches!(self.act, Act::LoseNodes(_) | Act::EtcdRestore)
    }
}

fn take_members(azure: &mut Azure, every: usize, now_us: u64) {
    let pools: Vec<_> = azure.ledger.names().step_by(every).cloned().collect();
    for pool in pools {
        let members = truth::members(&azure.model, &pool.load_balancer, &pool.pool);
        let left: Vec<String> = members.iter().skip(1).map(ToString::to_string).collect();
        let left: Vec<(&str, &str)> = left.iter().map(|ip| (ip.as_str(), ip.as_str())).collect();
        azure.foreign_put(&pool.load_balancer, &pool.pool, &left, now_us);
    }
}
