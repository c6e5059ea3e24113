//! Tests of admin states that a source sets, and of reports about a pool that is filled from one (X2, X4, D3).

use super::*;
use model::level::States;
use model::xds::name::Name;

/// The UID of the source.
const SOURCE: &str = "eds:shop";

fn source(note: &str) -> Source {
    let name = Name::parse(SOURCE).expect("a source");
    Source::Xds { name, note: note.into(), diagnostics: BTreeSet::new() }
}

impl Drive {
    /// Creates a pool that is filled from a source and has the members 1 and 2, at 0 s.
    fn listed(params: Params) -> Drive {
        let mut drive = Drive::new(params);
        drive.assignment.source = source("refused");
        drive.set_source_states(&[1, 2], &[], States::default()).observe(&[1, 2]);
        assert_eq!(drive.state(), PoolState::InSync);
        drive.take_outputs();
        drive
    }

    /// Makes the source require these members and these admin states.
    fn set_source_states(&mut self, required: &[u8], tolerated: &[u8], states: States) -> &mut Drive {
        let key = ServiceKey::of_source(SOURCE);
        let share = Share { key, tolerated: ips(tolerated), ..share("", required) };
        self.assignment.services.insert(ServiceUid::new(SOURCE), share);
        let member = |n: &u8| (ip(*n), Member { name: AddressName::new("node"), node_ready: true });
        let required = required.iter().map(member).collect();
        self.assignment.level = Level { required, tolerated: ips(tolerated), states, ..Level::default() };
        self.step(In::Assigned(Arc::new(self.assignment.clone())))
    }

    /// Observes these members, some of them Down, with a GET that begins now.
    fn observe_down(&mut self, members: &[u8], down: &[u8]) -> &mut Drive {
        self.observe_in(members, down, AdminState::Down)
    }

    /// Observes these members, some of them in this state, with a GET that begins now.
    fn observe_in(&mut self, members: &[u8], some: &[u8], state: AdminState) -> &mut Drive {
        let mut facts = facts(members);
        for entry in &mut Arc::make_mut(&mut facts).entries {
            if entry.ip.is_some_and(|at| ips(some).contains(&at)) {
                entry.admin_state = state;
            }
        }
        let began = self.now;
        self.step(In::Observed(Observation { began, facts }))
    }

    fn urgency(&self) -> Option<MembershipUrgency> {
        self.due.map(|due| due.urgency)
    }

    fn drifts(&mut self) -> usize {
        self.samples.drain(..).filter(|sample| *sample == Metric::Drift).count()
    }
}

fn down(members: &[u8]) -> States {
    States { down: ips(members), lifted: BTreeSet::new() }
}

fn lifted(members: &[u8]) -> States {
    States { down: BTreeSet::new(), lifted: ips(members) }
}

fn nothing_moved(members: &[u8]) -> Outcome {
    Outcome::Written {
        members: ips(members),
        added: BTreeSet::new(),
        removed: BTreeSet::new(),
        record: Arc::default(),
    }
}

#[test]
fn x2_a_level_with_only_wrong_states_is_written_then_in_sync() {
    for outcome in [nothing_moved(&[1, 2]), Outcome::Unchanged { members: ips(&[1, 2]) }] {
        let mut drive = Drive::listed(params());
        drive.set_source_states(&[1], &[2], down(&[2])).at(499);
        assert_eq!(drive.urgency(), None, "the window of a change");
        drive.at(500);
        assert_eq!(drive.urgency(), Some(MembershipUrgency::Remove));
        let id = drive.take();
        let taken = drive.taken(id).expect("a level");
        assert_eq!(taken.level.states, down(&[2]));
        drive.finish(id, outcome).at(60_000);
        assert_eq!((drive.state(), drive.due), (PoolState::InSync, None));
        drive.observe_down(&[1, 2], &[2]).at(120_000);
        assert_eq!((drive.state(), drive.drifts()), (PoolState::InSync, 0));
        drive.set_source_states(&[1, 2], &[], lifted(&[2])).at(120_500);
        assert_eq!(drive.urgency(), Some(MembershipUrgency::Add), "the Down is to be taken back");
        drive.attempt(nothing_moved(&[1, 2])).at(180_000);
        assert_eq!((drive.state(), drive.due), (PoolState::InSync, None));
        drive.observe_down(&[1, 2], &[]).at(240_000);
        assert_eq!((drive.state(), drive.drifts()), (PoolState::InSync, 0));
    }
}

