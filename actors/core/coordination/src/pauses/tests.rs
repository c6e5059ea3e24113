//! Pauses on the test's clock, with a ConfigMap that other clients write too.

mod off;
mod properties;

use std::collections::BTreeMap;

use super::*;
use model::arm::Document;
use model::config_map::{ConfigMapEdit, Text, Value};
use model::ids::{LbName, PoolId, PoolName, ServiceKey};
use model::machine::Wall;
use model::object::{RequestFailure, ResourceVersion};
use model::operator_request::{Done, Effect};
use model::policy::Pause;

fn at(second: u64) -> Now {
    Now::from_millis(second * 1_000)
}

fn wall(now: Now) -> Wall {
    Wall::from_micros(1_700_000_000_000_000 + i64::try_from(now.as_micros()).expect("a short test"))
}

fn pool(name: &str) -> PoolId {
    PoolId::new(LbName::new("kubernetes"), PoolName::new(name))
}

/// The ConfigMap in the API server; a time is written as `@` and its microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Server {
    data: Option<BTreeMap<Arc<str>, Arc<str>>>,
    binary: Vec<Arc<str>>,
    version: u64,
}

impl Server {
    fn with(all: &[(&str, &str)]) -> Server {
        let data = all.iter().map(|(key, text)| (Arc::from(*key), Arc::from(*text))).collect();
        Server { data: Some(data), binary: Vec::new(), version: 1 }
    }

    fn facts(&self, now: Now) -> Option<ConfigMapFacts> {
        let text = |said: &Arc<str>| {
            let time = said.lines().find_map(|line| line.strip_prefix("since: @"));
            let micros = time.and_then(|micros| micros.parse().ok());
            Text { text: Arc::clone(said), time: micros.map(|micros| wall(Now::from_micros(micros))) }
        };
        Some(ConfigMapFacts {
            data: self.data.as_ref()?.iter().map(|(key, said)| (Arc::clone(key), text(said))).collect(),
            binary: self.binary.iter().cloned().collect(),
            read: wall(now),
            version: ResourceVersion(Arc::from(self.version.to_string())),
            document: Document::new(()),
        })
    }

    fn store(&mut self, edit: &ConfigMapEdit) {
        let before = self.data.clone();
        let data = self.data.get_or_insert_default();
        data.retain(|key, _| !edit.remove.contains(key));
        self.binary.retain(|key| !edit.remove.contains(key) && !edit.set.contains_key(key));
        for (key, value) in &edit.set {
            let Value::Since { head, at, tail } = value else { panic!("no pause: {value:?}") };
            data.insert(Arc::clone(key), format!("{head}\nsince: @{}\n{tail}", at.as_micros()).into());
        }
        // A write without a change creates no new version, as in the API server.
        if before != self.data {
            self.version += 1;
        }
    }

    fn execute(&mut self, now: Now, request: &ConfigMapRequest) -> ConfigMapAnswer {
        match request {
            ConfigMapRequest::Get | ConfigMapRequest::Watch(..) => {}
            ConfigMapRequest::Create(_) if self.data.is_some() => return ConfigMapAnswer::Conflict,
            ConfigMapRequest::Create(edit) => self.store(edit),
            ConfigMapRequest::Replace(..) if self.data.is_none() => return ConfigMapAnswer::Absent,
            ConfigMapRequest::Replace(base, _) if *base.version.0 != *self.version.to_string() => {
                return ConfigMapAnswer::Conflict;
            }
            ConfigMapRequest::Replace(_, edit) => self.store(edit),
        }
        let facts = self.facts(now);
        facts.map_or(ConfigMapAnswer::Absent, |facts| ConfigMapAnswer::Seen(Arc::new(facts)))
    }

    fn keys(&self) -> Vec<&str> {
        self.data.iter().flatten().map(|(key, _)| &**key).collect()
    }
}

/// One process and the ConfigMap.
struct Fixture {
    pauses: Pauses,
    server: Server,
    now: Now,
    requests: VecDeque<(CallId, ConfigMapRequest)>,
    answers: Vec<(RequestId, Answer)>,
    policy: Option<(Option<Epoch>, Arc<OperatorPolicy>)>,
    view: Option<PolicyView>,
    /// Metrics: true if the last read of the pauses succeeded, and true if a term waits for them.
    measured: Option<(bool, bool)>,
}

