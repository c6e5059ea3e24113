//! The model's writes to the cluster besides the Lease: events, ingress addresses, finalizers, and the retry of a
//! failed Service.

use serde_json::{Value, json};

use super::call::{Call, Verb};
use super::facts::{FINALIZER, Service};
use super::job::JSON;
use super::reconcile::Purpose;
use super::recorder::{EventSpec, Source};
use super::{CallPurpose, Ccm};
use crate::arm::random::Random;
use crate::kube::build::Family;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

impl Ccm {
    pub(super) fn on_reconciled(
        &mut self,
        key: &str,
        purpose: Purpose,
        service: &Service,
        calls: &mut Vec<Call>,
    ) {
        match purpose {
            Purpose::Update => {}
            Purpose::Ensure => {
                self.set_ingress(service, &ingress_of(service), calls);
                self.report(service, false, "EnsuredLoadBalancer", "Ensured load balancer", calls);
            }
            Purpose::Delete => {
                self.report(service, false, "DeletedLoadBalancer", "Deleted load balancer", calls);
                if service.gone {
                    // Another Service of its name may exist by now.
                    self.facts.services.retain(|known, at| known != key || at.uid != service.uid);
                    return;
                }
                if !service.deleting {
                    self.set_ingress(service, &[], calls);
                }
                if service.has_finalizer() {
                    let left = service.finalizers.iter().filter(|name| *name != FINALIZER).cloned();
                    self.set_finalizers(service, left.collect(), calls);
                }
            }
        }
    }

    pub(super) fn failed(&mut self, key: &str, purpose: Purpose, error_text: &str, calls: &mut Vec<Call>) {
        let Some(service) = self.facts.services.get(key).cloned() else { return };
        let (reason, message) = match purpose {
            Purpose::Ensure => (
                "SyncLoadBalancerFailed",
                format!("Error syncing load balancer: failed to ensure load balancer: {error_text}"),
            ),
            Purpose::Delete => (
                "SyncLoadBalancerFailed",
                format!("Error syncing load balancer: failed to delete load balancer: {error_text}"),
            ),
            Purpose::Update => {
                let hosts = self.facts.nodes.values().filter(|node| node.eligible);
                let hosts: Vec<&str> = hosts.map(|node| node.name.as_str()).collect();
                let message = format!(
                    "Error updating load balancer with new hosts [{}]: {error_text}",
                    hosts.join(" ")
                );
                ("UpdateLoadBalancerFailed", message)
            }
        };
        self.report(&service, true, reason, &message, calls);
        let (first, longest) = (self.settings.retry_us, self.settings.max_retry_us);
        self.work.retry(key, self.now, first, longest);
    }

    pub(super) fn report(
        &mut self,
        service: &Service,
        warning: bool,
        reason: &'static str,
        message: &str,
        calls: &mut Vec<Call>,
    ) {
        let spec = EventSpec { source: Source::Controller, warning, reason, message: message.to_owned() };
        self.post(service, spec, calls);
    }

    pub(super) fn post(&mut self, service: &Service, spec: EventSpec, calls: &mut Vec<Call>) {
        let wall = self.settings.wall_us(self.now);
        let Some(message) = self.recorder.report(service, spec, self.now, wall) else { return };
        let content = if message.verb == Verb::Patch { STRATEGIC } else { JSON };
        let flight = CallPurpose::Event(message.series);
        self.send_kubernetes_request(
            flight,
            message.verb,
            message.path,
            Some((content, message.body)),
            calls,
        );
    }

    fn set_ingress(&mut self, service: &Service, ips: &[String], calls: &mut Vec<Call>) {
        let current = self.facts.services.get(&service.key());
        if current.is_none_or(|current| current.ingress == ips) {
            return;
        }
        let ingress: Vec<Value> = ips.iter().map(|ip| json!({"ip": ip, "ipMode": "VIP"})).collect();
        let ingress = if ingress.is_empty() { Value::Null } else { ingress.into() };
        let body = json!({"status": {"loadBalancer": {"ingress": ingress}}});
        let path = format!("/api/v1/namespaces/{}/services/{}/status", service.namespace, service.name);
        let flight = CallPurpose::Status(service.key());
        self.send_kubernetes_request(flight, Verb::Patch, path, Some((STRATEGIC, body)), calls);
    }

    pub(super) fn set_finalizers(
        &mut self,
        service: &Service,
        finalizers: Vec<String>,
        calls: &mut Vec<Call>,
    ) {
        let body = json!({"metadata": {"finalizers": finalizers}});
        let path = format!("/api/v1/namespaces/{}/services/{}", service.namespace, service.name);
        let flight = CallPurpose::Finalizer(service.key());
        self.send_kubernetes_request(flight, Verb::Patch, path, Some((MERGE, body)), calls);
    }
}

/// Returns the addresses of a Service: derived from its uid, one for each family.
fn ingress_of(service: &Service) -> Vec<String> {
    let fold = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let number = Random::new(service.uid.bytes().fold(0xcbf2_9ce4_8422_2325, fold)).next_u64();
    let [a, b, c, d, ..] = number.to_be_bytes();
    let address = |family: &Family| match family {
        Family::V4 => format!("20.{a}.{b}.{c}"),
        Family::V6 => format!("2603:1030:{a:x}{b:02x}::{c:x}{d:02x}"),
    };
    service.families.iter().map(address).collect()
}