#[test]
fn w1_x2_a_pool_that_is_all_down_is_revived_by_a_restore() {
    let mut drive = Drive::listed(params());
    drive.set_source_states(&[], &[1, 2], down(&[1, 2])).at(1_000);
    drive.attempt(nothing_moved(&[1, 2])).at(60_000).observe_down(&[1, 2], &[1, 2]);
    drive.set_source_states(&[1, 2], &[], lifted(&[1, 2])).at(61_000);
    assert_eq!(drive.urgency(), Some(MembershipUrgency::Revive), "it serves no traffic until then");
}

#[test]
fn x2_new_admin_states_of_a_source_alone_are_a_change() {
    let mut drive = Drive::listed(params());
    drive.set_source_states(&[1], &[2], States::default()).at(60_000);
    assert_eq!((drive.state(), drive.due), (PoolState::InSync, None));
    drive.set_source_states(&[1], &[2], down(&[2])).at(60_500);
    assert_eq!(drive.urgency(), Some(MembershipUrgency::Remove));
}

#[test]
fn d3_later_changes_of_states_are_drift_and_a_fresh_change() {
    for (states, at_first, otherwise) in
        [(down(&[2]), &[2][..], &[][..]), (lifted(&[2]), &[], &[2]), (down(&[2, 7]), &[2], &[])]
    {
        let mut drive = Drive::listed(params());
        let (required, tolerated): (&[u8], &[u8]) =
            if states.lifted.is_empty() { (&[1], &[2, 7]) } else { (&[1, 2], &[]) };
        drive.set_source_states(required, tolerated, states.clone());
        if drive.at(1_000).due.is_some() {
            drive.attempt(nothing_moved(&[1, 2]));
        }
        drive.at(60_000).observe_down(&[1, 2], at_first);
        assert_eq!((drive.state(), drive.drifts(), drive.due), (PoolState::InSync, 0, None), "{states:?}");
        drive.at(120_000).observe_down(&[1, 2], otherwise).at(121_000);
        let urgency =
            if states.lifted.is_empty() { MembershipUrgency::Remove } else { MembershipUrgency::Add };
        assert_eq!((drive.drifts(), drive.urgency()), (1, Some(urgency)), "{states:?}");
        drive.attempt(nothing_moved(&[1, 2]));
        assert_eq!(drive.state(), PoolState::InSync, "{states:?}");
    }
}

#[test]
fn x2_states_of_absent_or_in_sync_addresses_cause_no_write() {
    for (required, tolerated, states) in
        [(&[1, 2][..], &[7][..], down(&[7])), (&[1, 2][..], &[][..], lifted(&[1, 2]))]
    {
        let mut drive = Drive::listed(params());
        drive.set_source_states(required, tolerated, states.clone()).at(60_000).observe(&[1, 2]).at(120_000);
        assert_eq!((drive.state(), drive.due), (PoolState::InSync, None), "{states:?}");
    }
    let mut drive = Drive::listed(params());
    drive.at(10_000).observe_down(&[1, 2], &[1]).at(20_000);
    assert_eq!((drive.state(), drive.due), (PoolState::InSync, None), "nothing is said of a foreign Down");
}

#[test]
fn w3_an_unknown_admin_state_is_unchanged_and_no_drift() {
    let mut drive = Drive::listed(params());
    drive.observe_in(&[1, 2], &[2], AdminState::Unknown).set_source_states(&[1], &[2], down(&[2]));
    for minute in 1..5 {
        drive.at(minute * 60_000).observe_in(&[1, 2], &[2], AdminState::Unknown);
        assert_eq!((drive.state(), drive.due, drive.drifts()), (PoolState::InSync, None, 0));
    }
    drive.at(300_000).observe(&[1, 2]).at(301_000);
    assert_eq!(drive.drifts(), 1, "it is known now");
}

#[test]
fn q2_states_that_return_within_the_window_are_no_change() {
    let mut drive = Drive::listed(params());
    drive
        .set_source_states(&[1], &[2], down(&[2]))
        .at(300)
        .set_source_states(&[1], &[2], States::default())
        .at(60_000);
    assert_eq!((drive.state(), drive.due), (PoolState::InSync, None));
    assert!(drive.events_of_source().is_empty());
}

