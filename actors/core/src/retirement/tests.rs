//! Drives retirements on the test's clock.

mod nodes;
mod properties;

use std::collections::BTreeMap;

use super::*;
use crate::arm::Document;
use crate::config_map::{ConfigMapEdit, ConfigMapFacts, Text, Value};
use crate::machine::Wall;
use crate::object::ResourceVersion;

const WITHIN: Duration = Duration::from_secs(60);

/// What is said is the same where it reads the same.
impl PartialEq for Out {
    fn eq(&self, other: &Out) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}

/// Our ConfigMap as the API server has it; a time is written `@` and its microseconds.
#[derive(Clone, Debug)]
struct Map {
    data: BTreeMap<Arc<str>, Arc<str>>,
    version: u64,
}

impl Map {
    fn with(all: &[(&str, &str)]) -> Map {
        let data = all.iter().map(|(key, text)| (Arc::from(*key), Arc::from(*text))).collect();
        Map { data, version: 1 }
    }

    fn facts(&self) -> Arc<ConfigMapFacts> {
        let text = |said: &Arc<str>| Text { text: Arc::clone(said), time: None };
        Arc::new(ConfigMapFacts {
            data: self.data.iter().map(|(key, said)| (Arc::clone(key), text(said))).collect(),
            binary: BTreeSet::new(),
            read: Wall::default(),
            version: ResourceVersion(Arc::from(self.version.to_string())),
            document: Document::new(()),
        })
    }

    fn store(&mut self, edit: &ConfigMapEdit) {
        self.data.retain(|key, _| !edit.remove.contains(key));
        for (key, value) in &edit.set {
            let Value::Since { head, at, tail } = value else { panic!("no note: {value:?}") };
            let text = format!("{head}\nsince: @{}\n{tail}", at.as_micros());
            self.data.insert(Arc::clone(key), text.into());
        }
        self.version += 1;
    }

    fn carry_out(&mut self, ask: &ConfigMapAsk) -> ConfigMapAnswer {
        match ask {
            ConfigMapAsk::Get => {}
            ConfigMapAsk::Create(edit) => panic!("nobody makes a ConfigMap of {edit:?}"),
            ConfigMapAsk::Replace(base, _) if *base.version.0 != *self.version.to_string() => {
                return ConfigMapAnswer::Conflict;
            }
            ConfigMapAsk::Replace(_, edit) => self.store(edit),
        }
        ConfigMapAnswer::Seen(self.facts())
    }

    fn keys(&self) -> Vec<&str> {
        self.data.keys().map(|key| &**key).collect()
    }
}

struct Driven(Retirement);

impl Driven {
    /// One that has begun at 0 s and looks for the first time.
    fn begun(within: Duration) -> Self {
        let mut driven = Self(Retirement::new(within));
        assert_eq!(driven.at(0, In::Start), [Out::Look]);
        driven
    }

    fn at(&mut self, second: u64, input: In) -> Vec<Out> {
        let mut out = Vec::new();
        self.0.step(Now::from_millis(second * 1_000), input, &mut out);
        out
    }

    /// What it says when its deadline has come, and when that was, in seconds.
    fn woken(&mut self) -> (u64, Vec<Out>) {
        let at = self.0.deadline().expect("it looks again");
        let mut out = Vec::new();
        self.0.tick(at, &mut out);
        (at.as_micros() / 1_000_000, out)
    }
}

fn seen(scale: Option<(i32, bool)>, pods: &[&str]) -> In {
    let scale = scale.map(|(wanted, settled)| Scale { wanted, settled });
    In::Seen(Seen { scale, pods: Some(names(pods)) })
}

fn names(pods: &[&str]) -> BTreeSet<String> {
    pods.iter().map(ToString::to_string).collect()
}

fn waits_for(pods: &[&str]) -> Out {
    Out::WaitsFor(Left::Pods(names(pods)))
}

fn waits_for_orphans(pods: &[&str]) -> Out {
    Out::WaitsFor(Left::Orphans(names(pods)))
}

#[test]
fn w8_what_runs_is_scaled_down_and_waited_for_until_its_last_pod_has_ended() {
    let mut driven = Driven::begun(WITHIN);
    assert_eq!(
        driven.at(0, seen(Some((2, false)), &["a", "b"])),
        [Out::StaysDown(Stay::Unnamed), Out::ScaleDown { from: 2 }]
    );
    assert_eq!(driven.at(0, In::Scaled), []);
    assert_eq!(driven.woken(), (1, vec![Out::Look]));
    assert_eq!(driven.at(1, seen(Some((0, false)), &["a", "b"])), [waits_for(&["a", "b"])]);
    assert_eq!(driven.woken(), (2, vec![Out::Look]));
    assert_eq!(driven.at(2, seen(Some((0, true)), &["a", "b"])), [], "nothing is said twice");
    assert_eq!(driven.woken(), (3, vec![Out::Look]));
    assert_eq!(driven.at(3, seen(Some((0, true)), &["b"])), [waits_for(&["b"])]);
    assert_eq!(driven.woken(), (4, vec![Out::Look]));
    assert_eq!(driven.at(4, seen(Some((0, true)), &[])), [Out::Ended(End::Retired)]);
    assert_eq!(driven.0.deadline(), None);
}

#[test]
fn no_pods_are_no_proof_before_the_controller_has_heard_that_there_are_to_be_none() {
    let mut driven = Driven::begun(WITHIN);
    assert_eq!(driven.at(0, seen(Some((0, false)), &[])), [Out::WaitsFor(Left::Controller)]);
    assert_eq!(driven.woken(), (1, vec![Out::Look]));
    assert_eq!(driven.at(1, seen(Some((0, false)), &["a"])), [waits_for(&["a"])]);
}

