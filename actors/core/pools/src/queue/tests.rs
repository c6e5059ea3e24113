//! Drives one pool on the test's clock, in place of its Directory, Discovery and writer.

mod audit;
mod blocked;
mod conditions;
mod contention;
mod manual_attempt;
mod properties;
mod quarantine;
mod rewrite;
mod rules;
mod s0;
mod states;
mod sync;
mod terms;

use super::*;
use model::arm::Failure;
use model::arm::PoolFacts;
use model::arm::{AdminState, Entry, FailureKind, Provisioning, RetryAfter};
use model::assignment::Share;
use model::error::NotManageable;
use model::ids::Family;
use model::ids::ServiceKey;
use model::ids::{AddressName, Epoch, LbName, PoolName};
use model::level::Level;
use model::level::{Member, Provenance, Source, SurplusPolicy};
use model::report::{Condition, EventKind, Subject};
use model::sample::{AttemptEnd, PoolState};
use pool_testing::facts::pool_at_rest;
use std::net::IpAddr;

/// Returns the default profile.
fn params() -> Params {
    Params {
        quiet_period: Duration::from_millis(500),
        max_delay: Duration::from_secs(2),
        min_interval: Duration::from_secs(5),
        retry_interval: Duration::from_secs(30),
        max_retries: 3,
        after_failure: Some(Duration::from_secs(60)),
        drift: true,
        compare_after_stale: true,
        contention_backoff: true,
    }
}

fn pool() -> PoolId {
    PoolId::new(LbName::new("lb"), PoolName::new("shop-web"))
}

fn ip(n: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, n])
}

fn ips(members: &[u8]) -> BTreeSet<IpAddr> {
    members.iter().map(|n| ip(*n)).collect()
}

fn failure(status: u16, code: &str) -> Arc<Failure> {
    Arc::new(Failure {
        kind: FailureKind::Status(status),
        code: Some(code.into()),
        inner_codes: Vec::new(),
        message: "it did not work".into(),
        retry_after: RetryAfter::Absent,
        correlation_id: None,
    })
}

fn conflict() -> Outcome {
    Outcome::Retriable { failure: failure(409, "Conflict"), eligible_at: None }
}

fn throttled(until_ms: u64) -> Outcome {
    let eligible_at = Some(Now::from_millis(until_ms));
    Outcome::Retriable { failure: failure(429, "TooManyRequests"), eligible_at }
}

fn forbidden() -> Outcome {
    Outcome::Terminal { failure: failure(403, "AuthorizationFailed") }
}

fn written(members: &[u8]) -> Outcome {
    Outcome::Written {
        members: ips(members),
        added: ips(members),
        removed: BTreeSet::new(),
        record: Arc::default(),
    }
}

fn facts(members: &[u8]) -> Arc<PoolFacts> {
    let entry = |n: &u8| Entry {
        name: format!("node-{n}").into(),
        ip: Some(ip(*n)),
        admin_state: AdminState::None,
        network: None,
        instance: None,
    };
    Arc::new(pool_at_rest(pool(), members.iter().map(entry).collect()))
}

fn share(name: &str, required: &[u8]) -> Share {
    Share {
        key: ServiceKey::new("shop", name),
        revision: 0,
        required: ips(required),
        tolerated: BTreeSet::new(),
        triggered: None,
        read: None,
    }
}

/// Returns the name of an event, for comparisons.
fn reason(what: &EventKind) -> &'static str {
    match what {
        EventKind::Updated { .. } => "updated",
        EventKind::Retrying { .. } => "retrying",
        EventKind::FailedTerminal { .. } => "failed",
        EventKind::FailedExhausted { .. } => "exhausted",
        EventKind::NotManageable { .. } => "not manageable",
        EventKind::Contested { .. } => "contested",
        EventKind::WritesLost { .. } => "writes lost",
        EventKind::Quarantined { .. } => "quarantined",
        EventKind::Blocked { .. }
        | EventKind::LeaseHeld { .. }
        | EventKind::Shared { .. }
        | EventKind::Held { .. }
        | EventKind::RemovalsStopped { .. }
        | EventKind::SourceFailing { .. }
        | EventKind::SourceRecovered { .. }
        | EventKind::DataError { .. }
        | EventKind::Undecodable { .. }
        | EventKind::AdminDown { .. }
        | EventKind::AdminRestored { .. }
        | EventKind::AdminFailed { .. }
        | EventKind::AdminHeld { .. }
        | EventKind::AdminForeign { .. } => {
            panic!("no pool says this")
        }
    }
}

