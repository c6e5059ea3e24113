//! Receivers of the outputs of the AdminState machine.

use super::{Delivery, HostMessage, KubernetesCall};
use coordination::leader;
use model::config_map::Keeper;
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
        nodes::Out::ConfigMap(call, ask) => {
            let keeper = Keeper::AdminState;
            deliver(Delivery::Kubernetes(KubernetesCall::ConfigMap { keeper, call, ask }));
        }
        nodes::Out::Taint(call, ask) => {
            deliver(Delivery::Kubernetes(KubernetesCall::Taint { call, ask }));
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
            deliver(Delivery::Directory(directory::In::Ask(id, Scope::Everything, nodes)));
        }
        nodes::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
    }
}
