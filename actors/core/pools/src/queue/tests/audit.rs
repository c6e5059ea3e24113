//! Tests of the view and the event of a pool's last attempt: the changes, the reason, and the correlation id (E1,
//! H3).

use super::*;
use model::operator_request::RequestId;
use model::view::LastAttempt;
use model::write_record::{Trigger, WriteRecord};

impl Drive {
    fn last(&self) -> LastAttempt {
        self.view.as_ref().and_then(|view| view.last_end.clone()).expect("an attempt has ended")
    }

    fn record(&self) -> WriteRecord {
        self.last().record.map(|record| (*record).clone()).expect("it was answered")
    }

    /// Returns the trigger of the next granted attempt.
    fn trigger(&mut self) -> Trigger {
        let id = self.take();
        self.taken(id).expect("a level").trigger
    }
}

#[test]
fn e1_the_event_and_the_view_have_the_record_of_the_write() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).at(1_000);
    let id = drive.take();
    let record = Arc::new(WriteRecord { correlation_id: Some("c-1".into()), ..WriteRecord::default() });
    let outcome = Outcome::Written {
        members: ips(&[1, 2]),
        added: ips(&[2]),
        removed: ips(&[]),
        record: Arc::clone(&record),
    };
    drive.finish(id, outcome);
    let EventKind::Updated { members, record: told, .. } = &drive.reports[0].what else {
        panic!("{:?}", drive.reports)
    };
    assert_eq!((*members, told), (2, &record));
    assert_eq!(
        (drive.last().end, drive.last().at, drive.record()),
        (AttemptEnd::Written, drive.now, (*record).clone())
    );
}

#[test]
fn e1_an_attempt_without_a_write_names_services_and_trigger() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).at(1_000).attempt(Outcome::Unchanged { members: ips(&[1, 2]) });
    let expected = WriteRecord::of(Trigger::Endpoints, [&ServiceKey::new("shop", "web")].into_iter(), None);
    assert_eq!(drive.record(), expected);
    let EventKind::Updated { record, .. } = &drive.reports[0].what else { panic!("{:?}", drive.reports) };
    assert_eq!(**record, expected);
}

#[test]
fn e1_a_failed_attempt_has_the_correlation_id_of_the_failure() {
    let mut drive = Drive::in_sync(params());
    let refused =
        Failure { correlation_id: Some("c-9".into()), ..(*failure(403, "AuthorizationFailed")).clone() };
    drive.require("web", &[1, 2]).at(1_000).attempt(Outcome::Terminal { failure: Arc::new(refused) });
    assert_eq!(drive.last().end, AttemptEnd::Failed);
    assert_eq!(drive.record().correlation_id.as_deref(), Some("c-9"));
}

#[test]
fn e1_a_new_term_leaves_no_record_of_the_old_one() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).at(1_000).attempt(Outcome::Unchanged { members: ips(&[1, 2]) });
    drive.require("web", &[1]).at(10_000).take();
    drive.edit(|assignment| assignment.epoch = Epoch(2));
    assert_eq!((drive.last().end, drive.last().record), (AttemptEnd::Interrupted, None));
}

#[test]
fn e1_each_attempt_has_its_trigger() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).at(1_000);
    assert_eq!(drive.trigger(), Trigger::Endpoints);

    let mut drive = Drive::in_sync(params());
    drive.at(1_000).observe(&[1, 9]).at(2_000);
    assert_eq!(drive.trigger(), Trigger::Comparison, "another client has added a member");

    let mut drive = Drive::in_sync(params());
    drive.require("web", &[1, 2]).step(In::Attempt(RequestId(1)));
    assert_eq!(drive.trigger(), Trigger::OperatorRequest);

    let mut drive = Drive::in_sync(params());
    let began = drive.at(60_000).now;
    let mut failed = facts(&[1]);
    Arc::make_mut(&mut failed).provisioning = Provisioning::Failed;
    drive.step(In::Observed(Observation { began, facts: failed })).step(In::Rewrite);
    assert_eq!(drive.trigger(), Trigger::ProvisioningFailed);
}

#[test]
fn e1_an_attempt_that_continues_keeps_its_trigger() {
    let mut drive = Drive::in_sync(params());
    drive.at(1_000).observe(&[1, 9]).at(2_000);
    let id = drive.take();
    drive.require("web", &[1, 2]).at(3_000).step(In::Take(id));
    assert_eq!(drive.taken(id).expect("a level").trigger, Trigger::Comparison);
}
