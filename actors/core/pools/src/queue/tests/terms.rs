//! Tests of terms of leadership in one pool (W8): no observation from before the start of a term counts, and no level
//! older than its first one is written.

use proptest::prelude::*;

use super::*;

impl Drive {
    /// Opens this term, as the Directory does.
    fn open(&mut self, epoch: u64) -> &mut Drive {
        let opened = self.now;
        self.edit(|a| (a.epoch, a.opened) = (Epoch(epoch), opened))
    }

    /// Sends a Take of this term, and returns the answer.
    fn grant_of(&mut self, epoch: u64) -> Option<MembershipWrite> {
        self.attempts += 1;
        let id = AttemptId { epoch: Epoch(epoch), n: self.attempts };
        self.due = None;
        self.step(In::Take(id));
        self.taken(id)
    }
}

#[test]
fn w8_a_newer_term_releases_the_attempt_of_the_older_one() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.open(2).take_outputs();
    drive.finish(id, forbidden());
    assert_eq!(drive.samples, [Metric::UnmatchedAnswer]);
    drive.at(5_000).observe(&[1]).at(5_500);
    assert!(drive.due.is_some());
}

#[test]
fn w8_a_newer_term_drops_earlier_tries_and_compares_again() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500).attempt(throttled(900_000));
    drive.events();
    drive.at(40_000).open(2);
    assert_eq!(drive.state(), PoolState::Unknown, "no longer parked");
    drive.at(41_000).observe(&[1]);
    let view = drive.view.clone().expect("a view");
    assert_eq!(view.retries[&ServiceUid::new("web")], [0], "a fresh budget");
    assert_eq!(view.state, PoolState::Waiting);
    assert!(drive.events().is_empty());
    drive.at(41_500);
    assert!(drive.due.is_some());
}

#[test]
fn w8_in_a_newer_term_a_pool_is_due_only_after_a_read() {
    let mut drive = Drive::in_sync(params());
    drive.at(10_000).open(2);
    assert_eq!(drive.state(), PoolState::Unknown, "who led before may have written it");
    drive.require("web", &[2]).at(20_000);
    assert!(drive.due.is_none());
    let began = Now::from_millis(9_999);
    drive.step(In::Observed(Observation { began, facts: facts(&[1]) })).at(30_000);
    assert!(drive.due.is_none(), "a look that began before the term is not believed");
    drive.observe(&[3]).at(30_500);
    assert!(drive.due.is_some());
}

#[test]
fn w8_a_newer_term_withdraws_a_due_pool_until_it_is_read() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    assert!(drive.due.is_some());
    drive.open(2);
    assert!(drive.due.is_none() && drive.sent_any(|said| matches!(said, Out::Withdraw(_))));
    drive.at(2_000).observe(&[2]);
    assert_eq!(drive.state(), PoolState::InSync, "another client has done it");
    drive.at(60_000);
    assert!(drive.due.is_none());
}

#[test]
fn w8_a_read_of_the_term_before_its_assignment_counts() {
    let mut drive = Drive::in_sync(params());
    drive.at(10_000).observe(&[1]).open(2);
    assert_eq!(drive.state(), PoolState::InSync);
    drive.at(20_000).observe(&[3]).require("web", &[2]);
    let opened = Now::from_millis(20_000);
    drive.edit(|a| (a.epoch, a.opened) = (Epoch(3), opened)).at(20_500);
    assert!(drive.due.is_some());
}

#[test]
fn w8_results_of_an_older_term_are_not_used_in_a_newer_one() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let id = drive.take();
    drive.at(3_000);
    let opened = drive.now;
    drive.finish(id, Outcome::Unchanged { members: ips(&[2]) });
    drive.edit(|a| (a.epoch, a.opened) = (Epoch(2), opened));
    assert_eq!(drive.state(), PoolState::Unknown, "its GET may be older than the term");
}