impl Fixture {
    fn new(server: Server, storage: PauseStorage) -> Fixture {
        let pauses = Pauses::new(Params { mode: Mode::Enforce, storage, effect: PauseEffect::Pauses });
        let (requests, answers) = (VecDeque::new(), Vec::new());
        let mut fixture = Fixture {
            pauses,
            server,
            now: at(1),
            requests,
            answers,
            policy: None,
            view: None,
            measured: None,
        };
        fixture.send(In::Start);
        fixture
    }

    /// Returns a process after its first read.
    fn begun(server: Server) -> Fixture {
        let mut fixture = Fixture::new(server, PauseStorage::ConfigMap);
        fixture.serve();
        fixture
    }

    fn send(&mut self, input: In) {
        let mut out = Vec::new();
        self.pauses.step(self.now, input, &mut out);
        self.receive(out);
    }

    fn receive(&mut self, out: Vec<Out>) {
        for said in out {
            match said {
                Out::ConfigMap(call, request) => self.requests.push_back((call, request)),
                Out::OperatorPolicy { term, policy } => self.policy = Some((term, policy)),
                Out::Answer(id, answer) => self.answers.push((id, answer)),
                Out::View(view) => self.view = Some(view),
                Out::Metric(Metric::OperatorPolicy { fresh, leader_waits, .. }) => {
                    self.measured = Some((fresh, leader_waits))
                }
                Out::Metric(_) => {}
            }
        }
        assert_eq!(self.pauses.check(), Ok(()));
    }

    /// Advances the clock to this time.
    fn wait(&mut self, until: Now) {
        while let Some(due) = self.pauses.deadline().filter(|due| *due <= until) {
            self.now = self.now.max(due);
            let mut out = Vec::new();
            self.pauses.tick(self.now, &mut out);
            self.receive(out);
        }
        self.now = until;
    }

    /// Returns the next request.
    fn next(&mut self) -> (CallId, ConfigMapRequest) {
        self.requests.pop_front().expect("there is a request")
    }

    /// Executes and answers requests until there are none.
    fn serve(&mut self) {
        while let Some((call, request)) = self.requests.pop_front() {
            let answer = self.server.execute(self.now, &request);
            self.send(In::ConfigMap(call, answer));
        }
    }

    fn pause(&mut self, n: u64, scope: Scope) {
        let (by, reason) = (Some("alice".into()), Some("a drill".into()));
        self.send(In::Pause { id: RequestId(n), scope, by, reason });
    }

    fn resume(&mut self, n: u64, scope: Scope) {
        self.send(In::Resume { id: RequestId(n), scope });
    }

    fn known(&self) -> (Option<u64>, OperatorPolicy) {
        let (term, policy) = self.policy.as_ref().expect("the policy was sent");
        (term.map(|term| term.0), OperatorPolicy::clone(policy))
    }
}

#[test]
fn g6_without_a_config_map_no_pauses_and_a_read_per_term() {
    let mut fixture = Fixture::begun(Server::default());
    assert_eq!(fixture.known(), (None, OperatorPolicy::default()));
    fixture.send(In::Confirm(Epoch(4)));
    assert_eq!(fixture.known().0, None, "there was no read since the start of the term");
    fixture.serve();
    assert_eq!(fixture.known(), (Some(4), OperatorPolicy::default()));
    fixture.send(In::Confirm(Epoch(4)));
    assert!(fixture.requests.is_empty(), "it has been read for this term");
}

#[test]
fn w8_a_read_from_before_a_term_does_not_count_for_it() {
    let mut fixture = Fixture::begun(Server::default());
    fixture.wait(at(20));
    let (old, request) = fixture.next();
    let stale = fixture.server.execute(fixture.now, &request);
    fixture.send(In::Confirm(Epoch(2)));
    fixture.server = Server::with(&[("pause.everything", "")]);
    fixture.send(In::ConfigMap(old, stale));
    assert_eq!(fixture.known().0, None);
    fixture.serve();
    let (term, policy) = fixture.known();
    assert_eq!((term, policy.only_observes()), (Some(2), true));
}

