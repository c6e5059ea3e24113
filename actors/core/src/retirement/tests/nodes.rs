//! Nodes that are Down by us are taken back while the Pods still run (N4), against a ConfigMap that others write too.

use super::*;
use crate::admin_state::records::ADMIN_STATE_OFF as OFF;
use crate::pauses;

/// The note of a node that is Down by us.
const NODE_7: (&str, &str) = ("down.u-7", "node-7\nips: 10.0.0.7\nsince: 2026-11-22T16:30:35.000000Z\n");
const NODE_8: (&str, &str) = ("down.u-8", "node-8\nips: 10.0.0.8\n");

/// A retirement and our ConfigMap.
struct Served {
    driven: Driven,
    map: Option<Map>,
    /// What the API server says instead of carrying anything out.
    refuses: Option<RequestFailure>,
    /// Whether it refuses writes alone.
    reads: bool,
}

impl Served {
    /// One that has begun at 0 s, where the Deployment is to run this many Pods, and what it says then.
    fn begun(map: &[(&str, &str)], wanted: i32) -> (Served, Vec<Out>) {
        let mut served = Served::new(Some(Map::with(map)));
        let said = served.at(0, seen(Some((wanted, wanted == 0)), &[]));
        (served, said)
    }

    /// One that looks for the first time.
    fn new(map: Option<Map>) -> Served {
        let mut driven = Driven(Retirement::new(WITHIN).taking_back());
        assert_eq!(driven.at(0, In::Start), [Out::Look]);
        Served { driven, map, refuses: None, reads: false }
    }

    /// What it says of this, once its requests about the ConfigMap were answered.
    fn at(&mut self, second: u64, input: In) -> Vec<Out> {
        let said = self.driven.at(second, input);
        self.serve(second, said)
    }

    fn woken(&mut self) -> (u64, Vec<Out>) {
        let (second, said) = self.driven.woken();
        (second, self.serve(second, said))
    }

    fn serve(&mut self, second: u64, mut said: Vec<Out>) -> Vec<Out> {
        let mut rest = Vec::new();
        while !said.is_empty() {
            for out in std::mem::take(&mut said) {
                match out {
                    Out::ConfigMap(ask) => {
                        let answer = self.answer(&ask);
                        said = self.driven.at(second, In::ConfigMap(answer));
                    }
                    Out::Look
                    | Out::ScaleDown { .. }
                    | Out::WaitsFor(_)
                    | Out::TakesBack(_)
                    | Out::StaysDown(_)
                    | Out::NoteStays(_)
                    | Out::Ended(_) => rest.push(out),
                }
            }
        }
        rest
    }

    fn answer(&mut self, ask: &ConfigMapAsk) -> ConfigMapAnswer {
        let is_read = matches!(ask, ConfigMapAsk::Get);
        match (&self.refuses, &mut self.map) {
            (Some(why), _) if !(is_read && self.reads) => ConfigMapAnswer::Failed(why.clone()),
            (_, Some(map)) => map.carry_out(ask),
            (_, None) => ConfigMapAnswer::Absent,
        }
    }

    fn keys(&self) -> Vec<&str> {
        self.map.as_ref().expect("there is a ConfigMap").keys()
    }

    /// What a controller does that has taken this node back.
    fn forget(&mut self, key: &str) {
        let map = self.map.as_mut().expect("there is a ConfigMap");
        map.data.remove(key).expect("it is noted");
        map.version += 1;
    }

    /// Scales down from 2 after a look, and lets the Pods end at this second.
    fn retires(&mut self, second: u64) -> Vec<Out> {
        assert_eq!(self.at(second, seen(Some((2, false)), &["a"])), [Out::ScaleDown { from: 2 }]);
        assert_eq!(self.at(second, In::Scaled), []);
        assert_eq!(self.woken(), (second + 1, vec![Out::Look]));
        self.at(second + 1, seen(Some((0, true)), &[]))
    }
}

fn takes_back(nodes: &[&str]) -> Out {
    Out::TakesBack(names(nodes))
}

fn stays_down(nodes: &[&str]) -> Out {
    Out::StaysDown(Stay::Nodes(names(nodes)))
}

fn denied() -> RequestFailure {
    RequestFailure::Denied("HTTP 403: forbidden".into())
}

#[test]
fn n4_nodes_are_taken_back_while_the_pods_run_and_the_note_goes_when_none_is_left() {
    let (mut served, said) = Served::begun(&[NODE_7, NODE_8, ("start.a", "x")], 2);
    assert_eq!(said, [takes_back(&["node-7", "node-8"])]);
    assert_eq!(served.keys(), [OFF, "down.u-7", "down.u-8", "start.a"]);
    assert_eq!(&*served.map.as_ref().expect("it is there").data[OFF], "by: retire\nsince: @0\n");
    assert_eq!(served.woken(), (1, vec![]), "nothing is said twice");
    served.forget("down.u-7");
    assert_eq!(served.woken(), (2, vec![takes_back(&["node-8"])]));
    served.forget("down.u-8");
    assert_eq!(served.woken(), (3, vec![Out::Look]));
    assert_eq!(served.keys(), [OFF, "start.a"], "nothing is begun while the Pods end");
    assert_eq!(served.retires(3), [Out::Ended(End::Retired)]);
    assert_eq!(served.keys(), ["start.a"]);
}

