//! Receivers of the outputs of the event emitter.

use super::{Delivery, HostMessage, KubernetesCall};
use pools::directory;
use reporting::events;
use sources::informer;

pub(super) fn from_events(output: events::Out, deliver: &mut impl FnMut(Delivery)) {
    match output {
        events::Out::Post { call, event } => {
            deliver(Delivery::Kubernetes(KubernetesCall::Post { call, event }));
        }
        events::Out::Reporting(term) => {
            deliver(Delivery::Informer(informer::In::Reporting(term)));
            deliver(Delivery::Directory(directory::In::Reporting(term)));
            deliver(Delivery::AdminState(nodes::In::Reporting(term)));
        }
        events::Out::Dropped(dropped) => deliver(Delivery::Host(HostMessage::EventDropped(dropped))),
        events::Out::Metric(sample) => deliver(Delivery::Metrics(sample)),
    }
}
