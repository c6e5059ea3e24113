//! Property tests of safety and liveness over random histories of one pool.

use proptest::prelude::*;
use proptest::sample::subsequence;

use super::*;
use model::assignment::PausedBy;

/// An event of the pool.
#[derive(Clone, Debug)]
enum Op {
    Want {
        service: &'static str,
        required: Vec<u8>,
        tolerated: Vec<u8>,
        revised: bool,
    },
    Leave(&'static str),
    Pause(bool),
    NewTerm,
    /// A GET that began this many milliseconds ago.
    See {
        age: u64,
    },
    /// Another client writes the pool.
    Foreign(Vec<u8>),
    Grant,
    GrantAgain,
    Finish {
        outcome: Ending,
        strange: bool,
    },
    Verify {
        lost: bool,
    },
    /// The writer stretches the interval to this many milliseconds.
    Pace(u64),
    Wait(u64),
    /// A wake-up without a request.
    Tick,
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Written,
    Unchanged,
    Withheld,
    NotGranted,
    Stale,
    NotManageable,
    /// Parked for this many milliseconds; the PUT went through or not.
    Retriable {
        parked: u64,
        applied: bool,
    },
    Terminal {
        status: u16,
        applied: bool,
    },
    Interrupted {
        applied: bool,
    },
}

fn members() -> impl Strategy<Value = Vec<u8>> {
    subsequence(vec![1, 2, 3, 4], 0..=4)
}

fn service() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("api"), Just("web")]
}

fn ending() -> impl Strategy<Value = Ending> {
    prop_oneof![
        4 => Just(Ending::Written),
        1 => Just(Ending::Unchanged),
        1 => Just(Ending::Withheld),
        1 => Just(Ending::NotGranted),
        1 => Just(Ending::Stale),
        1 => Just(Ending::NotManageable),
        5 => (0..100_000_u64, any::<bool>()).prop_map(|(parked, applied)| Ending::Retriable { parked, applied }),
        2 => (400..403_u16, any::<bool>()).prop_map(|(status, applied)| Ending::Terminal { status, applied }),
        1 => any::<bool>().prop_map(|applied| Ending::Interrupted { applied }),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (service(), members(), members(), any::<bool>()).prop_map(|(service, required, tolerated, revised)| {
            Op::Want { service, required, tolerated, revised }
        }),
        1 => service().prop_map(Op::Leave),
        1 => any::<bool>().prop_map(Op::Pause),
        1 => Just(Op::NewTerm),
        3 => (0..20_000_u64).prop_map(|age| Op::See { age }),
        1 => members().prop_map(Op::Foreign),
        6 => Just(Op::Grant),
        1 => Just(Op::GrantAgain),
        6 => (ending(), prop::bool::weighted(0.1)).prop_map(|(outcome, strange)| Op::Finish { outcome, strange }),
        1 => any::<bool>().prop_map(|lost| Op::Verify { lost }),
        1 => (0..60_000_u64).prop_map(Op::Pace),
        4 => (0..3_000_u64).prop_map(Op::Wait),
        3 => (3_000..90_000_u64).prop_map(Op::Wait),
        1 => Just(Op::Tick),
    ]
}

/// The writer, Azure, and the account that checks the pool's outputs.
struct World {
    drive: Drive,
    real: BTreeSet<IpAddr>,
    /// The running attempt and its level.
    running: Option<(AttemptId, MembershipWrite)>,
    last_written: Option<AttemptId>,
    state: Option<PoolState>,
    /// The earliest time of the next attempt.
    not_before: Now,
    heard: usize,
    /// The reported conditions that have not ended.
    open: BTreeSet<Condition>,
    ms: u64,
    max_retries: u32,
}

impl World {
    fn new(params: Params) -> World {
        let max_retries = params.max_retries;
        World {
            drive: Drive::new(params),
            real: ips(&[1]),
            running: None,
            last_written: None,
            state: None,
            not_before: Now::ZERO,
            heard: 0,
            open: BTreeSet::new(),
            ms: 0,
            max_retries,
        }
    }