#[test]
fn g6_an_unreadable_config_map_opens_no_term() {
    let mut fixture = Fixture::begun(Server::default());
    fixture.send(In::Confirm(Epoch(3)));
    for n in 0..5 {
        fixture.wait(at(2 + 10 * n));
        while let Some((call, _)) = fixture.requests.pop_front() {
            let denied = RequestFailure::Denied("configmaps is forbidden".into());
            fixture.send(In::ConfigMap(call, ConfigMapAnswer::Failed(denied)));
        }
        assert_eq!(fixture.known().0, None);
    }
    let view = fixture.view.clone().expect("it is shown");
    assert!(view.leader_waits);
    assert_eq!(view.last_error.as_deref(), Some("configmaps is forbidden"));
    fixture.wait(at(60));
    fixture.serve();
    assert_eq!(fixture.known().0, Some(3));
    assert!(!fixture.view.clone().expect("it is shown").leader_waits);
}

#[test]
fn g6_an_edit_by_the_operator_is_seen_within_15_s() {
    let mut fixture = Fixture::begun(Server::default());
    fixture.server =
        Server::with(&[("pause.everything", "the network is being rebuilt"), ("snapshot.a_1", "x")]);
    fixture.wait(at(16));
    fixture.serve();
    let reason = Some("the network is being rebuilt".into());
    assert_eq!(fixture.known().1.everything, Some(Pause { since: None, by: None, reason }));
    fixture.server = Server::with(&[]);
    fixture.wait(at(31));
    fixture.serve();
    assert_eq!(fixture.known().1, OperatorPolicy::default());
}

#[test]
fn g6_a_pause_is_answered_when_its_write_is_seen() {
    let mut fixture = Fixture::begun(Server::with(&[("snapshot.a_1", "x"), ("kept", "y")]));
    fixture.pause(7, Scope::Pool(pool("shop-web")));
    let (call, request) = fixture.next();
    assert!(matches!(request, ConfigMapRequest::Get));
    let seen = fixture.server.execute(fixture.now, &request);
    fixture.send(In::ConfigMap(call, seen));
    assert!(fixture.answers.is_empty(), "nothing is written yet");
    fixture.serve();
    assert_eq!(fixture.answers, [(RequestId(7), Answer::Done(Done::Paused(Effect::WhenRead)))]);
    assert_eq!(fixture.server.keys(), ["kept", "pause.pool.kubernetes.shop-web", "snapshot.a_1"]);
    let text = &fixture.server.data.as_ref().expect("it exists")["pause.pool.kubernetes.shop-web"];
    assert_eq!(&**text, "kubernetes/shop-web\nsince: @1000000\nby: alice\nreason: a drill\n");
    let (by, reason) = (Some("alice".into()), Some("a drill".into()));
    let pause = Pause { since: Some(wall(at(1))), by, reason };
    assert_eq!(fixture.known().1.pools, BTreeMap::from([(pool("shop-web"), pause)]));
    fixture.resume(8, Scope::Pool(pool("Shop-Web")));
    fixture.serve();
    fixture.resume(9, Scope::Pool(pool("shop-web")));
    fixture.serve();
    let resumed = |n, was| (RequestId(n), Answer::Done(Done::Resumed { was, effect: Effect::WhenRead }));
    assert_eq!(fixture.answers[1..], [resumed(8, true), resumed(9, false)]);
    assert_eq!(fixture.server.keys(), ["kept", "snapshot.a_1"]);
}

/// Otherwise a write could begin after the operator was told that none can.
#[test]
fn g6_a_pause_is_reported_before_the_operator_is_answered() {
    let mut fixture = Fixture::begun(Server::default());
    fixture.pause(7, Scope::Everything);
    let (call, request) = fixture.next();
    let absent = fixture.server.execute(fixture.now, &request);
    fixture.send(In::ConfigMap(call, absent));
    let (call, request) = fixture.next();
    let seen = fixture.server.execute(fixture.now, &request);
    let mut out = Vec::new();
    fixture.pauses.step(fixture.now, In::ConfigMap(call, seen), &mut out);
    let place = |wanted: fn(&Out) -> bool| out.iter().position(wanted).expect("the pause is reported");
    let pause = place(|said| matches!(said, Out::OperatorPolicy { policy, .. } if policy.only_observes()));
    let answer = place(|said| matches!(said, Out::Answer(RequestId(7), Answer::Done(Done::Paused(_)))));
    assert!(pause < answer, "{out:?}");
}

