//! Random histories of one retirement, in a world in which others scale, delete and write our ConfigMap too: what never
//! happens, and what always happens in the end. Bugs that are planted between the machine and its world are found.

use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRng, TestRunner};

use super::notes::switching_off;
use super::*;
use crate::admin_state::records::ADMIN_STATE_OFF as OFF;

/// Within which time a world that carries out everything has let a retirement come to its end: a look, a scaling, and the
/// looks after it.
const CARRIED_OUT_WITHIN: Duration = Duration::from_secs(10);
/// How much later than its time it may end, where each request is answered within a second.
const ENDED_AFTER: Duration = Duration::from_secs(2);
/// How many nodes are Down by us at the most.
const MOST_DOWN: usize = 2;
/// How many requests in a row are answered at the most before it waits or ends.
const IN_A_ROW: usize = 8;

/// One thing that happens.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// The request that is under way is answered.
    Answer(How),
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
    /// A controller takes a node back, if it was told to.
    TakeBack,
    /// Somebody writes a key of his own into our ConfigMap.
    Note,
    /// The right to our ConfigMap is taken away.
    Deny,
    /// It is told to end; a write that is under way was carried out, or not.
    Terminate { carried_out: bool },
}

/// How a request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Well,
    /// It is not carried out.
    Refused,
    /// It is carried out, and its answer is lost.
    Lost,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        12 => Just(Event::Answer(How::Well)),
        2 => Just(Event::Answer(How::Refused)),
        2 => Just(Event::Answer(How::Lost)),
        2 => Just(Event::Stray),
        8 => (0_u64..3_000).prop_map(Event::Pass),
        2 => (0..4_i32).prop_map(Event::Scale),
        2 => Just(Event::Delete),
        6 => Just(Event::CarryOut),
        6 => Just(Event::End),
        3 => Just(Event::TakeBack),
        2 => Just(Event::Note),
        1 => Just(Event::Deny),
        1 => prop::bool::ANY.prop_map(|carried_out| Event::Terminate { carried_out }),
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
    /// Whether it was said where nodes are noted.
    is_named: bool,
    /// How many nodes are Down by us; `None`: there is no ConfigMap.
    down: Option<usize>,
    /// Whether an earlier call has left its note there.
    was_off: bool,
    /// Whether nobody takes nodes back.
    helpless: bool,
}