    /// Checks all outputs since the last call, which one input caused.
    fn check_outputs(&mut self, finished: bool) {
        let said = self.drive.said.split_off(self.heard);
        let mut told: BTreeSet<(String, Subject)> = BTreeSet::new();
        let (mut observations, mut losses, mut losses_told) = (0, 0, 0);
        for said in &said {
            match said {
                Out::Report(report) => {
                    self.open.extend(report.what.condition());
                    let lost = matches!(report.what, EventKind::WritesLost { .. });
                    assert!(finished || lost, "an event without an outcome: {report:?}");
                    losses_told += usize::from(lost);
                    if let EventKind::Retrying { retry, max, .. } = report.what {
                        assert!(retry >= 1 && retry <= max && max == self.max_retries);
                    }
                    for subject in &report.subjects {
                        let Subject::Service(service) = subject else { panic!("pools report on Services") };
                        assert!(self.drive.assignment.services.contains_key(&service.uid), "not its Service");
                        let once = told.insert((format!("{:?}", reason(&report.what)), subject.clone()));
                        assert!(once, "told twice: {report:?}");
                    }
                }
                Out::Metric(Metric::PoolState { from, to }) => {
                    assert_eq!(*from, self.state, "the counts of states do not add up");
                    assert_ne!(from, to);
                    self.state = *to;
                }
                Out::Metric(Metric::Attempt { .. }) => observations += 1,
                Out::Metric(Metric::LostWrite) => losses += 1,
                Out::View(view) => {
                    let most = usize::try_from(self.max_retries).expect("small") + 1;
                    let within = |counts: &Vec<u32>| {
                        counts.len() <= most && counts.iter().all(|count| *count <= self.max_retries)
                    };
                    assert!(view.retries.values().all(within), "budget exceeded: {:?}", view.retries);
                }
                Out::Ended(ended) => {
                    if ended.subject.is_none() {
                        assert!(self.open.remove(&ended.condition), "it was not open: {ended:?}");
                    }
                }
                Out::Due(..)
                | Out::Withdraw(_)
                | Out::Taken(..)
                | Out::Answer(..)
                | Out::Retired(_)
                | Out::Members(..)
                | Out::Missing(_)
                | Out::RewriteSkipped(_)
                | Out::Gone(_)
                | Out::Quarantined(..)
                | Out::Metric(_) => {}
            }
        }
        assert!(observations <= usize::from(finished), "more than one observation for an attempt");
        let paused = self.drive.assignment.is_paused();
        assert!(!paused || told.is_empty(), "told of a pool that is paused: {told:?}");
        if !self.drive.assignment.services.is_empty() && !paused {
            assert_eq!(losses, losses_told, "a lost write that is not told, or twice");
        }
        let over = self.open.iter().find(|condition| !self.drive.queue.holds(self.drive.now, condition));
        assert_eq!(over, None, "it has ended, and that was not told");
        assert_eq!(self.drive.queue.check(), Ok(()));
        self.drive.said.clear();
        self.heard = 0;
    }

    fn grant(&mut self, again: bool) {
        let posted = self.drive.due.is_some();
        let may = posted && self.running.is_none() && !self.drive.assignment.is_paused();
        let id = match (&self.running, again) {
            (Some((id, _)), true) => {
                let id = *id;
                self.drive.step(In::Take(id));
                id
            }
            (None, true) => return,
            (_, false) => self.drive.grant(),
        };
        let mut answers = Vec::new();
        for said in &self.drive.said {
            if let Out::Taken(_, answered, taken) = said {
                answers.push((*answered, taken.clone()));
            }
        }
        assert_eq!(answers.len(), 1, "each Take is answered once");
        let (answered, taken) = answers.remove(0);
        assert_eq!(answered, id);
        if again {
            let Some((id, _)) = self.running.take() else {
                return;
            };
            self.running = taken.map(|taken| (id, taken));
        } else if let Some(taken) = taken {
            assert!(may, "two attempts at once, or one that was not due");
            assert!(self.drive.now >= self.not_before, "too soon after the last outcome");
            assert!(!matches!(self.state, Some(PoolState::Parked | PoolState::Unknown | PoolState::Paused)));
            assert!(taken.level.same_members(&self.drive.assignment.level), "an older level than the newest");
            self.running = Some((id, taken));
        } else {
            assert!(!may, "a due pool brings nothing");
        }
        self.check_outputs(false);
    }

    /// Applies the level as Azure does.
    fn execute(&mut self, taken: &MembershipWrite) -> Outcome {
        let before = self.real.clone();
        self.real.retain(|ip| taken.level.allows(ip));
        self.real.extend(taken.level.required.keys());
        Outcome::Written {
            members: self.real.clone(),
            added: self.real.difference(&before).copied().collect(),
            removed: before.difference(&self.real).copied().collect(),
            record: Arc::default(),
        }
    }

