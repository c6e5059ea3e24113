//! Terms of leadership: the reporters are told of each once, and what they report then is posted.

use super::*;
use crate::informer::{self, Informer, Selector};
use crate::level::Provenance;
use crate::object::{Kind, Object, ObjectKey, Owner, ResourceVersion, ServiceObject, ServiceType};
use crate::route::{Delivery, Said, route};
use crate::watch::{Seen, Serves};
use crate::wishes::{Mode, Wishes};

fn leading_in(epoch: u64, until: Now) -> In {
    In::Standing(Standing::Leading { epoch: Epoch(epoch), until })
}

#[test]
fn w8_reporters_are_told_once_of_each_term_and_its_end() {
    let mut drive = Drive::standby(params());
    drive.step(In::Standing(Standing::Standby));
    for n in 0..10 {
        drive.step(leading_in(1, Now::from_millis(n)));
    }
    drive.step(In::Standing(Standing::Standby));
    drive.step(In::Standing(Standing::Standby));
    drive.step(leading_in(2, Now::NEVER));
    drive.step(leading_in(3, Now::NEVER));
    let terms = [Some(1), None, Some(2), Some(3)].map(|term| term.map(Epoch));
    assert_eq!(drive.terms, terms);
}

#[test]
fn w8_what_waits_when_the_next_term_begins_is_told_in_that_one_alone() {
    let mut drive = Drive::new(Params { burst: 1, ..params() });
    drive.tell(&["a", "b"], updated(3));
    drive.take_next();
    drive.step(leading_in(2, Now::NEVER));
    drive.at(600_000);
    assert!(drive.posts.is_empty(), "the machine that reported it repeats it if it lasts");
}

/// An Informer and an emitter, joined as the route joins them, whose deliveries come in order.
struct Pair {
    informer: Informer,
    emitter: Emitter,
    posts: usize,
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
            self.posts += emitted.iter().filter(|said| matches!(said, Out::Post { .. })).count();
            let said = informed.into_iter().map(Said::Informer).chain(emitted.into_iter().map(Said::Events));
            said.for_each(|said| route(said, &mut |delivery| waiting.push_back(delivery)));
        }
    }

    fn list(&mut self, kind: Kind, objects: Vec<Object>) {
        let mut seen = vec![Seen::ListBegan(Provenance::FirstList)];
        seen.extend(objects.into_iter().map(Seen::Object));
        seen.push(Seen::ListDone {
            resource_version: ResourceVersion("1".into()),
            serves: Serves::default(),
        });
        self.deliver(
            seen.into_iter()
                .map(|seen| Delivery::Informer(informer::In::Seen(kind, Now::ZERO, seen)))
                .collect(),
        );
    }
}

#[test]
fn e1_a_condition_from_before_the_first_term_is_posted_once_per_term() {
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
    let mut pair = Pair { informer: Informer::new(params_of), emitter: Emitter::new(params()), posts: 0 };
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
    let (term, wishes) = (Some(Epoch(u64::MAX)), Arc::default());
    pair.deliver(vec![Delivery::Events(In::Wishes { term, wishes })]);
    pair.list(Kind::Services, vec![Object::Service(Arc::new(service))]);
    pair.list(Kind::EndpointSlices, Vec::new());
    pair.list(Kind::Nodes, Vec::new());
    let key = ObjectKey::Service(ServiceKey::new("shop", "web"));
    let bad = Seen::Undecodable { key: Some(key), owner: Owner::Unknown, error: "spec".into(), before: None };
    pair.deliver(vec![Delivery::Informer(informer::In::Seen(Kind::Services, Now::ZERO, bad))]);
    assert_eq!(pair.posts, 0);
    for term in 1..=2 {
        // Renewals follow; what the Informer says in answer to the first word arrives after all of them.
        let standing = |n| Delivery::Events(leading_in(term, Now::from_millis(n)));
        pair.deliver((0..5).map(standing).collect());
        pair.deliver((5..9).map(standing).collect());
        let call = pair.emitter.in_flight.keys().next().copied().expect("it is posted");
        pair.deliver(vec![Delivery::Events(In::Posted { call, answer: Ok("event".into()) })]);
        assert_eq!(pair.posts, term as usize);
    }
}

#[test]
fn g6_while_nothing_may_be_written_events_are_dropped_and_counted() {
    let wish = |mode| {
        let wishes = Arc::new(Wishes { mode, ..Wishes::default() });
        In::Wishes { term: Some(Epoch(1)), wishes }
    };
    let mut drive = Drive::new(Params { burst: 1, ..params() });
    drive.tell(&["a", "b"], updated(3));
    drive.step(In::Report(Report { subjects: vec![Subject::Controller], what: updated(1), note: None }));
    drive.step(wish(Mode::Observe));
    assert_eq!(drive.count(&Sample::EventDropped), 1, "b waited");
    drive.tell(&["c"], updated(3));
    assert_eq!(drive.count(&Sample::EventDropped), 2);
    drive.at(60_000);
    let told: Vec<Subject> = drive.take_all().iter().map(|event| event.subject.clone()).collect();
    assert_eq!(told, [subject("a"), Subject::Controller], "one was sent before, and we may be told of");
    drive.step(wish(Mode::AddOnly));
    drive.tell(&["d"], updated(3));
    drive.at(120_000);
    assert_eq!(drive.take_all().len(), 1);
    assert_eq!(drive.terms, [Some(1), None, Some(1)].map(|term| term.map(Epoch)));
}

#[test]
fn g6_before_it_is_known_what_people_wish_in_a_term_nobody_is_told_of_it() {
    let mut drive = Drive { emitter: Emitter::new(params()), ..Drive::standby(params()) };
    drive.step(In::Wishes { term: Some(Epoch(1)), wishes: Arc::default() });
    drive.step(leading_in(2, Now::NEVER));
    drive.tell(&["a"], updated(3));
    assert!(drive.posts.is_empty() && drive.terms.is_empty());
    drive.step(In::Wishes { term: Some(Epoch(2)), wishes: Arc::default() });
    assert_eq!(drive.terms, [Some(Epoch(2))]);
}
