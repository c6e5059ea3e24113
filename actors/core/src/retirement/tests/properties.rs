//! Random histories of one retirement, in a world in which others scale and delete too: what never happens, and what
//! always happens in the end. Bugs that are planted between the machine and its world are found.

use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRng, TestRunner};

use super::*;

/// Within which time a world that carries out everything has let a retirement come to its end: a look, a scaling, and the
/// looks after it.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(10);
/// How much later than its time it may end, where each request is answered within a second.
const ENDED_AFTER: Duration = Duration::from_secs(2);

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The request that is under way is answered, well or not.
    Answer { well: bool },
    /// Something is told that nobody has asked for.
    Stray,
    /// So many milliseconds pass.
    Pass(u64),
    /// Somebody has the Deployment run so many Pods.
    Scale(i32),
    /// Somebody deletes the Deployment.
    Delete,
    /// Whoever has Pods made and ended does so.
    CarryOut,
    /// One of the Pods that were told to end has ended.
    End,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => Just(Event::Answer { well: true }),
        2 => Just(Event::Answer { well: false }),
        1 => Just(Event::Stray),
        4 => (0_u64..3_000).prop_map(Event::Pass),
        1 => (0..4_i32).prop_map(Event::Scale),
        1 => Just(Event::Delete),
        3 => Just(Event::CarryOut),
        3 => Just(Event::End),
    ]
}

/// A world, and what happens in it.
#[derive(Clone, Debug)]
struct History {
    within: u64,
    /// How many Pods the Deployment is to run; `None`: there is none.
    wanted: Option<i32>,
    /// How many Pods have been told to end already.
    ending: usize,
    events: Vec<Event>,
    /// Whether Pods never end by themselves.
    stubborn: bool,
}

fn history() -> impl Strategy<Value = History> {
    let events = prop::collection::vec(event(), 0..60);
    (0_u64..60_000, prop::option::weighted(0.8, 0..4_i32), 0..3_usize, events, prop::bool::weighted(0.3))
        .prop_map(|(within, wanted, ending, events, stubborn)| History {
            within,
            wanted,
            ending,
            events,
            stubborn,
        })
}

/// A mistake between the machine and its world, such as a shell or a machine could make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Plant {
    /// Pods that are ending are not listed.
    EndingUnseen,
    /// What the controller has not carried out yet counts as carried out.
    SettledAtOnce,
    /// What is at 0 is shown as if one Pod were wanted.
    ZeroUnseen,
    /// A request without a good answer counts as one that has found nothing.
    FailureIsAbsence,
    /// Each wake-up makes a request, whatever is under way.
    Impatient,
    /// The machine's clock stands.
    ClockStands,
    /// Nobody says that a request had no good answer.
    FailureUnheard,
}

impl Plant {
    const ALL: [Plant; 7] = [
        Plant::EndingUnseen,
        Plant::SettledAtOnce,
        Plant::ZeroUnseen,
        Plant::FailureIsAbsence,
        Plant::Impatient,
        Plant::ClockStands,
        Plant::FailureUnheard,
    ];