#[test]
fn what_somebody_scales_up_again_is_scaled_down_again() {
    let mut driven = Driven::begun(WITHIN);
    for second in 0..3 {
        let said = driven.at(second, seen(Some((3, false)), &[]));
        assert_eq!(said.last(), Some(&Out::ScaleDown { from: 3 }));
        assert_eq!(said.contains(&Out::StaysDown(Stay::Unnamed)), second == 0, "once");
        assert_eq!(driven.at(second, In::Scaled), []);
        assert_eq!(driven.woken(), (second + 1, vec![Out::Look]));
    }
}

#[test]
fn w8_without_a_deployment_nothing_is_done_and_one_that_is_deleted_meanwhile_still_has_pods() {
    let mut driven = Driven::begun(WITHIN);
    assert_eq!(driven.at(0, seen(None, &[])), [Out::Ended(End::Absent)]);

    let mut driven = Driven::begun(WITHIN);
    assert_eq!(driven.at(0, seen(Some((0, false)), &["a"])), [waits_for(&["a"])]);
    assert_eq!(driven.woken(), (1, vec![Out::Look]));
    assert_eq!(driven.at(1, seen(None, &["a"])), [waits_for_orphans(&["a"])]);
    assert_eq!(driven.woken(), (2, vec![Out::Look]));
    assert_eq!(driven.at(2, seen(None, &[])), [Out::Ended(End::Retired)]);
}

#[test]
fn pods_that_nobody_can_name_are_not_taken_for_none_while_there_is_a_deployment() {
    let mut retirement = Retirement::new(Duration::from_secs(60));
    let mut out = Vec::new();
    retirement.step(Now::from_millis(0), In::Start, &mut out);
    let scale = Some(Scale { wanted: 0, settled: true });
    retirement.step(Now::from_millis(5), In::Seen(Seen { scale, pods: None }), &mut out);
    assert!(matches!(out[..], [Out::Look, Out::WaitsFor(Left::Unknown(_))]), "{out:?}");
    out.clear();
    retirement.step(Now::from_millis(5), In::Start, &mut out);
    retirement.tick(Now::from_millis(1_005), &mut out);
    retirement.step(Now::from_millis(1_010), In::Seen(Seen { scale: None, pods: None }), &mut out);
    assert_eq!(out, [Out::Look, Out::Ended(End::Retired)], "it was there, and now nothing is known of it");
}

#[test]
fn w8_the_pods_of_a_deployment_that_was_deleted_before_are_waited_for_too() {
    let mut driven = Driven::begun(Duration::from_secs(2));
    assert_eq!(driven.at(0, seen(None, &["a", "b"])), [waits_for_orphans(&["a", "b"])]);
    assert_eq!(driven.woken(), (1, vec![Out::Look]));
    assert_eq!(driven.at(1, seen(None, &["b"])), [waits_for_orphans(&["b"])]);
    assert_eq!(driven.woken(), (2, vec![Out::Look]));
    assert_eq!(
        driven.at(2, seen(None, &["b"])),
        [Out::Ended(End::Late(Left::Orphans(names(&["b"]))))],
        "there is nothing to scale down"
    );

    let mut driven = Driven::begun(WITHIN);
    assert_eq!(driven.at(0, seen(None, &["a"])), [waits_for_orphans(&["a"])]);
    assert_eq!(driven.woken(), (1, vec![Out::Look]));
    assert_eq!(driven.at(1, seen(None, &[])), [Out::Ended(End::Retired)]);
}

#[test]
fn a_request_without_a_good_answer_is_made_again_and_each_reason_is_told_once() {
    let mut driven = Driven::begun(WITHIN);
    let refused = || In::Failed("HTTP 403".to_owned());
    assert_eq!(driven.at(0, refused()), [Out::WaitsFor(Left::Unknown("HTTP 403".to_owned()))]);
    assert_eq!(driven.woken(), (1, vec![Out::Look]));
    assert_eq!(driven.at(1, refused()), []);
    assert_eq!(driven.woken(), (2, vec![Out::Look]));
    assert_eq!(driven.at(2, seen(Some((1, true)), &[])).last(), Some(&Out::ScaleDown { from: 1 }));
    assert_eq!(
        driven.at(2, In::Failed("HTTP 500".to_owned())),
        [Out::WaitsFor(Left::Unknown("HTTP 500".to_owned()))]
    );
    assert_eq!(driven.woken(), (3, vec![Out::Look]));
}

#[test]
fn when_the_time_is_over_it_looks_once_more_and_names_what_is_left() {
    for (last, left) in [
        (seen(Some((0, true)), &["a"]), Left::Pods(names(&["a"]))),
        (seen(None, &["a"]), Left::Orphans(names(&["a"]))),
        (seen(Some((0, false)), &[]), Left::Controller),
        (In::Failed("no answer".to_owned()), Left::Unknown("no answer".to_owned())),
    ] {
        let mut driven = Driven::begun(Duration::from_millis(1_500));
        assert_eq!(driven.at(0, seen(Some((0, true)), &["a"])), [waits_for(&["a"])]);
        assert_eq!(driven.woken(), (1, vec![Out::Look]));
        assert_eq!(driven.at(1, seen(Some((0, true)), &["a"])), []);
        assert_eq!(driven.0.deadline(), Some(Now::from_millis(1_500)), "not later than its time");
        assert_eq!(driven.woken().1, [Out::Look]);
        assert_eq!(driven.at(2, last), [Out::Ended(End::Late(left))]);
    }
    let mut driven = Driven::begun(Duration::ZERO);
    assert_eq!(driven.at(3, seen(Some((0, true)), &[])), [Out::Ended(End::Retired)], "late, and done");
}
