//! Receivers of the outputs of the AdminState machine.

use super::{Delivery, HostMessage, KubernetesCall};
use coordination::leader;
use model::config_map::ConfigMapRequester;
use model::operator_request::Scope;
use pools::{directory, discovery};
use reporting::{events, snapshot};

pub(super) fn from_admin_state(output: nodes::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        nodes::Out::Draining(set) => deliver(Delivery::Writer(writer::In::Draining(set))),
        nodes::Out::DrainingAddresses(leaving) => {
            deliver(Delivery::Directory(directory::In::DrainingAddresses(leaving)))
        }
        nodes::Out::Due(pool, due) => deliver(Delivery::Writer(writer::In::AdminDue(pool, due))),
        nodes::Out::Opened(epoch) => deliver(Delivery::Leader(leader::In::Opened(epoch))),
        nodes::Out::ReadLoadBalancers => deliver(Delivery::Discovery(discovery::In::ReadSoon)),
        nodes::Out::ConfigMap(call, request) => {
            let requester = ConfigMapRequester::AdminState;
            deliver(Delivery::Kubernetes(KubernetesCall::ConfigMap { requester, call, request }));
        }
        nodes::Out::Taint(call, patch) => {
            deliver(Delivery::Kubernetes(KubernetesCall::Taint { call, patch }));
        }
        nodes::Out::Report(report) => deliver(Delivery::Events(events::In::Report(report))),
        nodes::Out::Ended(ended) => deliver(Delivery::Events(events::In::Ended(ended))),
        nodes::Out::Node(name, view) => deliver(Delivery::Snapshot(snapshot::In::Node(name, view))),
        nodes::Out::View(view) => deliver(Delivery::Snapshot(snapshot::In::Admin(view))),
        nodes::Out::NoticeIgnored(node, why) => {
            deliver(Delivery::Host(HostMessage::NoticeIgnored(node, why)));
        }
        nodes::Out::Answer(id, answer) => deliver(Delivery::Host(HostMessage::Answered(id, answer))),
        nodes::Out::Release(id, nodes) => {
            deliver(Delivery::Directory(directory::In::Release(id, Scope::Everything, nodes)));
        }
        nodes::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
    }
}