#[test]
fn c4_states_in_a_dry_run_are_neither_written_nor_retried() {
    let mut drive = Drive::listed(params());
    drive.set_source_states(&[1], &[2], down(&[2])).at(1_000);
    let (added, removed) = (BTreeSet::new(), BTreeSet::new());
    drive.attempt(Outcome::Withheld { members: ips(&[1, 2]), added, removed });
    for minute in 1..5 {
        drive.at(minute * 60_000).observe(&[1, 2]);
        assert_eq!((drive.state(), drive.due), (PoolState::Waiting, None));
    }
    drive.observe_down(&[1, 2], &[2]);
    assert_eq!(drive.state(), PoolState::InSync);
}

#[test]
fn w11_states_are_corrected_while_foreign_members_stay() {
    let mut drive = Drive::listed(params());
    drive.set_source_states(&[1], &[2], down(&[2])).at(1_000).attempt(nothing_moved(&[1, 2]));
    for n in 1..=3 {
        drive.at(n * 60_000).observe_down(&[1, 2, 9], &[2]).at(n * 60_000 + 1_000);
        let (members, removed) = (ips(&[1, 2]), ips(&[9]));
        drive.attempt(Outcome::Written { members, added: BTreeSet::new(), removed, record: Arc::default() });
    }
    let contentions = drive.samples.iter().filter(|sample| **sample == Metric::Contention).count();
    assert_eq!(contentions, 1, "what is added is left from now on");
    drive.at(200_000).observe_down(&[1, 2], &[]).at(201_000);
    assert_eq!(drive.urgency(), Some(MembershipUrgency::Remove));
}

impl Drive {
    /// Returns the reports since the last call; checks that each is about the controller and carries the text about the
    /// source.
    fn events_of_source(&mut self) -> Vec<&'static str> {
        let reports = self.reports.drain(..);
        let reports = reports.map(|report| {
            assert_eq!(report.subjects, [Subject::Controller]);
            assert_eq!(report.note.as_deref(), Some("refused"), "{:?}", report.what);
            reason(&report.what)
        });
        reports.collect()
    }
}

#[test]
fn x4_reports_of_a_pool_of_a_source_go_to_the_controller() {
    let mut told = BTreeSet::new();
    for outcome in [
        nothing_moved(&[1]),
        conflict(),
        forbidden(),
        Outcome::NotManageable(NotManageable::ServiceRule { rule: "a".into() }),
    ] {
        let mut drive = Drive::listed(Params { max_retries: 1, ..params() });
        drive.set_source_states(&[1], &[], States::default()).at(1_000).attempt(outcome.clone());
        told.extend(drive.events_of_source());
        if let Outcome::Retriable { .. } = outcome {
            drive.at(60_000).attempt(outcome);
            told.extend(drive.events_of_source());
        }
    }
    let mut drive = Drive::listed(params());
    drive.set_source_states(&[1], &[], States::default()).at(1_000);
    let attempt = drive.take();
    let (added, removed) = (BTreeSet::new(), ips(&[2]));
    drive.finish(attempt, Outcome::Written { members: ips(&[1]), added, removed, record: Arc::default() });
    let (facts, began) = (facts(&[1, 2]), drive.at(5_000).now);
    drive.step(In::Verified(WriteFate::Lost { attempt, facts, began }));
    told.extend(drive.events_of_source());
    let all = ["exhausted", "failed", "not manageable", "retrying", "updated", "writes lost"];
    assert_eq!(told, all.into());
}

#[test]
fn q8_a_changed_assignment_restarts_a_failed_pool() {
    let mut drive = Drive::listed(Params { after_failure: None, ..params() });
    drive.set_source_states(&[1], &[], States::default()).at(1_000).attempt(forbidden());
    assert_eq!(drive.events_of_source(), ["failed"]);
    drive.at(60_000).edit_source("timed out").at(120_000);
    assert_eq!(drive.due, None, "nothing has changed that could help");
    let share = drive.assignment.services.values_mut().next().expect("the source");
    share.revision += 1;
    let newest = Arc::new(drive.assignment.clone());
    drive.step(In::Assigned(newest)).at(121_000);
    assert_eq!(drive.urgency(), Some(MembershipUrgency::Remove));
}

impl Drive {
    /// Gives the source another error in addition to its assignment.
    fn edit_source(&mut self, note: &str) -> &mut Drive {
        self.assignment.source = source(note);
        self.step(In::Assigned(Arc::new(self.assignment.clone())))
    }
}