    fn outcome(&mut self, ending: Ending, taken: &MembershipWrite) -> Outcome {
        let members = self.real.clone();
        match ending {
            Ending::Written => self.execute(taken),
            Ending::Unchanged if taken.level.is_in_sync(&members) => Outcome::Unchanged { members },
            Ending::Unchanged | Ending::NotGranted => Outcome::NotGranted,
            Ending::Withheld => Outcome::Withheld { members, added: ips(&[]), removed: ips(&[]) },
            Ending::Stale => Outcome::Stale,
            Ending::NotManageable => Outcome::NotManageable(NotManageable::NoRule),
            Ending::Retriable { parked, applied } => {
                self.execute_if(applied, taken);
                throttled(self.ms + parked)
            }
            Ending::Terminal { status, applied } => {
                self.execute_if(applied, taken);
                Outcome::Terminal { failure: failure(status, "Code") }
            }
            Ending::Interrupted { applied } => {
                self.execute_if(applied, taken);
                Outcome::Interrupted
            }
        }
    }

    /// Runs a try with an unclear result: Azure has applied it, or not.
    fn execute_if(&mut self, applied: bool, taken: &MembershipWrite) {
        if applied {
            self.execute(taken);
        }
    }

    fn finish(&mut self, ending: Ending, strange: bool) {
        let Some((id, taken)) = self.running.clone() else {
            let id = AttemptId { epoch: Epoch(0), n: self.drive.attempts + 1_000 };
            self.drive.finish(id, conflict());
            assert!(self.drive.sent_any(|said| matches!(said, Out::Metric(Metric::UnmatchedAnswer))));
            return self.check_outputs(false);
        };
        if strange {
            self.drive.finish(AttemptId { epoch: id.epoch, n: id.n + 1_000 }, written(&[7]));
            return self.check_outputs(false);
        }
        let outcome = self.outcome(ending, &taken);
        if let Outcome::Written { .. } = outcome {
            self.last_written = Some(id);
        }
        let interval = match outcome {
            Outcome::NotGranted => 0,
            Outcome::Retriable { .. } | Outcome::Terminal { .. } => 30_000,
            Outcome::Written { .. }
            | Outcome::Unchanged { .. }
            | Outcome::Withheld { .. }
            | Outcome::Stale
            | Outcome::NotManageable(_)
            | Outcome::Interrupted => 5_000,
        };
        self.not_before = self.not_before.max(self.drive.now.plus(Duration::from_millis(interval)));
        self.running = None;
        let asked_for = match &self.drive.queue.phase {
            Phase::Attempting(attempt) | Phase::Retiring(attempt) => !attempt.changes.is_empty(),
            Phase::Quiet | Phase::Open | Phase::Due(_) | Phase::Quarantined(_) => false,
        };
        self.drive.finish(id, outcome);
        let told = |what: &EventKind| ["updated", "retrying", "failed", "exhausted"].contains(&reason(what));
        let heard_of = |said: &Out| {
            matches!(said, Out::Report(Report { what, .. }) if told(what))
                || matches!(said, Out::Metric(Metric::Attempt { .. }))
        };
        assert!(asked_for || !self.drive.sent_any(heard_of), "an outcome that is not expected any more");
        self.check_outputs(true);
    }

    fn observe(&mut self, age: u64) {
        let began = Now::from_millis(self.ms.saturating_sub(age));
        let facts = self.facts();
        self.drive.step(In::Observed(Observation { began, facts }));
        self.check_outputs(false);
    }

