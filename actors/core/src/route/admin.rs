//! Who hears what the admin state says.

use super::{Delivery, HostMessage, KubernetesCall};
use crate::ask::Scope;
use crate::config_map::Keeper;
use crate::{admin_state, board, directory, discovery, events, leader, writer};

pub(super) fn from_admin_state(said: admin_state::Out, deliver: &mut impl FnMut(Delivery)) {
    match said {
        admin_state::Out::Draining(set) => deliver(Delivery::Writer(writer::In::Draining(set))),
        admin_state::Out::Leaving(leaving) => deliver(Delivery::Directory(directory::In::Leaving(leaving))),
        admin_state::Out::Due(pool, due) => deliver(Delivery::Writer(writer::In::AdminDue(pool, due))),
        admin_state::Out::Withdraw(pool, generation) => {
            deliver(Delivery::Writer(writer::In::AdminWithdraw(pool, generation)));
        }
        admin_state::Out::Opened(epoch) => deliver(Delivery::Leader(leader::In::Opened(epoch))),
        admin_state::Out::Look => deliver(Delivery::Discovery(discovery::In::Look)),
        admin_state::Out::ConfigMap(call, ask) => {
            let keeper = Keeper::AdminState;
            deliver(Delivery::Kubernetes(KubernetesCall::ConfigMap { keeper, call, ask }));
        }
        admin_state::Out::Taint(call, ask) => {
            deliver(Delivery::Kubernetes(KubernetesCall::Taint { call, ask }));
        }
        admin_state::Out::Report(report) => deliver(Delivery::Events(events::In::Report(report))),
        admin_state::Out::Ended(ended) => deliver(Delivery::Events(events::In::Ended(ended))),
        admin_state::Out::Node(name, view) => deliver(Delivery::Board(board::In::Node(name, view))),
        admin_state::Out::View(view) => deliver(Delivery::Board(board::In::Admin(view))),
        admin_state::Out::NoticeIgnored(node, why) => {
            deliver(Delivery::Host(HostMessage::NoticeIgnored(node, why)));
        }
        admin_state::Out::Answer(id, answer) => deliver(Delivery::Host(HostMessage::Answered(id, answer))),
        admin_state::Out::Release(id, nodes) => {
            deliver(Delivery::Directory(directory::In::Ask(id, Scope::Everything, nodes)));
        }
        admin_state::Out::Sample(sample) => deliver(Delivery::Metrics(sample)),
    }
}