fn history() -> impl Strategy<Value = History> {
    let events = prop::collection::vec(event(), 0..60);
    let pods = (0_u64..60_000, prop::option::weighted(0.8, 0..4_i32), 0..3_usize, prop::bool::weighted(0.3));
    let nodes = (
        prop::bool::weighted(0.8),
        prop::option::weighted(0.9, 0..=MOST_DOWN),
        prop::bool::weighted(0.1),
        prop::bool::weighted(0.3),
    );
    (pods, nodes, events).prop_map(|(pods, nodes, events)| {
        let (within, wanted, ending, stubborn) = pods;
        let (is_named, down, was_off, helpless) = nodes;
        History { within, wanted, ending, events, stubborn, is_named, down, was_off, helpless }
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
    /// What is Down by us is not read.
    DownsUnseen,
    /// The note is never read.
    NoteUnseen,
    /// What was said of a node before is said again.
    DownsRemembered,
}

impl Plant {
    const ALL: [Plant; 10] = [
        Plant::EndingUnseen,
        Plant::SettledAtOnce,
        Plant::ZeroUnseen,
        Plant::FailureIsAbsence,
        Plant::Impatient,
        Plant::ClockStands,
        Plant::FailureUnheard,
        Plant::DownsUnseen,
        Plant::NoteUnseen,
        Plant::DownsRemembered,
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
            Plant::ClockStands => {
                &["a deadline stays in the past", "it waits for nodes after half of its time"]
            }
            Plant::FailureUnheard => {
                &["it waits for nothing, or after its end", "it takes what it has not asked for"]
            }
            Plant::DownsUnseen => &["scaled down while nodes were to be taken back"],
            Plant::NoteUnseen => &["the note stays, and nobody says so"],
            Plant::DownsRemembered => &["it names other nodes than are Down"],
        }
    }
}

#[derive(Clone, Debug)]
enum Request {
    Look,
    ScaleDown,
    ConfigMap(ConfigMapAsk),
}

impl Request {
    fn is_look(&self) -> bool {
        matches!(self, Request::Look)
    }
}

/// A Deployment, its Pods, our ConfigMap, everybody who has to do with them, and the bookkeeping that judges what the
/// machine says.
struct World {
    plant: Option<Plant>,
    machine: Retirement,
    now: Now,
    half: Now,
    until: Now,
    /// How many Pods the Deployment is to run; `None`: there is none.
    wanted: Option<i32>,
    /// Whether that was carried out.
    carried_out: bool,
    running: BTreeSet<String>,
    ending: BTreeSet<String>,
    made: u32,
    map: Option<Map>,
    is_named: bool,
    helpless: bool,
    is_denied: bool,
    asked: Option<Request>,
    /// What the last answer has shown; `None`: it was none to a look, or no good one.
    shown: Option<Seen>,
    /// Whether the Deployment or a Pod was ever shown.
    found: bool,
    told: Option<Left>,
    /// Who was Down by us at the last good answer to a request about our ConfigMap.
    read: Option<BTreeSet<String>>,
    /// Whether the last such request had no good answer.
    unread: bool,
    /// Whether one of them was answered so that asking again is of no use.
    given_up: bool,
    taken_back: Option<BTreeSet<String>>,
    stays: Option<Stay>,
    /// Whether it has asked for the note, and for its end.
    switched_off: bool,
    switched_on: bool,
    note_stays: bool,
    is_terminated: bool,
    /// How many requests about the Deployment it has made when its time was over.
    late: usize,
    ended: Option<End>,
}

/// Our ConfigMap at the start of a history.
fn map(history: &History) -> Option<Map> {
    let mut map = Map::with(&[("start.a", "x")]);
    for number in 0..history.down? {
        map.data.insert(format!("down.u-{number}").into(), format!("node-{number}\n").into());
    }
    if history.was_off {
        map.store(&switching_off(Now::ZERO));
    }
    Some(map)
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
        let machine = Retirement::new(within);
        let mut world = World {
            plant,
            machine: if history.is_named { machine.taking_back() } else { machine },
            now,
            half: now.plus(within).minus(within / 2),
            until: now.plus(within),
            wanted: history.wanted,
            carried_out: false,
            running: BTreeSet::new(),
            ending: BTreeSet::new(),
            made: 0,
            map: map(history),
            is_named: history.is_named,
            helpless: history.helpless,
            is_denied: false,
            asked: None,
            shown: None,
            found: false,
            told: None,
            read: None,
            unread: false,
            given_up: false,
            taken_back: None,
            stays: None,
            switched_off: false,
            switched_on: false,
            note_stays: false,
            is_terminated: false,
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
                    require(self.is_in_order(), "scaled down while nodes were to be taken back")?;
                    self.ask(Request::ScaleDown)?;
                }
                Out::ConfigMap(ask) => {
                    self.judge_ask(&ask)?;
                    self.ask(Request::ConfigMap(ask))?;
                }
                Out::WaitsFor(left) => {
                    require(self.is_left(&left), "it waits for what is not so")?;
                    require(self.told.as_ref() != Some(&left), "told twice")?;
                    self.told = Some(left);
                }
                Out::TakesBack(nodes) => {
                    require(self.now < self.half, "it waits for nodes after half of its time")?;
                    require(self.is_down(&nodes), "it names other nodes than are Down")?;
                    require(self.taken_back.as_ref() != Some(&nodes), "told twice")?;
                    self.taken_back = Some(nodes);
                }
                Out::StaysDown(stay) => {
                    self.judge_stay(&stay)?;
                    require(self.stays.as_ref() != Some(&stay), "told twice")?;
                    self.stays = Some(stay);
                }
                Out::NoteStays(_) => {
                    require(self.unread, "it does not know that the note is gone, and could")?;
                    self.note_stays = true;
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
        let is_of_notes = matches!(request, Request::ConfigMap(_));
        require(self.asked.replace(request).is_none(), "two requests at a time")?;
        if is_of_notes {
            return Ok(());
        }
        require(!self.switched_on, "it goes on after it has taken the note away")?;
        self.late += usize::from(self.now >= self.until);
        require(self.late <= 3, "after its time it asks for more than two looks and a scaling")
    }

    /// Whether Pods may be told to end: nobody could take a node back any more, or has the time.
    fn is_in_order(&self) -> bool {
        let is_none_down = self.read.as_ref().is_some_and(BTreeSet::is_empty);
        !self.is_named || is_none_down || self.given_up || self.now >= self.half
    }

    /// Whether these nodes are those that the last good answer has named.
    fn is_down(&self, nodes: &BTreeSet<String>) -> bool {
        !nodes.is_empty() && self.read.as_ref() == Some(nodes)
    }

    /// Safety of what it asks of our ConfigMap: one key is its own.
    fn judge_ask(&mut self, ask: &ConfigMapAsk) -> Result<(), &'static str> {
        require(self.is_named, "it asks of what nobody has named")?;
        match ask {
            ConfigMapAsk::Get => Ok(()),
            ConfigMapAsk::Create(_) => Err("it makes a ConfigMap"),
            ConfigMapAsk::Replace(_, edit) => {
                let mut keys = edit.set.keys().chain(&edit.remove);
                require(keys.all(|key| **key == *OFF), "it writes what is not its own")?;
                require(!edit.is_empty(), "it writes nothing")?;
                require(edit.set.is_empty() || !self.switched_on, "it writes the note again")?;
                self.switched_off |= !edit.set.is_empty();
                self.switched_on |= !edit.remove.is_empty();
                Ok(())
            }
        }
    }

    fn judge_stay(&self, stay: &Stay) -> Result<(), &'static str> {
        match stay {
            Stay::Nodes(nodes) => require(self.is_down(nodes), "it names other nodes than are Down"),
            Stay::Unnamed => require(!self.is_named, "it was said where nodes are noted"),
            Stay::Unknown(_) => require(self.unread, "it knows who is Down"),
        }
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
            (Left::Unknown(_), Some(_)) => self.unread,
            (Left::Pods(_) | Left::Orphans(_), None) => false,
        }
    }

    /// Safety of how it ends.
    fn judge(&self, end: &End) -> Result<(), &'static str> {
        let is_off = self.map.as_ref().is_some_and(|map| map.data.contains_key(OFF));
        require(!(is_off && self.switched_off) || self.note_stays, "the note stays, and nobody says so")?;
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
            (End::Terminated, _) => require(self.is_terminated, "nobody has told it to end"),
        }
    }

    /// Answers the request that is under way, if there is one.
    fn answer(&mut self, how: How) -> Result<(), &'static str> {
        let Some(asked) = self.asked.take() else { return Ok(()) };
        let answer = match &asked {
            Request::Look => self.look(how),
            Request::ScaleDown => self.scale_down(how),
            Request::ConfigMap(ask) => In::ConfigMap(self.notes(ask, how)),
        };
        match self.sabotaged(&asked, answer) {
            Some(heard) => self.tell(heard),
            None => Ok(()),
        }
    }

    fn look(&mut self, how: How) -> In {
        self.shown = None;
        self.unread = false;
        match how {
            How::Well => {
                let seen = self.seen();
                self.found |= seen.scale.is_some() || !is_none(&seen.pods);
                self.shown = Some(seen.clone());
                In::Seen(seen)
            }
            How::Refused | How::Lost => In::Failed("refused".to_owned()),
        }
    }

    fn scale_down(&mut self, how: How) -> In {
        self.shown = None;
        match (how, self.wanted) {
            (How::Well, Some(_)) => {
                self.scale(0);
                In::Scaled
            }
            (How::Lost, Some(_)) => {
                self.scale(0);
                In::Failed("lost".to_owned())
            }
            (How::Refused, _) | (How::Well | How::Lost, None) => In::Failed("refused".to_owned()),
        }
    }

    fn notes(&mut self, ask: &ConfigMapAsk, how: How) -> ConfigMapAnswer {
        let failed = |why: &str| ConfigMapAnswer::Failed(RequestFailure::Other(why.into()));
        let carried_out = match (how, self.is_denied, &mut self.map) {
            (How::Refused, _, _) => failed("refused"),
            (How::Well | How::Lost, true, _) => {
                ConfigMapAnswer::Failed(RequestFailure::Denied("denied".into()))
            }
            (How::Well | How::Lost, false, None) => ConfigMapAnswer::Absent,
            (How::Well | How::Lost, false, Some(map)) => map.carry_out(ask),
        };
        let answer = if how == How::Lost { failed("lost") } else { carried_out };
        self.unread = !matches!(answer, ConfigMapAnswer::Seen(_));
        match &answer {
            ConfigMapAnswer::Seen(_) => {
                let map = self.map.as_ref().expect("it was seen");
                let downs = map.data.iter().filter(|(key, _)| key.starts_with("down."));
                self.read = Some(downs.map(|(_, text)| text.trim().to_owned()).collect());
            }
            ConfigMapAnswer::Absent | ConfigMapAnswer::Failed(RequestFailure::Denied(_)) => {
                self.given_up = true;
            }
            ConfigMapAnswer::Conflict | ConfigMapAnswer::Failed(RequestFailure::Other(_)) => {}
        }
        answer
    }

    /// What arrives of an answer.
    fn sabotaged(&self, asked: &Request, answer: In) -> Option<In> {
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
            (In::Failed(_), Plant::FailureIsAbsence) if asked.is_look() => {
                Some(In::Seen(Seen { scale: None, pods: Some(BTreeSet::new()) }))
            }
            (In::Failed(_) | In::ConfigMap(ConfigMapAnswer::Failed(_)), Plant::FailureUnheard) => None,
            (In::ConfigMap(ConfigMapAnswer::Seen(facts)), plant) => {
                let mut facts = (*facts).clone();
                match plant {
                    Plant::DownsUnseen => facts.data.retain(|key, _| !key.starts_with("down.")),
                    Plant::NoteUnseen => facts.data.retain(|key, _| **key != *OFF),
                    Plant::DownsRemembered => {
                        let text = Text { text: "node-9\n".into(), time: None };
                        facts.data.insert("down.u-9".into(), text);
                    }
                    Plant::EndingUnseen
                    | Plant::SettledAtOnce
                    | Plant::ZeroUnseen
                    | Plant::FailureIsAbsence
                    | Plant::Impatient
                    | Plant::ClockStands
                    | Plant::FailureUnheard => {}
                }
                Some(In::ConfigMap(ConfigMapAnswer::Seen(Arc::new(facts))))
            }
            (answer, _) => Some(answer),
        }
    }

    /// Tells it something that answers nothing of what it has asked: nothing comes of it.
    fn stray(&mut self) -> Result<(), &'static str> {
        let nothing = In::Seen(Seen { scale: None, pods: Some(BTreeSet::new()) });
        let absent = In::ConfigMap(ConfigMapAnswer::Absent);
        let strays = match self.asked {
            Some(Request::Look) => vec![In::Scaled, absent],
            Some(Request::ScaleDown) => vec![nothing, absent],
            Some(Request::ConfigMap(_)) => vec![In::Scaled, nothing, In::Failed("stray".to_owned())],
            None => vec![In::Scaled, nothing, In::Failed("stray".to_owned()), absent],
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
            // What takes the note away is tried again a second later, also when the time is over.
            let last = self.until.max(self.now.plus(LOOK_EVERY));
            require(self.asked.is_none() && due <= last, "it waits for the wrong moment")?;
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
            Event::Answer(how) => return self.answer(how),
            Event::Stray => return self.stray(),
            Event::Pass(millis) => return self.pass(millis),
            Event::Scale(wanted) => self.scale(wanted),
            Event::Delete => self.wanted = None,
            Event::CarryOut => self.carry_out(),
            Event::End => drop(self.ending.pop_first()),
            Event::TakeBack => self.take_back(),
            Event::Note => {
                if let Some(map) = &mut self.map {
                    map.data.insert("start.b".into(), "y".into());
                    map.version += 1;
                }
            }
            Event::Deny => self.is_denied = true,
            Event::Terminate { carried_out } => return self.terminate(carried_out),
        }
        Ok(())
    }

    /// A controller that has been told so takes a node back, and forgets it.
    fn take_back(&mut self) {
        let Some(map) = self.map.as_mut().filter(|map| !self.helpless && map.data.contains_key(OFF)) else {
            return;
        };
        if let Some(key) = map.data.keys().find(|key| key.starts_with("down.")).cloned() {
            map.data.remove(&key);
            map.version += 1;
        }
    }

    /// It is told to end; nothing that is under way is answered.
    fn terminate(&mut self, carried_out: bool) -> Result<(), &'static str> {
        if let Some(Request::ConfigMap(ask)) = self.asked.take() {
            if let (true, false, Some(map)) = (carried_out, self.is_denied, &mut self.map) {
                map.carry_out(&ask);
            }
            self.unread = true;
        }
        self.is_terminated = true;
        self.tell(In::Terminated)
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
            for _ in 0..MOST_DOWN {
                self.take_back();
            }
            for _ in 0..IN_A_ROW {
                self.answer(How::Well)?;
            }
            self.pass(1_000)?;
        }
        let Some(end) = &self.ended else { return Err("it never ends") };
        let is_ready = matches!(end, End::Retired | End::Absent | End::Terminated);
        // Where nobody takes nodes back, half of the time goes to waiting for that.
        let begins = if self.helpless { began.max(self.half) } else { began };
        let has_time = self.until.since(begins) > CARRIED_OUT_WITHIN;
        require(is_ready || stubborn || !has_time, "late, though all Pods have ended")
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

proptest! {
    /// Safety: it is never over while the world that it was shown last runs a Pod or has not carried out that there are
    /// to be none; it scales down alone, and only what is to run Pods; it asks one thing at a time, tells what is so and
    /// nothing twice, and ends by its time. It scales nothing down while nodes are Down by us that could still be taken
    /// back in the first half of its time, writes no key but its own, and leaves its note nowhere without saying so.
    /// Liveness: where the controller does its part and Pods end, it is retired.
    #[test]
    fn n4_w7_w8_nothing_is_over_before_the_last_pod_has_ended_and_in_the_end_it_is(history in history()) {
        prop_assert_eq!(play(&history, None), Ok(()));
    }
}

#[test]
fn each_planted_bug_is_found() {
    for plant in Plant::ALL {
        let config = ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() };
        let rng = TestRng::deterministic_rng(config.rng_algorithm);
        let mut runner = TestRunner::new_with_rng(config, rng);
        let played =
            runner.run(&history(), |history| play(&history, Some(plant)).map_err(TestCaseError::fail));
        let Err(TestError::Fail(why, _)) = &played else { panic!("{plant:?} is not found: {played:?}") };
        assert!(plant.found_by().contains(&why.message()), "{plant:?} is found by {why}");
    }
}
