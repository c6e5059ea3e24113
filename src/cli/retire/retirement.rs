//! How a Deployment comes to run no Pods. It owns what is asked next, when it is over or too late, and what is worth
//! telling; asking and telling are the command's business.

use std::collections::BTreeSet;
use std::time::Duration;

use pool_core::machine::{Machine, Now};

/// How long after an answer it is asked again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How many Pods a Deployment runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Scale {
    /// How many it is to run.
    pub(super) wanted: i32,
    /// Whether its controller has heard that, and knows of no Pod.
    pub(super) settled: bool,
}

/// What was seen at one look.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    /// The Deployment; `None`: there is none.
    pub(super) scale: Option<Scale>,
    /// The names of its Pods that have not ended; none, where it was never there.
    pub(super) pods: BTreeSet<String>,
}

/// What the machine can be told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum In {
    /// Begin; time counts from here.
    Start,
    /// The answer to [`Out::Look`].
    Seen(Seen),
    /// The answer to [`Out::ScaleDown`]: it is done.
    Scaled,
    /// Either had no good answer, for this reason.
    Failed(String),
}

/// What the machine can say. Its requests are answered one by one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Out {
    /// Read the Deployment and its Pods.
    Look,
    /// Have the Deployment run no Pods.
    ScaleDown {
        /// How many it is to run now.
        from: i32,
    },
    /// It is waited for this, and was not before.
    WaitsFor(Left),
    /// It is over, once.
    Ended(End),
}

/// What keeps it from being over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Left {
    /// These Pods have not ended.
    Pods(BTreeSet<String>),
    /// The Deployment's controller has not carried it out.
    Controller,
    /// The last request had no good answer, for this reason.
    Unknown(String),
}

/// How it has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// There is no such Deployment.
    Absent,
    /// None of its Pods runs.
    Retired,
    /// The time is over.
    Late(Left),
}

/// One Deployment on its way to no Pods.
#[derive(Debug)]
pub(super) struct Retirement {
    within: Duration,
    phase: Phase,
    /// Whether the Deployment was there at some look.
    found: bool,
    /// What was last said that it waits for.
    told: Option<Left>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// Not begun.
    Idle,
    /// A request is under way.
    Asking {
        until: Now,
    },
    /// It looks again at `next`.
    Resting {
        until: Now,
        next: Now,
    },
    Over,
}

impl Retirement {
    /// One that has not begun, and may take so long.
    pub(super) fn new(within: Duration) -> Retirement {
        Retirement { within, phase: Phase::Idle, found: false, told: None }
    }

    fn on_seen(&mut self, now: Now, seen: Seen, out: &mut Vec<Out>) {
        let Seen { scale, pods } = seen;
        let was_found = self.found;
        self.found |= scale.is_some();
        match scale {
            Some(Scale { wanted, .. }) if wanted > 0 => out.push(Out::ScaleDown { from: wanted }),
            Some(_) | None if !pods.is_empty() => self.wait(now, Left::Pods(pods), true, out),
            Some(Scale { settled: false, .. }) => self.wait(now, Left::Controller, true, out),
            Some(Scale { settled: true, .. }) => self.end(End::Retired, out),
            // Somebody else has deleted it meanwhile.
            None if was_found => self.end(End::Retired, out),
            None => self.end(End::Absent, out),
        }
    }

    /// Looks again later, unless it is too late; says what it waits for, if that is news.
    fn wait(&mut self, now: Now, left: Left, is_told: bool, out: &mut Vec<Out>) {
        let Phase::Asking { until } = self.phase else { return };
        if until <= now {
            return self.end(End::Late(left), out);
        }
        self.phase = Phase::Resting { until, next: now.plus(LOOK_EVERY).min(until) };
        if is_told && self.told.as_ref() != Some(&left) {
            out.push(Out::WaitsFor(left.clone()));
            self.told = Some(left);
        }
    }

