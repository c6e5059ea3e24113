//! The Informer reports a condition again in each term of leadership, and the event emitter posts it once (E1, W8).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use model::ids::{CallId, Epoch, ServiceKey, ServiceUid};
use model::leadership::Leadership;
use model::level::Provenance;
use model::machine::{Machine, Now};
use model::object::{Kind, Object, ObjectKey, Owner, ResourceVersion, ServiceObject, ServiceType};
use model::watch::{ListCoverage, WatchUpdate};
use pool_core::route::{Delivery, Output, route};
use reporting::events::{self, Emitter, In, Out};
use sources::informer::{self, Informer, Selector};

fn leading_in(epoch: u64, until: Now) -> In {
    In::Leadership(Leadership::Leading { epoch: Epoch(epoch), until })
}

/// An Informer and an emitter, connected by `route`, with deliveries in order.
struct Pair {
    informer: Informer,
    emitter: Emitter,
    /// Posts that were made.
    posts: Vec<CallId>,
}

impl Pair {
    fn deliver(&mut self, first: Vec<Delivery>) {
        let now = Now::from_millis(1_000);
        let mut waiting = VecDeque::from(first);
        while let Some(delivery) = waiting.pop_front() {
            let (mut informed, mut emitted) = (Vec::new(), Vec::new());
            if let Delivery::Informer(input) = delivery {
                self.informer.step(now, input, &mut informed);
                self.informer.tick(now, &mut informed);
            } else if let Delivery::Events(input) = delivery {
                self.emitter.step(now, input, &mut emitted);
            }
            self.posts.extend(emitted.iter().filter_map(|output| match output {
                Out::Post { call, .. } => Some(*call),
                Out::Reporting(_) | Out::Dropped(_) | Out::Metric(_) => None,
            }));
            let output =
                informed.into_iter().map(Output::Informer).chain(emitted.into_iter().map(Output::Events));
            output.for_each(|output| route(output, &mut |delivery| waiting.push_back(delivery)));
        }
    }

    fn list(&mut self, kind: Kind, objects: Vec<Object>) {
        let mut events = vec![WatchUpdate::ListBegan(Provenance::FirstList)];
        events.extend(objects.into_iter().map(WatchUpdate::Object));
        events.push(WatchUpdate::ListDone {
            resource_version: ResourceVersion("1".into()),
            serves: ListCoverage::default(),
        });
        self.deliver(
            events
                .into_iter()
                .map(|events| Delivery::Informer(informer::In::Seen(kind, Now::ZERO, events)))
                .collect(),
        );
    }
}

#[test]
fn e1_a_condition_from_before_a_term_is_posted_once_per_term() {
    let params_of = informer::Params {
        counts: informer::Counts::Hosted,
        multi_slb: true,
        namespaces: Default::default(),
        selector: Selector::default(),
        last_known_for: Duration::from_secs(300),
        fail_on_data_errors: false,
        control_plane: false,
        per_family: true,
    };
    let emitter = events::Params { capacity: 100, per_second: 10, burst: 20 };
    let mut pair =
        Pair { informer: Informer::new(params_of), emitter: Emitter::new(emitter), posts: Vec::new() };
    let service = ServiceObject {
        key: ServiceKey::new("shop", "web"),
        uid: ServiceUid::new("web"),
        resource_version: ResourceVersion("1".into()),
        service_type: ServiceType::LoadBalancer,
        local: true,
        deleting: false,
        families: Vec::new(),
        paused: false,
        labels: Default::default(),
        internal: false,
        exposure: 0,
        has_class: false,
        has_ingress: false,
    };
    let (term, policy) = (Some(Epoch(u64::MAX)), Arc::default());
    pair.deliver(vec![Delivery::Events(In::OperatorPolicy { term, policy })]);
    pair.list(Kind::Services, vec![Object::Service(Arc::new(service))]);
    pair.list(Kind::EndpointSlices, Vec::new());
    pair.list(Kind::Nodes, Vec::new());
    let key = ObjectKey::Service(ServiceKey::new("shop", "web"));
    let bad = WatchUpdate::Undecodable {
        key: Some(key),
        owner: Owner::Unknown,
        error: "spec".into(),
        before: None,
    };
    pair.deliver(vec![Delivery::Informer(informer::In::Seen(Kind::Services, Now::ZERO, bad))]);
    assert!(pair.posts.is_empty());
    for term in 1..=2 {
        // Renewals follow; the Informer's answer to the first one arrives after all of them.
        let leadership = |n| Delivery::Events(leading_in(term, Now::from_millis(n)));
        pair.deliver((0..5).map(leadership).collect());
        pair.deliver((5..9).map(leadership).collect());
        let call = *pair.posts.last().expect("it is posted");
        pair.deliver(vec![Delivery::Events(In::Posted { call, answer: Ok("event".into()) })]);
        assert_eq!(pair.posts.len() as u64, term);
    }
}