/// A pool, its clock, and its outputs.
struct Drive {
    queue: PoolQueue,
    now: Now,
    assignment: Assignment,
    said: Vec<Out>,
    /// The due attempt, as the writer knows it.
    due: Option<MembershipDue>,
    attempts: u64,
    view: Option<Arc<PoolView>>,
    reports: Vec<Report>,
    samples: Vec<Metric>,
}

impl Drive {
    fn new(params: Params) -> Drive {
        let assignment = Assignment {
            epoch: Epoch(1),
            opened: Now::ZERO,
            pool: pool(),
            family: Family::V4,
            source: Source::Kubernetes,
            services: BTreeMap::new(),
            level: Level::default(),
            provenance: Provenance::Watch,
            paused: BTreeSet::new(),
            held: None,
            would_hold: None,
            overruled: None,
        };
        Drive {
            queue: PoolQueue::new(pool(), params),
            now: Now::ZERO,
            assignment,
            said: Vec::new(),
            due: None,
            attempts: 0,
            view: None,
            reports: Vec::new(),
            samples: Vec::new(),
        }
    }

    /// Creates a pool of the Service `web` that holds member 1 and is in sync, at 0 s.
    fn in_sync(params: Params) -> Drive {
        let mut drive = Drive::new(params);
        drive.require("web", &[1]);
        drive.observe(&[1]);
        assert_eq!(drive.state(), PoolState::InSync);
        drive.take_outputs();
        drive
    }

    fn step(&mut self, input: In) -> &mut Drive {
        let mut out = Vec::new();
        self.queue.step(self.now, input, &mut out);
        self.receive(out)
    }

    fn receive(&mut self, out: Vec<Out>) -> &mut Drive {
        for said in &out {
            match said {
                Out::Due(_, due) => self.due = Some(*due),
                Out::Withdraw(_) => self.due = None,
                Out::View(view) => self.view = Some(Arc::clone(view)),
                Out::Report(report) => self.reports.push(report.clone()),
                Out::Metric(sample) => self.samples.push(sample.clone()),
                Out::Ended(_)
                | Out::Taken(..)
                | Out::Answer(..)
                | Out::Retired(_)
                | Out::Members(..)
                | Out::Missing(_)
                | Out::RewriteSkipped(_)
                | Out::Gone(_)
                | Out::Quarantined(..) => {}
            }
        }
        self.said.extend(out);
        self
    }

    /// Advances the clock to this time, and ticks at every deadline on the way.
    fn at(&mut self, ms: u64) -> &mut Drive {
        let end = Now::from_millis(ms);
        assert!(end >= self.now, "the clock runs forward");
        let mut rounds = 0;
        while let Some(next) = self.queue.deadline().filter(|next| *next <= end) {
            assert!(rounds < 1_000, "a deadline is always in the past");
            rounds += 1;
            self.now = self.now.max(next);
            let mut out = Vec::new();
            self.queue.tick(self.now, &mut out);
            self.receive(out);
        }
        self.now = end;
        self
    }

    /// Makes the Service require these members. The pool's level is the union of all shares.
    fn require(&mut self, service: &str, members: &[u8]) -> &mut Drive {
        self.assignment.services.insert(ServiceUid::new(service), share(service, members));
        self.assign()
    }

    fn drop_service(&mut self, service: &str) -> &mut Drive {
        self.assignment.services.remove(service);
        self.assign()
    }

