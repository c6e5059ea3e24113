//! The Services that make the cloud-controller-manager wait for the shared Lease (W7).

use super::*;

/// Returns the published numbers, in order.
fn published_numbers(out: &[Out]) -> Vec<Option<u64>> {
    let number = |out: &Out| match out {
        Out::AwaitingIngress(newest) => Some(*newest),
        Out::Service(..)
        | Out::Synced
        | Out::Confirmed(_)
        | Out::Reread(_)
        | Out::ReadUpTo(_)
        | Out::Node(..)
        | Out::Cached(..)
        | Out::Relist(..)
        | Out::Report(_)
        | Out::Ended(_)
        | Out::Metric(_) => None,
    };
    out.iter().filter_map(number).collect()
}

fn other(name: &str) -> ServiceObject {
    ServiceObject { service_type: ServiceType::Other, ..service(name) }
}

fn served(name: &str) -> ServiceObject {
    ServiceObject { has_ingress: true, ..service(name) }
}

impl Run {
    /// Delivers this state of the Service, and returns the published numbers.
    fn turns(&mut self, service: ServiceObject) -> Vec<Option<u64>> {
        self.put(service);
        published_numbers(&self.turn())
    }
}

#[test]
fn w7_a_service_that_becomes_a_load_balancer_waits_for_ingress() {
    let mut run = Run::synced(vec![service("old"), other("web")], vec![]);
    assert_eq!(
        run.turns(ServiceObject { paused: true, ..service("old") }),
        [],
        "it is not known since when it is one"
    );
    assert_eq!(run.turns(service("web")), [Some(1)], "its type has changed");
    assert_eq!(run.turns(service("api")), [Some(2)], "one more is another one");
    assert_eq!(run.turns(ServiceObject { paused: true, ..service("web") }), [], "it waits as before");
    assert_eq!(run.turns(served("web")), []);
    assert_eq!(run.turns(served("api")), [None]);
    assert_eq!(run.turns(service("api")), [Some(3)], "within its time it may lose it again");
    assert_eq!(run.turns(other("api")), [None]);
    assert_eq!(
        run.turns(ServiceObject { uid: ServiceUid::new("new"), ..service("old") }),
        [Some(4)],
        "made again"
    );
    run.gone(service_key("old"));
    assert_eq!(published_numbers(&run.turn()), [None]);
}

#[test]
fn w7_a_service_is_awaited_for_ten_minutes() {
    let mut run = Run::synced(vec![], vec![]);
    assert_eq!(run.turns(service("web")), [Some(1)]);
    assert_eq!(published_numbers(&run.pass(300)), []);
    assert_eq!(run.turns(service("api")), [Some(2)]);
    assert_eq!(run.turns(ServiceObject { paused: true, ..service("web") }), [], "it does not begin again");
    assert_eq!(published_numbers(&run.pass(299)), []);
    assert_eq!(run.informer.deadline(), Some(run.now.plus(Duration::from_secs(1))));
    assert_eq!(published_numbers(&run.pass(1)), [], "the other one is waited for");
    assert_eq!(published_numbers(&run.pass(300)), [None]);
    assert_eq!(run.turns(ServiceObject { paused: false, ..service("web") }), [], "its time is over");
    assert_eq!(run.informer.deadline(), None);
}

#[test]
fn w7_classed_deleted_and_first_list_services_are_not_awaited() {
    let mut run = Run::synced(vec![service("web")], vec![]);
    assert_eq!(run.turns(ServiceObject { has_class: true, ..service("classed") }), []);
    assert_eq!(run.turns(ServiceObject { deleting: true, ..service("going") }), []);
    assert_eq!(run.turns(other("plain")), []);
    run.list(Kind::Services, vec![service("web")]);
    assert_eq!(published_numbers(&run.turn()), []);
    run.list(Kind::Services, vec![service("web"), service("missed")]);
    assert_eq!(published_numbers(&run.turn()), [Some(1)], "one that a watch has missed is seen in the list");
    run.list(Kind::Services, vec![service("web")]);
    assert_eq!(published_numbers(&run.turn()), [None]);
}

#[test]
fn w7_a_served_service_leaves_the_one_before_as_newest() {
    let mut run = Run::synced(vec![], vec![]);
    assert_eq!(run.turns(service("web")), [Some(1)]);
    assert_eq!(run.turns(service("api")), [Some(2)]);
    assert_eq!(run.turns(served("api")), [Some(1)], "it is no news where 1 was counted");
    assert_eq!(run.turns(service("shop")), [Some(3)], "a number is never used again");
    run.gone(service_key("shop"));
    assert_eq!(published_numbers(&run.turn()), [Some(1)]);
}