#[test]
fn g6_a_failed_read_in_a_term_is_repeated_soon() {
    let mut fixture = Fixture::begun(Server::default());
    fixture.send(In::Confirm(Epoch(1)));
    fixture.serve();
    fixture.wait(at(16));
    let (call, _) = fixture.next();
    fixture.server = Server::with(&[("pause.everything", "")]);
    fixture.send(In::ConfigMap(call, ConfigMapAnswer::Failed(RequestFailure::Other("reset".into()))));
    fixture.wait(at(17));
    fixture.serve();
    assert!(fixture.known().1.everything.is_some());
    let mut looks = 0;
    for second in 18..=318 {
        fixture.wait(at(second));
        for (call, _) in std::mem::take(&mut fixture.requests) {
            looks += 1;
            let failed = RequestFailure::Denied("configmaps is forbidden".into());
            fixture.send(In::ConfigMap(call, ConfigMapAnswer::Failed(failed)));
        }
    }
    assert!((18..=25).contains(&looks), "reads without a right are rare: {looks}");
}

#[test]
fn g6_a_write_without_an_answer_is_read_back_before_the_reply() {
    let mut fixture = Fixture::begun(Server::default());
    fixture.pause(1, Scope::Everything);
    let (call, request) = fixture.next();
    let absent = fixture.server.execute(fixture.now, &request);
    fixture.send(In::ConfigMap(call, absent));
    let (call, request) = fixture.next();
    fixture.server.execute(fixture.now, &request);
    fixture.send(In::ConfigMap(call, ConfigMapAnswer::Failed(RequestFailure::Other("reset".into()))));
    assert!(fixture.answers.is_empty());
    fixture.wait(at(2));
    assert!(matches!(fixture.requests.front(), Some((_, ConfigMapRequest::Get))));
    fixture.serve();
    assert_eq!(fixture.answers, [(RequestId(1), Answer::Done(Done::Paused(Effect::WhenRead)))]);
    assert_eq!(fixture.server.version, 1, "it is not written twice");
}

#[test]
fn g6_an_existing_pause_is_rewritten_against_older_writes() {
    let mut fixture = Fixture::begun(Server::with(&[("pause.everything", "")]));
    fixture.resume(1, Scope::Everything);
    let (call, request) = fixture.next();
    let seen = fixture.server.execute(fixture.now, &request);
    fixture.send(In::ConfigMap(call, seen));
    let (_, lost) = fixture.next();
    fixture.wait(at(20));
    assert!(matches!(fixture.answers[..], [(RequestId(1), Answer::Refused(Refusal::Failed(_)))]));
    fixture.requests.clear();
    fixture.wait(at(40));
    fixture.serve();
    fixture.pause(2, Scope::Everything);
    fixture.serve();
    assert_eq!(fixture.answers[1], (RequestId(2), Answer::Done(Done::Paused(Effect::WhenRead))));
    assert!(matches!(fixture.server.execute(fixture.now, &lost), ConfigMapAnswer::Conflict));
}

#[test]
fn h3_the_operator_is_answered_within_10_seconds() {
    let mut fixture = Fixture::begun(Server::default());
    fixture.pause(1, Scope::Everything);
    fixture.pause(2, Scope::Service(ServiceKey::new("shop", "web")));
    fixture.wait(at(10));
    assert!(fixture.answers.is_empty());
    fixture.wait(at(11));
    let failed = |said: &(RequestId, Answer)| matches!(&said.1, Answer::Refused(Refusal::Failed(_)));
    assert_eq!(fixture.answers.iter().filter(|said| failed(said)).count(), 2);
    fixture.wait(at(60));
    fixture.requests.drain(..fixture.requests.len() - 1);
    fixture.serve();
    assert_eq!(fixture.answers.len(), 2, "no request is answered twice");
}