    fn edit(&mut self, change: impl FnOnce(&mut Assignment)) -> &mut Drive {
        change(&mut self.assignment);
        self.assign()
    }

    fn assign(&mut self) -> &mut Drive {
        let mut level = Level::default();
        for share in self.assignment.services.values() {
            let member = |ip: &IpAddr| (*ip, Member { name: AddressName::new("node"), node_ready: true });
            let required = share.required.iter().map(member).collect();
            level.unite(&Level { required, tolerated: share.tolerated.clone(), ..Level::default() });
        }
        self.assignment.level = level;
        self.step(In::Assigned(Arc::new(self.assignment.clone())))
    }

    /// Observes these members with a GET that begins now.
    fn observe(&mut self, members: &[u8]) -> &mut Drive {
        let began = self.now;
        self.step(In::Observed(Observation { began, facts: facts(members) }))
    }

    /// Observes these members with a GET that begins now, while an operation runs on the load balancer.
    fn observe_updating(&mut self, members: &[u8]) -> &mut Drive {
        let (began, mut facts) = (self.now, facts(members));
        Arc::make_mut(&mut facts).provisioning = Provisioning::Updating;
        self.step(In::Observed(Observation { began, facts }))
    }

    /// Grants the lane; the pool must be due.
    fn take(&mut self) -> AttemptId {
        assert!(self.due.is_some(), "not due at {:?}: {:?}", self.now, self.queue);
        let id = self.grant();
        assert!(self.taken(id).is_some(), "a due pool brought nothing");
        id
    }

    /// Grants the lane, even if the pool is not due.
    fn grant(&mut self) -> AttemptId {
        self.attempts += 1;
        let id = AttemptId { epoch: self.assignment.epoch, n: self.attempts };
        self.due = None;
        self.step(In::Take(id));
        id
    }

    /// Returns the last answer to a Take with this id.
    fn taken(&self, id: AttemptId) -> Option<MembershipWrite> {
        for said in self.said.iter().rev() {
            if let Out::Taken(_, answered, taken) = said
                && *answered == id
            {
                return taken.clone();
            }
        }
        panic!("a Take was not answered");
    }

    fn finish(&mut self, id: AttemptId, outcome: Outcome) -> &mut Drive {
        self.step(In::Finished(id, outcome))
    }

    /// Grants the lane and finishes the attempt immediately.
    fn attempt(&mut self, outcome: Outcome) -> &mut Drive {
        let id = self.take();
        self.finish(id, outcome)
    }

    /// Returns the outputs so far, and clears them.
    fn take_outputs(&mut self) -> Vec<Out> {
        self.reports.clear();
        self.samples.clear();
        std::mem::take(&mut self.said)
    }

    /// Returns the events since the last call, as reason and Service.
    fn events(&mut self) -> Vec<String> {
        let mut events = Vec::new();
        for report in self.reports.drain(..) {
            for subject in &report.subjects {
                let Subject::Service(service) = subject else { panic!("pools report on Services") };
                events.push(format!("{} {}", reason(&report.what), service.key.name));
            }
        }
        events
    }

    /// Returns the reported lost writes that were not dropped: the number, and for how many seconds the pool is not
    /// written.
    fn losses(&self) -> Vec<(u64, Option<u64>)> {
        let lost = |report: &Report| {
            let EventKind::WritesLost { writes, left_for, .. } = &report.what else { return None };
            Some((*writes, left_for.map(|span| span.as_secs())))
        };
        self.reports.iter().filter_map(lost).collect()
    }

    /// Returns the terminal observations since the last call: whether each failed.
    fn observations(&mut self) -> Vec<bool> {
        let mut observations = Vec::new();
        for sample in self.samples.drain(..) {
            if let Metric::Attempt { failed, .. } = sample {
                observations.push(failed);
            }
        }
        observations
    }

    fn state(&self) -> PoolState {
        self.view.as_ref().expect("a view was shown").state
    }

    fn sent_any(&self, test: impl Fn(&Out) -> bool) -> bool {
        self.said.iter().any(test)
    }
}