#[test]
fn n4_the_note_is_the_one_by_which_the_admin_state_is_switched_off() {
    let is_off = |map: &Map| pauses::noted(&map.facts()).0.admin_state_off;
    let (mut served, _) = Served::begun(&[NODE_7], 1);
    assert!(is_off(served.map.as_ref().expect("it is there")));
    assert_eq!(served.at(1, In::Terminated).last(), Some(&Out::Ended(End::Terminated)));
    assert!(!is_off(served.map.as_ref().expect("it is there")));
}

#[test]
fn n4_where_no_node_is_down_nothing_is_waited_for() {
    let (mut served, said) = Served::begun(&[("start.a", "x")], 2);
    assert_eq!(said, [Out::Look]);
    assert_eq!(served.keys(), [OFF, "start.a"]);
    assert_eq!(served.retires(0), [Out::Ended(End::Retired)]);
    assert_eq!(served.keys(), ["start.a"]);
}

#[test]
fn n4_after_half_of_the_time_it_goes_on_and_names_who_stays_down() {
    let (mut served, said) = Served::begun(&[NODE_7, NODE_8], 2);
    assert_eq!(said, [takes_back(&["node-7", "node-8"])]);
    for second in 1..30 {
        assert_eq!(served.woken(), (second, vec![]));
    }
    assert_eq!(served.woken(), (30, vec![stays_down(&["node-7", "node-8"]), Out::Look]));
    // One of them is taken back by whoever is told to end.
    assert_eq!(served.at(30, seen(Some((2, false)), &["a"])), [Out::ScaleDown { from: 2 }]);
    served.forget("down.u-7");
    assert_eq!(served.at(30, In::Scaled), []);
    assert_eq!(served.woken(), (31, vec![Out::Look]));
    let said = served.at(31, seen(Some((0, true)), &[]));
    assert_eq!(said, [stays_down(&["node-8"]), Out::Ended(End::Retired)]);
    assert_eq!(served.keys(), ["down.u-8"]);
}

#[test]
fn n4_a_note_that_cannot_be_read_is_named_and_not_waited_for() {
    let (mut served, said) = Served::begun(&[("down.u-1", "\n"), ("down.u 2", "node-2")], 2);
    let left = stays_down(&["down.u 2 (cannot be read)", "down.u-1 (cannot be read)"]);
    assert_eq!(said, [left, Out::Look]);
    assert_eq!(served.retires(0), [Out::Ended(End::Retired)]);
}

#[test]
fn n4_where_nobody_could_take_nodes_back_the_deployment_is_not_kept_waiting() {
    // An earlier call was killed, and has left its note.
    let before = [NODE_7, (OFF, "by: retire\n")];
    let (served, said) = Served::begun(&before, 0);
    assert_eq!(said, [stays_down(&["node-7"]), Out::Ended(End::Retired)]);
    assert_eq!(served.keys(), ["down.u-7"]);

    let mut served = Served::new(Some(Map::with(&before)));
    assert_eq!(served.at(0, seen(None, &[])), [stays_down(&["node-7"]), Out::Ended(End::Absent)]);
    assert_eq!(served.keys(), ["down.u-7"]);
}

#[test]
fn n4_without_the_right_or_the_object_it_says_so_and_goes_on() {
    let unknown = |why: &str| Out::StaysDown(Stay::Unknown(why.to_owned()));
    let mut served = Served::new(None);
    let said = served.at(0, seen(Some((2, false)), &[]));
    assert_eq!(said, [unknown("it does not exist"), Out::Look]);
    assert_eq!(served.retires(0), [Out::Ended(End::Retired)]);

    let mut served = Served::new(Some(Map::with(&[NODE_7])));
    served.refuses = Some(denied());
    let said = served.at(0, seen(Some((2, false)), &[]));
    assert_eq!(said, [unknown("HTTP 403: forbidden"), Out::Look]);
    assert_eq!(served.retires(0), [Out::Ended(End::Retired)]);

    // Who may read and not write learns at the end who stays Down.
    let mut served = Served::new(Some(Map::with(&[NODE_7])));
    (served.refuses, served.reads) = (Some(denied()), true);
    let said = served.at(0, seen(Some((2, false)), &[]));
    assert_eq!(said, [unknown("HTTP 403: forbidden"), Out::Look]);
    assert_eq!(served.retires(0), [stays_down(&["node-7"]), Out::Ended(End::Retired)]);
}