#[test]
fn g6_a_denied_write_is_answered_immediately() {
    let mut fixture = Fixture::begun(Server::default());
    fixture.pause(1, Scope::Everything);
    let (call, _) = fixture.next();
    let denied = RequestFailure::Denied("configmaps is forbidden".into());
    fixture.send(In::ConfigMap(call, ConfigMapAnswer::Failed(denied)));
    let why = Refusal::Failed("configmaps is forbidden".into());
    assert_eq!(fixture.answers, [(RequestId(1), Answer::Refused(why))]);
}

#[test]
fn g6_pools_with_the_same_key_are_paused_separately() {
    let of = |lb: &str, name: &str| Scope::Pool(PoolId::new(LbName::new(lb), PoolName::new(name)));
    let mut fixture = Fixture::begun(Server::default());
    for (n, scope) in [(1, of("a.b", "c")), (2, of("a", "b.c")), (3, of("a", "b.c"))] {
        fixture.wait(at(n));
        fixture.pause(n, scope);
        fixture.serve();
    }
    assert_eq!(fixture.server.keys(), ["pause.pool.a.b.c", "pause.pool.a.b.c-2"]);
    assert_eq!(fixture.known().1.pools.len(), 2);
    fixture.resume(4, of("a.b", "c"));
    fixture.serve();
    let left: Vec<String> = fixture.known().1.pools.keys().map(ToString::to_string).collect();
    assert_eq!(left, ["a/b.c"]);
}

#[test]
fn g6_an_unreadable_global_pause_still_pauses() {
    let server = Server::with(&[
        ("pause.pool.x", "kubernetes"),
        ("pause.pool.y", "kubernetes/a b"),
        ("pause.service.z", "shop/"),
        ("pause.al", ""),
        ("Pause.Pool.w", "kubernetes/shop-web\nbecause of tests"),
        ("pause.service.v", "\n shop/api \nreason: moves\nby: bob"),
        ("paused", "is another key"),
    ]);
    let mut fixture = Fixture::begun(Server { binary: vec!["pause.everything".into()], ..server });
    let view = fixture.view.clone().expect("it is shown");
    let keys: Vec<&str> = view.unreadable.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, ["pause.al", "pause.everything", "pause.pool.x", "pause.pool.y", "pause.service.z"]);
    let policy = fixture.known().1;
    assert!(policy.only_observes());
    assert_eq!(policy.pools[&pool("shop-web")].reason.as_deref(), Some("because of tests"));
    let api = &policy.services[&ServiceKey::new("shop", "api")];
    assert_eq!((api.by.as_deref(), api.reason.as_deref()), (Some("bob"), Some("moves")));
    fixture.resume(1, Scope::Everything);
    fixture.serve();
    assert_eq!(
        fixture.answers,
        [(RequestId(1), Answer::Done(Done::Resumed { was: true, effect: Effect::WhenRead }))]
    );
    assert!(!fixture.known().1.only_observes());
}

#[test]
fn g6_a_reason_cannot_forge_other_lines() {
    let mut fixture = Fixture::begun(Server::default());
    let reason = Some(format!("one\nby: mallory\r\n{}", "x".repeat(5_000)).into());
    fixture.send(In::Pause {
        id: RequestId(1),
        scope: Scope::Everything,
        by: Some("al\nice".into()),
        reason,
    });
    fixture.serve();
    let pause = fixture.known().1.everything.expect("it is paused");
    assert_eq!(pause.by.as_deref(), Some("al ice"));
    let reason = pause.reason.expect("a reason");
    assert!(reason.starts_with("one by: mallory") && reason.chars().count() == 500, "{reason}");
}

#[test]
fn c4_in_a_dry_run_the_mode_is_known_and_pauses_are_refused() {
    let mut fixture = Fixture::new(Server::default(), PauseStorage::Nothing);
    assert_eq!(fixture.known(), (None, OperatorPolicy::default()));
    fixture.send(In::Confirm(Epoch(1)));
    assert_eq!(fixture.known().0, Some(1));
    fixture.pause(1, Scope::Everything);
    fixture.resume(2, Scope::Everything);
    let refused = |n| (RequestId(n), Answer::Refused(Refusal::DryRun));
    assert_eq!(fixture.answers, [refused(1), refused(2)]);
    fixture.wait(at(600));
    assert!(fixture.requests.is_empty());
}

