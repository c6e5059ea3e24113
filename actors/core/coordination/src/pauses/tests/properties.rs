//! Random histories with conflicts, lost and late requests, crashes and terms: a confirmed pause applies in every later
//! term, until the operator resumes (docs/design/pools.md, G6).

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

const PROCESSES: usize = 3;

fn scope(n: u8) -> Scope {
    match n % 3 {
        0 => Scope::Everything,
        1 => Scope::Pool(pool("shop-web")),
        _ => Scope::Service(ServiceKey::new("shop", "web")),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Pause(usize, u8),
    Resume(usize, u8),
    Term(usize),
    Crash(usize),
    Meddle,
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let process = 0..PROCESSES;
    let step = prop_oneof![
        4 => (process.clone(), 0_u8..3).prop_map(|(p, n)| Step::Pause(p, n)),
        4 => (process.clone(), 0_u8..3).prop_map(|(p, n)| Step::Resume(p, n)),
        2 => process.clone().prop_map(Step::Term),
        1 => process.prop_map(Step::Crash),
        1 => Just(Step::Meddle),
        8 => prop_oneof![1_u64..200, 1_000_u64..12_000].prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 1..60)
}

/// The outcome of a request.
#[derive(Clone, Copy, Debug)]
struct Fate {
    lands_after: Option<u64>,
    answer_after: Option<u64>,
}

fn fate() -> impl Strategy<Value = Fate> {
    let lands =
        prop_oneof![6 => (1_u64..50).prop_map(Some), 2 => (50_u64..40_000).prop_map(Some), 1 => Just(None)];
    let answer =
        prop_oneof![6 => (1_u64..50).prop_map(Some), 1 => (50_u64..7_000).prop_map(Some), 2 => Just(None)];
    (lands, answer).prop_map(|(lands_after, answer_after)| Fate { lands_after, answer_after })
}

/// The operator's request, from its arrival until its answer or the crash of its process.
#[derive(Clone, Debug)]
struct Op {
    process: usize,
    scope: Scope,
    resumes: bool,
    from: Now,
    to: Option<Now>,
    paused: bool,
}

enum Event {
    Land(usize, u64, CallId, ConfigMapRequest, Fate),
    Answer(usize, u64, CallId, ConfigMapAnswer),
}

struct Process {
    pauses: Pauses,
    life: u64,
    term: Option<(Epoch, Now)>,
    policy: Option<Arc<OperatorPolicy>>,
}

struct World {
    now: Now,
    server: Server,
    processes: Vec<Process>,
    events: BTreeMap<(Now, u64), Event>,
    fates: Vec<Fate>,
    number: u64,
    epoch: u64,
    ops: Vec<Op>,
    calm: bool,
    paused: usize,
}

impl World {
    fn new(fates: Vec<Fate>) -> World {
        let fresh = || Process {
            pauses: Pauses::new(Params {
                mode: Mode::Enforce,
                storage: PauseStorage::ConfigMap,
                effect: PauseEffect::Pauses,
            }),
            life: 0,
            term: None,
            policy: None,
        };
        let mut world = World {
            now: at(1),
            server: Server::default(),
            processes: (0..PROCESSES).map(|_| fresh()).collect(),
            events: BTreeMap::new(),
            fates,
            number: 0,
            epoch: 0,
            ops: Vec::new(),
            calm: false,
            paused: 0,
        };
        (0..PROCESSES).for_each(|p| world.send(p, In::Start));
        world
    }

    fn plan(&mut self, millis: u64, event: Event) {
        self.number += 1;
        self.events.insert((self.now.plus(Duration::from_millis(millis)), self.number), event);
    }

    fn send(&mut self, p: usize, input: In) {
        let mut out = Vec::new();
        self.processes[p].pauses.step(self.now, input, &mut out);
        self.receive(p, out);
    }

    fn receive(&mut self, p: usize, out: Vec<Out>) {
        for said in out {
            match said {
                Out::ConfigMap(call, request) => {
                    let drawn = self.fates[usize::try_from(self.number).expect("small") % self.fates.len()];
                    let well = Fate { lands_after: Some(3), answer_after: Some(3) };
                    let fate = if self.calm { well } else { drawn };
                    let life = self.processes[p].life;
                    if let Some(after) = fate.lands_after {
                        self.plan(after, Event::Land(p, life, call, request, fate));
                    }
                }
                Out::OperatorPolicy { term, policy } => self.on_policy(p, term, policy),
                Out::Answer(id, answer) => self.on_answer(id, &answer),
                Out::View(_) | Out::Metric(_) => {}
            }
        }
        assert_eq!(self.processes[p].pauses.check(), Ok(()));
    }

    fn on_answer(&mut self, id: RequestId, answer: &Answer) {
        let op = &mut self.ops[usize::try_from(id.0).expect("small")];
        assert_eq!(op.to.replace(self.now), None, "answered twice");
        assert!(self.now.since(op.from) <= Duration::from_secs(10), "answered too late");
        op.paused = matches!(answer, Answer::Done(Done::Paused(_)));
        self.paused += usize::from(op.paused);
        if let Answer::Done(Done::Resumed { .. }) = answer {
            assert!(op.resumes);
        }
    }

    /// Returns whether the scope must be paused in every read that begins after a time: its pause was confirmed to the
    /// operator before, and no resume was requested since.
    fn must_be_paused(&self, scope: &Scope, read_after: Now) -> bool {
        self.ops.iter().filter(|op| op.paused && op.scope == *scope).any(|pause| {
            let ends_it =
                |op: &Op| op.resumes && op.scope == *scope && op.to.is_none_or(|to| to >= pause.from);
            pause.to.is_some_and(|to| to < read_after) && !self.ops.iter().any(ends_it)
        })
    }

    fn check_promise(&self, policy: &OperatorPolicy, read_after: Now) {
        for n in 0..3 {
            let scope = scope(n);
            let paused = match &scope {
                Scope::Everything => policy.everything.is_some(),
                Scope::Pool(pool) => policy.pools.contains_key(pool),
                Scope::Service(service) => policy.services.contains_key(service),
                Scope::Node(_) => unreachable!("a node cannot be paused"),
            };
            assert!(paused || !self.must_be_paused(&scope, read_after), "{scope:?}: {:#?}", self.ops);
        }
    }

    fn on_policy(&mut self, p: usize, term: Option<Epoch>, policy: Arc<OperatorPolicy>) {
        if let Some((epoch, began)) = self.processes[p].term
            && term == Some(epoch)
        {
            self.check_promise(&policy, began);
        }
        self.processes[p].policy = Some(policy);
    }

    fn apply(&mut self, event: Event) {
        match event {
            // A sent request arrives, even if its sender has crashed.
            Event::Land(p, life, call, request, fate) => {
                let answer = self.server.execute(self.now, &request);
                if let Some(after) = fate.answer_after {
                    self.plan(after, Event::Answer(p, life, call, answer));
                } else {
                    let lost = ConfigMapAnswer::Failed(RequestFailure::Other("lost".into()));
                    self.plan(5_000, Event::Answer(p, life, call, lost));
                }
            }
            Event::Answer(p, life, call, answer) => {
                if self.processes[p].life == life {
                    self.send(p, In::ConfigMap(call, answer));
                }
            }
        }
    }

    fn run(&mut self, until: Now) {
        loop {
            let event = self.events.first_key_value().map(|((at, _), _)| *at);
            let timer = (0..PROCESSES).filter_map(|p| Some((self.processes[p].pauses.deadline()?, p))).min();
            let next = earliest(event, timer.map(|(at, _)| at)).filter(|at| *at <= until);
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            if let Some((_, p)) = timer.filter(|(at, _)| event.is_none_or(|event| *at < event)) {
                let mut out = Vec::new();
                self.processes[p].pauses.tick(self.now, &mut out);
                self.receive(p, out);
            } else if let Some((_, event)) = self.events.pop_first() {
                self.apply(event);
            }
        }
        self.now = until;
    }

    fn request(&mut self, process: usize, scope: Scope, resumes: bool) {
        let id = RequestId(u64::try_from(self.ops.len()).expect("small"));
        let op = Op { process, scope: scope.clone(), resumes, from: self.now, to: None, paused: false };
        self.ops.push(op);
        let (by, reason) = (None, None);
        self.send(
            process,
            if resumes { In::Resume { id, scope } } else { In::Pause { id, scope, by, reason } },
        );
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Pause(p, n) => self.request(p, scope(n), false),
            Step::Resume(p, n) => self.request(p, scope(n), true),
            Step::Term(p) => self.term(p),
            Step::Crash(p) => {
                self.processes[p] = Process {
                    pauses: Pauses::new(Params {
                        mode: Mode::Enforce,
                        storage: PauseStorage::ConfigMap,
                        effect: PauseEffect::Pauses,
                    }),
                    life: self.processes[p].life + 1,
                    term: None,
                    policy: None,
                };
                let now = self.now;
                let open = self.ops.iter_mut().filter(|op| op.process == p && op.to.is_none());
                open.for_each(|op| op.to = Some(now));
                self.send(p, In::Start);
            }
            Step::Meddle => {
                self.server
                    .data
                    .get_or_insert_default()
                    .insert("kept".into(), format!("{:?}", self.now).into());
                self.server.version += 1;
            }
            Step::Wait(millis) => self.run(self.now.plus(Duration::from_millis(millis))),
        }
        self.run(self.now.plus(Duration::from_micros(100)));
    }

    fn term(&mut self, p: usize) {
        self.epoch += 1;
        self.processes[p].term = Some((Epoch(self.epoch), self.now));
        self.send(p, In::Confirm(Epoch(self.epoch)));
    }
}

proptest! {
    #[test]
    fn g6_an_answered_pause_is_in_force_in_every_later_term(
        steps in steps(),
        fates in proptest::collection::vec(fate(), 1..40),
    ) {
        let mut world = World::new(fates);
        steps.into_iter().for_each(|step| world.play(step));
        world.calm = true;
        world.run(world.now.plus(Duration::from_secs(40)));
        (0..PROCESSES).for_each(|p| world.term(p));
        world.run(world.now.plus(Duration::from_secs(1)));
        // Liveness: every process has the stored pauses, and all requests were answered.
        let noted = world.server.facts(world.now).map(|facts| PauseNotes::of(&facts)).unwrap_or_default();
        for process in &world.processes {
            let policy = process.policy.as_ref().expect("it was read");
            prop_assert_eq!(&policy.pools, &noted.pools);
            prop_assert_eq!(&policy.everything, &noted.everything);
            prop_assert_eq!(process.pauses.term, process.term.map(|(epoch, _)| epoch));
        }
        prop_assert!(world.ops.iter().all(|op| op.to.is_some()));
    }
}
