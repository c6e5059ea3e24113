//! Tests of the search for our Deployment, on the test's clock.

use super::*;

/// A machine, the times of its requests in seconds, and its reports.
struct Fixture {
    machine: Deployment,
    now: Now,
    requested_at: Vec<u64>,
    reported: Vec<Failure>,
    found: Option<Arc<str>>,
}

impl Fixture {
    fn begun() -> Fixture {
        let machine = Deployment::default();
        let mut fixture =
            Fixture { machine, now: Now::ZERO, requested_at: Vec::new(), reported: Vec::new(), found: None };
        assert_eq!(fixture.machine.deadline(), None);
        fixture.send(In::Start);
        fixture
    }

    fn send(&mut self, input: In) {
        let mut out = Vec::new();
        self.machine.step(self.now, input, &mut out);
        self.handle(out);
    }

    fn handle(&mut self, out: Vec<Out>) {
        for output in out {
            match output {
                Out::Get => self.requested_at.push(self.now.as_micros() / 1_000_000),
                Out::Found(uid) => assert_eq!(self.found.replace(uid), None),
                Out::Missing(failure) => self.reported.push(failure),
            }
        }
    }

    /// Answers the request with this failure, and lets time pass until the next one.
    fn fails(&mut self, failure: Failure) {
        self.send(In::Answered(Err(failure)));
        self.now = self.machine.deadline().expect("it sends another request");
        let mut out = Vec::new();
        self.machine.tick(self.now, &mut out);
        self.handle(out);
    }
}

fn other() -> Failure {
    Failure::Other("no connection".into())
}

#[test]
fn e1_the_deployment_is_requested_until_found() {
    let mut fixture = Fixture::begun();
    assert_eq!(
        (&fixture.requested_at[..], fixture.machine.deadline()),
        (&[0][..], None),
        "the port always answers"
    );
    fixture.send(In::Answered(Ok("d-1".into())));
    assert_eq!(fixture.found.as_deref(), Some("d-1"));
    fixture.send(In::Answered(Ok("d-2".into())));
    assert_eq!(
        (fixture.machine.deadline(), fixture.requested_at.len(), fixture.reported.len()),
        (None, 1, 0)
    );
}

#[test]
fn e1_an_unknown_deployment_is_retried_up_to_each_10_min() {
    let mut fixture = Fixture::begun();
    for _ in 0..40 {
        fixture.fails(other());
    }
    let waits: Vec<u64> = fixture.requested_at.windows(2).map(|two| two[1] - two[0]).collect();
    assert_eq!(&waits[..9], [5, 10, 20, 40, 80, 160, 320, 600, 600]);
    assert_eq!(waits.iter().max(), Some(&600));
    fixture.send(In::Answered(Ok("d-1".into())));
    assert_eq!((fixture.found.as_deref(), fixture.machine.deadline()), (Some("d-1"), None));
}

#[test]
fn e1_a_missing_deployment_is_reported_once() {
    for certain in [Failure::Absent, Failure::Denied("no".into())] {
        let mut fixture = Fixture::begun();
        fixture.fails(certain.clone());
        assert_eq!(fixture.reported, std::slice::from_ref(&certain));
        (0..9).for_each(|_| fixture.fails(certain.clone()));
        (0..9).for_each(|_| fixture.fails(other()));
        assert_eq!(fixture.reported, [certain], "once");
    }
    let mut fixture = Fixture::begun();
    (0..2).for_each(|_| fixture.fails(other()));
    assert_eq!(fixture.reported, []);
    fixture.fails(other());
    assert_eq!(fixture.reported, [other()]);
}
