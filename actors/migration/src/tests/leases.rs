//! The hold of a Lease that other clients acquire too.

use std::sync::Arc;
use std::time::Duration;

use model::arm::Document;
use model::lease::{GateTimes, LeaseAnswer, LeaseFacts, LeaseName, LeaseRequest};
use model::machine::{Machine, Now};
use model::object::ResourceVersion;

use crate::lease::{LeaseHold, LeaseIn, LeaseOut, LeaseParams};

const US: &str = "migrate-basic-lb_1";

/// A Lease in the API server, and its hold, on one clock.
struct Stage {
    lease: Option<Arc<LeaseFacts>>,
    hold: LeaseHold,
    now: Now,
    version: u64,
    held: bool,
    reported: Vec<String>,
    is_unreachable: bool,
}

impl Stage {
    fn new() -> Stage {
        let params = LeaseParams {
            holder: US.into(),
            duration: Duration::from_secs(60),
            renew_every: Duration::from_secs(15),
            foreign_for: Duration::from_secs(65),
            released_duration: Duration::from_secs(1),
            leaves_name: false,
        };
        Stage {
            lease: None,
            hold: LeaseHold::new(params),
            now: Now::from_millis(1_000),
            version: 0,
            held: false,
            reported: Vec::new(),
            is_unreachable: false,
        }
    }

    fn write(&mut self, holder: Option<&str>) -> Arc<LeaseFacts> {
        self.version += 1;
        let facts = Arc::new(LeaseFacts {
            lease: LeaseName::Own,
            holder: holder.map(Arc::from),
            duration: None,
            renewed_ago: None,
            transitions: 0,
            version: ResourceVersion(self.version.to_string().into()),
            gates: GateTimes::default(),
            out_of_sync: Arc::default(),
            document: Document::new(()),
        });
        self.lease = Some(Arc::clone(&facts));
        facts
    }

    fn answer(&mut self, request: &LeaseRequest) -> LeaseAnswer {
        match (request, self.lease.clone()) {
            (LeaseRequest::Get | LeaseRequest::Watch(..), Some(facts)) => LeaseAnswer::Seen(facts),
            (LeaseRequest::Get | LeaseRequest::Watch(..), None) => LeaseAnswer::Absent,
            (LeaseRequest::Create(_), Some(_)) => LeaseAnswer::Conflict,
            (LeaseRequest::Replace(known, _), there)
                if there.as_ref().map(|it| &it.version) != Some(&known.version) =>
            {
                LeaseAnswer::Conflict
            }
            (LeaseRequest::Create(edit) | LeaseRequest::Replace(_, edit), _) => {
                LeaseAnswer::Seen(self.write(edit.holder.as_deref()))
            }
        }
    }

    fn step(&mut self, input: Option<LeaseIn>) {
        let mut out = Vec::new();
        match input {
            Some(input) => self.hold.step(self.now, input, &mut out),
            None => self.hold.tick(self.now, &mut out),
        }
        let mut answers = Vec::new();
        for output in out {
            match output {
                LeaseOut::Request(..) if self.is_unreachable => {}
                LeaseOut::Request(id, request) => answers.push(LeaseIn::Answer(id, self.answer(&request))),
                LeaseOut::Held(held) => self.held = held,
                LeaseOut::HeldBy(holder) => self.reported.push(holder.to_string()),
                LeaseOut::Failed(reason) => self.reported.push(reason),
            }
        }
        answers.into_iter().for_each(|answer| self.step(Some(answer)));
    }

    fn want(&mut self, wanted: bool) {
        self.step(Some(LeaseIn::Want(wanted)));
    }

    /// Advances the clock, with a tick at each deadline.
    fn pass(&mut self, seconds: u64) {
        let end = self.now.plus(Duration::from_secs(seconds));
        while let Some(deadline) = self.hold.deadline().filter(|deadline| *deadline <= end) {
            self.now = self.now.max(deadline);
            self.step(None);
        }
        self.now = end;
    }

    fn holder(&self) -> Option<&str> {
        self.lease.as_ref()?.holder.as_deref()
    }
}

#[test]
fn a_lease_is_acquired_renewed_and_released() {
    let mut stage = Stage::new();
    stage.want(true);
    assert!(stage.held);
    let first = stage.version;
    stage.pass(600);
    assert!(stage.held && stage.version >= first + 30, "it is renewed");
    stage.want(false);
    assert_eq!((stage.holder(), stage.held, stage.hold.is_free()), (None, false, true));
}

#[test]
fn an_active_holder_is_awaited_and_named_once() {
    let mut stage = Stage::new();
    stage.write(Some("controller"));
    stage.want(true);
    for _ in 0..20 {
        stage.pass(20);
        stage.write(Some("controller"));
    }
    assert!(!stage.held);
    assert_eq!(stage.reported, ["controller"]);
    stage.write(None);
    stage.pass(10);
    assert!(stage.held);
}

#[test]
fn a_crashed_holder_is_awaited_by_the_local_clock() {
    let mut stage = Stage::new();
    stage.write(Some("gone"));
    stage.want(true);
    stage.pass(60);
    assert!(!stage.held);
    stage.pass(15);
    assert!(stage.held);
}

#[test]
fn w8_an_unrenewed_hold_ends_before_others_may_acquire_it() {
    let mut stage = Stage::new();
    stage.want(true);
    stage.is_unreachable = true;
    stage.pass(34);
    assert!(stage.held);
    stage.pass(2);
    assert!(!stage.held);
    assert!(stage.hold.send_deadline().is_some_and(|last| last < stage.now));
}

#[test]
fn a_lease_that_another_client_has_written_is_lost() {
    let mut stage = Stage::new();
    stage.want(true);
    stage.write(Some("another"));
    stage.pass(16);
    assert!(!stage.held);
    assert_eq!(stage.holder(), Some("another"));
}