#[test]
fn n4_a_request_without_a_good_answer_is_made_again_for_half_of_the_time() {
    let mut served = Served::new(Some(Map::with(&[NODE_7])));
    served.refuses = Some(RequestFailure::Other("no answer".into()));
    let unknown = || Left::Unknown("no answer".to_owned());
    assert_eq!(served.at(0, seen(Some((2, false)), &[])), [Out::WaitsFor(unknown())]);
    assert_eq!(served.woken(), (1, vec![]));
    served.refuses = None;
    assert_eq!(served.woken(), (2, vec![takes_back(&["node-7"])]));
    served.refuses = Some(RequestFailure::Other("no answer".into()));
    for second in 3..30 {
        assert_eq!(served.woken(), (second, vec![]));
    }
    let stays = Out::StaysDown(Stay::Unknown("no answer".to_owned()));
    assert_eq!(served.woken(), (30, vec![stays, Out::Look]));
    // What cannot be taken away is told, after it was tried three times.
    assert_eq!(served.retires(30), []);
    assert_eq!(served.woken(), (32, vec![]));
    assert_eq!(served.woken(), (33, vec![Out::NoteStays("no answer".to_owned()), Out::Ended(End::Retired)]));
}

#[test]
fn a3_a_write_that_others_forestall_is_made_again_on_their_state() {
    let mut driven = Driven(Retirement::new(WITHIN).taking_back());
    assert_eq!(driven.at(0, In::Start), [Out::Look]);
    let mut map = Map::with(&[NODE_7]);
    let said = driven.at(0, seen(Some((2, false)), &[]));
    assert_eq!(said, [Out::ConfigMap(ConfigMapAsk::Get)]);
    let said = driven.at(0, In::ConfigMap(map.carry_out(&ConfigMapAsk::Get)));
    let [Out::ConfigMap(write @ ConfigMapAsk::Replace(..))] = &said[..] else { panic!("no write: {said:?}") };
    map.data.insert("pause.everything".into(), "".into());
    map.version += 1;
    assert_eq!(
        driven.at(0, In::ConfigMap(map.carry_out(write))),
        [Out::WaitsFor(Left::Unknown(FORESTALLED.to_owned()))]
    );
    let mut served = Served { driven, map: Some(map), refuses: None, reads: false };
    assert_eq!(served.woken(), (1, vec![takes_back(&["node-7"])]));
    assert_eq!(served.keys(), [OFF, "down.u-7", "pause.everything"]);
}

#[test]
fn n4_the_note_goes_also_where_the_pods_do_not_end_in_time_or_it_is_told_to_end() {
    let (mut served, _) = Served::begun(&[], 2);
    assert_eq!(served.at(0, seen(Some((2, false)), &["a"])), [Out::ScaleDown { from: 2 }]);
    let late = End::Late(Left::Unknown("no answer".to_owned()));
    assert_eq!(served.at(60, In::Failed("no answer".to_owned())), [Out::Ended(late)]);
    assert_eq!(served.keys(), Vec::<&str>::new());

    let (mut served, said) = Served::begun(&[NODE_7], 2);
    assert_eq!(said, [takes_back(&["node-7"])]);
    let said = served.at(1, In::Terminated);
    assert_eq!(said, [stays_down(&["node-7"]), Out::Ended(End::Terminated)]);
    assert_eq!(served.keys(), ["down.u-7"]);
    assert_eq!(served.at(1, In::Terminated), [], "it is over");
}

#[test]
fn n4_who_is_told_to_end_before_it_has_written_anything_ends_at_once() {
    let mut driven = Driven(Retirement::new(WITHIN).taking_back());
    assert_eq!(driven.at(0, In::Start), [Out::Look]);
    assert_eq!(driven.at(0, In::Terminated), [Out::Ended(End::Terminated)]);

    let mut driven = Driven::begun(WITHIN);
    assert_eq!(driven.at(0, seen(Some((0, true)), &["a"])), [waits_for(&["a"])]);
    assert_eq!(driven.at(0, In::Terminated), [Out::Ended(End::Terminated)]);
}

#[test]
fn n4_what_was_under_way_when_it_was_told_to_end_is_asked_anew_and_not_for_ever() {
    let mut driven = Driven(Retirement::new(WITHIN).taking_back());
    assert_eq!(driven.at(0, In::Start), [Out::Look]);
    let read = || Out::ConfigMap(ConfigMapAsk::Get);
    assert_eq!(driven.at(0, seen(Some((0, true)), &[])), [read()], "all is done but for the note");
    assert_eq!(driven.at(0, In::Terminated), [read()]);
    assert_eq!(driven.at(0, In::Terminated), [read()]);
    let why = Out::StaysDown(Stay::Unknown("it was told to end".to_owned()));
    assert_eq!(driven.at(0, In::Terminated), [why, Out::Ended(End::Retired)]);
}
