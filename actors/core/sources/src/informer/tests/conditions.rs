//! Conditions that are reported once in each term, on the test's clock.

use super::*;
use model::policy::{OperatorPolicy, Pause};

/// Returns an Informer with the Services web and api, each on an unknown node, and with a slice that has become
/// undecodable; reports are not enabled yet.
fn conditions() -> Run {
    let slices = vec![slice("web-1", "web", &["n1"]), slice("right-1", "right", &["n1"])];
    let mut run = Run::synced(vec![service("web"), service("api"), service("right")], slices);
    run.reporting(None);
    run.turn();
    run.put(slice("web-1", "web", &["n8", "n9"]));
    run.put(slice("api-1", "api", &["n9"]));
    run.observe(Kind::EndpointSlices, bad(Some(slice_key("right-1"))));
    assert_eq!(reported(&run.turn()), Vec::<String>::new(), "a standby makes no reports");
    run
}

/// Returns the reports as text.
fn reported(out: &[Out]) -> Vec<String> {
    let reported = |report: Report| match (&report.subjects[..], report.what) {
        ([Subject::Service(of)], EventKind::DataError { endpoints, .. }) => {
            format!("{} {endpoints}", of.key.name)
        }
        ([Subject::Service(of)], EventKind::Undecodable { object, .. }) => {
            format!("{} {object}", of.key.name)
        }
        other => panic!("not a condition: {other:?}"),
    };
    let mut all: Vec<String> = reports(out).into_iter().map(reported).collect();
    all.sort();
    all
}

const ALL: [&str; 3] = ["api 1", "right shop/right-1", "web 2"];

#[test]
fn e1_an_error_from_before_a_term_is_reported_in_it_once() {
    let mut run = conditions();
    run.reporting(Some(2));
    assert_eq!(reported(&run.turn()), ALL);
    for _ in 0..10 {
        run.reporting(Some(2));
        let out = run.pass(5);
        assert!(reported(&out).is_empty() && facts(&out).is_empty(), "it is told once in a term");
    }
    run.put(slice("web-1", "web", &["n9"]));
    assert_eq!(reported(&run.turn()), Vec::<String>::new(), "it lasts");
}

#[test]
fn e1_lasting_errors_are_reported_again_in_the_next_term() {
    for is_delivered in [true, false] {
        let mut run = conditions();
        run.reporting(Some(2));
        assert_eq!(reported(&run.turn()), ALL);
        if is_delivered {
            run.reporting(None);
        }
        assert!(run.turn().is_empty());
        run.reporting(Some(3));
        let out = run.turn();
        assert_eq!(reported(&out), ALL);
        assert!(facts(&out).is_empty(), "nothing is worked out for it");
    }
}

#[test]
fn e1_an_error_that_ends_as_a_term_opens_is_not_reported() {
    let mut run = conditions();
    run.reporting(Some(2));
    run.put(slice("web-1", "web", &["n2"]));
    run.put(slice("right-1", "right", &["n2"]));
    assert_eq!(reported(&run.turn()), ["api 1"], "that one lasts");
}

#[test]
fn e1_a_service_of_the_same_name_has_its_own_errors() {
    let mut run = conditions();
    run.reporting(Some(2));
    run.turn();
    let mut another = service("web");
    another.uid = ServiceUid::new("another");
    run.put(another);
    assert_eq!(reported(&run.turn()), ["web 2"]);
}

#[test]
fn g6_data_errors_are_reported_when_a_pause_ends() {
    let policy = |paused: &[&str]| {
        let one = |name: &&str| (ServiceKey::new("shop", *name), Pause::default());
        In::OperatorPolicy(Arc::new(OperatorPolicy {
            services: paused.iter().map(one).collect(),
            ..OperatorPolicy::default()
        }))
    };
    let whats = |out: &[Out]| reports(out).into_iter().map(|report| report.what).collect::<Vec<_>>();
    let data_errors = EventKind::DataError { endpoints: 1, example: "node n9 is not known".into() };
    let mut run = Run::synced(vec![service("web")], vec![slice("web-1", "web", &["n1"])]);
    run.informer.step(run.now, policy(&["web"]), &mut run.out);
    run.put(slice("web-1", "web", &["n1", "n9"]));
    let error: Arc<str> = "ports".into();
    let key = Some(ObjectKey::Service(ServiceKey::new("shop", "web")));
    run.observe(
        Kind::Services,
        WatchUpdate::Undecodable { key, owner: Owner::Unknown, error: Arc::clone(&error), before: None },
    );
    assert!(whats(&run.turn()).is_empty());
    run.informer.step(run.now, policy(&["other"]), &mut run.out);
    let bad = EventKind::Undecodable { kind: Kind::Services, object: "shop/web".into(), error, kept: true };
    assert_eq!(whats(&run.turn()), [bad, data_errors.clone()]);
    run.put(ServiceObject { paused: true, ..service("web") });
    assert!(whats(&run.turn()).is_empty());
    run.put(service("web"));
    assert_eq!(whats(&run.turn()), [data_errors], "the annotation pauses as well");
    assert!(run.informer.has_reported());
}
