//! A world without faults, and its events: Services are created, restarted and changed.

use simulator_models::kube::Resource;

use super::{Latency, World, WorldEvent};
use crate::cluster::{NAMESPACE, Pod, Service};
use crate::process::{EMPTY_CONFIRM_US, Settings};
use crate::watchdog::Watchdog;

/// Time within which everything is quiet after the start.
const RESTS_TIMEOUT_US: u64 = 600_000_000;
/// Time without events that counts as quiet: the cloud-controller-manager checks for changed nodes every 100 seconds.
const RESTS_FOR_US: u64 = 120_000_000;

impl World {
    /// Creates the first state: these Services and their pools, one leading process with default settings, and a
    /// cloud-controller-manager that has done its first round with a fast ARM.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn begin_well(&mut self, services: Vec<Service>) -> Result<(), String> {
        self.settings = Settings::defaults(self.size);
        self.watchdog = Watchdog::new(true, false, EMPTY_CONFIRM_US);
        (self.stormy, self.slow_edges, self.keeps_notes) = (false, 10, false);
        self.ccm.use_upstream_defaults();
        self.arm.reconfigure(|settings| {
            (settings.get_latency, settings.put_latency) =
                (Latency::Fixed { us: 1_000 }, Latency::Fixed { us: 1_000 });
            settings.operation = None;
        });
        self.story.begin(&mut self.kube);
        for service in services {
            self.story.cluster.add_service(&mut self.kube, 0, service);
        }
        self.record_cluster();
        self.record_nodes();
        self.create_first_resources()?;
        self.at(self.now, WorldEvent::Start(0));
        let mut rested_since = self.now;
        while self.now < rested_since + RESTS_FOR_US && self.now < RESTS_TIMEOUT_US {
            self.run_until(self.now + 1_000_000)?;
            if !self.ccm.is_done(&self.story.cluster) {
                rested_since = self.now;
            }
        }
        Ok(())
    }

    /// Makes a step of a Service's restart: a new pod starts on this node; it is ready and the old one terminates;
    /// the old one is gone.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn roll(&mut self, name: &str, step: usize, node: &str) -> Result<(), String> {
        if let Some(pods) =
            self.story.cluster.services.get_mut(name).and_then(|service| service.slices.first_mut())
        {
            match (step, pods.as_mut_slice()) {
                (0, _) => pods.push(Pod::on(node, false)),
                (1, [old, new]) => (old.terminating, new.ready) = (true, true),
                (_, _) => drop(pods.remove(0)),
            }
        }
        self.story.cluster.write_slices(&mut self.kube, self.now, name);
        self.record_cluster();
        Ok(())
    }

    /// Adds a pod to a Service.
    pub fn scale_up(&mut self, name: &str, pod: Pod) {
        let service = self.story.cluster.services.get_mut(name);
        service
            .and_then(|service| service.slices.first_mut())
            .into_iter()
            .for_each(|pods| pods.push(pod.clone()));
        self.story.cluster.write_slices(&mut self.kube, self.now, name);
        self.record_cluster();
    }

    /// Taints a node, or removes its taints.
    pub fn set_taint(&mut self, name: &str, taint: Option<(&str, &str, &str)>) {
        match taint {
            Some(taint) => self.story.cluster.taint(&mut self.kube, self.now, name, taint),
            None => drop(self.story.cluster.untaint(&mut self.kube, self.now, name, |_| true)),
        }
        self.record_nodes();
    }

    /// Changes the object of a node without an event, and then announces its eviction.
    pub fn announce_eviction(&mut self, name: &str) {
        self.story.cluster.touch_node(&mut self.kube, self.now, name);
        self.story.announce_eviction(&mut self.kube, self.now, name);
        self.record_nodes();
        self.record_notices();
    }

    /// Changes a part of a Service that does not concern us, and the cloud-controller-manager reconciles it.
    ///
    /// # Errors
    /// A finding of the watchdog.
    pub fn touch(&mut self, name: &str, number: usize) -> Result<(), String> {
        if let Some(mut service) = self.kube.get(Resource::Services, NAMESPACE, name) {
            service["metadata"]["annotations"]["simulator/changed-at"] = number.to_string().into();
            self.kube.apply(service, self.now).map_err(|refused| format!("{refused:?}"))?;
        }
        self.record_cluster();
        Ok(())
    }
}