    fn end(&mut self, end: End, out: &mut Vec<Out>) {
        self.phase = Phase::Over;
        out.push(Out::Ended(end));
    }
}

impl Machine for Retirement {
    type In = In;
    type Out = Out;

    fn step(&mut self, now: Now, input: In, out: &mut Vec<Out>) {
        match (input, self.phase) {
            (In::Start, Phase::Idle) => {
                self.phase = Phase::Asking { until: now.plus(self.within) };
                out.push(Out::Look);
            }
            (In::Seen(seen), Phase::Asking { .. }) => self.on_seen(now, seen, out),
            // Pods need a moment to be told; what is left then is said at the next look.
            (In::Scaled, Phase::Asking { .. }) => self.wait(now, Left::Controller, false, out),
            (In::Failed(why), Phase::Asking { .. }) => self.wait(now, Left::Unknown(why), true, out),
            // Nobody answers what was not asked.
            (
                In::Start | In::Seen(_) | In::Scaled | In::Failed(_),
                Phase::Idle | Phase::Asking { .. } | Phase::Resting { .. } | Phase::Over,
            ) => {}
        }
    }

    fn deadline(&self) -> Option<Now> {
        match self.phase {
            Phase::Resting { next, .. } => Some(next),
            Phase::Idle | Phase::Asking { .. } | Phase::Over => None,
        }
    }

    fn tick(&mut self, now: Now, out: &mut Vec<Out>) {
        if let Phase::Resting { until, next } = self.phase
            && next <= now
        {
            self.phase = Phase::Asking { until };
            out.push(Out::Look);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(60);

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
        In::Seen(Seen { scale, pods: names(pods) })
    }

    fn names(pods: &[&str]) -> BTreeSet<String> {
        pods.iter().map(ToString::to_string).collect()
    }

    fn waits_for(pods: &[&str]) -> Out {
        Out::WaitsFor(Left::Pods(names(pods)))
    }

    #[test]
    fn what_runs_is_scaled_down_and_waited_for_until_its_last_pod_has_ended() {
        let mut driven = Driven::begun(WITHIN);
        assert_eq!(driven.at(0, seen(Some((2, false)), &["a", "b"])), [Out::ScaleDown { from: 2 }]);
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
            assert_eq!(driven.at(second, seen(Some((3, false)), &[])), [Out::ScaleDown { from: 3 }]);
            assert_eq!(driven.at(second, In::Scaled), []);
            assert_eq!(driven.woken(), (second + 1, vec![Out::Look]));
        }
    }

    #[test]
    fn without_a_deployment_nothing_is_done_and_one_that_is_deleted_meanwhile_still_has_pods() {
        let mut driven = Driven::begun(WITHIN);
        assert_eq!(driven.at(0, seen(None, &[])), [Out::Ended(End::Absent)]);

        let mut driven = Driven::begun(WITHIN);
        assert_eq!(driven.at(0, seen(Some((0, false)), &["a"])), [waits_for(&["a"])]);
        assert_eq!(driven.woken(), (1, vec![Out::Look]));
        assert_eq!(driven.at(1, seen(None, &["a"])), []);
        assert_eq!(driven.woken(), (2, vec![Out::Look]));
        assert_eq!(driven.at(2, seen(None, &[])), [Out::Ended(End::Retired)]);
    }

    #[test]
    fn a_request_without_a_good_answer_is_made_again_and_each_reason_is_told_once() {
        let mut driven = Driven::begun(WITHIN);
        let refused = || In::Failed("HTTP 403".to_owned());
        assert_eq!(driven.at(0, refused()), [Out::WaitsFor(Left::Unknown("HTTP 403".to_owned()))]);
        assert_eq!(driven.woken(), (1, vec![Out::Look]));
        assert_eq!(driven.at(1, refused()), []);
        assert_eq!(driven.woken(), (2, vec![Out::Look]));
        assert_eq!(driven.at(2, seen(Some((1, true)), &[])), [Out::ScaleDown { from: 1 }]);
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
}