    /// What is said of it, in any of these words.
    fn found_by(self) -> &'static [&'static str] {
        match self {
            Plant::EndingUnseen => &[
                "retired while Pods run",
                "absent, though something was there",
                "it waits for what is not so",
                "what is left is not so",
            ],
            Plant::SettledAtOnce => &["retired before that was carried out"],
            Plant::ZeroUnseen => &["scaled what is at 0"],
            Plant::FailureIsAbsence => &["retired without having seen it", "absent without having seen it"],
            Plant::Impatient => &["two requests at a time"],
            Plant::ClockStands => &["a deadline stays in the past"],
            Plant::FailureUnheard => {
                &["it waits for nothing, or after its end", "it takes what it has not asked for"]
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Request {
    Look,
    ScaleDown,
}

/// A Deployment, its Pods, everybody who has to do with them, and the bookkeeping that judges what the machine says.
struct World {
    plant: Option<Plant>,
    machine: Retirement,
    now: Now,
    until: Now,
    /// How many Pods the Deployment is to run; `None`: there is none.
    wanted: Option<i32>,
    /// Whether that was carried out.
    carried_out: bool,
    running: BTreeSet<String>,
    ending: BTreeSet<String>,
    made: u32,
    asked: Option<Request>,
    /// What the last answer has shown; `None`: it was none to a look, or no good one.
    shown: Option<Seen>,
    /// Whether the Deployment or a Pod was ever shown.
    found: bool,
    told: Option<Left>,
    /// How many requests it has made when its time was over.
    late: usize,
    ended: Option<End>,
}

/// Whether it is known that none of them runs.
fn is_none(pods: &Option<BTreeSet<String>>) -> bool {
    pods.as_ref().is_some_and(BTreeSet::is_empty)
}

/// What holds, or what is wrong.
fn require(holds: bool, wrong: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(wrong) }
}

impl World {
    fn begun(history: &History, plant: Option<Plant>) -> Result<World, &'static str> {
        let within = Duration::from_millis(history.within);
        let now = Now::from_millis(1_000);
        let mut world = World {
            plant,
            machine: Retirement::new(within),
            now,
            until: now.plus(within),
            wanted: history.wanted,
            carried_out: false,
            running: BTreeSet::new(),
            ending: BTreeSet::new(),
            made: 0,
            asked: None,
            shown: None,
            found: false,
            told: None,
            late: 0,
            ended: None,
        };
        for _ in 0..history.ending {
            let name = world.name();
            world.ending.insert(name);
        }
        world.tell(In::Start)?;
        Ok(world)
    }

    /// A name for one more Pod.
    fn name(&mut self) -> String {
        self.made += 1;
        format!("web-{}", self.made)
    }

    /// What the API server has at this moment.
    fn seen(&self) -> Seen {
        let settled = self.carried_out && self.running.is_empty();
        Seen {
            scale: self.wanted.map(|wanted| Scale { wanted, settled }),
            pods: Some(self.running.union(&self.ending).cloned().collect()),
        }
    }

    fn scale(&mut self, wanted: i32) {
        if self.wanted.is_some() {
            (self.wanted, self.carried_out) = (Some(wanted), false);
        }
    }

    /// The Deployment's controller makes Pods and tells Pods to end. Where there is no Deployment, the garbage collector
    /// tells all of them.
    fn carry_out(&mut self) {
        let wanted = usize::try_from(self.wanted.unwrap_or(0)).expect("nobody wants less than none");
        while self.running.len() < wanted {
            let name = self.name();
            self.running.insert(name);
        }
        while self.running.len() > wanted {
            self.ending.extend(self.running.pop_last());
        }
        self.carried_out = true;
    }

    /// The moment that the machine hears of.
    fn clock(&self) -> Now {
        if self.plant == Some(Plant::ClockStands) { Now::from_millis(1_000) } else { self.now }
    }

    fn tell(&mut self, input: In) -> Result<(), &'static str> {
        let mut out = Vec::new();
        self.machine.step(self.clock(), input, &mut out);
        self.hear(out)
    }

    fn tick(&mut self) -> Result<(), &'static str> {
        let mut out = Vec::new();
        self.machine.tick(self.clock(), &mut out);
        if self.plant == Some(Plant::Impatient) {
            out.push(Out::Look);
        }
        self.hear(out)
    }

    fn hear(&mut self, out: Vec<Out>) -> Result<(), &'static str> {
        for said in out {
            require(self.ended.is_none(), "it goes on after its end")?;
            match said {
                Out::Look => self.ask(Request::Look)?,
                Out::ScaleDown { from } => {
                    let scale = self.shown.as_ref().and_then(|shown| shown.scale);
                    require(from > 0 && scale.is_some_and(|it| it.wanted == from), "scaled what is at 0")?;
                    self.ask(Request::ScaleDown)?;
                }
                Out::WaitsFor(left) => {
                    require(self.is_left(&left), "it waits for what is not so")?;
                    require(self.told.as_ref() != Some(&left), "told twice")?;
                    self.told = Some(left);
                }
                Out::Ended(end) => {
                    self.judge(&end)?;
                    self.ended = Some(end);
                }
            }
        }
        Ok(())
    }

    fn ask(&mut self, request: Request) -> Result<(), &'static str> {
        require(self.asked.replace(request).is_none(), "two requests at a time")?;
        self.late += usize::from(self.now >= self.until);
        require(self.late <= 2, "after its time it asks for more than a look and a scaling")
    }

    /// Whether this is what the last answer has left.
    fn is_left(&self, left: &Left) -> bool {
        match (left, &self.shown) {
            (Left::Pods(pods), Some(shown)) => {
                shown.scale.is_some() && !pods.is_empty() && Some(pods) == shown.pods.as_ref()
            }
            (Left::Orphans(pods), Some(shown)) => {
                shown.scale.is_none() && !pods.is_empty() && Some(pods) == shown.pods.as_ref()
            }
            (Left::Controller, Some(shown)) => {
                is_none(&shown.pods) && shown.scale.is_some_and(|scale| !scale.settled)
            }
            // What was scaled a moment ago.
            (Left::Controller, None) | (Left::Unknown(_), None) => true,
            (Left::Pods(_) | Left::Orphans(_), None) | (Left::Unknown(_), Some(_)) => false,
        }
    }

    /// Safety of how it ends.
    fn judge(&self, end: &End) -> Result<(), &'static str> {
        match (end, &self.shown) {
            (End::Retired, Some(shown)) => {
                require(is_none(&shown.pods), "retired while Pods run")?;
                let is_over = shown.scale.is_none_or(|scale| scale.wanted == 0 && scale.settled);
                require(is_over, "retired before that was carried out")?;
                require(self.found, "retired, though nothing was ever there")
            }
            (End::Absent, Some(_)) => require(!self.found, "absent, though something was there"),
            (End::Retired, None) => Err("retired without having seen it"),
            (End::Absent, None) => Err("absent without having seen it"),
            (End::Late(left), _) => {
                require(self.now >= self.until, "too late before its time is over")?;
                require(self.is_left(left), "what is left is not so")
            }
        }
    }

    /// Answers the request that is under way, if there is one.
    fn answer(&mut self, well: bool) -> Result<(), &'static str> {
        let Some(asked) = self.asked.take() else { return Ok(()) };
        self.shown = None;
        let answer = match (asked, well, self.wanted) {
            (Request::Look, true, _) => {
                let seen = self.seen();
                self.found |= seen.scale.is_some() || !is_none(&seen.pods);
                self.shown = Some(seen.clone());
                In::Seen(seen)
            }
            (Request::ScaleDown, true, Some(_)) => {
                self.scale(0);
                In::Scaled
            }
            (Request::Look | Request::ScaleDown, false, _) | (Request::ScaleDown, true, None) => {
                In::Failed("refused".to_owned())
            }
        };
        match self.sabotaged(asked, answer) {
            Some(heard) => self.tell(heard),
            None => Ok(()),
        }
    }

    /// What arrives of an answer.
    fn sabotaged(&self, asked: Request, answer: In) -> Option<In> {
        let Some(plant) = self.plant else { return Some(answer) };
        match (answer, plant) {
            (In::Seen(mut seen), Plant::EndingUnseen) => {
                seen.pods.iter_mut().for_each(|pods| pods.retain(|pod| self.running.contains(pod)));
                Some(In::Seen(seen))
            }
            (In::Seen(mut seen), Plant::SettledAtOnce) => {
                seen.scale = seen.scale.map(|scale| Scale { settled: true, ..scale });
                Some(In::Seen(seen))
            }
            (In::Seen(mut seen), Plant::ZeroUnseen) => {
                seen.scale = seen.scale.map(|scale| Scale { wanted: scale.wanted.max(1), ..scale });
                Some(In::Seen(seen))
            }
            (In::Failed(_), Plant::FailureIsAbsence) if asked == Request::Look => {
                Some(In::Seen(Seen { scale: None, pods: Some(BTreeSet::new()) }))
            }
            (In::Failed(_), Plant::FailureUnheard) => None,
            (answer, _) => Some(answer),
        }
    }

    /// Tells it something that answers nothing of what it has asked: nothing comes of it.
    fn stray(&mut self) -> Result<(), &'static str> {
        let nothing = In::Seen(Seen { scale: None, pods: Some(BTreeSet::new()) });
        let strays = match self.asked {
            Some(Request::Look) => vec![In::Scaled],
            Some(Request::ScaleDown) => vec![nothing],
            None => vec![In::Scaled, nothing, In::Failed("stray".to_owned())],
        };
        for stray in strays.into_iter().chain([In::Start]) {
            let mut out = Vec::new();
            self.machine.step(self.clock(), stray, &mut out);
            require(out.is_empty(), "it takes what it has not asked for")?;
        }
        Ok(())
    }

    fn pass(&mut self, millis: u64) -> Result<(), &'static str> {
        let until = self.now.plus(Duration::from_millis(millis));
        while let Some(due) = self.machine.deadline().filter(|due| *due <= until) {
            require(self.asked.is_none() && due <= self.until, "it waits for the wrong moment")?;
            self.now = self.now.max(due);
            self.tick()?;
            require(self.machine.deadline().is_none_or(|next| next > due), "a deadline stays in the past")?;
        }
        self.now = until;
        let waits = self.asked.is_some() || self.machine.deadline().is_some();
        require(waits == self.ended.is_none(), "it waits for nothing, or after its end")
    }

    fn happen(&mut self, event: Event) -> Result<(), &'static str> {
        match event {
            Event::Answer { well } => return self.answer(well),
            Event::Stray => return self.stray(),
            Event::Pass(millis) => return self.pass(millis),
            Event::Scale(wanted) => self.scale(wanted),
            Event::Delete => self.wanted = None,
            Event::CarryOut => self.carry_out(),
            Event::End => drop(self.ending.pop_first()),
        }
        Ok(())
    }

    /// Liveness: everybody does his part within a second, but for Pods that never end. Then it ends in time, and where
    /// there is time enough for that, as retired.
    fn come_to_rest(&mut self, stubborn: bool) -> Result<(), &'static str> {
        let (began, last) = (self.now, self.until.max(self.now).plus(ENDED_AFTER));
        while self.ended.is_none() && self.now <= last {
            self.carry_out();
            if !stubborn {
                self.ending.clear();
            }
            for _ in [Request::Look, Request::ScaleDown] {
                self.answer(true)?;
            }
            self.pass(1_000)?;
        }
        let Some(end) = &self.ended else { return Err("it never ends") };
        let is_retired = matches!(end, End::Retired | End::Absent);
        let has_time = self.until.since(began) > CARRIED_OUT_WITHIN;
        require(is_retired || stubborn || !has_time, "late, though all Pods have ended")
    }
}