#[test]
fn g6_an_idle_process_reads_every_15_s() {
    let mut fixture = Fixture::begun(Server::default());
    let mut looks = 0;
    for second in 2..=602 {
        fixture.wait(at(second));
        looks += fixture.requests.len();
        fixture.serve();
        assert!(fixture.pauses.deadline().is_some_and(|due| due > fixture.now));
    }
    assert_eq!(looks, 40);
}

/// Returns a process that restores a snapshot, after its first read.
fn restoring(how: Restoring) -> Fixture {
    let params =
        Params { mode: Mode::Enforce, storage: PauseStorage::ConfigMap, effect: PauseEffect::Restoring(how) };
    let mut fixture =
        Fixture { pauses: Pauses::new(params), ..Fixture::new(Server::default(), PauseStorage::Nothing) };
    fixture.send(In::Start);
    fixture.serve();
    fixture
}

#[test]
fn g6_a_restore_skips_separately_paused_pools_unless_named() {
    for respects_narrow_pauses in [true, false] {
        for requires_global_pause in [true, false] {
            let mut fixture = restoring(Restoring { requires_global_pause, respects_narrow_pauses });
            let service = ServiceKey::new("shop", "web");
            for (id, scope) in [Scope::Everything, Scope::Pool(pool("shop-web")), Scope::Service(service)]
                .into_iter()
                .enumerate()
            {
                let id = RequestId(id as u64);
                fixture.send(In::Pause { id, scope, by: None, reason: None });
                fixture.serve();
            }
            let (_, applied) = fixture.policy.clone().expect("told");
            let single = usize::from(respects_narrow_pauses);
            assert_eq!((applied.pools.len(), applied.services.len()), (single, single));
            assert_eq!(applied.everything, None, "the pause of everything is expected, or does not apply");
        }
    }
}

#[test]
fn g6_a_restore_writes_only_during_a_pause_of_everything() {
    let mut fixture = restoring(Restoring { requires_global_pause: true, respects_narrow_pauses: false });
    let applied = |fixture: &Fixture| fixture.policy.clone().expect("told").1;
    let shown = |fixture: &Fixture| fixture.view.clone().expect("shown").policy.expect("known");
    assert!(applied(&fixture).only_observes(), "other processes may still write");
    assert_eq!(*shown(&fixture), OperatorPolicy::default(), "the view has the stored pauses");

    let by = Some(Arc::from("restore"));
    fixture.send(In::Pause { id: RequestId(1), scope: Scope::Everything, by, reason: None });
    fixture.serve();
    assert_eq!(fixture.answers, [(RequestId(1), Answer::Done(Done::Paused(Effect::WhenRead)))]);
    assert!(!applied(&fixture).only_observes());
    assert!(shown(&fixture).everything.is_some());

    fixture.send(In::Pause {
        id: RequestId(2),
        scope: Scope::Pool(pool("shop-web")),
        by: None,
        reason: None,
    });
    fixture.serve();
    assert_eq!(applied(&fixture).pools.len(), 0, "no other pause applies");
    assert_eq!(shown(&fixture).pools.len(), 1);

    fixture.send(In::Resume { id: RequestId(3), scope: Scope::Everything });
    fixture.serve();
    assert!(applied(&fixture).only_observes(), "a resume also ends the restore");
}

#[test]
fn e2_unreadable_pauses_and_a_waiting_term_are_measured() {
    let mut fixture = Fixture::new(Server::default(), PauseStorage::ConfigMap);
    let fails = |fixture: &mut Fixture| {
        let (call, _) = fixture.next();
        fixture.send(In::ConfigMap(call, ConfigMapAnswer::Failed(RequestFailure::Denied("403".into()))));
    };
    assert_eq!(fixture.measured, Some((false, false)));
    fails(&mut fixture);
    assert_eq!(fixture.measured, Some((false, false)));
    fixture.send(In::Confirm(Epoch(1)));
    assert_eq!(fixture.measured, Some((false, true)));
    fixture.wait(at(120));
    fixture.requests.drain(..fixture.requests.len() - 1);
    fixture.serve();
    assert_eq!(fixture.measured, Some((true, false)));
    fixture.wait(at(240));
    fixture.requests.drain(..fixture.requests.len() - 1);
    fails(&mut fixture);
    assert_eq!(fixture.measured, Some((false, false)), "the running term continues");
}