#[test]
fn w8_a_take_of_a_newer_term_gets_no_level_before_assignment() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    assert!(drive.grant_of(2).is_none());
    drive.at(10_000).observe(&[1]).require("web", &[3]).at(20_000);
    assert!(drive.due.is_none(), "the level may be older than the term's");
    drive.at(30_000).open(2).at(31_000).observe(&[1]).at(31_500);
    assert!(drive.due.is_some());
    let taken = drive.grant_of(2).expect("it is due");
    assert!(taken.level.required.keys().eq(&ips(&[3])));
}

#[test]
fn w8_a_take_of_an_older_term_gets_no_level_and_is_due_again() {
    let mut drive = Drive::in_sync(params());
    drive.open(2).require("web", &[2]).observe(&[1]).at(500);
    assert!(drive.due.is_some());
    assert!(drive.grant_of(1).is_none());
    let due = drive.due.expect("posted again");
    assert_eq!(due.since, Now::from_millis(500));
    assert!(drive.grant_of(2).is_some());
}

#[test]
fn w8_an_assignment_of_an_older_term_is_ignored() {
    let mut drive = Drive::in_sync(params());
    drive.open(3).observe(&[1]);
    drive.edit(|a| a.epoch = Epoch(2)).require("web", &[2]).at(10_000);
    assert!(drive.due.is_none());
    assert_eq!(drive.state(), PoolState::InSync);
}

#[test]
fn w8_a_pool_released_with_a_term_retires_without_an_answer() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    drive.take();
    drive.drop_service("web");
    assert!(!drive.sent_any(|said| matches!(said, Out::Retired(_))), "the attempt is still to be answered");
    drive.open(2);
    assert!(drive.sent_any(|said| matches!(said, Out::Retired(_))));
}

#[test]
fn w8_a_verdict_on_a_write_of_an_older_term_is_unmatched() {
    let mut drive = Drive::in_sync(params());
    drive.require("web", &[2]).at(500);
    let attempt = drive.take();
    drive.finish(attempt, written(&[2]));
    drive.open(2).take_outputs();
    let (facts, began) = (facts(&[1]), drive.now);
    drive.step(In::Verified(WriteFate::Lost { attempt, facts, began }));
    assert_eq!(drive.samples, [Metric::UnmatchedAnswer]);
}

/// An event around one pool. Its Directory and its writer are informed of terms at different times.
#[derive(Clone, Debug)]
enum Op {
    /// The Directory sends a newer level.
    Say,
    /// The Directory opens the next term.
    Open,
    /// The oldest message of the Directory arrives.
    Deliver,
    /// An observation that began this many milliseconds ago is sent by the Directory.
    See(u64),
    /// The writer is informed of the newest term.
    Lead,
    /// The writer grants the lane, whether the pool is due or not.
    Grant,
    Finish(bool),
    Wait(u64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Say),
        2 => Just(Op::Open),
        8 => Just(Op::Deliver),
        4 => (0..3_000_u64).prop_map(Op::See),
        2 => Just(Op::Lead),
        6 => Just(Op::Grant),
        4 => any::<bool>().prop_map(Op::Finish),
        4 => (0..6_000_u64).prop_map(Op::Wait),
    ]
}

/// The Directory and the writer of one pool, and what an observer knows about its terms.
struct World {
    drive: Drive,
    on_its_way: std::collections::VecDeque<In>,
    /// The newest level, which is the number of its only member, and the term with its start.
    level: u8,
    term: (u64, Now),
    /// The level at the start of each term.
    floors: BTreeMap<u64, u8>,
    /// Inputs that the pool has received: the term with its start, and the newest observation.
    told: (u64, Now),
    looked: Option<Now>,
    /// The term in which the writer works, and the newest term of its grants.
    leads: u64,
    granted: u64,
    running: Option<(AttemptId, MembershipWrite)>,
    real: u8,
}

impl World {
    fn new() -> World {
        World {
            drive: Drive::new(params()),
            on_its_way: [].into(),
            level: 1,
            term: (0, Now::ZERO),
            floors: [(0, 1)].into(),
            told: (0, Now::ZERO),
            looked: None,
            leads: 0,
            granted: 0,
            running: None,
            real: 1,
        }
    }