/// Plays a history to its end.
fn play(history: &History, plant: Option<Plant>) -> Result<(), &'static str> {
    let mut world = World::begun(history, plant)?;
    for event in &history.events {
        world.happen(*event)?;
    }
    world.come_to_rest(history.stubborn)
}

fn thorough() -> ProptestConfig {
    ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(thorough())]

    /// Safety: it is never over while the world that it was shown last runs a Pod or has not carried out that there are
    /// to be none; it scales down alone, and only what is to run Pods; it asks one thing at a time, tells what is so and
    /// nothing twice, and ends by its time. Liveness: where the controller does its part and Pods end, it is retired.
    #[test]
    fn w7_w8_nothing_is_over_before_the_last_pod_has_ended_and_in_the_end_it_is(history in history()) {
        prop_assert_eq!(play(&history, None), Ok(()));
    }
}

#[test]
fn each_planted_bug_is_found() {
    for plant in Plant::ALL {
        let config = thorough();
        let rng = TestRng::deterministic_rng(config.rng_algorithm);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let played =
            runner.run(&history(), |history| play(&history, Some(plant)).map_err(TestCaseError::fail));
        let Err(TestError::Fail(why, _)) = &played else { panic!("{plant:?} is not found: {played:?}") };
        assert!(plant.found_by().contains(&why.message()), "{plant:?} is found by {why}");
    }
}