    fn facts(&self) -> Arc<PoolFacts> {
        let last = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => ip.octets()[3],
            IpAddr::V6(_) => panic!("members are IPv4"),
        };
        facts(&self.real.iter().map(last).collect::<Vec<u8>>())
    }

    fn wait(&mut self, ms: u64) {
        self.ms += ms;
        self.drive.at(self.ms);
        assert!(
            self.drive.queue.deadline().is_none_or(|at| at > self.drive.now),
            "a deadline stays in the past"
        );
        self.check_outputs(false);
    }

    fn require(&mut self, service: &'static str, required: &[u8], tolerated: &[u8], revised: bool) {
        self.drive.edit(|a| {
            let before = a.services.get(service).map_or(0, |share| share.revision);
            let share = share(service, required);
            let tolerated = ips(tolerated).difference(&share.required).copied().collect();
            let revision = before + u64::from(revised);
            a.services.insert(ServiceUid::new(service), Share { tolerated, revision, ..share });
        });
        self.check_outputs(false);
    }

    fn verify(&mut self, lost: bool) {
        let attempt = self.last_written.unwrap_or(AttemptId { epoch: Epoch(0), n: 0 });
        let (facts, began) = (self.facts(), self.drive.now);
        self.drive.step(In::Verified(if lost {
            WriteFate::Lost { attempt, facts, began }
        } else {
            WriteFate::Overwritten { attempt, facts, began }
        }));
        self.check_outputs(false);
    }

    fn apply(&mut self, op: Op) {
        match op {
            Op::Want { service, required, tolerated, revised } => {
                self.require(service, &required, &tolerated, revised);
            }
            Op::Leave(service) => {
                if self.drive.assignment.services.remove(service).is_some() {
                    self.drive.assign();
                    self.check_outputs(false);
                }
            }
            Op::Pause(paused) => {
                self.drive.edit(|a| a.paused = paused.then_some(PausedBy::Pool).into_iter().collect());
                self.check_outputs(false);
            }
            Op::NewTerm => {
                self.running = None;
                let opened = self.drive.now;
                self.drive.edit(|a| (a.epoch, a.opened) = (Epoch(a.epoch.0 + 1), opened));
                self.check_outputs(false);
            }
            Op::See { age } => self.observe(age),
            Op::Foreign(members) => self.real = ips(&members),
            Op::Grant => self.grant(false),
            Op::GrantAgain => self.grant(true),
            Op::Finish { outcome, strange } => self.finish(outcome, strange),
            Op::Verify { lost } => self.verify(lost),
            Op::Pace(ms) => {
                self.drive.step(In::Pace(Duration::from_millis(ms)));
                self.check_outputs(false);
            }
            Op::Wait(ms) => self.wait(ms),
            Op::Tick => {
                let mut out = Vec::new();
                self.drive.queue.tick(self.drive.now, &mut out);
                self.drive.receive(out);
                self.check_outputs(false);
            }
        }
    }

    /// Makes the environment cooperate from here on: each due pool is granted and written, and Discovery reads once a
    /// minute.
    fn cooperate(&mut self) {
        if self.running.is_some() {
            self.finish(Ending::Interrupted { applied: false }, false);
        }
        if let LastResult::Withheld { .. } = self.drive.queue.last_result {
            // A dry run has reported everything about the present members. It compares the pool again only after a
            // change (C4).
            self.real.insert(ip(9));
        }
        let params = &self.drive.queue.params;
        let asks_again = params.after_failure.is_none() || self.max_retries == 0;
        // If the passage of time causes no comparison, a change of a Service causes the next attempt (C2).
        let changes = !params.drift || !params.compare_after_stale;
        self.drive.edit(|a| {
            a.paused = [].into();
            a.services.entry(ServiceUid::new("web")).or_insert_with(|| share("web", &[2]));
            if asks_again {
                a.services.values_mut().for_each(|share| share.revision += 1);
            }
            if changes && let Some(web) = a.services.get_mut("web") {
                web.required.insert(ip(8));
            }
        });
        self.check_outputs(false);
        for second in 0..40 * 60 {
            if second % 60 == 0 {
                self.observe(0);
            }
            if self.drive.due.is_some() {
                self.grant(false);
                self.finish(Ending::Written, false);
            }
            self.wait(1_000);
        }
    }
}

proptest! {
    /// Safety in every history; then, with a writer that cooperates, the pool becomes in sync and quiet.
    #[test]
    fn q1_to_q8_hold_and_the_pool_finally_becomes_in_sync(
        ops in prop::collection::vec(op(), 1..80),
        max_retries in 0..4_u32,
        compared in any::<bool>(),
        [drift, compare_after_stale, contention_backoff] in any::<[bool; 3]>(),
    ) {
        let after_failure = compared.then_some(Duration::from_secs(60));
        let chosen = Params { max_retries, after_failure, drift, compare_after_stale, contention_backoff, ..params() };
        let mut world = World::new(chosen);
        for op in ops {
            world.apply(op);
        }
        world.cooperate();
        let level = &world.drive.assignment.level;
        prop_assert!(level.is_in_sync(&world.real), "out of sync forever: {:?}", world.drive.queue);
        prop_assert_eq!(world.state, Some(PoolState::InSync));
        prop_assert!(matches!(world.drive.queue.phase, Phase::Quiet), "{:?}", world.drive.queue);
        prop_assert_eq!(world.drive.queue.deadline(), None);
    }
}