    fn send_level(&mut self) {
        self.level += 1;
        let assignment = &mut self.drive.assignment;
        (assignment.epoch, assignment.opened) = (Epoch(self.term.0), self.term.1);
        let share = share("web", &[self.level]);
        let member = |ip: &IpAddr| (*ip, Member { name: AddressName::new("node"), node_ready: true });
        assignment.level.required = share.required.iter().map(member).collect();
        assignment.services.insert(ServiceUid::new("web"), share);
        self.on_its_way.push_back(In::Assigned(Arc::new(assignment.clone())));
    }

    fn deliver(&mut self) {
        let Some(input) = self.on_its_way.pop_front() else { return };
        if let In::Assigned(assignment) = &input {
            self.told = (assignment.epoch.0, assignment.opened);
        } else if let In::Observed(seen) = &input {
            self.looked = self.looked.max(Some(seen.began));
        }
        self.drive.step(input);
    }

    fn observe(&mut self, age: u64) {
        let began = self.drive.now.minus(Duration::from_millis(age));
        self.on_its_way.push_back(In::Observed(Observation { began, facts: facts(&[self.real]) }));
    }

    fn grant(&mut self) {
        if self.running.is_some() {
            return;
        }
        self.granted = self.granted.max(self.leads);
        if let Some(taken) = self.drive.grant_of(self.leads) {
            let level = taken.level.required.keys().next().expect("one member");
            assert!(*level >= ip(self.floors[&self.leads]), "an older level than the term's");
            assert_eq!(self.told.0, self.leads, "a level of another term");
            let id = AttemptId { epoch: Epoch(self.leads), n: self.drive.attempts };
            self.running = Some((id, taken));
        }
    }

    fn finish(&mut self, written: bool) {
        let Some((id, taken)) = self.running.take() else { return };
        let level = *taken.level.required.keys().next().expect("one member");
        let outcome = if written {
            let IpAddr::V4(level) = level else { panic!("members are IPv4") };
            self.real = level.octets()[3];
            super::written(&[self.real])
        } else {
            conflict()
        };
        self.drive.finish(id, outcome);
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Say => self.send_level(),
            Op::Open => {
                self.term = (self.term.0 + 1, self.drive.now);
                self.send_level();
                self.floors.insert(self.term.0, self.level);
            }
            Op::Deliver => self.deliver(),
            Op::See(age) => self.observe(*age),
            Op::Lead => {
                // Attempts of an older term do not count.
                if std::mem::replace(&mut self.leads, self.term.0) != self.term.0 {
                    self.running = None;
                }
            }
            Op::Grant => self.grant(),
            Op::Finish(written) => self.finish(*written),
            Op::Wait(ms) => {
                let end = self.drive.now.plus(Duration::from_millis(*ms));
                self.drive.at(end.as_micros() / 1_000);
            }
        }
        if self.drive.said.iter().any(|said| matches!(said, Out::Due(..))) {
            assert!(self.looked >= Some(self.told.1), "due before it was seen in the term");
            assert!(self.told.0 >= self.granted, "due although a newer term is known");
        }
        self.drive.said.clear();
        assert_eq!(self.drive.queue.check(), Ok(()));
    }
}

proptest! {
    /// Safety: no level older than the term's first is handed out, no level of another term, and nothing is due before
    /// the pool was observed in the term. Liveness: when messages arrive and reads are made, the newest level is
    /// written.
    #[test]
    fn w8_no_level_of_an_older_term_is_written(
        ops in prop::collection::vec(op(), 1..120),
    ) {
        let mut world = World::new();
        for op in &ops {
            world.apply(op);
        }
        world.apply(&Op::Say);
        while !world.on_its_way.is_empty() {
            world.apply(&Op::Deliver);
        }
        world.apply(&Op::Lead);
        world.apply(&Op::Finish(false));
        for _ in 0..40 {
            for op in [Op::See(0), Op::Deliver, Op::Wait(10_000)] {
                world.apply(&op);
            }
            if world.drive.due.is_some() {
                world.apply(&Op::Grant);
                world.apply(&Op::Finish(true));
            }
        }
        prop_assert_eq!(world.real, world.level, "{:?}", world.drive.queue);
        prop_assert_eq!(world.drive.state(), PoolState::InSync);
    }
}
